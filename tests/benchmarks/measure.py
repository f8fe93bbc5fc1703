"""What the benchmarks share: a clean environment, taking turns, naming the machine, a table.

Machines are noisy and differ, so what counts is the ratio of two things measured in one run, turn
about; on a busy machine not even that, so the load is printed.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

# Settings that somebody may have made for other work, and that change what numpy's BLAS does.
UNSET = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
PACKAGES = ("numpy", "numba", "gguf", "xllamacpp")


def clean_environment() -> None:
    """Start this process again without `UNSET`: a BLAS reads them when it is loaded."""
    found = [name for name in UNSET if name in os.environ]
    if found:
        environment = {k: v for k, v in os.environ.items() if k not in UNSET}
        print(f"starting again without {', '.join(found)}", file=sys.stderr)
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)


def machine() -> str:
    """CPU, number of cores, load, versions."""
    cpu = platform.processor() or platform.machine()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo") as lines:
            names = [line.split(":", 1)[1].strip() for line in lines if "model name" in line]
        cpu = names[0] if names else cpu
    versions = [f"Python {platform.python_version()}"]
    for package in PACKAGES:
        try:
            versions.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(f"no {package}")
    busy = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    warning = ", TOO BUSY TO MEASURE" if busy > cores() / 2 else ""
    return (
        f"{cpu}, {cores()} cores, {platform.system()}, load {busy:.1f}{warning} | "
        f"{', '.join(versions)}"
    )


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def peak_memory() -> float:
    """Largest resident memory of this process so far, in MiB."""
    scale = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / scale


@dataclass(frozen=True)
class Timing:
    """Seconds that one subject took, a value per round."""

    seconds: tuple[float, ...]

    @property
    def best(self) -> float:
        """The least disturbed round."""
        return min(self.seconds)

    @property
    def median(self) -> float:
        """The round in the middle."""
        return statistics.median(self.seconds)


def turn_about(subjects: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, Timing]:
    """Time the subjects in turns, after one untimed turn; every other round in reverse."""
    for run in subjects.values():
        run()
    seconds: dict[str, list[float]] = {name: [] for name in subjects}
    for i in range(rounds):
        for name in list(subjects)[:: -1 if i % 2 else 1]:
            start = time.perf_counter()
            subjects[name]()
            seconds[name].append(time.perf_counter() - start)
    return {name: Timing(tuple(values)) for name, values in seconds.items()}


def report(title: str, timings: Mapping[str, Timing], unit: str, amount: float = 0.0) -> None:
    """Print a table whose first row all others are compared with.

    Parameters
    ----------
    unit
        ``"ms"``, or what `amount` counts: then the rate per second is shown.
    """
    first = next(iter(timings.values()))
    print(f"\n{title}")
    for name, timing in timings.items():
        if amount:
            shown = [amount / timing.median, amount / timing.best]
            ratio = first.median / timing.median
        else:
            shown = [timing.median * 1e3, timing.best * 1e3]
            ratio = timing.median / first.median
        print(
            f"  {name:<34} median {shown[0]:9.1f} {unit}, best {shown[1]:9.1f}"
            + ("" if timing is first else f"   {ratio:6.2f} x the first")
        )
