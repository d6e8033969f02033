"""The array library of a device: reads the arrays of calls, and makes new ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from robodyn.engines.gpu.device import Device
from robodyn.internals.arguments import Array, instead
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import brief


class DeviceArrays:
    """The array library of a device (`robodyn.internals.array_library.Library`)."""

    on_device = True

    def __init__(self, device: Device) -> None:
        self._device, self.xp = device, device.xp
        self._constants: dict[tuple[str, tuple[int, ...], bytes], Array] = {}

    def array(self, name: str, value: Any, wanted: str) -> Array:
        """An argument as an array of the device library, without a copy. It must be on this device."""
        try:
            array: Array = self._device.wrapped(value)
        except Exception as error:  # a foreign object may raise anything
            raise ArgumentError(f"{name}: got {brief(value)} ({brief(error)}); {instead(value) or wanted}") from error
        here, number = self._device.name, self._device.number
        if not self._device.is_here(array):
            there = self._device.place(array)
            raise ArgumentError(f"{name}: got an array on {there}; wanted one on the GPU of this Dynamics, {here}")
        if not self._device.is_selected():
            raise ArgumentError(
                f"{name}: got an array on the GPU of this Dynamics, {here}, while another GPU is the current one; "
                f"wanted the call inside `with cupy.cuda.Device({number})`"
            )
        return array

    def output(self, name: str, given: Any, shape: tuple[int, ...], dtype: Any) -> Array:
        """A user's output array `given` as an array of the device library, without a copy."""
        wanted = f"wanted a {np.dtype(dtype)} array of shape {shape} on the GPU"
        try:
            writable = not given.__cuda_array_interface__["data"][1]
        except Exception:  # a foreign object may raise anything
            writable = False
        if not writable:
            raise ArgumentError(f"{name}: got {brief(given)}; {wanted}, which can be written to")
        array = self.array(name, given, wanted)
        if array.shape != shape or array.dtype != dtype:
            raise ArgumentError(f"{name}: got a {array.dtype} array of shape {array.shape}; {wanted}")
        return array

    def like_numpy(self, array: Array) -> Array:
        """A copy of a NumPy array on the device."""
        copy: Array = self.xp.asarray(array)
        return copy

    def constant(self, array: Array) -> Array:
        """A copy of a NumPy array on the device, cached for all calls and streams. For small, seldom changed arrays."""
        key = array.dtype.str, array.shape, array.tobytes()
        if key not in self._constants:
            self._constants[key] = self._device.constant(array)
        return self._constants[key]

    def to_numpy(self, array: Array) -> Array:
        """A copy as a NumPy array. Waits until the device has computed it."""
        copy: Array = self.xp.asnumpy(array)
        return copy
