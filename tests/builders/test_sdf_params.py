"""What an include changes in the model that it includes: the robot of a file that says so itself, and Drake's."""

from __future__ import annotations

import numpy as np
import pytest
from sdf_texts import INERTIAL, POSE, axis, joint, link, sdf

import robodyn as rd
from robodyn.io.builders import sdf_params

SMALL = 1e-12
"""Rounding of poses that are composed in another order."""

FAR = "<pose>1 0.2 -0.5 0.6 0.2 -0.1</pose>"
BOX = "<geometry><box><size>1 2 3</size></box></geometry>"
LOWER, BARE, PLAIN = link("lower", FAR), '<link name="bare"/>', "<inertia><ixx>0.3</ixx></inertia>"
ELBOW, SHELL = joint("elbow", "upper", "lower", pose=POSE), f'<collision name="shell">{BOX}</collision>'
INNER, MARK = link("inner", POSE), '<frame name="mark"/>'
EXTRA = link("extra", "<pose relative_to='lower'>0 0 1 0.3 0 0</pose>")
MORE = joint("more", "lower", "extra", pose=POSE)
END = "<!-- the end -->"
ARM = sdf(
    POSE,
    link("upper", POSE, more='<sensor name="eye" type="camera"/>'),
    LOWER,
    BARE,
    f'<link name="plain"><inertial><mass>2</mass>{PLAIN}</inertial></link>',
    f'<link name="solid"><inertial auto="true"/>{SHELL}</link>',
    ELBOW,
    f'<model name="nested">{POSE}{INNER}</model>',
    MARK,
    END,
    name="arm",
    version="1.11",
)


def do(action: str, element: str, where: str = "") -> str:
    """An element with what is to be done to it."""
    head, blank, rest = element.partition(" ")
    return f'{head} element_id="{where}" action="{action}"{blank}{rest}'


def lower(inside: str, action: str = ' action="modify"') -> str:
    return f'<link element_id="lower"{action}>{inside}</link>'


CASES = {
    "add a link": (do("add", EXTRA), END, EXTRA),
    "add a link and a joint": (do("add", EXTRA) + do("add", MORE), END, EXTRA + MORE),
    "add to a nested model": (do("add", link("extra", POSE), "nested"), INNER, INNER + link("extra", POSE)),
    "add a frame": (do("add", f'<frame name="tip" attached_to="lower">{FAR}</frame>'), END,
                    f'<frame name="tip" attached_to="lower">{FAR}</frame>'),
    "modify a mass": (lower("<inertial><mass>5</mass></inertial>"), LOWER, LOWER.replace("1.5", "5")),
    "modify a pose": (lower("<pose relative_to='upper'>5 0 0 0 0 1</pose>"), FAR,
                      "<pose relative_to='upper'>5 0 0 0 0 1</pose>"),
    "a pose of nothing is the default": (lower("<pose/>"), FAR, ""),
    "modify moments that are not there": (
        "<link element_id='plain' action='modify'><inertial><inertia><iyy>0.4</iyy><izz>0.35</izz></inertia></inertial>"
        "</link>", PLAIN, "<inertia><ixx>0.3</ixx><iyy>0.4</iyy><izz>0.35</izz></inertia>"),
    "modify an axis and its limit": (
        "<joint element_id='elbow' action='modify'><axis><xyz>1 0 0</xyz><limit><lower>-1</lower></limit></axis>"
        "</joint>",
        ELBOW, joint("elbow", "upper", "lower", pose=POSE, more=axis("1 0 0", "<limit><lower>-1</lower></limit>"))),
    "modify a type": ("<joint element_id='elbow' action='modify' type='prismatic'/>", ELBOW,
                      joint("elbow", "upper", "lower", "prismatic", pose=POSE)),
    "modify a name": ("<link element_id='bare' action='modify' name='nude'/>", BARE, BARE.replace("bare", "nude")),
    "modify in a nested model": (
        "<link element_id='nested::inner' action='modify'><inertial><mass>9</mass></inertial></link>", INNER,
        INNER.replace("1.5", "9")),
    "modify a shape": (
        "<collision element_id='solid::shell' action='modify'><geometry><box><size>2 2 2</size></box></geometry>"
        "</collision>", "1 2 3</size>", "2 2 2</size>"),
    "modify what a frame moves with": ("<frame element_id='mark' action='modify' attached_to='lower'/>", MARK,
                                       '<frame name="mark" attached_to="lower"/>'),
    "modify a child": (lower('<inertial action="modify"><mass>5</mass></inertial>', ""), LOWER,
                       LOWER.replace("1.5", "5")),
    "replace a child": (lower('<inertial action="replace"><mass>5</mass></inertial>', ""), LOWER,
                        f'<link name="lower">{FAR}<inertial><mass>5</mass></inertial></link>'),
    "remove a child": (lower('<inertial action="remove"/>', ""), LOWER, f'<link name="lower">{FAR}</link>'),
    "remove children of a child": (lower('<inertial action="remove"><pose/></inertial>', ""), LOWER,
                                   LOWER.replace("<pose>0.1 -0.2 0.3 0.4 0.5 0.6</pose>", "")),
    "add a child": ('<link element_id="bare"><inertial action="add"><mass>5</mass></inertial></link>', BARE,
                    '<link name="bare"><inertial><mass>5</mass></inertial></link>'),
    "remove a joint": ("<joint element_id='elbow' action='remove'/>", ELBOW, ""),
    "remove a link": ("<link element_id='bare' action='remove'/>", BARE, ""),
    "remove children of a link": ("<link element_id='lower' action='remove'><pose/><inertial/></link>", LOWER,
                                  '<link name="lower"/>'),
    "remove a nested model": ("<model element_id='nested' action='remove'/>", f'<model name="nested">{POSE}{INNER}'
                              "</model>", ""),
    "replace a link": (do("replace", link("lower", POSE, mass=4.0), "lower"), LOWER, link("lower", POSE, mass=4.0)),
    "replace a joint": (do("replace", joint("elbow", "upper", "lower", "fixed"), "elbow"), ELBOW,
                        joint("elbow", "upper", "lower", "fixed")),
    "a sensor and a visual": (
        "<sensor element_id='upper' name='imu' type='imu' action='add'/><link element_id='upper'><sensor name='eye' "
        f"action='remove'/></link><visual element_id='upper' name='v' action='add'>{BOX}</visual>", END, ""),
}  # fmt: skip
"""What is said, and the same by replacing a text of the included file."""


@pytest.fixture
def load(tmp_path):
    """Loads a robot that includes the arm with parameters."""

    def made(parameters: str, arm: str = ARM, merge: str = "", text: str | None = None) -> rd.Model:
        (tmp_path / "arm").mkdir(exist_ok=True)
        (tmp_path / "arm" / "model.sdf").write_text(arm)
        inside = f"<experimental:params>{parameters}</experimental:params>" if parameters else ""
        include = f"<include{merge}><uri>model://arm/model.sdf</uri><name>limb</name>{FAR}{inside}</include>"
        model = text or sdf(link("own"), include, name="robot", version="1.11")
        model = model.replace("<sdf", '<sdf xmlns:experimental="http://sdformat.org/schemas/experimental"')
        (tmp_path / "robot.sdf").write_text(model)
        return rd.load_sdf(tmp_path / "robot.sdf", model_dirs=[tmp_path], gravity=(0, 0, -9.81))

    return made


def said(model: rd.Model, severity: str = "info") -> list[str]:
    return [each.message for each in model.report if each.code == "sdf-include" and each.severity == severity]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("merge", ["", ' merge="true"'])
def test_the_robot_is_that_of_a_file_that_says_so(name, merge, load):
    parameters, old, new = CASES[name]
    assert ARM.count(old) == 1
    changed, wanted = load(parameters, merge=merge), load("", ARM.replace(old, new), merge)
    assert said(changed) and not said(changed, "warning") and not said(wanted)
    assert changed.joint_names == wanted.joint_names and changed.link_names == wanted.link_names
    for field in ("Xtree", "inertia", "parent", "joint_kind", "lower", "upper", "link_body"):
        assert np.array_equal(getattr(changed, field), getattr(wanted, field)), field
    q = wanted.random_configuration(0)
    poses = [rd.Dynamics(each, engine="reference").forward_kinematics(q) for each in (changed, wanted)]
    assert np.array_equal(*poses)


@pytest.mark.parametrize("name", CASES)
def test_what_drake_makes_of_it(name, load, tmp_path):
    pytest.importorskip("pydrake")
    from drake_oracle import errors

    model = load(CASES[name][0])
    found = errors(tmp_path / "robot.sdf", model, packages={"arm": tmp_path / "arm"})
    assert max(found.values()) < SMALL, found


def test_what_has_no_part_in_dynamics_is_skipped(load):
    """Also inside of it, where nothing is looked for: what Drake would refuse changes no robot."""
    for each in (
        "<plugin element_id='upper' name='p' filename='f' action='add'/>",
        "<sensor element_id='nobody::eye' action='remove'/>",
        "<pose element_id='upper::eye' name='p' action='add'/>",
        "<camera element_id='upper::eye::lens' action='remove'/>",
    ):
        (message,) = said(load(each))
        assert "has no part in dynamics; skipped" in message
    model = load("<visual element_id='upper' name='v' action='add'><geometry><sphere/></geometry></visual>")
    assert [each.kind for each in model.geometries if each.link == "limb::upper"] == ["sphere"]


REFUSED = {
    "no element_id": ("<link action='remove'/>", "<link> .*: it has no element_id"),
    "an action that there is not": (do("drop", "<link />", "bare"), 'its action is "drop"; allowed are add, modify'),
    "no action of a child": ("<link element_id='bare'><pose>1 0 0 0 0 0</pose></link>", 'its action is ""'),
    "not there": ("<link element_id='bear' action='remove'/>", 'element_id="bear".*no such element; near it are "ba'),
    "not there, in a nested model": ("<link element_id='nested::x' action='remove'/>", "no such element"),
    "of another kind": ("<frame element_id='bare' action='remove'/>", "no such element"),
    "added to nothing": (do("add", EXTRA, "nobody"), "no such element"),
    "added without a name": ("<link element_id='' action='add'/>", "what is added wants a name"),
    "added twice": (do("add", LOWER), 'there is a <link> "lower" already'),
    "a path without an end": ("<link element_id='nested::' action='remove'/>", "wanted names with '::' between them"),
    "a deep path": (f"<link element_id='{'nested::' * 200}x' action='remove'/>", "at most 100"),
    "a mass that is not there": ("<link element_id='bare' action='modify'><inertial><mass>1</mass></inertial></link>",
                                 'there is no <inertial> in <link> "bare"'),
    "nothing to modify": (lower("<inertial/>"), "it says nothing that is to be modified"),
    "replaced without a name": ("<link element_id='bare' action='replace'/>", "wants one, too"),
    "no shape for an inertia": ("<collision element_id='solid::shell' action='remove'/>", "has no <collision>"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name, load):
    parameters, message = REFUSED[name]
    with pytest.raises(rd.LoadError, match=message):
        load(parameters)


@pytest.mark.parametrize("name", REFUSED)
def test_what_drake_refuses(name, load, tmp_path):
    pytest.importorskip("pydrake")
    from drake_oracle import plant_of

    with pytest.raises(rd.LoadError):
        load(REFUSED[name][0])
    with pytest.raises(RuntimeError):
        plant_of(tmp_path / "robot.sdf", {"arm": tmp_path / "arm"})


def test_models_that_are_included_in_turn_and_old_axes_are_not_changed(load, tmp_path):
    (tmp_path / "outer").mkdir()
    turn = "<include><uri>model://arm/model.sdf</uri><name>limb</name></include>"
    (tmp_path / "outer" / "model.sdf").write_text(sdf(link("a"), turn, name="outer"))
    change = "<experimental:params><link element_id='{}' action='remove'/></experimental:params>"
    for path, message in (("limb::bare", 'includes "limb" in turn'), ("limb", "in turn"), ("a::b", "no such element")):
        include = f"<include><uri>model://outer/model.sdf</uri>{change.format(path)}</include>"
        with pytest.raises(rd.LoadError, match=message):
            load("", text=sdf(link("own"), include))
    moved = "<joint element_id='elbow' action='modify'><axis><xyz>1 0 0</xyz></axis></joint>"
    with pytest.raises(rd.LoadError, match=r"axes of a file of version 1.5 cannot be changed"):
        load(moved, ARM.replace("1.11", "1.5"))
    assert load(lower("<inertial><mass>5</mass></inertial>"), ARM.replace("1.11", "1.5")).total_mass > 5.0


def test_the_file_is_included_unchanged_again(load):
    """A file is parsed once; what one include changes is not changed for the next."""
    arm, parameters = "<include><uri>model://arm/model.sdf</uri><name>{}</name>{}</include>", lower("<pose/>")
    heavy = f"<experimental:params>{lower('<inertial><mass>5</mass></inertial>')}{parameters}</experimental:params>"
    model = load("", text=sdf(link("own"), arm.format("one", heavy), arm.format("two", "")))
    one, two = ([each.startswith(f"{name}::") for each in model.joint_names] for name in ("one", "two"))
    masses = [model.inertia[np.array(each), 0].sum() for each in (one, two)]
    assert abs(masses[0] - masses[1] - 3.5) < SMALL


def test_looking_for_elements_is_bounded(load, monkeypatch):
    monkeypatch.setattr(sdf_params, "MAX_LOOKED_AT", 100)
    with pytest.raises(rd.LoadError, match="look at more than 100 elements"):
        load("<link element_id='bare'><pose action='add'/><pose action='remove'/></link>" * 20)


def test_files_of_a_thousand_changes(load):
    links = "".join(do("add", f'<link name="l{i}">{INERTIAL.format(mass=1)}</link>') for i in range(1000))
    assert load(links).nv == load("").nv + 6000
