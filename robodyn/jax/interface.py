"""XLA's foreign function interface, which calls handlers in machine code: what those of every platform share.

The interface is a binary one in C (xla/ffi/api/c_api.h of jaxlib, version 0.x): a handler gets a frame that holds
buffers of arguments and results, and returns null or an error. The same frame, with an extension of type 1, asks at
registration which version the handler speaks. Versions 0.x have added fields at the ends of structs alone, so the
answer is the version that jaxlib has. What differs between two queries is in a context, so that a handler is
compiled once and kept on disk; every query has a copy of it loaded, with its context's address in `@context`.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from robodyn import forks

WORD, POINTER = ctypes.c_int64, ctypes.c_void_p
DTYPE = {4: 11, 8: 12}
"""XLA's numbers for float32 and float64, by their size."""

# Structs of c_api.h. %Arguments stands for XLA_FFI_Args and XLA_FFI_Rets, which are alike.
COMMON = """
%Arguments = type { i64, ptr, i64, ptr, ptr }
%Frame = type { i64, ptr, ptr, ptr, i32, %Arguments, %Arguments, %Arguments, ptr }
%Buffer = type { i64, ptr, i32, ptr, i64, ptr }
%Version = type { i64, ptr, i32, i32 }
%Api = type { i64, ptr, %Version, ptr, ptr, ptr, ptr, ptr, ptr }
%Extension = type { i64, i32, ptr, ptr }
%Metadata = type { i64, %Version, i32 }
%Failure = type { i64, ptr, ptr, i32 }

@context = global ptr null

define internal ptr @failure(ptr %frame, ptr %message, i32 %code) {
  %args = alloca %Failure, align 8
  %message.at = getelementptr %Failure, ptr %args, i64 0, i32 2
  %code.at = getelementptr %Failure, ptr %args, i64 0, i32 3
  %extension.at = getelementptr %Failure, ptr %args, i64 0, i32 1
  store i64 28, ptr %args, align 8
  store ptr null, ptr %extension.at, align 8
  store ptr %message, ptr %message.at, align 8
  store i32 %code, ptr %code.at, align 4
  %api.at = getelementptr %Frame, ptr %frame, i64 0, i32 2
  %api = load ptr, ptr %api.at, align 8
  %create.at = getelementptr %Api, ptr %api, i64 0, i32 4
  %create = load ptr, ptr %create.at, align 8
  %error = call ptr %create(ptr %args)
  ret ptr %error
}

; Whether the frame asks for version and traits, which it is told.
define internal i1 @described(ptr %frame, i64 %minor64, i32 %traits) {
start:
  %extension.at = getelementptr %Frame, ptr %frame, i64 0, i32 1
  %extension = load ptr, ptr %extension.at, align 8
  %plain = icmp eq ptr %extension, null
  br i1 %plain, label %no, label %extended
extended:
  %type.at = getelementptr %Extension, ptr %extension, i64 0, i32 1
  %type = load i32, ptr %type.at, align 4
  %asks = icmp eq i32 %type, 1
  br i1 %asks, label %describe, label %no
describe:
  %minor = trunc i64 %minor64 to i32
  %metadata.at = getelementptr %Extension, ptr %extension, i64 0, i32 3
  %metadata = load ptr, ptr %metadata.at, align 8
  %major.told = getelementptr %Metadata, ptr %metadata, i64 0, i32 1, i32 2
  %minor.told = getelementptr %Metadata, ptr %metadata, i64 0, i32 1, i32 3
  %traits.told = getelementptr %Metadata, ptr %metadata, i64 0, i32 2
  store i32 0, ptr %major.told, align 4
  store i32 %minor, ptr %minor.told, align 4
  store i32 %traits, ptr %traits.told, align 4
  ret i1 true
no:
  ret i1 false
}

; Whether there are n inputs and outputs.
define internal i1 @counts(ptr %frame, i64 %inputs, i64 %outputs) {
  %given.at = getelementptr %Frame, ptr %frame, i64 0, i32 5, i32 2
  %wanted.at = getelementptr %Frame, ptr %frame, i64 0, i32 6, i32 2
  %given = load i64, ptr %given.at, align 8
  %wanted = load i64, ptr %wanted.at, align 8
  %inputs.right = icmp eq i64 %given, %inputs
  %outputs.right = icmp eq i64 %wanted, %outputs
  %right = and i1 %inputs.right, %outputs.right
  ret i1 %right
}

; A buffer, counted through inputs and then outputs.
define internal ptr @buffer(ptr %frame, i64 %i, i64 %inputs) {
  %given.at = getelementptr %Frame, ptr %frame, i64 0, i32 5, i32 4
  %wanted.at = getelementptr %Frame, ptr %frame, i64 0, i32 6, i32 4
  %is.input = icmp slt i64 %i, %inputs
  %i.output = sub i64 %i, %inputs
  %place = select i1 %is.input, i64 %i, i64 %i.output
  %buffers.at = select i1 %is.input, ptr %given.at, ptr %wanted.at
  %buffers = load ptr, ptr %buffers.at, align 8
  %buffer.at = getelementptr ptr, ptr %buffers, i64 %place
  %buffer = load ptr, ptr %buffer.at, align 8
  ret ptr %buffer
}

; The rows of a buffer of this dtype and of n columns, -1 for any other.
define internal i64 @rows(ptr %buffer, i32 %dtype, i64 %columns) {
start:
  %dtype.at = getelementptr %Buffer, ptr %buffer, i64 0, i32 2
  %rank.at = getelementptr %Buffer, ptr %buffer, i64 0, i32 4
  %found = load i32, ptr %dtype.at, align 4
  %rank = load i64, ptr %rank.at, align 8
  %dtype.right = icmp eq i32 %found, %dtype
  %rank.right = icmp eq i64 %rank, 2
  %known = and i1 %dtype.right, %rank.right
  br i1 %known, label %shape, label %wrong
shape:
  %dims.at = getelementptr %Buffer, ptr %buffer, i64 0, i32 5
  %dims = load ptr, ptr %dims.at, align 8
  %dims1 = getelementptr i64, ptr %dims, i64 1
  %rows = load i64, ptr %dims, align 8
  %width = load i64, ptr %dims1, align 8
  %right = icmp eq i64 %width, %columns
  br i1 %right, label %done, label %wrong
done:
  ret i64 %rows
wrong:
  ret i64 -1
}

; So many words in another place.
define internal void @copy(ptr %from, ptr %to, i64 %count) {
start:
  br label %next
next:
  %k = phi i64 [ 0, %start ], [ %k.next, %one ]
  %left = icmp slt i64 %k, %count
  br i1 %left, label %one, label %done
one:
  %word.at = getelementptr i64, ptr %from, i64 %k
  %word = load i64, ptr %word.at, align 8
  %copy.at = getelementptr i64, ptr %to, i64 %k
  store i64 %word, ptr %copy.at, align 8
  %k.next = add i64 %k, 1
  br label %next
done:
  ret void
}
"""


_TYPES = {WORD: "i64", POINTER: "ptr"}


def declared(context: type[ctypes.Structure]) -> str:
    """The type %Context of a module, for a struct of words and pointers."""
    return f"%Context = type {{ {', '.join(_TYPES[field[1]] for field in context._fields_)} }}"


def fields(context: type[ctypes.Structure]) -> str:
    """Statements that load every field of the module's context under its name."""
    lines = ["  %context = load ptr, ptr @context, align 8"]
    for number, (name, kind, *_) in enumerate(context._fields_):
        lines.append(f"  %{name}.field = getelementptr %Context, ptr %context, i64 0, i32 {number}")
        lines.append(f"  %{name} = load {_TYPES[kind]}, ptr %{name}.field, align 8")
    return "\n".join(lines)


def words(name: str, text: str) -> str:
    """A constant of a module that holds a text as C has them."""
    return f'@{name} = private constant [{len(text) + 1} x i8] c"{text}\\00"'


WRONG = words("wrong", "robodyn: the buffers are not those of the query")


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


def address(function: Any) -> int:
    """Of a function of ctypes."""
    return ctypes.cast(function, POINTER).value or 0


def fill(code: Any, context: ctypes.Structure) -> None:
    """Give a loaded handler its context."""
    POINTER.from_address(code.address("context")).value = ctypes.addressof(context)
