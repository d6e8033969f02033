"""Constraints: closed loops, feet, couplings. What they hold, how they respond, and motion that obeys them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from robodyn.algorithms.constraints.inverse import require_allowed, require_possible, shared_forces
from robodyn.algorithms.constraints.terms import APART
from robodyn.algorithms.constraints.wrenches import add_wrenches
from robodyn.api.queries.call import Call
from robodyn.api.queries.core import Core
from robodyn.api.queries.fast_path import query
from robodyn.core.constraints.kinds import Rod
from robodyn.core.constraints.resolved import (
    ResolvedConstraint,
    resolved_constraints,
    row_names,
    row_sizes,
    velocities_of,
)
from robodyn.core.joints import KINDS
from robodyn.internals import strict_types
from robodyn.internals.arguments import Array, as_array
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import brief


class ConstraintQueries(Core):
    """Queries about `model.constraints`, m rows in the order of their declaration (`constraint_names`).

    `targets` (..., n_constraints, 12): transforms from the world to the frames that constraints to the world hold,
    E row-major, then r, as in `model.link_X`; other constraints do not look at theirs. E is made orthonormal; what is
    no turn gives NaN. `active` (..., n_constraints): True, or a positive number, for constraints that hold, False or 0
    for those that are off, whose rows and forces are zero; one bool is for all. Forces are what `to` exerts on `link`,
    in the axes of the frame on `to`.
    """

    @property
    def constraint_names(self) -> tuple[str, ...]:
        """Names of rows, such as "foot.x"."""
        return row_names(self.model)

    @query
    def constrained_forward_dynamics(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        tau: ArrayLike,
        targets: ArrayLike | None = None,
        *,
        active: ArrayLike | None = None,
        f_ext: ArrayLike | None = None,
        inertia: ArrayLike | None = None,
        V0: ArrayLike | None = None,
        dV0: ArrayLike | None = None,
        out: tuple[Array, Array] | None = None,
    ) -> tuple[Array, Array]:
        """(qdd, lambda): accelerations (..., nv) and constraint forces (..., m) under generalised forces tau.

        H qdd + bias = tau + J' lambda, with J qdd + gamma = 0, or what Baumgarte's terms ask for. Where rows depend on
        each other lambda is the shortest, each row in units of 1/sqrt(A_kk) of `delassus`; accelerations are unique.

        Raises:
            SingularError: H is singular whatever the state; names the body, or the rows of `inertia`.
        """
        return cast(tuple[Array, Array], self._ask("constrained_forward_dynamics", locals()))

    @query
    def constraint_residual(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        targets: ArrayLike | None = None,
        *,
        V0: ArrayLike | None = None,
        out: tuple[Array, Array] | None = None,
    ) -> tuple[Array, Array]:
        """(phi, phidot), each (..., m): how far constraints are from what they hold, m and rad, and the rate.

        Turns are the sine of the angle times the axis.
        """
        return cast(tuple[Array, Array], self._ask("constraint_residual", locals()))

    @query
    def constraint_jacobian(self, q: ArrayLike, targets: ArrayLike | None = None, *, out: Array | None = None) -> Array:
        """J (..., m, nv): for a base at rest phidot is J qd."""
        return cast(Array, self._ask("constraint_jacobian", locals()))

    @query
    def delassus(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        tau: ArrayLike,
        targets: ArrayLike | None = None,
        *,
        active: ArrayLike | None = None,
        f_ext: ArrayLike | None = None,
        inertia: ArrayLike | None = None,
        V0: ArrayLike | None = None,
        dV0: ArrayLike | None = None,
        out: tuple[Array, Array] | None = None,
    ) -> tuple[Array, Array]:
        """(A, v_free): A = J H^-1 J' (..., m, m), and the rows' accelerations (..., m) without constraint forces.

        With forces lambda they are A lambda + v_free: all that solvers of contacts with friction need. Baumgarte's
        terms are in v_free; the proximal term is not in A, and rows that are off have 1 on its diagonal.

        Raises:
            SingularError: H is singular whatever the state; names the body, or the rows of `inertia`.
        """
        return cast(tuple[Array, Array], self._ask("delassus", locals()))

    @query
    def impact(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        restitution: ArrayLike | None = None,
        targets: ArrayLike | None = None,
        *,
        active: ArrayLike | None = None,
        inertia: ArrayLike | None = None,
        V0: ArrayLike | None = None,
        out: tuple[Array, Array] | None = None,
    ) -> tuple[Array, Array]:
        """(qd after, impulse): velocities (..., nv) after the constraints have closed at once, and impulses (..., m).

        `restitution` (...): one number for each state; all rows move with -restitution times their velocity before.
        None: 0, they stay together.

        Raises:
            SingularError: H is singular whatever the state; names the body, or the rows of `inertia`.
        """
        return cast(tuple[Array, Array], self._ask("impact", locals()))

    @query
    def project(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        targets: ArrayLike | None = None,
        *,
        active: ArrayLike | None = None,
        inertia: ArrayLike | None = None,
        V0: ArrayLike | None = None,
        out: tuple[Array, Array] | None = None,
    ) -> tuple[Array, Array]:
        """(q, qd) moved onto the constraints: one Newton step in the metric of the mass matrix, then the velocity.

        For states that are near: `model.assemble` takes any.

        Raises:
            SingularError: H is singular whatever the state; names the body, or the rows of `inertia`.
        """
        return cast(tuple[Array, Array], self._ask("project", locals()))

    def constraint_wrenches(
        self, q: ArrayLike, lam: ArrayLike, targets: ArrayLike | None = None, *, out: Array | None = None
    ) -> Array:
        """Constraint forces lambda (..., m) as external forces (..., n_bodies, 6), N m and N: what constraints between
        frames exert on bodies, in world axes, moments about the world's origin. They are `f_ext` of other queries.

        Equal and opposite on `link` and `to`, along the axes of the frame on `to` and at the origin of that on `link`,
        on the constraint or off it: of these rows generalised forces are J' lambda. Couplings and locks act on
        coordinates: they push no body, their J' lambda is a part of the generalised forces, and their rows of lambda
        are not looked at. The world feels nothing.

        Raises:
            ArgumentError: wrong shapes.
        """
        shapes = {"lam": (self.model.n_rows,)}
        call = Call(self, {"q": q, "lam": lam, "targets": targets}, ("targets",), out, shapes=shapes)
        poses = self._ask("forward_kinematics", {"q": call.inputs["q"]})
        found = call.result(0, self.model.n_bodies, 6)
        found[...] = 0.0
        with np.errstate(all="ignore"):
            add_wrenches(self.model, call.inputs, poses, found)
        return cast(Array, call.finish({"f_ext": found}))

    def constraint_targets(self, q: ArrayLike) -> Array:
        """(..., n_constraints, 12): the `targets` that every constraint to the world holds in the configuration q: feet
        where they stand. Rows of others are zero. A rod's is at its length from the link, towards its own `to_at`.

        Raises:
            ArgumentError: a rod whose two ends are in one place, so that no direction is known; names it.
        """
        poses: Array = np.asarray(self._ask("forward_kinematics", {"q": q}))
        found = np.zeros((*poses.shape[:-3], self.model.n_constraints, 12), self.dtype)
        for held in resolved_constraints(self.model):
            if held.framed and held.to < 0:
                T = poses[..., held.link, :, :]
                R, E = T[..., :3, :3], np.array(held.X.E).reshape(3, 3)
                place = T[..., :3, 3] + R @ np.array(held.X.r)
                found[..., held.number, :9] = (E @ np.swapaxes(R, -1, -2)).reshape(*T.shape[:-2], 9)
                found[..., held.number, 9:] = _end_of_rod(held, place) if held.kind is Rod else place
        return found

    def constrained_inverse_dynamics(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        qdd: ArrayLike,
        actuated: Sequence[str] | Array | None = None,
        targets: ArrayLike | None = None,
        *,
        active: ArrayLike | None = None,
        f_ext: ArrayLike | None = None,
        inertia: ArrayLike | None = None,
        V0: ArrayLike | None = None,
        dV0: ArrayLike | None = None,
    ) -> tuple[Array, Array]:
        """(tau, lambda): the least generalised forces (..., nv) of the actuated joints that give accelerations qdd, and
        constraint forces (..., m): H qdd + bias = tau + J' lambda, tau zero at other joints.

        `actuated`: names of joints, or of single degrees of freedom (`model.velocity_names`), or bools (nv,); None: all
        but floating bases. Of all such tau the one with the smallest sum of squares; where lambda is not unique, its
        smallest, where distances count times the reach of the robot and a coupling times the norm of its numbers.

        Raises:
            NumericalError: accelerations that the constraints do not allow, or that the actuated joints cannot give;
                where values are checked.
        """
        more = {"f_ext": f_ext, "inertia": inertia, "V0": V0, "dV0": dV0}
        drives = self._actuated(actuated)
        given = {"q": q, "qd": qd, "qdd": qdd, **more}
        need = np.asarray(self._ask("inverse_dynamics", given), np.float64)
        J = np.asarray(self._ask("constraint_jacobian", {"q": q, "targets": targets}), np.float64)
        several = max(need.ndim - 1, J.ndim - 2, np.ndim(active) - 1 if active is not None else 0)
        checked = self.check if self.check is not None else several == 0
        if checked:  # what forces without constraints give is what they allow, or they would change it
            given = {"q": q, "qd": qd, "tau": need, "targets": targets, "active": active, **more}
            require_allowed(qdd, self._ask("constrained_forward_dynamics", given)[0], self.dtype)
        if active is not None:
            J = J * self._active_rows(q, active)[..., None]
        tau, lam, left = shared_forces(
            need, J, row_sizes(self.model, resolved_constraints(self.model)), drives, self.dtype
        )
        if checked:
            require_possible(need, tau, left, self.dtype)
        return tau.astype(self.dtype), lam.astype(self.dtype)

    def _active_rows(self, q: ArrayLike, active: ArrayLike) -> Array:
        """(..., m) 1 for rows that hold, 0 for those that are off."""
        call = Call(self, {"q": q, "active": active})
        held = (call.inputs["active"] > 0).reshape(*call.leading, self.model.n_constraints)
        counts = [len(each.rows) for each in resolved_constraints(self.model)]
        return np.repeat(held, counts, axis=-1).astype(np.float64)

    def _actuated(self, given: Any) -> Array:
        """(nv,) which degrees of freedom have a drive."""
        model = self.model
        if given is None:
            floats = [KINDS[code].name == "floating" for code in model.joint_kind.tolist()]
            found = np.ones(model.nv, bool)
            found[model.v_source[np.repeat(floats, np.diff([*model.v_start.tolist(), model.nv_tree]))]] = False
            return found
        wanted = f"wanted a list of names of joints or of velocities, bools of shape ({model.nv},), or None"
        if strict_types.is_a(given, np.ndarray):
            array = as_array("actuated", given, wanted)
            if array.dtype == bool and array.shape == (model.nv,):
                return array.copy()
        if not strict_types.is_a(given, list, tuple):
            raise ArgumentError(f"actuated: got {brief(given)}; {wanted}")
        found = np.zeros(model.nv, bool)
        single = {name: k for k, name in enumerate(model.velocity_names)}
        for name in strict_types.members(given):
            text = strict_types.text_or_none(name)
            if text is not None and text in single:
                found[single[text]] = True
                continue
            try:
                found[velocities_of(model, model.joint_index(name))] = True
            except ArgumentError as error:
                raise ArgumentError(f"actuated: {error}; names of velocities are allowed, too") from None
        return found


def _end_of_rod(rod: ResolvedConstraint, place: Array) -> Array:
    """(..., 3) where a rod from a place (..., 3) to the world ends, if it keeps its direction."""
    away = np.array(rod.X_to.r) - place
    distance = np.linalg.norm(away, axis=-1, keepdims=True)
    if np.any(distance <= APART * rod.length):
        raise ArgumentError(
            f"constraint {rod.name!r}: both ends of the rod are in one place; wanted another `to_at` or q"
        )
    end: Array = place + away * (rod.length / distance)
    return end
