"""Fuzzing of the URDF reader: near-valid robots, mutated as elements and as bytes.

Only a RobodynError may come out of `read_urdf` and `build_model`, without a warning before it. What the one accepts is
sound and passes the checks again unchanged; what the other makes holds finite numbers, limits aside.
"""

import math
import random
import time
from dataclasses import astuple, fields

import numpy as np
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from mutations import Node, as_bytes, mutate

from robodyn.description import JOINT_TYPES, RobotDescription
from robodyn.internals.errors import LoadError, RobodynError
from robodyn.io.builders.assemble import build_model
from robodyn.io.builders.checks import check
from robodyn.io.builders.urdf import read_urdf

EXAMPLES = 250
"""Robots in one ordinary run: about 3 seconds."""

NIGHTLY = 120.0
"""Seconds of the nightly run."""

SETTINGS = settings(max_examples=EXAMPLES, deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))

EVIL = [
    *("", " ", "nan", "inf", "-inf", "1e400", "1e308", "-1e308", "5e-324", "0", "-0", "-1", "1_0", "0x10", "\u0661"),
    *("${x}", "$(arg x)", "1 2", "0 0 0", "1 2 3 4", "1e308 1e308 1e308", "1e200 1e-200 0", "1e-7 0 0", "0 0 2", "x"),
    *("base", "l0", "l1", "l2", "j1", "j2", "fixed", "helical", "universal", "planar", "\u00e9\U0001f916", "a" * 500),
]
TAGS = [
    *("robot", "link", "joint", "inertial", "origin", "mass", "inertia", "parent", "child", "axis", "axis2", "limit"),
    *("dynamics", "mimic", "visual", "gazebo", "transmission", "actuator", "drake:rotor_inertia", "drake:gear_ratio"),
    *("loop_joint", "link1", "link2", "xacro:macro", "ns:thing", "inertai"),
]
ATTRIBUTES = [
    *("name", "type", "link", "joint", "xyz", "rpy", "quat_xyzw", "value", "ixx", "ixy", "izz", "lower", "upper"),
    *("effort", "velocity", "damping", "friction", "armature", "multiplier", "offset", "pitch", "xmlns", "a:b"),
]

small = st.floats(-4, 4).map(repr)
positive = st.floats(0.001, 4).map(repr)
triple = st.tuples(small, small, small).map(" ".join)
direction = st.tuples(positive, small, small).map(" ".join)


@st.composite
def inertials(draw):
    moments = [draw(positive) for _ in range(3)]
    values = {"ixx": moments[0], "iyy": moments[1], "izz": moments[2], "ixy": "0", "ixz": "0", "iyz": "0"}
    origin = Node("origin", {"xyz": draw(triple), "rpy": draw(triple)})
    return Node("inertial", {}, [origin, Node("mass", {"value": draw(positive)}), Node("inertia", values)])


@st.composite
def joints(draw, i):
    kind = draw(st.sampled_from(JOINT_TYPES))
    axis = Node("axis", {"xyz": draw(direction)})
    children = [
        Node("parent", {"link": f"l{draw(st.integers(0, i - 1))}"}),
        Node("child", {"link": f"l{i}"}),
        Node("origin", {"xyz": draw(triple), "rpy": draw(triple)}),
        axis,
    ]
    if kind == "helical":
        axis.attributes["pitch"] = draw(small)
    if kind == "universal":
        children.append(Node("axis2", {"xyz": draw(direction)}))
    if draw(st.booleans()):
        children.append(Node("limit", {"lower": draw(small), "upper": draw(small), "effort": "0", "velocity": "1"}))
    if draw(st.booleans()):
        children.append(Node("dynamics", {"damping": draw(positive), "friction": "0", "armature": draw(positive)}))
    if i > 1 and draw(st.booleans()):
        children.append(
            Node("mimic", {"joint": f"j{draw(st.integers(1, 4))}", "multiplier": draw(small), "offset": "1"})
        )
    return Node("joint", {"name": f"j{i}", "type": kind}, children)


@st.composite
def loops(draw, n):
    """A loop joint, or a second joint to a link."""
    one, other = draw(st.permutations(range(n + 1)))[:2]
    kind = draw(st.sampled_from(["fixed", "ball", "revolute", "continuous", "prismatic"]))
    axis = Node("axis", {"xyz": draw(direction)})
    ends = [
        Node(tag, {"link": f"l{k}", "xyz": draw(triple), "rpy": draw(triple)})
        for tag, k in (("link1", one), ("link2", other))
    ]
    if draw(st.booleans()) or not other:
        return Node("loop_joint", {"name": "loop", "type": kind}, [*ends, axis])
    ends = [Node("parent", {"link": f"l{one}"}), Node("child", {"link": f"l{other}"})]
    return Node("joint", {"name": "loop", "type": "planar" if kind == "ball" else kind}, [*ends, axis])


@st.composite
def robots(draw):
    """A robot that is sound, but for what chance does to its axes, limits and mimics."""
    n = draw(st.integers(0, 4))
    parts = [Node("link", {"name": f"l{i}"}, [draw(inertials())] * draw(st.integers(0, 1))) for i in range(n + 1)]
    parts += [draw(joints(i)) for i in range(1, n + 1)]
    if n and draw(st.booleans()):
        parts.append(draw(loops(n)))
    if draw(st.booleans()):
        rotor = Node("drake:rotor_inertia", {"value": draw(small)})
        actuator = Node("actuator", {"name": "m"}, [rotor, Node("drake:gear_ratio", {"value": draw(small)})])
        parts.append(Node("transmission", {"name": "t"}, [Node("joint", {"name": "j1"}), actuator]))
    return Node("robot", {"name": "r"}, parts)


@st.composite
def documents(draw):
    """The bytes of a robot file, mutated."""
    root = draw(robots())
    for _ in range(draw(st.integers(0, 3))):
        mutate(draw, root, EVIL, TAGS, ATTRIBUTES)
    return as_bytes(draw, root)


def numbers_of(value):
    """All floats in nested tuples."""
    if isinstance(value, tuple):
        for part in value:
            yield from numbers_of(part)
    elif isinstance(value, float):
        yield value


def read_or_refuse(data, mimic, strict):
    """What every input must satisfy."""
    try:
        description = read_urdf(data, mimic=mimic, strict=strict)
    except RobodynError as error:
        assert 10 < len(str(error)) < 2000
        return
    assert isinstance(description, RobotDescription)
    assert check(description, mimic=mimic, strict=strict) is description
    assert all(math.isfinite(value) for value in numbers_of(astuple(description)))
    assert len(description.joints) == len(description.links) - 1
    assert description.root
    assert not strict or all(finding.severity != "error" for finding in description.report)
    assert mimic == "follow" or all(joint.mimic is None for joint in description.joints)
    build_or_refuse(description, mimic, strict)


def build_or_refuse(description, mimic, strict):
    """What every description that was read must satisfy."""
    try:
        model = build_model(description, mimic=mimic, strict=strict, base="floating")
    except LoadError as error:
        assert "overflow" in str(error)
        return
    assert len(set(model.joint_names)) == len(set(model.body_names)) == model.n_bodies
    for name in (*(field.name for field in fields(model)), "armature", "damping", "friction", "total_mass"):
        values = np.asarray(getattr(model, name))
        if values.dtype.kind == "f":
            limits = name.startswith("tree_") and name[5:] in ("lower", "upper", "effort", "velocity")
            assert not np.isnan(values).any()
            assert limits or np.isfinite(values).all()
    assert np.isfinite(model.random_configuration(0)).all()


arguments = given(documents(), st.sampled_from(["follow", "ignore"]), st.booleans())


@SETTINGS
@arguments
def test_mutated_robots_are_read_or_refused(data, mimic, strict):
    read_or_refuse(data, mimic, strict)


@settings(max_examples=200, deadline=None)
@given(robots())
@pytest.mark.matrix
def test_robots_that_are_not_mutated_are_accepted(root):
    """So that the mutations above start from something that the reader goes through to its end."""
    try:
        read_urdf(str(root), strict=False, mimic="ignore")
    except RobodynError as error:
        assert "parallel" in str(error) or "both an armature" in str(error)


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(), st.binary(), st.text().map(lambda text: "<" + text)))
def test_any_text_and_bytes_are_read_or_refused(source):
    read_or_refuse(source, "follow", True)


@pytest.mark.nightly
def test_mutated_robots_for_minutes():
    """The same with new seeds until the time is up; the seed that failed is printed."""
    end = time.monotonic() + NIGHTLY
    generator = random.SystemRandom()
    while time.monotonic() < end:
        number = generator.randrange(2**32)
        print(f"seed {number}")
        seed(number)(settings(SETTINGS, database=None)(arguments(read_or_refuse)))()
