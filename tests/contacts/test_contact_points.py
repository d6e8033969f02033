"""Queries about points of contact: engines, robots, frames, the command line."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from conftest import random_states
from robots import own

import robodyn as rd

FLOOR = rd.Plane(normal=(0.6, 0.0, 0.8), offset=-0.2)


def contacting(base: str = "floating") -> rd.Model:
    """An arm with shapes of each kind, that touch a tilted floor, a box of the world and each other."""
    model = rd.load_urdf(own("arm6"), base=base)
    names = model.link_names
    ball = rd.Sphere(names[2], (0.05, 0.0, 0.1), 0.08, name="knob")
    rod = rd.Capsule(names[3], (0.0, 0.0, -0.1), (0.1, 0.0, 0.2), 0.06)
    other = rd.Capsule(names[6], (0.0, 0.0, 0.0), (0.0, 0.1, 0.2), 0.05)
    can = rd.Cylinder(names[4], np.eye(4), 0.07, 0.2)
    box = rd.Box(names[6], None, (0.1, 0.2, 0.15), name="hand")
    block = rd.Box(None, (0.2, 0.1, 0.0), (0.5, 0.4, 0.3), name="block")
    pairs = [(each, FLOOR) for each in (ball, rod, can, box)] + [(FLOOR, other), (ball, block), (block, rod)]
    pairs += [(ball, other), (other, ball), (rod, other), (box, rod)]
    return model.with_contacts([rd.Contact(*pair) for pair in pairs])


@pytest.mark.some(of=3, rest="matrix")
@pytest.mark.parametrize("base", ["fixed", "floating"])
def test_every_engine_answers_alike(base, make_dynamics, tolerance):
    model = contacting(base)
    dyn, right = make_dynamics(model), rd.Dynamics(model, engine="reference")
    q = random_states(model, (17,))[0]
    for name in ("contact_distances", "contact_frames"):
        wanted = getattr(right, name)(q)
        out = np.full(wanted.shape, np.nan, dyn.dtype)
        assert getattr(dyn, name)(q, out=out) is out
        near = np.broadcast_to((right.contact_distances(q) < 1e9).reshape(17, -1, *[1] * (wanted.ndim - 2)), out.shape)
        assert near.mean() > 0.8
        assert np.abs(out - wanted)[near].max() <= 300.0 * tolerance
        assert np.array_equal(getattr(dyn, name)(q[3]), out[3])


@pytest.mark.some(of=2, rest="matrix")
def test_frames_are_those_of_the_pair(make_dynamics):
    model = contacting()
    assert model.contacts is not None
    dyn, q = make_dynamics(model), random_states(model, (9,))[0]
    T, d = dyn.contact_frames(q), dyn.contact_distances(q)
    low = 1e-12 if dyn.dtype == np.float64 else 1e-5
    R = T[..., :3, :3]
    assert np.abs(R.swapaxes(-1, -2) @ R - np.eye(3)).max() < low and np.abs(np.linalg.det(R) - 1.0).max() < low
    pairs = np.array(model.contacts.slot_pairs)
    # The first shape is above the floor; n points from the second to the first, also where the floor is first.
    assert np.abs(T[:, pairs < 4, :3, 0] - [0.6, 0.0, 0.8]).max() < low
    assert np.abs(T[:, pairs == 4, :3, 0] + [0.6, 0.0, 0.8]).max() < low
    # Swapped shapes: the same point and distance, the normal turned.
    one, other = pairs == 7, pairs == 8
    assert np.array_equal(d[:, one], d[:, other]) and np.array_equal(T[:, one, :3, 3], T[:, other, :3, 3])
    assert np.abs(T[:, one, :3, 0] + T[:, other, :3, 0]).max() < low


def test_a_horizontal_plane_has_axes_z_y_and_minus_x():
    model = rd.load_urdf(own("arm6")).with_contacts([rd.Contact(rd.Sphere("tool0", radius=0.1), rd.Plane())])
    dyn = rd.Dynamics(model)
    q = np.linspace(-1.0, 1.0, model.nq)
    T, centre = dyn.contact_frames(q)[0], dyn.forward_kinematics(q)[model.link_index("tool0"), :3, 3]
    assert np.array_equal(T[:3, :3].T, [[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 0.0]])
    assert abs(dyn.contact_distances(q)[0] - (centre[2] - 0.1)) < 1e-15
    assert np.abs(T[:3, 3] - [centre[0], centre[1], 0.5 * (centre[2] - 0.1)]).max() < 1e-15


@pytest.mark.some(of=2, rest="matrix")
def test_many_pairs_take_several_programs(make_dynamics, tolerance):
    model = contacting()
    assert model.contacts is not None
    many = dataclasses.replace(model, contacts=dataclasses.replace(model.contacts, pairs=model.contacts.pairs * 12))
    q = random_states(model, (5,))[0]
    dyn, few = make_dynamics(many), rd.Dynamics(model, engine="reference")
    for name in ("contact_distances", "contact_frames"):
        found, wanted = getattr(dyn, name)(q), getattr(few, name)(q)
        assert found.shape[1] == 12 * wanted.shape[1]
        error = np.abs(found.reshape(5, 12, *wanted.shape[1:]) - wanted[:, None])
        assert error[:, :, few.contact_distances(q)[0] < 1e9].max() <= 300.0 * tolerance


def test_nan_stays_in_its_row(make_dynamics):
    model = contacting()
    dyn, q = make_dynamics(model), random_states(model, (6,))[0]
    clean = dyn.contact_distances(q)
    q[2, 0] = np.nan
    spoilt = dyn.contact_distances(q)
    assert np.isnan(spoilt[2, 0]) and np.array_equal(np.delete(spoilt, 2, 0), np.delete(clean, 2, 0))


def test_models_without_contacts_are_refused():
    model = rd.load_urdf(own("arm6"))
    for each in (model, model.with_contacts([])):
        with pytest.raises(rd.ArgumentError, match=r"contact_distances: .* has no contacts"):
            rd.Dynamics(each).contact_distances(np.zeros(6))


@pytest.mark.extras
def test_derivatives_are_those_of_differences():
    jax = pytest.importorskip("jax")
    import robodyn.jax as bridge

    jax.config.update("jax_enable_x64", True)
    model = contacting("fixed")
    dyn, q = rd.Dynamics(model), np.random.default_rng(0).uniform(-1.0, 1.0, 6)
    functions = bridge.wrap(dyn)
    found, step = np.asarray(jax.jacrev(functions.contact_distances)(q)), 1e-6
    ends = dyn.contact_distances(q + step * np.concatenate((np.eye(6), -np.eye(6))))
    differences = ((ends[:6] - ends[6:]) / (2.0 * step)).T
    there = dyn.contact_distances(q) < 1e9
    assert there.sum() > 10 and np.abs(found - differences)[there].max() < 1e-8
    assert np.isfinite(np.asarray(jax.jacrev(functions.contact_frames)(q))).all()
    with pytest.raises(TypeError, match="ground_pose"):  # parameters of each state are those of `Dynamics` alone
        functions.contact_distances(q, ground_pose=np.eye(4))
