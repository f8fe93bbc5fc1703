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
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

# Before numpy is imported: BLAS threads of parallel workers wait for each other in busy loops.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# weights="auto" must not depend on what an earlier run compiled; tests of the kernels ask for them
os.environ.setdefault("LLMVIZ_KERNELS", "off")

import pytest
from filelock import FileLock

sys.path.insert(0, str(Path(__file__).parent))  # so that tests can import tiny_models
# The tests start a hundred Python processes, each of which would compile the package anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

REPO = Path(__file__).parent.parent
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
    """Where downloads that only tests need are kept between runs."""
    from llmviz import hub

    path = hub.cache_dir() / "tests"
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


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the figures that tests recorded, whether they passed or not."""
    reports = [r for group in terminalreporter.stats.values() for r in group]
    lines = [
        f"{r.nodeid}: {value}"
        for r in reports
        for name, value in getattr(r, "user_properties", ())
        if name == "figures" and r.when == "call"
    ]
    if lines:
        terminalreporter.section("figures")
        terminalreporter.write("\n".join(sorted(lines)) + "\n")


@pytest.fixture
def figures(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """``figures(text)``: a measured result that the end of the run shows."""
    return lambda text: record_property("figures", text)


@pytest.fixture(scope="session")
def smollm2_path() -> str:
    """SmolLM2-135M-Instruct in Q4_1: ``LLMVIZ_SMOLLM2``, else fetched as ``llmviz models`` does."""
    given = os.environ.get("LLMVIZ_SMOLLM2")
    if given:
        return given
    from llmviz import hub
    from llmviz.errors import HubError

    with FileLock(cache_dir() / "smollm2.lock"):
        try:
            return str(hub.resolve("smollm2-135m", progress=lambda fraction: True))
        except HubError as error:
            absent(str(error))


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
                # pip asks the build backend for metadata before it keeps the file; nothing is built
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

    ``tiny_model(variant="yarn")`` takes the traits from `tiny_models.VARIANTS`. The same
    traits give the same file.
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
