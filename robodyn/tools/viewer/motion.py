"""The motion that a view shows: the states of a rollout, or a single configuration."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from robodyn.api.motion.result import Rollout
from robodyn.bridges.simulators.checks import vector
from robodyn.core.model import Model
from robodyn.internals import strict_types
from robodyn.internals.arguments import Array, as_array, count, finite_number, real_array, require_finite
from robodyn.internals.errors import ArgumentError, NumericalError
from robodyn.internals.records import dataclass

_MOST_FRAMES = 20_000
_LARGEST_FORCE = 1e30
_SOME = 30


@dataclass(frozen=True)
class Motion:
    """Configurations (K, rows, nq) at times (K,), s, and external forces (K or 1, rows or 1, n_bodies, 6).

    `diverged`: (rows,) the step after which a row's states were not finite, -1 if they always were; None for all -1.
    """

    t: Array
    q: Array
    f_ext: Array | None = None
    diverged: Array | None = None

    @property
    def rows(self) -> int:
        """Number of rows of the batch."""
        return int(self.q.shape[1])

    @property
    def duration(self) -> float:
        """From the first time to the last, s."""
        return float(self.t[-1] - self.t[0])

    def at(self, time: float) -> int:
        """Index of the last state at or before a time."""
        return int(np.clip(np.searchsorted(self.t, time, side="right") - 1, 0, len(self.t) - 1))

    def some(self, row: int) -> Array:
        """Some configurations (n, nq) of a row, including the first one."""
        configurations: Array = self.q[np.unique(np.linspace(0, len(self.t) - 1, _SOME).astype(int)), row]
        return configurations

    @property
    def longest_force(self) -> float:
        """The largest magnitude of all forces, N."""
        return 0.0 if self.f_ext is None else float(np.linalg.norm(self.f_ext[..., 3:], axis=-1).max(initial=0.0))

    def forces(self, k: int, row: int) -> Array | None:
        """External forces (n_bodies, 6) at a state, or None."""
        if self.f_ext is None:
            return None
        forces: Array = self.f_ext[min(k, len(self.f_ext) - 1), min(row, self.f_ext.shape[1] - 1)]
        return forces


def motion_of(run: Rollout, model: Model, f_ext: Any) -> Motion:
    """The motion of a rollout.

    Raises:
        ArgumentError: the rollout is of another robot, its arrays are no valid rollout, or forces have a wrong shape.
        NumericalError: a state is not finite.
    """
    t = real_array("rollout.t", _on_host("rollout.t", run.t), (), np.float64)
    q = real_array("rollout.q", _on_host("rollout.q", run.q), (model.nq,), np.float64, what=f"nq of {model.name!r}")
    if t.ndim != 1 or q.ndim < 2 or len(q) != len(t) or not q.size:
        raise ArgumentError(
            f"rollout: got t {t.shape} and q {q.shape}; wanted (K,) and (K, ..., nq), none of them empty"
        )
    require_finite("rollout.t", t, 0)
    if (np.diff(t) < 0.0).any():
        raise ArgumentError("rollout.t: wanted times in their order")
    require_finite("rollout.q", q, 1)
    leading = q.shape[1:-1]
    q = q.reshape(len(t), -1, model.nq)
    diverged = real_array("rollout.diverged", _on_host("rollout.diverged", run.diverged), leading, np.int64).ravel()
    if len(diverged) != q.shape[1]:
        raise ArgumentError(f"rollout.diverged: got {diverged.size} numbers; wanted {q.shape[1]}, one for each row")
    if f_ext is None:
        return Motion(t, q, None, diverged)
    forces = forces_of(f_ext, model)
    if forces.ndim == 2:
        return Motion(t, q, forces[None, None], diverged)
    try:
        forces = np.broadcast_to(forces, (len(t), *leading, model.n_bodies, 6))
    except ValueError:
        wanted = f"({len(t)}, {', '.join(map(str, leading))}{', ' if leading else ''}{model.n_bodies}, 6)"
        raise ArgumentError(f"f_ext: got shape {forces.shape}; wanted {wanted} or what broadcasts to it") from None
    return Motion(t, q, forces.reshape(len(t), -1, model.n_bodies, 6), diverged)


def forces_of(f_ext: Any, model: Model) -> Array:
    """Check external forces (..., n_bodies, 6).

    Raises:
        ArgumentError: wrong shape.
        NumericalError: NaN or infinity, or too large to be drawn.
    """
    forces = real_array("f_ext", f_ext, (model.n_bodies, 6), np.float64)
    require_finite("f_ext", forces, 2)
    if not (np.abs(forces) <= _LARGEST_FORCE).all():
        raise NumericalError(f"f_ext: it has numbers beyond {_LARGEST_FORCE:g}; wanted forces that can be drawn")
    return forces


def one_state(q: Any, f_ext: Any, model: Model) -> tuple[Array, Array | None]:
    """Check a configuration (nq,), neutral if None, and external forces (n_bodies, 6) or None.

    Raises:
        ArgumentError: wrong shape.
        NumericalError: NaN or infinity.
    """
    state: Array = model.neutral() if q is None else vector("q", q, model.nq)
    if f_ext is None:
        return state, None
    forces = forces_of(f_ext, model)
    if forces.ndim != 2:
        raise ArgumentError(f"f_ext: got shape {forces.shape}; wanted ({model.n_bodies}, 6): one robot has one state")
    return state, forces


def frames(motion: Motion, fps: Any, speed: Any) -> tuple[list[int], float]:
    """Indices of the states that a recording shows, and the duration of a frame, s.

    Raises:
        ArgumentError: fps or speed is no positive number, or there would be too many frames.
    """
    rate, pace = above_zero("fps", fps), above_zero("speed", speed)
    wanted = motion.duration / pace * rate
    if not wanted <= _MOST_FRAMES:
        raise ArgumentError(
            f"fps: got {rate:g}, which makes {wanted:.3g} frames; wanted at most {_MOST_FRAMES} of them"
        )
    n = math.ceil(wanted - 1e-9)
    times = np.append(motion.t[0] + np.arange(n) * pace / rate, motion.t[-1])
    # Slightly later, so that a frame whose time equals that of a state up to rounding shows this state.
    return [motion.at(time + 1e-9 * motion.duration) for time in times], 1.0 / rate


def above_zero(name: str, value: Any) -> float:
    """Check a finite positive number.

    Raises:
        ArgumentError: it is no such number.
    """
    number = finite_number(name, value)
    if number <= 0.0:
        raise ArgumentError(f"{name}: got {number:g}; wanted a number above 0")
    return number


def row_of(motion: Motion, row: Any) -> int:
    """Check an index in the flattened batch.

    Raises:
        ArgumentError: there is no such row.
    """
    return count("row", row, 0, motion.rows - 1)


def require_not_diverged(motion: Motion, row: int) -> None:
    """Raise if a row of a rollout diverged: it stands still afterwards, and a page would not tell.

    Raises:
        NumericalError: the row diverged; names one that did not, if there is one.
    """
    if motion.diverged is None or motion.diverged[row] < 0:
        return
    good = np.flatnonzero(motion.diverged < 0)
    other = f"wanted one that did not, such as row={good[0]}" if good.size else "all rows did"
    raise NumericalError(
        f"row: row {row} diverged in step {motion.diverged[row]}, and keeps its last finite state from then on; {other}"
    )


def _on_host(name: str, array: Any) -> Array:
    on_device = not strict_types.is_a(array, np.ndarray) and callable(getattr(array, "get", None))
    return as_array(name, array.get() if on_device else array, "wanted an array")
