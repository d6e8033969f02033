"""Accelerations and forces with contacts as a task of engines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeAlias

from robodyn.algorithms.constraints.terms import with_inputs
from robodyn.algorithms.contacts.newton import Newton
from robodyn.algorithms.contacts.rows import POINT, Rows, bias_of_axes
from robodyn.algorithms.crba import CRBA
from robodyn.algorithms.definite import TreeFactors
from robodyn.algorithms.joint_limits import linear_dofs
from robodyn.algorithms.manifold import joint_by_joint, scalars
from robodyn.algorithms.relative_motion import OfLink
from robodyn.algorithms.rnea import rnea
from robodyn.algorithms.tasks import ScalarTask, Sized
from robodyn.core.contacts.kinds import Contacts
from robodyn.core.integrators import mujoco
from robodyn.core.model import Model
from robodyn.internals.errors import UnavailableError

BASE = ("V0", "dV0")
FIRST_BLOCK, NEXT_BLOCK = 3, 2
"""Iterations of a program; states that want more are gathered for the next ones, which take more looks. These are thus
no larger than the first, and no robot has room for the first alone."""


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


def blocks_after_first(contacts: Contacts) -> int:
    """The number of blocks of `NEXT_BLOCK` iterations after the first block, up to the most iterations."""
    return max(0, -(-(most_iterations(contacts) - FIRST_BLOCK) // NEXT_BLOCK))


def _looks(contacts: Contacts, again: bool) -> int:
    """Looks of each iteration. States that are left after a block (`again`) are few, and need exact lengths: with two
    looks, 0.6 % of states of a quadruped with dry friction take steps to and fro for ever, with six none."""
    if contacts.impratio <= 1.0 and not again:
        return 2
    return 8 if contacts.impratio > 10.0 else 6 if again else 4


def contact_task(model: Model, bounding: float, inputs: tuple[str, ...] = ("q", "qd", "tau")) -> ScalarTask:
    """Accelerations `qdd`, forces `f` on slots, and a bound of the relative `error` of the accelerations, after
    `FIRST_BLOCK` iterations.

    `bounding`: `Contacts.bounding` of the time step. `inputs`: also "f_ext", "inertia", "armature"; and "qdd",
    accelerations from which `NEXT_BLOCK` iterations start instead of those without contacts.
    """
    return _task(_contacts(model).n_slots, bounding, FIRST_BLOCK, _in_order(inputs))


def contact_answer(model: Model, inputs: tuple[str, ...], dt: float = 0.002) -> ScalarTask:
    """Accelerations and forces alone, after as many iterations as are allowed, as one program."""
    contacts = _contacts(model)
    if contacts.crowded:
        raise UnavailableError("contact_forward_dynamics: with max_contacts it is no single program")
    most = most_iterations(contacts, by_blocks=False)
    return _answer(contacts.n_slots, contacts.bounding(dt), most, _in_order(inputs))


def contact_step(model: Model, bounding: float, integrator: str, damped: bool, inputs: tuple[str, ...]) -> ScalarTask:
    """The state after a time step, `q_next` and `qd_next`, and `qdd` and `error` as of `contact_task`.

    `integrator`: one of `STEPS`. `damped`: True if joints are damped by the model's coefficients. `inputs`: also "dt".
    """
    return _step(_contacts(model).n_slots, bounding, integrator, damped, _in_order(inputs))


def _contacts(model: Model) -> Contacts:
    assert model.contacts is not None
    return model.contacts


def _in_order(inputs: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in _SIZES if name in inputs)


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
    bounding: float,
    iterations: int = FIRST_BLOCK,
    **changed: Sequence[Any],
) -> _Solved:
    """`changed`: values of "tau" and "armature" that replace those of the call."""
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
    for k in range(NEXT_BLOCK if "qdd" in given else iterations):
        newton.step(_looks(contacts, "qdd" in given or k >= FIRST_BLOCK))
    forces, error = newton.finish()
    members = [id(member) for group in rows.groups for member in group.members]
    by_member = dict(zip(members, forces, strict=True))
    f = [x for member in rows.of_slots for x in (*by_member[id(member)], 0.0, 0.0)[:3]]
    return _Solved([x - each for x, each in zip(newton.a, b, strict=True)], f, error, H)


_SIZES = {
    "q": Sized(("nq",)),
    **dict.fromkeys(("qd", "qdd", "tau", "armature"), Sized(("nv",))),
    "f_ext": Sized(("n_bodies", 6)),
    "inertia": Sized(("n_bodies", 10)),
    **dict.fromkeys(BASE, Sized((6,))),
    "points": Sized((POINT,)),
    "sides": Sized(("nv",)),
    "dt": Sized(()),
}
"""Inputs. `points` and `sides` are of each of the deepest slots, see `robodyn.api.queries.deepest`."""


def _given(inputs: tuple[str, ...], n_slots: int) -> dict[str, Sized]:
    return {
        name: Sized((n_slots, *_SIZES[name].axes)) if name in ("points", "sides") else _SIZES[name] for name in inputs
    }


def _least(model: Model) -> int:
    """A rough lower bound of the operations: the congruence of rows of the deepest slots."""
    return 3 * _contacts(model).n_slots * model.nv**2


@lru_cache(maxsize=256)
def _task(n_slots: int, bounding: float, iterations: int, inputs: tuple[str, ...]) -> ScalarTask:
    def text(model: Model, given: Mapping[str, Sequence[Any]], at: OfLink) -> Mapping[str, Sequence[Any]]:
        found = _solved(model, given, at, bounding, iterations)
        return {"qdd": found.qdd, "f": found.f, "error": [found.error]}

    outputs = {"qdd": Sized(("nv",)), "f": Sized((n_slots, 3)), "error": Sized(())}
    name = "_".join(("contact_forward_dynamics", *inputs, str(iterations), repr(bounding)))

    def of(names: tuple[str, ...]) -> ScalarTask:
        return _task(n_slots, bounding, iterations, _in_order(names))

    least = _least if "points" in inputs else None
    return ScalarTask(name, _given(inputs, n_slots), outputs, text, of, least=least, one_program=True)


@lru_cache(maxsize=256)
def _answer(n_slots: int, bounding: float, iterations: int, inputs: tuple[str, ...]) -> ScalarTask:
    whole = _task(n_slots, bounding, iterations, inputs)

    def text(model: Model, given: Mapping[str, Sequence[Any]], at: OfLink) -> Mapping[str, Sequence[Any]]:
        results = whole.text(model, given, at)
        return {name: results[name] for name in ("qdd", "f")}

    outputs = {name: whole.outputs[name] for name in ("qdd", "f")}
    return ScalarTask(f"{whole.name}_alone", whole.given, outputs, text, one_program=True)


@lru_cache(maxsize=256)
def _step(n_slots: int, bounding: float, integrator: str, damped: bool, inputs: tuple[str, ...]) -> ScalarTask:
    def text(model: Model, given: Mapping[str, Sequence[Any]], at: OfLink) -> Mapping[str, Sequence[Any]]:
        damping = model.damping.tolist() if damped else [0.0] * model.nv
        q, qd, found = STEPS[integrator](model, given, damping, partial(_solved, model, given, at, bounding))
        return {"q_next": list(q), "qd_next": list(qd), "qdd": found.qdd, "error": [found.error]}

    outputs = {"q_next": Sized(("nq",)), "qd_next": Sized(("nv",)), "qdd": Sized(("nv",)), "error": Sized(())}
    name = "_".join(("contact", integrator, *inputs, repr(bounding), *(("damped",) if damped else ())))
    least = _least if "points" in inputs else None
    return ScalarTask(name, _given(inputs, n_slots), outputs, text, least=least, one_program=True)


_Given: TypeAlias = Mapping[str, Sequence[Any]]
_Solve: TypeAlias = Callable[..., _Solved]
_Next: TypeAlias = tuple[Any, Any, _Solved]


def _semi_implicit_euler(model: Model, given: _Given, damping: Sequence[float], solved: _Solve) -> _Next:
    """`robodyn.core.integrators.semi_implicit_euler`, with implicit damping as armature."""
    changed, dt, (length,) = {}, scalars(given["dt"]), given["dt"]
    if any(damping):
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


def _mujoco(model: Model, given: _Given, damping: Sequence[float], solved: _Solve) -> _Next:
    """`robodyn.core.integrators.mujoco`: contact forces are those of explicit damping, as MuJoCo's."""
    changed, dt, (length,) = {}, scalars(given["dt"]), given["dt"]
    if any(damping):
        changed["tau"] = [x - d * v for x, d, v in zip(given["tau"], damping, given["qd"], strict=True)]
    found = solved(**changed)
    a = [x + b for x, b in zip(found.qdd, bias_of_axes(model, given["qd"]), strict=True)]
    if any(damping):  # (H + dt D)^-1 H a = a - (H + dt D)^-1 dt D a
        damped = [
            [x + length * damping[i] if i == k else x for k, x in enumerate(row)] for i, row in enumerate(found.H)
        ]
        lost = TreeFactors(damped).solve([length * d * x for d, x in zip(damping, a, strict=True)])
        a = [x - y for x, y in zip(a, lost, strict=True)]
    q, qd = mujoco(_Moving(model, a), scalars(given["q"]), scalars(given["qd"]), dt)  # type: ignore[arg-type]
    return q, qd, found


STEPS = {"semi_implicit_euler": _semi_implicit_euler, "mujoco": _mujoco}
"""Integrators whose steps are programs with contacts."""
