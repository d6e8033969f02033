"""Queries about constraints (closed loops, feet, couplings): residuals, forces, and constrained dynamics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from robodyn.algorithms.constraints.inverse import is_forbidden, is_missing, refuse, shared_forces
from robodyn.algorithms.constraints.targets import targets_of, to_the_world
from robodyn.algorithms.constraints.wrenches import add_wrenches
from robodyn.api.queries.call import Call
from robodyn.api.queries.core import Core
from robodyn.api.queries.fast_path import query
from robodyn.core.constraints.kinds import Rod
from robodyn.core.constraints.resolved import resolved_constraints, row_names, row_sizes, velocities_of
from robodyn.core.joints import KINDS
from robodyn.internals import strict_types
from robodyn.internals.arguments import Array, as_array, flag, real_array
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import brief

_WEIGHTS = 0.1, 10.0
"""Of constraint forces. In single precision larger ones could not be told from rows that depend on others."""


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
        row_velocity: ArrayLike | None = None,
        row_acceleration: ArrayLike | None = None,
        active: ArrayLike | None = None,
        f_ext: ArrayLike | None = None,
        inertia: ArrayLike | None = None,
        V0: ArrayLike | None = None,
        dV0: ArrayLike | None = None,
        axes: str = "to",
        out: tuple[Array, Array] | None = None,
    ) -> tuple[Array, Array]:
        """(qdd, lambda): accelerations (..., nv) and constraint forces (..., m) under generalised forces tau.

        They solve H qdd + bias = tau + J' lambda with J qdd + gamma = 0, or with the right-hand side of Baumgarte's
        terms. If rows depend on each other, lambda has the least norm, with row k in units of 1/sqrt(A_kk) of
        `delassus`. Accelerations are always unique.

        `row_acceleration` (..., m): accelerations that rows are given, m/s^2 and rad/s^2: J qdd + gamma equals them. A
        foothold that accelerates, or a joint whose `Lock` is driven. None: zero. `row_velocity` (..., m): the velocity
        that rows are given, which Baumgarte's velocity terms hold; without such terms it has no effect.

        `axes`: "to", or "world" for lambda in world axes: the rows of points, and of welds that hold three directions
        or six. Welds that hold fewer are refused; forces of other kinds have no axes.

        Raises:
            SingularError: H is singular at every state, and constraints do not hold what has no mass; names the body,
                or the rows of `inertia`.
        """
        return cast(tuple[Array, Array], self._ask("constrained_forward_dynamics", locals()))

    @query
    def constrained_forward_dynamics_gradient(
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
        out: tuple[Array, Array, Array, Array, Array, Array] | None = None,
    ) -> tuple[Array, Array, Array, Array, Array, Array]:
        """(dqdd/dq, dqdd/dqd, dqdd/dtau), each (..., nv, nv), and (dlambda/dq, dlambda/dqd, dlambda/dtau), each
        (..., m, nv), of `constrained_forward_dynamics`: column j is the derivative with respect to coordinate j.

        Derivatives with respect to q are on the tangent space (`model.integrate`). External forces and targets stay
        where they are in the world.

        Where rows depend on each other, dlambda/dq lacks the change of the directions in which lambda is the shortest
        one: J' dlambda is right, its part that exerts no force is not. For feet on several points dlambda/dq is off by
        up to half of its largest entry. Where such rows contradict each other, derivatives by q are not to be used.

        Raises:
            SingularError: H is singular at every state, and constraints do not hold what has no mass; names the body,
                or the rows of `inertia`.
        """
        return cast(
            tuple[Array, Array, Array, Array, Array, Array],
            self._ask("constrained_forward_dynamics_gradient", locals()),
        )

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
    def constraint_bias(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        targets: ArrayLike | None = None,
        *,
        row_velocity: ArrayLike | None = None,
        row_acceleration: ArrayLike | None = None,
        active: ArrayLike | None = None,
        V0: ArrayLike | None = None,
        dV0: ArrayLike | None = None,
        out: Array | None = None,
    ) -> Array:
        """r (..., m), m/s^2 and rad/s^2: accelerations obey the constraints if J qdd + r = 0.

        r is the acceleration of rows at qdd = 0, with Baumgarte's terms, less `row_acceleration`, as of
        `constrained_forward_dynamics`. A controller that solves a quadratic program wants J and r. Rows that are off
        have zeros; their rows of `constraint_jacobian` do not count.
        """
        return cast(Array, self._ask("constraint_bias", locals()))

    @query
    def delassus(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        tau: ArrayLike,
        targets: ArrayLike | None = None,
        *,
        row_velocity: ArrayLike | None = None,
        row_acceleration: ArrayLike | None = None,
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
        them. v_free includes Baumgarte's terms and is relative to `row_acceleration`, which like `row_velocity` is as
        in `constrained_forward_dynamics`: rows that hold have A lambda + v_free = 0. A does not include the proximal
        term; inactive rows have 1 on its diagonal.

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
        row_restitution: ArrayLike | None = None,
        row_velocity: ArrayLike | None = None,
        active: ArrayLike | None = None,
        inertia: ArrayLike | None = None,
        V0: ArrayLike | None = None,
        axes: str = "to",
        out: tuple[Array, Array] | None = None,
    ) -> tuple[Array, Array]:
        """(qd after, impulse): velocities (..., nv) after an impact that closes all constraints, and impulses (..., m).

        `restitution` (...): coefficient of each state: all rows rebound with -restitution times their velocity before
        the impact. None: 0, a fully inelastic impact. `row_restitution` (..., m): instead, a coefficient of each row.

        `row_velocity` (..., m): the velocity of what rows hit, or catch, along the rows, m/s and rad/s: a moving floor.
        Rows then have this velocity after an inelastic impact, and rebound from it otherwise: with velocities v of
        rows, phidot before and phidot+ after, phidot+ = v - e (phidot - v). None: zero.

        `axes`: as of `constrained_forward_dynamics`.

        Raises:
            ArgumentError: both restitutions are given.
            SingularError: H is singular at every state, and constraints do not hold what has no mass; names the body,
                or the rows of `inertia`.
        """
        return cast(tuple[Array, Array], self._ask("impact", locals()))

    @query
    def impact_gradient(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        restitution: ArrayLike | None = None,
        targets: ArrayLike | None = None,
        *,
        active: ArrayLike | None = None,
        inertia: ArrayLike | None = None,
        V0: ArrayLike | None = None,
        out: tuple[Array, Array, Array, Array] | None = None,
    ) -> tuple[Array, Array, Array, Array]:
        """Derivatives of velocities after an impact by q and qd, each (..., nv, nv), then of impulses by q and qd, each
        (..., m, nv): column j is the derivative with respect to coordinate j.

        Arguments are those of `impact`. Derivatives with respect to q are on the tangent space (`model.integrate`).
        Where rows depend on each other, those of impulses by q lack the same part as in
        `constrained_forward_dynamics_gradient`. Impulses are proportional to 1 + restitution.

        Raises:
            SingularError: as of `constrained_forward_dynamics`.
        """
        return cast(tuple[Array, Array, Array, Array], self._ask("impact_gradient", locals()))

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
            SingularError: H is singular at every state, and constraints do not hold what has no mass; names the body,
                or the rows of `inertia`.
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
        the rod's length from the link, in the direction of its `to_at`. A wheel's plane is moved along its normal to
        the wheel.

        Raises:
            ArgumentError: both ends of a rod coincide, so that its direction is unknown; names it.
        """
        poses: Array = np.asarray(cast(Any, self).forward_kinematics(q))
        targets = np.ascontiguousarray(targets_of(self.model, poses, np, lambda array: array.astype(self.dtype)))
        held, (links, *_) = to_the_world(self.model)
        for link, rod in zip(links.tolist(), held, strict=True):
            if rod.kind is Rod and np.any(np.isnan(targets[..., rod.number, 9]) & np.isfinite(poses[..., link, 0, 3])):
                raise ArgumentError(
                    f"constraint {rod.name!r}: both ends of the rod are in one place; wanted another `to_at` or q"
                )
        return targets

    def constrained_inverse_dynamics(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        qdd: ArrayLike,
        actuated: Sequence[str] | Array | None = None,
        targets: ArrayLike | None = None,
        *,
        row_velocity: ArrayLike | None = None,
        row_acceleration: ArrayLike | None = None,
        active: ArrayLike | None = None,
        f_ext: ArrayLike | None = None,
        inertia: ArrayLike | None = None,
        V0: ArrayLike | None = None,
        dV0: ArrayLike | None = None,
        force_weight: ArrayLike | None = None,
        residual: bool = False,
    ) -> tuple[Array, ...]:
        """(tau, lambda): the least generalised forces (..., nv) of the actuated joints that give accelerations qdd, and
        constraint forces (..., m). They solve H qdd + bias = tau + J' lambda with tau zero at other joints.

        tau has the smallest sum of squares. If lambda is not unique, it has the least weighted norm: forces of distance
        rows are weighted by the robot's reach, those of a coupling by the norm of its coefficients.

        `force_weight` (m,), numbers from 0.1 to 10: lambda has the least norm instead, each row weighted by its number
        besides, and tau follows. Feet whose horizontal forces have larger weights stay within friction, where the
        least tau may press them apart.

        `actuated`: names of joints or of single degrees of freedom (`model.velocity_names`), or bools (nv,). None: all
        joints but floating bases. `row_velocity`, `row_acceleration`: as of `constrained_forward_dynamics`.

        Accelerations that the constraints forbid, or the actuated joints cannot produce, raise where values are
        checked, and give NaN elsewhere. With `residual=True` they do neither, and two further results say what is
        wrong. `missing` (..., nv): generalised forces that joints without drives would have to supply; the sum of their
        squares is least. `forbidden` (..., nv): qdd less the nearest accelerations, in the metric of the mass matrix,
        that the constraints allow. Both are zero, up to rounding, where the motion is possible.

        Raises:
            NumericalError: (where checked) the constraints do not allow the accelerations, or the actuated joints
                cannot produce them.
            SingularError: as of `constrained_forward_dynamics`.
        """
        options = {"f_ext": f_ext, "inertia": inertia, "V0": V0, "dV0": dV0}
        drives, told = self._actuated(actuated), flag("residual", residual)
        required = self._ask("inverse_dynamics", {"q": q, "qd": qd, "qdd": qdd, **options})
        # Under these forces constrained accelerations are qdd where the constraints allow it, and the nearest ones in
        # the metric of the mass matrix elsewhere.
        given = {"q": q, "qd": qd, "tau": required, "targets": targets, **options}
        given |= {"row_velocity": row_velocity, "row_acceleration": row_acceleration, "active": active}
        wanted = np.asarray(qdd, np.float64)
        forbidden = wanted - self._ask("constrained_forward_dynamics", given)[0]
        required = np.asarray(required, np.float64)
        J = np.asarray(self._ask("constraint_jacobian", {"q": q, "targets": targets}), np.float64)
        if active is not None:
            J = J * self._active_rows(q, active)[..., None]
        sizes, least_lam = row_sizes(self.model, resolved_constraints(self.model)), force_weight is not None
        if least_lam:
            sizes = sizes * self._force_weight(force_weight)
        tau, lam, missing = shared_forces(required, J, sizes, drives, self.dtype, least_lam=least_lam)
        if not told:
            forbids = is_forbidden(wanted, forbidden, self.dtype)
            lacks = is_missing(required, tau, missing, self.dtype)
            if self.check if self.check is not None else max(tau.ndim, forbidden.ndim) == 1:
                refuse(forbids, lacks)
            impossible = forbids | lacks
            tau, lam = (np.where(impossible[..., None], np.nan, each) for each in (tau, lam))
        results = (tau, lam, missing, forbidden) if told else (tau, lam)
        return tuple(each.astype(self.dtype) for each in results)

    def _force_weight(self, given: Any) -> Array:
        """(m,): a positive weight for each row."""
        weight = real_array("force_weight", given, (self.model.n_rows,), np.float64, what="a number for each row")
        least, most = _WEIGHTS
        if weight.ndim > 1 or not ((weight >= least) & (weight <= most)).all():
            wanted = f"wanted {self.model.n_rows} numbers from {least:g} to {most:g}, for all states"
            raise ArgumentError(f"force_weight: got {brief(given)}; {wanted}")
        return weight

    def _active_rows(self, q: ArrayLike, active: ArrayLike) -> Array:
        """(..., m): 1 for rows of active constraints, 0 for others."""
        call = Call(self, {"q": q, "active": active})
        active_constraints = (call.inputs["active"] > 0).reshape(*call.leading, self.model.n_constraints)
        counts = [len(each.rows) for each in resolved_constraints(self.model)]
        return np.repeat(active_constraints, counts, axis=-1).astype(np.float64)

    def _actuated(self, given: Any, argument: str = "actuated") -> Array:
        """(nv,) bools: which degrees of freedom are actuated. `argument`: its name, for messages."""
        model = self.model
        if given is None:
            floats = np.array([KINDS[code].name == "floating" for code in model.joint_kind.tolist()], bool)
            actuated = np.ones(model.nv, bool)
            actuated[model.v_source[np.repeat(floats, np.diff([*model.v_start.tolist(), model.nv_tree]))]] = False
            return actuated
        wanted = f"wanted a list of names of joints or of velocities, bools of shape ({model.nv},), or None"
        if strict_types.is_a(given, np.ndarray):
            array = as_array(argument, given, wanted)
            if array.dtype == bool and array.shape == (model.nv,):
                return array.copy()
        if not strict_types.is_a(given, list, tuple):
            raise ArgumentError(f"{argument}: got {brief(given)}; {wanted}")
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
                raise ArgumentError(f"{argument}: {error}; names of velocities are allowed, too") from None
        return actuated
