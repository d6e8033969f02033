"""From operations to steps, each of which is one instruction. What takes several instructions depends on the processor:
signs, least and greatest values, selections, and sines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import zip_longest
from typing import ClassVar

from robodyn.compile.llvm.sincos import FORMATS, TWO_OVER_PI
from robodyn.compile.lowering import Operation, lower
from robodyn.compile.tracing.expression import CONSTANT
from robodyn.compile.tracing.program import Program
from robodyn.compile.x86.allocation import Step
from robodyn.compile.x86.order import ordered
from robodyn.compile.x86.places import ProgramMemory

_SIZE = "size"
"""Key of the constant that masks out the sign bit."""
_SEVERAL_STEPS = ("min", "max", "select")


class Steps(ABC):
    """Turns a program's operations into steps.

    Args:
        program: the program.
        places: its values in memory.
        itemsize: bytes of a scalar.
    """

    own: ClassVar[frozenset[str]] = frozenset()
    """Kinds of operations for which the processor has an instruction, although others need several."""

    def __init__(self, program: Program, places: ProgramMemory, itemsize: int) -> None:
        self.nodes, self.places = program.nodes, places
        self.format = FORMATS["double" if itemsize == 8 else "float"]
        self.steps: list[Step] = []
        self.constants = {node for node in program.live if program.nodes[node][0] == CONSTANT}
        for sines, operations in ordered(lower(program, nested=True)):
            if sines:
                self._side_by_side(operations)
            else:
                self._plain(operations)

    def _plain(self, operations: Sequence[Operation]) -> None:
        nodes, constant, steps, constants = self.nodes, self.places.constant, self.steps, self.constants
        own = self.own
        for kind, results, read in operations:
            if not constants.isdisjoint(read):
                read = tuple([constant(nodes[node][1]) if node in constants else node for node in read])
            if kind == "reciprocal":
                kind, read = "div", (constant(1.0), *read)
            elif kind in own:
                pass
            elif kind == "neg":
                kind, read = "xor", (*read, constant(-0.0))
            elif kind == "abs":
                kind, read = "and", (*read, constant(_SIZE))
            elif kind in _SEVERAL_STEPS:
                if kind == "select":
                    self._select(results[0], *read)
                else:
                    self._extremum(kind, results[0], *read)
                continue
            steps.append((kind, results[0], read))

    def _extremum(self, kind: str, result: int, a: int, x: int) -> None:
        """The instruction gives its second operand where one is NaN. A constant is no NaN. Otherwise both orders are
        computed; where the operands are numbers, these are equal, and else one of them is NaN."""
        for constant, other in ((a, x), (x, a)):
            if self.places.is_constant(constant):
                self._do(kind, constant, other, to=result)
                return
        self._do("or", self._do(kind, a, x), self._do(kind, x, a), to=result)

    @abstractmethod
    def _select(self, result: int, condition: int, positive: int, otherwise: int) -> None:
        """`positive` where the condition is above zero, else `otherwise`."""

    def _do(self, kind: str, *read: int | float | str, to: int = -1) -> int:
        """Add a step and return its result. Numbers among the operands become constants."""
        result = self.places.fresh() if to < 0 else to
        constant = self.places.constant
        self.steps.append((kind, result, tuple(n if isinstance(n, int) else constant(n) for n in read)))
        return result

    def _side_by_side(self, angles: list[Operation]) -> None:
        """Sines and cosines of several angles, with their steps interleaved: each chain of dependent steps leaves time
        for the others."""
        before, chains = self.steps, []
        for operation in angles:
            self.steps = []
            self._sines(operation.operands[0], *operation.results)
            chains.append(self.steps)
        before += [step for steps in zip_longest(*chains) for step in steps if step is not None]
        self.steps = before

    @abstractmethod
    def _beyond(self, x: int) -> int:
        """A mask with all bits set if an angle is too large."""

    def _sines(self, x: int, sine: int, cosine: int) -> None:
        """The algorithm of `robodyn.compile.llvm.sincos`, with the same roundings; masks take the place of
        conditions."""
        do, form = self._do, self.format
        first, second, third = form.parts
        shifted = do("fma", x, TWO_OVER_PI, form.magic)
        n = do("sub", shifted, form.magic)
        r = do("fnma", n, second, do("fnma", n, first, x))
        r = do("or", r, self._beyond(x))  # a number with all bits set is NaN
        z = do("mul", r, r)
        s = do("sub", r, do("fma", do("mul", r, z), self._polynomial(z, form.sine), do("mul", n, third)))
        c = do("fma", z, self._polynomial(z, form.cosine), 1.0)
        self._turned(shifted, s, c, sine, cosine)

    @abstractmethod
    def _turned(self, shifted: int, s: int, c: int, sine: int, cosine: int) -> None:
        """Swap s and c and set their signs, according to the two lowest bits of `shifted`."""

    def _polynomial(self, z: int, coefficients: tuple[float, ...]) -> int:
        value = self._do("fma", z, coefficients[-1], coefficients[-2])
        for coefficient in coefficients[-3::-1]:
            value = self._do("fma", z, value, coefficient)
        return value


class Avx2Steps(Steps):
    """Steps for AVX2, which selects by the sign bit of a mask."""

    def _select(self, result: int, condition: int, positive: int, otherwise: int) -> None:
        """The sign of 0 - condition selects: it is set for positive conditions only. (It may be for NaN, too.)"""
        self._do("blendv", self._do("sub", 0.0, condition), positive, otherwise, to=result)

    def _beyond(self, x: int) -> int:
        """Bits of numbers >= 0 compare like the numbers."""
        return self._do("cmpgt", self._do("and", x, _SIZE), self.format.limit)

    def _turned(self, shifted: int, s: int, c: int, sine: int, cosine: int) -> None:
        do = self._do
        odd, sign = do("sll_bit0", shifted), do("sll_bit1", shifted)
        sign = do("and", sign, -0.0)
        if sine >= 0:
            do("xor", do("blendv", odd, c, s), sign, to=sine)
        if cosine >= 0:
            do("xor", do("blendv", odd, s, c), do("xor", sign, odd), to=cosine)


class Avx512Steps(Steps):
    """Steps for AVX-512, which computes any function of three bits."""

    def _select(self, result: int, condition: int, positive: int, otherwise: int) -> None:
        """As with AVX2; the sign bit is spread over the scalar."""
        sign = self._do("sub", 0.0, condition)
        self._do("ternlog_select", self._do("sra", sign), positive, otherwise, to=result)

    def _beyond(self, x: int) -> int:
        over = self._do("fnma", x, x, self.format.limit**2)  # the limit is a power of two, so the sign is exact
        return self._do("sra", over)

    def _turned(self, shifted: int, s: int, c: int, sine: int, cosine: int) -> None:
        do = self._do
        odd, sign = do("sll_bit0", shifted), do("sll_bit1", shifted)
        swap = do("sra", odd)
        if sine >= 0:
            do("ternlog_sign", do("ternlog_select", swap, c, s), sign, -0.0, to=sine)
        if cosine >= 0:
            do("ternlog_sign", do("ternlog_select", swap, s, c), do("xor", sign, odd), -0.0, to=cosine)
