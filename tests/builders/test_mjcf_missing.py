"""MJCF whose files are missing: what is left out changes no inertia, and what would is refused by name."""

from __future__ import annotations

import numpy as np
import pytest
from test_mjcf_files import HEIGHTS, png, stl, written

import robodyn as rd

mujoco = pytest.importorskip("mujoco")

FILES = {"shell.stl": stl(), "hill.bin": HEIGHTS, "paint.png": png()}
ASSETS = """<asset><mesh name="shell" file="shell.stl"/><mesh file="shell.stl" name="other" scale="2 2 2"/>
<hfield name="hill" size="1 1 1 1" file="hill.bin"/><texture name="paint" type="2d" file="paint.png"/>
<texture name="cube" type="cube" fileright="paint.png" fileleft="paint.png"/>
<material name="m" texture="paint"/><material name="n" rgba="1 0 0 1"/></asset>"""
ROD = '<inertial pos="0 0 -.5" mass="1" diaginertia=".01 .02 .02"/>'
SHELL = '<geom type="mesh" mesh="shell" material="m"/>'
HINGE = '<joint name="hinge" axis="0 1 0"/>'

LOADS = {
    "a moving body with an inertia": f'<worldbody><body name="b">{HINGE}{ROD}{SHELL}</body></worldbody>',
    "in a frame": f'<worldbody><body name="b">{ROD}<frame pos="1 0 0">{HINGE}{SHELL}</frame></body></worldbody>',
    "in a replicate": f'<worldbody><body>{HINGE}{ROD}<replicate count="3">{SHELL}</replicate></body></worldbody>',
    "the world and bodies that stand still": f'<worldbody>{SHELL}<geom type="hfield" hfield="hill"/><body name="s">'
    f'{SHELL}<body name="b">{HINGE}<geom size=".1" pos="1 0 0"/></body></body></worldbody>',
    "a box around a mesh": f'<worldbody><body name="b">{HINGE}{ROD}<geom type="box" mesh="other"/></body></worldbody>',
    "pictures alone": f'<worldbody><body name="b">{HINGE}<geom size="1" material="m"/></body></worldbody>',
    "a class": '<default><default class="v"><geom group="2" type="mesh"/></default></default>'
    f'<worldbody><body name="b">{HINGE}{ROD}<geom class="v" mesh="shell"/></body></worldbody>',
    "what names a geom that is gone": f'<worldbody><body name="b">{HINGE}{ROD}'
    '<geom name="g" type="mesh" mesh="shell"/></body><body pos="9 0 0">'
    '<joint name="k"/><geom name="h" size="1"/></body></worldbody><contact><pair geom1="g" geom2="h"/></contact>'
    '<sensor><framepos objtype="geom" objname="g"/><jointpos joint="k"/></sensor>',
    "no inertia from shapes": f'<compiler inertiafromgeom="false"/><worldbody><body name="b">{HINGE}{ROD}'
    f"<body>{SHELL}</body></body></worldbody>",
}


@pytest.mark.parametrize("kind", LOADS)
def test_what_loads(kind, tmp_path):
    """It is the robot that it is with its files."""
    text = f"<mujoco>{ASSETS}{LOADS[kind]}</mujoco>"
    whole = rd.load_mjcf(written(tmp_path / "whole", {"main.xml": text, **FILES}))
    model = rd.load(written(tmp_path / "bare", {"main.xml": text}))
    for field in ("Xtree", "inertia", "link_X", "tree_armature", "parent"):
        assert np.array_equal(getattr(model, field), getattr(whole, field)), field
    assert model.link_names == whole.link_names and model.joint_names == whole.joint_names
    said = [each for each in model.report if each.code == "mjcf-missing-file"]
    elements = {f'file "{name}"' for name in FILES} | ({'body "s"'} if "still" in kind else set())
    assert {each.severity for each in said} == {"warning"} and {at for each in said for at in each.elements} == elements
    assert not any(each.code == "mjcf-missing-file" for each in whole.report)


REFUSED = {
    "no inertia": (f'<worldbody><body name="b">{HINGE}{SHELL}</body></worldbody>', '"b" has none'),
    "on what moves": (f'<worldbody><body>{HINGE}{ROD}<body name="b">{SHELL}</body></body></worldbody>', '"b" has none'),
    "inertia from shapes": (
        f'<compiler inertiafromgeom="true"/><worldbody><body name="b">{HINGE}{ROD}{SHELL}</body></worldbody>',
        '"b" is that of its shapes, as inertiafromgeom is true',
    ),
    "total mass": (
        f'<compiler settotalmass="3"/><worldbody><body name="still">{SHELL}</body><body>{HINGE}{ROD}</body>'
        "</worldbody>",
        '"still" has none',
    ),
    "a class of it": (
        f'<default><geom mesh="shell"/></default><worldbody><body>{HINGE}{ROD}<geom type="mesh"/></body></worldbody>',
        "<geom>.* names it|bodies alone",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_refused(kind, tmp_path):
    part, why = REFUSED[kind]
    text = f'<mujoco><asset><mesh name="shell" file="shell.stl"/></asset>{part}</mujoco>'.replace(' material="m"', "")
    with pytest.raises(rd.LoadError, match=rf'its file "shell.stl" is not there; looked for in .*({why})'):
        rd.load_mjcf(written(tmp_path, {"main.xml": text}))


def test_the_world_has_no_mass(tmp_path):
    text = f"<worldbody>{SHELL}<body>{HINGE}<geom size='.1'/></body></worldbody></mujoco>"
    path = written(tmp_path, {"main.xml": f'<mujoco><compiler settotalmass="3"/>{ASSETS}{text}'})
    assert abs(rd.load_mjcf(path).total_mass - 3.0) < 1e-12


def test_flexes_and_submodels_want_their_files(tmp_path):
    body = f"<worldbody><body>{HINGE}{ROD}</body></worldbody>"
    for part in (
        '<worldbody><flexcomp name="c" type="mesh" file="shell.stl" dim="2" mass="1"/></worldbody>',
        '<asset><model name="s" file="shell.stl"/></asset>',
        '<include file="shell.stl"/>',
    ):
        with pytest.raises(rd.LoadError, match=r"shell\.stl.* is not there"):
            rd.load_mjcf(written(tmp_path, {"main.xml": f"<mujoco>{part}{body}</mujoco>"}))


def test_parts_of_other_models(tmp_path):
    """Of a submodel the world may move, and bodies with inertias may do without shapes."""
    part = '<mujoco><asset><mesh name="shell" file="shell.stl"/></asset><worldbody>{}</worldbody></mujoco>'
    main = f'<mujoco><asset><model name="s" file="sub/part.xml"/></asset><worldbody><body>{HINGE}{ROD}<frame>'
    main += '<attach model="s" body="b" prefix="p"/></frame></body></worldbody></mujoco>'
    sound = part.format(f'<body name="b">{ROD}<geom type="mesh" mesh="shell"/></body>')
    model = rd.load_mjcf(written(tmp_path / "a", {"main.xml": main, "sub/part.xml": sound}))
    assert abs(model.total_mass - 2.0) < 1e-12 and "mjcf-missing-file" in {each.code for each in model.report}
    bad = part.format('<body name="b"><geom type="mesh" mesh="shell"/></body>')
    with pytest.raises(rd.LoadError, match='"b" has none'):
        rd.load_mjcf(written(tmp_path / "b", {"main.xml": main, "sub/part.xml": bad}))
