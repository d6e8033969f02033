"""Robots written to files, and read back by us, by Pinocchio and by MuJoCo."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from edited import CLOSE, EVERY, loaded, name, reference, require_same, tree, velocities_of
from robots import own, shared

import robodyn as rd
from robodyn.description import IDENTITY, rotation_from_rpy
from robodyn.io.editing.writer_common import quaternion_of, rpy_of

READ_BY_FEW = {"ball_joint_arm", "screw_press"}
"""Robots of ours with joints that URDF does not have."""


def codes(text):
    return {finding.code for finding in text.report}


def left_out(text):
    return "floating base is left out" in str(text.report)


def read_back(model, text):
    gravity = model.gravity
    return rd.load_urdf(str(text), base="floating" if left_out(text) else "fixed", strict=False, gravity=gravity)


def require_urdf(model):
    text = model.to_urdf()
    back = read_back(model, text)
    require_same(model, back, CLOSE)
    assert back.joint_names == model.joint_names and back.name == model.name
    assert back.link_names[: len(model.link_names)] == model.link_names
    for what in ("tree_lower", "tree_upper", "tree_effort", "tree_velocity", "q_multiplier", "q_offset", "mimics"):
        np.testing.assert_array_equal(getattr(back, what), getattr(model, what), err_msg=what)
    more = len(back.link_names) - len(model.link_names)
    if not more:
        np.testing.assert_array_equal(back.link_parent, model.link_parent)
        assert back.link_joints == model.link_joints
        scale = np.abs(model.link_inertia).max()
        np.testing.assert_allclose(back.link_inertia, model.link_inertia, atol=1e-14 * scale)
    else:
        assert any("added" in finding.message for finding in text.report)
    return text


@pytest.mark.some(of=8, rest="matrix")
@pytest.mark.parametrize("path", EVERY, ids=name)
def test_urdf_of_every_robot(path):
    for base in ("fixed", "floating"):
        model = loaded(path, base)
        text = require_urdf(model)
        # Armature that is that of motors stands in the transmissions of the file.
        armature = not any("otor_inertia" in each.text or "motorInertia" in each.text for each in model.extensions)
        few = path.stem in READ_BY_FEW or (armature and bool(model.tree_armature.any()))
        assert ("written-for-few" in codes(text)) == few
        assert left_out(text) == (base == "floating") and "not-written" not in codes(text)


@pytest.mark.some(of=5, rest="matrix")
@pytest.mark.parametrize("seed", range(20))
def test_urdf_of_random_trees(seed):
    require_urdf(tree(seed, ("fixed", "floating")[seed % 2]))


@pytest.mark.some(of=5, rest="matrix")
@pytest.mark.parametrize("seed", range(10))
def test_urdf_of_robots_that_were_edited(seed):
    """Rerooted ones have links away from their joints, locked and framed ones links that are fixed to others."""
    model = tree(seed, n=8)
    joint = next(iter(velocities_of(model)))
    edited = [model.lock({joint: None}), model.with_frames({"tcp": ("link3", (0.1, 0.2, 0.3))})]
    plain = rd.random_tree(8, seed=seed, joints=("revolute", "helical", "planar", "spherical", "floating"))
    for each in (*edited, plain.reroot("link8"), plain.subtree("link2"), rd.auto_tree(5, branching=2.0, skew=0.4)):
        require_urdf(each)


def test_what_urdf_has_no_words_for_is_reported():
    model = rd.load_urdf(own("arm6"), gravity=(0.0, 0.0, -1.62))
    assert "gravity" in str(model.to_urdf().report) and codes(model.to_urdf()) == {"not-written"}
    pair = np.array([-1.0] * model.nq)
    limited = replace(rd.random_tree(1, seed=0, joints=("spherical",)), tree_lower=np.full(4, -1.0))
    assert "position limits of a joint of several" in str(limited.to_urdf().report)
    one_sided = replace(model, tree_lower=pair, tree_upper=np.full(model.nq, np.inf), tree_effort=np.full(6, np.inf))
    text = one_sided.to_urdf()
    assert 'upper="1.7976931348623157e+308" effort="1.7976931348623157e+308"' in text
    assert "no limit of upper, effort" in str(text.report)
    np.testing.assert_array_equal(read_back(one_sided, text).upper, np.inf)


def test_names_that_files_cannot_hold_are_refused():
    model = rd.load_urdf(own("arm6"))
    for what, bad in (("link_names", "a\0b"), ("joint_names", "\ud800"), ("link_names", " "), ("joint_names", "${x}")):
        given = list(getattr(model, what))
        given[2] = bad
        with pytest.raises(rd.ArgumentError, match="name"):
            replace(model, **{what: given}).to_urdf()
    with pytest.raises(rd.ArgumentError, match="occurs twice"):
        replace(model, joint_names=["a"] * 6).to_urdf()
    odd = ["<&>\"'", "tab\tand\nline\r", "größe", " x ", "e", "f"]
    assert read_back(model, replace(model, joint_names=odd).to_urdf()).joint_names == tuple(odd)


def test_coefficients_that_differ_are_refused():
    model = rd.random_tree(2, seed=0, joints=("floating", "spherical"))
    for write in ("to_urdf", "to_mjcf"):
        with pytest.raises(rd.ArgumentError, match="armature differs among its coordinates"):
            getattr(replace(model, tree_armature=np.arange(9.0)), write)()


def test_rotations_at_right_angles():
    rng = np.random.default_rng(0)
    angles = [*rng.uniform(-4, 4, (200, 3)), *(np.array(a) * np.pi / 2 for a in np.ndindex(4, 4, 4))]
    angles += [
        (r, sign * (np.pi / 2 - 10.0**-k), y) for k in range(1, 17) for sign in (1, -1) for r, y in [(0.3, -2.0)]
    ]
    for each in angles:
        R = rotation_from_rpy(*map(float, each))
        np.testing.assert_allclose(rotation_from_rpy(*rpy_of(R)), R, atol=1e-15)
        w, x, y, z = quaternion_of(R)
        K = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
        np.testing.assert_allclose((np.eye(3) + 2 * w * K + 2 * K @ K).ravel(), R, atol=2e-15)
    assert rpy_of(IDENTITY) == (0.0, 0.0, 0.0) and quaternion_of(IDENTITY) == (1.0, 0.0, 0.0, 0.0)


@pytest.mark.some(of=8, rest="matrix")
@pytest.mark.parametrize("path", EVERY, ids=name)
def test_pinocchio_reads_our_urdf(path, tmp_path):
    """Torques, and poses of links by their names; followers are free there, as the files' own reader has it."""
    pin = pytest.importorskip("pinocchio")
    if path.stem in READ_BY_FEW:
        pytest.skip("joints that Pinocchio does not know of URDF")
    from oracles.pinocchio_models import read_urdf

    file = tmp_path / "written.urdf"
    for base in ("fixed", "floating") if path.stem != "satellite" else ("fixed",):  # which floats by itself
        model = rd.load_urdf(path, base=base, mimic="ignore", strict=False)
        file.write_text(str(replace(model, extensions=()).to_urdf()), encoding="utf-8")
        theirs = read_urdf(file, base == "floating")
        there = rd.converter(model, "pinocchio", joint_names=list(theirs.names)[1:])
        still = replace(model, tree_armature=np.zeros(model.nv))  # which Pinocchio does not know of
        data, rng = theirs.createData(), np.random.default_rng(1)
        q, v, a = model.random_configuration(rng), *rng.normal(size=(2, model.nv))
        tau = pin.rnea(theirs, data, there.q_to(q), there.v_to(q, v), there.a_to(q, v, a))
        ours = there.tau_to(q, reference(still).inverse_dynamics(q, v, a))
        np.testing.assert_allclose(ours, tau, atol=CLOSE * max(1.0, np.abs(tau).max(initial=0.0)))
        pin.framesForwardKinematics(theirs, data, there.q_to(q))
        for link, pose in zip(model.link_names, reference(model).forward_kinematics(q), strict=True):
            frame = theirs.getFrameId(link, pin.FrameType.BODY)
            np.testing.assert_allclose(pose, data.oMf[frame].homogeneous, atol=1e-12 * max(1.0, np.abs(pose).max()))


@pytest.mark.parametrize("robot", ["panda_arm", "robotiq2F85", "tiago_pro"])
def test_pinocchio_follows_what_we_write(robot, tmp_path):
    pin = pytest.importorskip("pinocchio")
    path, file = shared(robot), tmp_path / "written.urdf"
    file.write_text(str(rd.load_urdf(path, strict=False).to_urdf()), encoding="utf-8")
    before, after = (pin.buildModelFromUrdf(str(each), mimic=True) for each in (path, file))
    require_same(rd.from_pinocchio(before), rd.from_pinocchio(after))


def in_mujocos_order(model, m, mujoco):
    """The names of MuJoCo's joints, in its order."""
    return [mujoco.mj_id2name(m, mujoco.mjtObj.mjOBJ_JOINT, j) for j in range(m.njnt)]


def require_mjcf(model):
    mujoco = pytest.importorskip("mujoco")
    try:
        text = model.to_mjcf()
    except rd.UnavailableError as error:
        assert "MuJoCo" in str(error)
        return
    try:
        m = mujoco.MjModel.from_xml_string(str(text))
    except ValueError as error:
        assert "refused-by-mujoco" in codes(text), error
        return
    assert "refused-by-mujoco" not in codes(text)
    back = rd.load_mjcf(m, equality="mimic", strict=False)
    planar = [joint for joint, k in zip(model.joint_names, model.joint_kind, strict=True) if k == 3]
    assert bool(planar) == any("planar" in finding.message for finding in text.report)
    if planar:
        return
    lost = [finding.message for finding in text.report if finding.code == "not-written"]
    limits = not any("limit" in each for each in lost)
    renamed = any("called" in finding.message for finding in text.report)
    known = set(back.link_names) - ({"world"} if renamed else set())
    links = [link for link in model.link_names if link in known]
    merged = {e for finding in text.report if "between two joints" in finding.message for e in finding.elements}
    assert all(f'link "{link}"' in merged for link in set(model.link_names) - known - {"world"})
    ours = replace(model, tree_velocity=np.full(model.nv_tree, np.inf))
    if lost and all("velocity" in each for each in lost):
        limits = True
    require_same(ours, back, CLOSE, limits, links)
    np.testing.assert_array_equal(back.gravity, model.gravity)
    # MuJoCo's own numbers: its mass matrix.
    if model.has_mimic:
        return
    require_mass_matrix(model, m, mujoco)


def require_mass_matrix(model, m, mujoco):
    data, q = mujoco.MjData(m), model.random_configuration(1)
    way = rd.converter(model, "mujoco", joint_names=in_mujocos_order(model, m, mujoco))
    data.qpos[:] = way.q_to(q)
    mujoco.mj_forward(m, data)
    H = np.zeros((m.nv, m.nv))
    for row, unit in zip(H, np.eye(m.nv), strict=True):
        mujoco.mj_mulM(m, data, row, unit)
    wanted = way.mass_matrix_to(q, reference(model).mass_matrix(q))
    np.testing.assert_allclose(H, wanted, atol=CLOSE * np.abs(wanted).max(initial=1e-3))


@pytest.mark.some(of=8, rest="matrix")
@pytest.mark.parametrize("path", EVERY, ids=name)
def test_mujoco_reads_our_urdf(path):
    """Its mass matrix, where it reads URDF at all; followers are free, and armature is not looked at."""
    mujoco = pytest.importorskip("mujoco")
    model = rd.load_urdf(path, mimic="ignore", strict=False)
    model = replace(model, tree_armature=np.zeros(model.nv))
    if path.stem in ("screw_press", "ball_joint_arm", "massless_chain", "massless_tip"):
        pytest.skip("helical joints, or moving links without mass, which MuJoCo does not read from URDF")
    # The collection has no meshes, without which MuJoCo reads nothing; of links without inertia it weighs the shapes.
    heavy = {link for link, row in zip(model.link_names, model.link_inertia, strict=True) if row[0]}
    shapes = tuple(each for each in model.geometries if each.kind != "mesh" and each.link in heavy)
    m = mujoco.MjModel.from_xml_string(str(replace(model, geometries=shapes, extensions=()).to_urdf()))
    if path.stem == "planar_rover":
        assert m.njnt == model.n_bodies + 2  # three joints for a planar one
        return
    require_mass_matrix(model, m, mujoco)


@pytest.mark.matrix
def test_mujoco_reads_chains_that_are_not_too_deep():
    mujoco = pytest.importorskip("mujoco")
    for joints, refused in ((495, False), (496, True)):
        text = rd.random_tree(joints, seed=0, joints=("revolute",), shape="chain").to_mjcf()
        assert ("refused-by-mujoco" in codes(text)) == refused
        if refused:
            with pytest.raises(ValueError, match="DEPTH"):
                mujoco.MjModel.from_xml_string(str(text))
        else:
            assert mujoco.MjModel.from_xml_string(str(text)).nv == joints
    assert len(rd.auto_tree(5000).to_mjcf()) < 4_000_000


@pytest.mark.some(of=8, rest="matrix")
@pytest.mark.parametrize("path", EVERY, ids=name)
def test_mjcf_of_every_robot(path):
    for base in ("fixed", "floating"):
        require_mjcf(loaded(path, base))


@pytest.mark.some(of=5, rest="matrix")
@pytest.mark.parametrize("seed", range(10))
def test_mjcf_of_random_trees(seed):
    joints = ("revolute", "prismatic", "spherical", "fixed", "continuous", "universal")
    base = ("fixed", "floating")[seed % 2]
    require_mjcf(rd.random_tree(10, seed=seed, joints=joints[:5], mimic=0.3, armature=False, base=base))
    require_mjcf(rd.random_tree(10, seed=seed, joints=joints, base=base).reroot("link9"))


SEVERAL = """
<mujoco><worldbody><body name="torso" pos="0 0 1"><freejoint name="root"/><geom size="0.2"/>
  <body name="thigh" pos="0.1 0.2 -0.2" euler="10 20 30"><joint name="x" axis="1 0 0" pos="0 0 0.1"/>
    <joint name="y" axis="0 1 0.5" pos="0.1 0 0"/><joint name="s" type="slide" axis="0 0 1" damping="2"/>
    <geom size="0.1" fromto="0 0 0 0 0 -0.4" type="capsule"/>
    <body name="shank" pos="0 0 -0.4"><joint name="b" type="ball" armature="0.1"/>
      <geom size="0.1" pos="0 0.1 0"/></body>
</body></body></worldbody></mujoco>"""


def test_bodies_of_several_joints_are_written_as_such():
    """The robots of MuJoCo come back as they were, and universal joints are two of one body."""
    mujoco = pytest.importorskip("mujoco")
    model = rd.load_mjcf(SEVERAL)
    text = model.to_mjcf()
    m = mujoco.MjModel.from_xml_string(str(text))
    assert (m.nbody, m.njnt) == (4, 5) and "refused-by-mujoco" not in codes(text)
    back = rd.load_mjcf(m)
    require_same(model, back)
    assert back.link_names == model.link_names and back.joint_names == model.joint_names
    arm = rd.random_tree(3, seed=1, joints=("universal",), shape="chain")
    assert mujoco.MjModel.from_xml_string(str(arm.to_mjcf())).nbody == 5
    require_mjcf(arm)


def test_what_mjcf_has_no_words_for_is_reported():
    arm = rd.load_urdf(own("arm6"))
    assert "velocity limits" in str(arm.to_mjcf().report)
    held = replace(arm, tree_lower=np.zeros(6), tree_upper=np.zeros(6), tree_effort=np.zeros(6))
    report = str(held.to_mjcf().report)
    assert "leave no room" in report and "not positive" in report
    for robot, what in (("screw_press", "no helical joints"), ("planar_rover", None), ("satellite", None)):
        model = rd.load_urdf(own(robot))
        if what:
            with pytest.raises(rd.UnavailableError, match=what):
                model.to_mjcf()
    with pytest.raises(rd.UnavailableError, match="float in the world"):
        arm.attach(rd.load_urdf(own("gripper"), base="floating"), "tool0", prefix="g_").to_mjcf()
    flat = arm.with_inertia("tool0", mass=1.0, inertia=(1.0, 0.0, 0.0, 0.1, 0.0, 0.1))
    assert "A + B >= C" in str(flat.to_mjcf().report)
