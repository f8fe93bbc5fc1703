"""What an opened trace shows in the place of the engine's objects: model, recorder, values.

A little over 400 lines: the stand-ins read one another, and are read best side by side.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from llmviz.events import Event
from llmviz.model.hparams import LLAMA_MAX_LAYERS
from llmviz.trace.branches import Branch
from llmviz.trace.edits import Edit, Intervention, Switch
from llmviz.trace.kept import Kept
from llmviz.trace.recorder import ATTENTION, Recorder
from llmviz.trace.records import AttentionBlock
from llmviz.trace.samplings import SamplerRow
from llmviz.trace.storage_read import Stored
from llmviz.trace.summary import Statistics
from llmviz.trace.timeline import Here, Record, shape_text

__all__ = [
    "Candidates",
    "Cells",
    "HeldHere",
    "HeldModel",
    "HeldRecorder",
    "Past",
    "held_branches",
    "held_edits",
    "held_value",
]

ABSENT = "not in this trace: the recorder was not asked to keep it"


class HeldHere(Here):
    """The event at which a trace's cursor stands; `value` is what the trace holds of it.

    Where the value itself is not held, `value` is a mapping that says so and gives the shape and
    the statistics, if there are any.
    """

    __slots__ = ("_record",)

    def __init__(self, record: Record, value: Any, about: Any) -> None:
        event = Event(record.kind, record.name, record.depth, record.step, value, about)
        super().__init__(record.n, event)
        self._record = record

    @property
    def shape(self) -> tuple[int, ...] | None:
        # Attention is held without the cells that were empty: what is held counts.
        return super().shape or self._record.shape

    @property
    def dtype(self) -> str | None:
        return super().dtype or self._record.dtype


class Past(Sequence[Record]):
    """The first records of a table; nothing is copied."""

    def __init__(self, table: Sequence[Record], count: int) -> None:
        self._table, self._count = table, count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return [self._table[j] for j in range(*i.indices(self._count))]
        if not -self._count <= i < self._count:
            raise IndexError(f"event {i} of {self._count}")
        return self._table[i % self._count]


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Cells of a KV cache, as `llmviz.memory` shows them."""

    pos: np.ndarray
    tok: np.ndarray
    seq: np.ndarray


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """The candidates that a sampler left, those with the largest logits.

    Attributes
    ----------
    id, logit, p : ndarray
    selected : int
        Index of the one that was picked, -1 for none.
    size : int
        How many there were in all.
    """

    id: np.ndarray
    logit: np.ndarray
    p: np.ndarray
    selected: int
    size: int
    sorted: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class HeldStep:
    """What a sampler did: `why` in one sentence, its `threshold`, and the number it drew."""

    why: str
    threshold: float | None
    draw: float | None


class HeldHParams:
    """Hyperparameters of a trace's model, by llama.cpp's names."""

    def __init__(self, found: dict[str, Any]) -> None:
        for name, value in found.items():
            if name.isidentifier() and not name.startswith("_") and not hasattr(type(self), name):
                setattr(self, name, value)
        self.n_layer = _whole(found.get("n_layer"))
        self._found = found

    def n_head(self, il: int = 0) -> int:
        """Query heads of layer `il`."""
        return self._of_layer("n_head_arr", il)

    def n_head_kv(self, il: int = 0) -> int:
        """Key/value heads of layer `il`."""
        return self._of_layer("n_head_kv_arr", il)

    def n_ff(self, il: int = 0) -> int:
        """Width of the feed-forward network of layer `il`."""
        return self._of_layer("n_ff_arr", il)

    def _of_layer(self, name: str, il: int) -> int:
        found = self._found.get(name)
        return _whole(found[il]) if isinstance(found, list) else _whole(found)


class HeldVocab:
    """The tokens that a trace mentions; others have no text in it."""

    def __init__(self, stored: Stored, n_tokens: int) -> None:
        self._stored = stored
        self.n_tokens = n_tokens

    def token_to_piece(self, token: int, lstrip: int = 0, special: bool = False) -> bytes:
        """A token's bytes; empty for one that the trace does not mention."""
        return self._stored.piece(token)


class HeldModel:
    """What a trace tells of its model; there are no weights.

    Attributes
    ----------
    desc, arch, path : str
    hparams : HeldHParams
    vocab : HeldVocab
    """

    weights = None
    vocab_only = False

    def __init__(self, stored: Stored) -> None:
        about = stored.attrs.part("model")
        self.desc = about.get("desc", str, "")
        self.arch = about.get("arch", str, "")
        self.path = about.get("file", str, "")
        self.hparams = HeldHParams(stored.attrs.get("hparams", dict, {}))
        if not 0 <= self.hparams.n_layer <= LLAMA_MAX_LAYERS:  # views make room for them
            raise stored.error(
                f"{self.hparams.n_layer:,} layers are claimed; {LLAMA_MAX_LAYERS} is the most",
                "attributes.hparams",
            )
        self.vocab = HeldVocab(stored, about.get("n_vocab", int, 0))

    def __repr__(self) -> str:
        return f"<model of a trace: {self.desc or 'unknown'}>"


class HeldRecorder(Recorder):
    """A recorder as it was at the event of a trace's cursor; it records nothing more."""

    def __init__(self, stored: Stored) -> None:
        super().__init__(piece_of=stored.piece)
        self._stored = stored
        self._at = -1
        self._copies: dict[str, deque[Kept]] = {}
        self.dropped = stored.attrs.get("dropped", int, 0)
        self._text = stored.attrs.get("dropped_text", str, "")
        self.engine = stored.attrs.part("engine").get("name", str, "llmviz")
        enters = (stored.events.kind == 0) & (stored.events.name == stored.ubatch_name)
        self._passes = stored.events.n[enters]
        self._attention: dict[int, deque[AttentionBlock]] | None = None

    @property
    def dropped_text(self) -> str:
        """What was dropped while the trace was recorded."""
        return self._text

    def stand_at(self, n: int, at_end: bool) -> None:
        """Show what was known at event n."""
        stored = self._stored
        self._at = n
        self.tokens = stored.tokens[: bisect_right(stored.tokens, n, key=lambda k: k.n)]
        self.cells = stored.cells_at(n)
        self.passes = int(np.searchsorted(self._passes, n, side="right"))
        count = bisect_right(stored.logits, n, key=lambda r: r.n)
        row = stored.logits[count - 1] if count else None
        self.logits = row.row if row is not None else None
        self.logits_n = row.n if row is not None else -1
        self.top = row.top if row is not None else ()
        if self.tokens and not self.tokens[-1].given and self.tokens[-1].n > self.logits_n:
            self.top = self.tokens[-1].top or self.top
        self.stop = stored.attrs.get("stop", str, "") if at_end else ""
        self.rest = stored.attrs.get("rest", str, "") if at_end else ""
        self._attention = None

    @property
    def attention(self) -> dict[int, deque[AttentionBlock]]:
        """Attention computed up to here, read from the file when it is first asked for."""
        if self._attention is None:
            found = self._stored.attention if self._at >= 0 else {}
            self._attention = {}
            for il, blocks in found.items():
                count = bisect_right(blocks, self._at, key=lambda b: b.n)
                if count:
                    self._attention[il] = deque(blocks[:count])
        return self._attention

    @attention.setter
    def attention(self, value: dict[int, deque[AttentionBlock]]) -> None:
        self._attention = value

    @property
    def ubatches(self) -> deque[Kept]:
        """Where the nodes were kept of a graph without ``inp_pos``: what its attention tells."""
        kept, found = self._stored.value_names(), self.attention
        if "inp_pos" in kept or "attn_inp_kq_mask" not in kept or not found:
            return deque()
        out: deque[Kept] = deque()
        for block in found[min(found)]:
            pass_ = int(np.searchsorted(self._passes, block.n, side="right")) - 1
            begin = int(self._passes[pass_])
            out.append(Kept("process_ubatch", begin, block.q_pos, None, pass_))
        return out

    def ask(self, owner: object, want: Callable[[str], bool]) -> None:
        """A trace keeps what it has: nothing is recorded any more."""

    def release(self, owner: object) -> None:
        """Nothing was asked for."""

    def values(self, name: str) -> list[Kept]:
        """Copies of a node or input up to here, oldest first."""
        if name not in self._copies:
            self._copies[name] = self._stored.values(name)
        return [k for k in self._copies[name] if k.n <= self._at]

    def value(self, name: str) -> Kept | None:
        """The latest copy up to here, None where there is none."""
        held = self.values(name)
        return held[-1] if held else None

    def stats(self, name: str, n: int | None = None) -> Statistics | None:
        """Statistics of a node when it was last watched, or at event `n`; None if it never was."""
        done = self._stored.statistics(name)
        count = bisect_right(done, self._at, key=lambda x: x[0])
        if not count or (n is not None and done[count - 1][0] != n):
            return None
        return done[count - 1][1]


def held_value(stored: Stored, recorder: HeldRecorder, i: int) -> tuple[Any, Any]:
    """What a trace holds of event index i: its value, or a mapping that says what is missing, and
    its `about`.

    The recorder stands at this event.
    """
    record: Record = stored.events[i]
    n, name = record.n, record.name
    if record.kind == "node":
        rank = None if record.shape is None else len(record.shape)
        tensor = stored.tensor(name, rank, nth=stored.nth_in_pass(i))
        value = next((k.array for k in recorder.values(name) if k.n == n), None)
        if value is None and name.startswith(ATTENTION):
            blocks = recorder.attention.get(tensor.il if tensor.il >= 0 else _tail(name), ())
            value = next((b.p for b in blocks if b.n == n), None)
        return (value if value is not None else _missing(stored, record)), tensor
    if record.kind != "data":
        return None, None
    if record.step == 9 and name == "tokens":
        return [k.id for k in recorder.tokens if k.n == n], None
    if record.step == 16 and name == "token":
        token = next((k for k in recorder.tokens if k.n == n), None)
        return (token.id, {"piece": token.piece, "text": token.text}) if token else (None, None)
    if record.step == 16 and name == "stop":
        return stored.attrs.get("stop", str, ""), None
    if record.step == 13 and name == "kv_cells" and recorder.cells is not None:
        cells = recorder.cells
        return Cells(cells.pos, cells.tok, cells.seq), None
    if record.step == 14 and name == "logits" and recorder.logits is not None:
        return recorder.logits[None, :], None
    if record.step == 15 and name == "selected":
        token = next((k for k in stored.tokens if k.n > n), None)
        return (token.id, None) if token else (_missing(stored, record), None)
    if record.step == 15:
        row = next((r for r in _near(stored.samplers, n) if r.n == n), None)
        if row is not None:
            return _candidates(row), HeldStep(row.why, row.threshold, row.draw)
    value = next((k.array for k in recorder.values(name) if k.n == n), None)
    return (value if value is not None else _missing(stored, record)), None


def _missing(stored: Stored, record: Record) -> dict[str, Any] | None:
    if record.kind != "node" and record.shape is None:
        return {"value": ABSENT}
    out: dict[str, Any] = {"value": ABSENT}
    if record.shape is not None:
        out |= {"shape": shape_text(record.shape), "dtype": record.dtype}
    done = stored.statistics(record.name)
    i = bisect_right(done, record.n, key=lambda x: x[0]) - 1
    if i >= 0 and done[i][0] == record.n:
        s = done[i][1]
        for name in ("min", "max", "mean", "std", "nan", "inf"):
            out[name] = getattr(s, name)
    return out


def held_edits(stored: Stored) -> list[Edit]:
    """The edits as data: none of them can act."""
    out: dict[int, Edit] = {}
    for e in stored.attrs.parts("edits"):
        kind = e.get("kind", str, "Edit")
        base = (e.get("id", int, 0), e.get("n", int, -1), e.get("name", str, ""))
        text = e.get("description", str, "")
        edit: Edit
        if kind == "Intervention":
            edit = Intervention(*base, text, pattern=e.get("pattern", str, ""))
            edit.broken = e.get("broken", bool, False)
        elif kind == "Switch":
            target = out.get(e.get("target", int, -1))
            switched = target if isinstance(target, Intervention) else None
            edit = Switch(*base, text, target=switched, on=e.get("on", bool, False))
            if switched is not None:
                switched.switches.append(edit)
        else:
            edit = Edit(*base, text)
        edit.applied_at = e.get("applied_at", int, None)
        edit.note = e.get("note", str, "")
        out[edit.id] = edit
    return list(out.values())


def held_branches(stored: Stored) -> list[Branch]:
    """The branches of the run; only the saved one has events."""
    out = []
    for b in stored.attrs.parts("branches"):
        out.append(
            Branch(
                b.get("name", str, "main"),
                b.get("parent", str, None),
                b.get("fork_n", int, -1),
                b.get("reason", str, ""),
                n=b.get("n", int, -1),
                furthest=b.get("furthest", int, -1),
                ended=b.get("ended", bool, False),
                n_tokens=b.get("n_tokens", int, 0),
                text=b.get("text", str, ""),
            )
        )
    return out or [Branch("main", None, -1)]


def _near(rows: list[SamplerRow], n: int) -> Iterator[SamplerRow]:
    i = bisect_right(rows, n, key=lambda r: r.n) - 1
    if i >= 0:
        yield rows[i]


def _candidates(row: SamplerRow) -> Candidates:
    picked = np.flatnonzero(row.id == row.selected)
    selected = int(picked[0]) if row.selected >= 0 and picked.size else -1
    return Candidates(row.id, row.logit, row.p, selected, row.after)


def _tail(name: str) -> int:
    tail = name.rpartition("-")[2]
    return int(tail) if tail.isdecimal() else -1


def _whole(x: Any) -> int:
    return x if type(x) is int else 0
