"""What a library that differentiates is asked for, and what it is given: functions with derivatives of their own.

Two kinds of functions need them. A `Smooth` function is one that machine code computes. A `LinearMap` is a derivative
of one: vectors in, vectors out, linear, and dependent on a state. That it is an operation of its own, rather than a
product with Jacobians, has two reasons. Its transpose, which is what derivatives in reverse need, can be computed
without Jacobians, for the cost of a few inverse dynamics. And the derivative of that takes second derivatives of
dynamics only in the combination that is asked for, nv x nv numbers instead of nv x nv x nv.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from robodyn.internals.arguments import Array

if TYPE_CHECKING:
    from robodyn.api.autodiff.calls import Call
    from robodyn.api.dynamics import Dynamics

Arrays: TypeAlias = tuple[Any, ...]
"""Arrays of the library, whose leading axes are equally many and broadcast."""
Rates: TypeAlias = Sequence[Any]
"""A rate of change for each of some arrays, None where an array does not change."""


class Smooth(ABC):
    """y = value(*x), and its first derivatives, made of operations that the library can differentiate again."""

    @abstractmethod
    def value(self, *x: Any) -> Any:
        """The function itself."""

    @abstractmethod
    def tangent(self, x: Arrays, y: Any, rates: Rates) -> Any:
        """The rate of y = value(*x) at rates of x, not all of them None; linear in them."""

    @abstractmethod
    def pullback(self, x: Arrays, y: Any, weights: Any, wanted: Sequence[bool]) -> Rates:
        """The gradient of the sum of weights * y with respect to those of x that are wanted, None for the others."""


class LinearMap(ABC):
    """Results of vectors, linear in them, at some points."""

    @property
    @abstractmethod
    def transposed(self) -> LinearMap:
        """The map from what this one results in to what it takes, at the same points."""

    @abstractmethod
    def apply(self, points: Arrays, vectors: Arrays) -> Arrays:
        """The results."""

    @abstractmethod
    def tangent(self, points: Arrays, vectors: Arrays, rates: Rates) -> Arrays:
        """The rates of the results at rates of the points, while vectors are fixed; linear in the rates."""

    @abstractmethod
    def pullback(self, points: Arrays, vectors: Arrays, weights: Arrays) -> Arrays:
        """The gradient of the sum of weights * results with respect to each of the points, while vectors are fixed."""


Body: TypeAlias = Callable[[Any, Mapping[str, Any]], tuple[Any, Any]]
"""(state, slices of arrays by name) to the next state and what to keep of it, a tuple of arrays or None."""


class Library(Protocol):
    """What is asked of a library that differentiates."""

    xp: Any

    def constant(self, array: Array) -> Any:
        """An array of the library from one of NumPy: of integers as they are, otherwise in the precision of robodyn."""

    def fixed(self, array: Any) -> Any:
        """The same array, which derivatives take for a constant."""

    def asked(self, dyn: Dynamics) -> Dynamics:
        """What is asked in place of a robot's own `Dynamics`."""

    def call(self, dyn: Dynamics, query: str, *arrays: Any) -> Arrays:
        """Results of a plain call of a query of robodyn; a vector may be left out, and then stands for every unit
        vector. They have no derivatives: who differentiates them gets an error."""

    def run(self, call: Call, *arrays: Any) -> Arrays:
        """Results of a computation of robodyn, likewise."""

    def smooth(self, function: Smooth, *x: Any) -> Any:
        """The function's value, which is differentiated as the function says."""

    def linear(self, linear: LinearMap, points: Arrays, vectors: Arrays) -> Arrays:
        """The map's results, which are differentiated as the map says."""

    def scan(self, body: Body, state: Any, arrays: Mapping[str, Any], n: int) -> tuple[Any, Any]:
        """The state after n times `body`, and what it has kept, stacked; arrays (n, ...) have a slice for each."""

    def remade(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, of which reverse mode keeps the arguments alone, and computes the rest again."""
