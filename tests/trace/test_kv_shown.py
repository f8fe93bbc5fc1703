"""What the KV view shows of the caches: norms, sizes and the next search are the engine's own."""

from __future__ import annotations

import numpy as np
import pytest
from tiny_archs import write_arch

import llmviz
from llmviz.trace import Debugger
from llmviz.trace.kv_shown import caches, row_norms, strips

from . import toy

PROMPT = [5, 9, 11, 7, 6]
LAYERS = 3


@pytest.fixture(scope="module")
def model(tiny_model):
    return llmviz.load(tiny_model(n_layer=LAYERS, n_embd=128))


def debug(model, n: int, **params) -> Debugger:
    dbg = Debugger(model, PROMPT, n_predict=4, **{"n_ctx": 512, **params})
    for _ in range(n):
        dbg.next_token()
    return dbg


@pytest.mark.parametrize(
    "params", [{"type_k": "f32", "type_v": "f32"}, {}, {"type_k": "q8_0", "type_v": "f16"}]
)
def test_norms_are_those_of_the_keys_and_values_that_were_written(model, params) -> None:
    dbg = debug(model, 0, **params)
    names = {f"{n}-{il}" for n in ("Kcur", "Vcur") for il in range(LAYERS)}
    dbg.recorder.ask(names, names.__contains__)
    for _ in range(2):
        dbg.next_token()
    (strip,) = strips(dbg, 256, 64, {})
    assert strip.norms.layers == list(range(LAYERS))
    exact = params.get("type_k") == "f32"
    for il in range(LAYERS):
        for name, found in (("Kcur", strip.norms.k), ("Vcur", strip.norms.v)):
            last = {k.pass_: k.array for k in dbg.recorder.values(f"{name}-{il}")}
            rows = np.concatenate([a.reshape(len(a), -1) for a in last.values()])
            want = np.linalg.norm(rows, axis=1)  # [n_tokens]
            got = found[il, : len(PROMPT) + 1]
            np.testing.assert_allclose(got, want, rtol=1e-6 if exact else 2e-2)
    assert np.isnan(strip.norms.k[:, len(PROMPT) + 1 :]).all(), "empty cells have none"


def test_sizes_and_the_next_search(model) -> None:
    dbg = debug(model, 2)
    (strip,) = strips(dbg, 256, 64)
    memory = dbg.ctx.memory
    assert strip.heads == (len(PROMPT) + 1,) and strip.norms is None and strip.title == ""
    s = strip.sizes
    assert s.total == memory.total_size() and s.n_read == 256 and s.read * 2 == s.total
    assert s.used == s.total * 6 // 512 and s.formula == memory.size_formula()
    assert caches(None) == [] and caches(memory) == [("", memory)]


def test_a_row_that_is_not_written_yet_has_no_norm(model) -> None:
    dbg = debug(model, 1)
    known: dict = {}
    strips(dbg, 256, 64, known)
    dbg.break_on("kq_soft_max-1")
    dbg.run()
    n = len(PROMPT)
    (strip,) = strips(dbg, 256, 64, known)
    assert np.isfinite(strip.norms.k[0, : n + 1]).all()
    assert np.isnan(strip.norms.k[1:, n]).all() and np.isfinite(strip.norms.k[1:, :n]).all()
    before = strip.norms.k[2, :n].copy()
    dbg.clear_break()
    dbg.next_token()
    (strip,) = strips(dbg, 256, 64, known)
    assert np.isfinite(strip.norms.v[:, : n + 1]).all()
    np.testing.assert_array_equal(strip.norms.k[2, :n], before)
    dbg.prev_token()
    (strip,) = strips(dbg, 256, 64, known)
    assert np.isnan(strip.norms.k[:, n:]).all() and strip.record.used == n


def test_a_run_without_an_engine_has_cells_alone() -> None:
    dbg = Debugger(toy.run(n_predict=1))
    assert strips(dbg, 256, 64, {}) == []
    dbg.run()
    (strip,) = strips(dbg, 256, 64, {})
    assert strip.sizes is None and strip.norms is None and strip.heads == ()


def test_layers_with_a_window_have_a_strip_of_their_own(tmp_path) -> None:
    keys = {
        "attention.sliding_window": 8,
        "attention.sliding_window_pattern": 2,
        "attention.key_length": 32,
        "attention.value_length": 32,
    }
    path = write_arch(tmp_path / "x.gguf", arch="gemma3", optional=("output.weight",), keys=keys)
    model = llmviz.load(path)
    dbg = Debugger(model, list(range(3, 23)), n_predict=3, n_ctx=512, n_ubatch=8)
    dbg.next_token()
    dbg.next_token()
    everything, windowed = strips(dbg, 256, 64, {})
    assert everything.title.endswith("that see everything")
    assert windowed.title.endswith("with a window of 8 tokens")
    both = sorted(everything.norms.layers + windowed.norms.layers)
    assert both == list(range(model.hparams.n_layer))
    assert windowed.record.used == windowed.norms.cache.cells[0].n_used
    assert len(windowed.record.fresh) == 1 and windowed.sizes.total < everything.sizes.total
    cache = windowed.norms.cache
    cell = windowed.heads[0] - 1
    assert row_norms(cache, cache.layers[0], np.array([cell]), "k")[0] == windowed.norms.k[0, cell]
    # the recorder reads these layers' attention with their own cells
    il = windowed.norms.layers[0]
    block = dbg.recorder.attention[il][-1]
    assert block.k_pos[cell] == block.q_pos[-1] == 20
    assert block.p[:, 0, block.k_pos <= 20 - 8].max() == 0, "nothing behind the window"
