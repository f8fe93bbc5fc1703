"""`llmviz.compare`: from whatever a person has (runs, models, paths, prompts) to a comparison."""

from __future__ import annotations

import os
from typing import Any

from llmviz.errors import LlmvizError
from llmviz.trace.compare import TOLERANCE, Comparison
from llmviz.trace.timeline import DebuggerError

__all__ = ["compare"]


def compare(
    a: Any,
    b: Any = None,
    *,
    prompt: Any = None,
    context: Any = None,
    tolerance: float = TOLERANCE,
    n_predict: int = 8,
    chain: Any = None,
    labels: tuple[str, str] = ("", ""),
    **params: Any,
) -> Comparison:
    """Lay two runs side by side, and find where they part.

    Parameters
    ----------
    a, b : Debugger, Trace, Model, str or PathLike
        Two runs; two models, or paths of files or traces. For one debugger `b` is the name of a
        branch to compare with the one it is on, by default the branch that it came from. A pair
        ``(dbg, "branch-1")`` names both. Without `b`, one model runs twice: give two prompts or two
        contexts.
    prompt : str, messages or token ids; or a tuple of two of them
        For models: what they read. A tuple gives each run its own.
    context : dict or tuple of two dicts
        For models: parameters of ``model.context``, such as ``{"n_ubatch": 8}``.
    tolerance : float
        Relative error that counts as a difference.
    n_predict : int
        For models: how many tokens each chooses.
    chain : Chain, optional
        For models: greedy by default, so that other tokens mean other logits.
    labels : (str, str), optional
        What the two are called.
    **params
        Of both contexts.

    Returns
    -------
    Comparison

    Examples
    --------
    >>> lv.compare("q4.gguf", "q8.gguf", prompt="The capital of France is")    # doctest: +SKIP
    >>> lv.compare(model, prompt=("The cat", "The dog")).first                 # doctest: +SKIP
    >>> lv.compare(model, prompt="Hi", context=({"n_ubatch": 8}, {}))          # doctest: +SKIP
    """
    if isinstance(a, tuple) or (_is_run(a) and not _is_model(b)):
        if b is None:
            b = _parent(a)
        return Comparison(a, b, tolerance=tolerance, labels=labels)
    if _is_debugger(a) and isinstance(b, str) and any(x.name == b for x in a.branches):
        return Comparison(a, (a, b), tolerance=tolerance, labels=labels)
    prompts = prompt if isinstance(prompt, tuple) else (prompt, prompt)
    contexts = context if isinstance(context, tuple) else (context, context)
    for what, pair in (("prompt", prompts), ("context", contexts)):
        if len(pair) != 2:
            raise DebuggerError(f"{what}: a tuple holds one for each of two runs, not {len(pair)}")
    if b is None:
        if prompts[0] == prompts[1] and contexts[0] == contexts[1]:
            raise DebuggerError(
                "one model with one prompt gives one run: give a second model, "
                'prompt=("one", "another"), or context=({...}, {...})'
            )
        b = a
    opened: list[Any] = []
    try:
        runs = []
        for subject, text, settings in zip((a, b), prompts, contexts, strict=True):
            own = not _is_run(subject)
            settings = {**params, **(settings or {})}
            run = _started(subject, text, chain, n_predict, settings) if own else subject
            opened += [run] if own else []
            runs.append(run)
        if not any(labels):
            labels = _labels((a, b), prompts, contexts)
        made = Comparison(runs[0], runs[1], tolerance=tolerance, labels=labels)
    except BaseException:
        for run in opened:
            run.close()
        raise
    return made.own(*opened)


def _is_debugger(subject: Any) -> bool:
    return hasattr(subject, "recorder") and hasattr(subject, "_branches")


def _is_run(subject: Any) -> bool:
    return hasattr(subject, "recorder") or hasattr(subject, "visit")


def _is_model(subject: Any) -> bool:
    return isinstance(subject, (str, os.PathLike)) or hasattr(subject, "tensors")


def _parent(a: Any) -> Any:
    """What one debugger is compared with where nothing else was given."""
    dbg, name = a if isinstance(a, tuple) else (a, None)
    if _is_debugger(dbg):
        branch = dbg._branches[getattr(name, "name", name)] if name is not None else dbg.branch
        others = [branch.parent] if branch.parent else [x.name for x in dbg.branches[1:]]
        if others:
            return dbg, others[0]
    raise DebuggerError(
        "there is one run only: give another debugger, trace or model, or the name of a branch; a "
        "change of the past makes one"
    )


def _started(subject: Any, prompt: Any, chain: Any, n_predict: int, params: dict[str, Any]) -> Any:
    """A model's run to its end, or an opened trace."""
    from llmviz.sampling import Chain, Greedy
    from llmviz.trace.debugger import Debugger
    from llmviz.trace.opened import open_trace

    if isinstance(subject, (str, os.PathLike)) and _is_zip(subject):
        return open_trace(subject)
    if prompt is None:
        raise DebuggerError('models need something to read: compare(a, b, prompt="...")')
    chain = Chain([Greedy()]) if chain is None else chain
    dbg = Debugger(subject, prompt, chain, n_predict=n_predict, **params)
    try:
        dbg.run_to_end()
    except LlmvizError:
        dbg.close()
        raise
    return dbg


def _is_zip(path: Any) -> bool:
    """Whether a file is a zip, as traces are."""
    try:
        with open(path, "rb") as f:
            return f.read(2) == b"PK"
    except OSError:
        return False  # a name that is looked up


def _labels(subjects: Any, prompts: Any, contexts: Any) -> tuple[str, str]:
    """What tells two runs of models apart: the file, the prompt, or the context."""
    if subjects[0] is not subjects[1] and subjects[0] != subjects[1]:
        names = [
            os.path.basename(os.fspath(s)) if isinstance(s, (str, os.PathLike)) else ""
            for s in subjects
        ]
        return (names[0], names[1]) if names[0] != names[1] else ("", "")
    if prompts[0] != prompts[1]:
        a, b = (_short(p) if isinstance(p, str) else f"prompt of {len(p)}" for p in prompts)
        return a, b
    said = [", ".join(f"{k}={v}" for k, v in (c or {}).items()) or "defaults" for c in contexts]
    return said[0], said[1]


def _short(text: str) -> str:
    return repr(text if len(text) <= 32 else "…" + text[-31:])
