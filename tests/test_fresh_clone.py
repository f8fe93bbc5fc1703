"""A new machine: binder/postBuild and `make lab` from a fresh clone, in an environment made there.

Installing the packages takes longest, so both use one environment: postBuild fills it, and
`make lab` finds its stamp missing, installs what it asks for and serves.
"""

from __future__ import annotations

import contextlib
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
FIRST_STEP = 60  # seconds from the server's answer to a step on the screen, on one core

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
    for name in ("PYTHONPATH", "LLMVIZ_KERNELS"):  # kernels are on, as they are for a visitor
        env.pop(name, None)

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
    given = [*arguments(port, token), "--LabApp.expose_app_in_browser=True"]
    # as Binder starts it: one core, one thread
    one_core = ["taskset", "-c", "0"] if shutil.which("taskset") else []
    command = [str(clone / "binder" / "start"), *one_core, *make, "lab"]
    environ = {"PIP_COMPILE": "0", "LLMVIZ_KERNELS": ""}
    start = time.monotonic()
    with server([*command, f"LAB_ARGS={' '.join(given)}"], clone, tmp_path, **environ) as pid:
        check(port, token, 900)
        figures(f"make lab over the packages of postBuild: {time.monotonic() - start:.0f} s")
        assert (clone / ".venv" / ".lab").exists()
        if sys.platform == "linux" and one_core:
            visit(port, token, pid, figures)


def visit(port: int, token: str, pid: int, figures: Callable[[str], None]) -> None:
    """The quickstart with SmolLM2 as a visitor runs it: time to the first step, memory in all."""
    pytest.importorskip("playwright.sync_api", reason="no browser to look with")
    from tests.widgets import host, lab

    start = time.monotonic()
    with host.chromium() as browser, contextlib.closing(browser.new_page()) as page:
        base = f"http://127.0.0.1:{port}"
        lab.open_notebook(page, base, token, "00-quickstart.ipynb")
        lab.command(page, "notebook:run-all-cells")
        page.wait_for_selector(".jp-OutputArea-output .llmviz[data-draws]", timeout=120_000)
        seconds = time.monotonic() - start
        counts = "window.jupyterapp.shell.currentWidget.content.widgets"
        page.wait_for_function(  # to the last cell, 40 tokens more
            f"() => {counts}.filter((c) => c.model.type === 'code' && c.model.sharedModel.source)"
            ".every((c) => c.model.executionCount)",
            timeout=120_000,
        )
        megabytes = proportional(pid)
    figures(f"first step on the screen {seconds:.0f} s, server and kernel {megabytes:.0f} MB")
    assert seconds < FIRST_STEP
    assert megabytes < MEMORY_LIMIT


def proportional(root: int) -> float:
    """MB of a process and all below it, pages that several share counted once."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    total = 0
    for pid in parents:
        line = [pid]
        while line[-1] in parents and line[-1] != root:
            line.append(parents[line[-1]])
        if line[-1] == root:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
            total += int(rollup.partition("\nPss:")[2].split()[0])
    return total / 1000
