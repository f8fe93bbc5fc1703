"""The runs that there are, each as a `ComparedRun`: a branch of a debugger, and an opened trace."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from llmviz.events import Event
from llmviz.trace.compare_live import look
from llmviz.trace.compare_sides import Node, Pass, Row, compares, passes_of
from llmviz.trace.diff import plain_name
from llmviz.trace.opened import Trace
from llmviz.trace.recorder import ATTENTION, Recorder
from llmviz.trace.records import TokenRecord
from llmviz.trace.timeline import DebuggerError, Record

__all__ = ["LiveRun", "TraceRun", "run_of"]

LOGITS_BYTES = 128 << 20
"""Of whole rows of logits of one run; of further passes the likeliest tokens are known."""


class _Counter:
    """Which one of the nodes of the same name and op comes now."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], int] = {}

    def __call__(self, name: str, op: str) -> int:
        name = plain_name(name)
        nth = self._seen.get((name, op), 0)
        self._seen[name, op] = nth + 1
        return nth


def hparams_about(model: Any) -> dict[str, Any]:
    """Architecture and sizes of a model, by llama.cpp's names."""
    h = model.hparams
    out: dict[str, Any] = {"architecture": model.arch}
    for name in ("n_layer", "n_embd"):
        out[name] = getattr(h, name, None)
    for name in ("n_head", "n_head_kv", "n_ff"):
        value = getattr(h, name, None)
        try:
            out[name] = value(0) if callable(value) else value
        except (IndexError, TypeError):
            out[name] = None
    out["n_vocab"] = getattr(model.vocab, "n_tokens", None)
    return out


@dataclass(eq=False)
class _Survey:
    """What a branch that is not the current one has come past."""

    passes: list[Pass] = field(default_factory=list)
    tokens: list[TokenRecord] = field(default_factory=list)
    rows: dict[int, Row] = field(default_factory=dict)  # by the number of the event


class LiveRun:
    """A branch of a debugger.

    Parameters
    ----------
    dbg : Debugger
        Compared up to where it stands; another branch up to where it was left.
    branch : str, optional
        By default the one that it is on.
    label : str, optional
    """

    live = True

    def __init__(self, dbg: Any, branch: str = "", label: str = "") -> None:
        self.dbg = dbg
        self.branch = branch or dbg.branch.name
        _ = dbg._branches[self.branch]  # there is one
        self.label = label or self._own_label()
        self._surveyed: tuple[Any, _Survey] | None = None

    def _own_label(self) -> str:
        if len(self.dbg.branches) > 1:
            return f"branch {self.branch}"
        return str(getattr(self.dbg.model, "desc", "") or "") or "a run"

    @property
    def current(self) -> bool:
        """Whether the debugger is on this branch now."""
        return self.dbg.branch.name == self.branch

    def about(self) -> dict[str, Any]:
        """See `ComparedRun`."""
        model, ctx = self.dbg.model, self.dbg.ctx
        out = hparams_about(model) if model is not None else {}
        if model is not None:
            out["file type"] = _ftype(model)
        for name in ("n_ctx", "n_batch", "n_ubatch", "type_k", "type_v"):
            value = getattr(getattr(ctx, "params", None), name, None)
            out[name] = getattr(value, "name", value)
        out["edits"] = _edits(self.dbg._branches[self.branch].edits)
        return out

    def state(self) -> Any:
        """Something that is another one after the run has moved or was changed."""
        branch = next((b for b in self.dbg.branches if b.name == self.branch), None)
        if branch is None:
            return None  # it was taken back
        edits = tuple(e.id for e in branch.edits)
        switched = tuple(s.id for e in branch.edits for s in getattr(e, "switches", ()))
        end = self.dbg.n if self.current else branch.n
        return end, edits, switched, self.dbg.stopped_by == "start"

    def _survey(self) -> _Survey:
        state = self.state(), self.current
        if self._surveyed is None or self._surveyed[0] != state:
            self._surveyed = (state, self._survey_here() if self.current else self._look_at_all())
        return self._surveyed[1]

    def _survey_here(self) -> _Survey:
        dbg = self.dbg
        tokens = list(dbg.recorder.tokens)
        return _Survey(passes_of(dbg.events, dbg.n, tokens, dbg.recorder.passes), tokens)

    def _look_at_all(self) -> _Survey:
        """Go along a branch that the debugger is not on, once."""
        out, records = _Survey(), []
        target = self.dbg._branches[self.branch]
        common = self.dbg._branches.common(self.dbg._branches.current, target)
        records += [r for r in self.dbg.events if r.n <= common]

        def see(event: Event, n: int, recorder: Recorder) -> None:
            shape = getattr(event.value, "shape", None)
            if n > common and event.kind != "node":
                records.append(Record(n, event.kind, event.name, event.depth, event.step, shape))
            _note_row(out.rows, event, n, recorder)
            if n == target.furthest or event.name in ("token", "tokens"):
                out.tokens = list(recorder.tokens)

        end = target.furthest
        begins = (r.n for r in records if r.kind == "enter" and r.name == "process_ubatch")
        look(self.dbg, self.branch, next(begins, 0), end, see, lambda name: False)
        out.passes = passes_of(records, end, out.tokens)
        return out

    def passes(self) -> Sequence[Pass]:
        """See `ComparedRun`."""
        return self._survey().passes if self.dbg.here is not None else []

    def tokens(self) -> Sequence[TokenRecord]:
        """See `ComparedRun`."""
        return self._survey().tokens if self.dbg.here is not None else []

    def visit(self, passes: Sequence[Pass], see: Callable[[Pass, Node], None]) -> None:
        """See `ComparedRun`; the passes are computed once more, unseen."""
        if not passes:
            return
        count = _Counter()
        at = 0

        def show(event: Event, n: int, recorder: Recorder) -> None:
            nonlocal at, count
            while at + 1 < len(passes) and n >= passes[at + 1].first:
                at, count = at + 1, _Counter()
            value = event.value
            if event.kind != "node" or not isinstance(value, np.ndarray):
                return
            op = str(getattr(event.about, "op", ""))
            nth = count(event.name, op)
            if compares(event.name, op):
                node = Node(event.name, op, nth, n, value.shape, value, None, event.about)
                see(passes[at], node)

        look(self.dbg, self.branch, passes[0].first, passes[-1].last, show, compares)

    def logits(self, pass_: Pass) -> Row | None:
        """See `ComparedRun`."""
        rows = self._survey().rows
        if not rows and self.current and self.passes():
            self._look_at_logits(rows)
        return next((r for n, r in rows.items() if pass_.first <= n <= pass_.last), None)

    def _look_at_logits(self, rows: dict[int, Row]) -> None:
        """Go along the run once, and note what it wanted to say after each pass."""

        def see(event: Event, n: int, recorder: Recorder) -> None:
            _note_row(rows, event, n, recorder)

        passes = self.passes()
        look(self.dbg, self.branch, passes[0].first, passes[-1].last, see, lambda name: False)


def _note_row(rows: dict[int, Row], event: Event, n: int, recorder: Recorder) -> None:
    """Note the logits of an event, all of them while there is room."""
    if event.name == "logits" and event.step == 14 and recorder.logits is not None:
        full = (len(rows) + 1) * recorder.logits.nbytes > LOGITS_BYTES
        rows[n] = Row(None if full else recorder.logits, recorder.top)


def _edits(edits: Iterable[Any]) -> str:
    return ", ".join(e.description for e in edits) or "none"


def _ftype(model: Any) -> str | None:
    name = getattr(getattr(model, "gguf", None), "ftype_name", None)
    return str(name()) if callable(name) else None


class TraceRun:
    """An opened trace, whole, wherever its cursor stands.

    Parameters
    ----------
    trace : Trace
    label : str, optional
    """

    live = False

    def __init__(self, trace: Trace, label: str = "") -> None:
        self.trace = trace
        self.label = label or f"trace of {trace.model.desc or 'a run'}"
        self._passes: list[Pass] | None = None

    def about(self) -> dict[str, Any]:
        """See `ComparedRun`; what the file tells."""
        attrs = self.trace.attrs
        out = hparams_about(self.trace.model)
        for name, value in (attrs.get("context") or {}).items():
            if name in ("n_ctx", "n_batch", "n_ubatch", "type_k", "type_v"):
                out[name] = value
        out["edits"] = _edits(self.trace.edits)
        return out

    def state(self) -> Any:
        """A trace never changes."""
        return ()

    def passes(self) -> Sequence[Pass]:
        """See `ComparedRun`."""
        if self._passes is None:
            self._passes = passes_of(self.trace.all_events, self.trace.furthest, self.tokens())
        return self._passes

    def tokens(self) -> Sequence[TokenRecord]:
        """See `ComparedRun`."""
        return self.trace._stored.tokens

    def visit(self, passes: Sequence[Pass], see: Callable[[Pass, Node], None]) -> None:
        """See `ComparedRun`; shows values that were kept, else statistics."""
        stored = self.trace._stored
        events = stored.events
        for p in passes:
            count = _Counter()
            a, b = np.searchsorted(events.n, [p.first, p.last + 1]).tolist()
            for i in range(a, b):
                r = events[i]
                if r.kind != "node" or r.shape is None or not compares(r.name):
                    continue
                tensor = stored.tensor(r.name, len(r.shape), nth=stored.nth_in_pass(i))
                op = tensor.op
                nth = count(r.name, op)
                if not compares(r.name, op):
                    continue
                value = self._value(r, tensor)
                stats = None
                if value is None:
                    stats = next((s for n, s in stored.statistics(r.name) if n == r.n), None)
                see(p, Node(r.name, op, nth, r.n, r.shape, value, stats, tensor))

    def _value(self, record: Record, tensor: Any) -> np.ndarray | None:
        stored = self.trace._stored
        for kept in self._copies(record.name):
            if kept.n == record.n:
                return kept.array
        if not record.name.startswith(ATTENTION) or record.shape is None:
            return None
        tail = record.name.removeprefix(ATTENTION)
        for block in stored.attention.get(int(tail) if tail.isdecimal() else -1, ()):
            if block.n == record.n:
                # Held without the cells that were empty, to which no attention goes.
                return block.p if block.p.shape[:2] == record.shape[:2] else None
        return None

    def _copies(self, name: str) -> Any:
        held = self.__dict__.setdefault("_held", {})
        if name not in held:
            held[name] = self.trace._stored.values(name)
        return held[name]

    def logits(self, pass_: Pass) -> Row | None:
        """See `ComparedRun`."""
        for row in self.trace._stored.logits:
            if pass_.first <= row.n <= pass_.last:
                return Row(row.row, row.top)
        return None


def run_of(subject: Any, label: str = "") -> Any:
    """What compares a subject: a debugger, (debugger, branch), an opened trace, or a run itself.

    Raises
    ------
    DebuggerError
        It is none of these, or a run that cannot be compared.
    """
    if isinstance(subject, Trace):
        return TraceRun(subject, label)
    branch = ""
    if isinstance(subject, tuple) and len(subject) == 2:
        subject, branch = subject
        branch = str(getattr(branch, "name", branch))
    if hasattr(subject, "recorder") and hasattr(subject, "_branches"):
        if not subject.can_restart:
            raise DebuggerError(
                "a generator of events runs once: save the run and compare the opened trace"
            )
        return LiveRun(subject, branch, label)
    if all(hasattr(subject, name) for name in ("visit", "passes", "tokens", "logits", "about")):
        return subject
    raise DebuggerError(
        f"only a Debugger, (debugger, branch) or an opened trace is compared, not {subject!r:.80}"
    )
