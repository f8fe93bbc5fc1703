"""Damaged files: a vocabulary is read and works, or there is an error that explains itself."""

from __future__ import annotations

import warnings

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmviz.errors import LlmvizError
from llmviz.events import drain
from llmviz.gguf import open_gguf
from llmviz.vocab import Vocab

from .files import DATA

FILES = [(DATA / f"{name}.gguf").read_bytes() for name in ("bpe_bos_eos", "spm_default")]


@given(
    st.sampled_from(FILES),
    st.lists(st.tuples(st.integers(0, 7000), st.integers(0, 255)), min_size=1, max_size=12),
)
@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_flipped_bytes(tmp_path, raw, flips):
    damaged = bytearray(raw)
    for place, value in flips:
        damaged[place % len(raw)] = value
    path = tmp_path / "x.gguf"
    path.write_bytes(damaged)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with open_gguf(str(path)) as gguf:
                v = Vocab.from_gguf(gguf)
        except LlmvizError:
            return
        for text in ("hello  abc aaaa\n123 é", "<s>a</s><|b|>", b"\xff\0"):
            try:
                ids = v.tokenize(text, parse_special=True)
                assert drain(v.tokenize_steps(text, parse_special=True)) == ids
                v.detokenize(ids, unparse_special=True)
            except LlmvizError:
                continue
        assert v.eot >= -1 and v.nl >= -1


@pytest.mark.parametrize("raw", FILES)
def test_undamaged(tmp_path, raw):
    path = tmp_path / "x.gguf"
    path.write_bytes(raw)
    with warnings.catch_warnings(), open_gguf(str(path)) as gguf:
        warnings.simplefilter("ignore")
        assert Vocab.from_gguf(gguf).tokenize("abc")
