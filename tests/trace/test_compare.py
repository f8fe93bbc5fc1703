"""Two runs held against each other: the numbers are the engine's, and looking moves nothing."""

from __future__ import annotations

import gguf as official
import numpy as np
import pytest

import llmviz
from llmviz.errors import LlmvizError
from llmviz.ggml.quants import get
from llmviz.sampling import Chain, Greedy
from llmviz.trace import Debugger, DebuggerError, open_trace
from llmviz.trace.compare import Comparison
from llmviz.trace.compare_runs import compare
from llmviz.trace.compare_sides import Node, Pass, Row
from llmviz.trace.compare_sources import LiveRun
from llmviz.trace.compare_spans import align

ONE, TWO = [1, 262, 270, 281], [1, 262, 275, 281]
OPTIONS = {"n_predict": 3, "n_ctx": 256}


@pytest.fixture(scope="module")
def model(tiny_model):
    return llmviz.load(tiny_model(n_layer=3))


def debug(model, prompt=ONE, end=True, **options) -> Debugger:
    dbg = Debugger(model, prompt, Chain([Greedy()]), **{**OPTIONS, **options})
    if end:
        dbg.run_to_end()
    return dbg


def straight(model, prompt, name):
    """A node of the first pass, from a run without a debugger."""
    found = {}
    ctx = model.context(n_ctx=256)
    for e in llmviz.generate_steps(ctx, prompt, Chain([Greedy()]), 1):
        if e.kind == "node" and e.name == name:
            found[name] = np.array(e.value)
    return found[name]


def summary(dbg):
    """Everything of a debugger that looking must leave alone."""
    r = dbg.recorder
    return (
        dbg.n, dbg.finished, dbg.text, dbg.stopped_by, [x.n for x in dbg.events],
        [(b.name, b.n, b.furthest, b.ended, b.n_tokens, b.text) for b in dbg.branches],
        r.passes, r.logits_n, None if r.logits is None else r.logits.tobytes(),
        [k.n for k in r.values("l_out-1")], r.stats("l_out-1"), sorted(r.attention),
        [(e.id, e.applied_at) for e in dbg.edits], len(dbg.log.events),
    )  # fmt: skip


# -- node by node --------------------------------------------------------------------------------


def test_two_prompts_part_at_the_embedding(model):
    c = compare(model, prompt=(ONE, TWO), **OPTIONS)
    first = c.first
    assert first is not None and (first.name, c.first_pass, c.pass_) == ("embd", 0, 0)
    a, b = straight(model, ONE, "embd"), straight(model, TWO, "embd")
    assert first.error == pytest.approx(np.linalg.norm(a - b) / np.linalg.norm(a), rel=1e-6)
    assert first.max_abs == pytest.approx(np.abs(a - b).max())
    assert first.difference.at[0] == 2  # the token that differs
    for d in c.nodes:
        assert d.difference is not None and not d.bound and d.shape_a == d.shape_b
    values = c.values("l_out-1")
    for prompt, value in zip((ONE, TWO), values, strict=True):
        np.testing.assert_array_equal(value, straight(model, prompt, "l_out-1"))
    assert c.first_token.i == 2 and not c.span(0).same_tokens
    names = [d.name for d in c.nodes]
    assert names.index("l_out-0") < names.index("l_out-1") < names.index("result_output")
    assert not any("cache" in n or "(view)" in n for n in names)
    report = c.report()
    assert "first node over 0.001: embd" in report and "another prompt" in report
    c.close()
    assert c.a.dbg._closed


def test_the_same_run_twice_is_the_same(model):
    c = compare(debug(model), model, prompt=ONE, **OPTIONS)
    assert c.first is None and c.first_pass == -1 and c.pass_ == 0
    assert max(d.error for i in range(3) for d in c.nodes_of(i)) == 0.0
    assert all(c.logits(i).same and c.logits(i).kl == 0.0 for i in range(3))
    assert c.first_token is None and "no node is over" in c.report()


def test_looking_moves_nothing(model):
    dbg = debug(model, end=False, want="l_out-*")
    dbg.recorder.ask(dbg, lambda name: name == "l_out-1")
    dbg.next_token()
    dbg.run()
    dbg.goto(next(r.n for r in reversed(dbg.events) if r.name == "l_out-1"))
    dbg.edit(np.zeros(dbg.here.value.shape, np.float32))
    dbg.next_token()
    other = debug(model, TWO)
    before = summary(dbg), summary(other)
    told = []
    dbg.on_change(lambda: told.append(1))
    for c in (compare(dbg, other), compare(dbg), compare(dbg, "main")):
        assert c.nodes and c.report() and c.values("l_out-1")
    assert (summary(dbg), summary(other)) == before and told == []
    assert dbg.here is not None and dbg.here.name == "token"
    end = dbg.run()
    again = debug(model, end=False)
    again.goto(dbg.edits[0].n)
    again.edit(np.zeros(again.here.value.shape, np.float32))
    again.run_to_end()
    assert end is not None and again.n == dbg.n
    assert again.recorder.logits.tobytes() == dbg.recorder.logits.tobytes()


def test_it_is_computed_in_rounds_where_memory_is_short(model):
    whole = Comparison(debug(model), debug(model, TWO))
    short = Comparison(debug(model), debug(model, TWO), budget=20_000)
    assert short.nodes == whole.nodes
    assert short.first == whole.first


def test_branches_open_where_they_part(model):
    dbg = debug(model)
    n = [r.n for r in dbg.events if r.name == "process_ubatch" and r.kind == "enter"][1]
    dbg.goto(n)
    edit = dbg.zero("ffn_out-1")
    dbg.run_to_end()
    c = compare(dbg)  # with the branch that it came from
    first = c.first
    assert first is not None and (first.name, c.pass_) == ("ffn_out-1", 1)
    assert c.a.label == f"branch {dbg.branch.name}" and c.b.label == "branch main"
    assert max(d.error for d in c.nodes_of(0)) == 0.0
    assert {m.what: m.same for m in c.matches}["edits"] is False
    np.testing.assert_array_equal(c.values("ffn_out-1")[0], 0)
    assert [x.a.id for x in compare((dbg, "main"), dbg).tokens] == [
        x.b.id for x in c.tokens if x.b is not None
    ]
    assert not c.moved_on
    dbg.undo_edit(edit)  # and the branch that was made for it
    assert c.moved_on
    with pytest.raises(DebuggerError, match="there is no branch"):
        c.refresh()


def test_ubatches_are_joined_by_the_tokens_they_read(model):
    text = [1, *range(260, 270)]
    c = compare(model, prompt=text, context=({"n_ubatch": 4}, {}), **OPTIONS)
    span = c.span(0)
    assert [p.n_tokens for p in span.a] == [4, 4, 3] and [p.n_tokens for p in span.b] == [11]
    assert c.first is None
    rows = {(d.name, d.op, d.nth): d for d in c.nodes}
    done = [d for d in rows.values() if d.difference is not None]
    assert max(d.error for d in done) < 1e-5 and len(done) > len(rows) - 4
    assert rows["l_out-0", "ADD", 0].shape_a == (11, c.nodes[0].shape_b[1])
    assert all(d.note for d in rows.values() if d.difference is None)
    assert "another n_ubatch: 4 |" in c.report()
    with pytest.raises(DebuggerError, match="several ubatches"):
        c.patch("l_out-0")


def test_prompts_of_another_length_are_compared_by_their_last_token(model):
    c = compare(model, prompt=(ONE, [*ONE, 290]), **OPTIONS)
    row = c.node("l_out-0")
    a, b = straight(model, ONE, "l_out-0"), straight(model, [*ONE, 290], "l_out-0")
    assert row.note == "last token only"
    error = np.linalg.norm(a[-1] - b[-1]) / np.linalg.norm(a[-1])
    assert row.error == pytest.approx(error, rel=1e-6)


# -- traces --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(model, tmp_path_factory):
    """A run of the second prompt: l_out kept, everything watched, and one with statistics only."""
    folder = tmp_path_factory.mktemp("traces")
    paths = []
    for name, kept in (("some", "l_out-"), ("none", "nothing")):
        dbg = debug(model, TWO, end=False, want="*")
        dbg.recorder.ask(dbg, lambda n, kept=kept: n.startswith(kept))
        dbg.log.keep_logits = name == "some"
        dbg.run_to_end()
        paths.append(folder / f"{name}.zarr.zip")
        dbg.save(paths[-1])
        dbg.close()
    return paths


def test_a_trace_is_compared_with_a_live_run(model, saved):
    dbg = debug(model)
    live = compare(dbg, debug(model, TWO))
    c = compare(dbg, str(saved[0]))
    truth = {d.key: d for d in live.nodes}
    assert set(truth) == {d.key for d in c.nodes}
    exact = [d for d in c.nodes if d.name.startswith(("l_out", "kq_soft_max"))]
    assert len(exact) == 6
    for d in exact:
        assert d.error == pytest.approx(truth[d.key].error, rel=1e-6) and not d.bound
    rest = [d for d in c.nodes if d.bound]
    assert len(rest) > 30
    for d in rest:
        assert d.error <= truth[d.key].error * (1 + 1e-5) and "at least" in d.note
    assert c.logits(0).kl == pytest.approx(live.logits(0).kl)
    assert "by statistics" in c.report() and c.b.label == "some.zarr.zip"
    assert c.values("attn_norm-0")[1] is None and c.fitted("attn_norm-0") is None
    c.close()
    assert c.b.trace._closed and not dbg._closed


def test_two_traces_without_any_engine(saved):
    with open_trace(saved[0]) as a, open_trace(saved[1]) as b:
        c = compare(a, b)
        assert c.first is None and len(c.passes) == 3
        assert {d.bound for d in c.nodes if d.difference is not None} == {True, False}
        assert all(c.logits(i).same for i in range(3)) and c.logits(0).kl is None
        with pytest.raises(DebuggerError, match="recording and cannot be changed"):
            c.patch("l_out-1")
        a.goto(3)  # where the cursor stands does not matter
        assert compare(a, b).nodes == c.nodes


def test_what_nobody_watched_is_said_to_be_missing(model, saved, tmp_path):
    dbg = debug(model, TWO)
    dbg.save(tmp_path / "bare.zarr.zip")
    with open_trace(tmp_path / "bare.zarr.zip") as bare:
        c = compare(debug(model), bare)
        known = [d for d in c.nodes if d.difference is not None]
        assert {d.name.split("-")[0] for d in known} == {"kq_soft_max"}  # attention is kept anyway
        assert c.node("l_out-0").note == "only in the first run"
        assert c.first is not None and "only in one run" in c.report()


# -- what does not match -------------------------------------------------------------------------


def test_models_that_do_not_match_give_a_report(model, tiny_model):
    deep = llmviz.load(tiny_model(n_layer=5))
    c = compare(model, deep, prompt=ONE, **OPTIONS)
    assert {m.what: m.same for m in c.matches}["n_layer"] is False
    only = [d for d in c.nodes if d.note == "only in the second run"]
    assert only and {d.layer for d in only} == {3, 4}
    order = [d.name for d in c.nodes]
    assert order.index("l_out-2") < order.index("l_out-3") < order.index("result_norm")
    assert "another n_layer: 3 | 5" in c.report() and "only in one run" in c.report()
    with pytest.raises(DebuggerError, match="has no node 'l_out-4'"):
        c.patch("l_out-4")
    wide = llmviz.load(tiny_model(n_layer=3, n_embd=128))
    c = compare(model, wide, prompt=ONE, **OPTIONS)
    assert c.node("l_out-0").note == "the shapes differ"
    assert "of another shape" in c.report()


def test_runs_with_nothing_in_common_say_so(model):
    fresh = debug(model, end=False)
    c = compare(debug(model), fresh)
    assert c.passes == [] and c.nodes == [] and c.first is None and c.pass_ == -1
    assert "b has computed no pass yet" in c.report()
    with pytest.raises(DebuggerError, match="there is no pass 0"):
        c.logits(0)
    fresh.next_token()
    assert c.moved_on
    c.refresh()
    assert len(c.passes) == 1 and c.first is None


def test_any_source_of_nodes_is_compared(model):
    """A run of one's own needs no more than the protocol."""

    class Mine:
        label, live = "mine", False

        def about(self):
            return {"architecture": "llama", "n_vocab": None}

        def passes(self):
            return [Pass(0, 0, 99, len(ONE), 0)]  # one ubatch: the prompt

        def tokens(self):
            return debug_run.tokens()

        def visit(self, passes, see):
            value = straight(model, ONE, "l_out-1") * np.float32(1.01)
            see(passes[0], Node("l_out-1", "ADD", 0, 7, value.shape, value))
            # What a graph numbered is found by its op and place: another one counts otherwise.
            see(passes[0], Node("node_999", "GET_ROWS", 0, 8, (1,), np.ones(1)))

        def logits(self, pass_):
            return Row(None, ())

    debug_run = LiveRun(debug(model))
    c = compare(debug_run, Mine())
    assert c.first.name == "l_out-1" and c.first.error == pytest.approx(0.01, rel=1e-3)
    numbered = [d for d in c.nodes if d.key[0] == "node_#"]
    assert numbered[0].shape_a is not None and numbered[0].shape_b == (1,)
    assert c.logits(0) is None and align(debug_run, Mine())[0].same_tokens


def test_misuse_is_named(model):
    dbg = debug(model)
    with pytest.raises(DebuggerError, match="one run only"):
        compare(dbg)
    with pytest.raises(DebuggerError, match="one model with one prompt gives one run"):
        compare(model, prompt="x")
    with pytest.raises(DebuggerError, match="models need something to read"):
        compare(model, model, context=({}, {"n_ctx": 64}))
    with pytest.raises(DebuggerError, match="a tolerance is a number"):
        compare(dbg, debug(model), tolerance=float("nan"))
    with pytest.raises(DebuggerError, match="a tuple holds one for each"):
        compare(model, prompt=(ONE, TWO, ONE))
    with pytest.raises(DebuggerError, match="there is no branch"):
        compare(dbg, (dbg, "nowhere"))
    with pytest.raises(DebuggerError, match="only a Debugger"):
        compare(dbg, 17)
    with pytest.raises(DebuggerError, match="models need something to read"):
        compare(dbg, model)
    with pytest.raises(DebuggerError, match="runs once"):
        compare(dbg, Debugger(iter([])))
    with pytest.raises(LlmvizError):
        compare(dbg, __file__, prompt=ONE)
    c = compare(dbg, debug(model, TWO))
    with pytest.raises(DebuggerError, match="no node 'l_uot-1' in this pass; near it: l_out-1"):
        c.node("l_uot-1")
    with pytest.raises(DebuggerError, match="into is 'a' or 'b'"):
        c.patch("l_out-1", into="c")
    with pytest.raises(DebuggerError, match="a pass is a number"):
        c.pass_ = True


# -- patching ------------------------------------------------------------------------------------


@pytest.mark.parametrize("into", ["a", "b"])
def test_a_patched_layer_gives_the_other_runs_logits(model, into):
    runs = debug(model, n_predict=1), debug(model, TWO, n_predict=1)
    c = compare(*runs)
    mine, other = runs if into == "a" else runs[::-1]
    was, theirs = mine.recorder.logits, other.recorder.logits
    stood = mine.n
    done = c.patch("l_out-1", into=into)
    # All that the later layers read is the other run's: so are the logits, bit for bit.
    np.testing.assert_array_equal(mine.recorder.logits, theirs)
    np.testing.assert_array_equal(done.after, theirs)
    np.testing.assert_array_equal(done.before, was)
    assert done.recovered == pytest.approx(1.0) and "100.0% of the way" in repr(done)
    assert mine.branch.name == done.branch == "patch l_out-1" and mine.n == stood
    assert done.edit.description.startswith("l_out-1 of ") and done.edit in mine.edits
    side = c.a if into == "a" else c.b
    assert side.branch == "main" and not np.array_equal(was, theirs)  # what was is kept
    mine.undo_edit(done.edit)
    np.testing.assert_array_equal(mine.recorder.logits, was)


def test_a_patch_of_some_tokens_goes_part_of_the_way(model):
    dbg, other = debug(model), debug(model, TWO)
    c = compare(dbg, other)
    first = c.patch("l_out-0", 0, tokens=[2], branch="one token", go_on=False)
    assert first.after is None and first.recovered is None and dbg.here.name == "l_out-0"
    rows = np.array(straight(model, ONE, "l_out-0"))
    rows[2] = straight(model, TWO, "l_out-0")[2]
    np.testing.assert_array_equal(dbg.here.value, rows)
    dbg.run_to_end()
    assert dbg.branch.name == "one token"
    assert 0.1 < c.patch("l_out-0", 0, tokens=[2]).recovered < 0.9
    dbg.switch("main")
    # The last token has looked at the other one by then; the rest of the prompt is the same.
    assert c.patch("l_out-0", 0, tokens=[2, -1]).recovered == pytest.approx(1.0)
    with pytest.raises(DebuggerError, match="no token 9"):
        c.patch("l_out-0", 0, tokens=[9])
    longer = compare(dbg, debug(model, [*ONE, 290]))
    with pytest.raises(DebuggerError, match="needs the same shape"):
        longer.patch("l_out-0", 0)


# -- a real model ----------------------------------------------------------------------------------


PARIS = [504, 3575, 282, 4649, 314]  # "The capital of France is"
LAYERS = 2  # of SmolLM2's thirty: all are alike, and a test must be quick


def rewritten(path, out, half):
    """The first layers of a model's file; its matrices as they are, or as half floats."""
    kind = official.GGMLQuantizationType
    writer = official.GGUFWriter(out, "llama")
    with llmviz.open_gguf(path) as source:
        own = {"general.file_type": 1 if half else 3, "llama.block_count": LAYERS}
        own["tokenizer.ggml.merges"] = list(source.kv["tokenizer.ggml.merges"][:9])
        for name, value in source.kv.items():
            if name == "general.architecture":
                continue
            known, inner = source.kv_types[name], source.arr_types.get(name)
            types = [official.GGUFValueType(int(t)) if t is not None else t for t in (known, inner)]
            value = own.get(name, value if inner is None else list(value))
            writer.add_key_value(name, value, *types)
        for name, info in source.tensor_infos.items():
            raw = np.array(source.tensor_bytes(info))
            if name.startswith("blk.") and int(name.split(".")[1]) >= LAYERS:
                continue
            if half and len(info.shape) > 1:
                values = get(info.type).dequantize(raw).reshape(info.shape)
                writer.add_tensor(name, values.astype(np.float16), raw_dtype=kind.F16)
            elif info.type.name == "F32":
                writer.add_tensor(name, raw.view(np.float32).reshape(info.shape))
            else:
                rows = raw.reshape(*info.shape[:-1], -1)
                writer.add_tensor(name, rows, raw_dtype=kind[info.type.name])
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


def test_smollm2_against_its_requantization_opens_where_they_part(smollm2_path, tmp_path, figures):
    paths = tmp_path / "q4_1.gguf", tmp_path / "f16.gguf"
    for path, half in zip(paths, (False, True), strict=True):
        rewritten(smollm2_path, path, half)
    # Activations are quantized where the weights are: that is where the two part.
    with compare(*paths, prompt=PARIS, n_predict=0, tolerance=5e-4) as c:
        first = c.first
        assert first is not None and c.first_pass == 0 and first.i > 0
        before = [d for d in c.nodes if d.i < first.i]
        assert all(d.error <= 5e-4 for d in before) and first.error > 5e-4
        assert c.nodes[0].name == "embd" and 0 < c.nodes[0].error < 5e-4  # half floats round
        assert all(d.difference is not None for d in c.nodes) and len(c.nodes) > 40
        types = next(m for m in c.matches if m.what == "file type")
        assert not types.same and c.a.label == "q4_1.gguf"
        a, b, note = c.fitted(first)
        error = np.linalg.norm(a.astype(float) - b) / np.linalg.norm(a.astype(float))
        assert error == pytest.approx(first.error) and note == ""
        c.tolerance = 1.0
        assert c.first is None or c.first.error > 1.0
        figures(f"first {first.name}, relative error {first.error:.2e}")
