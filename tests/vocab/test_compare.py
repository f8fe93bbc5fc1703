"""Where two tokenizers, or two settings of one, part."""

from __future__ import annotations

import random

import pytest

from llmviz.vocab import compare
from llmviz.vocab.tokenized import ADDED, BYTES, PLAIN, tokenized

from .files import CONTROL, NORMAL, bpe_keys, keys_of, vocab
from .kinds import plamo2_keys, rwkv_keys, ugm_keys

pytestmark = pytest.mark.filterwarnings("ignore::llmviz.vocab.VocabWarning")


def test_first_differing_merge(tmp_path):
    """Of "abc" one joins b c first, the other a b; what comes before is cut alike."""
    a = vocab(tmp_path, bpe_keys(["b c", "a b", "x y"]))
    b = vocab(tmp_path, bpe_keys(["a b", "b c", "x y"]))
    assert compare(a, b, "xy") is None
    found = compare(a, b, "xy abc")
    assert (found.byte, found.index, found.pieces) == (3, (2, 2), ("a", "ab"))
    one, other = found.merges
    assert (found.join, one.left, one.right, one.rank) == (0, "b", "c", 0)
    assert (other.left, other.right, other.rank) == ("a", "b", 0)
    assert str(found) == (
        f"byte 3: 'a' ({a.find('a')}) against 'ab' ({b.find('ab')}) (tokens 2 and 2); at join 1 of "
        "the word one joins 'b' + 'c', the other joins 'a' + 'b'"
    )


def test_settings_and_ends(tmp_path):
    v = vocab(tmp_path, bpe_keys(["a b"], [("<e>", CONTROL)], bos_token_id=257, add_bos_token=True))
    found = compare((v, {"parse_special": True}), v, "ab<e>")
    assert (found.byte, found.pieces, found.join) == (2, ("<e>", "<"), -1)
    found = compare((v, {"add_special": True}), v, "ab", add_special=False)
    assert (found.byte, found.pieces) == (0, ("<e>", "ab"))
    assert compare(v, v, "") is None


def test_kinds_that_take_whole_tokens(tmp_path):
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "▁h", "▁he", "llo", "ello"]
    special = {"unknown_token_id": 1, "bos_token_id": 2, "seperator_token_id": 3}
    types = [CONTROL] * 4 + [NORMAL] * 4
    a = vocab(tmp_path, keys_of("bert", tokens, types, **special))
    b = vocab(tmp_path, keys_of("bert", [*tokens[:5], "▁no", *tokens[6:]], types, **special))
    t = tokenized(a, "  HELLO")
    assert list(zip(t.ids, t.starts, t.ends, t.kinds, strict=True)) == [
        (2, 0, 0, ADDED), (5, 2, 4, PLAIN), (6, 4, 7, PLAIN), (3, 7, 7, ADDED),
    ]  # fmt: skip
    assert t.matches[1].shorter == [("▁h", 4)]
    assert [t.word_of[i] for i in (1, 2)] == [0, 0]
    found = compare(a, b, "  HELLO")
    assert (found.byte, found.pieces, found.join) == (2, (" he", " h"), -1)


@pytest.mark.parametrize("make", [plamo2_keys, rwkv_keys, ugm_keys])
def test_tokens_cover_the_text(tmp_path, make):
    """In order, without overlap, as many as there are ids; fallback bytes one by one."""
    v = vocab(tmp_path, make(random.Random(5)))
    for text in ("abc日é 1", "zz日😀\U0001f680 a", "éé"):
        t = tokenized(v, text, add_special=False)
        assert len(t.ids) == len(t.starts) == len(t.kinds) == len(t.word_of)
        assert t.starts == sorted(t.starts) and t.ends == sorted(t.ends)
        for start, end, kind in zip(t.starts, t.ends, t.kinds, strict=True):
            assert end - start == 1 or kind == PLAIN
            assert kind in (PLAIN, BYTES)
