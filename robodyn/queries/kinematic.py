"""Poses, Jacobians, velocities and accelerations of links."""

from __future__ import annotations

from typing import cast

from numpy.typing import ArrayLike

from robodyn.algorithms import kinematic_gradients, kinematics
from robodyn.algorithms.kinematics import Frame
from robodyn.arguments import Array, flag, one_of
from robodyn.queries.core import Core
from robodyn.query import Query

FRAMES = ("world", "body", "world_aligned")


class KinematicQueries(Core):
    """Queries about links."""

    def forward_kinematics(self, q: ArrayLike, *, out: Array | None = None) -> Array:
        """Homogeneous transforms (..., n_links, 4, 4), link to world coordinates, in `model.link_names` order."""
        query = Query(self, out, q=q)
        return cast(Array, self._answered("forward_kinematics", query.finish({"T": self._poses(query, None)})))

    def _poses(self, query: Query, link: int | None) -> Array:
        T = query.result(0, *(() if link is not None else (len(self.model.link_names),)), 4, 4)
        query.run(kinematics.forward_kinematics(link is not None), link=link, T=T)
        return T

    def forward_kinematics_gradient(self, q: ArrayLike, *, out: Array | None = None) -> Array:
        """Jacobians (..., n_links, 6, nv) of every link in the frame "world_aligned", in `model.link_names` order.

        With coordinate k, on the tangent space, the attitude R and the position p in `forward_kinematics` change by
        dR = (J[..., :3, k] x) R and dp = J[..., 3:, k].
        """
        query = Query(self, out, q=q)
        J = query.result(0, len(self.model.link_names), 6, self.model.nv)
        query.run(kinematics.LINK_JACOBIANS, J=J)
        return cast(Array, self._answered("forward_kinematics_gradient", query.finish({"J": J})))

    def jacobian(
        self, q: ArrayLike, link: str | int, *, frame: Frame = "world_aligned", out: Array | None = None
    ) -> Array:
        """Geometric Jacobian J (..., 6, nv) of a link: its spatial velocity is J qd, angular part first.

        `frame`: "world": world axes, velocity of the link's point at the world's origin; "body": the link's frame;
        "world_aligned": world axes, velocity of the link's origin.
        """
        one_of("frame", frame, FRAMES)
        number = self.model.link_index(link)
        query = Query(self, out, q=q)
        J = query.result(0, 6, self.model.nv)
        query.run(kinematics.jacobian(frame), link=number, J=J)
        return cast(Array, query.finish({"J": J}))

    def jacobian_derivative(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        link: str | int,
        *,
        frame: Frame = "world_aligned",
        V0: ArrayLike | None = None,
        out: Array | None = None,
    ) -> Array:
        """Time derivative Jdot (..., 6, nv) of `jacobian` in the same frame while the robot moves with qd.

        For a base at rest Jdot qd is `link_acceleration` at qdd = 0: the spatial one in the frames "world" and "body",
        the classical one in "world_aligned". With V0 the columns are carried along by the base as well.
        """
        one_of("frame", frame, FRAMES)
        number = self.model.link_index(link)
        query = Query(self, out, q=q, qd=qd, V0=V0)
        Jdot = query.result(0, 6, self.model.nv)
        query.run(kinematic_gradients.jacobian_derivative(frame), link=number, Jdot=Jdot)
        return cast(Array, query.finish({"Jdot": Jdot}))

    def pose_hessian(
        self, q: ArrayLike, link: str | int, *, frame: Frame = "world_aligned", out: Array | None = None
    ) -> Array:
        """Kinematic Hessian H (..., 6, nv, nv) of a link: H[..., j, k] is the change of column j of `jacobian`, in the
        same frame, with coordinate k, on the tangent space.

        H qd is `jacobian_derivative` for a base at rest. In no frame is H symmetric in j and k, but for the linear rows
        of "world_aligned" where all joints have one degree of freedom: these are second derivatives of the position.
        """
        one_of("frame", frame, FRAMES)
        number = self.model.link_index(link)
        query = Query(self, out, q=q)
        H = query.result(0, 6, self.model.nv, self.model.nv)
        query.run(kinematic_gradients.pose_hessian(frame), link=number, H=H)
        return cast(Array, query.finish({"H": H}))

    def link_velocity(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        link: str | int,
        *,
        frame: Frame = "world_aligned",
        V0: ArrayLike | None = None,
        out: Array | None = None,
    ) -> Array:
        """Spatial velocity (..., 6) of a link, angular part first (rad/s, m/s); `frame` as for `jacobian`."""
        one_of("frame", frame, FRAMES)
        number = self.model.link_index(link)
        query = Query(self, out, q=q, qd=qd, V0=V0)
        V = query.result(0, 6)
        query.run(kinematics.link_velocity(frame), link=number, V=V)
        return cast(Array, query.finish({"V": V}))

    def link_acceleration(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        qdd: ArrayLike,
        link: str | int,
        *,
        frame: Frame = "world_aligned",
        classical: bool = False,
        V0: ArrayLike | None = None,
        dV0: ArrayLike | None = None,
        out: Array | None = None,
    ) -> Array:
        """Spatial acceleration (..., 6) of a link, without gravity; `frame` as for `jacobian`.

        `classical=True` gives the acceleration of the link's origin, a point that moves with the link, instead of the
        spatial one (RBDA eq. 2.50); in the frame "world" it is then that of "world_aligned".

        At qdd = 0 it is the bias Jdot qd of `jacobian`: of the frames "world" and "body" the spatial acceleration, of
        "world_aligned", whose origin moves while its axes do not, the classical one.
        """
        one_of("frame", frame, FRAMES)
        flag("classical", classical)
        number = self.model.link_index(link)
        query = Query(self, out, q=q, qd=qd, qdd=qdd, V0=V0, dV0=dV0)
        A = query.result(0, 6)
        query.run(kinematics.link_acceleration(frame, classical), link=number, A=A)
        return cast(Array, query.finish({"A": A}))
