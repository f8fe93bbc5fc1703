"""Saved states: round trips, damaged data, llama.cpp's own bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmviz.batch import Batch, BatchAllocr
from llmviz.ggml.types import GGMLType
from llmviz.memory import CacheError, KVCache


def cache(n: int = 6, seq_id: int = 0, **kw: Any) -> KVCache:
    """Two layers of different width, `n` tokens, random K and V in the used cells."""
    kv = KVCache(**{"layers": [(0, 4, 2), (3, 6, 4)], "kv_size": 12, "n_seq_max": 2, **kw})
    decode(kv, n, seq_id)
    rng = np.random.default_rng(1)
    for layer in kv.layers:
        layer.k[:] = rng.normal(size=layer.k.shape)
        layer.v[:] = rng.normal(size=layer.v.shape)
    return kv


def decode(kv: KVCache, n: int, seq_id: int = 0) -> None:
    if n:
        balloc = BatchAllocr()
        balloc.init(
            Batch([1] * n, seq_id=[seq_id] * n), n_vocab=9, n_seq_max=kv.n_seq_max, memory=kv
        )
        kv.init_batch(balloc, 512).apply()


def rows(kv: KVCache, seq_id: int) -> list[list]:
    """Position, keys and values of a sequence's cells, in order of position."""
    stream = kv.seq_to_stream[seq_id]
    cells = kv.cells[stream]
    idxs = sorted(cells.in_range(seq_id, -1, -1).tolist(), key=lambda i: cells.pos[i])
    found = []
    for i in idxs:
        values = [cells.pos[i].item()]
        for layer in kv.layers:
            v = layer.v[stream].T if kv.v_trans else layer.v[stream]
            values += [*layer.k[stream, i].tolist(), *v[i, : layer.n_embd_v_gqa].tolist()]
        found.append(values)
    return found


SETUPS = [
    {},
    {"v_trans": False},
    {"unified": False},
    {"unified": False, "v_trans": False},
    {"type_k": GGMLType.F32, "type_v": GGMLType.F32},
]


@pytest.mark.parametrize("setup", SETUPS)
def test_one_sequence_into_another(setup: dict) -> None:
    kv = cache(**setup)
    kv.seq_rm(0, 2, 4)
    data = kv.state_write(0)
    before = rows(kv, 0)
    decode(kv, 3, seq_id=1)  # is replaced
    assert kv.state_read(data, 1) == len(data)
    assert rows(kv, 1) == before
    assert rows(kv, 0) == before
    assert (kv.seq_pos_min(1), kv.seq_pos_max(1)) == (0, 5)


@pytest.mark.parametrize("setup", SETUPS)
def test_everything_into_a_fresh_cache(setup: dict) -> None:
    kv = cache(**setup)
    decode(kv, 3, seq_id=1)
    if kv.unified:
        kv.seq_cp(0, 1, 0, 2)
    kv.seq_rm(0, 0, 1)
    data = kv.state_write()
    other = cache(0, **setup)
    decode(other, 4)
    assert other.state_read(data) == len(data)
    assert [rows(other, s) for s in (0, 1)] == [rows(kv, s) for s in (0, 1)]
    assert other.heads == [0] * other.n_stream
    assert other.state_write() == data


def test_an_empty_sequence() -> None:
    kv = cache()
    data = kv.state_write(1)
    assert data == struct.pack("<II", 1, 0)
    assert kv.state_read(data, 1) == 8


def test_cells_behind_the_window_are_not_saved() -> None:
    kv = cache(n_swa=3, swa_type="standard")
    other = cache(0, n_swa=3, swa_type="standard")
    other.state_read(kv.state_write(0), 0)
    assert (other.seq_pos_min(0), other.seq_pos_max(0)) == (3, 5)


@pytest.mark.parametrize("setup", SETUPS)
def test_cut_anywhere_empties_the_sequence(setup: dict) -> None:
    source = cache(**setup)
    data = source.state_write(0)
    kv = cache(0, **setup)
    decode(kv, 2, seq_id=0)
    keep = rows(kv, 0)
    for n in [*range(100), *range(100, len(data), 7)]:
        decode(kv, 3, seq_id=1)
        with pytest.raises(CacheError, match="bytes at offset"):
            kv.state_read(data[:n], 1)
        assert kv.seq_pos_max(1) == (2 if n < 4 else -1)  # not even the number of streams
        assert rows(kv, 0) == keep
        kv.seq_rm(1)


def test_a_failed_restore_leaves_no_values_behind() -> None:
    source = cache()
    data = source.state_write(0)
    kv = KVCache(layers=[(0, 4, 2), (3, 6, 4)], kv_size=12, n_seq_max=2)
    with pytest.raises(CacheError):
        kv.state_read(data[:-1], 0)
    assert not any(layer.k.any() or layer.v.any() for layer in kv.layers)


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ({"unified": False}, {}, "state has 2 streams, this cache has 1"),
        ({}, {"kv_size": 4}, "not enough cells: the state has 6, this cache 4"),
        ({}, {"v_trans": False}, "V transposition is 1, but this cache has 0"),
        ({}, {"layers": [(0, 4, 2)]}, "number of layers is 2, but this cache has 1"),
        ({}, {"type_k": GGMLType.F32}, "key type of layer 0 is 1, but this cache has 0"),
        ({}, {"layers": [(0, 5, 2), (3, 6, 4)]}, "key row size of layer 0 is 8, but .* 10"),
        ({}, {"type_v": GGMLType.F32}, "value type of layer 0 is 1"),
        ({}, {"layers": [(0, 4, 2), (3, 6, 5)]}, "value width of layer 3 is 4, but .* 5"),
        (
            {"v_trans": False},
            {"v_trans": False, "layers": [(0, 4, 3), (3, 6, 4)]},
            "value row size of layer 0 is 4, but .* 6",
        ),
    ],
)
def test_states_of_other_caches_are_refused(source: dict, target: dict, message: str) -> None:
    with pytest.raises(CacheError, match=f"failed to restore kv cache: .*{message}"):
        cache(0, **target).state_read(cache(**source).state_write(0), 0)


def test_no_room() -> None:
    kv = cache(8)
    with pytest.raises(CacheError, match="failed to find 8 available cells"):
        kv.state_read(kv.state_write(0), 1)
    assert kv.seq_pos_max(0) == 7


@pytest.mark.parametrize(
    ("cells", "seq_id", "message"),
    [
        ([(0, 1, 5)], -1, "cell 0 is in sequence 5, out of range 0..1"),
        ([(0, 2**31)], -1, "sequences of cell 0 needs 8589934592 bytes"),
        ([(0, 2, 0, 1)], 0, "cell 0 has 2 sequences, expected 1"),
        ([(-3, 1, 0)], 0, "cell 0 has position -3"),
    ],
)
def test_damaged_cells(cells: list[tuple], seq_id: int, message: str) -> None:
    data = struct.pack("<II", 1, len(cells))
    for pos, n, *seqs in cells:
        data += struct.pack(f"<iI{len(seqs)}i", pos, n, *seqs)
    kv = cache()
    with pytest.raises(CacheError, match=message):
        kv.state_read(data, seq_id)
    assert kv.cells[0].n_used == 0


@settings(max_examples=300, deadline=None)
@given(at=st.integers(0, 335), value=st.integers(0, 255), seq_id=st.integers(-1, 1))
def test_any_flipped_byte_is_refused_or_read(at: int, value: int, seq_id: int) -> None:
    kv = cache()
    data = bytearray(kv.state_write(0))
    data[at] = value
    try:
        kv.state_read(bytes(data), seq_id)
    except CacheError:
        pass
    else:
        kv.state_write()


# -- llama.cpp -----------------------------------------------------------------------------------


@pytest.mark.parametrize("type_", ["f16", "f32"])
@pytest.mark.parametrize("flash_attn", [False, True])
@pytest.mark.parametrize("unified", [True, False])
def test_the_bytes_are_llamacpps(
    llamacpp: ModuleType,
    tiny_model: Callable[..., str],
    unified: bool,
    flash_attn: bool,
    type_: str,
) -> None:
    with llamacpp.Reference(
        tiny_model(), n_ctx=512, n_seq_max=2, kv_unified=unified, flash_attn=flash_attn,
        type_k=type_, type_v=type_, n_threads=1,
    ) as reference:  # fmt: skip
        assert reference.decode(range(20, 32), seq_id=[0] * 7 + [1] * 5) == 0
        reference.seq_rm(0, 2, 4)
        theirs = {s: reference.state_seq_get(s) for s in (0, 1)}
        n_layer, n_embd, n_head, n_head_kv = (
            int(reference.meta[f"llama.{key}"])
            for key in (
                "block_count", "embedding_length", "attention.head_count",
                "attention.head_count_kv",
            )
        )  # fmt: skip
        width = n_embd // n_head * n_head_kv
        kv = KVCache(
            layers=[(il, width, width) for il in range(n_layer)],
            kv_size=512 if unified else 256,
            n_seq_max=2,
            unified=unified,
            v_trans=not flash_attn,
            type_k=GGMLType[type_.upper()],
            type_v=GGMLType[type_.upper()],
        )
        for s, state in theirs.items():
            header, body = state[:8], state[8:]  # magic and sequence id
            assert kv.state_read(body, s) == len(body)
            assert kv.state_write(s) == body
            assert kv.seq_pos_max(s) == reference.seq_pos_max(s)
            assert reference.state_seq_set(header + kv.state_write(s), s) == len(state)
        # the memory comes last in the state of a whole context
        everything = kv.state_write()
        assert reference.state_get().endswith(everything)
        assert kv.state_read(everything) == len(everything)
        assert kv.state_write() == everything
