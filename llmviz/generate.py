"""From a prompt to text: tokenize, batch, decode, sample, piece, again. START READING HERE.

↔ examples/simple/simple.cpp

`Generation.steps` is steps 8 to 16 in order, each a scope of events; `generate` drains it and keeps
the text. Steps 1 to 7 are `llmviz.load` and `model.context`.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import index
from typing import Any

from llmviz.batch import Batch
from llmviz.context import Checkpoint, Context, DecodeStatus
from llmviz.errors import LlmvizError
from llmviz.events import Event, Steps, scope
from llmviz.ggml.sched import Want, never
from llmviz.sampling import Chain

__all__ = ["GenerateResult", "Generation", "SavedGeneration", "generate", "generate_steps"]

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
        Why it ended: ``"eog"``, ``"n_predict"``, ``"context full"`` or ``"aborted"``.
    """

    prompt_tokens: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    text: str = ""
    stop: str = ""


@dataclass(frozen=True)
class SavedGeneration:
    """A generation at a ubatch's start; opaque, see `Generation.save`."""

    context: Checkpoint
    chain: Chain
    result: GenerateResult
    utf8: Any
    batches: list[Batch]


def generate(
    ctx: Context, prompt: Prompt, chain: Chain | None = None, n_predict: int = 64
) -> Iterator[str]:
    """Continue a prompt; yields pieces of text, never half a character.

    Parameters
    ----------
    ctx : Context
        What it already holds of sequence 0 is continued. The last token of a generation is not in
        it: nothing came after it that would have needed it.
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
    """`generate` as events; see `Generation.steps`."""
    return (yield from Generation(ctx, prompt, chain, n_predict).steps(want, depth=depth))


class Generation:
    """One run from a prompt; parameters as `generate`.

    Attributes
    ----------
    chain : Chain
    result : GenerateResult
        What there is so far.
    """

    def __init__(
        self, ctx: Context, prompt: Prompt, chain: Chain | None = None, n_predict: int = 64
    ) -> None:
        self.ctx = ctx
        self.prompt = prompt
        self.chain = Chain.default(seed=42) if chain is None else chain
        self.n_predict = n_predict
        self.result = GenerateResult()
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._batches: list[Batch] = []  # not decoded yet; the first is being decoded

    def steps(self, want: Want | None = None, *, depth: int = 0) -> Steps[GenerateResult]:
        """The whole run as events.

        Parameters
        ----------
        want : callable or None
            ``want(name)`` says which graph nodes become events; None means all.

        Raises
        ------
        LlmvizError
            The prompt gives no token, or does not fit into the context.
        """
        text = yield from scope("prompt", 8, depth, self._prompt(depth + 1))
        ids = yield from scope("tokenize", 9, depth, self._tokenize(text, depth + 1))
        self.result.prompt_tokens = ids
        yield from scope("batch", 10, depth, self._batch(ids, depth + 1))
        return (yield from self._run(want, depth, None))

    def _run(
        self, want: Want | None, depth: int, resumed: Checkpoint | None
    ) -> Steps[GenerateResult]:
        """Steps 11 to 16 until something stops it; begins with the batches that wait."""
        result = self.result
        while True:
            status = DecodeStatus.OK
            while self._batches and status == DecodeStatus.OK:
                if resumed is None:
                    decoding = self.ctx.decode_steps(self._batches[0], want, depth=depth)
                else:
                    decoding = self.ctx.resume_steps(resumed, want, depth=depth)
                    resumed = None
                status = yield from decoding
                self._batches.pop(0)
            if status == DecodeStatus.ABORTED:
                result.stop = "aborted"
            elif status == DecodeStatus.NO_KV_SLOT:
                result.stop = "context full"
            elif self.n_predict == 0:  # the prompt is read, nothing is generated
                result.stop = "n_predict"
            else:
                token = yield from scope("sample", 15, depth, self._sample(want, depth + 1))
                yield from scope("accept", 16, depth, self._accept(token, depth + 1))
            if result.stop:
                rest = self._utf8.decode(b"", final=True)
                result.text += rest
                yield Event("data", "stop", depth, 16, result.stop, {"text": rest})
                return result
            yield from scope("batch", 10, depth, self._batch(result.tokens[-1:], depth + 1))

    # one step each

    def _prompt(self, depth: int) -> Steps[str | list[int]]:
        """Step 8: the text that is tokenized; messages go through the chat template."""
        text: Any = self.prompt
        if not isinstance(text, str):
            parts = _parts(self.prompt)
            text = self._chat(parts) if parts and isinstance(parts[0], Mapping) else parts
        event = Event("data", "prompt", depth, 8, text)
        yield event
        return event.value

    def _chat(self, messages: list[Any]) -> str:
        """The messages as the model's template writes them."""
        vocab = self.ctx.model.vocab
        text = vocab.apply_chat_template(messages, add_generation_prompt=True)
        # a template may begin with BOS, which tokenizing adds: it must not stand there twice
        return text.removeprefix(vocab.tokens[vocab.bos]) if vocab.add_bos else text

    def _tokenize(self, text: str | list[int], depth: int) -> Steps[list[int]]:
        """Step 9: token ids; BOS and the like only where sequence 0 begins."""
        used = self.ctx.memory.cells[0].n_used  # sequence 0 lives in the first stream
        if isinstance(text, str):
            vocab = self.ctx.model.vocab
            # a chat template may have written BOS itself
            written = vocab.bos >= 0 and text.startswith(vocab.token_text(vocab.bos))
            add_special = self.ctx.memory.seq_pos_max(0) < 0 and (
                isinstance(self.prompt, str) or not written
            )
            ids = yield from vocab.tokenize_steps(
                text, add_special=add_special, parse_special=True, depth=depth
            )
        else:
            ids = list(text)
        event = Event("data", "tokens", depth, 9, ids)
        yield event
        ids = list(event.value)
        if not ids:
            raise LlmvizError(
                "the prompt gives no token: write some text, or choose a model that adds BOS"
            )
        if used + len(ids) > self.ctx.n_ctx_seq:
            raise LlmvizError(
                f"the prompt has {len(ids)} tokens and {used} are in the context, which holds "
                f"{self.ctx.n_ctx_seq}: shorten it or make the context with a larger n_ctx"
            )
        return ids

    def _batch(self, ids: list[int], depth: int) -> Steps[None]:
        """Step 10: the tokens in batches of at most n_batch."""
        for start in range(0, len(ids), self.ctx.n_batch):
            batch = Batch.get_one(ids[start : start + self.ctx.n_batch])
            event = Event("data", "batch", depth, 10, batch)
            yield event
            self._batches.append(event.value)

    def _sample(self, want: Want | None, depth: int) -> Steps[int]:
        """Step 15: one token from the last row of logits."""
        if want is never:
            return self.chain.sample(self.ctx, -1)
        return (yield from self.chain.sample_steps(self.ctx, -1, depth=depth))

    def _accept(self, token: int, depth: int) -> Steps[int]:
        """Step 16: end of generation? else the token's bytes join the text as whole characters."""
        vocab, result = self.ctx.model.vocab, self.result
        eog = vocab.is_eog(token)
        piece = b"" if eog else vocab.token_to_piece(token)
        text = self._utf8.decode(piece)
        result.tokens.append(token)
        result.text += text
        if eog:
            result.stop = "eog"
        elif len(result.tokens) >= self.n_predict >= 0:
            result.stop = "n_predict"
        yield Event("data", "token", depth, 16, token, {"piece": piece, "text": text, "eog": eog})
        return token

    # coming back

    def save(self) -> SavedGeneration:
        """The state at a ubatch's start; call it at the enter event of ``process_ubatch``."""
        return SavedGeneration(
            self.ctx.checkpoint(),
            self.chain.clone(),
            self._copy_result(self.result),
            self._utf8.getstate(),
            list(self._batches),
        )

    def resume(
        self,
        saved: SavedGeneration,
        newer: Sequence[SavedGeneration] = (),
        want: Want | None = None,
        *,
        depth: int = 0,
    ) -> Steps[GenerateResult]:
        """Come back to a saved state and go on; the first event is ``process_ubatch``'s enter.

        An earlier generator of this run must be closed before.

        Parameters
        ----------
        saved : SavedGeneration
        newer : sequence of SavedGeneration
            Those saved after it, newest first.
        """
        self.ctx.rewind([s.context for s in newer], saved.context)
        self.chain = saved.chain.clone()
        self.result = self._copy_result(saved.result)
        self._utf8.setstate(saved.utf8)
        self._batches = list(saved.batches)
        return self._run(want, depth, saved.context)

    @staticmethod
    def _copy_result(result: GenerateResult) -> GenerateResult:
        return replace(result, prompt_tokens=list(result.prompt_tokens), tokens=list(result.tokens))


def _parts(prompt: Any) -> list[Any]:
    """Messages, or token ids as int; an error for what is neither."""
    try:
        parts = list(prompt)
        if isinstance(prompt, (bytes, Mapping)):
            raise TypeError
        if parts and all(isinstance(p, Mapping) for p in parts):
            return parts
        return [index(p) for p in parts]
    except TypeError:
        raise LlmvizError(
            f"the prompt is {prompt!r:.80}: give text, a list of token ids, or a list of messages "
            '{"role": ..., "content": ...}'
        ) from None
