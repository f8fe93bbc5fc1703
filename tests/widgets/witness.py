"""An independent account of a run: copies of what passed, to hold the screen against.

Knows nothing of the recorder: it looks at the same events and keeps the arrays themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from llmviz.events import Event


class Witness:
    """Wraps a generator of events and answers what a shown number must be."""

    def __init__(self) -> None:
        self.logits: list[np.ndarray] = []
        self.candidates: list[Any] = []
        self.attention: dict[tuple[int, int, int, int], float] = {}
        self.q_pos: list[int] = []

    def watch(self, events: Iterator[Event]) -> Iterator[Event]:
        """Pass events on, looking at each."""
        for event in events:
            self.see(event)
            yield event

    def see(self, event: Event) -> None:
        """Keep what a view might show of an event."""
        if event.name == "logits" and event.step == 14:
            self.logits.append(np.array(event.value).reshape(-1, event.value.shape[-1])[-1])
        elif event.step == 15 and event.kind == "data" and hasattr(event.value, "p"):
            p = np.array(event.value.p)
            self.candidates.append(dict(zip(np.array(event.value.id).tolist(), p, strict=True)))
        elif event.name == "inp_pos":
            self.q_pos = np.array(event.value).tolist()
        elif event.kind == "node" and event.name.startswith("kq_soft_max-"):
            layer = int(event.name.rsplit("-", 1)[1])
            for head in range(event.value.shape[0]):
                for i, q in enumerate(self.q_pos):
                    for k in range(q + 1):
                        self.attention[layer, head, q, k] = float(event.value[head, i, k])

    def p_raw(self) -> np.ndarray:
        """Softmax of the newest logits, float64."""
        x = self.logits[-1].astype(np.float64)
        e = np.exp(x - x.max())
        return e / e.sum()

    def truth(self, ref: str, here: Any) -> float | None:
        """What the number with this name is; None for a name that this account does not cover."""
        if m := re.fullmatch(r"kq_soft_max-(\d+)\[(\d+),pos (\d+),pos (\d+)\]", ref):
            return self.attention[tuple(int(g) for g in m.groups())]
        if m := re.fullmatch(r"(logits|p_raw|p)\[(\d+)\]", ref):
            i = int(m[2])
            if m[1] == "logits":
                return float(self.logits[-1][i])
            return float(self.p_raw()[i] if m[1] == "p_raw" else self.candidates[-1][i])
        if ref == "entropy":
            p = self.p_raw()
            return float(-(p[p > 0] * np.log(p[p > 0])).sum())
        name, value = here.name, here.value
        if not isinstance(value, np.ndarray):
            return None
        if ref.startswith(f"{name}[") and ref.endswith("]"):
            return float(value[tuple(int(i) for i in ref[len(name) + 1 : -1].split(","))])
        ok = value[np.isfinite(value)].astype(np.float64)
        known = {
            "min": lambda: ok.min(),
            "max": lambda: ok.max(),
            "mean": lambda: ok.mean(),
            "std": lambda: ok.std(),
            "nan": lambda: np.isnan(value).sum(),
            "inf": lambda: np.isinf(value).sum(),
        }
        what = ref.removeprefix(f"{name}.")
        return float(known[what]()) if what in known else None
