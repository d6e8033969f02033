"""Finding codes: every one is in the list, described, and reached by some robot; robots are checked once."""

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from urdf_texts import INERTIAL, LIMIT, robot

import robodyn
from robodyn.core.findings import SEVERITIES
from robodyn.internals.errors import LoadError
from robodyn.io.builders import checks
from robodyn.io.builders.assemble import build_model
from robodyn.io.builders.checks import FINDINGS
from robodyn.io.builders.load import load_urdf
from robodyn.io.builders.urdf import read_urdf

BEHIND = f'<link name="m">{INERTIAL}</link><joint name="k" type="continuous"><parent link="tip"/><child link="m"/>'
BEHIND += "{}</joint>"


def behind(mimic=""):
    """A third link on a joint behind the tip, which may mimic."""
    return BEHIND.format(mimic)


def with_inertial(mass="1", rest="", **moments):
    values = {"ixx": 1, "ixy": 0, "ixz": 0, "iyy": 1, "iyz": 0, "izz": 1} | moments
    inertia = " ".join(f'{key}="{value}"' for key, value in values.items() if value is not None)
    return robot(tip=f'<inertial><mass value="{mass}"/><inertia {inertia}/>{rest}</inertial>')


def rotor(joint):
    actuator = '<actuator name="m"><drake:rotor_inertia value="1"/></actuator>'
    return robot(extra=f'<transmission name="t"><joint name="{joint}"/>{actuator}</transmission>')


DEFAULT = SimpleNamespace(mass=1.0, inertia=np.eye(3), origin=None)
FOLLOWER = '<link name="m"/><joint name="k" type="revolute"><parent link="tip"/><child link="m"/>{}</joint>'
CHAIN = (
    '<link name="n"/><joint name="l" type="continuous"><parent link="m"/><child link="n"/><mimic joint="k"/></joint>'
)

SOURCES = {
    "version-not-known": robot(root='version="2.0"'),
    "xml-not-well-formed": robot(extra="<!-- a -- b -->"),
    "repeated-tag": robot('<origin xyz="1 0 0"/><origin xyz="2 0 0"/>'),
    "implicit-world": robot(extra='<joint name="w" type="fixed"><parent link="world"/><child link="base"/></joint>'),
    "limit-infinite": robot('<limit lower="-inf" upper="inf"/>'),
    "robot-name-missing": '<robot><link name="a"/></robot>',
    "ignored-tag": robot(tip="<inertial><frame/></inertial>"),
    "kept-tag": robot(base="<sensor/>"),
    "ignored-attribute": robot('<limit a:b="1"/>'),
    "unknown-tag": robot("<axes/>"),
    "unknown-attribute": robot('<limit lover="1"/>'),
    "stray-text": robot(tip='<inertial><mass value="2">2</mass></inertial>'),
    "axis-defaulted": robot(),
    "axis-not-used": robot('<axis xyz="0 0 1"/>', kind="floating"),
    "axis-normalised": robot('<axis xyz="0 0 2"/>'),
    "quaternion-normalised": robot('<origin quat_xyzw="0 0 0 2"/>'),
    "inertial-empty": robot(tip="<inertial/>"),
    "mass-missing": robot(tip=INERTIAL.replace('<mass value="1"/>', "")),
    "inertia-missing": robot(tip='<inertial><mass value="1"/></inertial>'),
    "inertia-products-missing": with_inertial(ixy=None),
    "urdf-loop": robot(
        extra=f'<joint name="k" type="revolute">{LIMIT}<parent link="base"/><child link="tip"/></joint>'
    ),
    "armature-from-rotor": rotor("j"),
    "rotor-inertia-not-used": rotor("nobody"),
    "suspected-default-inertial": SimpleNamespace(links=[SimpleNamespace(name="a", inertial=DEFAULT)], joints=[]),
    "link-without-inertial": robot(tip=""),
    "massless-moving-link": robot(tip="", extra=behind()),
    "massless-leaf": robot(tip=""),
    "negative-mass": with_inertial("-1"),
    "negative-inertia": with_inertial(ixy=4),
    "slightly-negative-inertia": with_inertial(ixx=-0.001),
    "inertia-triangle": with_inertial(ixx=3),
    "mass-without-inertia": with_inertial(ixx=0, iyy=0, izz=0),
    "inertia-without-mass": with_inertial("0"),
    "negative-coefficient": robot('<dynamics damping="-1"/>'),
    "joint-forces-not-used": robot('<dynamics damping="1"/>'),
    "limit-missing": robot(),
    "limit-reversed": robot('<limit lower="1" upper="-1"/>'),
    "limit-equal": robot('<limit lower="1" upper="1"/>'),
    "limit-negative": robot('<limit lower="-1" upper="1" effort="-1"/>'),
    "limit-not-used": robot(LIMIT, kind="continuous"),
    "dynamics-not-used": robot('<dynamics damping="1"/>', kind="fixed"),
    "effort-zero": robot('<limit lower="-1" upper="1" effort="0"/>'),
    "axes-not-perpendicular": robot('<axis2 xyz="1 1 0"/>', kind="universal"),
    "mimic-on-fixed-joint": robot('<mimic joint="j"/>', kind="fixed"),
    "mimic-of-fixed-joint": robot(kind="fixed", extra=behind('<mimic joint="j"/>')),
    "mimic-multiplier-zero": robot(extra=behind('<mimic joint="j" multiplier="0"/>')),
    "mimic-outside-limits": robot(
        LIMIT, extra=FOLLOWER.format('<limit lower="1" upper="2"/><mimic joint="j" multiplier="0"/>')
    ),
    "limit-narrowed": robot(LIMIT, extra=FOLLOWER.format('<limit lower="0" upper="2"/><mimic joint="j"/>')),
    "limits-contradict": robot(LIMIT, extra=FOLLOWER.format('<limit lower="2" upper="3"/><mimic joint="j"/>')),
    "mimic-chain": robot(extra=behind('<mimic joint="j"/>') + CHAIN),
    "merged-link": robot(kind="fixed"),
    "mimic-ignored": robot(extra=behind('<mimic joint="j"/>')),
}
"""A robot for every finding code of a report."""

OF_THE_COMMAND = {"singular-mass-matrix"}
"""Codes that `robodyn check` adds; tests/cli/test_cli.py reaches them."""
OF_MUJOCO = {code for code in FINDINGS if code.startswith("mjcf-")}
"""Codes of `load_mjcf`; tests/builders/test_mjcf.py reaches them."""
OF_PINOCCHIO = {"friction-uneven"}
"""Of `from_pinocchio`; tests/builders/test_from_pinocchio.py reaches it."""
OF_SDF = {code for code in FINDINGS if code.startswith("sdf-")} | {"repeated-tag"}
"""Codes of `load_sdf`; tests/builders/test_sdf.py reaches them."""
OF_XACRO = {"xacro-argument-not-used"}
"""Of `load_xacro`; tests/builders/test_xacro.py reaches it."""
OF_BASES = {"floating-world"}
"""Of `base="floating"`; tests/builders/test_urdf.py reaches it."""
OF_WRITERS = {"written-otherwise", "written-for-few", "not-written", "refused-by-mujoco"}
"""Codes of `to_urdf` and `to_mjcf`; tests/editing/test_writers.py reaches them."""
OF_EDITS = {"constraint-changed", "constraint-dropped", "contact-dropped", "configuration-changed", "extension-dropped"}
"""Codes of edits; tests/constraints/test_carried.py, tests/editing/test_geometries.py and
tests/contacts/test_contact_dynamics.py reach them."""
OF_SHAPES = {
    "shape-not-read",
    *("collision-not-used", "collision-mesh-replaced", "cylinder-as-capsule"),
    *("pair-left-out", "pairs-not-between", "srdf-unknown-link"),
}
"""The first is of SDF and MJCF: tests/editing/test_geometries.py reaches it, tests/distances the others."""


@pytest.mark.parametrize("code", SOURCES)
def test_every_code_is_reached(code):
    options = {"strict": False, "mimic": "ignore" if code == "mimic-ignored" else "follow"}
    hits = [finding for finding in load_urdf(SOURCES[code], **options).report if finding.code == code]
    assert hits
    assert {finding.severity for finding in hits} == {SEVERITIES[code]}
    assert all(finding.element and finding.message and finding.elements for finding in hits)
    if SEVERITIES[code] == "error":
        with pytest.raises(LoadError):
            read_urdf(SOURCES[code])


@pytest.mark.parametrize("code", SOURCES)
def test_loading_is_reading_and_building(code):
    for options in ({"strict": False}, {"strict": False, "mimic": "ignore"}):
        description = read_urdf(SOURCES[code], **options)
        assert checks.check(description, **options) is description, "fields as readers must make them"
        loaded, built = load_urdf(SOURCES[code], **options), build_model(description, **options)
        assert loaded == built
        assert loaded.report == built.report
        assert len(set(loaded.report)) == len(loaded.report)


def test_loading_checks_once_and_building_checks_what_it_is_given(monkeypatch):
    done = []
    monkeypatch.setattr(checks, "check_inertials", lambda links, *rest: done.append(links))
    load_urdf(robot())
    assert len(done) == 1
    build_model(read_urdf(robot()))
    assert len(done) == 3


def test_building_checks_by_its_own_options():
    lenient = read_urdf(with_inertial("-1"), strict=False)
    with pytest.raises(LoadError, match="the mass -1 kg is negative"):
        build_model(lenient)
    report = build_model(read_urdf(SOURCES["mimic-ignored"]), mimic="ignore").report
    assert [finding.element for finding in report if finding.code == "mimic-ignored"] == ['joint "k"']


def test_the_list_of_codes_is_complete_and_described():
    folder = Path(robodyn.__file__).parent
    text = "\n".join(path.read_text(encoding="utf-8") for path in folder.rglob("*.py"))
    used = set(re.findall(r'(?:notes\.add|notes\.gather|impossible\.append\()\(\s*"([a-z-]+)"', text))
    of_loading = OF_THE_COMMAND | OF_MUJOCO | OF_PINOCCHIO | OF_SDF | OF_XACRO | OF_BASES
    of_others = of_loading | OF_WRITERS | OF_EDITS | OF_SHAPES
    assert used == set(FINDINGS) == set(SOURCES) | of_others
    assert not re.search(r"\bFinding\(\s*[\"']", text), "a finding whose code is not looked up in the list"
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", code) and meaning for code, meaning in FINDINGS.items())
    assert set(SEVERITIES.values()) == {"info", "warning", "error"}
