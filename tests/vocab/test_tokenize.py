"""Ids of texts, and texts of ids, in small vocabularies whose right answers llama.cpp gave."""

from __future__ import annotations

import json
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmviz.events import drain
from llmviz.gguf import open_gguf
from llmviz.vocab import Vocab, VocabWarning

from .files import CONTROL, DATA, bpe_keys, spm_keys, token_ids, vocab

VALUES = json.loads((DATA / "values.json").read_text())
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w", "Ġw o", "a a", "aa aa", "Ã ©"]

pytestmark = pytest.mark.filterwarnings("ignore::llmviz.vocab.VocabWarning")


def stored(name: str) -> Vocab:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", VocabWarning)
        with open_gguf(str(DATA / f"{name}.gguf")) as gguf:
            return Vocab.from_gguf(gguf)


@pytest.mark.parametrize("name", VALUES)
def test_stored_values(name):
    """Ids with each pair of flags, from `tokenize` and from `tokenize_steps`, and the text back."""
    values = VALUES[name]
    v = stored(name)
    assert [v.n_tokens, v.bos, v.eos] == [values["n"], values["bos"], values["eos"]]
    assert [v.add_bos, v.add_eos] == [values["add_bos"], values["add_eos"]]
    for text, plain, special, both, back in values["cases"]:
        for ids, flags in ((plain, (False, False)), (special, (False, True)), (both, (True, True))):
            assert v.tokenize(text, *flags) == ids, text
            assert v.tokenize(text.encode(), *flags) == ids
            assert drain(v.tokenize_steps(text, *flags)) == ids, text
        assert v.detokenize_bytes(plain).hex() == back, text


def test_score_order_and_ties(tmp_path):
    """The best score first; of equal ones the leftmost."""
    words = [("▁", -9.0), ("a", -9.0), ("b", -9.0), ("c", -9.0), ("ab", -1.0), ("bc", -1.0)]
    keys = spm_keys(words, add_space_prefix=False)
    v = vocab(tmp_path, keys)
    assert v.tokenize("abc", False) == token_ids(v, "ab", "c")
    words[-1] = ("bc", -0.5)
    v = vocab(tmp_path, spm_keys(words, add_space_prefix=False))
    assert v.tokenize("abc", False) == token_ids(v, "a", "bc")


def test_rank_order(tmp_path):
    v = vocab(tmp_path, bpe_keys(["b c", "a b"]))
    assert v.tokenize("abc") == token_ids(v, "a", "bc")
    v = vocab(tmp_path, bpe_keys(["a b", "b c", "a b"]))  # of equal lines the first counts
    assert v.tokenize("abc") == token_ids(v, "ab", "c")


def test_merges_are_pairs_not_texts(tmp_path):
    """ "aab" is made of "aa" and "b" only: no other way to it is in the list."""
    v = vocab(tmp_path, bpe_keys(["a b", "aa b", "a a"]))
    assert v.tokenize("aab") == token_ids(v, "a", "ab")


def test_odd_lines_in_the_merges(tmp_path):
    """Lines without a space, with several, and empty ones never match."""
    v = vocab(tmp_path, bpe_keys(["a b"]))
    keys = bpe_keys(["a b"])
    keys["tokenizer.ggml.merges"][2].extend(["", "ab", " a", "a b c", "a ", "a\0 b"])
    assert vocab(tmp_path, keys).tokenize("abc a") == v.tokenize("abc a")


def test_byte_fallback_spm(tmp_path):
    v = vocab(tmp_path, spm_keys([("▁", 0.0), ("a", 0.0)]))
    e, acute = token_ids(v, "<0xC3>", "<0xA9>")
    assert v.tokenize("aé", False) == [*token_ids(v, "▁", "a"), e, acute]
    assert v.tokenize(b"\xff", False) == token_ids(v, "▁", "<0xFF>")
    assert v.detokenize(v.tokenize("aé", False)) == "aé"


def test_byte_fallback_by_the_character(tmp_path):
    """A vocabulary may hold a byte as itself instead of "<0xNN>"."""
    keys = spm_keys([("▁", 0.0), ("a", 0.0)])
    tokens = keys["tokenizer.ggml.tokens"][2]
    tokens[tokens.index("<0x62>")] = "b"
    v = vocab(tmp_path, keys)
    assert v.tokenize("ab", False) == token_ids(v, "▁", "a", "b")
    tokens[tokens.index("b")] = "other"
    v = vocab(tmp_path, keys)
    with pytest.raises(Exception, match="no token for byte 0x62"):
        v.tokenize("ab")
    tokens[tokens.index("<0x00>")] = "another"
    v = vocab(tmp_path, keys)
    with pytest.raises(Exception, match="no token for byte 0x00"):
        v.tokenize("\0")


def test_bpe_drops_bytes_that_have_no_token(tmp_path):
    keys = bpe_keys()
    keys["tokenizer.ggml.tokens"][2][ord("b")] = "other"
    v = vocab(tmp_path, keys)
    assert v.tokenize("abc") == [97, 99]


def test_ignore_merges_takes_a_word_that_is_a_token(tmp_path):
    special = [("xyz", 1)]
    assert vocab(tmp_path, bpe_keys([], special, pre="gpt-2")).tokenize("xyz") == [120, 121, 122]
    v = vocab(tmp_path, bpe_keys([], special, pre="llama-bpe"))
    assert v.tokenize("xyz", False) == [256]


def test_gemma4_words(tmp_path):
    """Spaces are written "▁", a run of newlines that is a token is one, bytes are "<0xNN>"."""
    keys = bpe_keys(
        ["▁ a", "▁a b"], [(t, 1) for t in ("▁", "\n", "\n\n\n", "<0xE2>")], pre="gemma4"
    )
    v = vocab(tmp_path, keys)
    three, one = token_ids(v, "\n\n\n", "\n")
    assert v.tokenize(" ab\n\n\n", False) == [v.find("▁ab"), three]
    assert v.tokenize("\n\n", False) == [one, one]
    assert v.tokenize("€", False) == token_ids(v, "<0xE2>")  # the other two bytes have no token
    assert v.detokenize([v.find("▁ab")]) == " ab"


def test_prefix_space_after_special_tokens(tmp_path):
    words = [("▁", 0.0), ("a", 0.0), ("▁a", 1.0), ("▁▁", 0.5)]
    v = vocab(tmp_path, spm_keys(words, [("<x>", CONTROL)]))
    first, special = token_ids(v, "▁a", "<x>")
    assert v.tokenize("a<x>a", False, True) == [first, special, first]
    assert v.tokenize("a", True) == [1, first]
    assert v.tokenize(" a", False) == token_ids(v, "▁", "▁a")
    assert v.tokenize("", True) == [1]
    assert v.tokenize("", False) == []
    assert v.tokenize("<x>", False, True) == [special]


def test_pieces(tmp_path):
    words = [("▁▁▁a", 0.0), ("▁b▁", 0.0)]
    v = vocab(tmp_path, spm_keys(words, [("<|x|>", CONTROL), ("▁user", 4), ("odd", 5)]))
    spaces, both, control, user, odd = token_ids(v, "▁▁▁a", "▁b▁", "<|x|>", "▁user", "odd")
    assert [v.token_to_piece(spaces, n) for n in range(5)] == [b"   a", b"  a", b" a", b"a", b"a"]
    assert v.token_to_piece(both, 9) == b"b "
    assert v.token_to_piece(control) == b""
    assert v.token_to_piece(control, 0, True) == b"<|x|>"
    assert v.token_to_piece(user) == "▁user".encode()  # user-defined texts are as they are
    assert v.token_to_piece(odd) == b""  # unused
    assert v.token_to_piece(0) == b"" and v.token_to_piece(0, special=True) == b"<unk>"
    assert v.token_to_piece(v.find("<0x0A>")) == b"\n"


def test_detokenize_flags(tmp_path):
    v = vocab(tmp_path, spm_keys([("▁a", 0.0)], add_eos_token=True))
    a = v.find("▁a")
    ids = [1, a, a, 2]
    assert v.detokenize(ids) == " a a"  # the prefix space is taken from the first token only
    assert v.detokenize([a, a]) == "a a"
    assert v.detokenize(ids, unparse_special=True) == "<s> a a</s>"
    assert v.detokenize(ids, True, True) == " a a"
    assert v.detokenize([], True, True) == ""
    assert v.detokenize([1], True, True) == ""
    assert v.detokenize([2, 1], True, True) == "</s><s>"
    assert v.detokenize([v.find("<0xE2>")]) == "\ufffd"
    assert v.detokenize_bytes([v.find("<0xE2>")]) == b"\xe2"


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("a . b , c ! d ?", "a. b, c! d?"),
        ("  . x", " . x"),
        ("it 's I 'm we 're you 've", "it's I'm we're you've"),
        ("can 't I 'd we 'll", "can 't I 'd we 'll"),
        ("a ' b ' c", "a'b'c"),
        ("a ' ' b", "a'' b"),
        (" .", "."),
        ("'s", "'s"),
        (" 's ' s", "'s's"),
        ("a '", "a '"),
        ("", ""),
        (" ", " "),
    ],
)
def test_clean_spaces(tmp_path, text, cleaned):
    v = vocab(tmp_path, bpe_keys())
    assert v.clean_spaces
    assert v.detokenize(v.tokenize(text)) == cleaned


def double(v: Vocab, text: str, **flags: bool) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        v.tokenize(text, **flags)
    return [str(w.message)[:3] for w in caught if issubclass(w.category, VocabWarning)]


def test_double_bos_and_eos(tmp_path):
    v = vocab(tmp_path, spm_keys([("▁", 0.0), ("h", 0.0)], add_eos_token=True))
    assert double(v, "<s>h", parse_special=True) == ["BOS"]
    assert double(v, "<s>h</s>", parse_special=True) == ["BOS"]  # SPM does not look at EOS
    assert double(v, "<s>h", parse_special=True, add_special=False) == []
    assert double(v, "<s>h") == []
    ends = {"bos_token_id": 256, "eos_token_id": 257, "add_bos_token": True, "add_eos_token": True}
    v = vocab(tmp_path, bpe_keys([], [("<b>", CONTROL), ("<e>", CONTROL)], **ends))
    assert double(v, "<b>h<e>", parse_special=True) == ["BOS", "EOS"]
    assert double(v, "<b>", parse_special=True) == ["BOS"]
    assert double(v, "h", parse_special=True) == []
    assert v.tokenize("h", parse_special=True) == [256, 104, 257]


def test_double_where_bos_is_eos(tmp_path):
    """An empty prompt becomes BOS, EOS: the byte-pair tokenizer takes that for two of each."""
    ends = {"bos_token_id": 256, "eos_token_id": 256, "add_bos_token": True, "add_eos_token": True}
    v = vocab(tmp_path, bpe_keys([], [("<e>", CONTROL)], **ends))
    assert v.tokenize("") == [256, 256]
    assert double(v, "") == ["BOS", "EOS"]
    v = vocab(tmp_path, spm_keys(eos_token_id=1, add_eos_token=True))
    assert v.tokenize("") == [1, 1]
    assert double(v, "") == []


def test_text_may_be_bytes_and_damaged(tmp_path):
    v = vocab(tmp_path, bpe_keys(MERGES))
    replacement = [0xEF, 0xBF, 0xBD]
    assert v.tokenize(b"a\xffb") == [97, *replacement, 98]
    assert v.tokenize(bytearray(b"ab")) == [97, 98]
    assert v.tokenize("\udcff") == [0xED, 0xB3, 0xBF]  # a lone surrogate is written as it is
    assert v.tokenize("a\0b") == [97, 0, 98]


@pytest.fixture(scope="module")
def small_bpe(tmp_path_factory) -> Vocab:
    keys = bpe_keys(MERGES, [("<|x|>", CONTROL)], pre="smollm")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return vocab(tmp_path_factory.mktemp("v"), keys)


@pytest.fixture(scope="module")
def small_spm() -> Vocab:
    return stored("spm_default")


texts = st.one_of(st.text(st.characters(codec="utf-8")), st.text("helo wa\n '\u3000é"))


@given(texts)
def test_round_trip_bpe(small_bpe, text):
    assert small_bpe.detokenize(small_bpe.tokenize(text)) == text
    assert drain(small_bpe.tokenize_steps(text)) == small_bpe.tokenize(text)


@given(texts)
def test_round_trip_spm(small_spm, text):
    """What is itself written "▁" comes back as a space."""
    expected = text.replace("▁", " ")
    assert small_spm.detokenize(small_spm.tokenize(text), remove_special=False) in (
        expected,
        " " + expected,
    )
    assert small_spm.detokenize(small_spm.tokenize(text, False)) == expected


@given(st.binary(max_size=30), st.booleans())
def test_any_bytes(small_bpe, small_spm, raw, parse_special):
    for v in (small_bpe, small_spm):
        try:
            ids = v.tokenize(raw, True, parse_special)
        except Exception as error:
            assert "Unicode ends at" in str(error)
            continue
        assert all(0 <= token < v.n_tokens for token in ids)
        assert drain(v.tokenize_steps(raw, True, parse_special)) == ids


def test_many_different_words_do_not_fill_the_memory(small_bpe):
    tokenizer = small_bpe.tokenizer
    small_bpe.tokenize(" ".join(f"a{i}" for i in range(70_000)))
    assert len(tokenizer._words) <= 1 << 16
    small_bpe.tokenize("a" * 1000)
    assert "a" * 1000 not in tokenizer._words
