"""What can be changed here, and what has been changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import traitlets as t

from llmviz.trace import DebuggerError, Intervention
from llmviz.trace.edits import Switch, fixed_memory
from llmviz.widgets.drive import DrivingView
from llmviz.widgets.follow import answers

__all__ = ["EditsView"]

_TEXT = 120


class EditsView(DrivingView):
    """What may I change, and what did I change?

    Traits
    ------
    edits : list of {id, n, name, text, standing, on, note}
        The edits of this branch; `standing` ones act at every node that fits and can be switched.
    editable : dict
        name, kind ("node", "logits", "input" or ""), shape, why (what is in the way of a change).
    chain : list of {index, name, params}
        Samplers with ``{name, value, low, high, step}`` for each parameter.
    """

    view_name = "edits"

    edits: t.List = t.List().tag(sync=True)
    editable = t.Dict().tag(sync=True)
    chain: t.List = t.List().tag(sync=True)

    def draw(self) -> None:
        """List the edits and what the current event allows."""
        super().draw()
        dbg = self.dbg
        self.edits = [
            {
                "id": e.id,
                "n": e.n,
                "name": e.name,
                "text": e.description[:_TEXT],
                "standing": isinstance(e, Intervention),
                "on": not isinstance(e, Intervention) or e.active(max(dbg.n, e.n)),
                "note": (e.note or getattr(e, "warning", ""))[:300],
            }
            for e in dbg.edits
            if not isinstance(e, Switch)
        ]
        self.editable = editable(dbg)
        run = dbg.generation
        self.chain = [
            {
                "index": i,
                "name": s.name,
                "params": [
                    {"name": k, "value": v, **_range(k, v)}
                    for k, v in s.params.items()
                    if isinstance(v, (int, float)) and not isinstance(v, bool)
                ],
            }
            for i, s in enumerate(run.chain if run is not None else ())
        ]

    # -- the changes, as methods -----------------------------------------------------------------

    def edit_value(self, index: tuple[int, ...], value: float) -> None:
        """Give one number of the current tensor another value.

        Raises
        ------
        DebuggerError
            The index is outside, or there is no tensor here.
        """
        here = self.dbg.here
        if here is None or not isinstance(here.value, np.ndarray):
            raise DebuggerError("there is no tensor here: step to a node first")
        new = np.array(here.value)
        if len(index) != new.ndim or any(
            not 0 <= i < n for i, n in zip(index, new.shape, strict=True)
        ):
            raise DebuggerError(
                f"{here.name} has shape {list(new.shape)}: it has no element {list(index)}"
            )
        new[index] = value
        edit = self.dbg.edit(new)
        edit.description = f"{here.name}[{', '.join(map(str, index))}] = {value:g}"
        self.refresh()

    def ablate_heads(self, layer: int, heads: Any) -> None:
        """As `Debugger.ablate_heads`."""
        self.dbg.ablate_heads(layer, heads)

    def undo_edit(self, which: int) -> None:
        """As `Debugger.undo_edit`."""
        self.dbg.undo_edit(which)

    # -- the page's questions ----------------------------------------------------------------------

    @answers("edit-value")
    def _edit_value(self, message: dict[str, Any]) -> None:
        self.refuse_busy()
        here = self.dbg.here
        if here is None or here.n != message.get("n"):
            raise DebuggerError("the run has moved on: point at the number again")
        self.edit_value(tuple(int(i) for i in message["index"]), as_number(message.get("value")))

    @answers("intervene")
    def _intervene(self, message: dict[str, Any]) -> None:
        self.refuse_busy()
        kind, pattern = message.get("kind"), str(message.get("pattern", ""))[:_TEXT]
        if kind == "zero":
            self.dbg.zero(pattern)
        elif kind == "mean":
            self.dbg.mean(pattern)
        elif kind == "scale":
            self.dbg.scale(pattern, as_number(message.get("value")))
        else:
            raise DebuggerError(f"no such change: {kind!r}")

    @answers("ablate")
    def _ablate(self, message: dict[str, Any]) -> None:
        self.refuse_busy()
        self.ablate_heads(int(message["layer"]), [int(h) for h in message["heads"]])

    @answers("edit-logit")
    def _edit_logit(self, message: dict[str, Any]) -> None:
        self.refuse_busy()
        self.set_out("edit-logit", int(message["token"]), as_number(message.get("value")))

    @answers("choose-token")
    def _choose_token(self, message: dict[str, Any]) -> None:
        self.refuse_busy()
        token = message.get("token")
        self.set_out("choose-token", token if isinstance(token, int) else str(token))

    @answers("set-sampler")
    def _set_sampler(self, message: dict[str, Any]) -> None:
        self.refuse_busy()
        index, name, value = int(message["index"]), str(message["name"]), message.get("value")
        old = self.dbg.generation.chain.samplers[index].params.get(name)
        number = as_number(value)
        self.dbg.set_sampler(index, **{name: int(number) if isinstance(old, int) else number})

    @answers("memory-op")
    def _memory_op(self, message: dict[str, Any]) -> None:
        self.refuse_busy()
        self.dbg.memory_op(str(message.get("op")), *(int(a) for a in message.get("args", ())))

    @answers("undo-edit")
    def _undo(self, message: dict[str, Any]) -> None:
        self.refuse_busy()
        self.set_out("undo-edit", int(message["which"]))

    @answers("switch-edit")
    def _switch_edit(self, message: dict[str, Any]) -> None:
        self.refuse_busy()
        change = self.dbg.enable if message.get("on") else self.dbg.disable
        change(int(message["which"]))


def editable(dbg: Any) -> dict[str, Any]:
    """What of the current event can be changed."""
    here = dbg.here
    out: dict[str, Any] = {"name": "", "kind": "", "why": ""}
    if here is None or not isinstance(here.value, np.ndarray):
        return out
    kind = "node" if here.kind == "node" else "logits" if here.name == "logits" else "input"
    return {
        "name": here.name,
        "kind": kind,
        "shape": list(here.value.shape),
        "why": fixed_memory(here.about),
    }


def as_number(x: Any) -> float:
    """A number as a person writes it.

    Raises
    ------
    DebuggerError
    """
    try:
        return float(str(x).strip().replace("\u2212", "-"))
    except ValueError:
        raise DebuggerError(f"{str(x)[:40]!r} is no number: write it like 0.5 or -1e3") from None


_RANGES: dict[str, tuple[float, float, float]] = {
    "k": (0, 100, 1),
    "p": (0, 1, 0.01),
    "t": (0, 2, 0.05),
    "penalty_repeat": (1, 2, 0.05),
    "penalty_freq": (0, 2, 0.05),
    "penalty_present": (0, 2, 0.05),
}


def _range(name: str, value: float) -> dict[str, float]:
    """Ends and step of a slider, for the parameters that have sensible ones."""
    if name not in _RANGES:
        return {}
    low, high, step = _RANGES[name]
    return {"low": min(low, value), "high": max(high, value), "step": step}
