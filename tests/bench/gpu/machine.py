"""What GPU benchmarks run on: a device, its clocks, and what figures of it hold for."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

from robodyn.engines.gpu.compiler import compile_cubin, nvrtc
from robodyn.engines.gpu.device import Device, default_device
from robodyn.engines.gpu.source import KernelSource
from robodyn.internals.errors import UnavailableError
from robodyn.tools.benchmark.contenders import available_threads
from robodyn.tools.benchmark.timing import Clock, Timing, measure, seconds_of

_RECORDED = 20
"""Calls in one graph: what starting a graph costs is a small part of them."""
_LONG_S = 1e-3
"""From here on what starting a call costs does not count."""


def _not_ahead(sources: Sequence[KernelSource]) -> None:
    """Every kernel is compiled when it is loaded."""


@dataclass(frozen=True)
class Machine:
    """A device to measure on.

    `clock`: by the device itself, from the first of some calls to the last; `facts`: what figures hold for; `ahead`:
    compiles kernels that will be loaded.
    """

    device: Device
    clock: Clock
    facts: dict[str, str]
    ahead: Callable[[Sequence[KernelSource]], None] = _not_ahead

    def kernels(self, call: Callable[[], object], seconds: float) -> Timing:
        """What the kernels of a call take, which is recorded: Python has no part in it."""
        call()
        launches = 1 if self.clock(call, 1) > _LONG_S else _RECORDED

        def work() -> None:
            for _ in range(launches):
                call()

        found = measure(self.device.record(work).launch, seconds, self.clock)
        return Timing(found.best_s / launches, found.median_s / launches, found.runs)

    def calls(self, call: Callable[[], object], seconds: float) -> Timing:
        """What a call takes from Python, of many one after another: nobody waits for results before the last."""

        def clock(run: Callable[[], object], times: int) -> float:
            def all_of_them() -> None:
                for _ in range(times):
                    run()
                self.device.settle()

            self.device.settle()
            return seconds_of(all_of_them)

        return measure(call, seconds, clock)


def cuda_machine() -> Machine:
    """The current CUDA device, measured by its events.

    Raises:
        UnavailableError: there is none.
    """
    device = default_device()
    import cupy

    def ahead(sources: Sequence[KernelSource]) -> None:
        compile_ahead(sources, device.architecture)

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
        for _ in range(times):
            call()
        end.record()
        end.synchronize()
        return float(cuda.get_elapsed_time(begin, end)) * 1e-3

    return seconds


def _facts(device: Device, cupy: Any) -> dict[str, str]:
    runtime, compiler = cupy.cuda.runtime.runtimeGetVersion(), nvrtc().version()
    return {
        "GPU": f"{device.name} ({device.architecture}, {device.processors} multiprocessors)",
        "driver": _driver() or f"for CUDA {_version(cupy.cuda.runtime.driverGetVersion())}",
        "CUDA": _version(runtime),
        "NVRTC": ".".join(map(str, compiler)),
        "CuPy": cupy.__version__,
    }


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _driver() -> str:
    """As its own tool says."""
    if shutil.which("nvidia-smi") is None:
        return ""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode else done.stdout.strip().partition("\n")[0]


def compile_ahead(sources: Sequence[KernelSource], architecture: str, workers: int | None = None) -> None:
    """Bring kernels into the cache of compiled code, on all processors, the longest first. What does not compile, or
    not in the memory there is, is left to whoever loads it to say so."""
    ordered = sorted(sources, key=lambda source: -len(source.text))
    processes = min(workers or available_threads(), len(ordered))
    if not processes:
        return
    with suppress(BrokenProcessPool), ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        for done in [pool.submit(_compile, source, architecture) for source in ordered]:
            done.result()


def _compile(source: KernelSource, architecture: str) -> None:
    with suppress(UnavailableError):
        compile_cubin(source, architecture)
