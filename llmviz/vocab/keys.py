"""Reading the vocabulary's keys with llama.cpp's checks. ↔ src/llama-model-loader.cpp (get_key)"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from llmviz.errors import GGUFError
from llmviz.gguf.constants import ValueType

__all__ = ["HasKeys", "Keys", "c_strings"]


class HasKeys(Protocol):
    """The part of `llmviz.gguf.GGUF` that a vocabulary needs."""

    path: str

    @property
    def kv(self) -> Mapping[str, Any]:
        """Values by key."""
        ...

    @property
    def kv_types(self) -> Mapping[str, ValueType]:
        """Type of each key's value."""
        ...

    @property
    def arr_types(self) -> Mapping[str, ValueType | None]:
        """Element type of each key that holds an array."""
        ...


class Keys:
    """Typed access to a file's key-values: the wrong type is an error, a missing key is None."""

    def __init__(self, gguf: HasKeys) -> None:
        self.gguf = gguf

    def error(self, message: str, key: str) -> GGUFError:
        """The error for something wrong with `key`."""
        return GGUFError(message, field=key, path=getattr(self.gguf, "path", None))

    def _scalar(self, key: str, kind: ValueType) -> Any:
        if key not in self.gguf.kv:
            return None
        found = self.gguf.kv_types[key]
        if found != kind:
            raise self.error(
                f"key {key} has wrong type {found.label} but expected type {kind.label}", key
            )
        return self.gguf.kv[key]

    def string(self, key: str) -> str | None:
        """Value of a string key."""
        return self._scalar(key, ValueType.STRING)

    def boolean(self, key: str) -> bool | None:
        """Value of a bool key."""
        return self._scalar(key, ValueType.BOOL)

    def uint(self, key: str) -> int | None:
        """Value of a u32 key."""
        return self._scalar(key, ValueType.UINT32)

    def require(self, value: Any, key: str, why: str) -> Any:
        """`value`, or an error that `key` is missing and `why` it is needed."""
        if value is None:
            raise self.error(f"key not found in model: {key}. {why}", key)
        return value

    def array(self, key: str, *kinds: ValueType) -> Any:
        """Value of an array key whose elements are of one of `kinds`."""
        if key not in self.gguf.kv:
            return None
        found = self.gguf.arr_types.get(key)
        if found not in kinds:
            is_array = self.gguf.kv_types[key] == ValueType.ARRAY
            label = (
                f"arr[{found.label}]"
                if is_array and found is not None
                else (self.gguf.kv_types[key].label)
            )
            wanted = " or ".join(f"arr[{kind.label}]" for kind in kinds)
            raise self.error(f"invalid gguf type for {key}: {label}, expected {wanted}", key)
        return self.gguf.kv[key]

    def per_token(self, key: str, n_tokens: int, *kinds: ValueType) -> Any:
        """Value of an array key with at least one element for each token."""
        values = self.array(key, *kinds)
        if values is not None and len(values) < n_tokens:
            raise self.error(
                f"{key} has {len(values)} elements for {n_tokens} tokens; "
                "every token needs one. Convert the model again",
                key,
            )
        return values


def c_strings(raws: list[bytes]) -> list[bytes]:
    """Strings as llama.cpp reads an array of them: each ends before its first NUL byte."""
    if b"\0" not in b"".join(raws):
        return raws
    return [raw.partition(b"\0")[0] for raw in raws]
