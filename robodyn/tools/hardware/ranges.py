"""How large the values of a program become in a box of states: at samples, or by intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from robodyn.api.dynamics import Dynamics
from robodyn.compile.tracing.expression import ADD, CONSTANT, INPUT, MUL, NEG, SUB
from robodyn.compile.tracing.program import Program
from robodyn.core.model import Model
from robodyn.internals import strict_types
from robodyn.internals.arguments import Array, finite_real, real_array, require_finite
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import brief
from robodyn.internals.records import dataclass
from robodyn.tools.hardware.program import triangle

SAMPLES = 4096
_CHUNK = 256
"""Rows at a time: every value of a program is kept for them."""
_OUTWARD = 1.0 + 1e-9
"""More than what rounding in float64 takes from an interval."""
_FARTHEST = 1e9
"""Larger numbers are no states of robots, and their products would leave float64."""

Interval = tuple[float, float]


@dataclass(frozen=True, eq=False)
class Box:
    """The states that a datapath is made for.

    Args:
        qd: largest size of velocities, in SI units: a number, or one for each degree of freedom.
        qdd: the same of accelerations.
        Minv: largest size of the entries of M^-1, in SI units: a number or a symmetric matrix (nv, nv). None: what they
            are at samples over the robot's limits.
        q: (lower, upper) coordinates, each a number or (nq,). None: the robot's position limits; where it has none, a
            whole turn, or 1 m to either side.

    Raises:
        ArgumentError: not positive finite numbers.
    """

    qd: Any = 2.0
    qdd: Any = 10.0
    Minv: Any = None
    q: Any = None

    def __post_init__(self) -> None:
        for name in ("qd", "qdd", "Minv"):
            value = getattr(self, name)
            if value is None and name == "Minv":
                continue
            if finite_real(value) is None:
                array = real_array(f"Box({name}=)", value, (), np.float64)
                require_finite(f"Box({name}=)", array, array.ndim)
            sizes = np.asarray(value, np.float64)
            if not np.all((sizes >= 0.0) & (sizes <= _FARTHEST)) or not np.any(sizes > 0.0):
                raise ArgumentError(
                    f"Box({name}=): got {brief(value)}; wanted numbers from 0 to {_FARTHEST:g}, not all of them 0"
                )
        if self.q is not None and (
            not strict_types.is_a(self.q, tuple, list) or len(strict_types.members(self.q)) != 2
        ):
            raise ArgumentError(f"Box(q=): got {brief(self.q)}; wanted None, or a pair of lower and upper coordinates")

    def limits(self, model: Model) -> dict[str, tuple[Array, Array]]:
        """Lower and upper ends of q, qd and qdd, and of Minv (nv, nv) where they were given.

        Raises:
            ArgumentError: what was given has not the shape of this model, or leaves nothing between its ends.
        """
        found = {"q": self._coordinates(model)}
        for name in ("qd", "qdd"):
            most = _spread(f"Box({name}=)", getattr(self, name), (model.nv,))
            found[name] = -most, most
        if self.Minv is not None:
            most = _spread("Box(Minv=)", self.Minv, (model.nv, model.nv))
            if not np.array_equal(most, most.T):
                raise ArgumentError("Box(Minv=): got a matrix that is not symmetric; wanted one that is")
            found["Minv"] = -most, most
        return found

    def _coordinates(self, model: Model) -> tuple[Array, Array]:
        if self.q is not None:
            lower, upper = (_spread("Box(q=)", each, (model.nq,)) for each in strict_types.members(self.q))
            if not np.all((lower >= -_FARTHEST) & (lower <= upper) & (upper <= _FARTHEST)):
                raise ArgumentError(
                    f"Box(q=): got {brief(self.q)}; wanted lower coordinates below upper ones, up to "
                    f"{_FARTHEST:g} in size"
                )
            return lower, upper
        # What configurations are drawn from: limits, or a turn and a metre where there are none.
        lower, width = model.drawn_from
        return lower, lower + width

    def samples(self, model: Model, asked: tuple[str, ...], rows: int = SAMPLES, seed: int = 0) -> dict[str, Array]:
        """States of the box, `rows` of each array that is asked for: a half uniform, a half at its corners in all but
        q, and a quarter of those there too."""
        rng = np.random.default_rng(seed)
        limits = self.limits(model)
        found: dict[str, Array] = {}
        for name, (lower, upper) in limits.items():
            uniform = rng.uniform(lower, upper, (rows, *lower.shape))
            corner = np.where(rng.random(uniform.shape) < 0.5, lower, upper)
            share = 4 if name == "q" else 2
            found[name] = np.where((np.arange(rows) % share == 0).reshape(-1, *[1] * lower.ndim), corner, uniform)
        if "Minv" in found:
            upper_half = np.triu(found["Minv"])
            found["Minv"] = upper_half + np.swapaxes(np.triu(found["Minv"], 1), -1, -2)
        elif "Minv" in asked:
            found["Minv"] = Dynamics(model, engine="reference", constraints=()).mass_matrix_inverse(found["q"])
        return {name: found[name] for name in asked}


def _spread(name: str, value: Any, shape: tuple[int, ...]) -> Array:
    """A number, or an array of the shape, as an array of the shape."""
    number = finite_real(value)
    if number is not None:
        return np.full(shape, number)
    array = real_array(name, value, shape, np.float64)
    if array.shape != shape:
        raise ArgumentError(f"{name}: got shape {array.shape}; wanted a number or shape {shape}")
    require_finite(name, array, len(shape))
    return array


def host_inputs(program: Program, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """What the host gives to hardware: (rows, size) of each port, from q, qd, qdd and Minv (rows, ...)."""
    given = dict(arrays)
    given["sin"], given["cos"] = np.sin(arrays["q"]), np.cos(arrays["q"])
    if "Minv" in arrays:
        r, c = np.array(triangle(arrays["Minv"].shape[-1])).T
        given["minus_Minv"] = -arrays["Minv"][..., r, c]
    return {port.name: given[port.name] for port in program.inputs}


def values(program: Program, ports: Mapping[str, Array]) -> dict[int, Any]:
    """Every live value in float64: (rows,) arrays, or numbers."""
    found: dict[int, Any] = {
        int(node): ports[port.name][:, k]
        for port in program.inputs
        for k, node in enumerate(port.scalars)
        if node != -1
    }
    for index in program.live:
        operation, a, b = program.nodes[index]
        if operation == CONSTANT:
            found[index] = float(a)
        elif operation == NEG:
            found[index] = -found[a]
        elif operation == MUL:
            found[index] = found[a] * found[b]
        elif operation != INPUT:
            found[index] = found[a] + found[b] if operation == ADD else found[a] - found[b]
    return found


def chunks(ports: Mapping[str, Array]) -> Any:
    """The rows of arrays, some at a time."""
    rows = len(next(iter(ports.values())))
    for start in range(0, rows, _CHUNK):
        yield {name: array[start : start + _CHUNK] for name, array in ports.items()}


def input_intervals(program: Program, model: Model, box: Box, samples: Mapping[str, Array]) -> dict[int, Interval]:
    """Between which numbers each input lies. Where the box does not say, as of M^-1, samples do."""
    limits = box.limits(model)
    lower, upper = limits["q"]
    ends: dict[str, list[Interval]] = {
        name: list(zip(low.tolist(), high.tolist(), strict=True))
        for name, (low, high) in limits.items()
        if low.ndim == 1
    }
    ends["sin"] = [_cosine(a - 0.5 * math.pi, b - 0.5 * math.pi) for a, b in zip(lower, upper, strict=True)]
    ends["cos"] = [_cosine(a, b) for a, b in zip(lower, upper, strict=True)]
    if "Minv" in limits:
        most = limits["Minv"][1]
        ends["minus_Minv"] = [(-most[r, c], most[r, c]) for r, c in triangle(model.nv)]
    elif "minus_Minv" in samples:
        size = np.abs(samples["minus_Minv"]).max(axis=0)
        ends["minus_Minv"] = [(-x, x) for x in size.tolist()]
    return {
        int(node): ends[port.name][k] for port in program.inputs for k, node in enumerate(port.scalars) if node != -1
    }


def _cosine(a: float, b: float) -> Interval:
    """Between which numbers the cosine lies where its angle lies between a and b."""
    ends = (math.cos(a), math.cos(b))
    low = -1.0 if math.floor((b - math.pi) / (2 * math.pi)) >= math.ceil((a - math.pi) / (2 * math.pi)) else min(ends)
    high = 1.0 if math.floor(b / (2 * math.pi)) >= math.ceil(a / (2 * math.pi)) else max(ends)
    return low, high


def rotations(program: Program) -> dict[int, tuple[int, int]]:
    """Sums c x +- s y of the cosine and sine of one angle: (x, y) by the sum's node."""
    angle = {
        int(node): (port.name, k)
        for port in program.inputs
        if port.name in ("sin", "cos")
        for k, node in enumerate(port.scalars)
        if node != -1
    }
    found = {}
    for index in program.live:
        operation, *terms = program.nodes[index]
        if operation not in (ADD, SUB) or any(program.nodes[term][0] != MUL for term in terms):
            continue
        split = {}
        for term in terms:
            _, a, b = program.nodes[term]
            split.update({angle[m]: other for m, other in ((a, b), (b, a)) if m in angle})
        for (name, k), x in split.items():
            if name == "cos" and ("sin", k) in split and len(split) == 2:
                found[index] = x, split["sin", k]
    return found


def intervals(program: Program, given: Mapping[int, Interval]) -> dict[int, Interval]:
    """Between which numbers every live value lies, whatever the inputs in their intervals are.

    Sines and cosines of one angle that turn a vector are taken together: |c x - s y| is at most the vector's length.
    """
    turned = rotations(program)
    found: dict[int, Interval] = dict(given)
    for index in program.live:
        operation, a, b = program.nodes[index]
        if operation == INPUT:
            continue
        if operation == CONSTANT:
            found[index] = float(a), float(a)
            continue
        low, high = found[a]
        if operation == NEG:
            found[index] = -high, -low
            continue
        other_low, other_high = found[b]
        if operation == MUL:
            products = [x * y for x in (low, high) for y in (other_low, other_high)]
            ends = (max(0.0, min(products)) if a == b and low * high > 0.0 else min(products), max(products))
        elif operation == ADD:
            ends = low + other_low, high + other_high
        else:
            ends = low - other_high, high - other_low
        if index in turned:
            length = math.hypot(*(max(map(abs, found[part])) for part in turned[index]))
            ends = max(ends[0], -length), min(ends[1], length)
        found[index] = _wider(*ends)
    return found


def _wider(low: float, high: float) -> Interval:
    return (
        low * (_OUTWARD if low < 0.0 else 1.0 / _OUTWARD),
        high * (_OUTWARD if high > 0.0 else 1.0 / _OUTWARD),
    )
