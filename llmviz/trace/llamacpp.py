"""A run of llama.cpp itself, recorded: it opens in every view as a saved run of llmviz does.

>>> theirs = llmviz.record_llamacpp("model.gguf", "The capital of France is")   # doctest: +SKIP
>>> llmviz.compare(llmviz.Debugger("model.gguf", ...), theirs)                  # doctest: +SKIP

llama.cpp tokenizes, decodes and keeps the cache; tokens are chosen from its logits by llmviz's
samplers, which give the same tokens as llama.cpp's and can tell why. It cannot be stopped in the
middle of a graph: a recording is made whole and walked afterwards. Any architecture that the
installed llama.cpp knows can be recorded, also one that llmviz does not.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from llmviz.errors import LlmvizError
from llmviz.events import drain
from llmviz.generate import Generation
from llmviz.gguf import open_gguf
from llmviz.model.arch import get_arch
from llmviz.model.hparams import load_hparams_steps
from llmviz.model.keys import Keys
from llmviz.reference import system_info
from llmviz.reference.graph import Watched
from llmviz.trace.branches import Branch
from llmviz.trace.breakpoints import matches_name
from llmviz.trace.compare_sides import compares
from llmviz.trace.flow_wanted import every_layer
from llmviz.trace.llamacpp_run import ForeignContext, Observer
from llmviz.trace.opened import Trace
from llmviz.trace.recorder import Recorder
from llmviz.trace.storage import save
from llmviz.trace.storage_log import RunLog
from llmviz.trace.storage_zip import MOST_BYTES, need_zarr

__all__ = ["ENGINE", "Recording", "record_llamacpp"]

ENGINE = "llama.cpp"
BUDGET = 512 << 20
THREADS = max(1, min(4, (os.cpu_count() or 1) // 2))  # they wait for each other at every node
DEFAULTS: dict[str, Any] = {
    "n_ctx": 512, "n_batch": 2048, "n_ubatch": 512, "type_k": "f16", "type_v": "f16",
    "n_threads": THREADS,
}  # fmt: skip

Names = str | Sequence[str] | Callable[[str], bool] | None


class Recording(Trace):
    """A recorded run of llama.cpp; made by `record_llamacpp`, walked as any `Trace`.

    It lies in a temporary file that goes with `close`, or when nobody holds the recording any more.
    """

    def __init__(self, path: str, *, max_bytes: int = MOST_BYTES) -> None:
        self._remove = weakref.finalize(self, _remove, path)
        super().__init__(path, max_bytes=max_bytes)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Keep the recording as a file, for `llmviz.open_trace` and for xarray.

        Raises
        ------
        OSError
            The file cannot be written.
        """
        folder, name = os.path.split(os.path.abspath(os.fspath(path)))
        with tempfile.TemporaryDirectory(prefix=f".{name}.", dir=folder) as inside:
            copy = shutil.copy(self.path, os.path.join(inside, name))
            os.replace(copy, path)

    def close(self) -> None:
        """Let go of the recording, and of its temporary file."""
        super().close()
        self._remove()


def record_llamacpp(
    path: str | os.PathLike[str],
    prompt: Any,
    *,
    chain: Any = None,
    n_predict: int = 64,
    keep: Names = every_layer,
    watch: Names = "*",
    keep_logits: bool = True,
    budget: int = BUDGET,
    progress: Callable[[float], Any] | None = None,
    **params: Any,
) -> Recording:
    """Run a model through llama.cpp and record the run.

    Parameters
    ----------
    path : str or PathLike
        A GGUF file, or a name that `llmviz.hub` knows.
    prompt : str, list of int, or list of {"role", "content"}
        As for `llmviz.generate`.
    chain : Chain, optional
        llmviz's samplers, on llama.cpp's logits; `llmviz.generate`'s default otherwise.
    n_predict : int
        Stop after this many tokens.
    keep : str, list of str, callable or None
        Names (globs) of nodes and inputs, or ``keep(name) -> bool``, whose values are kept. By
        default what the views show of every layer; ``"*"`` keeps all that have numbers of their
        own, to compare each: no windows on other nodes and no copies of the whole cache.
    watch : str, list of str, callable or None
        Nodes of which statistics are noted. The nodes that nobody keeps or watches are not looked
        at; where all are watched, llama.cpp computes one node at a time.
    keep_logits : bool
        Keep all logits of every pass, not only the ten largest.
    budget : int
        Bytes that kept values and attention may take; the oldest go first, and `missing` says so.
    progress : callable, optional
        Called with the part of `n_predict` that is done.
    **params
        As for `llmviz.reference.Reference`: ``n_ctx``, ``n_ubatch``, ``type_k="f32"`` ...

    Returns
    -------
    Recording
        Standing at its last event. It is labelled "llama.cpp" wherever it shows.

    Raises
    ------
    UnsupportedError
        llama.cpp's library (the package xllamacpp) or cffi is not installed.
    GGUFError
        llama.cpp refuses the file.
    LlmvizError
        It refuses the context or the prompt; or zarr is not installed.
    """
    need_zarr()
    file = _found(path)
    prompt = prompt if isinstance(prompt, str) else list(prompt)
    params = DEFAULTS | params
    with Watched(file, **params) as engine:
        vocab = engine.vocab
        recorder = Recorder(
            budget=budget, piece_of=lambda token: vocab.token_to_piece(token, special=True)
        )
        recorder.ask("a recording", compares if keep == "*" else _test_of(keep))
        log = RunLog(keep_logits=keep_logits)
        observer = Observer(recorder, log, _test_of(watch), engine.context_value("n_seq_max"))
        generation = Generation(
            ForeignContext(engine, observer),  # type: ignore[arg-type]
            prompt,
            None if chain is None else chain.clone(),
            n_predict,
        )
        for event in generation.steps():
            observer.see(event)
            if progress is not None and event.name == "token":
                progress(len(generation.result.tokens) / max(n_predict, 1))
        run = _as_saved(engine, generation, recorder, log, params, observer.n)
        return _saved(run, max(MOST_BYTES, 4 * budget))


def _saved(run: Any, max_bytes: int) -> Recording:
    handle, temporary = tempfile.mkstemp(suffix=".zarr.zip", prefix="llamacpp-")
    os.close(handle)
    try:
        save(run, temporary)
        return Recording(temporary, max_bytes=max_bytes)
    except BaseException:
        _remove(temporary)
        raise


def _as_saved(
    engine: Watched,
    generation: Generation,
    recorder: Recorder,
    log: RunLog,
    params: dict[str, Any],
    n: int,
) -> SimpleNamespace:
    """The run with what `storage.save` reads of a debugger."""
    made = [t for t in recorder.tokens if not t.given]
    branch = Branch(
        "main", None, -1, n=n, furthest=n, ended=True, n_tokens=len(made),
        text=generation.result.text,
    )  # fmt: skip
    return SimpleNamespace(
        engine={"name": ENGINE, "version": system_info()},
        running=False,
        finished=True,
        error=None,
        log=log,
        recorder=recorder,
        tokens=recorder.tokens,
        samplings=log.samplers,
        prompt=generation.prompt,
        n_predict=generation.n_predict,
        chain=generation.chain,
        model=_model_of(engine),
        ctx=SimpleNamespace(
            params=SimpleNamespace(**params),
            graph=SimpleNamespace(gf=SimpleNamespace(nodes=engine.graph)),
        ),
        seconds={},
        edits=[],
        breakpoints=[],
        branch=branch,
        branches=[branch],
    )


def _model_of(engine: Watched) -> SimpleNamespace:
    """Architecture, sizes and a name that says whose run it is.

    The hyperparameters are llmviz's where it knows the architecture, else the few that llama.cpp's
    API tells.
    """
    arch = engine.meta.get("general.architecture", "")
    hparams: Any
    with open_gguf(engine.path) as file:
        try:
            architecture = get_arch(arch)
            hparams = drain(load_hparams_steps(Keys(file, arch), architecture))
            hparams.n_vocab = engine.n_vocab
            desc = f"{arch} {architecture.size_name(hparams)} {file.ftype_name()}"
        except LlmvizError:  # an architecture, or a kind of it, that only llama.cpp knows
            hparams = SimpleNamespace(
                n_layer=engine.model_value("n_layer"),
                n_embd=engine.model_value("n_embd"),
                n_head_arr=engine.model_value("n_head"),
                n_head_kv_arr=engine.model_value("n_head_kv"),
                n_ctx_train=engine.model_value("n_ctx_train"),
                n_vocab=engine.n_vocab,
            )
            desc = engine.desc
    return SimpleNamespace(
        desc=f"{desc} · {ENGINE}",
        arch=arch,
        path=engine.path,
        hparams=hparams,
        vocab=SimpleNamespace(n_tokens=engine.n_vocab),
    )


def _found(path: str | os.PathLike[str]) -> str:
    from llmviz.hub import resolve

    name = os.fspath(path)
    return name if os.path.exists(name) else os.fspath(resolve(name))


def _test_of(names: Names) -> Callable[[str], bool]:
    if callable(names):
        return names
    globs = [names] if isinstance(names, str) else list(names or ())
    if "*" in globs:
        return lambda name: True
    return lambda name: any(matches_name(glob, name) for glob in globs)


def _remove(path: str) -> None:
    if os.path.exists(path):
        os.unlink(path)
