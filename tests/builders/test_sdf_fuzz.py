"""Fuzzing of the SDF reader: near-valid files, mutated as elements and as bytes, and sound ones against Drake.

Only a RobodynError may come out of `load_sdf`, without a warning before it, and what it makes holds finite numbers.
"""

from __future__ import annotations

import importlib.util
import os
import random
import tempfile
import time
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, reject, seed, settings
from hypothesis import strategies as st
from mutations import Node, as_bytes, mutate

import robodyn as rd

EXAMPLES = 60
"""Files in one ordinary run."""
FAMILIES = [8, pytest.param(60, marks=pytest.mark.matrix)]
"""Files that include others take longer: how many there are in every run, and in the larger one."""

NIGHTLY = 120.0
"""Seconds of the nightly run."""

SETTINGS = settings(max_examples=EXAMPLES, deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))

EVIL = [
    *("", " ", "nan", "inf", "-inf", "1e400", "1e308", "-1e308", "5e-324", "0", "-0", "-1", "1_0", "0x10", "\u0661"),
    *("${x}", "1 2", "0 0 0", "1 2 3 4", "1e308 1e308 1e308 0 0 0", "1e200 0 0 1e200 1 1", "1e-7 0 0", "0 0 0 0 0 0 0"),
    *("l0", "l1", "l2", "j1", "j2", "f1", "n", "n::l9", "world", "__model__", "__root__", "l0::l1", "::", "a" * 1500),
    *("ball", "gearbox", "revolute2", "fixed", "screw", "true", "yes", "1.4", "1.99", "quat_xyzw", "\u00e9\U0001f916"),
]
TAGS = [
    *("sdf", "world", "model", "link", "joint", "frame", "include", "static", "pose", "inertial", "mass", "inertia"),
    *("ixx", "parent", "child", "axis", "axis2", "xyz", "limit", "lower", "dynamics", "damping", "mimic", "gravity"),
    *("drake:joint", "drake:rotor_inertia", "drake:mimic", "thread_pitch", "visual", "ns:thing", "axsi"),
]
ATTRIBUTES = [
    *("name", "type", "relative_to", "attached_to", "expressed_in", "rotation_format", "degrees", "version", "joint"),
    *("canonical_link", "placement_frame", "auto", "axis", "frame", "xmlns", "a:b"),
]
TYPES = ["revolute", "continuous", "prismatic", "screw", "universal", "fixed"]

small = st.floats(-2, 2).map(lambda x: repr(round(x, 6)))  # Drake reads no denormal numbers
positive = st.floats(0.01, 4).map(repr)
poses = st.tuples(*[small] * 6).map(" ".join)
directions = st.tuples(st.floats(0.1, 2).map(repr), small, small).map(" ".join)


@st.composite
def links(draw, name, known):
    """A real body: moments of three numbers that two others exceed."""
    moment = draw(st.floats(0.1, 2))
    inertia = {"ixx": moment, "iyy": 1.2 * moment, "izz": 0.9 * moment, "ixy": 0.1 * moment, "iyz": 0.05 * moment}
    inertial = [
        Node("pose", text=draw(poses)),
        Node("mass", text=draw(positive)),
        Node("inertia", {}, [Node(k, text=repr(v)) for k, v in inertia.items()]),
    ]
    return Node("link", {"name": name}, [draw(placed(known)), Node("inertial", {}, inertial)])


@st.composite
def placed(draw, known, modern=True):
    """A pose in a frame that is known before."""
    reference = draw(st.sampled_from(["", *known]))
    return Node("pose", {"relative_to": reference} if reference and modern else {}, text=draw(poses))


@st.composite
def joints(draw, name, parent, child, known, drake=False):
    kind = draw(st.sampled_from(TYPES))
    children = [Node("parent", text=parent), Node("child", text=child), draw(placed(known))]
    if kind in ("revolute", "continuous", "prismatic", "screw"):
        where = draw(st.sampled_from(["", *known]))
        xyz = Node("xyz", {"expressed_in": where} if where else {}, text=draw(directions))
        children.append(Node("axis", {}, [xyz]))
    if kind == "universal":  # Drake wants axes that are perpendicular
        one, other = draw(st.sampled_from([("1 0 0", "0 1 0"), ("1 2 0", "0 0 1"), ("0 -1 0", "2 0 1")]))
        children += [Node("axis", {}, [Node("xyz", text=one)]), Node("axis2", {}, [Node("xyz", text=other)])]
    if kind == "screw":
        children.append(Node("thread_pitch", text=draw(st.sampled_from(["0.5", "-3", "7"]))))
    axes = [each for each in children if each.tag.startswith("axis")]
    if axes and not drake and draw(st.booleans()):
        axes[0].children.append(Node("dynamics", {}, [Node("damping", text=draw(positive))]))
    if kind == "revolute":
        axes[0].children.append(Node("limit", {}, [Node("lower", text="-1"), Node("upper", text=draw(positive))]))
    return Node("joint", {"name": name, "type": kind}, children)


@st.composite
def models(draw, name="m", joint="j", drake=False, link="l", frame="f"):
    """A model of links that joints hang on others before them, on frames or on the world, in either direction."""
    n, known = draw(st.integers(1, 5)), []
    parts = [Node("pose", text=draw(poses))]
    for i in range(n):
        parts.append(draw(links(f"{link}{i}", known)))
        known.append(f"{link}{i}")
        if draw(st.booleans()):
            # Drake puts frames that are attached to joints where the joint's child is.
            held = [each for each in known if each[0] in (link, frame)]
            parts.append(
                Node(
                    "frame", {"name": f"{frame}{i}", "attached_to": draw(st.sampled_from(held))}, [draw(placed(known))]
                )
            )
            known.append(f"{frame}{i}")
        if i and draw(st.booleans()):
            ends = [draw(st.sampled_from([*(f"{link}{k}" for k in range(i))])), f"{link}{i}"]
            parts.append(draw(joints(f"{joint}{i}", *draw(st.permutations(ends)), known, drake)))
            known.append(f"{joint}{i}")
    if name == "m" and draw(st.booleans()):
        parts.append(draw(joints("j0", "world", "l0", known, drake)))
    attributes = {"name": name}
    if draw(st.booleans()):
        attributes["canonical_link"] = f"{link}{draw(st.integers(0, n - 1))}"
    if draw(st.booleans()):
        attributes["placement_frame"] = draw(st.sampled_from(known))
    return Node("model", attributes, parts)


@st.composite
def files(draw, drake=False):
    model = draw(models(drake=drake))
    if draw(st.booleans()):
        model.children.append(draw(models("n", "k", drake)))
    return Node("sdf", {"version": "1.8", "xmlns:drake": "http://drake.mit.edu"}, [model])


@st.composite
def includes(draw, uri, known, names):
    """An include of a file, placed or as it is, merged or not; `known`: frames around it, `names`: those in it."""
    children = [Node("uri", text=uri)]
    if draw(st.booleans()):
        children.append(Node("name", text=f"{uri.partition('.')[0]}2"))
    if draw(st.booleans()):
        children.append(draw(placed(known)))
        if draw(st.booleans()):
            children.append(Node("placement_frame", text=draw(st.sampled_from(names))))
    return Node("include", {"merge": "true"} if draw(st.booleans()) else {}, children)


@st.composite
def families(draw):
    """A file that includes another one, which includes a third: texts by name, "main" among them."""
    inner = draw(models("inner", "k", True, "p", "g"))
    middle = draw(models("middle", "i", True, "q", "h"))
    outer = draw(models(drake=True))
    middle.children.append(draw(includes("inner.sdf", ["q0"], ["p0"])))
    outer.children.append(draw(includes("middle.sdf", ["l0"], ["q0"])))
    found = {}
    for name, model in (("inner", inner), ("middle", middle), ("main", outer)):
        found[name] = Node("sdf", {"version": draw(st.sampled_from(["1.7", "1.9", "1.11"]))}, [model])
    return found


@st.composite
def mutated_families(draw):
    """The same, one file or several mutated."""
    found = draw(families())
    for root in found.values():
        for _ in range(draw(st.integers(0, 2))):
            mutate(draw, root, [*EVIL, *LEADING], [*TAGS, *INCLUDED], ATTRIBUTES)
    return {name: as_bytes(draw, root) for name, root in found.items()}


LEADING = ["inner.sdf", "middle.sdf", "main.sdf", "../main.sdf", "/dev/zero", "model://x", "https://x.org/y", ".", "~"]
INCLUDED = ["uri", "placement_frame", "experimental:params", "sdf"]


@st.composite
def documents(draw):
    """The bytes of a file, mutated."""
    root = draw(files())
    root.attributes["version"] = draw(st.sampled_from(["1.4", "1.6", "1.8", "1.11"]))
    if draw(st.booleans()):
        root.children = [Node("world", {"name": "w"}, [Node("gravity", text="0 0 -1"), *root.children])]
    for _ in range(draw(st.integers(0, 3))):
        mutate(draw, root, EVIL, TAGS, ATTRIBUTES)
    return as_bytes(draw, root)


def read_or_refuse(data, base, strict):
    """What every input must satisfy."""
    with_folders((), data, base, strict)


def with_folders(folders, data, base, strict):
    try:
        model = rd.load_sdf(data, base=base, strict=strict, model_dirs=folders)
    except rd.RobodynError as error:
        assert 10 < len(str(error)) < 2000
        return
    assert len(set(model.joint_names)) == len(set(model.body_names)) == model.n_bodies
    assert len(set(model.link_names)) == len(model.link_names)
    assert not strict or all(finding.severity != "error" for finding in model.report)
    for name in (each.name for each in fields(model)):
        values = np.asarray(getattr(model, name))
        if values.dtype.kind == "f":
            limits = name.startswith("tree_") and name[5:] in ("lower", "upper", "effort", "velocity")
            assert not np.isnan(values).any()
            assert limits or np.isfinite(values).all()
    assert np.isfinite(model.random_configuration(0)).all()


arguments = given(documents(), st.sampled_from([None, "fixed", "floating"]), st.booleans())


@SETTINGS
@arguments
def test_mutated_files_are_read_or_refused(data, base, strict):
    read_or_refuse(data, base, strict)


def written(folder, family):
    """The main file, with the others beside it."""
    for name, data in family.items():
        (folder / f"{name}.sdf").write_bytes(data if isinstance(data, bytes) else str(data).encode())
    return folder / "main.sdf"


def families_or_refuse(family, base, strict):
    with tempfile.TemporaryDirectory() as folder:
        with_folders([folder], written(Path(folder), family), base, strict)


family_arguments = given(mutated_families(), st.sampled_from([None, "fixed", "floating"]), st.booleans())


@pytest.mark.parametrize("examples", FAMILIES)
def test_mutated_files_that_include_others_are_read_or_refused(examples):
    settings(SETTINGS, max_examples=examples)(family_arguments(families_or_refuse))()


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(files())
def test_files_that_are_not_mutated_are_accepted(root):
    """So that the mutations above start from something that the reader goes through to its end."""
    rd.load_sdf(str(root))


@settings(max_examples=100, deadline=None)
@given(st.one_of(st.text(), st.binary(), st.text().map(lambda text: "<" + text)))
def test_any_text_and_bytes_are_read_or_refused(source):
    read_or_refuse(source, None, True)


def same_as_drake(root):
    from drake_oracle import DOWN, errors, plant_of

    source = root if isinstance(root, Path) else str(root)
    try:
        plant_of(source)
    except RuntimeError as error:  # Drake turns not every joint around
        assert "would have to be reversed" in str(error), error
        reject()
    model = rd.load_sdf(source, gravity=DOWN)
    try:
        found = errors(source, model, states=1)
    except rd.ArgumentError as error:  # of several links that no joint carries Drake may let another one float
        assert str(error).startswith("joint_names: "), f"{error}: {source}"
        reject()
    print(source)
    assert max(found.values()) < 1e-9


@pytest.mark.skipif(importlib.util.find_spec("pydrake") is None, reason="Drake is not installed")
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(files(drake=True))
def test_files_are_what_drake_makes_of_them(root):
    same_as_drake(root)


def family_same_as_drake(family):
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # where Drake looks for relative URIs
        try:
            print({name: str(root) for name, root in family.items()})
            same_as_drake(written(Path(folder), family))
        finally:
            os.chdir(before)


@pytest.mark.skipif(importlib.util.find_spec("pydrake") is None, reason="Drake is not installed")
@pytest.mark.parametrize("examples", FAMILIES)
def test_files_that_include_others_are_what_drake_makes_of_them(examples):
    settings(SETTINGS, max_examples=examples)(given(families())(family_same_as_drake))()


@pytest.mark.nightly
def test_mutated_files_for_minutes():
    """The same with new seeds until the time is up; the seed that failed is printed."""
    end = time.monotonic() + NIGHTLY
    generator = random.SystemRandom()
    while time.monotonic() < end:
        number = generator.randrange(2**32)
        print(f"seed {number}")
        seed(number)(settings(SETTINGS, database=None)(arguments(read_or_refuse)))()
        seed(number)(settings(SETTINGS, database=None)(family_arguments(families_or_refuse)))()


@pytest.mark.nightly
@pytest.mark.skipif(importlib.util.find_spec("pydrake") is None, reason="Drake is not installed")
def test_files_are_what_drake_makes_of_them_for_minutes():
    end = time.monotonic() + NIGHTLY
    generator = random.SystemRandom()
    while time.monotonic() < end:
        number = generator.randrange(2**32)
        print(f"seed {number}")
        seed(number)(settings(SETTINGS, database=None)(given(files(drake=True))(same_as_drake)))()
        seed(number)(settings(SETTINGS, database=None)(given(families())(family_same_as_drake)))()
