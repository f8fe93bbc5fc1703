"""Files from the Hugging Face hub, through huggingface_hub.

Does not do: updating a cached file when the hub has a newer one.
"""

from __future__ import annotations

import os
import re
import ssl
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from llmviz.errors import HubError
from llmviz.hub.failures import check_sha256, explained
from llmviz.hub.known import HubFile, cache_dir
from llmviz.hub.progress import Progress, bar_class

__all__ = ["Unreachable", "cached", "fetch"]

PROBE_SECONDS = 4.0


class Unreachable(HubError):
    """The hub did not answer at all: no network, or a firewall. `brief` says only that."""

    def __init__(self, file: HubFile, endpoint: str, reason: str) -> None:
        self.brief = f"{endpoint} cannot be reached ({reason})"
        super().__init__(
            f"cannot fetch {file}: {self.brief}, and the file is not in the cache {cache_dir()}. "
            "Connect to the internet and try again, or pass the path of a GGUF file that you have"
        )


def cached(file: HubFile) -> Path | None:
    """The file in our part of the cache or in huggingface_hub's own; no network."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        for folder in (_hub_cache(), None):
            found = try_to_load_from_cache(
                file.repo, file.path, cache_dir=folder, revision=file.revision
            )
            if isinstance(found, str):
                return Path(found)
    except HFValidationError as error:
        raise HubError(f"cannot read {str(file)!r}: {error}") from error
    return None


def _hub_cache() -> Path:
    return cache_dir() / "huggingface"


def fetch(
    file: HubFile, progress: Progress | None, *, into: Path | None = None, sha256: str = ""
) -> Path:
    """Download one file from the hub, check it, return its path.

    `into` is a plain folder to put it in (huggingface_hub continues a half download there); without
    it the file goes to the cache in huggingface_hub's own layout.
    """
    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    reason = _unreachable(endpoint)
    if reason:
        raise Unreachable(file, endpoint, reason)
    from huggingface_hub import hf_hub_download

    where: dict[str, Any] = {"local_dir": into} if into else {"cache_dir": _hub_cache()}
    with explained(f"cannot fetch {file}"):
        path = Path(
            hf_hub_download(
                file.repo,
                file.path,
                revision=file.revision,
                endpoint=endpoint,
                etag_timeout=10,
                tqdm_class=bar_class(progress),
                **where,
            )
        )
        # In the hub's cache layout the blob of a large file is named by its sha256.
        blob = path.resolve()
        expected = sha256 or (blob.name if re.fullmatch("[0-9a-f]{64}", blob.name) else "")
        if expected:
            try:
                check_sha256(blob, expected, str(file))
            except HubError:
                path.unlink(missing_ok=True)
                blob.unlink(missing_ok=True)
                raise
    return path


def _unreachable(endpoint: str) -> str:
    """Why the hub cannot be reached, or an empty string.

    huggingface_hub retries a missing network for over twenty seconds; this asks once, in a thread
    because a name look-up has no timeout of its own.
    """
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        return "HF_HUB_OFFLINE is set"
    answer: list[str] = []

    def ask() -> None:
        try:
            request = urllib.request.Request(endpoint, method="HEAD")
            urllib.request.urlopen(request, timeout=PROBE_SECONDS).close()
            answer.append("")
        except urllib.error.HTTPError:
            answer.append("")  # an answer all the same
        except urllib.error.URLError as error:
            # Certificates are the real client's business: it may know more of them than we do.
            answer.append("" if isinstance(error.reason, ssl.SSLError) else str(error.reason))
        except (OSError, ValueError) as error:
            answer.append(str(error) or type(error).__name__)

    thread = threading.Thread(target=ask, name="llmviz-hub-probe", daemon=True)
    thread.start()
    thread.join(PROBE_SECONDS + 1)
    return answer[0] if answer else f"no answer within {PROBE_SECONDS:.0f} s"
