"""Steps with contacts of a window of a rollout, by programs on its arrays."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from robodyn.api.queries.contacts import Blocks, Solver
from robodyn.internals.arguments import Array, address_of


class ContactLoop:
    """Steps with contacts, one after another.

    Args:
        solver: of steps.
        states: q (steps + 1, B, nq) and qd (steps + 1, B, nv).
        given: other inputs, (steps, B, ...), or (1, B, ...) if they are constant.
        converged: (B,), False is entered for states that do not converge.
        asks: True if each step has a tau of its own.
    """

    def __init__(
        self,
        solver: Solver,
        states: tuple[Array, Array],
        given: Mapping[str, Array],
        converged: Array,
        asks: bool,
    ) -> None:
        q, qd = states
        arrays = {"q": q[:-1], "qd": qd[:-1], **given}
        if asks:
            arrays["tau"] = np.empty_like(qd[:1])
        self._inputs, self._results = arrays, {"q_next": q[1:], "qd_next": qd[1:]}
        self._tau, self._converged = arrays["tau"][0], converged
        inputs, results = self._at(0)
        self._blocks = Blocks(solver, inputs, results)
        bound = self._blocks.bound
        self.works = bound is not None
        """True if the engine has the program."""
        if bound is not None:
            moving = {name: a for name, a in {**arrays, **self._results}.items() if len(a) > 1}
            self._moves = [(bound.places[name], address_of(a), a.strides[0]) for name, a in moving.items()]
            self._table = bound.table

    def _at(self, k: int) -> tuple[dict[str, Array], dict[str, Array]]:
        """Inputs and results of step k."""
        inputs, results = (
            {name: array[k if len(array) > 1 else 0] for name, array in arrays.items()}
            for arrays in (self._inputs, self._results)
        )
        return inputs, results

    def step(self, k: int, tau: Array | None) -> None:
        """Fill the state after step k. `tau` (B, nv): that of a policy."""
        if tau is not None:
            self._tau[...] = tau
        table = self._table
        for place, start, stride in self._moves:
            table[place] = start + k * stride
        if not self._blocks.run():
            solution = self._blocks.go_on(*self._at(k))
            self._converged &= solution.converged | ~solution.finite
