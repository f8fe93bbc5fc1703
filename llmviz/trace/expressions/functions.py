"""What an expression computes with: operators and functions over numbers, texts and arrays.

Pure functions, called by `llmviz.trace.expressions` with checked argument counts and never with
`Missing`. A wrong argument raises `LlmvizError`; the expression adds where it stands. Overflow and
division by zero give inf or NaN; the expression keeps numpy's warnings about them off.

Over 400 lines: some forty small functions and the table that names them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

import numpy as np

from llmviz.errors import LlmvizError
from llmviz.trace import lens
from llmviz.trace.summary import probabilities
from llmviz.trace.values import Missing, TokenText, Values

__all__ = ["FUNCTIONS", "Function", "arithmetic", "compare", "index", "show_value", "truth"]

MAX_VALUES = 1 << 26  # of a computed array: 256 MB of float32
_CHUNK = 1 << 20
_EXACT = 2**53


# -- kinds of values ------------------------------------------------------------------------------


def _kind(x: Any) -> str:
    if isinstance(x, np.ndarray):
        return f"an array of {x.dtype} {list(x.shape)}"
    if isinstance(x, str):
        return f"the text {x[:20]!r}"
    return "a list" if isinstance(x, tuple) else f"{x!r}"


def _numbers(x: Any, who: str) -> np.ndarray:
    """A number, a list of numbers or an array, as an array."""
    if isinstance(x, np.ndarray):
        return x
    if isinstance(x, (bool, int, float)):
        return np.asarray(float(x) if isinstance(x, int) and abs(x) > _EXACT else x)
    if isinstance(x, tuple) and all(isinstance(v, (int, float)) for v in x):
        return np.asarray(x, np.float64)
    raise LlmvizError(f"{who} needs numbers, not {_kind(x)}")


def _row(x: Any, who: str) -> np.ndarray:
    """The last row of an array: the newest token's."""
    a = _numbers(x, who)
    if not a.ndim or not a.size:
        raise LlmvizError(f"{who} needs a row of numbers, not {_kind(x)}")
    return a.reshape(-1, a.shape[-1])[-1]


def _result(x: Any) -> Any:
    """Scalars as Python's own, arrays as they are."""
    return x.item() if isinstance(x, (np.ndarray, np.generic)) and x.ndim == 0 else x


def _chunks(a: np.ndarray) -> Iterator[np.ndarray]:
    flat = a.reshape(-1)
    for start in range(0, flat.size, _CHUNK):
        yield flat[start : start + _CHUNK]


def truth(x: Any) -> Any:
    """True, False or `Missing`.

    Raises
    ------
    LlmvizError
        For an array of several values, which is neither.
    """
    if x is Missing:
        return Missing
    if isinstance(x, np.ndarray):
        if x.size != 1:
            raise LlmvizError(
                f"{_kind(x)} is neither true nor false: use any(...) or all(...) of it"
            )
        x = x.item()
    return bool(x)


# -- operators ------------------------------------------------------------------------------------

_ARITHMETIC: Final[dict[str, Callable[..., Any]]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.true_divide,
    "%": np.remainder,
    "**": np.power,
}
_ORDER: Final[dict[str, Callable[..., Any]]] = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}


def _operand(x: Any, who: str) -> Any:
    """For elementwise operators: floats stay what they are, integers become float64."""
    a = _numbers(x, who)
    if a.dtype.kind != "f":
        return a.astype(np.float64) if a.ndim else float(a)
    return a if a.ndim else float(a)  # a Python float takes the other side's precision


def _check_shapes(who: str, a: Any, b: Any) -> None:
    shapes = np.shape(a), np.shape(b)
    try:
        shape = np.broadcast_shapes(*shapes)
    except ValueError:
        raise LlmvizError(
            f"{who}: shapes {list(shapes[0])} and {list(shapes[1])} do not go together"
        ) from None
    _check_size(math.prod(shape))


def _check_size(size: int) -> None:
    if size > MAX_VALUES:
        raise LlmvizError(
            f"the result would have {size:,} values, more than {MAX_VALUES:,}: take a part, x[0]"
        )


def arithmetic(op: str, a: Any, b: Any) -> Any:
    """``a op b``, elementwise where one is an array; division by zero gives inf or NaN."""
    left, right = _operand(a, f"'{op}'"), _operand(b, f"'{op}'")
    _check_shapes(f"'{op}'", left, right)
    out = _result(_ARITHMETIC[op](left, right))
    whole = isinstance(a, int) and isinstance(b, int) and op != "/"
    if whole and isinstance(out, float) and abs(out) < _EXACT and out.is_integer():
        return int(out)
    return out


def negative(x: Any) -> Any:
    """``-x``."""
    return -x if type(x) in (int, float) else _result(np.negative(_operand(x, "'-'")))


def _same(a: Any, b: Any) -> Any:
    if isinstance(a, TokenText) or isinstance(b, TokenText):
        return _same_token(a, b)
    if isinstance(a, str) or isinstance(b, str):
        return isinstance(a, str) and isinstance(b, str) and a == b
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        left, right = _operand(a, "'=='"), _operand(b, "'=='")
        _check_shapes("'=='", left, right)
        return _result(np.equal(left, right))
    return a == b


def _same_token(a: Any, b: Any) -> bool:
    if isinstance(a, TokenText) and isinstance(b, TokenText):
        return a.id == b.id
    token, other = (a, b) if isinstance(a, TokenText) else (b, a)
    if isinstance(other, str):
        return token.removeprefix(" ") == other.removeprefix(" ")
    return isinstance(other, (int, float)) and token.id == other


def _contains(a: Any, b: Any) -> bool:
    if isinstance(a, str) and isinstance(b, str):
        return str(a) in b
    if isinstance(b, tuple):
        return any(truth(_same(a, x)) for x in b)
    if isinstance(b, np.ndarray) and isinstance(a, (int, float)):
        return any(bool((part == a).any()) for part in _chunks(b))
    raise LlmvizError(f"'in' needs a text, a list or an array to look in, not {_kind(b)}")


def compare(op: str, a: Any, b: Any) -> Any:
    """``a op b`` of ``== != < <= > >= ~ in``; elementwise where one is an array."""
    if op == "==":
        return _same(a, b)
    if op == "!=":
        same = _same(a, b)
        return np.logical_not(same) if isinstance(same, np.ndarray) else not same
    if op in ("in", "not in"):
        return _contains(a, b) is (op == "in")
    if op == "~":
        if not (isinstance(a, str) and isinstance(b, str)):
            raise LlmvizError(f"'~' compares a text with a pattern, name ~ \"kq*\", not {_kind(a)}")
        return fnmatchcase(a, b)
    left, right = (_operand(x, f"'{op}'") for x in (a, b))
    _check_shapes(f"'{op}'", left, right)
    return _result(_ORDER[op](left, right))


def index(x: Any, places: tuple[Any, ...]) -> Any:
    """``x[0, -1, 2]``: places are whole numbers or slices."""
    if isinstance(x, tuple) and len(places) == 1 and not isinstance(places[0], slice):
        if not -len(x) <= places[0] < len(x):
            raise LlmvizError(f"index {places[0]} is outside a list of {len(x)}")
        return x[places[0]]
    if not isinstance(x, np.ndarray):
        raise LlmvizError(f"only arrays and lists have parts, not {_kind(x)}")
    if len(places) > x.ndim:
        raise LlmvizError(f"{len(places)} indices for an array of shape {list(x.shape)}")
    for axis, place in enumerate(places):
        size = x.shape[axis]
        if not isinstance(place, slice) and not -size <= place < size:
            raise LlmvizError(f"index {place} is outside axis {axis} of {list(x.shape)}")
    return _result(x[places])


# -- functions ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Function:
    """A function that expressions know: ``call(values, *arguments)``."""

    call: Callable[..., Any]
    least: int
    most: int
    usage: str
    meaning: str


FUNCTIONS: dict[str, Function] = {}


def _function(usage: str, meaning: str, least: int = 1, most: int = 1) -> Any:
    def add(call: Callable[..., Any]) -> Callable[..., Any]:
        FUNCTIONS[usage.partition("(")[0]] = Function(call, least, most, usage, meaning)
        return call

    return add


@_function("norm(x)", "root of the sum of squares")
def _norm(values: Values, x: Any) -> float:
    a = _numbers(x, "norm")
    return math.sqrt(sum(float(np.square(c, dtype=np.float64).sum()) for c in _chunks(a)))


def _reduction(name: str, meaning: str, reduce: Callable[..., Any]) -> None:
    def call(values: Values, x: Any) -> Any:
        a = _numbers(x, name)
        if not a.size:
            raise LlmvizError(f"{name} of an empty array")
        return _result(reduce(a))

    _function(f"{name}(x)", meaning)(call)


_reduction("mean", "average of all values", lambda a: a.mean(dtype=np.float64))
_reduction("std", "standard deviation of all values", lambda a: a.std(dtype=np.float64))


@_function("sum(x)", "sum of all values")
def _sum(values: Values, x: Any) -> Any:
    a = _numbers(x, "sum")
    return _result(a.sum(dtype=np.float64) if a.dtype.kind == "f" else a.sum())


def _extreme(name: str, pick: Callable[[np.ndarray], Any]) -> None:
    def call(values: Values, *xs: Any) -> Any:
        parts = [_numbers(x, name) for x in xs]
        if not all(a.size for a in parts):
            raise LlmvizError(f"{name} of an empty array")
        picked = [_result(pick(a)) for a in parts]
        return picked[0] if len(picked) == 1 else _result(pick(np.array(picked)))

    meaning = "smallest" if name == "min" else "largest"
    _function(f"{name}(x, ...)", f"{meaning} value; NaN where there is one", 1, 8)(call)


_extreme("min", np.min)
_extreme("max", np.max)


def _elementwise(name: str, meaning: str, fn: Callable[..., Any]) -> None:
    def call(values: Values, x: Any) -> Any:
        a = _operand(x, name)
        _check_size(np.size(a))
        out = _result(fn(a))
        return int(out) if name == "abs" and isinstance(x, int) else out

    _function(f"{name}(x)", meaning)(call)


_elementwise("abs", "each value without its sign", np.abs)
_elementwise("sqrt", "square root of each value", np.sqrt)
_elementwise("exp", "e to the power of each value", np.exp)
_elementwise("log", "natural logarithm of each value", np.log)


@_function("len(x)", "length of a text or list, or of an array's first axis")
def _len(values: Values, x: Any) -> int:
    if isinstance(x, (str, tuple)) or (isinstance(x, np.ndarray) and x.ndim):
        return len(x)
    raise LlmvizError(f"{_kind(x)} has no length")


@_function("any(x)", "whether some value is true")
def _any(values: Values, x: Any) -> bool:
    return any(bool(c.any()) for c in _chunks(_numbers(x, "any")))


@_function("all(x)", "whether all values are true")
def _all(values: Values, x: Any) -> bool:
    return all(bool(c.all()) for c in _chunks(_numbers(x, "all")))


@_function("argmax(x)", "place of the largest value")
def _argmax(values: Values, x: Any) -> Any:
    a = _numbers(x, "argmax")
    if not a.size:
        raise LlmvizError("argmax of an empty array")
    place = tuple(int(i) for i in np.unravel_index(int(a.argmax()), a.shape or (1,)))
    return place[0] if len(place) == 1 else place


def _not_finite(name: str, test: Callable[..., Any]) -> None:
    def call(values: Values, x: Any) -> int:
        a = _numbers(x, name)
        return sum(int(test(c).sum()) for c in _chunks(a)) if a.dtype.kind == "f" else 0

    what = "NaN" if name == "nan" else "infinite values of either sign"
    _function(f"{name}(x)", f"how many {what} there are")(call)


_not_finite("nan", np.isnan)
_not_finite("inf", np.isinf)


@_function("cosine(a, b)", "cosine of the angle between two arrays of one shape", 2, 2)
def _cosine(values: Values, x: Any, y: Any) -> float:
    a, b = _numbers(x, "cosine"), _numbers(y, "cosine")
    if a.shape != b.shape:
        raise LlmvizError(f"cosine: shapes {list(a.shape)} and {list(b.shape)} differ")
    dot = sum(
        float(np.dot(p.astype(np.float64), q.astype(np.float64)))
        for p, q in zip(_chunks(a), _chunks(b), strict=True)
    )
    length = _norm(values, a) * _norm(values, b)
    return dot / length if length else math.nan


# -- functions of logits: of an array with several rows they read the last, the newest token's ----


def _logits(values: Values, given: tuple[Any, ...], who: str) -> Any:
    x = given[0] if given else values.get("logits")
    return Missing if x is Missing else _row(x, who)


def _token(values: Values, token: Any, n_vocab: int) -> int:
    if isinstance(token, TokenText):
        token = token.id
    elif isinstance(token, str):
        token = values.token_id(token)
    whole = isinstance(token, float) and token.is_integer()
    if isinstance(token, bool) or not (isinstance(token, int) or whole):
        raise LlmvizError(f'a token is a text such as " Paris" or an id, not {_kind(token)}')
    if not 0 <= token < n_vocab:
        raise LlmvizError(f"there is no token {int(token)} among {n_vocab} logits")
    return int(token)


@_function("entropy(logits)", "entropy of their softmax, nats")
def _entropy(values: Values, x: Any) -> float:
    return lens.entropy(_row(x, "entropy"))


@_function("softmax(x)", "probabilities along the last axis")
def _softmax(values: Values, x: Any) -> np.ndarray:
    a = _numbers(x, "softmax")
    if not a.ndim or not a.size:
        raise LlmvizError(f"softmax needs an array, not {_kind(x)}")
    _check_size(a.size)
    rows = a.reshape(-1, a.shape[-1])
    return np.stack([probabilities(row) for row in rows]).astype(np.float32).reshape(a.shape)


@_function("rank(token, logits)", "the token's place among the logits: 1 is the largest", 1, 2)
def _rank(values: Values, token: Any, *given: Any) -> Any:
    row = _logits(values, given, "rank")
    return Missing if row is Missing else 1 + lens.rank_of(_token(values, token, row.size), row)


@_function("prob(token, logits)", "the token's softmax probability before the samplers", 1, 2)
def _prob(values: Values, token: Any, *given: Any) -> Any:
    row = _logits(values, given, "prob")
    if row is Missing:
        return Missing
    return float(probabilities(row)[_token(values, token, row.size)])


@_function("logit(token, logits)", "the token's logit", 1, 2)
def _logit(values: Values, token: Any, *given: Any) -> Any:
    row = _logits(values, given, "logit")
    return Missing if row is Missing else float(row[_token(values, token, row.size)])


@_function("lens(node)", "logits if that layer were the last, of its last row: lens(l_out-12)")
def _lens(values: Values, x: Any) -> np.ndarray:
    return values.lens(_row(x, "lens"))


# -- showing a result -----------------------------------------------------------------------------


def show_value(x: Any) -> str:
    """A result in a few words: ``not yet``, ``3.1416``, ``' Paris'``, ``float32 [9, 5, 256]``."""
    if isinstance(x, bool) or x is Missing:
        return str(x)
    if isinstance(x, int):
        return f"{x:,}"
    if isinstance(x, float):
        return f"{x:.6g}"
    if isinstance(x, str):
        return repr(x if len(x) <= 60 else x[:29] + "…" + x[-30:])
    if isinstance(x, tuple):
        more = f", … {len(x):,} in all" if len(x) > 8 else ""
        return f"[{', '.join(map(show_value, x[:8]))}{more}]"
    if x.ndim == 1 and x.size <= 4:
        return f"[{', '.join(show_value(v.item()) for v in x)}]"
    return f"{x.dtype} {list(x.shape)}"
