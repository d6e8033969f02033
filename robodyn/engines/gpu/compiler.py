"""Compiles kernels with NVRTC, from CUDA C++ to GPU machine code. No GPU, driver, nvcc or headers are needed.

If CuPy is installed, its binding of NVRTC is used, so that the CUDA versions of compiler and runtime agree. Otherwise
NVRTC comes from the wheel `nvidia-cuda-nvrtc` or from the system's libraries. Machine code is cached in the same folder
as that of the CPU engine.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import re
import sys
from collections.abc import Iterator, Sequence
from functools import cache as remembered
from pathlib import Path
from typing import Any, Protocol

from robodyn.compile.cache import ObjectCache
from robodyn.engines.gpu.source import KernelSource
from robodyn.internals import forks
from robodyn.internals.errors import UnavailableError
from robodyn.internals.messages import install
from robodyn.internals.records import dataclass
from robodyn.internals.version import __version__

OPTIONS = ("-std=c++17", "--fmad=true", "--ptxas-options=-v")
"""Compiler options besides the architecture. `--fmad=true` fuses a product and a sum into one rounding. No other
fast-math option is set: divisions, roots and denormal numbers follow IEEE 754, sines have the accuracy of CUDA's
library. The last option makes the assembler log the numbers of `Report`."""
_AFRESH, _CACHING = "--no-cache", (12, 9)
"""Since this version NVRTC has a cache of its own if there is a driver. Code from that cache comes without the
assembler's log, unless the option `_AFRESH` switches the cache off."""
OLDEST = (12, 0)
"""The oldest version of NVRTC that is supported."""
INSTALL = install("gpu")

_LOG_LINES = 12
_ARCHITECTURE = re.compile(r"sm_(\d+)([af]?)")


@dataclass(frozen=True)
class Report:
    """The assembler's report about a kernel.

    `registers`: 32-bit registers of each thread; `stack_bytes`: local memory of a thread, including that of the
    functions that the kernel calls; `spill_bytes`: bytes of local memory to which registers are spilled;
    `shared_bytes`: static shared memory of a block.
    """

    registers: int
    stack_bytes: int
    spill_bytes: int
    shared_bytes: int


@dataclass(frozen=True)
class Cubin:
    """Machine code for one architecture, and the assembler's report about it."""

    code: bytes
    report: Report


class Nvrtc(Protocol):
    """The functions of NVRTC that the engine needs."""

    def version(self) -> tuple[int, int]:
        """Major and minor version."""

    def compile(self, text: str, name: str, options: Sequence[str]) -> tuple[bytes | None, str]:
        """Machine code, or None where the text does not compile, and the log."""


class CupyNvrtc:
    """NVRTC through CuPy's binding."""

    def __init__(self, binding: Any) -> None:
        self._binding = binding

    def version(self) -> tuple[int, int]:
        """Major and minor version."""
        major, minor = self._binding.getVersion()
        return int(major), int(minor)

    def compile(self, text: str, name: str, options: Sequence[str]) -> tuple[bytes | None, str]:
        """Machine code, or None where the text does not compile, and the log."""
        binding = self._binding
        program = binding.createProgram(text, name, (), ())
        try:
            try:
                binding.compileProgram(program, tuple(options))
            except binding.NVRTCError as error:
                return None, binding.getProgramLog(program) or str(error)
            return bytes(binding.getCUBIN(program)), binding.getProgramLog(program)
        finally:
            binding.destroyProgram(program)


class LibraryNvrtc:
    """NVRTC through ctypes."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def version(self) -> tuple[int, int]:
        """Major and minor version."""
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        return major.value, minor.value

    def compile(self, text: str, name: str, options: Sequence[str]) -> tuple[bytes | None, str]:
        """Machine code, or None where the text does not compile, and the log."""
        library, program = self._library, ctypes.c_void_p()
        arguments = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        result = library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), name.encode(), 0, None, None)
        if result:
            return None, f"nvrtcCreateProgram: error {result}"
        try:
            result = library.nvrtcCompileProgram(program, len(options), arguments)
            log = self._read("ProgramLog", program).rstrip(b"\0").decode(errors="replace")
            if result:
                return None, log or f"nvrtcCompileProgram: error {result}"
            return self._read("CUBIN", program), log
        finally:
            library.nvrtcDestroyProgram(ctypes.byref(program))

    def _read(self, what: str, program: ctypes.c_void_p) -> bytes:
        size = ctypes.c_size_t()
        getattr(self._library, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
        data = ctypes.create_string_buffer(size.value)
        getattr(self._library, f"nvrtcGet{what}")(program, data)
        return data.raw


def _library_names() -> Iterator[str]:
    """Paths and names under which to look for NVRTC: NVIDIA's wheels, the newest first, then the system's libraries."""
    windows = sys.platform == "win32"
    spec = importlib.util.find_spec("nvidia")
    roots = [] if spec is None else [Path(root) for root in spec.submodule_search_locations or ()]
    patterns = ("bin/**/nvrtc64_*_0.dll",) if windows else ("lib/libnvrtc.so.1[2-9]",)
    for folder in ("cu13", "cuda_nvrtc"):
        for root in roots:
            for pattern in patterns:
                yield from sorted((str(path) for path in (root / folder).glob(pattern)), reverse=True)
    yield from ("nvrtc64_130_0.dll", "nvrtc64_120_0.dll") if windows else ("libnvrtc.so.13", "libnvrtc.so.12")


@remembered
def _found() -> Nvrtc | None:
    if importlib.util.find_spec("cupy_backends") is not None:
        try:
            from cupy_backends.cuda.libs import nvrtc

            nvrtc.getVersion()
            return CupyNvrtc(nvrtc)
        except (ImportError, OSError, RuntimeError):
            pass  # CuPy without CUDA libraries: the wheel may still be installed
    for name in _library_names():
        try:
            # NVRTC opens this library by its bare name, which does not search wheels. So it is loaded here before.
            for helper in Path(name).parent.glob("*nvrtc-builtins*[0-9]*") if Path(name).is_absolute() else ():
                if ".alt." not in helper.name:
                    ctypes.CDLL(str(helper))
            return LibraryNvrtc(ctypes.CDLL(name))
        except OSError:
            continue
    return None


_FINDING = forks.lock()


def nvrtc() -> Nvrtc:
    """The NVRTC of this machine.

    Raises:
        UnavailableError: NVRTC is missing or too old.
    """
    with _FINDING:
        compiler = _found()
    if compiler is None:
        raise UnavailableError(f"engine 'gpu': NVRTC, NVIDIA's compiler, is not installed; {INSTALL}")
    version = compiler.version()
    if version < OLDEST:
        here, wanted = (".".join(map(str, each)) for each in (version, OLDEST))
        raise UnavailableError(f"engine 'gpu': NVRTC {here} is too old, wanted {wanted} or newer; {INSTALL}")
    return compiler


def compile_reported(source: KernelSource, arch: str) -> Cubin:
    """Machine code of a kernel for an architecture such as "sm_90", without the cache, and the assembler's report.

    Raises:
        UnavailableError: NVRTC is missing or too old, does not know the architecture, or cannot compile the kernel.
    """
    code, log = _compiled(source, arch, (_AFRESH,) if nvrtc().version() >= _CACHING else ())
    return Cubin(code, read_report(log, source.name))


def _compiled(source: KernelSource, arch: str, options: tuple[str, ...] = ()) -> tuple[bytes, str]:
    """Machine code and NVRTC's log."""
    if not _ARCHITECTURE.fullmatch(arch):
        raise UnavailableError(f"engine 'gpu': {arch!r} is no architecture such as 'sm_90'")
    compiler = nvrtc()
    code, log = compiler.compile(source.text, f"{source.name}.cu", (f"-arch={arch}", *OPTIONS, *options))
    if code is None or not code:
        version = ".".join(map(str, compiler.version()))
        lines = "\n".join(log.strip().splitlines()[:_LOG_LINES])
        raise UnavailableError(f"engine 'gpu': NVRTC {version} cannot compile {source.name} for {arch}:\n{lines}")
    return code, log


def compile_cubin(source: KernelSource, arch: str, cache: ObjectCache | None = None) -> bytes:
    """Machine code of a kernel for an architecture such as "sm_90", from the cache if it is there.

    Raises:
        UnavailableError: NVRTC is missing or too old, does not know the architecture, or cannot compile the kernel.
    """
    kept = ObjectCache.from_environment() if cache is None else cache
    key = cubin_key(source, arch)
    code = kept.get(key)
    if code is None:
        code, _ = _compiled(source, arch)
        kept.put(key, code, f"{source.name} {source.dtype} {arch}")
    return code


def cubin_key(source: KernelSource, arch: str) -> str:
    """The key of a kernel's machine code in the cache, 40 hexadecimal digits."""
    facts = ("cubin", source.name, source.text, arch, OPTIONS, nvrtc().version(), __version__)
    return hashlib.blake2b(repr(facts).encode(), digest_size=20).hexdigest()


_USED = re.compile(r"Used (\d+) registers")
_CUMULATIVE = re.compile(r"(\d+) bytes cumulative stack size")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores")
_SHARED = re.compile(r"(\d+) bytes smem")


def read_report(log: str, name: str) -> Report:
    """Read the assembler's log about a kernel and the functions that it calls.

    Raises:
        UnavailableError: the log does not mention a kernel of that name.
    """
    frames = [(int(stack), int(spill)) for stack, spill in _FRAME.findall(log)]
    used = [line for line in log.splitlines() if _USED.search(line)]
    if f"'{name}'" not in log or len(used) != 1 or not frames:
        raise UnavailableError(f"engine 'gpu': NVRTC's log says nothing about a kernel {name!r}:\n{log[:500]}")
    cumulative, shared = _CUMULATIVE.search(used[0]), _SHARED.search(used[0])
    return Report(
        registers=int(_USED.search(used[0])[1]),  # type: ignore[index]
        stack_bytes=int(cumulative[1]) if cumulative else max(stack for stack, _ in frames),
        spill_bytes=sum(spill for _, spill in frames),
        shared_bytes=int(shared[1]) if shared else 0,
    )
