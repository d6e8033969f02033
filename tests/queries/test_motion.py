"""Reactions, regressors, motion of the centre of mass and of momentum, gradients of links' motion: differences,
identities, Pinocchio."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest
import robots
from conftest import random_states, relative
from robots import of_every_kind, tree

import robodyn as rd
from robodyn.engines.query_table import FRAMES
from robodyn.testing.pinocchio_models import PinocchioAnswers, pinocchio_model

STEP, DIFFERENCE_TOLERANCE = 1e-5, 5e-7


@pytest.fixture
def model():
    return of_every_kind()


def moved(model, q, qd, qdd, h):
    """The state after a time h, to second order, of accelerations that stay as they are."""
    return model.integrate(q, h * qd + 0.5 * h * h * qdd), qd + h * qdd


def rate(f, model, q, qd, qdd):
    """The time derivative of f(q, qd) by central differences."""
    high, low = (f(*moved(model, q, qd, qdd, h)) for h in (STEP, -STEP))
    return (high - low) / (2 * STEP)


def by_q(model, q, f):
    """d f / d q on the tangent space, columns last."""
    steps = STEP * np.eye(model.nv)
    return np.moveaxis((f(model.integrate(q, steps)) - f(model.integrate(q, -steps))) / (2 * STEP), 0, -1)


# Differences, on random trees of every joint kind.


@pytest.mark.parametrize("seed", range(20))
def test_motion_of_the_centre_and_of_momentum(seed):
    model = tree(seed)
    if not model.nv:
        return
    dyn = rd.Dynamics(model, engine="reference")
    q, qd, qdd = random_states(model, seed=seed)
    state = q, qd, qdd
    velocity = dyn.center_of_mass_velocity
    assert relative(velocity(q, qd), dyn.center_of_mass_jacobian(q) @ qd) < 1e-12
    position = rate(lambda q, qd: dyn.center_of_mass(q), model, *state)
    assert relative(velocity(q, qd), position) < DIFFERENCE_TOLERANCE
    assert relative(dyn.center_of_mass_acceleration(*state), rate(velocity, model, *state)) < DIFFERENCE_TOLERANCE
    A = dyn.centroidal_momentum(q, qd)[1]
    of_matrix = rate(lambda q, qd: dyn.centroidal_momentum(q, qd)[1], model, *state)
    Adot = dyn.centroidal_momentum_matrix_derivative(q, qd)
    assert relative(Adot, of_matrix) < 5 * DIFFERENCE_TOLERANCE
    hdot = dyn.centroidal_momentum_rate(*state)
    assert relative(hdot, A @ qdd + Adot @ qd) < 1e-10
    of_h = rate(lambda q, qd: dyn.centroidal_momentum(q, qd)[0], model, *state)
    assert relative(hdot, of_h) < 5 * DIFFERENCE_TOLERANCE


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.some(of=4, rest="matrix")
def test_gradients_of_the_centre_and_of_momentum(seed):
    """Of a moving base, too; and inertias of subtrees."""
    model = tree(seed)
    if not model.nv:
        return
    dyn = rd.Dynamics(model, engine="reference")
    q, qd, _ = random_states(model, seed=seed)
    V0 = np.random.default_rng(seed).standard_normal(6)
    dv_dq, dv_dqd = dyn.center_of_mass_velocity_gradient(q, qd, V0=V0)
    differences = by_q(model, q, lambda q: dyn.center_of_mass_velocity(q, qd, V0=V0))
    assert relative(dv_dq, differences) < DIFFERENCE_TOLERANCE
    assert relative(dv_dqd, dyn.center_of_mass_jacobian(q)) < 1e-12
    dh_dq, dh_dqd = dyn.centroidal_momentum_gradient(q, qd, V0=V0)
    differences = by_q(model, q, lambda q: dyn.centroidal_momentum(q, qd, V0=V0)[0])
    assert relative(dh_dq, differences) < 5 * DIFFERENCE_TOLERANCE
    assert relative(dh_dqd, dyn.centroidal_momentum(q, qd)[1]) < 1e-12
    # Bodies that move as one, about the origin: the momentum of all of them is that of the centroidal inertia.
    whole, IG, com = dyn.composite_inertia(q), dyn.centroidal_inertia(q), dyn.center_of_mass(q)
    moved = np.concatenate([V0[:3], V0[3:] + np.cross(V0[:3], com)])
    assert relative(IG @ moved, dyn.centroidal_momentum(q, 0 * qd, V0=V0)[0]) < 1e-10
    masses = np.array([model.inertia[model.tree.subtree(k), 0].sum() for k in range(model.n_bodies)])
    assert relative(whole[:, 0], masses) < 1e-12


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.some(of=12, rest="matrix")
def test_gradients_of_links_motion(seed, frame):
    """Of a moving base, too."""
    model = tree(seed)
    dyn = rd.Dynamics(model, engine="reference")
    q, qd, qdd = random_states(model, seed=seed)
    V0, dV0 = np.random.default_rng(seed).standard_normal((2, 6))
    eye = STEP * np.eye(model.nv)

    def by(f, x):
        return np.moveaxis((f(x + eye) - f(x - eye)) / (2 * STEP), 0, -1)

    for link in (0, len(model.link_names) - 1):
        velocity = functools.partial(dyn.link_velocity, link=link, frame=frame, V0=V0)
        dq, dqd = dyn.link_velocity_gradient(q, qd, link, frame=frame, V0=V0)
        assert relative(dq, by_q(model, q, functools.partial(velocity, qd=qd))) < DIFFERENCE_TOLERANCE
        assert relative(dqd, dyn.jacobian(q, link, frame=frame)) < 1e-13
        for classical in (False, True):
            options = {"link": link, "frame": frame, "classical": classical, "V0": V0, "dV0": dV0}
            acceleration = functools.partial(dyn.link_acceleration, **options)
            dq, dqd, dqdd = dyn.link_acceleration_gradient(q, qd, qdd, **options)
            wanted = by_q(model, q, functools.partial(acceleration, qd=qd, qdd=qdd))
            assert relative(dq, wanted) < 5 * DIFFERENCE_TOLERANCE
            assert relative(dqd, by(functools.partial(acceleration, q, qdd=qdd), qd)) < DIFFERENCE_TOLERANCE
            assert relative(dqdd, by(functools.partial(acceleration, q, qd), qdd)) < DIFFERENCE_TOLERANCE


# Identities, on every engine.


def test_reactions_hold_bodies_and_drive_joints(model, make_dynamics, tolerance):
    """Newton and Euler for every body: what its joint gives, less what it passes on, is what its motion takes."""
    dyn = make_dynamics(model)
    q, qd, qdd = random_states(model, (3,), seed=2)
    rng = np.random.default_rng(2)
    f_ext, V0, dV0 = rng.standard_normal((3, model.n_bodies, 6)), *rng.standard_normal((2, 6))
    moving = {"V0": V0, "dV0": dV0}
    f = dyn.joint_reaction(q, qd, qdd, f_ext=f_ext, **moving)
    takes = np.einsum("...bij,bj->...bi", dyn.body_regressor(q, qd, qdd, **moving), model.inertia)
    R, p = bodies_in_world(model, q)

    def in_world(forces):
        ang, lin = (np.einsum("...ij,...j->...i", R, part) for part in (forces[..., :3], forces[..., 3:]))
        return np.concatenate((ang + np.cross(p, lin), lin), -1)

    given = in_world(f)
    left = given.copy()
    for i, parent in enumerate(model.parent.tolist()):
        if parent >= 0:
            left[:, parent] -= given[:, i]
    assert relative(left, in_world(takes) - f_ext) < 10 * tolerance
    # Linear in inertias and external forces.
    heavy = dyn.joint_reaction(q, qd, qdd, f_ext=f_ext, inertia=2.0 * model.inertia, **moving)
    twice = 2.0 * dyn.joint_reaction(q, qd, qdd, **moving)
    assert relative(heavy - twice, f - 0.5 * twice) < 10 * tolerance


def test_reactions_along_the_axes_are_torques(make_dynamics, tolerance):
    """Every axis of a revolute joint is z of its body's frame."""
    model = rd.load_urdf(robots.own("arm7"))
    dyn = make_dynamics(model)
    q, qd, qdd = random_states(model, (3,), seed=5)
    along = dyn.joint_reaction(q, qd, qdd)[..., 2] + model.armature * qdd
    assert relative(along, dyn.inverse_dynamics(q, qd, qdd)) < tolerance


def bodies_in_world(model, q):
    """Attitudes and places of the bodies' frames, from those of their links."""
    T = rd.Dynamics(model, engine="reference").forward_kinematics(q)
    links = [model.link_names.index(name) for name in model.body_names]
    E, r = model.link_X[links, :9].reshape(-1, 3, 3), model.link_X[links, 9:]
    R = T[:, links][..., :3, :3] @ E
    return R, T[:, links][..., :3, 3] - np.einsum("...ij,...j->...i", R, r)


def test_totals_are_sums_over_bodies(model, make_dynamics, tolerance):
    """Regressors times parameters are energies, and subtrees of roots, by their masses, the whole."""
    dyn = make_dynamics(model)
    q, qd, _ = random_states(model, (4,), seed=3)
    V0 = np.linspace(-1.0, 1.0, 6)
    pi = model.inertia.ravel()
    of_armature = 0.5 * (qd * qd) @ model.armature
    moving = dyn.kinetic_energy(q, qd, V0=V0) - of_armature
    assert relative(dyn.kinetic_energy_regressor(q, qd, V0=V0) @ pi, moving) < 10 * tolerance
    assert relative(dyn.potential_energy_regressor(q) @ pi, dyn.potential_energy(q)) < 10 * tolerance
    com, roots = dyn.subtree_center_of_mass(q), np.flatnonzero(model.parent < 0)
    of_root = np.arange(model.n_bodies)
    for i, parent in enumerate(model.parent.tolist()):
        of_root[i] = i if parent < 0 else of_root[parent]
    masses = np.array([model.inertia[of_root == root, 0].sum() for root in roots])
    whole = np.einsum("b,...bi->...i", masses / masses.sum(), com[:, roots])
    assert relative(whole, dyn.center_of_mass(q)) < tolerance


@pytest.mark.some(of=2, rest="matrix")
def test_inertias_that_are_given(model, make_dynamics, tolerance):
    dyn = make_dynamics(model)
    q, qd, qdd = random_states(model, (3,), seed=4)
    rng = np.random.default_rng(4)
    heavier = model.inertia * (1.0 + rng.uniform(0.0, 1.0, (3, model.n_bodies, 1)))
    for name, arguments in {
        "center_of_mass": (q,),
        "center_of_mass_jacobian": (q,),
        "center_of_mass_velocity": (q, qd),
        "center_of_mass_acceleration": (q, qd, qdd),
        "subtree_center_of_mass": (q,),
        "centroidal_momentum": (q, qd),
        "centroidal_momentum_rate": (q, qd, qdd),
        "centroidal_momentum_matrix_derivative": (q, qd),
        "coriolis_matrix": (q, qd),
    }.items():
        found = getattr(dyn, name)(*arguments, inertia=heavier)
        for row in range(3):
            other = rd.Dynamics(dataclasses.replace(model, inertia=heavier[row]), engine="reference")
            wanted = getattr(other, name)(*(each[row] for each in arguments))
            for got, right in zip(
                found if isinstance(found, tuple) else (found,),
                wanted if isinstance(wanted, tuple) else (wanted,),
                strict=True,
            ):
                assert relative(got[row], right) < 10 * tolerance, name
    nothing = np.zeros_like(model.inertia)
    some = np.stack([model.inertia, nothing])
    some[1, 0, 1:4] = 1.0  # first moments without mass
    for name, arguments in (("center_of_mass", (q[:2],)), ("centroidal_momentum_rate", (q[:2], qd[:2], qdd[:2]))):
        found = getattr(dyn, name)(*arguments, inertia=some)
        assert np.isnan(found[1]).all() and np.isfinite(found[0]).all(), name
    with pytest.raises(rd.NumericalError, match="inertia: nothing that moves has mass"):
        dyn.center_of_mass(q[0], inertia=nothing)
    with pytest.raises(rd.NumericalError, match="inertia: nothing that moves has mass in 1 of 3 rows: 1"):
        mixed = np.stack([model.inertia, nothing, model.inertia])
        rd.Dynamics(model, engine="reference", check=True).center_of_mass_velocity(q, qd, inertia=mixed)


def test_subtrees_without_mass_have_their_own_origin(make_dynamics, tolerance):
    text = """<robot name="r"><link name="a"/><link name="b"><inertial><mass value="2"/><origin xyz="0 0.5 0"/>
    <inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial></link><link name="c"/>
    <joint name="j" type="revolute"><parent link="a"/><child link="b"/><axis xyz="0 0 1"/><origin xyz="1 0 0"/>
    <limit lower="-1" upper="1" effort="1" velocity="1"/></joint>
    <joint name="k" type="revolute"><parent link="b"/><child link="c"/><axis xyz="0 0 1"/><origin xyz="0 0 3"/>
    <limit lower="-1" upper="1" effort="1" velocity="1"/></joint></robot>"""
    dyn = make_dynamics(rd.load_urdf(text))
    assert relative(dyn.subtree_center_of_mass([0.0, 0.0]), np.array([[1, 0.5, 0], [1, 0, 3.0]])) < tolerance
    assert relative(dyn.center_of_mass([0.0, 0.3]), np.array([1, 0.5, 0])) < tolerance


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.some(of=2, rest="matrix")
def test_base_parameters_are_a_basis(seed):
    """As many as the regressor has rank; a change that they do not see changes no torque."""
    model = tree(seed, joints=("revolute", "prismatic", "spherical"))
    dyn = rd.Dynamics(model, engine="reference")
    base = dyn.base_parameters(rng=seed)
    states = random_states(model, (40 * model.n_bodies,), seed=seed + 1)
    Y = dyn.regressor(*states).reshape(-1, 10 * model.n_bodies)
    assert base.rank == np.linalg.matrix_rank(Y, tol=1e-8 * np.linalg.norm(Y, 2))
    assert base.matrix.shape == (base.rank, 10 * model.n_bodies)
    np.testing.assert_array_equal(base.matrix[:, base.columns], np.eye(base.rank))
    unseen = np.random.default_rng(seed).standard_normal(10 * model.n_bodies)
    unseen[base.columns] -= base.matrix @ unseen
    assert np.abs(Y @ unseen).max() < 1e-9 * np.abs(Y).max()


def test_known_numbers_of_base_parameters():
    """Of six and seven revolute joints, the first of them vertical (Gautier 1991, Khalil and Dombre 2002)."""
    assert rd.Dynamics(rd.load_urdf(robots.own("arm6"))).base_parameters().rank == 36
    assert rd.Dynamics(rd.load_urdf(robots.own("arm7"))).base_parameters().rank == 43
    nothing = rd.Dynamics(rd.random_tree(2, seed=0, joints=["fixed"])).base_parameters()
    assert (nothing.rank, nothing.matrix.shape) == (0, (0, 0))
    with pytest.raises(rd.NumericalError, match=r"base_parameters: .*give more"):
        rd.Dynamics(rd.load_urdf(robots.own("humanoid"))).base_parameters(states=2)
    single = rd.Dynamics(rd.load_urdf(robots.own("arm6")), dtype="float32")
    assert single.base_parameters().rank == 36
    for wrong in ("x", -1, 1.5):
        with pytest.raises(rd.ArgumentError, match="rng"):
            single.base_parameters(rng=wrong)
    with pytest.raises(rd.ArgumentError, match="states: got 0"):
        rd.Dynamics(rd.load_urdf(robots.own("arm6"))).base_parameters(states=0)


def test_regressors_of_joints(model):
    qd, qdd = np.random.default_rng(0).standard_normal((2, 5, model.nv))
    dyn = rd.Dynamics(model, engine="reference", dtype="float32")
    assert relative(dyn.armature_regressor(qdd) @ model.armature, model.armature * qdd) < 1e-6
    numbers = np.concatenate((model.armature, 1.0 + model.armature))
    wanted = model.armature * qd + (1.0 + model.armature) * np.sign(qd)
    assert relative(dyn.friction_regressor(qd) @ numbers, wanted) < 1e-6
    with pytest.raises(rd.ArgumentError, match="qd: got shape"):
        dyn.friction_regressor(qd[:, 1:])


# The manifold.


@pytest.mark.parametrize("seed", range(6))
def test_ways_between_configurations(seed):
    model = tree(seed)
    q0, q1 = model.random_configuration(seed, (2, 4))
    for _ in range(10):  # NumPy's first, then that of machine code
        ends = model.interpolate(q0, q1, np.array([[0.0], [1.0]]))
        for end, q in zip(ends, (q0, q1), strict=True):
            assert np.abs(model.difference(q, end)).max(initial=0.0) < 1e-12
        middle = model.interpolate(q0[0], q1[0], 0.25)
        step = model.difference(q0[0], q1[0])
        assert np.abs(model.difference(middle, model.integrate(q0[0], step, 0.25))).max(initial=0.0) < 1e-12
        assert relative(model.distance(q0, q1), np.linalg.norm(model.difference(q0, q1), axis=-1)) < 1e-14
        assert abs(model.distance(q0[0], middle) - 0.25 * model.distance(q0[0], q1[0])) < 1e-9
    assert model.distance(q0, q0).shape == (4,)
    with pytest.raises(rd.ArgumentError, match="t: got"):
        model.interpolate(q0, q1, "half")
    with pytest.raises(rd.ArgumentError, match="q1: got shape"):
        model.distance(q0, q1[:, :-1])


# Pinocchio.


@pytest.mark.parametrize("name", ["arm7", "humanoid", "quadruped"])
def test_agrees_with_pinocchio(name):
    pin = pytest.importorskip("pinocchio")
    model = rd.load_urdf(robots.own(name), base="fixed" if name == "arm7" else "floating")
    theirs = pinocchio_model(model)
    answers, data = PinocchioAnswers(model, theirs), theirs.createData()
    dyn, at = rd.Dynamics(model, engine="reference"), answers.at
    q, qd, qdd = random_states(model, seed=6)
    y, v, a = at.coordinates(q), at.rates(qd), at.rates(qdd)
    joints = [theirs.getJointId(name) for name in model.joint_names]
    swap = [3, 4, 5, 0, 1, 2]

    pin.rnea(theirs, data, y, v, a)
    forces = np.array([data.f[j].vector[swap] for j in joints])
    regressors = np.array([pin.jointBodyRegressor(theirs, data, j) for j in joints])
    order = np.argsort(rd.conventions.pinocchio_parameters())
    compared = {
        "joint_reaction": (dyn.joint_reaction(q, qd, qdd), forces),
        "body_regressor": (dyn.body_regressor(q, qd, qdd), regressors[:, swap][..., order]),
    }
    pin.centerOfMass(theirs, data, y, v, a, True)
    compared |= {
        "center_of_mass_velocity": (dyn.center_of_mass_velocity(q, qd), data.vcom[0].copy()),
        "center_of_mass_acceleration": (dyn.center_of_mass_acceleration(q, qd, qdd), data.acom[0].copy()),
        "subtree_center_of_mass": (
            dyn.subtree_center_of_mass(q),
            np.array([data.oMi[j].act(data.com[j]) for j in joints]),
        ),
    }
    by_q = pin.computeCentroidalDynamicsDerivatives(theirs, data, y, v, a)[0]
    compared["centroidal_momentum_gradient"] = (
        dyn.centroidal_momentum_gradient(q, qd)[0],
        by_q[np.ix_(swap, at.velocities)],
    )
    pin.ccrba(theirs, data, y, v)
    compared["centroidal_inertia"] = dyn.centroidal_inertia(q), data.Ig.matrix()[np.ix_(swap, swap)]
    rate = pin.computeCentroidalMomentumTimeVariation(theirs, data, y, v, a).vector[swap].copy()
    of_matrix = pin.dccrba(theirs, data, y, v)[np.ix_(swap, at.velocities)]
    compared |= {
        "centroidal_momentum_rate": (dyn.centroidal_momentum_rate(q, qd, qdd), rate),
        "centroidal_momentum_matrix_derivative": (dyn.centroidal_momentum_matrix_derivative(q, qd), of_matrix),
    }
    if hasattr(pin, "computeKineticEnergyRegressor"):
        rows = [j - 1 for j in joints]
        kinetic = np.asarray(pin.computeKineticEnergyRegressor(theirs, data, y, v)).reshape(-1, 10)[rows]
        potential = np.asarray(pin.computePotentialEnergyRegressor(theirs, data, y)).reshape(-1, 10)[rows]
        compared |= {
            "kinetic_energy_regressor": (dyn.kinetic_energy_regressor(q, qd), kinetic[:, order].ravel()),
            "potential_energy_regressor": (dyn.potential_energy_regressor(q), potential[:, order].ravel()),
        }
    pin.computeForwardKinematicsDerivatives(theirs, data, y, v, a)
    pin.updateFramePlacements(theirs, data)
    for frame, reference in (("body", pin.LOCAL), ("world", pin.WORLD)):
        for link in (model.link_names[0], model.link_names[-1]):
            number = theirs.getBodyId(link)
            wanted = pin.getFrameVelocityDerivatives(theirs, data, number, reference)
            got = dyn.link_velocity_gradient(q, qd, link, frame=frame)
            of_acceleration = pin.getFrameAccelerationDerivatives(theirs, data, number, reference)[1:]
            accelerations = dyn.link_acceleration_gradient(q, qd, qdd, link, frame=frame)
            pairs = zip((*got, *accelerations), (*wanted, *of_acceleration), strict=True)
            for k, (ours, other) in enumerate(pairs):
                compared[f"{frame} {link} {k}"] = ours, np.asarray(other)[np.ix_(swap, at.velocities)]
    for what, (got, wanted) in compared.items():
        assert relative(got, wanted) < 1e-10, what
