"""What happens before the first token: steps 1 to 7, and the size of the KV cache as a formula."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from llmviz.errors import LlmvizError
from llmviz.plots._view import NothingToDraw, drawn
from llmviz.plots.style import PLAIN, Canvas, Style, make_style
from llmviz.plots.text import seconds, short
from llmviz.trace.kv_size import KVSize, KVTerm, kv_size
from llmviz.trace.loading import Loading, loading_of

__all__ = ["load"]

_WORDS = {"later": "not yet", "before": "before this run", "now": "now"}


@drawn
def load(
    source: Any,
    *,
    n_ctx: int | None = None,
    n_seq_max: int | None = None,
    kv_unified: bool | None = None,
    type_k: str | None = None,
    type_v: str | None = None,
    theme: Any = "light",
    size: Any = "page",
    for_print: bool = False,
) -> Figure:
    """Steps 1 to 7 with their times, and what the KV cache takes; nothing is allocated.

    Parameters
    ----------
    source : Debugger, Model, Context, or path
        See `llmviz.trace.loading`.
    n_ctx, n_seq_max, kv_unified, type_k, type_v
        What the cache's size is worked out for; by default the context's own where there is one.
    theme, size, for_print
        See `llmviz.plots.style.make_style`.

    Raises
    ------
    NothingToDraw
        The run has not begun.
    """
    style = make_style(theme, size, for_print)
    x = source if isinstance(source, Loading) else loading_of(source)
    if not any(s.state != "later" for s in x.steps):
        raise NothingToDraw("nothing was loaded yet: take a step, or give the model's path")
    wanted = {
        "n_ctx": n_ctx, "n_seq_max": n_seq_max, "kv_unified": kv_unified, "type_k": type_k,
        "type_v": type_v,
    }  # fmt: skip
    cache = _size(x, wanted)
    line = 1.75 * style.base / 72
    n_formula = len(cache.terms) + 1 if cache is not None else 0
    weights = x.weights.memory or x.weights.file if x.weights is not None else 0
    parts = _parts(weights, x, cache)
    n_bar = 1.8 + -(-len(parts) // (1 if style.narrow else 3)) if parts else 0
    height = line * (7.4 + n_formula * (2 if style.narrow else 1) + n_bar)
    times = [s.seconds for s in x.steps if s.seconds is not None]
    about = [f"{seconds(sum(times))} measured"] if times else []
    notes = [*(cache.rules if cache is not None else ()), x.note]
    title = f"Before the first token: {short(x.name, 50)}" if x.name else "Before the first token"
    canvas = Canvas(style, height, title, about, [n for n in notes if n])
    ax = canvas.sheet()
    line = min(line, canvas.height / (height / line))
    _steps(ax, x, canvas.width, line, style)
    y = 7.7 * line
    if cache is not None:
        y = _formula(ax, cache, y, line, style)
    if parts:
        _bar(ax, parts, canvas.width, y, line, style)
    return canvas.figure


def _size(x: Loading, wanted: dict[str, Any]) -> KVSize | None:
    if x.hp is None:
        return None
    own = getattr(x.ctx, "params", None)
    params = {k: getattr(own, k, None) if v is None else v for k, v in wanted.items()}
    try:
        return kv_size(x.hp, **{k: v for k, v in params.items() if v is not None})
    except LlmvizError as error:
        raise NothingToDraw(str(error)) from error


def _parts(weights: int, x: Loading, cache: KVSize | None) -> list[tuple[str, int]]:
    name = "weights" if x.weights is not None and x.weights.memory else "weights, in the file"
    out = [(name, weights)]
    if cache is not None:
        out += [("K", cache.k_bytes), ("V", cache.v_bytes)]
    return [(name, n) for name, n in out if n]


def _steps(ax: Any, x: Loading, wide: float, line: float, style: Style) -> None:
    longest = max((s.seconds or 0.0 for s in x.steps), default=0.0)
    em = style.base / 72
    time_at, bar_at = 15.6 * em, 16.3 * em
    room = (wide - bar_at) * (1.0 if style.narrow else 0.26)
    for k, s in enumerate(x.steps):
        y = (k + 0.5) * line
        soft = style.soft if s.state == "later" else style.text
        look = {"va": "center", "fontsize": style.base, **PLAIN}
        ax.text(1.0 * em, y, str(s.number), ha="right", color=style.soft, **look)
        ax.text(1.6 * em, y, s.title, color=soft, **look)
        told = seconds(s.seconds) if s.seconds is not None else _WORDS.get(s.state, "")
        ax.text(time_at, y, told, ha="right", color=soft, gid=f"seconds-{s.number}", **look)
        if s.seconds is not None and longest:
            box = (bar_at, y - 0.22 * line), max(0.02, room * s.seconds / longest), 0.44 * line
            ax.add_patch(Rectangle(*box, facecolor=style.now, lw=0, gid=f"bar-{s.number}"))
        if not style.narrow:
            at = bar_at + room + 0.9 * em
            found = short(s.found, style.characters(wide - at))
            ax.text(at, y, found, color=style.soft, **look)


def _term(t: KVTerm, narrow: bool) -> tuple[str, str]:
    streams = f"{t.n_stream} sequences × " if t.n_stream > 1 else ""
    layers = f" (layers {t.layers})" if t.layers else ""
    block = "" if t.block_size == 1 else f"/{t.block_size}"
    values, size = (" values", f" bytes ({t.type})") if not narrow else ("", f" ({t.type})")
    return (
        f"{t.n_layer} layers{layers} × {streams}{t.n_cells:,} cells × {t.width:,}{values} × "
        f"{t.type_size}{block}{size}",
        _mib(t.nbytes),
    )


def _formula(ax: Any, cache: KVSize, y: float, line: float, style: Style) -> float:
    em = style.base / 72
    look = {"va": "center", "fontsize": style.base, **PLAIN}
    for k, t in enumerate(cache.terms):
        colour = style.sequences[0 if t.what == "K" else 1]
        rows = 2 if style.narrow else 1
        ax.add_patch(
            Rectangle((0, y + 0.12 * line), 0.05, (rows - 0.24) * line, facecolor=colour, lw=0)
        )
        ax.text(0.8 * em, y + 0.5 * line, t.what, color=style.text, weight="bold", **look)
        product, total = _term(t, style.narrow)
        first = product if style.narrow else f"{product} = {total}"
        ax.text(2.4 * em, y + 0.5 * line, first, color=style.text, gid=f"term-{k}", **look)
        if style.narrow:
            ax.text(2.4 * em, y + 1.5 * line, f"= {total}", color=style.text, **look)
        y += rows * line
    cells = f" for {cache.params.n_ctx:,} cells"
    ax.text(0.8 * em, y + 0.5 * line, f"K + V = {_mib(cache.nbytes)}{cells}", color=style.text,
            weight="bold", gid="total", **look)  # fmt: skip
    return y + 1.4 * line


def _bar(
    ax: Any, parts: list[tuple[str, int]], wide: float, y: float, line: float, style: Style
) -> None:
    whole = sum(n for _, n in parts)
    colours = (style.soft, *style.sequences) if parts[0][0] not in "KV" else style.sequences
    across = 1 if style.narrow else 3
    x = 0.0
    for k, (name, n) in enumerate(parts):
        share = n / whole * wide
        gid = f"part-{name.split(',')[0]}"
        ax.add_patch(Rectangle((x, y), share, 0.8 * line, facecolor=colours[k], lw=0, gid=gid))
        x += share
        left, top = (k % across) * wide / across, y + line * (1.5 + k // across)
        side = 0.8 * style.base / 72
        box = (left, top - side / 2), side, side
        ax.add_patch(Rectangle(*box, facecolor=colours[k], lw=0))
        ax.text(left + 1.5 * side, top, f"{name} {_mib(n)}", va="center", color=style.text,
                fontsize=style.base, **PLAIN)  # fmt: skip


def _mib(n: int) -> str:
    return f"{n / 2**20:,.2f} MiB"
