"""Copies NumPy arrays to and from the device through pinned memory.

A batch is divided into pieces. The inputs of a piece are packed into one block of pinned memory, its outputs into
another, so each piece needs one transfer in each direction. While the device works on one piece, the host packs the
next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import Any

import numpy as np

from robodyn.engines.gpu.device import Device
from robodyn.internals.arguments import Array

PIECE_BYTES = 32 << 20
"""Bytes of a piece's inputs or outputs. Transfers of that size reach full bandwidth; buffers are reused."""
_ALIGNED = 256
_AT_ONCE = 2

Work = Callable[[Mapping[str, Array], int], None]
"""A function that launches kernels on device arrays, by name, for a number of states."""


class Staging:
    """Runs work on NumPy arrays. Safe for concurrent use by several threads."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._kept: list[_Slot] = []

    def run(self, work: Work, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        """Fill `outputs` (B, ...) from `inputs` (B, ...)."""
        batch = next(iter(outputs.values())).shape[0]
        widths = [sum(_row_bytes(array) for array in arrays.values()) for arrays in (inputs, outputs)]
        pieces = list(_pieces(batch, max(1, PIECE_BYTES // max(1, *widths))))
        slots = [self._take() for _ in range(min(_AT_ONCE, len(pieces)))]
        try:
            for number, piece in enumerate(pieces):
                slot = slots[number % len(slots)]
                slot.finish()
                slot.start(work, inputs, outputs, piece)
            for slot in slots:
                slot.finish()
        finally:
            for slot in slots:
                slot.drop()
            self._kept += slots

    def _take(self) -> _Slot:
        try:
            return self._kept.pop()
        except IndexError:
            return _Slot(self._device)


class _Slot:
    """Buffers and a stream for one piece at a time."""

    def __init__(self, device: Device) -> None:
        self._device, self._stream = device, device.stream()
        self._given, self._left = _Pair(device), _Pair(device)
        self._under_way: tuple[Mapping[str, Array], slice] | None = None

    def start(self, work: Work, inputs: Mapping[str, Array], outputs: Mapping[str, Array], piece: slice) -> None:
        """Copy a piece of the inputs to the device, launch the work, and start the copy of its results."""
        rows = piece.stop - piece.start
        with self._stream:  # arrays are allocated here, too: other streams may still use their freed memory
            ins = self._given.sized({name: (rows, *array.shape[1:]) for name, array in inputs.items()}, inputs)
            outs = self._left.sized({name: (rows, *array.shape[1:]) for name, array in outputs.items()}, outputs)
            for name, array in ins[0].items():
                array[...] = inputs[name][piece]
            self._under_way = outputs, piece
            self._given.upload()
            work({**ins[1], **outs[1]}, rows)
            self._left.download()

    def finish(self) -> None:
        """Wait for the current piece and copy its results to the output arrays."""
        if self._under_way is None:
            return
        self._device.wait(self._stream)
        outputs, piece = self._under_way
        self._under_way = None
        for name, array in self._left.host.items():
            outputs[name][piece] = array

    def drop(self) -> None:
        """Wait for the current piece, if any, and discard it, so that its buffers can be reused."""
        if self._under_way is not None:
            self._device.wait(self._stream)
            self._under_way = None


class _Pair:
    """A buffer of pinned memory and one on the device, with the same packed arrays."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._pinned: Array = device.pinned(0)
        self._there: Any = device.xp.empty(0, np.uint8)
        self._size = 0
        self.host: dict[str, Array] = {}

    def sized(
        self, shapes: Mapping[str, tuple[int, ...]], like: Mapping[str, Array]
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        """Arrays of these shapes on the host and on the device."""
        places, self._size = {}, 0
        for name, shape in shapes.items():
            size = prod(shape) * like[name].dtype.itemsize
            places[name] = slice(self._size, self._size + size)
            self._size += -(-size // _ALIGNED) * _ALIGNED
        if self._size > self._pinned.size:
            self._pinned, self._there = self._device.pinned(self._size), self._device.xp.empty(self._size, np.uint8)
        self.host, there = (
            {name: memory[place].view(like[name].dtype).reshape(shapes[name]) for name, place in places.items()}
            for memory in (self._pinned, self._there)
        )
        return self.host, there

    def upload(self) -> None:
        self._device.upload(self._pinned[: self._size], self._there[: self._size])

    def download(self) -> None:
        self._device.download(self._there[: self._size], self._pinned[: self._size])


def _row_bytes(array: Array) -> int:
    return int(prod(array.shape[1:]) * array.dtype.itemsize)


def _pieces(batch: int, rows: int) -> Iterator[slice]:
    """The fewest slices of a batch with at most `rows` states each, of about equal length."""
    count = -(-batch // rows)
    for number in range(count):
        yield slice(batch * number // count, batch * (number + 1) // count)
