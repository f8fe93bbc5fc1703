"""Each kind of question: what it reads, how it grades, what it says, what it keeps."""

from __future__ import annotations

import numpy as np
import pytest

import llmviz
from llmviz.errors import LlmvizError
from llmviz.lessons.number import number_of


class Words:
    """A vocabulary of a few pieces, cut at the longest."""

    pieces = ("the", " the", " Paris", "Paris", "paris", " ", "x")
    n_tokens = len(pieces)

    def tokenize(self, text, add_special=False, parse_special=False):
        if "\0" in text:
            raise LlmvizError("no zero bytes")
        out = []
        while text:
            i = max(
                (i for i, p in enumerate(self.pieces) if text.startswith(p)),
                key=lambda i: len(self.pieces[i]),
            )
            out.append(i)
            text = text[len(self.pieces[i]) :]
        return out

    def token_to_piece(self, token, special=False):
        return self.pieces[token].encode()


@pytest.fixture
def lesson(tmp_path):
    return llmviz.lessons.begin("99-tests", tmp_path)


def state(graded):
    return graded.right, graded.counted


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        (" 49,152 ", 49152),
        ("1 000 000", 1_000_000),
        ("1_000", 1000),
        ("−3", -3),
        ("0x1F", 31),
        ("1e3", 1000.0),
        ("2,5", 2.5),
        ("1/8", 0.125),
        ("25 %", 0.25),
        (np.int64(7), 7),
        (np.float32(0.5), 0.5),
        ("9" * 30, int("9" * 30)),
    ],
)
def test_numbers_as_people_write_them(text, value):
    got = number_of(text)
    assert got == value and type(got) is type(value)


@pytest.mark.parametrize(
    "text", ["", None, "five", "1..2", "1/0", "nan", "inf", True, float("nan"), "1e999", [1, 2]]
)
def test_what_is_no_number_is_no_try(text, lesson):
    check = lesson.number("n", "How many?", answer=lambda: 5)
    graded = check.submit(text)
    assert state(graded) == (False, False) and graded.reason and check.attempts == 0


def test_number(lesson):
    seen = []
    check = lesson.number(
        "n",
        "How many?",
        answer=lambda: np.int64(5),
        unit="tokens",
        because=lambda given, right: seen.append((given, right)) or f"there are {right}",
    )
    assert check.submit(500).reason == "500 tokens is too large, by more than ten times."
    assert check.submit("3 tokens").reason == "3 tokens is too small."
    assert check.can_show and not check.done and check.verdict["answer"] == ""
    graded = check.submit("5 tokens")
    assert state(graded) == (True, True) and graded.answer == 5 and seen == [(5, 5)]
    assert check.done and check.attempts == 3 and check.verdict["answer"] == "5 tokens"
    assert check.submit(4).right is False and check.attempts == 3, "the first right one counts"


def test_number_near_enough(lesson):
    check = lesson.number("n", "About?", answer=lambda: 200, relative=0.1)
    assert not check.submit(179).right and check.submit(181).right and check.submit("220").right
    check = lesson.number("m", "About?", answer=lambda: 1 / 3, tolerance=0.01)
    assert check.submit(0.34).right and not check.submit(0.35).right
    percent = lesson.number("p", "Share?", answer=lambda: 25, unit="%")
    assert percent.submit("25 %").right and percent.submit("25").right
    exact = lesson.number("e", "Big?", answer=lambda: 10**17 + 1)
    assert not exact.submit(10**17).right


def test_the_answer_is_that_of_the_moment(lesson):
    now = {"tokens": 3}
    check = lesson.number("n", "How many?", answer=lambda: now["tokens"])
    assert check.submit(3).right
    now["tokens"] = 4
    assert not check.submit(3).right and check.submit(4).right


def test_an_answer_that_cannot_be_told_is_a_sentence(lesson):
    check = lesson.number("n", "How many?", answer=lambda: missing)  # noqa: F821
    graded = check.submit(3)
    assert state(graded) == (False, False) and graded.answer is None
    assert "run the cells above" in graded.reason and "missing" in graded.reason
    assert "run the cells above" in check.show_answer().reason and not check.shown
    said = lesson.number("m", "?", answer=lambda: 1, because=lambda given, right: 1 / 0)
    graded = said.submit(1)
    assert graded.right and "could not be made: ZeroDivisionError" in graded.reason
    faulty = lesson.choose("c", "?", options=["a", "b"], answer=lambda: "z")
    assert state(faulty.submit("a")) == (False, False)


def test_choose_one(lesson):
    check = lesson.choose(
        "c",
        "Which?",
        options=["left", "right", "both"],
        answer=lambda: "right",
        because=lambda given, right: f"{given} is {right}",
    )
    assert check.submit("left").reason == "Not “left”."
    for what in (None, [], ["left", "right"], "nowhere", 7, True, ["x"]):
        assert state(check.submit(what)) == (False, False), what
    graded = check.submit(["right"])
    assert graded.right and graded.reason == "right is right" and graded.answer == "right"
    either = lesson.choose("d", "?", options=["a", "b", "c"], answer=lambda: ["a", 1])
    assert either.submit("a").right and either.submit(1).right and not either.submit("c").right


def test_choose_several(lesson):
    check = lesson.choose(
        "c", "Which?", options=["a", "b", "c"], answer=lambda: ["c", "a"], several=True
    )
    assert check.submit(["a", "b"]).reason == "1 of your 2 belong there; 1 more does as well."
    assert check.submit(["a"]).reason == "All that you chose belong there; 1 more does as well."
    graded = check.submit(["c", "a"])
    assert graded.right and graded.answer == ["a", "c"] and check.given == ["a", "c"]


def test_order(lesson):
    check = lesson.order("o", "?", items=["c", "a", "b"], answer=lambda: "abc")
    assert check.given == ["c", "a", "b"]
    assert check.submit(["a", "c", "b"]).reason == "The first is in place, of 3."
    assert (
        check.submit(["c", "b", "a"]).reason == "1 of 3 are in their place; the first one is not."
    )
    assert state(check.submit(["a", "b"])) == (False, False)
    assert check.submit(("a", "b", "c")).right
    assert check.show_answer().answer == ["a", "b", "c"]


def test_mark(lesson):
    lower = np.tril(np.ones((3, 3), bool))
    check = lesson.mark("m", "?", labels=(["x", "y", "z"], "xyz"), answer=lambda: lower)
    assert check.submit([[0, 0], [0, 2]]).reason == "1 marked rightly, 1 too many, 5 missing."
    assert check.submit([]).reason == "Nothing is marked yet."
    for what in ([[0, 3]], [[-1, 0]], "x", [[0, 0, 0]], [[0.5, 1]]):
        assert state(check.submit(what)) == (False, False), what
    assert check.submit(lower).right and check.verdict["answer"] == "6 of 9 cells"
    assert check.submit(np.argwhere(lower).tolist()).right
    floats = lesson.mark("f", "?", shape=(2, 2), answer=lambda: np.array([[1.0, 0], [0, 1]]))
    assert floats.submit([[0, 0], [1, 1]]).right
    none = lesson.mark("e", "?", shape=(2, 2), answer=lambda: np.zeros((2, 2)))
    assert none.submit([]).right


def test_token(lesson):
    check = lesson.token("t", "?", vocab=Words(), answer=lambda: " Paris")
    assert check.submit("Paris").reason.startswith("The same letters, but look at the space")
    assert check.submit("paris").reason.startswith("The same letters, but large")
    assert check.submit(" the").reason == "Not “ the”."
    for what in ("the Paris", "", None, True, 99, -1, "\0", "many"):
        if what != "many":
            assert state(check.submit(what)) == (False, False), what
    graded = check.submit(np.int64(2))
    assert graded.right and graded.answer == 2 and check.verdict["answer"] == "“ Paris” (2)"
    assert check.given == {"text": " Paris", "id": 2, "tokens": [{"id": 2, "text": " Paris"}]}
    assert check.reply({"do": "tokenize", "text": "the Paris"}) == {
        "tokens": [{"id": 0, "text": "the"}, {"id": 2, "text": " Paris"}]
    }
    assert check.reply({"do": "tokenize", "text": "\0"})["problem"] == "no zero bytes"
    either = lesson.token("u", "?", vocab=Words(), answer=lambda: [0, " the"])
    assert either.submit("the").right and either.submit(1).right


def test_exercise(lesson):
    names = {"__builtins__": __builtins__}
    exec("def judge(value):\n    return value == 3, f'it is {value + 0}'", names)
    check = lesson.exercise("e", "Count.", solution="\n    answer = 3\n", check=names["judge"])
    assert check.solution == "answer = 3" and check.can_show
    assert state(check.submit()) == (False, False), "there is no answer yet"
    names["answer"] = ...
    assert "still `...`" in check.submit().reason and check.attempts == 0
    names["answer"] = 4
    assert check.submit().reason == "it is 4" and check.attempts == 1
    assert "cannot be used like this: TypeError" in check.submit("x").reason
    assert check.show_answer().answer is None and check.verdict["answer"] == "answer = 3"
    exec(check.solution, names)
    graded = check.submit()
    assert graded.right and graded.reason == "it is 3" and check.shown
    plain = lesson.exercise("f", "?", solution="answer = 1", check=lambda v: v == 1)
    assert plain.submit(2).reason == "`answer` is not it yet." and plain.submit(1).right


def test_hints_and_showing(lesson):
    check = lesson.choose(
        "c",
        "?",
        options=["a", "b"],
        answer=lambda: "b",
        because="because it is",
        hint=lambda given, right: f"not {given}, think",
    )
    assert check.submit("a").reason == "not a, think" and not check.can_show
    assert check.submit("a").answer == "b" and check.can_show
    assert "b" not in check.verdict["text"] and not check.verdict["answer"]
    graded = check.show_answer()
    assert state(graded) == (False, False) and graded.answer == "b"
    assert check.verdict == {"state": "shown", "text": "because it is", "answer": "b"}
    assert check.given == ["b"] and check.shown and not check.done
    assert check.submit("b").right and check.attempts == 3


@pytest.mark.parametrize(
    "make",
    [
        lambda lesson: lesson.choose("k", "?", options=["a"], answer=lambda: "a"),
        lambda lesson: lesson.choose("k", "?", options=["a", "a"], answer=lambda: "a"),
        lambda lesson: lesson.order("k", "?", items=["a", "a"], answer=lambda: "a"),
        lambda lesson: lesson.mark("k", "?", answer=lambda: 0),
        lambda lesson: lesson.mark("k", "?", shape=(2, 2), labels=("ab", "abc"), answer=lambda: 0),
        lambda lesson: lesson.mark("k", "?", shape=(100, 100), answer=lambda: 0),
        lambda lesson: lesson.mark("k", "?", shape=(2, 2), values=[["a"]], answer=lambda: 0),
    ],
)
def test_a_question_that_cannot_be_asked_is_refused(lesson, make):
    with pytest.raises(LlmvizError):
        make(lesson)


def test_a_misspelled_argument_is_refused(lesson):
    with pytest.raises(TypeError, match="tolerence"):
        lesson.number("n", "?", answer=lambda: 1, tolerence=2)


def test_messages_of_the_page_never_raise(lesson):
    check = lesson.number("n", "?", answer=lambda: 1)
    sent = []
    check.send = lambda content, buffers=None: sent.append(content)
    for what in (None, [], {"do": "submit"}, {"do": "nothing", "id": "1"}, {"do": "show"}):
        check._on_message(check, what, [])
    check._on_message(check, {"do": "submit", "given": {"a": 1}, "id": "7"}, [])
    assert sent[-1]["reply"] == "7" and check.attempts == 0
    check._on_message(check, {"do": "submit", "given": "1", "id": "8"}, [])
    assert check.done


def test_without_scripts(lesson):
    check = lesson.choose("c", "Is `<b>` **bold**?", options=["<i>", "no"], answer=lambda: "no")
    page, text = check.fallback_html(), repr(check)
    assert "<b>Is &lt;b&gt; bold?</b>" in page and "<li>&lt;i&gt;</li>" in page
    assert "check.submit(" in text and "- no" in text and "open" in text
    bundle = check._repr_mimebundle_()
    data = bundle[0] if isinstance(bundle, tuple) else bundle
    assert data["text/html"] == page
    check.close()
    lesson.projector = True
    with lesson.number("n", "?", answer=lambda: 1) as large:
        assert large.projector
