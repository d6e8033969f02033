"""Converts geoms of a mjModel to geometries of links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from robodyn.core.description import Geometry, Pose
from robodyn.core.findings import Notes
from robodyn.core.shapes import HeightField
from robodyn.core.spatial import Transform, transpose
from robodyn.internals.messages import quoted
from robodyn.io.builders.axes import pose_transform
from robodyn.io.builders.mjcf_files import MeshFile
from robodyn.io.builders.mjcf_frames import rotation, three
from robodyn.io.builders.mjmodel import MjArrays
from robodyn.io.builders.values import color, numbers

_KINDS = ("plane", "sphere", "capsule", "ellipsoid", "cylinder", "box", "mesh")
_LAST_SEEN = 2
"""MuJoCo's viewer shows geoms of groups up to this one."""
_DEFAULTS = {
    "condim": (3.0,),
    "priority": (0.0,),
    "friction": (1.0, 0.005, 0.0001),
    "solmix": (1.0,),
    "solref": (0.02, 1.0),
    "solimp": (0.9, 0.95, 0.001, 0.5, 2.0),
    "margin": (0.0,),
    "gap": (0.0,),
}
"""Contact attributes with MuJoCo's defaults."""
_GREY = (0.5, 0.5, 0.5, 1.0)
"""The default colour of geoms. A geom with this colour has the colour of its material."""


class _LeftOutError(Exception):
    """A geom is omitted. The message is the reason."""


def geoms(arrays: MjArrays, links: Sequence[str], files: Mapping[str, MeshFile], notes: Notes) -> tuple[Geometry, ...]:
    """The geometries of all bodies. `links`: link name of each body; `files`: mesh files by their names in MuJoCo."""
    types = {int(getattr(arrays.mujoco.mjtGeom, f"mjGEOM_{kind.upper()}")): kind for kind in _KINDS}
    geometries = []
    for g, (number, body) in enumerate(zip(arrays["geom_type"].tolist(), arrays["geom_bodyid"].tolist(), strict=True)):
        kind = types.get(number)
        try:
            if kind is None:
                raise _LeftOutError("a height field or signed distance field is left out")
            geometries.append(_geom(arrays, g, kind, links[body], files))
        except _LeftOutError as error:
            notes.gather("shape-not-read", f"link {quoted(links[body])}", str(error))
    return tuple(geometries)


def primitive(arrays: MjArrays, g: int, kind: str, link: str) -> Geometry:
    """A geom that is no mesh, as a geometry for collisions, whatever it collides with by its own attributes."""
    pose = Pose(three(arrays["geom_pos"][g]), rotation(arrays["geom_quat"][g]))
    name = arrays.mujoco.mj_id2name(arrays.m, arrays.mujoco.mjtObj.mjOBJ_GEOM, g) or ""
    return Geometry(link, "collision", kind, pose, _size(arrays, g, kind), name=name)


def height_field(arrays: MjArrays, g: int, link: str) -> HeightField:
    """The terrain of a geom, on a link or "" for the world.

    MuJoCo divides cells along the other diagonal. A field that is turned by 90 degrees is divided so.
    """
    k = int(arrays["geom_dataid"][g])
    rows, columns, start = (int(arrays[f"hfield_{name}"][k]) for name in ("nrow", "ncol", "adr"))
    x, y, height, _ = arrays["hfield_size"][k].tolist()
    heights = height * np.array(arrays["hfield_data"][start : start + rows * columns], np.float64)
    a, b, c, d, e, f, h, i, j = rotation(arrays["geom_quat"][g])
    pose = Pose(three(arrays["geom_pos"][g]), (b, -a, c, e, -d, f, i, -h, j))
    name = arrays.mujoco.mj_id2name(arrays.m, arrays.mujoco.mjtObj.mjOBJ_GEOM, g) or None
    return HeightField(link or None, heights.reshape(rows, columns).T[::-1], (2.0 * y, 2.0 * x), pose, name)


def _geom(arrays: MjArrays, g: int, kind: str, link: str, files: Mapping[str, MeshFile]) -> Geometry:
    pose = Pose(three(arrays["geom_pos"][g]), rotation(arrays["geom_quat"][g]))
    size, path = _size(arrays, g, kind), ""
    if kind == "mesh":
        mesh = int(arrays["geom_dataid"][g])
        file_name = _text(arrays.m.paths, int(arrays["mesh_pathadr"][mesh])) if mesh >= 0 else ""
        if not file_name:
            raise _LeftOutError("a mesh that is in no file is left out")
        file, size = files.get(file_name, MeshFile(file_name, "", "")), three(arrays["mesh_scale"][mesh])
        path, pose = file.path, _of_file(arrays, mesh, pose, file, size)
    name = arrays.mujoco.mj_id2name(arrays.m, arrays.mujoco.mjtObj.mjOBJ_GEOM, g) or ""
    rgba, material = _look(arrays, g)
    contact = arrays["geom_contype"][g] or arrays["geom_conaffinity"][g]
    role = "visual" if not contact else "both" if arrays["geom_group"][g] <= _LAST_SEEN else "collision"
    folder = str(Path(path).parent) if Path(path).is_absolute() else ""
    appearance = (path, folder, name, rgba, material, "", "mjcf", _attributes(arrays, g))
    return Geometry(link, role, kind, pose, size, *appearance)


def _size(arrays: MjArrays, g: int, kind: str) -> tuple[float, ...]:
    """The size of a geom. MuJoCo stores half of all lengths except radii and semi-axes."""
    a, b, c = three(arrays["geom_size"][g])
    if kind == "sphere":
        return (a,)
    if kind in ("capsule", "cylinder"):
        return (a, 2.0 * b)
    if kind == "plane":
        return (2.0 * a, 2.0 * b)
    return (a, b, c) if kind == "ellipsoid" else (2.0 * a, 2.0 * b, 2.0 * c)


def _of_file(arrays: MjArrays, mesh: int, pose: Pose, file: MeshFile, scale: tuple[float, float, float]) -> Pose:
    """The pose of a mesh file's own frame.

    MuJoCo first maps a vertex x of the file to scale * R' (x - refpos), where R is the rotation `refquat`. It then
    moves the mesh to its centre of mass and rotates it to its principal axes.
    """
    mesh_pose = Pose(three(arrays["mesh_pos"][mesh]), rotation(arrays["mesh_quat"][mesh]))
    X: Transform = pose_transform(mesh_pose).inverse().after(pose_transform(pose))
    if file.refpos or file.refquat or file.refpos is None:
        at, turn = numbers(file.refpos or "0 0 0", 3), numbers(file.refquat or "1 0 0 0", 4)
        if file.refpos is None or at is None or turn is None:
            raise _LeftOutError("a mesh whose refpos or refquat is not known is left out")
        R = np.reshape(rotation(turn), (3, 3))
        if file.refquat and len(set(scale)) > 1:
            raise _LeftOutError("a mesh with refquat and a scale that is not the same along all axes is left out")
        shift = np.multiply(scale, R.T @ at)
        X = pose_transform(Pose(three(-shift), tuple(R.T.ravel().tolist()))).after(X)
    x, y, z = X.r
    return Pose((x, y, z), tuple(transpose(X.E)))


def _look(arrays: MjArrays, g: int) -> tuple[tuple[float, float, float, float], str]:
    """Colour and material name of a geom."""
    rgba, number, material = color(arrays["geom_rgba"][g]), int(arrays["geom_matid"][g]), ""
    if number >= 0:
        material = arrays.mujoco.mj_id2name(arrays.m, arrays.mujoco.mjtObj.mjOBJ_MATERIAL, number) or ""
        if rgba == _GREY:
            rgba = color(arrays["mat_rgba"][number])
    return rgba, material


def _attributes(arrays: MjArrays, g: int) -> tuple[tuple[str, str], ...]:
    """Contact attributes of a geom that differ from MuJoCo's defaults, and its collision groups."""
    attributes = [(key, str(int(arrays[f"geom_{key}"][g]))) for key in ("contype", "conaffinity", "group")]
    for key, default in _DEFAULTS.items():
        values = tuple(float(x) for x in np.atleast_1d(arrays[f"geom_{key}"][g]))
        if values != default:
            whole = key in ("condim", "priority")
            attributes.append((key, " ".join(repr(int(x) if whole else x) for x in values)))
    return tuple(attributes)


def _text(names: bytes, start: int) -> str:
    """The null-terminated string at a position of MuJoCo's string buffer; "" for a negative position."""
    if start < 0:
        return ""
    return bytes(names[start : names.index(b"\0", start)]).decode("utf-8", errors="replace")
