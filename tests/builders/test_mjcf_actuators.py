"""Actuators of every kind, whose armature and damping are MuJoCo's; and mjModels that count otherwise, which are
refused."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import relative
from test_mjcf import ROBOT, same_as_mujoco

import robodyn as rd
from robodyn.io.builders import mjmodel

mujoco = pytest.importorskip("mujoco")

VERSION = tuple(int(part) for part in mujoco.__version__.split(".")[:2])
COUNTED_APART = pytest.mark.skipif(VERSION < (3, 13), reason="this version of MuJoCo has not all kinds of actuators")

SCENE = """<mujoco><option gravity="0 .3 -9"/>{options}<worldbody><site name="w"/>
<body name="b1" pos=".1 0 0"><joint name="h" axis="0 1 0" armature=".01" damping=".1"/><geom size=".1" pos=".3 0 0"/>
<site name="sl" pos=".1 .1 .1"/><body pos="1 0 0"><joint name="b" type="ball"/>
<geom type="box" size=".1 .2 .3" pos=".1 0 0"/><site name="s" pos=".1 .2 .3"/>
<body name="b3" pos="0 0 .5"><joint name="p" type="slide" axis="1 1 0" armature=".02"/><joint name="h2" axis="0 0 1"/>
<geom size=".05" pos=".1 0 0"/></body></body></body>
<body pos="0 2 0"><freejoint name="f"/><geom type="box" size=".1 .2 .3"/></body></worldbody>
<tendon><fixed name="t"><joint joint="h" coef="2"/><joint joint="p" coef="1"/></fixed></tendon>
<actuator>{actuators}</actuator></mujoco>"""
LAST = '<motor joint="h2" gear="7 5 3"/><motor joint="p" gear="-2"/>'
KINDS = {
    "motor": '<motor joint="h" gear="10 3 2"/>',
    "position": '<position joint="h" kp="3" gear="2"/>',
    "velocity": '<velocity joint="h" kv="3"/>',
    "intvelocity": '<intvelocity joint="h" kp="3" actrange="-1 1"/>',
    "damper": '<damper joint="h" kv="2" ctrlrange="0 1"/>',
    "cylinder": '<cylinder joint="h"/>',
    "muscle": '<muscle joint="h" lengthrange="0 1"/>',
    "adhesion": '<adhesion body="b3" ctrlrange="0 1"/>',
    "filter": '<general joint="h" dyntype="filter" dynprm=".1"/>',
    "voltage": '<dcmotor joint="h" motorconst="1" resistance="1" gear="3"/>',
    "no input": '<dcmotor joint="h" input="none" motorconst="0.1" resistance="1"/>',
    "two inputs": '<dcmotor joint="h" motorconst="1" resistance="1" input="pos vel" controller="0 0 5" gear="3"/>',
    "pid": '<pid joint="p" kp="1" ki="2" kv="1" gear="3"/>',
    "pid of a tendon": '<pid tendon="t" kp="1"/>',
    "pid of a site": '<pid site="s" refsite="w" kp="1" gear="1 0 0 0 0 0"/>',
    "three outputs": '<orientation joint="b" kp="3"/>',
    "three outputs, four inputs": '<orientation joint="b" kp="3" input="quat"/>',
    "a site's orientation": '<orientation site="s" refsite="w" kp="3" input="quat"/>',
    "six gears": '<motor joint="b" gear="1 2 3 4 5 6"/>',
    "six gears in the parent": '<motor jointinparent="b" gear="2 2 3 4 5 6"/>',
    "a free joint": '<motor joint="f" gear="1 2 3 4 5 6"/>',
    "a free joint in its parent": '<motor jointinparent="f" gear="3 2 3 4 5 6"/>',
    "a tendon": '<motor tendon="t" gear="2"/>',
    "a site": '<motor site="s" gear="1 2 3 4 5 6"/>',
    "two sites": '<motor site="s" refsite="w" gear="1 2 3 4 5 6"/>',
    "a crank": '<general cranksite="s" slidersite="sl" cranklength="1"/>',
    "three on a joint": '<motor joint="h" gear="2"/><position joint="h" gear="-3"/><motor joint="h"/>',
    "a mixture": '<orientation joint="b" kp="3" input="quat"/><pid joint="h" kp="1" gear="4"/>'
    '<dcmotor joint="h" input="none" motorconst="0.1" resistance="1" gear="3"/><orientation joint="b" kp="3"/>',
}


def compiled(text: str) -> Any:
    try:
        return mujoco.MjModel.from_xml_string(text)
    except ValueError:
        if VERSION >= (4, 0):
            raise
        pytest.skip("this version of MuJoCo has no such actuator")


def with_coefficients(m: Any) -> Any:
    """The mjModel with armature and damping of all actuators, of which MuJoCo takes the ones that it can."""
    if not hasattr(m, "actuator_armature"):
        return m
    n = len(m.actuator_trntype)
    m.actuator_armature[:], m.actuator_damping[:] = 0.1 * np.arange(1, n + 1), 0.3 * np.arange(1, n + 1)
    m.actuator_armature[m.actuator_trntype == mujoco.mjtTrn.mjTRN_TENDON] = 0.0  # tendons' is not in the model
    m.actuator_damping[m.actuator_trntype == mujoco.mjtTrn.mjTRN_TENDON] = 0.0
    m.actuator_armature[[k for k, (j, _) in enumerate(m.actuator_trnid) if m.jnt_type[j] == 0]] = 0.0
    mujoco.mj_setConst(m, mujoco.MjData(m))
    return m


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_actuator(kind):
    """Whatever stands before or after it: rows of arrays are not those of the actuators that they seem to be."""
    for actuators in (KINDS[kind] + LAST, LAST + KINDS[kind]):
        m = with_coefficients(compiled(SCENE.format(options="", actuators=actuators)))
        model = rd.load_mjcf(m)
        (said,) = (each.message for each in model.report if each.code == "mjcf-actuator")
        assert said.startswith(f"{len(m.actuator_trntype)} of them")
        data, way = mujoco.MjData(m), rd.converter(model, "mujoco")
        q, qd = model.random_configuration(5), np.random.default_rng(5).normal(size=model.nv)
        data.qpos[:], data.qvel[:] = way.q_to(q), way.v_to(q, qd)
        mujoco.mj_forward(m, data)
        dampers = data.qfrc_damper if hasattr(data, "qfrc_damper") else data.qfrc_passive
        assert relative(way.tau_to(q, model.damping * qd), -dampers) < 1e-12
        same_as_mujoco(m, model, states=1)


@COUNTED_APART
def test_armature_that_is_read_from_the_right_rows():
    """In closed form: the armature times the square of the gear."""
    passive = '<dcmotor joint="h" input="none" motorconst="0.1" resistance="1"/>'
    turned = '<orientation joint="b" kp="3"/>'
    motor = '<motor joint="h2" gear="10" armature="0.002"/>'
    bare = rd.load_mjcf(SCENE.format(options="", actuators=""))
    for actuators in (passive + motor, turned + motor, motor + turned + passive, passive + turned + motor):
        model = rd.load_mjcf(SCENE.format(options="", actuators=actuators))
        added = model.tree_armature - bare.tree_armature
        wanted = np.zeros(model.nv_tree)
        wanted[model.v_start[model.joint_index("h2")]] = 0.002 * 10**2
        assert np.abs(added - wanted).max() < 1e-15


@COUNTED_APART
def test_coefficients_without_a_part_are_said():
    inherited = '<default><motor armature=".5"/></default>'  # which MuJoCo takes for no part of an orientation
    actuators = '<orientation name="o" joint="b" kp="3"/><motor joint="h"/><motor tendon="t"/>'
    m = mujoco.MjModel.from_xml_string(SCENE.format(options=inherited, actuators=actuators))
    model = rd.load_mjcf(m)
    said = {each.elements: each.message for each in model.report if each.code == "mjcf-actuator-coefficient"}
    assert set(said) == {("actuator 0",), ("actuator 2",)}
    assert "MuJoCo leaves out as well" in said["actuator 0",] and "a tendon" in said["actuator 2",]
    m.tendon_armature[:] = m.actuator_armature[2] = 0.0
    same_as_mujoco(m, model)


def test_armature_that_is_edited_counts_when_mujoco_counts_it():
    if VERSION < (3, 7):
        pytest.skip("this version of MuJoCo has no armature of actuators")
    m = mujoco.MjModel.from_xml_string(SCENE.format(options="", actuators=LAST))
    m.actuator_armature[:] = 0.3
    model = rd.load_mjcf(m)
    same_as_mujoco(m, model)
    assert not model.tree_armature[model.v_start[model.joint_index("h2")]]
    assert "mjcf-actuator-coefficient" in {each.code for each in model.report}
    mujoco.mj_setConst(m, mujoco.MjData(m))
    model = rd.load_mjcf(m)
    same_as_mujoco(m, model)
    assert abs(model.tree_armature[model.v_start[model.joint_index("h2")]] - 0.3 * 49) < 1e-14


def test_limits_of_forces_are_the_joints_own():
    """Ranges of controls and of single actuators have other rows, and no part."""
    pid = '<pid joint="h" kp="1" ctrlrange="-5 5" forcerange="-7 7"/>' if VERSION >= (3, 13) else ""
    joint = '<joint name="h2" axis="0 0 1" actuatorfrcrange="-4 4"/>'
    text = SCENE.format(options="", actuators=pid + LAST).replace('<joint name="h2" axis="0 0 1"/>', joint)
    model = rd.load_mjcf(text)
    effort = dict(zip(model.joint_names, model.tree_effort[model.v_start], strict=True))
    assert effort["h2"] == 4.0 and np.isinf([effort[name] for name in ("h", "p", "b", "f")]).all()
    assert "mjcf-effort" not in {each.code for each in model.report}
    model = rd.load_mjcf(text.replace("-4 4", "-4 3"))
    assert model.tree_effort[model.v_start[model.joint_index("h2")]] == 4.0
    assert [each.elements for each in model.report if each.code == "mjcf-effort"] == [('joint "h2"',)]


def published() -> list[Path]:
    """MJCF that comes with packages of the tests."""
    folders = [Path(mujoco.__file__).parent / "testdata"]
    gymnasium = pytest.importorskip("gymnasium")
    folders.append(Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets")
    return [path for folder in folders for path in sorted(folder.glob("*.xml")) if "<mujoco" in path.read_text()]


def test_files_of_other_packages():
    paths, seen, held = published(), 0, 0
    assert len(paths) > 10
    for path in paths:
        try:
            m = mujoco.MjModel.from_xml_path(str(path))
        except ValueError:  # a part of a file
            continue
        if m.nv:
            print(path.name)
            model = rd.load_mjcf(m, equality="constraints")
            if model.constraints:
                ours, theirs = equality_rows(m, model)
                rank = np.linalg.matrix_rank
                assert rank(ours, 1e-9) == rank(theirs, 1e-9) == rank(np.vstack([ours, theirs]), 1e-9) > 0
                held += 1
            same_as_mujoco(m, model, states=2)
            seen += 1
    assert seen > 10 and (held or VERSION < (3, 3))


def equality_rows(m: Any, model: rd.Model) -> tuple[np.ndarray, np.ndarray]:
    """Rows of constraints, ours and MuJoCo's, where the file puts the robot."""
    m.opt.jacobian = mujoco.mjtJacobian.mjJAC_DENSE
    data, way = mujoco.MjData(m), rd.converter(model, "mujoco")
    mujoco.mj_forward(m, data)
    rows = data.efc_type == mujoco.mjtConstraint.mjCNSTR_EQUALITY
    q = way.q_from(data.qpos)
    ours = rd.Dynamics(model, engine="reference").constraint_jacobian(q)
    return np.asarray(ours), way.jacobian_from(q, data.efc_J.reshape(-1, m.nv)[rows])


# A MuJoCo that counts otherwise.


class Changed:
    """A mjModel with other fields, None for none."""

    def __init__(self, given: Any, **fields: Any) -> None:
        self.given, self.fields = given, fields

    def __getattr__(self, name: str) -> Any:
        found = self.fields.get(name, self) if name in self.fields else getattr(self.given, name)
        if found is None:
            raise AttributeError(name)
        return found


@pytest.fixture
def other(monkeypatch):
    """MuJoCo of a version to come, whose mjModels are those above."""
    module = types.SimpleNamespace(**{name: getattr(mujoco, name) for name in dir(mujoco) if name[0] != "_"})
    module.__version__, module.MjModel = "9.8.7", Changed
    module.mj_id2name = lambda m, *rest: mujoco.mj_id2name(m.given, *rest)
    monkeypatch.setattr("robodyn.io.builders.mjcf.mujoco_module", lambda asked: module)
    return module


EVERYTHING = (
    ROBOT.replace("<equality>", '<equality><connect body1="tip" anchor="0 0 0"/><weld site1="x" site2="y"/>')
    .replace(
        "</worldbody>",
        '<site name="x"/><body><freejoint/><geom name="f" size=".1"/><site name="y"/></body>'
        '<body><freejoint/><geom name="g" size=".1"/></body></worldbody>',
    )
    .replace('gear="10"', 'gear="10" armature=".1"')
    .replace(
        "<worldbody>",
        '<asset><mesh name="t" file="t.obj"/><material name="m"/>'
        '<hfield name="e" nrow="3" ncol="2" size="1 1 1 1"/></asset><actuator>'
        '<intvelocity joint="a" kp="3" actrange="-1 1" ctrlrange="-1 1" forcerange="-1 1"/></actuator>'
        '<sensor><framepos objtype="site" objname="x" reftype="site" refname="y"/></sensor>'
        '<contact><exclude body1="world" body2="tip"/><pair geom1="f" geom2="g"/></contact>'
        '<worldbody><geom type="mesh" mesh="t" material="m"/><geom type="hfield" hfield="e" conaffinity="1"/>',
        1,
    )
)
ASSETS = {"t.obj": b"v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"}
EVERY_ARRAY = {"equality": "constraints", "contacts": True, "unsupported": "ignore"}
OF_A_MODEL = [name for name in mjmodel.ARRAYS if not name.startswith(("key_", "q", "x")) or name == "qpos0"]


@COUNTED_APART
@pytest.mark.parametrize("name", OF_A_MODEL)
def test_an_array_of_another_shape_is_refused_by_name(name, other):
    m, every = mujoco.MjModel.from_xml_string(EVERYTHING, ASSETS), EVERY_ARRAY
    assert rd.load_mjcf(Changed(m), **every).constraints
    array = np.array(getattr(m, name))
    longer = np.concatenate([array, array[-1:]])
    wider = np.stack([array, array], axis=1) if array.ndim == 1 else np.concatenate([array, array], axis=1)
    for changed in (longer, array[:-1], wider, array.ravel() if array.ndim > 1 else array[0]):
        with pytest.raises(rd.LoadError, match=rf"{name} has shape .*; wanted \(\d+.* as n\w+ is \d+: MuJoCo 9\.8\.7"):
            rd.load_mjcf(Changed(m, **{name: changed}), **every)
    with pytest.raises(rd.LoadError, match=rf"{name} is not there, .* since [34]\.\d+.*: MuJoCo 9\.8\.7 is not known"):
        rd.load_mjcf(Changed(m, **{name: None}), **every)


@COUNTED_APART
def test_sizes_that_count_something_else_are_refused(other):
    actuators = '<orientation joint="b" kp="3"/><dcmotor joint="h" motorconst="1" resistance="1" input="none"/>' + LAST
    m = with_coefficients(mujoco.MjModel.from_xml_string(SCENE.format(options="", actuators=actuators)))
    assert rd.load_mjcf(Changed(m)).nv == m.nv
    for name, value, message in (
        ("nactuator", None, "nactuator is not there, which MuJoCo has had since 3.11"),
        ("nactuator", m.nu, "actuator_armature has shape .4,.; wanted .5,., as nactuator is 5"),
        ("nout", 4, "actuator_gear has shape .6, 6.; wanted .4, 6., as nout is 4"),
        ("njnt", m.njnt + 1, "jnt_type has shape .5,.; wanted .6,., as njnt is 6"),
        ("nbody", m.nbody - 1, "body_jntnum has shape .5,.; wanted .4,., as nbody is 4"),
        ("nv", m.nv + 1, "nv contradicts"),
        ("nq", None, "nq is not there"),
    ):
        with pytest.raises(rd.LoadError, match=message):
            rd.load_mjcf(Changed(m, **{name: value}))
    rows = np.array(m.actuator_outadr)
    rows[-1] = 6
    with pytest.raises(rd.LoadError, match=r"actuator_outadr.3. is 6; wanted 0 to 5, as nout is 6"):
        rd.load_mjcf(Changed(m, actuator_outadr=rows))


@COUNTED_APART
def test_numbers_of_types_and_flags_may_change(other):
    """They have before: what they mean is asked of MuJoCo."""

    def moved(enum: Any, prefix: str) -> types.SimpleNamespace:
        return types.SimpleNamespace(**{name: int(getattr(enum, name)) + 3 for name in dir(enum) if prefix in name})

    m = mujoco.MjModel.from_xml_string(EVERYTHING, ASSETS)
    wanted = rd.load_mjcf(Changed(m), equality="constraints")
    other.mjtEq, other.mjtJoint, other.mjtTrn = (
        moved(mujoco.mjtEq, "mjEQ"),
        moved(mujoco.mjtJoint, "mjJNT"),
        moved(mujoco.mjtTrn, "mjTRN"),
    )
    fields = {name: np.array(getattr(m, name)) + 3 for name in ("eq_type", "jnt_type", "actuator_trntype")}
    assert rd.load_mjcf(Changed(m, **fields), equality="constraints") == wanted
    flags = {name: 1 << 20 + k for k, name in enumerate(("mjDSBL_GRAVITY", "mjDSBL_CONSTRAINT", "mjDSBL_EQUALITY"))}
    other.mjtDisableBit = types.SimpleNamespace(**flags)
    for bit, gravity, constraints in ((20, False, True), (21, True, False), (22, True, False)):
        m.opt.disableflags = 1 << bit
        model = rd.load_mjcf(Changed(m, **fields), equality="constraints")
        assert (model.gravity.any(), bool(model.constraints)) == (gravity, constraints)
