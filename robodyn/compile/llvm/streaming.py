"""From how many bytes on results of batches are written past the caches."""

from __future__ import annotations

from robodyn.compile.llvm.target import Target
from robodyn.compile.llvm.vectors import VectorType
from robodyn.internals.tuning import CROWD, STREAMED_BYTES

FLUSHED = "flushed "
"""Before a name: the user's array of a result that kernels leave as vectors."""
_LINE = 64


def streams(kind: VectorType, target: Target) -> bool:
    """Whether vectors are as long as a line, and the processor has the shuffle that lines take."""
    return target.level == "avx512" and kind.bytes == _LINE


def streamed_bytes(target: Target) -> int:
    """Bytes of results of a batch, by array, from which they are written past the caches.

    A core of a Zen 4 has 4 of the 32 MB of its last cache. On a virtual machine that shares that with others an arm's
    results of 4 to 8 MB, with `out=` as well, took 1.3 to 3.2 times as long through it as past it in some minutes, and
    0.9 of the time in others; results of 1.5 to 3 MB 0.8 of it always.
    """
    return STREAMED_BYTES * 7 // 16 if target.level == "avx512" else STREAMED_BYTES


def cache_pressure(target: Target) -> int:
    """For how many times their bytes large results in new arrays count.

    With AVX2: on a Zen 3 that has 8 of the 32 MB of its last cache an arm's results of 3 to 7 MB took 1.6 to 3 times as
    long through it as past it where the last three were kept, and 0.7 to 2.4 times where only the one before was. With
    AVX-512 all results go past the caches from about there on (`streamed_bytes`).
    """
    return CROWD if target.level == "avx2" else 1
