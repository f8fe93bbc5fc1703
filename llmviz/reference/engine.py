"""A model and a context of llama.cpp: decode, nodes, logits, memory. ↔ include/llama.h

Where llama.cpp would abort the process (a batch larger than ``n_batch``, a token in no sequence) an
error is raised instead; everything else is passed on, so that return codes and refusals can be
compared.

A little over 400 lines: one class, with the life of llama.cpp's pointers in one place.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from llmviz.errors import BatchError, GGUFError, LlmvizError
from llmviz.reference.capi import CONTEXT_DEFAULTS, LogLine, api, capture_log
from llmviz.reference.memory import MemoryOps
from llmviz.reference.nodes import Node, read_node
from llmviz.reference.vocab import ReferenceVocab

__all__ = ["Reference"]

KV_TYPES = {
    "f32": 0, "f16": 1, "bf16": 30, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8,
    "iq4_nl": 20,
}  # fmt: skip
ENUMS = {
    "rope_scaling_type": ("none", "linear", "yarn", "longrope"),
    "pooling_type": ("none", "mean", "cls", "last", "rank"),
    "attention_type": ("causal", "non-causal"),
}  # in the order of llama.h


class Reference(MemoryOps):
    """llama.cpp with one model and one context, on the CPU.

    Parameters
    ----------
    path : str or path
        A GGUF file (the first part of a split one).
    n_ctx, n_batch, n_ubatch, n_threads, n_seq_max, kv_unified
        As in ``llama_context_params``; `n_threads` serves prompts too.
    type_k, type_v : str
        Type of the KV cache: ``"f16"``, ``"f32"``, ``"q8_0"``, ...
    flash_attn : bool or None
        Off by default: its one fused node hides the scores that the separate nodes show.
        None leaves it to llama.cpp.
    vocab_only : bool
        Load no weights; there is no context then.
    nodes : bool
        Record every node of each decode in `nodes` (they add up; clear the list between decodes).
    want : callable, optional
        ``want(name) -> bool``: record only these nodes. Implies `nodes`.
    repack : bool
        Let llama.cpp rearrange weights for speed. Off, so that sums run in the plain order.
    kv_overrides : mapping, optional
        Values that replace the file's, by key.
    progress : callable, optional
        ``progress(fraction) -> bool``; False stops the load.
    check_tensors : bool
        Validate the tensors' data.
    **params
        Further ``llama_context_params`` by name, e.g. ``embeddings=True``; enumerations as
        llama.h's numbers or as words: ``rope_scaling_type="yarn"``.

    Attributes
    ----------
    vocab : ReferenceVocab
    nodes : list of Node
    log : list of LogLine
        What llama.cpp logged while this object's methods ran.

    Raises
    ------
    GGUFError
        llama.cpp refuses the file; the message carries its own last error.
    LlmvizError
        It refuses the context's parameters.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        n_ctx: int = 512,
        n_batch: int = 512,
        n_ubatch: int = 512,
        n_threads: int = 2,
        n_seq_max: int = 1,
        type_k: str = "f16",
        type_v: str = "f16",
        flash_attn: bool | None = False,
        kv_unified: bool = False,
        vocab_only: bool = False,
        nodes: bool = False,
        want: Callable[[str], bool] | None = None,
        repack: bool = False,
        kv_overrides: Mapping[str, int | float | bool | str] | None = None,
        progress: Callable[[float], bool] | None = None,
        check_tensors: bool = False,
        **params: Any,
    ) -> None:
        self._api = api()
        self.path = os.fspath(path)
        self.log: list[LogLine] = []
        self.nodes: list[Node] = []
        self._want = want
        self._keep: list[Any] = []  # what C holds pointers to
        self._failure: BaseException | None = None
        self._model = self._context = None
        unknown = set(params) - set(CONTEXT_DEFAULTS)
        if unknown:
            raise TypeError(f"no such llama_context_params: {', '.join(sorted(unknown))}")
        self._load(vocab_only, repack, kv_overrides, progress, check_tensors)
        if vocab_only:
            return
        params |= {
            "n_ctx": n_ctx, "n_batch": n_batch, "n_ubatch": n_ubatch, "n_seq_max": n_seq_max,
            "type_k": KV_TYPES[type_k], "type_v": KV_TYPES[type_v], "kv_unified": kv_unified,
            "flash_attn_type": -1 if flash_attn is None else int(flash_attn),
            "n_threads": n_threads, "n_threads_batch": n_threads,
        }  # fmt: skip
        self._new_context(params, nodes or want is not None)

    def _load(
        self,
        vocab_only: bool,
        repack: bool,
        kv_overrides: Mapping[str, int | float | bool | str] | None,
        progress: Callable[[float], bool] | None,
        check_tensors: bool,
    ) -> None:
        ffi, lib, defaults, _ = self._api
        p = ffi.new("struct llama_model_params *", defaults)
        p.n_gpu_layers = 0
        p.vocab_only, p.use_extra_bufts, p.check_tensors = vocab_only, repack, check_tensors
        if kv_overrides:
            p.kv_overrides = self._overrides(kv_overrides)
        if progress:
            p.progress_callback = self._callback(
                "cb_progress_t", lambda fraction, _: bool(progress(fraction))
            )
        with capture_log(self.log):
            self._model = lib.llama_model_load_from_file(os.fsencode(self.path), p[0])
        self._reraise()
        if self._model == ffi.NULL:
            self._model = None
            raise GGUFError(f"llama.cpp refuses the file: {self._last_error()}", path=self.path)
        self.vocab = ReferenceVocab(lib.llama_model_get_vocab(self._model))
        self.n_vocab = self.vocab.n_tokens

    def _new_context(self, params: dict[str, Any], watch: bool) -> None:
        ffi, lib, _, defaults = self._api
        p = ffi.new("struct llama_context_params *", defaults)
        for name, value in params.items():
            number = ENUMS[name].index(value) if isinstance(value, str) else value
            setattr(p, name, number)
        if watch:
            p.cb_eval = self._callback("cb_eval_t", self._on_node)
        with capture_log(self.log):
            self._context = lib.llama_init_from_model(self._model, p[0])
        if self._context == ffi.NULL:
            self._context = None
            reason = self._last_error()
            self.close()
            raise LlmvizError(f"llama.cpp refuses the context: {reason}")

    def _overrides(self, values: Mapping[str, int | float | bool | str]) -> Any:
        ffi = self._api.ffi
        array = ffi.new("struct llama_model_kv_override[]", len(values) + 1)  # ends at an empty key
        for slot, (key, value) in zip(array, values.items(), strict=False):
            slot.key = key.encode()
            if isinstance(value, bool):
                slot.tag, slot.val_bool = 2, value
            elif isinstance(value, int):
                slot.tag, slot.val_i64 = 0, value
            elif isinstance(value, float):
                slot.tag, slot.val_f64 = 1, value
            else:
                slot.tag, slot.val_str = 3, value.encode()
        self._keep.append(array)
        return array

    # callbacks ---------------------------------------------------------------------------------

    def _callback(self, kind: str, function: Callable[..., bool]) -> Any:
        """A C callback; what it raises is raised again after the call into llama.cpp returns."""

        def guarded(*args: Any) -> bool:
            try:
                return function(*args)
            except BaseException as error:
                self._failure = error
                return False

        self._keep.append(self._api.ffi.callback(kind, guarded))
        return self._keep[-1]

    def _reraise(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _on_node(self, t: Any, ask: bool, _user_data: Any) -> bool:
        if ask:
            name = self._api.ffi.string(t.name).decode(errors="replace")
            return self._want is None or self._want(name)
        self.nodes.append(read_node(self._api, t))
        return True

    def _last_error(self) -> str:
        errors = [line.text.strip() for line in self.log if line.level == 4]
        return errors[0] if errors else "no reason logged"

    # vocabulary --------------------------------------------------------------------------------

    def tokenize(
        self, text: str | bytes, add_special: bool = True, parse_special: bool = False
    ) -> list[int]:
        """Token ids of `text`."""
        with capture_log(self.log):
            return self.vocab.tokenize(text, add_special, parse_special)

    def token_to_piece(self, token: int, lstrip: int = 0, special: bool = False) -> bytes:
        """The bytes that `token` stands for."""
        return self.vocab.token_to_piece(token, lstrip, special)

    def detokenize(
        self, ids: Sequence[int], remove_special: bool = False, unparse_special: bool = False
    ) -> bytes:
        """The text of `ids`, as bytes."""
        return self.vocab.detokenize(ids, remove_special, unparse_special)

    @property
    def chat_template(self) -> str | None:
        """The file's chat template."""
        ffi, lib, *_ = self._api
        text = lib.llama_model_chat_template(self._model, ffi.NULL)
        return None if text == ffi.NULL else ffi.string(text).decode()

    # model and context -------------------------------------------------------------------------

    def model_value(self, name: str) -> Any:
        """``llama_model_<name>``: ``n_ctx_train``, ``n_embd``, ``n_layer``, ``size``, ..."""
        return getattr(self._api.lib, f"llama_model_{name}")(self._model)

    @property
    def desc(self) -> str:
        """Type, size and file type in words, e.g. ``"llama ?B Q4_1"``."""
        ffi, lib, *_ = self._api
        buf = ffi.new("char[]", 256)
        lib.llama_model_desc(self._model, buf, 256)
        return ffi.string(buf).decode()

    @property
    def meta(self) -> dict[str, str]:
        """The file's key-values as llama.cpp prints them."""
        ffi, lib, *_ = self._api
        buf = ffi.new("char[]", 1 << 16)
        result = {}
        for i in range(lib.llama_model_meta_count(self._model)):
            lib.llama_model_meta_key_by_index(self._model, i, buf, len(buf))
            key = ffi.string(buf).decode()
            lib.llama_model_meta_val_str_by_index(self._model, i, buf, len(buf))
            result[key] = ffi.string(buf).decode(errors="replace")
        return result

    def context_value(self, name: str) -> int:
        """``llama_<name>`` of the context: ``n_ctx``, ``n_ctx_seq``, ``n_batch``, ..."""
        return getattr(self._api.lib, f"llama_{name}")(self._ctx)

    @property
    def n_reused(self) -> int:
        """How often a graph was used again."""
        return self._api.lib.llama_perf_context(self._ctx).n_reused

    # decode ------------------------------------------------------------------------------------

    def decode(
        self,
        tokens: Any,
        *,
        pos: Sequence[int] | None = None,
        seq_id: Sequence[int | Sequence[int]] | None = None,
        logits: Sequence[bool | int] | None = None,
    ) -> int:
        """Decode a batch.

        Parameters
        ----------
        tokens : sequence of int, or a batch
            A batch is any object with ``token``, ``pos``, ``seq_id`` and ``logits``; what is None,
            llama.cpp fills.
        pos, seq_id, logits : optional
            One per token; a token may be in several sequences.

        Returns
        -------
        int
            llama_decode's code: 0 ok, 1 no room in the cache, 2 aborted, negative: refused.
        """
        return self._run(self._api.lib.llama_decode, tokens, pos, seq_id, logits)

    def encode(
        self, tokens: Any, *, pos: Any = None, seq_id: Any = None, logits: Any = None
    ) -> int:
        """Run the encoder on a batch; parameters as for `decode`."""
        return self._run(self._api.lib.llama_encode, tokens, pos, seq_id, logits)

    def _run(self, function: Any, tokens: Any, pos: Any, seq_id: Any, logits: Any) -> int:
        if hasattr(tokens, "token"):
            tokens, pos, seq_id, logits = tokens.token, tokens.pos, tokens.seq_id, tokens.logits
        ffi = self._api.ffi
        ids = [int(t) for t in tokens]
        n = len(ids)
        if n > self.context_value("n_batch"):
            raise BatchError(f"{n} tokens are more than n_batch = {self.context_value('n_batch')}")
        for name, column in (("pos", pos), ("seq_id", seq_id), ("logits", logits)):
            if column is not None and len(column) != n:
                raise BatchError(f"{len(column)} values in {name} for {n} tokens")
        b = ffi.new("struct llama_batch *")
        keep = [ffi.new("llama_token[]", ids)]
        b.n_tokens, b.token = n, keep[0]
        if pos is not None:
            keep.append(ffi.new("llama_pos[]", [int(p) for p in pos]))
            b.pos = keep[-1]
        if seq_id is not None:
            lists = [[int(s)] if np.ndim(s) == 0 else [int(x) for x in s] for s in seq_id]
            if not all(lists):
                raise BatchError("a token of the batch is in no sequence")
            rows = [ffi.new("llama_seq_id[]", s) for s in lists]
            counts, pointers = (
                ffi.new("int32_t[]", [len(s) for s in lists]),
                ffi.new("llama_seq_id *[]", rows),
            )
            keep += [*rows, counts, pointers]
            b.n_seq_id, b.seq_id = counts, pointers
        if logits is not None:
            keep.append(ffi.new("int8_t[]", [int(x) for x in logits]))
            b.logits = keep[-1]
        with capture_log(self.log):
            code = function(self._ctx, b[0])
        self._reraise()
        return code

    def logits_ith(self, i: int = -1) -> npt.NDArray[np.float32] | None:
        """Logits ``float32[n_vocab]`` of batch token `i`, or None where it is no output.

        A negative `i` counts the outputs from the end.
        """
        return self._floats(self._api.lib.llama_get_logits_ith, i, self.n_vocab)

    def embeddings_ith(self, i: int = -1) -> npt.NDArray[np.float32] | None:
        """Embedding ``float32[n_embd]`` of batch token `i`, or None."""
        return self._floats(
            self._api.lib.llama_get_embeddings_ith, i, self.model_value("n_embd_out")
        )

    def embeddings_seq(self, seq_id: int = 0) -> npt.NDArray[np.float32] | None:
        """Pooled embedding ``float32[n_embd]`` of a sequence, or None."""
        return self._floats(
            self._api.lib.llama_get_embeddings_seq, seq_id, self.model_value("n_embd_out")
        )

    def _floats(self, function: Any, i: int, n: int) -> npt.NDArray[np.float32] | None:
        ffi = self._api.ffi
        with capture_log(self.log):
            pointer = function(self._ctx, i)
        return (
            None
            if pointer == ffi.NULL
            else np.frombuffer(ffi.buffer(pointer, 4 * n), np.float32).copy()
        )

    def generate(self, prompt: str | bytes | Sequence[int], n_predict: int = 64) -> list[int]:
        """Greedy continuation: ids until an end-of-generation token (included) or `n_predict`."""
        ids = self.tokenize(prompt) if isinstance(prompt, str | bytes) else list(prompt)
        result: list[int] = []
        while len(result) < n_predict:
            code = self.decode(ids)
            if code != 0:
                raise LlmvizError(f"llama_decode returned {code}: {self._last_error()}")
            logits = self.logits_ith(-1)
            assert logits is not None  # the last token of a batch without flags is an output
            ids = [int(logits.argmax())]
            result += ids
            if self.vocab.is_eog(ids[0]):
                break
        return result

    def set_abort(self, function: Callable[[], bool] | None) -> None:
        """Ask `function` before each node whether to stop the decode; None: no more."""
        ffi, lib, *_ = self._api
        callback = (
            self._callback("cb_abort_t", lambda _: bool(function())) if function else ffi.NULL
        )
        lib.llama_set_abort_callback(self._ctx, callback, ffi.NULL)

    # end ---------------------------------------------------------------------------------------

    def close(self) -> None:
        """Free the context and the model."""
        lib = self._api.lib
        with capture_log(self.log):
            if self._context is not None:
                lib.llama_free(self._context)
            if self._model is not None:
                lib.llama_model_free(self._model)
        self._context = self._model = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_model", None) is not None:
            self.close()
