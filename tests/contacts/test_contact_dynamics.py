"""Accelerations, forces and steps with contacts: against MuJoCo's Newton solver, and by invariants."""

from __future__ import annotations

import dataclasses
import warnings
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from robots import own

import robodyn as rd
from robodyn.api.motion.run import Run
from robodyn.api.motion.step_spec import step_solver
from robodyn.api.queries.contacts import Solver

mujoco = pytest.importorskip("mujoco")

FEET = ("front_left_foot", "front_right_foot", "hind_left_foot", "hind_right_foot")
CONES = [("pyramidal", 1.0), ("pyramidal", 10.0), ("elliptic", 1.0), ("elliptic", 10.0), ("elliptic", 100.0)]
EXTRA = {
    "plain": "",
    "held": """<equality><connect body1="front_left_foot" body2="hind_left_foot" anchor="0.1 0 0.02"/>
               <joint joint1="front_right_hip" joint2="hind_right_hip" polycoef="0.05 0.8 0 0 0"/></equality>""",
}


def quadruped(base: str, extra: str, softness: str = "") -> str:
    """MJCF of the quadruped with a sphere on each foot, a floor, damping, limits and dry friction."""
    root = ET.fromstring(str(rd.load_urdf(own("quadruped"), base=base).to_mjcf()))
    floor = ET.fromstring('<geom type="plane" size="9 9 .1" friction=".8 .005 .0001"/>')
    world = root.find("worldbody")
    assert world is not None
    world.append(floor)
    for body in world.iter("body"):
        if body.get("name") in FEET:
            body.append(ET.fromstring(f'<geom type="sphere" size="0.02" mass="0" friction="0.6" {softness}/>'))
        for joint in body.findall("joint"):
            if joint.get("type", "hinge") == "hinge":
                joint.set("frictionloss", "0.4")
                joint.set("damping", "1")
                joint.set("range", "-1.5 0.75")
                joint.set("limited", "true")
    root.extend(ET.fromstring(f"<root>{extra}</root>"))
    return ET.tostring(root, encoding="unicode")


def balls() -> str:
    """Three free balls that touch each other and the floor: margins, both forms of solref, no friction."""
    forms = (
        'margin="0.01" friction="0.7"',
        'solref="-900 -30" solimp="0.8 0.97 0.004 0.4 3" friction="0.5"',
        'condim="1" priority="1" solref="0.005 0.9"',
    )
    places = ("0 0 0.049", "0.03 0.01 0.14", "0.06 -0.05 0.045")
    bodies = "".join(
        f'<body pos="{at}"><freejoint/><geom size="0.05" mass="{k + 1}" {form}/></body>'
        for k, (at, form) in enumerate(zip(places, forms, strict=True))
    )
    return f'<mujoco><worldbody><geom type="plane" size="9 9 .1"/>{bodies}</worldbody></mujoco>'


def theirs_of(text: str, cone: str, impratio: float):
    """MuJoCo's model, solved to rounding."""
    m = mujoco.MjModel.from_xml_string(text)
    m.opt.cone, m.opt.impratio, m.opt.solver, m.opt.tolerance = ("pyramidal", "elliptic").index(cone), impratio, 2, 0.0
    m.opt.iterations, m.opt.ls_iterations = 200, 100
    return m


def visited(m, count: int, seed: int = 0):
    """States (q, qd, tau, qdd) of MuJoCo in contact, pushed about."""
    print(f"states of MuJoCo: seed {seed}")
    d, rng, found = mujoco.MjData(m), np.random.default_rng(seed), []
    legs = m.nu == 0 and m.njnt > 10
    if legs:
        d.qpos[-12:] = np.tile([0.0, 0.7, -1.4], 4)
        d.qpos[-17 if m.nq > 12 else 0 :][:0] = 0.0
        if m.nq > 12:
            d.qpos[2] = 0.32
    goal = d.qpos[-12:].copy()
    for k in range(count * 6):
        d.qfrc_applied[:] = 0.0
        if legs:
            d.qfrc_applied[-12:] = 80.0 * (goal - d.qpos[-12:]) - 2.0 * d.qvel[-12:] + rng.normal(0, 5, 12)
        if k % 60 == 59:
            d.qvel[:] += rng.normal(0, 0.5, m.nv)
        mujoco.mj_step(m, d)
        if k % 6 == 5:
            mujoco.mj_forward(m, d)
            found.append([each.copy() for each in (d.qpos, d.qvel, d.qfrc_applied, d.qacc)])
    return found


def converted(model, m, states):
    """The states in this package's conventions."""
    c, rows = rd.converter(model, "mujoco"), []
    for qpos, qvel, applied, qacc in states:
        q = c.q_from(qpos)
        v = c.v_from(q, qvel)
        rows.append((q, v, c.tau_from(q, applied), c.a_from(q, v, qacc)))
    return [np.array(column) for column in zip(*rows, strict=True)]


def on_feet(**options):
    """The quadruped on four spheres, and a state that stands on them."""
    model = rd.load_urdf(own("quadruped"), base="floating")
    contacts = [rd.Contact(rd.Sphere(foot, radius=0.02), rd.Plane(), friction=0.8) for foot in FEET]
    q = model.neutral()
    q[7:] = np.tile([0.0, 0.8, -1.6], 4)
    q[2] = 0.0195 - rd.Dynamics(model).forward_kinematics(q)[model.link_index(FEET[0]), 2, 3]
    return model.with_contacts(contacts, **options), q


@pytest.mark.some(of=16, rest="matrix")
@pytest.mark.parametrize(("cone", "impratio"), CONES)
@pytest.mark.parametrize("scene", ["floating plain", "fixed held", "floating held", "balls"])
def test_accelerations_are_those_of_mujoco(scene, cone, impratio, make_dynamics):
    text = balls() if scene == "balls" else quadruped(scene.split()[0], EXTRA[scene.split()[1]])
    m = theirs_of(text, cone, impratio)
    model = rd.load_mjcf(m, contacts=True)
    dyn = make_dynamics(model, joint_forces=("damping",))
    few, pairs = dyn.engine.name == "reference", model.contacts.slot_pairs
    q, qd, tau, wanted = converted(model, m, visited(m, 12 if few else 60))
    out = (
        np.full(qd.shape, np.nan, dyn.dtype),
        np.full((len(q), len(model.contacts.slot_pairs), 3), np.nan, dyn.dtype),
    )
    qdd, f = dyn.contact_forward_dynamics(q, qd, tau, out=out)
    assert qdd is out[0] and f is out[1] and np.isfinite(f).all()
    size = np.maximum(1.0, np.abs(wanted).max(axis=1, keepdims=True))
    error = (np.abs(qdd - wanted) / size).max(axis=1)
    if dyn.dtype == np.float64:
        assert error.max() <= 1e-9
    else:  # rounding decides whether shapes touch that are within it
        assert np.quantile(error, 0.8) <= 5e-3
    one = dyn.contact_forward_dynamics(q[3], qd[3], tau[3])
    assert np.abs(one[0] - qdd[3]).max() <= (1e-9 if dyn.dtype == np.float64 else 1e-3) * size[3]
    mu = np.array([model.contacts.pairs[k].friction for k in pairs])
    slid = np.abs(f[..., 1:]) / mu
    slid = slid.sum(axis=-1) if cone == "pyramidal" else np.hypot(*np.moveaxis(slid, -1, 0))
    assert (f[..., 0] >= 0.0).all() and (slid <= f[..., 0] * (1.0 + 1e-5) + 1e-9 * size).all()


@pytest.mark.some(of=2, rest="matrix")
def test_forces_at_rest_carry_the_weight(make_dynamics):
    model, q = on_feet()
    dyn = make_dynamics(model, joint_forces=("damping",))
    steps = 400 if dyn.engine.name == "cpu" else 3
    goal = q[7:].copy()

    def policy(t, q, qd):
        tau = np.zeros((*q.shape[:-1], model.nv), q.dtype)
        tau[..., 6:] = 40.0 * (goal - q[..., 7:]) - 0.5 * qd[..., 6:]
        return tau

    report = dyn.rollout(np.stack([q, q]), np.zeros((2, model.nv)), policy=policy, dt=0.002, steps=steps)
    assert report.converged.shape == (2,) and report.converged.all()
    if steps > 100:
        end = report.q[-1], report.qd[-1]
        _, f = dyn.contact_forward_dynamics(*end, policy(0.0, *end))
        assert f[:, :, 0].sum(axis=-1) == pytest.approx(9.81 * model.total_mass, rel=2e-2)
        assert np.abs(end[1]).max() < 0.05


@pytest.mark.some(of=2, rest="matrix")
def test_a_step_moves_with_the_new_velocities(make_dynamics):
    model, q = on_feet(dry_friction=False)
    dyn, rng = make_dynamics(model, joint_forces=()), np.random.default_rng(0)
    qd, tau = rng.normal(0.0, 0.3, (2, 5, model.nv))
    exact = 1e-12 if dyn.dtype == np.float64 else 1e-5
    state = [each.astype(dyn.dtype) for each in (q, qd[2], tau[2])]
    for dt in (0.004, 0.001, 0.03):  # the last one bounds the time constants of contacts
        qdd, _ = dyn.contact_forward_dynamics(q, qd, tau, dt=dt)
        wanted = qd + dt * qdd
        moved, ahead = dyn.step(q, qd, tau, dt)
        assert np.abs(ahead - wanted).max() <= exact * np.abs(wanted).max()
        assert np.abs(moved - model.integrate(q, wanted, dt)).max() <= exact
        for _ in range(2):  # by a call that is prepared
            one = dyn.step(*state, dt)
            assert np.abs(one[0] - moved[2]).max() <= exact and np.abs(one[1] - ahead[2]).max() <= 30.0 * exact


def test_time_steps_share_a_program():
    model, _ = on_feet()
    contacts, dyn = model.contacts, rd.Dynamics(model)
    assert contacts is not None and [contacts.bounding(dt) for dt in (1e-3, 0.01, 0.02)] == [0.0, 0.0, 0.02]
    tasks = {id(step_solver(dyn, "mujoco", dt).task(("q", "qd", "tau", "dt"))) for dt in (1e-3, 2e-3, 0.01)}
    assert len(tasks) == 1


def tray():
    """A plate with three feet that slides up and down and turns, on an elliptic cone: many blocks of iterations."""
    plate = """<robot name="tray"><link name="ground"/><link name="rod"><inertial><mass value="0.4"/>
    <inertia ixx="1e-3" iyy="1e-3" izz="1e-3" ixy="0" ixz="0" iyz="0"/></inertial></link>
    <link name="plate"><inertial><mass value="0.9"/>
    <inertia ixx="4e-3" iyy="5e-3" izz="6e-3" ixy="0" ixz="0" iyz="0"/></inertial></link>
    <joint name="slide" type="prismatic"><parent link="ground"/><child link="rod"/><axis xyz="0 0 1"/>
    <limit effort="9" velocity="9" lower="-9" upper="9"/><dynamics damping="0.3"/></joint>
    <joint name="turn" type="continuous"><parent link="rod"/><child link="plate"/><axis xyz="0.1 0.2 1"/>
    <dynamics damping="0.1"/></joint></robot>"""
    feet = [rd.Sphere("plate", at=at, radius=0.02) for at in ((0.2, 0.0, 0.0), (-0.1, 0.2, 0.0), (-0.1, -0.2, 0.0))]
    contacts = [rd.Contact(foot, rd.Plane()) for foot in feet]
    return rd.load_urdf(plate).with_contacts(contacts, cone="elliptic", impratio=10.0), np.array([0.02, 0.0])


@pytest.mark.parametrize(("dtype", "rows"), [(np.float64, ()), (np.float32, (3,)), (np.float64, (300,))])
def test_built_in_functions_answer_as_methods(dtype, rows, monkeypatch):
    """From the third call on, also for states that need many blocks of iterations; but not for NaN."""
    model, q = tray()
    dyn, rng = rd.Dynamics(model, dtype=dtype, engine="cpu", joint_forces=("damping",)), np.random.default_rng(0)
    asked, solve = [], Solver.solve
    monkeypatch.setattr(Solver, "solve", lambda *given: asked.append(1) or solve(*given))
    pushed = {"f_ext": rng.normal(size=(*rows, model.n_bodies, 6)).astype(dtype), "dV0": np.full(6, 0.5, dtype)}
    q = np.tile(q, (*rows, 1)).astype(dtype)
    for named in ({}, pushed):
        qd, tau = (rng.normal(0.0, 1.0, (*rows, model.nv)).astype(dtype) for _ in range(2))
        calls = [
            lambda qd, tau=tau, named=named: dyn.contact_forward_dynamics(q, qd, tau, 0.004, **named),
            lambda qd, tau=tau, named=named: dyn.step(q, qd, tau, 0.004, integrator="mujoco", **named),
            lambda qd, tau=tau, named=named: dyn.contact_forward_dynamics_gradient(q, qd, tau, 0.004, **named),
            lambda qd, named=named: dyn.step_gradient(q, qd, dt=0.004, integrator="mujoco", **named),
            lambda qd, named=named: dyn.step(q, qd, dt=0.004, **named),
        ]
        for k, call in enumerate(calls):
            wanted = call(qd)
            call(qd)
            asked.clear()
            found = call(qd)
            assert not asked or (rows and k in (2, 3))  # batches of derivatives are left to the methods
            for a, b in zip(found, wanted, strict=True):
                assert np.abs(a - b).max() <= 30.0 * np.finfo(dtype).eps * np.abs(b).max()
            if not rows:
                with pytest.raises(rd.NumericalError):
                    call(np.full_like(qd, np.nan))
        if rows:  # a batch is its states
            k = rows[0] - 1
            alone = dyn.step(q[k], qd[k], dt=0.004, **{n: a[k] if a.ndim > 1 else a for n, a in named.items()})
            assert all(np.array_equal(a[k], b) for a, b in zip(found, alone, strict=True))


@pytest.mark.parametrize("rows", [(), (3,)])
def test_short_rollouts_are_built_in(rows, monkeypatch):
    model, q = tray()
    dyn, qd = rd.Dynamics(model, engine="cpu"), np.random.default_rng(1).normal(0.0, 1.0, (*rows, model.nv))
    q, asked = np.tile(q, (*rows, 1)), []
    monkeypatch.setattr(Run, "__init__", lambda *given, init=Run.__init__, **named: asked.append(init(*given, **named)))
    for policy in (None, lambda t, q, qd: -0.1 * qd):
        wanted = dyn.rollout(q, qd, dt=0.002, steps=20, integrator="mujoco", policy=policy)
        asked.clear()
        found = dyn.rollout(q, qd, dt=0.002, steps=20, integrator="mujoco", policy=policy)
        assert not asked and np.array_equal(found.q, wanted.q)
        assert found.converged.shape == rows and found.converged.all()
    weights = np.random.default_rng(2).normal(0.0, 1.0, (2, 21, *rows, model.nv))
    options = {"dt": 0.002, "steps": 20, "integrator": "mujoco", "q_weight": weights[0], "qd_weight": weights[1]}
    back = dyn.rollout_vjp(q, qd, **options)
    asked.clear()
    for name, each in dyn.rollout_vjp(q, qd, **options).items():
        assert not asked and np.abs(each - back[name]).max() <= 1e-11 * np.abs(back[name]).max()


@pytest.mark.some(of=2, rest="matrix")
def test_nan_stays_in_its_row(make_dynamics):
    model, q = on_feet()
    dyn = make_dynamics(model)
    states, qd = np.tile(q, (11, 1)), np.zeros((11, model.nv))
    right = dyn.contact_forward_dynamics(states, qd, qd)
    states[4, 9], qd[7, 2] = np.nan, np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = dyn.contact_forward_dynamics(states, qd, np.zeros_like(qd))
    for got, wanted in zip(found, right, strict=True):
        bad = np.isnan(got).reshape(11, -1).any(axis=1)
        assert bad.nonzero()[0].tolist() == [4, 7]
        assert np.array_equal(got[~bad], wanted[~bad])
    with pytest.raises(rd.NumericalError):
        dyn.contact_forward_dynamics(states[4], qd[0], qd[0])


def test_rows_that_do_not_converge_are_named():
    model, q = on_feet(cone="elliptic", impratio=100.0, iterations=1)
    dyn, rng = rd.Dynamics(model), np.random.default_rng(3)
    qd = rng.normal(0.0, 1.0, (40, model.nv))
    found = []
    for _ in range(3):  # built-in functions leave it to the method
        with pytest.warns(rd.ConvergenceWarning, match="contact_forward_dynamics: contact forces did not converge"):
            found.append(dyn.contact_forward_dynamics(q, qd, np.zeros_like(qd)))
    assert np.array_equal(found[0][0], found[2][0]) and np.isfinite(found[2][0]).all()
    with pytest.warns(rd.ConvergenceWarning, match="rollout"):
        assert not dyn.rollout(np.tile(q, (40, 1)), qd, dt=0.002, steps=1).converged.all()


def test_wrong_values_are_refused_by_name():
    foot, floor = rd.Sphere(FEET[0], radius=0.02), rd.Plane()
    model, q = on_feet()
    for named, wrong in (
        ("friction", {"friction": -0.1}),
        ("friction", {"friction": (0.1, 0.2, 0.3)}),
        ("solref", {"solref": (0.02, -1.0)}),
        ("solimp", {"solimp": (0.9, 0.95)}),
        ("solimp", {"solimp": (0.9, 0.95, 0.001, 0.5, 2.3)}),
        ("margin", {"margin": -1.0}),
        ("condim", {"condim": 5}),
        ("torsional", {"torsional": -1.0}),
        ("rolling", {"rolling": (0.1, 0.2, 0.3)}),
    ):
        with pytest.raises(rd.RobodynError, match=f"Contact.{named}: got"):
            rd.Contact(foot, floor, **wrong)
    with pytest.raises(rd.UnavailableError, match="a plane and a plane"):
        rd.Contact(floor, rd.Plane())
    for named, call in (
        ("cone", lambda: model.with_contacts([], cone="round")),
        ("impratio", lambda: model.with_contacts([], impratio=0.0)),
        ("iterations", lambda: model.with_contacts([], iterations=0)),
        (r"contacts\[0\].first.link", lambda: model.with_contacts([rd.Contact(rd.Sphere("x", radius=1.0), floor)])),
        (r"contacts\[0\]", lambda: model.with_contacts([rd.Contact(foot, rd.Sphere(FEET[0], radius=0.1))])),
        ("contacts", lambda: model.with_contacts([foot])),
        ("contacts", lambda: rd.Dynamics(model, contacts=[foot])),
        ("contacts", lambda: dataclasses.replace(model, contacts="feet")),
    ):
        with pytest.raises(rd.ArgumentError, match=f"^{named}: got"):
            call()
    with pytest.raises(rd.UnavailableError, match=r"^with_contacts: .* 251 bodies.*at most 250"):
        rd.random_tree(251, seed=0).with_contacts([])
    zero = np.zeros(model.nv)
    dyn = rd.Dynamics(model)
    with pytest.raises(rd.UnavailableError, match=r"^limits: got 'effort' .*effort_limit"):
        dyn.step(q, zero, zero, limits="effort")
    with pytest.raises(rd.ArgumentError, match="has no contacts"):
        rd.Dynamics(model, contacts=()).contact_forward_dynamics(q, zero, zero)
    with pytest.raises(rd.ArgumentError, match="dt: got 0"):
        dyn.contact_forward_dynamics(q, zero, zero, dt=0.0)
    _, f = dyn.contact_forward_dynamics(q, zero, zero, dt=1e300)  # time constants of 2 dt: no stiffness is left
    assert np.isfinite(f).all()
    with pytest.raises(rd.NumericalError):
        dyn.step(q, zero, zero, dt=1e300)
    with pytest.raises(rd.ArgumentError, match="dry friction"):
        rd.Dynamics(model, joint_forces=("friction",)).step(q, zero, zero)
    for refused in (
        lambda: dyn.step(q, zero, zero, integrator="rk4"),
        lambda: dyn.step(q, zero, zero, limits="velocity"),
        lambda: dyn.step(q, zero, zero, limits="position"),
        lambda: dyn.step(q, zero, zero, V0=np.zeros(6)),
        lambda: dyn.step_gradient(q, zero, zero, integrator="implicit"),
        lambda: dyn.rollout_vjp(q, zero, zero, steps=3, kp=zero, q_des=q, q_weight=zero),
        lambda: rd.simulate(model, q, zero, 0.1),
        lambda: rd.Dynamics(model, engine="scan").contact_forward_dynamics(q, zero, zero),
    ):
        with pytest.raises(rd.UnavailableError, match="contacts"):
            refused()


def test_models_keep_their_contacts(tmp_path):
    model, _ = on_feet(cone="elliptic", impratio=3.0)
    model.save(tmp_path / "feet.npz")
    again = rd.Model.load(tmp_path / "feet.npz")
    assert again == model and again.contacts == model.contacts
    framed = model.with_frames({"cap": (FEET[0], (0.0, 0.0, 0.1))})
    assert framed.contacts == model.contacts
    locked = model.lock({"front_left_knee": None})
    assert locked.contacts is not None
    assert len(locked.contacts.pairs) == 4 and len(locked.contacts.limits) == len(model.contacts.limits) - 1
    assert rd.Dynamics(locked).contact_forward_dynamics(locked.neutral(), np.zeros(locked.nv), np.zeros(locked.nv))[
        1
    ].shape == (4, 3)
    (_, here), (_, there) = ((foot, rd.Sphere(foot, radius=0.02)) for foot in FEET[:2])
    crossing = model.with_contacts([rd.Contact(here, there)]).lock(dict.fromkeys(model.joint_names[1:7]))
    assert crossing.contacts is not None and crossing.contacts.pairs == ()
    assert [each.code for each in crossing.report][-1] == "contact-dropped"
    for edit in (lambda: model.subtree("trunk"), lambda: model.attach(model, "trunk", prefix="b_")):
        with pytest.raises(rd.UnavailableError, match="contacts"):
            edit()
    assert any("contacts" in each.message for each in model.to_urdf().report)


@pytest.mark.some(of=4, rest="matrix")
def test_quaternions_of_any_length(make_dynamics, tolerance):
    """Also in calls that machine code answers, and where a row depends on a quaternion: the limit of a ball joint."""
    model = rd.load_mjcf(
        """<mujoco><worldbody><geom type="plane" size="9 9 .1"/>
        <body pos="0 0 .3"><joint type="ball" range="0 30"/><geom type="capsule" fromto="0 0 0 .4 0 0" size=".03"/>
        </body>
        <body pos="0 2 .04"><freejoint/><geom size=".05"/></body></worldbody></mujoco>""",
        contacts=True,
    )
    dyn, nv = make_dynamics(model), model.nv
    q = model.integrate(model.neutral(), 0.6 * np.eye(nv)[1] + 0.3 * np.eye(nv)[-2])
    longer, qd, tau = q.copy(), np.linspace(-2.0, 2.0, nv), np.zeros(nv)
    for start in model.quaternion_starts:
        longer[start : start + 4] *= 3.0
    wanted = dyn.contact_forward_dynamics(q, qd, tau)[0]
    assert np.abs(dyn.contact_forward_dynamics(longer, qd, tau)[0] - wanted).max() <= tolerance * np.abs(wanted).max()
    for integrator in ("semi_implicit_euler", "mujoco"):
        after = dyn.step(q, qd, tau, 0.01, integrator=integrator)
        for _ in range(3):
            for got, right in zip(dyn.step(longer, qd, tau, 0.01, integrator=integrator), after, strict=True):
                assert np.abs(got - right).max() <= tolerance * np.abs(right).max()


def test_another_engine_answers_after_a_swap():
    """Built-in functions, also those that a user keeps, go to the methods."""
    model, q = on_feet()
    qd, tau = np.zeros((2, model.nv))
    dyn, other = rd.Dynamics(model), rd.Dynamics(model, engine="reference")
    calls = {
        "contact_forward_dynamics": (q, qd, tau, 0.002),
        "contact_forward_dynamics_gradient": (q, qd, tau, 0.002),
        "step": (q, qd, tau, 0.002),
        "step_gradient": (q, qd, tau, 0.002),
    }
    kept = {}
    for name, arguments in calls.items():
        for _ in range(3):
            getattr(dyn, name)(*arguments)
        kept[name] = getattr(dyn, name)
    dyn.engine = other.engine
    for name, arguments in calls.items():
        wanted = getattr(other, name)(*arguments)
        for function in (getattr(dyn, name), kept[name], kept[name]):
            for one, each in zip(function(*arguments)[:2], wanted[:2], strict=True):
                np.testing.assert_allclose(one, each, rtol=0, atol=1e-7 * max(1.0, np.abs(each).max()))
