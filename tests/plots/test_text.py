"""Text and numbers of figures: whatever it holds, it can be drawn and is no markup."""

from __future__ import annotations

import time

import pytest

pytest.importorskip("matplotlib")

from hypothesis import example, given
from hypothesis import strategies as st

from llmviz.plots.text import _drawable as drawable
from llmviz.plots.text import count, number, percent, piece, plain, seconds, short, width


@given(st.text())
def test_every_character_can_be_drawn(text: str) -> None:
    assert all(ord(c) in drawable() for c in plain(text))


def test_what_cannot_be_seen_is_named() -> None:
    assert plain("a\u202eb\x00\ud800") == "a‹U+202E›b‹U+0000›‹U+D800›"
    assert plain("a\nb\tc\r\n") == "a⏎b⇥c⏎"
    assert plain("naïve été Привет $x$") == "naïve été Привет $x$"


def test_a_piece_shows_its_spaces_and_an_empty_one() -> None:
    assert piece(" is") == "·is" and piece("is") == "is" and piece("  ") == "··"
    assert piece("") == "∅"


@given(st.text(), st.integers(1, 40))
@example("0\u03000", 1)  # what takes no column does not use up the room
def test_short_text_fits(text: str, room: int) -> None:
    out = short(text, room)
    assert width(out) <= room or out == "…"
    assert out == plain(text) or out.endswith("…") or width(plain(text)) <= room


def test_a_text_of_a_megabyte_costs_no_more_than_a_word() -> None:
    start = time.perf_counter()
    assert len(piece("x" * 1_000_000)) == 40 and len(short("\u202e" * 1_000_000, 40)) <= 40
    assert time.perf_counter() - start < 0.1


def test_numbers_read_as_in_the_notebook() -> None:
    assert [number(x) for x in (None, 0, 0.5, -1.25, 12345, 1e-4, 1e6)] == [
        *("–", "0", "0.5000", "−1.250", "12,345", "1.00e−4", "1.00e6")
    ]
    assert number(float("nan")) == "NaN" and number(float("-inf")) == "−inf"
    assert [percent(p) for p in (None, 0.0, 1e-6, 0.1234)] == ["–", "0.0 %", "<0.1 %", "12.3 %"]
    assert [seconds(s) for s in (2.0, 0.5, 0.0021, 1e-6)] == [
        "2.0 s",
        "500 ms",
        "2.1 ms",
        "<0.1 ms",
    ]
    assert (
        count(64, 2000, "cells") == "showing 64 of 2,000 cells" and count(1, 1, "cells") == "1 cell"
    )
