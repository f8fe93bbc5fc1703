"""What a load found, where each number came from, and the cache's size against the real one."""

from __future__ import annotations

import re

import gguf as official
import numpy as np
import pytest
from tiny_archs import write_arch

import llmviz
from llmviz.errors import GGUFError, LlmvizError
from llmviz.gguf import open_gguf
from llmviz.trace import Debugger
from llmviz.trace.kv_size import kv_size, kv_size_of
from llmviz.trace.loading import loading_of, of_path
from llmviz.trace.placement import weights_of

ASKED = [
    {"n_ctx": 1},
    {"n_ctx": 256},
    {"n_ctx": 257},
    {"n_ctx": 0},
    {"n_ctx": 300, "n_seq_max": 2},
    {"n_ctx": 1000, "n_seq_max": 3},
    {"n_ctx": 64, "n_seq_max": 7, "type_k": "f32"},
    {"n_ctx": 1000, "n_seq_max": 3, "kv_unified": True, "type_v": "f32"},
    {"n_ctx": 512, "type_k": "q8_0", "type_v": "q4_0"},
]


@pytest.fixture(scope="module")
def model(tiny_model):
    return llmviz.load(tiny_model(n_layer=3, n_embd=128, n_head=4, n_head_kv=2))


@pytest.mark.parametrize("params", ASKED, ids=str)
def test_the_formula_is_what_a_context_allocates(model, params):
    size = kv_size(model.hparams, **params)
    ctx = model.context(**params)
    assert size.nbytes == ctx.memory.total_size()
    assert size.k_bytes == ctx.memory.size_k_bytes() and size.v_bytes == ctx.memory.size_v_bytes()
    assert (size.params.n_ctx, size.params.n_ctx_seq) == (ctx.n_ctx, ctx.n_ctx_seq)
    assert sum(t.nbytes for t in size.terms) == size.nbytes
    assert kv_size_of(ctx) == size


@pytest.mark.parametrize("params", ASKED, ids=str)
def test_the_formula_is_llamacpps_too(model, params, llamacpp):
    size = kv_size(model.hparams, **params)
    quantized = "q" in params.get("type_v", "")
    with llamacpp.Reference(model.path, flash_attn=quantized, **params) as reference:
        assert reference.context_value("n_ctx") == size.params.n_ctx
        assert reference.context_value("n_ctx_seq") == size.params.n_ctx_seq
        log = "".join(line.text for line in reference.log)
    found = re.search(r"llama_kv_cache: size = +([\d.]+) MiB", log)
    assert found, log
    assert float(found[1]) == pytest.approx(size.nbytes / 2**20, abs=0.006)


def test_nothing_is_allocated_for_a_size(model):
    size = kv_size(model.hparams, n_ctx=10**12)
    assert size.nbytes > 10**13
    for params, word in (({"n_seq_max": 999}, "n_seq_max"), ({"type_k": "q2_k"}, "q2_k")):
        with pytest.raises(LlmvizError, match=word):
            kv_size(model.hparams, **params)


def test_every_rule_says_its_numbers(model):
    rules = kv_size(model.hparams, n_ctx=1000, n_seq_max=3).rules
    assert [re.findall(r"[\d,]+", r)[-1] for r in rules] == ["1,024", "341", "512", "1,536"]
    assert kv_size(model.hparams, n_ctx=512).rules == ()


def test_each_hyperparameter_names_its_key_or_why_there_is_none(tiny_model):
    path = tiny_model(n_layer=3)
    rows = {h.name: h for h in of_path(path).hparams}
    reader = official.GGUFReader(path)
    for name, key in (("n_embd", "embedding_length"), ("n_head_arr", "attention.head_count")):
        field = reader.fields[f"llama.{key}"]
        assert rows[name].key == f"llama.{key}" and rows[name].type == "u32"
        assert rows[name].value == str(field.contents())
    eps = rows["f_norm_rms_eps"]
    assert eps.key == "llama.attention.layer_norm_rms_epsilon" and eps.type == "f32"
    assert np.float32(eps.value) == np.float32(1e-5)
    for h in rows.values():
        assert (bool(h.key) != bool(h.why)) and (not h.key or h.key in reader.fields)
    assert "llama.rope.scaling.attn_factor" in rows["rope_attn_factor"].why
    assert "no key" in rows["f_norm_eps"].why
    model = llmviz.load(path, kv_overrides={"llama.rope.freq_base": 5000.0})
    (base,) = [h for h in loading_of(model).hparams if h.name == "rope_freq_base_train"]
    assert (base.value, base.why) == ("5000.0", "given in kv_overrides")


def test_of_a_path_only_the_header_is_read(tiny_model):
    x = of_path(tiny_model())
    assert [s.state for s in x.steps] == ["done"] * 5 + ["later"] * 2
    assert all(s.seconds >= 0 for s in x.steps[:5]) and x.steps[5].seconds is None
    assert x.hp is not None and not x.weights.loaded and x.weights.memory == 0
    assert "not run" in x.note
    with pytest.raises(GGUFError):
        of_path(__file__)
    with pytest.raises(LlmvizError, match="a path, a model"):
        loading_of(7)


def test_of_a_run_the_times_are_the_runs(tiny_model):
    with Debugger(tiny_model(), [1, 2, 3], n_ctx=300) as dbg:
        assert [s.state for s in loading_of(dbg).steps] == ["later"] * 7
        dbg.break_on("prompt")
        dbg.run()
        x = loading_of(dbg)
        assert [s.seconds for s in x.steps] == [dbg.seconds[n] for n in range(1, 8)]
        assert all(s.state == "done" and s.found for s in x.steps)
        assert x.ctx is dbg.ctx and "512 cells" in x.steps[6].found
        again = loading_of(dbg.ctx)
        assert [s.found for s in again.steps] == [s.found for s in x.steps]
        assert all(s.seconds is None for s in again.steps)


def test_weights_are_counted_by_type_and_by_place(tiny_model):
    path = tiny_model(weight_type="Q8_0", n_layer=3)
    model = llmviz.load(path)
    with open_gguf(path) as gguf:
        infos = gguf.tensor_infos
        for w in (weights_of(model, gguf), weights_of(None, gguf)):
            assert [p.what for p in w.places] == ["input", "0", "1", "2", "output"]
            assert sum(p.n for p in w.places) == w.n_tensors == len(infos)
            assert w.file == sum(i.nbytes for i in infos.values()) == sum(p.file for p in w.places)
    w = weights_of(model, model.gguf)
    arrays = [t.data for t in model.tensors.values() if t.data is not None]
    assert w.devices == ("CPU",) and w.memory <= sum(a.nbytes for a in arrays)
    q8 = next(t for t in w.types if t.type == "Q8_0")
    assert q8.file == sum(i.nbytes for i in infos.values() if i.type.name == "Q8_0")
    assert weights_of(None, model.gguf).devices == ("",)


@pytest.fixture(scope="module")
def windowed(tmp_path_factory):
    """Six layers; five of them see a window of 40 tokens and have a cache of their own."""
    keys = {
        "block_count": 6,
        "attention.key_length": 16,
        "attention.value_length": 16,
        "attention.sliding_window": 40,
    }
    return llmviz.load(write_arch(tmp_path_factory.mktemp("w") / "x.gguf", "gemma3", keys=keys))


@pytest.mark.parametrize(
    "params",
    [
        {"n_ctx": 4096},
        {"n_ctx": 4096, "n_ubatch": 64, "n_seq_max": 2},
        {"n_ctx": 4096, "n_ubatch": 200, "n_seq_max": 8, "kv_unified": True},
        {"n_ctx": 1024, "swa_full": True},
    ],
    ids=str,
)
def test_layers_with_a_window_have_a_formula_of_their_own(windowed, params, llamacpp):
    size = kv_size(windowed.hparams, **params)
    ctx = windowed.context(**params)
    assert size.nbytes == ctx.memory.total_size() and kv_size_of(ctx) == size
    assert {t.window for t in size.terms} == {0, 40}
    assert {t.layers for t in size.terms} == {"0..4", "5"}
    assert any("swa" in r or "window of 40" in r for r in size.rules)
    with llamacpp.Reference(windowed.path, **{"swa_full": False, **params}) as reference:
        log = "".join(line.text for line in reference.log)
    found = re.findall(r"llama_kv_cache: size = +([\d.]+) MiB", log)
    assert len(found) == 2
    assert sum(map(float, found)) == pytest.approx(size.nbytes / 2**20, abs=0.012)
