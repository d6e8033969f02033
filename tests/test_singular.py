"""Robots whose mass matrix is singular in every state: inverse dynamics answers, forward dynamics names the body."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from conftest import random_states, relative
from robots import own

import robodyn as rd
from robodyn.builders.urdf import read_urdf
from robodyn.description import Inertial, Joint, Link, Mimic, Pose, RobotDescription

BODY = Inertial(1.0, Pose((0.1, 0.05, 0.2)), (0.02, 0.0, 0.0, 0.03, 0.0, 0.04))
POINT_ON_AXIS = Inertial(1.0, Pose((0.0, 0.0, 0.3)), (0.0,) * 6)
Z, Y = (0.0, 0.0, 1.0), (0.0, 1.0, 0.0)


def chain(*parts, **extra):
    """A serial robot of (joint type, axis, inertial of its child)."""
    links, joints = [Link("link0", extra.get("root"))], []
    for i, (kind, axis, inertial) in enumerate(parts):
        joints.append(Joint(f"joint{i}", kind, f"link{i}", f"link{i + 1}", Pose((0.0, 0.1, 0.3)), axis))
        links.append(Link(f"link{i + 1}", inertial))
    return RobotDescription("chain", tuple(links), tuple(joints))


SINGULAR = {
    "massless leaf": (chain(("revolute", Y, BODY), ("revolute", Z, None)), "fixed", "link2"),
    "massless prismatic leaf": (chain(("revolute", Y, BODY), ("prismatic", Z, None)), "fixed", "link2"),
    "a run of massless leaves": (
        chain(("revolute", Y, BODY), ("revolute", Z, None), ("revolute", Y, None)),
        "fixed",
        "link3",
    ),
    "point mass on the axis": (chain(("revolute", Z, POINT_ON_AXIS)), "fixed", "link1"),
    "massless floating root": (chain(("revolute", Z, BODY)), "floating", "link0"),
    "massless body between parallel joints": (
        RobotDescription(
            "parallel",
            (Link("a"), Link("b"), Link("c", BODY)),
            (Joint("ab", "revolute", "a", "b", axis=Z), Joint("bc", "revolute", "b", "c", axis=Z)),
        ),
        "fixed",
        "b",
    ),
    "massless spherical leaf": (chain(("revolute", Y, BODY), ("spherical", Z, None)), "fixed", "link2"),
    "point mass in a ball joint": (
        chain(("spherical", Z, Inertial(1.0, Pose((0.0, 0.0, 0.5)), (0.0,) * 6))),
        "fixed",
        "link1",
    ),
}


@pytest.mark.parametrize("case", SINGULAR)
def test_forward_dynamics_names_the_body(case):
    description, base, body = SINGULAR[case]
    model = rd.build_model(description, base=base)
    dyn = rd.Dynamics(model)
    q, qd, qdd = random_states(model)
    tau = dyn.inverse_dynamics(q, qd, qdd)
    assert np.isfinite(tau).all()
    for call in (
        lambda: dyn.forward_dynamics(q, qd, tau),
        lambda: dyn.forward_dynamics(q, qd, tau, method="crba"),
        lambda: dyn.mass_matrix_inverse(q),
        lambda: dyn.forward_dynamics_gradient(q, qd, tau),
        lambda: dyn.forward_dynamics(np.stack([q] * 3), qd, tau),
    ):
        with pytest.raises(rd.SingularError, match=f"body '{body}' has no inertia"):
            call()


def test_every_singular_robot_really_is():
    for description, base, _ in SINGULAR.values():
        model = rd.build_model(description, base=base)
        H = rd.Dynamics(model).mass_matrix(model.random_configuration(3))
        scale = np.sqrt(np.maximum(np.diag(H), 1e-300))
        assert np.linalg.svd(H / np.outer(scale, scale), compute_uv=False)[-1] < 1e-12


REGULAR = {
    "massless body between crossed joints": chain(("revolute", Y, BODY), ("revolute", Z, None), ("revolute", Y, BODY)),
    "massless root of a fixed base": chain(("revolute", Z, BODY)),
    "a tiny leaf": chain(
        ("revolute", Y, BODY), ("revolute", Z, Inertial(1e-9, Pose((1e-3, 0.0, 0.0)), (1e-16, 0, 0, 1e-16, 0, 1e-16)))
    ),
}


@pytest.mark.parametrize("case", REGULAR)
def test_regular_robots_are_not_refused(case):
    model = rd.build_model(REGULAR[case])
    dyn = rd.Dynamics(model)
    q, qd, qdd = random_states(model, (4,))
    tau = dyn.inverse_dynamics(q, qd, qdd)
    for method in ("aba", "crba"):
        again = dyn.inverse_dynamics(q, qd, dyn.forward_dynamics(q, qd, tau, method=method))
        assert relative(again, tau) < 1e-11


def test_every_singular_body_is_named():
    leaves = [Joint(f"j{i}", "revolute", "a", f"l{i}", axis=Z) for i in range(8)]
    links = (Link("a"), *(Link(f"l{i}") for i in range(8)))
    why = rd.Dynamics(rd.build_model(RobotDescription("r", links, tuple(leaves)))).singularity()
    assert "body 'l7' has no inertia" in why
    assert why.endswith("The same holds for 'l0', 'l1', 'l2', 'l3', 'l4' and 2 more")


def test_a_long_chain_is_not_taken_for_singular():
    model = rd.auto_tree(3000, skew=0.3)
    assert rd.Dynamics(model).singularity() is None


def test_armature_cures_a_massless_leaf():
    description, _, _ = SINGULAR["massless leaf"]
    last = replace(description.joints[-1], armature=0.01)
    model = rd.build_model(replace(description, joints=(*description.joints[:-1], last)))
    dyn = rd.Dynamics(model)
    q, qd, qdd = random_states(model)
    for method in ("aba", "crba"):
        assert relative(dyn.forward_dynamics(q, qd, dyn.inverse_dynamics(q, qd, qdd), method=method), qdd) < 1e-11


def test_mimic_is_judged_in_the_coordinates_that_are_free():
    """A massless leaf that follows a joint with inertia is no degree of freedom of its own."""
    description, _, _ = SINGULAR["massless leaf"]
    last = replace(description.joints[-1], mimic=Mimic("joint0", 0.5, 0.1))
    model = rd.build_model(replace(description, joints=(*description.joints[:-1], last)))
    dyn = rd.Dynamics(model)
    q, qd, qdd = random_states(model)
    assert relative(dyn.forward_dynamics(q, qd, dyn.inverse_dynamics(q, qd, qdd)), qdd) < 1e-11
    with pytest.raises(rd.ArgumentError, match="method: got 'aba' for a model whose joints mimic others"):
        dyn.forward_dynamics(q, qd, qdd, method="aba")
    free = rd.build_model(replace(description, joints=(*description.joints[:-1], last)), mimic="ignore")
    with pytest.raises(rd.SingularError, match="'link2'"):
        rd.Dynamics(free).forward_dynamics(free.neutral(), np.zeros(2), np.zeros(2))


def test_our_massless_robots():
    tip = rd.load_urdf(own("massless_tip"))
    with pytest.raises(rd.SingularError):
        rd.Dynamics(tip).mass_matrix_inverse(tip.neutral())
    inner = rd.load_urdf(own("massless_chain"))
    assert rd.Dynamics(inner).singularity() is None


def test_float32_is_judged_like_float64():
    model = rd.build_model(read_urdf(own("massless_tip")))
    with pytest.raises(rd.SingularError):
        rd.Dynamics(model, dtype="float32").mass_matrix_inverse(model.neutral())
