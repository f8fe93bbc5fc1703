"""``llmviz trace --html --save``: a recorded run as a page and as a trace, and how it fails."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner

import llmviz
from llmviz.cli import app

pytest.importorskip("anywidget")
pytest.importorskip("zarr")


def run(*args: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["trace", *map(str, args)])
    assert result.exit_code == code, (result.output, result.exception)
    assert "Traceback" not in result.output
    return result.stderr


def test_a_page_and_a_trace(tiny_model: Callable[..., str], tmp_path: Path) -> None:
    page, saved, again = tmp_path / "run.html", tmp_path / "run.zarr.zip", tmp_path / "again.html"
    told = run(
        *(tiny_model(), "-p", "The cat", "-n", 3, "--seed", 5, "--html", page, "--save", saved)
    )
    assert "3 tokens, stopped by n_predict; seed 5" in told
    assert f"{page.name}: " in told and f"{saved.name}: " in told
    assert "recorded, not live" in page.read_text()
    with llmviz.open_trace(saved) as trace:
        assert sum(not k.given for k in trace.tokens) == 3
        assert trace.recorder.value("attn_norm-1") is not None, "every layer's flow is there"
    run(saved, "--html", again)
    assert re.sub("<title>.*", "", again.read_text()) == re.sub("<title>.*", "", page.read_text())


def test_llama_cpp_itself(
    llamacpp: ModuleType, tiny_model: Callable[..., str], tmp_path: Path
) -> None:
    saved = tmp_path / "theirs.zarr.zip"
    told = run(
        *(tiny_model(), "-p", "The cat", "-n", 2, "--temp", 0, "--ctx", 64),
        *("--engine", "llama.cpp", "--save", saved),
    )
    assert "2 tokens, stopped by n_predict" in told
    with llmviz.open_trace(saved) as trace:
        assert trace.engine == "llama.cpp"
        assert trace.recorder.value("attn_norm-1") is not None, "every layer's flow is there"


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (("--html", "nowhere/run.html", "-p", "x"), "no folder"),
        (("--html", ".", "-p", "x"), "is a folder"),
        (("--html", "run.html"), "needs a prompt"),
        (("--html", "run.html", "-p", "x", "--jsonl"), "they record nothing"),
        (("-p", "x", "--engine", "llama.cpp"), "--html or --save"),
        (("-p", "x", "--engine", "vllm"), "llmviz or llama.cpp"),
    ],
)
def test_what_cannot_be_done_is_said_before_the_work(
    tiny_model: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args, why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert why in run(tiny_model(), *args, code=1)


def test_a_saved_trace_takes_html_alone(tmp_path: Path) -> None:
    assert "saved trace" in run(tmp_path / "a.zarr.zip", "-p", "x", code=1)
    missing = run(tmp_path / "a.zarr.zip", "--html", tmp_path / "a.html", code=1)
    assert "a.zarr.zip" in missing
    (tmp_path / "b.zarr.zip").write_bytes(b"PK\x05\x06" + bytes(18))
    assert "b.zarr.zip" in run(tmp_path / "b.zarr.zip", "--html", tmp_path / "b.html", code=1)


@pytest.mark.slow
def test_smollm2_fits_five_megabytes(smollm2_path: str, tmp_path: Path) -> None:
    """Twenty tokens, with the attention and the flow of every layer."""
    page = tmp_path / "run.html"
    run(smollm2_path, "-p", "The capital of France is", "-n", 20, "--seed", 42, "--html", page)
    assert 1_000_000 < page.stat().st_size < 5_000_000
    foot = page.read_text()[:60_000]
    left = foot[foot.index("Left out of this page") :]
    assert "attention of" not in left and "the inside of" not in left
