"""The look of figures: sizes, fonts, contrast, colours; no pyplot, nothing left behind."""

from __future__ import annotations

import subprocess
import sys
import weakref
from itertools import combinations

import numpy as np
import pytest

pytest.importorskip("matplotlib")

import matplotlib
from matplotlib.figure import Figure
from matplotlib.text import Text

from llmviz import plots
from llmviz.errors import LlmvizError
from llmviz.plots.style import luminance, make_style

from . import runs

LOOKS = [("light", False), ("dark", False), ("light", True)]


@pytest.mark.parametrize(("theme", "for_print"), LOOKS)
@pytest.mark.parametrize("size", ["slide", "page", "column"])
def test_text_is_large_enough_and_can_be_read(theme: str, for_print: bool, size: str) -> None:
    style = make_style(theme, size, for_print)
    assert style.base >= 9 and (size != "slide" or style.base >= 14)
    paper = luminance(style.background)
    for colour in (style.text, style.soft, style.now, style.final, style.danger):
        light, dark = sorted((luminance(colour), paper), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, colour
    for p in np.linspace(0, 1, 21):
        fill = style.shade(float(p))
        light, dark = sorted((luminance(style.on(fill)), luminance(fill)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, p


def test_the_signed_map_is_neutral_at_zero_and_the_magnitudes_grow_lighter() -> None:
    for theme, for_print in LOOKS:
        style = make_style(theme, "page", for_print)
        r, g, b, _ = style.signed(0.5)
        assert max(r, g, b) - min(r, g, b) < 0.03
        light = [luminance(style.magnitude(x)[:3]) for x in np.linspace(0, 1, 50)]
        assert np.all(np.diff(light) > 0)
        odd = {style.nan, style.plus_inf, style.minus_inf}
        assert len(odd) == 3
        for colour in odd:
            rgb = matplotlib.colors.to_rgb(colour)
            for table in (style.magnitude, style.signed):
                every = table(np.linspace(0, 1, 253))[:, :3]
                assert np.abs(every - rgb).sum(axis=1).min() > 0.04, colour


def test_sequences_differ_for_the_colour_blind() -> None:
    # Viénot, Brettel and Mollon (1999), for red and green blindness, on linear RGB.
    protan = np.array([[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]])
    deutan = np.array([[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]])
    for theme in ("light", "dark"):
        colours = np.array([matplotlib.colors.to_rgb(c) for c in make_style(theme).sequences[:4]])
        for seen in (colours @ protan.T, colours @ deutan.T):
            for a, b in combinations(seen, 2):
                assert np.abs(a - b).sum() > 0.12


def test_another_theme_or_size_is_refused() -> None:
    for bad in (
        {"theme": "blue"},
        {"size": "poster"},
        {"size": (1, 1)},
        {"size": (float("nan"), 3)},
    ):
        with pytest.raises(LlmvizError, match=r"theme is|size is|inches"):
            plots.tensor(runs.at(np.zeros(3)), **bad)
    with pytest.raises(LlmvizError, match="inches high"):
        plots.tensor(runs.at(np.full((2, 3, 4), np.nan), "kq_soft_max-0"), size=(3, 2))


def test_the_callers_settings_neither_change_a_figure_nor_are_changed(tmp_path) -> None:
    x = np.random.default_rng(0).normal(size=(6, 40))
    plots.tensor(runs.at(x)).savefig(tmp_path / "a.png")
    mine = {
        "font.size": 30,
        "axes.facecolor": "red",
        "text.parse_math": True,
        "image.cmap": "hot",
        "savefig.bbox": "tight",
        "figure.constrained_layout.use": True,
    }
    with matplotlib.rc_context(mine):
        plots.tensor(runs.at(x)).savefig(tmp_path / "b.png")
        assert all(matplotlib.rcParams[name] == value for name, value in mine.items())
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_no_pyplot_and_a_figure_shows_itself() -> None:
    program = """
import sys
import numpy as np
from llmviz import plots
from llmviz.events import Event
from llmviz.trace import Debugger
dbg = Debugger(iter([Event("node", "x", 0, 13, np.eye(4))]))
dbg.step_into()
figure = plots.tensor(dbg)
data, about = figure._repr_png_()
assert data.startswith(b"\\x89PNG") and about["width"] == 691, about
unwanted = {"matplotlib.pyplot", "anywidget", "ipywidgets"} & set(sys.modules)
print(unwanted or "fine")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "fine\n", done.stderr


def test_figures_are_let_go() -> None:
    import gc

    dbg = runs.at(np.eye(4))
    figures = [weakref.ref(plots.tensor(dbg)) for _ in range(5)]
    gc.collect()
    assert [f() for f in figures] == [None] * 5
    assert isinstance(plots.tensor(dbg), Figure)


def test_no_text_is_read_as_mathematics(tmp_path) -> None:
    figure = plots.tensor(runs.at(np.eye(4), name="$\\frac{1}{$"))
    figure.savefig(tmp_path / "x.svg")
    shown = [t for t in figure.findobj(Text) if t.get_text()]
    assert any("$\\frac{1}{$" in t.get_text() for t in shown)
    assert not any(t.get_parse_math() for t in shown if "$" in t.get_text())
    assert min(t.get_fontsize() for t in shown) >= 9
