"""In which order llama.cpp meets the tokens when it looks through all of them.
↔ src/llama-vocab.cpp (token_to_id), GCC's libstdc++ (hash_bytes.cc, hashtable.h,
hashtable_c++0x.cc)

llama.cpp finds the end-of-turn token, and those of fill-in-the-middle, by walking a hash map from
text to id and taking the first name it knows. Where a vocabulary has several such names, which
one that is depends on the map's order alone. So that both agree, this module works the order out
as GCC's standard library, with which llama.cpp is commonly built, has it. Elsewhere llama.cpp
itself may pick another.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

__all__ = ["map_order"]

_SEED = 0xC70F6907
_MUL = 0xC6A4A7935BD1E995

# The bucket counts that a growing map passes through: primes, each about twice the one before.
_BUCKETS = (
    *(13, 29, 59, 127, 257, 541, 1109, 2357, 5087, 10273, 20753, 42043, 85229, 172933, 351061),
    *(712697, 1447153, 2938679),
)


def map_order(texts: Sequence[bytes]) -> np.ndarray:
    """Order in which a map that got `texts` one after the other is walked.

    Parameters
    ----------
    texts : sequence of bytes
        All different, at most 2938679.

    Returns
    -------
    int64[n]
        Indices into `texts`.
    """
    hashes = _hash_all(texts)
    n = len(texts)
    order = np.empty(0, np.int64)
    for buckets in _BUCKETS[: bisect_left(_BUCKETS, n) + 1]:
        # The map is full: its elements move to new buckets in walking order, then others come.
        sequence = np.concatenate([order, np.arange(len(order), min(n, buckets))])
        order = sequence[_walk(hashes[sequence] % np.uint64(buckets), buckets)]
    return order


def _walk(bucket: np.ndarray, n_buckets: int) -> np.ndarray:
    """Walking order of elements inserted in turn, given each one's bucket.

    An element of an empty bucket goes to the very front; any other to the front of its bucket.
    """
    place = np.arange(len(bucket))
    opened = np.empty(n_buckets, np.int64)  # when each bucket got its first element
    opened[bucket[::-1]] = place[::-1]
    return np.argsort(-(opened[bucket] * len(bucket) + place))


def _hash_all(texts: Sequence[bytes]) -> np.ndarray:
    """64-bit Murmur hash of each text, as ``std::hash<std::string>`` has it: uint64[n]."""
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    out = np.empty(len(texts), np.uint64)
    mul = np.uint64(_MUL)
    by_blocks = lengths // 8
    for n_blocks in np.unique(by_blocks):
        chosen = np.flatnonzero(by_blocks == n_blocks)
        width = 8 * (int(n_blocks) + 1)
        joined = b"".join(texts[i].ljust(width, b"\0") for i in chosen.tolist())
        words = np.frombuffer(joined, "<u8").reshape(len(chosen), -1)  # [m, n_blocks + 1]
        length = lengths[chosen].astype(np.uint64)
        value = np.uint64(_SEED) ^ (length * mul)
        for column in range(int(n_blocks)):
            value = (value ^ (_mix(words[:, column] * mul) * mul)) * mul
        rest = (value ^ words[:, -1]) * mul  # the last, incomplete word, where there is one
        value = np.where(length % np.uint64(8) != 0, rest, value)
        out[chosen] = _mix(_mix(value) * mul)
    return out


def _mix(value: np.ndarray) -> np.ndarray:
    return value ^ (value >> np.uint64(47))
