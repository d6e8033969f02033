"""Queries about constraints (closed loops, feet, couplings): residuals, forces, and constrained dynamics."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
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
from robodyn.core.model import Model
from robodyn.internals import strict_types
from robodyn.internals.arguments import Array, as_array
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import brief


class ConstraintQueries(Core):
    """Queries about `model.constraints`. They have m rows in the order of declaration (`constraint_names`).

    `targets` (..., n_constraints, 12): the target frames of constraints to the world, as transforms from the world:
    E row-major, then r, as in `model.link_X`. Entries of other constraints are ignored. E is made orthonormal; an E
    that is no rotation gives NaN.

    `active` (..., n_constraints): True or a positive number for constraints that hold, False or 0 for those that are
    off. One bool is for all. Rows and forces of constraints that are off are zero.

    Constraint forces are the forces that `to` exerts on `link`, in the axes of the frame on `to`.
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

        They solve H qdd + bias = tau + J' lambda with J qdd + gamma = 0, or with the right-hand side of Baumgarte's
        terms. If rows depend on each other, lambda has the least norm, with row k in units of 1/sqrt(A_kk) of
        `delassus`. Accelerations are always unique.

        Raises:
            SingularError: H is singular at every state; names the body, or the rows of `inertia`.
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
        """(phi, phidot), each (..., m): constraint residuals, m and rad, and their rates.

        Rotational rows are sin(angle) times the rotation axis.
        """
        return cast(tuple[Array, Array], self._ask("constraint_residual", locals()))

    @query
    def constraint_jacobian(self, q: ArrayLike, targets: ArrayLike | None = None, *, out: Array | None = None) -> Array:
        """Constraint Jacobian J (..., m, nv): for a base at rest phidot is J qd."""
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
        """(A, v_free): the Delassus matrix A = J H^-1 J' (..., m, m), and the rows' accelerations (..., m) without
        constraint forces.

        With forces lambda the accelerations of the rows are A lambda + v_free, as solvers of frictional contact need
        them. v_free includes Baumgarte's terms. A does not include the proximal term; inactive rows have 1 on its
        diagonal.

        Raises:
            SingularError: H is singular at every state; names the body, or the rows of `inertia`.
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
        """(qd after, impulse): velocities (..., nv) after an impact that closes all constraints, and impulses (..., m).

        `restitution` (...): coefficient of each state: all rows rebound with -restitution times their velocity before
        the impact. None: 0, a fully inelastic impact.

        Raises:
            SingularError: H is singular at every state; names the body, or the rows of `inertia`.
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
        """(q, qd) projected onto the constraints: q by one Newton step in the metric of the mass matrix, then qd.

        The state must be near the constraints; `model.assemble` takes any state.

        Raises:
            SingularError: H is singular at every state; names the body, or the rows of `inertia`.
        """
        return cast(tuple[Array, Array], self._ask("project", locals()))

    def constraint_wrenches(
        self, q: ArrayLike, lam: ArrayLike, targets: ArrayLike | None = None, *, out: Array | None = None
    ) -> Array:
        """Wrenches (..., n_bodies, 6) of constraint forces lambda (..., m) on bodies, N m and N, in world axes, moments
        about the world's origin. They can be passed to other queries as `f_ext`.

        The wrenches on `link` and `to` are equal and opposite. They act along the axes of the frame on `to`, at the
        origin of the frame on `link`, whether or not the state satisfies the constraint. Their generalised forces are
        J' lambda. Couplings and locks act on coordinates and exert no wrench: their rows of lambda are ignored, and
        their J' lambda belongs to the generalised forces.

        Raises:
            ArgumentError: wrong shapes.
        """
        shapes = {"lam": (self.model.n_rows,)}
        call = Call(self, {"q": q, "lam": lam, "targets": targets}, ("targets",), out, shapes=shapes)
        poses = self._ask("forward_kinematics", {"q": call.inputs["q"]})
        wrenches = call.result(0, self.model.n_bodies, 6)
        wrenches[...] = 0.0
        with np.errstate(all="ignore"):
            add_wrenches(self.model, call.inputs, poses, wrenches)
        return cast(Array, call.finish({"f_ext": wrenches}))

    def constraint_targets(self, q: ArrayLike) -> Array:
        """`targets` (..., n_constraints, 12) for which configuration q satisfies all constraints to the world.

        Feet, for example, then stay where they stand in q. Rows of other constraints are zero. A rod's target is at
        the rod's length from the link, in the direction of its `to_at`.

        Raises:
            ArgumentError: both ends of a rod coincide, so that its direction is unknown; names it.
        """
        poses: Array = np.asarray(cast(Any, self).forward_kinematics(q))
        targets = np.zeros((*poses.shape[:-3], self.model.n_constraints, 12), self.dtype)
        held, (links, numbers, E, r) = _to_the_world(self.model)
        T = poses[..., links, :, :]
        R = T[..., :3, :3]
        places = T[..., :3, 3] + (R @ r)[..., 0]
        for k, constraint in enumerate(held):
            if constraint.kind is Rod:
                places[..., k, :] = _end_of_rod(constraint, places[..., k, :])
        targets[..., numbers, :9] = (E @ np.swapaxes(R, -1, -2)).reshape(*R.shape[:-2], 9)
        targets[..., numbers, 9:] = places
        return targets

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
        constraint forces (..., m). They solve H qdd + bias = tau + J' lambda with tau zero at other joints.

        tau has the smallest sum of squares. If lambda is not unique, it has the least weighted norm: forces of distance
        rows are weighted by the robot's reach, those of a coupling by the norm of its coefficients.

        `actuated`: names of joints or of single degrees of freedom (`model.velocity_names`), or bools (nv,). None: all
        joints but floating bases.

        Raises:
            NumericalError: (where checked) the constraints do not allow the accelerations, or the actuated joints
                cannot produce them.
        """
        options = {"f_ext": f_ext, "inertia": inertia, "V0": V0, "dV0": dV0}
        drives = self._actuated(actuated)
        arguments = {"q": q, "qd": qd, "qdd": qdd, **options}
        required = np.asarray(self._ask("inverse_dynamics", arguments), np.float64)
        J = np.asarray(self._ask("constraint_jacobian", {"q": q, "targets": targets}), np.float64)
        n_leading = max(required.ndim - 1, J.ndim - 2, np.ndim(active) - 1 if active is not None else 0)
        checked = self.check if self.check is not None else n_leading == 0
        if checked:  # under tau = ID(qdd) constrained accelerations equal qdd only if the constraints allow qdd
            arguments = {"q": q, "qd": qd, "tau": required, "targets": targets, "active": active, **options}
            require_allowed(qdd, self._ask("constrained_forward_dynamics", arguments)[0], self.dtype)
        if active is not None:
            J = J * self._active_rows(q, active)[..., None]
        tau, lam, remainder = shared_forces(
            required, J, row_sizes(self.model, resolved_constraints(self.model)), drives, self.dtype
        )
        if checked:
            require_possible(required, tau, remainder, self.dtype)
        return tau.astype(self.dtype), lam.astype(self.dtype)

    def _active_rows(self, q: ArrayLike, active: ArrayLike) -> Array:
        """(..., m): 1 for rows of active constraints, 0 for others."""
        call = Call(self, {"q": q, "active": active})
        active_constraints = (call.inputs["active"] > 0).reshape(*call.leading, self.model.n_constraints)
        counts = [len(each.rows) for each in resolved_constraints(self.model)]
        return np.repeat(active_constraints, counts, axis=-1).astype(np.float64)

    def _actuated(self, given: Any) -> Array:
        """(nv,) bools: which degrees of freedom are actuated."""
        model = self.model
        if given is None:
            floats = [KINDS[code].name == "floating" for code in model.joint_kind.tolist()]
            actuated = np.ones(model.nv, bool)
            actuated[model.v_source[np.repeat(floats, np.diff([*model.v_start.tolist(), model.nv_tree]))]] = False
            return actuated
        wanted = f"wanted a list of names of joints or of velocities, bools of shape ({model.nv},), or None"
        if strict_types.is_a(given, np.ndarray):
            array = as_array("actuated", given, wanted)
            if array.dtype == bool and array.shape == (model.nv,):
                return array.copy()
        if not strict_types.is_a(given, list, tuple):
            raise ArgumentError(f"actuated: got {brief(given)}; {wanted}")
        actuated = np.zeros(model.nv, bool)
        single = {name: k for k, name in enumerate(model.velocity_names)}
        for name in strict_types.members(given):
            text = strict_types.text_or_none(name)
            if text is not None and text in single:
                actuated[single[text]] = True
                continue
            try:
                actuated[velocities_of(model, model.joint_index(name))] = True
            except ArgumentError as error:
                raise ArgumentError(f"actuated: {error}; names of velocities are allowed, too") from None
        return actuated


@lru_cache(maxsize=64)
def _to_the_world(model: Model) -> tuple[tuple[ResolvedConstraint, ...], tuple[Array, Array, Array, Array]]:
    """Constraints to the world that have a frame: their links, their numbers, and the frames, E (n, 3, 3) and r
    (n, 3, 1)."""
    held = tuple(each for each in resolved_constraints(model) if each.framed and each.to < 0)
    links, numbers = (np.array([getattr(each, name) for each in held], int) for name in ("link", "number"))
    E = np.array([each.X.E for each in held], float).reshape(len(held), 3, 3)
    return held, (links, numbers, E, np.array([each.X.r for each in held], float).reshape(len(held), 3, 1))


def _end_of_rod(rod: ResolvedConstraint, place: Array) -> Array:
    """World end (..., 3) of a rod whose other end is at `place` (..., 3), in the rod's present direction."""
    direction = np.array(rod.X_to.r) - place
    distance = np.linalg.norm(direction, axis=-1, keepdims=True)
    if np.any(distance <= APART * rod.length):
        raise ArgumentError(
            f"constraint {rod.name!r}: both ends of the rod are in one place; wanted another `to_at` or q"
        )
    end: Array = place + direction * (rod.length / distance)
    return end
