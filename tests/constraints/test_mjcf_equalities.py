"""Equalities of MuJoCo as constraints, against MuJoCo's own residuals and Jacobians."""

import numpy as np
import pytest
from robots import own

import robodyn as rd

mujoco = pytest.importorskip("mujoco")

VERSION = tuple(int(part) for part in mujoco.__version__.split(".")[:3])

BODIES = """<body name="a" pos=".1 .2 .3" quat=".9 .1 .3 .2"><joint name="j1" axis="0 1 0" ref=".3"/>
<geom size=".1" pos=".1 0 0"/><site name="s1" pos=".1 .2 0" quat=".7 .1 .2 .3"/>
<body name="b" pos=".5 0 0"><joint name="j2" axis="0 0 1" pos=".05 0 0"/><geom size=".1" pos=".1 .1 0"/>
<body name="c" pos=".5 0 .1" quat=".8 0 .6 0"><joint name="j3" type="ball"/><geom type="capsule" size=".05 .1"/></body>
</body></body>
<body name="d" pos="-.5 .1 0"><freejoint/><geom type="box" size=".1 .2 .3"/><site name="s2" quat=".5 .5 .1 .5"/></body>
<body name="slide"><joint name="j4" type="slide" axis="1 1 0" ref=".2"/><geom size=".1"/></body>
<body name="fixed" pos="0 0 1" quat=".6 .8 0 0"><geom size=".1"/></body>
<body name="guide" mocap="true" pos="1 1 0" quat=".9 .1 .2 .3"/><site name="s3" pos=".3 .1 .2" quat=".7 .1 .2 .3"/>"""
POSED = 'anchor=".1 .2 .3" relpose=".3 .2 .1 .6 .8 0 0"'
EQUALITIES = {
    "connect": '<connect name="e" body1="c" body2="d" anchor=".1 .2 .3"/>',
    "to the world": '<connect name="e" body1="c" anchor=".1 .2 .3"/>',
    "from the world": '<connect name="e" body1="world" body2="c" anchor=".1 .2 .3"/>',
    "to a fixed body": '<connect name="e" body1="fixed" body2="c" anchor=".1 .2 .3"/>',
    "weld": '<weld name="e" body1="c" body2="d"/>',
    "weld elsewhere": '<weld name="e" body1="c" body2="d" anchor=".1 .2 .3" relpose=".3 .2 .1 .6 .8 0 0"/>',
    "weld to the world": '<weld name="e" body1="d" anchor=".2 0 0"/>',
    "connected sites": '<connect name="e" site1="s1" site2="s2"/>',
    "welded sites": '<weld name="e" site1="s1" site2="s2"/>',
    "from a fixed body": '<connect name="e" body1="c" body2="fixed" anchor=".1 .2 .3"/>',
    "to the parent": '<connect name="e" body1="b" body2="a" anchor=".1 .2 .3"/>',
    "weld back": f'<weld name="e" body1="d" body2="c" {POSED}/>',
    "weld to a fixed body": f'<weld name="e" body1="d" body2="fixed" {POSED}/>',
    "weld from the world": f'<weld name="e" body1="world" body2="d" {POSED}/>',
    "weld to the world elsewhere": f'<weld name="e" body1="d" {POSED}/>',
    "weld to the parent": '<weld name="e" body1="c" body2="b"/>',
    "weld of a child": '<weld name="e" body1="a" body2="b"/>',
    "weld to a mocap body": '<weld name="e" body1="guide" body2="d"/>',
    "weld of a site to the world": '<weld name="e" site1="s2" site2="s3"/>',
    "weld of the world to a site": '<weld name="e" site1="s3" site2="s2"/>',
    "weld that turns": '<weld name="e" body1="c" body2="d" torquescale="0"/>',
    "weld that turns elsewhere": f'<weld name="e" body1="c" body2="d" torquescale="0" {POSED}/>',
    "weld that turns to the world": '<weld name="e" body1="d" anchor=".1 .2 .3" torquescale="0"/>',
    "weld that turns from the world": '<weld name="e" body1="world" body2="d" anchor=".1 .2 .3" torquescale="-0.0"/>',
    "weld that turns of sites": '<weld name="e" site1="s1" site2="s2" torquescale="0"/>',
    "soft weld": '<weld name="e" body1="c" body2="d" torquescale="0.01"/>',
    "stiff weld": f'<weld name="e" body1="c" body2="d" torquescale="20" {POSED}/>',
    "mirrored weld": '<weld name="e" site1="s1" site2="s2" torquescale="-1"/>',
    "joints": '<joint name="e" joint1="j1" joint2="j2" polycoef=".2 -1.5 0 0 0"/>',
    "a slide and a hinge": '<joint name="e" joint1="j4" joint2="j1"/>',
    "a joint that heeds no other": '<joint name="e" joint1="j1" joint2="j2" polycoef=".2 0 0 0 0"/>',
    "a slide": '<joint name="e" joint1="j4" polycoef=".2 9 9 0 0"/>',
    "a joint": '<joint name="e" joint1="j1" polycoef=".2 0 0 0 0"/>',
}


TENDON = '<tendon><fixed name="t"><joint joint="j1" coef="2"/></fixed></tendon>'


def compiled(equality, options=""):
    text = f"<mujoco>{options}<worldbody>{BODIES}</worldbody>{TENDON}<equality>{equality}</equality></mujoco>"
    return mujoco.MjModel.from_xml_string(text)


def parts(rows, scale):
    """A weld's turns, ours by the size of MuJoCo's, half of sines scaled, and its translations; of others all rows."""
    turns, moves = (rows[:3], rows[3:]) if len(rows) == 6 else (rows[:0], rows)
    return turns * (0.5 * scale), moves


@pytest.mark.parametrize("kind", EQUALITIES)
def test_they_hold_what_mujoco_does(kind):
    """Translations and sums have MuJoCo's size, turns the same angle; rows are MuJoCo's, but for the axes that they
    are in, where it is met."""
    if VERSION < (3, 2, 3) and "site1" in EQUALITIES[kind]:
        pytest.skip("this version of MuJoCo has no equalities of sites")
    m = compiled(EQUALITIES[kind])
    model = rd.load_mjcf(m, equality="constraints")
    assert [each.name for each in model.constraints] == ["e"]
    scale = float(m.eq_data[0][10]) if m.eq_type[0] == mujoco.mjtEq.mjEQ_WELD else 1.0
    said = [(each.severity, each.message) for each in model.report if each.code == "mjcf-equality"]
    assert [severity for severity, _ in said] == ["info" if scale in (0.0, 1.0) else "warning"]
    assert ("torquescale" in said[0][1]) == (scale != 1.0)
    dyn, to = rd.Dynamics(model, engine="reference"), rd.converter(model, "mujoco")
    rng = np.random.default_rng(3)
    for _ in range(2):
        q = model.random_configuration(rng)
        ours = np.asarray(dyn.constraint_residual(q, np.zeros(model.nv))[0])
        theirs, _ = mujocos(m, to.q_to(q), scale)
        assert len(ours) == len(theirs)
        if len(ours) == 6:
            turn = np.linalg.norm(theirs[:3]) / abs(scale)  # the sine of half the angle
            assert abs(2.0 * turn * np.sqrt(max(1.0 - turn**2, 0.0)) - np.linalg.norm(ours[:3])) < 1e-12
        assert abs(np.linalg.norm(parts(ours, 1.0)[1]) - np.linalg.norm(parts(theirs, 1.0)[1])) < 1e-12
        met = model.assemble(q, tol=1e-13)
        theirs, J = mujocos(m, to.q_to(met), scale)
        assert np.abs(theirs).max() < 1e-10
        ours = parts(np.asarray(dyn.constraint_jacobian(met)), scale)
        for mine, other in zip(ours, parts(to.jacobian_from(met, J), 2.0), strict=True):
            # Rows in other axes, R J of J, have the same products J^T R^T R J.
            assert np.abs(mine.T @ mine - other.T @ other).max() < 1e-9 * max(1.0, np.abs(other).max(initial=0.0) ** 2)


def mujocos(m, q, scale=1.0):
    """Residual and Jacobian of its equality rows, a weld's turns first, without those that are nothing but zeros."""
    m.opt.jacobian = mujoco.mjtJacobian.mjJAC_DENSE
    data = mujoco.MjData(m)
    data.qpos[:] = q
    mujoco.mj_forward(m, data)
    rows = np.flatnonzero(data.efc_type == mujoco.mjtConstraint.mjCNSTR_EQUALITY)
    residual, J = data.efc_pos[rows], data.efc_J.reshape(-1, m.nv)[rows]
    if m.eq_type[0] == mujoco.mjtEq.mjEQ_WELD:
        assert scale or not (J[3:].any() or residual[3:].any())
        order = [3, 4, 5, 0, 1, 2] if scale else [0, 1, 2]
        residual, J = residual[order], J[order]
    return residual, J


@pytest.mark.parametrize("kind", ["weld that turns", "weld that turns to the world", "weld", "connect"])
def test_accelerations_are_those_of_mujocos_matrices(kind):
    """At rest, where it is met: M a = f + J^T l, J a = 0, with M, J and f of MuJoCo."""
    m = compiled(EQUALITIES[kind])
    model = rd.load_mjcf(m, equality="constraints")
    dyn, to = rd.Dynamics(model, engine="reference"), rd.converter(model, "mujoco")
    q = model.assemble(model.random_configuration(7), tol=1e-13)
    _, J = mujocos(m, to.q_to(q), float(m.eq_data[0][10]) if "weld" in kind else 1.0)
    data = mujoco.MjData(m)
    data.qpos[:] = to.q_to(q)
    mujoco.mj_forward(m, data)
    M = np.zeros((m.nv, m.nv))
    for row, unit in zip(M, np.eye(m.nv), strict=True):
        mujoco.mj_mulM(m, data, row, unit)
    n = len(J)
    wanted = np.linalg.solve(np.block([[M, -J.T], [J, np.zeros((n, n))]]), [*data.qfrc_smooth, *np.zeros(n)])[: m.nv]
    still = np.zeros(model.nv)
    ours = to.a_to(q, still, dyn.constrained_forward_dynamics(q, still, still)[0])
    assert np.abs(ours - wanted).max() < 1e-7 * np.abs(wanted).max()


def test_what_no_constraint_holds_is_said():
    bodies = """<joint joint1="j1" joint2="j2" polycoef="0 1 2 0 0"/><weld body1="fixed"/><joint joint1="j1"/>
    <tendon tendon1="t"/><weld body1="guide" body2="fixed"/><weld body1="c" body2="d" torquescale="1e-12"/>"""
    m = compiled(bodies)
    model = rd.load_mjcf(m, equality="constraints")
    assert [type(each) for each in model.constraints] == [rd.Lock, rd.Point]
    assert model.constraints[0].name == "equality_2"
    found = {each.elements[0]: each for each in model.report if each.code == "mjcf-equality"}
    assert found["equality 0"].severity == found["equality 1"].severity == found["equality 3"].severity == "warning"
    assert "not linear" in found["equality 0"].message and "(joint) of a" in found["equality 0"].message
    (still,) = (each for each in model.report if "of one body" in each.message)
    assert still.elements == ("equality 1", "equality 4")
    assert "(tendon) for which there is no constraint" in found["equality 3"].message
    assert "turns are free, as its torquescale is 1e-12" in found["equality 5"].message
    assert not rd.load_mjcf(m).constraints
    with pytest.raises(rd.ArgumentError, match="'report', 'mimic', 'constraints'"):
        rd.load_mjcf(compiled(""), equality="constraint")


def test_equalities_that_flags_switch_off():
    for flag in ("equality", "constraint"):
        text = f'<option><flag {flag}="disable"/></option>'
        model = rd.load_mjcf(compiled(EQUALITIES["weld"], text), equality="constraints")
        assert not model.constraints
    assert rd.load_mjcf(compiled(EQUALITIES["weld"], '<option><flag clampctrl="disable"/></option>')).gravity.any()


@pytest.mark.parametrize(
    "kind, field, value, message",
    [
        ("weld", "eq_obj1id", 99, "eq_obj1id.0. is 99; wanted 0 to 7, as nbody is 8"),
        ("connect", "eq_obj2id", -1, "eq_obj2id.0. is -1; wanted 0 to 7, as nbody is 8"),
        ("joints", "eq_obj1id", -1, "eq_obj1id.0. is -1; wanted 0 to 4, as njnt is 5"),
        ("joints", "eq_obj2id", 5, "eq_obj2id.0. is 5; wanted 0 to 4, as njnt is 5"),
        ("welded sites", "eq_obj1id", 3, "eq_obj1id.0. is 3; wanted 0 to 2, as nsite is 3"),
        ("weld", "eq_data", np.nan, r"eq_data.0. is .nan, .*; wanted finite numbers"),
        ("weld", "eq_data", 0.0, r"eq_data.0. has a quaternion of length 0"),
        ("joints", "eq_obj1id", 2, "j3"),
        ("joints", "eq_obj2id", 2, "j3"),
        ("a joint", "eq_obj1id", 3, "joint_3"),
        ("weld", "eq_type", 77, None),
        ("weld", "eq_objtype", 5, None),
    ],
)
def test_equalities_that_were_changed(kind, field, value, message):
    if VERSION < (3, 2, 3) and ("sites" in kind or field == "eq_objtype"):
        pytest.skip("this version of MuJoCo has no equalities of sites")
    m = compiled(EQUALITIES[kind])
    getattr(m, field)[0] = value
    if message is not None:
        with pytest.raises(rd.LoadError, match=message):
            rd.load_mjcf(m, equality="constraints")
        return
    model = rd.load_mjcf(m, equality="constraints")
    assert not model.constraints
    assert [each.severity for each in model.report if each.code == "mjcf-equality"] == ["warning"]


@pytest.mark.skipif(VERSION < (3, 2, 3), reason="this version of MuJoCo has no equalities of sites")
def test_written_equalities_come_back():
    model = rd.load_mjcf(
        compiled(EQUALITIES["weld elsewhere"] + EQUALITIES["joints"].replace('"e"', '"f"')), equality="constraints"
    )
    again = rd.load_mjcf(model.to_mjcf(), equality="constraints")
    assert [type(each) for each in again.constraints] == [rd.Weld, rd.Coupling]
    q = model.random_configuration(np.random.default_rng(0))
    residuals = [rd.Dynamics(each).constraint_residual(q, np.zeros(each.nv))[0] for each in (model, again)]
    ours, theirs = ([np.linalg.norm(phi[rows]) for rows in np.split(np.arange(7), (3, 6))] for phi in residuals)
    assert np.abs(np.subtract(ours, theirs)).max() < 1e-12
    assert [each.link for each in again.constraints[:1]] == [model.constraints[0].link]
    loops = rd.load_urdf(own("loops/bird_legs"))
    ends = [
        [(each.to, each.link) for each in robot.constraints]
        for robot in (loops, rd.load_mjcf(loops.to_mjcf(), equality="constraints"))
    ]
    assert ends[0] == ends[1]


def test_what_is_off_is_said():
    off = EQUALITIES["connect"].replace("/>", ' active="false"/>')
    model = rd.load_mjcf(compiled(off), equality="constraints")
    assert not model.constraints
    assert ["is off" in each.message for each in model.report if each.code == "mjcf-equality"] == [True]
