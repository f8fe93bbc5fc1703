"""What can go wrong while a model file is fetched, said so that a user knows what to do."""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from llmviz.errors import HubError, LoadCancelled
from llmviz.hub.known import cache_dir

__all__ = ["check_sha256", "disk_error", "explained"]


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Turn the errors of huggingface_hub and of the file system into a HubError."""
    from huggingface_hub import errors as hf

    try:
        yield
    except (HubError, LoadCancelled):
        raise
    except hf.GatedRepoError as error:
        raise HubError(
            f"{what}: its owner asks you to accept terms first. Do so on the repository's page, "
            "then log in here with `hf auth login`"
        ) from error
    except hf.RepositoryNotFoundError as error:
        raise HubError(
            f"{what}: no such repository, or it is private (then log in with `hf auth login`)"
        ) from error
    except hf.RevisionNotFoundError as error:
        raise HubError(f"{what}: the repository has no such revision") from error
    except hf.LocalEntryNotFoundError as error:
        raise HubError(f"{what}: the hub did not answer ({_root(error)}). Try again") from error
    except hf.EntryNotFoundError as error:
        raise HubError(f"{what}: the repository has no such file") from error
    except hf.HfHubHTTPError as error:
        raise HubError(f"{what}: {_first_line(error)}") from error
    except OSError as error:
        raise disk_error(what, error) from error
    except Exception as error:  # its HTTP client's own family, which changes between releases
        raise HubError(f"{what}: {_first_line(error)}. Try again") from error


def _root(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return _first_line(error)


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def disk_error(what: str, error: OSError) -> HubError:
    """A HubError for a failed write or read, with what to do: full, forbidden, anything else."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return HubError(
            f"{what}: the disk is full. Free some space in {cache_dir()}, or move the cache "
            "with LLMVIZ_CACHE=/another/folder"
        )
    if isinstance(error, (PermissionError, NotADirectoryError)) or error.errno == errno.EROFS:
        return HubError(
            f"{what}: {_first_line(error)}. Set LLMVIZ_CACHE to a folder that you may write to"
        )
    return HubError(f"{what}: {_first_line(error)}. Try again")


def check_sha256(path: Path, sha256: str, source: str) -> None:
    """Refuse a file whose sha256 is another one."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    if digest.hexdigest() != sha256:
        raise HubError(
            f"the file from {source} has the wrong checksum and was thrown away: sha256 is "
            f"{digest.hexdigest()}, expected {sha256}. Try again; if it stays so, the file was "
            "changed at its source or on the way"
        )
