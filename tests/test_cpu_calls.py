"""Plain calls go to a built-in function after the first answer; nobody should notice but the clock."""

from __future__ import annotations

import inspect
import pickle

import numpy as np
import pytest

import robodyn as rd


@pytest.fixture
def model():
    return rd.random_tree(4, seed=3)


@pytest.fixture
def dyn(model):
    dyn = rd.Dynamics(model, engine="cpu")
    dyn.inverse_dynamics(*states(model))
    assert inspect.isbuiltin(dyn.inverse_dynamics)
    return dyn


def states(model):
    return model.random_configuration(1, (5,)), np.ones((5, model.nv)), np.full((5, model.nv), 2.0)


def test_signature_and_docstring_stay(dyn):
    method = rd.Dynamics.inverse_dynamics
    names = list(inspect.signature(method).parameters)[1:]
    assert list(inspect.signature(dyn.inverse_dynamics).parameters) == names
    assert dyn.inverse_dynamics.__doc__ == method.__doc__


def test_the_function_is_pickled_as_a_method(dyn, model):
    again = pickle.loads(pickle.dumps(dyn.inverse_dynamics))
    assert (again(*states(model)) == dyn.inverse_dynamics(*states(model))).all()


def test_methods_of_subclasses_are_not_hidden(model):
    class Shifted(rd.Dynamics):
        def inverse_dynamics(self, *arguments, **options):
            return super().inverse_dynamics(*arguments, **options) + 1.0

    shifted, plain = Shifted(model, engine="cpu"), rd.Dynamics(model, engine="cpu")
    for _ in range(3):
        wanted = plain.inverse_dynamics(*states(model)) + 1.0
        assert (shifted.inverse_dynamics(*states(model)) == wanted).all()


def test_attributes_that_change_are_heeded(dyn, model):
    q, qd, qdd = states(model)
    spoilt = qd.copy()
    spoilt[2, 1] = np.nan
    dyn.check = True
    with pytest.raises(rd.NumericalError, match="qd"):
        dyn.inverse_dynamics(q, spoilt, qdd)
    dyn.inverse_dynamics(q, qd, qdd)
    dyn.joint_forces = ("damping",)
    assert (dyn.inverse_dynamics(q, qd, qdd) == dyn.inverse_dynamics(q, qd, qdd=qdd)).all()
    assert not inspect.isbuiltin(dyn.inverse_dynamics)


@pytest.mark.parametrize("code", ["auto", "rolled", "unrolled"])
@pytest.mark.parametrize("links", [1, 700])
def test_robots_in_which_nothing_moves(code, links):
    fixed = "".join(
        f'<joint name="j{i}" type="fixed"><parent link="l{i}"/><child link="l{i + 1}"/></joint>'
        for i in range(links - 1)
    )
    names = "".join(f'<link name="l{i}"/>' for i in range(links))
    model = rd.load_urdf(f'<robot name="r">{names}{fixed}</robot>')
    dyn, none = rd.Dynamics(model, engine="cpu", code=code), np.zeros((3, 0))
    assert dyn.inverse_dynamics(none, none, none).shape == (3, 0)
    assert dyn.forward_dynamics(none, none, none).shape == (3, 0)
    assert dyn.mass_matrix(none[0]).shape == (0, 0)
    assert (dyn.forward_kinematics(none) == np.broadcast_to(np.eye(4), (3, links, 4, 4))).all()
    assert (dyn.kinetic_energy(none, none) == 0.0).all()
