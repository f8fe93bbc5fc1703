"""Binder: what its files say, and that postBuild's steps work in a fresh environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

REPO = Path(__file__).parent.parent
BINDER = REPO / "binder"
MEMORY_LIMIT = 900  # MB resident: Binder promises 1 GB

# Counts the memory of one run as a notebook would do it: load, decode a prompt, generate.
MEASURE = """
import llmviz
from llmviz.hub import resolve
model = llmviz.load(resolve("smollm2-135m"))
ctx = model.context(n_ctx=512)
print("".join(llmviz.generate(ctx, "Once upon a time", n_predict=4)))
# ru_maxrss would count what the parent held when it started this process
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(int(peak.split()[1]) // 1000)
"""


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


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="Binder is Linux; memory is read from /proc")
def test_post_build_in_a_fresh_environment(
    tmp_path: Path, smollm2_path: str, figures: Callable[[str], None]
) -> None:
    """Runs postBuild on a copy of the repository; only pip's cache and the model's are shared."""
    copy = tmp_path / "repo"
    ignored = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", "*.gguf", "tests")
    shutil.copytree(REPO, copy, ignore=ignored)
    venv.create(tmp_path / "venv", with_pip=True)
    env = {
        **os.environ,
        "PATH": f"{tmp_path / 'venv' / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PIP_NO_CACHE_DIR": "0",
        "PIP_COMPILE": "0",  # byte-compiling what is thrown away in a minute takes longest
        "OMP_NUM_THREADS": "1",
    }
    env.pop("PYTHONPATH", None)
    start = time.monotonic()
    done = subprocess.run(
        ["binder/postBuild"], cwd=copy, env=env, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout + done.stderr
    seconds = time.monotonic() - start
    assert Path(smollm2_path).name in done.stdout

    python = tmp_path / "venv" / "bin" / "python"
    measured = subprocess.run(
        [str(python), "-c", MEASURE], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert measured.returncode == 0, measured.stderr
    megabytes = int(measured.stdout.splitlines()[-1])
    figures(f"postBuild {seconds:.0f} s, resident while generating {megabytes} MB")
    assert megabytes < MEMORY_LIMIT

    frozen = subprocess.run(
        [str(python), "-m", "pip", "freeze"], env=env, capture_output=True, text=True, check=True
    )
    installed = {Requirement(x).name.lower() for x in frozen.stdout.splitlines() if "@" not in x}
    assert {"jupyterlab", "notebook", "anywidget", "numba"} <= installed
    assert not [name for name in installed if name.startswith("cupy")]
