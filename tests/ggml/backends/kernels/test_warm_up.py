"""Compiling beside other work: in another process, with word of how it went."""

from __future__ import annotations

import logging
import subprocess

import pytest

pytest.importorskip("numba")

from llmviz.ggml.backends import kernels


def test_another_process_compiles(caplog, monkeypatch, tmp_path):
    monkeypatch.setenv("LLMVIZ_CACHE", str(tmp_path))
    with caplog.at_level(logging.INFO, "llmviz"):
        kernels.warm_up([]).join()  # no types: it imports what compiles, and is done
    assert "models loaded from now on use them" in caplog.text
    assert not [r for r in caplog.records if r.levelno > logging.INFO]


def test_a_failure_is_told(caplog, monkeypatch):
    failed = subprocess.CompletedProcess([], 1, "", "no room left")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    monkeypatch.setattr(kernels, "warm", lambda types: False)
    kernels.warm_up([]).join()
    assert caplog.messages == ["compiling kernels failed: no room left"]


def test_where_no_process_can_be_started_this_one_compiles(monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise OSError("no processes")

    compiled = []
    monkeypatch.setattr(subprocess, "run", refuse)
    monkeypatch.setattr(kernels, "compile_now", compiled.append)
    kernels.warm_up([]).join()
    assert compiled == [[]]
