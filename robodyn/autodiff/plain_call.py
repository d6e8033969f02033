"""A query of a Dynamics as a function of arrays, for libraries that make the results' memory themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from robodyn.chains import at_units
from robodyn.dynamics import Dynamics
from robodyn.sweeps import Algorithm
from robodyn.tracing.unrolled import input_shapes, output_shape


class PlainCall:
    """A query on arrays in order: what it runs, and of which shapes.

    `task`: what engines run; `inputs`, `outputs`: shapes for one state by name, of the arguments and of the results, in
    order.

    Args:
        dyn: whose query it is.
        name: of the query.
        arguments: how many there are. Where the last, a vector, is left out, it stands for every unit vector.
    """

    def __init__(self, dyn: Dynamics, name: str, arguments: int) -> None:
        self.dyn, self.name = dyn, name
        self.task = dyn.plain_task(name)
        if len(self.task.inputs) > arguments:
            assert isinstance(self.task, Algorithm)
            self.task = at_units(self.task)
        self.inputs = input_shapes(dyn.model, self.task)
        self.outputs = {name: output_shape(dyn.model, output) for name, output in self.task.outputs.items()}

    def leading(self, arrays: Sequence[Any]) -> tuple[int, ...]:
        """The common leading axes of arguments."""
        owns = self.inputs.values()
        shapes = [tuple(array.shape[: len(array.shape) - len(own)]) for array, own in zip(arrays, owns, strict=True)]
        return np.broadcast_shapes(*shapes)

    def answers(self, *arrays: Any, out: tuple[Any, ...] | None = None) -> tuple[Any, ...]:
        """Results of the query, in the arrays `out` if they are given."""
        method = getattr(self.dyn, self.name)
        where = {} if out is None else {"out": out if len(out) > 1 else out[0]}
        named = dict(zip(self.inputs, arrays, strict=True))
        vector = {"vector": named.pop("vector")} if "vector" in named else {}
        found = method(*named.values(), **vector, **where)
        return found if isinstance(found, tuple) else (found,)
