"""What runs when nobody watches: fewer launches, recorded once as a CUDA graph.

↔ ggml/src/ggml-cuda/ggml-cuda.cu (evaluate_and_capture_cuda_graph, ggml_cuda_can_fuse)

A recording holds addresses: it is good as long as its nodes keep their memory, that is until the
next graph is allocated, and then everything is bound anew. Inputs are written to the same
addresses before every launch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llmviz.ggml.backends.backend import BindScope, Kernel
from llmviz.ggml.backends.cuda.base import Binding, memory_of
from llmviz.ggml.backends.cuda.ops_norm import bind_norm
from llmviz.ggml.graph import Graph, Tensor

if TYPE_CHECKING:
    from llmviz.ggml.backends.cuda.device import CUDA

__all__ = ["Recording", "fused"]


def fused(
    cuda: CUDA, nodes: Sequence[Tensor], kernels: Sequence[Kernel | None], graph: Graph
) -> list[Kernel]:
    """The launches of all nodes, a norm and the product with its weight as one.

    A norm is joined with the product behind it where nothing else in the graph reads it. What is
    read after a run is never a norm that something is multiplied with.
    """
    readers = Counter(id(s.root) for node in graph.nodes for s in node.src)
    out: list[Kernel] = []
    joined = False
    for i, (node, kernel) in enumerate(zip(nodes, kernels, strict=True)):
        if joined:  # done with the one before
            joined = False
            continue
        behind = nodes[i + 1] if i + 1 < len(nodes) else None
        alone = readers[id(node)] == 1 and node.nelements > 0
        if alone and behind is not None and _scales(node, behind) and _apart(node.src[0], behind):
            binding = Binding(node, cuda, BindScope())
            out.append(bind_norm(binding, weight=behind.src[1], out=behind))
            joined = True
        elif kernel is not None:
            out.append(kernel)
    return out


def _scales(node: Tensor, behind: Tensor) -> bool:
    """Whether `behind` multiplies the norm `node` with one row of weights."""
    if node.op not in ("RMS_NORM", "NORM") or behind.op != "MUL" or behind.src[0] is not node:
        return False
    weight = behind.src[1]
    return weight.ne == (node.ne[0], 1, 1, 1) and weight.is_contiguous


def _apart(x: Tensor, out: Tensor) -> bool:
    """Whether writing `out` row by row destroys no row of x: x's memory may be free by then."""
    x_from, out_from = (memory_of(t).data.ptr for t in (x, out))
    return x_from + x.span <= out_from or out_from + out.span <= x_from


class Recording:
    """The launches of a stretch of nodes; from the second call on, one launch for all.

    The first call runs them singly: what CuPy loads lazily is loaded then, and a graph that is
    used only once is not recorded at all.

    Attributes
    ----------
    launches : list of callables
    graph : cupy.cuda.Graph or None
        Once it has been recorded.
    """

    def __init__(
        self, cuda: CUDA, nodes: Sequence[Tensor], kernels: Sequence[Kernel | None], graph: Graph
    ) -> None:
        self.cuda = cuda
        self.launches = fused(cuda, nodes, kernels, graph)
        self.graph: Any = None  # of CUDA, not of ggml
        self.recordable = all(getattr(k, "recordable", False) for k in self.launches)
        self._has_run = False

    def __call__(self) -> None:
        with self.cuda.active():
            if self.graph is None and self.recordable and self.cuda.records and self._has_run:
                self.graph = self._record()
            if self.graph is not None:
                self.graph.launch(self.cuda.stream)
                return
            for launch in self.launches:
                launch()
            self._has_run = True

    def _record(self) -> Any:
        stream = self.cuda.stream
        stream.begin_capture()
        try:
            for launch in self.launches:
                launch()
        finally:
            graph = stream.end_capture()  # a stream that goes on recording is of no use
        return graph
