"""What turns a straight-line program into machine code: a code generator of our own, or LLVM's.

Ours is for x86-64 processors with AVX2 or AVX-512 under Linux, where a process may execute what it wrote: it takes a
tenth of the time, and gives the same bits. LLVM serves all others, all code with loops, and a few things around ours.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import ClassVar, Protocol

from robodyn.compile.cache import ObjectCache
from robodyn.compile.gc_pause import no_collection
from robodyn.compile.keys import Linked, begin, compiled
from robodyn.compile.llvm.jit import OPT, Code, assembly
from robodyn.compile.llvm.target import Target
from robodyn.compile.tracing.program import Program
from robodyn.compile.x86.driver import driver_module
from robodyn.compile.x86.image import Image
from robodyn.compile.x86.memory import LoadedImage, executable
from robodyn.compile.x86.program import Assembled, assembled
from robodyn.compile.x86.row_writer import LINE, MAX_ARRAYS, Layout
from robodyn.engines.cpu.request import Request
from robodyn.engines.cpu.sparse_results import unpacked_program
from robodyn.internals.errors import UnavailableError
from robodyn.internals.tuning import MAX_LINED_BYTES

BACKEND_VARIABLE = "ROBODYN_CPU_BACKEND"
"""Environment variable that forces a code generator: "x86" or "llvm"; "auto" chooses."""
_BACKENDS = ("auto", "x86", "llvm")


class Loaded(Protocol):
    """Machine code in this process."""

    def address(self, name: str) -> int:
        """Address of a function."""


class Backend(ABC):
    """Machine code of the programs of requests; `linked` says where it is kept."""

    name: ClassVar[str]

    @abstractmethod
    def kept(self, linked: Linked) -> bytes | None:
        """What the cache has."""

    @abstractmethod
    def made(self, linked: Linked, request: Request, program: Program) -> bytes:
        """The code, made and then kept.

        Raises:
            UnavailableError: it cannot be made.
        """

    @abstractmethod
    def loaded(self, code: bytes, request: Request, cache: ObjectCache) -> Loaded:
        """The code in this process, its function called "kernel".

        Raises:
            UnavailableError: it does not load.
        """

    @abstractmethod
    def operations(self, code: bytes) -> float:
        """About how many operations code is, from what is kept."""

    @abstractmethod
    def listing(self, request: Request) -> str:
        """The code in the processor's language."""


class _Llvm(Backend):
    name = "llvm"

    def kept(self, linked: Linked) -> bytes | None:
        return linked.code()

    def made(self, linked: Linked, request: Request, program: Program) -> bytes:
        with no_collection():  # not while LLVM works: other threads run meanwhile, and leave what is to be collected
            text = request.unrolled_module(program)
        return linked.compiled(text)

    def loaded(self, code: bytes, request: Request, cache: ObjectCache) -> Loaded:
        return Code(code, request.target)

    def operations(self, code: bytes) -> float:
        return len(code) / 12.0  # half a kilobyte is about 40

    def listing(self, request: Request) -> str:
        return assembly(request.unrolled_module(request.trace()), request.target, OPT)


class _X86(Backend):
    name = "x86"

    def kept(self, linked: Linked) -> bytes | None:
        code = linked.direct()
        return None if code is None or Image.unpacked(code) is None else code

    @no_collection()
    def made(self, linked: Linked, request: Request, program: Program) -> bytes:
        code = _assembled(program, request).image().packed()
        linked.keep(code)
        return code

    def loaded(self, code: bytes, request: Request, cache: ObjectCache) -> Loaded:
        driver = _driver(request.target, request.target.width(request.dtype), cache)
        return LoadedImage(_image(code), driver.address("drive"), driver)

    def operations(self, code: bytes) -> float:
        return _image(code).operations

    def listing(self, request: Request) -> str:
        return _assembled(request.trace(), request).listing()


def writes_lines(request: Request) -> bool:
    """Whether a program of ours is to write results that it leaves as vectors to rows on the way."""
    target, sizes = request.target, request.scalars
    if not request.packed or target.narrow or len(sizes) > MAX_ARRAYS:
        return False
    return min(sizes) >= LINE // request.dtype.itemsize and sum(sizes) * target.vector_bytes <= MAX_LINED_BYTES


def _layout(program: Program, request: Request) -> Layout | None:
    """Where a program that writes lines leaves its results, which it has whole."""
    if not writes_lines(request):
        return None
    width, line = request.target.width(request.dtype), LINE // request.dtype.itemsize
    filled = (tuple(not program.is_zero(each) for each in port.scalars) for port in program.outputs)
    return Layout(width, line, tuple(filled))


def _copies(request: Request) -> bool:
    """Whether a program has code for large batches that copies results past the caches on the way."""
    return not (request.vectors or request.target.narrow or request.algorithm.recurrent)


def _assembled(program: Program, request: Request) -> Assembled:
    """Code of a program; for batches of a query's results that for large ones (`with_streaming_stores`), or that which
    writes their lines on the way (`chains.lines`), as well."""
    whole = unpacked_program(program, request.model, request.algorithm.outputs) if request.packed else program
    layout = _layout(whole, request)
    program = program if layout is None else whole
    return assembled(program, request.dtype, request.target, request.vectors, copies=_copies(request), layout=layout)


def _image(code: bytes) -> Image:
    found = Image.unpacked(code)
    assert found is not None
    return found


LLVM, X86 = _Llvm(), _X86()
_DRIVERS: dict[tuple[Target, int], Code] = {}


def begin_driver(request: Request, cache: ObjectCache) -> None:
    """Begin to compile what goes through the rows of batches, beside other things, if a request's code needs it."""
    target, width = request.target, request.target.width(request.dtype)
    if (target, width) not in _DRIVERS and backend_of(request) is X86:
        begin(driver_module(width, target), _driver_label(target, width), target, OPT, cache)


def _driver(target: Target, width: int, cache: ObjectCache) -> Code:
    """What goes through the rows of batches, once in a process."""
    found = _DRIVERS.get((target, width))
    if found is None:
        code = compiled(driver_module(width, target), _driver_label(target, width), target, OPT, cache)
        found = _DRIVERS[(target, width)] = Code(code, target)
    return found


def _driver_label(target: Target, width: int) -> str:
    return f"robodyn driver {width} {target.level}"


def backend_of(request: Request) -> Backend:
    """The backend for a request's program.

    Raises:
        UnavailableError: one is wanted by the environment that there is not here.
    """
    wanted = os.environ.get(BACKEND_VARIABLE, "auto") or "auto"
    if wanted not in _BACKENDS:
        raise UnavailableError(f"{BACKEND_VARIABLE}: got {wanted!r}; allowed: {', '.join(map(repr, _BACKENDS))}")
    if wanted == "llvm":
        return LLVM
    runs = _runs(request.target.level)
    if wanted == "x86" and not runs:
        raise UnavailableError(
            f"{BACKEND_VARIABLE}: got 'x86'; wanted a processor with AVX2 or AVX-512, Linux, and a system that lets a "
            "process execute what it wrote"
        )
    return X86 if runs else LLVM


def _runs(level: str) -> bool:
    return level in ("avx2", "avx512") and executable()
