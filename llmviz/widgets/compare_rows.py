"""What the compare view shows of passes, tokens and settings: plain values for its page."""

from __future__ import annotations

from typing import Any

import numpy as np

from llmviz.trace import Comparison
from llmviz.trace.compare_spans import Span
from llmviz.trace.diff import NodeDiff
from llmviz.trace.records import Alternative, TokenRecord
from llmviz.trace.shown import short

__all__ = ["TEXT", "candidate_row", "float64", "match_rows", "pass_row", "token_row", "worst"]

TEXT = 60  # characters of a name or a text
_VALUE = 200  # characters of a setting


def float64(values: list[float | None]) -> bytes:
    """Numbers as a page reads them, None as NaN."""
    return np.array([np.nan if x is None else x for x in values], "<f8").tobytes()


def worst(nodes: list[NodeDiff]) -> int:
    """Place of the node with the largest error; -1 for none."""
    known = [d for d in nodes if d.error is not None]
    return max(known, key=lambda d: d.error or 0.0).i if known else (0 if nodes else -1)


def pass_row(span: Span) -> dict[str, Any]:
    """A pass, for its button."""
    return {
        "i": span.index,
        "a": short(span.text_a, TEXT),
        "b": short(span.text_b, TEXT),
        "same": span.same_tokens,
        "prompt": span.prompt,
        "n_a": span.n_a,
        "n_b": span.n_b,
    }


def token_row(record: TokenRecord | None) -> dict[str, Any] | None:
    """One token of a text."""
    if record is None:
        return None
    text = record.piece.decode("utf-8", "replace")
    return {"id": record.id, "text": short(text, TEXT), "given": record.given}


def candidate_row(x: Alternative) -> dict[str, Any]:
    """One of the likeliest next tokens."""
    return {"id": x.id, "text": short(x.text, TEXT), "p": x.p_raw, "logit": x.logit}


def match_rows(c: Comparison) -> list[dict[str, Any]]:
    """What both runs tell of themselves, side by side."""

    def say(x: Any) -> str | None:
        return None if x is None else short(str(x), _VALUE)

    return [
        {"what": m.what, "a": say(m.a), "b": say(m.b), "same": m.same}
        for m in c.matches
        if m.same is not None and not (m.what == "edits" and m.a == m.b == "none")
    ]
