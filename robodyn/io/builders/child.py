"""Child processes in which libraries read untrusted files, within limits of time, memory and size.

A small file can keep a library busy for hours, use all memory, crash the library, or leave a lock that blocks it
forever. A child process can be stopped at any time. It is kept for the next request unless an error occurred in it. An
idle child process ends by itself after a while.

The parent process uses `Program`; the child process runs `serve`. They exchange messages. A message is a list of parts,
which are bytes: first the number of parts, then each part after its length. Numbers have 8 bytes.

There are no locks, because a fork could copy a lock that is held. `Program.ask` takes an idle child process from a
list, or starts one, and puts it back.
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
"""The first part of a child process's message. `_READY`: it has started; `_DONE`: a response follows; `_LARGE`: the
response is too large, and its size follows; `_FAILED`: an error follows. The process ends after the last two."""
_STARTING = 60.0
"""Seconds that a child process may take to start."""
_IDLE_SECONDS = 60.0
"""Seconds without a request after which a child process ends."""
_MOST_IDLE = 4
"""Largest number of idle child processes of a program."""
_MOST_KEPT = 64 << 20
"""A process is not kept after a response of more bytes than this: its memory may not suffice for the next one."""
_MOST_PARTS = 1000
_SIZE, _PIECE = 8, 1 << 20
_START = "import sys; sys.path[:] = sys.argv[5:]; from robodyn.io.builders.child import serve; serve(*sys.argv[1:5])"


class _ClosedError(Exception):
    """The other side of a pipe is closed, or sends an invalid message."""


class NotStartedError(Exception):
    """No child process can be started. The message gives the reason."""


class CrashedError(Exception):
    """The child process ended before its response, or sent an invalid one. The message says how it ended."""


class FailedError(Exception):
    """The program raised an error, which is the message. Its process has ended, because its state may be corrupt."""


class TooLargeError(Exception):
    """The response is too large. The message is its size in bytes."""


class Program:
    """A program that answers requests in child processes.

    It is a module whose `start()` returns a function from the parts of a request to the parts of a response.

    Args:
        module: name of the module, which only the child process imports.
        seconds: time limit of a response.
        memory: memory limit of a child process in bytes, on systems with such limits.
        largest: size limit of a response in bytes.
    """

    def __init__(self, module: str, seconds: float, memory: int, largest: int) -> None:
        self.module, self.seconds, self.memory, self.largest = module, seconds, memory, largest
        self.idle: list[_Child] = []
        """Idle child processes."""
        _PROGRAMS.append(self)

    def ask(self, request: Sequence[bytes]) -> list[bytes]:
        """The parts of the response to the parts of a request.

        Raises:
            NotStartedError, CrashedError, FailedError, TooLargeError: as documented there.
            TimeoutError: the response takes too long.
        """
        child = self._idle_child()
        if child is not None:
            # A process that was used before may have died or be short of memory: try once more in a new one.
            with suppress(CrashedError, FailedError):
                return self._answer(child, request)
        return self._answer(_Child(self), request)

    def close(self) -> None:
        """End all idle child processes."""
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
        """A child process's response. The process is kept if it succeeds, and stopped otherwise."""
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
        # `ask` does not retry after a TooLargeError, because a new process would exceed the limit, too.
        raise (TooLargeError if status == _LARGE else FailedError)(text(b" ".join(response)))


def text(data: bytes) -> str:
    """A child process's message as one line of text."""
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
        """Kill the process, wait for its end, and close its pipes."""
        with suppress(OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait(_STARTING)
        self.close()

    def close(self) -> None:
        """Close the parent's ends of the pipes. The process ends when all copies of them are closed."""
        for pipe in (self.process.stdin, self.process.stdout):
            with suppress(OSError):
                cast(IO[bytes], pipe).close()


def _pythons() -> Iterator[str]:
    """Candidates for the path of Python's interpreter: this process may be another program that embeds Python."""
    if sys.executable and not getattr(sys, "frozen", False):
        yield sys.executable
    relative_path = ("python.exe",) if sys.platform == "win32" else ("bin", "python{}.{}".format(*sys.version_info))
    python = Path(sys.exec_prefix).joinpath(*relative_path)
    if python.is_file() and str(python) != sys.executable:
        yield str(python)


def _started(python: str, program: Program) -> subprocess.Popen[bytes]:
    """Starts a process that runs `serve`. Ctrl-C in the parent's terminal does not reach it."""
    settings = map(str, (program.module, program.seconds + _STARTING, program.memory, program.largest))
    # The child searches modules in the folders of this process. -S skips the `site` module and with it the import hooks
    # of editable installs, so the folder of this package is added at the end.
    folders = [each for each in sys.path if type(each) is str and each and "\0" not in each]
    folders.append(str(FOLDER.resolve().parent))
    group_options: dict[str, Any] = {"start_new_session": True}
    if sys.platform == "win32":
        group_options = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW}
    process = subprocess.Popen(
        [python, "-S", "-c", _START, *settings, *folders],
        bufsize=0,  # buffers have locks, which a fork could copy while they are held
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        **group_options,
    )
    if sys.platform != "win32":
        os.set_blocking(cast(IO[bytes], process.stdin).fileno(), False)
    if sys.platform == "linux":  # a larger pipe needs fewer system calls
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):
                fcntl.fcntl(cast(IO[bytes], pipe).fileno(), fcntl.F_SETPIPE_SZ, _PIECE)
    return process


def serve(module: str, seconds: str, memory: str, largest: str) -> NoReturn:
    """The main function of a child process: answers requests on standard input until it is closed.

    Args:
        module: as in `Program`.
        seconds: time limit of a request. It matters only if the parent has ended, because the parent's limit is lower.
        memory: as in `Program`.
        largest: as in `Program`.
    """
    requests, responses, nowhere = os.dup(0), os.dup(1), os.open(os.devnull, os.O_RDWR)
    for standard in range(3):  # output that libraries print must not mix with responses
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
    except BaseException as error:  # the library's state may be corrupt
        _send(responses, [_FAILED, f"{error} ({type(error).__name__})".encode(errors="replace")])
    os._exit(0)


def _limit(memory: int) -> None:
    """Set the memory limit on systems that have one, and disable core files."""
    try:
        import resource
    except ImportError:
        return
    # RLIMIT_AS also counts address space that is reserved and never used, 64 MiB and more for each thread. On Linux
    # RLIMIT_DATA counts only writable memory.
    for name, most in (("RLIMIT_DATA" if sys.platform == "linux" else "RLIMIT_AS", memory), ("RLIMIT_CORE", 0)):
        try:
            which = getattr(resource, name)
            hard = resource.getrlimit(which)[1]
            resource.setrlimit(which, (most if hard < 0 else min(most, hard), hard))
        except (AttributeError, ValueError, OSError):
            pass


def _send(descriptor: int, parts: Sequence[Any], until: float | None = None) -> None:
    """Send a message of several parts, which are bytes-like objects.

    Raises:
        _ClosedError: the other side of the pipe is closed.
        TimeoutError: the time `until` has passed.
    """
    pieces = [len(parts).to_bytes(_SIZE, "little")]
    for part in parts:
        pieces += [len(part).to_bytes(_SIZE, "little"), part]
    for piece in pieces:
        remaining = memoryview(piece)
        while remaining.nbytes:
            _wait(descriptor, True, until)
            try:
                remaining = remaining[os.write(descriptor, remaining[:_PIECE]) :]
            except BlockingIOError:
                continue
            except OSError:
                raise _ClosedError from None


def _receive(descriptor: int, most: int | None = None, until: float | None = None) -> list[bytes]:
    """Receive a message of at least one part and at most `most` bytes.

    Raises:
        _ClosedError: the other side of the pipe is closed, or the message is invalid.
        TimeoutError: the time `until` has passed.
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
    """Wait until a pipe can be read or written to, or is closed. Signal handlers can run meanwhile.

    Raises:
        TimeoutError: the time `until` has passed.
    """
    if until is None:  # reading and writing block
        return
    if sys.platform != "win32":
        poll = select.poll()
        poll.register(descriptor, select.POLLOUT if to_write else select.POLLIN)
        if not poll.poll(max(0.0, 1e3 * (until - time.monotonic()))):
            raise TimeoutError
        return
    import _winapi
    import msvcrt

    while not to_write:  # writing blocks, but not for long: the child process reads at once
        try:
            if _winapi.PeekNamedPipe(msvcrt.get_osfhandle(descriptor), 0)[0]:
                return
        except OSError:  # the pipe is closed, which the next read reports
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
    """Detaches a forked process from its parent's child processes. It starts its own."""
    for each in tuple(_ALL):
        each.close()
        each.process.returncode = each.process.returncode or 0  # so that Popen does not wait for it
    for program in _PROGRAMS:
        program.idle.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
