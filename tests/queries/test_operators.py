"""The mass matrix as an operator: products of it and of its inverse, without a matrix."""

from __future__ import annotations

import numpy as np
import pytest
from robots import own
from scipy.sparse.linalg import cg

import robodyn as rd

ENGINES = ("reference", "cpu", "scan")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("robot", ["arm6", "gripper", "satellite"])
def test_products(robot, engine):
    model = rd.load_urdf(own(robot), base="fixed" if robot == "satellite" else "floating")
    dyn = rd.Dynamics(model, engine=engine, joint_forces=("damping", "friction"))
    q = model.random_configuration(3)
    H = dyn.mass_matrix(q)
    forward, back = dyn.mass_matrix_operator(q), dyn.mass_matrix_operator(q, inverse=True)
    X = np.random.default_rng(0).normal(size=(model.nv, 4))
    size = np.abs(H).max()
    np.testing.assert_allclose(forward @ X, H @ X, atol=1e-12 * size)
    np.testing.assert_allclose(forward @ X[:, 0], H @ X[:, 0], atol=1e-12 * size)
    np.testing.assert_allclose(forward.T @ X, H @ X, atol=1e-12 * size)
    np.testing.assert_allclose(H @ (back @ X), X, atol=1e-9)
    np.testing.assert_allclose(forward @ np.eye(model.nv), H, atol=1e-12 * size)


def test_a_large_tree_is_solved_by_conjugate_gradients():
    """Where H, 3,000 x 3,000, is never made: the preconditioner is exact, so one step is enough."""
    model = rd.auto_tree(3000, branching=3.0)
    dyn = rd.Dynamics(model)
    q = model.random_configuration(1)
    forward, back = dyn.mass_matrix_operator(q), dyn.mass_matrix_operator(q, inverse=True)
    b = np.random.default_rng(2).normal(size=model.nv)
    x, failed = cg(forward, b, M=back, rtol=1e-9, maxiter=3)
    assert failed == 0
    np.testing.assert_allclose(forward @ x, b, atol=1e-8 * np.abs(b).max())


def test_single_precision():
    model = rd.load_urdf(own("arm6"))
    dyn = rd.Dynamics(model, dtype="float32", engine="reference")
    operator = dyn.mass_matrix_operator(np.zeros(model.nq))
    assert operator.dtype == np.float32 and (operator @ np.ones(model.nv, np.float32)).dtype == np.float32


def test_what_is_refused():
    dyn = rd.Dynamics(rd.load_urdf(own("satellite")), engine="reference")
    q = dyn.model.neutral()
    with pytest.raises(rd.ArgumentError, match="q: got shape"):
        dyn.mass_matrix_operator(q[None])
    with pytest.raises(rd.ArgumentError, match="q: got"):
        dyn.mass_matrix_operator("x")
    with pytest.raises(rd.ArgumentError, match="inverse: got 3"):
        dyn.mass_matrix_operator(q, inverse=3)
    with pytest.raises(rd.ArgumentError, match="zero length"):
        dyn.mass_matrix_operator(0.0 * q)
    with pytest.raises(rd.NumericalError, match="NaN"):
        dyn.mass_matrix_operator(np.full(dyn.model.nq, np.nan))
    singular = rd.Dynamics(rd.load_urdf(own("massless_tip")), engine="reference")
    q = singular.model.neutral()
    with pytest.raises(rd.SingularError):
        singular.mass_matrix_operator(q, inverse=True) @ np.ones(singular.model.nv)
