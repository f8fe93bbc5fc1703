"""Activation patching: one node's value of one run put into the other, which then goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from llmviz.trace.compare_sides import Row
from llmviz.trace.compare_sources import LiveRun
from llmviz.trace.compare_spans import value_of
from llmviz.trace.edits import Edit
from llmviz.trace.summary import probabilities
from llmviz.trace.timeline import DebuggerError, shape_text

if TYPE_CHECKING:
    from llmviz.trace.compare import Comparison

__all__ = ["Patched", "patch"]


@dataclass(frozen=True, slots=True, eq=False)
class Patched:
    """What a patch did.

    Attributes
    ----------
    edit : Edit
        Logged in the branch; ``dbg.undo_edit`` takes it back.
    branch : str
        The run's new branch, which it is on now.
    before, source, after : ndarray float32 [n_vocab] or None
        Logits after the patched pass: of the run as it was, of the run that the value came from,
        and of the patched run. None where they are not known, or it did not go on.
    """

    edit: Edit
    branch: str
    before: np.ndarray | None
    source: np.ndarray | None
    after: np.ndarray | None

    @property
    def recovered(self) -> float | None:
        """How much of the way from the one run's next-token probabilities to the other's the patch
        went: 0 for nothing, 1 for all of it. None where the two say the same, or it is not known.
        """
        if self.before is None or self.source is None or self.after is None:
            return None
        if not self.before.shape == self.source.shape == self.after.shape:
            return None
        before, source, after = map(probabilities, (self.before, self.source, self.after))
        way = source - before
        whole = float(way @ way)
        return float((after - before) @ way) / whole if whole else None

    def __repr__(self) -> str:
        share = "" if self.recovered is None else f", {self.recovered:.1%} of the way"
        return f"<Patched {self.edit.description} on branch {self.branch!r}{share}>"


def patch(
    comparison: Comparison,
    name: str,
    pass_: int | None,
    into: str,
    op: str,
    tokens: Sequence[int] | None,
    branch: str | None,
    go_on: bool,
) -> Patched:
    """See `Comparison.patch`."""
    if into not in ("a", "b"):
        raise DebuggerError(f"into is 'a' or 'b', the run that is changed, not {into!r}")
    span = comparison.span(pass_)
    sides = ((comparison.a, span.a), (comparison.b, span.b))
    (target, target_passes), (source, source_passes) = sides if into == "a" else sides[::-1]
    if not isinstance(target, LiveRun):
        raise DebuggerError(
            f"{target.label} is a recording and cannot be changed: patch into the live run, or "
            "make a Debugger of its model and prompt"
        )
    if len(target_passes) > 1:
        raise DebuggerError("this part of the prompt took several ubatches: patch one of them")
    diff = comparison.node(name, span.index, op)
    number = diff.n_a if into == "a" else diff.n_b
    if number < 0:
        raise DebuggerError(f"{target.label} has no node {name!r} in this pass")
    value = value_of(source, source_passes, diff.key)
    if value is None:
        raise DebuggerError(f"{source.label} did not keep {name!r}: there is nothing to put in")
    before, other = _row(target.logits(target_passes[-1])), _row(source.logits(source_passes[-1]))
    text = f"{name} of {source.label}"
    if tokens is not None:
        text += f", tokens {', '.join(map(str, tokens))}"
    stood, edit, made = _put(target, number, name, value, text, tokens, branch)
    after = None
    if go_on:
        target.dbg.goto(stood)
        run = LiveRun(target.dbg)
        done = [p for p in run.passes() if p.first < number]
        after = _row(run.logits(done[-1])) if done else None
    comparison.refresh()
    return Patched(edit, made, before, other, after)


def _put(
    target: LiveRun,
    number: int,
    name: str,
    value: np.ndarray,
    text: str,
    tokens: Sequence[int] | None,
    branch: str | None,
) -> tuple[int, Edit, str]:
    """Edit the node; where the run stood before, the edit, and the branch."""
    dbg = target.dbg
    if not target.current:
        dbg.switch(target.branch)
    stood = dbg.n
    dbg.goto(number)
    here = dbg.here
    if here is None or here.name != name or not isinstance(here.value, np.ndarray):
        raise DebuggerError(f"event {number} is not {name} any more: refresh() the comparison")
    try:
        new = _rows_of(here.value, value, tokens, name)
    except DebuggerError:
        dbg.goto(stood)
        raise
    made = dbg.fork(_free_name(dbg, branch or f"patch {name}"))
    edit = dbg.edit(new)
    edit.description = text
    return stood, edit, made.name


def _rows_of(
    old: np.ndarray, new: np.ndarray, tokens: Sequence[int] | None, name: str
) -> np.ndarray:
    """The value to put in: all of the other run's, or only some tokens' rows of it."""
    if tokens is None:
        if old.shape != new.shape:
            raise DebuggerError(
                f"{name} is {shape_text(old.shape)} in one run and {shape_text(new.shape)} in the "
                "other: a patch needs the same shape, so prompts of the same number of tokens, or "
                "tokens=[...]"
            )
        return new
    if old.ndim != 2 or new.ndim != 2 or old.shape[1] != new.shape[1]:
        raise DebuggerError(
            f"{name} is {shape_text(old.shape)} and {shape_text(new.shape)}: tokens can be chosen "
            "only of nodes [token, feature]"
        )
    out = np.array(old)
    for t in tokens:
        if not (-len(old) <= t < len(old) and -len(new) <= t < len(new)):
            raise DebuggerError(f"no token {t}: the passes have {len(old)} and {len(new)}")
        out[t] = new[t]
    return out


def _free_name(dbg: Any, name: str) -> str:
    taken = {b.name for b in dbg.branches}
    free, count = name, 2
    while free in taken:
        free, count = f"{name} {count}", count + 1
    return free


def _row(row: Row | None) -> np.ndarray | None:
    return row.logits if row is not None else None
