"""What the panel docks, and how each of these views is made of a run and follows it."""

from __future__ import annotations

import os
from typing import Any

from llmviz.trace import Comparison
from llmviz.vocab import Vocab
from llmviz.widgets.batch import BatchView
from llmviz.widgets.compare import CompareView
from llmviz.widgets.docked import Dock
from llmviz.widgets.gguf import GGUFView
from llmviz.widgets.load import LoadView
from llmviz.widgets.tokenizer import TokenizerView

__all__ = ["DOCKS"]

_NO_FILE = (
    "The file is not at hand here: a saved trace and a run of bare events have none. "
    "lv.show.gguf(path) shows any file."
)
_NO_VOCAB = (
    "The tokenizer comes with the vocabulary, at step 5. A saved trace does not hold it: "
    "lv.show.tokens(model, text) shows any text."
)


def file_of(dbg: Any) -> Any:
    """A run's file: the model's, or before it is loaded the path. None where there is neither."""
    gguf = getattr(dbg.model, "gguf", None)
    if gguf is not None:
        return gguf
    return path_of(dbg) if dbg.here is not None and dbg.here.step >= 2 else None


def path_of(dbg: Any) -> str | None:
    """Where a run that was given a path has found its file; None before it looked."""
    return getattr(getattr(dbg, "_source", None), "_path", None)


def _gguf(kind: Any, dbg: Any) -> Any:
    source = file_of(dbg)
    if source is None:
        opens = isinstance(getattr(dbg, "subject", None), (str, os.PathLike))
        return "The file is opened at step 2." if opens else _NO_FILE
    return kind(source)


def _gguf_follow(part: GGUFView, dbg: Any) -> None:
    """While the header is read, the field that was read is the chosen one."""
    field = getattr(dbg.here, "event", None) and dbg.here.event.about
    offset = getattr(field, "offset", None)
    if dbg.here is None or dbg.here.step != 2 or offset is None or not hasattr(field, "meaning"):
        return
    part.show_offset(offset)


def _tokenizer(kind: Any, dbg: Any) -> Any:
    vocab = getattr(dbg.model, "vocab", None)
    if not isinstance(vocab, Vocab):
        return _NO_VOCAB
    return kind(dbg.model, prompt_text(dbg, vocab), parse_special=True)


def prompt_text(dbg: Any, vocab: Vocab) -> str:
    """The text of the prompt that is tokenized: as it was given, or as the chat template writes it.

    Where the prompt was given as ids, the text that they stand for.
    """
    prompt = getattr(dbg, "prompt", "")
    if isinstance(prompt, str):
        return prompt
    parts = list(prompt)
    if parts and not hasattr(parts[0], "keys"):
        return vocab.detokenize([int(p) for p in parts])
    text = vocab.apply_chat_template(parts, add_generation_prompt=True) if parts else ""
    return text.removeprefix(vocab.tokens[vocab.bos]) if vocab.add_bos else text


_NO_OTHER = (
    "There is one run only. Change something that has already happened: that makes a branch, and "
    "both are laid side by side here. panel.compare_with(other) takes another debugger or a trace."
)


def pair_of(dbg: Any) -> tuple[str, str] | None:
    """Names of the branch that a run came from and of the one it is on; None for a single one."""
    if dbg.here is None or not dbg.can_restart or len(dbg.branches) < 2:
        return None
    branch = dbg.branch
    other = branch.parent or next(b.name for b in reversed(dbg.branches) if b is not branch)
    return (other, branch.name) if branch.parent else (branch.name, other)


def _compare(kind: Any, dbg: Any) -> Any:
    pair = pair_of(dbg)
    if pair is None:
        return _NO_OTHER
    return kind(Comparison((dbg, pair[0]), (dbg, pair[1])))


def _compare_follow(part: CompareView, dbg: Any) -> None:
    """Of two branches those that the run is on now; another run stays until it is replaced."""
    c = part.comparison
    runs = [getattr(run, "dbg", None) for run in (c.a, c.b)]
    branches = {getattr(run, "branch", "") for run in (c.a, c.b)}
    pair = pair_of(dbg)
    if runs == [dbg, dbg] and pair is not None and branches != set(pair):
        part.show(Comparison((dbg, pair[0]), (dbg, pair[1])))


def _of_run(kind: Any, dbg: Any) -> Any:
    return kind(dbg)


def _refresh(part: Any, dbg: Any) -> None:
    part.refresh()


DOCKS = (
    Dock("load", LoadView, _of_run, _refresh),
    Dock("gguf", GGUFView, _gguf, _gguf_follow),
    Dock("tokenizer", TokenizerView, _tokenizer),
    Dock("batch", BatchView, _of_run, _refresh),
    Dock("compare", CompareView, _compare, _compare_follow),
)
"""The docked views; their tabs are in ``panel.js``, their order in `panel.VIEWS`."""
