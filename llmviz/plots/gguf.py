"""What is in a file: its bytes by tensor type, and one block taken apart."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from llmviz.errors import LlmvizError
from llmviz.plots._view import NothingToDraw, drawn
from llmviz.plots.style import PLAIN, Canvas, Style, make_style
from llmviz.plots.text import number, short
from llmviz.trace.blocks import Block, inspect_block

__all__ = ["gguf"]


@drawn
def gguf(
    source: Any,
    *,
    tensor: str = "",
    block: int = 0,
    theme: Any = "light",
    size: Any = "page",
    for_print: bool = False,
) -> Figure:
    """The file's bytes by tensor type as one bar, and the values of one block.

    Parameters
    ----------
    source : GGUF or Model
    tensor : str
        Whose block; empty for the bar alone.
    block : int
    theme, size, for_print
        See `llmviz.plots.style.make_style`.

    Raises
    ------
    NothingToDraw
        There is no such tensor or block, or its type cannot be read.
    """
    style = make_style(theme, size, for_print)
    file = getattr(source, "gguf", source)
    part = None
    if tensor:
        info = file.tensor_infos.get(tensor)
        if info is None:
            raise NothingToDraw(f"the file has no tensor {tensor!r}")
        try:
            part = inspect_block(file, info, block)
        except (LlmvizError, IndexError) as error:
            raise NothingToDraw(str(error)) from error
    sizes: dict[str, int] = {"header": sum(p.data_offset for p in file.parts)}
    for i in file.tensor_infos.values():
        sizes[i.type.name] = sizes.get(i.type.name, 0) + i.nbytes
    line = 1.7 * style.base / 72
    rows = -(-len(sizes) // (2 if style.narrow else 3))
    whole = sum(p.file_size for p in file.parts)
    about = [
        f"{file.kv.get('general.architecture', '')} · {file.ftype_name()} · {whole:,} bytes · "
        f"{len(file.kv):,} keys · {len(file.tensor_infos):,} tensors"
    ]
    notes = []
    if part is not None:
        notes = [f"{tensor}, block {block:,}: {len(part.raw)} bytes, {part.formula}"]
    height = line * (2 + rows) + (9 * line if part is not None else 0)
    name = str(file.kv.get("general.name") or file.path)
    canvas = Canvas(style, height, short(name, 60), about, notes)
    ax = canvas.sheet()
    _bar(ax, canvas.width, sizes, line, style)
    if part is not None:
        top = line * (2.2 + rows)
        _stems(ax, part, (0, top, canvas.width, max(0.5, canvas.height - top - line)), style)
    return canvas.figure


def _bar(ax: Any, wide: float, sizes: dict[str, int], line: float, style: Style) -> None:
    whole = max(1, sum(sizes.values()))
    colours = (style.soft, *style.sequences)
    across = 2 if style.narrow else 3
    x = 0.0
    for k, (name, n) in enumerate(sorted(sizes.items(), key=lambda e: (e[0] != "header", -e[1]))):
        colour = colours[k % len(colours)]
        box = Rectangle((x, 0), max(0.01, n / whole * wide), line, facecolor=colour, lw=0)
        box.set_gid(f"type-{name}")
        ax.add_patch(box)
        x += n / whole * wide
        left, y = (k % across) * wide / across, line * (1.7 + k // across)
        ax.add_patch(Rectangle((left, y - 0.06), 0.12, 0.12, facecolor=colour, lw=0))
        ax.text(left + 0.18, y, f"{name} {_size(n)}, {n / whole:.1%}", va="center",
                color=style.text, fontsize=style.base, **PLAIN)  # fmt: skip


def _size(n: int) -> str:
    return f"{n / 2**20:,.1f} MiB" if n >= 2**20 else f"{n / 2**10:,.1f} KiB"


def _stems(ax: Any, b: Block, at: tuple[float, float, float, float], style: Style) -> None:
    """The values of a block over the levels that its codes can stand for."""
    x0, y0, wide, high = at
    left = 4.6 * style.base / 72
    values = np.where(np.isfinite(b.values), b.values, 0)
    ends = [0.0, float(values.max()), float(values.min())]
    codes = b.table or (range(b.levels) if b.levels <= 32 else ())
    if not (np.isfinite(b.scale).all() and np.isfinite(b.offset).all()):
        codes = ()
    if codes:
        ends += [float(v) for c in (codes[0], codes[-1]) for v in b.scale * (c - b.zero) + b.offset]
    low, top = min(ends), max(ends)
    if not top > low:
        top = low + 1
    step = (wide - left) / len(values)

    def place(v: float) -> float:
        return y0 + high * (1 - (v - low) / (top - low))

    i = 0
    while codes and i < len(values):
        j = i + 1
        while j < len(values) and b.scale[j] == b.scale[i] and b.offset[j] == b.offset[i]:
            j += 1
        for c in codes:
            y = place(float(b.scale[i] * (c - b.zero) + b.offset[i]))
            ax.plot([x0 + left + step * i, x0 + left + step * j], [y, y], color=style.line, lw=0.5)
        i = j
    ax.plot([x0 + left, x0 + wide], [place(0)] * 2, color=style.soft, lw=0.8)
    for k, v in enumerate(values):
        x = x0 + left + step * (k + 0.5)
        ax.plot([x, x], [place(0), place(float(v))], color=style.now, lw=1.2)
        ax.plot([x], [place(float(v))], "o", color=style.now, ms=min(4.0, 60 * step))
    ends = [top, low]
    if min(place(0) - place(top), place(low) - place(0)) > 1.5 * style.base / 72:
        ends.append(0.0)
    for v in ends:
        ax.text(x0 + left - 0.06, place(v), number(v), ha="right", va="center", color=style.soft,
                fontsize=style.base, **PLAIN)  # fmt: skip
