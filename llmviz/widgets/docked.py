"""Views that can stand without a debugger, docked in a panel that follows one.

Such a view keeps its own class and names. In the panel it is a *part*: a view without a page of its
own, whose traits are the panel's under ``<name>_<trait>``. It is made when it is first looked at,
so that a panel costs nothing for tabs that nobody opens.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import traitlets as t

from llmviz.errors import LlmvizError
from llmviz.widgets.base import View
from llmviz.widgets.follow import DebuggerView

__all__ = ["Dock", "Docking", "docked"]

# What a part has in common with the panel, and what belongs to the panel alone.
_SHARED = ("here", "error", "running")


@dataclass(frozen=True)
class Dock:
    """How a view stands in a panel.

    Attributes
    ----------
    name : str
        Of the tab, and the prefix of the traits.
    kind : type of View
        Its ``rev`` grows when a drawing is complete.
    make : callable
        ``make(kind, dbg)`` gives the part, or a sentence that says why there is none.
    follow : callable
        ``follow(part, dbg)`` brings it in line with the run; called while it can be seen.
    """

    name: str
    kind: type[View]
    make: Callable[[type[View], Any], View | str]
    follow: Callable[[Any, Any], None] = lambda part, dbg: None

    @property
    def traits(self) -> list[str]:
        """The view's own traits, by their own names."""
        common = {*View.class_trait_names(), *_SHARED}
        names = self.kind.class_trait_names(sync=True)
        return sorted(n for n in names if n not in common and n[0] != "_")


def _part(kind: type[View]) -> type[View]:
    """The view without a page: nothing is sent, so nothing is opened."""
    return type(f"Docked{kind.__name__}", (kind,), {"open": lambda self: None, "docked": True})


class Docking(DebuggerView):
    """Base of a panel that docks views; `docked` makes one."""

    docks: ClassVar[dict[str, Dock]] = {}
    _kinds: ClassVar[dict[str, type[View]]] = {}
    _parts: dict[str, View]
    _mirroring = False

    def __init__(self, dbg: Any, **kwargs: Any) -> None:
        self._parts = {}
        super().__init__(dbg, **kwargs)
        own = [f"{d.name}_{n}" for d in self.docks.values() for n in d.traits]
        self.observe(self._to_part, names=own)
        for name in own:  # what the panel was made with
            if name in kwargs:
                self._set_part(name, kwargs[name])

    def part(self, name: str) -> Any:
        """The docked view of this name; None where there is nothing to show (the panel says why).

        Made where it is not there yet.
        """
        if name not in self._parts:
            dock = self.docks[name]
            try:
                made: View | str = dock.make(self._kinds[name], self.dbg)
            except (LlmvizError, OSError) as error:
                made = str(error)
            setattr(self, f"{name}_missing", made if isinstance(made, str) else "")
            if isinstance(made, str):
                return None
            self._take_in(name, made)
        return self._parts[name]

    def _take_in(self, name: str, made: View) -> None:
        """Dock a view, in the place of the one that was there."""
        panel = weakref.ref(self)

        def send(content: Any, buffers: Any = None) -> None:
            page = panel()
            if page is not None:
                page.send(content, buffers)

        def mirror(change: Any) -> None:
            page = panel()
            if page is not None and page._parts.get(name) is change.owner:
                page._mirror(name)

        made.send = send
        made.observe(mirror, names="rev")
        before = self._parts.pop(name, None)
        if before is not None:
            before.close()
        self._parts[name] = made
        self._mirror(name)

    def draw(self) -> None:
        """Bring the docked views that can be seen in line with the run."""
        super().draw()
        for dock in self.docks.values():
            if not self.shows(dock.name):
                continue
            part = self.part(dock.name)
            if part is not None:
                dock.follow(part, self.dbg)

    def _mirror(self, name: str) -> None:
        """Take over what a part shows."""
        part, dock = self._parts[name], self.docks[name]
        error = getattr(part, "error", {})
        self._mirroring = True
        try:
            with self.hold_sync():
                for n in dock.traits:
                    value = getattr(part, n)
                    if getattr(self, f"{name}_{n}") != value:
                        setattr(self, f"{name}_{n}", value)
                if error:
                    self.error = {**error, "source": "view"}
                setattr(self, f"{name}_rev", part.rev)
                self.rev += 1
        finally:
            self._mirroring = False

    def _to_part(self, change: Any) -> None:
        if not self._mirroring:
            self._set_part(change.name, change.new)

    def _set_part(self, own: str, value: Any) -> None:
        for dock in self.docks.values():
            name = own[len(dock.name) + 1 :]
            if own.startswith(f"{dock.name}_") and name in dock.traits:
                part = self.part(dock.name)
                if part is not None:
                    setattr(part, name, value)
                    self._mirror(dock.name)

    def _on_message(self, view: Any, message: Any, buffers: Any) -> None:
        name = message.get("dock") if isinstance(message, dict) else None
        if name is None:
            super()._on_message(view, message, buffers)
        elif name in self.docks:
            part = self.part(name)
            if part is not None:
                part._on_message(part, message, buffers)

    def figure(self, view: str = "", **options: Any) -> Any:
        """As `DebuggerView.figure`; a docked view draws its own."""
        name = view or str(getattr(self, "view", ""))
        if name not in self.docks:
            return super().figure(view, **options)
        part = self.part(name)
        if part is None:
            raise LlmvizError(str(getattr(self, f"{name}_missing")))
        return part.figure(**options)

    def close(self) -> None:
        """Close the parts too."""
        for part in self._parts.values():
            part.close()
        super().close()


def docked(*docks: Dock) -> type[Docking]:
    """A base class for a panel with these views: each of their traits as ``<name>_<trait>``.

    ``<name>_missing`` says why a view has nothing to show, ``<name>_rev`` grows when it was drawn.
    """
    members: dict[str, Any] = {
        "__module__": __name__,
        "docks": {d.name: d for d in docks},
        "_kinds": {d.name: _part(d.kind) for d in docks},
    }
    for dock in docks:
        for name in dock.traits:
            members[f"{dock.name}_{name}"] = copy.copy(dock.kind.class_traits()[name])
        members[f"{dock.name}_missing"] = t.Unicode("").tag(sync=True)
        members[f"{dock.name}_rev"] = t.Int(0).tag(sync=True)
    return type("Docked", (Docking,), members)
