"""From the start of Python to the first token: kernels compiled before, and not.

Every line is a process of its own. Where kernels are not compiled yet, numpy answers, and another
process compiles meanwhile.

Run by hand: ``python tests/benchmarks/bench_start.py --help``.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile

from children import Child, run
from measure import clean_environment, machine

PROGRAM = """
import llmviz
mark("import")
model = llmviz.load({path!r}, weights={weights!r})
mark("load")
ctx = model.context(n_ctx=256)
next(iter(llmviz.generate(ctx, "Once upon a time", n_predict=1)))
mark("token")
mark("blocks", float(model.keeps_blocks))
import threading
for thread in threading.enumerate():
    if thread.name == "llmviz kernels":  # what it compiles for the next load
        thread.join()
mark("ready")
"""
THEIRS = """
from llmviz import reference
mark("import")
with reference.Reference({path!r}, n_ctx=256) as ctx:
    mark("load")
    ctx.decode(ctx.tokenize("Once upon a time"))
    ctx.logits_ith(-1).argmax()
    mark("token")
mark("blocks", 1.0)
mark("ready")
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=os.environ.get("LLMVIZ_SMOLLM2", "smollm2-135m"))
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    clean_environment()
    from llmviz import hub, reference

    path = str(hub.resolve(args.model))
    print(machine())
    print(f"{os.path.basename(path)}: seconds since Python was started (processor seconds)")
    with tempfile.TemporaryDirectory() as compiled:
        cold = PROGRAM.format(path=path, weights="auto")
        empty = [tempfile.mkdtemp(dir=compiled) for _ in range(args.rounds)]
        report("not compiled yet, weights='auto'", [run(cold, _kernels(e)) for e in empty])
        warm = PROGRAM.format(path=path, weights="quantized")
        report("compiling first, weights='quantized'", [run(warm, _kernels(empty[0] + "/q"))])
        rounds = [run(warm, _kernels(empty[0] + "/q")) for _ in range(args.rounds)]
        report("compiled, weights='quantized'", rounds)
        plain = PROGRAM.format(path=path, weights="f32")
        report("weights='f32'", [run(plain) for _ in range(args.rounds)])
    if reference.available():
        report("llama.cpp", [run(THEIRS.format(path=path)) for _ in range(args.rounds)])


def _kernels(folder: str) -> dict[str, str]:
    return {"LLMVIZ_CACHE": folder, "LLMVIZ_KERNELS": "on"}


def report(what: str, rounds: list[Child]) -> None:
    """One line: the round that was quickest to the first token."""
    best = min(rounds, key=lambda child: child.seconds["token"])
    parts = ", ".join(f"{name} {best.seconds[name]:.2f} ({best.cpu[name]:.2f})"
                      for name in ("import", "load", "token"))  # fmt: skip
    how = "blocks" if best.values["blocks"] else "float32"
    if best.seconds["ready"] - best.seconds["token"] > 1:
        how += f", kernels compiled after {best.seconds['ready']:.1f}"
    print(f"  {what:<40} {parts}   {how}, peak {best.peak['token'] / 2**20:.0f} MiB")


if __name__ == "__main__":
    sys.exit(main())
