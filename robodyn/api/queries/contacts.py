"""Queries about contacts with friction: accelerations and forces."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike

from robodyn.algorithms.contacts.tasks import blocks_after_first, contact_task
from robodyn.algorithms.tasks import ScalarTask
from robodyn.api.queries.call import Call
from robodyn.api.queries.core import Core
from robodyn.api.queries.deepest import deepest_of
from robodyn.core.contacts.kinds import Contacts
from robodyn.engines.protocol import Engine, Until
from robodyn.internals.arguments import Array, finite_real, rows_named
from robodyn.internals.array_library import NUMPY, Library
from robodyn.internals.errors import ArgumentError, ConvergenceWarning, UnavailableError
from robodyn.internals.messages import brief, quoted, users_line
from robodyn.internals.records import dataclass

_ENGINES = ("reference", "cpu", "gpu")
_STATE = ("q", "qd", "tau")
Arrays: TypeAlias = dict[str, Array]
_TOO_LARGE = "too large"
"""In messages of engines about tasks that are too large for a program."""
_KEPT, _MOST_KEPT = "_contact_calls", 8
"""Where a `Dynamics` keeps its prepared calls, and how many: one for each task and time step."""


class ContactQueries(Core):
    """Queries about `model.contacts` and the rows that act with them: limits, dry friction, constraints.

    Raises, in all of them:
        ArgumentError: the model has no contacts, or the `Dynamics` counts dry friction twice: by `joint_forces` and by
            the model's rows.
        UnavailableError: the engine is "scan", or the robot is too large for one program.
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
        dV0: ArrayLike | None = None,
        out: tuple[Array, Array] | None = None,
    ) -> tuple[Array, Array]:
        """(qdd, f): accelerations (..., nv), and contact forces (..., n_slots, 3) along the normal and both tangents of
        each slot, N, on the first shape.

        Contacts are MuJoCo's: accelerations minimise a convex cost of soft rows (docs/contacts.md). States that do not
        converge are named by a `robodyn.ConvergenceWarning`; they have the best accelerations that were found. For
        arrays on a GPU that is found out with check=True only, as it waits for the device.

        Args:
            dt: the time step in s, of which twice bounds time constants from below (`refsafe`).
            inertia: softness stays that of the model's own inertia.

        Raises:
            SingularError: H is singular at every state.
        """
        seconds = finite_real(dt)
        if seconds is None or not seconds > 0.0:
            raise ArgumentError(f"dt: got {brief(dt)}; wanted a time step above 0, in s")
        contacts = require_contacts(self, "contact_forward_dynamics")
        bounding, damped = contacts.bounding(seconds), "damping" in self.joint_forces
        make = partial(self._contact_solver, bounding)
        if not contacts.crowded and f_ext is None and inertia is None and dV0 is None and out is None:
            found = prepared(self, ("qdd", bounding), make, (q, qd, tau), damped, ("qdd", "f"))
            if found is not None:
                return found
        given = {"q": q, "qd": qd, "tau": tau, "f_ext": f_ext, "inertia": inertia, "dV0": dV0}
        call = Call(self, given, ("f_ext", "inertia", "dV0"), out)
        self._require_regular(call)
        if damped:
            with np.errstate(all="ignore"):
                call.inputs["tau"] = call.inputs["tau"] - self._damping(call) * call.inputs["qd"]
        results = call.results({"qdd": (self.model.nv,), "f": (len(contacts.slot_pairs), 3)})
        if call.batch:
            solution = make(call.engine).solve(call.inputs, results)
            if call.checked or not call.library.on_device:
                lost = call.library.to_numpy(~solution.converged & solution.finite)
                warn_of_rows("contact_forward_dynamics", lost, call.leading, contacts)
        return cast(tuple[Array, Array], call.finish(results))

    def _contact_solver(self, bounding: float, engine: Engine | None = None) -> Solver:
        contacts = require_contacts(self, "contact_forward_dynamics")
        task = partial(contact_task, self.model, bounding)
        return Solver(self.engine if engine is None else engine, contacts, task, bounding)


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
            if _TOO_LARGE not in str(error):
                raise
            raise UnavailableError(f"{error}; with max_contacts of with_contacts the deepest slots act alone") from None

    def outputs(self, task: ScalarTask, results: Mapping[str, Array], batch: int, dtype: np.dtype[Any]) -> Arrays:
        """All outputs of a task: results, and memory for the others, in the same place."""
        empty = self._library(next(iter(results.values()), None)).xp.empty
        return {
            name: results[name] if name in results else empty((batch, *output.shape(self.engine.model)), dtype)
            for name, output in task.outputs.items()
        }

    def _library(self, like: Array | None) -> Library:
        """The library of an array."""
        device = None if like is None or isinstance(like, np.ndarray) else self.engine.on_device()
        return NUMPY if device is None else device[1]

    def _solve_deepest(self, inputs: Mapping[str, Array], results: Mapping[str, Array]) -> Solution:
        """The same with the deepest slots of each state alone. States where more slots act count as not converged."""
        device, own = self.engine.on_device(), dict(results)
        library = NUMPY if device is None else device[1]
        moved = device is not None and isinstance(inputs["q"], np.ndarray)
        if moved:  # all stages of all states run on the device
            inputs = {name: library.like_numpy(array) for name, array in inputs.items()}
            own = {name: library.xp.empty(array.shape, array.dtype) for name, array in results.items()}
        chosen = deepest_of(self.engine.model, self.bounding)(self.engine, library, inputs["q"])
        every = own.get("f")
        if every is not None:
            own["f"] = library.xp.empty((*chosen.slots.shape, 3), every.dtype)
        solution = self._solve_by_blocks({**inputs, "points": chosen.points, "sides": chosen.sides}, own)
        if every is not None:
            every[...] = 0.0
            every[library.xp.arange(len(every))[:, None], chosen.slots] = own["f"]
            own["f"] = every
        solution = Solution(solution.converged & ~chosen.overflow, solution.finite)
        if not moved:
            return solution
        for name, array in results.items():
            array[...] = library.to_numpy(own[name])
        return Solution(library.to_numpy(solution.converged), library.to_numpy(solution.finite))

    def _solve_by_blocks(self, inputs: Mapping[str, Array], results: Mapping[str, Array]) -> Solution:
        """The same by the program of the task alone."""
        cold, again, enough = self.task(tuple(inputs)), self.task((*inputs, "qdd")), tolerance(inputs["q"].dtype)
        every = self.outputs(cold, results, len(inputs["q"]), inputs["q"].dtype)
        if self.engine.run_until(Until(cold, again, blocks_after_first(self.contacts), enough), inputs, every):
            return solution_of(every["error"])
        self.engine.compose(cold, inputs, every)
        left = np.flatnonzero(every["error"] > enough)
        if left.size:
            _Rest(self, inputs, every, left.size).solve(inputs, every, left)
        return solution_of(every["error"])


class _Rest:
    """Further blocks of iterations, in memory for at most `rows` states that are left after the first one. `every`: all
    outputs."""

    def __init__(self, solver: Solver, inputs: Mapping[str, Array], every: Mapping[str, Array], rows: int) -> None:
        self._engine, self._task = solver.engine, solver.task((*inputs, "qdd"))
        self._blocks = blocks_after_first(solver.contacts)
        self._given, self._found = (
            {name: np.zeros((rows, *array.shape[1:]), array.dtype) for name, array in arrays.items()}
            for arrays in ({**inputs, "qdd": every["qdd"]}, every)
        )
        self._bound = self._engine.bound(self._task, self._given, self._found)

    def solve(self, inputs: Mapping[str, Array], every: Mapping[str, Array], left: Array) -> None:
        """Improve the rows `left` of `every`."""
        most_error = tolerance(every["error"].dtype)
        for _ in range(self._blocks):
            if not left.size:
                break
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
    if contacts.dry_friction and "friction" in dyn.joint_forces:
        raise ArgumentError(
            f"{what}: dry friction of joints is among joint_forces and among the rows of contacts; wanted one of them: "
            "joint_forces without 'friction', or with_contacts(dry_friction=False)"
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
