"""Watching a run: the debugger that steps it, the recorder that remembers, breakpoints, summaries.

These listen to the engine's events; the engine never imports them. No Jupyter in here.
"""

from __future__ import annotations

from llmviz.trace.branches import Branch
from llmviz.trace.breakpoints import Breakpoint, BreakWarning
from llmviz.trace.compare import Comparison
from llmviz.trace.debugger import Debugger, DebuggerError
from llmviz.trace.edits import Edit, Intervention
from llmviz.trace.kept import Kept
from llmviz.trace.opened import Trace, open_trace
from llmviz.trace.recorder import AttentionBlock, CellsRecord, Recorder, TokenRecord
from llmviz.trace.sentinels import Finding, Sentinels
from llmviz.trace.storage_zip import TraceError
from llmviz.trace.summary import Statistics, statistics
from llmviz.trace.timeline import Here, OpenScope, Record

__all__ = [
    "AttentionBlock",
    "Branch",
    "BreakWarning",
    "Breakpoint",
    "CellsRecord",
    "Comparison",
    "Debugger",
    "DebuggerError",
    "Edit",
    "Finding",
    "Here",
    "Intervention",
    "Kept",
    "OpenScope",
    "Record",
    "Recorder",
    "Sentinels",
    "Statistics",
    "TokenRecord",
    "Trace",
    "TraceError",
    "open_trace",
    "statistics",
]
