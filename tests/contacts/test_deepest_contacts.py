"""Robots with more slots than can act at once: the deepest ones act."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import random_states
from robots import own

import robodyn as rd


def crowd(most: int | None, cone: str = "pyramidal", **options: float) -> rd.Model:
    """A floating arm with shapes on all links, that can touch the floor, a wall and each other."""
    model = rd.load_urdf(own("arm6"), base="floating")
    names = model.link_names
    balls = [rd.Sphere(name, (0.02, 0.0, 0.05), 0.05 + 0.01 * k) for k, name in enumerate(names[3:6])]
    boxes = [rd.Box(names[6], None, (0.1, 0.12, 0.2))]
    wall = rd.Plane(normal=(-1.0, 0.0, 0.0), offset=-0.4)
    rows = [rd.Contact(each, rd.Plane(), friction=0.5 + 0.1 * k) for k, each in enumerate((*balls, *boxes))]
    rows += [rd.Contact(each, wall, solref=(0.03, 0.8), margin=0.01) for each in balls]
    alone = {"condim": 1} if cone == "pyramidal" else {}
    among = [(balls[0], balls[2]), (boxes[0], balls[0]), (boxes[0], balls[1])]
    rows += [rd.Contact(*pair, **alone, solimp=(0.8, 0.9, 0.01, 0.4, 3.0)) for pair in among]
    return model.with_contacts(rows, max_contacts=most, cone=cone, **options)


def touching(model: rd.Model, n: int) -> tuple[np.ndarray, ...]:
    """States in which some slots act."""
    q, qd, _ = random_states(model, (n,), seed=2)
    q[:, :3] = np.random.default_rng(2).uniform([-0.2, -0.1, 0.0], [0.3, 0.1, 0.25], (n, 3))
    return q, qd, np.random.default_rng(3).standard_normal(qd.shape)


@pytest.mark.filterwarnings("ignore:.*did not converge")  # in single precision
@pytest.mark.some(of=1, rest="matrix")
@pytest.mark.parametrize(("cone", "impratio"), [("pyramidal", 1.0), ("elliptic", 5.0)])
def test_the_deepest_slots_act_as_all_do(make_dynamics, tolerance, cone, impratio):
    every, some = (crowd(most, cone, impratio=impratio) for most in (None, 6))
    assert every.contacts is not None and len(every.contacts.slot_pairs) > 8
    q, qd, tau = touching(every, 24)
    act = (rd.Dynamics(every, engine="reference").contact_distances(q) < 0.0).sum(1)
    q, qd, tau = q[act <= 6], qd[act <= 6], tau[act <= 6]
    assert len(q) > 8 and act.max() > 3
    dyn = make_dynamics(some)
    (a, f), (a_every, f_every) = (each.contact_forward_dynamics(q, qd, tau) for each in (dyn, rd.Dynamics(every)))
    assert f.shape == f_every.shape and (f_every[..., 0] > 0.0).any()
    low = 1e-7 if dyn.dtype == np.float64 else 5e-2
    assert (np.abs(a - a_every).max(1) <= low * np.abs(a_every).max(1)).all()
    assert (np.abs(f - f_every).max((1, 2)) <= low * np.maximum(np.abs(f_every).max((1, 2)), 1.0)).all()


def test_more_than_fit_are_reported():
    every, some = crowd(None), crowd(3)
    q, qd, tau = touching(every, 24)
    act = (rd.Dynamics(every).contact_distances(q) < 0.0).sum(1)
    full = act > 3
    assert full.any() and not full.all()
    with pytest.warns(rd.internals.errors.ConvergenceWarning, match="or more than max_contacts=3 slots acted"):
        _, f = rd.Dynamics(some).contact_forward_dynamics(q, qd, tau)
    assert ((f != 0.0).any(-1).sum(1) <= 3).all()
    assert rd.Dynamics(some).contact_distances(q).shape == rd.Dynamics(every).contact_distances(q).shape


@pytest.mark.matrix
def test_steps_obey_the_deepest():
    every, some = crowd(None), crowd(8)
    states = touching(every, 24)
    act = (rd.Dynamics(every).contact_distances(states[0]) < 0.0).sum(1)
    q, qd, tau = (each[(act > 0) & (act < 5)][:4] for each in states)
    found = [rd.Dynamics(each).rollout(q, qd, tau, dt=0.001, steps=20) for each in (some, every)]
    assert np.abs(found[0].q - found[1].q).max() < 1e-7


def test_mixtures_are_refused():
    model = rd.load_urdf(own("arm6"))
    ball = rd.Sphere("tool0", radius=0.1)
    mixed = model.with_contacts(
        [rd.Contact(ball, rd.Plane()), rd.Contact(ball, rd.Plane(), condim=1)], max_contacts=1, cone="elliptic"
    )
    with pytest.raises(rd.UnavailableError, match="elliptic contacts with and without friction"):
        rd.Dynamics(mixed).contact_forward_dynamics(*np.zeros((3, 6)))
