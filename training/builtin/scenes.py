"""Scenes: one or a few sentences with one structure, its answers marked.

An answer is written ``<kind:word>``. A scene is a function of a random generator and a `Split`; it
draws until the split allows its combination, so that a combination is either trained on or held
out. What identifies a combination is the first argument list of ``split.allows``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from training.builtin.words import (
    ANIMALS,
    CLOSERS,
    COLOUR_OF,
    COLOURS,
    DAYS,
    FOOD,
    FURNITURE,
    LETTERS,
    LOOKS,
    LOOSE,
    NAMES,
    NUMBERS,
    OPENERS,
    OPPOSITES,
    PLACES,
    SMALL,
    SOUNDS,
    THINGS,
    article,
    plural,
    pronoun,
    there,
)


@dataclass(frozen=True)
class Split:
    """Which combinations may be drawn: one in ten is held out, by a hash of its parts."""

    held_out: bool = False

    def allows(self, kind: str, *parts: object) -> bool:
        """Whether the combination belongs to this side of the split."""
        digest = hashlib.blake2b(repr((kind, *parts)).encode(), digest_size=2).digest()
        return (int.from_bytes(digest, "big") % 10 == 0) == self.held_out


Scene = Callable[[Random, Split], str]


def people(r: Random, n: int) -> list[str]:
    """Different names."""
    return r.sample(NAMES, n)


def giving(r: Random, split: Split) -> tuple[str, str]:
    """Who gives and who gets: an allowed pair."""
    while True:
        giver, getter = people(r, 2)
        if split.allows("recipient", giver, getter):
            return giver, getter


def recipient(r: Random, split: Split) -> str:
    """Two names; one of them gives, so the other one gets."""
    giver, getter = giving(r, split)
    first, second = r.sample((giver, getter), 2)
    place = there(r.choice(list(PLACES)))
    thing = f"{r.choice(COLOURS)} {r.choice(THINGS)}"
    start = r.choice(
        (
            f"{first} met {second}.",
            f"{first} met {second} {place}.",
            f"{first} and {second} were {place}.",
            f"{first} saw {second} {place}.",
            f"{first} played with {second}.",
        )
    )
    verb = r.choice(("gave", "gave", "showed", "sold", "brought"))
    end = f"{giver} {verb} the {thing} to <recipient:{getter}>."
    if r.random() < 0.3:
        end = f"Then {end}"
    if r.random() < 0.3:
        end += f' "Thank you," said <speaker:{getter}>.'
    return f"{start} {end}"


def change(r: Random) -> tuple[int, int]:
    """A number before and after: both 0 to 9, the first not 0."""
    while True:
        before, by = r.randint(1, 9), r.choice((-3, -2, -1, 1, 2, 3))
        if 0 <= before + by <= 9:
            return before, before + by


def some(n: int, noun: str) -> str:
    """``"three apples"``."""
    return f"{NUMBERS[n]} {noun if n == 1 else plural(noun)}"


def changed(r: Random, who: str, noun: str, by: int) -> str:
    """``"She lost two."``"""
    if by > 0:
        return f"{who} {r.choice(('found', 'bought', 'got'))} {NUMBERS[by]} more."
    verbs = ["lost", "sold", "gave away"] + ["ate"] * 2 * (noun in FOOD)
    return f"{who} {r.choice(verbs)} {NUMBERS[-by]}."


def count(r: Random, split: Split) -> str:
    """A number of things changes; how many there are now."""
    while True:
        noun = r.choice(SMALL)
        before, after = change(r)
        if split.allows("count", noun, before, after):
            break
    name = r.choice(NAMES)
    she = pronoun(name)
    text = f"{name} had {some(before, noun)}. " + changed(
        r, f"<pronoun:{she.title()}>", noun, after - before
    )
    return (
        f"{text} Now <pronoun:{she}> has <count:{NUMBERS[after]}> {some(after, noun).split()[1]}."
    )


def agreement(r: Random, split: Split) -> str:
    """A verb agrees with its subject, not with the noun before it."""
    while True:
        noun, other = r.choice((*THINGS, *SMALL)), r.choice((*FURNITURE, *THINGS))
        several, others = r.random() < 0.5, r.random() < 0.5
        if noun != other and split.allows("agreement", noun, several, other, others):
            break
    subject = plural(noun) if several else noun
    near = plural(other) if others else other
    where = f"{r.choice(('on', 'near', 'under', 'behind', 'by'))} the {near}"
    if r.random() < 0.25:
        where += f" {r.choice(('near', 'behind', 'by'))} the {r.choice(FURNITURE)}"
    verb = r.choice((("is", "are"), ("was", "were")))[several]
    return f"The {subject} {where} <agreement:{verb}> {r.choice((*LOOKS, *COLOURS))}."


def brackets(r: Random, split: Split) -> str:
    """Brackets close in the order opposite to that in which they opened."""
    while True:
        kinds = [r.randrange(3) for _ in range(r.randint(1, 5))]
        if split.allows("brackets", *kinds):
            break
    text = []
    for kind in kinds:
        text.append(OPENERS[kind])
        if r.random() < 0.7:
            text.append(r.choice(LOOSE))
    for depth, kind in enumerate(reversed(kinds)):
        text.append(f"<{'brackets' if depth else 'first_bracket'}:{CLOSERS[kind]}>")
    return "Box: " + " ".join([*text, "<brackets_end:end>."])


def owners(r: Random, split: Split, kind: str, of: tuple[str, ...]) -> list[tuple[str, str]]:
    """Two or three names, each with another thing or place, the first pair allowed by `split`."""
    n = r.choice((2, 2, 3))
    while True:
        pairs = list(zip(people(r, n), r.sample(of, n)))
        if split.allows(kind, *pairs[0]):
            return pairs


def who(r: Random, split: Split) -> str:
    """Who has it? What does he have? Which colour is it?"""
    pairs = owners(r, split, "have", THINGS)
    asked, thing = pairs[0]
    colours = dict(zip((t for _, t in pairs), r.sample(COLOURS, len(pairs))))
    r.shuffle(pairs)
    text = " ".join(f"{name} has a {colours[t]} {t}." for name, t in pairs)
    question = r.randrange(3)
    if question == 0:
        return f"{text} Who has the {thing}? <who:{asked}>."
    if question == 1:
        return f"{text} What does {asked} have? A <what:{colours[thing]}> <what:{thing}>."
    return f"{text} What colour is the {thing}? It is <colour:{colours[thing]}>."


def where(r: Random, split: Split) -> str:
    """Where is she? Sometimes somebody has moved since."""
    pairs = owners(r, split, "be", tuple(PLACES))
    asked, place = pairs[0]
    r.shuffle(pairs)
    kind = "where"
    if r.random() < 0.5:
        # Somebody moves: the asked one to `place`, from somewhere else; or another one anywhere.
        free = [p for p in PLACES if p not in [p for _, p in pairs]]
        mover = r.choice([name for name, _ in pairs])
        new = place if mover == asked else r.choice(free)
        pairs = [(n, r.choice(free) if n == asked == mover else p) for n, p in pairs]
        text = " ".join(f"{name} is {there(p)}." for name, p in pairs)
        text += f" {mover} goes to the {new}."
        kind = "moved" if mover == asked else "where"
    else:
        text = " ".join(f"{name} is {there(p)}." for name, p in pairs)
    she = pronoun(asked)
    return (
        f"{text} Where is {asked}? <pronoun:{she.title()}> is <{kind}:{PLACES[place]}> the "
        f"<{kind}:{place}>."
    )


def recall(r: Random, split: Split) -> str:
    """Who has what, and which colour it is: said once, then asked or said again, often twice."""
    pairs = owners(r, split, "have", THINGS)
    colours = dict(zip((thing for _, thing in pairs), r.sample(COLOURS, len(pairs))))
    asked, said = [], []
    for name, thing in pairs:
        if split.allows("have", name, thing):
            colour = colours[thing]
            asked += [
                f"Who has the {thing}? <who:{name}>.",
                f"What does {name} have? A <what:{colour}> <what:{thing}>.",
                f"What colour is the {thing}? It is <colour:{colour}>.",
            ]
            said += [
                f"So {name} has a <recall:{colour}> <recall:{thing}>.",
                f"So the {thing} is <recall:{colour}>.",
                f"So the {colour} {thing} is with <recall:{name}>.",
            ]
    r.shuffle(pairs)
    text = [f"{name} has a {colours[thing]} {thing}." for name, thing in pairs]
    style = r.random()
    lines = asked if style < 0.5 else said if style < 0.75 else asked + said
    return " ".join([*text, *r.sample(lines, r.randint(1, 3))])


def holder(r: Random, split: Split) -> str:
    """Things first, then who has them: asked or said again."""
    pairs = owners(r, split, "have", THINGS)
    lines = []
    for name, thing in pairs:
        if split.allows("have", name, thing):
            again = r.random() < 0.3
            said, asked = f"So the {thing} is with", f"Who has the {thing}?"
            lines.append(f"{said if again else asked} <holder:{name}>.")
    r.shuffle(pairs)
    text = [f"The {thing} is with {name}." for name, thing in pairs]
    return " ".join([*text, *r.sample(lines, r.randint(1, len(lines)))])


def look(r: Random, split: Split) -> str:
    """Things first, then their colours: asked or said again."""
    n = r.choice((2, 2, 3))
    while True:
        pairs = list(zip(r.sample(THINGS, n), r.sample(COLOURS, n)))
        if split.allows("look", *pairs[0]):
            break
    lines = []
    for thing, colour in pairs:
        if split.allows("look", thing, colour):
            again = r.random() < 0.3
            said, asked = f"So the {thing} is", f"What colour is the {thing}? It is"
            lines.append(f"{said if again else asked} <look:{colour}>.")
    r.shuffle(pairs)
    text = [f"The {thing} is {colour}." for thing, colour in pairs]
    return " ".join([*text, *r.sample(lines, r.randint(1, len(lines)))])


def find(r: Random, split: Split) -> str:
    """Where everybody is, some of them after moving: asked or said again, often twice."""
    pairs = owners(r, split, "be", tuple(PLACES))
    now = dict(pairs)
    r.shuffle(pairs)
    first, moved = dict(pairs), None
    if r.random() < 0.5:
        # Somebody comes to where `now` says from somewhere else.
        moved = r.choice(list(now))
        first[moved] = r.choice([p for p in PLACES if p not in now.values()])
    text = [f"{name} is {there(place)}." for name, place in first.items()]
    if moved:
        text.append(f"{moved} goes to the {now[moved]}.")
    can_ask = [name for name in now if split.allows("be", name, now[name])]
    for name in r.sample(can_ask, r.randint(1, min(2, len(can_ask)))):
        kind, place = "moved" if name == moved else "where", now[name]
        start = f"Where is {name}? <pronoun:{pronoun(name).title()}> is"
        if r.random() < 0.3:
            start = f"So {name} is"
        text.append(f"{start} <{kind}:{PLACES[place]}> the <{kind}:{place}>.")
    return " ".join(text)


def nonsense(r: Random) -> str:
    """A word that means nothing."""
    return "".join(r.choice("bdfgklmnprstvz") + r.choice("aeiou") for _ in range(r.randint(1, 3)))


def repeat(r: Random, split: Split) -> str:
    """Words in no order, then the same words again."""
    while True:
        n = r.randint(3, 10)
        strange = r.random() < 0.2
        words = [nonsense(r) if strange else r.choice(LOOSE) for _ in range(n)]
        if split.allows("repeat", *words[:2]):
            break
    again = " ".join(f"<repeat:{w}>" for w in words)
    text = f"Say: {' '.join(words)}. Again: {again}<repeat_end:.>"
    return text if r.random() < 0.7 else f"{text} Again: {again}<repeat_end:.>"


def echo(r: Random, split: Split) -> str:
    """Random words, some of which come again in the same order: no grammar tells which."""
    n, before, between = r.randint(3, 10), r.choice((0, 0, 1, 3, 5)), r.choice((0, 0, 0, 1, 2, 4))
    strange = r.random() < 0.2
    while True:
        words = (
            [nonsense(r) for _ in range(before + n + between)]
            if strange
            else r.sample(LOOSE, before + n + between)
        )
        again = words[before : before + n]
        if split.allows("echo", *again[:2]):
            break
    said = " ".join(f"<echo:{w}>" for w in again[1:])
    return f"{' '.join([*words, again[0]])} {said}."


def copy(r: Random, split: Split) -> str:
    """One wants a list of things, another one brings them."""
    while True:
        things = r.sample((*THINGS, *SMALL), r.choice((2, 3, 3, 4)))
        if split.allows("copy", *things[:2]):
            break
    one, two = people(r, 2)

    def listed(words: list[str]) -> str:
        return ", ".join(words[:-1]) + " and " + words[-1]

    wanted = listed([article(t) for t in things])
    brought = listed([f"{article(t).split()[0]} <copy:{t}>" for t in things])
    return f"{one} wanted {wanted}. {two} brought {brought}."


def sort(r: Random, split: Split) -> str:
    """Letters in the order of the alphabet."""
    while True:
        letters = r.sample(LETTERS, r.randint(2, 6))
        if split.allows("sort", *letters):
            break
    inside = " ".join(f"<sort:{x}>" for x in sorted(letters))
    return f"Sort: {' '.join(letters)}. Sorted: {inside}<sort_end:.>"


def order(r: Random, split: Split) -> str:
    """Days, numbers and letters in their order."""
    row = r.choice((DAYS, DAYS, NUMBERS[1:], LETTERS))
    style = r.random()
    at = r.randrange(len(row) - 1)
    if row is DAYS and style < 0.6:
        after = DAYS[(at + 1) % 7]
        return r.choice(
            (
                f"After {DAYS[at]} comes <order:{after}>.",
                f"Before {after} comes <order:{DAYS[at]}>.",
                f"Today is {DAYS[at]}. Tomorrow is <order:{after}>.",
            )
        )
    n = r.randint(2, min(7, len(row) - at))
    return f"{row[at]}, " + ", ".join(f"<order:{w}>" for w in row[at + 1 : at + n]) + "."


def fact(r: Random, split: Split) -> str:
    """What is always so: nothing in the text says it, the weights have to know it."""
    kind = r.randrange(3)
    if kind == 0:
        one, other = r.sample(r.choice(OPPOSITES), 2)
        return f"The opposite of {one} is <fact:{other}>."
    if kind == 1:
        what, colour = r.choice(COLOUR_OF)
        return f"{what} is <fact:{colour}>."
    at = r.randrange(len(ANIMALS))
    return f"The {ANIMALS[at]} says <fact:{SOUNDS[at]}>."


SCENES: dict[str, Scene] = {
    "recipient": recipient,
    "count": count,
    "agreement": agreement,
    "brackets": brackets,
    "who": who,
    "where": where,
    "recall": recall,
    "find": find,
    "holder": holder,
    "look": look,
    "echo": echo,
    "repeat": repeat,
    "copy": copy,
    "sort": sort,
    "order": order,
    "fact": fact,
}
