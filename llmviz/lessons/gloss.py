"""Fill in what glossary words mean: ``python -m llmviz.lessons.gloss notebooks/*.ipynb``.

An author writes ``<abbr>token</abbr>`` in a text cell; the hover text is the glossary's, so that it
is written once. ``--check`` changes nothing and ends with 1 where a file would change.
"""

from __future__ import annotations

import json
import re
import sys
from html import escape
from pathlib import Path
from typing import Any

from llmviz.errors import LlmvizError
from llmviz.trace.glossary import WORDS, word_of

__all__ = ["filled", "main", "notebook_filled"]

_ABBR = re.compile(r'<abbr(?: title="[^"]*")?>([^<]*)</abbr>')


def filled(text: str, where: str = "") -> str:
    """A Markdown text with the title of each ``<abbr>`` as the glossary has it.

    Raises
    ------
    LlmvizError
        A marked word is not in the glossary.
    """

    def title(found: re.Match[str]) -> str:
        word = word_of(found[1])
        if word is None:
            raise LlmvizError(
                f"{where}{found[1]!r} is not in the glossary: add it to "
                "llmviz/trace/glossary.py, or do not mark it"
            )
        return f'<abbr title="{escape(WORDS[word])}">{found[1]}</abbr>'

    return _ABBR.sub(title, text)


def notebook_filled(path: Path) -> tuple[str, str]:
    """A notebook's text as it is, and as it should be.

    Raises
    ------
    LlmvizError
        It is no notebook, or a marked word is not in the glossary.
    """
    before = path.read_text("utf-8")
    try:
        notebook: dict[str, Any] = json.loads(before)
        for cell in notebook["cells"]:
            if cell["cell_type"] != "markdown":
                continue
            text = "".join(cell["source"])
            new = filled(text, f"{path.name}, cell {cell.get('id', '')}: ")
            if new != text:
                cell["source"] = new.splitlines(keepends=True)
    except (ValueError, KeyError, TypeError) as error:
        raise LlmvizError(f"{path} is no notebook: {error!r}") from error
    return before, json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def main(arguments: list[str]) -> int:
    """Fill the notebooks named, or look only with ``--check``; gives the exit status."""
    looks = "--check" in arguments
    paths = [Path(a) for a in arguments if a != "--check"]
    if not paths:
        print("usage: python -m llmviz.lessons.gloss [--check] NOTEBOOK...", file=sys.stderr)
        return 2
    stale = 0
    for path in paths:
        before, after = notebook_filled(path)
        if before == after:
            continue
        stale += 1
        if not looks:
            path.write_text(after, "utf-8")
        print(f"{path}: {'stale' if looks else 'filled'}")
    return int(looks and stale > 0)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (LlmvizError, OSError) as error:
        sys.exit(str(error))
