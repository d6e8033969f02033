"""The geoms of a mjModel as geometries of links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from robodyn.builders.axes import pose_transform
from robodyn.builders.findings import Notes
from robodyn.builders.mjcf_frames import rotation, three
from robodyn.builders.mjmodel import MjArrays
from robodyn.description import Geometry, Pose
from robodyn.messages import quoted
from robodyn.spatial import Transform, transpose

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


def geoms(arrays: MjArrays, links: Sequence[str], files: Mapping[str, str], notes: Notes) -> tuple[Geometry, ...]:
    """The geometries of bodies, whose links are given by their numbers.

    `files`: where meshes lie, by the names that MuJoCo was given for them.
    """
    kind_of_name = arrays.mujoco.mjtObj.mjOBJ_GEOM
    types = {int(getattr(arrays.mujoco.mjtGeom, f"mjGEOM_{kind.upper()}")): kind for kind in _KINDS}
    found = []
    for g, (number, body) in enumerate(zip(arrays["geom_type"].tolist(), arrays["geom_bodyid"].tolist(), strict=True)):
        kind, link = types.get(number), links[body]
        if kind is None:
            notes.gather(
                "shape-not-read", f"link {quoted(link)}", "a height field or signed distance field is left out"
            )
            continue
        pose, size, path = (
            Pose(three(arrays["geom_pos"][g]), rotation(arrays["geom_quat"][g])),
            _size(arrays, g, kind),
            "",
        )
        if kind == "mesh":
            mesh = int(arrays["geom_dataid"][g])
            named = _text(arrays.m.paths, int(arrays["mesh_pathadr"][mesh])) if mesh >= 0 else ""
            if not named:
                notes.gather("shape-not-read", f"link {quoted(link)}", "a mesh that is in no file is left out")
                continue
            path, pose = files.get(named, named), _of_file(arrays, mesh, pose)
            size = three(arrays["mesh_scale"][mesh])
        name = arrays.mujoco.mj_id2name(arrays.m, kind_of_name, g) or ""
        color, material = _look(arrays, g, notes)
        contact = arrays["geom_contype"][g] or arrays["geom_conaffinity"][g]
        seen = arrays["geom_group"][g] <= _LAST_SEEN
        role = "visual" if not contact else "both" if seen else "collision"
        folder = str(Path(path).parent) if path and Path(path).is_absolute() else ""
        shape = (pose, size, path, folder, name, color, material, "", "mjcf", _attributes(arrays, g))
        found.append(Geometry(link, role, kind, *shape))
    return tuple(found)


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


def _of_file(arrays: MjArrays, mesh: int, pose: Pose) -> Pose:
    """The pose of a mesh as its file has it: MuJoCo moves it to its centre and turns it to its principal axes."""
    moved = Pose(three(arrays["mesh_pos"][mesh]), rotation(arrays["mesh_quat"][mesh]))
    X: Transform = pose_transform(moved).inverse().after(pose_transform(pose))
    x, y, z = X.r
    return Pose((x, y, z), tuple(transpose(X.E)))


def _look(arrays: MjArrays, g: int, notes: Notes) -> tuple[tuple[float, float, float, float], str]:
    """Colour and name of the material of a geom."""
    red, green, blue, opacity = (float(min(max(x, 0.0), 1.0)) for x in arrays["geom_rgba"][g])
    number, material = int(arrays["geom_matid"][g]), ""
    if number >= 0:
        material = arrays.mujoco.mj_id2name(arrays.m, arrays.mujoco.mjtObj.mjOBJ_MATERIAL, number) or ""
        if (red, green, blue, opacity) == _GREY:
            red, green, blue, opacity = (float(min(max(x, 0.0), 1.0)) for x in arrays["mat_rgba"][number])
    return (red, green, blue, opacity), material


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
