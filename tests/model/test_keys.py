"""Typed access to key-values: exact types, defaults, where an answer came from, overrides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from llmviz.errors import GGUFError, LlmvizError
from llmviz.gguf.constants import ValueType as V
from llmviz.model.keys import Keys, OverriddenGGUF


class File:
    """As much of a GGUF as `Keys` asks for."""

    def __init__(self, **entries: tuple[V, Any] | tuple[V, Any, V]) -> None:
        named = {k.replace("__", "."): e for k, e in entries.items()}
        self.path = "some.gguf"
        self.kv = {k: e[1] for k, e in named.items()}
        self.kv_types = {k: e[0] for k, e in named.items()}
        self.arr_types = {k: e[2] if len(e) > 2 else None for k, e in named.items()}


def keys(file: Any, arch: str = "toy") -> Keys:
    return Keys(file, arch)


FILE = File(
    toy__n=(V.UINT32, 7),
    toy__big=(V.UINT64, 7),
    toy__signed=(V.INT32, -7),
    toy__x=(V.FLOAT32, 0.5),
    toy__yes=(V.BOOL, True),
    toy__name=(V.STRING, "abc"),
    toy__list=(V.ARRAY, np.array([1, 2, 3], np.uint32), V.UINT32),
    toy__reals=(V.ARRAY, np.array([1.5, 2.5], np.float32), V.FLOAT32),
    toy__old=(V.FLOAT32, 4.0),
    plain=(V.UINT32, 1),
)


@pytest.mark.parametrize(
    ("key", "kind", "value"),
    [
        ("{arch}.n", "u32", 7),
        ("toy.n", "u32", 7),
        ("{arch}.signed", "i32", -7),
        ("{arch}.x", "f32", 0.5),
        ("{arch}.yes", "bool", True),
        ("{arch}.name", "str", "abc"),
        ("plain", "u32", 1),
    ],
)
def test_a_value_of_its_type(key: str, kind: str, value: object) -> None:
    k = keys(FILE)
    assert k.get("attr", key, kind) == value
    assert k.origin["attr"] == key.format(arch="toy")


@pytest.mark.parametrize(
    ("key", "kind", "have"),
    [
        ("toy.big", "u32", "u64"),
        ("toy.signed", "u32", "i32"),
        ("toy.n", "i32", "u32"),
        ("toy.n", "f32", "u32"),
        ("toy.x", "u32", "f32"),
        ("toy.n", "bool", "u32"),
        ("toy.yes", "u32", "bool"),
        ("toy.n", "str", "u32"),
        ("toy.list", "u32", "arr"),
    ],
)
def test_another_type_is_an_error(key: str, kind: str, have: str) -> None:
    """Not converted, as in llama.cpp: a file with the wrong type was written by mistake."""
    message = f"key {key} has wrong type {have} but expected type {kind}"
    with pytest.raises(GGUFError, match=message) as caught:
        keys(FILE).get("attr", key, kind, 0)
    assert (caught.value.field, caught.value.path) == (key, "some.gguf")


def test_missing() -> None:
    k = keys(FILE)
    assert k.get("attr", "{arch}.gone", "u32", 12) == 12
    assert k.origin["attr"] == "default"
    with pytest.raises(GGUFError, match=r"key not found in model: toy\.gone") as caught:
        k.get("attr", "{arch}.gone", "u32")
    assert caught.value.field == "toy.gone"


def test_an_older_name_is_tried_second() -> None:
    k = keys(FILE)
    assert k.get("a", "{arch}.gone", "f32", also="{arch}.old") == 4.0
    assert k.origin["a"] == "toy.old"
    assert k.get("b", "{arch}.x", "f32", also="{arch}.old") == 0.5
    assert k.get("c", "{arch}.gone", "f32", 9.0, also="{arch}.gone_too") == 9.0


def test_one_value_for_all_layers_or_one_each() -> None:
    k = keys(FILE)
    assert k.get_or_arr("a", "{arch}.n", 3).tolist() == [7, 7, 7]
    assert k.get_or_arr("b", "{arch}.list", 3).tolist() == [1, 2, 3]
    assert k.get_or_arr("c", "{arch}.gone", 3, 5).tolist() == [5, 5, 5]
    assert k.get_or_arr("d", "{arch}.gone", 2, np.array([5, 6])).tolist() == [5, 6]
    reals = k.get_or_arr("e", "{arch}.reals", 2, kind="f32")
    assert (reals.dtype, reals.tolist()) == (np.float32, [1.5, 2.5])
    assert k.origin == {
        "a": "toy.n", "b": "toy.list", "c": "default", "d": "default", "e": "toy.reals"
    }  # fmt: skip


def test_a_default_is_not_shared() -> None:
    default = np.array([5, 6])
    keys(FILE).get_or_arr("a", "{arch}.gone", 2, default)[0] = 99
    assert default.tolist() == [5, 6]


@pytest.mark.parametrize(
    ("key", "n", "kind", "reason"),
    [
        ("toy.list", 2, "u32", "wrong array length; expected 2, got 3"),
        ("toy.list", 4, "u32", "wrong array length; expected 4, got 3"),
        ("toy.reals", 2, "u32", "array of f32; expected u32 or i32"),
        ("toy.list", 3, "f32", "array of u32; expected f32"),
        ("toy.name", 3, "u32", "wrong type str"),
    ],
)
def test_arrays_that_do_not_fit(key: str, n: int, kind: str, reason: str) -> None:
    with pytest.raises(GGUFError, match=reason) as caught:
        keys(FILE).get_or_arr("a", key, n, kind=kind)
    assert caught.value.field == key


def overridden(**values: Any) -> OverriddenGGUF:
    return OverriddenGGUF(FILE, {k.replace("__", "."): v for k, v in values.items()})  # type: ignore[arg-type]


def test_an_override_wins_and_is_remembered() -> None:
    k = keys(overridden(toy__n=8, toy__new="x"))
    assert k.get("a", "{arch}.n", "u32") == 8
    assert k.get("b", "{arch}.new", "str") == "x"
    assert k.get("c", "{arch}.x", "f32") == 0.5
    assert k.get_or_arr("d", "{arch}.n", 2).tolist() == [8, 8]
    assert k.origin == {
        "a": "override: toy.n", "b": "override: toy.new", "c": "toy.x", "d": "override: toy.n"
    }  # fmt: skip


def test_an_override_mends_a_key_of_the_wrong_type() -> None:
    assert keys(overridden(toy__big=9)).get("a", "{arch}.big", "u32") == 9


def test_an_int_may_stand_for_a_float_but_not_for_a_bool() -> None:
    assert keys(overridden(toy__x=2)).get("a", "{arch}.x", "f32") == 2
    with pytest.raises(LlmvizError, match=r"toy\.yes.*int.*bool"):
        keys(overridden(toy__yes=1)).get("a", "{arch}.yes", "bool")
    with pytest.raises(LlmvizError, match=r"toy\.n.*bool.*u32"):
        keys(overridden(toy__n=True)).get("a", "{arch}.n", "u32")


def test_overridden_keys_have_a_type() -> None:
    types = overridden(toy__n=8, toy__x=2.0, a=1, b=0.5, c=True, d="s", toy__name="z").kv_types
    assert types["toy.n"] == V.UINT32
    assert types["toy.x"] == V.FLOAT32
    assert types["toy.name"] == V.STRING
    assert [types[k] for k in "abcd"] == [V.UINT32, V.FLOAT32, V.BOOL, V.STRING]
    assert types["toy.big"] == V.UINT64


def test_the_file_itself_is_left_alone() -> None:
    overridden(toy__n=8)
    assert FILE.kv["toy.n"] == 7
    assert overridden(toy__n=8).path == "some.gguf"


@pytest.mark.parametrize("value", [None, [1], {"a": 1}, b"raw", np.zeros(2)])
def test_only_scalars_can_be_overridden(value: Any) -> None:
    with pytest.raises(LlmvizError, match=r"toy\.n.*give an int, float, bool or str"):
        overridden(toy__n=value)
    with pytest.raises(LlmvizError, match=r"toy\.list.*array"):
        overridden(toy__list=3)
