"""The batch: what the caller hands to decode. ↔ include/llama.h (llama_batch)"""

from __future__ import annotations

from collections.abc import Iterable

from llmviz.batch.checks import as_list, as_seq_ids
from llmviz.errors import BatchError


class Batch:
    """Tokens to decode, with their positions, sequences and output flags.

    Plain lists that may be read and changed freely; `BatchAllocr.init` checks them when the batch
    is used.

    Parameters
    ----------
    token : sequence of int, optional
        Token ids.
    pos : sequence of int, optional
        Position of each token in its sequences. None: each sequence continues after what the memory
        holds.
    seq_id : sequence of (int or sequence of int), optional
        The sequences that each token belongs to. None: all tokens are in sequence 0.
    logits : sequence of bool, optional
        True where the token's logits are wanted. None: only for the last token.
    """

    __slots__ = ("logits", "pos", "seq_id", "token")

    token: list[int]
    pos: list[int] | None
    seq_id: list[tuple[int, ...]] | None
    logits: list[bool] | None

    def __init__(
        self,
        token: Iterable[int] | None = None,
        pos: Iterable[int] | None = None,
        seq_id: Iterable[int | Iterable[int]] | None = None,
        logits: Iterable[bool] | None = None,
    ) -> None:
        self.token = [] if token is None else as_list("token", token)
        self.pos = None if pos is None else as_list("pos", pos)
        self.seq_id = None
        if seq_id is not None:
            self.seq_id = [as_seq_ids(s) for s in as_list("seq_id", seq_id)]
        self.logits = None if logits is None else as_list("logits", logits)

    @classmethod
    def get_one(cls, tokens: Iterable[int]) -> Batch:
        """Tokens that continue sequence 0, logits for the last (``llama_batch_get_one``)."""
        return cls(token=tokens)

    def add(
        self,
        token: int,
        pos: int | None = None,
        seq_ids: int | Iterable[int] | None = None,
        logits: bool | None = None,
    ) -> None:
        """Append one token.

        An entry names the same things as those before it: a position, sequences or an output flag
        is given for every token of a batch or for none.

        Raises
        ------
        BatchError
            The entry gives what earlier ones left out, or leaves out what they gave.
        """
        i = len(self.token)
        given = {"pos": pos, "seq_id": seq_ids, "logits": logits}
        for name, value in given.items():
            have = getattr(self, name)
            if i and (value is None) != (have is None):
                raise BatchError(
                    f"{name}[{i}] is {'missing' if value is None else 'given'}, but the {i} "
                    f"earlier tokens of this batch are {'without' if have is None else 'with'} it: "
                    "give it for every token or for none"
                )
        for name, value in given.items():
            if value is None:
                continue
            if getattr(self, name) is None:
                setattr(self, name, [])
            getattr(self, name).append(as_seq_ids(value) if name == "seq_id" else value)
        self.token.append(token)

    def clear(self) -> None:
        """Remove all tokens; what was given per token may be chosen anew."""
        self.token = []
        self.pos = self.seq_id = self.logits = None

    @property
    def n_tokens(self) -> int:
        """Number of tokens."""
        return len(self.token)

    def __len__(self) -> int:
        return len(self.token)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Batch):
            return NotImplemented
        return all(getattr(self, f) == getattr(other, f) for f in self.__slots__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        parts = [f"{self.n_tokens} token{'' if self.n_tokens == 1 else 's'}"]
        for name, default in (
            ("token", ""),
            ("pos", "continue"),
            ("seq_id", "0"),
            ("logits", "last only"),
        ):
            value = getattr(self, name)
            if value is None:
                parts.append(f"{name}: {default}")
                continue
            shown = ", ".join(
                str(list(v)) if isinstance(v, tuple) else repr(int(v) if isinstance(v, bool) else v)
                for v in value[:8]
            )
            more = f", ... {len(value) - 8} more" if len(value) > 8 else ""
            parts.append(f"{name}: [{shown}{more}]")
        return f"<Batch {'; '.join(parts)}>"
