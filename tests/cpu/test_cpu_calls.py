"""Calls go to a built-in function once one like them was answered; nobody should notice but the clock."""

from __future__ import annotations

import inspect
import pickle
import threading

import numpy as np
import pytest
from cpu_queries import limit_programs

import robodyn as rd
from robodyn.engines.cpu import engine as engines
from robodyn.engines.query_table import QUERIES, plain_questions


@pytest.fixture
def model():
    return rd.random_tree(4, seed=3)


@pytest.fixture
def dyn(model):
    dyn = rd.Dynamics(model, engine="cpu")
    dyn.inverse_dynamics(*states(model))
    assert inspect.isbuiltin(dyn.inverse_dynamics)
    return dyn


def states(model):
    return model.random_configuration(1, (5,)), np.ones((5, model.nv)), np.full((5, model.nv), 2.0)


PATIENCE = 300.0  # seconds that nothing here comes near unless something hangs
ROBOTS = {
    "plain": lambda: rd.random_tree(3, seed=3, joints=("spherical", "revolute", "prismatic")),
    "mimicking": lambda: rd.random_tree(4, seed=11, joints=("revolute", "prismatic"), mimic=0.5),
}


def arguments(model, names, rows):
    """Arrays of a plain call; rows 0: of one state."""
    lead = (rows,) if rows else ()
    rng = np.random.default_rng(rows)
    return [
        model.random_configuration(rows, lead) if name == "q" else rng.uniform(-1, 1, (*lead, model.nv))
        for name in names
    ]


def several(answer):
    return answer if isinstance(answer, tuple) else (answer,)


@pytest.mark.parametrize(
    ("robot", "dtype", "code"),
    [
        ("plain", "float64", "unrolled"),
        ("plain", "float64", "rolled"),
        ("plain", "float64", "auto"),
        ("plain", "float32", "auto"),
        ("mimicking", "float64", "auto"),
    ],
)
@pytest.mark.some(of=8, rest="matrix")
def test_all_plain_calls_answer_as_their_methods(robot, dtype, code, monkeypatch):
    """To the bit, into new arrays and into given ones; `auto` with chains of kernels, as in larger robots."""
    if code == "auto":
        limit_programs(monkeypatch, chain=0)
    model = ROBOTS[robot]()
    dyn = rd.Dynamics(model, engine="cpu", dtype=dtype, code=code, threads=2)
    for name in plain_questions():
        inputs = QUERIES[name].plain
        method = getattr(rd.Dynamics, name)
        for rows in (0, 1, 9, 400):
            args = [array.astype(dtype) for array in arguments(model, inputs, rows)]
            others = {"vector": args.pop()} if "vector" in inputs else {}
            wanted = several(method(dyn, *args, **others))
            for _ in range(2):  # at the second time code for one and for several states is there
                method(dyn, *args, **others)
                assert inspect.isbuiltin(getattr(dyn, name)), name
                quick = several(getattr(dyn, name)(*args, **others))
                assert all((one == two).all() and one.dtype == dtype for one, two in zip(quick, wanted, strict=True))
            out = tuple(np.full_like(array, np.nan) for array in wanted)
            given = several(getattr(dyn, name)(*args, **others, out=out if len(out) > 1 else out[0]))
            assert all(one is two and (one == three).all() for one, two, three in zip(given, out, wanted, strict=True))


@pytest.mark.parametrize("code", ["unrolled", "rolled"])
@pytest.mark.parametrize("name", ["inverse_dynamics", "forward_dynamics_gradient", "centroidal_momentum"])
@pytest.mark.some(of=6, rest="matrix")
def test_which_calls_the_method_answers(name, code, passed_on, monkeypatch):
    """The first one of single states and of batches, one more where these have code of their own, then none."""
    model = ROBOTS["plain"]()
    dyn = rd.Dynamics(model, engine="cpu", code=code, threads=1)
    batch, state = (arguments(model, QUERIES[name].plain, rows) for rows in (9, 0))
    for args in (batch, batch, batch, state, state, state, batch, state):
        getattr(dyn, name)(*args)
    assert len(passed_on) <= (2 if code == "unrolled" else 3)
    passed_on.clear()
    getattr(dyn, name)(*batch), getattr(dyn, name)(*state)
    assert passed_on == []
    getattr(dyn, name)(*map(np.ndarray.tolist, state))
    getattr(dyn, name)(**dict(zip(QUERIES[name].plain, state, strict=True)))
    assert passed_on == [name]  # by names: a form of its own
    getattr(dyn, name)(**dict(zip(QUERIES[name].plain, state, strict=True)))
    assert passed_on == [name]


def test_a_vector_comes_by_name(passed_on):
    """To machine code as to methods, which never take it in the place of forces."""
    model = ROBOTS["plain"]()
    dyn = rd.Dynamics(model, engine="cpu", threads=1)
    for name in ("inverse_dynamics_vjp", "mass_matrix_product_gradient", "inverse_dynamics_hessian"):
        for rows in (5, 0):
            *given, vector = arguments(model, QUERIES[name].plain, rows)
            wanted = several(getattr(dyn, name)(*given, vector=vector))
            getattr(dyn, name)(*given, vector=vector)
            passed_on.clear()
            out = tuple(np.full(each.shape, np.nan) for each in wanted)
            found = several(getattr(dyn, name)(*given, vector=vector))
            getattr(dyn, name)(*given, vector=vector, out=out if len(out) > 1 else out[0])
            assert passed_on == []
            for each in (found, out):
                assert all(np.array_equal(one, two) for one, two in zip(each, wanted, strict=True))
            with pytest.raises(TypeError, match="positional argument"):
                getattr(dyn, name)(*given, vector)
            wrong = {"f_ext": vector} if name != "mass_matrix_product_gradient" else {"inertia": vector}
            with pytest.raises((TypeError, rd.ArgumentError)):
                getattr(dyn, name)(*given, **wrong)


def test_trees_that_take_much_scratch_memory_go_without(passed_on, monkeypatch):
    model = ROBOTS["plain"]()
    monkeypatch.setattr(engines, "MAX_SCRATCH", 0)
    for code in ("rolled", "unrolled"):
        dyn = rd.Dynamics(model, engine="cpu", code=code)
        passed_on.clear()
        for rows in (3, 3, 0, 0, 3, 0):
            dyn.inverse_dynamics(*arguments(model, ("q", "qd", "qdd"), rows))
        assert len(passed_on) <= 2 if code == "unrolled" else len(passed_on) == 6


def test_entries_share_their_scratch_memory():
    model = ROBOTS["plain"]()
    dyn = rd.Dynamics(model, engine="cpu", code="rolled", threads=1)
    for name in ("mass_matrix_inverse", "mass_matrix", "gravity_force"):
        getattr(dyn, name)(*arguments(model, ("q",), 3))
    held = dyn.engine._scratch
    assert held.size == max(kernel.workspace_bytes for kernel in dyn.engine._kernels.values())
    dyn.mass_matrix(*arguments(model, ("q",), 0))
    assert dyn.engine._scratch is held


@pytest.mark.parametrize("code", ["unrolled", "rolled"])
@pytest.mark.parametrize("name", ["inverse_dynamics_gradient", "forward_dynamics_gradient", "centroidal_momentum"])
def test_values_that_are_not_finite(name, code):
    model = ROBOTS["plain"]()
    dyn, inputs = rd.Dynamics(model, engine="cpu", code=code, threads=2), QUERIES[name].plain
    call, method = (lambda *a, **k: getattr(dyn, name)(*a, **k)), getattr(rd.Dynamics, name)
    good, batch = arguments(model, inputs, 0), arguments(model, inputs, 9)
    out = tuple(np.empty_like(array) for array in call(*good))
    call(*batch), call(*good)
    for k, word in enumerate(inputs):
        for value in (np.nan, np.inf):
            bad, rows = [each.copy() for each in good], [each.copy() for each in batch]
            bad[k][-1] = rows[k][4] = value
            for options in ({}, {"out": out}):
                with pytest.raises(rd.NumericalError, match=f"^{word}: NaN or infinite"):
                    call(*bad, **options)
            spoilt = call(*rows)
            assert not all(np.isfinite(each[4]).all() for each in spoilt)
            for got, wanted, clean in zip(spoilt, method(dyn, *rows), call(*batch), strict=True):
                assert np.array_equal(got, wanted, equal_nan=True)
                assert (np.delete(got, 4, 0) == np.delete(clean, 4, 0)).all()
    huge = [good[0], good[1] * 1e200, *good[2:]]  # velocities squared overflow
    if name != "centroidal_momentum":
        for options in ({}, {"out": out}):
            with pytest.raises(rd.NumericalError, match=r"^result \w+: NaN"):
                call(*huge, **options)
    flat = good[0].copy()
    flat[3:7] = 0.0
    with np.errstate(all="ignore"):
        assert all((a == b).all() for a, b in zip(call(flat, *good[1:]), method(dyn, flat, *good[1:]), strict=True))


@pytest.mark.parametrize("code", ["unrolled", "rolled"])
def test_threads_call_the_same_entries(code):
    """Batches and single states, small and shared, into arrays of each thread's own."""
    model = ROBOTS["plain"]()
    dyn, problems, barrier = rd.Dynamics(model, engine="cpu", code=code, threads=2), [], threading.Barrier(6)
    names = ("forward_dynamics_gradient", "inverse_dynamics")
    cases = []
    for name in names:
        for rows in (0, 1, 7, 300):
            args = arguments(model, QUERIES[name].plain, rows)
            cases.append((name, args, several(getattr(rd.Dynamics, name)(dyn, *args))))

    def work():
        outs = [tuple(np.empty_like(array) for array in wanted) for _, _, wanted in cases]
        barrier.wait(PATIENCE)
        for k in range(20):
            for (name, args, wanted), out in zip(cases, outs, strict=True):
                options = {"out": out if len(out) > 1 else out[0]} if k % 2 else {}
                got = several(getattr(dyn, name)(*args, **options))
                if not all((one == two).all() for one, two in zip(got, wanted, strict=True)):
                    problems.append((name, k))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads) and problems == []


def test_signature_and_docstring_stay(dyn):
    method = rd.Dynamics.inverse_dynamics
    names = list(inspect.signature(method).parameters)[1:]
    assert list(inspect.signature(dyn.inverse_dynamics).parameters) == names
    assert dyn.inverse_dynamics.__doc__ == method.__doc__


@pytest.mark.parametrize("code", ["unrolled", "rolled"])
def test_the_function_is_pickled_as_a_method(code, model):
    """Also one that knows the code for batches alone."""
    dyn = rd.Dynamics(model, engine="cpu", code=code)
    for name in ("inverse_dynamics", "inverse_dynamics_gradient"):
        wanted = several(getattr(dyn, name)(*states(model)))
        assert inspect.isbuiltin(getattr(dyn, name))
        again = pickle.loads(pickle.dumps(getattr(dyn, name)))
        assert all((one == two).all() for one, two in zip(several(again(*states(model))), wanted, strict=True))


def test_methods_of_subclasses_are_not_hidden(model):
    class Shifted(rd.Dynamics):
        def inverse_dynamics(self, *arguments, **options):
            return super().inverse_dynamics(*arguments, **options) + 1.0

        def inverse_dynamics_gradient(self, *arguments, **options):
            return super().inverse_dynamics_gradient(*arguments, **options)[::-1]

    shifted, plain = Shifted(model, engine="cpu"), rd.Dynamics(model, engine="cpu")
    for _ in range(3):
        wanted = plain.inverse_dynamics(*states(model)) + 1.0
        assert (shifted.inverse_dynamics(*states(model)) == wanted).all()
        by_qd, by_q = shifted.inverse_dynamics_gradient(*states(model))
        for one, two in zip((by_q, by_qd), plain.inverse_dynamics_gradient(*states(model)), strict=True):
            assert (one == two).all()


def test_attributes_that_change_are_heeded(dyn, model):
    q, qd, qdd = states(model)
    held, spoilt = dyn.inverse_dynamics, qd.copy()
    spoilt[2, 1] = np.nan
    dyn.check = True
    with pytest.raises(rd.NumericalError, match="qd"):
        dyn.inverse_dynamics(q, spoilt, qdd)
    dyn.inverse_dynamics(q, qd, qdd)
    dyn.joint_forces = ("damping",)
    reference = rd.Dynamics(model, engine="reference", joint_forces=("damping",)).inverse_dynamics(q, qd, qdd)
    for function in (dyn.inverse_dynamics, held):  # the second was looked up before anything changed
        for _ in range(2):
            np.testing.assert_allclose(function(q, qd, qdd), reference, rtol=1e-12)
        with pytest.raises(rd.NumericalError, match="qd"):
            function(q, spoilt, qdd)


@pytest.mark.parametrize("code", ["auto", "rolled", "unrolled"])
@pytest.mark.parametrize("links", [1, 700])
def test_robots_in_which_nothing_moves(code, links):
    fixed = "".join(
        f'<joint name="j{i}" type="fixed"><parent link="l{i}"/><child link="l{i + 1}"/></joint>'
        for i in range(links - 1)
    )
    names = "".join(f'<link name="l{i}"/>' for i in range(links))
    model = rd.load_urdf(f'<robot name="r">{names}{fixed}</robot>')
    dyn, none = rd.Dynamics(model, engine="cpu", code=code), np.zeros((3, 0))
    assert dyn.inverse_dynamics(none, none, none).shape == (3, 0)
    assert dyn.forward_dynamics(none, none, none).shape == (3, 0)
    assert dyn.mass_matrix(none[0]).shape == (0, 0)
    assert (dyn.forward_kinematics(none) == np.broadcast_to(np.eye(4), (3, links, 4, 4))).all()
    assert (dyn.kinetic_energy(none, none) == 0.0).all()
