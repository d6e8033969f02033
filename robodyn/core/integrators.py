"""Time integrators of robot states, on the manifold of configurations.

Each is a function of a `System`, which evaluates accelerations and moves configurations. States are arrays, or
expressions when a step is traced into one program. q (+) u is `System.moved`: the configuration after moving at the
velocity u for unit time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

from robodyn.internals.records import dataclass

Vector: TypeAlias = Any
"""A vector over degrees of freedom that can be added and scaled."""
Coordinates: TypeAlias = Any
"""A configuration, or a batch of them."""


class System(Protocol):
    """The robot as integrators see it, under forces that do not change during a step."""

    def acceleration(self, q: Coordinates, qd: Vector) -> Vector:
        """qdd at a state."""

    def acceleration_over(self, q: Coordinates, qd: Vector, dt: Any) -> Vector:
        """qdd that is constant over a time dt, with joint forces at the velocities that it leads to.

        Integrators in `GYROSCOPIC` take gyroscopic forces at the velocities halfway there.
        """

    def moved(self, q: Coordinates, u: Vector) -> Coordinates:
        """q (+) u."""

    def bracket(self, a: Vector, b: Vector) -> Vector:
        """The Lie bracket of two velocities, joint by joint."""

    def acceleration_along(self, q: Coordinates, qd: Vector, turning: Vector, dt: Any) -> Vector:
        """d/dt qd + `turning` over a time dt, with resistance at the velocities that it leads to."""

    def linear(self, v: Vector) -> Vector:
        """The components of a velocity in m/s; zeros for others."""

    def turned(self, v: Vector, u: Vector) -> Vector:
        """Linear velocities v in the axes of bodies that turn by u, whose linear components are zero."""


Step: TypeAlias = Callable[[System, Coordinates, Vector, Any], tuple[Coordinates, Vector]]
"""(system, q, qd, dt) -> q and qd after the time dt."""


def euler(system: System, q: Coordinates, qd: Vector, dt: Any) -> tuple[Coordinates, Vector]:
    """The explicit Euler method, of order 1."""
    return system.moved(q, qd * dt), qd + system.acceleration(q, qd) * dt


def semi_implicit_euler(system: System, q: Coordinates, qd: Vector, dt: Any) -> tuple[Coordinates, Vector]:
    """The semi-implicit Euler method, of order 1. Configurations move with the new velocities: where the mass matrix is
    constant the method is symplectic, and oscillations of springs do not grow. Damping and friction act at the new
    velocities and cannot overshoot, however long the step is. Gyroscopic forces are explicit: spin gains energy."""
    qd = qd + system.acceleration_over(q, qd, dt) * dt
    return system.moved(q, qd * dt), qd


def implicit(system: System, q: Coordinates, qd: Vector, dt: Any) -> tuple[Coordinates, Vector]:
    """The semi-implicit Euler step with gyroscopic, Coriolis and centrifugal forces at the velocities halfway to the
    new ones, to first order (`robodyn.algorithms.linearly_implicit`): spin neither grows nor is damped. Of order 1."""
    return semi_implicit_euler(system, q, qd, dt)


def midpoint(system: System, q: Coordinates, qd: Vector, dt: Any) -> tuple[Coordinates, Vector]:
    """The explicit midpoint method, of order 2."""
    half = 0.5 * dt
    between = qd + system.acceleration(q, qd) * half
    return system.moved(q, between * dt), qd + system.acceleration(system.moved(q, qd * half), between) * dt


def rk4(system: System, q: Coordinates, qd: Vector, dt: Any) -> tuple[Coordinates, Vector]:
    """The classical Runge-Kutta method of order 4, on Lie groups: Munthe-Kaas, High order Runge-Kutta methods on
    manifolds (1999). Stages are steps u from q in the Lie algebra, whose rates are velocities corrected for u."""
    half = 0.5 * dt

    def rate(u: Vector, velocity: Vector) -> Vector:
        """du/dt: the inverse of the exponential's derivative, applied to `velocity`, up to the required order."""
        first = system.bracket(u, velocity)
        return velocity + 0.5 * first + (1.0 / 12.0) * system.bracket(u, first)

    k1, a1 = qd, system.acceleration(q, qd)
    u2, v2 = k1 * half, qd + a1 * half
    k2, a2 = rate(u2, v2), system.acceleration(system.moved(q, u2), v2)
    u3, v3 = k2 * half, qd + a2 * half
    k3, a3 = rate(u3, v3), system.acceleration(system.moved(q, u3), v3)
    u4, v4 = k3 * dt, qd + a3 * dt
    k4, a4 = rate(u4, v4), system.acceleration(system.moved(q, u4), v4)
    sixth = (1.0 / 6.0) * dt
    u = (k1 + 2.0 * (k2 + k3) + k4) * sixth
    return system.moved(q, u), qd + (a1 + 2.0 * (a2 + a3) + a4) * sixth


def mujoco(system: System, q: Coordinates, qd: Vector, dt: Any) -> tuple[Coordinates, Vector]:
    """MuJoCo's semi-implicit Euler method, of order 1: linear velocities of floating bases change in the world's axes.
    Damping and friction act at the new velocities, drives at the old ones (https://mujoco.readthedocs.io, Computation,
    "Numerical integration": Euler with `eulerdamp`, or implicitfast without actuators). The new velocity is turned into
    the body's new axes."""
    across = system.linear(qd)
    ahead = qd + system.acceleration_along(q, qd, system.bracket(qd - across, across), dt) * dt
    across = system.linear(ahead)
    turn = (ahead - across) * dt
    return system.moved(system.moved(q, across * dt), turn), system.turned(across, turn) + (ahead - across)


class _Counting:
    """A system at rest that counts evaluations of accelerations."""

    count = 0

    def acceleration(self, q: Any, qd: Any) -> float:
        self.count += 1
        return 0.0

    def acceleration_over(self, q: Any, qd: Any, dt: Any) -> float:
        return self.acceleration(q, qd)

    def moved(self, q: Any, u: Any) -> float:
        return 0.0

    def bracket(self, a: Any, b: Any) -> float:
        return 0.0

    def acceleration_along(self, q: Any, qd: Any, turning: Any, dt: Any) -> float:
        return self.acceleration(q, qd)

    def linear(self, v: Any) -> float:
        return 0.0

    def turned(self, v: Any, u: Any) -> float:
        return 0.0


def evaluations(step: Step) -> int:
    """Number of accelerations that a step evaluates."""
    system = _Counting()
    step(system, 0.0, 0.0, 0.0)
    return system.count


INTEGRATORS: dict[str, Step] = {
    each.__name__: each for each in (semi_implicit_euler, implicit, euler, midpoint, rk4, mujoco)
}
"""Integrators by name."""
HOLDS_JOINTS = ("semi_implicit_euler", "implicit")
"""Integrators that call `System.acceleration_over`, which can hold joints at limits and takes drives implicitly."""
IMPLICIT = (*HOLDS_JOINTS, "mujoco")
"""Integrators that take damping and friction at the velocities after the step."""
GYROSCOPIC = ("implicit",)
"""Integrators that treat gyroscopic forces implicitly."""
STABLE = {"euler": 2.0, "midpoint": 2.0, "rk4": 2.785}
"""For each explicit integrator, the largest dt k for which steps of v' = -k v do not grow."""
STICTION = 1e-3
"""Speed (m/s or rad/s) below which dry friction is proportional to velocity; above it is constant."""
HOLDING = 1e5
"""Armature that holds a joint at a limit, as a multiple of the inertia that it moves. More would hide forces from
single precision."""
HOLDS = 2
"""How often a step decides which joints it holds."""
_RETURN = 0.2
"""Share of the distance back to its limit that a joint beyond the limit moves in a step."""
_TINY = 1e-30
_WHOLE = 1.5 * 2.0**23
"""Adding this to a number from -1 to 1 and subtracting it again removes rounding errors: 1 with a rounding error
becomes 1, in both precisions."""


@dataclass(frozen=True)
class Limits:
    """Bounds of some degrees of freedom. `on` (k,): their indices. `bound` (k,): the bounds. `at` (k,): indices in q,
    for bounds of positions."""

    on: Any
    bound: Any
    at: Any = None


class Driven(ABC):
    """A system whose joints are driven towards targets, resist their velocities and have limits.

    Forces are tau, clipped to the effort limits, plus damping -d qd, and dry friction -f qd / max(|qd|, STICTION). With
    targets, kp (q_des (-) q) - kd qd is part of tau. A step goes from qd to v = qd + dt qdd, and q moves with v.
    Damping and friction are -r v with r = d + f / max(|qd|, STICTION), and the drive is kp (q_des (-) q - dt v) - kd v.
    So

        (H + diag(dt (r + kd) + dt^2 kp)) qdd = tau - bias - r qd + kp (q_des (-) q - dt qd) - kd qd,

    the dynamics of a robot with more armature, solved as usual. A drive beyond its effort limit is constant.

    Where v is beyond velocity limits, or leads beyond position limits, a large armature holds the joint at the nearest
    velocity within them, and the dynamics are solved again. Then joints whose holding force has the wrong sign are
    released, others are held, and the dynamics are solved once more. This is a primal-dual active set method
    (Hintermueller, Ito and Kunisch 2002) of two iterations; remaining excess is cut off. A joint that is already beyond
    its position limits returns by a fifth of the distance in every step.

    `given`: "tau", and "armature", "damping", "friction", "kp", "kd" and "q_des" as far as they count. `limits`: by the
    names "effort", "velocity", "lower" and "upper". `moves`: roughly the inertia that each degree of freedom moves.
    """

    def __init__(self, given: Mapping[str, Any], limits: Mapping[str, Limits], moves: Vector | None) -> None:
        self._given, self._limits, self._moves = given, limits, moves

    @abstractmethod
    def solved(self, q: Coordinates, qd: Vector, tau: Vector, armature: Vector | None) -> Vector:
        """qdd under generalised forces. `armature` replaces the model's, unless it is None."""

    @abstractmethod
    def moved(self, q: Coordinates, u: Vector) -> Coordinates:
        """q (+) u."""

    @abstractmethod
    def bracket(self, a: Vector, b: Vector) -> Vector:
        """The Lie bracket of two velocities, joint by joint."""

    @abstractmethod
    def apart(self, q: Coordinates, other: Coordinates) -> Vector:
        """other (-) q."""

    @abstractmethod
    def linear(self, v: Vector) -> Vector:
        """The components of a velocity in m/s; zeros for others."""

    @abstractmethod
    def turned(self, v: Vector, u: Vector) -> Vector:
        """Linear velocities v in axes that turn by u."""

    @abstractmethod
    def spread(self, values: Vector, on: Any) -> Vector:
        """A vector over all degrees of freedom: `values` at the indices `on`, zeros elsewhere."""

    def flat(self, function: Callable[[Vector], Vector], values: Vector) -> Vector:
        """A piecewise constant function, whose values derivatives treat as constants."""
        return function(values)

    def acceleration(self, q: Coordinates, qd: Vector) -> Vector:
        """qdd at a state."""
        return self.solved(q, qd, self._acting(q, qd, 0.0)[0], self._given.get("armature"))

    def acceleration_over(self, q: Coordinates, qd: Vector, dt: Any) -> Vector:
        """qdd that is constant over a time dt."""
        if "armature" not in self._given:
            return self.acceleration(q, qd)
        tau, added = self._acting(q, qd, dt)
        armature = self._given["armature"] + added
        qdd = self.solved(q, qd, tau, armature)
        if self._moves is None:
            return qdd
        wished = qdd
        for _ in range(HOLDS):
            beyond = self._beyond(q, qd + wished * dt, dt)
            held = self.flat(_sign, abs(beyond))
            bound = wished - beyond / dt
            hold = HOLDING * held * self._moves
            qdd = self.solved(q, qd, tau + hold * bound, armature + hold)
            # The acceleration without holding forces: they are the hold's armature times (bound - qdd).
            wished = qdd + HOLDING * held * (qdd - bound)
        return qdd - self._beyond(q, qd + qdd * dt, dt) / dt

    def acceleration_along(self, q: Coordinates, qd: Vector, turning: Vector, dt: Any) -> Vector:
        """d/dt qd + turning over a time dt: armature and damping act along axes that do not turn."""
        tau, armature = self._driven(q, qd, 0.0)[0], self._given["armature"]
        resistance = self._resistance(qd)
        if resistance is not None:
            tau, armature = tau - resistance * qd, armature + resistance * dt
        return self.solved(q, qd, tau - armature * turning, armature) + turning

    def _acting(self, q: Coordinates, qd: Vector, dt: Any) -> tuple[Vector, Any]:
        """Forces on joints a time dt from now at constant velocities, and the armature that stands for their change
        with accelerations."""
        tau, added = self._driven(q, qd, dt)
        resistance = self._resistance(qd)
        return (tau, added) if resistance is None else (tau - resistance * qd, added + resistance * dt)

    def _driven(self, q: Coordinates, qd: Vector, dt: Any) -> tuple[Vector, Any]:
        """The driving part of `_acting`, within effort limits."""
        tau, added, kp, kd = self._given["tau"], 0.0, self._given.get("kp"), self._given.get("kd")
        if kp is not None:
            tau, added = tau + kp * (self.apart(q, self._given["q_des"]) - qd * dt), kp * dt * dt
        if kd is not None:
            tau, added = tau - kd * qd, added + kd * dt
        if "effort" in self._limits:
            on, bound = self._limits["effort"].on, self._limits["effort"].bound
            driving = tau[..., on]
            beyond = self.flat(_sign, _above(abs(driving) - bound))
            free = 1.0 - self.spread(beyond, on)
            tau = tau * free + self.spread(beyond * self.flat(_sign, driving) * bound, on)
            added = added * free
        return tau, added

    def _beyond(self, q: Coordinates, v: Vector, dt: Any) -> Vector:
        """How far velocities exceed what limits allow during a time dt."""
        beyond = v * 0.0
        for name, sign in (("upper", 1.0), ("lower", -1.0)):
            if name in self._limits:
                limit = self._limits[name]
                room = sign * (limit.bound - q[..., limit.at])
                most = (_above(room) - _RETURN * _above(-room)) / dt
                beyond = beyond + self.spread(sign * _above(sign * v[..., limit.on] - most), limit.on)
        if "velocity" in self._limits:
            limit = self._limits["velocity"]
            allowed = (v - beyond)[..., limit.on]
            excess = _above(abs(allowed) - limit.bound)
            beyond = beyond + self.spread(excess * self.flat(_sign, allowed), limit.on)
        return beyond

    def _resistance(self, qd: Vector) -> Vector | None:
        """r of the class, or None without damping and friction."""
        resistance = self._given.get("damping")
        if "friction" in self._given:
            friction = dry_resistance(self._given["friction"], qd)
            resistance = friction if resistance is None else resistance + friction
        return resistance


def dry_resistance(friction: Vector, qd: Vector) -> Vector:
    """f / max(|qd|, STICTION): multiplied by -qd it is dry friction without the jump of f sign(qd)."""
    return friction / (STICTION + _above(abs(qd) - STICTION))


def _above(x: Vector) -> Vector:
    """max(x, 0) without a branch; exactly zero for x <= 0."""
    return 0.5 * (x + abs(x))


def _sign(x: Vector) -> Vector:
    """1, 0 or -1 without a branch; exact for zero, and for sizes from 1e-20 on."""
    return (x / (abs(x) + _TINY) + _WHOLE) - _WHOLE
