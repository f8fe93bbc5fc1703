"""Whose logit is split, of which pass, and in which words: for the heads view and its figure.

`attribution` does the sums; this finds the newest pass that came to its logits, says what is
missing, and has it computed once more, silently. Does not do: choosing what to change.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from llmviz.errors import LlmvizError
from llmviz.trace.attribution import (
    Attribution,
    attribute,
    attribution_names,
    check_splittable,
)
from llmviz.trace.kept import LAST_ROW, Kept
from llmviz.trace.records import Alternative
from llmviz.trace.shown import candidates
from llmviz.trace.summary import probabilities

__all__ = [
    "NotKept",
    "Split",
    "measure",
    "pass_start",
    "rows",
    "split",
    "switched_off",
    "wanted",
    "words",
]


class NotKept(LlmvizError):
    """The pass has its logits, but the values that the shares need were not kept."""


@dataclass(frozen=True, slots=True)
class Split:
    """One token's logit, split.

    Attributes
    ----------
    shares : Attribution
    text : str
        The token's piece.
    pos : int
        The position that it is, or would be, at.
    chosen : bool
        Whether it is the token that was taken.
    logit : float
        The model's own; `shares.logit` is the sum of the shares.
    p : float
        Raw probability, before any sampler.
    options : tuple of Alternative
        The likeliest tokens, the largest logit first.
    start, n : int
        Events at which the pass began and at which its logits came.
    """

    shares: Attribution
    text: str
    pos: int
    chosen: bool
    logit: float
    p: float
    options: tuple[Alternative, ...]
    start: int
    n: int

    @property
    def whole(self) -> bool:
        """Whether the shares add up to the logit: they do where the stream is a plain sum."""
        return abs(self.shares.logit - self.logit) <= 0.02 * max(1.0, abs(self.logit))


class _OfPass:
    """A recorder as it was when one pass had ended; of a value whatever was kept, whole or row."""

    def __init__(self, recorder: Any, pass_: int) -> None:
        self._recorder, self._pass = recorder, pass_

    def value(self, name: str) -> Kept | None:
        """The copy that this pass left."""
        return next((k for k in _copies(self._recorder, name) if k.pass_ == self._pass), None)


def _copies(recorder: Any, name: str) -> list[Kept]:
    return [*recorder.values(name + LAST_ROW), *recorder.values(name)]


def wanted(model: Any) -> frozenset[str]:
    """What to ask a recorder for: the last row of each of `attribution_names` is enough."""
    return frozenset(name + LAST_ROW for name in attribution_names(model))


def pass_start(dbg: Any) -> int:
    """Number of the event at which the ubatch began that the newest logits came from, or -1."""
    last = dbg.recorder.logits_n
    for record in reversed(dbg.events):
        if record.n < last and record.kind == "enter" and record.name == "process_ubatch":
            return int(record.n)
    return -1


def split(dbg: Any, token: int = -1) -> Split:
    """Split the logit of a token at the newest position whose logits are there.

    Parameters
    ----------
    dbg : Debugger
    token : int
        -1 for the one that was chosen, before that for the likeliest.

    Raises
    ------
    NotKept
        The recorder was not asked for the values before they were computed; see `measure`.
    LlmvizError
        There are no logits yet, no weights to split with, or there is no such token.
    """
    model, recorder = dbg.model, dbg.recorder
    shown = candidates(recorder)
    if shown is None or recorder.logits is None:
        raise LlmvizError("there are no logits yet: press Next token, or run to step 14")
    if getattr(model, "weights", None) is None:
        raise LlmvizError("this run has no model whose weights could split a logit")
    check_splittable(model)
    start = pass_start(dbg)
    final = f"l_out-{model.hparams.n_layer - 1}"
    ended = [k for k in _copies(recorder, final) if start < k.n < recorder.logits_n]
    if not ended:
        raise NotKept(_missing(recorder, [final]))
    of_pass = _OfPass(recorder, ended[-1].pass_)
    names = sorted(attribution_names(model))
    if missing := [name for name in names if of_pass.value(name) is None]:
        raise NotKept(_missing(recorder, missing))
    if token < 0:
        token = shown.chosen if shown.chosen is not None else shown.top[0].id
    shares = attribute(model, of_pass, token)  # type: ignore[arg-type]
    piece = model.vocab.token_to_piece(token, special=True).decode("utf-8", "replace")
    p = float(probabilities(recorder.logits)[token])
    return Split(
        shares=shares,
        text=piece,
        pos=shown.pos,
        chosen=token == shown.chosen,
        logit=float(recorder.logits[token]),
        p=p,
        options=tuple(shown.top),
        start=start,
        n=recorder.logits_n,
    )


def _missing(recorder: Any, names: list[str]) -> str:
    text = f"{names[0]} of this pass was not kept"
    if len(names) > 1:
        text = f"{len(names)} of the values that this needs were not kept, such as {names[0]}"
    if recorder.dropped:
        text += f" ({recorder.dropped_text}; give the Debugger a larger budget)"
    return text


def measure(dbg: Any) -> None:
    """Have the newest pass computed once more, silently, so that what was asked for is kept.

    The run stands where it stood. Whoever calls has asked the recorder for `wanted`.

    Raises
    ------
    DebuggerError
        The run cannot go back: it is a bare generator, or it is busy.
    """
    start = pass_start(dbg)
    if start < 0 or dbg.model is None:
        raise LlmvizError("there is nothing to measure yet: press Next token first")
    if not dbg.can_restart:
        raise LlmvizError("a generator of events runs once: it cannot be measured again")
    # A copy of a later pass would stand in the way of this pass's; the replay brings both.
    dbg.recorder.truncate(start - 1)
    dbg.peek(f"l_out-{dbg.model.hparams.n_layer - 1}", dbg.recorder.logits_n)


_ABLATED = re.compile(r"ablate heads? ([\d, ]+) of layer (\d+)")


def switched_off(dbg: Any) -> list[tuple[int, int, list[int]]]:
    """Heads that are off at this moment: (number of the edit, layer, heads), oldest first."""
    out = []
    for edit in dbg.interventions:
        found = _ABLATED.fullmatch(edit.description)
        if found and edit.active(max(dbg.n, edit.n)):
            heads = [int(h) for h in found[1].split(",")]
            out.append((edit.id, int(found[2]), heads))
    return out


def words(share: float, logit: float) -> str:
    """``adds 2.82 of 17.37``, or ``takes away 0.41``."""
    if share < 0:
        return f"takes away {-share:.2f}"
    return f"adds {share:.2f} of {logit:.2f}"


def rows(found: Split, most: int = 5) -> list[tuple[str, str]]:
    """The largest shares and the sums, as a small table of words."""
    a = found.shares
    out = [
        (f"layer {il}, head {h}", f"{words(v, found.logit)} logits")
        for il, h, v in a.top_heads(most)
    ]
    out.append(("all heads", f"{a.heads.sum():+.2f}"))
    out.append(("all feed-forward networks", f"{a.ffn.sum():+.2f}"))
    out.append(("embedding", f"{a.embedding:+.2f}"))
    if a.biases:
        out.append(("biases", f"{a.biases:+.2f}"))
    return out
