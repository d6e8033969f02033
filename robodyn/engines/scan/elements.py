"""Element arrays: spatial quantities of many bodies as one array, and operations on them in pieces.

An element array has the shape (size, n, ...): the scalars of a quantity, the bodies, and the batch. Spatial algebra
runs on it unchanged, with arrays (n, ...) as scalars. Long arrays are processed in pieces that fit in a core's cache,
because each operation on scalars is a pass over memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from robodyn.core.sweeps import flatten
from robodyn.internals.arguments import Array
from robodyn.internals.tuning import ELEMENTS_PIECE

if TYPE_CHECKING:
    from robodyn.engines.scan.cuda.device import ScanDevice


_DEVICE: ContextVar[ScanDevice | None] = ContextVar("robodyn_scan_device", default=None)


@contextmanager
def scanning_on(device: ScanDevice) -> Iterator[None]:
    """Inside `with`, steps and scans of a device's arrays run as kernels on that device, in this thread."""
    token = _DEVICE.set(device)
    try:
        yield
    finally:
        _DEVICE.reset(token)


def device_of(array: Any) -> ScanDevice | None:
    """The device of the current call, if the array is on it; else None."""
    device = _DEVICE.get()
    return device if device is not None and isinstance(array, device.xp.ndarray) else None


def library(array: Any) -> Any:
    """The module of an array's library: NumPy, or the array library of a device."""
    device = device_of(array)
    if device is not None:
        return device.xp
    if isinstance(array, np.ndarray):
        return np
    import cupy

    return cupy


def taken(elements: Array, places: Any) -> Array:
    """The elements (size, m, ...) at `places`, which are indices (m,) or a slice."""
    device = device_of(elements)
    if device is None or isinstance(places, slice):
        chosen: Array = elements[:, places]
        return chosen
    return device.taken(elements, places)


def put(elements: Array, places: Any, values: Array) -> None:
    """Assign values (size, m, ...) to the elements at `places`, which are distinct indices (m,) or a slice."""
    device = device_of(elements)
    if device is None or isinstance(places, slice):
        elements[:, places] = values
    else:
        device.put(elements, places, values)


def stored(value: Any, out: Array) -> Array:
    """Write a quantity into an element array. Its scalars are arrays or Python floats."""
    scalars, device = flatten(value), device_of(out)
    if device is None:
        for target, scalar in zip(out, scalars, strict=True):
            target[...] = scalar
        return out
    # All floats are written at once, because each assignment launches a kernel.
    numbers = tuple(scalar if isinstance(scalar, float) else 0.0 for scalar in scalars)
    out[...] = device.numbers(numbers, out.dtype).reshape(-1, *(1,) * (out.ndim - 1))
    for k, scalar in enumerate(scalars):
        if not isinstance(scalar, float):
            out[k] = scalar
    return out


def mapped(step: Callable[..., Any], size: int, *arrays: Array, out: Array | None = None) -> Array:
    """step(a, b, ...) of arrays (k, n, ...), computed in pieces along n, as an array (size, n, ...).

    `step` gets arrays (k, m, ...) with m <= n and returns a quantity of `size` scalars. Axes after the first broadcast.
    """
    xp = library(arrays[0])
    n, *trailing = np.broadcast_shapes(*(array.shape[1:] for array in arrays))
    if out is None:
        out = xp.empty((size, n, *trailing), arrays[0].dtype)
    rows = n if xp is not np else max(1, ELEMENTS_PIECE // max(1, prod(trailing)))
    for start in range(0, n, max(rows, 1)):
        piece = slice(start, start + rows)
        stored(step(*(a if a.shape[1] == 1 else a[:, piece] for a in arrays)), out[:, piece])
    return out
