"""Plots trajectories: positions, velocities, generalised forces and energies over time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike

from robodyn.api.dynamics import Dynamics
from robodyn.api.queries.core import require_model
from robodyn.core.joints import KINDS
from robodyn.internals import strict_types
from robodyn.internals.arguments import Array, as_array, integer, one_of, real_array
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import brief, printable
from robodyn.internals.records import dataclass
from robodyn.tools.plots.style import STYLE, label, look, plain, pyplot

if TYPE_CHECKING:
    from robodyn.api.motion.result import Rollout
    from robodyn.core.model import Model

WHAT = ("positions", "velocities", "torques", "energies")
"""Quantities that can be drawn, from top to bottom."""
ENERGIES = ("kinetic", "potential", "total")
MOST_COORDINATES = 64
"""Largest number of curves of a panel that can be distinguished with a legend."""
_MOST_LINES = 2000
_EACH_ROW = 8
"""Up to this many rows of a batch are drawn individually by default; more are drawn as median and band."""
_BAND = (0.05, 0.5, 0.95)
_PANEL_INCHES, _AXES_INCHES, _LEGEND_ROWS = 2.1, 6.0, 10
_LETTER_INCHES, _LINE_INCHES = 0.07, 0.5
"""Widths in legends: of a letter, and of the line before a name."""
_LARGEST = 1e100
"""Larger values, from motions that diverge, are gaps; Matplotlib's axes would overflow."""
_FLAT = 1e-9
"""Smaller relative changes are rounding errors and are shown as a flat line."""
_UNITS = {
    "positions": {"angle": "position, rad", "length": "position, m", "quaternion": "unit quaternion"},
    "velocities": {"angle": "velocity, rad/s", "length": "velocity, m/s"},
    "torques": {"angle": "torque, N m", "length": "force, N"},
}


@dataclass(frozen=True)
class _Panel:
    """Curves of one unit: `values` (K, B, n), n names. `steps`: True if a value holds until the next time."""

    title: str
    names: Sequence[str]
    numbers: Sequence[int]
    values: Array
    steps: bool = False


def trajectory(
    model: Model | Dynamics,
    t: ArrayLike,
    q: ArrayLike,
    qd: ArrayLike,
    *,
    tau: ArrayLike | None = None,
    what: Sequence[str] = WHAT,
    joints: Any = None,
    rows: Any = None,
) -> Any:
    """Plot states over time, with a panel for each quantity and unit, and names of coordinates.

    Args:
        model: the robot, or a `Dynamics` of it.
        t: (K,) times in seconds, ascending.
        q: (K, ..., nq) configurations; further leading axes are a batch. Entries that are NaN, infinite or beyond 1e100
            are gaps.
        qd: (K, ..., nv) velocities.
        tau: generalised forces: (..., nv) constant in time, (K, ..., nv) at the times, or (K - 1, ..., nv) between
            consecutive times. None: the total forces that the motion requires, whatever their source (motors, drives,
            damping, contacts, constraints). They are inverse dynamics of the state at a time and the mean acceleration
            until the next time, under the model's gravity. For rollouts by "semi_implicit_euler" with every state kept
            they are exactly the forces of each step.
        what: one or several of "positions", "velocities", "torques" and "energies". Energies are those of the whole
            robot, J.
        joints: one or several names, or indices in `model.joint_names`. None: all.
        rows: one or several indices in the flattened batch. None: all rows; more than eight are drawn as their median
            and a band from the 5th to the 95th percentile.

    Returns:
        matplotlib.figure.Figure

    Raises:
        ArgumentError: wrong shapes, times that do not ascend, an unknown joint, row or word, or more coordinates than
            colours can distinguish.
        UnavailableError: Matplotlib is not installed (the extra `plot`).
    """
    plt = pyplot("trajectory")
    model = cast(Dynamics, model).model if strict_types.is_a(model, Dynamics) else cast("Model", model)
    require_model(model)
    times = real_array("t", t, (), np.float64)
    if times.ndim != 1 or not times.size or not np.isfinite(times).all() or (np.diff(times) <= 0.0).any():
        raise ArgumentError(f"t: got {brief(t)}; wanted finite times (K,), ascending")
    states = [_rows_of(name, value, len(times), n) for name, value, n in (("q", q, model.nq), ("qd", qd, model.nv))]
    if states[0][1] != states[1][1]:
        raise ArgumentError(f"qd: got {states[1][1]} for its batch; wanted {states[0][1]}, as q")
    (q_rows, leading), (qd_rows, _) = states
    words = _words(what)
    forces = None if tau is None or "torques" not in words else _forces(tau, len(times), leading, model.nv)
    chosen = _chosen_rows(rows, q_rows.shape[1])
    if chosen is not None:
        q_rows, qd_rows = q_rows[:, chosen], qd_rows[:, chosen]
        forces = None if forces is None else forces[:, chosen]
    panels = list(_panels(model, words, _chosen_joints(model, joints), times, q_rows, qd_rows, forces))
    if not panels:
        raise ArgumentError(f"joints: got none that {model.name!r} has coordinates of; it has none")
    for panel in panels:
        if chosen is not None and len(panel.names) * q_rows.shape[1] > _MOST_LINES:
            raise ArgumentError(
                f"rows: got {q_rows.shape[1]}; wanted at most {_MOST_LINES // len(panel.names)} of them"
            )
    return _drawn(plt, model, times, panels, banded=chosen is None and q_rows.shape[1] > _EACH_ROW)


def of_rollout(run: Rollout, model: Model | Dynamics | None, tau: Any, what: Any, joints: Any, rows: Any) -> Any:
    """Plot a rollout (see `Rollout.plot`)."""
    robot = run.model if model is None else model
    if robot is None:
        raise ArgumentError("model: this rollout knows none, as one read from a file; wanted the robot's Model")
    t, q, qd, diverged = (_on_host(name, getattr(run, name)) for name in ("t", "q", "qd", "diverged"))
    # Diverged rows keep their last finite state; their curves end there.
    step = np.rint(t / (t[-1] / run.steps)) if run.steps and t[-1] > 0.0 else np.zeros(len(t))
    after_divergence = (diverged >= 0) & (step.reshape(-1, *(1,) * diverged.ndim) >= diverged)
    q, qd = (np.where(after_divergence[..., None], np.nan, array) for array in (q, qd))
    return trajectory(robot, t, q, qd, tau=tau, what=what, joints=joints, rows=rows)


def _on_host(name: str, array: Any) -> Array:
    return as_array(name, array.get() if callable(getattr(array, "get", None)) else array, "wanted an array")


def _rows_of(name: str, given: Any, times: int, n: int) -> tuple[Array, tuple[int, ...]]:
    """The array reshaped to (K, B, n), and the shape of its batch."""
    array = real_array(name, given, (n,), np.float64)
    if array.ndim < 2 or len(array) != times:
        raise ArgumentError(f"{name}: got shape {array.shape}; wanted ({times}, ..., {n}): times are its first axis")
    if not array.size and n:
        raise ArgumentError(f"{name}: got shape {array.shape}; wanted at least one row")
    return array.reshape(times, -1 if n else int(np.prod(array.shape[1:-1])), n), array.shape[1:-1]


def _forces(tau: Any, times: int, leading: tuple[int, ...], nv: int) -> Array:
    """Forces (K, B, nv) at times, or (K - 1, B, nv) between times."""
    array = real_array("tau", tau, (nv,), np.float64)
    # The number of axes tells whether there is an axis of time; without it forces are constant.
    length = len(array) if array.ndim == len(leading) + 2 else times
    if length in (times, times - 1, 1):
        with_times = (times if length == 1 else length, *leading, nv)
        try:
            return np.broadcast_to(array, with_times).reshape(with_times[0], -1, nv)
        except ValueError:
            pass
    wanted = f"wanted {(*leading, nv)}, {(times, *leading, nv)} or {(times - 1, *leading, nv)}"
    raise ArgumentError(f"tau: got shape {array.shape}; {wanted}, or what broadcasts to it")


def _words(what: Any) -> tuple[str, ...]:
    words = (
        (what,)
        if strict_types.is_a(what, str)
        else strict_types.members(what)
        if strict_types.is_a(what, list, tuple)
        else ()
    )
    if not words:
        raise ArgumentError(f"what: got {brief(what)}; wanted some of {', '.join(map(repr, WHAT))}")
    chosen = {one_of("what", word, WHAT) for word in words}
    return tuple(word for word in WHAT if word in chosen)


def _several(name: str, given: Any) -> tuple[Any, ...]:
    """One object, or several, as a tuple."""
    if not strict_types.is_a(given, np.ndarray, range, list, tuple):
        return (given,)
    members = strict_types.at_most(given, _MOST_LINES)
    if members is None:
        raise ArgumentError(f"{name}: got {brief(given)}; wanted one, or a list of at most {_MOST_LINES}")
    return members


def _chosen_rows(rows: Any, batch: int) -> list[int] | None:
    if rows is None:
        return None
    chosen = []
    for row in _several("rows", rows):
        place = integer(row)
        if place is None or not -batch <= place < batch:
            raise ArgumentError(f"rows: got {brief(row)}; wanted integers below {batch}, the rows of the batch")
        chosen.append(place)
    if not chosen:
        raise ArgumentError("rows: got none; wanted at least one, or None for all")
    return chosen


def _chosen_joints(model: Model, joints: Any) -> list[int]:
    """Indices of the chosen joints; mimic joints are refused."""
    if joints is None:
        return np.flatnonzero(model.mimics < 0).tolist()
    chosen = [model.joint_index(joint) for joint in _several("joints", joints)]
    if not chosen:
        raise ArgumentError("joints: got none; wanted at least one, or None for all")
    for place in chosen:
        if model.mimics[place] >= 0:
            name, leader = (printable(model.joint_names[i]) for i in (place, model.mimics[place]))
            raise ArgumentError(f"joints: {name!r} follows {leader!r}, whose coordinates it has; wanted that one")
    return list(dict.fromkeys(chosen))


def _panels(
    model: Model, words: Sequence[str], joints: list[int], t: Array, q: Array, qd: Array, forces: Array | None
) -> Iterator[_Panel]:
    # check=False: gaps are NaN and stay in their rows.
    dyn = Dynamics(model, check=False, constraints=()) if {"torques", "energies"} & set(words) else None
    for word in words:
        if word == "energies":
            assert dyn is not None
            kinetic, potential = dyn.kinetic_energy(q, qd), dyn.potential_energy(q)
            with np.errstate(over="ignore", invalid="ignore"):
                values = np.stack([kinetic, potential, kinetic + potential], axis=-1)
            yield _Panel("energy, J", ENERGIES, range(len(ENERGIES)), values)
            continue
        values, steps = q if word == "positions" else qd, False
        if word == "torques":
            assert dyn is not None
            values = _taken(dyn, t, q, qd) if forces is None else forces
            steps = len(values) < len(t)
        names = model.coordinate_names if word == "positions" else model.velocity_names
        for unit, numbers in _by_unit(model, joints, "q" if word == "positions" else "v").items():
            if len(numbers) > MOST_COORDINATES:
                raise ArgumentError(
                    f"joints: got {len(numbers)} coordinates for one panel; wanted joints with at most "
                    f"{MOST_COORDINATES} in all, by name"
                )
            yield _Panel(_UNITS[word][unit], [names[k] for k in numbers], numbers, values[..., numbers], steps)


def _taken(dyn: Dynamics, t: Array, q: Array, qd: Array) -> Array:
    """Forces (K - 1, B, nv) that the motion requires between consecutive times."""
    if len(t) < 2:
        raise ArgumentError("what: got torques of one time alone; wanted two times at least, or tau")
    with np.errstate(over="ignore", invalid="ignore"):
        qdd = np.diff(qd, axis=0) / np.diff(t)[:, None, None]
    return np.asarray(dyn.inverse_dynamics(q[:-1], qd[:-1], qdd))


def _by_unit(model: Model, joints: list[int], letter: str) -> dict[str, list[int]]:
    """Indices of joints' coordinates (`letter` "q") or velocities ("v"), grouped into angles, lengths, quaternions."""
    groups: dict[str, list[int]] = {}
    for i in joints:
        kind = KINDS[model.joint_kind[i]]
        start, source = (model.q_start, model.q_source) if letter == "q" else (model.v_start, model.v_source)
        for k in range(kind.nq if letter == "q" else kind.nv):
            turned = letter == "q" and kind.quaternion is not None and 0 <= k - kind.quaternion < 4
            unit = "length" if k in kind.lengths else "quaternion" if turned else "angle"
            groups.setdefault(unit, []).append(int(source[start[i] + k]))
    return groups


def _drawn(plt: Any, model: Model, t: Array, panels: Sequence[_Panel], banded: bool) -> Any:
    with plt.style.context(STYLE):
        names = [[label(name) for name in content.names] for content in panels]
        columns = [-(-len(each) // _LEGEND_ROWS) for each in names]
        widths = [
            n * (_LINE_INCHES + _LETTER_INCHES * max(map(len, each))) for n, each in zip(columns, names, strict=True)
        ]
        size = (_AXES_INCHES + max(widths), len(panels) * _PANEL_INCHES + 0.6)
        figure, axes = plt.subplots(len(panels), 1, figsize=size, sharex=True, squeeze=False, layout="constrained")
        for panel, content, each, n in zip(axes[:, 0], panels, names, columns, strict=True):
            handles = [_curves(panel, t, content, k, banded) for k in range(len(each))]
            panel.set_ylabel(content.title)
            panel.grid(True)
            low, high = panel.get_ylim()
            if high - low < _FLAT * abs(high):
                panel.set_ylim(low - 0.05 * abs(low), high + 0.05 * abs(high))
            plain(*panel.legend(handles, each, loc="center left", bbox_to_anchor=(1.0, 0.5), ncols=n).get_texts())
        axes[-1, 0].set_xlabel("time, s")
        note = ": median, and 5th to 95th percentile" if banded else ""
        plain(axes[0, 0].set_title(f"{label(model.name)}{note}"))
    return figure


def _curves(panel: Any, t: Array, content: _Panel, k: int, banded: bool) -> Any:
    """Draw the curves of one coordinate; returns one of them for the legend."""
    values = content.values[..., k]
    values = np.where(np.abs(values) < _LARGEST, values, np.nan)
    style = look(k) | {"linewidth": 1.2, "marker": "o" if len(t) == 1 else ""}
    if content.steps:  # the last value holds until the end
        values, style = np.vstack([values, values[-1:]]), style | {"drawstyle": "steps-post"}
    if not banded:
        return panel.plot(t, values, alpha=1.0 if values.shape[1] == 1 else 0.6, **style)[0]
    low, middle, high = _quantiles(values)
    step = "post" if content.steps else None
    panel.fill_between(t, low, high, color=style["color"], alpha=0.2, linewidth=0.0, step=step)
    return panel.plot(t, middle, **style)[0]


def _quantiles(values: Array) -> list[Array]:
    """Quantiles over rows (K, B), of those rows that have a value; NaN where none has."""
    ordered = np.sort(values, axis=1)  # NaN comes last
    last = np.isfinite(values).sum(axis=1) - 1
    places = [np.maximum(np.rint(share * last).astype(int), 0)[:, None] for share in _BAND]
    return [np.take_along_axis(ordered, place, axis=1)[:, 0] for place in places]
