"""A hand-written run: the events of a two-layer model over five tokens, without an engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace

import numpy as np

from llmviz.events import Event, Steps, scope

N_VOCAB, N_EMBD, N_HEAD, N_KV = 32, 8, 2, 16
WORDS = ["The", " capital", " of", " France", " is"]


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def cells(pos: list[int]) -> SimpleNamespace:
    """Stands for `KVCells`: the same arrays."""
    full = np.full(N_KV, -1, np.int32)
    full[: len(pos)] = pos
    return SimpleNamespace(pos=full, tok=full + 7 * (full >= 0), seq=(full >= 0)[None, :])


def candidates(logits: np.ndarray, keep: int) -> SimpleNamespace:
    ids = np.argsort(-logits)[:keep].astype(np.int32)
    p = softmax(logits[ids]).astype(np.float32)
    return SimpleNamespace(id=ids, logit=logits[ids], p=p, selected=0, sorted=True)


def node(name: str, op: str, value: np.ndarray, depth: int, *src: str) -> Event:
    about = SimpleNamespace(
        name=name, op=op, ne=value.shape[::-1], src=[SimpleNamespace(name=s) for s in src], il=-1
    )
    return Event("node", name, depth, 13, value, about)


def run(
    n_predict: int = 2,
    want: Callable[[str], bool] = lambda name: True,
    seed: int = 0,
    fail_at: str = "",
) -> Iterator[Event]:
    """Events of a whole generation, in the order and with the names of the engine."""
    rng = np.random.default_rng(seed)

    def layer(il: int, pos: list[int], depth: int) -> Steps[None]:
        n = len(pos)
        n_used = pos[-1] + 1
        x = rng.standard_normal((n, N_EMBD)).astype(np.float32)
        names = [(f"attn_norm-{il}", "MUL", x)]
        scores = rng.standard_normal((N_HEAD, n, N_KV)).astype(np.float32)
        scores[:, np.arange(N_KV)[None, :] > np.array(pos)[:, None]] = -np.inf
        assert n_used <= N_KV
        names.append((f"kq_soft_max-{il}", "SOFT_MAX", softmax(scores)))
        names.append((f"l_out-{il}", "ADD", x + 1))
        for name, op, value in names:
            if name == fail_at:
                raise ValueError("the toy engine broke on purpose")
            if want(name):
                value.flags.writeable = False
                yield node(name, op, value, depth, f"inp-{il}", f"blk.{il}.weight")

    def compute(pos: list[int], depth: int) -> Steps[None]:
        for il in range(2):
            yield from scope(f"layer-{il}", 13, depth, layer(il, pos, depth + 1))

    def process(pos: list[int], depth: int) -> Steps[None]:
        yield Event("data", "kv_cells", depth, 13, cells(list(range(pos[-1] + 1))))
        yield Event("data", "inp_pos", depth, 13, np.array(pos, np.int32))
        yield from scope("graph_compute", 13, depth, compute(pos, depth + 1))

    def decode(pos: list[int], depth: int) -> Steps[None]:
        yield from scope("process_ubatch", 13, depth, process(pos, depth + 1))

    def output(logits: np.ndarray, depth: int) -> Steps[None]:
        yield Event("data", "logits", depth, 14, logits[None, :])

    def sample(logits: np.ndarray, depth: int) -> Steps[int]:
        cur = candidates(logits, 4)
        yield Event("data", "top_k", depth, 15, cur, {"before": candidates(logits, N_VOCAB)})
        yield Event("data", "dist", depth, 15, cur, {"before": cur})
        return int(cur.id[1])

    def accept(token: int, depth: int) -> Steps[None]:
        text = f" w{token}"
        yield Event("data", "token", depth, 16, token, {"piece": text.encode(), "text": text})

    yield Event("enter", "tokenize", 0, 9)
    yield Event("data", "tokens", 1, 9, list(range(len(WORDS))))
    yield Event("exit", "tokenize", 0, 9)
    pos = list(range(len(WORDS)))
    for _ in range(n_predict):
        yield from scope("decode", 11, 0, decode(pos, 1))
        logits = rng.standard_normal(N_VOCAB).astype(np.float32) * 3
        yield from scope("output", 14, 0, output(logits, 1))
        token = yield from scope("sample", 15, 0, sample(logits, 1))
        yield from scope("accept", 16, 0, accept(token, 1))
        pos = [pos[-1] + 1]
    yield Event("data", "stop", 0, 16, "n_predict")
