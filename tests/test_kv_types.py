"""K and V in every type that llama.cpp's cache can have: its bytes, its logits, its errors."""

from __future__ import annotations

import struct
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import llmviz
from llmviz.batch import Batch
from llmviz.generate import Generation
from llmviz.ggml import quants
from llmviz.ggml.backends.cpu_matmul import hadamard
from llmviz.memory.kv_layers import KV_TYPES
from llmviz.sampling import Chain, Dist, Temp
from llmviz.trace.kv_size import kv_size

TYPES = list(KV_TYPES)
IDS = np.random.default_rng(0).integers(3, 60, 24).tolist()
PAIRS = [
    (32, "bf16", "f16"),
    (32, "f16", "bf16"),
    (32, "f32", "q5_0"),
    (32, "q5_0", "f32"),
    (32, "q8_0", "q5_1"),
    (32, "q4_0", "iq4_nl"),
    (32, "q4_1", "q8_0"),
    (32, "q5_1", "q4_1"),
    (64, "iq4_nl", "q4_0"),
    (64, "f16", "q8_0"),
    (128, "q8_0", "q5_0"),
]
SPREAD = {"f32": 1e-5, "f16": 1e-3, "bf16": 4e-3, "q8_0": 1e-2}  # the 4- and 5-bit types: 2e-2


def first_layer(state: bytes, ctx: Any, n: int) -> tuple[list[int], bytes, bytes]:
    """The rotation widths, and layer 0's K and V rows, of a sequence's state."""
    at = state.find(struct.pack("<II", 1, n))  # streams, cells
    at += 8 + 12 * n  # position, number of sequences, sequence
    _, n_layer, *rotation = struct.unpack_from("<4I", state, at)
    at += 16
    rows = []
    for _ in range(2 * n_layer):
        _, size = struct.unpack_from("<iQ", state, at)
        rows.append(state[at + 12 : at + 12 + n * size])
        at += 12 + n * size
    return rotation, rows[0], rows[n_layer]


@pytest.mark.parametrize(("head", "type_k", "type_v"), PAIRS)
def test_as_llama_cpp(
    head: int, type_k: str, type_v: str, llamacpp: ModuleType, tiny_model: Callable[..., str]
) -> None:
    """Logits; and of the state the layout, the rotation, and layer 0 nearly to the last bit."""
    pair = type_k, type_v
    path = tiny_model(head_dim=head)
    params: dict[str, Any] = {"n_ctx": 256, "type_k": pair[0], "type_v": pair[1]}
    ctx = llmviz.load(path).context(**params)
    quantized_v = quants.get(pair[1]).block_size > 1
    attention = None if quantized_v else False  # llama.cpp must fuse it then
    with llamacpp.Reference(path, flash_attn=attention, n_threads=1, **params) as theirs:
        assert theirs.decode(IDS) == ctx.decode(Batch.get_one(IDS)) == 0
        a, b = ctx.get_logits_ith(-1), theirs.logits_ith(-1)
        limit = max(SPREAD.get(t, 2e-2) for t in pair)
        limit = max(limit, 2e-3) if quantized_v else limit  # fused attention rounds its own way
        assert np.linalg.norm(a - b) <= limit * np.linalg.norm(b)
        mine, other = ctx.memory.state_write(0), theirs.state_seq_get(0)
        assert len(mine) == len(other) - 8  # llama.cpp puts two words before
        if ctx.memory.v_trans:
            return
        (rot, k, v), (rot2, k2, v2) = (first_layer(s, ctx, len(IDS)) for s in (mine, other))
        assert rot == rot2 == list(ctx.memory.rotation)
        for x, y, t in ((k, k2, pair[0]), (v, v2, pair[1])):
            dtype = np.dtype(f"V{quants.get(t).type_size}")
            blocks = np.frombuffer(x, dtype), np.frombuffer(y, dtype)
            if t != "f32":  # a product's last bit may round a value the other way
                assert np.mean(blocks[0] != blocks[1]) < 0.03
            values = [quants.get(t).dequantize(np.frombuffer(z, np.uint8)) for z in (x, y)]
            np.testing.assert_allclose(values[0], values[1], atol=0.05 * np.abs(values[1]).max())


@pytest.mark.parametrize("type_", [t for t in TYPES if t != "f32"])
def test_rows_are_what_llama_cpp_stores(
    type_: str, llamacpp: ModuleType, tiny_model: Callable[..., str]
) -> None:
    """llama.cpp's own keys, stored by this code, are its cache, bit for bit."""
    path = tiny_model(head_dim=64)
    params: dict[str, Any] = {"n_ctx": 256, "type_k": type_, "type_v": "q8_0", "flash_attn": None}
    with llamacpp.Reference(path, nodes=True, n_threads=1, **params) as theirs:
        assert theirs.decode(IDS) == 0
        nodes = {(n.name, n.op): n.value for n in theirs.nodes}
        keys, values = nodes["Kcur-0", "ROPE"], nodes["Vcur-0", "RESHAPE"]
        state = theirs.state_seq_get(0)
    _, k, v = first_layer(state, None, len(IDS))
    for rows, stored, t in ((keys, k, type_), (values, v, "q8_0")):
        quant = quants.get(t)
        if quant.block_size > 1:
            rows = hadamard(np.ascontiguousarray(rows, np.float32))
        assert quant.quantize(rows.reshape(len(IDS), -1), store=True).tobytes() == stored


@pytest.mark.parametrize("pair", [("q8_0", "f32"), ("q4_0", "q8_0")])
def test_moved_keys(
    pair: tuple[str, str], llamacpp: ModuleType, tiny_model: Callable[..., str]
) -> None:
    """Decoded, mixed back, turned, mixed and quantized again, as there."""
    path = tiny_model(head_dim=64)
    params: dict[str, Any] = {"n_ctx": 256, "type_k": pair[0], "type_v": pair[1]}
    ctx = llmviz.load(path).context(**params)
    with llamacpp.Reference(path, flash_attn=None, n_threads=1, **params) as theirs:
        assert theirs.decode(IDS) == ctx.decode(Batch.get_one(IDS)) == 0
        for memory in (theirs, ctx.memory):
            memory.seq_rm(0, 4, 12)
            memory.seq_add(0, 12, -1, -8)
        for token in (9, 10):
            assert theirs.decode([token]) == ctx.decode(Batch.get_one([token])) == 0
        a, b = ctx.get_logits_ith(-1), theirs.logits_ith(-1)
        assert np.linalg.norm(a - b) <= 2e-2 * np.linalg.norm(b)


@pytest.mark.parametrize("pair", [("q8_0", "bf16"), ("q4_1", "iq4_nl")])
def test_going_back_gives_the_same_bits(pair: tuple[str, str], tiny_model: Any) -> None:
    ctx = llmviz.load(tiny_model(head_dim=32)).context(
        n_ctx=256, n_ubatch=8, type_k=pair[0], type_v=pair[1]
    )
    ctx.keeps_history = True
    run = Generation(ctx, [1, *range(262, 279)], Chain([Temp(0.9), Dist(7)]), n_predict=4)

    def record(events: Any, saves: bool = False) -> tuple[list[Any], list[Any]]:
        seen: list[Any] = []
        saved: list[Any] = []
        for e in events:
            if saves and (e.kind, e.name) == ("enter", "process_ubatch"):
                saved.append((len(seen), run.save()))
            if e.kind == "node" or e.name in ("logits", "token"):
                seen.append((e.name, np.array(e.value)))
        return seen, saved

    seen, saved = record(run.steps(), saves=True)
    state = ctx.memory.state_write()
    newer = [s for _, s in reversed(saved)]
    for i in (3, 0, 5, 2):
        start, point = saved[i]
        again, _ = record(run.resume(point, newer[: len(newer) - 1 - i]))
        for (name, x), (other, y) in zip(seen[start:], again, strict=True):
            assert name == other
            np.testing.assert_array_equal(x, y, err_msg=name)
        assert ctx.memory.state_write() == state


def test_a_state_is_taken_over(tiny_model: Any) -> None:
    model = llmviz.load(tiny_model(head_dim=64))
    params = {"n_ctx": 256, "type_k": "q5_0", "type_v": "q4_0"}
    one, two = model.context(**params), model.context(**params)
    one.decode(Batch.get_one(IDS))
    two.memory.state_read(one.memory.state_write())
    for ctx in (one, two):
        ctx.decode(Batch(token=[9], pos=[len(IDS)]))
    np.testing.assert_array_equal(one.get_logits_ith(-1), two.get_logits_ith(-1))
    plain = model.context(n_ctx=256, type_k="q5_0", type_v="q8_0")
    with pytest.raises(llmviz.LlmvizError, match="value type of layer 0 is 2"):
        plain.memory.state_read(one.memory.state_write())


def test_sequences_with_streams_of_their_own(tiny_model: Any) -> None:
    """Copied streams and several sequences give what one sequence alone gives."""
    model = llmviz.load(tiny_model(head_dim=32))
    params = {"n_ctx": 512, "type_k": "q8_0", "type_v": "q8_0"}
    ctx, alone = model.context(n_seq_max=2, **params), model.context(**params)
    for c in (ctx, alone):
        c.decode(Batch.get_one(IDS))
    ctx.memory.seq_cp(0, 1)
    both = Batch(token=[9, 9], pos=[len(IDS)] * 2, seq_id=[[0], [1]], logits=[1, 1])
    ctx.decode(both)
    alone.decode(Batch(token=[9], pos=[len(IDS)]))
    for i in (0, 1):
        np.testing.assert_allclose(
            ctx.get_logits_ith(i), alone.get_logits_ith(-1), rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize("type_", TYPES)
def test_sizes(type_: str, tiny_model: Any) -> None:
    model = llmviz.load(tiny_model(head_dim=32))
    ctx = model.context(n_ctx=256, type_k=type_, type_v=type_)
    quant = quants.get(type_)
    row = model.hparams.n_embd_k_gqa(0) // quant.block_size * quant.type_size
    assert ctx.memory.size_k_bytes() == ctx.memory.size_v_bytes() == 2 * 256 * row
    assert kv_size(model.hparams, n_ctx=256, type_k=type_, type_v=type_).nbytes == 4 * 256 * row
    assert ctx.memory.size_formula().count(f"({type_})") == 2


def test_refused(tiny_model: Any) -> None:
    model = llmviz.load(tiny_model())  # heads of 16 values
    with pytest.raises(llmviz.LlmvizError, match=r"block size 32 does not divide n_embd_head_k"):
        model.context(type_k="q8_0")
    wide = llmviz.load(tiny_model(head_dim=32))
    with pytest.raises(llmviz.LlmvizError, match="quantized V cache requires flash_attn"):
        wide.context(type_v="q4_0", flash_attn_type="disabled")
    with pytest.raises(llmviz.UnsupportedError, match=r"\(type_v\): 'q6_K'; supported: f32, f16"):
        wide.context(type_v="q6_K")
