"""External forces as queries take them, from wrenches on links."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from robodyn.algorithms.kinematics import Frame
from robodyn.arguments import Array, broadcast_leading, one_of, real_array
from robodyn.dynamics import Dynamics
from robodyn.model import Model
from robodyn.queries.core import require_model
from robodyn.questions import FRAMES


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
    require_model(model)
    seen = one_of("frame", frame, FRAMES)
    number = model.link_index(link)
    given = real_array("wrench", wrench, (6,), np.float64, what="moment, then force")
    T = Dynamics(model, engine="reference", check=False).link_pose(q, number)
    leading = broadcast_leading({"q": (T, 2), "wrench": (given, 1)})
    moment, force = given[..., :3], given[..., 3:]
    with np.errstate(all="ignore"):
        if seen == "body":
            R = T[..., :3, :3]
            moment, force = (R @ moment[..., None])[..., 0], (R @ force[..., None])[..., 0]
        if seen != "world":
            moment = moment + np.cross(T[..., :3, 3], force)
    f_ext = np.zeros((*leading, model.n_bodies, 6))
    body = model.link_body[number]
    if body >= 0:
        f_ext[..., body, :3], f_ext[..., body, 3:] = moment, force
    return f_ext
