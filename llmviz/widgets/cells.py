"""Which cell of a notebook shows which views: a cell that runs again closes what it replaces.

A front end throws the old output away, but the kernel would keep the old view, all that it follows
and its traffic for ever.
"""

from __future__ import annotations

import weakref
from typing import Any

__all__ = ["displayed"]

_runs: dict[str, tuple[str, weakref.WeakSet]] = {}  # cell -> its latest run, and what that showed
_before: dict[str, list[weakref.WeakSet]] = {}  # cell -> what earlier runs showed
_shells: weakref.WeakSet = weakref.WeakSet()


def displayed(view: Any) -> None:
    """Note that the cell that runs now shows a view.

    When the cell has run, the views of the same name that its earlier runs showed are closed,
    where neither this run nor another cell shows them. Without a notebook nothing happens.
    """
    shell, cell, run = _now()
    if not cell:
        return
    if shell not in _shells:
        _shells.add(shell)
        shell.events.register("post_run_cell", _ran)
    last = _runs.get(cell)
    if last is None or last[0] != run:
        if last is not None:
            _before.setdefault(cell, []).append(last[1])
        last = _runs[cell] = (run, weakref.WeakSet())
    last[1].add(view)


def _now() -> tuple[Any, str, str]:
    """The shell, the cell that runs in it, and which run of it that is; empty where unknown."""
    from IPython import get_ipython

    shell = get_ipython()
    parent = shell.get_parent() if hasattr(shell, "get_parent") else None
    if not parent:
        return shell, "", ""
    cell = parent.get("metadata", {}).get("cellId")  # JupyterLab, Notebook 7
    return shell, str(cell or ""), str(parent.get("header", {}).get("msg_id", ""))


def _ran(result: Any) -> None:
    cell = _now()[1]
    if cell not in _before:
        return
    kinds = {v.view_name for v in _runs[cell][1]}
    kept = {id(v) for _, views in _runs.values() for v in views}
    for views in _before.pop(cell):
        for view in list(views):
            if view.view_name in kinds and id(view) not in kept:
                view.close()
