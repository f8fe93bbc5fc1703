"""What a run has computed so far, kept within a byte budget.

`Recorder.see` is shown every event and copies what the panel and the views need after the run has
moved on: tokens with their probabilities, the last logits, the cells of the KV cache, the attention
of the latest decodes, and values of the nodes that somebody asked for. Of all other nodes that were
watched, statistics stay. When the run goes back, `rewind` brings the recorder back with it.

Over 400 lines: what is kept, counted, dropped and taken back has one owner; records, values and
statistics have files of their own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from llmviz.events import Event
from llmviz.trace.kept import LAST_ROW, Kept, KeptValues
from llmviz.trace.records import (
    Alternative,
    AttentionBlock,
    CellsRecord,
    TokenRecord,
    alternatives,
    attention_matrix,
    chain_probabilities,
    read_cells,
)
from llmviz.trace.summary import Statistics, probabilities

__all__ = [
    "Alternative",
    "AttentionBlock",
    "CellsRecord",
    "Mark",
    "Recorder",
    "TokenRecord",
    "chain_probabilities",
    "read_cells",
]

ATTENTION = "kq_soft_max-"
N_TOP = 10
N_UBATCHES = 1024


@dataclass(slots=True, eq=False)
class Mark:
    """The recorder's latest records at one moment; opaque, see `Recorder.mark`.

    `logits` may be dropped to save memory; `complete` is then false.
    """

    tokens: tuple[TokenRecord, ...]
    logits: np.ndarray | None
    logits_n: int
    top: tuple[Alternative, ...]
    cells: CellsRecord | None
    q_pos: np.ndarray | None
    passes: int
    complete: bool = True


@dataclass
class Recorder:
    """Copies of what the views show, within `budget` bytes.

    Parameters
    ----------
    budget : int
        Bytes that copies of attention and of asked values may take together. When they do not fit,
        the oldest go first, attention of the chosen `layer` last; `dropped` counts them and
        `dropped_text` says which.
    layer : int
        The layer whose attention is kept longest.

    Attributes
    ----------
    tokens : list of TokenRecord
    logits : ndarray float32 [n_vocab] or None
        The last row of logits, of event `logits_n`.
    top : tuple of Alternative
    cells : CellsRecord or None
    attention : dict of int to deque of AttentionBlock
        By layer, oldest first.
    passes : int
        How many ubatches have begun.
    stop, rest : str
        Why the generation ended, and the text it ended with.
    """

    budget: int = 64 << 20
    layer: int = 0
    piece_of: Callable[[int], bytes] | None = None
    tokens: list[TokenRecord] = field(default_factory=list)
    logits: np.ndarray | None = None
    logits_n: int = -1
    top: tuple[Alternative, ...] = ()
    cells: CellsRecord | None = None
    attention: dict[int, deque[AttentionBlock]] = field(default_factory=dict)
    stop: str = ""
    rest: str = ""
    dropped: int = 0
    used: int = 0
    only_layer: bool = False
    passes: int = 0

    def __post_init__(self) -> None:
        self._q_pos: np.ndarray | None = None
        self._ubatches: deque[Kept] = deque(maxlen=N_UBATCHES)
        self._window_pos: np.ndarray | None = None  # of the cells of layers with a sliding window
        self._candidates: Any = None
        self._kept = KeptValues()
        self._dropped_bytes = 0
        self._last_dropped = ""
        # By step and name: the vocabulary has "tokens" too (step 5).
        self._handlers: dict[tuple[int, str], Callable[[Event, int], None]] = {
            (9, "tokens"): self._see_tokens,
            (13, "inp_pos"): self._see_positions,
            (13, "kv_cells"): self._see_cells,
            (13, "kv_cells_swa"): self._see_window_cells,
            (14, "logits"): self._see_logits,
            (16, "token"): self._see_token,
            (16, "stop"): self._see_stop,
        }

    # -- whose values are kept -------------------------------------------------------------------

    def ask(self, owner: object, want: Callable[[str], bool]) -> None:
        """Keep copies of the nodes and inputs that ``want(name)`` says yes to, from now on.

        Asking again replaces what the same owner asked for before. `want` must depend on the name
        alone: its answers are remembered. It is asked for ``name[-1]`` too: yes to that keeps the
        last row alone, as ``value("l_out-3[-1]")``, unless somebody asked for the whole.
        """
        self._kept.ask(owner, want)

    def release(self, owner: object) -> None:
        """Take back what `owner` asked for; values that nobody asks for are let go."""
        self._kept.release(owner)

    def adopt_askers(self, other: Recorder) -> None:
        """Keep from now on what was asked of another recorder."""
        self._kept.adopt_askers(other._kept)

    def value(self, name: str) -> Kept | None:
        """The latest copy of a node or input, None where there is none."""
        return self._kept.value(name)

    def values(self, name: str) -> list[Kept]:
        """All copies of a node or input that are still held, oldest first."""
        return self._kept.values(name)

    def stats(self, name: str, n: int | None = None) -> Statistics | None:
        """Statistics of a node when it was last watched or asked for, None if it never was.

        With an event number `n`: those of that event, None unless it is the last of its name.
        """
        return self._kept.stats(name, n)

    @property
    def bytes_used(self) -> int:
        """What the copies take, never more than `budget`."""
        return self.used + self._kept.nbytes

    @property
    def dropped_text(self) -> str:
        """What was dropped for want of room, in a sentence; empty when nothing was."""
        if not self.dropped:
            return ""
        return (
            f"{self.dropped} older value{'s' * (self.dropped != 1)} "
            f"({self._dropped_bytes / 2**20:.1f} MiB) dropped to stay within "
            f"{self.budget / 2**20:.0f} MiB, the last one {self._last_dropped}"
        )

    def wants(self, name: str) -> bool:
        """Whether a node of this name must be yielded for the recorder to see it."""
        return self._wants_attention(name) or self._kept.wants(name)

    def _wants_attention(self, name: str) -> bool:
        if not name.startswith(ATTENTION):
            return False
        return not self.only_layer or name == f"{ATTENTION}{self.layer}"

    def see(self, event: Event, n: int, *, measure: bool = True) -> None:
        """Look at one event as it passes; n is its number.

        Parameters
        ----------
        measure : bool
            Whether a node's statistics are wanted.
        """
        if event.kind == "node":
            if event.name.startswith(ATTENTION):
                self._see_attention(event, n)
            self._see_value(event, n, measure)
            return
        if event.kind == "enter":
            if event.name == "process_ubatch":
                self.passes += 1
                self._see_ubatch(event, n)
            return
        if event.kind != "data":
            return
        if event.step == 15 and hasattr(event.value, "p"):
            self._candidates = event.value
        handler = self._handlers.get((event.step, event.name))
        if handler is not None:
            handler(event, n)
        if event.step == 13:
            self._see_value(event, n, False)

    def keep_layer(self, layer: int) -> None:
        """Choose the layer whose attention is kept longest."""
        self.layer = layer

    # -- going back ------------------------------------------------------------------------------

    def mark(self) -> Mark:
        """The latest records as they are now, for `rewind`."""
        return Mark(
            tuple(self.tokens),
            self.logits,
            self.logits_n,
            self.top,
            self.cells,
            self._q_pos,
            self.passes,
        )

    def rewind(self, mark: Mark, last: int) -> None:
        """Come back to a mark; of the values, those of events up to number `last` stay.

        The events after the mark are then shown again; a value that is still held is not copied
        a second time.
        """
        self.tokens = list(mark.tokens)
        self.logits, self.logits_n, self.top = mark.logits, mark.logits_n, mark.top
        self.cells, self._q_pos, self.passes = mark.cells, mark.q_pos, mark.passes
        self.stop = self.rest = ""
        self._candidates = None
        self.truncate(last)

    def truncate(self, last: int) -> None:
        """Forget the values of events after number `last`."""
        self._kept.truncate(last)
        while self._ubatches and self._ubatches[-1].n > last:
            self._ubatches.pop()
        for layer, blocks in list(self.attention.items()):
            while blocks and blocks[-1].n > last:
                self.used -= blocks.pop().p.nbytes
            if not blocks:
                del self.attention[layer]

    # -- what each event leaves behind ---------------------------------------------------------

    def _see_tokens(self, event: Event, n: int) -> None:
        pieces = [self._piece(int(i)) for i in event.value]
        self.tokens = [
            TokenRecord(int(i), piece, piece.decode("utf-8", "replace"), pos, n, True)
            for pos, (i, piece) in enumerate(zip(event.value, pieces, strict=True))
        ]

    def _piece(self, token: int) -> bytes:
        return self.piece_of(token) if self.piece_of is not None else b""

    @property
    def ubatches(self) -> deque[Kept]:
        """Positions of the newest ubatches, of a graph that has no input ``inp_pos`` (ALiBi)."""
        return self._ubatches

    def _see_ubatch(self, event: Event, n: int) -> None:
        """Positions of the queries: not every graph has an input for them (with ALiBi none)."""
        pos = getattr(event.value, "pos", None)
        known = pos is not None and np.ndim(pos) == 1
        self._q_pos = np.array(pos, dtype=np.int32) if known else None
        held = self._ubatches
        if self._q_pos is not None and not (held and held[-1].n >= n):
            held.append(Kept("process_ubatch", n, self._q_pos, None, self.passes - 1))

    def _see_positions(self, event: Event, n: int) -> None:
        self._ubatches.clear()
        pos = np.array(event.value, dtype=np.int32).reshape(-1)
        known = self._q_pos
        # with M-RoPE the input holds four positions of each of the ubatch's tokens
        if known is None or len(pos) != 4 * len(known):
            self._q_pos = pos

    def _see_cells(self, event: Event, n: int) -> None:
        self.see_cells(event.value, n)

    def _see_window_cells(self, event: Event, n: int) -> None:
        self._window_pos = read_cells(event.value)[0]

    def see_cells(self, cells: Any, n: int) -> None:
        """Record the cells of the KV cache as they are now."""
        pos, tok, seq = read_cells(cells)
        before = self.cells
        if before is None or len(before.pos) != len(pos):
            fresh = np.flatnonzero(pos >= 0)
        else:
            fresh = np.flatnonzero((pos != before.pos) & (pos >= 0))
        self.cells = CellsRecord(pos, tok, seq, frozenset(fresh.tolist()), n)

    def _see_value(self, event: Event, n: int, measure: bool) -> None:
        asked = self._kept.wants(event.name)
        if not (asked or measure):
            return
        value = event.value
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "fiub" or not value.size:
            return
        if measure or self._kept.asked(event.name):
            self._kept.measure(event.name, n, value)
        if self._kept.asked(event.name):
            self._keep(event.name, n, value, event.about)
        elif self._kept.asked(event.name + LAST_ROW):
            last = value.reshape(-1, value.shape[-1])[-1:] if value.ndim else value
            self._keep(event.name + LAST_ROW, n, last, event.about)

    def _keep(self, name: str, n: int, value: np.ndarray, tensor: Any) -> None:
        if value.nbytes > self.budget:
            self._count_dropped(f"{name} of event {n}", value.nbytes)
            return
        self._kept.keep(name, n, value, tensor, self.passes - 1)
        self._make_room()

    def _see_attention(self, event: Event, n: int) -> None:
        layer = int(event.name[len(ATTENTION) :])
        value = np.asarray(event.value)
        blocks = self.attention.get(layer)
        if value.ndim != 3 or (blocks and blocks[-1].n >= n):
            return
        n_head, n_q, n_kv = value.shape
        k_pos, keep = self._columns(n_kv, event.about)
        q_pos = self._q_pos if self._q_pos is not None else np.arange(n_q, dtype=np.int32)
        if len(q_pos) != n_q:
            # Only some rows are computed where only some tokens give an output: those are the last.
            q_pos = q_pos[-n_q:] if len(q_pos) > n_q else np.arange(n_q, dtype=np.int32)
        nbytes = n_head * n_q * keep * 4
        if nbytes > self.budget:
            self._count_dropped(f"{event.name} of event {n}", nbytes)
            return
        block = AttentionBlock(n, layer, q_pos, k_pos, value[:, :, :keep].astype(np.float32))
        self.attention.setdefault(layer, deque()).append(block)
        self.used += block.p.nbytes
        self._make_room()

    def _columns(self, n_kv: int, tensor: Any) -> tuple[np.ndarray, int]:
        """Positions of the first n_kv cells that a softmax reads, cut after the last in use."""
        sources: Any = getattr(tensor, "src", None) or ()
        windowed = len(sources) > 1 and str(getattr(sources[1], "name", "")).endswith("_swa")
        pos = self.cells.pos if self.cells is not None else None
        if windowed and self._window_pos is not None:
            pos = self._window_pos
        if pos is None:
            return np.arange(n_kv, dtype=np.int32), n_kv
        pos = pos[:n_kv]
        used = np.flatnonzero(pos >= 0)
        keep = int(used[-1]) + 1 if used.size else n_kv
        return pos[:keep], keep

    def _make_room(self) -> None:
        while self.bytes_used > self.budget:
            others = [b[0] for il, b in self.attention.items() if il != self.layer and len(b)]
            block = min(others, key=lambda b: b.n, default=None)
            kept = self._kept.oldest()
            if block is None and self.attention.get(self.layer):
                block = self.attention[self.layer][0] if kept is None or _row(kept) else None
            if kept is not None and (block is None or (kept.n < block.n and not _row(kept))):
                self._kept.drop(kept)
                self._count_dropped(f"{kept.name} of event {kept.n}", kept.array.nbytes)
            else:
                assert block is not None
                self._drop_block(block)

    def _drop_block(self, block: AttentionBlock) -> None:
        self.only_layer = True
        blocks = self.attention[block.layer]
        blocks.popleft()
        if not blocks:
            del self.attention[block.layer]
        self.used -= block.p.nbytes
        self._count_dropped(f"{ATTENTION}{block.layer} of event {block.n}", block.p.nbytes)

    def _count_dropped(self, what: str, nbytes: int) -> None:
        self.dropped += 1
        self._dropped_bytes += nbytes
        self._last_dropped = what

    def _see_logits(self, event: Event, n: int) -> None:
        rows = np.asarray(event.value)
        self.logits = np.array(rows.reshape(-1, rows.shape[-1])[-1], dtype=np.float32)
        self.logits_n = n
        self._candidates = None
        self.top = self._top(self.logits)

    def _top(self, logits: np.ndarray, candidates: Any = None) -> tuple[Alternative, ...]:
        return alternatives(logits, candidates, N_TOP, self._piece)

    def _see_token(self, event: Event, n: int) -> None:
        token = int(event.value)
        about = event.about if isinstance(event.about, dict) else {}
        piece = about.get("piece", b"") or self._piece(token)
        text = about.get("text", piece.decode("utf-8", "replace"))
        logit = p_raw = p = rank = None
        top: tuple[Alternative, ...] = ()
        if self.logits is not None and 0 <= token < len(self.logits):
            logit = float(self.logits[token])
            p_raw = float(probabilities(self.logits)[token])
            rank = int((self.logits > self.logits[token]).sum())
            top = self._top(self.logits, self._candidates)
            self.top = top
            after = chain_probabilities(self._candidates)
            p = after.get(token) if after else None
        self.tokens.append(
            TokenRecord(token, piece, text, len(self.tokens), n, False, logit, p_raw, p, rank, top)
        )

    def _see_stop(self, event: Event, n: int) -> None:
        self.stop = str(event.value)
        about = event.about if isinstance(event.about, dict) else {}
        self.rest = str(about.get("text", ""))

    # -- reading it back -----------------------------------------------------------------------

    def layers(self) -> list[int]:
        """Layers whose attention is held, in order."""
        return sorted(self.attention)

    def n_head(self, layer: int) -> int:
        """Heads of the attention held for a layer, 0 where there is none."""
        blocks = self.attention.get(layer)
        return blocks[-1].p.shape[0] if blocks else 0

    def last_query(self, layer: int) -> int:
        """The largest position with a row of attention in a layer, -1 where there is none."""
        blocks = self.attention.get(layer)
        return max((int(b.q_pos.max()) for b in blocks or () if b.q_pos.size), default=-1)

    def attention_matrix(
        self, layer: int, head: int, positions: Sequence[int]
    ) -> np.ndarray | None:
        """Attention of one head between the given positions; see `records.attention_matrix`.

        None without any block of the layer.
        """
        blocks = self.attention.get(layer)
        if not blocks or not 0 <= head < blocks[-1].p.shape[0]:
            return None
        return attention_matrix(blocks, head, positions)


def _row(kept: Kept) -> bool:
    """Whether it is a last row alone: too small to be worth giving up."""
    return kept.name.endswith(LAST_ROW)
