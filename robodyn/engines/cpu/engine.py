"""The CPU engine: compiles every query for its robot and runs it on vectors of states, in several threads."""

from __future__ import annotations

import ctypes
import math
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from robodyn.algorithms.backward_steps import BackwardStep
from robodyn.algorithms.called_steps import AroundStep, CalledStep
from robodyn.algorithms.distances.tasks import OBSTACLES
from robodyn.algorithms.tasks import (
    AtAnswer,
    Repeated,
    ScalarTask,
    Step,
    StepGradient,
    StraightLine,
    Task,
    Traceable,
    cheapest,
    mixed_precision,
)
from robodyn.compile.cache import ObjectCache
from robodyn.compile.llvm.jit import Code
from robodyn.compile.llvm.streaming import cache_pressure
from robodyn.compile.llvm.target import Target, host_target
from robodyn.compile.tracing.unrolled import input_shapes, output_shape
from robodyn.core.model import Model
from robodyn.core.sweeps import Algorithm, PairOutput
from robodyn.engines.cpu.compiler import Compiler
from robodyn.engines.cpu.generated import GeneratedCode
from robodyn.engines.cpu.kernels import Kernel, workspace
from robodyn.engines.cpu.native.answers import Answers, EntryKernel, Input, JointForce, Scratch, answers_can_be
from robodyn.engines.cpu.native.entry import BETTER, Argument, Entry
from robodyn.engines.cpu.native.layout import layout_is_known
from robodyn.engines.cpu.parts.code import CALL_WORDS
from robodyn.engines.cpu.parts.plan import Plan, Planner
from robodyn.engines.cpu.repeated import Again, RepeatedProgram, at_answer_kernel, repeated_kernel
from robodyn.engines.cpu.request import Request
from robodyn.engines.cpu.threads.pool import BETTER_POOLS, Pool, begin_pool, default_threads, shared_pool
from robodyn.engines.cpu.time_loop import Call, LoopTable, TimeLoop, step_in_parts, whole_step
from robodyn.engines.protocol import BY_PARTS, Bound, Calls, Engine, Explanation
from robodyn.engines.query_table import BASE, QuerySpec
from robodyn.engines.reference import ReferenceEngine
from robodyn.internals.arguments import Array
from robodyn.internals.cached import cached_property
from robodyn.internals.errors import RobodynError, UnavailableError
from robodyn.internals.tuning import (
    FEW_PAIRS,
    FEW_STATES,
    KEPT_WORKSPACES,
    LARGE_MATRIX,
    MAX_SCRATCH,
    PIECE_NS,
    RELEASE_NS,
    RELEASE_ROWS,
    SHARE_NS,
)

_RUNTIME = "robodyn runtime"


class CpuEngine(Engine):
    """Runs algorithms as machine code; see `robodyn.engines.protocol.Engine`.

    Args:
        model: the robot.
        dtype: float64 or float32.
        threads: threads for a batch; None for as many as the process may use processors.
        compile: "background": the reference engine answers while a program compiles.
        mode: "unrolled" or "rolled" forces one kind of code; "auto" chooses by the number of operations.
        target: the processor to compile for, by default the host.
        lenient: if a program does not compile, warn and let the reference engine answer.
    """

    name = "cpu"
    normalizes = True
    native = threaded = True

    def __init__(
        self,
        model: Model,
        dtype: np.dtype[Any],
        threads: int | None = None,
        compile: str = "lazy",
        mode: str = "auto",
        target: Target | None = None,
        lenient: bool = False,
    ) -> None:
        self.model, self.dtype, self.compile = model, dtype, compile
        self.target = host_target() if target is None else target
        self.threads = default_threads() if threads is None else threads
        self.lenient = lenient
        self._reference = ReferenceEngine(model, dtype)
        self._failed: dict[tuple[Any, ...], RobodynError] = {}
        self._warned: set[tuple[Any, ...]] = set()
        self.compiler = Compiler(ObjectCache.from_environment(), mode, hurried=compile != "eager")
        self._planner = Planner(model, dtype, self.target, 1 if mode == "unrolled" else self.threads)
        self._kernels: dict[tuple[Any, ...], Kernel] = {}
        self._compiling: dict[tuple[Any, ...], threading.Thread] = {}
        self._workspaces: dict[int, list[tuple[int, Array]]] = {}
        self._scratch: Scratch | None = None
        self._steps: dict[tuple[Step, tuple[str, ...]], tuple[Kernel, ...]] = {}
        self._marches: dict[tuple[Step, tuple[str, ...], bool], TimeLoop] = {}
        self._task_loops: dict[tuple[Traceable | AroundStep | Repeated, tuple[str, ...], bool], TimeLoop] = {}
        self._again: dict[tuple[Any, ...], Again] = {}
        self._without: set[tuple[StraightLine | StepGradient, tuple[str, ...]]] = set()

    def request(self, algorithm: Traceable, base: tuple[str, ...] = (), link: int | None = None) -> Request:
        """The request for a kernel."""
        if self.dtype == np.float64:
            algorithm = mixed_precision(self.model, algorithm)
        return Request(self.model, cheapest(self.model, algorithm, base), self.dtype, self.target, base, link)

    def kernel(
        self,
        algorithm: Task,
        base: tuple[str, ...] = (),
        link: int | None = None,
        *,
        single: bool = False,
        plan: Plan | None = None,
    ) -> Kernel:
        """The kernel of an algorithm, compiled if necessary. `plan`: the kernel for a tree in parts."""
        key = _key(algorithm, base, link, plan)
        kernel = self._kernels.get(key) or self._kernels.get((*key, single))
        if kernel is None and isinstance(algorithm, Repeated):
            kernel = self._kernels[(*key, single)] = self._repeated(algorithm, base, single)
        elif kernel is None and isinstance(algorithm, AtAnswer):
            kernel = self._kernels[(*key, single)] = self._at_answer(algorithm, base, single)
        elif kernel is None:
            # Without a lock two threads may compile the same kernel, which wastes time only. A lock held during
            # compilation could stay locked for ever in a forked child.
            if self.threads > 1 and not (single and plan is None):
                begin_pool(self._begin)
            kernel = self.compiler.kernel(self.request(algorithm, base, link), single=single, plan=plan)
            self._kernels[key if kernel.alone is None else (*key, single)] = kernel
        return kernel

    def _repeated(self, task: Repeated, base: tuple[str, ...], single: bool) -> Kernel:
        """The kernel of iterations. Those that go on are compiled once, and not before a state needs them."""

        def plain(of: Task) -> Kernel:
            kernel = self.kernel(of, base, single=single)
            return kernel.plain or kernel

        again = self._again.setdefault((task.again, base, single), Again(lambda: plain(task.again)))
        return repeated_kernel(self.compiler, task, plain(task.first), again, single)

    def _at_answer(self, task: AtAnswer, base: tuple[str, ...], single: bool) -> Kernel:
        """The kernel of a task at what iterations find."""
        first, then = (self.kernel(of, base, single=single) for of in (task.first, task.then))
        plain = single or isinstance(task.then, BackwardStep)  # the next call reads what this one writes
        return at_answer_kernel(self.compiler, task, first, (plain and then.plain) or then, single)

    def _one_by_one(self, algorithm: Task, batch: int) -> bool:
        """True if states run one at a time: also small batches of large matrices over pairs of joints, or all if these
        are sparse."""
        if batch == 1 or self.model.nv < LARGE_MATRIX or not isinstance(algorithm, Algorithm):
            return batch == 1
        pairs = any(isinstance(output, PairOutput) for output in algorithm.outputs.values())
        return pairs and (self._few_pairs or batch <= FEW_STATES * self.target.width(self.dtype))

    @cached_property
    def _few_pairs(self) -> bool:
        """True if few pairs of bodies have one body on the path from the other to the world."""
        depth = self.model.tree.depth
        return int(depth.sum()) + depth.size < FEW_PAIRS * depth.size**2

    def _ready(
        self, algorithm: Task, base: tuple[str, ...], link: int | None, single: bool, plan: Plan | None = None
    ) -> Kernel | None:
        """The kernel. None while it compiles in the background, or if it does not compile at all."""
        if self.model.n_bodies == 0:  # nothing moves, so nothing to compile
            return None
        key = (*_key(algorithm, base, link, plan), single)
        if key in self._warned:
            return None
        try:
            return self._compiled(algorithm, base, link, single, plan)
        except UnavailableError as error:
            if not self.lenient:
                raise
            warnings.warn(f"{error}; the reference engine answers instead", RuntimeWarning, stacklevel=2)
            self._warned.add(key)
            return None

    def _compiled(
        self, algorithm: Task, base: tuple[str, ...], link: int | None, single: bool, plan: Plan | None = None
    ) -> Kernel | None:
        key = _key(algorithm, base, link, plan)
        waits = isinstance(algorithm, ScalarTask) and algorithm.one_program  # there is no other answer meanwhile
        if self.compile != "background" or waits or key in self._kernels or (*key, single) in self._kernels:
            return self.kernel(algorithm, base, link, single=single, plan=plan)
        if self.compiler.in_cache(self.request(algorithm, base, link), single=single, plan=plan):
            return self.kernel(algorithm, base, link, single=single, plan=plan)
        if (*key, single) in self._failed:
            raise self._failed[(*key, single)]
        thread = self._compiling.get((*key, single))
        if thread is None or not thread.is_alive():  # in a forked child the parent's thread is not alive

            def work() -> None:
                try:
                    self.kernel(algorithm, base, link, single=single, plan=plan)
                except RobodynError as error:
                    self._failed[(*key, single)] = error

            thread = threading.Thread(target=work, name="robodyn: first code", daemon=True)
            self._compiling[(*key, single)] = thread
            try:
                thread.start()
            except (RuntimeError, MemoryError):  # the system refuses a thread: compile in this call
                return self.kernel(algorithm, base, link, single=single, plan=plan)
        return None

    def run(
        self,
        algorithm: Task,
        inputs: Mapping[str, Array],
        outputs: Mapping[str, Array],
        *,
        link: int | None = None,
    ) -> None:
        """Fill `outputs` (B, ...) from `inputs` (B, ...), all of the engine's dtype; see `protocol.Engine`."""
        batch = next(iter(outputs.values())).shape[0]
        base = tuple(name for name in ("V0", "dV0") if name in inputs)
        single = self._one_by_one(algorithm, batch)
        plan = self._plan(algorithm, base, link, single, batch)
        kernel = self._ready(algorithm, base, link, single, plan)
        if kernel is None:
            normalized = {**inputs, "q": self.model.unit_coordinates(inputs["q"])}
            self._reference.run(algorithm, normalized, outputs, link=link)
        elif batch:
            self._fill(kernel, algorithm, inputs, outputs)

    def _plan(self, algorithm: Task, base: tuple[str, ...], link: int | None, single: bool, batch: int) -> Plan | None:
        """The plan that divides a tree into parts for all threads. None if whole states on one thread each are
        faster."""
        plan = self._planner.plan(algorithm, base) if batch else None
        if plan is None or batch == 1:
            return plan if plan is not None and plan.pays() else None
        kernel = self._ready(algorithm, base, link, single)
        return plan if kernel is not None and plan.pays(-(-batch // kernel.width)) else None

    def _fill(
        self,
        kernel: Kernel,
        task: Task | StepGradient,
        inputs: Mapping[str, Array],
        outputs: Mapping[str, Array],
    ) -> None:
        """Run a task's kernel on the rows of arrays, at least one row."""
        batch = next(iter(outputs.values())).shape[0]
        arrays = [_rows(inputs[name]) for name in kernel.inputs]
        targets = {name: _row_target(array) for name, array in outputs.items()}
        arrays += [targets[name] for name in task.outputs]
        table = _table(kernel, arrays, batch)
        if kernel.tasks:
            self._launch_tasks(kernel, table, batch)
        else:
            query = task.distance_query if isinstance(task, ScalarTask) else None
            counts = {} if query is None else {kind: inputs[kind].shape[-2] for kind in query.kinds}
            steps = 1 if query is None else query.rounds(counts)
            self.launch(kernel, ctypes.addressof(table), batch, steps)
        for name, target in targets.items():
            if not np.may_share_memory(target, outputs[name]):
                outputs[name][...] = target.reshape(outputs[name].shape)

    def march(self, step: Step, states: tuple[Array, Array], given: Mapping[str, Array], dt: float) -> bool:
        """Run a step from the first row of states to the last; see `protocol.TimeLoops`."""
        table = self.loop_table(step, states, given, dt)
        if table is not None:
            table.run(self.launch, len(states[0]) - 1)
        return table is not None

    def loop_table(
        self, step: Step, states: tuple[Array, Array], given: Mapping[str, Array], dt: float
    ) -> LoopTable | None:
        """The arguments of `march`. None if the engine has no program for the step."""
        base = tuple(name for name in BASE if name in given)
        key = step, base, states[0].shape[1] == 1
        if key not in self._marches:
            calls = self._calls(*key)
            if not calls:
                return None
            self._marches[key] = TimeLoop(self.compiler, calls, step.between)
        return self._marches[key].table(states, given, dt)

    def repeat(self, task: Repeated, arrays: Mapping[str, Array], batch: int) -> bool:
        """Take a step with contacts for each result of arrays (steps, B, ...), or (1, B, ...) if they are constant.
        False if the engine has no program for the step."""
        table, error = self.task_loop(task, arrays, batch), arrays[task.error]
        if table is None:
            return False
        table.run(self.launch, len(error))
        kernel = self.kernel(task, tuple(name for name in BASE if name in arrays), single=batch == 1)
        if _wants_more(kernel, error):
            table.run(self.launch, len(error))
        return True

    def task_loop(self, task: Traceable | AroundStep, arrays: Mapping[str, Array], batch: int) -> LoopTable | None:
        """The arguments of a loop over calls of a task, in which a call may read what the one before wrote. None if the
        task is not one program.

        Args:
            task: what each call computes.
            arrays: inputs and results by name, (calls, B, ...), or (1, B, ...) if they are constant.
            batch: B.
        """
        base = tuple(name for name in BASE if name in arrays)
        key = task, base, batch == 1
        if key not in self._task_loops:
            if not self.has_program(cast(Any, task), base, single=batch == 1):
                return None
            kernel = self.kernel(cast(Task, task), base, single=batch == 1)
            kernel = kernel.plain or kernel  # the next call reads what this one writes
            self._task_loops[key] = TimeLoop(self.compiler, [Call(kernel, (*kernel.inputs, *task.outputs))])
        return self._task_loops[key].table_of(arrays, batch)

    def _calls(self, step: Step, base: tuple[str, ...], single: bool) -> Sequence[Call]:
        """The kernels of a step; empty if there are none."""
        if (step, base) not in self._steps:
            try:
                found = self.compiler.step(self.request(step, base)) if self.model.n_bodies else ()
            except UnavailableError:  # the step does not compile; its dynamics may
                found = ()
            self._steps[step, base] = found
        kernels = self._steps[step, base]
        if len(kernels) <= 1:
            return whole_step(step, *kernels) if kernels else ()
        dynamics = self.kernel(step.dynamics, base, single=single)
        # Without streaming stores: the next step reads the results from the cache.
        return step_in_parts(step, kernels, dynamics.plain or dynamics)

    def run_program(self, task: ScalarTask, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> bool:
        """Fill `outputs` by one program; see `protocol.Engine`."""
        base, batch = tuple(name for name in BASE if name in inputs), next(iter(outputs.values())).shape[0]
        if not self.model.n_bodies or (task, base) in self._without:
            return False
        try:
            kernel = self._compiled(task, base, None, batch == 1)
        except UnavailableError:
            self._without.add((task, base))
            return False
        if kernel is not None and batch:
            self._fill(kernel, task, inputs, outputs)
            if isinstance(task, Repeated) and _wants_more(kernel, outputs[task.error]):
                self._fill(kernel, task, inputs, outputs)
        return kernel is not None

    def bound(self, task: ScalarTask, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> Bound | None:
        """A call of a task's program on these very arrays; see `protocol.Engine`."""
        base, batch = tuple(name for name in BASE if name in inputs), next(iter(outputs.values())).shape[0]
        if not self.model.n_bodies or not batch or (task, base) in self._without:
            return None
        try:
            kernel = self._compiled(task, base, None, batch == 1)
        except UnavailableError:
            self._without.add((task, base))
            return None
        if kernel is None or kernel.tasks:
            return None
        names = [*kernel.inputs, *task.outputs]
        arrays = [inputs[name] for name in kernel.inputs] + [outputs[name] for name in task.outputs]
        flat = [array.reshape(batch, -1) for array in arrays]
        table = _table(kernel, flat, batch)
        address, places = ctypes.addressof(table), {name: 2 * k for k, name in enumerate(names)}
        kept = table, flat, kernel  # other threads may replace the engine's kernel
        if self.threads > 1 and batch * kernel.row_ns > SHARE_NS:

            def shared(rows: int = batch, _: Any = kept) -> None:
                self.launch(kernel, address, rows)

            return Bound(shared, places, table)
        scratch, owner = workspace(kernel.workspace_bytes) if kernel.workspace_bytes else (0, None)

        def alone(rows: int = batch, run: Any = kernel.function, _: Any = (kept, owner)) -> None:
            run(address, 0, rows, scratch)

        return Bound(alone, places, table)

    def step_gradient(self, task: StepGradient, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> bool:
        """Fill A and B of a step; see `protocol.TimeLoops`."""
        base, batch = tuple(name for name in BASE if name in inputs), outputs["A"].shape[0]
        if not self.has_program(task, base, batch == 1):
            return False
        if batch:
            self._fill(self.kernel(cast(Task, task), base, single=batch == 1), task, inputs, outputs)
        return True

    def has_program(self, task: StraightLine | StepGradient, base: tuple[str, ...] = (), single: bool = False) -> bool:
        """True if the task compiles. A failure is remembered."""
        if self.model.n_bodies == 0 or (task, base) in self._without:
            return False
        try:
            self.kernel(cast(Task, task), base, single=single)
        except UnavailableError:
            self._without.add((task, base))
            return False
        return True

    def prepare(self, algorithm: Task) -> None:
        """Compile an algorithm now."""
        kernel = self._ready(algorithm, (), None, False)
        if kernel is not None and kernel.alone is not None:
            self._ready(algorithm, (), None, True)

    def generated(self, algorithm: Task) -> GeneratedCode:
        """The code that runs an algorithm on batches."""
        return GeneratedCode(self.kernel(algorithm))

    def explain(self, question: QuerySpec, batch: int) -> Explanation:
        """The kind of code, and its number of operations."""
        if question.of_link:
            return super().explain(question, batch)
        task = question.plain_task(self.model)
        if isinstance(task, ScalarTask) and not self.has_program(task):
            return Explanation(question.name, batch, self.name, self.method_of(question), BY_PARTS)
        code = self.generated(task)
        words = self._planner.words(task, batch, lambda: self.kernel(task).width)
        reason = f"{code.mode} code, {code.operations} operations a state{words and '; '}{words}"
        return Explanation(question.name, batch, self.name, self.method_of(question), reason)

    def entry(self, name: str, doc: str, fallback: Callable[..., Any], epoch: Any = None) -> Entry | None:
        """A built-in function. None if the model has no moving bodies, or if this Python or this system does not
        support it."""
        if not self.model.n_bodies or not layout_is_known():
            return None
        try:
            return Entry(name, doc, fallback, self._load_entries, epoch)
        except UnavailableError:  # it does not compile; calls work without it, but take longer
            return None

    def quick(
        self,
        question: QuerySpec,
        calls: Calls,
        check: bool | None,
        joint_forces: tuple[str, ...],
        double: Engine | None = None,
    ) -> Answers | None:
        """The kernels of a built-in function, once they are compiled.

        Trees in parts, and kernels with more scratch memory than `MAX_SCRATCH`, have none: a Python call is cheap in
        comparison.
        """
        task = calls.task(question, self.model, damping="damping" in joint_forces)
        key = _key(task, calls.base, calls.link)
        if self._plan(task, calls.base, calls.link, single=True, batch=1) is not None:
            raise UnavailableError(f"{question.name}: a tree in parts has no built-in function")
        modes = self._one_by_one(task, sys.maxsize), True
        candidates = self._candidates(key, modes)
        if double is not None:
            candidates = [self._in_double(double, question, key, joint_forces, single=single) for single in modes]
        some_kernel = next((kernel for kernel in candidates if kernel is not None), None)
        if some_kernel is None:
            return None
        shapes = input_shapes(self.model, task, calls.base)
        inputs = [Input(question.arrays.index(name), shapes[name]) for name in some_kernel.inputs]
        outputs = [output_shape(self.model, output) for output in task.outputs.values()]
        forces = joint_force_steps(self.model, question, some_kernel.inputs, joint_forces if double is None else ())
        inertia_matters = bool(question.needs) and "inertia" in some_kernel.inputs
        if set(some_kernel.inputs) != set(calls.arrays):
            raise _no_built_in(question.name, calls.arrays)
        known = some_kernel.inputs.index("inertia") if inertia_matters else None
        return self._answers(question.name, calls.arrays, inputs, outputs, candidates, check, known, forces)

    def called(
        self,
        task: CalledStep | Repeated | AtAnswer,
        arrays: Sequence[str],
        *,
        single: bool,
        check: bool | None,
        nonnegative: Sequence[str] = (),
        defaults: Mapping[str, float] | None = None,
        fixed: Mapping[str, Array] | None = None,
        damping: Array | None = None,
    ) -> Answers:
        """The kernels of a built-in function that takes a step, or answers a query by iterations.

        Args:
            task: what it computes.
            arrays: names of the arguments of a call, in order.
            single: True if the kernel for one state must be there, False for that for batches.
            check: as of `Answers`.
            nonnegative: names of arrays whose numbers must be finite and at least 0.
            defaults: values of floats that calls do not give.
            fixed: the same for arrays.
            damping: damping (nv,) that is subtracted from tau; None if there is none.

        Raises:
            UnavailableError: the program does not compile, or it takes too many arrays.
        """
        base = tuple(name for name in BASE if name in task.inputs)
        key = _key(cast(Task, task), base, None)
        self.kernel(cast(Task, task), base, single=single)
        candidates = self._candidates(key, (False, True))
        shapes = input_shapes(self.model, cast(Task, task), base)
        inputs = [
            Input(
                arrays.index(name),
                () if name == "dt" else shape,
                default=(defaults or {}).get(name),
                positive=name == "dt",
                nonnegative=name in nonnegative,
                fixed=(fixed or {}).get(name),
            )
            for name, shape in shapes.items()
        ]
        outputs, names = [output_shape(self.model, output) for output in task.outputs.values()], [*shapes]
        known, forces = names.index("inertia") if "inertia" in names else None, []
        if damping is not None:
            forces = [JointForce(names.index("tau"), names.index("qd"), damping, np.zeros_like(damping))]
        return self._answers(task.name, task.inputs, inputs, outputs, candidates, check, known, forces)

    def stepping(
        self,
        step: Step | Repeated,
        arrays: Sequence[str],
        dt: float,
        *,
        single: bool,
        steps: int = 0,
        steady: Sequence[str] = (),
        nonnegative: Sequence[str] = (),
    ) -> Entry | None:
        """A built-in function of arrays that takes steps by the kernel of rollouts: `strict` of the entry.

        It takes numbers that are finite only, and gives states that are finite. None if there is none: the step is not
        one program, or takes other arrays.

        Args:
            step: the step.
            arrays: names of the arrays, in order; q and qd are the first two.
            dt: its length in seconds.
            single: True for one state, of which a step with contacts has other programs than batches.
            steps: number of steps, of which all states are results; 0: one step, of which the next state is.
            steady: names of arrays that have one value for all steps.
            nonnegative: names of arrays whose numbers must be at least 0.
        """
        base = tuple(name for name in BASE if name in arrays)
        if isinstance(step, Repeated):
            kernels: Sequence[Kernel] = (self.kernel(step, base, single=single),)
        else:
            self._calls(step, base, single=False)
            kernels = [each for each in self._steps[step, base] if not each.constants]
        shapes = input_shapes(self.model, step, base)
        if len(kernels) != 1 or {*arrays, "dt"} != {*kernels[0].inputs}:
            return None
        inputs = [
            Input(len(arrays), (), default=dt)
            if name == "dt"
            else Input(arrays.index(name), shapes[name], nonnegative=name in nonnegative, steady=name in steady)
            for name in kernels[0].inputs
        ]
        outputs = [output_shape(self.model, output) for output in step.outputs.values()]
        kernel = self._entry_kernel(kernels[0], max(steps, 1))
        if kernels[0].inputs[:2] != ("q", "qd") or not answers_can_be(self.dtype, inputs, outputs, [kernel]):
            return None
        entry = self.entry("steps", "", _nothing)
        if entry is None:
            return None
        pool = self.pool if self.threads > 1 else None
        answers = Answers(
            self.dtype,
            inputs,
            outputs,
            None if isinstance(step, Repeated) and single else kernel,
            None if isinstance(step, Repeated) and not single else kernel,
            True,
            pool=pool,
            scratch=self._scratch_of,
            steps=steps,
        )
        arguments = [Argument("array", k) for k in range(len(arrays))]
        entry.forms.add(len(arrays), (), arguments, arrays, {}, answers)
        entry.forms.add(len(arrays), ("out",), [*arguments, Argument("out")], [*arrays, None], {}, answers)
        return entry

    def _candidates(self, key: tuple[Any, ...], modes: tuple[bool, bool]) -> list[Kernel | None]:
        """Compiled kernels for batches and for one state: without streaming stores for one state, and for batches where
        these take too much scratch memory. `modes`: whether each is a kernel for single states."""
        batches, single = (self._kernels.get(key) or self._kernels.get((*key, mode)) for mode in modes)
        if batches is not None and _stride(batches) * self.threads > MAX_SCRATCH:
            batches = batches.plain or batches
        return [batches, single and (single.plain or single)]

    def _answers(
        self,
        name: str,
        arrays: Iterable[str],
        inputs: Sequence[Input],
        outputs: Sequence[tuple[int, ...]],
        candidates: Sequence[Kernel | None],
        check: bool | None,
        known: int | None,
        forces: Sequence[JointForce] = (),
        steps: int = 1,
    ) -> Answers:
        """What kernels for batches and for one state answer, if they take at most `MAX_SCRATCH` bytes. `steps`: how
        often they process each row.

        Raises:
            UnavailableError: both take more, or the function would need too many arrays.
        """
        complete = None not in candidates
        kernels = [
            self._entry_kernel(kernel, steps)
            if kernel is not None and _stride(kernel) * threads <= MAX_SCRATCH
            else None
            for kernel, threads in zip(candidates, (self.threads, 1), strict=True)
        ]
        if not answers_can_be(self.dtype, inputs, outputs, kernels, len(forces)):
            raise _no_built_in(name, arrays)
        if not any(kernels) and complete:
            raise UnavailableError(f"{name}: takes too much scratch memory for a built-in function")
        return Answers(
            self.dtype,
            inputs,
            outputs,
            kernels[0],
            kernels[1],
            check,
            pool=self.pool if self.threads > 1 else None,
            scratch=self._scratch_of,
            forces=forces,
            known=known,
            whole=complete,
        )

    def _in_double(
        self, double: Engine, question: QuerySpec, key: tuple[Any, ...], joint_forces: tuple[str, ...], *, single: bool
    ) -> Kernel | None:
        """The kernel that lets the engine `double` compute. None if that engine's kernel is not compiled yet."""
        if not isinstance(double, CpuEngine):
            return None
        inner = double._kernels.get(key) or double._kernels.get((*key, single))
        rounded_key = *key, "rounded", joint_forces, single
        if inner is not None and rounded_key not in self._kernels:
            from robodyn.engines.cpu.chains.build import mixed_precision_kernel

            force = next(iter(joint_force_steps(self.model, question, inner.inputs, joint_forces)), None)
            self._kernels[rounded_key] = mixed_precision_kernel(
                self.compiler, self.request(*key), inner.plain or inner, force
            )
        return self._kernels.get(rounded_key)

    def around(
        self, task: ScalarTask, counts: Mapping[str, int], shape: tuple[int, ...], check: bool | None
    ) -> Entry | None:
        """A built-in function that measures distances to obstacles; see `protocol.Engine`."""
        entry, measured = self.entry(task.name, "", _nothing), task.distance_query
        if entry is None or measured is None:
            return None
        kernel, arrays = self.kernel(task), tuple(name for name in task.inputs if name != "counts")
        shapes = input_shapes(self.model, task) | {kind: (k, OBSTACLES[kind]) for kind, k in counts.items()}
        numbers = np.array([*counts.values()], np.int64)
        inputs = [
            Input(0, (), fixed=numbers) if name == "counts" else Input(arrays.index(name), shapes[name])
            for name in kernel.inputs
        ]
        rounds = measured.rounds(counts)
        answers = self._answers(task.name, arrays, inputs, [shape], [kernel, kernel], check, None, steps=rounds)
        entry.forms.add(len(arrays), (), [Argument("array", k) for k in range(len(arrays))], arrays, {}, answers)
        return entry

    def direct(
        self, task: ScalarTask, arrays: Sequence[str], link: int | None = None, *, batches: bool = True
    ) -> Answers:
        """The kernels with which a built-in function answers calls of a task. `arrays`: names of a call's arrays, in
        order. `batches`: False if all calls are about one state. Calls with NaN or infinity in inputs or results are
        left to the fallback.

        Raises:
            UnavailableError: no built-in function can answer the task.
        """
        kernels = [
            self._entry_kernel(self.kernel(cast(Task, task), (), link, single=single)) if single or batches else None
            for single in (False, True)
        ]
        inputs = [Input(arrays.index(name), shape) for name, shape in input_shapes(self.model, task).items()]
        outputs = [output_shape(self.model, output) for output in task.outputs.values()]
        if not answers_can_be(self.dtype, inputs, outputs, kernels):
            raise UnavailableError(f"{task.name}: no built-in function")
        return Answers(self.dtype, inputs, outputs, kernels[0], kernels[1], True)

    def _entry_kernel(self, kernel: Kernel, steps: int = 1) -> EntryKernel:
        """The kernel as an entry calls it. `steps`: how often it processes each row."""
        grain = self.grain(kernel, steps)
        return EntryKernel(
            address=kernel.address,
            constants=kernel.constants,
            workspace=kernel.workspace_bytes,
            grain=grain,
            share_rows=max(self.share_rows(kernel, steps), grain + 1),  # one piece needs one thread
            release_rows=min(RELEASE_ROWS, math.ceil(RELEASE_NS / (steps * kernel.row_ns))),
            keep=kernel,
            batch=cache_pressure(kernel.request.target) if kernel.batch else 0,
        )

    def _scratch_of(self, size: int) -> Scratch:
        """Scratch memory that entries share: the largest block so far. Earlier, smaller blocks belong to entries made
        with them."""
        if self._scratch is None or self._scratch.size < size:
            self._scratch = Scratch(size)
        return self._scratch

    def load(self, text: str) -> Code:
        """Load a module that all robots share, from the cache or compiled."""
        return self.compiler.shared(text, _RUNTIME, host_target())

    @property
    def pool(self) -> Pool:
        """The threads that share batches. All engines with the same number of threads use the same pool."""
        maker = self.compiler  # not self: the pool lives as long as the process and would keep the engine alive

        def load(text: str) -> Code:
            return maker.shared_soon(text, _RUNTIME, host_target(), BETTER_POOLS)

        return shared_pool(self.threads, load)

    def _begin(self, text: str) -> None:
        self.compiler.begin(text, _RUNTIME, host_target(), hurried=True)

    def _load_entries(self, text: str) -> Code:
        """Load the module of built-in functions."""
        return self.compiler.shared_soon(text, _RUNTIME, host_target(), BETTER)

    def launch(self, kernel: Kernel, table: int, rows: int, steps: int = 1) -> None:
        """Run a kernel on the rows that a table describes, in this thread or shared with others. `steps`: how often the
        kernel processes each row."""
        if not rows:
            return  # loops over steps begin with the first row
        share = self.threads > 1 and rows > 1 and rows * steps * kernel.row_ns > SHARE_NS
        grain = self.grain(kernel, steps) if share else rows
        share = rows > grain
        participants = self.threads if share else 1
        stride = _stride(kernel)
        address, owner = self._take_workspace(stride * participants)
        try:
            if share:
                self.pool.run(kernel.address, table, rows, grain, address, stride)
            else:
                kernel.function(table, 0, rows, address)
        finally:
            self._return_workspace(stride * participants, address, owner)

    def _launch_tasks(self, kernel: Kernel, table: ctypes.Array[ctypes.c_int64], batch: int) -> None:
        """Run a kernel whose rows are tasks, one vector of states after another; see `parts.code`."""
        pool = self.pool
        done = np.empty(kernel.tasks, np.int32)
        table[-CALL_WORDS:] = [0, batch, done.ctypes.data, pool.give_way]
        address, owner = self._take_workspace(kernel.workspace_bytes)
        try:
            for row in range(0, batch, kernel.width):
                done[:], table[-CALL_WORDS] = 0, row
                pool.run_tasks(kernel.address, ctypes.addressof(table), kernel.tasks, address)
        finally:
            self._return_workspace(kernel.workspace_bytes, address, owner)

    def grain(self, kernel: Kernel, steps: int = 1) -> int:
        """Rows of a piece of work: whole vectors of states that take some microseconds."""
        width = self.target.width(self.dtype)
        return max(1, math.ceil(PIECE_NS / (steps * kernel.row_ns * width))) * width

    def share_rows(self, kernel: Kernel, steps: int = 1) -> int:
        """Rows from which a batch is shared between threads."""
        return math.ceil(SHARE_NS / (steps * kernel.row_ns))

    def _take_workspace(self, size: int) -> tuple[int, Array | None]:
        """Scratch memory. Blocks are kept between calls, because page faults on new ones take as long as the
        computation."""
        if size == 0:
            return 0, None
        kept = self._workspaces.setdefault(size, [])
        try:
            return kept.pop()
        except IndexError:
            return workspace(size)

    def _return_workspace(self, size: int, address: int, owner: Array | None) -> None:
        if owner is not None and len(self._workspaces[size]) < KEPT_WORKSPACES:
            self._workspaces[size].append((address, owner))


def joint_force_steps(
    model: Model, question: QuerySpec, inputs: Sequence[str], counted: tuple[str, ...]
) -> list[JointForce]:
    """The additions of damping and friction to inputs and results."""
    steps, nothing = [], np.zeros(model.nv)
    damping = model.damping if "damping" in counted else nothing
    friction = model.friction if "friction" in counted else nothing
    for name, part in question.joint_forces.items() if counted else ():
        source = None if part == "slope" else inputs.index("vector" if part == "slope of vector" else "qd")
        if part == "force" and name in inputs:
            steps.append(JointForce(inputs.index(name), source, damping, friction))
        elif name in question.results:
            target = len(inputs) + list(question.results).index(name)
            dry, step = (friction, 1) if part == "force" else (nothing, model.nv + 1 if part == "slope" else 1)
            steps.append(JointForce(target, source, damping, dry, step))
    return steps


def _nothing(*_: Any) -> None:
    """The function behind a built-in one of which only `strict` is called."""


def _no_built_in(name: str, arrays: Iterable[str]) -> UnavailableError:
    return UnavailableError(f"{name}: no built-in function for calls with {', '.join(arrays)}")


def _wants_more(kernel: Kernel, error: Array) -> bool:
    """Compile the iterations that go on if these errors need them. True if they were not there."""
    return isinstance(kernel.keep, RepeatedProgram) and kernel.keep.wants_more(error)


def _stride(kernel: Kernel) -> int:
    """Bytes between the scratch memories of two threads."""
    return -(-kernel.workspace_bytes // 64) * 64


def _key(algorithm: Task, base: tuple[str, ...], link: int | None, plan: Plan | None = None) -> tuple[Any, ...]:
    """The key of a kernel. It holds the algorithm itself, because names are not unique."""
    return (algorithm, base, link) if plan is None else (algorithm, base, link, "parts")


def _table(kernel: Kernel, arrays: Sequence[Array], batch: int) -> ctypes.Array[ctypes.c_int64]:
    """The argument table of a kernel, from its inputs and outputs (B, n)."""
    words = [word for array in arrays for word in (array.__array_interface__["data"][0], array.strides[0])]
    table = (ctypes.c_int64 * (len(words) + len(kernel.constants)))(*words, *kernel.constants)
    if kernel.batch:
        table[len(table) - 1] = batch
    return table


def _rows(array: Array) -> Array:
    """The array as (B, n) with contiguous rows; copied only if necessary."""
    flat = array.reshape(array.shape[0], -1)
    if flat.shape[1] > 1 and flat.strides[1] != flat.itemsize:
        return np.ascontiguousarray(flat)
    return flat


def _row_target(array: Array) -> Array:
    """The array that a kernel writes an output to: the output itself if its rows are contiguous, else a new array."""
    inner = array[:1].flags.c_contiguous
    return array if inner else np.empty(array.shape, array.dtype)
