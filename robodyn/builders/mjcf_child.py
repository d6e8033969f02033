"""The program of the child process in which MuJoCo compiles: see `robodyn.builders.mjcf_compiler`, which starts it.

It imports MuJoCo, and nothing of robodyn. Requests come on standard input, answers go to standard output: the number of
parts, then each part behind its length, all numbers of 8 bytes.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SIZE = 8
READY, COMPILED, REFUSED, LARGE, BROKEN = b"robodyn", b"compiled", b"refused", b"large", b"broken"
"""What the first part of an answer says: after the start, a model, an error after which all is well, a model that is
too large, and an error after which this process ends. Behind it come: MuJoCo's version, the model and the warnings,
MuJoCo's message, the number of bytes, the type of the error and its message."""
XML, BINARY = b"xml", b"mjb"
"""What the first part of a request says of the second. Pairs of names and files follow."""
_NOTHING = "<mujoco/>"
_MOST_WARNINGS = 20


def main(seconds: float, memory: int, most: int) -> None:
    """Answer requests until there are no more.

    Args:
        seconds: how long one may take. The parent stops what takes longer; this is for a parent that has gone.
        memory: bytes that this process may take.
        most: bytes that a compiled model may have.
    """
    import os

    receive, send, printed = os.dup(0), os.dup(1), _printed()
    os.environ["MUJOCO_GL"] = "disable"
    os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"
    try:
        import mujoco
    except BaseException as error:  # told by the parent
        _write(send, [BROKEN, type(error).__name__.encode(), str(error).encode()])
        return
    _leave_folder()
    _limit(memory)
    _write(send, [READY, mujoco.__version__.encode()])
    import faulthandler

    with open(os.devnull, "wb") as trace:  # noqa: PTH123 - pathlib costs an import
        while request := _read(receive):
            faulthandler.dump_traceback_later(seconds, exit=True, file=trace)
            answer = _answer(mujoco, request, most)
            said = _warnings(printed)
            answer += said if answer[0] == COMPILED else []
            faulthandler.cancel_dump_traceback_later()
            _write(send, answer)
            if answer[0] not in (COMPILED, REFUSED):
                return


def _printed() -> int | None:
    """Let nothing be read from standard input, and what MuJoCo prints be found at the descriptor that is returned, as
    much of it as a pipe holds; None where the system has no pipes that let go of the rest."""
    import os

    nowhere, found = os.open(os.devnull, os.O_RDWR), None
    printing = nowhere
    if sys.platform != "win32":
        found, printing = os.pipe()
        os.set_blocking(found, False)
        os.set_blocking(printing, False)
    os.dup2(nowhere, 0)
    for standard in (1, 2):
        os.dup2(printing, standard)
    return found


def _warnings(printed: int | None) -> list[bytes]:
    """What was printed as warnings since the last time."""
    import os

    text = b""
    try:
        while printed is not None and (piece := os.read(printed, 1 << 16)):
            text += piece
    except BlockingIOError:
        pass
    return text.split(b"WARNING: ")[1:][:_MOST_WARNINGS]


def _leave_folder() -> None:
    """Go to a folder that is no longer there, as MuJoCo writes its log to where it is."""
    import os
    import tempfile

    try:
        folder = tempfile.mkdtemp()
        os.chdir(folder)
        os.rmdir(folder)  # noqa: PTH106 - pathlib costs an import
    except OSError:  # a system that does not remove the folder of a process, or has no place for one
        pass


def _limit(memory: int) -> None:
    """Let memory end, where the system has such limits, and leave no core files of it."""
    try:
        import resource
    except ImportError:
        return
    # Linux counts what is written to under RLIMIT_DATA; under RLIMIT_AS also what threads set aside and never use.
    for name, most in (("RLIMIT_DATA" if sys.platform == "linux" else "RLIMIT_AS", memory), ("RLIMIT_CORE", 0)):
        try:
            which = getattr(resource, name)
            hard = resource.getrlimit(which)[1]
            resource.setrlimit(which, (most if hard < 0 else min(most, hard), hard))
        except (AttributeError, ValueError, OSError):
            pass


def _answer(mujoco: Any, request: list[bytes], most: int) -> list[Any]:
    """The parts of an answer."""
    import numpy as np

    kind, data, *files = request
    try:
        if kind == BINARY:
            model = mujoco.MjModel.from_binary_path("model.mjb", {"model.mjb": data})
        else:
            names = [each.decode() for each in files[::2]]
            model = mujoco.MjModel.from_xml_string(data.decode(), dict(zip(names, files[1::2], strict=True)))
        size = mujoco.mj_sizeModel(model)
        if size > most:
            return [LARGE, str(size).encode()]
        buffer = np.empty(size, np.uint8)
        mujoco.mj_saveModel(model, None, buffer)
        return [COMPILED, buffer]
    except ValueError as error:
        answer = [REFUSED, str(error).encode(errors="replace")]
        mujoco.MjModel.from_xml_string(_NOTHING)  # some errors leave a lock: the time for this file goes by then
        return answer
    except BaseException as error:  # MuJoCo may have left anything behind
        return [BROKEN, type(error).__name__.encode(), str(error).encode(errors="replace")]


def _read(descriptor: int) -> list[bytes]:
    """The parts of a request; none at the end."""
    count = _exactly(descriptor, SIZE)
    parts = []
    for _ in range(int.from_bytes(count, "little")):
        parts.append(_exactly(descriptor, int.from_bytes(_exactly(descriptor, SIZE), "little")))
    return parts


def _exactly(descriptor: int, size: int) -> bytes:
    import os

    pieces = []
    while size:
        piece = os.read(descriptor, min(size, 1 << 20))
        if not piece:  # the parent is gone
            os._exit(0)
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def _write(descriptor: int, parts: list[Any]) -> None:
    import os

    pieces: list[Any] = [len(parts).to_bytes(SIZE, "little")]
    for part in parts:
        pieces += [len(part).to_bytes(SIZE, "little"), part]
    for piece in pieces:
        left = memoryview(piece)
        while left.nbytes:
            left = left[os.write(descriptor, left[: 1 << 20]) :]


if __name__ == "__main__":
    seconds, memory, most, *sys.path = sys.argv[1:]  # the folders are those of the parent, whose MuJoCo this is
    main(float(seconds), int(memory), int(most))
