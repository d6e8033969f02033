"""A quadruped stands, shifts its weight, pushes off, flies and lands.

Its feet are four constraints. `constrained_inverse_dynamics` drives the legs while they hold, `active=` releases them,
and `impact` tells what happens when feet touch the ground. Momentum and energy are accounted for all the way.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np

import robodyn as rd

PATH = Path(__file__).resolve().parent.parent / "models" / "quadruped.urdf"
FEET = tuple(f"{end}_{side}_foot" for end in ("front", "hind") for side in ("left", "right"))
LEFT = slice(0, 4, 2)
STANCE, FLIGHT = 4e-3, 2e-3  # s: steps
SHIFT, CROUCH, RISE = 0.04, 0.06, 0.15  # m: to the left; down; from there up to where the feet leave the ground
TAKE_OFF = np.array([0.3, 0.0, 1.5])  # m/s: velocity of the centre of mass
STIFFNESS, DAMPING = 15.0**2, 2.0 * 15.0  # 1/s^2, 1/s: of errors in stance
KP, KD = 20.0, 0.5  # N m/rad, N m s/rad: of legs in the air
FRICTION = 0.6
WEIGHT = np.tile([3.0, 3.0, 1.0], 4)  # forces of feet are to be least along the ground, where friction bears them
TOUCHING = 1e-4  # m: feet as near to the ground as this touch it together

Policy = Callable[[float, np.ndarray, np.ndarray], np.ndarray]
Reference = Callable[[float], np.ndarray]


def through(*points: tuple[float, np.ndarray, np.ndarray, np.ndarray]) -> Reference:
    """Polynomials of fifth degree from point to point (time, place, velocity, acceleration), and rest at the last."""
    k = np.arange(6.0)

    def rows(s: float) -> np.ndarray:
        """(3, 6): of coefficients to place, velocity and acceleration."""
        powers = s**k
        return np.stack([powers, k * np.r_[0.0, powers[:5]], k * (k - 1.0) * np.r_[0.0, 0.0, powers[:4]]])

    pieces = [
        (t0, np.linalg.solve(np.concatenate([rows(0.0), rows(t1 - t0)]), np.array([*start, *end])))
        for (t0, *start), (t1, *end) in pairwise(points)
    ]

    def at(t: float) -> np.ndarray:
        begin, coefficients = next((piece for piece in reversed(pieces) if t >= piece[0]), pieces[0])
        return rows(min(t, points[-1][0]) - begin) @ coefficients

    return at


class Quadruped:
    """A robot's state, its feet, and an account of its energy."""

    def __init__(self) -> None:
        self.model = model = rd.load_urdf(PATH, base="floating")
        self.dyn = rd.Dynamics(model, constraints=[rd.Point(foot) for foot in FEET], joint_forces=())
        self.q, self.qd, self.t = model.neutral(), np.zeros(model.nv), 0.0
        self.q[7:] = np.tile([0.0, 0.8, -1.6], 4)
        self.q[2] -= self.feet(self.q)[0, 2]
        self.level, self.mass = self.q, model.total_mass
        self.active, self.targets = np.ones(4), np.zeros((4, 12))
        self.targets[:, :9] = np.eye(3).ravel()  # forces are in the world's axes
        self.targets[:, 9:] = self.feet(self.q)
        self.start, self.work, self.lost = self.energy(), 0.0, 0.0

    def feet(self, q: np.ndarray) -> np.ndarray:
        """(..., 4, 3): where the feet are."""
        return self.dyn.link_pose(q, links=FEET)[..., :3, 3]

    def energy(self) -> float:
        return float(self.dyn.kinetic_energy(self.q, self.qd) + self.dyn.potential_energy(self.q))

    def sums(self, q: np.ndarray, f: np.ndarray) -> np.ndarray:
        """(..., 6): moment about the centre of mass, and force, of forces or impulses (..., 4, 3) on the feet."""
        arms = self.feet(q) - self.dyn.center_of_mass(q)[..., None, :]
        return np.concatenate([np.cross(arms, f).sum(axis=-2), f.sum(axis=-2)], axis=-1)

    def roll(self, policy: Policy, steps: int, dt: float) -> tuple[rd.Rollout, np.ndarray]:
        """States of some steps from here, and the torques of each step."""
        tau = []

        def noted(t: float, q: np.ndarray, qd: np.ndarray) -> np.ndarray:
            tau.append(policy(self.t + t, q, qd))
            return tau[-1]

        feet = {"targets": self.targets, "active": self.active}
        run = self.dyn.rollout(self.q, self.qd, dt=dt, steps=steps, integrator="rk4", policy=noted, **feet)
        return run, np.array(tau)

    def go(self, run: rd.Rollout, tau: np.ndarray, steps: int) -> None:
        """To the state after some steps. Torques are constant in a step: their work is the product with its dq."""
        self.work += float((tau[:steps] * self.model.difference(run.q[:steps], run.q[1 : steps + 1])).sum())
        self.q, self.qd, self.t = run.q[steps], run.qd[steps], self.t + float(run.t[steps])

    def stance(self, reference: Reference) -> Policy:
        """Torques that move the centre of mass along a reference, keep the trunk level, and the feet in place."""

        def policy(t: float, q: np.ndarray, qd: np.ndarray) -> np.ndarray:
            dyn, targets = self.dyn, self.targets
            place, velocity, acceleration = reference(t)
            h, A = dyn.centroidal_momentum(q, qd)
            error, error_rate = place - dyn.center_of_mass(q), velocity - h[3:] / self.mass
            force = self.mass * (acceleration + STIFFNESS * error + DAMPING * error_rate)
            turn = A[:3, 3:6] @ self.model.difference(q, self.level)[3:6]  # as momentum
            wanted = np.concatenate([STIFFNESS * turn - DAMPING * h[:3], force])
            # Six equations of the momentum, twelve of the feet: eighteen accelerations.
            rows = np.concatenate([A, dyn.constraint_jacobian(q, targets)])
            bias = dyn.centroidal_momentum_rate(q, qd, np.zeros(18)), dyn.constraint_bias(q, qd, targets)
            qdd = np.linalg.solve(rows, np.concatenate([wanted - bias[0], -bias[1]]))
            return dyn.constrained_inverse_dynamics(q, qd, qdd, targets=targets, force_weight=WEIGHT)[0]

        return policy

    def forces(self, run: rd.Rollout, tau: np.ndarray) -> np.ndarray:
        """(steps, 4, 3): of the ground on the feet, at the beginning of each step. With weight they change momentum."""
        q, qd = run.q[:-1], run.qd[:-1]
        qdd, lam = self.dyn.constrained_forward_dynamics(q, qd, tau, self.targets, active=self.active)
        f = lam.reshape(-1, 4, 3)
        wanted = self.sums(q, f)
        wanted[:, 3:] += self.mass * self.model.gravity
        off = np.abs(self.dyn.centroidal_momentum_rate(q, qd, qdd) - wanted).max()
        assert off < 1e-8, f"forces and the rate of momentum differ by {off:.1e}"
        return f

    def touch(self) -> None:
        """Feet at the ground stop, without rebound, and hold from now on."""
        new = (self.feet(self.q)[:, 2] < TOUCHING) & (self.active == 0)
        self.active[new] = 1
        self.targets[new, 9:] = self.feet(self.q)[new]
        qd, impulses = self.dyn.impact(self.q, self.qd, targets=self.targets, active=self.active)
        p = impulses.reshape(4, 3)
        before, after = (self.dyn.centroidal_momentum(self.q, v)[0] for v in (self.qd, qd))
        off = np.abs(after - before - self.sums(self.q, p)).max()
        energy = [float(self.dyn.kinetic_energy(self.q, v)) for v in (self.qd, qd)]
        # Half of what impulses do at the velocity that they end.
        lost = -0.5 * float(impulses @ self.dyn.constraint_residual(self.q, self.qd, self.targets)[1])
        print(
            f"impact   at {self.t:.3f} s of {' and '.join(np.array(FEET)[new])}: {p[new, 2].min():.2f} N s each, "
            f"{lost:.2f} J of {energy[0]:.2f} J lost; feet that stand are pulled by {max(0.0, -p[:, 2].min()):.4f} N s"
        )
        assert off < 1e-9 and abs(energy[0] - energy[1] - lost) < 1e-9, "impulses are not what changed the motion"
        assert p[new, 2].min() > 0.0 and p[:, 2].min() > -0.02 * p[:, 2].max(), "the ground pulls"
        self.qd, self.lost = qd, self.lost + lost


def stand(robot: Quadruped, name: str, until: float, reference: Reference) -> np.ndarray:
    """Follow a reference with all feet on the ground, which only pushes. Returns its forces."""
    run, tau = robot.roll(robot.stance(reference), round((until - robot.t) / STANCE), STANCE)
    f = robot.forces(run, tau)
    robot.go(run, tau, len(tau))
    least, most, slide = f[..., 2].min(), f[..., 2].max(), (np.hypot(f[..., 0], f[..., 1]) / f[..., 2]).max()
    effort = np.abs(tau / robot.model.effort_limit)[:, 6:].max()
    off = np.linalg.norm(robot.dyn.center_of_mass(robot.q) - reference(robot.t)[0])
    print(
        f"{name:<8} to {robot.t:.2f} s: feet carry {least:.1f} to {most:.1f} N, friction up to {slide:.2f}, "
        f"{effort:.0%} of torque limits; the centre of mass ends {1e3 * off:.2f} mm off"
    )
    assert least > 0.0, f"{name}: the ground pulls"
    assert slide < FRICTION and effort < 1.0 and off < 1e-3, f"{name}: not as planned"
    return f


def fly(robot: Quadruped) -> None:
    """Legs on springs, from the moment when all feet leave the ground until all are back."""
    posture = robot.q[7:]

    def springs(t: float, q: np.ndarray, qd: np.ndarray) -> np.ndarray:
        return np.concatenate([np.zeros(6), KP * (posture - q[7:]) - KD * qd[6:]])

    def below(run: rd.Rollout) -> np.ndarray:
        """After which steps a foot that was in the air is below the ground."""
        return ((robot.feet(run.q)[1:, :, 2] < 0.0) & (robot.active == 0)).any(axis=1)

    robot.active[:] = 0
    while not robot.active.all():
        run, tau = robot.roll(springs, round(0.4 / FLIGHT), FLIGHT)
        touched = below(run)
        assert touched.any(), "it does not come down"
        whole = int(touched.argmax())
        if not robot.active.any():
            check_flight(robot, run.q[: whole + 1], run.qd[: whole + 1], run.t[: whole + 1])
        pushes = robot.forces(run, tau)[: whole + 1, robot.active > 0, 2]
        assert pushes.min(initial=np.inf) > 0.0, "the ground pulls a foot that has landed before others"
        robot.go(run, tau, whole)
        # The last step is halved until it ends where the foot touches.
        short, long = 0.0, FLIGHT
        while long - short > 1e-9:
            middle = 0.5 * (short + long)
            short, long = (short, middle) if below(robot.roll(springs, 1, middle)[0]).any() else (middle, long)
        robot.go(*robot.roll(springs, 1, long), 1)
        robot.touch()


def check_flight(robot: Quadruped, q: np.ndarray, qd: np.ndarray, t: np.ndarray) -> None:
    """In the air the centre of mass moves on a parabola, and the angular momentum about it is constant."""
    c, h, g = robot.dyn.center_of_mass(q), robot.dyn.centroidal_momentum(q, qd)[0], robot.model.gravity
    v, t = h[0, 3:] / robot.mass, t[:, None]
    off, turned = np.abs(c - (c[0] + v * t + g * t**2 / 2.0)).max(), np.abs(h[:, :3] - h[0, :3]).max()
    print(
        f"flight   of {t[-1, 0]:.3f} s, {np.ptp(c[:, 2]):.3f} m high (v^2 / 2 g: {-0.5 * v[2] ** 2 / g[2]:.3f} m): "
        f"{off:.0e} m off a parabola, angular momentum changes by {turned:.0e} N m s"
    )
    assert off < 1e-5 and turned < 1e-4, "momentum is not conserved"


def main() -> None:
    robot = Quadruped()
    c0, up, none = robot.dyn.center_of_mass(robot.q), np.array([0.0, 0.0, 1.0]), np.zeros(3)
    print(f"{robot.mass:.1f} kg on {len(FEET)} feet, steps of {1e3 * STANCE:.0f} ms, in the air {1e3 * FLIGHT:.0f} ms")

    side = c0 + np.array([0.0, SHIFT, 0.0])
    f = stand(robot, "shift", 0.8, through((0.0, c0, none, none), (0.6, side, none, none)))
    share, levers = f[-1, LEFT, 2].sum() / f[-1, :, 2].sum(), 0.5 + SHIFT / np.ptp(robot.targets[:, 10])
    print(f"         at rest there the left feet carry {share:.3f} of the weight, by the law of the lever {levers:.3f}")
    assert abs(share - levers) < 1e-3

    low = c0 - CROUCH * up
    leaves = low + RISE * up + 0.5 * 0.2 * TAKE_OFF * [1.0, 1.0, 0.0]
    end = 0.5 * robot.model.gravity
    stand(robot, "push", 1.5, through((0.8, side, none, none), (1.3, low, none, none), (1.5, leaves, TAKE_OFF, end)))
    fly(robot)

    c, v = robot.dyn.center_of_mass(robot.q), robot.dyn.centroidal_momentum(robot.q, robot.qd)[0][3:] / robot.mass
    over = c0 + robot.targets[:, 9:].mean(axis=0) * [1.0, 1.0, 0.0]
    begin = robot.t
    stand(robot, "landing", begin + 0.6, through((begin, c, v, 8.0 * up), (begin + 0.4, over, none, none)))

    left = robot.energy() - robot.start - robot.work + robot.lost
    print(f"energy   legs worked {robot.work:.3f} J, impacts took {robot.lost:.3f} J, {left:.0e} J are unaccounted for")
    print(f"it stands {(over - c0)[0]:.3f} m ahead, no joint faster than {np.abs(robot.qd).max():.0e} rad/s")
    assert abs(left) < 1e-3 and np.abs(robot.qd).max() < 0.05


if __name__ == "__main__":
    main()
