"""Why these tokens? A text in boxes, how each word was merged, and two tokenizers side by side.

A little over 400 lines: one widget, whose two sides share every step of the drawing.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from html import escape
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import traitlets as t

from llmviz.errors import LlmvizError
from llmviz.vocab import Vocab
from llmviz.vocab.compare import first_difference
from llmviz.vocab.tokenized import Difference, Tokenized, difference, tokenized
from llmviz.widgets.base import View

__all__ = ["TokenizerView"]

SHOWN = 300  # tokens of one page
_SYMBOLS = 48  # of one film; a SentencePiece text is one word from end to end
_PIECE = 60
_CHOICES = 12
_KINDS = {
    "bpe": "byte-pair",
    "spm": "SentencePiece",
    "wpm": "WordPiece",
    "ugm": "Unigram",
    "rwkv": "RWKV",
    "plamo2": "PLaMo-2",
    "none": "no vocabulary",
}


class TokenizerView(View):
    """Why these tokens?

    Parameters
    ----------
    model : Model, Vocab, str or PathLike
        Whose tokenizer; of a file only the vocabulary is read.
    text : str
    other : Model, Vocab, str or PathLike, optional
        Another tokenizer for the same text, side by side; the first difference is marked.
    **kwargs
        Traits of the view.

    Traits
    ------
    text : str
        Settable.
    add_special, parse_special : bool
        As for ``vocab.tokenize``; settable.
    compare : bool
        Whether two tokenizations are shown: of `other`, or of the same vocabulary with
        `other_add_special` and `other_parse_special`; settable.
    selected : int
        Index of the chosen token, -1 for none; settable. Its word is the one whose merges are
        shown.
    side : int
        Which tokenization `selected` counts in; settable.
    first : int
        Index of the first token that is shown; settable.
    sides : list of {name, kind, n_vocab, add_special, parse_special, n, n_words, first, n_shown,
        notes, rules}
    boxes, boxes_other : bytes
        int32 [n_shown, 6]: id, first byte, end, kind (see `vocab.tokenized`), word, index.
    box_texts, box_texts_other : list of str
        What each shown token writes.
    text_bytes : bytes
        The bytes of the text that the shown tokens cover, from `bytes_from` on.
    differs : dict
        byte, index (a pair): where the two part; empty where they do not.
    films : list of dict
        For each side the word of the chosen token: text, n_symbols, symbols ({text, hex}), merges
        ({left, right, result, id, rank, score, a, b}, a and b being places in `symbols`), tokens
        ({id, text}), token ({index, id, text, hex, start, end, kind, char}).
    films_part : int
        The first merge in which the two words differ, -1 where they do not.
    """

    view_name = "tokenizer"

    here = t.Int(-1).tag(sync=True)
    error = t.Dict().tag(sync=True)
    text = t.Unicode("").tag(sync=True)
    add_special = t.Bool(True).tag(sync=True)
    parse_special = t.Bool(False).tag(sync=True)
    compare = t.Bool(False).tag(sync=True)
    other_add_special = t.Bool(True).tag(sync=True)
    other_parse_special = t.Bool(True).tag(sync=True)
    selected = t.Int(-1).tag(sync=True)
    side = t.Int(0, min=0, max=1).tag(sync=True)
    first = t.Int(0).tag(sync=True)
    sides: t.List = t.List().tag(sync=True)
    boxes = t.Bytes(b"").tag(sync=True)
    boxes_other = t.Bytes(b"").tag(sync=True)
    box_texts: t.List = t.List().tag(sync=True)
    box_texts_other: t.List = t.List().tag(sync=True)
    text_bytes = t.Bytes(b"").tag(sync=True)
    bytes_from = t.Int(0).tag(sync=True)
    differs = t.Dict().tag(sync=True)
    films: t.List = t.List().tag(sync=True)
    films_part = t.Int(-1).tag(sync=True)

    def __init__(self, model: Any, text: str = "", other: Any = None, **kwargs: Any) -> None:
        self._ready = False
        pairs = [_vocab_of(x) for x in (model, other) if x is not None]
        self._vocabs = [vocab for vocab, _ in pairs]
        self._names = [name for _, name in pairs]
        self._same = other is None
        if self._same:
            self._vocabs *= 2
            self._names *= 2
        else:
            kwargs = {"compare": True, "other_parse_special": False, **kwargs}
        self._results: list[Tokenized] = []
        super().__init__(text=text, **kwargs)
        self._ready = True
        self._tokenize()

    # -- drawing -------------------------------------------------------------------------------

    @t.observe("text", "add_special", "parse_special", "compare")
    @t.observe("other_add_special", "other_parse_special")
    def _again(self, change: Any) -> None:
        if self._ready:
            self._tokenize()

    @t.observe("first", "selected", "side")
    def _elsewhere(self, change: Any) -> None:
        if self._ready:
            self._draw()

    def _settings(self) -> list[tuple[bool, bool]]:
        other = (self.other_add_special, self.other_parse_special)
        return [(self.add_special, self.parse_special), *([other] if self.compare else [])]

    def _tokenize(self) -> None:
        try:
            self._results = [
                tokenized(vocab, self.text, *settings)
                for vocab, settings in zip(self._vocabs, self._settings())
            ]
            self.error = {}
        except LlmvizError as error:
            self._results = []
            self.error = {
                "title": "This text has no tokens here",
                "text": str(error),
                "hint": "Change the text or the settings.",
            }
        self._draw()

    def _draw(self) -> None:
        ready, self._ready = self._ready, False  # what is set here is no wish of somebody
        try:
            with self.hold_sync():
                self._draw_sides()
                self._draw_films()
                self.rev += 1
        finally:
            self._ready = ready

    def _draw_sides(self) -> None:
        results = self._results
        longest = max((len(r.ids) for r in results), default=0)
        self.first = max(0, min(self.first, (longest - 1) // SHOWN * SHOWN if longest else 0))
        own = [len(r.ids) for r in results]
        if self.side >= len(results):
            self.side = 0
        if not results or self.selected >= own[self.side]:
            self.selected = -1
        begin = self.first
        lines = [_numbers(r, begin, begin + SHOWN) for r in results]
        shown = [x for x in lines if len(x)]
        low = min((int(x[:, 1].min()) for x in shown), default=0)
        high = max((int(x[:, 2].max()) for x in shown), default=0)
        self.bytes_from = low
        self.text_bytes = results[0].raw[low:high] if results else b""
        texts = [[self._piece(k, int(i)) for i in line[:, 0]] for k, line in enumerate(lines)]
        self.boxes, self.box_texts = (lines[0].tobytes(), texts[0]) if lines else (b"", [])
        self.boxes_other, self.box_texts_other = (
            (lines[1].tobytes(), texts[1]) if len(lines) > 1 else (b"", [])
        )
        found: Difference | None = None
        if len(results) > 1:
            found = difference(results[0], results[1], same_ids=self._vocabs[0] is self._vocabs[1])
        self.differs = {"byte": found.byte, "index": list(found.index)} if found else {}
        self.sides = [
            {
                "name": self._names[k],
                "kind": _KINDS.get(self._vocabs[k].type, self._vocabs[k].type),
                "pre": self._vocabs[k].pre,
                "n_vocab": self._vocabs[k].n_tokens,
                "add_special": settings[0],
                "parse_special": settings[1],
                "n": len(r.ids),
                "n_words": len(r.words),
                "n_bytes": len(r.raw),
                "n_shown": len(lines[k]),
                "notes": r.notes,
                "rules": r.rules,
            }
            for k, (r, settings) in enumerate(zip(results, self._settings()))
        ]

    def _piece(self, k: int, token: int, room: int = _PIECE) -> str:
        piece = self._vocabs[k].token_to_piece(token, special=True)
        return piece.decode("utf-8", "replace")[:room]

    # -- the film ------------------------------------------------------------------------------

    def _draw_films(self) -> None:
        if self.selected < 0 or not self._results:
            self.films, self.films_part = [], -1
            return
        chosen = [self.selected] * len(self._results)
        byte = self._results[self.side].starts[self.selected]
        for k, r in enumerate(self._results):
            if k != self.side:  # the token there that covers the same byte
                chosen[k] = next((i for i, end in enumerate(r.ends) if end > byte), len(r.ids) - 1)
        self.films = [self._film(k, i) for k, i in enumerate(chosen) if i >= 0]
        merges = [[(m["left"], m["right"]) for m in f["merges"]] for f in self.films]
        self.films_part = first_difference(*merges) if len(merges) == 2 else -1

    def _film(self, k: int, i: int) -> dict[str, Any]:
        r, vocab = self._results[k], self._vocabs[k]
        raw = r.raw[r.starts[i] : r.ends[i]]
        out: dict[str, Any] = {
            "token": {
                "index": i,
                "id": r.ids[i],
                "text": self._piece(k, r.ids[i]),
                "hex": raw.hex(" "),
                "start": r.starts[i],
                "end": r.ends[i],
                "kind": r.kinds[i],
                "char": _character(r, i),
            },
            "symbols": [],
            "merges": [],
            "found": None,
            "word": "",
        }
        word = r.word_of[i]
        if word < 0:
            return out
        if vocab.tokenizer.takes_whole_tokens:
            return {**out, **self._found(k, i)}
        tokens = r.tokens_of(word)
        merges = r.merges(word)
        initial = merges[0].film.initial if merges else ()
        joins = merges[0].film.joins if merges else []
        low, high = 0, len(initial)
        if len(initial) > _SYMBOLS or vocab.type == "spm":
            low, high, tokens = _around(vocab, initial, joins, tokens, i)
        if not merges:  # nothing was joined: the symbols are the tokens
            initial = tuple(vocab.tokens.raws[r.ids[j]] for j in tokens)
            low, high = 0, min(len(initial), _SYMBOLS)
        out["word"] = r.words[word].text[:400]
        out["n_symbols"] = len(initial)
        out["symbols"] = [_symbol(vocab, s) for s in initial[low:high]]
        out["merges"] = [
            {
                "left": m.left,
                "right": m.right,
                "result": m.result,
                "id": m.id,
                "rank": m.rank,
                "score": m.score,
                "a": a - low,
                "b": b - low,
            }
            for m, (a, b) in zip(merges, joins)
            if low <= a and b < high
        ]
        out["tokens"] = [{"id": r.ids[j], "text": self._piece(k, r.ids[j])} for j in tokens]
        return out

    def _found(self, k: int, i: int) -> dict[str, Any]:
        """How a tokenizer that takes whole tokens came to one of them."""
        r, vocab = self._results[k], self._vocabs[k]
        match = r.matches.get(i)
        if match is None:
            return {"found": {"kind": vocab.type, "bytes": True}}
        choices = sorted(r.choices(i), key=lambda c: -c.total)[:_CHOICES]  # the best was taken
        return {
            "word": r.words[r.word_of[i]].text[:400],
            "found": {
                "kind": vocab.type,
                "text": match.text[:_PIECE],
                "id": match.id,
                "unknown": match.id == vocab.unk,
                "shorter": [{"text": t[:_PIECE], "id": j} for t, j in match.shorter[:_CHOICES]],
                "choices": [
                    {
                        "text": c.text[:_PIECE],
                        "id": c.id,
                        "score": c.score,
                        "total": c.total,
                        "chosen": c is choices[0],
                    }
                    for c in choices
                ],
            },
        }

    # -- elsewhere -----------------------------------------------------------------------------

    def figure(self, view: str = "tokenizer", **options: Any) -> Any:
        """The view as a matplotlib figure; see `llmviz.plots.tokenizer`."""
        from llmviz import plots

        two = [
            (name, vocab, settings)
            for name, vocab, settings in zip(self._names, self._vocabs, self._settings())
        ]
        return plots.tokenizer(two, self.text, **options)

    def _lines(self) -> list[tuple[str, str]]:
        out = []
        for k, r in enumerate(self._results):
            shown = ", ".join(f"{i} {self._piece(k, i, 20)!r}" for i in r.ids[:40])
            more = f" … ({len(r.ids)} in all)" if len(r.ids) > 40 else ""
            out.append((self._names[k], shown + more))
        if self.differs:
            out.append(("first difference", f"at byte {self.differs['byte']}"))
        return out

    def fallback_text(self) -> str:
        """Ids and pieces, in plain lines."""
        return "\n".join(("llmviz TokenizerView", *(f"  {a}: {b}" for a, b in self._lines())))

    def fallback_html(self) -> str:
        """Ids and pieces as a static table."""
        rows = "".join(
            f'<tr><th style="text-align:left">{escape(a)}</th>'
            f'<td style="text-align:left">{escape(b)}</td></tr>'
            for a, b in self._lines()
        )
        return f"<table><caption>llmviz TokenizerView</caption><tbody>{rows}</tbody></table>"


def _vocab_of(source: Any) -> tuple[Vocab, str]:
    """The vocabulary of what was given, and a name for it."""
    if isinstance(source, Vocab):
        return source, source.pre or _KINDS.get(source.type, source.type)
    if isinstance(source, (str, os.PathLike)):
        from llmviz.gguf import open_gguf

        opened = open_gguf(source)  # stays open: a vocabulary reads its tokens when they are needed
        name = opened.kv.get("general.name") or os.path.basename(os.fspath(source))
        return Vocab.from_gguf(opened), str(name)
    vocab, gguf = getattr(source, "vocab", None), getattr(source, "gguf", None)
    if vocab is None:
        raise LlmvizError(
            f"a tokenizer is shown of a model, a vocabulary or a file, not of {source!r:.80}"
        )
    name = gguf.kv.get("general.name", "") if gguf is not None else ""
    return vocab, str(name or vocab.pre or vocab.type)


def _numbers(r: Tokenized, begin: int, end: int) -> np.ndarray:
    columns = (r.ids, r.starts, r.ends, r.kinds, r.word_of, range(len(r.ids)))
    return np.array([c[begin:end] for c in columns], "<i4").T.copy()  # [n, 6]


def _symbol(vocab: Vocab, symbol: bytes) -> dict[str, str]:
    from llmviz.vocab.unicode import decode_bytes_text

    return {
        "text": decode_bytes_text(symbol)[:_PIECE],
        "hex": vocab.tokenizer.plain_piece(symbol).hex(" ") if len(symbol) < 200 else "",
    }


def _character(r: Tokenized, i: int) -> str:
    """The whole character that a token holds only a part of, with its neighbours."""
    low, high = r.starts[i], r.ends[i]
    while low > 0 and r.raw[low : low + 1] and r.raw[low] & 0xC0 == 0x80:
        low -= 1
    while high < len(r.raw) and r.raw[high] & 0xC0 == 0x80:
        high += 1
    return r.raw[low:high].decode("utf-8", "replace")[:20]


def _around(
    vocab: Vocab,
    initial: tuple[bytes, ...],
    joins: list[tuple[int, int]],
    tokens: list[int],
    i: int,
) -> tuple[int, int, list[int]]:
    """Of a very long word, the symbols of what a reader would call the word: up to the next space.

    Returns
    -------
    first symbol, end, tokens
        Whole tokens, at most `_SYMBOLS` symbols or the one token.
    """
    inner = {right for _, right in joins}
    heads = [place for place in range(len(initial)) if place not in inner]
    heads.append(len(initial))
    symbols = [b"".join(initial[x:y]) for x, y in pairwise(heads)]
    # A symbol that is no token is written byte by byte.
    firsts = [0, *accumulate(1 if vocab.find(s) >= 0 else len(s) for s in symbols)]
    a = b = max(0, min(bisect_right(firsts, tokens.index(i)) - 1, len(symbols) - 1))
    begins = [s.startswith("▁".encode()) for s in symbols]
    while a > 0 and not begins[a] and heads[b + 1] - heads[a - 1] <= _SYMBOLS:
        a -= 1
    while b + 1 < len(symbols) and not begins[b + 1] and heads[b + 2] - heads[a] <= _SYMBOLS:
        b += 1
    return heads[a], heads[b + 1], tokens[firsts[a] : firsts[b + 1]]
