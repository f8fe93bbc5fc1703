"""What is in this file? Header bytes beside their meaning, tensors, and one block taken apart.

A little over 400 lines: one widget, whose parts share what is selected.
"""

from __future__ import annotations

import os
from html import escape
from typing import Any

import numpy as np
import traitlets as t

from llmviz.errors import LlmvizError
from llmviz.gguf import GGUF, open_gguf
from llmviz.trace.blocks import inspect_block, n_blocks
from llmviz.widgets.base import View
from llmviz.widgets.gguf_fields import TEXT, groups, index_at, one_line, shown_text

__all__ = ["GGUFView"]

HEX_ROWS, ACROSS = 20, 16
TREE_ROWS = 14
TABLE_ROWS = 14
_SORTS = {
    "name": lambda i: i.name,
    "type": lambda i: (i.type.name, i.name),
    "shape": lambda i: (i.n_elements, i.name),
    "offset": lambda i: (i.part, i.abs_offset),
    "size": lambda i: (i.nbytes, i.name),
}


class GGUFView(View):
    """What is in this file?

    Parameters
    ----------
    model : Model, GGUF, str or PathLike
        Of a path only the header is read.
    **kwargs
        Traits of the view.

    Traits
    ------
    field : int
        Index of the chosen header field; settable, the bytes follow.
    hex_first : int
        Offset of the first byte shown; settable.
    sort, descending, filter : str, bool, str
        Of the table of tensors: by name, type, shape, offset or size; names and types that hold
        the text; settable.
    tensor : str
        The tensor whose block is taken apart; settable.
    block : int
        Which of its blocks; settable.
    tree_first, table_first : int
        First row shown of each; settable.
    file : dict
        name, path, arch, ftype, version, alignment, size, header, n_kv, n_tensors, n_groups,
        n_fields, parts.
    types : list of {type, n, nbytes, share}
        What the bytes of the file are, the header first, the largest type next.
    hex_bytes : bytes
        The bytes shown.
    hex_owner : bytes
        int32 for each of them: index of its field.
    hex_fields : list of {i, name, kind, owner, offset, size, text, meaning, n, group}
        The fields that the bytes shown belong to, and the chosen one.
    tree : list of {group, owner, what, offset, size, text, type, first, fields}
        The header's parts: one for the file's own fields, one for each key and for each tensor;
        `fields` of the one that is open.
    table : list of {name, type, shape, offset, size, part}
    table_total : int
    block_about : dict
        type, n_blocks, formula, zero, levels, table (the codes there are, or None), parts ({name,
        start, size, value}), holders, row (index of the block's first value in the tensor), reason
        (why there is none).
    block_raw, block_values, block_codes, block_scale, block_offset : bytes
        uint8, float32, int32, float32, float32.
    """

    view_name = "gguf"
    _ready = False
    _own = False

    here = t.Int(-1).tag(sync=True)
    error = t.Dict().tag(sync=True)
    field = t.Int(0).tag(sync=True)
    hex_first = t.Int(0).tag(sync=True)
    sort = t.Enum(tuple(_SORTS), default_value="offset").tag(sync=True)
    descending = t.Bool(False).tag(sync=True)
    filter = t.Unicode("").tag(sync=True)
    tensor = t.Unicode("").tag(sync=True)
    block = t.Int(0).tag(sync=True)
    tree_first = t.Int(0).tag(sync=True)
    table_first = t.Int(0).tag(sync=True)
    file = t.Dict().tag(sync=True)
    types: t.List = t.List().tag(sync=True)
    hex_bytes = t.Bytes(b"").tag(sync=True)
    hex_owner = t.Bytes(b"").tag(sync=True)
    hex_fields: t.List = t.List().tag(sync=True)
    tree: t.List = t.List().tag(sync=True)
    table: t.List = t.List().tag(sync=True)
    table_total = t.Int(0).tag(sync=True)
    block_about = t.Dict().tag(sync=True)
    block_raw = t.Bytes(b"").tag(sync=True)
    block_values = t.Bytes(b"").tag(sync=True)
    block_codes = t.Bytes(b"").tag(sync=True)
    block_scale = t.Bytes(b"").tag(sync=True)
    block_offset = t.Bytes(b"").tag(sync=True)

    def __init__(self, model: Any, **kwargs: Any) -> None:
        unknown = set(kwargs) - set(self._public_traits())
        if not unknown:  # else there is nothing to open a file for
            own = isinstance(model, (str, os.PathLike))
            self.gguf: GGUF = open_gguf(model) if own else getattr(model, "gguf", model)
            self._own = own
            if not isinstance(self.gguf, GGUF):
                raise LlmvizError(
                    f"a file is shown of a path, a model or a GGUF, not of {model!r:.80}"
                )
        super().__init__(**kwargs)
        self._groups = groups(self.gguf.fields)
        self._group_of = np.repeat(
            np.arange(len(self._groups)), [last - first for first, last in self._groups]
        )
        self.on_msg(self._on_message)
        self._draw_file()
        if not self.tensor:
            infos = list(self.gguf.tensor_infos.values())
            most = next((x["type"] for x in self.types if x["n"]), "")
            first = [i for i in infos if i.type.name == most]
            self.tensor = first[0].name if first else ""
        self._ready = True
        self._draw()

    def close(self) -> None:
        """Let go of the page's side, and of the file where the view opened it."""
        if self._own and not self.closed:
            self.gguf.close()
        super().close()

    def show_offset(self, offset: int) -> None:
        """Choose the header field that a byte belongs to; the bytes and the parts follow."""
        self.field = index_at(self.gguf.fields, offset)

    # -- drawing -------------------------------------------------------------------------------

    @t.observe("field")
    def _go_to_field(self, change: Any) -> None:
        if not self._ready:
            return
        self._ready = False
        self.field = max(0, min(self.field, len(self.gguf.fields) - 1))
        f = self.gguf.fields[self.field]
        end = self.hex_first + HEX_ROWS * ACROSS
        if not (self.hex_first <= f.offset and min(f.end, f.offset + ACROSS) <= end):
            self.hex_first = max(0, f.offset // ACROSS * ACROSS - 2 * ACROSS)
        group = int(self._group_of[self.field])
        if not self.tree_first <= group < self.tree_first + TREE_ROWS:
            self.tree_first = max(0, group - 3)
        self._ready = True
        self._draw()

    @t.observe("hex_first", "tree_first", "table_first", "tensor", "block")
    def _elsewhere(self, change: Any) -> None:
        if self._ready:
            self._draw()

    @t.observe("sort", "descending", "filter")
    def _sorted(self, change: Any) -> None:
        if self._ready:
            self._ready = False
            self.table_first = 0
            self._ready = True
            self._draw()

    def _draw(self) -> None:
        self._ready = False
        try:
            with self.hold_sync():
                self._draw_hex()
                self._draw_tree()
                self._draw_table()
                self._draw_block()
                self.rev += 1
        finally:
            self._ready = True

    def _draw_file(self) -> None:
        g = self.gguf
        self.file = {
            "name": str(g.kv.get("general.name") or os.path.basename(str(g.path)))[:TEXT],
            "path": os.path.basename(str(g.path)),
            "arch": str(g.kv.get("general.architecture", ""))[:TEXT],
            "ftype": g.ftype_name(),
            "version": g.version,
            "alignment": g.alignment,
            "size": sum(p.file_size for p in g.parts),
            "header": g.data_offset,
            "n_values": g.n_elements,
            "n_kv": len(g.kv),
            "n_tensors": len(g.tensor_infos),
            "n_groups": len(self._groups),
            "n_fields": len(g.fields),
            "parts": len(g.parts),
        }
        sizes: dict[str, list[int]] = {}
        for info in g.tensor_infos.values():
            entry = sizes.setdefault(info.type.name, [0, 0])
            entry[0] += 1
            entry[1] += info.nbytes
        whole = max(1, self.file["size"])
        rows = [("header", 0, sum(p.data_offset for p in g.parts))]
        rows += sorted(((k, n, b) for k, (n, b) in sizes.items()), key=lambda r: -r[2])
        left = whole - sum(b for _, _, b in rows)
        if left > 0:
            rows.append(("padding", 0, left))
        self.types = [{"type": k, "n": n, "nbytes": b, "share": b / whole} for k, n, b in rows if b]

    def _draw_hex(self) -> None:
        g = self.gguf
        room = HEX_ROWS * ACROSS
        last = max(0, -(-g.data_offset // ACROSS) * ACROSS - room)
        self.hex_first = max(0, min(self.hex_first // ACROSS * ACROSS, last))
        end = min(g.data_offset, self.hex_first + room)
        first = g.field_at(self.hex_first) if end > self.hex_first else None
        raw, owner, seen = bytearray(), [], []
        index = index_at(g.fields, self.hex_first) if first is not None else 0
        while index < len(g.fields) and g.fields[index].offset < end:
            f = g.fields[index]
            a, b = max(f.offset, self.hex_first), min(f.end, end)
            if b > a:
                assert f.source is not None
                raw += f.source.read(a, b - a)  # a part of it: an array may be large
                owner += [index] * (b - a)
                seen.append(index)
            index += 1
        self.hex_bytes = bytes(raw)
        self.hex_owner = np.array(owner, "<i4").tobytes()
        if self.field not in seen:
            seen.append(self.field)
        self.hex_fields = [self._field(i) for i in seen if i < len(g.fields)]

    def _field(self, i: int) -> dict[str, Any]:
        f = self.gguf.fields[i]
        return {
            "i": i,
            "name": f.name[:TEXT],
            "kind": f.kind,
            "owner": f.owner[:TEXT],
            "offset": f.offset,
            "size": f.size,
            "text": shown_text(f),
            "meaning": f.meaning,
            "n": f.n_elements,
            "group": int(self._group_of[i]),
        }

    def _draw_tree(self) -> None:
        g = self.gguf
        n = len(self._groups)
        self.tree_first = max(0, min(self.tree_first, n - TREE_ROWS))
        opened = int(self._group_of[self.field]) if len(self._group_of) else -1
        out = []
        for group in range(self.tree_first, min(n, self.tree_first + TREE_ROWS)):
            first, last = self._groups[group]
            f, end = g.fields[first], g.fields[last - 1]
            what = "key" if f.owner in g.kv and f.kind.startswith("key") else (
                "tensor" if f.owner else f.kind if f.kind == "padding" else "file"
            )  # fmt: skip
            value = next(
                (g.fields[i] for i in range(first, last) if g.fields[i].kind == "value"), None
            )
            text, label = "", ""
            if what == "key":
                text, label = shown_text(value) if value is not None else "", g.type_label(f.owner)
            elif what == "tensor":
                info = g.tensor_infos[f.owner]
                text, label = " × ".join(map(str, info.shape)), info.type.name
            elif what == "file":
                text = f"GGUF version {g.version}"
            out.append(
                {
                    "group": group,
                    "owner": (f.owner or ("header" if what == "file" else f.kind))[:TEXT],
                    "what": what,
                    "offset": f.offset,
                    "size": end.end - f.offset,
                    "text": text,
                    "type": label,
                    "first": first,
                    "value": first
                    + next((k for k, x in enumerate(g.fields[first:last]) if x is value), 0),
                    "fields": [self._field(i) for i in range(first, last)]
                    if group == opened
                    else [],
                }
            )
        self.tree = out

    def _draw_table(self) -> None:
        wanted = self.filter.lower().split()
        infos = [
            i
            for i in self.gguf.tensor_infos.values()
            if all(w in f"{i.name} {i.type.name}".lower() for w in wanted)
        ]
        infos.sort(key=_SORTS[self.sort], reverse=self.descending)
        self.table_total = len(infos)
        self.table_first = max(0, min(self.table_first, len(infos) - TABLE_ROWS))
        self.table = [
            {
                "name": i.name[:TEXT],
                "type": i.type.name,
                "shape": list(i.shape),
                "offset": i.abs_offset,
                "size": i.nbytes,
                "part": i.part,
            }
            for i in infos[self.table_first : self.table_first + TABLE_ROWS]
        ]

    def _draw_block(self) -> None:
        info = self.gguf.tensor_infos.get(self.tensor)
        self.block_raw = self.block_values = self.block_codes = b""
        self.block_scale = self.block_offset = b""
        if info is None:
            self.block_about = {"reason": "Choose a tensor."}
            return
        try:
            n = n_blocks(info)
            self.block = max(0, min(self.block, n - 1))
            b = inspect_block(self.gguf, info, self.block)
        except (LlmvizError, IndexError) as error:
            self.block_about = {"reason": str(error), "type": info.type.name}
            return
        self.block_raw = b.raw
        self.block_values = b.values.astype("<f4").tobytes()
        self.block_codes = b.codes.astype("<i4").tobytes()
        self.block_scale = b.scale.astype("<f4").tobytes()
        self.block_offset = b.offset.astype("<f4").tobytes()
        row, column = divmod(self.block * len(b.values), max(1, info.ne[0]))
        self.block_about = {
            "type": info.type.name,
            "shape": list(info.shape),
            "n_blocks": n,
            "formula": b.formula,
            "zero": b.zero,
            "levels": b.levels,
            "table": list(b.table) if b.table else None,
            "parts": [
                {"name": p.name, "start": p.start, "size": p.size, "value": p.value}
                for p in b.parts
            ],
            "holders": [list(h) for h in b.holders],
            "row": row,
            "column": column,
            "at": info.abs_offset + self.block * len(b.raw),
        }

    # -- what the page asks --------------------------------------------------------------------

    def byte(self, offset: int) -> dict[str, Any]:
        """What one byte of the header belongs to: field, element, and the element's text."""
        f = self.gguf.field_at(offset)
        i = index_at(self.gguf.fields, offset)
        out: dict[str, Any] = {"field": i, "name": f.name, "meaning": f.meaning}
        if f.n_elements > 1:
            k = f.element_at(offset)
            start, size = f.element_span(k)
            out |= {"element": k, "n": f.n_elements, "start": start, "size": size}
            out["text"] = one_line(f.value[k])
        return out

    def _on_message(self, _: Any, message: Any, buffers: Any) -> None:
        if not isinstance(message, dict) or message.get("ask") != "gguf-byte":
            return
        try:
            reply: dict[str, Any] = {"value": self.byte(int(message["offset"]))}
        except (IndexError, KeyError, TypeError, ValueError) as error:
            reply = {"error": str(error)}
        self.send({"reply": message.get("id"), **reply})

    # -- elsewhere -----------------------------------------------------------------------------

    def figure(self, view: str = "gguf", **options: Any) -> Any:
        """The view as a matplotlib figure; see `llmviz.plots.gguf`."""
        from llmviz import plots

        return plots.gguf(self.gguf, tensor=self.tensor, block=self.block, **options)

    def _lines(self) -> list[tuple[str, str]]:
        f = self.file
        out = [
            ("file", f"{f['name']}, {f['arch']}, {f['ftype']}, {f['size']} bytes"),
            ("header", f"{f['header']} bytes, {f['n_kv']} keys, {f['n_tensors']} tensors"),
        ]
        return out + [
            (x["type"], f"{x['n']} tensors, {x['nbytes']} bytes, {x['share']:.1%}")
            for x in self.types
        ]

    def fallback_text(self) -> str:
        """What the file holds, in plain lines."""
        return "\n".join(("llmviz GGUFView", *(f"  {a}: {b}" for a, b in self._lines())))

    def fallback_html(self) -> str:
        """What the file holds, as a static table."""
        rows = "".join(
            f'<tr><th style="text-align:left">{escape(a)}</th>'
            f'<td style="text-align:left">{escape(b)}</td></tr>'
            for a, b in self._lines()
        )
        return f"<table><caption>llmviz GGUFView</caption><tbody>{rows}</tbody></table>"
