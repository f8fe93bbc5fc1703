"""What holds for every architecture: a case against llama.cpp, three parts in one file, no `if`."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest
from test_parity_archs import CASES

from llmviz.ggml.graph import Graph
from llmviz.model.arch import Architecture, get_arch, supported_archs
from llmviz.model.graph import GraphContext
from llmviz.model.tensors import TensorLoader

REPO = Path(__file__).parents[2]
PAGE = REPO / "docs" / "add-an-architecture.md"
WANTED = (
    "llama", "mistral3", "smollm3", "qwen2", "qwen2moe", "qwen3", "qwen3moe", "gemma", "gemma2",
    "gemma3", "phi2", "phi3", "gpt2", "gptneox", "starcoder2", "falcon", "stablelm", "bloom", "mpt",
    "olmo2", "command-r", "granite", "glm4", "internlm2", "minicpm", "exaone", "deci", "gpt-oss",
    "deepseek",
)  # fmt: skip


def ours() -> list[str]:
    """Those in the package; tests may have registered others."""
    return [a for a in supported_archs() if get_arch(a).__module__.startswith("llmviz.models")]


def test_the_architectures() -> None:
    assert set(WANTED) <= set(ours())


def test_each_has_a_case() -> None:
    assert set(ours()) - {case["arch"] for case in CASES.values()} == set()


@pytest.mark.parametrize("arch", WANTED)
def test_a_file_has_three_parts_in_order(arch: str) -> None:
    kind = get_arch(arch)
    source = Path(inspect.getsourcefile(kind) or "").read_text("utf-8")
    assert len(source.splitlines()) <= 200
    assert "src/models/" in source.split('"""')[1]
    parts = re.findall(r"^    # (hyperparameters|tensors and graph|tensors|graph)\b", source, re.M)
    assert parts in (["hyperparameters", "tensors", "graph"],
                     ["hyperparameters", "tensors and graph"])  # fmt: skip
    assert kind.rope_type in ("norm", "neox", "mrope", "none")


def test_nothing_outside_the_models_asks_which_one_it_is() -> None:
    """No comparison with an architecture's name."""
    names = set(ours())
    wrong = []
    for path in (REPO / "llmviz").rglob("*.py"):
        if path.parent.name == "models":
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Compare):
                values = {n.value for n in ast.walk(node) if isinstance(n, ast.Constant)}
                asks = "arch" in ast.unparse(node).replace("search", "")
                if asks and values & names:
                    wrong.append(f"{path.name}:{node.lineno}: {ast.unparse(node)}")
    assert wrong == []


def test_the_page_names_what_there_is() -> None:
    page = PAGE.read_text("utf-8")
    assert (REPO / "llmviz/models/qwen3.py").exists()
    owners = (Architecture, GraphContext, TensorLoader, Graph)
    for name in re.findall(r"\b(?:load_arch|build|create)_\w+", page):
        assert any(hasattr(owner, name) for owner in owners), name
    line = re.search(r'^"qwen3": .*$', page, re.M)
    assert line and line[0] in (REPO / "tests/test_parity_archs.py").read_text("utf-8")
