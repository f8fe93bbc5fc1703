"""A run saved to a file: what xarray reads of it, equal to what the recorder held, bit for bit."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import llmviz
from llmviz.sampling import Chain, Dist, Penalties, Temp, TopK
from llmviz.trace import Debugger, TraceError, open_trace
from llmviz.trace.records import AttentionBlock
from llmviz.trace.storage_read import Stored
from llmviz.trace.storage_write import Variable, write_zip
from llmviz.trace.storage_zip import TraceZip, frame_size
from tests.trace import toy

zarr = pytest.importorskip("zarr")
PROMPT = [1, *range(262, 275)]


def chain() -> Chain:
    return Chain([Penalties(16, 1.1, 0.1, 0.0), TopK(30), Temp(0.9), Dist(7)])


@pytest.fixture(scope="module")
def run(tiny_model: Callable[..., str]) -> Debugger:
    dbg = Debugger(
        tiny_model(), PROMPT, chain(), n_predict=5, want="*", n_ctx=64, n_ubatch=8, n_batch=8
    )
    dbg.log.keep_logits = True
    dbg.recorder.ask("a test", lambda name: name.startswith(("l_out", "kq-0", "Qcur", "inp_")))
    dbg.run_to_end()
    return dbg


@pytest.fixture(scope="module")
def path(run: Debugger, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trace") / "run.zarr.zip"
    run.save(out)
    return out


def test_everything_comes_back_bit_for_bit(run: Debugger, path: Path) -> None:
    stored, recorder = Stored(path, 1 << 28), run.recorder
    assert stored.tokens == recorder.tokens
    records = [r for r in stored.events if r.n >= run.events[0].n]
    assert records == list(run.events)
    assert list(stored.attention) == recorder.layers()
    for layer, blocks in recorder.attention.items():
        for ours, theirs in zip(stored.attention[layer], blocks, strict=True):
            assert (ours.n, ours.layer) == (theirs.n, theirs.layer)
            assert ours.p.dtype == np.float32
            assert np.ascontiguousarray(ours.p).tobytes() == theirs.p.tobytes()
            assert np.array_equal(ours.q_pos, theirs.q_pos)
            assert np.array_equal(ours.k_pos, theirs.k_pos)
    names = {r.name for r in run.events if recorder.value(r.name) is not None}
    assert len(names) > 5 and set(stored.value_names()) == names
    for name in names:
        for ours, theirs in zip(stored.values(name), recorder.values(name), strict=True):
            assert (ours.n, ours.pass_) == (theirs.n, theirs.pass_)
            assert ours.array.dtype == theirs.array.dtype
            assert ours.array.shape == theirs.array.shape
            assert np.ascontiguousarray(ours.array).tobytes() == theirs.array.tobytes()
    assert [r.n for r in stored.logits] == [r.n for r in run.log.logits]
    for ours, theirs in zip(stored.logits, run.log.logits, strict=True):
        assert ours.row is not None and theirs.row is not None
        assert ours.row.tobytes() == theirs.row.tobytes()
        assert ours.top == theirs.top
    for name in {r.name for r in run.events if r.kind == "node"}:
        assert stored.statistics(name)[-1][1] == recorder.stats(name)
    for ours, theirs in zip(stored.samplers, run.log.samplers, strict=True):
        assert (ours.why, ours.draw, ours.selected) == (theirs.why, theirs.draw, theirs.selected)
        assert ours.logit.tobytes() == theirs.logit.tobytes()
    cells = stored.cells_at(run.n)
    assert cells is not None and recorder.cells is not None
    assert np.array_equal(cells.pos, recorder.cells.pos)
    assert np.array_equal(cells.tok, recorder.cells.tok)
    assert np.array_equal(cells.seq, recorder.cells.seq)
    assert cells.fresh == recorder.cells.fresh


def test_statistics_of_every_pass_are_there(run: Debugger, path: Path) -> None:
    stored = Stored(path, 1 << 28)
    assert len(stored.statistics("l_out-0")) == run.recorder.passes
    assert len(stored.statistics("l_out-0")) > len({k.n for k in run.tokens if not k.given})


def test_the_same_run_gives_the_same_file(run: Debugger, path: Path, tmp_path: Path) -> None:
    run.save(tmp_path / "again.zarr.zip")
    assert (tmp_path / "again.zarr.zip").read_bytes() == path.read_bytes()


def test_plain_xarray_reads_it(run: Debugger, path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store = zarr.storage.ZipStore(path, mode="r")
        ds = xarray.open_zarr(store)
        values = xarray.open_zarr(store, group="values")
    assert ds["attention"].dims == ("layer", "head", "query", "key")
    assert ds.attrs["llmviz_format"] == 1
    assert ds.attrs["model"]["arch"] == "llama"
    last = run.recorder.attention[1][-1]
    at = ds["query_pos"].values.tolist().index(last.q_pos[0])
    row = ds["attention"].sel(layer=1).isel(query=at)
    assert np.array_equal(row.values[:, : last.p.shape[2]], last.p[:, 0])
    texts = ds["token_text"].attrs["texts"]
    assert texts == [k.text for k in run.tokens]
    names = np.array(ds.attrs["names"])
    mine = names[ds["statistic_name"].values] == "l_out-1"
    assert ds["statistic_mean"].values[mine][-1] == run.recorder.stats("l_out-1").mean
    kept = values["l_out-0"]
    assert kept.dims == ("token", "feature")
    assert np.array_equal(kept.values[-1], run.recorder.value("l_out-0").array[-1])
    assert ds["logits"].dims == ("row", "n_vocab")
    store.close()


def test_float16_halves_the_attention(run: Debugger, path: Path, tmp_path: Path) -> None:
    run.save(tmp_path / "half.zarr.zip", dtype="float16", values=False)
    half, full = Stored(tmp_path / "half.zarr.zip", 1 << 28), Stored(path, 1 << 28)
    assert half.zip.info("attention").dtype == np.float16
    assert half.value_names() == []
    for ours, theirs in zip(half.attention[0], full.attention[0], strict=True):
        assert ours.p.dtype == np.float32
        assert np.array_equal(ours.p, theirs.p.astype(np.float16).astype(np.float32))
    with pytest.raises(TraceError, match="float64"):
        run.save(tmp_path / "x.zip", dtype="float64")
    assert not (tmp_path / "x.zip").exists()


def test_what_lies_in_the_past_is_saved_up_to_there(
    tiny_model: Callable[..., str], tmp_path: Path
) -> None:
    """Going back, editing and forking leave the log as if the run had come straight to here."""
    dbg = Debugger(tiny_model(), PROMPT, chain(), n_predict=5, want="*", n_ctx=64)
    dbg.run_to_end()
    straight = dbg.log.events.arrays()
    fourth = [k for k in dbg.tokens if not k.given][2]
    dbg.goto(fourth.n)
    assert dbg.log.events.columns[0][-1] == fourth.n
    assert dbg.log.statistics.columns[0][-1] < fourth.n
    dbg.run_to_end()
    for ours, theirs in zip(dbg.log.events.arrays(), straight, strict=True):
        assert np.array_equal(ours, theirs)
    dbg.choose_token(270, pos=fourth.pos)
    dbg.run_to_end()
    dbg.save(tmp_path / "fork.zarr.zip")
    stored = Stored(tmp_path / "fork.zarr.zip", 1 << 28)
    assert stored.tokens == dbg.tokens and stored.tokens[fourth.pos].id == 270
    n = [r.n for r in stored.events]
    assert n == sorted(set(n)) and n[-1] == dbg.events[-1].n
    assert stored.attrs.get("branch", str, "") == dbg.branch.name != "main"
    assert [b["name"] for b in stored.zip.attrs["branches"]] == [b.name for b in dbg.branches]
    assert stored.zip.attrs["edits"][0]["kind"] == "TokenEdit"


def test_statistics_are_of_their_event_wherever_a_walk_leads(
    tiny_model: Callable[..., str],
) -> None:
    """Nodes are measured where somebody steps; a replay measures none and must log none."""
    dbg = Debugger(tiny_model(), PROMPT, chain(), n_predict=4, n_ctx=64)
    dbg.break_on("layer-1")
    for _ in range(3):
        dbg.run()
        for _ in range(12):
            dbg.step_into()
    assert len(dbg.log.statistics) > 20
    first = int(dbg.log.statistics.columns[0][0])
    dbg.goto(first + 4)
    dbg.zero("attn_norm-1")
    dbg.run()
    for _ in range(12):
        dbg.step_into()
    dbg.undo_edit(dbg.edits[0])
    whole = Debugger(tiny_model(), PROMPT, chain(), n_predict=4, want="*", n_ctx=64)
    whole.goto(dbg.n)
    truth = {row[0]: row for row in zip(*whole.log.statistics.columns)}
    rows = list(zip(*dbg.log.statistics.columns))
    assert rows
    for row in rows:
        n, name, *numbers = row
        assert dbg.log.names.all[name] == whole.log.names.all[truth[n][1]]
        assert numbers == list(truth[n][2:])


def test_nothing_has_run_yet(tiny_model: Callable[..., str], tmp_path: Path) -> None:
    dbg = Debugger(tiny_model(), PROMPT)
    dbg.save(tmp_path / "empty.zarr.zip")
    trace = open_trace(tmp_path / "empty.zarr.zip")
    assert trace.here is None and trace.tokens == [] and len(trace.events) == 0
    assert trace.recorder.attention == {}
    with pytest.raises(TraceError, match="no events"):
        trace.step_into()


def test_a_generator_of_events_can_be_saved(tmp_path: Path) -> None:
    dbg = Debugger(toy.run(), "x")
    dbg.run_to_end()
    dbg.save(tmp_path / "toy.zarr.zip")
    stored = Stored(tmp_path / "toy.zarr.zip", 1 << 28)
    assert [k.id for k in stored.tokens] == [k.id for k in dbg.tokens]
    assert [r.name for r in stored.samplers] == ["top_k", "dist"] * 2
    assert stored.graph == []


def test_a_file_that_cannot_be_written_leaves_nothing(run: Debugger, tmp_path: Path) -> None:
    with pytest.raises(OSError):
        run.save(tmp_path / "no folder" / "run.zarr.zip")
    target = tmp_path / "folder"
    target.mkdir()
    (target / "keep").write_text("x")
    with pytest.raises(OSError):
        run.save(target)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder"]


def test_without_zarr_it_says_what_to_install(
    run: Debugger, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "zarr", None)
    with pytest.raises(TraceError, match=r"llmviz-debugger\[lab\]"):
        run.save(tmp_path / "run.zarr.zip")
    with pytest.raises(TraceError, match=r"llmviz-debugger\[lab\]"):
        open_trace(path)


def test_parameters_that_json_does_not_know(tmp_path: Path) -> None:
    dbg = Debugger(toy.run(), "a lone surrogate \ud800 and \0")
    dbg.run_to_end()
    dbg.save(tmp_path / "x.zarr.zip")
    assert open_trace(tmp_path / "x.zarr.zip").attrs["prompt"] == dbg.prompt


def lengthen(dbg: Debugger, n_tokens: int) -> None:
    """Add passes like the last one to what was recorded: a long run without its computation."""
    tokens, log = dbg.recorder.tokens, dbg.log
    last, before = tokens[-1].n, tokens[-2].n
    log.forget(last)
    rng = np.random.default_rng(0)
    passes = (
        [np.array(c) for c in log.events.columns],
        [np.array(c) for c in log.statistics.columns],
    )
    for k in range(1, n_tokens - len(tokens) + 1):
        ahead, pos = k * (last - before), len(tokens) - 1
        for columns, rows in ((log.events.columns, passes[0]), (log.statistics.columns, passes[1])):
            again = (rows[0] > before) & (rows[0] <= last)
            for i, (column, known) in enumerate(zip(columns, rows, strict=True)):
                column.extend((known[again] + (ahead if i == 0 else 0)).tolist())
        for il, blocks in dbg.recorder.attention.items():
            p = rng.random((len(blocks[-1].p), 1, pos + 1), np.float32)
            one = np.array([pos], np.int32), np.arange(pos + 1, dtype=np.int32)
            blocks.append(AttentionBlock(blocks[-1].n + last - before, il, *one, p))
        tokens.append(replace(tokens[-1], pos=pos + 1, n=last + ahead))


def test_two_hundred_tokens_with_all_statistics(
    tiny_model: Callable[..., str], tmp_path: Path, figures: Callable[[str], None]
) -> None:
    """As many layers, heads and nodes as SmolLM2-135M has."""
    path = tmp_path / "long.zarr.zip"
    model = llmviz.load(tiny_model(n_layer=30, n_embd=72, n_head=9, n_head_kv=3))
    dbg = Debugger(model, PROMPT, chain(), n_predict=3, want="*", n_ctx=256)
    dbg.run_to_end()
    lengthen(dbg, 204)
    start = time.perf_counter()
    dbg.save(path)
    saved = time.perf_counter()
    trace = open_trace(path)
    opened = time.perf_counter()
    assert len(trace.recorder.attention) == 30
    assert trace.recorder.stats("l_out-29") is not None
    used = time.perf_counter()
    assert trace.tokens == dbg.tokens and len(trace.tokens) == 204
    assert len(dbg.log.statistics) > 150_000
    assert saved - start < 60 and used - saved < 20, "generous: other work may run beside"
    figures(
        f"{len(dbg.tokens)} tokens, {len(dbg.log.events):,} events, "
        f"{len(dbg.log.statistics):,} statistics: saved in {saved - start:.2f} s, "
        f"{os.path.getsize(path) / 1e6:.1f} MB, opened in {opened - saved:.2f} s, "
        f"attention and statistics read in {used - opened:.2f} s"
    )


# -- files that are not what they say ------------------------------------------------------------


def rewritten(path: Path, out: Path, change: Callable[[dict[str, bytes]], Any]) -> Path:
    """A copy of a zip whose members `change` was let at."""
    with zipfile.ZipFile(path) as archive:
        members = {i.filename: archive.read(i) for i in archive.infolist()}
    change(members)
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w") as archive:
        warnings.simplefilter("ignore")
        for name, data in members.items():
            archive.writestr(name, data)
    return out


def instead(name: str, other: Path) -> Callable[[dict[str, bytes]], None]:
    """One array as another file has it."""

    def change(members: dict[str, bytes]) -> None:
        for member in [m for m in members if m.startswith(f"{name}/")]:
            del members[member]
        with zipfile.ZipFile(other) as archive:
            members.update({m: archive.read(m) for m in archive.namelist() if m != "zarr.json"})
            theirs = json.loads(archive.read("zarr.json"))["consolidated_metadata"]["metadata"]
        root = json.loads(members["zarr.json"])
        root["consolidated_metadata"]["metadata"][name] = theirs[name]
        members["zarr.json"] = json.dumps(root).encode()

    return change


def meta(name: str, **changes: Any) -> Callable[[dict[str, bytes]], None]:
    def change(members: dict[str, bytes]) -> None:
        found = json.loads(members[f"{name}/zarr.json"])
        found.update(changes)
        members[f"{name}/zarr.json"] = json.dumps(found).encode()

    return change


def attrs(**changes: Any) -> Callable[[dict[str, bytes]], None]:
    def change(members: dict[str, bytes]) -> None:
        found = json.loads(members["zarr.json"])
        found["attributes"].update(changes)
        members["zarr.json"] = json.dumps(found).encode()

    return change


def add(name: str) -> Callable[[dict[str, bytes]], None]:
    return lambda members: members.update({name: b"x"})


def grid(*shape: int) -> dict[str, Any]:
    return {"name": "regular", "configuration": {"chunk_shape": list(shape)}}


BAD: dict[str, tuple[Callable[[dict[str, bytes]], None], str]] = {
    "another version": (attrs(llmviz_format=2), "format 2"),
    "no trace": (attrs(llmviz_format=0), "no llmviz trace"),
    "version as text": (attrs(llmviz_format="1"), "llmviz_format is str"),
    "names are numbers": (attrs(names=[1, 2]), "names holds other things"),
    "too few names": (attrs(names=["a"]), "event_name"),
    "a billion layers": (attrs(hparams={"n_layer": 10**9}), "1,000,000,000 layers"),
    "a parent folder": (add("../evil"), "leaves it"),
    "a parent folder inside": (add("values/../../evil"), "leaves it"),
    "an absolute name": (add("/etc/evil"), "leaves it"),
    "a backslash": (add("a\\b"), "leaves it"),
    "a drive": (add("C:/evil"), "leaves it"),
    "a huge shape": (meta("event_n", shape=[1 << 40], chunk_grid=grid(1 << 20)), "would take"),
    "a huge chunk": (meta("event_n", chunk_grid=grid(1 << 40)), "larger than 64 MiB"),
    "many chunks": (meta("event_n", shape=[1 << 24], chunk_grid=grid(1)), "more chunks than"),
    "a negative shape": (meta("event_n", shape=[-1]), "whole numbers"),
    "a shape of texts": (meta("event_n", shape=["7"]), "whole numbers"),
    "no shape": (meta("event_n", shape=None), "whole numbers"),
    "no grid": (meta("event_n", chunk_grid=None), "description is wrong"),
    "objects": (meta("event_n", data_type="object"), "not read"),
    "another codec": (meta("event_n", codecs=[{"name": "bytes"}, {"name": "pickle"}]), "codecs"),
    "another type": (meta("event_n", data_type="float32"), "not what belongs here"),
    "a longer chunk": (meta("token_id", chunk_grid=grid(4096)), "the chunk claims"),
    "a bomb": (
        lambda members: members.update({"token_id/c/0": bomb()}),
        "the chunk claims 50,000,000,000 bytes",
    ),
    "a group in its place": (meta("token_id", node_type="group"), "no array"),
    "not JSON": (lambda members: members.update({"zarr.json": b"\xff{"}), "no JSON"),
    "deep JSON": (lambda members: members.update({"zarr.json": b"[" * 100_000}), "no JSON"),
    "a list": (lambda members: members.update({"zarr.json": b"[]"}), "mapping"),
    "no root": (lambda members: members.pop("zarr.json") and None, "missing"),
    "no tokens": (lambda members: members.pop("token_id/zarr.json") and None, "missing"),
    "no chunk": (lambda members: members.pop("token_id/c/0") and None, "missing"),
}


def bomb() -> bytes:
    """A zstd frame that claims 50 GB."""
    return b"\x28\xb5\x2f\xfd\xe0" + (50_000_000_000).to_bytes(8, "little") + b"\x01\0\0"


@pytest.mark.parametrize("kind", BAD)
def test_bad_files_are_refused(path: Path, tmp_path: Path, kind: str) -> None:
    change, message = BAD[kind]
    bad = rewritten(path, tmp_path / "bad.zarr.zip", change)
    with pytest.raises(TraceError, match=message) as caught:
        open_trace(bad)
    assert "bad.zarr.zip" in str(caught.value)


def test_no_zip_at_all(path: Path, tmp_path: Path) -> None:
    for data in (b"", b"GGUF" * 100, path.read_bytes()[: path.stat().st_size // 2]):
        (tmp_path / "x.zarr.zip").write_bytes(data)
        with pytest.raises(TraceError, match="save it again"):
            open_trace(tmp_path / "x.zarr.zip")
    with pytest.raises(TraceError, match="no such file"):
        open_trace(tmp_path / "none.zarr.zip")
    with pytest.raises(TraceError, match="folder"):
        open_trace(tmp_path)


def test_a_compressed_member_is_refused(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "deflated.zarr.zip"
    with zipfile.ZipFile(path) as a, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as b:
        for info in a.infolist():
            b.writestr(info.filename, a.read(info))
    with pytest.raises(TraceError, match="not compressed"):
        open_trace(out)


def test_twice_the_same_name(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "twice.zarr.zip"
    shutil.copy(path, out)
    with warnings.catch_warnings(), zipfile.ZipFile(out, "a") as archive:
        warnings.simplefilter("ignore")
        archive.writestr("token_id/zarr.json", b"{}")
    with pytest.raises(TraceError, match="twice"):
        open_trace(out)


def test_what_may_be_read_is_bounded(path: Path) -> None:
    with pytest.raises(TraceError, match="max_bytes"):
        open_trace(path, max_bytes=1000)


def test_code_in_a_file_stays_text(path: Path, tmp_path: Path) -> None:
    code = "__import__('os').system('touch /tmp/llmviz-was-here')"
    point = {"id": 1, "label": code, "where": code, "condition": code}
    edit = {"kind": "Intervention", "id": 1, "n": 0, "name": code, "pattern": code}
    change = attrs(breakpoints=[point], edits=[edit], names_=code, prompt=code)
    trace = open_trace(rewritten(path, tmp_path / "code.zarr.zip", change))
    assert trace.attrs["breakpoints"][0]["condition"] == code
    assert trace.breakpoints == [] and trace.edits[0].name == code
    assert trace.interventions[0].function is None
    assert not os.path.exists("/tmp/llmviz-was-here")


def test_frames_say_how_large_they_are() -> None:
    from numcodecs.zstd import compress

    for size in (0, 1, 255, 256, 65_791, 65_792, 1 << 20):
        assert frame_size(compress(b"x" * size)) == size
        assert frame_size(compress(os.urandom(size))) == size
    frame = compress(b"x" * 1000)
    assert frame_size(frame + frame) is None  # a second one would not be counted
    assert frame_size(frame[:-1]) is None and frame_size(b"") is None


@given(data=st.data())
@settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_damaged_files_are_refused_or_read(path: Path, tmp_path: Path, data: Any) -> None:
    """Cut or changed anywhere: a message, never another error."""
    raw = bytearray(path.read_bytes())
    if data.draw(st.booleans(), "cut"):
        raw = raw[: data.draw(st.integers(0, len(raw)), "length")]
    # The directory at the end is what zipfile trusts: half of the changes go there.
    tail = min(len(raw), 20_000)
    places = st.one_of(
        st.integers(0, max(len(raw) - 1, 0)), st.integers(1, max(tail, 1)).map(int.__neg__)
    )
    for at, value in data.draw(st.lists(st.tuples(places, st.integers(0, 255)), max_size=8)):
        if raw:
            raw[at] = value
    damaged = tmp_path / "damaged.zarr.zip"
    damaged.write_bytes(raw)
    try:
        with open_trace(damaged) as trace:
            _ = trace.recorder.attention, trace.recorder.stats("l_out-0"), trace.values
            trace.recorder.values("l_out-0")
            trace.restart()
            trace.next_token()
    except TraceError:
        pass


@given(data=st.data())
@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_evil_metadata_is_refused_or_read(path: Path, tmp_path: Path, data: Any) -> None:
    """A whole zip whose descriptions were changed: every number and text may be any other."""
    anything = st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**70), 2**70)
        | st.floats()
        | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
        max_leaves=4,
    )

    def change(members: dict[str, bytes]) -> None:
        named = sorted(m for m in members if m.endswith("zarr.json"))
        for name in data.draw(st.lists(st.sampled_from(["zarr.json", *named]), max_size=3)):
            found = json.loads(members[name])
            found.pop("consolidated_metadata", None)
            part = found
            for _ in range(data.draw(st.integers(0, 3))):
                inner = [v for v in part.values() if isinstance(v, dict) and v]
                part = data.draw(st.sampled_from(inner)) if inner else part
            part[data.draw(st.sampled_from(sorted(part)))] = data.draw(anything)
            members[name] = json.dumps(found).encode()

    evil = rewritten(path, tmp_path / "evil.zarr.zip", change)
    try:
        with open_trace(evil) as trace:
            _ = trace.recorder.attention, trace.recorder.stats("l_out-0"), trace.missing
            trace.recorder.values("l_out-0")
            trace.restart()
            trace.next_token()
            trace.step_into()
    except TraceError:
        pass


def test_numbers_that_point_nowhere(tmp_path: Path, path: Path) -> None:
    """Arrays that are whole, but whose numbers do not fit each other."""
    cases: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "event_name": lambda x: x + 100_000,
        "event_kind": lambda x: x + 9,
        "event_step": lambda x: x * 0,
        "event_n": lambda x: x[::-1],
        "event_shape": lambda x: x - 5,
        "token_n": lambda x: x[::-1],
        "token_id": lambda x: x[:-1],
        "token_top_id": lambda x: x[:, :-1],
        "cell_index": lambda x: x + 1_000_000,
        "cells_size": lambda x: x * 0 + (1 << 30),
        "layer": lambda x: x + 600,
        "cells_n_seq": lambda x: x + 5000,
        "cells_changes": lambda x: x + 1,
        "graph_src": lambda x: x * 0 + 10_000,
        "graph_view": lambda x: x * 0 + 10_000,
        "graph_order": lambda x: x - 10_000,
        "graph_n_dims": lambda x: x + 9,
        "block_layer": lambda x: x + 100,
        "block_query": lambda x: x * 0 + (2**31 - 2),
        "block_n_query": lambda x: x * 0 + (2**31 - 1),
        "block_n_head": lambda x: x - 50,
        "block_n_key": lambda x: x + 10_000,
        "block_key_set": lambda x: x - 1000,
        "query_pos": lambda x: x[:-1],
        "statistic_name": lambda x: x - 100_000,
        "sampler_top_p": lambda x: x[:, :-1],
    }
    zipped = TraceZip(path)
    found = {n: zipped.array(n, sparse=True) for n in cases}

    def changed(name: str, array: np.ndarray) -> Path:
        info = zipped.info(name)
        part = tmp_path / "part.zarr.zip"
        write_zip(part, {}, [Variable(name, info.dims, array, info.attrs)])
        return rewritten(path, tmp_path / f"{name}.zarr.zip", instead(name, part))

    with open_trace(changed("event_name", found["event_name"])) as trace:
        assert trace.recorder.stats("l_out-0") is not None, "the same array again is no damage"
    for name, change in cases.items():
        out = changed(name, change(found[name]))
        with pytest.raises(TraceError), open_trace(out) as trace:
            _ = trace.recorder.attention, trace.recorder.stats("l_out-0")
