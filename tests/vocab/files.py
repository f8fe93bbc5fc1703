"""Small vocabularies for tests: the keys of a GGUF file, written or held in memory."""

from __future__ import annotations

from pathlib import Path

from gguf_bytes import ARR, BOOL, F32, I32, STR, U32, arr, gguf, kv

from llmviz.gguf import GGUF, open_gguf
from llmviz.vocab import Vocab
from llmviz.vocab.unicode import BYTE_TO_UTF8

DATA = Path(__file__).parent.parent / "data" / "vocabs"
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)

Keys = dict[str, tuple]


def spm_keys(
    words: list[tuple[str, float]] = (), special: list[tuple[str, int]] = (), **more: object
) -> Keys:
    """``<unk> <s> </s>``, 256 bytes, `words` with scores, `special` texts with types."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256))]
    types = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256]
    scores = [0.0] * 259
    for text, score in words:
        tokens.append(text)
        scores.append(score)
        types.append(NORMAL)
    for text, kind in special:
        tokens.append(text)
        scores.append(0.0)
        types.append(kind)
    return keys_of("llama", tokens, types, scores=("arr", F32, scores), **more)


def bpe_keys(
    merges: list[str] = (), special: list[tuple[str, int]] = (), pre: str | None = "gpt-2", **more
) -> Keys:
    """256 bytes, what `merges` make (``"h e"``), `special` texts with their types."""
    tokens: list[str | bytes] = list(BYTE_TO_UTF8)
    for merge in merges:
        text = merge.replace(" ", "").encode()
        if text not in tokens:
            tokens.append(text)
    types = [NORMAL] * len(tokens)
    for text, kind in special:
        if text in tokens or text.encode() in tokens:
            continue
        tokens.append(text)
        types.append(kind)
    if pre is not None:
        more["pre"] = (STR, pre)
    return keys_of("gpt2", tokens, types, merges=("arr", STR, list(merges)), **more)


def keys_of(kind: str, tokens: list, types: list[int] | None, **more: object) -> Keys:
    """Fields of a vocabulary of one kind; further ones by name."""
    keys: Keys = {
        "general.architecture": (STR, "llama"),
        "llama.context_length": (U32, 64),
        "llama.embedding_length": (U32, 32),
        "llama.block_count": (U32, 1),
        "llama.feed_forward_length": (U32, 32),
        "llama.attention.head_count": (U32, 4),
        "llama.attention.layer_norm_rms_epsilon": (F32, 1e-5),
        "tokenizer.ggml.model": (STR, kind),
        "tokenizer.ggml.tokens": ("arr", STR, tokens),
    }
    if types is not None:
        keys["tokenizer.ggml.token_type"] = ("arr", I32, types)
    for name, value in more.items():
        if isinstance(value, bool):
            value = (BOOL, value)
        elif isinstance(value, int):
            value = (U32, value)
        keys[name if "." in name else f"tokenizer.ggml.{name}"] = value  # type: ignore[assignment]
    return keys


def raw_of(keys: Keys) -> bytes:
    """A file that holds `keys` and no tensors; a key set to None is left out."""
    fields = [
        arr(key, value[1], value[2]) if value[0] == "arr" else kv(key, *value)
        for key, value in keys.items()
        if value is not None
    ]
    return gguf(fields)


def write(path: Path, keys: Keys) -> Path:
    """Write a file that holds `keys` and no tensors."""
    path.write_bytes(raw_of(keys))
    return path


def opened(path: Path, keys: Keys) -> GGUF:
    """`write` and open."""
    return open_gguf(str(write(path / "v.gguf", keys)))


def vocab(path: Path, keys: Keys) -> Vocab:
    """`write`, open, and read the vocabulary."""
    return Vocab.from_gguf(opened(path, keys))


def token_ids(vocab: Vocab, *texts: str) -> list[int]:
    """Ids of token texts, all of which must exist."""
    ids = [vocab.find(text) for text in texts]
    assert -1 not in ids, texts
    return ids


__all__ = ["ARR", "BOOL", "DATA", "F32", "I32", "STR", "U32"]
