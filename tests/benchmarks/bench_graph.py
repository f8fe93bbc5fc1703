"""The graph view over 30 layers, all open: how long a frame takes while it is moved and zoomed.

Run by hand: ``make bench``, or ``python tests/benchmarks/bench_graph.py --help``. Prints the time
between two frames of the page (a screen gives them every 16.7 ms at best) and what painting takes
of it. The model is tiny and random: the graph's size counts, not that of its values.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np
from measure import clean_environment, machine

# Moves the graph a little with every frame for some seconds, as a hand would, and notes the times.
MOVE = """([kind, seconds]) => new Promise((done) => {
  const canvas = document.querySelector(".lv-gr-stage canvas");
  const card = document.querySelector(".lv-graph"), box = canvas.getBoundingClientRect();
  const x = box.left + box.width / 2, y = box.top + box.height / 2;
  const frames = [], paints = [], end = performance.now() + 1000 * seconds;
  const point = (type, dx, dy) => canvas.dispatchEvent(new PointerEvent(type, {
    bubbles: true, pointerId: 1, button: 0, clientX: x + dx, clientY: y + dy }));
  canvas.setPointerCapture = () => {};
  let last = performance.now(), n = 0;
  if (kind === "pan") point("pointerdown", 0, 0);
  const frame = (now) => {
    frames.push(now - last);
    paints.push(Number(card.dataset.paint));
    last = now;
    n++;
    if (kind === "pan") point("pointermove", 200 * Math.sin(n / 20), 100 * Math.cos(n / 15));
    else canvas.dispatchEvent(new WheelEvent("wheel", {
      bubbles: true, cancelable: true, ctrlKey: true, clientX: x, clientY: y,
      deltaY: Math.floor(n / 40) % 2 ? 6 : -6 }));
    if (now < end) { requestAnimationFrame(frame); return; }
    if (kind === "pan") point("pointerup", 0, 0);
    done([frames.slice(2), paints.slice(2)]);
  };
  requestAnimationFrame(frame);
})"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", nargs="?", help="a GGUF file; a tiny one of 30 layers by default")
    parser.add_argument("--seconds", type=float, default=4.0)
    options, _ = parser.parse_known_args()
    clean_environment()
    import llmviz
    from llmviz.widgets import GraphView
    from tests.tiny_models import write_tiny
    from tests.widgets import host

    print(machine())
    with tempfile.TemporaryDirectory() as folder, host.chromium() as browser:
        path = options.model or write_tiny(Path(folder) / "tiny.gguf", n_layer=30)
        dbg = llmviz.Debugger(llmviz.load(path), [1, 262, 270], n_ctx=256, n_predict=4)
        dbg.next_token()
        dbg.next_token()
        view = GraphView(dbg, graph_follow=False)
        view.open_blocks()
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        host.Hosted(page, view, width=1240)
        print(
            f"graph of {len(view.graph['names']):,} nodes, all {len(view.graph_open)} blocks open"
        )
        for what, kind, clicks in (
            ("whole, moved", "pan", 0),
            ("whole, zoomed", "zoom", 0),
            ("a few layers, moved", "pan", 5),
            ("a few layers, zoomed", "zoom", 0),
            ("one layer, moved", "pan", 4),
        ):
            for _ in range(clicks):
                page.click("[data-graph=in]")
            frames, paints = page.evaluate(MOVE, [kind, options.seconds])
            show(what, frames, paints)


def show(what: str, frames: Sequence[float], paints: Sequence[float]) -> None:
    """One line of milliseconds."""
    p50, p95 = np.percentile(frames, [50, 95])
    held: Any = "held" if p50 < 1000 / 30 else "MISSED"
    print(
        f"  {what:<22} frames: median {p50:5.1f} ms, p95 {p95:5.1f} ms, n={len(frames)} "
        f"(30 a second: {held}); painting: median {np.median(paints):5.1f} ms, "
        f"p95 {np.percentile(paints, 95):5.1f} ms"
    )


if __name__ == "__main__":
    sys.exit(main())
