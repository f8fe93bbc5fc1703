"""What happens before the first token: steps 1 to 7 with their times, and what they found.

Read from a model, from a run (with the times of its events), or from a path: then steps 1 to 5 are
run and measured, and no weight is read.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from llmviz.errors import LlmvizError
from llmviz.steps import STEPS
from llmviz.trace.placement import Weights, memory_of, weights_of

__all__ = ["Hyperparameter", "LoadStep", "Loading", "loading_of", "of_model", "of_path", "of_run"]

_VALUE = 60


@dataclass(frozen=True, slots=True)
class Hyperparameter:
    """One number that fixes the model's shape, and where it came from.

    Attributes
    ----------
    name, value : str
    key : str
        Of the file; empty where no key gave it.
    type : str
        Of the key's value in the file: ``"u32"``, ``"arr[u32,30]"``.
    why : str
        Where no key gave it, what did.
    """

    name: str
    value: str
    key: str
    type: str
    why: str


@dataclass(frozen=True, slots=True)
class LoadStep:
    """One of steps 1 to 7.

    Attributes
    ----------
    number : int
    title : str
    state : str
        ``"done"``, ``"now"``, ``"later"``, or ``"before"``: not in this run, it was given what the
        step makes.
    seconds : float or None
        Measured; None where it did not run here.
    found : str
        What it found, in a line.
    """

    number: int
    title: str
    state: str
    seconds: float | None
    found: str


@dataclass(slots=True)
class Loading:
    """Everything that is known before the first token.

    Attributes
    ----------
    name : str
        Of the model.
    steps : list of LoadStep
    hparams : list of Hyperparameter
        Those that were read so far.
    hp : HParams or None
        What a cache's size follows from.
    weights : Weights or None
        Where they are and what they take.
    memory : list of dict
        What each device holds (`placement.memory_of`); empty where there is only the host.
    ctx : Context or None
    note : str
        What is missing here, and why.
    """

    name: str = ""
    steps: list[LoadStep] = field(default_factory=list)
    hparams: list[Hyperparameter] = field(default_factory=list)
    hp: Any = None
    weights: Weights | None = None
    memory: list[dict[str, Any]] = field(default_factory=list)
    ctx: Any = None
    note: str = ""

    @property
    def n_read(self) -> int:
        """How many hyperparameters a key of the file gave."""
        return sum(bool(h.key) for h in self.hparams)


@dataclass(slots=True)
class _Found:
    """Objects that the steps made, as far as they are there."""

    devices: Any = None
    gguf: Any = None
    arch: str = ""
    hp: Any = None
    hparams: list[Hyperparameter] = field(default_factory=list)
    vocab: Any = None
    weights: Weights | None = None
    memory: list[dict[str, Any]] = field(default_factory=list)
    ctx: Any = None

    def name(self) -> str:
        kv = getattr(self.gguf, "kv", {})
        return str(kv.get("general.name") or os.path.basename(str(getattr(self.gguf, "path", ""))))


def loading_of(source: Any) -> Loading:
    """What is known of a path, a model, a context or a run.

    Raises
    ------
    LlmvizError
        For anything else, and what opening a path raises.
    """
    if isinstance(source, (str, os.PathLike)):
        return of_path(source)
    if hasattr(source, "recorder"):
        return of_run(source)
    if hasattr(source, "decode_steps"):
        return of_model(source.model, source)
    if hasattr(source, "tensors") and hasattr(source, "gguf"):
        return of_model(source)
    raise LlmvizError(
        "what happens at loading is shown of a path, a model, a context or a debugger, "
        f"not of {source!r:.80}"
    )


def of_path(path: str | os.PathLike[str]) -> Loading:
    """Steps 1 to 5 of a file, measured; its weights are not read.

    Raises
    ------
    GGUFError, UnsupportedError, OSError
        As `llmviz.load`.
    """
    from llmviz.model.loader import load_steps

    found = _Found()
    seconds: dict[int, float] = {}
    events = load_steps(path)
    try:
        clock = time.perf_counter()
        for event in events:
            now = time.perf_counter()
            seconds[event.step] = seconds.get(event.step, 0.0) + now - clock
            clock = now
            if (event.kind, event.step) == ("exit", 1):
                found.devices = event.value
            elif (event.kind, event.step) == ("exit", 2):
                found.gguf = event.value
            elif event.name == "general.architecture" and event.kind == "data" and event.step == 3:
                found.arch = event.value
            elif event.name == "load_hparams" and event.kind == "exit":
                found.hp = event.value
            elif (event.kind, event.step) == ("exit", 5):
                found.vocab = event.value
            elif event.step == 6:
                seconds.pop(6)
                break
        if found.gguf is None:
            from llmviz.gguf import open_gguf

            with open_gguf(path) as gguf:
                return _path_loading(found, gguf, seconds)
        return _path_loading(found, found.gguf, seconds)
    finally:
        events.close()


def _path_loading(found: _Found, gguf: Any, seconds: Mapping[int, float]) -> Loading:
    found.gguf = gguf
    found.hparams = hyperparameters(found.hp, gguf)
    found.weights = weights_of(None, gguf)
    out = _loading(found, {n: ("done" if n <= 5 else "later") for n in range(1, 8)}, seconds)
    out.note = "Steps 6 and 7 were not run: no weight was read and nothing was allocated."
    return out


def of_model(model: Any, ctx: Any = None) -> Loading:
    """What a model's load found; it was not measured."""
    found = _found_of(model, ctx)
    out = _loading(found, {n: "before" for n in range(1, 7 if ctx is None else 8)}, {})
    if ctx is None:
        out.steps[6] = LoadStep(7, STEPS[6].title, "later", None, "")
    out.note = "The steps have no times here: show a Debugger(path, ...) to see them measured."
    return out


def of_run(dbg: Any, header: Loading | None = None) -> Loading:
    """What a run has found up to the event at which it stands, with the times of its events.

    Parameters
    ----------
    dbg : Debugger or Trace
    header : Loading, optional
        Of the run's file: it says what a step found while the model is not there yet.
    """
    step = dbg.here.step if dbg.here is not None else 0
    model, ctx = dbg.model, dbg.ctx if getattr(dbg.ctx, "memory", None) is not None else None
    ran = sorted(n for n in dbg.seconds if n <= 7)
    states = {}
    for n in range(1, 8):
        if n == step:
            states[n] = "now"
        elif n > step:
            states[n] = "later"
        else:
            states[n] = "done" if n in ran else "before"
    if getattr(model, "gguf", None) is not None:
        return _loading(_found_of(model, ctx), states, dbg.seconds)
    out = Loading(steps=[_step(n, states[n], dbg.seconds.get(n), "") for n in states])
    if header is None:
        if model is not None:
            out.name = str(getattr(model, "desc", ""))
            out.note = "A saved trace has the times; the file and the model are not in it."
        return out
    out.name = header.name
    seen = {e.name for e in dbg.events if e.step == 4 and e.kind == "data"}
    out.steps = [
        _step(s.number, states[s.number], dbg.seconds.get(s.number),
              s.found if states[s.number] == "done" else "")
        for s in header.steps
    ]  # fmt: skip
    if states[5] != "done":
        seen.discard("n_vocab")  # it is counted when the vocabulary is there
    out.hparams = [h for h in header.hparams if h.name in seen]
    done4 = states[4] == "done" or (step == 4 and dbg.here.kind == "exit")
    out.hp = header.hp if done4 else None
    out.weights = header.weights if step > 2 else None
    return out


def _found_of(model: Any, ctx: Any) -> _Found:
    hp = None if model.vocab_only else model.hparams
    return _Found(
        devices=model.devices,
        gguf=model.gguf,
        arch=model.arch,
        hp=hp,
        hparams=hyperparameters(hp, model.gguf) if hp is not None else [],
        vocab=model.vocab,
        weights=weights_of(model, model.gguf),
        memory=memory_of(model, ctx),
        ctx=ctx,
    )


def _loading(found: _Found, states: Mapping[int, str], seconds: Mapping[int, float]) -> Loading:
    said = _said(found)
    return Loading(
        name=found.name(),
        steps=[
            _step(n, states.get(n, "later"), seconds.get(n),
                  said[n] if states.get(n) in ("done", "before", "now") else "")
            for n in range(1, 8)
        ],
        hparams=found.hparams,
        hp=found.hp,
        weights=found.weights,
        memory=found.memory,
        ctx=found.ctx,
    )  # fmt: skip


def _step(n: int, state: str, seconds: float | None, found: str) -> LoadStep:
    return LoadStep(n, STEPS[n - 1].title, state, seconds, found)


def _said(f: _Found) -> dict[int, str]:
    """What each step found, in a line."""
    out = dict.fromkeys(range(1, 8), "")
    if f.devices is not None:
        out[1] = ", ".join(f"{d.name} ({d.description})" if d.description else d.name
                           for d in f.devices)  # fmt: skip
    if f.gguf is not None:
        out[2] = (
            f"GGUF version {f.gguf.version}: {len(f.gguf.kv):,} keys, "
            f"{len(f.gguf.tensor_infos):,} tensors, a header of {f.gguf.data_offset:,} bytes"
        )
    out[3] = f.arch
    if f.hparams:
        n = sum(bool(h.key) for h in f.hparams)
        out[4] = f"{len(f.hparams)} numbers: {n} from the file, {len(f.hparams) - n} not"
    if f.vocab is not None:
        kind = {"bpe": "byte-pair", "spm": "SentencePiece"}.get(f.vocab.type, f.vocab.type)
        out[5] = f"{f.vocab.n_tokens:,} tokens, {kind}"
    if f.weights is not None and f.weights.loaded:
        out[6] = f"{f.weights.n_tensors:,} tensors, {f.weights.how}"
    if f.ctx is not None:
        out[7] = f"{f.ctx.n_ctx:,} cells, {f.ctx.n_seq_max} sequence" + "s" * (f.ctx.n_seq_max > 1)
    return out


# -- where each number came from -------------------------------------------------------------------


def hyperparameters(hp: Any, gguf: Any) -> list[Hyperparameter]:
    """All hyperparameters, each with the key it came from, or what else gave it."""
    missing = getattr(hp.origin, "missing", {})
    out = []
    for name, (value, origin) in hp.as_dict().items():
        override = origin.startswith("override: ")
        key = origin.removeprefix("override: ")
        here = key in gguf.kv
        out.append(
            Hyperparameter(
                name,
                _text(value),
                key if here or override else "",
                gguf.type_label(key) if here else "",
                "given in kv_overrides" if override else "" if here
                else _why(origin, missing.get(name, "")),
            )
        )  # fmt: skip
    return out


def _why(origin: str, missing: str) -> str:
    looked = f"the file has no {missing}" if missing else ""
    if origin == "default":
        return f"default: {looked}" if looked else "default: this architecture reads no key for it"
    if origin.startswith("default: "):
        follows = f"default: {origin.removeprefix('default: ')}"
        return f"{follows} ({looked})" if looked else follows
    if origin.startswith("architecture "):
        return f"the architecture {origin.removeprefix('architecture ')} says so"
    return origin


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        single = np.float32(value)  # the shortest text that reads back as the same number
        return str(single) if float(single) == value else f"{value:.9g}"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, (list, tuple)):
        text = ", ".join(_text(v) for v in value)
        return text if len(text) <= _VALUE else text[: _VALUE - 1] + "…"
    return str(value)[:_VALUE]
