"""Constraints: identities on random trees, Pinocchio, trees cut open and closed again, couplings and locks."""

from __future__ import annotations

import sys
from itertools import cycle

import numpy as np
import pytest
import robots
from conftest import random_states, relative
from robots import of_every_kind, tree

import robodyn as rd
from robodyn.core.constraints.resolved import row_names
from robodyn.core.joints import KINDS
from robodyn.engines.query_table import CONSTRAINED
from robodyn.testing.pinocchio_models import PinocchioAnswers, pinocchio_model

pytestmark = pytest.mark.filterwarnings("ignore::robodyn.internals.errors.RedundantWarning")


def pose(rng):
    """A random pose (4, 4)."""
    turn = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    T = np.eye(4)
    T[:3, :3], T[:3, 3] = turn * np.sign(np.linalg.det(turn)), rng.standard_normal(3)
    return T


def some(model, seed):
    """Constraints of every kind that a tree has room for."""
    rng = np.random.default_rng(seed)
    moving = [k for k, body in enumerate(model.link_body.tolist()) if body >= 0]
    pairs = [(a, b) for a in moving for b in moving if model.link_body[a] != model.link_body[b]]
    a, b = pairs[int(rng.integers(len(pairs)))]
    c, d = pairs[int(rng.integers(len(pairs)))]
    name = model.link_names.__getitem__
    found = [
        rd.Point(name(a), at=rng.standard_normal(3), to_at=pose(rng), baumgarte=(3.0, 0.7)),
        rd.Weld(name(c), name(d), at=pose(rng), to_at=pose(rng), rows=("x", "rz", "ry"), name="hinge"),
        rd.Rod(name(b), name(a), at=rng.standard_normal(3), length=0.7, baumgarte=(2.0, 1.0)),
    ]
    simple = [j for j, k in zip(model.joint_names, model.joint_kind.tolist(), strict=True) if KINDS[k].nv == 1]
    if len(simple) > 1:
        found.append(rd.Coupling({simple[0]: 1.0, simple[1]: -2.0}, offset=0.1))
    return found


@pytest.fixture
def model():
    return of_every_kind()


# On every engine.


@pytest.mark.some(of=2, rest="matrix")
def test_forces_and_accelerations(model, make_dynamics, tolerance, engine_dtype):
    """H qdd + bias = tau + J' lambda, and accelerations of the rows are what is wanted: with a moving base, forces from
    outside and other inertias, too."""
    dyn = make_dynamics(model, constraints=some(model, 1))
    q, qd, tau = random_states(model, (3,), seed=1)
    rng = np.random.default_rng(1)
    more = {
        "f_ext": rng.standard_normal((3, model.n_bodies, 6)),
        "inertia": model.inertia * rng.uniform(0.9, 1.1, (3, model.n_bodies, 1)),
        "V0": rng.standard_normal(6),
        "dV0": rng.standard_normal(6),
    }
    for options in ({}, more):
        qdd, lam = (np.asarray(each, float) for each in dyn.constrained_forward_dynamics(q, qd, tau, **options))
        judge = rd.Dynamics(dyn.model, engine="reference")
        J = judge.constraint_jacobian(q)
        need = judge.inverse_dynamics(q, qd, qdd, **options) - tau
        size = np.abs(J * lam[..., None]).max() + np.abs(tau).max()
        assert np.abs(need - np.einsum("...mi,...m->...i", J, lam)).max() < 300 * tolerance * size
        A, v_free = judge.delassus(q, qd, tau, **options)
        assert (
            relative(
                A, J @ np.linalg.solve(judge.mass_matrix(q, inertia=options.get("inertia")), np.swapaxes(J, -1, -2))
            )
            < 1e-8
        )
        left = np.einsum("...ij,...j->...i", A, lam) + v_free
        assert np.abs(left).max() < 1e4 * tolerance * np.abs(v_free).max()


def test_residuals_and_rates(model, make_dynamics, tolerance):
    dyn = make_dynamics(model, constraints=some(model, 2))
    q, qd, _ = random_states(model, (3,), seed=2)
    phi, phidot = dyn.constraint_residual(q, qd)
    assert phi.shape == phidot.shape == (3, len(dyn.constraint_names))
    J = dyn.constraint_jacobian(q)
    assert relative(np.einsum("...mi,...i->...m", J, qd), phidot) < 10 * tolerance
    after, impulse = dyn.impact(q, qd, restitution=np.array([0.0, 0.5, 1.0]))
    bounced = np.einsum("...mi,...i->...m", J, after) + np.array([0.0, 0.5, 1.0])[:, None] * phidot
    assert np.abs(bounced).max() < 1e3 * tolerance * np.abs(phidot).max()
    assert impulse.shape == phi.shape


@pytest.mark.some(of=2, rest="matrix")
def test_constraints_that_are_off(model, make_dynamics, tolerance):
    """Their forces are zero, and the others are what they would be alone."""
    every = some(model, 3)
    dyn = make_dynamics(model, constraints=every)
    q, qd, tau = random_states(model, (2,), seed=3)
    active = np.ones((2, len(every)))
    active[0, 1] = active[1, 0] = 0.0
    qdd, lam = dyn.constrained_forward_dynamics(q, qd, tau, active=active)
    for row, off in ((0, 1), (1, 0)):
        alone = make_dynamics(model, constraints=[each for k, each in enumerate(every) if k != off])
        wanted, forces = alone.constrained_forward_dynamics(q[row], qd[row], tau[row])
        assert relative(qdd[row], wanted) < 1e3 * tolerance
        rows = [k for k, name in enumerate(dyn.constraint_names) if not name.startswith(f"{every[off].name}.")]
        assert relative(np.asarray(lam)[row, rows], forces) < 1e3 * tolerance
    nothing = dyn.constrained_forward_dynamics(q, qd, tau, active=np.zeros(len(every)))
    assert relative(nothing[0], dyn.forward_dynamics(q, qd, tau)) < 10 * tolerance
    assert not np.any(nothing[1])


def test_targets_move_feet(make_dynamics, tolerance):
    model = rd.load_urdf(robots.own("quadruped"), base="floating")
    feet = [name for name in model.link_names if "foot" in name]
    dyn = make_dynamics(model, constraints=[rd.Weld(name, at=(0.0, 0.0, -0.02)) for name in feet])
    q, qd, _ = random_states(model, (2,), seed=4)
    here = dyn.constraint_targets(q)
    phi, _ = dyn.constraint_residual(q, qd, here)
    assert np.abs(phi).max() < 100 * tolerance
    here[..., 0, 9:] += np.array([0.1, 0.0, -0.2])
    there, _ = dyn.constraint_residual(q, qd, targets=here)
    R = np.swapaxes(here[:, 0, :9].reshape(2, 3, 3), -1, -2)
    moved = -np.einsum("...ji,j->...i", R, np.array([0.1, 0.0, -0.2]))
    assert np.abs(there[:, 3:6] - moved).max() < 100 * tolerance


def test_nan_stays_in_its_row(model, make_dynamics):
    dyn = make_dynamics(model, constraints=some(model, 5))
    q, qd, tau = random_states(model, (4,), seed=5)
    wanted = dyn.constrained_forward_dynamics(q, qd, tau)
    qd[1, 2], tau[3, 0] = np.nan, np.inf
    for got, right in zip(dyn.constrained_forward_dynamics(q, qd, tau), wanted, strict=True):
        assert np.isnan(got[1]).any() and not np.isfinite(got[3]).all()
        assert (np.asarray(got)[[0, 2]] == np.asarray(right)[[0, 2]]).all()


# Identities.


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.some(of=2, rest="matrix")
def test_accelerations_keep_the_constraints(seed):
    """Along the motion that they give rates of rows stay as they are, off the constraints too."""
    model = tree(seed, 8)
    dyn = rd.Dynamics(model, engine="reference", constraints=some(model, seed)[1:2])
    q, qd, tau = random_states(model, seed=seed)
    J, (_, phidot) = dyn.constraint_jacobian(q), dyn.constraint_residual(q, qd)
    assert relative(J @ qd, phidot) < 1e-12
    if np.linalg.matrix_rank(J) < len(J):
        pytest.skip("off the manifold dependent rows contradict each other")
    qdd, _ = dyn.constrained_forward_dynamics(q, qd, tau)
    h = 1e-5

    def rate(h):
        return dyn.constraint_residual(model.integrate(q, h * qd + 0.5 * h * h * qdd), qd + h * qdd)[1]

    change = (rate(h) - rate(-h)) / (2 * h)
    assert np.abs(change).max() < 1e-5 * max(1.0, np.abs(qdd).max(), np.abs(qd).max() ** 2)


@pytest.mark.parametrize("seed", range(6))
def test_a_tree_that_is_welded_where_it_was_cut(seed):
    """A chain, and the same with its last links hung on the world by a joint of six degrees of freedom and welded."""
    rng = np.random.default_rng(seed)
    whole = rd.random_tree(4, seed=seed, joints=("revolute", "prismatic"), shape="chain")
    body = whole.link_names[-1]
    tail = rd.random_tree(2, seed=seed + 50, joints=("revolute",), shape="chain")
    text, other = whole, tail
    at = pose(rng)
    together = text.attach(other, link=body, pose=at, prefix="t_")
    apart_tail = rd.Dynamics(together, engine="reference")
    q, qd, tau = random_states(together, seed=seed)
    wanted = apart_tail.forward_dynamics(q, qd, tau)
    locked = rd.Dynamics(together, engine="reference", constraints=[rd.Lock(together.joint_names[1], value=0.2)])
    qdd, _ = locked.constrained_forward_dynamics(q, 0 * qd, tau)
    assert abs(qdd[1]) < 1e-9 * np.abs(qdd).max()
    fixed = rd.Dynamics(together.lock({together.joint_names[1]: float(q[1])}), engine="reference")
    rest = [k for k in range(together.nv) if k != 1]
    assert relative(qdd[rest], fixed.forward_dynamics(q[rest], 0 * qd[rest], tau[rest])) < 1e-9
    assert wanted.shape == qdd.shape


FOLLOWING = """<robot name="r"><link name="a"/>{links}{joints}</robot>"""
_LINK = """<link name="l{k}"><inertial><mass value="{m}"/><origin xyz="0.1 0.05 {m}"/>
<inertia ixx="0.02" iyy="0.03" izz="0.02" ixy="0.001" ixz="0" iyz="0"/></inertial></link>"""
_JOINT = """<joint name="j{k}" type="continuous"><parent link="{p}"/><child link="l{k}"/><axis xyz="{axis}"/>
<origin xyz="0.3 0 0.1" rpy="0.2 {k} 0"/>{mimic}</joint>"""


def test_a_coupling_is_a_mimic():
    axes, mimics = ("0 0 1", "0 1 0", "1 1 0", "0 1 1"), {2: ("j0", -1.5, 0.2), 3: ("j1", 0.5, 0.0)}
    links, joints = "", ""
    for k, axis in enumerate(axes):
        links += _LINK.format(k=k, m=0.5 + 0.1 * k)
        words = ""
        if k in mimics:
            words = '<mimic joint="{}" multiplier="{}" offset="{}"/>'.format(*mimics[k])
        joints += _JOINT.format(k=k, p="a" if k == 0 else f"l{k - 1}", axis=axis, mimic=words)
    text = FOLLOWING.format(links=links, joints=joints)
    following, free = rd.load_urdf(text), rd.load_urdf(text, mimic="ignore")
    assert (following.nv, free.nv) == (2, 4) and following.joint_names == free.joint_names
    constraints = [rd.Coupling({f"j{k}": 1.0, j: -c}, offset=o) for k, (j, c, o) in mimics.items()]
    held = rd.Dynamics(free, engine="reference", constraints=constraints)
    G, y = following.coupling(), following.random_configuration(0)
    v, f = np.random.default_rng(0).standard_normal((2, following.nv))
    wanted = rd.Dynamics(following, engine="reference").forward_dynamics(y, v, f)
    tau = np.linalg.lstsq(G.T, f, rcond=None)[0]
    q = following.tree_coordinates(y)
    assert np.abs(held.constraint_residual(q, G @ v)).max() < 1e-13
    qdd, _ = held.constrained_forward_dynamics(q, G @ v, tau)
    assert relative(qdd, G @ wanted) < 1e-9


# Pinocchio.


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.some(of=2, rest="matrix")
def test_agrees_with_pinocchio(seed):
    """Closed loops and feet on the manifold: Pinocchio's residual is another off it."""
    pin = pytest.importorskip("pinocchio")
    rng = np.random.default_rng(seed)
    model = rd.random_tree(
        8, seed=seed, joints=("revolute", "prismatic", "spherical"), base="floating" if seed % 2 else "fixed"
    )
    theirs = pinocchio_model(model)
    at = PinocchioAnswers(model, theirs).at
    q, qd, tau = random_states(model, seed=seed)
    poses = rd.Dynamics(model, engine="reference").forward_kinematics(q)
    moving = [k for k, body in enumerate(model.link_body.tolist()) if body >= 0]
    a, b = moving[-1], next(k for k in moving if model.link_body[k] != model.link_body[moving[-1]])
    here = pose(rng)
    there = np.linalg.inv(poses[b]) @ poses[a] @ here
    full = seed % 4 < 2
    kind = rd.Weld if full else rd.Point
    dyn = rd.Dynamics(
        model, engine="cpu", constraints=[kind(model.link_names[a], model.link_names[b], at=here, to_at=there)]
    )
    phi, _ = dyn.constraint_residual(q, qd)
    assert np.abs(phi).max() < 1e-12
    qd = dyn.impact(q, qd)[0]
    qdd, lam = dyn.constrained_forward_dynamics(q, qd, tau)

    def joint_and_place(link, T):
        frame = theirs.frames[theirs.getBodyId(model.link_names[link])]
        return frame.parentJoint, frame.placement * pin.SE3(T[:3, :3], T[:3, 3])

    one, place = joint_and_place(b, there)
    two, other = joint_and_place(a, here)
    contact = pin.ContactType.CONTACT_6D if full else pin.ContactType.CONTACT_3D
    constraint = pin.RigidConstraintModel(contact, theirs, one, place, two, other, pin.LOCAL)
    data, contact_data = theirs.createData(), constraint.createData()
    models, datas = pin.StdVec_RigidConstraintModel(), pin.StdVec_RigidConstraintData()
    models.append(constraint)
    datas.append(contact_data)
    pin.initConstraintDynamics(theirs, data, models, datas)
    settings = pin.ProximalSettings(1e-12, 1e-10, 20)
    wanted = pin.constraintDynamics(
        theirs, data, at.coordinates(q), at.rates(qd), at.rates(tau), models, datas, settings
    )
    assert relative(qdd, np.asarray(wanted)[at.velocities]) < 1e-7
    # Theirs acts on the other joint, linear part first.
    force = -np.asarray(datas[0].contact_force.vector)
    force, J = force[[3, 4, 5, 0, 1, 2]] if full else force[:3], dyn.constraint_jacobian(q)
    assert relative(lam @ J, force @ J) < 1e-7
    # Where rows depend on each other, the shortest, each row measured by what a unit of its force does.
    weights = np.sqrt(np.diag(dyn.delassus(q, qd, tau)[0]))
    assert np.linalg.norm(weights * lam) < np.linalg.norm(weights * force) * (1 + 1e-7)


# What is wrong is said.


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: [rd.Point("nothing")], r"constraints\[0\] 'nothing': link: got 'nothing'"),
        (lambda: [rd.Weld("tool0", "nothing")], r"constraints\[0\] 'tool0': to: got 'nothing'"),
        (lambda: [rd.Weld("tool0", "wrist_3")], r"both frames are on body"),
        (lambda: [rd.Point("base")], r"both frames are on the world"),
        (lambda: [rd.Coupling({"elbow": 1.0, "nothing": 1.0})], r"joint: got 'nothing'|joint"),
        (lambda: [rd.Coupling({})], r"Coupling.joints: got \{\}"),
        (lambda: [rd.Lock("nothing")], r"joint"),
        (lambda: [rd.Lock("shoulder_pan", value=(1.0, 2.0))], r"value|joint"),
        (lambda: [rd.Rod("tool0", length=0.0)], r"Rod.length: got 0.0; wanted a distance greater than 0 m"),
        (lambda: [rd.Weld("tool0", rows=("x", "w"))], r"Weld.rows: got"),
        (lambda: [rd.Point("tool0", baumgarte=(1.0,))], r"Point.baumgarte: got"),
        (lambda: ["tool0"], r"constraints\[0\]: got 'tool0'; wanted a list of Point"),
    ],
)
def test_what_cannot_be_held_is_named(make, message):
    model = rd.load_urdf(robots.own("arm6"))
    with pytest.raises(rd.ArgumentError, match=message):
        rd.Dynamics(model, constraints=make())


def test_restitutions_are_numbers_of_states():
    """One for each constraint, or row, of one state is no batch of states that anybody meant."""
    model = rd.load_urdf(robots.own("quadruped"), base="floating")
    feet = [rd.Point(name) for name in model.link_names if name.endswith("_foot")]
    dyn = rd.Dynamics(model, engine="reference", constraints=feet)
    q, qd = model.neutral(), np.zeros(model.nv)
    for n, what in ((4, "constraints"), (12, "rows")):
        with pytest.raises(rd.ArgumentError, match=f"^restitution: got {n} numbers for one state that has {n} {what}"):
            dyn.impact(q, qd, np.full(n, 0.5))
        assert dyn.impact(q[None], qd, np.full(n, 0.5))[0].shape == (n, model.nv)
    assert dyn.impact(q, qd, np.full(3, 0.5))[0].shape == (3, model.nv)
    with pytest.raises(rd.ArgumentError, match=r"restitution \(4,\); .*; restitution is one number for each state"):
        dyn.impact(np.tile(q, (3, 1)), qd, np.full(4, 0.5))


def test_rows_that_follow_from_others_are_named():
    """A planar loop closed by a point has one row too many."""
    model = rd.load_urdf(robots.own("arm6"))
    with pytest.warns(rd.RedundantWarning, match=r"constraints of 'arm6': again\.x, again\.y, again\.z follow"):
        rd.Dynamics(model, constraints=[rd.Point("tool0"), rd.Point("tool0", name="again")])


@pytest.mark.parametrize("name", CONSTRAINED)
def test_programs_are_shown_of_models_that_have_constraints(name):
    model = rd.load_urdf(robots.own("loops/four_bar"))
    dyn = rd.Dynamics(model, engine="cpu")
    assert dyn.program(name).operations > 30 and dyn.plain_task(name) is CONSTRAINED[name].plain_task(model)
    with pytest.raises(rd.ArgumentError, match=f"query: got '{name}'; allowed: 'inverse_dynamics'"):
        dyn.variant(constraints=()).program(name)


def test_names_of_rows():
    model = rd.load_urdf(robots.own("arm6"))
    dyn = rd.Dynamics(model, constraints=[rd.Point("tool0", name="tip"), rd.Weld("forearm", rows=("z", "rx"))])
    assert dyn.constraint_names == ("tip.x", "tip.y", "tip.z", "forearm.rx", "forearm.z") == row_names(dyn.model)
    assert rd.Dynamics(dyn.model).constraint_names == dyn.constraint_names
    assert rd.Dynamics(dyn.model, constraints=()).constraint_names == ()


# States that meet constraints.


@pytest.mark.parametrize("seed", range(6))
def test_assembly(seed):
    """From afar: a tree whose last link is asked to be where it is in another configuration."""
    model = rd.random_tree(7, seed=seed, joints=("revolute", "spherical"), shape="chain")
    there = rd.Dynamics(model, engine="reference").link_pose(model.random_configuration(seed), model.link_names[-1])
    held = [rd.Weld(model.link_names[-1], to_at=there)]
    q = model.assemble(model.random_configuration(seed + 1, (3,)), held)
    dyn = rd.Dynamics(model, engine="reference", constraints=held)
    assert np.abs(dyn.constraint_residual(q, np.zeros(model.nv))[0]).max() < 1e-10
    assert relative(dyn.link_pose(q, model.link_names[-1]), np.stack([there] * 3)) < 1e-8
    free = list(model.joint_names[:3])
    start = model.neutral()
    with pytest.raises(
        rd.AssemblyError, match=r"'.*' is not reachable from the given configuration: .* (m|rad) are left"
    ):
        model.assemble(start, [rd.Point(model.link_names[-1], to_at=(100.0, 0.0, 0.0))], free=free)
    with pytest.raises(rd.ArgumentError, match="free: got 'elbow'"):
        model.assemble(start, held, free="elbow")


def test_half_a_turn_is_refused():
    model = rd.load_urdf(robots.own("arm6"))
    q = model.neutral()
    T = rd.Dynamics(model, engine="reference").link_pose(q, "tool0")
    T[:3, :3] = T[:3, :3] @ np.diag([-1.0, -1.0, 1.0])
    with pytest.raises(rd.AssemblyError, match="half a turn off"):
        model.assemble(q, [rd.Weld("tool0", to_at=T)])


def test_projection_and_rollouts_keep_to_a_loop():
    """With every integrator, from a state on the loop: phi to rounding, energy to the order of the step."""
    model = rd.load_urdf(robots.own("arm6"))
    q = np.array([0.3, -0.8, 0.9, 0.2, 0.5, 0.1])
    place = rd.Dynamics(model, engine="reference").link_pose(q, "tool0")[:3, 3]
    dyn = rd.Dynamics(model, engine="cpu", constraints=[rd.Point("tool0", to_at=place)])
    qd = dyn.impact(q, np.linspace(-1.0, 1.0, 6))[0]
    start = dyn.kinetic_energy(q, qd) + dyn.potential_energy(q)
    reference = rd.Dynamics(dyn.model, engine="reference")
    for integrator, order in (("semi_implicit_euler", 1), ("midpoint", 2), ("rk4", 4)):
        gained = []
        for dt, steps in ((2e-3, 50), (1e-3, 100)):
            found = dyn.rollout(q, qd, dt=dt, steps=steps, integrator=integrator)
            phi, phidot = dyn.constraint_residual(found.q, found.qd)
            assert np.abs(phi).max() < 1e-8 and np.abs(phidot).max() < 1e-10  # one step of Newton's each
            end = dyn.kinetic_energy(found.q[-1], found.qd[-1]) + dyn.potential_energy(found.q[-1])
            gained.append(abs(end - start))
        assert 2 ** (order - 0.3) < gained[0] / gained[1] < 2 ** (order + 0.7), integrator
        assert gained[1] < {1: 1e-2, 2: 1e-4, 4: 1e-8}[order]
        few = [each.rollout(q, qd, dt=1e-3, steps=5, integrator=integrator) for each in (dyn, reference)]
        assert relative(few[0].q, few[1].q) < 1e-12 and relative(few[0].qd, few[1].qd) < 1e-12
    once = dyn.step(q, qd, None, 1e-3)
    moved = dyn.rollout(q, qd, dt=1e-3, steps=1)
    assert relative(once[0], moved.q[-1]) < 1e-13


def test_feet_stay_where_they_are_in_rollouts():
    model = rd.load_urdf(robots.own("quadruped"), base="floating")
    feet = [name for name in model.link_names if "foot" in name]
    dyn = rd.Dynamics(model, constraints=[rd.Point(name) for name in feet], joint_forces=("damping",))
    q = np.stack([model.neutral(), model.neutral()])
    q[:, 2] = 0.4, 0.5
    q[:, 7:] += 0.3
    tau = np.zeros((2, model.nv))
    found = dyn.rollout(q, np.zeros((2, model.nv)), tau, dt=2e-3, steps=100)
    phi, _ = dyn.constraint_residual(found.q[-1], found.qd[-1], dyn.constraint_targets(q))
    assert np.abs(phi).max() < 1e-7
    assert np.abs(found.q[-1] - q).max() > 1e-3
    falling = dyn.rollout(q, np.zeros((2, model.nv)), tau, dt=2e-3, steps=100, active=np.zeros(len(feet)))
    free = rd.Dynamics(model, joint_forces=("damping",)).rollout(q, np.zeros((2, model.nv)), tau, dt=2e-3, steps=100)
    assert relative(falling.q[-1], free.q[-1]) < 1e-9


# Inverse dynamics.


@pytest.mark.parametrize("seed", range(4))
def test_inverse_dynamics_of_a_standing_robot(seed):
    model = rd.load_urdf(robots.own("quadruped"), base="floating")
    feet = [name for name in model.link_names if "foot" in name]
    dyn = rd.Dynamics(model, engine="cpu", constraints=[rd.Point(name) for name in feet])
    q, qd, tau = random_states(model, (2,), seed=seed)
    tau[:, :6] = 0.0
    qdd, _ = dyn.constrained_forward_dynamics(q, qd, tau)
    found, lam = dyn.constrained_inverse_dynamics(q, qd, qdd)
    assert np.abs(found[:, :6]).max() == 0.0
    assert relative(dyn.constrained_forward_dynamics(q, qd, found)[0], qdd) < 1e-9
    assert (np.linalg.norm(found, axis=-1) <= np.linalg.norm(tau, axis=-1) * (1 + 1e-9)).all()
    J = dyn.constraint_jacobian(q)
    assert relative(dyn.inverse_dynamics(q, qd, qdd), found + np.einsum("...mi,...m->...i", J, lam)) < 1e-9
    with pytest.raises(rd.NumericalError, match="the constraints do not allow these accelerations"):
        dyn.constrained_inverse_dynamics(q[0], qd[0], qdd[0] + 1.0)
    with pytest.raises(rd.NumericalError, match="the actuated joints cannot give these accelerations"):
        dyn.constrained_inverse_dynamics(q[0], qd[0], qdd[0], actuated=[model.joint_names[1]])


def test_impossible_motions_are_told(make_dynamics, tolerance):
    """In a batch by NaN in their rows alone, or by what is missing and forbidden; both against NumPy."""
    model = rd.load_urdf(robots.own("quadruped"), base="floating")
    feet = [rd.Point(name) for name in model.link_names if "foot" in name]
    dyn = make_dynamics(model, constraints=feet)
    q, qd, tau = random_states(model, (4,), seed=7)
    active = np.array([[1, 1, 1, 1], [1, 1, 1, 1], [1, 0, 0, 0], [1, 0, 0, 1]])
    tau[:, :6] = 0.0
    qdd = np.array(dyn.constrained_forward_dynamics(q, qd, tau, active=active)[0], float)
    qdd[1, 8] += np.abs(qdd[1]).max()  # forbidden
    qdd[2] = 0.0  # one foot alone cannot hold the robot
    qdd[2] = dyn.constrained_forward_dynamics(q[2], qd[2], dyn.inverse_dynamics(q[2], qd[2], qdd[2]), active=active[2])[
        0
    ]
    tau, lam = dyn.constrained_inverse_dynamics(q, qd, qdd, active=active)
    assert np.isnan(tau[1:3]).all() and np.isnan(lam[1:3]).all()
    assert np.isfinite(tau[[0, 3]]).all() and np.isfinite(lam[[0, 3]]).all()
    found, forces, missing, forbidden = dyn.constrained_inverse_dynamics(q, qd, qdd, active=active, residual=True)
    assert (found[[0, 3]] == tau[[0, 3]]).all() and (forces[[0, 3]] == lam[[0, 3]]).all()
    judge = rd.Dynamics(dyn.model, engine="reference")
    J = judge.constraint_jacobian(q) * np.repeat(active, 3, axis=1)[..., None]
    need, H = judge.inverse_dynamics(q, qd, qdd), judge.mass_matrix(q)
    size = np.abs(need).max()
    assert np.abs(need - found - missing - np.einsum("bmi,bm->bi", J, forces)).max() < 1e4 * tolerance * size
    for k in range(4):
        wanted = need[k, :6] - J[k, :, :6].T @ np.linalg.lstsq(J[k, :, :6].T, need[k, :6], rcond=1e-9)[0]
        assert np.abs(missing[k, :6] - wanted).max() < 1e4 * tolerance * size and not np.any(missing[k, 6:])
        error = J[k] @ qdd[k] + judge.constraint_bias(q[k], qd[k], active=active[k])
        Hinv = np.linalg.inv(H[k])
        wanted = Hinv @ J[k].T @ np.linalg.lstsq(J[k] @ Hinv @ J[k].T, error, rcond=1e-9)[0]
        assert np.abs(forbidden[k] - wanted).max() < 1e5 * tolerance * np.abs(qdd).max()
    assert np.abs(missing[2]).max() > 1.0 and np.abs(forbidden[1]).max() > 1e-2


@pytest.mark.some(of=2, rest="matrix")
def test_biases(model, make_dynamics, tolerance):
    """J qdd + r is what rows do: their accelerations of `delassus`, whose robot moves freely."""
    dyn = make_dynamics(model, constraints=some(model, 1))
    q, qd, tau = random_states(model, (3,), seed=6)
    rng = np.random.default_rng(6)
    base = {"V0": rng.standard_normal(6), "dV0": rng.standard_normal(6)}
    given = base | {name: rng.standard_normal(dyn.model.n_rows) for name in ("row_velocity", "row_acceleration")}
    active = np.ones((3, dyn.model.n_constraints))
    active[1, 0] = 0
    judge = rd.Dynamics(dyn.model, engine="reference")
    _, v_free = judge.delassus(q, qd, tau, active=active, **given)
    J, qdd = judge.constraint_jacobian(q), judge.forward_dynamics(q, qd, tau, **base)
    r = dyn.constraint_bias(q, qd, active=active, **given)
    J[1, :3] = 0.0
    wanted = v_free - np.einsum("bmi,bi->bm", J, qdd)
    assert np.abs(r - wanted).max() < 1e3 * tolerance * np.abs(v_free).max()


# Large trees, devices.


@pytest.mark.matrix
def test_a_closure_of_a_long_chain():
    """By recursions: its mass matrix would have a hundred million entries."""
    chain = rd.auto_tree(10_000)
    dyn = rd.Dynamics(chain, constraints=[rd.Point(chain.link_names[-1])])
    q, qd, tau = random_states(chain, seed=0)
    qdd, lam = dyn.constrained_forward_dynamics(1e-3 * q, 1e-3 * qd, 1e-3 * tau)
    J = dyn.constraint_jacobian(1e-3 * q)
    need = dyn.inverse_dynamics(1e-3 * q, 1e-3 * qd, qdd) - 1e-3 * tau
    assert np.abs(need - lam @ J).max() < 1e-6 * np.abs(need).max() + 1e-9


@pytest.mark.matrix
@pytest.mark.parametrize(("name", "base"), tuple(zip(CONSTRAINED, cycle(("fixed", "floating")))))
def test_many_bodies_that_mimic(name, base):
    """Too many for a program, and with mimics, whose responses come by no recursion: with all that a query takes."""
    model = rd.random_tree(
        104, seed=3, joints=("revolute", "prismatic", "spherical"), shape="binary", base=base, mimic=0.3
    )
    assert model.has_mimic
    held, question = some(model, 7), CONSTRAINED[name]
    dyn, judge = (rd.Dynamics(model, engine=engine, constraints=held) for engine in ("cpu", "reference"))
    q, qd, tau = random_states(model, (3,), seed=1)
    rng = np.random.default_rng(1)
    more = {
        "f_ext": rng.standard_normal((3, model.n_bodies, 6)),
        "inertia": model.inertia * rng.uniform(0.9, 1.1, (3, model.n_bodies, 1)),
        "V0": rng.standard_normal(6),
        "dV0": rng.standard_normal(6),
        "targets": judge.constraint_targets(q),
        "active": rng.integers(0, 2, (3, len(held))),
        "restitution": 0.3,
        "row_velocity": rng.standard_normal((3, judge.model.n_rows)),
        "row_acceleration": rng.standard_normal((3, judge.model.n_rows)),
    }
    states = {"q": q, "qd": qd, "tau": tau}
    for options in ({}, {each: array for each, array in more.items() if each in question.optional}):
        found, wanted = (getattr(each, name)(*map(states.get, question.inputs), **options) for each in (dyn, judge))
        for one, other in zip(*(x if isinstance(x, tuple) else (x,) for x in (found, wanted)), strict=True):
            assert relative(one, other) < 1e-9


# What is given a little wrong.


def pendulum(*constraints, **options):
    model = rd.load_urdf(robots.own("double_pendulum"))
    return rd.Dynamics(model, constraints=list(constraints), **options)


@pytest.mark.some(of=4, rest="matrix")
def test_bools_say_what_holds(model, make_dynamics):
    """The same bits as numbers, in queries and rollouts."""
    every = some(model, 3)
    dyn = make_dynamics(model, constraints=every)
    q, qd, tau = random_states(model, (2,), seed=3)
    active = np.random.default_rng(3).integers(0, 2, (2, len(every))).astype(bool)
    assert active.any() and not active.all()
    for given, numbers in (
        (active, active.astype(float)),
        (active.tolist(), active.astype(int)),
        (active[0], active[0].astype(float)),
        (True, np.ones(len(every))),
        (np.False_, np.zeros(len(every))),
    ):
        for ask, arguments in ((dyn.constrained_forward_dynamics, (q, qd, tau)), (dyn.project, (q, qd))):
            for got, wanted in zip(ask(*arguments, active=given), ask(*arguments, active=numbers), strict=True):
                assert np.array_equal(got, wanted)
        moved, wanted = (dyn.rollout(q, qd, tau, 1e-3, 2, active=each) for each in (given, numbers))
        assert np.array_equal(moved.q, wanted.q) and np.array_equal(moved.qd, wanted.qd)
    each = np.array([active, ~active])
    moved, wanted = (dyn.rollout(q, qd, tau, 1e-3, 2, active=given) for given in (each, each.astype(float)))
    assert np.array_equal(moved.qd, wanted.qd)
    for wrong in ("yes", ["True"] * len(every), active[:, :-1], [None] * len(every)):
        with pytest.raises(rd.ArgumentError, match=r"^active: got"):
            dyn.project(q, qd, active=wrong)


@pytest.mark.parametrize("engine", ["reference", "cpu"])
def test_whatever_is_positive_holds(engine):
    dyn = pendulum(rd.Point("lower_rod"), rd.Lock("elbow", 0.1), engine=engine)
    q, still, tau = np.array([0.3, 0.4]), np.zeros(2), np.ones(2)
    for flags, wanted in (([2.0, 0.5], [1.0, 1.0]), ([-1.0, 7.0], [0.0, 1.0])):
        found = dyn.constrained_forward_dynamics(q, still, tau, active=flags)
        for one, other in zip(found, dyn.constrained_forward_dynamics(q, still, tau, active=wanted), strict=True):
            assert (one == other).all()


@pytest.mark.parametrize("engine", ["reference", "cpu"])
def test_a_rod_without_direction_that_is_off_says_nothing(engine):
    q, still = np.array([0.3, 0.4]), np.zeros(2)
    here = pendulum(engine="reference").link_pose(q, "lower_rod")[:3, 3]
    dyn = pendulum(rd.Rod("lower_rod", to_at=here, length=0.1), rd.Lock("elbow", 0.4), engine=engine)
    alone = pendulum(rd.Lock("elbow", 0.4), engine=engine)
    found, lam = dyn.constrained_forward_dynamics(q, still, still, active=[0, 1])
    wanted, its = alone.constrained_forward_dynamics(q, still, still)
    assert relative(found, wanted) < 1e-12 and lam[0] == 0 and relative(lam[1:], its) < 1e-12
    for one, other in zip(dyn.project(q, still, active=[0, 1]), alone.project(q, still), strict=True):
        assert relative(one, other) < 1e-12


@pytest.mark.parametrize("engine", ["reference", "cpu"])
def test_axes_of_targets_are_made_orthonormal(engine):
    dyn = pendulum(rd.Point("lower_rod"), engine=engine)
    q, still, tau = np.array([0.3, 0.4]), np.zeros(2), np.ones(2)
    targets = dyn.constraint_targets(q)
    wanted = dyn.constraint_residual(q + 0.1, still, targets)
    double = targets.copy()
    double[0, :9] *= 2.0
    for one, other in zip(dyn.constraint_residual(q + 0.1, still, double), wanted, strict=True):
        assert relative(one, other) < 1e-14
    for E in (np.zeros(9), np.diag([1.0, 1.0, -1.0]).ravel()):
        wrong = targets.copy()
        wrong[0, :9] = E
        with pytest.raises(rd.NumericalError):
            dyn.constrained_forward_dynamics(q, still, tau, wrong)


def test_hinges_are_assembled_from_afar():
    text = """<robot name="r"><link name="a"/><link name="b"><inertial><mass value="1"/>
    <inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial></link><joint name="j" type="continuous">
    <parent link="a"/><child link="b"/><axis xyz="1 0 0"/></joint></robot>"""
    model = rd.load_urdf(text)
    hinge = [rd.Weld("b", rows=("rx", "ry"))]
    assert abs(model.assemble([2.5], hinge)[0]) < 1e-10
    with pytest.raises(rd.AssemblyError, match="half a turn off"):
        model.assemble([np.pi], hinge)
    with pytest.raises(rd.AssemblyError, match=r"'j.value' is not reachable .* 1 rad are left"):
        model.assemble([0.0], [rd.Lock("j", 1.0)], free=[])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: rd.Dynamics(
                rd.load_urdf(robots.own("ball_joint_arm")), constraints=[rd.Lock("shoulder", [0.0] * 4)]
            ),
            "quaternion xyzw that has a length",
        ),
        (lambda: pendulum(engine="reference").model.assemble([0, 0], rd.Lock("elbow")), "constraints: got Lock"),
        (
            lambda: pendulum(rd.Point("lower_rod")).constraint_residual([0, 0], [0, 0], np.zeros((2, 12))),
            "a transform for each constraint",
        ),
        (
            lambda: pendulum(rd.Lock("elbow")).constrained_inverse_dynamics([0, 0], [0, 0], [0, 0], actuated=["nope"]),
            "actuated: joint: got 'nope'",
        ),
    ],
)
def test_messages(make, message):
    with pytest.raises(rd.ArgumentError, match=message):
        make()


def test_calls_for_one_state_run_no_python():
    """Of every query about constraints, also those with six results."""
    dyn = rd.Dynamics(rd.load_urdf(robots.own("loops/four_bar")), engine="cpu")
    state = dict(zip(("q", "qd", "tau"), np.random.default_rng(0).uniform(-1.0, 1.0, (3, 3)), strict=True))
    for name, question in CONSTRAINED.items():
        ask, arrays, seen = getattr(dyn, name), [state[each] for each in question.plain], []
        for _ in range(3):
            wanted = ask(*arrays)
        sys.setprofile(
            lambda frame, event, _, seen=seen: seen.append(frame.f_code.co_name) if event == "call" else None
        )
        try:
            found = ask(*arrays)
        finally:
            sys.setprofile(None)
        assert not seen, name
        np.testing.assert_array_equal(np.concatenate(found, axis=None), np.concatenate(wanted, axis=None))


@pytest.mark.parametrize("engine", ["reference", "cpu"])
def test_a_robot_without_constraints_moves_freely(engine):
    model = rd.load_urdf(robots.own("arm6"))
    dyn = rd.Dynamics(model, engine=engine)
    q, qd, tau = random_states(model, (3,))
    qdd, force = dyn.constrained_forward_dynamics(q, qd, tau)
    assert force.shape == (3, 0) and np.allclose(qdd, dyn.forward_dynamics(q, qd, tau), rtol=1e-9)
    *found, _, _, _ = dyn.constrained_forward_dynamics_gradient(q, qd, tau)
    for one, other in zip(found, dyn.forward_dynamics_gradient(q, qd, tau), strict=True):
        assert np.allclose(one, other, rtol=1e-8, atol=1e-8)
    after, impulse = dyn.impact(q, qd)
    assert impulse.shape == (3, 0) and np.allclose(after, qd)
    assert np.allclose(dyn.constrained_inverse_dynamics(q, qd, qdd)[0], tau)
