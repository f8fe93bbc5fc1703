"""Vocabularies: text to token ids and back, as llama.cpp does it.
↔ src/llama-vocab.cpp, src/unicode.cpp

Reading order: ``vocab`` (the vocabulary), ``partition`` (special tokens), ``merging`` (the merge
loop), ``spm``, ``bpe`` with ``pre`` (the two kinds of tokenizer), ``special`` (which ids end a
generation), ``chat`` (templates).
"""

from llmviz.vocab.attributes import TokenAttr
from llmviz.vocab.merging import Film, Merge
from llmviz.vocab.partition import Fragment
from llmviz.vocab.tables import VocabWarning
from llmviz.vocab.tokenizer import TOKENIZERS, ByteFallback, Tokenizer, Word
from llmviz.vocab.vocab import Vocab

from llmviz.vocab import bpe, spm  # isort: skip  # noqa: F401  (each registers its tokenizers)

__all__ = [
    "TOKENIZERS",
    "ByteFallback",
    "Film",
    "Fragment",
    "Merge",
    "TokenAttr",
    "Tokenizer",
    "Vocab",
    "VocabWarning",
    "Word",
]
