"""Derivatives of integrator steps by dual numbers.

An integrator adds and scales velocities, and asks a system for accelerations and for motions on the manifold. A `Dual`
is a vector with its derivative, and `Duals` is a system that returns dual numbers. An integrator on them returns the
state after the step and its derivatives by the state before and by tau (Griewank and Walther, Evaluating Derivatives,
2008, section 13.2). The derivatives of accelerations are analytical (Plancher et al., Accelerating Robot Dynamics
Gradients on a CPU, GPU, and FPGA, algorithm 3), and so are those of motions on the manifold (`tangent`). Derivatives by
configurations, and of configurations, are on tangent spaces.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from robodyn.core.integrators import Driven, Step
from robodyn.core.joints import JointKind
from robodyn.core.tangent import apart_by, bracket_matrix, moved_by
from robodyn.internals.records import dataclass

_TINY = 1e-37
"""A positive number that both precisions can represent. It makes the slope of |x| zero at x = 0."""


@dataclass(frozen=True)
class Diagonal:
    """A diagonal matrix. `values`: its numbers (..., nv), or one for all. `one`: the identity (nv, nv)."""

    values: Any
    one: Any

    def full(self) -> Any:
        """The full matrix (..., nv, nv)."""
        values = self.values
        return self.one * (values if isinstance(values, float) else values[..., None, :])


Slope: TypeAlias = Any
"""A matrix (..., n, nv), or a `Diagonal`."""
Slopes: TypeAlias = Mapping[str, Slope]
"""Derivatives by the names of variables; missing ones are zero."""


class Dual:
    """A vector over degrees of freedom (..., n), and its derivative."""

    __array_ufunc__ = None  # NumPy arrays on the left leave operations to this class

    def __init__(self, value: Any, by: Slopes) -> None:
        self.value, self.by = value, by

    def __add__(self, other: Any) -> Dual:
        if isinstance(other, Dual):
            return Dual(self.value + other.value, _sums(self.by, other.by))
        return Dual(self.value + other, self.by)

    __radd__ = __add__

    def __neg__(self) -> Dual:
        return Dual(-self.value, _scaled(self.by, -1.0))

    def __sub__(self, other: Any) -> Dual:
        return self.__add__(-other)

    def __rsub__(self, other: Any) -> Dual:
        return (-self).__add__(other)

    def __mul__(self, other: Any) -> Dual:
        if isinstance(other, Dual):
            by = _sums(_scaled(self.by, other.value), _scaled(other.by, self.value))
            return Dual(self.value * other.value, by)
        return Dual(self.value * other, _scaled(self.by, other))

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Dual:
        if not isinstance(other, Dual):
            return self.__mul__(1.0 / other)
        inverse = 1.0 / other.value
        value = self.value * inverse
        return Dual(value, _sums(_scaled(self.by, inverse), _scaled(other.by, -value * inverse)))

    def __rtruediv__(self, other: Any) -> Dual:
        inverse = 1.0 / self.value
        value = other * inverse
        return Dual(value, _scaled(self.by, -value * inverse))

    def __abs__(self) -> Dual:
        size = abs(self.value)
        return Dual(size, _scaled(self.by, self.value / (size + _TINY)))

    def __getitem__(self, at: tuple[Any, Any]) -> Dual:
        """Some of its entries: dual[..., at]."""
        return Dual(self.value[at], {name: full(slope)[..., at[1], :] for name, slope in self.by.items()})


@dataclass(frozen=True)
class Point:
    """A configuration (..., nq), and its derivative on the tangent space.

    `v_of` (nq,): index of the degree of freedom that a coordinate equals, if it equals one.
    """

    value: Any
    by: Slopes
    v_of: Any

    def __getitem__(self, at: tuple[Any, Any]) -> Dual:
        """Coordinates that equal degrees of freedom: point[..., at]."""
        rows = self.v_of[at[1]]
        return Dual(self.value[at], {name: full(slope)[..., rows, :] for name, slope in self.by.items()})


class Differentiable(Driven):
    """A driven system that also provides derivatives.

    `identity` (..., nv, nv): the identity matrix, an array like those of slopes. `v_of` (nq,): as in `Point`.
    """

    identity: Any
    v_of: Any

    @abstractmethod
    def gradient(self, q: Any, qd: Any, tau: Any, armature: Any) -> tuple[Any, Slopes]:
        """qdd, and its derivatives by "q", "qd" and "tau"; arguments as of `Driven.solved`."""

    @abstractmethod
    def blocks(self, operation: Callable[[JointKind, Any, Any], Any], v: Any) -> list[tuple[Any, Any]]:
        """For all joints with several degrees of freedom: their indices (n, k) or (k,), and
        operation(kind, their numbers in v, library)."""


class Duals(Driven):
    """A differentiable system on dual numbers."""

    def __init__(self, plain: Differentiable) -> None:
        self._plain, self._one = plain, Diagonal(1.0, plain.identity)
        tau = Dual(plain._given["tau"], {"tau": self._one})
        super().__init__({**plain._given, "tau": tau}, plain._limits, plain._moves)

    def flat(self, function: Callable[[Any], Any], values: Any) -> Any:
        """Numbers without derivatives."""
        return self._plain.flat(function, values.value if isinstance(values, Dual) else values)

    def start(self, q: Any, qd: Any) -> tuple[Point, Dual]:
        """The state with respect to which derivatives are taken."""
        return Point(q, {"q": self._one}, self._plain.v_of), Dual(qd, {"qd": self._one})

    def solved(self, q: Any, qd: Any, tau: Any, armature: Any) -> Dual:
        """qdd. Its derivatives solve H dqdd = dtau - dID - d(armature) qdd."""
        plain_armature = armature.value if isinstance(armature, Dual) else armature
        qdd, by = self._plain.gradient(q.value, qd.value, tau.value, plain_armature)
        force = tau.by
        if isinstance(armature, Dual):
            force = _sums(force, _scaled(armature.by, -qdd))
        changes = (("tau", force), ("q", q.by), ("qd", qd.by))
        return Dual(qdd, _sums(*(_turned(by[name], slopes) for name, slopes in changes)))

    def moved(self, q: Any, u: Any) -> Point:
        """q (+) u."""
        blocks = self._plain.blocks(moved_by, u.value)
        by = _sums(*(_rows_turned([(at, pair[k]) for at, pair in blocks], x.by) for k, x in enumerate((q, u))))
        return Point(self._plain.moved(q.value, u.value), by, q.v_of)

    def apart(self, q: Any, other: Any) -> Dual:
        """other (-) q."""
        step = self._plain.apart(q.value, other)
        # Blocks change sign here and again below, as only the sign of other joints' rows is to change.
        blocks = [(at, -by_q) for at, (by_q, _) in self._plain.blocks(apart_by, step)]
        return Dual(step, _scaled(_rows_turned(blocks, q.by), -1.0))

    def bracket(self, a: Any, b: Any) -> Dual:
        """The Lie bracket: [a, db] - [b, da]."""
        of_a, of_b = (self._plain.blocks(bracket_matrix, each.value) for each in (a, b))
        value = self._plain.bracket(a.value, b.value)
        if not of_a:
            return Dual(value, {})
        zeros = 0.0 * self._plain.identity
        return Dual(value, _sums(_rows_turned(of_a, b.by, zeros), _scaled(_rows_turned(of_b, a.by, zeros), -1.0)))

    def linear(self, v: Any) -> Dual:
        """The components in m/s."""
        return v * self._plain.linear(1.0)  # type: ignore[no-any-return]

    def turned(self, v: Any, u: Any) -> Dual:
        """exp(-ad_u) v. A change of u turns the result by J(u) du, as in `moved`."""
        value, zeros = self._plain.turned(v.value, u.value), 0.0 * self._plain.identity
        blocks = self._plain.blocks(moved_by, u.value)
        across = [each for _, each in self._plain.blocks(bracket_matrix, value)]
        by_u = [(at, ad @ J) for (at, (_, J)), ad in zip(blocks, across, strict=True)]
        by_v = _rows_turned([(at, turn) for at, (turn, _) in blocks], v.by)
        return Dual(value, _sums(by_v, _rows_turned(by_u, u.by, zeros)) if by_u else by_v)

    def spread(self, values: Any, on: Any) -> Any:
        """A vector over all degrees of freedom: `values` at the indices `on`, zeros elsewhere."""
        if not isinstance(values, Dual):
            return self._plain.spread(values, on)
        by = {}
        for name, slope in values.by.items():
            by[name] = 0.0 * self._plain.identity
            by[name][..., on, :] = slope
        return Dual(self._plain.spread(values.value, on), by)


def _sums(*slopes: Slopes) -> Slopes:
    """Derivatives of a sum."""
    total: dict[str, Slope] = {}
    for each in slopes:
        for name, slope in each.items():
            total[name] = _sum(total[name], slope) if name in total else slope
    return total


def _sum(a: Slope, b: Slope) -> Slope:
    if isinstance(a, Diagonal) and isinstance(b, Diagonal):
        return Diagonal(a.values + b.values, a.one)
    return full(a) + full(b)


def _scaled(slopes: Slopes, factor: Any) -> Slopes:
    """Derivatives of a vector times constants: one for all rows, or (..., n)."""
    column = factor if isinstance(factor, float) else factor[..., None]
    return {
        name: Diagonal(slope.values * factor, slope.one) if isinstance(slope, Diagonal) else slope * column
        for name, slope in slopes.items()
    }


def _turned(matrix: Any, slopes: Slopes) -> Slopes:
    """Derivatives of a matrix times a vector."""
    return {name: _product(matrix, slope) for name, slope in slopes.items()}


def _product(matrix: Any, slope: Slope) -> Any:
    if not isinstance(slope, Diagonal):
        return matrix @ slope
    values = slope.values
    return matrix * (values if isinstance(values, float) else values[..., None, :])


def _rows_turned(blocks: list[tuple[Any, Any]], slopes: Slopes, others: Any = None) -> Slopes:
    """Blocks of joints times the corresponding rows of derivatives. Other rows stay, or are those of `others`."""
    if not blocks:
        return slopes
    products = {}
    for name, slope in slopes.items():
        matrix = full(slope)
        products[name] = (matrix if others is None else others).copy()
        for at, block in blocks:
            products[name][..., at, :] = block @ matrix[..., at, :]
    return products


def full(slope: Slope) -> Any:
    """The full matrix of a slope."""
    return slope.full() if isinstance(slope, Diagonal) else slope


def step_gradient(
    integrator: Step, system: Differentiable, q: Any, qd: Any, dt: Any
) -> tuple[tuple[Any, Any], dict[tuple[str, str], Any]]:
    """The state after a step, and derivatives (..., nv, nv) of "q" and "qd" by "q", "qd" and "tau"; missing ones are
    zero."""
    duals = Duals(system)
    after = integrator(duals, *duals.start(q, qd), dt)
    gradients = {
        (name, by): full(slope)
        for name, state in zip(("q", "qd"), after, strict=True)
        for by, slope in state.by.items()
    }
    return (after[0].value, after[1].value), gradients
