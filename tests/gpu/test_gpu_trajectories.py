"""Trajectories on the GPU engine: its backward pass beside the CPU engine's, from the same text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpu_host import ORDERS, missing
from gpu_host.arrays import _device, _plain
from gpu_host.device import HostDevice

from robodyn.engines.gpu.source import KernelSource
from robodyn.solve.trajectories.backward import BackwardPass
from robodyn.solve.trajectories.backward_kernel import backward_source

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "it runs")
ROUNDING = {"float64": 1e-12, "float32": 1e-5}


def problems(rng: Any, nv: int, nu: int, steps: int, batch: int, dtype: str) -> dict[str, Any]:
    """Steps near the identity, positive definite costs, gaps, mu, and bounds; knots before problems."""
    n, many = 2 * nv, (steps, batch)

    def definite(*shape: int) -> Any:
        root = rng.normal(size=(*shape, shape[-1]))
        return root @ root.swapaxes(-1, -2) + 0.1 * np.eye(shape[-1])

    given = {
        "A": np.eye(n) + 0.3 * rng.normal(size=(*many, n, n)),
        "B": rng.normal(size=(*many, n, nu)),
        "gap": 0.1 * rng.normal(size=(*many, n)),
        "lx": rng.normal(size=(*many, n)),
        "lu": rng.normal(size=(*many, nu)),
        "lxx": definite(*many, n),
        "luu": definite(*many, nu),
        "vx": rng.normal(size=(batch, n)),
        "vxx": definite(batch, n),
        "mu": rng.uniform(0.0, 1.0, batch),
        "lower": -rng.uniform(0.0, 0.3, (*many, nu)),
        "upper": rng.uniform(0.0, 0.3, (*many, nu)),
    }
    return {name: np.ascontiguousarray(array, dtype) for name, array in given.items()}


def launched(device: HostDevice, source: KernelSource, arrays: dict[str, Any], rows: int, *numbers: int) -> list[Any]:
    """Results of a kernel on two blocks."""
    held = [*(arrays[name] for name in (*source.inputs, *source.outputs)), *source.constants]
    scratch = np.full(source.workspace(2), np.nan, source.dtype)
    there = [*map(_device, held), _device(scratch) if scratch.size else None]
    device.load(source).launch(2, there, rows, numbers)
    return [_plain(each) for each in there[len(source.inputs) :][: len(source.outputs)]]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("box", [True, False])
@pytest.mark.some(of=4, rest="kernels")
def test_gpu_backward_pass_is_that_of_the_cpu(box: bool, dtype: str) -> None:
    """A warp for a problem: in shared memory and in global memory, in each order of threads, and rows that fail."""
    rng, batch = np.random.default_rng(5), 2
    for order, (nv, nu, steps), room in zip(ORDERS, ((3, 2, 3), (2, 3, 2), (14, 4, 1)), (48 << 10, 0, 0), strict=True):
        given = problems(rng, nv, nu, steps, batch, dtype)
        given["A"][-1, 1, 0, 0] = np.nan
        source = backward_source(2 * nv, nu, np.dtype(dtype), room, gap=True, box=box)
        assert bool(source.workspace_scalars) is not bool(source.shared_bytes)
        shapes = {"k": (steps, batch, nu), "K": (steps, batch, nu, 2 * nv), "expected": (batch, 2)}
        empty = {name: np.full(shape, np.inf, dtype) for name, shape in shapes.items()}
        found = launched(HostDevice(order), source, {**given, **empty}, batch, batch, 0, steps)
        plain = {
            name: array if name in ("vx", "vxx", "mu") else array.swapaxes(0, 1)
            for name, array in given.items()
            if box or name not in ("lower", "upper")
        }
        zero = np.zeros((1, 1, nu, 2 * nv))
        *wanted, ok = BackwardPass(nv, nu, steps, dtype=dtype, box=box)(**plain, lux=zero)
        assert ok.tolist() == [True, False]
        for one, each in zip((found[0].swapaxes(0, 1), found[1].swapaxes(0, 1), found[2]), wanted, strict=True):
            np.testing.assert_allclose(one, each, rtol=0.0, atol=ROUNDING[dtype] * np.abs(each[ok]).max())
