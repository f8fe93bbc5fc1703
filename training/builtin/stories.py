"""Little stories: people with things and places, what happens to them, in the same few words."""

from __future__ import annotations

from random import Random

from training.builtin.scenes import Split, change, changed, giving, some
from training.builtin.words import (
    ANIMALS,
    COLOURS,
    DAYS,
    FURNITURE,
    LOOKS,
    NUMBERS,
    PLACES,
    SMALL,
    SOUNDS,
    THINGS,
    plural,
    possessive,
    pronoun,
    there,
)


class Story:
    """Two people, a place, and what has been said of them so far."""

    def __init__(self, r: Random, split: Split) -> None:
        self.r, self.split = r, split
        self.hero, self.friend = giving(r, split)
        self.both = split.allows("recipient", self.friend, self.hero)
        self.place = r.choice(list(PLACES))
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)

    def opening(self) -> None:
        """Who and where; ends with both people there."""
        r, a, b = self.r, self.hero, self.friend
        child = "girl" if pronoun(a) == "she" else "boy"
        she = pronoun(a)
        kind = r.randrange(5)
        if kind <= 1:
            once = r.choice(("Once there was", "Once upon a time there was"))
            self.say(f"{once} a {child} called {a}.")
            self.say(f"<pronoun:{she.title()}> lived near the {r.choice(list(PLACES))}.")
            self.say(f"One day <pronoun:{she}> went to the {self.place} and met {b}.")
        elif kind == 2:
            self.say(f"It was {r.choice(DAYS)}. {a} was {there(self.place)}.")
            self.say(f"<pronoun:{she.title()}> saw {b} there.")
        elif kind == 3:
            self.say(f"{a} and {b} were {there(self.place)}.")
        else:
            self.say(f"One day {a} went to the {self.place} with {b}.")

    def gift(self) -> None:
        r = self.r
        one, two = (self.hero, self.friend)
        if self.both and r.random() < 0.5:
            one, two = two, one
        colour, thing = r.choice(COLOURS), r.choice(THINGS)
        she = pronoun(one)
        self.say(f"{one} had a {colour} {thing}.")
        if r.random() < 0.5:
            self.say(f"{one} gave the <what:{thing}> to <recipient:{two}>.")
        else:
            self.say(f"<pronoun:{she.title()}> gave the <what:{thing}> to <recipient:{two}>.")
        if r.random() < 0.6:
            self.say(f'"Thank you," said <speaker:{two}>.')
            if r.random() < 0.5:
                self.say(f'"I like <quote_inside:the> <what:{colour}> <what:{thing}><quote:.">')

    def counting(self) -> None:
        r = self.r
        while True:
            noun = r.choice(SMALL)
            before, after = change(r)
            if self.split.allows("count", noun, before, after):
                break
        name = r.choice((self.hero, self.friend))
        she = pronoun(name)
        self.say(f"{name} had {some(before, noun)}.")
        self.say(changed(r, f"<pronoun:{she.title()}>", noun, after - before))
        if r.random() < 0.8:
            now = f"<count:{NUMBERS[after]}> {some(after, noun).split()[1]}"
            self.say(f"Then <pronoun:{she}> had {now}.")

    def speech(self) -> None:
        r = self.r
        one, two = r.sample((self.hero, self.friend), 2)
        what = r.choice(
            (
                f"I see {r.choice(('a', 'the'))} {r.choice(COLOURS)} {r.choice(THINGS)}",
                f"The {r.choice(ANIMALS)} is {r.choice(LOOKS)}",
                f"I like {plural(r.choice(SMALL))}",
                f"We can go to the {r.choice(list(PLACES))}",
                "I am happy", "I am cold", "I want to go home",
            )
        )  # fmt: skip
        self.say(f'{one} said, "{what}<quote:.">')
        if r.random() < 0.4:
            self.say(
                r.choice((f'"Yes," said <speaker:{two}>.', f'"I know," said <speaker:{two}>.'))
            )

    def looking(self) -> None:
        r = self.r
        one = r.choice((self.hero, self.friend))
        her, thing = possessive(one), r.choice(THINGS)
        self.say(f"{one} lost <pronoun:{her}> {thing}.")
        place = f"{r.choice(('under', 'behind', 'near'))} the {r.choice(FURNITURE)}"
        if r.random() < 0.5:
            self.say(f"The <what:{thing}> was {place}.")
        two = self.friend if one == self.hero else self.hero
        self.say(
            f"{two} found the <what:{thing}> {place if r.random() < 0.3 else ''}".rstrip() + "."
        )
        if self.split.allows("recipient", two, one):
            self.say(f"{two} gave the <what:{thing}> to <recipient:{one}>.")

    def scenery(self) -> None:
        r = self.r
        while True:
            noun, other = r.choice((*SMALL, *THINGS)), r.choice(FURNITURE)
            several, others = r.random() < 0.5, r.random() < 0.5
            if self.split.allows("agreement", noun, several, other, others):
                break
        subject = plural(noun) if several else noun
        near = plural(other) if others else other
        look = r.choice((*COLOURS, *LOOKS))
        verb = ("was", "were")[several]
        self.say(
            f"The {subject} {r.choice(('on', 'near', 'by'))} the {near} <agreement:{verb}> {look}."
        )

    def animal(self) -> None:
        at = self.r.randrange(len(ANIMALS))
        self.say(
            f'There was a {ANIMALS[at]}. "{SOUNDS[at].title()}!" said the <animal:{ANIMALS[at]}>.'
        )

    def moving(self) -> None:
        new = self.r.choice([p for p in PLACES if p != self.place])
        self.place = new
        self.say(self.r.choice((f"Then they went to the {new}.", f"They walked to the {new}.")))
        if self.r.random() < 0.5:
            self.say(
                f"{self.r.choice(('It was cold', 'It was nice', 'They played'))} {there(new)}."
            )

    def ending(self) -> None:
        r = self.r
        self.say(
            r.choice(
                (
                    "They were happy.", "Then they went home.", "They played until night.",
                    f"{self.hero} and <friend:{self.friend}> were friends.",
                    f"{self.hero} went home and <friend:{self.friend}> went home too.",
                )
            )
        )  # fmt: skip
        if r.random() < 0.4:
            self.say("The end.")


def story(r: Random, split: Split) -> str:
    """A story of some sixty to a hundred and fifty tokens, its answers marked."""
    it = Story(r, split)
    it.opening()
    events = [
        it.gift, it.gift, it.counting, it.counting, it.speech, it.speech, it.looking, it.scenery,
        it.animal, it.moving,
    ]  # fmt: skip
    for event in r.sample(events, r.randint(2, 5)):
        event()
    it.ending()
    return " ".join(it.lines)
