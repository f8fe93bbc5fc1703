"""How a file's bytes get into memory: every mode gives the same values, and says what it became."""

from __future__ import annotations

import ctypes
import errno
import gc
import os
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import llmviz
from llmviz.batch import Batch
from llmviz.errors import UnsupportedError
from llmviz.gguf import direct, lock, source
from llmviz.model.load_mode import LOAD_MODES
from llmviz.model.loader import load_steps

MODES = list(LOAD_MODES)


@pytest.fixture(scope="module")
def path(tiny_model: Callable[..., str]) -> str:
    return tiny_model("llama", weight_type="Q4_0")


class FakeLibrary:
    """A C library whose system allows so many bytes of locked memory."""

    def __init__(self, allowed: int) -> None:
        self.allowed = allowed
        self.locked: dict[int, int] = {}

    def mlock(self, address: ctypes.c_void_p, n: ctypes.c_size_t) -> int:
        if sum(self.locked.values()) + n.value > self.allowed:
            ctypes.set_errno(errno.ENOMEM)
            return -1
        self.locked[address.value or 0] = n.value
        return 0

    def munlock(self, address: ctypes.c_void_p, n: ctypes.c_size_t) -> int:
        self.locked.pop(address.value or 0, None)  # another test's, perhaps
        return 0


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeLibrary]:
    fake = FakeLibrary(1 << 40)
    monkeypatch.setattr(lock, "_library", lambda: fake)
    yield fake
    gc.collect()


def logits(model: llmviz.Model) -> np.ndarray:
    ctx = model.context(n_ctx=32)
    ctx.decode(Batch.get_one([1, 5, 9]))
    return ctx.get_logits_ith(-1).copy()


@pytest.mark.filterwarnings("ignore:weights='quantized':UserWarning", "ignore:load_mode='dio'")
@pytest.mark.parametrize("weights", ["f32", "quantized"])
def test_values_are_the_same_in_all_modes(path: str, library: FakeLibrary, weights: str) -> None:
    found = {mode: logits(llmviz.load(path, load_mode=mode, weights=weights)) for mode in MODES}
    for mode, values in found.items():
        assert np.array_equal(values, found["mmap"]), mode


@pytest.mark.filterwarnings("ignore:load_mode='dio'")
@pytest.mark.parametrize("mode", MODES)
def test_bytes_of_every_tensor_are_those_of_the_file(
    path: str, library: FakeLibrary, mode: str
) -> None:
    whole = Path(path).read_bytes()
    for tensor in llmviz.load(path, load_mode=mode).tensors.values():
        assert tensor.raw.tobytes() == whole[tensor.offset : tensor.offset + tensor.nbytes]
        assert not tensor.raw.flags.writeable


def test_what_each_mode_is(path: str, library: FakeLibrary) -> None:
    for asked, became, mapped, locks in (
        ("auto", "mmap", True, False),
        ("mmap", "mmap", True, False),
        ("mlock", "mlock", False, True),
        ("mmap+mlock", "mmap+mlock", True, True),
        ("none", "none", False, False),
    ):
        model = llmviz.load(path, load_mode=asked, weights="f32")
        assert (model.load_mode, model.gguf.is_mapped) == (became, mapped)
        assert model.locked_bytes == (sum(t.data.nbytes for t in model.tensors.values()) * locks)
        assert model.load_notes == []


@pytest.mark.parametrize("bad", ["map", "MMAP", "", None, 1])
def test_an_unknown_mode_is_refused_with_what_there_is(path: str, bad: object) -> None:
    with pytest.raises(UnsupportedError, match=r"load_mode.*supported: auto, mmap, mlock, mmap\+"):
        llmviz.load(path, load_mode=bad)


# locking -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("asked", "left"), [("mlock", "none"), ("mmap+mlock", "mmap")])
def test_a_refused_lock_is_a_warning_and_done_without(
    path: str, library: FakeLibrary, asked: str, left: str
) -> None:
    first = llmviz.load(path, weights="f32").tensors["token_embd.weight"].data.nbytes
    library.allowed = first + 4096 * 4
    with pytest.warns(UserWarning, match=f"became '{left}': the system refused to lock .*ulimit"):
        model = llmviz.load(path, load_mode=asked, weights="f32")
    assert model.load_mode == left
    weights = sum(t.data.nbytes for t in model.tensors.values() if t.data is not None)
    assert first <= model.locked_bytes < weights  # the first refusal is the last try
    assert len(model.load_notes) == 1
    assert np.isfinite(logits(model)).all()


def test_a_system_that_cannot_lock(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "_library", lambda: None)
    with pytest.warns(UserWarning, match="this system cannot lock memory"):
        assert llmviz.load(path, load_mode="mlock").load_mode == "none"


def test_memory_is_unlocked_when_the_model_goes(path: str, library: FakeLibrary) -> None:
    model = llmviz.load(path, load_mode="mlock", weights="f32")
    assert library.locked
    del model
    gc.collect()
    assert not library.locked


def test_pages_are_really_locked(path: str) -> None:
    def locked() -> int:
        found = re.search(r"VmLck:\s+(\d+)", Path("/proc/self/status").read_text())
        return int(found[1]) * 1024 if found else 0

    if not os.path.exists("/proc/self/status"):
        pytest.skip("no /proc to ask")
    before = locked()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = llmviz.load(path, load_mode="mmap+mlock")
    if model.load_mode != "mmap+mlock":
        pytest.skip(model.load_notes[0])
    assert locked() - before >= model.locked_bytes > 0


# mapping and direct reads ------------------------------------------------------------------------


@pytest.mark.parametrize("asked", ["mmap", "mmap+mlock", "auto"])
def test_a_file_that_cannot_be_mapped_is_read(
    path: str, library: FakeLibrary, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("no mapping here")

    wanted = logits(llmviz.load(path))
    monkeypatch.setattr(source.mmap, "mmap", refuse)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        model = llmviz.load(path, load_mode=asked)
    assert model.load_mode == ("mlock" if "mlock" in asked else "none")
    assert "no mapping here" in model.load_notes[0]
    assert [w for w in seen if "load_mode" in str(w.message)] == [] or asked != "auto"
    assert bool(seen) == (asked != "auto")
    assert np.array_equal(logits(model), wanted)


def test_direct_reads(path: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = llmviz.load(path, load_mode="dio")
    if model.load_mode != "dio":
        pytest.skip(f"not here: {model.load_notes[0]}")
    assert model.gguf.is_direct
    assert not model.gguf.is_mapped


@pytest.mark.parametrize("at", ["open", "first read", "later read"])
def test_without_direct_reads_the_file_is_read_as_usual(
    path: str, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """A file system may refuse when the file is opened, or only when it is read."""
    wanted = logits(llmviz.load(path))
    reads = []

    class Reader(direct.DirectReader):
        def __init__(self, path: str) -> None:
            if at == "open":
                raise OSError(errno.EINVAL, "Invalid argument")
            self._fd = os.open(path, os.O_RDONLY)  # works everywhere
            self.alignment = 4096

        def read(self, offset: int, size: int) -> np.ndarray:
            reads.append(offset)
            if len(reads) > (at == "later read"):
                raise OSError(errno.EINVAL, "Invalid argument")
            return super().read(offset, size)

    monkeypatch.setattr(source, "DirectReader", Reader)
    with pytest.warns(UserWarning, match="'dio' became 'none': .*Invalid argument"):
        model = llmviz.load(path, load_mode="dio")
    assert model.load_mode == "none"
    assert np.array_equal(logits(model), wanted)


def test_direct_reads_at_any_offset(tmp_path: Path) -> None:
    whole = np.random.default_rng(0).integers(0, 256, 20_011, np.uint8)
    (tmp_path / "f").write_bytes(whole.tobytes())
    try:
        reader = direct.DirectReader(str(tmp_path / "f"))
        reader.read(0, 1)
    except OSError as error:
        pytest.skip(f"not here: {error}")
    for offset, size in ((0, 1), (0, 20_011), (4095, 2), (4096, 4096), (20_000, 11), (513, 9_000)):
        got = reader.read(offset, size)
        assert np.array_equal(got, whole[offset : offset + size])
    assert len(reader.read(20_000, 500)) == 11  # the file ends before
    reader.close()


# what is shown -----------------------------------------------------------------------------------


def test_events_say_what_it_became(path: str, library: FakeLibrary) -> None:
    library.allowed = 0
    with pytest.warns(UserWarning, match="became"):
        events = list(load_steps(path, load_mode="mmap+mlock"))
    asked = next(e for e in events if e.name == "load_mode")
    assert (asked.kind, asked.step, asked.value) == ("data", 6, "mmap+mlock")
    done = next(e for e in events if (e.kind, e.name) == ("exit", "load_all_data"))
    assert done.value == "mmap"
    assert "refused" in done.about[0]


@pytest.mark.filterwarnings("ignore:weights='quantized':UserWarning")
def test_bytes_that_were_read_are_held_once(path: str) -> None:
    model = llmviz.load(path, load_mode="none", weights="quantized")
    tensor = model.tensors["blk.0.ffn_up.weight"]
    assert tensor.raw is tensor.raw
    leaf = model.weights.layers[0].ffn_up
    assert np.shares_memory(leaf.blocks, tensor.raw)
