"""Runs of llama.cpp itself: recorded, opened in every view, compared with ours."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import gguf
import numpy as np
import pytest

import llmviz
from llmviz import show
from llmviz.errors import GGUFError, LlmvizError
from llmviz.sampling import Chain, Dist, Greedy, TopK
from llmviz.trace import Debugger, Trace, open_trace
from llmviz.trace.compare_sides import compares
from llmviz.trace.llamacpp import Recording, record_llamacpp
from tests.parity import plain
from tests.tiny_models import add_spm

pytest.importorskip("zarr")

PROMPT = "The cat sat on the mat"
CONTEXT: dict[str, Any] = {"n_ctx": 64, "n_ubatch": 4, "type_k": "f32", "type_v": "f32"}
THREADS = {"n_threads": 1}  # more of them wait for each other at every node


def recorded(path: str, **options: Any) -> Recording:
    options = {"chain": Chain([Greedy()]), "n_predict": 4, "keep": "*"} | options
    return record_llamacpp(path, PROMPT, **options, **CONTEXT, **THREADS)


def ours(path: str, n_predict: int = 4, **options: Any) -> Debugger:
    model = llmviz.load(path, weights="f32")
    dbg = Debugger(model, PROMPT, Chain([Greedy()]), n_predict=n_predict, **options, **CONTEXT)
    dbg.run_to_end()
    return dbg


@pytest.fixture(scope="module")
def path(llamacpp: ModuleType, tiny_model: Callable[..., str]) -> str:
    return tiny_model()


@pytest.fixture(scope="module")
def theirs(path: str) -> Any:
    with recorded(path) as run:
        yield run


def test_it_is_a_trace_and_says_whose(theirs: Recording) -> None:
    assert isinstance(theirs, Trace) and theirs.engine == "llama.cpp"
    assert "llama.cpp" in repr(theirs) and "llama.cpp" in theirs.model.desc
    assert "xllamacpp" in theirs.attrs["engine"]["version"]
    assert theirs.finished and theirs.recorder.stop == "n_predict"
    assert theirs.missing == []
    assert theirs.model.hparams.n_layer == 2 and theirs.model.hparams.n_head(0) == 4
    assert "prompt" in theirs.attrs and theirs.attrs["context"]["n_ubatch"] == 4


def test_values_are_those_that_the_reference_reads(
    theirs: Recording, path: str, llamacpp: ModuleType
) -> None:
    """The prompt and one token, in one ubatch of four at a time: bit for bit."""
    with llamacpp.Reference(path, nodes=True, **CONTEXT, **THREADS) as engine:
        ids = engine.tokenize(PROMPT)
        assert [t.id for t in theirs.tokens if t.given] == ids
        assert engine.decode(ids) == 0
        ids = [int(engine.logits_ith(-1).argmax())]
        assert ids[0] == next(t.id for t in theirs.tokens if not t.given)
        assert engine.decode(ids) == 0
        nodes = [n for n in engine.nodes if n.compute and compares(n.name, n.op)]
    mine = [
        r for r in theirs.all_events if r.kind == "node" and compares(r.name, stored_op(theirs, r))
    ]
    stored = theirs._stored
    seen = 0
    for record, node in zip(mine, nodes, strict=False):
        assert plain(record.name) == plain(node.name)
        assert record.shape is not None
        if not node.value.size:
            continue
        kept = next(k for k in stored.values(record.name) if k.n == record.n)
        assert kept.array.tobytes() == node.value.tobytes(), record.name
        seen += 1
    assert seen == sum(bool(n.value.size) for n in nodes) > 100


def stored_op(trace: Trace, record: Any) -> str:
    i = trace._index_of(record.n)
    tensor = trace._stored.tensor(record.name, len(record.shape), nth=trace._stored.nth_in_pass(i))
    return str(tensor.op)


def test_events_are_those_of_our_engine(theirs: Recording, path: str) -> None:
    """Scopes, nodes, shapes, in the same order; what only we can show is left out."""
    dbg = ours(path, want="*")

    def told(records: Any) -> list[Any]:
        return [
            (r.kind, r.name, r.shape)
            for r in records
            if r.kind == "node" or (r.kind in ("enter", "exit") and r.step in (11, 13, 14, 15, 16))
        ]

    hidden = {"build_graph", "set_inputs", "balloc_init"}
    mine = [t for t in told(dbg.events) if t[1] not in hidden]
    assert told(theirs.all_events) == mine
    assert theirs.text == dbg.text
    assert [t.id for t in theirs.tokens] == [t.id for t in dbg.tokens]
    assert np.allclose(theirs.recorder.logits, dbg.recorder.logits, atol=1e-4)
    a, b = theirs.recorder.cells, dbg.recorder.cells
    assert a is not None and b is not None
    assert np.array_equal(a.pos, b.pos) and np.array_equal(a.tok, b.tok)
    assert np.array_equal(a.seq, b.seq)
    for layer in (0, 1):
        positions = range(6)
        x, y = (run.recorder.attention_matrix(layer, 1, positions) for run in (theirs, dbg))
        assert np.allclose(x, y, atol=1e-5, equal_nan=True)
    graph = {t.name: t.shape for t in dbg.ctx.graph.gf.nodes}
    assert {t.name: t.shape for t in theirs.ctx.graph.gf.nodes} == graph


def test_compare_finds_nothing_where_weights_are_f32(theirs: Recording, path: str) -> None:
    dbg = ours(path)
    with llmviz.compare(dbg, theirs, tolerance=1e-4) as c:
        assert c.first is None, c.first
        assert c.first_token is None and c.same_vocabulary
        nodes = c.nodes_of(2)
        assert all(d.error is not None for d in nodes), [d for d in nodes if d.error is None]
        assert all(m.same is not False for m in c.matches), [m for m in c.matches if not m.same]
        assert "llama.cpp" in c.report()


def test_compare_opens_at_the_first_quantized_product(
    llamacpp: ModuleType, tiny_model: Callable[..., str]
) -> None:
    path = tiny_model(weight_type="Q4_1")
    run = recorded(path, n_predict=1)
    with run, llmviz.compare(ours(path, 1), run, tolerance=1e-4) as c:
        assert c.first is not None
        assert (c.first.name, c.first.op, c.first_pass) == ("Qcur-0", "MUL_MAT", 0)


def test_a_seeded_chain_gives_our_tokens(path: str) -> None:
    chain = Chain([TopK(20), Dist(7)])
    with recorded(path, chain=chain, keep=None) as run:
        dbg = Debugger(llmviz.load(path), PROMPT, chain, n_predict=4, **CONTEXT)
        dbg.run_to_end()
        assert [t.id for t in run.tokens] == [t.id for t in dbg.tokens]
        assert [r.name for r in run.samplings[:2]] == ["top_k", "dist"]
        assert run.samplings[0].after == 20 and run.samplings[1].draw is not None
        assert run.kept_names == [] and any("values of nodes" in m for m in run.missing)


def test_what_is_not_wanted_is_not_looked_at(path: str) -> None:
    with recorded(path, n_predict=1, keep=["l_out-*"], watch=None) as run:
        assert run.kept_names == ["l_out-0", "l_out-1"]
        # attention is what the recorder itself wants
        names = {r.name for r in run.all_events if r.kind == "node"}
        assert names == {"l_out-0", "l_out-1", "kq_soft_max-0", "kq_soft_max-1"}
        assert run.recorder.stats("l_out-0") is not None


def test_the_budget_is_kept_and_told(path: str) -> None:
    with recorded(path, budget=20_000) as run:
        assert run.recorder.dropped > 0
        assert any("dropped" in m for m in run.missing)


def test_closed_it_is_gone(path: str) -> None:
    with recorded(path, n_predict=1, keep=None, watch=None) as run:
        assert os.path.exists(run.path)
    assert not os.path.exists(run.path)


def test_saved_it_opens_with_its_label(theirs: Recording, tmp_path: Path) -> None:
    out = tmp_path / "theirs.zarr.zip"
    theirs.save(out)
    theirs.save(out)  # in the place of the first
    assert os.listdir(tmp_path) == [out.name]
    with open_trace(out) as again:
        assert again.engine == "llama.cpp" and "llama.cpp" in repr(again)
        assert again.text == theirs.text


def test_its_file_goes_with_it(path: str) -> None:
    run = recorded(path, n_predict=1, keep=None, watch=None)
    file = run.path
    assert os.path.exists(file)
    del run
    gc.collect()
    assert not os.path.exists(file)


VIEWS = (
    "attention", "flow", "graph", "heads", "kv_cache", "load", "logits", "map", "output", "panel",
    "sampler", "sentinels", "tensor", "time", "timeline", "tokens", "batch",
)  # fmt: skip


@pytest.mark.parametrize("name", VIEWS)
def test_every_view_takes_it(theirs: Recording, name: str) -> None:
    with getattr(show, name)(theirs) as view:
        assert name in ("batch", "load") or view.engine == "llama.cpp"
        assert view.fallback_text()


def test_the_source_line_is_not_said_to_have_run(theirs: Recording) -> None:
    theirs.goto(next(r.n for r in theirs.all_events if r.name == "kq_soft_max-1"))
    with show.panel(theirs) as view:
        places = [p for p in view.source if p]
    theirs.run()
    assert [p["role"] for p in places] == ["llmviz's kernel"]
    assert "llama.cpp computed this value" in places[0]["note"]


def test_figures_and_pages_name_it(theirs: Recording, tmp_path: Path) -> None:
    plots = llmviz.plots
    figures = (plots.attention, plots.logits, plots.kv_cache, plots.map, plots.graph, plots.flow)
    for draw in figures:
        texts = [t.get_text() for t in draw(theirs).texts]
        assert "recorded from llama.cpp" in texts, (draw, texts)
    page = tmp_path / "run.html"
    theirs.to_html(page)
    assert "llama.cpp</h1>" in page.read_text("utf-8")


def write_mamba(path: Path, n_layer: int = 2, n_embd: int = 64) -> None:
    """A random recurrent model: no attention, no cells."""
    inner, state, rank, conv = 2 * n_embd, 16, 4, 4
    sizes = {
        "context_length": 512, "embedding_length": n_embd, "block_count": n_layer,
        "feed_forward_length": 0, "attention.head_count": 0, "ssm.conv_kernel": conv,
        "ssm.inner_size": inner, "ssm.state_size": state, "ssm.time_step_rank": rank,
    }  # fmt: skip
    writer = gguf.GGUFWriter(path, "mamba")
    for key, value in sizes.items():
        writer.add_uint32(f"mamba.{key}", value)
    writer.add_float32("mamba.attention.layer_norm_rms_epsilon", 1e-5)
    n_vocab = add_spm(writer)
    shapes = {"token_embd.weight": (n_vocab, n_embd), "output_norm.weight": (n_embd,)}
    for il in range(n_layer):
        block = {
            "attn_norm.weight": (n_embd,), "ssm_in.weight": (2 * inner, n_embd),
            "ssm_conv1d.weight": (inner, conv), "ssm_conv1d.bias": (inner,),
            "ssm_x.weight": (rank + 2 * state, inner), "ssm_dt.weight": (inner, rank),
            "ssm_dt.bias": (inner,), "ssm_a": (inner, state), "ssm_d": (inner,),
            "ssm_out.weight": (n_embd, inner),
        }  # fmt: skip
        shapes |= {f"blk.{il}.{name}": shape for name, shape in block.items()}
    rng = np.random.default_rng(0)
    for name, shape in shapes.items():
        value = rng.normal(0, shape[-1] ** -0.5, shape).astype(np.float32)
        writer.add_tensor(name, -np.abs(value) if name.endswith("ssm_a") else value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_an_architecture_that_llmviz_does_not_know(llamacpp: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "mamba.gguf"
    write_mamba(path)
    with recorded(str(path), n_predict=2) as run:
        assert run.model.arch == "mamba" and run.model.desc.endswith("· llama.cpp")
        assert run.model.hparams.n_layer == 2 and len(run.text)
        assert {"layer-0", "layer-1"} <= {r.name for r in run.all_events if r.kind == "enter"}
        assert run.recorder.cells is None and run.missing == ["no attention was kept"]
        for name in VIEWS:
            getattr(show, name)(run).close()
        with pytest.raises(LlmvizError, match="no attention"):
            llmviz.plots.attention(run)
        run.to_html(tmp_path / "run.html")


def test_refusals(path: str, tmp_path: Path) -> None:
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"GGUF" + bytes(40))
    with pytest.raises(GGUFError, match=r"llama\.cpp refuses the file"):
        record_llamacpp(bad, "x")
    with pytest.raises(LlmvizError, match="no token"):
        record_llamacpp(path, [])
    with pytest.raises(LlmvizError, match="context"):
        record_llamacpp(path, [1] * 600, n_ctx=64, **THREADS)
    with pytest.raises(TypeError, match="n_ctxx"):
        record_llamacpp(path, "x", n_ctxx=1)
