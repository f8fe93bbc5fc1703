"""The source line that ran: read from where the run is suspended, nothing is guessed.

An event comes out of a `yield`; while the run stands, the chain of generators stands on exactly the
lines that led to it. For a node there are two more places: the line of the model's builder that
named it, which the tensor remembers, and the kernel that computed it.
"""

from __future__ import annotations

import inspect
import linecache
import re
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import traitlets as t

import llmviz
from llmviz.trace.shown import short
from llmviz.widgets.follow import DebuggerView

__all__ = ["SourceView", "places"]

ROOT = Path(llmviz.__file__).parent
AROUND = 5  # lines shown before and after
_KERNEL = 24
_MIRROR = re.compile(r"^↔ (.+?)\s*$", re.MULTILINE)
_PLUMBING = ("events.py", "trace")  # carries events, computes nothing


class SourceView(DebuggerView):
    """Which line did this?

    Traits
    ------
    source : list of {role, file, line, first, lines, function, mirrors}
        `role` says what the line did; `file` is relative to the package, `first` the number of the
        first of `lines`; `mirrors` is the llama.cpp source that the file follows; `note`, where it
        is there, says whose line this is where nobody named the event's own tensor.
    source_shown : int
        Which of them is open; settable.
    """

    view_name = "source"

    source: t.List = t.List().tag(sync=True)
    source_shown = t.Int(0).tag(sync=True)

    _source_of = -2

    def draw(self) -> None:
        """Find the lines of the current event."""
        super().draw()
        if self.dbg.running or self._source_of == self.dbg.n:
            return
        self._source_of = self.dbg.n
        self.source = places(self.dbg)
        self.source_shown = min(self.source_shown, max(0, len(self.source) - 1))


def places(dbg: Any) -> list[dict[str, Any]]:
    """The source lines of the event at which a run stands."""
    here = dbg.here
    if here is None:
        return []
    out = []
    if here.kind == "node":
        named, note = _named(here.about, dbg)
        it, lines = ("it", named.origin) if not note else (short(named.name, 40), named.origin)
        outer = next((i for i, (f, _) in enumerate(lines) if "models" in Path(f).parts), None)
        if outer is not None:
            out.append({**_place(f"the model asks for {it}", *lines[outer]), "note": note})
        if lines and outer != 0:
            role = "named here" if not note else f"{it} is named here"
            out.append({**_place(role, *lines[0]), "note": note})
        kernel, engine = _kernel(here.about), getattr(dbg, "engine", "llmviz")
        if kernel and engine != "llmviz":
            note = f"{engine} computed this value; llmviz would do it here"
            kernel |= {"role": "llmviz's kernel", "note": note}
        out.append(kernel)
    standing = [place for place in dbg.lines if not _is_plumbing(place[0])]
    if standing:
        out.append(_place("shown here", *standing[-1]))
    return [p for p in out if p]


def _named(tensor: Any, dbg: Any) -> tuple[Any, str]:
    """The tensor; for one that no builder named, the nearest that was, and how it is related.

    ggml names the views that it makes on the way by itself: nobody asked for them by name.
    """
    if getattr(tensor, "origin", ()):
        return tensor, ""
    parent = _nearest_source(tensor)
    if parent is not None:
        return parent, f"{short(tensor.name, 60)} was named by ggml; it is made from {parent.name}"
    built = getattr(dbg.ctx, "graph", None)
    after = False
    for node in built.gf.nodes if built is not None else ():
        after = after or node is tensor
        if after and getattr(node, "origin", None):
            return node, f"{short(tensor.name, 60)} was named by ggml on the way to {node.name}"
    return SimpleNamespace(name="", origin=()), ""


def _nearest_source(tensor: Any) -> Any:
    """The first source that a builder named, looked for in rising distance."""
    found: Any = None
    level = list(getattr(tensor, "src", ()))
    for _ in range(8):  # views are made of views, a few deep
        found = next((s for s in level if getattr(s, "origin", ())), None)
        level = [s for t in level[:4] for s in getattr(t, "src", ())]
        if found is not None or not level:
            break
    return found


def _is_plumbing(file: str) -> bool:
    try:
        return Path(file).relative_to(ROOT).parts[0] in _PLUMBING
    except ValueError:
        return False


def _kernel(tensor: Any) -> dict[str, Any]:
    """What computes an op on the processor: the whole function, up to a bound."""
    from llmviz.ggml.backends.cpu_base import binders

    binder = binders.get(getattr(tensor, "op", ""))
    if binder is None:
        return {}
    found = _source_of(binder)
    if found is None:
        return {}
    file, first, lines = found
    place = _place("computed here", file, first + (1 if lines[0].startswith("@") else 0))
    return {**place, "first": first, "lines": [x.rstrip("\n")[:200] for x in lines[:_KERNEL]]}


@cache
def _source_of(function: Any) -> tuple[str, int, list[str]] | None:
    """File, first line and lines of a function; they are found by reading the whole file."""
    try:
        lines, first = inspect.getsourcelines(function)
        file = inspect.getsourcefile(function)
    except (OSError, TypeError):
        return None
    return None if file is None else (file, first, lines)


def _place(role: str, file: str, line: int) -> dict[str, Any]:
    path = Path(file)
    module = _module_of(file)
    source = linecache.getlines(file, vars(module) if module else None)
    if not source:
        return {}
    first = max(1, line - AROUND)
    try:
        shown = str(path.relative_to(ROOT.parent))
    except ValueError:
        shown = path.name
    doc = inspect.getdoc(module) if module else None
    mirrors = _MIRROR.search(doc or "")
    return {
        "role": role,
        "file": shown.replace("\\", "/"),
        "line": line,
        "first": first,
        "lines": [x.rstrip("\n")[:200] for x in source[first - 1 : line + AROUND]],
        "mirrors": mirrors[1].strip("`") if mirrors else "",
    }


@cache
def _module_of(file: str) -> Any:
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) == file:
            return module
    return None
