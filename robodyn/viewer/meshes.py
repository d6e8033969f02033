"""Files of meshes, which may come from anybody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from robodyn.errors import LoadError
from robodyn.messages import quoted

_LARGEST_MESH = 64 * 1024 * 1024
_SUFFIXES = (".stl", ".obj", ".dae", ".ply", ".glb", ".gltf", ".off")


def read_mesh(path: Path) -> Any:
    """The surfaces in a mesh file, a `trimesh.Scene`.

    Raises:
        LoadError: it cannot be read, is too large, or has no surface.
    """
    import trimesh

    if path.suffix.lower() not in _SUFFIXES:
        raise LoadError(f"mesh {quoted(str(path))}; read are {', '.join(_SUFFIXES)}")
    if path.stat().st_size > _LARGEST_MESH:
        raise LoadError(f"mesh {quoted(str(path))} is larger than {_LARGEST_MESH} bytes, the most that is read")
    scene = trimesh.load_scene(path)
    # Points and lines are no surfaces, and are neither painted nor drawn.
    scene.delete_geometry([name for name, each in scene.geometry.items() if not len(getattr(each, "faces", ()))])
    if not all(np.isfinite(each.vertices).all() for each in scene.geometry.values()) or scene.is_empty:
        raise LoadError(f"mesh {quoted(str(path))} has no faces, or places that are not finite")
    return scene
