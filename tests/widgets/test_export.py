"""A run as one page: opened from disk with the network off, it shows the engine's numbers."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("anywidget")
pytest.importorskip("zarr")

import llmviz
from llmviz import widgets
from llmviz.errors import LlmvizError
from llmviz.sampling import Chain, Dist, Penalties, Temp, TopK, TopP
from llmviz.trace import Debugger, Trace, open_trace
from llmviz.trace.overview import MEASURES
from llmviz.trace.pages import Paged
from llmviz.trace.scores import STAGES
from llmviz.widgets.export import run_to_html
from llmviz.widgets.recorded import choose_stops
from llmviz.widgets.recorded_arrays import attention_of
from llmviz.widgets.recorded_flow import flow_of
from llmviz.widgets.transport import TransportView

from . import host
from .test_hostile import EVIL, check, hostile_debugger

pytestmark = pytest.mark.browser

PROMPT = [1, *range(262, 279)]  # 18 tokens: strips keep one width to the end

# The state that a page's model has, bytes as lists.
STATE = """(names) => Object.fromEntries(names.map((k) => {
  const v = llmviz.get(k);
  return [k, ArrayBuffer.isView(v) ? { bytes: [...new Uint8Array(v.buffer, v.byteOffset, v.byteLength)] } : v];
}))"""  # noqa: E501
ASK = """(message) => new Promise((done) => {
  const hear = (m) => { if (m.reply === "t") { llmviz.off("msg:custom", hear); done(m); } };
  llmviz.on("msg:custom", hear);
  llmviz.send({ ...message, id: "t" });
})"""
OWN = {
    "theme",
    "projector",
    "rev",
    "here",
    "running",
    "error",
    "can_restart",
    "edits",
    "chain",
    "editable",
}


@pytest.fixture(scope="module")
def run(tiny_model: Callable[..., str]) -> Debugger:
    chain = Chain([Penalties(16, 1.1), TopK(30), TopP(0.9), Temp(0.9), Dist(7)])
    dbg = Debugger(tiny_model(n_layer=3), PROMPT, chain, n_predict=3, n_ctx=64, n_ubatch=12)
    dbg.keep_all()
    dbg.run_to_end()
    return dbg


@pytest.fixture(scope="module")
def trace(run: Debugger, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trace]:
    path = tmp_path_factory.mktemp("export") / "run.zarr.zip"
    run.save(path)
    with open_trace(path) as opened:
        yield opened


@pytest.fixture(scope="module")
def html(trace: Trace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export") / "run.html"
    trace.to_html(path)
    return path


class Opened:
    """A page from disk in a browser without a network, and what went wrong in it."""

    def __init__(self, browser: Any, path: Path, **options: Any) -> None:
        self.context = browser.new_context(
            offline=True, viewport={"width": 1300, "height": 1000}, **options
        )
        self.page = self.context.new_page()
        self.problems: list[str] = []
        self.page.on("pageerror", lambda e: self.problems.append(str(e)))
        self.page.on("console", lambda m: m.type == "error" and self.problems.append(m.text))
        self.page.on("request", lambda r: r.url.startswith("file:") or self.problems.append(r.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector(".llmviz[data-draws]:not([data-draws='0'])")

    def state(self, names: Any) -> dict[str, Any]:
        found = self.page.evaluate(STATE, list(names))
        return {
            k: bytes(v["bytes"]) if isinstance(v, dict) and "bytes" in v else v
            for k, v in found.items()
        }

    def set(self, **traits: Any) -> None:
        self.page.evaluate(
            "(t) => { for (const k in t) llmviz.set(k, t[k]); llmviz.save_changes(); }", traits
        )

    def ask(self, **message: Any) -> Any:
        return self.page.evaluate(ASK, message)

    def here(self) -> int:
        return int(self.page.get_attribute(".llmviz", "data-here"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with host.chromium() as running:
        yield running


@pytest.fixture(scope="module")
def opened(browser: Any, html: Path) -> Iterator[Opened]:
    page = Opened(browser, html)
    yield page
    assert page.problems == []
    page.context.close()


def own_traits(view: Any) -> list[str]:
    skip = (*OWN, "layout", "tabbable", "tooltip", "timeline", "spoken")
    return [n for n in view.keys if n[0] != "_" and n not in skip]


def same(name: str, theirs: Any, ours: Any, empty: bool = False, loose: bool = False) -> None:
    if isinstance(ours, (bytes, memoryview)):
        ours = bytes(ours)
    else:
        ours = json.loads(json.dumps(ours, default=lambda x: x.item()))
    if name == "flow" and empty:  # without rows a page's strips have the width of its last ones
        for c in (*theirs["columns"], *ours["columns"]):
            c.pop("bins")
    # Sums of many numbers, added up in another order.
    if name == "attention_about":
        for a in (theirs, ours):
            a["sums"] = (
                pytest.approx(a["sums"], abs=1e-9) if a is ours and "sums" in a else a.get("sums")
            )
    if loose:
        theirs, ours = np.frombuffer(theirs, "<f4"), np.frombuffer(ours, "<f4")
        assert np.allclose(theirs, ours, atol=1e-6, equal_nan=True), name
        return
    if isinstance(theirs, dict):  # what a view says besides is not in every page
        ours = {k: v for k, v in ours.items() if k in theirs}
    assert theirs == ours, name


def test_the_page_shows_what_the_views_show(opened: Opened, trace: Trace) -> None:
    """At stops all over the run, with layers, heads and tokens chosen at random."""
    pick = random.Random(2)
    stops = [trace.all_events[i].n for i in choose_stops(trace, 10**6)]
    assert len(stops) == len(trace.all_events), "a short run is there as a whole"
    some = {*pick.sample(stops, 14), stops[0], stops[-1]}
    kinds = ("kq_soft_max-1", "kv_cells", "logits", "top_p", "token", "l_out-2", "inp_pos")
    some |= {next(r.n for r in trace.all_events if r.name == name) for name in kinds}
    alone = (
        widgets.LogitsView, widgets.OutputView, widgets.KVCacheView, widgets.SamplerView,
        widgets.MapView, widgets.TensorView, TransportView,
    )  # fmt: skip
    tensors = 0
    for n in sorted(some, key=lambda _: pick.random()):
        layer, head = pick.randrange(3), pick.randrange(4)
        query, key = pick.choice((-1, pick.randrange(22))), pick.choice((-1, pick.randrange(22)))
        trace.goto(n)
        opened.page.evaluate("(n) => llmviz.goto(n)", n)
        opened.set(layer=layer, head=head, query=query, key=key, pinned=True, view="attention")
        for kind in alone:
            with kind(trace) as view:
                names = own_traits(view)
                found = opened.state(names)
                if isinstance(view, widgets.TensorView):
                    tensors += bool(view.window)
                for name in names:
                    same(name, found[name], getattr(view, name))
        measure, stage = pick.choice(MEASURES), pick.choice(STAGES)
        opened.set(measure=measure, stage=stage)
        with widgets.AttentionView(
            trace,
            layer=layer,
            head=head,
            query=query,
            key=key,
            follow=False,
            measure=measure,
            stage=stage,
        ) as a:
            names = [n for n in own_traits(a) if n != "head"]
            found = opened.state(names)
            for name in names:
                loose = name == "overview" and measure != "pair"
                if name == "overview_about" and measure != "pair":
                    found[name].pop("best", None), getattr(a, name).pop("best", None)
                same(name, found[name], getattr(a, name), loose=loose)
        options = {"layer": layer, "head": head, "query": query, "follow": False}
        with widgets.FlowView(trace, **options) as f:
            found = opened.state(n for n in own_traits(f) if n not in options)
            known = [n for n in found if found[n] is not None]
            assert {"flow", "flow_rows", "flow_at", "flow_open", "flow_top"} <= set(known)
            empty = all(r["state"] == "place" for r in f.flow_rows)
            for name in known:
                same(name, found[name], getattr(f, name), empty=empty)
    assert tensors > 3


def test_numbers_on_screen_are_the_engine_s(opened: Opened, run: Debugger, trace: Trace) -> None:
    page = opened.page
    page.evaluate("(n) => llmviz.goto(n)", run.furthest)
    opened.set(layer=1, head=2, query=-1, key=-1, stage="softmax", pinned=True, view="attention")
    page.wait_for_selector(".lv-attention .lv-att-key")
    shown = page.eval_on_selector_all(
        ".lv-att-key [data-value]", "all => all.map((x) => [x.dataset.value, x.dataset.ref])"
    )
    block = run.recorder.attention[1][-1]
    row = block.p[2, -1]
    assert len(shown) == len(row) and sum(float(v) for v, _ in shown) == pytest.approx(1, abs=1e-5)
    for (value, ref), weight in zip(shown, row, strict=True):
        assert np.float32(float(value)) == weight
        assert ref.startswith("kq_soft_max-1[2,pos ")
    opened.set(view="logits")
    top = run.recorder.top
    page.wait_for_selector(".lv-logits [data-value]")
    for a in top:
        got = page.get_attribute(f".lv-logits [data-ref='logits[{a.id}]']", "data-value")
        assert float(got) == a.logit
    # a strip of the flow, and the node of a tensor, number by number
    column = "Kcur-2"
    opened.set(view="flow", layer=2, head=1)
    kept = run.recorder.value(column)
    for bin_ in (0, 3, 7):
        last = opened.state(["flow_rows"])["flow_rows"]
        i = max(k for k, r in enumerate(last) if r["state"] == "now")
        got = opened.ask(ask="flow_value", column=column, row=i, bin=bin_)["value"]
        index = tuple(int(x) for x in re.search(r"\[(.*)\]", got["ref"])[1].split(","))
        place = kept.array.reshape(kept.array.shape[0], -1, 16)[index]
        assert np.float32(float(got["value"])) == place
    node = next(r for r in run.events if r.name == "kq_soft_max-0" and r.kind == "node")
    page.evaluate("(n) => llmviz.goto(n)", node.n)
    array = trace.goto(node.n).value
    opened.set(slice=[3], view="tensor")
    got = opened.ask(ask="values", n=node.n, row=1, column=0, rows=3, columns=5)["value"]
    for r, (line, refs) in enumerate(zip(got["values"], got["refs"], strict=True)):
        for c, (value, ref) in enumerate(zip(line, refs, strict=True)):
            assert np.float32(float(value)) == array[3, 1 + r, c]
            assert ref == f"kq_soft_max-0[3,{1 + r},{c}]"


def test_it_is_walked_forth_and_back(opened: Opened, trace: Trace) -> None:
    """Keys and buttons lead where a trace's steps lead; fifty of them leave the same numbers."""
    page = opened.page
    opened.set(pinned=False, layer=0)
    start = next(r.n for r in trace.all_events if r.name == "process_ubatch")
    trace.goto(start)
    page.evaluate("(n) => llmviz.goto(n)", start)
    page.focus(".llmviz [data-action=into]")
    names = ["event", "tokens", "top", "flow_at", "attention", "strip"]
    before = opened.state(names)
    keys = {
        "F11": "step_into", "F10": "step_over", "Shift+F11": "step_out", "Shift+F10": "step_back",
        "n": "next_token", "p": "prev_token",
    }  # fmt: skip
    walk = ["F11", "F11", "F10", "F11", "Shift+F11", "n", "Shift+F10", "F10", "n", "p", "F11"]
    for key in walk:
        getattr(trace, keys[key])()
        page.keyboard.press(key)
        page.wait_for_function(
            "n => document.querySelector('.llmviz').dataset.here == n", arg=str(trace.n)
        )
    page.click("[data-action=over]")
    trace.step_over()
    page.wait_for_function(
        "n => document.querySelector('.llmviz').dataset.here == n", arg=str(trace.n)
    )
    for _ in range(25):
        opened.ask(ask="go", action="into")
    for _ in range(25):
        opened.ask(ask="go", action="back")
    assert opened.here() == trace.n
    page.click(".lv-token[data-pos='19']")
    token = next(k for k in trace.tokens if k.pos == 19) if len(trace.tokens) > 19 else None
    assert token is None or opened.here() == token.n
    page.evaluate("(n) => llmviz.goto(n)", start)
    assert opened.state(names) == before
    page.click("[data-action=run]")
    assert opened.here() == trace.furthest
    assert "last event" in opened.ask(ask="go", action="into")["error"]
    assert page.is_visible(".lv-notice") and "recorded" in page.inner_text(".lv-notice")
    assert "not changed" in opened.ask(ask="choose-another", pos=19, token=3)["error"]
    page.click("[data-step='9']")
    page.wait_for_function("() => llmviz.get('step') === 9")
    assert not page.is_visible(".lv-notice")


def test_its_frame_is_closed_and_honest(opened: Opened, html: Path, browser: Any) -> None:
    text = html.read_text()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert (
        "unsafe" not in policy.split("style-src")[0] and text.count('<script type="module">') == 1
    )
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", text)
    page = opened.page
    assert "recorded, not live" in page.inner_text(".page-head")
    page.click(".page-foot summary")
    foot = page.inner_text(".page-foot")
    assert f"llmviz {llmviz.__version__}" in foot and "Left out" in foot and "Debugger(" in foot
    # what would change a run is not offered
    for view in ("attention", "sampler", "logits", "flow"):
        opened.set(view=view, pinned=True)
        page.wait_for_selector(f"[data-tab={view}][aria-selected=true]")
        for selector in ("[data-edit]", "[data-flow=break]", "[data-action=restart]", "form"):
            assert not any(x.is_visible() for x in page.query_selector_all(f"#view {selector}"))
    injected = page.evaluate(
        "() => { const s = document.createElement('script'); s.textContent = 'window.bad = 1';"
        " document.body.append(s); return window.bad; }"
    )
    assert injected is None, "the policy lets no other script run"
    opened.problems.clear()
    for scheme, light in (("light", True), ("dark", False)):
        other = Opened(browser, html, color_scheme=scheme)
        ground = "() => getComputedStyle(document.querySelector('.llmviz')).backgroundColor"
        bright = int(re.search(r"\d+", other.page.evaluate(ground))[0]) > 128
        assert bright == light
        other.page.click(f"[data-theme-choice={'dark' if light else 'light'}]")
        assert (int(re.search(r"\d+", other.page.evaluate(ground))[0]) > 128) != light
        other.page.click("[data-page-projector]")
        size = "() => getComputedStyle(document.querySelector('.llmviz')).fontSize"
        assert other.page.evaluate(size) == "21px"
        assert other.problems == []
        other.context.close()


def test_hostile_text_is_data(browser: Any, tmp_path: Path) -> None:
    dbg = hostile_debugger()
    dbg.run()
    path = tmp_path / "evil.html"
    dbg.to_html(path)
    text = path.read_text()
    before = text.split('<script type="module">')[0]
    assert "&lt;script&gt;window.__pwned" in before and "<script>window" not in before
    assert "\u202e" not in before and path.stat().st_size < 2_000_000
    evil = Opened(browser, path)
    for k in range(3 * len(EVIL)):
        evil.ask(ask="go", action=("into", "over", "next-token")[k % 3])
        check(evil.page)
    for view in evil.page.evaluate("() => llmviz.views"):
        evil.set(view=view, pinned=True)
        check(evil.page)
    assert evil.page.evaluate("() => window.__pwned") is None and evil.problems == []
    evil.context.close()


def test_a_view_alone_is_a_page_too(
    browser: Any,
    run: Debugger,
    trace: Trace,
    tmp_path: Path,
    tiny_model: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    context = None
    views = [getattr(llmviz.show, n)(trace) for n in ("attention", "flow", "sampler")]
    views += [llmviz.show.gguf(tiny_model()), llmviz.show.tokens(run.model, "The cat sat")]
    for view in views:
        path = tmp_path / "view.html"
        view.to_html(path)
        if context is None:
            context = Opened(browser, path)
        else:
            context.page.goto(path.as_uri())
            context.page.wait_for_selector(".llmviz[data-draws]:not([data-draws='0'])")
        assert context.page.get_attribute(".llmviz", "data-view") == view.view_name
        assert "nothing here is live" in context.page.inner_text(".page-head")
        view.close()
    assert context is not None and context.problems == []
    context.context.close()
    pages: list[Any] = []
    monkeypatch.setattr(Paged, "page_with", lambda *a, **k: pages.append(a))
    with widgets.DebuggerPanel(trace) as panel:
        panel.to_html("panel.html")
    assert pages == [(trace, "panel.html")], "a panel's page is its run's"


def test_what_has_no_room_is_left_out_and_said(trace: Trace, html: Path, tmp_path: Path) -> None:
    told: list[float] = []
    moved: list[int] = []
    end = trace.on_change(lambda: moved.append(trace.n))
    less = tmp_path / "less.html"
    size = html.stat().st_size - 30_000
    trace.to_html(less, max_bytes=size, progress=told.append)
    assert told == sorted(told) and told[-1] == 1.0
    assert not moved, "nobody who follows the trace hears of it"
    end()
    assert less.stat().st_size <= size
    assert "of 3 layers" in less.read_text() or "values of" in less.read_text()
    with pytest.raises(LlmvizError, match="too few"):
        trace.to_html(tmp_path / "none.html", max_bytes=10_000)
    assert not (tmp_path / "none.html").exists()
    trace.goto(trace.furthest)
    part, layers, held = attention_of(trace, 9_000)
    assert part.packed_size() <= 9_000 and 0 < len(layers) < held == 3
    strips, about, missing = flow_of(trace, 10**7, [1])
    assert list(about["layers"]) == ["0", "2"] and "1 of 3 layers" in missing
    assert flow_of(trace, strips.packed_size() - 1, [1])[1]["layers"].keys() == {"0"}
    few = choose_stops(trace, 120)
    assert len(few) <= 120
    numbers = {trace.all_events[i].n for i in few}
    assert {k.n for k in trace.tokens} <= numbers, "every token is a stop"
    with pytest.raises(OSError):
        trace.to_html(tmp_path / "nowhere" / "run.html")


def test_a_run_without_kept_nodes_has_a_page(
    browser: Any, tiny_model: Callable[..., str], tmp_path: Path
) -> None:
    dbg = Debugger(tiny_model(), PROMPT, n_predict=2, n_ctx=64)
    with pytest.raises(LlmvizError, match="nothing was recorded"):
        run_to_html(dbg, tmp_path / "none.html")
    dbg.run_to_end()
    at = dbg.n
    dbg.to_html(tmp_path / "run.html", start=0)
    assert dbg.n == at, "the run stands where it stood"
    bare = Opened(browser, tmp_path / "run.html")
    assert "flow" not in bare.page.evaluate("() => llmviz.views")
    assert "keep_all" in bare.page.text_content(".page-foot")
    assert bare.here() == trace_first(dbg) and bare.problems == []
    bare.context.close()


def trace_first(dbg: Debugger) -> int:
    return int(next(iter(dbg.events)).n)
