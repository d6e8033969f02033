"""Covers meshes and shapes with spheres.

A greedy cover: candidates are points on a grid inside and on the surface. The sphere of a candidate has the radius of
its depth plus the tolerance, so that it sticks out by at most the tolerance. The surface is divided into small
triangles. The sphere that covers most of those that are still bare is taken, until none is.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from robodyn.core.poses import transform_of
from robodyn.core.shapes import Box, Capsule, Cylinder, Shape, Sphere
from robodyn.core.spatial import rotate_back
from robodyn.internals.arguments import Array, finite_number, integer
from robodyn.internals.errors import ArgumentError, UnavailableError
from robodyn.internals.messages import brief, install
from robodyn.internals.provided import provided
from robodyn.internals.records import dataclass

_EDGE, _MOST_TRIANGLES = 0.5, 100_000
"""Longest edge of the triangles that are covered, as a share of the tolerance; and most of them, roughly."""
_GRID, _ON_SURFACE = 16, 800
"""Steps of the grid of candidates along the longest side; about so many candidates are on the surface."""
_MOST_FACES = 20_000
"""Most faces of a mesh whose inside is found. The convex hull stands for a mesh with more."""


@dataclass(frozen=True, eq=False)
class SphereFit:
    """Spheres that cover a mesh or a shape.

    `spheres`: (k, 4) centres and radii, m. `sticks_out`: how far they reach beyond the surface at most, m. `bare`:
    distance of the surface from them at most, m, 0 where all of it is covered; `bare_share`: share of the surface.
    `of_hull`: True if the mesh is open, or has very many faces, so that its convex hull was covered instead.
    """

    spheres: Array
    sticks_out: float
    bare: float
    bare_share: float
    of_hull: bool

    def on(self, link: str, pose: Any = None) -> tuple[Sphere, ...]:
        """The spheres as shapes of a link, with the mesh at a pose in the link's frame, as in `Model.with_frames`."""
        X = transform_of("pose", pose)
        placed = [rotate_back(X.E, tuple(row[:3])) for row in self.spheres.tolist()]
        return tuple(
            Sphere(link, tuple(a + b for a, b in zip(X.r, c, strict=True)), float(r))
            for c, r in zip(placed, self.spheres[:, 3], strict=True)
        )


def fit_spheres(mesh_or_shape: Any, tolerance: float = 0.02, most: int | None = None) -> SphereFit:
    """Spheres that cover a mesh, or a shape, and stick out by at most a tolerance.

    Needs trimesh (the extra `viewer`).

    Args:
        mesh_or_shape: the path of a mesh file, a `trimesh.Trimesh`, or a `robodyn.Box`, `Capsule`, `Cylinder` or
            `Sphere`, which are covered in the frame of their link.
        tolerance: m. Half of it takes about twice as many spheres.
        most: the largest number of spheres; parts of the surface may then be left bare.

    Raises:
        ArgumentError: anything else, or a tolerance that is too small for the size of the surface.
        LoadError: a file that cannot be read.
        UnavailableError: trimesh is not installed.
    """
    width = finite_number("tolerance", tolerance)
    if not width > 0.0:
        raise ArgumentError(f"tolerance: got {width:g}; wanted a length above 0, in m")
    limit = integer(most)
    if most is not None and (limit is None or limit < 1):
        raise ArgumentError(f"most: got {brief(most)}; wanted an integer from 1, or None")
    if type(mesh_or_shape) is Sphere:
        return SphereFit(np.array([[*mesh_or_shape.at, mesh_or_shape.radius]]), 0.0, 0.0, 0.0, False)
    mesh = _mesh(mesh_or_shape)
    of_hull = not mesh.is_watertight or len(mesh.faces) > _MOST_FACES
    if of_hull:
        mesh = mesh.convex_hull
    return _covered(mesh, width, limit, of_hull)


def trimesh_module() -> Any:
    """The library that reads meshes.

    Raises:
        UnavailableError: it is not installed.
    """
    try:
        import trimesh
    except ImportError:
        raise UnavailableError(f"meshes need trimesh: {install('viewer')}") from None
    return trimesh


def mesh_of_file(path: Path) -> Any:
    """The mesh in a file, as one `trimesh.Trimesh`.

    Raises:
        LoadError: it cannot be read.
        UnavailableError: trimesh is not installed.
    """
    trimesh_module()
    scene = provided("read_mesh")(path)
    mesh = scene.to_mesh()
    mesh.merge_vertices(merge_tex=True, merge_norm=True)
    return mesh


def _mesh(given: Any) -> Any:
    """A mesh in the frame of the file or the link."""
    if isinstance(given, str | os.PathLike):
        return mesh_of_file(Path(os.fspath(given)))
    trimesh = trimesh_module()
    if isinstance(given, trimesh.Trimesh):
        return given
    if not isinstance(given, Box | Capsule | Cylinder):
        raise ArgumentError(
            f"mesh_or_shape: got {brief(given)}; wanted the path of a mesh, a trimesh.Trimesh, or a Box, Capsule, "
            "Cylinder or Sphere"
        )
    return shape_mesh(given)


def shape_mesh(shape: Shape) -> Any:
    """A shape as a mesh in the frame of its link."""
    create, geometry = trimesh_module().creation, shape.geometry
    if geometry.kind == "box":
        mesh = create.box(geometry.size)
    elif geometry.kind == "cylinder":
        mesh = create.cylinder(geometry.size[0], geometry.size[1])
    else:
        mesh = create.capsule(height=geometry.size[1], radius=geometry.size[0])
        mesh.apply_translation(-mesh.bounds.mean(axis=0))
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = np.reshape(geometry.pose.rotation, (3, 3)), geometry.pose.xyz
    mesh.apply_transform(pose)
    return mesh


def _covered(mesh: Any, tolerance: float, most: int | None, of_hull: bool) -> SphereFit:
    from scipy.spatial import cKDTree  # type: ignore[import-untyped]

    vertices, faces = _divided(mesh, _EDGE * tolerance)
    tree = cKDTree(vertices)
    centres = np.concatenate([_inside(mesh), vertices[:: max(1, len(vertices) // _ON_SURFACE)]])
    # The vertex nearest to the foot of the perpendicular is at most 1/sqrt(3) of an edge beside it.
    sampled = tree.query(centres)[0]
    radii = np.sqrt(np.maximum(sampled**2 - (_EDGE * tolerance) ** 2 / 3.0, 0.0)) + tolerance
    bare, rows = np.ones(len(faces), bool), list[tuple[float, ...]]()
    for _ in range(2):
        taken = _greedy(centres, radii, vertices, faces, bare, None if most is None else most - len(rows))
        rows += [(*centres[k], radii[k]) for k in taken]
        # What is left is covered from its own corners: edges are shorter than the tolerance.
        centres = vertices[np.unique(faces[bare])]
        radii = np.full(len(centres), tolerance)
    spheres = np.array(rows)
    left = vertices[np.unique(faces[bare])]
    gaps = np.min([np.linalg.norm(left - c[:3], axis=1) - c[3] for c in spheres], axis=0, initial=np.inf)
    return SphereFit(spheres, tolerance, max(0.0, float(gaps.max(initial=0.0))), float(bare.mean()), of_hull)


def _greedy(centres: Array, radii: Array, vertices: Array, faces: Array, bare: Array, most: int | None) -> list[int]:
    """The candidates that cover most of what is still bare, one after another; marks in `bare` what they cover."""
    covers = []
    for c, r in zip(centres, radii, strict=True):
        within = ((vertices - c) ** 2).sum(axis=1) <= r * r
        covers.append(np.packbits(within[faces].all(axis=1)))  # a sphere holds a triangle whose corners it holds
    left = np.packbits(bare)
    counts = np.array([np.bitwise_count(each & left).sum() for each in covers])
    taken: list[int] = []
    while counts.max(initial=0) and (most is None or len(taken) < most):
        best = int(counts.argmax())
        fresh = int(np.bitwise_count(covers[best] & left).sum())
        if fresh < counts[best]:  # counts only fall: a candidate is counted again when it comes first
            counts[best] = fresh
            continue
        taken.append(best)
        left &= ~covers[best]
        counts[best] = 0
    bare[:] = np.unpackbits(left)[: len(bare)].astype(bool)
    return taken


def _divided(mesh: Any, edge: float) -> tuple[Array, Array]:
    """Vertices and triangles of a surface, with edges up to a length."""
    least = float(mesh.area) / (0.5 * edge * edge)
    if least > _MOST_TRIANGLES:
        raise ArgumentError(
            f"tolerance: got {edge / _EDGE:g} for a surface of {float(mesh.area):g} m^2; wanted "
            f"{edge / _EDGE * np.sqrt(least / _MOST_TRIANGLES):.2g} or more"
        )
    divided, faces = trimesh_module().remesh.subdivide_to_size(mesh.vertices, mesh.faces, edge, max_iter=30)
    vertices, place = np.unique(np.round(divided, 12), axis=0, return_inverse=True)
    return vertices, place.reshape(-1)[faces]


def _inside(mesh: Any) -> Array:
    """Points (n, 3) of a grid that are inside a closed mesh, by their winding numbers."""
    low, high = mesh.bounds
    step = float((high - low).max()) / _GRID
    axes = [
        np.arange(a + 0.5 * step, b, step) if b - a > step else np.array([0.5 * (a + b)])
        for a, b in zip(low, high, strict=True)
    ]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 3)
    triangles = np.asarray(mesh.triangles)
    rows = max(1, 2_000_000 // len(triangles))
    found = [_winding(triangles, grid[k : k + rows]) > 0.5 for k in range(0, len(grid), rows)]
    inside: Array = grid[np.concatenate(found)]
    return inside


def _winding(triangles: Array, points: Array) -> Array:
    """Winding numbers of points (n,): sums of solid angles (van Oosterom and Strackee, The Solid Angle of a Plane
    Triangle, 1983)."""
    a, b, c = (triangles[None, :, k] - points[:, None] for k in range(3))
    la, lb, lc = (np.linalg.norm(v, axis=-1) for v in (a, b, c))
    volume = (a * np.cross(b, c)).sum(-1)
    cosines = la * lb * lc + (a * b).sum(-1) * lc + (b * c).sum(-1) * la + (c * a).sum(-1) * lb
    total: Array = np.arctan2(volume, cosines).sum(-1) / (2.0 * np.pi)
    return total
