"""Smooth positions, velocities and accelerations of noisy logs."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.interpolate import make_interp_spline  # type: ignore[import-untyped]
from scipy.signal import butter, sosfiltfilt  # type: ignore[import-untyped]

from robodyn.api.queries.core import require_model
from robodyn.core.model import Model
from robodyn.internals.arguments import Array, as_array, count, finite_real, real_array, require_finite, within_memory
from robodyn.internals.errors import ArgumentError, NumericalError
from robodyn.internals.messages import brief

_ORDER, _DEGREE = 4, 5
"""Of the filter (twice that, forwards and backwards) and of the spline."""
_FEWEST = 30
_UNEVEN, _ROUNDED = 1e-3, 0.1
"""Of the time step: larger differences are not of rounding. Rounding of large times may be larger, but not by much."""
_STEP = 0.02
"""For differences of configurations, relative to the time step; their error is of its fourth power."""


@within_memory
def differentiate(
    q: ArrayLike, t: ArrayLike | float, cutoff: float | None, *, model: Model | None = None
) -> tuple[Array, Array, Array]:
    """(q, qd, qdd) of a log of positions: filtered without delay, and differentiated twice.

    The filter is Butterworth's of fourth order, forwards and backwards, so that nothing is shifted in time (its gain at
    the cutoff is 1/2). A spline of fifth degree through what it leaves is differentiated. The first and last samples,
    about `1 / cutoff` seconds, are less exact than the others: leave them out. Torques of the same log are filtered in
    the same way by `differentiate(tau, t, cutoff)[0]`. Noise of filtered samples is alike for `1 / (1.8 cutoff)` s,
    since white noise behind this filter has the variance of a band of 0.9 cutoff: take one of so many for `identify`,
    whose covariances count samples as independent.

    Args:
        q: (n, ...) samples one after another, at least 30; with a model (n, nq).
        t: (n,) equally spaced times, s, or the time step.
        cutoff: frequency in Hz from which motion counts as noise, below half of the rate of samples, and with at least
            one period in the log; None: no filter.
        model: for robots with quaternions, of which qd (n, nv) is no derivative of q; without it qd has q's shape.

    Raises:
        ArgumentError: times that are not equally spaced (interpolate first), too few samples, or a cutoff that is not
            between one period a log and half of the rate.
        NumericalError: NaN or infinity in an argument or, by overflow, in a result.
    """
    if model is not None:
        require_model(model)
    wanted = "wanted samples along the first axis"
    given = as_array("q", q, wanted) if model is None else real_array("q", q, (model.nq,), np.float64)
    if given.dtype.kind not in "fiu" or given.ndim < 1 or (model is not None and given.ndim != 2):
        raise ArgumentError(f"q: got {brief(q)} of shape {given.shape}; {wanted}")
    x = np.array(given, np.float64)
    require_finite("q", x, x.ndim - 1)
    n = count("q: number of samples", len(x), _FEWEST, 10**9)
    dt = _time_step(t, n)
    if model is not None:
        x = _continuous(model, x)
    if cutoff is not None:
        frequency = finite_real(cutoff)
        least, most = 1.0 / (n * dt), 0.5 / dt
        if frequency is None or not least <= frequency < most:
            raise ArgumentError(
                f"cutoff: got {brief(cutoff)}; wanted None, or a frequency from {least:g} Hz, one period of the "
                f"log, to {most:g} Hz, half of the rate"
            )
        x = sosfiltfilt(butter(_ORDER, frequency, fs=1.0 / dt, output="sos"), x, axis=0)
    times = dt * np.arange(n)
    spline = make_interp_spline(times, x, k=_DEGREE)
    if model is None:
        return _finite(x, np.asarray(spline(times, 1)), np.asarray(spline(times, 2)))
    smooth = model.normalize(x)
    h = _STEP * dt
    near, far = (
        model.difference(smooth, model.normalize(spline(times + k * h)))
        - model.difference(smooth, model.normalize(spline(times - k * h)))
        for k in (1, 2)
    )
    qd = (8.0 * near - far) / (12.0 * h)
    return _finite(smooth, qd, np.asarray(make_interp_spline(times, qd, k=_DEGREE)(times, 1)))


def _finite(q: Array, qd: Array, qdd: Array) -> tuple[Array, Array, Array]:
    if not all(np.isfinite(each).all() for each in (q, qd, qdd)):
        raise NumericalError("differentiate: results are not finite; wanted positions and times of ordinary sizes")
    return q, qd, qdd


def _time_step(t: ArrayLike | float, n: int) -> float:
    dt = finite_real(t)
    if dt is None:
        times = real_array("t", t, (), np.float64)
        if times.shape != (n,):
            raise ArgumentError(f"t: got shape {times.shape}; wanted a time step, or {n} times")
        require_finite("t", times, 0)
        dt = float(times[-1] - times[0]) / (n - 1)
        rounding = min(_ROUNDED * dt, 4.0 * float(np.spacing(np.abs(times).max())))
        if dt > 0.0 and np.abs(np.diff(times) - dt).max() > max(_UNEVEN * dt, rounding):
            raise ArgumentError(
                f"t: steps of {np.diff(times).min():g} to {np.diff(times).max():g} s; wanted equal steps: "
                "interpolate q at such times first"
            )
    if dt <= 0.0:
        raise ArgumentError(f"t: got a step of {dt:g} s; wanted times that grow")
    return dt


def _continuous(model: Model, q: Array) -> Array:
    """Quaternions of the sign that is nearer to the one before."""
    x = model.normalize(q)
    for start in model.quaternion_starts:
        part = x[:, start : start + 4]
        turned = np.sum(part[1:] * part[:-1], axis=1) < 0.0
        part[1:] *= np.where(np.cumsum(turned) % 2, -1.0, 1.0)[:, None]
    return x
