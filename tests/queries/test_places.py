"""Queries about several links, about points on them, and about one link relative to another: differences, identities
and Pinocchio."""

from __future__ import annotations

import dataclasses
from functools import partial

import numpy as np
import pytest
import robots
from conftest import random_states, relative
from robots import of_every_kind, tree

import robodyn as rd
from robodyn.algorithms.relative_motion import RELATIVE
from robodyn.engines.query_table import FRAMES, QUERIES
from robodyn.testing.pinocchio_models import PinocchioAnswers, pinocchio_model

STEP, DIFFERENCE_TOLERANCE = 1e-5, 1e-6
MOVING = {"V0": np.array([0.3, -0.2, 0.5, 1.0, -0.7, 0.4]), "dV0": np.array([-0.5, 0.1, 0.2, 0.6, 0.3, -0.8])}


@pytest.fixture
def model():
    return of_every_kind()


def questions(q, qd, qdd, only=None):
    """Every query about a link, in every frame that it has: name, arguments, options."""
    arrays = {"q": q, "qd": qd, "qdd": qdd}
    for name, question in QUERIES.items():
        if not question.of_link or (only is not None and name not in only):
            continue
        options = {key: MOVING[key] for key in question.optional if key in MOVING}
        for frame in FRAMES if question.in_frame else (None,):
            framed = {} if frame is None else {"frame": frame}
            for classical in (False, True) if question.variants else (None,):
                chosen = {} if classical is None else {"classical": classical}
                yield name, [arrays[each] for each in question.inputs], {**options, **framed, **chosen}


def several(found):
    return found if isinstance(found, tuple) else (found,)


# On every engine.


@pytest.mark.some(of=8, when="matrix")
@pytest.mark.parametrize("leading", [(), (3,), (2, 2)])
def test_several_links_are_each_of_them(leading, model, make_dynamics, tolerance):
    dyn = make_dynamics(model)
    q, qd, qdd = random_states(model, leading, seed=1)
    links = [model.link_names[-1], 3, model.link_names[0], 3]
    points = np.random.default_rng(1).standard_normal((*leading, len(links), 3))
    for name, arguments, options in questions(q, qd, qdd):
        ask = getattr(dyn, name)
        for point in (None, points, points[(0,) * len(leading)][0]):
            found = several(ask(*arguments, links=links, point=point, **options))
            for k, link in enumerate(links):
                at = point if point is None or point.ndim == 1 else point[..., k, :]
                for every, one in zip(found, several(ask(*arguments, link, point=at, **options)), strict=True):
                    assert relative(np.take(every, k, axis=len(leading)), one) < tolerance, (name, options)


@pytest.mark.some(of=4, rest="matrix")
def test_points_are_frames_at_that_place(model, make_dynamics, tolerance):
    """A point that is given for each state, and the same as a frame of the model."""
    q, qd, qdd = random_states(model, (2,), seed=2)
    place, link = np.array([0.3, -0.2, 0.4]), model.link_names[-2]
    dyn, framed = make_dynamics(model), make_dynamics(model.with_frames({"tip": (link, place)}))
    for name, arguments, options in questions(q, qd, qdd):
        at_point = several(getattr(dyn, name)(*arguments, link, point=np.stack([place, place]), **options))
        for one, other in zip(at_point, several(getattr(framed, name)(*arguments, "tip", **options)), strict=True):
            assert relative(one, other) < 10 * tolerance, (name, options)


@pytest.mark.some(of=4, rest="matrix")
def test_frames_of_relative_motion(model, make_dynamics, tolerance):
    """All frames have the same motion; a base that moves takes the observer with it; a link sees itself at rest."""
    dyn = make_dynamics(model)
    q, qd, qdd = random_states(model, (3,), seed=3)
    for of, to in ((8, 4), (2, 7), (5, 1)):
        R, p = dyn.link_pose(q, of)[..., :3, :3], dyn.link_pose(q, of)[..., :3, 3]
        for name, arguments, options in questions(q, qd, qdd, ("jacobian", "link_velocity", "link_acceleration")):
            if options.pop("frame") != "body" or options.get("classical"):
                continue
            ask = partial(getattr(dyn, name), *arguments, of, relative_to=to)
            seen = ask(frame="body")
            assert relative(ask(frame="body", **options), seen) < 100 * tolerance, name
            columns = seen if seen.ndim == 3 else seen[..., None]
            ang, lin = (R @ columns[..., k : k + 3, :] for k in (0, 3))
            at_origin = lin + np.cross(p[..., None], ang, axis=-2)
            for frame, parts in (("world_aligned", (ang, lin)), ("world", (ang, at_origin))):
                wanted = np.concatenate(parts, -2).reshape(seen.shape)
                assert relative(ask(frame=frame), wanted) < 10 * tolerance, (name, frame)
        where = {"link": of, "relative_to": to}
        V, A = dyn.link_velocity(q, qd, **where), dyn.link_acceleration(q, qd, qdd, **where)
        assert relative(np.einsum("...ij,...j->...i", dyn.jacobian(q, **where), qd), V) < 10 * tolerance
        turning = np.cross(V[..., :3], V[..., 3:])
        for frame in ("world", "world_aligned"):
            moved = dyn.link_acceleration(q, qd, qdd, **where, frame=frame, classical=True)
            assert relative(moved - A, np.concatenate((0 * turning, turning), -1)) < 100 * tolerance
    itself = {"link": 5, "relative_to": 5}
    assert not np.any(dyn.jacobian(q, **itself))
    assert relative(dyn.link_pose(q, **itself), np.broadcast_to(np.eye(4), (3, 4, 4))) < tolerance


@pytest.mark.some(of=6, rest="matrix")
def test_several_links_relative_to_one(model, make_dynamics, tolerance):
    """With points, too: on the links, and not on that to which they are relative."""
    dyn = make_dynamics(model)
    q, qd, qdd = random_states(model, (3,), seed=4)
    links, points = [8, 2, 6], np.random.default_rng(4).standard_normal((3, 3, 3))
    for name, arguments, options in questions(q, qd, qdd, RELATIVE):
        ask = partial(getattr(dyn, name), *arguments, relative_to=4, **options)
        found = ask(links=links, point=points)
        for k, link in enumerate(links):
            assert relative(found[:, k], ask(link, point=points[:, k])) < tolerance, (name, options)


# Differences, on random trees of every joint kind.


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.some(of=2, rest="matrix")
def test_relative_motion_is_that_of_the_relative_pose(seed):
    """Seen from the body, a velocity is R' dR and R' dp of the relative pose, and its rate the acceleration."""
    model = tree(seed, 3 + seed % 8)
    dyn = rd.Dynamics(model, engine="reference")
    q, qd, qdd = random_states(model, seed=seed)
    rng = np.random.default_rng(seed)
    of, to = rng.integers(len(model.link_names), size=2).tolist()
    where = {"link": of, "relative_to": to, "point": rng.standard_normal(3)}

    def moved(h):
        return model.integrate(q, h * qd + 0.5 * h * h * qdd), qd + h * qdd

    def rate(f):
        return (f(*moved(STEP)) - f(*moved(-STEP))) / (2 * STEP)

    T = dyn.link_pose(q, **where)
    change = T[:3, :3].T @ rate(lambda q, qd: dyn.link_pose(q, **where))[:3]
    twist = np.array([change[2, 1], change[0, 2], change[1, 0], *change[:, 3]])
    velocity = partial(dyn.link_velocity, **where, frame="body")
    assert relative(velocity(q, qd), twist) < DIFFERENCE_TOLERANCE
    A = dyn.link_acceleration(q, qd, qdd, **where, frame="body")
    assert relative(A, rate(velocity)) < DIFFERENCE_TOLERANCE
    for frame in FRAMES:
        wanted = rate(lambda q, qd, frame=frame: dyn.jacobian(q, **where, frame=frame))
        assert relative(dyn.jacobian_derivative(q, qd, **where, frame=frame), wanted) < 5 * DIFFERENCE_TOLERANCE
    world = np.flatnonzero(model.link_body < 0)
    if world.size:  # what the world's link sees is what there is
        J = dyn.jacobian(q, of, relative_to=int(world[0]))
        assert relative(J, dyn.jacobian(q, of)) < 1e-12
        assert relative(dyn.jacobian(q, int(world[0]), relative_to=of, frame="world"),
                        -dyn.jacobian(q, of, frame="world")) < 1e-12  # fmt: skip


def test_joints_above_both_links_do_not_count():
    """Exactly, however far the robot is from the world's origin."""
    model = rd.load_urdf(robots.own("quadruped"), base="floating")
    dyn = rd.Dynamics(model)
    q = model.random_configuration(0)
    q[:3] = 1e3, -2e3, 5e2
    links = [name for name in model.link_names if "foot" in name][::3]
    J = dyn.jacobian(q, links[0], relative_to=links[1])
    assert not J[:, :6].any()
    assert J[:, 6:].any()


# Pinocchio.


@pytest.mark.parametrize("name", ["arm7", "humanoid"])
def test_relative_jacobians_and_points_agree_with_pinocchio(name):
    pin = pytest.importorskip("pinocchio")
    model = rd.load_urdf(robots.own(name), base="fixed" if name == "arm7" else "floating")
    theirs = pinocchio_model(model)
    at, data = PinocchioAnswers(model, theirs).at, theirs.createData()
    dyn = rd.Dynamics(model)
    q = random_states(model, seed=6)[0]
    y, swap, point = at.coordinates(q), [3, 4, 5, 0, 1, 2], np.array([0.1, 0.2, -0.3])
    of, to = model.link_names[-1], model.link_names[2]
    frame, other = theirs.getBodyId(of), theirs.getBodyId(to)
    pin.computeJointJacobians(theirs, data, y)
    pin.updateFramePlacements(theirs, data)
    tip = theirs.frames[frame].placement * pin.SE3(np.eye(3), point)
    J = pin.getFrameJacobian(theirs, data, theirs.frames[frame].parentJoint, tip, pin.LOCAL)
    assert relative(dyn.jacobian(q, of, point=point, frame="body"), J[np.ix_(swap, at.velocities)]) < 1e-11
    apart = data.oMf[frame].actInv(data.oMf[other])
    J_of, J_to = (pin.getFrameJacobian(theirs, data, each, pin.LOCAL) for each in (frame, other))
    wanted = J_of - apart.action @ J_to
    assert relative(dyn.jacobian(q, of, relative_to=to, frame="body"), wanted[np.ix_(swap, at.velocities)]) < 1e-11
    assert relative(dyn.link_pose(q, of, relative_to=to), data.oMf[other].actInv(data.oMf[frame]).homogeneous) < 1e-11


def test_lists_are_looked_up_in_the_model_of_now():
    """Names mean other links once the model is another; a list that is changed is another list."""
    model = rd.load_urdf(robots.own("arm7"))
    order = [*model.link_names[1:], model.link_names[0]]
    places = [model.link_names.index(name) for name in order]
    other = dataclasses.replace(
        model,
        **{name: getattr(model, name)[places] for name in ("link_body", "link_X", "link_inertia")},
        link_names=tuple(order),
        link_joints=tuple(model.link_joints[k] for k in places),
        link_parent=None,
    )
    dyn, q = rd.Dynamics(model), model.random_configuration(0)
    names = [model.link_names[2], model.link_names[-1]]
    wanted = dyn.jacobian(q, links=names)
    for _ in range(3):
        assert (dyn.jacobian(q, links=names) == wanted).all()
    names.append(model.link_names[3])
    assert dyn.jacobian(q, links=names).shape[0] == 3
    del names[2]
    dyn.model, dyn.engine = other, rd.Dynamics(other).engine
    for _ in range(4):
        assert relative(dyn.jacobian(q, links=names), wanted) < 1e-12


# What is wrong is said.


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "link, links: got neither of them; wanted a link's name or index, or links=\\[...\\] of several"),
        ({"link": 0, "links": [1]}, "link, links: got 0 and \\[1\\]; wanted"),
        ({"links": []}, "links: got an empty list; wanted at least one name or index"),
        ({"links": "tool0"}, "links: got 'tool0'; wanted a list of names or indices"),
        ({"links": [0, "nothing"]}, "links\\[1\\]: got 'nothing'"),
        ({"links": [0, True]}, "links\\[1\\]: got True"),
        ({"links": [np.zeros(1, "m8")[0]]}, "links\\[0\\]: got"),
        ({"links": [0, 1], "point": "here"}, r"point: .*\(\.\.\., 2, 3\)"),
        ({"link": 0, "relative_to": 99}, "relative_to: got 99"),
        ({"link": 0, "point": [1.0, 2.0]}, "point: got shape \\(2,\\)"),
        ({"links": [0, 1], "point": np.zeros((3, 3))}, "point: got shape \\(3, 3\\)"),
        ({"link": 0, "point": [0.0, np.nan, 0.0]}, "point"),
    ],
)
def test_wrong_places_are_named(given, message):
    dyn = rd.Dynamics(rd.load_urdf(robots.own("arm7")))
    for _ in range(3):  # also once it is known
        with pytest.raises(rd.RobodynError, match=message):
            dyn.jacobian(np.zeros(7), **given)
