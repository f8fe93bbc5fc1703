"""A recorded run as plain data, for a page that has no kernel: what each view shows at every stop.

The events of a trace are gone over once, with the views of a notebook standing on it; each
different value of a trait is stored once. What depends on a choice (the layer, the head, the slice
of a tensor) is not stored for every choice: the arrays are, and the page computes from them what
`attention.py`, `tensor.py` and `flow.py` do.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from llmviz.trace import Trace
from llmviz.trace.lookback import first_unfinished
from llmviz.trace.recorder import ATTENTION
from llmviz.trace.scores import entering, shown_stage
from llmviz.trace.shown import short
from llmviz.widgets.panel import view_for
from llmviz.widgets.recorded_arrays import Arrays, attention_of
from llmviz.widgets.recorded_flow import flow_of
from llmviz.widgets.recorded_walker import OWN, Walker
from llmviz.widgets.transport import heading

__all__ = ["MOST_STOPS", "Recording", "packed", "record"]

MOST_STOPS = 6_000
"""Events of a run that a page stops at; of a longer run those that say least are left out."""

Progress = Callable[[float], None]

_SELECTED = (
    *("top", "top_about", "strip", "strip_rows", "strip_p", "strip_was", "strip_rest"),
    *("strip_segments", "strip_segments_was"),
)


def packed(raw: bytes) -> bytes:
    """Bytes as a page carries them: compressed, in base64."""
    return base64.b64encode(zlib.compress(raw, 6))


@dataclass
class Recording:
    """What a page shows of a run.

    Attributes
    ----------
    core : dict
        Stops, values and columns, as JSON can hold them.
    blob : bytes
        The values that are bytes.
    arrays : Arrays
        Attention and tensors.
    flow : Arrays
        Strips of the flow view.
    left_out : list of str
        In sentences.
    """

    core: dict[str, Any] = field(default_factory=dict)
    blob: bytes = b""
    arrays: Arrays = field(default_factory=Arrays)
    flow: Arrays = field(default_factory=Arrays)
    left_out: list[str] = field(default_factory=list)

    def core_bytes(self) -> bytes:
        """`core` as JSON."""
        return json.dumps(self.core, separators=(",", ":"), allow_nan=False).encode()


_NOTHING = object()
_PLAIN, _BYTES, _LIST = range(3)  # as JSON; first byte and length in the blob; numbers of values


class Values:
    """Different values, each stored once and called by a number."""

    def __init__(self) -> None:
        self.all: list[Any] = []
        self.blob = bytearray()
        self._number: dict[Any, int] = {}

    def __call__(self, value: Any) -> int:
        """The number of a value: bytes, or what JSON can hold."""
        if isinstance(value, (bytes, bytearray, memoryview)):
            raw = bytes(value)
            return self._take(raw, lambda: [_BYTES, *self._store(raw)])
        if isinstance(value, list) and any(isinstance(x, (dict, list)) for x in value):
            parts = [self(x) for x in value]  # the elements of a list come again in the next one
            return self._take(("list", *parts), lambda: [_LIST, parts])
        text = json.dumps(value, allow_nan=False, default=_plain, ensure_ascii=True)
        return self._take(text, lambda: [_PLAIN, json.loads(text)])

    def _take(self, key: Any, make: Callable[[], Any]) -> int:
        number = self._number.get(key)
        if number is None:
            number = self._number[key] = len(self.all)
            self.all.append(make())
        return number

    def _store(self, raw: bytes) -> list[int]:
        self.blob += b"\0" * (-len(self.blob) % 8)
        first = len(self.blob)
        self.blob += raw
        return [first, len(raw)]


def _plain(x: Any) -> Any:
    if isinstance(x, np.generic):
        return x.item()
    raise TypeError(f"{type(x).__name__} is no value of a trait")


def record(
    trace: Trace,
    *,
    max_bytes: int,
    most_stops: int = MOST_STOPS,
    progress: Progress | None = None,
) -> Recording:
    """Go over a trace and note what its views show.

    Parameters
    ----------
    trace : Trace
        Its cursor is moved, and put back where it stood: nobody should follow it.
    max_bytes : int
        What all of it may take in a page.
    most_stops : int
    progress : callable, optional
        Called with the part that is done, from 0 to 1.
    """
    out = Recording()
    here = trace.n
    walker = Walker(trace)
    try:
        stops = choose_stops(trace, most_stops)
        values = Values()
        names = [n for n in walker.keys if n[0] != "_" and n not in OWN and n not in _OUTER]
        columns = np.zeros((len(names) + len(_EXTRA), len(stops)), np.int32)
        told = max(1, len(stops) // 100)
        looks = [
            *(lambda name=name: getattr(walker, name) for name in names),
            *(lambda look=look: look(trace) for look in _EXTRA.values()),
        ]
        last: list[Any] = [_NOTHING] * len(looks)
        for k, i in enumerate(stops):
            trace.goto(int(trace.all_events[i].n))
            for row, look in enumerate(looks):
                value = look()
                if type(value) is type(last[row]) and value == last[row]:
                    columns[row, k] = columns[row, k - 1]
                else:
                    columns[row, k], last[row] = values(value), value
            if progress is not None and k % told == 0:
                progress(k / len(stops))
        out.core = {
            "traits": [*names, *_EXTRA],
            "columns": values(columns.astype("<i4").tobytes()),
            "n_stops": len(stops),
            **_events(trace, stops, values),
            "tokens": _tokens(trace),
            "selected": _selected(trace, walker, values),
            "n_layer": int(trace.model.hparams.n_layer),
            "dropped": int(trace.recorder.dropped),
            "dropped_text": trace.recorder.dropped_text[:300],
            **_softmax(trace),
        }
        walker.close()  # nothing follows the cursor any more
        trace.goto(trace.furthest)
        out.core["values"] = values.all
        out.blob = bytes(values.blob)
        used = len(packed(out.core_bytes())) + len(packed(out.blob))
        _add_arrays(out, trace, stops, max(0, max_bytes - used))
        _say_what_is_left_out(out, trace, len(stops))
    finally:
        walker.close()
        if here >= 0:
            trace.goto(here)
    return out


_OUTER = ("layout", "tabbable", "tooltip")


def _node_number(trace: Trace) -> int:
    """Which node of the graph the event is, -1 for none; names come more than once."""
    here, graph = trace.here, trace.ctx.graph.gf
    if here is None or here.kind != "node" or graph is None:
        return -1
    return next((i for i, t in enumerate(graph.nodes) if t is here.about), -1)


def _unfinished(trace: Trace) -> int:
    """The first layer that the pass under way has not finished, -1 where it has finished all."""
    layer = first_unfinished(trace)
    return -1 if layer is None else layer


def _ubatch(trace: Trace) -> int:
    """The event at which the ubatch began that the event is in, -1 outside of all."""
    return next((s.n for s in trace.scope_stack if s.name == "process_ubatch"), -1)


def _view(trace: Trace) -> str:
    """As the panel's, but that a page's stage stays where a person put it: scores are a tensor."""
    here = trace.here
    return "tensor" if here is not None and here.name.startswith("kq-") else view_for(trace)


_EXTRA: dict[str, Callable[[Trace], Any]] = {
    "unfinished_now": _unfinished,
    "ubatch_now": _ubatch,
    "node_now": _node_number,
    "view_now": _view,
    "layer_now": lambda trace: next(
        (
            int(s.name.removeprefix("layer-"))
            for s in reversed(trace.scope_stack)
            if s.name.startswith("layer-")
        ),
        -1,
    ),
    "spoken": heading,
}


def choose_stops(trace: Trace, most: int) -> list[int]:
    """Indices of the events that a page stops at, in order.

    Every token and every step's begin come first, then scopes, data, attention, and other nodes. A
    kind for which there is no room is left out; of the nodes those of the first passes are taken.
    """
    t = trace.all_events
    tokens = {k.n for k in trace.tokens}
    rank = np.full(len(t), 4, np.int8)
    before, passes = -1, np.zeros(len(t), np.int32)
    for i in range(len(t)):
        r = t[i]
        if r.n in tokens or r.step != before or i == len(t) - 1:
            rank[i] = 0
        elif r.kind != "node":
            rank[i] = 1 if r.kind in ("enter", "exit") else 2
        elif r.name.startswith(ATTENTION):
            rank[i] = 3
        passes[i] = r.kind == "enter" and r.name == "process_ubatch"
        before = r.step
    passes = np.cumsum(passes)
    order = np.where(rank < 4, rank, 4 + passes)
    for last in np.unique(order)[::-1]:
        chosen = np.flatnonzero(order <= last)
        if len(chosen) <= most:
            return chosen.tolist()
    return chosen[np.linspace(0, len(chosen) - 1, most).astype(int)].tolist()


def _events(trace: Trace, stops: list[int], values: Values) -> dict[str, int]:
    """The columns by which one finds the way: numbers, depths, steps, kinds, names."""
    t = trace.all_events
    rows = [t[i] for i in stops]
    names: dict[str, int] = {}
    kinds = ("enter", "exit", "node", "data")
    numbers = {
        "n": [r.n for r in rows],
        "depth": [r.depth for r in rows],
        "step": [r.step for r in rows],
        "kind": [kinds.index(r.kind) for r in rows],
        "name": [names.setdefault(short(r.name), len(names)) for r in rows],
    }
    out = {k: values(np.array(v, "<i4").tobytes()) for k, v in numbers.items()}
    return {**out, "names": values(list(names))}


def _tokens(trace: Trace) -> list[dict[str, Any]]:
    return [
        {
            "pos": k.pos,
            "id": k.id,
            "text": k.text[:60],
            "n": k.n,
            "given": k.given,
            "rank": None if k.rank is None else k.rank + 1,
            "top": [
                {"id": a.id, "text": a.text[:60], "p_raw": a.p_raw, "p": a.p, "cut": a.cut}
                for a in k.top
            ],
        }
        for k in trace.tokens
    ]


def _softmax(trace: Trace) -> dict[str, Any]:
    """Which layers have attention, what enters their softmax, and where a sink takes its part."""
    graph, n_layer = trace.ctx.graph.gf, int(trace.model.hparams.n_layer)
    names = {t.name for t in graph.nodes} if graph is not None else set()
    layers = [il for il in range(n_layer) if graph is None or f"{ATTENTION}{il}" in names]
    found = {il: entering(trace, il) for il in layers}
    return {
        "with_attention": layers,
        "sinks": [il for il, how in found.items() if how.sinks],
        "entering": {
            str(il): {
                "scores": how.scores,
                # with a slope for each head, what a page computes would not be the engine's
                "scale": how.scale if how.max_bias == 0 else None,
                "masked": shown_stage(trace, il, 0, 1, "masked").node,
            }
            for il, how in found.items()
        },
    }


def _selected(trace: Trace, walker: Walker, values: Values) -> dict[str, Any]:
    """What is shown of each generated token when it is chosen, by its position."""
    trace.goto(trace.furthest)
    out = {}
    for k in trace.tokens:
        if not k.given:
            walker.selected = k.pos
            out[str(k.pos)] = [values(getattr(walker, name)) for name in _SELECTED]
    walker.selected = -1
    return {"traits": list(_SELECTED), "at": out}


def _add_arrays(out: Recording, trace: Trace, stops: list[int], max_bytes: int) -> None:
    """As many arrays as there is room for: attention first, then the flow's, then tensors."""
    part, layers, held = attention_of(trace, max_bytes * 45 // 100)
    out.arrays, out.core["attention"] = part, layers
    if held > len(layers):
        shown = ", ".join(map(str, sorted(map(int, layers)))) or "none"
        out.left_out.append(f"attention of {held - len(layers)} of {held} layers (here: {shown})")
    room = max_bytes - out.arrays.packed_size()
    out.flow, out.core["flow"], missing = flow_of(
        trace, room, [il for il in trace.recorder.attention if str(il) not in layers]
    )
    if missing:
        out.left_out.append(missing)
    room -= out.flow.packed_size()
    wanted: list[tuple[int, Any]] = []
    for r in (trace.all_events[i] for i in stops):
        if r.kind in ("node", "data") and r.shape is not None:
            trace.goto(r.n)
            value = trace.here.value if trace.here is not None else None
            if isinstance(value, np.ndarray) and value.dtype.kind in "fiub" and value.size:
                wanted.append((r.n, value))
    trace.goto(trace.furthest)
    left = out.arrays.add_tensors(wanted, max(0, room))
    out.core["tensors"] = out.arrays.tensors
    if left:
        out.left_out.append(
            f"the values of {left:,} of {len(wanted):,} tensors (their statistics are here)"
        )


def _say_what_is_left_out(out: Recording, trace: Trace, n_stops: int) -> None:
    total = len(trace.all_events)
    if n_stops < total:
        out.left_out.insert(0, f"{total - n_stops:,} of {total:,} recorded events")
    out.left_out += trace.missing
    out.left_out.append(
        "the source lines, the split of a logit over heads, and the weights: they need the model"
    )
