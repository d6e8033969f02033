"""The GPU engine on a GPU: its kernels, batches, arrays, streams and graphs, beside the reference engine.

What is about the engine runs on the host as well, on a fake device and smaller robots, so that these tests are
tried where there is no GPU.
"""

from __future__ import annotations

import gc
import itertools
import multiprocessing
import os
import threading
import time
import warnings
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import test_gpu_unrolled as unrolled
from conftest import TOLERANCE, random_states, relative
from gpu_host import missing
from gpu_host.cases import check, rolled_kernel
from gpu_host.device import HostDevice
from robots import own
from test_dynamics import as_tuple, queries

import robodyn as rd
from robodyn.algorithms.crba import CRBA
from robodyn.algorithms.forward_gradient import forward_gradient
from robodyn.algorithms.tasks import Task, with_identity_seeds
from robodyn.description import JOINT_TYPES
from robodyn.engines.gpu import GpuOptions, engine, staging
from robodyn.engines.gpu.device import Device, default_device
from robodyn.engines.gpu.options import FUSIONS, KERNELS
from robodyn.engines.gpu.rolled_kernels import rolled_kernels
from robodyn.engines.gpu.unrolled_chains import unrolled_kernels
from robodyn.engines.gpu.unrolled_kernels import print_program
from robodyn.engines.query_table import QUERIES, plain_questions

DTYPES = ("float64", "float32")
PARTITIONS = ("thread", "warp", "block")
DOUBLE = np.dtype(np.float64)
ENGINES: tuple[Any, ...] = ("gpu", "reference")
on_gpu = pytest.mark.gpu
on_host = pytest.mark.skipif(bool(missing()), reason=missing() or "it runs")

# What is solved with H carries its condition number besides, up to 1e5 here.
SOLVED = {"float64": 1e-9, "float32": 1e-3}
SOAK_S = float(os.environ.get("ROBODYN_SOAK_S", "60"))
"""How long robots come and go on a GPU."""


@dataclass(frozen=True)
class Place:
    """A device, a robot for it, and how to bring arrays there and back."""

    device: Device
    model: rd.Model

    def put(self, *arrays: Any) -> tuple[Any, ...]:
        """Copies on the device."""
        return tuple(self.device.xp.asarray(np.array(array)) for array in arrays)

    def dynamics(self, **options: Any) -> rd.Dynamics:
        """Of the robot, on the device."""
        return rd.Dynamics(self.model, engine="gpu", **options)

    def same(self, got: Any, wanted: Any, tolerance: float = SOLVED["float64"]) -> None:
        """Compare arrays of any kind."""
        for one, other in zip(as_tuple(got), as_tuple(wanted), strict=True):
            one = self.device.xp.asnumpy(one) if isinstance(one, self.device.xp.ndarray) else one
            assert relative(one, other) < tolerance


@pytest.fixture(params=[pytest.param("host", marks=on_host), pytest.param("cuda", marks=on_gpu)])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Where engines of a test run."""
    if request.param == "cuda":
        return Place(default_device(), rd.load_urdf(own("arm7")))
    host = HostDevice()
    monkeypatch.setattr(engine, "default_device", lambda: host)
    return Place(host, rd.random_tree(3, seed=1, joints=("revolute",)))


@pytest.fixture(scope="module")
def cuda() -> Device:
    return default_device()


def task_of(model: rd.Model, query: str) -> Task:
    return rd.Dynamics(model, engine="reference").plain_task(query)


def robot(name: str) -> rd.Model:
    stem, _, base = name.partition(" ")
    return rd.load_urdf(own(stem), base=base or "fixed")


# Kernels: the cases that run on the host, on the GPU.


@on_host
def test_gpu_device_runs_kernels_as_the_host_does() -> None:
    model = rd.random_tree(3, seed=1, joints=("revolute",))
    task = forward_gradient(("q", "qd", "tau"))
    for fusion in ("complete", "split"):
        sources = rolled_kernels(model, task, DOUBLE, fusion=fusion, partition="warp")
        check(sources, model, task, batch=3, orders=("forward",), tolerance=SOLVED["float64"], on=HostDevice())


@on_gpu
@pytest.mark.parametrize("dtype,group", [(dtype, group) for dtype in DTYPES for group in unrolled.groups(dtype)])
def test_gpu_device_runs_unrolled_kernels(cuda: Device, dtype: str, group: str) -> None:
    for case in unrolled.cases(dtype, group):
        name = unrolled.kernel_name(case)
        source = print_program(case.program, np.dtype(dtype), name, **dict(case.options))
        allowed = max(case.tolerance(dtype), TOLERANCE[dtype])
        options = {"base": case.base, "link": case.link, "tolerance": allowed}
        check([source], case.model, case.task, batch=127, orders=("first", "again"), on=cuda, **options)


@on_gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["arm7", "gripper", "ball_joint_arm", "quadruped floating"])
def test_gpu_device_runs_unrolled_kernels_of_gradients_in_parts(cuda: Device, name: str, dtype: str) -> None:
    model, task = robot(name), forward_gradient(("q", "qd", "tau"))
    sources = unrolled_kernels(model, task, np.dtype(dtype), fusion="split")
    for batch in (1, 1000):
        options = {"orders": ("first", "again"), "on": cuda, "tolerance": SOLVED[dtype]}
        check(sources, model, task, batch=batch, **options)  # type: ignore[arg-type]


@on_gpu
@pytest.mark.parametrize("query", sorted(plain_questions()))
@pytest.mark.parametrize(
    ("name", "partition"),
    [("hand", "block"), ("humanoid floating", "block"), ("ball_joint_arm", "warp"), ("massless_chain", "thread")],
)
def test_gpu_device_runs_rolled_kernels_of_every_query(cuda: Device, name: str, partition: str, query: str) -> None:
    model = robot(name)
    task = task_of(model, query)
    allowed = SOLVED["float64"] if query.startswith("forward_dynamics") else TOLERANCE["float64"]
    source = rolled_kernel(model, task, DOUBLE, partition=partition)
    check([source], model, task, batch=70, tolerance=allowed, on=cuda)


@on_gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize("query", ["inverse_dynamics", "forward_dynamics", "forward_dynamics_gradient"])
def test_gpu_device_runs_rolled_kernels_of_every_tree(cuda: Device, query: str, partition: str, dtype: str) -> None:
    shapes = itertools.cycle(("random", "chain", "star", "binary"))
    for n, shape in zip((1, 2, 3, 5, 16, 31, 32, 33, 64), shapes, strict=False):
        model = rd.random_tree(n, seed=n, shape=shape, joints=("revolute",), armature=True)
        task = task_of(model, query)
        source = rolled_kernel(model, task, np.dtype(dtype), partition=partition, shared_bytes=cuda.shared_bytes)
        check([source], model, task, batch=33, tolerance=SOLVED[dtype], on=cuda)


@on_gpu
@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize("query", ["inverse_dynamics", "forward_dynamics", "inverse_dynamics_gradient"])
def test_gpu_device_runs_rolled_kernels_of_every_joint_kind(cuda: Device, query: str, partition: str) -> None:
    model = rd.random_tree(17, seed=4, joints=JOINT_TYPES, armature=True)
    task = task_of(model, query)
    source = rolled_kernel(model, task, DOUBLE, partition=partition)
    check([source], model, task, batch=33, tolerance=SOLVED["float64"], on=cuda)
    mimic = rd.random_tree(24, seed=6, joints=("revolute",), mimic=0.4)
    for task in (CRBA, task_of(mimic, query)):
        source = rolled_kernel(mimic, task, DOUBLE, partition=partition)
        check([source], mimic, task, batch=33, tolerance=SOLVED["float64"], on=cuda)


@on_gpu
@pytest.mark.parametrize("partition", PARTITIONS)
def test_gpu_device_runs_chains_and_unit_vectors(cuda: Device, partition: str) -> None:
    model = robot("gripper")
    task = forward_gradient(("q", "qd", "tau"))
    for fusion in FUSIONS:
        sources = rolled_kernels(model, task, DOUBLE, fusion=fusion, partition=partition)
        check(sources, model, task, batch=33, tolerance=SOLVED["float64"], on=cuda)
    model = robot("double_pendulum")
    units = with_identity_seeds(task_of(model, "inverse_dynamics_hessian"))
    check([rolled_kernel(model, units, DOUBLE, partition=partition)], model, units, batch=33, on=cuda)


@on_gpu
@pytest.mark.parametrize("partition", PARTITIONS)
def test_gpu_device_takes_any_grid_and_any_room(cuda: Device, partition: str) -> None:
    model = robot("arm7")
    task = task_of(model, "forward_dynamics_gradient")
    for room, (batch, blocks) in zip((48 << 10, 8 << 10, 0), ((0, 1), (5, 3), (1000, 2)), strict=True):
        source = rolled_kernel(model, task, DOUBLE, partition=partition, block_threads=64, shared_bytes=room)
        check([source], model, task, batch=batch, blocks=blocks, tolerance=SOLVED["float64"], on=cuda)


# Queries through the engine.


@on_gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kernel", ["auto", *KERNELS])
@pytest.mark.parametrize("name", QUERIES)
def test_gpu_device_answers_every_query(cuda: Device, name: str, kernel: str, dtype: str) -> None:
    model = rd.random_tree(5, seed=8, joints=("revolute", "prismatic"), armature=True)
    states = random_states(model, (33,))
    wanted = queries(rd.Dynamics(model, engine="reference"), *states)[name][0]()
    dyn = rd.Dynamics(model, engine="gpu", dtype=dtype, gpu=GpuOptions(kernel))
    Place(cuda, model).same(queries(dyn, *states)[name][0](), wanted, SOLVED[dtype])


@pytest.mark.parametrize("batch", [0, 1, 5, 1000])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.some(of=3, rest="kernels")
def test_gpu_device_takes_any_batch(place: Place, dtype: str, batch: int) -> None:
    states = random_states(place.model, (batch,))
    dyn, reference = place.dynamics(dtype=dtype), rd.Dynamics(place.model, engine="reference")
    for query in ("inverse_dynamics", "mass_matrix", "forward_dynamics_gradient"):
        given = states[:1] if query == "mass_matrix" else states
        wanted = getattr(reference, query)(*given)
        place.same(getattr(dyn, query)(*given), wanted, SOLVED[dtype])
        answer = getattr(dyn, query)(*place.put(*given))
        assert all(isinstance(each, place.device.xp.ndarray) for each in as_tuple(answer))
        place.same(answer, wanted, SOLVED[dtype])


def test_gpu_device_takes_forces_bases_and_inertias(place: Place) -> None:
    model, rng = place.model, np.random.default_rng(2)
    states = random_states(model, (5,))
    options = {
        "f_ext": rng.normal(size=(5, model.n_bodies, 6)),
        "inertia": model.inertia * (1.0 + 0.1 * rng.random((5, model.n_bodies, 10))),
        "V0": rng.normal(size=6),
        "dV0": rng.normal(size=(5, 6)),
    }
    moved = dict(zip(options, place.put(*options.values()), strict=True))
    wanted = rd.Dynamics(model, engine="reference").inverse_dynamics(*states, **options)
    place.same(place.dynamics().inverse_dynamics(*states, **options), wanted)
    place.same(place.dynamics().inverse_dynamics(*place.put(*states), **moved), wanted)


def test_gpu_device_overlaps_pieces_of_large_batches(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    model = place.model
    if isinstance(place.device, HostDevice):
        monkeypatch.setattr(staging, "PIECE_BYTES", 30 * 3 * model.nv * 8)
    row = 3 * model.nv * 8
    batch = 5 * staging.PIECE_BYTES // (2 * row) + 7
    distinct = random_states(model, (64,))
    states = [np.resize(each, (batch, each.shape[1])) for each in distinct]
    wanted = np.resize(rd.Dynamics(model, engine="reference").inverse_dynamics(*distinct), (batch, model.nv))
    dyn, out = place.dynamics(), np.full((batch, model.nv), np.nan)
    for _ in range(2):
        place.same(dyn.inverse_dynamics(*states, out=out), wanted)
        out[...] = np.nan


def test_gpu_device_keeps_nan_in_its_row(place: Place) -> None:
    states = random_states(place.model, (40,))
    for kernel in KERNELS:
        dyn = place.dynamics(gpu=GpuOptions(kernel))
        right = dyn.forward_dynamics(*states)
        bad = [each.copy() for each in states]
        bad[0][7, 1] = bad[2][30, 0] = np.nan
        for arrays in (bad, place.put(*bad)):
            got = np.array(dyn.forward_dynamics(*arrays).tolist())
            assert np.isnan(got[7]).any() and np.isnan(got[30]).any()
            assert np.array_equal(np.delete(got, (7, 30), 0), np.delete(right, (7, 30), 0))


def test_gpu_device_fills_what_out_says(place: Place) -> None:
    states, nv = random_states(place.model, (5,)), place.model.nv
    dyn = place.dynamics()
    wanted = rd.Dynamics(place.model, engine="reference").inverse_dynamics(*states)
    q, qd, qdd, out, wide = place.put(*states, np.full((5, nv), np.nan), np.full((10, nv), np.nan))
    assert dyn.inverse_dynamics(q, qd, qdd, out=out) is out
    place.same(out, wanted)
    dyn.inverse_dynamics(q, qd, qdd, out=wide[::2])
    place.same(wide[::2], wanted)
    assert np.isnan(np.array(wide[1::2].tolist())).all()
    assert dyn.inverse_dynamics(q, qd, qdd, out=qdd) is qdd  # its own input
    place.same(qdd, wanted)


def test_gpu_device_replays_recorded_calls(place: Place) -> None:
    dyn, reference = place.dynamics(), rd.Dynamics(place.model, engine="reference")
    q, qd, tau = place.put(*random_states(place.model, (4,)))
    for options in (GpuOptions(), GpuOptions("warp", "split"), GpuOptions("thread", "fused")):
        step = place.dynamics(gpu=options).capture("forward_dynamics_gradient", q, qd, tau)
        for seed in range(3):
            states = random_states(place.model, (4,), seed)
            for array, value in zip((q, qd, tau), place.put(*states), strict=True):
                array[...] = value
            place.same(step(), reference.forward_dynamics_gradient(*states))
    (out,) = place.put(np.full((4, place.model.nv), np.nan))
    assert dyn.capture("inverse_dynamics", q, qd, tau, out=out)() is out
    place.same(out, reference.inverse_dynamics(*states))


def test_gpu_device_serves_several_threads(place: Place) -> None:
    dyn, reference = place.dynamics(), rd.Dynamics(place.model, engine="reference")
    states = [random_states(place.model, (20,), seed=k) for k in range(4)]
    wanted = [reference.inverse_dynamics(*each) for each in states]
    worst = [0.0] * 4
    if isinstance(place.device, HostDevice):
        dyn.inverse_dynamics(*states[0])  # the host's compiler is asked by one thread at a time

    def work(k: int) -> None:
        for _ in range(20):
            worst[k] = max(worst[k], relative(dyn.inverse_dynamics(*states[k]), wanted[k]))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert max(worst) < 1e-11


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_gpu_device_refuses_to_work_in_the_child_of_a_fork(place: Place) -> None:
    dyn, states = place.dynamics(), random_states(place.model, (2,))
    dyn.inverse_dynamics(*states)

    def child(pipe: Any) -> None:
        try:
            dyn.inverse_dynamics(*states)
        except rd.UnavailableError as error:
            pipe.send(str(error))

    context = multiprocessing.get_context("fork")
    here, far = context.Pipe()
    process = context.Process(target=child, args=(far,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns of forks beside threads
        process.start()
    assert here.poll(60) and "made before this process was forked" in here.recv()
    process.join()


def test_gpu_device_answers_auto_where_arrays_are(place: Place) -> None:
    states = random_states(place.model, (3,))
    dyn = rd.Dynamics(place.model)
    assert dyn.engine.name == "cpu"
    answer = dyn.forward_dynamics(*place.put(*states))
    assert isinstance(answer, place.device.xp.ndarray)
    place.same(answer, dyn.forward_dynamics(*states))


# What only CUDA has.


@on_gpu
def test_gpu_device_works_in_the_order_of_the_current_stream(cuda: Device) -> None:
    """Arguments are written on a stream that nothing waits for, behind work that takes long."""
    model, xp = robot("arm7"), cuda.xp
    dyn, reference = rd.Dynamics(model, engine="gpu"), rd.Dynamics(model, engine="reference")
    states = [random_states(model, (1000,), seed) for seed in range(2)]
    arrays = [[xp.asarray(each) for each in found] for found in states]
    dyn.forward_dynamics(*arrays[0])
    streams = [xp.cuda.Stream(non_blocking=True) for _ in states]
    matrix, answers = xp.ones((2000, 2000)), []
    xp.cuda.get_current_stream().synchronize()
    for stream, mine in zip(streams, arrays, strict=True):
        with stream:
            late = [xp.zeros_like(each) for each in mine]
            slow = matrix
            for _ in range(200):
                slow = slow * 1.0
            for array, each in zip(late, mine, strict=True):
                array[...] = each * slow[0, 0]
            answers.append(dyn.forward_dynamics(*late))
    for stream, answer, found in zip(streams, answers, states, strict=True):
        stream.synchronize()
        assert relative(xp.asnumpy(answer), reference.forward_dynamics(*found)) < SOLVED["float64"]


@on_gpu
def test_gpu_device_records_on_any_stream(cuda: Device) -> None:
    model, xp = robot("arm7"), cuda.xp
    states = random_states(model, (16,))
    wanted = rd.Dynamics(model, engine="reference").forward_dynamics(*states)
    arrays = [xp.asarray(each) for each in states]
    step = rd.Dynamics(model, engine="gpu").capture("forward_dynamics", *arrays)
    stream = xp.cuda.Stream(non_blocking=True)
    xp.cuda.get_current_stream().synchronize()
    with stream:
        step.results[...] = np.nan
        answer = step()
    stream.synchronize()
    assert relative(xp.asnumpy(answer), wanted) < SOLVED["float64"]


@on_gpu
def test_gpu_device_replays_joint_forces(cuda: Device) -> None:
    """What a gradient has of damping and friction is added within the recording."""
    model = robot("arm7")
    dyn, reference = (rd.Dynamics(model, engine=each, joint_forces=("damping", "friction")) for each in ENGINES)
    arrays = [cuda.xp.asarray(each) for each in random_states(model, (4,))]
    steps = {query: dyn.capture(query, *arrays) for query in ("inverse_dynamics", "forward_dynamics_gradient")}
    for seed in range(2):
        states = random_states(model, (4,), seed)
        for array, value in zip(arrays, states, strict=True):
            array[...] = cuda.xp.asarray(value)
        for query, step in steps.items():
            Place(cuda, model).same(step(), getattr(reference, query)(*states))


@on_gpu
def test_gpu_device_reads_arrays_of_others(cuda: Device) -> None:
    model, xp = robot("arm7"), cuda.xp
    states = random_states(model, (6,))
    dyn = rd.Dynamics(model, engine="gpu")
    wanted = rd.Dynamics(model, engine="reference").inverse_dynamics(*states)
    arrays = [xp.asarray(each) for each in states]
    by_interface = [SimpleNamespace(__cuda_array_interface__=each.__cuda_array_interface__) for each in arrays]
    assert relative(xp.asnumpy(dyn.inverse_dynamics(*by_interface)), wanted) < TOLERANCE["float64"]

    class Tensor:
        """Knows DLPack and nothing else."""

        def __init__(self, array: Any) -> None:
            self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__

    assert relative(xp.asnumpy(dyn.inverse_dynamics(*map(Tensor, arrays))), wanted) < TOLERANCE["float64"]


@on_gpu
def test_gpu_device_reads_tensors_of_torch(cuda: Device) -> None:
    torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")
    if not torch.cuda.is_available():
        pytest.skip("this PyTorch finds no GPU")
    model = robot("arm7")
    states = random_states(model, (6,))
    wanted = rd.Dynamics(model, engine="reference").forward_dynamics(*states)
    tensors = [torch.from_numpy(each).cuda() for each in states]
    torch.cuda.synchronize()
    dyn, out = rd.Dynamics(model, engine="gpu"), torch.full((6, model.nv), torch.nan, dtype=torch.float64).cuda()
    torch.cuda.synchronize()
    answer = dyn.forward_dynamics(*tensors)
    assert relative(cuda.xp.asnumpy(answer), wanted) < SOLVED["float64"]
    dyn.forward_dynamics(*tensors, out=out)
    cuda.settle()
    assert relative(out.cpu().numpy(), wanted) < SOLVED["float64"]


@on_gpu
def test_gpu_device_refuses_arrays_of_another_gpu(cuda: Device) -> None:
    xp = cuda.xp
    if xp.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("one GPU")
    with xp.cuda.Device(1):
        far = xp.zeros((2, 7))
    with xp.cuda.Device(0):
        dyn = rd.Dynamics(robot("arm7"), engine="gpu")
    with pytest.raises(rd.ArgumentError, match="q: got an array on GPU 1; wanted one on the GPU of this Dynamics"):
        dyn.mass_matrix(far)


@on_gpu
@pytest.mark.parametrize("kernel", ["unrolled", "warp"])
def test_gpu_device_takes_the_memory_of_a_recording_back(cuda: Device, kernel: str) -> None:
    """Matrices between kernels are the recording's own; CuPy's pool, left to itself, would keep them for ever."""
    dyn = rd.Dynamics(robot("arm7"), engine="gpu", gpu=GpuOptions(kernel, "split"))
    arrays = [cuda.xp.asarray(np.resize(each, (1000, each.shape[1]))) for each in random_states(dyn.model, (50,))]
    step = dyn.capture("forward_dynamics_gradient", *arrays)
    step()
    cuda.settle()
    memory: Any = step._graph._memory  # type: ignore[attr-defined]
    assert memory.total_bytes() >= 1000 * dyn.model.nv**2 * 8
    del step
    gc.collect()
    assert memory.total_bytes() == 0


SOAKED = (GpuOptions(), GpuOptions("warp", "split"), GpuOptions("unrolled", "split"))


@on_gpu
@pytest.mark.nightly
def test_gpu_device_gives_all_memory_back(cuda: Device) -> None:
    """Robots, batches, streams and recordings come and go for `SOAK_S` seconds: the device has as much memory left."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        pytest.skip("other processes take memory of the GPU, too; this wants it for itself")
    xp, left = cuda.xp, []
    end = time.monotonic() + SOAK_S
    for turn in itertools.count():
        model = rd.random_tree(6, seed=turn % 4, joints=("revolute", "prismatic"))
        dyn = rd.Dynamics(model, engine="gpu", dtype=DTYPES[turn % 2], gpu=SOAKED[turn % 3])
        for batch in (1, 1000, 100_000):
            states = [np.resize(each, (batch, each.shape[1])).astype(dyn.dtype) for each in random_states(model, (50,))]
            arrays = [xp.asarray(each) for each in states]
            cuda.settle()
            with xp.cuda.Stream(non_blocking=True) as stream:
                step = dyn.capture("forward_dynamics_gradient", *arrays)
                found = step()[0][-1] + dyn.forward_dynamics_gradient(*arrays)[0][-1]
                dyn.inverse_dynamics(*states)
                stream.synchronize()
            assert np.isfinite(found.get()).all()
        del dyn, step, arrays, found
        gc.collect()
        xp.get_default_memory_pool().free_all_blocks()
        xp.get_default_pinned_memory_pool().free_all_blocks()
        left.append(cuda.free_bytes())
        if turn >= 32 and time.monotonic() > end:
            break
    # Once each robot has been there with all kernels, in both precisions, everything that is kept for ever is there.
    assert left[-1] >= left[16] - (8 << 20), [each >> 20 for each in left]
