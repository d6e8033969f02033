"""Damping and friction of a file that nobody asked for: rollouts and simulations say so once for each robot."""

from __future__ import annotations

import pickle
import warnings
from dataclasses import replace

import numpy as np
import pytest
import robots

import robodyn as rd
from robodyn.api.motion import unused

STILL = np.zeros(2)


@pytest.fixture
def model(monkeypatch):
    monkeypatch.setattr(unused, "_TOLD", set())
    arm = rd.load_urdf(robots.own("double_pendulum"))
    assert not arm.damping.any() and not arm.friction.any()
    return replace(arm, tree_damping=np.full(2, 0.5), name="limp")


def said(call):
    """Warnings of the kind, as texts."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call()
    return [str(each.message) for each in found if issubclass(each.category, rd.JointForcesWarning)]


MOTIONS = {
    "rollout": lambda dyn: dyn.rollout(STILL, STILL, dt=1e-3, steps=2),
    "rollout ": lambda dyn: dyn.rollout_vjp(STILL, STILL, dt=1e-3, steps=2, q_weight=np.ones((3, 2))),
    "simulate": lambda dyn: rd.simulate(dyn, STILL, STILL, 1e-3),
}


@pytest.mark.parametrize("what", MOTIONS)
def test_what_moves_a_robot_says_it_once(model, what):
    dyn = rd.Dynamics(model, engine="reference")
    text = (
        f"{what.strip()}: joint damping of 'limp' does not act here: Dynamics(model, joint_forces='damping') counts "
        "what the model has, and joint_forces=() leaves them out without this warning"
    )
    assert said(lambda: MOTIONS[what](dyn)) == [text]
    assert said(lambda: [move(dyn) for move in MOTIONS.values()]) == []
    weightless = rd.Dynamics(replace(model, gravity=np.zeros(3)), engine="reference")
    assert said(lambda: MOTIONS["rollout"](weightless)) == [], "the same joints"
    both = rd.Dynamics(replace(model, tree_friction=np.ones(2)), engine="reference")
    (other,) = said(lambda: MOTIONS[what](both))
    assert "joint damping and friction of 'limp' do not act" in other and "('damping', 'friction')" in other


@pytest.mark.parametrize("chosen", [(), "damping", ["friction"]])
def test_nothing_is_said_where_somebody_has_chosen(model, chosen):
    dyn = rd.Dynamics(model, engine="reference", joint_forces=chosen)
    for each in (dyn, dyn.variant(check=True), pickle.loads(pickle.dumps(dyn))):
        for move in MOTIONS.values():
            assert said(lambda each=each, move=move: move(each)) == []


def test_nothing_is_said_of_queries_and_of_given_coefficients(model):
    dyn = rd.Dynamics(model, engine="reference")
    assert said(lambda: (dyn.forward_dynamics(STILL, STILL, STILL), dyn.step(STILL, STILL, None, 1e-3))) == []
    assert said(lambda: dyn.rollout(STILL, STILL, dt=1e-3, steps=2, damping=STILL)) == []
    assert said(lambda: dyn.rollout(STILL, STILL, dt=1e-3, steps=2, friction=STILL)) == []
    free = rd.Dynamics(replace(model, tree_damping=STILL), engine="reference")
    assert said(lambda: MOTIONS["rollout"](free)) == []
    assert len(said(lambda: MOTIONS["rollout"](pickle.loads(pickle.dumps(dyn))))) == 1


def test_environments_count_them_or_say_so(model):
    pytest.importorskip("gymnasium")
    from robodyn.simulators.gymnasium import RobodynEnv

    def made(robot):
        return RobodynEnv(robot, reward=lambda q, qd, action: np.ones(len(q)))

    assert said(lambda: made(model)) == []
    assert len(said(lambda: made(rd.Dynamics(model, engine="reference")))) == 1
