"""The program of the child process that reads meshes: see `robodyn.tools.viewer.meshes`, which asks it.

It is alone in its process, so that it may change the libraries in it.
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
from robodyn.internals.messages import brief, quoted

try:
    import trimesh
    from trimesh.resolvers import FilePathResolver
except ImportError as error:
    raise UnavailableError(f"trimesh cannot be imported here ({error}): pip install 'robodyn[viewer]'") from error

_LARGEST, _LARGEST_OF_ALL = 64 << 20, 256 << 20
"""Bytes of a mesh file, and of all that belongs to it."""
_MOST_FILES = 1000
_MOST_FACES, _MOST_PARTS = 5_000_000, 20_000
_MOST_PIXELS = 1 << 26
"""Of all pictures of a mesh together: one of 8192 x 8192."""
_PICTURES = ("PNG", "JPEG", "BMP", "GIF", "TGA", "TIFF", "WEBP")
"""Formats that are opened: readers of others open more files, or run other programs."""


class _RefusedError(Exception):
    """A mesh, or a file that it names, is not read; says why."""


class _Folder(FilePathResolver):
    """The files in a mesh's folder and below, for trimesh: only regular ones, and not too many bytes of them."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self._bytes_left, self._reads_left = _LARGEST_OF_ALL, _MOST_FILES
        self._contents = dict[Path, bytes]()
        self.refused = ""

    def get(self, name: str) -> bytes:
        """The bytes of a file, named as in the mesh.

        Raises:
            FileNotFoundError: it is not there.
            _RefusedError: it is no regular file, or too much.
        """
        for each in (name.strip(), name.strip().lstrip("/"), name.replace("\\", "/").rsplit("/", 1)[-1].strip()):
            try:
                path = self.absolute(each)
            except ValueError:  # it lies elsewhere, or nothing could have such a name
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
        self.refused = self.refused or why  # trimesh would draw the mesh without it, and not say so
        return _RefusedError(why)


class _Pictures:
    """Replaces PIL's `open`: refuses pictures of a mesh that have too many pixels together."""

    def __init__(self, image: Any) -> None:
        self._open, self._pixels_left, self.refused = image.open, 0, ""
        image.open = self
        image.MAX_IMAGE_PIXELS = _MOST_PIXELS
        self._warnings = image.DecompressionBombWarning, image.DecompressionBombError
        warnings.simplefilter("error", image.DecompressionBombWarning)

    def begin(self) -> None:
        """Count pixels anew, for another mesh."""
        self._pixels_left, self.refused = _MOST_PIXELS, ""

    def __call__(self, file: Any, *given: Any, **options: Any) -> Any:
        try:
            found = self._open(file, formats=_PICTURES)
        except self._warnings:
            self._pixels_left = -1
        else:
            self._pixels_left -= found.width * found.height
        if self._pixels_left < 0:
            self.refused = f"has pictures of more than {_MOST_PIXELS} pixels together"
            raise _RefusedError(self.refused)
        return found


def start() -> Callable[[list[bytes]], list[bytes]]:
    """The function that answers requests: see `robodyn.io.builders.child.Program`.

    A request is a path. A response is why the mesh is refused, or an empty text and the bytes of a .glb.
    """
    pictures = _pictures()

    def answer(request: list[bytes]) -> list[bytes]:
        path = Path(os.fsdecode(request[0]))
        folder = _Folder(path)
        if pictures is not None:
            pictures.begin()
        try:
            data = _scene(path, folder).export(file_type="glb")
        except MemoryError:  # of which a new process may have more
            raise
        except Exception as error:  # readers of others, which raise anything
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
    if kind == ".dae" and b"<!DOCTYPE" in data.replace(b"\0", b""):  # also where it is UTF-16
        raise _RefusedError("has a document type declaration, which is not read")
    scene = trimesh.load_scene(io.BytesIO(data), file_type=kind[1:], resolver=folder)
    # Points and lines are no surfaces, and are neither painted nor drawn.
    scene.delete_geometry([name for name, each in scene.geometry.items() if not len(getattr(each, "faces", ()))])
    with np.errstate(over="ignore"):  # a .glb has numbers of single precision
        finite = all(np.isfinite(np.float32(each.vertices)).all() for each in scene.geometry.values())
    if scene.is_empty or not finite:
        raise _RefusedError("has no faces, or places that are not finite")
    _require_few(scene)
    return scene


def _require_few(scene: Any) -> None:
    """Raise if there are too many faces, or parts. A part counts as often as the scene shows it."""
    parts = [scene.graph[node][1] for node in scene.graph.nodes_geometry]
    if len(parts) > _MOST_PARTS:
        raise _RefusedError(f"has {len(parts)} parts; at most {_MOST_PARTS} are drawn")
    faces = sum(len(scene.geometry[part].faces) for part in parts)
    if faces > _MOST_FACES:
        raise _RefusedError(f"has {faces} faces; at most {_MOST_FACES} are drawn")


def _pictures() -> _Pictures | None:
    """What opens pictures from now on; None where PIL is not installed."""
    try:
        import PIL.Image
    except ImportError:
        return None
    return _Pictures(PIL.Image)
