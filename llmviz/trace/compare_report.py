"""A comparison in plain words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llmviz.trace.diff import LogitsDiff, NodeDiff

if TYPE_CHECKING:
    from llmviz.trace.compare import Comparison

__all__ = ["error_text", "node_text", "piece_text", "report"]

_WORST = 5


def error_text(diff: NodeDiff) -> str:
    """The relative error, or why there is none."""
    if diff.error is None:
        return diff.note or "not compared"
    return f"{'at least ' if diff.bound else ''}{diff.error:.2e}"


def node_text(diff: NodeDiff) -> str:
    """A node by its name and op, and which of several it is."""
    which = f", number {diff.nth + 1} of that name" if diff.nth else ""
    return f"{diff.name} ({diff.op}{which})" if diff.op else diff.name


def piece_text(text: str) -> str:
    """A token's text in quotes, short."""
    return repr(text if len(text) <= 24 else text[:23] + "…")


def report(c: Comparison) -> str:
    """See `Comparison.report`."""
    lines = [f"a: {c.a.label}", f"b: {c.b.label}", ""]
    lines += _matches(c)
    if not c.passes:
        lines += ["", _why_nothing(c)]
        return "\n".join(lines)
    lines += ["", *_nodes(c), "", *_logits(c)]
    lines += _tokens(c)
    return "\n".join(lines)


def _matches(c: Comparison) -> list[str]:
    known = [m for m in c.matches if m.same is not None]
    same = [m.what for m in known if m.same]
    out = [f"the same: {', '.join(same)}"] if same else []
    for m in known:
        if not m.same:
            out.append(f"another {m.what}: {_short(m.a)} | {_short(m.b)}")
    return out


def _short(x: Any) -> str:
    text = repr(x) if isinstance(x, str) else str(x)
    return text if len(text) <= 60 else text[:59] + "…"


def _why_nothing(c: Comparison) -> str:
    for run, which in ((c.a, "a"), (c.b, "b")):
        if not run.passes():
            return f"{which} has computed no pass yet: run it, then refresh()"
    return "no pass of one run has a counterpart in the other"


def _nodes(c: Comparison) -> list[str]:
    first = c.first
    span = c.span(c.first_pass if first is not None else None)
    nodes = c.nodes_of(span.index)
    compared = [d for d in nodes if d.difference is not None]
    exact = [d for d in compared if not d.bound]
    where = f"pass {span.index} ({'prompt' if span.prompt else 'token'} {piece_text(span.text_a)})"
    out = []
    if first is not None:
        out.append(
            f"first node over {c.tolerance:g}: {node_text(first)} in {where}, relative error "
            f"{error_text(first)}, largest difference {_at(first)}"
        )
    else:
        out.append(f"no node is over {c.tolerance:g} in {len(c.passes)} passes")
    out.append(
        f"in this pass {len(compared)} of {len(nodes)} nodes were compared"
        + (
            f", {len(compared) - len(exact)} of them by statistics"
            if len(exact) < len(compared)
            else ""
        )
    )
    apart = [d for d in nodes if d.shape_a is None or d.shape_b is None]
    shapes = [d for d in nodes if d.note == "the shapes differ"]
    for what, found in (("only in one run", apart), ("of another shape", shapes)):
        if found:
            names = ", ".join(d.name for d in found[:_WORST])
            out.append(f"{len(found)} nodes are {what}: {names}{', …' * (len(found) > _WORST)}")
    if not span.same_tokens:
        out.append(
            f"the passes read other tokens: {piece_text(span.text_a)} | {piece_text(span.text_b)}"
        )
    worst = sorted(compared, key=lambda d: -(d.error or 0.0))[:_WORST]
    if worst and (worst[0].error or 0.0) > 0:
        out.append("largest: " + ", ".join(f"{d.name} {error_text(d)}" for d in worst))
    return out


def _at(diff: NodeDiff) -> str:
    d = diff.difference
    assert d is not None
    place = f" at {list(d.at)}" if d.at is not None else ""
    return f"{d.max_abs:.3g}{place}"


def _logits(c: Comparison) -> list[str]:
    known: list[tuple[int, LogitsDiff]] = []
    for span in c.passes:
        found = c.logits(span.index)
        if found is not None:
            known.append((span.index, found))
    if not known:
        return ["no logits of both runs are known"]
    same = sum(x.same for _, x in known)
    out = [f"likeliest next token: the same after {same} of {len(known)} passes"]
    kl = [x.kl for _, x in known if x.kl is not None]
    if kl:
        out.append(
            f"KL divergence of the next token: {kl[0]:.2e} nats first, {max(kl):.2e} at most"
        )
    other = next(((i, x) for i, x in known if not x.same), None)
    if other is not None:
        i, x = other
        out.append(
            f"first other one after pass {i}: {piece_text(x.top_a[0].text)} {x.top_a[0].p_raw:.1%} "
            f"| {piece_text(x.top_b[0].text)} {x.top_b[0].p_raw:.1%}"
        )
    if known[0][1].note:
        out.append(known[0][1].note)
    return out


def _tokens(c: Comparison) -> list[str]:
    t = c.first_token
    if t is None:
        return ["tokens: all that both runs have are the same"]
    assert t.a is not None and t.b is not None
    return [f"first other token at position {t.i}: {piece_text(t.a.text)} | {piece_text(t.b.text)}"]
