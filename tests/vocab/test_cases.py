"""A sweep over the folder of cases with right answers, where it is present."""

from __future__ import annotations

import json
import warnings

import pytest

from llmviz.errors import GGUFError, LlmvizError
from llmviz.events import drain
from llmviz.gguf import open_gguf
from llmviz.vocab import Vocab, VocabWarning

SMOLLM2 = "SMOL"


@pytest.fixture(scope="module")
def values(cases_dir):
    return {
        name: json.loads((cases_dir / f"{name}.json").read_text())
        for name in (
            "tokens_all", "tokens_synthetic", "tokens_smollm2", "extra_values", "gguf_verdicts",
        )
    }  # fmt: skip


def read(path) -> Vocab:
    with warnings.catch_warnings(), open_gguf(str(path)) as gguf:
        warnings.simplefilter("ignore", VocabWarning)
        return Vocab.from_gguf(gguf)


@pytest.fixture(scope="module")
def vocab_of(request):
    """Vocabulary by its name in the values; each is read once."""
    read_already: dict[str, Vocab] = {}

    def get(name: str) -> Vocab:
        if name not in read_already:
            if name == SMOLLM2:
                path = request.getfixturevalue("smollm2_path")
            else:
                path = request.getfixturevalue("lcp_vocabs") / f"ggml-vocab-{name}.gguf"
            read_already[name] = read(path)
        return read_already[name]

    return get


def tokenize(v: Vocab, text, add_special: bool, parse_special: bool) -> tuple[list[int], bool]:
    """Ids, and whether a warning was given."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ids = v.tokenize(text, add_special, parse_special)
        assert drain(v.tokenize_steps(text, add_special, parse_special)) == ids
    return ids, bool(caught)


def test_all_vocabularies(values, vocab_of, figures):
    texts = {
        name: bytes.fromhex(raw) for name, raw in values["tokens_all"]["_strings_utf8_hex"].items()
    }
    names = ("n_tokens", "bos", "eos", "eot", "sep", "pad", "nl", "mask", "add_bos", "add_eos")
    n = 0
    for vocab_name, expected in values["tokens_all"]["vocabs"].items():
        v = vocab_of(vocab_name)
        assert {name: getattr(v, name) for name in names} == {
            name: expected[name] for name in names
        }
        for name, right in expected["strings"].items():
            for a, b in ("00", "01", "10", "11"):
                ids, _ = tokenize(v, texts[name], a == "1", b == "1")
                assert ids == right[a + b], (vocab_name, name, a + b)
            for flag, ids in (("detok00", right["00"]), ("detok01", right["01"])):
                back = v.detokenize_bytes(ids, False, flag == "detok01").hex()
                assert back == right[flag], (vocab_name, name, flag)
            n += 6
    figures(f"tokens_all.json: {n}/{n} values")
    assert n > 5000


def test_synthetic_vocabularies(values, cases_dir):
    for name, right in values["tokens_synthetic"].items():
        path = cases_dir / "vocabs" / f"{name}.gguf"
        if not right["accept"]:
            with pytest.raises(GGUFError):
                read(path)
            continue
        v = read(path)
        for case in right["cases"]:
            for flags in ("00", "01", "11"):
                ids, _ = tokenize(v, case["text"], flags[0] == "1", flags[1] == "1")
                assert ids == case[flags], (name, case["text"])
            assert v.detokenize_bytes(case["00"]).hex() == case["detok"]


def test_pieces(values, vocab_of):
    for name, texts in values["tokens_smollm2"]["pieces"]["value"].items():
        v = vocab_of(name)
        api = texts.pop("_api")
        for text, right in texts.items():
            rows = [
                [token, v.token_to_piece(token, 0, True).hex(), v.token_to_piece(token).hex()]
                for token in v.tokenize(text, False, True)
            ]
            assert rows == right, (name, text)
        hello = v.tokenize(" hello", False)
        for lstrip in (0, 1, 2):
            pieces = [v.token_to_piece(token, lstrip).hex() for token in hello]
            assert pieces == api[f"lstrip={lstrip}"]
        for remove in (False, True):
            for unparse in (False, True):
                key = f"detok bos+hello+eos rm={remove:d} unparse={unparse:d}"
                around = [v.bos, *hello, v.eos] if v.eos >= 0 else [v.bos, *hello]
                out = v.detokenize_bytes(around, remove, unparse)
                assert out.hex() == api[key], (name, key)


def test_double_bos(values, vocab_of):
    for name, (text, right, warned) in values["extra_values"]["double_bos"]["value"].items():
        v = vocab_of(name)
        assert tokenize(v, text, True, True) == (right, warned)


def test_malformed_files(values, cases_dir):
    """The same files are taken and refused as by llama.cpp, with the key that is wrong."""
    fields = {
        "tok_model_missing": "tokenizer.ggml.model",
        "tok_tokens_missing": "tokenizer.ggml.tokens",
        "tok_tokens_wrong_type": "tokenizer.ggml.tokens",
        "tok_scores_short": "tokenizer.ggml.scores",
        "tok_scores_f64": "tokenizer.ggml.scores",
        "tok_types_short": "tokenizer.ggml.token_type",
        "tok_bpe_merges_missing": "tokenizer.ggml.merges",
    }
    n = 0
    for name, verdict in values["gguf_verdicts"].items():
        if "tok_" not in name and name != "ok_no_vocab":
            continue
        n += 1
        (path,) = (cases_dir / "gguf" / name).glob("*.gguf")
        with warnings.catch_warnings(record=True) as caught, open_gguf(str(path)) as gguf:
            warnings.simplefilter("always")
            right = verdict["load_mmap"]["value"]
            try:
                v = Vocab.from_gguf(gguf)
            except LlmvizError as error:
                assert not right["accept"], name
                assert not isinstance(error, GGUFError) or error.field == fields[name]
            else:
                assert right["accept"], name
                assert v.n_tokens == right["n_vocab"]
                loud = name in ("tok_bpe_pre_missing", "ok_tok_types_missing")
                assert bool(caught) == loud, name
    assert n == 13
