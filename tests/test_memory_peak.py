"""The most memory a whole process takes, Python and compiler included, from its start to a text.

Bounds are above the file's size: its pages are counted where they are mapped. The kernels are
compiled beforehand in another process, as they are after a first run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from benchmarks.children import run

from llmviz.hub.known import KNOWN

PREPARE = """
import sys
from llmviz.ggml.backends import kernels
from llmviz.ggml.dots import DOTS
from llmviz.gguf import open_gguf
if not kernels.usable():
    sys.exit("no kernels here")
types = {{t.type for t in open_gguf({path!r}).tensor_infos.values() if t.type in DOTS}}
kernels.compile_now(t for t in types if not kernels.warm([t]))
"""

DECODE = """
import warnings
warnings.simplefilter("ignore")
import llmviz
from llmviz.batch import Batch
mark("import")
model = llmviz.load({path!r}, weights={weights!r})
mark("load")
ctx = model.context(n_ctx=512, n_threads=1, n_threads_batch=1)
ids = model.vocab.tokenize("Once upon a time, there was a little robot in a big house. " * 8)[:64]
assert len(ids) == 64
ctx.decode(Batch.get_one(ids))
mark("prefill")
for _ in range(8):
    ctx.decode(Batch.get_one([int(ctx.get_logits_ith(-1).argmax())]))
mark("decode")
"""

ON = {"LLMVIZ_KERNELS": "on", "OPENBLAS_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
MIB = 2**20


def peak(path: str, weights: str, at: str = "decode") -> int:
    """Most bytes resident in a process until it has loaded, or has decoded 8 tokens after 64."""
    if not sys.platform.startswith("linux"):
        pytest.skip("peak memory with mapped files is counted on Linux")
    if weights == "quantized":
        pytest.importorskip("numba")
        run(PREPARE.format(path=path), ON)
    program = DECODE.format(path=path, weights=weights)
    if at == "load":
        program = program.partition("ctx =")[0]
    return run(program, ON).peak[at]


def test_smollm2_in_blocks(smollm2_path: str, figures: Callable[[str], None]) -> None:
    size = os.path.getsize(smollm2_path)
    most = peak(smollm2_path, "quantized")
    figures(f"file {size / 1e6:.0f} MB, peak {most / 1e6:.0f} MB")
    assert most <= size + 250e6


def test_gemma3_in_blocks(figures: Callable[[str], None]) -> None:
    given = os.environ.get("LLMVIZ_GEMMA3") or KNOWN["gemma3-270m"].path
    if given is None:
        pytest.skip("Gemma 3 270M is not in the cache: llmviz models fetch gemma3-270m")
    size = os.path.getsize(given)
    most = peak(str(given), "quantized")
    figures(f"file {size / 1e6:.0f} MB, peak {most / 1e6:.0f} MB")
    assert most <= size + 250e6


def test_float32_does_not_keep_the_file_too(
    smollm2_path: str, figures: Callable[[str], None]
) -> None:
    """Pages that weights were decoded from are let go one tensor after the other."""
    values = 4 * 134_515_008
    most = peak(smollm2_path, "f32", at="load")
    figures(f"weights {values / 1e6:.0f} MB, peak {most / 1e6:.0f} MB")
    assert most <= values + 120e6


def test_opening_reads_no_weights(tmp_path: Path) -> None:
    """A file of 3 GB, all of it a hole, opens in the memory that its header takes."""
    if not sys.platform.startswith("linux"):
        pytest.skip("sparse files and peak memory as on Linux")
    import gguf

    path = tmp_path / "large.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    shape, kind = (1 << 20, 1536 // 32 * 18), gguf.GGMLQuantizationType.Q4_0
    for i in range(4):
        writer.add_tensor_info(f"t{i}", shape, np.dtype(np.uint8), shape[0] * shape[1], kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    with open(path, "r+b") as file:
        file.truncate(os.path.getsize(path) + 4 * shape[0] * shape[1] + 64)
    child = run(
        f"import llmviz; mark('import'); g = llmviz.open_gguf({str(path)!r}); "
        "assert g.n_bytes > 3 << 30; mark('open')"
    )
    assert child.peak["open"] - child.peak["import"] < 8 * MIB
