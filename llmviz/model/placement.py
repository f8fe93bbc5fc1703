"""Which layer lies on which device.

↔ src/llama-model.cpp (load_tensors), src/llama.cpp (llama_prepare_model_devices)

`n_gpu_layers` counts from the end: 1 is the output layer alone, n_layer + 1 all of them. The input
layer (the token embeddings) always stays on the host: one row per token is read from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from llmviz.errors import DeviceMemoryError, LlmvizError, UnsupportedError
from llmviz.ggml.backends.backend import Backend, Device
from llmviz.ggml.graph import Tensor
from llmviz.model.arch import ModelWeights

__all__ = [
    "MAX_DEVICES",
    "Placement",
    "check_weights",
    "choose_devices",
    "leaves_of",
    "mib",
    "name_of",
    "place_weights",
    "plan_layers",
    "settle",
    "weight_bytes",
]

MAX_DEVICES = 16
"""↔ llama_max_devices"""

_LAYER_0 = ("tok_norm", "tok_norm_b")  # computed with the first layer, as in llama.cpp
_OUTPUT = ("output_norm", "output_norm_b", "output", "output_b")


@dataclass(frozen=True)
class Placement:
    """Where the layers of a model are.

    Attributes
    ----------
    devices : tuple of Backend
        Those that may be used, in order of priority; without the host.
    n_gpu_layers : int
        As it was settled: never negative, the output layer counted.
    tensor_split : tuple of float
        Share of each device; empty: by free memory.
    layers : tuple of Backend or None
        For each layer; None is the host.
    output : Backend or None
    """

    devices: tuple[Backend, ...] = ()
    n_gpu_layers: int = 0
    tensor_split: tuple[float, ...] = ()
    layers: tuple[Backend | None, ...] = ()
    output: Backend | None = None

    @property
    def full_offload(self) -> bool:
        """True where all layers and the output are on devices."""
        return self.n_gpu_layers > len(self.layers)

    @property
    def on_real_devices(self) -> bool:
        """True where nothing but the input layer is computed by this processor's kernels."""
        places = (*self.layers, self.output)
        return all(home is not None and not home.is_simulated for home in places)

    def by_layer(self) -> dict[str, str]:
        """Device of the input, of each layer, and of the output."""
        places = {"input": None, **{str(il): home for il, home in enumerate(self.layers)}}
        return {what: name_of(home) for what, home in {**places, "output": self.output}.items()}

    def with_layers(self, n_gpu_layers: int, memory: Sequence[int]) -> Placement:
        """The same for another number of layers; `memory`: bytes each device has free."""
        split = self.tensor_split or tuple(float(n) for n in memory)
        layers, output = plan_layers(len(self.layers), self.devices, n_gpu_layers, split)
        return replace(self, n_gpu_layers=n_gpu_layers, layers=layers, output=output)

    def home_of(self, field: str, il: int) -> Backend | None:
        """Where a weight belongs: `field` as in `ModelWeights`; il its layer, -1 for none."""
        if il >= 0:
            return self.layers[il]
        if field in _LAYER_0:
            return self.layers[0] if self.layers else None
        return self.output if field in _OUTPUT else None


def name_of(home: Backend | None) -> str:
    """The name of the device that something lies on."""
    return "CPU" if home is None else home.name


def choose_devices(
    devices: Sequence[Backend | str] | None, found: Sequence[Device], n_gpu_layers: int
) -> list[Backend]:
    """The devices that a model's layers may lie on.

    Parameters
    ----------
    devices : sequence of Backend or str, or None
        Given ones or names of found ones; None: all found GPUs, unless no layer is wanted there.
    found : sequence of Device
        What the registered backends have.

    Raises
    ------
    UnsupportedError
        A name that no device has.
    """
    usable = {d.name: d for d in found if d.init is not None}
    if devices is None:
        chosen: Sequence[Backend | str] = list(usable) if n_gpu_layers else []
    else:
        chosen = devices
    out: list[Backend] = []
    for device in chosen:
        if isinstance(device, str):
            entry = usable.get(device)
            if entry is None or entry.init is None:
                hint = "" if usable else "No device of this machine can take layers"
                raise UnsupportedError("device", device, supported=usable, hint=hint)
            device = entry.init()
        if not hasattr(device, "alloc") or device.is_host:
            raise LlmvizError(
                f"devices: {device!r} is not a device with memory of its own; give names such as "
                "'CUDA0', or SimulatedDevice(memory=...)"
            )
        if any(device is other or device.name == other.name for other in out):
            raise LlmvizError(f"devices: {device.name!r} is there twice; give each its own name")
        out.append(device)
    if len(out) > MAX_DEVICES:
        raise LlmvizError(f"devices: {len(out)} of them; at most {MAX_DEVICES} can share a model")
    return out


def settle(
    n_layer: int,
    devices: Sequence[Backend],
    n_gpu_layers: int,
    tensor_split: Sequence[float] | None,
) -> Placement:
    """Where the layers of a model go.

    Raises
    ------
    LlmvizError
        A split that says nothing about these devices.
    """
    wanted = n_gpu_layers if n_gpu_layers >= 0 else n_layer + 1
    split = _checked(tensor_split, len(devices))
    shares = split if any(split) else tuple(float(d.device.memory_free) for d in devices)
    layers, output = plan_layers(n_layer, devices, wanted, shares)
    return Placement(tuple(devices), wanted, split if any(split) else (), layers, output)


def _checked(tensor_split: Sequence[float] | None, n_devices: int) -> tuple[float, ...]:
    if tensor_split is None:
        return ()
    try:
        split = [float(x) for x in tensor_split]
    except (TypeError, ValueError):
        raise LlmvizError(
            f"tensor_split = {tensor_split!r}: a list of one share for each device, such as [3, 1]"
        ) from None
    if any(not x >= 0 or x == float("inf") for x in split):
        raise LlmvizError(f"tensor_split = {split}: shares are finite and not negative")
    if n_devices and any(split[n_devices:]):
        raise LlmvizError(
            f"tensor_split = {split} has shares for {len(split)} devices, there "
            f"{'is' if n_devices == 1 else 'are'} {n_devices}"
        )
    return tuple((split + [0.0] * n_devices)[:n_devices])


def plan_layers(
    n_layer: int, devices: Sequence[Backend], n_gpu_layers: int, shares: Sequence[float]
) -> tuple[tuple[Backend | None, ...], Backend | None]:
    """The device of each layer, and of the output.

    Parameters
    ----------
    shares : sequence of float
        One for each device, of any size: their sum is the whole.
    """
    if not devices:
        return (None,) * n_layer, None
    ends = np.cumsum(np.asarray(shares, np.float32), dtype=np.float32)
    if ends[-1] > 0:
        ends /= ends[-1]
    first = max(n_layer + 1 - n_gpu_layers, 0)
    n_there = min(n_gpu_layers, n_layer + 1)

    def of(il: int) -> Backend | None:
        if il < first or il - first >= n_there:
            return None
        share = np.float32(il - first) / np.float32(n_there)
        at = int(np.searchsorted(ends, share, side="right"))
        return devices[min(at, len(devices) - 1)]

    return tuple(of(il) for il in range(n_layer)), of(n_layer)


def leaves_of(weights: ModelWeights) -> Iterator[tuple[str, int, Tensor]]:
    """Every weight: its field, its layer (-1 for none), its leaf."""
    for field, leaf in vars(weights).items():
        if isinstance(leaf, Tensor):
            yield field, -1, leaf
    for il, layer in enumerate(weights.layers):
        for field, leaf in vars(layer)["weights"].items():
            if leaf is not None:
                yield field, il, leaf


def place_weights(weights: ModelWeights, placement: Placement) -> dict[str, list[Tensor]]:
    """Say of every leaf where it lies; nothing is loaded yet.

    A weight that is used in two places (a tied output, RoPE's factors) becomes one leaf on each.

    Returns
    -------
    dict of str to list of Tensor
        By name, the additional leaves.
    """
    made: dict[tuple[int, int], Tensor] = {}  # (id(leaf), id(home)) -> the leaf there
    more: dict[str, list[Tensor]] = {}
    for field, il, leaf in list(leaves_of(weights)):
        leaf.is_weight = True
        home = placement.home_of(field, il)
        there = made.get((id(leaf), id(home)))
        if there is None:
            there = leaf
            if any(key[0] == id(leaf) for key in made):  # it has another place already
                there = Tensor(leaf.type, leaf.ne, name=leaf.name)
                there.n_dims, there.is_weight = leaf.n_dims, True
                more.setdefault(leaf.name, []).append(there)
            there.home = home
            made[id(leaf), id(home)] = there
        if there is not leaf:
            setattr(weights if il < 0 else weights.layers[il], field, there)
    return more


def weight_bytes(weights: ModelWeights, placement: Placement) -> list[int]:
    """Bytes of weights on each device of a placement, whether they lie there now or would."""
    seen: set[tuple[int, int]] = set()
    at = {id(device): i for i, device in enumerate(placement.devices)}
    out = [0] * len(placement.devices)
    for field, il, leaf in leaves_of(weights):
        home = placement.home_of(field, il)
        if home is not None and (id(leaf), id(home)) not in seen:
            seen.add((id(leaf), id(home)))
            out[at[id(home)]] += leaf.nbytes
    return out


def check_weights(weights: ModelWeights, placement: Placement) -> None:
    """Refuse weights that some device has no room for, before any is loaded.

    Raises
    ------
    DeviceMemoryError
    """
    free = [d.device.memory_free for d in placement.devices]
    needed = weight_bytes(weights, placement)
    bad = next((i for i, n in enumerate(needed) if n > free[i]), None)
    if bad is None:
        return
    device = placement.devices[bad].device
    fits = None
    for n in range(min(placement.n_gpu_layers, len(placement.layers) + 1) - 1, -1, -1):
        other = weight_bytes(weights, placement.with_layers(n, free))
        if all(a <= b for a, b in zip(other, free, strict=True)):
            fits = n
            break
    raise DeviceMemoryError(
        f"{device.name} has {mib(free[bad])} of {mib(device.memory_total)} free, the weights that "
        f"n_gpu_layers={placement.n_gpu_layers} puts there take {mib(needed[bad])}. "
        f"n_gpu_layers={fits} would fit, with nothing else on the device; a context also needs "
        "room for its layers' KV cache and for compute buffers. Use fewer layers, another "
        "tensor_split, or a file with smaller types",
        device=device.name,
        needed=needed[bad],
        free=free[bad],
        fits=fits,
    )


def mib(n: int) -> str:
    """Bytes in words."""
    return f"{n / 2**20:,.1f} MiB"
