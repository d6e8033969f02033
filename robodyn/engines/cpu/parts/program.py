"""Rolled code for one tree in parts: the module that serves it, its tasks, and the arrays the module reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from robodyn.arguments import Array
from robodyn.cached import cached_property
from robodyn.codegen.llvm.target import Target
from robodyn.codegen.loop_plan import Gather, RolledPlan
from robodyn.engines.cpu.loops.program import RolledProgram
from robodyn.engines.cpu.parts.code import PartedModule
from robodyn.engines.cpu.parts.partition import Parts
from robodyn.engines.cpu.parts.tasks import Group, Tasks
from robodyn.joints import KINDS
from robodyn.model import Model
from robodyn.sweeps import Algorithm, FieldOutput, Inward, Links, World
from robodyn.tracing.rolled import Step, StepTracer

GRAINS, LEAST_GRAIN, MOST_GRAIN = 16, 64, 2048
"""Parts for each thread, about, and the bodies of one: their fields stay in a processor's own cache."""
_OPERATION_NS, _NUMBER_NS = 0.1, 0.25
"""Of a step of rolled code on one state: each operation, and each number that is loaded or stored."""


class PartedPlan(RolledPlan):
    """Sizes and arrays of one algorithm on one model in parts."""

    parts: Parts

    def _bodies(self, output: FieldOutput) -> Gather:
        """Rows of a field in the order of the model's bodies."""
        each = self.algorithm.fields[output.field].size(0)
        source = ((1 + self.parts.number)[:, None] * each + np.arange(each)).ravel()
        pairs = np.stack([source, np.arange(source.size)], axis=1)
        return Gather(output.field, pairs, np.ones(source.size), source.size)


def grain_of(bodies: int, threads: int) -> int:
    """Bodies of a part."""
    return min(max(bodies // (GRAINS * threads), LEAST_GRAIN), MOST_GRAIN)


def groups_of(model: Model, tracer: StepTracer) -> list[Group]:
    """The sweeps of an algorithm as groups with estimates of their work on each body, or link."""
    found = [Group("begin", 0, np.zeros(()))]
    for group in tracer.groups:
        sweep = tracer.algorithm.sweeps[group[0]]
        if isinstance(sweep, World):
            found.append(Group("world", group[0], np.zeros(())))
        elif isinstance(sweep, Links):
            found.append(Group("links", group[0], np.array(_step_ns(tracer.links(sweep)))))
        else:
            by_kind = np.zeros(len(KINDS))
            for kind in tracer.kinds:
                by_kind[KINDS.index(kind)] = _step_ns(tracer.bodies(group, kind))
            inward = isinstance(sweep, Inward)
            given = {name for number in group for name in getattr(tracer.algorithm.sweeps[number], "gives", ())}
            sums = sum(3 * tracer.stored(name) for name in given) * _NUMBER_NS if inward else 0.0
            found.append(Group("inward" if inward else "outward", group[0], by_kind[model.joint_kind], sums))
    return [*found, Group("end", 0, np.zeros(()))]


def _step_ns(step: Step) -> float:
    return _OPERATION_NS * step.program.operations + _NUMBER_NS * (len(step.sources) + len(step.targets))


class PartedProgram(RolledProgram):
    """One algorithm on one model in parts as rolled code; see `RolledProgram`. `tasks`: in their order."""

    _MODULE = PartedModule
    module: PartedModule

    def __init__(
        self,
        model: Model,
        algorithm: Algorithm,
        dtype: np.dtype[Any],
        target: Target,
        base: tuple[str, ...],
        width: int | None,
        parts: Parts,
        tasks: Tasks,
    ) -> None:
        self.parts, self.tasks = parts, tasks
        super().__init__(model, algorithm, dtype, target, base, None, width)

    def _plan(self, algorithm: Algorithm, base: tuple[str, ...], link: int | None, mimic: bool) -> RolledPlan:
        plan = PartedPlan(self.model, algorithm, base, link, mimic)
        plan.parts = self.parts
        return plan

    def _vectors(self, array: str) -> int:
        """Vectors in an array of the workspace: what roots give has places besides those of bodies."""
        what, name = array.split(" ", 1)
        more = self.parts.roots.size if what == "field" and name in self.module.given else 0
        return super()._vectors(array) + (more * self.module.tracer.stored(name) if more else 0)

    def _array(self, name: str) -> Array:
        parts, model = self.parts, self.model
        if name in ("tasks", "operations", "after"):
            return self._told_tasks[name]
        if name in ("Xtree", "inertia", "pitch"):
            return np.ascontiguousarray(getattr(model, name)[parts.body], self.dtype)
        tables: dict[str, Callable[[], Array]] = {
            "parent": lambda: parts.parent,
            "gives_to": lambda: parts.gives_to,
            "visits": lambda: parts.visits[0],
            "row": lambda: parts.body,
            "kind": lambda: model.joint_kind[parts.body],
            "q_start": lambda: model.q_start[parts.body],
            "v_start": lambda: model.v_start[parts.body],
            "v_own": lambda: self._own_velocities,
            "link_body": lambda: np.where(model.link_body < 0, -1, parts.number[model.link_body]),
        }
        return np.ascontiguousarray(tables[name](), np.int64) if name in tables else super()._array(name)

    @property
    def _own_velocities(self) -> Array:
        nv = np.array([kind.nv for kind in KINDS])[self.model.joint_kind[self.parts.body]]
        starts: Array = np.cumsum(nv) - nv
        return starts

    @cached_property
    def _told_tasks(self) -> dict[str, Array]:
        """Tasks as code reads them: where what a task does begins and ends, and where what it waits for."""
        codes = {name: number for number, name in enumerate(self.module.operations)}
        tasks = self.tasks
        done = [(codes[name], first, last) for each in tasks.operations for name, first, last in each]
        after = [before for each in tasks.after for before in each]
        ends = [np.cumsum([0, *map(len, each)]) for each in (tasks.operations, tasks.after)]
        told = np.stack([part for end in ends for part in (end[:-1], end[1:])], axis=1)
        return {
            "tasks": np.ascontiguousarray(told, np.int64),
            "operations": np.array(done, np.int64).reshape(-1, 3),
            "after": np.array(after, np.int64),
        }
