"""Computations of robodyn as functions of arrays, for libraries that allocate the results themselves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar

import numpy as np

from robodyn.algorithms.tasks import Derivative, ScalarTask, Task, against, along
from robodyn.api.dynamics import Dynamics
from robodyn.compile.tracing.unrolled import input_shapes, output_shape
from robodyn.engines.query_table import BASE, QuerySpec, QueryVariant
from robodyn.internals.arguments import require_finite
from robodyn.internals.errors import UnavailableError


class Call(ABC):
    """A computation on a list of arrays: its task, and the shapes of arguments and results.

    `inputs`, `outputs`: shapes for one state by name, of the arguments and of the results, in order.

    Args:
        dyn: the `Dynamics`.
        name: name for messages.
        task: the task that engines run.
        base: which of V0 and dV0 are arguments; they come after the others.
        link: index of the link, for link queries.
    """

    does_without_program: ClassVar[bool] = False
    """Whether the call also works if the engine has no program for its task."""

    def __init__(
        self, dyn: Dynamics, name: str, task: Task, base: tuple[str, ...] = (), link: int | None = None
    ) -> None:
        self.dyn, self.name, self.task, self.base, self.link = dyn, name, task, base, link
        self.inputs = input_shapes(dyn.model, self.task, base)
        self.outputs = {name: output_shape(dyn.model, output) for name, output in self.task.outputs.items()}
        self._derived: dict[Task, TaskCall] = {}

    def leading(self, arrays: Sequence[Any]) -> tuple[int, ...]:
        """The broadcast leading axes of arguments."""
        owns = self.inputs.values()
        shapes = [tuple(array.shape[: len(array.shape) - len(own)]) for array, own in zip(arrays, owns, strict=True)]
        return np.broadcast_shapes(*shapes)

    @abstractmethod
    def answers(self, *arrays: Any, out: tuple[Any, ...] | None = None) -> tuple[Any, ...]:
        """The results, written to `out` if it is given."""

    def along(self, wrt: tuple[str, ...]) -> TaskCall:
        """Forward mode: the rates of the results for rates of the inputs `wrt`."""
        return self._derivative(along(self.task, wrt), "rates")

    def against(self, wrt: tuple[str, ...]) -> TaskCall:
        """Reverse mode: the gradient of weights times results with respect to the inputs `wrt`."""
        return self._derivative(against(self.task, wrt), "gradient")

    def _derivative(self, task: Task, how: str) -> TaskCall:
        """The derivative of a task, cached, because libraries identify computations by object identity.

        Raises:
            UnavailableError: its program has no derivatives of this order.
        """
        inner, order = task, 0
        while isinstance(inner, Derivative):
            inner, order = inner.task, order + 1
        if isinstance(inner, ScalarTask) and inner.orders is not None and order > inner.orders:
            raise UnavailableError(
                f"{how} of {self.name}: derivatives of order {order} are not available; wanted at most {inner.orders}"
            )
        if task not in self._derived:
            self._derived[task] = TaskCall(self.dyn, f"{how} of {self.name}", task, self.base, self.link)
        return self._derived[task]


class QueryCall(Call):
    """A query, answered by its method.

    Args:
        dyn: the `Dynamics`.
        question: the query.
        given: names of its arguments in order. A missing `vector` stands for all unit vectors.
        link: index of the link, for link queries.
        choices: `frame`, `classical`, `damping` and `places` of `robodyn.engines.query_table.QueryVariant`.
    """

    def __init__(
        self, dyn: Dynamics, question: QuerySpec, given: tuple[str, ...], link: int | None = None, **choices: Any
    ) -> None:
        names = tuple(name for name in given if name not in BASE)
        base = tuple(name for name in given if name in BASE)
        task = question.made(QueryVariant(dyn.model, names, **choices))
        super().__init__(dyn, question.name, task, base, link)
        self.question, self.choices = question, choices

    def answers(self, *arrays: Any, out: tuple[Any, ...] | None = None) -> tuple[Any, ...]:
        """The results of the query."""
        where = {} if out is None else {"out": out if len(out) > 1 else out[0]}
        by_place, by_name = self.question.arguments(dict(zip(self.inputs, arrays, strict=True)), self.link)
        chosen = {name: value for name, value in self.choices.items() if name != "places"}
        if (places := self.choices.get("places")) is not None:
            chosen.update(places.arguments)
        results = getattr(self.dyn, self.name)(*by_place, **by_name, **chosen, **where)
        return results if isinstance(results, tuple) else (results,)


class TaskCall(Call):
    """A task run directly by an engine.

    Args:
        dyn, name, task, base, link: as in `Call`.
        checks: True to check values if `dyn` does; False for derivatives.
    """

    def __init__(
        self,
        dyn: Dynamics,
        name: str,
        task: Task,
        base: tuple[str, ...] = (),
        link: int | None = None,
        *,
        checks: bool = False,
    ) -> None:
        super().__init__(dyn, name, task, base, link)
        self._checks = checks and dyn.check is not False

    def answers(self, *arrays: Any, out: tuple[Any, ...] | None = None) -> tuple[Any, ...]:
        """The results of the task."""
        arguments = dict(zip(self.inputs, arrays, strict=True))
        engine, library = self.dyn._engine_for(arguments)
        leading = self.leading(arrays)
        checked = self._checks and (self.dyn.check or (leading == () and not library.on_device))
        if checked:
            for name, array in arguments.items():
                require_finite(name, array, len(self.inputs[name]))
        batch, xp = prod(leading), library.xp
        inputs = {
            name: xp.broadcast_to(array, (*leading, *own)).reshape(batch, *own)
            for (name, own), array in zip(self.inputs.items(), arrays, strict=True)
        }
        outputs = {name: xp.empty((batch, *own), self.dyn.dtype) for name, own in self.outputs.items()}
        engine.run(self.task, inputs, outputs, link=self.link)
        shaped = [array.reshape((*leading, *self.outputs[name])) for name, array in outputs.items()]
        if checked:
            for name, array in zip(self.outputs, shaped, strict=True):
                require_finite(f"result {name}", array, len(self.outputs[name]))
        if out is None:
            return tuple(shaped)
        for target, array in zip(out, shaped, strict=True):
            target[...] = array
        return out
