"""What happens before the first token? Steps 1 to 7, the model's numbers, and the cache's size."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any

import traitlets as t

from llmviz.errors import LlmvizError
from llmviz.memory.kv_layers import KV_TYPES
from llmviz.trace.kv_size import KVSize, kv_size, kv_size_of
from llmviz.trace.loading import Loading, loading_of, of_path, of_run
from llmviz.widgets.base import View
from llmviz.widgets.follow import weakly

__all__ = ["LoadView"]


class LoadView(View):
    """What happens before the first token?

    Parameters
    ----------
    source : Debugger, Model, Context, str or PathLike
        A debugger is followed, with the times of its own steps. Of a path steps 1 to 5 are run and
        measured; no weight is read.
    **kwargs
        Traits of the view.

    Traits
    ------
    n_ctx, n_seq_max : int
    kv_unified : bool
    type_k, type_v : str
        What the cache's size is worked out for; settable, nothing is allocated. They begin as the
        context's, where there is one.
    about : dict
        name, note, step (the one that runs now, 0 for none), seconds (of all measured steps).
    steps : list of {number, title, state, seconds, found}
    hparams : list of {name, value, key, type, why}
    n_hparams : int
        How many there will be; 0 where that is not known yet.
    types : list of {type, n, file, memory}
    places : list of {what, device, n, file, memory}
        Embeddings, layers, output: where their weights are.
    memory : list of {device, description, simulated, total, free, weights, kv, compute}
        What each device holds, in bytes, the host last; empty where there is only the host.
    weights : dict
        file, memory (bytes), loaded, how, compute (bytes of the arena that graphs work in; 0 before
        there is a context), copies (bytes of the cache's float32 copies).
    kv : dict
        terms ({what, n_layer, n_stream, n_cells, width, type, type_size, block_size,
        layers, window, nbytes}), types (that K and V may have), k, v,
        nbytes, per_token, n_ctx, n_ctx_seq, asked, rules, n_ctx_train, n_head_kv, n_embd_head_k,
        n_embd_head_v; ``own`` says what the context has: n_ctx, n_seq_max, kv_unified, type_k,
        type_v, nbytes. `reason` says why there is no formula; `known` whether the hyperparameters
        are there.
    """

    view_name = "load"

    here = t.Int(-1).tag(sync=True)
    error = t.Dict().tag(sync=True)
    n_ctx = t.Int(0, min=0).tag(sync=True)
    n_seq_max = t.Int(1, min=1).tag(sync=True)
    kv_unified = t.Bool(False).tag(sync=True)
    type_k = t.Enum(tuple(KV_TYPES), default_value="f16").tag(sync=True)
    type_v = t.Enum(tuple(KV_TYPES), default_value="f16").tag(sync=True)
    about = t.Dict().tag(sync=True)
    steps: t.List = t.List().tag(sync=True)
    hparams: t.List = t.List().tag(sync=True)
    n_hparams = t.Int(0).tag(sync=True)
    types: t.List = t.List().tag(sync=True)
    places: t.List = t.List().tag(sync=True)
    memory: t.List = t.List().tag(sync=True)
    weights = t.Dict().tag(sync=True)
    kv = t.Dict().tag(sync=True)

    _end: Callable[[], None] = staticmethod(lambda: None)
    _ready = False

    def __init__(self, source: Any, **kwargs: Any) -> None:
        self._dbg = source if hasattr(source, "recorder") else None
        self._header: Loading | None = None
        self._state: Any = None
        self._loading = Loading()
        chosen = {"n_ctx", "n_seq_max", "kv_unified", "type_k", "type_v"} & set(kwargs)
        self._own = not chosen  # the sliders stand where the context is, until somebody moves them
        if not set(kwargs) - set(self._public_traits()) and self._dbg is None:
            self._loading = loading_of(source)
        super().__init__(**kwargs)
        self._ready = True
        if self._dbg is not None:
            if not self.docked:
                self._end = self._dbg.on_change(weakly(self))
            self.refresh()
        else:
            self._draw()

    def close(self) -> None:
        """Stop following and let go of the page's side."""
        if not self.closed:
            self._end()
        super().close()

    # -- drawing -------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Bring the view in line with the run that it follows."""
        dbg = self._dbg
        if self.closed or dbg is None or dbg.running:
            return
        step = dbg.here.step if dbg.here is not None else 0
        state = (dbg.n if step <= 7 else "after", id(dbg.model), id(dbg.ctx), id(dbg.events))
        if state == self._state:
            return
        self._state = state
        self._loading = of_run(dbg, self._header_of(step))
        self.here = dbg.n
        self._draw()

    def _header_of(self, step: int) -> Loading | None:
        """What the file's header says, for the steps before there is a model."""
        path = getattr(getattr(self._dbg, "_source", None), "_path", None)
        model = getattr(self._dbg, "model", None)
        if path is None or step < 2 or getattr(model, "gguf", None) is not None:
            return None
        if self._header is None:
            try:
                self._header = of_path(path)
            except (LlmvizError, OSError):  # the run itself will say what is wrong with the file
                return None
        return self._header

    @t.observe("n_ctx", "n_seq_max", "kv_unified", "type_k", "type_v")
    def _moved(self, change: Any) -> None:
        if self._ready:
            self._own = False
            self._draw_kv()
            self.rev += 1

    def reset(self) -> None:
        """Put the cache's parameters back to the context's own, or to the defaults."""
        self._own = True
        self._draw()

    def _draw(self) -> None:
        x = self._loading
        with self.hold_sync():
            times = [s.seconds for s in x.steps if s.seconds is not None]
            now = next((s.number for s in x.steps if s.state == "now"), 0)
            self.about = {
                "name": x.name[:80],
                "note": x.note,
                "step": now,
                "seconds": sum(times) if times else None,
            }
            self.steps = [
                {"number": s.number, "title": s.title, "state": s.state, "seconds": s.seconds,
                 "found": s.found[:160]}
                for s in x.steps
            ]  # fmt: skip
            self.hparams = [
                {"name": h.name, "value": h.value, "key": h.key[:80], "type": h.type, "why": h.why}
                for h in x.hparams
            ]
            whole = self._header or x
            self.n_hparams = max(len(whole.hparams), len(x.hparams))
            w = x.weights
            self.types = [
                {"type": k.type, "n": k.n, "file": k.file, "memory": k.memory}
                for k in (w.types if w else ())
            ]
            self.places = [
                {"what": p.what, "device": p.device, "n": p.n, "file": p.file, "memory": p.memory}
                for p in (w.places if w else ())
            ]
            self.memory = x.memory
            self.weights = {
                "file": w.file if w else 0,
                "memory": w.memory if w else 0,
                "loaded": bool(w and w.loaded),
                "how": w.how if w else "",
                "compute": arena_bytes(x.ctx),
                "copies": copies_bytes(x.ctx),
            }
            if self._own:
                self._take_own(x.ctx)
            self._draw_kv()
            self.rev += 1

    def _take_own(self, ctx: Any) -> None:
        params = getattr(ctx, "params", None)
        self._ready = False
        for name, default in (
            ("n_ctx", 0), ("n_seq_max", 1), ("kv_unified", False), ("type_k", "f16"),
            ("type_v", "f16"),
        ):  # fmt: skip
            setattr(self, name, getattr(params, name, default))
        self._ready = True

    def size(self) -> KVSize:
        """The size of the cache for the parameters as they stand; nothing is allocated.

        Raises
        ------
        LlmvizError
            The hyperparameters are not known yet, or a context would refuse the parameters.
        """
        if self._loading.hp is None:
            raise LlmvizError("the cache's size follows from the hyperparameters, read at step 4")
        own = getattr(self._loading.ctx, "params", None)
        rest = ("n_batch", "n_ubatch", "flash_attn_type", "swa_full", "attention_type")
        others = {n: getattr(own, n) for n in rest} if own is not None else {}
        return kv_size(self._loading.hp, **others, **self._params())

    def _params(self) -> dict[str, Any]:
        names = ("n_ctx", "n_seq_max", "kv_unified", "type_k", "type_v")
        return {name: getattr(self, name) for name in names}

    def _draw_kv(self) -> None:
        x = self._loading
        try:
            self.kv = {**size_dict(self.size(), x.hp), "own": own_size(x.ctx), "reason": ""}
        except (LlmvizError, IndexError) as error:
            self.kv = {"terms": [], "rules": [], "own": own_size(x.ctx), "reason": str(error)}
        self.kv = {**self.kv, "known": x.hp is not None, "types": list(KV_TYPES)}

    def _on_message(self, _: Any, message: Any, buffers: Any) -> None:
        if isinstance(message, dict) and message.get("ask") == "load-reset":
            self.reset()
            self.send({"reply": message.get("id"), "value": True})

    # -- elsewhere -----------------------------------------------------------------------------

    def figure(self, view: str = "load", **options: Any) -> Any:
        """The view as a matplotlib figure; see `llmviz.plots.load`."""
        from llmviz import plots

        return plots.load(self._loading, **{**self._params(), **options})

    def _lines(self) -> list[tuple[str, str]]:
        out = [("model", self._loading.name)] if self._loading.name else []
        for s in self.steps:
            spent = "" if s["seconds"] is None else f"{1000 * s['seconds']:.1f} ms"
            told = ", ".join(x for x in (spent, s["found"]) if x)
            out.append((f"step {s['number']}, {s['title']}", told or s["state"]))
        if self._loading.n_read:
            out.append(
                ("hyperparameters", f"{len(self.hparams)}, {self._loading.n_read} from the file")
            )
        for m in self.memory:
            out.append((m["device"], held_text(m)))
        for x in self.kv["terms"]:
            out.append((f"{x['what']} cache", term_text(x)))
        if self.kv["terms"]:
            out.append(("KV cache", f"{self.kv['nbytes']} bytes for {self.kv['n_ctx']} cells"))
        return out

    def fallback_text(self) -> str:
        """Steps, times and the cache's formula, in plain lines."""
        return "\n".join(("llmviz LoadView", *(f"  {a}: {b}" for a, b in self._lines())))

    def fallback_html(self) -> str:
        """Steps, times and the cache's formula as a static table."""
        rows = "".join(
            f'<tr><th style="text-align:left">{escape(a)}</th>'
            f'<td style="text-align:left">{escape(b)}</td></tr>'
            for a, b in self._lines()
        )
        return f"<table><caption>llmviz LoadView</caption><tbody>{rows}</tbody></table>"


def held_text(memory: dict[str, Any]) -> str:
    """What a device holds, with its numbers."""
    parts = (("weights", "weights"), ("KV cache", "kv"), ("compute buffers", "compute"))
    held = ", ".join(f"{name} {memory[key] / 2**20:,.2f} MiB" for name, key in parts)
    return f"{held}; of {memory['total'] / 2**20:,.0f} MiB"


def term_text(term: dict[str, Any]) -> str:
    """One product of the formula with its numbers."""
    streams = f"{term['n_stream']} streams × " if term["n_stream"] > 1 else ""
    return (
        f"{term['n_layer']} layers × {streams}{term['n_cells']:,} cells × {term['width']:,} values "
        f"× {bytes_text(term)} ({term['type']}) = {term['nbytes'] / 2**20:,.2f} MiB"
    )


def bytes_text(term: dict[str, Any]) -> str:
    """Bytes of a value; of a quantized type bytes of a block by its values."""
    block = term["block_size"]
    return f"{term['type_size']} bytes" if block == 1 else f"{term['type_size']}/{block} bytes"


def size_dict(size: KVSize, hp: Any) -> dict[str, Any]:
    """A cache's size as the page gets it."""
    heads = {hp.n_head_kv(il) for il in range(hp.n_layer)}
    names = (
        *("what", "n_layer", "n_stream", "n_cells", "width", "type", "type_size", "layers"),
        *("block_size", "window", "nbytes"),
    )
    return {
        "terms": [{n: getattr(x, n) for n in names} for x in size.terms],
        "k": size.k_bytes,
        "v": size.v_bytes,
        "nbytes": size.nbytes,
        "per_token": size.bytes_per_token,
        "n_ctx": size.params.n_ctx,
        "n_ctx_seq": size.params.n_ctx_seq,
        "asked": size.asked,
        "rules": list(size.rules),
        "n_ctx_train": hp.n_ctx_train,
        "n_head_kv": heads.pop() if len(heads) == 1 else 0,
        "n_embd_head_k": hp.n_embd_head_k,
        "n_embd_head_v": hp.n_embd_head_v,
    }


def own_size(ctx: Any) -> dict[str, Any]:
    """What the context has allocated, empty where there is none."""
    total = getattr(getattr(ctx, "memory", None), "total_size", None)
    if total is None:
        return {}
    p = ctx.params
    return {
        "n_ctx": ctx.n_ctx,
        "asked": p.n_ctx,
        "n_seq_max": p.n_seq_max,
        "kv_unified": p.kv_unified,
        "type_k": p.type_k,
        "type_v": p.type_v,
        "nbytes": total(),
        "known": kv_size_of(ctx) is not None,
    }


def arena_bytes(ctx: Any) -> int:
    """Bytes of the memory that a context's graphs work in."""
    allocators = getattr(getattr(ctx, "_sched", None), "allocators", ())
    return sum(int(allocator.size) for allocator in allocators)


def copies_bytes(ctx: Any) -> int:
    """Bytes of the float32 copies that a context keeps of a float16 cache."""
    kv = getattr(ctx, "_kv", None)
    leaves = [*getattr(kv, "k", {}).values(), *getattr(kv, "v", {}).values()]
    return sum(leaf.mirror.nbytes for leaf in leaves if getattr(leaf, "mirror", None) is not None)
