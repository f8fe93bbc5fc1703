"""numpy ops in parts: the same bits with any number of threads, errors come through."""

from __future__ import annotations

import numpy as np
import pytest

from llmviz.ggml.backends.share import share


@pytest.mark.parametrize("n_threads", [0, 1, 2, 5])
def test_every_item_once(n_threads):
    x = np.linspace(-9, 9, 7 * 512, dtype=np.float32).reshape(7, 512)
    out = np.zeros_like(x)

    def work(item: slice) -> None:
        out[item] += np.exp(x[item])

    share(7, n_threads, work)
    np.testing.assert_array_equal(out, np.exp(x))


def test_an_error_is_raised():
    def work(item: slice) -> None:
        if item.start == 1:
            raise ValueError("one of them")

    with pytest.raises(ValueError, match="one of them"):
        share(4, 2, work)


def test_numbers_that_overflow_warn_nowhere(recwarn):
    x = np.full((4, 8), 1e38, np.float32)
    share(4, 2, lambda item: np.exp(x[item]))
    assert not recwarn.list
