"""The page on devices says what happens: its code runs, in order, in one session."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from llmviz import hub

PAGE = Path(__file__).parent.parent / "docs" / "devices.md"


@pytest.mark.filterwarnings("error")
def test_every_block_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    if "builtin" not in {model.name for model in hub.list_models()}:
        pytest.skip("the built-in model is not part of this version")
    session: dict[str, object] = {}
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), session)
    said = capsys.readouterr().out
    assert "before split 1: embd" in said
    assert said.count("would fit") >= 1
