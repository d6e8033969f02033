"""Poses, Jacobians, velocities and accelerations of links, and their derivatives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from numpy.typing import ArrayLike

from robodyn.algorithms.kinematics import Frame
from robodyn.api.queries.core import Core
from robodyn.api.queries.fast_path import query
from robodyn.internals.arguments import Array


class KinematicQueries(Core):
    """Queries about links.

    `link`: a link's name or index; frames (`model.with_frames`) are links. `links` instead of it: several, for which
    results have an axis of n links in front of their own. `frame`: what motion is seen from: "world": world axes, the
    point of the link at the world's origin; "body": the link's frame; "world_aligned": world axes, the link's origin.

    `point`: (..., 3), m, in the link's axes from its origin, is looked at instead of the origin: poses, and the frames
    "body" and "world_aligned", have their origin there. With `links` it is (..., n, 3), or (3,) for all of them.

    `relative_to`: a link's name or index; motion and pose are what an observer on that link sees: of velocities the
    difference, and of accelerations what is left without those that come of the observer's own turning. `frame` says
    how they are seen, "body" and "world_aligned" being those of `link`; the pose is in the axes of `relative_to`.
    """

    @query
    def forward_kinematics(self, q: ArrayLike, *, out: Array | None = None) -> Array:
        """Homogeneous transforms (..., n_links, 4, 4), link to world coordinates, in `model.link_names` order."""
        return cast(Array, self._ask("forward_kinematics", locals()))

    @query
    def forward_kinematics_gradient(self, q: ArrayLike, *, out: Array | None = None) -> Array:
        """Jacobians (..., n_links, 6, nv) of every link in the frame "world_aligned", in `model.link_names` order.

        With coordinate k, on the tangent space, the attitude R and the position p in `forward_kinematics` change by
        dR = (J[..., :3, k] x) R and dp = J[..., 3:, k].
        """
        return cast(Array, self._ask("forward_kinematics_gradient", locals()))

    @query
    def link_pose(
        self,
        q: ArrayLike,
        link: str | int | None = None,
        *,
        links: Sequence[str | int] | None = None,
        point: ArrayLike | None = None,
        relative_to: str | int | None = None,
        out: Array | None = None,
    ) -> Array:
        """Homogeneous transform (..., 4, 4) of a link, link to world coordinates: that of `forward_kinematics`.

        With `links` (..., n, 4, 4); with `point` its origin is there; with `relative_to` it is to that link's
        coordinates.
        """
        return cast(Array, self._ask("link_pose", locals()))

    @query
    def jacobian(
        self,
        q: ArrayLike,
        link: str | int | None = None,
        *,
        links: Sequence[str | int] | None = None,
        point: ArrayLike | None = None,
        relative_to: str | int | None = None,
        frame: Frame = "world_aligned",
        out: Array | None = None,
    ) -> Array:
        """Geometric Jacobian J (..., 6, nv) of a link: its spatial velocity is J qd, angular part first.

        `frame`: "world": world axes, velocity of the link's point at the world's origin; "body": the link's frame;
        "world_aligned": world axes, velocity of the link's origin. With `links` (..., n, 6, nv); with `point` it is the
        velocity of that point, (..., 3) in the link's axes; with `relative_to` that which this link sees.
        """
        return cast(Array, self._ask("jacobian", locals()))

    @query
    def jacobian_derivative(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        link: str | int | None = None,
        *,
        links: Sequence[str | int] | None = None,
        point: ArrayLike | None = None,
        relative_to: str | int | None = None,
        frame: Frame = "world_aligned",
        V0: ArrayLike | None = None,
        out: Array | None = None,
    ) -> Array:
        """Time derivative Jdot (..., 6, nv) of `jacobian` in the same frame while the robot moves with qd.

        For a base at rest Jdot qd is `link_acceleration` at qdd = 0: the spatial one in the frames "world" and "body",
        the classical one in "world_aligned". With V0 the columns are carried along by the base as well. `links`,
        `point` and `relative_to` as for `jacobian`.
        """
        return cast(Array, self._ask("jacobian_derivative", locals()))

    @query
    def pose_hessian(
        self,
        q: ArrayLike,
        link: str | int | None = None,
        *,
        links: Sequence[str | int] | None = None,
        point: ArrayLike | None = None,
        frame: Frame = "world_aligned",
        out: Array | None = None,
    ) -> Array:
        """Kinematic Hessian H (..., 6, nv, nv) of a link: H[..., j, k] is the change of column j of `jacobian`, in the
        same frame, with coordinate k, on the tangent space.

        H qd is `jacobian_derivative` for a base at rest. In no frame is H symmetric in j and k, but for the linear rows
        of "world_aligned" where all joints have one degree of freedom: these are second derivatives of the position.
        `links` and `point` as for `jacobian`.
        """
        return cast(Array, self._ask("pose_hessian", locals()))

    @query
    def link_velocity(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        link: str | int | None = None,
        *,
        links: Sequence[str | int] | None = None,
        point: ArrayLike | None = None,
        relative_to: str | int | None = None,
        frame: Frame = "world_aligned",
        V0: ArrayLike | None = None,
        out: Array | None = None,
    ) -> Array:
        """Spatial velocity (..., 6) of a link, angular part first (rad/s, m/s); `frame`, `links`, `point` and
        `relative_to` as for `jacobian`."""
        return cast(Array, self._ask("link_velocity", locals()))

    @query
    def link_acceleration(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        qdd: ArrayLike,
        link: str | int | None = None,
        *,
        links: Sequence[str | int] | None = None,
        point: ArrayLike | None = None,
        relative_to: str | int | None = None,
        frame: Frame = "world_aligned",
        classical: bool = False,
        V0: ArrayLike | None = None,
        dV0: ArrayLike | None = None,
        out: Array | None = None,
    ) -> Array:
        """Spatial acceleration (..., 6) of a link, without gravity; `frame`, `links`, `point` and `relative_to` as for
        `jacobian`.

        `classical=True` gives the acceleration of the link's origin (or of `point`), a point that moves with the link,
        instead of the spatial one (RBDA eq. 2.50); in the frame "world" it is then that of "world_aligned".

        At qdd = 0 it is the bias Jdot qd of `jacobian`: of the frames "world" and "body" the spatial acceleration, of
        "world_aligned", whose origin moves while its axes do not, the classical one.
        """
        return cast(Array, self._ask("link_acceleration", locals()))

    @query
    def link_velocity_gradient(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        link: str | int | None = None,
        *,
        links: Sequence[str | int] | None = None,
        point: ArrayLike | None = None,
        frame: Frame = "world_aligned",
        V0: ArrayLike | None = None,
        out: tuple[Array, Array] | None = None,
    ) -> tuple[Array, Array]:
        """(dV/dq, dV/dqd), each (..., 6, nv), of `link_velocity` in the same frame.

        With respect to q on the tangent space (`model.integrate`). dV/dqd is `jacobian`. Where `frame` is "body" or
        "world_aligned" the frame moves with the coordinates, and that is part of the derivative. `links` and `point` as
        for `jacobian`.
        """
        return cast(tuple[Array, Array], self._ask("link_velocity_gradient", locals()))

    @query
    def link_acceleration_gradient(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        qdd: ArrayLike,
        link: str | int | None = None,
        *,
        links: Sequence[str | int] | None = None,
        point: ArrayLike | None = None,
        frame: Frame = "world_aligned",
        classical: bool = False,
        V0: ArrayLike | None = None,
        dV0: ArrayLike | None = None,
        out: tuple[Array, Array, Array] | None = None,
    ) -> tuple[Array, Array, Array]:
        """(dA/dq, dA/dqd, dA/dqdd), each (..., 6, nv), of `link_acceleration` in the same frame.

        With respect to q on the tangent space (`model.integrate`). dA/dqdd is `jacobian`, of the frame "world_aligned"
        where the classical acceleration is asked for in the frame "world". `links` and `point` as for `jacobian`.
        """
        return cast(tuple[Array, Array, Array], self._ask("link_acceleration_gradient", locals()))
