"""One target from one initial configuration, as a control loop asks: blocks of steps are built-in functions.

The search of `robodyn.solve.inverse_kinematics.search` works on batches. For one target that converges from its first
initial configuration, its arrays take ten times as long as the steps. All other calls are left to it.
"""

from __future__ import annotations

import math
from typing import Any

from robodyn.algorithms.tasks import ScalarTask
from robodyn.internals.arguments import Array
from robodyn.solve.inverse_kinematics.aims import MEASURES, AllTasks
from robodyn.solve.inverse_kinematics.search import Settings, pulls_until

_INPUTS = ("q", "goals", "settings")


class OneTarget:
    """Blocks of steps on one state.

    Args:
        engine: a CPU engine.
        task: a block of steps, from `robodyn.solve.inverse_kinematics.levenberg.steps_task`.
        steps: number of steps in a block.
        asked: all tasks.
        arrays: a configuration, goals and settings, as calls give them.

    Raises:
        UnavailableError: the block does not compile.
    """

    def __init__(self, engine: Any, task: ScalarTask, steps: int, asked: AllTasks, arrays: tuple[Array, ...]) -> None:
        from robodyn.engines.cpu.native.entry import Argument

        self._steps, self._secondary, self._highest = steps, asked.secondary, asked.highest
        self._entry = engine.entry("block", "A block of steps.", lambda *_: None)
        if self._entry is not None:
            answers = engine.direct(task, _INPUTS, batches=False)
            arguments = [Argument("array", k) for k in range(len(arrays))]
            self._entry.forms.add(len(arrays), (), arguments, arrays, {}, answers)

    def search(self, q: Array, goals: Array, settings: Settings, blocks: int) -> tuple[Array, list[float], int] | None:
        """The configuration within the tolerance, its measures, and the number of steps taken. None if it is not found
        from here."""
        released, pulled, least = settings
        pulling = pulls_until(blocks) if self._secondary else 0
        if self._entry is None:
            return None
        block, missed, iterations = self._entry.strict, self._entry.missed, 0
        for k in range(blocks):
            out = block(q, goals, pulled if k < pulling else released)
            if out is missed:
                return None
            q, measures, _, used = out
            numbers, taken = measures.tolist(), round(float(used))
            iterations += taken
            if _within(numbers, self._highest, *least) and (k >= pulling or taken < self._steps):  # or it still moves
                return q, numbers, iterations
        return None


def _within(measures: list[float], highest: list[int], distance: float, angle: float) -> bool:
    """Whether errors are within the tolerance, as `Search` asks of batches."""
    if not (measures[-MEASURES] <= distance and measures[-2] <= angle and measures[-1] <= 0.0):
        return False
    return all(measures[k] <= distance and measures[k + 1] <= angle and measures[k + 2] > 0.0 for k in highest)


def residuals(measures: list[float]) -> tuple[list[list[float]], list[float]]:
    """Errors of tasks (n, 2) in m and rad, and of constraints."""
    *aims, last = (measures[k : k + MEASURES] for k in range(0, len(measures), MEASURES))
    return [[math.sqrt(a), math.atan2(math.sqrt(b), c)] for a, b, c in aims], [math.sqrt(each) for each in last[:2]]
