"""The words of the built-in model's English: few, so that each can be a token of its own."""

from __future__ import annotations

GIRLS = ("Mia", "Anna", "Lily", "Zoe", "Emma", "Nora", "Ruth", "Kate")
BOYS = ("Tom", "Ben", "Sam", "Max", "Leo", "Jack", "Finn", "Noah")
NAMES = GIRLS + BOYS

COLOURS = ("red", "blue", "green", "yellow", "white", "black")
# What one can hold and give away; also the nouns of the agreement sentences.
THINGS = (
    "ball",
    "hat",
    "book",
    "key",
    "kite",
    "drum",
    "cup",
    "lamp",
    "map",
    "bell",
    "boat",
    "doll",
)
# What one can have several of.
SMALL = ("apple", "shell", "stone", "nut", "coin", "flower", "pear", "egg", "cake", "button")
FOOD = ("apple", "nut", "pear", "egg", "cake")
FURNITURE = ("table", "chair", "box", "bed", "door", "tree", "wall", "house")
ANIMALS = ("dog", "cat", "cow", "duck", "horse", "frog", "bird", "bee")
SOUNDS = ("woof", "meow", "moo", "quack", "neigh", "croak", "tweet", "buzz")
LOOKS = ("old", "new", "big", "small", "clean", "dirty", "round", "dry")

# How to be there: preposition and place.
PLACES = {
    "garden": "in", "park": "in", "kitchen": "in", "forest": "in", "barn": "in", "school": "at",
    "lake": "at", "river": "at", "market": "at", "beach": "at", "hill": "on", "bridge": "on",
}  # fmt: skip

NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
LETTERS = tuple("abcdefghijklmnopqrstuvwxyz")
OPPOSITES = (
    ("big", "small"), ("old", "new"), ("clean", "dirty"), ("hot", "cold"), ("day", "night"),
    ("black", "white"), ("up", "down"), ("happy", "sad"), ("wet", "dry"), ("fast", "slow"),
)  # fmt: skip
COLOUR_OF = (
    ("The sky", "blue"), ("Grass", "green"), ("Snow", "white"), ("The sun", "yellow"),
    ("Coal", "black"), ("Blood", "red"), ("Milk", "white"), ("A leaf", "green"),
)  # fmt: skip
OPENERS = ("(", "[", "{")
CLOSERS = (")", "]", "}")

# Words for sequences that mean nothing.
LOOSE = (
    *NAMES, *COLOURS, *THINGS, *SMALL, *FURNITURE, *ANIMALS, *PLACES, *NUMBERS[1:], *LOOKS,
)  # fmt: skip

# An answer competes with the words of its class: used for accuracy with a forced choice.
CLASSES = (
    NAMES, COLOURS, (*THINGS, *SMALL), tuple(PLACES), NUMBERS, DAYS, LETTERS, CLOSERS,
    ("is", "are"), ("was", "were"), ("He", "She"), ("he", "she"), ("his", "her"), (".", '."'),
    SOUNDS, ANIMALS,
)  # fmt: skip


def rivals(word: str) -> tuple[str, ...]:
    """The words that `word` competes with: its class, or itself alone."""
    return next((words for words in CLASSES if word in words), (word,))


def pronoun(name: str) -> str:
    """``"he"`` or ``"she"``."""
    return "she" if name in GIRLS else "he"


def possessive(name: str) -> str:
    """``"his"`` or ``"her"``."""
    return "her" if name in GIRLS else "his"


def plural(noun: str) -> str:
    """The noun for several of them."""
    return noun + ("es" if noun.endswith("x") else "s")


def article(word: str) -> str:
    """The word with ``a`` or ``an`` before it."""
    return ("an " if word[0] in "aeiou" else "a ") + word


def there(place: str) -> str:
    """``"at the lake"``."""
    return f"{PLACES[place]} the {place}"
