"""One tree on several threads: its parts, tasks and their order, and the same bits as loops over the whole tree."""

from __future__ import annotations

import ctypes
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from cpu_queries import answers, states_of

import robodyn as rd
from robodyn.algorithms.aba import aba
from robodyn.algorithms.crba import CRBA
from robodyn.compile.llvm.target import host_target
from robodyn.core.tree import Tree
from robodyn.description import JOINT_TYPES
from robodyn.engines.cpu.engine import CpuEngine
from robodyn.engines.cpu.parts import plan as plans
from robodyn.engines.cpu.parts import program, tasks
from robodyn.engines.cpu.parts.partition import WORLD, parts_of
from robodyn.engines.cpu.parts.plan import Plan, Planner
from robodyn.engines.cpu.threads.pool import Pool

SHAPES = ("random", "binary", "star", "caterpillar", "chain")
PATIENCE = 60.0  # seconds that nothing here comes near unless something hangs


def parents(shape: str, n: int) -> np.ndarray:
    """A tree of that shape, or a forest."""
    i = np.arange(n)
    below = (np.random.default_rng(n).random(n) * i).astype(int)
    return {
        "random": np.where(i > 0, below, -1),
        "binary": (i + 1) // 2 - 1,
        "star": np.where(i > 0, 0, -1),
        "caterpillar": np.maximum(np.where(i % 2, i - 1, i - 2), -1),
        "chain": i - 1,
        "forest": np.where(i % 5, below, -1),
        "roots": np.full(n, -1),
        "comb": np.where(i <= n // 2, i - 1, i - n // 2 - 1),
    }[shape]


@pytest.mark.parametrize("grain", [1, 3, 40, 1000])
@pytest.mark.parametrize("shape", [*SHAPES, "forest", "roots", "comb"])
def test_parts_are_a_tree_of_runs(shape, grain):
    for n in (1, 2, 7, 200):
        tree = Tree(parents(shape, n))
        parts = parts_of(tree, grain)
        assert np.array_equal(np.sort(parts.body), np.arange(n))
        assert np.array_equal(parts.body[parts.number], np.arange(n))
        assert parts.start[0] == parts.start[1] == 0, "the world's part has no bodies"
        assert parts.start[-1] == n
        assert np.diff(parts.start).max() <= 2 * grain
        assert (parts.parent < np.arange(n)).all()
        assert (parts.above[1:] < np.arange(1, len(parts))).all()
        # A parent is in the part of its child, or in the one part above it.
        where = np.append(parts.part, WORLD)[parts.parent]
        assert ((where == parts.part) | (where == parts.above[parts.part])).all()
        for p in range(len(parts)):
            assert (np.diff(parts.body[parts.start[p] : parts.start[p + 1]]) > 0).all(), "bodies keep their order"


@pytest.mark.parametrize("shape", [*SHAPES, "forest"])
def test_children_are_summed_in_the_order_of_a_sweep(shape):
    tree = Tree(parents(shape, 120))
    parts = parts_of(tree, 6)
    entries, start = parts.visits
    for p in range(len(parts)):
        own = entries[start[p] : start[p + 1]]
        children = np.where(own >= 0, own, ~own)
        assert (np.diff(parts.body[children]) > 0).all()
        for k, entry in enumerate(own.tolist()):
            if entry >= 0:
                below = np.flatnonzero(parts.parent == entry)
                assert set(below) <= set(children[k + 1 :].tolist()), "all children before the parent"


def test_a_chain_has_no_more_parts_than_pieces_and_a_star_bundles():
    assert len(parts_of(Tree(parents("chain", 1000)), 100)) == 11 + 1
    assert len(parts_of(Tree(parents("star", 1001)), 100)) == 1 + 1 + 10


def planned(shape: str, n: int = 3000, threads: int = 2) -> Plan | None:
    model = replace(rd.auto_tree(n), parent=parents(shape, n))
    return Planner(model, np.dtype(float), host_target(), threads).plan(aba(), ())


@pytest.mark.parametrize("shape", ["random", "binary", "star", "caterpillar"])
@pytest.mark.parametrize("threads", [2, 5, 64])
def test_tasks_wait_for_earlier_ones_and_the_model_keeps_the_bounds_of_list_scheduling(shape, threads):
    plan = planned(shape, threads=threads)
    assert plan is not None
    for number, after in enumerate(plan.tasks.after):
        assert all(before < number for before in after)
    work, longest = plan.tasks.ns.sum(), plan.tasks.longest_ns
    assert max(work / threads, longest) <= plan.tasks.together_ns * (1 + 1e-12)
    assert plan.tasks.together_ns <= work / threads + (1 - 1 / threads) * longest + 1e-6, "Graham 1969"


def test_every_body_has_every_sweep_once():
    plan = planned("random")
    assert plan is not None
    done: dict[str, list[np.ndarray]] = {}
    for each in plan.tasks.operations:
        for name, first, last in each:
            done.setdefault(name, []).append(np.arange(first, last))
    n, roots = 3000, plan.parts.roots.size
    entries = {"sweep 1": n, "sweep 2": n + roots, "sweep 4": n}
    for name, count in entries.items():
        assert np.array_equal(np.sort(np.concatenate(done[name])), np.arange(count))
    assert np.array_equal(np.sort(np.concatenate(done["clear 2"])), n + np.arange(roots))


def test_what_is_not_worth_it_has_no_plan_or_one_that_does_not_pay():
    assert planned("chain") is None
    assert planned("binary", n=300) is None
    model = rd.auto_tree(3000, branching=2)
    alone, two = (Planner(model, np.dtype(float), host_target(), threads) for threads in (1, 2))
    assert alone.plan(aba(), ()) is None
    assert two.plan(CRBA, ()) is None, "pairs of bodies are no parts"
    assert two.plan(aba(), ()) is two.plan(aba(), ()), "made once"
    small = planned("binary", n=600)
    assert small is not None
    assert not small.pays()
    large = planned("binary", n=30_000)
    assert large is not None
    assert large.pays()
    assert large.pays(3), "three states on two threads: two rounds"
    assert not large.pays(2)
    assert not large.pays(1000), "a batch fills the threads"


@pytest.fixture
def forced(monkeypatch):
    """Parts of a few bodies whatever the model says; the algorithms that were run so."""
    monkeypatch.setattr(plans, "LEAST_BODIES", 1)
    monkeypatch.setattr(plans, "LEAST_GAIN", 0.0)
    monkeypatch.setattr(program, "LEAST_GRAIN", 5)
    monkeypatch.setattr(program, "MOST_GRAIN", 5)
    monkeypatch.setattr(tasks, "MAX_VISITS", 12)
    run: list[str] = []
    real = CpuEngine._launch_tasks

    def noted(engine, kernel, table, batch):
        run.append(kernel.request.algorithm.name)
        real(engine, kernel, table, batch)

    monkeypatch.setattr(CpuEngine, "_launch_tasks", noted)
    return run


def asked(dyn: rd.Dynamics, s) -> dict[str, np.ndarray]:
    """Sweeps out and in, with all inputs; results by degrees of freedom, bodies, links and of the world."""
    base = {"V0": s.V0, "dV0": s.dV0}
    return {
        "inverse": dyn.inverse_dynamics(s.q, s.qd, s.qdd, f_ext=s.f_ext, **base),
        "forward": dyn.forward_dynamics(s.q, s.qd, s.tau),
        "poses": dyn.forward_kinematics(s.q),
        "com": dyn.center_of_mass(s.q),
        "reaction": dyn.joint_reaction(s.q, s.qd, s.qdd, inertia=s.inertia),
    }


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rows", [(), (3,)])
@pytest.mark.some(of=4, rest="matrix")
def test_same_bits_as_one_thread_and_right(shape, rows, forced):
    model = rd.random_tree(80, seed=len(shape), shape=shape)
    s = states_of(model, rows, seed=1)
    one, many = (asked(rd.Dynamics(model, engine="cpu", code="rolled", threads=k), s) for k in (1, 5))
    wanted = asked(rd.Dynamics(model, engine="reference"), s)
    assert len(set(forced)) >= 5
    for name in one:
        assert one[name].tobytes() == many[name].tobytes(), name
        if name == "forward":  # long chains: accelerations are as they may be, judged by the forces that they need
            back = rd.Dynamics(model, engine="reference")
            needed = back.inverse_dynamics(s.q, s.qd, many[name])
            assert np.abs(needed - s.tau).max() < 1e-9 * np.abs(back.bias_force(s.q, s.qd)).max()
        else:
            assert np.abs(many[name] - wanted[name]).max() <= 1e-11 * np.abs(wanted[name]).max(), name


@pytest.mark.parametrize("base", ["fixed", "floating"])
def test_all_kinds_of_joints_and_joints_that_mimic(base, forced):
    model = rd.random_tree(40, seed=3, joints=JOINT_TYPES, base=base, armature=True, mimic=0.3)
    s = states_of(model, (), seed=2, dtype="float32")
    one, many = (rd.Dynamics(model, engine="cpu", code="rolled", threads=k, dtype="float32") for k in (1, 3))
    for call in (
        lambda d: d.inverse_dynamics(s.q, s.qd, s.qdd, f_ext=s.f_ext),
        lambda d: d.centroidal_momentum(s.q, s.qd)[1],
    ):
        assert call(one).tobytes() == call(many).tobytes()
    assert len(forced) == 2


@pytest.mark.nightly
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("rows", [(), (20,)])
@pytest.mark.parametrize("mimic", [0.0, 0.3])
def test_every_query(shape, dtype, rows, mimic, forced):
    base = "floating" if mimic else "fixed"
    model = rd.random_tree(40, seed=3, joints=JOINT_TYPES, shape=shape, base=base, armature=True, mimic=mimic)
    s = states_of(model, rows, seed=1, dtype=dtype)
    one, many = (
        answers(rd.Dynamics(model, engine="cpu", code="rolled", threads=k, dtype=dtype), s, invert=not mimic)
        for k in (1, 3)
    )
    assert [name for name in one if one[name].tobytes() != many[name].tobytes()] == []
    assert len(set(forced)) > 20


def one_tree(n: int = 600) -> tuple[rd.Model, tuple[np.ndarray, ...]]:
    model = replace(rd.auto_tree(n, skew=0.3), parent=parents("random", n))
    return model, tuple(np.random.default_rng(4).uniform(-1, 1, (3, n)))


def test_out_is_written_and_nan_goes_where_it_does(forced):
    model, (q, qd, qdd) = one_tree()
    q = q.copy()
    q[-1] = np.nan
    out = np.full(model.nv, 7.0)
    many = rd.Dynamics(model, engine="cpu", threads=3, check=False)
    assert many.inverse_dynamics(q, qd, qdd, out=out) is out
    wanted = rd.Dynamics(model, engine="cpu", threads=1, check=False).inverse_dynamics(q, qd, qdd)
    assert np.isnan(wanted).any()
    assert not np.isnan(wanted).all(), "what hangs elsewhere is as it was"
    assert np.array_equal(out, wanted, equal_nan=True)
    with pytest.raises(rd.NumericalError, match="q"):
        rd.Dynamics(model, engine="cpu", threads=3, check=True).inverse_dynamics(q, qd, qdd)
    assert forced


def test_tasks_wait_whoever_has_those_before(forced):
    """Two threads have every other task each: none can go on without the other."""
    model, (q, qd, qdd) = one_tree()
    dyn = rd.Dynamics(model, engine="cpu", threads=2, check=False)
    wanted = dyn.inverse_dynamics(q, qd, qdd)
    engine = dyn.engine
    assert isinstance(engine, CpuEngine)
    (kernel,) = (each for each in engine._kernels.values() if each.tasks)
    done, out = np.zeros(kernel.tasks, np.int32), np.empty(model.nv)
    words = [word for array in (q, qd, qdd, out) for word in (array.ctypes.data, 0)]
    words += [*kernel.constants[:-4], 0, 1, done.ctypes.data, Pool(2).give_way]
    table = (ctypes.c_int64 * len(words))(*words)
    address, owner = engine._take_workspace(kernel.workspace_bytes)

    def every_other(first: int) -> None:
        for number in range(first, kernel.tasks, 2):
            kernel.function(ctypes.addressof(table), number, number + 1, address)

    threads = [threading.Thread(target=every_other, args=(first,), daemon=True) for first in (0, 1)]
    threads[1].start()  # waits for the first task of all
    threads[1].join(0.05)
    assert threads[1].is_alive()
    assert not done[1:].any()
    threads[0].start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert done.all()
    assert out.tobytes() == wanted.tobytes()
    assert owner is not None


def test_calls_from_several_threads_at_once(forced):
    model, (q, qd, qdd) = one_tree()
    dyn = rd.Dynamics(model, engine="cpu", threads=3, check=False)
    wanted = dyn.inverse_dynamics(q, qd, qdd)
    with ThreadPoolExecutor(4) as users:
        found = list(users.map(lambda _: dyn.inverse_dynamics(q, qd, qdd), range(40), timeout=PATIENCE))
    assert {each.tobytes() for each in found} == {wanted.tobytes()}


def test_without_threads_of_machine_code_the_caller_does_all(forced, monkeypatch):
    model, (q, qd, qdd) = one_tree()
    monkeypatch.setattr("robodyn.engines.cpu.engine.shared_pool", lambda threads, load: Pool(threads, sleep=""))
    found = rd.Dynamics(model, engine="cpu", threads=3, check=False).inverse_dynamics(q, qd, qdd)
    monkeypatch.undo()
    wanted = rd.Dynamics(model, engine="cpu", threads=1, check=False).inverse_dynamics(q, qd, qdd)
    assert found.tobytes() == wanted.tobytes()
    assert forced


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_the_child_of_a_fork_answers(forced):
    model, (q, qd, qdd) = one_tree()
    dyn = rd.Dynamics(model, engine="cpu", threads=3, check=False)
    wanted = dyn.inverse_dynamics(q, qd, qdd)
    child = os.fork()
    if child == 0:
        same = dyn.inverse_dynamics(q, qd, qdd).tobytes() == wanted.tobytes()
        os._exit(0 if same else 3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_explain_says_what_was_chosen():
    bush, chain = rd.auto_tree(30_000, branching=2), rd.auto_tree(3000)
    told = {
        (name, threads, batch): rd.Dynamics(model, engine="cpu", threads=threads)
        .explain("inverse_dynamics", batch)
        .reason
        for name, model, threads, batch in (
            ("bush", bush, 2, 1),
            ("bush", bush, 1, 1),
            ("bush", bush, 2, 64),
            ("chain", chain, 2, 1),
        )
    }
    assert "parts on 2 threads" in told["bush", 2, 1]
    assert "thread" not in told["bush", 1, 1]
    assert "one thread for a state: 2 threads on one tree would be" in told["bush", 2, 64]
    assert "one thread for a state: 3000 of 3000 bodies" in told["chain", 2, 1]


def test_unrolled_code_that_is_asked_for_stays_whole(forced):
    model = rd.random_tree(20, seed=5)
    dyn = rd.Dynamics(model, engine="cpu", code="unrolled", threads=3)
    dyn.inverse_dynamics(model.neutral(), np.zeros(model.nv), np.zeros(model.nv))
    assert not forced


def test_the_number_of_threads_is_that_of_the_user(monkeypatch):
    """One is none but the caller; the default is as many as the process may have."""
    model, (q, qd, qdd) = one_tree(30_000)
    run: list[int] = []
    real = Pool.run

    def noted(pool, *arguments):
        run.append(pool.threads)
        real(pool, *arguments)

    monkeypatch.setattr(Pool, "run", noted)
    rd.Dynamics(model, engine="cpu", threads=1, check=False).inverse_dynamics(q, qd, qdd)
    assert run == []
    rd.Dynamics(model, engine="cpu", threads=3, check=False).inverse_dynamics(q, qd, qdd)
    assert run == [3]
