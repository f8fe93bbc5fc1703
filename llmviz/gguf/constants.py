"""The numbers and names of the GGUF format. ↔ ggml/include/gguf.h, llama.h (llama_ftype)

A GGUF file is: magic, version, two counts, key-value pairs, tensor infos, padding, tensor data.
Does not read anything: that is `walk.py`.
"""

from __future__ import annotations

import struct
from enum import IntEnum

import numpy as np

from llmviz.ggml.types import GGMLType

MAGIC = b"GGUF"
VERSION = 3
"""Newest version understood; 2 is read too (the layout is the same)."""

DEFAULT_ALIGNMENT = 32
MAX_STRING_LENGTH = 1 << 30
MAX_ARRAY_ELEMENTS = 1 << 30
MAX_DIMS = 4
MAX_NAME = 64
"""A tensor name has fewer bytes than this (ggml keeps it in a fixed buffer with a closing NUL)."""

INT64_MAX = (1 << 63) - 1
SIZE_MAX = (1 << 64) - 1

MIN_KV_BYTES = 8 + 1 + 4 + 1
"""Least a key-value pair takes: key length, a one-letter key, the type, a one-byte value."""
MIN_TENSOR_INFO_BYTES = 8 + 4 + 4 + 8
"""Least a tensor info takes: name length, number of dimensions, type, offset."""

KEY_ALIGNMENT = "general.alignment"
KEY_FILE_TYPE = "general.file_type"
KEY_SPLIT_NO = "split.no"
KEY_SPLIT_COUNT = "split.count"
KEY_SPLIT_TENSORS = "split.tensors.count"


class ValueType(IntEnum):
    """Type of a key's value, or of an array's elements."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    FLOAT32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    UINT64 = 10
    INT64 = 11
    FLOAT64 = 12

    @property
    def label(self) -> str:
        """llama.cpp's short name: ``"u32"``, ``"str"``, ``"arr"``."""
        return _LABELS[self]


_LABELS = dict(
    zip(
        ValueType,
        ("u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "str", "arr", "u64", "i64", "f64"),
        strict=True,
    )
)

SCALARS: dict[ValueType, struct.Struct] = {
    ValueType.UINT8: struct.Struct("<B"),
    ValueType.INT8: struct.Struct("<b"),
    ValueType.UINT16: struct.Struct("<H"),
    ValueType.INT16: struct.Struct("<h"),
    ValueType.UINT32: struct.Struct("<I"),
    ValueType.INT32: struct.Struct("<i"),
    ValueType.FLOAT32: struct.Struct("<f"),
    ValueType.BOOL: struct.Struct("<b"),  # any non-zero byte is true
    ValueType.UINT64: struct.Struct("<Q"),
    ValueType.INT64: struct.Struct("<q"),
    ValueType.FLOAT64: struct.Struct("<d"),
}

ARRAY_DTYPES: dict[ValueType, np.dtype] = {t: np.dtype(s.format) for t, s in SCALARS.items()}

REMOVED_TYPES: dict[int, str] = {
    4: "Q4_2, an early format",
    5: "Q4_3, an early format",
    31: "Q4_0_4_4; use Q4_0, which is repacked at run time",
    32: "Q4_0_4_8; use Q4_0, which is repacked at run time",
    33: "Q4_0_8_8; use Q4_0, which is repacked at run time",
    36: "IQ4_NL_4_4; use IQ4_NL, which is repacked at run time",
    37: "IQ4_NL_4_8; use IQ4_NL, which is repacked at run time",
    38: "IQ4_NL_8_8; use IQ4_NL, which is repacked at run time",
}
"""Tensor type ids that ggml once had."""

FTYPE_GUESSED = 1024
"""Bit set in a file type that was counted from the tensors, not read from the file."""

FTYPE_NAMES: dict[int, str] = {
    0: "all F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    7: "Q8_0",
    8: "Q5_0",
    9: "Q5_1",
    10: "Q2_K - Medium",
    11: "Q3_K - Small",
    12: "Q3_K - Medium",
    13: "Q3_K - Large",
    14: "Q4_K - Small",
    15: "Q4_K - Medium",
    16: "Q5_K - Small",
    17: "Q5_K - Medium",
    18: "Q6_K",
    19: "IQ2_XXS - 2.0625 bpw",
    20: "IQ2_XS - 2.3125 bpw",
    21: "Q2_K - Small",
    22: "IQ3_XS - 3.3 bpw",
    23: "IQ3_XXS - 3.0625 bpw",
    24: "IQ1_S - 1.5625 bpw",
    25: "IQ4_NL - 4.5 bpw",
    26: "IQ3_S - 3.4375 bpw",
    27: "IQ3_S mix - 3.66 bpw",
    28: "IQ2_S - 2.5 bpw",
    29: "IQ2_M - 2.7 bpw",
    30: "IQ4_XS - 4.25 bpw",
    31: "IQ1_M - 1.75 bpw",
    32: "BF16",
    36: "TQ1_0 - 1.69 bpw ternary",
    37: "TQ2_0 - 2.06 bpw ternary",
    38: "MXFP4 MoE",
    39: "NVFP4",
    40: "Q1_0",
    41: "Q2_0",
}

FTYPE_OF_TYPE: dict[GGMLType, int] = {
    GGMLType.F32: 0,
    GGMLType.F16: 1,
    GGMLType.BF16: 32,
    GGMLType.Q4_0: 2,
    GGMLType.Q4_1: 3,
    GGMLType.Q5_0: 8,
    GGMLType.Q5_1: 9,
    GGMLType.Q8_0: 7,
    GGMLType.Q2_K: 10,
    GGMLType.Q3_K: 12,
    GGMLType.Q4_K: 15,
    GGMLType.Q5_K: 17,
    GGMLType.Q6_K: 18,
    GGMLType.TQ1_0: 36,
    GGMLType.TQ2_0: 37,
    GGMLType.IQ2_XXS: 19,
    GGMLType.IQ2_XS: 20,
    GGMLType.IQ2_S: 28,
    GGMLType.IQ3_XXS: 23,
    GGMLType.IQ1_S: 24,
    GGMLType.IQ1_M: 31,
    GGMLType.IQ4_NL: 25,
    GGMLType.IQ4_XS: 30,
    GGMLType.IQ3_S: 26,
    GGMLType.NVFP4: 39,
    GGMLType.Q1_0: 40,
    GGMLType.Q2_0: 41,
}
"""The file type that llama.cpp guesses where most tensors are of this type (others: all F32)."""

KIND_MEANINGS: dict[str, str] = {
    "magic": "the four letters that say this is a GGUF file",
    "version": "version of the GGUF format; 3 is the current one",
    "n_tensors": "how many tensor infos follow the key-value pairs",
    "n_kv": "how many key-value pairs follow",
    "key_length": "length in bytes of the key that follows",
    "key": "name of a key-value pair",
    "value_type": "type of the value that follows",
    "array_type": "type of each element of the array that follows",
    "array_length": "number of elements of the array that follows",
    "value_length": "length in bytes of the string that follows",
    "value": "the value of the key",
    "tensor_name_length": "length in bytes of the tensor name that follows",
    "tensor_name": "name of a tensor",
    "n_dims": "number of dimensions of the tensor, at most 4",
    "ne": "number of elements per dimension, the fastest-running first (reverse of a numpy shape)",
    "tensor_type": "how the tensor's numbers are stored",
    "tensor_offset": "where the tensor's bytes start, counted from the start of the data section",
    "padding": "unused bytes, so that the data section starts at a multiple of the alignment",
}
"""What each kind of header field is for."""

KEY_MEANINGS: dict[str, str] = {
    "general.architecture": "which graph the tensors belong to: picks the file in llmviz/models",
    "general.alignment": "every tensor's data starts at a multiple of this many bytes",
    "general.file_type": "the quantization mix the file was written with",
    "general.quantization_version": "version of the block layouts of the quantized types",
    "general.name": "name of the model",
    "general.size_label": "the model's size in words, such as 135M",
    "block_count": "number of transformer layers",
    "context_length": "number of tokens the model was trained to see at once",
    "embedding_length": "width of the residual stream: numbers per token",
    "feed_forward_length": "width of the feed-forward network's hidden layer",
    "vocab_size": "number of tokens in the vocabulary",
    "attention.head_count": "number of query heads per layer",
    "attention.head_count_kv": "number of key and value heads; fewer than query heads: they share",
    "attention.key_length": "numbers per key of one head",
    "attention.value_length": "numbers per value of one head",
    "attention.layer_norm_rms_epsilon": "added under the root in RMSNorm, against division by zero",
    "attention.layer_norm_epsilon": "added under the root in LayerNorm, against division by zero",
    "attention.sliding_window": "how many tokens back the windowed layers can see",
    "rope.dimension_count": "how many numbers of a head are rotated by position (RoPE)",
    "rope.freq_base": "base of RoPE's angles; larger turns slower",
    "rope.scaling.type": "how RoPE is stretched beyond the trained context",
    "rope.scaling.factor": "how far RoPE is stretched beyond the trained context",
    "expert_count": "number of expert feed-forward networks per layer",
    "expert_used_count": "number of experts each token goes through",
    "split.no": "index of this part of a split model, from 0",
    "split.count": "number of parts of the split model",
    "split.tensors.count": "number of tensors in all parts together",
    "tokenizer.ggml.model": "family of the tokenizer: llama (SPM), gpt2 (BPE), bert (WPM) ...",
    "tokenizer.ggml.pre": "name of the pre-tokenizer, which cuts text into words before merging",
    "tokenizer.ggml.tokens": "the text of every token, by id",
    "tokenizer.ggml.scores": "score of every token: SPM merges the best-scored pair first",
    "tokenizer.ggml.token_type": "kind of every token: 1 normal, 2 unknown, 3 control, 4 user, "
    "5 unused, 6 byte",
    "tokenizer.ggml.merges": "BPE's merge rules, the most important first",
    "tokenizer.ggml.bos_token_id": "id of the token that begins a text",
    "tokenizer.ggml.eos_token_id": "id of the token that ends a text",
    "tokenizer.ggml.unknown_token_id": "id of the token for what cannot be spelled",
    "tokenizer.ggml.padding_token_id": "id of the token that fills up unused places",
    "tokenizer.ggml.add_bos_token": "whether tokenizing puts the begin token in front",
    "tokenizer.ggml.add_eos_token": "whether tokenizing puts the end token behind",
    "tokenizer.ggml.add_space_prefix": "whether tokenizing puts a space in front of the text",
    "tokenizer.chat_template": "Jinja template that lays out a conversation as one text",
}
"""What well-known keys mean; architecture keys stand without their ``llama.`` prefix."""


def key_meaning(key: str) -> str | None:
    """What a well-known key means, or None: ``key_meaning("llama.block_count")``."""
    return KEY_MEANINGS.get(key) or KEY_MEANINGS.get(key.partition(".")[2])
