"""Sites of MJCF are links: where MuJoCo has them, from every source, and under names that say which they are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import robodyn as rd

mujoco = pytest.importorskip("mujoco")
VERSION = tuple(map(int, mujoco.__version__.split(".")[:3]))

ARM = """<mujoco><worldbody><site name="home" pos="1 2 3"/><site name="arm"/><site/><body name="arm" pos="0 0 1"
euler="0 0 30"><joint name="swing" axis="0 1 0" pos=".1 0 .2"/><joint name="slide" type="slide" axis="1 0 .5"/>
<geom type="capsule" size=".02 .1" mass="1"/><site name="tool" pos=".1 0 .2" euler="10 20 0"/><site name=" "/>
<site name="swing_fixed"/><site name="arm_site" pos="1 0 0"/>
<body name="tool" pos="0 .1 0"><joint name="turn" type="ball"/><geom size=".1"/><site name="tip" pos="0 0 .3"/></body>
</body></worldbody></mujoco>"""


def same_sites(theirs, model, names, states=3):
    """Sites of these names, by the names of our links, are where MuJoCo has them."""
    data, way, dyn = mujoco.MjData(theirs), rd.converter(model, "mujoco"), rd.Dynamics(model, engine="reference")
    for seed in range(states):
        q = model.random_configuration(seed)
        data.qpos[:] = way.q_to(q)
        mujoco.mj_kinematics(theirs, data)
        poses = dyn.forward_kinematics(q)
        for site, link in names.items():
            s = mujoco.mj_name2id(theirs, mujoco.mjtObj.mjOBJ_SITE, site)
            pose = poses[model.link_index(link)]
            assert np.abs(pose[:3, 3] - data.site_xpos[s]).max() < 1e-12, site
            assert np.abs(pose[:3, :3].ravel() - data.site_xmat[s]).max() < 1e-12, site


NAMES = {
    "home": "home",
    "tool": "tool_site",
    "arm": "_arm_site",
    "arm_site": "arm_site",
    "tip": "tip",
    "swing_fixed": "swing_fixed",
}


def test_every_source(tmp_path):
    compiled = mujoco.MjModel.from_xml_string(ARM)
    path, binary = tmp_path / "arm.xml", tmp_path / "arm.mjb"
    path.write_text(ARM)
    mujoco.mj_saveModel(compiled, str(binary), None)
    sources = [ARM, path, binary, compiled]
    if VERSION > (3, 2, 3):
        sources.append(mujoco.MjSpec.from_string(ARM))
    for source in sources:
        model = rd.load_mjcf(source)
        same_sites(compiled, model, NAMES)
        assert model.link_names[:4] == ("world", "arm/0", "arm", "tool")
        assert len(set(model.link_names)) == len(model.link_names) == 4 + len(NAMES)
        said = [(each.severity, *each.elements) for each in model.report if each.code == "mjcf-site"]
        assert said == [("info", 'site "arm"'), ("info", 'site "tool"'), ("info", "sites")]
        assert "2 of them have no name" in next(each.message for each in model.report if each.elements == ("sites",))
        same_sites(compiled, rd.load(path), NAMES)


@pytest.mark.parametrize("seed", range(4))
def test_random_robots(seed):
    """Every kind of joint, several to a body, sites anywhere."""
    rng = np.random.default_rng(seed)
    bodies, n = [""] * 8, 0

    def numbers(size):
        return " ".join(map(str, rng.normal(size=size)))

    for b in reversed(range(8)):
        kinds = ["hinge", "slide", "ball"] if b else ["free"]
        joints = [rng.choice(kinds) for _ in range(rng.integers(0, 3) if b else 1)]
        joints = joints[: joints.index("ball") + 1] if "ball" in joints else joints
        inside = "".join(
            "<freejoint/>" if kind == "free" else f'<joint type="{kind}" axis="{numbers(3)}" pos="{numbers(3)}"/>'
            for kind in joints
        )
        for _ in range(rng.integers(0, 4)):
            inside += f'<site name="site{n}" pos="{numbers(3)}" quat="{numbers(4)}"/>'
            n += 1
        inside += f'<geom size=".1" pos="{numbers(3)}"/>{bodies[b]}'
        text = f'<body pos="{numbers(3)}" quat="{numbers(4)}">{inside}</body>'
        if b:
            bodies[int(rng.integers(0, b))] += text
    text = f"<mujoco><worldbody>{text}</worldbody></mujoco>"
    same_sites(mujoco.MjModel.from_xml_string(text), rd.load_mjcf(text), {f"site{k}": f"site{k}" for k in range(n)})


def test_sites_are_found_by_name():
    """By what asks for links: inverse kinematics, attaching, Jacobians."""
    model = rd.load_mjcf(ARM)
    dyn, q = rd.Dynamics(model), model.random_configuration(3)
    wanted = dyn.forward_kinematics(q)[model.link_index("tip")]
    found = rd.InverseKinematics(model, "tip").solve(wanted, q0=model.integrate(q, np.full(model.nv, 0.05)))[0]
    assert np.abs(dyn.forward_kinematics(found)[model.link_index("tip")] - wanted).max() < 1e-4
    both = model.attach(rd.load_mjcf(ARM), "tool_site", prefix="second_")
    poses = rd.Dynamics(both).forward_kinematics(both.neutral())
    first, second = (poses[both.link_index(name)] for name in ("tool_site", "second_home"))
    assert np.abs(first[:3, :3] @ [1.0, 2.0, 3.0] + first[:3, 3] - second[:3, 3]).max() < 1e-12


def test_read_and_written_again():
    """Sites stay sites, and frames become some."""
    model = rd.load_mjcf(ARM).with_frames({"extra": ("tip", (0.0, 0.1, 0.0))})
    text = model.to_mjcf()
    theirs, again = mujoco.MjModel.from_xml_string(str(text)), rd.load_mjcf(text)
    assert theirs.nsite == len(NAMES) and set(again.link_names) == set(model.link_names)
    same_sites(theirs, again, {"extra": "extra", "tool_site": "tool_site"})
    assert rd.load_mjcf(again.to_mjcf()).link_names == again.link_names


@pytest.mark.skipif(VERSION < (3, 2, 3), reason="this version of MuJoCo has no equalities of sites")
def test_ends_of_equalities_that_were_written_are_no_links():
    robot = rd.load_mjcf(ARM)
    held = rd.load_mjcf(
        replace(robot, constraints=(rd.Weld("tip", "home", name="loop"),)).to_mjcf(), equality="constraints"
    )
    assert set(held.link_names) == set(robot.link_names) and len(held.constraints) == 1
    assert any("end of an equality" in each.message for each in held.report if each.code == "mjcf-site")
    assert set(rd.load_mjcf(held.to_mjcf()).link_names) == set(robot.link_names)


def test_sites_after_an_edit_are_checked():
    theirs = mujoco.MjModel.from_xml_string(ARM)
    theirs.site_quat[1] = 0.0
    with pytest.raises(rd.LoadError, match=r"site_quat.1. is .*wanted unit length"):
        rd.load_mjcf(theirs)
    theirs = mujoco.MjModel.from_xml_string(ARM)
    theirs.site_bodyid[0] = 77
    with pytest.raises(rd.LoadError, match=r"site_bodyid.0. is 77; wanted 0 to 2"):
        rd.load_mjcf(theirs)
