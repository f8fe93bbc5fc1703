"""A page without Jupyter around a live view: the ES module in Chromium, its Python side here.

The page holds the plain widget model (get, set, save_changes, send, on, off). What it sends goes
through playwright to the view in this process, and what changed there goes back, as with a kernel.
"""

from __future__ import annotations

import asyncio
import atexit
import base64
import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

# Pictures of a real model for the documentation; what they show is tested elsewhere.
PICTURES = pytest.mark.skipif(
    "LLMVIZ_SCREENSHOTS" not in os.environ, reason="no folder for pictures (LLMVIZ_SCREENSHOTS)"
)

HOST = r"""
const decode = (x) => x && x.__b64__ !== undefined
  ? new DataView(Uint8Array.from(atob(x.__b64__), (c) => c.charCodeAt(0)).buffer) : x;
const state = {}, listeners = {}, changed = new Set();
const fire = (event, ...a) => (listeners[event] || []).slice().forEach((f) => f(...a));
function take(news) {
  for (const k in news) state[k] = decode(news[k]);
  for (const k in news) fire("change:" + k);
}
window.arrive = ({ state, messages }) => {
  take(state);
  messages.forEach((m) => fire("msg:custom", m, []));
};
const tell = async (what) => {
  if (!window.kernelGone) window.arrive(await window.toPython(what));
};
window.model = {
  get: (k) => state[k],
  set(k, v) { state[k] = v; changed.add(k); fire("change:" + k); },
  save_changes() {
    const set = Object.fromEntries([...changed].map((k) => [k, state[k]]));
    changed.clear();
    tell({ set });
  },
  send: (message) => { tell({ message }); },
  on: (e, f) => { (listeners[e] = listeners[e] || []).push(f); },
  off: (e, f) => { listeners[e] = (listeners[e] || []).filter((g) => g !== f); },
};
window.listenerCount = () => Object.values(listeners).reduce((n, l) => n + l.length, 0);
export async function mount(esm, css, first) {
  for (const k in first) state[k] = decode(first[k]);
  const style = document.createElement("style");
  style.textContent = css;
  document.head.append(style);
  const url = URL.createObjectURL(new Blob([esm], { type: "text/javascript" }));
  const view = (await import(url)).default;
  const again = () => view.render({ model: window.model, el: document.getElementById("w") });
  window.unmount = await again();
  window.mountAgain = async () => { window.unmount = await again(); };
}
"""


RESTED = """() => new Promise(requestAnimationFrame).then(() => Promise.all(
  document.getAnimations()
    .filter((a) => a.effect.getComputedTiming().endTime !== Infinity)
    .map((a) => a.finished.catch(() => 0))))"""


def _encode(value: Any) -> Any:
    if isinstance(value, (bytes, memoryview)):
        return {"__b64__": base64.b64encode(value).decode()}
    return value


def synced(view: Any) -> dict[str, Any]:
    """The view's own synchronized traits, as the page gets them."""
    skip = ("layout", "tabbable", "tooltip")
    return {
        k: _encode(getattr(view, k)) for k in view.keys if not k.startswith("_") and k not in skip
    }


def html(view: Any, attributes: str = "", width: int = 1240) -> str:
    """A page that mounts the view's module."""

    def literal(x: Any) -> str:
        return json.dumps(x).replace("<", "\\u003c")

    return (
        f"<!doctype html><html {attributes}><meta charset=utf-8><body style='margin:12px;"
        f"width:{width}px'><div id=w></div><script type=module>{HOST.replace('export ', '')}\n"
        f"mount({literal(view._esm)},{literal(view._css)},{literal(synced(view))});</script>"
    )


class Hosted:
    """A page and the view that it shows."""

    def __init__(self, page: Any, view: Any, **page_options: Any) -> None:
        self.page, self.view = page, view
        self.problems: list[str] = []
        self.asked: list[Any] = []
        page.on("pageerror", lambda e: self.problems.append(str(e)))
        page.on("console", lambda m: m.type == "error" and self.problems.append(m.text))
        page.expose_function("toPython", self._from_page)
        page.set_content(html(view, **page_options))
        page.wait_for_selector(".llmviz[data-draws]:not([data-draws='0'])")

    def _from_page(self, what: dict[str, Any]) -> dict[str, Any]:
        before, messages = synced(self.view), []
        send = self.view.send
        self.view.send = lambda content, buffers=None: messages.append(content)
        try:
            if "message" in what:
                self.asked.append(what["message"])
                self.view._on_message(self.view, what["message"], [])
            for name, value in what.get("set", {}).items():
                setattr(self.view, name, value)
        finally:
            self.view.send = send
        after = synced(self.view)
        return {
            "state": {k: v for k, v in after.items() if before[k] != v},
            "messages": messages,
        }

    def sync(self) -> None:
        """Bring what changed in Python to the page, as a comm would."""
        self.page.evaluate("(s) => window.arrive(s)", {"state": synced(self.view), "messages": []})

    def settle(self) -> None:
        """Wait until the page shows the event at which the run stands."""
        self.page.wait_for_function(
            "() => !window.model.get('running')"
            " && document.querySelector('.llmviz').dataset.here == window.model.get('here')"
            " && !document.querySelector('.lv-working')"
        )

    def themes(self) -> Iterator[str]:
        """The page in light, then in dark, each once what moves has come to rest."""
        for scheme in ("light", "dark"):
            self.page.emulate_media(color_scheme=scheme)
            self.page.evaluate(RESTED)
            yield scheme

    def click(self, action: str) -> None:
        """Press a transport button and wait until the run stands."""
        draws = self.page.get_attribute(".llmviz", "data-draws")
        self.page.click(f"[data-action='{action}']")
        self.page.wait_for_function(
            "n => document.querySelector('.llmviz').dataset.draws != n", arg=draws
        )
        self.settle()


def chromium_path() -> str | None:
    """The system's Chromium or Chrome, or what LLMVIZ_CHROMIUM names; None: playwright's own."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    mac = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
    found = (os.environ.get("LLMVIZ_CHROMIUM"), *map(shutil.which, names))
    return next((f for f in found if f), mac if os.path.exists(mac) else None)


# The browser of this process, and the event loop that playwright's calls run in.
_running: list[tuple[Any, Any]] = []


def _launched(api: Any) -> tuple[Any, Any]:
    """The browser that runs, or a new one: starting one costs more than most tests take."""
    if _running and not _running[0][0].is_connected():
        _running.clear()
    if not _running:
        driver = api.sync_playwright().start()
        loop = asyncio.get_running_loop()  # left set between calls
        try:
            browser = driver.chromium.launch(executable_path=chromium_path(), args=FLAGS)
        except api.Error as error:
            driver.stop()
            absent = pytest.fail if os.environ.get("LLMVIZ_REQUIRE_ALL") else pytest.skip
            absent(f"no Chromium: {str(error).splitlines()[0]}")
        _running.append((browser, loop))

        def stop() -> None:
            asyncio._set_running_loop(loop)
            driver.stop()  # the browser ends with it

        atexit.register(stop)
    return _running[0]


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """A browser; skips the test where there is none.

    All tests of a process use the same one. Pages share nothing, since each is in a context of its
    own; those that are open still are closed at the end of the block.
    """
    api = pytest.importorskip("playwright.sync_api")
    before = asyncio._get_running_loop()
    if _running and before is None:
        asyncio._set_running_loop(_running[0][1])
    try:
        browser, _ = _launched(api)
        others = browser.contexts
        try:
            yield browser
        finally:
            for context in browser.contexts:
                if context not in others:
                    context.close()
    finally:
        # what runs between two blocks must find no loop, as if playwright had been stopped
        asyncio._set_running_loop(before)
