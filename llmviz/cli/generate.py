"""``llmviz generate``: text from a prompt, as it is sampled."""

from __future__ import annotations

import secrets
import sys
import time
from typing import Annotated, Any

import typer
from rich.text import Text

import llmviz
from llmviz.cli.devices import (
    DeviceOption,
    LayersOption,
    SplitOption,
    breakdown,
    chosen,
    shares,
)
from llmviz.cli.output import FileArg, examples, loading, open_file, stderr
from llmviz.errors import LlmvizError
from llmviz.ggml.sched import never
from llmviz.sampling import Chain, Dist, Greedy, MinP, Penalties, Sampler, Temp, TopK, TopP

EXAMPLES = examples(
    'llmviz generate smollm2-135m -p "Once upon a time"',
    'llmviz generate smollm2-135m --chat -p "Why is the sky blue?" --seed 42',
    'llmviz generate model.gguf -p "def main():" --temp 0',
    "llmviz generate model.gguf -p Hello -ngl 8 --device simulated:512",
    "cat letter.txt | llmviz generate model.gguf -p -",
)
PENALTY_LAST_N = 64

PromptOption = Annotated[
    str,
    typer.Option("--prompt", "-p", help="The text to go on from; - reads it from standard input."),
]
ContextOption = Annotated[
    int,
    typer.Option("--ctx", "-c", min=0, help="Context length; 0: what the model was trained with."),
]
ChatOption = Annotated[
    bool, typer.Option("--chat", help="Put the prompt into the model's chat template.")
]


def generate(
    file: FileArg,
    prompt: PromptOption,
    n_predict: Annotated[
        int, typer.Option("--n-predict", "-n", min=1, help="Most tokens to generate.")
    ] = 128,
    ctx: ContextOption = 4096,
    chat: ChatOption = False,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Seed of the random draw; a new one each time if not given."),
    ] = None,
    temp: Annotated[float, typer.Option(help="Temperature; 0: the likeliest token.")] = 0.8,
    top_k: Annotated[int, typer.Option(help="Keep the k likeliest; 0: all.")] = 40,
    top_p: Annotated[float, typer.Option(help="Keep the likeliest that sum to p; 1: all.")] = 0.95,
    min_p: Annotated[
        float, typer.Option(help="Keep those at least p times as likely as the best; 0: all.")
    ] = 0.05,
    repeat_penalty: Annotated[
        float, typer.Option(help=f"Penalty of the last {PENALTY_LAST_N} tokens; 1: none.")
    ] = 1.0,
    n_gpu_layers: LayersOption = 0,
    tensor_split: SplitOption = "",
    device: DeviceOption = "",
) -> None:
    """Generate text, printed as it comes. Figures follow on standard error."""
    seed = secrets.randbits(32) if seed is None else seed
    model, context = open_context(
        file,
        ctx,
        n_gpu_layers=n_gpu_layers,
        tensor_split=shares(tensor_split),
        devices=chosen(device),
    )
    text = read_prompt(model, prompt, chat)
    chain = make_chain(seed, temp, top_k, top_p, min_p, repeat_penalty)

    start = time.perf_counter()
    times: list[float] = []
    reason = ""
    for event in llmviz.generate_steps(context, text, chain, n_predict, want=never):
        if event.step != 16 or event.name not in ("token", "stop"):
            continue
        if event.name == "token":
            times.append(time.perf_counter())
        else:
            reason = event.value
        sys.stdout.write(event.about["text"])
        sys.stdout.flush()
    sys.stdout.write("\n")
    if temp > 0:
        reason += f"; seed {seed}"
    for line in (_figures(start, times, reason), *breakdown(context)):
        stderr().print(Text(line, style="dim"), soft_wrap=True)


def _figures(start: float, times: list[float], reason: str) -> str:
    text = f"{len(times)} tokens, the first after {times[0] - start:.2f} s"
    if len(times) > 1:
        text += f", then {(len(times) - 1) / (times[-1] - times[0]):.1f} a second"
    return f"{text}; stopped by {reason}"


def make_chain(
    seed: int, temp: float, top_k: int, top_p: float, min_p: float, repeat_penalty: float
) -> Chain:
    """The samplers in llama.cpp's default order; those that are switched off are left out."""
    samplers: list[Sampler] = []
    if repeat_penalty != 1.0:
        samplers.append(Penalties(PENALTY_LAST_N, repeat_penalty, 0.0, 0.0))
    if temp <= 0:
        return Chain([*samplers, Greedy()])
    return Chain([*samplers, TopK(top_k), TopP(top_p), MinP(min_p), Temp(temp), Dist(seed)])


def open_context(file: str, n_ctx: int, **params: Any) -> tuple[llmviz.Model, llmviz.Context]:
    """Load FILE with a progress bar and make a context of at most the trained length.

    `params`: more of `llmviz.load`.
    """
    path = open_file(file)
    with loading(f"loading {path.name}") as progress:
        model = llmviz.load(path, progress=progress, **params)
    trained = model.hparams.n_ctx_train
    return model, model.context(n_ctx=min(n_ctx, trained) if n_ctx and trained else n_ctx)


def read_prompt(model: llmviz.Model, prompt: str, chat: bool) -> str:
    """The prompt's text: standard input for ``-``, in the chat template where that is asked for."""
    if prompt == "-":
        prompt = sys.stdin.read()
    if not chat:
        return prompt
    if not model.vocab.chat_template:
        raise LlmvizError(
            "this model has no chat template (key tokenizer.chat_template): leave out --chat"
        )
    return model.vocab.apply_chat_template([{"role": "user", "content": prompt}])
