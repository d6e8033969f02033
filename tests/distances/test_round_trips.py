"""Shapes of every kind through files: what readers make of them, writers and .npz, with names, pairs and excludes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from conftest import random_states
from test_distances import LIMBS

import robodyn as rd

TURN = np.array([[0.36, 0.48, -0.8, 0.1], [-0.8, 0.6, 0.0, 0.2], [0.48, 0.64, 0.6, 0.0], [0.0, 0.0, 0.0, 1.0]])
SHAPES = (
    rd.Plane("base", (0.0, 0.6, 0.8), 0.1, name="floor"),
    rd.Box("base", TURN, (0.2, 0.3, 0.1), name="foot"),
    rd.Capsule("a", (0.0, 0.0, 0.0), (0.2, 0.1, 0.0), 0.05, name="rod"),
    rd.Capsule("b", (0.0, 0.0, 0.0), (0.0, 0.0, 0.0), 0.06, name="dot"),
    rd.Sphere("b", (0.1, 0.0, 0.1), 0.07, name="knob"),
    rd.Cylinder("d", TURN, 0.03, 0.1, name="can"),
)
PAIRS = [("foot", "knob"), ("floor", "can"), ("can", "rod"), ("dot", "can"), ("foot", "dot")]
MJCF = """<mujoco><worldbody><geom name="floor" type="plane" size="1 1 1" pos="0 0 -0.3"/>
<body name="a" pos="0 0 0.4"><joint name="j0" axis="0 1 0"/>
<geom name="rod" type="capsule" size="0.05 0.1" euler="0 40 0"/>
<body name="b" pos="0.4 0 0"><joint name="j1" axis="0 0 1"/>
<geom name="foot" type="box" size="0.1 0.05 0.02" euler="9 8 7"/>
<body name="c" pos="0.4 0 0"><joint name="j2" axis="0 1 0"/><geom name="can" type="cylinder" size="0.03 0.1"/>
<body name="d" pos="0.2 0 0"><joint name="j3" axis="0 1 0"/><geom name="knob" type="sphere" size="0.05"/></body>
</body></body></body></worldbody><contact><exclude body1="a" body2="d"/></contact></mujoco>"""
OF_SDF = {
    "base": ("floor", "<plane><normal>0 0.6 0.8</normal><size>1 1</size></plane>"),
    "a": ("rod", "<capsule><radius>0.05</radius><length>0.2</length></capsule>"),
    "b": ("foot", "<box><size>0.2 0.1 0.04</size></box>"),
    "c": ("can", "<cylinder><radius>0.03</radius><length>0.2</length></cylinder>"),
    "d": ("knob", "<sphere><radius>0.05</radius></sphere>"),
}
JOINT = """<joint name="{0}{1}" type="revolute"><parent>{0}</parent><child>{1}</child><axis><xyz>0 1 0</xyz></axis>
</joint>"""


def sdf() -> str:
    """A chain with a shape of each kind; one joint is fixed to the world."""
    links = "".join(
        f'<link name="{link}"><pose>{0.4 * k} 0 0.5 0 0 0</pose><inertial><mass>1</mass></inertial>'
        f'<collision name="{name}"><pose>0.1 0 {0.05 if k else -0.5} 0.3 0.2 0.1</pose><geometry>{shape}</geometry>'
        "</collision></link>"
        for k, (link, (name, shape)) in enumerate(OF_SDF.items())
    )
    fixed = '<joint name="fix" type="fixed"><parent>world</parent><child>base</child></joint>'
    joints = "".join(JOINT.format(*pair) for pair in ("ab", "bc", "cd", ("base", "a")))
    return f'<sdf version="1.9"><model name="limbs">{links}{fixed}{joints}</model></sdf>'


def robots() -> dict[str, rd.Model]:
    return {
        "python": rd.load_urdf(LIMBS).with_shapes(SHAPES, PAIRS),
        "sdf": rd.load_sdf(sdf()),
        "mjcf": rd.load_mjcf(MJCF),
    }


def named(model: rd.Model) -> dict[frozenset[str], tuple[int, int]]:
    """Pairs of a model by the names of their shapes."""
    return {frozenset((model.shapes[i].name, model.shapes[j].name)): (i, j) for i, j in model.pairs}


def distances(model: rd.Model, pairs, q) -> np.ndarray:
    """Distances of pairs of named shapes."""
    numbers = {shape.name: k for k, shape in enumerate(model.shapes)}
    chosen = model.with_shapes(model.shapes, [tuple(numbers[name] for name in pair) for pair in pairs])
    return rd.Dynamics(chosen, engine="reference").distances(q)


@pytest.mark.parametrize("source", ["python", "sdf", "mjcf"])
def test_every_kind_survives_npz_and_writers(source, tmp_path: Path):
    if source != "python":
        pytest.importorskip("mujoco")
    model = robots()[source]
    q = random_states(model, (3,))[0]
    listed = [tuple(model.shapes[k].name for k in pair) for pair in model.pairs]
    d = rd.Dynamics(model, engine="reference").distances(q)
    model.save(tmp_path / "limbs.npz")
    again = rd.Model.load(tmp_path / "limbs.npz")
    assert again == model and again.shapes == model.shapes and again.pairs == model.pairs
    assert (rd.Dynamics(again, engine="reference").distances(q) == d).all()
    for text, without, options in (
        (model.to_urdf(), {"floor"}, {}),
        (model.to_mjcf(), set(), {"equality": "mimic"} if source == "python" else {}),
    ):
        again = rd.load(text, **options)
        assert {each.name for each in model.shapes} - {each.name for each in again.shapes} == without
        pairs = [(k, pair) for k, pair in enumerate(listed) if not without & set(pair)]
        assert np.abs(distances(again, [pair for _, pair in pairs], q) - d[:, [k for k, _ in pairs]]).max() < 1e-12
        said = [str(each) for each in text.report if each.code == "not-written"]
        assert any("plane" in each for each in said) == bool(without)
        assert any(f"{len(PAIRS)} pairs of shapes" in each for each in said) == (source == "python")


def test_pairs_that_a_file_excludes_stay_excluded_in_what_is_written(tmp_path: Path):
    """Those of a file are chosen at the first access: a file of .npz that holds none, as older ones, has them again."""
    pytest.importorskip("mujoco")
    model = rd.load_mjcf(MJCF)
    assert frozenset(("rod", "knob")) not in named(model) and frozenset(("rod", "can")) in named(model)
    assert named(rd.load_mjcf(model.to_mjcf())).keys() == named(model).keys()
    model.save(tmp_path / "limbs.npz")
    with np.load(tmp_path / "limbs.npz") as file:
        assert "collision_pairs" not in json.loads(file["texts"].tobytes())
    assert rd.Model.load(tmp_path / "limbs.npz").pairs == model.pairs


def test_terrains_of_files_are_named():
    pytest.importorskip("mujoco")
    field = '<asset><hfield name="hills" nrow="3" ncol="3" size="1 1 1 1" elevation="0 0 0 0 1 0 0 0 0"/></asset>'
    hills = '<worldbody><geom type="hfield" hfield="hills"/>'
    model = rd.load_mjcf(MJCF.replace("<worldbody>", field + hills))
    assert "a height field or signed distance field is left out" in str(model.report)
    heightmap = "<heightmap><uri>a.png</uri></heightmap>"
    text = sdf().replace("<sphere><radius>0.05</radius></sphere>", heightmap)
    assert "<heightmap>; read are" in str(rd.load_sdf(text).report)
