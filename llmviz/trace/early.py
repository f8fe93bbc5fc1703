"""Read early: what the model would say after each of its layers, for one pass of a run.

The final norm and the output matrix are applied to every layer's last row of ``l_out`` (see
`lens.LogitLens`). The model itself does that once, after its last layer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from llmviz.errors import LlmvizError
from llmviz.events import Event
from llmviz.trace.kept import LAST_ROW
from llmviz.trace.lens import LogitLens, TopToken, entropy, rank_of, top_tokens
from llmviz.trace.lookback import can_look_back, look_back
from llmviz.trace.shares import NotKept
from llmviz.trace.shown import candidates
from llmviz.trace.summary import probabilities

__all__ = ["Early", "EarlyLayer", "EarlyReader"]

_L_OUT = "l_out-"
_AT_ONCE = 8  # layers whose logits are held at the same time
TOP = 5


@dataclass(frozen=True, slots=True)
class EarlyLayer:
    """What one layer would say.

    Attributes
    ----------
    layer : int
    top : tuple of TopToken
        The likeliest, the largest logit first.
    logit, p, rank
        Of the followed token; `rank` counts from 0.
    entropy : float
        Nats.
    """

    layer: int
    top: tuple[TopToken, ...]
    logit: float
    p: float
    rank: int
    entropy: float


@dataclass(frozen=True, slots=True)
class Early:
    """All layers of one pass.

    Attributes
    ----------
    layers : tuple of EarlyLayer
        In order.
    token : int
        The followed one.
    text : str
    chosen : bool
        Whether it is the token that was taken.
    pos : int
        The position that it is, or would be, at.
    n_vocab : int
    """

    layers: tuple[EarlyLayer, ...]
    token: int
    text: str
    chosen: bool
    pos: int
    n_vocab: int

    @property
    def most_entropy(self) -> float:
        """Of a blind guess: ln n_vocab."""
        return math.log(self.n_vocab)

    @property
    def settled(self) -> int | None:
        """The first layer from which on the token is the likeliest; None where it never is."""
        out = None
        for layer in reversed(self.layers):
            if layer.rank:
                break
            out = layer.layer
        return out


class EarlyReader:
    """Reads passes of a debugger early.

    Parameters
    ----------
    dbg : Debugger
    """

    def __init__(self, dbg: Any) -> None:
        self.dbg = dbg
        self._asked: Any = None
        self._lens: LogitLens | None = None
        self._fetched: dict[int, dict[int, np.ndarray]] = {}  # of one pass, by event and layer
        self._fetched_in: Any = None

    def ask(self) -> None:
        """Have the recorder keep every layer's last row from now on: little, of any prompt."""
        recorder = self.dbg.recorder
        if recorder is not self._asked:
            recorder.ask(self, _wants_row)
            self._asked = recorder

    def release(self) -> None:
        """Ask for nothing any more, and let go of what was computed."""
        if self._asked is not None:
            self._asked.release(self)
        self._asked = self._lens = None
        self._fetched = {}

    def key(self, selected: int = -1) -> Any:
        """Changes when `read` would read another pass."""
        recorder = self.dbg.recorder
        shown = candidates(recorder, selected) if recorder.top else None
        chosen = None if shown is None else shown.chosen
        return (id(recorder), self._span(selected), chosen, self._run())

    def read(self, selected: int = -1, token: int = -1) -> Early:
        """Every layer's answer.

        Parameters
        ----------
        selected : int
            Position of a generated token whose pass is read; -1: the newest logits'.
        token : int
            Whose logit and rank are followed; -1: the chosen one's, before that the likeliest's.

        Raises
        ------
        NotKept
            The layers' rows were not kept: see `fetch`.
        LlmvizError
            There are no logits yet, the model has no weights here, or its graph cannot be read
            early.
        """
        model = self.dbg.model
        shown = candidates(self.dbg.recorder, selected)
        if shown is None or not shown.top:
            raise LlmvizError("there are no logits yet: press Next token, or run to step 14")
        if getattr(model, "weights", None) is None:
            raise LlmvizError("a saved run has no weights: reading early needs the model")
        n_layer = model.hparams.n_layer
        rows = self._rows(selected)
        if missing := [il for il in range(n_layer) if il not in rows]:
            raise NotKept(f"the last row of {_L_OUT}{missing[0]} of this pass was not kept")
        if self._lens is None or self._lens.model is not model:
            self._lens = LogitLens(model)
        if token < 0:
            token = shown.chosen if shown.chosen is not None else shown.top[0].id
        layers: list[EarlyLayer] = []
        for first in range(0, n_layer, _AT_ONCE):
            part = list(range(first, min(first + _AT_ONCE, n_layer)))
            logits = self._lens(np.stack([rows[il] for il in part]))  # [n, n_vocab]
            layers += [
                _layer(il, line, token, model.vocab) for il, line in zip(part, logits, strict=True)
            ]
        text = model.vocab.token_to_piece(token, special=True).decode("utf-8", "replace")
        return Early(
            tuple(layers), token, text, token == shown.chosen, shown.pos, self._lens.n_vocab
        )

    @property
    def can_fetch(self) -> bool:
        """Whether rows that were not kept can be computed again."""
        return can_look_back(self.dbg)

    def fetch(self, selected: int = -1) -> None:
        """See a pass's rows in a silent replay; the run stands where it stood.

        Raises
        ------
        DebuggerError
            The run cannot go back.
        """
        start, end = self._span(selected)
        rows: dict[int, dict[int, np.ndarray]] = {}

        def see(event: Event, n: int) -> None:
            if event.kind == "node" and start < n < end and event.name.startswith(_L_OUT):
                value = np.asarray(event.value)
                last = np.array(value.reshape(-1, value.shape[-1])[-1], np.float32)
                rows.setdefault(n, {})[int(event.name[len(_L_OUT) :])] = last

        look_back(self.dbg, start, lambda name: name.startswith(_L_OUT), see)
        self._fetched, self._fetched_in = rows, self._run()

    def _run(self) -> Any:
        edits = tuple(e.id for e in self.dbg.edits)
        return id(self.dbg.recorder), self.dbg.branch.name, edits

    def _span(self, selected: int) -> tuple[int, int]:
        """Events between which the pass lies: its beginning, and its logits or chosen token."""
        recorder = self.dbg.recorder
        end = recorder.logits_n
        tokens = recorder.tokens
        if 0 <= selected < len(tokens) and not tokens[selected].given:
            end = tokens[selected].n
        for record in reversed(self.dbg.events):
            if record.n < end and record.kind == "enter" and record.name == "process_ubatch":
                return record.n, end
        return -1, end

    def _rows(self, selected: int) -> dict[int, np.ndarray]:
        """Last row of each layer's output in a pass: float32 [n_embd]."""
        start, end = self._span(selected)
        out: dict[int, np.ndarray] = {}
        if self._fetched_in == self._run():
            for n, rows in self._fetched.items():
                if start < n < end:
                    out.update(rows)
        for il in range(self.dbg.model.hparams.n_layer):
            for name in (f"{_L_OUT}{il}{LAST_ROW}", f"{_L_OUT}{il}"):
                for kept in self.dbg.recorder.values(name):
                    if start < kept.n < end:
                        out[il] = kept.array.reshape(-1, kept.array.shape[-1])[-1]
        return out


def _wants_row(name: str) -> bool:
    return name.startswith(_L_OUT) and name.endswith(LAST_ROW)


def _layer(il: int, logits: np.ndarray, token: int, vocab: Any) -> EarlyLayer:
    return EarlyLayer(
        il,
        tuple(top_tokens(logits, TOP, vocab)),
        float(logits[token]),
        float(probabilities(logits)[token]),
        rank_of(token, logits),
        entropy(logits),
    )
