"""Options of the GPU engine."""

from __future__ import annotations

import warnings
from typing import Any, cast

from robodyn.engines.gpu.source import WARP
from robodyn.internals import strict_types
from robodyn.internals.arguments import count, one_of
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import brief
from robodyn.internals.records import dataclass

KERNELS = ("unrolled", "thread", "warp", "block")
FUSIONS = ("complete", "fused", "split")
_FORMERLY = "printed"
_MOST_THREADS = 1024


@dataclass(frozen=True)
class GpuOptions:
    """Options of the GPU engine.

    Args:
        kernel: "unrolled" (straight-line code, one thread for each state); "thread", "warp" or "block" (loops over
            bodies, with one thread, one warp or one block for each state); or "auto". "auto" chooses by robot, query,
            dtype and batch, from measurements of this GPU if there are any.
        fusion: how a query of several stages, such as the gradient of forward dynamics, is divided into kernels:
            "complete" for a single kernel, "fused" for a kernel that ends after each solve or product, "split" for a
            kernel for each stage (Plancher et al., section IV-B), or "auto". Unrolled kernels are complete or split.
        block_threads: threads of a block in "thread", "warp" and "block" kernels, a multiple of 32; None for an
            automatic choice.

    Raises:
        ArgumentError: an unknown word, an invalid number, or fusion "fused" for unrolled kernels.
    """

    kernel: str = "auto"
    fusion: str = "auto"
    block_threads: int | None = None

    def __post_init__(self) -> None:
        kernel: Any = self.kernel
        if strict_types.text_or_none(kernel) == _FORMERLY:
            text = f"kernel={_FORMERLY!r} is called 'unrolled', as on the CPU; the old word goes in version 0.3"
            warnings.warn(text, DeprecationWarning, stacklevel=3)
            kernel = "unrolled"
        words = {"kernel": one_of("kernel", kernel, ("auto", *KERNELS))}
        words["fusion"] = one_of("fusion", self.fusion, ("auto", *FUSIONS))
        for name, word in words.items():
            object.__setattr__(self, name, word)
        if self.kernel == "unrolled" and self.fusion == "fused":
            raise ArgumentError(
                f"fusion: got {self.fusion!r} for unrolled kernels; allowed: 'auto', 'complete', 'split'"
            )
        if self.block_threads is None:
            return
        threads = count("block_threads", self.block_threads, WARP, _MOST_THREADS)
        object.__setattr__(self, "block_threads", threads)
        if threads % WARP:
            raise ArgumentError(f"block_threads: got {self.block_threads}; wanted a multiple of {WARP}")


def gpu_options(given: Any) -> GpuOptions:
    """The options `given`, or the defaults for None.

    Raises:
        ArgumentError: `given` is neither `GpuOptions` nor None.
    """
    if given is None:
        return GpuOptions()
    if not strict_types.is_a(given, GpuOptions):
        raise ArgumentError(f"gpu: got {brief(given)}; wanted a robodyn.engines.gpu.GpuOptions")
    return cast(GpuOptions, given)
