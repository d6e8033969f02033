"""The kernel of a chain on one model: where its stages find what they read, and leave what they write."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from robodyn.arguments import Array
from robodyn.chains import Chain
from robodyn.engines.cpu.chain_code import BETWEEN, LITERAL, USER
from robodyn.model import Model
from robodyn.tracing.unrolled import output_shape

_BETWEEN_BYTES = 1 << 18
"""What lies between stages, about: it should stay in a core's own cache beside what stages need themselves."""
_MAX_BLOCK = 1024
_LINE = 64


@dataclass(frozen=True)
class StageCall:
    """A stage's kernel: its address, inputs and outputs by the chain's names, constant words, scratch memory."""

    address: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: tuple[int, ...]
    workspace_bytes: int


class ChainPlan:
    """The descriptor of a chain, and the workspace that it takes.

    Args:
        model: the robot.
        chain: what to run.
        inputs: names of the chain's inputs in the table's order.
        calls: its stages' kernels.
        dtype: of arrays.
        width: rows that kernels take at a time.
    """

    def __init__(
        self,
        model: Model,
        chain: Chain,
        inputs: Sequence[str],
        calls: Sequence[StageCall],
        dtype: np.dtype[np.float64] | np.dtype[np.float32],
        width: int,
    ) -> None:
        self.arrays = [*inputs, *chain.results]
        row_bytes = {
            name: _up(math.prod(shape) * dtype.itemsize)
            for name, shape in _shapes(model, chain).items()
            if name not in chain.results
        }
        rows = _BETWEEN_BYTES // max(1, sum(row_bytes.values()))
        self.block = min(_MAX_BLOCK, max(1, rows // width) * width)
        self.offsets: dict[str, tuple[int, int]] = {}
        end = 0
        for name, size in row_bytes.items():
            self.offsets[name] = (end, size)
            end += size * self.block
        entries = [self._entries(call) for call in calls]
        table = end
        own = _up(table + 16 * max(len(each) for each in entries))
        self.workspace_bytes = own + max(call.workspace_bytes for call in calls)
        words = [len(calls), self.block, table, own]
        for call, each in zip(calls, entries, strict=True):
            words += [call.address, len(each), *(word for entry in each for word in entry)]
        self.descriptor: Array = np.array(words, dtype=np.uint64).view(np.int64)

    def _entries(self, call: StageCall) -> list[tuple[int, int, int]]:
        found: list[tuple[int, int, int]] = []
        for name in (*call.inputs, *call.outputs):
            if name in self.arrays:
                found.append((USER, self.arrays.index(name), 0))
            else:
                found.append((BETWEEN, *self.offsets[name]))
        pairs = zip(call.constants[0::2], call.constants[1::2], strict=True)
        return [*found, *((LITERAL, data, stride) for data, stride in pairs)]


def _up(size: int) -> int:
    return -(-size // _LINE) * _LINE


def _shapes(model: Model, chain: Chain) -> dict[str, tuple[int, ...]]:
    """Shape of one state of everything that stages leave."""
    found: dict[str, tuple[int, ...]] = {}
    for stage in chain.stages:
        found.update({name: output_shape(model, output) for name, output in stage.outputs.items()})
    return found
