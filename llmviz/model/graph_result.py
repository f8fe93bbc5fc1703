"""What a graph is built from, and what is kept of it to use it again. ↔ src/llama-graph.h"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from llmviz.batch import Ubatch
from llmviz.ggml.graph import Graph, Tensor
from llmviz.model.arch import ModelWeights
from llmviz.model.cparams import CParams
from llmviz.model.hparams import HParams
from llmviz.model.inputs import GraphInput

__all__ = ["GraphParams", "GraphResult"]


@dataclass
class GraphParams:
    """Everything a graph's topology follows from. ↔ llm_graph_params

    Attributes
    ----------
    mctx : KVCacheContext or KVCacheISWAContext
        The memory's plan for this ubatch: n_kv, slots.
    kv : KVTensors or KVTensorsISWA
        The cache as graph leaves.
    n_outputs : int
        Rows whose logits are wanted.
    """

    hparams: HParams
    cparams: CParams
    weights: ModelWeights
    ubatch: Ubatch
    mctx: Any
    kv: Any
    n_outputs: int
    streams: list[int] = field(init=False)

    def __post_init__(self) -> None:
        # the plan moves on to the next ubatch, a graph is compared with the one it was built for
        self.streams = list(self.mctx.sinfo.strm)

    def allow_reuse(self, other: GraphParams) -> bool:
        """True where a graph built for `other` has the topology this ubatch needs."""
        a, b = self.ubatch, other.ubatch
        same_streams = self.cparams.kv_unified or (
            list(a.seq_id_unq) == list(b.seq_id_unq) and self.streams == other.streams
        )
        return (
            a.n_tokens == b.n_tokens
            and a.n_seq_tokens == b.n_seq_tokens
            and a.n_seqs == b.n_seqs
            and a.n_seqs_unq == b.n_seqs_unq
            and bool(a.equal_seqs) == bool(b.equal_seqs)
            and same_streams
            and self.n_outputs == other.n_outputs
            and self.weights is other.weights
            and self.kv is other.kv
        )


@dataclass
class GraphResult:
    """A built graph, its inputs and the tensors that are read after it has run.

    ↔ llm_graph_result
    """

    params: GraphParams
    gf: Graph = field(default_factory=Graph)
    inputs: list[GraphInput] = field(default_factory=list)
    t_embd: Tensor | None = None
    t_logits: Tensor | None = None
    _live: list[GraphInput] | None = None

    def __repr__(self) -> str:
        return f"<GraphResult of {self.params.ubatch.n_tokens} tokens, {self.gf!r}>"

    @property
    def live_inputs(self) -> list[GraphInput]:
        """The inputs that some node reads; known once the graph has memory.

        A model without dense layers, say, never reads the mask that these would have.
        """
        if self._live is None:
            self._live = [i for i in self.inputs if i.tensors()[0].array is not None]
        return self._live

    def outputs(self) -> list[Tensor]:
        """Results whose memory must outlive the run."""
        return [t for t in (self.t_embd, self.t_logits) if t is not None]

    def can_reuse(self, params: GraphParams) -> bool:
        """True where only the inputs' data changes. ↔ llm_graph_result::can_reuse"""
        if not params.allow_reuse(self.params):
            return False
        return all(inp.can_reuse(params) for inp in self.live_inputs)

    def set_inputs(self, params: GraphParams) -> None:
        """Fill every input for the ubatch in `params`."""
        self.params = params
        for inp in self.live_inputs:
            inp.set_input(params)
