"""A wrench on a link as an external force on its body, in world coordinates about the world's origin."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from robodyn.algorithms.kinematics import Frame, forward_kinematics
from robodyn.algorithms.tasks import ScalarTask, Sized
from robodyn.core.model import Model
from robodyn.core.spatial import add, cross, dot
from robodyn.core.sweeps import POINT

_OF_LINK = forward_kinematics(True)


def about_the_origin(
    frame: str, T: Sequence[Any], wrench: Sequence[Any], point: Sequence[Any] | None = None
) -> tuple[Any, ...]:
    """A wrench (moment, force) in a frame of a link with pose T (16 scalars), transformed to the frame "world".

    `point`: in the link's frame, replaces the link's origin.
    """
    rows, p = ((T[0], T[1], T[2]), (T[4], T[5], T[6]), (T[8], T[9], T[10])), (T[3], T[7], T[11])
    if point is not None:
        at = tuple(point)
        p = add(p, tuple(dot(row, at) for row in rows))
    moment, force = tuple(wrench[:3]), tuple(wrench[3:])
    if frame == "body":
        moment, force = tuple(dot(row, moment) for row in rows), tuple(dot(row, force) for row in rows)
    if frame != "world":
        moment = add(moment, cross(p, force))
    return (*moment, *force)


@cache
def external_force(frame: Frame, body: int, at_point: bool) -> ScalarTask:
    """The external forces of a wrench on the query's link, which is fixed to a body (-1: to the world).

    `at_point`: whether the wrench acts at the input "point" instead of the link's origin.
    """

    def text(
        model: Model, given: Mapping[str, Sequence[Any]], results: Callable[..., Mapping[str, Any]]
    ) -> Mapping[str, Any]:
        forces: list[Any] = [0.0] * (6 * model.n_bodies)
        if body >= 0:
            T = list(results(_OF_LINK)["T"])
            forces[6 * body : 6 * body + 6] = about_the_origin(
                frame, T, given["wrench"], given["point"] if at_point else None
            )
        return {"f_ext": forces}

    inputs = {"q": Sized(("nq",)), "wrench": Sized((6,)), **({"point": Sized((POINT,))} if at_point else {})}
    name = f"external_force_{frame}" + ("_point" if at_point else "")
    return ScalarTask(name, inputs, {"f_ext": Sized(("n_bodies", 6))}, text)
