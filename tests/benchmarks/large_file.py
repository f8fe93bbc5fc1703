"""Writes a random Q4_0 file of a large model's shape, quickly: its blocks are a few megabytes of
random bytes, repeated.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import gguf
import numpy as np

from llmviz.ggml import quants
from llmviz.ggml.types import GGMLType, row_size

__all__ = ["write_large"]

_ROWS = 256  # of random blocks, used again and again


def write_large(
    path: str | os.PathLike[str],
    *,
    n_layer: int = 32,
    n_embd: int = 4096,
    n_head: int = 32,
    n_ff: int = 11008,
    n_vocab: int = 32000,
) -> int:
    """Write the file and return its size.

    The defaults are those of a model of seven billion weights. Values have the deviation that
    keeps a layer's output as large as its input.
    """
    w = gguf.GGUFWriter(path, "llama")
    w.add_name("random")
    w.add_context_length(4096)
    w.add_embedding_length(n_embd)
    w.add_block_count(n_layer)
    w.add_feed_forward_length(n_ff)
    w.add_head_count(n_head)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_dimension_count(n_embd // n_head)
    w.add_tokenizer_model("llama")
    special = ["<unk>", "<s>", "</s>"]
    pieces = [*special, *(f"<0x{b:02X}>" for b in range(256))]
    pieces += [f"▁w{i}" for i in range(n_vocab - len(pieces))]
    w.add_token_list(pieces)
    w.add_token_scores([-float(i) for i in range(n_vocab)])
    w.add_token_types([2, 3, 3] + [6] * 256 + [1] * (n_vocab - 259))
    shapes = dict(_shapes(n_layer, n_embd, n_ff, n_vocab))
    for name, ne in shapes.items():
        kind = GGMLType.F32 if len(ne) == 1 else GGMLType.Q4_0
        stored = (*ne[:0:-1], row_size(kind, ne[0]))
        if kind == GGMLType.F32:
            w.add_tensor_info(name, ne, np.dtype(np.float32), 4 * ne[0])
        else:
            size = int(np.prod(stored))
            q4 = gguf.GGMLQuantizationType.Q4_0
            w.add_tensor_info(name, stored, np.dtype(np.uint8), size, q4)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_ti_data_to_file()
    w.close()
    rng = np.random.default_rng(0)
    rows = {
        n_in: quants.quantize(
            rng.standard_normal((_ROWS, n_in), dtype=np.float32) * np.float32(n_in**-0.5), "Q4_0"
        ).tobytes()
        for n_in in {ne[0] for ne in shapes.values() if len(ne) == 2}
    }
    with open(path, "ab") as file:
        file.write(b"\0" * (-file.tell() % 32))
        for ne in shapes.values():
            if len(ne) == 1:
                data = np.ones(ne[0], np.float32).tobytes()
                file.write(data)
            else:
                whole, rest = divmod(ne[1], _ROWS)
                for _ in range(whole):
                    file.write(rows[ne[0]])
                file.write(rows[ne[0]][: rest * row_size(GGMLType.Q4_0, ne[0])])
            file.write(b"\0" * (-file.tell() % 32))
    return os.path.getsize(path)


def _shapes(
    n_layer: int, n_embd: int, n_ff: int, n_vocab: int
) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "token_embd.weight", (n_embd, n_vocab)
    yield "output_norm.weight", (n_embd,)
    yield "output.weight", (n_embd, n_vocab)
    for il in range(n_layer):
        b = f"blk.{il}."
        yield b + "attn_norm.weight", (n_embd,)
        for name in ("q", "k", "v", "output"):
            yield b + f"attn_{name}.weight", (n_embd, n_embd)
        yield b + "ffn_norm.weight", (n_embd,)
        for name in ("gate", "up"):
            yield b + f"ffn_{name}.weight", (n_embd, n_ff)
        yield b + "ffn_down.weight", (n_ff, n_embd)
