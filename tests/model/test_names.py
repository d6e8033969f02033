"""Names that users give: of joints and links, of fields; and what models, reports and rollouts look like."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest
from robots import OWN, own

import robodyn as rd
from robodyn.core.findings import Report


@pytest.fixture(scope="module")
def arm() -> rd.Model:
    return rd.load_urdf(own("arm6"))


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.stem)
def test_joints_have_their_places(path) -> None:
    model = rd.load_urdf(path, base="floating")
    for place, name in enumerate(model.joint_names):
        assert model.joint_index(name) == model.joint_index(place) == place
    for place, name in enumerate(model.link_names):
        assert model.link_index(name) == place


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("ELBOW", r"^joint: got 'ELBOW'; wanted a joint of 'arm6', such as elbow; fixed joints merge links"),
        ("elbo", "such as elbow; fixed"),
        ("forearm", r"^joint: got 'forearm' \(a link; a joint is asked for\); wanted a joint of 'arm6', such as"),
        (6, "^joint: got 6; wanted a name or an index from 0 to 5$"),
        (-1, "got -1"),
        (True, "got True"),
        (None, "got None; wanted a name or an index"),
        (["elbow"], "wanted a name or an index"),
    ],
)
def test_joints_that_are_not_there(arm: rd.Model, given: object, message: str) -> None:
    with pytest.raises(rd.ArgumentError, match=message):
        arm.joint_index(given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("TOOL0", r"such as tool0$"),
        ("elbow", r"^link: got 'elbow' \(a joint; it moves 'forearm'\); wanted a link of 'arm6'"),
    ],
)
def test_links_that_are_not_there(arm: rd.Model, given: str, message: str) -> None:
    with pytest.raises(rd.ArgumentError, match=message):
        rd.Dynamics(arm, engine="reference").link_pose(np.zeros(6), given)


def test_a_robot_that_cannot_move_has_no_joints() -> None:
    model = rd.load_urdf('<robot name="rock"><link name="rock"/></robot>')
    with pytest.raises(rd.ArgumentError, match="wanted a joint of 'rock', which has none that moves"):
        model.joint_index("j")
    with pytest.raises(rd.ArgumentError, match="joint: got 0; wanted a name, but 'rock' has none"):
        model.joint_index(0)


@pytest.mark.parametrize("name", ["armature", "damping", "friction"])
def test_what_is_computed_names_its_field(arm: rd.Model, name: str) -> None:
    with pytest.raises(
        rd.ArgumentError, match=rf"^Model: {name} is computed; give the field tree_{name}, \(nv_tree,\)"
    ):
        replace(arm, **{name: np.ones(6)})
    changed = replace(arm, **{f"tree_{name}": np.full(6, 0.25)})
    assert (getattr(changed, name) == 0.25).all()


@pytest.mark.parametrize("name", ["lower", "upper", "effort_limit", "velocity_limit", "total_mass", "nq", "nv"])
def test_everything_else_that_is_computed_does_too(arm: rd.Model, name: str) -> None:
    with pytest.raises(rd.ArgumentError, match=f"^Model: {name} is computed; give the field "):
        replace(arm, **{name: 1.0})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("velocity_names", "velocity_names is computed from its fields, and cannot be given"),
        ("tree_dampings", "it has no field 'tree_dampings'; wanted one of tree_damping"),
    ],
)
def test_what_is_no_field_is_named(arm: rd.Model, name: str, message: str) -> None:
    with pytest.raises(rd.ArgumentError, match=f"^Model: {message}"):
        replace(arm, **{name: 1.0})


def test_joints_of_another_kind_are_checked() -> None:
    model = rd.load_urdf(own("satellite"))
    with pytest.raises(rd.ArgumentError, match="q_start"):
        replace(model, joint_kind=np.zeros(model.n_bodies, dtype=np.int8))


def test_a_number_is_a_batch(arm: rd.Model) -> None:
    assert (arm.random_configuration(3, 4) == arm.random_configuration(3, (4,))).all()
    for bad in (-1, 1.5, "4", True, (2, -1)):
        with pytest.raises(rd.ArgumentError, match=r"^shape: got .*; wanted an integer from 0, or a tuple"):
            arm.random_configuration(0, bad)


def test_reports_are_tuples_that_show_as_tables(arm: rd.Model) -> None:
    report = arm.report
    assert type(report) is Report and isinstance(report, tuple) and report == tuple(report)
    for other in (pickle.loads(pickle.dumps(arm)), copy.deepcopy(arm), replace(arm, name="other")):
        assert type(other.report) is Report and other.report == report
    assert "merged-link" in str(report) and "merged-link" in report._repr_html_()
    assert str(replace(arm, report=()).report) == "nothing was found"
    assert replace(arm, report=())._repr_html_() != ""
    assert type(rd.read_urdf(own("arm6")).report) is Report


def test_notebooks_show_tables_and_no_markup_of_files() -> None:
    text = own("arm6").read_text().replace("forearm", "&lt;script&gt;alert(1)&lt;/script&gt;")
    model = rd.load_urdf(text)
    assert "<script>alert(1)</script>" in model.link_names
    shown = model._repr_html_()
    assert "shoulder_pan" in shown and "<script" not in shown and "script" in shown
    assert "<script" not in model.report._repr_html_()


@pytest.mark.parametrize("batch", [(), (3,), (2, 1), (0,)])
def test_rollouts_are_short(arm: rd.Model, batch: tuple[int, ...]) -> None:
    dyn = rd.Dynamics(arm, engine="reference")
    rollout = dyn.rollout(np.zeros((*batch, 6)), np.zeros((*batch, 6)), steps=4)
    assert repr(rollout) == f"<Rollout of 4 steps: t (5,), q {(5, *batch, 6)}, qd {(5, *batch, 6)}>"
    assert "qd" in rollout._repr_html_()


def test_rollouts_say_what_diverged(arm: rd.Model) -> None:
    dyn = rd.Dynamics(arm, engine="reference")
    qd = np.zeros((3, 6))
    qd[1] = 1e200
    with pytest.warns(RuntimeWarning, match="1 of 3 rows diverged"):
        rollout = dyn.rollout(np.zeros((3, 6)), qd, steps=4)
    assert repr(rollout).endswith(", 1 diverged>") and len(repr(rollout)) < 120
