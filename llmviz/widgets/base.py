"""What every view has: strict arguments, theme and projector switches, closing, fallbacks.

Does not know of the debugger (`follow.py`) nor of any one view.
"""

from __future__ import annotations

import os
from typing import Any

import anywidget
import traitlets as t

from llmviz.widgets import cells
from llmviz.widgets.modules import esm, style

__all__ = ["View"]


class View(anywidget.AnyWidget):
    """Base of all views.

    Parameters
    ----------
    theme : {"auto", "light", "dark"}
        ``auto`` follows JupyterLab, Colab, VS Code or the system, live.
    projector : bool
        Everything at 1.5 times the size, for the back row.

    Raises
    ------
    TypeError
        For an argument that no trait of the view has: a misspelled name is never ignored.
    """

    view_name = ""
    closed = False
    docked = False  # a part of a panel, which says when to draw

    _esm = t.Unicode("").tag(sync=True)
    _css = t.Unicode("").tag(sync=True)

    theme = t.Enum(("auto", "light", "dark"), default_value="auto").tag(sync=True)
    projector = t.Bool(False).tag(sync=True)
    rev = t.Int(0, help="Grows when the view's state is complete and may be drawn.").tag(sync=True)

    def __init__(self, **kwargs: Any) -> None:
        unknown = sorted(set(kwargs) - set(self._public_traits()))
        if unknown:
            raise TypeError(
                f"{type(self).__name__} has no {', '.join(unknown)}; "
                f"it takes {', '.join(self._public_traits())}"
            )
        super().__init__(_esm=esm(self.view_name), _css=style(), **kwargs)

    def _public_traits(self) -> list[str]:
        inherited = anywidget.AnyWidget.class_trait_names()
        return [n for n in sorted(self.trait_names()) if n not in inherited and n[0] != "_"]

    def close(self) -> None:
        """Let go of the page's side and of everything that the view follows."""
        if not self.closed:
            self.closed = True
            layout = self.layout  # ours alone: every widget makes one and leaves it behind
            super().close()
            layout.close()

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write the view as one page that opens from disk, without a kernel.

        It shows what the view shows now. Of a panel, the run that it shows can be walked, see
        `llmviz.Debugger.to_html`.

        Raises
        ------
        OSError
            The file cannot be written.
        """
        from llmviz.widgets.export import view_to_html  # it knows the panel, which is a view

        view_to_html(self, path)

    def __enter__(self) -> View:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def fallback_text(self) -> str:
        """A few plain lines that say what the view shows; the same for the same state."""
        return f"{type(self).__name__}"

    def fallback_html(self) -> str:
        """A static table for places that run no scripts; the same for the same state."""
        return ""

    def __repr__(self) -> str:
        return self.fallback_text()

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle is None:
            return None
        cells.displayed(self)
        data, *rest = bundle if isinstance(bundle, tuple) else (bundle,)
        data = {**data, "text/plain": self.fallback_text()}
        page = self.fallback_html()
        if page:
            data["text/html"] = page
        return (data, *rest) if rest else data
