"""The figures of a run of a real model: text, numbers and names on them are that run's."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from llmviz import plots
from llmviz.plots.text import percent, piece
from llmviz.trace import Debugger

from . import runs
from .runs import by_gid, texts


@pytest.fixture(scope="module")
def dbg(smollm2_path: str) -> Debugger:
    return runs.of(smollm2_path, "The capital of France is", n=3, n_ctx=256)


def test_the_run_can_be_read_off_its_figures(dbg: Debugger) -> None:
    recorder = dbg.recorder
    figure = plots.attention(dbg, layer=12, head=3, query=4)
    image = by_gid(figure, "weights").get_array()
    n = image.shape[0]
    assert n == len(dbg.tokens) - 1
    want = recorder.attention_matrix(12, 3, range(n))
    np.testing.assert_array_equal(np.ma.filled(image, np.nan), want)
    assert "·France" in texts(figure) and "kq_soft_max-12" in texts(figure)
    np.testing.assert_allclose(np.ma.filled(image, 0).sum(axis=1), 1, atol=1e-5)

    kept = recorder.value("l_out-29")
    shown = by_gid(plots.tensor(dbg, "l_out-29"), "values").get_array()
    np.testing.assert_array_equal(shown, kept.array[:, :160])

    first = dbg.tokens[5]
    figure = plots.logits(dbg, selected=5)
    assert f"Token 5: {piece(first.text)}" in texts(figure) and percent(first.p_raw) in texts(
        figure
    )
    for draw in (plots.tokens, plots.output, plots.kv_cache, plots.map):
        draw(dbg, theme="dark").draw_without_rendering()


@pytest.mark.parametrize("view", ["attention", "kv_cache", "logits", "tensor"])
def test_the_same_state_gives_the_same_file(dbg: Debugger, view: str, tmp_path) -> None:
    files = []
    for name in ("a.svg", "b.svg"):
        figure = getattr(plots, view)(dbg)
        figure.savefig(tmp_path / name, metadata={"Date": None})
        files.append((tmp_path / name).read_bytes())
    assert files[0] == files[1]
