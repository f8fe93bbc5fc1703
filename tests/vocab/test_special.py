"""Special tokens found by their text, those that end a generation, those that strip white space."""

from __future__ import annotations

import random
import warnings

import pytest

from llmviz.vocab import TokenAttr, VocabWarning
from llmviz.vocab.hash_order import map_order
from llmviz.vocab.special import BY_TEXT, EOG_TEXTS

from .files import CONTROL, NORMAL, STR, USER_DEFINED, bpe_keys, spm_keys, token_ids, vocab

pytestmark = pytest.mark.filterwarnings("ignore::llmviz.vocab.VocabWarning")


@pytest.mark.parametrize("text", EOG_TEXTS.split())
def test_names_that_end_a_generation(tmp_path, text):
    v = vocab(tmp_path, bpe_keys([], [(text, CONTROL), ("<other>", CONTROL)]))
    assert v.eog_ids == {11, 256}  # 11: the default EOS
    assert v.attr(256) == TokenAttr.CONTROL


@pytest.mark.parametrize("name", BY_TEXT)
def test_names_of_special_tokens(tmp_path, name):
    for text in BY_TEXT[name].split():
        v = vocab(tmp_path, bpe_keys([], [(text, CONTROL)]))
        assert getattr(v, name) == v.special_ids[name] == 256, text
        assert [n for n in BY_TEXT if getattr(v, n) == 256] == [name]
        ends = name in ("eot", "eom", "fim_pad", "fim_rep", "fim_sep")
        assert v.is_eog(256) == ends


def test_a_key_wins_over_a_name(tmp_path):
    special = [("<|im_end|>", CONTROL), ("<x>", CONTROL)]
    v = vocab(tmp_path, bpe_keys([], special, eot_token_id=257))
    assert v.eot == 257
    assert v.eog_ids == {11, 256, 257}


def test_a_name_makes_a_control_token(tmp_path):
    with pytest.warns(VocabWarning, match="control-looking token 256 '<fim_prefix>'"):
        v = vocab(tmp_path, bpe_keys([], [("<fim_prefix>", NORMAL)]))
    assert v.attr(256) == TokenAttr.CONTROL | TokenAttr.NORMAL
    assert v.tokenize("<fim_prefix>", False, True) == [256]


def test_unused(tmp_path):
    special = [("<|unused7|>", CONTROL), ("unused", NORMAL), ("<unuse>", CONTROL)]
    v = vocab(tmp_path, bpe_keys([], special))
    assert [v.attr(t) for t in (256, 257, 258)] == [
        TokenAttr.CONTROL | TokenAttr.UNUSED,
        TokenAttr.NORMAL,
        TokenAttr.CONTROL,
    ]


def test_gpt_oss(tmp_path):
    """Its "<|end|>" ends a message, not the generation; tokens of structure are always written."""
    names = ["<|end|>", "<|return|>", "<|call|>", "<|channel|>", "<|message|>", "<|start|>"]
    v = vocab(tmp_path, bpe_keys([], [(n, CONTROL) for n in names]))
    end, done, call, channel, message, start = token_ids(v, *names)
    assert v.eog_ids == {11, done, call}
    for token in (end, channel, message, start):
        assert v.attr(token) == TokenAttr.USER_DEFINED
        assert v.token_to_piece(token).decode() == v.token_text(token)
    assert v.tokenize("<|end|>", False, False) == [end]


@pytest.mark.parametrize(
    ("names", "kept"),
    [
        (["<|end|>", "<|return|>"], {0, 1}),
        (["<|end|>", "<|call|>"], {0, 1}),
        (["<|end|>", "<|calls|>", "<|flush|>"], {1, 2}),
        (["<|end|>", "<|calls|>", "<|return|>"], {1, 2}),
        (["<|end|>", "<|flush|>", "<|return|>"], {0, 1, 2}),
        (["</s>", "<|tool_response>"], {1}),
        (["</s>", "<turn|>"], {0, 1}),
    ],
)
def test_corrections(tmp_path, names, kept):
    v = vocab(tmp_path, bpe_keys([], [(n, CONTROL) for n in names]))
    assert v.eog_ids == {11, *(256 + k for k in kept)}
    if names[0] == "</s>" and 0 not in kept:
        assert v.attr(256) == TokenAttr.NORMAL


def test_phi3_strips_after_special_tokens(tmp_path):
    special = [("<|endoftext|>", CONTROL), ("<|end|>", CONTROL), ("tool", USER_DEFINED)]
    words = [("▁", 0.0), ("a", 0.0), ("▁a", 1.0)]
    v = vocab(tmp_path, spm_keys(words, special, **{"general.name": (STR, "Phi-3 Mini")}))
    rstrip = {v.tokens[t] for t in range(v.n_tokens) if v.attrs[t] & TokenAttr.RSTRIP}
    assert rstrip == {"</s>", "<|end|>", "tool"}
    end, a, text_end, space = token_ids(v, "<|end|>", "▁a", "<|endoftext|>", "▁")
    assert v.tokenize("<|end|>\n  a", False, True) == [end, a]
    assert v.tokenize("<|endoftext|> a", False, True) == [text_end, space, a]
    assert v.tokenize("</s> a", False, True) == [2, a]


@pytest.mark.parametrize(
    ("pre", "more", "text"),
    [
        ("jina-v2-code", {}, "<mask>"),
        ("gpt-2", {"general.architecture": (STR, "jina-bert-v3")}, "<mask>"),
        ("gpt-2", {"general.name": (STR, "x Modern-BERT")}, "[MASK]"),
    ],
)
def test_mask_tokens_strip_before(tmp_path, pre, more, text):
    v = vocab(tmp_path, bpe_keys([], [(text, CONTROL)], pre=pre, **more))
    assert v.attr(256) == TokenAttr.CONTROL | TokenAttr.LSTRIP
    assert v.tokenize(f"a  {text} b", False, True)[:2] == [97, 256]
    with pytest.warns(VocabWarning, match="mask token"):
        vocab(tmp_path, bpe_keys([], [], pre=pre, **more))


# --- which of several names llama.cpp takes ------------------------------------------------------


def test_map_order_by_hand():
    """Up to 13 elements there is one set of buckets: a later bucket comes first."""
    texts = [b"a", b"b", b"c", b"d"]
    order = map_order(texts).tolist()
    assert sorted(order) == [0, 1, 2, 3]
    assert map_order([b"x"]).tolist() == [0]
    assert map_order([]).tolist() == []


def test_map_order_is_a_permutation():
    rnd = random.Random(5)
    texts = list({rnd.randbytes(rnd.randint(1, 30)) for _ in range(5000)})
    assert sorted(map_order(texts)) == list(range(len(texts)))


def test_same_choice_as_llama_cpp(llamacpp, tmp_path):
    """Random vocabularies with several names for the same thing."""
    rnd = random.Random(11)
    for n_others in (0, 3, 40, 700, 3000):
        for _ in range(3):
            names = [t for texts in BY_TEXT.values() for t in texts.split()]
            rnd.shuffle(names)
            others = {f"w{rnd.random()}"[: rnd.randint(6, 18)] for _ in range(n_others)}
            special = [(text, CONTROL) for text in [*names[:20], *sorted(others)]]
            rnd.shuffle(special)
            v = vocab(tmp_path, bpe_keys([], special))
            with llamacpp.Reference(tmp_path / "v.gguf", vocab_only=True) as reference:
                ours = {name: getattr(v, name) for name in reference.vocab.special}
                assert ours == reference.vocab.special
                eog = {t for t in range(v.n_tokens) if reference.vocab.is_eog(t)}
                assert v.eog_ids == eog
                assert v.attrs.tolist() == [reference.vocab.attr(t) for t in range(v.n_tokens)]


def test_the_end_of_turn_is_looked_for_when_asked(tmp_path, monkeypatch):
    """Telling several names apart takes a while, so opening does not do it."""
    from llmviz.vocab import special as module

    monkeypatch.setattr(module, "map_order", lambda texts: pytest.fail("looked too early"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        v = vocab(tmp_path, bpe_keys([], [("<|im_end|>", CONTROL), ("<|endoftext|>", CONTROL)]))
    assert v.eog_ids == {11, 256, 257}
    monkeypatch.undo()
    assert v.eot in (256, 257)
