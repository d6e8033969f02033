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

    `link`: a link's name or index. Frames (`model.with_frames`) are links, too.

    `links`: a list of n links instead of `link`. Results then have an axis of length n in front of their own axes.

    `frame`: the frame of velocities, accelerations and Jacobians. "world": world axes, reference point at the world's
    origin. "body": axes and origin of the link. "world_aligned": world axes, reference point at the link's origin.

    `point`: (..., 3), m, in the link's frame, replaces the link's origin in poses and in the frames "body" and
    "world_aligned". With `links` it is (..., n, 3), or (3,) for all links.

    `relative_to`: name or index of a link a; the pose and motion of `link` b are then those that an observer on a sees.
    With spatial velocities and accelerations in world coordinates they are V = V_b - V_a and A = A_b - A_a - V_a x V.
    The pose is in the axes of a; the frames "body" and "world_aligned" are still those of b.
    """

    @query
    def forward_kinematics(self, q: ArrayLike, *, out: Array | None = None) -> Array:
        """Homogeneous transforms (..., n_links, 4, 4), link to world coordinates, in `model.link_names` order."""
        return cast(Array, self._ask("forward_kinematics", locals()))

    @query
    def forward_kinematics_gradient(self, q: ArrayLike, *, out: Array | None = None) -> Array:
        """Jacobians (..., n_links, 6, nv) of every link in the frame "world_aligned", in `model.link_names` order.

        The derivatives of the rotation R and position p of `forward_kinematics` along tangent coordinate k are
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
        """Homogeneous transform (..., 4, 4) from link to world coordinates, as in `forward_kinematics`.

        With `links` the shape is (..., n, 4, 4). With `point` the origin is at that point. With `relative_to` the
        transform is to that link's coordinates.
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

        `frame`: "world" (world axes, velocity of the link's point at the world's origin), "body" (the link's frame) or
        "world_aligned" (world axes, velocity of the link's origin). With `links` the shape is (..., n, 6, nv). With
        `point`, (..., 3) in the link's frame, J gives the velocity of that point. With `relative_to` J gives the
        velocity relative to that link.
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

        For a base at rest Jdot qd is `link_acceleration` at qdd = 0: the spatial acceleration in the frames "world" and
        "body", the classical one in "world_aligned". With V0 the base's motion also changes the columns. `links`,
        `point` and `relative_to` are as in `jacobian`.
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
        """Kinematic Hessian H (..., 6, nv, nv) of a link: H[..., j, k] is the derivative of column j of `jacobian`, in
        the same frame, with respect to tangent coordinate k.

        H qd is `jacobian_derivative` for a base at rest. H is not symmetric in j and k, except the linear rows in
        "world_aligned" if all joints have one degree of freedom: these are second derivatives of the position. `links`
        and `point` are as in `jacobian`.
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
        """Spatial velocity (..., 6) of a link, angular part first (rad/s, m/s).

        `frame`, `links`, `point` and `relative_to` are as in `jacobian`."""
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
        """Spatial acceleration (..., 6) of a link, without gravity, angular part first (rad/s^2, m/s^2).

        `classical=True` gives the classical acceleration of the link's origin (or of `point`), a point that moves with
        the link, instead of the spatial one (RBDA eq. 2.50). In the frame "world" it is then that of "world_aligned".
        `frame`, `links`, `point` and `relative_to` are as in `jacobian`.

        At qdd = 0 the bias Jdot qd of `jacobian` is the spatial acceleration in the frames "world" and "body", and the
        classical one in "world_aligned", whose origin moves while its axes do not.
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

        Derivatives with respect to q are on the tangent space (`model.integrate`). dV/dqd is `jacobian`. The frames
        "body" and "world_aligned" move with the coordinates; the derivative includes that. `links` and `point` are as
        in `jacobian`.
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

        Derivatives with respect to q are on the tangent space (`model.integrate`). dA/dqdd is `jacobian` in the same
        frame; for the classical acceleration in the frame "world" it is that of "world_aligned". `links` and `point`
        are as in `jacobian`.
        """
        return cast(tuple[Array, Array, Array], self._ask("link_acceleration_gradient", locals()))
