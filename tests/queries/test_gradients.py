"""First derivatives of inverse and forward dynamics: formulations, solves and chains."""

from __future__ import annotations

import dataclasses
import tracemalloc

import numpy as np
import pytest
from conftest import nothing_compiles
from cpu_queries import states_of
from robots import OWN, own

import robodyn as rd
from robodyn.algorithms.forward_gradient import forward_gradient
from robodyn.algorithms.idsva import idsva
from robodyn.algorithms.rnea_gradient import rnea_gradient
from robodyn.algorithms.tasks import SymbolicFactor, cheapest
from robodyn.compile.tracing.unrolled import trace
from robodyn.engines.reference import ReferenceEngine

EVERY_KIND = ("revolute", "prismatic", "helical", "planar", "spherical", "floating")
TREES = {
    "every kind": lambda: rd.random_tree(7, seed=1, joints=EVERY_KIND, armature=True),
    "every kind, floating": lambda: rd.random_tree(6, seed=2, joints=EVERY_KIND, base="floating"),
    "mimic": lambda: rd.random_tree(8, seed=11, joints=EVERY_KIND, armature=True, mimic=0.5),
    "quadruped": lambda: rd.load_urdf(own("quadruped"), base="floating"),
    "arm": lambda: rd.load_urdf(own("arm7")),
}


@pytest.fixture(params=TREES, scope="module")
def model(request):
    return TREES[request.param]()


def close(got, wanted, tolerance):
    """Whether arrays agree, relative to the largest entry of the one that is known."""
    return np.abs(got - wanted).max(initial=0.0) <= tolerance * np.abs(wanted).max(initial=1e-300)


def relative(got, wanted):
    return np.abs(got - wanted).max() / (np.abs(wanted).max() or 1.0)


@pytest.mark.some(of=5, rest="matrix")
def test_both_formulations_agree(model, make_dynamics, tolerance):
    dyn = make_dynamics(model)
    s = states_of(model, (3,), dtype=dyn.dtype.name)
    for given in ({}, {"f_ext": s.f_ext, "V0": s.V0, "dV0": s.dV0, "inertia": s.inertia}):
        columns = dyn.inverse_dynamics_gradient(s.q, s.qd, s.qdd, method="columns", **given)
        composites = dyn.inverse_dynamics_gradient(s.q, s.qd, s.qdd, method="idsva", **given)
        for one, other in zip(composites, columns, strict=True):
            assert close(one, other, tolerance)


def central_differences(model, s, call, h):
    """d call / d q on the tangent space and d call / d qd, columns last; the error is O(h^2) beside eps / h."""
    by_q, by_qd = np.empty((2, model.nv, model.nv))
    for k, step in enumerate(h * np.eye(model.nv)):
        by_q[:, k] = (call(model.integrate(s.q, step), s.qd) - call(model.integrate(s.q, -step), s.qd)) / (2 * h)
        by_qd[:, k] = (call(s.q, s.qd + step) - call(s.q, s.qd - step)) / (2 * h)
    return by_q, by_qd


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.some(of=5, rest="matrix")
def test_central_differences(model, seed):
    # eps^(1/3) balances the two errors: (6e-6)^2 f''' + 1e-16 / 6e-6 is some 1e-10 of the function's own size, which
    # for forward dynamics is the size of accelerations, up to 1e5 of gravity here.
    dyn, s, h = rd.Dynamics(model, engine="reference"), states_of(model, seed=seed), 6e-6
    given = {"f_ext": s.f_ext, "V0": s.V0, "dV0": s.dV0}
    numeric = central_differences(model, s, lambda q, qd: dyn.inverse_dynamics(q, qd, s.qdd, **given), h)
    for one, other in zip(dyn.inverse_dynamics_gradient(s.q, s.qd, s.qdd, **given), numeric, strict=True):
        assert relative(one, other) < 1e-7
    numeric = central_differences(model, s, lambda q, qd: dyn.forward_dynamics(q, qd, s.tau, **given), h)
    *gradient, by_tau = dyn.forward_dynamics_gradient(s.q, s.qd, s.tau, **given)
    for one, other in zip(gradient, numeric, strict=True):
        assert relative(one, other) < 1e-6
    assert relative(by_tau @ dyn.mass_matrix(s.q), np.eye(model.nv)) < 1e-8


def require_solved(H, gradient, by_inverse_dynamics, dtype):
    """H dqdd/du = - dtau/du, judged by the forces that are left: accelerations carry the conditioning of H."""
    for got, wanted in zip(gradient, by_inverse_dynamics, strict=False):
        size = np.abs(H).max(axis=(-2, -1)) * np.abs(got).max(axis=(-2, -1)) + np.abs(wanted).max(axis=(-2, -1))
        left = np.abs(H @ got + wanted).max(axis=(-2, -1)) / size
        assert (left < (1e-10 if dtype == np.float64 else 1e-3)).all()


@pytest.mark.some(of=10, rest="matrix")
def test_forward_gradient_follows_from_that_of_inverse_dynamics(model, make_dynamics):
    dyn = make_dynamics(model)
    s = states_of(model, (2, 3), dtype=dyn.dtype.name)
    exact = rd.Dynamics(model, engine="reference")
    given = {"f_ext": s.f_ext, "V0": s.V0, "dV0": s.dV0}
    qdd = exact.forward_dynamics(s.q, s.qd, s.tau, **given)
    H = exact.mass_matrix(s.q)
    found = dyn.forward_dynamics_gradient(s.q, s.qd, s.tau, **given)
    require_solved(H, found, exact.inverse_dynamics_gradient(s.q, s.qd, qdd, **given), dyn.dtype)
    assert close(H @ found[2], np.broadcast_to(np.eye(model.nv), H.shape), 1e-8 if dyn.dtype == np.float64 else 0.2)


def test_a_robot_far_away_loses_no_digits():
    model = rd.load_urdf(own("humanoid"), base="floating")
    dyn, s = rd.Dynamics(model, engine="reference"), states_of(model, (4,))
    far = s.q.copy()
    far[:, :3] += 1e6
    for one, other in zip(
        dyn.inverse_dynamics_gradient(far, s.qd, s.qdd), dyn.inverse_dynamics_gradient(s.q, s.qd, s.qdd), strict=True
    ):
        assert close(one, other, 1e-12)


def test_damping_is_part_of_the_gradient(make_dynamics, tolerance):
    model = rd.load_urdf(own("oblique"))
    assert model.damping.any()
    plain, damped = make_dynamics(model), make_dynamics(model, joint_forces=("damping", "friction"))
    s = states_of(model, (5,), dtype=plain.dtype.name)
    with_damping = damped.inverse_dynamics_gradient(s.q, s.qd, s.qdd)[1]
    assert close(
        with_damping - plain.inverse_dynamics_gradient(s.q, s.qd, s.qdd)[1], np.diag(model.damping), 10 * tolerance
    )
    exact = rd.Dynamics(model, engine="reference", joint_forces=("damping", "friction"))
    qdd, H = exact.forward_dynamics(s.q, s.qd, s.tau), exact.mass_matrix(s.q)
    found = damped.forward_dynamics_gradient(s.q, s.qd, s.tau)
    require_solved(H, found, exact.inverse_dynamics_gradient(s.q, s.qd, qdd), plain.dtype)


# Robots that float freely.

FLOATING = {
    "every kind": lambda: rd.random_tree(6, seed=2, joints=EVERY_KIND, base="floating", armature=True),
    "several trees": lambda: rd.random_tree(9, seed=9, joints=("floating", "revolute")),
    "bodies alone": lambda: rd.random_tree(3, seed=4, joints=("floating",), shape="star"),
    "mimic": lambda: rd.load_urdf(own("hand"), base="floating"),
    "quadruped": lambda: rd.load_urdf(own("quadruped"), base="floating"),
}
PLAIN = ("q", "qd", "tau")


def with_numbers(model, **fields):
    """The model with other numbers on its first three degrees of freedom."""
    found = {name: getattr(model, name).copy() for name in fields}
    for name, value in fields.items():
        found[name][:3] = value
    return dataclasses.replace(model, **found)


@pytest.mark.parametrize("name", FLOATING)
@pytest.mark.some(of=2, when="matrix")
def test_known_columns_are_those_of_the_general_chain(name):
    model = FLOATING[name]()
    floating_base_variant = cheapest(model, forward_gradient(PLAIN), ())
    assert floating_base_variant is forward_gradient(PLAIN).floating_base_variant
    s, engine = states_of(model, (5,)), ReferenceEngine(model, np.dtype(np.float64))
    general, known = (
        {each: np.full((5, model.nv, model.nv), np.nan) for each in floating_base_variant.results} for _ in range(2)
    )
    inputs = {"q": s.q, "qd": s.qd, "tau": s.tau}
    engine.run(forward_gradient(PLAIN), inputs, general)
    engine.run(floating_base_variant, inputs, known)
    compiled = [
        rd.Dynamics(model, engine="cpu", code=code).forward_dynamics_gradient(s.q, s.qd, s.tau)
        for code in ("unrolled", "rolled")
    ]
    for found in (known.values(), *compiled):
        for one, other in zip(found, general.values(), strict=True):
            assert relative(one, other) < 1e-9
    for solution in list(floating_base_variant.stages[-1].outputs.values())[:2]:
        assert len(solution.known_columns(model)) == solution.known * (model.parent < 0).sum() > 0


@pytest.mark.matrix
def test_what_the_general_chain_is_for():
    floating = FLOATING["quadruped"]()
    general = forward_gradient(PLAIN)
    for base in (("V0",), ("dV0",)):
        assert cheapest(floating, general, base) is general
    bound = (
        rd.load_urdf(own("arm6")),
        rd.random_tree(6, seed=3, joints=("revolute", "floating"), shape="chain"),
        with_numbers(floating, tree_armature=0.3),
        with_numbers(floating, tree_damping=0.2),
    )
    for model in bound:
        assert cheapest(model, general, ()) is general
        s, forces = states_of(model, (3,)), ("damping",)
        found = rd.Dynamics(model, engine="cpu", joint_forces=forces).forward_dynamics_gradient(s.q, s.qd, s.tau)
        wanted = rd.Dynamics(model, engine="reference", joint_forces=forces).forward_dynamics_gradient(s.q, s.qd, s.tau)
        for one, other in zip(found, wanted, strict=True):
            assert relative(one, other) < 1e-9
    with_forces = forward_gradient((*PLAIN, "f_ext"))
    assert cheapest(floating, with_forces, ()) is with_forces


# Solves.


@pytest.mark.parametrize("seed", range(6))
def test_elimination_knows_where_the_mass_matrix_is_zero(seed):
    model = rd.random_tree(12, seed=seed, joints=EVERY_KIND, mimic=0.4 * (seed % 2))
    found, dyn = SymbolicFactor(model), rd.Dynamics(model, engine="reference")
    H = dyn.mass_matrix(model.random_configuration(np.random.default_rng(seed), (3,)))
    assert not H[:, ~found.pattern].any()
    for k, columns in enumerate(found.lower):
        assert set(np.flatnonzero(found.pattern[k, :k])) <= set(columns.tolist())
        if not model.has_mimic:  # trees have no fill-in
            assert set(np.flatnonzero(found.pattern[k, :k])) == set(columns.tolist())


@pytest.mark.parametrize("level", ["avx512", "avx2", "sse2"])
@pytest.mark.parametrize("n", [1, 2, 3, 8, 11, 12, 13, 33])
@pytest.mark.some(of=12, rest="matrix")
def test_looped_solves_of_every_size(n, level, monkeypatch):
    from robodyn.compile.llvm import target
    from robodyn.compile.llvm.target import LEVELS, host_target

    host = host_target()
    if LEVELS[level] > host.vector_bytes or (level != "sse2" and host.level == "neon"):
        pytest.skip(f"this processor has no {level}")
    monkeypatch.setenv(target.LEVEL_VARIABLE, level)
    host_target.cache_clear()
    try:
        model = rd.random_tree(n, seed=n, joints=("revolute", "prismatic"), armature=True)
        s = states_of(model, (5,))
        reference = rd.Dynamics(model, engine="reference").forward_dynamics_gradient(s.q, s.qd, s.tau, f_ext=s.f_ext)
        rolled = rd.Dynamics(model, engine="cpu", code="rolled")
        outs = tuple(np.full((5, n, n), np.nan) for _ in range(3))
        rolled.forward_dynamics_gradient(s.q, s.qd, s.tau, f_ext=s.f_ext, out=outs)
        for one, other in zip(outs, reference, strict=True):
            assert relative(one, other) < 1e-9
    finally:
        host_target.cache_clear()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.some(of=2, when="matrix")
def test_looped_solves_with_fill_in(seed):
    model = rd.random_tree(16, seed=seed, joints=EVERY_KIND, mimic=0.4, armature=True)
    s = states_of(model, (5,))
    reference = rd.Dynamics(model, engine="reference").forward_dynamics_gradient(s.q, s.qd, s.tau)
    found = rd.Dynamics(model, engine="cpu", code="rolled").forward_dynamics_gradient(s.q, s.qd, s.tau)
    for one, other in zip(found, reference, strict=True):
        assert relative(one, other) < 1e-8


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("n", [6, 7, 8, 9, 11])
@pytest.mark.some(of=3, when="matrix")
def test_results_past_the_caches(n, dtype, monkeypatch):
    """To the bit, wherever an array begins within a line, and nothing beside it."""
    from robodyn.compile.llvm import streaming

    model = rd.random_tree(n, seed=n, joints=("revolute",), armature=True)
    s = states_of(model, (67,), dtype=dtype)
    plain = rd.Dynamics(model, engine="cpu", code="rolled", dtype=dtype)
    wanted = plain.forward_dynamics_gradient(s.q, s.qd, s.tau)
    monkeypatch.setattr(streaming, "STREAMED_BYTES", 0)
    dyn = rd.Dynamics(model, engine="cpu", code="rolled", dtype=dtype)
    size = wanted[0].size
    for start in range(1, 18, 3):
        around = [np.full(size + 40, np.nan, dtype) for _ in wanted]
        outs = tuple(a[start : start + size].reshape(wanted[0].shape) for a in around)
        dyn.forward_dynamics_gradient(s.q, s.qd, s.tau, out=outs)
        for a, out, exact in zip(around, outs, wanted, strict=True):
            assert np.array_equal(out, exact)
            assert np.isnan(a[:start]).all() and np.isnan(a[start + size :]).all()


def test_a_row_with_nan_spoils_itself_alone():
    model = rd.load_urdf(own("humanoid"), base="floating")
    dyn, s = rd.Dynamics(model, engine="cpu"), states_of(model, (21,))
    wanted = dyn.forward_dynamics_gradient(s.q, s.qd, s.tau)
    q = s.q.copy()
    q[9, 12] = np.nan
    got = dyn.forward_dynamics_gradient(q, s.qd, s.tau)
    others = np.arange(21) != 9
    for one, other in zip(got, wanted, strict=True):
        assert (one[others] == other[others]).all() and np.isnan(one[9]).any()


def test_only_the_results_are_large():
    model = rd.load_urdf(own("humanoid"), base="floating")
    dyn, batch = rd.Dynamics(model, engine="cpu"), 2048
    s = states_of(model, (batch,))
    outs = tuple(np.empty((batch, model.nv, model.nv)) for _ in range(3))
    dyn.forward_dynamics_gradient(s.q[:3], s.qd[:3], s.tau[:3])
    nothing_compiles()
    tracemalloc.start()
    dyn.forward_dynamics_gradient(s.q, s.qd, s.tau, out=outs)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < outs[0].nbytes / 4, f"{peak} bytes beside results of {sum(o.nbytes for o in outs)}"


# Choice.


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.stem)
@pytest.mark.some(of=3, rest="matrix")
def test_auto_takes_the_formulation_with_fewer_operations(path):
    model = rd.load_urdf(path)
    counts = {method: trace(model, each()).operations for method, each in FORMULATIONS.items()}
    dyn = rd.Dynamics(model, engine="cpu")
    assert dyn.program("inverse_dynamics_gradient").operations == min(counts.values())


FORMULATIONS = {"idsva": idsva, "columns": rnea_gradient}


def test_programs_of_chains():
    arm = rd.Dynamics(rd.load_urdf(own("arm6")), engine="cpu")
    program = arm.program("forward_dynamics_gradient")
    assert program.mode == "unrolled" and program.operations == trace(arm.model, forward_gradient()).operations < 4000
    humanoid = rd.Dynamics(rd.load_urdf(own("humanoid"), base="floating"), engine="cpu")
    program = humanoid.program("forward_dynamics_gradient")
    assert program.mode == "chained" and program.operations > 30_000 and "define" in program.ir
    with pytest.raises(rd.UnavailableError, match="chained code is not one graph"):
        _ = program.program


def test_bad_input():
    model = rd.load_urdf(own("arm6"))
    dyn, s = rd.Dynamics(model), states_of(model)
    with pytest.raises(rd.ArgumentError, match=r"^method: got 'magic'; allowed: 'auto', 'idsva', 'columns'"):
        dyn.inverse_dynamics_gradient(s.q, s.qd, s.qdd, method="magic")
    singular = rd.Dynamics(rd.load_urdf(own("massless_chain"), strict=False))
    if singular.singularity() is not None:
        q = singular.model.neutral()
        with pytest.raises(rd.SingularError, match="body"):
            singular.forward_dynamics_gradient(q, np.zeros(singular.model.nv), np.zeros(singular.model.nv))
