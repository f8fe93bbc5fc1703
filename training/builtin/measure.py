"""Measure the built-in model with llmviz's own engine: ``python -m training.builtin.measure``.

What it knows of each structure, what each head looks at, and what is lost without it. Everything is
measured on held-out documents and written into ``measured.json`` beside this file; `card` makes the
model's card of it.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from llmviz.builtin import EXAMPLES
from llmviz.trace.head_scores import first_token_score, induction_score, previous_token_score
from training.builtin.answers import asked, encoded
from training.builtin.corpus import Document, held_out
from training.builtin.engine import Engine, Part, softmax
from training.builtin.scenes import SCENES
from training.builtin.words import CLOSERS, LOOSE, NAMES, OPENERS

RESULT = Path(__file__).parent / "measured.json"
EVERYTHING = ("story", *SCENES)


def accuracy(engine: Engine, n: int) -> dict[str, Any]:
    """Loss and scores on `n` held-out documents of each scene, and of stories."""
    loss, scores = engine.evaluate([doc for name in EVERYTHING for doc in held_out(name, n)])
    kinds = {
        kind: {
            "n": s.n,
            "right": round(s.right / s.n, 4),
            "best_rival": round(s.best_rival / s.n, 4),
            "p": round(s.p, 4),
        }
        for kind, s in sorted(scores.items())
    }
    return {"documents": n * len(EVERYTHING), "loss": round(loss, 4), "kinds": kinds}


def repeated(engine: Engine, r: Random, n: int = 16) -> list[int]:
    """``<s>``, `n` different random words, and the same words again."""
    words = [engine.tok.word(" " + w)[0] for w in r.sample(sorted(set(LOOSE)), n)]
    return [engine.tok.bos, *words, *words]


def looks(engine: Engine, n: int) -> dict[str, np.ndarray]:
    """What each head looks at: mean attention weights, float64 [n_layer, n_head] each.

    ``previous``, ``first``: on held-out stories. ``induction`` (to what followed this token the
    last time), ``duplicate`` (to this token the last time), ``repeat_previous``, ``repeat_first``:
    on the second half of repeated random words, where no grammar helps.
    """
    sums: dict[str, list[np.ndarray]] = defaultdict(list)
    for doc in held_out("story", n):
        p = engine.attention(encoded(doc, engine.tok)[0][:-1])
        sums["previous"].append(np.stack([previous_token_score(layer) for layer in p]))
        sums["first"].append(np.stack([first_token_score(layer) for layer in p]))
    r = Random(0)
    for _ in range(n):
        ids = repeated(engine, r)
        p = engine.attention(ids)
        half = len(ids) // 2
        later = np.arange(half + 1, len(ids))
        sums["induction"].append(
            np.stack([induction_score(x[:, later], ids, q_pos=later) for x in p])
        )
        sums["duplicate"].append(p[:, :, later, later - half].mean(-1))
        sums["repeat_previous"].append(p[:, :, later, later - 1].mean(-1))
        sums["repeat_first"].append(p[:, :, later, 0].mean(-1))
    return {name: np.mean(values, axis=0) for name, values in sums.items()}


def answer_looks(engine: Engine, n: int) -> dict[str, np.ndarray]:
    """Per kind, attention from where the answer is predicted to where it stood before.

    Answers that stood nowhere before are left out; a kind with fewer than ten of the others is too.
    """
    sums: dict[str, list[np.ndarray]] = defaultdict(list)
    for name in EVERYTHING:
        for doc in held_out(name, n):
            ids = encoded(doc, engine.tok)[0]
            p = engine.attention(ids[:-1])  # [n_layer, n_head, n_tokens, n_tokens]
            for answer, at, among in asked(doc, engine.tok):
                before = ids[: at + 1]
                # A name that opens a line has no space before it, so it is another token.
                same = {among[0], engine.tok.word(answer.text.strip())[0]}
                where = [i for i, token in enumerate(before) if token in same]
                if where:
                    sums[answer.kind].append(p[:, :, at, where].sum(-1))
    return {k: np.mean(v, axis=0) for k, v in sorted(sums.items()) if len(v) >= 10}


def named(doc: Document, engine: Engine) -> tuple[list[int], int, str, str] | None:
    """Ids, the position that names the recipient, the recipient and the giver."""
    for answer, at, _ in asked(doc, engine.tok):
        if answer.kind == "recipient":
            before = doc.text[: answer.start].replace(".", " .").split()
            names = [w for w in before if w in NAMES]
            return encoded(doc, engine.tok)[0], at, answer.text.strip(), names[-1]
    return None


def name_movers(engine: Engine, n: int) -> dict[str, np.ndarray]:
    """In scenes of giving, at the token that the recipient's name follows.

    ``to_recipient``, ``to_giver``: attention to the places of either name. ``direct``: what a head
    adds, straight through the output matrix, to the recipient's logit and not to the giver's.
    """
    model, sums = engine.model, defaultdict(list)
    output = model.tensors["output.weight"].numpy()  # [n_vocab, n_embd]
    gain = model.tensors["output_norm.weight"].numpy()  # [n_embd]
    last = f"l_out-{engine.n_layer - 1}"

    def watched(name: str) -> bool:
        return name.startswith((last, "kqv_out-", "kq_soft_max-"))

    for doc in held_out("recipient", n):
        found = named(doc, engine)
        if found is None:
            continue
        ids, at, recipient, giver = found
        _, nodes = engine.run(ids[: at + 1], watch=watched)

        def places(name: str, ids: list[int] = ids, at: int = at) -> list[int]:
            same = {engine.tok.word(name)[0], engine.tok.word(" " + name)[0]}
            return [i for i in range(at + 1) if ids[i] in same]

        token = [engine.tok.word(" " + name)[0] for name in (recipient, giver)]
        stream = nodes[last][-1]
        scale = 1 / np.sqrt((stream * stream).mean() + 1e-5)
        towards = (output[token[0]] - output[token[1]]) * gain * scale  # [n_embd]
        for name, value in (("to_recipient", recipient), ("to_giver", giver)):
            rows = [
                nodes[f"kq_soft_max-{il}"][:, -1, places(value)].sum(-1)
                for il in range(engine.n_layer)
            ]
            sums[name].append(np.stack(rows))
        direct = []
        for il in range(engine.n_layer):
            written = model.tensors[f"blk.{il}.attn_output.weight"].numpy()  # [n_embd, n_embd]
            each = nodes[f"kqv_out-{il}"][-1].reshape(engine.n_head, -1)  # [n_head, head_dim]
            ways = (towards @ written).reshape(engine.n_head, -1)
            direct.append((each * ways).sum(-1))
        sums["direct"].append(np.stack(direct))
    return {name: np.mean(values, axis=0) for name, values in sums.items()}


def bracket_looks(engine: Engine, n: int) -> dict[str, np.ndarray]:
    """Attention from where a bracket must close to the one that it closes, and to other openers."""
    sums: dict[str, list[np.ndarray]] = defaultdict(list)
    openers = {engine.tok.word(" " + o)[0]: i for i, o in enumerate(OPENERS)}
    closers = {engine.tok.word(" " + c)[0]: i for i, c in enumerate(CLOSERS)}
    for doc in held_out("brackets", n):
        ids = encoded(doc, engine.tok)[0]
        p = engine.attention(ids[:-1])
        open_now: list[int] = []
        everywhere: list[int] = []
        for i, token in enumerate(ids):
            if token in openers:
                open_now.append(i)
                everywhere.append(i)
            elif token in closers:
                match = open_now.pop()
                if len(everywhere) > 1:
                    others = [x for x in everywhere if x != match]
                    sums["matching"].append(p[:, :, i - 1, match])
                    sums["other"].append(p[:, :, i - 1, others].mean(-1))
    return {name: np.mean(values, axis=0) for name, values in sums.items()}


def losses_without(engine: Engine, n: int) -> dict[str, dict[str, float]]:
    """Mean log-probability of the answers of each kind, with everything and without each part."""
    parts: list[Part | None] = [None]
    for il in range(engine.n_layer):
        parts += [Part(il, (h,)) for h in range(engine.n_head)]
        # two heads share a key-value head: their attention is the most alike
        parts += [Part(il, (h, h + 1)) for h in range(0, engine.n_head, 2)] + [Part(il, ())]
    docs = [doc for name in EVERYTHING for doc in held_out(name, n)]
    result = {}
    for part in parts:
        sums: dict[str, list[float]] = defaultdict(list)
        for doc, _, p in engine.probabilities(docs, part):
            for answer, at, among in asked(doc, engine.tok):
                sums[answer.kind].append(float(np.log(p[at, among[0]])))
        name = "all" if part is None else str(part)
        result[name] = {k: round(float(np.mean(v)), 4) for k, v in sorted(sums.items())}
    return result


def repeated_accuracy(engine: Engine, n: int) -> float:
    """Share of the words of a repeated random row that are foretold the second time."""
    r, right = Random(1), []
    for _ in range(n):
        ids = repeated(engine, r)
        p = softmax(engine.run(ids)[0])
        half = len(ids) // 2
        right += [int(p[i].argmax()) == ids[i + 1] for i in range(half + 1, len(ids) - 1)]
    return float(np.mean(right))


def wrong_names(engine: Engine, n: int) -> dict[str, float]:
    """Of ``Who has the hat?`` where the name came first: what is said, as shares.

    ``owner`` is right; ``next``: the name in the sentence after the one with the thing; ``other``:
    any other. Only texts in which a sentence follows.
    """
    said = {"owner": 0, "next": 0, "other": 0}
    for doc, _, p in engine.probabilities(held_out("who", n)):
        for answer, at, among in asked(doc, engine.tok):
            if answer.kind != "who":
                continue
            names = [s.split()[0] for s in doc.text[: answer.start].split(". ")[:-1]]
            later = names.index(answer.text.strip()) + 1
            if later < len(names):
                best = int(p[at].argmax())
                following = engine.tok.word(" " + names[later])[0]
                which = "owner" if best == among[0] else "next" if best == following else "other"
                said[which] += 1
    return {which: round(count / sum(said.values()), 4) for which, count in said.items()}


def examples(engine: Engine) -> dict[str, tuple[str, float]]:
    """Of each example prompt: the most probable next token, and its probability."""
    vocab = engine.model.vocab
    rows = [vocab.tokenize(example.prompt) for example in EXAMPLES.values()]
    said = {}
    for key, logits in zip(EXAMPLES, engine.run_many(rows), strict=True):
        p = softmax(logits[-1])
        best = int(p.argmax())
        said[key] = (vocab.token_to_piece(best).decode(), round(float(p[best]), 4))
    return said


def rounded(grids: dict[str, np.ndarray]) -> dict[str, Sequence[Any]]:
    """Ready for JSON."""
    return {name: np.round(grid.astype(float), 4).tolist() for name, grid in grids.items()}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="builtin")
    parser.add_argument("--sibling", default="builtin:q8_0")
    parser.add_argument("--to", type=Path, default=RESULT)
    parser.add_argument("--documents", type=int, default=300, help="held-out ones of each scene")
    args = parser.parse_args()
    engine, began = Engine(args.model), time.time()
    heads = min(64, args.documents)
    result = {
        "examples": examples(engine),
        "accuracy": accuracy(engine, args.documents),
        "accuracy_q8_0": accuracy(Engine(args.sibling), args.documents),
        "repeated_random_words": round(repeated_accuracy(engine, heads), 4),
        "who": wrong_names(engine, args.documents),
        "looks": rounded(looks(engine, heads)),
        "answer_looks": rounded(answer_looks(engine, heads)),
        "name_movers": rounded(name_movers(engine, heads)),
        "brackets": rounded(bracket_looks(engine, heads)),
        "without": losses_without(engine, heads // 2),
    }
    args.to.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    print(f"{args.to}: {time.time() - began:.0f} s")


if __name__ == "__main__":
    main()
