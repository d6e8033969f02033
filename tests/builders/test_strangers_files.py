"""Files as others write them: slightly impossible inertias, elements of other programs, versions, declarations."""

from __future__ import annotations

import re

import numpy as np
import pytest

import robodyn as rd

LINK = """<link name="{name}"><inertial><mass value="{mass}"/>
  <inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="{izz}"/></inertial></link>"""
JOINT = '<joint name="{name}" type="{type}"><parent link="{parent}"/><child link="{child}"/></joint>'


def robot(*parts: str, attributes: str = "") -> str:
    return f'<robot name="r" xmlns:drake="http://drake.mit.edu"{attributes}>\n{"".join(parts)}</robot>'


def link(name: str = "a", mass: float = 1.0, izz: float = 1.0) -> str:
    return LINK.format(name=name, mass=mass, izz=izz)


def joint(name: str = "j", parent: str = "a", child: str = "b", type: str = "revolute") -> str:
    return JOINT.format(name=name, parent=parent, child=child, type=type)


@pytest.mark.parametrize("moment", [-3.5e-8, -4.5e-4, -0.39, -0.4999])
def test_slightly_negative_moments_are_read_with_a_finding(moment: float) -> None:
    model = rd.load_urdf(robot(link(), joint(), link("b", izz=moment)))
    codes = [finding.code for finding in model.report]
    assert ("slightly-negative-inertia" in codes) == (moment < -1e-6)
    xx, xy, xz, yy, yz, zz = model.inertia[0, 4:]
    assert np.isclose(np.linalg.eigvalsh([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])[0], moment, rtol=1e-12)


@pytest.mark.parametrize("moment", [-0.5, -1.0, -7.0])
def test_larger_ones_are_refused(moment: float) -> None:
    text = robot(link(), joint(), link("b", izz=moment))
    with pytest.raises(rd.LoadError, match=r'^link "b" \(line \d+\): its inertia has the negative principal moment'):
        rd.load_urdf(text)
    (found,) = [finding for finding in rd.load_urdf(text, strict=False).report if finding.code == "negative-inertia"]
    assert found.element == 'link "b"'


def test_all_links_that_are_no_bodies_are_named_at_once() -> None:
    names = [f"l{i}" for i in range(9)]
    parts = [link(name, mass=-1.0 if i % 2 else 2.0, izz=-1.0 if i == 1 else 1.0) for i, name in enumerate(names)]
    joints = [joint(f"j{i}", names[i], names[i + 1]) for i in range(8)]
    with pytest.raises(rd.LoadError) as caught:
        rd.load_urdf(robot(*parts, *joints))
    message = str(caught.value)
    assert message.startswith("4 links are no real bodies (strict=False loads them as they are): ")
    assert re.findall(r'link "(l\d)"', message) == ["l1", "l3", "l5", "l7"]
    assert "the mass -1 kg is negative and its inertia has the negative principal moment" in message
    many = [link(f"m{i}", mass=-1.0) for i in range(57)]
    rest = [joint(f"k{i}", "a", f"m{i}") for i in range(57)]
    with pytest.raises(rd.LoadError, match=r'link "m49" \(line \d+\): the mass -1 kg is negative; and 7 more$'):
        rd.load_urdf(robot(link(), *many, *rest))


@pytest.mark.parametrize(("version", "known"), [("1.0", True), ("1", True), (" 1.0 ", True), ("2", False), ("", False)])
def test_versions_that_are_not_known_are_findings(version: str, known: bool) -> None:
    model = rd.load_urdf(robot(link(), attributes=f' version="{version}"'))
    assert [f.code for f in model.report if f.severity == "warning"] == ([] if known else ["version-not-known"])


def test_skipped_elements_are_named_where_the_tree_falls_apart() -> None:
    parts = [link(), link("b"), '<drake:joint name="j" type="planar"/>', "<jiont/>"]
    with pytest.raises(rd.LoadError, match=r"2 links have no parent: .*\(not read: <drake:joint> belongs to another"):
        rd.load_urdf(robot(*parts))
    with pytest.raises(rd.LoadError, match="<jiont> is not known inside <robot>"):
        rd.load_urdf(robot(*parts))
    with pytest.raises(rd.LoadError, match=r'its parent link "c" does not exist \(not read: <drake:link>'):
        rd.load_urdf(robot(link(), joint(parent="c", child="a"), '<drake:link name="c"/>'))


def test_a_world_that_is_no_link_is_explained() -> None:
    with pytest.raises(
        rd.LoadError, match=r'add <link name="World"/> where .* <drake:link> belongs to another program'
    ):
        rd.load_urdf(robot(link(), joint(parent="World", child="a"), '<drake:link name="World"/>'))
    with pytest.raises(rd.LoadError, match=r'its child link "world" does not exist$'):
        rd.load_urdf(robot(link(), joint(parent="a", child="world")))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_blanks_before_the_declaration_in_another_encoding(encoding: str) -> None:
    text = '\n<?xml version="1.0" encoding="utf-16"?>\n' + robot(link())
    mark = b"" if encoding == "utf-16" else b"\xfe\xff"
    assert rd.load_urdf(mark + text.encode(encoding)).link_names == ("a",)


@pytest.mark.parametrize("before", ["\n", "  \t\n\n", "\ufeff\n"])
def test_blanks_before_the_declaration_are_let_pass(before: str) -> None:
    text = before + '<?xml version="1.0" encoding="utf-8"?>\n' + robot(link())
    expected = rd.load_urdf(robot(link()))
    for source in (text, text.encode()):
        assert rd.load_urdf(source).link_names == expected.link_names
    spoilt = text.replace("</robot>", "")
    with pytest.raises(rd.LoadError, match=rf"line {text.count(chr(10)) + 1}"):
        rd.load_urdf(spoilt.encode())


def test_what_stands_before_a_declaration_is_told_in_plain_words() -> None:
    text = '<!-- arm --><?xml version="1.0"?>\n' + robot(link())
    with pytest.raises(rd.LoadError, match=r"the declaration <\?xml \.\.\.\?> does not stand at the very beginning"):
        rd.load_urdf(text.encode())
