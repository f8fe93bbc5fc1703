"""Nothing stays of a view that was closed, and a long run keeps to the recorder's budget."""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("anywidget")

from ipywidgets.widgets.widget import _instances

from llmviz import show
from llmviz.trace import Debugger

from ..trace import toy
from . import host

OPENED = 100
VIEWS = [name for name in show.__all__ if name not in ("panel", "gguf", "compare")]


def make(name: str, dbg: Debugger) -> Any:
    """A view by its name in `llmviz.show`."""
    return getattr(show, name)(dbg)


def paused(**kwargs: Any) -> Debugger:
    """A run that has something for every view."""
    dbg = Debugger(toy.run(**kwargs))
    dbg.break_on("kq_soft_max-1")
    dbg.run()
    dbg.next_token()
    return dbg


def open_and_close(name: str, dbg: Debugger) -> weakref.ref:
    """A view's life: made, shown, changed, closed."""
    with make(name, dbg) as view:
        view._repr_mimebundle_()
        view.projector = True
        view.refresh()
        return weakref.ref(view)


@pytest.mark.parametrize("name", ["panel", *VIEWS])
def test_opened_and_closed_views_add_nothing_in_the_kernel(name, figures):
    dbg = paused()
    for _ in range(3):  # what is made once: sources of modules, caches of types
        open_and_close(name, dbg)

    def counts() -> dict[str, int]:
        gc.collect()
        return {
            "objects": len(gc.get_objects()),
            "widgets": len(_instances),
            "listeners": len(dbg._listeners),
            "askers": len(dbg.recorder._kept._askers),
        }

    before = counts()
    for _ in range(OPENED):
        open_and_close(name, dbg)
    after = counts()
    added = {k: after[k] - before[k] for k in after}
    text = ", ".join(f"{v:+d} {k}" for k, v in added.items())
    figures(f"{name}: {OPENED} times opened and closed: {text}")
    assert added["widgets"] == added["listeners"] == added["askers"] == 0
    assert added["objects"] < OPENED // 10, "not one object for each"


@pytest.mark.slow
def test_a_hundred_views_of_all_kinds_add_no_bytes(figures):
    dbg = paused()
    names = ["panel", *VIEWS]
    for name in 2 * names:
        open_and_close(name, dbg)
    gc.collect()
    tracemalloc.start()
    try:
        for name in names:
            open_and_close(name, dbg)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for i in range(OPENED):
            open_and_close(names[i % len(names)], dbg)
        gc.collect()
        added = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    figures(f"{OPENED} views of {len(names)} kinds opened and closed: {added / 2**10:+.1f} KiB")
    assert added < 128 << 10


# A page that opens and closes views of one widget model, as a front end does with a cell's output.
AGAIN = """async (n) => {
  for (let i = 0; i < n; i++) {
    window.unmount();
    await window.mountAgain();
  }
  window.unmount();
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with host.chromium() as running:
        yield running


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.parametrize("name", ["panel", *VIEWS])
def test_opened_and_closed_views_add_nothing_in_the_page(browser, name, figures):
    context = browser.new_context()
    try:
        view = make(name, paused())
        hosted = host.Hosted(context.new_page(), view)
        page = hosted.page
        cdp = context.new_cdp_session(page)

        def counts() -> dict[str, float]:
            for _ in range(3):
                cdp.send("HeapProfiler.collectGarbage")
            dom = cdp.send("Memory.getDOMCounters")
            return {
                "KiB": cdp.send("Runtime.getHeapUsage")["usedSize"] / 2**10,
                "nodes": dom["nodes"],
                "listeners": dom["jsEventListeners"],
                "of the model": page.evaluate("window.listenerCount()"),
            }

        page.evaluate(AGAIN, 10)
        before = counts()
        page.evaluate(AGAIN, OPENED)
        after = counts()
        added = {k: after[k] - before[k] for k in after}
        text = ", ".join(f"{v:+.0f} {k}" for k, v in added.items())
        figures(f"{name}: {OPENED} times opened and closed in a page: {text}")
        assert after["of the model"] == 0 == page.locator(".llmviz").count()
        assert added["nodes"] <= 20 and added["listeners"] <= 10
        assert added["KiB"] < 200
        assert hosted.problems == []
        view.close()
    finally:
        context.close()


def resident() -> float:
    """MiB of this process, as the machine sees it."""
    psutil = pytest.importorskip("psutil")
    gc.collect()
    return psutil.Process().memory_info().rss / 2**20


def walk(dbg: Debugger, count: int) -> None:
    """So many single steps, from the first event of the second token's pass."""
    for _ in range(count):
        dbg.step_into()


def many_steps(
    dbg: Debugger, budget: int, figures: Callable[[str], None], what: str, count: int = 1000
) -> None:
    """Hold so many steps, each node seen and drawn, against the recorder's budget."""
    panel = show.panel(dbg)
    views = [make(name, dbg) for name in VIEWS]
    try:
        dbg.next_token()
        walk(dbg, 50)
        before = resident()
        walk(dbg, count)
        added = resident() - before
        used = dbg.recorder.bytes_used
        figures(
            f"{what}: {count:,} steps with {1 + len(views)} views add {added:.1f} MiB; the "
            f"recorder holds {used / 2**20:.1f} of {budget / 2**20:.0f} MiB, "
            f"{dbg.recorder.dropped} dropped"
        )
        assert used <= budget
        assert added < budget / 2**20 + 50
    finally:
        for view in [*views, panel]:
            view.close()
        dbg.close()


def test_many_steps_of_a_tiny_model(tiny_model, figures):
    budget = 2 << 20
    dbg = Debugger(tiny_model(), "The cat sat on the mat", n_ctx=512, n_predict=400, budget=budget)
    many_steps(dbg, budget, figures, "tiny model", 250)


@pytest.mark.slow
def test_a_thousand_steps_of_smollm2(smollm2_path, figures):
    budget = 16 << 20
    prompt = "The lighthouse keeper climbed the stairs every evening. " * 12
    dbg = Debugger(smollm2_path, prompt, n_ctx=512, n_predict=100, budget=budget)
    many_steps(dbg, budget, figures, "SmolLM2")
