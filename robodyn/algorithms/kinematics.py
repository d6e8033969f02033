"""Forward kinematics: poses, velocities and accelerations of bodies and links, and geometric Jacobians.

Steps that other algorithms share are here too. Velocities and accelerations are spatial, in body frames.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Literal, TypeAlias

from robodyn.core.spatial import IDENTITY, ZERO3, Motion, Scalar, Transform, add, combined, cross, scale
from robodyn.core.sweeps import (
    DOF_MOTIONS,
    DOF_ROWS,
    MOTION,
    POSE,
    SCALAR,
    TRANSFORM,
    Algorithm,
    Ancestors,
    Body,
    ColumnOutput,
    Fields,
    LinkColumnOutput,
    LinkConstants,
    LinkOutput,
    Links,
    Outward,
    Sweep,
    World,
    WorldInputs,
    Written,
)

Frame: TypeAlias = Literal["world", "body", "world_aligned"]
"""The frame in which the motion of a link is expressed; see docs/notation.md."""


def joint_motion(body: Body, rates: tuple[Scalar, ...]) -> Motion:
    """S x: the motion across the joint at coordinate rates x."""
    return combined(body.S, rates)


def parent_transform(body: Body) -> Transform:
    """X_J(q) Xtree: from the parent's frame to the body's (RBDA eq. 4.4)."""
    return body.joint.transform(body.q, body.pitch).after(body.Xtree)


def base_pose(world: WorldInputs, own: Fields) -> Written:
    """The world's transform to itself."""
    return {"X0": IDENTITY}


def base_velocity(world: WorldInputs, own: Fields) -> Written:
    """v_0 = V0."""
    return {"v": world.V0}


def base_motion(world: WorldInputs, own: Fields) -> Written:
    """v_0 = V0, a_0 = dV0."""
    return {"v": world.V0, "a": world.dV0}


def base_motion_against_gravity(world: WorldInputs, own: Fields) -> Written:
    """v_0 = V0, a_0 = dV0 - g: an upward base acceleration stands for gravity (RBDA section 5.3)."""
    return {"v": world.V0, "a": world.dV0 - Motion(ZERO3, world.gravity)}


def pose(body: Body, own: Fields, parent: Fields) -> Written:
    """X_i0 = X_i X_p0."""
    return {"X0": parent_transform(body).after(parent.X0)}


def pose_of_known(body: Body, own: Fields, parent: Fields) -> Written:
    """X_i0 = X_i X_p0, with X_i of an earlier sweep."""
    return {"X0": own.X.after(parent.X0)}


def velocity(body: Body, own: Fields, parent: Fields) -> Written:
    """v_i = X_i v_p + S qd."""
    X = parent_transform(body)
    return {"X": X, "v": X.motion(parent.v) + joint_motion(body, body.qd)}


def acceleration(body: Body, own: Fields, parent: Fields) -> Written:
    """v_i = X_i v_p + S qd, a_i = X_i a_p + S qdd + v_i x S qd (RBDA eq. 5.8, 5.9)."""
    X, vJ = parent_transform(body), joint_motion(body, body.qd)
    v = X.motion(parent.v) + vJ
    a = X.motion(parent.a) + joint_motion(body, body.qdd) + v.cross(vJ)
    return {"X": X, "v": v, "a": a}


VELOCITIES: tuple[Sweep, ...] = (
    World(base_velocity, writes=("v",)),
    Outward(velocity, carries=("v",), writes=("X", "v")),
)
"""Sweeps that compute X and v of every body."""

ACCELERATIONS: tuple[Sweep, ...] = (
    World(base_motion, writes=("v", "a")),
    Outward(acceleration, carries=("v", "a"), writes=("X", "v", "a")),
)
"""Sweeps that compute X, v and a of every body."""

POSES: tuple[Sweep, ...] = (World(base_pose, writes=("X0",)), Outward(pose, carries=("X0",), writes=("X0",)))
"""Sweeps that compute the transform X0 of every body from the world."""

POSES_OF_KNOWN: tuple[Sweep, ...] = (
    World(base_pose, writes=("X0",)),
    Outward(pose_of_known, reads=("X",), carries=("X0",), writes=("X0",)),
)
"""The same with X of an earlier sweep."""

FROM_ROOT = {"is_body": SCALAR}
"""Additional fields of algorithms that use `from_root`."""


def no_body(step: Callable[[WorldInputs, Fields], Written]) -> Callable[[WorldInputs, Fields], Written]:
    """A world step that also writes is_body = 0, which steps of `below_root` read."""

    def of_world(world: WorldInputs, own: Fields) -> Written:
        return {**step(world, own), "is_body": 0.0}

    return of_world


def below_root(step: Callable[[Body, Fields, Fields], Written], name: str) -> Callable[[Body, Fields, Fields], Written]:
    """An outward step whose transform X or X0 (`name`) starts at the origin of the tree's first body, with the world's
    axes. Results lose no digits far from the world's origin."""

    def of_body(body: Body, own: Fields, parent: Fields) -> Written:
        written = step(body, own, parent)
        X = written[name]
        return {**written, name: Transform(X.E, scale(parent.is_body, X.r)), "is_body": 1.0}

    return of_body


def from_root(sweeps: tuple[Sweep, ...], name: str = "X") -> tuple[Sweep, ...]:
    """Sweeps whose first two, a `World` and an `Outward` one, are changed as in `no_body` and `below_root`.

    For results that do not depend on the position of the tree in the world.
    """
    world, outward, *others = sweeps
    assert isinstance(world, World) and isinstance(outward, Outward)
    return (
        World(no_body(world.step), reads=world.reads, writes=(*world.writes, "is_body")),
        Outward(
            below_root(outward.step, name),
            reads=outward.reads,
            carries=(*outward.carries, "is_body"),
            writes=(*outward.writes, "is_body"),
        ),
        *others,
    )


def for_frame(frame: Frame, sweeps: tuple[Sweep, ...], name: str = "X") -> tuple[Sweep, ...]:
    """Sweeps for results in a frame: `from_root` unless it is the world's."""
    return sweeps if frame == "world" else from_root(sweeps, name)


def for_trees(one_tree: bool, *sweeps: Sweep) -> tuple[Sweep, ...]:
    """Sweeps for sums over all bodies: `from_root` if all are of one tree."""
    return from_root(sweeps) if one_tree else sweeps


def link_pose(link: LinkConstants, own: Fields) -> Written:
    """The link's homogeneous transform [R p; 0 1], link to world coordinates."""
    X = link.X.after(own.X0)
    return {"T": (*X.E[0::3], X.r[0], *X.E[1::3], X.r[1], *X.E[2::3], X.r[2], 0.0, 0.0, 0.0, 1.0)}


@cache
def forward_kinematics(of_link: bool) -> Algorithm:
    """Poses of all links, or of the query's link alone."""
    return Algorithm(
        name="forward_kinematics" + ("_of_link" if of_link else ""),
        inputs=("q",),
        fields={"X0": TRANSFORM, "T": POSE},
        sweeps=(*POSES, Links(link_pose, reads=("X0",), writes=("T",), of_link=of_link)),
        outputs={"T": LinkOutput("T", (4, 4), of_link)},
    )


def to_frame(frame: Frame, X: Transform) -> Transform:
    """The transform from the world's frame to `frame`, X being that from the world to the link."""
    return {"world": IDENTITY, "body": X, "world_aligned": Transform(IDENTITY.E, X.r)}[frame]


def nothing_carried(body: Body, own: Fields, link: LinkConstants) -> Written:
    """The start of an `Ancestors` sweep that carries nothing."""
    return {}


def columns_seen(body: Body, own: Fields, first: Body, of_first: Fields, carry: Fields) -> tuple[Written, Written]:
    """J_j = X X_j0^-1 S_j, X being the transform from the world's frame to that of the Jacobian."""
    return {"J": tuple(carry.X.motion(own.X0.motion_back(column)) for column in body.S)}, {"X": carry.X}


@cache
def jacobian(frame: Frame) -> Algorithm:
    """The geometric Jacobian of the query's link: column j is S_j in `frame` (compare RBDA eq. 4.14)."""

    def start(body: Body, own: Fields, link: LinkConstants) -> Written:
        return {"X": to_frame(frame, link.X.after(own.X0))}

    return Algorithm(
        name=f"jacobian_{frame}",
        inputs=("q",),
        fields={"X0": TRANSFORM, "X": TRANSFORM, "J": DOF_MOTIONS, **FROM_ROOT},
        sweeps=(
            *for_frame(frame, POSES, "X0"),
            Ancestors(start, columns_seen, reads=("X0",), carries=("X",), visits=("X0",), writes=("J",), of_link=True),
        ),
        outputs={"J": ColumnOutput("J")},
    )


def at_origin(body: Body, own: Fields, link: LinkConstants) -> Written:
    """From the world's frame to a parallel one at the link's origin."""
    return {"X": to_frame("world_aligned", link.X.after(own.X0))}


def rows_seen(body: Body, own: Fields, first: Body, of_first: Fields, carry: Fields) -> tuple[Written, Written]:
    """`columns_seen`, with columns as tuples of six numbers."""
    written, carried = columns_seen(body, own, first, of_first, carry)
    return {"J": tuple((*column.ang, *column.lin) for column in written["J"])}, carried


LINK_JACOBIANS = Algorithm(
    name="link_jacobians",
    inputs=("q",),
    fields={"X0": TRANSFORM, "X": TRANSFORM, "J": DOF_ROWS, **FROM_ROOT},
    sweeps=(
        *from_root(POSES, "X0"),
        Ancestors(at_origin, rows_seen, reads=("X0",), carries=("X",), visits=("X0",), writes=("J",), of_links=True),
    ),
    outputs={"J": LinkColumnOutput("J")},
)
"""Jacobians of every link in "world_aligned"."""


@cache
def link_velocity(frame: Frame) -> Algorithm:
    """Spatial velocity of the query's link, in `frame`."""

    def step(link: LinkConstants, own: Fields) -> Written:
        X = to_frame(frame, link.X.after(own.X0))
        return {"V": X.motion(own.X0.motion_back(own.v))}

    return Algorithm(
        name=f"link_velocity_{frame}",
        inputs=("q", "qd"),
        fields={"X": TRANSFORM, "X0": TRANSFORM, "v": MOTION, "V": MOTION, **FROM_ROOT},
        sweeps=(
            *for_frame(frame, VELOCITIES),
            *POSES_OF_KNOWN,
            Links(step, reads=("X0", "v"), writes=("V",), of_link=True),
        ),
        outputs={"V": LinkOutput("V", (6,), True)},
    )


def classical_frame(frame: Frame) -> Frame:
    """The frame of a classical acceleration: "world_aligned" for "world"."""
    return "world_aligned" if frame == "world" else frame


@cache
def link_acceleration(frame: Frame, classical: bool) -> Algorithm:
    """Acceleration of the query's link in `frame`: spatial, or classical: that of the link's origin, a point that
    moves with the link (RBDA eq. 2.50); classical accelerations in the "world" frame are the "world_aligned" ones."""
    seen_from = classical_frame(frame) if classical else frame

    def step(link: LinkConstants, own: Fields) -> Written:
        X = to_frame(seen_from, link.X.after(own.X0))
        v, a = X.motion(own.X0.motion_back(own.v)), X.motion(own.X0.motion_back(own.a))
        return {"A": Motion(a.ang, add(a.lin, cross(v.ang, v.lin))) if classical else a}

    return Algorithm(
        name=f"link_acceleration_{frame}" + ("_classical" if classical else ""),
        inputs=("q", "qd", "qdd"),
        fields={"X": TRANSFORM, "X0": TRANSFORM, "v": MOTION, "a": MOTION, "A": MOTION, **FROM_ROOT},
        sweeps=(
            *for_frame(seen_from, ACCELERATIONS),
            *POSES_OF_KNOWN,
            Links(step, reads=("X0", "v", "a"), writes=("A",), of_link=True),
        ),
        outputs={"A": LinkOutput("A", (6,), True)},
    )
