"""``llmviz inspect``: what is in a GGUF file. Reads the header only, never the weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.text import Text

from llmviz.cli.output import (
    FileArg,
    JsonOption,
    examples,
    human_bytes,
    open_file,
    stdout,
    table,
    write_json,
)
from llmviz.errors import LlmvizError
from llmviz.gguf import GGUF, open_gguf

EXAMPLES = examples(
    "llmviz inspect model.gguf",
    "llmviz inspect smollm2-135m",
    "llmviz inspect smollm2-135m --json | jq '.tensors[0]'",
)

SHOWN_ITEMS = 8
SHOWN_CHARS = 200


def inspect(file: FileArg, as_json: JsonOption = False) -> None:
    """Show a GGUF file: header, key-values, hyperparameters, tensors."""
    path = str(open_file(file))
    with open_gguf(path) as gguf:
        hparams, reason = _hparams(path)
        if as_json:
            write_json(_document(gguf, hparams, reason))
        else:
            _print(gguf, hparams, reason)


def _hparams(path: str) -> tuple[dict[str, tuple[Any, str]], str]:
    """Hyperparameters with the key each came from; or none, and why.

    A header can be read of any model; hyperparameters need an architecture that we know.
    """
    from llmviz.model.loader import load_steps

    steps = load_steps(path)
    try:
        for event in steps:
            if event.kind == "exit" and event.name == "load_hparams":
                found = event.value.as_dict()
                found.pop("n_vocab")  # known only once the vocabulary is loaded
                return found, ""
    except LlmvizError as error:
        return {}, str(error)
    finally:
        steps.close()
    return {}, "the file has no hyperparameters"


def _document(gguf: GGUF, hparams: dict[str, tuple[Any, str]], reason: str) -> dict[str, Any]:
    return {
        "path": gguf.path,
        "file_size": sum(part.file_size for part in gguf.parts),
        "parts": len(gguf.parts),
        "version": gguf.version,
        "byte_order": gguf.byte_order,
        "alignment": gguf.alignment,
        "data_offset": gguf.data_offset,
        "file_type": gguf.ftype_name(),
        "n_elements": gguf.n_elements,
        "kv": {
            key: {"type": gguf.type_label(key), "value": _whole(value)}
            for key, value in gguf.kv.items()
        },
        "hparams": {
            name: {"value": value, "from": origin} for name, (value, origin) in hparams.items()
        },
        "hparams_error": reason or None,
        "tensors": [
            {
                "name": info.name,
                "type": info.type.name,
                "ne": list(info.ne),
                "part": info.part,
                "offset": info.abs_offset,
                "nbytes": info.nbytes,
            }
            for info in gguf.tensor_infos.values()
        ],
    }


def _whole(value: Any) -> Any:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return list(value)
    return value


def _print(gguf: GGUF, hparams: dict[str, tuple[Any, str]], reason: str) -> None:
    console = stdout()
    size = sum(part.file_size for part in gguf.parts)
    parts = f" in {len(gguf.parts)} parts" if len(gguf.parts) > 1 else ""
    console.print(Text(gguf.path, style="bold"), soft_wrap=True)
    console.print(
        f"GGUF v{gguf.version}, {gguf.byte_order}-endian, {size:,} bytes{parts}; "
        f"{len(gguf.kv)} key-values, {len(gguf.tensor_infos)} tensors, "
        f"{gguf.n_elements:,} weights; alignment {gguf.alignment}, "
        f"data from byte {gguf.data_offset:,}; file type {gguf.ftype_name()}",
        soft_wrap=True,
    )
    keys = table("\nKey-values", "key", "type", "value")
    for key, value in gguf.kv.items():
        keys.add_row(key, gguf.type_label(key), Text(shorten(value)))
    console.print(keys)

    if reason:
        console.print(Text(f"\nNo hyperparameters: {reason}", style="yellow"), soft_wrap=True)
    else:
        numbers = table("\nHyperparameters", "name", "value", "from", right=("value",))
        for name, (value, origin) in hparams.items():
            numbers.add_row(name, Text(shorten(value)), Text(origin))
        console.print(numbers)

    right = ("offset", "bytes", "size")
    tensors = table("\nTensors", "name", "type", "shape (ne)", *right, right=right)
    for info in gguf.tensor_infos.values():
        where = f"{info.abs_offset:,}"
        tensors.add_row(
            info.name,
            info.type.name,
            " x ".join(str(n) for n in _sizes(info.ne)),
            f"{where} (part {info.part + 1})" if len(gguf.parts) > 1 else where,
            f"{info.nbytes:,}",
            human_bytes(info.nbytes),
        )
    console.print(tensors)
    counts = ", ".join(f"{kind.name} {n}" for kind, n in gguf.type_counts().items())
    console.print(f"\n{counts}; {human_bytes(gguf.n_bytes)} in all")


def _sizes(ne: tuple[int, ...]) -> tuple[int, ...]:
    """Sizes without the ones that only fill up to four dimensions."""
    while len(ne) > 1 and ne[-1] == 1:
        ne = ne[:-1]
    return ne


def shorten(value: Any) -> str:
    """A value on one line; what is left out is said."""
    if isinstance(value, str):
        text = value if len(value) <= SHOWN_CHARS else value[:SHOWN_CHARS]
        more = len(value) - len(text)
        return repr(text)[1:-1] + (f" … {more:,} more characters" if more else "")
    if isinstance(value, (Sequence, np.ndarray)):
        shown = [repr(x) if isinstance(x, str) else str(x) for x in value[:SHOWN_ITEMS]]
        more = len(value) - len(shown)
        return "[" + ", ".join(shown) + (f", … {more:,} more]" if more else "]")
    return str(value)
