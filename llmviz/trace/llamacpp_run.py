"""llama.cpp in the place of the engine's context: its decode becomes the events of ours.

`Generation` runs over a `ForeignContext` as over a `Context`. llama.cpp computes a whole ubatch in
one call: what it shows on the way goes to the recorder at once, while the call is under way, and
all other events are yielded. Their numbers keep the order in which they come.

An input is shown when the first node reads it (llama.cpp's API tells of none before), and the cells
of the KV cache when the first node writes into them: those that its own index input names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from llmviz.batch import Batch
from llmviz.batch.ubatch import make_ubatch
from llmviz.context import DecodeStatus
from llmviz.errors import DecodeError, VocabError
from llmviz.events import Event, Steps
from llmviz.reference.graph import GraphTensor, Watched
from llmviz.reference.vocab import ReferenceVocab
from llmviz.trace.recorder import Recorder
from llmviz.trace.storage_log import RunLog
from llmviz.trace.timeline import Here
from llmviz.vocab.chat import ChatTemplate

__all__ = ["ForeignContext", "Observer"]

_SWA = "_swa"


class Observer:
    """Shows events to a recorder and a log, and llama.cpp's nodes as events among them.

    Parameters
    ----------
    recorder : Recorder
    log : RunLog
    measure : callable
        ``measure(name)``: whether statistics of a node are wanted.

    Attributes
    ----------
    n : int
        Number of the last event.
    """

    def __init__(
        self, recorder: Recorder, log: RunLog, measure: Callable[[str], bool], n_seq: int
    ) -> None:
        self.recorder, self.log, self.measure = recorder, log, measure
        self.n = -1
        self._n_seq = n_seq
        self._depth = 0
        self._layer = -1
        self._open = False
        self._batch: list[int] = []
        self._inputs: dict[int, np.ndarray] = {}  # by tensor: those that say where tokens go
        self._n_tokens = 0  # of this ubatch
        self._tokens = np.empty(0, np.int32)
        self._pos: np.ndarray | None = None
        self._done = 0  # tokens of the ubatches before, in the whole run
        self._cells: dict[str, SimpleNamespace] = {}

    def see(self, event: Event) -> None:
        """Note an event."""
        self.n += 1
        measure = event.kind == "node" and self.measure(event.name)
        self.recorder.see(event, self.n, measure=measure)
        self.log.see(Here(self.n, event), self.recorder)

    # -- a decode ------------------------------------------------------------------------------

    def open_batch(self, tokens: Sequence[int], depth: int) -> None:
        """Tokens that are decoded next; the events of their ubatches begin at `depth`."""
        self._batch, self._depth = list(tokens), depth

    def close_ubatch(self) -> None:
        """The ubatch that was computed is over."""
        if not self._open:
            return
        self._open = False
        self._enter_layer(-1)
        self.see(Event("exit", "graph_compute", self._depth + 1, 13))
        self.see(Event("exit", "process_ubatch", self._depth, 13))
        self._done += self._n_tokens
        del self._batch[: self._n_tokens]

    def begin(self) -> None:
        """See `llmviz.reference.graph.Watcher`."""
        self.close_ubatch()
        self._open = True
        self._inputs.clear()
        self._n_tokens, self._pos = 0, None
        self.see(Event("enter", "process_ubatch", self._depth, 13))
        self.see(Event("enter", "graph_compute", self._depth + 1, 13))

    def input(self, tensor: GraphTensor, value: np.ndarray | None) -> None:
        """See `llmviz.reference.graph.Watcher`."""
        if value is None:
            return
        if tensor.name == "inp_tokens":
            self._tokens, self._n_tokens = value.copy(), len(value)
        elif tensor.name == "inp_pos":
            self._pos = value.copy()
        elif value.dtype == np.int64:
            self._inputs[id(tensor)] = value.copy()
        depth = self._depth + 2 + (self._layer >= 0)
        self.see(Event("data", tensor.name, depth, 13, value, tensor))

    def meet(self, tensor: GraphTensor) -> None:
        """See `llmviz.reference.graph.Watcher`."""
        il = tensor.il
        if il < 0 and not _leaves(tensor, self._layer):
            il = self._layer  # one named without its layer, between nodes of it
            if tensor.unnamed:
                tensor.il = il
        self._enter_layer(il)
        if tensor.op == "SET_ROWS" and len(tensor.src) > 1:
            self._written(tensor, tensor.src[1])

    def _enter_layer(self, il: int) -> None:
        if il == self._layer:
            return
        for kind, layer in (("exit", self._layer), ("enter", il)):
            if layer >= 0:
                self.see(Event(kind, f"layer-{layer}", self._depth + 2, 13, layer))
        self._layer = il

    def wants(self, name: str) -> bool:
        """See `llmviz.reference.graph.Watcher`."""
        return self.measure(name) or self.recorder.wants(name)

    def node(self, tensor: GraphTensor, value: np.ndarray | None) -> None:
        """See `llmviz.reference.graph.Watcher`."""
        depth = self._depth + 2 + (self._layer >= 0)
        self.see(Event("node", tensor.name, depth, 13, value, tensor))

    def _written(self, tensor: GraphTensor, index: GraphTensor) -> None:
        """Keys go into the cache: note the cells, once for each cache and ubatch."""
        cache = tensor
        while cache.view_src is not None:
            cache = cache.view_src
        where = self._inputs.pop(id(index), None)
        if where is None or not cache.name.startswith("cache_k"):
            return
        end = _SWA if index.name.endswith(_SWA) else ""
        n, size = len(where), cache.ne[1] * cache.ne[2]
        cells = self._cells.get(end)
        if cells is None:
            cells = self._cells[end] = SimpleNamespace(
                pos=np.full(size, -1, np.int32),
                tok=np.full(size, -1, np.int32),
                seq=np.zeros((self._n_seq, size), bool),
            )
        self._n_tokens = self._n_tokens or n
        given = np.array(self._batch[:n], np.int32)
        pos = self._pos if self._pos is not None else self._done + np.arange(n, dtype=np.int32)
        cells.pos[where] = pos[:n]
        cells.tok[where] = self._tokens if len(self._tokens) == n else given
        cells.seq[0, where] = True
        depth = self._depth + 2 + (self._layer >= 0)
        self.see(Event("data", f"kv_cells{end}", depth, 13, cells))


def _leaves(tensor: GraphTensor, layer: int) -> bool:
    """Whether a node named without a layer comes after it: it works on what the layer gives."""
    if tensor.unnamed:
        return False
    return tensor.name.startswith("result_") or any(s.name == f"l_out-{layer}" for s in tensor.src)


class ForeignContext:
    """What `Generation` asks of a context, answered by llmviz's observer of llama.cpp.

    Parameters
    ----------
    engine : Watched
        With an empty memory.
    observer : Observer
    """

    def __init__(self, engine: Watched, observer: Observer) -> None:
        self._engine, self._observer = engine, observer
        self.model = SimpleNamespace(vocab=ForeignVocab(engine))
        self.memory = SimpleNamespace(cells=[SimpleNamespace(n_used=0)], seq_pos_max=lambda seq: -1)
        self.n_batch = engine.context_value("n_batch")
        self.n_ubatch = engine.context_value("n_ubatch")
        self.n_ctx_seq = engine.context_value("n_ctx_seq")
        self._n_past = 0

    def decode_steps(
        self, batch: Batch, want: Any = None, *, depth: int = 0
    ) -> Steps[DecodeStatus]:
        """As `Context.decode_steps`; nodes go to the observer, who says which are wanted."""
        assert batch.token is not None
        ids = [int(t) for t in batch.token]
        yield Event("enter", "decode", depth, 11, batch)
        yield Event("enter", "init_batch", depth + 1, 12, self.n_ubatch)
        yield Event("data", "ubatches", depth + 2, 12, self._cut(ids))
        yield Event("exit", "init_batch", depth + 1, 12)
        self._observer.open_batch(ids, depth + 1)
        code = self._engine.decode_watched(ids, self._observer)
        self._observer.close_ubatch()
        if code < 0:
            raise DecodeError(f"llama.cpp refuses the batch of {len(ids)} tokens", code)
        if code == 0:
            logits = self.get_logits_ith(-1)
            yield Event("enter", "output", depth + 1, 14, 1)
            yield Event("data", "logits", depth + 2, 14, logits[None])
            yield Event("exit", "output", depth + 1, 14)
            self._n_past += len(ids)
        status = DecodeStatus(code)
        yield Event("exit", "decode", depth, 11, status)
        return status

    def _cut(self, ids: list[int]) -> list[Any]:
        """The ubatches of one sequence: n_ubatch tokens each, in order, the last one outputs."""
        out = []
        for start in range(0, len(ids), self.n_ubatch):
            part = np.array(ids[start : start + self.n_ubatch], np.int32)
            index = np.arange(start, start + len(part), dtype=np.int32)
            pos, output = self._n_past + index, index == len(ids) - 1
            out.append(make_ubatch(part, pos, [(0,)] * len(part), output, index, 1, False))
        return out

    def get_logits_ith(self, i: int) -> np.ndarray:
        """Logits float32 [n_vocab] of output `i`."""
        logits = self._engine.logits_ith(i)
        if logits is None:
            raise IndexError(f"llama.cpp has no logits of output {i}")
        return logits


class ForeignVocab:
    """llama.cpp's vocabulary, as `Generation` asks for it."""

    def __init__(self, engine: Watched) -> None:
        self._engine = engine
        self._vocab: ReferenceVocab = engine.vocab
        self.n_tokens = self._vocab.n_tokens
        self.bos = self._vocab.special["bos"]
        self.eos = self._vocab.special["eos"]
        self.add_bos = self._vocab.add_bos
        self.is_eog = self._vocab.is_eog
        self.token_to_piece = self._vocab.token_to_piece
        self.token_text = self._vocab.text

    @property
    def tokens(self) -> Any:
        """The tokens' texts, by id."""
        return _Texts(self._vocab)

    def tokenize_steps(
        self, text: str, add_special: bool, parse_special: bool, *, depth: int = 0
    ) -> Steps[list[int]]:
        """Token ids; llama.cpp shows no steps on the way."""
        yield from ()
        return self._engine.tokenize(text, add_special, parse_special)

    def apply_chat_template(
        self, messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool = True
    ) -> str:
        """The prompt that a chat is for this model, by the file's template."""
        template = self._engine.chat_template
        if template is None:
            raise VocabError(
                "the model file has no chat template (key tokenizer.chat_template): write the "
                "prompt as plain text"
            )
        special = {"bos_token": self.bos, "eos_token": self.eos}
        texts = {k: self.token_text(t) if t >= 0 else "" for k, t in special.items()}
        return ChatTemplate(template).render(
            messages, add_generation_prompt=add_generation_prompt, **texts
        )


class _Texts:
    """Texts of tokens, looked up one by one."""

    def __init__(self, vocab: ReferenceVocab) -> None:
        self._vocab = vocab

    def __getitem__(self, token: int) -> str:
        return self._vocab.text(token)
