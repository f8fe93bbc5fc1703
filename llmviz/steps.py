"""The sixteen steps from a file to text: number, title, what happens, llama.cpp's functions, our
source, events.

The text is for a newcomer; the panel shows it while the step runs. ↔ src/llama.cpp, src/llama-
context.cpp
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["STEPS", "Step", "step_of"]


@dataclass(frozen=True, slots=True)
class Step:
    """One step.

    Attributes
    ----------
    number : int
        1..16.
    title : str
    explanation : str
        One paragraph for somebody who sees it for the first time.
    functions : tuple of str
        llama.cpp's functions that do this.
    source : str
        Our module and function.
    events : tuple of str
        Names of the scopes and events that belong to it.
    """

    number: int
    title: str
    explanation: str
    functions: tuple[str, ...]
    source: str
    events: tuple[str, ...]


STEPS: tuple[Step, ...] = (
    Step(
        1,
        "Backends",
        "Before anything is read, the engine asks what it can compute with: the processor always, "
        "graphics cards where a library for them is installed. Each answer is a device with a "
        "name and some memory. Later every tensor lives on one of them.",
        ("ggml_backend_load_all", "ggml_backend_dev_count"),
        "llmviz.ggml.backends.backend.devices_steps",
        ("backends",),
    ),
    Step(
        2,
        "Open the file",
        "A GGUF file begins with a header: four letters, a version, and two counts. Then come "
        "key-value pairs that describe the model, and one entry per tensor with its name, shape, "
        "type and place. The weights follow after that and are not read yet: the file is only "
        "mapped into memory, so even a huge one opens at once.",
        ("gguf_init_from_file", "llama_model_loader::llama_model_loader"),
        "llmviz.gguf.open_steps",
        ("gguf_init_from_file", "magic", "version", "n_tensors", "n_kv", "weights_map"),
    ),
    Step(
        3,
        "Architecture",
        "One key, general.architecture, says which family the model belongs to. It decides which "
        "hyperparameters and tensors must be there and how they are wired together. An unknown "
        "family cannot be run, however well the rest of the file reads.",
        ("llm_arch_from_string", "llama_model_create"),
        "llmviz.model.arch.get_arch",
        ("llm_arch_from_string", "general.architecture"),
    ),
    Step(
        4,
        "Hyperparameters",
        "The numbers that fix the model's shape: how many layers, how wide, how many attention "
        "heads, how positions are encoded. Some are one number for all layers, some differ from "
        "layer to layer; some are missing in the file and follow from others. Each remembers "
        "where it came from.",
        ("llama_model::load_hparams", "llama_model_loader::get_key_or_arr"),
        "llmviz.model.hparams.load_hparams_steps",
        ("load_hparams",),
    ),
    Step(
        5,
        "Vocabulary",
        "A model does not see letters but tokens: numbered pieces of text. The file brings the "
        "list of pieces, the rules for cutting text into them, and the ids with a special "
        "meaning, such as the beginning and the end of a text.",
        ("llama_vocab::impl::load", "llama_model::load_vocab"),
        "llmviz.vocab.Vocab.load_steps",
        (
            "load_vocab",
            "tokenizer",
            "vocab_tokens",
            "token_attrs",
            "special_tokens",
            "eog_ids",
            "vocab_flags",
        ),
    ),
    Step(
        6,
        "Tensors",
        "First every weight the architecture needs is declared and its shape compared with the "
        "file's; then the data is read, or mapped into memory. Most weights are quantized: "
        "groups of numbers share a scale and are stored in a few bits each. They stay so where "
        "there is a kernel that multiplies with them; else they are turned back into ordinary "
        "numbers.",
        ("llama_model::load_tensors", "llama_model_loader::load_all_data"),
        "llmviz.model.tensors.TensorLoader",
        ("load_tensors", "create_tensors", "load_all_data", "load_mode", "layer_devices"),
    ),
    Step(
        7,
        "Context",
        "A model is only weights; to use it, it needs room to work. The context fixes how many "
        "tokens it can remember, makes the cache for their keys and values, and builds the "
        "largest graphs once to find out how much memory computing takes.",
        ("llama_init_from_model", "llama_context::sched_reserve"),
        "llmviz.context.context_steps",
        ("llama_init_from_model", "kv_cache", "reserve_prefill", "reserve_decode"),
    ),
    Step(
        8,
        "Prompt",
        "The text to continue. A chat model expects its conversation in a fixed form, with marks "
        "for who is speaking; the file's chat template writes messages in that form.",
        ("llama_chat_apply_template",),
        "llmviz.generate",
        ("prompt",),
    ),
    Step(
        9,
        "Tokenize",
        "The prompt is cut into tokens. Special tokens are found first, the rest is split into "
        "words, and each word is put together from small pieces by joining neighbours, always the "
        "pair the vocabulary ranks best, until no pair is left to join.",
        ("llama_tokenize", "llama_vocab::impl::tokenize"),
        "llmviz.vocab.Vocab.tokenize_steps",
        ("tokenize", "special_partition", "pre_tokenize", "merge", "byte_fallback", "tokens"),
    ),
    Step(
        10,
        "Batch",
        "The tokens are handed to the model in a batch: each with its position, the sequence it "
        "belongs to, and a mark where the model's prediction is wanted. What is left out is "
        "filled in: positions continue where the sequence ended, and only the last token gets the "
        "mark.",
        ("llama_batch_get_one", "llama_batch_allocr::init"),
        "llmviz.batch.BatchAllocr",
        ("batch", "balloc_init"),
    ),
    Step(
        11,
        "Decode",
        "The batch goes to the model. This is the outer loop: check the batch, make room for it, "
        "compute it piece by piece, keep the results. Its return code says whether all went well, "
        "whether the memory is full, or whether somebody stopped it.",
        ("llama_decode", "llama_context::decode"),
        "llmviz.context.Context.decode_steps",
        ("decode",),
    ),
    Step(
        12,
        "Micro-batches and slots",
        "A long batch is cut into micro-batches (ubatches) that fit the compute memory. For all "
        "of them free cells in the KV cache are found before the first one runs: either "
        "everything fits, or nothing is touched.",
        ("llama_kv_cache::init_batch", "llama_kv_cache::find_slot"),
        "llmviz.memory.kv_cache.KVCache.init_batch",
        ("init_batch", "ubatches", "slots", "no_slot"),
    ),
    Step(
        13,
        "Compute the graph",
        "The heart of it. The model is a graph of about a thousand small operations: look up "
        "embeddings, then in every layer normalize, let tokens attend to earlier ones through the "
        "KV cache, and pass each through a feed-forward network. If the last graph has the same "
        "shape it is used again, only the inputs change.",
        (
            "llama_context::process_ubatch",
            "llm_graph_result::set_inputs",
            "ggml_backend_sched_graph_compute",
        ),
        "llmviz.ggml.sched.Sched.compute",
        (
            "process_ubatch",
            "kv_cells",
            "build_graph",
            "can_reuse",
            "set_inputs",
            "graph_compute",
            "layer-*",
        ),
    ),
    Step(
        14,
        "Logits",
        "For every marked token the last layer gives one number per vocabulary entry: the logits. "
        "The higher, the more the model expects that token next. Unmarked tokens get no row; "
        "their work lives on in the KV cache.",
        ("llama_get_logits_ith", "llama_context::output_reserve"),
        "llmviz.outputs.Outputs",
        ("output", "output_ids", "logits"),
    ),
    Step(
        15,
        "Sample",
        "A chain of samplers turns the logits into one token: some push down what was said "
        "already, some cut away unlikely candidates, the temperature makes the choice bolder or "
        "more careful, and the last one draws. With the same seed the same token comes out.",
        ("llama_sampler_sample", "llama_sampler_chain_apply"),
        "llmviz.sampling.sampler.Chain.apply_steps",
        (
            "sample",
            "penalties",
            "top_k",
            "top_p",
            "min_p",
            "temp",
            "dist",
            "greedy",
            "logit_bias",
            "selected",
        ),
    ),
    Step(
        16,
        "Text, and again",
        "The token is looked up in the vocabulary and its bytes join the text, once they are a "
        "whole character. If it marks the end of the answer, or the limit or the context is "
        "reached, generation stops; otherwise the token becomes the next batch.",
        ("llama_vocab_is_eog", "llama_token_to_piece"),
        "llmviz.generate",
        ("accept", "token", "stop"),
    ),
)


def step_of(number: int) -> Step:
    """The step with this number, 1..16."""
    if not 1 <= number <= len(STEPS):
        raise IndexError(f"step {number}: there are steps 1..{len(STEPS)}")
    return STEPS[number - 1]
