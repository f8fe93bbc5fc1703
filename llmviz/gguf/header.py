"""What the header walk collects; `GGUF` hands it on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from llmviz.gguf import constants as c
from llmviz.gguf.constants import ValueType
from llmviz.gguf.fields import Field, TensorInfo

__all__ = ["Header"]


@dataclass(slots=True)
class Header:
    """Version, alignment, key-values, tensor infos and fields of one file."""

    version: int = 0
    alignment: int = c.DEFAULT_ALIGNMENT
    data_offset: int = 0
    kv: dict[str, Any] = field(default_factory=dict)
    kv_types: dict[str, ValueType] = field(default_factory=dict)
    arr_types: dict[str, ValueType | None] = field(default_factory=dict)
    tensor_infos: dict[str, TensorInfo] = field(default_factory=dict)
    fields: list[Field] = field(default_factory=list)
