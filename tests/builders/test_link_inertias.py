"""Inertias of links and bodies as arrays, held against the scalars of `robodyn.spatial`, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from robodyn.description import Inertial, Link, Pose, rotation_from_rpy
from robodyn.io.builders.axes import pose_transform
from robodyn.io.builders.link_inertias import of_bodies, of_links
from robodyn.spatial import Inertia, Transform

Z = (0.0, 0.0, 0.0)


def numbers(rng, count):
    """Random ones, among them zeros of both signs, whose sums show an order of additions."""
    return tuple(np.where(rng.random(count) < 0.3, rng.choice((0.0, -0.0), count), rng.normal(size=count)).tolist())


def carried(X, row):
    """`Transform.inertia_back` of rows."""
    E, r, given = tuple(X[:9]), tuple(X[9:]), row.tolist()
    found = Transform(E, r).inertia_back(Inertia(given[0], tuple(given[1:4]), tuple(given[4:])))
    return (found.m, *found.h, *found.I)


@pytest.mark.parametrize("count", (1, 2, 7, 60))
@pytest.mark.parametrize("seed", range(3))
def test_arrays_round_as_scalars_do(count, seed):
    rng = np.random.default_rng(seed)
    poses = [Pose(numbers(rng, 3), rotation_from_rpy(*numbers(rng, 3))) for _ in range(count)]
    links = [Link(f"l{k}", Inertial(abs(numbers(rng, 1)[0]), pose, numbers(rng, 6))) for k, pose in enumerate(poses)]
    links.append(Link("light"))
    inertia = of_links(links)
    for link, row in zip(links, inertia, strict=True):
        if link.inertial is None:
            assert not row.any()
        else:
            X = pose_transform(link.inertial.pose)
            alone = np.array((link.inertial.mass, *Z, *link.inertial.inertia))
            assert row.tobytes() == np.array(carried((*X.E, *X.r), alone)).tobytes()
    link_X = np.array([(*rotation_from_rpy(*numbers(rng, 3)), *numbers(rng, 3)) for _ in links])
    body = np.arange(len(links))
    bodies = of_bodies(inertia, body, link_X, len(links))
    for X, row, got in zip(link_X.tolist(), inertia, bodies, strict=True):
        wanted = np.array(carried(X, row)) if row.any() else np.zeros(10)
        assert got.tobytes() == (np.zeros(10) + wanted).tobytes()
