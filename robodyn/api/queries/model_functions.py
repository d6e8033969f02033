"""Fast paths for methods of `Model` and for `external_force`: frequent calls run compiled code.

A model is often loaded for a few calls, for which NumPy takes less time than compilation. So NumPy answers the first
calls, and the first call for each choice of arguments such as the link.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np

from robodyn.algorithms.manifold import (
    DIFFERENCE,
    DIFFERENCE_GRADIENT,
    DISTANCE,
    INTEGRATE,
    INTEGRATE_FOR,
    INTEGRATE_GRADIENT,
    INTEGRATE_GRADIENT_FOR,
    INTERPOLATE,
    NORMALIZE,
)
from robodyn.algorithms.tasks import ScalarTask
from robodyn.api.queries.fast_path import FastPath, documented
from robodyn.core.model import Model
from robodyn.engines.make import make_engine
from robodyn.engines.options import Options
from robodyn.internals.errors import UnavailableError

if TYPE_CHECKING:
    from robodyn.engines.cpu.engine import CpuEngine
    from robodyn.engines.cpu.native.answers import Answers
    from robodyn.engines.cpu.native.entry import Argument

_NUMPY_CALLS = 8
_KEPT = "_quick_functions"


class Early:
    """Stands in for a function until its built-in function exists, then passes calls on to that."""

    def __init__(self, quick: FastFunction) -> None:
        self._quick = quick
        self.__self__, self.__wrapped__ = quick.__self__, quick.__wrapped__
        self.__name__, self.__doc__ = quick.name, quick.__wrapped__.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Answer as the function does."""
        function = self._quick.function
        return self._quick.first(*args, **kwargs) if function is None else function(*args, **kwargs)

    def __reduce__(self) -> Any:
        return getattr, (self.__self__, self.__name__)


class FastFunction(FastPath):
    """The fast path of a function of a model, or of an object with an attribute `model`.

    Args:
        owner: the model, or the object.
        name: name of the function, and key of the built-in function in the owner's `__dict__`.
        method: the function, bound to the owner.
        arrays: names of its array arguments, in order.
    """

    function: Callable[..., Any] | None = None
    numbers: tuple[str, ...] = ()

    def __init__(self, owner: Any, name: str, method: Callable[..., Any], arrays: tuple[str, ...]) -> None:
        super().__init__(owner, method, np.dtype(np.float64))
        self.name, self.arrays, self._calls = name, arrays, 0
        self._asked: set[Any] = set()

    @property
    def model(self) -> Model:
        """The model for which the function is compiled."""
        owner = self.__self__
        model: Model = owner if isinstance(owner, Model) else owner.model
        return model

    def first(self, *args: Any, **kwargs: Any) -> Any:
        """Answer a call by the method. After `_NUMPY_CALLS` calls make the built-in function."""
        answer = self.__wrapped__(*args, **kwargs)
        self._calls += 1
        if self._calls >= _NUMPY_CALLS:
            engine = engine_of(self.model)
            entry = None if engine is None else engine.entry(self.name, documented(self.name, self.__wrapped__), self)
            if entry is not None:
                self.entry = entry
            self.function = self.__wrapped__ if entry is None else entry.function
            self.__self__.__dict__[self.name] = self.function
        return answer

    def calls(self, given: Mapping[str, Any]) -> tuple[Any, ...] | None:
        """Names of the arrays in the call."""
        return tuple(name for name in self.arrays if name in given)

    def task(self, calls: Any) -> tuple[ScalarTask, int | None]:
        """The task for such calls, and their link."""
        return _TASKS[self.name, calls], None

    def answers(self, calls: Any, given: Mapping[str, Any]) -> Answers | None:
        """Compiled answers, from the second request on; None at the first."""
        if calls not in self._asked:
            self._asked.add(calls)
            return None
        engine = engine_of(self.model)
        assert engine is not None
        task, link = self.task(calls)
        try:
            return engine.direct(task, self.arrays, link)
        except TypeError as error:  # a user's joint kind may branch on numbers, which tracing cannot
            raise UnavailableError(f"{task.name}: {error}") from error

    def argument(self, name: str) -> Argument:
        """Kind of the argument: an array, or an array that may be a float."""
        from robodyn.engines.cpu.native.entry import Argument

        return Argument("array", self.arrays.index(name), number=name in self.numbers)

    def number(self, name: str, value: Any) -> int:
        """Never called: these functions have no choices."""
        raise NotImplementedError


class _WithNumber(FastFunction):
    numbers = ("dt", "t")


class _FastConversion(FastFunction):
    """The fast path of a method of a `Converter`, for arrays of float64: results have the dtype of the arguments."""

    converts = False

    def task(self, calls: Any) -> tuple[ScalarTask, int | None]:
        """The method as a task."""
        return self.__self__.task(self.name), None


_ARRAYS = {
    "normalize": ("q",),
    "integrate": ("q", "qd", "dt"),
    "difference": ("q0", "q1"),
    "interpolate": ("q0", "q1", "t"),
    "distance": ("q0", "q1"),
    "integrate_gradient": ("q", "qd", "dt"),
    "difference_gradient": ("q0", "q1"),
}
_TASKS = {
    ("normalize", ("q",)): NORMALIZE,
    ("integrate", ("q", "qd")): INTEGRATE,
    ("integrate", ("q", "qd", "dt")): INTEGRATE_FOR,
    ("difference", ("q0", "q1")): DIFFERENCE,
    ("interpolate", ("q0", "q1", "t")): INTERPOLATE,
    ("distance", ("q0", "q1")): DISTANCE,
    ("integrate_gradient", ("q", "qd")): INTEGRATE_GRADIENT,
    ("integrate_gradient", ("q", "qd", "dt")): INTEGRATE_GRADIENT_FOR,
    ("difference_gradient", ("q0", "q1")): DIFFERENCE_GRADIENT,
}


def quicker(owner: Any, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """The `Early` object that replaces a function of a model, or a method of a `Converter`."""
    functions = owner.__dict__.setdefault(_KEPT, {})
    if name not in functions:
        if not isinstance(owner, Model):
            fast: FastFunction = _FastConversion(owner, name, method, tuple(signature(method).parameters))
        elif set(_ARRAYS[name]).isdisjoint(_WithNumber.numbers):
            fast = FastFunction(owner, name, method, _ARRAYS[name])
        else:
            fast = _WithNumber(owner, name, method, _ARRAYS[name])
        functions[name] = Early(fast)
    function: Callable[..., Any] = functions[name]
    return function


def engine_of(model: Model) -> CpuEngine | None:
    """The engine that compiles functions of a model; None if the CPU engine is not available."""
    from robodyn.engines.cpu.engine import CpuEngine

    if "_quick_engine" not in model.__dict__:
        try:
            engine = make_engine(model, np.dtype(np.float64), Options("cpu", threads=1))
        except UnavailableError:
            engine = None
        model.__dict__["_quick_engine"] = engine if isinstance(engine, CpuEngine) else None
    cached: CpuEngine | None = model.__dict__["_quick_engine"]
    return cached
