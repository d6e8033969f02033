"""Inverses of mass matrices: by factors in double precision, by a recursion that keeps more digits in single."""

from __future__ import annotations

import numpy as np
import pytest
from robots import own

import robodyn as rd
from robodyn.algorithms.aba import INVERSE_MASS_MATRIX
from robodyn.algorithms.tasks import mixed_precision, on_inertia
from robodyn.compile.tracing.unrolled import trace

ROBOTS = ("arm7", "humanoid", "quadruped", "massless_chain", "ball_joint_arm")


@pytest.mark.parametrize("base", ["fixed", "floating"])
@pytest.mark.parametrize("name", ROBOTS)
@pytest.mark.some(of=4, rest="matrix")
def test_each_precision_has_its_way(name: str, base: str) -> None:
    model = rd.load_urdf(own(name), base=base)
    q = model.random_configuration(0, (5,))
    exact = rd.Dynamics(model, engine="reference")
    inertia = model.inertia * np.linspace(0.5, 2.0, 5)[:, None, None]
    for given in ({}, {"inertia": inertia}):
        right = np.linalg.inv(exact.mass_matrix(q, **given))
        largest = np.abs(right).max(axis=(1, 2), keepdims=True)
        for dtype, tolerance in (("float64", 1e-12), ("float32", 1e-5)):
            dyn = rd.Dynamics(model, engine="cpu", dtype=dtype)
            found = [dyn.mass_matrix_inverse(q, **given), dyn.mass_matrix_inverse(q, **given)]
            single = {key: array[3] for key, array in given.items()}
            assert (np.abs(found[0] - right) <= tolerance * largest).all()
            np.testing.assert_array_equal(*found)
            one = dyn.mass_matrix_inverse(q[3], **single)
            assert (np.abs(one - found[0][3]) <= tolerance * largest[3]).all()


@pytest.mark.matrix
def test_factors_take_half_of_the_operations() -> None:
    for name, share in (("arm7", 0.4), ("humanoid", 0.6)):
        model = rd.load_urdf(own(name), base="floating" if name == "humanoid" else "fixed")
        counts = [
            rd.Dynamics(model, engine="cpu", dtype=each).program("mass_matrix_inverse").operations
            for each in ("float64", "float32")
        ]
        assert counts[0] < share * counts[1] and counts[1] == trace(model, INVERSE_MASS_MATRIX).operations


def test_what_the_recursion_is_left_for() -> None:
    """Joints that mimic others have no recursion, huge trees no matrix to factorise."""
    arm, mimic = rd.load_urdf(own("arm6")), rd.load_urdf(own("gripper"))
    chain = mixed_precision(arm, INVERSE_MASS_MATRIX)
    assert chain is INVERSE_MASS_MATRIX.mixed_precision is not INVERSE_MASS_MATRIX
    assert mixed_precision(mimic, INVERSE_MASS_MATRIX) is INVERSE_MASS_MATRIX
    assert (
        mixed_precision(rd.random_tree(150, seed=0, joints=("revolute",)), INVERSE_MASS_MATRIX) is INVERSE_MASS_MATRIX
    )
    given = mixed_precision(arm, on_inertia(INVERSE_MASS_MATRIX))
    assert given is on_inertia(chain) and "inertia" in given.inputs
