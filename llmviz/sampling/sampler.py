"""↔ include/llama.h (llama_sampler), src/llama-sampler.cpp (chain, llama_sampler_sample).

The sampler interface, its registry, and the chain that runs samplers one after another.
A sampler is five verbs; only `apply` may change the candidates, only `accept` and drawing may
change the sampler. Does not do: batching, grammars, sampling on the device.
"""

from __future__ import annotations

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from llmviz.errors import SamplerError, UnsupportedError
from llmviz.events import Event, Steps
from llmviz.sampling.candidates import TokenDataArray
from llmviz.sampling.rng import LLAMA_DEFAULT_SEED

__all__ = [
    "SAMPLERS",
    "Chain",
    "Sampler",
    "SamplerStep",
    "TokenDataArray",
    "Why",
    "make_sampler",
]

STEP = 15

SAMPLERS: dict[str, type[Sampler]] = {}
"""Samplers by llama.cpp's name; a subclass that sets `name` registers itself."""


class Why(NamedTuple):
    """What a sampler did, in one sentence, and the number that decided.

    `threshold` is in the unit that the sentence names: a logit, a probability, a temperature ...
    """

    sentence: str
    threshold: float | None = None


class Sampler(ABC):
    """One link of a chain.

    Subclasses set `name`, keep every parameter of ``__init__`` as an attribute of the same name (in
    llama.h's order), and implement `apply`.

    Attributes
    ----------
    name : str
        llama.cpp's name: ``"top-k"``.
    selects : bool
        Whether it picks a token (sets `TokenDataArray.selected`).
    last_draw : float or None
        The random number in [0, 1) of the last `apply`, None where none was drawn.
    """

    name: ClassVar[str] = ""
    selects: ClassVar[bool] = False
    last_draw: float | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__dict__.get("name"):
            SAMPLERS[cls.name] = cls

    @property
    def event_name(self) -> str:
        """Name of its events: ``"top_k"``."""
        return self.name.replace("-", "_")

    @property
    def params(self) -> dict[str, Any]:
        """Parameters by name, in llama.h's order."""
        return {key: getattr(self, key) for key in inspect.signature(type(self)).parameters}

    @property
    def off(self) -> bool:
        """Whether these parameters switch it off (llama.cpp puts an empty sampler in its place)."""
        return False

    @abstractmethod
    def apply(self, cur: TokenDataArray) -> None:
        """Change the candidates: give `cur` new arrays, never write into those it has."""

    def accept(self, token: int) -> None:  # noqa: B027 (most samplers remember nothing)
        """Take note of a token that became part of the text."""

    def reset(self) -> None:  # noqa: B027
        """Go back to the state after construction."""

    def clone(self) -> Sampler:
        """Return an independent sampler in the same state."""
        return copy.copy(self)

    def explain(self, before: TokenDataArray, after: TokenDataArray) -> Why:
        """Say what the last `apply` did. Called only when someone watches; changes nothing."""
        return Why(f"{self.name} left {after.size} of {before.size} candidates")

    def __repr__(self) -> str:
        args = ", ".join(f"{key}={value!r}" for key, value in self.params.items())
        return f"{type(self).__name__}({args})"


def make_sampler(name: str, **params: Any) -> Sampler:
    """Build a sampler by llama.cpp's name (``"top-k"`` or ``"top_k"``).

    Raises
    ------
    UnsupportedError
        For an unknown name.
    SamplerError
        For parameters that it does not have.
    """
    cls = SAMPLERS.get(name.replace("_", "-"))
    if cls is None:
        raise UnsupportedError("sampler", name, supported=SAMPLERS)
    try:
        inspect.signature(cls).bind(**params)
    except TypeError as error:
        known = ", ".join(inspect.signature(cls).parameters)
        raise SamplerError(f"{name}: {error}; its parameters are: {known or 'none'}") from error
    return cls(**params)


@dataclass(frozen=True, slots=True, eq=False)
class SamplerStep:
    """What one sampler of a chain did: the `about` of its event.

    Attributes
    ----------
    sampler : Sampler
    index : int
        Its place in the chain.
    before, after : TokenDataArray
        Read-only, valid for good.
    why : str
        One sentence, with the threshold's number.
    threshold : float or None
    draw : float or None
        The random number in [0, 1), where one was drawn.
    """

    sampler: Sampler
    index: int
    before: TokenDataArray
    after: TokenDataArray
    why: str
    threshold: float | None = None
    draw: float | None = None

    @property
    def cut(self) -> NDArray[np.int32]:
        """Ids of the candidates that it removed, int32[n_cut], in the order they had."""
        if self.after.size >= self.before.size:
            return np.empty(0, np.int32)
        return self.before.id[~np.isin(self.before.id, self.after.id)]


class HasLogits(Protocol):
    """What `Chain.sample` needs of a context."""

    def get_logits_ith(self, i: int) -> NDArray[np.float32]:
        """Return the logits of one output, float32[n_vocab]."""
        ...


class Chain(Sampler):
    """Samplers applied one after another; itself a sampler.

    Parameters
    ----------
    samplers : iterable of Sampler
        First to last. The last should select a token (`Dist`, `Greedy`, `Mirostat` ...).

    Examples
    --------
    >>> from llmviz.sampling import Chain, Greedy, TokenDataArray, TopK
    >>> cur = TokenDataArray.from_logits([0.5, 2.0, 1.0])
    >>> Chain([TopK(2), Greedy()]).apply(cur)
    >>> cur.id.tolist(), cur.selected_id
    ([1, 2], 1)
    """

    name = "chain"

    def __init__(self, samplers: Iterable[Sampler] = ()) -> None:
        self.samplers: list[Sampler] = []
        for sampler in samplers:
            self.add(sampler)

    @classmethod
    def default(cls, seed: int = LLAMA_DEFAULT_SEED) -> Chain:
        """Return what llama.cpp's tools start with: their order, their defaults.

        Without the samplers that these switch off; see `common_chain` for all of them.
        """
        names = ("penalties", "top-k", "top-p", "min-p", "temp")
        return cls([*(make_sampler(name) for name in names), make_sampler("dist", seed=seed)])

    # -- the list -------------------------------------------------------------------------------
    def add(self, sampler: Sampler) -> None:
        """Append a sampler.

        Raises
        ------
        SamplerError
            If it is not one, or is this chain itself.
        """
        if not isinstance(sampler, Sampler) or sampler is self:
            raise SamplerError(f"a chain holds samplers such as TopK(40), not {sampler!r}")
        self.samplers.append(sampler)

    def remove(self, i: int) -> Sampler:
        """Take out and return the `i`-th sampler; IndexError where there is none."""
        return self.samplers.pop(i)

    def __len__(self) -> int:
        return len(self.samplers)

    def __iter__(self) -> Iterator[Sampler]:
        return iter(self.samplers)

    def __getitem__(self, i: int) -> Sampler:
        return self.samplers[i]

    @property
    def selecting(self) -> bool:
        """Whether some sampler of the chain picks a token."""
        return any(s.selecting if isinstance(s, Chain) else s.selects for s in self.samplers)

    # -- the five verbs -------------------------------------------------------------------------
    def apply(self, cur: TokenDataArray) -> None:
        """Run every sampler over the candidates, in place."""
        for sampler in self.samplers:
            sampler.apply(cur)

    def accept(self, token: int) -> None:
        """Tell every sampler which token became part of the text."""
        for sampler in self.samplers:
            sampler.accept(token)

    def reset(self) -> None:
        """Reset every sampler."""
        for sampler in self.samplers:
            sampler.reset()

    def clone(self) -> Chain:
        """Return an independent chain whose samplers are in the same state."""
        return Chain(sampler.clone() for sampler in self.samplers)

    # -- stepping and sampling --------------------------------------------------------------------
    def apply_steps(self, cur: TokenDataArray, *, depth: int = 0) -> Steps[TokenDataArray]:
        """Run the samplers one at a time, an event after each.

        Yields ``Event("data", "top_k", depth, 15)`` with `value` the candidates after it (a
        read-only snapshot that stays valid) and `about` a `SamplerStep`. Assigning another
        `TokenDataArray` to the event's value lets the chain go on with a copy of that one. `cur`
        ends as `apply` would leave it (its arrays read-only) and is returned.

        Raises
        ------
        SamplerError
            If something else was assigned to an event's value.
        """
        before = cur.freeze()
        for index, sampler in enumerate(self.samplers):
            sampler.apply(cur)
            after = cur.freeze()
            why = sampler.explain(before, after)
            step = SamplerStep(
                sampler=sampler,
                index=index,
                before=before,
                after=after,
                why=why.sentence,
                threshold=why.threshold,
                draw=sampler.last_draw,
            )
            event = Event("data", sampler.event_name, depth, STEP, after, step)
            yield event
            if event.value is not after:
                if not isinstance(event.value, TokenDataArray):
                    raise SamplerError(
                        f"after {sampler.name}: the candidates can only be replaced by a "
                        f"TokenDataArray, not {type(event.value).__name__}"
                    )
                cur.assign(event.value)
                after = cur.freeze()
            before = after
        return cur

    def sample(self, ctx: HasLogits, idx: int = -1) -> int:
        """Pick a token from the `idx`-th output of a context and accept it.

        Raises
        ------
        SamplerError
            If the chain selects nothing, or the logits hold NaN.
        IndexError
            As ``ctx.get_logits_ith(idx)`` raises it.
        """
        cur = _candidates(ctx, idx)
        self.apply(cur)
        token = self._selected(cur)
        self.accept(token)
        return token

    def sample_steps(self, ctx: HasLogits, idx: int = -1, *, depth: int = 0) -> Steps[int]:
        """As `sample`, with the events of `apply_steps`; returns the token id.

        The last event is ``selected``: its value is the token id, before any sampler has taken note
        of it. Assigning another id to it chooses that token instead.
        """
        cur = _candidates(ctx, idx)
        n_vocab = cur.size
        yield from self.apply_steps(cur, depth=depth)
        event = Event("data", "selected", depth, STEP, self._selected(cur), cur)
        yield event
        token = int(event.value)
        if not 0 <= token < n_vocab:
            raise SamplerError(f"token {token} cannot be chosen: ids are 0..{n_vocab - 1}")
        self.accept(token)
        return token

    def _selected(self, cur: TokenDataArray) -> int:
        if not 0 <= cur.selected < cur.size:
            names = ", ".join(s.name for s in self.samplers) or "empty"
            if self.selecting:
                raise SamplerError(
                    f"no token selected: selected is {cur.selected} with {cur.size} candidates "
                    f"left (chain: {names}); put the selecting sampler last"
                )
            raise SamplerError(
                f"no selecting sampler in the chain ({names}): end it with Dist(seed) or Greedy()"
            )
        return cur.selected_id


def _candidates(ctx: HasLogits, idx: int) -> TokenDataArray:
    cur = TokenDataArray.from_logits(ctx.get_logits_ith(idx))
    if cur.size and np.isnan(cur.logit.max()):  # max() passes a NaN on: one cheap look
        bad = np.flatnonzero(np.isnan(cur.logit))
        raise SamplerError(
            f"the logits of output {idx} hold NaN ({bad.size} of {cur.size}, first at token "
            f"{bad[0]}): look for the first node of the graph that has one"
        )
    return cur
