"""The error family: one base, messages that say what and where."""

from __future__ import annotations

import pytest

from llmviz import errors
from llmviz.errors import BatchError, DecodeError, GGUFError, LlmvizError, UnsupportedError


@pytest.mark.parametrize("name", errors.__all__)
def test_all_are_llmviz_errors(name: str) -> None:
    assert issubclass(getattr(errors, name), LlmvizError)
    assert issubclass(getattr(errors, name), Exception)


def test_where_in_a_file() -> None:
    error = GGUFError("is damaged", offset=24, field="n_kv", path="a.gguf")
    assert str(error) == "is damaged (field 'n_kv' at byte offset 24 in a.gguf)"
    assert (error.offset, error.field, error.path) == (24, "n_kv", "a.gguf")
    assert str(GGUFError("is damaged")) == "is damaged"
    assert str(GGUFError("is damaged", offset=0)) == "is damaged (at byte offset 0)"


def test_what_is_supported_instead() -> None:
    error = UnsupportedError("op", "FFT", supported=(n for n in ("ADD", "MUL")), hint="Wait")
    assert str(error) == "unsupported op: 'FFT'; supported: ADD, MUL. Wait"
    assert (error.what, error.name, error.supported) == ("op", "FFT", ("ADD", "MUL"))
    assert str(UnsupportedError("op", "FFT")) == "unsupported op: 'FFT'"


def test_codes_are_llama_decodes() -> None:
    assert BatchError("bad").code == DecodeError("bad").code == -1
    assert DecodeError("failed", -3).code == -3
    assert issubclass(BatchError, DecodeError)
