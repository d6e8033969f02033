"""A quadruped in MuJoCo moves its trunk on feet that stay where they are: inverse dynamics consistent with contacts."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import robodyn as rd

try:
    import mujoco
except ImportError:
    print("MuJoCo is not installed (pip install '.[mujoco]'): nothing to simulate with")
    raise SystemExit(0) from None

from robodyn.simulators.mujoco import Bridge

PATH = Path(__file__).resolve().parent.parent / "models" / "quadruped.urdf"
FEET = tuple(f"{end}_{side}_foot" for end in ("front", "hind") for side in ("left", "right"))
RADIUS = 0.0175
STEP, DURATION, SETTLED = 1e-3, 3.0, 0.2
STIFFNESS, DAMPING = 20.0**2, 2.0 * 20.0
LEG = np.array([0.0, 0.8, -1.6])


def world_with_a_floor() -> mujoco.MjModel:
    """The robot of the file, floating, with round feet on a floor."""
    spec = mujoco.MjSpec.from_file(str(PATH))
    spec.compiler.fusestatic = False
    spec.option.timestep = STEP
    spec.option.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
    spec.option.impratio = 100.0  # friction nearly as hard as the floor: feet that roll, and do not creep
    spec.body("trunk").add_freejoint()
    sphere, plane = mujoco.mjtGeom.mjGEOM_SPHERE, mujoco.mjtGeom.mjGEOM_PLANE
    spec.worldbody.add_geom(type=plane, size=[5.0, 5.0, 0.1], contype=1, conaffinity=1)
    for foot in FEET:
        spec.body(foot).add_geom(type=sphere, size=[RADIUS, 0.0, 0.0], mass=0.0, contype=2, conaffinity=1)
    model = spec.compile()
    model.geom_contype[:], model.geom_conaffinity[:] = 1, 1
    # Dry friction in MuJoCo is a constraint that holds a joint at rest: nothing that one can compensate exactly.
    model.dof_frictionloss[:] = 0.0
    return model


def trunk_motion(t: float) -> tuple[np.ndarray, ...]:
    """Where the trunk is to be from its start, how it is to be turned, and both rates, twice: (position, rotation
    vector), (velocity, ...), (acceleration, ...), each (6,) with the rotation first."""
    amplitude = np.array([0.0, 0.12, 0.0, 0.03, 0.02, 0.03])
    rate = 2.0 * np.pi * np.array([0.0, 0.5, 0.0, 0.8, 0.6, 1.0])
    # 1 - cos starts at rest.
    return (
        amplitude * (1.0 - np.cos(rate * t)),
        amplitude * rate * np.sin(rate * t),
        amplitude * rate**2 * np.cos(rate * t),
    )


def pitched(angle: float) -> np.ndarray:
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[c, 0.0, s], [0.0, 1.0, 0.0], [-s, 0.0, c]])


def turned_by(R: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The small rotation vector, in world axes, that turns R into another attitude."""
    D = wanted @ R.T
    return 0.5 * np.array([D[2, 1] - D[1, 2], D[0, 2] - D[2, 0], D[1, 0] - D[0, 1]])


def at_contacts(J: np.ndarray) -> np.ndarray:
    """(12, nv) rates of the points where round feet touch the floor, of Jacobians (4, 6, nv) of their centres or of
    those Jacobians' rates: the point is RADIUS below, whichever way the foot is turned."""
    down = np.array([0.0, 0.0, -RADIUS])
    return (J[:, 3:] + np.cross(J[:, :3], down[None, :, None], axis=1)).reshape(12, -1)


class Controller:
    """Torques that accelerate the trunk as wanted, and feet not at all."""

    def __init__(self, dyn: rd.Dynamics, start: np.ndarray) -> None:
        self.dyn, self.start = dyn, start
        self.forces = np.zeros((4, 3))

    def wanted(self, t: float, q: np.ndarray, qd: np.ndarray) -> np.ndarray:
        """The trunk's acceleration: what is planned, and what closes errors as a critically damped spring does."""
        T, V = self.dyn.link_pose(q, "trunk"), self.dyn.link_velocity(q, qd, "trunk")
        place, rate, acceleration = trunk_motion(t)
        turn = turned_by(T[:3, :3], pitched(place[1]))
        error = np.concatenate((turn, self.start + place[3:] - T[:3, 3]))
        return acceleration + STIFFNESS * error + DAMPING * (rate - V)

    def __call__(self, t: float, q: np.ndarray, qd: np.ndarray) -> np.ndarray:
        dyn = self.dyn
        # Six equations of the trunk, twelve of the feet, eighteen accelerations: J qdd + Jdot qd = a.
        trunk, feet = dyn.jacobian(q, "trunk"), at_contacts(dyn.jacobian(q, links=FEET))
        trunk_rate = dyn.jacobian_derivative(q, qd, "trunk")
        feet_rate = at_contacts(dyn.jacobian_derivative(q, qd, links=FEET))
        a = np.concatenate((self.wanted(t, q, qd) - trunk_rate @ qd, -DAMPING * (feet @ qd) - feet_rate @ qd))
        qdd = np.linalg.solve(np.concatenate((trunk, feet)), a)
        # H qdd + bias = S' tau + J' f. No motor drives the trunk: its six rows are for the forces of the floor alone.
        # Of all that do, those with the least tangential part, which friction has to bear.
        needed = dyn.mass_matrix(q) @ qdd + dyn.bias_force(q, qd)
        weight = np.tile([0.3, 0.3, 1.0], 4)
        f = weight * np.linalg.lstsq(feet[:, :6].T * weight, needed[:6], rcond=None)[0]
        self.forces = f.reshape(4, 3)
        tau = needed - feet.T @ f
        assert np.abs(tau[:6]).max() < 1e-8, "the trunk drives itself"
        tau[:6] = 0.0
        return tau


class Springs:
    """For comparison: joints follow the same motion, as kinematics has it, on springs that know nothing of dynamics."""

    def __init__(self, dyn: rd.Dynamics, q0: np.ndarray) -> None:
        self.dyn, self.planned = dyn, q0

    def __call__(self, t: float, q: np.ndarray, qd: np.ndarray) -> np.ndarray:
        dyn, rate = self.dyn, trunk_motion(t)[1]
        J = np.concatenate((dyn.jacobian(self.planned, "trunk"), at_contacts(dyn.jacobian(self.planned, links=FEET))))
        wanted = np.linalg.solve(J, np.concatenate((rate, np.zeros(12))))
        tau = 200.0 * dyn.model.difference(q, self.planned) + 3.0 * (wanted - qd)
        tau[:6] = 0.0
        self.planned = dyn.model.integrate(self.planned, wanted, STEP)
        return tau


def main() -> None:
    model = rd.load_urdf(PATH, base="floating")
    simulated = world_with_a_floor()
    bridge, dyn = Bridge(simulated, model), rd.Dynamics(model, joint_forces="damping")
    data = mujoco.MjData(simulated)
    q0 = model.neutral()
    q0[7:] = np.tile(LEG, 4)
    q0[2] = RADIUS - min(dyn.link_pose(q0, foot)[2, 3] for foot in FEET)
    print(f"{bridge}: {model.total_mass:.1f} kg on {len(FEET)} feet, steps of {STEP} s, {DURATION} s")

    def simulate(policy) -> dict[str, float]:
        """The largest distance of the trunk from its plan, how far it is turned away, how fast the feet slip, and how
        far the floor's force is from what the controller counts on, in parts of it, once the first step has settled."""
        mujoco.mj_resetData(simulated, data)
        bridge.set_state(data, q0)
        worst = dict.fromkeys(("moved", "turned", "slipped", "forces"), 0.0)

        def note(name: str, value: np.ndarray) -> None:
            worst[name] = max(worst[name], float(np.linalg.norm(value)))

        with bridge.controlled(policy):
            while data.time < DURATION:
                mujoco.mj_step(simulated, data)
                q, qd, place = bridge.q(data), bridge.qd(data), trunk_motion(data.time)[0]
                R = dyn.link_pose(q, "trunk")[:3, :3]
                note("moved", q[:3] - q0[:3] - place[3:])
                note("turned", turned_by(R, pitched(place[1])))
                if data.time > SETTLED:
                    for slip in (at_contacts(dyn.jacobian(q, links=FEET)) @ qd).reshape(4, 3):
                        note("slipped", slip)
                    if isinstance(policy, Controller):
                        # Ours on the trunk is in its axes; what the six rows of the trunk feel is the sum of all feet.
                        wanted = R.T @ policy.forces.sum(axis=0)
                        note("forces", (bridge.constraint(data)[:3] - wanted) / np.linalg.norm(wanted))
        return worst

    controller = Controller(dyn, q0[:3])
    found, springs = simulate(controller), simulate(Springs(dyn, q0))
    for name, worst in (("inverse dynamics with contacts", found), ("springs in joints", springs)):
        print(f"{name:<31}: trunk {1e3 * worst['moved']:6.2f} mm and {1e3 * worst['turned']:6.2f} mrad from its plan")
    print(f"contact points slip at no more than {1e3 * found['slipped']:.1f} mm/s")
    print(f"the floor's force is within {100.0 * found['forces']:.2f} % of what the controller counts on")

    # MuJoCo's contacts are soft, and its steps first order: that is what is left.
    assert found["moved"] < 5e-4 and found["turned"] < 2e-3, f"the trunk is off: {found}"
    assert found["slipped"] < 0.02, f"feet slip: {found}"
    assert found["forces"] < 0.02, f"the floor pushes otherwise: {found}"
    assert springs["moved"] > 10.0 * found["moved"], f"dynamics makes no difference: {springs}, {found}"


if __name__ == "__main__":
    main()
