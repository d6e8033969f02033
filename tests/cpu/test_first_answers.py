"""What a first answer does not wait for: programs that are traced again, or only to be found too large."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from cpu_queries import limit_programs

import robodyn as rd
from robodyn.algorithms.idsva import idsva
from robodyn.algorithms.rnea_gradient import rnea_gradient
from robodyn.compile.tracing.unrolled import trace
from robodyn.engines import query_table
from robodyn.engines.cpu import request
from robodyn.internals import tuning


@pytest.fixture
def traced(monkeypatch, tmp_path):
    """How often each algorithm is traced, with an empty cache."""
    found, original = Counter(), request.trace

    def noting(model, task, **given):
        found[task.name] += 1
        return original(model, task, **given)

    monkeypatch.setenv("ROBODYN_CACHE_DIR", str(tmp_path / "objects"))
    monkeypatch.setattr(request, "trace", noting)
    return found


def ask(dyn, query, *leading):
    model = dyn.model
    q, v = model.random_configuration(np.random.default_rng(1), leading), np.ones((*leading, model.nv))
    return getattr(dyn, query)(*((q,) if "mass" in query else (q, v, v)))


def test_no_program_is_traced_twice(traced, monkeypatch):
    limit_programs(monkeypatch, chain=0)  # its stages are programs of their own
    dyn = rd.Dynamics(rd.random_tree(5, seed=4, joints=("revolute",)), engine="cpu")
    ask(dyn, "forward_dynamics_gradient")
    assert len(traced) == 2 and set(traced.values()) == {1}
    ask(dyn, "inverse_dynamics")
    ask(dyn, "inverse_dynamics", 3)
    assert set(traced.values()) == {1}


def test_what_loops_show_to_be_too_large_is_not_traced(traced, monkeypatch):
    model = rd.random_tree(8, seed=4, joints=("revolute",))
    reference = rd.Dynamics(model, engine="reference")
    monkeypatch.setattr(tuning, "MANY_STEPS", 10)
    limit_programs(monkeypatch, query=300)
    dyn = rd.Dynamics(model, engine="cpu", dtype="float32")  # in double precision it has another algorithm
    found = ask(dyn, "mass_matrix_inverse", 3)
    assert not traced and dyn.engine.generated(_task(model)).mode == "rolled"
    np.testing.assert_allclose(found, ask(reference, "mass_matrix_inverse", 3), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("slides", [False, True])
def test_chains_that_their_stages_show_to_be_too_large_are_not_traced(traced, monkeypatch, slides):
    """But where joints slide: a program may be a small part of its stages then."""
    model = rd.random_tree(8, seed=4, joints=("prismatic",) if slides else ("revolute", "helical"))
    monkeypatch.setattr(tuning, "MANY_STEPS", 10)
    limit_programs(monkeypatch, chain=1500)
    dyn, reference = (rd.Dynamics(model, engine=engine) for engine in ("cpu", "reference"))
    found = ask(dyn, "forward_dynamics_gradient", 3)
    chain = query_table.QUERIES["forward_dynamics_gradient"].plain_task(model)
    assert (chain.name in traced) == slides and (dyn.engine.generated(chain).mode == "unrolled") == slides
    for a, b in zip(found, ask(reference, "forward_dynamics_gradient", 3), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8)


def _task(model):
    from robodyn.engines.query_table import QUERIES

    return QUERIES["mass_matrix_inverse"].plain_task(model)


@pytest.mark.parametrize("joints", [("revolute",), ("revolute", "helical")])
def test_composites_take_fewest_operations_where_nothing_slides(joints, monkeypatch):
    """Why no formulation of a gradient is traced there to be counted."""
    given = ("q", "qd", "qdd")
    for n in range(1, 9):
        model = rd.random_tree(n, seed=n, joints=joints)
        composites, columns = (trace(model, each(given)).operations for each in (idsva, rnea_gradient))
        assert composites <= columns, n
    monkeypatch.setattr(query_table, "trace", lambda *_: pytest.fail("traced to be counted"))
    assert rd.Dynamics(model, engine="cpu").plain_task("inverse_dynamics_gradient").name == idsva(given).name


def test_others_get_the_formulation_with_fewer_operations():
    given, chosen = ("q", "qd", "qdd"), set()
    for seed in range(12):
        model = rd.random_tree(4, seed=seed, joints=("prismatic", "revolute"))
        both = {each.name: trace(model, each).operations for each in (idsva(given), rnea_gradient(given))}
        name = rd.Dynamics(model, engine="reference").plain_task("inverse_dynamics_gradient").name
        assert both[name] == min(both.values())
        chosen.add(name)
    assert len(chosen) == 2
