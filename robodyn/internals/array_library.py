"""Array libraries of calls: NumPy, or one on a device."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Protocol

import numpy as np

from robodyn.internals.arguments import Array, as_array, output_array
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import brief

_DEVICES = (2, 13)
"""DLPack's device types for CUDA memory: device memory and managed memory."""


class Library(Protocol):
    """The functions of an array library that a call needs.

    `xp`: the library's namespace with NumPy's names. `on_device`: True if reading a value waits for a device.
    """

    @property
    def xp(self) -> Any:
        """The namespace."""

    @property
    def on_device(self) -> bool:
        """True if arrays are in the memory of a device."""

    def array(self, name: str, value: Any, wanted: str) -> Array:
        """An argument as an array of the library.

        Raises:
            ArgumentError: it is not an array and cannot be converted; `wanted` ends the message.
        """

    def output(self, name: str, given: Any, shape: tuple[int, ...], dtype: Any) -> Array:
        """An array that shares the memory of `given` and can take a result.

        Raises:
            ArgumentError: `given` is not an array of this shape and dtype.
        """

    def like_numpy(self, array: Array) -> Array:
        """A NumPy array, converted to the library."""

    def constant(self, array: Array) -> Array:
        """Like `like_numpy`, but cached for all calls: for small arrays that rarely change."""

    def to_numpy(self, array: Array) -> Array:
        """An array of the library as a NumPy array."""


class NumpyArrays:
    """Arrays of NumPy."""

    xp: Any = np
    on_device = False

    def array(self, name: str, value: Any, wanted: str) -> Array:
        """An argument as NumPy reads it."""
        return as_array(name, value, wanted)

    def output(self, name: str, given: Any, shape: tuple[int, ...], dtype: Any) -> Array:
        """The array itself."""
        return output_array(name, given, shape, dtype)

    def like_numpy(self, array: Array) -> Array:
        """The array itself."""
        return array

    def constant(self, array: Array) -> Array:
        """The array itself."""
        return array

    def to_numpy(self, array: Array) -> Array:
        """The array itself."""
        return array


NUMPY = NumpyArrays()


def on_device(value: Any) -> bool:
    """True for an array of any library in the memory of a CUDA device."""
    if type(value) is np.ndarray or value is None:
        return False
    # A foreign object may raise anything; the function that reads it reports the error.
    with suppress(Exception):
        if getattr(value, "__cuda_array_interface__", None) is not None:
            return True
    with suppress(Exception):  # also for arrays whose other interface raises, such as PyTorch's leaves of a graph
        place = getattr(value, "__dlpack_device__", None)
        return place is not None and int(place()[0]) in _DEVICES
    return False


def require_one_place(given: Mapping[str, Any]) -> bool:
    """True if all arguments of a call are on a device, False if none is.

    Raises:
        ArgumentError: some are, others are not.
    """
    places = {name: on_device(value) for name, value in given.items() if value is not None}
    if not any(places.values()):
        return False
    for name, is_on_device in places.items():
        if not is_on_device:
            other = next(each for each, value in places.items() if value)
            raise ArgumentError(
                f"{name}: got {brief(given[name])}, which is not on the GPU as {other} is; wanted all arguments of a "
                "call in one place"
            )
    return True
