"""One call per view: ``llmviz.show.attention(dbg)``. Needs the ``lab`` extra.

Importing this module needs no widgets; asking for a view does, and says what to install where they
are missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llmviz.errors import LlmvizError
from llmviz.trace import Comparison, Debugger, Trace
from llmviz.trace.pages import Paged

if TYPE_CHECKING:
    from llmviz import widgets

__all__ = [
    "attention",
    "batch",
    "compare",
    "flow",
    "gguf",
    "graph",
    "heads",
    "kv_cache",
    "load",
    "logits",
    "map",
    "output",
    "panel",
    "sampler",
    "sentinels",
    "tensor",
    "time",
    "timeline",
    "tokens",
]


def _widgets() -> Any:
    try:
        from llmviz import widgets
    except ImportError as error:
        raise LlmvizError(
            f"the views need anywidget and ipywidgets ({error}): "
            "install them with  pip install 'llmviz-debugger[lab]'"
        ) from error
    return widgets


def panel(dbg: Debugger, **traits: Any) -> widgets.DebuggerPanel:
    """The debugger's panel. The same debugger gives the same panel, so two cells stay in step."""
    shown = getattr(dbg, "panel", None)
    if shown is None or shown.closed:
        shown = _widgets().DebuggerPanel(dbg, **traits)
        dbg.panel = shown
    else:
        for name, value in traits.items():
            setattr(shown, name, value)
    return shown


def attention(dbg: Debugger, **traits: Any) -> widgets.AttentionView:
    """Attention of one layer and head over the tokens."""
    return _widgets().AttentionView(dbg, **traits)


def batch(source: Any, ctx: Any = None, **traits: Any) -> widgets.BatchView:
    """What goes in at once: the batch, its ubatches, the cell of each token, the mask.

    Parameters
    ----------
    source : Debugger, Batch or Context
        Of a context its last decode; of a batch what ``ctx.decode(batch)`` would do: nothing is
        decoded, and the memory stays as it is.
    ctx : Context, optional
        For a batch.
    """
    return _widgets().BatchView(source, ctx, **traits)


def compare(a: Any, b: Any = None, **options: Any) -> widgets.CompareView:
    """Where two runs part: node by node along depth, with one node of both side by side.

    Parameters
    ----------
    a, b
        What `llmviz.compare` takes, or a `Comparison`.
    **options
        Those of `llmviz.compare`, and traits of the view.
    """
    from llmviz.trace.compare_runs import compare as laid_side_by_side

    view = _widgets().CompareView
    if isinstance(a, Comparison):
        return view(a, **options)
    traits = {k: options.pop(k) for k in tuple(options) if k in ("theme", "projector", "pass_")}
    made = laid_side_by_side(a, b, **options)
    made.view = view(made, **traits)
    return made.view


def flow(dbg: Debugger, **traits: Any) -> widgets.FlowView:
    """The whole pass on one page: tokens as rows, one layer open, to the next token."""
    return _widgets().FlowView(dbg, **traits)


def graph(dbg: Debugger, **traits: Any) -> widgets.GraphView:
    """What is computed, in what order, where: blocks that open down to their nodes."""
    return _widgets().GraphView(dbg, **traits)


def heads(dbg: Debugger, attention: Any = None, **traits: Any) -> widgets.HeadsView:
    """Which heads pushed the newest token: its logit split over layers and heads."""
    return _widgets().HeadsView(dbg, attention, **traits)


def gguf(model: Any, **traits: Any) -> widgets.GGUFView:
    """What is in a file: header bytes and fields, tensors, one block taken apart.

    Parameters
    ----------
    model : Model, GGUF, or path of a GGUF file
        Of a path only the header is read.
    """
    if isinstance(model, Trace):
        raise LlmvizError(
            f"a trace holds no bytes of a file: give the path of {model.model.path or 'its file'}"
        )
    return _widgets().GGUFView(model, **traits)


def kv_cache(dbg: Debugger, **traits: Any) -> widgets.KVCacheView:
    """The cells of the KV cache, filling."""
    return _widgets().KVCacheView(dbg, **traits)


def load(source: Any, **traits: Any) -> widgets.LoadView:
    """What happens before the first token: steps 1 to 7, and the KV cache's size as a formula.

    Parameters
    ----------
    source : Debugger, Model, Context, or path of a GGUF file
        A debugger's own steps are measured; of a path steps 1 to 5 are run, and no weight is read.
    """
    return _widgets().LoadView(source, **traits)


def logits(dbg: Debugger, **traits: Any) -> widgets.LogitsView:
    """The likeliest next tokens, with raw and final probability."""
    return _widgets().LogitsView(dbg, **traits)


def map(dbg: Debugger, **traits: Any) -> widgets.MapView:
    """The sixteen steps, and where the run stands among them."""
    return _widgets().MapView(dbg, **traits)


def output(dbg: Debugger, **traits: Any) -> widgets.OutputView:
    """What came out, token by token, with its probability and what else was likely."""
    return _widgets().OutputView(dbg, **traits)


def sampler(dbg: Debugger, **traits: Any) -> widgets.SamplerView:
    """How the token was chosen, sampler by sampler; a moved parameter replays it."""
    return _widgets().SamplerView(dbg, **traits)


def sentinels(dbg: Debugger, **traits: Any) -> widgets.SentinelsView:
    """What is unusual in a run: NaN, norms out of line, attention on one token, soft caps."""
    return _widgets().SentinelsView(dbg, **traits)


def tensor(dbg: Debugger, **traits: Any) -> widgets.TensorView:
    """The current event's value."""
    return _widgets().TensorView(dbg, **traits)


def time(dbg: Debugger, **traits: Any) -> widgets.TimeView:
    """Where the time of a pass goes; the parts sum to its total."""
    return _widgets().TimeView(dbg, **traits)


def timeline(dbg: Debugger, **traits: Any) -> widgets.TimelineView:
    """The run as a line of events; click or drag to travel."""
    return _widgets().TimelineView(dbg, **traits)


def tokens(
    subject: Any, text: str | None = None, **traits: Any
) -> widgets.TokenizerView | widgets.TokensView:
    """Why these tokens: ``tokens(model, text)``; ``tokens(model, text, other=model2)`` compares.

    Of a debugger or a trace: its text so far, shaded by probability.

    Parameters
    ----------
    subject : Model, Vocab, path of a GGUF file, Debugger, or Trace
    text : str
    """
    if not isinstance(subject, (Debugger, Trace)):
        return _widgets().TokenizerView(subject, text or "", **traits)
    if text is not None:
        raise LlmvizError("a run has its own text: give the model to see another one's tokens")
    return _widgets().TokensView(subject, **traits)


class _Shown:
    """What a notebook shows for a debugger where the widgets are missing: text and a table."""

    def __init__(self, dbg: Debugger, why: str) -> None:
        self.dbg, self.why = dbg, why

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        from llmviz.trace import fallback

        note = f"\n({self.why})"
        return {
            "text/plain": fallback.text("Debugger", self.dbg) + note,
            "text/html": fallback.html("Debugger", self.dbg),
        }


def shown(dbg: Debugger) -> Any:
    """What a notebook shows for a debugger: its panel, or a static table without the widgets."""
    try:
        return panel(dbg)
    except LlmvizError as error:
        return _Shown(dbg, str(error))


def _page(run: Any, path: Any, **options: Any) -> None:
    _widgets()
    from llmviz.widgets.export import run_to_html

    run_to_html(run, path, **options)


Debugger.display_with = shown
Paged.page_with = _page


class _ShownComparison:
    """What a notebook shows for a comparison where the widgets are missing: its report."""

    def __init__(self, comparison: Comparison, why: str) -> None:
        self.comparison, self.why = comparison, why

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        return {"text/plain": f"{self.comparison.report()}\n({self.why})"}


def shown_comparison(comparison: Comparison) -> Any:
    """What a notebook shows for a comparison: the same view each time, or its report as text."""
    view = comparison.view
    if view is None or view.closed:
        try:
            view = comparison.view = _widgets().CompareView(comparison)
        except LlmvizError as error:
            return _ShownComparison(comparison, str(error))
    return view


def comparison_figure(comparison: Comparison, **options: Any) -> Any:
    """The figure of a comparison; matplotlib is loaded when one is asked for."""
    from llmviz import plots

    return plots.compare(comparison, **options)


Comparison.display_with = shown_comparison
Comparison.figure_with = comparison_figure
