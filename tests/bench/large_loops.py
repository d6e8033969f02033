"""Constrained forward dynamics of large trees: one call for one state, which "constraints" writes.

Trees are those of `rd.auto_tree`, with points held together between leaves drawn at random; a ladder (`tests.ladders`)
has a loop a rung. An answer that does not obey its constraints and the equation of motion is not written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

import robodyn as rd
from robodyn.internals.arguments import Array
from robodyn.tools.benchmark.tables import Cells
from robodyn.tools.benchmark.timing import measure as timed
from tests.bench.shared import show
from tests.ladders import ladder

LADDER_RUNGS = 55
_SHAPES = {"chain": 1.0, "binary tree": 2.0}
_SIZES = ((60, 1), (110, 1), (300, 1), (500, 1), (1000, 1), (10_000, 1), (10_000, 10))
_TOLERANCE = 1e-6

Closed = tuple[rd.Dynamics, Array]
"""A robot with constraints, and a configuration where they hold."""


@dataclass
class Large:
    """One robot.

    `seconds`: of one call in double precision; `off_by`: what the equation of motion lacks, relative to the largest
    constraint force; `runs`: what the engine says of the query.
    """

    name: str
    bodies: int
    rows: int
    seconds: float
    off_by: float
    runs: str


def measure(selected: Callable[[str], bool], seconds: float, announce: Callable[[str], object]) -> list[Large]:
    """Run the robots whose names are selected."""
    makers: dict[str, Callable[[], Closed]] = {f"large, ladder of {LADDER_RUNGS} rungs": _ladder}
    for shape in _SHAPES:
        for bodies, loops in _SIZES:
            makers[f"large, {shape}, {bodies:,} bodies, {3 * loops} rows"] = partial(_tree, shape, bodies, loops)
    found = []
    for name, make in makers.items():
        if selected(f"constraints: {name}"):
            announce(f"constraints: {name}")
            found.append(_measured(name.removeprefix("large, "), *make(), seconds))
    return found


def _ladder() -> Closed:
    model, held = ladder(LADDER_RUNGS)
    return rd.Dynamics(model, constraints=held, engine="cpu", threads=1), model.neutral()


def _tree(shape: str, bodies: int, loops: int) -> Closed:
    model = rd.auto_tree(bodies, branching=_SHAPES[shape], skew=0.3)
    q = model.random_configuration(np.random.default_rng(1))
    far = np.random.default_rng(0).choice(np.arange(bodies // 2, bodies), 2 * loops, replace=False)
    poses, held = rd.Dynamics(model).forward_kinematics(q), []
    for name, other in np.array(model.body_names)[far].reshape(loops, 2).tolist():
        T, to_T = (poses[model.link_index(each)] for each in (name, other))
        held.append(rd.Point(name, other, to_at=to_T[:3, :3].T @ (T[:3, 3] - to_T[:3, 3]), name=f"{name} {other}"))
    return rd.Dynamics(model, constraints=held, engine="cpu", threads=1), q


def _measured(name: str, dyn: rd.Dynamics, q: Array, seconds: float) -> Large:
    still = np.zeros(dyn.model.nv)
    tau = np.random.default_rng(2).uniform(-1.0, 1.0, dyn.model.nv)
    qdd, lam = dyn.constrained_forward_dynamics(q, still, tau)
    J = dyn.constraint_jacobian(q)
    held = lam @ J
    lack = dyn.inverse_dynamics(q, still, qdd) - tau - held
    off_by = float(np.abs(lack).max() / max(1.0, np.abs(held).max()))
    if not off_by <= _TOLERANCE:
        raise rd.RobodynError(f"{name}: the equation of motion lacks {off_by:.1g} of its largest force")
    out = qdd, lam
    timing = timed(lambda: dyn.constrained_forward_dynamics(q, still, tau, out=out), seconds)
    runs = dyn.explain("constrained_forward_dynamics").reason
    return Large(name, dyn.model.n_bodies, len(J), timing.best_s, off_by, runs)


def table(found: list[Large]) -> list[Cells]:
    """For the screen and the page: none where nothing was measured."""
    headings = ("robot", "bodies ", "rows ", "one call ", "lacks ", "runs")
    rows = [
        (each.name, f"{each.bodies:,}", str(each.rows), show(each.seconds), f"{each.off_by:.0e}", each.runs)
        for each in found
    ]
    return [Cells("Large trees", headings, rows)] if rows else []
