"""Events whose value is no tensor, as a small table: a header field, tokens, a batch, candidates.

What a kind of value looks like is found by what it has, in the order of `_KINDS`; each reads only a
bounded part of it.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

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
    """``{columns, rows, note}`` of an event's value; cells are ``{text, value?, ref?}``."""
    for applies, make in _KINDS:
        if applies(here):
            return make(here, dbg)
    return _fields({"value": here.value}) if here.value is not None else _table([], [], "")


def _table(columns: list[str], rows: list[list[Cell]], note: str) -> Table:
    return {"columns": columns, "rows": rows, "note": note}


def _text(x: Any) -> Cell:
    return {"text": (x if isinstance(x, str) else _short.repr(x))[:_TEXT]}


def _number(x: Any, ref: str) -> Cell:
    plain = x.item() if isinstance(x, np.generic) else x
    return {"value": str(x) if isinstance(x, np.floating) else repr(plain), "ref": ref}


def _note(shown: int, of: int, what: str) -> str:
    return f"showing {shown} of {of:,} {what}" if shown < of else f"{of:,} {what}"


def _piece(dbg: Any, token: int) -> Cell:
    vocab = getattr(dbg.model, "vocab", None)
    if vocab is None or token < 0:
        return _text("")
    return {
        "text": vocab.token_to_piece(token, special=True).decode("utf-8", "replace"),
        "piece": 1,
    }


def _header_field(here: Any, dbg: Any) -> Table:
    field = here.about
    raw = bytes(field.raw[:_HEX])
    more = " …" if field.size > _HEX else ""
    rows = [
        [_text("offset"), _number(field.offset, f"{here.name}.offset")],
        [_text("size"), _number(field.size, f"{here.name}.size")],
        [_text("bytes"), {"text": raw.hex(" ") + more, "code": 1}],
        [_text("value"), _text(here.value)],
        [_text("meaning"), _text(str(field.meaning))],
    ]
    return _table([], rows, "")


def _token_list(here: Any, dbg: Any) -> Table:
    ids = list(here.value[:_ROWS])
    rows = [
        [_text(str(i)), _number(t, f"{here.name}[{i}]"), _piece(dbg, int(t))]
        for i, t in enumerate(ids)
    ]
    return _table(["", "id", "piece"], rows, _note(len(ids), len(here.value), "tokens"))


def _chosen(here: Any, dbg: Any) -> Table:
    token = int(here.value)
    rows = [
        [_text("id"), _number(token, here.name)],
        [_text("piece"), _piece(dbg, token)],
    ]
    if isinstance(here.about, Mapping):
        rows += [[_text(str(k)), _text(v)] for k, v in here.about.items()]
    return _table([], rows, "")


def _batch(here: Any, dbg: Any) -> Table:
    batch = here.value
    n = len(batch.token)
    columns = [c for c in ("pos", "seq_id", "logits") if getattr(batch, c, None) is not None]
    output = getattr(batch, "output", None)
    rows = []
    for i in range(min(n, _ROWS)):
        token = int(batch.token[i])
        row = [_text(str(i)), _number(token, f"{here.name}.token[{i}]"), _piece(dbg, token)]
        row += [_text(_plain(getattr(batch, c)[i])) for c in columns]
        if output is not None and "logits" not in columns:
            row.append(_text("yes" if output[i] else ""))
        rows.append(row)
    heads = ["", "token", "piece", *columns]
    if output is not None and "logits" not in columns:
        heads.append("output")
    return _table(heads, rows, _note(len(rows), n, "tokens"))


def _plain(x: Any) -> str:
    if isinstance(x, (bool, np.bool_)):
        return "yes" if x else ""
    if isinstance(x, (tuple, list, np.ndarray)):
        return ", ".join(str(i) for i in x)
    return str(x)


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
    before = here.about.get("before") if isinstance(here.about, Mapping) else None
    was = f" (before this sampler: {len(before.id):,})" if before is not None else ""
    return _table(columns, rows, _note(len(rows), n, "candidates") + was)


def _cells(here: Any, dbg: Any) -> Table:
    pos = np.asarray(here.value.pos)
    used = np.flatnonzero(pos >= 0)
    rows = [
        [
            _number(int(i), f"{here.name}.cell"),
            _number(pos[i], f"{here.name}.pos[{i}]"),
            _piece(dbg, int(here.value.tok[i])),
            _text(", ".join(str(s) for s in np.flatnonzero(here.value.seq[:, i]))),
        ]
        for i in used[-_ROWS:]
    ]
    note = f"showing the last {len(rows)} of {used.size:,} used cells; {pos.size:,} in all"
    return _table(["cell", "pos", "token", "seq"], rows, note)


def _mapping(here: Any, dbg: Any) -> Table:
    return _fields(here.value)


def _object(here: Any, dbg: Any) -> Table:
    value = here.value
    names = getattr(value, "__slots__", None) or list(vars(value))
    return _fields({n: getattr(value, n, None) for n in names if not n.startswith("_")})


def _fields(mapping: Mapping[Any, Any]) -> Table:
    items = list(mapping.items())[:_ROWS]
    rows = [[_text(str(k)), _text(v)] for k, v in items]
    note = _note(len(items), len(mapping), "fields") if len(mapping) > _ROWS else ""
    return _table([], rows, note)


def _has(*names: str) -> Callable[[Any], bool]:
    return lambda here: all(hasattr(here.value, n) for n in names)


_KINDS: list[tuple[Callable[[Any], bool], Callable[[Any, Any], Table]]] = [
    (
        lambda h: all(hasattr(h.about, n) for n in ("offset", "size", "raw", "meaning")),
        _header_field,
    ),
    (lambda h: h.name == "tokens" and isinstance(h.value, (list, tuple)), _token_list),
    (lambda h: h.name == "token" and h.step == 16, _chosen),
    (_has("id", "logit", "p", "selected"), _candidates),
    (_has("pos", "tok", "seq"), _cells),
    (_has("token"), _batch),
    (lambda h: isinstance(h.value, Mapping), _mapping),
    (
        lambda h: isinstance(h.value, (str, bytes, int, float, type(None), list, tuple)),
        lambda h, d: _fields({"value": h.value}) if h.value is not None else _table([], [], ""),
    ),
    (lambda h: hasattr(h.value, "__slots__") or hasattr(h.value, "__dict__"), _object),
]
