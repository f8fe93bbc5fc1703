"""Damaged files: a vocabulary is read and works, or there is an error that explains itself."""

from __future__ import annotations

import random
import warnings

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmviz.errors import LlmvizError
from llmviz.events import drain
from llmviz.gguf import open_gguf
from llmviz.vocab import Vocab

from .files import CONTROL, DATA, NORMAL, keys_of, raw_of, vocab
from .kinds import charsmap, dna_keys, plamo2_keys, rwkv_keys, ugm_keys, whitespace_keys

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "▁a", "▁b", "b", "c", "▁é"]
MAP = charsmap({"A": "a", "\n": " "})
MADE = {
    "wpm": keys_of(
        "bert", WORDS, [CONTROL] * 4 + [NORMAL] * 5, unknown_token_id=1, bos_token_id=2,
        seperator_token_id=3,
    ),
    "plamo2": plamo2_keys(random.Random(1)),
    "rwkv": rwkv_keys(random.Random(2)),
    "ugm": ugm_keys(random.Random(3), precompiled_charsmap=("arr", 0, MAP)),
    "dna": dna_keys(random.Random(4)),
    "whitespace": whitespace_keys(),
}  # fmt: skip
FILES = [(DATA / f"{name}.gguf").read_bytes() for name in ("bpe_bos_eos", "spm_default")]
FILES += [raw_of(keys) for keys in MADE.values()]


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


@given(st.sampled_from(sorted(MADE)), st.one_of(st.binary(max_size=60), st.text(max_size=40)))
@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_text(vocabs, kind, text):
    """Tokens, or an error that explains itself; the steps find the same; every id has a piece."""
    v = vocabs[kind]
    try:
        ids = v.tokenize(text, add_special=False)
    except LlmvizError:
        return
    assert drain(v.tokenize_steps(text, add_special=False)) == ids
    assert all(isinstance(v.token_to_piece(token, special=True), bytes) for token in ids)


@pytest.fixture(scope="module")
def vocabs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kinds")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {kind: vocab(folder, keys) for kind, keys in MADE.items()}
