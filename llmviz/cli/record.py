"""``llmviz trace FILE -p ... --html run.html --save run.zarr.zip``: a whole run, recorded."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from rich.text import Text

import llmviz
from llmviz.cli.generate import make_chain, read_prompt
from llmviz.cli.output import human_bytes, loading, open_file, stderr
from llmviz.errors import LlmvizError
from llmviz.sampling import Chain

__all__ = ["BUDGET", "ENGINE", "record_run", "trace_to_page"]

BUDGET = 1 << 30
ENGINE = "llama.cpp"
SLICE = 0.25  # seconds between two looks at the progress


def record_run(
    file: str,
    prompt: str,
    *,
    n_predict: int,
    n_ctx: int,
    chat: bool,
    seed: int,
    temp: float,
    html: Path | None,
    save: Path | None,
    engine: str = "llmviz",
) -> None:
    """Generate from a prompt, and write what was recorded as a page, as a trace, or both.

    `engine` is ``"llmviz"`` or ``"llama.cpp"``.

    Raises
    ------
    LlmvizError
        Nothing can be recorded, or a file cannot be written where it should be.
    """
    for target in (html, save):
        if target is not None:
            check_writable(target)
    chain = make_chain(seed, temp, 40, 0.95, 0.05, 1.0)
    run = _run_llamacpp if engine == ENGINE else _run_llmviz
    with run(open_file(file), prompt, chat, chain, n_predict, n_ctx) as recorded:
        told = _told(recorded, seed if temp > 0 else None)
        stderr().print(Text(told, style="dim"), soft_wrap=True)
        if save is not None:
            with loading(f"writing {save.name}"):
                recorded.save(save)
            _say_written(save)
        if html is not None:
            if save is not None:
                trace_to_page(save, html)
            else:
                _page(recorded, html)


def _run_llmviz(
    path: Path, prompt: str, chat: bool, chain: Chain, n_predict: int, n_ctx: int
) -> Any:
    """A debugger at the end of its run."""
    text = read_prompt(llmviz.load(path, vocab_only=True), prompt, chat)
    dbg = llmviz.Debugger(str(path), text, chain, n_predict=n_predict, budget=BUDGET, n_ctx=n_ctx)
    try:
        dbg.keep_all()
        with loading("recording") as move:
            dbg.start("to-end")
            while not dbg.advance(SLICE):
                move(sum(not k.given for k in dbg.tokens) / n_predict)
        if dbg.error is not None:
            raise LlmvizError(f"the run stopped with an error: {dbg.error}")
    except BaseException:
        dbg.close()
        raise
    return dbg


def _run_llamacpp(
    path: Path, prompt: str, chat: bool, chain: Chain, n_predict: int, n_ctx: int
) -> Any:
    """A recording of llama.cpp; it reads the file itself, also one that llmviz cannot run."""
    text = sys.stdin.read() if prompt == "-" else prompt
    given = [{"role": "user", "content": text}] if chat else text
    with loading(f"recording {ENGINE}") as move:
        return llmviz.record_llamacpp(
            path, given, chain=chain, n_predict=n_predict, budget=BUDGET, n_ctx=n_ctx, progress=move
        )


def trace_to_page(trace: Path, html: Path) -> None:
    """Write a saved trace as a page."""
    check_writable(html)
    with llmviz.open_trace(trace) as opened:
        _page(opened, html)


def _page(run: Any, html: Path) -> None:
    with loading(f"writing {html.name}") as move:
        run.to_html(html, progress=move)
    _say_written(html)


def _say_written(path: Path) -> None:
    stderr().print(Text(f"{path}: {human_bytes(path.stat().st_size)}", style="dim"), soft_wrap=True)


def _told(dbg: Any, seed: int | None) -> str:
    made = sum(not k.given for k in dbg.tokens)
    drawn = f"; seed {seed}" if seed is not None else ""
    return f"{made} tokens, stopped by {dbg.recorder.stop}{drawn}:{dbg.text}"


def check_writable(path: Path) -> None:
    """Refuse a place where nothing can be written, before the work is done.

    Raises
    ------
    LlmvizError
    """
    folder = path.parent
    if path.is_dir():
        raise LlmvizError(f"{path} is a folder: give the name of a file in it")
    if not folder.is_dir():
        raise LlmvizError(f"there is no folder {folder}: make it first, or write elsewhere")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise LlmvizError(f"{path} cannot be written: no permission")
