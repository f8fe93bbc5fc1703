"""The flow view of a recorded run: every strip of every layer, for each token, as small arrays."""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise
from typing import Any

import numpy as np

from llmviz.trace import Trace
from llmviz.trace.flow import SHOWN, Flow, bins_of, ends, head_first, strongest
from llmviz.trace.flow_graph import Column
from llmviz.trace.kept import Kept
from llmviz.widgets.flow import FlowView, bins_for
from llmviz.widgets.recorded_arrays import Arrays

__all__ = ["flow_of"]

_EVERY_PASS = 1 << 30


class _Columns(FlowView):
    """Gives the view's own description of a layer's columns; nothing of it is ever displayed."""

    def open(self) -> None:
        """There is no page at the other end."""

    def draw(self) -> None:
        """Only what is asked for."""

    def layout_of(self, flow: Flow, most: int) -> dict[str, Any]:
        """The trait ``flow`` of a layer, its strips as wide as those of `most` values."""
        self._flow = flow
        self._flow_set("layer", flow.layer)
        self._flow_draw_columns()
        by_id = {c.id: c for c in flow.columns}
        for c in self.flow["columns"]:
            c["bins"] = 0 if c["kind"] == "matrix" else bins_of(by_id[c["id"]].n, most)
        return dict(self.flow)


def flow_of(
    trace: Trace, room: int, left_out: Collection[int] = ()
) -> tuple[Arrays, dict[str, Any], str]:
    """What the flow view needs of as many layers as there is room for, evenly over the model.

    Of layers whose attention was left out there is no inside either: its middle would be missing.

    Returns
    -------
    (Arrays, dict, str)
        Layouts by layer; strips by the name of their column; scores; passes with their masks. And
        a sentence that says what is missing, empty where nothing is.
    """
    n_layer = int(trace.model.hparams.n_layer)
    kept = [il for il in range(n_layer) if _is_kept(trace, il) and il not in left_out]
    if not kept:
        return Arrays(), {}, "the flow: no layer's nodes were kept (dbg.keep_all() before the run)"
    for every in range(1, len(kept) + 1):
        out, about = _pack(trace, kept[::every])
        if out.packed_size() <= room:
            chosen = kept[::every]
            left = n_layer - len(chosen)
            shown = ", ".join(map(str, chosen))
            missing = f"the inside of {left} of {n_layer} layers in the flow (here: {shown})"
            return out, about, missing if left else ""
    return Arrays(), {}, "the flow: there was no room for a single layer"


def _is_kept(trace: Trace, il: int) -> bool:
    """Whether some node of this layer's inside was kept, besides what leaves the layer."""
    return trace.recorder.value(f"attn_norm-{il}") is not None


def _pack(trace: Trace, layers: list[int]) -> tuple[Arrays, dict[str, Any]]:
    out = Arrays()
    most = bins_for(min(SHOWN, len(trace.tokens)))
    strips: dict[str, Any] = {}
    scores: dict[str, Any] = {}
    layouts: dict[str, Any] = {}
    sets: list[dict[str, Any]] = []
    view = _Columns(trace)
    for il in layers:
        flow = Flow(trace, il)
        flow.update(_EVERY_PASS)
        if not flow.columns:
            continue
        graph = trace.ctx.graph.gf
        columns = flow.columns
        layouts[str(il)] = {
            "flow": view.layout_of(flow, most),
            "head_first": [head_first(c) for c in columns],
            "owner": [flow.layout.owner.get(id(t), -1) for t in graph.nodes],
        }
        for c in columns:
            if c.kind == "matrix":
                if c.op != "SOFT_MAX":
                    scores[c.id] = _scores(out, trace, c)
            elif c.id not in strips:
                strips[c.id] = _strip(out, flow, c, most, sets)
    view.close()
    return out, {
        "layers": layouts,
        "strips": strips,
        "scores": scores,
        "sets": sets,
        "passes": _passes(out, trace),
        "shown": SHOWN,
    }


def _strip(out: Arrays, flow: Flow, c: Column, most: int, sets: list[Any]) -> dict[str, Any]:
    """All rows of a column, the oldest first: the strongest value of each bin, and its place."""
    bins = bins_of(c.n, most)
    parts = list(flow.held(c))
    if not parts:
        return {"bins": bins, "rows": 0}
    values = np.concatenate([v for _, v, _, _ in parts], axis=1)  # [heads, rows, n]
    heads, count, n = values.shape
    values = values.reshape(heads * count, n).astype(np.float32, copy=False)
    lines = strongest(values, bins)
    rows: dict[str, list[int]] = {"pos": [], "pass": [], "row": [], "entry": []}
    for entry, (pos, _, pass_, _) in enumerate(parts):
        rows["pos"] += pos.tolist()
        rows["pass"] += [pass_] * len(pos)
        rows["row"] += range(len(pos))
        rows["entry"] += [entry] * len(pos)
    if rows not in sets:
        sets.append(rows)
    return {
        "bins": bins,
        "rows": count,
        "set": sets.index(rows),
        "n": [n for *_, n in parts],
        "dtype": str(flow.dbg.recorder.value(c.id).array.dtype),
        "at": out.add(lines),  # [heads, rows, bins]
        "place": out.add(_offsets(values, lines)),
        "high": out.add(ends(lines).astype(np.float32)),  # [heads, rows]
    }


def _offsets(values: np.ndarray, line: np.ndarray) -> np.ndarray:
    """Where in its bin each line's value stands, int32 [rows, bins]; of equal ones the first."""
    n, bins = values.shape[1], line.shape[1]
    if bins >= n:
        return np.zeros(line.shape, np.int32)
    edges = [i * n // bins for i in range(bins + 1)]
    size = np.nan_to_num(np.abs(values), nan=np.inf)
    at = [size[:, a:b].argmax(1) for a, b in pairwise(edges)]
    return np.stack(at, 1).astype(np.int32)


def _scores(out: Arrays, trace: Trace, c: Column) -> list[dict[str, Any]]:
    """Scores of all heads, over the cells that the softmax of the same pass has."""
    blocks = {_pass_of(trace, b.n): b for b in trace.recorder.attention.get(c.layer, ())}
    parts = []
    for kept in trace.recorder.values(c.id):
        block = blocks.get(kept.pass_)
        if block is None or kept.array.ndim != 3 or kept.array.shape[:2] != block.p.shape[:2]:
            continue
        keys = len(block.k_pos)
        parts.append(
            {
                "n": kept.n,
                "pass": kept.pass_,
                "q": block.q_pos.tolist(),
                "k": block.k_pos.tolist(),
                "heads": int(kept.array.shape[0]),
                "at": out.add(kept.array[:, :, :keys].astype(np.float32)),
            }
        )
    return parts


def _positions(trace: Trace) -> list[Kept]:
    """Positions of each pass, where they are known."""
    return trace.recorder.values("inp_pos") or list(trace.recorder.ubatches)


def _pass_of(trace: Trace, n: int) -> int:
    starts = [k.n for k in _positions(trace)]
    return sum(start <= n for start in starts) - 1 + _first_pass(trace)


def _first_pass(trace: Trace) -> int:
    held = _positions(trace)
    return held[0].pass_ if held else 0


def _passes(out: Arrays, trace: Trace) -> list[dict[str, Any]]:
    """Positions and mask of each pass."""
    masks = {k.pass_: k for k in trace.recorder.values("attn_inp_kq_mask")}
    keys = {
        _pass_of(trace, b.n): b.k_pos for held in trace.recorder.attention.values() for b in held
    }
    parts = []
    for kept in _positions(trace):
        pos = kept.array.reshape(-1).tolist()
        one: dict[str, Any] = {"n": kept.n, "pass": kept.pass_, "pos": pos}
        mask, k_pos = masks.get(kept.pass_), keys.get(kept.pass_)
        if mask is not None and k_pos is not None:
            rows = mask.array.reshape(-1, mask.array.shape[-1])[:, : len(k_pos)]
            rows = rows[: len(pos)].astype(np.float32)
            one |= {"mask_n": mask.n, "k": k_pos.tolist(), "mask": out.add(rows)}
        parts.append(one)
    return parts
