"""Geometries for collisions of robot files: which of them are shapes for distances."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from robodyn.core.description import Geometry, Pose
from robodyn.core.findings import Notes
from robodyn.core.spatial import rotate
from robodyn.internals.errors import LoadError
from robodyn.internals.messages import quoted

PAIR_CODES = frozenset({"cylinder-as-capsule", "collision-not-used", "pair-left-out", "srdf-unknown-link"})
"""Codes of findings about shapes and pairs, which other shapes replace."""


def note_geometries(geometries: Iterable[Geometry], notes: Notes) -> None:
    """Report geometries for collisions that are no shapes, or are other shapes in distances."""
    for each in geometries:
        if each.role == "visual":
            continue
        subject = f"link {quoted(each.link)}"
        if each.kind == "mesh":
            notes.gather("collision-not-used", subject, "a mesh for collisions, which has no part in distances")
        elif each.kind == "ellipsoid":
            message = "an ellipsoid for collisions, which has no part in distances: there is no formula"
            notes.gather("collision-not-used", subject, message)
        elif each.kind == "cylinder":
            message = "a cylinder: distances are those of the capsule around it, except to planes"
            notes.gather("cylinder-as-capsule", subject, message)


MESHES = ("ignore", "box", "spheres")
"""What collision meshes become."""
_TOLERANCE = 0.02
"""How far spheres stick out of a mesh, m."""


def without_meshes(geometries: tuple[Geometry, ...], meshes: str, notes: Notes) -> tuple[Geometry, ...]:
    """Geometries with shapes in place of meshes for collisions, and a finding about each.

    `meshes`: "box": the bounding box of the mesh, along its axes; "spheres": those of `fit_spheres`.

    Raises:
        UnavailableError: trimesh is not installed.
    """
    if meshes == "ignore" or not any(each.kind == "mesh" and each.role != "visual" for each in geometries):
        return geometries
    from robodyn.io.builders.mesh_files import MeshFiles

    files, made = MeshFiles(), dict[tuple[object, ...], list[Geometry]]()
    result: list[Geometry] = []
    for each in geometries:
        if each.kind != "mesh" or each.role == "visual":
            result.append(each)
            continue
        if each.role == "both":
            result.append(replace(each, role="visual"))
        path = files.mesh(each)
        key = (path, each.size)
        subject = f"link {quoted(each.link)}"
        if path is None:
            message = f"its collision mesh {quoted(each.mesh)} is not found; it has no part in distances"
            notes.gather("collision-mesh-replaced", subject, message, severity="warning")
            result.append(replace(each, role="collision"))
            continue
        try:
            if key not in made:
                made[key] = _of_mesh(path, each, meshes)
        except LoadError as error:
            message = f"its collision mesh is not read, and has no part in distances: {error}"
            notes.gather("collision-mesh-replaced", subject, message, severity="warning")
            result.append(replace(each, role="collision"))
            continue
        what = "the box around it" if meshes == "box" else "spheres that cover it"
        notes.gather("collision-mesh-replaced", subject, f"a collision mesh is {what}")
        result += [_placed(part, each) for part in made[key]]
    return tuple(result)


def _of_mesh(path: Path, given: Geometry, meshes: str) -> list[Geometry]:
    """Shapes in the frame of a mesh file, scaled."""
    import numpy as np

    from robodyn.core.shapes import Box
    from robodyn.io.builders.sphere_fitting import fit_spheres, mesh_of_file

    mesh = mesh_of_file(path)
    mesh.apply_scale(given.size)
    if meshes == "box":
        low, high = np.asarray(mesh.bounds)
        if not (high > low).all():
            raise LoadError(f"mesh {quoted(str(path))} is flat")
        return [Box(given.link, 0.5 * (low + high), high - low).geometry]
    return [sphere.geometry for sphere in fit_spheres(mesh, _TOLERANCE).on(given.link)]


def _placed(part: Geometry, given: Geometry) -> Geometry:
    """A part of a mesh on the mesh's link."""
    offset = rotate(given.pose.rotation, part.pose.xyz)
    xyz = tuple(a + b for a, b in zip(given.pose.xyz, offset, strict=True))
    return replace(part, link=given.link, pose=Pose(xyz, given.pose.rotation), name=given.name)
