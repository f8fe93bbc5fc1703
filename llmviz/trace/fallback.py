"""What a view says where no widget can be shown: plain text, and a table without scripts."""

from __future__ import annotations

from html import escape

from llmviz.steps import STEPS
from llmviz.trace import Debugger
from llmviz.trace.timeline import shape_text

__all__ = ["html", "rows", "text"]

_SHOWN = 40  # tokens; a saved notebook must stay small


def rows(dbg: Debugger) -> list[tuple[str, str]]:
    """The essential state of a run: where it stands, the text, the likeliest next tokens."""
    out = []
    here = dbg.here
    if here is not None:
        title = STEPS[here.step - 1].title if 1 <= here.step <= len(STEPS) else ""
        out.append(("step", f"{here.step} of {len(STEPS)}: {title}"))
        shape = f" {shape_text(here.shape)} {here.dtype}" if here.shape is not None else ""
        out.append(("event", f"#{here.n} {here.kind} {here.name}{shape}"))
    else:
        out.append(("step", "not started"))
    tokens = dbg.tokens
    if tokens:
        shown = tokens[-_SHOWN:]
        count = f" (last {len(shown)} of {len(tokens)})" if len(shown) < len(tokens) else ""
        out.append((f"tokens{count}", "|".join(_visible(t.text) for t in shown)))
    top = dbg.recorder.top
    if top:
        best = ", ".join(f"{_visible(a.text)!r} {a.p_raw:.1%}" for a in top[:5])
        out.append(("likeliest next, raw probability", best))
    if dbg.error is not None:
        out.append(("error", str(dbg.error)))
    return out


def text(title: str, dbg: Debugger) -> str:
    """The state in plain lines."""
    return "\n".join((f"llmviz {title}", *(f"  {k}: {v}" for k, v in rows(dbg))))


def html(title: str, dbg: Debugger) -> str:
    """The state as a small table; colours are the page's own."""
    cells = "".join(
        f'<tr><th style="text-align:left">{escape(k)}</th>'
        f'<td style="text-align:left">{escape(v)}</td></tr>'
        for k, v in rows(dbg)
    )
    return (
        f"<table><caption>llmviz {escape(title)} (run the cell again to step)</caption>"
        f"<tbody>{cells}</tbody></table>"
    )


def _visible(piece: str) -> str:
    return piece.replace("\n", "\u23ce").replace("\t", "\u21e5")[:60]
