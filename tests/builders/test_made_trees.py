"""Trees without a file: Featherstone's regular ones and random ones."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import random_states, relative

import robodyn as rd
from robodyn.description import JOINT_TYPES
from robodyn.joints import KINDS


@pytest.mark.parametrize("branching", [1.0, 1.01, 1.3, 1.5, 2.0, 3.0, 7.5])
@pytest.mark.parametrize("skew", [0.0, 0.7])
@pytest.mark.some(of=3, rest="matrix")
def test_auto_tree_is_featherstones(branching, skew):
    """Against his formulas, written out body by body from 1."""
    n, taper = 40, 0.97
    model = rd.auto_tree(n, branching=branching, taper=taper, skew=skew)
    for i in range(1, n + 1):
        parent = int(np.floor((i - 2 + np.ceil(branching)) / branching))
        assert model.parent[i - 1] == parent - 1
        length, mass = taper ** (i - 1), taper ** (3 * (i - 1))
        c, s = (np.cos(skew), np.sin(skew)) if parent else (1.0, 0.0)
        reach = taper ** (parent - 1) if parent else 0.0
        assert np.allclose(model.Xtree[i - 1], [1, 0, 0, 0, c, s, 0, -s, c, reach, 0, 0], rtol=1e-12)
        com = np.array([0.5 * length, 0, 0])
        about = mass * length**2 * np.diag([0.0025, 1.015 / 12, 1.015 / 12])
        about = about + mass * (com @ com * np.eye(3) - np.outer(com, com))
        wanted = [mass, *(mass * com), about[0, 0], 0, 0, about[1, 1], 0, about[2, 2]]
        assert np.allclose(model.inertia[i - 1], wanted, rtol=1e-12, atol=0)
    children = np.bincount(model.parent[model.parent >= 0])
    assert set(children[:-1]) <= {int(np.floor(branching)), int(np.ceil(branching))}
    assert model.body_names[3] == "body3" and model.joint_names[-1] == f"joint{n - 1}" and len(model.link_names) == n
    assert model.link_index("body7") == 7
    q, qd, qdd = random_states(model)
    dyn = rd.Dynamics(model, engine="reference")
    assert relative(dyn.inverse_dynamics(q, qd, dyn.forward_dynamics(q, qd, qdd)), qdd) < 1e-10


def test_more_branches_than_bodies_make_a_star():
    for branching in (4.0, 5.5, 1e17, 1e308):
        assert rd.auto_tree(5, branching=branching).parent.tolist() == [-1, 0, 0, 0, 0]
        assert rd.auto_tree(1, branching=branching).parent.tolist() == [-1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"n": 0}, "^n: got 0; wanted an integer from 1"),
        ({"n": 2.0}, "^n: got 2.0"),
        ({"n": 10**9}, "^n: got 1000000000"),
        ({"n": 5, "branching": 0.5}, "^branching: got 0.5; wanted at least 1"),
        ({"n": 5, "branching": np.nan}, "^branching: got nan"),
        ({"n": 5, "branching": 10**400}, "^branching: got 1000"),
        ({"n": 5, "taper": 10**5000}, "^taper: got <int>"),
        ({"n": 5, "taper": 0.0}, "^taper: got 0.0; wanted a positive"),
        ({"n": 10_000, "taper": 0.9}, "^taper: got 0.9 for n = 10000"),
        ({"n": 5, "skew": "much"}, "^skew: got 'much'"),
    ],
)
def test_auto_tree_refuses_what_it_cannot_build(arguments, words):
    with pytest.raises(rd.ArgumentError, match=words):
        rd.auto_tree(**arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"n": -1, "seed": 0}, "^n: got -1"),
        ({"n": 3, "seed": "x"}, "^seed: got 'x'"),
        ({"n": 3, "seed": 0, "joints": ["hinge"]}, "^joints: got 'hinge'; allowed: 'revolute'"),
        ({"n": 3, "seed": 0, "joints": []}, "^joints: got none"),
        (
            {"n": 3, "seed": 0, "joints": None},
            "^joints: got None; wanted a list or tuple of words; allowed: 'revolute'",
        ),
        ({"n": 3, "seed": 0, "joints": 5}, "^joints: got 5; wanted a list"),
        ({"n": 3, "seed": 0, "joints": "revolute"}, "^joints: got 'revolute'; wanted a list"),
        ({"n": 3, "seed": 0, "mimic": 10**400}, "^mimic: got 1000"),
        ({"n": 3, "seed": 0, "shape": "bush"}, "^shape: got 'bush'"),
        ({"n": 3, "seed": 0, "mimic": 2.0}, "^mimic: got 2.0"),
        ({"n": 3, "seed": 0, "armature": "yes"}, "^armature: got 'yes'"),
    ],
)
def test_random_tree_refuses_what_it_cannot_build(arguments, words):
    with pytest.raises(rd.ArgumentError, match=words):
        rd.random_tree(**arguments)


def test_random_trees_are_reproducible_and_use_every_kind_asked_for():
    a, b = (rd.random_tree(30, seed=3, joints=JOINT_TYPES, shape="binary") for _ in range(2))
    assert a == b != rd.random_tree(30, seed=4, joints=JOINT_TYPES, shape="binary")
    assert {KINDS[k].name for k in a.joint_kind} == {kind.name for kind in KINDS}
    chain = rd.random_tree(6, seed=0, joints=["revolute"], shape="chain")
    assert chain.parent.tolist() == [-1, 0, 1, 2, 3, 4]
    assert (rd.random_tree(6, seed=0, joints=["revolute"], shape="star").parent == -1).all()
