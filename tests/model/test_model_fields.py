"""What a Model is made of when it is made anew from another: checked, converted, and out of others' reach."""

from __future__ import annotations

import pickle
from dataclasses import fields, replace

import numpy as np
import pytest
from robots import own

import robodyn as rd
from robodyn.core import model_fields
from robodyn.description import JOINT_TYPES


@pytest.fixture(scope="module")
def arm():
    return rd.load_urdf(own("arm6"))


@pytest.fixture(scope="module")
def hand():
    """Joints that follow others."""
    return rd.load_urdf(own("gripper"), base="floating")


def arrays(model):
    return {f.name: getattr(model, f.name) for f in fields(model) if isinstance(getattr(model, f.name), np.ndarray)}


def test_a_model_owns_its_arrays(arm):
    """Also where a view of a read-only array can be written to."""
    given = 2.0 * arm.inertia
    whole, part = np.zeros((8, 10)), np.zeros((6, 20))
    whole[:6], part[:, ::2] = given, given
    locked, behind = given.copy(), None
    behind = locked[:]
    locked.setflags(write=False)
    q = np.full(6, 0.3)
    for array, writable in ((given, given), (whole[:6], whole), (part[:, ::2], part), (locked, behind)):
        model = replace(arm, inertia=array)
        wanted, dyn = 2.0 * arm.inertia, rd.Dynamics(model)
        before = dyn.gravity_force(q), dyn.mass_matrix(q)
        writable[:] = 0.0
        np.testing.assert_array_equal(model.inertia, wanted)
        assert not model.inertia.flags.writeable and model.inertia.flags.c_contiguous
        assert not np.shares_memory(model.inertia, writable)
        after = rd.Dynamics(model).gravity_force(q), rd.Dynamics(model).mass_matrix(q)
        np.testing.assert_array_equal(before[0], after[0])
        np.testing.assert_array_equal(before[1], after[1])


def test_arrays_of_other_models_are_shared(arm):
    for model in (arm, pickle.loads(pickle.dumps(arm, 5)), rd.auto_tree(6)):
        other = replace(replace(model, name="other"), gravity=(0.0, 0.0, -1.0))
        for name, array in arrays(model).items():
            assert (getattr(other, name) is array) == (name != "gravity"), name
    view = replace(arm, inertia=arm.inertia[:]).inertia
    assert not np.shares_memory(view, arm.inertia)


def test_arrays_that_are_gone_are_forgotten():
    """What remembers arrays of models by their places does not grow, and takes no other array at such a place for one
    of them."""
    owned = model_fields._Owned()
    kept = [np.zeros(1) for _ in range(3000)]
    for array in kept:
        owned.add([array])
    for _ in range(20_000):
        owned.add([np.zeros(2)])
    assert all(array in owned for array in kept)
    assert len(owned._held) < 2 * 4096
    place = id(kept[0])
    del array, kept[0]
    for _ in range(100):
        other = [np.zeros(1) for _ in range(100)]
        assert not any(array in owned for array in other)
        if any(id(array) == place for array in other):
            return
    pytest.skip("no array came to lie where another one was")


def test_unpickled_arrays_are_out_of_reach_too(arm):
    buffers = []
    text = pickle.dumps(arm, 5, buffer_callback=buffers.append)
    memory = [bytearray(buffer.raw()) for buffer in buffers]
    again = pickle.loads(text, buffers=memory)
    for each in memory:
        each[:] = bytes(len(each))
    assert again == arm and not any(array.flags.writeable for array in arrays(again).values())


def test_gravity_of_a_caller_stays_the_callers():
    gravity = np.array([0.0, 0.0, -3.0])
    for model in (rd.auto_tree(2, gravity=gravity), rd.load_urdf(own("arm6"), gravity=gravity)):
        gravity[2] = -4.0
        assert model.gravity[2] == -3.0
        gravity[2] = -3.0


@pytest.mark.parametrize("robot", ["arm", "hand", "tree"])
def test_lists_of_numbers_make_the_same_model(robot, request):
    tree = rd.random_tree(9, seed=3, joints=JOINT_TYPES, mimic=0.4, armature=True, base="floating")
    model = tree if robot == "tree" else request.getfixturevalue(robot)
    lists = {name: array.tolist() for name, array in arrays(model).items()}
    names = {name: list(getattr(model, name)) for name in ("joint_names", "body_names", "link_names", "report")}
    again = replace(model, **lists, **names)
    assert again == model and hash(again) == hash(model) and again.report == model.report
    assert {name: array.dtype for name, array in arrays(again).items()} == {
        name: array.dtype for name, array in arrays(model).items()
    }
    assert replace(model, inertia=model.inertia.astype(np.float32)).inertia.dtype == np.float64


def test_a_robot_that_cannot_move_is_made_anew_too():
    model = rd.load_urdf("<robot name='r'><link name='a'/></robot>")
    empty = {name: array.tolist() if array.ndim == 1 else array for name, array in arrays(model).items()}
    assert replace(model, **empty) == model


class Raises:
    def __array__(self, *_, **__):
        raise RuntimeError("no")


WRONG = [
    ("inertia", np.zeros((7, 10)), r"got shape \(7, 10\); wanted finite numbers of shape \(6, 10\) = \(n_bodies, 10\)"),
    ("inertia", np.zeros((3, 10)), r"got shape \(3, 10\)"),
    ("inertia", np.zeros((6, 9)), r"got shape \(6, 9\)"),
    ("inertia", [1.0, 2.0], r"got shape \(2,\)"),
    ("inertia", [[1.0], [1.0, 2.0]], "got .*; wanted finite numbers"),
    ("inertia", None, "got None"),
    ("inertia", "x", "got 'x'"),
    ("inertia", object(), "got <object"),
    ("inertia", Raises(), "got <.*Raises"),
    ("inertia", np.ones((6, 10)) * 1j, "got .* of dtype complex128"),
    ("inertia", np.ones((6, 10), bool), "got .* of dtype bool"),
    ("inertia", np.ma.masked_greater(np.ones((6, 10)), 0), "got an array with masked entries"),
    ("gravity", (0.0, -9.81), r"got shape \(2,\); wanted finite numbers of shape \(3,\)$"),
    ("gravity", (0.0, 0.0, -9.81, 0.0), r"got shape \(4,\)"),
    ("gravity", "down", "got 'down'"),
    ("gravity", ("0", "0", "1"), "got .* of dtype <U1"),
    ("parent", np.full((6, 1), -1), r"got shape \(6, 1\)"),
    ("parent", [-1.0] * 6, "got .* of dtype float64; wanted integers"),
    ("parent", None, "got None"),
    (
        "tree_lower",
        np.zeros(5),
        r"got shape \(5,\); wanted numbers, finite or infinite, of shape \(6,\) = \(nq_tree,\)",
    ),
    ("link_X", np.zeros((2, 12)), r"got shape \(2, 12\); wanted .* = \(n_links, 12\)"),
    ("name", 3, "got 3; wanted a text"),
    ("joint_names", "abcdef", "got 'abcdef'; wanted a tuple of 6 names"),
    ("body_names", ("a",), "got 1 names; wanted a tuple of 6 names"),
    ("link_names", (1, 2), r"got \(1, 2\); wanted a tuple of names"),
    ("report", None, "got None; wanted a tuple of findings"),
]


@pytest.mark.parametrize(("field", "value", "words"), WRONG)
def test_wrong_fields_are_named(field, value, words, arm):
    with pytest.raises(rd.ArgumentError, match=f"^{field}: {words}"):
        replace(arm, **{field: value})


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("parent", np.arange(6), r"parent\[0\]: got 0; wanted -1 \(the world\)$"),
        ("parent", [-1, 0, 1, 3, 3, 4], r"parent\[3\]: got 3; wanted -1 \(the world\) or a body before it, 0 to 2$"),
        ("parent", [-1, 0, 1, -2, 3, 4], r"parent\[3\]: got -2; wanted an integer from -1 to 5"),
        ("parent", np.array([-1, 0, 1, 2**62, 3, 4]), rf"parent\[3\]: got {2**62}"),
        ("joint_kind", [0, 0, 0, 0, 300, 0], r"joint_kind\[4\]: got 300; wanted an integer from 0 to"),
        ("q_start", [0, 1, 2, 3, 4, 4], r"q_start\[5\]: got 4; wanted 5"),
        ("v_source", [0, 1, 2, 3, 5, 4], r"v_source\[4\]: got 5; wanted 4"),
        ("q_source", [0, 1, 2, 3, 4, 6], r"q_source\[5\]: got 6; wanted an integer from 0 to 5"),
        ("link_body", np.full(9, 6), r"link_body"),
    ],
)
def test_numbers_that_make_no_tree_are_named(field, value, words, arm):
    """Machine code reads where these numbers point to."""
    with pytest.raises(rd.ArgumentError, match=f"^{words}"):
        replace(arm, **{field: value})


def test_joints_follow_joints_that_follow_none(hand):
    follower = int(np.flatnonzero(hand.mimics >= 0)[0])
    mimics = hand.mimics.copy()
    mimics[follower] = follower
    with pytest.raises(rd.ArgumentError, match=rf"^mimics\[{follower}\]: got {follower}, whose joint follows another"):
        replace(hand, mimics=mimics)


@pytest.mark.parametrize(
    ("field", "joint", "value", "words"),
    [
        ("q_multiplier", "lift", 2.0, 'got 2; wanted 1: joint "lift" follows none'),
        ("q_offset", "lift", 0.1, 'got 0.1; wanted 0: joint "lift" follows none'),
        ("v_multiplier", "left_slide", -1.0, 'got -1; wanted 1: joint "left_slide" follows none'),
        ("v_multiplier", "right_slide", 2.0, "got 2; wanted -1: joint .* follows .* with multiplier -1"),
        ("q_multiplier", "right_slide", 2.0, "v_multiplier.* wanted 2: joint .* with multiplier 2"),
        ("q_source", "right_slide", 1, 'got 1; wanted 2: joint "right_slide" follows "left_slide"'),
        ("v_source", "right_slide", 0, 'got 0; wanted 2: joint "right_slide" follows "left_slide"'),
    ],
)
def test_couplings_that_are_none_are_named(field, joint, value, words, tmp_path):
    """Engines read them where a joint follows another, and some nowhere else."""
    hand = rd.load_urdf(own("gripper"))
    body = hand.joint_index(joint)
    array = getattr(hand, field).copy()
    array[(hand.q_start if field[0] == "q" else hand.v_start)[body]] = value
    with pytest.raises(rd.ArgumentError, match=words):
        replace(hand, **{field: array})
    hand.save(tmp_path / "hand.npz")
    with np.load(tmp_path / "hand.npz") as saved:
        np.savez(tmp_path / "other.npz", **{**saved, field: array})
    with pytest.raises(rd.LoadError, match=words):
        rd.Model.load(tmp_path / "other.npz")


def test_multipliers_are_changed_together(hand):
    """And joints of several coordinates neither follow nor lead."""
    twice = replace(hand, q_multiplier=2.0 * hand.q_multiplier - 1.0, v_multiplier=2.0 * hand.v_multiplier - 1.0)
    follower = int(np.flatnonzero(hand.mimics >= 0)[0])
    assert twice.q_multiplier[hand.q_start[follower]] == 2.0 * hand.q_multiplier[hand.q_start[follower]] - 1.0
    mimics = hand.mimics.copy()
    mimics[follower] = 0
    words = rf'^mimics\[{follower}\]: got 0: .* follows "root_joint"; wanted joints of one coordinate'
    with pytest.raises(rd.ArgumentError, match=words):
        replace(hand, mimics=mimics)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_no_robot_has_are_named(bad, arm):
    for name, array in arrays(arm).items():
        if array.dtype != np.float64:
            continue
        wrong = array.copy()
        wrong.flat[1] = bad
        if np.isinf(bad) and name in ("tree_lower", "tree_upper", "tree_effort", "tree_velocity"):
            assert np.isinf(getattr(replace(arm, **{name: wrong}), name)).any()
            continue
        place = "1" if array.ndim == 1 else "0, 1"
        with pytest.raises(rd.ArgumentError, match=rf"^{name}\[{place}\]: got {bad}; wanted "):
            replace(arm, **{name: wrong})
