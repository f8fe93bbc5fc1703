"""Breakpoints as verbs: where and when a run is to stop."""

from __future__ import annotations

from typing import Any

from llmviz.trace.breakpoints import Breakpoint, Condition, Where, looks_like_condition
from llmviz.trace.revising import Revising
from llmviz.trace.timeline import DebuggerError

__all__ = ["Breaking"]


class Breaking(Revising):
    """Making and removing breakpoints; see `llmviz.trace.breakpoints` for what one is."""

    def break_on(
        self,
        where: Where | None = None,
        *,
        condition: str | Condition | Any = None,
        token: int | str | None = None,
        layer: int | None = None,
        scope: str | None = None,
        ignore: int = 0,
        once: bool = False,
    ) -> Breakpoint:
        """Stop a run at a place, under a condition, or both; what is given must all hold.

        Parameters
        ----------
        where : str, int or callable
            Name or glob of an event (``"kq_soft_max-*"``); a step 1..16, where it begins; or
            ``predicate(event) -> bool``. A text that can only be a condition is taken as one.
        condition : str, Expression or callable
            ``"entropy > 3"``; see `llmviz.trace.expressions`.
        token : int or str
            Where this token was chosen: an id, or a text with or without its leading space.
        layer : int
            Where this layer begins; with `where` or `condition`, only inside it.
        scope : str
            Where a scope of this name or glob begins.
        ignore : int
            So many hits pass before the first stop.
        once : bool
            Stop once, then be disabled.

        Returns
        -------
        Breakpoint
            Its `why_never` says what is known to be in its way.

        Raises
        ------
        DebuggerError
            For a step outside 1..16, an empty name, or anything else.
        ExpressionError
            A condition cannot be read.
        """
        if isinstance(where, str) and condition is None and looks_like_condition(where):
            where, condition = None, where
        _check_place(where, token, layer, scope, condition, ignore)
        if isinstance(condition, str):
            from llmviz.trace.expressions import compile_expression

            condition = compile_expression(condition)
        if condition is not None and not (hasattr(condition, "holds") or callable(condition)):
            raise DebuggerError(f"a condition is an expression or a callable, not {condition!r}")
        point = Breakpoint(
            self._next_id,
            where.strip() if isinstance(where, str) else where,
            condition=condition,
            token=token,
            layer=layer,
            scope=scope,
            ignore=ignore,
            once=once,
        )
        self._next_id += 1
        if point.expression is not None:
            self.recorder.ask(point, point.expression.keeps)
        point.check(self._known)
        self.breakpoints.append(point)
        self._tell()
        return point

    def clear_break(self, which: Breakpoint | int | None = None) -> None:
        """Remove one breakpoint, by itself or its id; all of them without an argument."""
        number = which.id if isinstance(which, Breakpoint) else which
        gone = [b for b in self.breakpoints if number is None or b.id == number]
        if number is not None and not gone:
            have = ", ".join(str(b.id) for b in self.breakpoints) or "none"
            raise DebuggerError(f"there is no breakpoint {number}; there are: {have}")
        for point in gone:
            self.breakpoints.remove(point)
            self.recorder.release(point)
        self._tell()


def _check_place(
    where: Any, token: Any, layer: Any, scope: Any, condition: Any, ignore: Any
) -> None:
    """Refuse places that make no sense.

    Raises
    ------
    DebuggerError
    """
    if where is None and token is None and layer is None and scope is None and condition is None:
        raise DebuggerError(
            "break_on takes a name or glob, a step 1..16, a callable or a condition"
        )
    if where is not None and (
        isinstance(where, bool) or not (isinstance(where, (str, int)) or callable(where))
    ):
        raise DebuggerError(
            f"break_on takes a name or glob, a step 1..16 or a callable, not {where!r}"
        )
    if isinstance(where, int) and not 1 <= where <= 16:
        raise DebuggerError(f"there is no step {where}: steps are 1..16")
    for name in (where, scope):
        if isinstance(name, str) and not name.strip():
            raise DebuggerError("a breakpoint needs a name, such as 'kq_soft_max-*'")
    if layer is not None and (isinstance(layer, bool) or not isinstance(layer, int) or layer < 0):
        raise DebuggerError(f"a layer is a number from 0 up, not {layer!r}")
    if token is not None and (
        isinstance(token, bool) or not isinstance(token, (int, str)) or token == ""
    ):
        raise DebuggerError(f"a token is an id or a text, not {token!r}")
    if isinstance(ignore, bool) or not isinstance(ignore, int) or ignore < 0:
        raise DebuggerError(f"ignore is how many hits pass, a number from 0 up, not {ignore!r}")
