"""`tokenize_steps`: what a view needs to play the film of a tokenization."""

from __future__ import annotations

import time
import tracemalloc

import pytest

from llmviz.events import drain
from llmviz.gguf import open_gguf
from llmviz.vocab import ByteFallback, Fragment, Vocab, Word

from .files import CONTROL, bpe_keys, spm_keys, token_ids, vocab

pytestmark = pytest.mark.filterwarnings("ignore::llmviz.vocab.VocabWarning")


def events_of(v: Vocab, text, **flags):
    events = list(v.tokenize_steps(text, **flags))
    assert {(event.kind, event.step) for event in events} == {("data", 9)}
    return events


def test_bpe(tmp_path):
    v = vocab(tmp_path, bpe_keys(["l l", "h e", "he ll", "Ġ w"], [("<x>", CONTROL)]))
    events = events_of(v, "hell w<x>é", parse_special=True, depth=4)
    assert {event.depth for event in events} == {4}
    assert [event.name for event in events] == [
        "special_partition",
        "pre_tokenize",
        *["merge"] * 4,
        "pre_tokenize",
    ]
    assert events[0].value == [
        Fragment("text", "hell w", -1, 0, 6),
        Fragment("token", "<x>", v.find("<x>"), 6, 3),
        Fragment("text", "é", -1, 9, 2),
    ]
    assert events[1].value == [Word("hell", 0, 4), Word(" w", 4, 2)]
    assert events[1].about["pre"] == "gpt-2"
    assert r"\p{L}" in events[1].about["regexes"][0]
    assert events[-1].value == [Word("é", 9, 2)]
    merges = [event.value for event in events if event.name == "merge"]
    assert [(m.word, m.left, m.right, m.rank) for m in merges] == [
        (0, "l", "l", 0),
        (0, "h", "e", 1),
        (0, "he", "ll", 2),
        (1, "Ġ", "w", 3),
    ]
    assert [m.symbols for m in merges] == [["h", "e", "ll"], ["he", "ll"], ["hell"], ["Ġw"]]
    assert [m.id for m in merges] == token_ids(v, "ll", "he", "hell", "Ġw")


def test_spm(tmp_path):
    words = [("▁", -9.0), ("a", -9.0), ("b", -9.0), ("▁a", -2.0), ("ab", -1.5)]
    v = vocab(tmp_path, spm_keys(words))
    events = events_of(v, "ab é")
    assert [event.name for event in events] == [
        "special_partition",
        "pre_tokenize",
        "merge",
        "byte_fallback",
    ]
    assert events[1].value == [Word("▁ab▁é", 0, 5)]
    merge = events[2].value
    assert (merge.left, merge.right, merge.result, merge.score) == ("a", "b", "ab", -1.5)
    assert merge.symbols == ["▁", "ab", "▁", "é"]
    assert (merge.position, merge.rank, merge.id) == (1, None, v.find("ab"))
    ids = token_ids(v, "<0xC3>", "<0xA9>")
    assert events[3].value == ByteFallback("é", "é".encode(), ids)


def test_bpe_byte_fallback(tmp_path):
    keys = bpe_keys()
    keys["tokenizer.ggml.tokens"][2][ord("b")] = "other"
    (_, _, fallback) = events_of(vocab(tmp_path, keys), "ab")
    assert fallback.value == ByteFallback("b", b"b", [])


def test_offsets_are_those_of_the_prompt(tmp_path):
    """Also where bytes are damaged, and where a space is written with three bytes."""
    v = vocab(tmp_path, bpe_keys())
    raw = b"a \xffb \xe2\x82c"
    (_, words) = events_of(v, raw)
    assert [raw[w.offset : w.offset + w.length] for w in words.value] == [
        b"a",
        b" \xff",
        b"b",
        b" \xe2\x82",
        b"c",
    ]
    keys = bpe_keys(["a b"], [("▁", 1), ("\n", 1)], pre="gemma4")
    text = "a b\n\nc"
    (event,) = [e for e in events_of(vocab(tmp_path, keys), text) if e.name == "pre_tokenize"]
    assert [(w.text, text[w.offset : w.offset + w.length]) for w in event.value] == [
        ("a▁b", "a b"),
        ("\n\n", "\n\n"),
        ("c", "c"),
    ]


def test_nothing_to_do(tmp_path):
    v = vocab(tmp_path, bpe_keys())
    (event,) = events_of(v, "")
    assert event.value == []
    assert drain(v.tokenize_steps("")) == []


def test_values_stay_right_after_the_generator_moved_on(tmp_path):
    v = vocab(tmp_path, bpe_keys(["a a", "aa aa"]))
    merges = [e.value for e in events_of(v, "aaaa") if e.name == "merge"]
    assert [m.symbols for m in merges] == [["aa", "a", "a"], ["aa", "aa"], ["aaaa"]]


def test_a_word_taken_whole_has_no_merges(tmp_path):
    v = vocab(tmp_path, bpe_keys(["x y"], [("xyz", 1)], pre="llama-bpe"))
    assert [e.name for e in events_of(v, "xyz", add_special=False)] == [
        "special_partition",
        "pre_tokenize",
    ]


def test_50000_letters(smollm2_path):
    """In seconds, with and without events, and without a copy of the text per merge."""
    with open_gguf(smollm2_path) as gguf:
        v = Vocab.from_gguf(gguf)
    text = "".join(chr(97 + (i * 7 + i // 13) % 26) for i in range(50_000))
    start = time.process_time()
    ids = v.tokenize(text)
    assert v.tokenize("a" * 50_000)
    assert time.process_time() - start < 5
    tracemalloc.start()
    merges = []
    steps = v.tokenize_steps(text)
    try:
        while True:
            event = next(steps)
            if event.name == "merge":
                merges.append(event.value)
    except StopIteration as stop:
        assert stop.value == ids
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 60e6
    assert len(merges) == len(text) - len(ids)
    assert len(merges[-1].symbols) == len(ids)


def test_10000_characters_are_quick(smollm2_path):
    with open_gguf(smollm2_path) as gguf:
        v = Vocab.from_gguf(gguf)
    text = (v.chat_template * 20 + "Größe 你好 🦙 1234\n" * 200)[-10_000:]
    v.tokenize("warm the tables")
    start = time.process_time()
    ids = v.tokenize(text)
    assert time.process_time() - start < 0.1
    assert v.detokenize(ids) == text
