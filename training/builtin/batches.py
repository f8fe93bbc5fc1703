"""Documents packed into rows of a fixed length, and what each position has to predict."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import torch
from torch import Tensor

from training.builtin.answers import encoded
from training.builtin.corpus import Document, Mix, document
from training.builtin.scenes import Split
from training.builtin.tokenizer import Tokenizer


def longer(r: Random, split: Split, mix: Mix, room: int, tok: Tokenizer) -> Document:
    """Several documents as one, a line each, of about `room` tokens."""
    parts, n = [document(r, split, mix)], 0
    while n < room:
        parts.append(document(r, split, mix))
        n += len(tok.encode(parts[-1].text)[0])
    text, answers = "", []
    for part in parts:
        at = len(text)
        answers += [type(a)(a.kind, a.text, a.start + at) for a in part.answers]
        text += part.text + "\n"
    return Document(text.rstrip("\n"), tuple(answers))


def rows(
    r: Random, split: Split, mix: Mix, tok: Tokenizer, n_tokens: int, long_share: float
) -> Iterator[tuple[list[int], list[float], list[int]]]:
    """Rows of ``n_tokens + 1`` ids with their weights and the document that each belongs to."""
    while True:
        ids: list[int] = []
        weights: list[float] = []
        owner: list[int] = []
        while len(ids) <= n_tokens:
            long = r.random() < long_share
            doc = longer(r, split, mix, n_tokens // 2, tok) if long else document(r, split, mix)
            i, w = encoded(doc, tok)
            owner += [owner[-1] + 1 if owner else 0] * len(i)
            ids += i
            weights += w
        end = n_tokens + 1
        yield ids[:end], weights[:end], owner[:end]


def batches(
    seed: int, mix: Mix, tok: Tokenizer, n_rows: int, n_tokens: int, long_share: float = 0.0
) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Inputs, targets, weights: [n_rows, n_tokens]; mask: [n_rows, 1, n_tokens, n_tokens].

    A token sees its own document only, so that training looks like use: a text after ``<s>``.
    """
    source = rows(Random(seed), Split(), mix, tok, n_tokens, long_share)
    causal = torch.ones(n_tokens, n_tokens, dtype=torch.bool).tril()
    while True:
        taken = [next(source) for _ in range(n_rows)]
        ids = torch.tensor([t[0] for t in taken])
        weights = torch.tensor([t[1] for t in taken])
        owner = torch.tensor([t[2] for t in taken])[:, :-1]
        mask = (owner[:, :, None] == owner[:, None, :]) & causal
        yield ids[:, :-1], ids[:, 1:], weights[:, 1:], mask[:, None]
