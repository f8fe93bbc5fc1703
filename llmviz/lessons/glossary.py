"""The words of the course, for lessons and the reader: those that the panel explains too."""

from __future__ import annotations

from html import escape

from llmviz.trace.glossary import WORDS, word_of

__all__ = ["GLOSSARY", "Glossary", "meaning"]


def meaning(word: str) -> str:
    """What a word means, in a sentence or two: ``meaning("KV cache")``, ``meaning("tokens")``.

    Raises
    ------
    KeyError
        It is no word of the glossary; the message lists those that are.
    """
    known = word_of(word)
    if known is None:
        raise KeyError(f"{word!r} is not in the glossary; these are: {', '.join(sorted(WORDS))}")
    return WORDS[known]


class Glossary:
    """All words, as a notebook shows them."""

    def __repr__(self) -> str:
        return "\n".join(f"{word}: {WORDS[word]}" for word in sorted(WORDS, key=str.casefold))

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<dt><b>{escape(word)}</b></dt><dd>{escape(WORDS[word])}</dd>"
            for word in sorted(WORDS, key=str.casefold)
        )
        return f"<dl>{rows}</dl>"


GLOSSARY = Glossary()
