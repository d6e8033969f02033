"""From operations to steps, for NEON."""

from __future__ import annotations

from robodyn.compile.x86.steps import Steps


class NeonSteps(Steps):
    """Steps for NEON, which has instructions for signs, for comparisons of sizes, and for the least and the greatest of
    two values, which is NaN if one of them is. A mask selects bits."""

    own = frozenset(("neg", "abs", "min", "max"))

    def _select(self, result: int, condition: int, positive: int, otherwise: int) -> None:
        self._do("ternlog_select", self._do("positive", condition), positive, otherwise, to=result)

    def _beyond(self, x: int) -> int:
        return self._do("beyond", x, self.format.limit)

    def _turned(self, shifted: int, s: int, c: int, sine: int, cosine: int) -> None:
        do = self._do
        odd = do("sll_bit0", shifted)
        swap, sign = do("sra", odd), do("and", do("sll_bit1", shifted), -0.0)
        if sine >= 0:
            do("xor", do("ternlog_select", swap, c, s), sign, to=sine)
        if cosine >= 0:
            do("xor", do("ternlog_select", swap, s, c), do("xor", sign, odd), to=cosine)
