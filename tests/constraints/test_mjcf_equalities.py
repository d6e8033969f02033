"""Equalities of MuJoCo as constraints, against MuJoCo's own residuals and Jacobians."""

import numpy as np
import pytest
from robots import own

import robodyn as rd

mujoco = pytest.importorskip("mujoco")

BODIES = """<body name="a" pos=".1 .2 .3" quat=".9 .1 .3 .2"><joint name="j1" axis="0 1 0" ref=".3"/>
<geom size=".1" pos=".1 0 0"/><site name="s1" pos=".1 .2 0" quat=".7 .1 .2 .3"/>
<body name="b" pos=".5 0 0"><joint name="j2" axis="0 0 1" pos=".05 0 0"/><geom size=".1" pos=".1 .1 0"/>
<body name="c" pos=".5 0 .1" quat=".8 0 .6 0"><joint name="j3" type="ball"/><geom type="capsule" size=".05 .1"/></body>
</body></body>
<body name="d" pos="-.5 .1 0"><freejoint/><geom type="box" size=".1 .2 .3"/><site name="s2" quat=".5 .5 .1 .5"/></body>
<body name="fixed" pos="0 0 1" quat=".6 .8 0 0"><geom size=".1"/></body>"""
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
    "joints": '<joint name="e" joint1="j1" joint2="j2" polycoef=".2 -1.5 0 0 0"/>',
    "a joint": '<joint name="e" joint1="j1" polycoef=".2 0 0 0 0"/>',
}


def compiled(equality):
    text = f"<mujoco><worldbody>{BODIES}</worldbody><equality>{equality}</equality></mujoco>"
    return mujoco.MjModel.from_xml_string(text)


@pytest.mark.parametrize("equality", EQUALITIES.values(), ids=EQUALITIES)
def test_they_hold_what_mujoco_does(equality):
    """Translations and sums have MuJoCo's size, turns the same axis, and rows span the same space where it is met."""
    m = compiled(equality)
    model = rd.load_mjcf(m, equality="constraints")
    assert [each.name for each in model.constraints] == ["e"]
    assert [each.severity for each in model.report if each.code == "mjcf-equality"] == ["info"]
    dyn, to = rd.Dynamics(model), rd.converter(model, "mujoco")
    rng = np.random.default_rng(3)
    for _ in range(5):
        q = model.random_configuration(rng)
        phi, _ = dyn.constraint_residual(q, np.zeros(model.nv))
        theirs, J = mujocos(m, to.q_to(q))
        ours = np.asarray(phi)
        assert len(ours) == len(theirs)
        if len(ours) == 6:
            turn = np.linalg.norm(theirs[3:])  # the sine of half the angle
            assert abs(2.0 * turn * np.sqrt(max(1.0 - turn**2, 0.0)) - np.linalg.norm(ours[:3])) < 1e-12
            ours, theirs = ours[3:], theirs[:3]
        assert abs(np.linalg.norm(ours) - np.linalg.norm(theirs)) < 1e-12
    met = model.assemble(model.neutral(), tol=1e-13) if "j1" in equality or "site" in equality else to.q_from(m.qpos0)
    if "relpose" in equality:
        met = model.assemble(met, tol=1e-13)
    theirs, J = mujocos(m, to.q_to(met))
    assert np.abs(theirs).max() < 1e-10
    ours = np.asarray(dyn.constraint_jacobian(met))
    J = to.jacobian_from(met, J)
    rank = np.linalg.matrix_rank
    assert rank(ours, 1e-9) == rank(J, 1e-9) == rank(np.vstack((ours, J)), 1e-9)


def mujocos(m, q):
    """Residual and Jacobian of its equality rows."""
    m.opt.jacobian = mujoco.mjtJacobian.mjJAC_DENSE
    data = mujoco.MjData(m)
    data.qpos[:] = q
    mujoco.mj_forward(m, data)
    rows = np.flatnonzero(data.efc_type == mujoco.mjtConstraint.mjCNSTR_EQUALITY)
    return data.efc_pos[rows], data.efc_J.reshape(-1, m.nv)[rows]


def test_what_no_constraint_holds_is_said():
    bodies = """<joint joint1="j1" joint2="j2" polycoef="0 1 2 0 0"/><weld body1="fixed"/><joint joint1="j1"/>"""
    model = rd.load_mjcf(compiled(bodies), equality="constraints")
    assert [type(each) for each in model.constraints] == [rd.Lock] and model.constraints[0].name == "equality_2"
    found = {each.elements[0]: each for each in model.report if each.code == "mjcf-equality"}
    assert found["equality 0"].severity == found["equality 1"].severity == "warning"
    assert "not linear" in found["equality 0"].message and "of one body" in found["equality 1"].message
    assert not rd.load_mjcf(compiled(bodies)).constraints
    with pytest.raises(rd.ArgumentError, match="'report', 'mimic', 'constraints'"):
        rd.load_mjcf(compiled(""), equality="constraint")


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
