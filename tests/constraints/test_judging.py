"""Rows that depend on each other: found on floats, the same as queries say, without code for the robot."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import robots
from conftest import relative
from robots import tree
from test_constraints import some

import robodyn as rd
from robodyn.algorithms.constraints import redundancy
from robodyn.algorithms.constraints.redundancy import Numbers, redundant_rows
from robodyn.core.constraints.resolved import resolved_constraints
from robodyn.engines.cpu import compiler


def holding(model, *constraints):
    return dataclasses.replace(model, constraints=list(constraints))


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.some(of=4, rest="matrix")
def test_numbers_are_those_of_queries(seed):
    """Residuals, Jacobians and poses on random trees of every joint kind, mimics among them."""
    model = tree(seed, 8)
    model = holding(model, *some(model, seed), rd.Lock(model.joint_names[-1]))
    dyn = rd.Dynamics(model, engine="reference", check=False)
    numbers = Numbers(model, resolved_constraints(model))
    rng = np.random.default_rng(seed)
    for _ in range(2):
        q = model.random_configuration(rng)
        phi, _ = dyn.constraint_residual(q, np.zeros(model.nv))
        assert relative(numbers.constraint_residual(q, np.zeros(model.nv))[0], phi) < 1e-12
        assert relative(numbers.constraint_jacobian(q), dyn.constraint_jacobian(q)) < 1e-12
        poses, wanted = numbers.forward_kinematics(q), dyn.forward_kinematics(q)
        assert max(np.abs(poses[k] - wanted[k]).max() for k in range(len(model.link_names))) < 1e-12


def rank_says(model, q):
    """Rows that do not raise the rank of those before them."""
    J = rd.Dynamics(model, engine="reference").constraint_jacobian(q)
    ranks = [np.linalg.matrix_rank(J[:k], tol=1e-8) for k in range(len(J) + 1)]
    return tuple(k for k in range(len(J)) if ranks[k] == ranks[k + 1])


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.some(of=3, rest="matrix")
def test_rows_are_those_that_do_not_raise_the_rank(seed):
    """Constraints that stand twice, and others that share no column with them."""
    model = tree(seed, 8)
    held = some(model, seed)
    model = holding(model, *held, held[1])
    names = rd.Dynamics(model, engine="reference").constraint_names
    wanted = rank_says(model, model.random_configuration(seed))
    # Where it is met a constraint may lose rank, but none gains it.
    assert {names[k] for k in wanted} <= set(redundant_rows(model))
    assert {name for name in names if name.startswith("hinge_2.")} <= set(redundant_rows(model))


def test_nothing_is_compiled(monkeypatch):
    def refuse(*_):
        raise AssertionError("code for a robot that nobody has asked anything")

    monkeypatch.setattr(compiler.Compiler, "kernel", refuse)
    model = rd.load_urdf(robots.own("quadruped"), base="floating")
    feet = [name for name in model.link_names if name.endswith("_foot")]
    rd.Dynamics(model, engine="cpu", constraints=[rd.Point(name) for name in feet])
    rd.Dynamics(model, engine="cpu", constraints=[rd.Point(name, to_at=(0.1, 0.2, 0.0)) for name in feet])
    loop = rd.load_urdf(robots.own("loops/four_bar"))
    with pytest.warns(rd.RedundantWarning, match=r"'four_bar': pin\.y follow from rows before them"):
        rd.Dynamics(loop, engine="cpu", constraints=loop.constraints)


def test_loops_along_a_chain_are_judged_each_for_itself():
    """At random configurations: a chain of 300 bodies is not assembled."""
    model = rd.random_tree(300, seed=1, shape="chain", joints=("revolute",))
    names = model.link_names
    loops = [rd.Point(names[6 * k + 5], names[6 * k + 1], at=(0.1, 0.0, 0.0), name=f"loop{k}") for k in range(40)]
    model = holding(model, *loops, loops[7])
    found = redundancy._groups(Numbers(model, resolved_constraints(model)).constraint_jacobian(model.neutral()))
    assert len(found) == 40 and sorted(map(len, found)) == [3] * 39 + [6]
    assert redundant_rows(model) == ("loop7_2.x", "loop7_2.y", "loop7_2.z")


def test_what_would_take_long_is_not_judged():
    chain = rd.auto_tree(30_000)
    last = rd.Point(chain.link_names[-1])
    assert redundant_rows(holding(chain, last, last)) == ()
    near = holding(chain, rd.Lock(chain.joint_names[3]), rd.Lock(chain.joint_names[3], name="again"))
    assert redundant_rows(near) == ("again.value",)
    locks = [rd.Lock(name) for name in chain.joint_names[:100]]
    assert redundant_rows(holding(chain, *locks, *locks)) == ()
