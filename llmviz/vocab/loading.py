"""Reading a vocabulary from a file's keys. ↔ src/llama-vocab.cpp (llama_vocab::impl::load)

What takes time and is not always needed (the table of merges, the end-of-turn token where several
fit) is made at first use; the file may be closed by then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from llmviz.events import Event, Steps
from llmviz.gguf.constants import ValueType
from llmviz.vocab import special
from llmviz.vocab.attributes import attrs_of_types
from llmviz.vocab.keys import HasKeys, Keys, c_strings
from llmviz.vocab.partition import special_cache
from llmviz.vocab.strip import strip_attributes
from llmviz.vocab.tables import TokenTexts
from llmviz.vocab.tokenizer import find_tokenizer

if TYPE_CHECKING:
    from llmviz.vocab.vocab import Vocab

__all__ = ["load_steps"]

MODEL = "tokenizer.ggml.model"
TOKENS = "tokenizer.ggml.tokens"
SCORES = "tokenizer.ggml.scores"
TYPES = "tokenizer.ggml.token_type"
SUPPRESS = "tokenizer.ggml.suppress_tokens"
SPACE_PREFIX = "tokenizer.ggml.add_space_prefix"
CHAT_TEMPLATE = "tokenizer.chat_template"


def load_steps(vocab: Vocab, gguf: HasKeys, depth: int) -> Steps[None]:
    """Fill in a new vocabulary; the events are described in `Vocab.load_steps`."""
    keys = Keys(gguf)
    vocab.model = keys.require(
        keys.string(MODEL), MODEL, "It says which tokenizer the vocabulary needs"
    )
    vocab.chat_templates = _chat_templates(keys)
    if vocab.model in ("no_vocab", "none"):
        size = keys.uint(f"{keys.string('general.architecture') or ''}.vocab_size")
        vocab.n_tokens = size or 0  # a number the file claims: nothing of that size is made
        yield _kind(vocab, depth)
        return

    vocab.set_tokenizer(find_tokenizer(vocab.model)(vocab, keys))
    yield _kind(vocab, depth)
    prefix = keys.boolean(SPACE_PREFIX)
    if prefix is not None:
        vocab.add_space_prefix = prefix

    _read_tokens(vocab, keys)
    yield Event("data", "vocab_tokens", depth, 5, vocab.tokens)
    _find_special(vocab, keys)
    strip_attributes(vocab, keys)
    for array in (vocab.attrs, vocab.scores):
        array.flags.writeable = False
    yield Event("data", "token_attrs", depth, 5, vocab.attrs)
    yield Event("data", "special_tokens", depth, 5, vocab.special_ids)
    yield Event("data", "eog_ids", depth, 5, sorted(vocab.eog_ids))
    yield Event("data", "vocab_flags", depth, 5, vocab.flags)


def _kind(vocab: Vocab, depth: int) -> Event:
    value = {"model": vocab.model, "type": vocab.type, "pre": vocab.pre}
    return Event("data", "tokenizer", depth, 5, value)


def _chat_templates(keys: Keys) -> dict[str, str]:
    """The file's templates by name: the key ``tokenizer.chat_template`` and those below it."""
    templates = {}
    for key in keys.gguf.kv:
        if key == CHAT_TEMPLATE or key.startswith(CHAT_TEMPLATE + "."):
            name = key.removeprefix(CHAT_TEMPLATE).removeprefix(".") or "default"
            templates[name] = keys.string(key) or ""
    return templates


def _read_tokens(vocab: Vocab, keys: Keys) -> None:
    """Texts, scores and attributes."""
    texts = keys.array(TOKENS, ValueType.STRING)
    if texts is None:
        raise keys.error(
            f"cannot find tokenizer vocab in model file: {TOKENS}, the list of tokens, is missing. "
            "Convert the model again",
            TOKENS,
        )
    raws = c_strings(texts.raws())
    n = vocab.n_tokens = len(raws)
    if not all(raws):
        for token in (i for i, raw in enumerate(raws) if not raw):
            vocab.warn(f"empty token at index {token}")
            raws[token] = b"[EMPTY_%d]" % token
    vocab.tokens = TokenTexts(raws)
    vocab.token_to_id = dict(zip(raws, range(n), strict=True))
    if len(vocab.token_to_id) != n:
        first = next(i for i, raw in enumerate(raws) if vocab.token_to_id[raw] != i)
        raise keys.error(
            f"tokens {first} and {vocab.token_to_id[raws[first]]} have the same text "
            f"{vocab.tokens[first]!r}; a text must stand for one token",
            TOKENS,
        )
    scores = keys.per_token(SCORES, n, ValueType.FLOAT32, ValueType.INT32)
    vocab.scores = np.zeros(n, np.float32) if scores is None else scores[:n].astype(np.float32)
    vocab.attrs = attrs_of_types(keys.per_token(TYPES, n, ValueType.INT32), n)


def _find_special(vocab: Vocab, keys: Keys) -> None:
    """Special ids, flags, tokens that end a generation, tokens to be cut out of a text."""
    raws = vocab.tokens.raws
    ids = special.read_ids(keys, vocab.tokenizer.default_ids, vocab.n_tokens, vocab.warn)
    for name in ("add_bos", "add_eos", "add_sep"):
        value = keys.boolean(f"tokenizer.ggml.{name}_token")
        if value is not None:
            setattr(vocab, name, value)
    vocab.tokenizer.settle()
    suppress = keys.array(SUPPRESS, ValueType.INT32)
    if suppress is not None:
        vocab.suppress_tokens = [t for t in suppress.tolist() if 0 <= t < vocab.n_tokens]
    look_up = (raws, vocab.find, vocab.attrs, vocab.warn)
    eot_candidates = special.find_by_text(ids, *look_up)
    special.mark_unused(raws, vocab.attrs)
    vocab.eog_ids = frozenset(special.end_of_generation(ids, *look_up))
    vocab.set_special(ids, eot_candidates)
    vocab.special_cache = special_cache(raws, vocab.attrs)
