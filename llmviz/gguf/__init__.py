"""GGUF files: header, key-values and tensor infos, over a memory map. ↔ ggml/src/gguf.cpp

Reading order: `constants.py` (what the format consists of), `walk.py` (the header, byte by byte),
`keyvalues.py`, `tensorinfos.py`, `reader.py` (the opened file), `split.py` (several files).
"""

from llmviz.gguf.constants import ValueType
from llmviz.gguf.fields import Field, TensorInfo
from llmviz.gguf.reader import GGUF, open_gguf, open_steps
from llmviz.gguf.strings import StringArray

__all__ = ["GGUF", "Field", "StringArray", "TensorInfo", "ValueType", "open_gguf", "open_steps"]
