"""Opening, prefill and decode of SmolLM2 beside llama.cpp and gguf-py, in one process, turn about.

Run by hand: ``make bench``, or ``python tests/benchmarks/bench_engine.py --help``.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from typing import Any

from measure import clean_environment, cores, machine, peak_memory, report, turn_about

TEXT = (
    "The lighthouse keeper climbed the stairs every evening just before the sun went down. He lit "
    "the lamp, wrote the hour in his book, and sat down to wait for the boats to come home. "
)  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=os.environ.get("LLMVIZ_SMOLLM2", "smollm2-135m"))
    parser.add_argument("--weights", nargs="+", default=["quantized", "f32"], help="llmviz.load's")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--n-decode", type=int, default=32, help="tokens decoded one by one")
    parser.add_argument("--n-prefill", type=int, default=512, help="tokens of the prompt")
    parser.add_argument("--deep", type=int, default=0, help="decode after this many tokens as well")
    parser.add_argument("--threads", type=int, default=cores(), help="of llama.cpp")
    args = parser.parse_args()
    clean_environment()

    from llmviz import hub, reference

    path = str(hub.resolve(args.model))
    print(machine())
    print(reference.system_info() if reference.available() else reference.unavailable_reason())
    modes = ", ".join(args.weights)
    name = os.path.basename(path)
    print(f"{name}, weights {modes}, {args.threads} threads for llama.cpp")
    bench_open(path, args.rounds)
    bench_run(path, args)
    print(f"\npeak resident memory of this process (both engines): {peak_memory():.0f} MiB")


def bench_open(path: str, rounds: int) -> None:
    """Header and vocabulary: what happens before any weight is read."""
    import gguf

    import llmviz
    from llmviz import reference

    subjects: dict[str, Callable[[], object]] = {
        "llmviz.open_gguf": lambda: llmviz.open_gguf(path).close(),
        "llmviz.load(vocab_only=True)": lambda: llmviz.load(path, vocab_only=True),
        "gguf.GGUFReader": lambda: gguf.GGUFReader(path),
    }
    if reference.available():
        subjects["llama.cpp (vocab_only)"] = lambda: reference.Reference(
            path, vocab_only=True
        ).close()
    report("open", turn_about(subjects, rounds), "ms")


def bench_run(path: str, args: argparse.Namespace) -> None:
    """Tokens per second of a prompt, and one by one."""
    import llmviz
    from llmviz import reference
    from llmviz.batch import Batch
    from llmviz.events import Event
    from llmviz.ggml.measure import NodeStatistics

    n_prefill, n_decode = args.n_prefill, args.n_decode
    n_ctx = max(n_prefill, args.deep) + n_decode
    ours: dict[str, Any] = {}
    for weights in args.weights:
        model = llmviz.load(path, weights=weights)
        ours[weights] = model.context(n_ctx=n_ctx, n_batch=n_prefill, n_ubatch=n_prefill)
    ids = (model.vocab.tokenize(TEXT) * (1 + n_ctx // 8))[:n_ctx]
    theirs: Any = None
    if reference.available():
        theirs = reference.Reference(
            path, n_ctx=n_ctx, n_batch=n_prefill, n_ubatch=n_prefill, n_threads=args.threads,
            flash_attn=None, repack=True,
        )  # fmt: skip

    def prefill(ctx: Any, n: int) -> Callable[[], None]:
        def run() -> None:
            ctx.memory.clear()
            for i in range(0, n, n_prefill):
                ctx.decode(Batch.get_one(ids[i : min(n, i + n_prefill)]))

        return run

    def prefill_theirs(n: int) -> Callable[[], None]:
        def run() -> None:
            theirs.clear(data=False)
            for i in range(0, n, n_prefill):
                theirs.decode(ids[i : min(n, i + n_prefill)])

        return run

    def decode(
        ctx: Any, depth: int, watch: Any = None, see: Callable[[Event], object] | None = None
    ) -> Callable[[], None]:
        def run() -> None:
            ctx.memory.seq_rm(0, depth, -1)
            for token in ids[:n_decode]:
                if watch is None:
                    ctx.decode(Batch.get_one([token]))
                else:
                    for event in ctx.decode_steps(Batch.get_one([token]), watch):
                        if see is not None and event.kind == "node":
                            see(event)
                ctx.get_logits_ith(-1)

        return run

    def measured(ctx: Any, depth: int) -> Callable[[], None]:
        plain, statistics = decode(ctx, depth), NodeStatistics()

        def run() -> None:
            ctx.sched.statistics = statistics
            plain()
            ctx.sched.statistics = None

        return run

    def decode_theirs(depth: int) -> Callable[[], None]:
        def run() -> None:
            theirs.seq_rm(0, depth, -1)
            for token in ids[:n_decode]:
                theirs.decode([token])
                theirs.logits_ith(-1)

        return run

    for n in (32, n_prefill):
        subjects = {f"llmviz {name}": prefill(ctx, n) for name, ctx in ours.items()}
        subjects |= {"llama.cpp": prefill_theirs(n)} if theirs else {}
        report(f"prefill, {n} tokens", turn_about(subjects, args.rounds), "tok/s", n)
    first = next(iter(ours))
    kept: dict[str, Any] = {}

    def keep(event: Event) -> None:
        if not event.about.is_view:  # a view computes nothing: its values are its source's
            kept[event.name] = event.value.copy()

    for depth in (64, n_prefill - n_decode, *([args.deep] if args.deep else [])):
        for run in (prefill(ctx, max(depth, n_prefill)) for ctx in ours.values()):
            run()
        if theirs:
            prefill_theirs(max(depth, n_prefill))()
        subjects = {f"llmviz {name}": decode(ctx, depth) for name, ctx in ours.items()}
        subjects |= {"llama.cpp": decode_theirs(depth)} if theirs else {}
        title = f"decode, {n_decode} tokens after {depth}"
        report(title, turn_about(subjects, args.rounds), "tok/s", n_decode)
        ctx = ours[first]
        watched = {
            f"llmviz {first}, nobody": decode(ctx, depth),
            "a listener that wants nothing": decode(ctx, depth, lambda name: False),
            "statistics of all nodes": measured(ctx, depth),
            "every node an event": decode(ctx, depth, lambda name: True),
            "every computed node's value kept": decode(ctx, depth, lambda name: True, keep),
        }
        report(f"watched, after {depth}", turn_about(watched, args.rounds), "tok/s", n_decode)
    if theirs:
        theirs.close()


if __name__ == "__main__":
    sys.exit(main())
