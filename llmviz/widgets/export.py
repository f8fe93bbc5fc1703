"""A run, or one view, as a single HTML file: opens from disk, with no network and no kernel.

The page carries our ES modules, a small host of the widget model and the recorded data. Its
Content-Security-Policy lets that one script run, by its hash, and nothing be fetched. Text of a
model or a prompt is data, in JSON that is compressed and in base64; in the header it is escaped.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import tempfile
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import llmviz
from llmviz.errors import LlmvizError
from llmviz.trace import Trace, open_trace
from llmviz.widgets.base import View
from llmviz.widgets.modules import esm, style
from llmviz.widgets.panel import DebuggerPanel
from llmviz.widgets.recorded import Progress, packed, record

__all__ = ["MOST_BYTES", "run_to_html", "view_to_html"]

MOST_BYTES = 5_000_000
"""What a page of a run takes at most, unless another size is asked for."""

_VIEWS = ("flow", "tensor", "attention", "kv_cache", "logits", "sampler", "output")
_DEFAULT = re.compile(r"^export default ", re.MULTILINE)
_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
_SHOWN = 300  # characters of a prompt


def run_to_html(
    run: Any,
    path: str | os.PathLike[str],
    *,
    start: int | None = None,
    max_bytes: int = MOST_BYTES,
    progress: Progress | None = None,
) -> None:
    """Write a recorded run as one page; see `llmviz.Debugger.to_html`."""
    if isinstance(run, Trace):
        with open_trace(run.path) as own:  # views that stand on this one are left alone
            _write(path, _run_page(own, start, max_bytes, progress))
        return
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder) / "run.zarr.zip"
        run.save(saved)
        with open_trace(saved) as trace:
            _write(path, _run_page(trace, start, max_bytes, progress))


def view_to_html(view: View, path: str | os.PathLike[str]) -> None:
    """Write a view as it stands as one page; see `View.to_html`."""
    if isinstance(view, DebuggerPanel):
        view.dbg.to_html(path)
        return
    blob = bytearray()
    state: dict[str, Any] = {}
    for name in view.keys:
        if name[0] == "_" or name in ("layout", "tabbable", "tooltip"):
            continue
        value = getattr(view, name)
        if isinstance(value, (bytes, bytearray, memoryview)):
            blob += b"\0" * (-len(blob) % 8)
            state[name] = {"$": [len(blob), len(value)]}
            blob += bytes(value)
        else:
            state[name] = value
    if hasattr(view, "running"):
        state |= {"running": False, "can_restart": False}
    script = _DEFAULT.sub("const view = ", esm(view.view_name)) + "\n" + esm("still")
    core = json.dumps(state, default=_plain).encode()
    dbg = getattr(view, "dbg", None)
    head = _header(_about(dbg), f"{type(view).__name__}, as it stood: nothing here is live")
    data = {"core": packed(core), "blob": packed(bytes(blob))}
    _write(path, _page("llmviz " + type(view).__name__, head, _foot(dbg, []), script, data))


def _plain(x: Any) -> Any:
    if hasattr(x, "item"):
        return x.item()
    raise TypeError(f"{type(x).__name__} is no value of a trait")


def _run_page(
    trace: Trace, start: int | None, max_bytes: int, progress: Progress | None
) -> list[bytes]:
    if not len(trace.all_events):
        raise LlmvizError("nothing was recorded: let the run take a step first")
    script = esm("page")
    frame = len(script.encode()) + len(style().encode()) + 30_000
    if max_bytes < frame + 100_000:
        raise LlmvizError(
            f"a page takes {frame + 100_000:,} bytes before it holds anything; "
            f"{max_bytes:,} are too few"
        )
    recording = record(trace, max_bytes=max_bytes - frame, progress=progress)
    core = recording.core
    tokens = [k.n for k in trace.tokens if not k.given]
    core["start"] = start if start is not None else tokens[0] if tokens else trace.furthest
    there = {"flow": bool(core["flow"]), "attention": bool(core["attention"])}
    core["views"] = [v for v in _VIEWS if there.get(v, True)]
    data = {
        "core": packed(recording.core_bytes()),
        "blob": packed(recording.blob),
        "arrays": base64.b64encode(recording.arrays.packed()),
        "flow": base64.b64encode(recording.flow.packed()),
    }
    head = _header(_about(trace), "recorded, not live")
    title = f"llmviz: {_visible(trace.model.desc or 'a recorded run', 80)}"
    page = _page(title, head, _foot(trace, recording.left_out), script, data)
    if progress is not None:
        progress(1.0)
    return page


# -- the page --------------------------------------------------------------------------------------


def _about(run: Any) -> tuple[str, str]:
    """Model and prompt of a run, as texts."""
    if run is None:
        return "", ""
    model = getattr(run, "model", None)
    name = str(getattr(model, "desc", "") or getattr(model, "arch", "") or "")
    prompt = run.attrs.get("prompt") if isinstance(run, Trace) else getattr(run, "prompt", "")
    if not isinstance(prompt, str):
        prompt = "".join(k.text for k in run.tokens if k.given)
    return name, prompt


def _header(about: tuple[str, str], tag: str) -> str:
    model, prompt = about
    shown = (
        f"prompt: <bdi>{escape(_visible(prompt, _SHOWN))}</bdi>"
        if prompt
        else f"llmviz {escape(llmviz.__version__)}"
    )
    choices = "".join(
        f'<button type="button" data-theme-choice="{name}" aria-pressed="false">{name}</button>'
        for name in ("auto", "light", "dark")
    )
    return (
        f'<header class="page-head"><h1>{escape(_visible(model, 80)) or "llmviz"}</h1>'
        f'<span class="page-tag">{escape(tag)}</span>'
        f'<span class="page-prompt">{shown}</span>'
        f'<span class="page-switches" role="group" aria-label="Appearance">{choices}'
        '<button type="button" data-page-projector aria-pressed="false">projector</button></span>'
        "</header>"
    )


def _foot(run: Any, left_out: list[str]) -> str:
    made = run.attrs.get("llmviz_version", "") if isinstance(run, Trace) else ""
    file = _visible(str(getattr(getattr(run, "model", None), "path", "") or ""), 120)
    file = os.path.basename(file.replace("\\", "/")) or "model.gguf"
    items = "".join(f"<li>{escape(_visible(x, 400))}</li>" for x in left_out)
    left = f"<p>Left out of this page:</p><ul>{items}</ul>" if items else ""
    by = f", of a run recorded by llmviz {escape(str(made)[:40])}" if made else ""
    line = f"dbg = llmviz.Debugger({file!r}, prompt)"
    return (
        '<footer class="page-foot"><details><summary>About this page</summary>'
        f"<p>Made by llmviz {escape(llmviz.__version__)}{by}. Numbers are those of the engine; "
        "pictures are rounded to 253 levels. Keys: F10 over, F11 into, Shift+F11 out, "
        "Shift+F10 back, N next token, P token before, F5 to the end.</p>"
        f"{left}<p>To run it live: <code>pip install 'llmviz-debugger[lab]'</code>, then in a "
        f"notebook <code>import llmviz; {escape(line)}; dbg</code></p></details></footer>"
    )


def _page(title: str, head: str, foot: str, script: str, data: dict[str, bytes]) -> list[bytes]:
    if "</script" in script.lower():
        raise AssertionError("a module must not end its own element")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "base-uri 'none'; form-action 'none'"
    )
    sheet = style() + (files("llmviz.widgets") / "static" / "page.css").read_text("utf-8")
    begin = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{sheet}</style></head>\n"
        f'<body>{head}\n<main id="view"></main>\n'
        "<noscript><p>This page draws itself with the script that it carries.</p></noscript>\n"
        f"{foot}\n"
    )
    parts = [begin.encode()]
    for name, text in data.items():
        parts += [f'<script type="text/plain" id="{name}">'.encode(), text, b"</script>\n"]
    return [*parts, b'<script type="module">', script.encode(), b"</script>\n</body></html>\n"]


def _visible(text: str, most: int) -> str:
    """Text for people: cut, and what cannot be seen or turns the direction by its number."""
    cut = text[:most] + ("…" if len(text) > most else "")
    return _UNSEEN.sub(lambda m: f"‹U+{ord(m[0]):04X}›" if m[0] != "\n" else "⏎", cut)


def _write(path: str | os.PathLike[str], parts: list[bytes]) -> None:
    """The file appears complete or not at all."""
    folder, name = os.path.split(os.path.abspath(os.fspath(path)))
    handle, temporary = tempfile.mkstemp(prefix=f".{name}.", dir=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(parts)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
