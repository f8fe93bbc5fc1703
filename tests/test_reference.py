"""The reference engine itself: what the parity tests stand on."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from llmviz.errors import BatchError, GGUFError, LlmvizError, SamplerError, VocabError

TEXT = "The cat sat near the water."


@pytest.fixture
def dense(llamacpp: ModuleType, tiny_model: Callable[..., str]):
    with llamacpp.Reference(tiny_model(), n_ctx=256, n_seq_max=2, kv_unified=True) as reference:
        yield reference


def test_imports_nothing_of_the_engine() -> None:
    import llmviz.reference

    for path in Path(llmviz.reference.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("llmviz"):
                assert node.module == "llmviz.errors" or node.module.startswith("llmviz.reference")


def test_missing_wheel_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    from llmviz.reference import capi

    monkeypatch.setattr(capi, "api", capi.api.__wrapped__)  # not the library that is loaded already
    monkeypatch.setattr(capi, "WHEEL", "no_such_llama_wheel")
    assert not capi.available()
    assert "no_such_llama_wheel is missing: pip install" in capi.unavailable_reason()


def test_other_layout_is_refused(llamacpp: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    from llmviz.reference import capi

    monkeypatch.setattr(capi, "api", capi.api.__wrapped__)
    monkeypatch.setitem(capi.CONTEXT_DEFAULTS, "n_ctx", 4096)
    reason = capi.unavailable_reason()
    assert "another layout of llama_context_params (n_ctx is 512, not 4096)" in reason


def test_text_to_tokens_and_back(dense) -> None:
    ids = dense.tokenize(TEXT)
    assert ids[0] == dense.vocab.special["bos"] == 1
    assert dense.detokenize(ids[1:]) == TEXT.encode()
    assert dense.detokenize(ids, unparse_special=True) == b"<s> " + TEXT.encode()
    assert b"".join(dense.token_to_piece(t) for t in ids[1:]) == b" " + TEXT.encode()
    assert dense.tokenize("", add_special=False) == []
    long = "water " * 300
    assert dense.detokenize(dense.tokenize(long)[1:]).decode() == long
    assert dense.vocab.is_eog(2)
    assert dense.vocab.is_control(1)
    assert dense.vocab.text(3) == "<0x00>"
    with pytest.raises(VocabError, match="345 is outside the vocabulary"):
        dense.token_to_piece(345)


def test_nodes_carry_names_shapes_and_values(
    llamacpp: ModuleType, tiny_model: Callable[..., str]
) -> None:
    path = tiny_model()
    with llamacpp.Reference(path, n_ctx=256, nodes=True, type_k="f32", type_v="f32") as reference:
        ids = reference.tokenize(TEXT)
        assert reference.decode(ids) == 0
        computed = {n.name: n for n in reference.nodes if n.compute}
        skipped = [n.name for n in reference.nodes if not n.compute]
        assert skipped == ["node_1", "node_2", " (view)"]
        soft_max = computed["kq_soft_max-0"]
        assert (soft_max.op, soft_max.ne) == ("SOFT_MAX", (256, len(ids), 4, 1))
        assert soft_max.src == ("kq-0", "attn_inp_kq_mask")
        assert soft_max.value is not None and soft_max.value.shape == (1, 4, len(ids), 256)
        np.testing.assert_allclose(soft_max.value.sum(-1), 1, rtol=1e-5)
        assert computed["ffn_swiglu-0"].desc == "SWIGLU"
        logits = computed["result_output"].value
        assert logits is not None
        np.testing.assert_array_equal(logits[0, 0, -1], reference.logits_ith(-1))
    with llamacpp.Reference(path, n_ctx=256, want=lambda name: name == "l_out-1") as reference:
        reference.decode(ids)
        assert [n.name for n in reference.nodes] == ["l_out-1"]


def test_an_error_in_a_callback_comes_out(
    llamacpp: ModuleType, tiny_model: Callable[..., str]
) -> None:
    def want(name: str) -> bool:
        raise RuntimeError("no opinion")

    with (
        llamacpp.Reference(tiny_model(), n_ctx=256, want=want) as reference,
        pytest.raises(RuntimeError, match="no opinion"),
    ):
        reference.decode([1, 2, 3])


def test_batches_and_memory(dense) -> None:
    assert dense.decode([5, 6, 7, 8], seq_id=[0, 0, 0, [0, 1]], pos=[0, 1, 2, 3]) == 0
    assert (dense.seq_pos_min(0), dense.seq_pos_max(0), dense.seq_pos_max(1)) == (0, 3, 3)
    assert dense.decode([9], pos=[7], seq_id=[0]) == -1
    assert any("inconsistent sequence positions" in line.text for line in dense.log)
    assert dense.logits_ith(5) is None
    assert dense.seq_rm(0, 2, -1)
    assert dense.seq_pos_max(0) == 1
    with pytest.raises(BatchError, match="more than n_batch"):
        dense.decode([5] * 600)
    with pytest.raises(BatchError, match="in no sequence"):
        dense.decode([5], seq_id=[[]])
    dense.clear()
    assert dense.seq_pos_max(0) == -1


def test_state_moves_between_sequences(dense) -> None:
    dense.decode([5, 6, 7])
    state = dense.state_seq_get(0)
    assert dense.state_seq_set(state, 1) == len(state)
    assert dense.seq_pos_max(1) == 2
    assert dense.state_seq_set(state[: len(state) // 2], 1) == 0


def test_abort(dense) -> None:
    dense.set_abort(lambda: True)
    assert dense.decode([5, 6, 7]) == 2
    dense.set_abort(None)
    assert dense.decode([5, 6, 7]) == 0


def test_refusals_say_why(llamacpp: ModuleType, tiny_model: Callable[..., str], tmp_path) -> None:
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"nope, not a model")
    with pytest.raises(GGUFError, match="invalid magic"):
        llamacpp.Reference(bad)
    with pytest.raises(LlmvizError, match="cannot both be zero"):
        llamacpp.Reference(tiny_model(), n_batch=0, n_ubatch=0)
    with pytest.raises(TypeError, match="n_cxt"):
        llamacpp.Reference(tiny_model(), n_cxt=1)


def test_vocab_only_has_no_context(llamacpp: ModuleType, tiny_model: Callable[..., str]) -> None:
    with llamacpp.Reference(tiny_model(variant="bpe"), vocab_only=True) as reference:
        assert reference.vocab.type == "bpe"
        assert reference.detokenize(reference.tokenize(TEXT)) == TEXT.encode()
        assert "<|im_start|>" in reference.chat_template
        assert reference.meta["general.architecture"] == "llama"
        with pytest.raises(LlmvizError, match="no context"):
            reference.decode([1])


def test_overrides_and_progress(llamacpp: ModuleType, tiny_model: Callable[..., str]) -> None:
    seen: list[float] = []
    with llamacpp.Reference(
        tiny_model(),
        n_ctx=256,
        kv_overrides={"llama.context_length": 99},
        progress=lambda fraction: seen.append(fraction) or True,
    ) as reference:
        assert reference.model_value("n_ctx_train") == 99
    assert seen and seen[-1] == 1.0
    with pytest.raises(GGUFError):
        llamacpp.Reference(tiny_model(), progress=lambda fraction: False)


def test_seeded_draws(llamacpp: ModuleType) -> None:
    with llamacpp.ReferenceChain([("dist", 42)]) as chain:
        draws = [chain.apply([0.0] * 10).token for _ in range(12)]
        assert draws == [7, 1, 7, 5, 4, 0, 4, 3, 1, 6, 0, 7]
        chain.reset()
        assert chain.clone().apply([0.0] * 10).token == 7
        assert chain.apply([0.0] * 10).token == 7


def test_chain_step_by_step(llamacpp: ModuleType) -> None:
    logits = np.log([0.1, 0.2, 0.3, 0.4])
    with llamacpp.ReferenceChain([("top_k", 3), ("min_p", 0.6, 1), ("temp", 0.5)]) as chain:
        assert chain.names == ["top-k", "min-p", "temp"]
        top_k, min_p, temp = chain.apply_each(logits)
        assert (top_k.id.tolist(), top_k.sorted, top_k.selected) == ([3, 2, 1], True, -1)
        assert min_p.id.tolist() == [3, 2]
        np.testing.assert_allclose(temp.logit, min_p.logit * 2)
        assert chain.apply(logits).id.tolist() == [3, 2]


def test_samplers_with_more_parameters(llamacpp: ModuleType, dense) -> None:
    chain = llamacpp.ReferenceChain()
    chain.add("logit_bias", 4, {1: 2.0}).add("penalties", 4, 8, 2.0, 0.0, 0.0)
    chain.add("dry", dense, 1.0, 1.1, 2, 5, ["\n"])
    for token in (0, 1, 2, 0, 1):
        chain.accept(token)
    np.testing.assert_allclose(chain.apply([1.0, 0.0, -1.0, 3.0]).logit, [0.5, 1.0, -3.0, 3.0])
    with pytest.raises(SamplerError, match="no sampler 'hottest'"):
        chain.add("hottest")


def test_greedy_generation(dense) -> None:
    ids = dense.generate(TEXT, 5)
    assert 1 <= len(ids) <= 5
    dense.clear()
    assert dense.generate(dense.tokenize(TEXT), 5) == ids
