"""`external_force` converts a wrench on a link to the `f_ext` of queries."""

from __future__ import annotations

from types import MethodType
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from robodyn.algorithms.external_force import about_the_origin
from robodyn.algorithms.external_force import external_force as of_link
from robodyn.algorithms.kinematics import Frame
from robodyn.algorithms.tasks import ScalarTask
from robodyn.api.dynamics import Dynamics
from robodyn.api.queries.core import require_model
from robodyn.api.queries.fast_path import LINK_BITS, WORD_BITS, one_of_types
from robodyn.api.queries.model_functions import Early, FastFunction
from robodyn.core.model import Model
from robodyn.core.sweeps import POINT
from robodyn.engines.query_table import FRAMES
from robodyn.internals.arguments import Array, broadcast_leading, one_of, real_array
from robodyn.internals.errors import ArgumentError

_KEPT = "_external_force"


def external_force(
    model: Model,
    q: ArrayLike,
    link: str | int,
    wrench: ArrayLike,
    *,
    point: ArrayLike | None = None,
    frame: Frame = "world_aligned",
) -> Array:
    """The `f_ext` (..., n_bodies, 6) of one wrench on one link, in world coordinates about the world's origin.

    Args:
        model: the robot.
        q: (..., nq) configurations.
        link: name or index of the link that the wrench acts on.
        wrench: (..., 6) moment (N m), then force (N).
        point: (..., 3), m, in the link's frame: where the wrench acts. Its moment is about this point. None: the link's
            origin.
        frame: the frame of the wrench: "world_aligned" (world axes, moment about the link's origin or `point`), "body"
            (the link's axes, likewise), "world" (world axes, moment about the world's origin; without `point`).

    Add the results for several wrenches. For a link fixed to the world the result is zero.

    Raises:
        ArgumentError: wrong shapes or names; `point` with a wrench about the world's origin.
    """
    if type(model) is not Model:
        require_model(model)
    function = model.__dict__.get(_KEPT)
    if function is None:
        fast = _FastExternalForce(model, _KEPT, MethodType(_external_force, model), ("q", "wrench", "point"))
        function = model.__dict__[_KEPT] = Early(fast)
    return cast(Array, function(q, link, wrench, point=point, frame=frame))


def _external_force(
    model: Model,
    q: ArrayLike,
    link: str | int,
    wrench: ArrayLike,
    *,
    point: ArrayLike | None = None,
    frame: Frame = "world_aligned",
) -> Array:
    seen = one_of("frame", frame, FRAMES)
    number = model.link_index(link)
    wrenches = real_array("wrench", wrench, (6,), np.float64, what="moment, then force")
    at = None if point is None else real_array("point", point, (POINT,), np.float64)
    if at is not None and seen == "world":
        raise ArgumentError(
            'point: given with frame="world", in which moments are about the world\'s origin; wanted frame='
            '"world_aligned" or "body"'
        )
    T = Dynamics(model, engine="reference", check=False).link_pose(q, number)
    leading = broadcast_leading({"q": (T, 2), "wrench": (wrenches, 1), **({} if at is None else {"point": (at, 1)})})
    f_ext = np.zeros((*leading, model.n_bodies, 6))
    body = model.link_body[number]
    if body >= 0:
        scalars = [T[..., i, j] for i in range(4) for j in range(4)]
        where = None if at is None else tuple(np.moveaxis(at, -1, 0))
        with np.errstate(all="ignore"):
            for k, scalar in enumerate(about_the_origin(seen, scalars, tuple(np.moveaxis(wrenches, -1, 0)), where)):
                f_ext[..., body, k] = scalar
    return f_ext


class _FastExternalForce(FastFunction):
    """The fast path of `external_force`."""

    def calls(self, given: Any) -> tuple[int, str, bool] | None:
        """(link index, frame, whether a point is given): calls with the same three share machine code."""
        if not one_of_types(given["link"], (str, int)) or type(given["frame"]) is not str:
            return None
        at_point = given.get("point") is not None
        if at_point and given["frame"] == "world":  # the method refuses this
            return None
        return self.__self__.link_index(given["link"]), given["frame"], at_point

    def task(self, calls: Any) -> tuple[ScalarTask, int | None]:
        """The task for such calls, and the link."""
        link, frame, at_point = calls
        return of_link(frame, int(self.__self__.link_body[link]), at_point), link

    def argument(self, name: str) -> Any:
        """Kind of the argument: an array, the link or the frame."""
        from robodyn.engines.cpu.native.entry import Argument

        if name == "link":
            return Argument("choice", types=(str, int), bits=LINK_BITS)
        if name == "frame":
            return Argument("choice", types=(str,), bits=WORD_BITS)
        if name == "point":
            return Argument("array", self.arrays.index(name), optional=True)
        return super().argument(name)

    def number(self, name: str, value: Any) -> int:
        """The index of a link or of a frame."""
        return int(self.__self__.link_index(value)) if name == "link" else FRAMES.index(value)
