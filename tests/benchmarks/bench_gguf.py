"""Time to open a model, to see every header field, and to decode all its weights.

Usage: ``python tests/benchmarks/bench_gguf.py MODEL.gguf``
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from llmviz.ggml.quants import get, supported
from llmviz.gguf import GGUF, open_gguf


def best(work: Callable[[], Any], times: int = 7) -> float:
    """Return the shortest of several runs, in milliseconds."""
    spans = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        spans.append(time.perf_counter() - start)
    return min(spans) * 1e3


def decode_all(gguf: GGUF) -> int:
    """Decode every tensor, one after the other, into one buffer."""
    most = max(info.n_elements for info in gguf.tensor_infos.values())
    buffer = np.empty(most, np.float32)
    n = 0
    for info in gguf.tensor_infos.values():
        get(info.type).dequantize(gguf.tensor_bytes(info), buffer[: info.n_elements])
        n += info.n_elements
    return n


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="a GGUF file")
    path = parser.parse_args().model

    print(f"open, mapped:      {best(lambda: open_gguf(path).close()):8.1f} ms")
    print(f"open, read:        {best(lambda: open_gguf(path, use_mmap=False).close()):8.1f} ms")
    gguf = open_gguf(path)
    print(f"{len(gguf.fields)} fields, {len(gguf.kv)} keys, {len(gguf.tensor_infos)} tensors")
    if tokens := gguf.kv.get("tokenizer.ggml.tokens"):
        print(f"{len(tokens)} tokens, raw: {best(tokens.raws):8.1f} ms")
        print(f"{len(tokens)} tokens, str: {best(lambda: list(tokens)):8.1f} ms")
    span = best(lambda: decode_all(gguf), 3)
    print(f"decode all weights:{span:8.0f} ms = {gguf.n_elements / span / 1e3:.0f} M values/s")

    rng = np.random.default_rng(0)
    for type_ in supported():
        quant = get(type_)
        n = (1 << 22) // quant.block_size
        raw = rng.integers(0, 120, n * quant.type_size, dtype=np.uint8)
        out = np.empty(n * quant.block_size, np.float32)
        span = best(lambda q=quant, r=raw, o=out: q.dequantize(r, o), 5)
        print(f"{type_.name:5} {out.size / span / 1e3:7.0f} M values/s")


if __name__ == "__main__":
    main()
