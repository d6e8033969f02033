"""The associative operators of rigid-body dynamics, written once over scalars.

An element summarises a stretch: some consecutive bodies of a path. `compose(a, b)` is the stretch a followed by b, with
b nearer the leaves. Elements are arrays (size, n, ...), see `robodyn.engines.scan.elements`.

| name | element | meaning |
|---|---|---|
| `POSES` | (E, r) | transforms: thesis of Lynghus, section 5.2.4 |
| `AFFINE_MOTIONS` | (X, b) | x -> X x + b on motions: first-order recurrences (Blelloch) |
| `TWIST_PAIRS` | (g, xi1, xi2) | velocities and accelerations at once (Yang, Wu, Pan 2016, eq. 13 and 14) |
| `AFFINE_FORCES` | (X, f) | x -> X' x + f on forces, towards the root (eq. 16 without the joint torques, its outputs) |
| `sums(k)` | k numbers | addition |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, fields
from functools import cache
from typing import Any, NamedTuple, TypeAlias

from robodyn.core.spatial import IDENTITY, ZERO_FORCE, ZERO_MOTION, Force, Motion, Scalar, Transform, add
from robodyn.core.sweeps import FieldType
from robodyn.engines.scan.elements import library, stored
from robodyn.engines.scan.elementwise import Elementwise
from robodyn.internals.arguments import Array, count
from robodyn.internals.cached import cached_property
from robodyn.internals.records import dataclass

_MOST_SCALARS = 1 << 16

Quantity: TypeAlias = Any
"""An element, as a tuple of spatial quantities."""


@dataclass(frozen=True)
class Semigroup:
    """An associative operator on tuples of scalars, with its identity and, if it has one, its inverse.

    `identity`: the identity, whose nesting also defines the form of elements; `then`: the operator; `undo`: the inverse
    or None; `commutative`: True for commutative operators; `plain`: True for the sum of numbers, for which array
    libraries have cumulative sums.
    """

    name: str
    identity: Quantity
    then: Callable[[Quantity, Quantity], Quantity]
    undo: Callable[[Quantity], Quantity] | None = None
    commutative: bool = False
    plain: bool = False
    field: FieldType = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "field", FieldType(self.identity))

    def __getstate__(self) -> dict[str, Any]:
        """The dataclass fields. Compiled machine code is not pickled."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @cached_property
    def size(self) -> int:
        """Scalars in an element."""
        return self.field.size(0)

    def compose(self, a: Array, b: Array, out: Array | None = None) -> Array:
        """Stretches a followed by stretches b, element by element. An axis of length 1 in `a` broadcasts.

        `out`: an array for the result; it must not share memory with a and b.
        """
        if self.plain:
            return library(b).add(a, b, out=out)  # type: ignore[no-any-return]
        return self.step(a, b, out=out)

    def inverse(self, a: Array) -> Array:
        """The inverse elements of `a`."""
        if self.plain:
            return -a
        return self._undo(a)

    @cached_property
    def step(self) -> Elementwise:
        """The operator as an `Elementwise` step, also for plain sums."""
        return Elementwise(self.then, self.field, self.field, self.field)

    @cached_property
    def _undo(self) -> Elementwise:
        assert self.undo is not None
        return Elementwise(self.undo, self.field, self.field)

    def identities(self, like: Array, n: int) -> Array:
        """n identity elements, with the library, dtype and trailing axes of the element array `like`."""
        return stored(self.identity, library(like).empty((self.size, n, *like.shape[2:]), like.dtype))


def _then_pose(a: Transform, b: Transform) -> Transform:
    return b.after(a)


POSES = Semigroup("pose", IDENTITY, _then_pose, Transform.inverse)


class AffineMotion(NamedTuple):
    """x -> X x + b."""

    X: Transform
    b: Motion


def _then_motion(a: AffineMotion, b: AffineMotion) -> AffineMotion:
    return AffineMotion(b.X.after(a.X), b.X.motion(a.b) + b.b)


def _undo_motion(a: AffineMotion) -> AffineMotion:
    return AffineMotion(a.X.inverse(), a.X.motion_back(a.b).scaled(-1.0))


AFFINE_MOTIONS = Semigroup("affine motion", AffineMotion(IDENTITY, ZERO_MOTION), _then_motion, _undo_motion)


class TwistPair(NamedTuple):
    """(g, xi1, xi2): a transform, an acceleration and a velocity."""

    g: Transform
    xi1: Motion
    xi2: Motion


def _then_twists(a: TwistPair, b: TwistPair) -> TwistPair:
    """Eq. 13. Its left operand, the one nearer the leaves, is b here."""
    moved = b.g.motion(a.xi2)
    return TwistPair(b.g.after(a.g), b.g.motion(a.xi1) + b.xi1 - b.xi2.cross(moved), moved + b.xi2)


def _undo_twists(a: TwistPair) -> TwistPair:
    """Eq. 14."""
    return TwistPair(a.g.inverse(), a.g.motion_back(a.xi1).scaled(-1.0), a.g.motion_back(a.xi2).scaled(-1.0))


TWIST_PAIRS = Semigroup("twist pair", TwistPair(IDENTITY, ZERO_MOTION, ZERO_MOTION), _then_twists, _undo_twists)


class AffineForce(NamedTuple):
    """x -> X' x + f, from the frame nearer the leaves to the one nearer the root."""

    X: Transform
    f: Force


def _then_force(a: AffineForce, b: AffineForce) -> AffineForce:
    return AffineForce(b.X.after(a.X), a.f + a.X.force_back(b.f))


def _undo_force(a: AffineForce) -> AffineForce:
    return AffineForce(a.X.inverse(), a.X.force(a.f).scaled(-1.0))


AFFINE_FORCES = Semigroup("affine force", AffineForce(IDENTITY, ZERO_FORCE), _then_force, _undo_force)


def _negated(a: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
    return tuple(-x for x in a)


def sums(size: int) -> Semigroup:
    """Sums of `size` numbers.

    Raises:
        ArgumentError: `size` is not an integer from 1 to 65536.
    """
    return _sums(count("size", size, 1, _MOST_SCALARS))


@cache
def _sums(size: int) -> Semigroup:
    return Semigroup(f"sum of {size}", (0.0,) * size, add, _negated, commutative=True, plain=True)
