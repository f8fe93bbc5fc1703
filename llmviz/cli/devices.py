"""``llmviz devices``: what layers can lie on; and how the other commands are told where they go."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

import typer

import llmviz
from llmviz.cli.output import JsonOption, examples, human_bytes, stdout, table, write_json
from llmviz.errors import LlmvizError
from llmviz.ggml.backends.backend import Backend

EXAMPLES = examples("llmviz devices", "llmviz devices --json")

LayersOption = Annotated[
    int,
    typer.Option(
        "--n-gpu-layers",
        "-ngl",
        help="Layers to put on devices, counted from the end, the output as one; -1: all.",
    ),
]
SplitOption = Annotated[
    str,
    typer.Option(
        "--tensor-split",
        help="Share of the layers for each device, such as 3,1; by free memory if not given.",
    ),
]
DeviceOption = Annotated[
    str,
    typer.Option(
        "--device",
        help="Devices to use, such as CUDA0,CUDA1; simulated:512 is an imagined one of 512 MiB.",
    ),
]
_SIMULATED = re.compile(r"simulated:([1-9]\d*)")


def devices(as_json: JsonOption = False) -> None:
    """List the devices that layers can lie on: their names for --device, and their memory."""
    found = llmviz.devices()
    if as_json:
        write_json(
            [
                {
                    "name": d.name,
                    "type": d.type,
                    "description": d.description,
                    "memory_total": d.memory_total,
                    "memory_free": d.memory_free,
                    "computes": d.computes,
                    "takes_layers": d.init is not None,
                }
                for d in found
            ]
        )
        return
    rows = table("", "name", "device", "memory", "free", "can", right=("memory", "free"))
    for d in found:
        can = "compute; holds what no other device does" if d.type == "cpu" else "take layers"
        rows.add_row(
            d.name,
            d.description,
            human_bytes(d.memory_total) if d.memory_total else "not known",
            human_bytes(d.memory_free) if d.memory_total else "not known",
            can if d.type == "cpu" or d.init else "only be listed: this version has no kernels",
        )
    console = stdout()
    console.print(rows)
    if not any(d.init for d in found):
        console.print(
            "No device here can take layers. simulated:512 in place of a name imagines one of "
            "512 MiB, to see what would go where: llmviz generate FILE --device simulated:512 "
            "-ngl 8",
            soft_wrap=True,
        )


def shares(text: str) -> list[float] | None:
    """The numbers of ``--tensor-split``; None for none."""
    if not text:
        return None
    try:
        return [float(part) for part in re.split(r"[,/]", text)]
    except ValueError:
        raise LlmvizError(
            f"--tensor-split {text}: give one number for each device, such as 3,1"
        ) from None


def chosen(text: str) -> Sequence[Backend | str] | None:
    """The devices of ``--device``; None for all there are."""
    if not text:
        return None
    out: list[Backend | str] = []
    for part in text.split(","):
        imagined = _SIMULATED.fullmatch(part)
        if imagined:
            n = sum(not isinstance(d, str) for d in out)
            out.append(llmviz.SimulatedDevice(int(imagined[1]) * 2**20, f"GPU{n} (simulated)"))
        elif part.startswith("simulated"):
            raise LlmvizError(f"--device {part}: give its memory in MiB, such as simulated:512")
        else:
            out.append(part)
    return out


def breakdown(context: llmviz.Context) -> list[str]:
    """What lies on each device, in lines; nothing where there is only the host."""
    uses = context.memory_breakdown()
    if len(uses) == 1:
        return []
    lines = []
    for u in uses:
        parts = f"weights {human_bytes(u.weights)}, KV cache {human_bytes(u.kv)}, "
        parts += f"compute {human_bytes(u.compute)}"
        of = f" of {human_bytes(u.total)}" if u.total else ""
        lines.append(f"{u.device}: {human_bytes(u.used)}{of}: {parts}")
    n = len(context.sched.copies)
    sent = human_bytes(sum(c.nbytes for c in context.sched.copies))
    lines.append(f"{context.sched.n_splits} splits; each token copies {n} tensors, {sent}")
    return lines
