"""One robot through time with error control: SciPy's integrators, events and callbacks."""

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
"""(t, q, qd) to a number whose sign changes at the event. `terminal` and `direction` may be set on it, as in SciPy."""
_MOST_TIMES = 1 << 40
_MOST_EVENTS = 10_000
_DRAW = 10.0
"""1/s: how fast what the integrator follows is drawn to the constraints. Its errors decay faster than robots move, and
no step is shortened by it."""
_EXPLICIT = ("RK45", "RK23", "DOP853")
_DIFFERENCE = 1e-7
_TRYING = ("Radau", "BDF")
"""Implicit methods, whose iterations may try states that are far away."""
_STIFF = "method='Radau', 'BDF' or 'LSODA'"
_LOOK, _MANY = 1_000, 10_000
"""Steps after which it is looked at how fast a simulation goes on, and whether its forces are stiff."""
_SHORT, _MOST_STEPS = 1e-6, 1e6
"""Steps, s, that no robot needs, and so many of them that they would take minutes."""
METHODS = ("RK45", "RK23", "DOP853", "Radau", "BDF", "LSODA")


@dataclass(frozen=True)
class Simulation:
    """What a simulation came to: `t` (K,) in seconds, `q` (K, nq), `qd` (K, nv).

    `events`: for each event the times at which it happened; `status`: "finished", "event" (a terminal one), "stopped"
    (by the callback) or "interrupted" (by Ctrl-C).
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
    """Follow one robot from time 0, with steps as long as the tolerances allow.

    Coordinates are integrated as numbers, and quaternions scaled to unit length where they are used and returned: their
    length has no influence on where they point. Likewise states of a robot with constraints are projected onto them
    where they are used and returned, and what the integrator follows is drawn there.

    Damping and dry friction are those of rollouts, the latter -f qd / max(|qd|, 1e-3): "Radau", "BDF" and "LSODA" take
    long steps where they are stiff, with a light joint or at rest, and the other methods many short ones. Forces of
    yours that jump with the velocity, as f sign(qd) does, lead no method across the jump: let them change within a
    small velocity, too.

    Args:
        robot: a model, or a `Dynamics` in float64 with the options wanted (joint forces, say).
        q0: (nq,) the configuration at time 0, on the constraints (`Model.assemble`).
        qd0: (nv,) the velocity at time 0. What of it leaves the constraints is taken from it, as by an impact.
        t_end: seconds, positive.
        tau: (nv,) generalised forces, or a function of (t, q, qd); None for none.
        f_ext: (n_bodies, 6) external forces as elsewhere, or a function of (t, q, qd).
        targets: (n_constraints, 12) places that constraints to the world hold, as elsewhere; None: where constraints
            without a place are at the start.
        active: (n_constraints,) 1 or True for constraints that hold, 0 or False for others; or one bool.
        t_eval: times to return states at, ascending between 0 and t_end; None for those of all steps.
        events: functions of (t, q, qd); one with an attribute `terminal` that is true ends the simulation, that is a
            number when it has happened so often; `direction` picks rising (positive) or falling (negative) changes of
            sign.
        callback: a function of (t, q, qd), called after each step; the simulation ends where it returns a true value.
        method: one of SciPy's integrators: "RK45", "RK23", "DOP853", "Radau", "BDF", "LSODA". None: "DOP853", or
            "LSODA" where dry friction counts, which makes the equations stiff.
        rtol: relative tolerance of a step.
        atol: absolute tolerance of a step, in the units of the coordinates.
        max_step: the longest step, s.

    Raises:
        ArgumentError: a bad argument, a start that is off the constraints, or a function that returns something else.
        NumericalError: the integrator gives up or makes no progress, or the state is no longer finite, or no longer on
            the constraints.

    Warns:
        RuntimeWarning: Ctrl-C, and what was computed is returned; or an explicit method takes very many steps.
        JointForcesWarning: joints have damping or friction that was not asked for (once for each robot).
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
    asked = _times(t_eval, end)
    watched = (events,) if callable(events) else strict_types.at_most(events, _MOST_EVENTS)
    if watched is None:
        raise ArgumentError(f"events: got {brief(events)}; wanted functions of (t, q, qd), at most {_MOST_EVENTS}")
    watch = _Watch(run, watched)
    unlimited = strict_types.is_a(max_step, float) and float.__float__(max_step) == np.inf
    longest = np.inf if unlimited else _positive("max_step", max_step)
    tolerances = {"rtol": _positive("rtol", rtol), "atol": _positive("atol", atol), "max_step": longest}
    run.tries = chosen in _TRYING
    status, kept = _follow(run, end, asked, watch, callback, chosen, tolerances)
    t, y = np.array([each[0] for each in kept]), np.array([each[1] for each in kept]).reshape(len(kept), run.y0.size)
    q, qd = run.state(y)
    found = tuple(np.array(times) for times in watch.times)
    return Simulation(t, q, qd, found, status)


class _Run:
    """The equations of motion of y = (q, qd).

    y need not be on the constraints: rates are those of the state that it is projected to, and draw it there.
    `finite`: whether all rates of a step were; `asking`: whether a function of the user's may be under way; `tries`:
    whether the method asks for rates of states that it may not keep; `force`: which of the user's forces was not finite
    when it was last asked for, in words.
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
        self.y0 = np.concatenate(self._on_constraints(model.normalized(q), qd))
        self.slope(0.0, self.y0)
        if not self.finite:
            raise NumericalError(f"simulate: the accelerations at the start are not finite{self.because}")

    def _on_constraints(self, q: Array, qd: Array) -> tuple[Array, Array]:
        """The state at the start."""
        equations = self._equations
        if not equations.constrained:
            return q, qd
        equations.anchor(q)
        off = equations.off(q)
        if off is not None:
            raise ArgumentError(f"q0: {off}; wanted a state on the constraints, as model.assemble(q0) finds")
        return self._held(q, qd)

    def state(self, y: Array) -> tuple[Array, Array]:
        """q with unit quaternions and qd, on the constraints: copies, which the user's functions may write to.

        Raises:
            NumericalError: there is no such state near.
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
        """dy/dt."""
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
        """The derivative of the slope by y, from differences over a small part of a unit. SciPy's own lengthens them
        until a rate answers, for an angle that has no part in it to where sines have no digits."""
        rates = self.slope(t, y)
        found = np.empty((y.size, y.size))
        for k in range(y.size):
            moved = y.copy()
            moved[k] += _DIFFERENCE * max(1.0, abs(y[k]))
            found[:, k] = (self.slope(t, moved) - rates) / (moved[k] - y[k])
        return found

    def resistance_rate(self, y: Array) -> float:
        """1/s: how fast damping and friction take the fastest velocity away."""
        return self._equations.resistance_rate(*self._split(y))

    def _force(self, name: str, t: float, q: Array, qd: Array) -> Any:
        """Forces of one state, or None for none."""
        given, shape = {"tau": self._tau, "f_ext": self._f_ext}[name], self._shapes[name]
        if given is None:
            return None
        array = real_array(name, given(t, q.copy(), qd.copy()) if callable(given) else given, shape, np.float64)
        if array.shape != shape:
            raise ArgumentError(f"{name}: got shape {array.shape} for one state; wanted {shape}")
        self.force = "" if np.isfinite(array).all() else f"{name} is NaN or infinite at t = {t:.6g} s"
        if self.force and not self.tries:
            raise NumericalError(f"simulate: {self.force}")
        return array

    @property
    def because(self) -> str:
        """The end of a message about rates that are not finite."""
        return f"; {self.force}" if self.force else ""


class _Watch:
    """Events: whether their sign changed in a step, and when.

    `times`: of each event so far.
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
        """Look at a step; the time of a terminal event in it, or None."""
        last, found = None, []
        for k, event in enumerate(self._events):
            old, new = self._values[k], self._value(event, t, dense(t))
            self._values[k] = new
            direction = self._directions[k]
            up, down = old < 0.0 <= new, old > 0.0 >= new
            if (up and direction >= 0) or (down and direction <= 0):
                at = self._when(event, before, t, dense)
                found.append((at, k))
                times = self._ends_at[k]
                if 0 < times <= len(self.times[k]) + 1 and (last is None or at < last):
                    last = at
        for at, k in sorted(found):
            if last is None or at <= last:
                self.times[k].append(at)
        return last

    def _when(self, event: Event, before: float, t: float, dense: Callable[[float], Array]) -> float:
        """The time in a step at which an event's sign changes."""
        from scipy.optimize import brentq  # type: ignore[import-untyped]

        ends = {s: self._value(event, s, dense(s)) for s in (before, t)}

        def value(s: float) -> float:  # of an end what it was: events may return something else when asked again
            return ends[s] if s in ends else self._value(event, s, dense(s))

        # Two steps meet up to rounding: the change may lie between the end of the one and the start of the other.
        if np.sign(ends[before]) == np.sign(ends[t]):
            return before
        return float(brentq(value, before, t, xtol=4e-16 * max(1.0, t)))


def _times_until_the_end(event: Event) -> int:
    """How often an event happens until it ends the simulation, 0 where it does not."""
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
    """Step by step: how it ended, and the states to return."""
    from scipy import integrate  # type: ignore[import-untyped]

    make, more = getattr(integrate, method), {"jac": run.jacobian} if run.tries else {}
    solver = _guarded(run, method, 0.0, lambda: make(run.slope, 0.0, run.y0, end, **tolerances, **more))
    kept = [(0.0, run.y0)] if asked is None or (asked.size and asked[0] == 0.0) else []
    pace = _Pace(run, method, end, tolerances["max_step"])
    try:
        while solver.status == "running":
            message = _guarded(run, method, solver.t, solver.step)
            if solver.t == solver.t_old:  # LSODA alone goes on like this for ever
                solver.status, message = "failed", "a step is less than spacing between numbers"
            if solver.status == "failed":
                raise NumericalError(f"simulate: {method} gives up at t = {solver.t:.6g} s: {message}{run.because}")
            dense = solver.dense_output()
            stop = watch.step(solver.t_old, solver.t, dense)
            t = solver.t if stop is None else stop
            run.state(solver.y)  # or it would be noticed only at the end that constraints are lost
            if asked is None:
                kept.append((t, solver.y.copy() if stop is None else dense(stop)))
            else:
                kept += [(float(s), dense(s)) for s in asked[(asked > solver.t_old) & (asked <= t)]]
            if stop is not None:
                return "event", kept
            if callback is not None and callback(t, *run.state(solver.y)):
                return "stopped", kept
            pace.step(solver.t, solver.y)
    except KeyboardInterrupt:
        warnings.warn(
            f"simulate: interrupted at t = {solver.t:.6g} s; what was computed is returned",
            RuntimeWarning,
            stacklevel=3,
        )
        return "interrupted", kept
    return "finished", kept


def _guarded(run: _Run, method: str, t: float, call: Callable[[], Any]) -> Any:
    """What a call of SciPy returns; a NumericalError where it meets rates that are not finite, as implicit methods do
    in their matrices. What the user's functions raise stays as it is."""
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
    """Looks at how fast a simulation goes on, every so many steps."""

    def __init__(self, run: _Run, method: str, end: float, max_step: float) -> None:
        self._run, self._method, self._end = run, method, end
        self._short = min(_SHORT, 0.5 * max_step)
        self._steps, self._since = 0, 0.0

    def step(self, t: float, y: Array) -> None:
        """After a step.

        Raises:
            NumericalError: steps have become so short that the end will not be reached.
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
