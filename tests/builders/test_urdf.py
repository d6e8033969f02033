"""Reading URDF: numbers, joints, inertials, names, and the points that real files raise."""

import math
import re
import sysconfig
from pathlib import Path

import numpy as np
import pytest
from urdf_texts import ENDS, INERTIAL, LIMIT, codes, finding, refused, robot

import robodyn as rd
from robodyn.description import IDENTITY, JOINT_TYPES, Limits, Mimic, Pose
from robodyn.internals.errors import LoadError, RobodynError
from robodyn.io.builders.checks import check
from robodyn.io.builders.urdf import read_urdf

ROBOTS = Path(__file__).resolve().parents[3] / "shared" / "robots"
EXAMPLE_ROBOTS = Path(sysconfig.get_path("purelib"), "cmeel.prefix", "share", "example-robot-data", "robots")


# Points of real files


def test_point_01_file_order_is_kept():
    """Links and joints stay in the order of the file, a joint before its ancestor included."""
    text = (
        '<robot name="r"><joint name="second" type="continuous"><parent link="b"/><child link="c"/></joint>'
        '<link name="c"/><link name="b"/>'
        '<joint name="first" type="continuous"><parent link="a"/><child link="b"/></joint><link name="a"/></robot>'
    )
    description = read_urdf(text)
    assert [joint.name for joint in description.joints] == ["second", "first"]
    assert [link.name for link in description.links] == ["c", "b", "a"]
    assert description.root == "a"


@pytest.mark.parametrize("kind", JOINT_TYPES)
def test_point_02_every_joint_type_is_read(kind):
    axes = '<axis xyz="0 0.6 0.8" pitch="0.01"/>' if kind == "helical" else '<axis xyz="0 0.6 0.8"/>'
    description = read_urdf(robot(axes + ('<axis2 xyz="1 0 0"/>' if kind == "universal" else ""), kind=kind))
    joint = description.joints[0]
    used = kind not in ("fixed", "floating", "spherical")
    assert joint.type == kind
    assert joint.axis == ((0.0, 0.6, 0.8) if used else (1.0, 0.0, 0.0))
    assert joint.axis2 == ((1.0, 0.0, 0.0) if kind == "universal" else (0.0, 1.0, 0.0))
    assert joint.pitch == (0.01 if kind == "helical" else 0.0)


def test_point_02_default_axes():
    for kind in ("revolute", "planar", "universal"):
        description = read_urdf(robot(kind=kind))
        assert (description.joints[0].axis, description.joints[0].axis2) == ((1, 0, 0), (0, 1, 0))
        assert finding(description, "axis-defaulted").element == 'joint "j"'
    assert "axis-defaulted" in codes(read_urdf(robot("<axis/>")))
    assert "axis-defaulted" not in codes(read_urdf(robot(kind="fixed")))


def test_point_02_unknown_joint_types_are_refused():
    refused(robot(kind="ball"), 'joint "j"', '"ball"', "revolute", "spherical")
    refused(robot(kind="Revolute"), '"Revolute"')
    refused(f'<robot><joint name="j">{ENDS}</joint></robot>', 'joint "j"', "allowed are")


def test_point_03_mimic_with_negative_multiplier():
    extra = '<link name="m"/><joint name="k" type="continuous"><parent link="tip"/><child link="m"/>{}</joint>'
    description = read_urdf(robot(extra=extra.format('<mimic joint="j" multiplier="-0.5" offset="0.1"/>')))
    assert description.joints[1].mimic == Mimic("j", -0.5, 0.1)
    assert read_urdf(robot(extra=extra.format('<mimic joint="j"/>'))).joints[1].mimic == Mimic("j", 1.0, 0.0)
    refused(robot(extra=extra.format('<mimic joint="nobody"/>')), 'joint "k"', '"nobody"')
    refused(robot(extra=extra.format('<mimic multiplier="2"/>')), 'joint "k" mimic', "joint", "missing or blank")
    refused(robot(extra=extra.format('<mimic joint="j" offset="nan"/>')), 'joint "k" mimic offset', '"nan"')


def test_point_05_massless_link_with_inertia_is_kept():
    inertia = '<inertial><mass value="0"/><inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial>'
    description = read_urdf(robot(kind="fixed", tip=inertia))
    assert description.links[1].inertial.inertia == (1, 0, 0, 1, 0, 1)
    assert "inertia-without-mass" in codes(description)


def test_point_06_inertia_of_the_root_is_kept():
    assert read_urdf(robot(base=INERTIAL)).links[0].inertial.mass == 1.0


def test_point_07_inertial_origin_with_rpy():
    turned = INERTIAL.replace("<inertial>", '<inertial><origin xyz="1 2 3" rpy="0.1 0.2 0.3"/>')
    pose = read_urdf(robot(tip=turned)).links[1].inertial.pose
    assert pose.xyz == (1.0, 2.0, 3.0)
    c, s = np.cos([0.1, 0.2, 0.3]), np.sin([0.1, 0.2, 0.3])
    x = np.array([[1, 0, 0], [0, c[0], -s[0]], [0, s[0], c[0]]])
    y = np.array([[c[1], 0, s[1]], [0, 1, 0], [-s[1], 0, c[1]]])
    z = np.array([[c[2], -s[2], 0], [s[2], c[2], 0], [0, 0, 1]])
    np.testing.assert_allclose(np.reshape(pose.rotation, (3, 3)), z @ y @ x, atol=1e-15)


def test_point_07_axes_oblique_negative_and_not_unit():
    assert read_urdf(robot('<axis xyz="0 0 -1"/>')).joints[0].axis == (0.0, 0.0, -1.0)
    for text, exact in (("0 0 1", (0.0, 0.0, 1.0)), ("0 0 2", (0.0, 0.0, 1.0)), ("-.5 0 0", (-1.0, 0.0, 0.0))):
        assert read_urdf(robot(f'<axis xyz="{text}"/>')).joints[0].axis == exact
    description = read_urdf(robot('\n<axis xyz="1 1 0"/>'))
    assert description.joints[0].axis == (1 / math.sqrt(2), 1 / math.sqrt(2), 0)
    found = finding(description, "axis-normalised")
    assert (found.element, found.line) == ('joint "j"', 2)
    assert "1.41421" in found.message
    slightly = read_urdf(robot('<axis xyz="0.7071 0.7071 0"/>'))
    assert "axis-normalised" not in codes(slightly)
    assert math.hypot(*slightly.joints[0].axis) == pytest.approx(1.0, abs=1e-15)


@pytest.mark.parametrize(
    "axis", ["0 0 0", "1e-7 0 0", "1 0", "1", "1 0 0 0", "1e308 1e308 1.7e308", "", "x y z", "0,0,1"]
)
def test_point_07_axes_without_direction_are_refused(axis):
    refused(robot(f'<axis xyz="{axis}"/>'), 'joint "j" axis xyz')


def test_point_07_the_axis_of_a_joint_without_one_is_not_looked_at():
    for kind in ("fixed", "floating", "spherical"):
        assert read_urdf(robot('<axis xyz="0 0 0"/>', kind=kind)).joints[0].axis == (1.0, 0.0, 0.0)


def test_point_07_chain_of_fixed_joints_without_inertials():
    links = "".join(f'<link name="f{i}"/>' for i in range(3))
    fixed = '<joint name="{0}" type="fixed"><parent link="{1}"/><child link="{0}"/></joint>'
    chain = "".join(fixed.format(f"f{i}", f"f{i - 1}" if i else "tip") for i in range(3))
    description = read_urdf(robot(LIMIT, extra=links + chain))
    found = finding(description, "link-without-inertial")
    assert found.severity == "info"
    assert found.element == 'link "base", link "f0", link "f1", link "f2"'
    assert codes(description) <= {"link-without-inertial", "axis-defaulted"}


def test_point_08_limits_are_read():
    limits = read_urdf(robot(LIMIT)).joints[0].limits
    assert limits == Limits(-1.0, 1.0, 2.0, 3.0)
    assert read_urdf(robot('<limit effort="0" velocity="1"/>')).joints[0].limits == Limits(None, None, 0.0, 1.0)
    assert read_urdf(robot()).joints[0].limits == Limits()


GOOD_NUMBERS = {
    "1": 1.0,
    "-2.5": -2.5,
    "+3.": 3.0,
    ".5": 0.5,
    "1e-3": 1e-3,
    "1E+2": 100.0,
    " 2 ": 2.0,
    "\t7\n": 7.0,
    "007": 7.0,
    "1e-400": 0.0,
}
BAD_NUMBERS = [
    *("nan", "NaN", "infinite", "- inf", "1e400", "-1e999", "1_0", "\u0661\u0662", "\uff11", "0x10", "", "   "),
    *("${mass}", "$(arg m)", "1,5", "1.5.2", "1e", "--1", "1 2", "\u00a01", "1f", "one", ".", "e5", "1\u2003"),
]


@pytest.mark.parametrize("text", GOOD_NUMBERS)
def test_point_09_plain_decimals_are_numbers(text):
    description = read_urdf(robot(f'<limit lower="{text}"/><origin xyz="0 {text} 0"/>'))
    assert description.joints[0].limits.lower == GOOD_NUMBERS[text]
    assert description.joints[0].origin.xyz == (0.0, GOOD_NUMBERS[text], 0.0)


@pytest.mark.parametrize("text", BAD_NUMBERS)
def test_point_09_anything_else_is_no_number(text):
    refused(
        robot(tip=INERTIAL.replace('"1"', f'"{text}"', 1)), 'link "tip" inertial mass value (line 1)', "is not a finite"
    )
    refused(robot(f'<origin xyz="0 0 {text}"/>'), 'joint "j" origin xyz (line 1)', "is not 3 finite numbers")
    refused(robot(f'<limit lower="{text}"/>'), 'joint "j" limit lower', "is not a finite")
    refused(robot(f'<dynamics damping="{text}"/>'), 'joint "j" dynamics damping')
    refused(robot(f'<axis xyz="0 0 1" pitch="{text}"/>', kind="helical"), 'joint "j" axis pitch')


# Names, structure and the report


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("<robot><link/></robot>", ("link", "name of <link> is missing or blank")),
        ('<robot>\n<link name=" "/></robot>', ("link (line 2)", "missing or blank")),
        ("<robot><joint/></robot>", ("joint", "name of <joint> is missing")),
        ('<robot name="r"></robot>', ("no links",)),
        ('<robot>\n<link name="a"/>\n<link name="a"/></robot>', ('link "a"', "once (line 2)", "again (line 3)")),
        (robot(extra=f'<joint name="j" type="fixed">{ENDS}</joint>'), ('joint "j"', "defined twice")),
        (robot(more='<child link="tip"/>'), ('joint "j"', "<parent link=...>")),
        (robot(more='<parent link="base"/>'), ('joint "j"', "<child link=...>")),
        (robot(more='<parent/><child link="tip"/>'), ('joint "j" parent', "link of <parent> is missing")),
        (robot(more='<parent link="base"/><child link="hand"/>'), ('joint "j"', 'child link "hand" does not exist')),
        (robot('<origin rpy="0 0"/>'), ('joint "j" origin rpy', '"0 0"', "3 finite numbers")),
        (robot('<axis xyz="0 0 1"/>', kind="helical"), ('joint "j"', "no pitch", 'pitch="0.01"')),
        (robot(kind="helical"), ("no pitch",)),
        (robot('<origin rpy="0 0 0" quat_xyzw="0 0 0 1"/>'), ('joint "j" origin quat_xyzw', "one of the two")),
        (robot('<origin quat_xyzw="0 0 0 0"/>'), ('joint "j" origin quat_xyzw', "norm 0")),
        (robot('<origin quat_xyzw="0 0 1"/>'), ('joint "j" origin quat_xyzw', "4 finite numbers")),
    ],
)
def test_faulty_structure_is_refused(text, parts):
    refused(text, *parts)


def test_names_in_messages_are_shortened_and_escaped():
    with pytest.raises(LoadError) as caught:
        read_urdf(robot(kind="x" * 100_000 + "&#10;"))
    assert len(str(caught.value)) < 300
    refused(robot(kind="a&#9;b"), r'"a\tb"')


def test_inertials_with_parts_missing():
    mass, inertia = '<mass value="2"/>', '<inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/>'
    empty = read_urdf(robot(tip="<inertial/>"))
    assert empty.links[1].inertial is None
    assert finding(empty, "inertial-empty").element == 'link "tip"'
    weight = read_urdf(robot(tip=f"<inertial>{mass}</inertial>"))
    assert weight.links[1].inertial.inertia == (0,) * 6
    assert {"inertia-missing", "mass-without-inertia"} <= codes(weight)
    wheel = read_urdf(robot(tip=f"<inertial>{inertia}</inertial>"))
    assert wheel.links[1].inertial.mass == 0.0
    assert {"mass-missing", "inertia-without-mass"} <= codes(wheel)
    diagonal = read_urdf(robot(tip=f'<inertial>{mass}<inertia ixx="1" iyy="2" izz="2.5"/></inertial>'))
    assert diagonal.links[1].inertial.inertia == (1, 0, 0, 2, 0, 2.5)
    assert "ixy, ixz, iyz" in finding(diagonal, "inertia-products-missing").message
    refused(
        robot(tip=f'<inertial>{mass}<inertia ixx="1" iyy="1"/></inertial>'),
        'link "tip" inertial inertia izz',
        "missing",
    )
    refused(robot(tip=f'<inertial><mass val="1"/>{inertia}</inertial>'), 'link "tip" inertial mass value', "missing")


def test_origins():
    assert read_urdf(robot("<origin/>")).joints[0].origin == Pose()
    assert read_urdf(robot('<origin rpy="0 0 0"/>')).joints[0].origin.rotation is IDENTITY
    half = math.sqrt(0.5)
    turned = read_urdf(robot(f'<origin xyz="1 2 3" quat_xyzw="0 0 {half} {half}"/>')).joints[0].origin
    yawed = read_urdf(robot(f'<origin xyz="1 2 3" rpy="0 0 {math.pi / 2}"/>')).joints[0].origin
    assert turned.xyz == yawed.xyz
    np.testing.assert_allclose(turned.rotation, yawed.rotation, atol=1e-15)
    doubled = read_urdf(robot('<origin quat_xyzw="0 0 0 2"/>'))
    assert doubled.joints[0].origin == Pose()
    assert finding(doubled, "quaternion-normalised").element == 'joint "j" origin'


def test_dynamics_and_armature_are_read():
    joint = read_urdf(robot('<dynamics damping="1" friction="2" armature="3"/>')).joints[0]
    assert (joint.damping, joint.friction, joint.armature) == (1.0, 2.0, 3.0)


def transmission(rotor='<drake:rotor_inertia value="0.5"/>', gear='<drake:gear_ratio value="10"/>', joint="j", more=""):
    actuator = f'<actuator name="m">{rotor}{gear}</actuator>'
    return f'<transmission name="t"><type>simple</type><joint name="{joint}"/>{actuator}{more}</transmission>'


def test_rotor_inertia_of_transmissions():
    description = read_urdf(robot(extra=transmission()))
    assert description.joints[0].armature == 50.0
    assert finding(description, "armature-from-rotor").element == 'joint "j"'
    assert read_urdf(robot(extra=transmission(gear=""))).joints[0].armature == 0.5
    assert read_urdf(robot(extra=transmission() + transmission())).joints[0].armature == 100.0
    plain = read_urdf(robot(extra=transmission(rotor="")))
    assert plain.joints[0].armature == 0.0
    assert "<transmission>" in finding(plain, "kept-tag").message
    refused(robot('<dynamics armature="1"/>', extra=transmission()), 'joint "j"', "both an armature")
    refused(robot(extra=transmission(rotor='<drake:rotor_inertia value="x"/>')), 'transmission "t"', '"x"')
    huge = robot(extra=transmission(gear='<drake:gear_ratio value="1e200"/>'))
    refused(huge, 'joint "j" (line 1) armature: a finite number is wanted, not inf')


@pytest.mark.parametrize("options", [{"joint": "nobody"}, {"more": '<joint name="k"/>'}, {"more": "<actuator/>"}])
def test_rotor_inertia_that_belongs_to_no_single_joint(options):
    description = read_urdf(robot(extra=transmission(**options)))
    assert description.joints[0].armature == 0.0
    assert finding(description, "rotor-inertia-not-used").element == 'transmission "t"'


INERTIA, RATIO = "<motorInertia>1e-5</motorInertia>", "<mechanicalReduction> -50 </mechanicalReduction>"


def motor(inertia=INERTIA, ratio=RATIO, more=""):
    """A transmission as ROS has it."""
    return transmission(rotor=inertia, gear=ratio, more=more)


def test_motors_of_ros_are_armature():
    description = read_urdf(robot(extra=motor()))
    assert description.joints[0].armature == pytest.approx(1e-5 * 50**2)
    assert "motorInertia times mechanicalReduction" in finding(description, "armature-from-rotor").message
    beside = motor(ratio="", more="<mechanicalReduction>3</mechanicalReduction>")  # as of the PR2
    for text, armature in ((motor(ratio=""), 1e-5), (beside, 9e-5), (motor() + motor(ratio=""), 0.02501)):
        assert read_urdf(robot(extra=text)).joints[0].armature == pytest.approx(armature)
    same = read_urdf(robot('<dynamics armature="0.025"/>', extra=motor()))
    assert same.joints[0].armature == pytest.approx(0.025)
    refused(robot('<dynamics armature="1"/>', extra=motor()), 'joint "j"', "both an armature")
    for text in ("", "x", "nan", "1 2", "${m}"):
        refused(robot(extra=motor(f"<motorInertia>{text}</motorInertia>")), 'transmission "t" motorInertia (line 1)')
    refused(robot(extra=motor(ratio="<mechanicalReduction/>")), 'transmission "t" mechanicalReduction (line 1)')


@pytest.mark.parametrize(
    "text",
    [
        motor(more='<joint name="k"/>'),
        motor(more="<actuator><motorInertia>1</motorInertia></actuator>"),
        motor(more="<actuator/>"),
        motor(inertia="", more="<motorInertia>1</motorInertia>"),
        motor(more="<mechanicalReduction>2</mechanicalReduction>"),
        motor().replace('<joint name="j"/>', '<joint name="j"><mechanicalReduction>2</mechanicalReduction></joint>'),
        motor().replace('"j"', '"nobody"'),
    ],
)
def test_motors_that_cannot_be_told_are_not_used(text):
    description = read_urdf(robot(extra=text))
    assert description.joints[0].armature == 0.0
    assert "motorInertia is used only" in finding(description, "rotor-inertia-not-used").message


def test_of_two_ways_to_give_a_rotor_that_of_drake_is_used():
    both = '<drake:rotor_inertia value="0.5"/>' + INERTIA + RATIO
    description = read_urdf(robot(extra=transmission(rotor=both)))
    assert description.joints[0].armature == 50.0
    assert "motorInertia is not used" in finding(description, "rotor-inertia-not-used").message


@pytest.mark.parametrize("ends", ["-inf inf", "-Infinity +INF", "-INF infinity", "inf -inf"])
def test_infinite_limits_are_none(ends):
    low, high = ends.split()
    limit = f'<limit lower="{low}" upper="{high}" effort="inf" velocity="inf"/>'
    description = read_urdf(robot(limit))
    assert description.joints[0].limits == Limits()
    found = [each for each in description.report if each.code == "limit-infinite"]
    assert [each.severity for each in found].count("warning") == (2 if low == "inf" else 0) and len(found) == 4
    model = rd.load_urdf(robot(limit))
    assert np.isinf([model.lower, model.upper, model.effort_limit, model.velocity_limit]).all()
    refused(robot(limit.replace(low, "nan")), 'joint "j" limit lower (line 1)', '"nan" is not a finite number')
    refused(robot(f'<origin xyz="{low} 0 0"/>'), "origin xyz")


def test_joints_of_the_world_need_no_link_world():
    """As Drake reads them; urdfdom and MuJoCo refuse them."""
    for kind in ("fixed", "revolute", "floating"):
        held = f'<joint name="held" type="{kind}"><parent link="world"/><child link="base"/></joint>'
        written = read_urdf(robot(base=INERTIAL, extra=f'{held}<link name="world"/>'))
        description = read_urdf(robot(base=INERTIAL, extra=held))
        assert description.root == "world" and description.joints == written.joints
        assert sorted(link.name for link in description.links) == sorted(link.name for link in written.links)
        found = finding(description, "implicit-world")
        assert (found.element, found.severity, found.line) == ('joint "held"', "warning", 1)
        assert "implicit-world" not in codes(written)
    refused(robot(extra=f'{held}<link name="c"/>'), '"world", "c"', '"world" is a parent that no link is called')
    refused(robot(extra=held.replace('"world"', '"World"')), 'parent link "World" does not exist')


def test_a_world_that_floats_is_reported():
    held = '<joint name="held" type="fixed"><parent link="{}"/><child link="base"/></joint><link name="{}"/>'
    for name, said in (("world", True), ("World", True), ("worlds", False)):
        text = robot(extra=held.format(name, name))
        assert ("floating-world" in codes(rd.load_urdf(text, base="floating"))) == said
        assert "floating-world" not in codes(rd.load_urdf(text))


@pytest.mark.parametrize(
    "tag", ["origin", "axis", "limit", "dynamics", "inertial", "mass", "inertia", "parent", "child"]
)
def test_of_elements_that_stand_twice_the_first_is_read(tag):
    """As in urdfdom and Drake; MuJoCo refuses them."""
    joint = '<origin xyz="1 0 0"/><axis xyz="0 1 0"/><limit lower="-1" upper="1"/><dynamics damping="1"/>'
    once = robot(joint)
    first = re.search("<inertial>.*?</inertial>" if tag == "inertial" else f"<{tag} [^/]*/>", once)[0]
    second = {"parent": '<parent link="x"/>', "child": '<child link="x"/>', "axis": '<axis xyz="1 0 0"/>'}
    twice = once.replace(first, first + second.get(tag, re.sub(r'"-?[0-9][^"]*"', '"7"', first)), 1)
    description, expected = read_urdf(twice), read_urdf(once)
    assert (description.links, description.joints) == (expected.links, expected.joints)
    found = finding(description, "repeated-tag")
    assert (found.severity, found.message) == ("warning", f"a second <{tag}>; the first is read")


def test_misspellings_are_reported_with_their_lines():
    text = robot('\n<axes xyz="0 0 1"/>\n<limit lower="0" uper="1"/>', tip=INERTIAL + '<mass value="3"/>')
    description = read_urdf(text)
    tags = [(f.element, f.line, f.message) for f in description.report if f.code == "unknown-tag"]
    assert tags == [
        ('link "tip"', 1, "<mass> is not known inside <link>; skipped"),
        ('joint "j"', 2, "<axes> is not known inside <joint>; skipped"),
    ]
    attribute = finding(description, "unknown-attribute")
    assert (attribute.severity, attribute.line) == ("warning", 3)
    assert attribute.message == 'attribute "uper" of <limit> is not known here; skipped'


def test_what_is_skipped_in_joints_without_a_use_for_it_is_reported():
    rest = '<axis xyz="0 0 0"/>\n<limit lower="0" upper="1"/><dynamics friction="1"/>'
    description = read_urdf(robot(rest, kind="fixed"))
    reported = [finding(description, code) for code in ("axis-not-used", "limit-not-used", "dynamics-not-used")]
    assert [(one.severity, one.element) for one in reported] == [("info", 'joint "j"')] * 3
    for kind in ("floating", "spherical"):
        found = finding(read_urdf(robot('\n<axis xyz="0 0 1"/>', kind=kind)), "axis-not-used")
        assert (found.element, found.line) == ('joint "j"', 2)
        assert kind in found.message
        assert "axis-not-used" not in codes(read_urdf(robot(kind=kind)))
    for bad in ('<limit lower="two"/>', '<dynamics damping="1,5"/>'):
        refused(robot(bad, kind="fixed"), 'joint "j"', "is not a finite number")
    assert "unknown-attribute" in codes(read_urdf(robot('<limit lover="1"/>', kind="fixed")))


def test_text_where_none_is_read_is_reported():
    text = robot("\n1 0 0", tip='<inertial><mass value="1">2</mass></inertial>', extra="<gazebo>text</gazebo>")
    description = read_urdf(text.replace("</robot>", "<!-- a comment -->stray</robot>"))
    stray = {(f.element, f.message) for f in description.report if f.code == "stray-text"}
    assert stray == {
        ('link "tip" inertial', "text inside <mass> is not read; skipped"),
        ('joint "j"', "text inside <joint> is not read; skipped"),
        ("robot", "text inside <robot> is not read; skipped"),
    }
    assert finding(description, "stray-text").severity == "warning"
    typed = '<transmission name="t"><type>simple</type><joint name="j"/><actuator name="m"/></transmission>'
    assert "stray-text" not in codes(read_urdf(robot("\n  <!-- no text -->\n", extra=typed)))


def test_attributes_without_a_part_in_dynamics_are_reported():
    text = robot().replace('<link name="tip">', '<link name="tip" type="laser">')
    text = text.replace('<joint name="j"', '<joint name="j" dont_collapse="true"')
    messages = {f.element: f.message for f in read_urdf(text).report if f.code == "ignored-attribute"}
    assert messages == {
        'link "tip"': 'attribute "type" of <link> has no part in dynamics; skipped',
        'joint "j"': 'attribute "dont_collapse" of <joint> has no part in dynamics; skipped',
    }
    assert "unknown-attribute" in codes(read_urdf(robot('<limit type="1"/>')))


def test_what_has_no_part_in_dynamics_is_reported_once_per_kind():
    links = "".join(f'\n<link name="v{i}"><sensor/><sensor/></link>' for i in range(1, 8))
    joints = "".join(
        f'<joint name="f{i}" type="fixed"><parent link="base"/><child link="v{i}"/></joint>' for i in range(1, 8)
    )
    found = [f for f in read_urdf(robot(extra=links + joints)).report if f.code == "kept-tag"]
    assert len(found) == 1
    assert found[0].element == 'link "v1", link "v2", link "v3", link "v4", link "v5" and 2 more'
    assert found[0].message == "<sensor> has no part in dynamics; kept as text (14 times)"
    warned = read_urdf(robot(extra="\n<a/>\n<a/>")).report
    assert "<a> is not known inside <robot>; skipped (2 times: lines 2, 3)" in {f.message for f in warned}


def test_a_robot_without_a_name():
    description = read_urdf(robot().replace('name="r"', ""))
    assert description.name == "robot"
    assert finding(description, "robot-name-missing").severity == "warning"


# Real robots

SLIGHT = {"romeo_laas_small.urdf": 3, "tiago.urdf": 2, "tiago_dual.urdf": 2, "tiago_no_hand.urdf": 2}
"""Files whose links have moments of inertia that are slightly negative, and how many."""
REFUSED = {
    "alex_psyonic_hands.urdf": 'there is no joint "index_q1"',
    "ur3.urdf": "the robot has no links",
}
"""Files of example-robot-data that strict loading refuses, and why."""


@pytest.mark.skipif(not ROBOTS.is_dir(), reason="the collection of real robots is not here")
@pytest.mark.parametrize("path", sorted(ROBOTS.glob("*.urdf")), ids=lambda path: path.stem)
def test_real_robots_load_strictly(path):
    description = read_urdf(path)
    assert check(description) is description
    assert all(finding.severity != "error" for finding in description.report)
    assert len(description.joints) == len(description.links) - 1


@pytest.mark.skipif(not EXAMPLE_ROBOTS.is_dir(), reason="example-robot-data is not installed")
def test_example_robots_load_or_are_refused_for_a_stated_reason():
    for path in sorted(EXAMPLE_ROBOTS.rglob("*.urdf")):
        try:
            description = read_urdf(path)
        except RobodynError as error:
            assert REFUSED.get(path.name, "not expected") in str(error), f"{path}: {error}"
            if path.name != "ur3.urdf":
                assert read_urdf(path, strict=False, mimic="ignore").links
        else:
            assert path.name not in REFUSED
            slight = [finding for finding in description.report if finding.code == "slightly-negative-inertia"]
            assert len(slight) == SLIGHT.get(path.name, 0)
            assert check(description) is description
