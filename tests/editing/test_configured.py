"""Named configurations go along with edits: links are where they were, as far as the edit lets them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from edited import tree

import robodyn as rd


def named(model, n=2):
    return replace(model, configurations={f"c{k}": model.random_configuration(k) for k in range(n)})


def poses(model, name):
    found = rd.Dynamics(model, engine="reference").forward_kinematics(model.configurations[name])
    return dict(zip(model.link_names, found, strict=True))


def same(first, second, links):
    assert links
    for link in links:
        assert np.abs(first[link] - second[link]).max() < 1e-9, link


def changes(model):
    return [each for each in model.report if each.code == "configuration-changed"]


BASES = pytest.mark.parametrize("base", ["fixed", "floating"])


@BASES
@pytest.mark.parametrize("seed", range(4))
def test_lock(seed, base):
    model = named(tree(seed, base))
    b = int(np.flatnonzero(model.mimics < 0)[2])
    starts = [*model.q_start.tolist(), model.nq_tree]
    at = model.tree_coordinates(model.configurations["c1"])[starts[b] : starts[b + 1]]
    locked = model.lock({model.joint_names[b]: at})
    same(poses(model, "c1"), poses(locked, "c1"), model.link_names)
    assert [each.elements for each in changes(locked)] == [('configuration "c0"',)]
    assert locked.with_inertia(0, mass=2.0, inertia=np.eye(3)).configurations == locked.configurations
    assert locked.with_frames({"f": (0, None)}).configurations == locked.configurations


@BASES
@pytest.mark.parametrize("seed", range(4))
def test_reroot(seed, base):
    """Links stand to each other as they did; in the world, too, where the base floats."""
    model = named(rd.random_tree(10, seed=seed, joints=("revolute", "spherical", "planar", "floating"), base=base))
    for link in (model.link_names[3], model.link_names[-1]):
        turned = model.reroot(link)
        assert tuple(turned.configurations) == ("c0", "c1")
        for name in model.configurations:
            before, after = poses(model, name), poses(turned, name)
            moved = after[link] @ np.linalg.inv(before[link])
            same({each: moved @ pose for each, pose in before.items()}, after, model.link_names)
            assert base == "fixed" or np.abs(moved - np.eye(4)).max() < 1e-9


@pytest.mark.parametrize("seed", range(4))
def test_subtree(seed):
    model = named(rd.random_tree(10, seed=seed, joints=("revolute", "spherical", "planar")))
    link = model.link_names[3]
    part = model.subtree(link)
    for name in part.configurations:
        before, after = poses(model, name), poses(part, name)
        root = np.linalg.inv(before[link])
        same({each: root @ pose for each, pose in before.items()}, after, part.link_names)


def test_attach():
    arm, hand = named(tree(1)), named(tree(2), 3)
    both = arm.attach(hand, arm.link_names[-1], prefix="h_")
    assert tuple(both.configurations) == ("c0", "c1", "h_c0", "h_c1", "h_c2")
    same(poses(arm, "c1"), poses(both, "c1"), arm.link_names)
    resting = dict(zip(arm.link_names, rd.Dynamics(arm).forward_kinematics(arm.neutral()), strict=True))
    same(resting, poses(both, "h_c1"), arm.link_names)
    assert np.array_equal(both.configurations["h_c2"][arm.nq :], hand.configurations["c2"])
    assert {element for each in changes(both) for element in each.elements} == {
        f'configuration "{name}"' for name in both.configurations
    }
    renamed = {what: tuple(f"t_{each}" for each in getattr(hand, what)) for what in ("link_names", "joint_names")}
    third = replace(hand, **renamed)
    merged = arm.attach(third, arm.link_names[-1])
    assert tuple(merged.configurations) == ("c0", "c1", "c2") and len(changes(merged)) == 1
    assert np.array_equal(merged.configurations["c1"], [*arm.configurations["c1"], *hand.configurations["c1"]])
    assert not replace(arm, configurations={}).attach(tree(2), arm.link_names[-1], prefix="h_").configurations
