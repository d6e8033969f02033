"""MJCF that MuJoCo compiles in a child process, within limits of time and memory.

Files may come from anywhere, and small ones can keep MuJoCo busy for hours, take all memory, crash it, or leave a lock
behind after which it never answers again. So they are compiled by a process of their own (`mjcf_child`), which can be
stopped at any time, and what it made comes back as the bytes of a .mjb. It is kept for the next file, unless something
went wrong in it.

Nothing is locked: who compiles takes a child that nobody uses, or starts one, and puts it back.
"""

from __future__ import annotations

import atexit
import os
import select
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from robodyn.builders import mjcf_child
from robodyn.builders.mjcf_child import SIZE
from robodyn.errors import LoadError, UnavailableError
from robodyn.messages import quoted

if sys.platform != "win32":
    import fcntl

MOST_SECONDS = 30.0
"""How long MuJoCo may take for a file."""
MOST_MEMORY = 4 << 30
"""Bytes that the child may take, where the system has such a limit."""
MOST_COMPILED = 1 << 30
"""Bytes that a compiled model may have."""
_MOST_IDLE = 4
"""Children that are kept."""
_LARGE = 64 << 20
"""A model of more bytes than this may have left too little memory for the next one."""
_STARTING = 60.0
"""Seconds that a child may take until it is ready."""
_MOST_PARTS = 1000
_PIECE = 1 << 20
_GO_ON = "if you trust it, compile it yourself and give the model: load_mjcf(mujoco.MjModel.from_xml_path(path))"
_WORDS = ("alloc", "memory", "unknown exception")
"""What messages of MuJoCo have where memory ended."""


class Compiled(NamedTuple):
    """The bytes of a .mjb, and what MuJoCo warned of."""

    data: bytes
    warnings: tuple[str, ...]


def compiled(text: str, files: dict[str, bytes]) -> Compiled:
    """MJCF compiled, whose files are those of a dictionary of bytes.

    Raises:
        LoadError: MuJoCo refuses it, crashes, takes too long or too much memory, or makes too large a model of it.
        UnavailableError: no child process can be started.
    """
    named = (part for name, data in files.items() for part in (name.encode(), data))
    return _compiled([mjcf_child.XML, text.encode(errors="replace"), *named])


def checked_binary(data: bytes) -> Compiled:
    """The bytes of a .mjb as MuJoCo writes them again; errors are those of `compiled`."""
    return _compiled([mjcf_child.BINARY, data])


def close() -> None:
    """End the children that are kept for later."""
    while _IDLE:
        _IDLE.pop().stop()


def _compiled(request: Sequence[bytes]) -> Compiled:
    child = _idle()
    if child is not None:
        with suppress(_Ended):  # it may have ended before, or what came before may have left too little memory
            return _asked(child, request)
    child = _Child()
    try:
        return _asked(child, request)
    except _Ended as error:
        raise LoadError(str(error)) from None


def _asked(child: _Child, request: Sequence[bytes]) -> Compiled:
    """What a child makes of a request. It is kept, or ended where it may not be as it was.

    Raises:
        _Ended: it ended, or had to be ended.
        LoadError: MuJoCo refuses it, or a limit is passed that another child has as well.
    """
    stays = False
    try:
        kind, *said = child.ask(request)
        stays = kind in (mjcf_child.COMPILED, mjcf_child.REFUSED) and len(said[0]) <= _LARGE
    except _Ended:
        child.stop()
        raise _Ended(_crash(child.process.returncode)) from None
    except TimeoutError:
        message = f"MuJoCo takes more than {MOST_SECONDS:g} s to compile it, the most that is waited"
        raise LoadError(f"{message}; {_GO_ON}") from None
    finally:
        if stays and len(_IDLE) < _MOST_IDLE:
            _IDLE.append(child)
        else:
            child.stop()
    return _told(kind, said)


def _told(kind: bytes, said: Sequence[bytes]) -> Compiled:
    """What an answer says.

    Raises:
        _Ended: an error after which the child had to end.
        LoadError: any other error.
    """
    if kind == mjcf_child.COMPILED:
        return Compiled(said[0], tuple(map(_text, said[1:])))
    message = _text(said[0])
    if kind == mjcf_child.LARGE:
        raise LoadError(f"MuJoCo makes {message} bytes of it; at most {MOST_COMPILED} are taken; {_GO_ON}")
    if kind == mjcf_child.REFUSED:
        raise LoadError(f"MuJoCo does not compile it: {message}")
    name, message = message, _text(said[1])
    what = f"MuJoCo does not compile it: {message} ({name})"
    if name == "MemoryError" or any(word in message.lower() for word in _WORDS):
        what += f", as where it takes more than {MOST_MEMORY >> 20} MiB of memory, the most that it is given; {_GO_ON}"
    raise _Ended(what)


def _text(data: bytes) -> str:
    return " ".join(data.decode(errors="replace").split())


def _crash(code: int | None) -> str:
    how = f"with exit code {code}"
    if code is not None and code < 0:
        with suppress(ValueError):
            how = f"by {signal.Signals(-code).name}"
    return (
        f"MuJoCo crashes as it compiles it: its process ended {how}, perhaps for want of memory, of which it is given "
        f"{MOST_MEMORY >> 20} MiB; {_GO_ON}"
    )


class _Ended(Exception):
    """The child is no longer there, says what it never should, or had to end."""


class _Child:
    """A process that compiles, ready to be asked.

    Raises:
        UnavailableError: it cannot be started.
    """

    def __init__(self) -> None:
        why = "Python's program is not known (sys.executable)"
        for python in _pythons():
            try:
                self.process = _started(python)
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                why = f"{quoted(python, 200)}: {error}"
                continue
            _ALL.add(self)
            try:
                kind, *said = self._heard(time.monotonic() + _STARTING)
                if kind == mjcf_child.READY:
                    return
                why = f"{quoted(python, 200)}: {b': '.join(said).decode(errors='replace')}"
            except (_Ended, TimeoutError):
                why = f"{quoted(python, 200)} does not start as Python does"
            except BaseException:
                self.stop()
                raise
            self.stop()
        raise UnavailableError(
            f"MJCF is compiled in a process of its own, which cannot be started here: {why}; compile it yourself and "
            "give the model: load_mjcf(mujoco.MjModel.from_xml_path(path))"
        )

    def ask(self, request: Sequence[bytes]) -> list[bytes]:
        """The parts of the answer to the parts of a request.

        Raises:
            _Ended: it ended.
            TimeoutError: it takes too long.
        """
        until = time.monotonic() + MOST_SECONDS
        self._say(len(request).to_bytes(SIZE, "little"), until)
        for part in request:
            self._say(len(part).to_bytes(SIZE, "little"), until)
            self._say(part, until)
        return self._heard(until)

    def stop(self) -> None:
        """End it, and leave nothing of it."""
        with suppress(OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait(_STARTING)
        self.close()

    def close(self) -> None:
        """Close this side of its pipes: it ends when nobody holds them."""
        for pipe in (self.process.stdin, self.process.stdout):
            with suppress(OSError):
                cast(IO[bytes], pipe).close()

    def _say(self, data: bytes, until: float) -> None:
        pipe, left = cast(Any, self.process.stdin), memoryview(data)
        while left.nbytes:
            try:
                _wait(pipe.fileno(), True, until)
                left = left[pipe.write(left[:_PIECE]) or 0 :]
            except OSError as error:
                if isinstance(error, TimeoutError):
                    raise
                raise _Ended from None

    def _heard(self, until: float) -> list[bytes]:
        left, count = MOST_COMPILED + _PIECE, self._number(until)
        if not 0 < count <= _MOST_PARTS:
            raise _Ended
        parts = []
        for _ in range(count):
            size = self._number(until)
            left -= size
            if left < 0:
                raise _Ended
            parts.append(self._exactly(size, until))
        return parts

    def _number(self, until: float) -> int:
        return int.from_bytes(self._exactly(SIZE, until), "little")

    def _exactly(self, size: int, until: float) -> bytes:
        pipe, pieces = cast(Any, self.process.stdout), []
        while size:
            _wait(pipe.fileno(), False, until)
            piece = pipe.read(min(size, _PIECE))
            if not piece:
                raise _Ended
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)


_IDLE: list[_Child] = []
"""Children that nobody uses at the moment."""
_ALL: weakref.WeakSet[_Child] = weakref.WeakSet()


def _idle() -> _Child | None:
    """A child that was used before, and is there."""
    while True:
        try:
            child = _IDLE.pop()
        except IndexError:
            return None
        if child.process.poll() is None:
            return child
        child.stop()


def _pythons() -> Iterator[str]:
    """Programs that may be this Python: that of this process may be another one that has Python inside."""
    if sys.executable and not getattr(sys, "frozen", False):
        yield sys.executable
    inside = ("python.exe",) if sys.platform == "win32" else ("bin", "python{}.{}".format(*sys.version_info))
    beside = Path(sys.exec_prefix).joinpath(*inside)
    if beside.is_file() and str(beside) != sys.executable:
        yield str(beside)


def _started(python: str) -> subprocess.Popen[bytes]:
    """A process that runs `mjcf_child`, out of reach of this one's terminal."""
    numbers = map(str, (MOST_SECONDS + _STARTING, MOST_MEMORY, MOST_COMPILED))
    folders = [each for each in sys.path if type(each) is str and each and "\0" not in each]
    alone: dict[str, Any] = {"start_new_session": True}
    if sys.platform == "win32":
        alone = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW}
    process = subprocess.Popen(
        [python, "-S", str(Path(mjcf_child.__file__).absolute()), *numbers, *folders],
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        **alone,
    )
    if sys.platform != "win32":
        os.set_blocking(cast(IO[bytes], process.stdin).fileno(), False)
    if sys.platform == "linux":  # a larger pipe takes fewer turns
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):
                fcntl.fcntl(cast(IO[bytes], pipe).fileno(), fcntl.F_SETPIPE_SZ, _PIECE)
    return process


if sys.platform == "win32":

    def _wait(descriptor: int, to_write: bool, until: float) -> None:
        """Wait until a pipe can be read, or has ended. Who writes waits in the system: the child reads at once."""
        import _winapi
        import msvcrt

        while not to_write:
            try:
                if _winapi.PeekNamedPipe(msvcrt.get_osfhandle(descriptor), 0)[0]:
                    return
            except OSError:  # it ended, which reading tells
                return
            if time.monotonic() > until:
                raise TimeoutError
            time.sleep(0.0005)

else:

    def _wait(descriptor: int, to_write: bool, until: float) -> None:
        """Wait until a pipe can be read or written to, or has ended. Signals are heard meanwhile.

        Raises:
            TimeoutError: that time has come.
        """
        poll = select.poll()
        poll.register(descriptor, select.POLLOUT if to_write else select.POLLIN)
        if not poll.poll(max(0.0, 1e3 * (until - time.monotonic()))):
            raise TimeoutError


def _after_fork() -> None:
    """The child of a fork has children of its own: those of its parent answer the parent."""
    for each in tuple(_ALL):
        each.close()
        each.process.returncode = each.process.returncode or 0  # not to be waited for
    _IDLE.clear()


atexit.register(close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
