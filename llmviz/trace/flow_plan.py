"""The pass before it begins: the columns that it will have, as far as they are known by then.

A loaded model has its graph, the same that will run. Before that a file's header names the tensors
of each layer and their sizes: every one of them becomes a column. Nothing here holds a number that
was computed.
"""

from __future__ import annotations

import os
import re
from typing import Any

from llmviz.errors import LlmvizError
from llmviz.gguf import GGUF, open_gguf
from llmviz.trace.flow_graph import Column, Layout, lay_out
from llmviz.trace.lens import whole_graph

__all__ = ["Plan"]

_ROWS = 2  # tokens of the graph that is built to be looked at
_LAYER = re.compile(r"blk\.(\d+)\.(\w+)\.weight")

# What a tensor's product is called in the graph, and above its strip. Others keep their own names.
_NAMES = {
    "attn_q": ("Qcur", "Q"),
    "attn_k": ("Kcur", "K"),
    "attn_v": ("Vcur", "V"),
    "attn_output": ("attn_out", "out"),
    "attn_norm": ("attn_norm", "norm"),
    "ffn_norm": ("ffn_norm", "norm"),
    "ffn_gate": ("ffn_gate", "gate"),
    "ffn_up": ("ffn_up", "up"),
    "ffn_down": ("ffn_out", "down"),
}
_ORDER = (
    *("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output"),
    *("ffn_norm", "ffn_gate", "ffn_up", "ffn_down"),
)


class Plan:
    """Columns of a pass that has not begun; remembers what it has found.

    Parameters
    ----------
    dbg : Debugger
    """

    def __init__(self, dbg: Any) -> None:
        self.dbg = dbg
        self.source = ""
        self.n_layer = 0
        self._key: Any = None
        self._layout = Layout()
        self._file: tuple[str, _Header | None] | None = None
        self._nodes: tuple[Any, Any] | None = None
        self._of: tuple[Any, _Header] | None = None

    def layout(self, layer: int) -> Layout:
        """What is known by now; `source` says from where: "graph", "file", or "" for nothing."""
        model = self._model()
        header = None
        if getattr(model, "weights", None) is None:
            header = self._header()
        key = (id(model), layer, id(header))
        if key != self._key:
            self._key = key
            self.source, self.n_layer, self._layout = self._find(model, header, layer)
        return self._layout

    def _find(self, model: Any, header: _Header | None, layer: int) -> tuple[str, int, Layout]:
        if getattr(model, "weights", None) is not None:
            if self._nodes is None or self._nodes[0] is not model:
                try:
                    self._nodes = model, whole_graph(model, _ROWS).gf.nodes
                except LlmvizError:  # it cannot be built without a run: the file still tells much
                    self._nodes = model, ()
            if self._nodes[1]:
                n_layer = model.hparams.n_layer
                return "graph", n_layer, lay_out(self._nodes[1], layer, n_layer)
            header = self._header()
        if header is not None:
            return "file", header.n_layer, header.layout(layer)
        return "", 0, Layout()

    def _model(self) -> Any:
        """The model of the run, or the one that the run was given and has not come to yet."""
        if self.dbg.model is not None:
            return self.dbg.model
        subject = getattr(self.dbg, "subject", None)
        subject = getattr(subject, "model", subject)  # of a context
        return subject if hasattr(subject, "hparams") else None

    def _header(self) -> _Header | None:
        """The header of the file that the run will open, or has opened."""
        model = self._model()
        if getattr(model, "gguf", None) is not None:
            if self._of is None or self._of[0] is not model:
                self._of = model, _Header(model.gguf)
            return self._of[1]
        path = getattr(self.dbg, "subject", None)
        if not isinstance(path, (str, os.PathLike)) or not os.path.isfile(path):
            return None
        if self._file is None or self._file[0] != os.fspath(path):
            try:
                gguf = open_gguf(path)
                header: _Header | None = _Header(gguf)
                gguf.close()
            except LlmvizError:  # the run will say what is wrong with it, in its own words
                header = None
            self._file = os.fspath(path), header
        return self._file[1]


class _Header:
    """Sizes that a file's header tells."""

    def __init__(self, gguf: GGUF) -> None:
        self.sizes: dict[int, dict[str, tuple[int, ...]]] = {}
        for name, info in gguf.tensor_infos.items():
            found = _LAYER.fullmatch(name)
            if found is not None:
                self.sizes.setdefault(int(found[1]), {})[found[2]] = tuple(info.ne)
        arch = gguf.kv.get("general.architecture", "")
        self.n_layer = len(self.sizes)
        self.n_head = _whole(gguf.kv.get(f"{arch}.attention.head_count"))
        embedding = gguf.tensor_infos.get("token_embd.weight")
        self.n_embd = int(embedding.ne[0]) if embedding is not None else 0
        self.n_vocab = int(embedding.ne[1]) if embedding is not None else 0

    def layout(self, layer: int) -> Layout:
        """The columns with one layer open, each joined to the next."""
        if not self.n_layer or not self.n_embd:
            return Layout()
        columns = [self._column("embd", "embedding", "in", self.n_embd, -1, "token_embd.weight")]
        for il in sorted(self.sizes):
            if il == layer:
                columns += self._open(il)
            else:
                group = "before" if il < layer else "after"
                columns.append(self._column(f"l_out-{il}", "+", group, self.n_embd, il, ""))
        columns.append(self._column("result_norm", "norm", "out", self.n_embd, -1, ""))
        columns.append(self._column("result_output", "logits", "out", self.n_vocab, -1, ""))
        return Layout(columns, [(i, i + 1) for i in range(len(columns) - 1)])

    def _open(self, il: int) -> list[Column]:
        sizes = self.sizes[il]
        names = [n for n in _ORDER if n in sizes] + [n for n in sizes if n not in _ORDER]
        out, mlp = [], False
        for name in names:
            mlp = mlp or name.startswith("ffn")
            node, label = _NAMES.get(name, (name, name.replace("_", " ")))
            ne = sizes[name]
            n = ne[1] if len(ne) > 1 and ne[1] > 1 else ne[0]
            group = "mlp" if mlp else "attention"
            tensor = f"blk.{il}.{name}.weight"
            out.append(self._column(f"{node}-{il}", label, group, n, il, tensor))
            if name == "attn_v" and self.n_head and "attn_q" in sizes:
                for op, what in (("MUL_MAT", "kq"), ("SOFT_MAX", "kq_soft_max")):
                    title = "scores" if op == "MUL_MAT" else "softmax"
                    out.insert(
                        len(out) - 1,
                        Column(
                            f"{what}-{il}", title, "one number for each pair of tokens",
                            group, "matrix", op, 1, self.n_head, il, (),
                        ),
                    )  # fmt: skip
        out.append(self._column(f"l_out-{il}", "+", "mlp" if mlp else "attention", self.n_embd, il))
        return out

    def _column(
        self, name: str, label: str, group: str, n: int, layer: int, tensor: str = ""
    ) -> Column:
        about = f"made with {tensor}" if tensor else "the stream"
        return Column(name, label, about, group, "vector", "", int(n), 0, layer, ())


def _whole(x: Any) -> int:
    """A count, of the first layer where a file tells one for each."""
    try:
        return int(x[0]) if hasattr(x, "__len__") and len(x) else int(x or 0)
    except (TypeError, ValueError):
        return 0
