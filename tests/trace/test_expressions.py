"""The expression language: values against hand-computed ones, errors with places, hostile texts."""

from __future__ import annotations

import math
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmviz.errors import LlmvizError
from llmviz.trace.expressions import (
    FUNCTIONS,
    MAX_LENGTH,
    Expression,
    ExpressionError,
    compile_expression,
    show_value,
)
from llmviz.trace.values import VARIABLES, Missing, TokenText, matching

PARIS = TokenText(" Paris", 3)
LOGITS = np.array([0.0, 1.0, 2.0, 4.0], np.float32)
KQ = np.linspace(0, 1, 2 * 3 * 4, dtype=np.float32).reshape(2, 3, 4)


class Dict:
    """Values from two dictionaries; what is in neither is missing."""

    def __init__(self, nodes: dict[str, Any] | None = None, **variables: Any) -> None:
        self.variables = {k.replace("__", "."): v for k, v in variables.items()}
        self.nodes = nodes or {}

    def get(self, name: str) -> Any:
        return self.variables.get(name, Missing)

    def node(self, name: str) -> Any:
        return next((v for k, v in self.nodes.items() if matching(name, (k,))), Missing)

    def lens(self, row: np.ndarray) -> np.ndarray:
        return row * 2

    def token_id(self, text: str) -> int:
        if text != " Paris":
            raise LlmvizError(f"{text!r} is not one token")
        return 3


VALUES = Dict(
    nodes={
        "l_out-5": np.array([[1.0, 2.0], [3.0, 4.0]], np.float32),
        "l_out-6": np.array([[0.0, np.nan], [np.inf, 4.0]], np.float32),
        "l_out-12": np.array([[9.0, 9.0, 9.0, 9.0], [0.0, 7.0, 8.0, 5.0]], np.float32),
        "kq_soft_max-3": KQ,
        "Kcur-0 (view)": np.array([5.0], np.float32),
        "inp_pos": np.arange(3, dtype=np.int32),
    },
    here=np.array([-3.0, 0.5], np.float32),
    name="kq_soft_max-3",
    kind="node",
    shape=(2,),
    layer=3,
    step=13,
    n_tokens=12,
    token=PARIS,
    piece=" Paris",
    text=" Paris, of course",
    tokens=(TokenText("The", 0), PARIS),
    logits=LOGITS,
    entropy=2.5,
    kv__used=95,
    kv__size=100,
    top_k__k=40,
)

SOFTMAX = np.exp(LOGITS.astype(float)) / np.exp(LOGITS.astype(float)).sum()


def value(text: str, values: Any = VALUES) -> Any:
    return compile_expression(text).evaluate(values)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("entropy > 3", False),
        ("any NaN", False),
        ("any NaN in l_out-5", False),
        ("any NaN in l_out-6", True),
        ("any inf in l_out-6", True),
        ("any nan in l_out-* and step == 13", False),
        ("kv.used > 0.9 * kv.size", True),
        ('token == "Paris"', True),
        ('token == " Paris"', True),
        ("token == 'London'", False),
        ("token == 3 and token != 4", True),
        ('token in ["London", "Paris"]', True),
        ('"Paris" in tokens and 0 in tokens and 7 not in tokens', True),
        ('piece == " Paris"', True),
        ('piece == "Paris"', False),
        ('"of course" in text', True),
        ("norm(l_out-5)", math.sqrt(30)),
        ('rank(" Paris", lens(l_out-12))', 3),
        ("rank(1, lens(l_out-12[1]))", 2),
        ("rank(token)", 1),
        ('prob(" Paris")', SOFTMAX[3]),
        ("prob(token, logits)", SOFTMAX[3]),
        ('logit(" Paris")', 4.0),
        ("max(abs(here))", 3.0),
        ("max(here, 7, 2)", 7.0),
        ("kq_soft_max-3[0, -1, 2] > 0.4", True),
        ("kq_soft_max-3[0, -1, 2]", float(KQ[0, -1, 2])),
        ("sum(kq_soft_max-3[1, 1:, :2])", float(KQ[1, 1:, :2].sum())),
        ("kq_soft_max-3[1][2][3]", 1.0),
        ('layer == 3 and name ~ "kq*"', True),
        ('name ~ "l_out-*"', False),
        ("step == 13", True),
        ("n_tokens > 10", True),
        ("not (min(here) < 0 or mean(here) > 1)", False),
        ("shape == [2] and shape[0] == 2", True),
        ("top_k.k", 40),
        ("1 < 2 <= 2 < 1", False),
        ("2 + 3 * 4 ** 2 / 8 - 7 % 4", 5.0),
        ("2 ** 3 ** 2", 512),
        ("-2 ** 2", -4),
        ("2 ** -1", 0.5),
        ("7 / 2", 3.5),
        ("1 / 0", math.inf),
        ("-1 % 3", 2),
        ("inf > 1e308", True),
        ("nan == nan", False),
        ("len(text)", 17),
        ("len(l_out-5)", 2),
        ("nan(l_out-6) + inf(l_out-6)", 2),
        ("std(l_out-5)", math.sqrt(1.25)),
        ("cosine(l_out-5[0], l_out-5[1])", 11 / math.sqrt(5 * 25)),
        ("argmax(logits)", 3),
        ("argmax(kq_soft_max-3)", (1, 2, 3)),
        ("any(here > 0) and not all(here > 0)", True),
        ("sqrt(16) + exp(0) + log(1)", 5.0),
        ("sum(inp_pos)", 3),
        ("1 in inp_pos and 9 not in inp_pos", True),
        ('node("Kcur-0 (view)")[0] == 5', True),
        ("true and not false", True),
        ("9 ** 9 ** 9 ** 9", math.inf),
        ('"a" == 1', False),
    ],
)
def test_values(text: str, expected: Any) -> None:
    found = value(text)
    assert type(found) is type(expected) or isinstance(expected, float)
    assert found == pytest.approx(expected, rel=1e-6)


def test_entropy_and_softmax_of_an_array() -> None:
    assert value("entropy(logits)") == pytest.approx(-(SOFTMAX * np.log(SOFTMAX)).sum())
    assert value("entropy") == 2.5
    np.testing.assert_allclose(value("softmax(logits)"), SOFTMAX, rtol=1e-6)
    np.testing.assert_allclose(value("softmax(kq_soft_max-3)").sum(axis=-1), 1, rtol=1e-6)


def test_arithmetic_of_arrays_keeps_float32_and_the_engine_s_array() -> None:
    doubled = value("l_out-5 * 2 + 1")
    assert doubled.dtype == np.float32
    np.testing.assert_array_equal(doubled, [[3, 5], [7, 9]])
    assert value("l_out-5") is VALUES.nodes["l_out-5"]
    np.testing.assert_array_equal(value("1 < l_out-5 < 4"), [[False, True], [True, False]])
    np.testing.assert_array_equal(value("l_out-5 != 2"), [[True, False], [True, True]])
    np.testing.assert_array_equal(value("-inp_pos"), [0, -1, -2])
    tenth = Dict(here=np.array([0.1, 0.2], np.float32))  # 0.1 is the array's own 0.1
    assert value("any(here == 0.1) and 0.1 in here and all(here >= 0.1)", tenth)


def test_what_is_not_there_yet() -> None:
    empty = Dict()
    for text in (
        "entropy > 3",
        "not entropy > 3",
        "norm(l_out-5)",
        "any NaN",
        "1 < entropy < 2",
        "prob(3)",
        "l_out-5[0]",
        "[1, entropy]",
        "-entropy ** 2 + 1",
        "entropy > 3 or step == 13",
    ):
        expression = compile_expression(text)
        assert expression.evaluate(empty) is Missing, text
        assert expression.holds(empty) is False
    assert value("entropy > 3 and 1 == 2", empty) is False  # false whatever entropy will be
    assert value("entropy > 3 or true", empty) is True
    assert not Missing
    assert show_value(Missing) == "not yet"


def test_any_nan_asks_only_numbers() -> None:
    condition = compile_expression("any NaN")
    assert condition.evaluate(Dict(here="a text")) is Missing
    assert condition.holds(Dict(here=math.nan))
    assert condition.holds(Dict(here=np.array([1, np.nan], np.float32)))
    assert not condition.holds(Dict(here=np.arange(3)))


# -- what is needed -------------------------------------------------------------------------------


def test_names_that_it_needs() -> None:
    found = compile_expression('rank(" Paris", lens(l_out-12)) < 3 and norm(kq-*) > entropy')
    assert found.names == {"l_out-12", "kq-*"}
    assert found.variables == {"entropy"}
    assert found.needs_lens
    assert found.keeps("l_out-12") and found.keeps("kq-7") and not found.keeps("l_out-1")
    assert compile_expression("ubatch.n_tokens > 1").names == {"inp_tokens"}
    assert not compile_expression("norm(l_out-5)").needs_lens


def test_conditions_are_told_from_watches() -> None:
    for text in ("entropy > 3", "any NaN", "not token == 3", "any(here > 1)", "a-1 < 2 or true"):
        assert compile_expression(text).is_condition, text
    for text in ("entropy", "norm(l_out-5)", "1 + 1", '"Paris"'):
        assert not compile_expression(text).is_condition, text


@pytest.mark.parametrize(
    ("text", "wanted", "unwanted"),
    [
        ('layer == 3 and name ~ "kq*"', ["kq-3", "kq_soft_max-3"], ["kq-4", "Qcur-3"]),
        ("any NaN", ["kq-3", "result_norm"], []),
        ("norm(l_out-5) > 3", ["l_out-5"], ["l_out-4", "kq-3"]),
        ("entropy > 3", [], ["l_out-5"]),
        ("step == 13", [], ["l_out-5"]),
        ('kind == "enter" and layer > 2', [], ["l_out-5"]),
        ("step == 14 and max(here) > 2", [], ["l_out-5"]),
        ("max(abs(here)) > 100 and layer > 3", ["l_out-5", "node_12"], ["l_out-3"]),
    ],
)
def test_nodes_that_a_condition_wants(text: str, wanted: list[str], unwanted: list[str]) -> None:
    condition = compile_expression(text)
    assert [n for n in wanted + unwanted if condition.wants(n)] == wanted


def test_names_are_checked_against_a_graph() -> None:
    nodes = ["l_out-0", "l_out-1", "result_norm", "odd name"]
    assert compile_expression("norm(l_out-1)", nodes).names == {"l_out-1"}
    assert str(compile_expression('norm(node("odd name"))', nodes)) == 'norm(node("odd name"))'
    compile_expression("any NaN in l_out-*", nodes)
    with pytest.raises(ExpressionError, match="no node 'l_out-7': did you mean l_out-1") as caught:
        compile_expression("1 < norm(l_out-7)", nodes)
    assert caught.value.column == 10
    with pytest.raises(ExpressionError, match="no node 'kq-"):
        compile_expression("any NaN in kq-*", nodes)


# -- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "column", "reason"),
    [
        ("entrpy > 3", 1, "did you mean entropy?"),
        ("1 + kv.usd", 5, "did you mean kv.used"),
        ("nrm(l_out-5)", 1, "unknown function 'nrm': did you mean norm"),
        ("norm > 3", 1, r"norm is a function: norm\(x\)"),
        ("l_out > 3", 1, "l_out is in every layer: write l_out-3"),
        ("l_otu", 1, "did you mean l_out-3"),
        ("top_k.q", 1, "did you mean top_k.k"),
        ("entropy-3 > 1", 1, "for a difference put spaces: entropy - 3"),
        ("step = 3", 6, "use == to compare"),
        ("step == 3 && true", 11, "use 'and'"),
        ('"abc', 1, "no closing"),
        ("", 1, "an empty expression"),
        ("1 +", 4, "expected a value, found the end"),
        ("(1", 3, r"expected '\)' to close the parenthesis"),
        ("[1 2]", 4, "expected ',' or ']' in the list, found '2'"),
        ("1 2", 3, "expected an operator or the end, found '2'"),
        ('1 "and" 2', 3, 'found "and"'),
        ("any foo", 5, "after 'any' comes NaN, inf"),
        ("1 + not true", 5, "in parentheses"),
        ("cosine(here)", 1, r"cosine\(a, b\) does not take 1 arguments"),
        ("node(x)", 1, "takes a name in quotes"),
        ("l_out-5[]", 9, "expected a value, found ']'"),
    ],
)
def test_what_cannot_be_read(text: str, column: int, reason: str) -> None:
    with pytest.raises(ExpressionError, match=reason) as caught:
        compile_expression(text)
    assert caught.value.column == column
    *_, caret = str(caught.value).split("\n")
    assert caret == " " * (column + 1) + "^"


@pytest.mark.parametrize(
    ("text", "column", "reason"),
    [
        ("1 < kq_soft_max-3[0, 3, 0]", 18, r"index 3 is outside axis 1 of \[2, 3, 4\]"),
        ("kq_soft_max-3[0, 0, 0, 0]", 14, "4 indices for an array of shape"),
        ("kq_soft_max-3[0.5]", 15, "an index is a whole number"),
        ("shape[9]", 6, "outside a list of 1"),
        ("here > 0 and true", 1, r"use any\(...\) or all"),
        ("here + l_out-5 * kq_soft_max-3", 16, r"shapes \[2, 2\] and \[2, 3, 4\] do not go"),
        ('"a" + 1', 5, "'[+]' needs numbers, not the text 'a'"),
        ('"a" < 1', 5, "needs numbers"),
        ("norm(text)", 1, "norm needs numbers, not the text"),
        ("1 ~ 2", 3, "compares a text with a pattern"),
        ("1 in 2", 3, "needs a text, a list or an array"),
        ('rank("Paris", logits)', 1, "not one token"),
        ("prob(4)", 1, "there is no token 4 among 4 logits"),
        ("prob(0.5)", 1, "a token is a text"),
        ("prob(inf)", 1, "a token is a text"),
        ("cosine(l_out-5, here)", 1, "differ"),
        ("max([])", 1, "empty"),
        ("len(3)", 1, "has no length"),
    ],
)
def test_what_cannot_be_computed(text: str, column: int, reason: str) -> None:
    expression = compile_expression(text)
    with pytest.raises(ExpressionError, match=reason) as caught:
        expression.holds(VALUES)
    assert caught.value.column == column
    assert caught.value.text == text


# -- hostile texts --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "here.__class__.__mro__",
        "().__class__.__bases__[0].__subclasses__()",
        "[x for x in here]",
        "lambda: 0",
        "(lambda: 0)()",
        "open('/etc/passwd')",
        "exec('1')",
        'f"{here}"',
        "token.id",
        "a; b",
        "step := 3",
        "here.tofile('x')",
        "\x00",
        "\u202e1 > 2",
        "<script>alert(1)</script>",
        "`ls`",
        "$HOME",
        "1 if true else 2",
    ],
)
def test_code_is_not_an_expression(text: str) -> None:
    with pytest.raises(ExpressionError):
        compile_expression(text)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 1_000_000,
        "a" * 1_000_000,
        "1" * (MAX_LENGTH + 1),
        "(" * 900,
        "[" * 900,
        "-" * 900 + "1",
        "not " * 240 + "true",
        "2**" * 300 + "2",
        "max(" * 200 + "1" + ")" * 200,
        "(1+" * 200 + "1" + ")" * 200,
        "1" + " < (1" * 150 + ")" * 150,
        '"' + "\\" * 997,
        "1e" * 400,
    ],
)
def test_large_texts_are_refused_at_once(text: str) -> None:
    start = time.perf_counter()
    with pytest.raises(ExpressionError) as caught:
        compile_expression(text)
    assert time.perf_counter() - start < 0.2
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1+" * 499 + "1", 500),
        ("-1 " + "* -1" * 240, None),
        ("9" * 999, 1e999),
        ("1" + "**9" * 20, 1),
        ("(" * 30 + "1" + ")" * 30, 1),
        ("true" + " and true" * 100, True),
    ],
)
def test_long_but_flat_texts_are_read(text: str, expected: Any) -> None:
    found = value(text)
    assert expected is None or found == expected


def test_no_array_grows_out_of_hand() -> None:
    column = np.broadcast_to(np.float32(1), (1 << 14, 1))
    row = np.broadcast_to(np.float32(1), (1, 1 << 14))
    values = Dict(nodes={"a-1": column, "b-1": row})
    for text in ("a-1 * b-1", "a-1 < b-1", "a-1 == b-1"):
        with pytest.raises(ExpressionError, match="268,435,456 values"):
            value(text, values)
    large = np.broadcast_to(np.float32(2), 1 << 27)
    with pytest.raises(ExpressionError, match="take a part"):
        value("max(abs(a-1))", Dict(nodes={"a-1": large}))


def test_only_texts_are_read() -> None:
    for thing in (None, 3, b"1", SimpleNamespace()):
        with pytest.raises(ExpressionError, match="an expression is a text"):
            compile_expression(thing)  # type: ignore[arg-type]


# -- canonical text -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("  entropy>3 ", "entropy > 3"),
        ("'it''s' == 1", None),
        ("'say \"hi\"' == text", '"say \\"hi\\"" == text'),
        ("((1)+2)*3", "(1 + 2) * 3"),
        ("1+(2+3)", "1 + (2 + 3)"),
        ("(2**3)**2", "(2 ** 3) ** 2"),
        ("(-2)**2", "(-2) ** 2"),
        ("--2", "--2"),
        ("not(not true)", "not not true"),
        ("(not true) == false", "(not true) == false"),
        ("any NAN in l_out-5", "any NaN in l_out-5"),
        ("x-1[0,-1 , 2:]", "x-1[0, -1, 2:]"),
        ("x-1[:][:3]", "x-1[:][:3]"),
        ("node('l_out-5')", "l_out-5"),
        ("node('entropy')", 'node("entropy")'),
        ("node('entropy-3')", 'node("entropy-3")'),
        ("NaN(here)", "nan(here)"),
        ("Inf + NaN", "inf + nan"),
        ("+3", "3"),
        ("1e3", "1000.0"),
        ("layer - 3", "layer - 3"),
        ("step-3", None),
        ('"tab\\tline\\n\\u00e9" in text', '"tab\\tline\\né" in text'),
    ],
)
def test_canonical_text(text: str, canonical: str | None) -> None:
    if canonical is None:
        with pytest.raises(ExpressionError):
            compile_expression(text)
        return
    expression = compile_expression(text)
    assert str(expression) == canonical
    again = compile_expression(canonical)
    assert again == expression and hash(again) == hash(expression)
    assert again._root == expression._root
    assert eval_text(repr(expression)) == canonical


def eval_text(shown: str) -> str:
    return shown.removeprefix("Expression(").removesuffix(")")[1:-1].replace("\\\\", "\\")


names = st.sampled_from([*VARIABLES, "l_out-5", "kq-*", "result_norm", 'node("a b")', "top_k.k"])
numbers = st.one_of(
    st.integers(0, 10**6).map(str), st.floats(0, allow_nan=False, allow_infinity=False).map(repr)
)
texts = st.text(max_size=5).map(lambda s: '"' + s.replace("\\", "\\\\").replace('"', '\\"') + '"')
leaves = st.one_of(names, numbers, texts, st.sampled_from(["true", "nan", "inf", "any NaN"]))


OPERATORS = ("and", "or", "<", ">=", "==", "~", "in", "not in", "+", "-", "*", "/", "%", "**")
FORMS = [
    *(form.replace("op", op) for op in OPERATORS for form in ("({}) op ({})", "{} op {}")),
    *(f"{name}({{}})" for name, function in FUNCTIONS.items() if function.least == 1),
    *("not ({})", "-({})", "-{}", "any inf in ({})", "({})[{}, 1:]", "[{}, {}]", "max({}, {})"),
]


def grow(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(lambda form, a, b: form.format(a, b), st.sampled_from(FORMS), inner, inner)


@given(st.recursive(leaves, grow, max_leaves=8))
def test_text_and_tree_come_back(text: str) -> None:
    try:
        first = compile_expression(text)
    except ExpressionError:
        return  # such as 1 + any NaN, which wants parentheses
    second = compile_expression(str(first))
    assert second._root == first._root
    assert str(second) == str(first)


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        expression = compile_expression(text)
        expression.evaluate(VALUES)
    except ExpressionError as error:
        assert 1 <= error.column <= len(text) + 1
        assert "\n" not in error.reason


@pytest.mark.filterwarnings("error")
@given(st.recursive(leaves, grow, max_leaves=6))
def test_any_expression_is_computed_or_refused(text: str) -> None:
    try:
        expression = compile_expression(text)
    except ExpressionError:
        return
    for values in (VALUES, Dict()):
        try:
            expression.evaluate(values)
            assert expression.holds(values) in (True, False)
        except ExpressionError as error:
            assert error.text == text
    assert isinstance(expression.wants("kq-3"), bool)


# -- showing --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "shown"),
    [
        (True, "True"),
        (49152, "49,152"),
        (math.pi, "3.14159"),
        (math.nan, "nan"),
        (PARIS, "' Paris'"),
        ("x" * 100, "'" + "x" * 29 + "…" + "x" * 30 + "'"),
        (("a", 1), "['a', 1]"),
        (tuple(range(10)), "[0, 1, 2, 3, 4, 5, 6, 7, … 10 in all]"),
        (KQ, "float32 [2, 3, 4]"),
        (np.array([0.5, 1.0], np.float32), "[0.5, 1]"),
    ],
)
def test_results_are_shown_in_a_few_words(found: Any, shown: str) -> None:
    assert show_value(found) == shown


def test_every_function_and_variable_is_described() -> None:
    for name, function in FUNCTIONS.items():
        assert function.usage.startswith(f"{name}(") and function.meaning
        assert 1 <= function.least <= function.most
    assert all(v.meaning for v in VARIABLES.values())
    assert isinstance(compile_expression("1"), Expression)
