"""What environments draw: pictures of all robots, or the first robot live in the viewer."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from robodyn.bridges.simulators.tasks import Parameters, States, Task
from robodyn.internals.arguments import Array, one_of
from robodyn.internals.provided import provided

MODES = ("human", "rgb_array")


class Renderer:
    """Draws the robots of a task.

    Args:
        task: has the robot, and the time between two states.
        mode: one of `MODES`, or None.

    Attributes:
        fps: states in a second.
        view: the viewer's view of the mode "human", once there is a state; None before, and in other modes.

    Raises:
        ArgumentError: another mode.
    """

    def __init__(self, task: Task, mode: Any) -> None:
        self._mode = None if mode is None else one_of("render_mode", mode, MODES)
        self._task, self._due = task, 0.0
        self._pictures: Any = None
        self.fps = max(1, round(1.0 / task.dt))
        self.view: Any = None

    def follow(self, states: States) -> None:
        """In the mode "human" show the first robot, not before the last state was shown for as long as a step takes."""
        if self._mode != "human":
            return
        q = np.asarray(states[0][0], np.float64)
        if self.view is None:
            self.view = provided("show")(self._task.dyn, q)
        time.sleep(max(0.0, self._due - time.monotonic()))
        self.view.show(q)
        self._due = time.monotonic() + self._task.dt

    def pictures(self, states: States, parameters: Parameters) -> tuple[Array, ...] | None:
        """In the mode "rgb_array" a picture of each robot, (height, width, 3) of 8 bits.

        Raises:
            UnavailableError: Matplotlib is not installed.
        """
        if self._mode != "rgb_array":
            return None
        if self._pictures is None:
            self._pictures = provided("Pictures")(self._task.dyn)
        ground = parameters.get("ground_pose", [None] * len(states[0]))
        return tuple(self._pictures.picture(q, pose) for q, pose in zip(states[0], ground, strict=True))

    def close(self) -> None:
        """Close the view."""
        if self.view is not None:
            self.view.close()
            self.view = None
