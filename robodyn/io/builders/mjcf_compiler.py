"""MJCF that MuJoCo compiles in a child process, within limits of time and memory: see `robodyn.io.builders.child`.

What it makes comes back as the bytes of a .mjb.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from robodyn.internals.errors import LoadError, UnavailableError
from robodyn.io.builders import child, mjcf_child

MOST_SECONDS = 30.0
"""How long MuJoCo may take for a file."""
MOST_MEMORY = 4 << 30
"""Bytes that the child process may take, where the system has such a limit."""
MOST_COMPILED = 1 << 30
"""Bytes that a compiled model may have."""
_PROGRAM = child.Program(mjcf_child.__name__, MOST_SECONDS, MOST_MEMORY, MOST_COMPILED)
_MEMORY_WORDS = ("alloc", "memory", "unknown exception")
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
