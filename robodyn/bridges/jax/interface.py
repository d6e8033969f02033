"""XLA's foreign function interface, which calls handlers in machine code: what those of every platform share.

The interface is a binary one in C (xla/ffi/api/c_api.h of jaxlib, version 0.x): a handler gets a frame that holds
buffers of arguments and results, and returns null or an error. The same frame, with an extension of type 1, asks at
registration which version the handler speaks. Versions 0.x have added fields at the ends of structs alone, so the
answer is the version that jaxlib has. What differs between two queries is in a context, so that a handler is
compiled once and kept on disk; every query has a copy of it loaded, with its context's address in `context`.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from robodyn.compile.loops.language import NULL, Address, Array, Flag, Integer, Static, Word, call, local, routine
from robodyn.internals import forks

WORD, INTEGER, POINTER = ctypes.c_int64, ctypes.c_int32, ctypes.c_void_p
DTYPE = {4: 11, 8: 12}
"""XLA's numbers for float32 and float64, by their size."""
INVALID_ARGUMENT, RESOURCE_EXHAUSTED, INTERNAL = 3, 8, 13
"""XLA's numbers for errors."""
WRONG = ctypes.create_string_buffer(b"robodyn: the buffers are not those of the query")

# Structs of c_api.h. Each begins with its size and an extension.

_HEAD = (("size", WORD), ("extension", POINTER))


class Buffer(ctypes.Structure):
    """XLA_FFI_Buffer."""

    _fields_ = (*_HEAD, ("dtype", INTEGER), ("data", POINTER), ("rank", WORD), ("dims", ctypes.POINTER(WORD)))


class Buffers(ctypes.Structure):
    """XLA_FFI_Args and XLA_FFI_Rets."""

    _fields_ = (*_HEAD, ("count", WORD), ("types", POINTER), ("buffers", ctypes.POINTER(ctypes.POINTER(Buffer))))


class Version(ctypes.Structure):
    """XLA_FFI_Api_Version."""

    _fields_ = (*_HEAD, ("major", INTEGER), ("minor", INTEGER))


class Metadata(ctypes.Structure):
    """XLA_FFI_Metadata."""

    _fields_ = (("size", WORD), ("version", Version), ("traits", INTEGER))


class Extension(ctypes.Structure):
    """XLA_FFI_Metadata_Extension."""

    _fields_ = (("size", WORD), ("type", INTEGER), ("next", POINTER), ("metadata", ctypes.POINTER(Metadata)))


class Api(ctypes.Structure):
    """XLA_FFI_Api."""

    _fields_ = (
        *_HEAD,
        ("version", Version),
        ("internal", POINTER),
        ("create_error", POINTER),
        ("error_message", POINTER),
        ("destroy_error", POINTER),
        ("register_handler", POINTER),
        ("stream_of", POINTER),
    )


class Failure(ctypes.Structure):
    """XLA_FFI_Error_Create_Args."""

    _fields_ = (*_HEAD, ("message", POINTER), ("code", INTEGER))


class Frame(ctypes.Structure):
    """XLA_FFI_CallFrame, as far as the results."""

    _fields_ = (
        ("size", WORD),
        ("extension", ctypes.POINTER(Extension)),
        ("api", ctypes.POINTER(Api)),
        ("context", POINTER),
        ("stage", INTEGER),
        ("arguments", Buffers),
        ("results", Buffers),
    )


_FAILURE_BYTES = Failure.code.offset + Failure.code.size  # the padding does not count
_METADATA = 1


@routine
def failure(frame: Array[Frame], message: Address, code: Static[int]) -> Address:
    """An error that XLA makes of a message."""
    given = local(Failure, 1)
    given.size, given.extension = _FAILURE_BYTES, NULL
    given.message, given.code = message, code
    return call(Address, frame.api.create_error, given)


def is_described(frame: Array[Frame], minor: Integer, traits: Static[int]) -> Flag:
    """Whether the frame asks for version and traits, which it is told."""
    extension = frame.extension
    if extension == NULL or extension.type != _METADATA:
        return False
    metadata = extension.metadata
    metadata.version.major, metadata.version.minor = 0, minor
    metadata.traits = traits
    return True


def has_buffers(frame: Array[Frame], inputs: Word, outputs: Word) -> Flag:
    """Whether there are as many inputs and outputs."""
    return bool(frame.arguments.count == inputs and frame.results.count == outputs)


def buffer_of(frame: Array[Frame], number: Word, inputs: Word) -> Array[Buffer]:
    """A buffer, counted through inputs and then outputs."""
    arguments: Array[Array[Buffer]] = frame.arguments.buffers
    results: Array[Array[Buffer]] = frame.results.buffers
    if number < inputs:
        return arguments[number]
    return results[number - inputs]


@routine
def rows_of(buffer: Array[Buffer], dtype: Integer, columns: Word) -> Word:
    """The rows of a buffer of this dtype and of so many columns, -1 for any other."""
    if buffer.dtype != dtype or buffer.rank != 2:
        return -1
    dims: Array[Word] = buffer.dims
    if dims[1] != columns:
        return -1
    return dims[0]


@cache
def interface_minor() -> int:
    """The y of the version 0.y of the interface that jaxlib has.

    Raises:
        ValueError: it has another version, or does not say.
    """
    import jax

    header = Path(jax.ffi.include_dir()) / "xla" / "ffi" / "api" / "c_api.h"
    text = header.read_text(encoding="utf-8") if header.is_file() else ""
    found = {name: int(n) for name, n in re.findall(r"^#define XLA_FFI_API_(MAJOR|MINOR) (\d+)$", text, re.MULTILINE)}
    if found.get("MAJOR") != 0 or "MINOR" not in found:
        raise ValueError(f"its interface has the version {found or 'unknown'}; wanted 0.x")
    return found["MINOR"]


class Handler(Protocol):
    """A function in machine code; it and all that it points to must live as long as XLA may call it."""

    address: int


class Handlers:
    """The handlers that XLA knows on one of its platforms, by the names of their targets. It may call them for as long
    as the process runs."""

    def __init__(self, platform: str) -> None:
        self.platform = platform
        self.kept: dict[str, Any] = {}
        self._lock = forks.lock()

    def register(self, name: str, make: Callable[[], Handler]) -> str:
        """Make a target known to XLA, once in a process; returns its name.

        Raises:
            ValueError, RuntimeError: XLA does not take it.
        """
        import jax

        with self._lock:
            if name not in self.kept:
                handler = make()
                jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(handler.address), platform=self.platform)
                self.kept[name] = handler
        return name


def address_of(function: Any) -> int:
    """Of a function of ctypes."""
    return ctypes.cast(function, POINTER).value or 0


def fill(code: Any, context: ctypes.Structure) -> None:
    """Give a loaded handler its context."""
    POINTER.from_address(code.address("context")).value = ctypes.addressof(context)
