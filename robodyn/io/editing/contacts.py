"""Contacts of a model: their numbers are completed from the model at its neutral configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from robodyn.algorithms.crba import CRBA
from robodyn.algorithms.kinematics import jacobian
from robodyn.algorithms.tasks import ScalarTask, Sized
from robodyn.core.constraints.kinds import Constraint, Coupling, Lock, Point, Weld
from robodyn.core.constraints.resolved import ResolvedConstraint, resolved_constraints
from robodyn.core.contacts.kinds import Contact, ContactPair, Contacts, EqualityRows, JointRow, checked_options
from robodyn.core.joints import KINDS
from robodyn.engines.reference import ReferenceEngine
from robodyn.internals import strict_types
from robodyn.internals.arguments import Array, flag
from robodyn.internals.cached import cached_property
from robodyn.internals.errors import ArgumentError, SingularError, UnavailableError
from robodyn.internals.messages import brief, quoted
from robodyn.internals.tuning import MAX_TRACED_BODIES

if TYPE_CHECKING:
    from robodyn.core.model import Model


_ROWS: dict[type[Constraint], int] = {Point: 3, Weld: 6, Coupling: 1, Lock: 1}
"""Constraints that act with contacts, and their rows."""


def with_contacts(
    model: Model,
    contacts: Any,
    cone: Any = "pyramidal",
    impratio: Any = 1.0,
    limits: Any = True,
    dry_friction: Any = True,
    iterations: Any = None,
    max_contacts: Any = None,
    refsafe: Any = True,
    equalities: Sequence[EqualityRows] | None = None,
) -> Model:
    """A model with contacts; see `Model.with_contacts`.

    Readers of files give rows of joints as lists of `JointRow`, and of the model's constraints as `EqualityRows`. An
    `invweight` of None is computed.
    """
    if model.n_bodies > MAX_TRACED_BODIES:
        raise UnavailableError(
            f"with_contacts: {quoted(model.name)} has {model.n_bodies} bodies; contacts and a robot are one program, "
            f"wanted at most {MAX_TRACED_BODIES} bodies"
        )
    options = checked_options(cone, impratio, refsafe, iterations, max_contacts)
    given = strict_types.members(contacts) if strict_types.is_a(contacts, list, tuple) else None
    if given is None or any(type(each) is not Contact for each in given):
        raise ArgumentError(f"contacts: got {brief(contacts)}; wanted a list of robodyn.Contact")
    weights = _Weights(model)
    pairs = tuple(_pair(model, k, each, weights) for k, each in enumerate(given))
    of_limits = _joint_rows(model, "limits", limits, _limited(model), weights)
    of_friction = _joint_rows(model, "dry_friction", dry_friction, model.friction > 0.0, weights)
    held = _equalities(model, equalities, weights)
    return replace(model, contacts=Contacts(pairs, of_limits, of_friction, held, **options))


def _limited(model: Model) -> Array:
    """(nv,) True for velocities of coordinates with limits."""
    finite = np.isfinite(model.lower) | np.isfinite(model.upper)
    found = np.zeros(model.nv, bool)
    for i in range(model.n_bodies):
        kind = KINDS[model.joint_kind[i]]
        if model.mimics[i] < 0 and kind.nq == kind.nv:
            q, v = int(model.q_start[i]), int(model.v_start[i])
            found[model.v_source[v : v + kind.nv]] = finite[model.q_source[q : q + kind.nq]]
    return found


def _joint_rows(model: Model, name: str, given: Any, chosen: Array, weights: _Weights) -> tuple[JointRow, ...]:
    rows: list[JointRow] = []
    if strict_types.is_a(given, list, tuple) and strict_types.all_are(given, JointRow):
        rows = list(given)
    elif flag(name, given):
        for i in range(model.n_bodies):
            kind = KINDS[model.joint_kind[i]]
            dofs = model.v_source[int(model.v_start[i]) : int(model.v_start[i]) + kind.nv]
            if model.mimics[i] < 0:
                rows += [JointRow(joint=model.joint_names[i], component=k) for k in range(kind.nv) if chosen[dofs[k]]]
    return tuple(
        row if row.invweight is not None else replace(row, invweight=weights.of_joint(row.joint, row.component))
        for row in rows
    )


def _pair(model: Model, k: int, contact: Contact, weights: _Weights) -> ContactPair:
    bodies, total = [], 0.0
    for side, shape in (("first", contact.first), ("second", contact.second)):
        try:
            link = -1 if shape.link is None else model.link_index(shape.link)
        except ArgumentError as error:
            raise ArgumentError(f"contacts[{k}].{side}.{error}") from None
        bodies.append(int(model.link_body[link]) if link >= 0 else -1)
        total += 0.0 if contact.invweight is not None else weights.of_link(link)[0]
    if bodies[0] == bodies[1]:
        on = "the world" if bodies[0] < 0 else quoted(model.body_names[bodies[0]])
        raise ArgumentError(f"contacts[{k}]: got two shapes on one body, {on}; wanted shapes that move")
    return ContactPair(
        contact.solref,
        contact.solimp,
        contact.margin,
        total if contact.invweight is None else contact.invweight,
        contact.first.geometry,
        contact.second.geometry,
        contact.friction,
        contact.torsional,
        contact.rolling,
        contact.solreffriction,
        contact.condim,
    )


def _equalities(model: Model, given: Sequence[EqualityRows] | None, weights: _Weights) -> tuple[EqualityRows, ...]:
    """The softness of the model's constraints, in their order."""
    by_name = {each.constraint: each for each in given or ()}
    found = []
    for each in resolved_constraints(model):
        if each.kind not in _ROWS or each.anchored or len(each.rows) != _ROWS[each.kind]:
            raise UnavailableError(
                f"constraints: {quoted(each.name)} is a {each.kind.__name__}; contacts can act together with Points "
                "and Welds that hold all directions at a place that is known, Couplings, and Locks of one coordinate; "
                "Dynamics(model, constraints=()), or a model without it, has none"
            )
        rows = by_name.get(each.name, EqualityRows(constraint=each.name))
        if rows.invweight is None:
            translations, rotations = weights.of_constraint(each)
            rows = replace(rows, invweight=translations, rotational=rotations)
        found.append(rows)
    return tuple(found)


class _Weights:
    """Inverse inertias at the neutral configuration, as MuJoCo's `body_invweight0` and `dof_invweight0`."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def of_link(self, link: int) -> tuple[float, float]:
        """Means over directions at a link's own centre of mass, 1/kg and 1/(kg m^2); 0 for the world."""
        body = int(self._model.link_body[link]) if link >= 0 else -1
        if body < 0:
            return 0.0, 0.0
        J = self._run(partial(_link_jacobian, link=link, point=self._com(link)), (6, "nv"))
        A = J @ self._inverse @ J.T
        return float(np.trace(A[3:, 3:])) / 3.0, float(np.trace(A[:3, :3])) / 3.0

    def of_joint(self, joint: str, component: int) -> float:
        """The entry of H^-1; the mean of three for rotations of spherical and floating joints."""
        model = self._model
        i = model.joint_index(joint)
        dofs = model.v_source[int(model.v_start[i]) : int(model.v_start[i]) + KINDS[model.joint_kind[i]].nv]
        entries = np.diag(self._inverse)[dofs]
        if KINDS[model.joint_kind[i]].quaternion is not None:
            entries = np.repeat(entries.reshape(-1, 3).mean(axis=1), 3)
        return float(entries[component])

    def of_constraint(self, held: ResolvedConstraint) -> tuple[float, float]:
        """Of translations and rotations of a constraint between links; of coordinates twice the same."""
        if held.framed:
            one, other = self.of_link(held.link), self.of_link(held.to)
            return one[0] + other[0], one[1] + other[1]
        diagonal = np.diag(self._inverse)
        if held.joints:
            dofs = {int(self._model.v_source[v]) for v, _, _ in held.joints}
        else:
            dofs = set(self._model.v_source[[int(self._model.v_start[held.joint])]].tolist())
        total = float(sum(diagonal[k] for k in dofs))
        return total, total

    def _com(self, link: int) -> tuple[float, ...]:
        rows = self._model.link_inertia
        if rows is None or not rows[link, 0] > 0.0:
            return 0.0, 0.0, 0.0
        return tuple((rows[link, 1:4] / rows[link, 0]).tolist())

    @cached_property
    def _inverse(self) -> Array:
        H = self._run(_mass_matrix, ("nv", "nv"))
        try:
            inverse: Array = np.linalg.inv(H)
        except np.linalg.LinAlgError:
            inverse = np.full(H.shape, np.nan)
        if not np.isfinite(inverse).all():
            raise SingularError("with_contacts: the mass matrix is singular at the neutral configuration")
        return inverse

    def _run(self, text: Any, axes: tuple[int | str, ...]) -> Array:
        model = self._model
        task = ScalarTask("weights", {"q": Sized(("nq",))}, {"x": Sized(axes)}, text)
        out = np.empty((1, *(model.nv if axis == "nv" else int(axis) for axis in axes)))
        ReferenceEngine(model, np.dtype(np.float64)).run(task, {"q": model.neutral()[None]}, {"x": out})
        found: Array = out[0]
        return found


def _mass_matrix(model: Model, given: Mapping[str, Any], at: Any) -> Mapping[str, Any]:
    return {"x": at(CRBA)["H"]}


def _link_jacobian(
    model: Model, given: Mapping[str, Any], at: Any, link: int, point: Sequence[float]
) -> Mapping[str, Any]:
    return {"x": at(jacobian("world_aligned"), link, point)["J"]}
