"""The named values that conditions and watches are written over.

`Values` is what an expression reads; `DebuggerValues` answers it from a run: the event it stands
at, the recorder, the cache, the chain. Only reads: asking for a value never advances the run.

A little over 400 lines: one name after the other, each with its own few lines.
"""

from __future__ import annotations

import inspect
import re
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final, Protocol

import numpy as np

from llmviz.errors import LlmvizError
from llmviz.sampling import SAMPLERS, Chain
from llmviz.trace.lens import LogitLens, entropy

__all__ = [
    "LAYER_NODES",
    "PLAIN_NODES",
    "VARIABLES",
    "DebuggerValues",
    "Missing",
    "MissingType",
    "TokenText",
    "Values",
    "Variable",
    "matching",
    "sampler_parameters",
]


class MissingType:
    """The value of what has not been computed yet; false, and shown as ``not yet``."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "not yet"


Missing: Final = MissingType()


class TokenText(str):
    """A token's piece, exactly as it is, with its `id`.

    Expressions compare it with text without a leading space, and with a number by its id.
    """

    __slots__ = ("id",)
    id: int

    def __new__(cls, piece: str, id: int) -> TokenText:
        self = super().__new__(cls, piece)
        self.id = id
        return self


@dataclass(frozen=True, slots=True)
class Variable:
    """A name that expressions know.

    Attributes
    ----------
    meaning : str
        One line for a list of names.
    here : bool
        Whether it changes from node to node.
    nodes : tuple of str
        Nodes or inputs it is read from.
    """

    meaning: str
    here: bool = False
    nodes: tuple[str, ...] = ()


VARIABLES: Final[dict[str, Variable]] = {
    "here": Variable("value of the current event: a tensor, a number, a text", here=True),
    "name": Variable("name of the current event", here=True),
    "kind": Variable("enter, exit, node or data", here=True),
    "op": Variable("op of the current node, such as MUL_MAT", here=True),
    "shape": Variable("shape of the current value, [9, 5, 256]", here=True),
    "layer": Variable("layer of the current event", here=True),
    "depth": Variable("nesting of the current event", here=True),
    "n": Variable("number of the current event", here=True),
    "step": Variable("step of the current event, 1..16"),
    "token": Variable("the latest chosen token; compared without its leading space"),
    "piece": Variable("the latest chosen token's exact text"),
    "text": Variable("the text generated so far"),
    "tokens": Variable("tokens of the prompt and those chosen"),
    "n_tokens": Variable("how many tokens there are, the prompt's included"),
    "logits": Variable("the last logits, float32 [n_vocab]"),
    "entropy": Variable("entropy of the last logits, nats"),
    "top": Variable("the token with the largest of the last logits"),
    "kv.used": Variable("cells of the KV cache that hold something"),
    "kv.size": Variable("cells of the KV cache"),
    "kv.n_seq": Variable("sequences in the KV cache"),
    "kv.pos_max": Variable("largest position in the KV cache"),
    "ubatch.n_tokens": Variable("tokens of the latest ubatch", nodes=("inp_tokens",)),
    "seconds": Variable("time spent in each step so far: seconds[13]"),
}

PLAIN_NODES: Final = frozenset(
    (
        "embd",
        "result_norm",
        "result_output",
        "inp_tokens",
        "inp_embd",
        "inp_pos",
        "out_ids",
        "attn_inp_kq_mask",
        "attn_inp_k_idxs",
        "attn_inp_v_idxs",
    )
)
"""Nodes and inputs outside the layers, by llama.cpp's names."""

LAYER_NODES: Final = (
    "attn_norm",
    "Qcur",
    "Kcur",
    "Vcur",
    "kq",
    "kq_soft_max",
    "kqv",
    "kqv_out",
    "attn_out",
    "ffn_inp",
    "ffn_norm",
    "ffn_gate",
    "ffn_up",
    "ffn_swiglu",
    "ffn_out",
    "l_out",
)
"""What most architectures compute in each layer; only for suggestions, any name is read."""


def sampler_parameters() -> list[str]:
    """``"top_k.k"`` and so on: the parameters of all samplers there are."""
    return [
        f"{name.replace('-', '_')}.{parameter}"
        for name, cls in SAMPLERS.items()
        if not issubclass(cls, Chain)
        for parameter in inspect.signature(cls).parameters
    ]


class Values(Protocol):
    """What an expression reads. What is not there yet is `Missing`."""

    def get(self, name: str) -> Any:
        """A variable of `VARIABLES` or a sampler's parameter (``"top_k.k"``)."""
        ...

    def node(self, name: str) -> Any:
        """The latest value of a node or input by name or glob, an ndarray."""
        ...

    def lens(self, row: np.ndarray) -> np.ndarray:
        """Logit lens of one row: float32 [n_embd] -> float32 [n_vocab]."""
        ...

    def token_id(self, text: str) -> int:
        """Id of the token whose piece is exactly `text`; LlmvizError where there is none."""
        ...


class DebuggerValues:
    """The values of a run as a `Debugger` stands in it.

    Parameters
    ----------
    dbg : llmviz.trace.Debugger

    Notes
    -----
    A node by name is the value of the current event where that is the node, else the recorder's
    latest copy: the recorder must have been asked to keep it. Lenses and entropies are remembered
    by what they were computed from, so that a condition may be asked at every event.
    """

    LENSES_KEPT = 8

    def __init__(self, dbg: Any) -> None:
        self.dbg = dbg
        self._entropy: tuple[Any, float] = (None, 0.0)
        self._lens: LogitLens | None = None
        self._lenses: OrderedDict[bytes, np.ndarray] = OrderedDict()
        self._ids: dict[bytes, int] | None = None
        self._vocab: Any = None

    # -- variables -------------------------------------------------------------------------------

    def get(self, name: str) -> Any:
        """See `Values`."""
        variable = VARIABLES.get(name)
        if variable is None:
            return self._sampler_parameter(*name.split(".", 1))
        if name.startswith("kv."):
            return self._kv(name[3:])
        if variable.here or name == "step":
            return Missing if self.dbg.here is None else self._here(name)
        value = getattr(self, f"_get_{name.replace('.', '_')}")()
        return Missing if value is None else value

    def _here(self, name: str) -> Any:
        here = self.dbg.here
        if name == "here":
            return _plain(here.value)
        if name == "shape":
            return Missing if here.shape is None else here.shape
        if name == "layer":
            return self._layer()
        if name == "op":
            return getattr(here.about, "op", Missing) if here.kind == "node" else Missing
        return getattr(here, name)

    def _layer(self) -> Any:
        here = self.dbg.here
        il = getattr(here.about, "il", None) if here.kind == "node" else None
        if isinstance(il, int) and il >= 0:
            return il
        for scope in reversed(self.dbg.scope_stack):
            if scope.name.startswith("layer-"):
                return int(scope.name.removeprefix("layer-"))
        return Missing

    def _chosen(self) -> Any:
        tokens = self.dbg.tokens
        return tokens[-1] if tokens and not tokens[-1].given else None

    def _get_token(self) -> Any:
        chosen = self._chosen()
        return None if chosen is None else _token_text(chosen)

    def _get_piece(self) -> Any:
        chosen = self._chosen()
        return None if chosen is None else str(_token_text(chosen))

    def _get_text(self) -> Any:
        return self.dbg.text

    def _get_tokens(self) -> Any:
        return tuple(map(_token_text, self.dbg.tokens))

    def _get_n_tokens(self) -> Any:
        return len(self.dbg.tokens)

    def _get_logits(self) -> Any:
        return self.dbg.recorder.logits

    def _get_entropy(self) -> Any:
        logits = self.dbg.recorder.logits
        if logits is None:
            return None
        if self._entropy[0] is not logits:
            self._entropy = (logits, entropy(logits))
        return self._entropy[1]

    def _get_top(self) -> Any:
        top = self.dbg.recorder.top
        return TokenText(top[0].text, top[0].id) if top else None

    def _get_ubatch_n_tokens(self) -> Any:
        tokens = self.node("inp_tokens")
        return None if tokens is Missing else len(tokens)

    def _get_seconds(self) -> Any:
        spent = np.zeros(17)  # [step], 0 unused
        for step, seconds in self.dbg.seconds.items():
            spent[step] = seconds
        return spent

    def _kv(self, what: str) -> Any:
        memory = getattr(self.dbg.ctx, "memory", None)
        if memory is not None:
            streams = [(c.pos, c.seq) for c in memory.cells]
        elif self.dbg.recorder.cells is not None:  # a run without an engine: as last shown
            streams = [(self.dbg.recorder.cells.pos, self.dbg.recorder.cells.seq)]
        else:
            return Missing
        if what == "used":
            return sum(int((pos >= 0).sum()) for pos, _ in streams)
        if what == "size":
            return sum(len(pos) for pos, _ in streams)
        if what == "n_seq":
            return sum(int(seq.any(axis=1).sum()) for _, seq in streams)
        return max(int(pos.max(initial=-1)) for pos, _ in streams)

    def _sampler_parameter(self, sampler: str, parameter: str) -> Any:
        # the run's own chain: where none was given, the generation made one
        run = getattr(self.dbg, "generation", None) or self.dbg
        for link in run.chain if run.chain is not None else ():
            if link.event_name == sampler and parameter in link.params:
                return _plain(getattr(link, parameter))
        return Missing

    # -- nodes, lens, tokens -----------------------------------------------------------------------

    def node(self, name: str) -> Any:
        """See `Values`; of a glob the latest that is at hand."""
        here = self.dbg.here
        if here is not None and here.kind in ("node", "data") and _matches(name, here.name):
            value = _plain(here.value)
            if isinstance(value, np.ndarray):
                return value
        recorder = self.dbg.recorder
        if not _is_glob(name):
            kept = recorder.value(name)
            return Missing if kept is None else kept.array
        seen: set[str] = set()
        for record in reversed(self.dbg.events):
            if record.name in seen or record.kind not in ("node", "data"):
                continue
            seen.add(record.name)
            if _matches(name, record.name) and (kept := recorder.value(record.name)) is not None:
                return kept.array
        return Missing

    def lens(self, row: np.ndarray) -> np.ndarray:
        """See `Values`."""
        if self.dbg.model is None:
            raise LlmvizError("there is no model: the logit lens needs its output matrix")
        if self._lens is None or self._lens.model is not self.dbg.model:
            self._lens = LogitLens(self.dbg.model)
            self._lenses.clear()
        key = np.ascontiguousarray(row, np.float32).tobytes()
        logits = self._lenses.get(key)
        if logits is None:
            logits = self._lenses[key] = self._lens(row)
            logits.flags.writeable = False
        self._lenses.move_to_end(key)
        while len(self._lenses) > self.LENSES_KEPT:
            self._lenses.popitem(last=False)
        return logits

    def token_id(self, text: str) -> int:
        """See `Values`."""
        model = self.dbg.model
        if model is None:
            raise LlmvizError("there is no vocabulary yet: write the token's id as a number")
        vocab = model.vocab
        raw = text.encode("utf-8", "replace")
        parts = vocab.tokenize(raw, add_special=False, parse_special=True)
        pieces = [vocab.token_to_piece(i, special=True) for i in parts]
        if pieces == [raw]:
            return parts[0]
        # a tokenizer may put a space before a text, or take a token apart: look through all pieces
        ids = self._piece_ids(vocab)
        if raw in ids:
            return ids[raw]
        message = f"{_short(text)} is not one token"
        if len(pieces) > 1:
            shown = (_short(piece.decode("utf-8", "replace")) for piece in pieces[:6])
            message += f" but {len(pieces)}: {', '.join(shown)}"
        other = text[1:] if text.startswith(" ") else f" {text}"
        if other.encode("utf-8", "replace") in ids:
            message += f"; there is {_short(other)}"
        raise LlmvizError(message)

    def _piece_ids(self, vocab: Any) -> dict[bytes, int]:
        if self._ids is None or self._vocab is not vocab:
            self._ids = {}
            for i in range(vocab.n_tokens):  # of equal pieces the first
                self._ids.setdefault(vocab.token_to_piece(i, special=True), i)
            self._vocab = vocab
        return self._ids


def _plain(value: Any) -> Any:
    """A value as expressions take it, `Missing` for objects that are none of these."""
    if isinstance(value, np.ndarray):
        return value if value.dtype.kind in "fiub" else Missing
    if isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, (list, tuple)) and all(isinstance(v, (int, float, str)) for v in value):
        return tuple(value)
    return Missing


def _token_text(record: Any) -> TokenText:
    return TokenText(record.piece.decode("utf-8", "replace"), record.id)


def _short(text: str) -> str:
    return repr(text if len(text) <= 24 else text[:23] + "…")


def _is_glob(name: str) -> bool:
    return re.search(r"[*?[]", name) is not None


def _matches(pattern: str, name: str) -> bool:
    return name == pattern or fnmatchcase(name, pattern)


def matching(pattern: str, names: Iterable[str]) -> bool:
    """Whether some name is the pattern or fits it as a glob."""
    return any(_matches(pattern, name) for name in names)
