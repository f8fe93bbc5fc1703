"""Attention of one layer and head over the tokens: row = query, column = key."""

from __future__ import annotations

from typing import Any

import numpy as np
import traitlets as t

from llmviz.trace.overview import DROPPED, MEASURES, Overview
from llmviz.trace.scores import STAGES, Scores, ShownStage, shown_stage
from llmviz.trace.shown import scale_of
from llmviz.widgets.edits import EditsView
from llmviz.widgets.follow import answers
from llmviz.widgets.picture import picture

__all__ = ["AttentionView", "layer_now"]

SHOWN = 24  # tokens on each axis that are still legible


class AttentionView(EditsView):
    """Who looks at whom?

    Traits
    ------
    layer, head : int
        Which one; settable. Setting the layer ends `follow`.
    follow : bool
        Whether the layer follows the run; settable.
    stage : {"softmax", "scores", "masked"}
        What of the head is shown: its weights, the raw scores, or what enters the softmax (scores
        times scale plus mask); settable.
    query : int
        Position whose row is drawn as links, -1 for the newest; settable.
    key : int
        Position that the overview asks for, -1 for the strongest one but the first; settable.
    measure : {"pair", "previous", "first", "induction"}
        What the overview shows of each head; settable, see `llmviz.trace.overview`.
    overview : bytes
        float32[n_layer, n_head]: of ``pair`` how much each head's `query` looks at `key`; NaN where
        that is not held.
    overview_about : dict
        query, key (positions; key -1: none chosen), n_head, best ([layer, head, value] of the
        largest), measure, states (of each layer, see `llmviz.trace.overview.HELD`), counts (rows
        that each layer's average is over), can_fill (whether what was dropped can be computed
        again), dropped (what the recorder let go, in a sentence).
    layers : list of int
        Layers whose attention is held.
    n_layer, n_head : int
    axis : list of {pos, id, text}
        The tokens on both axes, a window of the text.
    attention : bytes
        uint8[n, n], see `picture.picture`: of the weights' square roots, or of the scores on a
        symmetric scale; the byte of NaN where nothing was computed, of -inf where the mask shuts.
    row : bytes
        float32[n], the numbers of the query that is shown; NaN where nothing was computed.
    shut : bytes
        uint8[n, n], 1 where the mask shuts a cell; empty for the softmax.
    attention_about : dict
        first (position of the window), total (tokens with a row), query and index (the one shown),
        dropped (blocks that did not fit the recorder), node, stage, scale (what scores are
        multiplied with), sinks (whether part of each row's sum is a sink's), high (where the
        colours of scores end), sums (of each row of the softmax over all keys), missing (rows whose
        scores were not kept), can_fetch, again (seconds that seeing them again takes at most), why.
    """

    view_name = "attention"

    layer = t.Int(0).tag(sync=True)
    head = t.Int(0).tag(sync=True)
    follow = t.Bool(True, help="Show the layer that is being computed.").tag(sync=True)
    stage = t.Enum(STAGES, default_value="softmax").tag(sync=True)
    query = t.Int(-1).tag(sync=True)
    key = t.Int(-1).tag(sync=True)
    measure = t.Enum(MEASURES, default_value="pair").tag(sync=True)
    overview = t.Bytes(b"").tag(sync=True)
    overview_about = t.Dict().tag(sync=True)
    layers = t.List(t.Int()).tag(sync=True)
    n_layer = t.Int(0).tag(sync=True)
    n_head = t.Int(0).tag(sync=True)
    axis: t.List = t.List().tag(sync=True)
    attention = t.Bytes(b"").tag(sync=True)
    row = t.Bytes(b"").tag(sync=True)
    shut = t.Bytes(b"").tag(sync=True)
    attention_about = t.Dict().tag(sync=True)

    _following = _stage_following = False
    _stage_chosen = False  # by a person, since the view in the middle last began to follow
    _scores_ahead = False  # whether scores are kept before anybody looks at them
    _flow_setting = False
    _attention_of: Any = None
    _shown: ShownStage | None = None

    def __init__(self, dbg: Any, **kwargs: Any) -> None:
        self._scores = Scores(dbg)
        self._heads_overview = Overview(dbg)
        super().__init__(dbg, **kwargs)

    def draw(self) -> None:
        """Show the chosen head, where the recorder holds it."""
        super().draw()
        if not self.shows("attention"):
            return
        recorder = self.dbg.recorder
        self.layers = recorder.layers()
        now = layer_now(self.dbg)
        if self.follow and now >= 0 and not self.dbg.running and now != self.layer:
            self._following = self._flow_setting = True  # the flow view shares the layer
            self.layer = now
            self._following = self._flow_setting = False
        hparams = getattr(self.dbg.model, "hparams", None)
        self.n_layer = int(getattr(hparams, "n_layer", 0) or (max(self.layers, default=-1) + 1))
        if self.stage == "softmax" and not self._scores_ahead:
            self._scores.release()
        else:
            self._scores.ask(self.layer)
        held = recorder.attention.get(self.layer)
        here = self.dbg.n if self.stage != "softmax" else -1
        state = (
            *(held[-1].n if held else -1, len(self.dbg.tokens), self.layer, self.head),
            *(self.stage, here, id(recorder)),
        )
        if state != self._attention_of:
            self._attention_of = state
            self._draw_matrix()
        self._draw_row()
        self._draw_overview()

    def _draw_matrix(self) -> None:
        recorder = self.dbg.recorder
        self.n_head = recorder.n_head(self.layer) or self.n_head
        if self.n_head and self.head >= self.n_head:
            self.head = self.n_head - 1
        shown = shown_stage(self.dbg, self.layer, self.head, SHOWN, self.stage, self._scores)
        self._shown = shown
        self.axis = [{"pos": k.pos, "id": k.id, "text": k.text[:40]} for k in shown.tokens]
        self.shut = b""
        if shown.values is None:
            self.attention = b""
        elif self.stage == "softmax":
            # By the square root: among 200 tokens even a strong link is a small part of 1.
            self.attention, _ = picture(np.sqrt(shown.values), 0.0, 1.0)
        else:
            high = self._high()
            self.attention, _ = picture(shown.values, -high, high)
            if shown.mask is not None:
                self.shut = np.isneginf(shown.mask).astype(np.uint8).tobytes()

    def _high(self) -> float:
        """Where the colours of scores end: before and after the mask the same, times the scale."""
        shown = self._shown
        if shown is None or shown.raw is None or self.stage == "softmax":
            return 1.0
        size = np.abs(shown.raw[np.isfinite(shown.raw)])
        scale = scale_of(np.concatenate([size, -size])[None, :])
        times = shown.scale if self.stage == "masked" and shown.scale is not None else 1.0
        return float(scale.high * abs(times)) or 1.0

    def _draw_row(self) -> None:
        recorder, shown = self.dbg.recorder, self._shown
        total = shown.total if shown is not None else 0
        about: dict[str, Any] = {"total": total, "dropped": recorder.dropped, "stage": self.stage}
        if shown is None or not shown.tokens:
            self.row, self.attention_about = b"", about
            return
        i = shown.index(self.query)
        about.update(
            first=shown.tokens[0].pos,
            query=shown.tokens[i].pos,
            index=i,
            node=shown.node,
            scale=shown.scale,
            sinks=shown.sinks,
            missing=len(shown.missing),
            can_fetch=self._heads_overview.can_fill,
            again=round(float(self.dbg.seconds.get(13, 0.0)), 1) if shown.missing else 0.0,
            why=self._why(shown),
        )
        if self.stage != "softmax":
            about["high"] = self._high()
        elif shown.sums is not None:
            about["sums"] = [None if np.isnan(x) else float(x) for x in shown.sums]
        self.row = b"" if shown.values is None else shown.values[i].astype("<f4").tobytes()
        self.attention_about = about

    def _why(self, shown: ShownStage) -> str:
        """What stands in the way of the stage."""
        if self.stage == "masked" and shown.scale is None:
            return "the scale is not known here: a saved run does not tell it"
        if shown.missing and not self._heads_overview.can_fill:
            return f"{shown.node} was not kept, and this run cannot go back to it"
        return ""

    def fetch_scores(self) -> None:
        """See the scores that were not kept in a silent replay; the run stays where it is."""
        self.refuse_busy()
        if self._shown is not None and self.stage != "softmax":
            self._scores.fetch(self._shown.missing)
        self._attention_of = None
        self.refresh()

    def fill_overview(self) -> None:
        """See the attention that the recorder's budget made it drop once more, silently."""
        self.refuse_busy()
        query = self.attention_about.get("query")
        if query is not None:
            self._heads_overview.fill(self.measure, int(query))
        self.refresh()

    def _draw_overview(self) -> None:
        """What the measure says of each head of each layer."""
        query = self.attention_about.get("query")
        if query is None:
            self.overview, self.overview_about = b"", {}
            return
        view = self._heads_overview
        grid = view.grid(self.measure, query, self.key, self.n_layer)
        out = grid.values
        self.overview = out.tobytes()
        best: list[Any] = []
        if np.isfinite(out).any():
            most = np.unravel_index(int(np.nanargmax(out)), out.shape)
            best = [int(most[0]), int(most[1]), float(out[most])]
        self.overview_about = {
            "query": query,
            "key": self.key,
            "best": best,
            "n_head": out.shape[1],
            "measure": self.measure,
            "states": grid.states,
            "counts": grid.counts,
            "can_fill": view.can_fill and DROPPED in grid.states,
            "dropped": self.dbg.recorder.dropped_text[:300],
        }

    @t.observe("layer", "head", "follow")
    def _choose(self, change: Any) -> None:
        self.dbg.recorder.keep_layer(self.layer)
        if self._following or self._flow_setting:
            return
        if change.name == "layer":
            self.follow = False
        self.refresh()

    @t.observe("stage")
    def _turn_stage(self, change: Any) -> None:
        if self._stage_following:
            return
        self._stage_chosen = True
        if hasattr(self, "_answers"):
            self.refresh()

    @t.observe("query", "key", "measure")
    def _ask_row(self, change: Any) -> None:
        if not self.shows("attention") or not hasattr(self, "_answers"):
            return
        with self.hold_sync():
            self._draw_row()
            self._draw_overview()
            self.rev += 1

    @answers("weight")
    def _weight(self, message: dict[str, Any]) -> dict[str, Any]:
        """One number in full precision, for the cell under the pointer."""
        i, j = int(message["row"]), int(message["column"])
        out: dict[str, Any] = {"row": i, "column": j, "value": None}
        shown = self._shown
        m = shown.values if shown is not None else None
        if shown is None or m is None or not (0 <= i < len(m) and 0 <= j < len(m)):
            return out
        if np.isnan(m[i, j]):
            return out
        place = f"[{self.head},pos {self.axis[i]['pos']},pos {self.axis[j]['pos']}]"
        out.update(value=str(m[i, j]), ref=shown.node + place)
        if shown.raw is not None:
            scores = shown.node.split(" ")[0]
            out.update(raw=str(shown.raw[i, j]), raw_ref=scores + place)
            mask = shown.mask[i, j] if shown.mask is not None else np.nan
            out["mask"] = None if np.isnan(mask) else str(mask)
            if self.stage == "masked":
                out["ref"] = shown.node.replace(scores, scores + place, 1)
        elif shown.sums is not None:
            out["sum"] = float(shown.sums[i])
        return out

    @answers("scores")
    def _on_scores(self, message: dict[str, Any]) -> None:
        self.fetch_scores()

    @answers("fill_heads")
    def _on_fill(self, message: dict[str, Any]) -> None:
        self.fill_overview()

    def close(self) -> None:
        """Stop following, and ask the recorder for nothing any more."""
        if not self.closed:
            self._scores.release()
        super().close()


def layer_now(dbg: Any) -> int:
    """The layer that is being computed at this moment, -1 outside of all layers."""
    for scope in reversed(dbg.scope_stack):
        if scope.name.startswith("layer-"):
            return int(scope.name.removeprefix("layer-"))
    return -1
