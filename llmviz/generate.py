"""From a prompt to text: tokenize, batch, decode, sample, piece, again. START READING HERE.

↔ examples/simple/simple.cpp

`generate_steps` is steps 8 to 16 in order, each a scope of events; `generate` drains it and keeps
the text. Steps 1 to 7 are `llmviz.load` and `model.context`.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from llmviz.batch import Batch
from llmviz.context import Context, DecodeStatus
from llmviz.errors import LlmvizError
from llmviz.events import Event, Steps, scope
from llmviz.ggml.sched import Want, never
from llmviz.sampling import Chain

__all__ = ["GenerateResult", "generate", "generate_steps"]

Prompt = str | Sequence[int] | Sequence[Mapping[str, str]]


@dataclass
class GenerateResult:
    """What a generation ended with.

    Attributes
    ----------
    prompt_tokens, tokens : list of int
        Ids of the prompt and of what was generated (an end-of-generation token included).
    text : str
        The generated text.
    stop : str
        Why it ended: ``"eog"``, ``"n_predict"`` or ``"context full"``.
    """

    prompt_tokens: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    text: str = ""
    stop: str = ""


def generate(
    ctx: Context, prompt: Prompt, chain: Chain | None = None, n_predict: int = 64
) -> Iterator[str]:
    """Continue a prompt; yields pieces of text, never half a character.

    Parameters
    ----------
    ctx : Context
        What it already holds of sequence 0 is continued.
    prompt : str, list of int, or list of {"role", "content"}
        Text, token ids, or messages for the model's chat template.
    chain : Chain or None
        How tokens are chosen; None is llama.cpp's default chain with the seed 42, so that a class
        sees the same text twice.
    n_predict : int
        Most tokens to generate; negative: until the model stops or the context is full.
    """
    for event in generate_steps(ctx, prompt, chain, n_predict, want=never):
        if event.name in ("token", "stop") and event.step == 16 and event.about["text"]:
            yield event.about["text"]


def generate_steps(
    ctx: Context,
    prompt: Prompt,
    chain: Chain | None = None,
    n_predict: int = 64,
    *,
    want: Want | None = None,
    depth: int = 0,
) -> Steps[GenerateResult]:
    """`generate` as events.

    Parameters
    ----------
    want : callable or None
        ``want(name)`` says which graph nodes become events; None means all.

    Raises
    ------
    LlmvizError
        The prompt gives no token, or does not fit into the context.
    """
    chain = Chain.default(seed=42) if chain is None else chain
    result = GenerateResult()
    text = yield from scope("prompt", 8, depth, _prompt(ctx, prompt, depth + 1))
    ids = yield from scope("tokenize", 9, depth, _tokenize(ctx, text, depth + 1))
    result.prompt_tokens = ids
    utf8 = codecs.getincrementaldecoder("utf-8")("replace")
    while True:
        batches = yield from scope("batch", 10, depth, _batches(ctx, ids, depth + 1))
        status = DecodeStatus.OK
        for batch in batches:
            status = yield from ctx.decode_steps(batch, want, depth=depth)
            if status != DecodeStatus.OK:
                break
        if status == DecodeStatus.ABORTED:
            result.stop = "aborted"
        elif status == DecodeStatus.NO_KV_SLOT:
            result.stop = "context full"
        else:
            token = yield from scope("sample", 15, depth, _sample(ctx, chain, want, depth + 1))
            yield from scope(
                "accept", 16, depth, _accept(ctx, token, utf8, result, n_predict, depth + 1)
            )
            ids = result.tokens[-1:]
        if result.stop:
            rest = utf8.decode(b"", final=True)
            result.text += rest
            yield Event("data", "stop", depth, 16, result.stop, {"text": rest})
            return result


def _prompt(ctx: Context, prompt: Prompt, depth: int) -> Steps[str | list[int]]:
    """Step 8: the text that is tokenized; messages go through the chat template."""
    text: Any = prompt
    if not isinstance(prompt, str):
        parts: list[Any] = list(prompt)
        if parts and all(isinstance(p, Mapping) for p in parts):
            text = ctx.model.vocab.apply_chat_template(parts, add_generation_prompt=True)
        else:
            text = [int(p) for p in parts]
    event = Event("data", "prompt", depth, 8, text)
    yield event
    return event.value


def _tokenize(ctx: Context, text: str | list[int], depth: int) -> Steps[list[int]]:
    """Step 9: token ids; BOS and the like only where sequence 0 begins."""
    if isinstance(text, str):
        first = ctx.memory.seq_pos_max(0) < 0
        ids = yield from ctx.model.vocab.tokenize_steps(
            text, add_special=first, parse_special=True, depth=depth
        )
    else:
        ids = list(text)
    event = Event("data", "tokens", depth, 9, ids)
    yield event
    ids = list(event.value)
    used = ctx.memory.seq_pos_max(0) + 1
    if not ids:
        raise LlmvizError(
            "the prompt gives no token: write some text, or choose a model that adds BOS"
        )
    if used + len(ids) > ctx.n_ctx_seq:
        raise LlmvizError(
            f"the prompt has {len(ids)} tokens and {used} are in the context, which holds "
            f"{ctx.n_ctx_seq}: shorten it or make the context with a larger n_ctx"
        )
    return ids


def _batches(ctx: Context, ids: list[int], depth: int) -> Steps[list[Batch]]:
    """Step 10: the tokens in batches of at most n_batch."""
    batches = []
    for start in range(0, len(ids), ctx.n_batch):
        event = Event("data", "batch", depth, 10, Batch.get_one(ids[start : start + ctx.n_batch]))
        yield event
        batches.append(event.value)
    return batches


def _sample(ctx: Context, chain: Chain, want: Want | None, depth: int) -> Steps[int]:
    """Step 15: one token from the last row of logits."""
    if want is never:
        return chain.sample(ctx, -1)
    return (yield from chain.sample_steps(ctx, -1, depth=depth))


def _accept(
    ctx: Context,
    token: int,
    utf8: codecs.IncrementalDecoder,
    result: GenerateResult,
    n_predict: int,
    depth: int,
) -> Steps[int]:
    """Step 16: end of generation? else the token's bytes join the text once they are whole
    characters.
    """
    vocab = ctx.model.vocab
    eog = vocab.is_eog(token)
    piece = b"" if eog else vocab.token_to_piece(token)
    text = utf8.decode(piece)
    result.tokens.append(token)
    result.text += text
    if eog:
        result.stop = "eog"
    elif len(result.tokens) >= n_predict >= 0:
        result.stop = "n_predict"
    yield Event("data", "token", depth, 16, token, {"piece": piece, "text": text, "eog": eog})
    return token
