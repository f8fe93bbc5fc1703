"""What the tests in real front ends share: kernels of several ipykernel releases, pages, figures.

A second ipykernel is laid over the environment by PYTHONPATH: nothing else of it changes, and it
is downloaded once into the cache folder.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from filelock import FileLock

from llmviz import hub

from . import lab

OUTPUT = ".jp-OutputArea-output .llmviz"


def absent(reason: str) -> NoReturn:
    """Skip the test that asked, or fail it where everything is required."""
    if os.environ.get("LLMVIZ_REQUIRE_ALL"):
        pytest.fail(reason)
    pytest.skip(reason)


def overlay(release: str) -> Path | None:
    """Folder with an ipykernel of a release such as ``"7.3"``, None where that is installed."""
    if importlib.metadata.version("ipykernel").startswith(f"{release}."):
        return None
    target = hub.cache_dir() / "tests" / f"ipykernel-{release}"
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{target}.lock"):
        if not target.exists():
            with tempfile.TemporaryDirectory(dir=target.parent) as folder:
                made = Path(folder) / "made"
                pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
                done = subprocess.run(
                    [*pip, "--target", str(made), f"ipykernel~={release}.0"],
                    capture_output=True,
                    text=True,
                    check=False,
                )
                if done.returncode != 0:
                    absent(f"no ipykernel {release}: {done.stderr.strip()[-300:]}")
                made.rename(target)
    return target


def write_kernel(folder: Path, release: str, *, threads: int | None = 1) -> str:
    """Register an ipykernel of a release for `lab.server` of the same folder; its name.

    `threads` is what BLAS may use, None for what it takes by itself.
    """
    over = overlay(release)
    env = {}
    if threads:
        env = {"OPENBLAS_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
    if over is not None:
        env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(over), os.environ.get("PYTHONPATH"))))
    name = f"ipykernel-{release}"
    spec = {
        "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": f"ipykernel {release}",
        "language": "python",
        "env": env,
    }
    file = folder / ".private" / "data" / "kernels" / name / "kernel.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(spec))
    return name


def write_notebook(folder: Path, kernel: str, *sources: str, name: str = "test.ipynb") -> None:
    """A notebook of code cells for a kernel."""
    lab.write_notebook(folder, *sources, kernel=kernel, name=name)


# From a click to the frame in which the run stands again and all of it is drawn.
STEP = """([selector, action]) => new Promise((done, fail) => {
  const root = document.querySelector(selector), before = root.dataset.here;
  const timer = setTimeout(() => fail(`still at event ${before}`), 300000);
  const observer = new MutationObserver(() => {
    if (root.dataset.here === before || root.querySelector('.lv-working')) return;
    observer.disconnect();
    clearTimeout(timer);
    requestAnimationFrame(() => setTimeout(() => done(performance.now() - start), 0));
  });
  observer.observe(root, { attributes: true, subtree: true });
  const start = performance.now();
  root.querySelector(`[data-action='${action}']`).click();
})"""


SHUT_DOWN = "window.jupyterapp.serviceManager.sessions.shutdownAll()"


class Front:
    """A notebook in a front end, in a page of its own.

    Attributes
    ----------
    page : playwright Page
    problems : list of str
        What the page reported as errors since the notebook stands open. (Notebook 7.6 reports one
        of its own while it opens: "Cannot read properties of undefined (reading 'schema')".)
    """

    def __init__(
        self, page: Any, base: str, token: str, app: str, name: str = "test.ipynb"
    ) -> None:
        self.page = page
        self.problems: list[str] = []
        self._messages = self._own = self._bytes = 0
        page.on("pageerror", lambda e: self.problems.append(str(e)))
        page.on("console", self._heard)
        page.on("websocket", lambda ws: ws.on("framereceived", self._received))
        lab.open_notebook(page, base, token, name, app)
        self.problems.clear()
        self._cdp = page.context.new_cdp_session(page)

    def _heard(self, message: Any) -> None:
        if message.type == "error":
            self.problems.append(f"{message.text} ({message.location.get('url', '')})")

    def run_all(self) -> None:
        """Run every cell; returns when the kernel has done them."""
        lab.command(self.page, "notebook:run-all-cells")

    def run_cell(self, index: int) -> None:
        """Run one cell, as a person does who changed it."""
        self.page.evaluate(
            "i => { window.jupyterapp.shell.currentWidget.content.activeCellIndex = i; }", index
        )
        lab.command(self.page, "notebook:run-cell")

    def printed(self, source: str) -> Any:
        """What an expression in the kernel is worth, through JSON; no cell is touched."""
        text = self.page.evaluate(
            """async (code) => {
              const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
              let text = '';
              const future = kernel.requestExecute({ code, store_history: false });
              future.onIOPub = (m) => {
                text += m.content.text || (m.content.traceback || []).join('\\n');
              };
              await future.done;
              return text;
            }""",
            f"import json as _json; print(_json.dumps({source}))",
        )
        try:
            return json.loads(text)
        except ValueError:
            raise AssertionError(text) from None

    def restart(self) -> None:
        """Restart the kernel and wait until it answers."""
        self.page.evaluate(
            """async () => {
              const { kernel } = window.jupyterapp.shell.currentWidget.sessionContext.session;
              await kernel.restart();
              await kernel.info;
              await kernel.requestExecute({ code: '0' }).done;
            }"""
        )

    def shown(self) -> list[int]:
        """The event number of every view on the page, in order."""
        return self.page.evaluate(
            "s => [...document.querySelectorAll(s)].map(e => Number(e.dataset.here))", OUTPUT
        )

    def wait_shown(self, expected: list[int], timeout: float = 60_000) -> None:
        """Wait until all views show these events."""
        try:
            self.page.wait_for_function(
                "([s, want]) => JSON.stringify([...document.querySelectorAll(s)]"
                ".map(e => Number(e.dataset.here))) === want",
                arg=[OUTPUT, json.dumps(expected, separators=(",", ":"))],
                timeout=timeout,
            )
        except Exception as error:
            raise AssertionError(f"{self.shown()} instead of {expected}: {error}") from error

    def press(self, action: str, view: int = 0) -> None:
        """Press a transport button of one view, and wait until the run stands again."""
        root = self.page.locator(OUTPUT).nth(view)
        draws = int(root.get_attribute("data-draws"))
        root.locator(f"[data-action='{action}']").first.click()
        self.page.wait_for_function(
            "([s, i, n]) => { const r = document.querySelectorAll(s)[i];"
            " return r.dataset.draws > n && !r.querySelector('.lv-working') }",
            arg=[OUTPUT, view, draws],
        )

    def _received(self, frame: str | bytes) -> None:
        self._messages += 1
        head = frame[:2000] if isinstance(frame, bytes) else frame[:2000].encode()
        self._own += b'"comm_msg"' in head
        self._bytes += len(frame)

    def count_traffic(self) -> None:
        """Begin to count what the kernel sends."""
        self._messages = self._own = self._bytes = 0

    def traffic(self) -> dict[str, int]:
        """Messages, those among them that views sent, and bytes since `count_traffic`."""
        return {"messages": self._messages, "own": self._own, "bytes": self._bytes}

    def step_time(self, action: str) -> float:
        """Milliseconds from a click on the first view's button to the painted result."""
        self.page.wait_for_timeout(50)  # nobody clicks faster
        return float(self.page.evaluate(STEP, [OUTPUT, action]))

    def worked(self) -> dict[str, float]:
        """Seconds of processor time that the page's main thread has taken, layouts it has made."""
        send = self._cdp.send
        send("Performance.enable", {"timeDomain": "threadTicks"})
        found = {m["name"]: m["value"] for m in send("Performance.getMetrics")["metrics"]}
        return {"seconds": found["TaskDuration"], "layouts": found["LayoutCount"]}

    def memory(self) -> dict[str, float]:
        """After a garbage collection: MiB of JavaScript, and counts of DOM nodes and listeners."""
        send = self._cdp.send
        for _ in range(2):
            send("HeapProfiler.collectGarbage")
        heap = send("Runtime.getHeapUsage")["usedSize"] / 2**20
        count = send("Memory.getDOMCounters")
        return {"heap": heap, "nodes": count["nodes"], "listeners": count["jsEventListeners"]}

    def shut_down(self) -> None:
        """End the kernels of the server and close the page."""
        self.page.evaluate(SHUT_DOWN)
        self.page.close()


class Site:
    """One server for the notebooks of many tests, with a kernel of each release.

    The pages share a browser's cache, so that the front end is fetched and compiled once.
    """

    def __init__(self, browser: Any, folder: Path, base: str, token: str) -> None:
        self.folder, self._base, self._token = folder, base, token
        self._context = browser.new_context(viewport={"width": 1400, "height": 1100})
        self._count = 0

    def _new(self, kernel: str, *sources: str) -> str:
        """Write a notebook; its name. A page that opens it finds Lab as it was at first."""
        self._count += 1
        name = f"test-{id(self)}-{self._count}.ipynb"
        write_notebook(self.folder, kernel, *sources, name=name)
        private = self.folder / ".private"
        shutil.rmtree(private / "workspaces", ignore_errors=True)  # what Lab would open beside it
        for theme in private.glob("settings/**/themes.jupyterlab-settings"):
            theme.unlink()
        return name

    @contextlib.contextmanager
    def opened(self, kernel: str, *sources: str, app: str = "lab") -> Iterator[Front]:
        """A new notebook of these cells in a page of its own; its kernel ends with it."""
        name = self._new(kernel, *sources)
        front = Front(self._context.new_page(), self._base, self._token, app, name)
        try:
            yield front
        finally:
            front.shut_down()

    @contextlib.contextmanager
    def page(self, *sources: str, height: int) -> Iterator[tuple[Any, list[str]]]:
        """A new notebook in a page of Lab, and the problems that the page reports from the start.

        Its kernel ends with it.
        """
        name = self._new("python3", *sources)
        page = self._context.new_page()
        page.set_viewport_size({"width": 1480, "height": height})
        problems: list[str] = []
        page.on("pageerror", lambda e: problems.append(str(e)))
        page.on("console", lambda m: m.type == "error" and problems.append(m.text))
        try:
            lab.open_notebook(page, self._base, self._token, name)
            try:
                yield page, problems
            finally:
                page.evaluate(SHUT_DOWN)
        finally:
            page.close()


@contextlib.contextmanager
def site(browser: Any, folder: Path, base: str, token: str) -> Iterator[Site]:
    """A `Site` of the folder that a server serves, at an address and with a token."""
    made = Site(browser, folder, base, token)
    try:
        yield made
    finally:
        made._context.close()


@contextlib.contextmanager
def opened(browser: Any, folder: Path, width: int = 1400, height: int = 1100) -> Iterator[Front]:
    """The notebook ``test.ipynb`` of a folder in a Lab of its own."""
    with lab.server(folder) as (base, token):
        context = browser.new_context(viewport={"width": width, "height": height})
        try:
            yield Front(context.new_page(), base, token, "lab")
        finally:
            context.close()
