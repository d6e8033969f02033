"""Integrators: what a step in time does to a state, on the manifold of configurations.

Each is a text over a `System`, which has accelerations and moves configurations: with arrays of states, or with
expressions when a step is traced into one program. q (+) u is `System.moved`: where the velocity u leads in unit time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

Vector: TypeAlias = Any
"""Something over degrees of freedom that adds and scales."""
Coordinates: TypeAlias = Any
"""A configuration, or a batch of them."""


class System(Protocol):
    """What an integrator asks of a robot under forces that do not change during a step."""

    def acceleration(self, q: Coordinates, qd: Vector) -> Vector:
        """qdd at a state."""

    def acceleration_over(self, q: Coordinates, qd: Vector, dt: Any) -> Vector:
        """qdd that is constant over a time, joint forces being those at the velocity that it leads to."""

    def moved(self, q: Coordinates, u: Vector) -> Coordinates:
        """q (+) u."""

    def bracket(self, a: Vector, b: Vector) -> Vector:
        """The Lie bracket of two velocities, joint by joint."""


Step: TypeAlias = Callable[[System, Coordinates, Vector, Any], tuple[Coordinates, Vector]]
"""(system, q, qd, dt) to the q and qd of the time dt later."""


def euler(system: System, q: Coordinates, qd: Vector, dt: Any) -> tuple[Coordinates, Vector]:
    """The explicit Euler method, of order 1."""
    return system.moved(q, qd * dt), qd + system.acceleration(q, qd) * dt


def semi_implicit_euler(system: System, q: Coordinates, qd: Vector, dt: Any) -> tuple[Coordinates, Vector]:
    """The semi-implicit Euler method, of order 1: configurations move with the new velocities, which keeps oscillations
    from growing (it is symplectic where the mass matrix is constant), and what resists velocities resists the new ones,
    which cannot overshoot however long the step is."""
    qd = qd + system.acceleration_over(q, qd, dt) * dt
    return system.moved(q, qd * dt), qd


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
        """du/dt: the inverse of the exponential's derivative, up to the order that counts."""
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


class _Counting:
    """A robot at rest, without anything but a count of how often it is asked for accelerations."""

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


def evaluations(step: Step) -> int:
    """How many accelerations a step asks for."""
    system = _Counting()
    step(system, 0.0, 0.0, 0.0)
    return system.count


INTEGRATORS: dict[str, Step] = {each.__name__: each for each in (semi_implicit_euler, euler, midpoint, rk4)}
"""By name."""
IMPLICIT = ("semi_implicit_euler",)
"""Those that ask for `System.acceleration_over`."""
STABLE = {"euler": 2.0, "midpoint": 2.0, "rk4": 2.785}
"""By explicit integrator the largest dt k with which steps of v' = -k v do not grow."""
STICTION = 1e-3
"""m/s or rad/s: dry friction grows in proportion to velocities below, and does not change above."""


class Resisted(ABC):
    """A system whose joints resist their velocities: by damping d, a force -d qd, and by dry friction f, which is
    -f qd / max(|qd|, STICTION). Subclasses also have `moved` and `bracket`.

    Over a step from qd to qd + dt qdd both are -r (qd + dt qdd) with r = d + f / max(|qd|, STICTION), so that
    (H + dt diag(r)) qdd = tau - bias - r qd: the dynamics of a robot with more armature, solved as ever.

    `tau`: generalised forces; `coefficients`: "damping" and "friction" as far as they count, and "armature" where the
    dynamics are told it; numbers of every degree of freedom.
    """

    def __init__(self, tau: Vector, coefficients: Mapping[str, Vector]) -> None:
        self._tau, self._coefficients = tau, coefficients

    @abstractmethod
    def solved(self, q: Coordinates, qd: Vector, tau: Vector, armature: Vector | None) -> Vector:
        """qdd under generalised forces; `armature`: instead of the model's, None for that."""

    def acceleration(self, q: Coordinates, qd: Vector) -> Vector:
        """qdd at a state."""
        resistance = self._resistance(qd)
        tau = self._tau if resistance is None else self._tau - resistance * qd
        return self.solved(q, qd, tau, self._coefficients.get("armature"))

    def acceleration_over(self, q: Coordinates, qd: Vector, dt: Any) -> Vector:
        """qdd that is constant over a time."""
        resistance = self._resistance(qd)
        if resistance is None:
            return self.acceleration(q, qd)
        armature = self._coefficients["armature"] + resistance * dt
        return self.solved(q, qd, self._tau - resistance * qd, armature)

    def _resistance(self, qd: Vector) -> Vector | None:
        """r."""
        found = self._coefficients.get("damping")
        if "friction" in self._coefficients:
            speed = abs(qd)
            larger = 0.5 * (speed + STICTION + abs(speed - STICTION))
            friction = self._coefficients["friction"] / larger
            found = friction if found is None else found + friction
        return found
