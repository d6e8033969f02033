"""Result sizes from which batches are written with streaming stores, which bypass the caches."""

from __future__ import annotations

from robodyn.compile.llvm.target import Target
from robodyn.compile.llvm.vectors import VectorType
from robodyn.internals.tuning import CROWD, STREAMED_BYTES

FLUSHED = "flushed "
"""Prefix of the name of a user's result array, if the kernel leaves the result as vectors and its rows are written
afterwards."""
_LINE = 64


def streams(kind: VectorType, target: Target) -> bool:
    """Whether a vector is exactly one cache line and the processor has the shuffle that writing whole cache lines
    needs."""
    return target.level == "avx512" and kind.bytes == _LINE


def streamed_bytes(target: Target) -> int:
    """Bytes of a batch's results in one array from which they are written with streaming stores.

    The threshold is lower with AVX-512. One core of a Zen 4 owns 4 of the 32 MB of L3 cache. Measured on a virtual
    machine that shares the cache, ordinary stores of an arm's results of 4 to 8 MB took 1.3 to 3.2 times as long as
    streaming stores in some minutes and 0.9 times in others; for results of 1.5 to 3 MB always 0.8 times.
    """
    return STREAMED_BYTES * 7 // 16 if target.level == "avx512" else STREAMED_BYTES


def cache_pressure(target: Target) -> int:
    """Factor by which the bytes of large results in new arrays count.

    With AVX2, measured on a Zen 3 that owns 8 of the 32 MB of L3 cache: ordinary stores of an arm's results of 3 to 7
    MB took 1.6 to 3 times as long as streaming stores if the caller kept the last three results, and 0.7 to 2.4 times
    if it kept only one. With AVX-512 the threshold of `streamed_bytes` already covers results of about that size.
    """
    return CROWD if target.level == "avx2" else 1
