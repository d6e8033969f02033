"""Rolled kernels: loops over bodies, with code that is traced once per joint kind, for any tree and any task.

A thread, a warp or a block works on a state (`kernel_text`). A kernel's text depends on the algorithm, the joint kinds
and a few traits of the robot. The robot's parameters and its tree are arrays of constants, passed to the kernel.

A chain of stages is one kernel, whose stages share scratch memory, or several kernels ("completely fused", "fused" and
"split" in Plancher et al., Accelerating Robot Dynamics Gradients on a CPU, GPU, and FPGA, section IV-B).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from robodyn.algorithms.tasks import Products, Solution, Solve, Stage, Task
from robodyn.compile.tracing.unrolled import output_shape
from robodyn.core.model import Model
from robodyn.core.sweeps import INPUTS, PER_BODY, POINT, BodyOutput, LinkColumnOutput, PairOutput
from robodyn.engines.gpu.kernel_text import PARTITIONS, KernelText, Ref
from robodyn.engines.gpu.options import FUSIONS
from robodyn.engines.gpu.placement import Row
from robodyn.engines.gpu.rolled_solves import MatrixWriter
from robodyn.engines.gpu.rolled_sweeps import SweepWriter
from robodyn.engines.gpu.source import SHARED_BYTES, KernelSource
from robodyn.internals.arguments import one_of
from robodyn.internals.errors import UnavailableError

_Part = tuple[Stage | Solve | Products, ...]
_IN_PLACE = PairOutput | BodyOutput | LinkColumnOutput | Solution
"""Kinds of outputs that a stage computes by updates in place."""


def rolled_kernels(
    model: Model,
    task: Task,
    dtype: np.dtype[np.floating],
    *,
    fusion: str = "complete",
    partition: str = "thread",
    base: tuple[str, ...] = (),
    link: int | None = None,
    block_threads: int | None = None,
    shared_bytes: int = SHARED_BYTES,
    name: str = "kernel",
) -> tuple[KernelSource, ...]:
    """The kernels of a task in launch order. Each reads the task's inputs and the results of earlier kernels, in arrays
    with the chain's names.

    Args:
        model: the robot.
        task: the task to run.
        dtype: the type of arrays and arithmetic.
        fusion: "complete" for one kernel, "fused" for a kernel that ends after each solve or product, "split" for a
            kernel for each stage.
        partition: the threads that work on a state: "thread" for one, "warp" for 32, "block" for all of a block.
        base: which of V0 and dV0 are inputs.
        link: the index of the query's link, if the query is about one.
        block_threads: threads of a block, None for an automatic choice.
        shared_bytes: shared memory that a block may have.
        name: the kernel's name.

    Raises:
        UnavailableError: the tree is too large, the task runs at every unit vector and would be divided into several
            kernels, or the task is a derivative of a straight-line program.
    """
    one_of("fusion", fusion, FUSIONS)
    one_of("partition", partition, PARTITIONS)
    stages, vector = task.in_stages(), task.unit_input
    if not stages:
        raise UnavailableError(f"gpu: {task.name} is straight-line code, and too large for that")
    parts = _parts(stages, fusion)
    if vector is not None and len(parts) > 1:
        raise UnavailableError(f"gpu: {task.name} is one kernel: it runs its stages at one unit vector after another")
    kernels = []
    for number, part in enumerate(parts):
        later = {read for each in parts[number + 1 :] for stage in each for read in stage.inputs}
        made = [left for stage in part for left in stage.outputs]
        wanted = later | task.outputs.keys()
        outputs = [left for left in (task.outputs if len(parts) == 1 else made) if left in wanted]
        text = KernelText(partition, dtype, block_threads, model.nv_tree, shared_bytes)
        writer = _PartWriter(text, model, stages, base, link, vector)
        label = name if len(parts) == 1 else f"{name}_{number}"
        kernels.append(writer.kernel(part, tuple(outputs), label))
    return tuple(kernels)


def _parts(stages: _Part, fusion: str) -> list[_Part]:
    """The stages of each kernel."""
    if fusion == "split":
        return [(stage,) for stage in stages]
    parts: list[_Part] = []
    open_part: _Part = ()
    for number, stage in enumerate(stages):
        open_part = (*open_part, stage)
        ends = not stage.sweeps and fusion == "fused"
        if number == len(stages) - 1 or (ends and stages[number + 1].sweeps):
            parts.append(open_part)
            open_part = ()
    return parts


class _PartWriter:
    """Writes the kernel of some stages of a chain.

    `vector`: the input that takes each unit vector in turn, or None. The results for all unit vectors are stored one
    after another.
    """

    def __init__(
        self,
        text: KernelText,
        model: Model,
        stages: _Part,
        base: tuple[str, ...],
        link: int | None,
        vector: str | None,
    ) -> None:
        self.text, self.model, self.base, self.link, self.vector = text, model, base, link, vector
        self.shapes = {name: output_shape(model, each) for stage in stages for name, each in stage.outputs.items()}
        """Shapes of all results of stages, by name."""
        self.arrays: dict[str, Ref] = {}

    def kernel(self, part: _Part, outputs: Sequence[str], name: str) -> KernelSource:
        """The kernel that computes `outputs`."""
        made = [left for stage in part for left in stage.outputs]
        inputs = [each for each in self._inputs(part, made) if each != self.vector]
        read = {each for stage in part for each in stage.inputs}
        left = [each for stage in part for each in stage.outputs.items()]
        changed = read | {each for each, output in left if isinstance(output, _IN_PLACE)}
        times = 1 if self.vector is None else self.model.nv
        rows = [Row(each, self._size(each), is_output=False, revisited=True) for each in inputs]
        rows += [Row(each, times * self._size(each), is_output=True, revisited=each in changed) for each in outputs]
        self.arrays = self.text.arguments(rows)
        for each in made:
            if each in read and each not in outputs:
                self.arrays[each] = self.text.array(each, self._size(each))
        if self.vector is None:
            self._stages(part)
        else:
            self._at_units(part, self.vector, outputs)
        return self.text.finish(name)

    def _at_units(self, part: _Part, vector: str, outputs: Sequence[str]) -> None:
        text = self.text
        ones = self.arrays[vector] = text.array(vector, self._size(vector))
        nv = text.integer("nv", self.model.nv)
        with text.block(f"for (int unit = 0; unit < {nv}; unit++)"):
            for each in outputs:
                size = self._size(each)
                start = f"unit * {text.integer(f'one_{each}', size)}"
                statement, self.arrays[each] = self.arrays[each].part(f"v_{each}", start, size)
                text.do(statement)
            with text.shared("k", "0", nv):
                text.do(f"{ones.at('k')} = k == unit ? T(1) : T(0);")
            text.sync()
            self._stages(part)

    def _stages(self, part: _Part) -> None:
        matrices = MatrixWriter(self.text, self.model, self.arrays)
        write: dict[type, Callable[[Any], None]]
        write = {Stage: self._algorithm, Solve: matrices.solve, Products: matrices.multiply}
        if not part[0].sweeps:
            self.text.sync()
        for number, stage in enumerate(part):
            self.text.stage = number
            with nullcontext() if stage.sweeps else self.text.section():
                write[type(stage)](stage)

    def _inputs(self, part: _Part, made: Sequence[str]) -> list[str]:
        """The arrays that the kernel reads: inputs of the task, in the order of `INPUTS`, and results of kernels."""
        base = self.base if any(stage.sweeps for stage in part) else ()
        wanted = dict.fromkeys([*(name for stage in part for name in stage.inputs), *base])
        outside = [name for name in wanted if name not in made]
        order = (*INPUTS, "V0", "dV0")
        return sorted(outside, key=lambda name: order.index(name) if name in order else len(order))

    def _size(self, name: str) -> int:
        """Scalars of an array for one state."""
        model = self.model
        if name in self.shapes:
            return math.prod(self.shapes[name])
        if name in PER_BODY:
            return model.n_bodies * PER_BODY[name]
        return {"q": model.nq, "V0": 6, "dV0": 6, "point": POINT}.get(name, model.nv)

    def _algorithm(self, stage: Stage) -> None:
        algorithm = stage.algorithm
        inputs = {name: self.arrays[stage.reads.get(name, name)] for name in algorithm.inputs}
        inputs.update({name: self.arrays[name] for name in self.base})
        results = {
            name: self.arrays[stage.names.get(name, name)]
            for name in algorithm.outputs
            if stage.names.get(name, name) in self.arrays
        }
        SweepWriter(self.text, self.model, algorithm, self.base, self.link, inputs, results).write()
