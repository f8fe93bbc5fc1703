"""A trace file's tables as the records that a recorder holds: the inverse of `storage`.

Everything is checked while it is turned into records: types, lengths, numbers that point into
another table. Attention and kept values are read when they are asked for.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from llmviz.model.hparams import LLAMA_MAX_LAYERS
from llmviz.trace.kept import Kept
from llmviz.trace.records import Alternative, AttentionBlock, CellsRecord, TokenRecord
from llmviz.trace.storage import FORMAT
from llmviz.trace.storage_columns import Attributes, Checked, RecordTable
from llmviz.trace.storage_graph import HeldTensor, read_graph
from llmviz.trace.storage_log import KINDS, CellsChange, LogitsRow
from llmviz.trace.storage_samplers import read_samplers
from llmviz.trace.storage_values import GROUP, unpack
from llmviz.trace.summary import Statistics

__all__ = ["Stored"]

MOST_CELLS = 1 << 22
MOST_SEQUENCES = 1 << 10
_CELLS_KNOWN = 8
MOST_SEQ_CELLS = 1 << 26  # cells times sequences
_NO_TEXT = "\N{REPLACEMENT CHARACTER}"


class Stored(Checked):
    """What one trace file holds.

    Parameters
    ----------
    path : str or PathLike
    max_bytes : int
        What all arrays that are read may take together.

    Raises
    ------
    TraceError
        For any file that is no whole trace of this version.

    Attributes
    ----------
    attrs : Attributes
    events : RecordTable
    tokens : list of TokenRecord
    logits : list of LogitsRow
    samplers : list of SamplerRow
    cells : list of CellsChange
    graph : list of HeldTensor
        Nodes of the last graph, in order; empty where the trace has none.
    """

    def __init__(self, path: Any, max_bytes: int) -> None:
        super().__init__(path, max_bytes)
        self._known_statistics: dict[str, list[tuple[int, Statistics]]] = {}
        self._cells_known: dict[int, CellsRecord] = {}  # by how many changes led to them
        try:
            self._check_version()
            self._pieces = self._read_pieces()
            self.events = self._read_events()
            self.tokens = self._read_tokens()
            self.logits = self._read_logits()
            self.samplers = list(read_samplers(self))
            self.cells = list(self._read_cells())
            self.graph: list[HeldTensor] = read_graph(self)
        except BaseException:
            self.zip.close()
            raise

    def _check_version(self) -> None:
        version = self.attrs.get("llmviz_format", int, 0)
        if version != FORMAT:
            by = self.attrs.get("llmviz_version", str, "") or "an unknown version"
            what = f"a trace of format {version}" if version else "no llmviz trace"
            raise self.error(
                f"this is {what} (written by {by[:40]}); this llmviz reads format {FORMAT}: "
                "save it again, or use the llmviz that wrote it"
            )

    # -- tables --------------------------------------------------------------------------------

    def _read_pieces(self) -> dict[int, tuple[bytes, str]]:
        out: dict[int, tuple[bytes, str]] = {}
        for key, value in self.attrs.get("pieces", dict, {}).items():
            try:
                raw, text = value
                if not isinstance(text, str):
                    raise TypeError(f"a text is expected, not {type(text).__name__}")
                out[int(key)] = (bytes.fromhex(raw), text)
            except (TypeError, ValueError) as error:
                raise self.error(f"token {key[:20]!r}: {error}", "attributes.pieces") from error
        return out

    def piece(self, token: int) -> bytes:
        """A token's bytes; empty where the trace does not name it."""
        return self._pieces.get(token, (b"", ""))[0]

    def text(self, token: int) -> str:
        """A token's text."""
        return self._pieces.get(token, (b"", _NO_TEXT))[1]

    def _read_events(self) -> RecordTable:
        names = self.attrs.texts("names")
        shapes: list[tuple[tuple[int, ...], str]] = []
        for entry in self.attrs.get("shapes", list, []):
            ok = isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], list)
            if not ok or not all(type(n) is int for n in entry[0]) or type(entry[1]) is not str:
                raise self.error("a shape is a list of whole numbers, and a type", "shapes")
            shapes.append((tuple(entry[0]), entry[1]))
        t = self.table("event", n="iu", name="iu", kind="iu", step="iu", depth="iu", shape="i")
        if t["n"].size and (np.diff(t["n"].astype(np.int64)) <= 0).any():
            raise self.error("numbers of events do not grow", "event_n")
        self.ordered("event_n", t["n"])
        self.within("event_name", t["name"], 0, len(names))
        self.within("event_kind", t["kind"], 0, len(KINDS))
        self.within("event_step", t["step"], 1, 17)
        self.within("event_shape", t["shape"], -1, len(shapes))
        return RecordTable(**t, names=names, shapes=shapes)

    def _read_tokens(self) -> list[TokenRecord]:
        t = self.table(
            "token", id="i", pos="i", n="i", given="b", rank="i", logit="f", p_raw="f", p="f"
        )
        count = len(t["id"])
        self.ordered("token_n", t["n"])
        self.column("token_text", "i", 1, count)
        about = Attributes(self.zip.info("token_text").attrs, "token_text", self.zip.path)
        texts, pieces = about.texts("texts"), about.texts("pieces")
        if len(texts) != count or len(pieces) != count:
            raise self.error(f"{len(texts)} texts for {count} tokens", "token_text")
        try:
            raws = [bytes.fromhex(p) for p in pieces]
        except ValueError as error:
            raise self.error(f"a piece is no hexadecimal text: {error}", "token_text") from error
        tops = self._alternatives("token_top", count)
        columns = [t[k].tolist() for k in ("id", "pos", "n", "given")]
        numbers = [[_given(x) for x in t[k].tolist()] for k in ("logit", "p_raw", "p")]
        ranks = [rank if rank >= 0 else None for rank in t["rank"].tolist()]
        return [
            TokenRecord(i, raw, text, pos, n, given, logit, p_raw, p, rank, top)
            for i, pos, n, given, raw, text, logit, p_raw, p, rank, top in zip(
                *columns, raws, texts, *numbers, ranks, tops, strict=True
            )
        ]

    def _alternatives(self, prefix: str, count: int) -> list[tuple[Alternative, ...]]:
        ids = self.column(f"{prefix}_id", "i", 2, count)
        cut = self.column(f"{prefix}_cut", "b", 2, count)
        numbers = [self.column(f"{prefix}_{k}", "f", 2, count) for k in ("logit", "p_raw", "p")]
        if any(x.shape != ids.shape for x in (cut, *numbers)):
            raise self.error("the columns differ in width", prefix)
        return [
            tuple(
                Alternative(i, self.text(i), logit, p_raw, _given(p), c)
                for i, logit, p_raw, p, c in zip(*row, strict=True)
                if i >= 0
            )
            for row in zip(ids.tolist(), *(x.tolist() for x in numbers), cut.tolist(), strict=True)
        ]

    def _read_logits(self) -> list[LogitsRow]:
        t = self.table("logits", n="i", n_vocab="i")
        self.ordered("logits_n", t["n"])
        tops = self._alternatives("logits_top", len(t["n"]))
        full: dict[int, np.ndarray] = {}
        if self.zip.has("logits"):
            rows = self.column("logits", "f", 2)
            for n, row in zip(self.column("row_n", "i", 1, len(rows)).tolist(), rows):
                full[n] = row
        numbers = zip(t["n"].tolist(), t["n_vocab"].tolist(), strict=True)
        return [
            LogitsRow(n, n_vocab, top, full.get(n))
            for (n, n_vocab), top in zip(numbers, tops, strict=True)
        ]

    def _read_cells(self) -> Iterator[CellsChange]:
        t = self.table("cells", n="i", size="i", n_seq="i", changes="i")
        c = self.table("cell", index="i", pos="i", token="i")
        total = len(c["index"])
        seq = self.column("cell_seq", "b", 2)
        self.ordered("cells_n", t["n"])
        self.within("cells_size", t["size"], 0, MOST_CELLS + 1)
        self.within("cells_n_seq", t["n_seq"], 0, min(len(seq), MOST_SEQUENCES) + 1)
        self.within("cells_changes", t["changes"], 0, total + 1)
        flags = t["size"].astype(np.int64) * t["n_seq"]
        self.within("cells_size", flags, 0, MOST_SEQ_CELLS + 1)
        if seq.shape[1] != total or int(t["changes"].sum()) != total:
            raise self.error(f"changes of {total} cells do not add up", "cells_changes")
        start = 0
        columns = (t[k].tolist() for k in ("n", "size", "n_seq", "changes"))
        for n, size, n_seq, count in zip(*columns, strict=True):
            part = slice(start, start + count)
            self.within("cell_index", c["index"][part], 0, size)
            yield CellsChange(
                n,
                size,
                n_seq,
                c["index"][part],
                c["pos"][part],
                c["token"][part],
                seq[:n_seq, part],
            )
            start += count

    def cells_at(self, n: int) -> CellsRecord | None:
        """The KV cache as it was at event n; the same record for all events up to the next change.

        Of the states only the latest are held: a long run has many, and of many cells each.
        """
        count = bisect_right(self.cells, n, key=lambda c: c.n)
        if count == 0:
            return None
        if count not in self._cells_known:
            at = max((k for k in self._cells_known if k < count), default=0)
            record = self._cells_known.get(at)
            for change in self.cells[at:count]:
                record = change.after(record)
            assert record is not None
            self._cells_known[count] = record
            while len(self._cells_known) > _CELLS_KNOWN:
                del self._cells_known[next(iter(self._cells_known))]
        return self._cells_known[count]

    # -- what is read when it is asked for -------------------------------------------------------

    @cached_property
    def _statistics(self) -> dict[str, np.ndarray]:
        """The columns, ordered by name and then by event."""
        whole = dict.fromkeys(("n", "name"), "iu") | dict.fromkeys(("count", "nan", "inf"), "i")
        t = self.table("statistic", **whole, **dict.fromkeys(("min", "max", "mean", "std"), "f"))
        self.ordered("statistic_n", t["n"])
        self.within("statistic_name", t["name"], 0, len(self.events.names))
        order = np.argsort(t["name"], kind="stable")
        return {k: v[order] for k, v in t.items()}

    @property
    def n_statistics(self) -> int:
        """How many there are, of all nodes and passes."""
        return len(self._statistics["n"])

    def statistics(self, name: str) -> list[tuple[int, Statistics]]:
        """Event numbers and statistics of a node, oldest first; empty if it was never watched."""
        known = self._known_statistics.get(name)
        if known is None:
            t = self._statistics
            number = self._number_of.get(name, -1)
            a, b = np.searchsorted(t["name"], [number, number + 1])
            columns = [t[k][a:b].tolist() for k in ("n", "count", "nan", "inf")]
            columns += [
                list(map(_given, t[k][a:b].tolist())) for k in ("min", "max", "mean", "std")
            ]
            known = [(n, Statistics(*rest)) for n, *rest in zip(*columns, strict=True)]
            self._known_statistics[name] = known
        return known

    @cached_property
    def _number_of(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.events.names)}

    @cached_property
    def attention(self) -> dict[int, list[AttentionBlock]]:
        """By layer, oldest first; float32 whatever the file holds."""
        if not self.zip.has("attention"):
            return {}
        info = self.zip.info("attention")
        if info.dtype.kind != "f" or len(info.shape) != 4:
            raise self.error(f"{info.dtype} {list(info.shape)} is no attention", "attention")
        n_layer, n_head, n_query, n_key = info.shape
        layers = self.column("layer", "i", 1, n_layer)
        self.within("layer", layers, 0, LLAMA_MAX_LAYERS)
        query_pos, key_pos = (
            self.column("query_pos", "i", 1, n_query),
            self.column("key_pos", "i", 2),
        )
        names = ("n", "layer", "query", "n_head", "n_query", "n_key", "key_set")
        t = self.table("block", **dict.fromkeys(names, "i"))
        tops = (n_layer, n_query, n_head + 1, n_query + 1, n_key + 1, len(key_pos))
        for name, top in zip(names[1:], tops):
            self.within(f"block_{name}", t[name], 0, top)
        self.within("block_n_key", t["n_key"], 0, key_pos.shape[1] + 1)
        self.within("block_n_query", t["query"] + t["n_query"], 0, n_query + 1)
        out: dict[int, list[AttentionBlock]] = {}
        for i, il in enumerate(layers.tolist()):
            mine = np.flatnonzero(t["layer"] == i)
            self.ordered("block_n", t["n"][mine])
            if not mine.size:
                continue
            held = self.zip.array("attention", i, sparse=True).astype(np.float32, copy=False)
            out[il] = [
                AttentionBlock(
                    int(t["n"][b]),
                    il,
                    query_pos[t["query"][b] : t["query"][b] + t["n_query"][b]],
                    key_pos[t["key_set"][b]][: t["n_key"][b]],
                    held[
                        : t["n_head"][b],
                        t["query"][b] : t["query"][b] + t["n_query"][b],
                        : t["n_key"][b],
                    ],
                )
                for b in mine.tolist()
            ]
        return out

    @cached_property
    def _values(self) -> dict[str, list[str]]:
        """By node: the arrays that hold its copies."""
        out: dict[str, list[str]] = {}
        for array in self.zip.names(GROUP):
            about = Attributes(self.zip.info(array).attrs, array, self.zip.path)
            out.setdefault(about.get("name", str, ""), []).append(array)
        return out

    def value_names(self) -> list[str]:
        """Nodes and inputs of which copies are held."""
        return self._value_names

    @cached_property
    def _value_names(self) -> list[str]:
        return sorted(self._values)

    def values(self, name: str) -> deque[Kept]:
        """Copies of a node or input, oldest first."""
        out: list[Kept] = []
        for array in self._values.get(name, ()):
            about = Attributes(self.zip.info(array).attrs, array, self.zip.path)
            shapes = about.get("shapes", list, [])
            n, passes = about.numbers("n"), about.numbers("pass")
            if len(n) != len(shapes) or len(passes) != len(shapes):
                raise self.error(f"{len(n)} events for {len(shapes)} shapes", array)
            if not all(isinstance(s, list) and all(type(x) is int for x in s) for s in shapes):
                raise self.error("a shape is a list of whole numbers", array)
            data = self.zip.array(array)
            try:
                parts = unpack(data, [tuple(s) for s in shapes], about.get("along", int, 0))
            except ValueError as error:
                raise self.error(str(error), array) from error
            ops = about.texts("ops")
            if len(ops) != len(n):
                raise self.error(f"{len(ops)} ops for {len(n)} events", array)
            for i, part in enumerate(parts):
                out.append(Kept(name, n[i], part, self.tensor(name, part.ndim, ops[i]), passes[i]))
        return deque(sorted(out, key=lambda k: k.n))

    def tensor(self, name: str, ndim: int | None = None, op: str = "", nth: int = -1) -> HeldTensor:
        """The nth tensor of the graph with this name and rank (and op, where there is one such).

        One that has only a name and an op where the graph is not known.
        """
        named = self._tensors.get(name, [])
        fits = [t for t in named if ndim is None or len(t.shape) == ndim] or named
        fits = [t for t in fits if t.op == op] or fits or [HeldTensor(name, op)]
        return fits[min(nth, len(fits) - 1)]

    def nth_in_pass(self, i: int) -> int:
        """How many events of the same name and rank came before event index i in its ubatch."""
        t = self.events
        begins = np.flatnonzero(
            (t.kind[:i] == 0) & (t.step[:i] == 13) & (t.name[:i] == self.ubatch_name)
        )
        first = int(begins[-1]) if begins.size else 0
        rank = self._ranks[t.shape[first : i + 1]]
        return int(((t.name[first:i] == t.name[i]) & (rank[:-1] == rank[-1])).sum())

    @cached_property
    def _ranks(self) -> np.ndarray:
        """Rank of each shape; the last is that of index -1, no shape."""
        return np.array([*(len(shape) for shape, _ in self.events.shapes), -1])

    @cached_property
    def ubatch_name(self) -> int:
        """Number of the name of the scope that a ubatch is; -1 where there was none."""
        return self._number_of.get("process_ubatch", -1)

    @cached_property
    def _tensors(self) -> dict[str, list[HeldTensor]]:
        out: dict[str, list[HeldTensor]] = {}
        for t in self.graph:
            for x in (*t.src, t):
                if x.name not in out or x not in out[x.name]:
                    out.setdefault(x.name, []).append(x)
        return out


def _given(x: float) -> float | None:
    """A number, None for NaN."""
    return None if x != x else x
