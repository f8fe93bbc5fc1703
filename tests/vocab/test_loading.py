"""A vocabulary read from a file's keys: defaults, flags, special ids, bad input."""

from __future__ import annotations

import time
import warnings

import numpy as np
import pytest

from llmviz.errors import GGUFError, UnsupportedError, VocabError
from llmviz.gguf import open_gguf
from llmviz.vocab import TokenAttr, Vocab, VocabWarning

from .files import CONTROL, F32, I32, STR, U32, bpe_keys, opened, spm_keys, vocab

F64 = 12
MODEL, TOKENS = "tokenizer.ggml.model", "tokenizer.ggml.tokens"
SCORES, TYPES = "tokenizer.ggml.scores", "tokenizer.ggml.token_type"
MERGES, PRE = "tokenizer.ggml.merges", "tokenizer.ggml.pre"


def test_spm_defaults(tmp_path):
    v = vocab(tmp_path, spm_keys([("▁a", -1.5)]))
    assert (v.type, v.model, v.pre, v.n_tokens) == ("spm", "llama", "", 260)
    assert (v.bos, v.eos, v.unk, v.eot, v.sep, v.pad, v.mask) == (1, 2, 0, -1, -1, -1, -1)
    assert (v.add_bos, v.add_eos, v.add_space_prefix, v.clean_spaces) == (True, False, True, False)
    assert v.nl == v.find("<0x0A>") == 13
    assert v.eog_ids == {2}
    assert v.is_eog(2) and not v.is_eog(1) and not v.is_eog(-1)
    assert v.scores.dtype == np.float32 and v.scores[259] == np.float32(-1.5)
    assert v.attrs.dtype == np.int32
    assert v.attr(0) == TokenAttr.UNKNOWN
    assert v.attr(1) == TokenAttr.CONTROL and v.is_control(1)
    assert v.attr(3) == TokenAttr.BYTE
    assert v.attr(259) == TokenAttr.NORMAL and not v.is_control(259)
    assert v.tokens[259] == v.token_text(259) == "▁a"
    assert v.tokens[-2:] == ["<0xFF>", "▁a"]
    assert dict(v.special_ids) == {"bos": 1, "eos": 2, "unk": 0, "nl": 13}
    assert v.notes == []


def test_bpe_defaults(tmp_path):
    with pytest.warns(VocabWarning, match="EOS token 11"):
        v = vocab(tmp_path, bpe_keys(["h e"]))
    assert (v.type, v.model, v.pre, v.n_tokens) == ("bpe", "gpt2", "gpt-2", 257)
    assert (v.bos, v.eos, v.unk) == (11, 11, -1)
    assert (v.add_bos, v.add_eos, v.add_space_prefix, v.clean_spaces) == (False, False, False, True)
    assert not v.ignore_merges and not v.escape_whitespaces
    assert v.nl == v.find("Ċ")
    assert v.scores.tolist() == [0.0] * 257


@pytest.mark.parametrize(
    ("pre", "expected"),
    [
        ("llama-bpe", {"add_bos": True, "ignore_merges": True, "clean_spaces": True}),
        ("smollm", {"clean_spaces": False, "add_bos": False, "ignore_merges": False}),
        ("tekken", {"add_bos": True, "ignore_merges": True, "clean_spaces": False}),
        ("chatglm-bpe", {"bos": -1, "eos": 11}),
        ("jina-v2-code", {"add_sep": True}),
        ("gemma4", {"add_bos": True, "escape_whitespaces": True, "clean_spaces": True}),
    ],
)
@pytest.mark.filterwarnings("ignore::llmviz.vocab.VocabWarning")
def test_settings_that_go_with_a_pre_tokenizer(tmp_path, pre, expected):
    v = vocab(tmp_path, bpe_keys(pre=pre))
    assert {name: getattr(v, name) for name in expected} == expected


def test_the_files_flags_win(tmp_path):
    keys = spm_keys(add_bos_token=False, add_eos_token=True, add_space_prefix=False)
    v = vocab(tmp_path, keys)
    assert (v.add_bos, v.add_eos, v.add_space_prefix) == (False, True, False)
    v = vocab(tmp_path, spm_keys(add_sep_token=True))
    assert v.add_sep


@pytest.mark.filterwarnings("ignore::llmviz.vocab.VocabWarning")
def test_gemma4_always_begins_with_bos(tmp_path):
    v = vocab(tmp_path, bpe_keys(pre=None, model=(STR, "gemma4"), add_bos_token=False))
    assert v.add_bos and v.pre == "gemma4" and v.bos == v.eos == -1
    with pytest.raises(VocabError, match="asks for BOS to be added"):
        v.tokenize("a")
    assert v.tokenize("a", add_special=False) == [97]


def test_special_ids_from_keys(tmp_path):
    keys = spm_keys(
        [(f"w{i}", 0.0) for i in range(9)],
        bos_token_id=2, eos_token_id=260, eot_token_id=261, eom_token_id=262, unknown_token_id=263,
        seperator_token_id=264, padding_token_id=265, mask_token_id=266, prefix_token_id=259,
        fim_suf_token_id=267,
    )  # fmt: skip
    with pytest.warns(VocabWarning, match="not known to end a generation"):
        v = vocab(tmp_path, keys)
    names = ("bos", "eos", "eot", "eom", "unk", "sep", "pad", "mask", "fim_pre", "fim_suf")
    assert [getattr(v, n) for n in names] == [2, 260, 261, 262, 263, 264, 265, 266, 259, 267]
    assert v.eog_ids == {2, 260, 261, 262}  # "</s>" is id 2


def test_special_ids_out_of_range(tmp_path):
    with pytest.warns(
        VocabWarning, match="'tokenizer.ggml.bos_token_id' = 300, using default id 1"
    ):
        v = vocab(tmp_path, spm_keys(bos_token_id=300))
    assert v.bos == 1
    # a vocabulary smaller than the default ids
    small = bpe_keys()
    small[TOKENS] = ("arr", STR, ["a", "b"])
    small[TYPES] = ("arr", I32, [1, 1])
    with pytest.warns(VocabWarning, match="= 11 out of vocab range, disabling"):
        v = vocab(tmp_path, small)
    assert v.bos == v.eos == -1
    with pytest.warns(VocabWarning, match="missing newline token"):
        assert v.nl == -1


def test_no_vocabulary(tmp_path):
    for name in ("no_vocab", "none"):
        keys = {"general.architecture": (STR, "llama"), "llama.vocab_size": (U32, 4_000_000_000)}
        v = vocab(tmp_path, {**keys, MODEL: (STR, name)})
        assert (v.type, v.n_tokens, v.bos, v.eos, v.nl, v.eog_ids) == (
            "none",
            4 * 10**9,
            -1,
            -1,
            -1,
            set(),
        )
        assert len(v.tokens) == 0
        assert v.detokenize([1, 2]) == ""
        assert not v.is_eog(0)
        with pytest.raises(VocabError, match=r"has no vocabulary.*Pass ids"):
            v.tokenize("a")
        with pytest.raises(VocabError, match="has no vocabulary"):
            list(v.tokenize_steps("a"))
        with pytest.raises(VocabError, match="has no vocabulary"):
            v.token_to_piece(0)
    v = vocab(tmp_path, {"general.architecture": (STR, "llama"), MODEL: (STR, "none")})
    assert v.n_tokens == 0


def test_ids_out_of_range(tmp_path):
    v = vocab(tmp_path, spm_keys())
    for token in (-1, 259, 10**9):
        with pytest.raises(VocabError, match=rf"id {token} is out of range: ids go from 0 to 258"):
            v.token_to_piece(token)
        with pytest.raises(VocabError):
            v.token_text(token)
        with pytest.raises(VocabError):
            v.is_control(token)


BAD = {
    # change to the keys: (base, change, field, message)
    "model_missing": (spm_keys, {MODEL: None}, MODEL, "key not found in model"),
    "model_not_a_string": (
        spm_keys,
        {MODEL: (U32, 1)},
        MODEL,
        "wrong type u32 but expected type str",
    ),
    "tokens_missing": (spm_keys, {TOKENS: None}, TOKENS, "cannot find tokenizer vocab"),
    "tokens_of_numbers": (
        spm_keys,
        {TOKENS: ("arr", U32, [1, 2])},
        TOKENS,
        r"invalid gguf type .*arr\[u32\]",
    ),
    "tokens_no_array": (
        spm_keys,
        {TOKENS: (STR, "a")},
        TOKENS,
        "invalid gguf type .*: str, expected",
    ),
    "tokens_twice": (
        spm_keys,
        {TOKENS: ("arr", STR, ["x"] * 259)},
        TOKENS,
        "tokens 0 and 258 have the same text 'x'",
    ),
    "scores_f64": (
        spm_keys,
        {SCORES: ("arr", F64, [0.0] * 259)},
        SCORES,
        r"arr\[f64\], expected arr\[f32\] or arr\[i32\]",
    ),
    "scores_short": (
        spm_keys,
        {SCORES: ("arr", F32, [0.0] * 258)},
        SCORES,
        "258 elements for 259 tokens",
    ),
    "types_short": (spm_keys, {TYPES: ("arr", I32, [1])}, TYPES, "1 elements for 259 tokens"),
    "types_u32": (
        spm_keys,
        {TYPES: ("arr", U32, [1] * 259)},
        TYPES,
        r"arr\[u32\], expected arr\[i32\]",
    ),
    "merges_missing": (bpe_keys, {MERGES: None}, MERGES, "cannot find tokenizer merges"),
    "merges_of_numbers": (bpe_keys, {MERGES: ("arr", I32, [1])}, MERGES, "invalid gguf type"),
    "pre_not_a_string": (bpe_keys, {PRE: (U32, 1)}, PRE, "wrong type"),
    "bos_i32": (
        spm_keys,
        {"tokenizer.ggml.bos_token_id": (I32, 1)},
        "tokenizer.ggml.bos_token_id",
        "wrong type i32 but expected type u32",
    ),
    "add_bos_u32": (
        spm_keys,
        {"tokenizer.ggml.add_bos_token": (U32, 1)},
        "tokenizer.ggml.add_bos_token",
        "expected type bool",
    ),
    "space_prefix_u32": (
        spm_keys,
        {"tokenizer.ggml.add_space_prefix": (U32, 1)},
        "tokenizer.ggml.add_space_prefix",
        "expected type bool",
    ),
    "suppress_u32": (
        spm_keys,
        {"tokenizer.ggml.suppress_tokens": ("arr", U32, [1])},
        "tokenizer.ggml.suppress_tokens",
        "invalid gguf type",
    ),
    "template_u32": (
        spm_keys,
        {"tokenizer.chat_template": (U32, 1)},
        "tokenizer.chat_template",
        "expected type str",
    ),
    "vocab_size_u64": (
        spm_keys,
        {MODEL: (STR, "none"), "llama.vocab_size": (10, 5)},
        "llama.vocab_size",
        "expected type u32",
    ),
    "phi3_without_its_tokens": (
        spm_keys,
        {"general.name": (STR, "My Phi-3 mini")},
        "general.name",
        "endoftext",
    ),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.filterwarnings("ignore::llmviz.vocab.VocabWarning")
def test_bad_keys(tmp_path, case):
    base, change, field, message = BAD[case]
    gguf = opened(tmp_path, {**base(), **change})
    with pytest.raises(GGUFError, match=message) as caught:
        Vocab.from_gguf(gguf)
    assert caught.value.field == field
    assert caught.value.path == gguf.path


def test_unsupported(tmp_path):
    with pytest.raises(
        UnsupportedError, match=r"'sentencefish'; supported: .*gpt2, .*llama"
    ) as caught:
        vocab(tmp_path, spm_keys(model=(STR, "sentencefish")))
    assert caught.value.name == "sentencefish"
    with pytest.raises(UnsupportedError, match=r"'test'.*llama.cpp's test tokenizer, which llmviz"):
        vocab(tmp_path, spm_keys(model=(STR, "test")))
    with pytest.raises(
        UnsupportedError, match=r"unsupported pre-tokenizer: 'no-such-pre'.*smollm"
    ) as caught:
        vocab(tmp_path, bpe_keys(pre="no-such-pre"))
    assert "llama-bpe" in caught.value.supported


def test_missing_pre_tokenizer(tmp_path):
    keys = bpe_keys(pre=None, special=[("</s>", CONTROL)], eos_token_id=256)
    with pytest.warns(VocabWarning, match="GENERATION QUALITY WILL BE DEGRADED"):
        v = vocab(tmp_path, keys)
    assert v.pre == "default"
    assert any("missing pre-tokenizer" in note for note in v.notes)


@pytest.mark.filterwarnings("ignore::llmviz.vocab.VocabWarning")
def test_kimi_k2_needs_no_merges(tmp_path):
    v = vocab(tmp_path, {**bpe_keys(pre="kimi-k2"), MERGES: None})
    assert v.tokenize("ab") == [97, 98]


def test_scores_and_types_may_be_missing(tmp_path):
    v = vocab(tmp_path, {**spm_keys([("▁a", 1.0)]), SCORES: None})
    assert not v.scores.any()
    with pytest.warns(VocabWarning, match="2 '</s>' was not control-type"):
        v = vocab(tmp_path, {**spm_keys([("▁a", 1.0)]), TYPES: None})
    assert v.attr(2) == TokenAttr.CONTROL | TokenAttr.NORMAL
    assert v.attr(1) == TokenAttr.NORMAL
    assert v.token_to_piece(2) == b""
    v = vocab(tmp_path, {**spm_keys([("▁a", 1.0)]), SCORES: ("arr", I32, [*[0] * 259, -7])})
    assert v.scores[259] == -7.0


def test_longer_arrays_are_fine(tmp_path):
    v = vocab(tmp_path, {**spm_keys(), SCORES: ("arr", F32, [1.0] * 300)})
    assert v.scores.shape == (259,)


def test_empty_and_odd_token_texts(tmp_path):
    keys = spm_keys([("", 0.0), ("a\0b", 0.0), ("", 0.0)])
    keys[TOKENS][2].append(b"\xff\xfe")
    for key, value in ((SCORES, 0.0), (TYPES, 99)):
        keys[key][2].append(value)
    with pytest.warns(VocabWarning, match="empty token at index") as caught:
        v = vocab(tmp_path, keys)
    assert [str(w.message)[-3:] for w in caught] == ["259", "261"]
    assert v.tokens[259:262] == ["[EMPTY_259]", "a", "[EMPTY_261]"]  # a text ends before a NUL
    assert v.tokens[262] == "\ufffd\ufffd" and v.tokens.raws[262] == b"\xff\xfe"
    assert v.attr(262) == TokenAttr.UNDEFINED
    assert v.token_to_piece(262, 0, True) == b""


def test_suppressed_tokens(tmp_path):
    keys = spm_keys()
    keys["tokenizer.ggml.suppress_tokens"] = ("arr", I32, [5, -1, 10**6, 7])
    assert vocab(tmp_path, keys).suppress_tokens == [5, 7]


def test_arrays_are_read_only(tmp_path):
    v = vocab(tmp_path, spm_keys())
    for array in (v.attrs, v.scores):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_load_steps(tmp_path):
    gguf = opened(tmp_path, spm_keys([("▁a", 0.0)]))
    events = Vocab.load_steps(gguf, depth=3)
    seen = {}
    try:
        while True:
            event = next(events)
            assert (event.kind, event.depth, event.step) == ("data", 3, 5)
            seen[event.name] = event.value
    except StopIteration as stop:
        v = stop.value
    assert list(seen) == [
        "tokenizer",
        "vocab_tokens",
        "token_attrs",
        "special_tokens",
        "eog_ids",
        "vocab_flags",
    ]
    assert seen["tokenizer"] == {"model": "llama", "type": "spm", "pre": ""}
    assert seen["vocab_tokens"][259] == "▁a"
    assert seen["token_attrs"] is v.attrs
    assert seen["special_tokens"]["bos"] == 1 and "eot" not in seen["special_tokens"]
    assert seen["eog_ids"] == [2]
    assert seen["vocab_flags"]["add_bos"] is True


def test_opening_is_quick(smollm2_path):
    """The project's bound is 60 ms of wall clock on an idle core; CPU time is steadier."""
    times = []
    for _ in range(3):
        with open_gguf(smollm2_path) as gguf:
            start = time.process_time()
            v = Vocab.from_gguf(gguf)
            times.append(time.process_time() - start)
    assert v.n_tokens == 49152
    assert min(times) < 0.06


def test_no_warning_for_a_sound_file(smollm2_path):
    with warnings.catch_warnings(), open_gguf(smollm2_path) as gguf:
        warnings.simplefilter("error")
        v = Vocab.from_gguf(gguf)
    assert v.notes == []
    assert dict(v.special_ids) == {
        "bos": 1,
        "eos": 2,
        "eot": 0,
        "unk": 0,
        "pad": 2,
        "fim_rep": 4,
        "nl": 198,
    }
    assert v.eog_ids == {0, 2, 4}
    assert repr(v) == "Vocab(type='bpe', pre='smollm', n_tokens=49152)"
