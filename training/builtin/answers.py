"""What a document asks of a model, and how well it was answered. No torch: any engine may ask."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from training.builtin.corpus import Answer, Document
from training.builtin.tokenizer import Tokenizer
from training.builtin.words import rivals

ANSWER_WEIGHT = 2.0  # a marked answer counts as two other tokens in the loss


def encoded(doc: Document, tok: Tokenizer) -> tuple[list[int], list[float]]:
    """``<s> text </s>`` as ids, and the weight of each as a target."""
    ids, starts = tok.encode(doc.text)
    weights = [0.0, *([1.0] * len(ids)), 1.0]  # nothing predicts <s>
    for answer in doc.answers:
        first = starts[answer.start] + 1
        for i in range(first, first + len(tok.word(answer.text))):
            weights[i] = ANSWER_WEIGHT
    return [tok.bos, *ids, tok.eos], weights


def rival_ids(text: str, tok: Tokenizer) -> list[int]:
    """Ids of the one-token words that an answer competes with, its own first."""
    space, word = text[: len(text) - len(text.lstrip())], text.lstrip()
    ids = [tok.word(text)[0]]
    for other in rivals(word):
        parts = tok.word(space + other)
        if len(parts) == 1 and parts[0] not in ids:
            ids.append(parts[0])
    return ids


def asked(doc: Document, tok: Tokenizer) -> Iterator[tuple[Answer, int, list[int]]]:
    """Of each answer: the position that has to predict it (``<s>`` is 0), its id, its rivals'."""
    starts = tok.encode(doc.text)[1]
    for answer in doc.answers:
        # <s> moves a token one place on, prediction moves it one place back
        yield answer, starts[answer.start], rival_ids(answer.text, tok)


@dataclass
class Score:
    """Of one kind of answer.

    Attributes
    ----------
    n : int
        Answers.
    right : int
        Those that were the most probable token of all.
    best_rival : int
        Those that were the most probable among the words of their class.
    total : float
        Their probabilities, added up.
    """

    n: int = 0
    right: int = 0
    best_rival: int = 0
    total: float = 0.0

    def add(self, p: np.ndarray, among: list[int]) -> None:
        """Count one answer; `p`: probability of each token."""
        self.n += 1
        self.right += int(p.argmax()) == among[0]
        self.best_rival += int(p[among].argmax()) == 0
        self.total += float(p[among[0]])

    @property
    def p(self) -> float:
        """Mean probability of the right token."""
        return self.total / self.n
