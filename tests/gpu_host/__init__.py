"""Runs CUDA C++ kernels on the host, compiled with g++ under a shim that gives every CUDA thread a fibre (shim.h)."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from robodyn.engines.gpu.source import SCALARS, KernelSource

_SHIM, _RUNNER = Path(__file__).with_name("shim.h"), Path(__file__).with_name("shim.cpp")
_FLAGS = ("-std=c++20", "-w", "-fno-strict-aliasing", "-pthread")
_SHARED = ("-shared", "-fPIC")
_LONG = 50_000
"""Characters from which a text runs so briefly, beside what it takes to compile, that it is not optimised."""
ORDERS = ("forward", "reverse", "random")
SANITIZERS = {"thread": "-fsanitize=thread", "address": "-fsanitize=address"}
_DYNAMIC = re.compile(r"extern\s+__shared__\s+([\w ]+?)\s+(\w+)\s*\[\s*\]\s*;")


def missing(sanitizer: str | None = None) -> str:
    """Why kernels cannot run on the host here; empty if they can."""
    if shutil.which("g++") is None:
        return "no g++"
    if platform.system() != "Linux":
        return "the shim's fibres are tried on Linux alone"
    return _probe(sanitizer) if sanitizer is not None else ""


@cache
def _probe(sanitizer: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        text, program = Path(folder, "probe.cpp"), Path(folder, "probe")
        text.write_text("int main() { return 0; }\n")
        built = subprocess.run(["g++", SANITIZERS[sanitizer], str(text), "-o", str(program)], capture_output=True)
        if built.returncode or subprocess.run([*_prefix(sanitizer), str(program)], capture_output=True).returncode:
            return f"no {SANITIZERS[sanitizer]} here"
    return ""


def _prefix(sanitizer: str) -> list[str]:
    """ThreadSanitizer needs its addresses where it expects them."""
    return ["setarch", platform.machine(), "-R"] if sanitizer == "thread" else []


def run_on_host(
    source: KernelSource,
    inputs: Mapping[str, Any],
    outputs: dict[str, Any],
    order: str = "forward",
    blocks: int = 2,
    *,
    rows: int | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Run a kernel on a grid of `blocks`: its threads in that order between barriers.

    `inputs`: arrays (rows, ...) by name; `outputs`: likewise, filled with NaN first and then by the kernel; they are
    returned. Workspace and shared memory are full of NaN.

    Raises:
        RuntimeError: the kernel hangs at a barrier, or its threads meet at different ones.
    """
    rows = len(next(iter(inputs.values()))) if rows is None else rows
    arrays = _arrays(source, inputs, outputs, blocks)
    pointers = (ctypes.c_void_p * len(arrays))(*(each.ctypes.data for each in arrays))
    launch = _library(source).shim_launch
    launch.restype = ctypes.c_char_p
    sizes = (ctypes.c_longlong(rows), ctypes.c_uint(blocks), ctypes.c_uint(source.block_threads))
    wrong = launch(pointers, *sizes, ctypes.c_size_t(source.shared_bytes), ORDERS.index(order), ctypes.c_uint(seed))
    if wrong is not None:
        raise RuntimeError(f"{source.name}: {wrong.decode()}")
    _give_back(source, outputs, arrays[len(source.inputs) :])
    return outputs


def run_sanitized(
    source: KernelSource,
    inputs: Mapping[str, Any],
    outputs: dict[str, Any],
    sanitizer: str,
    blocks: int = 1,
    *,
    rows: int | None = None,
    numbers: Sequence[int] = (),
) -> str:
    """Run a kernel in a process of its own, with OS threads, under "thread" or "address" sanitizer: what that says,
    empty where it finds nothing. `numbers`: the arguments behind `rows`."""
    rows = len(next(iter(inputs.values()))) if rows is None else rows
    arrays = _arrays(source, inputs, outputs, blocks)
    program = _program(source, ("-DSHIM_THREADS", "-g", SANITIZERS[sanitizer]))
    with tempfile.TemporaryDirectory() as folder:
        given, left = Path(folder, "in"), Path(folder, "out")
        head = [len(arrays), rows, blocks, source.block_threads, source.shared_bytes, 0]
        words = np.array([*head, len(numbers), *(each.nbytes for each in arrays), *numbers], np.int64)
        given.write_bytes(words.tobytes() + b"".join(each.tobytes() for each in arrays))
        environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0", "TSAN_OPTIONS": "exitcode=66"}
        command = [*_prefix(sanitizer), str(program), str(given), str(left)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
        if done.returncode:
            return done.stderr or f"exit status {done.returncode}"
        found = left.read_bytes()
    start = sum(each.nbytes for each in arrays[: len(source.inputs)])
    for each in arrays[len(source.inputs) :][: len(source.outputs)]:
        each.reshape(-1)[:] = np.frombuffer(found, each.dtype, each.size, start)
        start += each.nbytes
    _give_back(source, outputs, arrays[len(source.inputs) :])
    return ""


def _arrays(source: KernelSource, inputs: Mapping[str, Any], outputs: Mapping[str, Any], blocks: int) -> list[Any]:
    """What the kernel is called with, in order: contiguous arrays."""
    given = [np.ascontiguousarray(inputs[name], source.dtype) for name in source.inputs]
    empty = [np.full(outputs[name].shape, np.nan, source.dtype) for name in source.outputs]
    constants = [np.ascontiguousarray(each) for each in source.constants]
    assert all(each.dtype in (np.int64, source.dtype) for each in constants)
    return [*given, *empty, *constants, np.full(source.workspace(blocks), np.nan, source.dtype)]


def _give_back(source: KernelSource, outputs: Mapping[str, Any], arrays: Sequence[Any]) -> None:
    for name, array in zip(source.outputs, arrays, strict=False):
        outputs[name][...] = array


def set_numbers(source: KernelSource, numbers: Sequence[int]) -> None:
    """The arguments behind `rows` of the next launch."""
    assert len(numbers) == len(source.numbers)
    kept = (ctypes.c_longlong * (len(numbers) + 1)).in_dll(_library(source), "shim_numbers")
    kept[: len(numbers)] = list(numbers)


def _library(source: KernelSource) -> ctypes.CDLL:
    """The compiled kernel, behind what runs its threads."""
    _runner()
    level = _level(source)
    return _loaded(_kept(_text(source), (*_FLAGS, level, *_SHARED, f"-I{_header(level)}"), source.name))


@cache
def _runner() -> ctypes.CDLL:
    """What runs the threads of every kernel, whose names kernels find."""
    built = _kept(_RUNNER.read_text(), (*_FLAGS, "-O1", *_SHARED, f"-I{_SHIM.parent}"), "shim.cpp")
    return ctypes.CDLL(str(built), ctypes.RTLD_GLOBAL)


@cache
def _loaded(path: Path) -> ctypes.CDLL:
    return ctypes.CDLL(str(path))


def _program(source: KernelSource, flags: tuple[str, ...]) -> Path:
    """The compiled kernel and what runs it, in one program."""
    flags = (*_FLAGS, *flags, f"-I{_SHIM.parent}")
    runner = _kept(_RUNNER.read_text(), (*flags, "-O1", "-c"), "shim.cpp")
    return _kept(_text(source), (*flags, _level(source)), source.name, (str(runner),))


def _level(source: KernelSource) -> str:
    return "-O0" if len(source.text) > _LONG else "-O1"


def _text(source: KernelSource) -> str:
    """A kernel as the host's compiler takes it."""
    return (
        '#include "shim.h"\n'
        + _DYNAMIC.sub(r"\1* const \2 = (\1*)shim::dynamic_shared();", source.text)
        + _launcher(source)
    )


def _header(level: str) -> Path:
    """A folder with the shim's header compiled beforehand: reading it takes longer than most kernels."""
    folder = _folder() / f"shim-{hashlib.blake2b(_SHIM.read_bytes(), digest_size=8).hexdigest()}"
    (folder / "shim.h.gch").mkdir(parents=True, exist_ok=True)
    shutil.copyfile(_SHIM, copy := folder / f"{os.getpid()}.h")
    copy.replace(folder / "shim.h")
    if not (compiled := folder / "shim.h.gch" / level).exists():
        made = _kept(_SHIM.read_text(), (*_FLAGS, level, "-fPIC", "-x", "c++-header"), "shim.h")
        with suppress(FileNotFoundError):  # another test process has moved it there
            made.replace(compiled)
    return folder


def _folder() -> Path:
    folder = Path(tempfile.gettempdir(), f"robodyn-gpu-host-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def _kept(text: str, flags: tuple[str, ...], name: str, objects: tuple[str, ...] = ()) -> Path:
    """What g++ makes of a text, and of objects made before, kept under a hash of all that."""
    hashed = "\0".join((text, _SHIM.read_text(), *flags, *objects))
    digest = hashlib.blake2b(hashed.encode(), digest_size=16).hexdigest()
    built = _folder() / digest
    if not built.exists():
        with tempfile.TemporaryDirectory(dir=_folder()) as work:
            written, made = Path(work, "kernel.cpp"), Path(work, "made")
            written.write_text(text)
            command = ["g++", *flags, str(written), *objects, "-o", str(made)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"{name}: g++ says\n{done.stderr[:4000]}")
            made.rename(built)
    return built


def _launcher(source: KernelSource) -> str:
    """A function that takes the arrays as a table, and launches the kernel."""
    scalar = SCALARS[str(np.dtype(source.dtype))]
    kinds = [
        *(f"const {scalar}" for _ in source.inputs),
        *(scalar for _ in source.outputs),
        *("const long long" if each.dtype == np.int64 else f"const {scalar}" for each in source.constants),
        scalar,
    ]
    arguments = ", ".join(f"({kind}*)arrays[{k}]" for k, kind in enumerate(kinds))
    numbers = "".join(f", shim_numbers[{k}]" for k in range(len(source.numbers)))
    return f"""
extern "C" {{
long long shim_numbers[{len(source.numbers) + 1}];
extern char __start_shim_shared[] __attribute__((weak, visibility("hidden")));
extern char __stop_shim_shared[] __attribute__((weak, visibility("hidden")));
const char* shim_launch(void** arrays, long long rows, unsigned blocks, unsigned threads, size_t dynamic, int order,
                        unsigned seed) {{
    return shim::launch({{blocks, threads, dynamic, order, seed, __start_shim_shared, __stop_shim_shared,
                         [](void** arrays, long long rows) {{ {source.name}({arguments}, rows{numbers}); }}}},
                        arrays, rows);
}}
}}
"""
