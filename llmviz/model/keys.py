"""Typed access to a file's key-values, with overrides and a note of where each answer came from.

↔ src/llama-model-loader.cpp (get_key, get_arr, get_key_or_arr)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from llmviz.errors import GGUFError, LlmvizError
from llmviz.gguf import GGUF
from llmviz.gguf.constants import ValueType

__all__ = ["Keys", "Origins", "OverriddenGGUF"]

_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "u32": (int,),
    "i32": (int,),
    "f32": (float, int),
    "bool": (bool,),
    "str": (str,),
}


class OverriddenGGUF:
    """A GGUF whose key-values are covered by the user's overrides; all else is the file's own.

    Parameters
    ----------
    gguf : GGUF
    overrides : mapping of str to int, float, bool or str
    """

    def __init__(self, gguf: GGUF, overrides: Mapping[str, Any]) -> None:
        for key, value in overrides.items():
            if not isinstance(value, (bool, int, float, str)):
                raise LlmvizError(
                    f"kv_overrides[{key!r}] is a {type(value).__name__}; give an int, float, bool "
                    "or str"
                )
            if key in gguf.arr_types and gguf.arr_types[key] is not None:
                raise LlmvizError(f"kv_overrides[{key!r}]: the file holds an array there")
        self._gguf = gguf
        self.overrides = dict(overrides)
        self.kv = {**gguf.kv, **overrides}
        self.kv_types = {
            **gguf.kv_types,
            **{key: _type_of(value, gguf.kv_types.get(key)) for key, value in overrides.items()},
        }

    def __getattr__(self, name: str) -> Any:
        return getattr(self._gguf, name)


def _type_of(value: bool | int | float | str, in_file: ValueType | None) -> ValueType:
    """The file's type where the value is of that kind; else what the value would be stored as."""
    if isinstance(value, bool):
        return ValueType.BOOL
    if isinstance(value, str):
        return ValueType.STRING
    floats = (ValueType.FLOAT32, ValueType.FLOAT64)
    if isinstance(value, float):
        return in_file if in_file in floats else ValueType.FLOAT32
    is_number = in_file not in (None, ValueType.BOOL, ValueType.STRING, ValueType.ARRAY)
    return in_file if in_file is not None and is_number else ValueType.UINT32


class Origins(dict[str, str]):
    """``attribute -> where its value came from``.

    Attributes
    ----------
    missing : dict of str to str
        ``attribute -> key`` that was looked for and is not in the file.
    """

    def __init__(self) -> None:
        super().__init__()
        self.missing: dict[str, str] = {}


class Keys:
    """Reads keys for one architecture.

    Parameters
    ----------
    gguf : GGUF or OverriddenGGUF
    arch : str
        Replaces ``{arch}`` in key names.

    Attributes
    ----------
    origin : Origins
        ``attribute -> key`` it was read from, ``"default"`` or ``"override: key"``.
    """

    def __init__(self, gguf: GGUF | OverriddenGGUF, arch: str) -> None:
        self.gguf = gguf
        self.arch = arch
        self.overrides: Mapping[str, Any] = getattr(gguf, "overrides", {})
        self.origin = Origins()

    def name(self, key: str) -> str:
        """The full key name."""
        return key.format(arch=self.arch)

    def _scalar(self, key: str, kind: str) -> Any:
        value = self.gguf.kv[key]
        if key in self.overrides:
            if not isinstance(value, _PYTHON_TYPES[kind]) or (
                kind != "bool" and isinstance(value, bool)
            ):
                raise LlmvizError(
                    f"kv_overrides[{key!r}] is a {type(value).__name__}, the key is of type {kind}"
                )
            return value
        have = self.gguf.kv_types[key].label
        if have != kind:
            raise GGUFError(
                f"key {key} has wrong type {have} but expected type {kind}",
                field=key,
                path=self.gguf.path,
            )
        return value

    def get(self, attr: str, key: str, kind: str, default: Any = ..., also: str = "") -> Any:
        """One value.

        Parameters
        ----------
        attr : str
            The hyperparameter's name, for `origin`.
        key : str
            Key, may hold ``{arch}``.
        kind : str
            ``"u32"``, ``"i32"``, ``"f32"``, ``"bool"``, ``"str"``: exactly this GGUF type.
        default : object
            Returned where the key is missing; without one a missing key is an error.
        also : str
            An older name of the key, tried second.

        Raises
        ------
        GGUFError
            Missing without a default, or of another type.
        """
        for candidate in (key, also):
            name = self.name(candidate)
            if candidate and name in self.gguf.kv:
                value = self._scalar(name, kind)
                self.origin[attr] = f"override: {name}" if name in self.overrides else name
                return value
        if default is ...:
            raise GGUFError(
                f"key not found in model: {self.name(key)}",
                field=self.name(key),
                path=self.gguf.path,
            )
        self.origin[attr] = "default"
        self.origin.missing[attr] = self.name(key)
        return default

    def get_or_arr(
        self, attr: str, key: str, n: int, default: np.ndarray | int = 0, kind: str = "u32"
    ) -> np.ndarray:
        """One value per layer: an array of length `n`, or a scalar repeated.

        Returns
        -------
        ndarray, [n]
            int64 for integer kinds, float32 for ``"f32"``.

        Raises
        ------
        GGUFError
            An array of another length or element type.
        """
        dtype = np.float32 if kind == "f32" else np.int64
        name = self.name(key)
        if name not in self.gguf.kv:
            self.origin[attr] = "default"
            self.origin.missing[attr] = name
            return np.broadcast_to(np.asarray(default, dtype), (n,)).copy()
        if self.gguf.arr_types.get(name) is None or name in self.overrides:
            value = self._scalar(name, kind)
            self.origin[attr] = f"override: {name}" if name in self.overrides else name
            return np.full(n, value, dtype)
        array = self.gguf.kv[name]
        if len(array) != n:
            raise GGUFError(
                f"key {name} has wrong array length; expected {n}, got {len(array)}",
                field=name,
                path=self.gguf.path,
            )
        kind_of = self.gguf.arr_types[name]
        element = kind_of.label if kind_of is not None else "none"
        allowed = ("f32",) if kind == "f32" else ("u32", "i32")
        if element not in allowed:
            raise GGUFError(
                f"key {name} is an array of {element}; expected {' or '.join(allowed)}",
                field=name,
                path=self.gguf.path,
            )
        self.origin[attr] = name
        return np.asarray(array).astype(dtype)

    def get_arr(
        self, attr: str, key: str, n_max: int, kinds: tuple[str, ...] = ("bool", "u32", "i32")
    ) -> np.ndarray | None:
        """An array of whole numbers, or None where the file has none.

        Returns
        -------
        ndarray of int64 or None

        Raises
        ------
        GGUFError
            Longer than `n_max`, or of another element type.
        """
        name = self.name(key)
        kind = self.gguf.arr_types.get(name)
        if kind is None:
            return None
        if kind.label not in kinds:
            raise GGUFError(
                f"key {name} is an array of {kind.label}; expected {' or '.join(kinds)}",
                field=name,
                path=self.gguf.path,
            )
        array = self.gguf.kv[name]
        if len(array) > n_max:
            raise GGUFError(
                f"key {name} is an array of {len(array)}; at most {n_max} are possible",
                field=name,
                path=self.gguf.path,
            )
        self.origin[attr] = name
        return np.asarray(array).astype(np.int64)

    def require(self, key: str) -> None:
        """Refuse a file without this key.

        Raises
        ------
        GGUFError
            It is missing.
        """
        name = self.name(key)
        if name not in self.gguf.kv:
            raise GGUFError(f"key not found in model: {name}", field=name, path=self.gguf.path)

    def rms_eps(self) -> float:
        """The epsilon of RMS norms, which a file must have."""
        return float(self.get("f_norm_rms_eps", "{arch}.attention.layer_norm_rms_epsilon", "f32"))

    def norm_eps(self) -> float:
        """The epsilon of layer norms, which a file must have."""
        return float(self.get("f_norm_eps", "{arch}.attention.layer_norm_epsilon", "f32"))
