"""Elements that are taken from places and put there by a kernel, against NumPy's indexing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpu_host import missing
from gpu_host.device import HostDevice

from robodyn.engines.gpu.device import default_device
from robodyn.engines.scan.cuda.device import ScanDevice
from robodyn.engines.scan.elements import put, scanning_on, taken

on_host = pytest.mark.skipif(bool(missing()), reason=missing() or "it runs")


@pytest.fixture(params=[pytest.param("host", marks=on_host), pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Any:
    return HostDevice() if request.param == "host" else default_device()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("shape", [(1, 1, 1), (6, 40, 1), (24, 333, 3), (5, 7, 40), (3, 50), (2, 30, 2, 3)])
def test_elements_are_taken_and_put_as_numpy_does(device: Any, shape: tuple[int, ...], dtype: str) -> None:
    rng = np.random.default_rng(1)
    n, near = shape[1], rng.normal(size=shape).astype(dtype)
    place = ScanDevice(device)
    for places in (rng.permutation(n)[: 1 + n // 2], rng.permutation(n) - n, np.arange(0)):
        values = rng.normal(size=(shape[0], places.size, *shape[2:])).astype(dtype)
        far, there = device.xp.asarray(near), device.constant(places.astype(np.int64))
        with scanning_on(place):
            got = taken(far, there)
            rows = taken(far[1:], there)  # a view, which is strided
            put(far, there, device.xp.asarray(values))
            one = device.xp.asarray(near)
            put(one, there, device.xp.asarray(near[:, :1]))
        wanted, alike = near.copy(), near.copy()
        wanted[:, places] = values
        alike[:, places] = near[:, :1]
        assert np.array_equal(device.xp.asnumpy(got), near[:, places])
        assert np.array_equal(device.xp.asnumpy(rows), near[1:, places])
        assert np.array_equal(device.xp.asnumpy(far), wanted) and np.array_equal(device.xp.asnumpy(one), alike)


@pytest.mark.parametrize("places", [slice(3, 9), slice(None)])
def test_slices_are_left_to_the_library(places: slice) -> None:
    elements = np.arange(40.0).reshape(2, 20)
    assert np.shares_memory(taken(elements, places), elements)
    put(elements, places, np.zeros((2, 1)))
    assert not elements[:, places].any() and elements[0, 19] == (0.0 if places == slice(None) else 19.0)
