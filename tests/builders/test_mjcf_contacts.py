"""Contacts, limits, dry friction and equalities of MJCF: accelerations are those of MuJoCo's Newton solver."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from robots import own

import robodyn as rd

mujoco = pytest.importorskip("mujoco")

BALLS = """<body name="bl" pos="0 0 .05"><freejoint/><geom name="low" size=".05" mass="2" {low}/></body>
<body name="bh" pos=".03 .01 .14"><freejoint/><geom name="high" size=".05" mass="1" {high}/></body>"""
ARM = """<body pos="0 0 .2"><joint axis="0 1 0" range="-20 20" damping=".1" {joint}/>
<geom type="capsule" fromto="0 0 0 .3 0 0" size=".03"/><body pos=".3 0 0"><joint axis="0 .6 .8" {joint}/>
<geom type="capsule" fromto="0 0 0 .3 0 0" size=".03"/></body></body>"""
WELDED = """<body pos="0 0 .1"><freejoint/><geom type="box" size=".1 .1 .02" mass="2"/><body pos=".1 0 0">
<geom type="box" size=".02 .02 .1" pos="0 0 -.05" mass=".3"/><body pos="0 0 -.1"><geom size=".03" mass=".01"/></body>
</body></body>"""

TURNED = BALLS.format(low='condim="6" friction=".8 .02 .01"', high='condim="4" friction=".5 .03 0"') + (
    """<body pos=".5 0 .05" euler="3 2 50"><freejoint/>
    <geom type="box" size=".1 .07 .05" condim="6" contype="2" conaffinity="1"/></body>"""
)


def scene(body, option="", extra="", floor=""):
    return f"""<mujoco><compiler autolimits="true"/><option timestep=".002" {option}/><worldbody>
    <geom name="floor" type="plane" size="9 9 .1" {floor}/>{body}</worldbody>{extra}</mujoco>"""


PAIR = '<contact><pair geom1="low" geom2="floor" friction=".8 .3 .005 .001 .001" margin=".01"/></contact>'
SCENES = {
    "priorities, mixing": scene(
        BALLS.format(low='solmix="3" friction=".3" solref="-900 -30"', high='solref=".01 2" solimp=".8 .9 .01 .3 2"'),
        floor='priority="1" friction=".7" solimp=".5 .95 .01"',
    ),
    "margins": scene(BALLS.format(low='margin=".01" gap=".004"', high='margin=".02"')),
    "an explicit pair": scene(BALLS.format(low="", high=""), extra=PAIR),
    "limits and dry friction": scene(
        ARM.format(joint='frictionloss=".3" margin=".2" solreflimit="-500 -20" solimpfriction=".8 .95 .01"')
    ),
    "of a body behind a fixed joint": scene(WELDED),
    "elliptic": scene(BALLS.format(low="", high='condim="1"'), 'cone="elliptic" impratio="10"'),
    "friction against turning and rolling": scene(TURNED),
    "elliptic friction against turning and rolling": scene(TURNED, 'cone="elliptic" impratio="3"'),
    "connect": scene(
        '<body name="a" pos="0 0 .04"><freejoint/><geom size=".05" mass="1"/></body>'
        '<body name="b" pos=".2 0 .1"><freejoint/><geom type="box" size=".05 .03 .02" mass="1"/></body>',
        extra='<equality><connect body1="a" body2="b" anchor=".1 0 0" solref=".05 1"/></equality>',
    ),
    "welds": scene(
        '<body name="a" pos="0 0 .04" euler="10 20 30"><freejoint/><geom size=".05" mass="1"/></body>'
        '<body name="b" pos=".2 0 .1"><freejoint/><geom type="box" size=".05 .03 .02" mass="1"/></body>'
        '<body name="c" pos="0 .5 .1"><freejoint/><geom type="capsule" size=".05 .03" mass="1"/></body>',
        extra='<equality><weld body1="a" body2="b" relpose=".2 0 0 .9 .3 .2 .1" anchor=".1 0 0" solref=".05 1"/>'
        '<weld body1="c"/></equality>',
    ),
    "a coupling of joints": scene(
        '<body pos="0 0 .3"><joint name="j1" axis="0 1 0"/><geom size=".05" mass="1" pos=".2 0 0"/></body>'
        '<body pos="1 0 .3"><joint name="j2" axis="0 1 0"/><geom size=".05" mass="1" pos=".2 0 0"/></body>',
        extra='<equality><joint joint1="j1" joint2="j2" polycoef=".1 -.7 0 0 0" solref=".05 1"/></equality>',
    ),
    "boxes and capsules on spheres, static and moved bodies": scene(
        """<geom type="box" size=".2 .2 .1" pos="0 0 .1"/><body pos="0 .02 .24"><freejoint/><geom size=".05"/></body>
        <body mocap="true" pos=".3 0 .1"><geom size=".1"/></body>
        <body pos=".3 .01 .24"><freejoint/><geom type="capsule" size=".03 .04"/></body>"""
    ),
    "the range of a ball joint": scene(
        """<body pos="0 0 .5"><joint type="ball" range="0 20" margin=".05" damping=".01" frictionloss=".02"/>
        <geom type="capsule" fromto="0 0 0 .2 0 .1" size=".03"/></body>"""
    ),
    "shorter than two steps": scene(BALLS.format(low='solref=".001 1"', high='solref=".001 1"')),
}


def exact(m):
    """Let MuJoCo's solver go to the end."""
    m.opt.solver, m.opt.tolerance, m.opt.iterations, m.opt.ls_iterations = 2, 0.0, 200, 100


def states(m, most, steps=400, seed=0):
    """States of a disturbed simulation in which rows act, those with most contacts first.

    Contacts at the very edge of acting are left out: rounding decides there.
    """
    d, rng, found = mujoco.MjData(m), np.random.default_rng(seed), []
    for k in range(steps):
        d.ctrl = rng.normal(0.0, 0.5, m.nu)
        if k % 100 == 60:
            d.qvel += rng.normal(0.0, 0.5, m.nv)
        mujoco.mj_step(m, d)
        if k % 20 == 0:
            mujoco.mj_forward(m, d)
            edge = np.abs(d.contact.dist - d.contact.includemargin)
            if d.nefc and not (edge < 1e-12).any():
                found.append((d.ncon, d.qpos.copy(), d.qvel.copy(), d.ctrl.copy(), d.act.copy()))
    print("seed", seed)
    return [each[1:] for each in sorted(found, key=lambda each: -each[0])[:most]]


def errors(m, model, some):
    """Errors of accelerations relative to the largest, one for each state."""
    dyn, convert, d = rd.Dynamics(model, joint_forces="damping"), rd.converter(model, "mujoco"), mujoco.MjData(m)
    found = []
    for qpos, qvel, ctrl, act in some:
        d.qpos, d.qvel, d.ctrl, d.act, d.qacc_warmstart = qpos, qvel, ctrl, act, 0.0
        mujoco.mj_forward(m, d)
        q = convert.q_from(qpos)
        qd = convert.v_from(q, qvel)
        tau = convert.tau_from(q, d.qfrc_actuator + d.qfrc_passive + m.dof_damping * qvel)
        qdd, _ = dyn.contact_forward_dynamics(q, qd, tau, dt=m.opt.timestep)
        wanted = convert.a_from(q, qd, d.qacc)
        found.append(np.abs(qdd - wanted).max() / max(1.0, np.abs(wanted).max()))
    return found


def drifts(m, model, start, steps=300):
    """How far states are from MuJoCo's after these steps under the forces that MuJoCo's actuators and springs have."""
    dyn, convert, d = rd.Dynamics(model, joint_forces="damping"), rd.converter(model, "mujoco"), mujoco.MjData(m)
    d.qpos, d.qvel, d.ctrl, d.act = start
    q0 = convert.q_from(d.qpos)
    qd0, forces = convert.v_from(q0, d.qvel), np.empty((steps, m.nv))
    for k in range(steps):
        mujoco.mj_forward(m, d)
        forces[k] = convert.tau_from(
            convert.q_from(d.qpos), d.qfrc_actuator + d.qfrc_passive + m.dof_damping * d.qvel
        )  # fmt: skip
        mujoco.mj_step(m, d)
    run = dyn.rollout(q0, qd0, forces, m.opt.timestep, steps, integrator="mujoco", save_every=None)
    assert run.converged.all()
    q = convert.q_to(run.q[-1])
    away = np.abs(q - d.qpos)
    for kind, at in zip(m.jnt_type, m.jnt_qposadr, strict=True):
        if kind in (mujoco.mjtJoint.mjJNT_FREE, mujoco.mjtJoint.mjJNT_BALL):
            part = slice(at + 3, at + 7) if kind == mujoco.mjtJoint.mjJNT_FREE else slice(at, at + 4)
            away[part] = np.minimum(away[part], np.abs(q + d.qpos)[part])
    return away.max()


@pytest.mark.parametrize("name", ["limits and dry friction", pytest.param("elliptic", marks=pytest.mark.matrix)])
def test_rollouts_are_mujocos(name):
    m = mujoco.MjModel.from_xml_string(SCENES[name])
    exact(m)
    model = rd.load_mjcf(m, contacts=True)
    for start in states(m, 2):
        assert drifts(m, model, start) < 1e-9


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.some(of=4, rest="matrix")
def test_accelerations_are_mujocos(name):
    m = mujoco.MjModel.from_xml_string(SCENES[name])
    exact(m)
    found = errors(m, rd.load_mjcf(m, contacts=True), states(m, 10))
    assert len(found) > 3 and max(found) < 1e-9


SCALED = '<weld body1="bl" body2="bh" torquescale="2"/>'
UNSUPPORTED = [
    (BALLS.format(low="", high=""), 'noslip_iterations="2"', "", "noslip iterations"),
    ('<body><freejoint/><geom type="ellipsoid" size=".05 .04 .03"/></body>', "", "", "ellipsoid"),
    (BALLS.format(low="", high=""), "", f"<equality>{SCALED}</equality>", "torquescale"),
    (BALLS.format(low='solimp=".5 .9 .01 .5 2.3" priority="1"', high=""), "", "", "a power of solimp of 2.3"),
    (
        '<body pos="0 0 .1"><freejoint/><geom type="box" size=".1 .1 .1"/></body>'
        '<body pos="0 0 .4"><freejoint/><geom type="box" size=".1 .1 .1"/></body>',
        "", "", "box and box",
    ),
    (
        '<body name="a" pos="0 0 .1"><joint name="j"/><geom size=".1"/></body>', "",
        '<tendon><fixed name="t" limited="true" range="0 1"><joint joint="j" coef="1"/></fixed></tendon>', "1 tendons",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("body", "option", "extra", "named"), UNSUPPORTED)
def test_what_contacts_cannot_do_is_refused_by_name_or_left_out_with_a_finding(body, option, extra, named):
    text = scene(body, option, extra)
    with pytest.raises(rd.UnavailableError, match=named):
        rd.load_mjcf(text, contacts=True)
    model = rd.load_mjcf(text, contacts=True, unsupported="ignore")
    assert any(each.code == "mjcf-contact" and named in str(each) for each in model.report)


def test_height_fields_are_where_mujoco_has_them():
    """A sphere whose centre is where a ray meets MuJoCo's field is as deep in ours as its radius."""
    rng = np.random.default_rng(0)
    elevation = " ".join(map(str, rng.uniform(0.0, 1.0, 48)))
    field = f'<asset><hfield name="h" nrow="8" ncol="6" size="1.2 1.6 .2 .1" elevation="{elevation}"/></asset>'
    geom = '<geom type="hfield" hfield="h" pos=".1 .2 -.05" euler="5 0 20"/>'
    text = scene(f'{geom}<body pos="0 0 9"><freejoint/><geom size=".08"/></body>', extra=field)
    m = mujoco.MjModel.from_xml_string(text)
    d, model = mujoco.MjData(m), rd.load_mjcf(m, contacts=True)
    mujoco.mj_forward(m, d)
    (k,) = [k for k, pair in enumerate(model.contacts.pairs) if "height field" in pair.kinds]
    assert [each.severity for each in model.report if "height field" in each.message and k >= 0][-1] == "info"
    q = np.tile(model.neutral(), (100, 1))
    q[:, :2] = rng.uniform(-0.6, 0.6, (100, 2))
    q[:, 2] = [
        3.0 - mujoco.mj_rayHfield(m, d, 1, np.array([*at, 3.0]), np.array([0.0, 0.0, -1.0]), None) for at in q[:, :2]
    ]
    assert np.ptp(q[:, 2]) > 0.1
    assert np.abs(rd.Dynamics(model).contact_distances(q)[:, k] + 0.08).max() < 1e-7
    wide = text.replace('nrow="8" ncol="6"', 'nrow="300" ncol="300"').replace(elevation, "0 " * 90_000)
    with pytest.raises(rd.UnavailableError, match="selections"):
        rd.load_mjcf(wide, contacts=True)


def test_filters_of_pairs_are_mujocos():
    """Parents, bodies without joints between, collision groups, excluded bodies."""
    text = scene(
        """<body name="a" pos="0 0 1"><joint/><geom name="ga" size=".1"/><body><geom name="gf" size=".1"/>
        <body name="b"><joint/><geom name="gb" size=".1"/><body name="c"><joint/><geom name="gc" size=".1"/></body>
        </body></body></body><body name="d"><joint/><geom name="gd" size=".1" contype="2" conaffinity="4"/></body>
        <body name="e"><joint/><geom name="ge" size=".1" contype="4" conaffinity="2"/></body>""",
        extra='<contact><exclude body1="a" body2="c"/></contact>',
    )
    model = rd.load_mjcf(text, contacts=True)
    named = {frozenset((pair.first.name, pair.second.name)) for pair in model.contacts.pairs}
    floor = {frozenset(("floor", each)) for each in ("ga", "gf", "gb", "gc")}
    assert named == floor | {frozenset(("gf", "gc")), frozenset(("gd", "ge"))}


def test_disabled_rows_are_left_out():
    text = scene(ARM.format(joint='frictionloss=".3"'))
    every = rd.load_mjcf(text, contacts=True).contacts
    assert every.limits and every.dry_friction and every.pairs
    for flag, name in (("limit", "limits"), ("frictionloss", "dry_friction"), ("contact", "pairs")):
        off = text.replace("<worldbody>", f'<option><flag {flag}="disable"/></option><worldbody>')
        contacts = rd.load_mjcf(off, contacts=True).contacts
        assert not getattr(contacts, name)
    off = text.replace("<worldbody>", '<option><flag constraint="disable"/></option><worldbody>')
    contacts = rd.load_mjcf(off, contacts=True).contacts
    assert not (contacts.pairs or contacts.limits or contacts.dry_friction)


def files_of_wheels():
    """MJCF files of installed packages."""
    packages = Path(importlib.util.find_spec("mujoco").origin).parent.parent
    return sorted(path for path in packages.rglob("*.xml") if b"<mujoco" in path.read_bytes()[:4000])


@pytest.mark.matrix
def test_files_of_wheels_move_as_in_mujoco_or_are_refused_by_name():
    same, refused, staged = [], [], []
    for path in files_of_wheels():
        name = path.name
        try:
            m = mujoco.MjModel.from_xml_path(str(path))
        except ValueError:
            continue
        exact(m)
        try:
            model = rd.load_mjcf(m, contacts=True)
        except rd.UnavailableError as error:
            assert "has what contacts cannot do yet" in str(error)
            refused.append(name)
            continue
        if model.contacts.n_slots > 64:  # too many for one program
            model = rd.load_mjcf(m, contacts=True, max_contacts=16)
            staged.append(name)
        found = errors(m, model, states(m, 10))
        assert max(found, default=0.0) < 1e-9, (name, found)
        m.opt.integrator = mujoco.mjtIntegrator.mjINT_EULER
        away = [drifts(m, model, start) for start in states(m, 2)]
        assert max(away, default=0.0) < 1e-7, (name, away)
        same.append(f"{name}: {max(found, default=0.0):.0e}, {max(away, default=0.0):.0e}")
    print(f"errors of accelerations, and after 300 steps, of {len(same)} files: {same}")
    print(f"refused by name: {refused}; by the 16 deepest points: {staged}")
    if importlib.util.find_spec("gymnasium") is not None:
        assert any(each.startswith("ant.xml") for each in same)


@pytest.mark.parametrize("cone", [pytest.param("pyramidal", marks=pytest.mark.matrix), "elliptic"])
def test_mjcf_that_is_written_has_the_contacts(cone):
    """Of a URDF with contacts: MuJoCo's accelerations on the text are ours of the model."""
    model = rd.load_urdf(own("quadruped"), base="floating")
    feet = [rd.Sphere(link, radius=0.03) for link in model.link_names if link.endswith("foot")]
    model = model.with_frames({"toe": ("front_left_foot", (0.01, 0.02, -0.03))})  # a link without mass
    feet.insert(1, rd.Sphere("toe", radius=0.01))
    contacts = [rd.Contact(foot, rd.Plane(), friction=0.6, solref=(0.03, 1.0)) for foot in feet]
    model = model.with_contacts(contacts, cone=cone, impratio=2.0, dry_friction=False)
    text = model.to_mjcf()
    assert not any("contacts" in each.element for each in text.report)
    m = mujoco.MjModel.from_xml_string(str(text))
    exact(m)
    some = states(m, 6)
    assert max(errors(m, model, some)) < 1e-9 and len(some) > 2
    again = rd.load_mjcf(str(text), contacts=True)
    twice = rd.load_mjcf(str(again.to_mjcf()), contacts=True)
    for other in (again, twice):
        assert (other.contacts.cone, other.contacts.impratio) == (cone, 2.0)
        assert not other.contacts.dry_friction and len(other.contacts.limits) == 12
        for pair, wanted in zip(other.contacts.pairs, model.contacts.pairs, strict=True):
            assert (pair.friction, pair.solref) == (wanted.friction, wanted.solref)
            assert pair.invweight == pytest.approx(wanted.invweight)
    assert len(twice.geometries) == len(again.geometries)
    assert any("contacts" in each.message for each in model.to_urdf().report)
