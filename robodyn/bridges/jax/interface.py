"""Parts of XLA's foreign function interface (FFI) that handlers of all platforms share.

XLA calls handlers in machine code through a C interface (xla/ffi/api/c_api.h of jaxlib, version 0.x). A handler gets a
call frame with buffers of arguments and results, and returns null or an error. At registration XLA passes a frame with
an extension of type 1, which asks for the handler's version. Versions 0.x only append fields to structs, so the answer
is jaxlib's own version. Data of a query are in a context struct, so a handler is compiled once and cached on disk. Each
query loads its own copy of the handler, whose variable `context` holds the address of its context.
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
"""XLA's codes of float32 and float64, by size in bytes."""
INVALID_ARGUMENT, RESOURCE_EXHAUSTED, INTERNAL = 3, 8, 13
"""XLA's error codes."""
WRONG = ctypes.create_string_buffer(b"robodyn: the buffers are not those of the query")

# Structs of c_api.h. Each starts with its size and a pointer to an extension.

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
    """XLA_FFI_CallFrame, up to the results."""

    _fields_ = (
        ("size", WORD),
        ("extension", ctypes.POINTER(Extension)),
        ("api", ctypes.POINTER(Api)),
        ("context", POINTER),
        ("stage", INTEGER),
        ("arguments", Buffers),
        ("results", Buffers),
    )


_FAILURE_BYTES = Failure.code.offset + Failure.code.size  # without padding at the end
_METADATA = 1


@routine
def failure(frame: Array[Frame], message: Address, code: Static[int]) -> Address:
    """Create an XLA error with a message."""
    given = local(Failure, 1)
    given.size, given.extension = _FAILURE_BYTES, NULL
    given.message, given.code = message, code
    return call(Address, frame.api.create_error, given)


def is_described(frame: Array[Frame], minor: Integer, traits: Static[int]) -> Flag:
    """If the frame asks for metadata, fill in version and traits. Returns whether it does."""
    extension = frame.extension
    if extension == NULL or extension.type != _METADATA:
        return False
    metadata = extension.metadata
    metadata.version.major, metadata.version.minor = 0, minor
    metadata.traits = traits
    return True


def has_buffers(frame: Array[Frame], inputs: Word, outputs: Word) -> Flag:
    """Whether the frame has these numbers of inputs and outputs."""
    return bool(frame.arguments.count == inputs and frame.results.count == outputs)


def buffer_of(frame: Array[Frame], number: Word, inputs: Word) -> Array[Buffer]:
    """Buffer by number: inputs first, then outputs."""
    arguments: Array[Array[Buffer]] = frame.arguments.buffers
    results: Array[Array[Buffer]] = frame.results.buffers
    if number < inputs:
        return arguments[number]
    return results[number - inputs]


@routine
def rows_of(buffer: Array[Buffer], dtype: Integer, columns: Word) -> Word:
    """The number of rows of a matrix buffer; -1 if its dtype or number of columns differs."""
    if buffer.dtype != dtype or buffer.rank != 2:
        return -1
    dims: Array[Word] = buffer.dims
    if dims[1] != columns:
        return -1
    return dims[0]


@cache
def interface_minor() -> int:
    """The minor version y of jaxlib's interface version 0.y.

    Raises:
        ValueError: the major version is not 0, or the version is unknown.
    """
    import jax

    header = Path(jax.ffi.include_dir()) / "xla" / "ffi" / "api" / "c_api.h"
    text = header.read_text(encoding="utf-8") if header.is_file() else ""
    versions = {
        name: int(n) for name, n in re.findall(r"^#define XLA_FFI_API_(MAJOR|MINOR) (\d+)$", text, re.MULTILINE)
    }
    if versions.get("MAJOR") != 0 or "MINOR" not in versions:
        raise ValueError(f"its interface has the version {versions or 'unknown'}; wanted 0.x")
    return versions["MINOR"]


class Handler(Protocol):
    """A function in machine code. It and everything that it points to must live as long as XLA may call it."""

    address: int


class Handlers:
    """The handlers registered with XLA on one platform, by target name. XLA may call them until the process ends, so
    they are never freed."""

    def __init__(self, platform: str) -> None:
        self.platform = platform
        self.kept: dict[str, Any] = {}
        self._lock = forks.lock()

    def register(self, name: str, make: Callable[[], Handler]) -> str:
        """Register a target with XLA, once per process; returns its name.

        Raises:
            ValueError, RuntimeError: XLA refuses it.
        """
        import jax

        with self._lock:
            if name not in self.kept:
                handler = make()
                jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(handler.address), platform=self.platform)
                self.kept[name] = handler
        return name


def address_of(function: Any) -> int:
    """The address of a ctypes function."""
    return ctypes.cast(function, POINTER).value or 0


def fill(code: Any, context: ctypes.Structure) -> None:
    """Store the address of the context in a loaded handler."""
    POINTER.from_address(code.address("context")).value = ctypes.addressof(context)
