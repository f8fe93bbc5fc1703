"""What the functions of all views have in common."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec

from matplotlib.figure import Figure

from llmviz.errors import LlmvizError
from llmviz.plots.style import Style, make_style, own_settings, saying

__all__ = ["NothingToDraw", "begin", "drawn", "recorder_of"]

P = ParamSpec("P")


class NothingToDraw(LlmvizError):
    """The run has not come to what was asked for, or did not keep it."""


def drawn(function: Callable[P, Figure]) -> Callable[P, Figure]:
    """Draw with matplotlib's defaults and ours, whatever style the caller works with."""

    @functools.wraps(function)
    def draw(*args: P.args, **kwargs: P.kwargs) -> Figure:
        source = args[0] if args else next(iter(kwargs.values()), None)
        engine = getattr(source, "engine", None)
        foreign = isinstance(engine, str) and engine != "llmviz"
        with own_settings(), saying(*([f"recorded from {engine}"] if foreign else [])):
            return function(*args, **kwargs)

    return draw


def recorder_of(source: Any) -> Any:
    """The recorder of a debugger; a recorder is its own."""
    return getattr(source, "recorder", source)


def begin(source: Any, theme: Any, size: Any, for_print: bool) -> tuple[Style, Any]:
    """What every figure of a run begins with: how it looks, and the recorder it is drawn from."""
    return make_style(theme, size, for_print), recorder_of(source)
