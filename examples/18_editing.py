"""A robot that is put together: a humanoid with fewer joints and a gripper, written, and read by Pinocchio."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import robodyn as rd

try:
    import pinocchio as pin
except ImportError:
    print("Pinocchio is not installed (pip install pin): nothing to read the robot with")
    raise SystemExit(0) from None

MODELS = Path(__file__).resolve().parent.parent / "models"
POSE = np.array([[0.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 0.0], [-1.0, 0.0, 0.0, -0.08], [0.0, 0.0, 0.0, 1.0]])
"""The gripper below the hand, turned by a right angle about y."""


def main() -> None:
    humanoid = rd.load_urdf(MODELS / "humanoid.urdf", base="floating")
    gripper = rd.load_urdf(MODELS / "gripper.urdf", mimic="ignore")
    # What the task does not need stands still: head and left arm, the elbow bent.
    still = [
        joint
        for joint in humanoid.joint_names
        if joint.startswith(("neck", "left_shoulder", "left_forearm", "left_wrist"))
    ]
    small = humanoid.lock({**dict.fromkeys(still), "left_elbow": 0.6})
    print(f"{humanoid.nv} degrees of freedom, {small.nv} with {', '.join([*still, 'left_elbow'])} locked")

    hand = small.body_names[small.joint_index(next(j for j in small.joint_names if j.startswith("right_wrist")))]
    robot = small.attach(gripper, link=hand, pose=POSE, prefix="gripper_")
    robot = robot.with_frames({"grasp": ("gripper_palm", (0.0, 0.0, 0.12))})
    print(f"{robot.nv} with a gripper of {gripper.nv} on {hand!r}; {robot.total_mass:.3f} kg")
    assert np.isclose(robot.total_mass, humanoid.total_mass + gripper.link_inertia[:, 0].sum())

    text = robot.to_urdf()
    print(text.report)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "robot.urdf"
        path.write_text(text, encoding="utf-8")
        theirs = pin.buildModelFromUrdf(str(path), pin.JointModelFreeFlyer())
    data, way = theirs.createData(), rd.converter(robot, "pinocchio", joint_names=list(theirs.names)[1:])

    dyn, rng = rd.Dynamics(robot), np.random.default_rng(0)
    q = robot.random_configuration(rng)
    v, a = rng.normal(size=(2, robot.nv))
    wanted = pin.rnea(theirs, data, way.q_to(q), way.v_to(q, v), way.a_to(q, v, a))
    error = np.abs(way.tau_to(q, dyn.inverse_dynamics(q, v, a)) - wanted).max() / np.abs(wanted).max()
    pin.framesForwardKinematics(theirs, data, way.q_to(q))
    at = data.oMf[theirs.getFrameId("grasp")].homogeneous
    off = np.abs(dyn.link_pose(q, "grasp") - at).max()
    print(f"against Pinocchio: torques differ by {error:.1e} of the largest, the frame 'grasp' by {off:.1e}")
    assert error < 1e-12 and off < 1e-12


if __name__ == "__main__":
    main()
