"""Whole models through the CUDA backend, run on the processor: the CPU's numbers, node by node."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import llmviz
from llmviz.batch import Batch
from llmviz.errors import DeviceMemoryError, LlmvizError, UnsupportedError
from llmviz.generate import Generation
from llmviz.ggml.sched import NodeTimes, never
from llmviz.sampling import Chain, Dist, Temp
from tests.ggml.backends.cuda_shim import fake_cupy
from tests.ggml.backends.cuda_shim.device import ON_GPU, SLACK
from tests.tiny_archs import write_arch

pytestmark = pytest.mark.filterwarnings("ignore:weights='quantized' is computed by numpy")

PROMPT = [1, *range(262, 271)]
F32 = {"type_k": "f32", "type_v": "f32"}
KINDS = ["dense", "q4_1", "k_quants", "moe", "gpt2", "gemma3", "gpt-oss", "bloom", "qwen3moe"]


@pytest.fixture(scope="module")
def kinds(tiny_model: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Path of a model, by what is special about it."""
    folder = tmp_path_factory.mktemp("kinds")

    def of(name: str) -> str:
        if name == "dense":
            return tiny_model(n_layer=2)
        if name == "q4_1":
            return tiny_model(n_layer=2, weight_type="Q4_1", embd_type="Q8_0", tied=True)
        if name == "k_quants":
            return tiny_model(
                n_layer=1, n_embd=256, n_ff=256, weight_type="Q4_K", embd_type="Q6_K", tied=True
            )
        keys: dict[str, Any] = {"block_count": 2}
        if name in ("moe", "gpt-oss", "qwen3moe"):
            keys |= {"expert_count": 4, "expert_used_count": 2}
        if name == "moe":
            optional = ("output.weight", "*gate_exps*")
            return write_arch(folder / "moe.gguf", "llama", keys=keys, optional=optional)
        if name in ("gemma3", "gpt-oss"):
            keys["attention.sliding_window"] = 8
        if name == "gpt-oss":
            keys["expert_feed_forward_length"] = 48
        return write_arch(folder / f"{name}.gguf", name, keys=keys)

    return of


# GELU is looked up for half floats: where an input rounds apart, by a last bit of one
TOLERANCE = {"gpt2": 1e-3, "bloom": 1e-3, "gemma3": 1e-3}


def tolerance(name: str) -> float:
    """Of a node, relative to its largest value."""
    if ON_GPU and weights_of(name) == "quantized":
        return 0.03  # sums rounded apart round some activations to another of 255 codes
    return TOLERANCE.get(name, 2e-5) * SLACK


def weights_of(name: str) -> str:
    return "quantized" if name in ("q4_1", "k_quants") else "f32"


def on_cuda(cuda: Any, path: str, **params: Any) -> Any:
    return llmviz.load(path, devices=[cuda], **{"n_gpu_layers": -1, **params})


def run(model: Any, want: Any = None, **params: Any) -> tuple[list[np.ndarray], dict[str, Any]]:
    """Logits of a prompt, in two ubatches, and of one more token; values of all nodes."""
    ctx = model.context(n_ctx=256, n_ubatch=9, **{**F32, **params})
    logits, nodes = [], {}
    for i, tokens in enumerate((PROMPT, [270])):
        for event in ctx.decode_steps(Batch.get_one(tokens), want):
            if event.kind == "node":
                nodes[f"{i} {event.name}"] = np.array(event.value)
        logits.append(ctx.get_logits_ith(-1).copy())
    return logits, nodes


@pytest.mark.parametrize("name", KINDS)
def test_every_node_is_the_cpus(name: str, kinds: Any, cuda: Any) -> None:
    path, weights = kinds(name), weights_of(name)
    plain, expected = run(llmviz.load(path, weights=weights))
    there, nodes = run(on_cuda(cuda, path, weights=weights))
    for ours, right in zip(there, plain, strict=True):
        assert np.abs(ours - right).max() <= tolerance(name) * np.abs(right).max()
    worst = {}
    for key, right in expected.items():
        ours = nodes[key]
        assert ours.shape == right.shape and ours.dtype == right.dtype
        if right.dtype.kind == "f" and right.size:
            finite = np.isfinite(right)
            np.testing.assert_array_equal(np.isfinite(ours), finite)
            difference = np.abs(ours[finite] - right[finite]).max(initial=0)
            worst[key] = difference / max(np.abs(right[finite]).max(initial=0), 1e-30)
    assert max(worst.values()) < tolerance(name), sorted(worst.items(), key=lambda kv: -kv[1])[:5]
    # all of the model is there: only the embeddings are looked up by the host
    n_splits = on_cuda(cuda, path, weights=weights).context(n_ctx=256).sched.n_splits
    assert n_splits <= 2


def test_half_floats_in_the_cache(kinds: Any, cuda: Any) -> None:
    plain, _ = run(llmviz.load(kinds("dense")), type_k="f16", type_v="f16")
    there, _ = run(on_cuda(cuda, kinds("dense")), type_k="f16", type_v="f16")
    for ours, right in zip(there, plain, strict=True):
        assert (
            np.abs(ours - right).max() <= 1e-4 * np.abs(right).max()
        )  # a last bit may round apart


def test_nobody_watching_gives_the_same_bits(kinds: Any, cuda: Any) -> None:
    model = on_cuda(cuda, kinds("q4_1"), weights="quantized")
    seen, _ = run(model)
    unseen, _ = run(model, never)
    some, _ = run(model, lambda name: name == "l_out-0")
    for a, b, c in zip(seen, unseen, some, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, c)


@pytest.mark.usefixtures("cupy")
def test_decoding_is_one_launch_once_it_is_recorded(kinds: Any, cuda: Any) -> None:
    ctx = on_cuda(cuda, kinds("dense")).context(n_ctx=256)
    launches = []
    for i in range(4):
        before = cuda.stream.n_launches
        ctx.decode(Batch.get_one([270 + i]))
        launches.append(cuda.stream.n_launches - before)
    assert launches[0] > 20 and launches[1:] == [1, 1, 1]
    ctx.decode(Batch.get_one([1, 2]))  # another graph
    before = cuda.stream.n_launches
    ctx.decode(Batch.get_one([270]))
    ctx.decode(Batch.get_one([271]))
    assert cuda.stream.n_launches - before == launches[0] + 1


def test_recording_can_be_switched_off(kinds: Any, cupy: Any) -> None:
    from llmviz.ggml.backends.cuda.device import CUDA

    plain = CUDA()
    plain.records = False
    ctx = on_cuda(plain, kinds("dense")).context(n_ctx=256)
    launches = []
    for _ in range(3):
        before = plain.stream.n_launches
        ctx.decode(Batch.get_one([270]))
        launches.append(plain.stream.n_launches - before)
    assert launches[0] == launches[1] == launches[2] > 20


def test_nothing_comes_to_the_host_but_what_is_asked_for(kinds: Any, cuda: Any) -> None:
    ctx = on_cuda(cuda, kinds("dense")).context(n_ctx=256)
    fetched = []
    get = cuda.get
    cuda.get = lambda array: fetched.append(array.shape) or get(array)
    try:
        for _ in ctx.decode_steps(Batch.get_one([270]), lambda name: name == "ffn_inp-1"):
            pass
    finally:
        del cuda.get
    assert len(fetched) == 2  # the node, and the logits


def test_each_node_is_waited_for_while_times_are_taken(kinds: Any, cuda: Any) -> None:
    ctx = on_cuda(cuda, kinds("q4_1"), weights="quantized").context(n_ctx=256)
    ctx.sched.times = NodeTimes()
    waited = []
    synchronize = type(cuda.stream).synchronize
    with pytest.MonkeyPatch.context() as patch:
        if not ON_GPU:
            waits = lambda stream: waited.append(1) or synchronize(stream)  # noqa: E731
            patch.setattr(type(cuda.stream), "synchronize", waits)
        ctx.decode(Batch.get_one(PROMPT))
    nodes = ctx.sched.times.graph.nodes
    took = [n for n, ns in zip(nodes, ctx.sched.times.compute, strict=True) if ns > 0]
    assert len(took) > 20
    assert ON_GPU or len(waited) >= len([n for n in took if n.home is cuda and n.op != "CPY"])


def test_an_edit_is_what_comes_after_it_reads(kinds: Any, cuda: Any) -> None:
    results = []
    for model in (llmviz.load(kinds("dense")), on_cuda(cuda, kinds("dense"))):
        ctx = model.context(n_ctx=256, **F32)
        for event in ctx.decode_steps(Batch.get_one(PROMPT)):
            if event.name in ("l_out-0", "Vcur-1", "attn_inp_kq_mask"):
                event.value = event.value * np.float32(1.5)
        results.append(ctx.get_logits_ith(-1).copy())
    assert np.abs(results[0] - results[1]).max() < 1e-5 * SLACK * np.abs(results[0]).max()


def test_coming_back_replays_the_same(kinds: Any, cuda: Any) -> None:
    ctx = on_cuda(cuda, kinds("dense")).context(n_ctx=256, n_ubatch=8)
    drawn = Generation(ctx, PROMPT, Chain([Temp(0.9), Dist(7)]), n_predict=2)
    ctx.keeps_history = True
    seen: list[Any] = []
    saved: list[Any] = []
    for event in drawn.steps(lambda name: name.startswith("l_out")):
        if (event.kind, event.name) == ("enter", "process_ubatch"):
            saved.append((len(seen), drawn.save()))
        if event.kind == "node" or event.name in ("logits", "token"):
            seen.append((event.name, np.array(event.value).tobytes()))
    newer = [s for _, s in reversed(saved)]
    start, point = saved[1]
    again = [
        (e.name, np.array(e.value).tobytes())
        for e in drawn.resume(point, newer[:-2], lambda name: name.startswith("l_out"))
        if e.kind == "node" or e.name in ("logits", "token")
    ]
    assert again == seen[start:]


def test_keys_are_shifted_and_states_saved(kinds: Any, cuda: Any) -> None:
    results, states = [], []
    for model in (llmviz.load(kinds("dense")), on_cuda(cuda, kinds("dense"))):
        ctx = model.context(n_ctx=256, **F32)
        ctx.decode(Batch.get_one(PROMPT))
        ctx.memory.seq_rm(0, 2, 6)
        ctx.memory.seq_add(0, 6, -1, -4)
        ctx.decode(Batch.get_one([290]))
        results.append(ctx.get_logits_ith(-1).copy())
        state = ctx.memory.state_write()
        ctx.memory.clear()
        ctx.memory.state_read(state)
        assert ctx.memory.state_write() == state
        states.append(len(state))
    assert np.abs(results[0] - results[1]).max() < 1e-5 * SLACK * np.abs(results[0]).max()
    assert states[0] == states[1]


def test_layers_shared_with_the_cpu_and_between_two_devices(kinds: Any, cupy: Any) -> None:
    from llmviz.ggml.backends.cuda.device import CUDA

    plain, _ = run(llmviz.load(kinds("dense")))
    with fake_cupy.installed(n_devices=2):
        for devices, n in (([CUDA(1)], 2), ([CUDA(0), CUDA(1)], -1)):
            split = [1.0] * len(devices)
            places = {"devices": devices, "n_gpu_layers": n, "tensor_split": split}
            there, _ = run(llmviz.load(kinds("dense"), **places), never)
            for ours, right in zip(there, plain, strict=True):
                assert np.abs(ours - right).max() <= 1e-5 * np.abs(right).max()


@pytest.mark.usefixtures("cupy")
def test_what_does_not_fit_is_said(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake_cupy.Device, "used", fake_cupy.MEMORY - 1000)
    with pytest.raises(DeviceMemoryError, match=r"CUDA0 has 0\.0 of 1,024\.0 MiB free, kv need"):
        cuda.alloc(1 << 20, "kv")


def test_a_device_without_products_of_bytes_is_refused(
    cupy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from llmviz.ggml.backends.cuda.device import CUDA

    monkeypatch.setattr(fake_cupy.Device, "compute_capability", "52")
    with pytest.raises(LlmvizError, match=r"CUDA0 has compute capability 5\.2, .* need 6\.1"):
        CUDA()


def test_a_cache_in_blocks_is_refused(kinds: Any, cuda: Any) -> None:
    with pytest.raises(UnsupportedError, match="CUDA0"):
        on_cuda(cuda, kinds("k_quants")).context(n_ctx=256, type_k="q8_0")


def test_devices_are_found_and_opened_by_name(kinds: Any, cupy: Any) -> None:
    assert [d.name for d in llmviz.devices()][-1] == "CUDA0"
    model = llmviz.load(kinds("dense"), n_gpu_layers=1)
    assert model.placement.by_layer()["output"] == "CUDA0"


def test_without_cupy_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from llmviz.ggml.backends.cuda.device import CUDA

    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(LlmvizError, match=r"llmviz-debugger\[cuda\]"):
        CUDA()


def test_importing_llmviz_imports_nothing_of_it() -> None:
    program = "import sys, llmviz; llmviz.devices(); print([m for m in sys.modules if 'cu' in m])"
    env_free = "import sys; sys.modules['cupy'] = None; " + program
    done = subprocess.run([sys.executable, "-c", env_free], capture_output=True, text=True)
    found = done.stdout
    assert "backends.cuda" not in found and done.returncode == 0, done.stderr


def test_sources_travel_with_the_package() -> None:
    from llmviz.ggml.backends.cuda import library

    assert {p.suffix for p in library.SOURCES.iterdir()} == {".cu", ".cuh"}
    assert library.SOURCES.is_relative_to(Path(llmviz.__file__).parent)


@pytest.mark.usefixtures("cupy")
def test_the_benchmark_runs(
    tiny_model: Callable[..., str],
    cuda: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from tests.benchmarks import bench_gpu

    monkeypatch.setattr(bench_gpu, "COPY", 1 << 20)
    few = ["--n-decode", "1", "--context", "1", "--prefill", "2", "--weights", "f32"]
    bench_gpu.main(["--model", tiny_model(n_layer=1), *few])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[-8:]] == ["decode"] * 2 + ["prefill"] + [
        "watching"
    ] * 5
