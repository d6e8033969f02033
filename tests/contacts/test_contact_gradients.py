"""Derivatives through contacts, against central differences and MuJoCo's transition matrices."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from robots import own
from test_contact_dynamics import converted, on_feet, quadruped, theirs_of, visited

import robodyn as rd
from robodyn.algorithms.contacts.tasks import contact_answer, contact_step_answer
from robodyn.api.autodiff.calls import TaskCall
from robodyn.api.queries.contacts import without_dry_friction

mujoco = pytest.importorskip("mujoco")

HELD = """<equality><weld body1="front_left_foot" body2="hind_left_foot" relpose="0.3 0.05 0.02 1 .1 .05 0.02"/>
<connect body1="front_right_foot" anchor="0.01 0 0.02"/>
<joint joint1="front_right_hip" joint2="hind_right_hip" polycoef="0.05 0.8 0 0 0"/></equality>"""
SWUNG = """<mujoco><option cone="elliptic" impratio="3"/><worldbody><geom type="plane" size="9 9 .1" pos="0 0 -.5"/>
<body><joint type="ball" range="0 2" damping=".1"/><geom type="capsule" fromto="0 0 0 0 0 -.35" size=".05"/>
<body pos="0 0 -.3"><joint axis="0 1 0" range="-20 60" frictionloss=".2"/>
<geom type="box" pos="0 0 -.12" size=".05 .04 .1" friction=".6" margin=".01"/></body></body>
<body pos=".145 0 -.4"><freejoint/><geom size=".1" mass="2" friction=".7"/></body></worldbody></mujoco>"""
SCENES = (*(pytest.param(name, marks=pytest.mark.matrix) for name in ("standing", "held", "swung")), "grasped")


def scene(name):
    """A model with contacts, and a configuration in contact. Between them: both cones; planes, boxes, spheres; limits,
    dry friction; frames and coordinates that are held; a floating base, a spherical joint, joints that mimic."""
    if name == "standing":
        model, q = on_feet()
        q[2] -= 2e-3
        return model, q
    if name == "held":
        model = rd.load_mjcf(theirs_of(quadruped("floating", HELD), "pyramidal", 10.0), contacts=True)
        q = model.neutral()
        q[2], q[-12:] = 0.32, np.tile([0.0, 0.7, -1.4], 4)
        return model, q
    if name == "swung":
        model = rd.load_mjcf(SWUNG, contacts=True)
        q = model.neutral()
        q[:4] = 0.0, 0.02, 0.02, np.sqrt(1.0 - 8e-4)
        return model, q
    model = rd.load_urdf(own("gripper"))
    ends = [
        rd.Sphere(f"{side}_finger", at=at, radius=0.02)
        for side, at in (("right", (0.0, 0.0, 0.03)), ("left", (0.004, 0.001, 0.032)))
    ]
    return model.with_contacts([rd.Contact(*ends, friction=0.5)], cone="elliptic"), model.neutral()


def pushed(model, q, count, seed=0):
    """States about a configuration."""
    print(f"states in contact: seed {seed}")
    rng = np.random.default_rng(seed)
    q = model.integrate(np.tile(q, (count, 1)), rng.normal(0.0, 1e-3, (count, model.nv)))
    return q, rng.normal(0.0, 0.2, (count, model.nv)), rng.normal(0.0, 3.0, (count, model.nv))


def parameters(model, count):
    """Parameters of each state: a ground that leans, other friction, damping and inertias."""
    rng, lean = np.random.default_rng(2), np.tile(np.eye(4), (count, 1, 1))
    angle = rng.uniform(-3e-3, 3e-3, count)
    lean[:, 0, 0] = lean[:, 2, 2] = np.cos(angle)
    lean[:, 0, 2], lean[:, 2, 0] = np.sin(angle), -np.sin(angle)
    rows = np.setdiff1d(np.arange(model.nv), without_dry_friction(model))
    friction = np.zeros(model.nv)
    friction[rows] = 1.2 * model.friction[rows]
    return {
        "contact_friction": rng.uniform(0.4, 1.0, (count, model.n_contacts)),
        "ground_pose": lean,
        "armature": model.armature + 0.01,
        "damping": rng.uniform(0.0, 0.3, (count, model.nv)),
        "friction": friction,
        "gravity": np.array([0.2, -0.1, -9.0]),
        "inertia": model.inertia * 1.1,
    }


def slope(of, state, k, model, h=1e-6):
    """Central differences (..., n, nv) of of(q, qd, tau) by argument k."""
    columns = []
    for e in h * np.eye(model.nv):
        ends = []
        for step in (e, -e):
            moved = list(state)
            moved[k] = model.integrate(state[0], np.tile(step, (len(state[0]), 1))) if k == 0 else state[k] + step
            ends.append(of(*moved))
        columns.append((ends[0] - ends[1]) / (2.0 * h))
    return np.stack(columns, axis=-1)


@pytest.mark.parametrize("name", SCENES)
def test_accelerations_by_differences(name, make_dynamics):
    model, q = scene(name)
    dyn = make_dynamics(model, joint_forces=("damping",), check=False)
    exact = rd.Dynamics(model, joint_forces=("damping",), engine="cpu")
    state = pushed(model, q, 4)
    given = {
        "f_ext": np.random.default_rng(1).normal(0.0, 1.0, (4, model.n_bodies, 6)),
        "dV0": np.array([0.0, 0.0, 0.0, 1.0, 2.0, 9.0]),
        **parameters(model, 4),
    }
    assert (exact.contact_distances(state[0], ground_pose=given["ground_pose"]) < 0.0).any(axis=1).all()
    out = tuple(np.full((4, model.nv, model.nv), np.nan, dyn.dtype) for _ in range(3))
    found = dyn.contact_forward_dynamics_gradient(*state, dt=0.003, **given, out=out)
    assert all(each is mine for each, mine in zip(found, out, strict=True))
    most = 2e-5 if dyn.dtype == np.float64 else 2e-2
    for k, got in enumerate(found):
        wanted = slope(lambda *x: exact.contact_forward_dynamics(*x, dt=0.003, **given)[0], state, k, model)
        assert (np.abs(got - wanted).max(axis=(1, 2)) <= most * np.abs(wanted).max(axis=(1, 2))).all()


@pytest.mark.some(of=4, rest="matrix")
@pytest.mark.parametrize("integrator", ["semi_implicit_euler", "mujoco"])
@pytest.mark.parametrize("name", SCENES)
def test_steps_by_differences(name, integrator, make_dynamics):
    model, q = scene(name)
    options = {"dt": 0.004, "integrator": integrator, **parameters(model, 3)}
    dyn = make_dynamics(model, joint_forces=("damping",), check=False)
    exact = rd.Dynamics(model, joint_forces=("damping",), engine="cpu")
    state, nv = pushed(model, q, 3), model.nv
    out = np.full((3, 2 * nv, 2 * nv), np.nan, dyn.dtype), np.full((3, 2 * nv, nv), np.nan, dyn.dtype)
    A, B = dyn.step_gradient(*state, **options, out=out)
    middle = exact.step(*state, **options)[0]

    def after(*state):
        q, qd = exact.step(*state, **options)
        return np.concatenate([model.difference(middle, q), qd], axis=-1)

    most = 1e-5 if dyn.dtype == np.float64 else 2e-2
    by_q, by_qd, by_tau = (slope(after, state, k, model) for k in range(3))
    for got, wanted in ((A[..., :nv], by_q), (A[..., nv:], by_qd), (B, by_tau)):
        for rows in (slice(0, nv), slice(nv, None)):
            assert np.abs(got[:, rows] - wanted[:, rows]).max() <= most * np.abs(wanted[:, rows]).max()


def of_mujoco(convert, model, q, qd, h=1e-6):
    """(2 nv, 2 nv): changes of a state on MuJoCo's tangent space by those on this package's."""
    T = np.zeros((2 * model.nv, 2 * model.nv))
    for j, e in enumerate(np.eye(model.nv)):
        T[: model.nv, j] = T[model.nv :, model.nv + j] = convert.v_to(q, e)
        ahead, behind = (convert.v_to(model.integrate(q, s * e), qd) for s in (h, -h))
        T[model.nv :, j] = (ahead - behind) / (2.0 * h)
    return T


@pytest.mark.parametrize(
    ("cone", "name"),
    [
        ("elliptic", "swung"),
        pytest.param("elliptic", "", marks=pytest.mark.matrix),
        pytest.param("pyramidal", HELD, marks=pytest.mark.matrix),
    ],
)
def test_steps_as_transitions_of_mujoco(cone, name):
    m = theirs_of(SWUNG if name == "swung" else quadruped("floating", name), cone, 1.0)
    model = rd.load_mjcf(m, contacts=True)
    dyn, convert, nv = rd.Dynamics(model, joint_forces=("damping",)), rd.converter(model, "mujoco"), model.nv
    states, d = visited(m, 40)[4::6], mujoco.MjData(m)
    q, qd, tau, _ = converted(model, m, states)
    assert ((dyn.contact_distances(q) < 0.0).sum(axis=1) > 0).sum() > 3
    A, _ = dyn.step_gradient(q, qd, tau, m.opt.timestep, integrator="mujoco")
    q_next, qd_next = dyn.step(q, qd, tau, m.opt.timestep, integrator="mujoco")
    off, wanted = [], np.zeros((2 * nv, 2 * nv))
    for k, (qpos, qvel, applied, _) in enumerate(states):
        d.qpos[:], d.qvel[:], d.qfrc_applied[:] = qpos, qvel, applied
        mujoco.mj_forward(m, d)
        mujoco.mjd_transitionFD(m, d, 1e-6, True, wanted, None, None, None)
        got = of_mujoco(convert, model, q_next[k], qd_next[k]) @ A[k]
        got = got @ np.linalg.inv(of_mujoco(convert, model, q[k], qd[k]))
        off.append(np.abs(got - wanted).max() / np.abs(wanted).max())
    print("transition matrices, relative error:", *(f"{each:.0e}" for each in off))
    assert np.median(off) <= 1e-6 and np.quantile(off, 0.8) <= 1e-4  # differences across kinks are off


@pytest.mark.parametrize("integrator", [pytest.param("semi_implicit_euler", marks=pytest.mark.matrix), "mujoco"])
def test_rollouts_by_differences(integrator):
    model, q = scene("grasped")
    dyn, steps, rng = rd.Dynamics(model, joint_forces=("damping",)), 12, np.random.default_rng(3)
    q0, qd0, _ = pushed(model, q, 3)
    tau = rng.normal(0.0, 0.1, (steps, 3, model.nv))
    options = {"dt": 0.002, "steps": steps, "integrator": integrator}
    of_q, of_qd = rng.normal(0.0, 1.0, (2, steps + 1, 3, model.nv))

    def value(**arrays):
        run = dyn.rollout(**arrays, **options)
        return (run.q * of_q).sum() + (run.qd * of_qd).sum()

    assert not model.quaternion_starts.size  # differences of q are those of coordinates
    arrays = {"q0": q0, "qd0": qd0, "tau": tau, "inertia": model.inertia, "gravity": np.array([1.0, 2.0, -9.0])}
    arrays["contact_friction"] = np.array([[0.3], [0.5], [0.7]])
    found = dyn.rollout_vjp(**arrays, **options, q_weight=of_q, qd_weight=of_qd, wrt=tuple(arrays))
    for name, array in arrays.items():
        along = rng.normal(0.0, 1.0, array.shape)
        along = along * np.abs(array) if name == "inertia" else along
        ahead, behind = (value(**{**arrays, name: array + h * along}) for h in (1e-6, -1e-6))
        assert (found[name] * along).sum() == pytest.approx((ahead - behind) / 2e-6, rel=1e-6)
    plain = rd.Dynamics(model, joint_forces=("damping",), engine="reference")  # goes back by matrices
    wanted = plain.rollout_vjp(q0, qd0, tau, **options, q_weight=of_q, qd_weight=of_qd)
    for _ in range(3):  # calls like those before, too
        again = dyn.rollout_vjp(q0, qd0, tau, **options, q_weight=of_q, qd_weight=of_qd)
        _, of_value = dyn.rollout_gradient(lambda run: (0.0, of_q, of_qd), q0, qd0, tau, **options)
        for name, each in wanted.items():
            for got in (again, of_value):
                assert np.abs(got[name] - each).max() <= 1e-9 * np.abs(each).max()


@pytest.mark.some(of=4, rest="matrix")
def test_nan_stays_in_its_row_of_derivatives(make_dynamics):
    model, q = scene("grasped")
    dyn = make_dynamics(model)
    q, qd, tau = pushed(model, q, 5)
    right = dyn.contact_forward_dynamics_gradient(q, qd, tau)
    q[1, 2], qd[3, 2] = np.nan, np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = dyn.contact_forward_dynamics_gradient(q, qd, tau)
    for got, wanted in zip(found, right, strict=True):
        bad = np.isnan(got).any(axis=(1, 2))
        assert bad[1] and not bad[[0, 2, 4]].any()
        assert np.array_equal(got[[0, 2, 4]], wanted[[0, 2, 4]])
    one = dyn.contact_forward_dynamics_gradient(q[0], qd[0], tau[0])
    assert [each.shape for each in one] == 3 * [(model.nv, model.nv)]


def test_programs_refuse_orders_that_they_lack():
    model, _ = scene("grasped")
    step = contact_step_answer(model, 0.0, "mujoco", True, ("q", "qd", "tau", "dt"))
    third = TaskCall(rd.Dynamics(model), "a step", step).against(("tau",)).along(("q",)).along(("q",))
    with pytest.raises(rd.UnavailableError, match="a step: derivatives of order 4"):
        third.along(("q",))


def test_derivatives_refuse_a_choice_of_slots_by_name():
    model, q = on_feet(max_contacts=2)
    dyn, (qd, tau) = rd.Dynamics(model), np.zeros((2, model.nv))
    for call in (
        lambda: dyn.contact_forward_dynamics_gradient(q, qd, tau),
        lambda: dyn.step_gradient(q, qd, tau, 1e-3),
        lambda: dyn.rollout_vjp(q, qd, tau, 1e-3, 2, q_weight=np.ones(model.nv)),
    ):
        with pytest.raises(rd.UnavailableError, match="max_contacts=2"):
            call()


def test_programs_have_derivatives_by_what_no_row_changes():
    """A slider of constant mass beside a pendulum in contact: its acceleration is tau times a number."""
    model = rd.load_mjcf(
        """<mujoco><worldbody><geom type="plane" size="9 9 .1"/><body pos="0 0 .3"><joint axis="0 1 0"/>
        <geom size=".1" pos=".5 0 -.21"/></body>
        <body pos="3 3 3"><joint type="slide" axis="0 0 1"/><geom size=".1"/></body></worldbody></mujoco>""",
        contacts=True,
    )
    dyn, state = (
        rd.Dynamics(model, joint_forces=()),
        (np.array([0.02, 0.0]), np.array([0.1, 0.2]), np.array([0.3, 0.4])),
    )
    assert (dyn.contact_distances(state[0]) < 0.0).any()
    call = TaskCall(dyn, "accelerations", contact_answer(model, ("q", "qd", "tau"))).along(("tau",))
    wanted = dyn.contact_forward_dynamics_gradient(*state)[2]
    for k, rate in enumerate(np.eye(2)):
        qdd_rate, _ = call.answers(*state, rate)
        assert np.abs(qdd_rate - wanted[:, k]).max() <= 1e-9 * np.abs(wanted).max()
