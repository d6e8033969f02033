"""The GPU engine: runs queries on batches of states by CUDA kernels, generated for a robot or for an algorithm."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np

from robodyn.algorithms.tasks import Repeated, ScalarTask, Step, StepGradient, StraightLine, Task
from robodyn.compile.tracing.unrolled import output_shape
from robodyn.core.model import Model
from robodyn.engines.gpu.choice import ALWAYS, Chooser, Variant
from robodyn.engines.gpu.device import Device, LoadedKernel, default_device
from robodyn.engines.gpu.device_arrays import DeviceArrays
from robodyn.engines.gpu.generated import GeneratedKernels
from robodyn.engines.gpu.options import GpuOptions
from robodyn.engines.gpu.repeated_kernels import repeated_kernel
from robodyn.engines.gpu.rolled_kernels import rolled_kernels
from robodyn.engines.gpu.source import SHARED_BYTES, KernelSource
from robodyn.engines.gpu.staging import Staging
from robodyn.engines.gpu.unrolled_chains import left, unrolled_kernels
from robodyn.engines.gpu.unrolled_kernels import marching_kernel, unrolled_kernel
from robodyn.engines.protocol import BY_PARTS, Engine, Explanation
from robodyn.engines.query_table import BASE, QuerySpec
from robodyn.engines.reference import ReferenceEngine
from robodyn.internals.arguments import Array
from robodyn.internals.array_library import Library
from robodyn.internals.errors import UnavailableError
from robodyn.internals.records import dataclass

_ROOM = 4
"""Scratch memory and intermediate arrays may each take 1 / _ROOM of the free device memory."""
_SMALL, _PARTS = 64 << 20, 64
"""Intermediate arrays of up to _SMALL bytes, or 1 / _PARTS of the device memory, are allocated without a query of the
free memory, because that query is slow. On an H200, gradients of 65,536 quadrupeds take 0.88 ms with the query; their
kernels take 0.50 ms."""


_BY_BLOCKS = "one kernel for the first block of iterations, one that repeats further blocks in states that are left"
"""Reason in explanations for queries that are answered by tasks of the kind `Repeated`."""


@dataclass(frozen=True)
class Launch:
    """A kernel on the device, its constant arrays, and the most blocks for which its scratch memory fits."""

    kernel: LoadedKernel
    constants: tuple[Array, ...]
    blocks: int

    def __call__(self, arrays: Mapping[str, Array], rows: int, xp: Any, numbers: Sequence[int] = ()) -> None:
        """Launch the kernel on arrays of `rows` states. `numbers`: values of `KernelSource.numbers`, in that order."""
        source = self.kernel.source
        blocks = min(-(-rows // source.states_per_block), self.blocks)
        size = source.workspace(blocks)
        workspace = xp.empty(size, source.dtype) if size else None
        arguments = [arrays[name] for name in (*source.inputs, *source.outputs)]
        self.kernel.launch(blocks, [*arguments, *self.constants, workspace], rows, numbers)


@dataclass(frozen=True)
class Plan:
    """The launches of a task, in order.

    `between`: shapes, for one state, of intermediate arrays that one launch writes and a later one reads.
    """

    variant: Variant
    launches: tuple[Launch, ...]
    between: Mapping[str, tuple[int, ...]]

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the arrays that the plan reads, without those that its own earlier kernels write."""
        names: dict[str, None] = {}
        filled: set[str] = set()
        for launch in self.launches:
            names |= dict.fromkeys(name for name in launch.kernel.source.inputs if name not in filled)
            filled.update(launch.kernel.source.outputs)
        return tuple(names)


Start = tuple[Plan, Mapping[str, Array], int]
"""Arguments of `GpuEngine.start`."""


class GpuEngine(Engine):
    """Runs algorithms as CUDA kernels; see `robodyn.engines.protocol.Engine`.

    Device arrays are read and written in place, in the order of the current stream; calls return without waiting.
    NumPy arrays are copied through pinned memory. Inputs and outputs must not overlap, unlike those of other engines.

    Args:
        model: the robot.
        dtype: float64 or float32.
        options: which kernels to use.
        device: the device to run on, None for the current CUDA device.

    Raises:
        UnavailableError: no device.
    """

    name = "gpu"
    normalizes = True

    def __init__(
        self, model: Model, dtype: np.dtype[Any], options: GpuOptions | None = None, device: Device | None = None
    ) -> None:
        self.model, self.dtype = model, dtype
        self.options = GpuOptions() if options is None else options
        self.device = default_device() if device is None else device
        self.library = DeviceArrays(self.device)
        self.chooser = Chooser(model, dtype, self.options, self.device.name)
        self._process = os.getpid()
        self._plans: dict[tuple[Any, ...], Plan] = {}
        self._choices: dict[tuple[Any, ...], Variant] = {}
        self._staging = Staging(self.device)
        self._marches: dict[tuple[Step, tuple[str, ...]], tuple[Launch, ...]] = {}
        self._programs: dict[tuple[StepGradient | ScalarTask, tuple[str, ...]], Plan | None] = {}
        self._watching = threading.local()

    # Kernels.

    def variant(self, task: Task, batch: int, base: tuple[str, ...] = (), link: int | None = None) -> Variant:
        """The kernel variant for a batch of that size."""
        key = task, base, link, batch.bit_length()
        if key not in self._choices:
            self._choices[key] = self.chooser.choose(task, batch, base, link)[0]
        return self._choices[key]

    def plan(self, task: Task, variant: Variant, base: tuple[str, ...] = (), link: int | None = None) -> Plan:
        """The kernels of a variant on the device, compiled at the first call.

        If they do not compile and the option `kernel` is "auto", the variant `ALWAYS` replaces them.

        Warns:
            RuntimeWarning: the kernels do not compile and are replaced.

        Raises:
            UnavailableError: the kernels do not compile, and the option `kernel` names them.
        """
        key = task, variant, base, link
        plan = self._plans.get(key)
        if plan is None:
            try:
                plan = self._made(task, variant, base, link)
            except UnavailableError as error:
                if self.options.kernel != "auto" or variant == ALWAYS:
                    raise
                warnings.warn(f"{error}; a loop over bodies answers instead", RuntimeWarning, stacklevel=2)
                plan = self._made(task, ALWAYS, base, link)
            self._plans[key] = plan
        return plan

    def _made(self, task: Task, variant: Variant, base: tuple[str, ...], link: int | None) -> Plan:
        sources = self.sources(task, variant, base, link)
        made = left(self.model, task)
        shared = {name for source in sources for name in source.outputs if name not in task.outputs}
        between = {name: output_shape(self.model, made[name]) for name in shared}
        with self.device.selected():
            return Plan(variant, tuple(map(self._launch, self.device.load_all(sources))), between)

    def sources(
        self, task: Task, variant: Variant, base: tuple[str, ...] = (), link: int | None = None
    ) -> tuple[KernelSource, ...]:
        """The source texts of a variant's kernels, in launch order."""
        if variant.kernel == "unrolled":
            return unrolled_kernels(self.model, task, self.dtype, base, link, fusion=variant.fusion)
        return rolled_kernels(
            self.model,
            task,
            self.dtype,
            fusion=variant.fusion,
            partition=variant.kernel,
            base=base,
            link=link,
            block_threads=self.options.block_threads,
            shared_bytes=self.device.shared_bytes if variant.kernel == "block" else SHARED_BYTES,
        )

    def _launch(self, kernel: LoadedKernel) -> Launch:
        source = kernel.source
        blocks = self.device.processors * kernel.blocks_per_processor
        each = source.workspace(1) * source.dtype.itemsize
        if each:
            most = self.device.free_bytes() // (_ROOM * each)
            if most < 1:
                raise UnavailableError(
                    f"engine 'gpu': {source.name} needs {each / 1e9:.3g} GB of scratch memory for one block, and "
                    f"{self.device.free_bytes() / 1e9:.3g} GB are free on {self.device.name}"
                )
            blocks = min(blocks, most)
        return Launch(kernel, tuple(map(self.device.constant, source.constants)), blocks)

    # Calls.

    def run(
        self,
        algorithm: Task,
        inputs: Mapping[str, Array],
        outputs: Mapping[str, Array],
        *,
        link: int | None = None,
    ) -> None:
        """Fill `outputs` (B, ...) from `inputs` (B, ...), all of the engine's dtype; see `protocol.Engine`."""
        require_own_process(self._process)
        batch = next(iter(outputs.values())).shape[0]
        if batch == 0:
            return
        if self.model.n_bodies == 0:  # no moving bodies, so no kernel
            self._run_reference(algorithm, inputs, outputs, link)
            return
        base = tuple(name for name in ("V0", "dV0") if name in inputs)
        self._run_plan(self.plan(algorithm, self.variant(algorithm, batch, base, link), base, link), inputs, outputs)

    def _run_plan(self, plan: Plan, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        """Run a plan on device arrays, or on host arrays, which are copied to the device and back in pieces."""
        batch = next(iter(outputs.values())).shape[0]
        if not batch:
            return
        with self.device.selected():
            if isinstance(inputs["q"], np.ndarray):
                needed = {name: inputs[name] for name in plan.inputs}
                self._staging.run(lambda arrays, rows: self.start(plan, arrays, rows), needed, outputs)
            else:
                self._run_on_device(plan, inputs, outputs, batch)

    def _run_on_device(self, plan: Plan, inputs: Mapping[str, Array], outputs: Mapping[str, Array], batch: int) -> None:
        """Run a plan on device arrays, in pieces of the batch if its intermediate arrays do not fit in memory."""
        rows = batch if self.at_once(plan, batch) else self._rows_with_room(plan, batch)
        try:
            self._run_pieces(plan, inputs, outputs, batch, rows)
        except MemoryError:
            fewer = self._rows_with_room(plan, batch) if plan.between else rows
            if fewer >= rows:
                raise
            self._run_pieces(plan, inputs, outputs, batch, fewer)

    def _run_pieces(
        self, plan: Plan, inputs: Mapping[str, Array], outputs: Mapping[str, Array], batch: int, rows: int
    ) -> None:
        """Run a plan on pieces of `rows` states."""
        xp = self.device.xp
        for start in range(0, batch, rows):
            piece = slice(start, start + rows)
            arrays = {name: xp.ascontiguousarray(inputs[name][piece]) for name in plan.inputs}
            targets = {name: array[piece] for name, array in outputs.items()}
            whole = {
                name: target if target.flags.c_contiguous else xp.empty(target.shape, target.dtype)
                for name, target in targets.items()
            }
            self.start(plan, {**arrays, **whole}, min(rows, batch - start))
            for name, target in targets.items():
                if whole[name] is not target:
                    target[...] = whole[name]

    def _rows_with_room(self, plan: Plan, batch: int) -> int:
        """The number of states whose intermediate arrays fit in memory."""
        return max(1, min(batch, self.device.free_bytes() // (_ROOM * self._left_bytes(plan))))

    def at_once(self, plan: Plan, rows: int) -> bool:
        """Whether the intermediate arrays of `rows` states are so small that the free memory need not be queried."""
        return rows * self._left_bytes(plan) <= max(_SMALL, self.device.total_bytes // _PARTS)

    def _left_bytes(self, plan: Plan) -> int:
        """Bytes of the intermediate arrays of one state."""
        return self.dtype.itemsize * sum(map(prod, plan.between.values()))

    def start(self, plan: Plan, arrays: Mapping[str, Array], rows: int) -> None:
        """Launch a plan's kernels on contiguous arrays (rows, ...) by name, of which it may change those that it
        fills."""
        xp = self.device.xp
        seen: list[Start] | None = getattr(self._watching, "starts", None)
        if seen is not None:
            seen.append((plan, arrays, rows))
        between = {name: xp.empty((rows, *shape), self.dtype) for name, shape in plan.between.items()}
        for launch in plan.launches:
            launch({**arrays, **between} if between else arrays, rows, xp)

    @contextmanager
    def watched(self) -> Iterator[list[Start]]:
        """Inside `with`, the arguments of this thread's calls of `start` are listed."""
        before, starts = getattr(self._watching, "starts", None), list[Start]()
        self._watching.starts = starts
        try:
            yield starts
        finally:
            self._watching.starts = before

    def here(self) -> bool:
        """Whether this process made the engine and the engine's device is the current one."""
        return os.getpid() == self._process and self.device.is_selected()

    def march(self, step: Step, states: tuple[Array, Array], given: Mapping[str, Array], dt: float) -> bool:
        """Integrate from the first state to the last; see `protocol.TimeLoops`."""
        require_own_process(self._process)
        base = tuple(name for name in BASE if name in given)
        launches = self._marching(step, base)
        if not launches:
            return False
        (q, qd), xp = states, self.device.xp
        if not q.size:
            return True
        with self.device.selected():
            inputs = {name: xp.ascontiguousarray(array) for name, array in given.items()}
            inputs["dt"] = xp.full((1, q.shape[1], 1), dt, self.dtype)
            (self._march_at_once if len(launches) == 1 else self._march_in_parts)(step, launches, (q, qd), inputs)
        return True

    def _march_at_once(
        self, step: Step, launches: Sequence[Launch], states: tuple[Array, Array], given: Mapping[str, Array]
    ) -> None:
        """All steps in one kernel."""
        (q, qd), (launch,) = states, launches
        inputs = {name: array if len(array) > 1 else array[0] for name, array in given.items()}
        arrays = {"q": q[0], "qd": qd[0], "q_next": q[1:], "qd_next": qd[1:], **inputs}
        moves = {f"{name}_moves": int(len(array) > 1) for name, array in given.items()}
        numbers = {"steps": len(q) - 1, **moves}
        launch(arrays, q.shape[1], self.device.xp, [numbers[name] for name in launch.kernel.source.numbers])

    def _march_in_parts(
        self, step: Step, launches: Sequence[Launch], states: tuple[Array, Array], given: Mapping[str, Array]
    ) -> None:
        """One launch for each part of each step, and a run of the dynamics between parts."""
        (q, qd), xp, batch = states, self.device.xp, states[0].shape[1]
        base = tuple(name for name in BASE if name in given)
        plan = self.plan(step.dynamics, self.variant(step.dynamics, batch), base)
        like = {"q": q[0], "qd": qd[0]}
        between = {name: xp.empty(like[which].shape, self.dtype) for name, which in step.between.items()}
        for k in range(len(q) - 1):
            now = {name: array[k if len(array) > 1 else 0] for name, array in given.items()}
            arrays = {"q": q[k], "qd": qd[k], "q_next": q[k + 1], "qd_next": qd[k + 1], **now, **between}
            for part, launch in zip(step.parts, launches, strict=True):
                launch(arrays, batch, xp)
                if not part.last:
                    at = {name: arrays[part.at(name)] for name in (*step.dynamics.inputs, *base)}
                    self._run_on_device(plan, at, {"qdd": arrays[part.asked]}, batch)

    def _marching(self, step: Step, base: tuple[str, ...]) -> tuple[Launch, ...]:
        """The kernel that integrates over many steps or, if that is too large, the kernels of the step's parts.

        Empty if neither is possible; the caller then integrates with accelerations from the dynamics query.
        """
        if (step, base) not in self._marches:
            launches: tuple[Launch, ...] = ()
            if self.model.n_bodies and self.options.kernel in ("auto", "unrolled"):
                launches = self._launched(lambda: [marching_kernel(self.model, step, self.dtype, base=base)])
            if self.model.n_bodies and not launches and step.dynamics.in_stages():
                launches = self._launched(
                    lambda: [unrolled_kernel(self.model, part, self.dtype, name="part") for part in step.parts]
                )
            self._marches[step, base] = launches
        return self._marches[step, base]

    def _launched(self, sources: Callable[[], Sequence[KernelSource]]) -> tuple[Launch, ...]:
        """Kernels on the device, or an empty tuple if one of them is too large."""
        try:
            return self.launches(sources())
        except UnavailableError:
            return ()

    def launches(self, sources: Sequence[KernelSource]) -> tuple[Launch, ...]:
        """Kernels on the device, compiled in parallel.

        Raises:
            UnavailableError: one of them does not compile.
        """
        require_own_process(self._process)
        with self.device.selected():
            return tuple(map(self._launch, self.device.load_all(sources)))

    def step_gradient(self, task: StepGradient, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> bool:
        """Fill the Jacobians A and B of a step on the device; see `protocol.TimeLoops`."""
        require_own_process(self._process)
        base = tuple(name for name in BASE if name in inputs)
        plan = self._program(task, base)
        if plan is None:
            return False
        batch = outputs["A"].shape[0]
        if batch:
            with self.device.selected():
                self._run_on_device(plan, inputs, outputs, batch)
        return True

    def _program(self, task: StepGradient | ScalarTask, base: tuple[str, ...]) -> Plan | None:
        """The single kernel of a straight-line task, or None if that kernel is not possible or not allowed."""
        if (task, base) not in self._programs:
            launches: tuple[Launch, ...] = ()
            permitted = self.options.kernel in ("auto", "unrolled")
            if self.model.n_bodies and permitted:
                launches = self._launched(lambda: [unrolled_kernel(self.model, task, self.dtype, base)])
            self._programs[task, base] = Plan(Variant("unrolled"), launches, {}) if launches else None
        return self._programs[task, base]

    def run_program(self, task: ScalarTask, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> bool:
        """Fill `outputs` with one kernel; see `protocol.Engine`."""
        require_own_process(self._process)
        base = tuple(name for name in BASE if name in inputs)
        plan = self._repeated(task, base) if isinstance(task, Repeated) else self._program(task, base)
        if plan is not None:
            self._run_plan(plan, inputs, outputs)
        return plan is not None

    def _repeated(self, task: Repeated, base: tuple[str, ...]) -> Plan | None:
        """Two kernels, of which the second repeats its program in the states whose error is too large. None for models
        without bodies.

        Raises:
            UnavailableError: one of them is too large, `GpuOptions` want other kernels, or the error is no result.
        """
        if not self.model.n_bodies:
            return None
        if self.options.kernel not in ("auto", "unrolled"):
            raise UnavailableError(
                f"engine 'gpu': GpuOptions(kernel={self.options.kernel!r}) has no kernel of {task.first.name}; wanted "
                "'auto' or 'unrolled'"
            )
        if task.error not in task.outputs:
            raise UnavailableError(f"engine 'gpu': {task.name} needs its result {task.error!r}")
        if (task, base) not in self._programs:
            first = unrolled_kernel(self.model, task.first, self.dtype, base, name="first")
            again = repeated_kernel(self.model, task, self.dtype, base)
            with self.device.selected():
                launches = tuple(map(self._launch, self.device.load_all([first, again])))
            every = {name: output_shape(self.model, each) for name, each in task.first.outputs.items()}
            between = {name: shape for name, shape in every.items() if name not in task.outputs}
            self._programs[task, base] = Plan(Variant("unrolled"), launches, between)
        return self._programs[task, base]

    def _run_reference(
        self, task: Task, inputs: Mapping[str, Array], outputs: Mapping[str, Array], link: int | None
    ) -> None:
        here = isinstance(inputs["q"], np.ndarray)
        arguments = dict(inputs) if here else {name: self.library.to_numpy(array) for name, array in inputs.items()}
        results = {name: np.empty(array.shape, array.dtype) for name, array in outputs.items()}
        arguments["q"] = self.model.unit_coordinates(arguments["q"])
        ReferenceEngine(self.model, self.dtype).run(task, arguments, results, link=link)
        for name, array in outputs.items():
            array[...] = results[name] if here else self.library.like_numpy(results[name])

    def has_program(self, task: StraightLine, base: tuple[str, ...] = ()) -> bool:
        """Whether a kernel for the task exists."""
        try:
            self.plan(task, self.variant(task, 1, base), base)
        except UnavailableError:
            return False
        return self.model.n_bodies > 0

    def prepare(self, algorithm: Task) -> None:
        """Compile the kernels of an algorithm for large batches now."""
        if self.model.n_bodies:
            self.plan(algorithm, self.variant(algorithm, 1 << 16))

    def generated(self, algorithm: Task) -> GeneratedKernels:
        """The kernels that run an algorithm on large batches."""
        variant = self.variant(algorithm, 1 << 16)
        return GeneratedKernels(variant, self.sources(algorithm, variant), self.device.architecture)

    def explain(self, question: QuerySpec, batch: int) -> Explanation:
        """Which kernel answers the query, and why."""
        if question.of_link:
            return super().explain(question, batch)
        if question.of_contacts and question.needs:
            return Explanation(question.name, batch, self.name, "newton", _BY_BLOCKS)
        task = question.plain_task(self.model)
        if isinstance(task, ScalarTask) and self._program(task, ()) is None:
            return Explanation(question.name, batch, self.name, self.method_of(question), BY_PARTS)
        variant, why = self.chooser.choose(task, batch)
        reason = f"kernel {str(variant)!r} on {self.device.name}, {why}"
        return Explanation(question.name, batch, self.name, self.method_of(question), reason)

    def on_device(self) -> tuple[Engine, Library]:
        """This engine and its array library."""
        return self, self.library


def require_own_process(process: int) -> None:
    """Require that the current process is the one that made the engine.

    Raises:
        UnavailableError: the current process is another one.
    """
    if os.getpid() != process:
        raise UnavailableError(
            "engine 'gpu': made before this process was forked, and CUDA does not work across a fork; make "
            "Dynamics in the process that uses it, and start processes with multiprocessing's 'spawn'"
        )
