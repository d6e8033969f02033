"""The target of compilation: processor, vector width and features."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from robodyn.internals.errors import UnavailableError
from robodyn.internals.records import dataclass

_WITHOUT = {
    "sse2": ("avx", "avx2", "fma", "sse3", "ssse3", "sse4.1", "sse4.2", "sse4a", "f16c", "xop", "fma4", "avxvnni"),
    "avx2": (),
    "avx512": (),
}
LEVELS = {"sse2": 16, "avx2": 32, "avx512": 64, "neon": 16}
"""Vector instruction levels, and the bytes of a register of each."""
_NARROW = 16
LEVEL_VARIABLE = "ROBODYN_CPU_LEVEL"
"""Environment variable that selects a lower level than the host's, to test the code for other processors."""


@dataclass(frozen=True)
class Target:
    """A processor to compile for. `narrow`: True for code that computes one state at a time, with a scalar in each
    register."""

    triple: str
    cpu: str
    features: str
    level: str
    narrow: bool = False

    @property
    def vector_bytes(self) -> int:
        """Bytes of a vector register."""
        return _NARROW if self.narrow else LEVELS[self.level]

    @property
    def for_one_state(self) -> Target:
        """The target for code that computes a single state: narrow, except with SSE2, for which there is no such
        code."""
        return self if self.level == "sse2" else replace(self, narrow=True)

    def width(self, dtype: np.dtype[Any]) -> int:
        """Number of states in a vector."""
        return 1 if self.narrow else self.vector_bytes // dtype.itemsize

    def machine(self, opt: int) -> Any:
        """A new LLVM target machine. Each LLVM execution engine needs its own, because it takes ownership."""
        return llvm.Target.from_triple(self.triple).create_target_machine(
            cpu=self.cpu, features=self.features, opt=opt, reloc="pic", codemodel="small", jit=True
        )


@cache
def _initialize() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


def _host_level(features: dict[str, bool], triple: str) -> str:
    if triple.startswith(("aarch64", "arm64")):
        return "neon"
    if not triple.startswith("x86_64"):
        raise UnavailableError(f"engine: 'cpu' does not know the processor {triple}; allowed: 'reference'")
    # Code for 512-bit registers uses the DQ instructions for bitwise operations on vectors of doubles.
    if features.get("avx512f") and features.get("avx512dq") and features.get("avx512vl"):
        return "avx512"
    return "avx2" if features.get("avx2") and features.get("fma") else "sse2"


def _features(host: dict[str, bool], level: str) -> str:
    """Feature flags of the host, without the features above a level."""
    off = set(_WITHOUT.get(level, ()))
    if level in ("sse2", "avx2"):
        off |= {name for name in host if name.startswith(("avx512", "avx10"))}
    if level == "sse2":
        off |= {"vaes", "vpclmulqdq"}
    flags = [f"{'+' if on and name not in off else '-'}{name}" for name, on in sorted(host.items())]
    return ",".join([*flags, *(f"-{name}" for name in sorted(off - set(host)))])


@cache
def host_target(level: str | None = None) -> Target:
    """The processor of this process, at its highest level or at the lower level requested.

    Raises:
        UnavailableError: the processor is of another family or lacks the level.
    """
    _initialize()
    triple, host = llvm.get_process_triple(), dict(llvm.get_host_cpu_features())
    best = _host_level(host, triple)
    wanted = level or os.environ.get(LEVEL_VARIABLE) or best
    family = ("neon",) if best == "neon" else ("sse2", "avx2", "avx512")
    if wanted not in family or family.index(wanted) > family.index(best):
        allowed = ", ".join(repr(name) for name in family[: family.index(best) + 1])
        raise UnavailableError(f"{LEVEL_VARIABLE}: got {wanted!r}; this processor has {allowed}")
    cpu = llvm.get_host_cpu_name() if wanted == best else "x86-64-v3" if wanted == "avx2" else "x86-64"
    return Target(triple, cpu, _features(host, wanted), wanted)
