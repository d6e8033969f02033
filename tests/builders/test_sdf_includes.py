"""SDF that includes other files: as Drake reads them, and nothing from outside of the folders that were given."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from sdf_texts import POSE, axis, joint, link, sdf

import robodyn as rd
from robodyn.io.builders import sdf_files

SMALL = 1e-12
"""Rounding of poses that are composed in another order."""

FAR = "<pose>1 0.2 -0.5 0.6 0.2 -0.1</pose>"
ARM = "<uri>model://arm/model.sdf</uri>"
PLACED = f"{FAR}<placement_frame>tip</placement_frame>"

RINGED = PLACED.replace("tip", "ring")


def include(*parts: str, merge: str = "") -> str:
    return f"<include{merge}>{''.join(parts)}</include>"


def world(*parts: str, version: str = "1.9") -> str:
    return f'<sdf version="{version}"><world name="w">{"".join(parts)}</world></sdf>'


MERGE = ' merge="true"'
FILES = {
    "arm/model.config": '<model><name>arm</name><sdf version="1.4">old.sdf</sdf><sdf version="1.9">model.sdf</sdf>'
    "</model>",
    "arm/model.sdf": sdf(
        POSE,
        link("upper", POSE),
        link("lower", FAR),
        joint("elbow", "upper", "lower", pose=POSE),
        f'<frame name="tip" attached_to="lower">{POSE}</frame><frame name="base"/>',
        name="arm",
    ),
    "arm/old.sdf": sdf(link("old"), version="1.4"),
    # Axes in the model's frame, as before 1.5.
    "old/model.sdf": sdf(
        POSE, link("a", POSE), link("b", FAR), joint("j", "a", "b", pose=POSE), version="1.4", name="old"
    ),
    "still/model.sdf": sdf("<static>true</static>", POSE, link("wall", POSE), name="still"),
    "pair/model.sdf": sdf(
        include("<uri>model://arm/model.sdf</uri><name>left</name>", FAR),
        include("<uri>parts/hand.sdf</uri><name>hand</name><pose relative_to='left::tip'>0 0 1 0 0 0</pose>"),
        joint("wrist", "left::lower", "hand"),
        name="pair",
        model=' canonical_link="left::lower"',
    ),
    "pair/parts/hand.sdf": sdf(link("palm", POSE), link("thumb", FAR), joint("bend", "palm", "thumb"), name="h"),
    "holder/model.sdf": sdf(
        POSE,
        link("ring", FAR),
        f'<model name="inner">{POSE}{link("x", POSE)}</model>',
        joint("turn", "ring", "inner", more=axis("1 2 3", expressed_in="__model__")),
        name="holder",
        model=' placement_frame="inner"',
    ),
    "placed/model.sdf": sdf(
        POSE, link("p", FAR), f'<frame name="f">{FAR}</frame>', name="placed", model=' placement_frame="f"'
    ),
    "joined/model.sdf": sdf(
        link("p", POSE),
        f'<model name="m">{FAR}{link("y", POSE)}</model>',
        joint("j", "__model__", "m", pose="<pose relative_to='__model__'>1 2 3 0 0 1</pose>"),
        name="joined",
    ),
    "marks/model.sdf": sdf("<static>1</static>", f'<frame name="a">{POSE}</frame>', name="marks"),
    "sun/model.sdf": '<sdf version="1.5"><light name="sun" type="directional"/></sdf>',
    "rooms/model.sdf": sdf(
        f'<model name="chair">{POSE}{link("seat", POSE)}</model><model name="lamp">{FAR}{link("shade", POSE)}</model>',
        f'<frame name="here"/><frame name="there" attached_to="lamp">{POSE}</frame>',
        joint("stands", "there", "here", "fixed"),
        name="rooms",
    ),
}
"""Folders of models by name. Drake does not look into a model.config for `model://arm`, and wants a slash behind it."""

WHOLE = {
    "alone in a world": world(include(ARM)),
    "a folder": world(include("<uri>model://arm/</uri>")),
    "beside a model": world(include(ARM), f'<model name="m">{link("a")}</model>'),
    "named and placed": world(include(ARM, "<name>right</name>", FAR), include(ARM)),
    "placement_frame": world(include(ARM, PLACED)),
    "relative_to": world(include(ARM), include(ARM, "<name>r</name><pose relative_to='arm::tip'>1 2 3 0 0 1</pose>")),
    "made static": world(include(ARM.replace("arm", "still"), "<static>false</static>")),
    "static": world(include(ARM.replace("arm", "still")), include(ARM)),
    "at the root": f'<sdf version="1.9">{include(ARM, "<name>z</name>", FAR)}</sdf>',
    "in a model": sdf(link("a", POSE), include(ARM, FAR), joint("j", "a", "arm::upper", pose=POSE)),
    "in a model of 1.6": sdf(link("a"), include(ARM, FAR), joint("j", "arm::lower", "a", "fixed"), version="1.6"),
    "an old file": sdf(link("a"), include(ARM.replace("arm", "old"), FAR), joint("j", "old::b", "a")),
    "nested includes": world(include("<uri>model://pair/model.sdf</uri>", FAR)),
    "a file beside": sdf(include("<uri>near/part.sdf</uri>", FAR), link("a"), joint("j", "a", "h::palm")),
    "a file beside, dotted": sdf(include("<uri>./near/./part.sdf</uri><name>n</name>"), link("a")),
    "file://": sdf(include("<uri>file://near/part.sdf</uri>"), link("a")),
    "package://": sdf(include("<uri>package://arm/model.sdf</uri>"), link("a")),
    "lights": world(include("<uri>model://sun/model.sdf</uri>"), include(ARM)),
    "merged": sdf(link("a", POSE), include(ARM, merge=MERGE), joint("j", "a", "upper", pose=POSE)),
    "merged and placed": sdf(FAR, link("a"), include(ARM, PLACED, merge=MERGE), joint("j", "a", "tip", pose=POSE)),
    "merged first": sdf(include(ARM, merge=' merge="1"'), '<frame name="f"/>', link("a"), joint("j", "a", "upper")),
    "merged, given in a frame": sdf(
        link("a", POSE), include(ARM, "<pose relative_to='a'>1 2 3 0 1 0</pose>", merge=MERGE)
    ),
    "merged, with a nested model": sdf(
        link("a", POSE), include("<uri>model://holder/model.sdf</uri>", FAR, merge=MERGE), joint("j", "a", "ring")
    ),
    "merged, static": sdf(link("a"), include(ARM.replace("arm", "still"), merge=MERGE)),
    "merged, proxy": sdf(
        link("a"), include(ARM, merge=MERGE), '<frame name="f" attached_to="_merged__arm__model__"/>'
    ),
    "merged twice": sdf(
        link("a"), include(ARM, merge=MERGE), include("<uri>model://holder/model.sdf</uri>", RINGED, merge=MERGE)
    ),
    "merged, nested includes": sdf(link("a"), include("<uri>model://pair/model.sdf</uri>", FAR, merge=MERGE)),
    "merged, an old file": sdf(link("l"), include(ARM.replace("arm", "old"), FAR, merge=MERGE), joint("k", "l", "b")),
    "merged, by its own placement_frame": sdf(link("l"), include(ARM.replace("arm", "placed"), FAR, merge=MERGE)),
    "merged, canonical by name": sdf(
        include(ARM, FAR, merge=MERGE), link("l"), '<frame name="f"/>', model=' canonical_link="lower"'
    ),
    "merged, its model's frame joined": sdf(
        link("l"), include(ARM.replace("arm", "joined"), FAR, merge=MERGE), joint("k", "l", "m::y", "prismatic")
    ),
    "placed by a nested frame": world(
        include("<uri>model://pair/model.sdf</uri>", PLACED.replace("tip", "left::tip"))
    ),
    "by its own placement_frame": world(include(ARM.replace("arm", "placed"), FAR)),
    "in a nested model": sdf(link("l"), f'<model name="n">{FAR}{include(ARM, POSE)}</model>', joint("k", "l", "n")),
    "merged in a nested model": sdf(
        link("l"),
        f'<model name="n">{FAR}{include(ARM, POSE, merge=MERGE)}</model>',
        joint("k", "l", "n"),
        joint("h", "world", "n::tip", "fixed"),
    ),
    "merged into the world": world(include("<uri>model://rooms/model.sdf</uri>", FAR, merge=MERGE), include(ARM)),
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models, and a folder beside them for the file itself."""
    here = tmp_path_factory.mktemp("models")
    for name, text in FILES.items():
        (here / "models" / name).parent.mkdir(parents=True, exist_ok=True)
        (here / "models" / name).write_text(text)
    (here / "home" / "near").mkdir(parents=True)
    (here / "home" / "near" / "part.sdf").write_text(FILES["pair/parts/hand.sdf"])
    return here


def written(folder: Path, text: str) -> Path:
    path = folder / "home" / "robot.sdf"
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", WHOLE)
def test_what_drake_makes_of_it(name, folder, monkeypatch):
    pytest.importorskip("pydrake")
    from drake_oracle import DOWN, errors

    # Drake looks for relative URIs, those of included files too, in the current folder.
    monkeypatch.chdir(folder / "home")
    (folder / "home" / "parts").mkdir(exist_ok=True)
    (folder / "home" / "parts" / "hand.sdf").write_text(FILES["pair/parts/hand.sdf"])
    path = written(folder, WHOLE[name])
    packages = {each.name: each for each in (folder / "models").iterdir()}
    found = errors(path, rd.load_sdf(path, gravity=DOWN, model_dirs=[folder / "models"]), packages=packages)
    assert max(found.values()) < SMALL, found


def test_model_dirs(folder):
    """Folders that hold models, the folder of the model itself, or folders by name; the first that has it."""
    text = world(include("<uri>model://arm</uri>"))
    arm = folder / "models" / "arm"
    for given in ([folder / "models"], (str(folder), str(folder / "models")), [arm], {"arm": arm}):
        assert rd.load(text, model_dirs=given).link_names == ("world", "upper", "lower", "elbow/1", "tip", "base")
    (folder / "limb").symlink_to(arm, target_is_directory=True)
    assert rd.load_sdf(text.replace("model://arm", "model://limb"), model_dirs=[folder / "limb"]).nv == 7
    renamed = world(include("<uri>package://mine/model.sdf</uri>"))
    assert rd.load_sdf(renamed, model_dirs={"mine": arm}).nv == 7
    for given, message in (
        (str(arm), "wanted a list of folders"),
        (arm, "wanted a list of folders"),
        (3, "wanted a list of folders"),
        ([folder / "none"], "is no folder"),
        ([arm / "model.sdf"], "is no folder"),
        ([3], "is no folder"),
        ({3: arm}, "names that are texts"),
        (iter(lambda: arm, None), "wanted a list of folders"),
    ):
        with pytest.raises(rd.ArgumentError, match=f"model_dirs.*{message}"):
            rd.load_sdf(text, model_dirs=given)


def test_what_is_fixed_to_a_model_without_links_is_fixed_to_the_world(folder):
    """Drake has no body for such a model. A fixed joint keeps its links where the file has them."""
    held = joint("h", "marks::a", "arm::tip", "fixed")
    text = world(include("<uri>model://marks</uri>", FAR), include(ARM), held)
    model = rd.load_sdf(text, model_dirs=[folder / "models"])
    bodies = dict(zip(model.link_names, model.link_body.tolist(), strict=True))
    assert model.joint_names == ("arm::elbow",) and bodies["arm::tip"] == bodies["marks::a"] == -1
    alone = rd.load_sdf(world(include(ARM)), model_dirs=[folder / "models"], base="fixed")
    poses = [rd.Dynamics(each).forward_kinematics([0.0])[each.link_names.index(name)]
             for each, name in ((model, "arm::tip"), (alone, "tip"))]  # fmt: skip
    assert np.abs(poses[0] - poses[1]).max() < SMALL


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        ('<sdf version="1.5">a.sdf</sdf><sdf version="1.10">b.sdf</sdf><sdf version="1.9">c.sdf</sdf>', "b"),
        ('<sdf version="1.5">a.sdf</sdf><sdf version="1.99">b.sdf</sdf>', "a"),
        ('<sdf version="1.99">b.sdf</sdf>', "b"),
        ("<name>thing</name><sdf>./c.sdf</sdf>", "c"),
        ('<author/><sdf version="1.6">\n sub/d.sdf \n</sdf>', "d"),
    ],
)
def test_a_model_config_names_the_file_of_the_newest_version_that_is_known(config, wanted, tmp_path):
    (tmp_path / "thing" / "sub").mkdir(parents=True)
    for name in "abc":
        (tmp_path / "thing" / f"{name}.sdf").write_text(sdf(link(name)))
    (tmp_path / "thing" / "sub" / "d.sdf").write_text(sdf(link("d")))
    (tmp_path / "thing" / "model.config").write_text(f"<model>{config}</model>")
    model = rd.load_sdf(sdf(include("<uri>model://thing</uri>", merge=MERGE)), model_dirs=[tmp_path])
    assert model.link_names == ("world", wanted)


def test_one_model_of_a_file_opens_no_others(folder):
    """Names that stand in the file are enough; where none is the wanted one the other files say theirs."""
    text = world(include("<uri>model://nowhere</uri><name>lost</name>"), f'<model name="m">{link("a")}</model>')
    assert rd.load_sdf(text, model="m").link_names == ("world", "a")
    with pytest.raises(rd.LoadError, match=r"model://nowhere.*not found"):
        rd.load_sdf(text, model="lost", model_dirs=[folder / "models"])
    text = world(include(ARM), include(ARM, "<name>two</name>"), f'<model name="m">{link("a")}</model>')
    both = rd.load_sdf(text, model_dirs=[folder / "models"])
    assert both.link_names[1:4] == ("arm::upper", "arm::lower", "two::upper")
    for name in ("arm", "two"):
        alone = rd.load_sdf(text, model=name, model_dirs=[folder / "models"])
        assert alone.name == name and alone.link_names[:3] == ("world", "upper", "lower")


def test_findings_name_the_file(folder):
    parameters = '<experimental:params><link element_id="lower" action="modify"/></experimental:params>'
    text = sdf(link("a"), include(ARM, parameters, "<odd/>", "<plugin name='p'/>"), include(
        "<uri>model://still/model.sdf</uri>", merge=MERGE))  # fmt: skip
    report = rd.load_sdf(text, model_dirs=[folder / "models"]).report
    said = [(each.severity, each.code, each.element) for each in report]
    assert ("info", "sdf-include", 'include "model://arm/model.sdf"') in said
    assert ("warning", "sdf-include", 'model "still" of "still/model.sdf"') in said
    assert ("warning", "unknown-tag", "include") in said and ("info", "ignored-tag", "include") in said
    bad = folder / "home" / "bad.sdf"
    bad.write_text(sdf(link("b", "<pose>1 2</pose>")))
    with pytest.raises(rd.LoadError, match=r'link "b" of "bad.sdf" pose \(line 1\): "1 2" is not 6'):
        rd.load_sdf(written(folder, sdf(include("<uri>bad.sdf</uri>"))))
    bad.write_text("<sdf version='1.9'>\n<model")
    with pytest.raises(rd.LoadError, match=r'include "bad.sdf" \(line \d+\): not well-formed XML at line 2'):
        rd.load_sdf(written(folder, sdf(include("<uri>bad.sdf</uri>"))))


URIS = {
    "the network": ("https://fuel.gazebosim.org/1.0/OpenRobotics/models/Sun", "nothing is fetched: download"),
    "another scheme": ("fuel://model/sun", "nothing is fetched"),
    "upwards": ("../models/arm/model.sdf", "wanted one that leads downwards"),
    "upwards from a model": ("model://arm/../../home/near/part.sdf", "wanted one that leads downwards"),
    "upwards by file://": ("file://../models/arm/model.sdf", "wanted one that leads downwards"),
    "with backslashes": ("near\\part.sdf", "wanted one that leads downwards"),
    "absolute": ("/etc/hostname", "none of the folders"),
    "absolute by file://": ("file:///etc/hostname", "none of the folders"),
    "no name": ("model://", "it names no model"),
    "not there": ("model://nobody/model.sdf", r'not found: there is no ".*nobody/model\.sdf"'),
    "a link outwards": ("out/secret.sdf", 'leads to ".*secret.sdf", which is in none of the folders'),
    "a config that leads outwards": ("model://crooked", 'names "../arm/model.sdf"; wanted a file in its folder'),
    "a folder without models": ("near", "neither model.config nor model.sdf"),
    "a pipe": ("pipe.sdf", "cannot read the file"),
    "itself": ("robot.sdf", "it includes itself"),
    "a circle": ("circle/a.sdf", r'"circle/a.sdf" > "b.sdf" > "a.sdf" \(line \d+\): it includes itself'),
    "URDF": ("robot.urdf", 'the root element is "robot"'),
    "a world": ("world.sdf", "holds <world>; wanted a <model>"),
    "an include": ("through.sdf", "holds <include>; wanted a <model>"),
    "several models": ("two.sdf", "holds 2 models; wanted one"),
    "nothing": ("empty.sdf", "holds no model"),
    "a long name": ("model://" + "a" * 5000, "not found"),
    "a document type": ("doctype.sdf", "document type or entities"),
}


@pytest.mark.parametrize("name", URIS)
def test_what_is_not_opened(name, folder, tmp_path):
    home = folder / "home"
    (tmp_path / "secret.sdf").write_text(sdf(link("secret")))
    (folder / "models" / "crooked").mkdir(exist_ok=True)
    crooked = '<model><sdf version="1.9">../arm/model.sdf</sdf></model>'
    (folder / "models" / "crooked" / "model.config").write_text(crooked)
    (home / "circle").mkdir(exist_ok=True)
    for one, other in ("ab", "ba"):
        (home / "circle" / f"{one}.sdf").write_text(sdf(link("x"), include(f"<uri>{other}.sdf</uri>"), name=one))
    (home / "robot.urdf").write_text("<robot name='r'/>")
    (home / "world.sdf").write_text(world())
    (home / "through.sdf").write_text(f'<sdf version="1.9">{include(ARM)}</sdf>')
    (home / "two.sdf").write_text(sdf(link("a")).replace("</sdf>", f'<model name="n">{link("b")}</model></sdf>'))
    (home / "empty.sdf").write_text('<sdf version="1.9"/>')
    (home / "doctype.sdf").write_text(f"<!DOCTYPE m [<!ENTITY a 'b'>]>{sdf(link('a'))}")
    if name == "a pipe":
        (home / "pipe.sdf").unlink(missing_ok=True)
        os.mkfifo(home / "pipe.sdf")
    if name == "a link outwards":
        (home / "out").unlink(missing_ok=True)
        (home / "out").symlink_to(tmp_path, target_is_directory=True)
    uri, message = URIS[name]
    path = written(folder, sdf(link("a"), include(f"<uri>{uri}</uri>")))
    with pytest.raises(rd.LoadError, match=f"include .*{message}") as caught:
        rd.load_sdf(path, model_dirs=[folder / "models"])
    assert len(str(caught.value)) < 2000


def test_a_text_has_no_folder_of_its_own(folder, monkeypatch):
    monkeypatch.chdir(folder / "home")
    with pytest.raises(rd.LoadError, match="no folder is given to look in"):
        rd.load_sdf(WHOLE["a file beside"])
    assert rd.load_sdf(Path("robot.sdf").absolute().write_text(WHOLE["a file beside"]) and "robot.sdf").nv == 8
    with Path("robot.sdf").open() as file, pytest.raises(rd.LoadError, match="no folder is given to look in"):
        rd.load_sdf(file)


def test_includes_are_bounded(folder, monkeypatch):
    """Chains, copies of copies, and bytes."""
    home = folder / "home"
    for i in range(40):
        (home / f"chain{i}.sdf").write_text(sdf(link("x"), include(f"<uri>chain{i + 1}.sdf</uri>"), name=f"m{i}"))
    with pytest.raises(rd.LoadError, match=r"> \.\.\. >.*more than 30 files include one another"):
        rd.load_sdf(home / "chain0.sdf")
    # Models in models, each file with as many as XML may have.
    deep = "".join(f'<model name="m{i}">{link("x")}' for i in range(80))
    (home / "deep.sdf").write_text(f'<sdf version="1.9">{deep}{"</model>" * 80}</sdf>')
    nested = deep.replace("</link>", "</link>", 1) + include("<uri>deep.sdf</uri>") + "</model>" * 80
    with pytest.raises(rd.LoadError, match="nested more than 100 deep"):
        rd.load_sdf(written(folder, f'<sdf version="1.9">{nested}</sdf>'))
    # Twelve files, each with three of the next: half a million models.
    for i in range(12):
        parts = [include(f"<uri>copies{i + 1}.sdf</uri><name>n{k}</name>") for k in range(3)]
        (home / f"copies{i}.sdf").write_text(sdf(link("x"), *parts, name="m"))
    (home / "copies12.sdf").write_text(sdf(link("x")))
    monkeypatch.setattr(sdf_files, "MAX_INCLUDES", 500)
    with pytest.raises(rd.LoadError, match="more than 500 includes"):
        rd.load_sdf(home / "copies0.sdf")
    (home / "large").mkdir()
    (home / "large" / "model.config").write_text(f"<model><sdf>../copies12.sdf</sdf><!--{'a' * 6000}--></model>")
    monkeypatch.setattr(sdf_files, "MAX_BYTES", 5000)
    with pytest.raises(rd.LoadError, match="more than 5000 bytes together"):
        rd.load_sdf(written(folder, sdf(include("<uri>large</uri>"))))
    with pytest.raises(rd.LoadError, match="more than 5000 bytes together"):
        rd.load_sdf(home / "copies0.sdf")
