"""The kernel of a chain on one model: where its stages find what they read, and leave what they write."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from robodyn.arguments import Array
from robodyn.chains import Chain, Elimination, Solve
from robodyn.codegen.llvm.vectors import VectorType
from robodyn.engines.cpu.chains.code import BATCH, BETWEEN, LITERAL, USER
from robodyn.engines.cpu.chains.solve_code import FACTORS
from robodyn.model import Model
from robodyn.records import dataclass
from robodyn.tracing.unrolled import output_shape

_LINE = 64


@dataclass(frozen=True)
class StageCall:
    """A stage's kernel: its address, arrays by the chain's names, constant words, scratch memory; `batch`: whether the
    second of a constant's words is the rows of the whole batch."""

    address: int
    arrays: tuple[str, ...]
    constants: tuple[int, ...]
    workspace_bytes: int
    batch: bool = False


def sizes_between(model: Model, chain: Chain) -> dict[str, int]:
    """Scalars of one state of everything that stages leave."""
    found: dict[str, int] = {}
    for stage in chain.stages:
        found.update({name: math.prod(output_shape(model, each)) for name, each in stage.outputs.items()})
        if isinstance(stage, Solve):
            found[FACTORS + stage.matrix] = model.nv + sum(len(row) for row in Elimination(model).lower)
    return found


class ChainPlan:
    """The descriptor of a chain, and the workspace that it takes.

    Args:
        users: names of the user's arrays in the table's order.
        vectors: scalars of one state of each array of vectors between stages.
        places: arrays that lie where others do.
        calls: its stages' kernels.
        kind: vectors of states.
        cleared: arrays of vectors that are zero but for what stages write.
    """

    def __init__(
        self,
        users: Sequence[str],
        vectors: Mapping[str, int],
        places: Mapping[str, str],
        calls: Sequence[StageCall],
        kind: VectorType,
        cleared: Sequence[str] = (),
    ) -> None:
        self.users = users
        self.between: dict[str, int] = {}
        """Offset in the workspace."""
        end = 0
        for name, size in vectors.items():
            self.between[name] = end
            end += _up(size * kind.bytes)
        for name, other in places.items():
            self.between[name] = self.between[other]
        entries = [self._entries(call) for call in calls]
        table = end
        own = _up(table + 16 * max(len(each) for each in entries))
        self.workspace_bytes = own + _up(max(call.workspace_bytes for call in calls))
        words = [len(calls), table, own, len(cleared)]
        for name in cleared:
            words += [self.between[name], vectors[name] * kind.bytes]
        for call, each in zip(calls, entries, strict=True):
            words += [call.address, len(each), *(word for entry in each for word in entry)]
        self.descriptor: Array = np.array(words, dtype=np.uint64).view(np.int64)

    def _entries(self, call: StageCall) -> list[tuple[int, int, int]]:
        found: list[tuple[int, int, int]] = []
        for name in call.arrays:
            if name in self.between:
                found.append((BETWEEN, self.between[name], 0))
            else:
                found.append((USER, self.users.index(name), 0))
        pairs = zip(call.constants[0::2], call.constants[1::2], strict=True)
        return [*found, *((BATCH if call.batch else LITERAL, data, stride) for data, stride in pairs)]


def _up(size: int) -> int:
    return -(-size // _LINE) * _LINE
