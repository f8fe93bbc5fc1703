"""Binder: what its files say. That postBuild works is in test_fresh_clone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

REPO = Path(__file__).parent.parent
BINDER = REPO / "binder"


def environment() -> dict[str, Any]:
    return yaml.safe_load((BINDER / "environment.yml").read_text("utf-8"))


def test_environment() -> None:
    packages = {str(p).partition("=")[0]: str(p) for p in environment()["dependencies"]}
    assert packages["python"] == "python=3.12"
    assert "pip" in packages
    assert environment()["channels"] == ["conda-forge"]


@pytest.mark.parametrize("name", ["postBuild", "start"])
def test_scripts_can_run(name: str) -> None:
    path = BINDER / name
    assert os.access(path, os.X_OK)
    assert path.read_bytes().startswith(b"#!/usr/bin/env bash\n")
    assert b"\r" not in path.read_bytes()
    subprocess.run(["bash", "-n", str(path)], check=True)


def test_start_sets_one_thread_and_hands_over() -> None:
    program = "import os; print(os.environ['OMP_NUM_THREADS'], os.environ['NUMBA_NUM_THREADS'])"
    done = subprocess.run(
        [str(BINDER / "start"), sys.executable, "-c", program], capture_output=True, text=True
    )
    assert done.stdout == "1 1\n"


def test_no_cupy() -> None:
    for name in ("environment.yml", "postBuild"):
        lines = (BINDER / name).read_text("utf-8").splitlines()
        assert not [x for x in lines if "cupy" in x.lower() and not x.startswith("#")]
