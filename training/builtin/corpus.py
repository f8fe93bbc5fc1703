"""Documents out of scenes and stories: plain text, and where its marked answers lie."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from training.builtin.scenes import SCENES, Split
from training.builtin.stories import story

_MARK = re.compile(r"( ?)<(\w+):([^>]*)>")


@dataclass(frozen=True)
class Mix:
    """What documents are made of: share of stories, and how often each scene, relatively."""

    stories: float
    weights: dict[str, int]


# Courses, one after the other: the second one asks much more about what was said before, the third
# one has words that come again without any grammar around them.
FIRST = Mix(
    0.4,
    {
        "recipient": 4, "count": 4, "agreement": 2, "brackets": 2, "who": 4, "where": 3,
        "repeat": 3, "copy": 2, "sort": 2, "order": 1, "fact": 1,
    },
)  # fmt: skip
SECOND = Mix(
    0.25,
    {
        "recipient": 3, "count": 2, "agreement": 1, "brackets": 2, "who": 3, "where": 1,
        "recall": 5, "find": 4, "holder": 5, "look": 3, "repeat": 2, "copy": 1, "sort": 1,
        "order": 1, "fact": 1,
    },
)  # fmt: skip


THIRD = Mix(
    0.25,
    {
        "recipient": 3, "count": 2, "agreement": 1, "brackets": 2, "who": 2, "where": 1,
        "recall": 3, "find": 3, "holder": 4, "look": 2, "echo": 7, "repeat": 1, "copy": 1,
        "sort": 2, "order": 1, "fact": 1,
    },
)  # fmt: skip
COURSES = {"first": FIRST, "second": SECOND, "third": THIRD}


@dataclass(frozen=True)
class Answer:
    """A marked answer: kind of structure, the text, and where it starts in the document's text.

    `text` has the space before the word with it: as in the vocabulary, it belongs to the word.
    """

    kind: str
    text: str
    start: int


@dataclass(frozen=True)
class Document:
    """A text and its answers, in order."""

    text: str
    answers: tuple[Answer, ...]

    @classmethod
    def parse(cls, marked: str) -> Document:
        """Read a text in which answers are written ``<kind:word>``."""
        parts: list[str] = []
        answers: list[Answer] = []
        at = done = 0
        for match in _MARK.finditer(marked):
            before = marked[done : match.start()]
            space, kind, word = match.groups()
            at += len(before)
            answers.append(Answer(kind, space + word, at))
            parts += [before, space + word]
            at += len(space) + len(word)
            done = match.end()
        return cls("".join([*parts, marked[done:]]), tuple(answers))


def document(r: Random, split: Split, mix: Mix = FIRST) -> Document:
    """A story, or one to five scenes, each on a line of its own."""
    if r.random() < mix.stories:
        return Document.parse(story(r, split))
    names = r.choices(list(mix.weights), list(mix.weights.values()), k=r.choice((1, 2, 3, 4, 5)))
    return Document.parse("\n".join(SCENES[name](r, split) for name in names))


def documents(seed: int, split: Split | None = None, mix: Mix = FIRST) -> Iterator[Document]:
    """Documents without end: the same ones for the same seed."""
    r = Random(seed)
    while True:
        yield document(r, split or Split(), mix)


def held_out(name: str, n: int, seed: int = 0) -> list[Document]:
    """`n` documents of the scene `name`, or of stories, of combinations that are not trained on."""
    r, split = Random(f"{seed} {name}"), Split(held_out=True)
    make = story if name == "story" else SCENES[name]
    return [Document.parse(make(r, split)) for _ in range(n)]
