"""Edits one after another: what links weigh, and where they stand to each other, stays whatever is done."""

from __future__ import annotations

import numpy as np
import pytest
from edited import CLOSE, reference, velocities_of

import robodyn as rd

KINDS = ("revolute", "prismatic", "helical", "continuous", "fixed", "universal")


def by_joint(model, at):
    """Coordinates of a model whose joints have one each, from those by name."""
    q = model.neutral()
    for joint, places in velocities_of(model).items():
        q[places["q"]] = at[joint]
    return q


def relative_poses(model, at, links):
    """Poses of links, as the first of them sees them."""
    poses = reference(model).forward_kinematics(by_joint(model, at))
    chosen = poses[[model.link_index(link) for link in links]]
    return np.linalg.inv(chosen[0]) @ chosen


def weights(model, links):
    return {link: model.link_inertia[model.link_index(link)] for link in links}


def edit(model, rng, at, count):
    """One edit drawn at random, and what `at` is after it."""
    links = list(model.link_names)
    link = links[int(rng.integers(len(links)))]
    free = list(velocities_of(model))
    what = rng.choice(["lock", "attach", "subtree", "reroot", "frame", "read", "save"])
    if what == "lock" and len(free) > 1:
        return model.lock({joint: at[joint] for joint in free if rng.random() < 0.2})
    if what == "attach":
        other = rd.random_tree(4, seed=int(rng.integers(99)), joints=KINDS[:4], mimic=0.3)
        prefix = f"{count}/"
        at.update({f"{prefix}{joint}": float(rng.normal()) for joint in velocities_of(other)})
        return model.attach(other, link, rng.normal(size=3), prefix)
    if what == "subtree" and len(free) > 3:
        try:
            part = model.subtree(link)
        except rd.ArgumentError as error:
            assert "stays behind" in str(error)
            return model
        return part if part.nv > 2 else model
    if what == "reroot":
        return model.reroot(link)
    if what == "frame":
        return model.with_frames({f"frame{count}": (link, rng.normal(size=3))})
    if what == "read":
        return rd.load_urdf(model.to_urdf(), strict=False)
    return model


@pytest.mark.some(of=6, rest="matrix")
@pytest.mark.parametrize("seed", range(60))
def test_links_stay_what_and_where_they_are(seed, tmp_path):
    rng = np.random.default_rng(seed)
    model = rd.random_tree(9, seed=seed, joints=KINDS, mimic=0.3, armature=True)
    at = {joint: float(rng.normal()) for joint in velocities_of(model)}
    for count in range(8):
        before, model = model, edit(model, rng, at, count)
        links = [link for link in before.link_names if link in set(model.link_names)]
        old, new = (relative_poses(each, at, links) for each in (before, model))
        np.testing.assert_allclose(new, old, atol=CLOSE * max(1.0, np.abs(old).max()))
        mine, theirs = weights(before, links), weights(model, links)
        for link in links:
            scale = max(np.abs(mine[link]).max(), 1e-3)
            np.testing.assert_allclose(theirs[link], mine[link], atol=CLOSE * scale, err_msg=link)
        sums = np.zeros((model.n_bodies + 1, 10))
        np.add.at(sums, model.link_body, rd.inertial_parameters.in_frame(model.link_inertia, inverses(model.link_X)))
        np.testing.assert_allclose(
            sums[:-1], model.inertia, atol=CLOSE * max(1.0, np.abs(model.inertia).max(initial=0))
        )
        model.save(tmp_path / "robot.npz")
        assert rd.Model.load(tmp_path / "robot.npz") == model


def inverses(rows):
    """Transforms (L, 12) the other way."""
    E, r = rows[:, :9].reshape(-1, 3, 3), rows[:, 9:]
    back = -np.einsum("lij,lj->li", E, r)
    return np.concatenate([np.swapaxes(E, 1, 2).reshape(-1, 9), back], axis=1)
