"""One question in a notebook: graded when it is submitted, on the state as it is then.

A kind of check says how an answer is read, compared and spoken of; this says when. It never
blocks, and it keeps its tries in the lesson's progress.
"""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Any

import traitlets as t

from llmviz.lessons.grading import Graded, NotAnAnswerError, bare
from llmviz.widgets.base import View

if TYPE_CHECKING:
    from llmviz.lessons.lesson import Lesson

__all__ = ["TRIES", "Check", "Say"]

TRIES = 2
"""Wrong tries after which the page offers to show the answer."""

Say = str | Callable[[Any, Any], str]
"""A sentence, or what makes one from the given and the right answer."""


class Check(View):
    """A question.

    Parameters
    ----------
    lesson : Lesson
    key : str
        Its name in the progress; stable, so that a reworded question is still the same.
    question : str
        Plain text; ``code`` in backticks and ``**bold**`` are shown as such.
    answer : callable
        Gives the right answer; called at each submission. What it raises becomes a sentence.
    because : str or callable
        Why the right answer is right: shown with it. Of the given and the right answer.
    hint : str or callable
        What a wrong answer is told, instead of what the kind of check would say.
    **kwargs
        Traits of the view.

    Traits
    ------
    kind, question : str
    form : dict
        What the reader chooses from.
    given : object
        The last answer, as the page writes it.
    verdict : dict
        state ("right", "wrong", "unread", "shown"; empty before the first answer), text, answer.
    attempts : int
        Tries until it was right, those of earlier days included.
    done : bool
        It was answered rightly, today or earlier.
    shown : bool
        The answer was shown before it was found.
    can_show : bool
        The answer may be asked for: after two wrong tries.
    note : str
        What is known from earlier, and why nothing can be saved.
    """

    view_name = "check"
    kind_name = ""

    here = t.Int(-1).tag(sync=True)
    error = t.Dict().tag(sync=True)
    key = t.Unicode("").tag(sync=True)
    kind = t.Unicode("").tag(sync=True)
    question = t.Unicode("").tag(sync=True)
    form = t.Dict().tag(sync=True)
    given = t.Any(None, allow_none=True).tag(sync=True)
    verdict = t.Dict().tag(sync=True)
    attempts = t.Int(0).tag(sync=True)
    done = t.Bool(False).tag(sync=True)
    shown = t.Bool(False).tag(sync=True)
    can_show = t.Bool(False).tag(sync=True)
    note = t.Unicode("").tag(sync=True)

    def __init__(
        self,
        lesson: Lesson,
        key: str,
        question: str,
        *,
        answer: Callable[[], Any],
        because: Say = "",
        hint: Say = "",
        form: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self.lesson = lesson
        self._answer, self._because, self._hint = answer, because, hint
        self._last: Any = None
        progress = lesson.progress
        progress.expect(lesson.name, key, self.kind_name, question)
        known = progress.check(lesson.name, key)
        self._right_at: int | None = known["right_at"]
        super().__init__(
            key=key,
            kind=self.kind_name,
            question=question,
            form=form or {},
            attempts=known["attempts"],
            done=self._right_at is not None,
            shown=known["shown"],
            **kwargs,
        )
        self._tell(earlier=True)
        self.on_msg(self._on_message)
        self.rev += 1

    # -- what a kind of check says -------------------------------------------------------------

    def read(self, given: Any) -> Any:
        """What was given as a value that can be compared.

        Raises
        ------
        NotAnAnswerError
            It cannot be read as an answer.
        """
        raise NotImplementedError

    def right(self) -> Any:
        """The right answer in the state as it is now."""
        return self._answer()

    def agrees(self, given: Any, right: Any) -> bool:
        """Whether a value that was read is right."""
        return bool(given == right)

    def nearer(self, given: Any, right: Any) -> str:
        """What a wrong answer is told without a hint of the lesson: not what is right."""
        return "That is not it."

    def written(self, value: Any) -> str:
        """An answer as it is read aloud."""
        return str(value)

    def told(self, value: Any) -> Any:
        """An answer as the lesson's own sentences and the caller get it."""
        return value

    def plain(self, value: Any) -> Any:
        """A value as the page's own input writes it."""
        return value

    # -- answering -----------------------------------------------------------------------------

    def submit(self, given: Any) -> Graded:
        """Grade an answer; the widget shows what came of it.

        Returns
        -------
        Graded
            Not counted as a try where it cannot be read, or where the state does not say yet.
        """
        try:
            value = self.read(given)
        except NotAnAnswerError as error:
            return self._show("unread", Graded(False, str(error), counted=False))
        return self._grade(value)

    def show_answer(self) -> Graded:
        """Show the right answer and why it is right. The page offers this after two wrong tries."""
        right, why_not = self._right()
        if why_not:
            return self._show("unread", Graded(False, why_not, counted=False))
        if not self.done:
            self.shown = True
        reason = self._sentence(self._because, self._last, right)
        graded = Graded(False, reason, self.told(right), counted=False)
        return self._show("shown", graded, right, right)

    def _grade(self, value: Any) -> Graded:
        right, why_not = self._right()
        if why_not:
            return self._show("unread", Graded(False, why_not, counted=False))
        self._last = value
        if not self.done:
            self.attempts += 1
        if self.agrees(value, right):
            if not self.done:
                self._right_at, self.done = self.attempts, True
            graded = Graded(True, self._sentence(self._because, value, right), self.told(right))
            return self._show("right", graded, value, right)
        hint = self._sentence(self._hint, value, right) or self.nearer(value, right)
        return self._show("wrong", Graded(False, hint, self.told(right)), value)

    def _right(self) -> tuple[Any, str]:
        """The right answer, or a sentence on why it cannot be told yet."""
        try:
            return self.right(), ""
        except Exception as error:  # a lesson's own code, run in whatever state the notebook is in
            what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            return None, (
                "This cannot be graded yet: run the cells above it first, from the top. "
                f"({what:.200})"
            )

    def _sentence(self, say: Say, given: Any, right: Any) -> str:
        if not callable(say):
            return say
        try:
            return str(say(self.told(given), self.told(right)))
        except Exception as error:  # as above: it must not cost the reader the grade
            return (
                f"(The explanation could not be made: {type(error).__name__}: {str(error)[:160]})"
            )

    def _show(self, state: str, graded: Graded, value: Any = None, right: Any = None) -> Graded:
        """Draw what came of it; `value` stands in the field, `right` is told."""
        if graded.counted or state == "shown":
            self.lesson.progress.record(
                self.lesson.name,
                self.key,
                attempts=self.attempts,
                right_at=self._right_at,
                shown=self.shown,
            )
        with self.hold_sync():
            if value is not None:
                self.given = self.plain(value)
            self.verdict = {
                "state": state,
                "text": graded.reason,
                "answer": self.written(right) if state in ("right", "shown") else "",
            }
            self._tell()
            self.rev += 1
        return graded

    def _tell(self, earlier: bool = False) -> None:
        self.can_show = self.attempts >= TRIES and not self.done
        known = []
        if earlier and self.done:
            known.append(f"You had this right before, at {_nth(self._right_at)} try.")
        elif earlier and self.attempts:
            known.append(f"You tried this {self.attempts}× before.")
        self.note = " ".join([*known, *filter(None, [self.lesson.progress.problem])])

    def _on_message(self, _: Any, content: Any, buffers: Any) -> None:
        if not isinstance(content, dict):
            return
        if content.get("do") == "submit":
            self.submit(content.get("given"))
        elif content.get("do") == "show":
            self.show_answer()
        self.send({"reply": content.get("id"), **self.reply(content)})

    def reply(self, content: dict[str, Any]) -> dict[str, Any]:
        """What else the page asked for."""
        return {}

    # -- without widgets -----------------------------------------------------------------------

    def choices(self) -> list[str]:
        """What there is to choose from, a line each."""
        return []

    def fallback_text(self) -> str:
        """The question and how to answer it from Python."""
        lines = [f"{type(self).__name__} {self.key}: {self.question}"]
        lines += [f"  - {c}" for c in self.choices()]
        state = "answered" if self.done else f"tried {self.attempts}×" if self.attempts else "open"
        return "\n".join([*lines, f"  ({state}; answer here or with check.submit(...))"])

    def fallback_html(self) -> str:
        """The question as text, for places that run no scripts."""
        items = "".join(f"<li>{escape(bare(c))}</li>" for c in self.choices())
        return f"<p><b>{escape(bare(self.question))}</b></p>" + (
            f"<ul>{items}</ul>" if items else ""
        )


def _nth(n: int | None) -> str:
    return {1: "the first", 2: "the second", 3: "the third"}.get(n or 0, f"the {n}th")
