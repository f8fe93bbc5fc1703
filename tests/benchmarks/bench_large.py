"""A random Q4_0 file of a 7B model's shape (3.9 GB): opening, first token, decode, peak memory.

llmviz and llama.cpp one after the other, each in a process of its own. The file is written into a
temporary folder and deleted. Run by hand: ``python tests/benchmarks/bench_large.py --help``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from children import Child, run
from large_file import write_large
from measure import clean_environment, cores, machine

OURS = """
import time, llmviz
from llmviz.batch import Batch
start = time.perf_counter()
gguf = llmviz.open_gguf({path!r})
mark("open", time.perf_counter() - start)
gguf.close()
start = time.perf_counter()
model = llmviz.load({path!r}, weights="quantized")
mark("load", time.perf_counter() - start)
ctx = model.context(n_ctx={n_ctx})
ctx.decode(Batch.get_one([1, 300, 301, 302]))
ctx.get_logits_ith(-1)
mark("first", time.perf_counter() - start)
start = time.perf_counter()
for _ in range({n}):
    ctx.decode(Batch.get_one([int(ctx.get_logits_ith(-1).argmax())]))
mark("decode", {n} / (time.perf_counter() - start))
"""
THEIRS = """
import time
from llmviz import reference
start = time.perf_counter()
reference.Reference({path!r}, vocab_only=True).close()
mark("open", time.perf_counter() - start)
start = time.perf_counter()
with reference.Reference({path!r}, n_ctx={n_ctx}, n_threads={threads}) as ctx:
    mark("load", time.perf_counter() - start)
    ctx.decode([1, 300, 301, 302])
    ctx.logits_ith(-1)
    mark("first", time.perf_counter() - start)
    start = time.perf_counter()
    for _ in range({n}):
        ctx.decode([int(ctx.logits_ith(-1).argmax())])
    mark("decode", {n} / (time.perf_counter() - start))
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", help="where to write the file; a temporary folder by default")
    parser.add_argument("--n-layer", type=int, default=32)
    parser.add_argument("--n-ctx", type=int, default=512)
    parser.add_argument("--n-decode", type=int, default=8)
    args = parser.parse_args()
    clean_environment()
    from llmviz import reference

    print(machine())
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        path = Path(folder) / "random-7b.Q4_0.gguf"
        start = time.perf_counter()
        size = write_large(path, n_layer=args.n_layer)
        print(f"{size / 1e9:.2f} GB written in {time.perf_counter() - start:.0f} s, "
              f"n_ctx {args.n_ctx}, {cores()} threads")  # fmt: skip
        given = {"path": str(path), "n_ctx": args.n_ctx, "n": args.n_decode, "threads": cores()}
        report("llmviz", run(OURS.format(**given), {"LLMVIZ_KERNELS": "on"}))
        if reference.available():
            report("llama.cpp", run(THEIRS.format(**given)))


def report(who: str, child: Child) -> None:
    """One line."""
    v, peak = child.values, child.peak["decode"]
    print(
        f"  {who:<10} open {v['open']:.3f} s, load {v['load']:.2f} s, first token after "
        f"{v['first']:.1f} s, {v['decode']:.2f} tok/s, processor {child.cpu['decode']:.0f} s, "
        f"peak {peak / 1e9:.2f} GB",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
