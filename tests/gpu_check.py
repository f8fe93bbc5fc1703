"""All checks that need a GPU, as one short run: parity, then speed. ``make gpu-check``.

Needs CuPy and the test packages, nothing else: ``python tests/gpu_check.py`` runs it with whatever
Python has them. The model is SmolLM2-135M (``LLMVIZ_SMOLLM2``: a path), fetched where it is not
there yet.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
TESTS = [
    f"tests/ggml/backends/test_cuda_{what}.py" for what in ("ops", "blocks", "model", "device")
]


def main(what: str = "all") -> int:
    """Run the tests, the benchmark, or both; the exit status is the tests'."""
    code = 0
    if what in ("all", "tests"):
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS]
        environment = {**os.environ, "LLMVIZ_GPU": "1"}
        code = subprocess.run(command, cwd=HERE.parent, env=environment, check=False).returncode
    if what in ("all", "bench"):
        command = [sys.executable, str(HERE / "benchmarks" / "bench_gpu.py"), *sys.argv[2:]]
        code = code or subprocess.run(command, cwd=HERE.parent, check=False).returncode
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
