"""Identifies inertial parameters, armature and friction of a robot from measured motions and torques."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from robodyn.api.dynamics import Dynamics
from robodyn.api.queries.core import require_model
from robodyn.core.model import Model
from robodyn.internals import strict_types
from robodyn.internals.arguments import (
    Array,
    broadcast_leading,
    finite_real,
    flag,
    real_array,
    require_finite,
    within_memory,
)
from robodyn.internals.errors import ArgumentError, NumericalError
from robodyn.internals.messages import brief, quoted
from robodyn.solve.identification.base import Estimate, estimate
from robodyn.solve.identification.consistent import constrained
from robodyn.solve.identification.prior import guess_of, whitened
from robodyn.solve.identification.result import Identification
from robodyn.solve.identification.rows import Samples, Unknowns, factor, per_velocity
from robodyn.solve.identification.stribeck import find_speeds, improved, intervals

_LEAST_NOISE = 1e-9
"""Of a joint, relative to its torques: data of a simulation may have none."""
_WEIGHED, _SETTLED = 5, 1e-2
"""Solutions whose noise weighs the next one, and a relative change of the noise that ends this."""
_FEW = 1.0
"""Equations of a joint, beyond those that parameters are fitted to, that do not tell its noise."""
_TINY, _HUGE = 1e-30, 1e30
"""Bounds of noise and of the weight of the prior, whose squares are numbers."""
_SAME = 1e-6
"""By how much placements of joints of the prior may differ, m."""


@within_memory
def identify(
    model: Model,
    q: ArrayLike,
    qd: ArrayLike,
    qdd: ArrayLike,
    tau: ArrayLike,
    *,
    friction: bool | str = True,
    armature: bool = True,
    consistent: bool = True,
    prior: Model | None = None,
    prior_weight: float = 1e-2,
    measured: Sequence[str] | Array | None = None,
    slowest: ArrayLike = 0.0,
    noise: ArrayLike | None = None,
    f_ext: ArrayLike | None = None,
    targets: ArrayLike | None = None,
    active: ArrayLike | None = None,
) -> Identification:
    """Inertial parameters, armature and friction of joints, from measured motions and torques.

    Torques are linear in them: tau = Y x (Atkeson, An and Hollerbach 1986). Equations are weighed by the noise of each
    joint, which is estimated from a first solution where it is not given. Only some combinations of parameters can be
    felt, the base parameters; these come with their covariance. All others stay near the prior. Of robots with
    constraints (closed loops, feet) those equations are used in which no constraint force occurs.

    Args:
        model: the robot. Its joints, frames and gravity are taken as they are.
        q, qd, qdd: (..., nq), (..., nv), (..., nv) positions, velocities and accelerations, rad and m. Leading axes
            are samples, in any order. `rd.differentiate` makes them of noisy logs.
        tau: (..., nv) generalised forces of the drives, N m and N; of a floating base the wrench on it: zero in
            flight, and where feet are constraints.
        friction: True for a viscous and a dry coefficient of each joint; "stribeck" for a dry friction that is larger
            at low speed, (f + s exp(-(qd/v)^2)) sign(qd), with s and v of each joint unknown, too; False to take the
            model's damping and friction as known.
        armature: False to take the model's armature as known.
        consistent: True for parameters that bodies can have (a positive definite pseudo-inertia, and coefficients that
            are not negative), the minimiser of a convex problem; False for least squares alone.
        prior: a model of the same tree whose parameters are the best guess; None for `model`. Bodies that are flat or
            without mass are thickened.
        prior_weight: how firm the guess is, in units of the noise's variance, relative to the divergence tr(P^-1 J) -
            log det(P^-1 J) - 4 of each body's pseudo-inertia J from the guess P (Lee, Wensing and Park 2020): at weight
            1 twice the mass, alike in shape, is as improbable as a deviation of 1.6 standard deviations of one torque.
        measured: names of joints or of velocities whose tau was measured, or bools (nv,); None for all. Other torques
            are unknown, and may be NaN.
        slowest: one number or (nv,), rad/s and m/s: torques of joints that are slower are not used. Where a joint turns
            round, filters mix both signs of its dry friction.
        noise: standard deviation of the noise of tau, one number or (nv,), N m and N; None to estimate it, of robots
            with constraints as one share of all torques.
        f_ext: (..., n_bodies, 6) measured external forces, as in `inverse_dynamics`.
        targets, active: of the model's constraints, as in `constrained_forward_dynamics`.

    Raises:
        ArgumentError: shapes or values that are not possible, a robot without joints, not more equations than base
            parameters, or a prior of another tree.
        NumericalError: NaN or infinity in an argument, numbers whose squares overflow, or the convex problem was not
            solved.
    """
    require_model(model)
    if not model.nv:
        raise ArgumentError(f"model: {quoted(model.name)} has no joints that move; wanted some")
    dyn = Dynamics(model, joint_forces=())
    unknowns = Unknowns(dyn, _kinds(friction, flag("armature", armature)))
    lacks = np.zeros(model.nv, bool) if measured is None else ~dyn._actuated(measured, "measured")
    given = {"q": q, "qd": qd, "qdd": qdd, "tau": tau, "f_ext": f_ext, "targets": targets, "active": active}
    samples = _samples(dyn, unknowns, given, lacks, _speeds(slowest, unknowns))
    if not samples.count:
        raise ArgumentError("q: got no samples; wanted more torques than base parameters")
    guess = _prior(model if prior is None else prior, model)
    weight = finite_real(prior_weight)
    if weight is None or not _TINY <= weight <= _HUGE:
        raise ArgumentError(f"prior_weight: got {brief(prior_weight)}; wanted a number from {_TINY:g} to {_HUGE:g}")
    within, spread = flag("consistent", consistent), None
    if noise is not None:
        spread = per_velocity("noise", noise, model.nv, _TINY, _HUGE)
    try:
        with np.errstate(all="ignore"):
            found = _identified(samples, guess, weight, spread, within)
    except (np.linalg.LinAlgError, OverflowError) as error:
        raise NumericalError(f"identify: {error}; wanted motions, torques and noise of ordinary sizes") from error
    finite = (found.values, found.base_values, found.base_interval, found.covariance, found.noise, found.misfit)
    if not all(np.isfinite(each).all() for each in (*finite, found.condition)) or np.isinf(found.torque_error).any():
        raise NumericalError("identify: results are not finite; wanted motions and torques of ordinary sizes")
    return found


def _identified(samples: Samples, guess: Model, weight: float, noise: Array | None, within: bool) -> Identification:
    """From checked arguments."""
    unknowns = samples.unknowns
    typical = np.sqrt(np.mean(samples.tau**2, axis=0))
    typical = np.where(typical > 0.0, typical, typical.max(initial=0.0) or 1.0)
    if "stribeck" in unknowns.kinds:
        find_speeds(samples, typical)
    found, spread = _weighed(samples, noise, typical)
    bounds = found.bounds
    if "stribeck" in unknowns.kinds:
        found = improved(samples, spread)
        bounds = intervals(samples, spread, found)
    x = _solution(samples, found, guess, weight, within)
    if not np.isfinite(x).all():
        raise NumericalError("identify: parameters are not finite; wanted motions and torques of ordinary sizes")
    return _result(samples, found, bounds, spread, x)


def _kinds(friction: Any, armature: bool) -> tuple[str, ...]:
    if strict_types.text_or_none(friction) == "stribeck":
        resistance: tuple[str, ...] = ("damping", "friction", "stribeck", "speed")
    elif strict_types.is_a(friction, bool, np.bool_):
        resistance = ("damping", "friction") if friction else ()
    else:
        raise ArgumentError(f'friction: got {brief(friction)}; wanted True, False or "stribeck"')
    return ("armature",) * armature + resistance


def _speeds(given: Any, unknowns: Unknowns) -> Array:
    """(nv,) speeds from which torques are used."""
    nv = unknowns.model.nv
    array, limits = per_velocity("slowest", given, nv, 0.0), np.zeros(nv)
    limits[unknowns.joints] = array[unknowns.joints]
    return limits


def _samples(dyn: Dynamics, unknowns: Unknowns, given: dict[str, Any], lacks: Array, slowest: Array) -> Samples:
    """Read the measurements, and take from the torques what is known of them."""
    model = dyn.model
    for name in ("targets", "active"):
        if given[name] is not None and not model.constraints:
            raise ArgumentError(f"{name}: {quoted(model.name)} has no constraints; wanted None")
    needed = "q", "qd", "qdd", "tau"
    shapes = {name: dyn.argument_shapes[name] for name in given if given[name] is not None or name in needed}
    arrays = {
        name: real_array(name, given[name], shape, np.float64, flags=name == "active") for name, shape in shapes.items()
    }
    if lacks.any():
        arrays["tau"] = np.where(lacks, 0.0, arrays["tau"])
    for name, array in arrays.items():
        require_finite(name, array, len(shapes[name]))
    leading = broadcast_leading({name: (array, len(shapes[name])) for name, array in arrays.items()})
    count = int(np.prod(leading))
    flat: dict[str, Array | None] = dict.fromkeys(given)
    for name, array in arrays.items():
        flat[name] = np.broadcast_to(array, (*leading, *shapes[name])).reshape(count, *shapes[name])
    q, qd, qdd, tau = (np.asarray(flat[name]) for name in ("q", "qd", "qdd", "tau"))
    known = np.zeros_like(tau)
    if flat["f_ext"] is not None:
        known += dyn.inverse_dynamics(q, qd, qdd, f_ext=flat["f_ext"]) - dyn.inverse_dynamics(q, qd, qdd)
    if "armature" not in unknowns.kinds:
        known += model.armature * qdd
    if "friction" not in unknowns.kinds:
        known += model.damping * qd + model.friction * np.sign(qd)
    hidden = lacks | (np.abs(qd) < slowest)
    tau = np.where(hidden, 0.0, tau - known)
    return Samples(dyn, unknowns, (model.normalize(q), qd, qdd), tau, hidden, (flat["targets"], flat["active"]))


def _prior(prior: Any, model: Model) -> Model:
    wanted = f"wanted a model with the bodies and joints of {model.name!r}"
    if not strict_types.is_a(prior, Model) or prior.body_names != model.body_names or prior.nv != model.nv:
        raise ArgumentError(f"prior: got {brief(prior)}; {wanted}")
    for name in ("parent", "joint_kind", "mimics", "Xtree"):
        if not np.allclose(getattr(prior, name), getattr(model, name), rtol=0.0, atol=_SAME):
            raise ArgumentError(f"prior: {name} of {prior.name!r} is another one; {wanted}")
    found: Model = prior
    return found


def _weighed(samples: Samples, noise: Array | None, typical: Array) -> tuple[Estimate, Array]:
    """Least squares in units of the noise, and the noise (nv,). An unknown one is that of the solution before: of each
    joint, or where rows mix joints the same share of the torques of all."""
    if noise is not None:
        return estimate(*factor(samples, noise)), noise
    spread = typical
    found = estimate(*factor(samples, spread))
    for _ in range(_WEIGHED):
        last, spread = spread, np.maximum(_noise(samples, found, spread), _LEAST_NOISE * typical)
        found = estimate(*factor(samples, spread))
        if np.abs(spread / last - 1.0).max(initial=0.0) < _SETTLED:
            break
    return found, spread


def _noise(samples: Samples, found: Estimate, spread: Array) -> Array:
    """(nv,) noise of the torques of each joint, from what a solution weighed by `spread` leaves."""
    pooled: Array = np.sqrt(found.misfit) * spread
    if samples.mixed:
        return pooled
    x = np.zeros(samples.unknowns.count)
    x[found.base.columns] = found.values
    used = np.sum(~samples.hidden, axis=0)
    free = used - samples.fitted(found, spread)
    own = samples.errors(x) * np.sqrt(used / np.maximum(free, _FEW))
    return np.asarray(np.where(free > _FEW, own, pooled))


def _solution(samples: Samples, found: Estimate, prior: Model, weight: float, consistent: bool) -> Array:
    """All unknowns (p,): least squares, with the prior for what is not felt; speeds stay as they are."""
    bodies, speeds = samples.unknowns.model.n_bodies, samples.speeds
    R, d = found.R, found.d
    if "speed" in samples.unknowns.kinds:
        linear = samples.unknowns.part("speed").start
        R, d = R[:, :linear], d - R[:, linear:] @ speeds
    guess = guess_of(prior, samples)
    start = np.concatenate((guess.inertia.ravel(), guess.coefficients))
    if consistent:
        x = constrained(R, d, guess, weight)
        # The barrier, which ends where rounding does, would hold coefficients without any equation above zero.
        without = ~R.any(axis=0) & (np.arange(start.size) >= guess.inertia.size)
        x[without] = start[without]
    else:
        P = np.zeros((16 * bodies + guess.scale.size, R.shape[1]))
        for k, block in enumerate(whitened(guess.inertia)):
            P[16 * k : 16 * k + 16, 10 * k : 10 * k + 10] = block
        P[16 * bodies :, 10 * bodies :] = np.diag(1.0 / guess.scale)
        A, b = np.vstack((R, np.sqrt(weight) * P)), np.concatenate((d, np.sqrt(weight) * P @ start))
        sizes, free = np.linalg.norm(A, axis=0), np.ones(A.shape[1], bool)
        if "stribeck" in samples.unknowns.kinds:  # where the search found no such effect, s stays zero
            free[samples.unknowns.part("stribeck")] = samples.sizes > 0.0
        x = np.zeros(A.shape[1])
        x[free] = np.linalg.lstsq(A[:, free] / sizes[free], b, rcond=None)[0] / sizes[free]
    return np.concatenate((x, speeds)) if "speed" in samples.unknowns.kinds else x


def _result(samples: Samples, found: Estimate, bounds: Array, spread: Array, x: Array) -> Identification:
    unknowns, base = samples.unknowns, found.base
    model = unknowns.model
    fields: dict[str, Any] = {"inertia": x[: unknowns.inertial].reshape(-1, 10)}
    # Of a joint and those that mimic it, the joint has the sum.
    own = model._own_coordinates[1]
    for kind in set(unknowns.kinds) & {"armature", "damping", "friction"}:
        fields[f"tree_{kind}"] = np.zeros(model.nv_tree)
        fields[f"tree_{kind}"][own] = unknowns.per_velocity(x, kind)
    # The variance of a parameter is finite if its unit vector is a combination of the rows of the base matrix.
    combination = np.linalg.lstsq(base.matrix.T, np.eye(unknowns.count), rcond=None)[0]
    apart = np.abs(base.matrix.T @ combination - np.eye(unknowns.count)).max(axis=0, initial=0.0) < 1e-6
    variance = np.einsum("bp,bc,cp->p", combination, found.covariance, combination)
    felt = np.abs(base.matrix).max(axis=0, initial=0.0) > 0.0
    errors = np.full(model.nv, np.nan) if samples.mixed else samples.errors(x)
    stribeck = None
    if "stribeck" in unknowns.kinds:
        speeds = np.ones(model.nv)
        speeds[unknowns.joints] = x[unknowns.part("speed")]
        stribeck = np.column_stack((unknowns.per_velocity(x, "stribeck"), speeds))
    return Identification(
        model=replace(model, **fields),
        names=unknowns.names,
        values=x,
        standard_deviation=np.where(apart, np.sqrt(variance), np.inf),
        base_names=tuple(unknowns.names[k] for k in base.columns),
        base_values=found.values,
        covariance=found.covariance,
        base_interval=bounds,
        base_matrix=base.matrix,
        unseen=tuple(name for name, there in zip(unknowns.names, felt, strict=True) if not there),
        noise=np.where(samples.hidden.all(axis=0), 0.0, spread),
        misfit=float(np.sqrt(found.misfit)),
        torque_error=errors,
        condition=found.condition,
        samples=samples.count,
        stribeck=stribeck,
    )
