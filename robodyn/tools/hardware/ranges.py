"""Ranges of the values of a program in a box of states, by samples or by interval arithmetic."""

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
"""Rows evaluated at a time; all values of a program are stored for them."""
_OUTWARD = 1.0 + 1e-9
"""Factor that widens intervals by more than the rounding errors of float64."""
_FARTHEST = 1e9
"""Largest allowed number; products of larger ones could overflow float64."""

Interval = tuple[float, float]


@dataclass(frozen=True, eq=False)
class Box:
    """The states for which a datapath is designed.

    Args:
        qd: largest magnitude of velocities, in SI units: a number, or one for each degree of freedom.
        qdd: the same for accelerations.
        Minv: largest magnitude of the entries of M^-1, in SI units: a number or a symmetric matrix (nv, nv). None: the
            largest at samples within the robot's limits.
        q: (lower, upper) coordinates, each a number or (nq,). None: the robot's position limits; without limits a full
            turn, or 1 m to either side.

    Raises:
        ArgumentError: numbers that are not positive and finite.
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
        """Lower and upper bounds of q, qd and qdd, and of Minv (nv, nv) if it was given.

        Raises:
            ArgumentError: a shape does not fit the model, or a lower bound exceeds the upper one.
        """
        limits = {"q": self._coordinates(model)}
        for name in ("qd", "qdd"):
            largest = _spread(f"Box({name}=)", getattr(self, name), (model.nv,))
            limits[name] = -largest, largest
        if self.Minv is not None:
            largest = _spread("Box(Minv=)", self.Minv, (model.nv, model.nv))
            if not np.array_equal(largest, largest.T):
                raise ArgumentError("Box(Minv=): got a matrix that is not symmetric; wanted one that is")
            limits["Minv"] = -largest, largest
        return limits

    def _coordinates(self, model: Model) -> tuple[Array, Array]:
        if self.q is not None:
            lower, upper = (_spread("Box(q=)", each, (model.nq,)) for each in strict_types.members(self.q))
            if not np.all((lower >= -_FARTHEST) & (lower <= upper) & (upper <= _FARTHEST)):
                raise ArgumentError(
                    f"Box(q=): got {brief(self.q)}; wanted lower coordinates below upper ones, up to "
                    f"{_FARTHEST:g} in size"
                )
            return lower, upper
        # The range of random configurations: limits, or a turn and a metre without limits.
        lower, width = model.drawn_from
        return lower, lower + width

    def samples(self, model: Model, asked: tuple[str, ...], rows: int = SAMPLES, seed: int = 0) -> dict[str, Array]:
        """Random states of the box, `rows` of each requested array. Half of the rows of qd, qdd and Minv, and a quarter
        of those of q, are corners of the box; the others are uniform."""
        rng = np.random.default_rng(seed)
        limits = self.limits(model)
        samples: dict[str, Array] = {}
        for name, (lower, upper) in limits.items():
            uniform = rng.uniform(lower, upper, (rows, *lower.shape))
            corner = np.where(rng.random(uniform.shape) < 0.5, lower, upper)
            share = 4 if name == "q" else 2
            samples[name] = np.where((np.arange(rows) % share == 0).reshape(-1, *[1] * lower.ndim), corner, uniform)
        if "Minv" in samples:
            upper_half = np.triu(samples["Minv"])
            samples["Minv"] = upper_half + np.swapaxes(np.triu(samples["Minv"], 1), -1, -2)
        elif "Minv" in asked:
            samples["Minv"] = Dynamics(model, engine="reference", constraints=()).mass_matrix_inverse(samples["q"])
        return {name: samples[name] for name in asked}


def _spread(name: str, value: Any, shape: tuple[int, ...]) -> Array:
    """Convert a number, or an array of the shape, to an array of the shape."""
    number = finite_real(value)
    if number is not None:
        return np.full(shape, number)
    array = real_array(name, value, shape, np.float64)
    if array.shape != shape:
        raise ArgumentError(f"{name}: got shape {array.shape}; wanted a number or shape {shape}")
    require_finite(name, array, len(shape))
    return array


def host_inputs(program: Program, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The hardware's inputs, which the host computes: (rows, size) by port, from q, qd, qdd and Minv (rows, ...)."""
    inputs = dict(arrays)
    inputs["sin"], inputs["cos"] = np.sin(arrays["q"]), np.cos(arrays["q"])
    if "Minv" in arrays:
        r, c = np.array(triangle(arrays["Minv"].shape[-1])).T
        inputs["minus_Minv"] = -arrays["Minv"][..., r, c]
    return {port.name: inputs[port.name] for port in program.inputs}


def values(program: Program, ports: Mapping[str, Array]) -> dict[int, Any]:
    """Every live value in float64: arrays (rows,), or numbers."""
    computed: dict[int, Any] = {
        int(node): ports[port.name][:, k]
        for port in program.inputs
        for k, node in enumerate(port.scalars)
        if node != -1
    }
    for index in program.live:
        operation, a, b = program.nodes[index]
        if operation == CONSTANT:
            computed[index] = float(a)
        elif operation == NEG:
            computed[index] = -computed[a]
        elif operation == MUL:
            computed[index] = computed[a] * computed[b]
        elif operation != INPUT:
            computed[index] = computed[a] + computed[b] if operation == ADD else computed[a] - computed[b]
    return computed


def chunks(ports: Mapping[str, Array]) -> Any:
    """The arrays in chunks of rows."""
    rows = len(next(iter(ports.values())))
    for start in range(0, rows, _CHUNK):
        yield {name: array[start : start + _CHUNK] for name, array in ports.items()}


def input_intervals(program: Program, model: Model, box: Box, samples: Mapping[str, Array]) -> dict[int, Interval]:
    """The interval of each input, from the box; for M^-1 without bounds in the box from samples."""
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
        largest = limits["Minv"][1]
        ends["minus_Minv"] = [(-largest[r, c], largest[r, c]) for r, c in triangle(model.nv)]
    elif "minus_Minv" in samples:
        size = np.abs(samples["minus_Minv"]).max(axis=0)
        ends["minus_Minv"] = [(-x, x) for x in size.tolist()]
    return {
        int(node): ends[port.name][k] for port in program.inputs for k, node in enumerate(port.scalars) if node != -1
    }


def _cosine(a: float, b: float) -> Interval:
    """The interval of the cosine for angles from a to b."""
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
    sums = {}
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
                sums[index] = x, split["sin", k]
    return sums


def intervals(program: Program, given: Mapping[int, Interval]) -> dict[int, Interval]:
    """Intervals of all live values by interval arithmetic, from the intervals of inputs.

    Rotations are bounded as a whole: |c x - s y| is at most the length of (x, y).
    """
    turned = rotations(program)
    bounds: dict[int, Interval] = dict(given)
    for index in program.live:
        operation, a, b = program.nodes[index]
        if operation == INPUT:
            continue
        if operation == CONSTANT:
            bounds[index] = float(a), float(a)
            continue
        low, high = bounds[a]
        if operation == NEG:
            bounds[index] = -high, -low
            continue
        other_low, other_high = bounds[b]
        if operation == MUL:
            products = [x * y for x in (low, high) for y in (other_low, other_high)]
            ends = (max(0.0, min(products)) if a == b and low * high > 0.0 else min(products), max(products))
        elif operation == ADD:
            ends = low + other_low, high + other_high
        else:
            ends = low - other_high, high - other_low
        if index in turned:
            length = math.hypot(*(max(map(abs, bounds[part])) for part in turned[index]))
            ends = max(ends[0], -length), min(ends[1], length)
        bounds[index] = _wider(*ends)
    return bounds


def _wider(low: float, high: float) -> Interval:
    return (
        low * (_OUTWARD if low < 0.0 else 1.0 / _OUTWARD),
        high * (_OUTWARD if high > 0.0 else 1.0 / _OUTWARD),
    )
