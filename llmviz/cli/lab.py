"""``llmviz lab``: the quickstart notebook in JupyterLab."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import typer

import llmviz
from llmviz.cli.output import examples, stderr
from llmviz.errors import LlmvizError

__all__ = ["command", "config_path", "lab", "notebook_path"]

EXAMPLES = examples(
    "llmviz lab",
    "llmviz lab --no-browser --port 9000",
)
NOTEBOOK = "00-quickstart.ipynb"
FOLDER = "llmviz-notebooks"
CONFIG = Path(__file__).parent / "jupyter"


def lab(ctx: typer.Context) -> None:
    """Open the quickstart notebook in JupyterLab, on this machine only, behind a token.

    In a clone of the repository its notebooks folder is opened; elsewhere the notebooks are first
    copied to ./llmviz-notebooks, so that what you change there is yours and stays. Options go on to
    JupyterLab.
    """
    if importlib.util.find_spec("jupyterlab") is None:
        raise LlmvizError("JupyterLab is not installed: pip install 'llmviz-debugger[lab]'")
    arguments = command(notebook_path(Path.cwd()), ctx.args)
    # BLAS threads wait for each other in busy loops: leave the browser a core to draw with
    os.environ.setdefault("OPENBLAS_NUM_THREADS", str(max(1, (os.cpu_count() or 2) - 1)))
    os.environ["JUPYTER_CONFIG_PATH"] = config_path(os.environ.get("JUPYTER_CONFIG_PATH", ""))
    if os.name == "posix":
        os.execv(arguments[0], arguments)  # so that Ctrl-C and signals reach JupyterLab itself
    raise typer.Exit(subprocess.call(arguments))


def command(notebook: Path, extra: list[str]) -> list[str]:
    """The command line that opens `notebook` in JupyterLab."""
    arguments = [sys.executable, "-m", "jupyterlab", str(notebook)]
    arguments += [f"--ServerApp.root_dir={notebook.parent}", "--ServerApp.ip=127.0.0.1"]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        arguments.append("--allow-root")  # a container: Jupyter refuses otherwise
    return arguments + extra


def config_path(already: str) -> str:
    """Where Jupyter looks for configuration: ours too, before what is there.

    Ours changes the default of one setting: JupyterLab does not ask whether it may fetch news,
    which would be the first thing a newcomer sees, and looks for no updates. Who has chosen
    otherwise in JupyterLab's settings keeps that.
    """
    return os.pathsep.join(p for p in (str(CONFIG), already) if p)


def notebook_path(cwd: Path) -> Path:
    """The quickstart notebook of the clone we run from, else a copy below `cwd`."""
    package = Path(llmviz.__file__).parent
    clone = package.parent / "notebooks" / NOTEBOOK
    if clone.is_file() and (package.parent / "pyproject.toml").is_file():
        return clone
    packaged = package / "notebooks"
    if not (packaged / NOTEBOOK).is_file():
        raise LlmvizError(f"this installation of llmviz lacks {packaged / NOTEBOOK}: reinstall it")
    folder = cwd / FOLDER
    folder.mkdir(exist_ok=True)
    for source in sorted(packaged.glob("*.ipynb")):
        target = folder / source.name
        if not target.exists():
            shutil.copyfile(source, target)
            stderr().print(f"copied {source.name} to {folder}", soft_wrap=True)
    return folder / NOTEBOOK
