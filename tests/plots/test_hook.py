"""Each view of the notebook gives its figure, drawn with the view's own settings."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("anywidget")

from llmviz import show
from llmviz.errors import LlmvizError
from llmviz.trace import Debugger

from . import runs
from .runs import by_gid, texts


@pytest.fixture(scope="module")
def dbg(tiny_model: Callable[..., str]) -> Debugger:
    return runs.of(tiny_model(), "hello world", n=3, n_ctx=64)


def test_every_view_of_show_has_a_figure(dbg: Debugger) -> None:
    for name in ("attention", "flow", "kv_cache", "logits", "map", "tensor", "tokens"):
        with getattr(show, name)(dbg) as view:
            figure = view.figure()
            assert figure.get_size_inches()[0] == 7.2, name
            view.projector = True
            assert view.figure().get_size_inches()[0] == 10, name
            assert view.figure(size="column").get_size_inches()[0] == 3.5, name


def test_a_figure_has_the_views_settings(dbg: Debugger) -> None:
    with show.attention(dbg, layer=1, head=1, query=2, theme="dark") as view:
        figure = view.figure()
        assert "layer 1, head 1" in texts(figure) and figure.get_facecolor()[0] < 0.2
        image = by_gid(figure, "weights").get_array()
        shown = np.frombuffer(view.row, "<f4")
        np.testing.assert_array_equal(np.ma.filled(image, np.nan)[2], shown[: image.shape[1]])
        assert "head 0" in texts(view.figure(head=0))
    with show.tensor(dbg) as view, pytest.raises(LlmvizError, match="no figure of 'nothing'"):
        view.figure("nothing")
