"""A notebook with the panel under Voila: it is drawn, and a button works, with nothing changed."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("anywidget")

from . import frontends, host, lab

lab.require("voila")

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with host.chromium() as running:
        yield running


def test_the_panel_is_drawn_and_steps(
    browser: Any, tiny_model: Callable[..., str], tmp_path: Path, figures: Callable[[str], None]
) -> None:
    frontends.write_notebook(
        tmp_path,
        "python3",
        "import llmviz as lv\n"
        f"dbg = lv.Debugger({tiny_model()!r}, 'The cat sat on', n_ctx=64, n_predict=3)\n"
        "dbg",
    )
    private = tmp_path / "private"
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "IPYTHONDIR": str(private / "ipython")}
    env |= {f"JUPYTER_{k}_DIR": str(private / k.lower()) for k in ("CONFIG", "DATA", "RUNTIME")}
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    command = [
        *(sys.executable, "-m", "voila", "test.ipynb", "--no-browser", f"--port={port}"),
        "--Voila.ip=127.0.0.1",
    ]
    log = tmp_path / "voila.log"
    start = time.perf_counter()
    with log.open("w") as out:
        process = subprocess.Popen(command, cwd=tmp_path, env=env, stdout=out, stderr=out)
    context = browser.new_context(viewport={"width": 1300, "height": 1000})
    try:
        page = context.new_page()
        problems: list[str] = []
        page.on("pageerror", lambda e: problems.append(str(e)))
        page.goto(address(process, log), timeout=60_000)
        page.wait_for_selector(".llmviz[data-view=panel]:not([data-draws='0'])", timeout=60_000)
        for n in ("0", "1"):
            page.click(".llmviz [data-action=into]")
            page.wait_for_selector(f".llmviz[data-here='{n}']", timeout=30_000)
        page.click(".llmviz [data-action=next-token]")
        page.wait_for_selector(".llmviz .lv-token.lv-newest", timeout=30_000)
        assert page.locator(".llmviz .lv-notice:visible").count() == 0
        assert problems == []
    finally:
        context.close()
        process.terminate()
        process.wait(timeout=20)
    figures(f"Voila: {time.perf_counter() - start:.0f} s")


def address(process: subprocess.Popen, log: Path) -> str:
    """Where the server says that it listens."""
    for _ in range(3000):
        found = re.search(r"http://127\.0\.0\.1:\d+/", log.read_text())
        if found:
            return found[0]
        assert process.poll() is None, log.read_text()
        time.sleep(0.1)
    raise AssertionError(f"Voila did not start: {log.read_text()}")
