"""The scan engine as users see it: inverse dynamics in all ways, choice of methods, what it does not answer."""

from __future__ import annotations

import gc
import itertools
import json
import pickle
import weakref

import numpy as np
import pytest
from cli_runner import run
from conftest import random_states, relative
from robots import OWN, own

import robodyn as rd
from robodyn.engines.query_table import QUERIES
from robodyn.engines.scan import KERNELS, LAYOUTS, ScanOptions
from robodyn.engines.scan import costs as cost_model
from robodyn.engines.scan.algorithms import inverse
from robodyn.engines.scan.algorithms.forward import FORWARD
from robodyn.engines.scan.elementwise import Elementwise, operators
from robodyn.engines.scan.methods import ANSWERS, methods_of
from robodyn.engines.tuning_store import forget
from robodyn.internals.errors import ArgumentError, NumericalError, UnavailableError
from robodyn.spatial import Transform
from robodyn.sweeps import MOTION, TRANSFORM
from robodyn.tools.benchmark import scan_costs

ALL_KINDS = ("revolute", "prismatic", "helical", "planar", "spherical", "floating")
ID_METHODS = methods_of("inverse_dynamics")
OPTIONS = [
    ScanOptions(layout=layout, kernel=kernel, block=4, operators=how)
    for layout, kernel, how in itertools.product(LAYOUTS, KERNELS, ("compiled", "library"))
]


def scans(model, options=None, **others):
    return rd.Dynamics(model, engine="scan", scan=options, **others)


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: f"{o.layout}-{o.kernel}-{o.operators}")
@pytest.mark.some(of=6, rest="matrix")
def test_inverse_dynamics_every_way(options):
    for seed, n in enumerate((1, 2, 7, 30)):
        model = rd.random_tree(n, seed=seed, joints=ALL_KINDS, mimic=0.2 if seed == 2 else 0.0)
        q, qd, qdd = random_states(model, (3,), seed)
        rng = np.random.default_rng(seed)
        world = {"V0": rng.standard_normal((3, 6)), "dV0": rng.standard_normal(6)}
        f_ext = rng.standard_normal((3, model.n_bodies, 6))
        dyn, reference = scans(model, options), rd.Dynamics(model, engine="reference")
        wanted = reference.inverse_dynamics(q, qd, qdd, f_ext=f_ext, **world)
        for method in (*ID_METHODS, "auto"):
            found = dyn.inverse_dynamics(q, qd, qdd, f_ext=f_ext, method=method, **world)
            assert relative(found, wanted) < 1e-12, (method, seed)
        assert relative(dyn.bias_force(q, qd, f_ext=f_ext), reference.bias_force(q, qd, f_ext=f_ext)) < 1e-12
        assert relative(dyn.gravity_force(q), reference.gravity_force(q)) < 1e-12


@pytest.mark.parametrize("base", ["fixed", "floating"])
@pytest.mark.parametrize("path", OWN, ids=lambda path: path.stem)
def test_robots(path, base):
    model = rd.load_urdf(path, base=base)
    q, qd, qdd = random_states(model, (2, 3))
    wanted = rd.Dynamics(model, engine="reference").inverse_dynamics(q, qd, qdd)
    for method in ID_METHODS:
        assert relative(scans(model).inverse_dynamics(q, qd, qdd, method=method), wanted) < 1e-12


@pytest.mark.parametrize("method", ID_METHODS)
def test_single_precision(method):
    model = rd.random_tree(20, seed=3, joints=ALL_KINDS)
    q, qd, qdd = random_states(model, (4,))
    found = scans(model, dtype="float32").inverse_dynamics(q, qd, qdd, method=method)
    assert found.dtype == np.float32
    assert relative(found, rd.Dynamics(model, engine="reference").inverse_dynamics(q, qd, qdd)) < 1e-5


@pytest.mark.parametrize("method", ID_METHODS)
def test_inertia_for_every_sample(method):
    model = rd.random_tree(9, seed=5, joints=ALL_KINDS)
    q, qd, qdd = random_states(model, (3,))
    inertia = model.inertia * np.array([1.0, 2.0, 0.5])[:, None, None]
    wanted = rd.Dynamics(model, engine="reference").inverse_dynamics(q, qd, qdd, inertia=inertia)
    assert relative(scans(model).inverse_dynamics(q, qd, qdd, method=method, inertia=inertia), wanted) < 1e-12


@pytest.mark.parametrize("method", ID_METHODS)
@pytest.mark.parametrize("branching", [1.0, 1.5, 2.0])
def test_large_trees_agree_with_the_recursion(method, branching):
    model = rd.auto_tree(20_000, branching=branching, skew=0.3)
    q, qd, qdd = np.random.default_rng(0).uniform(-1, 1, (3, model.nv))
    wanted = rd.Dynamics(model).inverse_dynamics(q, qd, qdd)
    assert relative(scans(model).inverse_dynamics(q, qd, qdd, method=method), wanted) < 1e-9


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("method", ID_METHODS)
def test_far_from_the_origin_as_near_it(method, layout):
    model = rd.load_urdf(own("quadruped"), base="floating")
    q, qd, qdd = random_states(model, (3,))
    dyn = scans(model, ScanOptions(layout=layout))
    near = dyn.inverse_dynamics(q, qd, qdd, method=method)
    q[:, :3] += 1e7
    assert relative(dyn.inverse_dynamics(q, qd, qdd, method=method), near) < 1e-13


def test_batches_are_cut_into_pieces_that_change_nothing(monkeypatch):
    model = rd.random_tree(6, seed=1)
    q, qd, qdd = random_states(model, (50,))
    dyn = scans(model)
    whole = dyn.inverse_dynamics(q, qd, qdd, method="rnea")
    monkeypatch.setattr("robodyn.engines.scan.states.STATES_PIECE", 42)
    assert relative(dyn.inverse_dynamics(q, qd, qdd, method="rnea"), whole) < 1e-14


def test_values_that_are_not_finite_stay_in_their_rows():
    model = rd.random_tree(12, seed=1, joints=ALL_KINDS)
    q, qd, qdd = random_states(model, (4,))
    dyn = scans(model)
    for method in ID_METHODS:
        wanted = dyn.inverse_dynamics(q, qd, qdd, method=method)
        spoilt = qd.copy()
        spoilt[1, 0], spoilt[3, -1] = np.nan, np.inf
        found = dyn.inverse_dynamics(q, spoilt, qdd, method=method)
        assert not np.isfinite(found[[1, 3]]).all(axis=1).any()
        np.testing.assert_array_equal(found[[0, 2]], wanted[[0, 2]])
    with pytest.raises(NumericalError, match="qd: NaN or infinite"):
        dyn.inverse_dynamics(q[0], np.full(model.nv, np.nan), qdd[0])


@pytest.mark.parametrize("n", [0, 1])
def test_tiny_models(n):
    model = rd.random_tree(n, seed=0)
    dyn = scans(model)
    for leading in ((), (0,), (2,)):
        q, qd, qdd = random_states(model, leading)
        for method in ID_METHODS:
            assert dyn.inverse_dynamics(q, qd, qdd, method=method).shape == (*leading, model.nv)


def test_what_it_does_not_answer_is_said():
    model = rd.load_urdf(own("arm6"))
    dyn = scans(model)
    with pytest.raises(UnavailableError, match=r"engine: 'scan' does not answer this query.*'reference', 'cpu'"):
        dyn.kinetic_energy(np.zeros(6), np.zeros(6))
    with pytest.raises(UnavailableError, match="compiles nothing"):
        dyn.program("inverse_dynamics")
    with pytest.raises(ArgumentError, match="method: got 'aba'; allowed: 'auto', 'aba_scan'"):
        dyn.forward_dynamics(*np.zeros((3, 6)), method="aba")
    with pytest.raises(ArgumentError, match="method: got 'twist_pair'; allowed: 'auto', 'rnea'"):
        rd.Dynamics(model).inverse_dynamics(*np.zeros((3, 6)), method="twist_pair")


def test_answers_what_the_support_table_says():
    model = rd.random_tree(5, seed=2)
    q, qd, qdd = random_states(model, (2,))
    dyn, reference = scans(model), rd.Dynamics(model, engine="reference")
    arguments = {"q": q, "qd": qd, "qdd": qdd, "tau": qdd}
    needed = {
        "inverse_dynamics": ("q", "qd", "qdd"),
        "forward_dynamics": ("q", "qd", "tau"),
        "inverse_dynamics_gradient": ("q", "qd", "qdd"),
        "mass_matrix": ("q",),
        "bias_force": ("q", "qd"),
        "gravity_force": ("q",),
    }
    assert {name for name, question in QUERIES.items() if "scan" in question.engines} == set(needed) == set(ANSWERS)
    for name, names in needed.items():
        given = [arguments[each] for each in names]
        found, wanted = getattr(dyn, name)(*given), getattr(reference, name)(*given)
        for one, two in zip(np.atleast_1d(found), np.atleast_1d(wanted), strict=True):
            assert relative(one, two) < 1e-10, name
        assert dyn.explain(name).engine == "scan"


def test_pickled_with_its_options():
    model = rd.load_urdf(own("arm6"))
    options = ScanOptions(layout="euler", kernel="mapped", block=16, operators="library")
    again = pickle.loads(pickle.dumps(scans(model, options)))
    assert again.engine.layout.options == options


# Choice of methods.


def test_the_choice_is_the_least_estimate(monkeypatch):
    model = rd.auto_tree(50, branching=1.5, skew=0.3)
    dear = {name: tuple(1.0 for _ in names) for name, names in cost_model.TERMS.items()}
    for cheap in ("twist_pair", "rnea_world"):
        chosen = cost_model.Costs({**dear, cheap: (0.0, 0.0, 1e-9)}, "made up")
        monkeypatch.setattr("robodyn.engines.scan.scans.current_costs", lambda found=chosen: found)
        monkeypatch.setattr(cost_model, "current_costs", lambda found=chosen: found)
        explanation = scans(model).explain("inverse_dynamics", 7)
        assert explanation.method == cheap == next(iter(explanation.estimates))
        assert "made up" in str(explanation)
        assert cheap in str(explanation)


def test_models_with_mimicking_joints_choose_among_methods_that_take_them():
    model = rd.random_tree(12, seed=4, joints=("revolute", "prismatic"), mimic=0.3)
    assert model.has_mimic
    found = scans(model).explain("forward_dynamics", 3)
    assert set(found.estimates) == {"crba", "jsiia"}
    with pytest.raises(ArgumentError, match="mimic others; allowed: 'auto', 'crba', 'jsiia'"):
        scans(model).forward_dynamics(*np.zeros((3, model.nv)), method="aba_scan")


def test_no_matrix_is_chosen_that_memory_cannot_hold(monkeypatch):
    monkeypatch.setattr(cost_model, "available", lambda: 1 << 20)
    model = rd.auto_tree(3000, skew=0.3)
    assert not {"crba", "jsiia"} & set(scans(model).explain("forward_dynamics").estimates)


def test_costs_fit_what_was_measured(tmp_path, monkeypatch):
    """A machine whose times are exactly a model's gives that model back, and what is kept is read again."""
    truth = {name: np.linspace(1e-6, 3e-6, len(names)) for name, names in cost_model.TERMS.items()}
    monkeypatch.setattr(scan_costs, "BODIES", (4, 16, 64))
    monkeypatch.setenv("ROBODYN_CACHE_DIR", str(tmp_path / "objects"))

    def time(dyn, query, method, arrays, seconds):
        return float(cost_model.terms(dyn.engine.layout, method, len(arrays[0])) @ truth[method])

    monkeypatch.setattr(scan_costs, "_time", time)
    costs, rows = scan_costs.fit()
    for row in rows:
        assert row[5] == pytest.approx(row[4], rel=1e-6)
    assert scan_costs.worst_choice(rows) == pytest.approx(1.0)
    assert cost_model.keep(costs)
    assert cost_model.measured_costs() == cost_model.Costs(
        {name: list(found) for name, found in costs.coefficients.items()}, costs.source
    )
    forget()


def test_costs_are_kept_in_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ROBODYN_CACHE_DIR", str(tmp_path / "objects"))
    forget()
    assert cost_model.measured_costs() is None
    assert cost_model.current_costs() is cost_model.BUILT_IN
    costs = cost_model.Costs({name: [1e-6] * len(names) for name, names in cost_model.TERMS.items()}, "here")
    assert cost_model.keep(costs)
    assert cost_model.current_costs() == costs
    for path in (tmp_path / "objects").iterdir():  # of another version, or damaged
        path.write_bytes(path.read_bytes()[:-3] + b"xyz")
    forget()
    assert cost_model.measured_costs() is None
    forget()


@pytest.mark.parametrize("engine", ["reference", "cpu", "scan"])
def test_explanations(engine):
    dyn = rd.Dynamics(rd.load_urdf(own("arm6")), engine=engine)
    for query in ("inverse_dynamics", "mass_matrix", "inverse_dynamics_gradient"):
        found = dyn.explain(query, batch=64)
        assert (found.query, found.batch, found.engine) == (query, 64, engine)
        assert str(found).startswith(f"{query}, batch 64: engine '{engine}', method '{found.method}'")
    with pytest.raises(ArgumentError, match="query: got 'dynamics'"):
        dyn.explain("dynamics")
    with pytest.raises(ArgumentError, match="batch: got 0"):
        dyn.explain("inverse_dynamics", 0)


def test_every_method_of_a_row_is_there():
    assert set(FORWARD) == set(methods_of("forward_dynamics"))
    assert set(inverse.METHODS) == set(methods_of("inverse_dynamics")) == set(methods_of("bias_force"))
    chosen = {*cost_model.choices_of("inverse_dynamics"), *cost_model.choices_of("forward_dynamics")}
    assert set(cost_model.TERMS) == set(cost_model.BUILT_IN.coefficients) == chosen
    assert "cfa" not in chosen and cost_model.choices_of("mass_matrix") == ()


@pytest.mark.parametrize("engine", ["reference", "cpu", "scan"])
@pytest.mark.parametrize("name", ["arm6", "gripper"])
def test_methods_that_explanations_name_are_methods(engine, name):
    model = rd.load_urdf(own(name))
    dyn = rd.Dynamics(model, engine=engine)
    for query in ("inverse_dynamics", "forward_dynamics", "inverse_dynamics_gradient"):
        assert dyn.explain(query).method in QUERIES[query].possible(model, engine)
        getattr(dyn, query)(*np.zeros((3, model.nv)), method=dyn.explain(query).method)


def test_models_that_were_asked_for_an_estimate_are_let_go():
    model = rd.auto_tree(40, skew=0.3)
    dyn = scans(model)
    dyn.forward_dynamics(*np.zeros((3, 40)))
    layout = weakref.ref(dyn.engine.layout)
    del dyn
    gc.collect()
    assert layout() is None


def test_explanations_of_what_is_not_there():
    with pytest.raises(UnavailableError, match=r"'scan' does not answer 'kinetic_energy'.*'reference', 'cpu'"):
        scans(rd.auto_tree(3)).explain("kinetic_energy")


# Steps as machine code.


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("n", [0, 1, 3, 7, 8, 9, 16, 17, 100])
def test_compiled_steps_are_the_steps(dtype, n):
    step = Elementwise(Transform.motion, MOTION, TRANSFORM, MOTION)
    rng = np.random.default_rng(n)
    X, v = rng.standard_normal((12, n, 2)).astype(dtype), rng.standard_normal((6, n, 2)).astype(dtype)
    compiled = step(X, v)
    with operators("library"):
        plain = step(X, v)
    assert compiled.dtype == plain.dtype == dtype
    np.testing.assert_allclose(compiled, plain, atol=20 * np.finfo(dtype).eps, rtol=20 * np.finfo(dtype).eps)
    # Of one X all may share, results go where they are asked for, and odd strides are no trouble.
    wide = np.full((6, 2 * n, 2), np.nan, dtype)
    assert step(X[:, :1], v, out=wide[:, ::2]).base is wide
    np.testing.assert_array_equal(wide[:, ::2], step(np.repeat(X[:, :1], n, axis=1), v))
    assert np.isnan(wide[:, 1::2]).all()
    np.testing.assert_array_equal(step(X[:, ::-1], v[:, ::-1])[:, ::-1], compiled)


def test_steps_run_without_a_compiler(monkeypatch):
    def none(*_):
        raise UnavailableError("no compiler here")

    monkeypatch.setattr("robodyn.engines.scan.elementwise._machine_code", none)
    step = Elementwise(Transform.motion, MOTION, TRANSFORM, MOTION)
    X, v = np.random.default_rng(0).standard_normal((12, 9, 1)), np.ones((6, 9, 1))
    with operators("library"):
        wanted = step(X, v)
    np.testing.assert_array_equal(step(X, v), wanted)


# The command.


def test_the_command_explains(tmp_path, monkeypatch):
    monkeypatch.setenv("ROBODYN_CACHE_DIR", str(tmp_path / "objects"))
    monkeypatch.setattr(scan_costs, "_time", lambda dyn, query, method, arrays, seconds: 1e-3 * len(method))
    forget()
    code, out, err = run("bench", own("arm6"), "--explain", "--batch", "1,64")
    assert code == 0
    assert "cases measured, kept in the cache" in err  # nothing was measured on this machine yet
    assert "unrolled code" in out
    assert "what scans cost, ns" in out
    code, out, err = run("bench", own("arm6"), "--explain", "--json", "--query", "mass_matrix", "--engine", "reference")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert set(found["costs"]) == set(cost_model.TERMS)
    assert [row[2] for row in found["choices"]] == ["reference"] * 3 + ["scan"] * 3
    code, _, err = run("bench", own("arm6"), "--explain", "--query", "dynamics")
    assert code != 0
    assert "query: got 'dynamics'" in err
    forget()
