"""The ``llmviz`` command: what each subcommand prints, and how it fails."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import llmviz
from llmviz import hub
from llmviz.cli import app, generate
from llmviz.cli.output import human_bytes, write_json
from llmviz.errors import LlmvizError

COMMANDS = ("inspect", "tokenize", "generate", "trace", "parity", "devices", "models", "lab")


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "PY_COLORS", "CLICOLOR_FORCE", "GITHUB_ACTIONS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "dumb")


@pytest.fixture
def model(tiny_model: Callable[..., str]) -> str:
    return tiny_model()


def run(*args: str, code: int = 0, stdin: str | bytes | None = None) -> str:
    result = CliRunner().invoke(app, args, input=stdin)
    assert result.exit_code == code, (result.output, result.exception)
    return result.stdout


def error(*args: str) -> str:
    """What a command that fails on purpose prints: one line, no traceback."""
    result = CliRunner().invoke(app, args)
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.stderr
    return result.stderr


# -- all of them ----------------------------------------------------------------------------------


def test_help_names_the_commands() -> None:
    text = run("--help")
    assert all(name in text for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_has_examples(name: str) -> None:
    text = run(name, "--help")
    assert f"llmviz {name}" in text.partition("Examples")[2]


def test_version() -> None:
    assert run("--version") == f"llmviz {llmviz.__version__}\n"


def test_module_runs() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "llmviz", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"llmviz {llmviz.__version__}\n"


@pytest.mark.parametrize("name", ["inspect", "parity"])
def test_a_missing_file_is_one_red_line(name: str) -> None:
    assert "no such file: 'nothing.gguf'" in error(name, "nothing.gguf")


def test_a_damaged_file_names_the_place(tmp_path: Path) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(b"GGUF\x03\x00\x00")
    assert "byte offset" in error("inspect", str(path))
    assert "byte offset" in error("tokenize", str(path), "x")
    assert "byte offset" in error("generate", str(path), "-p", "x")


def test_errors_are_red_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    result = CliRunner().invoke(app, ["inspect", "nothing.gguf"])
    assert "\x1b[31m" in result.stderr


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_ctrl_c_is_quiet(model: str) -> None:
    endless = ["-p", "1, 2, 3, 4, 5,", "--temp", "0", "-n", "100000"]  # it goes on counting
    process = subprocess.Popen(
        [sys.executable, "-m", "llmviz", "generate", model, *endless],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # a shell that runs the tests in the background has them ignore Ctrl-C
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    process.stdout.read(1)  # it is generating
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in stderr and b"Aborted" not in stderr


def test_json_has_no_nan(capsys: pytest.CaptureFixture[str]) -> None:
    write_json({"a": [float("nan"), np.float32(1.5)], "b": np.arange(2), "c": -np.inf})
    assert json.loads(capsys.readouterr().out) == {"a": ["nan", 1.5], "b": [0, 1], "c": "-inf"}


def test_human_bytes() -> None:
    assert [human_bytes(n) for n in (0, 1023, 1024, 98_362_432, 1 << 40)] == [
        "0 B", "1023 B", "1.0 KiB", "93.8 MiB", "1024.0 GiB",
    ]  # fmt: skip


# -- inspect --------------------------------------------------------------------------------------


def test_inspect(model: str) -> None:
    text = run("inspect", model)
    with llmviz.open_gguf(model) as gguf:
        assert all(key in text for key in gguf.kv)
        for name, info in gguf.tensor_infos.items():
            assert re.search(rf"{re.escape(name)} .*{info.nbytes:,}", text)
    assert re.search(r"n_embd +\d+ +llama\.embedding_length", text)
    assert "…" not in re.sub(r"… [\d,]+ more", "", text)  # nothing cut without saying so


def test_inspect_json(model: str) -> None:
    document = json.loads(run("inspect", model, "--json"))
    with llmviz.open_gguf(model) as gguf:
        assert document["version"] == gguf.version
        assert document["data_offset"] == gguf.data_offset
        assert list(document["kv"]) == list(gguf.kv)
        tokens = document["kv"]["tokenizer.ggml.tokens"]
        assert tokens["value"] == list(gguf.kv["tokenizer.ggml.tokens"])
        assert [t["name"] for t in document["tensors"]] == list(gguf.tensor_infos)
        assert [t["offset"] for t in document["tensors"]] == [
            info.abs_offset for info in gguf.tensor_infos.values()
        ]
    assert document["hparams"]["n_layer"]["from"] == "llama.block_count"
    assert document["hparams_error"] is None


def test_inspect_of_an_unknown_architecture_still_shows_the_file(
    tmp_path: Path, model: str
) -> None:
    path = tmp_path / "other.gguf"
    data = Path(model).read_bytes()
    path.write_bytes(data.replace(b"\x05\0\0\0\0\0\0\0llama", b"\x05\0\0\0\0\0\0\0gadus", 1))
    text = run("inspect", str(path))
    assert "No hyperparameters: unsupported architecture" in text
    assert "token_embd.weight" in text


def test_inspect_reads_no_weights(tmp_path: Path, smollm2_path: str) -> None:
    start = time.perf_counter()
    document = json.loads(run("inspect", smollm2_path, "--json"))
    assert time.perf_counter() - start < 10
    assert len(document["tensors"]) == 272


# -- tokenize -------------------------------------------------------------------------------------


def test_tokenize(model: str) -> None:
    vocab = llmviz.load(model, vocab_only=True).vocab
    ids = vocab.tokenize("The cat 🙂")
    text = run("tokenize", model, "The cat 🙂")
    assert f"{len(ids)} tokens" in text
    document = json.loads(run("tokenize", model, "The cat 🙂", "--json"))
    assert [row["id"] for row in document["tokens"]] == ids
    assert all(re.search(rf"^\d+ +{row['id']} ", text, re.M) for row in document["tokens"])
    raw = bytes.fromhex("".join(row["bytes"] for row in document["tokens"][1:]))
    assert raw.decode().strip() == "The cat 🙂"


def test_tokenize_options(smollm2_path: str) -> None:
    text = "<|im_start|>user"

    def ids(*options: str) -> list[int]:
        rows = json.loads(run("tokenize", smollm2_path, text, "--json", *options))["tokens"]
        return [row["id"] for row in rows]

    assert ids("--parse-special")[0] == 1
    assert len(ids()) > len(ids("--parse-special"))


def test_tokenize_no_special(model: str) -> None:
    rows = json.loads(run("tokenize", model, "The cat", "--json"))["tokens"]
    without = json.loads(run("tokenize", model, "The cat", "--json", "--no-special"))["tokens"]
    assert rows[1:] == without  # this vocabulary adds BOS
    assert rows[0]["special"]


def test_tokenize_steps(smollm2_path: str) -> None:
    text = run("tokenize", smollm2_path, "Hello world", "--steps")
    assert re.search(r"pre_tokenize +'Hello' +' world'", text)
    assert re.search(r"merge +'H' \+ 'ello' = 'Hello', rank \d+, token 19556", text)
    document = json.loads(run("tokenize", smollm2_path, "Hello world", "--steps", "--json"))
    assert {step["name"] for step in document["steps"]} >= {"pre_tokenize", "merge"}


def test_tokenize_standard_input(model: str) -> None:
    given = json.loads(run("tokenize", model, "-", "--json", stdin=b"The cat"))
    assert given == json.loads(run("tokenize", model, "The cat", "--json"))


# -- generate -------------------------------------------------------------------------------------


def test_generate_is_the_librarys_text(model: str) -> None:
    args = ("generate", model, "-p", "The cat", "-n", "8", "--seed", "3")
    ctx = llmviz.load(model).context(n_ctx=128)
    chain = generate.make_chain(3, 0.8, 40, 0.95, 0.05, 1.0)
    expected = "".join(llmviz.generate(ctx, "The cat", chain=chain, n_predict=8))
    assert run(*args, "--ctx", "128") == expected + "\n"
    result = CliRunner().invoke(app, args)
    assert re.search(r"8 tokens, the first after .*n_predict; seed 3", result.stderr)


def test_generate_greedy(model: str) -> None:
    args = ("generate", model, "-p", "The cat", "-n", "6")
    assert run(*args, "--temp", "0") == run(*args, "--temp", "0", "--seed", "9")


def test_chain_is_llama_cpps_default_order() -> None:
    def names(*settings: Any) -> list[str]:
        return [sampler.name for sampler in generate.make_chain(*settings).samplers]

    assert names(1, 0.8, 40, 0.95, 0.05, 1.0) == ["top-k", "top-p", "min-p", "temp", "dist"]
    assert names(1, 0.0, 40, 0.95, 0.05, 1.1) == ["penalties", "greedy"]


def test_generate_reads_the_prompt(model: str) -> None:
    args = ("generate", model, "-n", "6", "--temp", "0", "-p")
    assert run(*args, "-", stdin="The cat") == run(*args, "The cat")


def test_generate_chat(tiny_model: Callable[..., str]) -> None:
    bpe = tiny_model(vocab="bpe")
    args = ("generate", bpe, "-p", "The cat", "-n", "6", "--temp", "0")
    ctx = llmviz.load(bpe).context(n_ctx=128)
    chain = generate.make_chain(0, 0, 0, 1, 0, 1.0)
    messages = [{"role": "user", "content": "The cat"}]
    expected = "".join(llmviz.generate(ctx, messages, chain=chain, n_predict=6))
    assert run(*args, "--chat") == expected + "\n"


def test_generate_chat_without_a_template(model: str) -> None:
    assert "has no chat template" in error("generate", model, "-p", "x", "--chat")


def test_generate_refuses_a_prompt_that_does_not_fit(model: str) -> None:
    assert "tokens" in error("generate", model, "-p", "The cat sat. " * 400, "--ctx", "256")


# -- trace ----------------------------------------------------------------------------------------


def nodes(model: str, prompt: str) -> list[tuple[str, float]]:
    loaded = llmviz.load(model)
    ctx = loaded.context(n_ctx=512)
    batch = llmviz.Batch.get_one(loaded.vocab.tokenize(prompt, parse_special=True))
    return [
        (event.name, float(np.sum(event.value, dtype=np.float64)))
        for event in ctx.decode_steps(batch)
        if event.kind == "node"
    ]


def test_trace_jsonl_is_every_node(model: str) -> None:
    lines = [json.loads(x) for x in run("trace", model, "-p", "The cat", "--jsonl").splitlines()]
    assert [(x["name"], x["sum"]) for x in lines] == nodes(model, "The cat")
    last = lines[-1]
    assert last["name"] == "result_output" and last["op"] == "MUL_MAT" and len(last["ne"]) == 4


def test_trace_lines(model: str) -> None:
    lines = run("trace", model, "-p", "The cat").splitlines()
    expected = nodes(model, "The cat")
    assert len(lines) == len(expected)
    for line, (name, total) in zip(lines, expected, strict=True):
        assert line.lstrip().startswith(f"{name} = (")
        assert line.endswith(f"sum {total:.6f}")


def test_trace_filter_and_values(model: str) -> None:
    args = ("trace", model, "-p", "The cat", "--filter", "^kq_soft_max-0$")
    (line,) = [json.loads(x) for x in run(*args, "--jsonl", "--values").splitlines()]
    assert np.allclose(np.sum(line["values"], axis=-1), 1.0)
    assert "..." in run(*args, "--values")
    assert "no regular expression" in error("trace", model, "-p", "x", "--filter", "(")


# -- parity ---------------------------------------------------------------------------------------


def test_parity(model: str, llamacpp: ModuleType) -> None:
    text = run("parity", model, "-p", "The cat sat")
    assert "every node is within" in text and "the same next token" in text
    document = json.loads(run("parity", model, "-p", "The cat sat", "--json"))
    assert document["first_over_tolerance"] is None and document["difference"] is None
    assert document["tolerance"] == 1e-4
    assert document["nodes"] == len(document["errors"]) > 50
    assert document["logits_error"] < 1e-5


def test_parity_fails_over_the_tolerance(model: str, llamacpp: ModuleType) -> None:
    assert "first node over" in run("parity", model, "--tolerance", "0", code=1)


def test_parity_needs_llama_cpp(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from llmviz import reference

    monkeypatch.setattr(reference, "available", lambda: False)
    monkeypatch.setattr(reference, "unavailable_reason", lambda: "no wheel")
    assert "llama.cpp cannot be loaded: no wheel" in error("parity", model)


# -- models ---------------------------------------------------------------------------------------


def test_models(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LLMVIZ_CACHE", str(tmp_path))
    text = run("models")
    assert "smollm2-135m" in text and "Gemma Terms of Use" in text and str(tmp_path) in text
    assert run("models", "list") == text
    listed: list[dict[str, Any]] = json.loads(run("models", "list", "--json"))
    assert [m["name"] for m in listed] == list(hub.KNOWN)
    assert listed[0]["runs"]
    assert json.loads(run("models", "--json")) == listed


def test_models_fetch(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "resolve", lambda ref: Path(f"/cache/{ref}.gguf"))
    assert run("models", "fetch", "smollm2-135m") == "/cache/smollm2-135m.gguf\n"


def test_models_fetch_fails_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(ref: str) -> Path:
        raise LlmvizError("no network")

    monkeypatch.setattr(hub, "resolve", offline)
    assert "no network" in error("models", "fetch", "smollm2-135m")


# -- lab ------------------------------------------------------------------------------------------


def test_lab_without_jupyterlab(monkeypatch: pytest.MonkeyPatch) -> None:
    from llmviz.cli import lab

    monkeypatch.setattr(lab.importlib.util, "find_spec", lambda name: None)
    assert "llmviz-debugger[lab]" in error("lab")


def test_lab_asks_nobody_about_news(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from llmviz.cli import lab

    settings = pytest.importorskip("jupyterlab_server.settings_utils")
    started: list[list[str]] = []
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", str(tmp_path))
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path / "own"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    monkeypatch.setattr(lab.os, "execv", lambda file, arguments: None)
    monkeypatch.setattr(lab.subprocess, "call", lambda arguments: started.append(arguments) or 0)
    with pytest.raises(typer.Exit):
        lab.lab(SimpleNamespace(args=["--no-browser"]))
    assert started[0][-1] == "--no-browser"
    assert os.environ["JUPYTER_CONFIG_PATH"].split(os.pathsep)[1:] == [str(tmp_path)]
    overrides, error = settings._get_overrides(str(tmp_path))
    assert overrides["@jupyterlab/apputils-extension:notification"]["fetchNews"] == "false"
    assert not error
