"""The views in JupyterLab and Notebook, over kernels of two ipykernel releases.

Releases 7.2 and 7.3 may call a widget's callbacks on another thread while a cell runs, 7.4 calls
them on the main one.
"""

from __future__ import annotations

import os
import time

import pytest

pytest.importorskip("anywidget")

from . import frontends, lab

lab.require("jupyterlab", "notebook")

pytestmark = [pytest.mark.browser, pytest.mark.slow]

VIEWS = 10

# Each front end and each release once; LLMVIZ_FRONTENDS=all pairs every one with every other.
PAIRS = [("lab", "7.3"), ("notebook", "7.4")]
if os.environ.get("LLMVIZ_FRONTENDS") == "all":
    PAIRS += [("lab", "7.4"), ("notebook", "7.3")]

# The panel, every view that stands alone, and as many of them again as make ten. The load view does
# not say where the run stands: it rests once the model is loaded.
ELSEWHERE = ("panel", "gguf", "compare", "load")
TEN = f"""
from IPython.display import display
names = [n for n in lv.show.__all__ if n not in {ELSEWHERE!r}]
views = [lv.show.panel(dbg)]
views += [getattr(lv.show, names[i % len(names)])(dbg) for i in range({VIEWS} - 1)]
display(*views)
"""

REGISTRY = "len(__import__('ipywidgets').widgets.widget._instances)"


@pytest.fixture(scope="module")
def site(site):
    for release in ("7.3", "7.4"):
        frontends.write_kernel(site.folder, release)
    return site


@pytest.mark.parametrize(("app", "release"), PAIRS)
def test_ten_views_twice_over_and_through_a_restart(site, tiny_model, app, release, figures):
    cells = (
        "import llmviz as lv\n"
        f"dbg = lv.Debugger({tiny_model()!r}, 'The cat sat on', n_ctx=64, n_predict=6)\n"
        "dbg",
        "dbg",
        TEN,
    )
    start = time.perf_counter()
    with site.opened(f"ipykernel-{release}", *cells, app=app) as front:
        page = front.page
        assert front.printed("__import__('ipykernel').__version__").startswith(release)
        front.run_all()
        # The same panel three times, once among the ten.
        n_views = 2 + VIEWS
        front.wait_shown([-1] * n_views)

        front.press("into")
        front.wait_shown([0] * n_views)
        front.press("next-token", view=1)
        here = front.printed("dbg.n")
        assert front.printed("dbg.here.name") == "token"
        front.wait_shown([here] * n_views)
        front.press("into", view=2)
        front.wait_shown([here + 1] * n_views)

        # A step from a cell shows in all of them as well.
        front.printed("dbg.step_into().n")
        front.wait_shown([here + 2] * n_views)
        text = page.locator(frontends.OUTPUT).all_inner_texts()
        assert all(t.strip() for t in text) and text[0] == text[1] == text[2]

        # Two clicks, the second before the first has come back: both count.
        page.evaluate(
            "s => { const b = document.querySelector(s + \" [data-action='into']\");"
            " b.click(); b.click(); }",
            frontends.OUTPUT,
        )
        here += 2
        front.wait_shown([here + 2] * n_views)

        # A busy kernel: the click waits, and counts once.
        page.evaluate(
            "() => { window.jupyterapp.shell.currentWidget.sessionContext.session.kernel"
            ".requestExecute({ code: 'import time; time.sleep(1.5)' }) }"
        )
        page.locator(frontends.OUTPUT).first.locator("[data-action='into']").click()
        front.wait_shown([here + 3] * n_views)
        assert front.printed("dbg.n") == here + 3
        assert front.problems == []

        front.restart()
        page.locator(frontends.OUTPUT).first.locator("[data-action='into']").click()
        notice = page.locator(f"{frontends.OUTPUT} .lv-notice[data-kind=gone]").first
        notice.wait_for(state="visible", timeout=15_000)
        assert "run the cell again" in notice.inner_text().lower()
        assert front.problems == []

        # As it says: the cells run again, and everything is there.
        front.run_all()
        front.wait_shown([-1] * n_views)
        front.press("into")
        front.wait_shown([0] * n_views)
        assert page.locator(".lv-notice:visible").count() == 0
    figures(f"{app}, ipykernel {release}: {time.perf_counter() - start:.0f} s")


@pytest.mark.parametrize("release", ["7.3", "7.4"])
def test_clicks_while_a_cell_steps_the_same_run(site, tiny_model, release, figures):
    cells = (
        "import threading, time, llmviz as lv\n"
        f"dbg = lv.Debugger({tiny_model()!r}, 'The cat sat on', n_ctx=256, n_predict=100)\n"
        "threads = set()\n"
        "here = threading.current_thread\n"
        "dbg.on_change(lambda: threads.add(here() is threading.main_thread()))\n"
        "dbg",
        "failed = []\n"
        "for _ in range(200):\n"
        "    try: dbg.step_into()\n"
        "    except Exception as error: failed.append(str(error))",
        "point = dbg.break_on(lambda event: time.sleep(0.002))\n"
        "dbg.run(max_seconds=3)\n"
        "dbg.pause(); dbg.stop_here(); dbg.clear_break(point)",
    )
    click = f"document.querySelector(\"{frontends.OUTPUT} [data-action='into']\").click()"
    with site.opened(f"ipykernel-{release}", *cells) as front:
        page = front.page

        def begin(cell: int) -> None:
            page.evaluate(
                """(i) => {
                  window.jupyterapp.shell.currentWidget.content.activeCellIndex = i;
                  window.ran = window.jupyterapp.commands.execute("notebook:run-cell");
                }""",
                cell,
            )

        front.run_cell(0)
        front.wait_shown([-1])
        front.press("into")
        begin(1)
        for _ in range(5):
            page.wait_for_timeout(80)
            page.evaluate(click)
        page.evaluate("window.ran")
        failed = front.printed("failed")
        page.wait_for_timeout(1000)
        n = front.printed("dbg.n")
        front.wait_shown([n])
        # Where the kernel is slow the page holds a few clicks back and lets go of more than those.
        assert 200 + 2 <= n + len(failed) <= 200 + 5, "every step counts, and no click twice"

        # One long call: a click on top of it changes nothing, says so, and loses nothing.
        begin(2)
        for _ in range(3):
            page.wait_for_timeout(300)
            page.evaluate(click)
        page.evaluate("window.ran")
        page.wait_for_timeout(500)
        here = front.printed("dbg.n")
        front.wait_shown([here])
        said = page.locator(".lv-notice:visible").all_inner_texts()
        front.press("into")
        front.wait_shown([here + 1])
        assert page.locator(".lv-notice:visible").count() == 0
        where = front.printed("sorted(threads)")
        figures(
            f"ipykernel {release}: callbacks on the main thread {where}; "
            f"{len(failed)} steps of the cell met a click; said while it ran: {said}"
        )
        assert front.problems == []


def test_a_cell_that_runs_again_replaces_its_panel(site, tiny_model, figures):
    cells = (
        "import gc, llmviz as lv\n"
        f"dbg = lv.Debugger({tiny_model()!r}, 'The cat sat on', n_ctx=64, n_predict=6)\n"
        "dbg",
        "dbg",
        "attention = lv.show.attention(dbg)\nattention",
    )
    with site.opened("ipykernel-7.4", *cells) as front:
        front.run_all()
        front.wait_shown([-1] * 3)

        def runs_again(cell: int) -> None:
            front.run_cell(cell)
            front.page.wait_for_timeout(300)

        def counts() -> dict[str, float]:
            return {**front.memory(), "widgets": front.printed(REGISTRY)}

        def text(of: dict[str, float]) -> str:
            return ", ".join(f"{v:.0f} {k}" for k, v in of.items())

        for _ in range(3):
            runs_again(1)
        before = counts()
        for _ in range(6):
            runs_again(1)  # the same debugger: the same panel
        after = counts()
        figures(f"same debugger shown 6 times again: {text(before)} -> {text(after)}")
        assert after["widgets"] == before["widgets"]
        assert after["listeners"] <= before["listeners"] * 1.02 + 20
        front.press("into", view=1)
        front.wait_shown([0] * 3)

        for _ in range(2):
            runs_again(2)
        before = counts()
        for _ in range(6):
            runs_again(2)  # a new view each time: the one before is closed
        after = counts()
        figures(f"new view made 6 times: {text(before)} -> {text(after)}")
        assert after["widgets"] == before["widgets"]
        assert after["listeners"] <= before["listeners"] * 1.02 + 20

        for _ in range(2):
            runs_again(0)
        before = counts()
        for _ in range(6):
            runs_again(0)  # a new debugger each time
        after = counts()
        figures(f"new debugger made 6 times: {text(before)} -> {text(after)}")
        assert after["widgets"] == before["widgets"]
        assert after["listeners"] <= before["listeners"] * 1.02 + 20
        assert after["nodes"] <= before["nodes"] * 1.02 + 100
        front.press("into")
        assert front.printed("dbg.n") == 0, "one click is one step"
        assert front.problems == []
