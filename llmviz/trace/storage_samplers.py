"""What each sampler of a chain did, as arrays of a trace file, and back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from llmviz.trace.samplings import MOST, Link, SamplerRow
from llmviz.trace.storage_columns import Attributes, Checked
from llmviz.trace.storage_write import Variable, table

__all__ = ["read_samplers", "sampler_variables"]

_TOP = {"id": np.int32(-1), "logit": np.float32("nan"), "p": np.float32(0)}
_MORE = {"share": np.float32("nan"), "end": np.float64("nan")}
_RAW = {"raw_id": np.int32(-1), "raw_logit": np.float32("nan"), "raw_p": np.float32("nan")}


def sampler_variables(rows: list[SamplerRow], most_text: int) -> Iterator[Variable]:
    """The arrays of a trace that hold these rows."""

    def numbers(values: Any) -> np.ndarray:
        return np.array([np.nan if x is None else x for x in values], np.float64)

    links: dict[str, int] = {}  # as JSON, each once
    index_of_link = [
        -1 if r.link is None else links.setdefault(_as_json(r.link), len(links)) for r in rows
    ]
    yield from table(
        "sampler",
        "sampler_step",
        n=np.array([r.n for r in rows], np.int32),
        before=np.array([r.before for r in rows], np.int32),
        after=np.array([r.after for r in rows], np.int32),
        selected=np.array([r.selected for r in rows], np.int32),
        threshold=numbers(r.threshold for r in rows),
        draw=numbers(r.draw for r in rows),
        index=np.array([r.index for r in rows], np.int32),
        link=np.array(index_of_link, np.int32),
    )
    texts = {
        "names": [r.name for r in rows],
        "whys": [r.why[:most_text] for r in rows],
        "links": [json.loads(link) for link in links],
    }
    yield Variable("sampler_why", ("sampler_step",), np.arange(len(rows), dtype=np.int32), texts)
    for columns, dim in ((_TOP | _MORE, "kept"), (_RAW, "leader")):
        prefix = "sampler_top_" if dim == "kept" else "sampler_"
        first = next(iter(columns))
        most = max((len(getattr(r, first)) for r in rows), default=0)
        assert most <= MOST
        for name, fill in columns.items():
            data = np.full((len(rows), most), fill)
            for i, r in enumerate(rows):
                part = getattr(r, name)
                data[i, : len(part)] = part
            yield Variable(prefix + name, ("sampler_step", dim), data)


def _as_json(link: Link) -> str:
    return json.dumps([link.name, link.params, link.off, link.selects])


def read_samplers(stored: Checked) -> Iterator[SamplerRow]:
    """The rows that a trace holds."""
    t = stored.table(
        "sampler",
        **dict.fromkeys(("n", "before", "after", "selected", "index", "link"), "i"),
        threshold="f",
        draw="f",
    )
    count = len(t["n"])
    stored.ordered("sampler_n", t["n"])
    stored.column("sampler_why", "i", 1, count)
    about = Attributes(stored.zip.info("sampler_why").attrs, "sampler_why", stored.zip.path)
    names, whys = about.texts("names"), about.texts("whys")
    links = [_read_link(stored, x) for x in about.get("links", list, [])]
    stored.within("sampler_link", t["link"], -1, len(links))
    kinds = {"id": "i", "logit": "f", "p": "f", "share": "f", "end": "f"}
    tops = {k: stored.column(f"sampler_top_{k}", kind, 2, count) for k, kind in kinds.items()}
    raws = {k: stored.column(f"sampler_{k}", "i" if k == "raw_id" else "f", 2, count) for k in _RAW}
    for group in (tops, raws):
        if len({x.shape for x in group.values()}) != 1:
            raise stored.error("the columns differ in width", "sampler_why")
    if len(names) != count or len(whys) != count:
        raise stored.error(f"other columns than {count} steps need", "sampler_why")
    for i in range(count):
        held = np.flatnonzero(tops["id"][i] >= 0)
        led = np.flatnonzero(raws["raw_id"][i] >= 0)
        link = int(t["link"][i])
        whole: dict[str, Any] = {
            k: int(t[k][i]) for k in ("n", "before", "after", "selected", "index")
        }
        yield SamplerRow(
            **whole,
            name=names[i],
            why=whys[i],
            threshold=_given(float(t["threshold"][i])),
            draw=_given(float(t["draw"][i])),
            link=links[link] if link >= 0 else None,
            **{k: x[i][held] for k, x in tops.items()},
            **{k: x[i][led] for k, x in raws.items()},
        )


def _read_link(stored: Checked, found: Any) -> Link:
    kinds = (str, dict, bool, bool)
    ok = isinstance(found, list) and len(found) == len(kinds)
    if not ok or not all(type(x) is kind for x, kind in zip(found, kinds, strict=True)):
        raise stored.error("a sampler is a name, parameters and two flags", "sampler_why.links")
    if not all(type(x) in (bool, int, float, str) for x in found[1].values()):
        raise stored.error("a parameter is a number", "sampler_why.links")
    return Link(*found)


def _given(x: float) -> float | None:
    """A number, None for NaN."""
    return None if x != x else x
