"""Decides whether the threads share one tree, by a model of the run time and the dependencies between tasks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from robodyn.compile.llvm.target import Target
from robodyn.compile.loop_plan import traits_of
from robodyn.core.model import Model
from robodyn.core.sweeps import Algorithm
from robodyn.engines.cpu.parts.code import PartedModule, works_in_parts
from robodyn.engines.cpu.parts.partition import Parts, parts_of
from robodyn.engines.cpu.parts.program import grain_of, groups_of
from robodyn.engines.cpu.parts.tasks import Tasks, tasks_of
from robodyn.internals.arguments import Array
from robodyn.internals.cached import cached_property
from robodyn.internals.records import dataclass
from robodyn.internals.tuning import HAND_OUT_NS, LEAST_BODIES, LEAST_GAIN


@dataclass(frozen=True, eq=False)
class Plan:
    """The plan of an algorithm on a tree in parts.

    `alone_ns`: estimated time of one thread for the whole tree, ns; `renumbered`: see `PartedProgram`.
    """

    threads: int
    parts: Parts
    tasks: Tasks
    alone_ns: float
    renumbered: dict[str, Array]

    @property
    def together_ns(self) -> float:
        """Estimated time of a state on all threads, ns."""
        return self.tasks.together_ns + HAND_OUT_NS

    @property
    def gain(self) -> float:
        """Estimated speedup of all threads over one."""
        return self.alone_ns / self.together_ns

    @property
    def most_gain(self) -> float:
        """Estimated speedup for any number of threads: work over the longest chain of tasks."""
        return self.alone_ns / (self.tasks.longest_ns + HAND_OUT_NS)

    def pays(self, blocks: int = 1) -> bool:
        """True if states are faster one after another, each on all threads, than on one thread each. `blocks`: number
        of states, or of vectors of states."""
        beside = math.ceil(blocks / self.threads) * self.alone_ns
        return blocks * self.together_ns * LEAST_GAIN < beside


class Planner:
    """Plans of an engine, made on first use. All of them divide the tree into the same parts."""

    def __init__(self, model: Model, dtype: np.dtype[Any], target: Target, threads: int) -> None:
        self.model, self.dtype, self.target, self.threads = model, dtype, target, threads
        self._plans: dict[tuple[Any, ...], Plan | None] = {}
        self._renumbered: dict[str, Array] = {}

    @cached_property
    def parts(self) -> Parts:
        """The parts of the tree."""
        tree = self.model.tree
        return parts_of(tree, grain_of(len(tree), self.threads))

    def plan(self, task: object, base: tuple[str, ...]) -> Plan | None:
        """The plan of a task. None if the tree is too small or too deep, if there is one thread, or if the task does
        not work in parts."""
        if self.model.n_bodies < LEAST_BODIES or self.threads < 2 or not isinstance(task, Algorithm):
            return None
        key = task, base
        if key not in self._plans:
            deep = self.model.n_bodies < LEAST_GAIN * self.model.tree.n_levels
            self._plans[key] = None if deep or not works_in_parts(task) else self._planned(task, base)
        return self._plans[key]

    def _planned(self, algorithm: Algorithm, base: tuple[str, ...]) -> Plan:
        traits = traits_of(self.model)
        groups = groups_of(self.model, PartedModule(algorithm, traits, self.dtype, self.target, base, width=1))
        tasks = tasks_of(self.parts, groups, self.threads)
        return Plan(self.threads, self.parts, tasks, sum(each.all_ns for each in groups), self._renumbered)

    def words(self, task: object, batch: int, width: Callable[[], int]) -> str:
        """A sentence for `explain` on how the threads work on a tree; empty for small trees. `width`: returns the
        states in a vector of a batch."""
        tree = self.model.tree
        if len(tree) < LEAST_BODIES or self.threads < 2 or not isinstance(task, Algorithm):
            return ""
        plan = self.plan(task, ())
        if plan is None and works_in_parts(task):
            return f"one thread for a state: {tree.n_levels} of {len(tree)} bodies hang one from the other"
        if plan is None:
            return "one thread for a state: the recursion does not come in parts"
        model = f"{plan.gain:.3g} times as fast as on one by the model, {plan.most_gain:.3g} at most"
        if plan.pays(1 if batch == 1 else -(-batch // width())):
            return f"the tree in {len(plan.parts)} parts on {self.threads} threads, {model}"
        return f"one thread for a state: {self.threads} threads on one tree would be {model}"
