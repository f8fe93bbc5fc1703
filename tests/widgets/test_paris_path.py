"""Why " Paris"? A newcomer's way through a real JupyterLab, by clicks and keys alone.

Next token, the probability, the head that pushed it most, where that head looks, the same token
without it, and back to the very same numbers. What is on screen is held against runs of the engine
in this process that know no debugger: to the last bit where both processes compute alike, else
closely, as linear algebra libraries choose other kernels on other processors.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("anywidget")

import llmviz
from llmviz.generate import generate_steps

from . import lab
from .test_lab import PROMPT

lab.require("jupyterlab")

pytestmark = [pytest.mark.browser, pytest.mark.slow]

LAYER, HEAD = 23, 4
PANEL = ".llmviz[data-view='panel']"
DIGEST = ".jp-Cell:nth-of-type(3) .jp-OutputArea-output pre, [data-windowed-list-index='2'] pre"
ACTIVE = "i => { window.jupyterapp.shell.currentWidget.content.activeCellIndex = i }"


class Truth:
    """One pass over the prompt, without a debugger; with one head's output zeroed, if asked."""

    def __init__(self, model: Any, without: tuple[int, int] | None = None) -> None:
        n_head = model.hparams.n_head()
        for event in generate_steps(model.context(n_ctx=256), PROMPT, None, 1):
            if without and event.kind == "node" and event.name == f"kqv_out-{without[0]}":
                x = np.array(event.value)
                x.reshape(len(x), n_head, -1)[:, without[1]] = 0
                event.value = x
            if event.kind == "node" and event.name == f"kq_soft_max-{LAYER}":
                self.attention = np.array(event.value[HEAD])  # [n_tokens, n_kv]
            if event.name == "logits" and event.step == 14:
                self.logits = np.array(event.value).reshape(-1, event.value.shape[-1])[-1]
        e = np.exp(self.logits.astype(np.float64) - self.logits.max())
        self.p = e / e.sum()

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.logits.tobytes()).hexdigest()


def shown(page: Any, root: str) -> dict[str, float]:
    """Every number that can be seen under a root, by the name of what it is."""
    found = page.evaluate(
        "(root) => [...document.querySelectorAll(root + ' [data-value]')]"
        ".filter(e => e.checkVisibility() && !e.closest('.lv-hidden'))"
        ".map(e => [e.dataset.ref, e.dataset.value])",
        root,
    )
    return {ref: float(value) for ref, value in found}


def settled(page: Any) -> None:
    page.wait_for_function(
        "() => { const all = [...document.querySelectorAll('.llmviz')];"
        " return all.every(r => !r.querySelector('.lv-working'))"
        " && new Set(all.map(r => r.dataset.here)).size === 1; }",
        timeout=60_000,
    )


def shoot(page: Any, root: str, name: str, tmp_path: Path) -> None:
    folder = Path(os.environ.get("LLMVIZ_SCREENSHOTS", tmp_path))
    page.mouse.move(2, 2)
    page.evaluate("document.activeElement.blur()")
    page.wait_for_timeout(500)
    page.locator(root).first.screenshot(path=folder / name)
    assert (folder / name).stat().st_size < 250_000


def test_why_paris(site, smollm2_path, tmp_path, figures):
    model = llmviz.load(smollm2_path)
    whole, without = Truth(model), Truth(model, (LAYER, HEAD))
    paris = int(whole.logits.argmax())
    assert model.vocab.token_to_piece(paris) == b" Paris"
    sources = (
        "import llmviz as lv\n"
        f"dbg = lv.Debugger({smollm2_path!r}, {PROMPT!r}, n_ctx=256, n_predict=8)\n"
        "dbg",
        "lv.show.heads(dbg)",
        "import hashlib\nprint(hashlib.sha256(dbg.recorder.logits.tobytes()).hexdigest())",
    )
    with site.page(*sources, height=1500) as (page, problems):
        cells = page.locator(".jp-Cell")

        # Shift+Enter on the first cell opens the panel; the others wait.
        def run_cell(i: int) -> None:
            page.evaluate(ACTIVE, i)
            lab.command(page, "notebook:run-cell")

        run_cell(0)
        page.wait_for_selector(f"{PANEL}[data-draws]", timeout=120_000)

        # 1. What comes next, and how sure is the model?
        page.click(f"{PANEL} [data-action='next-token']")
        page.wait_for_selector(f"{PANEL} .lv-newest", timeout=120_000)
        settled(page)
        assert "Paris" in page.inner_text(f"{PANEL} .lv-newest")
        assert page.get_attribute(f"{PANEL} .lv-newest", "data-token-id") == str(paris)
        if page.locator(f"{PANEL} [data-tab='logits']").count():
            page.click(f"{PANEL} [data-tab='logits']")
        p_shown = f"{PANEL} .lv-logits [data-ref='p_raw[{paris}]']"
        page.wait_for_selector(p_shown)
        run_cell(2)
        page.wait_for_selector(f"{DIGEST}")
        digest = page.inner_text(DIGEST).strip()
        alike = digest == whole.digest
        figures("both processes compute " + ("alike" if alike else "not quite alike"))

        def same(x: float, truth: float) -> bool:
            return x == truth if alike else bool(np.isclose(x, truth, rtol=5e-3, atol=1e-5))

        def logits_are(wanted: str) -> None:
            run_cell(2)
            page.wait_for_selector(f"{DIGEST}:has-text('{wanted}')")

        assert same(float(page.get_attribute(p_shown, "data-value")), whole.p[paris])
        assert page.inner_text(p_shown).replace("\u202f", " ") == "77.2 %"

        # 2. Which head pushed it?
        tab = page.locator(f"{PANEL} [data-tab='heads']")
        if tab.count():
            tab.click()
            heads = f"{PANEL} [data-panel='heads']"
        else:
            run_cell(1)
            heads = ".llmviz[data-view='heads']"
        page.click(f"{heads} [data-action='heads-measure']", timeout=60_000)
        page.wait_for_selector(f"{heads} .lv-hd-top button")
        settled(page)
        first = page.locator(f"{heads} .lv-hd-top button").first
        assert f"layer {LAYER}, head {HEAD} adds 2.82 of 17.37" in first.inner_text()
        numbers = shown(page, heads)
        assert same(numbers[f"logits[{paris}]"], whole.logits[paris])
        assert same(numbers[f"p_raw[{paris}]"], whole.p[paris])
        first.click()
        assert "+2.82" in page.inner_text(f"{heads} .lv-hd-chosen")
        shoot(page, PANEL, "paris-light.png", tmp_path)
        lab.command(page, "apputils:change-theme", theme="JupyterLab Dark")
        page.wait_for_timeout(1000)
        shoot(page, PANEL, "paris-dark.png", tmp_path)
        lab.command(page, "apputils:change-theme", theme="JupyterLab Light")
        page.wait_for_timeout(500)

        # 3. Where does it look? At the country, from the last word.
        page.click(f"{heads} [data-action='heads-look']")
        att = f"{PANEL} .lv-attention"
        row = f"{att} [data-ref^='kq_soft_max-{LAYER}[{HEAD},pos 4']"
        page.wait_for_selector(row)
        weights = {ref: x for ref, x in shown(page, att).items() if ref.startswith("kq_soft_max")}
        for k in range(5):
            ref = f"kq_soft_max-{LAYER}[{HEAD},pos 4,pos {k}]"
            assert same(np.float32(weights[ref]), whole.attention[4, k])
        looked = int(whole.attention[4, 1:5].argmax()) + 1
        much = whole.attention[4, looked]
        figures(f"layer {LAYER} head {HEAD} looks at position {looked}: {much:.2f}")
        assert looked == 3, "the country, seen from the last word"
        shoot(page, PANEL, "paris-attention.png", tmp_path)

        # 4. Without it.
        if tab.count():
            tab.click()
        page.click(f"{heads} [data-action='heads-off']")
        page.wait_for_selector(f"{heads} [data-action='heads-undo']", timeout=60_000)
        settled(page)
        numbers = shown(page, heads)
        assert same(numbers[f"before.p_raw[{paris}]"], whole.p[paris])
        assert same(numbers[f"p_raw[{paris}]"], without.p[paris])
        assert same(numbers[f"logits[{paris}]"], without.logits[paris])
        change = page.inner_text(f"{heads} .lv-hd-change").replace("\u202f", " ")
        assert "77.2 %" in change and "14.1 %" in change
        figures(f"p(' Paris') {whole.p[paris]:.4f} -> {without.p[paris]:.4f}")
        if alike:
            logits_are(without.digest)
        shoot(page, PANEL, "paris-off.png", tmp_path)

        # 5. Undo, with the keyboard: the very same numbers.
        page.focus(f"{heads} [data-action='heads-undo']")
        page.keyboard.press("Enter")
        page.wait_for_selector(
            f"{heads} [data-action='heads-undo']", state="detached", timeout=60_000
        )
        settled(page)
        assert "bit for bit" in page.inner_text(f"{heads} .lv-hd-gone-box")
        numbers = shown(page, heads)
        assert same(numbers[f"p_raw[{paris}]"], whole.p[paris])
        assert same(numbers[f"logits[{paris}]"], whole.logits[paris])
        assert "Paris" in page.inner_text(f"{PANEL} .lv-newest")
        logits_are(digest)

        # 6. A step back and forth with keys changes nothing either.
        n = int(page.get_attribute(PANEL, "data-here"))
        for key, event in (("Shift+F10", n - 1), ("F11", n)):
            page.focus(f"{PANEL} [data-action='into']")
            page.keyboard.press(key)
            page.wait_for_function(
                "([p, n]) => document.querySelector(p).dataset.here === String(n)",
                arg=[PANEL, event],
            )
            settled(page)
        logits_are(digest)
        assert cells.count() == 3, "the keys were the panel's, not the notebook's"
        assert problems == []
