"""Finds the mesh files of robots on this machine, without downloads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from robodyn.core.description import Geometry
from robodyn.internals import strict_types
from robodyn.internals.errors import ArgumentError
from robodyn.internals.files import path_text
from robodyn.internals.messages import brief


def checked_folders(package_dirs: object) -> list[Path]:
    """Checks and returns the folders that a user passes.

    Raises:
        ArgumentError: not a list of folders.
    """
    members = strict_types.members(package_dirs) if strict_types.is_a(package_dirs, list, tuple) else (None,)
    folders = [Path(text).absolute() for text in map(path_text, members) if text is not None]
    if len(folders) < len(members):
        raise ArgumentError(f"package_dirs: got {brief(package_dirs)}; wanted a list of folders")
    return folders


class MeshFiles:
    """Finds meshes and textures by their names in robot files.

    Paths are absolute or relative to the robot's file. `package://NAME/...` and `model://NAME/...` are searched in
    `package_dirs`, then in the folders of ROS's environment variables ROS_PACKAGE_PATH and AMENT_PREFIX_PATH, then in
    the folders above the robot's file.
    """

    def __init__(self, package_dirs: object = ()) -> None:
        self._packages = checked_folders(package_dirs)
        for variable, inside in (("ROS_PACKAGE_PATH", ""), ("AMENT_PREFIX_PATH", "share")):
            folders = os.environ.get(variable, "").split(os.pathsep)
            self._packages += [Path(each) / inside for each in folders if each]

    def mesh(self, geometry: Geometry) -> Path | None:
        """The file of a mesh, None if there is none."""
        return self.find(geometry.mesh, geometry.folder)

    def find(self, name: str, folder: str) -> Path | None:
        """The file with a name, None if there is none. `folder` is the folder of the robot's file, "" if unknown."""
        if "\0" in name:
            return None
        for path in self._candidates(name, folder):
            with suppress(OSError):  # a name that is too long
                if path.is_file():
                    return path
        return None

    def _candidates(self, name: str, folder: str) -> Iterator[Path]:
        scheme, separator, path = name.partition("://")
        above = [Path(folder), *Path(folder).parents] if folder else []
        if not separator:
            yield from [Path(name)] if Path(name).is_absolute() else [each / name for each in above[:1]]
        elif scheme == "file":
            yield Path(path)
        elif scheme in ("package", "model"):
            package, _, inside = path.partition("/")
            for each in [*self._packages, *above]:
                yield each / package / inside
                if each.name == package:
                    yield each / inside
