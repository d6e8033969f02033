"""Limits of joints that others mimic: what all of them may do at once, wherever limits are used."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from robots import own
from sdf_texts import axis, sdf
from sdf_texts import joint as sdf_joint
from sdf_texts import link as sdf_link
from urdf_texts import INERTIAL, codes, finding

import robodyn as rd
from robodyn.tools.viewer.sliders import sliders

LEADER = '<limit lower="-3" upper="3" effort="7" velocity="5"/>'


def hand(*followers: str, leader: str = LEADER, kind: str = "revolute") -> str:
    """A joint `lead` and joints f1, f2, ... after it, each of its type and what stands in it."""
    parts = [f'<link name="l0"/><link name="l1">{INERTIAL}</link>']
    parts.append(f'<joint name="lead" type="{kind}"><parent link="l0"/><child link="l1"/>{leader}</joint>')
    for i, follower in enumerate(followers, start=1):
        type_, inside = follower.split(" ", 1)
        ends = f'<parent link="l{i}"/><child link="l{i + 1}"/><origin xyz="0 0.3 0.1"/>'
        parts.append(f'<link name="l{i + 1}">{INERTIAL}</link><joint name="f{i}" type="{type_}">{ends}{inside}</joint>')
    return f'<robot name="hand">{"".join(parts)}</robot>'


def limit(lower: float, upper: float, velocity: float = 100.0) -> str:
    return f'<limit lower="{lower}" upper="{upper}" effort="1" velocity="{velocity}"/>'


def mimic(m: float = 1.0, o: float = 0.0, of: str = "lead") -> str:
    return f'<mimic joint="{of}" multiplier="{m}" offset="{o}"/>'


TWICE = f"revolute {limit(-1, 1, 4)}{mimic(2)}"
NARROWED, CONTRADICT = {"limit-narrowed"}, {"limits-contradict"}
CASES = {
    "twice": (hand(TWICE), (-0.5, 0.5, 2.0), NARROWED),
    "backwards, with an offset": (hand(f"revolute {limit(-1, 2, 1)}{mimic(-0.5, 1.5)}"), (-1.0, 3.0, 2.0), NARROWED),
    "a slide": (hand(f"prismatic {limit(0, 0.02, 0.1)}{mimic(0.01)}"), (0.0, 2.0, 5.0), NARROWED),
    "a chain": (
        hand(TWICE, f"revolute {limit(-0.25, 9, 3)}{mimic(-2, 0.75, 'f1')}"),
        (-0.5, 0.25, 0.75),
        NARROWED,
    ),
    "two": (hand(TWICE, f"revolute {limit(0.3, 9)}{mimic(3)}"), (0.1, 0.5, 2.0), NARROWED),
    "of a continuous joint": (hand(TWICE, leader="", kind="continuous"), (-0.5, 0.5, 2.0), NARROWED),
    "of a continuous follower": (hand(f"continuous {mimic(2)}"), (-3.0, 3.0, 5.0), set()),
    "wider": (hand(f"revolute {limit(-9, 9)}{mimic(2)}"), (-3.0, 3.0, 5.0), set()),
    "a lower one alone": (hand(f'revolute <limit lower="1"/>{mimic(-2)}'), (-3.0, -0.5, 5.0), NARROWED),
    "a point": (hand(f"revolute {limit(3, 9)}{mimic()}"), (3.0, 3.0, 5.0), NARROWED),
    "nothing left": (hand(f"revolute {limit(4, 5, -1)}{mimic()}"), (-3.0, 3.0, 5.0), CONTRADICT),
    "reversed": (hand(f"revolute {limit(1, -1)}{mimic()}"), (-3.0, 3.0, 5.0), CONTRADICT),
    "one that stands still": (hand(f"revolute {limit(1, 2)}{mimic(0, 1.5)}"), (-3.0, 3.0, 5.0), set()),
}
"""Robots, lower, upper and velocity limit of their one coordinate in closed form, and what is said of them."""


@pytest.mark.parametrize("name", CASES)
def test_limits_in_closed_form(name):
    text, (lower, upper, velocity), said = CASES[name]
    model = rd.load_urdf(text)
    found = [*model.lower, *model.upper, *model.velocity_limit]
    np.testing.assert_allclose(found, [lower, upper, velocity], rtol=1e-15)
    assert model.effort_limit == (7.0 if LEADER in text else np.inf)
    assert codes(model) & {"limit-narrowed", "limits-contradict", "mimic-outside-limits"} == said
    q = model.random_configuration(0, (1000,))
    assert (q >= lower).all() and (q <= upper).all() and np.ptp(q) >= 0.9 * (upper - lower)
    alone = rd.load_urdf(text, mimic="ignore")
    np.testing.assert_array_equal(alone.lower, alone.tree_lower)
    np.testing.assert_array_equal(alone.velocity_limit, alone.tree_velocity)
    assert not codes(alone) & (NARROWED | CONTRADICT)


def test_what_is_said():
    model = rd.load_urdf(hand(TWICE, f"revolute {limit(-9, 9)}{mimic()}"))
    position, velocity = (each for each in model.report if each.code == "limit-narrowed")
    assert position.element == 'joint "lead"' and position.severity == "info"
    assert 'positions from -3 to 3, with the limits of joints that mimic it ("f1", "f2") ' in position.message
    assert position.message.endswith("positions from -0.5 to 0.5") and "velocities from 0 to 2" in velocity.message
    point = finding(rd.load_urdf(CASES["a point"][0]), "limit-narrowed")
    assert point.severity == "warning" and point.message.endswith("it cannot move within limits")
    outside = finding(rd.load_urdf(hand(f"revolute {limit(1, 2)}{mimic(0, 3)}")), "mimic-outside-limits")
    assert outside.element == 'joint "f1"' and "welds it at 3, outside of its limits 1 to 2" in outside.message


@pytest.mark.parametrize("seed", range(4))
def test_limits_are_where_all_joints_are_within_theirs(seed):
    """On trees with random limits: configurations drawn far and wide are within limits, or some joint is not."""
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    model = rd.random_tree(9, seed=seed, joints=("revolute", "prismatic", "helical"), mimic=0.6)
    ends = model.q_offset + [[-1.0], [1.0]] * rng.uniform(0.2, 2.0, (2, model.nq_tree))  # around coordinate zero
    ends[0, ::3], ends[1, ::4] = -np.inf, np.inf
    model = replace(model, tree_lower=ends[0], tree_upper=ends[1], tree_velocity=rng.uniform(0.5, 2.0, model.nv_tree))
    assert model.has_mimic
    q = rng.uniform(-4.0, 4.0, (20_000, model.nq))
    inside = (q >= model.lower) & (q <= model.upper)
    tree = model.tree_coordinates(q)
    wanted = np.ones(q.shape, bool)
    for k, source in enumerate(model.q_source):
        wanted[:, source] &= (tree[:, k] >= ends[0, k]) & (tree[:, k] <= ends[1, k])
    np.testing.assert_array_equal(inside, wanted)
    fastest = np.abs(model.coupling()) * model.velocity_limit
    assert (fastest.max(axis=1) <= model.tree_velocity * (1 + 1e-12)).all()
    for v in range(model.nv):
        assert np.isclose(fastest[:, v] / model.tree_velocity, 1.0).any(), "no faster than some joint may be"


def test_every_place_keeps_to_them():
    model = rd.load_urdf(CASES["a chain"][0], gravity=(0, 0, 0))
    dyn = rd.Dynamics(model, engine="reference")
    zero, push = np.zeros(1), np.array([300.0])
    run = dyn.rollout(zero, zero, push, 0.02, 40, limits=("position", "velocity"))
    assert np.isclose(run.q.max(), 0.25, atol=1e-6) and np.isclose(run.qd.max(), 0.75, rtol=1e-6)
    assert [(each.lower, each.upper) for each in sliders(model)] == [(-0.5, 0.25)]
    ik = rd.InverseKinematics(model, rd.PoseTask("l3"))
    q, _ = ik.solve(dyn.link_pose(np.array([1.5]), "l3"))
    assert -0.5 <= q[0] <= 0.25
    assert "-0.5 .. 0.25" in str(model) and "-0.25 .. 9" in str(model)


def test_edits_and_files_keep_the_limits_of_each_joint(tmp_path):
    model = rd.load_urdf(CASES["a chain"][0])
    other = rd.load_urdf(own("arm6"))
    model.save(tmp_path / "hand.npz")
    carried = {
        "saved": rd.Model.load(tmp_path / "hand.npz"),
        "written": rd.load_urdf(model.to_urdf()),
        "attached": other.attach(model, other.link_names[-1], prefix="h/"),
    }
    for name, found in carried.items():
        for limits in ("tree_lower", "tree_upper", "tree_velocity", "tree_effort"):
            np.testing.assert_array_equal(
                getattr(found, limits)[-model.nq_tree :], getattr(model, limits), err_msg=name
            )
        assert (found.lower[-1], found.upper[-1], found.velocity_limit[-1]) == (-0.5, 0.25, 0.75), name
    wider = replace(model, tree_lower=np.full(3, -2.0), tree_upper=np.full(3, 2.0))
    assert (wider.lower, wider.upper) == (-0.3125, 0.6875)
    assert model.lock({"lead": 0.1}).lower.size == 0


def test_other_formats():
    parts = [sdf_link("a"), sdf_link("b"), sdf_link("c"), sdf_joint("w", "world", "a", "fixed")]
    ends = "<limit><lower>{}</lower><upper>{}</upper></limit>"
    parts.append(sdf_joint("lead", "a", "b", more=axis(more=ends.format(-3, 3))))
    follows = '<mimic joint="lead"><multiplier>-2</multiplier><offset>1</offset><reference>0.5</reference></mimic>'
    parts.append(sdf_joint("follow", "b", "c", more=axis(more=ends.format(-1, 5) + follows)))
    model = rd.load_sdf(sdf(*parts, version="1.11"))
    tree = model.tree_coordinates(np.array([model.lower, model.upper]))
    assert np.allclose(np.sort(tree[:, 1]), [-1, 5]) and "limit-narrowed" in codes(model)

    pytest.importorskip("mujoco")
    text = """<mujoco><compiler angle="radian"/><worldbody><body><joint name="lead" range="-3 3"/><geom size="1"/><body>
    <joint name="follow" range="-1 5" ref="0.5"/><geom size="1"/></body></body></worldbody>
    <equality><joint joint1="follow" joint2="lead" polycoef="1 -2 0 0 0"/></equality></mujoco>"""
    model = rd.load_mjcf(text, equality="mimic")
    tree = model.tree_coordinates(np.array([model.lower, model.upper]))
    assert np.allclose(np.sort(tree[:, 1]), [-1, 5]) and "limit-narrowed" in codes(model)
    apart = rd.load_mjcf(text, equality="constraints")
    assert apart.lower.tolist() == [-3, -1] and not codes(apart) & NARROWED
