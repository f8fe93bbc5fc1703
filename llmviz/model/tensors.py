"""Tensors in two passes: declared against the file's shapes, then filled.

↔ src/llama-model-loader.cpp (create_tensor, load_all_data)

A little over 400 lines: most of them are the groups of tensors that architectures have in common.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from llmviz.errors import GGUFError, LoadCancelled
from llmviz.events import Event, Steps
from llmviz.ggml import quants
from llmviz.ggml.backends import kernels
from llmviz.ggml.dots import DOTS
from llmviz.ggml.graph import Tensor
from llmviz.ggml.types import TYPES, GGMLType
from llmviz.gguf import GGUF, TensorInfo
from llmviz.model.arch import Layer, ModelWeights
from llmviz.model.hparams import HParams
from llmviz.model.load_mode import LoadMode
from llmviz.model.placement import Placement, check_weights, name_of, place_weights
from llmviz.model.shared import decoded, file_key, is_mapped

__all__ = ["ModelTensor", "TensorLoader"]


class ModelTensor:
    """One tensor of a model file.

    Attributes
    ----------
    name : str
    shape : tuple of int
        In numpy order: ``(n_out, n_in)`` for a weight matrix.
    ne : tuple of int
        In ggml's order, fastest first.
    type : GGMLType
        As stored in the file.
    nbytes : int
        Bytes in the file.
    offset : int
        Absolute byte offset in the file.
    data : ndarray or None
        float32 values once loaded into the host's memory.
    devices : tuple of str
        The devices that hold it; empty where there is only the host. More than one where it is used
        in several places: a tied output.
    """

    def __init__(self, gguf: GGUF, info: TensorInfo) -> None:
        self._gguf = gguf
        self.info = info
        self.name = info.name
        self.ne = tuple(info.ne)
        self.type = info.type
        self.nbytes = info.nbytes
        self.offset = info.abs_offset
        self.data: np.ndarray | None = None
        self.devices: tuple[str, ...] = ()
        self._on_devices = 0
        self._bytes: np.ndarray | None = None

    def __repr__(self) -> str:
        return f"<tensor {self.name!r} {TYPES[self.type].name} {self.shape}>"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape in numpy order, without trailing dimensions of one."""
        ne = list(self.ne)
        while len(ne) > 1 and ne[-1] == 1:
            ne.pop()
        return tuple(reversed(ne))

    @property
    def device(self) -> str:
        """The devices that hold it, in words; empty where there is only the host."""
        return " and ".join(self.devices)

    @property
    def memory(self) -> int:
        """Bytes of memory that the tensor takes beside the file, on all devices; 0 where it is
        looked at in the mapped file, or was not read.
        """
        own = sum(a.nbytes for a in (self.data, self._bytes) if a is not None and not is_mapped(a))
        return own + self._on_devices

    @property
    def raw(self) -> np.ndarray:
        """The tensor's bytes in the file, uint8, read-only; copied only where the file is not
        mapped.
        """
        return self._gguf.tensor_bytes(self.info) if self._bytes is None else self._bytes

    def keep_bytes(self) -> np.ndarray:
        """`raw`, which is the same memory from now on also where the file is not mapped."""
        self._bytes = self.raw
        return self._bytes

    def forget_bytes(self) -> None:
        """Let go of the pages of a mapped file that the bytes were read from."""
        if self._bytes is None:
            self._gguf.forget_bytes(self.info)

    def upload(self, leaf: Tensor) -> None:
        """Copy the tensor to the device that `leaf` belongs to, in the leaf's type."""
        home = leaf.home
        assert home is not None
        memory = home.alloc(leaf.nbytes, "weights")
        if leaf.type == GGMLType.F32:
            array = home.view(memory, leaf.shape, np.float32)
            home.set(array, self.numpy().reshape(leaf.shape))
            leaf.adopt(array)
        else:
            home.set(memory, self.raw)
            leaf.adopt_blocks(memory)
        self._on_devices += leaf.nbytes

    def numpy(self) -> np.ndarray:
        """The values as float32 in numpy order (dequantized; the loaded array where there is
        one).
        """
        if self.data is not None:
            view = self.data.view()
            view.flags.writeable = False
            return view
        return quants.get(self.type).dequantize(self.raw).reshape(self.shape)

    def load(self, out: np.ndarray | None = None) -> np.ndarray:
        """Dequantize into `data` (float32, read-only) and keep it; other models of the same file
        have the same array.
        """
        if self.data is None:
            file = file_key(self._gguf.parts[self.info.part].path)
            key = file and (file, self.offset, self.nbytes, self.type)
            decode = quants.get(self.type).dequantize
            self.data = decoded(key, lambda: decode(self.raw)).reshape(self.shape)
        return self.data


class TensorLoader:
    """Pass one declares tensors (`create_tensor`), pass two fills them (`load_all_data_steps`).

    Parameters
    ----------
    gguf : GGUF
    keeps_blocks : bool
        Whether matrices of a type that products are made with (`dots.DOTS`) stay as the file has
        them; all else is decoded to float32.
    mode : LoadMode, optional
        How the bytes get into memory; the file was opened accordingly.
    """

    def __init__(
        self, gguf: GGUF, keeps_blocks: bool = False, mode: LoadMode | None = None
    ) -> None:
        self.gguf = gguf
        self.keeps_blocks = keeps_blocks
        self.mode = mode or LoadMode("auto")
        self.tensors = {name: ModelTensor(gguf, info) for name, info in gguf.tensor_infos.items()}
        self.created: dict[str, Tensor] = {}
        self.more: dict[str, list[Tensor]] = {}  # what lies in several places: the other leaves
        self.skipped: set[str] = set()
        self._skip = False

    def create_tensor(self, name: str, *ne: int, required: bool = True) -> Tensor | None:
        """Declare a tensor: it must be in the file with exactly this shape (ggml order).

        Returns
        -------
        Tensor or None
            A leaf without memory yet; None where it is not required and not there. The same name
            twice gives the same leaf (a tied output).

        Raises
        ------
        GGUFError
            Missing, or of another shape.
        """
        if name in self.created:
            return self.created[name]
        tensor = self.tensors.get(name)
        if tensor is None:
            if not required:
                return None
            raise GGUFError(f"tensor '{name}' not found", field=name, path=self.gguf.path)
        have = tensor.ne
        want = (*ne, *(1,) * (len(have) - len(ne)))
        if (*have, *(1,) * (len(want) - len(have))) != want:
            raise GGUFError(
                f"tensor '{name}' has wrong shape; expected {_shape(ne)}, got {_shape(have)}",
                field=name,
                path=self.gguf.path,
            )
        quants.get(tensor.type)  # an unsupported type is refused before any data is read
        leaf = Tensor(tensor.type if self._keeps(tensor) else GGMLType.F32, ne, name=name)
        self.created[name] = leaf
        return leaf

    def _keeps(self, tensor: ModelTensor) -> bool:
        is_matrix = tensor.ne[1] > 1 and all(n == 1 for n in tensor.ne[2:])
        is_experts = tensor.name.endswith("_exps.weight") and len(tensor.shape) == 3
        if is_experts:
            return self.keeps_blocks and tensor.type in DOTS
        return self.keeps_blocks and tensor.type in kernels.kept() and is_matrix

    @contextmanager
    def skipping(self) -> Iterator[None]:
        """What is declared inside is checked, but neither read nor used."""
        self._skip = True
        yield
        self._skip = False

    def create_output(
        self, hp: HParams, weights: ModelWeights, *, tied: bool | None = None
    ) -> None:
        """Declare token embeddings, the last norm, and the output matrix.

        `tied`: True where the output is always the token embeddings, False where it never is, None
        where the file decides.
        """
        t = self.create_tensor
        weights.tok_embd = t("token_embd.weight", hp.n_embd, hp.n_vocab)
        weights.output_norm = t("output_norm.weight", hp.n_embd)
        weights.output = weights.tok_embd
        if not tied:
            output = t("output.weight", hp.n_embd, hp.n_vocab, required=tied is not None)
            weights.output = output or weights.tok_embd

    def create_rope_factors(self, layer: Layer, hp: HParams) -> None:
        """Declare the frequency factors the model may have: for all contexts, or long and short."""
        half = hp.n_rot // 2
        if hp.rope_scaling_type_train == "longrope":
            layer.rope_long = self.create_tensor("rope_factors_long.weight", half, required=False)
            layer.rope_short = self.create_tensor("rope_factors_short.weight", half, required=False)
        else:
            layer.rope_freqs = self.create_tensor("rope_freqs.weight", half, required=False)

    def create_ffn(
        self, layer: Layer, il: int, n_embd: int, n_ff: int, *, biases: bool = False
    ) -> None:
        """Declare a gated feed-forward network; with `biases` those that the file has."""
        t, b = self.create_tensor, f"blk.{il}.ffn_"
        layer.ffn_gate = t(b + "gate.weight", n_embd, n_ff)
        layer.ffn_down = t(b + "down.weight", n_ff, n_embd)
        layer.ffn_up = t(b + "up.weight", n_embd, n_ff)
        if biases:
            layer.ffn_gate_b = t(b + "gate.bias", n_ff, required=False)
            layer.ffn_down_b = t(b + "down.bias", n_embd, required=False)
            layer.ffn_up_b = t(b + "up.bias", n_ff, required=False)

    def create_mlp(
        self, layer: Layer, il: int, n_embd: int, n_ff: int, *, bias: bool | None = False
    ) -> None:
        """Declare a feed-forward network without a gate; `bias` as in `create_norm`."""
        for name, n_in, n_out in (("up", n_embd, n_ff), ("down", n_ff, n_embd)):
            w = f"blk.{il}.ffn_{name}"
            setattr(layer, f"ffn_{name}", self.create_tensor(f"{w}.weight", n_in, n_out))
            if bias is not False:
                b = self.create_tensor(f"{w}.bias", n_out, required=bool(bias))
                setattr(layer, f"ffn_{name}_b", b)

    def create_experts(
        self, layer: Layer, il: int, n_embd: int, n_ff: int, n_expert: int, *, gate: bool = True
    ) -> None:
        """Declare the router and one matrix of each kind for all experts together."""
        t, b = self.create_tensor, f"blk.{il}.ffn_"
        layer.ffn_gate_inp = t(b + "gate_inp.weight", n_embd, n_expert)
        layer.ffn_gate_exps = t(b + "gate_exps.weight", n_embd, n_ff, n_expert, required=gate)
        layer.ffn_down_exps = t(b + "down_exps.weight", n_ff, n_embd, n_expert)
        layer.ffn_up_exps = t(b + "up_exps.weight", n_embd, n_ff, n_expert)

    def create_shared_expert(self, layer: Layer, il: int, n_embd: int, n_ff: int) -> None:
        """Declare the expert that every token goes through."""
        t, b = self.create_tensor, f"blk.{il}.ffn_"
        layer.ffn_gate_shexp = t(b + "gate_shexp.weight", n_embd, n_ff)
        layer.ffn_up_shexp = t(b + "up_shexp.weight", n_embd, n_ff)
        layer.ffn_down_shexp = t(b + "down_shexp.weight", n_ff, n_embd)

    def create_norm(
        self, layer: Layer, il: int, name: str, *ne: int, bias: bool | None = False
    ) -> None:
        """Declare a norm's weight as ``layer.<name>``.

        `bias`: True where it has one as well, None where it may.
        """
        setattr(layer, name, self.create_tensor(f"blk.{il}.{name}.weight", *ne))
        if bias is not False:
            b = self.create_tensor(f"blk.{il}.{name}.bias", *ne, required=bool(bias))
            setattr(layer, f"{name}_b", b)

    def create_qkv(self, layer: Layer, il: int, n_embd: int, n_q: int, n_k: int, n_v: int) -> None:
        """Declare the query, key and value weights and biases: one fused matrix, or three."""
        t, b = self.create_tensor, f"blk.{il}.attn_"
        layer.wqkv = t(b + "qkv.weight", n_embd, n_q + n_k + n_v, required=False)
        if layer.wqkv is not None:
            layer.wqkv_b = t(b + "qkv.bias", n_q + n_k + n_v, required=False)
            if layer.wqkv_b is None:  # a fused matrix may have three biases
                layer.wq_b = t(b + "q.bias", n_q, required=False)
                layer.wk_b = t(b + "k.bias", n_k, required=False)
                layer.wv_b = t(b + "v.bias", n_v, required=False)
            return
        layer.wq = t(b + "q.weight", n_embd, n_q)
        layer.wk = t(b + "k.weight", n_embd, n_k)
        layer.wv = t(b + "v.weight", n_embd, n_v)
        layer.wq_b = t(b + "q.bias", n_q, required=False)
        layer.wk_b = t(b + "k.bias", n_k, required=False)
        layer.wv_b = t(b + "v.bias", n_v, required=False)

    def done_getting_tensors(self) -> None:
        """Refuse a file that holds tensors the architecture does not know."""
        extra = [n for n in self.tensors if n not in self.created and n not in self.skipped]
        if extra:
            n = len(self.tensors)
            raise GGUFError(
                f"wrong number of tensors; expected {n}, got {n - len(extra)}: "
                f"unused: {', '.join(extra[:5])}{' ...' if len(extra) > 5 else ''}",
                field=extra[0],
                path=self.gguf.path,
            )

    def place(self, weights: ModelWeights, placement: Placement) -> None:
        """Say of every weight on which device it is to be loaded.

        Raises
        ------
        DeviceMemoryError
            They do not fit there.
        """
        self.more = place_weights(weights, placement)
        check_weights(weights, placement)
        for name, leaf in self.created.items():
            homes = [name_of(there.home) for there in (leaf, *self.more.get(name, ()))]
            self.tensors[name].devices = tuple(dict.fromkeys(homes))

    def load_all_data_steps(
        self,
        *,
        progress: Callable[[float], bool | None] | None = None,
        check_tensors: bool = False,
        depth: int = 0,
    ) -> Steps[None]:
        """Pass two: give every declared tensor its values.

        Parameters
        ----------
        progress : callable or None
            Called with 0..1 after each tensor; returning False cancels.
        check_tensors : bool
            Refuse NaN and infinite values.

        Raises
        ------
        LoadCancelled
            The progress callback returned False.
        GGUFError
            `check_tensors` found a value that is not finite.
        """
        total = sum(self.tensors[name].nbytes for name in self.created) or 1
        done = 0
        _report(progress, 0.0)
        for name, leaf in self.created.items():
            tensor = self.tensors[name]
            for there in (leaf, *self.more.get(name, ())):
                if there.home is not None:
                    tensor.upload(there)
                else:
                    self._keep(tensor, there)
            if check_tensors:
                self._check(tensor)
            done += tensor.nbytes
            yield Event("data", name, depth, 6, tensor, leaf)
            _report(progress, done / total)

    def _check(self, tensor: ModelTensor) -> None:
        """Refuse values that are not finite."""
        data = tensor.numpy()
        if not np.isfinite(data).all():
            bad = int(np.flatnonzero(~np.isfinite(data.reshape(-1)))[0])
            raise GGUFError(
                f"tensor '{tensor.name}' has invalid data: value {bad} is {data.reshape(-1)[bad]}",
                field=tensor.name,
                offset=tensor.offset,
                path=self.gguf.path,
            )

    def _keep(self, tensor: ModelTensor, leaf: Tensor) -> None:
        """Give a leaf of the host's its values: the file's blocks, or float32."""
        if leaf.type != GGMLType.F32:
            leaf.adopt_blocks(tensor.keep_bytes())
            self.mode.keep(leaf.blocks)
            return
        leaf.adopt(tensor.load())
        self.mode.keep(leaf.array)
        if tensor.type != GGMLType.F32:  # the values have memory of their own now
            tensor.forget_bytes()


def _report(progress: Callable[[float], bool | None] | None, fraction: float) -> None:
    if progress is not None and progress(fraction) is False:
        raise LoadCancelled(f"loading was cancelled at {fraction:.0%}")


def _shape(ne: tuple[int, ...]) -> str:
    return " x ".join(map(str, ne))
