"""Pinocchio as a peer: its algorithms on the same robot, made joint by joint from our arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from robodyn.arguments import Array
from robodyn.benchmark.contenders import Answers, Contender, Prepared, RefusedError, States, one_by_one
from robodyn.benchmark.timing import Timing, measure
from robodyn.builders.auto_tree import auto_tree
from robodyn.cached import cached_property
from robodyn.joints import KINDS
from robodyn.model import Model
from robodyn.questions import QUESTIONS

_CALLS = {
    "inverse_dynamics": "rnea",
    "forward_dynamics": "aba",
    "mass_matrix": "crba",
    "bias_force": "nonLinearEffects",
    "inverse_dynamics_gradient": "computeRNEADerivatives",
    "forward_dynamics_gradient": "computeABADerivatives",
}
_PARALLEL = {"inverse_dynamics": "rneaInParallel", "forward_dynamics": "abaInParallel"}
_MOST_BODIES = 2000
_OVERHEAD_STATES = 64


class Pinocchio:
    """A robot in Pinocchio. Its joints are depth-first, as its mass matrix relies on; ours are put in that order.

    Raises:
        RefusedError: it is not installed, or does not take the robot.
    """

    notes: tuple[str, ...] = (
        "pin.NAME: the function of Pinocchio's Python module, called in a loop in Python.",
        "pin C++, estimated: pin.NAME less what one call costs on a robot of one joint, measured by the same loop. "
        "That also takes away the arithmetic of one joint, in Pinocchio's favour; the copies of results, which grow "
        "with the robot, stay.",
        "rneaInParallel, abaInParallel: results are written to the same array every time. Their threads wait by "
        "spinning: where another process takes one of the processors, a call takes a turn of the scheduler, some "
        "milliseconds, whatever the batch.",
        "pin.computeRNEADerivatives also gives the mass matrix.",
    )

    def __init__(self, model: Model) -> None:
        if model.has_mimic:
            raise RefusedError("Pinocchio: not compared on robots with joints that mimic others")
        if model.n_bodies > _MOST_BODIES:
            raise RefusedError(f"Pinocchio: not compared on robots of more than {_MOST_BODIES} bodies")
        try:
            self._pin: Any = import_module("pinocchio")
        except Exception as error:  # a module that is not built for this NumPy may raise anything
            raise RefusedError(f"Pinocchio is not installed ({error})") from None
        self.name = f"Pinocchio {self._pin.__version__}"
        self._ours = model
        self._build(model)
        self._data = self._model.createData()

    def _build(self, model: Model) -> None:
        pin = self._pin
        self._model = pin.Model()
        self._model.gravity.linear = np.array(model.gravity)
        ids, q_at, v_at = {-1: 0}, np.zeros(model.nq, dtype=int), np.zeros(model.nv, dtype=int)
        self._angles: list[int] = []
        for i in model.tree.preorder.tolist():
            kind, X = KINDS[model.joint_kind[i]], model.Xtree[i]
            placement = pin.SE3(X[:9].reshape(3, 3).T.copy(), X[9:].copy())
            parent = ids[int(model.parent[i])]
            joint = _joint(pin, kind.name, float(model.pitch[i]))
            j = ids[i] = self._model.addJoint(parent, joint, placement, f"joint {i}")
            self._model.inertias[j] = _inertia(pin, model.inertia[i])
            q, v = int(model.q_start[i]), int(model.v_start[i])
            q_at[q : q + kind.nq] = self._model.idx_qs[j] + np.arange(kind.nq)
            v_at[v : v + kind.nv] = self._model.idx_vs[j] + np.arange(kind.nv)
            if kind.name == "planar":
                self._angles.append(q + 2)
        armature = np.zeros(model.nv)
        armature[v_at] = model.armature
        self._model.armature = armature
        self._q_at, self._v_at = q_at, v_at

    # Conventions.

    def _coordinates(self, q: Array) -> Array:
        """Ours to Pinocchio's, which has cosine and sine in place of the angle of a planar joint."""
        theirs = np.zeros((len(q), self._model.nq))
        theirs[:, self._q_at] = q
        for ours in self._angles:
            at = self._q_at[ours]
            theirs[:, at], theirs[:, at + 1] = np.cos(q[:, ours]), np.sin(q[:, ours])
        return theirs

    def _rates(self, rates: Array) -> Array:
        theirs = np.empty_like(rates)
        theirs[:, self._v_at] = rates
        return theirs

    def _arguments(self, query: str, states: States) -> list[Array]:
        return [
            self._coordinates(states[name]) if name == "q" else self._rates(states[name])
            for name in QUESTIONS[query].plain
        ]

    def _read(self, query: str, answer: Any) -> Answers:
        """One state's answer in our order. Of symmetric matrices Pinocchio fills one half."""
        square = np.ix_(self._v_at, self._v_at)
        if query == "mass_matrix":
            return (_symmetric(answer)[square],)
        if query == "inverse_dynamics_gradient":
            by_q, by_qd, _ = answer
            return by_q[square], by_qd[square]
        if query == "forward_dynamics_gradient":
            by_q, by_qd, by_tau = answer
            return by_q[square], by_qd[square], _symmetric(by_tau)[square]
        return (answer[self._v_at],)

    # Contenders.

    def contenders(self, query: str, threads: Sequence[int]) -> list[Contender]:
        """One call at a time; and, where there is one, the parallel function on each number of threads."""
        if query not in _CALLS:
            return []
        found = [
            Contender(
                f"pin.{_CALLS[query]}",
                query,
                "float64",
                1,
                single=True,
                prepare=partial(self._single, query),
                overhead=partial(self._overhead, query),
                overhead_name="pin C++, estimated",
            )
        ]
        if query in _PARALLEL:
            for count in threads:
                prepare = partial(self._parallel, query, count)
                found.append(Contender(_PARALLEL[query], query, "float64", count, single=False, prepare=prepare))
        return found

    def _single(self, query: str, states: States) -> Prepared:
        call = getattr(self._pin, _CALLS[query])
        rows = [(self._model, self._data, *row) for row in zip(*self._arguments(query, states), strict=True)]
        return one_by_one(call, rows, lambda answer, row: self._read(query, answer))

    def _overhead(self, query: str, seconds: float) -> Timing:
        one = self._smallest
        states = dict.fromkeys(("q", "qd", "qdd", "tau"), np.full((_OVERHEAD_STATES, 1), 0.5))
        timing = measure(one._single(query, states).run, seconds)
        return Timing(timing.best_s / _OVERHEAD_STATES, timing.median_s / _OVERHEAD_STATES, timing.runs)

    @cached_property
    def _smallest(self) -> Pinocchio:
        """A robot of one joint."""
        return Pinocchio(auto_tree(1))

    def _parallel(self, query: str, threads: int, states: States) -> Prepared:
        # Pinocchio has a state in each column; the transpose of our rows is that, without a copy.
        columns = [array.T for array in self._arguments(query, states)]
        pool = self._pin.ModelPool(self._model, threads)
        out = np.full_like(columns[1], np.nan)
        call: Callable[..., object] = getattr(self._pin, _PARALLEL[query])
        run = partial(call, threads, pool, *columns, out)
        return Prepared(run, lambda: (out.T[:, self._v_at],), out.shape[1])


def _joint(pin: Any, kind: str, pitch: float) -> Any:
    """A joint of Pinocchio's; our axes are z."""
    if kind == "helical":
        return pin.JointModelHZ(pitch)
    names = {"revolute": "RZ", "prismatic": "PZ", "planar": "Planar", "spherical": "Spherical", "floating": "FreeFlyer"}
    return getattr(pin, f"JointModel{names[kind]}")()


def _inertia(pin: Any, numbers: Array) -> Any:
    mass, h, (xx, xy, xz, yy, yz, zz) = float(numbers[0]), numbers[1:4], numbers[4:]
    center = h / mass if mass else np.zeros(3)
    about_origin = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    about_center = about_origin - mass * (center @ center * np.eye(3) - np.outer(center, center))
    return pin.Inertia(mass, center, about_center)


def _symmetric(upper: Array) -> Array:
    return np.triu(upper) + np.triu(upper, 1).T
