"""What was answered, as a table and as a file to hand in."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from html import escape
from textwrap import shorten

from llmviz.lessons.grading import bare
from llmviz.lessons.progress import at

__all__ = ["Report", "Row", "report"]


@dataclass(frozen=True, slots=True)
class Row:
    """One question: how often it was tried, and at which try it was right (None: not yet)."""

    lesson: str
    key: str
    kind: str
    question: str
    attempts: int
    right_at: int | None
    shown: bool
    when: str

    @property
    def said(self) -> str:
        """In words."""
        if self.right_at is not None:
            how = "at the first try" if self.right_at == 1 else f"at try {self.right_at}"
            return f"right {how}" + (", after it was shown" if self.shown else "")
        if self.shown:
            return "shown"
        return f"tried {self.attempts}×" if self.attempts else "open"


class Report:
    """The lessons begun in a folder.

    Attributes
    ----------
    rows : list of Row
    problem : str
        Why the folder's file does not hold all of it; empty where it does.
    """

    def __init__(self, rows: list[Row], problem: str = "") -> None:
        self.rows, self.problem = rows, problem

    @property
    def lessons(self) -> dict[str, list[Row]]:
        """Rows by lesson."""
        out: dict[str, list[Row]] = {}
        for row in self.rows:
            out.setdefault(row.lesson, []).append(row)
        return out

    def _score(self, rows: list[Row]) -> str:
        right = sum(r.right_at is not None for r in rows)
        return f"{right} of {len(rows)} right"

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Write it as JSON: totals, and a row for each question.

        Raises
        ------
        OSError
            The file cannot be written.
        """
        data = {
            "questions": len(self.rows),
            "right": sum(r.right_at is not None for r in self.rows),
            "right_at_first": sum(r.right_at == 1 and not r.shown for r in self.rows),
            "rows": [asdict(r) for r in self.rows],
        }
        with open(path, "w", encoding="utf-8") as file:
            json.dump(data, file, indent=1, ensure_ascii=False)
            file.write("\n")

    def __repr__(self) -> str:
        if not self.rows:
            return "\n".join(filter(None, ["No lesson was begun in this folder.", self.problem]))
        lines = []
        for name, rows in self.lessons.items():
            lines.append(f"{name}: {self._score(rows)}")
            wide = max(len(r.key) for r in rows)
            lines += [f"  {r.key:<{wide}}  {r.said}" for r in rows]
        return "\n".join(filter(None, [*lines, self.problem]))

    def _repr_html_(self) -> str:
        note = f"<p>{escape(self.problem)}</p>" if self.problem else ""
        if not self.rows:
            return f"<p>No lesson was begun in this folder.</p>{note}"
        out = []
        left = "style='text-align:left'"
        for name, rows in self.lessons.items():
            out.append(
                f"<tr><th {left}>{escape(name)}</th><th {left}></th>"
                f"<th {left}>{self._score(rows)}</th></tr>"
            )
            for r in rows:
                sign = "✓" if r.right_at is not None else "·"
                out.append(
                    f"<tr><td {left}>{sign} {escape(r.key)}</td>"
                    f"<td {left}>{escape(shorten(bare(r.question), 90, placeholder=' …'))}</td>"
                    f"<td {left}>{escape(r.said)}</td></tr>"
                )
        return f"<table>{''.join(out)}</table>{note}"


def report(folder: str | os.PathLike[str] | None = None) -> Report:
    """What was answered so far in a folder, by default the notebook's own.

    Lessons of other notebooks of the same folder are in it as soon as something in them was
    answered.
    """
    progress = at(folder)
    rows = [
        Row(name, key, **{f: entry[f] for f in Row.__slots__[2:]})
        for name, checks in progress.lessons().items()
        for key, entry in checks.items()
    ]
    return Report(rows, progress.problem)
