"""A robot in a viser scene: nodes are made once and then placed for each configuration.

Frames, ellipsoids and lines of all links are a few nodes with many instances each, so a placement takes a handful of
messages for robots of any size. Each shape of a file is a node of its own on a frame for its link.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from robodyn.api.dynamics import Dynamics
from robodyn.core.model import Model
from robodyn.internals.arguments import Array
from robodyn.internals.errors import NumericalError
from robodyn.internals.messages import printable, quoted, shortened
from robodyn.tools.viewer.collisions import Collisions, ContactLines
from robodyn.tools.viewer.framing import FIELD, camera_for, corners, middle_and_size, together
from robodyn.tools.viewer.motion import Motion
from robodyn.tools.viewer.shapes import (
    Ellipsoids,
    attitudes,
    ellipsoids,
    first_links,
    force_lines,
    held_places,
    line_ends,
    sensible,
    visible,
)
from robodyn.tools.viewer.visuals import GROUND, Looks

SHAPES, FRAMES, INERTIA, LINES = "shapes", "frames", "inertia", "lines"
CENTRE, FORCES, CONSTRAINTS, NAMES = "centre of mass", "forces", "constraints", "names"
COLLISIONS, DISTANCES, CONTACTS = "collisions", "distances", "contacts"

_FRAME, _SMALLEST, _LARGEST = 0.5, 1e-3, 0.1
"""Length of a frame's axes relative to the median distance of neighbouring links, and its bounds relative to the
robot's size."""
_ARROW = 0.4
"""Length of the longest arrow relative to the robot's size."""
_FARTHEST = 1e9
"""Links with larger coordinates, m, are not drawn, because browsers compute in single precision."""
_MANY = 1000
"""Robots with more links are drawn coarsely, and at first without frames."""
_MOST_NAMES, _LONGEST_NAME, _MOST_SAID = 300, 60, 20
_GREY, _ORANGE, _BLUE, _MAGENTA, _GREEN = (160, 168, 180), (238, 136, 68), (51, 102, 221), (204, 51, 153), (40, 150, 70)


class Scene:
    """The drawing of one robot, in layers that can be shown or hidden. The initial camera covers one row of a motion.

    `said`: descriptions of objects that are not drawn. `longest_force`: force of the longest arrow so far, N.
    """

    def __init__(self, server: Any, dyn: Dynamics, looks: Looks, motion: Motion, row: int) -> None:
        import trimesh

        self._scene, self._atomic = server.scene, server.atomic
        self._dyn, self._model = dyn, dyn.model
        many = len(self._model.link_names) > _MANY
        self._ball = trimesh.creation.icosphere(subdivisions=0 if many else 2)
        self._joints = held_places(self._model)
        self._ends, self._bodies = line_ends(self._model), first_links(self._model)
        self._layers: dict[str, list[Any]] = {}
        self._shown: dict[str, bool] = {}
        self._pushed, self._q = False, motion.q[0, row]
        poses = self._poses = self.poses(motion.q[0, row])
        self._solids, oversized = sensible(ellipsoids(self._model), poses)
        names = (quoted(self._model.link_names[link]) for link in oversized[:_MOST_SAID])
        self.said = [f"link {name}: the ellipsoid of its inertia is larger than the robot" for name in names]
        drawn = _Drawn(self._model, looks, self._solids)
        self.size = middle_and_size(drawn.points(poses))[1]
        self._length, self.longest_force = self._frame_length(poses), motion.longest_force
        self._nodes = self._make(looks)
        # Nodes of forces are made at the first force, those of names, collisions and distances when they are shown.
        self._layers |= {FORCES: [], NAMES: []}
        self._shown |= {FORCES: True, NAMES: False}
        self._collisions: Collisions | None = None
        if self._model.collision_geometries:
            self._collisions = Collisions(self._scene, dyn, self.size)
            self._layers |= {COLLISIONS: [], DISTANCES: []}
            self._shown |= {COLLISIONS: False, DISTANCES: False}
        self._contacts: ContactLines | None = None
        if self._model.contacts is not None and self._model.contacts.pairs:
            self._contacts = ContactLines(self._scene, dyn, self.size)
            self._layers[CONTACTS], self._shown[CONTACTS] = [], False
        self._add_ground(float(poses[:, 2, 3].min(initial=0.0)))
        pushed = self._arrows(poses, motion.forces(0, row)).reshape(-1, 3)
        clouds = [drawn.points(each) for each in self._all_poses(motion.some(row))]
        self._aim(server, together([np.concatenate([clouds[0], pushed]), *clouds[1:]]))
        hidden = (INERTIA, FRAMES, LINES, CENTRE) if self._nodes["looks"] else (INERTIA, FRAMES) if many else (INERTIA,)
        for layer in hidden:
            self.show(layer, False)

    def poses(self, q: Array) -> Array:
        """Poses (n_links, 4, 4) of links at a configuration (nq,).

        Raises:
            NumericalError: links are too far away to be drawn.
        """
        try:
            poses: Array = np.asarray(self._dyn.forward_kinematics(q), dtype=np.float64)
        except NumericalError as error:  # rephrased, since the user did not call this query
            raise NumericalError(f"q: it cannot be drawn, as in a motion that diverges ({error})") from error
        if not (np.abs(poses) <= _FARTHEST).all():
            raise NumericalError(f"q: it puts links beyond {_FARTHEST:g} m; wanted a configuration that can be drawn")
        return poses

    # Layers.

    @property
    def layers(self) -> dict[str, bool]:
        """Layers by name, and whether they are shown."""
        return dict(self._shown)

    def show(self, layer: str, shown: bool) -> None:
        """Show or hide a layer, if there is one of that name.

        Raises:
            UnavailableError: distances of so many shapes cannot be computed.
        """
        if layer in self._shown:
            if layer in (COLLISIONS, DISTANCES):
                self._make_collisions(layer, shown)
            if layer == CONTACTS and shown and self._contacts is not None:
                self._layers[layer] = [self._contacts.lines()]
                self._contacts.place(self._q)
            self._shown[layer] = shown
            if layer == NAMES:
                self._make_names(shown)
            for node in self._layers[layer]:
                node.visible = shown
            self._show_forces()

    def _make_collisions(self, layer: str, shown: bool) -> None:
        """Make the nodes of one of the layers of collisions, if they are shown for the first time, and place them."""
        assert self._collisions is not None
        if not shown:
            return
        if layer == COLLISIONS:
            self._layers[layer] = self._collisions.solids()
        elif (lines := self._collisions.lines()) is not None:
            self._layers[layer] = [lines]
        self._collisions.place(self._q, self._poses, layer == COLLISIONS, layer == DISTANCES)

    def _keep(self, layer: str, node: Any) -> Any:
        self._layers.setdefault(layer, []).append(node)
        self._shown.setdefault(layer, True)
        return node

    # Creation of nodes.

    def _make(self, looks: Looks) -> dict[str, Any]:
        """Make all nodes; `place` sets their poses."""
        nodes: dict[str, Any] = {"looks": self._make_looks(looks)}
        seen, n = set(nodes["looks"]), len(self._model.link_names)
        axes = visible(self._solids.axes, self.size)
        bare = np.array([link not in seen for link in self._solids.link.tolist()], dtype=bool)
        if bare.any():
            nodes["bare"] = bare, self._balls(SHAPES, "/bodies", axes[bare], _GREY)
        if len(axes):
            nodes["solids"] = self._balls(INERTIA, "/inertia", axes, _ORANGE, opacity=0.45)
        if n:
            length = self._length
            still = np.tile([1.0, 0.0, 0.0, 0.0], (n, 1)), np.zeros((n, 3))
            made = self._scene.add_batched_axes("/frames", *still, axes_length=length, axes_radius=0.03 * length)
            nodes["frames"] = self._keep(FRAMES, made)
        if len(self._ends):
            nodes["lines"] = self._lines(LINES, "/lines", len(self._ends), _GREEN)
        if self._model.inertia[:, 0].sum() > 0.0:
            nodes["centre"] = self._balls(CENTRE, "/centre_of_mass", np.full((1, 3), 0.025 * self.size), _MAGENTA)
        if count := len(self._joints.links):
            axes = np.full((2 * count, 3), 0.012 * self.size)
            nodes["held"] = self._balls(CONSTRAINTS, "/constraints/places", axes, _BLUE)
            nodes["apart"] = self._lines(CONSTRAINTS, "/constraints/lines", count, _BLUE)
        return nodes

    def _make_looks(self, looks: Looks) -> dict[int, Any]:
        """Make a node for every shape and a frame for every link with shapes."""
        frames: dict[int, Any] = {}
        numbers = {name: k for k, name in enumerate(self._model.link_names)}
        for k, (name, pose, shape) in enumerate(looks.shapes):
            link = numbers.get(name)
            if link is None:  # the robot was edited and lacks this link
                continue
            if link not in frames:
                frames[link] = self._keep(SHAPES, self._scene.add_frame(f"/shapes/{link}", show_axes=False))
            at = {"position": pose[:3, 3], "wxyz": attitudes(pose[None, :3, :3])[0]}
            self._scene.add_mesh_trimesh(f"/shapes/{link}/{k}", shape, **at)
        return frames

    def _balls(self, layer: str, name: str, axes: Array, colour: tuple[int, int, int], **options: Any) -> Any:
        """Make ellipsoids with semi-axes (n, 3), in one colour."""
        n = len(axes)
        places = np.tile([1.0, 0.0, 0.0, 0.0], (n, 1)), np.zeros((n, 3))
        ball = self._ball.vertices, self._ball.faces
        made = self._scene.add_batched_meshes_simple(
            name, *ball, *places, batched_scales=axes, batched_colors=colour, lod="off", **options
        )
        return self._keep(layer, made)

    def _lines(self, layer: str, name: str, n: int, colour: tuple[int, int, int]) -> Any:
        return self._keep(
            layer, self._scene.add_line_segments(name, np.zeros((n, 2, 3)), colour, thickness=0.08 * self._length)
        )

    def _add_ground(self, height: float) -> None:
        """Add a grid whose cell size is a power of ten, m."""
        cell = 10.0 ** np.floor(np.log10(self.size / 2.0))
        sections = {"cell_size": cell, "section_size": 10.0 * cell, "fade_distance": 6.0 * self.size}
        self._scene.add_grid("/ground", infinite_grid=True, position=(0.0, 0.0, height), **sections)

    def _all_poses(self, states: Array) -> Iterator[Array]:
        """Poses at configurations; those that cannot be drawn are skipped."""
        for q in states:
            with suppress(NumericalError):
                yield self.poses(q)

    def _aim(self, server: Any, points: Array) -> None:
        """Set the initial camera of pages such that it covers points."""
        fitted, camera = camera_for(points), server.initial_camera
        camera.look_at, camera.position, camera.fov = fitted.look_at, fitted.position, FIELD
        camera.near, camera.far = 1e-3 * self.size, 1e3 * self.size
        server.bound_camera(1e-2 * self.size, 1e3 * self.size)

    def _frame_length(self, poses: Array) -> float:
        """Length of frames' axes, m, such that those of neighbouring links do not overlap."""
        apart = np.linalg.norm(poses[self._ends[:, 0], :3, 3] - poses[self._ends[:, 1], :3, 3], axis=-1)
        usual = float(np.median(apart[apart > 0.0])) if (apart > 0.0).any() else self.size
        return float(np.clip(_FRAME * usual, _SMALLEST * self.size, _LARGEST * self.size))

    # Placement.

    def place(self, q: Array, f_ext: Array | None = None) -> Array:
        """Move everything to a configuration (nq,), with external forces (n_bodies, 6); return the poses of links.

        Raises:
            NumericalError: as `poses` does.
        """
        poses = self._poses = self.poses(q)
        self._q = q
        nodes, joints = self._nodes, self._joints
        turns = attitudes(poses[:, :3, :3])
        with self._atomic():
            for link, frame in nodes["looks"].items():
                frame.position, frame.wxyz = poses[link, :3, 3], turns[link]
            if "frames" in nodes:
                nodes["frames"].batched_positions, nodes["frames"].batched_wxyzs = poses[:, :3, 3], turns
            if "solids" in nodes:
                self._place_solids(poses)
            if "lines" in nodes:
                nodes["lines"].points = poses[self._ends, :3, 3]
            if "centre" in nodes:
                nodes["centre"].batched_positions = np.asarray(self._dyn.center_of_mass(q))[None]
            if "held" in nodes:
                places = _places(poses, joints.links, joints.places)
                places[~joints.anchored, 1] = places[~joints.anchored, 0]  # without a target: both ends coincide
                nodes["held"].batched_positions, nodes["apart"].points = places.reshape(-1, 3), places
            for link, label in nodes.get("names", ()):
                label.position = poses[link, :3, 3]
            if self._collisions is not None:
                self._collisions.place(q, poses, self._shown[COLLISIONS], self._shown[DISTANCES])
            if self._contacts is not None and self._shown[CONTACTS]:
                self._contacts.place(q)
            self._place_forces(poses, f_ext)
        return poses

    def _place_solids(self, poses: Array) -> None:
        solids, nodes = self._solids, self._nodes
        at = poses[solids.link]
        centres = np.einsum("nij,nj->ni", at[:, :3, :3], solids.centre) + at[:, :3, 3]
        turns = attitudes(at[:, :3, :3] @ solids.attitude)
        nodes["solids"].batched_positions, nodes["solids"].batched_wxyzs = centres, turns
        if "bare" in nodes:
            bare, node = nodes["bare"]
            node.batched_positions, node.batched_wxyzs = centres[bare], turns[bare]

    def _arrows(self, poses: Array, f_ext: Array | None) -> Array:
        """Ends (k, 2, 3) of arrows with lengths proportional to forces. The largest force so far has the longest
        arrow."""
        if f_ext is None or not (f_ext[:, 3:] != 0.0).any():
            return np.zeros((0, 2, 3))
        has_link = self._bodies >= 0
        centres = np.zeros((len(has_link), 3))
        centres[has_link] = poses[self._bodies[has_link], :3, 3]
        start, force = force_lines(f_ext, centres, self.size)
        self.longest_force = max(self.longest_force, float(np.linalg.norm(force, axis=1).max()))
        return np.stack([start, start + force * (_ARROW * self.size / self.longest_force)], axis=1)

    def _place_forces(self, poses: Array, f_ext: Array | None) -> None:
        points = self._arrows(poses, f_ext)
        self._pushed = len(points) > 0
        if self._pushed:
            if "forces" not in self._nodes:
                thick = 0.01 * self.size
                radii = {"shaft_radius": thick, "head_radius": 2.5 * thick, "head_length": 5.0 * thick}
                self._nodes["forces"] = self._scene.add_arrows("/forces", points, _MAGENTA, **radii)
            self._nodes["forces"].points = points
        self._show_forces()

    def _show_forces(self) -> None:
        if "forces" in self._nodes:
            self._nodes["forces"].visible = self._shown[FORCES] and self._pushed

    def _make_names(self, shown: bool) -> None:
        """Make or remove labels with the names of the first links. They are made anew at each call: a page that has not
        drawn hidden labels yet would show them."""
        for _, label in self._nodes.pop("names", ()):
            label.remove()
        if not shown:
            return
        self._nodes["names"] = []
        for link, name in enumerate(self._model.link_names[:_MOST_NAMES]):
            text, at = printable(shortened(name, _LONGEST_NAME)), self._poses[link, :3, 3]
            self._nodes["names"].append((link, self._scene.add_label(f"/names/{link}", text, position=at)))


def _places(poses: Array, links: Array, places: Array) -> Array:
    """World positions (n, 2, 3) of places (n, 2, 3) on links (n, 2); -1 is the world."""
    at = np.concatenate([poses, np.eye(4)[None]])[links]  # index -1 is the last row, the world
    positions: Array = np.einsum("nkij,nkj->nki", at[..., :3, :3], places) + at[..., :3, 3]
    return positions


class _Drawn:
    """Points on links that the camera must cover: corners of shapes, and of boxes around ellipsoids of links without
    shapes. Without either they are the origins of links."""

    def __init__(self, model: Model, looks: Looks, solids: Ellipsoids) -> None:
        numbers = {name: k for k, name in enumerate(model.link_names)}
        selected = [each for each in looks.shapes if each[0] in numbers and GROUND not in each[2].metadata]
        shapes = [(numbers[name], pose, shape.bounds) for name, pose, shape in selected]
        shapes = [each for each in shapes if each[2] is not None]
        links = [link for link, _, _ in shapes]
        bounds = np.array([bounds for _, _, bounds in shapes], dtype=np.float64).reshape(-1, 2, 3)
        at = np.array([pose for _, pose, _ in shapes], dtype=np.float64).reshape(-1, 4, 4)
        bare = ~np.isin(solids.link, links)
        reach = np.broadcast_to(solids.axes[bare].max(axis=1, keepdims=True, initial=0.0), (int(bare.sum()), 3))
        boxes = corners(solids.centre[bare] - reach, solids.centre[bare] + reach)
        self._places = np.concatenate([_moved(at, corners(bounds[:, 0], bounds[:, 1])), boxes])
        self._links = np.concatenate([np.array(links, dtype=np.intp), solids.link[bare]])

    def points(self, poses: Array) -> Array:
        """World positions (n, 3) for poses (n_links, 4, 4) of links."""
        if not len(self._links):
            return poses[:, :3, 3]
        return _moved(poses[self._links], self._places).reshape(-1, 3)


def _moved(poses: Array, places: Array) -> Array:
    """Transform places (n, k, 3) by poses (n, 4, 4)."""
    positions: Array = places @ poses[:, :3, :3].swapaxes(1, 2) + poses[:, None, :3, 3]
    return positions
