"""The source of a GPU kernel: its CUDA C++ text and the arguments of its launches."""

from __future__ import annotations

import numpy as np

from robodyn.internals.arguments import Array
from robodyn.internals.records import dataclass

WARP = 32
SHARED_BYTES = 48 << 10
"""Static shared memory that every GPU allows a block. More must be requested at launch, as dynamic shared memory."""
SCALARS = {"float64": "double", "float32": "float"}
"""CUDA's names of the dtypes."""


@dataclass(frozen=True)
class KernelSource:
    """A kernel of one task on one model.

        extern "C" __global__ void NAME(const T* input, ..., T* output, ..., const K* constant, ...,
                                        T* workspace, long long rows)

    Inputs and outputs are contiguous arrays (rows, ...) in C order, one row for each state. Blocks process states in
    grid-stride loops, so any number of blocks is correct. The number of blocks determines the size of the workspace.

    `text`: the module, without includes; `inputs`, `outputs`: array names in the order of arguments; `constants`:
    arrays of int64 or of the dtype, passed after the outputs; `threads_per_state`: 1, 32, the block's threads, or the
    number of columns that threads solve for; `block_threads`: threads in a block; `shared_bytes`: dynamic shared memory
    of a block; `workspace_scalars`: scratch memory, in scalars, of each state in progress. A grid of g blocks has
    g * block_threads / threads_per_state states in progress. `numbers`: names of the long long arguments after `rows`.

    A kernel that integrates over many steps has the number "steps", and a number NAME_moves for each input but q and
    qd. Its outputs, q_next and qd_next among them, are arrays (steps, rows, ...). So is each input whose number
    NAME_moves is 1.
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
        """States that a block processes at a time."""
        return max(1, self.block_threads // self.threads_per_state)

    def workspace(self, blocks: int) -> int:
        """Scalars of scratch memory for a grid of `blocks` blocks."""
        return blocks * self.states_per_block * self.workspace_scalars
