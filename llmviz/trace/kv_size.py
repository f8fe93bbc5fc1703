"""What the KV cache of a context would take: worked out from its parameters, nothing allocated.

The parameters are settled by the same `llmviz.context_params.resolve` as a context's, and the
sizes multiplied out as `llmviz.memory` makes its arrays; a test holds both equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llmviz.context_params import ContextParams, resolve
from llmviz.errors import LlmvizError
from llmviz.ggml.types import TYPES, GGMLType
from llmviz.model.cparams import CParams

__all__ = ["KVSize", "KVTerm", "kv_size", "kv_size_of"]


@dataclass(frozen=True, slots=True)
class KVTerm:
    """One product of the formula.

    Attributes
    ----------
    what : str
        ``"K"`` or ``"V"``.
    n_layer, n_stream, n_cells, width : int
        Layers of this shape; streams (one per sequence unless they share); cells of a stream;
        values of one token.
    type : str
        ``"f16"``.
    type_size, block_size : int
        Bytes of a value; of a quantized type bytes of a block, and its values.
    layers : str
        Which layers, where not all have this shape.
    window : int
        How many tokens these layers see, 0 for all.
    """

    what: str
    n_layer: int
    n_stream: int
    n_cells: int
    width: int
    type: str
    type_size: int
    layers: str = ""
    window: int = 0
    block_size: int = 1

    @property
    def nbytes(self) -> int:
        """The product."""
        n_values = self.n_layer * self.n_stream * self.n_cells * self.width
        return n_values // self.block_size * self.type_size


@dataclass(frozen=True, slots=True)
class KVSize:
    """The size of a cache, and how it comes about.

    Attributes
    ----------
    terms : tuple of KVTerm
    params : CParams
        What the parameters are settled to.
    asked : int
        ``n_ctx`` as it was asked for; 0 is the model's training length.
    rules : tuple of str
        What was padded or shared out, in order.
    """

    terms: tuple[KVTerm, ...]
    params: CParams
    asked: int
    rules: tuple[str, ...]

    @property
    def k_bytes(self) -> int:
        """Bytes of K."""
        return sum(t.nbytes for t in self.terms if t.what == "K")

    @property
    def v_bytes(self) -> int:
        """Bytes of V."""
        return sum(t.nbytes for t in self.terms if t.what == "V")

    @property
    def nbytes(self) -> int:
        """Bytes of both."""
        return self.k_bytes + self.v_bytes

    @property
    def bytes_per_token(self) -> float:
        """What one more cell costs."""
        return self.nbytes / self.params.n_ctx


def kv_size(hp: Any, **params: Any) -> KVSize:
    """The size of the cache that ``model.context(**params)`` would make.

    Parameters
    ----------
    hp : HParams
    **params
        Fields of `ContextParams`; ``n_ctx``, ``n_seq_max``, ``kv_unified``, ``type_k`` and
        ``type_v`` matter here; with windows also ``n_ubatch`` and ``swa_full``.

    Raises
    ------
    LlmvizError
        A parameter that a context would refuse too.
    """
    p = ContextParams.from_kwargs(params)
    c = resolve(p, hp)
    n_stream = 1 if c.kv_unified or c.n_seq_max == 1 else c.n_seq_max
    # V is kept transposed without flash attention: every layer is as wide as the widest
    widest = max(hp.n_embd_v_gqa(il) for il in range(len(hp.n_head_kv_arr)))
    rules = _rules(p, c, hp)
    terms: list[KVTerm] = []
    for layers, n_cells, window in _caches(p, c, hp, n_stream, rules):
        for what, kind, width in (
            ("K", c.type_k, hp.n_embd_k_gqa),
            ("V", c.type_v, hp.n_embd_v_gqa),
        ):
            widths = {il: width(il) for il in layers}
            if what == "V" and not c.flash_attn:
                widths = {il: widest for il, n in widths.items() if n}
            terms += _terms(what, widths, n_stream, n_cells, kind, window, hp.n_layer)
    terms.sort(key=lambda x: x.what)
    return KVSize(tuple(terms), c, p.n_ctx, tuple(rules))


def kv_size_of(ctx: Any) -> KVSize | None:
    """The size of a context's cache; None where its memory is of a kind that this does not know."""
    names = (
        *("n_ctx", "n_batch", "n_ubatch", "n_seq_max", "kv_unified", "type_k", "type_v"),
        *("flash_attn_type", "swa_full", "attention_type"),
    )
    try:
        size = kv_size(ctx.model.hparams, **{n: getattr(ctx.params, n) for n in names})
    except LlmvizError:
        return None
    total = getattr(ctx.memory, "total_size", None)
    return size if total is not None and total() == size.nbytes else None


def _caches(
    p: ContextParams, c: CParams, hp: Any, n_stream: int, rules: list[str]
) -> list[tuple[list[int], int, int]]:
    """Layers, cells of a stream and window of each cache; rules that decide them are added."""
    layers = [il for il in range(hp.n_layer) if hp.n_head(il) and hp.n_head_kv(il)]
    if getattr(hp, "swa_type", "none") == "none":
        return [(layers, c.n_ctx_seq, 0)]
    from llmviz.memory.kv_cache_iswa import swa_cells

    n_cells = c.n_ctx_seq
    if p.swa_full:
        rules.append("swa_full: layers with a window keep as many cells as the others")
    else:
        n_cells = swa_cells(c.n_ctx_seq, hp.n_swa, c.n_seq_max, c.n_ubatch, n_stream == 1)
        shared = f" × {c.n_seq_max} sequences" if n_stream == 1 and c.n_seq_max > 1 else ""
        rules.append(
            f"layers with a window of {hp.n_swa:,} keep it and one ubatch: at most "
            f"{hp.n_swa:,}{shared} + {c.n_ubatch:,}, rounded up to a multiple of 256: {n_cells:,}"
        )
    dense = [il for il in layers if not hp.is_swa(il)]
    windowed = [il for il in layers if hp.is_swa(il)]
    return [(dense, c.n_ctx_seq, 0), (windowed, n_cells, hp.n_swa)]


def _terms(
    what: str,
    widths: dict[int, int],
    n_stream: int,
    n_cells: int,
    kind: str,
    window: int,
    n_layer: int,
) -> list[KVTerm]:
    out = []
    traits = TYPES[GGMLType[kind.upper()]]
    for width in sorted(set(widths.values())):
        of = [il for il, w in widths.items() if w == width]
        which = "" if len(of) == n_layer else _runs(of)
        if width:
            shape = (what, len(of), n_stream, n_cells, width)
            sizes = (traits.type_size, which, window, traits.block_size)
            out.append(KVTerm(*shape, kind, *sizes))
    return out


def _runs(numbers: list[int]) -> str:
    """``"0..3, 7"`` for 0, 1, 2, 3, 7."""
    runs: list[list[int]] = []
    for n in numbers:
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    return ", ".join(str(a) if a == b else f"{a}..{b}" for a, b in runs)


def _rules(p: ContextParams, c: CParams, hp: Any) -> list[str]:
    out = []
    n_ctx = p.n_ctx or hp.n_ctx_train
    if not p.n_ctx:
        out.append(f"n_ctx 0 takes the model's training length, {n_ctx:,}")
    padded = -(-n_ctx // 256) * 256
    if padded != n_ctx:
        out.append(f"n_ctx {n_ctx:,} is rounded up to a multiple of 256: {padded:,}")
    if not c.kv_unified and c.n_seq_max > 1:
        share = padded // c.n_seq_max
        out.append(
            f"shared out to {c.n_seq_max} sequences: {padded:,} / {c.n_seq_max} = {share:,} each"
        )
        if share != c.n_ctx_seq:
            out.append(f"each rounded up to a multiple of 256: {c.n_ctx_seq:,}")
        if c.n_ctx != padded:
            out.append(f"so n_ctx becomes {c.n_seq_max} × {c.n_ctx_seq:,} = {c.n_ctx:,}")
    elif c.kv_unified and c.n_seq_max > 1:
        out.append(f"kv_unified: {c.n_seq_max} sequences share the {c.n_ctx:,} cells")
    return out
