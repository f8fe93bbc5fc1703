"""Programs that are measured in a process of their own: how long, how much processor, how much
memory.

Time to a first token and peak memory are properties of a whole process, imports included.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Child", "run"]

# Runs first in every child. Linux counts the peak of the process's own pages and mapped files
# together; elsewhere getrusage is what there is.
_PRELUDE = """
import time as _time
def _peak():
    try:
        with open("/proc/self/status") as lines:
            return next(int(l.split()[1]) for l in lines if l.startswith("VmHWM")) * 1024
    except OSError:
        import resource, sys
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
def mark(name, value=None):
    value = _time.time() if value is None else value
    print("MARK", name, value, _time.process_time(), _peak(), flush=True)
"""


@dataclass(frozen=True)
class Child:
    """What a child reported.

    Attributes
    ----------
    seconds : dict
        Name of a mark to wall time since the process was started.
    cpu : dict
        To processor time (of all threads).
    peak : dict
        To the most resident memory until then, bytes, mapped files included.
    values : dict
        To what the mark was given, where it was given something.
    """

    seconds: dict[str, float]
    cpu: dict[str, float]
    peak: dict[str, int]
    values: dict[str, float]


def run(program: str, environment: Mapping[str, str] | None = None, timeout: float = 1800) -> Child:
    """Run a program that says ``mark("name")`` at the points to measure.

    Parameters
    ----------
    program : str
    environment : mapping, optional
        Variables beside those of this process; an empty value takes one away.

    Raises
    ------
    RuntimeError
        It failed; with the end of its messages.
    """
    given = {**os.environ, **(environment or {})}
    start = time.time()
    done = subprocess.run(
        [sys.executable, "-c", _PRELUDE + program],
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
        env={k: v for k, v in given.items() if v},
    )
    if done.returncode != 0:
        raise RuntimeError(f"the measured program failed:\n{done.stderr[-2000:]}")
    child = Child({}, {}, {}, {})
    for line in done.stdout.splitlines():
        if line.startswith("MARK "):
            _, name, value, cpu, peak = line.split()
            child.seconds[name] = float(value) - start
            child.values[name] = float(value)
            child.cpu[name] = float(cpu)
            child.peak[name] = int(peak)
    return child
