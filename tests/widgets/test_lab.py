"""The panel in a real JupyterLab over a real model: what is on screen is what the engine computed.

The same steps are taken by a debugger in this process; its arrays are the truth for the screen.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("anywidget")

import llmviz
from llmviz.context import context_steps
from llmviz.events import Steps
from llmviz.generate import generate_steps
from llmviz.model.loader import load_steps

from . import lab
from .test_page import check_numbers, shown_numbers
from .witness import Witness

lab.require("jupyterlab")

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PROMPT = "The capital of France is"


def sixteen_steps(path: str) -> Steps[Any]:
    """The whole run from the file on, every node an event, without a debugger."""
    model = yield from load_steps(path)
    ctx = yield from context_steps(model, n_ctx=256)
    return (yield from generate_steps(ctx, PROMPT, None, 8))


def settled(page, timeout: float = 120_000) -> None:
    page.wait_for_function(
        "() => { const r = document.querySelector('.llmviz');"
        " return r && r.querySelector('.lv-status').dataset.status !== 'running'"
        " && !r.querySelector('.lv-working') }",
        timeout=timeout,
    )


def press(page, action: str) -> None:
    draws = page.get_attribute(".llmviz", "data-draws")
    page.click(f".llmviz [data-action='{action}']")
    page.wait_for_function(
        "n => Number(document.querySelector('.llmviz').dataset.draws) > n", arg=int(draws)
    )
    settled(page)


def shoot(page, name: str, tmp_path: Path, what: str = ".llmviz") -> None:
    folder = Path(os.environ.get("LLMVIZ_SCREENSHOTS", tmp_path))
    page.locator(what).screenshot(path=folder / name)
    assert (folder / name).stat().st_size < 250_000


def shoot_all(page, theme: str, tmp_path: Path) -> None:
    """Pictures of the panel and of each view in it."""
    page.evaluate("document.activeElement.blur()")
    page.mouse.move(5, 5)
    page.wait_for_timeout(700)
    shoot(page, f"quickstart-{theme}.png", tmp_path)
    for tab, name in [
        ("flow", "panel"),
        ("tensor", "tensor"),
        ("kv_cache", "kv"),
        ("logits", "logits"),
        ("output", "output"),
        ("attention", "attention"),
    ]:
        page.click(f"[data-tab='{tab}']")
        page.mouse.move(5, 5)
        page.evaluate("document.activeElement.blur()")
        page.wait_for_timeout(500)
        shoot(page, f"{name}-{theme}.png", tmp_path, ".llmviz" if tab == "flow" else ".lv-middle")


def test_stepping_a_real_model(site, smollm2_path, tmp_path):
    cells = (
        "import llmviz as lv\n"
        f"dbg = lv.Debugger({smollm2_path!r}, {PROMPT!r}, n_ctx=256, n_predict=8)\n"
        "dbg",
        "dbg.n",
    )
    witness = Witness()
    truth = llmviz.Debugger(witness.watch(sixteen_steps(smollm2_path)))
    with site.page(*cells, height=1400) as (page, problems):
        lab.command(page, "notebook:run-all-cells")
        page.wait_for_selector(".jp-OutputArea-output .llmviz[data-draws]", timeout=120_000)

        def tab(name: str) -> None:
            page.click(f"[data-tab='{name}']")
            page.wait_for_selector(f"[data-panel='{name}']:visible")
            page.wait_for_timeout(250)
            settled(page)

        def add_break(text: str) -> None:
            page.fill(".lv-breaks-card input[type=text]", text)
            page.press(".lv-breaks-card input[type=text]", "Enter")
            page.wait_for_selector(f"[data-break] code:text-is('{text}')")

        def agree(at_least: int) -> None:
            assert page.get_attribute(".llmviz", "data-here") == str(truth.n)
            assert page.inner_text(".lv-event-name") == truth.here.name
            assert check_numbers(page, witness, truth.here) >= at_least

        # From the file on: backends, then the first bytes of the header.
        for action, step in [
            *(("into", truth.step_into), ("over", truth.step_over), ("into", truth.step_into)),
            ("next-token", truth.next_token),
        ]:
            press(page, action)
            step()
        tab("logits")
        agree(20)
        assert truth.tokens[-1].text == " Paris"
        assert page.get_attribute(".lv-newest", "data-token-id") == str(truth.tokens[-1].id)

        add_break("kq_soft_max-5")
        truth.break_on("kq_soft_max-5")
        press(page, "run")
        truth.run()
        tab("tensor")
        page.hover(".lv-now .lv-heat canvas", position={"x": 10, "y": 10})
        page.wait_for_selector(".lv-now .lv-readout [data-value]")
        agree(60)

        # Keys reach the panel, and not the notebook around it.
        cells = page.locator(".jp-Cell").count()
        page.focus(".llmviz [data-action='into']")
        page.keyboard.press("F11")
        truth.step_into()
        page.wait_for_function(f"document.querySelector('.llmviz').dataset.here == {truth.n}")
        settled(page)
        page.keyboard.press("b")
        page.keyboard.press("Shift+F11")
        truth.step_out()
        page.wait_for_function(f"document.querySelector('.llmviz').dataset.here == {truth.n}")
        settled(page)
        assert page.locator(".jp-Cell").count() == cells
        agree(0)

        for _ in range(3):
            truth.clear_break()
            truth.next_token()
        page.click("[data-break] .lv-x")
        page.wait_for_selector("[data-break]", state="detached")
        for _ in range(3):
            press(page, "next-token")
        tab("logits")
        agree(20)

        # Back to " Paris" with a click on it, and forth again: the same numbers.
        end, numbers = page.get_attribute(".llmviz", "data-here"), shown_numbers(page)
        page.click(".lv-tokens [data-pos='5']")
        page.wait_for_function("e => document.querySelector('.llmviz').dataset.here !== e", arg=end)
        settled(page)
        assert page.get_attribute(".lv-newest", "data-pos") == "5"
        page.click(".lv-tokens [data-pos='8']")
        page.wait_for_function("e => document.querySelector('.llmviz').dataset.here === e", arg=end)
        settled(page)
        assert shown_numbers(page) == numbers

        # A moment worth a picture: inside a layer, with some text written.
        page.fill(".lv-watches input[type=text]", "norm(l_out-10)")
        page.press(".lv-watches input[type=text]", "Enter")
        page.wait_for_selector("[data-watch][data-state=ok]")
        add_break("kq_soft_max-11")
        page.click("[data-action='pin']")
        press(page, "run")
        page.wait_for_selector("[data-panel=attention]:visible")
        page.click("[data-head='4']")
        page.wait_for_function("document.querySelector('[data-head=\"4\"]').ariaPressed === 'true'")
        shoot_all(page, "light", tmp_path)
        light = page.evaluate("getComputedStyle(document.querySelector('.llmviz')).backgroundColor")
        lab.command(page, "apputils:change-theme", theme="JupyterLab Dark")
        page.wait_for_function(
            "c => getComputedStyle(document.querySelector('.llmviz')).backgroundColor !== c",
            arg=light,
        )
        shoot_all(page, "dark", tmp_path)
        box = page.locator(".llmviz").bounding_box()
        assert box["height"] <= 880 and box["width"] > 1000, "it fits a 1080p screen"
        assert page.evaluate("document.querySelectorAll('.llmviz').length") == 1
        assert problems == []

        # A restarted kernel: a calm message instead of dead buttons.
        page.evaluate(
            "window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()"
        )
        page.wait_for_timeout(1500)
        page.click(".llmviz [data-action='into']")
        page.wait_for_selector(".lv-notice[data-kind=gone]:visible", timeout=15_000)


def test_a_cell_that_runs_again_and_one_object_shown_twice(site):
    cells = (
        "import numpy as np, llmviz as lv\n"
        "from llmviz.events import Event\n"
        "def events():\n"
        "    for i in range(200):\n"
        "        yield Event('node', f'x-{i}', 0, 13, np.full((4, 6), i, np.float32))\n"
        "dbg = lv.Debugger(events())\n"
        "dbg",
        "dbg",
        "dbg.step_into()",
    )
    with site.page(*cells, height=1000) as (page, problems):
        for _ in range(2):
            lab.command(page, "notebook:run-all-cells")
            here = "[...document.querySelectorAll('.llmviz')].map(e => e.dataset.here)"
            page.wait_for_function(f'JSON.stringify({here}) === \'["0","0"]\'', timeout=90_000)
        first, second = page.locator(".llmviz").all()
        first.locator("[data-action='into']").click()
        page.wait_for_function(f'JSON.stringify({here}) === \'["1","1"]\'')
        assert second.locator(".lv-event-name").inner_text() == "x-1", "two views, in step"

        # Step to painted: a node's step, from the click to the finished drawing.
        times = []
        for _ in range(30):
            start = time.perf_counter()
            n = page.evaluate(
                "new Promise((done) => { const r = document.querySelector('.llmviz');"
                " const old = r.dataset.here; const t = performance.now();"
                " new MutationObserver((_, o) => { if (r.dataset.here !== old) { o.disconnect();"
                " requestAnimationFrame(() => done(performance.now() - t)); } })"
                ".observe(r, { attributes: true });"
                " r.querySelector('[data-action=into]').click(); })"
            )
            times.append(n)
            assert time.perf_counter() - start < 10
        median, p95 = np.percentile(times, [50, 95])
        print(f"step to painted: median {median:.0f} ms, 95th percentile {p95:.0f} ms")
        assert problems == []
