"""Quaternions of every length are attitudes, on every road into the code; what has none is NaN, in its row alone."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from conftest import relative
from gpu_host import missing, run_on_host
from gpu_host.cases import rolled_kernel
from test_export import call, compile_library

import robodyn as rd
from robodyn.algorithms.rnea import rnea
from robodyn.compile.c.code import Function, c_source
from robodyn.compile.tracing.unrolled import trace
from robodyn.engines.gpu.kernel_text import PARTITIONS
from robodyn.engines.gpu.unrolled_kernels import unrolled_kernel
from robodyn.joints import unit_quaternion

DTYPES = ["float64", "float32"]
# Powers of two leave every digit in its place: from where all entries are subnormal to where their sum overflows.
EXPONENTS = {
    "float64": (0, -1, -1072, -1050, -1022, -996, -565, -66, -20, 30, 510, 565, 996, 1022, 1023),
    "float32": (0, -1, -147, -140, -126, -66, -39, -20, 20, 39, 62, 63, 64, 126, 127),
}
ENGINES = ["reference", "cpu", "scan"]
# A few roundings more, and results that differ by as many.
TOLERANCE = {"float64": 1e-13, "float32": 1e-5}


@pytest.fixture(scope="module")
def model():
    """A floating base, a ball joint and others."""
    made = rd.random_tree(4, seed=3, joints=("spherical", "revolute"), base="floating")
    assert made.quaternion_starts.size >= 2
    return made


def states(model, dtype, rows):
    """States whose quaternions have few digits, so that they can be scaled down to where few are left."""
    rng = np.random.default_rng(1)
    q, others = model.random_configuration(rng, (rows,)), rng.standard_normal((3, rows, model.nv))
    for start in model.quaternion_starts:
        q[:, start : start + 4] = rng.choice([-3.0, -1.0, 1.0, 2.0], (rows, 4)) / 4.0
    return SimpleNamespace(q=q.astype(dtype), **dict(zip(("qd", "qdd", "tau"), others.astype(dtype), strict=True)))


def stretched(model, q, lengths):
    """Quaternions of row k times lengths[k]."""
    longer = q.copy()
    for start in model.quaternion_starts:
        longer[:, start : start + 4] *= np.asarray(lengths, q.dtype)[:, None]
    return longer


def lengths_for(dtype):
    return np.ldexp(np.ones(1, dtype), EXPONENTS[dtype])


def unfit():
    """Quaternions that have no attitude, by name."""
    return {
        "zero": [0.0] * 4,
        "infinite": [np.inf, 0.5, 0.0, 1.0],
        "negative infinite": [0.5, 0.5, -np.inf, -np.inf],
        "NaN": [0.5, 0.0, np.nan, 1.0],
        "NaN and infinite": [np.nan, 0.0, np.inf, 1.0],
        "all NaN": [np.nan] * 4,
    }


CALLS = {
    "bias_force": lambda dyn, s, **o: dyn.bias_force(s.q, s.qd, **o),
    "inverse_dynamics": lambda dyn, s, **o: dyn.inverse_dynamics(s.q, s.qd, s.qdd, **o),
    "forward_dynamics": lambda dyn, s, **o: dyn.forward_dynamics(s.q, s.qd, s.tau, **o),
    "forward_kinematics": lambda dyn, s, **o: dyn.forward_kinematics(s.q, **o),
    "inverse_dynamics_gradient": lambda dyn, s, **o: dyn.inverse_dynamics_gradient(s.q, s.qd, s.qdd, **o)[0],
}


def with_q(s, q):
    return SimpleNamespace(**{**vars(s), "q": q})


def row_of(s, k):
    return SimpleNamespace(**{name: array[k] for name, array in vars(s).items()})


def check_lengths(dyn, s, lengths, tolerance):
    """Batches and single states, checked or not by `dyn`: a second call may go another road than the first."""
    longer = with_q(s, stretched(dyn.model, s.q, lengths))
    for name, ask in CALLS.items():
        wanted = ask(dyn, s)
        for _ in range(3):
            got = ask(dyn, longer)
            for k, length in enumerate(lengths):
                assert relative(got[k], wanted[k]) <= tolerance, (name, length)
                assert relative(ask(dyn, row_of(longer, k)), wanted[k]) <= tolerance, (name, length)
    for ask in (CALLS["bias_force"], CALLS["inverse_dynamics"]):
        out = np.full_like(s.qd, np.nan)
        ask(dyn, longer, out=out)
        assert relative(out, ask(dyn, s)) <= tolerance


@pytest.mark.parametrize("check", [None, True, False])
@pytest.mark.some(of=7, rest="matrix")
def test_any_length_is_an_attitude(check, model, make_dynamics, engine_dtype, tolerance):
    dyn, dtype = make_dynamics(model, check=check), engine_dtype[1]
    lengths = lengths_for(dtype)
    check_lengths(dyn, states(model, dtype, len(lengths)), lengths, tolerance)


@pytest.mark.parametrize("code", ["unrolled", "rolled"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.some(of=4, rest="matrix")
def test_any_length_is_an_attitude_for_both_kinds_of_code(dtype, code, model):
    dyn = rd.Dynamics(model, engine="cpu", dtype=dtype, code=code)
    lengths = lengths_for(dtype)
    check_lengths(dyn, states(model, dtype, len(lengths)), lengths, TOLERANCE[dtype])


@pytest.mark.parametrize("code", ["unrolled", "rolled"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.some(of=2, rest="matrix")
def test_what_is_no_attitude_is_nan_in_its_row(dtype, code, model):
    """Every entry that another attitude would change is NaN; other rows do not change by a bit."""
    dyn = rd.Dynamics(model, engine="cpu", dtype=dtype, code=code, check=False)
    s, row, start = states(model, dtype, 19), 11, int(model.quaternion_starts[-1])
    turned, others = s.q.copy(), np.arange(19) != row
    turned[row, start : start + 4] = [0.5, -0.5, 0.5, 0.5]
    for what, values in unfit().items():
        spoilt = s.q.copy()
        spoilt[row, start : start + 4] = values
        for name, ask in CALLS.items():
            clean, other = ask(dyn, s), ask(dyn, with_q(s, turned))
            depends = np.abs(clean[row] - other[row]) > 1e-3 * np.abs(clean[row]).max()
            assert depends.any(), name
            for _ in range(2):
                got = ask(dyn, with_q(s, spoilt))
                assert np.isnan(got[row][depends]).all(), (what, name)
                assert (got[others] == clean[others]).all(), (what, name)
                alone = ask(dyn, row_of(with_q(s, spoilt), row))
                assert np.isnan(alone[depends]).all(), (what, name)


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_no_attitude_is_nan_while_a_program_compiles(dtype, model):
    dyn = rd.Dynamics(model, engine="cpu", dtype=dtype, compile="background")
    s, start = states(model, dtype, 5), int(model.quaternion_starts[0])
    s.q[3, start : start + 4] = 0.0
    for _ in range(2):
        assert np.isnan(dyn.bias_force(s.q, s.qd)).any(axis=1).tolist() == [False, False, False, True, False]


def test_a_checked_quaternion_of_zero_length_is_named(model, make_dynamics, engine_dtype):
    s, start = states(model, engine_dtype[1], 3), int(model.quaternion_starts[0])
    dyn = make_dynamics(model, check=True)
    dyn.bias_force(s.q, s.qd)  # from now on by a quicker road, where there is one
    s.q[1, start : start + 4] = 0.0
    named = f"q: the quaternion that starts at '{model.coordinate_names[start]}' has zero length"
    with pytest.raises(rd.ArgumentError, match=f"^{named} in 1 of 3 rows: 1;"):
        dyn.bias_force(s.q, s.qd)
    with pytest.raises(rd.ArgumentError, match=f"^{named};"):
        dyn.bias_force(s.q[1], s.qd[1])
    s.q[2, start] = np.nan  # beside it, NaN is an error of its own
    with pytest.raises(rd.NumericalError, match=r"^q: NaN or infinite in 1 of 3 rows: 2;"):
        dyn.bias_force(s.q, s.qd)


@pytest.mark.parametrize("dtype", DTYPES)
def test_scaling_is_right_to_the_last_digits(dtype):
    rng, numbers = np.random.default_rng(2), np.finfo(dtype)
    for exponent in range(numbers.minexp + 4, numbers.maxexp, 3):
        q = np.ldexp((rng.random((4, 200)) - 0.5).astype(dtype), exponent)
        exact = np.ldexp(q, -exponent).astype(np.longdouble)
        wanted = exact / np.sqrt((exact * exact).sum(axis=0))
        assert np.abs(unit_quaternion(tuple(q)) - wanted).max() <= 2.0 * numbers.eps, exponent


@pytest.mark.parametrize("dtype", DTYPES)
def test_exported_code_scales_any_length(dtype, model, tmp_path):
    source = tmp_path / "robot.c"
    function = Function("robot_id", trace(model, rnea()))
    source.write_text(c_source([function], prefix="robot", sizes={}, dtype=dtype))
    library, lengths = compile_library(source, tmp_path), lengths_for(dtype)
    s = states(model, dtype, len(lengths))

    def ask(q, k):
        return call(library.robot_id, (q, s.qd[k], s.qdd[k]), [(model.nv,)], dtype)[0]

    for k, q in enumerate(stretched(model, s.q, lengths)):
        assert relative(ask(q, k), ask(s.q[k], k)) <= TOLERANCE[dtype], lengths[k]
    for what, values in unfit().items():
        q, start = s.q[0].copy(), int(model.quaternion_starts[0])
        q[start : start + 4] = values
        assert np.isnan(ask(q, 0)[:6]).all(), what


@pytest.mark.skipif(bool(missing()), reason=missing() or "it runs")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["unrolled", *PARTITIONS])
@pytest.mark.some(of=3, rest="kernels")
def test_gpu_kernels_scale_any_length(kind, dtype, model):
    precision, lengths = np.dtype(dtype), lengths_for(dtype)
    if kind == "unrolled":
        source = unrolled_kernel(model, rnea(), precision)
    else:
        source = rolled_kernel(model, rnea(), precision, partition=kind)
    s = states(model, dtype, len(lengths))

    def ask(q):
        out = {"tau": np.empty((len(q), model.nv), dtype)}
        return run_on_host(source, {"q": q, "qd": s.qd[: len(q)], "qdd": s.qdd[: len(q)]}, out)["tau"]

    wanted = ask(s.q)
    for got, right, length in zip(ask(stretched(model, s.q, lengths)), wanted, lengths, strict=True):
        assert relative(got, right) <= TOLERANCE[dtype], length
    start, bad = int(model.quaternion_starts[0]), unfit()
    q = s.q.copy()
    q[: len(bad), start : start + 4] = list(bad.values())
    got = ask(q)
    assert np.isnan(got[: len(bad), :6]).all()
    assert (got[len(bad) :] == wanted[len(bad) :]).all()


@pytest.mark.extras
@pytest.mark.parametrize("dtype", DTYPES)
def test_jax_takes_any_length(dtype, model):
    """But subnormal numbers, which XLA counts as zero."""
    jax = pytest.importorskip("jax", reason="the extra 'jax' is not installed")
    jax.config.update("jax_enable_x64", True)
    from robodyn.jax import wrap

    lengths = lengths_for(dtype)
    lengths = lengths[lengths > 4.0 * np.finfo(dtype).tiny]
    s = states(model, dtype, len(lengths))
    functions = wrap(rd.Dynamics(model, dtype=dtype))
    ask = jax.jit(lambda q: functions.inverse_dynamics(q, s.qd, s.qdd))
    wanted = np.asarray(ask(s.q))
    for got, right, length in zip(np.asarray(ask(stretched(model, s.q, lengths))), wanted, lengths, strict=True):
        assert relative(got, right) <= TOLERANCE[dtype], length
    start, bad = int(model.quaternion_starts[0]), unfit()
    q = s.q.copy()
    q[: len(bad), start : start + 4] = list(bad.values())
    got = np.asarray(ask(q))
    assert np.isnan(got[: len(bad), :6]).all()
    assert (got[len(bad) :] == wanted[len(bad) :]).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("engine", ENGINES)
def test_the_rule_is_the_same_for_engines(engine, dtype, model):
    """Any finite numbers that are not all zero, also the largest; others are NaN in their rows, unless checked."""
    dyn = rd.Dynamics(model, engine=engine, dtype=dtype, check=False)
    lengths, start = lengths_for(dtype), int(model.quaternion_starts[0])
    s = states(model, dtype, len(lengths))
    wanted = dyn.inverse_dynamics(s.q, s.qd, s.qdd)
    got = dyn.inverse_dynamics(stretched(model, s.q, lengths), s.qd, s.qdd)
    for one, other, length in zip(got, wanted, lengths, strict=True):
        assert relative(one, other) <= TOLERANCE[dtype], length
    s.q[0, start : start + 4] = 0.5
    wanted, s.q[0, start : start + 4] = dyn.inverse_dynamics(s.q, s.qd, s.qdd), np.finfo(dtype).max
    assert relative(dyn.inverse_dynamics(s.q, s.qd, s.qdd), wanted) <= TOLERANCE[dtype]
    for what, values in unfit().items():
        s.q[0, start : start + 4] = values
        got = dyn.inverse_dynamics(s.q, s.qd, s.qdd)
        assert np.isnan(got[0, :6]).all(), what
        assert (got[1:] == wanted[1:]).all(), what
        named = "zero length" if what == "zero" else "NaN or infinite"
        with pytest.raises(rd.RobodynError, match=f"^q: .*{named} in 1 of {len(lengths)} rows: 0;"):
            rd.Dynamics(model, engine=engine, dtype=dtype, check=True).inverse_dynamics(s.q, s.qd, s.qdd)


@pytest.mark.parametrize("engine", ENGINES)
def test_rollouts_take_any_length_and_freeze_what_is_no_attitude(engine, model):
    dyn, lengths = rd.Dynamics(model, engine=engine), lengths_for("float64")
    s, start = states(model, "float64", len(lengths)), int(model.quaternion_starts[0])
    wanted = dyn.rollout(s.q, s.qd, s.tau, 1e-3, 2).q
    longer = stretched(model, s.q, lengths)
    assert relative(dyn.rollout(longer, s.qd, s.tau, 1e-3, 2).q, wanted) <= TOLERANCE["float64"]
    longer[3, start : start + 4] = 0.0
    with pytest.warns(RuntimeWarning):
        got = dyn.rollout(longer, s.qd, s.tau, 1e-3, 2).q
    others = np.arange(len(lengths)) != 3
    assert relative(got[:, others], wanted[:, others]) <= TOLERANCE["float64"]
