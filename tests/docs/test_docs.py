"""The documentation does what it says: code runs, links lead somewhere, pages are current."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

REPO = Path(__file__).parent.parent.parent
PAGES = [REPO / "README.md", REPO / "CONTRIBUTING.md", *sorted((REPO / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.M | re.S)
EXCERPT = re.compile(r"^```py\n(.*?)^```", re.M | re.S)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)|(?:src|srcset)=\"([^\"]+)\"")


def name(page: Path) -> str:
    return str(page.relative_to(REPO))


@pytest.mark.filterwarnings("ignore:n_gpu_layers")
@pytest.mark.parametrize("page", [p for p in PAGES[2:] if BLOCK.search(p.read_text())], ids=name)
def test_code_runs(page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Block after block in one session, as a reader would who pastes them one by one.

    Pages in docs use the built-in model alone; the README's code is run by ``test_packaging``.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    session: dict[str, object] = {"__name__": "__main__"}
    text = page.read_text("utf-8")
    for found in BLOCK.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        code = compile("\n" * line + found.group(1), str(page), "exec")
        exec(code, session)  # an error names the page's own line


@pytest.mark.parametrize("page", [p for p in PAGES if EXCERPT.search(p.read_text())], ids=name)
def test_excerpts_are_in_the_source(page: Path) -> None:
    """A block marked ``py`` is taken from a file of this repository, comments aside."""
    files = [*(REPO / "llmviz").rglob("*.py"), *(REPO / "tests").glob("*.py")]
    source = {line.partition("  #")[0].rstrip() for f in files for line in f.open(encoding="utf-8")}
    stripped = {line.strip() for line in source}
    blocks = EXCERPT.findall(page.read_text("utf-8"))
    lines = [line.partition("  #")[0].strip() for block in blocks for line in block.splitlines()]
    assert not [line for line in lines if line not in stripped]


def anchors(page: Path) -> set[str]:
    """What can stand after # in a link to the page."""
    heads = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    """Files and headings of this repository; what lies elsewhere is not asked for."""
    lost = []
    for groups in LINK.findall(page.read_text("utf-8")):
        link = next(g for g in groups if g)
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            lost.append(link)
    assert not lost


def test_every_page_is_in_the_index() -> None:
    index = (REPO / "docs" / "README.md").read_text("utf-8")
    missing = [
        p.name
        for p in (REPO / "docs").glob("*.md")
        if p.name != "README.md" and p.name not in index
    ]
    assert not missing


def test_the_reference_is_current() -> None:
    path = REPO / "docs" / "make_reference.py"
    spec = importlib.util.spec_from_file_location("make_reference", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = (REPO / "docs" / "reference.md").read_text("utf-8")
    assert page == module.page(), "run: python docs/make_reference.py"
