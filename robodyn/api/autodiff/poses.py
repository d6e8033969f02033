"""Differentiable poses of bodies, and quantities that follow from them: poses of links, centre of mass, generalised
forces of external forces.

The derivative of a pose is dT = xi^ T. The body's spatial velocity xi in world coordinates is a sum of the motions of
the joints on its path, which are functions of poses again. So poses have derivatives of every order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from robodyn.api.autodiff.coordinates import Coordinates
from robodyn.api.autodiff.dynamics_rules import times, times_transposed
from robodyn.api.autodiff.rules import Arrays, Library, Rates, Smooth
from robodyn.api.dynamics import Dynamics
from robodyn.core.joints import KINDS
from robodyn.core.model import Model
from robodyn.core.model_fields import OPTIONAL, Numbered
from robodyn.internals.cached import cached_property

_IDENTITY = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)


def with_links_for_bodies(model: Model) -> Model:
    """The same tree with one link for each body, in its frame, and without constraints, since these name links."""
    n = model.n_bodies
    links: dict[str, Any] = {
        "link_body": np.arange(n),
        "link_X": np.tile(_IDENTITY, (n, 1)),
        "link_names": Numbered("body", n),
    }
    links |= dict.fromkeys(OPTIONAL)
    return replace(model, constraints=(), contacts=None, **links)


class BodyPoses(Smooth):
    """Poses T (..., n_bodies, 4, 4) of the bodies' frames in the world.

    Args:
        dyn: `Dynamics` of the robot `with_links_for_bodies`.
        library: the differentiating library.
        coordinates: the robot's coordinates.
    """

    def __init__(self, dyn: Dynamics, library: Library, coordinates: Coordinates) -> None:
        self.dyn, self.library, self.coordinates = dyn, library, coordinates
        model = dyn.model
        kinds = [KINDS[code] for code in model.joint_kind.tolist()]
        columns = [S for kind, pitch in zip(kinds, model.pitch, strict=True) for S in kind.subspace(float(pitch))]
        S = np.array([(*column.ang, *column.lin) for column in columns]).reshape(model.nv_tree, 6)
        body = np.repeat(np.arange(model.n_bodies), [kind.nv for kind in kinds])
        self._body_of_dof = library.constant(body)
        self._angular, self._linear = library.constant(S[:, :3, None]), library.constant(S[:, 3:, None])
        self._coupling = library.constant(model.coupling()) if model.has_mimic else None
        self._last_column = library.constant(np.array([0.0, 0.0, 0.0, 1.0])[:, None])

    @cached_property
    def _moves(self) -> tuple[Any, Any]:
        """Matrix (n_bodies, nv_tree) that is 1 where the degree of freedom moves the body, and its transpose."""
        model = self.dyn.model
        start, end = model.euler_tour
        body = np.repeat(np.arange(model.n_bodies), [KINDS[code].nv for code in model.joint_kind.tolist()])
        inside = (start[body] <= start[:, None]) & (end[:, None] <= end[body])
        return self.library.constant(inside.astype(np.float64)), self.library.constant(inside.T.astype(np.float64))

    def value(self, *x: Any) -> Any:
        """The poses T."""
        return self.library.call(self.dyn, "forward_kinematics", *x)[0]

    def motions(self, T: Any) -> tuple[Any, Any]:
        """Angular and linear part (..., nv_tree, 3) of the motion of each degree of freedom, in world coordinates."""
        carrier = T[..., self._body_of_dof, :, :]
        R, p = carrier[..., :3, :3], carrier[..., :3, 3]
        angular = (R @ self._angular)[..., 0]
        return angular, (R @ self._linear)[..., 0] + self.library.xp.linalg.cross(p, angular)

    def generalised(self, T: Any, force: Any) -> Any:
        """Generalised forces (..., nv) of wrenches on bodies (..., n_bodies, 6) in world coordinates."""
        angular, linear = self.motions(T)
        carried = self._moves[1] @ force
        each = (angular * carried[..., :3]).sum(-1) + (linear * carried[..., 3:]).sum(-1)
        return each if self._coupling is None else times_transposed(self._coupling, each)

    def tangent(self, x: Arrays, y: Any, rates: Rates) -> Any:
        """The rate dT = xi^ T; xi is the sum of the motions of the degrees of freedom on the body's path."""
        xp, rate = self.library.xp, self.coordinates.velocity(x[0], rates[0])
        if self._coupling is not None:
            rate = times(self._coupling, rate)
        angular, linear = (self._moves[0] @ (motion * rate[..., None]) for motion in self.motions(y))
        columns = xp.swapaxes(y[..., :3, :], -1, -2)
        moved = xp.linalg.cross(angular[..., None, :], columns) + self._last_column * linear[..., None, :]
        return xp.concatenate((xp.swapaxes(moved, -1, -2), xp.zeros_like(y[..., 3:, :])), -2)

    def pullback(self, x: Arrays, y: Any, weights: Any, wanted: Sequence[bool]) -> Rates:
        """The gradient: wrenches on bodies from w T', converted to generalised forces."""
        xp = self.library.xp
        columns, forces = (xp.swapaxes(part[..., :3, :], -1, -2) for part in (y, weights))
        moment = xp.linalg.cross(columns, forces).sum(-2)
        force = self.generalised(y, xp.concatenate((moment, forces[..., 3, :]), -1))
        return (self.coordinates.velocity_transposed(x[0], force),)


class OfPoses:
    """Quantities that follow from the poses of bodies (..., n_bodies, 4, 4)."""

    def __init__(self, model: Model, library: Library) -> None:
        self._xp = library.xp
        E, r = model.link_X[:, :9].reshape(-1, 3, 3), model.link_X[:, 9:]
        in_body = np.zeros((len(r), 4, 4))
        in_body[:, :3, :3], in_body[:, :3, 3], in_body[:, 3, 3] = np.swapaxes(E, 1, 2), r, 1.0
        self._in_body = library.constant(in_body)
        self._body = library.constant(np.where(model.link_body < 0, model.n_bodies, model.link_body))
        self._world = library.constant(np.eye(4)[None])
        # A body's first moment in the world is its pose times [h; m].
        moments = np.concatenate((model.inertia[:, 1:4], model.inertia[:, :1]), axis=1)
        self._moments = library.constant(moments[..., None])
        self._total_mass = model.total_mass

    def links(self, T: Any) -> Any:
        """Poses (..., n_links, 4, 4) of links in the world."""
        world = self._xp.broadcast_to(self._world, (*T.shape[:-3], 1, 4, 4))
        return self._xp.concatenate((T, world), -3)[..., self._body, :, :] @ self._in_body

    def center_of_mass(self, T: Any) -> Any:
        """Centre of mass (..., 3) in world coordinates, m."""
        return (T[..., :3, :] @ self._moments)[..., 0].sum(-2) / self._total_mass
