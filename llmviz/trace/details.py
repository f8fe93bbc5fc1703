"""Events whose value is no tensor, as a small table: a header field, tokens, a batch, candidates.

What a kind of value looks like is found by what it has, in the order of `_KINDS`; each reads only a
bounded part of it.
"""

from __future__ import annotations

import enum
import reprlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from llmviz.trace.recorder import read_cells

__all__ = ["details"]

_ROWS = 12
_TEXT = 400
_HEX = 32

_short = reprlib.Repr()
_short.maxstring = _short.maxother = 200
_short.maxlist = _short.maxtuple = _short.maxdict = _short.maxset = _short.maxarray = 8

Cell = dict[str, Any]
Table = dict[str, Any]


def details(here: Any, dbg: Any) -> Table:
    """``{columns, rows, note}`` of an event's value; cells are ``{text, value?, ref?, piece?}``."""
    table = next(make(here, dbg) for applies, make in _KINDS if applies(here))
    if isinstance(here.about, str) and here.about and not table["note"]:
        table["note"] = here.about[:_TEXT]
    return table


# -- cells and tables ----------------------------------------------------------------------------


def _table(columns: list[str], rows: list[list[Cell]], note: str = "") -> Table:
    return {"columns": columns, "rows": rows, "note": note}


def _text(x: Any) -> Cell:
    if isinstance(x, enum.Enum):
        x = x.name
    return {"text": (x if isinstance(x, str) else _short.repr(x))[:_TEXT]}


def _number(x: Any, ref: str) -> Cell:
    plain = x.item() if isinstance(x, np.generic) else x
    cell = {"value": str(x) if isinstance(x, np.floating) else repr(plain), "ref": ref}
    if isinstance(plain, int):
        cell["text"] = str(plain)  # ids and positions are names: no thousands separators
    return cell


def _any(x: Any, ref: str) -> Cell:
    is_number = isinstance(x, (int, float, np.number)) and not isinstance(x, (bool, enum.Enum))
    return _number(x, ref) if is_number else _text(x)


def _piece(dbg: Any, token: int) -> Cell:
    vocab = getattr(dbg.model, "vocab", None)
    if vocab is None or token < 0:
        return _text("")
    piece = vocab.token_to_piece(token, special=True)
    return {"text": piece.decode("utf-8", "replace")[:_TEXT], "piece": 1}


def _count(shown: int, of: int, what: str) -> str:
    what = what if of != 1 else what.removesuffix("s")
    return f"showing {shown} of {of:,} {what}" if shown < of else f"{of:,} {what}"


def _plain(x: Any) -> str:
    if isinstance(x, (bool, np.bool_)):
        return "yes" if x else ""
    if isinstance(x, (tuple, list, np.ndarray)):
        return ", ".join(str(i) for i in x)
    return str(x)


# -- kinds of values -----------------------------------------------------------------------------


def _header_field(here: Any, dbg: Any) -> Table:
    field = here.about
    raw = bytes(field.raw[:_HEX])
    more = " …" if field.size > _HEX else ""
    rows = [
        [_text("meaning"), _text(str(field.meaning))],
        [_text("value"), _any(here.value, here.name)],
        [_text("at byte"), _number(field.offset, f"{here.name}.offset")],
        [_text("size"), _number(field.size, f"{here.name}.size")],
        [_text("bytes"), {"text": raw.hex(" ") + more, "code": 1}],
    ]
    return _table([], rows)


def _token_list(here: Any, dbg: Any) -> Table:
    ids = list(here.value[:_ROWS])
    rows = [
        [_text(str(i)), _number(t, f"{here.name}[{i}]"), _piece(dbg, int(t))]
        for i, t in enumerate(ids)
    ]
    return _table(["", "id", "piece"], rows, _count(len(ids), len(here.value), "tokens"))


def _merge(here: Any, dbg: Any) -> Table:
    merge = here.value
    rows = [
        [_text("joined"), {"text": merge.left, "piece": 1}, {"text": merge.right, "piece": 1}],
        [_text("into"), {"text": merge.result, "piece": 1}],
        [_text("id"), _number(merge.id, f"{here.name}.id")],
    ]
    for name in ("rank", "score"):
        if getattr(merge, name) is not None:
            rows.append([_text(name), _number(getattr(merge, name), f"{here.name}.{name}")])
    rows.append([_text("the word now"), _text("  ".join(merge.film.symbols(merge.n)))])
    return _table([], rows)


def _chosen(here: Any, dbg: Any) -> Table:
    token = int(here.value)
    rows = [[_text("id"), _number(token, here.name)], [_text("piece"), _piece(dbg, token)]]
    if dbg.tokens and dbg.tokens[-1].n == here.n:
        chosen = dbg.tokens[-1]
        rows.append([_text("raw p"), _any(chosen.p_raw, "p_raw")])
        if chosen.p is not None:
            rows.append([_text("final p"), _any(chosen.p, "p")])
        rank = None if chosen.rank is None else chosen.rank + 1  # people count from 1
        rows.append([_text("rank"), _any(rank, "rank")])
    about = here.about if isinstance(here.about, Mapping) else {}
    if about.get("eog"):
        rows.append([_text("ends"), _text("yes: this token ends the generation")])
    return _table([], rows)


def _batch(here: Any, dbg: Any, batch: Any = None) -> Table:
    batch = here.value if batch is None else batch
    n = len(batch.token)
    columns = [c for c in ("pos", "seq_id", "logits", "output") if _given(batch, c)]
    rows = []
    for i in range(min(n, _ROWS)):
        token = int(batch.token[i])
        row = [_text(str(i)), _number(token, f"{here.name}.token[{i}]"), _piece(dbg, token)]
        rows.append(row + [_text(_plain(getattr(batch, c)[i])) for c in columns])
    return _table(["", "token", "piece", *columns], rows, _count(len(rows), n, "tokens"))


def _given(batch: Any, column: str) -> bool:
    return getattr(batch, column, None) is not None


def _ubatches(here: Any, dbg: Any) -> Table:
    if len(here.value) == 1:
        table = _batch(here, dbg, here.value[0])
        table["note"] += " in one ubatch"
        return table
    rows = [[_text(str(i)), _text(str(u))] for i, u in enumerate(here.value[:_ROWS])]
    return _table(["", "ubatch"], rows, _count(len(rows), len(here.value), "ubatches"))


def _candidates(here: Any, dbg: Any) -> Table:
    cur = here.value
    n = len(cur.id)
    order = np.argsort(-np.asarray(cur.logit), kind="stable")[:_ROWS]
    has_p = bool(np.asarray(cur.p).any())
    rows = []
    for i in order.tolist():
        row = [
            _piece(dbg, int(cur.id[i])),
            _number(cur.id[i], f"{here.name}.id[{i}]"),
            _number(cur.logit[i], f"{here.name}.logit[{i}]"),
        ]
        if has_p:
            row.append(_number(cur.p[i], f"{here.name}.p[{i}]"))
        if i == cur.selected:
            row[0]["mark"] = "chosen"
        rows.append(row)
    columns = ["piece", "id", "logit", *(["p"] if has_p else [])]
    why = getattr(here.about, "why", "")
    note = _count(len(rows), n, "candidates")
    return _table(columns, rows, f"{why} ({note})" if why else note)


def _cells(here: Any, dbg: Any) -> Table:
    pos, tok, seq = read_cells(here.value)
    used = np.flatnonzero(pos >= 0)
    rows = [
        [
            _text(str(i)),
            _number(pos[i], f"{here.name}.pos[{i}]"),
            _piece(dbg, int(tok[i])),
            _text(", ".join(str(s) for s in np.flatnonzero(seq[:, i]))),
        ]
        for i in used[-_ROWS:].tolist()
    ]
    note = f"{_count(len(rows), used.size, 'used cells')}; {pos.size:,} cells in all"
    return _table(["cell", "pos", "token", "seq"], rows, note)


def _list(here: Any, dbg: Any) -> Table:
    n = len(here.value)
    rows = [[_text(str(i)), _any(here.value[i], f"{here.name}[{i}]")] for i in range(min(n, _ROWS))]
    return _table([], rows, _count(len(rows), n, "entries"))


def _mapping(here: Any, dbg: Any) -> Table:
    return _fields(here.value, here.name)


def _object(here: Any, dbg: Any) -> Table:
    value = here.value
    names = getattr(value, "__slots__", None) or list(vars(value))
    fields = {n: getattr(value, n, None) for n in names if not n.startswith("_")}
    # An object that cannot say what it is tells a reader nothing.
    told = {n: x for n, x in fields.items() if x is not None and not _is_mute(x)}
    return _fields(told, here.name)


def _is_mute(x: Any) -> bool:
    return type(x).__repr__ is object.__repr__


def _single(here: Any, dbg: Any) -> Table:
    return _table([], [[_text("value"), _any(here.value, here.name)]])


def _nothing(here: Any, dbg: Any) -> Table:
    hints = {
        "enter": "Into looks inside this scope; Over goes past it.",
        "exit": "The scope is done.",
    }
    return _table([], [], hints.get(here.kind, ""))


def _fields(mapping: Mapping[Any, Any], name: str) -> Table:
    items = list(mapping.items())[:_ROWS]
    rows = [[_text(str(k)), _any(v, f"{name}.{k}")] for k, v in items]
    return _table([], rows, _count(len(items), len(mapping), "fields") if len(mapping) > 1 else "")


def _has(*names: str) -> Callable[[Any], bool]:
    return lambda here: all(hasattr(here.value, n) for n in names)


def _of(*names: str) -> Callable[[Any], bool]:
    """A list whose first entry has these."""
    return lambda here: (
        isinstance(here.value, (list, tuple))
        and bool(here.value)
        and all(hasattr(here.value[0], n) for n in names)
    )


_KINDS: list[tuple[Callable[[Any], bool], Callable[[Any, Any], Table]]] = [
    (lambda h: h.value is None, _nothing),
    (lambda h: h.step == 2 and hasattr(h.about, "meaning"), _header_field),
    (lambda h: h.step == 9 and h.name == "tokens", _token_list),
    (lambda h: h.step == 16 and h.name == "token", _chosen),
    (_has("left", "right", "film"), _merge),
    (_has("id", "logit", "p", "selected"), _candidates),
    (_has("pos", "tok", "seq"), _cells),
    (_of("pos", "tok", "seq"), _cells),
    (_has("token", "pos"), _batch),
    (_of("token", "pos"), _ubatches),
    (lambda h: isinstance(h.value, Mapping), _mapping),
    (lambda h: isinstance(h.value, (str, bytes, int, float, enum.Enum)), _single),
    (lambda h: isinstance(h.value, (list, tuple)), _list),
    (lambda h: hasattr(h.value, "__slots__") or hasattr(h.value, "__dict__"), _object),
    (lambda h: True, _single),
]
