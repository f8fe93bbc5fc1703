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
from llmviz.ggml.backends.cuda.base import Binding
from llmviz.ggml.backends.cuda.ops_norm import bind_norm
from llmviz.ggml.graph import Tensor

if TYPE_CHECKING:
    from llmviz.ggml.backends.cuda.device import CUDA

__all__ = ["Recording", "fused"]


def fused(
    cuda: CUDA, nodes: Sequence[Tensor], kernels: Sequence[Kernel | None]
) -> list[Kernel]:
    """The launches of all nodes, a norm and the product with its weight as one.

    A norm is joined with the product behind it where no other node here reads it. A result that is
    read after the run is never a norm with a product behind it.
    """
    readers = Counter(id(s.root) for node in nodes for s in node.src)
    out: list[Kernel] = []
    joined = False
    for i, (node, kernel) in enumerate(zip(nodes, kernels, strict=True)):
        if joined:  # done with the one before
            joined = False
            continue
        behind = nodes[i + 1] if i + 1 < len(nodes) else None
        if behind is not None and _scales(node, behind) and readers[id(node)] == 1:
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
        self, cuda: CUDA, nodes: Sequence[Tensor], kernels: Sequence[Kernel | None]
    ) -> None:
        self.cuda = cuda
        self.launches = fused(cuda, nodes, kernels)
        self.graph: Any = None
        self.recordable = all(getattr(k, "recordable", False) for k in self.launches)
        self._has_run = False

    def __call__(self) -> None:
        if self.graph is not None:
            self.graph.launch(self.cuda.stream)
            return
        if not (self.recordable and self.cuda.records and self._has_run):
            for launch in self.launches:
                launch()
            self._has_run = True
            return
        self._record()
        self.graph.launch(self.cuda.stream)

    def _record(self) -> None:
        stream = self.cuda.stream
        with self.cuda.active():
            stream.begin_capture()
            try:
                for launch in self.launches:
                    launch()
            finally:
                self.graph = stream.end_capture()
