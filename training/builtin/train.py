"""Train the built-in model, one course at a time: ``python -m training.builtin.train``.

Writes into the folder ``--out``: ``merges.json``, ``loss.csv`` (every 20 steps), ``held_out.csv``
(now and then), ``checkpoint.pt`` (as often) and, at the end, ``run.json``.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import math
import platform
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import torch
from torch.nn import functional as F

from training.builtin.batches import batches
from training.builtin.corpus import COURSES, documents
from training.builtin.evaluate import evaluate
from training.builtin.model import Llama, Shape
from training.builtin.tokenizer import WORDS, Tokenizer, train


def make_tokenizer(seed: int = 0, n_documents: int = 20000, n_vocab: int = 1024) -> Tokenizer:
    """Train the BPE on words that are not nonsense: those that come often."""
    counts: Counter[str] = Counter()
    for doc in itertools.islice(documents(seed), n_documents):
        counts.update(WORDS.findall(doc.text))
    often = n_documents // 800
    return Tokenizer(train(Counter({w: n for w, n in counts.items() if n >= often}), n_vocab))


def rate(step: int, steps: int, peak: float) -> float:
    """Learning rate: a short rise, then half a cosine down to a fiftieth."""
    rise = 150
    if step < rise:
        return peak * (step + 1) / rise
    return peak * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * (step - rise) / (steps - rise))))


def optimizer(model: Llama, peak: float) -> torch.optim.AdamW:
    """AdamW; matrices decay, norms do not."""
    matrices = [p for p in model.parameters() if p.ndim == 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": 0.05},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=peak, betas=(0.9, 0.98), eps=1e-9, fused=True)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/builtin-model"))
    parser.add_argument("--steps", type=int, default=9000)
    parser.add_argument("--rows", type=int, default=16, help="sequences of 128 tokens in a step")
    parser.add_argument("--peak", type=float, default=2e-3, help="highest learning rate")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1, help="others round differently")
    parser.add_argument("--course", choices=COURSES, default="first")
    parser.add_argument("--after", type=Path, help="folder of the course to go on from")
    parser.add_argument("--stop", type=int, help="end after this step of the schedule")
    parser.add_argument("--tied", action="store_true", help="output weights = embeddings")
    parser.add_argument("--every", type=int, default=400, help="steps between evaluations")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)

    tok = make_tokenizer()
    tok.save(args.out / "merges.json")
    shape = Shape(n_vocab=len(tok.tokens), tied=args.tied)
    model = Llama(shape)
    if args.after:
        model.load_state_dict(torch.load(args.after / "checkpoint.pt", weights_only=True)["model"])
    n_params = sum(p.numel() for p in model.parameters())
    print(f"{shape.n_vocab} tokens, {n_params:,} parameters", flush=True)

    # The last sixth of the steps sees rows of twice the length, with long documents among them.
    lengthen = args.steps * 5 // 6
    mix = COURSES[args.course]
    short = batches(args.seed, mix, tok, args.rows, 128)
    long = batches(args.seed + 1, mix, tok, args.rows // 2, 256, 0.3)
    opt = optimizer(model, args.peak)
    started, cpu_started, seen = time.time(), time.process_time(), 0
    losses = csv.writer((args.out / "loss.csv").open("w", buffering=1))
    held = csv.writer((args.out / "held_out.csv").open("w", buffering=1))
    losses.writerow(("step", "tokens", "loss", "seconds"))
    held.writerow(("step", "kind", "n", "right", "best_rival", "p", "loss"))
    recent: list[float] = []
    stop = args.stop or args.steps
    for step in range(stop):
        ids, target, weight, mask = next(short if step < lengthen else long)
        for group in opt.param_groups:
            group["lr"] = rate(step, args.steps, args.peak)
        each = F.cross_entropy(model(ids, mask).flatten(0, 1), target.flatten(), reduction="none")
        flat = weight.flatten()
        loss = (each * flat).sum() / flat.sum()
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        seen += ids.numel()
        recent.append(loss.item())
        if (step + 1) % 20 == 0:
            mean = sum(recent) / len(recent)
            losses.writerow((step + 1, seen, f"{mean:.4f}", f"{time.time() - started:.1f}"))
            recent = []
        if (step + 1) % args.every == 0 or step + 1 == stop:
            last = step + 1 == stop
            held_loss, scores = evaluate(model, tok, 512 if last else 64)
            for kind, s in scores.items():
                row = (step + 1, kind, s.n, s.right, s.best_rival, f"{s.p:.4f}")
                held.writerow((*row, f"{held_loss:.4f}"))
            speed = seen / (time.time() - started)
            table = " ".join(f"{k} {100 * s.right / s.n:.0f}" for k, s in sorted(scores.items()))
            print(
                f"{step + 1} loss {mean:.3f} held {held_loss:.3f} {speed:.0f}/s {table}", flush=True
            )
            torch.save({"shape": asdict(shape), "model": model.state_dict()}, args.out / "tmp.pt")
            (args.out / "tmp.pt").replace(args.out / "checkpoint.pt")
    run = {
        "steps": stop, "schedule": args.steps, "tokens": seen, "rows": args.rows, "peak": args.peak,
        "seed": args.seed, "threads": args.threads, "tied": args.tied, "parameters": n_params,
        "seconds": round(time.time() - started),
        "cpu_seconds": round(time.process_time() - cpu_started),
        "torch": torch.__version__, "python": platform.python_version(),
        "machine": platform.machine(), "held_out_loss": round(held_loss, 4),
    }  # fmt: skip
    (args.out / "run.json").write_text(json.dumps(run, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
