"""The GPU engine around its kernels, on a fake device: kernels run on the host."""

from __future__ import annotations

import gc
import math
import multiprocessing
import os
import pickle
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import TOLERANCE, random_states, relative
from gpu_host import ORDERS, missing
from gpu_host.arrays import DeviceArray, Moving, _device, _plain, there
from gpu_host.device import HostDevice
from robots import own
from test_dynamics import as_tuple, queries

import robodyn as rd
from robodyn.algorithms.tasks import along
from robodyn.engines.gpu import GpuOptions, compiler, device, engine, staging
from robodyn.engines.gpu.best_kernels import MEASURED_ON
from robodyn.engines.gpu.choice import SECTION, Chooser, Variant, variants
from robodyn.engines.gpu.options import FUSIONS, KERNELS
from robodyn.engines.gpu.unrolled_kernels import unrolled_kernel
from robodyn.engines.query_table import QUERIES
from robodyn.engines.tuning_store import Row, Table, forget, keep

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "it runs")


@pytest.fixture(scope="module")
def small() -> rd.Model:
    return rd.random_tree(3, seed=1, joints=("revolute", "prismatic"), armature=True)


@pytest.fixture(scope="module")
def arm() -> rd.Model:
    return rd.load_urdf(own("arm7"))


def compare(got: Any, wanted: Any, tolerance: float = TOLERANCE["float64"]) -> None:
    for one, other in zip(as_tuple(got), as_tuple(wanted), strict=True):
        assert relative(_plain(one), other) < tolerance


# Every query, on NumPy arrays and on the device's.


@pytest.mark.parametrize("name", QUERIES)
def test_gpu_engine_answers_every_query(name: str, small: rd.Model, host: HostDevice) -> None:
    states = random_states(small, (5,))
    wanted = queries(rd.Dynamics(small, engine="reference"), *states)[name][0]()
    dyn = rd.Dynamics(small, engine="gpu")
    for kind, asked in ((np.ndarray, dyn), (DeviceArray, Moving(dyn))):
        given = queries(asked, *states)[name][0]
        launches = len(host.launches)
        answer = given()
        assert len(host.launches) == launches + 1
        compare(answer, wanted, 1e-9 if "forward_dynamics" in name else TOLERANCE["float64"])
        assert all(type(each) is kind for each in as_tuple(answer))
    assert host.waits == len(host.uploads) == len(host.downloads) == 1
    assert DeviceArray.looks == 0


def test_gpu_engine_answers_derivatives_of_programs(small: rd.Model, host: HostDevice) -> None:
    """Printed, on arrays of either place; what is too large for that has no other kernel."""
    q, qd, _ = random_states(small, (5,))
    rng = np.random.default_rng(8)
    task = along(QUERIES["kinetic_energy"].plain_task(small), ("q", "qd"))
    given = {"q": q, "qd": qd, "q_rate": rng.normal(size=q.shape), "qd_rate": rng.normal(size=qd.shape)}
    wanted = {"K": np.full(5, np.nan)}
    rd.Dynamics(small, engine="reference").engine.run(task, given, wanted)
    gpu = rd.Dynamics(small, engine="gpu").engine
    for place in (np.array, _device):
        outputs = {"K": place(np.full(5, np.nan))}
        gpu.run(task, {name: place(array) for name, array in given.items()}, outputs)
        compare(outputs["K"], wanted["K"])
    large = rd.auto_tree(5000)
    task = along(QUERIES["kinetic_energy"].plain_task(large), ("q",))
    with pytest.raises(rd.UnavailableError, match=r"kinetic_energy_along_q.* too large for straight-line code$"):
        rd.Dynamics(large, engine="gpu").engine.run(
            task, {name: np.zeros((1, 5000)) for name in ("q", "qd", "q_rate")}, {"K": np.empty(1)}
        )


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("base", ["fixed", "floating"])
def test_gpu_engine_takes_forces_bases_and_inertias(base: str, dtype: str, host: HostDevice) -> None:
    model = rd.load_urdf(own("quadruped"), base=base) if base == "floating" else rd.load_urdf(own("arm6"))
    q, qd, qdd = random_states(model, (3,))
    rng = np.random.default_rng(2)
    options = {
        "f_ext": rng.normal(size=(3, model.n_bodies, 6)),
        "inertia": model.inertia * (1.0 + 0.1 * rng.random((3, model.n_bodies, 10))),
        "V0": rng.normal(size=6),
        "dV0": rng.normal(size=(3, 6)),
    }
    wanted = rd.Dynamics(model, engine="reference").inverse_dynamics(q, qd, qdd, **options)
    dyn = rd.Dynamics(model, engine="gpu", dtype=dtype, joint_forces=())
    compare(dyn.inverse_dynamics(q, qd, qdd, **options), wanted, TOLERANCE[dtype])
    moved = dict(zip(options, there(*options.values()), strict=True))
    compare(dyn.inverse_dynamics(*there(q, qd, qdd), **moved), wanted, TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("kernel", ["auto", "block"])
@pytest.mark.some(of=2, rest="kernels")
def test_gpu_engine_answers_about_several_links_and_relative_motion(dtype: str, kernel: str, host: HostDevice) -> None:
    """By one kernel, or by kernels of parts, where a kind of kernel is asked for that has no program of them."""
    model = rd.load_urdf(own("gripper"))
    q, qd, qdd = random_states(model, (3,))
    points = np.random.default_rng(3).normal(size=(3, 2, 3))
    dyn = rd.Dynamics(model, engine="gpu", dtype=dtype, gpu=GpuOptions(kernel))
    reference, links = rd.Dynamics(model, engine="reference"), [model.link_names[-1], 3]
    for query, arrays, options in (
        ("jacobian", (q,), {"frame": "body"}),
        ("link_pose", (q,), {"relative_to": 2}),
        ("link_velocity", (q, qd), {}),
        ("link_acceleration", (q, qd, qdd), {"relative_to": 2, "classical": True}),
    ):
        wanted = getattr(reference, query)(*arrays, links=links, point=points, **options)
        for given, at in ((arrays, points), (there(*arrays), there(points)[0])):
            compare(getattr(dyn, query)(*given, links=links, point=at, **options), wanted, TOLERANCE[dtype])
    assert dyn.jacobian(q[:0], links=links).shape == (0, 2, 6, model.nv)


def test_gpu_engine_knows_joint_forces(host: HostDevice) -> None:
    model = rd.load_urdf(own("arm7"))
    assert model.damping.any() and model.friction.any()
    q, qd, qdd = random_states(model, (2, 2))
    reference, dyn = (
        rd.Dynamics(model, engine=name, joint_forces=("damping", "friction")) for name in ("reference", "gpu")
    )
    for query in ("inverse_dynamics", "forward_dynamics", "inverse_dynamics_gradient", "forward_dynamics_gradient"):
        compare(getattr(dyn, query)(*there(q, qd, qdd)), getattr(reference, query)(q, qd, qdd), 1e-9)
    q_there, qd_there, qdd_there = there(q, qd, qdd)
    products = dyn.inverse_dynamics_vjp(q_there, qd_there, qdd_there, vector=qd_there)
    compare(products, reference.inverse_dynamics_vjp(q, qd, qdd, vector=qd))
    none = [each[:, :0] for each in (q, qd, qdd)]
    assert dyn.inverse_dynamics_gradient(*there(*none))[1].shape == (2, 0, 7, 7)
    assert DeviceArray.looks == 0


# Kernels.


@pytest.mark.parametrize("fusion", FUSIONS)
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.some(of=3, rest="kernels")
def test_gpu_engine_runs_the_kernel_that_is_asked_for(kernel: str, fusion: str, host: HostDevice) -> None:
    if kernel == "unrolled" and fusion == "fused":
        with pytest.raises(rd.ArgumentError, match="fusion: got 'fused' for unrolled kernels"):
            GpuOptions(kernel, fusion)
        return
    model = rd.random_tree(3, seed=1, joints=("revolute",))
    states = random_states(model, (4,))
    dyn = rd.Dynamics(model, engine="gpu", gpu=GpuOptions(kernel, fusion))
    wanted = rd.Dynamics(model, engine="reference").forward_dynamics_gradient(*states)
    compare(dyn.forward_dynamics_gradient(*there(*states)), wanted, 1e-9)
    # Unrolled, the mass matrix and the accelerations that are solved for are one program.
    assert len(host.launches) == {"complete": 1, "fused": 2, "split": 3 if kernel == "unrolled" else 4}[fusion]
    compare(dyn.forward_dynamics_gradient(*states), wanted, 1e-9)
    code = dyn.program("forward_dynamics_gradient")
    assert code.mode == str(Variant(kernel, fusion)) and code.text.count("__global__") == len(code.sources)


def test_gpu_engine_chooses_by_measurements(arm: rd.Model, host: HostDevice, tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("ROBODYN_CACHE_DIR", str(tmp_path / "cache"))
    forget()
    dyn = rd.Dynamics(arm, engine="gpu")
    assert f"the best on {MEASURED_ON}" in str(dyn.explain("inverse_dynamics", 100))
    task = dyn.plain_task("inverse_dynamics").name
    rows = [
        Row("kernels", task, "float64", 7, 7, 64, "warp", 5e-6),
        Row("kernels", task, "float64", 7, 2, 64, "thread", 9e-6),
        Row("kernels", task, "float64", 7, 7, 65536, "thread", 4e-5),
        Row("kernels", task, "float32", 7, 7, 64, "block", 1e-6),
        Row("kernels", task, "float64", 70, 70, 64, "block", 1e-6),
    ]
    assert keep(Table(SECTION, rows), host.name)
    dyn = rd.Dynamics(arm, engine="gpu")
    assert "kernel 'warp' on host, measured: 5 us for 64 states" in str(dyn.explain("inverse_dynamics", 100))
    assert "kernel 'thread'" in str(dyn.explain("inverse_dynamics", 1 << 20))
    assert f"the best on {MEASURED_ON}" in str(dyn.explain("forward_dynamics", 100))
    forget()


def test_gpu_engine_runs_unrolled_kernels_of_what_is_no_chain_whatever_the_fusion(host: HostDevice) -> None:
    model = rd.random_tree(3, seed=1, joints=("revolute",))
    states = random_states(model, (4,))
    dyn = rd.Dynamics(model, engine="gpu", gpu=GpuOptions("unrolled", "split"))
    wanted = rd.Dynamics(model, engine="reference")
    compare(dyn.inverse_dynamics_gradient(*states), wanted.inverse_dynamics_gradient(*states), 1e-9)
    compare(
        dyn.forward_dynamics_hessian(*states, vector=states[1]),
        wanted.forward_dynamics_hessian(*states, vector=states[1]),
        1e-8,
    )
    assert len(host.launches) == 2
    assert str(dyn.engine.variant(dyn.plain_task("forward_dynamics_hessian"), 4)) == "unrolled"  # type: ignore[attr-defined]


def test_gpu_choice_of_unrolled_kernels_where_one_is_too_large(host: HostDevice) -> None:
    """Several are taken where one is too large, or keeps more than registers hold, and are not where it is short."""
    humanoid, quadruped = (rd.load_urdf(own(name), base="floating") for name in ("humanoid", "quadruped"))
    chosen_of = ((humanoid, "unrolled, split"), (quadruped, "unrolled, split"), (rd.auto_tree(2), "unrolled"))
    for model, chosen in chosen_of:
        task = rd.Dynamics(model, engine="reference").plain_task("forward_dynamics_gradient")
        chooser = Chooser(model, np.dtype(np.float64), GpuOptions("unrolled"), host.name)
        chooser.table = Table(SECTION, ())
        assert str(chooser.choose(task, 64)[0]) == chosen


def test_gpu_choice_passes_over_straight_line_code_that_is_too_large(
    host: HostDevice, tmp_path: Any, monkeypatch: Any
) -> None:
    """Of a robot with as many bodies it was the best, but this one's is longer."""
    monkeypatch.setenv("ROBODYN_CACHE_DIR", str(tmp_path / "cache"))
    arm, long = rd.load_urdf(own("arm7")), rd.auto_tree(45, branching=1.0, skew=0.3)
    task = rd.Dynamics(arm, engine="reference").plain_task("forward_dynamics_gradient")
    kernels = ("unrolled, split", "unrolled", "block, split")
    for model, chosen in ((arm, "unrolled, split"), (long, "block, split")):
        chooser = Chooser(model, np.dtype(np.float64), GpuOptions(), host.name)
        size = model.n_bodies, model.tree.n_levels
        rows = [Row(SECTION.name, task.name, "float64", *size, 1, kernel, 0.0) for kernel in kernels]
        for k in range(len(rows)):
            chooser.table = Table(SECTION, rows[k:])
            wanted = kernels[k] if model is arm else chosen
            assert str(chooser.choose(task, 64)[0]) == wanted


def test_gpu_choice_is_the_nearest_row() -> None:
    left = ("warp", "thread")
    rows = [
        Row("kernels", "t", "float64", 6, depth, batch, kernel, s)
        for depth, batch, kernel, s in ((3, 16, "warp", 1.0), (6, 16, "thread", 3.0), (6, 4096, "thread", 2.0))
    ]
    table = Table(SECTION, rows)
    assert table.near("t", "float64", 7, 7, 32, left) == rows[:2]  # whatever the depth
    assert table.near("t", "float64", 7, 7, 2048, left) == rows[2:]
    assert table.near("t", "float64", 30, 30, 32, left) == []
    assert table.near("t", "float64", 7, 7, 32, ["block"]) == []


def test_gpu_engine_falls_back_where_a_kernel_does_not_compile(
    arm: rd.Model, host: HostDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = random_states(arm, (3,))
    host.refused = (32,)
    dyn = rd.Dynamics(arm, engine="gpu")
    monkeypatch.setattr(dyn.engine.chooser, "choose", lambda *about: (Variant("warp"), "by this test"))  # type: ignore[attr-defined]
    with pytest.warns(RuntimeWarning, match="a loop over bodies answers instead"):
        answer = dyn.inverse_dynamics_gradient(*states)
    compare(answer, rd.Dynamics(arm, engine="reference").inverse_dynamics_gradient(*states), 1e-9)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dyn.inverse_dynamics_gradient(*states)
    asked = rd.Dynamics(arm, engine="gpu", gpu=GpuOptions("warp"))
    with pytest.raises(rd.UnavailableError, match="cannot compile"):
        asked.inverse_dynamics_gradient(*states)


def test_gpu_engine_names_what_is_too_large_to_print(host: HostDevice) -> None:
    model = rd.auto_tree(400)
    dyn = rd.Dynamics(model, engine="gpu", gpu=GpuOptions("unrolled"))
    with pytest.raises(rd.UnavailableError, match=r"too large for straight-line code; kernels that take it: 'thread'"):
        dyn.forward_dynamics_gradient(*random_states(model, (1,)))
    assert Variant("unrolled") not in variants(model, dyn.plain_task("forward_dynamics_gradient"))


# Batches.


def test_gpu_engine_overlaps_pieces_of_large_batches(arm: rd.Model, host: HostDevice, monkeypatch: Any) -> None:
    monkeypatch.setattr(staging, "PIECE_BYTES", 40 * 3 * 7 * 8)
    states = random_states(arm, (333,))
    dyn = rd.Dynamics(arm, engine="gpu")
    compare(dyn.inverse_dynamics(*states), rd.Dynamics(arm, engine="reference").inverse_dynamics(*states))
    assert [rows for _, rows in host.launches] == [37] * 9
    assert len(host.uploads) == len(host.downloads) == host.waits == 9
    held = len(dyn.engine._staging._kept)  # type: ignore[attr-defined]
    dyn.inverse_dynamics(*states)
    assert held == len(dyn.engine._staging._kept) == 2  # type: ignore[attr-defined]


def test_gpu_engine_cuts_batches_whose_intermediates_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    model = rd.random_tree(3, seed=1, joints=("revolute",))
    states = random_states(model, (200,))
    small = HostDevice(memory=1 << 17)
    monkeypatch.setattr(engine, "default_device", lambda: small)
    monkeypatch.setattr(engine, "_SMALL", 0)
    dyn = rd.Dynamics(model, engine="gpu", gpu=GpuOptions("warp", "split"))
    wanted = rd.Dynamics(model, engine="reference").forward_dynamics_gradient(*states)
    compare(dyn.forward_dynamics_gradient(*there(*states)), wanted, 1e-9)
    assert max(rows for _, rows in small.launches) < 200 and sum(rows for _, rows in small.launches) == 4 * 200


def test_gpu_engine_takes_pieces_where_all_at_once_did_not_fit(
    arm: rd.Model, host: HostDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody asks how much is free before a part of it is taken; where that is not there, pieces of what is."""
    states = random_states(arm, (40,))
    dyn = rd.Dynamics(arm, engine="gpu", gpu=GpuOptions("warp", "split"))
    arrays, empty = there(*states), host.xp.empty

    def scarce(shape: Any, dtype: Any) -> Any:
        if np.prod(shape) * 8 > 1 << 13 and shape[0] == 40 and shape[-1] == 7:  # matrices between kernels
            raise MemoryError("nothing left")
        return empty(shape, dtype)

    out = there(*(np.full((40, 7, 7), np.nan) for _ in range(3)))
    monkeypatch.setattr(host.xp, "empty", scarce)
    host.memory = 1 << 14
    answer = dyn.forward_dynamics_gradient(*arrays, out=out)
    compare(answer, rd.Dynamics(arm, engine="reference").forward_dynamics_gradient(*states), 1e-9)
    assert {rows for _, rows in host.launches} != {40}
    host.memory = 1 << 34  # a whole batch would fit, and still does not
    with pytest.raises(rd.UnavailableError, match="no memory for what 40 states need"):
        dyn.forward_dynamics_gradient(*arrays, out=out)


def test_gpu_engine_says_that_scratch_memory_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "default_device", lambda: HostDevice(memory=1000))
    model = rd.auto_tree(300)
    dyn = rd.Dynamics(model, engine="gpu", gpu=GpuOptions("thread"))
    with pytest.raises(rd.UnavailableError, match="of scratch memory for one block"):
        dyn.inverse_dynamics(*random_states(model, (1,)))


def test_gpu_engine_takes_no_states_and_no_bodies(arm: rd.Model, host: HostDevice) -> None:
    dyn = rd.Dynamics(arm, engine="gpu")
    assert dyn.inverse_dynamics(*random_states(arm, (0, 3))).shape == (0, 3, 7)
    assert dyn.mass_matrix(*there(np.empty((0, 7)))).shape == (0, 7, 7)
    assert not host.launches and host.waits == 0
    still = rd.load_urdf("<robot name='r'><link name='a'/></robot>")
    dyn = rd.Dynamics(still, engine="gpu")
    assert dyn.inverse_dynamics(*(np.empty((4, 0)),) * 3).shape == (4, 0)
    poses = dyn.forward_kinematics(*there(np.empty((4, 0))))
    assert isinstance(poses, DeviceArray) and (_plain(poses) == np.eye(4)).all()


def test_gpu_engine_keeps_nan_in_its_row(arm: rd.Model, host: HostDevice) -> None:
    states = random_states(arm, (40,))
    dyn = rd.Dynamics(arm, engine="gpu")
    right = dyn.forward_dynamics(*states)
    states[0][7, 2] = np.nan
    for arrays in (states, there(*states)):
        got = _plain(dyn.forward_dynamics(*arrays))
        assert np.isnan(got[7]).any()
        assert np.array_equal(np.delete(got, 7, 0), np.delete(right, 7, 0))
    with pytest.raises(rd.NumericalError, match="q: NaN or infinite in 1 of 40 rows: 7"):
        rd.Dynamics(arm, engine="gpu", check=True).forward_dynamics(*there(*states))


# Processes and machines.


def test_gpu_engine_is_pickled_by_its_arguments(arm: rd.Model, host: HostDevice) -> None:
    dyn = rd.Dynamics(arm, engine="gpu", gpu=GpuOptions("thread"))
    again = pickle.loads(pickle.dumps(dyn))
    assert again.engine.name == "gpu" and again.engine.options == GpuOptions("thread")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_gpu_engine_refuses_to_work_in_the_child_of_a_fork(arm: rd.Model, host: HostDevice) -> None:
    dyn = rd.Dynamics(arm, engine="gpu")
    states = random_states(arm, (2,))

    def child(pipe: Any) -> None:
        try:
            dyn.inverse_dynamics(*states)
        except rd.UnavailableError as error:
            pipe.send(str(error))

    here, far = multiprocessing.get_context("fork").Pipe()
    process = multiprocessing.get_context("fork").Process(target=child, args=(far,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns of forks beside threads
        process.start()
    assert here.poll(60) and "made before this process was forked" in here.recv()
    process.join()


def test_gpu_engine_serves_several_threads(arm: rd.Model, host: HostDevice) -> None:
    dyn = rd.Dynamics(arm, engine="gpu")
    states = [random_states(arm, (20,), seed=k) for k in range(4)]
    wanted = [rd.Dynamics(arm, engine="reference").inverse_dynamics(*each) for each in states]
    dyn.inverse_dynamics(*states[0])
    failures: list[int] = []

    def work(k: int) -> None:
        for _ in range(5):
            if relative(dyn.inverse_dynamics(*states[k]), wanted[k]) > 1e-11:
                failures.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not failures


def test_errors_of_cuda_are_told_apart(arm: rd.Model) -> None:
    class CudaError(RuntimeError):
        status = 2

    class Module:
        def load(self, code: bytes) -> None:
            raise CudaError("no memory")

    cupy = SimpleNamespace(cuda=SimpleNamespace(Module=Module, driver=None))
    source = unrolled_kernel(arm, rd.Dynamics(arm).plain_task("inverse_dynamics"), np.dtype(np.float64))
    with pytest.raises(rd.UnavailableError, match=r"CUDA does not load kernel \(no memory\)"):
        device._CudaKernel(cupy, source, b"")
    with pytest.raises(MemoryError, match="no memory"):
        device._require_memory(CudaError("no memory"))
    device._require_memory(RuntimeError("another"))


def test_what_cupy_keeps_for_later_is_given_back_where_there_is_no_memory() -> None:
    class CudaError(RuntimeError):
        status = 2

    freed: list[str] = []
    pool = SimpleNamespace(free_all_blocks=lambda: freed.append("freed"))
    cupy = SimpleNamespace(get_default_memory_pool=lambda: pool)

    def works_with_room() -> str:
        if not freed:
            try:
                raise CudaError("no memory")
            except CudaError as error:
                raise rd.UnavailableError("engine 'gpu': CUDA does not load it") from error
        return "done"

    assert device.with_room(cupy, works_with_room) == "done" and freed == ["freed"]

    def never(error: Exception) -> None:
        tried.append(error)
        raise error

    for error, times in ((MemoryError("none"), 2), (CudaError("none"), 2), (RuntimeError("another"), 1)):
        tried: list[Exception] = []
        freed.clear()
        with pytest.raises(type(error), match=str(error)):
            device.with_room(cupy, partial(never, error))
        assert (len(tried), len(freed)) == (times, times - 1)


def test_a_machine_without_a_gpu_says_what_is_missing(arm: rd.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(rd.UnavailableError, match=r'CuPy is not installed; pip install "\.\[gpu\]"'):
        rd.Dynamics(arm, engine="gpu")
    assert rd.Dynamics(arm).engine.name == "cpu"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel": "loop"}, "kernel: got 'loop'; allowed: 'auto', 'unrolled'"),
        ({"fusion": "none"}, "fusion: got 'none'"),
        ({"block_threads": 33}, "block_threads: got 33; wanted a multiple of 32"),
        ({"block_threads": 2048}, "block_threads: got 2048"),
    ],
)
def test_gpu_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(rd.ArgumentError, match=message):
        GpuOptions(**options)


def test_the_former_name_of_unrolled_kernels_warns() -> None:
    with pytest.warns(DeprecationWarning, match="'printed' is called 'unrolled'"):
        assert GpuOptions("printed") == GpuOptions("unrolled")


def test_gpu_options_are_options(arm: rd.Model, host: HostDevice) -> None:
    with pytest.raises(rd.ArgumentError, match=r"gpu: got .warp.; wanted a robodyn\.engines\.gpu\.GpuOptions"):
        rd.Dynamics(arm, engine="gpu", gpu="warp")  # type: ignore[arg-type]


# Rollouts.


@pytest.mark.parametrize("integrator", ["semi_implicit_euler", "implicit", "rk4"])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.some(of=3, rest="kernels")
def test_gpu_rollouts_are_one_kernel(order: str, integrator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    host = HostDevice(order)
    monkeypatch.setattr(engine, "default_device", lambda: host)
    model = rd.load_urdf(own("ball_joint_arm"))
    q, qd, tau = random_states(model, (70,))
    changing = np.random.default_rng(1).normal(size=(6, 70, model.nv))
    dyn, reference = rd.Dynamics(model, engine="gpu"), rd.Dynamics(model, engine="reference")
    for given in (tau, changing):
        wanted = reference.rollout(q, qd, given, 1e-3, 6, integrator=integrator)
        for arrays in ((q, qd, given), there(q, qd, given)):
            launches = len(host.launches)
            found = dyn.rollout(*arrays, 1e-3, 6, integrator=integrator)
            assert host.launches[launches:] == [("march", 70)]
            assert type(found.q) is (np.ndarray if arrays[0] is q else DeviceArray)
            compare((found.q, found.qd), (wanted.q, wanted.qd), 1e-10)


@pytest.mark.kernels
def test_gpu_rollouts_of_many_states_are_few_launches(host: HostDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many steps in one as there is memory for: looking at the last states waits for the device."""
    model = rd.load_urdf(own("double_pendulum"))
    batch, steps = 70_000, 6
    q, qd = np.zeros((batch, 2)), np.ones((batch, 2))
    dyn, states = rd.Dynamics(model, engine="gpu"), there(q, qd)
    found = dyn.rollout(*states, None, 1e-3, steps, save_every=None)
    assert host.launches == [("march", batch)]
    empty = host.xp.empty

    def scarce(shape: Any, dtype: Any) -> Any:
        if math.prod(shape) > 4 * batch:
            raise MemoryError
        return empty(shape, dtype)

    monkeypatch.setattr(host.xp, "empty", scarce)
    again = dyn.rollout(*states, None, 1e-3, steps, save_every=None)
    assert host.launches[1:] == [("march", batch)] * 6
    assert np.array_equal(again.q.get(), found.q.get()) and np.array_equal(again.qd.get(), found.qd.get())


def test_gpu_rollouts_ask_policies_where_states_are(arm: rd.Model, host: HostDevice) -> None:
    q, qd, _ = random_states(arm, (3,))
    dyn, reference = rd.Dynamics(arm, engine="gpu"), rd.Dynamics(arm, engine="reference")
    wanted = reference.rollout(q, qd, None, 1e-3, 4, policy=lambda t, q, qd: -qd)
    for arrays, kind in (((q, qd), np.ndarray), (there(q, qd), DeviceArray)):

        def policy(t: float, q: Any, qd: Any, kind: Any = kind) -> Any:
            assert type(q) is type(qd) is kind
            return -qd

        compare(dyn.rollout(*arrays, None, 1e-3, 4, policy=policy).q, wanted.q)
    out = (np.empty((2, 3, 7)), np.empty((2, 3, 7)))
    assert np.array_equal(dyn.rollout(q, qd, None, 1e-3, 4, save_every=None, out=out).q, out[0])


@pytest.mark.parametrize("options", [GpuOptions("warp"), GpuOptions(), GpuOptions("warp", "split")])
@pytest.mark.parametrize("robot", ["ball_joint_arm", "mimic"])
@pytest.mark.some(of=3, rest="kernels")
def test_gpu_rollouts_in_parts(robot: str, options: GpuOptions, host: HostDevice, monkeypatch: Any) -> None:
    """Where a step is no single program, its parts are, and the dynamics are any kernel between them."""
    if options == GpuOptions():

        def refused(*_: Any, **__: Any) -> Any:
            raise rd.UnavailableError("too large")

        monkeypatch.setattr(engine, "marching_kernel", refused)
    model = rd.random_tree(5, seed=2, joints=("revolute",), mimic=0.4) if robot == "mimic" else rd.load_urdf(own(robot))
    q, qd, tau = random_states(model, (3,))
    f_ext = np.random.default_rng(1).normal(size=(3, 3, model.n_bodies, 6))
    forces = {"joint_forces": ("damping", "friction")}
    dyn = rd.Dynamics(model, engine="gpu", gpu=options, **forces)
    wanted = rd.Dynamics(model, engine="reference", **forces).rollout(
        q, qd, tau, 1e-3, 3, integrator="rk4", f_ext=f_ext
    )
    found = dyn.rollout(*there(q, qd, tau), 1e-3, 3, integrator="rk4", f_ext=there(f_ext)[0])
    assert [name for name, _ in host.launches].count("part") == 3 * 5
    compare((found.q, found.qd), (wanted.q, wanted.qd), 1e-10)


@pytest.mark.parametrize("options", [GpuOptions(), GpuOptions("warp"), GpuOptions("warp", "split")])
@pytest.mark.parametrize("integrator", ["semi_implicit_euler", "implicit", "midpoint"])
@pytest.mark.some(of=6, rest="kernels")
def test_gpu_rollouts_with_coefficients_of_each_state(integrator: str, options: GpuOptions, host: HostDevice) -> None:
    """Armature that a step adds to is an input of the dynamics, also of those that are rolled; so is a moving base."""
    model = rd.random_tree(5, seed=2, joints=("revolute", "spherical"))
    q, qd, tau = random_states(model, (3,))
    rng = np.random.default_rng(1)
    given = {name: rng.uniform(0.1, 2.0, (3, model.nv)) for name in ("armature", "damping", "friction")}
    given |= {"gravity": rng.normal(size=3), "V0": rng.normal(size=(4, 3, 6)), "dV0": rng.normal(size=(3, 6))}
    wanted = rd.Dynamics(model, engine="reference").rollout(q, qd, tau, 1e-3, 4, integrator=integrator, **given)
    there_given = {name: there(array)[0] for name, array in given.items()}
    dyn = rd.Dynamics(model, engine="gpu", gpu=options)
    found = dyn.rollout(*there(q, qd, tau), 1e-3, 4, integrator=integrator, **there_given)
    compare((found.q, found.qd), (wanted.q, wanted.qd), 1e-10)
    if options == GpuOptions() or integrator != "implicit":  # which is one program, or made on arrays
        assert ("march" if options == GpuOptions() else "part") in {name for name, _ in host.launches}


@pytest.mark.parametrize("options", [GpuOptions(), GpuOptions("warp")])
def test_gpu_rollouts_with_targets_and_limits(options: GpuOptions, arm: rd.Model, host: HostDevice) -> None:
    q, qd, tau = random_states(arm, (3,))
    q = np.clip(q, arm.lower + 0.01, arm.upper - 0.01)
    given = {"kp": np.full(7, 30.0), "kd": np.full((3, 7), 2.0), "q_des": np.stack([q, q + 1.0])}
    limits = ("effort", "velocity", "position")
    for pushed in (tau, 1e3 * tau):
        wanted = rd.Dynamics(arm, engine="reference").rollout(q, qd, pushed, 1e-3, 2, limits=limits, **given)
        there_given = {name: there(array)[0] for name, array in given.items()}
        dyn = rd.Dynamics(arm, engine="gpu", gpu=options)
        found = dyn.rollout(*there(q, qd, pushed), 1e-3, 2, limits=limits, **there_given)
        compare((found.q, found.qd), (wanted.q, wanted.qd), 1e-8)


@pytest.mark.parametrize("options", [GpuOptions(), GpuOptions("warp")])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("robot", ["arm", "ball"])
@pytest.mark.some(of=8, rest="kernels")
def test_gpu_gradients_of_steps(robot: str, dtype: str, options: GpuOptions, host: HostDevice) -> None:
    """As one kernel, and by those of the dynamics with arrays between them; arrays of both kinds."""
    names = ("revolute", "spherical") if robot == "ball" else ("revolute",)
    model = rd.random_tree(4, seed=2, joints=names)
    q, qd, tau = random_states(model, (3,))
    rng = np.random.default_rng(1)
    given: dict[str, Any] = {name: rng.uniform(0.1, 2.0, (3, model.nv)) for name in ("damping", "friction", "kp")}
    given |= {"V0": rng.normal(size=(3, 6)), "q_des": model.random_configuration(rng, (3,))}
    dyn = rd.Dynamics(model, engine="gpu", gpu=options, dtype=dtype)
    cases = (("semi_implicit_euler", given), ("implicit", given), ("rk4", {"V0": given["V0"]}))
    for integrator, options_of_step in cases:
        wanted = rd.Dynamics(model, engine="reference").step_gradient(
            q, qd, tau, integrator=integrator, **options_of_step
        )
        for place in (np.asarray, lambda array: there(array)[0]):
            arrays = {name: place(array.astype(dtype)) for name, array in options_of_step.items()}
            state = (place(each.astype(dtype)) for each in (q, qd, tau))
            found = dyn.step_gradient(*state, integrator=integrator, **arrays)
            assert isinstance(found[0], DeviceArray) == (place is not np.asarray)
            compare(found, wanted, 10 * TOLERANCE[dtype])
    # A ball joint makes the program of four evaluations too large.
    assert (len(host.launches) == 6) == (options == GpuOptions() and robot == "arm")


@pytest.mark.parametrize("options", [GpuOptions(), GpuOptions("warp")])
@pytest.mark.parametrize("robot", ["arm", "joints"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.some(of=3, rest="kernels")
def test_gpu_gradients_of_rollouts(robot: str, dtype: str, options: GpuOptions, host: HostDevice) -> None:
    """Backwards by a kernel for each step, or by matrices; arrays of both kinds."""
    names = ("planar", "spherical") if robot == "joints" else ("revolute",)
    model = rd.random_tree(3, seed=2, joints=names)
    q, qd, tau = random_states(model, (3,))
    q_weight, qd_weight = np.random.default_rng(1).normal(size=(2, 6, 3, model.nv))
    arrays = {"q0": q, "qd0": qd, "tau": np.stack([tau] * 5), "q_weight": q_weight, "qd_weight": qd_weight}
    wanted = rd.Dynamics(model, engine="reference").rollout_vjp(**arrays, steps=5)
    dyn = rd.Dynamics(model, engine="gpu", gpu=options, dtype=dtype)
    for place in (np.asarray, lambda array: there(array)[0]):
        found = dyn.rollout_vjp(**{name: place(array.astype(dtype)) for name, array in arrays.items()}, steps=5)
        assert tuple(found) == tuple(wanted) == ("q0", "qd0", "tau")
        compare(tuple(found.values()), tuple(wanted.values()), 100 * TOLERANCE[dtype])


def test_gpu_programs_say_what_the_assembler_makes_of_them(arm: rd.Model, host: HostDevice) -> None:
    try:
        compiler.nvrtc()
    except rd.UnavailableError as error:
        pytest.skip(str(error))
    code = rd.Dynamics(arm, engine="gpu", dtype="float32").program("inverse_dynamics")
    (report,), (blocks,) = code.reports, code.resident_blocks
    assert 0 < report.registers <= 255 and report.spill_bytes == 0
    assert blocks * code.sources[0].block_threads * report.registers <= 65536
    assert "sm_90" in repr(code)


# What stands for CuPy: the order of what it is asked for, and the facts of arrays.


def test_a_recording_empties_its_pool_on_its_own_device() -> None:
    asked: list[str] = []

    @contextmanager
    def selected() -> Iterator[None]:
        asked.append("selected")
        yield
        asked.append("left")

    class Recorded:
        def __del__(self) -> None:
            asked.append("graph gone")

    pool = SimpleNamespace(free_all_blocks=lambda: asked.append("emptied"))
    graph = device._CudaGraph(SimpleNamespace(selected=selected), Recorded(), pool)  # type: ignore[arg-type]
    del graph
    gc.collect()
    assert asked == ["graph gone", "selected", "emptied", "left"]


def test_addresses_are_those_of_arrays_as_kernels_want_them() -> None:
    def array(dtype: str = "float32", contiguous: bool = True, number: int = 1) -> Any:
        flags, data = SimpleNamespace(c_contiguous=contiguous), SimpleNamespace(device_id=number, ptr=4096)
        return SimpleNamespace(dtype=np.dtype(dtype), flags=flags, data=data)

    here: Any = SimpleNamespace(number=1)
    address = partial(device.CudaDevice.address, here, dtype=np.dtype(np.float32))
    assert address(array()) == 4096
    assert not any(map(address, (array("float64"), array(contiguous=False), array(number=0))))


def test_kernels_of_a_query_are_compiled_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits for the others; and one that does not compile says so."""
    together = threading.Barrier(3)

    def compiled(source: str, architecture: str) -> bytes:
        together.wait(60.0)
        if source == "bad":
            raise rd.UnavailableError("bad does not compile")
        return f"{source} for {architecture}".encode()

    monkeypatch.setattr(device, "compile_cubin", compiled)
    here: Any = SimpleNamespace(architecture="sm_90", _loaded=lambda source, code: (source, code))
    found = device.CudaDevice.load_all(here, ["a", "b", "c"])  # type: ignore[list-item]
    assert found == [(name, f"{name} for sm_90".encode()) for name in "abc"]
    with pytest.raises(rd.UnavailableError, match="bad does not compile"):
        device.CudaDevice.load_all(here, ["a", "bad", "c"])  # type: ignore[list-item]
    assert device.CudaDevice.load_all(here, []) == []
