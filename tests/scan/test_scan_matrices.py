"""Mass matrices of the scan engine, dense and sparse, and forward dynamics by them."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import TOLERANCE, relative
from cpu_queries import regular, states_of
from robots import OWN

import robodyn as rd
from robodyn.description import JOINT_TYPES
from robodyn.engines import memory
from robodyn.engines.scan import ScanOptions, states
from robodyn.engines.scan.algorithms import forward_crba
from robodyn.engines.scan.algorithms.mass_matrix import entries
from robodyn.engines.scan.states import State
from robodyn.engines.scan.systems.branch_factor import BranchFactor
from robodyn.engines.scan.trees import pairs
from robodyn.engines.scan.trees.branches import Branches, branches_of
from robodyn.io.builders.random_tree import SHAPES

OPTIONS = {
    "heavy": ScanOptions(),
    "heavy-hillis_steele": ScanOptions(kernel="hillis_steele"),
    "heavy-blocks of 2": ScanOptions(block=2),
    "heavy-library": ScanOptions(operators="library"),
    "euler": ScanOptions("euler"),
    "euler-native": ScanOptions("euler", "native"),
    "euler-blelloch": ScanOptions("euler", "blelloch"),
}
METHODS = ("crba", "jsiia")


def tree(seed: int) -> rd.Model:
    """Of all joint kinds, drawn from the seed: every shape, forests and floating bases, with and without mimics."""
    shape = list(SHAPES)[seed % len(SHAPES)]
    print(f"tree: seed {seed}, {shape}")
    return rd.random_tree(
        9,
        seed=seed,
        joints=JOINT_TYPES,
        shape=shape,
        mimic=0.5 if seed % 3 == 1 else 0.0,
        armature=seed % 2 == 1,
        base="floating" if seed % 4 == 3 else "fixed",
    )


def large(shape: str, n: int) -> rd.Model:
    """A regular tree of n bodies."""
    if shape == "caterpillar":
        return rd.random_tree(n, seed=n, shape=shape)
    branching = {"chain": 1.0, "star": float(n)}.get(shape) or float(shape)
    return rd.auto_tree(n, branching=branching, skew=0.3)


def scan(model: rd.Model, options: str = "heavy", **more) -> rd.Dynamics:
    return rd.Dynamics(model, engine="scan", scan=OPTIONS[options], **more)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.some(of=6, rest="matrix")
def test_random_trees(seed, options):
    model = tree(seed)
    judge, dyn, s = rd.Dynamics(model, engine="reference"), scan(model, options), states_of(model, (3,), seed)
    H = judge.mass_matrix(s.q, inertia=s.inertia)
    assert relative(dyn.mass_matrix(s.q, inertia=s.inertia), H) < TOLERANCE["float64"]
    assert relative(dyn.mass_matrix(s.q[0]), judge.mass_matrix(s.q[0])) < TOLERANCE["float64"]
    sparse = dyn.mass_matrix(s.q[1], inertia=s.inertia[1], sparse=True)
    assert relative(sparse.toarray(), H[1]) < TOLERANCE["float64"]
    tau = judge.inverse_dynamics(s.q, s.qd, s.qdd, f_ext=s.f_ext, V0=s.V0, dV0=s.dV0, inertia=s.inertia)
    for method in METHODS:
        qdd = dyn.forward_dynamics(s.q, s.qd, tau, f_ext=s.f_ext, method=method, V0=s.V0, dV0=s.dV0, inertia=s.inertia)
        again = judge.inverse_dynamics(s.q, s.qd, qdd, f_ext=s.f_ext, V0=s.V0, dV0=s.dV0, inertia=s.inertia)
        assert relative(again, tau) < TOLERANCE["float64"], method


@pytest.mark.parametrize("options", ["heavy", "euler"])
@pytest.mark.parametrize("seed", range(4))
def test_single_precision(seed, options):
    model = tree(seed)
    s = states_of(model, (2,), seed, "float32")
    judge, dyn = rd.Dynamics(model, engine="reference"), scan(model, options, dtype="float32")
    H = judge.mass_matrix(s.q)
    got, sparse = dyn.mass_matrix(s.q), dyn.mass_matrix(s.q[0], sparse=True)
    assert got.dtype == sparse.dtype == np.float32
    assert relative(got, H) < TOLERANCE["float32"]
    assert relative(sparse.toarray(), H[0]) < TOLERANCE["float32"]
    tau = judge.inverse_dynamics(s.q, s.qd, s.qdd)
    for method in METHODS:
        qdd = dyn.forward_dynamics(s.q, s.qd, tau, method=method)
        assert relative(judge.inverse_dynamics(s.q, s.qd, qdd), tau) < TOLERANCE["float32"], method


@pytest.mark.parametrize("base", ["fixed", "floating"])
@pytest.mark.parametrize("path", OWN, ids=lambda path: path.stem)
@pytest.mark.some(of=3, rest="matrix")
def test_robots(path, base):
    model = rd.load_urdf(path, base=base)
    judge, dyn, s = rd.Dynamics(model, engine="reference"), scan(model), states_of(model, (2,), 1)
    H = judge.mass_matrix(s.q)
    assert relative(dyn.mass_matrix(s.q), H) < TOLERANCE["float64"]
    assert relative(dyn.mass_matrix(s.q[0], sparse=True).toarray(), H[0]) < TOLERANCE["float64"]
    if not regular(model):
        return
    tau = judge.inverse_dynamics(s.q, s.qd, s.qdd)
    for method in METHODS:
        qdd = dyn.forward_dynamics(s.q, s.qd, tau, method=method)
        assert relative(judge.inverse_dynamics(s.q, s.qd, qdd), tau) < TOLERANCE["float64"], method


# Relative to the largest entry; tours subtract sums over everything before a subtree. Ten times what was measured.
@pytest.mark.parametrize(("n", "heavy", "euler"), [(100, 1e-13, 1e-12), (1000, 1e-12, 5e-12)])
@pytest.mark.parametrize("shape", ["chain", "1.5", "2", "star", "caterpillar"])
@pytest.mark.some(of=6, rest="matrix")
def test_large_trees(shape, n, heavy, euler):
    model = large(shape, n)
    q = states_of(model).q
    H = rd.Dynamics(model, engine="cpu", code="rolled").mass_matrix(q)
    for options, tolerance in (("heavy", heavy), ("euler", euler)):
        assert relative(scan(model, options).mass_matrix(q), H) < tolerance, options
    assert relative(scan(model).mass_matrix(q, sparse=True).toarray(), H) < heavy


@pytest.mark.parametrize("n", [200, 1000])
@pytest.mark.parametrize("shape", ["chain", "1.5", "2", "star"])
@pytest.mark.some(of=3, rest="matrix")
def test_forward_dynamics_of_large_trees(shape, n):
    """tau of accelerations of ordinary size: long chains turn a rounding of any other into huge ones."""
    model = large(shape, n)
    s, judge = states_of(model), rd.Dynamics(model, engine="cpu", code="rolled")
    tau = judge.inverse_dynamics(s.q, s.qd, s.qdd)
    for method in METHODS if n == 200 else ("crba",):
        qdd = scan(model).forward_dynamics(s.q, s.qd, tau, method=method)
        assert relative(judge.inverse_dynamics(s.q, s.qd, qdd), tau) < 1e-13, method


def test_a_robot_far_away_loses_nothing():
    """H does not depend on where a floating base is."""
    model = rd.random_tree(12, seed=5, base="floating")
    q = states_of(model, seed=5).q
    far = q.copy()
    far[:3] += 1e8
    for options in ("heavy", "euler"):
        dyn = scan(model, options)
        assert (dyn.mass_matrix(far) == dyn.mass_matrix(q)).all()


@pytest.mark.parametrize("shape", [(), (1,), (3, 1, 2), (0,)])
def test_batches(shape):
    model = tree(1)
    s, judge, dyn = states_of(model, shape, 3), rd.Dynamics(model, engine="reference"), scan(model)
    assert relative(dyn.mass_matrix(s.q), judge.mass_matrix(s.q)) < TOLERANCE["float64"]
    for method in METHODS:
        qdd = dyn.forward_dynamics(s.q, s.qd, s.tau, method=method)
        assert qdd.shape == s.qd.shape
        assert relative(judge.inverse_dynamics(s.q, s.qd, qdd), s.tau) < 1e-9, method


@pytest.mark.parametrize("options", ["heavy", "euler"])
@pytest.mark.parametrize("batch", [3, 20])
def test_rows_that_are_not_finite_stay_in_their_rows(batch, options):
    model = rd.random_tree(9, seed=2, joints=JOINT_TYPES, armature=False)
    s, dyn = states_of(model, (batch,), 2), scan(model, options)
    alone = {method: dyn.forward_dynamics(s.q, s.qd, s.tau, method=method) for method in METHODS}
    H = dyn.mass_matrix(s.q)
    q, tau = s.q.copy(), s.tau.copy()
    q[0], tau[1] = np.nan, np.inf
    assert np.isnan(dyn.mass_matrix(q)[0]).any()
    assert np.array_equal(dyn.mass_matrix(q)[1:], H[1:])
    for method in METHODS:
        qdd = dyn.forward_dynamics(q, s.qd, tau, method=method)
        assert not np.isfinite(qdd[:2]).all(axis=1).any()
        assert relative(qdd[2:], alone[method][2:]) < 1e-9


def test_singular_rows_are_nan_alone():
    """Inertias of zero in one row of a batch, which the query does not refuse."""
    model = rd.random_tree(9, seed=2)
    s, dyn = states_of(model, (3,), 2), scan(model, check=False)
    inertia = np.broadcast_to(model.inertia, (3, *model.inertia.shape)).copy()
    inertia[1] = 0.0
    for method in METHODS:
        qdd = dyn.forward_dynamics(s.q, s.qd, s.tau, method=method, inertia=inertia)
        assert np.isnan(qdd[1]).all()
        assert np.isfinite(qdd[[0, 2]]).all()


# The sparse matrix.


def pattern(model: rd.Model) -> np.ndarray:
    """Where one of two joints is an ancestor of the other, or the same, over tree velocities, walked body by body."""
    body = np.searchsorted(model.v_start, np.arange(model.nv_tree), side="right") - 1
    found = np.zeros((model.nv_tree, model.nv_tree), bool)
    for k, i in enumerate(body):
        for j in model.tree.path(i):
            found[k, body == j] = found[body == j, k] = True
    return found


@pytest.mark.parametrize("seed", [0, 2, 3, 5])
def test_the_pattern_is_that_of_the_branches(seed):
    """Also where entries vanish, as between joints at right angles."""
    model = tree(seed)
    H = scan(model).mass_matrix(model.neutral(), sparse=True)
    stored = H.copy()
    stored.data[:] = 1.0
    assert (stored.toarray() != 0).tolist() == pattern(model).tolist()
    assert H.nnz == pattern(model).sum()
    assert all((np.diff(H.indices[a:b]) > 0).all() for a, b in zip(H.indptr, H.indptr[1:], strict=False))
    assert (H != H.T).nnz == 0


@pytest.mark.parametrize("engine", ["cpu", "reference", "scan"])
def test_every_engine_has_the_sparse_matrix(engine):
    """Also once machine code answers plain calls, and of quaternions of any length."""
    model = rd.random_tree(3, seed=3, joints=("revolute",), base="floating")
    s, dyn = states_of(model, (2,), 3), rd.Dynamics(model, engine=engine)
    wanted = dyn.mass_matrix(s.q[0])
    assert relative(dyn.mass_matrix(s.q[0], sparse=True).toarray(), wanted) < 1e-13
    q = s.q[0].copy()
    q[3:7] *= 3.0
    assert relative(dyn.mass_matrix(q, sparse=True).toarray(), wanted) < 1e-13
    assert relative(dyn.mass_matrix(q, sparse=False), wanted) < 1e-13


def test_a_large_sparse_matrix():
    model = rd.auto_tree(5000, branching=1.5, skew=0.3)
    s, judge = states_of(model), rd.Dynamics(model, engine="cpu", code="rolled")
    H = judge.mass_matrix(s.q, sparse=True)
    still = judge.inverse_dynamics(s.q, 0 * s.qd, s.qdd) - judge.gravity_force(s.q)
    assert relative(H @ s.qdd, still) < 1e-12


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"sparse": 1}, "^sparse: got 1; allowed: True, False"),
        ({"sparse": True, "out": np.zeros((6, 6))}, "^out: got an array with sparse=True"),
    ],
)
def test_bad_arguments(arguments, words):
    model = rd.random_tree(6, seed=1)
    with pytest.raises(rd.ArgumentError, match=words):
        scan(model).mass_matrix(model.neutral(), **arguments)


def test_sparse_takes_one_state():
    model = rd.random_tree(6, seed=1)
    with pytest.raises(rd.ArgumentError, match=r"^sparse: got True for states of shape \(2, 1\); wanted one state"):
        scan(model).mass_matrix(np.zeros((2, 1, model.nq)), sparse=True)
    with pytest.raises(rd.NumericalError, match="NaN"):
        scan(model).mass_matrix(np.full(model.nq, np.nan), sparse=True)
    assert np.isnan(scan(model, check=False).mass_matrix(np.full(model.nq, np.nan), sparse=True).data).any()


# Memory.


@pytest.mark.parametrize("engine", ["cpu", "reference", "scan"])
def test_what_memory_cannot_hold_is_refused(engine, monkeypatch):
    model = rd.random_tree(6, seed=1)
    dyn = rd.Dynamics(model, engine=engine)
    monkeypatch.setattr(memory, "available", lambda: 8 * 36 - 1)
    with pytest.raises(rd.ArgumentError, match=r"^mass matrix: 6 x 6 entries take .* available; wanted sparse=True"):
        dyn.mass_matrix(model.neutral())
    with pytest.raises(rd.ArgumentError, match=r"^mass matrix: 2 x 6 x 6 entries .* wanted fewer states, or sparse"):
        dyn.mass_matrix(np.zeros((2, model.nq)))
    with pytest.raises(rd.ArgumentError, match=r"^sparse mass matrix: .* available"):
        dyn.mass_matrix(model.neutral(), sparse=True)


def test_a_huge_chain_is_refused():
    dyn = scan(rd.auto_tree(200_000))
    for sparse in (False, True):
        with pytest.raises(rd.ArgumentError, match="GB are available"):
            dyn.mass_matrix(np.zeros(200_000), sparse=sparse)


@pytest.mark.parametrize(("n", "words"), [(6, "^mass matrix: .* 'cpu' engine"), (1023, "^rows of the mass matrix")])
def test_forward_dynamics_without_room_is_refused(n, words, monkeypatch):
    model = rd.auto_tree(n, branching=2.0)
    dyn = scan(model)
    dyn.singularity()
    monkeypatch.setattr(memory, "available", lambda: 8)
    with pytest.raises(rd.ArgumentError, match=words):
        dyn.forward_dynamics(*np.zeros((3, n)), method="crba")
    with pytest.raises(rd.ArgumentError, match=r"^mass matrix: .*method='crba'"):
        dyn.forward_dynamics(*np.zeros((3, n)), method="jsiia")


def test_what_is_available_is_known(monkeypatch, tmp_path):
    there = memory.available()
    assert 1e6 < there < 1e15
    monkeypatch.setattr(memory, "_MEMINFO", tmp_path / "none")
    assert memory.available() >= there


# Parts.


def state_of(model: rd.Model, batch: int, seed: int = 0) -> State:
    dyn = scan(model)
    return State(dyn.engine.layout, {"q": model.normalize(states_of(model, (batch,), seed).q)})


@pytest.mark.parametrize("seed", [0, 2, 3, 5])
def test_factor_along_the_branches(seed):
    """H = L' D L against NumPy: no level shares more than its ancestors' rows with another."""
    model = tree(seed)
    state = state_of(model, 4, seed)
    factor = BranchFactor(branches_of(state.layout), entries(state), state.layout.armature)
    H = scan(model).mass_matrix(state.inputs["q"])
    b = np.random.default_rng(seed).standard_normal((model.nv, 4))
    wanted = np.linalg.solve(H, b.T[..., None])[..., 0].T
    assert relative(factor.solve(b), wanted) < 1e-9
    assert relative(H @ factor.solve(b).T[..., None], b.T[..., None]) < 1e-10
    assert np.allclose(np.log(factor.diagonal).sum(axis=0), np.linalg.slogdet(H)[1], rtol=1e-10)


@pytest.mark.parametrize("along", [True, False])
def test_both_ways_to_factorise(along, monkeypatch):
    monkeypatch.setattr(forward_crba, "along_branches", lambda branches: along)
    model = tree(3)
    s, dyn, judge = states_of(model, (5,), 3), scan(model, check=False), rd.Dynamics(model, engine="reference")
    tau = judge.inverse_dynamics(s.q, s.qd, s.qdd)
    q = s.q.copy()
    q[2] = np.nan
    qdd = dyn.forward_dynamics(q, s.qd, tau, method="crba")
    rows = [0, 1, 3, 4]
    assert np.isnan(qdd[2]).all()
    assert relative(judge.inverse_dynamics(s.q[rows], s.qd[rows], qdd[rows]), tau[rows]) < TOLERANCE["float64"]


def test_the_way_is_chosen_by_work():
    bushy, chain = (branches_of(scan(large(shape, 1000)).engine.layout) for shape in ("2", "chain"))
    assert forward_crba.along_branches(bushy)
    assert not forward_crba.along_branches(chain)
    assert bushy.bushy
    assert not chain.bushy


def test_matrices_that_are_not_positive_definite_are_solved_all_the_same():
    for dtype, tolerance in (("float64", 1e-13), ("float32", 1e-5)):
        H = np.array([[[2.0, 1.0], [1.0, -1.0]], [[1.0, 1.0], [1.0, 1.0]], [[np.nan, 0.0], [0.0, 1.0]]], dtype)
        b, out = np.array([[3.0, 0.0]] * 3, dtype), np.empty((3, 2), dtype)
        forward_crba.solved(H, b, out)
        assert relative(out[0], np.array([1.0, 1.0])) < tolerance
        assert np.isnan(out[1:]).all()


@pytest.mark.parametrize("bushy", [True, False])
@pytest.mark.parametrize("seed", [0, 1, 4])
def test_pieces_and_tiles(seed, bushy, monkeypatch):
    """Small ones find the same entries."""
    model = rd.random_tree(30, seed=seed, joints=JOINT_TYPES, shape=list(SHAPES)[seed], mimic=0.2)
    q = states_of(model, (2,), seed).q
    wanted = rd.Dynamics(model, engine="reference").mass_matrix(q)
    monkeypatch.setattr(pairs, "PAIRS_PIECE", 50)
    monkeypatch.setattr(pairs, "ONE_THREAD", 0)
    monkeypatch.setattr(Branches, "bushy", property(lambda self: bushy))
    assert relative(scan(model).mass_matrix(q), wanted) < TOLERANCE["float64"]


def test_columns_in_pieces(monkeypatch):
    monkeypatch.setattr(states, "STATES_PIECE", 40)
    model = tree(1)
    s, judge = states_of(model, (3,), 1), rd.Dynamics(model, engine="reference")
    tau = judge.inverse_dynamics(s.q, s.qd, s.qdd, inertia=s.inertia)
    qdd = scan(model).forward_dynamics(s.q, s.qd, tau, method="jsiia", inertia=s.inertia)
    assert relative(judge.inverse_dynamics(s.q, s.qd, qdd, inertia=s.inertia), tau) < TOLERANCE["float64"]


def test_a_model_without_joints():
    model = rd.random_tree(0, seed=0)
    dyn = scan(model)
    assert dyn.mass_matrix(np.zeros(0)).shape == (0, 0)
    assert dyn.mass_matrix(np.zeros(0), sparse=True).shape == (0, 0)
    for method in METHODS:
        assert dyn.forward_dynamics(*np.zeros((3, 0)), method=method).shape == (0,)
