"""How far a reader is: one JSON file in the notebook's folder, read again before each writing.

    {"version": 1, "lessons": {"12-tokens": {"how-many": {"kind": "number", "question": "...",
      "attempts": 2, "right_at": 2, "shown": false, "when": "2026-01-31T10:15:00+00:00"}}}}

`right_at` is the try that was right, or null; `shown` says that the answer was shown before it
was found. Where the file cannot be read or written, nothing is lost: it is left as it is, the
progress stays in memory, and `problem` says so until it can be written.
"""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

__all__ = ["FILE_NAME", "Progress", "at"]

FILE_NAME = ".llmviz-lessons.json"
_VERSION = 1
_MOST_BYTES = 5_000_000
_FIELDS: dict[str, tuple[type, ...]] = {
    "kind": (str,),
    "question": (str,),
    "attempts": (int,),
    "right_at": (int, type(None)),
    "shown": (bool,),
    "when": (str,),
}

Lessons = dict[str, dict[str, dict[str, Any]]]
_open: dict[Path, Progress] = {}


def at(folder: str | os.PathLike[str] | None = None) -> Progress:
    """The progress kept in a folder, by default the current one: a notebook runs in its own."""
    path = Path(folder or ".").absolute() / FILE_NAME
    if path not in _open:
        _open[path] = Progress(path)
    return _open[path]


class Progress:
    """What was answered, in this folder's file and in memory.

    Attributes
    ----------
    path : Path
    problem : str
        Why the file does not hold all of it; empty where it does.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._own: Lessons = {}  # what this process knows itself
        self.problem = self._read()[1]

    def lessons(self) -> Lessons:
        """All lessons by name, in order, each with its checks by key."""
        there, problem = self._read()
        self.problem = problem or self.problem
        both = _merged(there, self._own)
        return {name: both[name] for name in sorted(both)}

    def check(self, lesson: str, key: str) -> dict[str, Any]:
        """What is known of one check; empty where nothing is."""
        return self.lessons().get(lesson, {}).get(key, {})

    def expect(self, lesson: str, key: str, kind: str, question: str) -> None:
        """Note that a lesson asks this. Nothing is written until something is answered."""
        new = {"attempts": 0, "right_at": None, "shown": False, "when": ""}
        known = self.check(lesson, key) or new
        self._own.setdefault(lesson, {})[key] = {**known, "kind": kind, "question": question}

    def record(
        self, lesson: str, key: str, *, attempts: int, right_at: int | None, shown: bool
    ) -> None:
        """Keep what came of an answer to a check that is expected, and write the file."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._own[lesson][key] |= {
            "attempts": attempts,
            "right_at": right_at,
            "shown": shown,
            "when": now,
        }
        self.save()

    def forget(self, lesson: str) -> None:
        """Begin a lesson anew: its tries are taken out of memory and of the file."""
        for entry in self._own.get(lesson, {}).values():
            entry |= {"attempts": 0, "right_at": None, "shown": False, "when": ""}
        self.save(without=lesson)

    def save(self, without: str = "") -> bool:
        """Write everything; False, with `problem` set, where that cannot be done."""
        there, self.problem = self._read()
        if self.problem:
            return False
        there.pop(without, None)
        whole = {"version": _VERSION, "lessons": _merged(there, self._own)}
        text = json.dumps(whole, indent=1, ensure_ascii=False)
        name = ""
        try:
            # beside it first: a crash in the middle leaves the old file whole
            handle, name = tempfile.mkstemp(prefix=FILE_NAME, dir=self.path.parent)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text + "\n")
            os.replace(name, self.path)
        except OSError as error:
            if name:
                with suppress(OSError):
                    os.unlink(name)
            self.problem = (
                f"Your progress is kept in memory only: {self.path.name} cannot be written "
                f"({error.strerror or error}). lv.lessons.report().to_json(path) saves it."
            )
        return not self.problem

    def _read(self) -> tuple[Lessons, str]:
        """The file's lessons, and why they cannot be read where it is there and they cannot."""
        try:
            with self.path.open("rb") as file:
                raw = file.read(_MOST_BYTES + 1)
            if len(raw) > _MOST_BYTES:
                raise ValueError(f"it has more than {_MOST_BYTES:,} bytes")
            return _checked(json.loads(raw)), ""
        except FileNotFoundError:
            return {}, ""
        except (OSError, ValueError, RecursionError) as error:
            return {}, (
                f"Your progress is kept in memory only: {self.path.name} cannot be read ({error}). "
                "It was left as it is; rename or delete it, and the next answer is saved again."
            )


def _checked(data: Any) -> Lessons:
    """The lessons of a file that says what it should; ValueError names what is wrong."""
    if not isinstance(data, dict) or not isinstance(data.get("lessons"), dict):
        raise ValueError("it has no lessons")
    if data.get("version") != _VERSION:
        raise ValueError(f"its version is {data.get('version')!r:.20}, not {_VERSION}")
    for name, checks in data["lessons"].items():
        if not isinstance(checks, dict):
            raise ValueError(f"lesson {name!r:.40} is no object")
        for key, entry in checks.items():
            if not isinstance(entry, dict):
                raise ValueError(f"{name!r:.40}, {key!r:.40} is no object")
            for field, types in _FIELDS.items():
                value = entry.get(field)
                if not isinstance(value, types) or (int in types and isinstance(value, bool)):
                    raise ValueError(f"{name!r:.40}, {key!r:.40}: {field} is {value!r:.40}")
    return data["lessons"]


def _merged(there: Lessons, own: Lessons) -> Lessons:
    """Both; of a check that both know, the one that was answered later."""
    out = {name: dict(checks) for name, checks in there.items()}
    for name, checks in own.items():
        mine = out.setdefault(name, {})
        for key, entry in checks.items():
            if key not in mine or entry["when"] >= mine[key]["when"]:
                mine[key] = dict(entry)
    return out
