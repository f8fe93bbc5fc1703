"""The panel in a real JupyterLab over SmolLM2: from a click to the painted result, and the traffic.

Run by hand: ``make bench``, or ``python tests/benchmarks/bench_panel.py --help``.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np
from measure import clean_environment, machine

TEXT = (
    "The lighthouse keeper climbed the stairs every evening just before the sun went down. He lit "
    "the lamp, wrote the hour in his book, and sat down to wait for the boats to come home. "
)  # fmt: skip

# The text must not end while it is measured.
SOURCE = """import time
import llmviz as lv
from llmviz import sampling as s
never = {{i: float("-inf") for i in lv.load({path!r}, vocab_only=True).vocab.eog_ids}}
chain = s.Chain([s.LogitBias(never), *s.Chain.default(seed=42).samplers])
dbg = lv.Debugger({path!r}, {prompt!r}, chain, n_ctx={n_ctx}, n_predict={n_ctx})
def measured(step):
    start = time.perf_counter()
    step()
    return 1000 * (time.perf_counter() - start)
dbg
"""

# Until a point of time, the lengths of all frames of the page.
FRAMES = """seconds => new Promise((done) => {
  const times = [], end = performance.now() + 1000 * seconds;
  let last = performance.now();
  const frame = (now) => {
    times.push(now - last);
    last = now;
    if (now < end) requestAnimationFrame(frame);
    else done(times.slice(1));
  };
  requestAnimationFrame(frame);
})"""


STANDS = (
    "() => ![...document.querySelectorAll('.llmviz')].some(r => r.querySelector('.lv-working'))"
)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=os.environ.get("LLMVIZ_SMOLLM2", "smollm2-135m"))
    parser.add_argument("--steps", type=int, default=60, help="steps of each kind")
    parser.add_argument("--context", type=int, nargs="*", default=[5, 512], help="tokens before")
    parser.add_argument(
        "--threads", type=int, help="of BLAS in the kernel; default: its own choice"
    )
    args, _ = parser.parse_known_args()
    clean_environment()

    import llmviz
    from llmviz import hub
    from tests.widgets import host

    path = str(hub.resolve(args.model))
    print(f"\nthe panel in JupyterLab\n{machine()}\n{os.path.basename(path)}")
    vocab = llmviz.load(path, vocab_only=True).vocab
    with host.chromium() as browser:
        for n_tokens in args.context:
            ids = (vocab.tokenize(TEXT) * (1 + n_tokens // 8))[:n_tokens]
            with opened(browser, path, vocab.detokenize(ids), n_tokens, args) as page:
                bench(page, n_tokens, args.steps)


@contextmanager
def opened(
    browser: Any, path: str, prompt: str, n_tokens: int, args: argparse.Namespace
) -> Iterator[Any]:
    """A notebook whose only cell shows the panel."""
    from importlib.metadata import version

    from tests.widgets import frontends

    release = ".".join(version("ipykernel").split(".")[:2])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kernel = frontends.write_kernel(folder, release, threads=args.threads)
        n_ctx = -(-(n_tokens + 4 * args.steps + 300) // 256) * 256
        frontends.write_notebook(
            folder,
            kernel,
            SOURCE.format(path=path, prompt=prompt, n_ctx=n_ctx),
        )
        with frontends.opened(browser, folder) as front:
            yield front


def bench(front: Any, n_tokens: int, steps: int) -> None:
    """All figures for a prompt of some tokens."""
    page = front.page
    print(f"\n{n_tokens} tokens of context")
    front.count_traffic()
    front.run_all()
    front.wait_shown([-1])
    count = front.traffic()
    print(f"  {'first paint':<34} {count['bytes'] / 2**20:.2f} MiB (bound 1)")

    front.printed("[dbg.break_on('attn_norm-5'), dbg.run(), dbg.clear_break()] and 0")
    settled(front)
    with processor(front, steps):
        times = [front.step_time("into") for _ in range(steps)]
        show("node steps, in the prompt's pass", times, 100)
    in_kernel(front, "step_into", steps)
    first = front.step_time("next-token")
    print(f"  {'the rest of the prompt':<34} {first:.0f} ms")
    front.printed("[dbg.break_on('attn_norm-5'), dbg.run(), dbg.clear_break()] and 0")
    settled(front)
    with processor(front, steps):
        times = [front.step_time("into") for _ in range(steps)]
        show("node steps, in a token's pass", times, 100)
    in_kernel(front, "step_into", steps)
    front.step_time("next-token")
    show("whole-token steps", [front.step_time("next-token") for _ in range(steps)], 250)
    in_kernel(front, "next_token", steps)

    front.count_traffic()
    page.locator(".llmviz [data-action='run']").first.click()
    frames = page.evaluate(FRAMES, 5)
    page.locator(".llmviz [data-action='pause']").first.click()
    count = front.traffic()
    settled(front)
    print(
        f"  {'running':<34} {count['own'] / 5:.0f} messages of the view/s, "
        f"{count['bytes'] / 5 / 2**10:.0f} KiB/s"
    )
    show("running, frames", frames)
    attention(front)
    if front.problems:
        print(f"  the page reported: {front.problems}")


@contextmanager
def processor(front: Any, steps: int) -> Iterator[None]:
    """What the same steps take of the processor: that depends less on who else uses it."""
    now = "__import__('time').process_time()"
    kernel, page = front.printed(now), front.worked()
    yield
    kernel, then = front.printed(now) - kernel, front.worked()
    print(
        f"  {'  processor time of one':<34} kernel {1000 * kernel / steps:.1f} ms, page "
        f"{1000 * (then['seconds'] - page['seconds']) / steps:.1f} ms with "
        f"{(then['layouts'] - page['layouts']) / steps:.1f} layouts"
    )


def in_kernel(front: Any, method: str, steps: int) -> None:
    """The same steps without the page: the engine and the views' Python side."""
    times = front.printed(f"[measured(dbg.{method}) for _ in range({steps})]")
    settled(front)
    show("  the kernel's part of these", times)


def attention(front: Any) -> None:
    """Frames while the pointer is drawn over the attention matrix and its query tokens."""
    page = front.page
    page.locator(".llmviz [data-tab='attention']").click()
    for name, selector in (
        ("attention, pointer on the matrix", ".lv-att-main .lv-heat"),
        ("attention, pointer on the tokens", ".lv-att-queries"),
    ):
        place = page.locator(f".llmviz .lv-attention {selector}").first
        page.wait_for_timeout(1000)
        if not place.is_visible():
            print(f"  {name:<34} not on the page")
            continue
        place.scroll_into_view_if_needed()
        box = place.bounding_box()
        page.evaluate(f"() => {{ window.framesOf = ({FRAMES})(4) }}")
        for i in range(160):
            across = 0.5 + 0.45 * np.sin(i / 7)
            page.mouse.move(
                box["x"] + across * box["width"], box["y"] + (0.05 + 0.9 * i / 160) * box["height"]
            )
        show(name, page.evaluate("window.framesOf"), 50)


def settled(front: Any) -> None:
    """Wait until the run stands and the page shows where."""
    front.page.wait_for_function(STANDS)
    front.wait_shown([front.printed("dbg.n")])


def show(what: str, times: Sequence[float], bound: float | None = None) -> None:
    """One line of milliseconds."""
    p50, p95 = np.percentile(times, [50, 95])
    held = "" if bound is None else f"   (bound {bound:.0f}: {'held' if p95 < bound else 'MISSED'})"
    print(
        f"  {what:<34} median {p50:6.1f} ms, p95 {p95:6.1f} ms, max {max(times):6.1f} ms, "
        f"n={len(times)}{held}"
    )


if __name__ == "__main__":
    sys.exit(main())
