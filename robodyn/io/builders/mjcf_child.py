"""The child process in which MuJoCo compiles models for `robodyn.io.builders.mjcf_compiler`."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

COMPILED, REFUSED = b"compiled", b"refused"
"""The first part of a response. The model and warnings follow `COMPILED`; MuJoCo's message follows `REFUSED`."""
XML, BINARY = b"xml", b"mjb"
"""The first part of a request: the format of the second part. Pairs of file names and contents follow."""
_SMALLEST = "<mujoco/>"
_MOST_WARNINGS = 20


def start() -> Callable[[list[bytes]], list[Any]]:
    """The function that answers requests, as `robodyn.io.builders.child.Program` requires."""
    printed = _printed()
    os.environ["MUJOCO_GL"] = "disable"
    import mujoco
    import numpy as np

    _leave_folder()

    def answer(request: list[bytes]) -> list[Any]:
        kind, data, *files = request
        try:
            if kind == BINARY:
                model = mujoco.MjModel.from_binary_path("model.mjb", {"model.mjb": data})
            else:
                names = [each.decode() for each in files[::2]]
                model = mujoco.MjModel.from_xml_string(data.decode(), dict(zip(names, files[1::2], strict=True)))
        except ValueError as error:
            # Some errors leave a lock held. Then this call blocks forever, and the time limit ends the process.
            mujoco.MjModel.from_xml_string(_SMALLEST)
            return [REFUSED, str(error).encode(errors="replace")]
        finally:
            warnings = _warnings(printed)
        buffer = np.empty(mujoco.mj_sizeModel(model), np.uint8)
        mujoco.mj_saveModel(model, None, buffer)
        return [COMPILED, buffer, *warnings]

    return answer


def _printed() -> int | None:
    """Redirects MuJoCo's output to a pipe, and returns the file descriptor to read it from.

    Output beyond the pipe's capacity is dropped. The result is None on Windows, whose pipes cannot drop output.
    """
    if sys.platform == "win32":
        return None
    printed, printing = os.pipe()
    os.set_blocking(printed, False)
    os.set_blocking(printing, False)
    for standard in (1, 2):
        os.dup2(printing, standard)
    return printed


def _warnings(printed: int | None) -> list[bytes]:
    """Warnings that MuJoCo has printed since the last call."""
    text = b""
    try:
        while printed is not None and (piece := os.read(printed, 1 << 16)):
            text += piece
    except BlockingIOError:
        pass
    return text.split(b"WARNING: ")[1:][:_MOST_WARNINGS]


def _leave_folder() -> None:
    """Change to a new folder and remove it, because MuJoCo would write its log file to the current folder."""
    try:
        folder = tempfile.mkdtemp()
        os.chdir(folder)
        Path(folder).rmdir()
    except OSError:  # no folder can be created, or the system does not remove a folder that is in use
        pass
