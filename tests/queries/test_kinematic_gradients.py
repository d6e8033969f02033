"""Derivatives of Jacobians, of energies, of the centre of mass and of forces at rest: differences, identities,
Pinocchio."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest
import robots
from conftest import random_states, relative
from robots import of_every_kind, tree

import robodyn as rd
from robodyn.algorithms.kinematic_gradients import jacobian_derivative, pose_hessian
from robodyn.description import JOINT_TYPES
from robodyn.engines.query_table import FRAMES
from robodyn.internals import tuning
from robodyn.io.builders.random_tree import random_description

# Central differences of functions of order 1 to 100: h^2 truncation, and rounding over h, are of order 1e-9. Where all
# is zero, some roundings over twice the step are relative to 1e-3.
STEP, DIFFERENCE_TOLERANCE = 1e-5, 2e-7
ONE_DOF = ("revolute", "continuous", "prismatic", "helical", "universal")


def central(f, step):
    """df/dx along each of the nv unit vectors, last; `step(x)` moves by x."""
    high, low = f(step(STEP)), f(step(-STEP))
    return np.moveaxis((high - low) / (2 * STEP), 0, -1)


def along_q(model, q):
    return lambda h: model.integrate(q, h * np.eye(model.nv))


@pytest.fixture
def model():
    return of_every_kind()


# Differences.


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.some(of=3, rest="matrix")
def test_derivatives_of_jacobians_agree_with_differences(seed, frame):
    model = tree(seed)
    dyn = rd.Dynamics(model, engine="reference")
    q, qd, _ = random_states(model, seed=seed)
    for link in (0, len(model.link_names) - 1):
        jacobian = functools.partial(dyn.jacobian, link=link, frame=frame)
        H = dyn.pose_hessian(q, link, frame=frame)
        assert relative(H, central(jacobian, along_q(model, q))) < DIFFERENCE_TOLERANCE
        rate = (jacobian(model.integrate(q, qd, STEP)) - jacobian(model.integrate(q, qd, -STEP))) / (2 * STEP)
        assert relative(dyn.jacobian_derivative(q, qd, link, frame=frame), rate) < DIFFERENCE_TOLERANCE * 10


@pytest.mark.parametrize("seed", range(20))
def test_gradients_of_energies_agree_with_differences(seed):
    model = tree(seed)
    dyn = rd.Dynamics(model, engine="reference")
    q, qd, _ = random_states(model, seed=seed)
    V0 = np.random.default_rng(seed).standard_normal(6)
    by_q, by_qd = dyn.kinetic_energy_gradient(q, qd, V0=V0)
    at = along_q(model, q)
    assert relative(by_q, central(lambda x: dyn.kinetic_energy(x, qd, V0=V0), at)) < DIFFERENCE_TOLERANCE
    faster = central(lambda v: dyn.kinetic_energy(q, v, V0=V0), lambda h: qd + h * np.eye(model.nv))
    assert relative(by_qd, faster) < DIFFERENCE_TOLERANCE
    assert relative(dyn.potential_energy_gradient(q), central(dyn.potential_energy, at)) < DIFFERENCE_TOLERANCE
    assert relative(dyn.center_of_mass_jacobian(q), central(dyn.center_of_mass, at)) < DIFFERENCE_TOLERANCE


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.some(of=3, rest="matrix")
def test_gradients_of_forces_at_rest_agree_with_differences(seed):
    model = tree(seed)
    dyn = rd.Dynamics(model, engine="reference")
    q, _, vector = random_states(model, seed=seed)
    at = along_q(model, q)
    assert relative(dyn.gravity_force_gradient(q), central(dyn.gravity_force, at)) < DIFFERENCE_TOLERANCE
    wanted = central(lambda x: dyn.mass_matrix(x) @ vector, at)
    assert relative(dyn.mass_matrix_product_gradient(q, vector=vector), wanted) < DIFFERENCE_TOLERANCE


@pytest.mark.parametrize("seed", range(10))
def test_gradients_of_poses_agree_with_differences(seed):
    model = tree(seed)
    dyn = rd.Dynamics(model, engine="reference")
    q, _, _ = random_states(model, seed=seed)
    J, T = dyn.forward_kinematics_gradient(q), dyn.forward_kinematics(q)
    change = central(dyn.forward_kinematics, along_q(model, q))
    assert relative(J[:, 3:], change[:, :3, 3]) < DIFFERENCE_TOLERANCE
    turned = np.cross(J[:, :3, None], T[:, :3, :3, None], axis=1)  # (w x) R, a column of R at a time
    assert relative(turned, change[:, :3, :3]) < DIFFERENCE_TOLERANCE


# Identities, on every engine.


def test_jacobians_of_every_link_are_those_of_each(model, make_dynamics, tolerance):
    dyn = make_dynamics(model)
    q, _, _ = random_states(model, (3,), seed=9)
    J = dyn.forward_kinematics_gradient(q)
    for link in range(0, len(model.link_names), 3):
        assert relative(J[:, link], dyn.jacobian(q, link, frame="world_aligned")) < tolerance


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.some(of=3, rest="matrix")
def test_the_bias_of_a_jacobian_is_an_acceleration(frame, model, make_dynamics, tolerance):
    """Of a moving base, too: what Jdot qd leaves out is the change of the base's velocity as the frame sees it."""
    dyn = make_dynamics(model)
    q, qd, _ = random_states(model, (3,), seed=1)
    V0 = np.array([0.3, -0.2, 0.5, 1.0, -0.7, 0.4])
    for link in (model.link_names[-1], model.link_names[4]):
        for base in (None, V0):
            Jdot = dyn.jacobian_derivative(q, qd, link, frame=frame, V0=base)
            A = dyn.link_acceleration(q, qd, 0 * qd, link, frame=frame, classical=frame == "world_aligned", V0=base)
            V = dyn.link_velocity(q, qd, link, frame=frame, V0=base)
            carried = V - dyn.link_velocity(q, qd, link, frame=frame)
            change = np.zeros_like(V)
            if frame == "body":
                change[:, :3] = -np.cross(V[:, :3], carried[:, :3])
                change[:, 3:] = -np.cross(V[:, :3], carried[:, 3:]) - np.cross(V[:, 3:], carried[:, :3])
            if frame == "world_aligned":
                change[:, 3:] = -np.cross(V[:, 3:], carried[:, :3])
            assert relative((Jdot @ qd[..., None])[..., 0] + change, A) < tolerance * 5


@pytest.mark.parametrize("frame", FRAMES)
def test_the_hessian_along_a_velocity_is_the_time_derivative(frame, model, make_dynamics, tolerance):
    dyn = make_dynamics(model)
    q, qd, _ = random_states(model, (3,), seed=2)
    link = model.link_names[-1]
    H, Jdot = dyn.pose_hessian(q, link, frame=frame), dyn.jacobian_derivative(q, qd, link, frame=frame)
    assert np.abs(Jdot).max() > 0.1
    assert relative(np.einsum("bpjk,bk->bpj", H, qd), Jdot) < tolerance


def test_entries_off_the_path_of_a_link_are_zero(make_dynamics):
    model = rd.random_tree(8, seed=3, joints=JOINT_TYPES, shape="binary")
    dyn = make_dynamics(model)
    q, qd, _ = random_states(model, seed=3)
    link = len(model.link_names) - 1
    path = model.tree.path(int(model.link_body[link]))
    moving = np.isin(np.repeat(np.arange(model.n_bodies), np.diff([*model.v_start, model.nv])), path)
    assert 0 < moving.sum() < model.nv
    for frame in FRAMES:
        H, Jdot = dyn.pose_hessian(q, link, frame=frame), dyn.jacobian_derivative(q, qd, link, frame=frame)
        assert not H[:, ~moving].any() and not H[:, :, ~moving].any() and not Jdot[:, ~moving].any()
        assert H.any() and Jdot.any()


def test_second_derivatives_of_a_position_are_symmetric(make_dynamics, tolerance):
    """Where every coordinate is one of the manifold itself."""
    model = rd.random_tree(8, seed=5, joints=ONE_DOF, shape="chain")
    H = make_dynamics(model).pose_hessian(random_states(model, seed=4)[0], len(model.link_names) - 1)
    assert np.abs(H[3:]).max() > 0.1
    assert relative(H[3:], np.swapaxes(H[3:], 1, 2)) < tolerance


def test_a_link_of_the_world_does_not_move(make_dynamics):
    model = rd.load_urdf(robots.own("arm6"))
    dyn = make_dynamics(model)
    q, qd, _ = random_states(model, (2,))
    for frame in FRAMES:
        assert not dyn.pose_hessian(q, "base", frame=frame).any()
        assert not dyn.jacobian_derivative(q, qd, "base", frame=frame).any()
    assert not dyn.forward_kinematics_gradient(q)[:, model.link_index("base")].any()


def test_energies_and_momentum(model, make_dynamics, tolerance):
    dyn = make_dynamics(model)
    q, qd, _ = random_states(model, (3,), seed=6)
    by_q, by_qd = dyn.kinetic_energy_gradient(q, qd)
    assert relative(by_qd, (dyn.mass_matrix(q) @ qd[..., None])[..., 0]) < tolerance
    J, gravity = dyn.center_of_mass_jacobian(q), dyn.gravity_force(q)
    assert relative(J, dyn.centroidal_momentum(q, qd)[1][:, 3:] / model.total_mass) < tolerance
    assert relative(-model.total_mass * model.gravity @ J, gravity) < tolerance
    assert (dyn.potential_energy_gradient(q) == gravity).all()
    # A state without motion has no kinetic energy, nor would it have elsewhere.
    assert not dyn.kinetic_energy_gradient(q, 0 * qd)[0].any()
    assert np.abs(by_q).max() > 0.1


def test_kinetic_energy_and_the_coriolis_matrix(make_dynamics, tolerance):
    """Lagrange's equations, d/dt dK/dqd - dK/dq + g = tau, hold where every coordinate is one of the manifold itself;
    with Hdot = C + C' they say dK/dq = C' qd."""
    model = rd.random_tree(9, seed=7, joints=ONE_DOF, armature=True)
    dyn = make_dynamics(model)
    q, qd, _ = random_states(model, (3,), seed=7)
    C = dyn.coriolis_matrix(q, qd)
    assert relative(dyn.kinetic_energy_gradient(q, qd)[0], np.einsum("bij,bi->bj", C, qd)) < tolerance


def test_forces_at_rest(model, make_dynamics, tolerance):
    dyn = make_dynamics(model)
    q, qd, vector = random_states(model, (3,), seed=10)
    gravity, product = dyn.gravity_force_gradient(q), dyn.mass_matrix_product_gradient(q, vector=vector)
    assert np.abs(gravity).max() > 0.1 and np.abs(product).max() > 0.1
    both = dyn.inverse_dynamics_gradient(q, 0 * qd, vector)[0]
    assert relative(gravity + product, both) < tolerance
    # K = qd' H qd / 2
    along = np.einsum("bi,bij->bj", 0.5 * qd, dyn.mass_matrix_product_gradient(q, vector=qd))
    assert relative(dyn.kinetic_energy_gradient(q, qd)[0], along) < tolerance


def test_the_gradient_of_gravity_is_a_hessian(make_dynamics, tolerance):
    model = rd.random_tree(9, seed=12, joints=ONE_DOF)
    gravity = make_dynamics(model).gravity_force_gradient(random_states(model, seed=11)[0])
    assert relative(gravity, gravity.T) < tolerance


def test_inertias_that_are_given(model, make_dynamics, tolerance):
    """As if the model had them."""
    dyn = make_dynamics(model)
    rng = np.random.default_rng(13)
    inertia = model.inertia * rng.uniform(0.5, 2.0, (model.n_bodies, 1))
    other = rd.Dynamics(dataclasses.replace(model, inertia=inertia), engine="reference")
    q, qd, _ = random_states(model, (3,), seed=13)
    for ask in (
        lambda d, **o: d.kinetic_energy_gradient(q, qd, **o)[0],
        lambda d, **o: d.kinetic_energy_gradient(q, qd, **o)[1],
        lambda d, **o: d.potential_energy_gradient(q, **o),
        lambda d, **o: d.gravity_force_gradient(q, **o),
        lambda d, **o: d.mass_matrix_product_gradient(q, vector=qd, **o),
    ):
        assert relative(ask(dyn, inertia=inertia), ask(other)) < tolerance
        assert relative(ask(dyn), ask(other)) > 0.01


def test_a_long_chain():
    """Rolled code: 300 bodies, a link in the middle, six matrices of 300 x 300."""
    model = rd.auto_tree(300, skew=0.3)
    dyn = rd.Dynamics(model)
    q, qd, _ = random_states(model, seed=8)
    link = 150
    for frame in FRAMES:
        H = dyn.pose_hessian(q, link, frame=frame)
        Jdot = dyn.jacobian_derivative(q, qd, link, frame=frame)
        assert relative(H @ qd, Jdot) < 1e-11
        A = dyn.link_acceleration(q, qd, 0 * qd, link, frame=frame, classical=frame == "world_aligned")
        assert relative(Jdot @ qd, A) < 1e-11
    J = dyn.forward_kinematics_gradient(q)
    assert relative(J[link], dyn.jacobian(q, link, frame="world_aligned")) < 1e-11
    assert relative(dyn.kinetic_energy_gradient(q, qd)[1], dyn.mass_matrix(q) @ qd) < 1e-11
    assert relative(-model.total_mass * model.gravity @ dyn.center_of_mass_jacobian(q), dyn.gravity_force(q)) < 1e-11
    product = dyn.mass_matrix_product_gradient(q, vector=qd)
    assert relative(dyn.kinetic_energy_gradient(q, qd)[0], 0.5 * qd @ product) < 1e-10


def test_results_of_many_entries_are_made_by_loops(monkeypatch):
    """Six matrices of 37 x 37 have more entries than LLVM's unrolled code is worth compiling for."""
    monkeypatch.setitem(tuning.MAX_ENTRIES["x86"], "query", 1 << 13)
    model = rd.load_urdf(robots.own("humanoid"), base="floating")
    dyn, link = rd.Dynamics(model, engine="cpu"), 5
    modes = [dyn.engine.kernel(a("world"), (), link).mode for a in (pose_hessian, jacobian_derivative)]
    assert modes == ["rolled", "unrolled"]


def test_wrong_links_and_frames_are_named():
    model = rd.load_urdf(robots.own("arm6"))
    dyn, q, qd = rd.Dynamics(model), model.neutral(), np.ones(6)
    for call in (functools.partial(dyn.jacobian_derivative, q, qd), functools.partial(dyn.pose_hessian, q)):
        with pytest.raises(rd.ArgumentError, match=r"^link: got 'tool'; wanted a link of 'arm6', such as tool0"):
            call("tool")
        with pytest.raises(rd.ArgumentError, match=r"^frame: got 'local'; allowed: 'world', 'body'"):
            call("tool0", frame="local")
    weightless = rd.load_urdf(
        """<robot name="shadow"><link name="a"/><link name="b"/><joint name="j" type="continuous">
        <parent link="a"/><child link="b"/><axis xyz="0 0 1"/></joint></robot>"""
    )
    with pytest.raises(rd.NumericalError, match="nothing that moves has mass"):
        rd.Dynamics(weightless).center_of_mass_jacobian([0.0])


# Pinocchio.


def case_of(name):
    """One of our robots, as "name base", or a random tree by its seed."""
    pytest.importorskip("pinocchio", reason="Pinocchio has no wheel for this platform")
    from oracles.cases import description_case, urdf_case

    if isinstance(name, str):
        robot, base = name.split()
        return urdf_case(robots.own(robot), base, follow=robot in ("gripper", "hand"), seed=1)
    kinds = [kind for kind in JOINT_TYPES if kind != "fixed"]
    mimic = 0.4 if name % 2 else 0.0
    description = random_description(name % 8 + 3, seed=name, joints=kinds, mimic=mimic, armature=True)
    base = "floating" if name % 4 < 2 else "fixed"
    return description_case(description, base, gravity=(3.0, -2.0, -9.0), seed=name)


@pytest.mark.parametrize("name", [*(f"{path.stem} {base}" for path in robots.OWN for base in ("fixed", "floating"))])
@pytest.mark.some(of=6, rest="matrix")
def test_our_robots_agree_with_pinocchio(name):
    agree_with_pinocchio(case_of(name))


@pytest.mark.parametrize("seed", range(16))
@pytest.mark.some(of=6, rest="matrix")
def test_random_trees_agree_with_pinocchio(seed):
    agree_with_pinocchio(case_of(seed))


def agree_with_pinocchio(case):
    """Relative to the largest entry at each state, and to a thousandth of a natural size where entries cancel."""
    from oracles.quantities import CANCELLED, relative

    dyn, oracle, s = case.dyn, case.oracle, case.states
    size = CANCELLED * np.abs(dyn.mass_matrix(s.q)).max(axis=(1, 2))
    for link in s.links:
        for frame in FRAMES:
            wanted = oracle.pose_hessian(s.q, link, frame=frame)
            assert relative(dyn.pose_hessian(s.q, link, frame=frame), wanted, CANCELLED) < 1e-10
            for base in ({}, {"V0": s.V0}):
                wanted = oracle.jacobian_derivative(s.q, s.qd, link, frame=frame, **base)
                got = dyn.jacobian_derivative(s.q, s.qd, link, frame=frame, **base)
                assert relative(got, wanted, CANCELLED) < 1e-10, (frame, base)
    for ask in (
        lambda d: d.kinetic_energy_gradient(s.q, s.qd)[0],
        lambda d: d.kinetic_energy_gradient(s.q, s.qd)[1],
        lambda d: d.gravity_force_gradient(s.q),
        lambda d: d.mass_matrix_product_gradient(s.q, vector=s.qdd),
    ):
        assert relative(ask(dyn), ask(oracle), size) < 1e-10
    if case.model.total_mass > 0:
        assert relative(dyn.center_of_mass_jacobian(s.q), oracle.center_of_mass_jacobian(s.q), CANCELLED) < 1e-10
