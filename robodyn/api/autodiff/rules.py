"""Interface to a library with automatic differentiation: functions with custom derivatives.

A `Smooth` function is computed by machine code. A `LinearMap` is the derivative of one: it maps vectors to vectors,
linearly, and depends on a state. Treating the derivative as an operation of its own, not as a product with Jacobians,
has two advantages. Its transpose, which reverse mode needs, costs a few inverse dynamics and no Jacobian. The
derivative of the transpose needs second derivatives of dynamics only in one combination: nv x nv numbers instead of
nv x nv x nv.
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
"""Arrays of the library with equally many leading axes, which broadcast."""
Rates: TypeAlias = Sequence[Any]
"""A rate of change for each of several arrays, None for arrays that do not change."""


class Smooth(ABC):
    """A function y = value(*x) whose first derivatives consist of operations that the library can differentiate."""

    @abstractmethod
    def value(self, *x: Any) -> Any:
        """The function itself."""

    @abstractmethod
    def tangent(self, x: Arrays, y: Any, rates: Rates) -> Any:
        """Forward mode: the rate of y = value(*x) for rates of x, of which not all are None. Linear in the rates."""

    @abstractmethod
    def pullback(self, x: Arrays, y: Any, weights: Any, wanted: Sequence[bool]) -> Rates:
        """Reverse mode: the gradient of sum(weights * y) with respect to each x that is `wanted`, None for others."""


class LinearMap(ABC):
    """A map that is linear in `vectors` and depends on `points`."""

    @property
    @abstractmethod
    def transposed(self) -> LinearMap:
        """The transposed map at the same points."""

    @abstractmethod
    def apply(self, points: Arrays, vectors: Arrays) -> Arrays:
        """The results of the map."""

    @abstractmethod
    def tangent(self, points: Arrays, vectors: Arrays, rates: Rates) -> Arrays:
        """The rates of the results for rates of the points and fixed vectors. Linear in the rates."""

    @abstractmethod
    def pullback(self, points: Arrays, vectors: Arrays, weights: Arrays) -> Arrays:
        """The gradient of sum(weights * results) with respect to each of the points, for fixed vectors."""


Body: TypeAlias = Callable[[Any, Mapping[str, Any]], tuple[Any, Any]]
"""Function of (state, slices of arrays by name) that returns the next state, and a tuple of arrays to stack or None."""


class Library(Protocol):
    """The operations that a differentiating library must provide."""

    xp: Any

    def constant(self, array: Array) -> Any:
        """Convert a NumPy array to the library: integers as they are, other numbers in the precision of robodyn."""

    def fixed(self, array: Any) -> Any:
        """The array as a constant for differentiation (stop gradient)."""

    def asked(self, dyn: Dynamics) -> Dynamics:
        """The `Dynamics` to use in place of the robot's own one."""

    def call(self, dyn: Dynamics, query: str, *arrays: Any) -> Arrays:
        """Results of a query with array arguments alone. An omitted vector stands for all unit vectors. Differentiating
        the results raises an error."""

    def run(self, call: Call, *arrays: Any) -> Arrays:
        """Results of a `Call`. Differentiating them raises an error."""

    def smooth(self, function: Smooth, *x: Any) -> Any:
        """The value of a `Smooth` function, differentiated by its rules."""

    def linear(self, linear: LinearMap, points: Arrays, vectors: Arrays) -> Arrays:
        """The results of a `LinearMap`, differentiated by its rules."""

    def scan(self, body: Body, state: Any, arrays: Mapping[str, Any], n: int) -> tuple[Any, Any]:
        """Apply `body` n times, to slice k of the arrays (n, ...) at a time. Returns the last state and the stacked
        second results of `body`."""

    def remade(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function with checkpointing: reverse mode stores only its arguments and recomputes the rest."""
