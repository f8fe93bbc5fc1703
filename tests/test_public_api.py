"""The public names: other people's notebooks and tests rely on them."""

from __future__ import annotations

import subprocess
import sys

import pytest

import llmviz

NAMES = [
    "Batch",
    "BatchError",
    "Chain",
    "Context",
    "ContextParams",
    "Debugger",
    "DecodeError",
    "DecodeStatus",
    "DeviceMemoryError",
    "Event",
    "GGUFError",
    "HubError",
    "LlmvizError",
    "LoadCancelled",
    "Model",
    "SamplerError",
    "SimulatedDevice",
    "UnsupportedError",
    "VocabError",
    "builtin",
    "compare",
    "devices",
    "drain",
    "generate",
    "generate_steps",
    "lessons",
    "load",
    "open_gguf",
    "open_trace",
    "record_llamacpp",
    "sampling",
    "show",
]


def test_names() -> None:
    assert sorted(llmviz.__all__) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_there_and_documented(name: str) -> None:
    thing = getattr(llmviz, name)
    assert name in dir(llmviz)
    assert thing.__doc__


def test_star_import() -> None:
    names: dict[str, object] = {}
    exec("from llmviz import *", names)
    assert set(llmviz.__all__) <= set(names)


def test_plots_is_there_where_matplotlib_is() -> None:
    pytest.importorskip("matplotlib")
    assert callable(llmviz.plots.attention)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        llmviz.nothing_of_the_kind  # noqa: B018


def test_import_is_light() -> None:
    """No notebook package is loaded before a view is asked for, and no compiler before a model."""
    program = (
        "import sys, llmviz; "
        "print([n for n in ('anywidget', 'ipywidgets', 'matplotlib', 'IPython', 'numba', "
        "'llvmlite', 'huggingface_hub', 'typer', 'rich', 'jinja2', 'networkx', 'scipy', 'pandas', "
        "'cupy', 'gguf', 'xllamacpp', 'zarr') if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
