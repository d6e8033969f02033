"""Options of the scan engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, cast

from robodyn.engines.scan.elementwise import OPERATORS
from robodyn.engines.scan.trees.prefix_scans import BLOCK, KERNELS, LONGEST_BLOCK, PLAIN_KERNELS
from robodyn.internals import strict_types
from robodyn.internals.arguments import Array, count, one_of
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import brief
from robodyn.internals.records import dataclass

LAYOUTS = ("heavy", "euler")
BASES = ("unit", "balanced")
"""Names of bases for the constraint forces of joints."""
BLOCK_SOLVERS = ("odd_even", "odd_even_refined", "direct")

Basis: TypeAlias = str | Callable[[str, Array], Array]
"""One of `BASES`, or a function of a joint kind's name and its motion subspace S (6, k) to W (6, 6 - k)."""


@dataclass(frozen=True)
class ScanOptions:
    """Options of the scan engine.

    Args:
        layout: "heavy" (heavy paths) or "euler" (vector trees), for the algorithms that can use both.
        kernel: one of `robodyn.engines.scan.KERNELS`, for NumPy arrays; a GPU has one kernel only. "native" and
            "mapped" are for plain sums on vector trees; "blocked" replaces them in all other scans.
        block: length of the blocks of the kernel "blocked".
        operators: "compiled" (machine code, if this machine can run it) or "library" (NumPy operations).
        constraint_basis: basis of a joint's constraint forces in method "cfa": "unit", an orthonormal basis of the
            complement of S, with unit vectors where S has zero rows; "balanced", the same, transformed so that every
            diagonal block of the system is the identity; or a function of the joint kind's name and S (6, k), angular
            rows first, that returns a matrix W (6, 6 - k) of full rank with W'S = 0.
        constraint_solver: solver of the block tri-diagonal system of method "cfa": "odd_even", odd-even elimination;
            "odd_even_refined", the same and one step of iterative refinement; "direct", a sequential factorisation,
            for NumPy arrays only.

    Raises:
        ArgumentError: an unknown word or an invalid length. A function `constraint_basis` is called and its results
            are checked at the first call of method "cfa".
    """

    layout: str = "heavy"
    kernel: str = "blocked"
    block: int = BLOCK
    operators: str = "compiled"
    constraint_basis: Basis = "unit"
    constraint_solver: str = "odd_even"

    def __post_init__(self) -> None:
        checked: dict[str, str | int] = {
            "layout": one_of("layout", self.layout, LAYOUTS),
            "kernel": one_of("kernel", self.kernel, KERNELS),
            "block": count("block", self.block, 2, LONGEST_BLOCK),
            "operators": one_of("operators", self.operators, OPERATORS),
            "constraint_solver": one_of("constraint_solver", self.constraint_solver, BLOCK_SOLVERS),
        }
        if not callable(self.constraint_basis):
            checked["constraint_basis"] = one_of("constraint_basis", self.constraint_basis, BASES)
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def kernel_for(self, op: Any) -> str:
        """The kernel for an operator on a vector tree."""
        return "blocked" if self.kernel in PLAIN_KERNELS and not op.plain else self.kernel

    @property
    def path_kernel(self) -> str:
        """The kernel for heavy paths."""
        return "blocked" if self.kernel in PLAIN_KERNELS else self.kernel


def scan_options(given: Any) -> ScanOptions:
    """The options `given`, or the defaults for None.

    Raises:
        ArgumentError: `given` is neither `ScanOptions` nor None.
    """
    if given is None:
        return ScanOptions()
    if not strict_types.is_a(given, ScanOptions):
        raise ArgumentError(f"scan: got {brief(given)}; wanted a robodyn.engines.scan.ScanOptions")
    return cast(ScanOptions, given)
