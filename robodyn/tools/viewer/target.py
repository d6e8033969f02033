"""A handle in the scene to drag a link; inverse kinematics follows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation  # type: ignore[import-untyped]

from robodyn.api.dynamics import Dynamics
from robodyn.internals.arguments import Array
from robodyn.internals.errors import ArgumentError
from robodyn.solve.inverse_kinematics.solver import InverseKinematics
from robodyn.tools.viewer.shapes import attitudes

_SIZE = 0.25
"""Size of the handle relative to the robot's."""


class Target:
    """The handle of one link. It follows the link, except while it is dragged (`held`)."""

    def __init__(
        self, server: Any, dyn: Dynamics, link: str, size: float, moved: Callable[[Target, bool], None]
    ) -> None:
        model = dyn.model
        self._number = model.link_index(link)
        if model.link_body[self._number] < 0:
            raise ArgumentError(f"link: got {link!r}, which is fixed to the world; wanted one that moves")
        self.link, self.held = link, False
        self._ik = InverseKinematics(model, [link])
        self._handle = server.scene.add_transform_controls("/target", scale=_SIZE * size, depth_test=False)
        self._done: tuple[Array, Array] | None = None
        self._handle.on_update(lambda event: moved(self, event.phase == "end"))

    def remove(self) -> None:
        """Remove the handle from the scene."""
        self._handle.remove()

    def show(self, shown: bool) -> None:
        """Show or hide the handle."""
        self._handle.visible = shown

    def follow(self, poses: Array) -> None:
        """Move the handle to the link, unless it is being dragged."""
        if self.held:
            return
        pose = poses[self._number]
        self._handle.position, self._handle.wxyz = pose[:3, 3], attitudes(pose[None, :3, :3])[0]
        self._done = self._place()

    def moved(self) -> bool:
        """Whether the handle has moved since the last solution. viser's calls come late and in bursts."""
        return self._done is None or not all(map(np.array_equal, self._place(), self._done))

    def solve(self, q: Array) -> Array:
        """The configuration (nq,) near q that brings the link to the handle, or as close as possible."""
        self._done = position, wxyz = self._place()
        pose = np.eye(4)
        pose[:3, :3], pose[:3, 3] = Rotation.from_quat(wxyz[[1, 2, 3, 0]]).as_matrix(), position
        solution, _ = self._ik.solve(pose[None], q0=q, seeds=1)
        return np.asarray(solution, dtype=np.float64)

    def _place(self) -> tuple[Array, Array]:
        handle = self._handle
        return np.array(handle.position, dtype=np.float64), np.array(handle.wxyz, dtype=np.float64)
