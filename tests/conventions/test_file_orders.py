"""The order that other libraries give the joints of a file, fixed joints between them, and which angles they write as a
cosine and a sine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import relative
from robots import SHARED

import robodyn as rd
from robodyn.description import FileTree

_INERTIAL = (
    '<inertial><origin xyz=".1 .2 .3"/><mass value="1"/>'
    '<inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>'
)
_LIMIT = '<limit lower="-1" upper="1" effort="1" velocity="1"/>'


def joint(name: str, kind: str, parent: str, child: str, limit: str = _LIMIT) -> str:
    return (
        f'<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/><axis xyz="0 1 0"/>'
        f"{limit}</joint>"
    )


def robot(links: Any, joints: list[str]) -> str:
    bodies = "".join(f'<link name="{each}">{_INERTIAL}</link>' for each in links)
    return f'<robot name="r">{bodies}{"".join(joints)}</robot>'


def random_robot(seed: int) -> str:
    """A tree of which two in five joints are fixed, joints and links in any order, names in none."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 12))
    links, names = ([f"{letter}{i}" for i in rng.permutation(100)] for letter in "Lj")
    joints = [
        joint(
            names[i],
            "fixed" if rng.random() < 0.4 else str(rng.choice(["revolute", "prismatic"])),
            links[int(rng.integers(0, i + 1))],
            links[i + 1],
        )
        for i in range(n)
    ]
    return robot(rng.permutation(links[: n + 1]), [joints[k] for k in rng.permutation(n)])


def pinocchios(text: str) -> tuple[str, ...]:
    pin = pytest.importorskip("pinocchio")
    return tuple(pin.buildModelFromXML(text).names)[1:]


def mujocos(text: str) -> tuple[str, ...]:
    mujoco = pytest.importorskip("mujoco")
    model = mujoco.MjModel.from_xml_string(text)
    return tuple(model.joint(j).name for j in range(model.njnt))


def drakes(text: str) -> tuple[str, ...]:
    plants = pytest.importorskip("pydrake.multibody.plant", reason="Drake is not installed")
    from pydrake.multibody.parsing import Parser

    plant, root = plants.MultibodyPlant(0.0), rd.read_urdf(text).root
    Parser(plant).AddModelsFromString(text, "urdf")
    plant.WeldFrames(plant.world_frame(), plant.GetFrameByName(root))
    plant.Finalize()
    joints = [plant.get_joint(index) for index in plant.GetJointIndices()]
    moving = sorted((each for each in joints if each.num_velocities()), key=lambda each: each.velocity_start())
    return tuple(each.name() for each in moving)


def bullets(text: str, folder: Any) -> tuple[str, ...]:
    bullet = pytest.importorskip("pybullet", reason="pybullet is not installed")
    client = bullet.connect(bullet.DIRECT)
    try:
        path = folder / "robot.urdf"
        path.write_text(text)
        body = bullet.loadURDF(str(path), useFixedBase=1, physicsClientId=client)
        told = [bullet.getJointInfo(body, j) for j in range(bullet.getNumJoints(body))]
        return tuple(each[1].decode() for each in told if each[2] != bullet.JOINT_FIXED)
    finally:
        bullet.disconnect(client)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("library", ["pinocchio", "mujoco", "drake", "pybullet"])
def test_orders_of_random_robots(library, tmp_path):
    theirs = {"pinocchio": pinocchios, "mujoco": mujocos, "drake": drakes}
    for seed in range(40):
        print(f"seed {seed}")
        text = random_robot(seed)
        model = rd.load_urdf(text)
        wanted = bullets(text, tmp_path) if library == "pybullet" else theirs[library](text)
        assert rd.converter(model, library).joint_names == wanted


_SDF_INERTIAL = "<inertial><mass>1</mass><inertia><ixx>1</ixx><iyy>1</iyy><izz>1</izz></inertia></inertial>"


def random_sdf(seed: int) -> str:
    """The links and joints of `random_robot` in SDF."""
    description = rd.read_urdf(random_robot(seed))
    links = "".join(f'<link name="{each.name}">{_SDF_INERTIAL}</link>' for each in description.links)
    axis = "<axis><xyz>0 1 0</xyz><limit><lower>-1</lower><upper>1</upper></limit></axis>"
    joints = "".join(
        f'<joint name="{each.name}" type="{each.type}"><parent>{each.parent}</parent><child>{each.child}</child>'
        f"{axis}</joint>"
        for each in description.joints
    )
    return f'<sdf version="1.7"><model name="r">{links}{joints}</model></sdf>'


@pytest.mark.filterwarnings("ignore")
def test_orders_of_sdf(tmp_path):
    plants = pytest.importorskip("pydrake.multibody.plant", reason="Drake is not installed")
    from pydrake.multibody.parsing import Parser

    for seed in range(20):
        print(f"seed {seed}")
        text = random_sdf(seed)
        plant = plants.MultibodyPlant(0.0)
        Parser(plant).AddModelsFromString(text, "sdf")
        plant.Finalize()
        joints = [plant.get_joint(index) for index in plant.GetJointIndices()]
        moving = sorted((each for each in joints if each.num_velocities() == 1), key=lambda each: each.velocity_start())
        found = rd.converter(rd.load_sdf(text, base="fixed"), "drake").joint_names
        assert found == tuple(each.name() for each in moving)
    with pytest.raises(rd.ArgumentError, match="the order that pinocchio gives joints of SDF is not known"):
        rd.converter(rd.load_sdf(text), "pinocchio")


def test_forces_where_fixed_joints_stand_between():
    pin = pytest.importorskip("pinocchio")
    text = robot(
        ("base", "left", "plate", "right"),
        [
            joint("z_fixed", "fixed", "base", "plate"),
            joint("a_right", "revolute", "plate", "right"),
            joint("m_left", "revolute", "base", "left"),
        ],
    ).replace('mass value="1"', 'mass value="5"', 1)
    model, theirs = rd.load_urdf(text), pin.buildModelFromXML(text)
    way, q, zero = rd.converter(model, "pinocchio"), np.array([0.3, -0.4]), np.zeros(2)
    tau = rd.Dynamics(model).inverse_dynamics(q, zero, zero)
    assert relative(way.tau_to(q, tau), pin.rnea(theirs, theirs.createData(), way.q_to(q), zero, zero)) < 1e-12


def test_orders_and_sizes_of_files():
    pin = pytest.importorskip("pinocchio")
    seen = 0
    for path in SHARED:
        try:
            model, theirs = rd.load_urdf(path, mimic="ignore"), pin.buildModelFromUrdf(str(path))
        except (rd.LoadError, ValueError, RuntimeError):
            continue
        way = rd.converter(model, "pinocchio")
        assert (way.joint_names, way.nq) == (tuple(theirs.names)[1:], theirs.nq), path
        seen += 1
    if not seen:
        pytest.skip("no shared robots here")


def test_angles_without_limits():
    """A cosine and a sine are Pinocchio's for URDF's continuous joints alone."""
    pin = pytest.importorskip("pinocchio")
    effort = '<limit effort="1" velocity="1"/>'
    text = robot("abc", [joint("r", "revolute", "a", "b", effort), joint("c", "continuous", "b", "c", effort)])
    assert rd.converter(rd.load_urdf(text), "pinocchio").nq == pin.buildModelFromXML(text).nq == 3


def test_robots_of_mujoco_in_pinocchio(tmp_path):
    """Pinocchio keeps the order of bodies of MJCF, and a hinge is an angle there."""
    pin = pytest.importorskip("pinocchio")
    pytest.importorskip("mujoco")
    text = """<mujoco><worldbody><body name="t"><freejoint name="root"/><geom size=".1"/>
      <body name="z"><joint name="z1"/><geom size=".1"/>
        <body name="z2"><joint name="y1"/><geom size=".1"/></body></body>
      <body name="st"><geom size=".1"/><body name="k"><joint name="k1"/><geom size=".1"/></body></body>
      <body name="a"><joint name="a1"/><geom size=".1"/></body></body></worldbody></mujoco>"""
    path = tmp_path / "robot.xml"
    path.write_text(text)
    theirs, way = pin.buildModelFromMJCF(str(path)), rd.converter(rd.load_mjcf(text), "pinocchio")
    assert (way.joint_names, way.nq) == (tuple(theirs.names)[1:], theirs.nq)


def test_pinocchios_own_models_keep_their_order():
    pin = pytest.importorskip("pinocchio")
    theirs = pin.Model()
    for name in ("b", "a"):
        theirs.addJoint(0, pin.JointModelRX(), pin.SE3.Identity(), name)
    assert rd.converter(rd.from_pinocchio(theirs), "pinocchio").joint_names == ("b", "a")


def test_what_is_not_known_is_asked_for():
    text = robot(
        "abcd", [joint("f", "fixed", "a", "b"), joint("x", "revolute", "b", "c"), joint("y", "revolute", "a", "d")]
    )
    model = rd.load_urdf(text)
    with pytest.raises(
        rd.ArgumentError, match="isaaclab3 depends on whether its importer merges them; wanted the names"
    ):
        rd.converter(model, "isaaclab3")
    assert rd.converter(model, "isaaclab3", joint_names=["y", "x"]).joint_names == ("y", "x")
    swapped = replace(model, parent=[-1, 0])
    with pytest.raises(rd.ArgumentError, match="are no longer those of its file, so the order of mujoco is not known"):
        rd.converter(swapped, "mujoco")
    assert rd.converter(replace(swapped, file_tree=None), "mujoco").joint_names == ("x", "y")


def test_edits_and_files_of_models(tmp_path):
    text = robot(
        "abcd", [joint("f", "fixed", "a", "b"), joint("x", "revolute", "b", "c"), joint("e", "revolute", "a", "d")]
    )
    model = rd.load_urdf(text)
    assert rd.converter(model, "pinocchio").joint_names == ("e", "x")
    model.save(tmp_path / "robot.npz")
    again = rd.load(tmp_path / "robot.npz")
    assert again.file_tree == model.file_tree and rd.converter(again, "pinocchio").joint_names == ("e", "x")
    renamed = replace(model, joint_names=("x", "g"))
    assert rd.converter(renamed, "pinocchio").joint_names == ("x", "g")
    with pytest.raises(rd.ArgumentError, match="are no longer those of its file"):
        rd.converter(model.lock({"x": None}), "pinocchio")
    assert rd.converter(model.lock({"x": None}), "pinocchio", joint_names=["e"]).nq == 1


def test_a_tree_of_a_file_is_checked():
    model = rd.load_urdf(robot("ab", [joint("x", "revolute", "a", "b")]))
    tree = model.file_tree
    assert tree == FileTree("urdf", ("x",), ("revolute",), (-1,), (0,))
    assert replace(model, file_tree=None) == model  # no result depends on it
    for wrong in (
        3,
        replace(tree, names=["x"]),
        replace(tree, carriers=(1,)),
        replace(tree, types=()),
        replace(tree, joints=("a",)),
    ):
        with pytest.raises(rd.ArgumentError, match=r"file_tree: got .*; wanted a robodyn.description.FileTree or None"):
            replace(model, file_tree=wrong)


def test_long_chains():
    n = 5_000
    links = [f"l{i}" for i in range(n + 1)]
    joints = [joint(f"j{i}", "fixed" if i % 2 else "revolute", links[i], links[i + 1]) for i in range(n)]
    model = rd.load_urdf(robot(links, joints))
    for library in ("pinocchio", "mujoco", "isaaclab3"):
        assert len(rd.converter(model, library).joint_names) == n // 2
