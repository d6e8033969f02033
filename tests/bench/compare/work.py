"""The work that every library is given: robots, queries, states, and the answers that are wanted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import robodyn as rd
from robodyn.internals.arguments import Array
from robodyn.internals.cached import cached_property
from robodyn.tools.benchmark.contenders import Answers, Contender, Prepared, RefusedError, draw, one_by_one, repeated
from tests.bench.shared import MODELS, robot
from tests.bench.shared import ROBOTS as BASES

ROBOTS = ("arm7", "humanoid")
QUERIES = {
    "inverse_dynamics": ("q", "qd", "qdd"),
    "forward_dynamics": ("q", "qd", "tau"),
    "mass_matrix": ("q",),
    "kinematics": ("q",),
    "inverse_dynamics_gradient": ("q", "qd", "qdd"),
    "forward_dynamics_gradient": ("q", "qd", "tau"),
    "rollout": ("q", "qd", "tau"),
}
"""Queries, and what they are asked with. Kinematics is the poses of all links; a rollout is `STEPS` steps under
constant forces; gradients are by q and qd, of forward dynamics by tau, too."""
BATCHES = (1, 4096)
DISTINCT = 64
STEPS, DT = 50, 1e-3
TOLERANCE = {"rollout": 1e-3}
"""How far answers may be from ours, relative to the largest entry. Positions of a floating base are integrated along
its twist, or along its velocity in the world: after a rollout they are this close."""
USUAL_TOLERANCE = 1e-7


@dataclass(frozen=True)
class Job:
    """What a library makes of a query: `prepared` runs it and tells its answers, `wanted` are ours in its convention.

    `compile_s`: seconds of compiling, None where nothing is compiled; `less_ns`: what calls cost, to be taken off;
    `remark`: stands beside the time.
    """

    prepared: Prepared
    wanted: Answers
    compile_s: float | None = None
    less_ns: Callable[[float], float] | None = None
    remark: str = ""


class Robot:
    """A robot of models/, or a model, states of it, and the reference engine's answers."""

    def __init__(self, name: str, model: rd.Model | None = None) -> None:
        self.name, self.base = name, BASES.get(name, "")
        self.path = MODELS / f"{name}.urdf"
        self.model = robot(name) if model is None else model

    @cached_property
    def states(self) -> dict[str, Array]:
        return draw(self.model, DISTINCT)

    def batch(self, n: int) -> dict[str, Array]:
        """That many states: the distinct ones over and over."""
        return repeated(self.states, n)

    def inputs(self, query: str) -> list[Array]:
        """What a query is asked with at the distinct states, in our convention."""
        return [self.states[name] for name in QUERIES[query]]

    def truth(self, query: str) -> Answers:
        """What is right at the distinct states, in our convention."""
        call, read = call_of(rd.Dynamics(self.model, engine="reference"), query)
        return read(call(*self.inputs(query)))

    def wanted(self, way: Any, query: str) -> Answers:
        """What is right in another convention."""
        q, qd = self.states["q"], self.states["qd"]
        truth = self.truth(query)
        if query == "rollout":
            return way.q_to(truth[0]), way.v_to(*truth)
        if query == "kinematics":
            return truth
        to = {"inverse_dynamics": partial(way.tau_to, q), "forward_dynamics": partial(way.a_to, q, qd)}
        # Whoever has gradients has the axes of our velocities: rows and columns are in another order.
        return tuple(map(to.get(query, partial(way.mass_matrix_to, q)), truth))


def call_of(dyn: rd.Dynamics, query: str) -> tuple[Callable[..., Any], Callable[[Any], Answers]]:
    """A query of ours as a function of arrays, looked up now, and what reads its result."""
    if query == "rollout":
        return partial(dyn.rollout, dt=DT, steps=STEPS, save_every=None), lambda run: (run.q[-1], run.qd[-1])
    call = getattr(dyn, "forward_kinematics" if query == "kinematics" else query)
    return call, lambda found: found if isinstance(found, tuple) else (found,)


def no_query(name: str, why: str = "") -> RefusedError:
    """A library that has no such query."""
    return RefusedError(f"no {name.replace('_', ' ')}" + (f": {why}" if why else ""))


def alone(found: Any) -> Answers:
    return (found,)


def poses(xp: Any, R: Any, p: Any) -> Any:
    """(n, 4, 4) of rotations and places."""
    last = xp.broadcast_to(xp.asarray([0.0, 0.0, 0.0, 1.0]), (len(p), 1, 4))
    return xp.concatenate([xp.concatenate([R, p[:, :, None]], axis=2), last], axis=1)


Functions = dict[str, tuple[Callable[..., Any], Callable[[Any], Answers]]]
"""By query, a call for one state in the library's own convention, and what reads its result."""


class Library:
    """A library with a robot, which answers one state a call.

    `way`: to its convention, a `rd.converter`; `links`: places of the links whose poses it gives.

    Raises:
        RefusedError: it is not installed, does not take the robot, or has no such query; says why.
    """

    def __init__(self, robot: Robot) -> None:
        self.robot, self.name = robot, ""
        self.way: Any = None
        self.links: list[int] = list(range(len(robot.model.link_names)))
        self.prepare(robot.model)

    def prepare(self, model: rd.Model) -> None:
        """Fill `name` and `way`."""
        raise NotImplementedError

    def functions(self, query: str) -> Functions:
        """Those that it has, at least of one query."""
        raise NotImplementedError

    def job(self, query: str, batch: int) -> Job:
        """A loop over single calls."""
        there = self.functions(query)
        if query not in there:
            raise no_query(query)
        call, read = there[query]
        rows = list(zip(*self.inputs(query), strict=True))
        return self.looped(call, rows, read, query, batch)

    def benched(self, there: list[Contender], batch: int) -> Job:
        """What `robodyn bench` asks: its calls for one state, or for a batch where the library has them."""
        asked = there[-1 if batch > 1 else 0]
        prepared = asked.prepare(self.robot.states if asked.single else self.robot.batch(batch))
        remark = "one by one" if asked.single and batch > 1 else ""
        return Job(prepared, self.robot.truth(asked.query), remark=remark)

    def looped(
        self, call: Callable[..., Any], rows: Any, read: Callable[[Any], Answers], query: str, batch: int
    ) -> Job:
        remark = "one by one" if batch > 1 else ""
        return Job(one_by_one(call, rows, lambda found, row: read(found)), self.wanted(query), remark=remark)

    def inputs(self, query: str, batch: int = 1) -> list[Array]:
        """What a query is asked with, in its convention, contiguous: distinct states, or a batch of them."""
        states = self.robot.batch(batch) if batch > 1 else self.robot.states
        q, qd = states["q"], states["qd"]
        to = {
            "q": lambda: self.way.q_to(q),
            "qd": lambda: self.way.v_to(q, qd),
            "qdd": lambda: self.way.a_to(q, qd, states["qdd"]),
            "tau": lambda: self.way.tau_to(q, states["tau"]),
        }
        return [np.ascontiguousarray(to[name]()) for name in QUERIES[query]]

    def wanted(self, query: str) -> Answers:
        """What is right in its convention."""
        found = self.robot.wanted(self.way, query)
        return (found[0][:, self.links],) if query == "kinematics" else found
