"""Constraints that are made anew from others, gains by which errors decay, and names of rows."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest
import robots
from conftest import random_states, relative
from robots import of_every_kind
from test_constraints import pose, some

import robodyn as rd

pytestmark = pytest.mark.filterwarnings("ignore::robodyn.internals.errors.RedundantWarning")


def one_of_each():
    rng = np.random.default_rng(0)
    return (
        rd.Point("tool0", at=(0.1, 0.0, -0.0), to_at=pose(rng)),
        rd.Weld("tool0", "shoulder_link", at=pose(rng), rows=("rz", "x"), baumgarte=(3.0, 0.5), name="clamp"),
        rd.Rod("tool0", to_at=(-0.0, 1.0, 0.0), length=0.5, baumgarte=rd.Baumgarte(2.0)),
        rd.Rolling("tool0", (0.3, -0.4, 1.1), 0.2, at=pose(rng), baumgarte=2.0),
        rd.Coupling({"elbow": 1.0, "wrist_1": -2.0}, 0.1, 7.0),
        rd.Lock("elbow", 0.3),
    )


@pytest.mark.parametrize("made", one_of_each(), ids=lambda made: type(made).__name__)
def test_replaced_constraints_are_the_same_but_for_what_is_replaced(made):
    for same in (replace(made), eval(repr(made), vars(rd)), pickle.loads(pickle.dumps(made)), copy.deepcopy(made)):
        assert same == made and hash(same) == hash(made) and repr(same) == repr(made)  # signs of zeros, too
    changed = replace(made, baumgarte=rd.Baumgarte(velocity=4.0, position=1.0), name="other")
    assert (changed.baumgarte.velocity, changed.name) == (4.0, "other")
    assert replace(changed, baumgarte=made.baumgarte, name=made.name) == made


def test_constraints_of_files_are_replaced():
    model = rd.load_urdf(robots.own("loops/four_bar"))
    pin = replace(model.constraints[0], baumgarte=10.0)
    assert pin.baumgarte == (10.0, 1.0) and pin.at == model.constraints[0].at
    changed = replace(model, constraints=(pin,))
    assert changed != model and replace(changed, constraints=model.constraints) == model


@pytest.mark.parametrize("robot", ["double_pendulum", pytest.param("every_kind", marks=pytest.mark.matrix)])
def test_gains_are_what_their_formula_says(robot, make_dynamics, tolerance):
    """Accelerations of rows change by -k_v phidot - k_p phi, each gain on its own."""
    model = of_every_kind() if robot == "every_kind" else rd.load_urdf(robots.own(robot))
    held = some(model, 4)
    free = [replace(each, baumgarte=None) for each in held]
    q, qd, tau = random_states(model, (3,), seed=4)
    phi, phidot = make_dynamics(model, constraints=free).constraint_residual(q, qd)
    without = make_dynamics(model, constraints=free).delassus(q, qd, tau)[1]
    gains = ((3.0, 0.0), (0.0, 2.0), (3.0, 2.0))
    for velocity, position in gains:
        decaying = [replace(each, baumgarte=rd.Baumgarte(velocity, position)) for each in free]
        found = make_dynamics(model, constraints=decaying).delassus(q, qd, tau)[1] - without
        scale = np.abs(without).max() / np.abs(velocity * phidot + position * phi).max()
        assert relative(found, velocity * phidot + position * phi) < 100 * tolerance * (1.0 + scale)


def test_errors_of_velocity_alone_decay():
    """A locked joint that turns comes to rest as exp(-k_v t), and stays where it is by then."""
    model = rd.load_urdf(robots.own("arm6"))
    dyn = rd.Dynamics(model, engine="reference", constraints=[rd.Lock("elbow", baumgarte=rd.Baumgarte(velocity=2.0))])
    qdd = dyn.constrained_forward_dynamics(np.full(6, 0.3), np.full(6, 0.5), np.zeros(6))[0]
    assert qdd[model.joint_index("elbow")] == pytest.approx(-2.0 * 0.5, rel=1e-9)


@pytest.mark.parametrize("given", [(0, 1), (1.0,), (1, 2, 3), -1.0, (1e200, 1.0), "ab", True, {"velocity": 1.0}])
def test_gains_that_are_refused(given):
    with pytest.raises(rd.ArgumentError, match=r"Lock.baumgarte: got .*robodyn\.Baumgarte\(velocity"):
        rd.Lock("elbow", baumgarte=given)


@pytest.mark.parametrize("given", [-1.0, np.nan, np.inf, "1"])
def test_single_gains_that_are_refused(given):
    with pytest.raises(rd.ArgumentError, match=r"Baumgarte.position: got .*; wanted a finite gain of 0 or more"):
        rd.Baumgarte(1.0, given)


def test_names_of_rows_differ():
    model = rd.load_urdf(robots.own("arm6"))
    again = [rd.Point("tool0"), rd.Point("tool0", at=(0, 0, 0.1)), rd.Lock("elbow", name="tool0_2"), rd.Weld("tool0")]
    names = rd.Dynamics(model, engine="reference", constraints=again).constraint_names
    assert len(set(names)) == len(names)
    assert {name.partition(".")[0] for name in names} == {"tool0", "tool0_2", "tool0_3", "tool0_4"}
    assert "tool0_2.value" in names, "what is called so keeps its name"
