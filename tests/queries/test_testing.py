"""robodyn.testing: what is offered to users for their own models, on ours, and on models that are off by a little."""

from __future__ import annotations

import re
import subprocess
import sys
import types
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from robots import OWN, ROOT, own

import robodyn as rd
from robodyn.description import JOINT_TYPES, Inertial, Joint, Link, Pose, RobotDescription, rotation_from_rpy
from robodyn.io.builders.random_tree import random_description
from robodyn.testing import (
    assert_identities,
    assert_like_mujoco,
    assert_like_pinocchio,
    assert_sound,
    mujoco_model,
    pinocchio_model,
)

ASSERTS = {"identities": assert_identities, "pinocchio": assert_like_pinocchio, "mujoco": assert_like_mujoco}
MUJOCOS = ("arm6", "arm7", "double_pendulum", "gripper", "hand", "humanoid", "oblique", "quadruped")
"""Robots of which every body has mass, of kinds of joints that MuJoCo has."""


def require(library: str) -> None:
    if library != "identities":
        pytest.importorskip(library)


def tree(seed: int, *, joints: tuple[str, ...] = tuple(JOINT_TYPES)) -> rd.Model:
    description = random_description(2 + seed % 9, seed=seed, joints=joints, mimic=0.3 * (seed % 3), armature=True)
    return rd.build_model(description, base="floating" if seed % 2 else "fixed", gravity=(1.0, -2.0, -9.0))


@pytest.mark.parametrize("base", ["fixed", "floating"])
@pytest.mark.parametrize("path", OWN, ids=lambda path: path.stem)
@pytest.mark.some(of=12, rest="matrix")
def test_our_robots_are_sound(path: Path, base: str) -> None:
    for library in ("pinocchio", "mujoco"):
        require(library)
    asked = assert_sound(rd.load_urdf(path, base=base), states=2)
    assert asked[:2] == ["identities", "pinocchio"]
    if path.stem in MUJOCOS:
        assert asked[2:] == ["mujoco"]


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.some(of=24, rest="matrix")
def test_random_trees_are_sound(seed: int) -> None:
    print(f"tree: seed {seed}")
    assert "identities" in assert_sound(tree(seed), engine="reference", seed=seed)


@pytest.mark.parametrize("engine", ["reference", "cpu"])
@pytest.mark.parametrize("name", ["arm6", "gripper"])
@pytest.mark.some(of=2, rest="matrix")
def test_single_precision(engine: str, name: str) -> None:
    model = rd.load_urdf(own(name), base="floating")
    for check in ASSERTS.values():
        check(model, engine=engine, dtype="float32")


@pytest.mark.parametrize(
    ("name", "base"), [("arm6", "fixed"), ("arm6", "floating"), ("quadruped", "floating"), ("oblique", "fixed")]
)
@pytest.mark.some(of=2, rest="matrix")
def test_pinocchios_own_reader(name: str, base: str) -> None:
    pin = pytest.importorskip("pinocchio")
    options = [pin.JointModelFreeFlyer()] if base == "floating" else []
    model = rd.load_urdf(own(name), base=base, mimic="ignore")
    theirs = pin.buildModelFromUrdf(str(own(name)), *options)
    assert_like_pinocchio(model, theirs)
    with pytest.raises(AssertionError, match="mass matrix: off by"):
        assert_like_pinocchio(replace(model, inertia=model.inertia * 1.00001), theirs)


def off() -> dict[str, Callable[[rd.Dynamics], object]]:
    """Queries of a `Dynamics` that are spoilt, by name: what identities must notice."""
    return {
        "inverse_dynamics": lambda tau: tau * (1.0 + 1e-6),
        "mass_matrix": lambda H: H * (1.0 + 1e-6),
        "gravity_force": lambda g: g + 1e-4,
        "coriolis_matrix": lambda C: C + 1e-3,
        "kinetic_energy": lambda K: K * (1.0 + 1e-6),
        "forward_dynamics": lambda qdd: qdd * (1.0 + 1e-4),
        "jacobian": lambda J: J + 1e-6,
    }


@pytest.mark.parametrize("query", off())
def test_identities_notice(query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, spoil, honest = rd.load_urdf(own("arm6")), off()[query], getattr(rd.Dynamics, query)
    monkeypatch.setattr(rd.Dynamics, query, lambda *args, **options: spoil(honest(*args, **options)))
    with pytest.raises(AssertionError, match=r"^'arm6' and the identities of mechanics disagree:\n  .*: off by"):
        assert_identities(model, engine="reference")


@pytest.mark.parametrize("library", ["pinocchio", "mujoco"])
@pytest.mark.parametrize(
    "query", ["inverse_dynamics", "mass_matrix", "forward_kinematics", "jacobian", "potential_energy"]
)
def test_other_libraries_notice(library: str, query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    require(library)
    honest = getattr(rd.Dynamics, query)
    monkeypatch.setattr(rd.Dynamics, query, lambda *args, **options: honest(*args, **options) + 1e-4)
    with pytest.raises(AssertionError, match="off by"):
        ASSERTS[library](rd.load_urdf(own("arm6")), engine="reference")


@pytest.mark.parametrize("library", ASSERTS)
def test_arguments_are_checked(library: str) -> None:
    require(library)
    check, model = ASSERTS[library], rd.load_urdf(own("arm6"))
    with pytest.raises(rd.ArgumentError, match=r"^model: got 'arm6'; wanted a robodyn\.Model"):
        check("arm6")
    for options in ({"states": 0}, {"seed": -1}, {"engine": "none"}, {"dtype": "int8"}):
        with pytest.raises(rd.ArgumentError, match=f"^{next(iter(options))}: got"):
            check(model, **options)


def test_another_robot_of_pinocchio_is_told() -> None:
    pin = pytest.importorskip("pinocchio")
    model = rd.load_urdf(own("arm6"))
    with pytest.raises(rd.ArgumentError, match=r"^pin_model: it lacks the joints shoulder_pan"):
        assert_like_pinocchio(model, pin.buildModelFromUrdf(str(own("arm7"))))
    with pytest.raises(rd.ArgumentError, match=r"^pin_model: got nv 12; wanted 6"):
        assert_like_pinocchio(model, pin.buildModelFromUrdf(str(own("arm6")), pin.JointModelFreeFlyer()))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("screw_press", "MuJoCo has no helical joint such as"),
        ("planar_rover", "MuJoCo has no planar joint"),
        ("massless_tip", "MuJoCo refuses 'massless_tip'"),
    ],
)
def test_robots_that_mujoco_has_no_model_for(name: str, message: str) -> None:
    pytest.importorskip("mujoco")
    with pytest.raises(rd.UnavailableError, match=message):
        mujoco_model(rd.load_urdf(own(name)))


@pytest.mark.parametrize("library", ["pinocchio", "mujoco"])
def test_a_library_that_is_missing_is_named(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    made = pinocchio_model if library == "pinocchio" else mujoco_model
    with pytest.raises(rd.UnavailableError, match=r'is not installed here .*; pip install "\.\[test\]"'):
        made(rd.load_urdf(own("arm6")))


def single(inertial: Inertial, type: str = "revolute", *, name: str = "j", strict: bool = True, **fields) -> rd.Model:
    joint = Joint(name, type, "a", "b", **fields)
    return rd.build_model(RobotDescription("r", (Link("a"), Link("b", inertial)), (joint,)), strict=strict)


BALL = (1.0, 0.0, 0.0, 1.0, 0.0, 1.0)
ODD = {
    "a point mass": lambda: single(Inertial(0.3, Pose((0.1, 0.0, -0.2)), (0.0,) * 6), axis=(0.0, 1.0, 0.0)),
    "a slightly negative moment": lambda: single(Inertial(1.0, Pose((0.0, 0.0, 0.1)), (*BALL[:5], -0.3))),
    "a negative mass": lambda: single(Inertial(-1.0, Pose((0.0, 0.3, 0.1)), BALL), strict=False),
    "nothing moves": lambda: single(Inertial(1.0, Pose(), (0.0,) * 6), origin=Pose((0.1, 0.2, 0.3))),
    "a floating joint away from the world": lambda: single(
        Inertial(1.0, Pose((0.1, 0.0, 0.0)), BALL),
        "floating",
        origin=Pose((0.3, -0.2, 1.0), rotation_from_rpy(0.3, -0.4, 1.0)),
    ),
    "armature of a ball": lambda: single(Inertial(1.0, Pose(), BALL), "spherical", armature=0.3),
    "armature that floats": lambda: replace(
        rd.load_urdf(own("arm6"), base="floating"), tree_armature=np.linspace(0.1, 1.0, 12)
    ),
    "a name of Pinocchio's": lambda: single(Inertial(1.0, Pose(), BALL), name="universe"),
    "a name that is no text": lambda: single(Inertial(1.0, Pose(), BALL), name="j\udc80"),
    "a fast follower": lambda: rd.load_urdf(
        re.sub(r'multiplier="(-?)', r'multiplier="\g<1>300', own("gripper").read_text())
    ),
    "far away": lambda: single(Inertial(1.0, Pose((0.1, 0.2, 0.0)), BALL), origin=Pose((1e6, -1e6, 0.0))),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.some(of=3, rest="matrix")
def test_odd_models_that_are_right_are_sound(name: str) -> None:
    assert "identities" in assert_sound(ODD[name]())


@pytest.mark.parametrize("engine", ["scan", "reference", "cpu"])
def test_every_engine_can_be_asked(engine: str) -> None:
    model = rd.load_urdf(own("arm6"))
    for library, check in ASSERTS.items():
        require(library)
        check(model, engine=engine)


@pytest.mark.parametrize("link", range(8))
@pytest.mark.some(of=3, rest="matrix")
def test_every_link_is_looked_at(link: int) -> None:
    pin = pytest.importorskip("pinocchio")
    arm, theirs = rd.load_urdf(own("arm6")), pin.buildModelFromUrdf(str(own("arm6")))
    X = arm.link_X.copy()
    X[link, 9] += 1e-3
    with pytest.raises(AssertionError, match="places of links: off by"):
        assert_like_pinocchio(replace(arm, link_X=X), theirs)
    with pytest.raises(rd.ArgumentError, match=r"^pin_model: it lacks the links other"):
        assert_like_pinocchio(replace(arm, link_names=("other", *arm.link_names[1:])), theirs)
    with pytest.raises(rd.ArgumentError, match=r"^pin_model: got 3; wanted a pinocchio\.Model"):
        assert_like_pinocchio(arm, 3)


def test_small_robots_are_held_by_their_own_size() -> None:
    pytest.importorskip("pinocchio")

    def small(length: float) -> rd.Model:
        body = Inertial(1e-3, Pose((1e-3, 2e-3, 1e-3)), (1e-9, 0.0, 0.0, 1.2e-9, 0.0, 1.3e-9))
        joints = Joint("j", "revolute", "a", "b"), Joint("f", "fixed", "b", "t", origin=Pose((length, 0.0, 0.0)))
        return rd.build_model(RobotDescription("r", (Link("a"), Link("b", body), Link("t")), joints))

    assert_like_pinocchio(small(1e-3), dtype="float32")
    with pytest.raises(AssertionError, match="places of links"):
        assert_like_pinocchio(small(1.5e-3), pinocchio_model(small(1e-3)), dtype="float32")


@pytest.mark.parametrize("library", ["pinocchio", "mujoco"])
def test_something_else_of_that_name_is_not_asked(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, types.ModuleType(library))
    assert library not in assert_sound(rd.load_urdf(own("arm6")))


def test_a_robot_that_cannot_move_is_sound() -> None:
    rock = '<robot name="rock"><link name="rock"><inertial><mass value="1"/></inertial></link></robot>'
    assert "identities" in assert_sound(rd.load_urdf(rock))


@pytest.mark.matrix
def test_the_fixture(tmp_path: Path) -> None:
    """As a user has it: a conftest.py and a test of their own."""
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["robodyn.testing.fixtures"]\n')
    (tmp_path / "test_robot.py").write_text(
        "from dataclasses import replace\n\n"
        f"def test_good(assert_robot):\n    assert assert_robot({str(own('arm6'))!r}, base='floating').nv == 12\n\n"
        f"def test_bad(assert_robot):\n    assert_robot({str(own('massless_tip'))!r}, base='sideways')\n\n"
        f"def test_model(assert_robot):\n    model = assert_robot({str(own('arm6'))!r}, dtype='float32', seed=3)\n"
        "    assert_robot(model, base='floating')\n"
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert re.search(r"2 failed, 1 passed", done.stdout), done.stdout
    assert "base: got 'sideways'" in done.stdout


def test_models_agree_link_by_link() -> None:
    pin = pytest.importorskip("pinocchio")
    model = rd.load_urdf(own("quadruped"), base="floating")
    made = pinocchio_model(model)
    assert sorted(list(made.names)[1:]) == sorted(model.joint_names)
    assert {frame.name for frame in made.frames if frame.type == pin.FrameType.BODY} >= set(model.link_names)
    assert np.isclose(pin.computeTotalMass(made), model.total_mass)
