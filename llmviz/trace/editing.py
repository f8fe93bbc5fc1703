"""Changing a run where it stands: values, cells, sampler parameters, whole kinds of nodes.

Every change is an `Edit` in the log of the current branch. A change made at an event that lies
behind the furthest one makes a branch of its own first: what was computed before stays. Does not
do: changes for which the run has to go back first (`revising`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from llmviz.trace import interventions as ready
from llmviz.trace.branching import Branching
from llmviz.trace.breakpoints import never_matches
from llmviz.trace.edits import (
    MEMORY_OPS,
    Edit,
    Intervention,
    MemoryEdit,
    SamplerEdit,
    Switch,
    ValueEdit,
    checked_like,
    fixed_memory,
    with_params,
)
from llmviz.trace.timeline import DebuggerError

__all__ = ["Editing"]


class Editing(Branching):
    """Edits of a run; see the module's docstring."""

    # -- one event ---------------------------------------------------------------------------------

    def edit(self, value: Any) -> Edit:
        """Put a value in the place of the one that `here` holds; the run goes on with it.

        A node, an input, the logits, or the ids of the prompt's ``tokens``.

        Raises
        ------
        DebuggerError
            Where there is nothing to edit, or the shape does not fit, or the dtype cannot hold it.
        """
        self._not_busy()
        here = self.here
        if here is None:
            raise DebuggerError("edit needs a tensor: step to a node event first")
        if here.kind == "data" and (here.step, here.name) == (9, "tokens"):
            new: Any = [self._checked_token(t) for t in value]
            if not new:
                raise DebuggerError("a prompt needs at least one token")
            description = f"{len(new)} other prompt tokens"
        elif here.kind in ("node", "data") and isinstance(here.value, np.ndarray):
            if fixed := fixed_memory(here.about):
                raise DebuggerError(f"{here.name} cannot be changed: {fixed}")
            new = checked_like(here.event, value)
            description = f"another value of {here.name}"
        else:
            raise DebuggerError("edit needs a tensor: step to a node event first")
        return self._add(ValueEdit(0, 0, "", description, value=new))

    def memory_op(self, op: str, *args: int) -> Edit:
        """Change the cells of the KV cache between two decodes.

        Parameters
        ----------
        op : str
            ``seq_rm``, ``seq_cp``, ``seq_keep``, ``seq_add``, ``seq_div`` or ``clear``.
        *args : int
            As for ``ctx.memory``: ``memory_op("seq_rm", 0, 2, 5)`` removes positions 2..4.

        Raises
        ------
        DebuggerError
            An unknown operation, or the run is inside a decode.
        CacheError
            The cache refuses it.
        """
        if op not in MEMORY_OPS:
            raise DebuggerError(f"no memory operation {op!r}; there are: {', '.join(MEMORY_OPS)}")
        here = self._standing()
        if self.ctx is None or self.generation is None:
            raise DebuggerError("there is no cache yet: run to step 8 first")
        still_open = self._stack[:-1] if here.kind == "exit" else self._stack
        if any(s.name == "decode" for s in still_open):
            raise DebuggerError(
                "cells cannot be changed while a decode runs on them: step out of decode first"
            )
        text = f"{op}({', '.join(map(str, args))})"
        return self._add(MemoryEdit(0, 0, "", text, op=op, args=tuple(args)))

    def set_sampler(self, which: int | str, **params: Any) -> Edit:
        """Give a sampler of the chain other parameters, from here on.

        Parameters
        ----------
        which : int or str
            Index, or llama.cpp's name (``"top-p"`` or ``"top_p"``; of several the first).
        **params
            ``p=0.5``.
        """
        if self.generation is None:
            raise DebuggerError("the chain is not in use yet: run to step 8 first")
        samplers = self.generation.chain.samplers
        if isinstance(which, str):
            names = [s.name for s in samplers]
            wanted = which.replace("_", "-")
            if wanted not in names:
                raise DebuggerError(f"no sampler {which!r} in the chain: {', '.join(names)}")
            index = names.index(wanted)
        else:
            index = which
            if not 0 <= index < len(samplers):
                raise DebuggerError(f"no sampler {which}: the chain has {len(samplers)}, from 0")
        with_params(samplers[index], params, [])  # refuses what does not fit
        given = ", ".join(f"{k} = {v!r}" for k, v in params.items())
        text = f"{samplers[index].name}: {given}"
        return self._add(SamplerEdit(0, 0, "", text, index=index, params=params))

    # -- standing ----------------------------------------------------------------------------------

    def intervene(
        self, pattern: str, function: Callable[[np.ndarray, Any], Any], description: str = ""
    ) -> Intervention:
        """Change every node of a name or glob from here on.

        Parameters
        ----------
        pattern : str
            ``"l_out-5"``, ``"kqv_out-*"``.
        function : callable
            ``function(array, tensor) -> array``: gets a copy of the value (numpy order) and the
            node's tensor, returns the same shape. It must depend on nothing else.
        """
        if not isinstance(pattern, str) or not pattern.strip():
            raise DebuggerError("an intervention needs a name or glob of nodes, such as 'l_out-*'")
        if not callable(function):
            raise DebuggerError(f"an intervention needs a function, not {function!r}")
        text = description or f"{getattr(function, '__name__', 'function')} of {pattern}"
        edit = Intervention(0, 0, "", text, pattern=pattern.strip(), function=function)
        if self._known.nodes:
            edit.warning = never_matches(edit.pattern, self._known.nodes)
        self._add(edit)
        return edit

    def ablate_heads(self, layer: int, heads: int | Sequence[int]) -> Intervention:
        """Take away what attention heads add, from here on: their part of ``kqv_out`` is zeroed.

        Raises
        ------
        DebuggerError
            The model has no such layer or head, or is not loaded yet.
        """
        if self.model is None:
            raise DebuggerError("the model is not loaded yet: run to step 7 first")
        chosen = [heads] if isinstance(heads, (int, np.integer)) else list(heads)
        hparams = self.model.hparams
        if not 0 <= layer < hparams.n_layer:
            raise DebuggerError(f"no layer {layer}: the model has 0 to {hparams.n_layer - 1}")
        n_head = hparams.n_head(layer)
        bad = [h for h in chosen if not 0 <= h < n_head]
        if bad or not chosen:
            raise DebuggerError(f"no head {bad or chosen}: layer {layer} has 0 to {n_head - 1}")
        named = ", ".join(map(str, chosen))
        text = f"ablate head{'s' * (len(chosen) > 1)} {named} of layer {layer}"
        return self.intervene(f"kqv_out-{layer}", ready.ablated(chosen, n_head), text)

    def scale(self, pattern: str, factor: float) -> Intervention:
        """Multiply the nodes of a name or glob by a number, from here on."""
        return self.intervene(pattern, ready.scaled(float(factor)), f"{pattern} x {factor:g}")

    def zero(self, pattern: str) -> Intervention:
        """Zero the nodes of a name or glob, from here on."""
        return self.intervene(pattern, ready.scaled(0.0), f"zero {pattern}")

    def mean(self, pattern: str, axis: int | tuple[int, ...] = -1) -> Intervention:
        """Put the mean along an axis (default: of each row) in the place of every value on it."""
        return self.intervene(pattern, ready.averaged(axis), f"mean of {pattern}")

    def disable(self, which: Intervention | int) -> Switch:
        """Switch an intervention off, from here on."""
        return self._switch(which, False)

    def enable(self, which: Intervention | int) -> Switch:
        """Switch an intervention on again, from here on."""
        return self._switch(which, True)

    def _switch(self, which: Intervention | int, on: bool) -> Switch:
        target = self._find(which)
        if not isinstance(target, Intervention):
            raise DebuggerError(f"edit {target.id} is no intervention: undo_edit takes it back")
        text = f"{'enable' if on else 'disable'} {target.description}"
        switch = Switch(0, 0, "", text, target=target, on=on)
        self._add(switch)
        return switch

    # -- the log -----------------------------------------------------------------------------------

    @property
    def edits(self) -> list[Edit]:
        """The edits of this branch in the order in which they were made."""
        return list(self._branches.current.edits)

    @property
    def interventions(self) -> list[Intervention]:
        """The standing ones among the edits."""
        return [e for e in self._branches.current.edits if isinstance(e, Intervention)]

    def _find(self, which: Edit | int) -> Edit:
        number = which.id if isinstance(which, Edit) else which
        for edit in self._branches.current.edits:
            if edit.id == number:
                return edit
        have = ", ".join(str(e.id) for e in self._branches.current.edits) or "none"
        raise DebuggerError(f"this branch has no edit {number}; it has: {have}")

    def _add(self, edit: Any) -> Any:
        """Log an edit; the run stands where it is."""
        with self._not_busy():
            if self._job is not None:
                self._stand("pause")
            self.way = None
            why = self._log_edit(edit)
        if why == "error" and self.error is not None:
            error, self.error = self.error, None
            raise error
        self._tell()
        return edit

    def _log_edit(self, edit: Any) -> str:
        """Log an edit at the current event, in a branch of its own where that lies in the past.

        Returns
        -------
        str
            Why the run stands: ``"goal"``, or ``"error"`` where the edit could not act here.
        """
        here, branch = self.here, self._branches.current
        if isinstance(edit, (MemoryEdit, SamplerEdit)):
            self._act_now(edit)
        if here is not None and here.n < branch.furthest:
            branch = self._fork(None, edit.description)
        edit.id, edit.n = self._next_edit, here.n if here is not None else -1
        edit.name = here.name if here is not None else ""
        self._next_edit += 1
        if isinstance(edit, Switch) and edit.target is not None:
            target = self._find(edit.target.id)  # this branch's own
            assert isinstance(target, Intervention)
            edit.target = target
            target.switches.append(edit)
            target.broken = target.broken and not edit.on
        branch.edits.append(edit)
        self._renew_here()
        return "error" if self.error is not None and edit.note else "goal"

    def _act_now(self, edit: Edit) -> None:
        """Carry out what changes the engine's state; an error leaves everything as it was."""
        assert self.here is not None
        edit.apply(self.here.event, self.here.n, self)
        edit.applied_at = self.here.n

    def _renew_here(self) -> None:
        """Let the edits act on the event that the run stands at, from the engine's own value."""
        here = self.here
        if here is None or here.kind not in ("node", "data"):
            return
        here.event.value = self._engine_value
        for edit in self._branches.current.edits:
            if not isinstance(edit, (MemoryEdit, SamplerEdit)) and edit.due(here.event, here.n):
                self._apply(edit, here.event, here.n)
        if here.kind == "node" or isinstance(here.value, np.ndarray) or here.name == "tokens":
            self.recorder.truncate(here.n - 1)
            self.recorder.see(here.event, here.n, measure=here.kind == "node")

    # -- what tokens are called --------------------------------------------------------------------

    def _checked_token(self, token: Any) -> int:
        vocab = getattr(self.model, "vocab", None)
        if isinstance(token, str):
            if vocab is None:
                raise DebuggerError("there is no vocabulary yet: give the token's id")
            return int(self.values.token_id(token))
        if isinstance(token, bool) or not isinstance(token, (int, np.integer)):
            raise DebuggerError(f"a token is an id or the text of one token, not {token!r}")
        if vocab is not None and not 0 <= token < vocab.n_tokens:
            raise DebuggerError(f"there is no token {token}: ids are 0 to {vocab.n_tokens - 1}")
        return int(token)

    def _shown(self, token: int) -> str:
        if self.model is None:
            return str(token)
        piece = self.model.vocab.token_to_piece(token, special=True)
        return repr(piece.decode("utf-8", "replace"))

    def _is_at(self, kind: str, name: str) -> bool:
        return self.here is not None and (self.here.kind, self.here.name) == (kind, name)
