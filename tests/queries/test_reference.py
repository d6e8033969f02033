"""The reference engine: what has one entry is a number, and constants are kept of robots that are not large."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import random_states
from robots import tree

import robodyn as rd
from robodyn.engines import reference_groups


def answers(dyn, q, qd, x):
    yield dyn.inverse_dynamics(q, qd, x)
    yield dyn.forward_dynamics(q, qd, x)
    yield dyn.mass_matrix(q)
    yield dyn.link_velocity(q, qd, dyn.model.link_names[-1])
    yield from dyn.inverse_dynamics_gradient(q, qd, x)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.some(of=3, rest="matrix")
def test_numbers_and_arrays_have_the_same_bits(seed, dtype, monkeypatch):
    model = tree(seed)
    states = random_states(model, (3,), seed)
    first = rd.Dynamics(model, engine="reference", dtype=dtype)
    wanted = list(answers(first, *states))
    monkeypatch.setattr(reference_groups, "MAX_KEPT_BODIES", 0)
    for dyn in (first, rd.Dynamics(model, engine="reference", dtype=dtype)):
        for row in range(3):
            for one, of_all in zip(answers(dyn, *(each[row] for each in states)), wanted, strict=True):
                np.testing.assert_array_equal(one, of_all[row], strict=True)
    assert any(group.kept for group in first.engine._schedule.groups)
    assert not any(group.kept for group in dyn.engine._schedule.groups)
