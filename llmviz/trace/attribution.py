"""Who pushed a token: a logit as the sum of what every head and every feed-forward network wrote.

The residual stream is a sum, and a logit is linear in it once the final norm's scale is held where
it was: so the logit splits, without a rest, into one share per head, one per feed-forward network
and one of the embedding ("direct logit attribution": Elhage et al., "A Mathematical Framework for
Transformer Circuits", 2021). It measures the direct path only: a head that works through a later
head shows there, not here. Architectures whose residual stream is a plain sum, as `llama`'s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from llmviz.errors import LlmvizError
from llmviz.ggml.decode import decoded, decoded_rows

if TYPE_CHECKING:
    from llmviz.model.model import Model
    from llmviz.trace.recorder import Recorder

__all__ = ["Attribution", "attribute", "attribution_names", "check_splittable"]


@dataclass(frozen=True, slots=True)
class Attribution:
    """Shares of one logit.

    Attributes
    ----------
    token : int
        Whose logit.
    logit : float
        The sum of all shares; the model's own logit up to rounding.
    heads : ndarray of float32, [n_layer, n_head]
        Share of each attention head.
    ffn : ndarray of float32, [n_layer]
        Share of each feed-forward network.
    embedding : float
        Share of the token's own embedding.
    biases : float
        Share of the biases of attention's output and of the logits, where the file has them.
    """

    token: int
    logit: float
    heads: np.ndarray
    ffn: np.ndarray
    embedding: float
    biases: float

    def top_heads(self, k: int = 5) -> list[tuple[int, int, float]]:
        """The `k` heads with the largest share: (layer, head, share), largest first."""
        order = np.argsort(-self.heads, axis=None, kind="stable")[:k]
        return [
            (int(i) // self.heads.shape[1], int(i) % self.heads.shape[1], float(v))
            for i, v in zip(order, self.heads.reshape(-1)[order], strict=True)
        ]


def attribution_names(model: Model) -> frozenset[str]:
    """The nodes whose values `attribute` needs; hand ``names.__contains__`` to `Recorder.ask`."""
    layers = range(model.hparams.n_layer)
    names = {f"kqv_out-{il}" for il in layers} | {_ffn_name(model, il) for il in layers}
    return frozenset(names | {_embedding_name(model), f"l_out-{model.hparams.n_layer - 1}"})


def check_splittable(model: Model) -> None:
    """Refuse a model with layers that lack heads or a feed-forward network.

    Raises
    ------
    LlmvizError
        Which layer, and what it lacks.
    """
    hp = model.hparams
    for il in range(hp.n_layer):
        lacks = "a feed-forward network" if not hp.n_ff(il) and not hp.n_expert else ""
        if hp.n_head(il) != hp.n_head() or not hp.n_head_kv(il):
            lacks = f"the {hp.n_head()} heads of layer 0"
        if lacks:
            raise LlmvizError(
                f"layer {il} of this model lacks {lacks}: a logit is split into shares of heads "
                "and feed-forward networks only where all layers have them"
            )


def _ffn_name(model: Model, il: int) -> str:
    """The node that the layer adds to the stream: experts without a shared one have a name of
    their own.
    """
    weights = getattr(model, "weights", None)
    if weights is not None and il < len(weights.layers):
        layer = weights.layers[il]
        if layer.ffn_gate_inp is not None and layer.ffn_gate_shexp is None:
            return f"ffn_moe_out-{il}"
    return f"ffn_out-{il}"


def _embedding_name(model: Model) -> str:
    kind = getattr(model, "architecture", None)
    return getattr(kind, "embedding_node", "embd")


def attribute(model: Model, recorder: Recorder, token: int) -> Attribution:
    """Split the logit of `token` at the newest position of the last pass.

    Parameters
    ----------
    model : Model
    recorder : Recorder
        Must hold the values of `attribution_names` of one pass that has ended.
    token : int
        Any token of the vocabulary, chosen or not.

    Raises
    ------
    LlmvizError
        A value was not kept, the values are of different passes, there is no such token, or a
        layer lacks heads or a feed-forward network.
    """
    check_splittable(model)
    hp, weights = model.hparams, model.weights
    if weights is None or weights.output is None or weights.output_norm is None:
        raise LlmvizError("the model has no output matrix to split a logit with")
    if not 0 <= token < hp.n_vocab:
        raise LlmvizError(f"there is no token {token}: ids are 0..{hp.n_vocab - 1}")
    passes = set()

    def last(name: str) -> np.ndarray:
        kept = recorder.value(name)
        if kept is None:
            raise LlmvizError(
                f"{name} was not kept: recorder.ask(owner, attribution_names(model).__contains__) "
                "before the pass, with a budget that holds it"
            )
        passes.add(kept.pass_)
        return kept.array.reshape(-1, kept.array.shape[-1])[-1].astype(np.float64)  # [n_embd]

    final = last(f"l_out-{hp.n_layer - 1}")
    scale = 1.0 / np.sqrt((final**2).mean() + hp.f_norm_rms_eps)
    row = decoded_rows(weights.output, token).astype(np.float64)  # [n_embd]
    # what one unit along each residual dimension adds to the logit: [n_embd]
    direction = scale * decoded(weights.output_norm) * row

    n_head, head = hp.n_head(), hp.n_embd_head_v
    heads = np.zeros((hp.n_layer, n_head), np.float32)
    ffn = np.zeros(hp.n_layer, np.float32)
    biases = 0.0
    if weights.output_b is not None:
        biases = float(decoded(weights.output_b)[token])
    for il, layer in enumerate(weights.layers):
        assert layer.wo is not None
        through = direction @ decoded(layer.wo)  # [n_embd_head * n_head]
        heads[il] = (last(f"kqv_out-{il}") * through).reshape(n_head, head).sum(axis=1)
        ffn[il] = direction @ last(_ffn_name(model, il))
        if layer.wo_b is not None:
            biases += float(direction @ decoded(layer.wo_b))
    embedding = float(direction @ last(_embedding_name(model)))
    if len(passes) > 1:
        raise LlmvizError(
            "the values kept are of different passes: let the pass come to its end, then ask again"
        )
    logit = float(heads.sum(dtype=np.float64) + ffn.sum(dtype=np.float64)) + embedding + biases
    return Attribution(token, logit, heads, ffn, embedding, biases)
