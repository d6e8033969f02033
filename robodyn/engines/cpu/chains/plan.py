"""The memory of a chain's kernel on one model: where stages read and write their arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from robodyn.algorithms.tasks import Chain, SymbolicFactor
from robodyn.compile.llvm.vectors import VectorType
from robodyn.compile.tracing.unrolled import output_shape
from robodyn.core.model import Model
from robodyn.engines.cpu.calls import BATCH, USER, WORDS, WORKSPACE, Called, CallsPlan, constants_of, lines
from robodyn.engines.cpu.chains.solve_code import FACTORS
from robodyn.internals.records import dataclass


@dataclass(frozen=True)
class StageCall:
    """A stage's kernel: its address, arrays by the chain's names, constant words, bytes of workspace; `batch`: True if
    the last constant word must be the number of rows of the whole batch."""

    address: int
    arrays: tuple[str, ...]
    constants: tuple[int, ...]
    workspace_bytes: int
    batch: bool = False


def sizes_between(model: Model, chain: Chain) -> dict[str, int]:
    """Scalars of one state of all arrays between stages, by name."""
    sizes: dict[str, int] = {}
    for stage in chain.stages:
        sizes.update({name: math.prod(output_shape(model, each)) for name, each in stage.outputs.items()})
    for solve in chain.solves:
        sizes[FACTORS + solve.matrix] = model.nv + sum(len(row) for row in SymbolicFactor(model).lower)
    return sizes


class ChainPlan(CallsPlan):
    """The calls of a chain's stages.

    Args:
        users: names of the user's arrays in the order of the table.
        vectors: scalars of one state of each array of vectors between stages.
        places: arrays that share the memory of others.
        calls: the stages' kernels.
        kind: vectors of states.
        cleared: arrays of vectors that must be zero except for the entries that stages write.
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
        """Offsets of arrays in the workspace."""
        end = 0
        for name, size in vectors.items():
            self.between[name] = end
            end += lines(size * kind.bytes)
        for name, other in places.items():
            self.between[name] = self.between[other]
        called = [Called(call.address, self._entries(call), call.workspace_bytes) for call in calls]
        super().__init__(called, end, [(self.between[name], vectors[name] * kind.bytes) for name in cleared])

    def _entries(self, call: StageCall) -> list[tuple[int, int, int, int]]:
        between, users = self.between, self.users
        entries = [
            (WORKSPACE, between[name], 0, 0) if name in between else (USER, users.index(name), 0, 0)
            for name in call.arrays
        ]
        return [*entries, *constants_of(call.constants, BATCH if call.batch else WORDS)]
