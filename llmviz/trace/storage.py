"""A run as one file: ``dbg.save("run.zarr.zip")``, read back by `llmviz.open_trace` or by xarray.

The file is a zip of zarr arrays with named dimensions, format version 1. It holds the run up to the
event it stands at, on its current branch:

* ``event_*`` (event): the light records: number, name, kind, step, depth, shape;
* ``token_*`` (token) and ``token_top_*`` (token, candidate): text, probabilities, alternatives;
* ``logits_*`` (decode) and ``logits_top_*`` (decode, candidate), and ``logits`` (row, n_vocab) of
  the last decode, or of all where ``dbg.log.keep_logits`` was set before;
* ``attention`` (layer, head, query, key): NaN where nothing was computed or kept; ``query_*`` and
  ``key_pos`` say which positions the rows and columns are, ``block_*`` which event computed what;
* ``statistic_*`` (statistic): one row for each node that was watched, in each pass;
* ``cells_*`` (cells_event), ``cell_*`` (cell_change): what changed in the KV cache, and when;
* ``sampler_*`` (sampler_step) and ``sampler_top_*`` (sampler_step, kept): what each sampler left;
  ``sampler_raw_*`` (sampler_step, leader): the likeliest tokens before a chain has run;
* ``graph_*`` (tensor): the last graph, tensor by tensor, sources as indices;
* group ``values``: kept copies of nodes, one array for each name;
* attributes: model, hyperparameters, prompt, chain, edits, branches, and the texts that arrays
  refer to by number: ``names``, ``shapes``, ``pieces`` ...

Numbers keep the type they were computed in (float32 bit for bit; probabilities and statistics
float64, as the recorder has them); attention can be stored as float16, at half the size.
"""

from __future__ import annotations

import enum
import math
import os
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from llmviz.trace.edits import Intervention, Switch
from llmviz.trace.storage_attention import attention_variables
from llmviz.trace.storage_log import RunLog
from llmviz.trace.storage_samplers import sampler_variables
from llmviz.trace.storage_values import kept_variables
from llmviz.trace.storage_write import Variable, table, write_zip
from llmviz.trace.storage_zip import TraceError

__all__ = ["FORMAT", "save"]

FORMAT = 1
_TEXT = 100_000  # characters of any one text in the attributes


def save(
    dbg: Any, path: str | os.PathLike[str], *, dtype: str = "float32", values: bool = True
) -> None:
    """Save what is known of a run; see `llmviz.Debugger.save`."""
    if dtype not in ("float16", "float32"):
        raise TraceError(f"attention is stored as float16 or float32, not {dtype!r}")
    if dbg.running:
        raise TraceError("the run is under way: wait for it to stand, or call pause() first")
    variables = [
        *_events(dbg.log),
        *_tokens(dbg.tokens),
        *_logits(dbg),
        *_statistics(dbg.log),
        *_cells(dbg.log),
        *sampler_variables(dbg.samplings, _TEXT),
        *_graph(dbg),
        *attention_variables(dbg.recorder, np.dtype(dtype)),
    ]
    if values:
        variables += kept_variables(dbg.recorder, dbg.log.names.all)
    write_zip(path, _attributes(dbg), variables)


# -- attributes ----------------------------------------------------------------------------------


def plain(x: Any) -> Any:
    """A parameter as JSON can hold it; what is no number, text or list becomes its name."""
    if isinstance(x, enum.Enum):
        return x.name
    if isinstance(x, (np.generic, np.ndarray)):
        x = x.tolist()
    if isinstance(x, float) and not math.isfinite(x):
        return repr(x)
    if x is None or isinstance(x, (bool, int, float)):
        return x
    if isinstance(x, str):
        return x[:_TEXT]
    if isinstance(x, bytes):
        return x.decode("utf-8", "replace")[:_TEXT]
    if isinstance(x, (list, tuple)):
        return [plain(i) for i in x]
    if isinstance(x, dict):
        return {str(k): plain(v) for k, v in x.items()}
    return getattr(x, "name", None) or type(x).__name__


def _attributes(dbg: Any) -> dict[str, Any]:
    log, recorder, model = dbg.log, dbg.recorder, dbg.model
    vocab_only = getattr(model, "vocab_only", False)
    hparams = getattr(model, "hparams", None) if not vocab_only else None
    package = sys.modules.get("llmviz")
    return {
        "llmviz_format": FORMAT,
        "llmviz_version": str(getattr(package, "__version__", "")),
        "engine": plain(getattr(dbg, "engine", {"name": "llmviz"})),
        "model": {
            "desc": str(getattr(model, "desc", "")),
            "arch": str(getattr(model, "arch", "")),
            "file": os.path.basename(str(getattr(model, "path", ""))),
            "n_vocab": int(getattr(getattr(model, "vocab", None), "n_tokens", 0) or 0),
        },
        "hparams": _hparams(hparams),
        "prompt": plain(dbg.prompt),
        "n_predict": plain(dbg.n_predict),
        "chain": _chain(dbg.chain),
        "context": plain(_context_params(dbg.ctx)),
        "stop": recorder.stop[:_TEXT],
        "rest": recorder.rest[:_TEXT],
        "error": "" if dbg.error is None else f"{type(dbg.error).__name__}: {dbg.error}"[:_TEXT],
        "finished": bool(dbg.finished),
        "seconds": {str(step): float(s) for step, s in dbg.seconds.items()},
        "passes": int(recorder.passes),
        "dropped": int(recorder.dropped),
        "dropped_text": recorder.dropped_text,
        "lost": int(log.lost),
        "edits": [_edit(e) for e in dbg.edits],
        "branch": dbg.branch.name[:_TEXT],
        "branches": [_branch(b) for b in dbg.branches],
        "breakpoints": [_breakpoint(b) for b in dbg.breakpoints],
        "names": [plain(name) for name in log.names.all],
        "shapes": [[list(shape), dtype] for shape, dtype in log.shapes.all],
        "pieces": {str(i): [piece.hex(), text] for i, piece, text in _pieces(dbg)},
    }


def _hparams(hparams: Any) -> dict[str, Any]:
    if hparams is None:
        return {}
    if hasattr(hparams, "as_dict"):
        return {name: plain(value) for name, (value, _) in hparams.as_dict().items()}
    return {name: plain(value) for name, value in vars(hparams).items()}


def _context_params(ctx: Any) -> dict[str, Any]:
    params = getattr(ctx, "params", None)
    names = getattr(params, "__dataclass_fields__", None) or getattr(params, "__dict__", {})
    out = {name: getattr(params, name) for name in names}
    return {k: v for k, v in out.items() if isinstance(v, (bool, int, float, str))}


def _chain(chain: Any) -> list[dict[str, Any]]:
    try:
        samplers = list(chain)
    except TypeError:  # none was given, and none has run
        return []
    return [{"name": s.name, "params": plain(s.params)} for s in samplers]


def _edit(e: Any) -> dict[str, Any]:
    out = {
        "kind": type(e).__name__,
        "id": e.id,
        "n": e.n,
        "name": e.name,
        "description": e.description[:_TEXT],
        "applied_at": e.applied_at,
        "note": e.note[:_TEXT],
    }
    if isinstance(e, Intervention):
        out |= {"pattern": e.pattern[:_TEXT], "broken": e.broken}
    if isinstance(e, Switch) and e.target is not None:
        out |= {"target": e.target.id, "on": e.on}
    return out


def _branch(b: Any) -> dict[str, Any]:
    names = ("name", "parent", "fork_n", "reason", "n", "furthest", "ended", "n_tokens", "text")
    return {name: plain(getattr(b, name)) for name in names}


def _breakpoint(b: Any) -> dict[str, Any]:
    """As a text: nobody compiles it before a person asks."""
    condition = getattr(b.condition, "text", b.condition)
    return {
        "id": b.id,
        "label": str(b.label)[:_TEXT],
        "where": plain(b.where) if isinstance(b.where, (str, int)) else None,
        "condition": condition[:_TEXT] if isinstance(condition, str) else None,
        "enabled": bool(b.enabled),
        "hits": int(b.hits),
    }


def _pieces(dbg: Any) -> Iterator[tuple[int, bytes, str]]:
    """Every token id that the trace mentions, with its bytes."""
    log: RunLog = dbg.log
    ids: set[int] = set()
    for k in dbg.tokens:
        ids.update((k.id, *(a.id for a in k.top)))
    for row in log.logits:
        ids.update(a.id for a in row.top)
    for sampler in log.samplers:
        ids.update(sampler.id.tolist(), sampler.raw_id.tolist())
    for change in log.cells:
        ids.update(change.tok.tolist())
    known = {k.id: k.piece for k in dbg.tokens}
    piece_of = dbg.recorder.piece_of
    for i in sorted(i for i in ids if i >= 0):
        piece = piece_of(i) if piece_of is not None else known.get(i, b"")
        yield i, piece, piece.decode("utf-8", "replace")


# -- tables --------------------------------------------------------------------------------------


def _events(log: RunLog) -> Iterator[Variable]:
    n, name, kind, step, depth, shape = log.events.arrays()
    yield from table(
        "event", "event", n=n, name=name, kind=kind, step=step, depth=depth, shape=shape
    )


def _optional(values: Any) -> np.ndarray:
    return np.array([np.nan if x is None else x for x in values], np.float64)


def _tokens(tokens: Any) -> Iterator[Variable]:
    yield from table(
        "token",
        "token",
        id=np.array([k.id for k in tokens], np.int32),
        pos=np.array([k.pos for k in tokens], np.int32),
        n=np.array([k.n for k in tokens], np.int32),
        given=np.array([k.given for k in tokens], bool),
        rank=np.array([-1 if k.rank is None else k.rank for k in tokens], np.int32),
        logit=_optional(k.logit for k in tokens),
        p_raw=_optional(k.p_raw for k in tokens),
        p=_optional(k.p for k in tokens),
    )
    # What a token adds to the text is not always its piece: bytes of one character are many tokens.
    texts = [k.text[:_TEXT] for k in tokens]
    pieces = [k.piece.hex() for k in tokens]
    index = np.arange(len(tokens), dtype=np.int32)
    yield Variable("token_text", ("token",), index, {"texts": texts, "pieces": pieces})
    yield from _alternatives("token_top", "token", [k.top for k in tokens])


def _alternatives(prefix: str, dim: str, rows: list[Any]) -> Iterator[Variable]:
    """Lists of `Alternative`, padded with id -1."""
    shape = (len(rows), max(map(len, rows), default=0))
    ids = np.full(shape, -1, np.int32)
    cut = np.zeros(shape, bool)
    numbers = {name: np.full(shape, np.nan) for name in ("logit", "p_raw", "p")}
    for i, row in enumerate(rows):
        for j, a in enumerate(row):
            ids[i, j], cut[i, j] = a.id, a.cut
            for name, out in numbers.items():
                value = getattr(a, name)
                out[i, j] = np.nan if value is None else value
    dims = (dim, "candidate" if dim == "token" else f"{dim}_candidate")
    for name, data in {"id": ids, "cut": cut, **numbers}.items():
        yield Variable(f"{prefix}_{name}", dims, data)


def _logits(dbg: Any) -> Iterator[Variable]:
    rows = dbg.log.logits
    yield from table(
        "logits",
        "decode",
        n=np.array([r.n for r in rows], np.int32),
        n_vocab=np.array([r.n_vocab for r in rows], np.int32),
    )
    yield from _alternatives("logits_top", "decode", [r.top for r in rows])
    full = {r.n: r.row for r in rows if r.row is not None}
    last = dbg.recorder.logits
    if last is not None:
        full[dbg.recorder.logits_n] = last
    if full:
        data = np.stack([full[n] for n in sorted(full)])  # [row, n_vocab]
        yield Variable("logits", ("row", "n_vocab"), data)
        yield Variable("row_n", ("row",), np.array(sorted(full), np.int32))


def _statistics(log: RunLog) -> Iterator[Variable]:
    names = ("n", "name", "count", "nan", "inf", "min", "max", "mean", "std")
    columns = dict(zip(names, log.statistics.arrays(), strict=True))
    yield from table("statistic", "statistic", **columns)


def _cells(log: RunLog) -> Iterator[Variable]:
    changes = log.cells
    n_seq = max((c.n_seq for c in changes), default=0)
    total = sum(len(c.cell) for c in changes)
    seq = np.zeros((n_seq, total), bool)
    start = 0
    for c in changes:
        seq[: c.n_seq, start : start + len(c.cell)] = c.seq
        start += len(c.cell)
    yield from table(
        "cells",
        "cells_event",
        n=np.array([c.n for c in changes], np.int32),
        size=np.array([c.n_cells for c in changes], np.int32),
        n_seq=np.array([c.n_seq for c in changes], np.int32),
        changes=np.array([len(c.cell) for c in changes], np.int32),
    )
    empty = [np.empty(0, np.int32)]
    yield from table(
        "cell",
        "cell_change",
        index=np.concatenate([c.cell for c in changes] or empty),
        pos=np.concatenate([c.pos for c in changes] or empty),
        token=np.concatenate([c.tok for c in changes] or empty),
    )
    yield Variable("cell_seq", ("seq", "cell_change"), seq)


def _scalars(tensor: Any) -> dict[str, Any]:
    """The parameters of a tensor's op that are plain numbers, such as a softmax's scale."""
    params = getattr(tensor, "params", None) or {}
    return {
        str(k): x
        for k, v in params.items()
        if isinstance(x := plain(v), (bool, int)) or (isinstance(x, float) and math.isfinite(x))
    }


def _graph(dbg: Any) -> Iterator[Variable]:
    gf = getattr(getattr(dbg.ctx, "graph", None), "gf", None)
    if gf is None:
        return
    tensors: list[Any] = []
    number: dict[int, int] = {}

    def add(t: Any) -> int:
        if id(t) not in number:
            if t.view_src is not None:
                add(t.view_src)
            for s in t.src:
                if s is not None:
                    add(s)
            number[id(t)] = len(tensors)
            tensors.append(t)
        return number[id(t)]

    for node in gf.nodes:  # in their order, so nothing is deep
        add(node)
    order = np.array([number[id(t)] for t in gf.nodes], np.int32)
    width = max((len(t.src) for t in tensors), default=0)
    src = np.full((len(tensors), width), -1, np.int32)
    for i, t in enumerate(tensors):
        src[i, : len(t.src)] = [-1 if s is None else number[id(s)] for s in t.src]
    view = [-1 if t.view_src is None else number[id(t.view_src)] for t in tensors]
    ne = np.array([[*t.ne, 1, 1, 1, 1][:4] for t in tensors], np.int64).reshape(-1, 4)
    texts = {
        "names": [t.name for t in tensors],
        "ops": [t.op for t in tensors],
        "types": [plain(t.type) for t in tensors],
        "params": {str(i): found for i, t in enumerate(tensors) if (found := _scalars(t))},
    }
    index = np.arange(len(tensors), dtype=np.int32)
    yield Variable("graph_tensor", ("tensor",), index, texts)
    yield Variable("graph_ne", ("tensor", "ne"), ne)
    yield Variable("graph_src", ("tensor", "source"), src)
    yield from table(
        "graph",
        "tensor",
        n_dims=np.array([t.n_dims for t in tensors], np.int32),
        view=np.array(view, np.int32),
        layer=np.array([-1 if t.il is None else t.il for t in tensors], np.int32),
        input=np.array([bool(t.is_input) for t in tensors], bool),
    )
    yield Variable("graph_order", ("node",), order)
