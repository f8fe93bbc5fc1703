"""Write the trained model as GGUF files: ``python -m training.builtin.export``.

One file with the weights as half floats, one in blocks of eight bits (norms stay single floats in
both). The folder ``--runs`` holds what `train` wrote of each course. Their loss curves are kept in
``runs``, beside this file. Size and checksum, which it prints, belong into ``llmviz/hub/known.py``.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
from pathlib import Path

import gguf
import numpy as np
import torch

from llmviz.ggml import quants
from training.builtin.corpus import COURSES
from training.builtin.model import Llama, Shape
from training.builtin.tokenizer import Tokenizer

FOLDER = Path(__file__).parents[2] / "llmviz" / "builtin"
RECORD = Path(__file__).parent / "runs"
RECORDS = ("loss.csv", "held_out.csv", "run.json")
FILES = {"F16": "llmviz-builtin.F16.gguf", "Q8_0": "llmviz-builtin.Q8_0.gguf"}
FTYPES = {"F16": gguf.LlamaFileType.MOSTLY_F16, "Q8_0": gguf.LlamaFileType.MOSTLY_Q8_0}


def load(run: Path) -> tuple[Llama, Tokenizer]:
    """The model and tokenizer of a training run."""
    saved = torch.load(run / "checkpoint.pt", weights_only=True)
    model = Llama(Shape(**saved["shape"]))
    model.load_state_dict(saved["model"])
    return model.eval(), Tokenizer.load(run / "merges.json")


def export(model: Llama, tok: Tokenizer, path: Path, kind: str) -> None:
    """Write one file; `kind` is the type of the matrices, ``"F16"`` or ``"Q8_0"``."""
    s = model.shape
    w = gguf.GGUFWriter(str(path), "llama")
    w.add_name("llmviz built-in")
    w.add_description("A llama of 0.96 million parameters that speaks a few hundred words.")
    w.add_license("mit")
    w.add_file_type(FTYPES[kind])
    w.add_vocab_size(s.n_vocab)
    w.add_context_length(s.n_ctx)
    w.add_embedding_length(s.n_embd)
    w.add_block_count(s.n_layer)
    w.add_feed_forward_length(s.n_ff)
    w.add_head_count(s.n_head)
    w.add_head_count_kv(s.n_head_kv)
    w.add_layer_norm_rms_eps(s.eps)
    w.add_rope_dimension_count(s.head_dim)
    w.add_rope_freq_base(s.freq_base)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list(tok.tokens)
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    w.add_token_types([control] * 2 + [normal] * (len(tok.tokens) - 2))
    w.add_token_merges([" ".join(m) for m in tok.merges])
    w.add_bos_token_id(tok.bos)
    w.add_eos_token_id(tok.eos)
    w.add_add_bos_token(True)
    w.add_add_eos_token(False)
    for name, weight in model.state_dict().items():
        if name == "output.weight" and s.tied:
            continue
        a = weight.numpy().astype(np.float32)
        name = name if name.endswith(".weight") else name + ".weight"
        if a.ndim == 1:
            w.add_tensor(name, a)
        elif kind == "F16":
            w.add_tensor(name, a.astype(np.float16))
        else:
            blocks = quants.quantize(a, kind)
            w.add_tensor(name, blocks, raw_dtype=gguf.GGMLQuantizationType[kind])
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path("build/builtin-model"))
    parser.add_argument("--to", type=Path, default=FOLDER)
    args = parser.parse_args()
    model, tok = load(args.runs / list(COURSES)[-1])
    for kind, name in FILES.items():
        path = args.to / name
        export(model, tok, path, kind)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        print(f"{path}: nbytes={path.stat().st_size:_}, sha256={digest}")
    if args.to == FOLDER:
        for course in COURSES:
            for name in RECORDS:
                (RECORD / course).mkdir(parents=True, exist_ok=True)
                shutil.copy(args.runs / course / name, RECORD / course / name)


if __name__ == "__main__":
    main()
