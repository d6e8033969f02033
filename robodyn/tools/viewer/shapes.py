"""Shapes of a model as arrays: ellipsoids of inertia, lines between links, arrows of forces.

Shapes that move with a link are in the link's frame, so another configuration changes only poses.
"""

from __future__ import annotations

import numpy as np
from scipy.spatial.transform import Rotation  # type: ignore[import-untyped]

from robodyn.core.constraints.resolved import resolved_constraints
from robodyn.core.model import Model
from robodyn.internals.arguments import Array
from robodyn.internals.records import dataclass

_THINNEST = 1e-2
"""Least length of an ellipsoid's semi-axes relative to the longest one, so that thin rods are visible."""
_POINT = 1e-2
"""Semi-axis of a point mass relative to the robot's size."""
_LARGEST, _FARTHEST = 2.0, 1e9
"""Largest plausible semi-axis in multiples of the distance of the links farthest apart; largest drawn coordinate, m."""


@dataclass(frozen=True)
class Ellipsoids:
    """Ellipsoids of constant density with the mass and inertia of links: the `link`, centre (n, 3) and rotation
    (n, 3, 3) in the link's frame, and semi-axes (n, 3), m."""

    link: Array
    centre: Array
    attitude: Array
    axes: Array


def pose_of_rows(rows: Array) -> Array:
    """Poses (n, 4, 4) of frames from the transforms to them, rows (n, 12): E row-major, r."""
    poses = np.zeros((len(rows), 4, 4))
    poses[:, :3, :3] = rows[:, :9].reshape(-1, 3, 3).swapaxes(1, 2)
    poses[:, :3, 3], poses[:, 3, 3] = rows[:, 9:], 1.0
    return poses


def first_links(model: Model) -> Array:
    """The first link of each body, (n_bodies,); -1 for bodies without links."""
    links = np.full(model.n_bodies, -1)
    moving = np.flatnonzero(model.link_body >= 0)[::-1]
    links[model.link_body[moving]] = moving
    return links


def ellipsoids(model: Model) -> Ellipsoids:
    """Ellipsoids of all links with mass, or of bodies if the model does not know inertias of links.

    The ellipsoid of mass m and principal moments I_k about its centre has semi-axes a_k with
    a_k^2 = 5 (tr I / 2 - I_k) / m. A negative square, from an inertia that no body can have, counts as 0. Overflow
    gives infinite semi-axes.
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
        # Divided by mass, so that moments are squared lengths.
        spread = about_origin / m[:, None, None] - square
    finite = np.isfinite(spread).all(axis=(1, 2))
    moments, attitude = np.linalg.eigh(np.where(finite[:, None, None], spread, 0.0))
    attitude[np.linalg.det(attitude) < 0.0, :, 0] *= -1.0
    axes = np.sqrt(np.maximum(5.0 * (moments.sum(axis=1, keepdims=True) / 2.0 - moments), 0.0))
    axes[~finite] = np.inf
    centre = np.einsum("nij,nj->ni", to_link[:, :3, :3], np.where(finite[:, None], c, 0.0)) + to_link[:, :3, 3]
    return Ellipsoids(link, centre, to_link[:, :3, :3] @ attitude, axes)


def sensible(solids: Ellipsoids, poses: Array) -> tuple[Ellipsoids, list[int]]:
    """The ellipsoids of plausible size for links at poses (n_links, 4, 4), and the links of the others.

    A placeholder mass of 1e-6 kg with ordinary inertia, for example, gives an ellipsoid of hundreds of metres.
    """
    places = poses[:, :3, 3]
    spread = float(np.linalg.norm(np.ptp(places, axis=0))) if len(places) else 0.0
    largest = _LARGEST * spread if spread > 0.0 else _FARTHEST
    fits = (solids.axes <= largest).all(axis=1) & (np.abs(solids.centre) <= _FARTHEST).all(axis=1)
    selected = (each[fits] for each in (solids.link, solids.centre, solids.attitude, solids.axes))
    return Ellipsoids(*selected), solids.link[~fits].tolist()


def visible(axes: Array, size: float) -> Array:
    """Semi-axes (n, 3) enlarged such that they are visible in a picture of that size, m."""
    longest = axes.max(axis=1, keepdims=True, initial=0.0)
    return np.maximum(axes, np.where(longest > 0.0, _THINNEST * longest, _POINT * size))


def line_ends(model: Model) -> Array:
    """Pairs (n, 2) of a parent link and its child."""
    parents = model.link_parent
    if parents is None:
        first, body = first_links(model), model.link_body
        first_of_body = np.where(body >= 0, first[body], -1)
        parent_body = np.where(body >= 0, model.parent[body], -1)
        carrier = np.where(parent_body >= 0, first[parent_body], -1)
        parents = np.where(first_of_body == np.arange(len(body)), carrier, first_of_body)
    child = np.flatnonzero(parents >= 0)
    return np.stack([parents[child], child], axis=1)


@dataclass(frozen=True)
class Joints:
    """Constraints between two places: links (n, 2), -1 for the world; places (n, 2, 3) in the links' frames, m; whether
    the second place is known (a constraint to the world may have no target)."""

    links: Array
    places: Array
    anchored: Array


def held_places(model: Model) -> Joints:
    """The places that constraints hold together or at a distance. Couplings and locks have none."""
    framed = [each for each in resolved_constraints(model) if each.framed]
    # r of the transform to a frame is the frame's origin.
    places = np.array([(each.X.r, each.X_to.r) for each in framed]).reshape(-1, 2, 3)
    links = np.array([(each.link, each.to) for each in framed], dtype=np.intp).reshape(-1, 2)
    anchored = [each.to >= 0 or getattr(model.constraints[each.number], "to_at", None) is not None for each in framed]
    return Joints(links, places, np.array(anchored, dtype=bool))


def force_lines(f_ext: Array, centres: Array, reach: float) -> tuple[Array, Array]:
    """Start points and forces, (k, 3) each, of the wrenches (n, 6) with nonzero force, in world coordinates.

    A wrench is equivalent to a force along its central axis and a moment about that axis. The arrow starts at the point
    of the axis closest to the body's centre (n, 3). If that is farther than `reach`, as for a couple with a tiny force,
    it starts at the centre. The moment is not drawn.
    """
    acting = (f_ext[:, 3:] != 0.0).any(axis=1)
    moment, force, centres = f_ext[acting, :3], f_ext[acting, 3:], centres[acting]
    with np.errstate(all="ignore"):
        square = np.einsum("ni,ni->n", force, force)[:, None]
        offset = np.cross(force, moment - np.cross(centres, force)) / square
        near = np.linalg.norm(offset, axis=1, keepdims=True) <= reach
    return centres + np.where(near, offset, 0.0), force


def attitudes(rotations: Array) -> Array:
    """Quaternions (n, 4), wxyz, of rotations (n, 3, 3)."""
    if not len(rotations):
        return np.empty((0, 4))
    quaternions: Array = Rotation.from_matrix(rotations).as_quat()
    return quaternions[:, [3, 0, 1, 2]]
