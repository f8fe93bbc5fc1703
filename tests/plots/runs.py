"""Runs that several tests of the figures share, and ways to read a figure back."""

from __future__ import annotations

from typing import Any

from llmviz import load
from llmviz.events import Event
from llmviz.sampling import Chain, Dist, Temp, TopK
from llmviz.trace import Debugger


def of(path: str, prompt: str, n: int = 4, **params: Any) -> Debugger:
    """A run of a real model that has chosen n tokens, and kept two nodes of each layer."""
    chain = Chain([TopK(4), Temp(0.8), Dist(seed=7)])
    dbg = Debugger(load(path), prompt, chain=chain, n_predict=16, **params)
    dbg.recorder.ask(
        of, lambda name: name.startswith(("l_out-", "kq_soft_max-")) or name == "inp_pos"
    )
    for _ in range(n):
        dbg.next_token()
    return dbg


def at(value: Any, name: str = "x", kind: str = "node") -> Debugger:
    """A run of one event, which stands at it."""
    dbg = Debugger(iter([Event(kind, name, 0, 13, value)]))
    dbg.step_into()
    return dbg


def by_gid(figure: Any, gid: str) -> Any:
    """The one artist of this id."""
    (found,) = figure.findobj(lambda a: a.get_gid() == gid)
    return found


def texts(figure: Any) -> str:
    """All text of a figure, one artist a line."""
    found = [t.get_text() for t in figure.findobj(lambda a: hasattr(a, "get_text"))]
    return "\n".join(t for t in found if t).replace("\u00a0", " ")  # as a reader sees it
