"""``llmviz devices``, and the options that say where layers go."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from typer.testing import CliRunner

from llmviz.cli import app
from llmviz.cli.devices import chosen, shares
from llmviz.errors import LlmvizError
from llmviz.ggml.backends.simulated import SimulatedDevice


def run(*args: str, code: int = 0) -> tuple[str, str]:
    result = CliRunner().invoke(app, args, env={"COLUMNS": "160", "TERM": "dumb"})
    assert result.exit_code == code, (result.output, result.exception)
    return result.stdout, result.stderr


def test_the_list_has_the_processor_and_says_how_to_imagine_a_device() -> None:
    out, _ = run("devices")
    assert "CPU" in out and "GiB" in out
    found = json.loads(run("devices", "--json")[0])
    assert found[0]["name"] == "CPU" and found[0]["computes"]
    if not any(d["takes_layers"] for d in found):
        assert "simulated:512" in out


def test_text_is_the_same_wherever_the_layers_are(tiny_model: Callable[..., str]) -> None:
    args = ("generate", tiny_model(n_layer=5), "-p", "hello", "-n", "6", "--seed", "3", "-c", "256")
    plain, note = run(*args)
    assert "splits" not in note
    there, note = run(
        *args, "-ngl", "4", "--device", "simulated:8,simulated:8", "--tensor-split", "3,1"
    )
    assert there == plain
    lines = note.splitlines()
    assert [line.split(":")[0] for line in lines[1:4]] == [
        "GPU0 (simulated)",
        "GPU1 (simulated)",
        "CPU",
    ]
    assert all(word in lines[1] for word in ("8.0 MiB", "weights", "KV cache", "compute"))
    assert lines[4].startswith("3 splits; each token copies ")


def test_what_does_not_fit_is_one_line(tiny_model: Callable[..., str]) -> None:
    path = tiny_model(n_layer=5, n_embd=256, n_ff=512)
    args = ("generate", path, "-p", "hello", "-ngl", "-1", "--device", "simulated:2")
    _, err = run(*args, code=1)
    assert err.startswith("error: GPU0 (simulated) has 2.0 MiB") and "would fit" in err


def test_values_of_the_options() -> None:
    assert shares("") is None and shares("3,1") == shares("3/1") == [3.0, 1.0]
    assert chosen("") is None
    found = chosen("CUDA0,simulated:4,simulated:2")
    assert found is not None and found[0] == "CUDA0"
    imagined = [d for d in found if isinstance(d, SimulatedDevice)]
    assert [(d.name, d.memory >> 20) for d in imagined] == [
        ("GPU0 (simulated)", 4),
        ("GPU1 (simulated)", 2),
    ]
    with pytest.raises(LlmvizError, match="tensor-split"):
        shares("a,b")
    with pytest.raises(LlmvizError, match="MiB"):
        chosen("simulated")
