"""How the scan engine scans."""

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
"""What spans the constraint forces of joints, of those that are not a function."""
BLOCK_SOLVERS = ("odd_even", "odd_even_refined", "direct")

Basis: TypeAlias = str | Callable[[str, Array], Array]
"""One of `BASES`, or a function of a joint kind's name and its motion subspace S (6, k) to W (6, 6 - k)."""


@dataclass(frozen=True)
class ScanOptions:
    """Options of the scan engine.

    Args:
        layout: "heavy" (heavy paths) or "euler" (vector trees), for the algorithms that can use both.
        kernel: one of `robodyn.engines.scan.KERNELS`, for NumPy arrays: on a GPU there is one. "native" and "mapped"
            are for plain sums on vector trees; what they cannot scan is left to "blocked".
        block: length of the blocks of "blocked".
        operators: "compiled" (steps run as machine code where that runs here) or "library" (as operations of NumPy).
        constraint_basis: of method "cfa", what the constraint forces of a joint are written in: "unit", the unit
            vectors orthogonal to the joint's axis (an orthonormal basis of the complement of S); "balanced", the same
            made such that every diagonal block of the system is the identity; or a function of the joint kind's name
            and S (6, k), angular rows first, to a matrix W (6, 6 - k) of full rank with W'S = 0.
        constraint_solver: of method "cfa", how its block tri-diagonal system is solved: "odd_even", by odd-even
            elimination, "odd_even_refined", by that and one step of iterative refinement, or "direct", by a sequential
            factorisation, on NumPy arrays alone.

    Raises:
        ArgumentError: another word, or no length. A function is called, and what it returns is checked, when "cfa" is
            first asked for.
    """

    layout: str = "heavy"
    kernel: str = "blocked"
    block: int = BLOCK
    operators: str = "compiled"
    constraint_basis: Basis = "unit"
    constraint_solver: str = "odd_even"

    def __post_init__(self) -> None:
        found: dict[str, str | int] = {
            "layout": one_of("layout", self.layout, LAYOUTS),
            "kernel": one_of("kernel", self.kernel, KERNELS),
            "block": count("block", self.block, 2, LONGEST_BLOCK),
            "operators": one_of("operators", self.operators, OPERATORS),
            "constraint_solver": one_of("constraint_solver", self.constraint_solver, BLOCK_SOLVERS),
        }
        if not callable(self.constraint_basis):
            found["constraint_basis"] = one_of("constraint_basis", self.constraint_basis, BASES)
        for name, value in found.items():
            object.__setattr__(self, name, value)

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
    if not strict_types.is_a(given, ScanOptions):
        raise ArgumentError(f"scan: got {brief(given)}; wanted a robodyn.engines.scan.ScanOptions")
    return cast(ScanOptions, given)
