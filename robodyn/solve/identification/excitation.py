"""Motions that tell the parameters of a robot: Fourier series within limits."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from robodyn.api.dynamics import Dynamics
from robodyn.api.queries.base_parameters import basis
from robodyn.api.queries.core import require_model
from robodyn.core.model import Model, generator_of
from robodyn.core.tables import units
from robodyn.internals.arguments import Array, count, finite_real, flag, real_array, require_finite, within_memory
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import brief
from robodyn.internals.records import dataclass
from robodyn.solve.identification.rows import Samples, Unknowns, per_velocity

_POPULATION, _SAMPLES = 32, 120
"""Motions that are tried at a time, and samples by which they are judged."""
_REFERENCE = 2000
"""Random states that say how large the effect of each parameter is."""
_FREE_TURN, _FREE_WAY = np.pi, 0.5
"""Range of joints without limits: rad and m to both sides."""
_SHORTEST, _LONGEST, _LEAST = 1e-2, 1e4, 1e-6
"""Bounds of periods, s, and of limits and their share: others leave no digits of inertial or of gravity forces."""
_FINE = 1000
"""Samples by which torques of the result are checked."""
_SINGULAR = 1e-14
"""Eigenvalues of a Gram matrix, relative to the largest, that rounding may have made."""
_CHANGED = 0.3
"""Share of the numbers that a round changes."""


@dataclass(frozen=True, eq=False)
class ExcitingTrajectory:
    """A periodic motion: q_j(t) = middle_j + sum over k of a_jk cos(k w t) + b_jk sin(k w t), w = 2 pi / duration.

    Velocity and acceleration are zero at t = 0 and at t = duration. `middle` (nv,); `cosine`, `sine` (nv, harmonics);
    `condition`: condition number of the regressor of base parameters, each in units of its effect in random states.
    """

    duration: float
    middle: Array
    cosine: Array
    sine: Array
    condition: float

    @within_memory
    def __call__(self, t: ArrayLike) -> tuple[Array, Array, Array]:
        """(q, qd, qdd), each (..., nv), at times t (...), s.

        Raises:
            ArgumentError, NumericalError: no numbers, NaN or infinity.
        """
        times = real_array("t", t, (), np.float64)
        require_finite("t", times, 0)
        return _motion(times, self.duration, self.middle, self.cosine, self.sine)


@within_memory
def exciting_trajectory(
    model: Model,
    *,
    duration: float = 10.0,
    harmonics: int = 5,
    velocity_limit: ArrayLike | None = None,
    acceleration_limit: ArrayLike | None = None,
    share: float = 0.9,
    friction: bool = True,
    armature: bool = True,
    rounds: int = 60,
    rng: object = 0,
) -> ExcitingTrajectory:
    """A motion whose torques tell the parameters of a robot well (Swevers et al. 1997).

    The condition number of the regressor of base parameters is made small by an evolution strategy. The motion starts
    and ends at rest, and keeps the limits of positions, velocities and torques (`model.lower`, `upper`,
    `velocity_limit`, `effort_limit`). Joints whose limits leave no room stay where they are. It does not look at
    collisions.

    Args:
        model: a robot with a fixed base whose joints have one coordinate each, without constraints.
        duration: the period, s, from 0.01 to 10,000.
        harmonics: number of frequencies, at least 2.
        velocity_limit: (nv,) or one number, rad/s and m/s; None for the model's, and where it has none for whatever
            `acceleration_limit` and positions allow.
        acceleration_limit: (nv,) or one number, rad/s^2 and m/s^2; None: none.
        share: the part of all limits that is used, at most 1.
        friction, armature: whether these are to be identified as well.
        rounds: of the search, with 32 motions each.
        rng: a seed or a `numpy.random.Generator`.

    Raises:
        ArgumentError: a robot or a number that is not possible, no joint that may move, or no motion that was found is
            within the limits of torques; names the joint.
    """
    require_model(model)
    _require_plain(model)
    period, part = finite_real(duration), finite_real(share)
    if period is None or not _SHORTEST <= period <= _LONGEST:
        raise ArgumentError(f"duration: got {brief(duration)}; wanted {_SHORTEST:g} to {_LONGEST:g} s")
    if part is None or not _LEAST <= part <= 1.0:
        raise ArgumentError(f"share: got {brief(share)}; wanted a number from {_LEAST:g} to 1")
    search = _Search(
        model,
        period,
        count("harmonics", harmonics, 2, 100),
        part,
        (
            _limit("velocity_limit", velocity_limit, model.velocity_limit),
            _limit("acceleration_limit", acceleration_limit, np.full(model.nv, np.inf)),
        ),
        ("armature",) * flag("armature", armature) + ("damping", "friction") * flag("friction", friction),
        generator_of(rng),
    )
    return search.best(count("rounds", rounds, 1, 10**6))


def _require_plain(model: Model) -> None:
    if model.constraints:
        raise ArgumentError(f"model: {model.name!r} has constraints, which a series for each joint does not keep")
    widths = np.diff([*model.v_start.tolist(), model.nv_tree]).tolist()
    odd = [name for name, width in zip(model.joint_names, widths, strict=True) if width > 1]
    if odd or not model.nv:
        raise ArgumentError(f"model: wanted joints of one coordinate on a fixed base; got {odd or 'no joint'}")


def _limit(name: str, given: ArrayLike | None, usual: Array) -> Array:
    return np.asarray(usual, float) if given is None else per_velocity(name, given, usual.size, _LEAST)


def _motion(t: Array, period: float, middle: Array, cosine: Array, sine: Array) -> tuple[Array, Array, Array]:
    """Of series (..., nv, harmonics) at times (...): leading axes broadcast."""
    rate = 2.0 * np.pi / period * np.arange(1, cosine.shape[-1] + 1)
    angle = t[..., None, None] * rate
    c, s = np.cos(angle), np.sin(angle)
    q = middle + np.sum(cosine * c + sine * s, axis=-1)
    qd = np.sum(rate * (sine * c - cosine * s), axis=-1)
    return q, qd, -np.sum(rate**2 * (cosine * c + sine * s), axis=-1)


class _Search:
    """An evolution strategy over shapes, sizes and middles of series, each a standard normal number."""

    def __init__(
        self,
        model: Model,
        period: float,
        harmonics: int,
        share: float,
        limits: tuple[Array, Array],
        kinds: tuple[str, ...],
        rng: np.random.Generator,
    ) -> None:
        self.model, self.period, self.harmonics, self.share, self.rng = model, period, harmonics, share, rng
        self.velocity, self.acceleration = limits
        free = np.array([_FREE_TURN if unit == "rad" else _FREE_WAY for unit in units(model, "q")])
        bounded = np.isfinite(model.lower), np.isfinite(model.upper)
        low = np.where(bounded[0], model.lower, np.where(bounded[1], model.upper - 2.0 * free, -free))
        high = np.where(bounded[1], model.upper, np.where(bounded[0], model.lower + 2.0 * free, free))
        self.centre, self.half = 0.5 * (low + high), 0.5 * share * (high - low)
        if not ((self.half > 0.0) & (self.velocity > 0.0)).any():
            raise ArgumentError(
                f"model: limits of all joints of {model.name!r} leave no room; wanted one that may move"
            )
        self.dyn = Dynamics(model, joint_forces=(), constraints=())
        self.unknowns = Unknowns(self.dyn, kinds)
        reference = self._regressor(*self._random_states())
        self.base = basis(reference)
        self.sizes = np.linalg.norm(reference[:, self.base.columns], axis=0)
        self.numbers = model.nv * (2 * harmonics + 2)

    def _random_states(self) -> tuple[Array, Array, Array]:
        model = self.model
        q = self.centre + self.half * self.rng.uniform(-1.0, 1.0, (_REFERENCE, model.nv))
        rate = 2.0 * np.pi / self.period * self.harmonics
        qd, qdd = self.rng.uniform(-1.0, 1.0, (2, _REFERENCE, model.nv)) * self.half
        return q, 0.5 * rate * qd, 0.25 * rate**2 * qdd

    def _regressor(self, q: Array, qd: Array, qdd: Array) -> Array:
        """(samples nv, columns)."""
        none = np.zeros(self.model.nv, bool)
        rows = Samples(self.dyn, self.unknowns, (q, qd, qdd), np.zeros_like(qd), none, (None, None))
        return rows.regressor(slice(None)).reshape(-1, self.unknowns.count)

    def series(self, x: Array) -> tuple[Array, Array, Array]:
        """(middle, cosine, sine) of numbers (m, numbers), within the limits of positions, velocities, accelerations."""
        nv, harmonics = self.model.nv, self.harmonics
        shapes = x[:, : 2 * nv * harmonics].reshape(-1, 2, nv, harmonics)
        size, place = np.swapaxes(x[:, 2 * nv * harmonics :].reshape(-1, 2, nv), 0, 1)
        k = np.arange(1, harmonics + 1)
        # At rest at t = 0: the sums of k b_k and of k^2 a_k are zero.
        sine = shapes[:, 0] - k * (shapes[:, 0] @ k)[..., None] / (k @ k)
        cosine = shapes[:, 1] - k**2 * (shapes[:, 1] @ k**2)[..., None] / (k**2 @ k**2)
        t = np.linspace(0.0, self.period, _SAMPLES, endpoint=False)[:, None]
        q, qd, qdd = (np.abs(each).max(axis=0) for each in _motion(t, self.period, np.zeros(nv), cosine, sine))
        most = np.minimum(self.half / q, self.share * np.minimum(self.velocity / qd, self.acceleration / qdd))
        most = 0.97 * most / (1.0 + np.exp(-2.0 - size))  # extremes lie between samples
        cosine, sine = cosine * most[..., None], sine * most[..., None]
        return self.centre + np.tanh(place) * np.maximum(self.half - most * q, 0.0), cosine, sine

    def judged(self, x: Array) -> Array:
        """(m,) condition numbers; where torques are beyond their limits, much larger."""
        middle, cosine, sine = self.series(x)
        t = np.linspace(0.0, self.period, _SAMPLES, endpoint=False)[:, None]
        q, qd, qdd = (
            np.swapaxes(each, 0, 1).reshape(-1, self.model.nv) for each in _motion(t, self.period, middle, cosine, sine)
        )
        Y = self._regressor(q, qd, qdd).reshape(len(x), -1, self.unknowns.count)
        Y = Y[:, :, self.base.columns] / self.sizes
        sizes = np.linalg.eigvalsh(np.swapaxes(Y, -1, -2) @ Y)
        condition = np.sqrt(sizes[:, -1] / np.maximum(sizes[:, 0], _SINGULAR * sizes[:, -1]))
        beyond = self._efforts(q, qd, qdd).reshape(len(x), -1, self.model.nv).max(axis=(1, 2), initial=0.0)
        return np.asarray(condition * np.where(beyond > 1.0, 1e3 * beyond, 1.0))

    def _efforts(self, q: Array, qd: Array, qdd: Array) -> Array:
        """(n, nv) torques in parts of their limits. Those that are only rounding count as none."""
        tau = np.abs(np.asarray(self.dyn.inverse_dynamics(q, qd, qdd)))
        limit = self.share * self.model.effort_limit
        parts = np.where(tau > 1e-9 * tau.max(initial=0.0), np.inf, 0.0)
        np.divide(tau, limit, out=parts, where=limit > 0.0)
        return parts

    def best(self, rounds: int) -> ExcitingTrajectory:
        """The best of random motions, then of changes of it, whose size follows their success."""
        x = self.rng.standard_normal((_POPULATION, self.numbers))
        found = self.judged(x)
        at, value, size = x[np.argmin(found)], float(found.min()), 0.5
        for _ in range(rounds):
            change = self.rng.standard_normal((_POPULATION, self.numbers))
            x = at + size * change * (self.rng.random(change.shape) < _CHANGED)
            found = self.judged(x)
            if found.min() < value:
                at, value, size = x[np.argmin(found)], float(found.min()), min(1.0, 1.3 * size)
            else:
                size *= 0.8
        middle, cosine, sine = (each[0] for each in self.series(at[None]))
        t = np.linspace(0.0, self.period, _FINE)
        most = self.share * self._efforts(*_motion(t, self.period, middle, cosine, sine)).max(axis=0)
        if (most > 1.0).any():
            worst = int(np.argmax(most))
            raise ArgumentError(
                f"model: no motion was found within the limits of torques: {self.model.velocity_names[worst]!r} takes "
                f"{most[worst]:.3g} times effort_limit {self.model.effort_limit[worst]:g}; wanted another tree_effort, "
                "a lower acceleration_limit, a longer duration or more rounds"
            )
        return ExcitingTrajectory(self.period, middle, cosine, sine, value)
