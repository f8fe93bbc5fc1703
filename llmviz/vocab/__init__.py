"""Vocabularies: text to token ids and back, as llama.cpp does it.
↔ src/llama-vocab.cpp, src/unicode.cpp

Reading order: ``vocab`` (the vocabulary), ``partition`` (special tokens), ``merging`` (the merge
loop), ``spm``, ``bpe`` with ``pre`` (the two most common tokenizers), ``matching`` with ``wpm``,
``rwkv``, ``ugm`` and ``plamo2`` (the others), ``special`` (which ids end a generation), ``chat``
(templates).
"""

from llmviz.vocab.attributes import TokenAttr
from llmviz.vocab.matching import Choice, Match
from llmviz.vocab.merging import Film, Merge
from llmviz.vocab.partition import Fragment
from llmviz.vocab.tables import VocabWarning
from llmviz.vocab.tokenizer import TOKENIZERS, ByteFallback, Tokenizer, Word
from llmviz.vocab.vocab import Vocab

from llmviz.vocab.compare import Parting, compare  # isort: skip  (needs all of the above)

# Each registers its tokenizers.
from llmviz.vocab import bpe, bpe_words, plamo2, rwkv, spm, ugm, wpm  # isort: skip  # noqa: F401

__all__ = [
    "TOKENIZERS",
    "ByteFallback",
    "Choice",
    "Film",
    "Fragment",
    "Match",
    "Merge",
    "Parting",
    "TokenAttr",
    "Tokenizer",
    "Vocab",
    "VocabWarning",
    "Word",
    "compare",
]
