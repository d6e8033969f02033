"""`robodyn.show`: what is given becomes a robot, the states that it takes, and how it looks."""

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
    """Show a robot, or a rollout, in a browser: open `view.url`, or let a notebook show the view.

    Args:
        robot: a model, a `Dynamics` (with its constraints), or a rollout, which gets a play bar.
        q: (nq,) the configuration that is shown first; neutral if not given. Not for rollouts.
        f_ext: external forces as queries take them, drawn as arrows: (n_bodies, 6), or of a rollout's states
            (K, ..., n_bodies, 6).
        model: the robot of a rollout that does not know its own, as one that was read from a file.
        looks: a URDF with the `<visual>` elements that links look like: a path, XML text, bytes or an open file. If not
            given the geometries of the model; False for none. Links without a shape are ellipsoids of their inertia.
        package_dirs: folders that hold packages, for meshes named `package://NAME/...`.
        port: where the server listens, on 127.0.0.1 alone; 0 is any port that is free.
        origins: pages of other servers that may use the view, such as "https://hub.example.org" where a proxy there
            passes its requests on. Pages of this machine's own names may; other pages are refused.

    Raises:
        ArgumentError: an argument of another type or shape, a port that is taken, or more than 100,000 links.
        NumericalError: NaN or infinity, or links farther away than can be drawn.
        UnavailableError: viser is not installed.
    """
    dyn, motion = _moving(robot, q, f_ext, model)
    return View(dyn, _looks(dyn.model, looks, package_dirs), motion, port, origins)


def _moving(robot: Any, q: Any, f_ext: Any, model: Any) -> tuple[Dynamics, Motion]:
    """Of what is given the robot, and the states that it takes."""
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
    """A `Dynamics` to ask, with float64."""
    if given is None and name == "model":
        raise ArgumentError("model: the rollout does not know its robot, as one that was read from a file; give model=")
    if not strict_types.is_a(given, Model, Dynamics):
        wanted = "a robodyn.Model, Dynamics or Rollout" if name == "robot" else "a robodyn.Model or Dynamics"
        raise ArgumentError(f"{name}: got {brief(given)}; wanted {wanted}")
    known: Model = given.model if strict_types.is_a(given, Dynamics) else given
    if len(known.link_names) > _MOST_LINKS:
        raise ArgumentError(f"{name}: got a robot of {len(known.link_names)} links; wanted at most {_MOST_LINKS}")
    return Dynamics(known)


def _looks(model: Model, given: Any, package_dirs: Any) -> Looks:
    if given is False:
        checked_folders(package_dirs)
        return Looks()
    return drawn(model.geometries, MeshFiles(package_dirs)) if given is None else looks_of(given, package_dirs)
