"""Lesson 10 in a real JupyterLab, as a student goes through it."""

from __future__ import annotations

import json
import shutil

import pytest

from tests.widgets import host, lab

from .running import NOTEBOOKS

lab.require("jupyterlab")

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_lesson_10(tmp_path):
    shutil.copy(NOTEBOOKS / "10-the-file.ipynb", tmp_path / "lesson.ipynb")
    with lab.server(tmp_path) as (base, token), host.chromium() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        problems = []
        page.on("pageerror", lambda e: problems.append(str(e)))
        lab.open_notebook(page, base, token, "lesson.ipynb")
        lab.command(page, "notebook:run-all-cells")

        def question(key):
            found = page.locator(f".jp-OutputArea-output .lv-check[data-key={key}]")
            found.wait_for()
            found.scroll_into_view_if_needed()
            return found

        word = page.locator(".jp-RenderedMarkdown abbr", has_text="GGUF").first
        assert "The file format of llama.cpp" in word.get_attribute("title")
        assert page.locator(".jp-RenderedMarkdown >> text=What is in it").count()

        asked = question("first-name")
        asked.locator("input").fill("24")
        asked.locator("input").press("Enter")
        asked.locator(".lv-verdict[data-state=wrong]").wait_for()
        assert "Add up" in asked.inner_text()
        asked.locator("input").press("b")  # Lab would insert a cell
        asked.locator("input").fill("32")
        asked.locator("[data-action=check]").click()
        asked.locator(".lv-verdict[data-state=right]").wait_for()
        assert "4 + 4 + 8 + 8 bytes come first" in asked.inner_text()

        task = question("count-a-layer")
        task.locator("[data-action=check]").click()
        task.locator(".lv-verdict[data-state=unread]").wait_for()
        assert "is still ..." in task.inner_text()
        task.locator("[data-action=show-answer]").click()
        task.locator(".lv-solution").wait_for()

        kept = json.loads((tmp_path / ".llmviz-lessons.json").read_text("utf-8"))
        entries = kept["lessons"]["10-the-file"]
        assert (entries["first-name"]["attempts"], entries["first-name"]["right_at"]) == (2, 2)
        assert entries["count-a-layer"]["shown"] and len(entries) == 7

        assert problems == []
