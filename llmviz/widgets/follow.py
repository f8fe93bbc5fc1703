"""Views that follow a debugger: subscribing, drawing, and answering the page.

A view is drawn from the debugger's current event and its recorder only. The page asks for what it
needs with small messages; each is answered by one bounded piece of work.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable
from typing import Any

import traitlets as t

from llmviz.errors import LlmvizError
from llmviz.trace import Debugger, fallback
from llmviz.widgets.base import View

__all__ = ["DebuggerView", "answers", "weakly"]


# What a page asks by itself: it takes no message away that a person may still be reading.
_SILENT = ("tick", "complete", "alternatives", "values", "weight", "flow_value")


def answers(question: str) -> Callable[[Callable], Callable]:
    """Mark a method as what answers one kind of message from the page."""

    def mark(method: Callable) -> Callable:
        method.answers = question  # type: ignore[attr-defined]
        return method

    return mark


class DebuggerView(View):
    """Base of the views that follow a `Debugger`.

    Subclasses extend `draw`, which sets traits, and mark methods with `answers`. They can be
    combined by inheritance: that is how the panel docks them.

    Parameters
    ----------
    dbg : Debugger
    **kwargs
        Traits of the view.
    """

    # Ends the subscription, once there is one.
    _end: Callable[[], None] = staticmethod(lambda: None)

    engine = t.Unicode("", help="What computed the run, where it was not llmviz.").tag(sync=True)
    here = t.Int(-1, help="Number of the event that is shown, -1 before the first.").tag(sync=True)
    running = t.Bool(False).tag(sync=True)
    answered = t.Dict(help="The reply to the page's question that asked for it here.").tag(
        sync=True
    )
    error = t.Dict(help="title, text and hint of what went wrong; empty when nothing did.").tag(
        sync=True
    )

    def __init__(self, dbg: Debugger, **kwargs: Any) -> None:
        self.dbg = dbg
        super().__init__(**kwargs)
        engine = getattr(dbg, "engine", "llmviz")
        self.engine = "" if engine == "llmviz" else engine
        self._answers = {
            member.answers: name
            for kind in reversed(type(self).__mro__)
            for name, member in vars(kind).items()
            if hasattr(member, "answers")
        }
        self.on_msg(self._on_message)
        self._end = dbg.on_change(weakly(self))
        self.refresh()

    def refresh(self) -> None:
        """Bring all traits in line with the debugger; the page draws once."""
        if self.closed:
            return
        with self.hold_sync():
            self.here = self.dbg.n
            self.running = self.dbg.running
            self._draw_error()
            self.draw()
            self.rev += 1

    def draw(self) -> None:
        """Set the view's traits from the debugger. Subclasses call ``super().draw()`` first."""

    def shows(self, view: str) -> bool:
        """Whether a view that is part of this one can be seen, so that it is worth drawing."""
        return True

    def _draw_error(self) -> None:
        error = self.dbg.error
        if error is not None:
            self.error = explain(error, self.dbg)
        elif self.error.get("source") != "view":
            self.error = {}

    def show_error(self, error: Exception) -> None:
        """Show what went wrong in the view itself, where it can be read."""
        self.error = {**explain(error, self.dbg), "source": "view"}
        self.rev += 1

    def _on_message(self, _: Any, message: Any, buffers: Any) -> None:
        ask = str(message.get("ask")) if isinstance(message, dict) else ""
        name = self._answers.get(ask)
        if name is None:
            return
        if message.get("in_state"):
            # One message with what changed instead of two: the page draws once, and sooner.
            with self.hold_sync():
                self.answered = self._answer(ask, name, message)
        else:
            self.send(self._answer(ask, name, message))

    def _answer(self, ask: str, name: str, message: dict[str, Any]) -> dict[str, Any]:
        reply: dict[str, Any] = {"reply": message.get("id")}
        try:
            if self.error.get("source") == "view" and ask not in _SILENT:
                self.error = {}
            reply["value"] = getattr(self, name)(message)
        except Exception as error:
            # A click's error has no cell to appear in: it belongs on the view, whatever it is.
            self.show_error(error)
            reply["error"] = str(error)
        reply["running"] = self.dbg.running
        return reply

    def figure(self, view: str = "", **options: Any) -> Any:
        """The view as a matplotlib figure, with its settings as they are now.

        Parameters
        ----------
        view : str
            Another view; the panel's is the one that it shows.
        **options
            Of the function of the view's name in `llmviz.plots`, such as ``theme="dark"``,
            ``size="column"`` or ``for_print=True``.

        Raises
        ------
        LlmvizError
            Where a part of the panel has no figure, or there is nothing to draw yet.
        """
        from llmviz import plots  # matplotlib is loaded when a figure is asked for

        name = view or str(getattr(self, "view", self.view_name))
        there = sorted(set(plots.__all__) - {"NothingToDraw"})
        if name not in there:
            raise LlmvizError(f"there is no figure of {name!r}; there are: {', '.join(there)}")
        draw = getattr(plots, name)
        own = [n for n in inspect.signature(draw).parameters if self.has_trait(n)]
        settings = {n: getattr(self, n) for n in own}
        settings["size"] = "slide" if self.projector else "page"
        return draw(self.dbg, **{**settings, **options})

    def close(self) -> None:
        """Stop following and let go of the page's side."""
        if not self.closed:
            self._end()
        super().close()

    def fallback_text(self) -> str:
        """What the view shows, in plain lines."""
        return fallback.text(type(self).__name__, self.dbg)

    def fallback_html(self) -> str:
        """What the view shows, as a static table."""
        return fallback.html(type(self).__name__, self.dbg)


def weakly(view: Any) -> Callable[[], None]:
    """A listener that does not keep its view alive."""
    ref = weakref.ref(view)

    def listen() -> None:
        alive = ref()
        if alive is not None:
            alive.refresh()

    return listen


def explain(error: Exception, dbg: Debugger) -> dict[str, str]:
    """An error as the page shows it: what happened, the engine's words, what to do."""
    if error is dbg.error and dbg.finished:
        title = "The run stopped with an error"
        hint = "What it computed is still here. Mend the cause, then press Restart."
    else:
        title = "That did not work"
        hint = "Nothing was lost; the run stands where it was."
    text = str(error) or type(error).__name__
    if not isinstance(error, LlmvizError):
        text = f"{type(error).__name__}: {text}"
    return {"title": title, "text": text[:2000], "hint": hint}
