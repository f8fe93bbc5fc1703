"""Sentinels: they flag what is unusual while a run passes, and say where.

They look at what is computed anyway: statistics of nodes that somebody watches, the attention that
the recorder keeps, the logits. A run that nobody watches shows them attention and logits only;
``Debugger(..., want="l_out-*")`` lets them see the stream of every layer. What they find is a
`Finding` with the number of its event; a run can be told to stop there.

A little over 400 lines: four sentinels share one history and one list of findings.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from llmviz.events import Event
from llmviz.trace.compare_live import look
from llmviz.trace.recorder import ATTENTION, Recorder
from llmviz.trace.records import AttentionBlock
from llmviz.trace.sentinel_norms import NormHistory
from llmviz.trace.summary import Statistics
from llmviz.trace.timeline import DebuggerError

__all__ = ["KINDS", "Finding", "Sentinel", "Sentinels"]

MOST = 1000  # findings; a run that is broken all along is known by its first ones

SHARE = 0.99  # of its attention that a head gives to one cell when it has collapsed
FEWEST_CELLS = 12  # with fewer tokens to look at there is little to choose from
LEAST_HEADS = 0.75  # of a layer's heads
CAP = 0.99  # of a soft cap; beyond it a value hardly changes any more
CAPPED = 0.01  # of all values, beyond which a cap counts as saturated


@dataclass(slots=True)
class Sentinel:
    """One thing that is looked out for.

    Attributes
    ----------
    kind : str
    title, about : str
        A few words, and what it means and what is normal.
    on : bool
        Whether it looks.
    stop : bool
        Whether a run stops where it finds something, as at a breakpoint.
    """

    kind: str
    title: str
    about: str
    on: bool = True
    stop: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """Something unusual.

    Attributes
    ----------
    kind : str
        Of the sentinel.
    n : int
        Number of the event.
    name : str
        Of the node, or ``logits``.
    layer : int
        -1 outside the layers.
    pass_ : int
        Which ubatch, counted from 0.
    text : str
        What was found, in one sentence with its numbers.
    more : int
        How many others of the same kind followed in the same pass.
    edits : tuple of int
        The edits that the run had had up to there: in a run with others it is no finding.
    """

    kind: str
    n: int
    name: str
    layer: int
    pass_: int
    text: str
    more: int = 0
    edits: tuple[int, ...] = ()


KINDS: dict[str, tuple[str, str]] = {
    "nan": (
        "NaN or infinity",
        "A node or the logits hold what is no finite number. Everything computed from it is lost. "
        "Usual causes: a weight that is none, a half float that overflowed, an edit.",
    ),
    "norm": (
        "a norm out of line",
        "A layer's values are much larger or smaller than they have been for other tokens. The "
        "first token of a text often has huge values in some models: it is not counted.",
    ),
    "attention": (
        "attention on one token",
        f"Nearly all heads of a layer give over {SHARE:.0%} of their attention to the same token. "
        "On the first token this is normal: many models park attention there that has nowhere to "
        "go (an attention sink), so it is not reported; nor is a token that looks at itself.",
    ),
    "softcap": (
        "a saturated soft cap",
        f"Over {CAPPED:.0%} of the values are within {1 - CAP:.0%} of the cap: what went in is "
        "much larger, and differences between them are lost.",
    ),
}


class Sentinels:
    """All sentinels of a debugger; ``dbg.sentinels["norm"].on = False`` switches one off.

    Parameters
    ----------
    dbg : Debugger

    Attributes
    ----------
    fired : int
        Number of the last event at which one that stops the run found something; -1 for none.
    """

    def __init__(self, dbg: Any) -> None:
        self._dbg = dbg
        self._all = {kind: Sentinel(kind, *texts) for kind, texts in KINDS.items()}
        self._reset(None)

    def _reset(self, recorder: Any) -> None:
        self._recorder = recorder
        self._found: dict[tuple[str, int, tuple[int, ...]], Finding] = {}
        self._norms = NormHistory()
        self._edits: dict[int, int] = {}  # id -> event of the edits that the history rests on
        self._statistics: dict[str, Statistics] = {}
        self._n_tokens = 0
        self.fired = -1

    def __getitem__(self, kind: str) -> Sentinel:
        try:
            return self._all[kind]
        except KeyError:
            raise DebuggerError(
                f"there is no sentinel {kind!r}; there are: {', '.join(self._all)}"
            ) from None

    def __iter__(self) -> Iterator[Sentinel]:
        return iter(self._all.values())

    def __len__(self) -> int:
        return len(self._all)

    def on(self, *kinds: str) -> None:
        """Switch sentinels on; all of them without an argument."""
        self._switch(kinds, True)

    def off(self, *kinds: str) -> None:
        """Switch sentinels off; all of them without an argument."""
        self._switch(kinds, False)

    def _switch(self, kinds: tuple[str, ...], on: bool) -> None:
        for sentinel in [self[k] for k in kinds] or self._all.values():
            sentinel.on = on

    @property
    def findings(self) -> list[Finding]:
        """What was found in this branch, in the order of events."""
        branch = self._dbg.branch
        ids = [(e.n, e.id) for e in branch.edits]
        out = [
            f
            for f in self._found.values()
            if f.n <= branch.furthest and f.edits == tuple(i for n, i in ids if n <= f.n)
        ]
        return sorted(out, key=lambda f: (f.n, f.kind))

    def clear(self) -> None:
        """Forget all findings; what is known of norms stays."""
        self._found.clear()

    # -- looking -----------------------------------------------------------------------------------

    def see(self, event: Event, n: int) -> None:
        """Look at an event that the recorder has just seen."""
        if event.kind == "node":
            self._see_node(event, n)
        elif event.kind == "data":
            if event.step == 13 and event.name in ("inp_tokens", "inp_pos"):
                self._n_tokens = int(np.size(event.value))
            elif event.step == 14 and event.name == "logits":
                self._see_logits(event, n)

    def _see_node(self, event: Event, n: int) -> None:
        recorder = self._dbg.recorder
        if recorder is not self._recorder:  # the run began anew
            self._reset(recorder)
        name = event.name
        stats = recorder.stats(name)
        if stats is not None and self._statistics.get(name) is not stats:
            self._statistics[name] = stats
            if (stats.nan or stats.inf) and self._all["nan"].on and "mask" not in name:
                self._find("nan", event, n, _no_numbers(stats))
            elif self._all["norm"].on:
                self._see_norm(event, n, stats)
        if name.startswith(ATTENTION) and self._all["attention"].on:
            self._see_attention(event, n)
        elif getattr(event.about, "op", "") == "TANH" and self._all["softcap"].on:
            self._see_cap(event, n)

    def _see_norm(self, event: Event, n: int, stats: Statistics) -> None:
        if not self._norms.follows(event.name) or stats.mean is None or stats.std is None:
            return
        self._forget_other_runs()
        rms = math.hypot(stats.mean, stats.std)
        usual = self._norms.judge(event.name, n, rms, self._n_tokens)
        if usual is not None:
            times = rms / usual
            how = f"{times:.3g} times as large as" if times > 1 else f"{1 / times:.3g} times below"
            text = f"{event.name} is {how} usual: root mean square {_plain(rms)}, for other tokens "
            self._find("norm", event, n, text + _plain(usual))

    def _forget_other_runs(self) -> None:
        """Norms of events that came after an edit that is new, or gone, say nothing any more."""
        now = {e.id: e.n for e in self._dbg._branches.current.edits}
        if now != self._edits:
            other = {
                k: v for k, v in (now | self._edits).items() if now.get(k) != self._edits.get(k)
            }
            self._norms.forget(min(other.values()))
            self._edits = now

    def _see_attention(self, event: Event, n: int) -> None:
        tail = event.name[len(ATTENTION) :]
        blocks = self._dbg.recorder.attention.get(int(tail) if tail.isdecimal() else -1)
        if blocks and blocks[-1].n == n:
            where = _collapsed(blocks[-1])
            if where is not None:
                pos, heads, of = where
                token = next((t for t in self._dbg.tokens if t.pos == pos), None)
                text = f" {token.text!r}" if token is not None else ""
                self._find(
                    "attention",
                    event,
                    n,
                    f"{heads} of {of} heads of layer {tail} give over {SHARE:.0%} of their "
                    f"attention to the token at position {pos}{text}",
                )

    def _see_cap(self, event: Event, n: int) -> None:
        sources = getattr(event.about, "src", None) or ()
        if not sources or getattr(sources[0], "op", "") != "SCALE":
            return  # another tanh: a soft cap divides by the cap first
        x = np.asarray(event.value)
        if not x.size:
            return
        share = float((np.abs(x) > CAP).mean())
        if share > CAPPED:
            text = f"{share:.1%} of the values of {event.name} are at their soft cap"
            self._find("softcap", event, n, text)

    def _see_logits(self, event: Event, n: int) -> None:
        logits = self._dbg.recorder.logits
        if not self._all["nan"].on or logits is None:
            return
        # A forbidden token has the logit -inf: that is a choice, and no accident.
        nan, inf = int(np.isnan(logits).sum()), int(np.isposinf(logits).sum())
        if nan or inf:
            count = Statistics(logits.size, nan, inf, None, None, None, None)
            self._find("nan", event, n, _no_numbers(count))

    def _find(self, kind: str, event: Event, n: int, text: str) -> None:
        dbg = self._dbg
        edits = tuple(e.id for e in dbg._branches.current.edits if e.n <= n)
        pass_ = dbg.recorder.passes - 1
        sentinel = self._all[kind]
        for key, f in self._found.items():
            if (f.kind, f.pass_, f.edits) == (kind, pass_, edits) and f.n <= n:
                # What follows from the first of a pass is counted, and not listed.
                if f.n < n:
                    self._found[key] = replace(f, more=f.more + 1)
                return
        if len(self._found) >= MOST:
            return
        il = getattr(event.about, "il", None)
        layer = il if isinstance(il, int) and il >= 0 else _layer_of(event.name)
        found = Finding(kind, n, event.name, layer, pass_, text, 0, edits)
        self._found[kind, n, edits] = found
        if sentinel.stop:
            self.fired = n

    # -- stopping ----------------------------------------------------------------------------------

    def stop_on(self, kind: str, stop: bool = True) -> None:
        """Let runs stop where a sentinel finds something, or no longer."""
        self[kind].stop = stop
        dbg = self._dbg
        mine = [b for b in dbg.breakpoints if isinstance(b.condition, _Fired)]
        wanted = any(s.stop for s in self._all.values())
        if wanted and not mine:
            dbg.break_on(condition=_Fired(self))
        elif not wanted:
            for point in mine:
                dbg.clear_break(point)

    # -- where it began ----------------------------------------------------------------------------

    def origin(self, finding: Finding) -> Finding:
        """The first node of the pass that holds NaN or infinity, found by a silent replay.

        Raises
        ------
        DebuggerError
            It is no finding of NaN or infinity, or no node of the pass holds one.
        """
        if finding.kind != "nan":
            raise DebuggerError("only NaN and infinity have one place where they begin")
        dbg = self._dbg
        begins = [r.n for r in dbg.events if r.name == "process_ubatch" and r.kind == "enter"]
        first = max((n for n in begins if n <= finding.n), default=-1)
        if first < 0:
            raise DebuggerError("the pass of this finding is no longer known")
        last = min(dbg.n, finding.n)
        found: list[Finding] = []

        def see(event: Event, n: int, recorder: Recorder) -> None:
            x = event.value
            if found or event.kind != "node" or not isinstance(x, np.ndarray):
                return
            if x.dtype.kind != "f" or "mask" in event.name or np.isfinite(x).all():
                return
            bad = np.argwhere(~np.isfinite(x))
            text = f"{len(bad):,} of {x.size:,} values are no finite numbers, the first at "
            text += str(bad[0].tolist())
            found.append(
                replace(finding, n=n, name=event.name, layer=_layer_of(event.name), text=text)
            )

        look(dbg, dbg.branch.name, first, last, see, lambda name: not name.startswith("cache_"))
        if not found:
            raise DebuggerError("no node of this pass holds NaN or infinity")
        return found[0]

    def __repr__(self) -> str:
        on = ", ".join(s.kind for s in self._all.values() if s.on) or "none"
        count = len(self.findings)
        return f"<Sentinels on: {on}; {count} finding{'s' * (count != 1)}>"


@dataclass(slots=True)
class _Fired:
    """The condition of the breakpoint that sentinels stop a run with; as an expression has it."""

    sentinels: Sentinels
    text: str = "a sentinel finds something"
    variables: frozenset[str] = field(default_factory=lambda: frozenset(("here",)))
    names: frozenset[str] = frozenset()

    def wants(self, name: str) -> bool:
        """It needs no node of its own."""
        return False

    keeps = wants

    def holds(self, values: Any) -> bool:
        """Whether one has just found something."""
        return self.sentinels.fired >= 0 and self.sentinels.fired == self.sentinels._dbg.n


def _collapsed(block: AttentionBlock) -> tuple[int, int, int] | None:
    """The position that nearly all heads of a layer look at alone; None where there is none.

    Judged by the newest token's row. Returns position, heads, all heads.
    """
    if not block.p.size or (block.k_pos >= 0).sum() < FEWEST_CELLS:
        return None
    row = block.p[:, -1, :]  # [n_head, n_k]
    top = row.argmax(axis=1)
    share = row[np.arange(len(row)), top]
    mine, first = int(block.q_pos[-1]), int(block.k_pos[block.k_pos >= 0].min())
    where = block.k_pos[top]
    ok = (share > SHARE) & (where != first) & (where != mine)
    if not ok.any():
        return None
    places, counts = np.unique(where[ok], return_counts=True)
    i = int(counts.argmax())
    heads = int(counts[i])
    if heads < 2 or heads < LEAST_HEADS * len(row):
        return None
    return int(places[i]), heads, len(row)


def _plain(x: float) -> str:
    return f"{x:,.0f}" if 1000 <= x < 1e6 else f"{x:.3g}"


def _no_numbers(stats: Statistics) -> str:
    parts = [f"{k:,} {what}" for k, what in ((stats.nan, "NaN"), (stats.inf, "infinite")) if k]
    return f"{' and '.join(parts)} of {stats.count:,} values"


def _layer_of(name: str) -> int:
    tail = name.rpartition("-")[2]
    return int(tail) if "-" in name and tail.isdecimal() else -1
