"""An algorithm at every unit vector of an input: its kernels are called for each state (`calls`).

One state of the user is a batch of nv states for the algorithm. All nv states read the same row of every input; the
unit vectors are rows of an identity matrix; the results of these states are contiguous, in the user's order. So nothing
is copied, and the lanes of SIMD vectors are unit vectors. If the algorithm is two programs (`hoisting`), the first one
runs once per state, and stores everything that does not depend on the unit vector. The first stages of a chain split
into parts (`tensors`) also run once per state; its other stages run for some unit vectors at a time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from robodyn.algorithms.tasks import Traceable
from robodyn.compile.tracing.unrolled import output_shape
from robodyn.core.model import Model
from robodyn.engines.cpu.calls import ROW, WORDS, WORKSPACE, Called, CallsPlan, constants_of, lines
from robodyn.engines.cpu.chains.plan import StageCall
from robodyn.internals.arguments import Array
from robodyn.internals.records import dataclass


@dataclass(frozen=True)
class Within:
    """An array in the workspace: its bytes, and the bytes between rows, 0 if there is one row for all. `of`: the array
    whose memory it shares."""

    size: int
    stride: int = 0
    of: str | None = None


@dataclass(frozen=True)
class IdentitySeedsCall:
    """A kernel, and the rows that it is called for. `moving`: arrays in the workspace whose first row is the first of
    these."""

    call: StageCall
    first: int
    end: int
    moving: tuple[str, ...] = ()


class IdentitySeedsPlan(CallsPlan):
    """The calls for one state.

    Args:
        model: the robot.
        task: the task at unit vectors.
        inputs: names of the task's inputs in the order of the table.
        calls: kernels; their arrays have names of the task's arrays, or of arrays in the workspace.
        dtype: dtype of arrays.
        within: arrays in the workspace.
    """

    def __init__(
        self,
        model: Model,
        task: Traceable,
        inputs: Sequence[str],
        calls: Sequence[IdentitySeedsCall],
        dtype: np.dtype[np.float64] | np.dtype[np.float32],
        within: Mapping[str, Within],
    ) -> None:
        self.identity: Array = np.eye(model.nv, dtype=dtype)
        arrays = [*inputs, *task.outputs]
        offsets, end = dict[str, int](), 0
        for name, each in within.items():
            offsets[name] = end if each.of is None else offsets[each.of]
            end += lines(each.size) if each.of is None else 0

        def entry(asked: IdentitySeedsCall, name: str) -> tuple[int, int, int, int]:
            if name == task.unit_input:
                return WORDS, self.identity.ctypes.data, self.identity.strides[0], 0
            if name in within:
                stride = within[name].stride
                return WORKSPACE, offsets[name] - asked.first * stride * (name in asked.moving), stride, 0
            one = math.prod(output_shape(model, task.outputs[name])[1:]) if name in task.outputs else 0
            return ROW, arrays.index(name), one * dtype.itemsize, 0

        called = []
        for asked in calls:
            call = asked.call
            entries = [*(entry(asked, name) for name in call.arrays), *constants_of(call.constants)]
            called.append(Called(call.address, entries, call.workspace_bytes, asked.first, asked.end))
        super().__init__(called, end)
