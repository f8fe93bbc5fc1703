"""The llama architecture in torch, as small as it can be written: for training only.

Names and layouts are those of the file that `export` writes, so nothing has to be permuted: RoPE
turns neighbouring pairs of values, weights are [n_out, n_in].
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Shape:
    """Hyperparameters."""

    n_vocab: int
    n_ctx: int = 256
    n_embd: int = 128
    n_layer: int = 4
    n_head: int = 4
    n_head_kv: int = 2
    n_ff: int = 352
    eps: float = 1e-5
    freq_base: float = 10000.0
    tied: bool = False

    @property
    def head_dim(self) -> int:
        """Values of a head."""
        return self.n_embd // self.n_head


class Norm(nn.Module):
    """RMS norm."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(shape.n_embd)), shape.eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


class Block(nn.Module):
    """Attention and feed-forward, each added to the stream."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        n, kv = shape.n_embd, shape.n_head_kv * shape.head_dim
        self.attn_norm, self.ffn_norm = Norm(shape), Norm(shape)
        self.attn_q, self.attn_output = nn.Linear(n, n, False), nn.Linear(n, n, False)
        self.attn_k, self.attn_v = nn.Linear(n, kv, False), nn.Linear(n, kv, False)
        self.ffn_gate, self.ffn_up = (
            nn.Linear(n, shape.n_ff, False),
            nn.Linear(n, shape.n_ff, False),
        )
        self.ffn_down = nn.Linear(shape.n_ff, n, False)

    def forward(self, x: Tensor, turn: Tensor, mask: Tensor | None) -> Tensor:
        """``x``: [n_seq, n_tokens, n_embd]; ``turn``: cos and sin, [2, n_tokens, head_dim / 2]."""
        s = self.shape
        y = self.attn_norm(x)
        q, k, v = (  # [n_seq, heads, n_tokens, head_dim]
            part(y).unflatten(-1, (-1, s.head_dim)).transpose(1, 2)
            for part in (self.attn_q, self.attn_k, self.attn_v)
        )
        q, k = rotated(q, turn), rotated(k, turn)
        group = s.n_head // s.n_head_kv
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        x = x + self.attn_output(y.transpose(1, 2).flatten(-2))
        y = self.ffn_norm(x)
        return x + self.ffn_down(F.silu(self.ffn_gate(y)) * self.ffn_up(y))


def rotated(x: Tensor, turn: Tensor) -> Tensor:
    """RoPE: each pair of neighbouring values turned by its angle."""
    pairs = torch.view_as_complex(x.contiguous().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * torch.complex(turn[0], turn[1])).flatten(-2)


class Llama(nn.Module):
    """The whole model: ids to logits."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.token_embd = nn.Embedding(shape.n_vocab, shape.n_embd)
        self.blk = nn.ModuleList(Block(shape) for _ in range(shape.n_layer))
        self.output_norm = Norm(shape)
        self.output = nn.Linear(shape.n_embd, shape.n_vocab, False)
        for name, weight in self.named_parameters():
            if weight.ndim == 2:
                std = weight.shape[1] ** -0.5
                if "token_embd" in name or name == "output.weight":
                    std = 0.05
                elif "attn_output" in name or "ffn_down" in name:
                    std /= (2 * shape.n_layer) ** 0.5
                nn.init.normal_(weight, std=std)
        if shape.tied:
            self.output.weight = self.token_embd.weight
        half = torch.arange(0, shape.head_dim, 2) / shape.head_dim
        angle = torch.arange(shape.n_ctx)[:, None] * shape.freq_base**-half
        self.register_buffer("turn", torch.stack((angle.cos(), angle.sin())), persistent=False)

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """``ids``: [n_seq, n_tokens]; logits: [n_seq, n_tokens, n_vocab]."""
        x = self.token_embd(ids)
        turn = self.turn[:, : ids.shape[1]]
        for block in self.blk:
            x = block(x, turn, mask)
        return self.output(self.output_norm(x))
