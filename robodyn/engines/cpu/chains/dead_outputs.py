"""What nobody reads of the matrices between the stages of a chain: programs leave it out.

Vectors of states between stages have a place for every entry of a matrix, most of which a tree makes zero. To store
these would take a humanoid's gradient a sixth of its time.

- Of a mass matrix that is only factorised, elimination passes entries below the diagonal that can be nonzero, and
  nothing else.
- A right-hand side becomes the solution in its place. Tiles of columns pass the rows where a solution can be nonzero;
  all others are zero before and afterwards, and stay so from one vector of states to the next. The chain clears them
  once.
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

    `entries`: (n,) bool, in C order; `zero`: whether they are to be zero, as others read the array.
    """

    entries: Array
    zero: bool


_FOUND: WeakKeyDictionary[Model, dict[Chain, dict[str, DeadOutputs]]] = WeakKeyDictionary()


def unread(model: Model, chain: Chain) -> dict[str, DeadOutputs]:
    """By the chain's names, of arrays that have such entries."""
    found = _FOUND.setdefault(model, {})
    if chain not in found:
        names = [name for stage in chain.stages if stage.sweeps for name in stage.outputs]
        each = {name: _of(model, chain, name) for name in names if name not in chain.results}
        found[chain] = {name: entries for name, entries in each.items() if entries and entries.entries.any()}
    return found[chain]


def dead_outputs_of(model: Model, chain: Chain, stage: Stage) -> tuple[tuple[str, bytes], ...]:
    """Of the arrays that a stage leaves, as its algorithm calls them; in the form of `Request.unread`."""
    found = unread(model, chain)
    names = ((name, stage.names.get(name, name)) for name in stage.algorithm.outputs)
    return tuple((name, found[left].entries.tobytes()) for name, left in names if left in found)


def _of(model: Model, chain: Chain, name: str) -> DeadOutputs | None:
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
