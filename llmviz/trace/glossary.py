"""What the words of the course mean, and what the nodes of a graph are, in a sentence or two each.

For people who meet a word such as "logits" or a name such as ``kq_soft_max`` for the first time;
the panel, the lessons and the docs read the same sentences. A name that is not here simply has no
sentence: nothing is guessed.
"""

from __future__ import annotations

import re

__all__ = ["NODES", "WORDS", "gloss", "marked", "word_of"]

_ROW = ("token", "feature")
_HEADS = ("token", "head", "feature")

NODES: dict[str, tuple[str, dict[int, tuple[str, ...]]]] = {
    "embd": ("each token's row of the embedding table: its meaning before any context", {2: _ROW}),
    "norm": ("every row scaled to the same size, so that the next product stays tame", {2: _ROW}),
    "attn_norm": ("the normalized rows that attention reads", {2: _ROW}),
    "Qcur": ("queries: what each token is looking for", {2: _ROW, 3: _HEADS}),
    "Kcur": ("keys: what each token offers to be found by", {2: _ROW, 3: _HEADS}),
    "Vcur": ("values: what each token hands over to those who look at it", {2: _ROW, 3: _HEADS}),
    "kq": (
        "scores: how well each query fits each key, before the mask",
        {3: ("head", "query token", "cell")},
    ),
    "kq_soft_max": (
        "attention: the share of its attention that each token gives to each cell; rows sum to 1",
        {3: ("head", "query token", "cell")},
    ),
    "kqv": ("values mixed by attention, head by head", {3: ("head", "token", "feature")}),
    "kqv_out": ("the heads' results side by side again", {2: _ROW}),
    "attn_out": ("what attention adds to each token", {2: _ROW}),
    "ffn_inp": ("the token rows with attention's part added", {2: _ROW}),
    "ffn_norm": ("the normalized rows that the feed-forward network reads", {2: _ROW}),
    "ffn_gate": (
        "the gate: which hidden features are let through",
        {2: ("token", "hidden feature")},
    ),
    "ffn_up": ("the hidden features themselves", {2: ("token", "hidden feature")}),
    "ffn_swiglu": ("hidden features times their gate", {2: ("token", "hidden feature")}),
    "ffn_out": ("what the feed-forward network adds to each token", {2: _ROW}),
    "l_out": ("the token rows as this layer leaves them", {2: _ROW}),
    "result_norm": ("the last normalized rows, of the tokens whose logits are wanted", {2: _ROW}),
    "result_output": (
        "one logit for every token of the vocabulary",
        {2: ("output", "vocabulary id")},
    ),
    "logits": ("one logit for every token of the vocabulary", {2: ("output", "vocabulary id")}),
    "inp_tokens": ("the token ids of this ubatch", {1: ("token",)}),
    "inp_pos": ("the position of each token in its sequence", {1: ("token",)}),
    "attn_inp_kq_mask": (
        "the mask: 0 where a token may look, -inf where it may not",
        {2: ("query token", "cell")},
    ),
    "attn_inp_k_idxs": ("the cache cells that the new keys are written to", {1: ("token",)}),
    "attn_inp_v_idxs": ("the places in the cache that the new values are written to", {}),
    "out_ids": ("which tokens' results are kept for the output", {1: ("output",)}),
}

WORDS: dict[str, str] = {
    "activation": (
        "A number that the model computes on the way, for this text; weights stay the same for "
        "every text."
    ),
    "alignment": (
        "A number of bytes: whatever has to lie at a round address begins at a multiple of it."
    ),
    "argmax": (
        "The place of the largest number in a list. Taking the argmax of the logits means "
        "always choosing the likeliest token."
    ),
    "attention": (
        "The step in which each token looks at earlier tokens and takes over part of what they "
        "carry."
    ),
    "backend": (
        "What does the arithmetic: the processor, or a graphics card. The same graph can run on "
        "any of them."
    ),
    "batch": (
        "The tokens that are handed to the model in one call, each with its position and its "
        "sequence."
    ),
    "block": (
        "A small group of weights, 32 or 256 of them, that share a scale and are stored together."
    ),
    "BPE": (
        "Byte pair encoding: a word is put together from small pieces by joining neighbours, "
        "always the pair that the vocabulary ranks best."
    ),
    "byte": (
        "Eight bits: a number from 0 to 255. Every file, and every text in it, is a row of bytes."
    ),
    "cache": "Results that are kept so that they need not be computed again.",
    "cell": (
        "One place in the KV cache: it holds the key and the value of one token in every layer."
    ),
    "chat template": (
        "A small program in the model's file that writes a conversation in the form the model "
        "was trained on."
    ),
    "context": (
        "The room in which a model works: its KV cache and its scratch memory. Its size is the "
        "number of tokens it can remember."
    ),
    "decode": (
        "One call of the model: a batch of tokens goes in, logits come out. In generation it "
        "adds one token at a time."
    ),
    "detokenize": "Turn tokens back into text: the inverse of tokenizing.",
    "device": (
        "A piece of hardware with memory of its own that can hold weights and compute: the "
        "processor or a graphics card."
    ),
    "dimension": "How many numbers a row has, or one axis of a tensor.",
    "embedding": (
        "The row of numbers that stands for a token: where its meaning begins, before any context."
    ),
    "entropy": (
        "How undecided a choice is: 0 when one token is certain, more the wider the probability "
        "is spread."
    ),
    "EOS": "End of sequence: a special token with which the model says that it is done.",
    "feed-forward network": (
        "The second half of a layer: it works on each token alone, widening its row, bending it "
        "and narrowing it again."
    ),
    "GGUF": (
        "The file format of llama.cpp: one file with the model's settings, its vocabulary and "
        "its weights."
    ),
    "GQA": (
        "Grouped-query attention: several heads share one set of keys and values, which makes "
        "the KV cache smaller."
    ),
    "graph": (
        "The list of operations that leads from tokens to logits, with what each one needs from "
        "the ones before."
    ),
    "greedy": "Always taking the likeliest token: no chance is involved.",
    "head": (
        "One of several attentions that run side by side in a layer; each looks for something else."
    ),
    "hyperparameters": (
        "The numbers that fix a model's shape: how many layers, how wide, how many heads."
    ),
    "inference": (
        "Using a model that is already trained: text goes in, the next token comes out, the "
        "weights do not change."
    ),
    "key": "What a token offers to be found by: the query of a later token is compared with it.",
    "KV cache": (
        "The keys and values of all tokens so far, kept so that each new token costs only its "
        "own work."
    ),
    "layer": (
        "One round of the model: attention, then the feed-forward network. Models repeat the "
        "same shape many times with other weights."
    ),
    "llama.cpp": "The widely used program that runs GGUF models; llmviz follows it step by step.",
    "logit lens": (
        "Reading the stream after an early layer as if it were the last: what would the model "
        "say now?"
    ),
    "logits": (
        "One number for each token of the vocabulary: the larger, the better it would fit next. "
        "Softmax turns them into probabilities."
    ),
    "mask": (
        "What forbids a token to look at later ones, or at another sequence: those scores "
        "become minus infinity."
    ),
    "memory map": (
        "A file that is reached like memory: the system reads a part of it when that part is "
        "looked at, and nothing before."
    ),
    "merge": "One step of BPE: two neighbouring pieces become one.",
    "min-p": "A sampler that drops tokens whose probability is below a share of the best one's.",
    "model": "The weights and the rules by which they turn tokens into logits.",
    "node": "One operation of the graph and the tensor that it computes.",
    "norm": (
        "A step that brings every row to the same size, so that numbers neither explode nor vanish."
    ),
    "offload": "Putting layers on a graphics card; n_gpu_layers says how many.",
    "offset": "How many bytes from the beginning: where something is in a file.",
    "padding": (
        "Bytes or tokens that mean nothing and only fill the room up to where something has to "
        "begin."
    ),
    "parameter": (
        "One number that training has set; a weight. SmolLM2-135M has 135 million of them."
    ),
    "penalty": (
        "A sampler that lowers the logits of tokens that were just used, so that the text "
        "repeats itself less."
    ),
    "perplexity": "How surprised a model is by a text: 1 would be no surprise at all.",
    "position": "The number of a token in its sequence, from 0.",
    "prefill": (
        "The first decode: the whole prompt goes through the model at once and fills the KV cache."
    ),
    "probability": "A number from 0 to 1; those of all tokens together make 1.",
    "prompt": "The text that the model is given to continue.",
    "quantization": (
        "Storing weights in fewer bits, in blocks that share a scale: a smaller file, a small "
        "error."
    ),
    "query": "What a token is looking for: it is compared with the keys of the tokens before.",
    "residual stream": (
        "The row of numbers of each token that runs through all layers; every layer reads it "
        "and adds to it."
    ),
    "RoPE": (
        "Rotary position embedding: queries and keys are turned by an angle that grows with the "
        "position, so that distance can be felt."
    ),
    "sampler": "One step of choosing: it sorts, cuts or reweights the candidates, or draws one.",
    "sampling": (
        "Choosing the next token by its probability instead of always taking the likeliest."
    ),
    "scale": (
        "The number by which the small integers of a block are multiplied to get its weights back."
    ),
    "scheduler": (
        "What cuts the graph into splits, gives each to a device and copies what has to cross."
    ),
    "seed": "The number from which the random numbers follow: the same seed gives the same text.",
    "sequence": (
        "One text in the batch or the cache; several can be worked on side by side without "
        "seeing each other."
    ),
    "shape": "How many numbers a tensor has along each axis.",
    "softmax": (
        "Turns any numbers into shares that are positive and sum to 1; the larger number gets "
        "by far the larger share."
    ),
    "special token": (
        "A token that is no text but a signal: a beginning, an end, a change of speaker."
    ),
    "split": "A part of the graph that runs on one device.",
    "temperature": (
        "A number that divides the logits before the draw: below 1 the choice gets safer, above "
        "1 bolder, at 0 greedy."
    ),
    "tensor": "Numbers in a shape: a row of them, a table, or a stack of tables.",
    "token": (
        "A piece of text with a number: a word, a part of one, a sign. Models read and write "
        "tokens, not letters."
    ),
    "tokenizer": (
        "What cuts text into tokens; its rules and its list of pieces come with the model."
    ),
    "top-k": "A sampler that keeps the k likeliest tokens and drops the rest.",
    "top-p": (
        "A sampler that keeps the likeliest tokens until their probabilities reach p together, "
        "and drops the rest."
    ),
    "training": (
        "How a model came by its weights: they were changed little by little until it guessed the "
        "next token of very many texts well."
    ),
    "ubatch": (
        "A micro-batch: the part of a batch that is computed at once, because scratch memory is "
        "limited."
    ),
    "UTF-8": (
        "How text is written as bytes: one byte for plain English letters, two to four for "
        "everything else."
    ),
    "value": "What a token hands over to those that look at it.",
    "vector": "A row of numbers.",
    "vocabulary": "The list of all tokens that a model knows, each with its number.",
    "weights": "The numbers that training has set; most of a model's file.",
}

# Other forms of a word, where adding an s does not make them.
_FORMS = {
    "query": ("queries",),
    "weights": ("weight",),
    "hyperparameters": ("hyperparameter",),
    "logits": ("logit",),
    "batch": ("batches",),
    "ubatch": ("ubatches", "micro-batch", "micro-batches"),
    "vocabulary": ("vocabularies",),
    "feed-forward network": ("feed-forward",),
    "decode": ("decoding", "decoded"),
    "detokenize": ("detokenized", "detokenizing"),
    "quantization": ("quantized", "quantize"),
    "penalty": ("penalties",),
    "probability": ("probabilities",),
    "memory map": ("memory-mapped", "mapped into memory"),
    "offload": ("offloaded",),
    "norm": ("normalize", "normalized"),
    "EOS": ("end of sequence",),
    "entropy": (),
    "softmax": (),
}
_WORD_OF = {
    form.casefold(): word for word in WORDS for form in (word, f"{word}s", *_FORMS.get(word, ()))
}
# Everyday words: they are looked up where somebody marks them, never found in running text.
_EVERYDAY = {
    "block",
    "cache",
    "key",
    "value",
    "scale",
    "shape",
    "split",
    "head",
    "model",
    "byte",
    "dimension",
    "merge",
    "node",
    "parameter",
    "position",
    "weights",
    "prompt",
}
_IN_TEXT = re.compile(
    r"(?<![\w-])("
    + "|".join(
        re.escape(form)
        for form in sorted(_WORD_OF, key=len, reverse=True)
        if _WORD_OF[form] not in _EVERYDAY
    )
    + r")(?![\w-])",
    re.IGNORECASE,
)


def word_of(text: str) -> str | None:
    """The word of the glossary that a text is a form of: ``"Tokens"`` gives ``"token"``."""
    return _WORD_OF.get(" ".join(text.split()).casefold())


def marked(text: str) -> list[tuple[str, str]]:
    """A text in parts, each with its meaning where it is a word of the glossary, else empty.

    Each word has its meaning where it is met first only. The parts make the text again.
    """
    out: list[tuple[str, str]] = []
    seen: set[str] = set()
    at = 0
    for found in _IN_TEXT.finditer(text):
        word = _WORD_OF[found[0].casefold()]
        if word in seen:
            continue
        seen.add(word)
        if found.start() > at:
            out.append((text[at : found.start()], ""))
        out.append((found[0], WORDS[word]))
        at = found.end()
    return [*out, (text[at:], "")] if at < len(text) else out


_SEEN_AGAIN = re.compile(r" \((?:view|reshaped|permuted|transposed|cont|copy of .*)\)")
_LAYER = re.compile(r"-\d+$")


def gloss(name: str, op: str, shape: tuple[int, ...]) -> tuple[str, tuple[str, ...]]:
    """A sentence on a node and what each axis of this shape counts; empty where unknown."""
    base = _SEEN_AGAIN.sub("", name)
    base = _LAYER.sub("", base)
    if base.startswith(("cache_k_l", "cache_v_l")):
        what = "keys" if base.startswith("cache_k") else "values"
        if op == "SET_ROWS":
            return f"the new {what} are written into this layer's part of the KV cache", ()
        return f"this layer's part of the KV cache, its {what}, seen in another shape", ()
    text, axes = NODES.get(base, ("", {}))
    if op == "ROPE" and text:
        return f"{text}, turned by an angle that tells the position", axes.get(len(shape), ())
    if _SEEN_AGAIN.search(name):
        return (f"the same numbers in another shape: {text}" if text else ""), ()
    return text, axes.get(len(shape), ())
