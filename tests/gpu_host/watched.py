"""Kernels run once, for compute-sanitizer, which watches a process: `python watched.py QUERY PARTITION`, `python
watched.py systems elimination`, `python watched.py scans bush`, or `python watched.py planted TOOL`, whose mistake that
tool must find."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import robodyn as rd
from robodyn.engines.gpu.device import Device, default_device
from robodyn.engines.gpu.rolled_kernels import rolled_kernels
from robodyn.engines.gpu.source import KernelSource
from robodyn.engines.gpu.unrolled_chains import unrolled_kernels
from robodyn.engines.gpu.unrolled_kernels import unrolled_kernel

SAID = "kernels have run"
FAR = {"memcheck": 1 << 40, "racecheck": 0}
"""How far beyond its array the planted kernel writes."""
_THREADS = 64


def main(what: str, how: str, device: Device) -> None:
    """Run kernels of a query on a small robot, or the planted one."""
    if what == "planted":
        _launch(device, planted(FAR[how]))
    elif what == "systems":
        _eliminate(device)
    elif what == "scans":
        _scan(device)
    else:
        from gpu_host.cases import check

        model = rd.load_urdf(Path(__file__).resolve().parents[2] / "models" / "gripper.urdf")
        task, dtype = rd.Dynamics(model, engine="reference").plain_task(what), np.dtype(np.float64)
        if how == "unrolled":  # with a window, and solves by columns where there are some
            sources = unrolled_kernels(model, task, dtype, fusion="split")
            long = rd.Dynamics(model, engine="reference").plain_task("regressor")
            windowed = unrolled_kernel(model, long, dtype, shared_bytes=2 * 32 * 35 * dtype.itemsize)
            assert "kernel_flush" in windowed.text.partition("extern")[2]
            check([windowed], model, long, batch=70, orders=("forward",), on=device)
            odd = rd.auto_tree(9, branching=3.0, skew=0.3)  # rows of 81, which are written by lines
            square = rd.Dynamics(odd, engine="reference").plain_task("inverse_dynamics_gradient")
            lines = unrolled_kernel(odd, square, dtype, shared_bytes=32 * 160 * dtype.itemsize)
            assert "kernel_flush_lines" in lines.text.partition("extern")[2]
            check([lines], odd, square, batch=70, orders=("forward",), on=device)
        else:
            sources = rolled_kernels(model, task, dtype, partition=how)
        check(sources, model, task, batch=3, orders=("forward",), on=device)
    print(SAID)


def planted(far: int) -> KernelSource:
    """Threads read what others write into shared memory, without a barrier; and they write `far` beyond an array."""
    text = f"""\
extern "C" __global__ void planted(const double* given, double* left, double* workspace, long long rows)
{{
    __shared__ double all[{_THREADS}];
    all[threadIdx.x] = given[threadIdx.x];
    left[threadIdx.x + {far}LL] = all[{_THREADS - 1} - threadIdx.x];
}}
"""
    return KernelSource("planted", text, np.dtype(np.float64), ("given",), ("left",), block_threads=_THREADS)


def _launch(device: Device, source: KernelSource) -> Any:
    given, left = (device.xp.asarray(np.full(_THREADS, 0.5)) for _ in range(2))
    device.load(source).launch(1, [given, left, None], _THREADS)
    device.settle()


def _scan(device: Device) -> None:
    """Queries that scans answer, of a tree whose paths share launches, and of a chain of several stretches."""
    from conftest import random_states, relative

    from robodyn.engines.scan.cuda.engine import GpuScanEngine

    for model in (rd.auto_tree(70, branching=2.0, skew=0.3), rd.auto_tree(100, skew=0.3)):
        scan, judge = rd.Dynamics(model, engine="scan"), rd.Dynamics(model, engine="cpu")
        scan.engine._there = GpuScanEngine(model, scan.dtype, None, device)  # type: ignore[attr-defined]
        states = random_states(model, (2,))
        there = [device.xp.asarray(each) for each in states]
        for query, given in (("inverse_dynamics", 3), ("mass_matrix", 1), ("inverse_dynamics_gradient", 3)):
            found, wanted = (getattr(dyn, query)(*of[:given]) for dyn, of in ((scan, there), (judge, states)))
            first, right = (each[0] if isinstance(each, tuple) else each for each in (found, wanted))
            assert relative(device.xp.asnumpy(first), right) < 1e-10, query
        sparse = scan.mass_matrix(there[0][0], sparse=True)
        assert relative(device.xp.asnumpy(sparse.data), judge.mass_matrix(states[0][0], sparse=True).data) < 1e-10
        qdd = device.xp.asnumpy(scan.forward_dynamics(*there, method="aba_scan"))
        assert relative(judge.inverse_dynamics(*states[:2], qdd), states[2]) < 1e-8


def _eliminate(device: Device) -> None:
    """Systems that fill places of a tile, and longer ones, solved and refined."""
    from robodyn.engines.scan.cuda.device import ScanDevice
    from robodyn.engines.scan.elements import scanning_on
    from robodyn.engines.scan.systems.odd_even import odd_even_refined
    from robodyn.engines.scan.trees.prefix_scans import Segments

    segments, rng = Segments([5, 1, 5, 9, 40]), np.random.default_rng(0)
    D, U, R = (rng.uniform(-1, 1, (5, columns, segments.n, 3)) for columns in (5, 5, 7))
    D = np.einsum("rcnb,rdnb->cdnb", D, D) + 20.0 * np.eye(5)[..., None, None]
    with scanning_on(ScanDevice(device)):
        found = odd_even_refined(*map(device.xp.asarray, (D, U, R)), segments)
    assert np.isfinite(device.xp.asnumpy(found)).all()


if __name__ == "__main__":
    import cupy

    cupy.cuda.set_allocator(None)  # each array in memory of its own, so that what lies behind it is unused
    main(sys.argv[1], sys.argv[2], default_device())
