"""Models on simulated devices: the numbers of one, and everything that can be done with a run."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import llmviz
from llmviz.batch import Batch
from llmviz.errors import DeviceMemoryError, LlmvizError
from llmviz.generate import Generation
from llmviz.ggml.backends.simulated import SimulatedDevice
from llmviz.sampling import Chain, Dist, Temp, TopK
from llmviz.trace import Debugger
from tests.tiny_archs import write_arch

PROMPT = [1, *range(262, 302)]
MOE = {"expert_count": 4, "expert_used_count": 2}


def two(memory: int = 2**26) -> list[SimulatedDevice]:
    return [SimulatedDevice(memory, "GPU0"), SimulatedDevice(memory, "GPU1")]


@pytest.fixture(scope="module")
def kinds(tiny_model: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Path of a model, by what is special about it."""
    folder = tmp_path_factory.mktemp("kinds")

    def of(name: str) -> str:
        if name in ("dense", "tied", "rope_freqs", "qkv_bias"):
            return tiny_model(variant=name, n_layer=5)
        if name == "quantized":
            return tiny_model(n_layer=3, weight_type="Q4_1", embd_type="Q8_0", tied=True)
        if name == "halves":
            return tiny_model(n_layer=3, weight_type="F16")
        keys: dict[str, Any] = {"block_count": 5}
        if name == "moe":
            return write_arch(folder / "moe.gguf", "llama", keys={**keys, **MOE},
                              optional=("output.weight", "*gate_exps*"))  # fmt: skip
        if name == "windows":
            keys["attention.sliding_window"] = 8
            return write_arch(folder / "swa.gguf", "gemma3", keys=keys)
        return write_arch(folder / f"{name}.gguf", name, keys=keys)

    return of


def logits(model: Any, **params: Any) -> tuple[list[bytes], Any]:
    """Logits of a prompt and of three more tokens, and the context."""
    ctx = model.context(n_ctx=256, n_ubatch=36, **params)
    out = []
    for tokens in (PROMPT, [270], [271], [272]):
        assert ctx.decode(Batch.get_one(tokens)) == 0
        out.append(ctx.get_logits_ith(-1).tobytes())
    return out, ctx


PLACES: list[dict[str, Any]] = [
    {"n_gpu_layers": 0},
    {"n_gpu_layers": 3, "tensor_split": [3, 1]},
    {"n_gpu_layers": 1},
    {"n_gpu_layers": -1},
]


@pytest.mark.filterwarnings("ignore:weights='quantized' is computed by numpy")
@pytest.mark.parametrize(
    "name", ["dense", "tied", "rope_freqs", "quantized", "halves", "moe", "windows", "bloom"]
)
def test_every_placement_gives_the_same_bits(name: str, kinds: Any) -> None:
    path = kinds(name)
    weights = "quantized" if name in ("quantized", "halves") else "auto"
    expected, _ = logits(llmviz.load(path, weights=weights))
    for place in PLACES if name == "dense" else PLACES[1:2]:
        model = llmviz.load(path, weights=weights, devices=two(), **place)
        assert logits(model)[0] == expected, place
    if name in ("dense", "windows"):
        assert logits(model, op_offload=False)[0] == expected
        assert logits(model, offload_kqv=False)[0] == expected


@pytest.mark.parametrize("kv", ["f32", "bf16", "q8_0"])
def test_every_type_of_cache(kv: str, tiny_model: Callable[..., str]) -> None:
    path = tiny_model(n_layer=3, head_dim=32)
    params = {"type_k": kv, "type_v": kv}
    expected, _ = logits(llmviz.load(path), **params)
    a, b = two()
    model = llmviz.load(path, devices=[a, b], n_gpu_layers=3)
    found, ctx = logits(model, **params)
    assert found == expected
    assert a.used["kv"] + b.used["kv"] == ctx.memory.total_size() * 2 // 3  # layer 0 is the host's


def test_a_kernel_only_reads_what_lies_on_its_device(kinds: Any) -> None:
    model = llmviz.load(kinds("tied"), devices=two(), n_gpu_layers=4)
    _, ctx = logits(model)
    seen = set()
    for node in ctx.graph.gf.nodes:
        if node.op != "CPY":
            assert all(src.home is node.home for src in node.src), node.name
        seen.add(node.home.name if node.home else "CPU")
    assert seen == {"CPU", "GPU0 (simulated)", "GPU1 (simulated)"}


def test_splits_and_copies_of_a_decode(kinds: Any) -> None:
    """All layers on one device: the host looks up the embedding, the device does the rest."""
    (gpu, _) = two()
    model = llmviz.load(kinds("dense"), devices=[gpu], n_gpu_layers=-1)
    _, ctx = logits(model)
    assert ctx.sched.n_splits == 2
    assert [c.source for c in ctx.sched.copies] == [
        "embd", "inp_pos", "attn_inp_k_idxs", "attn_inp_v_idxs", "attn_inp_kq_mask", "out_ids",
    ]  # fmt: skip
    n_in, bytes_in = gpu.traffic.n_in, gpu.traffic.bytes_in
    n_out = gpu.traffic.n_out
    ctx.decode(Batch.get_one([275]))
    assert gpu.traffic.n_in - n_in == 6
    assert gpu.traffic.bytes_in - bytes_in == sum(c.nbytes for c in ctx.sched.copies)
    assert gpu.traffic.n_out - n_out == 1  # the logits


def test_one_backend_has_one_split_and_no_copies(kinds: Any) -> None:
    _, ctx = logits(llmviz.load(kinds("dense")))
    assert ctx.sched.n_splits == 1 and ctx.sched.copies == []
    assert len(ctx.sched.allocators) == 1 and ctx.graph.gf.splits == []


def test_events_are_those_of_one_backend_and_the_copies(kinds: Any) -> None:
    path = kinds("dense")

    def nodes(model: Any) -> list[tuple[str, bytes]]:
        ctx = model.context(n_ctx=256)
        steps = ctx.decode_steps(Batch.get_one(PROMPT[:9]))
        return [(e.name, np.array(e.value).tobytes()) for e in steps if e.kind == "node"]

    plain = nodes(llmviz.load(path))
    there = nodes(llmviz.load(path, devices=two(), n_gpu_layers=-1))
    assert [n for n in there if "#" not in n[0]] == plain
    copies = [name for name, _ in there if "#" in name]
    assert "GPU0 (simulated)#embd#0" in copies and "GPU1 (simulated)#l_out-2#0" in copies
    assert all("simulated" in name for name in copies)


def test_an_edit_on_a_device_is_what_comes_after_it_reads(kinds: Any) -> None:
    path = kinds("dense")
    results = []
    for params in ({}, {"devices": two(), "n_gpu_layers": 4}):
        ctx = llmviz.load(path, **params).context(n_ctx=256)
        for event in ctx.decode_steps(Batch.get_one(PROMPT[:9])):
            if event.name in ("l_out-1", "Vcur-3", "l_out-4"):
                event.value = event.value * np.float32(1.5)
        results.append(ctx.get_logits_ith(-1).tobytes())
    assert results[0] == results[1]


def test_an_edited_copy_is_what_its_own_device_reads(kinds: Any) -> None:
    """The source keeps its value, and so does who reads that."""
    model = llmviz.load(kinds("dense"), devices=two(), n_gpu_layers=-1)
    runs: list[dict[str, bytes]] = [{}, {}]
    for edit, seen in enumerate(runs):
        ctx = model.context(n_ctx=256)
        for event in ctx.decode_steps(Batch.get_one(PROMPT[:9])):
            if edit and event.name == "GPU1 (simulated)#l_out-2#0":
                event.value = np.zeros_like(event.value)
            if event.kind == "node":
                seen[event.name] = np.array(event.value).tobytes()
    changed = [name for name, value in runs[0].items() if value != runs[1][name]]
    assert "l_out-2" not in changed and "attn_norm-2" not in changed
    assert {"norm-3", "attn_norm-3", "l_out-4", "result_output"} <= set(changed)


def test_the_lens_computes_where_the_weights_are(kinds: Any) -> None:
    from llmviz.trace.lens import LogitLens

    for params in ({}, {"devices": two(), "n_gpu_layers": 3}):
        model = llmviz.load(kinds("tied"), **params)
        ctx = model.context(n_ctx=256)
        for event in ctx.decode_steps(Batch.get_one(PROMPT[:9])):
            if event.name == "l_out-4":
                last = np.array(event.value)[-1]
        np.testing.assert_array_equal(LogitLens(model)(last), ctx.get_logits_ith(-1))


def test_a_saved_trace_knows_the_copies(kinds: Any, tmp_path: Path) -> None:
    model = llmviz.load(kinds("dense"), devices=two(), n_gpu_layers=-1)
    dbg = Debugger(model, "hello", chain=Chain([Temp(0.8), Dist(3)]), n_predict=2, n_ctx=256)
    dbg.run()
    dbg.save(tmp_path / "run.zarr.zip")
    with llmviz.open_trace(tmp_path / "run.zarr.zip") as trace:
        names = [t.name for t in trace.ctx.graph.gf.nodes]
    assert names == [t.name for t in dbg.ctx.graph.gf.nodes]
    assert "GPU1 (simulated)#l_out-2#0" in names


def test_coming_back_replays_the_same(kinds: Any) -> None:
    model = llmviz.load(kinds("tied"), devices=two(), n_gpu_layers=4)
    ctx = model.context(n_ctx=256, n_ubatch=8)
    run = Generation(ctx, PROMPT[:20], Chain([TopK(30), Temp(0.9), Dist(7)]), n_predict=4)
    ctx.keeps_history = True
    seen: list[Any] = []
    saved: list[Any] = []
    for event in run.steps():
        if (event.kind, event.name) == ("enter", "process_ubatch"):
            saved.append((len(seen), run.save()))
        if event.kind == "node" or event.name in ("logits", "token"):
            seen.append((event.name, np.array(event.value).tobytes()))
    newer = [s for _, s in reversed(saved)]
    for i in (4, 0, 2):
        start, point = saved[i]
        again = [
            (e.name, np.array(e.value).tobytes())
            for e in run.resume(point, newer[: len(newer) - 1 - i])
            if e.kind == "node" or e.name in ("logits", "token")
        ]
        assert again == seen[start:]


def test_a_debugger_goes_back_and_forth(kinds: Any) -> None:
    model = llmviz.load(kinds("dense"), devices=two(), n_gpu_layers=-1)
    chain = Chain([Temp(0.8), Dist(3)])
    dbg = Debugger(model, "hello", chain=chain, n_predict=4, n_ctx=256)
    dbg.next_token()
    n, text = dbg.here.n, dbg.text
    dbg.next_token()
    dbg.goto(n)
    assert (dbg.here.n, dbg.text) == (n, text)


def test_times_have_an_entry_for_every_copy(kinds: Any) -> None:
    from llmviz.ggml.sched import NodeTimes

    model = llmviz.load(kinds("dense"), devices=two(), n_gpu_layers=-1)
    ctx = model.context(n_ctx=256)
    ctx.sched.times = NodeTimes()
    ctx.decode(Batch.get_one(PROMPT[:9]))
    graph = ctx.sched.times.graph
    assert graph is ctx.graph.gf
    spent = dict(zip((n.name for n in graph.nodes), ctx.sched.times.compute, strict=True))
    assert spent["GPU1 (simulated)#l_out-2#0"] > 0


def test_a_saved_state_goes_from_one_placement_to_another(kinds: Any) -> None:
    path = kinds("dense")
    plain = llmviz.load(path).context(n_ctx=256)
    there = llmviz.load(path, devices=two(), n_gpu_layers=4).context(n_ctx=256)
    for ctx in (plain, there):
        ctx.decode(Batch.get_one(PROMPT[:20]))
    state = plain.memory.state_write()
    assert there.memory.state_write() == state
    there.memory.clear()
    there.memory.state_read(state)
    for ctx in (plain, there):
        ctx.decode(Batch.get_one([290]))
    assert there.get_logits_ith(-1).tobytes() == plain.get_logits_ith(-1).tobytes()


def test_shifted_keys(kinds: Any) -> None:
    results = []
    for params in ({}, {"devices": two(), "n_gpu_layers": 4}):
        ctx = llmviz.load(kinds("rope_freqs"), **params).context(n_ctx=256)
        ctx.decode(Batch.get_one(PROMPT[:20]))
        ctx.memory.seq_rm(0, 2, 6)
        ctx.memory.seq_add(0, 6, -1, -4)
        ctx.decode(Batch.get_one([290]))
        results.append(ctx.get_logits_ith(-1).tobytes())
    assert results[0] == results[1]


# memory


def test_what_a_device_holds_adds_up_and_is_given_back(kinds: Any) -> None:
    a, b = two()
    model = llmviz.load(kinds("tied"), devices=[a, b], n_gpu_layers=4, weights="f32")
    _, ctx = logits(model)
    use = {u.device: u for u in ctx.memory_breakdown()}
    assert list(use) == [a.name, b.name, "CPU"]
    for device in (a, b):
        u = use[device.name]
        held = {"weights": u.weights, "kv": u.kv, "compute": u.compute}
        assert device.used == held and all(held.values())
        assert u.is_simulated and u.total == device.memory and u.free == device.memory - u.used
    assert sum(u.kv for u in use.values()) == ctx.memory.total_size()
    assert ctx.memory.size_formula().splitlines()[2:] == [
        "2 layers on CPU (0.06 MiB), 2 layers on GPU0 (simulated) (0.06 MiB), "
        "1 layer on GPU1 (simulated) (0.03 MiB)"
    ]
    assert not use["CPU"].is_simulated
    del u, ctx
    assert a.used["kv"] == a.used["compute"] == 0
    del model
    assert sum(a.used.values()) == sum(b.used.values()) == 0


def test_weights_that_do_not_fit_are_refused_before_they_are_loaded(kinds: Any) -> None:
    path = kinds("dense")
    gpu = SimulatedDevice(450_000, "GPU0")
    with pytest.raises(DeviceMemoryError, match="n_gpu_layers=3 would fit") as caught:
        llmviz.load(path, devices=[gpu], n_gpu_layers=-1, weights="f32")
    assert sum(gpu.used.values()) == 0 and gpu.traffic.n_in == 0
    error = caught.value
    assert isinstance(error, LlmvizError)
    assert (error.device, error.fits, error.free) == (gpu.name, 3, gpu.memory)
    assert error.needed > error.free
    for word in ("(simulated)", "MiB free", "tensor_split", "KV cache", "compute buffers"):
        assert word in str(error)
    with pytest.raises(DeviceMemoryError):
        llmviz.load(path, devices=[gpu], n_gpu_layers=4, weights="f32")
    model = llmviz.load(path, devices=[gpu], n_gpu_layers=3, weights="f32")
    assert gpu.used["weights"] <= gpu.memory and model.placement.n_gpu_layers == 3


def test_a_context_that_does_not_fit_says_how_many_layers_would(kinds: Any) -> None:
    path = kinds("dense")
    gpu = SimulatedDevice(1_500_000, "GPU0")
    model = llmviz.load(path, devices=[gpu], n_gpu_layers=-1, weights="f32")
    params = {"n_ctx": 2048, "n_ubatch": 16, "type_k": "f32", "type_v": "f32"}
    held = dict(gpu.used)
    with pytest.raises(DeviceMemoryError) as caught:
        model.context(**params)
    assert gpu.used == held  # nothing was taken
    fits = caught.value.fits
    assert fits is not None and 0 <= fits < 6
    for word in ("KV cache", "compute buffers", "weights have taken", f"n_gpu_layers={fits}",
                 "n_ctx (now 2048)", "n_ubatch (now 16)", "offload_kqv=False"):  # fmt: skip
        assert word in str(caught.value)
    model.context(**params, offload_kqv=False)  # as the message says
    model.context(**{**params, "n_ctx": 256})
    del model
    model = llmviz.load(path, devices=[gpu], n_gpu_layers=fits, weights="f32")
    ctx = model.context(**params)
    assert ctx.decode(Batch.get_one(PROMPT)) == 0
    del ctx, model
    model = llmviz.load(path, devices=[gpu], n_gpu_layers=fits + 1, weights="f32")
    with pytest.raises(DeviceMemoryError):
        model.context(**params)


def test_arenas_never_grow_after_the_context_was_made(kinds: Any) -> None:
    a, b = two()
    model = llmviz.load(kinds("windows"), devices=[a, b], n_gpu_layers=4)
    ctx = model.context(n_ctx=512, n_ubatch=36)
    before = a.used["compute"], b.used["compute"]
    for _ in range(8):
        ctx.decode(Batch.get_one(PROMPT))
    assert (a.used["compute"], b.used["compute"]) == before


def test_splits_without_devices_are_llama_cpps(kinds: Any, llamacpp: Any) -> None:
    with llamacpp.Reference(kinds("tied"), n_ctx=256) as reference:
        said = "".join(line.text for line in reference.log)
    _, ctx = logits(llmviz.load(kinds("tied")))
    assert f"splits = {ctx.sched.n_splits}," in said
    layers = re.findall(r"layer +\d+ assigned to device (\w+)", said)
    by_layer = ctx.model.placement.by_layer()
    assert layers == [by_layer[str(il)] for il in range(5)] + [by_layer["output"]]


# devices that are given


def test_a_simulated_device_says_so_everywhere(kinds: Any) -> None:
    gpu = SimulatedDevice(2**26, "card")
    assert gpu.name == "card (simulated)" and "simulated" in repr(gpu)
    model = llmviz.load(kinds("dense"), devices=[gpu], n_gpu_layers=1)
    entry = next(d for d in model.devices if d.name == gpu.name)
    assert entry.is_simulated and "numpy" in entry.description
    assert model.placement.by_layer()["output"] == gpu.name
    assert model.tensors["output.weight"].device == gpu.name


@pytest.mark.parametrize(
    ("devices", "words"),
    [
        (["CUDA9"], "CUDA9"),
        ([object()], "memory of its own"),
        ([SimulatedDevice(99, "A"), SimulatedDevice(99, "A")], "twice"),
    ],
)
def test_devices_that_cannot_be(devices: list[Any], words: str, kinds: Any) -> None:
    with pytest.raises(LlmvizError, match=words):
        llmviz.load(kinds("dense"), devices=devices, n_gpu_layers=1)


@pytest.mark.parametrize("bad", [{"memory": 0}, {"memory": 1.5}, {"name": "a#b"}, {"name": ""}])
def test_simulated_devices_that_cannot_be(bad: dict[str, Any]) -> None:
    with pytest.raises(LlmvizError):
        SimulatedDevice(**bad)


def test_step_one_shows_the_devices_that_are_given(kinds: Any, tmp_path: Path) -> None:
    from llmviz.model.loader import load_steps

    gpu = SimulatedDevice(2**26)
    events = list(load_steps(kinds("dense"), devices=[gpu], n_gpu_layers=2))
    shown = [e for e in events if e.step == 1 and e.name == gpu.name]
    assert len(shown) == 1 and shown[0].value.is_simulated
    (place,) = [e for e in events if e.name == "layer_devices"]
    assert place.step == 6
    assert place.value == {
        "input": "CPU", "0": "CPU", "1": "CPU", "2": "CPU", "3": "CPU", "4": gpu.name,
        "output": gpu.name,
    }  # fmt: skip
