"""Lessons: questions in a notebook, graded on what the engine computed, and how far a reader is.

>>> import llmviz as lv                                              # doctest: +SKIP
>>> lesson = lv.lessons.begin("12-tokens")                           # doctest: +SKIP
>>> lesson.number("how-many", "How many tokens?", answer=lambda: len(ids))   # doctest: +SKIP
>>> lv.lessons.report()                                              # doctest: +SKIP

A question never blocks: it is a small widget, and the cells below it run whether it was answered
or not. Without widgets it can be answered from Python, ``check.submit(5)``.
"""

from __future__ import annotations

from llmviz.lessons.glossary import GLOSSARY, meaning
from llmviz.lessons.grading import Graded
from llmviz.lessons.lesson import Lesson, begin
from llmviz.lessons.report import Report, report

__all__ = ["GLOSSARY", "Graded", "Lesson", "Report", "begin", "meaning", "report"]
