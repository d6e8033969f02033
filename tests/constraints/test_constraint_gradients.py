"""Derivatives of constrained accelerations, forces and impacts: central differences, Pinocchio, the four-bar."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import robots
import robots_with_loops as loops
from conftest import random_states, relative
from robots import of_every_kind

import robodyn as rd
import robodyn.joints

pytestmark = pytest.mark.filterwarnings("ignore::robodyn.internals.errors.RedundantWarning")

BLOCKS = ("qdd_q", "qdd_qd", "qdd_tau", "lam_q", "lam_qd", "lam_tau")


def pose(rng):
    """A random pose (4, 4)."""
    turn = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    T = np.eye(4)
    T[:3, :3], T[:3, 3] = turn * np.sign(np.linalg.det(turn)), rng.standard_normal(3)
    return T


def robot(seed):
    """A random tree: with followers on even seeds, floating on odd ones."""
    kinds = ("revolute", "prismatic", "helical", "spherical", "planar", "floating")
    if seed % 2:
        return rd.random_tree(7, seed=seed, joints=kinds, base="floating", armature=True)
    return rd.random_tree(9, seed=seed, joints=kinds, mimic=0.3, armature=True)


def every(model, seed):
    """A constraint of every kind and with every set of rows that has its own formula, with Baumgarte's terms."""
    rng = np.random.default_rng(seed)
    moving = [name for name, body in zip(model.link_names, model.link_body.tolist(), strict=True) if body >= 0]

    def two():
        return rng.choice(moving, 2, replace=False)

    sizes = {
        joint: robodyn.joints.KINDS[kind].nv
        for joint, kind in zip(model.joint_names, model.joint_kind.tolist(), strict=True)
    }
    single = [joint for joint, size in sizes.items() if size == 1]
    several = [joint for joint, size in sizes.items() if size > 1]
    b, a = two()
    d, c = two()
    return [
        rd.Point(b, at=rng.standard_normal(3), to_at=pose(rng), baumgarte=(3.0, 0.7)),
        rd.Point(b, a, at=rng.standard_normal(3), to_at=pose(rng)),
        rd.Weld(moving[-1], at=pose(rng), to_at=pose(rng), baumgarte=(2.0, 0.5)),
        rd.Weld(d, c, at=pose(rng), to_at=pose(rng), rows=("rx", "rz", "y"), baumgarte=(2.0, 0.5)),
        rd.Weld(b, a, at=pose(rng), to_at=pose(rng), rows=("ry",), baumgarte=(1.0, 2.0)),
        rd.Rod(d, c, at=rng.standard_normal(3), length=0.7, baumgarte=(2.0, 1.0)),
        rd.Rod(b, at=rng.standard_normal(3), to_at=(0.3, 0.2, 0.9), length=0.7, baumgarte=(2.0, 1.0)),
        *([rd.Coupling({single[0]: 1.0, single[1]: -2.0}, 0.1, baumgarte=(1.0, 1.0))] if single[1:] else []),
        rd.Lock(several[-1], baumgarte=(2.0, 0.4)),
        rd.Rolling(b, rng.standard_normal(3), 0.4, a, at=pose(rng), to_at=pose(rng), baumgarte=(2.0, 0.5)),
        rd.Rolling(moving[-1], rng.standard_normal(3), 0.3, at=pose(rng), to_at=pose(rng)),
    ]


def independent(model, held, q):
    """Those of the constraints whose rows neither depend on each other in this state nor nearly do."""
    chosen = []
    for each in held:
        J = rd.Dynamics(model, engine="reference", constraints=[*chosen, each]).constraint_jacobian(q)
        strengths = np.linalg.svd(J, compute_uv=False)
        if len(J) <= model.nv and strengths[-1] > 0.05 * strengths[0]:
            chosen.append(each)
    return chosen


def more(model, seed, shape=()):
    rng = np.random.default_rng(seed)
    return {
        "f_ext": rng.standard_normal((*shape, model.n_bodies, 6)),
        "inertia": model.inertia * rng.uniform(0.9, 1.1, (*shape, model.n_bodies, 1)),
        "V0": rng.standard_normal((*shape, 6)),
        "dV0": rng.standard_normal((*shape, 6)),
    }


def of_impacts(options):
    return {name: options[name] for name in ("inertia", "V0", "active") if name in options}


def differences(model, ask, q, others, h=1e-4):
    """Derivatives of results by q and by each of the others: central differences of two steps, without the error of
    second order. All states are one batch."""
    n, nv = len(others) + 1, model.nv
    steps = np.zeros((n, n, 4, nv, nv))  # by which array; of which array; sizes; directions
    for k in range(n):
        steps[k, k] = np.multiply.outer([h, -h, 2 * h, -2 * h], np.eye(nv))
    moved = model.integrate(np.broadcast_to(q, (n, 4, nv, model.nq)), steps[:, 0])
    results = ask(moved, *(x + steps[:, k] for k, x in enumerate(others, 1)))
    found = []
    for values in results:
        ahead, behind, far, back = np.moveaxis(values, 1, 0)
        slopes = (4 * (ahead - behind) / (2 * h) - (far - back) / (4 * h)) / 3
        found += list(np.swapaxes(slopes, 1, 2))
    return found


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.some(of=4, rest="matrix")
def test_gradients_are_differences(seed):
    """Off the constraints; with all arguments and without."""
    model = robot(seed)
    q, qd, tau = random_states(model, seed=seed)
    alone = [held for held in every(model, seed) if independent(model, [held], q)]
    assert len(alone) >= 5  # dependent rows contradict each other off the constraints
    for held in alone:
        dyn = rd.Dynamics(model, engine="reference", constraints=[held], joint_forces="damping")
        for options in ({}, more(dyn.model, seed)):
            wanted = differences(model, partial(dyn.constrained_forward_dynamics, **options), q, (qd, tau))
            found = dyn.constrained_forward_dynamics_gradient(q, qd, tau, **options)
            for name, one, other in zip(BLOCKS, found, wanted, strict=True):
                assert relative(one, other) < 4e-8, (held, name)
            options = {**of_impacts(options), **({"restitution": 0.3} if options else {})}
            wanted = differences(model, partial(dyn.impact, **options), q, (qd,))
            for one, other in zip(dyn.impact_gradient(q, qd, **options), wanted, strict=True):
                assert relative(one, other) < 4e-8, held


@pytest.mark.parametrize("moving", [False, True], ids=["", "moving base"])
@pytest.mark.some(of=6, rest="matrix")
def test_engines_agree(make_dynamics, engine_dtype, tolerance, moving):
    """With several constraints at once, some of them off."""
    model = of_every_kind()
    kinds = (rd.Rolling, rd.Rod, rd.Lock) if moving else (rd.Weld, rd.Rod, rd.Coupling, rd.Lock)
    held = [each for each in every(model, 1) if isinstance(each, kinds)][0 if moving else 1 :]
    dyn, judge = make_dynamics(model, constraints=held), rd.Dynamics(model, engine="reference", constraints=held)
    q, qd, tau = random_states(model, (3,), seed=1)
    options = {"active": np.random.default_rng(1).integers(0, 2, (3, len(held)))}
    options |= more(dyn.model, 1, (3,)) if moving else {}
    wanted = judge.constrained_forward_dynamics_gradient(q, qd, tau, **options)
    found = dyn.constrained_forward_dynamics_gradient(q, qd, tau, **options)
    for name, one, other in zip(BLOCKS, found, wanted, strict=True):
        assert relative(one, other) < 2e3 * tolerance, name
    options = of_impacts(options)
    wanted = judge.impact_gradient(q, qd, np.array([0.0, 0.5, 1.0]), **options)
    for one, other in zip(dyn.impact_gradient(q, qd, np.array([0.0, 0.5, 1.0]), **options), wanted, strict=True):
        assert relative(one, other) < 2e3 * tolerance


def test_a_wheel_that_lies_flat_and_is_off(make_dynamics, tolerance):
    """It has no lowest point: derivatives are those of the tree where it is off, and NaN where it is on."""
    model = rd.random_tree(3, seed=0, joints=("revolute",), base="floating")
    at = pose(np.random.default_rng(0))
    wheel = rd.Rolling(model.link_names[-1], (0, 0, 1), 0.3, at=at)
    dyn, tree = make_dynamics(model, constraints=[wheel]), make_dynamics(model)
    q, qd, tau = random_states(model, (2,), seed=1)
    flat = dyn.constraint_targets(q)
    T = rd.Dynamics(model, engine="reference").link_pose(q, wheel.link) @ at
    flat[:, 0, :9] = np.swapaxes(T[:, :3, :3], -1, -2).reshape(2, 9)
    found = dyn.constrained_forward_dynamics_gradient(q, qd, tau, flat, active=np.array([[0], [1]]))
    for one, other in zip(found, tree.forward_dynamics_gradient(q, qd, tau), strict=False):
        assert relative(one[0], other[0]) < 1e2 * tolerance
    assert not any(np.any(each[0]) for each in found[3:]) and np.isnan(found[0][1]).any()


@pytest.mark.some(of=4, rest="matrix")
def test_nan_stays_in_its_row(make_dynamics):
    model = of_every_kind()
    dyn = make_dynamics(model, constraints=every(model, 2)[4:7])
    q, qd, tau = random_states(model, (4,), seed=5)
    wanted = dyn.constrained_forward_dynamics_gradient(q, qd, tau)
    qd[1, 2], tau[3, 0] = np.nan, np.inf
    for got, right in zip(dyn.constrained_forward_dynamics_gradient(q, qd, tau), wanted, strict=True):
        assert (np.asarray(got)[[0, 2]] == np.asarray(right)[[0, 2]]).all()


def standing(name, kind):
    """A floating robot on its feet, and a state that satisfies the constraints."""
    model = rd.load_urdf(robots.own(name), base="floating")
    q = model.integrate(model.neutral(), np.random.default_rng(0).uniform(-0.5, 0.5, model.nv))
    feet = {foot: rd.Dynamics(model).link_pose(q, foot) for foot in model.link_names if foot.endswith("_foot")}
    held = [kind(foot, to_at=T[:3, 3] if kind is rd.Point else T) for foot, T in feet.items()]
    return model, held, q


def tied():
    model, _, q = standing("quadruped", rd.Point)
    feet = [foot for foot in model.link_names if foot.endswith("_foot")]
    T = [rd.Dynamics(model).link_pose(q, foot) for foot in feet]
    pairs = [(0, 1), (2, 3)]
    return model, [rd.Point(feet[b], feet[a], to_at=T[a][:3, :3].T @ (T[b] - T[a])[:3, 3]) for a, b in pairs], q


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(lambda: standing("quadruped", rd.Point), id="points"),
        pytest.param(lambda: standing("humanoid", rd.Weld), id="welds", marks=pytest.mark.matrix),
        pytest.param(tied, id="loops"),
    ],
)
def test_gradients_are_those_of_pinocchio(made):
    """On the constraints, where its rows are the same. Its forces are in other axes, which turn."""
    pytest.importorskip("pinocchio")
    from oracles.pinocchio_constraints import Constrained

    model, held, q = made()
    dyn = rd.Dynamics(model, engine="cpu", constraints=held)
    qd, tau = np.random.default_rng(1).uniform(-1.0, 1.0, (2, model.nv))
    q, qd = dyn.project(q, qd)
    theirs = Constrained(dyn.model)
    at = theirs.at
    found = dyn.constrained_forward_dynamics_gradient(q, qd, tau)[:3]
    wanted = [
        np.asarray(each)[np.ix_(at.velocities, at.velocities)]
        for each in theirs.gradient(at.coordinates(q), at.rates(qd), at.rates(tau))
    ]
    # Along the constraints. Off them rows between two links are others.
    J = dyn.constraint_jacobian(q)
    N, h = np.linalg.svd(J)[2][len(J) :].T, 1e-5
    ahead, behind = (dyn.constraint_residual(model.integrate(q, s * h * N.T), qd)[1] for s in (1.0, -1.0))
    turned = np.linalg.pinv(J) @ (behind - ahead).T / (2 * h)
    along, theirs_along = (each[0] @ N + each[1] @ turned for each in (found, wanted))
    assert relative(along, theirs_along) < 1e-8
    assert relative(found[1] @ N, wanted[1] @ N) < 1e-10 and relative(found[2], wanted[2]) < 1e-10
    if all(each.to is None for each in held):
        assert relative(found[0], wanted[0]) < 1e-10 and relative(found[1], wanted[1]) < 1e-10


def test_gradients_of_the_four_bar():
    """Along the curve of assembled states: the acceleration of the crank as one degree of freedom has it, by
    differences of (G'HG) a + 1/2 d(G'HG)/dangle w^2 + dV/dangle = G'tau."""
    model = rd.load_urdf(robots.own("loops/four_bar"))
    dyn, angle, speed, tau, h = rd.Dynamics(model), 0.7, 2.0, np.array([0.3, -0.1, 0.2]), 1e-3

    def curve(t):
        """The tangent and its rate by the angle, by differences of fourth order."""
        p = [loops.four_bar(t + k * h) for k in range(-2, 3)]
        return p[2], (8 * (p[3] - p[1]) - (p[4] - p[0])) / (12 * h)

    def energies(t):
        p, G = curve(t)
        return G @ dyn.mass_matrix(p) @ G, dyn.potential_energy(p)

    def acceleration(t, w):
        (ahead, up), (behind, down) = energies(t + h), energies(t - h)
        inertia, _ = energies(t)
        slope, pull = (ahead - behind) / (2 * h), (up - down) / (2 * h)
        return (curve(t)[1] @ tau - 0.5 * slope * w * w - pull) / inertia

    q, G = curve(angle)
    bend = (curve(angle + h)[1] - curve(angle - h)[1]) / (2 * h)
    qdd_q, qdd_qd, qdd_tau, *_ = dyn.constrained_forward_dynamics_gradient(q, G * speed, tau)
    by_angle = qdd_q[0] @ G + qdd_qd[0] @ bend * speed
    wanted = (acceleration(angle + h, speed) - acceleration(angle - h, speed)) / (2 * h)
    assert abs(by_angle - wanted) < 1e-4 * abs(wanted)
    by_speed = (acceleration(angle, speed + h) - acceleration(angle, speed - h)) / (2 * h)
    assert abs(qdd_qd[0] @ G - by_speed) < 1e-5 * abs(by_speed)
    assert relative(qdd_tau, np.outer(G, G) / energies(angle)[0]) < 1e-8


def test_dependent_rows():
    """A foot on three points that turns with its body: accelerations, and forces on joints, have derivatives that are
    right, though forces of the points are not unique."""
    model = rd.load_urdf(robots.own("humanoid"), base="floating")
    corners = [(0.1, 0.05, 0.0), (0.1, -0.05, 0.0), (-0.05, 0.0, 0.0)]
    held = [rd.Point("left_foot", "right_foot", at=at, to_at=at) for at in corners]
    dyn = rd.Dynamics(model, engine="reference", constraints=[*held, rd.Point("left_foot", "right_foot")])
    rng = np.random.default_rng(0)
    target = dyn.model.assemble(model.integrate(model.neutral(), rng.uniform(-0.3, 0.3, model.nv)))
    q, qd = dyn.project(target, rng.uniform(-1.0, 1.0, model.nv))
    tau = rng.uniform(-1.0, 1.0, model.nv)
    qdd_q, qdd_qd, _, lam_q, lam_qd, _ = dyn.constrained_forward_dynamics_gradient(q, qd, tau)
    J = dyn.constraint_jacobian(q)
    assert np.linalg.matrix_rank(J) == 6 < len(J)
    along = np.linalg.svd(J)[2][6:][:3]  # directions that the constraints allow

    def at(s, step):
        p, v = model.integrate(q, s * step), qd
        for _ in range(3):
            p, v = dyn.project(p, v)
        return p, v, *dyn.constrained_forward_dynamics(p, v, tau)

    for step in along:
        h = 1e-4
        (ahead, v_ahead, *a), (behind, v_behind, *b) = at(h, step), at(-h, step)
        dq, dv = (model.difference(q, ahead) - model.difference(q, behind)) / (2 * h), (v_ahead - v_behind) / (2 * h)
        qdd, lam = ((one - other) / (2 * h) for one, other in zip(a, b, strict=True))
        assert relative(qdd_q @ dq + qdd_qd @ dv, qdd) < 1e-6
        assert relative((lam_q @ dq + lam_qd @ dv) @ J, lam @ J) < 1e-6


def test_a_floating_base_whose_joint_is_turned(make_dynamics, tolerance):
    """Its position is in axes of the joint's frame on the world, whether or not the base is said to rest."""
    model = rd.random_tree(5, seed=0, joints=("floating", "revolute"), shape="chain")
    assert np.abs(model.Xtree[0, :9] - np.eye(3).ravel()).max() > 0.1
    dyn = make_dynamics(model, constraints=[rd.Rod(model.link_names[-1], to_at=(0.3, 0.2, 0.9), length=0.7)])
    q, qd, _ = random_states(model, (2,), seed=1)
    for one, other in zip(dyn.constraint_residual(q, qd), dyn.constraint_residual(q, qd, V0=np.zeros(6)), strict=True):
        assert relative(one, other) < 10 * tolerance


# Steps.


def step_differences(dyn, q, qd, tau, dt, **options):
    """A and B of a step by differences of its states."""
    model = dyn.model
    base = dyn.step(q, qd, tau, dt, **options)[0]

    def after(*state):
        q_next, qd_next = dyn.step(*state, dt, **options)
        return np.concatenate([model.difference(base, q_next), qd_next], -1)[None]

    by_q, by_qd, by_tau = differences(model, after, q, (qd, tau))
    return np.hstack([by_q, by_qd]), by_tau


@pytest.mark.parametrize("dt", [2e-3, 2e-2])
@pytest.mark.parametrize(
    ("made", "integrator"),
    [*((made, "semi_implicit_euler") for made in ("points", "loops", "four-bar", "many")), ("four-bar", "rk4")],
)
@pytest.mark.some(of=3, rest="matrix")
def test_gradients_of_steps_are_differences(made, integrator, dt):
    """Steps end with a projection. From states that are not on the constraints, too."""
    rng = np.random.default_rng(3)
    if made == "four-bar":
        dyn = rd.Dynamics(rd.load_urdf(robots.own("loops/four_bar")), engine="reference")
        q = loops.four_bar(0.7)
    elif made == "many":
        model = robot(1)
        q = model.random_configuration(rng)
        held = independent(model, every(model, 1), q)
        assert len(held) > 4
        dyn = rd.Dynamics(model, engine="reference", constraints=held, joint_forces="damping")
    else:
        model, held, q = standing("quadruped", rd.Point) if made == "points" else tied()
        dyn = rd.Dynamics(model, engine="reference", constraints=held)
    qd, tau = rng.uniform(-1.0, 1.0, (2, dyn.model.nv))
    wanted = step_differences(dyn, q, qd, tau, dt, integrator=integrator)
    for one, other in zip(dyn.step_gradient(q, qd, tau, dt, integrator=integrator), wanted, strict=True):
        assert relative(one, other) < 1e-6


@pytest.mark.parametrize("made", ["small", pytest.param("quadruped", marks=pytest.mark.matrix)])
@pytest.mark.some(of=6, rest="matrix")
def test_engines_agree_on_gradients_of_steps(made, make_dynamics, tolerance):
    """In one program, with damping and targets of drives; some constraints off."""
    rng = np.random.default_rng(2)
    if made == "quadruped":
        model, held, q = standing("quadruped", rd.Point)
    else:
        model = rd.random_tree(4, seed=5, joints=("revolute",), base="floating")
        q = model.random_configuration(rng)
        links = model.link_names[-2:]
        held = [rd.Point(each, to_at=rd.Dynamics(model).link_pose(q, each)[:3, 3]) for each in links]
    q = model.integrate(np.stack([q] * 3), rng.uniform(-0.02, 0.02, (3, model.nv)))
    qd, tau = rng.uniform(-1.0, 1.0, (2, 3, model.nv))
    options = {
        "kp": np.full(model.nv, 20.0),
        "kd": np.full(model.nv, 0.5),
        "q_des": q,
        "active": np.array([[1, 1, 1, 1], [1, 0, 0, 1], [0, 0, 0, 0]])[:, : len(held)],
    }
    found, wanted = (
        each.step_gradient(q, qd, tau, 5e-3, **options)
        for each in (make_dynamics(model, constraints=held), rd.Dynamics(model, engine="reference", constraints=held))
    )
    for one, other in zip(found, wanted, strict=True):
        assert relative(one, other) < 2e3 * tolerance
    free = rd.Dynamics(model, engine="reference")
    for one, other in zip(
        found, free.step_gradient(q, qd, tau, 5e-3, **{k: v for k, v in options.items() if k != "active"}), strict=True
    ):
        assert relative(one[2], other[2]) < 2e3 * tolerance
