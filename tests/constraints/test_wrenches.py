"""Constraint forces as wrenches on bodies: virtual work, MuJoCo's forces between bodies, and what joints transmit."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import random_states, relative
from robots import own
from robots_with_loops import near
from test_constraints import pose, some

import robodyn as rd
from robodyn.description import JOINT_TYPES

pytestmark = pytest.mark.filterwarnings("ignore::robodyn.internals.errors.RedundantWarning")
LOOPS = ["four_bar", "delta", "linkage_gripper", "bird_legs"]


def framed(dyn: rd.Dynamics) -> np.ndarray:
    """(m,) which rows are of constraints between frames."""
    kinds = {each.name: isinstance(each, rd.Point | rd.Weld | rd.Rod) for each in dyn.model.constraints}
    return np.array([kinds[name.rpartition(".")[0]] for name in dyn.constraint_names])


def work(dyn: rd.Dynamics, q: np.ndarray, f_ext: np.ndarray) -> np.ndarray:
    """Generalised forces (..., nv) of external ones."""
    still = np.zeros(dyn.model.nv)
    return dyn.bias_force(q, still) - dyn.bias_force(q, still, f_ext=f_ext)


@pytest.mark.some(of=3, rest="matrix")
def test_virtual_work(make_dynamics, tolerance):
    """J' lambda, far from what is held, with mimics, every joint kind, axes that are turned and places that come with
    calls; equal and opposite between links."""
    for seed, base in ((0, "fixed"), (1, "floating")):
        model = rd.random_tree(8, seed=seed, joints=JOINT_TYPES, mimic=0.3, base=base)
        rng = np.random.default_rng(seed)
        rows = [name for name in ("rx", "ry", "rz", "x", "y", "z") if rng.uniform() < 0.6] or ["ry"]
        name = model.link_names[-1]
        held = [*some(model, seed), rd.Lock(model.joint_names[-1], name="lock")]
        held += [
            rd.Weld(name, at=pose(rng), rows=rows, name="to the world"),
            rd.Rod(name, to_at=rng.standard_normal(3), length=2.0, name="rod"),
        ]
        dyn = make_dynamics(model, constraints=held)
        q, lam = random_states(model, (4, 1), seed=seed)[0], rng.standard_normal((3, len(dyn.constraint_names)))
        for targets in (None, np.stack([[*t[:3, :3].T.ravel(), *t[:3, 3]] for t in (pose(rng) for _ in held)])):
            f_ext = dyn.constraint_wrenches(q, lam, targets)
            J = np.asarray(dyn.constraint_jacobian(q, targets), float)
            assert f_ext.shape == (4, 3, model.n_bodies, 6) and f_ext.dtype == dyn.dtype
            wanted = np.einsum("...mi,...m->...i", J, lam * framed(dyn))
            assert relative(work(dyn, np.broadcast_to(q, (4, 3, model.nq)), f_ext), wanted) < 100 * tolerance
        between = lam * [name.startswith("hinge") for name in dyn.constraint_names]
        f_ext = dyn.constraint_wrenches(q, between)
        assert np.abs(f_ext.sum(axis=-2)).max() < 10 * tolerance * np.abs(f_ext).max()
        assert not dyn.constraint_wrenches(q, lam * ~framed(dyn)).any()


@pytest.mark.parametrize("name", LOOPS)
def test_joints_of_loops_transmit_what_drives_give(name):
    """Accelerations under tau need tau at the joints once the wrenches are there."""
    model = rd.load_urdf(own(f"loops/{name}"), base="floating" if name == "bird_legs" else "fixed")
    dyn = rd.Dynamics(model, engine="reference")
    q, qd, tau = near(dyn, 0)
    qdd, lam = dyn.constrained_forward_dynamics(q, qd, tau)
    f_ext = dyn.constraint_wrenches(q, lam)
    assert relative(dyn.inverse_dynamics(q, qd, qdd, f_ext=f_ext), tau) < 1e-7
    assert relative(dyn.inverse_dynamics(q, qd, qdd), tau) > 1e-2
    reaction = dyn.joint_reaction(q, qd, qdd, f_ext=f_ext)
    free = np.flatnonzero((model.mimics < 0) & ~np.isin(np.arange(model.n_bodies), model.mimics[model.mimics >= 0]))
    turns = [i for i in free if rd.joints.KINDS[model.joint_kind[i]].name == "revolute"]
    at = model.v_source[model.v_start[turns]]
    assert turns and relative(reaction[turns, 2], tau[at] - model.armature[at] * qdd[at]) < 1e-7


def test_forces_between_bodies_in_mujoco():
    """Its `cfrc_int` of a loop that a connect closes, at its accelerations and with its force of the connect."""
    mujoco = pytest.importorskip("mujoco")
    text = """<mujoco><option gravity="0 1 -9"/><default><geom size="0.05 0.1 0.2" type="box"/></default><worldbody>
    <body name="a"><joint axis="0 1 0"/><geom pos="0.1 0 0"/>
    <body name="b" pos="0.3 0 0" euler="10 20 30"><joint axis="1 1 0"/><geom/>
    <body name="c" pos="0 0.4 0"><joint axis="0 0 1"/><geom pos="0 0.1 0"/></body></body></body>
    <body name="d" pos="0.6 0.2 0.1"><joint axis="0 1 1"/><geom/>
    <body name="e" pos="0 0.3 0"><joint axis="1 0 0"/><geom/></body></body></worldbody>
    <equality><connect body1="c" body2="e" anchor="0.05 0.02 0.1"/></equality></mujoco>"""
    theirs = mujoco.MjModel.from_xml_string(text)
    model = rd.load_mjcf(theirs, equality="constraints")
    dyn, data = rd.Dynamics(model, engine="reference"), mujoco.MjData(theirs)
    rng = np.random.default_rng(0)
    q = model.assemble(0.2 * rng.standard_normal(model.nq))
    data.qpos[:], (data.qvel[:], data.qfrc_applied[:]) = q, rng.standard_normal((2, theirs.nv))
    mujoco.mj_forward(theirs, data)
    mujoco.mj_rnePostConstraint(theirs, data)
    (held,) = model.constraints
    assert (held.link, held.to) == ("e", "c") and data.nefc == 3
    lam = -data.body("c").xmat.reshape(3, 3).T @ data.efc_force  # theirs pushes c along the world's axes
    f_ext = dyn.constraint_wrenches(q, lam)
    reaction = dyn.joint_reaction(q, data.qvel, data.qacc, f_ext=f_ext)
    alone = dyn.joint_reaction(q, data.qvel, data.qacc, f_ext=0.0 * f_ext)
    wanted, found, without = [], [], []
    for name in "abcde":
        link = model.link_index(name)
        body, E = model.link_body[link], model.link_X[link, :9].reshape(3, 3)
        T, root = dyn.link_pose(q, name), theirs.body_rootid[theirs.body(name).id]
        R = T[:3, :3] @ E
        place = T[:3, 3] - R @ model.link_X[link, 9:] - data.subtree_com[root]
        for each, out in ((reaction, found), (alone, without)):
            moment, force = R @ each[body, :3], R @ each[body, 3:]
            out += [*(moment + np.cross(place, force)), *force]
        wanted += list(data.body(name).cfrc_int)
    assert relative(np.array(found), np.array(wanted)) < 1e-9
    assert relative(np.array(without), np.array(wanted)) > 1e-2


def test_what_pushes_no_body():
    """Locks and couplings are forces on coordinates: joints transmit them, and no wrench is needed."""
    model = rd.load_urdf(own("arm6"))
    names = model.joint_names
    held = [rd.Lock(names[1], 0.3), rd.Coupling({names[2]: 1.0, names[4]: -0.5})]
    dyn, rng = rd.Dynamics(model, engine="reference", constraints=held), np.random.default_rng(0)
    q, qd, tau = rng.standard_normal((3, 6))
    qdd, lam = dyn.constrained_forward_dynamics(q, qd, tau)
    assert not dyn.constraint_wrenches(q, lam).any()
    along = dyn.joint_reaction(q, qd, qdd)[:, 2] + model.armature * qdd
    assert relative(along, tau + dyn.constraint_jacobian(q).T @ lam) < 1e-9


def test_reactions_of_loops_want_the_forces_of_the_loops():
    model = rd.load_urdf(own("loops/four_bar"))
    for engine in ("reference", "cpu"):
        dyn, q = rd.Dynamics(model, engine=engine), model.assemble([0.9, -0.5, 1.5])
        for _ in range(2):
            with pytest.raises(rd.ArgumentError, match=r"f_ext: got None for joint_reaction.*constraint_wrenches"):
                dyn.joint_reaction(q, np.zeros(3), np.zeros(3))
        assert np.isfinite(dyn.joint_reaction(q, np.zeros(3), np.zeros(3), f_ext=np.zeros((3, 6)))).all()
        tree_alone = rd.Dynamics(model, engine=engine, constraints=())
        assert tree_alone.joint_reaction(q, np.zeros(3), np.zeros(3)).shape == (3, 6)


def test_arguments():
    model = rd.load_urdf(own("arm6"))
    held = [rd.Rod("tool0", to_at=(0.0, 0.0, 0.0), length=0.5, name="rod"), rd.Point("tool0")]
    dyn = rd.Dynamics(model, engine="reference", constraints=held)
    q, lam = np.zeros(6), np.arange(1.0, 5.0)
    out = np.full((6, 6), np.nan)
    assert dyn.constraint_wrenches(q, lam, out=out) is out and np.isfinite(out).all()
    assert dyn.constraint_wrenches(q, np.zeros((0, 4)), dyn.constraint_targets(q)).shape == (0, 6, 6)
    for wrong, words in (
        (
            {"lam": np.zeros(3)},
            r"lam: got shape \(3,\); wanted .*\(\.\.\., 4\): a number for each row of the constraints",
        ),
        ({"targets": np.zeros(12)}, "targets: got shape"),
        ({"q": np.zeros(5)}, "q: got shape"),
        ({"lam": None}, "lam: got None"),
    ):
        with pytest.raises(rd.ArgumentError, match=words):
            dyn.constraint_wrenches(**{"q": q, "lam": lam, **wrong})
    with pytest.raises(rd.NumericalError, match="lam"):
        dyn.constraint_wrenches(q, [np.nan, 0, 0, 0])
    at_its_end = np.tile(dyn.constraint_targets(q)[1], (2, 1))  # the rod's two ends are in one place
    many = dyn.constraint_wrenches(np.tile(q, (2, 1)), [[0, 0, 0, 1], [1, 0, 0, 1]], at_its_end)
    assert np.isfinite(many[0]).all() and np.isnan(many[1, 5, 3:]).all()
    free = rd.Dynamics(model, engine="reference")
    assert not free.constraint_wrenches(q, np.zeros(0)).any()


@pytest.mark.some(of=3, rest="matrix")
def test_forces_in_world_axes(make_dynamics, tolerance):
    """Forces times the axes of `to`, which link poses say: of links, of targets and of a plain place in the world."""
    model = rd.random_tree(7, seed=4, joints=("revolute", "spherical"), base="floating")
    one, other, third = model.link_names[-3:]
    turned = np.eye(4)
    turned[:3, :3] = [[0.0, -1.0, 0.0], [0.6, 0.0, -0.8], [0.8, 0.0, 0.6]]
    held = [
        rd.Point(one, other, to_at=turned),
        rd.Rod(third, other, length=0.7),
        rd.Weld(third, at=(0.1, 0.0, 0.0)),
        rd.Lock(model.joint_names[1]),
    ]
    dyn = make_dynamics(model, constraints=held)
    q, qd, _ = random_states(model, (3,), seed=8)
    tau = np.zeros((3, model.nv))
    targets = rd.Dynamics(dyn.model, engine="reference").constraint_targets(q)
    R = rd.Dynamics(model, engine="reference").link_pose(q, other)[:, :3, :3] @ turned[:3, :3]
    E = targets[:, 2, :9].reshape(3, 3, 3)
    for (_, plain), (_, world) in (
        [dyn.constrained_forward_dynamics(q, qd, tau, targets, axes=axes) for axes in ("to", "world")],
        [dyn.impact(q, qd, None, targets, axes=axes) for axes in ("to", "world")],
    ):
        wanted = np.array(plain, float)
        wanted[:, :3] = np.einsum("bij,bj->bi", R, wanted[:, :3])
        for at in (slice(4, 7), slice(7, 10)):
            wanted[:, at] = np.einsum("bji,bj->bi", E, wanted[:, at])
        assert np.abs(world - wanted).max() < 1e2 * tolerance * np.abs(wanted).max()
        assert np.abs(world - plain).max() > 1e-3 * np.abs(wanted).max()
    hinge = make_dynamics(model, constraints=[rd.Weld(one, rows=("x", "z"))])
    with pytest.raises(rd.ArgumentError, match=f"'world' for \"{one}\", which holds x, z along its own axes only"):
        hinge.impact(q, qd, axes="world")
    with pytest.raises(rd.ArgumentError, match="axes: got 'body'; allowed: 'to', 'world'"):
        dyn.impact(q, qd, axes="body")


@pytest.mark.matrix
def test_forces_of_large_trees_in_world_axes():
    chain, turned = rd.auto_tree(400), np.eye(4)
    turned[:3, :3] = [[0.0, -1.0, 0.0], [0.6, 0.0, -0.8], [0.8, 0.0, 0.6]]
    dyn = rd.Dynamics(chain, constraints=[rd.Lock(chain.joint_names[0]), rd.Weld(chain.link_names[-1], to_at=turned)])
    q, qd, tau = (1e-3 * each for each in random_states(chain, (2,), seed=0))
    plain, world = (dyn.constrained_forward_dynamics(q, qd, tau, axes=axes)[1] for axes in ("to", "world"))
    wanted = np.hstack([plain[:, :1], *(plain[:, k : k + 3] @ turned[:3, :3].T for k in (1, 4))])
    # Forces of rows that depend on each other have fewer digits than accelerations.
    assert np.abs(world - wanted).max() < 1e-5 * np.abs(wanted).max() and np.abs(world - plain).max() > 0.0
