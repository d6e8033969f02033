"""Derivatives of any order by differentiating straight-line programs, for queries without rules written by hand.

The derivative of a program, in forward or reverse mode, is again a program (`robodyn.compile.tracing.derivatives`). The
rules in `dynamics_rules` take fewer operations and work for robots of any size."""

from __future__ import annotations

from abc import abstractmethod

from robodyn.api.autodiff.calls import Call
from robodyn.api.autodiff.rules import Arrays, Library, LinearMap, Rates
from robodyn.internals.records import dataclass


@dataclass(frozen=True)
class _OfCall(LinearMap):
    """A linear map computed by one program. Its points are the arguments of `call`."""

    call: Call
    library: Library

    @property
    @abstractmethod
    def own(self) -> Call:
        """The program: its arguments are the points, then the vectors."""

    def apply(self, points: Arrays, vectors: Arrays) -> Arrays:
        """Run the program."""
        return self.library.run(self.own, *points, *vectors)

    def tangent(self, points: Arrays, vectors: Arrays, rates: Rates) -> Arrays:
        """The program in forward mode, with respect to the points that change."""
        moved = {name: rate for name, rate in zip(self.call.inputs, rates, strict=True) if rate is not None}
        differential = Differential(self.own, self.library, tuple(moved))
        return self.library.linear(differential, (*points, *vectors), tuple(moved.values()))

    def pullback(self, points: Arrays, vectors: Arrays, weights: Arrays) -> Arrays:
        """The program in reverse mode, with respect to all points."""
        gradient = Gradient(self.own, self.library, tuple(self.call.inputs))
        return self.library.linear(gradient, (*points, *vectors), weights)


@dataclass(frozen=True)
class Answers(_OfCall):
    """The results of a call. They depend on points alone; there are no vectors."""

    @property
    def own(self) -> Call:
        """The call itself."""
        return self.call

    @property
    def transposed(self) -> LinearMap:
        """The object itself: without vectors there is nothing to transpose."""
        return self


@dataclass(frozen=True)
class Differential(_OfCall):
    """Maps rates of the inputs `wrt` of a call to rates of its results."""

    wrt: tuple[str, ...]

    @property
    def own(self) -> Call:
        """The call's program in forward mode."""
        return self.call.along(self.wrt)

    @property
    def transposed(self) -> LinearMap:
        """The map from weights to gradients."""
        return Gradient(self.call, self.library, self.wrt)


@dataclass(frozen=True)
class Gradient(_OfCall):
    """Maps weights of a call's results to the gradient of sum(weights * results) with respect to the inputs `wrt`."""

    wrt: tuple[str, ...]

    @property
    def own(self) -> Call:
        """The call's program in reverse mode."""
        return self.call.against(self.wrt)

    @property
    def transposed(self) -> LinearMap:
        """The map from rates to rates."""
        return Differential(self.call, self.library, self.wrt)
