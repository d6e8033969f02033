"""The dense oracle and the identities of rigid-body dynamics on random trees of every joint kind."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from conftest import TOLERANCE, relative
from cpu_queries import answers, beyond, regular, states_of
from dense_oracle import DenseOracle, motion_to_world

import robodyn as rd
from robodyn.compile.loop_plan import Traits
from robodyn.description import JOINT_TYPES
from robodyn.engines.cpu.loops import program as rolled_program
from robodyn.io.builders.random_tree import SHAPES, random_description
from robodyn.joints import KINDS
from robodyn.testing import assert_identities

N_TREES = 100
FEW, SOME = 13, 7
"""Every n-th tree where one takes long: prime to what shapes, bases, mimicking joints and armature are drawn by."""
# Of all shapes, both bases, with and without mimicking joints and armature, and small enough to compile in seconds.
UNROLLED_TREES = {21: "float64", 38: "float64", 54: "float32", 102: "float64", 150: "float64"}
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


@pytest.fixture
def one_code(monkeypatch):
    """Rolled code for every joint kind, for armature and for mimicking joints: all trees run the same machine code."""
    everything = Traits(tuple(range(len(KINDS))), armature=True, mimic=True)
    monkeypatch.setattr(rolled_program, "traits_of", lambda model: everything)


def agree(dyn, description, base, rng, tolerance, shape):
    """Hold every query that the dense oracle answers against it, at one state of a batch of that shape."""
    model = dyn.model
    oracle = DenseOracle(description, base)
    assert (model.nq, model.nv) == (oracle.nq, oracle.nv)
    q = model.random_configuration(rng, shape)
    qd, qdd = rng.standard_normal((2, *shape, model.nv))
    V0, dV0 = rng.standard_normal((2, 6))
    link = description.links[int(rng.integers(len(description.links)))].name
    wrench = rng.standard_normal(6) * 10
    f_ext = rd.external_force(model, q, link, wrench, frame="world")
    row = tuple(int(rng.integers(n)) for n in shape)
    judged = q[row], qd[row], qdd[row]
    tau = dyn.inverse_dynamics(q, qd, qdd, f_ext=f_ext, V0=V0, dV0=dV0)
    wanted = oracle.inverse_dynamics(*judged, V0, dV0, {link: wrench})
    K, U = oracle.energies(*judged[:2], V0)
    T, J, V, A = oracle.kinematics(*judged, V0, dV0)
    poses = np.array([T[name] for name in model.link_names])
    compared = {
        "tau": (tau, wanted),
        "H": (dyn.mass_matrix(q), oracle.mass_matrix(q[row])),
        "K": (dyn.kinetic_energy(q, qd, V0=V0), K),
        "U": (dyn.potential_energy(q) / 10, U / 10),
        "T": (dyn.forward_kinematics(q), poses),
        "J": (dyn.jacobian(q, link, frame="world"), J[link]),
        "V": (dyn.link_velocity(q, qd, link, frame="world", V0=V0), V[link]),
        "A": (dyn.link_acceleration(q, qd, qdd, link, frame="world", V0=V0, dV0=dV0), A[link]),
    }
    if model.nv:
        com, h = oracle.momentum(*judged[:2], V0)
        compared |= {"com": (dyn.center_of_mass(q), com), "h": (dyn.centroidal_momentum(q, qd, V0=V0)[0], h)}
    for name, (got, right) in compared.items():
        assert relative(got[row], right) < tolerance, name
    again = dyn.forward_dynamics(q, qd, tau, f_ext=f_ext, V0=V0, dV0=dV0)
    back = dyn.inverse_dynamics(q, qd, again, f_ext=f_ext, V0=V0, dV0=dV0)
    assert relative(back, np.asarray(tau, float)) < tolerance * 10


def judged_by_the_oracle():
    """Kinds of code, dtypes and seeds: in every run some seeds by each, more by the reference engine; of the others
    by the mark `matrix` those of another rest for each kind and dtype."""
    kinds = list(product(("reference", "rolled"), ("float64", "float32")))
    for (turn, (kind, dtype)), seed in product(enumerate(kinds), range(N_TREES)):
        often = (kind == "reference" and dtype == "float64" and seed % 4 == 1) or seed % FEW == 0
        rare = pytest.mark.matrix if seed % SOME == turn else pytest.mark.nightly
        yield pytest.param(kind, dtype, seed, marks=[] if often else [rare])


@pytest.mark.parametrize(("kind", "dtype", "seed"), tuple(judged_by_the_oracle()))
@pytest.mark.some(of=14, rest="matrix")
def test_agrees_with_dense_oracle(kind, dtype, seed, one_code):
    """One state on even pairs of trees, three on odd ones: engines may have code for each."""
    description, base, rng = tree(seed)
    options = {"engine": "reference"} if kind == "reference" else {"engine": "cpu", "code": "rolled"}
    dyn = rd.Dynamics(rd.build_model(description, base=base), dtype=dtype, **options)
    agree(dyn, description, base, rng, TOLERANCE[dtype], (3,) if seed // 2 % 2 else ())


@pytest.mark.parametrize(("seed", "dtype"), UNROLLED_TREES.items())
@pytest.mark.some(of=5, rest="matrix")
def test_unrolled_code_agrees_with_both_oracles(seed, dtype):
    description, base, rng = tree(seed)
    model = rd.build_model(description, base=base)
    dyn = rd.Dynamics(model, engine="cpu", dtype=dtype, code="unrolled")
    agree(dyn, description, base, rng, TOLERANCE[dtype], (3,))
    states, invert = states_of(model, (9,), seed, dtype), regular(model)
    wanted = answers(rd.Dynamics(model, engine="reference"), states, invert=invert)
    assert beyond(answers(dyn, states, invert=invert), wanted, dtype) == {}


@pytest.mark.parametrize("seed", range(0, N_TREES, FEW))
@pytest.mark.matrix
def test_rolled_code_agrees_with_the_reference_engine(seed, one_code):
    """Every query, in batches that are not whole vectors."""
    description, base, _ = tree(seed)
    model = rd.build_model(description, base=base)
    states, invert = states_of(model, (seed % 11 + 2,), seed), regular(model)
    wanted = answers(rd.Dynamics(model, engine="reference"), states, invert=invert)
    got = answers(rd.Dynamics(model, engine="cpu", code="rolled"), states, invert=invert)
    assert beyond(got, wanted, "float64") == {}


@pytest.mark.parametrize("seed", range(N_TREES))
@pytest.mark.some(of=20, rest="matrix")
def test_identities(seed):
    description, base, rng = tree(seed)
    model = rd.build_model(description, base=base)
    dyn = rd.Dynamics(model, engine="reference")
    assert_identities(model, engine="reference", states=1, seed=seed)
    q, qd, qdd = state(model, rng)
    tau, H, Hinv = dyn.inverse_dynamics(q, qd, qdd), dyn.mass_matrix(q), dyn.mass_matrix_inverse(q)
    assert np.abs(Hinv @ H - np.eye(model.nv)).max(initial=0) < 1e-9
    for method in ("auto", "crba"):
        again = dyn.inverse_dynamics(q, qd, dyn.forward_dynamics(q, qd, tau, method=method))
        assert relative(again, tau) < 1e-11
    gravity = dyn.gravity_force(q)
    assert relative(central(model, q, dyn.potential_energy), gravity) < DIFFERENCE_TOLERANCE


@pytest.mark.parametrize("seed", range(0, N_TREES, SOME))
@pytest.mark.some(of=3, rest="matrix")
def test_gradients_agree_with_differences(seed):
    description, base, rng = tree(seed)
    model = rd.build_model(description, base=base)
    dyn = rd.Dynamics(model, engine="reference")
    q, qd, qdd = state(model, rng)
    V0, dV0 = rng.standard_normal((2, 6))
    f_ext = rng.standard_normal((model.n_bodies, 6))
    options = {"V0": V0, "dV0": dV0}
    tau = dyn.inverse_dynamics(q, qd, qdd, f_ext=f_ext, **options)
    by_q, by_qd = dyn.inverse_dynamics_gradient(q, qd, qdd, f_ext=f_ext, **options)
    wanted_q = central(model, q, lambda x: dyn.inverse_dynamics(x, qd, qdd, f_ext=f_ext, **options))
    steps = STEP * np.eye(model.nv)
    high, low = (dyn.inverse_dynamics(q, qd + s, qdd, f_ext=f_ext, **options) for s in (steps, -steps))
    assert relative(by_q, wanted_q) < DIFFERENCE_TOLERANCE
    assert relative(by_qd, (high - low).T / (2 * STEP)) < DIFFERENCE_TOLERANCE
    dq, dqd, dtau = dyn.forward_dynamics_gradient(q, qd, tau, f_ext=f_ext, **options)
    H = dyn.mass_matrix(q)
    products = dyn.inverse_dynamics_vjp(q, qd, qdd, vector=tau, f_ext=f_ext, **options)
    for got, matrix in zip(products, (by_q, by_qd, H), strict=True):
        assert relative(got, tau @ matrix) < 1e-11
    assert relative(H @ dq, -by_q) < 1e-8
    assert relative(H @ dqd, -by_qd) < 1e-8
    assert np.abs(H @ dtau - np.eye(model.nv)).max(initial=0) < 1e-9


@pytest.mark.parametrize("seed", range(0, N_TREES, SOME))
@pytest.mark.some(of=3, rest="matrix")
def test_kinematics_agree_with_differences(seed):
    description, base, rng = tree(seed)
    model = rd.build_model(description, base=base)
    dyn = rd.Dynamics(model, engine="reference")
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
    assert relative(dyn.link_velocity(q, qd, link, frame="world_aligned"), aligned) < DIFFERENCE_TOLERANCE
    body, world = (dyn.link_velocity(q, qd, link, frame=frame) for frame in ("body", "world"))
    assert relative(X @ body, world) < TOLERANCE["float64"]

    def velocity(t, frame):
        return dyn.link_velocity(model.integrate(q, qd + 0.5 * t * qdd, t), qd + t * qdd, link, frame=frame)

    # In the world frame the spatial acceleration is the rate of the velocity; a link's origin accelerates classically.
    for frame, classical in (("world", False), ("world_aligned", True)):
        rate = (velocity(STEP, frame) - velocity(-STEP, frame)) / (2 * STEP)
        A = dyn.link_acceleration(q, qd, qdd, link, frame=frame, classical=classical)
        assert relative(A, rate) < DIFFERENCE_TOLERANCE * 10
    R = T[:3, :3]
    body = dyn.link_acceleration(q, qd, qdd, link, frame="body", classical=True)
    turned = np.r_[R @ body[:3], R @ body[3:]]
    assert relative(turned, dyn.link_acceleration(q, qd, qdd, link, frame="world_aligned", classical=True)) < 1e-11
    if model.nv:
        h, A_G = dyn.centroidal_momentum(q, qd)
        assert relative(A_G @ qd, h) < TOLERANCE["float64"]
        rate = (
            dyn.center_of_mass(model.integrate(q, qd, STEP)) - dyn.center_of_mass(model.integrate(q, qd, -STEP))
        ) / (2 * STEP)
        assert relative(model.total_mass * rate, h[3:]) < DIFFERENCE_TOLERANCE * 10
