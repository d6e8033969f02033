"""Forward dynamics as a scan of Riccati elements (`method="aba_scan"`): the semigroup, and answers by their residual.

Accelerations of long chains depend on the last digit of tau, so what counts is |ID(qdd) - tau| / max |tau|, inverse
dynamics being another engine's.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from conftest import random_states, relative
from hypothesis import given, settings
from hypothesis import strategies as st
from robots import OWN, own

import robodyn as rd
from robodyn.description import Inertial, Joint, Link, Pose, RobotDescription
from robodyn.engines.scan import ScanOptions
from robodyn.engines.scan.systems.riccati import (
    AFFINE,
    CORRECTIONS,
    ONE_STRETCH,
    RICCATI,
    damped,
    full,
    rounding_of,
    symmetric,
)
from robodyn.engines.scan.systems.stretches import Member, lengthened
from robodyn.spatial import Force, Inertia, Motion, Transform, articulated
from robodyn.sweeps import flatten

KINDS = ("revolute", "prismatic", "helical", "planar", "spherical", "floating")
RESIDUAL = 1e-12
"""Measured: 1e-15 on trees and robots, 1e-14 where links are nearly massless."""
RESIDUAL_SINGLE = 1e-3
"""Measured: 2e-6 on robots, 2e-5 on a chain of 500."""
ROUNDED = 1e-8
"""Of a composition. Measured on 7,500 elements: 8e-11, where C is nearly singular before it vanishes."""
SEEDS = st.integers(0, 2**32 - 1)


# The semigroup.


def psd(rng, rank):
    """A positive semi-definite 6 x 6 matrix whose angular and linear blocks have unlike units."""
    G = rng.standard_normal((6, rank)) * np.repeat(10.0 ** rng.uniform(-2, 2, 2), 3)[:, None]
    return G @ G.T


def upper(S):
    return tuple(S[i, j] for i in range(6) for j in range(i, 6))


def random_member(rng, n):
    """Joints of one, two or three degrees of freedom on bodies with inertia, n of them as arrays (n, 1)."""

    def numbers(*shape):
        return rng.standard_normal((*shape, n, 1))

    Q = np.linalg.qr(rng.standard_normal((n, 3, 3)))[0]
    Q *= np.sign(np.linalg.det(Q))[:, None, None]
    X = Transform(tuple(Q.reshape(n, 9).T[..., None]), tuple(0.5 * numbers(3)))
    points, m = rng.uniform(-0.3, 0.3, (8, 3, n, 1)), rng.uniform(0.1, 2.0, (n, 1))
    h = m * points.mean(0)
    xx, yy, zz = (m * (points[:, i] ** 2).mean(0) for i in range(3))
    xy, xz, yz = (-m * (points[:, i] * points[:, j]).mean(0) for i, j in ((0, 1), (0, 2), (1, 2)))
    IA = symmetric(articulated(Inertia(m, tuple(h), (yy + zz, xy, xz, xx + zz, yz, xx + yy))))
    k = int(rng.integers(1, 4))
    ang, lin = numbers(2, 3), numbers(2, 3)
    S = tuple(Motion(tuple(s[:3]), tuple(s[3:])) for s in numbers(k, 6))
    return Member(
        X,
        Motion(tuple(ang[0]), tuple(lin[0])),
        tuple(np.broadcast_to(entry, (n, 1)) for entry in IA),
        Force(tuple(ang[1]), tuple(lin[1])),
        S,
        tuple(numbers(k)),
        tuple(rng.uniform(0.0, 0.1, (k, n, 1))),
    )


def random_elements(rng, n=5, length=3):
    """Elements (90, n, 1) of stretches of some stages each."""
    found = ONE_STRETCH
    for _ in range(int(rng.integers(1, length + 1))):
        found, _ = lengthened(random_member(rng, n), found)
    return np.stack([np.broadcast_to(x, (n, 1)) for x in flatten(found)])


def blocks(elements):
    return [elements[rows] for rows in map(slice, (0, 36, 42, 63, 69), (36, 42, 63, 69, 90))]


@settings(max_examples=25, deadline=None)
@given(SEEDS)
def test_stretches_compose_associatively(seed):
    print("seed", seed)
    rng = np.random.default_rng(seed)
    a, b, c = (random_elements(rng) for _ in range(3))
    left = RICCATI.compose(RICCATI.compose(a, b), c)
    right = RICCATI.compose(a, RICCATI.compose(b, c))
    for one, two, first in zip(blocks(left), blocks(right), blocks(b), strict=True):
        for k in range(one.shape[1]):
            assert np.abs(one[:, k] - two[:, k]).max() < ROUNDED * max(
                1.0, np.abs(two[:, k]).max(), np.abs(first).max()
            )


@settings(max_examples=10, deadline=None)
@given(SEEDS)
def test_nothing_composed_changes_nothing(seed):
    print("seed", seed)
    a = random_elements(np.random.default_rng(seed))
    one = RICCATI.identities(a, a.shape[1])
    for both in (RICCATI.compose(one, a), RICCATI.compose(a, one)):
        for got, wanted in zip(blocks(both), blocks(a), strict=True):
            assert relative(got, wanted) < ROUNDED


@settings(max_examples=25, deadline=None)
@given(SEEDS, st.integers(0, 6), st.integers(0, 6))
def test_damped_matrices_are_symmetric_and_right(seed, rank, other):
    """Against a general solver, whatever the ranks; and semi-definite: no eigenvalue is below zero by more than
    rounding."""
    print("seed", seed)
    rng = np.random.default_rng(seed)
    rounding = rounding_of(np.dtype(np.float64))
    S, B = psd(rng, rank), psd(rng, other)
    got = np.array(full(damped(upper(S), upper(B), rounding)))
    assert (got == got.T).all()
    scaled = np.repeat(1.0 / np.sqrt(np.maximum(np.diag(S).reshape(2, 3).sum(1), 1e-30)), 3)
    wanted = np.linalg.solve((np.eye(6) + B @ S).T, S).T
    error = np.abs(scaled[:, None] * (got - wanted) * scaled)
    T = scaled[:, None] * S * scaled
    assert error.max() < 1e-13 * growth_without_pivoting(T, rank) * max(1.0, np.linalg.cond(np.eye(6) + B @ S))
    assert np.linalg.eigvalsh(scaled[:, None] * got * scaled).min() > -1e-13


def growth_without_pivoting(T, rank):
    """By how much errors grow in the Cholesky factorisation of a semi-definite matrix whose leading block of n
    columns is not well conditioned (Higham, Accuracy and Stability of Numerical Algorithms, theorem 10.14)."""
    if not 0 < rank < len(T):
        return 1.0
    return 1.0 + np.linalg.norm(np.linalg.solve(T[:rank, :rank], T[:rank, rank:]), 2) ** 2


@settings(max_examples=10, deadline=None)
@given(SEEDS)
def test_affine_maps_and_corrections_compose_associatively(seed):
    print("seed", seed)
    rng = np.random.default_rng(seed)
    for op in (AFFINE, CORRECTIONS):
        a, b, c = rng.standard_normal((3, op.size, 4, 1))
        left, right = op.compose(op.compose(a, b), c), op.compose(a, op.compose(b, c))
        assert relative(left, right) < 1e-12
        assert relative(op.compose(a, op.identities(a, 4)), a) < 1e-15


# Answers.


def residual(model, judge, scan, leading=(3,), seed=0, **extra):
    """Largest residual over rows, each relative to its largest torque."""
    q, qd, qdd = random_states(model, leading, seed)
    given = {name: rng_like(model, name, leading, seed) for name in extra if extra[name] is True}
    tau = judge.inverse_dynamics(q, qd, qdd, **given)
    got = scan.forward_dynamics(q, qd, tau, method="aba_scan", **given)
    assert got.shape == tau.shape
    back = judge.inverse_dynamics(q, qd, got.astype(np.float64), **given)
    rows = np.abs(back - tau).reshape(-1, model.nv).max(1) / np.abs(tau).reshape(-1, model.nv).max(1)
    return float(np.nan_to_num(rows, nan=np.inf).max())


def rng_like(model, name, leading, seed):
    rng = np.random.default_rng(seed + 1)
    if name == "inertia":
        scale = rng.uniform(0.5, 2.0, (*leading, model.n_bodies, 1))
        return model.inertia * scale
    shape = (model.n_bodies, 6) if name == "f_ext" else (6,)
    return rng.standard_normal((*leading, *shape))


def pair(model, judge="reference", dtype="float64", **options):
    """Stretches are as short as they come, unless options say otherwise."""
    scan = rd.Dynamics(model, engine="scan", dtype=dtype, scan=ScanOptions(**{"block": 16, **options}))
    return rd.Dynamics(model, engine=judge), scan


@cache
def tree(n, seed, shape="random", joints=KINDS, **extra):
    return rd.random_tree(n, seed=seed, joints=joints, shape=shape, **extra)


@pytest.mark.parametrize("shape", ["random", "chain", "star", "binary", "caterpillar"])
@pytest.mark.parametrize("n", [1, 2, 7, 30, 60])
@pytest.mark.some(of=3, rest="matrix")
def test_random_trees_of_all_kinds(n, shape):
    model = tree(n, n, shape, armature=n % 2 == 0, base="floating" if n == 7 else "fixed")
    judge, scan = pair(model)
    assert residual(model, judge, scan) < RESIDUAL
    q, qd, qdd = random_states(model, (2,))
    tau = judge.inverse_dynamics(q, qd, qdd)
    if shape in ("star", "caterpillar"):  # short enough for accelerations to have ten digits
        wanted = judge.forward_dynamics(q, qd, tau)
        assert relative(scan.forward_dynamics(q, qd, tau, method="aba_scan"), wanted) < 1e-10


@pytest.mark.parametrize("base", ["fixed", "floating"])
def test_robots(base):
    for path in OWN:
        model = rd.load_urdf(path, base=base, strict=False, mimic="ignore")
        judge, scan = pair(model)
        if judge.singularity() is None:
            assert residual(model, judge, scan) < RESIDUAL, path.stem


@pytest.mark.parametrize("leading", [(), (1,), (3, 1, 2), (0,)])
@pytest.mark.parametrize("extra", ["V0", "dV0", "f_ext", "inertia", "all"])
@pytest.mark.some(of=3, rest="matrix")
def test_bases_forces_inertias_and_batches(extra, leading):
    model = tree(12, 5, armature=True)
    given = dict.fromkeys(("V0", "dV0", "f_ext", "inertia") if extra == "all" else (extra,), True)
    judge, scan = pair(model)
    if 0 in leading:
        states = random_states(model, leading)
        assert scan.forward_dynamics(*states, method="aba_scan").shape == states[1].shape
    else:
        assert residual(model, judge, scan, leading, **given) < RESIDUAL


def test_forests():
    """Several bodies on the fixed world."""
    model = tree(40, 3)
    assert (model.parent < 0).sum() > 1
    judge, scan = pair(model)
    assert residual(model, judge, scan) < RESIDUAL


@pytest.mark.parametrize("options", [{"kernel": name} for name in ("blelloch", "hillis_steele")] + [{"block": 3}])
def test_kernels(options):
    for shape in ("chain", "random"):
        model = tree(40, 11, shape)
        judge, scan = pair(model, **options)
        assert residual(model, judge, scan) < RESIDUAL


def test_steps_of_the_library_are_those_of_machine_code():
    model = tree(30, 4)
    judge, compiled = pair(model)
    q, qd, qdd = random_states(model, (2,))
    tau = judge.inverse_dynamics(q, qd, qdd)
    library = pair(model, operators="library")[1].forward_dynamics(q, qd, tau, method="aba_scan")
    assert residual(model, judge, pair(model, operators="library")[1]) < RESIDUAL
    assert relative(library, compiled.forward_dynamics(q, qd, tau, method="aba_scan")) < 1e-9


@pytest.mark.parametrize("n, limit", [(500, 1e-12), (5000, 5e-12)])
def test_long_chains(n, limit):
    model = rd.auto_tree(n, skew=0.3)
    judge, scan = pair(model, "cpu")
    assert residual(model, judge, scan, ()) < limit


@pytest.mark.parametrize("branching", [1.5, 2.0])
def test_large_trees(branching):
    model = rd.auto_tree(3000, branching=branching, skew=0.3)
    judge, scan = pair(model, "cpu")
    assert residual(model, judge, scan, ()) < RESIDUAL


def test_links_that_amplify():
    """Long links with their mass at one end: moved at the joint, a free stretch of them whips, and digits are lost that
    only the correction gives back."""
    model = tree(200, 1, "chain", joints=("revolute",))
    judge, scan = pair(model)
    assert residual(model, judge, scan) < RESIDUAL


@pytest.mark.parametrize("name", ["arm6", "humanoid", "massless_chain"])
def test_single_precision_on_robots(name):
    model = rd.load_urdf(own(name), base="floating")
    judge, scan = pair(model, dtype="float32")
    assert residual(model, judge, scan) < RESIDUAL_SINGLE


@pytest.mark.matrix
def test_single_precision_on_trees():
    for model in (rd.auto_tree(200, skew=0.3), tree(60, 2), tree(61, 3, "chain")):
        judge, scan = pair(model, dtype="float32")
        assert residual(model, judge, scan) < RESIDUAL_SINGLE


# Bodies with little inertia or none.


def lightened(scale, run, n=40):
    """A chain in which `run` bodies of every run + 2 have so little of their inertia; the last one keeps its own."""
    model = tree(n, 3, "chain", joints=("revolute",))
    inertia = np.array(model.inertia)
    inertia[(np.arange(n) % (run + 2) < run) & (np.arange(n) < n - 1)] *= scale
    return replace(model, inertia=inertia)


@pytest.mark.parametrize("run", [1, 2, 3])
@pytest.mark.parametrize("scale", [1e-2, 1e-5, 1e-9, 1e-14, 0.0])
@pytest.mark.some(of=3, rest="matrix")
def test_light_and_massless_runs(scale, run):
    model = lightened(scale, run)
    judge, scan = pair(model)
    assert residual(model, judge, scan) < RESIDUAL


def test_many_light_bodies_in_a_row():
    """More joints in a row than a body has ways to move: only six of them can be taken together with it."""
    model = lightened(1e-6, 8)
    judge, scan = pair(model)
    assert residual(model, judge, scan) < RESIDUAL


def test_loads_on_massless_bodies():
    """What pulls on them counts, and what hangs on them."""
    model = lightened(0.0, 2)
    judge, scan = pair(model)
    assert residual(model, judge, scan, f_ext=True, V0=True, dV0=True) < RESIDUAL
    model = tree(60, 9, joints=("revolute", "spherical"))
    inertia = np.array(model.inertia)
    inertia[np.isin(np.arange(model.n_bodies), model.parent) & (np.arange(model.n_bodies) % 3 == 0)] = 0.0
    model = replace(model, inertia=inertia)
    judge, scan = pair(model)
    assert judge.singularity() is None
    assert residual(model, judge, scan, f_ext=True) < RESIDUAL


def test_armature_alone_moves_a_massless_body():
    """A rotor's inertia felt by the joint only; the body after it has none, and more than that lies behind it."""
    model = lightened(0.0, 2)
    for armature in (1e-12, 1e-3, 10.0):
        model = replace(model, tree_armature=np.where(np.arange(model.nv) % 4 == 1, armature, 0.0))
        judge, scan = pair(model)
        assert residual(model, judge, scan) < RESIDUAL, armature


BODY = Inertial(1.3, Pose((0.1, 0.05, 0.2)), (0.02, 0.001, 0.0, 0.03, 0.002, 0.04))
ORIGIN = Pose((0.1, -0.2, 0.3))


def wrists(spelled_out):
    """Bodies on ball joints, or on three revolute joints each with massless links between them."""
    links, joints = [Link("link0")], []
    for k in range(3):
        parent = f"link{k}"
        for axis in ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0)) if spelled_out else ():
            name = f"{parent}_{axis}"
            joints.append(Joint(f"{name}_joint", "revolute", parent, name, Pose() if axis[1] else ORIGIN, axis))
            links.append(Link(name))
            parent = name
        origin = Pose() if spelled_out else ORIGIN
        kind = "revolute" if spelled_out else "spherical"
        joints.append(Joint(f"joint{k}", kind, parent, f"link{k + 1}", origin, (0.0, 0.0, 1.0)))
        links.append(Link(f"link{k + 1}", BODY))
    return rd.build_model(RobotDescription("wrists", tuple(links), tuple(joints)))


def test_a_ball_joint_spelled_out_moves_its_body_like_a_ball_joint():
    """Without torques both move alike: the accelerations of the last link agree."""
    rng = np.random.default_rng(7)
    angles, rates = rng.uniform(-0.8, 0.8, (2, 3, 3))
    q, spins = [], []
    for (x, y, z), (dx, dy, dz) in zip(angles, rates, strict=True):
        turns = [np.array([*(np.sin(a / 2) * np.eye(3)[i]), np.cos(a / 2)]) for i, a in enumerate((x, y, z))]
        q.append(product(product(turns[0], turns[1]), turns[2]))
        to_z, to_y = about(2, z), about(1, y)
        spins.append(to_z @ (to_y @ (dx * np.eye(3)[0]) + dy * np.eye(3)[1]) + dz * np.eye(3)[2])
    moved = []
    for model, state in ((wrists(True), (angles, rates)), (wrists(False), (np.array(q), np.array(spins)))):
        judge, scan = pair(model)
        assert residual(model, judge, scan) < RESIDUAL
        q, qd = (np.ravel(each) for each in state)
        qdd = scan.forward_dynamics(q, qd, np.zeros(model.nv), method="aba_scan")
        moved.append(judge.link_acceleration(q, qd, qdd, "link3"))
    assert relative(moved[0], moved[1]) < 1e-12


def product(a, b):
    (ax, ay, az, aw), (bx, by, bz, bw) = a, b
    vector = aw * np.array([bx, by, bz]) + bw * np.array([ax, ay, az]) + np.cross([ax, ay, az], [bx, by, bz])
    return np.array([*vector, aw * bw - ax * bx - ay * by - az * bz])


def about(axis, angle):
    """Coordinates of the old frame to one turned about one of its axes."""
    i, j = (axis + 1) % 3, (axis + 2) % 3
    E = np.eye(3)
    E[i, i] = E[j, j] = np.cos(angle)
    E[i, j], E[j, i] = np.sin(angle), -np.sin(angle)
    return E


# Values that are not finite.


@pytest.mark.parametrize("model", [tree(20, 6), lightened(0.0, 2, 20), lightened(1e-9, 1, 20)])
def test_rows_that_are_not_finite_stay_alone(model):
    judge, scan = pair(model)
    q, qd, qdd = random_states(model, (6,))
    tau = judge.inverse_dynamics(q, qd, qdd)
    wanted = scan.forward_dynamics(q, qd, tau, method="aba_scan")
    q[1, 0], qd[3, -1], tau[4, 2] = np.nan, np.inf, np.nan
    got = scan.forward_dynamics(q, qd, tau, method="aba_scan")
    fine = [0, 2, 5]
    assert relative(got[fine], wanted[fine]) < 1e-12
    assert np.isnan(got[[1, 3, 4]]).any(axis=1).all()


def test_inertias_that_are_not_finite_stay_alone():
    model = lightened(1e-9, 1, 20)
    judge, scan = pair(model)
    q, qd, qdd = random_states(model, (3,))
    tau = judge.inverse_dynamics(q, qd, qdd)
    inertia = np.stack([model.inertia] * 3)
    wanted = scan.forward_dynamics(q, qd, tau, method="aba_scan", inertia=inertia)
    inertia[1, 4, 0] = np.nan
    got = scan.forward_dynamics(q, qd, tau, method="aba_scan", inertia=inertia)
    assert relative(got[[0, 2]], wanted[[0, 2]]) < 1e-12
    assert np.isnan(got[1]).any()


def test_singular_robots_raise():
    model = rd.load_urdf(own("massless_tip"))
    scan = pair(model)[1]
    with pytest.raises(rd.SingularError, match="pointer"):
        scan.forward_dynamics(*np.zeros((2, model.nv)), np.zeros(model.nv), method="aba_scan")
