"""What a first answer does not wait for: programs that are traced again, or only to be found too large."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import robodyn as rd
from robodyn.engines.cpu import request, route


@pytest.fixture
def traced(monkeypatch, tmp_path):
    """How often each algorithm is traced, with an empty cache."""
    found, trace = Counter(), request.trace

    def noting(model, task, **given):
        found[task.name] += 1
        return trace(model, task, **given)

    monkeypatch.setenv("ROBODYN_CACHE_DIR", str(tmp_path / "objects"))
    monkeypatch.setattr(request, "trace", noting)
    return found


def ask(dyn, query, *leading):
    model = dyn.model
    q, v = model.random_configuration(np.random.default_rng(1), leading), np.ones((*leading, model.nv))
    return getattr(dyn, query)(*((q,) if "mass" in query else (q, v, v)))


def test_no_program_is_traced_twice(traced, monkeypatch):
    monkeypatch.setattr(
        route, "MAX_UNROLLED_CHAIN", dict.fromkeys(route.MAX_UNROLLED_CHAIN, 0)
    )  # its stages are programs of their own
    dyn = rd.Dynamics(rd.random_tree(5, seed=4, joints=("revolute",)), engine="cpu")
    ask(dyn, "forward_dynamics_gradient")
    assert len(traced) == 2 and set(traced.values()) == {1}
    ask(dyn, "inverse_dynamics")
    ask(dyn, "inverse_dynamics", 3)
    assert set(traced.values()) == {1}


def test_what_loops_show_to_be_too_large_is_not_traced(traced, monkeypatch):
    model = rd.random_tree(8, seed=4, joints=("revolute",))
    reference = rd.Dynamics(model, engine="reference")
    monkeypatch.setattr(route, "_MANY_STEPS", 10)
    monkeypatch.setattr(route, "MAX_UNROLLED_OPERATIONS", dict.fromkeys(route.MAX_UNROLLED_OPERATIONS, 300))
    dyn = rd.Dynamics(model, engine="cpu", dtype="float32")  # in double precision it has another algorithm
    found = ask(dyn, "mass_matrix_inverse", 3)
    assert not traced and dyn.engine.generated(_task(model)).mode == "rolled"
    np.testing.assert_allclose(found, ask(reference, "mass_matrix_inverse", 3), rtol=1e-3, atol=1e-4)


def _task(model):
    from robodyn.questions import QUESTIONS

    return QUESTIONS["mass_matrix_inverse"].plain_task(model)
