"""The distribution: what it declares, what is in it, and that its core needs nothing more."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from collections.abc import Callable
from email import message_from_string
from email.message import Message
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import llmviz

REPO = Path(__file__).parent.parent
PROJECT = tomllib.loads((REPO / "pyproject.toml").read_text("utf-8"))["project"]


def names(requirements: list[str]) -> set[str]:
    return {Requirement(r).name for r in requirements}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir"]
    done = subprocess.run(
        [*command, str(folder), str(REPO)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("*.whl")
    return path


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        return message_from_string(archive.read(name).decode())


def test_project() -> None:
    assert PROJECT["name"] == "llmviz-debugger"
    assert PROJECT["version"] == llmviz.__version__
    assert PROJECT["scripts"] == {"llmviz": "llmviz.cli:main"}
    assert PROJECT["requires-python"] == ">=3.11"


def test_core_needs_no_jupyter() -> None:
    core = names(PROJECT["dependencies"])
    assert core <= {
        "huggingface_hub", "jinja2", "numpy", "pooch", "regex", "rich", "tqdm", "typer",
    }  # fmt: skip


def test_extras() -> None:
    extras = {key: names(value) for key, value in PROJECT["optional-dependencies"].items()}
    assert set(extras) == {"lab", "cuda", "test", "train", "dev"}
    assert {"jupyterlab", "notebook", "ipywidgets", "anywidget", "matplotlib", "numba"} <= extras[
        "lab"
    ]
    assert not [
        name
        for extra in ("lab", "test", "dev")
        for name in extras[extra]
        if "cupy" in name or "torch" in name
    ]


def test_changelog_has_the_version() -> None:
    assert f"\n## [{llmviz.__version__}]" in (REPO / "CHANGELOG.md").read_text("utf-8")


def test_licence() -> None:
    text = (REPO / "LICENSE").read_text("utf-8")
    assert text.startswith("MIT License") and "llmviz contributors" in text


@pytest.mark.slow
def test_wheel_holds_all_that_the_package_reads(wheel: Path) -> None:
    """Every file of the package folder is in the wheel, the notebooks too, and nothing else."""
    with zipfile.ZipFile(wheel) as archive:
        packed = {n for n in archive.namelist() if ".dist-info/" not in n}
    expected = {
        str(path.relative_to(REPO))
        for path in (REPO / "llmviz").rglob("*")
        if path.is_file() and not {"__pycache__", ".ipynb_checkpoints"} & set(path.parts)
    }
    expected |= {f"llmviz/notebooks/{p.name}" for p in (REPO / "notebooks").glob("*.ipynb")}
    assert packed == expected
    assert "llmviz/py.typed" in packed
    assert "llmviz/notebooks/00-quickstart.ipynb" in packed
    for kind in ("F16", "Q8_0"):
        assert f"llmviz/builtin/llmviz-builtin.{kind}.gguf" in packed
    assert not any(n.startswith("training/") for n in packed)
    for suffix in (".js", ".css"):
        assert any(n.startswith("llmviz/widgets/static/") and n.endswith(suffix) for n in packed)


@pytest.mark.slow
def test_wheel_metadata(wheel: Path) -> None:
    data = metadata(wheel)
    assert data["Name"] == "llmviz-debugger"
    assert data["License-Expression"] == "MIT"
    assert set(data.get_all("Provides-Extra", [])) == {"lab", "cuda", "test", "train", "dev"}


@pytest.mark.slow
def test_a_core_install_works(wheel: Path, tmp_path: Path, tiny_model: Callable[..., str]) -> None:
    """Installs the wheel without extras, then inspects, tokenizes and generates."""
    venv.create(tmp_path / "venv", with_pip=False)
    bin_ = tmp_path / "venv" / "bin"
    env = {**os.environ, "PIP_COMPILE": "0"}
    env.pop("PYTHONPATH", None)

    def run(*command: str) -> str:
        done = subprocess.run(
            command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    # the pip that is here installs there: one less to unpack
    pip = [sys.executable, "-m", "pip", "--python", str(bin_ / "python")]
    run(*pip, "install", "--quiet", str(wheel))
    llmviz_ = str(bin_ / "llmviz")
    model = tiny_model()
    assert run(llmviz_, "--version").strip() == f"llmviz {llmviz.__version__}"
    assert "general.architecture" in run(llmviz_, "inspect", model)
    assert run(llmviz_, "tokenize", model, "The cat", "--json")
    run(llmviz_, "generate", model, "-p", "The cat", "-n", "4", "--seed", "1")


# -- the Makefile and CI --------------------------------------------------------------------------


def makefile_targets() -> set[str]:
    text = (REPO / "Makefile").read_text("utf-8")
    return set(re.findall(r"^([a-z][a-z-]*):", text, re.MULTILINE))


def test_make_has_what_the_documents_name() -> None:
    targets = makefile_targets()
    assert {"lab", "test", "check", "bench"} <= targets
    for document in ("README.md", "CONTRIBUTING.md"):
        named = set(re.findall(r"make ([a-z][a-z-]*)\b", (REPO / document).read_text("utf-8")))
        assert named <= targets


def test_make_says_what_it_offers() -> None:
    done = subprocess.run(["make"], cwd=REPO, capture_output=True, text=True, check=True)
    assert "make lab" in done.stdout and "make test" in done.stdout


def test_make_refuses_an_old_python(tmp_path: Path) -> None:
    old = tmp_path / "python"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    done = subprocess.run(
        ["make", f"VENV={tmp_path / 'venv'}", f"PYTHON={old}", "check"],
        cwd=REPO, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode != 0
    assert "needs Python 3.11 or newer" in done.stderr


def test_ci_runs_check_and_test() -> None:
    script = REPO / ".ci" / "run"
    assert os.access(script, os.X_OK)
    text = script.read_text("utf-8")
    assert "make check" in text and "make test" in text


# -- the README -----------------------------------------------------------------------------------

README = (REPO / "README.md").read_text("utf-8")


def test_links_of_the_documents_lead_somewhere() -> None:
    for name in ("README.md", "CONTRIBUTING.md"):
        text = (REPO / name).read_text("utf-8")
        for target in re.findall(r"\]\(([^)#]+)\)", text):
            if not target.startswith("http"):
                assert (REPO / target).exists(), f"{name} links to {target}"
        for target in re.findall(r'src(?:set)?="([^"]+)"', text):
            assert (REPO / target).is_file(), f"{name} shows {target}"


def test_tree_of_the_readme_is_the_source() -> None:
    """Every path in the annotated tree exists, and every part of the package is in it."""
    (tree,) = [x for x in README.split("```")[1::2] if x.startswith("\nllmviz/\n")]
    stack: list[str] = []
    listed = set()
    for line in tree.strip().splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        name = line.split()[0]
        stack[depth:] = [name.rstrip("/")]
        path = "/".join(stack)
        listed.add(path)
        assert (REPO / path).is_dir() == name.endswith("/") and (REPO / path).exists(), path
    parts = {
        f"llmviz/{p.name}"
        for p in (REPO / "llmviz").iterdir()
        if p.is_dir() and any(p.rglob("*.py"))
    }
    assert parts <= listed


def test_readme_names_every_command() -> None:
    from llmviz.cli import app

    names = {c.name or c.callback.__name__ for c in app.registered_commands if c.callback}
    names |= {group.name for group in app.registered_groups}
    assert set(re.findall(r"^\| `llmviz (\w+)", README, re.MULTILINE)) == names


def test_python_of_the_readme_runs(smollm2_path: str) -> None:
    """The two examples, in order, in one namespace."""
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL):
        exec(block, names)
    assert names["dbg"].here.name == "kq_soft_max-5"  # type: ignore[attr-defined]
