"""Robots hung on another link: the same mechanism, seen from there."""

from __future__ import annotations

import numpy as np
import pytest
from edited import EVERY, loaded, name, reference, require_same, tree, velocities_of
from robots import own

import robodyn as rd
from robodyn.joints import CODE, KINDS


def coordinates(model, turned, q, moved):
    """Coordinates of the turned model for those of another one, but for the base; `moved`: joints passed the other way,
    whose poses are the inverse ones if they have several coordinates."""
    out = turned.neutral()
    ours, theirs = velocities_of(model), velocities_of(turned)
    for joint, at in theirs.items():
        if joint not in ours:
            continue
        values = q[ours[joint]["q"]]
        kind = KINDS[turned.joint_kind[turned.joint_index(joint)]]
        out[at["q"]] = inverse(kind, values) if joint in moved and kind.nv > 1 else values
    return out


def inverse(kind, q):
    """The coordinates of the inverse of a joint's transform."""
    X = kind.transform(tuple(q), 0.0).inverse()
    if kind.name == "planar":
        return np.array([X.r[0], X.r[1], -q[2]])
    quaternion = np.array([-q[-4], -q[-3], -q[-2], q[-1]])
    return quaternion if kind.name == "spherical" else np.concatenate([X.r, quaternion])


def passed(model, link):
    """Joints between a link and the root, whatever the root is."""
    found, b = set(), int(model.link_body[model.link_index(link)])
    while b >= 0:
        found.add(model.joint_names[b])
        b = int(model.parent[b])
    return found


def require_seen_from(model, link, seed=0):
    """All poses relative to the new root are what they were."""
    turned = model.reroot(link)
    assert turned.link_names == model.link_names and turned.report == model.report
    assert set(turned.joint_names) == set(model.joint_names) and turned.nv == model.nv
    q = model.random_configuration(seed)
    poses = reference(model).forward_kinematics(q)
    wanted = np.linalg.inv(poses[model.link_index(link)]) @ poses
    found = reference(turned).forward_kinematics(coordinates(model, turned, q, passed(model, link)))
    found = np.linalg.inv(found[model.link_index(link)]) @ found
    if (
        floats(model) and model.link_body[model.link_index(link)] >= 0
    ):  # where the base is in the world is another thing
        moving = model.link_body >= 0
        found, wanted = found[moving], wanted[moving]
    np.testing.assert_allclose(found, wanted, atol=1e-12 * max(1.0, np.abs(wanted).max()))
    return turned


def floats(model):
    """Whether all that moves is carried by one body that floats in the world."""
    return model.parent.tolist().count(-1) == 1 and model.joint_kind[0] == CODE["floating"]


def some_links(model, count=4):
    return model.link_names[:: max(1, len(model.link_names) // count)]


@pytest.mark.some(of=16, rest="matrix")
@pytest.mark.parametrize("path", EVERY, ids=name)
def test_every_robot_hangs_on_other_links(path):
    model = loaded(path)
    root = model.link_names[model.link_parent.tolist().index(-1)]
    if floats(model):
        root = model.body_names[0]  # what floats under the root link
    for link in some_links(model):
        try:
            turned = require_seen_from(model, link)
        except rd.ArgumentError as error:
            assert "from the other side" in str(error)
            continue
        back = turned.reroot(root)
        assert set(back.joint_names) == set(model.joint_names)
        require_same(model, back)
        np.testing.assert_array_equal(back.link_parent, model.link_parent)
        assert [a for a, p in zip(back.link_joints, back.link_parent, strict=True) if p >= 0] == [
            a for a, p in zip(model.link_joints, model.link_parent, strict=True) if p >= 0
        ]


@pytest.mark.some(of=16, rest="matrix")
@pytest.mark.parametrize("path", EVERY, ids=name)
def test_floating_robots_move_alike(path):
    """The same motion has the same energies, and forces of joints alone the same accelerations of joints."""
    model = loaded(path, "floating")
    rng = np.random.default_rng(7)
    for link in some_links(model, 3):
        if any(
            model.joint_kind[model.joint_index(joint)] in (CODE["planar"], CODE["spherical"], CODE["floating"])
            for joint in passed(model, link) - {"root_joint"}
        ):
            continue
        turned = require_seen_from(model, link)
        dyn, other = reference(model), reference(turned)
        q, qd = model.random_configuration(rng), rng.normal(size=model.nv)
        there = coordinates(model, turned, q, passed(model, link))
        base = velocities_of(turned)["root_joint"]
        pose, J = dyn.link_pose(q, link), dyn.jacobian(q, link, frame="body")
        there[base["q"]] = np.concatenate([pose[:3, 3], quaternion(pose[:3, :3])])
        speed = np.zeros(turned.nv)
        joints = {joint: at for joint, at in velocities_of(model).items() if joint != "root_joint"}
        for joint, at in joints.items():
            speed[velocities_of(turned)[joint]["v"]] = qd[at["v"]]
        twist = J @ qd
        speed[base["v"]] = np.concatenate([twist[3:], twist[:3]])
        np.testing.assert_allclose(other.forward_kinematics(there), dyn.forward_kinematics(q), atol=1e-11)
        energy = dyn.kinetic_energy(q, qd)
        np.testing.assert_allclose(other.kinetic_energy(there, speed), energy, rtol=1e-11)
        potential = dyn.potential_energy(q)
        np.testing.assert_allclose(other.potential_energy(there), potential, atol=1e-11 * max(1.0, abs(potential)))
        if dyn.singularity() is not None or other.singularity() is not None:
            continue
        tau, push = np.zeros(model.nv), np.zeros(turned.nv)
        for joint, at in joints.items():
            tau[at["v"]] = push[velocities_of(turned)[joint]["v"]] = rng.normal(size=at["v"].size)
        qdd, turned_qdd = dyn.forward_dynamics(q, qd, tau), other.forward_dynamics(there, speed, push)
        wanted = np.concatenate([np.empty(0), *(qdd[at["v"]] for at in joints.values())])
        found = np.concatenate([np.empty(0), *(turned_qdd[velocities_of(turned)[joint]["v"]] for joint in joints)])
        np.testing.assert_allclose(found, wanted, atol=1e-6 * max(1.0, np.abs(wanted).max(initial=0.0)))


def quaternion(R):
    """xyzw of a rotation, by the eigenvector that belongs to it."""
    (a, b, c), (d, e, f), (g, h, i) = R
    K = np.array(
        [
            [a - e - i, d + b, g + c, h - f],
            [d + b, e - a - i, h + f, c - g],
            [g + c, h + f, i - a - e, d - b],
            [h - f, c - g, d - b, a + e + i],
        ]
    )
    return np.linalg.eigh(K / 3.0)[1][:, -1]


@pytest.mark.some(of=5, rest="matrix")
@pytest.mark.parametrize("seed", range(20))
def test_random_trees(seed):
    model = tree(seed, base=("fixed", "floating")[seed % 2], n=10)
    for k in (3, 7, 10):
        try:
            require_seen_from(model, f"link{k}", seed)
        except rd.ArgumentError as error:
            assert "from the other side" in str(error)


@pytest.mark.parametrize("kind", ["planar", "spherical", "floating"])
def test_joints_of_several_coordinates_from_the_other_side(kind):
    model = rd.random_tree(5, seed=4, joints=(kind, "revolute"), shape="chain")
    turned = require_seen_from(model, "link5")
    q, rng = model.random_configuration(2), np.random.default_rng(2)
    there = coordinates(model, turned, q, passed(model, "link5"))
    # Rates by differences. The energy of the same motion with the new root at rest, and that of the old root, which
    # moves then and is a body.
    eps, qd = 1e-6, rng.normal(size=model.nv)
    ahead = coordinates(model, turned, model.integrate(q, qd, eps), passed(model, "link5"))
    behind = coordinates(model, turned, model.integrate(q, qd, -eps), passed(model, "link5"))
    speed = turned.difference(behind, ahead) / (2 * eps)
    J = reference(model).jacobian(q, "link5", frame="world")
    energy = reference(model).kinetic_energy(q, qd, V0=-(J @ qd))
    root = turned.link_inertia[0]
    V = reference(turned).jacobian(there, "link0", frame="body") @ speed
    own_energy = 0.5 * (root[0] * V[3:] @ V[3:] + 2 * root[1:4] @ np.cross(V[3:], V[:3]) + V[:3] @ square(root) @ V[:3])
    np.testing.assert_allclose(reference(turned).kinetic_energy(there, speed), energy + own_energy, rtol=1e-6)


def square(ten):
    return ten[4:][[0, 1, 2, 1, 3, 4, 2, 4, 5]].reshape(3, 3)


def test_armature_that_would_not_be_such_is_refused():
    model = rd.random_tree(4, seed=1, joints=("planar", "floating"), shape="chain", armature=True)
    with pytest.raises(rd.ArgumentError, match=r"link: the way to it passes the .* joint .*from the other side"):
        model.reroot("link4")
    with pytest.raises(rd.ArgumentError, match="link: got 'nowhere'"):
        model.reroot("nowhere")


def test_a_base_that_floats_in_a_world_with_links_floats_on():
    """As robots of MuJoCo do. The world stays where it is."""
    model = rd.load_urdf(own("satellite"))
    world, leaf = model.link_names[int(model.link_parent.tolist().index(-1))], model.link_names[-1]
    turned = require_seen_from(model, leaf)
    assert floats(turned)
    assert turned.body_names[0] == leaf and turned.link_parent[turned.link_index(leaf)] == turned.link_index(world)
    assert turned.link_body[turned.link_index(world)] == -1
    assert turned.total_mass == pytest.approx(model.total_mass)
    assert model.reroot(world) == model


def test_followers_keep_following():
    model = loaded(own("gripper"), "floating")
    b = int(np.flatnonzero(model.mimics >= 0)[0])
    turned = require_seen_from(model, model.body_names[b])
    again = turned.joint_index(model.joint_names[b])
    assert turned.joint_names[turned.mimics[again]] == model.joint_names[model.mimics[b]]
    assert turned.body_names[turned.joint_index("root_joint")] == model.body_names[b]
