"""Child processes in which libraries read files that come from anywhere, within limits of time, memory and size.

A small file can keep a library busy for hours, take all memory, crash it, or leave a lock behind after which it never
answers again. A process of its own can be stopped at any time. It is kept for the next request, unless something went
wrong in it, and ends by itself when it has had nothing to do for a while.

`Program` is what the parent uses; `serve` is what a child process does. Both send lists of parts, which are bytes:
first the number of parts, then each part after its length, all numbers of 8 bytes.

There are no locks, which the child of a fork could find taken: `Program.ask` takes a child process that nobody uses, or
starts one, and puts it back.
"""

from __future__ import annotations

import atexit
import faulthandler
import importlib
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
from typing import IO, Any, NoReturn, cast

from robodyn.internals.messages import quoted
from robodyn.internals.package import FOLDER

if sys.platform != "win32":
    import fcntl

_READY, _DONE, _LARGE, _FAILED = b"robodyn", b"done", b"large", b"failed"
"""The first part of what a child process sends: after its start, before a response, and instead of one that is too
large (its size follows) or cannot be given (the error follows). After the last two it ends."""
_STARTING = 60.0
"""Seconds that a child process may take until it is ready."""
_IDLE_SECONDS = 60.0
"""A child process ends when it has had nothing to do for so long."""
_MOST_IDLE = 4
"""Child processes of a program that are kept."""
_MOST_KEPT = 64 << 20
"""After a response of more bytes than this, a process may have too little memory for the next one, and is not kept."""
_MOST_PARTS = 1000
_SIZE, _PIECE = 8, 1 << 20
_START = "import sys; sys.path[:] = sys.argv[5:]; from robodyn.io.builders.child import serve; serve(*sys.argv[1:5])"


class _ClosedError(Exception):
    """The other side of a pipe is gone, or sends what no program does."""


class NotStartedError(Exception):
    """No child process can be started; says why."""


class CrashedError(Exception):
    """The child process ended before it answered, or its answer makes no sense; says how it ended."""


class FailedError(Exception):
    """The program raised an error, which this shows. Its process has ended, as anything may be wrong in it."""


class TooLargeError(Exception):
    """The response is larger than allowed; says how many bytes it has."""


class Program:
    """A program that answers requests in child processes: a module whose `start()` returns the function that makes the
    parts of a response of the parts of a request.

    Args:
        module: the name of the module, which is imported in the child process alone.
        seconds: how long an answer may take.
        memory: bytes that a child process may take, where the system has such a limit.
        largest: bytes that a response may have.
    """

    def __init__(self, module: str, seconds: float, memory: int, largest: int) -> None:
        self.module, self.seconds, self.memory, self.largest = module, seconds, memory, largest
        self.idle: list[_Child] = []
        """Child processes that nobody uses at the moment."""
        _PROGRAMS.append(self)

    def ask(self, request: Sequence[bytes]) -> list[bytes]:
        """The parts of the response to the parts of a request.

        Raises:
            NotStartedError, CrashedError, FailedError, TooLargeError: see there.
            TimeoutError: it takes too long.
        """
        child = self._idle_child()
        if child is not None:
            # A process that was used before may have died or be short of memory: try once more in a new one.
            with suppress(CrashedError, FailedError):
                return self._answer(child, request)
        return self._answer(_Child(self), request)

    def close(self) -> None:
        """End the child processes that are kept."""
        while self.idle:
            self.idle.pop().stop()

    def _idle_child(self) -> _Child | None:
        while True:
            try:
                child = self.idle.pop()
            except IndexError:
                return None
            if child.process.poll() is None:
                return child
            child.stop()

    def _answer(self, child: _Child, request: Sequence[bytes]) -> list[bytes]:
        """What a child process answers. It is kept if all went well, and ended otherwise."""
        keep = False
        try:
            until = time.monotonic() + self.seconds
            child.send(request, until)
            status, *response = child.receive(self.largest, until)
            keep = status == _DONE and sum(map(len, response)) <= _MOST_KEPT
        except _ClosedError:
            child.stop()
            raise CrashedError(_ending(child.process.returncode)) from None
        finally:
            if keep and len(self.idle) < _MOST_IDLE:
                self.idle.append(child)
            else:
                child.stop()
        if status == _DONE:
            return response
        # A size limit was exceeded; a new process would exceed it too, so `ask` does not try again.
        raise (TooLargeError if status == _LARGE else FailedError)(text(b" ".join(response)))


def text(data: bytes) -> str:
    """What a child process says, in one line."""
    return " ".join(data.decode(errors="replace").split())


def _ending(code: int | None) -> str:
    if code is not None and code < 0:
        with suppress(ValueError):
            return f"its process ended by {signal.Signals(-code).name}"
    return f"its process ended with exit code {code}"


class _Child:
    """A child process that is ready for requests.

    Raises:
        NotStartedError: it cannot be started.
    """

    def __init__(self, program: Program) -> None:
        why = "Python's program is not known (sys.executable)"
        for python in _pythons():
            try:
                self.process = _started(python, program)
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                why = f"{quoted(python, 200)}: {error}"
                continue
            _ALL.add(self)
            try:
                status, *error_text = self.receive(_PIECE, time.monotonic() + _STARTING)
                if status == _READY:
                    return
                why = f"{quoted(python, 200)}: {text(b' '.join(error_text))}"
            except (_ClosedError, TimeoutError):
                why = f"{quoted(python, 200)} does not start as Python does"
            except BaseException:
                self.stop()
                raise
            self.stop()
        raise NotStartedError(why)

    def send(self, request: Sequence[bytes], until: float) -> None:
        _send(cast(IO[bytes], self.process.stdin).fileno(), request, until)

    def receive(self, most: int, until: float) -> list[bytes]:
        return _receive(cast(IO[bytes], self.process.stdout).fileno(), most, until)

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


def _pythons() -> Iterator[str]:
    """Programs that may be this Python: that of this process may be another one that has Python inside."""
    if sys.executable and not getattr(sys, "frozen", False):
        yield sys.executable
    inside = ("python.exe",) if sys.platform == "win32" else ("bin", "python{}.{}".format(*sys.version_info))
    beside = Path(sys.exec_prefix).joinpath(*inside)
    if beside.is_file() and str(beside) != sys.executable:
        yield str(beside)


def _started(python: str, program: Program) -> subprocess.Popen[bytes]:
    """A process that runs `serve`, out of reach of Ctrl-C in this one's terminal."""
    settings = map(str, (program.module, program.seconds + _STARTING, program.memory, program.largest))
    # Modules are found where this process finds them; -S leaves out what else the site adds, such as the hook by which
    # an editable install is found, so the folder of this package is named, last.
    folders = [each for each in sys.path if type(each) is str and each and "\0" not in each]
    folders.append(str(FOLDER.resolve().parent))
    alone: dict[str, Any] = {"start_new_session": True}
    if sys.platform == "win32":
        alone = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW}
    process = subprocess.Popen(
        [python, "-S", "-c", _START, *settings, *folders],
        bufsize=0,  # buffers have locks, which the child of a fork could not take
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


def serve(module: str, seconds: str, memory: str, largest: str) -> NoReturn:
    """Answer requests on standard input until there are no more. This is all that a child process does.

    Args:
        module: as of `Program`.
        seconds: how long a request may take. The parent stops what takes longer; this is for a parent that has gone.
        memory: as of `Program`.
        largest: as of `Program`.
    """
    requests, responses, nowhere = os.dup(0), os.dup(1), os.open(os.devnull, os.O_RDWR)
    for standard in range(3):  # what libraries print is no response
        os.dup2(nowhere, standard)
    os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"
    try:
        answer = importlib.import_module(module).start()
        _limit(int(memory))
        _send(responses, [_READY])
        with Path(os.devnull).open("wb") as trace:
            while True:
                faulthandler.dump_traceback_later(_IDLE_SECONDS, exit=True, file=trace)
                request = _receive(requests)
                faulthandler.dump_traceback_later(float(seconds), exit=True, file=trace)
                response = answer(request)
                size = sum(map(len, response))
                if size > int(largest):
                    _send(responses, [_LARGE, str(size).encode()])
                    break
                _send(responses, [_DONE, *response])
                del request, response
    except _ClosedError:  # the parent is gone
        pass
    except BaseException as error:  # the library may have left anything behind
        _send(responses, [_FAILED, f"{error} ({type(error).__name__})".encode(errors="replace")])
    os._exit(0)


def _limit(memory: int) -> None:
    """Let memory end, where the system has such limits, and leave no core files of it."""
    try:
        import resource
    except ImportError:
        return
    # RLIMIT_AS also counts addresses that are reserved and never used, 64 MiB and more for each thread. On Linux
    # RLIMIT_DATA counts only memory that can be written to.
    for name, most in (("RLIMIT_DATA" if sys.platform == "linux" else "RLIMIT_AS", memory), ("RLIMIT_CORE", 0)):
        try:
            which = getattr(resource, name)
            hard = resource.getrlimit(which)[1]
            resource.setrlimit(which, (most if hard < 0 else min(most, hard), hard))
        except (AttributeError, ValueError, OSError):
            pass


def _send(descriptor: int, parts: Sequence[Any], until: float | None = None) -> None:
    """Send parts, which are bytes or the like.

    Raises:
        _ClosedError: nobody reads any more.
        TimeoutError: that time has come.
    """
    pieces = [len(parts).to_bytes(_SIZE, "little")]
    for part in parts:
        pieces += [len(part).to_bytes(_SIZE, "little"), part]
    for piece in pieces:
        left = memoryview(piece)
        while left.nbytes:
            _wait(descriptor, True, until)
            try:
                left = left[os.write(descriptor, left[:_PIECE]) :]
            except BlockingIOError:
                continue
            except OSError:
                raise _ClosedError from None


def _receive(descriptor: int, most: int | None = None, until: float | None = None) -> list[bytes]:
    """Parts that were sent, one at least, of no more than `most` bytes.

    Raises:
        _ClosedError: nobody sends any more, or what no program does.
        TimeoutError: that time has come.
    """

    def exactly(size: int) -> bytes:
        pieces = []
        while size:
            _wait(descriptor, False, until)
            piece = os.read(descriptor, min(size, _PIECE))
            if not piece:
                raise _ClosedError
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)

    def number() -> int:
        return int.from_bytes(exactly(_SIZE), "little")

    count, parts, size = number(), list[bytes](), 0
    if count == 0 or (most is not None and count > _MOST_PARTS):
        raise _ClosedError
    for _ in range(count):
        length = number()
        size += length
        if most is not None and size > most + _PIECE:
            raise _ClosedError
        parts.append(exactly(length))
    return parts


def _wait(descriptor: int, to_write: bool, until: float | None) -> None:
    """Wait until a pipe can be read or written to, or has ended. Handlers of signals run meanwhile.

    Raises:
        TimeoutError: that time has come.
    """
    if until is None:  # reading and writing wait
        return
    if sys.platform != "win32":
        poll = select.poll()
        poll.register(descriptor, select.POLLOUT if to_write else select.POLLIN)
        if not poll.poll(max(0.0, 1e3 * (until - time.monotonic()))):
            raise TimeoutError
        return
    import _winapi
    import msvcrt

    while not to_write:  # who writes waits in the system: the child process reads at once
        try:
            if _winapi.PeekNamedPipe(msvcrt.get_osfhandle(descriptor), 0)[0]:
                return
        except OSError:  # it ended, which reading tells
            return
        if time.monotonic() > until:
            raise TimeoutError
        time.sleep(0.0005)


_PROGRAMS: list[Program] = []
_ALL: weakref.WeakSet[_Child] = weakref.WeakSet()


@atexit.register
def _close() -> None:
    for program in _PROGRAMS:
        program.close()


def _after_fork() -> None:
    """The child of a fork has child processes of its own: those of its parent answer the parent."""
    for each in tuple(_ALL):
        each.close()
        each.process.returncode = each.process.returncode or 0  # not to be waited for
    for program in _PROGRAMS:
        program.idle.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
