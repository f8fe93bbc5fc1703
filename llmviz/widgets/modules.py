"""Reads the ES modules and style sheets of the views, once each.

A view's module is one plain file that may import from its neighbours by ``import { a } from
"./kit.js";``. Hosts take a single module, so the neighbours are put in front of it, each in a
function of its own: no bundler, no build step, nothing from the network.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

__all__ = ["esm", "style"]

_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([\w-]+)\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|class) (\w+))", re.MULTILINE)
_NAME = re.compile(r"^export (?:async )?(?:function|const|class) (\w+)", re.MULTILINE)


def _read(name: str) -> str:
    return (files("llmviz.widgets") / "static" / name).read_text("utf-8")


@cache
def esm(view: str) -> str:
    """The whole ES module of a view, with what it imports put in front."""
    parts: dict[str, str] = {}

    def take(name: str, chain: tuple[str, ...]) -> str:
        if name in chain:
            raise ValueError(f"modules import each other: {' -> '.join((*chain, name))}")
        source = _read(f"{name}.js")
        for _, other in _IMPORT.findall(source):
            if other not in parts:
                body = take(other, (*chain, name))
                names = ", ".join(_NAME.findall(_read(f"{other}.js")))
                body = _DEFAULT.sub("", _EXPORT.sub("", body))
                parts[other] = (
                    f"const {_alias(other)} = (() => {{\n{body}\nreturn {{ {names} }};\n}})();"
                )
        return _IMPORT.sub(lambda m: f"const {{{m[1]}}} = {_alias(m[2])};\n", source)

    own = take(view, ())
    return "\n".join((*parts.values(), own))


# What a neighbour shows when it stands alone is of no use inside another module.
_DEFAULT = re.compile(r"^export default [^\n]*\n", re.MULTILINE)


def _alias(name: str) -> str:
    return "module_" + name.replace("-", "_")


@cache
def style() -> str:
    """The style sheets that all views share."""
    return _read("base.css") + _read("panel.css")
