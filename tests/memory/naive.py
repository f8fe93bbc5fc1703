"""The KV cells as plain loops over a list: slow, short, and obviously what llama.cpp's loops do.

One stream (a unified cache). The tests hold the real cache equal to this.
"""

from __future__ import annotations

from collections.abc import Sequence


def masked(n_swa: int, swa_type: str, p0: int, p1: int) -> bool:
    """Whether a key at p0 is outside the window of a query at p1."""
    match swa_type:
        case "standard":
            return p1 - p0 >= n_swa
        case "chunked":
            return p0 < (p1 // n_swa) * n_swa
        case "symmetric":
            return p1 - p0 < -(n_swa // 2) or p1 - p0 > n_swa // 2
    return False


class NaiveCells:
    """Position, pending shift and sequences of each cell; None = empty."""

    def __init__(self, size: int, n_swa: int = 0, swa_type: str = "none") -> None:
        self.cells: list[list | None] = [None] * size  # [pos, shift, {sequences}]
        self.head = 0
        self.n_swa, self.swa_type = n_swa, swa_type

    def of(self, seq_id: int, p0: int = -1, p1: int = -1) -> list[int]:
        """Indices of a sequence's cells (-1: of any) at positions [p0, p1)."""
        found = []
        for i, cell in enumerate(self.cells):
            if cell is None or (seq_id >= 0 and seq_id not in cell[2]):
                continue
            if max(p0, 0) <= cell[0] < (p1 if p1 >= 0 else 2**31):
                found.append(i)
        return found

    def pos_min(self, seq_id: int) -> int:
        return min((self.cells[i][0] for i in self.of(seq_id)), default=-1)

    def pos_max(self, seq_id: int) -> int:
        return max((self.cells[i][0] for i in self.of(seq_id)), default=-1)

    def usable(self, i: int) -> bool:
        cell = self.cells[i]
        if cell is None:
            return True
        if len(cell[2]) != 1:
            return False
        (seq_id,) = cell[2]
        return masked(self.n_swa, self.swa_type, cell[0], self.pos_max(seq_id) + 1)

    def find_slot(self, n_tokens: int, cont: bool = False) -> list[int] | None:
        size = len(self.cells)
        if n_tokens > size:
            return None
        head = self.head
        if head > sum(c is not None for c in self.cells) + 2 * n_tokens:
            head = 0
        n_test = n_tokens if cont else 1
        idxs: list[int] = []
        tested = 0
        while True:
            if head + n_test > size:
                tested += size - head
                head = 0
                continue
            for _ in range(n_test):
                i = head
                head += 1
                tested += 1
                if self.usable(i):
                    idxs.append(i)
                elif cont:
                    break
            if len(idxs) == n_tokens:
                return idxs
            if cont:
                idxs = []
            if tested >= size:
                return None

    def apply(self, idxs: Sequence[int], pos: Sequence[int], seqs: Sequence[Sequence[int]]) -> None:
        lost: dict[int, int] = {}
        for i, p, s in zip(idxs, pos, seqs, strict=True):
            old = self.cells[i]
            if old is not None:
                (seq_id,) = old[2]
                lost[seq_id] = max(lost.get(seq_id, -1), old[0])
            self.cells[i] = [p, 0, set(s)]
        for seq_id, last in lost.items():
            first = self.pos_min(seq_id)
            if 0 <= first <= last:
                self.seq_rm(seq_id, first, last + 1)
        self.head = idxs[-1] + 1

    def seq_rm(self, seq_id: int, p0: int = -1, p1: int = -1) -> None:
        freed = []
        for i in self.of(seq_id, p0, p1):
            self.cells[i][2] -= {seq_id} if seq_id >= 0 else self.cells[i][2]
            if not self.cells[i][2]:
                self.cells[i] = None
                freed.append(i)
        self.head = min([self.head, *freed[:1]])

    def seq_cp(self, src: int, dst: int, p0: int = -1, p1: int = -1) -> None:
        for i in self.of(src, p0, p1):
            self.cells[i][2].add(dst)

    def seq_keep(self, seq_id: int) -> None:
        freed = []
        for i in self.of(-1):
            if seq_id in self.cells[i][2]:
                self.cells[i][2] = {seq_id}
            else:
                self.cells[i] = None
                freed.append(i)
        self.head = min([self.head, *freed[:1]])

    def seq_add(self, seq_id: int, p0: int, p1: int, d: int) -> None:
        if d == 0 or max(p0, 0) == p1:
            return
        freed = []
        for i in self.of(seq_id, p0, p1):
            self.cells[i][0] += d
            self.cells[i][1] += d
            if self.cells[i][0] < 0:
                self.cells[i] = None
                freed.append(i)
        self.head = freed[0] if freed else 0

    def seq_div(self, seq_id: int, p0: int, p1: int, d: int) -> None:
        if d == 1 or max(p0, 0) == p1:
            return
        for i in self.of(seq_id, p0, p1):
            old = self.cells[i][0]
            self.cells[i][0] //= d
            self.cells[i][1] += old - self.cells[i][0]
