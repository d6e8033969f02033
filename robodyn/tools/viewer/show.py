"""`robodyn.show`: converts its arguments to a robot, a motion and shapes, and makes the view."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from robodyn.api.dynamics import Dynamics
from robodyn.api.motion.result import Rollout
from robodyn.core.model import Model
from robodyn.internals import strict_types
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import brief
from robodyn.io.builders.mesh_files import MeshFiles, checked_folders
from robodyn.tools.viewer.motion import Motion, motion_of, one_state
from robodyn.tools.viewer.view import View
from robodyn.tools.viewer.visuals import Looks, drawn, looks_of

_MOST_LINKS = 100_000


def show(
    robot: Model | Dynamics | Rollout,
    q: Any = None,
    *,
    f_ext: Any = None,
    model: Model | Dynamics | None = None,
    looks: Any = None,
    package_dirs: Sequence[str | os.PathLike[str]] = (),
    port: int = 0,
    origins: Sequence[str] = (),
) -> View:
    """Show a robot or a rollout in a browser: open `view.url`, or let a notebook display the view.

    Args:
        robot: a model, a `Dynamics` (with its constraints), or a rollout, which gets a play bar.
        q: (nq,) the first configuration; None for the neutral one. Not for rollouts.
        f_ext: external forces as in queries, drawn as arrows: (n_bodies, 6), or (K, ..., n_bodies, 6) for the states of
            a rollout.
        model: the robot, for a rollout that was read from a file.
        looks: a URDF whose `<visual>` elements are drawn: a path, XML text, bytes or an open file. None: the model's
            geometries; False: none. Links without a shape are drawn as ellipsoids of inertia.
        package_dirs: folders of packages, for meshes named `package://NAME/...`.
        port: port of the server on 127.0.0.1; 0 is any free port.
        origins: origins of other pages that may use the view, such as "https://hub.example.org" with a proxy that
            forwards requests. Pages of this machine are always allowed; all others are refused.

    Raises:
        ArgumentError: an argument of the wrong type or shape, a port that is taken, or more than 100,000 links.
        NumericalError: NaN or infinity, or links too far away to be drawn.
        UnavailableError: viser is not installed.
    """
    dyn, motion = _moving(robot, q, f_ext, model)
    return View(dyn, _looks(dyn.model, looks, package_dirs), motion, port, origins)


def _moving(robot: Any, q: Any, f_ext: Any, model: Any) -> tuple[Dynamics, Motion]:
    """The robot and the motion from the arguments of `show`."""
    if strict_types.is_a(robot, Rollout):
        if q is not None:
            raise ArgumentError(f"q: got {brief(q)}; a rollout has its configurations")
        dyn = _dynamics("model", robot.model if model is None else model)
        return dyn, motion_of(robot, dyn.model, f_ext)
    if model is not None:
        raise ArgumentError(f"model: got {brief(model)}; only a rollout takes one")
    dyn = _dynamics("robot", robot)
    state, forces = one_state(q, f_ext, dyn.model)
    return dyn, Motion(np.zeros(1), state[None, None], None if forces is None else forces[None, None])


def _dynamics(name: str, given: Any) -> Dynamics:
    """A `Dynamics` of the robot in float64."""
    if given is None and name == "model":
        raise ArgumentError("model: the rollout does not know its robot, as one that was read from a file; give model=")
    if not strict_types.is_a(given, Model, Dynamics):
        wanted = "a robodyn.Model, Dynamics or Rollout" if name == "robot" else "a robodyn.Model or Dynamics"
        raise ArgumentError(f"{name}: got {brief(given)}; wanted {wanted}")
    model: Model = given.model if strict_types.is_a(given, Dynamics) else given
    if len(model.link_names) > _MOST_LINKS:
        raise ArgumentError(f"{name}: got a robot of {len(model.link_names)} links; wanted at most {_MOST_LINKS}")
    return Dynamics(model)


def _looks(model: Model, given: Any, package_dirs: Any) -> Looks:
    if given is False:
        checked_folders(package_dirs)
        return Looks()
    return drawn(model.geometries, MeshFiles(package_dirs)) if given is None else looks_of(given, package_dirs)
