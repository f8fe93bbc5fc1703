"""On a real device: parity of a real model with the CPU backend. ``make test-gpu``.

The tests of the ops, the blocks and whole tiny models run there too, with ``LLMVIZ_GPU`` set.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import llmviz
from llmviz.batch import Batch
from llmviz.ggml.sched import never

pytestmark = pytest.mark.gpu

TEXT = "The lighthouse keeper climbed the stairs every evening just before the sun went down. He"


@pytest.mark.parametrize("weights", ["f32", "quantized"])
def test_smollm2_gives_the_cpus_logits(gpu: Any, smollm2_path: str, weights: str) -> None:
    cpu = llmviz.load(smollm2_path, weights=weights)
    there = llmviz.load(smollm2_path, weights=weights, devices=[gpu], n_gpu_layers=-1)
    ids = cpu.vocab.tokenize(TEXT * 3)
    rows = []
    for model in (cpu, there):
        ctx = model.context(n_ctx=256)
        ctx.decode(Batch.get_one(ids))
        out = [ctx.get_logits_ith(-1).copy()]
        for token in ids[:4]:  # the last two are launched as one recorded graph
            ctx.decode(Batch.get_one([token]))
            out.append(ctx.get_logits_ith(-1).copy())
        rows.append(out)
    for right, ours in zip(*rows, strict=True):
        spread = right - right.mean()
        error = np.abs(ours - right) / np.abs(spread).max()
        # an activation that rounds to another of 255 codes moves all that comes after it
        assert np.median(error) < (1e-3 if weights == "f32" else 0.05)
        assert right.argmax() in np.argsort(ours)[-3:]


def test_recorded_and_single_launches_give_the_same_bits(gpu: Any, smollm2_path: str) -> None:
    model = llmviz.load(smollm2_path, devices=[gpu], n_gpu_layers=-1)
    logits = []
    for records, want in ((True, never), (False, never), (True, None)):
        gpu.records = records
        ctx = model.context(n_ctx=256)
        for token in model.vocab.tokenize(TEXT)[:6]:
            for _ in ctx.decode_steps(Batch.get_one([token]), want):
                pass
        logits.append(ctx.get_logits_ith(-1).copy())
    np.testing.assert_array_equal(logits[0], logits[1])
    np.testing.assert_allclose(logits[2], logits[0], atol=1e-3)  # norms apart from their products


def test_a_device_that_is_full_says_so(gpu: Any) -> None:
    with pytest.raises(llmviz.LlmvizError, match="MiB free"):
        gpu.alloc(1 << 45, "weights")
