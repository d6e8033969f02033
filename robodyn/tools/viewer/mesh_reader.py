"""Program of the child process that reads meshes for `robodyn.tools.viewer.meshes`.

It has the process to itself, so it may patch libraries.
"""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from robodyn.internals.errors import RobodynError, UnavailableError
from robodyn.internals.files import read_regular
from robodyn.internals.messages import brief, install, quoted

try:
    import trimesh
    from trimesh.resolvers import FilePathResolver
except ImportError as error:
    raise UnavailableError(f"trimesh cannot be imported here ({error}): {install('viewer')}") from error

_LARGEST, _LARGEST_OF_ALL = 64 << 20, 256 << 20
"""Largest size in bytes of a mesh file, and of all files that it refers to."""
_MOST_FILES = 1000
_MOST_FACES, _MOST_PARTS = 5_000_000, 20_000
_MOST_PIXELS = 1 << 26
"""Largest number of pixels of all pictures of a mesh, as in one picture of 8192 x 8192."""
_PICTURES = ("PNG", "JPEG", "BMP", "GIF", "TGA", "TIFF", "WEBP")
"""Allowed picture formats. Readers of other formats open more files or run other programs."""


class _RefusedError(Exception):
    """A mesh, or a file that it refers to, is refused; the message says why."""


class _Folder(FilePathResolver):
    """Gives trimesh access to a mesh's folder and below: only regular files, with a limit of bytes."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self._bytes_left, self._reads_left = _LARGEST_OF_ALL, _MOST_FILES
        self._contents = dict[Path, bytes]()
        self.refused = ""

    def get(self, name: str) -> bytes:
        """The bytes of a file by its name in the mesh.

        Raises:
            FileNotFoundError: the file does not exist.
            _RefusedError: it is no regular file, or a limit is exceeded.
        """
        for each in (name.strip(), name.strip().lstrip("/"), name.replace("\\", "/").rsplit("/", 1)[-1].strip()):
            try:
                path = self.absolute(each)
            except ValueError:  # outside of the folder, or an invalid name
                continue
            if path.exists() and path != Path(self.parent).resolve():
                return self._read(path, name)
        raise FileNotFoundError(name)

    def _read(self, path: Path, name: str) -> bytes:
        self._reads_left -= 1
        if self._reads_left < 0:
            raise self._refuse(f"names files more than {_MOST_FILES} times")
        if path not in self._contents:
            try:
                data = read_regular(path, self._bytes_left)
            except (RobodynError, OSError) as error:
                raise self._refuse(f"names {quoted(name)}, which cannot be read: {error}") from None
            self._bytes_left -= len(data)
            if self._bytes_left < 0:
                raise self._refuse(f"names files of more than {_LARGEST_OF_ALL} bytes together")
            self._contents[path] = data
        return self._contents[path]

    def _refuse(self, why: str) -> _RefusedError:
        self.refused = self.refused or why  # trimesh itself would silently ignore the missing file
        return _RefusedError(why)


class _Pictures:
    """Replaces PIL's `open` and refuses a mesh whose pictures have too many pixels in total."""

    def __init__(self, image: Any) -> None:
        self._open, self._pixels_left, self.refused = image.open, 0, ""
        image.open = self
        image.MAX_IMAGE_PIXELS = _MOST_PIXELS
        self._warnings = image.DecompressionBombWarning, image.DecompressionBombError
        warnings.simplefilter("error", image.DecompressionBombWarning)

    def begin(self) -> None:
        """Reset the count of pixels for another mesh."""
        self._pixels_left, self.refused = _MOST_PIXELS, ""

    def __call__(self, file: Any, *given: Any, **options: Any) -> Any:
        try:
            picture = self._open(file, formats=_PICTURES)
        except self._warnings:
            self._pixels_left = -1
        else:
            self._pixels_left -= picture.width * picture.height
        if self._pixels_left < 0:
            self.refused = f"has pictures of more than {_MOST_PIXELS} pixels together"
            raise _RefusedError(self.refused)
        return picture


def start() -> Callable[[list[bytes]], list[bytes]]:
    """The function that answers requests (see `robodyn.io.builders.child.Program`).

    A request is a path. A response is the reason of a refusal, or an empty text and the bytes of a .glb.
    """
    pictures = _pictures()

    def answer(request: list[bytes]) -> list[bytes]:
        path = Path(os.fsdecode(request[0]))
        folder = _Folder(path)
        if pictures is not None:
            pictures.begin()
        try:
            data = _scene(path, folder).export(file_type="glb")
        except MemoryError:  # a new process may have more memory
            raise
        except Exception as error:  # foreign readers may raise anything
            why = str(error) if isinstance(error, _RefusedError) else f"cannot be read: {brief(error)}"
            return [why.encode(errors="replace")]
        refused = folder.refused or (pictures.refused if pictures is not None else "")
        return [refused.encode(errors="replace")] if refused else [b"", data]

    return answer


def _scene(path: Path, folder: _Folder) -> Any:
    try:
        data = read_regular(path, _LARGEST)
    except (RobodynError, OSError) as error:
        raise _RefusedError(f"cannot be read: {error}") from None
    if len(data) > _LARGEST:
        raise _RefusedError(f"is larger than {_LARGEST} bytes, the most that is read")
    kind = path.suffix.lower()
    if kind == ".dae" and b"<!DOCTYPE" in data.replace(b"\0", b""):  # without zero bytes, to find it in UTF-16, too
        raise _RefusedError("has a document type declaration, which is not read")
    scene = trimesh.load_scene(io.BytesIO(data), file_type=kind[1:], resolver=folder)
    # Remove points and lines, which are not drawn.
    scene.delete_geometry([name for name, each in scene.geometry.items() if not len(getattr(each, "faces", ()))])
    with np.errstate(over="ignore"):  # numbers in a .glb are float32
        finite = all(np.isfinite(np.float32(each.vertices)).all() for each in scene.geometry.values())
    if scene.is_empty or not finite:
        raise _RefusedError("has no faces, or places that are not finite")
    _require_few(scene)
    return scene


def _require_few(scene: Any) -> None:
    """Raise if there are too many faces or parts. A part counts as often as the scene shows it."""
    parts = [scene.graph[node][1] for node in scene.graph.nodes_geometry]
    if len(parts) > _MOST_PARTS:
        raise _RefusedError(f"has {len(parts)} parts; at most {_MOST_PARTS} are drawn")
    faces = sum(len(scene.geometry[part].faces) for part in parts)
    if faces > _MOST_FACES:
        raise _RefusedError(f"has {faces} faces; at most {_MOST_FACES} are drawn")


def _pictures() -> _Pictures | None:
    """The guard that replaces PIL's `open`; None if PIL is not installed."""
    try:
        import PIL.Image
    except ImportError:
        return None
    return _Pictures(PIL.Image)
