"""Whether a tree is worked on in parts: by a model of the work and the depth of its tasks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from robodyn.codegen.llvm.target import Target
from robodyn.codegen.loop_plan import traits_of
from robodyn.engines.cpu.parts.code import PartedModule, works_in_parts
from robodyn.engines.cpu.parts.partition import Parts, parts_of
from robodyn.engines.cpu.parts.program import grain_of, groups_of
from robodyn.engines.cpu.parts.tasks import Tasks, tasks_of
from robodyn.model import Model
from robodyn.sweeps import Algorithm

LEAST_BODIES = 500
"""Of a tree that is looked at: smaller ones are done before threads are awake."""
HAND_OUT_NS = 150_000.0
"""What a call takes longer because of threads: waking them, and a table of tasks instead of a built-in function."""
LEAST_GAIN = 1.15
"""How many times as fast parts have to be by the model, which knows nothing of memory that threads share."""


@dataclass(frozen=True, eq=False)
class Plan:
    """An algorithm on a tree in parts. `alone_ns`: by the same estimates, sweeps over the whole tree by one thread."""

    threads: int
    parts: Parts
    tasks: Tasks
    alone_ns: float

    @property
    def together_ns(self) -> float:
        """How long a state takes on all threads."""
        return self.tasks.together_ns + HAND_OUT_NS

    @property
    def gain(self) -> float:
        """How many times as fast all threads are as one."""
        return self.alone_ns / self.together_ns

    @property
    def most_gain(self) -> float:
        """The same for any number of threads: work over depth."""
        return self.alone_ns / (self.tasks.longest_ns + HAND_OUT_NS)

    def pays(self, blocks: int = 1) -> bool:
        """Whether so many states, or vectors of states, are quicker one after another on all threads than beside each
        other, each on one."""
        beside = math.ceil(blocks / self.threads) * self.alone_ns
        return blocks * self.together_ns * LEAST_GAIN < beside


def plan_of(
    model: Model,
    algorithm: Algorithm,
    base: tuple[str, ...],
    dtype: np.dtype[Any],
    target: Target,
    threads: int,
) -> Plan | None:
    """The plan of an algorithm for a number of threads; None where there is nothing to gain by counts that take no
    plan, or the algorithm's sweeps are others."""
    tree = model.tree
    if threads < 2 or len(tree) < max(LEAST_BODIES, LEAST_GAIN * tree.n_levels) or not works_in_parts(algorithm):
        return None
    groups = groups_of(model, PartedModule(algorithm, traits_of(model), dtype, target, base, width=1))
    parts = parts_of(tree, grain_of(len(tree), threads))
    return Plan(threads, parts, tasks_of(parts, groups, threads), sum(each.all_ns for each in groups))


class Planner:
    """Plans of an engine, made when first asked for."""

    def __init__(self, model: Model, dtype: np.dtype[Any], target: Target, threads: int) -> None:
        self.model, self.dtype, self.target, self.threads = model, dtype, target, threads
        self._plans: dict[tuple[Any, ...], Plan | None] = {}

    def plan(self, task: object, base: tuple[str, ...]) -> Plan | None:
        """That of a task; None where it does not come in parts, whatever the batch."""
        if self.model.n_bodies < LEAST_BODIES or self.threads < 2 or not isinstance(task, Algorithm):
            return None
        key = task, base
        if key not in self._plans:
            self._plans[key] = plan_of(self.model, task, base, self.dtype, self.target, self.threads)
        return self._plans[key]

    def words(self, task: object, batch: int, width: Callable[[], int]) -> str:
        """What is done about a tree, in words; nothing of trees that are too small. `width`: states in a vector of a
        batch."""
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
