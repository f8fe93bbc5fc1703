"""A run as one HTML page: the method that debuggers and opened traces share."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, ClassVar

from llmviz.errors import LlmvizError

__all__ = ["Paged"]


class Paged:
    """A run that can be handed to somebody who has no model and no kernel."""

    page_with: ClassVar[Callable[..., None] | None] = None
    """Writes the page; set by the layer above, which has the widgets."""

    def to_html(
        self,
        path: str | os.PathLike[str],
        *,
        start: int | None = None,
        max_bytes: int = 5_000_000,
        progress: Callable[[float], None] | None = None,
    ) -> None:
        """Write what was recorded of this run as one page that opens from disk, without a kernel.

        The recorded events can be walked there, in both directions, with the views that their
        contents allow. The page says what was left out. ``keep_all()`` before the run keeps what
        the flow view shows of every layer.

        Parameters
        ----------
        path : str or PathLike
            Such as ``"run.html"``; replaced where it exists.
        start : int, optional
            Number of the event at which the page opens; by default the first generated token's.
        max_bytes : int
            Where all would take more, attention and the inside of some layers are left out.
        progress : callable, optional
            Called with the part that is done, from 0 to 1.

        Raises
        ------
        LlmvizError
            The widgets or zarr are not installed, nothing was recorded, or the run is under way.
        OSError
            The file cannot be written.
        """
        make: Any = Paged.page_with
        if make is None:
            raise LlmvizError(
                "the layer that makes pages is not there yet: import llmviz.show first"
            )
        make(self, path, start=start, max_bytes=max_bytes, progress=progress)
