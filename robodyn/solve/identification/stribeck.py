"""The Stribeck effect s exp(-(qd/v)^2) sign(qd) of each joint, whose speed v torques are not linear in; s >= 0.

All linear unknowns are eliminated (variable projection, Golub and Pereyra 1973): what a speed explains is the part of
its column that the others cannot, in units of that column. Few slow samples tell a speed, so that linearised standard
deviations are far too small. Intervals are those of the profile likelihood (Bates and Watts, Nonlinear Regression
Analysis and Its Applications, 1988, chapter 6): all values that some speed explains almost as well as the best does.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from robodyn.api.queries.base_parameters import basis
from robodyn.internals.arguments import Array
from robodyn.internals.records import dataclass
from robodyn.solve.identification.base import CONFIDENCE, Estimate, estimate
from robodyn.solve.identification.rows import Samples, factor

_SLOWEST, _FASTEST = 0.02, 1.0
"""Speeds that are tried, relative to the largest of the joint."""
_GRID, _CLOSE, _WIDTH = 32, 17, 0.12
"""Speeds that are tried over the whole range, and close to the last one: their number, and how far, relative to it."""
_MOST, _FIRST, _LAST = 2_000, 3, 6
"""Samples that are looked at first, and sweeps over these and over all of them."""
_SETTLED = 1e-3
"""A change of all speeds, relative to them, that ends the search."""
_NOTHING = 1e-9
"""The part of a column, relative to its square, that counts as none."""


@dataclass(frozen=True, eq=False)
class _Profile:
    """Of one joint, for (g,) speeds v, all other unknowns being free: what the effect `explains`, in units of the
    noise's variance; and of s and the other coefficients of the joint (u,) their `values` and `variances` (u, g)."""

    v: Array
    explains: Array
    values: Array
    variances: Array


def find_speeds(samples: Samples, noise: Array) -> None:
    """Set `samples.speeds` to those that explain some of the torques best, and `samples.sizes` to what goes with them.
    `noise` (nv,): of the torques, roughly."""
    few, fastest = samples.some(_MOST), _fastest(samples)
    few.speeds = np.where(fastest > 0.0, 0.1 * fastest, 1.0)
    _search(few, noise, _FIRST)
    samples.speeds, samples.sizes = few.speeds, few.sizes


def improved(samples: Samples, noise: Array) -> Estimate:
    """Least squares at the best speeds, which are searched with all samples.

    The best one may be the slowest or the fastest that is tried, and s may be zero. So these are held when all else is
    solved for; elsewhere this changes nothing.
    """
    _search(samples, noise, _LAST)
    found = estimate(*factor(samples, noise))
    columns, values = found.base.columns, found.values.copy()
    known = np.full(samples.unknowns.count, np.nan)
    known[samples.unknowns.part("speed")] = samples.speeds
    known[samples.unknowns.part("stribeck")] = np.where(samples.sizes > 0.0, np.nan, 0.0)
    held = ~np.isnan(known[columns])
    values[held] = known[columns[held]]
    rest = found.d - found.R[:, columns[held]] @ values[held]
    values[~held] = np.linalg.lstsq(found.R[:, columns[~held]], rest, rcond=None)[0]
    return replace(found, values=values)


def intervals(samples: Samples, noise: Array, found: Estimate) -> Array:
    """(b, 2) 95 % confidence intervals of base parameters: of coefficients of joints by the profile likelihood of their
    speeds, of others from the covariance."""
    unknowns, bounds = samples.unknowns, found.bounds
    places = {column: i for i, column in enumerate(found.base.columns.tolist())}
    speed, joints = unknowns.part("speed").start, unknowns.joints.size
    width = np.full(joints, _WIDTH)
    for k in range(joints):
        if speed + k in places:
            width[k] = np.clip(3.0 * np.sqrt(found.covariance[(places[speed + k],) * 2]) / samples.speeds[k], 1e-3, 0.5)
    for k, profile in _profiles(samples, noise, width).items():
        away = profile.explains.max() - profile.explains
        room = np.sqrt(np.maximum(CONFIDENCE - away, 0.0))
        near = away <= CONFIDENCE
        for column, value, variance in zip(_columns(samples, k), profile.values, profile.variances, strict=True):
            if column in places:
                spread = np.sqrt(variance) * room
                bounds[places[column]] = np.min((value - spread)[near]), np.max((value + spread)[near])
        if (size := unknowns.part("stribeck").start + k) in places:
            bounds[places[size], 0] = max(bounds[places[size], 0], 0.0)
        if speed + k in places:
            bounds[places[speed + k]] = _crossings(profile.v, away)
    # Without noise intervals are as small as rounding errors.
    return np.column_stack((np.minimum(bounds[:, 0], found.values), np.maximum(bounds[:, 1], found.values)))


def _crossings(v: Array, away: Array) -> tuple[float, float]:
    """The slowest and the fastest speed whose likelihood is near enough, between those that were tried."""
    near = np.flatnonzero(away <= CONFIDENCE)
    first, last = int(near[0]), int(near[-1])
    root = np.sqrt(away)

    def between(inside: int, outside: int) -> float:
        part = (np.sqrt(CONFIDENCE) - root[inside]) / (root[outside] - root[inside])
        return float(v[inside] + part * (v[outside] - v[inside]))

    return (
        float(v[0]) if first == 0 else between(first, first - 1),
        float(v[-1]) if last == v.size - 1 else between(last, last + 1),
    )


def _fastest(samples: Samples) -> Array:
    """(k,) largest speeds of joints whose torques are used, zero of others."""
    joints = samples.unknowns.joints
    speeds = np.where(samples.hidden, 0.0, np.abs(samples.motion[1]))[:, joints]
    return np.asarray(speeds.max(axis=0, initial=0.0))


def _columns(samples: Samples, k: int) -> list[int]:
    """Of the size of the effect of a joint, and of its other linear coefficients."""
    kinds = [kind for kind in samples.unknowns.kinds if kind != "speed"]
    return [samples.unknowns.part(kind).start + k for kind in sorted(kinds, key="stribeck".__ne__)]


def _search(samples: Samples, noise: Array, sweeps: int) -> None:
    """Each speed is set to the best for the last ones of the other joints, which hardly matter to it."""
    width = np.full(samples.speeds.size, _WIDTH)
    for _ in range(sweeps):
        speeds = samples.speeds.copy()
        for k, profile in _profiles(samples, noise, width).items():
            best = int(np.argmax(profile.explains))
            samples.sizes[k] = profile.values[0, best]
            if samples.sizes[k] > 0.0:
                speeds[k] = profile.v[best]
            if samples.sizes[k] > 0.0 and 0 < best < profile.v.size - 1:
                speeds[k] = _summit(profile.v[best - 1 : best + 2], profile.explains[best - 1 : best + 2])
        change = np.abs(speeds / samples.speeds - 1.0).max(initial=0.0)
        samples.speeds = speeds
        if change < _SETTLED:
            return


def _summit(v: Array, height: Array) -> float:
    """Of the parabola through three points, of which that between is the highest."""
    left, right = v[1] - v[0], v[2] - v[1]
    if min(left, right) <= _SETTLED * v[1]:
        return float(v[1])
    rise, fall = (height[1] - height[0]) / left, (height[2] - height[1]) / right
    return float(v[1] + 0.5 * (rise * right + fall * left) / (rise - fall)) if rise > fall else float(v[1])


def _profiles(samples: Samples, noise: Array, width: Array) -> dict[int, _Profile]:
    """Of all joints that move."""
    unknowns, fastest = samples.unknowns, _fastest(samples)
    moving = np.flatnonzero(fastest > 0.0)
    low, high = _SLOWEST * fastest[:, None], _FASTEST * fastest[:, None]
    grid = fastest[:, None] * np.geomspace(_SLOWEST, _FASTEST, _GRID)
    close = np.clip(samples.speeds[:, None] * (1.0 + width[:, None] * np.linspace(-1.0, 1.0, _CLOSE)), low, high)
    v = np.sort(np.concatenate((grid, close), axis=1), axis=1)
    v = np.where(fastest[:, None] > 0.0, v, 1.0)
    matrix, _ = factor(samples, noise)
    R, d = matrix[:-1, :-1], matrix[:-1, -1]
    products, squares = samples.products(v, noise)
    felt = basis(R, strict=False).columns
    size, speed = (unknowns.part(kind).start for kind in ("stribeck", "speed"))
    found = {}
    for k in moving.tolist():
        others = felt[(felt != size + k) & (felt != speed + k)]
        Q, S = np.linalg.qr(R[:, others])
        # Right-hand sides are those of a linearised effect; this one is not.
        known = Q.T @ (d - R[:, speed + k] * samples.speeds[k])
        with_b = products[-1, k] - products[speed + k, k] * samples.speeds[k]
        U = np.linalg.solve(S.T, products[others, k])
        own = np.maximum(squares[k] - np.sum(U**2, axis=0), _NOTHING * squares[k]) + _NOTHING
        s = np.maximum((with_b - U.T @ known) / own, 0.0)
        asked = np.flatnonzero(np.isin(others, _columns(samples, k)))
        rows = np.linalg.solve(S.T, np.eye(others.size)[:, asked]).T  # of the inverse
        values, variances = {size + k: s}, {size + k: 1.0 / own}
        for column, row in zip(others[asked].tolist(), rows, strict=True):
            values[column] = row @ known - (row @ U) * s
            variances[column] = row @ row + (s > 0.0) * (row @ U) ** 2 / own
        nothing = np.zeros_like(s)
        columns = _columns(samples, k)
        found[k] = _Profile(
            v[k],
            s**2 * own,
            np.array([values.get(column, nothing) for column in columns]),
            np.array([variances.get(column, nothing) for column in columns]),
        )
    return found
