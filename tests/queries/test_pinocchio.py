"""Our answers against Pinocchio's: robots from files, random trees of every joint kind, mimics followed and ignored.

What is compared, and how differences are measured: oracles/quantities.py. The full matrix over all robots at hand is
`pytest -m matrix`; its result stands in docs/accuracy.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import robots

pin = pytest.importorskip("pinocchio", reason="Pinocchio has no wheel for this platform")

from oracles.cases import Case, description_case, urdf_case  # noqa: E402
from oracles.pinocchio_models import Refused, read_urdf  # noqa: E402
from oracles.quantities import QUANTITIES, Quantity, relative  # noqa: E402

import robodyn as rd  # noqa: E402
from robodyn.description import JOINT_TYPES, Inertial, Joint, Link, Pose, RobotDescription  # noqa: E402
from robodyn.io.builders.random_tree import SHAPES, random_description  # noqa: E402

WITH_MIMICS = ("gripper", "hand", "pepper", "pr2_pr2")

OWN = [(path.stem, "own", base) for path in robots.OWN for base in ("fixed", "floating")]
SHARED = [(name, "shared", base) for name in robots.EVERY_RUN for base in ("fixed", "floating")]
FOLLOWING = [(name, f"{where}, mimics followed", base) for name, where, base in OWN + SHARED if name in WITH_MIMICS]
# Compiling takes longer than all answers: one base for each of the shared robots.
WALKING = ("go2", "g1_29dof")
COMPILED = [
    *OWN,
    *((name, where, base) for name, where, base in SHARED if (base == "floating") == (name in WALKING)),
    *((name, where, base) for name, where, base in FOLLOWING if base == "fixed"),
]
SLOW = ("pr2_pr2", "pepper", "g1_29dof")
AGAIN = ("pr2", "simple_humanoid_classical", "talos_full_v2", "talos_full_v2_box")
"""Like pr2_pr2, of every run, and like simple_humanoid, g1_29dof and atlas."""
BY_MACHINE_CODE = {
    "inverse dynamics, external forces",
    "bias force",
    "mass matrix",
    "mass matrix inverse",
    "aba residual",
    "crba residual",
    "inverse dynamics",
    "poses",
}

REGULAR = 1e-9
"""H, scaled to a unit diagonal, counts as singular where its eigenvalues have a ratio below this."""


@lru_cache(maxsize=1)
def case_of(name: str, where: str, base: str) -> Case:
    path = robots.own(name) if where.startswith("own") else robots.shared(name)
    return urdf_case(path, base, follow=where.endswith("followed"))


# Robot by robot, so that each is loaded once.
@pytest.mark.parametrize("quantity", QUANTITIES, ids=lambda quantity: quantity.name)
@pytest.mark.parametrize(("name", "where", "base"), OWN + SHARED + FOLLOWING)
@pytest.mark.some(of=24, rest="matrix")
def test_robot(name: str, where: str, base: str, quantity: Quantity) -> None:
    case = case_of(name, where, base)
    if quantity not in case.quantities:
        pytest.skip("not defined: " + (case.singular or "a robot whose joints follow others"))
    error, allowed = case.error(quantity), quantity.allowed(case.oracle, case.states)
    assert error <= allowed, f"{quantity.name} of {name}, base {base}: off by {error:.1e}, allowed {allowed:.0e}"


@pytest.mark.parametrize(
    ("name", "where", "base"),
    [pytest.param(*case, marks=[pytest.mark.matrix] if case[0] in SLOW else []) for case in COMPILED],
)
@pytest.mark.some(of=12, rest="matrix")
def test_robot_by_machine_code(name: str, where: str, base: str) -> None:
    """The engine that users get."""
    case = case_of(name, where, base)
    compiled = replace(case, dyn=rd.Dynamics(case.model))
    assert compiled.dyn.engine.name == "cpu"
    for quantity in case.quantities:
        if quantity.name in BY_MACHINE_CODE:
            error, allowed = compiled.error(quantity), quantity.allowed(case.oracle, case.states)
            assert error <= allowed, f"{quantity.name}: off by {error:.1e}, allowed {allowed:.0e}"


@pytest.mark.parametrize(("name", "where", "base"), OWN + SHARED + FOLLOWING)
@pytest.mark.some(of=3, rest="matrix")
def test_a_robot_is_called_singular_where_the_mass_matrix_of_pinocchio_is(name: str, where: str, base: str) -> None:
    case = case_of(name, where, base)
    H = case.oracle.mass_matrix(case.states.q)
    size = np.sqrt(np.einsum("bii->bi", H))
    size[size == 0.0] = 1.0
    eigenvalues = np.linalg.eigvalsh(H / (size[:, :, None] * size[:, None, :]))
    assert bool(case.singular) == (eigenvalues[:, 0] <= REGULAR * eigenvalues[:, -1]).all()


@pytest.mark.matrix
def test_a_hundred_millionth_is_noticed() -> None:
    """Every quantity is beyond its tolerance when mass, mass centres, joints, links or gravity are off by that much."""
    case, off = case_of("quadruped", "own", "floating"), 1.0 + 1e-8
    model = case.model
    changed = (
        replace(model, inertia=model.inertia * off),
        replace(model, inertia=model.inertia * np.repeat([1.0, off, 1.0], [1, 3, 6])),
        replace(model, Xtree=model.Xtree * np.repeat([1.0, off], [9, 3])),
        replace(model, link_X=model.link_X + (off - 1.0)),
        replace(model, gravity=model.gravity * off),
    )
    unnoticed = {quantity.name for quantity in case.quantities if quantity.group != "manifold"}
    for other in changed:
        unnoticed -= replace(case, dyn=rd.Dynamics(other, engine="reference")).failures().keys()
    assert unnoticed == set()


@pytest.mark.parametrize("base", ["fixed", "floating"])
@pytest.mark.parametrize("seed", range(16))
@pytest.mark.some(of=16, rest="matrix")
def test_random_tree(seed: int, base: str) -> None:
    n, shape = seed % 20 + 1, tuple(SHAPES)[seed % len(SHAPES)]
    kinds = [kind for kind in JOINT_TYPES if n > 1 or kind != "fixed"]
    mimic = 0.4 if seed % 2 else 0.0
    description = random_description(n, seed=seed, joints=kinds, shape=shape, mimic=mimic, armature=True)
    assert description_case(description, base, gravity=(3.0, -2.0, -9.0), seed=seed).failures() == {}


def test_universal_joint_of_pinocchio() -> None:
    """Its poses and inverse dynamics: what else Pinocchio says of universal joints is wrong (docs/accuracy.md)."""
    axis, axis2 = np.array([0.6, 0.0, 0.8]), np.array([-0.48, 0.6, 0.64])
    inertial = Inertial(2.0, Pose((0.1, -0.2, 0.3)), (0.3, 0.01, 0.02, 0.2, -0.03, 0.25))
    joint = Joint("hook", "universal", "base", "tip", Pose((0.1, 0.2, 0.3)), tuple(axis), tuple(axis2))
    model = rd.build_model(RobotDescription("hook", (Link("base"), Link("tip", inertial)), (joint,)))
    pin_model = pin.Model()
    placement = pin.SE3(np.eye(3), np.array(joint.origin.xyz))
    hook = pin_model.addJoint(0, pin.JointModelUniversal(axis, axis2), placement, "hook")
    xx, xy, xz, yy, yz, zz = inertial.inertia
    matrix = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    body = pin.Inertia(inertial.mass, np.array(inertial.pose.xyz), matrix)
    pin_model.appendBodyToJoint(hook, body, pin.SE3.Identity())
    data, dyn = pin_model.createData(), rd.Dynamics(model, engine="reference")
    for q, qd, qdd in np.random.default_rng(0).uniform(-3.0, 3.0, (10, 3, 2)):
        wanted = pin.rnea(pin_model, data, q, qd, qdd)
        pin.forwardKinematics(pin_model, data, q)
        assert relative(dyn.inverse_dynamics(q, qd, qdd)[None], wanted[None]) <= 1e-13
        assert relative(dyn.forward_kinematics(q)[None, 1], data.oMi[hook].homogeneous[None]) <= 1e-14


def test_armature_set_by_hand_in_both() -> None:
    path = robots.own("arm6")
    description = rd.read_urdf(path)
    geared = tuple(replace(joint, armature=0.1 * i) for i, joint in enumerate(description.joints))
    case = urdf_case(path, "fixed")
    with_armature = rd.build_model(replace(description, joints=geared))
    values = [joint.armature for joint in geared if joint.type != "fixed"]
    H = rd.Dynamics(with_armature, engine="reference").mass_matrix(case.states.q)
    case.oracle.pin.armature = np.array(values)[np.argsort(case.oracle.velocities)]
    assert relative(H, case.oracle.mass_matrix(case.states.q)) <= 1e-13
    s = case.states
    tau = rd.Dynamics(with_armature, engine="reference").inverse_dynamics(s.q, s.qd, s.qdd)
    assert relative(tau, case.oracle.inverse_dynamics(s.q, s.qd, s.qdd)) <= 1e-13


@pytest.mark.parametrize("value", ["1 ", "nan", "none"])
def test_what_pinocchio_says_on_stderr_is_heard(tmp_path: Path, value: str) -> None:
    text = robots.own("double_pendulum").read_text().replace('<mass value="', f'<mass value="{value}" was="', 1)
    path = tmp_path / "spoilt.urdf"
    path.write_text(text)
    with pytest.raises(Refused, match="Error"):
        read_urdf(path, floating=True)


def every_robot() -> Iterator[Any]:
    """Robots of the shared collection, and of the wheel's folders the first that is not among them: every third one,
    the others and other versions by night. So are large robots that are like another one."""
    shared = {path.stem for path in robots.SHARED}
    firsts: dict[Path, Path] = {}
    for path in robots.example_robot_data():
        if path.stem not in shared:
            firsts.setdefault(path.parent, path)
    often = [path for path in [*robots.SHARED, *firsts.values()][::3] if path.stem not in AGAIN]
    for path in (*robots.SHARED, *robots.example_robot_data()):
        yield pytest.param(path, id=path.stem, marks=pytest.mark.matrix if path in often else pytest.mark.nightly)


@pytest.mark.parametrize("path", tuple(every_robot()))
def test_matrix(path: Path) -> None:
    import matrix

    row = matrix.measure(path)
    assert row.failures == {}
