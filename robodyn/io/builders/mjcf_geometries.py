"""The geoms of a mjModel as geometries of links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from robodyn.core.description import Geometry, Pose
from robodyn.core.findings import Notes
from robodyn.core.spatial import Transform, transpose
from robodyn.internals.messages import quoted
from robodyn.io.builders.axes import pose_transform
from robodyn.io.builders.mjcf_files import MeshFile
from robodyn.io.builders.mjcf_frames import rotation, three
from robodyn.io.builders.mjmodel import MjArrays
from robodyn.io.builders.values import color, numbers

_KINDS = ("plane", "sphere", "capsule", "ellipsoid", "cylinder", "box", "mesh")
_LAST_SEEN = 2
"""Geoms of groups up to this one are shown by MuJoCo's viewer."""
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
"""Attributes of contacts, with what MuJoCo takes where they are not given."""
_GREY = (0.5, 0.5, 0.5, 1.0)
"""The colour of a geom that gives none: its material's is used."""


class _LeftOutError(Exception):
    """Why a geom is left out."""


def geoms(arrays: MjArrays, links: Sequence[str], files: Mapping[str, MeshFile], notes: Notes) -> tuple[Geometry, ...]:
    """The geometries of bodies, whose links are given by their numbers.

    `files`: those of meshes, by the names that MuJoCo was given for them.
    """
    types = {int(getattr(arrays.mujoco.mjtGeom, f"mjGEOM_{kind.upper()}")): kind for kind in _KINDS}
    found = []
    for g, (number, body) in enumerate(zip(arrays["geom_type"].tolist(), arrays["geom_bodyid"].tolist(), strict=True)):
        kind = types.get(number)
        try:
            if kind is None:
                raise _LeftOutError("a height field or signed distance field is left out")
            found.append(_geom(arrays, g, kind, links[body], files))
        except _LeftOutError as error:
            notes.gather("shape-not-read", f"link {quoted(links[body])}", str(error))
    return tuple(found)


def _geom(arrays: MjArrays, g: int, kind: str, link: str, files: Mapping[str, MeshFile]) -> Geometry:
    pose = Pose(three(arrays["geom_pos"][g]), rotation(arrays["geom_quat"][g]))
    size, path = _size(arrays, g, kind), ""
    if kind == "mesh":
        mesh = int(arrays["geom_dataid"][g])
        named = _text(arrays.m.paths, int(arrays["mesh_pathadr"][mesh])) if mesh >= 0 else ""
        if not named:
            raise _LeftOutError("a mesh that is in no file is left out")
        file, size = files.get(named, MeshFile(named, "", "")), three(arrays["mesh_scale"][mesh])
        path, pose = file.path, _of_file(arrays, mesh, pose, file, size)
    name = arrays.mujoco.mj_id2name(arrays.m, arrays.mujoco.mjtObj.mjOBJ_GEOM, g) or ""
    rgba, material = _look(arrays, g)
    contact = arrays["geom_contype"][g] or arrays["geom_conaffinity"][g]
    role = "visual" if not contact else "both" if arrays["geom_group"][g] <= _LAST_SEEN else "collision"
    folder = str(Path(path).parent) if Path(path).is_absolute() else ""
    looks = (path, folder, name, rgba, material, "", "mjcf", _attributes(arrays, g))
    return Geometry(link, role, kind, pose, size, *looks)


def _size(arrays: MjArrays, g: int, kind: str) -> tuple[float, ...]:
    """MuJoCo gives half of all lengths but radii and semi-axes."""
    a, b, c = three(arrays["geom_size"][g])
    if kind == "sphere":
        return (a,)
    if kind in ("capsule", "cylinder"):
        return (a, 2.0 * b)
    if kind == "plane":
        return (2.0 * a, 2.0 * b)
    return (a, b, c) if kind == "ellipsoid" else (2.0 * a, 2.0 * b, 2.0 * c)


def _of_file(arrays: MjArrays, mesh: int, pose: Pose, file: MeshFile, scale: tuple[float, float, float]) -> Pose:
    """The pose of a mesh as its file has it: MuJoCo moves it to its centre and turns it to its principal axes, after it
    has taken places x of the file as scale * R' (x - refpos), where R is the rotation `refquat`."""
    moved = Pose(three(arrays["mesh_pos"][mesh]), rotation(arrays["mesh_quat"][mesh]))
    X: Transform = pose_transform(moved).inverse().after(pose_transform(pose))
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
    """Colour and name of the material of a geom."""
    rgba, number, material = color(arrays["geom_rgba"][g]), int(arrays["geom_matid"][g]), ""
    if number >= 0:
        material = arrays.mujoco.mj_id2name(arrays.m, arrays.mujoco.mjtObj.mjOBJ_MATERIAL, number) or ""
        if rgba == _GREY:
            rgba = color(arrays["mat_rgba"][number])
    return rgba, material


def _attributes(arrays: MjArrays, g: int) -> tuple[tuple[str, str], ...]:
    """What MJCF says of the contacts of a geom."""
    found = [(key, str(int(arrays[f"geom_{key}"][g]))) for key in ("contype", "conaffinity", "group")]
    for key, default in _DEFAULTS.items():
        values = tuple(float(x) for x in np.atleast_1d(arrays[f"geom_{key}"][g]))
        if values != default:
            whole = key in ("condim", "priority")
            found.append((key, " ".join(repr(int(x) if whole else x) for x in values)))
    return tuple(found)


def _text(names: bytes, start: int) -> str:
    """A text that ends with a null in MuJoCo's list of texts; "" where it has no start."""
    if start < 0:
        return ""
    return bytes(names[start : names.index(b"\0", start)]).decode("utf-8", errors="replace")
