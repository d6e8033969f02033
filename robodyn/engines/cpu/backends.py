"""Backends that generate machine code of straight-line programs: our own code generator, or LLVM.

Ours supports Linux on x86-64 processors with AVX2 or AVX-512 and on aarch64, if the process may execute memory that it
wrote. It is several times as fast as LLVM, and its code computes the same bits. LLVM compiles programs for all other
systems, all loops, and the driver around our programs.
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
from robodyn.compile.neon import program as neon
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
"""Environment variable that selects the backend: "x86", "neon", "llvm" or "auto"."""
_BACKENDS = ("auto", "x86", "neon", "llvm")


class Loaded(Protocol):
    """Machine code in this process."""

    def address(self, name: str) -> int:
        """Address of a function."""


class Backend(ABC):
    """Generates machine code of programs. `linked` identifies the code in the cache."""

    name: ClassVar[str]

    @abstractmethod
    def kept(self, linked: Linked) -> bytes | None:
        """The code from the cache, or None."""

    @abstractmethod
    def made(self, linked: Linked, request: Request, program: Program) -> bytes:
        """Generate the code and add it to the cache.

        Raises:
            UnavailableError: the code cannot be generated.
        """

    @abstractmethod
    def loaded(self, code: bytes, request: Request, cache: ObjectCache) -> Loaded:
        """Load the code into this process. Its function is called "kernel".

        Raises:
            UnavailableError: the code cannot be loaded.
        """

    @abstractmethod
    def operations(self, code: bytes) -> float:
        """Estimated number of operations of code from the cache."""

    @abstractmethod
    def listing(self, request: Request) -> str:
        """The code in assembly language."""


class _Llvm(Backend):
    name = "llvm"

    def kept(self, linked: Linked) -> bytes | None:
        return linked.code()

    def made(self, linked: Linked, request: Request, program: Program) -> bytes:
        with no_collection():  # not around LLVM's work: other threads run during it, and make garbage
            text = request.unrolled_module(program)
        return linked.compiled(text)

    def loaded(self, code: bytes, request: Request, cache: ObjectCache) -> Loaded:
        return Code(code, request.target)

    def operations(self, code: bytes) -> float:
        return len(code) / 12.0  # about 12 bytes of code per operation

    def listing(self, request: Request) -> str:
        return assembly(request.unrolled_module(request.trace()), request.target, OPT)


class _Own(Backend):
    """Our own code generator for a family of processors."""

    @staticmethod
    @abstractmethod
    def assembled(program: Program, request: Request) -> Assembled | neon.Assembled:
        """The program's code for the request's processor."""

    def kept(self, linked: Linked) -> bytes | None:
        code = linked.direct()
        return None if code is None or Image.unpacked(code) is None else code

    @no_collection()
    def made(self, linked: Linked, request: Request, program: Program) -> bytes:
        code = self.assembled(program, request).image().packed()
        linked.keep(code)
        return code

    def loaded(self, code: bytes, request: Request, cache: ObjectCache) -> Loaded:
        driver = _driver(request.target, request.target.width(request.dtype), cache)
        return LoadedImage(_image(code), driver.address("drive"), driver)

    def operations(self, code: bytes) -> float:
        return _image(code).operations

    def listing(self, request: Request) -> str:
        return self.assembled(request.trace(), request).listing()


class _X86(_Own):
    name = "x86"

    @staticmethod
    def assembled(program: Program, request: Request) -> Assembled:
        return _assembled(program, request)


class _Neon(_Own):
    name = "neon"

    @staticmethod
    def assembled(program: Program, request: Request) -> neon.Assembled:
        return neon.assembled(program, request.dtype, request.target, request.vectors)


def writes_lines(request: Request) -> bool:
    """True if a program of our backend should write its results to rows line by line while it computes
    (`chains.row_writer`)."""
    target, sizes = request.target, request.scalars
    if not request.packed or target.narrow or len(sizes) > MAX_ARRAYS:
        return False
    return min(sizes) >= LINE // request.dtype.itemsize and sum(sizes) * target.vector_bytes <= MAX_LINED_BYTES


def _layout(program: Program, request: Request) -> Layout | None:
    """The layout of results in vectors, for a program that writes lines; None for other programs."""
    if not writes_lines(request):
        return None
    width, line = request.target.width(request.dtype), LINE // request.dtype.itemsize
    filled = (tuple(not program.is_zero(each) for each in port.scalars) for port in program.outputs)
    return Layout(width, line, tuple(filled))


def _copies(request: Request) -> bool:
    """True if a program gets a second version for large batches, which copies results with streaming stores while it
    computes."""
    return not (request.vectors or request.target.narrow or request.algorithm.recurrent)


def _assembled(program: Program, request: Request) -> Assembled:
    """Code of a program. Batches of a query also get code for large results: either a version with streaming stores
    (`streaming_stores`), or one that writes lines (`chains.row_writer`)."""
    whole = unpacked_program(program, request.model, request.algorithm.outputs) if request.packed else program
    layout = _layout(whole, request)
    program = program if layout is None else whole
    return assembled(program, request.dtype, request.target, request.vectors, copies=_copies(request), layout=layout)


def _image(code: bytes) -> Image:
    image = Image.unpacked(code)
    assert image is not None
    return image


LLVM, X86, NEON = _Llvm(), _X86(), _Neon()
_OWN = {"avx2": X86, "avx512": X86, "neon": NEON}
"""Our own backend, by level."""
_DRIVERS: dict[tuple[Target, int], Code] = {}


def begin_driver(request: Request, cache: ObjectCache) -> None:
    """Start to compile the driver in another thread, if the request's code needs one."""
    target, width = request.target, request.target.width(request.dtype)
    if (target, width) not in _DRIVERS and backend_of(request) is not LLVM:
        begin(driver_module(width, target), _driver_label(target, width), target, OPT, cache)


def _driver(target: Target, width: int, cache: ObjectCache) -> Code:
    """The driver: the code that loops over the rows of a batch. It is loaded once per process."""
    driver = _DRIVERS.get((target, width))
    if driver is None:
        code = compiled(driver_module(width, target), _driver_label(target, width), target, OPT, cache)
        driver = _DRIVERS[(target, width)] = Code(code, target)
    return driver


def _driver_label(target: Target, width: int) -> str:
    return f"robodyn driver {width} {target.level}"


def backend_of(request: Request) -> Backend:
    """The backend for a request's program.

    Raises:
        UnavailableError: the environment selects a backend that does not work here.
    """
    wanted = os.environ.get(BACKEND_VARIABLE, "auto") or "auto"
    if wanted not in _BACKENDS:
        raise UnavailableError(f"{BACKEND_VARIABLE}: got {wanted!r}; allowed: {', '.join(map(repr, _BACKENDS))}")
    if wanted == "llvm":
        return LLVM
    level = request.target.level
    runs = _runs(level)
    if wanted != "auto" and not (runs and wanted == _OWN[level].name):
        raise UnavailableError(
            f"{BACKEND_VARIABLE}: got {wanted!r}; wanted {_NEEDS[wanted]}, Linux, and a system that lets a process "
            "execute what it wrote"
        )
    return _OWN[level] if runs else LLVM


_NEEDS = {"x86": "a processor with AVX2 or AVX-512", "neon": "an aarch64 processor, with libgcc_s"}


def _runs(level: str) -> bool:
    return level in _OWN and executable()
