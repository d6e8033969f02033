"""Loops over constraints: with all that queries take, they answer as the reference engine does."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import random_states, relative
from robots import tree
from test_constraints import pose, some

import robodyn as rd
from robodyn.algorithms.constraints.sweeps import constraint_query
from robodyn.engines.query_table import CONSTRAINED

pytestmark = pytest.mark.filterwarnings("ignore::robodyn.internals.errors.RedundantWarning")


PROXIMAL = (1e-4, 20)
"""Rows that nearly depend on each other then have forces of a size that does not amplify rounding."""


def held_by(model, seed):
    """Constraints of every kind, also of joints of several degrees of freedom."""
    rng = np.random.default_rng(seed)
    widest = int(np.argmax(np.diff([*model.v_start.tolist(), model.nv_tree])[1:])) + 1
    return [
        *some(model, seed),
        rd.Weld(
            model.link_names[-1], at=pose(rng), to_at=pose(rng), rows=("ry", "x"), baumgarte=2.0, name="to the world"
        ),
        rd.Lock(model.joint_names[widest]),
    ]


def asked(dyn, name, given, **options):
    """Results of a query in arrays that held NaN."""
    question = CONSTRAINED[name]
    like = getattr(dyn, name)(*map(given.get, question.inputs), **options)
    like = like if isinstance(like, tuple) else (like,)
    out = tuple(np.full_like(each, np.nan) for each in like)
    getattr(dyn, name)(*map(given.get, question.inputs), **options, out=out if len(out) > 1 else out[0])
    return out


@pytest.mark.parametrize("dtype", ["float64", pytest.param("float32", marks=pytest.mark.matrix)])
@pytest.mark.parametrize("seed", [1, pytest.param(4, marks=pytest.mark.matrix)])
@pytest.mark.parametrize("name", [name for name in CONSTRAINED if constraint_query(name, (), PROXIMAL)])
@pytest.mark.some(of=4, rest="matrix")
def test_loops_answer_as_the_reference_engine(name, seed, dtype):
    """A floating and a fixed base, batches and single states, and all options; a state with NaN leaves others alone."""
    model = tree(seed, 14, joints=("revolute", "helical", "spherical"), mimic=0.0)
    held, question = held_by(model, seed), CONSTRAINED[name]
    dyn = rd.Dynamics(model, engine="cpu", code="rolled", dtype=dtype, constraints=held, proximal=PROXIMAL)
    judge = rd.Dynamics(model, engine="reference", constraints=held, proximal=PROXIMAL)
    assert dyn.explain(name).reason.startswith("rolled")
    q, qd, tau = random_states(model, (9,), seed=seed)
    rng, one = np.random.default_rng(seed), np.eye(4)[None, :, :3].reshape(1, 12)
    targets = np.zeros((9, len(held), 12)) + one
    targets[..., 9:] = rng.standard_normal((9, len(held), 3))
    more = {
        "f_ext": rng.standard_normal((9, model.n_bodies, 6)),
        "inertia": model.inertia * rng.uniform(0.9, 1.1, (9, model.n_bodies, 1)),
        "V0": rng.standard_normal(6),
        "dV0": rng.standard_normal(6),
        "targets": targets,
        "active": rng.integers(0, 2, (9, len(held))),
        "restitution": 0.3,
    }
    given, off_by = {"q": q, "qd": qd, "tau": tau}, 1e-9 if dtype == "float64" else 2e-2
    for options in ({}, {each: array for each, array in more.items() if each in question.optional}):
        wanted, found = (asked(each, name, given, **options) for each in (judge, dyn))
        rows = {key: array[4] if np.ndim(array) > 1 else array for key, array in options.items()}
        single = asked(dyn, name, {key: array[4] for key, array in given.items()}, **rows)
        for one_of, each, right in zip(single, found, wanted, strict=True):
            assert relative(each, right) < off_by and relative(one_of, right[4]) < off_by
        bad = {**given, "q": q.copy()}
        bad["q"][3] = np.nan
        for each, right in zip(asked(dyn, name, bad, **options), found, strict=True):
            assert np.isnan(each[3]).any() and (np.delete(each, 3, 0) == np.delete(right, 3, 0)).all()


def test_steps_of_large_trees_obey():
    """Steps ask the same queries: a loop stays closed."""
    model = rd.auto_tree(300, skew=0.3)
    q = model.random_configuration(np.random.default_rng(0))
    poses = rd.Dynamics(model).forward_kinematics(q)
    T, to_T = poses[model.link_index(model.body_names[-1])], poses[model.link_index(model.body_names[150])]
    at = to_T[:3, :3].T @ (T[:3, 3] - to_T[:3, 3])
    dyn = rd.Dynamics(model, constraints=[rd.Point(model.body_names[-1], model.body_names[150], to_at=at)])
    assert dyn.explain("project").reason.startswith("rolled")
    motion = dyn.rollout(q, np.zeros(model.nv), dt=1e-3, steps=3)
    phi, phidot = dyn.constraint_residual(motion.q, motion.qd)
    assert np.abs(phi).max() < 1e-9 and np.abs(phidot).max() < 1e-9 and np.abs(motion.qd[-1]).max() > 1e-4


@pytest.mark.matrix
def test_many_loops_are_solved_in_blocks():
    """More rows than a block of the products has, on paths that meet at different bodies."""
    model = rd.auto_tree(60, branching=1.3, skew=0.3)
    rng = np.random.default_rng(0)
    pairs = rng.choice(np.arange(20, 60), (7, 2), replace=False)
    held = [rd.Point(model.body_names[a], model.body_names[b], at=rng.standard_normal(3)) for a, b in pairs.tolist()]
    dyn = rd.Dynamics(model, engine="cpu", code="rolled", constraints=held, proximal=PROXIMAL)
    judge = rd.Dynamics(model, engine="reference", constraints=held, proximal=PROXIMAL)
    q, qd, tau = random_states(model, (3,), seed=0)
    for states in ((q, qd, tau), (q[0], qd[0], tau[0])):
        for found, wanted in zip(dyn.delassus(*states), judge.delassus(*states), strict=True):
            assert relative(found, wanted) < 1e-11
        for found, wanted in zip(
            dyn.constrained_forward_dynamics(*states), judge.constrained_forward_dynamics(*states), strict=True
        ):
            assert relative(found, wanted) < 1e-9
    assert (np.full(8, 1e-310) * 0.5).all(), "numbers below the normal ones are zero in loops only"


def test_a_floating_joint_may_be_turned(make_dynamics, tolerance):
    """Constraints to the world, of a tree whose first joint floats in a frame that is turned."""
    model = tree(4, 3, joints=("floating",), base="fixed", mimic=0.0)
    assert np.abs(model.Xtree[0, :9] - np.eye(3).ravel()).max() > 0.1
    place, link = np.array([0.3, -0.2, 0.5]), model.link_names[-1]
    dyn = make_dynamics(model, constraints=[rd.Point(link, to_at=place)])
    q, qd, _ = random_states(model, (2,), seed=4)
    phi, _ = dyn.constraint_residual(q, qd)
    assert relative(phi, rd.Dynamics(model).link_pose(q, link)[:, :3, 3] - place) < 100 * tolerance
