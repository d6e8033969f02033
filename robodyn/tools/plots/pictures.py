"""Pictures of a robot as arrays, by Matplotlib: what environments of Gymnasium render."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from robodyn.core.description import Geometry
from robodyn.internals.arguments import Array
from robodyn.internals.errors import UnavailableError
from robodyn.internals.messages import install
from robodyn.tools.plots.style import COLORS
from robodyn.tools.viewer.shapes import ellipsoids, line_ends, sensible, visible
from robodyn.tools.viewer.visuals import matrix_of

if TYPE_CHECKING:
    from robodyn.api.dynamics import Dynamics

_WIDTH, _HEIGHT, _DPI = 4.8, 3.6, 100
"""Inches, and pixels per inch."""
_FROM = np.array([0.5, -1.0, 0.4])
"""Where the camera is, seen from the robot."""
_MARGIN, _CELLS = 1.3, 12
"""Half the picture's height relative to the robot's size, and cells of the grid to each side."""
_ROUND, _TURNS = 48, 20
"""Points on a sphere, and on a circle."""


class Pictures:
    """Draws a robot from one side, in a parallel projection that follows it.

    Drawn are lines from each link to its child links, convex shapes of links, ellipsoids of inertia of links without
    shapes, shapes of contacts, and a grid for the ground. Meshes are left out.

    Args:
        dyn: the robot, whose values are not checked.

    Raises:
        UnavailableError: Matplotlib is not installed.
    """

    def __init__(self, dyn: Dynamics) -> None:
        try:
            from matplotlib.backends.backend_agg import FigureCanvasAgg
            from matplotlib.figure import Figure
        except ImportError as error:
            raise UnavailableError(
                f"render_mode 'rgb_array' needs Matplotlib, which cannot be imported here ({error}): {install('plot')}"
            ) from error
        self._canvas = FigureCanvasAgg(Figure(figsize=(_WIDTH, _HEIGHT), dpi=_DPI))
        self._dyn, self._ends = dyn, line_ends(dyn.model)
        poses = self._poses(dyn.model.neutral())
        self._solids = [*_solids(dyn), *_inertias(dyn, poses)]
        towards = _FROM / np.linalg.norm(_FROM)
        right = np.cross([0.0, 0.0, 1.0], towards)
        right /= np.linalg.norm(right)
        self._axes = np.stack([right, np.cross(towards, right), towards])
        points = np.concatenate([poses[:, :3, 3], *(_placed(poses[link], local) for link, local, _ in self._solids)])
        self._reach = max(1e-3, float(np.linalg.norm(points - points.mean(axis=0), axis=1).max()))

    def _poses(self, q: Array) -> Array:
        return np.asarray(self._dyn.forward_kinematics(q.astype(self._dyn.dtype)), np.float64)

    def picture(self, q: Array, ground_pose: Array | None = None) -> Array:
        """The robot at a configuration (nq,), on the ground (4, 4): (height, width, 3) of 8 bits."""
        from matplotlib.collections import LineCollection, PolyCollection
        from scipy.spatial import ConvexHull  # type: ignore[import-untyped]

        poses = self._poses(q)
        centre = poses[:, :3, 3].mean(axis=0)

        def seen(points: Array) -> Array:
            projected: Array = (points - centre) @ self._axes.T
            return projected

        outlines = []
        for link, local, color in self._solids:
            flat = seen(_placed(poses[link], local))
            corners = flat[ConvexHull(flat[:, :2], qhull_options="QJ").vertices, :2]
            outlines.append((float(flat[:, 2].mean()), corners, color))
        outlines.sort(key=lambda each: each[0])
        figure = self._canvas.figure
        figure.clear()
        panel = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        high = _MARGIN * self._reach
        wide = high * _WIDTH / _HEIGHT
        panel.set(xlim=(-wide, wide), ylim=(-high, high))
        panel.set_axis_off()
        ground = np.eye(4) if ground_pose is None else ground_pose.astype(np.float64)
        lines = [seen(each)[:, :2] for each in self._ground(centre, ground)]
        panel.add_collection(LineCollection(lines, colors="#c8c8c8", linewidths=0.8, zorder=0))
        bones = seen(poses[:, :3, 3])[:, :2]
        panel.add_collection(
            LineCollection([*bones[self._ends]], colors="#555555", linewidths=3.0, capstyle="round", zorder=1)
        )
        if outlines:
            _, polygons, colors = zip(*outlines, strict=True)
            solids = PolyCollection(polygons, facecolors=colors, edgecolors="#333333", linewidths=0.6, zorder=2)
            panel.add_collection(solids)
        self._canvas.draw()
        return np.array(self._canvas.buffer_rgba())[..., :3]

    def _ground(self, centre: Array, ground: Array) -> Iterator[Array]:
        """Lines (n, 3) of what is fixed to the world: a grid for each plane, height fields as they are, and a grid at
        z = 0 where there is nothing."""
        contacts = self._dyn.model.contacts
        pairs = () if contacts is None else contacts.pairs
        fixed = {id(each): each for pair in pairs for each in (pair.first, pair.second) if not each.link}
        fields = [each for each in fixed.values() if each.kind == "height field"]
        frames = [ground @ matrix_of(each) for each in fixed.values() if each.kind == "plane"]
        for field in fields:
            (width, depth, rows, columns), heights = field.size[:4], np.array(field.size[4:])
            x, y = np.linspace(-width / 2, width / 2, int(columns)), np.linspace(-depth / 2, depth / 2, int(rows))
            grid = np.stack([*np.meshgrid(x, y), heights.reshape(int(rows), int(columns))], axis=-1)
            placed = _placed(ground @ matrix_of(field), grid)
            yield from (*placed, *placed.swapaxes(0, 1))
        for frame in frames or ([] if fields else [ground]):
            local = (centre - frame[:3, 3]) @ frame[:3, :3]
            cell = 10.0 ** np.round(np.log10(self._reach / 2.0))
            first = cell * (np.round(local[:2] / cell) - _CELLS)
            along = cell * np.arange(2 * _CELLS + 1.0)
            x, y = np.meshgrid(first[0] + along, first[1] + along)
            placed = _placed(frame, np.stack([x, y, 0.0 * x], axis=-1))
            yield from (*placed[:, [0, -1]], *placed.swapaxes(0, 1)[:, [0, -1]])


def _placed(pose: Array, points: Array) -> Array:
    """Points (..., 3) of a frame, in the world."""
    placed: Array = points @ pose[:3, :3].T + pose[:3, 3]
    return placed


def _solids(dyn: Dynamics) -> Iterator[tuple[int, Array, Any]]:
    """The link, points (n, 3) on the surface in its frame, and the colour of each convex shape: visual ones, those for
    collisions of links without them, and those of contacts."""
    model = dyn.model
    visible = {each.link for each in model.geometries if each.role != "collision"}
    shown = [each for each in model.geometries if each.role != "collision" or each.link not in visible]
    pairs = () if model.contacts is None else model.contacts.pairs
    touching = {each: None for pair in pairs for each in (pair.first, pair.second) if each.link}
    for each in (*shown, *touching):
        points = _surface(each)
        if points is not None:
            link = model.link_index(each.link)
            yield link, _placed(matrix_of(each), points), each.color or _color(dyn, link)


def _inertias(dyn: Dynamics, poses: Array) -> Iterator[tuple[int, Array, Any]]:
    """The same of ellipsoids of inertia, for links without geometries."""
    solids, _ = sensible(ellipsoids(dyn.model), poses)
    size = float(np.linalg.norm(np.ptp(poses[:, :3, 3], axis=0)))
    shown = {dyn.model.link_index(each.link) for each in dyn.model.geometries}
    places = zip(solids.link.tolist(), solids.centre, solids.attitude, visible(solids.axes, size), strict=True)
    for link, centre, attitude, axes in places:
        if link not in shown and axes.any():
            yield link, (_ball() * axes) @ attitude.T + centre, _color(dyn, link)


def _color(dyn: Dynamics, link: int) -> str:
    return COLORS[int(dyn.model.link_body[link]) % (len(COLORS) - 1)]


def _ball() -> Any:
    """Points (n, 3) on the unit sphere."""
    k = np.arange(_ROUND) + 0.5
    z, turn = 1.0 - 2.0 * k / _ROUND, np.pi * (1.0 + np.sqrt(5.0)) * k
    return np.stack([np.sqrt(1.0 - z * z) * np.cos(turn), np.sqrt(1.0 - z * z) * np.sin(turn), z], axis=1)


def _surface(each: Geometry) -> Any:
    """Points (n, 3) on a shape, in its own axes; None for shapes that are not drawn."""
    size, kind = each.size, each.kind
    if kind == "box":
        halves = (-0.5, 0.5)
        return np.array([[x * size[0], y * size[1], z * size[2]] for x in halves for y in halves for z in halves])
    if kind in ("sphere", "ellipsoid"):
        return _ball() * np.array(size)
    if kind == "capsule":
        up = np.array([0.0, 0.0, 0.5 * size[1]])
        return np.concatenate([size[0] * _ball() + up, size[0] * _ball() - up])
    if kind == "cylinder":
        turn = np.linspace(0.0, 2.0 * np.pi, _TURNS, endpoint=False)
        ring = np.stack([size[0] * np.cos(turn), size[0] * np.sin(turn), np.full(_TURNS, 0.5 * size[1])], axis=1)
        return np.concatenate([ring, ring * [1.0, 1.0, -1.0]])
    return None
