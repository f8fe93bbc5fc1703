"""The device list: what is found, what is only listed, and what happens when there is nothing."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from llmviz.errors import LlmvizError
from llmviz.events import drain
from llmviz.ggml.backends import backend
from llmviz.ggml.backends.backend import Device, devices, devices_steps, register


@pytest.fixture
def empty_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "_registry", {})


def test_the_processor_is_always_there() -> None:
    cpu = devices()[0]
    assert (cpu.name, cpu.type, cpu.computes) == ("CPU", "cpu", True)
    assert cpu.description
    assert 0 <= cpu.memory_free <= cpu.memory_total


def test_events() -> None:
    events = []
    steps = devices_steps(depth=2)
    result = None
    while True:
        try:
            events.append(next(steps))
        except StopIteration as stop:
            result = stop.value
            break
    assert [(e.kind, e.name) for e in (events[0], events[-1])] == [
        ("enter", "backends"),
        ("exit", "backends"),
    ]
    assert {e.step for e in events} == {1}
    assert [e.depth for e in events] == [2, *[3] * (len(events) - 2), 2]
    assert [e.value for e in events[1:-1]] == result == devices()
    assert [e.name for e in events[1:-1]] == [d.name for d in devices()]


@pytest.mark.usefixtures("empty_registry")
def test_no_backend_at_all() -> None:
    with pytest.raises(LlmvizError, match=r"no device can compute.*none.*Reinstall"):
        devices()


@pytest.mark.usefixtures("empty_registry")
def test_a_device_that_cannot_compute_is_not_enough() -> None:
    register("ODD", lambda: [Device("ODD0", "gpu", "a card", computes=False)])
    with pytest.raises(LlmvizError, match="ODD0"):
        drain(devices_steps())


@pytest.mark.usefixtures("empty_registry")
def test_registering_again_replaces() -> None:
    register("A", lambda: [Device("old", "cpu", "")])
    register("A", lambda: [Device("new", "cpu", "")])
    assert [d.name for d in devices()] == ["new"]


class CudaError(Exception):
    pass


def fake_cupy(n_devices: int | None) -> Any:
    """A module that looks like CuPy on a machine with `n_devices` cards; None: no driver."""

    def count() -> int:
        if n_devices is None:
            raise CudaError("no CUDA driver")
        return n_devices

    class Current:
        def __init__(self, i: int) -> None:
            self.i = i

        def __enter__(self) -> None:
            pass

        def __exit__(self, *_: object) -> None:
            pass

    module = ModuleType("cupy")
    module.cuda = SimpleNamespace(  # type: ignore[attr-defined]
        Device=Current,
        runtime=SimpleNamespace(
            CUDARuntimeError=CudaError,
            getDeviceCount=count,
            getDeviceProperties=lambda i: {"name": b"Some Card %d" % i},
            memGetInfo=lambda: (6 << 30, 8 << 30),
        ),
    )
    return module


def test_cupys_devices_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy(2))
    cards = [d for d in devices() if d.type == "gpu"]
    assert [(d.name, d.description) for d in cards] == [
        ("CUDA0", "Some Card 0"),
        ("CUDA1", "Some Card 1"),
    ]
    assert (cards[0].memory_free, cards[0].memory_total) == (6 << 30, 8 << 30)
    assert all(d.computes and d.init is not None for d in cards)


@pytest.mark.parametrize("n", [0, None])
def test_cupy_without_a_card(n: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy(n))
    assert [d.type for d in devices()] == ["cpu"]


def test_without_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)  # makes the import fail
    assert [d.type for d in devices()] == ["cpu"]
