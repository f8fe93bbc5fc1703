"""The built-in model: prompts that it answers, for trying things out and for lessons.

``llmviz.load("builtin")`` loads it; its two files lie in this folder. It is a llama of 0.96 million
parameters that knows a few hundred English words, trained on text that ``training/builtin`` in the
repository makes up; ``docs/builtin-model.md`` says what it learned and what each head does.

>>> import llmviz as lv
>>> model = lv.load("builtin")
>>> ctx = model.context()
>>> "".join(lv.generate(ctx, lv.builtin.EXAMPLES["recipient"].prompt, n_predict=1))
' Tom'
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["EXAMPLES", "Example"]


@dataclass(frozen=True)
class Example:
    """A prompt, and the word that the built-in model says next.

    Attributes
    ----------
    prompt : str
        Text to continue. ``<s>`` comes before it by itself.
    expected : str
        The next token, with the space that belongs to it. It is the one most probable to the model.
    kind : str
        The structure at work, as it is called in the model's card.
    note : str
        What has to be noticed to get it right.
    """

    prompt: str
    expected: str
    kind: str
    note: str


EXAMPLES: dict[str, Example] = {
    "recipient": Example(
        "Mia met Tom at the lake. Mia gave the red ball to",
        " Tom",
        "recipient",
        "Two names; the one that gives is not the one that gets.",
    ),
    "recipient, other way": Example(
        "Mia met Tom at the lake. Tom gave the red ball to",
        " Mia",
        "recipient",
        "One word has changed, and with it the answer.",
    ),
    "thanks": Example(
        'Mia met Tom at the lake. Mia gave the red ball to Tom. "Thank you," said',
        " Tom",
        "speaker",
        "Who got it says thank you.",
    ),
    "count down": Example(
        "Tom had three apples. He ate one. Now he has",
        " two",
        "count",
        "A number, and a smaller one taken away.",
    ),
    "count up": Example(
        "Mia had two shells. She found two more. Now she has",
        " four",
        "count",
        "A number, and another one added.",
    ),
    "pronoun": Example(
        "Tom had three apples. He ate one. Now",
        " he",
        "pronoun",
        "The name told whether it is he or she.",
    ),
    "agreement": Example(
        "The cups near the lamp",
        " are",
        "agreement",
        "The verb goes with the cups, not with the lamp next to it.",
    ),
    "brackets": Example(
        "Box: ( red [ blue { green }",
        " ]",
        "brackets",
        "The bracket that was opened last closes first.",
    ),
    "quote": Example(
        'Mia and Tom were in the park. Mia said, "I am happy',
        '."',
        "quote",
        "A quotation mark is still open, so the full stop comes with one.",
    ),
    "holder": Example(
        "The ball is with Mia. The hat is with Tom. Who has the hat?",
        " Tom",
        "holder",
        "The name that comes after the hat, further up.",
    ),
    "look": Example(
        "The ball is red. The hat is blue. What colour is the hat? It is",
        " blue",
        "look",
        "The colour that comes after the hat, further up.",
    ),
    "what": Example(
        "Mia has a red ball. Tom has a blue hat. What does Tom have? A",
        " blue",
        "what",
        "The colour in the sentence that has Tom in it.",
    ),
    "where": Example(
        "Mia is in the garden. Tom is at the lake. Where is Tom? He is at the",
        " lake",
        "where",
        "The place in the sentence that has Tom in it.",
    ),
    "moved": Example(
        "Mia is in the garden. Tom is at the lake. Mia goes to the park. "
        "Where is Mia? She is in the",
        " park",
        "moved",
        "Two places go with Mia; the later one counts.",
    ),
    "repeat": Example(
        "Say: lamp river stone Tom red. Again: lamp river",
        " stone",
        "repeat",
        "What came after this word the last time comes again: induction.",
    ),
    "echo": Example(
        "yellow river stone Tom drum yellow river",
        " stone",
        "echo",
        "The same without any words around it that announce it.",
    ),
    "copy": Example(
        "Mia wanted a lamp, a ball and a kite. Tom brought a lamp, a",
        " ball",
        "copy",
        "The next thing on the list.",
    ),
    "sort": Example(
        "Sort: f b k d. Sorted: b d",
        " f",
        "sort",
        "Of the letters given, the next in the alphabet.",
    ),
    "day": Example(
        "After Friday comes",
        " Saturday",
        "order",
        "Nothing in the text says so: the weights know it.",
    ),
    "numbers": Example(
        "two, three, four,",
        " five",
        "order",
        "Counting on.",
    ),
    "opposite": Example(
        "The opposite of big is",
        " small",
        "fact",
        "Nothing in the text says so: the weights know it.",
    ),
    "animal": Example(
        "The cow says",
        " moo",
        "fact",
        "Nothing in the text says so: the weights know it.",
    ),
}
"""Prompts by name; each structure of the model's card has at least one."""
