"""Decode and prefill on a CUDA device, the share of its bandwidth, and what watching costs.

Run by hand on a machine with a GPU: ``make bench-gpu``, or ``python tests/benchmarks/bench_gpu.py
--help``. Prints one line a figure.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

COPY = 256 << 20
"""Bytes that are copied on the device to learn its bandwidth."""


def main(argv: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=os.environ.get("LLMVIZ_SMOLLM2", "smollm2-135m"))
    parser.add_argument("--weights", default="quantized", help="llmviz.load's")
    parser.add_argument("--n-decode", type=int, default=64, help="tokens decoded one by one")
    parser.add_argument("--context", type=int, nargs="+", default=[64, 512], help="tokens before")
    parser.add_argument("--prefill", type=int, nargs="+", default=[32, 512])
    args = parser.parse_args(argv)

    import llmviz
    from llmviz import hub
    from llmviz.ggml.backends.cuda.device import CUDA

    cuda = CUDA()
    path = str(hub.resolve(args.model))
    bandwidth = copy_bandwidth(cuda)
    print(f"{cuda.device.description}, CuPy {cuda.cupy.__version__}, {os.path.basename(path)}")
    print(f"copying on the device: {bandwidth / 1e9:.0f} GB/s read and written")
    start = time.perf_counter()
    model = llmviz.load(path, weights=args.weights, devices=[cuda], n_gpu_layers=-1)
    print(f"load: {time.perf_counter() - start:.2f} s, weights {args.weights}")
    decode(cuda, model, args, bandwidth)
    prefill(cuda, model, args)
    watching(cuda, model, args)


def copy_bandwidth(cuda: Any) -> float:
    """Bytes a second that the device's memory reads and writes."""
    a, b = cuda.alloc(COPY, "compute"), cuda.alloc(COPY, "compute")
    seconds = []
    for _ in range(4):
        cuda.synchronize()
        start = time.perf_counter()
        cuda.copy_from(a, b)
        cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return 2 * COPY / min(seconds)


def bytes_of_weights(model: Any) -> int:
    """What one token reads: all matrices, of the embeddings only where they are the output too."""
    tied = "output.weight" not in model.tensors
    return sum(t.nbytes for name, t in model.tensors.items() if name != "token_embd.weight" or tied)


def tokens_per_second(run: Callable[[], object], n: int) -> float:
    """Tokens of `run` a second, which computes n."""
    start = time.perf_counter()
    run()
    return n / (time.perf_counter() - start)


def filled(model: Any, n: int, n_more: int) -> Any:
    """A context with n tokens in it, and room for more."""
    from llmviz.batch import Batch

    ctx = model.context(n_ctx=n + n_more + 8)
    ctx.decode(Batch.get_one([i % 100 + 1 for i in range(n)]))
    return ctx


def one_by_one(ctx: Any, n: int, want: Any) -> None:
    """Decode n tokens."""
    from llmviz.batch import Batch

    for i in range(n):
        for _ in ctx.decode_steps(Batch.get_one([i % 100 + 1]), want):
            pass


def decode(cuda: Any, model: Any, args: argparse.Namespace, bandwidth: float) -> None:
    """Tokens a second after contexts of several lengths."""
    from llmviz.ggml.sched import never

    n = args.n_decode
    for n_before in args.context:
        for records in (True, False):
            cuda.records = records
            ctx = filled(model, n_before, n + 3)
            one_by_one(ctx, 3, never)  # compiled, run once, recorded
            rate = tokens_per_second(lambda c=ctx: one_by_one(c, n, never), n)
            share = rate * bytes_of_weights(model) / (bandwidth / 2)
            how = "one graph" if records else "single launches"
            print(
                f"decode at {n_before}: {rate:.1f} tok/s as {how}, weights read at {share:.1%} "
                "of half the copying bandwidth"
            )
    cuda.records = True


def prefill(cuda: Any, model: Any, args: argparse.Namespace) -> None:
    """Tokens a second of prompts."""
    from llmviz.batch import Batch

    for n in args.prefill:
        ctx = model.context(n_ctx=n + 8, n_batch=n, n_ubatch=n)
        tokens = [i % 100 + 1 for i in range(n)]
        rates = []
        for _ in range(3):
            ctx.memory.clear()
            rates.append(tokens_per_second(lambda c=ctx, t=tokens: c.decode(Batch.get_one(t)), n))
        print(f"prefill {n}: {max(rates):.0f} tok/s")


def statistics_of(a: np.ndarray) -> tuple[float, ...]:
    """Least, largest, mean and spread of what is finite."""
    finite = a[np.isfinite(a)] if a.dtype.kind == "f" else a
    return (finite.min(), finite.max(), finite.mean(), finite.std()) if finite.size else ()


def watching(cuda: Any, model: Any, args: argparse.Namespace) -> None:
    """What it costs to look: at nothing, at one node, at statistics of all, at all nodes kept."""
    from llmviz.batch import Batch
    from llmviz.ggml.sched import never

    n = max(args.n_decode // 4, 1)
    kept: list[Any] = []

    def looks(want: Any, use: Callable[[np.ndarray], object]) -> Callable[[], None]:
        def run() -> None:
            kept.clear()
            ctx = filled(model, args.context[0], n + 3)
            one_by_one(ctx, 3, never)
            start = time.perf_counter()
            for i in range(n):
                for event in ctx.decode_steps(Batch.get_one([i % 100 + 1]), want):
                    if event.kind == "node":
                        use(event.value)
            seconds.append((time.perf_counter() - start) / n)

        return run

    subjects = {
        "nobody": looks(never, len),
        "a listener that wants nothing": looks(lambda name: False, len),
        "one node": looks(lambda name: name == "result_norm", len),
        "statistics of all": looks(None, statistics_of),
        "all nodes kept": looks(None, lambda a: kept.append(np.array(a))),
    }
    plain = 0.0
    for name, run in subjects.items():
        seconds: list[float] = []
        run()
        plain = plain or seconds[0]
        print(f"watching {name}: {seconds[0] * 1e3:.2f} ms a token, {seconds[0] / plain:.2f}x")


if __name__ == "__main__":
    main()
