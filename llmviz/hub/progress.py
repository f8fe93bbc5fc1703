"""How far a download is: a tqdm bar where one can be seen, or the caller's function.

Does not do: downloading.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from llmviz.errors import LoadCancelled

__all__ = ["Meter", "Progress", "bar_class"]

Progress = Callable[[float], object]
"""Called with the fraction fetched, 0 to 1; returning ``False`` cancels."""


def _tell(progress: Progress, fraction: float) -> None:
    if progress(min(1.0, fraction)) is False:
        raise LoadCancelled("fetching the model file was cancelled")


def _drawable() -> bool:
    """Whether a progress bar would be seen as one: a terminal, or a notebook's widget."""
    return "ipykernel" in sys.modules or sys.stderr.isatty()


def bar_class(progress: Progress | None) -> Any:
    """The tqdm class for huggingface_hub: the usual bar, or one that calls `progress`."""
    from tqdm.auto import tqdm

    class Bar(tqdm):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            kwargs.pop("name", None)  # huggingface_hub's own addition to tqdm's arguments
            kwargs["disable"] = progress is not None or not _drawable()
            super().__init__(*args, **kwargs)
            self.done = float(kwargs.get("initial") or 0)
            self.whole = float(kwargs.get("total") or 0)

        def update(self, n: float | None = 1) -> bool | None:
            self.done += n or 0
            if progress is not None and self.whole:
                _tell(progress, self.done / self.whole)
            return super().update(n)

    return Bar


class Meter:
    """Progress over several downloads that are watched from outside."""

    def __init__(self, total: int, name: str, progress: Progress | None) -> None:
        from tqdm.auto import tqdm

        self.total, self.progress, self.before = total, progress, 0
        self.bar = tqdm(
            total=total,
            unit="B",
            unit_scale=True,
            desc=name,
            disable=progress is not None or not _drawable(),
        )

    def at(self, nbytes: int, limit: int) -> None:
        """So many bytes of the current download are here, of `limit`."""
        done = self.before + min(nbytes, limit)
        self.bar.update(max(0, done - self.bar.n))
        if self.progress is not None:
            _tell(self.progress, done / self.total)

    def finish(self, nbytes: int) -> None:
        """The current download, of `nbytes`, is complete."""
        self.at(nbytes, nbytes)
        self.before += nbytes

    def __enter__(self) -> Meter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.bar.close()
