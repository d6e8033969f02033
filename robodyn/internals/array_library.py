"""Where the arrays of a call live: in NumPy, or on a device."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Protocol

import numpy as np

from robodyn.internals.arguments import Array, as_array, output_array
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import brief

_DEVICES = (2, 13)
"""DLPack's numbers for CUDA memory: of a device, and managed."""


class Library(Protocol):
    """What a call needs of the library that its arrays belong to.

    `xp`: its functions, named as NumPy's are; `on_device`: whether a look at a value would wait for a device.
    """

    @property
    def xp(self) -> Any:
        """The functions."""

    @property
    def on_device(self) -> bool:
        """Whether values are there."""

    def array(self, name: str, value: Any, wanted: str) -> Array:
        """An argument as an array of the library.

        Raises:
            ArgumentError: it is no array, and does not become one; `wanted` ends the message.
        """

    def output(self, name: str, given: Any, shape: tuple[int, ...], dtype: Any) -> Array:
        """An array that shares the memory of `given` and can take a result.

        Raises:
            ArgumentError: there is none, of this shape and dtype.
        """

    def like_numpy(self, array: Array) -> Array:
        """A NumPy array as one of the library."""

    def constant(self, array: Array) -> Array:
        """The same, kept for all calls: for small arrays that change seldom."""

    def to_numpy(self, array: Array) -> Array:
        """An array of the library as a NumPy array."""


class NumpyArrays:
    """NumPy itself."""

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
    """Whether a value is an array in the memory of a CUDA device, of whatever library."""
    if type(value) is np.ndarray or value is None:
        return False
    # A foreign object may raise anything; whoever reads it will say so.
    with suppress(Exception):
        if getattr(value, "__cuda_array_interface__", None) is not None:
            return True
    with suppress(Exception):  # also of what the other interface refuses, such as PyTorch's leaves of a graph
        place = getattr(value, "__dlpack_device__", None)
        return place is not None and int(place()[0]) in _DEVICES
    return False


def require_one_place(given: Mapping[str, Any]) -> bool:
    """Whether the arguments of a call live on a device, all of them.

    Raises:
        ArgumentError: some do, others do not.
    """
    places = {name: on_device(value) for name, value in given.items() if value is not None}
    if not any(places.values()):
        return False
    for name, there in places.items():
        if not there:
            other = next(each for each, value in places.items() if value)
            raise ArgumentError(
                f"{name}: got {brief(given[name])}, which is not on the GPU as {other} is; wanted all arguments of a "
                "call in one place"
            )
    return True
