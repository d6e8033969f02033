"""Rolled code for one tree in parts: the shared module, its tasks, and the arrays that it reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from robodyn.compile.llvm.target import Target
from robodyn.compile.loop_plan import Gather, RolledPlan
from robodyn.compile.tracing.rolled import Step
from robodyn.core.joints import KINDS
from robodyn.core.model import Model
from robodyn.core.sweeps import Algorithm, ColumnOutput, FieldOutput, Inward, Links, World
from robodyn.engines.cpu.loops.program import RolledProgram
from robodyn.engines.cpu.parts.code import PartedModule
from robodyn.engines.cpu.parts.partition import Parts
from robodyn.engines.cpu.parts.tasks import Group, Tasks, Work
from robodyn.internals.arguments import Array
from robodyn.internals.cached import cached_property
from robodyn.internals.tuning import COPY_NS, GATHER_NS, GRAINS, LEAST_GRAIN, MOST_GRAIN, NUMBER_NS, ROLLED_OPERATION_NS


class PartedPlan(RolledPlan):
    """Sizes and arrays of one algorithm on one model in parts."""

    parts: Parts

    def _bodies(self, output: FieldOutput) -> Gather:
        """Gather rows of a field into the order of the model's bodies."""
        each = self.algorithm.fields[output.field].size(0)
        source = ((1 + self.parts.number)[:, None] * each + np.arange(each)).ravel()
        pairs = np.stack([source, np.arange(source.size)], axis=1)
        return Gather(output.field, pairs, np.ones(source.size), source.size)


def grain_of(bodies: int, threads: int) -> int:
    """Bodies of a part."""
    return min(max(bodies // (GRAINS * threads), LEAST_GRAIN), MOST_GRAIN)


def groups_of(model: Model, module: PartedModule) -> list[Group]:
    """The work of an algorithm, with estimated times for each body, link or entry of a result."""
    tracer, algorithm = module.tracer, module.algorithm
    found = []
    for group in tracer.groups:
        sweep, name = algorithm.sweeps[group[0]], f"sweep {group[0]}"
        if isinstance(sweep, World):
            found.append(Group("alone", name, np.zeros(())))
        elif isinstance(sweep, Links):
            ns = np.array(_step_ns(tracer.links(sweep)))
            found.append(Group("pieces", name, ns, count=len(model.link_names)))
        else:
            by_kind = np.zeros(len(KINDS))
            for kind in tracer.kinds:
                by_kind[KINDS.index(kind)] = _step_ns(tracer.bodies(group, kind))
            sums = 3 * NUMBER_NS * sum(map(tracer.stored, module.gives(group)))
            work: Work = "inward" if isinstance(sweep, Inward) else "outward"
            found.append(Group(work, name, by_kind[model.joint_kind], sums))
    counts = {name: _entries(model, algorithm, name) for name in module.pieced}
    found += [Group("pieces", f"gather {name}", np.array(GATHER_NS), count=count) for name, count in counts.items()]
    moved = sum(counts.values()) + (model.nv_tree * (len(module.raw) + 1) if model.has_mimic else 0)
    around = [Group("alone", name, np.array(COPY_NS * moved)) for name in ("begin", "end")]
    return [around[0], *found, around[1]]


def _entries(model: Model, algorithm: Algorithm, name: str) -> int:
    """Scalars of a result that is gathered in pieces."""
    output = algorithm.outputs[name]
    if isinstance(output, FieldOutput):
        return model.n_bodies * algorithm.fields[output.field].size(0)
    assert isinstance(output, ColumnOutput)
    return model.nv_tree * output.rows


def _step_ns(step: Step) -> float:
    return ROLLED_OPERATION_NS * step.program.operations + NUMBER_NS * (len(step.sources) + len(step.targets))


class PartedProgram(RolledProgram):
    """One algorithm on one model in parts as rolled code; see `RolledProgram`.

    `tasks`: the tasks in order; `renumbered`: the model's arrays in the order of parts, shared by all algorithms;
    arrays are added on first use.
    """

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
        renumbered: dict[str, Array],
    ) -> None:
        self.parts, self.tasks, self._renumbered = parts, tasks, renumbered
        super().__init__(model, algorithm, dtype, target, base, None, width)

    def _plan(self, algorithm: Algorithm, base: tuple[str, ...], link: int | None, mimic: bool) -> RolledPlan:
        plan = PartedPlan(self.model, algorithm, base, link, mimic)
        plan.parts = self.parts
        return plan

    def _vectors(self, array: str) -> int:
        """Number of vectors in an array of the workspace. Fields that inward sweeps sum have places for roots after
        those of bodies."""
        what, name = array.split(" ", 1)
        more = self.parts.roots.size if what == "field" and name in self.module.given else 0
        return super()._vectors(array) + (more * self.module.tracer.stored(name) if more else 0)

    def _array(self, name: str) -> Array:
        parts, model = self.parts, self.model
        if name in ("tasks", "operations", "after"):
            return self._told_tasks[name]
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
        numbers = ("Xtree", "inertia", "pitch")
        if name in numbers and name not in self._renumbered:
            self._renumbered[name] = np.ascontiguousarray(getattr(model, name)[parts.body], self.dtype)
        elif name in tables and name not in self._renumbered:
            self._renumbered[name] = np.ascontiguousarray(tables[name](), np.int64)
        return self._renumbered[name] if name in (*numbers, *tables) else super()._array(name)

    @property
    def _own_velocities(self) -> Array:
        nv = np.array([kind.nv for kind in KINDS])[self.model.joint_kind[self.parts.body]]
        starts: Array = np.cumsum(nv) - nv
        return starts

    @cached_property
    def _told_tasks(self) -> dict[str, Array]:
        """The tasks in the form that code reads: ranges of operations, and of tasks to wait for."""
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
