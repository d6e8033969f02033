"""External forces as queries take them, from wrenches on links."""

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
from robodyn.engines.query_table import FRAMES
from robodyn.internals.arguments import Array, broadcast_leading, one_of, real_array

_KEPT = "_external_force"


def external_force(
    model: Model, q: ArrayLike, link: str | int, wrench: ArrayLike, *, frame: Frame = "world_aligned"
) -> Array:
    """The `f_ext` of one wrench on one link: (..., n_bodies, 6), in world coordinates about the world's origin.

    Args:
        model: the robot.
        q: (..., nq) configurations.
        link: name or index of the link that the wrench acts on.
        wrench: (..., 6) moment (N m), then force (N).
        frame: the frame the wrench is given in: "world_aligned" (world axes, moment about the link's origin), "body"
            (the link's frame), "world" (world axes, moment about the world's origin).

    Add the results of several wrenches. A link fixed to the world takes any force; the result is zero.
    """
    if type(model) is not Model:
        require_model(model)
    function = model.__dict__.get(_KEPT)
    if function is None:
        quick = _QuickExternalForce(model, _KEPT, MethodType(_external_force, model), ("q", "wrench"))
        function = model.__dict__[_KEPT] = Early(quick)
    return cast(Array, function(q, link, wrench, frame=frame))


def _external_force(
    model: Model, q: ArrayLike, link: str | int, wrench: ArrayLike, *, frame: Frame = "world_aligned"
) -> Array:
    seen = one_of("frame", frame, FRAMES)
    number = model.link_index(link)
    given = real_array("wrench", wrench, (6,), np.float64, what="moment, then force")
    T = Dynamics(model, engine="reference", check=False).link_pose(q, number)
    leading = broadcast_leading({"q": (T, 2), "wrench": (given, 1)})
    f_ext = np.zeros((*leading, model.n_bodies, 6))
    body = model.link_body[number]
    if body >= 0:
        scalars = [T[..., i, j] for i in range(4) for j in range(4)]
        with np.errstate(all="ignore"):
            for k, scalar in enumerate(about_the_origin(seen, scalars, tuple(np.moveaxis(given, -1, 0)))):
                f_ext[..., body, k] = scalar
    return f_ext


class _QuickExternalForce(FastFunction):
    """That of `external_force`."""

    def calls(self, given: Any) -> tuple[int, str] | None:
        """Which link and which frame."""
        if not one_of_types(given["link"], (str, int)) or type(given["frame"]) is not str:
            return None
        return self.__self__.link_index(given["link"]), given["frame"]

    def task(self, calls: Any) -> tuple[ScalarTask, int | None]:
        """What answers such calls, and the link."""
        link, frame = calls
        return of_link(frame, int(self.__self__.link_body[link])), link

    def argument(self, name: str) -> Any:
        """An array, the link or the frame."""
        from robodyn.engines.cpu.native.entry import Argument

        if name == "link":
            return Argument("choice", types=(str, int), bits=LINK_BITS)
        if name == "frame":
            return Argument("choice", types=(str,), bits=WORD_BITS)
        return super().argument(name)

    def number(self, name: str, value: Any) -> int:
        """The place of a link or of a frame."""
        return int(self.__self__.link_index(value)) if name == "link" else FRAMES.index(value)
