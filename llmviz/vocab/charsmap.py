"""The character map of a Unigram vocabulary: what a text's characters are replaced with.
↔ src/llama-vocab.cpp (llm_tokenizer_ugm: precompiled_charsmap, xcda_array_view)

SentencePiece stores the map as a trie in one array of 32-bit entries (an XOR-compressed double
array, Kanda 2018) followed by the replacements, each ended by a NUL byte. The longest prefix of the
text that the trie holds is replaced.
"""

from __future__ import annotations

import numpy as np

from llmviz.errors import VocabError

__all__ = ["CharsMap"]

_WORD = 0xFFFFFFFF
_VALUE = 0x7FFFFFFF
_CHECK = 0x800000FF
_HAS_VALUE = 1 << 8
_WIDE = 1 << 9


class CharsMap:
    """The map in a file's ``tokenizer.ggml.precompiled_charsmap``.

    Parameters
    ----------
    blob : bytes
        Size of the trie in bytes (u32), the trie, the replacements.

    Raises
    ------
    ValueError
        The size that the blob claims does not fit it.
    """

    def __init__(self, blob: bytes) -> None:
        if len(blob) < 4:
            raise ValueError(f"{len(blob)} bytes, too short for the size of its table (4 bytes)")
        size = int.from_bytes(blob[:4], "little")
        if size + 4 >= len(blob):
            raise ValueError(f"its table claims {size} bytes, {len(blob) - 4} are there")
        entries = np.frombuffer(blob, "<u4", size // 4, offset=4)
        self._entries = entries.astype(np.uint32).data
        self._replacements = blob[4 + size :]

    def longest(self, text: bytes, start: int) -> tuple[int, bytes] | None:
        """How many bytes from `start` on are replaced, and with what; None where none are.

        Raises
        ------
        VocabError
            The map leads outside itself.
        """
        node = self._base(self._entry(0))
        found = None
        for place in range(start, len(text)):
            byte = text[place]
            if byte == 0:
                break
            node ^= byte
            entry = self._entry(node)
            if entry & _CHECK != byte:
                break
            node ^= self._base(entry)
            if entry & _HAS_VALUE:
                found = place - start + 1, self._entry(node) & _VALUE
        if found is None:
            return None
        length, offset = found
        end = self._replacements.find(b"\0", offset)
        if offset >= len(self._replacements) or end < 0:
            raise self._damaged(f"a replacement at byte {offset} has no end")
        return length, self._replacements[offset:end]

    def _entry(self, index: int) -> int:
        if index >= len(self._entries):
            raise self._damaged(f"entry {index} of {len(self._entries)} is asked for")
        return self._entries[index]

    @staticmethod
    def _base(entry: int) -> int:
        return (entry >> 10 << (8 if entry & _WIDE else 0)) & _WORD

    @staticmethod
    def _damaged(what: str) -> VocabError:
        return VocabError(
            f"the vocabulary's character map is damaged: {what} "
            "(tokenizer.ggml.precompiled_charsmap). Convert the model again"
        )
