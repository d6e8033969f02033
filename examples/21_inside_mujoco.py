"""Inside MuJoCo: an arm follows a trajectory of its joints, then draws a circle with its tool, by a callback."""

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

PATH = Path(__file__).resolve().parent.parent / "models" / "arm7.urdf"
TOOL = "tool0"
STEP, DURATION = 1e-3, 2.0
BANDWIDTH = 2.0 * np.pi * 5.0
POSE = np.array([0.3, 0.6, -0.2, -1.3, 0.4, 0.9, 0.1])
RADIUS, TURNS = 0.1, 0.5  # m, 1/s


def joint_trajectory(t: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Position, velocity and acceleration of the joints at time t: each swings at a frequency of its own."""
    frequency = 2.0 * np.pi * np.linspace(0.3, 0.6, POSE.size)
    angle = frequency * t
    return POSE + 0.3 * np.sin(angle), 0.3 * frequency * np.cos(angle), -0.3 * frequency**2 * np.sin(angle)


def computed_torque(dyn: rd.Dynamics):
    """Inverse dynamics of what is wanted, corrected by what is wrong."""

    def policy(t, q, qd):
        wanted_q, wanted_qd, wanted_qdd = joint_trajectory(t)
        return dyn.inverse_dynamics(
            q, qd, wanted_qdd + BANDWIDTH**2 * (wanted_q - q) + 2.0 * BANDWIDTH * (wanted_qd - qd)
        )

    return policy


def circle(t: float, centre: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Position, velocity and acceleration of the tool at time t, in a vertical plane; it starts at rest."""
    # The angle runs as t^2 first, so that nothing jumps at the start.
    rate = 2.0 * np.pi * TURNS
    angle, speed, gain = (rate * t - np.sin(rate * t), rate - rate * np.cos(rate * t), rate**2 * np.sin(rate * t))
    s, c = np.sin(angle), np.cos(angle)
    along, across = np.array([0.0, c, -s]), np.array([0.0, -s, -c])
    return (
        centre + RADIUS * np.array([0.0, s, c - 1.0]),
        RADIUS * speed * along,
        RADIUS * (gain * along + speed**2 * across),
    )


def turned_by(R: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The rotation vector, in world axes, that turns R into another attitude, for angles well below pi."""
    D = wanted @ R.T
    axis = 0.5 * np.array([D[2, 1] - D[1, 2], D[0, 2] - D[2, 0], D[1, 0] - D[0, 1]])
    sine = np.linalg.norm(axis)
    return axis * (np.arctan2(sine, 0.5 * (np.trace(D) - 1.0)) / sine if sine > 1e-9 else 1.0)


def operational_space(dyn: rd.Dynamics, start: np.ndarray):
    """The tool moves as wanted, in the axes of the world; what seven joints can do besides brings back the elbow."""

    def policy(t, q, qd):
        T, V = dyn.link_pose(q, TOOL), dyn.link_velocity(q, qd, TOOL)
        position, velocity, acceleration = circle(t, start[:3, 3])
        error = np.concatenate((turned_by(T[:3, :3], start[:3, :3]), position - T[:3, 3]))
        wanted = np.concatenate((np.zeros(3), acceleration)) + BANDWIDTH**2 * error
        wanted += 2.0 * BANDWIDTH * (np.concatenate((np.zeros(3), velocity)) - V)
        # qdd = Jbar (wanted - Jdot qd) + (1 - Jbar J) qdd0, with Jbar the inverse of J that inertia weights.
        J, Hinv = dyn.jacobian(q, TOOL), dyn.mass_matrix_inverse(q)
        Jbar = Hinv @ J.T @ np.linalg.inv(J @ Hinv @ J.T)
        posture = 25.0 * (POSE - q) - 10.0 * qd
        bias = dyn.jacobian_derivative(q, qd, TOOL) @ qd
        return dyn.inverse_dynamics(q, qd, Jbar @ (wanted - bias - J @ posture) + posture)

    return policy


def main() -> None:
    model = rd.load_urdf(PATH)
    simulated = mujoco.MjModel.from_xml_path(str(PATH))
    simulated.opt.timestep = STEP
    # Dry friction in MuJoCo is a constraint that holds a joint at rest: nothing that one can compensate exactly.
    simulated.dof_frictionloss[:] = 0.0
    bridge, dyn = Bridge(simulated, model), rd.Dynamics(model, joint_forces="damping")
    data = mujoco.MjData(simulated)
    print(f"{bridge}: MuJoCo {mujoco.__version__}, steps of {STEP} s")

    def simulate(policy, q, qd, error) -> float:
        mujoco.mj_resetData(simulated, data)
        bridge.set_state(data, q, qd)
        worst = 0.0
        with bridge.controlled(policy):
            while data.time < DURATION:
                mujoco.mj_step(simulated, data)
                worst = max(worst, error(data.time, bridge.q(data)))
        return worst

    q, qd, _ = joint_trajectory(0.0)
    away = simulate(computed_torque(dyn), q, qd, lambda t, q: np.abs(q - joint_trajectory(t)[0]).max())
    print(f"computed torque: no joint is ever more than {1e3 * away:.2f} mrad from its trajectory")

    start = dyn.link_pose(POSE, TOOL)
    still = np.zeros(model.nv)

    def from_circle(t, q):
        return np.linalg.norm(dyn.link_pose(q, TOOL)[:3, 3] - circle(t, start[:3, 3])[0])

    drawn = simulate(operational_space(dyn, start), POSE, still, from_circle)
    turned = np.linalg.norm(turned_by(dyn.link_pose(bridge.q(data), TOOL)[:3, :3], start[:3, :3]))
    print(f"operational space: the tool is {1e3 * drawn:.2f} mm from its circle at most")
    print(f"  and in the end turned by {1e3 * turned:.2f} mrad")

    # MuJoCo's Euler steps go ahead of the motion by half a step: of 1.1 rad/s and 0.6 m/s, 0.6 mrad and 0.3 mm.
    assert away < 1e-3, f"computed torque is off by {away:.1e} rad"
    assert drawn < 5e-4, f"the tool is off by {drawn:.1e} m"
    assert turned < 1e-3, f"the tool is turned by {turned:.1e} rad"


if __name__ == "__main__":
    main()
