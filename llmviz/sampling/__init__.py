"""Sampling: from the logits of one position to one token. ↔ src/llama-sampler.cpp.

Reading order: `candidates` (the data), `sampler` (the interface and the chain), `dist`,
`truncation`, `temperature`, `penalties`, `logit_bias`, then the rest; `common` is the chain of
llama.cpp's tools.
"""

from llmviz.sampling.adaptive_p import AdaptiveP
from llmviz.sampling.candidates import TokenDataArray
from llmviz.sampling.common import SamplingParams, common_chain
from llmviz.sampling.dist import Dist, Greedy
from llmviz.sampling.dry import DRY
from llmviz.sampling.infill import Infill
from llmviz.sampling.logit_bias import LogitBias
from llmviz.sampling.mirostat import Mirostat, MirostatV2
from llmviz.sampling.penalties import Penalties
from llmviz.sampling.rng import LLAMA_DEFAULT_SEED
from llmviz.sampling.sampler import SAMPLERS, Chain, Sampler, SamplerStep, Why, make_sampler
from llmviz.sampling.temperature import Temp, TempExt
from llmviz.sampling.top_n_sigma import TopNSigma
from llmviz.sampling.truncation import MinP, TopK, TopP
from llmviz.sampling.typical import Typical
from llmviz.sampling.xtc import XTC

__all__ = [
    "DRY",
    "LLAMA_DEFAULT_SEED",
    "SAMPLERS",
    "XTC",
    "AdaptiveP",
    "Chain",
    "Dist",
    "Greedy",
    "Infill",
    "LogitBias",
    "MinP",
    "Mirostat",
    "MirostatV2",
    "Penalties",
    "Sampler",
    "SamplerStep",
    "SamplingParams",
    "Temp",
    "TempExt",
    "TokenDataArray",
    "TopK",
    "TopNSigma",
    "TopP",
    "Typical",
    "Why",
    "common_chain",
    "make_sampler",
]
