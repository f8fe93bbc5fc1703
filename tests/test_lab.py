"""``llmviz lab``: a JupyterLab server that answers on loopback, with a token."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from llmviz.cli import lab

REPO = Path(__file__).parent.parent


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return json.loads(answer.read())


@contextmanager
def server(command: list[str], cwd: Path, tmp_path: Path, **environ: str) -> Iterator[int]:
    """Run a command until the block is left; it and its children are stopped then.

    Yields its process id.
    """
    private = {
        name: str(tmp_path / name.lower())
        for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
    }
    log = tmp_path / "server.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env={**os.environ, **private, **environ},
            stdout=stream,
            stderr=stream,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    try:
        yield process.pid
    except BaseException:
        print(log.read_text("utf-8", "replace")[-4000:])
        raise
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_for(url: str, seconds: float) -> Any:
    end = time.monotonic() + seconds
    while True:
        try:
            return get(url)
        except urllib.error.HTTPError:
            raise
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


def check(port: int, token: str, seconds: float) -> None:
    """The server answers with the token, refuses without it, and serves the notebook."""
    base = f"http://127.0.0.1:{port}"
    status = wait_for(f"{base}/api/status?token={token}", seconds)
    assert "started" in status
    with pytest.raises(urllib.error.HTTPError, match="403"):
        get(f"{base}/api/status")
    notebook = get(f"{base}/api/contents/{lab.NOTEBOOK}?token={token}")
    assert notebook["type"] == "notebook"


def arguments(port: int, token: str) -> list[str]:
    return [
        "--no-browser",
        f"--ServerApp.port={port}",
        "--ServerApp.port_retries=0",
        f"--IdentityProvider.token={token}",
    ]


def test_lab_server_answers(tmp_path: Path) -> None:
    port, token = free_port(), secrets.token_hex(16)
    command = [sys.executable, "-m", "llmviz", "lab", *arguments(port, token)]
    with server(command, tmp_path, tmp_path):
        check(port, token, 60)


def test_notebook_of_the_clone() -> None:
    assert lab.notebook_path(Path("/nowhere")) == REPO / "notebooks" / lab.NOTEBOOK


def test_notebook_of_an_installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site-packages" / "llmviz"
    (package / "notebooks").mkdir(parents=True)
    (package / "notebooks" / lab.NOTEBOOK).write_text("packaged")
    monkeypatch.setattr(lab.llmviz, "__file__", str(package / "__init__.py"))
    cwd = tmp_path / "work"
    cwd.mkdir()
    copied = lab.notebook_path(cwd)
    assert copied == cwd / lab.FOLDER / lab.NOTEBOOK
    assert copied.read_text() == "packaged"
    copied.write_text("edited")
    assert lab.notebook_path(cwd).read_text() == "edited"  # never overwritten


def test_command_keeps_to_loopback() -> None:
    command = lab.command(Path("/x/nb.ipynb"), ["--no-browser"])
    assert command[:4] == [sys.executable, "-m", "jupyterlab", "/x/nb.ipynb"]
    assert "--ServerApp.ip=127.0.0.1" in command
    assert command[-1] == "--no-browser"
