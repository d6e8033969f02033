"""Products of matrices between the stages of a chain of algorithms, on traced scalars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from robodyn.algorithms.tasks import Products
from robodyn.compile.tracing.expression import Value


def multiplied(stage: Products, pool: Mapping[str, Sequence[Value]], nv: int) -> dict[str, list[Value]]:
    """The outputs of a `Products` stage. Inputs and outputs are named lists of scalars in C order."""
    outputs: dict[str, list[Value]] = {}
    for name, product in stage.outputs.items():
        total: list[Value] = [0.0] * nv**2 if product.plain is None else list(pool[product.plain])
        if product.left is not None and product.right is not None:
            left, right = pool[product.left], pool[product.right]
            for r in range(nv):
                for c in range(nv):
                    entry: Value = 0.0
                    for k in range(nv):
                        entry = entry + left[nv * r + k] * right[nv * k + c]
                    total[nv * r + c] = total[nv * r + c] + entry
                    if product.symmetric:
                        total[nv * c + r] = total[nv * c + r] + entry
        outputs[name] = [-scalar for scalar in total]
    return outputs
