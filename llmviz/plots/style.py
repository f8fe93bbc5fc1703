"""How all figures look: sizes for a slide or a column, fonts, colours of three themes.

Knows nothing of what is drawn. Made with `matplotlib.figure.Figure` alone: no pyplot, so nothing is
kept alive behind the scenes and the caller's rcParams neither change a figure nor are changed.

A little over 400 lines: one table of sizes and colours for all figures.
"""

from __future__ import annotations

import contextlib
import re
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal

import matplotlib
from matplotlib.colors import Colormap, LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Rectangle

from llmviz.errors import LlmvizError
from llmviz.plots.text import MONO, SANS

__all__ = [
    "PLAIN",
    "Canvas",
    "PlotFigure",
    "Style",
    "luminance",
    "make_style",
    "mix",
    "mono",
    "own_settings",
    "quiet_axes",
    "saying",
]

Theme = Literal["auto", "light", "dark"]
Size = Literal["slide", "page", "column"] | tuple[float, float]

PLAIN: dict[str, Any] = {"parse_math": False, "usetex": False}
"""Of every text: ``$`` is a dollar, whatever the caller's rcParams say."""

# Width and height in inches, and points of the body text. "page" is both columns of a paper.
_SIZES: dict[str, tuple[float, float | None, float]] = {
    "slide": (10.0, 5.625, 14.0),
    "page": (7.2, None, 9.5),
    "column": (3.5, None, 9.0),
}
_LEAST = 9.0  # points
_LEAST_ROOM = 0.6  # inches, for what is drawn
_MARGIN, _GAP = 0.14, 0.08  # inches
_LEADING = 1.4
_WIDEST = 60.0  # inches: a typing slip must not ask for a picture of gigabytes

_SIGNED_LIGHT = ["08306b", "2166ac", "6baed6", "c6dbef", "f7f7f7", "fdd0a2", "fd8d3c", "d94801"]
_SIGNED_LIGHT.append("7f2704")
_SIGNED_DARK = ["9ecae1", "6baed6", "4292c6", "2a5a8a", "26282b", "8a4b1c", "d9711f", "fd8d3c"]
_SIGNED_DARK.append("fdbe85")


@dataclass(frozen=True)
class Style:
    """Everything a view needs to know of the look.

    Attributes
    ----------
    width, height : float, float or None
        Inches; None lets the view choose a height that fits what it shows.
    base, title : float
        Points.
    background, text, soft, line, raised : str
        Colours of the page, its text, quieter text, thin lines, and areas that hold nothing.
    now, final, danger : str
        One accent for "now" and raw values, one for what the sampler chain left, one for errors.
    sequences : tuple of str
        Of KV cells, by sequence; told apart with the common colour blindnesses.
    magnitude, signed : Colormap
        One-sided values, and values on both sides of a neutral zero.
    nan, plus_inf, minus_inf : str
        Of what is no finite number.
    for_print : bool
        White paper: hatching beside colour.
    """

    width: float
    height: float | None
    base: float
    title: float
    background: str
    text: str
    soft: str
    line: str
    raised: str
    now: str
    final: str
    danger: str
    sequences: tuple[str, ...]
    magnitude: Colormap
    signed: Colormap
    nan: str
    plus_inf: str
    minus_inf: str
    dark: bool
    for_print: bool

    @property
    def narrow(self) -> bool:
        """One column of a paper: room for little text."""
        return self.width < 5

    def room(self, about: int, notes: int) -> float:
        """Inches left for contents under a title, with so many lines about them and notes."""
        if self.height is None:
            return float("inf")
        lines = (self.title + (about + notes) * self.base) * _LEADING / 72
        return max(0.4, self.height - lines - 2 * (_MARGIN + _GAP))

    def characters(self, inches: float, points: float | None = None) -> int:
        """How many average characters of the sans font fit into a width."""
        return max(8, int(inches * 72 / ((points or self.base) * 0.53)))

    def shade(self, p: float) -> str:
        """The accent, the stronger the likelier: by the square root, as small p matter too."""
        strongest = 0.85 if self.dark else 0.8
        return mix(self.now, self.background, strongest * min(max(p, 0.0), 1.0) ** 0.5)

    def on(self, colour: Any) -> str:
        """Text colour that can be read on a colour."""
        return "#000000" if luminance(colour) > 0.179 else "#ffffff"  # the stronger contrast


def luminance(colour: Any) -> float:
    """Relative luminance as WCAG 2 defines it, 0 for black and 1 for white."""
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour))
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def mix(colour: Any, under: Any, share: float) -> str:
    """`share` of a colour over another one."""
    a, b = to_rgb(colour), to_rgb(under)
    return "#" + "".join(f"{round(255 * (x * share + y * (1 - share))):02x}" for x, y in zip(a, b))


def make_style(theme: Theme = "light", size: Size = "page", for_print: bool = False) -> Style:
    """The look that was asked for.

    Parameters
    ----------
    theme : {"light", "dark", "auto"}
        A file has nobody to follow: ``auto`` is light.
    size : {"slide", "page", "column"}, or (width, height) in inches
        A 16:9 slide, the width of a paper's page, or of one of its columns.
    for_print : bool
        Always light; magnitudes in a map that survives a grey copy; hatching beside colour.

    Raises
    ------
    LlmvizError
        For another theme or size.
    """
    if theme not in ("auto", "light", "dark"):
        raise LlmvizError(f"theme is 'light' or 'dark', not {theme!r}")
    width, height, base = _measures(size)
    dark = theme == "dark" and not for_print
    background, text = ("#16181b", "#e8eaed") if dark else ("#ffffff", "#1f2328")
    stops = _SIGNED_DARK if dark else _SIGNED_LIGHT
    signed = LinearSegmentedColormap.from_list("llmviz_signed", ["#" + s for s in stops], N=253)
    return Style(
        width=width,
        height=height,
        base=base,
        title=base * 1.25,
        background=background,
        text=text,
        soft=mix(text, background, 0.7),
        line=mix(text, background, 0.2),
        raised=mix(text, background, 0.06),
        now="#6db3f8" if dark else "#1668c1",
        final="#ffab66" if dark else "#a34a00",
        danger="#ff8a80" if dark else "#b3261e",
        sequences=_SEQUENCES_DARK if dark else _SEQUENCES_LIGHT,
        magnitude=matplotlib.colormaps["cividis" if for_print else "viridis"],
        signed=signed,
        nan="#e600c8",
        plus_inf="#ffd700",
        minus_inf="#42454a" if dark else "#c0c4c9",
        dark=dark,
        for_print=for_print,
    )


_SEQUENCES_LIGHT = ("#2a7fb8", "#d55e00", "#009e73", "#b8579a", "#8a6d00", "#5a5fc7")
_SEQUENCES_DARK = ("#56b4e9", "#e8833a", "#2fbf95", "#d98fc0", "#d6b83c", "#9a9ef0")


def _measures(size: Size) -> tuple[float, float | None, float]:
    if isinstance(size, str):
        if size not in _SIZES:
            raise LlmvizError(f"size is {', '.join(_SIZES)} or (width, height), not {size!r}")
        return _SIZES[size]
    try:
        width, height = (float(x) for x in size)
    except (TypeError, ValueError):
        raise LlmvizError(f"size is {', '.join(_SIZES)} or (width, height), not {size!r}") from None
    if not (3 <= width <= _WIDEST and 2 <= height <= _WIDEST):
        raise LlmvizError(f"a figure is 3 x 2 to {_WIDEST:.0f} inches large, not {size}")
    return width, height, max(_LEAST, min(16.0, 9.5 * (width / 7.2) ** 0.5))


# -- the figure ----------------------------------------------------------------------------------


@contextlib.contextmanager
def own_settings() -> Iterator[None]:
    """matplotlib's own defaults and ours, whatever the caller has set; then the caller's again."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(
            {
                "font.family": SANS,
                "axes.unicode_minus": True,
                "pdf.fonttype": 42,  # real fonts in a PDF: text can be searched and edited
                "ps.fonttype": 42,
                "svg.hashsalt": "llmviz",  # the same figure gives the same file
                "hatch.linewidth": 0.6,
            }
        )
        yield


_said: ContextVar[tuple[str, ...]] = ContextVar("said", default=())


@contextlib.contextmanager
def saying(*lines: str) -> Iterator[None]:
    """Put lines under the title of every figure that is drawn inside."""
    token = _said.set(lines)
    try:
        yield
    finally:
        _said.reset(token)


class PlotFigure(Figure):
    """A matplotlib figure that shows itself in a notebook and saves the same way everywhere."""

    def savefig(self, fname: Any, **options: Any) -> None:
        """As `matplotlib.figure.Figure.savefig`; 200 dots per inch unless told otherwise."""
        with own_settings(), warnings.catch_warnings():
            # A figure too small for its labels is drawn as it is: the caller chose the size.
            warnings.filterwarnings("ignore", "constrained_layout not applied")
            super().savefig(fname, **{"dpi": 200, **options})

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        import io

        out = io.BytesIO()
        self.savefig(out, format="png", dpi=192)
        width, height = self.get_size_inches() * 96
        return out.getvalue(), {"width": round(width), "height": round(height)}


class Canvas:
    """A figure with a title, lines under it, notes at its foot, and room for axes between them.

    Parameters
    ----------
    style : Style
    height : float
        Inches that the view's contents ask for; a size of fixed height gives what is left.
    title : str
    about : list of str
        Under the title: name, shape, dtype, units, what is left out. Empty ones are left out.
    notes : list of str
        At the foot.
    swatches : list of (colour, text)
        Under the notes: what single colours mean.

    Attributes
    ----------
    figure : PlotFigure
    width, height : float
        Of the room for axes, in inches.
    """

    def __init__(
        self,
        style: Style,
        height: float,
        title: str,
        about: Sequence[str] = (),
        notes: Sequence[str] = (),
        swatches: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.style = style
        about = [*_said.get(), *about]
        head = [(line, style.title, "bold") for line in _wrap(style, title, style.title * 1.12)]
        for text in about:
            head += [(line, style.base, "normal") for line in _wrap(style, text, style.base)]
        foot = [line for note in notes for line in _wrap(style, note, style.base)]
        foot += [""] if swatches else []
        above = sum(points * _LEADING for _, points, _ in head) / 72 + _MARGIN + _GAP
        below = len(foot) * style.base * _LEADING / 72 + _MARGIN + (_GAP if foot else 0)
        whole = style.height if style.height is not None else height + above + below
        if style.height is not None and whole - above - below < _LEAST_ROOM:
            least = above + below + 2 * _LEAST_ROOM
            raise LlmvizError(
                f"a figure of {style.width:g} x {whole:g} inches leaves no room between title and "
                f"notes: make it wider, or at least {least:.1f} inches high"
            )
        self.width, self.height = style.width - 2 * _MARGIN, whole - above - below
        self._whole, self._below = whole, below
        self.figure = PlotFigure(
            figsize=(style.width, whole), dpi=144, facecolor=style.background, edgecolor="none"
        )
        y = whole - _MARGIN
        for line, points, weight in head:
            y -= points * _LEADING / 72
            self._line(line, y + 0.28 * points / 72, points, weight)
        y = below - (_GAP if foot else 0)
        for line in foot:
            y -= style.base * _LEADING / 72
            self._line(line, y + 0.2 * style.base / 72, style.base, "normal")

        x = _MARGIN
        for colour, text in swatches:
            side = 0.8 * style.base / 72
            place = x / style.width, (y + 0.3 * style.base / 72) / whole
            self.figure.add_artist(
                Rectangle(
                    place, side / style.width, side / whole, facecolor=colour, lw=0,
                    transform=self.figure.transFigure, figure=self.figure,
                )
            )  # fmt: skip
            x += 1.4 * side
            self._line(text, y + 0.28 * style.base / 72, style.base, "normal", x)
            x += (len(text) * 0.58 + 1.6) * style.base / 72

    def _line(self, text: str, y: float, points: float, weight: str, x: float = _MARGIN) -> None:
        style = self.style
        self.figure.text(
            x / style.width,
            y / self._whole,
            text,
            fontsize=points,
            fontweight=weight,
            color=style.text if weight == "bold" else style.soft,
            **PLAIN,
        )

    def grid(self, rows: int, columns: int, **options: Any) -> Any:
        """A GridSpec in the room for axes, laid out so that labels do not touch."""
        style, pad = self.style, 0.06
        self.figure.set_layout_engine(
            ConstrainedLayoutEngine(
                rect=(
                    (_MARGIN - pad) / style.width,
                    self._below / self._whole,
                    (self.width + 2 * pad) / style.width,
                    self.height / self._whole,
                ),
                w_pad=pad,
                h_pad=pad,
            )
        )
        return self.figure.add_gridspec(rows, columns, **options)

    def sheet(self) -> Any:
        """Empty axes over the whole room, in inches from its upper left corner downwards."""
        ax = self.figure.add_axes(
            (
                _MARGIN / self.style.width,
                self._below / self._whole,
                self.width / self.style.width,
                self.height / self._whole,
            )
        )
        ax.set(xlim=(0, self.width), ylim=(self.height, 0))
        ax.axis("off")
        return ax


def _wrap(style: Style, text: str, points: float) -> list[str]:
    if not text:
        return []
    room = style.characters(style.width - 2 * _MARGIN, points)
    # A line may end with a dot, and never begins with one; a number stays with what it counts.
    text = re.sub(r"(?<=\d) (?=[a-zA-Z])", "\u00a0", text.replace(" · ", "\u00a0· "))
    return textwrap.wrap(text, room, break_on_hyphens=False, max_lines=4, placeholder=" …")


def quiet_axes(ax: Any, style: Style, *, frame: bool = False) -> None:
    """Thin lines and soft numbers: the data speaks first."""
    ax.set_facecolor("none")
    for side in ax.spines.values():
        side.set_visible(frame)
        side.set_color(style.line)
        side.set_linewidth(0.8)
    ax.tick_params(colors=style.soft, labelsize=style.base, length=3, width=0.8, pad=3)
    for label in (ax.xaxis.label, ax.yaxis.label):
        label.set(color=style.soft, fontsize=style.base, **PLAIN)


def mono(points: float, **more: Any) -> dict[str, Any]:
    """Settings of a text in the fixed-width font, for pieces of tokens."""
    return {"fontfamily": MONO, "fontsize": points, **PLAIN, **more}
