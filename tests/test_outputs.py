"""Output rows: which there are, in whose order, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from llmviz.ggml.graph import new_tensor
from llmviz.ggml.types import GGMLType
from llmviz.outputs import Outputs


def tensor(rows: list[list[float]]) -> object:
    a = np.array(rows, np.float32).reshape(len(rows), -1 if rows else 2)
    return new_tensor(GGMLType.F32, a.shape[1], a.shape[0], name="result").adopt(a)


def made(*ubatches: tuple[list[list[float]], list[int]], n_batch: int = 8) -> Outputs:
    """Rows of each ubatch with the batch index that each row belongs to."""
    out = Outputs(n_vocab=2, n_embd=2)
    ids = [i for _, idxs in ubatches for i in idxs]
    out.reserve(len(ids), n_batch, embeddings=True)
    for rows, _ in ubatches:
        out.append(tensor(rows), tensor([[10 * x for x in r] for r in rows]))  # type: ignore[arg-type]
    out.finish(ids)
    return out


def test_rows_are_found_by_the_tokens_index() -> None:
    out = made(([[1, 1], [2, 2]], [0, 2]))
    assert out.n_outputs == 2
    assert out.output_ids.tolist() == [0, -1, 1, -1, -1, -1, -1, -1]
    assert out.logits_ith(0).tolist() == [1, 1]
    assert out.logits_ith(2).tolist() == [2, 2]
    assert out.embeddings_ith(2).tolist() == [20, 20]


def test_a_negative_index_counts_rows_not_tokens() -> None:
    out = made(([[1, 1], [2, 2]], [0, 2]))
    assert out.logits_ith(-1).tolist() == [2, 2]
    assert out.logits_ith(-2).tolist() == [1, 1]


def test_rows_come_in_the_order_of_the_batch() -> None:
    """Ubatches of several sequences hold the tokens in another order."""
    out = made(([[3, 3], [0, 0]], [3, 0]), ([[1, 1]], [1]), ([], []), ([[7, 7]], [7]))
    assert out.logits_view().tolist() == [[0, 0], [1, 1], [3, 3], [7, 7]]
    for i in (0, 1, 3, 7):
        assert out.logits_ith(i).tolist() == [i, i]
        assert out.embeddings_ith(i).tolist() == [10 * i, 10 * i]
    assert [int(out.logits_ith(-k)[0]) for k in (1, 2, 3, 4)] == [7, 3, 1, 0]


@pytest.mark.parametrize(
    ("i", "reason"),
    [
        (1, r"batch\.logits\[1\] != true"),
        (3, r"batch\.logits\[3\] != true"),
        (-3, r"negative index out of range \[0, 2\)"),
        (8, r"out of range \[0, 8\)"),
        (100, r"out of range \[0, 8\)"),
    ],
)
def test_refusals(i: int, reason: str) -> None:
    out = made(([[1, 1], [2, 2]], [0, 2]))
    with pytest.raises(IndexError, match=f"get_logits_ith: .* logits id {i}, reason: {reason}"):
        out.logits_ith(i)
    with pytest.raises(IndexError, match=f"embeddings id {i}, reason: {reason}"):
        out.embeddings_ith(i)


def test_before_anything_was_decoded() -> None:
    with pytest.raises(IndexError, match="nothing was decoded"):
        Outputs(2, 2).logits_ith(-1)


def test_no_rows() -> None:
    out = made(([], []))
    assert out.logits_view().shape == (0, 2)
    with pytest.raises(IndexError, match=r"range \[0, 0\)"):
        out.logits_ith(-1)


def test_no_embeddings() -> None:
    out = Outputs(2, 2)
    out.reserve(1, 4, embeddings=False)
    out.append(tensor([[1, 1]]), tensor([[2, 2]]))  # type: ignore[arg-type]
    out.finish([0])
    with pytest.raises(IndexError, match="embeddings=True"):
        out.embeddings_ith(0)


def test_the_next_decode_forgets_the_rows() -> None:
    out = made(([[1, 1], [2, 2]], [0, 2]))
    out.reserve(1, 8, embeddings=False)
    with pytest.raises(IndexError):
        out.logits_ith(-1)
    out.append(tensor([[5, 5]]), None)  # type: ignore[arg-type]
    out.finish([1])
    assert out.logits_ith(1).tolist() == out.logits_ith(-1).tolist() == [5, 5]
    with pytest.raises(IndexError):
        out.logits_ith(0)


def test_rows_are_views_and_all_of_them_a_read_only_one() -> None:
    out = made(([[1, 1], [2, 2]], [0, 2]))
    out.logits_ith(0)[0] = 9
    assert out.logits_view()[0].tolist() == [9, 1]
    with pytest.raises(ValueError, match="read-only"):
        out.logits_view()[0, 0] = 3
    out.replace_logits(np.full((2, 2), 4))
    assert out.logits_ith(2).tolist() == [4, 4]
