"""Where a model's weights are: on which device, in how many bytes, layer by layer.

Says what the model object says. A tensor that names no device is on the one device that computes,
if there is only one; otherwise its place is not known here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from llmviz.model.placement import weight_bytes

__all__ = ["Place", "TypeBytes", "Weights", "memory_of", "weights_of"]

_LAYER = re.compile(r"^blk\.(\d+)\.")


@dataclass(frozen=True, slots=True)
class TypeBytes:
    """Tensors of one type: how many, their bytes in the file and in memory."""

    type: str
    n: int
    file: int
    memory: int


@dataclass(frozen=True, slots=True)
class Place:
    """One layer, or what stands before and after the layers.

    Attributes
    ----------
    what : str
        ``"input"``, ``"0"``, ``"1"`` ..., ``"output"``.
    device : str
        Empty where it is not known.
    n : int
        Tensors.
    file, memory : int
        Bytes.
    """

    what: str
    device: str
    n: int
    file: int
    memory: int


@dataclass(frozen=True, slots=True)
class Weights:
    """All tensors of a model.

    Attributes
    ----------
    types : tuple of TypeBytes
        The largest first.
    places : tuple of Place
        In the order in which a token passes them.
    loaded : bool
        False: only the header was read, nothing is in memory.
    mode : str
        The model's load mode.
    notes : tuple of str
        Why it is another than was asked for.
    """

    types: tuple[TypeBytes, ...]
    places: tuple[Place, ...]
    loaded: bool
    mode: str = ""
    notes: tuple[str, ...] = ()

    @property
    def n_tensors(self) -> int:
        """Number of tensors."""
        return sum(t.n for t in self.types)

    @property
    def file(self) -> int:
        """Bytes in the file."""
        return sum(t.file for t in self.types)

    @property
    def memory(self) -> int:
        """Bytes that were allocated for them; what is mapped from the file counts as nothing."""
        return sum(t.memory for t in self.types)

    @property
    def devices(self) -> tuple[str, ...]:
        """Devices that hold something, in order."""
        return tuple(dict.fromkeys(p.device for p in self.places))

    @property
    def how(self) -> str:
        """How they are held, in a few words."""
        if not self.loaded:
            return "not read"
        mode = f"load_mode {self.mode}" if self.mode else "load_mode not known"
        why = "".join(f"; {note}" for note in self.notes)
        if not self.memory:
            return f"{_mib(self.file)}, read from the file where they are needed ({mode}{why})"
        held = f"{_mib(self.file)} in the file, {_mib(self.memory)} in memory"
        return f"{held} ({mode}{why})"


def _mib(n: int) -> str:
    return f"{n / 2**20:,.1f} MiB"


def weights_of(model: Any, gguf: Any) -> Weights:
    """Where the weights of a model are; with no model, what the file holds."""
    tensors = getattr(model, "tensors", None) or {}
    only = _only_device(model)
    types: dict[str, list[int]] = {}
    places: dict[str, list[Any]] = {}
    for name, info in gguf.tensor_infos.items():
        tensor = tensors.get(name)
        memory = _in_memory(tensor)
        _count(types.setdefault(info.type.name, [0, 0, 0]), info.nbytes, memory)
        held = [(_place(name), device) for device in _devices(tensor) or (only,)]
        if name == "token_embd.weight":  # a tied output that lies elsewhere is a second one
            held[1:] = [("output", device) for _, device in held[1:]]
        for what, device in held:
            place = places.setdefault(what, [[], [0, 0, 0]])
            place[0].append(device)
            _count(place[1], info.nbytes, memory // len(held))
    order = sorted(places, key=_order)
    return Weights(
        tuple(
            TypeBytes(k, *v) for k, v in sorted(types.items(), key=lambda e: (-e[1][1], e[0]))
        ),
        tuple(
            Place(k, " and ".join(dict.fromkeys(d for d in places[k][0] if d)), *places[k][1])
            for k in order
        ),
        model is not None and getattr(model, "weights", None) is not None,
        getattr(model, "load_mode", ""),
        tuple(getattr(model, "load_notes", ())),
    )  # fmt: skip


def _in_memory(tensor: Any) -> int:
    """Bytes of memory that a tensor takes beside the file."""
    return int(getattr(tensor, "memory", 0))


def _count(counts: list[int], file: int, memory: int) -> None:
    for i, n in enumerate((1, file, memory)):
        counts[i] += n


def _devices(tensor: Any) -> tuple[str, ...]:
    """The devices that a tensor says it is on; empty where it says nothing."""
    held = getattr(tensor, "devices", None)
    if held:
        return tuple(held)
    device = getattr(tensor, "device", None)
    name = str(getattr(device, "name", device or ""))
    return (name,) if name else ()


def _only_device(model: Any) -> str:
    devices = [d for d in getattr(model, "devices", None) or () if getattr(d, "computes", True)]
    return devices[0].name if len(devices) == 1 else ""


def _place(name: str) -> str:
    found = _LAYER.match(name)
    if found:
        return found[1]
    return "output" if name.startswith("output") else "input"


def _order(place: str) -> tuple[int, int]:
    return (0, 0) if place == "input" else (2, 0) if place == "output" else (1, int(place))


def memory_of(model: Any, ctx: Any) -> list[dict[str, Any]]:
    """What each device holds, the host last; empty where there is only the host.

    Returns
    -------
    list of dict
        device, description, simulated, total, free, weights, kv, compute (bytes).
    """
    placement: Any = getattr(model, "placement", None)
    if not getattr(placement, "devices", ()) or getattr(model, "weights", None) is None:
        return []
    if hasattr(ctx, "memory_breakdown"):
        uses = ctx.memory_breakdown()
        return [
            {
                "device": u.device, "description": u.description, "simulated": u.is_simulated,
                "total": u.total, "free": u.free, "weights": u.weights, "kv": u.kv,
                "compute": u.compute,
            }
            for u in uses
        ]  # fmt: skip
    found = [b.device for b in placement.devices]
    held = weight_bytes(model.weights, placement)
    return [
        {
            "device": d.name, "description": d.description, "simulated": d.is_simulated,
            "total": d.memory_total, "free": d.memory_free, "weights": n, "kv": 0, "compute": 0,
        }
        for d, n in zip(found, held, strict=True)
    ]  # fmt: skip
