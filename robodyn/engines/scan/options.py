"""How the scan engine scans."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from robodyn.arguments import count, one_of
from robodyn.engines.scan.kernels import BLOCK, KERNELS, PLAIN_KERNELS
from robodyn.errors import ArgumentError
from robodyn.messages import brief

LAYOUTS = ("heavy", "euler")
_LONGEST_BLOCK = 1 << 20


@dataclass(frozen=True)
class ScanOptions:
    """Options of the scan engine.

    Args:
        layout: "heavy" (heavy paths) or "euler" (vector trees), for the algorithms that can use both.
        kernel: one of `robodyn.engines.scan.KERNELS`. "native" and "mapped" are for plain sums on vector trees; what
            they cannot scan is left to "blocked".
        block: length of the blocks of "blocked".

    Raises:
        ArgumentError: another word, or no length.
    """

    layout: str = "heavy"
    kernel: str = "blocked"
    block: int = BLOCK

    def __post_init__(self) -> None:
        one_of("layout", self.layout, LAYOUTS)
        one_of("kernel", self.kernel, KERNELS)
        count("block", self.block, 2, _LONGEST_BLOCK)

    def kernel_for(self, op: Any) -> str:
        """The kernel for an operator on a vector tree."""
        return "blocked" if self.kernel in PLAIN_KERNELS and not op.plain else self.kernel

    @property
    def path_kernel(self) -> str:
        """The kernel for heavy paths."""
        return "blocked" if self.kernel in PLAIN_KERNELS else self.kernel


def scan_options(given: Any) -> ScanOptions:
    """Options as given, or the defaults for None.

    Raises:
        ArgumentError: something else.
    """
    if given is None:
        return ScanOptions()
    if not isinstance(given, ScanOptions):
        raise ArgumentError(f"scan: got {brief(given)}; wanted a robodyn.engines.scan.ScanOptions")
    return given
