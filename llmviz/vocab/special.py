"""Special tokens: which ids they have, and which of them end a generation.
↔ src/llama-vocab.cpp (llama_vocab::impl::load: special tokens, auto-detection, special_eog_ids)

A file names some special ids by key. Others are known only by their text: llama.cpp looks for the
names below, and so do we. A token that ends a generation is called EOG.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from llmviz.vocab.attributes import TokenAttr
from llmviz.vocab.hash_order import map_order
from llmviz.vocab.keys import Keys

__all__ = ["SPECIAL_NAMES", "end_of_generation", "first_walked", "mark_unused", "read_ids"]

KEYS = {
    "bos": ("tokenizer.ggml.bos_token_id",),
    "eos": ("tokenizer.ggml.eos_token_id",),
    "eot": ("tokenizer.ggml.eot_token_id",),
    "eom": ("tokenizer.ggml.eom_token_id",),
    "unk": ("tokenizer.ggml.unknown_token_id",),
    "sep": ("tokenizer.ggml.seperator_token_id",),
    "pad": ("tokenizer.ggml.padding_token_id",),
    "mask": ("tokenizer.ggml.mask_token_id",),
    "fim_pre": ("tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.prefix_token_id"),
    "fim_suf": ("tokenizer.ggml.fim_suf_token_id", "tokenizer.ggml.suffix_token_id"),
    "fim_mid": ("tokenizer.ggml.fim_mid_token_id", "tokenizer.ggml.middle_token_id"),
    "fim_pad": ("tokenizer.ggml.fim_pad_token_id",),
    "fim_rep": ("tokenizer.ggml.fim_rep_token_id",),
    "fim_sep": ("tokenizer.ggml.fim_sep_token_id",),
}
"""Keys that may hold each special id; the later one wins. The format spells ``seperator``."""

SPECIAL_NAMES = tuple(KEYS)

_DEEPSEEK_EOS = "<｜end▁of▁sentence｜>"

BY_TEXT = {
    "eot": (
        "<|eot_id|> <|im_end|> <|end|> <end_of_turn> <|endoftext|> <|end_of_text|> <EOT> _<EOT>"
        f" [EOT] {_DEEPSEEK_EOS} <end_of_utterance>"
    ),
    "eom": "<|eom_id|>",
    "fim_pre": (
        "<|fim_prefix|> <fim-prefix> <fim_prefix> <｜fim▁begin｜> <PRE> ▁<PRE>"
        " <|code_prefix|> <|prefix|>"
    ),
    "fim_suf": (
        "<|fim_suffix|> <fim-suffix> <fim_suffix> <｜fim▁hole｜> <SUF> ▁<SUF>"
        " <|code_suffix|> <|suffix|>"
    ),
    "fim_mid": (
        "<|fim_middle|> <fim-middle> <fim_middle> <｜fim▁end｜> <MID> ▁<MID>"
        " <|code_middle|> <|middle|>"
    ),
    "fim_pad": "<|fim_pad|> <fim-pad> <fim_pad> <PAD> [PAD]",
    "fim_rep": "<|fim_repo|> <|repo_name|> <fim-repo> <REPO> <reponame>",
    "fim_sep": "<|file_sep|>",
}
"""Texts by which a special token is found where no key names it, separated by spaces."""

EOG_TEXTS = (
    "<|eot_id|> <|im_end|> <|end|> <|return|> <|call|> <|flush|> <|calls|> <end_of_turn>"
    " <|endoftext|> </s> <|eom_id|> <EOT> _<EOT> [EOT] [EOS] <|end_of_text|> <end_of_utterance>"
    f" <eos> <turn|> <|tool_response> {_DEEPSEEK_EOS} [e~["
)
"""Texts of tokens that end a generation, whatever the file says of them."""

SHOWN_TEXTS = "<|channel|> <|message|> <|start|> <|constrain|>"
"""Texts of tokens that are always written out, since they structure an answer (gpt-oss)."""

Find = Callable[[bytes], int]
Warn = Callable[[str], None]


def found(find: Find, texts: str) -> list[int]:
    """Ids of the tokens with one of these space-separated texts."""
    ids = (find(text.encode()) for text in texts.split())
    return [token for token in ids if token >= 0]


def first_walked(texts: Sequence[bytes], ids: Sequence[int]) -> int:
    """The one of several ids that llama.cpp comes to first, -1 of none."""
    if len(ids) < 2:
        return ids[0] if ids else -1
    candidates = np.asarray(ids)  # [n_candidates]
    walked = map_order(texts)  # [n_tokens]
    return int(walked[np.isin(walked, candidates)][0])


def read_ids(keys: Keys, defaults: Mapping[str, int], n_tokens: int, warn: Warn) -> dict[str, int]:
    """Special ids by name, from the tokenizer's defaults and the file's keys; -1 is none.

    An id outside the vocabulary is warned about and ignored, as in llama.cpp.
    """
    ids = {name: defaults.get(name, -1) for name in SPECIAL_NAMES}
    for name, names in KEYS.items():
        for key in names:
            if ids[name] >= n_tokens:
                warn(f"default special token {key!r} = {ids[name]} out of vocab range, disabling")
                ids[name] = -1
            token = keys.uint(key)
            if token is None:
                continue
            if not 0 <= token < n_tokens:
                warn(f"bad special token: {key!r} = {token}, using default id {ids[name]}")
            else:
                ids[name] = token
    return ids


def make_control(token: int, text: bytes, attrs: np.ndarray, warn: Warn) -> None:
    """Give a token that must be a control token that attribute, with a warning if it lacks it."""
    if not attrs[token] & TokenAttr.CONTROL:
        warn(
            f"control-looking token {token} {text.decode('utf-8', 'replace')!r} was not "
            "control-type; this is probably a bug in the model. Its type is overridden"
        )
        attrs[token] |= TokenAttr.CONTROL


def find_by_text(
    ids: dict[str, int], texts: Sequence[bytes], find: Find, attrs: np.ndarray, warn: Warn
) -> list[int]:
    """Fill in, in `ids`, the special tokens that only their text tells.

    Returns
    -------
    list of int
        Candidates for ``eot`` where there are several. All of them end a generation and become
        control tokens in any case, so which one it is may be found when somebody asks: that takes
        a while.
    """
    several: list[int] = []
    for name, names in BY_TEXT.items():
        if ids[name] >= 0:
            continue
        candidates = found(find, names)
        if name == "eot" and len(candidates) > 1:
            several = candidates
            continue
        ids[name] = first_walked(texts, candidates)
        if ids[name] >= 0:
            make_control(ids[name], texts[ids[name]], attrs, warn)
    return several


def mark_unused(texts: Sequence[bytes], attrs: np.ndarray) -> None:
    """Mark control tokens that have "unused" in their text."""
    for token in np.flatnonzero(attrs & TokenAttr.CONTROL).tolist():
        if b"unused" in texts[token].split(b"\0")[0]:
            attrs[token] |= TokenAttr.UNUSED


def end_of_generation(
    ids: Mapping[str, int],
    texts: Sequence[bytes],
    find: Find,
    attrs: np.ndarray,
    warn: Warn,
) -> set[int]:
    """Ids that end a generation.

    Parameters
    ----------
    ids : mapping of str to int
        Special ids by name.
    texts : sequence of bytes
        Text of each token.
    find : callable
        Id of a text, -1 if it is no token.
    attrs : int32[n_tokens]
        Attributes; changed where llama.cpp overrides a token's type.
    warn : callable
        Gets what a user should know.
    """
    eog = {ids[name] for name in ("fim_pad", "fim_rep", "fim_sep")} - {-1}
    for token in found(find, EOG_TEXTS):
        eog.add(token)
        make_control(token, texts[token], attrs, warn)
    for token in found(find, SHOWN_TEXTS):
        attrs[token] = TokenAttr.USER_DEFINED
    for name in ("eos", "eot", "eom"):
        token = ids[name]
        if token >= 0 and token not in eog:
            eog.add(token)
            warn(
                f"{name.upper()} token {token} {texts[token].decode('utf-8', 'replace')!r} is not "
                "known to end a generation by its text; the tokenizer's configuration may be wrong"
            )

    # Where a vocabulary has these texts, another of them is an ordinary token after all.
    here = {texts[token] for token in eog}
    calls = here & {b"<|call|>", b"<|calls|>"}
    if b"<|end|>" in here and calls and here & {b"<|return|>", b"<|flush|>"}:
        end = find(b"<|end|>")
        eog.discard(end)
        attrs[end] = TokenAttr.USER_DEFINED
    if b"</s>" in here and here & {b"<|tool_response>", b"<|plamo:eos|>"}:
        closing = find(b"</s>")
        eog.discard(closing)
        attrs[closing] = TokenAttr.NORMAL
    return eog
