"""The file view: every header byte has a field, the numbers of a block are those of its bytes."""

from __future__ import annotations

import time

import numpy as np
import pytest

pytest.importorskip("anywidget")

import gguf as official

from llmviz import show
from llmviz.errors import LlmvizError
from llmviz.ggml.quants import get
from llmviz.gguf import open_gguf
from llmviz.trace.blocks import inspect_block, n_blocks
from llmviz.widgets.gguf import ACROSS, HEX_ROWS, TABLE_ROWS, GGUFView

from . import host
from .test_page import CONTRAST

LINEAR = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q4_K", "Q5_K", "Q6_K")
OTHERS = ("Q3_K", "IQ4_NL", "IQ4_XS", "IQ2_XS", "IQ3_S", "IQ1_S", "TQ1_0", "MXFP4")
QUANTS = ("F32", "F16", "BF16", *LINEAR, *OTHERS)
HOSTILE = "<img src=x onerror=alert(1)>\u202e"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A small file with one tensor of each type, and a key that wants to be markup."""
    out = tmp_path_factory.mktemp("gguf") / "each.gguf"
    writer = official.GGUFWriter(out, "llama")
    writer.add_name(HOSTILE)
    writer.add_array("some.words", ["alpha", "beta", "gamma", HOSTILE])
    writer.add_array("some.numbers", list(range(40)))
    rng = np.random.default_rng(0)
    for name in QUANTS:
        kind = official.GGMLQuantizationType[name]
        block, size = official.GGML_QUANT_SIZES[kind]
        raw = rng.integers(0, 256, (4, 512 // block * size), dtype=np.uint8)
        if block > 1:  # half floats among the bytes: small ones
            each = raw.reshape(-1, size).copy().view(get_dtype(name))
            for field in ("d", "m", "dmin"):
                if field in (each.dtype.names or ()):
                    each[field] = rng.uniform(0.001, 0.1, each[field].shape)
            if name == "MXFP4":
                each["e"] = 120
            raw = each.view(np.uint8).reshape(4, -1)
        else:
            values = rng.standard_normal((4, 512)).astype(np.float32)
            raw = official.quants.quantize(values, kind).view(np.uint8).reshape(4, -1)
        writer.add_tensor(f"blk.0.{name.lower()}.weight", raw, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out


def get_dtype(name: str) -> np.dtype:
    from llmviz.ggml.types import GGMLType

    return get(GGMLType[name]).block_dtype


@pytest.mark.parametrize("name", QUANTS)
def test_a_block_is_its_bytes_codes_and_scales(path, name):
    with open_gguf(path) as g:
        info = g.tensor_infos[f"blk.0.{name.lower()}.weight"]
        whole = official.quants.dequantize(
            np.array(g.tensor_bytes(info)).reshape(4, -1), official.GGMLQuantizationType[name]
        ).reshape(-1)
        seen = []
        for index in range(n_blocks(info)):
            b = inspect_block(g, info, index)
            seen.append(b.values)
            assert sum(p.size for p in b.parts) == len(b.raw) and len(b.holders) == len(b.values)
            if len(b.codes):
                again = b.scale * (b.codes - b.zero) + b.offset
                np.testing.assert_allclose(again, b.values, rtol=1e-5, atol=1e-6)
                allowed = b.table or range(-128 if name == "Q8_0" else 0, b.levels)
                assert set(b.codes.tolist()) <= set(allowed) and "value" in b.formula
        np.testing.assert_array_equal(np.concatenate(seen), whole)
        with pytest.raises(IndexError, match="no block"):
            inspect_block(g, info, n_blocks(info))


@pytest.mark.parametrize("name", LINEAR)
def test_a_byte_changes_exactly_the_values_that_it_is_said_to_hold(path, name):
    with open_gguf(path) as g:
        info = g.tensor_infos[f"blk.0.{name.lower()}.weight"]
        kind, b = get(info.type), inspect_block(g, info, 0)
        codes = {"qs", "ql", "qh"}
        for part in b.parts:
            for k in range(part.start, part.start + part.size) if part.name in codes else ():
                raw = np.frombuffer(b.raw, np.uint8).copy()
                raw[k] ^= 0xFF
                changed = np.flatnonzero(kind.dequantize(raw).reshape(-1) != b.values)
                said = [i for i, held in enumerate(b.holders) if k in held]
                assert set(changed.tolist()) <= set(said) and said


def test_every_byte_of_the_header_has_its_field(path):
    view = GGUFView(path)
    header = path.read_bytes()[: view.gguf.data_offset]
    at, seen = 0, b""
    while at < len(header):
        view.hex_first = at
        first, raw = view.hex_first, bytes(view.hex_bytes)
        owner = np.frombuffer(view.hex_owner, "<i4")
        assert len(owner) == len(raw)
        known = {f["i"]: f for f in view.hex_fields}
        for k in range(len(raw)):
            f = known[int(owner[k])]
            assert f["offset"] <= first + k < f["offset"] + f["size"] and f["meaning"]
        seen = seen[:first] + raw
        at += HEX_ROWS * ACROSS
    assert seen == header
    groups = view.file["n_groups"]
    covered = 0
    for first in range(0, groups, 14):
        view.tree_first = first
        for g in view.tree:
            if g["offset"] == covered:
                covered += g["size"]
    assert covered == len(header)


def test_fields_bytes_and_elements_find_each_other(path):
    view = GGUFView(path)
    fields = view.gguf.fields
    words = next(i for i, f in enumerate(fields) if f.name == "some.words")
    view.field = words
    owner = np.frombuffer(view.hex_owner, "<i4")
    assert words in owner and any(f["i"] == words for g in view.tree for f in g["fields"])
    start, size = fields[words].element_span(2)
    found = view.byte(start + size - 1)
    assert (found["element"], found["text"]) == (2, "'gamma'")
    with pytest.raises(IndexError):
        view.byte(view.gguf.data_offset)
    view.field = 10**6
    assert view.field == len(fields) - 1


def test_the_table_sorts_and_filters(path):
    view = GGUFView(path)
    infos = view.gguf.tensor_infos.values()
    for sort, key in (("size", lambda i: i.nbytes), ("name", lambda i: i.name)):
        for down in (False, True):
            view.sort, view.descending = sort, down
            field = {"size": "size", "name": "name"}[sort]
            want = sorted((key(i) for i in infos), reverse=down)
            assert [r[field] for r in view.table] == want[:TABLE_ROWS]
    view.filter = "q4 WEIGHT"
    assert {r["type"] for r in view.table} == {"Q4_0", "Q4_1", "Q4_K", "IQ4_NL", "IQ4_XS"}
    assert view.table_total == 5
    view.filter = "nothing like this"
    assert view.table == [] and view.table_total == 0


def test_bytes_by_type_are_the_whole_file(path):
    view = GGUFView(path)
    assert sum(x["nbytes"] for x in view.types) == path.stat().st_size == view.file["size"]


def test_a_large_file_opens_by_its_header(tmp_path):
    """Seven billion weights that take no disk: the data section is a hole."""
    out = tmp_path / "7b.gguf"
    writer = official.GGUFWriter(out, "llama")
    writer.add_array("tokenizer.ggml.tokens", [f"token{i}" for i in range(32000)])
    kind = official.GGMLQuantizationType.Q4_0
    n, size = 0, 4096 * 11008 // 32 * 18
    for layer in range(32):
        for name in ("ffn_up", "ffn_gate", "ffn_down", "attn_q", "attn_output"):
            shape = (11008, 4096 // 32 * 18)
            writer.add_tensor_info(
                f"blk.{layer}.{name}.weight", shape, np.dtype(np.uint8), size, raw_dtype=kind
            )
            n += size
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    with open(out, "ab") as f:
        f.truncate(f.tell() + n + 64)
    start = time.perf_counter()
    view = GGUFView(out)
    assert time.perf_counter() - start < 1.5
    assert view.file["size"] > 4 * 10**9 and view.block_about["type"] == "Q4_0"
    view.close()


def test_misuse_is_named(path):
    with pytest.raises(TypeError, match="feild"):
        GGUFView(path, feild=3)
    with pytest.raises(LlmvizError, match="a path, a model or a GGUF"):
        GGUFView(object())
    with pytest.raises(LlmvizError):
        GGUFView(__file__)
    view = show.gguf(path, tensor="no such tensor")
    assert view.block_about["reason"]
    view.close()
    assert view.gguf.closed


def test_fallbacks_and_figures(path, tmp_path):
    view = GGUFView(path)
    assert "<img" not in view.fallback_html() and "GGUFView" in view.fallback_text()
    for size in ("page", "slide", "column"):
        view.tensor = "blk.0.q5_k.weight"
        view.figure(size=size, theme="dark").savefig(tmp_path / f"{size}.svg")
    assert "type-Q4_0" in (tmp_path / "page.svg").read_text()


# -- the page ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser():
    with host.chromium() as running:
        yield running


@pytest.fixture
def opened(browser):
    pages = []

    def open_view(view, scheme="light", width=1240):
        context = browser.new_context(
            viewport={"width": width + 40, "height": 1600}, color_scheme=scheme
        )
        page = host.Hosted(context.new_page(), view, width=width)
        pages.append((context, page))
        return page

    yield open_view
    for context, page in pages:
        context.close()
        assert page.problems == []


@pytest.mark.browser
def test_hovering_one_lights_the_other(opened, path):
    view = GGUFView(path)
    page = opened(view).page
    raw = path.read_bytes()
    shown = page.eval_on_selector_all(
        ".lv-gguf-line > .lv-gguf-x[data-k]", "l => l.map(e => parseInt(e.textContent, 16))"
    )
    assert bytes(shown) == raw[: HEX_ROWS * ACROSS]
    page.hover("[data-field='1']")  # the version
    lit = page.eval_on_selector_all(
        ".lv-gguf-line > .lv-gguf-x[data-lit]", "l => l.map(e => +e.dataset.k)"
    )
    assert lit == [4, 5, 6, 7]
    page.hover(".lv-gguf-line > [data-k='9']")
    assert page.locator(".lv-gguf-field.lv-gguf-lit").get_attribute("data-field") == "2"
    assert "n_tensors" in page.inner_text(".lv-gguf-says")
    page.click(".lv-gguf-line > [data-k='40']")
    page.wait_for_selector(".lv-gguf-group[data-open][data-group='1']")
    assert page.locator("img").count() == 0 and "\u202e" not in page.inner_text("body")


@pytest.mark.browser
def test_an_array_names_the_element_under_the_pointer(opened, path):
    view = GGUFView(path)
    words = next(i for i, f in enumerate(view.gguf.fields) if f.name == "some.words")
    view.field = words
    page = opened(view).page
    start, size = view.gguf.fields[words].element_span(1)
    page.hover(f".lv-gguf-line > [data-k='{start + 8 - view.hex_first}']")
    page.wait_for_function(
        "document.querySelector('.lv-gguf-says').textContent.includes(\"element 1 of 4: 'beta'\")"
    )
    lit = page.locator(".lv-gguf-line > .lv-gguf-x[data-lit]")
    assert lit.count() == size


@pytest.mark.browser
@pytest.mark.parametrize("name", ["q4_1", "q6_k", "f16"])
def test_what_the_bytes_of_a_block_mean(opened, path, name):
    view = GGUFView(path)
    page = opened(view).page
    page.fill("input[type=search]", f"0.{name}.")
    page.wait_for_function("document.querySelectorAll('[data-tensor]').length == 1")
    page.click(f"[data-tensor='blk.0.{name}.weight'] button")
    page.wait_for_function(f"document.querySelector('.lv-gguf-block').innerText.includes('{name}')")
    values = np.frombuffer(view.block_values, "<f4")
    page.focus(".lv-gguf-plot")
    page.keyboard.press("Home")
    for i in range(3):
        number = page.locator(".lv-gguf-equation [data-value]").last
        assert np.float32(number.get_attribute("data-value")) == values[i]
        assert number.get_attribute("data-ref") == f"blk.0.{name}.weight[0,{i}]"
        lit = page.eval_on_selector_all("[data-byte][data-lit]", "l => l.map(e => +e.dataset.byte)")
        assert lit == sorted(view.block_about["holders"][i])
        page.keyboard.press("ArrowRight")
    raw = page.eval_on_selector_all("[data-byte]", "l => l.map(e => parseInt(e.textContent, 16))")
    assert bytes(raw) == bytes(view.block_raw)
    page.click("[data-action=block-after]")
    page.wait_for_function("document.querySelector('[data-block=number]').value == '1'")
    assert view.block == 1


@pytest.mark.browser
def test_legible_in_both_themes_and_on_a_projector(opened, path):
    view = GGUFView(path, field=9)
    h = opened(view)
    h.page.hover(".lv-gguf-line > [data-k='40']")
    for scheme in h.themes():
        found = h.page.evaluate(CONTRAST)
        assert found["n"] > 200 and found["bad"] == [] and found["small"] == [], scheme
    view.projector = True
    h.sync()
    h.page.wait_for_selector(".lv-projector")
    assert h.page.evaluate(CONTRAST)["smallest"] >= 18
