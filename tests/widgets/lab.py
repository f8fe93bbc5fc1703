"""A real JupyterLab and Notebook on loopback with private folders, and how to drive them."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SETTINGS = {
    "@jupyterlab/apputils-extension/notification": {
        "fetchNews": "false",
        "checkForUpdates": False,
    },
}

READY = """async () => {
  const app = window.jupyterapp;
  let panel;
  for (let i = 0; i < 600; i++) {
    panel = app.shell.currentWidget;
    if (panel && panel.sessionContext) break;
    await new Promise((r) => setTimeout(r, 100));
  }
  await panel.context.ready;
  await panel.sessionContext.ready;
  await panel.sessionContext.session.kernel.info;
}"""


# Where a notebook is in each application; one server has both.
APPS = {"lab": "doc/tree", "notebook": "notebooks"}


def require(*packages: str) -> None:
    """Skip the module that asks where a package is absent.

    It is looked for and not imported, unlike by `pytest.importorskip`: Jupyter's packages take
    seconds, in each worker, and what the tests need of them runs in processes of its own.
    """
    for name in packages:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed", allow_module_level=True)


def write_notebook(
    folder: Path, *sources: str, kernel: str = "python3", name: str = "test.ipynb"
) -> None:
    """A notebook of code cells for a kernel."""
    cells = [
        {
            "cell_type": "code",
            "id": f"cell-{i}",
            "metadata": {},
            "execution_count": None,
            "source": source,
            "outputs": [],
        }
        for i, source in enumerate(sources)
    ]
    spec = {"name": kernel, "display_name": kernel, "language": "python"}
    nb = {"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": spec}, "cells": cells}
    (folder / name).write_text(json.dumps(nb), "utf-8")


@contextlib.contextmanager
def server(folder: Path) -> Iterator[tuple[str, str]]:
    """A server of `folder`, with JupyterLab and Notebook; gives its address and token, ends it."""
    private = folder / ".private"
    for name, value in SETTINGS.items():
        file = private / "settings" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(value))
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    token = secrets.token_hex(16)
    env = dict(
        os.environ,
        JUPYTER_CONFIG_DIR=str(private / "config"),
        JUPYTER_DATA_DIR=str(private / "data"),
        JUPYTER_RUNTIME_DIR=str(private / "runtime"),
        JUPYTERLAB_SETTINGS_DIR=str(private / "settings"),
        JUPYTERLAB_WORKSPACES_DIR=str(private / "workspaces"),
        IPYTHONDIR=str(private / "ipython"),
        JUPYTER_PLATFORM_DIRS="1",
    )
    command = [
        *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"),
        *("--ServerApp.ip=127.0.0.1", f"--ServerApp.port={port}", "--ServerApp.port_retries=0"),
        *(f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={folder}"),
        # so that the page gives its application away, which `command` needs
        *(f"--{app}.expose_app_in_browser=True" for app in ("LabApp", "JupyterNotebookApp")),
    ]
    log = private / "server.log"
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=env)
        try:
            base = f"http://127.0.0.1:{port}"
            end = time.monotonic() + 300
            while True:
                if process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError(f"Jupyter does not run: {log.read_text()[-2000:]}")
                with contextlib.suppress(OSError):
                    urllib.request.urlopen(f"{base}/api/status?token={token}", timeout=2).read()
                    break
                time.sleep(0.1)
            yield base, token
        finally:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def open_notebook(page: Any, base: str, token: str, name: str, app: str = "lab") -> None:
    """Open a notebook as a single document and wait for its kernel."""
    page.goto(f"{base}/{APPS[app]}/{name}?token={token}", wait_until="domcontentloaded")
    page.wait_for_selector("#jupyterlab-splash", state="detached", timeout=90_000)
    page.wait_for_selector(".jp-NotebookPanel .jp-Notebook", timeout=90_000)
    page.evaluate(READY)


def command(page: Any, name: str, **args: Any) -> None:
    """Run one of Lab's commands and wait for it."""
    page.evaluate("([c, a]) => window.jupyterapp.commands.execute(c, a)", [name, args])
