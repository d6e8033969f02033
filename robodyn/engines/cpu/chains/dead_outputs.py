"""Entries of matrices between the stages of a chain that no later stage reads. Programs do not compute them.

Arrays of vectors between stages have a vector for every entry of a matrix, most of which are zero for every state.
Storing these zeros takes time.

- A mass matrix that is only factorised: the factorisation reads entries below the diagonal that can be nonzero, and no
  others.
- A right-hand side: the solution overwrites it. Tiles of columns only touch rows where the solution can be nonzero. All
  other entries are zero before and after the solve, for every vector of states. So the chain's kernel clears them once.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np

from robodyn.algorithms.tasks import Chain, Stage
from robodyn.core.model import Model
from robodyn.engines.cpu.chains.solves import tiled_solve
from robodyn.internals.arguments import Array
from robodyn.internals.records import dataclass


@dataclass(frozen=True)
class DeadOutputs:
    """Entries of an array that its stage need not store.

    `entries`: (n,) bool, in C order; `zero`: True if the entries must be zero, because others read the whole array.
    """

    entries: Array
    zero: bool


_FOUND: WeakKeyDictionary[Model, dict[Chain, dict[str, DeadOutputs]]] = WeakKeyDictionary()


def unread(model: Model, chain: Chain) -> dict[str, DeadOutputs]:
    """The arrays of a chain that have such entries, by name."""
    chains = _FOUND.setdefault(model, {})
    if chain not in chains:
        names = [name for stage in chain.stages if stage.sweeps for name in stage.outputs]
        each = {name: _dead_entries(model, chain, name) for name in names if name not in chain.results}
        chains[chain] = {name: entries for name, entries in each.items() if entries and entries.entries.any()}
    return chains[chain]


def dead_outputs_of(model: Model, chain: Chain, stage: Stage) -> tuple[tuple[str, bytes], ...]:
    """The dead entries of a stage's outputs, by the names of its algorithm, in the form of `Request.unread`."""
    dead = unread(model, chain)
    names = ((name, stage.names.get(name, name)) for name in stage.algorithm.outputs)
    return tuple((name, dead[left].entries.tobytes()) for name, left in names if left in dead)


def _dead_entries(model: Model, chain: Chain, name: str) -> DeadOutputs | None:
    solves = [stage for stage in chain.solves if name in stage.inputs]
    if not solves or len(solves) < sum(name in stage.inputs for stage in chain.stages):
        return None
    if all(solve.matrix == name for solve in solves):
        written = np.eye(model.nv, dtype=bool)
        for row, columns in enumerate(tiled_solve(model, solves[0]).elimination.lower):
            written[row, columns] = True
        return DeadOutputs(~written.ravel(), zero=False)
    if len(solves) > 1:
        return None
    (solve,) = solves
    (which, *more) = [k for k, solution in enumerate(solve.outputs.values()) if name in solution.arrays]
    solution = list(solve.outputs.values())[which]
    if more or len(solution.arrays) > 1:
        return None
    written = tiled_solve(model, solve).tilings[which].written()
    written[:, solution.known_columns(model)] = True
    return DeadOutputs(~written.ravel(), zero=True)
