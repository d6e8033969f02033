"""Files of meshes, which may come from anybody.

They are read in a process of its own (`mesh_reader`), which may take only so much time and memory: readers of meshes,
pictures and XML are large, and a small file can keep one busy for days. The process is started with the first mesh and
kept for the next; it ends by itself when there has been nothing to read for a while.
"""

from __future__ import annotations

import atexit
import os
import pickle
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from robodyn import forks
from robodyn.errors import LoadError
from robodyn.files import LONGEST_PATH
from robodyn.messages import quoted

_SUFFIXES = (".stl", ".obj", ".dae", ".ply", ".glb", ".gltf", ".off")
_SECONDS = 20.0
"""For a file, with all that belongs to it."""
_LARGEST_ANSWER = 2 << 30
"""Bytes; no file that is allowed comes near."""
_CHUNK = 1 << 20
_PROGRAM = "from robodyn.viewer.mesh_reader import main; main()"


def read_mesh(path: Path) -> Any:
    """The surfaces in a mesh file, a `trimesh.Scene`, with the materials and textures that lie beside it or below.

    Raises:
        LoadError: it cannot be read, has no surface, or takes more bytes, faces, pixels, memory or time than allowed.
    """
    name = f"mesh {quoted(str(path), most=LONGEST_PATH)}"
    if path.suffix.lower() not in _SUFFIXES:
        raise LoadError(f"{name}; read are {', '.join(_SUFFIXES)}")
    with _ONE_AT_A_TIME:
        answer = _reader(fresh=False).ask(path) or _reader(fresh=True).ask(path)  # the first may have just ended itself
    if answer is None:
        raise LoadError(f"{name} cannot be read: the process that reads it ended, for want of memory or of trimesh")
    why, scene = answer
    if why:
        raise LoadError(f"{name} {why}")
    return scene


class _Reader:
    """The process that reads meshes."""

    def __init__(self) -> None:
        if not sys.executable or getattr(sys, "frozen", False):
            raise LoadError("meshes are read by a Python of their own, and where it is is not known in this program")
        folders = [each for each in sys.path if each]
        options: dict[str, Any] = {"creationflags": getattr(subprocess, "CREATE_NO_WINDOW", 0)}
        if os.name == "posix":
            options = {"start_new_session": True}  # Ctrl-C is for this process
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _PROGRAM],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,  # buffers have locks, which the child of a fork could not take
                env={**os.environ, "PYTHONPATH": os.pathsep.join(folders), "OPENBLAS_NUM_THREADS": "1"},
                **options,
            )
        except OSError as error:
            raise LoadError(f"meshes are read by a Python of their own, which does not start ({error})") from None
        self.owner, self._late = os.getpid(), False

    def ask(self, path: Path) -> tuple[str, Any] | None:
        """Why a file is refused, or "" and its scene; None where the process has ended."""
        timer = threading.Timer(_SECONDS, self._stop)
        timer.daemon = True
        timer.start()
        try:
            _send(self._process.stdin, pickle.dumps((str(path.absolute()), _SECONDS)))
            import trimesh  # noqa: F401  (for what comes back; meanwhile the other process does so, too)

            answer: tuple[str, Any] = pickle.loads(received(self._process.stdout, _LARGEST_ANSWER))
            return answer
        except (EOFError, OSError):
            self.end()
            return (f"takes more than {_SECONDS:g} s, the most that is waited", None) if self._late else None
        except BaseException:  # interrupted: what comes now would be taken for another answer
            self.end()
            raise
        finally:
            timer.cancel()

    @property
    def ended(self) -> bool:
        """Whether it is of no more use, as one of the process that this one was forked from."""
        return self.owner != os.getpid() or self._process.poll() is not None

    def _stop(self) -> None:
        self._late = True
        self._process.kill()

    def end(self) -> None:
        """End the process, unless it is that of a parent."""
        if self.owner == os.getpid():
            self._process.kill()
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                pipe.close()  # type: ignore[union-attr]


_READERS: list[_Reader] = []
_ONE_AT_A_TIME = forks.lock()


def _reader(fresh: bool) -> _Reader:
    """The process that there is, or a new one."""
    if _READERS and (fresh or _READERS[0].ended):
        _READERS.pop().end()
    if not _READERS:
        _READERS.append(_Reader())
    return _READERS[0]


@atexit.register
def _end() -> None:
    for each in _READERS:
        each.end()


def _send(pipe: IO[bytes] | None, data: bytes) -> None:
    """Write something with its length before it."""
    assert pipe is not None
    left = memoryview(len(data).to_bytes(8, "little") + data)
    while left:
        left = left[pipe.write(left) :]


def received(pipe: IO[bytes] | None, most: int) -> bytes:
    """What was written by `_send`.

    Raises:
        EOFError: nobody writes any more, or more than `most` bytes.
    """
    assert pipe is not None
    length = int.from_bytes(_exactly(pipe, 8), "little")
    if length > most:
        raise EOFError
    return _exactly(pipe, length)


def _exactly(pipe: IO[bytes], length: int) -> bytes:
    pieces = []
    while length:
        piece = pipe.read(min(length, _CHUNK))
        if not piece:
            raise EOFError
        pieces.append(piece)
        length -= len(piece)
    return b"".join(pieces)
