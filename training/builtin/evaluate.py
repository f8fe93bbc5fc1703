"""Held-out loss, and held-out accuracy of each structure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch.nn import functional as F

from training.builtin.answers import Score, asked, encoded
from training.builtin.corpus import Document, held_out
from training.builtin.model import Llama
from training.builtin.scenes import SCENES
from training.builtin.tokenizer import Tokenizer


@torch.no_grad()
def evaluate(
    model: Llama, tok: Tokenizer, n: int = 64, names: Sequence[str] = ("story", *SCENES)
) -> tuple[float, dict[str, Score]]:
    """Mean loss of a held-out token, and a `Score` for each kind; `n` documents of each scene."""
    scores: dict[str, Score] = defaultdict(Score)
    total, count = 0.0, 0
    for name in names:
        docs: list[Document] = held_out(name, n)
        docs.sort(key=lambda d: len(d.text))
        for at in range(0, n, 32):
            group = docs[at : at + 32]
            ids = [encoded(d, tok)[0] for d in group]
            width = min(max(map(len, ids)), model.shape.n_ctx)
            padded = torch.tensor([(i + [-1] * width)[:width] for i in ids])
            logits = model(padded.clamp(min=0))[:, :-1]
            target = padded[:, 1:]
            total += F.cross_entropy(
                logits.flatten(0, 1), target.flatten(), ignore_index=-1, reduction="sum"
            ).item()
            count += int((target >= 0).sum())
            p = logits.softmax(-1).numpy()
            for row, doc in enumerate(group):
                for answer, position, among in asked(doc, tok):
                    if position < width - 1:
                        scores[answer.kind].add(p[row, position], among)
    return total / count, dict(scores)
