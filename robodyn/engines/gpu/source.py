"""What a GPU kernel is before it is compiled: a text of CUDA C++ and what it must be called with."""

from __future__ import annotations

import numpy as np

from robodyn.internals.arguments import Array
from robodyn.internals.records import dataclass

WARP = 32
SHARED_BYTES = 48 << 10
"""Shared memory that every GPU gives a block without being asked. For more, a kernel is launched with so much of it."""
SCALARS = {"float64": "double", "float32": "float"}
"""CUDA's names of dtypes."""


@dataclass(frozen=True)
class KernelSource:
    """A kernel of one task on one model.

        extern "C" __global__ void NAME(const T* input, ..., T* output, ..., const K* constant, ...,
                                        T* workspace, long long rows)

    Inputs and outputs are contiguous arrays (rows, ...) in C order. Blocks take states in strides of the grid, so any
    number of blocks will do: their number bounds the workspace.

    `text`: the module, which includes nothing; `inputs`, `outputs`: names in the order of arguments; `constants`:
    arrays of int64 or of the dtype, passed after the outputs; `threads_per_state`: 1, 32, the block's, or columns;
    `block_threads`: threads in a block; `shared_bytes`: dynamic shared memory of a block; `workspace_scalars`: scratch
    memory of each state that is worked on at a time, in scalars; a grid of g blocks works on
    g * block_threads / threads_per_state of them; `numbers`: names of more arguments behind `rows`, all long long.

    A kernel that marches has the number "steps" and for each input but q and qd a number NAME_moves: outputs q_next and
    qd_next are (steps, rows, ...), and such inputs too where that number is 1.
    """

    name: str
    text: str
    dtype: np.dtype[np.floating]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: tuple[Array, ...] = ()
    threads_per_state: int = 1
    block_threads: int = 128
    shared_bytes: int = 0
    workspace_scalars: int = 0
    numbers: tuple[str, ...] = ()

    @property
    def states_per_block(self) -> int:
        """States that a block works on at a time."""
        return max(1, self.block_threads // self.threads_per_state)

    def workspace(self, blocks: int) -> int:
        """Scalars of scratch memory for a grid of n blocks."""
        return blocks * self.states_per_block * self.workspace_scalars
