"""Which special tokens swallow white space beside them.
↔ src/llama-vocab.cpp (per-token attributes)

GGUF files do not say, so llama.cpp goes by the names of the pre-tokenizer, the architecture and the
model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmviz.vocab.attributes import TokenAttr
from llmviz.vocab.keys import Keys

if TYPE_CHECKING:
    from llmviz.vocab.vocab import Vocab

__all__ = ["strip_attributes"]

_LSTRIP_MASK_PRE = ("jina-v2-de", "jina-v2-es", "jina-v2-code")
_LSTRIP_MASK_ARCH = ("nomic-bert-moe", "jina-bert-v3")


def strip_attributes(vocab: Vocab, keys: Keys) -> None:
    """Set LSTRIP and RSTRIP in ``vocab.attrs`` for the models that are known to need it."""
    pre = keys.string("tokenizer.ggml.pre") or ""
    arch = keys.string("general.architecture") or ""
    name = (keys.string("general.name") or "").lower()

    if any(part in pre for part in _LSTRIP_MASK_PRE) or any(p in arch for p in _LSTRIP_MASK_ARCH):
        _set_mask(vocab, "<mask>")
    elif "phi-3" in name or "phi3" in name:
        for token in vocab.special_cache:
            vocab.attrs[token] |= TokenAttr.RSTRIP
        for text, strips in (("</s>", 1), ("<unk>", 0), ("<s>", 0), ("<|endoftext|>", 0)):
            token = vocab.find(text)
            if token < 0:
                raise keys.error(
                    f"the model's name says Phi-3, whose vocabulary must have the token {text!r}",
                    "general.name",
                )
            if strips:
                vocab.attrs[token] |= TokenAttr.RSTRIP
            else:
                vocab.attrs[token] &= ~TokenAttr.RSTRIP
    elif "modern-bert" in name:
        _set_mask(vocab, "[MASK]")


def _set_mask(vocab: Vocab, text: str) -> None:
    token = vocab.find(text)
    if token < 0:
        vocab.warn(f"the mask token {text!r} is missing in the vocabulary; convert the model again")
    else:
        vocab.attrs[token] |= TokenAttr.LSTRIP
