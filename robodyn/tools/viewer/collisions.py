"""Draws a model's shapes for distances, which of them touch, the nearest points of the nearest pairs, and contacts."""

from __future__ import annotations

from typing import Any

import numpy as np

from robodyn.api.dynamics import Dynamics
from robodyn.core.description import Geometry
from robodyn.internals.arguments import Array
from robodyn.tools.viewer.shapes import attitudes
from robodyn.tools.viewer.visuals import capsule, cylinder

_BLUE, _RED, _BLACK = (90, 140, 205), (220, 45, 45), (30, 30, 30)
_OPACITY = 0.55
_LINES = 5
"""Number of pairs whose nearest points are joined by a line."""
_NORMAL = 0.1
"""Length of a drawn normal relative to the robot's size."""
_REACH, _FLAT = 4.0, 1e-3
"""Edge and thickness of a drawn plane relative to the robot's size."""


class Collisions:
    """Shapes as nodes with many instances each: instances of a node have one mesh, scaled and placed.

    Args:
        scene: viser's scene.
        dyn: the robot's `Dynamics`.
        size: the robot's size, m.
    """

    def __init__(self, scene: Any, dyn: Dynamics, size: float) -> None:
        self._scene, self._dyn, self._size = scene, dyn, size
        self._shapes = model_shapes = dyn.model.collision_geometries
        self._links = np.array([dyn.model.link_index(each.link) for each in model_shapes], dtype=np.intp)
        self._own = np.tile(np.eye(4), (len(model_shapes), 1, 1))
        for own, each in zip(self._own, model_shapes, strict=True):
            own[:3, :3], own[:3, 3] = np.reshape(each.pose.rotation, (3, 3)), each.pose.xyz
        self._nodes: list[tuple[Array, Any]] = []
        self._lines: Any = None

    def solids(self) -> list[Any]:
        """The nodes of shapes, made at the first call."""
        if not self._nodes:
            groups: dict[tuple[str, float], list[int]] = {}
            for k, each in enumerate(self._shapes):
                ratio = each.size[1] / each.size[0] if each.kind == "capsule" else 0.0
                groups.setdefault((each.kind, ratio), []).append(k)
            for number, ((kind, ratio), members) in enumerate(groups.items()):
                mesh, still = _mesh(kind, ratio), np.tile([1.0, 0.0, 0.0, 0.0], (len(members), 1))
                node = self._scene.add_batched_meshes_simple(
                    f"/collisions/{number}",
                    mesh.vertices,
                    mesh.faces,
                    still,
                    np.zeros((len(members), 3)),
                    batched_scales=np.array([self._scale(self._shapes[k]) for k in members]),
                    batched_colors=_BLUE,
                    opacity=_OPACITY,
                    lod="off",
                )
                self._nodes.append((np.array(members), node))
        return [node for _, node in self._nodes]

    def lines(self) -> Any:
        """The node of lines between nearest points, made at the first call; None if no pair is measured."""
        n = min(_LINES, self._dyn.model.n_pairs)
        if self._lines is None and n:
            thick = 0.006 * self._size
            self._lines = self._scene.add_line_segments("/distances", np.zeros((n, 2, 3)), _BLACK, thickness=thick)
        return self._lines

    def place(self, q: Array, poses: Array, solids: bool, lines: bool) -> None:
        """Move what is shown to a configuration with these poses of links: shapes, lines, or both."""
        if not solids and not lines:
            return
        pairs = np.array(self._dyn.model.pairs, dtype=np.intp).reshape(-1, 2)
        d = np.asarray(self._dyn.distances(q)) if len(pairs) else np.zeros(0)
        if solids:
            touching = np.zeros(len(self._shapes), bool)
            touching[pairs[d <= 0.0].ravel()] = True
            colours = np.where(touching[:, None], _RED, _BLUE).astype(np.uint8)
            placed = poses[self._links] @ self._own
            turns = attitudes(placed[:, :3, :3])
            for members, node in self._nodes:
                node.batched_positions, node.batched_wxyzs = placed[members, :3, 3], turns[members]
                node.batched_colors = colours[members]
        if lines and self._lines is not None:
            nearest = np.argsort(d, kind="stable")[: min(_LINES, len(d))]
            self._lines.points = np.asarray(self._dyn.witness_points(q))[nearest]
            colours = np.where(d[nearest, None] <= 0.0, _RED, _BLACK).astype(np.uint8)
            self._lines.colors = np.repeat(colours[:, None], 2, axis=1)

    def _scale(self, each: Geometry) -> tuple[float, float, float]:
        """Scales of the mesh of `_mesh`."""
        size = each.size
        if each.kind == "box":
            return size[0], size[1], size[2]
        if each.kind == "plane":
            return _REACH * self._size, _REACH * self._size, _FLAT * self._size
        return size[0], size[0], size[1] if each.kind == "cylinder" else size[0]


class ContactLines:
    """The normals of contacts that touch, as lines from their points; arguments as of `Collisions`."""

    def __init__(self, scene: Any, dyn: Dynamics, size: float) -> None:
        contacts = dyn.model.contacts
        assert contacts is not None
        self._scene, self._dyn, self._size = scene, dyn, size
        self._margins = np.array([contacts.pairs[k].margin for k in contacts.slot_pairs])
        self._lines: Any = None

    def lines(self) -> Any:
        """The node of lines, made at the first call."""
        if self._lines is None:
            none, thick = np.zeros((len(self._margins), 2, 3)), 0.01 * self._size
            self._lines = self._scene.add_line_segments("/contacts", none, _RED, thickness=thick)
        return self._lines

    def place(self, q: Array) -> None:
        """Move the lines to a configuration. Those of slots that are apart have no length."""
        T = np.asarray(self._dyn.contact_frames(q))
        touch = np.asarray(self._dyn.contact_distances(q)) < self._margins
        along = (_NORMAL * self._size * touch)[:, None] * T[:, :3, 0]
        self._lines.points = np.stack([T[:, :3, 3], T[:, :3, 3] + along], axis=1)


def _mesh(kind: str, ratio: float) -> Any:
    """The mesh of a kind of shapes: of radius or edges 1, and for capsules of that length in radii."""
    import trimesh

    if kind == "sphere":
        return trimesh.creation.icosphere(subdivisions=2)
    if kind == "capsule":
        return capsule((1.0, ratio))
    return cylinder((1.0, 1.0)) if kind == "cylinder" else trimesh.creation.box()
