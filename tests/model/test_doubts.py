"""Where coordinates of joints are, and what is doubtful about configurations."""

from __future__ import annotations

import numpy as np
import pytest
from robots import own, tree

import robodyn as rd
from robodyn.core.description import Link, RobotDescription


@pytest.mark.parametrize("seed", range(6))
def test_slices_of_joints_cover_all_coordinates(seed):
    model = tree(seed)
    q, v = np.zeros(model.nq, int), np.zeros(model.nv, int)
    for index, name in enumerate(model.joint_names):
        if model.mimics[index] >= 0:
            with pytest.raises(rd.ArgumentError, match=r"^joint: got .*, which mimics"):
                model.coordinates(name)
            continue
        of_q, of_v = model.coordinates(name)
        assert (of_q, of_v) == model.coordinates(index)
        q[of_q] += 1
        v[of_v] += 1
        for names, part in ((model.coordinate_names, of_q), (model.velocity_names, of_v)):
            assert all(each == name or each.startswith(f"{name}.") for each in names[part])
    assert (q == 1).all() and (v == 1).all()
    with pytest.raises(rd.ArgumentError, match=r"^joint: got 'none'"):
        model.coordinates("none")


def test_what_is_doubtful_about_configurations():
    model = rd.load_urdf(own("quadruped"), base="floating")
    q = model.random_configuration(3, (50,))
    assert model.check(q.astype(np.float32)) == [] == model.check(model.neutral())
    joint = next(k for k in range(7, model.nq) if np.isfinite(model.upper[k]))
    name, base = model.coordinate_names[joint], model.coordinate_names[3].rpartition(".")[0]

    def about(change, rows=q):
        wrong = rows.copy()
        change(wrong)
        (said,) = model.check(wrong)
        return said

    def put(value, where):
        return lambda wrong: wrong.__setitem__(where, value)

    assert about(put(np.nan, (7, joint))) == f"{name}: nan; wanted a finite number (state 7, and 1 of 50 in all)"
    beyond = about(put(model.upper[joint] + 0.1, (slice(2, 4), joint)))
    assert beyond.startswith(f"{name}: {model.upper[joint] + 0.1:g} rad is beyond its limits")
    assert beyond.endswith("(state 2, and 2 of 50 in all)")
    middle = np.rad2deg(0.5 * (model.lower[joint] + model.upper[joint]) or 0.3)
    if abs(middle) > 13:
        assert "looks like degrees" in about(put(middle, (0, joint)))
    still = np.tile(model.neutral(), (3, 1))
    assert about(put([1.0, 0.0, 0.0, 0.0], (slice(None), slice(3, 7))), still) == (
        f"{base}: the quaternion [1, 0, 0, 0] looks like [w, x, y, z]; wanted [x, y, z, w] (state 0, and 3 of 3 in all)"
    )
    assert about(put(0.0, (1, slice(3, 7))), still).startswith(f"{base}: the quaternion is zero")
    assert about(put([0.0, 0.0, 0.0, 2.0], (1, slice(3, 7))), still).startswith(f"{base}: the quaternion has length 2")
    assert "beyond" not in "".join(model.check(1e6 * still))  # the base has no limits
    with pytest.raises(rd.ArgumentError, match=r"^q: got shape"):
        model.check(q[:, :-1])
    for seed in range(10):
        model = tree(seed)
        assert model.check(model.random_configuration(seed, (20,))) == []


def test_angles_without_limits_may_be_degrees():
    model = rd.from_dh(a=[1.0, 1.0], alpha=0.0, d=0.0, kinds="RP")
    assert model.check([90.0, 90.0]) == ["joint1: 90 rad looks like degrees, which are 1.571 rad"]


def test_robots_without_joints_and_huge_quaternions():
    fixed = rd.build_model(RobotDescription("stone", (Link("stone"),), ()))
    assert fixed.check([]) == [] == fixed.check(np.zeros((3, 0)))
    model = rd.load_urdf(own("quadruped"), base="floating")
    huge = model.neutral()
    huge[6] = 1e200
    assert model.check(huge) == ["root_joint: the quaternion has length 1e+200; queries scale it to unit length"]
