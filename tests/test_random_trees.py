"""The dense oracle and the identities of rigid-body dynamics on random trees of every joint kind."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import TOLERANCE, relative
from dense_oracle import DenseOracle, motion_to_world

import robodyn as rd
from robodyn.builders.random_tree import SHAPES, random_description
from robodyn.description import JOINT_TYPES

N_TREES = 200
# Central differences with step h of functions with entries of order 1e2: h^2 truncation and 1e-16 / h rounding meet
# near 1e-9 absolute; bounds leave a factor for curvature.
STEP, DIFFERENCE_TOLERANCE = 1e-5, 1e-6


def tree(seed: int):
    """A description and its options, all drawn from the seed."""
    rng = np.random.default_rng(seed)
    options = {
        "shape": list(SHAPES)[seed % len(SHAPES)],
        "mimic": 0.4 if seed % 3 == 0 else 0.0,
        "armature": seed % 4 == 1,
    }
    description = random_description(int(rng.integers(1, 15)), seed=seed, joints=JOINT_TYPES, **options)
    base = "floating" if seed % 2 else "fixed"
    print(f"tree: seed {seed}, {options}, base {base}")
    return description, base, rng


def state(model, rng):
    return model.random_configuration(rng), rng.standard_normal(model.nv), rng.standard_normal(model.nv)


def central(model, q, f):
    """d f / d q on the tangent space, columns last."""
    steps = STEP * np.eye(model.nv)
    high, low = model.integrate(q, steps), model.integrate(q, -steps)
    return np.moveaxis((f(high) - f(low)) / (2 * STEP), 0, -1)


@pytest.mark.parametrize("seed", range(N_TREES))
def test_agrees_with_dense_oracle(seed, make_dynamics, tolerance):
    description, base, rng = tree(seed)
    model = rd.build_model(description, base=base)
    oracle, dyn = DenseOracle(description, base), make_dynamics(model)
    assert (model.nq, model.nv) == (oracle.nq, oracle.nv)
    q, qd, qdd = state(model, rng)
    V0, dV0 = rng.standard_normal((2, 6))
    link = description.links[int(rng.integers(len(description.links)))].name
    wrench = rng.standard_normal(6) * 10
    f_ext = rd.external_force(model, q, link, wrench, frame="world")
    wanted = oracle.inverse_dynamics(q, qd, qdd, V0, dV0, {link: wrench})
    tau = dyn.inverse_dynamics(q, qd, qdd, f_ext, V0=V0, dV0=dV0)
    assert relative(tau, wanted) < tolerance
    assert relative(dyn.mass_matrix(q), oracle.mass_matrix(q)) < tolerance
    K, U = oracle.energies(q, qd, V0)
    assert relative(dyn.kinetic_energy(q, qd, V0=V0), K) < tolerance
    assert relative(dyn.potential_energy(q), U) < tolerance * 10
    T, J, V, A = oracle.kinematics(q, qd, qdd, V0, dV0)
    poses = np.array([T[name] for name in model.link_names])
    assert relative(dyn.forward_kinematics(q), poses) < tolerance
    assert relative(dyn.jacobian(q, link), J[link]) < tolerance
    assert relative(dyn.link_velocity(q, qd, link, V0=V0), V[link]) < tolerance
    assert relative(dyn.link_acceleration(q, qd, qdd, link, V0=V0, dV0=dV0), A[link]) < tolerance
    if model.nv:
        com, h = oracle.momentum(q, qd, V0)
        assert relative(dyn.center_of_mass(q), com) < tolerance
        assert relative(dyn.centroidal_momentum(q, qd, V0=V0)[0], h) < tolerance
    again = dyn.forward_dynamics(q, qd, tau, f_ext, V0=V0, dV0=dV0)
    assert relative(dyn.inverse_dynamics(q, qd, again, f_ext, V0=V0, dV0=dV0), np.asarray(tau, float)) < tolerance * 10


@pytest.mark.parametrize("seed", range(N_TREES))
def test_identities(seed):
    description, base, rng = tree(seed)
    model = rd.build_model(description, base=base)
    dyn = rd.Dynamics(model)
    q, qd, qdd = state(model, rng)
    tau, H, C = dyn.inverse_dynamics(q, qd, qdd), dyn.mass_matrix(q), dyn.coriolis_matrix(q, qd)
    bias, gravity = dyn.bias_force(q, qd), dyn.gravity_force(q)
    tight = TOLERANCE["float64"]
    assert relative(H @ qdd + bias, tau) < tight
    assert relative(C @ qd + gravity, bias) < tight
    assert relative(0.5 * qd @ H @ qd, dyn.kinetic_energy(q, qd)) < tight
    assert relative(H, H.T) == 0.0
    Hinv = dyn.mass_matrix_inverse(q)
    assert np.abs(Hinv @ H - np.eye(model.nv)).max(initial=0) < 1e-9
    for method in ("auto", "crba"):
        again = dyn.inverse_dynamics(q, qd, dyn.forward_dynamics(q, qd, tau, method=method))
        assert relative(again, tau) < 1e-11
    # Hdot - 2 C is skew-symmetric, gravity is the gradient of potential energy, power is the rate of energy.
    Hdot = (dyn.mass_matrix(model.integrate(q, qd, STEP)) - dyn.mass_matrix(model.integrate(q, qd, -STEP))) / (2 * STEP)
    skew = Hdot - 2 * C
    assert relative(skew, -skew.T) < DIFFERENCE_TOLERANCE * 10
    assert relative(central(model, q, dyn.potential_energy), gravity) < DIFFERENCE_TOLERANCE

    def energy(t):
        moved, rate = model.integrate(q, qd + 0.5 * t * qdd, t), qd + t * qdd
        return dyn.kinetic_energy(moved, rate) + dyn.potential_energy(moved)

    power = (energy(STEP) - energy(-STEP)) / (2 * STEP)
    assert abs(power - qd @ tau) < DIFFERENCE_TOLERANCE * max(np.abs(qd * tau).sum(), 1.0)


@pytest.mark.parametrize("seed", range(0, N_TREES, 4))
def test_gradients_agree_with_differences(seed):
    description, base, rng = tree(seed)
    model = rd.build_model(description, base=base)
    dyn = rd.Dynamics(model)
    q, qd, qdd = state(model, rng)
    V0, dV0 = rng.standard_normal((2, 6))
    f_ext = rng.standard_normal((model.n_bodies, 6))
    options = {"V0": V0, "dV0": dV0}
    tau = dyn.inverse_dynamics(q, qd, qdd, f_ext, **options)
    by_q, by_qd = dyn.inverse_dynamics_gradient(q, qd, qdd, f_ext, **options)
    wanted_q = central(model, q, lambda x: dyn.inverse_dynamics(x, qd, qdd, f_ext, **options))
    steps = STEP * np.eye(model.nv)
    high, low = (dyn.inverse_dynamics(q, qd + s, qdd, f_ext, **options) for s in (steps, -steps))
    assert relative(by_q, wanted_q) < DIFFERENCE_TOLERANCE
    assert relative(by_qd, (high - low).T / (2 * STEP)) < DIFFERENCE_TOLERANCE
    dq, dqd, dtau = dyn.forward_dynamics_gradient(q, qd, tau, f_ext, **options)
    H = dyn.mass_matrix(q)
    assert relative(H @ dq, -by_q) < 1e-8
    assert relative(H @ dqd, -by_qd) < 1e-8
    assert np.abs(H @ dtau - np.eye(model.nv)).max(initial=0) < 1e-9


@pytest.mark.parametrize("seed", range(0, N_TREES, 4))
def test_kinematics_agree_with_differences(seed):
    description, base, rng = tree(seed)
    model = rd.build_model(description, base=base)
    dyn = rd.Dynamics(model)
    q, qd, qdd = state(model, rng)
    link = int(rng.integers(len(model.link_names)))

    def pose(t):
        return dyn.forward_kinematics(model.integrate(q, qd + 0.5 * t * qdd, t))[link]

    T, Tdot = pose(0.0), (pose(STEP) - pose(-STEP)) / (2 * STEP)
    omega = Tdot[:3, :3] @ T[:3, :3].T
    aligned = np.r_[omega[2, 1], omega[0, 2], omega[1, 0], Tdot[:3, 3]]
    X = motion_to_world(T)
    for frame in ("world", "body", "world_aligned"):
        V = dyn.link_velocity(q, qd, link, frame=frame)
        assert relative(dyn.jacobian(q, link, frame=frame) @ qd, V) < TOLERANCE["float64"]
        A = dyn.link_acceleration(q, qd, qdd, link, frame=frame)
        J_qdd = dyn.jacobian(q, link, frame=frame) @ qdd
        assert relative(J_qdd + dyn.link_acceleration(q, qd, 0 * qd, link, frame=frame), A) < TOLERANCE["float64"]
    assert relative(dyn.link_velocity(q, qd, link, "world_aligned"), aligned) < DIFFERENCE_TOLERANCE
    assert relative(X @ dyn.link_velocity(q, qd, link, "body"), dyn.link_velocity(q, qd, link)) < TOLERANCE["float64"]

    def velocity(t, frame):
        return dyn.link_velocity(model.integrate(q, qd + 0.5 * t * qdd, t), qd + t * qdd, link, frame)

    # In the world frame the spatial acceleration is the rate of the velocity; a link's origin accelerates classically.
    for frame, classical in (("world", False), ("world_aligned", True)):
        rate = (velocity(STEP, frame) - velocity(-STEP, frame)) / (2 * STEP)
        A = dyn.link_acceleration(q, qd, qdd, link, frame, classical=classical)
        assert relative(A, rate) < DIFFERENCE_TOLERANCE * 10
    R = T[:3, :3]
    body = dyn.link_acceleration(q, qd, qdd, link, "body", classical=True)
    turned = np.r_[R @ body[:3], R @ body[3:]]
    assert relative(turned, dyn.link_acceleration(q, qd, qdd, link, "world_aligned", classical=True)) < 1e-11
    if model.nv:
        h, A_G = dyn.centroidal_momentum(q, qd)
        assert relative(A_G @ qd, h) < TOLERANCE["float64"]
        rate = (
            dyn.center_of_mass(model.integrate(q, qd, STEP)) - dyn.center_of_mass(model.integrate(q, qd, -STEP))
        ) / (2 * STEP)
        assert relative(model.total_mass * rate, h[3:]) < DIFFERENCE_TOLERANCE * 10
