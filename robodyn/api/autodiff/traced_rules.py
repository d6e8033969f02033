"""Queries without rules of their own: derivatives of any order, each a straight-line program that engines compile.

The derivative of a program is a program (`robodyn.compile.tracing.derivatives`), forwards and backwards, and so is that
of the derivative. Rules by hand (`dynamics_rules`) take fewer operations, and robots of any size."""

from __future__ import annotations

from abc import abstractmethod

from robodyn.api.autodiff.calls import Call
from robodyn.api.autodiff.rules import Arrays, Library, LinearMap, Rates
from robodyn.internals.records import dataclass


@dataclass(frozen=True)
class _OfCall(LinearMap):
    """What one program computes of a call's arguments, which are the points, and of vectors."""

    call: Call
    library: Library

    @property
    @abstractmethod
    def own(self) -> Call:
        """The program: its arguments are the points, then the vectors."""

    def apply(self, points: Arrays, vectors: Arrays) -> Arrays:
        """Its results."""
        return self.library.run(self.own, *points, *vectors)

    def tangent(self, points: Arrays, vectors: Arrays, rates: Rates) -> Arrays:
        """The program differentiated forwards, by those points that change."""
        moved = {name: rate for name, rate in zip(self.call.inputs, rates, strict=True) if rate is not None}
        differential = Differential(self.own, self.library, tuple(moved))
        return self.library.linear(differential, (*points, *vectors), tuple(moved.values()))

    def pullback(self, points: Arrays, vectors: Arrays, weights: Arrays) -> Arrays:
        """The program differentiated backwards, by all points."""
        gradient = Gradient(self.own, self.library, tuple(self.call.inputs))
        return self.library.linear(gradient, (*points, *vectors), weights)


@dataclass(frozen=True)
class Answers(_OfCall):
    """The results of a call, which depend on points alone: there are no vectors."""

    @property
    def own(self) -> Call:
        """The call."""
        return self.call

    @property
    def transposed(self) -> LinearMap:
        """Itself: without vectors there is nothing to turn round."""
        return self


@dataclass(frozen=True)
class Differential(_OfCall):
    """Rates of some of a call's inputs, `wrt`, to those of its results."""

    wrt: tuple[str, ...]

    @property
    def own(self) -> Call:
        """The call's program differentiated forwards."""
        return self.call.along(self.wrt)

    @property
    def transposed(self) -> LinearMap:
        """Weights to gradients."""
        return Gradient(self.call, self.library, self.wrt)


@dataclass(frozen=True)
class Gradient(_OfCall):
    """Weights of a call's results to the gradient of their sum by some of its inputs, `wrt`."""

    wrt: tuple[str, ...]

    @property
    def own(self) -> Call:
        """The call's program differentiated backwards."""
        return self.call.against(self.wrt)

    @property
    def transposed(self) -> LinearMap:
        """Rates to rates."""
        return Differential(self.call, self.library, self.wrt)
