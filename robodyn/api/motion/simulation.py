"""Simulation of one robot with error control, by SciPy's integrators, with events and callbacks."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from robodyn.api.dynamics import Dynamics
from robodyn.api.motion.equations import Equations
from robodyn.api.motion.robot import dynamics_of
from robodyn.api.motion.unused import warn_of_unused_forces
from robodyn.core.model import Model
from robodyn.internals import strict_types
from robodyn.internals.arguments import Array, count, finite_number, finite_real, one_of, real_array, require_finite
from robodyn.internals.errors import ArgumentError, NumericalError
from robodyn.internals.messages import brief, users_line
from robodyn.internals.records import dataclass

Event = Callable[[float, Array, Array], float]
"""Function of (t, q, qd) whose sign changes at the event. It may have attributes `terminal` and `direction`, as in
SciPy."""
_MOST_TIMES = 1 << 40
_MOST_EVENTS = 10_000
_DRAW = 10.0
"""Rate, 1/s, at which the integrator's state is drawn to the constraints. Errors decay faster than robots move; the
rate is too low to shorten steps."""
_EXPLICIT = ("RK45", "RK23", "DOP853")
_DIFFERENCE = 1e-7
_TRYING = ("Radau", "BDF")
"""Implicit methods whose iterations may try states far from the solution."""
_STIFF = "method='Radau', 'BDF' or 'LSODA'"
_LOOK, _MANY = 1_000, 10_000
"""Number of steps between checks of progress, and before the check for stiff forces."""
_SHORT, _MOST_STEPS = 1e-6, 1e6
"""A simulation makes no progress if steps are shorter (in s) than any robot needs and more than this many remain."""
METHODS = ("RK45", "RK23", "DOP853", "Radau", "BDF", "LSODA")


@dataclass(frozen=True)
class Simulation:
    """The result of a simulation: `t` (K,) in seconds, `q` (K, nq), `qd` (K, nv).

    `events`: the times of each event. `status`: "finished", "event" (a terminal one), "stopped" (by the callback) or
    "interrupted" (by Ctrl-C).
    """

    t: Array
    q: Array
    qd: Array
    events: tuple[Array, ...]
    status: str


def simulate(
    robot: Model | Dynamics,
    q0: ArrayLike,
    qd0: ArrayLike,
    t_end: float,
    tau: ArrayLike | Callable[[float, Array, Array], ArrayLike] | None = None,
    *,
    f_ext: ArrayLike | Callable[[float, Array, Array], ArrayLike] | None = None,
    targets: ArrayLike | None = None,
    active: ArrayLike | None = None,
    t_eval: ArrayLike | None = None,
    events: Sequence[Event] | Event = (),
    callback: Callable[[float, Array, Array], Any] | None = None,
    method: str | None = None,
    rtol: float = 1e-8,
    atol: float = 1e-10,
    max_step: float = np.inf,
) -> Simulation:
    """Simulate one robot from time 0, with steps as long as the tolerances allow.

    Coordinates are integrated as plain numbers. Quaternions are scaled to unit length, and states of a robot with
    constraints are projected onto these, when they are used or returned. The integrator's own state is drawn to the
    constraints.

    Damping and dry friction are those of rollouts; dry friction is -f qd / max(|qd|, 1e-3). With a light joint or near
    rest they are stiff: "Radau", "BDF" and "LSODA" still take long steps, the other methods many short ones. No method
    crosses a jump of forces such as f sign(qd); forces of yours should change within a small range of velocity, too.

    Args:
        robot: a model, or a `Dynamics` in float64 with the desired options (joint forces, for example).
        q0: (nq,) the configuration at time 0, on the constraints (`Model.assemble`).
        qd0: (nv,) the velocity at time 0. Components that violate the constraints are removed, as by an impact.
        t_end: duration in seconds, positive.
        tau: (nv,) generalised forces, or a function of (t, q, qd); None for none.
        f_ext: (n_bodies, 6) external forces as elsewhere, or a function of (t, q, qd).
        targets: (n_constraints, 12) target poses of constraints to the world, as elsewhere; None: constraints without
            a target hold their initial place.
        active: (n_constraints,) 1 or True for constraints that hold, 0 or False for others; or one bool.
        t_eval: times to return states at, ascending between 0 and t_end; None for those of all steps.
        events: functions of (t, q, qd). An attribute `terminal` that is True ends the simulation at the event; a number
            n ends it at the n-th time. `direction` selects rising (positive) or falling (negative) sign changes.
        callback: a function of (t, q, qd), called after each step; the simulation ends if it returns a true value.
        method: one of SciPy's integrators: "RK45", "RK23", "DOP853", "Radau", "BDF", "LSODA". None: "DOP853", or
            "LSODA" with dry friction, which makes the equations stiff.
        rtol: relative tolerance of a step.
        atol: absolute tolerance of a step, in the units of the coordinates.
        max_step: the longest step, s.

    Raises:
        ArgumentError: a bad argument, an initial state off the constraints, or a function that returns something else.
        NumericalError: the integrator gives up or makes no progress, or the state is no longer finite, or no longer on
            the constraints.

    Warns:
        RuntimeWarning: Ctrl-C (the states so far are returned); or an explicit method takes very many steps.
        JointForcesWarning: joints have damping or friction, and `joint_forces` is None (once for each robot).
    """
    dyn = dynamics_of(robot, "simulate", "obeyed", name="robot")
    if dyn.dtype != np.float64:
        raise ArgumentError(
            f"robot: got a Dynamics in {dyn.dtype}; wanted float64, whose digits the tolerances count on"
        )
    end = finite_real(t_end)
    if end is None or end <= 0.0:
        raise ArgumentError(f"t_end: got {brief(t_end)}; wanted a positive finite number of seconds")
    if callback is not None and not callable(callback):
        raise ArgumentError(f"callback: got {brief(callback)}; wanted a function of (t, q, qd)")
    stiff = "friction" in dyn.joint_forces and dyn.model.friction.any()
    chosen = one_of("method", method, METHODS) if method is not None else "LSODA" if stiff else "DOP853"
    run = _Run(dyn, q0, qd0, tau, f_ext, targets, active)
    warn_of_unused_forces(dyn, "simulate")
    return_times = _times(t_eval, end)
    watched = (events,) if callable(events) else strict_types.at_most(events, _MOST_EVENTS)
    if watched is None:
        raise ArgumentError(f"events: got {brief(events)}; wanted functions of (t, q, qd), at most {_MOST_EVENTS}")
    watch = _Watch(run, watched)
    unlimited = strict_types.is_a(max_step, float) and float.__float__(max_step) == np.inf
    longest = np.inf if unlimited else _positive("max_step", max_step)
    tolerances = {"rtol": _positive("rtol", rtol), "atol": _positive("atol", atol), "max_step": longest}
    run.tries = chosen in _TRYING
    status, states = _follow(run, end, return_times, watch, callback, chosen, tolerances)
    t, y = (
        np.array([each[0] for each in states]),
        np.array([each[1] for each in states]).reshape(len(states), run.y0.size),
    )
    q, qd = run.state(y)
    event_times = tuple(np.array(times) for times in watch.times)
    return Simulation(t, q, qd, event_times, status)


class _Run:
    """The equations of motion of y = (q, qd).

    y need not be on the constraints: its rates are those of its projection, plus a term that draws y there.
    `finite`: whether all rates of a step were finite. `asking`: whether a function of the user is running. `tries`:
    whether the method evaluates trial states that it may reject. `force`: message about the user's last force, if it
    was not finite.
    """

    finite, asking, tries, force = True, False, False, ""

    def __init__(
        self, dyn: Dynamics, q0: ArrayLike, qd0: ArrayLike, tau: Any, f_ext: Any, targets: Any, active: Any
    ) -> None:
        model = dyn.model
        self._equations, self._model, self._nq = Equations(dyn, targets, active), model, model.nq
        q = real_array("q0", q0, (model.nq,), np.float64)
        qd = real_array("qd0", qd0, (model.nv,), np.float64)
        for name, array in (("q0", q), ("qd0", qd)):
            if array.ndim != 1:
                raise ArgumentError(
                    f"{name}: got shape {array.shape}; wanted one state; batches are for Dynamics.rollout"
                )
            require_finite(name, array, 1)
        self._tau = tau if tau is not None else np.zeros(model.nv)
        self._f_ext = f_ext
        self._shapes = {name: dyn.argument_shapes[name] for name in ("tau", "f_ext")}
        self.y0 = np.concatenate(self._on_constraints(model.normalize(q), qd))
        self.slope(0.0, self.y0)
        if not self.finite:
            raise NumericalError(f"simulate: the accelerations at the start are not finite{self.because}")

    def _on_constraints(self, q: Array, qd: Array) -> tuple[Array, Array]:
        """The initial state, projected onto the constraints."""
        equations = self._equations
        if not equations.constrained:
            return q, qd
        equations.anchor(q)
        off = equations.off(q)
        if off is not None:
            raise ArgumentError(f"q0: {off}; wanted a state on the constraints, as model.assemble(q0) finds")
        return self._held(q, qd)

    def state(self, y: Array) -> tuple[Array, Array]:
        """q with unit quaternions and qd, projected onto the constraints. They are copies, so that the user's functions
        may overwrite them.

        Raises:
            NumericalError: the projection is not on the constraints.
        """
        return self._held(*self._split(y))

    def _held(self, q: Array, qd: Array) -> tuple[Array, Array]:
        try:
            return self._equations.held(q, qd)
        except NumericalError as error:
            raise NumericalError(f"simulate: {error}; smaller tolerances may help") from None

    def _split(self, y: Array) -> tuple[Array, Array]:
        q, qd = y[..., : self._nq].copy(), y[..., self._nq :].copy()
        return self._model.unit_coordinates(q), qd

    def slope(self, t: float, y: Array) -> Array:
        """The rate dy/dt."""
        q, qd = self._split(y)
        try:
            if not np.isfinite(y).all():
                raise NumericalError(f"simulate: the state is no longer finite at t = {t:.6g} s")
            q, qd = self._equations.projected(q, qd)
            self.asking = True
            tau, f_ext = (self._force(name, t, q, qd) for name in ("tau", "f_ext"))
            self.asking = False
            qdd = self._equations.accelerations(q, qd, tau, f_ext)
        except NumericalError:
            if self.asking or not self.tries:
                raise
            self.finite = False
            return np.full(y.shape, np.nan)  # the method takes a shorter step
        rates = np.empty(self._nq)
        for kind, q_index, v_index in self._model.free_joints:
            rates[q_index] = kind.rate(y[q_index], qd[v_index])
        slope = np.concatenate((rates, qdd))
        if self._equations.constrained:
            slope += _DRAW * (np.concatenate((q, qd)) - y)
        self.finite = self.finite and bool(np.isfinite(slope).all())
        return slope

    def jacobian(self, t: float, y: Array) -> Array:
        """The derivative of the rate with respect to y, by forward differences of fixed size. SciPy's own increases the
        difference until a rate changes; for an angle without influence it becomes so large that sines lose all
        digits."""
        rates = self.slope(t, y)
        jacobian = np.empty((y.size, y.size))
        for k in range(y.size):
            moved = y.copy()
            moved[k] += _DIFFERENCE * max(1.0, abs(y[k]))
            jacobian[:, k] = (self.slope(t, moved) - rates) / (moved[k] - y[k])
        return jacobian

    def resistance_rate(self, y: Array) -> float:
        """The fastest decay rate of velocities by damping and friction, 1/s."""
        return self._equations.resistance_rate(*self._split(y))

    def _force(self, name: str, t: float, q: Array, qd: Array) -> Any:
        """The user's forces at one state, or None for none."""
        force, shape = {"tau": self._tau, "f_ext": self._f_ext}[name], self._shapes[name]
        if force is None:
            return None
        array = real_array(name, force(t, q.copy(), qd.copy()) if callable(force) else force, shape, np.float64)
        if array.shape != shape:
            raise ArgumentError(f"{name}: got shape {array.shape} for one state; wanted {shape}")
        self.force = "" if np.isfinite(array).all() else f"{name} is NaN or infinite at t = {t:.6g} s"
        if self.force and not self.tries:
            raise NumericalError(f"simulate: {self.force}")
        return array

    @property
    def because(self) -> str:
        """End of a message about rates that are not finite: names the user's force, if one is the cause."""
        return f"; {self.force}" if self.force else ""


class _Watch:
    """Detects sign changes of events in a step.

    `times`: the times of each event so far.
    """

    def __init__(self, run: _Run, events: tuple[Event, ...]) -> None:
        for event in events:
            if not callable(event):
                raise ArgumentError(f"events: got {brief(event)}; wanted functions of (t, q, qd)")
        self._run, self._events = run, events
        self._ends_at = [_times_until_the_end(event) for event in events]
        self._directions = [finite_number("events: direction", getattr(event, "direction", 0)) for event in events]
        self.times: list[list[float]] = [[] for _ in events]
        self._values = [self._value(event, 0.0, run.y0) for event in events]

    def _value(self, event: Event, t: float, y: Array) -> float:
        return finite_number("events: what one returns", event(t, *self._run.state(y)))

    def step(self, before: float, t: float, dense: Callable[[float], Array]) -> float | None:
        """Record the events of a step. Returns the time of a terminal event in it, or None."""
        last, events = None, []
        for k, event in enumerate(self._events):
            old, new = self._values[k], self._value(event, t, dense(t))
            self._values[k] = new
            direction = self._directions[k]
            up, down = old < 0.0 <= new, old > 0.0 >= new
            if (up and direction >= 0) or (down and direction <= 0):
                at = self._when(event, before, t, dense)
                events.append((at, k))
                times = self._ends_at[k]
                if 0 < times <= len(self.times[k]) + 1 and (last is None or at < last):
                    last = at
        for at, k in sorted(events):
            if last is None or at <= last:
                self.times[k].append(at)
        return last

    def _when(self, event: Event, before: float, t: float, dense: Callable[[float], Array]) -> float:
        """The time of an event's sign change in a step."""
        from scipy.optimize import brentq  # type: ignore[import-untyped]

        ends = {s: self._value(event, s, dense(s)) for s in (before, t)}

        def value(s: float) -> float:  # cached at the ends: an event may return another value when called again
            return ends[s] if s in ends else self._value(event, s, dense(s))

        # Consecutive steps meet only up to rounding: the sign may change between them.
        if np.sign(ends[before]) == np.sign(ends[t]):
            return before
        return float(brentq(value, before, t, xtol=4e-16 * max(1.0, t)))


def _times_until_the_end(event: Event) -> int:
    """The number of occurrences after which an event ends the simulation, 0 for never."""
    terminal = getattr(event, "terminal", None)
    if terminal is None or isinstance(terminal, bool | np.bool_):
        return int(bool(terminal))
    return count("events: terminal", terminal, 0, _MOST_TIMES)


def _follow(
    run: _Run,
    end: float,
    asked: Array | None,
    watch: _Watch,
    callback: Callable[[float, Array, Array], Any] | None,
    method: str,
    tolerances: dict[str, float],
) -> tuple[str, list[tuple[float, Array]]]:
    """Integrate step by step. Returns the status and the states to return."""
    from scipy import integrate  # type: ignore[import-untyped]

    make, options = getattr(integrate, method), {"jac": run.jacobian} if run.tries else {}
    solver = _guarded(run, method, 0.0, lambda: make(run.slope, 0.0, run.y0, end, **tolerances, **options))
    states = [(0.0, run.y0)] if asked is None or (asked.size and asked[0] == 0.0) else []
    pace = _Pace(run, method, end, tolerances["max_step"])
    try:
        while solver.status == "running":
            message = _guarded(run, method, solver.t, solver.step)
            if solver.t == solver.t_old:  # LSODA, unlike the other methods, would continue for ever
                solver.status, message = "failed", "a step is less than spacing between numbers"
            if solver.status == "failed":
                raise NumericalError(f"simulate: {method} gives up at t = {solver.t:.6g} s: {message}{run.because}")
            dense = solver.dense_output()
            stop = watch.step(solver.t_old, solver.t, dense)
            t = solver.t if stop is None else stop
            run.state(solver.y)  # raises at once if the constraints are lost
            if asked is None:
                states.append((t, solver.y.copy() if stop is None else dense(stop)))
            else:
                states += [(float(s), dense(s)) for s in asked[(asked > solver.t_old) & (asked <= t)]]
            if stop is not None:
                return "event", states
            if callback is not None and callback(t, *run.state(solver.y)):
                return "stopped", states
            pace.step(solver.t, solver.y)
    except KeyboardInterrupt:
        warnings.warn(
            f"simulate: interrupted at t = {solver.t:.6g} s; what was computed is returned",
            RuntimeWarning,
            stacklevel=3,
        )
        return "interrupted", states
    return "finished", states


def _guarded(run: _Run, method: str, t: float, call: Callable[[], Any]) -> Any:
    """Call SciPy. A ValueError due to rates that are not finite, as in matrices of implicit methods, becomes a
    NumericalError. Exceptions of the user's functions pass unchanged."""
    run.finite = True
    try:
        return call()
    except ValueError:  # LinAlgError is one
        if run.finite or run.asking:
            raise
        raise NumericalError(
            f"simulate: {method} gives up at t = {t:.6g} s: rates of the state are not finite{run.because}"
        ) from None


class _Pace:
    """Checks the progress of a simulation every `_LOOK` steps."""

    def __init__(self, run: _Run, method: str, end: float, max_step: float) -> None:
        self._run, self._method, self._end = run, method, end
        self._short = min(_SHORT, 0.5 * max_step)
        self._steps, self._since = 0, 0.0

    def step(self, t: float, y: Array) -> None:
        """Count a step, and check the progress if it is time.

        Raises:
            NumericalError: steps have become too short to reach the end.
        """
        self._steps += 1
        if self._steps % _LOOK:
            return
        step, self._since = (t - self._since) / _LOOK, t
        if step < self._short and self._end - t > _MOST_STEPS * step:
            raise NumericalError(
                f"simulate: {self._method} makes no progress: {_LOOK} steps of {step:.1g} s in the mean have come to "
                f"t = {t:.6g} s. Forces that jump with the velocity do this (let them change within a small one), "
                f"stiff ones (try {_STIFF}), and tolerances finer than accelerations are exact"
            )
        if self._steps == _MANY and self._method in _EXPLICIT and step * self._run.resistance_rate(y) > 1.0:
            warnings.warn(
                f"simulate: {self._method} has taken {_MANY} steps to t = {t:.6g} s, held short by damping or friction "
                f"of a light joint; {_STIFF} takes longer ones",
                RuntimeWarning,
                stacklevel=users_line(),
            )


def _times(given: ArrayLike | None, end: float) -> Array | None:
    if given is None:
        return None
    times = real_array("t_eval", given, (), np.float64)
    if times.ndim != 1 or not ((times >= 0.0) & (times <= end)).all() or (np.diff(times) <= 0.0).any():
        raise ArgumentError(f"t_eval: got {brief(given)}; wanted ascending times from 0 to {end:g}")
    return times


def _positive(name: str, given: Any) -> float:
    number = finite_real(given)
    if number is None or number <= 0.0:
        raise ArgumentError(f"{name}: got {brief(given)}; wanted a positive number")
    return number
