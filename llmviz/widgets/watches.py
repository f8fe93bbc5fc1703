"""Watches: expressions whose value at the current event is shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import traitlets as t

from llmviz.errors import LlmvizError
from llmviz.trace import DebuggerError
from llmviz.trace.expressions import Expression, compile_expression, show_value
from llmviz.trace.values import Missing
from llmviz.widgets.breaks import BreaksView
from llmviz.widgets.follow import answers

__all__ = ["Watch", "WatchesView"]

MOST = 40
_MAX = 400


@dataclass(eq=False)
class Watch:
    """One watched expression.

    Attributes
    ----------
    id : int
        Counted from 1; what `WatchesView.unwatch` takes.
    expression : Expression
    """

    id: int
    expression: Expression


class WatchesView(BreaksView):
    """What is this worth now?

    Traits
    ------
    watches : list of {id, text, shown, value, state}
        `state` is "ok", "missing" (not computed yet) or "error"; `value` is the number in full
        precision, None where it is no number.
    """

    view_name = "watches"

    watches: t.List = t.List().tag(sync=True)

    def __init__(self, dbg: Any, **kwargs: Any) -> None:
        self._watched: list[Watch] = []
        self._next_watch = 1
        super().__init__(dbg, **kwargs)

    def draw(self) -> None:
        """Compute the watches where the run stands; one in full flight keeps the last values."""
        super().draw()
        if not self.dbg.running:
            self.watches = [self._drawn_watch(w) for w in self._watched]

    def _drawn_watch(self, watch: Watch) -> dict[str, Any]:
        out: dict[str, Any] = {"id": watch.id, "text": watch.expression.text, "value": None}
        try:
            value = watch.expression.evaluate(self.dbg.values)
        except LlmvizError as error:
            return {**out, "state": "error", "shown": str(error).splitlines()[0][:_MAX]}
        if value is Missing:
            return {**out, "state": "missing", "shown": "not yet"}
        if isinstance(value, (bool, np.bool_)):
            return {**out, "state": "ok", "shown": "true" if value else "false"}
        if isinstance(value, (int, float, np.number)):
            out["value"] = str(value.item() if isinstance(value, np.float64) else value)
        return {**out, "state": "ok", "shown": show_value(value)[:_MAX]}

    def watch(self, text: str) -> Watch:
        """Watch an expression, such as ``norm(l_out-5)``.

        What it reads is kept from now on. Where this pass has computed it already, that part of the
        pass is computed again, silently.

        Raises
        ------
        ExpressionError
            It cannot be read.
        DebuggerError
            There are too many.
        """
        if len(self._watched) >= MOST:
            raise DebuggerError(f"{MOST} watches are enough: remove one first")
        watch = Watch(self._next_watch, compile_expression(text.strip()))
        self._next_watch += 1
        self._watched.append(watch)
        if watch.expression.names:
            self.dbg.recorder.ask(watch, watch.expression.keeps)
            self._fetch(watch.expression)
        self.refresh()
        return watch

    def unwatch(self, which: Watch | int) -> None:
        """Stop watching."""
        number = which.id if isinstance(which, Watch) else which
        for watch in self._watched:
            if watch.id == number:
                self._watched.remove(watch)
                self.dbg.recorder.release(watch)
        self.refresh()

    def _fetch(self, expression: Expression) -> None:
        """Look for values that were there before anybody asked for them."""
        dbg = self.dbg
        if dbg.here is None or dbg.running or not dbg.can_restart:
            return
        for name in sorted(expression.names):
            if "*" in name or "?" in name or dbg.recorder.value(name) is not None:
                continue
            if name not in dbg.known.names and name not in dbg.known.nodes:
                continue
            try:
                dbg.peek(name)
            except DebuggerError:
                return  # it has not been computed yet: the watch says so

    @answers("watch")
    def _watch(self, message: dict[str, Any]) -> None:
        self.refuse_busy()
        self.watch(str(message.get("text", ""))[: _MAX * 4])

    @answers("unwatch")
    def _unwatch(self, message: dict[str, Any]) -> None:
        self.unwatch(int(message["which"]))

    def close(self) -> None:
        """Stop following, and ask the recorder for nothing any more."""
        if not self.closed:
            for watch in self._watched:
                self.dbg.recorder.release(watch)
            self._watched.clear()
        super().close()
