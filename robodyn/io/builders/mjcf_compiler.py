"""Compiles MJCF with MuJoCo in a child process, within limits of time and memory (`robodyn.io.builders.child`).

The child process returns the compiled model as the bytes of a .mjb.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from robodyn.internals.errors import LoadError, UnavailableError
from robodyn.io.builders import child, mjcf_child

MOST_SECONDS = 30.0
"""Time limit in seconds for one file."""
MOST_MEMORY = 4 << 30
"""Memory limit of the child process in bytes, on systems with such limits."""
MOST_COMPILED = 1 << 30
"""Size limit of a compiled model in bytes."""
_PROGRAM = child.Program(mjcf_child.__name__, MOST_SECONDS, MOST_MEMORY, MOST_COMPILED)
_MEMORY_WORDS = ("alloc", "memory", "unknown exception")
"""Words in MuJoCo's messages about a lack of memory."""


class Compiled(NamedTuple):
    """The bytes of a .mjb, and MuJoCo's warnings."""

    data: bytes
    warnings: tuple[str, ...]


def compiled(text: str, files: dict[str, bytes]) -> Compiled:
    """Compiles MJCF. `files`: contents of all files that it refers to, by name.

    Raises:
        LoadError: MuJoCo refuses the text, crashes, takes too much time or memory, or its result is too large.
        UnavailableError: no child process can be started.
    """
    named = (part for name, data in files.items() for part in (name.encode(), data))
    return _compiled([mjcf_child.XML, text.encode(errors="replace"), *named])


def checked_binary(data: bytes) -> Compiled:
    """Loads the bytes of a .mjb in MuJoCo, and returns them as MuJoCo saves them. Raises the errors of `compiled`."""
    return _compiled([mjcf_child.BINARY, data])


def _compiled(request: Sequence[bytes]) -> Compiled:
    yourself = "compile it yourself and give the model: load_mjcf(mujoco.MjModel.from_xml_path(path))"
    trusted = f"; if you trust it, {yourself}"
    memory = f"{_PROGRAM.memory >> 20} MiB"
    try:
        kind, data, *warnings = _PROGRAM.ask(request)
    except child.NotStartedError as error:
        why = f"MJCF is compiled in a process of its own, which cannot be started here: {error}"
        raise UnavailableError(f"{why}; {yourself}") from None
    except child.CrashedError as error:
        why = f"MuJoCo crashes as it compiles it: {error}, perhaps for want of memory, of which it is given {memory}"
        raise LoadError(why + trusted) from None
    except child.FailedError as error:
        why = f"MuJoCo does not compile it: {error}"
        if any(word in why.lower() for word in _MEMORY_WORDS):
            why += f", as where it takes more than {memory} of memory, the most that it is given{trusted}"
        raise LoadError(why) from None
    except child.TooLargeError as error:
        why = f"MuJoCo makes {error} bytes of it; at most {_PROGRAM.largest} are taken"
        raise LoadError(why + trusted) from None
    except TimeoutError:
        why = f"MuJoCo takes more than {_PROGRAM.seconds:g} s to compile it, the most that is waited"
        raise LoadError(why + trusted) from None
    if kind == mjcf_child.REFUSED:
        raise LoadError(f"MuJoCo does not compile it: {child.text(data)}")
    return Compiled(data, tuple(map(child.text, warnings)))
