"""What a model looks like as arrays: ellipsoids of its inertias, lines between its links, arrows of forces.

Everything that moves with a link is given in that link's frame, so that a picture of another configuration is the same
numbers behind other poses.
"""

from __future__ import annotations

import numpy as np
from scipy.spatial.transform import Rotation  # type: ignore[import-untyped]

from robodyn.core.constraints.resolved import resolved_constraints
from robodyn.core.model import Model
from robodyn.internals.arguments import Array
from robodyn.internals.records import dataclass

_THINNEST = 1e-2
"""Of an ellipsoid's longest semi-axis: the others are drawn at least so long, or a rod would not be seen."""
_POINT = 1e-2
"""Semi-axis of a mass without extent, beside the robot's size."""
_LARGEST, _FARTHEST = 2.0, 1e9
"""Semi-axes beyond so many times the distance of the links farthest apart are those of no part of a robot; and what is
too far for any picture, m."""


@dataclass(frozen=True)
class Ellipsoids:
    """Bodies of constant density with the mass and inertia of links: of each the `link`, its centre (n, 3) and
    attitude (n, 3, 3) there, and its semi-axes (n, 3), m."""

    link: Array
    centre: Array
    attitude: Array
    axes: Array


def pose_of_rows(rows: Array) -> Array:
    """(n, 4, 4) poses of frames from rows (n, 12) of transforms to them: E row-major, r."""
    poses = np.zeros((len(rows), 4, 4))
    poses[:, :3, :3] = rows[:, :9].reshape(-1, 3, 3).swapaxes(1, 2)
    poses[:, :3, 3], poses[:, 3, 3] = rows[:, 9:], 1.0
    return poses


def first_links(model: Model) -> Array:
    """(n_bodies,) a link on each body, -1 where it has none."""
    found = np.full(model.n_bodies, -1)
    moving = np.flatnonzero(model.link_body >= 0)[::-1]
    found[model.link_body[moving]] = moving
    return found


def ellipsoids(model: Model) -> Ellipsoids:
    """Those of all links that have a mass; of bodies where a model knows no inertias of links.

    The ellipsoid of mass m and principal moments I_k about its centre has semi-axes a_k with
    a_k^2 = 5 (tr I / 2 - I_k) / m; a square that is negative, as in an inertia that no body can have, counts as 0.
    Numbers that overflow make semi-axes that are infinite.
    """
    if model.link_inertia is not None:
        rows, link = model.link_inertia, np.arange(len(model.link_names))
        to_link = np.broadcast_to(np.eye(4), (len(link), 4, 4))
    else:
        link = first_links(model)
        rows, link = model.inertia[link >= 0], link[link >= 0]
        to_link = np.linalg.inv(pose_of_rows(model.link_X[link]))
    heavy = rows[:, 0] > 0.0
    rows, link, to_link = rows[heavy], link[heavy], to_link[heavy]
    m = rows[:, 0]
    with np.errstate(over="ignore", invalid="ignore"):
        c = rows[:, 1:4] / m[:, None]
        xx, xy, xz, yy, yz, zz = rows[:, 4:].T
        about_origin = np.stack([xx, xy, xz, xy, yy, yz, xz, yz, zz], axis=-1).reshape(-1, 3, 3)
        square = np.einsum("ni,ni->n", c, c)[:, None, None] * np.eye(3) - np.einsum("ni,nj->nij", c, c)
        # Of unit mass, so that moments are squares of lengths.
        spread = about_origin / m[:, None, None] - square
    finite = np.isfinite(spread).all(axis=(1, 2))
    moments, attitude = np.linalg.eigh(np.where(finite[:, None, None], spread, 0.0))
    attitude[np.linalg.det(attitude) < 0.0, :, 0] *= -1.0
    axes = np.sqrt(np.maximum(5.0 * (moments.sum(axis=1, keepdims=True) / 2.0 - moments), 0.0))
    axes[~finite] = np.inf
    centre = np.einsum("nij,nj->ni", to_link[:, :3, :3], np.where(finite[:, None], c, 0.0)) + to_link[:, :3, 3]
    return Ellipsoids(link, centre, to_link[:, :3, :3] @ attitude, axes)


def sensible(solids: Ellipsoids, poses: Array) -> tuple[Ellipsoids, list[int]]:
    """The ellipsoids that fit into a picture of links at poses (n_links, 4, 4), and the links of the others.

    A placeholder for a mass, 1e-6 kg beside inertias of ordinary size, makes an ellipsoid of hundreds of metres.
    """
    places = poses[:, :3, 3]
    spread = float(np.linalg.norm(np.ptp(places, axis=0))) if len(places) else 0.0
    most = _LARGEST * spread if spread > 0.0 else _FARTHEST
    fits = (solids.axes <= most).all(axis=1) & (np.abs(solids.centre) <= _FARTHEST).all(axis=1)
    kept = (each[fits] for each in (solids.link, solids.centre, solids.attitude, solids.axes))
    return Ellipsoids(*kept), solids.link[~fits].tolist()


def visible(axes: Array, size: float) -> Array:
    """Semi-axes (n, 3) that are long enough to be seen in a picture of that size, m."""
    longest = axes.max(axis=1, keepdims=True, initial=0.0)
    return np.maximum(axes, np.where(longest > 0.0, _THINNEST * longest, _POINT * size))


def line_ends(model: Model) -> Array:
    """(n, 2) pairs of links, a parent and its child."""
    parents = model.link_parent
    if parents is None:
        first, body = first_links(model), model.link_body
        on = np.where(body >= 0, first[body], -1)
        above = np.where(body >= 0, model.parent[body], -1)
        carrier = np.where(above >= 0, first[above], -1)
        parents = np.where(on == np.arange(len(body)), carrier, on)
    child = np.flatnonzero(parents >= 0)
    return np.stack([parents[child], child], axis=1)


@dataclass(frozen=True)
class Joints:
    """Constraints that hold two places: links (n, 2), -1 for the world, places on them (n, 2, 3), m, and whether the
    second, on the world, is known."""

    links: Array
    places: Array
    anchored: Array


def held_places(model: Model) -> Joints:
    """The places that constraints hold together, or at a distance; couplings and locks have none."""
    framed = [each for each in resolved_constraints(model) if each.framed]
    # r of the transform to a frame is where the frame is.
    places = np.array([(each.X.r, each.X_to.r) for each in framed]).reshape(-1, 2, 3)
    links = np.array([(each.link, each.to) for each in framed], dtype=np.intp).reshape(-1, 2)
    known = [each.to >= 0 or getattr(model.constraints[each.number], "to_at", None) is not None for each in framed]
    return Joints(links, places, np.array(known, dtype=bool))


def force_lines(f_ext: Array, centres: Array, reach: float) -> tuple[Array, Array]:
    """Where forces act, and the forces: (k, 3) each, of those wrenches (n, 6) that have one, in the world's axes about
    its origin.

    A wrench is a force along its central axis, and a moment about that. The arrow begins at the point of the axis that
    is nearest to the body's centre (n, 3), or where that is beyond `reach`, as that of a couple with next to no force,
    at the centre; the moment is not drawn.
    """
    acting = (f_ext[:, 3:] != 0.0).any(axis=1)
    moment, force, centres = f_ext[acting, :3], f_ext[acting, 3:], centres[acting]
    with np.errstate(all="ignore"):
        square = np.einsum("ni,ni->n", force, force)[:, None]
        away = np.cross(force, moment - np.cross(centres, force)) / square
        near = np.linalg.norm(away, axis=1, keepdims=True) <= reach
    return centres + np.where(near, away, 0.0), force


def attitudes(rotations: Array) -> Array:
    """(n, 4) quaternions wxyz of rotations (n, 3, 3)."""
    if not len(rotations):
        return np.empty((0, 4))
    found: Array = Rotation.from_matrix(rotations).as_quat()
    return found[:, [3, 0, 1, 2]]
