"""Queries about contacts with friction: accelerations and forces."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike

from robodyn.algorithms.contacts.tasks import FIRST_BLOCK, NEXT_BLOCK, contact_task, most_iterations
from robodyn.algorithms.poses import is_pose, rotation_of
from robodyn.algorithms.tasks import COEFFICIENTS, ScalarTask
from robodyn.api.queries.call import Call, against_gravity
from robodyn.api.queries.core import Core
from robodyn.api.queries.deepest import deepest_of
from robodyn.core.contacts.kinds import Contacts
from robodyn.core.model import Model
from robodyn.engines.protocol import Engine
from robodyn.internals.arguments import Array, finite_real, require_finite, rows_named
from robodyn.internals.errors import ArgumentError, ConvergenceWarning, UnavailableError
from robodyn.internals.messages import brief, quoted, users_line
from robodyn.internals.records import dataclass

_ENGINES = ("reference", "cpu")
_STATE = ("q", "qd", "tau")
OF_CONTACTS = ("contact_friction", "ground_pose")
"""Parameters of contacts that can be inputs of a state."""
Arrays: TypeAlias = dict[str, Array]
_KEPT, _MOST_KEPT = "_contact_calls", 8
"""Where a `Dynamics` keeps its prepared calls, and how many: one for each task and time step."""


class ContactQueries(Core):
    """Queries about `model.contacts` and the rows that act with them: limits, dry friction, constraints.

    Raises, in all of them:
        ArgumentError: the model has no contacts, or `joint_forces` has the dry friction of joints, which acts as rows
            of the contacts.
        UnavailableError: the engine is neither "reference" nor "cpu", or the robot is too large for one program.
    """

    def contact_forward_dynamics(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        tau: ArrayLike,
        dt: float = 0.002,
        *,
        f_ext: ArrayLike | None = None,
        inertia: ArrayLike | None = None,
        armature: ArrayLike | None = None,
        damping: ArrayLike | None = None,
        friction: ArrayLike | None = None,
        gravity: ArrayLike | None = None,
        dV0: ArrayLike | None = None,
        contact_friction: ArrayLike | None = None,
        ground_pose: ArrayLike | None = None,
        out: tuple[Array, Array] | None = None,
    ) -> tuple[Array, Array]:
        """(qdd, f): accelerations (..., nv), and contact forces (..., n_slots, 3) along the normal and both tangents of
        each slot, N, on the first shape.

        Contacts are MuJoCo's: accelerations minimise a convex cost of soft rows (docs/contacts.md). States that do not
        converge are named by a `robodyn.ConvergenceWarning`; they have the best accelerations that were found.

        Args:
            dt: the time step in s, of which twice bounds time constants from below (`refsafe`).
            inertia: softness stays that of the model's own inertia.
            armature, damping, friction, gravity: of joints and the world, as in `rollout`; damping acts whatever
                `joint_forces` says. Joints without a row of dry friction take a friction of 0 alone.
            contact_friction: (..., n_contacts) coefficient of friction of each contact of `model.contacts.pairs`, along
                both tangents, instead of the model's; below 1e-5 it is 1e-5.
            ground_pose: (..., 4, 4) pose of the ground. It carries all shapes of contacts that are fixed to the world,
                such as planes; without it they are where the model has them.

        Raises:
            ArgumentError: also numbers below 0 of friction, damping and armature, or matrices that are no poses.
            SingularError: H is singular at every state.
        """
        seconds = finite_real(dt)
        if seconds is None or not seconds > 0.0:
            raise ArgumentError(f"dt: got {brief(dt)}; wanted a time step above 0, in s")
        contacts = require_contacts(self, "contact_forward_dynamics")
        bounding, damped = contacts.bounding(seconds), "damping" in self.joint_forces
        make = partial(self._contact_solver, bounding)
        others = {
            "f_ext": f_ext, "inertia": inertia, "armature": armature, "damping": damping, "friction": friction,
            "gravity": gravity, "dV0": dV0, "contact_friction": contact_friction, "ground_pose": ground_pose,
        }  # fmt: skip
        if not contacts.crowded and out is None and all(each is None for each in others.values()):
            found = prepared(self, ("qdd", bounding), make, (q, qd, tau), damped, ("qdd", "f"))
            if found is not None:
                return found
        call = Call(self, {"q": q, "qd": qd, "tau": tau, **others}, tuple(others), out)
        if call.library.on_device:
            raise UnavailableError("contact_forward_dynamics: got arrays on a GPU; wanted NumPy arrays")
        self._take_parameters(call, damped)
        results = call.results({"qdd": (self.model.nv,), "f": (len(contacts.slot_pairs), 3)})
        if call.batch:
            solution = make().solve(call.inputs, results)
            warn_of_rows("contact_forward_dynamics", ~solution.converged & solution.finite, call.leading, contacts)
        return cast(tuple[Array, Array], call.finish(results))

    def _take_parameters(self, call: Call, damped: bool) -> None:
        """Check parameters of a call, and turn gravity and damping into what the program has."""
        inputs, model = call.inputs, self.model
        for name, array in inputs.items():
            if name in COEFFICIENTS:
                require_finite(name, array, 1)
            if name in (*COEFFICIENTS, "contact_friction"):
                require_not_negative(name, array)
            require_of_contacts(model, name, array)
        if "armature" in inputs and "inertia" not in inputs:
            rows = inputs["armature"].astype(np.float64, copy=False)
            self._require_regular_with(rows.min(axis=0) if len(rows) else model.armature)
        else:
            self._require_regular(call)
        with np.errstate(all="ignore"):
            damping = inputs.pop("damping", self._damping(call) if damped else None)
            if damping is not None:
                inputs["tau"] = inputs["tau"] - damping * inputs["qd"]
            if "gravity" in inputs:
                own = model.gravity.astype(self.dtype)
                inputs["dV0"] = against_gravity(np, own, inputs.pop("gravity"), inputs.get("dV0"))

    def _contact_solver(self, bounding: float) -> Solver:
        contacts = require_contacts(self, "contact_forward_dynamics")
        return Solver(self.engine, contacts, partial(contact_task, self.model, bounding), bounding)


def require_not_negative(name: str, array: Array) -> None:
    """Raise for numbers below 0.

    Raises:
        ArgumentError: names the first one.
    """
    if bool((array < 0.0).any()):
        raise ArgumentError(f"{name}: got {brief(float(array[array < 0.0][0]))}; wanted numbers of at least 0")


def require_of_contacts(model: Model, name: str, array: Array) -> None:
    """Raise for parameters of contacts that a robot cannot obey. NaN is let through.

    Raises:
        ArgumentError: there are no contacts, matrices are no poses, or a joint has no row for its dry friction.
    """
    contacts = model.contacts
    if contacts is None:
        if name in OF_CONTACTS:
            raise ArgumentError(f"{name}: got some for {quoted(model.name)}, which has no contacts; wanted None")
    elif name == "ground_pose":
        entries = [array[..., i, j] for i in range(4) for j in range(4)]
        with np.errstate(all="ignore"):
            wrong = np.asarray(is_pose(rotation_of(entries), entries[12:]) == 0.0)
        if wrong.any():
            where = f" {rows_named(wrong, 0)}" if wrong.ndim else ""
            raise ArgumentError(
                f"ground_pose: got no pose{where}; wanted a rotation, a position, and the last row 0, 0, 0, 1, to 1e-2"
            )
    elif name == "friction":
        joints = [model.joint_index(row.joint) for row in contacts.dry_friction]
        dofs = [
            int(model.v_source[model.v_start[i]]) + row.component
            for i, row in zip(joints, contacts.dry_friction, strict=True)
        ]
        others = np.setdiff1d(np.arange(model.nv), dofs)
        if (loose := np.flatnonzero((array[..., others] > 0.0).reshape(-1, len(others)).any(axis=0))).size:
            raise ArgumentError(
                f"friction: got some for degree of freedom {others[loose[0]]}, which has no row of dry friction; "
                "wanted 0 for it, or a model with friction there and with_contacts(dry_friction=True)"
            )


@dataclass(frozen=True)
class Solution:
    """`converged` (B,): False for rows whose accelerations are off by more than the tolerance, or NaN, or where more
    slots act than `max_contacts`. `finite` (B,): False for NaN."""

    converged: Array
    finite: Array


def warn_of_rows(what: str, lost: Array, leading: tuple[int, ...], contacts: Contacts) -> None:
    """Warn of the rows (B,) of a call whose contact forces did not converge, or did not have room."""
    if lost.any():
        where = f" {rows_named(lost.reshape(leading), 0)}" if leading else ""
        or_full = f", or more than max_contacts={contacts.max_contacts} slots acted" if contacts.crowded else ""
        warnings.warn(
            f"{what}: contact forces did not converge{or_full}{where}",
            ConvergenceWarning,
            stacklevel=users_line(),
        )


@dataclass(frozen=True)
class Solver:
    """What fills results of states with contacts.

    `engine`: runs tasks. `contacts`: of its model. `task`: makes the task for names of inputs; "qdd" are accelerations
    from which iterations start. Its outputs include "qdd" and "error". `bounding`: `Contacts.bounding` of the step.
    """

    engine: Engine
    contacts: Contacts
    task: Callable[[tuple[str, ...]], ScalarTask]
    bounding: float

    def solve(self, inputs: Mapping[str, Array], results: Mapping[str, Array]) -> Solution:
        """Fill results (B, ...), some of the outputs, by blocks of iterations. Rows that are left after a block are
        gathered for the next one, which starts from their accelerations. Inputs are (B, ...)."""
        if self.contacts.crowded:
            return self._solve_deepest(inputs, results)
        try:
            return self._solve_by_blocks(inputs, results)
        except UnavailableError as error:
            raise UnavailableError(f"{error}; with max_contacts of with_contacts the deepest slots act alone") from None

    def outputs(self, task: ScalarTask, results: Mapping[str, Array], batch: int, dtype: np.dtype[Any]) -> Arrays:
        """All outputs of a task: results, and memory for the others."""
        return {
            name: results[name] if name in results else np.zeros((batch, *output.shape(self.engine.model)), dtype)
            for name, output in task.outputs.items()
        }

    def _solve_deepest(self, inputs: Mapping[str, Array], results: Mapping[str, Array]) -> Solution:
        """The same with the deepest slots of each state alone. States where more slots act count as not converged."""
        chosen = deepest_of(self.engine.model, self.bounding)(self.engine, inputs)
        inputs = {name: array for name, array in inputs.items() if name not in OF_CONTACTS}
        own = dict(results)
        if "f" in results:
            own["f"] = np.empty((*chosen.slots.shape, 3), results["f"].dtype)
        solution = self._solve_by_blocks({**inputs, "points": chosen.points, "sides": chosen.sides}, own)
        if "f" in results:
            results["f"][...] = 0.0
            np.put_along_axis(results["f"], chosen.slots[..., None], own["f"], 1)
        return Solution(solution.converged & ~chosen.overflow, solution.finite)

    def _solve_by_blocks(self, inputs: Mapping[str, Array], results: Mapping[str, Array]) -> Solution:
        """The same by the program of the task alone."""
        cold = self.task(tuple(inputs))
        every = self.outputs(cold, results, len(inputs["q"]), inputs["q"].dtype)
        self.engine.compose(cold, inputs, every)
        left = np.flatnonzero(every["error"] > tolerance(inputs["q"].dtype))
        if left.size:
            _Rest(self, inputs, every, left.size).solve(inputs, every, left)
        return solution_of(every["error"])


class _Rest:
    """Further blocks of iterations, in memory for at most `rows` states that are left after the first one. `every`: all
    outputs."""

    def __init__(self, solver: Solver, inputs: Mapping[str, Array], every: Mapping[str, Array], rows: int) -> None:
        self._engine, self._task = solver.engine, solver.task((*inputs, "qdd"))
        self._most = most_iterations(solver.contacts)
        self._given, self._found = (
            {name: np.zeros((rows, *array.shape[1:]), array.dtype) for name, array in arrays.items()}
            for arrays in ({**inputs, "qdd": every["qdd"]}, every)
        )
        self._bound = self._engine.bound(self._task, self._given, self._found)

    def solve(self, inputs: Mapping[str, Array], every: Mapping[str, Array], left: Array) -> None:
        """Improve the rows `left` of `every`."""
        done, most_error = FIRST_BLOCK, tolerance(every["error"].dtype)
        while left.size and done < self._most:
            n = left.size
            for name, array in self._given.items():
                array[:n] = (every if name == "qdd" else inputs)[name][left]
            if self._bound is not None:
                self._bound.run(n)
            else:
                given, found = ({name: a[:n] for name, a in each.items()} for each in (self._given, self._found))
                self._engine.compose(self._task, given, found)
            for name, array in every.items():
                array[left] = self._found[name][:n]
            done += NEXT_BLOCK
            left = left[self._found["error"][:n] > most_error]


def tolerance(dtype: np.dtype[Any]) -> float:
    """The error of accelerations, relative in the norm of H, up to which they count as converged."""
    return math.pow(np.finfo(dtype).eps, 0.75)


def solution_of(error: Array) -> Solution:
    """The solution of rows with these errors."""
    return Solution(error <= tolerance(error.dtype), np.isfinite(error))


def require_contacts(dyn: Core, what: str) -> Contacts:
    """The contacts. Raise if a `Dynamics` has no contacts, or cannot answer with them."""
    contacts = dyn.model.contacts
    if contacts is None:
        raise ArgumentError(
            f"{what}: {quoted(dyn.model.name)} has no contacts; wanted a model with them: Model.with_contacts"
        )
    if dyn.engine.name not in _ENGINES:
        raise UnavailableError(
            f"{what}: engine {dyn.engine.name!r} does not know contacts; wanted one of {', '.join(map(repr, _ENGINES))}"
        )
    if "friction" in dyn.joint_forces and dyn.model.friction.any():
        raise ArgumentError(
            f"{what}: joint_forces: got 'friction' for a robot with contacts, where dry friction of joints is rows of "
            "the contacts (dry_friction of with_contacts); wanted joint_forces without it"
        )
    return contacts


class Blocks:
    """`Solver.solve`, prepared: programs on arrays that stay, or that `bound` exchanges.

    `results`: all outputs by name. `bound`: the first block; None if the engine has no program.
    """

    def __init__(self, solver: Solver, inputs: Mapping[str, Array], results: Mapping[str, Array]) -> None:
        cold, batch, dtype = solver.task(tuple(inputs)), len(inputs["q"]), inputs["q"].dtype
        self.solver, self.inputs, self.results = solver, inputs, solver.outputs(cold, results, batch, dtype)
        self.bound, self._rest = solver.engine.bound(cold, inputs, self.results), cast("_Rest | None", None)
        self._error, self._tolerance = self.results["error"], tolerance(dtype)
        self._worst = self._error.item if batch == 1 else self._error.max

    def run(self) -> bool:
        """The first block; True if all rows converged."""
        self.bound.run()  # type: ignore[union-attr]
        return bool(self._worst() <= self._tolerance)

    def go_on(self, inputs: Mapping[str, Array], results: Mapping[str, Array]) -> Solution:
        """Further blocks, for the arrays that were exchanged."""
        error, every = self._error, {**self.results, **results}
        left = np.flatnonzero(error > self._tolerance)
        if left.size:
            if self._rest is None:
                self._rest = _Rest(self.solver, inputs, every, len(error))
            self._rest.solve(inputs, every, left)
        return solution_of(error)


def prepared(
    dyn: Core,
    key: tuple[Any, ...],
    make: Callable[[], Solver],
    state: Sequence[Any],
    damped: bool,
    wanted: tuple[str, str],
    dt: float | None = None,
) -> tuple[Array, Array] | None:
    """Two results of a task for one state by a call that is kept; None where the long way must answer.

    Args:
        dyn: the `Dynamics`, which has contacts.
        key: tells tasks apart.
        make: makes the solver of the task, where no call is kept.
        state: q, qd, tau.
        damped: True if damping is subtracted from tau.
        wanted: names of the results.
        dt: the time step, of tasks with this input.
    """
    model, dtype = dyn.model, dyn.dtype
    if not (dyn.engine.native and model.n_bodies) or dyn._singular is not None:
        return None
    q, qd, tau = state
    for array, size in ((q, model.nq), (qd, model.nv), (tau, model.nv)):
        if type(array) is not np.ndarray or array.dtype is not dtype or array.shape != (size,):
            return None
    kept: dict[Any, list[Blocks]] = dyn.__dict__.setdefault(_KEPT, {})
    waiting = kept.get(key)
    try:  # calls in progress, as of other threads, are not among those that wait
        call = None if waiting is None else waiting.pop()
    except IndexError:
        call = None
    if call is None or call.solver.engine is not dyn.engine:
        inputs = {name: np.zeros((1, n), dtype) for name, n in zip(_STATE, (model.nq, model.nv, model.nv), strict=True)}
        if dt is not None:
            inputs["dt"] = np.zeros(1, dtype)
        call = Blocks(make(), inputs, {})
        if call.bound is None:
            return None
        if len(kept) >= _MOST_KEPT:
            kept.clear()
    given, results = call.inputs, call.results
    given["q"][0], given["qd"][0] = q, qd
    given["tau"][0] = tau - model.damping.astype(dtype) * qd if damped else tau
    if dt is not None:
        given["dt"][0] = dt
    solved = call.run() or call.go_on(given, results).converged[0]
    found = tuple(results[name][0].copy() for name in wanted) if solved else None
    kept.setdefault(key, []).append(call)
    return cast("tuple[Array, Array] | None", found)
