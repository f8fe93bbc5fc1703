"""Most memory of a whole process that loads SmolLM2, reads a prompt and decodes.

llmviz with blocks in each load mode, with float32, and llama.cpp.

Run by hand: ``python tests/benchmarks/bench_memory.py --help``.
"""

from __future__ import annotations

import argparse
import os
import sys

from children import run
from measure import clean_environment, machine

OURS = """
import warnings
warnings.simplefilter("ignore")
import llmviz
from llmviz.batch import Batch
mark("import")
model = llmviz.load({path!r}, weights={weights!r}, load_mode={mode!r})
mark("load")
ctx = model.context(n_ctx={n_ctx})
mark("context")
ids = (model.vocab.tokenize("Once upon a time there was a robot. ") * {n_prompt})[:{n_prompt}]
ctx.decode(Batch.get_one(ids))
mark("prompt")
for _ in range({n}):
    ctx.decode(Batch.get_one([int(ctx.get_logits_ith(-1).argmax())]))
mark("decode")
"""
THEIRS = """
from llmviz import reference
mark("import")
with reference.Reference({path!r}, n_ctx={n_ctx}, n_batch=512, n_ubatch=512) as ctx:
    mark("load")
    mark("context")
    ids = (ctx.tokenize("Once upon a time there was a robot. ") * {n_prompt})[:{n_prompt}]
    ctx.decode(ids)
    mark("prompt")
    for _ in range({n}):
        ctx.decode([int(ctx.logits_ith(-1).argmax())])
    mark("decode")
"""
MODES = ("mmap", "none", "mlock", "mmap+mlock", "dio")
MARKS = ("import", "load", "context", "prompt", "decode")
ON = {"LLMVIZ_KERNELS": "on"}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=os.environ.get("LLMVIZ_SMOLLM2", "smollm2-135m"))
    parser.add_argument("--n-ctx", type=int, default=1024)
    parser.add_argument("--n-prompt", type=int, default=512)
    parser.add_argument("--n-decode", type=int, default=32)
    parser.add_argument("--modes", nargs="*", default=MODES, help="load modes, with blocks")
    args = parser.parse_args()
    clean_environment()
    from llmviz import hub, reference

    path = str(hub.resolve(args.model))
    size = os.path.getsize(path)
    given = {"path": path, "n_ctx": args.n_ctx, "n_prompt": args.n_prompt, "n": args.n_decode}
    print(machine())
    print(f"{os.path.basename(path)}, {size / 2**20:.0f} MiB, n_ctx {args.n_ctx}, "
          f"{args.n_prompt} tokens, then {args.n_decode}: most MiB resident after")  # fmt: skip
    print(f"  {'':<28}" + "".join(f"{name:>10}" for name in MARKS) + "   above the file")
    run(OURS.format(**{**given, "n": 1}, weights="quantized", mode="mmap"), ON)  # compiles
    for mode in args.modes:
        program = OURS.format(**given, weights="quantized", mode=mode)
        row(f"llmviz, blocks, {mode}", run(program, ON).peak, size)
    row("llmviz, float32, mmap", run(OURS.format(**given, weights="f32", mode="mmap")).peak, size)
    if reference.available():
        row("llama.cpp", run(THEIRS.format(**given)).peak, size)


def row(what: str, peak: dict[str, int], size: int) -> None:
    """One line of the table."""
    shown = "".join(f"{peak[name] / 2**20:10.0f}" for name in MARKS)
    print(f"  {what:<28}{shown}{(peak['decode'] - size) / 2**20:17.0f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
