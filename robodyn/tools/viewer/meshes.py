"""Reads untrusted mesh files.

A child process (`mesh_reader`) reads them, with limits of time and memory. Libraries that read meshes, pictures and XML
are large, and a small malicious file can keep them busy for days. The child returns the mesh as the bytes of a .glb.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

from robodyn.internals.errors import LoadError
from robodyn.internals.files import LONGEST_PATH
from robodyn.internals.messages import quoted
from robodyn.io.builders import child

_SUFFIXES = (".stl", ".obj", ".dae", ".ply", ".glb", ".gltf", ".off")
_PROGRAM = child.Program("robodyn.tools.viewer.mesh_reader", seconds=20.0, memory=4 << 30, largest=2 << 30)
"""The 20 s are for a file and all files that it refers to. Responses of allowed files are smaller than 2 GiB."""


def read_mesh(path: Path) -> Any:
    """Read a mesh file as a `trimesh.Scene`, with materials and textures in its folder or below.

    Raises:
        LoadError: the file cannot be read, has no surface, or exceeds a limit of bytes, faces, pixels, memory or time.
    """
    name = f"mesh {quoted(str(path), most=LONGEST_PATH)}"
    if path.suffix.lower() not in _SUFFIXES:
        raise LoadError(f"{name}; read are {', '.join(_SUFFIXES)}")
    try:
        why, *data = _PROGRAM.ask([os.fsencode(path.absolute())])
    except child.NotStartedError as error:
        raise LoadError(f"{name}: meshes are read in a process of its own, which does not start ({error})") from None
    except child.CrashedError as error:
        raise LoadError(f"{name} cannot be read: {error}, perhaps for want of memory") from None
    except child.FailedError as error:  # always a MemoryError: see `mesh_reader.start`
        limit = f"{_PROGRAM.memory} bytes of memory, the most that it may"
        raise LoadError(f"{name} takes more than {limit} ({error})") from None
    except child.TooLargeError as error:
        raise LoadError(f"{name} makes a .glb of {error} bytes; at most {_PROGRAM.largest} are drawn") from None
    except TimeoutError:
        raise LoadError(f"{name} takes more than {_PROGRAM.seconds:g} s, the most that is waited") from None
    if why:
        raise LoadError(f"{name} {child.text(why)}")
    import trimesh

    return trimesh.load_scene(io.BytesIO(b"".join(data)), file_type="glb", process=False)
