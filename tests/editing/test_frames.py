"""Frames: named poses on links, asked for as links are."""

from __future__ import annotations

import numpy as np
import pytest
from robots import own

import robodyn as rd
from robodyn.description import Pose, rotation_from_rpy


def homogeneous(xyz, rpy):
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = np.reshape(rotation_from_rpy(*rpy), (3, 3)), xyz
    return pose


@pytest.mark.parametrize("robot,link", [("arm6", "tool0"), ("oblique", None), ("gripper", None)])
def test_frames_are_found_like_links(robot, link):
    model = rd.load_urdf(own(robot), base="floating")
    link = model.link_names[-1] if link is None else link
    at = homogeneous((0.1, -0.2, 0.3), (0.4, -0.5, 0.6))
    beyond = Pose((0.0, 0.0, 0.1), rotation_from_rpy(0.0, 1.0, 0.0))
    framed = model.with_frames({"tcp": (link, at), "tip": ("tcp", beyond), "origin": (0, None), "up": (0, [0, 0, 1])})
    assert framed.link_names == (*model.link_names, "tcp", "tip", "origin", "up")
    assert framed.nv == model.nv and framed.report == model.report
    dyn, q = rd.Dynamics(framed, engine="reference"), framed.random_configuration(1, (3,))

    def pose(name):
        return dyn.link_pose(q, name)

    tip = homogeneous(beyond.xyz, (0.0, 1.0, 0.0))
    np.testing.assert_allclose(pose("tcp"), pose(link) @ at, atol=1e-14)
    np.testing.assert_allclose(pose("tip"), pose(link) @ at @ tip, atol=1e-14)
    np.testing.assert_array_equal(pose("origin"), pose(model.link_names[0]))
    np.testing.assert_allclose(pose("up"), pose(model.link_names[0]) @ homogeneous((0, 0, 1), (0, 0, 0)), atol=1e-14)
    J = dyn.jacobian(q, "tcp", frame="world_aligned")
    base = dyn.jacobian(q, link, frame="world_aligned")
    arm = (pose("tcp") - pose(link))[:, :3, 3]
    np.testing.assert_allclose(J[:, :3], base[:, :3], atol=1e-14)
    np.testing.assert_allclose(J[:, 3:], base[:, 3:] + np.cross(base[:, :3], arm[..., None], axis=1), atol=1e-13)
    np.testing.assert_array_equal(dyn.mass_matrix(q), rd.Dynamics(model, engine="reference").mass_matrix(q))


ARM = rd.load_urdf(own("arm6"))
TURNED = np.eye(4)
TURNED[0, 0] = -1.0


@pytest.mark.parametrize(
    "frames,match",
    [
        (None, "frames: got None; wanted a dictionary"),
        ([("tcp", "tool0")], "wanted a dictionary"),
        ({1: ("tool0", None)}, "frames: got 1; wanted a name"),
        ({" ": ("tool0", None)}, "wanted a name"),
        ({"tcp": "tool0"}, r'frames\["tcp"\]: got .tool0.; wanted \(link, pose\)'),
        ({"tcp": ("tool0",)}, r"wanted \(link, pose\)"),
        ({"tcp": ("tol0", None)}, "link: got 'tol0'; .* such as tool0"),
        ({"tool0": ("tool0", None)}, '"tool0" is a link or a frame'),
        ({"tcp": ("tool0", 3.0)}, "got shape"),
        ({"tcp": ("tool0", np.eye(3))}, "got shape"),
        ({"tcp": ("tool0", "here")}, "got 'here'"),
        ({"tcp": ("tool0", TURNED)}, "wanted a rotation"),
        ({"tcp": ("tool0", 2.0 * np.eye(4))}, "last row"),
        ({"tcp": ("tool0", Pose((0.0, 0.0), (1.0,) * 9))}, "xyz: got shape"),
        ({"tcp": ("tool0", Pose((0.0, 0.0, 0.0), (1.0,) * 9))}, "wanted a rotation"),
        ({"tcp": ("tool0", Pose(None))}, "xyz"),
    ],
)
def test_frames_that_are_refused(frames, match):
    with pytest.raises(rd.ArgumentError, match=match):
        ARM.with_frames(frames)


def test_frames_of_numbers_that_are_none():
    with pytest.raises(rd.NumericalError, match="NaN"):
        ARM.with_frames({"tcp": ("tool0", (0.0, np.nan, 0.0))})
    with pytest.raises(rd.NumericalError, match="NaN"):
        ARM.with_frames({"tcp": ("tool0", np.diag((1.0, 1.0, np.inf, 1.0)))})


def test_no_frames_are_no_change():
    assert ARM.with_frames({}) == ARM
