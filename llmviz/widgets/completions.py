"""What a half-written condition may go on with: functions, variables, parameters, nodes."""

from __future__ import annotations

import re
from typing import Any

from llmviz.trace.expressions import FUNCTIONS
from llmviz.trace.values import LAYER_NODES, PLAIN_NODES, VARIABLES, sampler_parameters

__all__ = ["complete"]

MOST = 10
_WORD = re.compile(r"[A-Za-z_][\w.\-*]*$")
_LAYER = re.compile(r"-\d+$")
_LAYER_BEGINS = re.compile(r"-\d*$")

_PLACES = (
    ("step ", "where a step begins: step 13"),
    ("layer ", "where a layer begins: layer 5"),
    ("scope ", "where a scope begins: scope decode"),
    ('token "', 'where a token is chosen: token "Paris"'),
)


def complete(text: str, dbg: Any, *, places: bool = False) -> list[dict[str, str]]:
    """The likeliest ends of the last word of a text.

    Parameters
    ----------
    text : str
        Up to the cursor.
    dbg : Debugger
        Whose nodes are offered, once its graph is known.
    places : bool
        Whether ``step``, ``layer`` and the like may come first.

    Returns
    -------
    list of {text, meaning, word}
        The completed word; what it means; the part that was written.
    """
    found = _WORD.search(text)
    word = found[0] if found else ""
    if not word and text:
        return []
    offers: list[tuple[str, str]] = []
    if places and text == word:
        offers += _PLACES
    offers += [(name, v.meaning) for name, v in VARIABLES.items()]
    offers += [(f"{name}(", f.meaning) for name, f in FUNCTIONS.items()]
    offers += _nodes(dbg, word)
    offers += [(name, "parameter of the sampler chain") for name in sampler_parameters()]
    low = word.lower()
    begins = [o for o in offers if o[0].lower().startswith(low) and o[0] != word]
    inside = [o for o in offers if low and low in o[0].lower()[1:] and o not in begins]
    chosen = list(dict.fromkeys((*begins, *inside)))[:MOST]
    return [{"text": name, "meaning": meaning, "word": word} for name, meaning in chosen]


def _nodes(dbg: Any, word: str) -> list[tuple[str, str]]:
    known = dbg.known.nodes
    if _LAYER_BEGINS.search(word):  # a layer is being written: the very nodes
        fits = [name for name in known if name.startswith(word)]
        return [(name, "node") for name in sorted(fits, key=lambda name: (len(name), name))]
    stems = {_LAYER.sub("-", name) for name in known}
    if not stems:
        stems = {*PLAIN_NODES, *(f"{name}-" for name in LAYER_NODES)}
    more = "node of a layer: add its number"
    return [(s, more if s[-1] == "-" else "node") for s in sorted(stems)]
