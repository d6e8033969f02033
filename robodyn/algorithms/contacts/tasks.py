"""Accelerations and forces with contacts as a task of engines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeAlias

from robodyn.algorithms.backward_steps import BackwardStep
from robodyn.algorithms.constraints.terms import with_inputs
from robodyn.algorithms.contacts.newton import Newton
from robodyn.algorithms.contacts.rows import POINT, Rows, bias_of_axes
from robodyn.algorithms.crba import CRBA
from robodyn.algorithms.definite import TreeFactors, is_zero
from robodyn.algorithms.joint_limits import linear_dofs
from robodyn.algorithms.manifold import joint_by_joint, scalars, unit
from robodyn.algorithms.relative_motion import OfLink
from robodyn.algorithms.rnea import rnea
from robodyn.algorithms.tasks import AtAnswer, Iterations, Repeated, ScalarTask, Sized
from robodyn.core.contacts.kinds import Contacts
from robodyn.core.integrators import mujoco
from robodyn.core.model import Model
from robodyn.internals.errors import UnavailableError

BASE = ("V0", "dV0")
WHOLE = 2
"""Last iterations of programs that are differentiated, see `Newton.freeze`: derivatives of first to third order are
right."""


def block_lengths(contacts: Contacts) -> tuple[int, int]:
    """Iterations of the first program, and of those that go on, which are no larger.

    Those of pyramids solve linear equations, until the rows that push are known: most states are done after 3. On
    elliptic cones nearly all states that slide need 5 or 6. Going on one by one would spare batches 5 %, and cost
    single states a quarter.
    """
    return (3, 2) if contacts.cone == "pyramidal" else (6, 2)


def most_iterations(contacts: Contacts, by_blocks: bool = True) -> int:
    """Iterations after which states count as not converged. By blocks only the few states that want more, one in
    20,000 of a quadruped that lands, pay for twice as many."""
    if contacts.iterations is not None:
        return contacts.iterations
    if contacts.cone == "pyramidal":
        most = 8 if contacts.impratio <= 1.0 else 16
    else:
        most = 12 if contacts.impratio <= 1.0 else 20 if contacts.impratio <= 10.0 else 24
    return 2 * most if by_blocks else most


def most_blocks(contacts: Contacts) -> int:
    """Blocks after the first one."""
    first, again = block_lengths(contacts)
    return max(0, -(-(most_iterations(contacts) - first) // again))


def _iterations(model: Model, inputs: tuple[str, ...]) -> int:
    return block_lengths(_contacts(model))["qdd" in inputs]


def _looks(contacts: Contacts, again: bool) -> int:
    """Looks of each iteration. In the first block none are worth their time, but for elliptic cones that are harder
    than the normal direction. States that are left after it (`again`) are few, and need exact lengths: with two looks,
    0.6 % of states of a quadruped with dry friction take steps to and fro for ever, with six none."""
    if not again and (contacts.cone == "pyramidal" or contacts.impratio <= 1.0):
        return 0
    return 8 if contacts.impratio > 10.0 else 6 if again else 4


def contact_task(model: Model, bounding: float, inputs: tuple[str, ...] = ("q", "qd", "tau")) -> ScalarTask:
    """Accelerations `qdd`, forces `f` on slots, and a bound of the relative `error` of the accelerations, after a
    block of iterations.

    `bounding`: `Contacts.bounding` of the time step. `inputs`: also "f_ext", "inertia", "armature", "friction",
    "contact_friction", "ground_pose"; and "qdd", accelerations from which iterations go on instead of those without
    contacts.
    """
    return _task(_contacts(model).n_slots, bounding, _iterations(model, inputs), 0, _in_order(inputs))


def contact_answer(model: Model, inputs: tuple[str, ...], dt: float = 0.002) -> ScalarTask:
    """Accelerations and forces alone, after as many iterations as are allowed, as one program."""
    contacts = require_all_slots(model)
    iterations = _guarded(contacts)
    task = _task(contacts.n_slots, contacts.bounding(dt), iterations, WHOLE, _in_order(inputs))
    return _only(task, WHOLE, "qdd", "f")


def contact_step(model: Model, bounding: float, integrator: str, damped: bool, inputs: tuple[str, ...]) -> ScalarTask:
    """The state after a time step, `q_next` and `qd_next`, and `qdd` and `error` as of `contact_task`.

    `integrator`: one of `STEPS`. `damped`: True if joints are damped by the model's coefficients. `inputs`: also "dt",
    and "damping", coefficients instead of the model's.
    """
    iterations = _iterations(model, inputs)
    return _step(_contacts(model).n_slots, bounding, integrator, damped, _in_order(inputs), iterations, 0)


@lru_cache(maxsize=256)
def by_blocks(first: ScalarTask, again: ScalarTask, results: tuple[str, ...], most: int) -> Repeated:
    """Some of the results after as many blocks of iterations as a state needs.

    `first`, `again`: the same task without and with "qdd". `most`: blocks after the first, see `most_blocks`.
    """
    outputs = {name: first.outputs[name] for name in results}
    return Repeated(
        f"{first.name}_{most}_{'_'.join(results)}",
        first.given,
        outputs,
        first.text,
        one_program=True,
        first=first,
        again=again,
        start="qdd",
        error="error",
        most=most,
    )


@lru_cache(maxsize=256)
def at_answer(first: Repeated, then: ScalarTask | BackwardStep) -> AtAnswer:
    """A task at the accelerations that iterations find. `first`: of inputs of `then`, with "qdd" as its one result."""
    others = {name: size for name, size in then.extra.items() if name not in (*first.given, *first.outputs)}
    name = f"{then.name}_at_{first.name}"
    return AtAnswer(name, {**first.given, **others}, then.outputs, first.text, one_program=True, first=first, then=then)


def contact_step_answer(
    model: Model, bounding: float | None, integrator: str, damped: bool, inputs: tuple[str, ...]
) -> ScalarTask:
    """The state after a time step alone, as one program that can be differentiated like `contact_answer`.

    With the accelerations "qdd" among the inputs it does not search for them, and has first derivatives only.
    `bounding`: None: that of the input "dt".

    Raises:
        UnavailableError: there are more slots than act at once.
    """
    contacts = require_all_slots(model)
    iterations, whole = (0, 1) if "qdd" in inputs else (_guarded(contacts), WHOLE)
    step = _step(contacts.n_slots, bounding, integrator, damped, _in_order(inputs), iterations, whole)
    return _only(step, whole, "q_next", "qd_next")


def require_all_slots(model: Model) -> Contacts:
    """The contacts. Raise if slots are chosen in each state.

    Raises:
        UnavailableError: there are more slots than act at once.
    """
    contacts = _contacts(model)
    if contacts.crowded:
        raise UnavailableError(
            f"single programs and derivatives of contacts are not available with max_contacts={contacts.max_contacts}; "
            "wanted with_contacts without it"
        )
    return contacts


def _guarded(contacts: Contacts) -> int:
    """Iterations before the last ones of programs that are differentiated."""
    return max(most_iterations(contacts, by_blocks=False) - WHOLE, 1)


def with_unit(model: Model, given: Mapping[str, Sequence[Any]]) -> dict[str, Sequence[Any]]:
    """A state whose quaternions have unit length. Algorithms scale theirs; limits and motions of joints do not."""
    return {**given, "q": list(unit(model, given["q"]))}


def _contacts(model: Model) -> Contacts:
    assert model.contacts is not None
    return model.contacts


def _in_order(inputs: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in SIZES if name in inputs)


class _Solved(NamedTuple):
    """Accelerations, forces on slots, the relative error, and the mass matrix."""

    qdd: list[Any]
    f: list[Any]
    error: Any
    H: list[Sequence[Any]]


def _solved(
    model: Model,
    given: Mapping[str, Sequence[Any]],
    at: OfLink,
    bounding: Any,
    iterations: int,
    whole: int = 0,
    **changed: Sequence[Any],
) -> _Solved:
    """After `iterations`, and `whole` ones that can be differentiated.

    `changed`: values of "tau" and "armature" that replace those of the call.
    """
    contacts, nv = _contacts(model), model.nv
    given = {**given, **changed}
    of_inertia: Any = {"armature": changed["armature"]} if "armature" in changed else {}
    b = bias_of_axes(model, given["qd"])
    entries = at(with_inputs(CRBA, given), **of_inertia)["H"]
    H = [entries[nv * i : nv * (i + 1)] for i in range(nv)]
    external = ("f_ext",) if "f_ext" in given else ()
    bias = with_inputs(rnea(("q", "qd", "qdd", *external)), given)
    needed = at(bias, qdd=[-each for each in b], **of_inertia)["tau"]
    force = [tau - each for tau, each in zip(given["tau"], needed, strict=True)]
    rows = Rows(model, given, at, b, bounding)
    start = [x + each for x, each in zip(given["qdd"], b, strict=True)] if "qdd" in given else None
    newton = Newton(H, force, rows.groups, start)
    first, _ = block_lengths(contacts)
    for k in range(iterations):
        newton.step(_looks(contacts, "qdd" in given or k >= first))
    if whole:
        newton.freeze()
    for _ in range(whole):
        newton.step(0)
    forces, error = newton.finish()
    members = [id(member) for group in rows.groups for member in group.members]
    by_member = dict(zip(members, forces, strict=True))
    f = [x for member in rows.of_slots for x in (*by_member[id(member)], 0.0, 0.0)[:3]]
    return _Solved([x - each for x, each in zip(newton.a, b, strict=True)], f, error, H)


SIZES = {
    "q": Sized(("nq",)),
    **dict.fromkeys(("qd", "qdd", "tau", "armature", "damping", "friction"), Sized(("nv",))),
    "f_ext": Sized(("n_bodies", 6)),
    "inertia": Sized(("n_bodies", 10)),
    **dict.fromkeys(BASE, Sized((6,))),
    "contact_friction": Sized(("n_contacts",)),
    "ground_pose": Sized((4, 4)),
    "points": Sized((POINT,)),
    "sides": Sized(("nv",)),
    "dt": Sized(()),
}
"""Inputs. `friction` is that of joints. `points` and `sides` are of each of the deepest slots, see
`robodyn.api.queries.deepest`."""


def _given(inputs: tuple[str, ...], n_slots: int) -> dict[str, Sized]:
    return {
        name: Sized((n_slots, *SIZES[name].axes)) if name in ("points", "sides") else SIZES[name] for name in inputs
    }


def _least(model: Model) -> int:
    """A rough lower bound of the operations: the congruence of rows of the deepest slots."""
    return 3 * _contacts(model).n_slots * model.nv**2


@lru_cache(maxsize=256)
def _task(n_slots: int, bounding: float, iterations: int, whole: int, inputs: tuple[str, ...]) -> ScalarTask:
    def text(model: Model, given: Mapping[str, Sequence[Any]], at: OfLink) -> Mapping[str, Sequence[Any]]:
        found = _solved(model, with_unit(model, given), at, bounding, iterations, whole)
        return {"qdd": found.qdd, "f": found.f, "error": [found.error]}

    outputs = {"qdd": Sized(("nv",)), "f": Sized((n_slots, 3)), "error": Sized(())}
    name = "_".join(("contact_forward_dynamics", *inputs, f"{iterations}_and_{whole}", repr(bounding)))

    def of(names: tuple[str, ...]) -> ScalarTask:
        return _task(n_slots, bounding, iterations, whole, _in_order(names))

    least = _least if "points" in inputs else None
    return Iterations(name, _given(inputs, n_slots), outputs, text, of, least=least, one_program=True)


@lru_cache(maxsize=256)
def _step(
    n_slots: int,
    bounding: float | None,
    integrator: str,
    damped: bool,
    inputs: tuple[str, ...],
    iterations: int,
    whole: int,
) -> ScalarTask:
    def text(model: Model, given: Mapping[str, Sequence[Any]], at: OfLink) -> Mapping[str, Sequence[Any]]:
        damping = given.get("damping", model.damping.tolist() if damped else [0.0] * model.nv)
        bounds, given = given["dt"][0] if bounding is None else bounding, with_unit(model, given)
        solved = partial(_solved, model, given, at, bounds, iterations, whole)
        q, qd, found = STEPS[integrator](model, given, damping, solved)
        return {"q_next": list(q), "qd_next": list(qd), "qdd": found.qdd, "error": [found.error]}

    outputs = {"q_next": Sized(("nq",)), "qd_next": Sized(("nv",)), "qdd": Sized(("nv",)), "error": Sized(())}
    count = f"{iterations}_and_{whole}"
    name = "_".join(("contact", integrator, *inputs, count, repr(bounding), *(("damped",) if damped else ())))
    least = _least if "points" in inputs else None
    return Iterations(name, _given(inputs, n_slots), outputs, text, least=least, one_program=True)


@lru_cache(maxsize=256)
def _only(task: ScalarTask, whole: int, *names: str) -> ScalarTask:
    """Some results of a task whose last `whole` iterations are differentiated. Its program may be large."""

    def text(model: Model, given: Mapping[str, Sequence[Any]], at: OfLink) -> Mapping[str, Sequence[Any]]:
        results = task.text(model, given, at)
        return {name: results[name] for name in names}

    outputs = {name: task.outputs[name] for name in names}
    name, orders = f"{task.name}_alone", 2**whole - 1
    return ScalarTask(name, task.given, outputs, text, least=lambda m: m.nv**2, one_program=True, orders=orders)


_Given: TypeAlias = Mapping[str, Sequence[Any]]
_Solve: TypeAlias = Callable[..., _Solved]
_Next: TypeAlias = tuple[Any, Any, _Solved]


def _semi_implicit_euler(model: Model, given: _Given, damping: Sequence[Any], solved: _Solve) -> _Next:
    """`robodyn.core.integrators.semi_implicit_euler`, with implicit damping as armature."""
    changed, dt, (length,) = {}, scalars(given["dt"]), given["dt"]
    if not all(map(is_zero, damping)):
        armature = given.get("armature", model.armature.tolist())
        changed["armature"] = [x + length * d for x, d in zip(armature, damping, strict=True)]
        changed["tau"] = [x - d * v for x, d, v in zip(given["tau"], damping, given["qd"], strict=True)]
    found = solved(**changed)
    qd = scalars(given["qd"]) + scalars(found.qdd) * dt
    q, step = given["q"], qd * dt
    moved = joint_by_joint(
        model, "q", lambda kind, i, along: kind.integrate(tuple(q[j] for j in i), tuple(step[along]))
    )
    return moved, qd, found


class _Moving:
    """A robot of known accelerations along axes that do not turn, for `robodyn.core.integrators.mujoco`."""

    def __init__(self, model: Model, along: Sequence[Any]) -> None:
        self._model, self._along, self._linear = model, scalars(along), scalars(linear_dofs(model).tolist())

    def acceleration_along(self, q: Any, qd: Any, turning: Any, dt: float) -> Any:
        """The known accelerations."""
        return self._along

    def linear(self, v: Any) -> Any:
        """The components in m/s."""
        return v * self._linear

    def moved(self, q: Any, u: Any) -> Any:
        """q (+) u."""
        return joint_by_joint(self._model, "q", lambda kind, i, k: kind.integrate(tuple(q[i]), tuple(u[k])))

    def turned(self, v: Any, u: Any) -> Any:
        """Linear velocities in axes that turn by u."""
        return joint_by_joint(self._model, "v", lambda kind, _, k: kind.turned(tuple(v[k]), tuple(u[k])))

    def bracket(self, a: Any, b: Any) -> Any:
        """The Lie bracket."""
        return joint_by_joint(self._model, "v", lambda kind, _, k: kind.bracket(tuple(a[k]), tuple(b[k])))


def _mujoco(model: Model, given: _Given, damping: Sequence[Any], solved: _Solve) -> _Next:
    """`robodyn.core.integrators.mujoco`: contact forces are those of explicit damping, as MuJoCo's."""
    changed, dt, (length,) = {}, scalars(given["dt"]), given["dt"]
    if not all(map(is_zero, damping)):
        changed["tau"] = [x - d * v for x, d, v in zip(given["tau"], damping, given["qd"], strict=True)]
    found = solved(**changed)
    a = [x + b for x, b in zip(found.qdd, bias_of_axes(model, given["qd"]), strict=True)]
    if not all(map(is_zero, damping)):  # (H + dt D)^-1 H a = a - (H + dt D)^-1 dt D a
        damped = [
            [x + length * damping[i] if i == k else x for k, x in enumerate(row)] for i, row in enumerate(found.H)
        ]
        lost = TreeFactors(damped).solve([length * d * x for d, x in zip(damping, a, strict=True)])
        a = [x - y for x, y in zip(a, lost, strict=True)]
    q, qd = mujoco(_Moving(model, a), scalars(given["q"]), scalars(given["qd"]), dt)  # type: ignore[arg-type]
    return q, qd, found


STEPS = {"semi_implicit_euler": _semi_implicit_euler, "mujoco": _mujoco}
"""Integrators whose steps are programs with contacts."""
