"""Fill in the figures of the model's card: ``python -m training.builtin.card``.

``docs/builtin-model.md`` is written by hand but for what stands between ``<!-- name -->`` and
``<!-- /name -->``: that comes from the records of the training runs and from ``measured.json``.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from llmviz.builtin import EXAMPLES
from training.builtin.corpus import COURSES
from training.builtin.measure import RESULT

ROOT = Path(__file__).parents[2]
CARD = ROOT / "docs" / "builtin-model.md"
CURVES = ROOT / "docs" / "img" / "builtin-training.svg"
RUNS = {name: Path(__file__).parent / "runs" / name for name in COURSES}  # see export

MEANING = {
    "agreement": "is/are, was/were agree with the subject, not with the noun in between",
    "animal": "the animal that a story has just named",
    "brackets": "the second and later brackets close in the right order",
    "brackets_end": "after the last bracket, `end`",
    "colour": "What colour is the hat? when the colour came before the thing",
    "copy": "the next thing on a list that somebody wanted",
    "count": "how many there are after some were lost or found",
    "echo": "random words that come again, with nothing to announce it",
    "fact": "opposites, colours of things, what animals say",
    "first_bracket": "the first bracket that closes (another one might open instead)",
    "friend": "the other name at a story's end",
    "moved": "where somebody is who has moved (`at`, `in` or `on`, and the place)",
    "order": "the next day, number or letter",
    "pronoun": "he or she, his or her",
    "quote": "a full stop that closes a quotation",
    "holder": "Who has the hat? when the thing was named before its holder",
    "look": "What colour is the hat? when the thing was named before its colour",
    "quote_inside": "`the` in a quotation about a thing",
    "recall": "who has what in which colour, said again",
    "recipient": "the one of two names that does not give",
    "repeat": "random words said again (the first of them cannot be wrong by chance)",
    "repeat_end": "the full stop after as many words",
    "sort": "the next letter of the alphabet among those given",
    "sort_end": "the full stop when all letters are sorted",
    "speaker": "who says thank you, or answers",
    "what": "what somebody has: colour and thing",
    "where": "where somebody is who has not moved",
    "who": "Who has the hat? when the name came before the thing",
}


def per_cent(value: float) -> str:
    """``0.994`` as ``99.4``."""
    return f"{100 * value:.1f}"


def table(header: list[str], rows: list[list[str]], right: int = 1) -> str:
    """A Markdown table; all columns but the first `right` are set to the right."""
    rule = ["---"] * right + ["--:"] * (len(header) - right)
    return "\n".join("| " + " | ".join(row) + " |" for row in [header, rule, *rows])


def accuracy(measured: dict[str, Any]) -> str:
    """Table of the structures."""
    own, sibling = measured["accuracy"], measured["accuracy_q8_0"]
    rows = [
        [
            kind, MEANING[kind], str(k["n"]), per_cent(k["right"]), per_cent(k["best_rival"]),
            f"{k['p']:.2f}", per_cent(sibling["kinds"][kind]["right"]),
        ]
        for kind, k in own["kinds"].items()
    ]  # fmt: skip
    header = ["structure", "the answer is", "n", "right %", "among rivals %", "probability",
              "right %, Q8_0"]  # fmt: skip
    return (
        f"Mean loss of a token on {own['documents']:,} held-out documents: **{own['loss']:.3f}** "
        f"nats in F16, {sibling['loss']:.3f} in Q8_0.\n\n" + table(header, rows, 2)
    )


def runs() -> str:
    """Table of the training runs."""
    rows = []
    for name, folder in RUNS.items():
        run = json.loads((folder / "run.json").read_text("utf-8"))
        rows.append(
            [
                name, f"{run['steps']:,}", f"{run['tokens'] / 1e6:.1f} M", f"{run['peak']:g}",
                str(run["seed"]), str(run["threads"]), f"{run['seconds'] / 60:.0f} min",
                f"{run['tokens'] / run['seconds']:,.0f}",
            ]
        )  # fmt: skip
    header = ["course", "steps", "tokens", "highest rate", "seed", "threads", "time", "tokens/s"]
    return table(header, rows)


class Heads:
    """What was measured of the heads, and the roles that follow from it."""

    def __init__(self, measured: dict[str, Any]) -> None:
        def grid(part: str, name: str) -> np.ndarray:
            return np.array(measured[part][name])

        self.previous, self.first = grid("looks", "previous"), grid("looks", "first")
        self.again = grid("looks", "repeat_previous")
        self.duplicate, self.induction = grid("looks", "duplicate"), grid("looks", "induction")
        self.direct = grid("name_movers", "direct")
        self.to_recipient = grid("name_movers", "to_recipient")
        self.to_giver = grid("name_movers", "to_giver")
        self.matching, self.other = grid("brackets", "matching"), grid("brackets", "other")
        self.answers = {k: np.array(v) for k, v in measured["answer_looks"].items()}
        self.without = measured["without"]

    def lost(self, part: str) -> list[tuple[float, str]]:
        """What falls without a part: mean log-probability of each kind, the most first."""
        whole = self.without["all"]
        return sorted(((whole[k] - v, k) for k, v in self.without[part].items()), reverse=True)

    def roles(self, il: int, h: int) -> list[str]:
        """Names of what a head does: each needs a score over the threshold in the card."""
        at = (il, h)
        found = []
        if max(self.previous[at], self.again[at]) >= 0.4:
            found.append("previous token")
        if self.induction[at] >= 0.4:
            found.append("induction")
        if self.duplicate[at] >= 0.4:
            found.append("duplicate token")
        if self.direct[at] >= 0.5:
            to_recipient, to_giver = self.to_recipient[at], self.to_giver[at]
            if max(to_recipient, to_giver) < 0.3:
                found.append("helps the recipient")
            else:
                found.append("name mover" if to_recipient > to_giver else "turns off the giver")
        elif self.direct[at] <= -0.5:
            found.append("negative name mover")
        if self.matching[at] >= 0.4 and self.matching[at] >= 3 * self.other[at]:
            found.append("bracket matching")
        kinds = [k for k in RETRIEVED if k in self.answers and self.answers[k][at] >= 0.4]
        if kinds:
            found.append(f"finds the answer ({', '.join(kinds)})")
        if self.first[at] >= 0.5:
            found.append("rests on `<s>`")
        return found


RETRIEVED = ("holder", "look", "who", "what", "colour", "where", "moved", "copy", "sort")


def losses(pairs: list[tuple[float, str]], n: int = 3) -> str:
    """The largest losses that are worth a word."""
    return ", ".join(f"{kind} {loss:.1f}" for loss, kind in pairs[:n] if loss >= 0.2) or "–"


def heads(measured: dict[str, Any]) -> str:
    """Table of the heads."""
    it = Heads(measured)
    rows = []
    for il, h in np.ndindex(it.previous.shape):
        at = (il, h)
        scores = (
            it.previous[at], it.again[at], it.first[at], it.duplicate[at], it.induction[at],
        )  # fmt: skip
        rows.append(
            [
                f"{il}.{h}",
                ", ".join(it.roles(il, h)) or "(none of these)",
                *(f"{s:.2f}" for s in scores),
                f"{it.matching[at]:.2f}",
                f"{it.direct[at]:+.1f}",
                losses(it.lost(f"{il}.{h}")),
            ]
        )
    header = [
        "head", "role", "previous", "previous, random", "`<s>`", "duplicate", "induction",
        "bracket", "direct", "lost without it (nats)",
    ]  # fmt: skip
    return table(header, rows, 2)


def pairs(measured: dict[str, Any]) -> str:
    """Table of the two heads of each key-value head."""
    it = Heads(measured)
    rows = [[p.replace("+", ", "), losses(it.lost(p), 6)] for p in it.without if "+" in p]
    return table(["heads", "lost without both (nats)"], rows, 2)


def networks(measured: dict[str, Any]) -> str:
    """Table of the feed-forward networks."""
    it = Heads(measured)
    parts = [p for p in it.without if p.endswith(".ffn")]
    rows = [[p.split(".")[0], losses(it.lost(p), 6)] for p in parts]
    return table(["layer", "lost without its feed-forward network (nats)"], rows, 2)


def wrong_names(measured: dict[str, Any]) -> str:
    """One sentence on the question that is answered wrongly."""
    said = measured["who"]
    return (
        f"Where a sentence follows, it names the owner {per_cent(said['owner'])} % of the time, "
        f"and {per_cent(said['next'])} % of the time the person in the sentence after."
    )


def random_words(measured: dict[str, Any]) -> str:
    """One sentence on repeated random words."""
    return (
        "Of sixteen random words said twice, with no grammar around them, "
        f"{per_cent(measured['repeated_random_words'])} % are foretold the second time."
    )


def examples(measured: dict[str, Any]) -> str:
    """Table of the example prompts."""
    rows = []
    for key, example in EXAMPLES.items():
        said, p = measured["examples"][key]
        prompt = example.prompt.replace("|", "\\|")
        rows.append([f"`{key}`", f"`{prompt}`", f"`{said}`", f"{p:.2f}"])
    return table(["name", "prompt", "says", "probability"], rows, 3)


PARTS: dict[str, Callable[[dict[str, Any]], str]] = {
    "examples": examples,
    "accuracy": accuracy,
    "runs": lambda measured: runs(),
    "random": random_words,
    "who": wrong_names,
    "heads": heads,
    "pairs": pairs,
    "networks": networks,
}


def filled(text: str) -> str:
    """The card with the present figures."""
    measured = json.loads(RESULT.read_text("utf-8"))
    for name, make in PARTS.items():
        whole = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        if not whole.search(text):
            raise ValueError(f"{CARD} has no <!-- {name} --> ... <!-- /{name} -->")
        new = make(measured)
        text = whole.sub(lambda m, new=new: f"{m[1]}{new}\n{m[2]}", text)
    return text


def column(path: Path, name: str) -> np.ndarray:
    """A column of a CSV, as numbers."""
    with path.open(encoding="utf-8", newline="") as file:
        return np.array([float(row[name]) for row in csv.DictReader(file)])


def draw() -> None:
    """Loss, and accuracy of some structures, along the courses."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 9, "svg.hashsalt": "llmviz", "svg.fonttype": "path"})
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.6), layout="constrained")
    shown = ("recipient", "count", "repeat", "brackets", "where", "holder", "echo", "who")
    start, curves = 0.0, {kind: ([], []) for kind in shown}
    for folder in RUNS.values():
        step, loss = column(folder / "loss.csv", "step"), column(folder / "loss.csv", "loss")
        left.plot(start + step, loss, color="#0072b2", lw=0.7, label="" if start else "training")
        held = list(csv.DictReader((folder / "held_out.csv").open(encoding="utf-8", newline="")))
        steps = sorted({int(row["step"]) for row in held})
        by_step = {int(row["step"]): float(row["loss"]) for row in held}
        left.plot(
            start + np.array(steps), [by_step[s] for s in steps], color="#d55e00", lw=1.4,
            label="" if start else "held out",
        )  # fmt: skip
        for kind, (xs, ys) in curves.items():
            for row in held:
                if row["kind"] == kind:
                    xs.append(start + int(row["step"]))
                    ys.append(100 * int(row["right"]) / int(row["n"]))
        if start:
            for axes in (left, right):
                axes.axvline(start, color="#888", lw=0.8, ls=":")
        start += step[-1]
    colours = (
        "#000000", "#e69f00", "#56b4e9", "#009e73", "#cc79a7", "#d55e00", "#0072b2", "#888888",
    )  # fmt: skip
    for (kind, (xs, ys)), colour in zip(curves.items(), colours, strict=True):
        right.plot(xs, ys, lw=1.2, color=colour, label=kind)
    left.set(xlabel="step", ylabel="loss of a token (nats)", ylim=(0.6, 3), title="Loss")
    right.set(xlabel="step", ylabel="right (%)", ylim=(0, 102), title="Held-out answers")
    left.legend(frameon=False)
    right.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(CURVES, metadata={"Date": None})


def main() -> None:
    """Command line."""
    CARD.write_text(filled(CARD.read_text("utf-8")), "utf-8")
    draw()


if __name__ == "__main__":
    main()
