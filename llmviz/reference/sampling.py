"""llama.cpp's samplers on given logits. ↔ include/llama.h (Sampling API)

A sampler is named as its ``llama_sampler_init_<name>``, its parameters follow in llama.h's order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from llmviz.errors import SamplerError
from llmviz.reference.capi import LogLine, api, capture_log
from llmviz.reference.vocab import ReferenceVocab

__all__ = ["Candidates", "ReferenceChain"]

SIMPLE = (
    "greedy", "dist", "top_k", "top_p", "min_p", "typical", "temp", "temp_ext", "xtc",
    "top_n_sigma", "mirostat", "mirostat_v2", "penalties", "adaptive_p",
)  # fmt: skip

TOKEN_DATA = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


class Candidates(NamedTuple):
    """What a ``llama_token_data_array`` holds.

    ``id`` int32[n], ``logit`` float32[n], ``p`` float32[n], ``selected`` (an index, or -1),
    ``sorted``.
    """

    id: npt.NDArray[np.int32]
    logit: npt.NDArray[np.float32]
    p: npt.NDArray[np.float32]
    selected: int
    sorted: bool

    @property
    def token(self) -> int:
        """The selected token's id, or -1."""
        return int(self.id[self.selected]) if self.selected >= 0 else -1


class ReferenceChain:
    """A chain of llama.cpp's samplers.

    Parameters
    ----------
    samplers : iterable of tuple
        ``(name, *parameters)``, e.g. ``("top_k", 40), ("top_p", 0.95, 1), ("dist", 42)``.
        Some take more: ``("penalties", n_vocab, last_n, repeat, freq, present)``,
        ``("logit_bias", n_vocab, {token: bias})``,
        ``("dry", vocab, multiplier, base, allowed_length, last_n, [breaker, ...])``,
        ``("grammar", vocab, text, root)``, ``("infill", vocab)``, where ``vocab`` is a
        `ReferenceVocab` or a `Reference`.
    """

    def __init__(self, samplers: Iterable[Sequence[Any]] = ()) -> None:
        self._api = api()
        self.log: list[LogLine] = []
        lib = self._api.lib
        self._chain: Any = lib.llama_sampler_chain_init({"no_perf": True})
        for name, *args in samplers:
            self.add(name, *args)

    def add(self, name: str, *args: Any) -> ReferenceChain:
        """Append a sampler."""
        ffi, lib, *_ = self._api
        with capture_log(self.log):
            if name in SIMPLE:
                sampler = getattr(lib, f"llama_sampler_init_{name}")(*args)
            elif name == "logit_bias":
                n_vocab, biases = args
                pairs = list(biases.items() if hasattr(biases, "items") else biases)
                array = ffi.new(
                    "struct llama_logit_bias[]", [{"token": t, "bias": b} for t, b in pairs]
                )
                sampler = lib.llama_sampler_init_logit_bias(n_vocab, len(pairs), array)
            elif name == "dry":
                vocab, multiplier, base, allowed, last_n, breakers = args
                texts = [
                    ffi.new("char[]", b.encode() if isinstance(b, str) else b) for b in breakers
                ]
                sampler = lib.llama_sampler_init_dry(
                    _pointer(vocab),
                    multiplier,
                    base,
                    allowed,
                    last_n,
                    ffi.new("const char *[]", texts),
                    len(texts),
                )
            elif name == "grammar":
                vocab, text, root = args
                sampler = lib.llama_sampler_init_grammar(
                    _pointer(vocab), text.encode(), root.encode()
                )
            elif name == "infill":
                sampler = lib.llama_sampler_init_infill(_pointer(args[0]))
            else:
                raise SamplerError(f"llama.cpp has no sampler {name!r}")
        if sampler == ffi.NULL:
            raise SamplerError(f"llama.cpp refuses sampler {name} {args}: {self.log[-1:]}")
        lib.llama_sampler_chain_add(self._chain, sampler)
        return self

    @property
    def names(self) -> list[str]:
        """The samplers' own names."""
        return [
            self._api.ffi.string(self._api.lib.llama_sampler_name(s)).decode()
            for s in self._members()
        ]

    def _members(self) -> list[Any]:
        lib = self._api.lib
        n = lib.llama_sampler_chain_n(self._chain)
        return [lib.llama_sampler_chain_get(self._chain, i) for i in range(n)]

    def apply(
        self,
        logits: npt.ArrayLike,
        ids: npt.ArrayLike | None = None,
        p: npt.ArrayLike | None = None,
        *,
        selected: int = -1,
        sorted: bool = False,
    ) -> Candidates:
        """Run the chain over candidates.

        Parameters
        ----------
        logits : float32[n]
        ids : int32[n], optional
            Default 0..n-1.
        p : float32[n], optional
            Default zeros, as when a chain starts.
        selected, sorted
            The array's state before the first sampler.
        """
        return self._apply([self._chain], logits, ids, p, selected, sorted)[-1]

    def apply_each(
        self,
        logits: npt.ArrayLike,
        ids: npt.ArrayLike | None = None,
        p: npt.ArrayLike | None = None,
    ) -> list[Candidates]:
        """Run the chain over candidates and return them after each of its samplers."""
        return self._apply(self._members(), logits, ids, p, -1, False)

    def _apply(
        self, samplers: list[Any], logits: Any, ids: Any, p: Any, selected: int, is_sorted: bool
    ) -> list[Candidates]:
        ffi, lib, *_ = self._api
        logits = np.asarray(logits, np.float32)
        table = np.zeros(len(logits), TOKEN_DATA)
        table["logit"] = logits
        table["id"] = np.arange(len(logits)) if ids is None else ids
        if p is not None:
            table["p"] = p
        data = ffi.from_buffer("struct llama_token_data[]", table, require_writable=True)
        cur = ffi.new(
            "struct llama_token_data_array *",
            {"data": data, "size": len(logits), "selected": selected, "sorted": is_sorted},
        )
        result = []
        with capture_log(self.log):
            for sampler in samplers:
                lib.llama_sampler_apply(sampler, cur)
                rows = np.frombuffer(
                    ffi.buffer(cur.data, cur.size * TOKEN_DATA.itemsize), TOKEN_DATA
                )
                id_, logit, prob = (rows[c].copy() for c in ("id", "logit", "p"))
                result.append(Candidates(id_, logit, prob, int(cur.selected), bool(cur.sorted)))
        return result

    def accept(self, token: int) -> None:
        """Tell every sampler that `token` was chosen."""
        with capture_log(self.log):
            self._api.lib.llama_sampler_accept(self._chain, token)

    def reset(self) -> None:
        """Return every sampler to its first state, seeds included."""
        self._api.lib.llama_sampler_reset(self._chain)

    def clone(self) -> ReferenceChain:
        """A copy with the same state."""
        other = ReferenceChain()
        self._api.lib.llama_sampler_free(other._chain)
        other._chain = self._api.lib.llama_sampler_clone(self._chain)
        return other

    def close(self) -> None:
        """Free the samplers."""
        if self._chain is not None:
            self._api.lib.llama_sampler_free(self._chain)
            self._chain = None

    def __enter__(self) -> ReferenceChain:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_chain", None) is not None:
            self.close()


def _pointer(vocab: Any) -> Any:
    """The C vocabulary of a `ReferenceVocab`, or of a `Reference`."""
    return (vocab if isinstance(vocab, ReferenceVocab) else vocab.vocab).pointer
