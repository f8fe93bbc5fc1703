"""What a token costs as layers, width, context and vocabulary grow: random models, one at a time.

Run by hand: ``python tests/benchmarks/bench_cost.py``. The base is 8 layers, 512 wide, a vocabulary
of about 350; weights are Q8_0. Printed: milliseconds of one token and of a prompt of 64, and those
that a graph of one token takes to be built, given memory and bound.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from measure import clean_environment, machine

ROUNDS = 9


def main() -> None:
    """Measure and print."""
    clean_environment()
    sys.path.insert(0, str(Path(__file__).parents[1]))
    print(machine())
    print(f"{'':28}{'one token':>12}{'64 tokens':>12}{'graph':>10}  ms")
    with tempfile.TemporaryDirectory() as folder:
        for n_layer in (4, 8, 16, 32):
            show(f"{n_layer} layers", folder, n_layer=n_layer)
        for n_embd in (256, 512, 1024):
            show(f"{n_embd} wide", folder, n_embd=n_embd, n_ff=3 * n_embd)
        for depth in (64, 512, 2048, 4096):
            show(f"after {depth} tokens", folder, depth=depth)
        for n_vocab in (350, 8192, 32768, 131072):
            show(f"vocabulary of {n_vocab}", folder, n_vocab=n_vocab)


def show(title: str, folder: str, depth: int = 64, n_vocab: int = 350, **shape: Any) -> None:
    """One row of the table."""
    import llmviz
    from llmviz.batch import Batch

    model = llmviz.load(model_of(folder, n_vocab, **shape), weights="quantized")
    ctx = model.context(n_ctx=depth + 64, n_batch=512, n_ubatch=512)
    tokens = [3 + i % 200 for i in range(depth)]
    for i in range(0, depth, 512):
        ctx.decode(Batch.get_one(tokens[i : i + 512]))

    def decode(n: int) -> Callable[[], None]:
        def run() -> None:
            ctx.memory.seq_rm(0, depth, -1)
            ctx.decode(Batch.get_one(tokens[:1] * n))

        return run

    def build() -> float:
        """Milliseconds in which the graph of one token is built, given memory and bound."""
        decode(2)()  # another shape: the graph that there is cannot be used again
        ctx.memory.seq_rm(0, depth, -1)
        at: dict[str, float] = {}
        for event in ctx.decode_steps(Batch.get_one(tokens[:1]), lambda name: False):
            if event.name == "build_graph":
                at[event.kind] = time.perf_counter()
        return (at["exit"] - at["enter"]) * 1e3

    one, many, graph = taken(decode(1)), taken(decode(64)), median(build() for _ in range(ROUNDS))
    print(f"{title:<28}{one:12.2f}{many:12.1f}{graph:10.2f}")


def taken(run: Callable[[], None]) -> float:
    """Milliseconds of the round in the middle."""
    run()
    found = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        run()
        found.append((time.perf_counter() - start) * 1e3)
    return median(found)


def model_of(folder: str, n_vocab: int, **shape: Any) -> str:
    """A random file; a larger vocabulary gets tokens that no text has."""
    import tiny_models

    given = {
        "n_layer": 8, "n_embd": 512, "n_ff": 1536, "n_head": 8, "n_head_kv": 4,
        "n_ctx_train": 8192, "weight_type": "Q8_0",
    } | shape  # fmt: skip
    path = Path(folder) / ("-".join(f"{k}{v}" for k, v in given.items()) + f"-{n_vocab}.gguf")
    if not path.exists():
        tiny_models.write_tiny(path, more_tokens=max(0, n_vocab - 350), **given)
    return str(path)


if __name__ == "__main__":
    main()
