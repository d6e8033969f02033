"""The choice of an engine: by what was measured, and by where arrays live."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_runner import refused, run
from conftest import random_states, relative
from gpu_host import missing
from gpu_host.device import HostDevice

import robodyn as rd
from robodyn.api.queries import engine_selector
from robodyn.api.queries.engine_selector import SECTION, EngineSelector
from robodyn.engines import tuning_store
from robodyn.engines.gpu import engine
from robodyn.engines.tuning_store import Row, Table, keep
from robodyn.tools.benchmark import tune


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of its own, in which nothing is known of this machine."""
    monkeypatch.setenv("ROBODYN_CACHE_DIR", str(tmp_path / "cache"))
    tuning_store.forget()
    yield tmp_path
    tuning_store.forget()


def rows(query: str, bodies: int, times: dict[int, dict[str, float]], dtype: str = "float64") -> list[Row]:
    return [
        Row("engines", query, dtype, bodies, bodies, batch, engine, seconds)
        for batch, found in times.items()
        for engine, seconds in found.items()
    ]


def test_nothing_measured_means_the_usual_engine(fresh):
    model = rd.auto_tree(5)
    dyn = rd.Dynamics(model)
    q, qd, qdd = random_states(model, (3,))
    dyn.inverse_dynamics(q, qd, qdd)
    assert not isinstance(dyn.inverse_dynamics, EngineSelector)
    assert dyn.explain("inverse_dynamics", 3).engine == "cpu" and not dyn.explain("inverse_dynamics", 3).estimates


def test_deep_trees_may_have_their_dense_mass_matrix_from_scans(fresh):
    """Where that was measured to be faster; wide and small trees of the same machine have it from the usual engine."""
    deep, wide, small = rd.auto_tree(10_000), rd.auto_tree(10_000, branching=2.0), rd.auto_tree(10)
    for model in (deep, wide, small):
        assert rd.Dynamics(model).explain("mass_matrix", 1).engine == "cpu"
        assert not engine_selector.current_table().unusual("mass_matrix", "float64", model)
    found = rows("mass_matrix", 9000, {1: {"cpu": 3.0, "scan": 2.0}})
    keep(Table(SECTION, [*found, *(replace(row, depth=13, seconds=1.0) for row in found)]))
    for model, wanted in ((deep, "scan"), (wide, "cpu"), (small, "cpu")):
        assert rd.Dynamics(model).explain("mass_matrix", 1).engine == wanted
        assert engine_selector.current_table().unusual("mass_matrix", "float64", model) == (wanted == "scan")
    assert [row.bodies for row in engine_selector.current_table().rows] == [9000] * 4


def test_calls_go_to_the_engine_that_was_fastest_nearby(fresh, monkeypatch):
    model = rd.auto_tree(5)
    fast, slow = {"cpu": 1e-6, "scan": 1e-3}, {"cpu": 2.0, "scan": 1.0}
    assert keep(Table(SECTION, rows("inverse_dynamics", 6, {1: fast, 64: slow}) + rows("mass_matrix", 6, {64: fast})))
    dyn = rd.Dynamics(model)
    q, qd, qdd = random_states(model, (100,))
    wanted = rd.Dynamics(model, engine="reference").inverse_dynamics(q, qd, qdd)
    dyn.inverse_dynamics(q, qd, qdd)  # the first call is the method's
    assert isinstance(dyn.inverse_dynamics, EngineSelector)
    asked: list[str] = []
    run = type(dyn.variant(engine="scan").engine).answer

    def watched(self: Any, *given: Any, **others: Any) -> None:
        asked.append(self.name)
        run(self, *given, **others)

    monkeypatch.setattr("robodyn.engines.scan.engine.ScanEngine.answer", watched)
    assert relative(dyn.inverse_dynamics(q, qd, qdd), wanted) < 1e-11 and asked == ["scan"]
    out = np.full_like(wanted, np.nan)
    assert dyn.inverse_dynamics(q, qd, qdd, out=out) is out and len(asked) == 2
    dyn.inverse_dynamics(q[0], qd[0], qdd[0])
    dyn.inverse_dynamics(q=q[:2], qd=qd[:2], qdd=qdd[:2])
    assert len(asked) == 2
    dyn.mass_matrix(q)
    assert not isinstance(dyn.mass_matrix, EngineSelector)  # nothing else was ever faster
    with pytest.raises(rd.ArgumentError, match="qd: got shape"):
        dyn.inverse_dynamics(q, qd[:, :2], qdd)
    found = dyn.explain("inverse_dynamics", 100)
    assert found.engine == "scan" and found.estimates == {"scan": 1.0, "cpu": 2.0}
    assert "the fastest of the engines measured nearest" in str(found)
    assert dyn.explain("inverse_dynamics", 2).engine == "cpu"
    assert rd.Dynamics(model, engine="cpu").explain("inverse_dynamics", 100).engine == "cpu"
    function = pickle.loads(pickle.dumps(dyn.inverse_dynamics))
    assert relative(function(q, qd, qdd), wanted) < 1e-11


@pytest.mark.skipif(bool(missing()), reason=missing() or "it runs")
@pytest.mark.matrix
def test_large_batches_may_go_through_a_gpu(fresh, monkeypatch):
    host = HostDevice()
    monkeypatch.setattr(engine, "default_device", lambda: host)
    model = rd.auto_tree(3)
    keep(Table(SECTION, rows("inverse_dynamics", 3, {1: {"cpu": 1.0, "gpu": 2.0}, 256: {"cpu": 2.0, "gpu": 1.0}})))
    dyn = rd.Dynamics(model)
    q, qd, qdd = random_states(model, (300,))
    wanted = rd.Dynamics(model, engine="cpu").inverse_dynamics(q, qd, qdd)
    assert not host.launches
    assert relative(dyn.inverse_dynamics(q, qd, qdd), wanted) < 1e-11 and len(host.launches) == 1
    dyn.inverse_dynamics(q[0], qd[0], qdd[0])
    assert len(host.launches) == 1


def test_an_engine_that_is_gone_is_done_without(fresh, monkeypatch):
    def gone() -> Any:
        raise rd.UnavailableError("engine 'gpu': none")

    monkeypatch.setattr(engine, "default_device", gone)
    keep(Table(SECTION, rows("inverse_dynamics", 3, {1: {"cpu": 2.0, "gpu": 1.0}})))
    model = rd.auto_tree(3)
    dyn = rd.Dynamics(model)
    q, qd, qdd = random_states(model, (3,))
    assert np.array_equal(dyn.inverse_dynamics(q, qd, qdd), dyn.inverse_dynamics(q, qd, qdd))
    assert dyn.explain("inverse_dynamics", 3).engine == "cpu"


def test_what_says_how_is_left_to_the_usual_engine(fresh, monkeypatch):
    """Methods are those of an engine; and what another one has no memory for the usual one may have."""
    keep(Table(SECTION, rows("forward_dynamics", 5, {4: {"cpu": 1.0, "scan": 0.1}})))
    model = rd.auto_tree(5)
    dyn, (q, qd, tau) = rd.Dynamics(model), random_states(model, (4,))
    wanted = rd.Dynamics(model, engine="cpu").forward_dynamics(q, qd, tau)
    assert isinstance(dyn.forward_dynamics, EngineSelector)
    assert np.array_equal(dyn.forward_dynamics(q, qd, tau, method="aba"), wanted)
    with pytest.raises(rd.ArgumentError, match="allowed: 'auto', 'aba', 'crba'"):
        dyn.forward_dynamics(q, qd, tau, method="jsiia")
    scanned = dyn.forward_dynamics(q, qd, tau)
    assert relative(scanned, wanted) < 1e-11 and not np.array_equal(scanned, wanted)

    def refuses(self: Any, *given: Any, **others: Any) -> None:
        raise rd.UnavailableError("no memory")

    monkeypatch.setattr("robodyn.engines.scan.engine.ScanEngine.answer", refuses)
    assert np.array_equal(dyn.forward_dynamics(q, qd, tau), wanted)


def test_the_next_engine_is_taken_where_the_first_is_gone(fresh, monkeypatch):
    def gone() -> Any:
        raise rd.UnavailableError("engine 'gpu': none")

    monkeypatch.setattr(engine, "default_device", gone)
    keep(Table(SECTION, rows("inverse_dynamics", 3, {4: {"cpu": 3.0, "scan": 2.0, "gpu": 1.0}})))
    model = rd.auto_tree(3)
    dyn, (q, qd, qdd) = rd.Dynamics(model), random_states(model, (4,))
    dyn.inverse_dynamics(q, qd, qdd)
    scanned = dyn.inverse_dynamics(q, qd, qdd)
    assert np.array_equal(scanned, rd.Dynamics(model, engine="scan").inverse_dynamics(q, qd, qdd))
    assert dyn.explain("inverse_dynamics", 4).engine == "scan"


def test_estimates_are_those_of_the_nearest_tree_and_batch():
    times = {4: {"cpu": 1.0}, 1024: {"cpu": 2.0}}
    table = Table(SECTION, rows("inverse_dynamics", 100, times) + rows("inverse_dynamics", 1000, {4: {"cpu": 5.0}}))
    assert table.estimates("inverse_dynamics", "float64", rd.auto_tree(120), 8) == {"cpu": 1.0}
    assert table.estimates("inverse_dynamics", "float64", rd.auto_tree(120), 4000) == {"cpu": 2.0}
    assert table.estimates("inverse_dynamics", "float64", rd.auto_tree(900), 4000) == {"cpu": 5.0}
    for query, dtype, n, batch in (
        ("mass_matrix", "float64", 100, 4),
        ("inverse_dynamics", "float32", 100, 4),
        ("inverse_dynamics", "float64", 5, 4),
        ("inverse_dynamics", "float64", 100, 0),
    ):
        assert table.estimates(query, dtype, rd.auto_tree(n), batch) == {}


def test_an_engine_that_was_hardly_faster_is_not_taken():
    for other, chosen in ((0.9, "cpu"), (0.8, "scan"), (1.1, "cpu")):
        table = Table(SECTION, rows("inverse_dynamics", 5, {4: {"cpu": 1.0, "scan": other}}))
        assert next(iter(table.estimates("inverse_dynamics", "float64", rd.auto_tree(5), 4))) == chosen
        assert table.unusual("inverse_dynamics", "float64", rd.auto_tree(5)) == (chosen != "cpu")
        assert not table.unusual("inverse_dynamics", "float64", rd.auto_tree(80))


def test_a_machine_is_measured(fresh):
    grid = tune.Grid(bodies=(3,), batches=(1, 8), dtypes=("float64",), queries=("inverse_dynamics", "mass_matrix"))
    table = tune.fit(grid, 1e-4)
    engines = {row.choice for row in table.rows}
    assert {"cpu", "scan"} <= engines and len(table.rows) == 2 * 2 * 2 * len(engines)
    assert all(0.0 < row.seconds < 1.0 for row in table.rows)
    worst = Table(SECTION, rows("mass_matrix", 3, {1: {"cpu": 3.0, "scan": 1.0}}))
    ratio, where = tune.worst_choice(Table(SECTION, rows("mass_matrix", 3, {1: {"cpu": 1.0, "scan": 2.0}})), worst)
    assert ratio == 3.0 and "mass_matrix, 3 bodies in 3 levels, batch 1: cpu" in where
    cells = tune.engine_table(table)
    assert len(cells.rows) == 8 and all(row[-1] in engines for row in cells.rows)


@pytest.mark.skipif(bool(missing()), reason=missing() or "it runs")
def test_kernels_of_a_gpu_are_measured(fresh, monkeypatch):
    host = HostDevice()
    monkeypatch.setattr(engine, "default_device", lambda: host)
    grid = tune.Grid(bodies=(2,), batches=(3,), dtypes=("float64",), queries=("mass_matrix",))
    found, name = tune.fit_kernels(grid, 1e-4)
    assert name == "host" and {row.choice for row in found.rows} == {"unrolled", "thread", "warp", "block"}
    assert keep(found, name)
    assert "measured" in rd.Dynamics(rd.auto_tree(2), engine="gpu").explain("mass_matrix", 3).reason


def test_the_command_tunes_and_prints(fresh, monkeypatch):
    from robodyn.tools.cli import tune as cli_tune

    small = tune.Grid(bodies=(3,), batches=(1,), dtypes=("float64",), queries=("inverse_dynamics",))
    monkeypatch.setattr(cli_tune, "QUICK", small)
    monkeypatch.setattr(cli_tune, "CHECKED", small)
    status, shown, _ = run("tune", "--quick", "--seconds", "0.0001")
    assert status == 0
    assert "engines on NumPy arrays" in shown and "kept in the cache" in shown
    found = json.loads(run("tune", "--quick", "--seconds", "0.0001", "--json")[1])
    assert {row["engine"] for row in found["engines"]} >= {"cpu", "scan"} and found["worst"] >= 1.0 and found["kept"]
    assert engine_selector.current_table().rows
    refused(["tune", "--seconds", "-1"], "--seconds: got -1.0")
    monkeypatch.setenv("ROBODYN_CACHE_DIR", "off")
    assert not json.loads(run("tune", "--quick", "--seconds", "0.0001", "--json")[1])["kept"]
