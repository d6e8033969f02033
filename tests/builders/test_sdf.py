"""SDF: the same robots as in URDF, as Drake reads them, and what is cut, turned, reported and refused."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import relative
from robots import own
from sdf_texts import POSE, axis, chain, joint, link, sdf

import robodyn as rd
from robodyn.core.findings import FINDINGS
from robodyn.io.builders.urdf import read_urdf

SMALL = 1e-12
"""Rounding of poses that are composed in another order."""

KINDS = {"helical": "screw", "spherical": "ball", "prismatic": "prismatic", "universal": "universal"}


def words(values: Any) -> str:
    return " ".join(map(repr, values))


def quaternion_pose(pose: Any, where: str = "") -> str:
    """A pose of a description, as SDF of version 1.9 may have it."""
    R = np.array(pose.rotation).reshape(3, 3)
    _, vectors = np.linalg.eigh(
        [
            [R[0, 0] - R[1, 1] - R[2, 2], R[0, 1] + R[1, 0], R[0, 2] + R[2, 0], R[2, 1] - R[1, 2]],
            [R[0, 1] + R[1, 0], R[1, 1] - R[0, 0] - R[2, 2], R[1, 2] + R[2, 1], R[0, 2] - R[2, 0]],
            [R[0, 2] + R[2, 0], R[1, 2] + R[2, 1], R[2, 2] - R[0, 0] - R[1, 1], R[1, 0] - R[0, 1]],
            [R[2, 1] - R[1, 2], R[0, 2] - R[2, 0], R[1, 0] - R[0, 1], R[0, 0] + R[1, 1] + R[2, 2]],
        ]
    )
    given = f' relative_to="{where}"' if where else ""
    return f'<pose rotation_format="quat_xyzw"{given}>{words([*pose.xyz, *map(float, vectors[:, -1])])}</pose>'


def as_sdf(description: rd.RobotDescription) -> str:
    """A description in SDF, its joints given in their parents' frames and its links in their joints'; links are called
    "name.link", since SDF has one space of names."""
    parts, mover = [], {each.child: each for each in description.joints}
    for each in description.links:
        inertial = "<inertial><mass>0</mass><inertia><ixx>0</ixx><iyy>0</iyy><izz>0</izz></inertia></inertial>"
        if each.inertial is not None:
            moments = zip(("ixx", "ixy", "ixz", "iyy", "iyz", "izz"), each.inertial.inertia, strict=True)
            inside = "".join(f"<{name}>{value!r}</{name}>" for name, value in moments)
            pose = quaternion_pose(each.inertial.pose)
            inertial = f"<inertial>{pose}<mass>{each.inertial.mass!r}</mass><inertia>{inside}</inertia></inertial>"
        place = f'<pose relative_to="{mover[each.name].name}"/>' if each.name in mover else ""
        parts.append(f'<link name="{each.name}.link">{place}{inertial}</link>')
    for each in description.joints:
        ends, kind = (f"{each.parent}.link", f"{each.child}.link"), KINDS.get(each.type, each.type)
        parts.append(joint(each.name, *ends, kind, quaternion_pose(each.origin, ends[0]), about(each)))
    return sdf(*parts, version="1.11", name=description.name)


def about(each: Any) -> str:
    """Axes, limits, damping and mimic of a joint of a description."""
    if each.type in ("fixed", "spherical"):
        return ""
    bounds = [-1e16 if each.limits.lower is None else each.limits.lower]
    bounds.append(1e16 if each.limits.upper is None else each.limits.upper)
    limits = f"<limit><lower>{bounds[0]!r}</lower><upper>{bounds[1]!r}</upper></limit>"
    dynamics = f"<dynamics><damping>{each.damping!r}</damping><friction>{each.friction!r}</friction></dynamics>"
    mimic = ""
    if each.mimic is not None:  # as if the leader's coordinate were counted from 0.25
        multiplier, offset = each.mimic.multiplier, each.mimic.offset
        mimic = f'<mimic joint="{each.mimic.joint}"><multiplier>{multiplier!r}</multiplier>'
        mimic += f"<offset>{offset + 0.25 * multiplier!r}</offset><reference>0.25</reference></mimic>"
    more = axis(words(each.axis), limits * (each.type != "continuous") + dynamics + mimic)
    if each.type == "helical":
        more += f"<screw_thread_pitch>{each.pitch * 2 * math.pi!r}</screw_thread_pitch>"
    return more + (axis(words(each.axis2), dynamics, tag="axis2") if each.type == "universal" else "")


@pytest.mark.parametrize("name", ["arm6", "arm7", "gripper", "humanoid", "massless_tip", "quadruped"])
@pytest.mark.parametrize("base", ["fixed", "floating"])
@pytest.mark.some(of=3, rest="matrix")
def test_the_same_robot_as_in_urdf(name, base):
    description = read_urdf(own(name))
    same(rd.load_urdf(own(name), base=base), rd.load_sdf(as_sdf(description), base=base))


def test_every_joint_that_urdf_and_sdf_have():
    kinds = ("revolute", "continuous", "prismatic", "helical", "universal", "spherical", "fixed")
    inertial = (
        '<inertial><origin xyz="0.1 0.2 0.3" rpy="1 2 3"/><mass value="1.5"/><inertia ixx="0.3" ixy="0.01" ixz="-0.02" '
        'iyy="0.25" iyz="0.03" izz="0.2"/></inertial>'
    )
    text = f'<robot name="r"><link name="l0">{inertial}</link>'
    for i, kind in enumerate(kinds, start=1):
        pitch = ' pitch="0.3"' if kind == "helical" else ""
        axes = "" if kind in ("fixed", "spherical") else f'<axis xyz="0.6 0 0.8"{pitch}/>'
        axes += '<axis2 xyz="0 1 0"/>' if kind == "universal" else ""
        text += (
            f'<link name="l{i}">{inertial}</link><joint name="j{i}" type="{kind}"><parent link="l{i - 1}"/>'
            f'<child link="l{i}"/><origin xyz="0.3 -0.1 0.2" rpy="0.3 0.2 {i}"/>{axes}</joint>'
        )
    text += "</robot>"
    same(rd.load_urdf(text), rd.load_sdf(as_sdf(read_urdf(text)), base="fixed"))


def same(ours: rd.Model, theirs: rd.Model) -> None:
    """Inverse dynamics, mass matrices and poses of links, whatever the joints to the world are called."""
    assert ours.nv == theirs.nv and [n for n in ours.joint_names if n != "root_joint"] == [
        n for n in theirs.joint_names if n in ours.joint_names
    ]
    rng, one, other = np.random.default_rng(0), rd.Dynamics(ours), rd.Dynamics(theirs)
    assert np.allclose(ours.lower, theirs.lower) and np.allclose(ours.damping, theirs.damping)
    for _ in range(3):
        q, qd, qdd = ours.random_configuration(rng), *rng.normal(size=(2, ours.nv))
        assert relative(other.inverse_dynamics(q, qd, qdd), one.inverse_dynamics(q, qd, qdd)) < SMALL
        assert relative(other.mass_matrix(q), one.mass_matrix(q)) < SMALL
        order = [theirs.link_names.index(f"{name}.link") for name in ours.link_names]
        assert relative(other.forward_kinematics(q)[order], one.forward_kinematics(q)) < SMALL


# Against Drake.

SHAPES = (
    "<box><size>1 2 3</size></box>",
    "<sphere><radius>0.5</radius></sphere>",
    "<cylinder><radius>0.5</radius><length>2</length></cylinder>",
    "<capsule><radius>0.5</radius><length>2</length></capsule>",
    "<ellipsoid><radii>0.5 1 2</radii></ellipsoid>",
    "<cone><radius>0.5</radius><length>2</length></cone>",
    "<cylinder/>",
)
"""Those whose inertia libsdformat computes; without sizes it takes 1 m."""

WHOLE = {
    "kinds": chain(["revolute", "prismatic", "screw", "universal", "continuous", "fixed", "revolute"]),
    "universal axes": sdf(
        link("a"),
        link("b", POSE),
        joint("w", "world", "a", "fixed"),
        joint("j", "a", "b", "universal", POSE, axis("1 2 0") + axis("0 0 1", tag="axis2")),
    ),
    "axes in the model's frame": chain(["revolute", "prismatic", "revolute"], version="1.4"),
    "poses with a frame": sdf(
        link("a", POSE),
        link("b", POSE.replace("<pose", '<pose frame="a"')),
        joint("j", "a", "b", pose=POSE),
        version="1.6",
    ),
    "use_parent_model_frame": sdf(
        link("a", POSE),
        link("b", POSE),
        joint("j", "a", "b", pose=POSE, more=axis("1 2 3", "<use_parent_model_frame>1</use_parent_model_frame>")),
        version="1.5",
    ),
    "expressed_in": sdf(
        link("a", POSE), link("b"), joint("j", "a", "b", pose=POSE, more=axis("1 2 3", expressed_in="a"))
    ),
    "degrees and quaternions": sdf(
        link("a", '<pose degrees="true">1 2 3 40 50 60</pose>'),
        link("b", '<pose rotation_format="quat_xyzw" relative_to="a">1 2 3 0.1 -0.7 0.1 0.7</pose>'),
        joint("j", "world", "b", pose=POSE),
        joint("k", "b", "a", "prismatic", POSE),
    ),
    "frames": sdf(
        link("a", POSE),
        link("b"),
        f'<frame name="f" attached_to="a">{POSE}</frame>',
        '<frame name="g" attached_to="f"><pose relative_to="b">1 0 0 0 0 1</pose></frame>',
        f'<frame name="h">{POSE}</frame>',
        joint("j", "g", "b", pose='<pose relative_to="f">1 2 3 0.1 0.2 0.3</pose>'),
    ),
    "pitches": sdf(
        link("a"),
        link("b", POSE),
        link("c"),
        joint("j", "a", "b", "screw", POSE, axis("1 2 3") + "<thread_pitch>3</thread_pitch>"),
        joint("k", "b", "c", "screw", POSE, axis("1 2 3") + "<screw_thread_pitch>0.7</screw_thread_pitch>"),
        version="1.11",
    ),
    "planar": sdf(
        link("a"),
        link("b", POSE),
        f'<frame name="f" attached_to="a">{POSE}</frame><frame name="g" attached_to="b">{POSE}</frame>',
        '<drake:joint name="p" type="planar"><drake:parent>f</drake:parent><drake:child>g</drake:child>'
        "<drake:damping>1 2 3</drake:damping></drake:joint>",
    ),
    "turned": sdf(
        link("a"), link("b", POSE), link("c"), joint("j", "a", "c", pose=POSE), joint("k", "b", "c", "prismatic", POSE)
    ),
    "turned from the world": sdf(
        link("a"),
        link("b", POSE),
        link("c"),
        joint("j", "b", "c", "prismatic", POSE),
        joint("s", "b", "a", "screw", POSE),
        joint("k", "world", "c", pose=POSE),
    ),
    "nested": sdf(
        POSE,
        link("a", POSE),
        '<model name="n" canonical_link="d" placement_frame="d"><pose relative_to="a">0 0 1 1 0 0</pose>',
        link("c", POSE),
        link("d", '<pose relative_to="c">1 2 3 1 2 3</pose>'),
        joint("q", "c", "d", pose='<pose relative_to="c">1 0 0 0 1 0</pose>'),
        "</model>",
        joint("j", "a", "n::c"),
        joint("i", "world", "n", pose=POSE),
    ),
    "placement_frame": sdf(
        link("a", POSE), link("b", POSE), POSE, joint("j", "a", "b", pose=POSE), model=' placement_frame="j"'
    ),
    "static": sdf("<static>true</static>", POSE, link("a", POSE), link("b", POSE)),
    "static without links": '<sdf version="1.9"><world name="w"><model name="marks"><static>1</static>'
    f'<frame name="a">{POSE}</frame></model><model name="cart"><pose relative_to="marks::a"/>{link("body", POSE)}'
    "</model></world></sdf>",
    "static without links, alone": sdf("<static>1</static>", POSE, '<frame name="a"/>'),
    "a world without models": '<sdf version="1.9"><world name="w"><light name="l" type="point"/></world></sdf>',
    "static around a model that moves": sdf(
        "<static>1</static>", POSE, link("a", POSE), f'<model name="n">{POSE}{link("x", POSE)}</model>'
    ),
    "static around models that it holds": sdf(
        "<static>1</static>",
        link("a", POSE),
        f'<model name="n">{POSE}{link("x", POSE)}{link("y")}{joint("j", "x", "y")}</model>',
        joint("h", "a", "n", "fixed"),
    ),
    "more than one where one is allowed": sdf(
        POSE,
        "<pose>1 2 3 0 0 0</pose><static>0</static><static>1</static>",
        link("a", POSE, more="<pose>1 0 0 0 0 0</pose><inertial><mass>7</mass></inertial>"),
        link("b"),
        link("c"),
        joint("j", "a", "b", more=f"{axis()}<parent>c</parent><child>c</child>{axis('0 1 0')}"),
    ),
    "commas in a pose": sdf(link("a", '<pose degrees="true">-0.05, 1.,\n 0.015, 0, 0, 90</pose>')),
    "inertias of shapes": sdf(
        *(
            f'<link name="l{i}"><inertial auto="{"1" if i else "true"}"><density>700</density></inertial>{each}</link>'
            for i, each in enumerate(
                f'<collision name="c">{POSE}<geometry>{shape}</geometry></collision>'
                f'<collision name="d"><density>{90 * i + 50}</density>'
                "<geometry><box><size>1 2 0.3</size></box></geometry></collision>"
                for i, shape in enumerate(SHAPES)
            )
        ),
        *(joint(f"j{i}", f"l{i - 1}", f"l{i}", pose=POSE) for i in range(1, 7)),
        version="1.11",
    ),
    "an inertia of shapes with a mass": sdf(
        f'<link name="a"><inertial auto="true"><mass>5</mass></inertial><collision name="c">{POSE}<geometry>'
        "<cone><radius>0.3</radius><length>0.8</length></cone></geometry></collision></link>",
        version="1.12",
    ),
    "static inside": sdf(
        link("a", POSE), f'<model name="n"><static>1</static>{link("b", POSE)}</model>', joint("j", "n::b", "a")
    ),
    "two models in a world": '<sdf version="1.10"><world name="w">'
    f'<model name="x">{POSE}{link("a")}</model><model name="y"><pose relative_to="x">1 2 3 4 5 6</pose>{link("a")}'
    f"{link('b', POSE)}{joint('j', 'a', 'b')}</model>{joint('w', 'x::a', 'y::b', 'fixed', POSE)}</world></sdf>",
}


def rig(name: str = "rig", canonical: str = ' canonical_link="arm"', more: str = "") -> str:
    """A nested model of two links, which by default is where its second one is."""
    parts = f"{link('foot', POSE)}{link('arm', FAR)}{joint('hinge', 'foot', 'arm')}"
    return f'<model name="{name}"{canonical}>{more}{parts}</model>'


FAR = "<pose>1 0.2 -0.5 0.6 0.2 -0.1</pose>"
MARK = '<frame name="mark"/>'
WITHOUT_LINKS = {
    "named by the nested model": (sdf(rig(), MARK), "rig::arm"),
    "named by nobody": (sdf(rig(canonical=""), MARK), "rig::foot"),
    "three deep": (
        sdf(
            f'<model name="b">{POSE}<model name="c">{FAR}{rig()}<frame name="f"/></model></model>',
            MARK,
            joint("h", "world", "b", "fixed"),
        ),
        "b::c::rig::arm",
    ),
    "named by the middle": (
        sdf(
            f'<model name="b" canonical_link="rig::foot">{rig()}</model>',
            MARK,
            joint("h", "world", "mark", "prismatic", POSE),
        ),
        "b::rig::foot",
    ),
    "named by itself": (sdf(rig(), MARK, model=' canonical_link="rig::foot"'), "rig::foot"),
    "the first in the file": (
        sdf(MARK, joint("k", "z", "a", pose=POSE), rig("z"), rig("a", ""), joint("h", "world", "z", "fixed")),
        "z::arm",
    ),
    "a link after it": (sdf(rig(), link("own", FAR), MARK, joint("k", "rig", "own", pose=POSE)), "own"),
    "attached to the model": (sdf(rig(), '<frame name="mark" attached_to="rig"/>'), "rig::arm"),
    "placed by a nested model": (
        sdf(POSE, rig(more=FAR), MARK, joint("h", "world", "mark", "fixed"), model=' placement_frame="rig"'),
        "rig::arm",
    ),
    "static first": (sdf(f'<model name="s"><static>1</static>{link("x", POSE)}</model>', rig(), MARK), "s::x"),
}
"""Models whose frame moves with a link of a nested one, and that link."""
WHOLE |= {f"without links, {name}": text for name, (text, _) in WITHOUT_LINKS.items()}


@pytest.mark.parametrize("name", WITHOUT_LINKS)
def test_a_model_without_links_stands_with_its_first_nested_one(name):
    """SDF: the canonical link of its first nested model, which may name it. Drake agrees, below."""
    text, canonical = WITHOUT_LINKS[name]
    model = rd.load_sdf(text)
    bodies = dict(zip(model.link_names, model.link_body.tolist(), strict=True))
    assert bodies["mark"] == bodies[canonical] and len(set(bodies.values())) > 1


def test_a_nested_model_is_held_by_its_canonical_link():
    """The arm is held, and the foot hangs on it: its inertia, 0.1 kg m^2, and 2 kg in a distance of 0.5 m."""
    foot = "<inertial><mass>2</mass><inertia><ixx>0.1</ixx><iyy>0.1</iyy><izz>0.1</izz></inertia></inertial>"
    text = sdf(
        f'<model name="rig" canonical_link="arm"><link name="foot">{foot}</link>',
        f"{link('arm', '<pose>0 0 0.5 0 0 0</pose>')}{joint('hinge', 'foot', 'arm', more=axis('0 1 0'))}</model>",
        joint("hold", "world", "__model__", "fixed"),
    )
    dyn, q = rd.Dynamics(rd.load_sdf(text, gravity=(0, 0, -9.81)), engine="reference"), np.array([0.3])
    assert relative(dyn.mass_matrix(q), [[0.1 + 2 * 0.5**2]]) < SMALL
    assert relative(dyn.gravity_force(q), [2 * 9.81 * 0.5 * np.sin(0.3)]) < SMALL


@pytest.mark.parametrize("name", WHOLE)
def test_what_drake_makes_of_it(name):
    """Frames that are attached to joints are not among these: Drake puts them where the joint's child is."""
    pytest.importorskip("pydrake")
    from drake_oracle import DOWN, errors

    found = errors(WHOLE[name], rd.load_sdf(WHOLE[name], gravity=DOWN))
    assert max(found.values()) < SMALL, found


def wheels() -> list[Path]:
    """SDF files of the folders where Drake and PyBullet are."""
    specs = [importlib.util.find_spec(name) for name in ("pydrake", "pybullet_data")]
    places = [Path(place) for spec in specs if spec is not None for place in spec.submodule_search_locations or ()]
    return sorted(path for place in places for path in place.rglob("*.sdf"))


@pytest.mark.parametrize("path", wheels() or [None], ids=lambda path: path and path.stem)
def test_files_that_drake_reads(path):
    pytest.importorskip("pydrake")
    from drake_oracle import DOWN, errors, readable

    try:
        text, _ = readable(path)
    except RuntimeError as error:
        pytest.skip(f"Drake does not read it: {str(error)[:60]}")
    found = errors(text, rd.load_sdf(text, gravity=DOWN))
    assert max(found.values()) < SMALL, found


def test_ball_joints_by_kinetic_energy_in_drake():
    """Drake's coordinates of a ball joint are three angles, its velocity is the child's in the parent's frame."""
    pytest.importorskip("pydrake")
    from drake_oracle import plant_of
    from scipy.spatial.transform import Rotation

    text = sdf(link("a"), link("b", POSE), joint("w", "world", "a", "fixed"), joint("j", "a", "b", "ball", POSE))
    plant, model, rng = plant_of(text), rd.load_sdf(text), np.random.default_rng(0)
    context, dyn = plant.CreateDefaultContext(), rd.Dynamics(model)
    for _ in range(3):
        q, v = model.random_configuration(rng), rng.normal(size=3)
        turn = Rotation.from_quat(q)
        plant.SetPositions(context, turn.as_euler("xyz"))
        plant.SetVelocities(context, turn.apply(v))
        body = plant.EvalBodyPoseInWorld(context, plant.GetBodyByName("b")).GetAsMatrix4()
        assert relative(dyn.forward_kinematics(q)[model.link_names.index("b")], body) < SMALL
        assert relative(dyn.kinetic_energy(q, v), plant.CalcKineticEnergy(context)) < SMALL


# What is ours alone.


def test_the_root_is_the_world_and_a_free_link_floats():
    model = rd.load_sdf(sdf(POSE, link("a"), link("b", POSE), joint("j", "a", "b")))
    assert model.link_names[0] == "world" and model.joint_names == ("a", "j") and (model.nq, model.nv) == (8, 7)
    assert "sdf-initial-pose" in codes(model) and np.array_equal(model.gravity, [0.0, 0.0, -9.81])
    fixed = rd.load_sdf(sdf(POSE, link("a"), link("b", POSE), joint("j", "a", "b")), base="fixed")
    pose = rd.Dynamics(fixed).forward_kinematics(fixed.neutral())[fixed.link_names.index("a")]
    assert fixed.nv == 1 and np.allclose(pose[:3, 3], [0.3, -0.1, 0.5])
    static = sdf("<static>1</static>", link("a"))
    assert rd.load_sdf(static).nv == 0 and rd.load_sdf(static, base="floating").nv == 6


LOOP = (link("a"), link("b", POSE), link("c"), link("d"))
HINGES = [joint(f"j{i}", one, other, pose=POSE) for i, (one, other) in enumerate(["ab", "bc", "cd", "ad", "db"])]


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4), (3, 4, 0, 2, 1), (4, 3, 2, 1, 0)])
def test_loops_are_cut_in_the_files_order(order):
    """The tree is that of a file without the joints that are cut, and each of those is named."""
    joints = [HINGES[i] for i in order]
    model = rd.load_sdf(sdf(*LOOP, *joints))
    (cut,) = [each for each in model.report if each.code == "sdf-loop"]
    kept = [f"j{i}" for i in order if f'joint "j{i}"' not in cut.elements]
    assert cut.severity == "info" and len(cut.elements) == 2 and len(kept) == 3
    assert f'joint "j{order[0]}"' not in cut.elements
    tree = rd.load_sdf(sdf(*LOOP, *(HINGES[i] for i in order if f"j{i}" in kept)))
    assert model.joint_names == tree.joint_names
    for name in ("Xtree", "inertia", "parent"):
        assert np.array_equal(getattr(model, name), getattr(tree, name))
    assert [f'joint "{each.name}"' for each in model.constraints] == list(cut.elements)


@pytest.mark.filterwarnings("ignore::robodyn.internals.errors.RedundantWarning")
def test_loops_of_floating_robots_move_alike_wherever_they_are_cut():
    """A ring that tumbles: accelerations of its links, its momentum, and a rollout that stays closed."""
    found, cuts = [], set()
    for order in ((0, 1, 2, 3), (3, 2, 0, 1), (1, 3, 2, 0), (0, 1, 3, 2)):
        model = rd.load_sdf(sdf(*LOOP, *(HINGES[i] for i in order)), base="floating")
        assert model.joint_names[0] == "a" and len(model.constraints) == 1
        cuts.add(model.constraints[0].name)
        dyn = rd.Dynamics(model, engine="reference")
        q, qd = model.neutral(), np.zeros(model.nv)
        qd[:6] = [0.3, -0.2, 0.5, 2.0, -3.0, 1.5]
        phi, phidot = dyn.constraint_residual(q, qd)
        assert max(np.abs(phi).max(), np.abs(phidot).max()) < SMALL
        qdd, lam = dyn.constrained_forward_dynamics(q, qd, np.zeros(model.nv))
        assert np.abs(lam).max() > 1e-2, "the ring is stretched"
        weight = np.concatenate((np.zeros(3), model.total_mass * model.gravity))
        assert np.abs(dyn.centroidal_momentum_rate(q, qd, qdd) - weight).max() < 1e-9
        found.append([dyn.link_acceleration(q, qd, qdd, name) for name in "abcd"])
        motion = dyn.rollout(q, qd, dt=1e-3, steps=5)
        assert np.abs(np.stack(dyn.constraint_residual(motion.q, motion.qd))).max() < 1e-12
    assert len(cuts) > 2
    for each in found[1:]:
        assert relative(np.array(each), np.array(found[0])) < 1e-9


def test_a_joint_between_frames_of_one_link_and_a_gearbox_are_cut():
    text = sdf(
        *LOOP[:2],
        '<frame name="f" attached_to="a"/>',
        HINGES[0],
        joint("self", "f", "a"),
        joint("gear", "a", "b", "gearbox", more="<gearbox_ratio>3</gearbox_ratio>"),
        "<drake:ball_constraint><drake:ball_constraint_body_A>a</drake:ball_constraint_body_A></drake:ball_constraint>",
    )
    model = rd.load_sdf(text)
    named = {name for each in model.report if each.code == "sdf-loop" for name in each.elements}
    assert {each.severity for each in model.report if each.code == "sdf-loop"} == {"warning"} and not model.constraints
    assert model.joint_names == ("a", "j0") and named == {'joint "self"', 'joint "gear"'}
    assert "sdf-constraint" in codes(model)


def test_turned_joints_of_several_coordinates():
    """What a file passes from b to c is passed from c to b: the same motions, coordinates of the way back."""
    for kind in ("ball", "universal"):
        more = axis("1 0 0") + axis("0 1 1", tag="axis2") if kind == "universal" else ""
        parts = (link("b", POSE), link("c"), joint("w", "world", "c", "fixed"))
        turned = rd.load_sdf(sdf(*parts, joint("j", "b", "c", kind, POSE, more)))
        assert "sdf-turned-joint" in codes(turned)
        held = joint("j", "b", "c", kind, POSE, more)
        straight = rd.load_sdf(sdf(*parts[:2], joint("w", "world", "b", "fixed"), held))
        q = straight.random_configuration(1)
        poses = rd.Dynamics(straight).forward_kinematics(q)
        b, c = (poses[straight.link_names.index(name)] for name in "bc")
        back = q * [-1, -1, -1, 1] if kind == "ball" else q[::-1]
        assert straight.joint_names != turned.joint_names or kind == "ball"
        found = rd.Dynamics(turned).forward_kinematics(back)
        rest = rd.Dynamics(straight).forward_kinematics(straight.neutral())
        at = {name: found[turned.link_names.index(name)] for name in "bc"}
        assert relative(np.linalg.inv(at["c"]) @ at["b"], np.linalg.inv(c) @ b) < SMALL
        assert relative(at["c"], rest[straight.link_names.index("c")]) < SMALL


def test_revolute2_is_two_joints_with_their_own_limits():
    limit = "<limit><lower>-{0}</lower><upper>{0}</upper><effort>{0}</effort><velocity>-1</velocity></limit>"
    dynamics = "<dynamics><damping>{0}</damping><friction>0</friction></dynamics>"
    more = "".join(axis("0 0 1", limit.format(k) + dynamics.format(k), tag) for k, tag in ((1, "axis"), (2, "axis2")))
    model = rd.load_sdf(sdf(link("a"), link("b"), joint("j", "a", "b", "revolute2", POSE, more)), base="fixed")
    assert model.joint_names == ("j/1", "j/2") and model.link_names == ("world", "a", "b", "j/1", "j/2")
    assert np.array_equal(model.upper, [1, 2]) and np.array_equal(model.damping, [1, 2])
    assert np.array_equal(model.tree_effort, [1, 2]) and np.isinf(model.tree_velocity).all()
    dyn = rd.Dynamics(model)  # parallel axes: both turn b alike
    q, qdd = np.array([0.3, 0.4]), np.array([1.0, 2.0])
    once = rd.Dynamics(
        rd.load_sdf(sdf(link("a"), link("b"), joint("j", "a", "b", pose=POSE, more=axis())), base="fixed")
    )
    tau = once.inverse_dynamics([0.7], [0.0], [3.0])
    assert relative(dyn.inverse_dynamics(q, np.zeros(2), qdd), np.repeat(tau, 2)) < SMALL


@pytest.mark.parametrize(
    ("kind", "one", "other", "message"),
    [
        ("universal", axis("0 0 1"), axis("0 1 0", tag="axis2"), None),
        ("universal", axis("0.707 0 0.707"), axis("-0.7071 0.001 0.7071", tag="axis2"), None),
        ("universal", axis("0 0 1"), axis("0 1 1", tag="axis2"), "meet at 45 degrees, not 90; used as given"),
        ("universal", axis("0 0 1"), axis("0 3 -4", tag="axis2"), "meet at 143.1 degrees, not 90; used as given"),
        ("universal", "<axis/>", "<axis2/>", "meet at 0 degrees, not 90; both turn alike"),
        ("universal", axis("0 0 1"), axis("0 0 -1", tag="axis2"), "meet at 180 degrees, not 90; both turn alike"),
        ("universal", axis("0 0 1"), axis("0 0 1", tag="axis2", expressed_in="b"), "meet at 30 degrees, not 90; used"),
        ("revolute2", axis("0 0 1"), axis("0 1 1", tag="axis2"), None),
        ("revolute2", axis("0 0 1"), axis("0 0 2", tag="axis2"), "meet at 0 degrees, not 90; both turn alike"),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_the_angle_of_two_axes(kind, one, other, message, turned):
    """The joint's frame is a's, and b is turned about x by 30 degrees."""
    pose = f"<pose relative_to='__model__'/>{one}{other}"
    b = link("b", "<pose degrees='true'>0 0 1 30 0 0</pose>")
    held = joint("w", "world", "b" if turned else "a", "fixed")
    model = rd.load_sdf(sdf(link("a"), b, joint("j", "a", "b", kind, more=pose), held))
    found = [each for each in model.report if each.code == "axes-not-perpendicular"]
    assert [(each.severity, each.elements) for each in found] == ([("warning", ('joint "j"',))] if message else [])
    assert not message or message in found[0].message
    assert (rd.Dynamics(model).singularity() is not None) == bool(message and "both turn" in message)


def test_defaults_of_sdf():
    model = rd.load_sdf('<sdf version="1.9"><model name="m"><link name="a"/></model></sdf>')
    assert np.array_equal(model.inertia[0], [1, 0, 0, 0, 1, 0, 0, 1, 0, 1]) and "sdf-default-inertial" in codes(model)
    given = sdf(link("a", mass=2.0))
    assert "sdf-default-inertial" not in codes(rd.load_sdf(given))
    part = sdf('<link name="a"><inertial><mass>3</mass><inertia><ixx>2</ixx></inertia></inertial></link>')
    (found,) = [each for each in rd.load_sdf(part).report if each.code == "sdf-default-inertial"]
    assert "<iyy>, <izz>" in found.message and np.array_equal(rd.load_sdf(part).inertia[0, 4:], [2, 0, 0, 1, 0, 1])
    world = '<sdf version="1.9"><world name="w">{}<model name="m"><link name="a"/></model></world></sdf>'
    assert np.array_equal(rd.load_sdf(world.format("")).gravity, [0, 0, -9.8])
    assert np.array_equal(rd.load_sdf(world.format("<gravity>0 1 -3</gravity>")).gravity, [0, 1, -3])
    old = world.format("<physics><gravity>0 0 -1</gravity></physics>")
    assert np.array_equal(rd.load_sdf(old.replace("1.9", "1.5")).gravity, [0, 0, -1])
    assert np.array_equal(rd.load_sdf(old).gravity, [0, 0, -9.8])
    assert np.array_equal(rd.load_sdf(world.format(""), gravity=(1, 0, 0)).gravity, [1, 0, 0])


@pytest.mark.parametrize(
    ("inertial", "message"),
    [
        (None, "without <inertial>: SDF's defaults are used, 1 kg and moments of 1 kg m^2"),
        ("", "without <inertia>, <mass>: SDF's defaults are used, 1 kg and moments of 1 kg m^2"),
        ("<mass>2</mass>", "without <inertia>: SDF's defaults are used, moments of 1 kg m^2"),
        ("<mass/><inertia><ixx>3</ixx><iyy>3</iyy><izz>3</izz></inertia>",
         "without <mass>: SDF's defaults are used, 1 kg"),
        ("<mass>2</mass><inertia><ixx>3</ixx><iyy> </iyy><izz>3</izz></inertia>",
         "without <iyy>: SDF's defaults are used, moments of 1 kg m^2"),
        ("<mass>2</mass><inertia><ixx>3</ixx><iyy>3</iyy><izz>3</izz></inertia>", None),
    ],
)  # fmt: skip
def test_the_defaults_that_are_used_are_named_alone(inertial, message):
    text = "" if inertial is None else f"<inertial>{inertial}</inertial>"
    report = rd.load_sdf(sdf(f'<link name="a">{text}</link>')).report
    assert [each.message for each in report if each.code == "sdf-default-inertial"] == ([message] if message else [])


@pytest.mark.parametrize("where", ["inertial", "collision", "nowhere"])
def test_a_density_counts_with_auto_alone(where):
    density = "<density>2700</density>"
    shape = f'<collision name="c">{density if where == "collision" else ""}<geometry><box/></geometry></collision>'
    inside = density if where == "inertial" else ""
    given = "<mass>2</mass><inertia><ixx>3</ixx><iyy>3</iyy><izz>3</izz></inertia>"
    for inertial, severity, mass in (
        (f"<inertial>{inside}</inertial>", "warning", 1.0),
        (f"<inertial>{given}{inside}</inertial>", "info", 2.0),
        (f'<inertial auto="true">{inside}</inertial>', None, 1000.0 if where == "nowhere" else 2700.0),
    ):
        model = rd.load_sdf(sdf(f'<link name="a">{inertial}{shape}</link>', version="1.11"))
        said = [each.severity for each in model.report if each.code == "sdf-density-not-used"]
        assert said == ([severity] if severity and where != "nowhere" else [])
        assert relative(model.total_mass, mass) < SMALL


def test_models_are_named_and_chosen():
    text = (
        '<sdf version="1.9"><world name="w"><include><uri>model://sun</uri></include>'
        f'<model name="x">{link("a")}{link("b")}{joint("j", "a", "b")}</model>'
        f'<model name="y">{link("a")}</model></world></sdf>'
    )
    with pytest.raises(rd.LoadError, match=r"model://sun.*not found: no folder is given"):
        rd.load_sdf(text)
    alone = rd.load_sdf(text, model="x")
    assert alone.name == "x" and alone.link_names == ("world", "a", "b")
    both = rd.load_sdf(text.replace("<include><uri>model://sun</uri></include>", ""))
    assert both.name == "w" and both.joint_names == ("x::a", "y::a", "x::j")
    assert "sdf-constraint" in codes(rd.load_sdf(WHOLE["two models in a world"], model="x"))
    with pytest.raises(rd.LoadError, match='no model "z" in the file; there are "x", "y"'):
        rd.load_sdf(text.replace("<include><uri>model://sun</uri></include>", ""), model="z")


def test_several_models_without_a_world_are_loaded_and_named():
    """SDF allows one: Drake refuses the file, older versions of libsdformat take the first."""
    two = '<model name="x"><link name="a"/></model>\n<model name="y"><link name="a"/></model>'
    for text, models in ((two, ()), (f'{two}<model name="z">{link("b")}</model>', ('model "z"',))):
        model = rd.load_sdf(f'<sdf version="1.9">{text}</sdf>')
        assert model.link_names[1:3] == ("x::a", "y::a")
        (found,) = [each for each in model.report if each.code == "sdf-several-models"]
        assert found.severity == "warning" and found.elements == ('model "y"', *models) and found.line == 2
    assert "sdf-several-models" not in codes(rd.load_sdf(f'<sdf version="1.9">{two}</sdf>', model="y"))
    assert "sdf-several-models" not in codes(rd.load_sdf(f'<sdf version="1.9"><world name="w">{two}</world></sdf>'))


def test_the_world_and_its_only_model_are_scopes_of_their_own():
    """What is only in the model goes without its name, as in files where nothing is called alike."""
    inner = f'<model name="cart">{link("mark")}</model>'  # its full name is that which the model's own has got
    parts = f'{link("body")}{link("arm")}<frame name="mark" attached_to="arm">{POSE}</frame>'
    joints = f"{joint('j', 'body', 'arm', pose=POSE)}{joint('k', 'arm', 'cart::mark', 'fixed')}"
    beside = f'<frame name="mark"><pose>1 0 0 0 0 0</pose></frame>{joint("j", "mark", "cart::body", "prismatic")}'
    text = f'<sdf version="1.9"><world name="w">{beside}<model name="cart">{{}}</model></world></sdf>'
    model = rd.load_sdf(text.format(parts + joints.replace(joint("k", "arm", "cart::mark", "fixed"), "")))
    assert {name for name in model.link_names if not name.endswith("/1")} == {
        "world",
        "body",
        "arm",
        "mark",
        "cart::mark",
    }
    assert set(model.joint_names) == {"j", "cart::j"}
    bodies = dict(zip(model.link_names, model.link_body.tolist(), strict=True))
    assert bodies["mark"] == -1 and bodies["cart::mark"] == bodies["arm"] >= 0
    pose = rd.Dynamics(model).forward_kinematics(model.neutral())[model.link_names.index("mark")]
    assert np.array_equal(pose[:3, 3], [1, 0, 0])
    deep = rd.load_sdf(text.format(inner + parts + joints))
    assert {"mark", "cart::mark", "cart::cart::mark"} <= set(deep.link_names)


GEARED = [
    link("ground"),
    link("wheel", "<pose>1 0 0 0.3 0 0</pose>"),
    link("pinion", "<pose>0 1 0 0 1.57 0</pose>"),
    joint("w", "world", "ground", "fixed"),
]


@pytest.mark.parametrize("ratio", [3.0, -0.5])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("reference", ["ground", "world"])
def test_gearboxes_couple_joints(ratio, turned, reference):
    """theta_2 = -ratio theta_1, from the reference body to parent and child, about the gearbox's axes: with inertias
    about the axes I_1 and I_2 a torque on the first gives it tau / (I_1 + ratio^2 I_2)."""
    up, ends = "0 0 1", ("wheel", "ground") if turned else ("ground", "wheel")
    parts = [
        joint("first", *ends, more=axis(up, expressed_in="__model__")),
        joint("second", "ground", "pinion", more=axis("1 0 0", expressed_in="pinion")),
        joint("gear", "wheel", "pinion", "gearbox", more=axis(up, expressed_in="__model__")
              + axis(up, tag="axis2", expressed_in="__model__") + f"<gearbox_ratio>{ratio}</gearbox_ratio>"
              f"<gearbox_reference_body>{reference}</gearbox_reference_body>"),
    ]  # fmt: skip
    model = rd.load_sdf(sdf(*GEARED, *parts), gravity=(0, 0, 0))
    assert model.joint_names == ("first", "second") and model.constraints[0].name == "gear"
    (found,) = [each for each in model.report if each.code == "sdf-loop"]
    assert found.severity == "info" and found.elements == ('joint "gear"',)
    dyn, q, qd = rd.Dynamics(model, engine="reference"), np.zeros(2), np.zeros(2)
    H = dyn.mass_matrix(q)
    assert H[0, 1] == 0.0
    qdd, _ = dyn.constrained_forward_dynamics(q, qd, np.array([2.0, 0.0]))
    # theta_1 is q_1, turned -q_1. theta_2 is -q_2: the pinion's axis is down, but for the digits of 1.57.
    slope = ratio * (-1 if turned else 1)
    wanted = 2.0 / (H[0, 0] + slope**2 * H[1, 1])
    assert relative(qdd, np.array([wanted, slope * wanted])) < 1e-9


def test_gearboxes_that_no_joints_can_have_are_left_out():
    def gear(more: str, one: str = "wheel", other: str = "wheel") -> str:
        axes = axis("1 2 -2", expressed_in=one) + axis("1 2 -2", tag="axis2", expressed_in=other)
        return joint("g", "wheel", "pinion", "gearbox", more=axes + more)

    first, named = joint("first", "ground", "wheel"), "<gearbox_reference_body>ground</gearbox_reference_body>"
    second = joint("second", "ground", "pinion")
    cases = {
        "does not say its <gearbox_reference_body>;": first + second + gear("", other="pinion"),
        "does not say its <axis> and <axis2>;": first + second + joint("g", "wheel", "pinion", "gearbox", more=named),
        "does not say its <axis2>;": first + second + joint("g", "wheel", "pinion", "gearbox", more=named + axis()),
        "not those of the joints": first + second + gear(named),
        "no single joint": first + joint("k", "wheel", "pinion") + gear(named),
        "both of its links": first + joint("k", "wheel", "pinion", "prismatic") + gear(named),
    }
    for message, text in cases.items():
        model = rd.load_sdf(sdf(*GEARED, text))
        (found,) = [each for each in model.report if each.code == "sdf-loop"]
        assert message in found.message and found.severity == "warning" and not model.constraints
        assert "axis-not-used" not in codes(model)


def test_mimics_of_axes_and_of_drake():
    follow = '<mimic joint="j" axis="axis2"><multiplier>2</multiplier><offset>1</offset><reference>0.5</reference>'
    follow += "</mimic>"
    more = axis("1 0 0") + axis("0 1 0", tag="axis2")
    links = (link("a"), link("b"), link("c"), joint("j", "a", "b", "universal", more=more))
    model = rd.load_sdf(sdf(*links, joint("k", "b", "c", more=axis("0 0 1", follow)), version="1.11"), base="fixed")
    assert model.nv == 2 and np.allclose(model.tree_coordinates([0.1, 0.7]), [0.1, 0.7, 2 * (0.7 - 0.5) + 1])
    free = rd.load_sdf(sdf(*links, joint("k", "b", "c", more=axis("0 0 1", follow))), base="fixed", mimic="ignore")
    assert free.nv == 3
    drakes = axis() + '<drake:mimic joint="i" multiplier="3" offset="1"/>'
    links = (link("a"), link("b"), link("c"), joint("i", "a", "b", more=axis()))
    model = rd.load_sdf(sdf(*links, joint("k", "b", "c", more=drakes)), base="fixed")
    assert np.allclose(model.tree_coordinates([0.1]), [0.1, 1.3])
    cut = joint("z", "b", "a", more=axis()), joint("k", "b", "c", more=axis("0 0 1", '<mimic joint="z"/>'))
    model = rd.load_sdf(sdf(*links, *cut), base="fixed")
    assert model.nv == 2 and {"sdf-loop", "sdf-constraint"} <= codes(model)


def test_rotors_and_dampings_of_drake():
    rotor = "<drake:rotor_inertia>0.2</drake:rotor_inertia><drake:gear_ratio>3</drake:gear_ratio>"
    model = rd.load_sdf(sdf(link("a"), link("b"), joint("j", "a", "b", more=axis() + rotor)), base="fixed")
    assert np.allclose(model.armature, [1.8]) and "armature-from-rotor" in codes(model)
    assert np.array_equal(rd.load_sdf(WHOLE["planar"], base="fixed").damping, [1, 2, 3])


def test_frames_are_links():
    model = rd.load_sdf(WHOLE["frames"], base="fixed")
    assert {"f", "g", "h"} <= set(model.link_names) and rd.Dynamics(model).jacobian(model.neutral(), "g").shape == (
        6,
        1,
    )
    # The frame of a joint is where its child is joined.
    text = sdf(
        link("a"), link("b"), joint("j", "a", "b", pose="<pose>1 2 3 0 0 0</pose>"), '<frame name="f" attached_to="j"/>'
    )
    model = rd.load_sdf(text, base="fixed")
    pose = rd.Dynamics(model).forward_kinematics([0.7])[model.link_names.index("f")]
    assert np.allclose(pose[:3, 3], [1, 2, 3])


def old(text: str) -> str:
    """A file as SDF of version 1.2 had it."""
    return text.replace("<sdf", "<gazebo").replace("</sdf>", "</gazebo>")


def test_the_root_of_old_versions(tmp_path):
    """Until version 1.2 it was <gazebo>. That of URDF, which has no version, is none; versions before 1.2 differ."""
    parts = link("a"), link("b", POSE), joint("j", "a", "b", pose=POSE)
    text = sdf(*parts, version="1.2")
    model = rd.load(old(text))
    for name in ("Xtree", "inertia", "parent"):
        assert np.array_equal(getattr(model, name), getattr(rd.load_sdf(text), name))
    (found,) = [each for each in model.report if each.code == "sdf-old-root"]
    assert found.severity == "info" and "sdf-old-root" not in codes(rd.load_sdf(text))
    (tmp_path / "part.sdf").write_text(old(text))
    path = tmp_path / "robot.sdf"
    path.write_text(sdf("<include><uri>part.sdf</uri></include>", link("c")))
    assert {"m::a", "m::b", "c"} <= set(rd.load_sdf(path).link_names) and "sdf-old-root" in codes(rd.load_sdf(path))
    urdfs = "<gazebo><static>true</static></gazebo>"
    (tmp_path / "part.sdf").write_text(urdfs)
    for source in (urdfs, path):
        with pytest.raises(rd.LoadError, match=r'root element is "gazebo", and has no version.*<robot>'):
            rd.load(source)
    with pytest.raises(rd.LoadError, match=r'its version is "1.0"; wanted 1.2 to 1.12'):
        rd.load_sdf(old(sdf(*parts, version="1.0")))
    with pytest.raises(rd.LoadError, match=r'root element is "model", not "sdf"'):
        rd.load_sdf('<model version="1.2"/>')
    with pytest.raises(rd.LoadError, match=r"it is old SDF: give it to robodyn\.load_sdf"):
        rd.load_urdf(old(text))


def test_names_of_old_versions():
    """Until version 1.6 a joint could be called like a link."""
    text = sdf(link("a"), link("b"), joint("b", "a", "b"), version="1.6")
    assert rd.load_sdf(text, base="fixed").joint_names == ("b",)
    assert rd.load_sdf(text.replace(link("b"), "").replace("</model>", link("b") + "</model>"), base="fixed").nv == 1
    with pytest.raises(rd.LoadError, match=r'joint "b" .*the name is that of something else'):
        rd.load_sdf(text.replace("1.6", "1.7"))


def test_every_finding_is_reached(tmp_path):
    text = sdf(
        POSE,
        link("a", more="<gravity>false</gravity><kinematic>1</kinematic><visual name='v'><geometry/></visual>"),
        '<link name="d"><inertial auto="1"><pose/></inertial><collision><geometry><box/></geometry></collision></link>',
        '<link name="b"><inertial><fluid_added_mass><xx>1</xx></fluid_added_mass><density>7</density></inertial>'
        "</link>",
        link("c"),
        joint("j", "b", "a", more=axis("0 0 1", "<dynamics><spring_stiffness>3</spring_stiffness></dynamics>")),
        joint("k", "a", "b"),
        joint("w", "world", "a", "fixed"),
        "<drake:linear_bushing_rpy/><pose/>",
        f'<model name="still"><static>1</static>{link("x")}{link("y")}{joint("z", "x", "y")}'
        f'<model name="loose">{link("l")}</model></model>',
        "<include><uri>sun.sdf</uri></include>",
    )
    (tmp_path / "sun.sdf").write_text('<sdf version="1.9"><light name="sun" type="point"/></sdf>')
    wanted = {code for code in FINDINGS if code.startswith("sdf-")} | {"repeated-tag"}
    path = tmp_path / "robot.sdf"
    path.write_text(old(text).replace("</gazebo>", f'<model name="n">{link("a")}</model></gazebo>'))
    assert wanted <= codes(rd.load_sdf(path))


def test_every_source(tmp_path):
    path = tmp_path / "robot.sdf"
    path.write_text(WHOLE["kinds"])
    wanted = rd.load_sdf(WHOLE["kinds"])
    with path.open() as file:
        for source in (path, str(path), WHOLE["kinds"].encode(), WHOLE["kinds"].encode("utf-16"), file):
            assert rd.load_sdf(source).joint_names == wanted.joint_names
    with path.open("rb") as file:
        assert rd.load(file, base="fixed").nv == wanted.nv - 6
    for source in (path, str(path), WHOLE["kinds"]):
        assert rd.load(source).joint_names == wanted.joint_names


def auto(parts: str) -> str:
    """A link whose inertia is to be computed from one collision; "" for none."""
    return sdf(f'<link name="a"><inertial auto="true"/>{f"<collision>{parts}</collision>" if parts else ""}</link>')


BROKEN = {
    "robot": ("<robot name='r'/>", 'root element is "robot"'),
    "not well-formed": ('<sdf version="1.7"><model name="m">', "not well-formed XML"),
    "entities": ('<!DOCTYPE m [<!ENTITY a "b">]><sdf version="1.7"/>', "document type or entities"),
    "no version": ("<sdf/>", "its version is"),
    "version 1.0": ('<sdf version="1.0"/>', "wanted 1.2 to 1.12"),
    "version 2": ('<sdf version="2.0"/>', 'its version is "2.0"'),
    "no links": (sdf(""), 'model "m" .*has no link'),
    "two worlds": ('<sdf version="1.7"><world name="a"/><world name="b"/></sdf>', "several worlds"),
    "include": (sdf(link("a"), "<include><uri>model://x</uri></include>"), "no folder is given to look in"),
    "auto, no shape": (auto(''), 'the link has no <collision>'),
    "auto, a mesh": (auto('<geometry><mesh><uri>a.stl</uri></mesh></geometry>'), "<mesh>; the link's inertia is"),
    "auto, no geometry": (auto('<density>1</density>'), "no shape; the link's inertia"),
    "auto, size": (auto('<geometry><box><size>1 0 1</size></box></geometry>'), 'wanted numbers greater than zero'),
    "auto, density": (auto('<density>-1</density><geometry><box/></geometry>'), 'wanted both greater than zero'),
    "auto, frame": (auto("<pose relative_to='a'/><geometry><box/></geometry>"), 'given in the frame "a"'),
    "auto, overflow": (auto('<density>1e308</density><geometry><sphere/></geometry>'), 'wanted both greater'),
    "link world": (sdf(link("world")), "SDF keeps for itself"),
    "twice": (sdf(link("a"), link("a")), "that of something else"),
    "joint twice": (sdf(link("a"), link("b"), joint("j", "a", "b"), joint("j", "a", "b")), "that of something else"),
    "no name": (sdf(link("")), "name of <link> is missing"),
    "long name": (sdf(link("a" * 1001)), "more than 1000 characters"),
    "template": (sdf(link("${x}")), "holds a '\\$'"),
    "number": (sdf(link("a", mass="nan")), '"nan" is not a finite number'),  # type: ignore[arg-type]
    "pose": (sdf(link("a", "<pose>1 2 3</pose>")), '"1 2 3" is not 6 finite numbers'),
    "rotation_format": (sdf(link("a", '<pose rotation_format="x"/>')), "rotation_format"),
    "quaternion": (sdf(link("a", '<pose rotation_format="quat_xyzw">0 0 0 0 0 0 0</pose>')), "has norm 0"),
    "degrees": (sdf(link("a", '<pose degrees="maybe"/>')), "neither true nor false"),
    "inertial pose": (sdf('<link name="a"><inertial><pose relative_to="b"/></inertial></link>'), "no frame here"),
    "unknown frame": (sdf(link("a"), link("b", '<pose relative_to="A"/>')), 'no frame "A"; near it are "a"$'),
    "unknown frame, itself near": (sdf(link("a", '<pose relative_to="A"/>')), 'no frame "A"; near it are none at all'),
    "unknown link": (sdf(link("wheel"), joint("wheel_1", "wheel", "wheel_2")), '"wheel_2"; near it are "wheel"$'),
    "unknown parent": (sdf(link("wheel"), joint("wheel_1", "wheel_2", "wheel")), '"wheel_2"; near it are "wheel"$'),
    "unknown axis": (
        sdf(link("a"), link("b"), joint("j", "a", "b", more=axis(expressed_in="J"))),
        'joint "j" .*no frame "J"; near it are "a", "b"$',
    ),
    "unknown in a nested model": (
        sdf(f'<model name="n">{link("wheel")}</model>', joint("j", "n::wheels", "n::wheel")),
        'no frame "n::wheels"; near it are "n::wheel"$',
    ),
    "itself": (sdf(link("a", '<pose relative_to="a"/>')), "which is itself"),
    "circle": (
        sdf(link("a", '<pose relative_to="b"/>'), link("b", '<pose relative_to="a"/>')),
        'form a circle: "link "a"" -> "link "b""',
    ),
    "attached in a circle": (
        sdf(link("a"), '<frame name="f" attached_to="g"/><frame name="g" attached_to="f"/>'),
        "form a circle",
    ),
    "placed in a circle": (
        sdf(link("a"), '<frame name="f"><pose relative_to="g"/></frame><frame name="g"><pose relative_to="f"/></frame>',
            model=' placement_frame="f"'),
        "form a circle",
    ),
    "overflow": (
        sdf(link("a", "<pose>1e308 0 0 0 0 0</pose>"), link("b", '<pose relative_to="a">1e308 0 0 0 0 0</pose>')),
        "its pose overflows",
    ),
    "type": (sdf(link("a"), link("b"), joint("j", "a", "b", "hinge")), 'type "hinge"; allowed are'),
    "no child": (sdf(link("a"), '<joint name="j" type="fixed"><parent>a</parent></joint>'), "has no <child>"),
    "child world": (sdf(link("a"), joint("j", "a", "world", "fixed")), "its child is the world"),
    "no axis": (sdf(link("a"), link("b"), joint("j", "a", "b", more="")), "has no <axis>"),
    "zero axis": (sdf(link("a"), link("b"), joint("j", "a", "b", more=axis("0 0 0"))), "has norm 0"),
    "pitch": (sdf(link("a"), link("b"), joint("j", "a", "b", "screw", more=axis() + "<thread_pitch>0</thread_pitch>")),
              "gives no finite pitch"),
    "mimic": (sdf(link("a"), link("b"), joint("j", "a", "b", more=axis("0 0 1", '<mimic joint="k"/>'))),
              'mimics joint "k", which does not exist'),
    "mimic of nobody": (sdf(link("a"), link("b"), joint("j", "a", "b", more=axis("0 0 1", "<mimic/>"))), "no joint"),
    "drake's joint": (sdf(link("a"), '<drake:joint name="j" type="curvilinear"/>'), "planar alone is read"),
    "negative mass": (sdf(link("a", mass=-1.0)), "the mass -1 kg is negative"),
    "canonical link": (sdf(rig(), model=' canonical_link="nobody"'), 'no frame "nobody"'),
    "canonical model": (sdf(rig(), model=' canonical_link="rig"'), 'canonical_link of model "m".*"rig" is no link'),
    "canonical joint": (sdf(rig(), model=' canonical_link="rig::hinge"'), '"rig::hinge" is no link'),
    "no links in the first model": (sdf('<model name="e"><frame name="f"/></model>', rig()), 'model "e".*has no link'),
    "deep": ('<sdf version="1.7">' + '<model name="m">' * 200 + "</model>" * 200 + "</sdf>", "more than 100 deep"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_refused(name):
    text, message = BROKEN[name]
    with pytest.raises(rd.LoadError, match=message):
        rd.load_sdf(text)


def test_moments_that_break_the_triangle_inequality_are_read_by_strict_too():
    """They are those of no body, and a warning: many files have them. Half as negative as the largest is refused."""
    text = '<link name="a"><inertial><mass>1.5</mass><inertia><ixx>0.035</ixx><iyy>{}</iyy><izz>0.1</izz></inertia>'
    text = sdf(f"{text}</inertial></link>")
    model = rd.load_sdf(text.format(0.045))
    assert {"inertia-triangle"} == {each.code for each in model.report if each.severity != "info"}
    assert np.array_equal(model.inertia[0], rd.load_sdf(text.format(0.045), strict=False).inertia[0])
    assert np.array_equal(model.inertia[0, 4:], [0.035, 0, 0, 0.045, 0, 0.1])
    with pytest.raises(rd.LoadError, match="negative principal moment"):
        rd.load_sdf(text.format(-0.06))
    assert "negative-inertia" in codes(rd.load_sdf(text.format(-0.06), strict=False))


def test_options_are_checked():
    text = sdf(link("a"), joint("j", "world", "a", "fixed"))
    for options, message in (({"base": "free"}, "base"), ({"model": 3}, "model"), ({"mimic": "no"}, "mimic")):
        with pytest.raises(rd.ArgumentError, match=message):
            rd.load_sdf(text, **options)
    with pytest.raises(rd.LoadError, match=r'base="floating": joint "j" holds the robot to the world'):
        rd.load_sdf(text, base="floating")
    with pytest.raises(rd.ArgumentError, match="no option of load_sdf"):
        rd.load(text, equality="mimic")


@pytest.mark.parametrize("kind", ["chain", "star", "circle", "far"])
def test_time_grows_with_the_file_alone(kind):
    """Links given in one another, in any order, with joints across: nothing recurses, nothing hangs."""
    n = 1000
    order = range(n) if kind != "circle" else reversed(range(n))
    under = ["__model__" if kind == "star" or not i else f"l{i - 1}" for i in range(n)]
    links = [link(f"l{i}", f'<pose relative_to="{under[i]}">0 0 1 0 0 0.1</pose>') for i in order]
    ends = [(0 if kind == "far" else i - 1, i) for i in range(1, n)] if kind != "star" else []
    joints = [joint(f"j{i}", f"l{one}", f"l{i}") for one, i in ends]
    model = rd.load_sdf(sdf(*links, *joints))
    assert model.nv == (6 * n if kind == "star" else n + 5)


def codes(model: rd.Model) -> set[str]:
    return {each.code for each in model.report}
