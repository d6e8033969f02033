"""The Model: frozen, comparable, laid out as its table says; joint order, merging and mimic as files demand."""

from __future__ import annotations

import collections
import copy
import dataclasses
import difflib
import pickle
import re
from fractions import Fraction
from functools import cached_property
from unittest import mock

import numpy as np
import pytest
from conftest import random_states, relative
from robots import EVERY_RUN, OWN, own, shared

import robodyn as rd
from robodyn.description import JOINT_TYPES, Inertial, Joint, Limits, Link, Mimic, Pose, RobotDescription
from robodyn.io.builders.assemble import turn_to_z
from robodyn.joints import KINDS


@pytest.fixture(scope="module")
def model():
    return rd.random_tree(14, seed=1, joints=JOINT_TYPES, mimic=0.4, armature=True, base="floating")


def test_arrays_have_the_shapes_of_the_documented_table(model):
    sizes = {"n": model.n_bodies, "L": len(model.link_names), "nq_tree": model.nq_tree, "nv_tree": model.nv_tree}
    documented = {}
    for line in rd.Model.__doc__.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) == 3 and "`" in cells[0]:
            shape = re.match(r"\(([^)]*)\)", cells[2]).group(1)
            for name in re.findall(r"`(\w+)`", cells[0]):
                documented[name] = tuple(sizes.get(s, s) for s in (p.strip() for p in shape.split(",")) if s)
    arrays = {f.name for f in dataclasses.fields(model) if isinstance(getattr(model, f.name), np.ndarray)}
    assert set(documented) == arrays
    for name, shape in documented.items():
        assert getattr(model, name).shape == tuple(map(int, shape)), name


def test_a_model_is_frozen(model):
    with pytest.raises(dataclasses.FrozenInstanceError):
        model.name = "other"
    for field in dataclasses.fields(model):
        value = getattr(model, field.name)
        if isinstance(value, np.ndarray):
            with pytest.raises(ValueError, match="read-only"):
                value[...] = 0
    for derived in (model.armature, model.damping, model.friction):
        with pytest.raises(ValueError, match="read-only"):
            derived[...] = 0


def arrays_of(value):
    """All arrays in nested tuples and lists."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, tuple | list):
        for part in value:
            yield from arrays_of(part)


def test_what_is_computed_once_is_read_only(model):
    for owner in (model, model.tree):
        cached = [name for name, value in vars(type(owner)).items() if isinstance(value, cached_property)]
        assert cached
        for name in cached:
            getattr(owner, name)
        arrays = {name: list(arrays_of(vars(owner)[name])) for name in cached}
        assert sum(map(len, arrays.values())) >= 5
        assert not [name for name, found in arrays.items() if any(array.flags.writeable for array in found)]


def test_a_model_pickles_copies_compares_and_hashes(model):
    again = pickle.loads(pickle.dumps(model))
    assert again == model and hash(again) == hash(model) and again is not model
    assert again.report == model.report
    with pytest.raises(ValueError, match="read-only"):
        again.parent[0] = 3
    assert copy.copy(model) is model and copy.deepcopy(model) is model
    assert model != rd.random_tree(14, seed=2, joints=JOINT_TYPES) and model != "model"
    heavier = dataclasses.replace(model, inertia=model.inertia * 1.0000001)
    assert heavier != model and len({heavier, model, again}) == 2
    big = rd.auto_tree(50)
    assert pickle.loads(pickle.dumps(big)) == big != rd.auto_tree(51)


def test_a_model_prints_as_a_table(model):
    shown = str(model)
    for name in (*model.joint_names, *model.body_names):
        assert name in shown
    assert repr(model) == (
        f"<Model 'random_tree(seed=1)': {model.n_bodies} bodies, 15 links, nq {model.nq}, nv {model.nv}, "
        f"{len(model.report)} findings>"
    )
    assert "60 more bodies" in str(rd.auto_tree(100))


@pytest.mark.parametrize("path", OWN, ids=lambda p: p.stem)
def test_parents_come_first_and_names_match(path):
    model = rd.load_urdf(path)
    assert (model.parent < np.arange(model.n_bodies)).all()
    assert len(model.joint_names) == len(model.body_names) == model.n_bodies
    assert len(model.coordinate_names) == model.nq and len(model.velocity_names) == model.nv
    assert len(model.lower) == len(model.upper) == model.nq
    assert len(model.effort_limit) == len(model.velocity_limit) == model.nv
    for i, kind in enumerate(model.joint_kind):
        row = KINDS[kind]
        assert model.q_start[i] + row.nq <= model.nq_tree and model.v_start[i] + row.nv <= model.nv_tree


def urdf(joints, links="abcdef"):
    return "<robot name='r'>" + "".join(f"<link name='{n}'/>" for n in links) + "".join(joints) + "</robot>"


def joint(name, parent, child, kind="revolute", extra=""):
    return (
        f"<joint name='{name}' type='{kind}'><parent link='{parent}'/><child link='{child}'/>"
        f"<limit lower='-1' upper='1' effort='1' velocity='1'/><axis xyz='0 0 1'/>{extra}</joint>"
    )


def test_point_01_file_order_is_kept_as_far_as_parents_allow():
    text = urdf(
        [
            joint("cd", "c", "d"),
            joint("ab", "a", "b"),
            joint("ae", "a", "e"),
            joint("bc", "b", "c"),
            joint("af", "a", "f"),
        ]
    )
    # cd waits for bc, which waits for ab: always the earliest joint of the file whose parent is there.
    assert rd.load_urdf(text).joint_names == ("ab", "ae", "bc", "cd", "af")
    in_order = urdf(
        [
            joint("ae", "a", "e"),
            joint("ab", "a", "b"),
            joint("bc", "b", "c"),
            joint("bd", "b", "d"),
            joint("df", "d", "f"),
        ]
    )
    assert rd.load_urdf(in_order).joint_names == ("ae", "ab", "bc", "bd", "df")


def test_point_01_fixed_joints_do_not_move_others_in_the_order():
    text = urdf(
        [joint("cd", "c", "d"), joint("ae", "a", "e"), joint("bc", "b", "c", "fixed"), joint("ab", "a", "b", "fixed")],
        "abcde",
    )
    assert rd.load_urdf(text).joint_names == ("cd", "ae")


@pytest.mark.parametrize("name", EVERY_RUN)
def test_point_01_shared_robots_keep_their_order(name):
    import xml.etree.ElementTree as ElementTree

    path = shared(name)
    listed = [j.get("name") for j in ElementTree.parse(path).getroot().findall("joint") if j.get("type") != "fixed"]
    model = rd.load_urdf(path)
    movable = [n for n in listed if n in model.joint_names]
    assert sorted(movable) == sorted(model.joint_names)
    # Every joint that is earlier than the file says stands behind all its ancestors only.
    position = {n: i for i, n in enumerate(model.joint_names)}
    for i, n in enumerate(model.joint_names):
        for later in movable[movable.index(n) + 1 :]:
            if position[later] < i:
                ancestors = {model.joint_names[j] for j in model.tree.path(i)}
                assert any(listed.index(a) > listed.index(later) for a in ancestors) or later in ancestors


def test_point_02_continuous_has_one_coordinate_and_floating_may_stand_inside():
    text = urdf(
        [joint("ab", "a", "b", "floating"), joint("bc", "b", "c", "continuous"), joint("cd", "c", "d", "planar")],
        "abcd",
    )
    model = rd.load_urdf(text)
    assert (model.nq, model.nv) == (7 + 1 + 3, 6 + 1 + 3)
    assert model.coordinate_names[6:] == ("ab.qw", "bc", "cd.x", "cd.y", "cd.theta")
    assert model.velocity_names[5:] == ("ab.wz", "bc", "cd.vx", "cd.vy", "cd.omega")


def test_a_floating_base_takes_a_name_that_is_free():
    text = urdf([joint("root_joint", "a", "b")], "ab")
    model = rd.load_urdf(text, base="floating")
    assert model.joint_names == ("_root_joint", "root_joint") and model.body_names == ("a", "b")
    assert (model.nq, model.nv) == (8, 7)


def test_universal_joints_become_two_revolute_ones():
    text = urdf([joint("ab", "a", "b", "universal", "<axis2 xyz='0 1 0'/>")], "ab")
    model = rd.load_urdf(text)
    assert model.joint_names == model.coordinate_names == ("ab/1", "ab/2")
    assert model.body_names == ("ab/1", "b") and (model.inertia[0] == 0).all()


MIMIC = [
    joint("ab", "a", "b"),
    joint("bc", "b", "c", extra="<mimic joint='cd' multiplier='-2' offset='0.5'/>"),
    joint("cd", "c", "d", extra="<mimic joint='ab' multiplier='0.25' offset='1'/>"),
    joint("de", "d", "e", "fixed"),
    joint("ef", "e", "f", extra="<mimic joint='de' multiplier='3' offset='0.7'/>"),
]


def test_point_03_chains_of_mimics_and_fixed_masters():
    model = rd.load_urdf(urdf(MIMIC))
    # ef follows a fixed joint: it is welded at its offset, and f merges into d.
    assert model.joint_names == ("ab", "bc", "cd") and (model.nq, model.nv) == (1, 1)
    assert model.coordinate_names == ("ab",)
    assert model.q_multiplier.tolist() == [1.0, -0.5, 0.25] and model.q_offset.tolist() == [0.0, -1.5, 1.0]
    pose = rd.Dynamics(model, engine="reference").forward_kinematics([0.8])[model.link_index("f")]
    angle = 0.8 + (-0.5 * 0.8 - 1.5) + (0.25 * 0.8 + 1.0) + 0.7
    assert np.allclose(pose[:2, :2], [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]], atol=1e-15)
    free = rd.load_urdf(urdf(MIMIC), mimic="ignore")
    assert free.joint_names == ("ab", "bc", "cd", "ef") and free.nq == 4


def test_names_of_parts_are_unique():
    """Also where the file has joints and links of the names that the parts of a universal joint would get."""
    names = ("u/1", "_u/1", "root_joint", "u")
    links = tuple(Link(name, Inertial(1.0, Pose(), (1.0, 0.0, 0.0, 1.0, 0.0, 1.0))) for name in (*"abcde", "u/1"))
    kinds = ("revolute", "revolute", "revolute", "universal")
    ends = zip("abcd", "bcde", strict=True)
    joints = [Joint(*both, *pair) for both, pair in zip(zip(names, kinds, strict=True), ends, strict=True)]
    joints.append(Joint("m", "revolute", "e", "u/1", mimic=Mimic("u/1", 2.0)))
    model = rd.build_model(RobotDescription("r", links, tuple(joints)), base="floating")
    assert model.joint_names == ("_root_joint", "u/1", "_u/1", "root_joint", "__u/1", "u/2", "m")
    assert model.body_names == ("a", "b", "c", "d", "_u/1", "e", "u/1")
    assert len(set(model.coordinate_names)) == model.nq
    # A mimic follows the joint that the file calls so.
    assert model.mimics[model.joint_names.index("m")] == model.joint_names.index("u/1")
    assert model.link_body.tolist() == [0, 1, 2, 3, 5, 6]


def test_point_03_mimic_is_the_projection_of_the_free_robot():
    follow, free = (rd.load_urdf(own("hand"), mimic=mode) for mode in ("follow", "ignore"))
    assert follow.nv == 6 and free.nv == 12 and follow.joint_names == free.joint_names
    q, qd, qdd = random_states(follow, (3,))
    G = follow.coupling()
    y, yd, ydd = follow.tree_coordinates(q), qd @ G.T, qdd @ G.T
    assert np.allclose(y, q @ G.T + follow.q_offset, atol=1e-15)
    a, b = rd.Dynamics(follow, engine="reference"), rd.Dynamics(free, engine="reference")
    assert relative(a.inverse_dynamics(q, qd, qdd), b.inverse_dynamics(y, yd, ydd) @ G) < 1e-13
    assert relative(a.mass_matrix(q), G.T @ b.mass_matrix(y) @ G) < 1e-13
    assert relative(a.coriolis_matrix(q, qd), G.T @ b.coriolis_matrix(y, yd) @ G) < 1e-13
    gradients = (a.inverse_dynamics_gradient(q, qd, qdd), b.inverse_dynamics_gradient(y, yd, ydd))
    for mine, theirs in zip(*gradients, strict=True):
        assert relative(mine, G.T @ theirs @ G) < 1e-13
    assert relative(a.jacobian(q, "thumb_distal"), b.jacobian(y, "thumb_distal") @ G) < 1e-13
    assert relative(a.centroidal_momentum(q, qd)[1], b.centroidal_momentum(y, yd)[1] @ G) < 1e-13


FAR, HEAVY = Pose((1e308, 0.0, 0.0)), Inertial(1e308, Pose(), (1.0, 0.0, 0.0, 1.0, 0.0, 1.0))


@pytest.mark.parametrize(
    ("joints", "inertial", "words"),
    [
        (
            ["turn"],
            dataclasses.replace(HEAVY, pose=Pose((1e5, 0.0, 0.0))),
            'link "b": mass and inertia overflow .*"j1"',
        ),
        (["weld", "weld"], None, 'link "c": the origins .* overflow'),
        (["weld", "turn"], None, 'joint "j2": the origins .* overflow'),
        (["turn", "weld0", "weld0"], HEAVY, 'link "b", link "c", link "d": mass and inertia overflow'),
        (["turn", "turn"], HEAVY, 'link "b": the masses of the robot overflow'),
        (["turn", Mimic("j1", 1e200)], None, 'joint "j1": its armature, .* overflows'),
    ],
)
@pytest.mark.parametrize("strict", [True, False])
def test_numbers_that_overflow_as_links_are_merged_are_refused(joints, inertial, words, strict):
    made = []
    for i, what in enumerate(joints, 1):
        kind = "fixed" if str(what).startswith("weld") else "revolute"
        mimic = what if isinstance(what, Mimic) else None
        origin = Pose() if inertial or what == "weld0" else FAR
        made.append(Joint(f"j{i}", kind, "abcd"[i - 1], "abcd"[i], origin, mimic=mimic, armature=float(mimic is None)))
    if isinstance(joints[-1], Mimic):
        made = [dataclasses.replace(joint, origin=Pose()) for joint in made]
    links = (Link("a"), *(Link(name, inertial) for name in "bcd"[: len(joints)]))
    with pytest.raises(rd.LoadError, match=f"^{words}.*; give smaller numbers"):
        rd.build_model(RobotDescription("r", links, tuple(made)), strict=strict)


def test_numbers_of_any_type_become_float64():
    inertial = Inertial(Fraction(1, 2), Pose(), (Fraction(1), 0, 0, 10**300, 0, 10**300))
    joint = Joint(
        "j", "revolute", "a", "b", damping=Fraction(1, 3), friction=Fraction(1), limits=Limits(-1, Fraction(1))
    )
    model = rd.build_model(RobotDescription("r", (Link("a"), Link("b", inertial)), (joint,)))
    values = [getattr(model, field.name) for field in dataclasses.fields(model)]
    kinds = {value.dtype.name for value in values if isinstance(value, np.ndarray)}
    assert kinds == {"float64", np.dtype(np.intp).name, "int8"}
    assert pickle.loads(pickle.dumps(model)) == model
    assert model.damping.tolist() == [1 / 3]


def test_point_05_massless_links_with_inertia_on_fixed_joints_count():
    turn = Joint("turn", "revolute", "a", "b", axis=(0.0, 0.0, 1.0))
    weld = Joint("weld", "fixed", "b", "c", Pose((0.5, 0.0, 0.0)))
    plate = Inertial(0.0, Pose(), (1.0, 0.0, 0.0, 1.0, 0.0, 2.0))
    body = Inertial(1.0, Pose(), (0.1, 0.0, 0.0, 0.1, 0.0, 0.1))
    links = (Link("a"), Link("b", body), Link("c", plate))
    model = rd.build_model(RobotDescription("r", links, (turn, weld)))
    assert np.allclose(rd.Dynamics(model, engine="reference").mass_matrix([0.3]), 2.1)


def test_point_06_the_root_has_inertia_for_a_floating_base_only():
    fixed, floating = (rd.load_urdf(own("quadruped"), base=base) for base in ("fixed", "floating"))
    trunk = floating.inertia[0, 0]
    assert trunk > 0 and np.isclose(floating.total_mass - fixed.total_mass, trunk)


def test_point_07_merged_chains_keep_names_poses_and_inertia():
    rng = np.random.default_rng(0)
    body = Inertial(1.0, Pose((0.1, 0.2, 0.3)), (0.2, 0.0, 0.0, 0.3, 0.0, 0.4))
    poses = [Pose(tuple(map(float, rng.normal(size=3)))) for _ in range(3)]
    joints = [
        Joint("turn", "revolute", "a", "b", poses[0], (0.0, 0.6, -0.8)),
        Joint("w1", "fixed", "b", "c", poses[1]),
        Joint("w2", "fixed", "c", "d", poses[2]),
    ]
    model = rd.build_model(RobotDescription("r", (Link("a"), Link("b"), Link("c"), Link("d", body)), tuple(joints)))
    assert model.link_names == ("a", "b", "c", "d") and model.link_body.tolist() == [-1, 0, 0, 0]
    (merged,) = (finding for finding in model.report if finding.code == "merged-link")
    assert merged.elements == ('link "c"', 'link "d"') and 'body "b"' in merged.message
    T = rd.Dynamics(model, engine="reference").forward_kinematics([0.4])
    assert np.allclose(T[2, :3, 3], T[1, :3, :3] @ poses[1].xyz + T[1, :3, 3])
    assert np.allclose(
        rd.Dynamics(model, engine="reference").center_of_mass([0.4]), T[3, :3, :3] @ body.pose.xyz + T[3, :3, 3]
    )


@pytest.mark.parametrize("axis", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (-1, 0, 0), (0, -1, 0), (0, 0, -1)])
def test_axes_along_coordinates_turn_exactly(axis):
    E = np.array(turn_to_z(axis)).reshape(3, 3)
    assert set(np.abs(E).ravel()) == {0.0, 1.0} and np.linalg.det(E) == 1.0
    assert (E @ axis == (0, 0, 1)).all() and not np.signbit(E[E == 0]).any()


def test_any_axis_turns_to_z():
    for axis in np.random.default_rng(0).standard_normal((200, 3)):
        axis /= np.linalg.norm(axis)
        for near in (axis, [1e-9, 0, -1], [0, 1e-9, 1]):
            near = np.asarray(near) / np.linalg.norm(near)
            E = np.array(turn_to_z(tuple(near))).reshape(3, 3)
            assert np.abs(E @ E.T - np.eye(3)).max() < 1e-15 and np.abs(E @ near - (0, 0, 1)).max() < 1e-15


def test_point_08_limits_armature_damping_and_friction_are_kept():
    description = RobotDescription(
        "r",
        (Link("a"), Link("b"), Link("c")),
        (
            Joint(
                "ab", "revolute", "a", "b", limits=Limits(-1.0, 2.0, 3.0, 4.0), damping=0.1, friction=0.2, armature=0.3
            ),
            Joint("bc", "continuous", "b", "c", limits=Limits(None, None, 5.0, None)),
        ),
    )
    model = rd.build_model(description)
    assert model.lower.tolist() == [-1.0, -np.inf] and model.upper.tolist() == [2.0, np.inf]
    assert model.effort_limit.tolist() == [3.0, 5.0] and model.velocity_limit.tolist() == [4.0, np.inf]
    assert model.damping.tolist() == [0.1, 0] and model.friction.tolist() == [0.2, 0]
    assert model.armature.tolist() == [0.3, 0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"base": "free"}, "^base: got 'free'; allowed: 'fixed', 'floating'"),
        ({"mimic": "maybe"}, "^mimic: got 'maybe'; allowed: 'follow', 'ignore'"),
        ({"strict": 1}, "^strict: got 1"),
        ({"gravity": (0, 0)}, r"^gravity: got shape \(2,\)"),
        ({"gravity": ((0, 0, 1),)}, r"^gravity: got shape \(1, 3\)"),
        ({"gravity": (0, 0, np.nan)}, None),
        ({"gravity": "down"}, "^gravity: got 'down'"),
        ({"gravity": iter((0, 0, 1))}, "^gravity: got <tuple_iterator"),
        ({"gravity": 3}, "^gravity: got shape "),
    ],
)
def test_wrong_options_are_named(options, words):
    with pytest.raises(rd.RobodynError, match=words or "^gravity: NaN or infinite at index 2"):
        rd.load_urdf(own("arm6"), **options)


def test_gravity_may_be_any_sequence_and_must_be_finite():
    for given in ([0, 0, -1], (0, 0, -1), np.array([0, 0, -1]), collections.deque([0, 0, -1]), range(3)):
        assert rd.load_urdf(own("arm6"), gravity=given).gravity.tolist() == list(given)
    for make in (lambda g: rd.load_urdf(own("arm6"), gravity=g), lambda g: rd.auto_tree(2, gravity=g)):
        with pytest.raises(rd.NumericalError, match=r"^gravity: NaN or infinite at index 2"):
            make((0.0, 0.0, np.inf))


def test_gravity_is_the_models_and_may_point_anywhere():
    model = rd.load_urdf(own("cartpole"), gravity=(1.0, 2.0, 3.0))
    q = random_states(model)[0]
    dyn = rd.Dynamics(model, engine="reference")
    assert np.isclose(dyn.potential_energy(q), -model.total_mass * dyn.center_of_mass(q) @ (1.0, 2.0, 3.0))


@pytest.mark.parametrize(
    ("links", "shape"), [(10_001, "chain"), (20_000, "binary"), (20_000, "star"), (20_000, "caterpillar")]
)
@pytest.mark.some(of=4, rest="matrix")
def test_large_robots_load_without_recursion(links, shape):
    parent = {
        "chain": lambda i: i,
        "star": lambda i: 0,
        "binary": lambda i: (i - 1) // 2,
        "caterpillar": lambda i: max(i - 1 - i % 2, 0),
    }[shape]
    names = [f"l{i}" for i in range(links)]
    joints = [joint(f"j{i}", f"l{parent(i) if shape != 'chain' else i - 1}", f"l{i}") for i in range(1, links)]
    model = rd.load_urdf(urdf(joints, names), base="floating")
    assert model.n_bodies == links and model.joint_names[1:] == tuple(f"j{i}" for i in range(1, links))
    assert pickle.loads(pickle.dumps(model)) == model and "more bodies" in str(model)
    assert model.tree.n_levels > 1


@pytest.mark.matrix
def test_a_link_that_does_not_exist_is_said_at_once_and_safely():
    """Only the first names are compared, and not long ones: that takes time as the square of the length."""
    assert_near = [(rd.auto_tree(10**6), "body1x", "body1"), (rd.auto_tree(10**6), "x" * 10**6, "body0")]
    with mock.patch("difflib.get_close_matches", wraps=difflib.get_close_matches) as compare:
        for model, name, near in assert_near:
            with pytest.raises(rd.ArgumentError, match=f"^link: got '{name[:50]}.*, such as .*{near}"):
                model.link_index(name)
        assert [len(call.args[1]) for call in compare.call_args_list] == [1000]
    odd = rd.build_model(RobotDescription("r", (Link("a\x85\nb"),), ()))
    with pytest.raises(rd.ArgumentError, match=r"such as a\\x85\\nb$"):
        odd.link_index("c")


def test_a_mimic_of_a_description_is_resolved_once():
    links = (Link("a"), Link("b"), Link("c"))
    joints = (Joint("ab", "revolute", "a", "b"), Joint("bc", "prismatic", "b", "c", mimic=Mimic("ab", 0.0, 0.3)))
    model = rd.build_model(RobotDescription("r", links, joints))
    assert model.joint_names == ("ab",)
    T = rd.Dynamics(model, engine="reference").forward_kinematics([0.0])
    assert np.allclose(T[2, :3, 3], [0.3, 0, 0])
