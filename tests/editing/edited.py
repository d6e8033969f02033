"""What tests of edits share: robots, models compared, and descriptions that are edited as texts would be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from robots import OWN, SHARED

import robodyn as rd
from robodyn.description import IDENTITY, JOINT_TYPES, Joint, Pose

EVERY = [*OWN, *SHARED]
CLOSE = 1e-12
"""Relative: edits and files turn frames and back, a rounding or two each."""


def name(path):
    return path.stem


def loaded(path, base="fixed"):
    return rd.load_urdf(path, base=base, strict=False)


def tree(seed, base="fixed", n=12):
    """A random tree of all joint types, with followers and armature."""
    return rd.random_tree(n, seed=seed, joints=JOINT_TYPES, mimic=0.3, armature=True, base=base)


def reference(model):
    return rd.Dynamics(model, engine="reference")


def velocities_of(model):
    """Places of every free joint's velocities, and of its coordinates, by its name."""
    found = {}
    sizes = {"q": model.q_start, "v": model.v_start}
    ends = {"q": model.nq_tree, "v": model.nv_tree}
    for b, joint in enumerate(model.joint_names):
        if model.mimics[b] >= 0:
            continue
        places = {}
        for letter, start in sizes.items():
            end = start[b + 1] if b + 1 < model.n_bodies else ends[letter]
            places[letter] = getattr(model, f"{letter}_source")[start[b] : end]
        found[joint] = places
    return found


def places(model, other, letter):
    """Where the coordinates ("q") or velocities ("v") of `model` stand among those of `other`, by names of joints."""
    theirs = velocities_of(other)
    found = [theirs[joint][letter] for joint in velocities_of(model)]
    return np.concatenate([np.empty(0, np.intp), *found])


def require_same(model, other, tolerance=CLOSE, limits=True, links=None):
    """Two models of the same joints, in any order, answer alike: torques, mass matrix, poses of links, coefficients."""
    assert set(model.joint_names) == set(other.joint_names)
    q_at, v_at = places(model, other, "q"), places(model, other, "v")
    rng = np.random.default_rng(5)
    q, qd, qdd = model.random_configuration(rng, (2,)), *rng.normal(size=(2, 2, model.nv))

    def theirs(values, at, size):
        out = np.zeros((2, size))
        out[:, at] = values
        return out

    given = theirs(q, q_at, other.nq), theirs(qd, v_at, other.nv), theirs(qdd, v_at, other.nv)
    dyn, second = reference(model), reference(other)
    wanted = dyn.inverse_dynamics(q, qd, qdd)
    size = max(np.abs(wanted).max(initial=0.0), 1e-3)
    np.testing.assert_allclose(second.inverse_dynamics(*given)[:, v_at], wanted, atol=tolerance * size)
    H = dyn.mass_matrix(q)
    size = np.abs(H).max(initial=1e-6)
    np.testing.assert_allclose(second.mass_matrix(given[0])[:, v_at][:, :, v_at], H, atol=tolerance * size)
    chosen = model.link_names if links is None else links
    ours = dyn.forward_kinematics(q)[:, [model.link_index(link) for link in chosen]]
    poses = second.forward_kinematics(given[0])[:, [other.link_index(link) for link in chosen]]
    np.testing.assert_allclose(poses, ours, atol=tolerance * max(1.0, np.abs(ours).max(initial=0.0)))
    names = ["armature", "damping", "friction"]
    names += ["effort_limit", "velocity_limit"] if limits else []
    for what in names:
        np.testing.assert_allclose(getattr(other, what)[v_at], getattr(model, what), rtol=1e-15, err_msg=what)
    for what in ("lower", "upper") if limits else ():
        np.testing.assert_array_equal(getattr(other, what)[q_at], getattr(model, what), err_msg=what)


def require_alike(model, other, tolerance=1e-15):
    """Two models with the same bodies and links in the same order, whose arrays agree to roundings."""
    assert model.joint_names == other.joint_names and model.link_names == other.link_names
    assert tuple(model.body_names) == tuple(other.body_names)
    for what in ("parent", "joint_kind", "mimics", "q_source", "v_source", "q_start", "v_start", "link_body"):
        np.testing.assert_array_equal(getattr(model, what), getattr(other, what), err_msg=what)
    for what in ("tree_lower", "tree_upper", "tree_effort", "tree_velocity", "tree_damping", "tree_friction"):
        np.testing.assert_array_equal(getattr(model, what), getattr(other, what), err_msg=what)
    for what in ("Xtree", "link_X", "inertia", "link_inertia", "pitch", "q_multiplier", "q_offset", "tree_armature"):
        a, b = getattr(model, what), getattr(other, what)
        np.testing.assert_allclose(a, b, atol=tolerance * max(1.0, np.abs(a).max(initial=0.0)), err_msg=what)
    np.testing.assert_array_equal(model.link_parent, other.link_parent)
    assert model.link_joints == other.link_joints


def prefixed(description, prefix):
    """A description with a prefix before all names."""
    links = tuple(replace(link, name=prefix + link.name) for link in description.links)
    joints = tuple(
        replace(
            joint,
            name=prefix + joint.name,
            parent=prefix + joint.parent,
            child=prefix + joint.child,
            mimic=None if joint.mimic is None else replace(joint.mimic, joint=prefix + joint.mimic.joint),
        )
        for joint in description.joints
    )
    return replace(description, links=links, joints=joints)


def fixed(joint, parent, child, xyz=(0.0, 0.0, 0.0), rotation=IDENTITY):
    return Joint(joint, "fixed", parent, child, Pose(xyz, rotation))
