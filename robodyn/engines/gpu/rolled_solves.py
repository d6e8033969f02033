"""Solves with mass matrices and products of matrices in rolled kernels, restricted to structural nonzeros.

H = L' D L is factorised from the last row to the first (RBDA section 6.5). The rows V = D L overwrite the lower
triangle of H. The entries that a row changes are divided among the threads of a state; so are the columns of the
right-hand sides.
"""

from __future__ import annotations

from itertools import accumulate

import numpy as np

from robodyn.algorithms.tasks import Product, Products, Solution, Solve, SymbolicFactor, coupled
from robodyn.core.model import Model
from robodyn.engines.gpu.kernel_text import KernelText, Ref


class MatrixWriter:
    """Writes solves and products of one model into a kernel.

    `arrays`: the kernel's inputs and the results of earlier stages, by name.
    """

    def __init__(self, text: KernelText, model: Model, arrays: dict[str, Ref]) -> None:
        self.text, self.model, self.arrays = text, model, arrays
        self._factors: dict[str, tuple[Ref, Ref]] = {}

    def solve(self, solve: Solve) -> None:
        """Write every solution of a solve to the array of its name."""
        if solve.matrix not in self._factors:
            self._factors[solve.matrix] = self._factor(solve.matrix)
        for name, solution in solve.outputs.items():
            self._solution(solution, self.arrays[name], *self._factors[solve.matrix])
        self.text.sync()

    def _factor(self, matrix: str) -> tuple[Ref, Ref]:
        """Factorise a matrix. Returns V and 1 / D, which later stages reuse."""
        text, model, V = self.text, self.model, self.arrays[matrix]
        nv = text.integer("nv", model.nv)
        stage, text.stage = text.stage, None
        D = text.array(f"pivots_{matrix}", model.nv)
        if not V.own:
            V = text.array(f"factor_{matrix}", model.nv**2)
            with text.shared("k", "0", text.integer("nv2", model.nv**2)):
                text.do(f"{V.at('k')} = {self.arrays[matrix].at('k')};")
            text.sync()
        text.stage = stage
        starts, index = self._lower()
        with text.block(f"for (int k = {nv} - 1; k >= 0; k--)"):
            text.do(f"const int begin = (int){starts}[k], m = (int){starts}[k + 1] - begin;")
            text.do(f"const T d = T(1) / {V.at(f'k * {nv} + k')};")
            with text.alone():
                text.do(f"{D.at('k')} = d;")
            with text.shared("e", "0", "m * m"):
                text.do(f"const int i = (int){index}[begin + e / m], j = (int){index}[begin + e % m];")
                product = f"{V.at(f'k * {nv} + i')} * d * {V.at(f'k * {nv} + j')}"
                text.do(f"if (j <= i) {V.at(f'i * {nv} + j')} -= {product};")
            text.sync()
        return V, D

    def _lower(self) -> tuple[str, str]:
        lower = SymbolicFactor(self.model).lower
        starts = np.array([0, *accumulate(len(row) for row in lower)], np.int64)
        index = np.concatenate([*lower, np.empty(0, np.int64)]).astype(np.int64)
        return self.text.constant("lower_starts", starts), self.text.constant("lower_index", index)

    def _solution(self, solution: Solution, X: Ref, V: Ref, D: Ref) -> None:
        """One solution, computed in place. Each thread solves for whole columns."""
        assert not solution.known  # only chains for other engines have such columns
        text, model = self.text, self.model
        nv, columns = text.integer("nv", model.nv), X.size // max(1, model.nv)
        count = text.integer(f"columns_{columns}", columns)
        starts, index = self._lower()
        plus, minus = (None if name is None else self.arrays[name] for name in (solution.plus, solution.minus))

        def entry(row: str) -> str:
            return X.at(f"({row}) * {count} + c")

        def each() -> str:
            return f"for (int e = (int){starts}[k]; e < (int){starts}[k + 1]; e++)"

        with text.shared("c", "0", count):
            with text.block(f"for (int k = 0; k < {nv}; k++)"):
                terms = [] if plus is None else [plus.at(f"k * {count} + c")]
                terms += [] if minus is None else [f"-{minus.at(f'k * {count} + c')}"]
                text.do(f"{entry('k')} = {' '.join(terms) or 'k == c ? T(1) : T(0)'};")
            # Columns of the identity matrix are zero below their own row.
            last = f"{nv} - 1" if solution.arrays else "c"
            with text.block(f"for (int k = {last}; k >= 0; k--)"):
                text.do(f"const T y = {entry('k')} * {D.at('k')};")
                with text.block(each()):
                    text.do(f"const int p = (int){index}[e];")
                    text.do(f"{entry('p')} -= {V.at(f'k * {nv} + p')} * y;")
            with text.block(f"for (int k = 0; k < {nv}; k++)"):
                text.do(f"T y = {entry('k')};")
                with text.block(each()):
                    text.do(f"const int p = (int){index}[e];")
                    text.do(f"y -= {V.at(f'k * {nv} + p')} * {entry('p')};")
                text.do(f"{entry('k')} = y * {D.at('k')};")

    def multiply(self, stage: Products) -> None:
        """Write every product of a stage to the array of its name."""
        for name, product in stage.outputs.items():
            self._product(product, self.arrays[name])
        self.text.sync()

    def _product(self, product: Product, out: Ref) -> None:
        text, model = self.text, self.model
        nv = text.integer("nv", model.nv)
        pattern = coupled(model)
        starts = text.constant("coupled_starts", np.array([0, *accumulate(pattern.sum(axis=1).tolist())], np.int64))
        index = text.constant("coupled_index", np.nonzero(pattern)[1])
        with text.shared("k", "0", text.integer("nv2", model.nv**2)):
            text.do(f"const int r = k / {nv}, c = k % {nv};")
            text.do(f"T sum = {'T(0)' if product.plain is None else self.arrays[product.plain].at('k')};")
            if product.left is not None and product.right is not None:
                left, right = self.arrays[product.left], self.arrays[product.right]
                for a, b in (("r", "c"), ("c", "r")) if product.symmetric else (("r", "c"),):
                    with text.block(f"for (int e = (int){starts}[{a}]; e < (int){starts}[{a} + 1]; e++)"):
                        text.do(f"const int p = (int){index}[e];")
                        text.do(f"sum += {left.at(f'{a} * {nv} + p')} * {right.at(f'p * {nv} + {b}')};")
            text.do(f"{out.at('k')} = -sum;")
