"""↔ include/llama.h (llama_token_data_array), src/llama-sampler.cpp (softmax, partial sort).

The candidates of one sampling step, as three parallel arrays. A sampler changes the object in place
by giving it new arrays; it never writes into an array, which someone who watches may hold.

Arithmetic is float32 in llama.cpp's order wherever a result can depend on it: sums run left to
right (`np.add.accumulate`, never the pairwise `np.sum`), exponentials are rounded from double.
Does not do: order among equal logits as llama.cpp has it. It is unspecified there; here the
earlier candidate comes first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from llmviz.errors import SamplerError
from llmviz.sampling._float32 import Float32, expf

__all__ = ["TokenDataArray", "largest", "softmax"]


def softmax(logit: Float32, is_sorted: bool = False) -> Float32:
    """Probabilities of candidates: exp(logit - max) over its left-to-right float32 sum.

    Parameters
    ----------
    logit : float32[n]
        n > 0.
    is_sorted : bool
        Take ``logit[0]`` for the maximum, as llama.cpp does with an array flagged sorted.

    Returns
    -------
    float32[n]
    """
    with np.errstate(invalid="ignore", divide="ignore"):  # all -inf: NaN, as in llama.cpp
        e = expf(logit - (logit[0] if is_sorted else logit.max()))  # [n]
        return e / np.add.accumulate(e)[-1]


def largest(logit: Float32, k: int) -> NDArray[np.intp]:
    """Positions of the `k` largest logits, largest first; of equal ones the earlier first.

    Parameters
    ----------
    logit : float32[n]
    k : int
        0 <= k <= n.

    Returns
    -------
    intp[k]
    """
    n = logit.size
    if k <= 0:
        return np.empty(0, np.intp)
    among: NDArray[np.intp] | None = None
    if k < n:
        smallest_kept = np.partition(logit, n - k)[n - k]
        above = np.flatnonzero(logit > smallest_kept)
        equal = np.flatnonzero(logit == smallest_kept)[: k - above.size]
        among = np.concatenate((above, equal))  # [k]
        logit = logit[among]
    # One integer sort with unique keys is several times faster than a stable float sort of a whole
    # vocabulary: the float's bits, mapped so that they order like the number, then the position.
    bits = (-logit).view(np.int32).astype(np.int64)
    keys = ((bits ^ ((bits >> 31) & 0x7FFFFFFF)) << 32) | np.arange(logit.size)
    order = np.sort(keys) & 0xFFFFFFFF  # [k]
    return order if among is None else among[order]


@dataclass(slots=True, eq=False)
class TokenDataArray:
    """The candidates for the next token.

    Parameters are the attributes; arrays of the right type are taken without copying them.

    Attributes
    ----------
    id : int32[n]
        Token ids.
    logit : float32[n]
        Scores; -inf for a candidate that cannot be drawn.
    p : float32[n]
        Probabilities as the last sampler that needed them left them, 0 before. As in llama.cpp
        they are *not* renewed after a cut or a new temperature; see `probabilities`.
    selected : int
        Position (not id) of the chosen candidate, -1 while none is.
    sorted : bool
        Whether samplers may rely on descending logits.
    """

    id: NDArray[np.int32]
    logit: Float32
    p: Float32
    selected: int = -1
    sorted: bool = False

    def __post_init__(self) -> None:
        # Views, so that `freeze` does not make the caller's own arrays read-only.
        self.id = _column("id", self.id, np.int32).view()
        self.logit = _column("logit", self.logit, np.float32).view()
        self.p = _column("p", self.p, np.float32).view()
        if not self.id.size == self.logit.size == self.p.size:
            raise SamplerError(
                f"candidates: id, logit and p must have one length, "
                f"not {self.id.size}, {self.logit.size} and {self.p.size}"
            )

    @classmethod
    def from_logits(cls, logits: ArrayLike) -> TokenDataArray:
        """Every token of the vocabulary as a candidate.

        Parameters
        ----------
        logits : float32[n_vocab]
            Copied, so that the context's own output stays as it is.

        Raises
        ------
        SamplerError
            If it is not one-dimensional or not numeric.
        """
        logit = _column("logit", logits, np.float32)
        if logit is logits or not logit.flags.owndata:
            logit = logit.copy()
        n = logit.size
        return cls(np.arange(n, dtype=np.int32), logit, np.zeros(n, np.float32))

    @property
    def size(self) -> int:
        """Number of candidates, n."""
        return int(self.id.size)

    def __len__(self) -> int:
        return self.size

    @property
    def selected_id(self) -> int:
        """Token id of the selected candidate, -1 where none is."""
        return int(self.id[self.selected]) if 0 <= self.selected < self.size else -1

    def copy(self) -> TokenDataArray:
        """Return an independent, writable copy."""
        return TokenDataArray(
            self.id.copy(), self.logit.copy(), self.p.copy(), self.selected, self.sorted
        )

    def freeze(self) -> TokenDataArray:
        """Make the arrays read-only and return an object that shares them: a snapshot for free."""
        for column in (self.id, self.logit, self.p):
            column.flags.writeable = False
        return TokenDataArray(self.id, self.logit, self.p, self.selected, self.sorted)

    def assign(self, other: TokenDataArray) -> None:
        """Take over the content of `other` (copied), keeping this object."""
        new = other.copy()
        self.id, self.logit, self.p = new.id, new.logit, new.p
        self.selected, self.sorted = new.selected, new.sorted

    def keep(self, which: Any) -> None:
        """Keep the rows that an index (slice, positions or mask) picks, in that order."""
        self.id, self.logit, self.p = self.id[which], self.logit[which], self.p[which]

    def sort(self, k: int | None = None) -> None:
        """Keep the `k` largest logits (default all) in descending order and set `sorted`."""
        self.keep(largest(self.logit, self.size if k is None else k))
        self.sorted = True

    def softmax(self, do_sort: bool, who: str) -> None:
        """Fill `p` from the logits, after sorting if asked and not sorted yet.

        Raises
        ------
        SamplerError
            If there is no candidate; `who` is the sampler named in the message.
        """
        if self.size == 0:
            raise SamplerError(f"{who}: no candidates to take probabilities of")
        if do_sort and not self.sorted:
            self.sort()
        self.p = softmax(self.logit, self.sorted)

    def probabilities(self) -> Float32:
        """Return the softmax of the logits as they are now, float32[n]; changes nothing."""
        return softmax(self.logit) if self.size else np.empty(0, np.float32)

    def top(self, k: int) -> TokenDataArray:
        """Return the `k` best, best first, `p` their share of *all* candidates; changes nothing."""
        order = largest(self.logit, max(0, min(k, self.size)))
        where = np.flatnonzero(order == self.selected)
        return TokenDataArray(
            self.id[order],
            self.logit[order],
            self.probabilities()[order],
            int(where[0]) if where.size else -1,
            True,
        )

    def positions_of(self, tokens: NDArray[np.int64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Find candidates by token id.

        Parameters
        ----------
        tokens : int64[m]
            Ids without repeats; those that are no candidate are skipped.

        Returns
        -------
        position : intp[h]
            Positions in the candidates.
        which : intp[h]
            For each, the index into `tokens`.
        """
        n = self.size
        if n == 0 or tokens.size == 0:
            return np.empty(0, np.intp), np.empty(0, np.intp)
        inside = (tokens >= 0) & (tokens < n)
        place = np.where(inside, tokens, 0)
        at_home = inside & (self.id[place] == tokens)  # the whole vocabulary, not shuffled
        if at_home.all():
            return place, np.arange(tokens.size)
        order = np.argsort(tokens)
        slot = np.minimum(np.searchsorted(tokens[order], self.id), tokens.size - 1)  # [n]
        position = np.flatnonzero(tokens[order][slot] == self.id)
        return position, order[slot[position]]


def _column(name: str, values: ArrayLike, dtype: type[Any]) -> NDArray[Any]:
    """One-dimensional array of `dtype`; a copy only where one is needed."""
    try:
        out = np.asarray(values, dtype=dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise SamplerError(f"candidates: {name} is not an array of numbers: {error}") from error
    if out.ndim != 1:
        raise SamplerError(
            f"candidates: {name} must have one dimension (one value a token), not shape {out.shape}"
        )
    return out
