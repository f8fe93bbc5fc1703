"""The source line that ran: read from where the run is suspended, nothing is guessed.

An event comes out of a `yield`; while the run stands, the chain of generators stands on exactly the
lines that led to it. For a node there are two more places: the line of the model's builder that
named it, which the tensor remembers, and the kernel that computed it.
"""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import Any

import traitlets as t

import llmviz
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
        first of `lines`; `mirrors` is the llama.cpp source that the file follows.
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
        lines = getattr(here.about, "origin", ())
        outer = next((i for i, (f, _) in enumerate(lines) if "models" in Path(f).parts), None)
        if outer is not None:
            out.append(_place("the model asks for it", *lines[outer]))
        if lines and outer != 0:
            out.append(_place("named here", *lines[0]))
        kernel = _kernel(here.about)
        if kernel is not None:
            out.append(kernel)
    standing = [place for place in dbg.lines if not _is_plumbing(place[0])]
    if standing:
        out.append(_place("shown here", *standing[-1]))
    return [p for p in out if p]


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
    try:
        lines, first = inspect.getsourcelines(binder)
        file = inspect.getsourcefile(binder)
    except (OSError, TypeError):
        return {}
    if file is None:
        return {}
    place = _place("computed here", file, first + (1 if lines[0].startswith("@") else 0))
    return {**place, "first": first, "lines": [x.rstrip("\n")[:200] for x in lines[:_KERNEL]]}


def _place(role: str, file: str, line: int) -> dict[str, Any]:
    path = Path(file)
    module = _module_of(file)
    try:
        source = inspect.getsource(module).splitlines() if module else path.read_text().splitlines()
    except (OSError, TypeError):
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
        "lines": [x[:200] for x in source[first - 1 : line + AROUND]],
        "mirrors": mirrors[1].strip("`") if mirrors else "",
    }


def _module_of(file: str) -> Any:
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) == file:
            return module
    return None
