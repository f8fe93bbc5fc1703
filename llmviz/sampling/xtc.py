"""↔ src/llama-sampler.cpp (xtc).

Now and then drops the most probable tokens, so that the text takes a less travelled way.
"""

from __future__ import annotations

import numpy as np

from llmviz.sampling._float32 import f32
from llmviz.sampling._params import min_keep as check_min_keep
from llmviz.sampling._params import real
from llmviz.sampling._params import seed as check_seed
from llmviz.sampling.candidates import TokenDataArray
from llmviz.sampling.rng import LLAMA_DEFAULT_SEED, Rng
from llmviz.sampling.sampler import Sampler, Why

__all__ = ["XTC"]


class XTC(Sampler):
    """Exclude top choices: with probability `p`, drop all tokens above `t` but the least of them.

    Parameters
    ----------
    p : float
        Chance to act at a token; 0 or less: off.
    t : float
        Probability from which a token counts as a top choice; more than 0.5: off.
    min_keep : int
        Do nothing where fewer would be left.
    seed : int
        As of `Dist`; one number is drawn a token where there are two candidates or more.
    """

    name = "xtc"

    def __init__(
        self,
        p: float = 0.0,
        t: float = 0.1,
        min_keep: int = 0,
        seed: int = LLAMA_DEFAULT_SEED,
    ) -> None:
        self.p = real("xtc: p", p)
        self.t = real("xtc: t", t)
        self.min_keep = check_min_keep("xtc", min_keep)
        self.seed = check_seed("xtc", seed)
        self.rng = Rng(self.seed)

    @property
    def off(self) -> bool:
        """Whether p <= 0 or t > 0.5."""
        return bool(f32(self.p) <= 0 or f32(self.t) > 0.5)

    def apply(self, cur: TokenDataArray) -> None:
        """Draw, and drop the leading candidates if it is time."""
        self.last_draw = None
        if self.off or cur.size < 2:
            return
        self.last_draw = self.rng.uniform_float()
        if self.last_draw > f32(self.p):
            return
        cur.softmax(True, self.name)
        below = np.flatnonzero(~(cur.p >= f32(self.t)))
        last = max((int(below[0]) if below.size else cur.size) - 1, 0)  # the least top choice
        if last > 0 and cur.size - last >= self.min_keep:
            cur.keep(slice(last, None))

    def reset(self) -> None:
        """Start the stream of random numbers again."""
        self.rng.reset()
        self.last_draw = None

    def clone(self) -> XTC:
        """Return a sampler that draws the same numbers next, independently."""
        out = super().clone()
        assert isinstance(out, XTC)
        out.rng = self.rng.clone()
        return out

    def explain(self, before: TokenDataArray, after: TokenDataArray) -> Why:
        """Say whether it acted, and on what."""
        if self.last_draw is None:
            return Why("xtc left the candidates alone: it is off or there is one candidate only")
        drew = f"drew {self.last_draw:.4f}"
        if self.last_draw > f32(self.p):
            return Why(f"{drew}, above p = {self.p:g}: nothing is excluded this time", self.p)
        if after.size == before.size:
            return Why(f"{drew}: fewer than two tokens with p >= {self.t:g} to exclude", self.t)
        return Why(
            f"{drew}: excluded the {before.size - after.size} most probable tokens; the least "
            f"probable one that has {self.t:g} or more stays",
            self.t,
        )
