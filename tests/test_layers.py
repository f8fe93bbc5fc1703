"""Data flows one way: a module imports only from layers below its own. Read from the source."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "llmviz"

LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors",),
    ("events", "steps"),
    ("batch",),
    ("ggml",),
    ("gguf",),
    ("vocab", "memory"),
    ("model",),
    ("models",),
    ("context", "context_memory", "context_params", "outputs", "sampling"),
    ("generate",),
    ("trace",),
    ("plots",),
    ("widgets",),
    ("show", "lessons"),
    ("cli", "__main__"),
)
# Parts that belong together although they are several modules of one layer.
SAME_PART = (
    {"context", "context_memory", "context_params", "outputs"},
    {"cli", "__main__"},
)
# Beside the layers: they know nothing but the errors; only what opens files for a user knows them.
LEAVES = ("builtin", "hub", "reference")
# Imports that run only when a method of the public API is called, against the direction:
# the method is where a user looks for it, the code is where it belongs.
DEFERRED = {
    ("model.model", "context"),  # Model.context() makes one
    ("model.arch", "models"),  # the registry loads every architecture so that it registers itself
}
NOTEBOOK_ONLY = {"anywidget", "ipywidgets", "IPython", "ipykernel", "matplotlib", "traitlets"}
MAY_DRAW = {"plots", "widgets", "show", "lessons", "cli"}

LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


@dataclass(frozen=True)
class Import:
    """`importer`, a module below llmviz, imports `target` on a line; `deferred`: in a function."""

    importer: str
    target: str
    line: int
    deferred: bool

    def __str__(self) -> str:
        return f"llmviz.{self.importer}:{self.line} imports {self.target}"


def modules() -> dict[str, Path]:
    """Name below llmviz (``"ggml.quants.q4"``, ``""`` for the package itself) to file."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = list(path.relative_to(PACKAGE).with_suffix("").parts)
        if parts[-1] == "__init__":
            parts.pop()
        found[".".join(parts)] = path
    return found


MODULES = modules()


def imports(name: str) -> Iterator[Import]:
    """All imports of a module but those for type checkers only."""
    path = MODULES[name]
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]

    def visit(node: ast.AST, deferred: bool) -> Iterator[Import]:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            children: list[ast.AST] = list(node.orelse)
        else:
            children = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(name, alias.name, node.lineno, deferred)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = ["llmviz", *filter(None, package.split("."))]
                above = above[: len(above) - node.level + 1]
                base = ".".join([*above, *filter(None, [base])])
            for alias in node.names:
                full = f"{base}.{alias.name}"
                is_module = full.removeprefix("llmviz.") in MODULES
                yield Import(name, full if is_module else base, node.lineno, deferred)
        deferred = deferred or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        for child in children:
            yield from visit(child, deferred)

    yield from visit(ast.parse(path.read_text("utf-8")), deferred=False)


@cache
def every() -> tuple[Import, ...]:
    """All imports of all modules, read when the first test asks."""
    return tuple(found for name in sorted(MODULES) for found in imports(name))


@cache
def own() -> tuple[Import, ...]:
    """Those of modules of ours."""
    return tuple(i for i in every() if i.target.split(".")[0] == "llmviz")


def layer(module: str) -> str:
    return module.split(".")[0]


def below(target: str) -> str:
    """``"llmviz.ggml.types"`` to ``"ggml"``; ``"llmviz"`` itself to ``""``."""
    return layer(target.removeprefix("llmviz").removeprefix("."))


def together(a: str, b: str) -> bool:
    return a == b or any(a in part and b in part for part in SAME_PART)


def test_every_module_has_a_layer() -> None:
    tops = {layer(name) for name in MODULES} - {""}
    assert tops - set(LEVEL) - set(LEAVES) == set()


def test_imports_point_down() -> None:
    wrong = []
    for found in own():
        source, target = layer(found.importer), below(found.target)
        if source in ("", *LEAVES) or target in ("", *LEAVES) or together(source, target):
            continue
        if LEVEL[target] < LEVEL[source]:
            continue
        if found.deferred and (found.importer, target) in DEFERRED:
            continue
        wrong.append(str(found))
    assert wrong == []


def test_leaves_know_only_the_errors() -> None:
    wrong = [
        str(i)
        for i in own()
        if layer(i.importer) in LEAVES and below(i.target) not in (layer(i.importer), "errors")
    ]
    assert wrong == []


def test_the_engine_does_not_know_the_leaves() -> None:
    wrong = [
        str(i)
        for i in own()
        if below(i.target) in LEAVES
        and layer(i.importer) not in ("", "trace", "show", "cli", below(i.target))
    ]
    assert wrong == []


def test_only_the_outermost_layers_import_the_whole_package() -> None:
    wrong = [
        str(i)
        for i in own()
        if below(i.target) == "" and layer(i.importer) not in ("", "show", "cli", "widgets")
    ]
    assert wrong == []


def test_the_engine_never_imports_trace() -> None:
    engine = {name for name, level in LEVEL.items() if level < LEVEL["trace"]}
    wrong = [str(i) for i in own() if layer(i.importer) in engine and below(i.target) == "trace"]
    assert wrong == []


def test_events_imports_nothing_of_ours() -> None:
    assert [str(i) for i in own() if i.importer == "events"] == []


def test_only_views_import_notebook_packages() -> None:
    wrong = [
        str(i)
        for i in every()
        if i.target.split(".")[0] in NOTEBOOK_ONLY and layer(i.importer) not in MAY_DRAW
    ]
    assert wrong == []


@pytest.mark.parametrize("deferred", sorted(DEFERRED))
def test_the_exceptions_are_still_needed(deferred: tuple[str, str]) -> None:
    assert deferred in {(i.importer, below(i.target)) for i in own() if i.deferred}


def test_the_core_runs_without_jupyter() -> None:
    """`import llmviz` and every public name but the views work where the `lab` extra is absent."""
    program = f"""
import sys
blocked = {sorted(NOTEBOOK_ONLY | {"networkx", "numba", "jupyterlab", "notebook"})!r}
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in blocked:
            raise ModuleNotFoundError(f"No module named {{name!r}} (blocked)", name=name)
sys.meta_path.insert(0, Block())
import llmviz, llmviz.cli, llmviz.trace, llmviz.generate, llmviz.context
for name in llmviz.__all__:
    if name != "show":
        getattr(llmviz, name)
print("fine")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "fine\n", done.stderr
