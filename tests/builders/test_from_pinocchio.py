"""Pinocchio's models: every joint that it has, and robots of files as its own parser reads them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import relative
from robots import SHARED, own

import robodyn as rd

pin = pytest.importorskip("pinocchio")


def same(theirs: Any, seed: int = 0) -> None:
    """Inverse dynamics, mass matrix and frames of bodies."""
    model = rd.from_pinocchio(theirs)
    free = [name for name, leader in zip(model.joint_names, model.mimics, strict=True) if leader < 0]
    way, data = rd.converter(model, "pinocchio", joint_names=free), theirs.createData()
    assert (way.nq, way.nv) == (theirs.nq, theirs.nv)
    dyn, rng = rd.Dynamics(model, engine="reference"), np.random.default_rng(seed)
    for _ in range(2):
        q = model.random_configuration(rng)
        v, a = rng.normal(size=(2, model.nv))
        at = way.q_to(q)
        tau = pin.rnea(theirs, data, at, way.v_to(q, v), way.a_to(q, v, a))
        assert relative(way.tau_to(q, dyn.inverse_dynamics(q, v, a)), tau) < 1e-10
        upper = np.triu(pin.crba(theirs, data, at))
        assert relative(way.mass_matrix_to(q, dyn.mass_matrix(q)), upper + np.triu(upper, 1).T) < 1e-10
        pin.framesForwardKinematics(theirs, data, at)
        poses = dyn.forward_kinematics(q)
        for name, pose in zip(model.link_names, poses, strict=True):
            if theirs.existFrame(name, pin.FrameType.BODY):
                frame = theirs.getFrameId(name, pin.FrameType.BODY)
                assert np.abs(pose - data.oMf[frame].homogeneous).max() < 1e-10
        back = way.q_from(at)
        assert np.abs(model.difference(q, back)).max() < 1e-10


def every_joint() -> Any:
    theirs = pin.Model()
    theirs.name, theirs.gravity.linear = "every", np.array([0.3, 0.2, -9.0])

    def add(parent: int, joint: Any, name: str, placement: Any = None) -> int:
        made = theirs.addJoint(parent, joint, pin.SE3.Random() if placement is None else placement, name)
        theirs.appendBodyToJoint(made, pin.Inertia.Random(), pin.SE3.Random())
        theirs.addBodyFrame(f"{name}_body", made, pin.SE3.Random(), 0)
        return made

    composite = pin.JointModelComposite()
    composite.addJoint(pin.JointModelRX())
    composite.addJoint(pin.JointModelPY(), pin.SE3.Random())
    composite.addJoint(pin.JointModelSpherical(), pin.SE3.Random())
    last = 0
    for name, joint in {
        "unbounded": pin.JointModelRUBX(),
        "turned": pin.JointModelRevoluteUnaligned(np.array([0.6, 0.0, 0.8])),
        "slide": pin.JointModelPrismaticUnaligned(np.array([0.6, 0.0, 0.8])),
        "screw": pin.JointModelHelicalUnaligned(np.array([0.0, 0.6, 0.8]), 0.3),
        "composite": composite,
        "universal": pin.JointModelUniversal(np.array([1.0, 0.0, 0.0]), np.array([0.0, 1.0, 0.0])),
        "translation": pin.JointModelTranslation(),
        "zyx": pin.JointModelSphericalZYX(),
        "planar": pin.JointModelPlanar(),
    }.items():
        last = add(last, joint, name)
    add(0, pin.JointModelFreeFlyer(), "free", pin.SE3.Identity())
    theirs.armature = np.linspace(0.0, 0.3, theirs.nv)
    return theirs


def test_every_joint():
    pin.seed(4)
    same(every_joint())


@pytest.mark.parametrize("floating", [False, True])
@pytest.mark.parametrize("path", [own("arm6"), own("humanoid"), *SHARED], ids=lambda path: path.stem)
@pytest.mark.some(of=8, rest="matrix")
def test_robots_of_files(path, floating):
    try:
        theirs = pin.buildModelFromUrdf(str(path), *([pin.JointModelFreeFlyer()] if floating else []))
    except (ValueError, RuntimeError) as error:
        pytest.skip(f"Pinocchio does not read it: {error}")
    same(theirs)


def test_joints_that_mimic_others():
    paths = [path for path in SHARED if path.stem in ("robotiq2F85", "px100", "tiago_pro")]
    if not paths:
        pytest.skip("no shared robots here")
    for path in paths:
        same(pin.buildModelFromUrdf(str(path), mimic=True))


def test_what_is_refused():
    with pytest.raises(rd.ArgumentError, match=r"pin_model: got int; wanted a pinocchio.Model"):
        rd.from_pinocchio(3)
    theirs = pin.Model()
    theirs.addJoint(0, pin.JointModelEllipsoid(), pin.SE3.Identity(), "egg")
    with pytest.raises(rd.LoadError, match=r"joint .egg."):
        rd.from_pinocchio(theirs)


def test_coefficients_are_looked_at():
    theirs = pin.Model()
    theirs.addJoint(0, pin.JointModelRX(), pin.SE3.Identity(), "j")
    theirs.appendBodyToJoint(1, pin.Inertia.Random(), pin.SE3.Identity())
    theirs.armature[:] = -3.0
    with pytest.raises(rd.LoadError, match=r'joint "j": its armature -3 is negative'):
        rd.from_pinocchio(theirs)
    assert "negative-coefficient" in {each.code for each in rd.from_pinocchio(theirs, strict=False).report}
    theirs.armature[:] = np.nan
    with pytest.raises(rd.LoadError, match=r'joint "j": its armature is nan; wanted a finite number'):
        rd.from_pinocchio(theirs, strict=False)
    theirs.armature[:] = 0.0
    theirs.gravity.linear = np.array([np.nan, 0.0, 0.0])
    with pytest.raises(rd.LoadError, match="gravity: got"):
        rd.from_pinocchio(theirs)


def test_friction_of_two_directions():
    theirs = pin.Model()
    theirs.addJoint(0, pin.JointModelRX(), pin.SE3.Identity(), "j")
    if not hasattr(theirs, "upperDryFrictionLimit"):
        pytest.skip("this version of Pinocchio has one friction for both directions")
    theirs.upperDryFrictionLimit[:], theirs.lowerDryFrictionLimit[:] = 0.7, -0.7
    assert "friction-uneven" not in {each.code for each in rd.from_pinocchio(theirs).report}
    theirs.lowerDryFrictionLimit[:] = -0.2
    model = rd.from_pinocchio(theirs)
    assert model.tree_friction.tolist() == [0.7]
    assert [each.elements for each in model.report if each.code == "friction-uneven"] == [('joint "j"',)]
