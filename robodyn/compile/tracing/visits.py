"""How often a task visits bodies: the size of its straight-line program, known without a trace."""

from __future__ import annotations

import math

from robodyn.algorithms.tasks import Solve, Task
from robodyn.compile.tracing.unrolled import output_shape
from robodyn.core.model import Model
from robodyn.core.sweeps import Ancestors, Inward, Outward

MOST_VISITS = 10_000
"""Above this number of visits straight-line code of C or of CasADi is refused."""


def visits(model: Model, task: Task, of_constraints: bool = False) -> int:
    """The number of visits to bodies. `of_constraints`: True for queries about constraints."""
    lanes = any(isinstance(sweep, Outward | Inward) and sweep.lanes for sweep in task.sweeps)
    pairs = any(isinstance(sweep, Ancestors) and not sweep.of_link for sweep in task.sweeps)
    times = model.n_bodies * (model.nv if lanes else 1)
    if pairs or of_constraints:
        times = int((model.tree.depth + 1).sum())
    if of_constraints:  # a right-hand side for each row
        times += model.n_rows * model.n_bodies
    return times * (1 + sum(_columns(model, solve) for solve in task.solves))  # solves visit all pairs for each column


def _columns(model: Model, solve: Solve) -> int:
    return sum(math.prod(output_shape(model, solution)) for solution in solve.outputs.values()) // max(1, model.nv)
