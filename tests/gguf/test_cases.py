"""A sweep over a folder of malformed and odd files with llama.cpp's verdicts, where there is one.

``LLMVIZ_CASES`` names the folder; else ``shared/cases`` beside the repository. The same kinds of
fault are built byte by byte in the other test modules, which need no folder.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from llmviz.errors import GGUFError
from llmviz.gguf import open_gguf

_BESIDE = Path(__file__).parents[2].parent / "shared" / "cases"
CASES = Path(os.environ.get("LLMVIZ_CASES") or _BESIDE)
VERDICTS = CASES / "gguf_verdicts.json"

if not VERDICTS.exists():
    pytest.skip(f"no folder of cases at {CASES} (set LLMVIZ_CASES)", allow_module_level=True)

ALL = json.loads(VERDICTS.read_text())
OPENED = {"split_open_second": "m-00002-of-00002.gguf", "split_renamed": "model.gguf"}


def case_file(name: str) -> Path:
    folder = CASES / "gguf" / name
    return folder / OPENED[name] if name in OPENED else min(folder.glob("*.gguf"))


@pytest.mark.parametrize("use_mmap", [True, False], ids=["mmap", "read"])
@pytest.mark.parametrize("name", sorted(ALL))
def test_parse_verdict(name, use_mmap):
    verdict = ALL[name]["parse"]["value"]
    if not verdict["accept"]:
        with pytest.raises(GGUFError) as caught:
            open_gguf(case_file(name), use_mmap=use_mmap, follow_splits=False)
        assert caught.value.offset is not None
        assert caught.value.field
        return
    with open_gguf(case_file(name), use_mmap=use_mmap, follow_splits=False) as g:
        assert len(g.kv) == verdict["n_kv"]
        assert len(g.tensor_infos) == verdict["n_tensors"]
        assert g.alignment == verdict["alignment"]
        assert g.data_offset == verdict["data_offset"]
        assert g.version == verdict["version"]


@pytest.mark.parametrize("name", [n for n in sorted(ALL) if "split" in n])
def test_split_verdict(name):
    path = case_file(name)
    if ALL[name]["load_mmap"]["value"]["accept"]:
        assert len(open_gguf(path).tensor_infos) == 21
    else:
        with pytest.raises(GGUFError):
            open_gguf(path)
