"""Checks of descriptions: fields, tree, masses and inertias, joints and mimics, and the list of finding codes."""

import math
from dataclasses import fields, is_dataclass, replace
from fractions import Fraction

import numpy as np
import pytest

from robodyn.description import (
    JOINT_TYPES,
    Finding,
    Inertial,
    Joint,
    Limits,
    Link,
    Mimic,
    Pose,
    RobotDescription,
    rotation_from_rpy,
)
from robodyn.internals.errors import ArgumentError, LoadError
from robodyn.io.builders.check_bodies import _is_surely_possible
from robodyn.io.builders.checks import check

SOLID = Inertial(1.0, Pose(), (1.0, 0.0, 0.0, 1.0, 0.0, 1.0))
LIMITED = Limits(-1.0, 1.0, 2.0, 3.0)


def link(name, inertial=SOLID, **values):
    return Link(name, inertial, **values)


def joint(name, parent, child, kind="revolute", **values):
    return Joint(name, kind, parent, child, **{"limits": Limits() if kind == "fixed" else LIMITED, **values})


def pair(inertial=SOLID, **values):
    """Two links and the joint between them."""
    return RobotDescription("pair", (link("base"), link("tip", inertial)), (joint("j", "base", "tip", **values),))


def chain(*joints, inertial=SOLID):
    """Links l0, l1, ... and the joints between them, each given as its keyword values, named j1, j2, ..."""
    links = tuple(link(f"l{i}", inertial) for i in range(len(joints) + 1))
    made = tuple(joint(f"j{i}", f"l{i - 1}", f"l{i}", **values) for i, values in enumerate(joints, 1))
    return RobotDescription("chain", links, made)


def found(description, code):
    """Elements that a code is found for."""
    return [finding.element for finding in description.report if finding.code == code]


def refused(description, *parts, **options):
    with pytest.raises(LoadError) as caught:
        check(description, **options)
    for part in parts:
        assert part in str(caught.value), f"{part!r} is not in {caught.value}"


# The description as a whole


def test_a_sound_description_is_returned_as_it_is():
    description = pair()
    assert check(description) is description
    assert check(RobotDescription("one", (link("only"),), ())).report == ()


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"mimic": "perhaps"}, "mimic"),
        ({"mimic": None}, "mimic"),
        ({"strict": 1}, "strict"),
        ({"strict": "no"}, "strict"),
    ],
)
def test_other_arguments_are_refused(options, part):
    with pytest.raises(ArgumentError, match=f"^{part}: got .*; allowed: "):
        check(pair(), **options)


def test_only_descriptions_are_checked():
    with pytest.raises(ArgumentError, match="RobotDescription is wanted, not str"):
        check("<robot/>")


def test_checking_twice_changes_nothing():
    parts = (
        {"mimic": Mimic("j2")},
        {"kind": "fixed", "mimic": Mimic("j1")},
        {"damping": -1.0},
        {"axis": (0.0, 0.0, 1.0)},
    )
    before = (Finding("info", "ignored-tag", "robot", "something"),)
    for mimic in ("follow", "ignore"):
        once = check(replace(chain(*parts, inertial=None), report=before), mimic=mimic, strict=False)
        assert once.report[0] == before[0]
        assert len(once.report) > 3
        assert check(once, mimic=mimic, strict=False) == once


# Fields


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"name": None}, ("robot name", "None")),
        ({"links": [link("base")]}, ("robot links", "tuple of Link")),
        ({"links": ("base",)}, ("robot links",)),
        ({"joints": (link("base"),)}, ("robot joints", "tuple of Joint")),
        ({"report": ("fine",)}, ("robot report", "tuple of Finding")),
        ({"report": (Finding("grave", "ignored-tag", "a", "b"),)}, ("robot report", "fields have their types")),
        ({"report": (Finding("info", "ignored-tag", "a", b"b"),)}, ("robot report", "fields have their types")),
        ({"report": (Finding("info", "ignored-tag", "a", "b", 1, ["x"]),)}, ("robot report",)),
        ({"links": (link(""),)}, ("link name", "not blank")),
        ({"links": (link(7),)}, ("link name", "7")),
    ],
)
def test_wrong_fields_of_a_robot(change, parts):
    refused(replace(pair(), **change), *parts)


def test_parts_of_subclasses_count_by_what_they_hold():
    class Shy(Link):
        name = property(lambda self: 1 / 0)

    shy = object.__new__(Shy)
    for name in ("inertial", "line"):
        Link.__dict__[name].__set__(shy, None)
    refused(replace(pair(), links=(shy, link("tip"))), "robot links", "tuple of Link")
    Link.__dict__["name"].__set__(shy, "base")
    description = replace(pair(), links=(shy, *pair().links[1:]))
    assert type(check(description).links[0]) is Link
    assert check(description).links[0] == Link("base")


@pytest.mark.parametrize(
    ("inertial", "parts"),
    [
        ("heavy", ("inertial", "heavy")),
        (replace(SOLID, mass=math.nan), ("mass", "finite number", "nan")),
        (replace(SOLID, mass=math.inf), ("mass", "inf")),
        (replace(SOLID, mass="1"), ("mass", "'1'")),
        (replace(SOLID, mass=None), ("mass", "None")),
        (replace(SOLID, mass=True), ("mass", "True")),
        (replace(SOLID, mass=10**400), ("mass", "1000")),
        (replace(SOLID, mass=1j), ("mass", "1j")),
        (replace(SOLID, mass=10**5000), ("mass", "<int>")),
        (replace(SOLID, mass=Fraction(10**400)), ("mass", "Fraction")),
        (replace(SOLID, inertia=(1.0, 0.0, 0.0, 1.0, 0.0)), ("inertia", "6 finite numbers")),
        (replace(SOLID, inertia=[1.0, 0.0, 0.0, 1.0, 0.0, 1.0]), ("inertia", "tuple of 6")),
        (replace(SOLID, inertia=(1.0, 0.0, 0.0, 1.0, 0.0, math.nan)), ("inertia", "nan")),
        (replace(SOLID, pose=None), ("origin", "a Pose")),
        (replace(SOLID, pose=Pose(np.zeros(3))), ("origin xyz", "tuple of 3")),
        (replace(SOLID, pose=Pose(rotation=(1.0,) * 8)), ("origin rotation", "tuple of 9")),
    ],
)
def test_wrong_fields_of_a_link(inertial, parts):
    refused(replace(pair(), links=(link("base"), link("tip", inertial, line=7))), 'link "tip" (line 7)', *parts)


@pytest.mark.parametrize(
    ("values", "parts"),
    [
        ({"kind": "hinge"}, ('"hinge"', *JOINT_TYPES)),
        ({"kind": None}, ('"None"',)),
        ({"kind": ["revolute"]}, ("['revolute']", *JOINT_TYPES)),
        ({"origin": Pose((0.0, math.inf, 0.0))}, ("origin xyz", "inf")),
        ({"axis": (1.0, 0.0)}, ("axis", "tuple of 3")),
        ({"axis": (2.0, 0.0, 0.0)}, ("axis", "norm 2", "unit vector")),
        ({"axis": (0.0, 0.0, 0.0)}, ("axis", "norm 0")),
        ({"kind": "universal", "axis2": (0.0, 2.0, 0.0)}, ("axis2", "norm 2")),
        ({"kind": "universal", "axis2": (-1.0, 0.0, 0.0)}, ("axis2", "parallel")),
        ({"damping": math.nan}, ("damping", "nan")),
        ({"pitch": "1"}, ("pitch", "'1'")),
        ({"limits": None}, ("limits", "Limits object")),
        ({"limits": Limits(lower=math.inf)}, ("limits", "inf")),
        ({"mimic": "j"}, ("mimic", "Mimic or None")),
        ({"mimic": Mimic(3)}, ("mimic", "name of a joint")),
        ({"mimic": Mimic("j", math.nan)}, ("mimic multiplier", "nan")),
        ({"origin": Pose(rotation=(1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.1))}, ("origin", "orthonormal")),
        ({"origin": Pose(rotation=(1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, -1.0))}, ("origin", "right-handed")),
        ({"origin": Pose(rotation=(1e308,) * 9)}, ("origin", "orthonormal")),
    ],
)
def test_wrong_fields_of_a_joint(values, parts):
    refused(pair(line=3, **values), 'joint "j" (line 3)', *parts)


def test_inertial_rotations_are_checked():
    tilted = replace(SOLID, pose=Pose(rotation=(0.0,) * 9))
    refused(pair(tilted), 'link "tip" origin', "orthonormal")
    assert check(pair(replace(SOLID, pose=Pose(rotation=rotation_from_rpy(1.0, 2.0, 3.0)))))


def numbers_of(value):
    """All numbers in a description, which holds dataclasses and tuples."""
    if is_dataclass(value):
        value = tuple(getattr(value, field.name) for field in fields(value) if field.name != "line")
    if isinstance(value, tuple):
        for part in value:
            yield from numbers_of(part)
    elif value is not None and not isinstance(value, str):
        yield value


def test_real_numbers_of_any_type_are_allowed_and_become_floats():
    solid = Inertial(np.float32(1), Pose((0, 1, Fraction(1, 2))), (1, 0, 0, Fraction(1), 0, np.int64(1)))
    values = {
        "damping": Fraction(1, 4),
        "friction": 1,
        "armature": np.float64(2.0),
        "mimic": Mimic("k", 2, Fraction(1)),
    }
    description = pair(solid, axis=(0, 0, 1), limits=Limits(-1, Fraction(3, 2), np.int8(5)), **values)
    more = (*description.joints, joint("k", "base", "other", origin=Pose((2**900, 0, 0))))
    description = replace(description, links=(*description.links, link("other")), joints=more)
    checked = check(description)
    assert (checked.links, checked.joints) == (description.links, description.joints)
    assert set(map(type, numbers_of((checked.links, checked.joints)))) == {float}
    assert check(checked) is checked


# The tree


@pytest.mark.parametrize(
    ("links", "joints", "parts"),
    [
        ("", [], ("no links",)),
        ("aab", ["ab"], ('link "a" is defined twice',)),
        ("ab", ["ab", "ab"], ('link "b" is the child of joint "j0" and joint "j1"', "one parent")),
        ("abc", ["ac", "bc"], ('link "c" is the child of joint "j0" and joint "j1"',)),
        ("ab", ["xb"], ('joint "j0"', 'parent link "x" does not exist')),
        ("ab", ["ax"], ('joint "j0"', 'child link "x" does not exist')),
        ("ab", [], ("2 links have no parent", '"a", "b"')),
        ("abcdefgh", [], ("8 links have no parent", '"a", "b", "c", "d", "e" and 3 more')),
        ("a", ["aa"], ("cycle", '"a" -> "a"')),
        ("abc", ["ab", "bc", "ca"], ("cycle", '"a" -> "b" -> "c" -> "a"')),
        ("abcd", ["bc", "cd", "db"], ("cycle", '"b" -> "c" -> "d" -> "b"')),
    ],
)
def test_what_is_no_tree_is_refused(links, joints, parts):
    made = tuple(joint(f"j{i}", parent, child) for i, (parent, child) in enumerate(joints))
    refused(RobotDescription("r", tuple(map(link, links)), made), *parts)


def test_long_cycles_are_shortened():
    n = 50
    joints = tuple(joint(f"j{i}", f"l{i}", f"l{(i + 1) % n}") for i in range(n))
    refused(
        RobotDescription("r", tuple(link(f"l{i}") for i in range(n)), joints), '"l1" -> "l2"', "...", '"l0" -> "l1"'
    )


def test_joint_names_are_unique():
    joints = (joint("j", "a", "b", line=3), joint("j", "b", "c", line=4))
    refused(
        RobotDescription("r", tuple(map(link, "abc")), joints), 'joint "j" is defined twice', "(line 3)", "(line 4)"
    )


# Masses and inertias: points 4 and 5 of real files


def test_point_04_negative_mass():
    for mass in (-1.0, -1e-300):
        refused(pair(replace(SOLID, mass=mass)), 'link "tip"', f"{mass:g} kg", "strict=False")
    assert found(check(pair(replace(SOLID, mass=-1.0)), strict=False), "negative-mass") == ['link "tip"']


def test_point_04_negative_principal_moment():
    bad = replace(SOLID, inertia=(1.0, 4.0, 0.0, 1.0, 0.0, 1.0))
    refused(pair(bad), 'link "tip"', "principal moment -3 kg m^2", "strict=False")
    description = check(pair(bad), strict=False)
    assert found(description, "negative-inertia") == ['link "tip"']
    assert description.report[0].severity == "error"
    assert description.links[1].inertial == bad


def test_point_04_triangle_inequality():
    flat = replace(SOLID, inertia=(1.0, 0.0, 0.0, 1.0, 0.0, 2.0))
    assert check(pair(flat)).report == ()
    assert check(pair(replace(flat, inertia=(1.0, 0.0, 0.0, 1.0, 0.0, 2.000001)))).report == ()
    thin = check(pair(replace(flat, inertia=(1.0, 0.0, 0.0, 1.0, 0.0, 2.1))))
    assert found(thin, "inertia-triangle") == ['link "tip"']
    assert "2.1" in thin.report[0].message


def test_point_04_rounding_of_exporters_passes():
    """Noise around zero, and a moment that is negative in the seventh digit."""
    for inertia in ((-1e-20, 0.0, 0.0, 1e-20, 0.0, 0.0), (0.0, 1e-20, 0.0, 0.0, 0.0, 0.0)):
        assert found(check(pair(replace(SOLID, inertia=inertia))), "mass-without-inertia") == ['link "tip"']
    assert check(pair(replace(SOLID, inertia=(1.0, 0.0, 0.0, 1.0, 0.0, -1e-7)))).report == ()


def test_point_04_extreme_inertias_do_not_overflow():
    for size in (5e-324, 1e-300, 1e308):
        assert check(pair(Inertial(size, Pose(), (size, 0.0, 0.0, size, 0.0, size)))).report == ()
        refused(pair(Inertial(size, Pose(), (size, 0.0, 0.0, size, 0.0, -size))), "negative principal moment")


@pytest.mark.parametrize("seed", range(3))
def test_point_04_moments_that_minors_accept_are_possible(seed):
    """Minors spare most links their principal moments; what they accept, those would."""
    rng = np.random.default_rng(seed)
    accepted = {"any": 0, "solid": 0}
    for k in range(3000):
        low, middle = rng.uniform(0.1, 1.0, 2)
        slack = 0.1 if k % 3 == 0 else rng.choice((-1.0, 1.0)) * 10.0 ** rng.integers(-17, 0)
        moments = np.array((low, middle, low + middle - slack))
        if k % 3 == 1:
            moments[0] = slack
        turn, _ = np.linalg.qr(rng.normal(size=(3, 3)))
        full = (turn * moments) @ turn.T
        ratios = np.linalg.eigvalsh(full)
        upper = full[np.triu_indices(3)] * 10.0 ** (rng.integers(-300, 300) if k % 4 == 0 else 0)
        if _is_surely_possible(tuple(upper.tolist()), float(np.abs(upper).max())):
            accepted["any"] += 1
            accepted["solid"] += k % 12 == 3
            assert ratios[0] > -1e-14 and ratios[0] + ratios[1] - ratios[2] > -1e-14, (seed, k, ratios)
    assert accepted["any"] > 1000 and accepted["solid"] == 250, (seed, accepted)


def test_point_04_mass_without_inertia():
    assert found(check(pair(replace(SOLID, inertia=(0.0,) * 6))), "mass-without-inertia") == ['link "tip"']


def test_point_04_massless_leaf_on_a_moving_joint():
    report = check(pair(None)).report
    assert [(f.code, f.severity) for f in report] == [("massless-leaf", "warning"), ("link-without-inertial", "info")]
    assert 'joint "j" moves nothing that has inertia' in report[0].message
    assert "forward dynamics will be singular" in report[0].message
    assert found(check(pair(None, armature=0.1)), "massless-leaf") == []
    assert found(check(pair(None, kind="fixed")), "massless-leaf") == []


def test_point_04_massless_links_within_a_chain():
    description = chain({}, {})
    links = (description.links[0], link("l1", None), description.links[2])
    checked = check(replace(description, links=links))
    assert found(checked, "massless-moving-link") == ['link "l1"']
    assert found(checked, "massless-leaf") == []


def test_point_04_bodies_are_judged_with_what_is_fixed_to_them():
    description = chain({}, {"kind": "fixed"}, {"kind": "fixed"})
    links = (*description.links[:1], link("l1", None), link("l2", None), description.links[3])
    checked = check(replace(description, links=links))
    assert {finding.code for finding in checked.report} == {"link-without-inertial"}
    assert found(checked, "link-without-inertial") == ['link "l1", link "l2"']


def test_point_04_sliding_needs_mass_where_turning_needs_inertia():
    wheel = replace(SOLID, mass=0.0)
    for kind in ("prismatic", "planar", "floating"):
        assert found(check(pair(wheel, kind=kind)), "massless-leaf") == ['link "tip"']
    for kind in ("revolute", "continuous", "helical", "spherical", "universal"):
        assert found(check(pair(wheel, kind=kind)), "massless-leaf") == []


def test_point_04_mimics_carry_the_load_of_their_leader():
    """A massless leaf that others follow is moved with them, and a follower has no coordinate of its own."""
    description = RobotDescription(
        "hand",
        (link("palm"), link("a", None), link("b")),
        (joint("ja", "palm", "a"), joint("jb", "palm", "b", mimic=Mimic("ja"))),
    )
    assert found(check(description), "massless-leaf") == []
    assert found(check(description, mimic="ignore"), "massless-leaf") == ['link "a"']
    welded = replace(description, joints=(description.joints[0], joint("jb", "palm", "b", mimic=Mimic("ja", 0.0))))
    assert found(check(welded), "massless-leaf") == ['link "a"']
    driven = replace(description.joints[1], armature=1.0)
    empty = replace(description, links=(link("palm"), link("a", None), link("b", None)))
    assert found(check(replace(empty, joints=(description.joints[0], driven))), "massless-leaf") == []
    assert found(check(empty), "massless-leaf") == ['link "a"']


def test_point_05_inertia_without_mass_counts():
    description = check(pair(replace(SOLID, mass=0.0), kind="fixed"))
    assert [finding.code for finding in description.report] == ["inertia-without-mass"]
    assert description.links[1].inertial.inertia == SOLID.inertia


# Joints: points 3 and 8 of real files


def test_point_08_limits_are_reported_and_kept():
    for limits, code in (
        (Limits(), "limit-missing"),
        (Limits(lower=0.0), "limit-missing"),
        (Limits(1.0, -1.0), "limit-reversed"),
        (Limits(1.0, 1.0), "limit-equal"),
        (Limits(-1.0, 1.0, effort=0.0), "effort-zero"),
        (Limits(-1.0, 1.0, effort=-1.0), "limit-negative"),
        (Limits(-1.0, 1.0, velocity=-1.0), "limit-negative"),
    ):
        description = check(pair(limits=limits))
        assert [finding.code for finding in description.report] == [code]
        assert description.joints[0].limits == limits
    for kind in ("continuous", "planar", "floating", "spherical", "universal"):
        assert found(check(pair(kind=kind)), "limit-not-used") == ['joint "j"']
        assert check(pair(kind=kind, limits=Limits())).report == ()


def test_point_08_what_a_fixed_joint_has_no_use_for_is_reported():
    description = check(pair(kind="fixed", limits=Limits(1.0, -1.0), damping=-1.0, armature=2.0))
    assert [(f.code, f.severity) for f in description.report] == [
        ("limit-not-used", "info"),
        ("dynamics-not-used", "info"),
    ]
    assert check(pair(kind="fixed")).report == ()


@pytest.mark.parametrize("what", ["damping", "friction", "armature"])
def test_negative_coefficients(what):
    refused(pair(**{what: -0.5}), 'joint "j"', f"{what} -0.5", "at least 0", "strict=False")
    description = check(pair(**{what: -0.5}), strict=False)
    assert found(description, "negative-coefficient") == ['joint "j"']
    assert getattr(description.joints[0], what) == -0.5


def test_damping_and_friction_are_reported_together():
    description = check(chain({"damping": 1.0}, {}, {"friction": 1.0}))
    assert found(description, "joint-forces-not-used") == ['joint "j1", joint "j3"']


def test_universal_axes_that_are_not_perpendicular():
    description = check(pair(kind="universal", limits=Limits(), axis2=(0.6, 0.8, 0.0)))
    assert found(description, "axes-not-perpendicular") == ['joint "j"']
    assert "53.13 degrees" in description.report[0].message


def test_point_03_mimics_are_followed():
    description = chain({}, {"mimic": Mimic("j1", -2.0, 0.1)})
    assert check(description) is description


def test_point_03_mimic_chains_are_allowed():
    for order in ((None, "j1", "j2", "j3"), ("j2", "j3", "j4", None)):
        description = chain(*({"mimic": Mimic(name) if name else None} for name in order))
        checked = check(description)
        assert checked.joints == description.joints
        assert len(found(checked, "mimic-chain")) == 2


def test_point_03_mimic_of_a_fixed_joint_is_welded():
    description = chain({"kind": "fixed"}, {"mimic": Mimic("j1", 1.0, 0.3)}, {"mimic": Mimic("j2")})
    checked = check(description)
    assert found(checked, "mimic-of-fixed-joint") == ['joint "j2"']
    assert "welded at 0.3" in checked.report[0].message
    assert checked.joints == description.joints


def test_point_03_mimic_with_multiplier_zero():
    assert found(check(chain({}, {"mimic": Mimic("j1", 0.0)})), "mimic-multiplier-zero") == ['joint "j2"']


def test_point_03_multipliers_that_multiply_to_zero_weld_the_joint():
    small = {"mimic": Mimic("j1", 1e-200, 0.1)}
    description = chain({}, small, {"mimic": Mimic("j2", 1e-200, 0.3)}, {"mimic": Mimic("j3", 2.0)})
    checked = check(description)
    assert found(checked, "mimic-multiplier-zero") == ['joint "j3"']
    assert "chain of mimics multiply to zero; welded at 0.3" in checked.report[0].message
    assert found(checked, "mimic-chain") == ['joint "j3"', 'joint "j4"']


@pytest.mark.parametrize(
    ("first", "second"), [(Mimic("j1", 1e200), Mimic("j2", 1e200)), (Mimic("j1", 1.0, 1e200), Mimic("j2", 1e200))]
)
def test_point_03_mimics_that_overflow_are_refused(first, second):
    description = chain({}, {"mimic": first}, {"mimic": second, "line": 9})
    refused(description, 'joint "j3" (line 9) mimics joint "j2"', "inf", "finite")
    assert check(description, mimic="ignore")


def test_point_03_mimic_on_a_fixed_joint_is_dropped():
    for master in ("j1", "nobody", "j2"):
        checked = check(chain({}, {"kind": "fixed", "mimic": Mimic(master)}))
        assert found(checked, "mimic-on-fixed-joint") == ['joint "j2"']
        assert checked.joints[1].mimic is None


@pytest.mark.parametrize("kind", ["planar", "floating", "spherical", "universal"])
def test_point_03_mimics_need_joints_of_one_coordinate(kind):
    several = {"kind": kind, "limits": Limits()}
    refused(chain(several, {"mimic": Mimic("j1")}), 'joint "j2" mimics joint "j1"', f'"j1" is {kind}', "one coordinate")
    refused(chain({}, {**several, "mimic": Mimic("j1")}), 'joint "j2" mimics joint "j1"', f'"j2" is {kind}')


def test_point_03_unknown_masters_and_cycles_are_refused():
    refused(chain({"mimic": Mimic("nobody"), "line": 4}), 'joint "j1" (line 4)', 'no joint "nobody"', 'mimic="ignore"')
    refused(chain({"mimic": Mimic("j1")}), "cycle", '"j1" -> "j1"')
    refused(chain({"mimic": Mimic("j2")}, {"mimic": Mimic("j3")}, {"mimic": Mimic("j2")}), '"j2" -> "j3" -> "j2"')
    n = 3000
    circle = chain(*({"mimic": Mimic(f"j{i % n + 1}")} for i in range(1, n + 1)))
    refused(circle, '"j1" -> "j2"', "...", f'"j{n}" -> "j1"')


def test_point_03_ignored_mimics_are_dropped_with_their_defects():
    description = chain({"mimic": Mimic("j1")}, {"mimic": Mimic("nobody")}, {"kind": "fixed", "mimic": Mimic("j1")})
    checked = check(description, mimic="ignore")
    assert found(checked, "mimic-ignored") == ['joint "j1"', 'joint "j2"', 'joint "j3"']
    assert all(joint.mimic is None for joint in checked.joints)
    assert 'there is no joint "nobody"' in checked.report[1].message


def test_numbers_whose_sum_overflows_stay_the_same_objects():
    origin = Pose((1e308, 1e308, 1e308))
    description = RobotDescription("far", (Link("a"), Link("b")), (Joint("j", "continuous", "a", "b", origin),))
    assert check(description, strict=False).joints[0].origin is origin
