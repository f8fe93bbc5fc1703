"""↔ common/common.h (common_params_sampling), common/sampling.cpp (common_sampler_init).

The chain that llama.cpp's command-line tools build from their options. Does not do: grammars,
reasoning budgets, bans of the end of generation (``--ignore-eos``: put them into `logit_bias`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

from llmviz.errors import SamplerError, UnsupportedError
from llmviz.sampling.adaptive_p import AdaptiveP
from llmviz.sampling.dist import Dist
from llmviz.sampling.dry import DRY
from llmviz.sampling.infill import Infill
from llmviz.sampling.logit_bias import LogitBias
from llmviz.sampling.mirostat import Mirostat, MirostatV2
from llmviz.sampling.penalties import Penalties
from llmviz.sampling.rng import LLAMA_DEFAULT_SEED
from llmviz.sampling.sampler import Chain, Sampler
from llmviz.sampling.temperature import Temp, TempExt
from llmviz.sampling.top_n_sigma import TopNSigma
from llmviz.sampling.truncation import MinP, TopK, TopP
from llmviz.sampling.typical import Typical
from llmviz.sampling.xtc import XTC

__all__ = ["SamplingParams", "common_chain"]


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """The tools' sampling options, with their names and defaults.

    Attributes
    ----------
    samplers : tuple of str
        The chain's links in order, by the names of ``--samplers``.
    mirostat : int
        1 or 2 takes the place of `samplers` (and needs no others than the temperature).
    min_keep : int
        For all samplers that have it.
    logit_bias : tuple of (int, float)
        Token and what is added to its logit, before all else.
    """

    seed: int = LLAMA_DEFAULT_SEED
    min_keep: int = 0
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    typ_p: float = 1.0
    temp: float = 0.8
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    penalty_last_n: int = 64
    penalty_repeat: float = 1.0
    penalty_freq: float = 0.0
    penalty_present: float = 0.0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = 64
    dry_sequence_breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    adaptive_target: float = -1.0
    adaptive_decay: float = 0.9
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    top_n_sigma: float = -1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    samplers: tuple[str, ...] = (
        "penalties",
        "dry",
        "top_n_sigma",
        "top_k",
        "typ_p",
        "top_p",
        "min_p",
        "xtc",
        "temperature",
    )


_LINKS: dict[str, Callable[[SamplingParams, Any], Sampler]] = {
    "penalties": lambda p, _: Penalties(
        p.penalty_last_n, p.penalty_repeat, p.penalty_freq, p.penalty_present
    ),
    "dry": lambda p, vocab: DRY(
        p.dry_multiplier,
        p.dry_base,
        p.dry_allowed_length,
        p.dry_penalty_last_n,
        p.dry_sequence_breakers,
        vocab,
    ),
    "top_n_sigma": lambda p, _: TopNSigma(p.top_n_sigma),
    "top_k": lambda p, _: TopK(p.top_k),
    "typ_p": lambda p, _: Typical(p.typ_p, p.min_keep),
    "top_p": lambda p, _: TopP(p.top_p, p.min_keep),
    "min_p": lambda p, _: MinP(p.min_p, p.min_keep),
    "xtc": lambda p, _: XTC(p.xtc_probability, p.xtc_threshold, p.min_keep, p.seed),
    "temperature": lambda p, _: TempExt(p.temp, p.dynatemp_range, p.dynatemp_exponent),
    "infill": lambda p, vocab: Infill(vocab),
}


def common_chain(params: SamplingParams | None = None, vocab: Any = None, **changes: Any) -> Chain:
    """Build the chain that llama.cpp's tools would.

    Parameters
    ----------
    params : SamplingParams, optional
        Default: the tools' defaults.
    vocab : Vocab, optional
        For DRY with sequence breakers, infill, and mirostat 1; its `suppress_tokens` are banned.
    **changes
        Single options by name: ``common_chain(temp=0.5, seed=42)``.

    Raises
    ------
    UnsupportedError
        A sampler that there is none of.
    SamplerError
        An option that there is none of, a value out of range, or a vocabulary that is missing.

    Examples
    --------
    >>> from llmviz.sampling import common_chain
    >>> [s.name for s in common_chain(seed=42) if not s.off]
    ['top-k', 'top-p', 'min-p', 'temp-ext', 'dist']
    """
    known = [f.name for f in fields(SamplingParams)]
    for name in changes:
        if name not in known:
            raise SamplerError(f"no sampling option {name!r}; known: {', '.join(known)}")
    p = replace(params or SamplingParams(), **changes)
    never = [(token, -math.inf) for token in getattr(vocab, "suppress_tokens", ())]
    biases = [*p.logit_bias, *never]
    chain: list[Sampler] = [LogitBias(biases)] if biases else []
    if p.mirostat in (1, 2):
        chain.append(Temp(p.temp))
        if p.mirostat == 2:
            return Chain([*chain, MirostatV2(p.seed, p.mirostat_tau, p.mirostat_eta)])
        if vocab is None:
            raise SamplerError("mirostat 1 needs the size of the vocabulary: give vocab")
        n_vocab = vocab.n_tokens
        return Chain([*chain, Mirostat(n_vocab, p.seed, p.mirostat_tau, p.mirostat_eta, 100)])
    if p.mirostat:
        raise SamplerError(f"mirostat is 0 (off), 1 or 2, not {p.mirostat}")
    for name in p.samplers:
        if name == "adaptive_p":
            continue  # it selects, so it takes the place of the last link
        if name not in _LINKS:
            raise UnsupportedError("sampler", name, supported=[*_LINKS, "adaptive_p"])
        chain.append(_LINKS[name](p, vocab))
    if "adaptive_p" in p.samplers:
        return Chain([*chain, AdaptiveP(p.adaptive_target, p.adaptive_decay, p.seed)])
    return Chain([*chain, Dist(p.seed)])
