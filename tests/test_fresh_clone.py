"""A new machine: binder/postBuild and `make lab` from a fresh clone, in an environment made there.

Installing the packages takes longest, so both use one environment: postBuild fills it, and
`make lab` finds its stamp missing, installs what it asks for and serves.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from test_lab import arguments, check, free_port, server

REPO = Path(__file__).parent.parent
MEMORY_LIMIT = 900  # MB resident: Binder promises 1 GB

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="the Makefile needs a POSIX shell"),
]

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


def clone_into(folder: Path) -> None:
    """The files that belong to the repository, as they are in the working tree."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPO,
        capture_output=True,
    )
    if listed.returncode != 0:  # not a git clone: an unpacked archive
        patterns = (".git", ".venv", "__pycache__", ".*_cache", "*.gguf")
        shutil.copytree(REPO, folder, ignore=shutil.ignore_patterns(*patterns))
        return
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (REPO / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPO / name, folder / name)


def test_post_build_and_make_lab(
    tmp_path: Path, smollm2_path: str, figures: Callable[[str], None]
) -> None:
    """Only pip's cache of downloads and the model's are shared with this environment."""
    clone = tmp_path / "clone"
    clone_into(clone)
    make = ["make", f"PYTHON={sys.executable}"]
    subprocess.run([*make, ".venv/bin/python"], cwd=clone, check=True)
    bin_ = clone / ".venv" / "bin"
    env = {
        **os.environ,
        "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}",
        "PIP_NO_CACHE_DIR": "0",
        "PIP_COMPILE": "0",  # byte-compiling what is thrown away in a minute takes longest
        "OMP_NUM_THREADS": "1",
    }
    env.pop("PYTHONPATH", None)

    def run(*command: str, cwd: Path = tmp_path) -> str:
        done = subprocess.run(
            command, cwd=cwd, env=env, capture_output=True, text=True, timeout=900
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    start = time.monotonic()
    assert Path(smollm2_path).name in run("binder/postBuild", cwd=clone)
    seconds = time.monotonic() - start
    python = str(bin_ / "python")
    if sys.platform == "linux":  # memory is read from /proc
        megabytes = int(run(python, "-c", MEASURE).splitlines()[-1])
        figures(f"postBuild {seconds:.0f} s, resident while generating {megabytes} MB")
        assert megabytes < MEMORY_LIMIT
    frozen = run(python, "-m", "pip", "freeze").splitlines()
    installed = {Requirement(x).name.lower() for x in frozen if "@" not in x}
    assert {"jupyterlab", "notebook", "anywidget", "numba"} <= installed
    assert not [name for name in installed if name.startswith("cupy")]

    port, token = free_port(), secrets.token_hex(16)
    command = [*make, "lab", f"LAB_ARGS={' '.join(arguments(port, token))}"]
    start = time.monotonic()
    with server(command, clone, tmp_path, PIP_COMPILE="0"):
        check(port, token, 900)
    figures(f"make lab over the packages of postBuild: {time.monotonic() - start:.0f} s")
    assert (clone / ".venv" / ".lab").exists()
