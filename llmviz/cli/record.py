"""``llmviz trace FILE -p ... --html run.html --save run.zarr.zip``: a whole run, recorded."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from rich.text import Text

import llmviz
from llmviz.cli.generate import make_chain, read_prompt
from llmviz.cli.output import human_bytes, loading, open_file, stderr
from llmviz.errors import LlmvizError

__all__ = ["BUDGET", "record_run", "trace_to_page"]

BUDGET = 1 << 30
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
) -> None:
    """Generate from a prompt, and write what was recorded as a page, as a trace, or both.

    Raises
    ------
    LlmvizError
        Nothing can be recorded, or a file cannot be written where it should be.
    """
    for target in (html, save):
        if target is not None:
            check_writable(target)
    path = open_file(file)
    vocabulary = llmviz.load(path, vocab_only=True)
    text = read_prompt(vocabulary, prompt, chat)
    chain = make_chain(seed, temp, 40, 0.95, 0.05, 1.0)
    with llmviz.Debugger(
        str(path), text, chain, n_predict=n_predict, budget=BUDGET, n_ctx=n_ctx
    ) as dbg:
        dbg.keep_all()
        with loading("recording") as move:
            dbg.start("to-end")
            while not dbg.advance(SLICE):
                move(sum(not k.given for k in dbg.tokens) / n_predict)
        if dbg.error is not None:
            raise LlmvizError(f"the run stopped with an error: {dbg.error}")
        stderr().print(Text(_told(dbg, seed if temp > 0 else None), style="dim"), soft_wrap=True)
        if save is not None:
            with loading(f"writing {save.name}"):
                dbg.save(save)
            _say_written(save)
        if html is not None:
            if save is not None:
                trace_to_page(save, html)
            else:
                _page(dbg, html)


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
