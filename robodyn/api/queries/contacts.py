"""Queries about contacts with friction: accelerations and forces."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike

from robodyn.algorithms.contacts.gradients import DERIVATIVES, contact_gradient_task
from robodyn.algorithms.contacts.tasks import at_answer, by_blocks, contact_task, most_blocks
from robodyn.algorithms.poses import is_pose, rotation_of
from robodyn.algorithms.tasks import COEFFICIENTS, Repeated, ScalarTask
from robodyn.api.queries.call import Call, against_gravity
from robodyn.api.queries.core import Core
from robodyn.api.queries.deepest import deepest_of
from robodyn.api.queries.fast_path import WORD_BITS, FastPath, built_in
from robodyn.core.contacts.kinds import Contacts
from robodyn.core.model import Model
from robodyn.engines.protocol import Engine
from robodyn.internals.arguments import Array, finite_real, require_finite, rows_named
from robodyn.internals.array_library import NUMPY, Library
from robodyn.internals.cached import with_fast_path
from robodyn.internals.errors import ArgumentError, ConvergenceWarning, UnavailableError
from robodyn.internals.messages import brief, quoted, users_line
from robodyn.internals.records import dataclass

if TYPE_CHECKING:
    from robodyn.engines.cpu.native.answers import Answers
    from robodyn.engines.cpu.native.entry import Argument

_ENGINES = ("reference", "cpu", "gpu")
_STATE = ("q", "qd", "tau")
OF_CONTACTS = ("contact_friction", "ground_pose")
"""Parameters of contacts that can be inputs of a state."""
_ARRAYS = (*_STATE, "f_ext", "inertia", "dV0")
_CHECKED = (*COEFFICIENTS, "gravity", *OF_CONTACTS)
"""Inputs whose values are checked or turned into others: the method answers for them."""
Arrays: TypeAlias = dict[str, Array]
_TOO_LARGE = "too large"
"""In messages of engines about tasks that are too large for a program."""


class _FastDynamics(FastPath):
    """The function behind a built-in `contact_forward_dynamics` or `contact_forward_dynamics_gradient`: it answers
    other calls by the method, and learns."""

    def __init__(self, dyn: Any, name: str, method: Callable[..., Any]) -> None:
        super().__init__(dyn, method, dyn.dtype)
        self._name = name
        self._asked: set[Any] = set()
        self._lengths: dict[float, int] = {}

    def calls(self, given: Mapping[str, Any]) -> tuple[tuple[str, ...], float] | None:
        """The arrays that are given, and the time step; None where the method must answer."""
        dt, contacts = given.get("dt", self.defaults["dt"]), self.__self__.model.contacts
        if contacts is None or contacts.crowded or type(dt) is not float or not 0.0 < dt < math.inf:
            return None
        if any(given.get(name) is not None for name in _CHECKED):
            return None
        if len(self._lengths) < 1 << WORD_BITS:
            self._lengths.setdefault(dt, len(self._lengths))
        return (tuple(name for name in _ARRAYS if given.get(name) is not None), dt) if dt in self._lengths else None

    def answers(self, calls: tuple[tuple[str, ...], float], given: Mapping[str, Any]) -> Answers | None:
        """Compiled answers, from the second call on; None at the first. Calls whose forces do not converge are left to
        the method, whatever is checked: their results are not finite."""
        (names, dt), dyn = calls, self.__self__
        if calls not in self._asked:
            self._asked.add(calls)
            return None
        if not dyn.engine.native or dyn.singularity() is not None:
            raise UnavailableError(f"{self._name}: no built-in function for this engine, or for a singular mass matrix")
        single = all(np.size(given[name]) <= math.prod(dyn.argument_shapes[name]) for name in names)
        bounding, differentiated = dyn.model.contacts.bounding(dt), self._name != "contact_forward_dynamics"
        task: Any = contact_solver(dyn, bounding).by_blocks(names, ("qdd",) if differentiated else ("qdd", "f"))
        if differentiated and not single:
            return None  # a search for numbers that are not finite takes long: the method looks at errors
        if differentiated:
            damped = "damping" in dyn.joint_forces
            task = at_answer(task, contact_gradient_task(dyn.model, bounding, damped, (*names, "qdd")))
        damping = dyn.model.damping if "damping" in dyn.joint_forces else None
        found: Answers = dyn.engine.called(task, _ARRAYS, single=single, check=True, damping=damping)
        return found

    def argument(self, name: str) -> Argument:
        """Kind of the argument: an array, `out`, or the time step."""
        from robodyn.engines.cpu.native.entry import Argument

        if name == "out":
            return Argument("out")
        if name == "dt":
            return Argument("choice", types=(float,), bits=WORD_BITS)
        return Argument("array", _ARRAYS.index(name), name not in _STATE)

    def number(self, name: str, value: Any) -> int:
        """Index of a time step."""
        return self._lengths[value]

    def remember(self, answers: Answers, given: Mapping[str, Any]) -> None:
        """Let machine code answer calls with these inertias, if they leave a regular mass matrix."""
        array: Array = np.array(given["inertia"], self._dtype)
        if not self.__self__._judge.singular(array.astype(np.float64).reshape(-1, *array.shape[-2:])).any():
            answers.know(array)


def _fast_dynamics(dyn: Any, name: str, method: Callable[..., Any]) -> Callable[..., Any] | None:
    if not dyn.engine.native or dyn.model.contacts is None:
        return None
    function = built_in(dyn, name, method, lambda: _FastDynamics(dyn, name, method))
    if function is not None:
        dyn.__dict__[name] = function
    return function


fast_dynamics = with_fast_path(_fast_dynamics)


class ContactQueries(Core):
    """Queries about `model.contacts` and the rows that act with them: limits, dry friction, constraints.

    Raises, in all of them:
        ArgumentError: the model has no contacts, or `joint_forces` has the dry friction of joints, which acts as rows
            of the contacts.
        UnavailableError: the engine is "scan", or the robot is too large for one program.
    """

    @fast_dynamics
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
        converge are named by a `robodyn.ConvergenceWarning`; they have the best accelerations that were found. For
        arrays on a GPU that is found out with check=True only, as are wrong values of arguments, because looking waits
        for the device. Torques of condim 4 and 6 act, but are no part of f.

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
        bounding, contacts = self._bounding("contact_forward_dynamics", dt)
        others = {
            "f_ext": f_ext, "inertia": inertia, "armature": armature, "damping": damping, "friction": friction,
            "gravity": gravity, "dV0": dV0, "contact_friction": contact_friction, "ground_pose": ground_pose,
        }  # fmt: skip
        call = self._contact_call({"q": q, "qd": qd, "tau": tau, **others}, out)
        results = call.results({"qdd": (self.model.nv,), "f": (len(contacts.slot_pairs), 3)})
        if call.batch:
            solution = contact_solver(self, bounding, call.engine).solve(call.inputs, results)
            _warn("contact_forward_dynamics", solution, call, contacts)
        return cast(tuple[Array, Array], call.finish(results))

    @fast_dynamics
    def contact_forward_dynamics_gradient(
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
        out: tuple[Array, Array, Array] | None = None,
    ) -> tuple[Array, Array, Array]:
        """(dqdd_dq, dqdd_dqd, dqdd_dtau), each (..., nv, nv): derivatives of `contact_forward_dynamics`, by q on the
        tangent space.

        They follow from the implicit function theorem at the accelerations that are found, and are exact for the rows
        that act there (docs/contacts.md). Where a row begins or ceases to act, they are those of one side.

        Args:
            dt, inertia, armature, damping, friction, gravity, contact_friction, ground_pose: as of
                `contact_forward_dynamics`.

        Raises:
            ArgumentError: as by `contact_forward_dynamics`.
            UnavailableError: also with `max_contacts`.
            SingularError: H is singular at every state.
        """
        what = "contact_forward_dynamics_gradient"
        bounding, contacts = self._bounding(what, dt)
        others = {
            "f_ext": f_ext, "inertia": inertia, "armature": armature, "damping": damping, "friction": friction,
            "gravity": gravity, "dV0": dV0, "contact_friction": contact_friction, "ground_pose": ground_pose,
        }  # fmt: skip
        call = Call(self, {"q": q, "qd": qd, "tau": tau, **others}, tuple(others), out)
        inward = {name: call.inputs[name] for name in ("damping",) if name in call.inputs}
        self._take_parameters(call, "damping" in self.joint_forces)
        names = (*call.inputs, *inward, "qdd")
        task = contact_gradient_task(self.model, bounding, "damping" in self.joint_forces, names)
        results = call.results(dict.fromkeys(DERIVATIVES, (self.model.nv, self.model.nv)))
        if call.batch:
            qdd = call.new(self.model.nv)
            solution = contact_solver(self, bounding, call.engine).solve(call.inputs, {"qdd": qdd})
            call.engine.compose(task, {**call.inputs, **inward, "qdd": qdd}, results)
            _warn(what, solution, call, contacts)
        return cast(tuple[Array, Array, Array], call.finish(results))

    def _bounding(self, what: str, dt: float) -> tuple[float, Contacts]:
        """`Contacts.bounding` of a time step in s, and the contacts.

        Raises:
            ArgumentError: it is none.
        """
        seconds = finite_real(dt)
        if seconds is None or not seconds > 0.0:
            raise ArgumentError(f"dt: got {brief(dt)}; wanted a time step above 0, in s")
        contacts = require_contacts(self, what)
        return contacts.bounding(seconds), contacts

    def _contact_call(self, given: dict[str, Any], out: tuple[Array, ...] | None) -> Call:
        """A call about states with contacts, with the damping of joints among tau, and gravity in dV0."""
        call = Call(self, given, tuple(given.keys() - {*_STATE}), out)
        self._take_parameters(call, "damping" in self.joint_forces)
        return call

    def _take_parameters(self, call: Call, damped: bool) -> None:
        """Check parameters of a call, and turn gravity and damping into what the program has."""
        inputs, model, library = call.inputs, self.model, call.library
        for name, array in inputs.items() if call.checked or not library.on_device else ():
            if name in COEFFICIENTS:
                require_finite(name, array, 1)
                require_not_negative(name, array)
            require_of_contacts(model, name, array, library)
        if "armature" in inputs and "inertia" not in inputs and not library.on_device:
            rows = inputs["armature"].astype(np.float64, copy=False)
            self._require_regular_with(rows.min(axis=0) if len(rows) else model.armature)
        else:
            self._require_regular(call)
        with np.errstate(all="ignore"):
            damping = inputs.pop("damping", self._damping(call) if damped else None)
            if damping is not None:
                inputs["tau"] = inputs["tau"] - damping * inputs["qd"]
            if "gravity" in inputs:
                own = library.constant(model.gravity.astype(self.dtype))
                inputs["dV0"] = against_gravity(library.xp, own, inputs.pop("gravity"), inputs.get("dV0"))


def contact_solver(dyn: Core, bounding: float, engine: Engine | None = None) -> Solver:
    """What answers `contact_forward_dynamics` on an engine, None for the usual one. `bounding`: `Contacts.bounding` of
    the time step."""
    contacts = require_contacts(dyn, "contact_forward_dynamics")
    task = partial(contact_task, dyn.model, bounding)
    return Solver(dyn.engine if engine is None else engine, contacts, task, bounding)


def _warn(what: str, solution: Solution, call: Call, contacts: Contacts) -> None:
    """Warn of rows whose forces did not converge. On a GPU that waits for the device, and is for checked calls only."""
    if call.checked or not call.library.on_device:
        warn_of_rows(what, call.library.to_numpy(~solution.converged & solution.finite), call.leading, contacts)


def require_not_negative(name: str, array: Array) -> None:
    """Raise for numbers below 0.

    Raises:
        ArgumentError: names the first one.
    """
    if bool((array < 0.0).any()):
        raise ArgumentError(f"{name}: got {brief(float(array[array < 0.0][0]))}; wanted numbers of at least 0")


def require_of_contacts(model: Model, name: str, given: Array, library: Library = NUMPY) -> None:
    """Raise for parameters of contacts that a robot cannot obey. NaN is let through. `given`: an array of the library.

    Raises:
        ArgumentError: there are no contacts, numbers are below 0, matrices are no poses, or a joint has no row for its
            dry friction.
    """
    contacts = model.contacts
    if name not in (*OF_CONTACTS, "friction"):
        return
    if contacts is None:
        if name in OF_CONTACTS:
            raise ArgumentError(f"{name}: got some for {quoted(model.name)}, which has no contacts; wanted None")
        return
    array = library.to_numpy(given)
    if name == "contact_friction":
        require_not_negative(name, array)
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
        others = without_dry_friction(model)
        if (loose := np.flatnonzero((array[..., others] > 0.0).any(axis=tuple(range(array.ndim - 1))))).size:
            raise ArgumentError(
                f"friction: got some for degree of freedom {others[loose[0]]}, which has no row of dry friction; "
                "wanted 0 for it, or a model with friction there and with_contacts(dry_friction=True)"
            )


def without_dry_friction(model: Model) -> Array:
    """Degrees of freedom without a row of dry friction, of a robot with contacts."""
    rows = () if model.contacts is None else model.contacts.dry_friction
    starts = [int(model.v_source[model.v_start[model.joint_index(row.joint)]]) for row in rows]
    return np.setdiff1d(np.arange(model.nv), [start + row.component for start, row in zip(starts, rows, strict=True)])


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

    def outputs(self, task: ScalarTask, results: Mapping[str, Array], batch: int) -> Arrays:
        """All outputs of a task: results, and memory for the others, in the host's memory."""
        engine = self.engine
        return {
            name: results[name] if name in results else np.zeros((batch, *output.shape(engine.model)), engine.dtype)
            for name, output in task.outputs.items()
        }

    def _solve_deepest(self, inputs: Mapping[str, Array], results: Mapping[str, Array]) -> Solution:
        """The same with the deepest slots of each state alone. States where more slots act count as not converged."""
        device, own = self.engine.on_device(), dict(results)
        library = NUMPY if device is None else device[1]
        moved = device is not None and isinstance(inputs["q"], np.ndarray)
        if moved:  # all stages of all states run on the device
            inputs = {name: library.like_numpy(array) for name, array in inputs.items()}
            own = {name: library.xp.empty(array.shape, array.dtype) for name, array in results.items()}
        chosen = deepest_of(self.engine.model, self.bounding)(self.engine, library, inputs)
        inputs = {name: array for name, array in inputs.items() if name not in OF_CONTACTS}
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
        dtype, batch = inputs["q"].dtype, len(inputs["q"])
        device = None if isinstance(inputs["q"], np.ndarray) else self.engine.on_device()
        task = self.by_blocks(tuple(inputs), (*results, "error"))
        error: Array = (NUMPY if device is None else device[1]).xp.zeros(batch, dtype)
        if not self.engine.run_program(task, inputs, {**results, "error": error}):
            every = self.outputs(task.first, {**results, "error": error}, batch)
            self.engine.compose(task.first, inputs, every)
            left, times = np.flatnonzero(error > task.tolerance(dtype)), 0
            while left.size and times < task.most:
                given = {name: array[left] for name, array in {**inputs, "qdd": every["qdd"]}.items()}
                found = self.outputs(task.again, {}, left.size)
                self.engine.compose(task.again, given, found)
                for name, array in every.items():
                    array[left] = found[name]
                left, times = left[found["error"] > task.tolerance(dtype)], times + 1
        return Solution(error <= task.tolerance(dtype), np.isfinite(error))

    def by_blocks(self, inputs: tuple[str, ...], results: tuple[str, ...]) -> Repeated:
        """The task for these inputs and results."""
        first, again = self.task(inputs), self.task((*inputs, "qdd"))
        return by_blocks(first, again, results, most_blocks(self.contacts))


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
