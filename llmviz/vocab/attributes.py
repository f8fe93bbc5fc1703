"""What kind of token each one is. ↔ include/llama.h (llama_token_type, llama_token_attr)"""

from __future__ import annotations

from enum import IntFlag

import numpy as np

__all__ = ["TokenAttr", "attrs_of_types"]


class TokenAttr(IntFlag):
    """Bits of a token's attributes, numbered as llama.h's ``LLAMA_TOKEN_ATTR_*``."""

    UNDEFINED = 0
    UNKNOWN = 1 << 0
    UNUSED = 1 << 1
    NORMAL = 1 << 2
    CONTROL = 1 << 3
    USER_DEFINED = 1 << 4
    BYTE = 1 << 5
    NORMALIZED = 1 << 6
    LSTRIP = 1 << 7
    RSTRIP = 1 << 8
    SINGLE_WORD = 1 << 9


# Index: a file's token type (llama.h's ``LLAMA_TOKEN_TYPE_*``).
_ATTR_OF_TYPE = np.array(
    [
        TokenAttr.UNDEFINED,
        TokenAttr.NORMAL,
        TokenAttr.UNKNOWN,
        TokenAttr.CONTROL,
        TokenAttr.USER_DEFINED,
        TokenAttr.UNUSED,
        TokenAttr.BYTE,
    ],
    np.int32,
)


def attrs_of_types(types: np.ndarray | None, n_tokens: int) -> np.ndarray:
    """Attributes of all tokens.

    Parameters
    ----------
    types : int32[>= n_tokens] or None
        ``tokenizer.ggml.token_type``; without it every token is normal.
    n_tokens : int
        Number of tokens.

    Returns
    -------
    int32[n_tokens]
        Writable.
    """
    if types is None:
        return np.full(n_tokens, TokenAttr.NORMAL, np.int32)
    types = np.asarray(types)[:n_tokens]  # [n_tokens]
    known = (types >= 0) & (types < len(_ATTR_OF_TYPE))
    return _ATTR_OF_TYPE[np.where(known, types, 0)]  # [n_tokens]
