"""The flow view: its columns are the graph's, its numbers the engine's, its page legible."""

from __future__ import annotations

import re
import time

import numpy as np
import pytest

pytest.importorskip("anywidget")

import llmviz
from llmviz.errors import LlmvizError
from llmviz.generate import generate_steps
from llmviz.trace import Debugger
from llmviz.trace.flow import EARLIER, NOW, Flow, bins_of, edges_of, ends, strongest
from llmviz.trace.flow_graph import layer_of, stem
from llmviz.widgets import DebuggerPanel
from llmviz.widgets.flow import FlowView, bins_for
from llmviz.widgets.picture import LEVELS, NAN

from . import host
from .test_page import CONTRAST

PROMPT = "The cat sat on the mat"
LAYERS, HEADS = 6, 4


@pytest.fixture(scope="module")
def model(tiny_model):
    return llmviz.load(tiny_model(n_layer=LAYERS, n_head=HEADS))


def debug(model, prompt=PROMPT, n_predict=3, **params) -> Debugger:
    return Debugger(model, prompt, n_predict=n_predict, n_ctx=256, **params)


class Truth:
    """Every node and input of a run, by (pass, name): copies that no recorder has touched."""

    def __init__(self, model, prompt=PROMPT, n_predict=3):
        self.values: dict[tuple[int, str], np.ndarray] = {}
        passes = -1
        for event in generate_steps(model.context(n_ctx=256), prompt, None, n_predict):
            passes += event.kind == "enter" and event.name == "process_ubatch"
            if event.step == 13 and isinstance(event.value, np.ndarray):
                self.values[passes, event.name] = np.array(event.value)

    def at(self, pass_: int, ref: str) -> float:
        name, _, index = ref.rpartition("[")
        return float(self.values[pass_, name][tuple(int(i) for i in index[:-1].split(","))])


@pytest.fixture(scope="module")
def truth(model) -> Truth:
    return Truth(model)


def ask(view, **message):
    replies = []
    view.send = lambda content, buffers=None: replies.append(content)
    view._on_message(view, {"id": "1", **message}, [])
    return replies[-1]


# -- structure -----------------------------------------------------------------------------------


def test_columns_and_edges_are_the_graphs(model):
    dbg = debug(model)
    flow = Flow(dbg, layer=2)
    dbg.next_token()
    flow.update()
    names = [c.id for c in flow.columns]
    assert names[0] == "embd" and names[-2:] == ["result_norm", "result_output"]
    assert [n for n in names if stem(n) == "l_out"] == [f"l_out-{i}" for i in range(LAYERS)]
    inside = [stem(n) for n in names if layer_of(n) == 2]
    order = ["attn_norm", "Qcur", "Kcur", "kq", "kq_soft_max", "Vcur", "kqv", "kqv_out"]
    assert inside[: len(order)] == order and inside[-1] == "l_out"
    nodes = dbg.ctx.graph.gf.nodes
    written = {id(t.src[2].root): t.src[0] for t in nodes if t.op == "SET_ROWS"}

    def leads(t, name, seen):
        """Whether a tensor is computed from a node of this name, however far."""
        if id(t) in seen:
            return False
        seen.add(id(t))
        above = [s for s in t.src if s is not None]
        if t.op != "SET_ROWS" and id(t.root) in written:
            above.append(written[id(t.root)])
        return any(s.name == name or leads(s, name, seen) for s in above)

    last = {t.name: t for t in nodes}
    for a, b in flow.edges:
        assert a < b and leads(last[names[b]], names[a], set()), (names[a], names[b])
    into = {names[b]: {names[a] for a, c in flow.edges if c == b} for b in range(len(names))}
    assert into["kqv-2"] == {"kq_soft_max-2", "Vcur-2"}
    assert into["l_out-2"] == {"ffn_out-2", "ffn_inp-2"}
    assert into["ffn_inp-2"] == {"attn_out-2", "l_out-1"}
    assert into["embd"] == set() and all(into[n] for n in names[1:])


@pytest.mark.parametrize("variant", ["gqa_1", "mha", "fused_qkv", "all_biases", "one_layer"])
def test_any_shape_of_the_model_has_its_columns(tiny_model, variant):
    dbg = debug(llmviz.load(tiny_model(variant=variant)))
    view = FlowView(dbg)
    dbg.next_token()
    view.head = 3
    columns = view.flow["columns"]
    assert all(view.flow_at["done"])
    assert {c["kind"] for c in columns} == {"vector", "head", "matrix"}
    heads = {stem(c["id"]): c["head"] for c in columns if c["heads"]}
    n_kv = view.flow["n_head_kv"]
    assert heads["Qcur"] == 3 and heads["Kcur"] == heads["Vcur"] == 3 * n_kv // 4
    view.close()


def test_only_what_is_shown_is_asked_for(model):
    dbg = debug(model)
    view = FlowView(dbg, layer=4, follow=False)
    dbg.next_token()
    wants = dbg.recorder.wants
    assert wants("Qcur-4") and wants("l_out-1") and wants("embd") and wants("ffn_up-4")
    assert not wants("Qcur-3") and not wants("ffn_up-0") and not wants("norm-4")
    view.close()
    assert not wants("Qcur-4") and not wants("embd")
    assert dbg.recorder.value("Qcur-4") is None


# -- numbers -------------------------------------------------------------------------------------


def test_a_bin_is_its_strongest_value():
    x = np.array([[1, -5, 2, 0, 3, -3, 0.5]], np.float32)
    assert strongest(x, 3).tolist() == [[-5, 2, 3]] and list(edges_of(7, 3)) == [0, 2, 4, 7]
    assert strongest(x[:, :6], 3).tolist() == [[-5, 2, 3]]
    assert strongest(x, 9).tolist() == x.tolist()
    x[0, 2] = np.nan
    assert np.isnan(strongest(x, 3)[0, 1])
    assert bins_of(576, 48) == 48 and bins_of(64, 48) == 32 and bins_of(7, 48) == 7
    assert bins_of(101, 48) == 48
    line = np.array([[1.0] * 47 + [1000]], np.float32)
    assert ends(line)[0] == 4.0 or ends(line)[0] == 1.0, "one outlier leaves the rest coloured"
    assert ends(np.zeros((2, 5), np.float32)).tolist() == [0, 0]


def blocks(view: FlowView):
    """The page's bytes, cut as the page cuts them: column -> (states, bins)."""
    n = len(view.flow_rows)
    packs, out = {True: view.flow_open, False: view.flow_folded}, {}
    for c in view.flow["columns"]:
        if c["kind"] == "matrix":
            continue
        inside = c["group"] in ("attention", "mlp")
        size = n * (1 + c["bins"])
        block = np.frombuffer(packs[inside][:size], np.uint8).reshape(n, -1)
        packs[inside] = packs[inside][size:]
        out[c["id"]] = (block[:, 0], block[:, 1:])
    assert packs == {True: b"", False: b""}
    return out


def test_strips_are_the_engines_numbers(model, truth):
    dbg = debug(model)
    view = FlowView(dbg, layer=2, head=3, follow=False)
    dbg.next_token()
    columns = {c["id"]: c for c in view.flow["columns"]}
    for name, (states, shown) in blocks(view).items():
        array, c = truth.values[0, name], columns[name]
        if c["kind"] == "head":
            array = array[3] if stem(name) == "kqv" else array[:, c["head"]]
        used = states == NOW
        assert used[-1 - (view.flow_rows[-1]["state"] == "next")]
        lines = strongest(array.reshape(-1, array.shape[-1]), c["bins"])
        level = np.clip(lines / ends(lines)[:, None], -1, 1) * (LEVELS / 2) + LEVELS / 2
        assert np.abs(shown[used] - level).max() <= 0.51, name
    n = len(view.flow_rows)
    weights = np.frombuffer(view.flow_weights, np.uint8).reshape(n, n)
    p = truth.values[0, "kq_soft_max-2"][3]
    live = n - 1
    expected = np.rint(np.sqrt(p[:, :live]) * LEVELS)
    assert (weights[:live, :live] == expected).all() and (weights[live] == NAN).all()
    mask = np.frombuffer(view.flow_mask, np.uint8).reshape(n, n)[:live, :live]
    assert (mask == np.triu(np.ones((live, live)), 1)).all()
    row = np.frombuffer(view.flow_row, "<f4")
    assert (row[:live] == p[live - 1, :live]).all() and row[:live].sum() == pytest.approx(1, 1e-6)
    view.close()


def same(got, exact) -> bool:
    """Whether a shown number is the engine's, in the engine's own type."""
    number = np.dtype(got["dtype"]).type
    return number(got["value"]) == number(exact)


def check_values(view, truth, count, seed=0) -> int:
    """Ask for numbers all over the view and hold each against the witness."""
    rng, asked = np.random.default_rng(seed), 0
    columns = view.flow["columns"]
    while asked < count:
        c = columns[rng.integers(len(columns))]
        row = int(rng.integers(len(view.flow_rows)))
        most = c["bins"] or len(view.flow_rows)
        got = ask(view, ask="flow_value", column=c["id"], row=row, bin=int(rng.integers(most)))
        got = got["value"]
        asked += 1
        if got["value"] is None:
            continue
        exact = truth.at(got["pass"], got["ref"])
        assert same(got, exact), got
        if "from" in got:
            name, _, index = got["ref"].rpartition("[")
            numbers = [int(i) for i in index[:-1].split(",")]
            whole = truth.values[got["pass"], name]
            transposed = name.startswith("cache_v")
            spots = [
                (i, *numbers[1:]) if transposed else (*numbers[:-1], i)
                for i in range(got["from"], got["to"] + 1)
            ]
            assert abs(exact) == max(abs(float(whole[s])) for s in spots)
    return asked


def test_two_hundred_numbers_under_the_pointer(model, truth):
    dbg = debug(model)
    view = FlowView(dbg, layer=3, head=1, follow=False)
    dbg.next_token()
    assert check_values(view, truth, 200) == 200
    view.close()


# -- how far it has come -------------------------------------------------------------------------


def test_a_pause_in_the_middle_shows_how_far_the_pass_has_come(model):
    dbg = debug(model)
    view = FlowView(dbg, layer=2, follow=False)
    dbg.break_on("kqv-2")
    dbg.run()
    at, columns = view.flow_at, view.flow["columns"]
    assert columns[at["now"]]["id"] == "kqv-2" == columns[at["reached"]]["id"]
    assert at["done"] == [int(i <= at["reached"]) for i in range(len(columns))]
    assert at["phase"] == "pass" and view.flow_top == [] and not at["missing"]
    states = {name: set(s.tolist()) for name, (s, _) in blocks(view).items()}
    assert states["l_out-1"] == {NOW} and states["kqv_out-2"] == {0}
    dbg.step_into()
    assert columns[view.flow_at["now"]]["id"] in ("kqv-2", "kqv_out-2")
    dbg.clear_break()
    dbg.next_token()
    assert view.flow_at["phase"] == "accept" and all(view.flow_at["done"])
    assert view.flow_rows[-1]["state"] == "next" and [t for t in view.flow_top if t["chosen"]]
    assert [s["name"] for s in view.flow_chain][-1] == "dist"
    view.close()


def test_a_decode_pass_dims_what_the_cache_holds(model, truth):
    dbg = debug(model)
    view = FlowView(dbg, layer=2, follow=False)
    dbg.next_token()
    dbg.break_on("ffn_norm-2")
    dbg.run()
    states = [r["state"] for r in view.flow_rows]
    assert states == ["cached"] * (len(states) - 1) + ["now"]
    assert view.flow_at["n_new"] == 1 and view.flow_at["pass_"] == 1
    k, _ = blocks(view)["Kcur-2"]
    assert k.tolist() == [EARLIER] * (len(states) - 1) + [NOW]
    row = np.frombuffer(view.flow_row, "<f4")
    assert (row == truth.values[1, "kq_soft_max-2"][0, 0, : len(row)]).all()
    view.close()


def test_a_layer_that_was_folded_is_computed_again_when_it_opens(model, truth):
    dbg = debug(model)
    view = FlowView(dbg, layer=0, head=2, follow=False)
    dbg.next_token()
    dbg.break_on("ffn_norm-4")
    dbg.run()
    here = dbg.n
    view.layer = 4
    assert view.flow_at["missing"] and not blocks(view)["Qcur-4"][0].any()
    ask(view, ask="flow_fetch")
    assert not view.flow_at["missing"] and dbg.n == here
    states = {name: s for name, (s, _) in blocks(view).items()}
    assert states["Qcur-4"].tolist()[-1] == NOW and not states["Qcur-4"][:-1].any()
    assert states["Kcur-4"].tolist() == [EARLIER] * (len(view.flow_rows) - 1) + [NOW]
    got = ask(view, ask="flow_value", column="Vcur-4", row=1, bin=0)["value"]
    assert got["ref"].startswith("cache_v_l4 (view)[")
    assert same(got, truth.at(1, got["ref"]))
    was = truth.values[0, "Vcur-4"][1, view.flow["columns"][0]["head"] + 1]
    assert np.isclose(was, float(got["value"]), rtol=1e-3).any(), "the same value, in the cache"
    assert check_values(view, truth, 120, seed=3) == 120
    view.close()


def test_a_view_of_a_run_that_went_by_computes_it_again(model, truth):
    dbg = debug(model)
    dbg.next_token()
    dbg.next_token()
    view = FlowView(dbg, layer=3, follow=False)
    assert view.flow_at["missing"] and dbg.here.name == "token"
    ask(view, ask="flow_fetch")
    assert not view.flow_at["missing"] and all(view.flow_at["done"])
    assert [r["state"] for r in view.flow_rows][-2:] == ["now", "next"]
    assert check_values(view, truth, 100, seed=5) == 100
    view.close()


def test_following_opens_the_layer_that_runs(model):
    dbg = debug(model)
    view = FlowView(dbg)
    dbg.break_on("attn_norm-3")
    dbg.run()
    assert view.layer == 3 and view.follow
    view.layer = 1
    assert not view.follow and view.flow["layer"] == 1
    dbg.step_into()
    assert view.layer == 1
    view.layer = 99
    assert view.layer == LAYERS - 1
    view.head = 99
    assert view.head == HEADS - 1
    view.close()


def test_many_tokens_are_a_window(model):
    dbg = debug(model, " ".join([PROMPT] * 12))
    view = FlowView(dbg, follow=False)
    dbg.next_token()
    assert len(view.flow_rows) == 40 and view.flow_at["n_tokens"] > 60
    assert view.flow_rows[-1]["pos"] == view.flow_at["n_tokens"] - 1
    dbg.next_token()
    assert view.flow_rows[-2]["state"] == "now"
    view.close()


def test_going_back_takes_the_picture_back(model):
    dbg = debug(model)
    view = FlowView(dbg, layer=2, follow=False)
    dbg.break_on("kqv-2")
    dbg.run()
    dbg.clear_break()
    n, before = dbg.n, (view.flow_open, view.flow_folded, view.flow_at)
    dbg.next_token()
    assert view.flow_open != before[0]
    dbg.goto(n)
    assert (view.flow_open, view.flow_folded, view.flow_at) == before
    view.close()


def test_questions_that_make_no_sense_are_answered(model):
    dbg = debug(model)
    view = FlowView(dbg, follow=False)
    dbg.next_token()
    assert "open its layer" in ask(view, ask="flow_value", column="Qcur-5", row=0, bin=0)["error"]
    for row, at in ((-1, 0), (999, 0), (0, 999), (0, -1)):
        assert ask(view, ask="flow_value", column="embd", row=row, bin=at)["value"]["value"] is None
    assert ask(view, ask="flow_break", column="kq-0")["value"] is True
    assert [b.where for b in dbg.breakpoints] == ["kq-0"] and view.flow_at["broken"] == ["kq-0"]
    assert ask(view, ask="flow_break", column="kq-0")["value"] is False and not dbg.breakpoints
    ask(view, ask="flow_tensor", column="kqv-0")
    assert view.opened_node == "kqv-0"
    with pytest.raises(LlmvizError, match="not shown"):
        view._flow_column("no_such")
    view.close()


def test_only_what_changed_is_sent(model):
    dbg = debug(model)
    view = FlowView(dbg, layer=1, follow=False)
    dbg.break_on("kqv_out-1")
    dbg.run()
    names = set()
    view.observe(lambda change: names.add(change.name))
    dbg.step_into()
    assert not names & {"flow", "flow_rows", "flow_folded", "flow_weights", "flow_scores", "_esm"}
    assert {"flow_at", "here"} <= names
    view.close()


def test_before_the_pass_its_columns_are_those_that_will_be(model):
    dbg = debug(model)
    view = FlowView(dbg)
    planned = [c["id"] for c in view.flow["columns"]]
    assert view.flow_at["phase"] == "" and view.flow_at["planned"]
    assert view.flow["source"] == "graph" and view.flow["n_layer"] == LAYERS
    assert {r["state"] for r in view.flow_rows} == {"place"}
    assert view.flow_at["done"] == [0] * len(planned) and not view.flow_at["missing"]
    view.layer = 3
    opened = [c["id"] for c in view.flow["columns"]]
    assert "kq_soft_max-3" in opened and "kq_soft_max-0" not in opened
    dbg.break_on(10)
    dbg.run()
    assert view.flow_at["phase"] == "prompt" and len(view.flow_rows) == len(dbg.tokens)
    assert [c["id"] for c in view.flow["columns"]] == opened
    assert not view.flow_at["missing"]
    assert ask(view, ask="flow_fetch").get("error") is None
    dbg.clear_break()
    dbg.next_token()
    assert [c["id"] for c in view.flow["columns"]] == opened and not view.flow_at["planned"]
    view.close()


def test_a_file_that_is_not_loaded_yet_shows_what_its_header_tells(tiny_model):
    path = tiny_model(n_layer=LAYERS, n_head=HEADS)
    view = FlowView(Debugger(path, PROMPT, n_ctx=256))
    assert view.flow["source"] == "file" and view.flow["n_layer"] == LAYERS
    sizes = {c["id"]: c["n"] for c in view.flow["columns"]}
    tensors = llmviz.load(path).tensors
    for node, tensor in (("Qcur-0", "attn_q"), ("ffn_up-0", "ffn_up"), ("ffn_out-0", "ffn_down")):
        assert sizes[node] == tensors[f"blk.0.{tensor}.weight"].shape[0]
    assert sizes["result_output"] == tensors["token_embd.weight"].shape[0]
    order = [c["label"] for c in view.flow["columns"] if c["layer"] == 0]
    assert order == [
        *("norm", "Q", "K", "scores", "softmax", "V", "out", "norm", "gate", "up", "down", "+"),
    ]
    view.close()
    nothing = FlowView(Debugger("no such file, nor a model's name", PROMPT))
    assert nothing.flow["columns"] == [] and nothing.flow_rows == []
    nothing.close()


def test_the_figure_shows_the_same_pass(model, truth):
    plots = pytest.importorskip("llmviz.plots")
    dbg = debug(model)
    dbg.next_token()
    with FlowView(dbg, layer=2, head=3, follow=False) as view:
        figure = view.figure(size="slide", theme="dark")
        assert figure.get_size_inches().tolist() == [10.0, 5.625]
        ribbons = [p for p in figure.axes[0].patches if p.get_gid() == "weight"]
        weights = truth.values[0, "kq_soft_max-2"][3][-1]
        assert len(ribbons) == int((weights[: len(dbg.tokens) - 1] >= 0.002).sum())
        bars = [p.get_width() for p in figure.axes[1].patches if p.get_gid() == "p_raw"]
        top = [a.p_raw for a in dbg.recorder.top[: len(bars)]]
        assert np.allclose(np.array(bars) / bars[0], np.array(top) / top[0])
    with pytest.raises(LlmvizError, match="step 13"):
        plots.flow(debug(model))


# -- the page ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser():
    with host.chromium() as running:
        yield running


@pytest.fixture
def opened(browser):
    pages = []

    def open_view(view, scheme="light", width=1240, **options):
        context = browser.new_context(
            viewport={"width": width + 40, "height": 1000}, color_scheme=scheme, **options
        )
        page = host.Hosted(context.new_page(), view, width=width)
        pages.append((context, page))
        return page

    yield open_view
    for context, page in pages:
        context.close()
        assert page.problems == []


OVERLAPS = r"""() => {
  const boxes = [...document.querySelectorAll(
    ".lv-flow-label, .lv-flow-caption, .lv-flow-token .lv-piece, .lv-flow-weight, .lv-flow-picks")]
    .filter((e) => e.checkVisibility() && e.textContent.trim()).map((e) => {
      const range = document.createRange();
      range.selectNodeContents(e);
      return [e.textContent, range.getBoundingClientRect()];
    });
  const bad = [];
  for (let i = 0; i < boxes.length; i++) for (let j = 0; j < i; j++) {
    const [a, p] = boxes[i], [b, q] = boxes[j];
    const w = Math.min(p.right, q.right) - Math.max(p.left, q.left);
    const h = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
    if (w > 1 && h > 4) bad.push([a, b, w, h]);
  }
  const out = document.querySelector(".lv-flow-scroll");
  return { bad, n: boxes.length, wider: out.scrollWidth - out.clientWidth };
}"""


@pytest.mark.browser
@pytest.mark.parametrize("projector", [False, True])
@pytest.mark.parametrize("words", [1, 3, 6])
def test_labels_never_touch(opened, model, words, projector):
    dbg = debug(model, " ".join([PROMPT] * words))
    view = FlowView(dbg, layer=2, follow=False, projector=projector)
    dbg.next_token()
    h = opened(view)
    found = h.page.evaluate(OVERLAPS)
    assert found["n"] > 25 and found["bad"] == []
    assert found["wider"] <= 0, "the whole pass fits the page"
    view.close()


@pytest.mark.browser
def test_contrast_and_sizes(opened, model):
    dbg = debug(model)
    view = FlowView(dbg, layer=2, follow=False)
    dbg.break_on("kqv-2")
    dbg.run()
    h = opened(view)
    for _ in range(2):
        for scheme in h.themes():
            found = h.page.evaluate(CONTRAST)
            assert found["n"] > 30 and found["bad"] == [] and found["small"] == [], scheme
        dbg.next_token()
        h.sync()
    view.projector = True
    h.sync()
    h.page.wait_for_selector(".lv-projector")
    assert h.page.evaluate(CONTRAST)["smallest"] >= 18
    view.close()


@pytest.mark.browser
def test_the_screen_shows_the_engines_numbers(opened, model, truth):
    dbg = debug(model)
    view = FlowView(dbg, layer=2, head=3, follow=False)
    dbg.next_token()
    h = opened(view)
    shown = (
        "[...document.querySelectorAll('[data-value]')].map(e => [e.dataset.ref, e.dataset.value])"
    )
    weights = truth.values[0, "kq_soft_max-2"][3]
    x = dbg.recorder.logits.astype(np.float64)
    p = np.exp(x - x.max()) / np.exp(x - x.max()).sum()
    checked = 0
    for ref, value in h.page.evaluate(shown):
        if ref.startswith("kq_soft_max"):
            q, k = (int(part.split(" ")[1]) for part in ref[:-1].split(",")[1:])
            assert np.float32(value) == weights[q, k]
        elif ref.startswith("p_raw["):
            assert float(value) == pytest.approx(p[int(ref[6:-1])], rel=1e-12)
        checked += 1
    assert checked >= 8
    box = h.page.locator(".lv-flow-hit").bounding_box()
    rng = np.random.default_rng(1)
    seen = set()
    for _ in range(60):
        x, y = box["x"] + rng.random() * box["width"], box["y"] + rng.random() * box["height"]
        h.page.mouse.move(x, y)
        h.page.wait_for_timeout(30)
        found = h.page.locator(".lv-readout [data-value]")
        if found.count():
            ref, value = found.get_attribute("data-ref"), found.get_attribute("data-value")
            assert np.float32(value) == np.float32(truth.at(0, ref)), ref
            seen.add(ref)
    assert len(seen) >= 15
    view.close()


@pytest.mark.browser
def test_keys_move_open_choose_and_leave(opened, model):
    dbg = debug(model)
    view = FlowView(dbg, layer=2, follow=False)
    dbg.next_token()
    h = opened(view)
    page = h.page
    page.focus(".lv-flow-hit")
    page.keyboard.press("ArrowRight")
    page.wait_for_function(
        "document.querySelector('[aria-live=polite]').textContent.includes('layer 0')"
    )
    page.keyboard.press("Enter")
    page.wait_for_function("window.model.get('layer') === 0")
    page.wait_for_function("!window.model.get('flow_at').missing")
    assert view.layer == 0 and not view.flow_at["missing"]
    page.keyboard.press("ArrowDown")
    page.wait_for_selector(".lv-readout [data-ref^='attn_norm-0[1,']")
    page.keyboard.press("Enter")
    page.wait_for_function("window.model.get('query') === 1")
    assert view.query == 1 and view.selected_node == "attn_norm-0"
    assert page.get_attribute(".lv-flow-token[aria-pressed=true]", "data-pos") == "1"
    page.click("[data-flow=break]")
    page.wait_for_function("window.model.get('flow_at').broken.length === 1")
    assert dbg.breakpoints[0].where == "attn_norm-0"
    page.click("[aria-label='Next head']")
    page.wait_for_function("window.model.get('head') === 1")
    page.focus(".lv-flow-hit")
    page.keyboard.press("End")
    page.wait_for_selector(".lv-readout [data-ref^='result_output'], .lv-readout .lv-remark")
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement === document.body")
    table = page.inner_text(".lv-flow table")
    assert "kq_soft_max-0" in table and "computed" in table
    view.close()


@pytest.mark.browser
def test_docked_it_is_a_plan_first_and_then_fits_the_panel(opened, model, truth):
    dbg = debug(model)
    view = DebuggerPanel(dbg, view="flow")
    h = opened(view, width=1440)
    page = h.page
    assert page.inner_text(".lv-flow-plan").startswith("not computed yet")
    assert page.locator(".lv-flow-token[data-state=place]").count() == 4
    page.focus(".lv-flow-hit")
    page.keyboard.press("ArrowRight")
    page.wait_for_function(
        "document.querySelector('.lv-flow .lv-readout').innerText.includes('not computed yet')"
    )
    page.keyboard.press("Escape")
    dbg.next_token()
    h.sync()
    h.settle()
    assert page.is_hidden(".lv-flow-plan")
    stage, bottom = page.evaluate(
        "() => [document.querySelector('.lv-stage').getBoundingClientRect().bottom,"
        " document.querySelector('.lv-flow-slot').getBoundingClientRect().bottom]"
    )
    assert len(view.flow_rows) == 10 and bottom < stage, "all tokens are seen without scrolling"
    # a line stands for several bins here: the number is the strongest of them all
    page.focus(".lv-flow-hit")
    page.keyboard.press("Home")
    page.wait_for_selector(".lv-flow .lv-readout [data-ref^='embd[0,']")
    text = page.inner_text(".lv-flow .lv-readout")
    first, last = (int(x) for x in re.search(r"strongest of (\d+)–(\d+)", text).groups())
    assert last - first + 1 > 64 // bins_for(9)
    ref = page.get_attribute(".lv-flow .lv-readout [data-ref]", "data-ref")
    value = float(page.get_attribute(".lv-flow .lv-readout [data-value]", "data-value"))
    row = truth.values[0, "embd"][0, first : last + 1]
    assert value == pytest.approx(truth.at(0, ref)) and abs(value) == abs(row).max()
    view.close()


@pytest.mark.browser
def test_the_chosen_token_flies_back_unless_motion_is_unwanted(opened, model):
    for motion, flies in (("no-preference", 1), ("reduce", 0)):
        dbg = debug(model)
        view = FlowView(dbg, layer=2, follow=False)
        h = opened(view, reduced_motion=motion)
        dbg.next_token()
        h.sync()
        h.page.wait_for_selector(".lv-flow-option[data-chosen]")
        assert h.page.locator(".lv-flow-fly").count() == flies
        slot = h.page.locator(".lv-flow-slot")
        assert slot.get_attribute("data-token-id") == str(dbg.tokens[-1].id)
        h.page.wait_for_selector(".lv-flow-fly", state="detached")
        view.close()


@pytest.mark.browser
def test_text_stays_text(opened, model):
    hostile = "<script>alert(1)</script> \u202e<img src=x onerror=alert(1)> \" '"
    dbg = debug(model, hostile)
    view = FlowView(dbg)
    dbg.next_token()
    h = opened(view)
    assert h.page.locator(".llmviz script, .llmviz img").count() == 0
    view.close()


@pytest.mark.browser
def test_a_step_is_drawn_quickly(opened, model):
    dbg = debug(model, " ".join([PROMPT] * 6))
    view = FlowView(dbg, layer=2, follow=False)
    dbg.break_on("attn_norm-2")
    dbg.run()
    h = opened(view)
    python, page = [], []
    for _ in range(12):
        dbg.step_into()
        start = time.perf_counter()
        view.refresh()
        python.append(time.perf_counter() - start)
        page.append(
            h.page.evaluate(
                """(s) => { const start = performance.now(); window.arrive(s);
                return new Promise((done) => requestAnimationFrame(() => setTimeout(() =>
                  done(performance.now() - start)))); }""",
                {"state": {**host.synced(view), "rev": view.rev}, "messages": []},
            )
        )
    print(f"python {1e3 * np.median(python):.1f} ms, page {np.median(page):.1f} ms")
    assert np.median(python) < 0.1 and np.median(page) < 100
    view.close()
