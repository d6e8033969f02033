"""What GPU benchmarks run on: a device, its clocks, what it can do at most, and what figures of it hold for."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from robodyn.engines.gpu.compiler import compile_cubin, nvrtc
from robodyn.engines.gpu.device import Device, default_device
from robodyn.engines.gpu.source import SCALARS, KernelSource
from robodyn.internals.errors import UnavailableError
from robodyn.tools.benchmark.contenders import available_threads
from robodyn.tools.benchmark.timing import Clock, Timing, measure, seconds_of

_RECORDED = 20
"""Calls in one graph: what starting a graph costs is a small part of them."""
_LONG_S = 1e-3
"""From here on what starting a call costs does not count."""
COPIED_BYTES = 1 << 30
_CHAINS, _STEPS, _ROUNDS = 8, 16, 32
"""Sums that do not wait for one another, steps of each in a turn of the loop, turns."""
_THREADS, _WAVES = 256, 4
FLOPS_OF_A_ROW = 2 * _CHAINS * _STEPS * _ROUNDS


@dataclass(frozen=True)
class Machine:
    """A device to measure on.

    `clock`: by the device itself, from the first of some calls to the last; `facts`: what figures hold for; `ahead`:
    compiles kernels that will be loaded.
    """

    device: Device
    clock: Clock
    facts: dict[str, str]
    ahead: Callable[[Sequence[KernelSource]], None] = lambda sources: None

    def kernels(self, call: Callable[[], object], seconds: float) -> Timing:
        """What the kernels of a call take, which is recorded: Python has no part in it."""
        call()
        launches = 1 if self.clock(call, 1) > _LONG_S else _RECORDED
        graph = self.device.record(lambda: _repeat(call, launches))
        found = measure(graph.launch, seconds, self.clock)
        return Timing(found.best_s / launches, found.median_s / launches, found.runs)

    def calls(self, call: Callable[[], object], seconds: float) -> Timing:
        """What a call takes from Python, of many one after another: nobody waits for results before the last."""

        def clock(run: Callable[[], object], times: int) -> float:
            self.device.settle()
            return seconds_of(lambda: (_repeat(run, times), self.device.settle()))

        return measure(call, seconds, clock)


def _repeat(call: Callable[[], object], times: int) -> None:
    for _ in range(times):
        call()


def cuda_machine() -> Machine:
    """The current CUDA device, measured by its events.

    Raises:
        UnavailableError: there is none.
    """
    device = default_device()
    import cupy

    ahead = partial(compile_ahead, architecture=device.architecture)
    return Machine(device, by_events(cupy.cuda), _facts(device, cupy), ahead)


def find_machine() -> tuple[Machine | None, str]:
    """The GPU, or why there is none."""
    try:
        return cuda_machine(), ""
    except UnavailableError as error:
        return None, str(error)


def of_one_gpu(document: Mapping[str, Any], facts: Mapping[str, str]) -> bool:
    """Whether what a document holds was measured on a GPU, and with libraries, of which these facts hold too."""
    return all(document.get(fact) == facts.get(fact) for fact in ("GPU", "CUDA", "NVRTC"))


def by_events(cuda: Any) -> Clock:
    """A clock of CUDA's events; `cuda` is `cupy.cuda`."""

    def seconds(call: Callable[[], object], times: int) -> float:
        begin, end = cuda.Event(), cuda.Event()
        begin.record()
        _repeat(call, times)
        end.record()
        end.synchronize()
        return float(cuda.get_elapsed_time(begin, end)) * 1e-3

    return seconds


def _facts(device: Device, cupy: Any) -> dict[str, str]:
    runtime = cupy.cuda.runtime
    return {
        "GPU": f"{device.name} ({device.architecture}, {device.processors} multiprocessors)",
        "driver": _driver() or f"for CUDA {_version(runtime.driverGetVersion())}",
        "CUDA": _version(runtime.runtimeGetVersion()),
        "NVRTC": ".".join(map(str, nvrtc().version())),
        "CuPy": cupy.__version__,
    }


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _driver() -> str:
    """As its own tool says, where that is there."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.partition("\n")[0].strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def compile_ahead(sources: Sequence[KernelSource], architecture: str) -> None:
    """Bring kernels into the cache of compiled code, on all processors, the longest first; what does not compile is
    for whoever loads it to say."""

    def compiled(source: KernelSource) -> None:
        with suppress(UnavailableError):
            compile_cubin(source, architecture)

    with ThreadPoolExecutor(available_threads()) as pool:  # NVRTC does not hold Python's lock
        list(pool.map(compiled, sorted(sources, key=lambda source: -len(source.text))))


# Ceilings.


@dataclass(frozen=True)
class Ceilings:
    """`bytes_per_s`: read and written by a copy on the device; `flops`: each second, by dtype, a fused product and sum
    being two."""

    bytes_per_s: float
    flops: dict[str, float] = field(default_factory=dict)

    def seconds(self, moved: float, operations: float, dtype: str) -> float:
        """The least that so many bytes and operations take: whichever takes longer."""
        return max(moved / self.bytes_per_s, operations / self.flops[dtype])


def ceilings(machine: Machine, dtypes: Sequence[str], seconds: float) -> Ceilings:
    """Bytes that a copy moves, and fused products and sums in registers."""
    xp = machine.device.xp
    source, target = (xp.full((COPIED_BYTES // 8,), 1.0, np.float64) for _ in range(2))

    def copy() -> None:
        target[...] = source

    copied = measure(copy, seconds, machine.clock).best_s
    return Ceilings(2 * COPIED_BYTES / copied, {dtype: _multiplied(machine, dtype, seconds) for dtype in dtypes})


def _multiplied(machine: Machine, dtype: str, seconds: float) -> float:
    device = machine.device
    kernel = device.load(fma_kernel(dtype))
    blocks = _WAVES * device.processors * kernel.blocks_per_processor
    rows = blocks * _THREADS
    start, end = (device.xp.full((rows,), value, np.dtype(dtype)) for value in (0.5, np.nan))
    found = machine.kernels(partial(kernel.launch, blocks, [start, end, None], rows), seconds)
    np.testing.assert_allclose(device.xp.asnumpy(end[:_THREADS]), _CHAINS, rtol=1e-6)
    return rows * FLOPS_OF_A_ROW / found.best_s


def fma_kernel(dtype: str) -> KernelSource:
    """Each thread drives sums towards 1, which a product and a sum of 1/2 each do: all it reads and writes is one
    number."""
    chains = range(_CHAINS)
    step = " ".join(f"v{k} = v{k} * x + x;" for k in chains)
    text = f"""\
extern "C" __global__ void __launch_bounds__({_THREADS}) fma_ceiling(
    const T* given, T* left, T* workspace, long long rows)
{{
    for (long long r = blockIdx.x * (long long)blockDim.x + threadIdx.x; r < rows;
         r += gridDim.x * (long long)blockDim.x) {{
        const T x = given[r];
        T {", ".join(f"v{k} = x * {k}" for k in chains)};
        for (int round = 0; round < {_ROUNDS}; round++) {{
            {_STEPS * f"{step} "}
        }}
        left[r] = {" + ".join(f"v{k}" for k in chains)};
    }}
}}
"""
    text = text.replace("T*", f"{SCALARS[dtype]}*").replace("T ", f"{SCALARS[dtype]} ")
    return KernelSource("fma_ceiling", text, np.dtype(dtype), ("given",), ("left",), block_threads=_THREADS)
