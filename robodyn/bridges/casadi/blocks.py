"""A query of a robot, and its first and second derivatives, as traced matrices in the layout of CasADi.

CasADi's matrices have two axes and are stored column by column. Derivatives are plain partial derivatives by every
number of an input, also by those of quaternions, which a query scales to unit length. They come from the analytical
queries of the table where it has them, on the tangent space, and from differentiating the program elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias, cast

import numpy as np

from robodyn.api.autodiff.coordinates import Coordinates
from robodyn.api.dynamics import Dynamics
from robodyn.compile.tracing.derivatives import against, along
from robodyn.compile.tracing.expression import Expression, Graph, Value
from robodyn.compile.tracing.joint_forces import JointForces
from robodyn.compile.tracing.program import Program
from robodyn.compile.tracing.unrolled import Record, record, unit_quaternions
from robodyn.core.sweeps import Inward, Outward
from robodyn.engines.query_table import BASE, QUERIES, QuerySpec, QueryVariant, every_query
from robodyn.internals.arguments import Array
from robodyn.internals.cached import cached_property
from robodyn.internals.errors import UnavailableError
from robodyn.internals.messages import quoted
from robodyn.internals.records import dataclass
from robodyn.internals.tuning import MAX_TRACED_BODIES, MAX_TRACED_STEPS

Pair: TypeAlias = tuple[str, str]
_ID = ("inverse_dynamics_gradient", {"q": "dtau_dq", "qd": "dtau_dqd"}, "inverse_dynamics_hessian")
_RULES: dict[str, tuple[str, Mapping[str, str], str]] = {
    "inverse_dynamics": _ID,
    "bias_force": _ID,
    "gravity_force": _ID,
    "forward_dynamics": (
        "forward_dynamics_gradient",
        {"q": "dqdd_dq", "qd": "dqdd_dqd", "tau": "dqdd_dtau"},
        "forward_dynamics_hessian",
    ),
    "distances": ("distances_gradient", {"q": "dd_dq"}, ""),
    "min_distance": ("min_distance_gradient", {"q": "dd_min_dq"}, ""),
}
"""For a query with analytical derivatives: the query of its gradient, its results by input, and that of its Hessian, if
there is one. Formulas of distances have selections whose slopes can be infinite: witness points give the derivative."""
_HESSIANS = {
    "inverse_dynamics_hessian": {
        ("q", "q"): "d2tau_dqdq",
        ("q", "qd"): "d2tau_dqdqd",
        ("qd", "qd"): "d2tau_dqddqd",
        ("q", "qdd"): "d2tau_dqdqdd",
    },
    "forward_dynamics_hessian": {
        ("q", "q"): "d2qdd_dqdq",
        ("q", "qd"): "d2qdd_dqdqd",
        ("qd", "qd"): "d2qdd_dqddqd",
        ("q", "tau"): "d2qdd_dqdtau",
    },
}


@dataclass(frozen=True)
class Matrix:
    """A traced matrix (rows, columns), with its scalars column by column. Numbers 0 are structural zeros, unless it is
    `dense`."""

    rows: int
    columns: int
    scalars: Sequence[Value]
    dense: bool = False

    @staticmethod
    def of(shape: Sequence[int], scalars: Sequence[Value]) -> Matrix:
        """A matrix from scalars in C order: vectors are columns, and leading axes of larger arrays are stacked."""
        columns = shape[-1] if len(shape) > 1 else 1
        rows = math.prod(shape) // columns if columns else math.prod(shape[:-1])
        order = np.arange(rows * columns).reshape(rows, columns).ravel(order="F")
        return Matrix(rows, columns, [scalars[k] for k in order.tolist()])

    @staticmethod
    def empty(like: Matrix) -> Matrix:
        """A matrix of the same shape without any number that is not zero."""
        return Matrix(like.rows, like.columns, (0.0,) * len(like.scalars))

    @cached_property
    def places(self) -> list[int]:
        """Indices of the scalars that are not structural zeros."""
        values = enumerate(self.scalars)
        return [k for k, value in values if self.dense or isinstance(value, Expression) or value != 0.0]

    @property
    def values(self) -> list[Value]:
        """The scalars that are not structural zeros."""
        return [self.scalars[k] for k in self.places]


@dataclass(frozen=True)
class Level:
    """A function of CasADi: its name, and matrices by name. Inputs that it does not read are `Matrix.empty`."""

    name: str
    graph: Graph
    inputs: dict[str, Matrix]
    outputs: dict[str, Matrix]

    @cached_property
    def program(self) -> Program:
        """The program of the values that are not structural zeros."""
        inputs = {f"in_{name}": ((len(each.values),), each.values) for name, each in self.inputs.items()}
        outputs = {f"out_{name}": ((len(each.values),), each.values) for name, each in self.outputs.items()}
        return Program.of(self.name, self.graph, cast(Any, inputs), outputs)


class Library:
    """NumPy for arrays of expressions."""

    sin, cos = (staticmethod(np.frompyfunc(each, 1, 1)) for each in (np.sin, np.cos))

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


class Blocks:
    """A traced query of a robot, and its derivatives.

    Args:
        dyn: the robot's `Dynamics`.
        question: the query.
        given: which optional arrays are inputs.
        link: index of the link, for queries about a single one.
        choices: `frame`, `classical`, `axes` and `places` of `robodyn.engines.query_table.QueryVariant`.

    Raises:
        UnavailableError: straight-line code would be too large.
    """

    def __init__(
        self, dyn: Dynamics, question: QuerySpec, given: Sequence[str], link: int | None, choices: Mapping[str, Any]
    ) -> None:
        self.dyn, self.model, self.question = dyn, dyn.model, question
        self.graph = Graph()
        traced = self._record(question, given, {}, link, choices)
        self.inputs = {name: Matrix.of(*each) for name, each in traced.inputs.items()}
        self.outputs = {name: Matrix.of(*each) for name, each in traced.outputs.items()}
        self._named = {name: scalars for name, (_, scalars) in traced.inputs.items()}
        self._has_rules = question.name in _RULES and not set(question.optional) & set(traced.inputs)

    def _record(
        self,
        question: QuerySpec,
        given: Sequence[str],
        scalars: Mapping[str, Sequence[Value]],
        link: int | None = None,
        choices: Mapping[str, Any] | None = None,
    ) -> Record:
        """The traced query in this graph, its results under their names."""
        model, counted = self.model, self.dyn.joint_forces
        arrays = [name for name in question.arrays if name in question.plain or name in given]
        inputs = tuple(name for name in arrays if name not in BASE)
        task = question.made(QueryVariant(model, inputs, damping="damping" in counted, **(choices or {})))
        lanes = any(isinstance(sweep, Outward | Inward) and sweep.lanes for sweep in task.sweeps)
        if model.n_bodies > MAX_TRACED_BODIES or (lanes and model.n_bodies * model.nv > MAX_TRACED_STEPS):
            raise UnavailableError(
                f"{question.name} of {quoted(model.name)}: {model.n_bodies} bodies are too many for code without "
                "loops; Dynamics computes it for robots of any size"
            )
        forces = JointForces(model, question.joint_forces, tuple(question.results), counted)
        of_one = question.of_link and (choices or {}).get("places") is None
        made = record(
            model,
            task,
            link=link if of_one else None,
            base=[name for name in arrays if name in BASE],
            joint_forces=forces,
            graph=self.graph,
            given=scalars,
        )
        outputs = dict(zip(question.results, made.outputs.values(), strict=True))
        return Record(made.graph, made.inputs, outputs)

    def level(self, name: str) -> Level:
        """The query itself."""
        return Level(name, self.graph, self.inputs, self.outputs)

    def derivatives(self, name: str, most: int) -> list[Level]:
        """The derivatives that take at most so many operations. Those of distances have none themselves."""
        if self.question.of_shapes:
            return [self.adjoint(name), self.jacobian(name)] if self._has_rules else []
        levels = [self.adjoint(name)]
        columns, rows = len(self._nodes), min(len(self._results), len(self._nodes))
        with suppress(UnavailableError):  # CasADi makes the Jacobian of a larger robot from adjoints
            if self._has_rules or self.level(name).program.operations * rows <= most:
                levels.append(self.jacobian(name))
            if self._has_rules or levels[0].program.operations * columns <= most:
                levels.append(self.hessian(name))
        return [each for each in levels if each.program.operations <= most]

    # Derivatives, under the names and with the arguments that CasADi wants of external functions.

    def jacobian(self, name: str) -> Level:
        """The derivatives of every output by every input."""
        unread = {f"out_{key}": Matrix.empty(each) for key, each in self.outputs.items()}
        blocks = {
            f"jac_{out}_{key}": _matrix(rows, len(result.scalars), len(self.inputs[key].scalars))
            for out, result in self.outputs.items()
            for key, rows in self._rows(result).items()
        }
        return Level(f"jac_{name}", self.graph, {**self.inputs, **unread}, blocks)

    def adjoint(self, name: str) -> Level:
        """The gradient of weights times outputs by every input."""
        if self.question.of_shapes:
            (result,) = self.outputs.values()
            columns = zip(*self._rows(result)["q"], strict=True)
            gradient = iter([_dot(column, self._weights_of_results) for column in columns])
        else:
            gradient = iter(against(self.graph, self._results, self._weights_of_results, self._nodes))
        adjoints = {
            f"adj_{key}": Matrix(each.rows, each.columns, [next(gradient) for _ in each.scalars], dense=True)
            for key, each in self.inputs.items()
        }
        return Level(f"adj1_{name}", self.graph, self._with_weights, adjoints)

    def hessian(self, name: str) -> Level:
        """The derivatives of the outputs of `adjoint` by all of its inputs."""
        adjoint = self.adjoint(name)
        unread = {f"out_{key}": Matrix.empty(each) for key, each in adjoint.outputs.items()}
        outputs = {}
        for key, rows in self._second(adjoint).items():
            n = len(self.inputs[key].scalars)
            for other, matrix in adjoint.inputs.items():
                width = len(matrix.scalars)
                block = rows.get(other, [[0.0] * width for _ in range(n)])
                outputs[f"jac_adj_{key}_{other}"] = _matrix(block, n, width)
        return Level(f"jac_adj1_{name}", self.graph, {**adjoint.inputs, **unread}, outputs)

    @property
    def _nodes(self) -> list[int]:
        """The nodes of all inputs."""
        return [cast(Expression, each).index for matrix in self.inputs.values() for each in matrix.scalars]

    @property
    def _results(self) -> list[Value]:
        return [value for each in self.outputs.values() for value in each.scalars]

    @property
    def _weights_of_results(self) -> list[Value]:
        return [value for each in self._weights.values() for value in each.scalars]

    @cached_property
    def _weights(self) -> dict[str, Matrix]:
        """A weight for each result that is not structurally zero."""
        weights = {}
        for key, each in self.outputs.items():
            scalars: list[Value] = [0.0] * len(each.scalars)
            for k in each.places:
                scalars[k] = self.graph.input()
            weights[f"adj_{key}"] = Matrix(each.rows, each.columns, scalars)
        return weights

    @property
    def _with_weights(self) -> dict[str, Matrix]:
        unread = {f"out_{key}": Matrix.empty(each) for key, each in self.outputs.items()}
        return {**self.inputs, **unread, **self._weights}

    def _rows(self, result: Matrix) -> dict[str, list[list[Value]]]:
        """The rows of the derivatives of an output, by input."""
        if self._has_rules:
            return {key: _times(rows, self._velocities if key == "q" else None) for key, rows in self._gradient.items()}
        flat = _jacobian(self.graph, result.scalars, self._nodes)
        return self._split(flat)

    def _split(self, rows: list[list[Value]]) -> dict[str, list[list[Value]]]:
        """Columns of all inputs, by input."""
        parts, start = {}, 0
        for key, each in self.inputs.items():
            end = start + len(each.scalars)
            parts[key] = [row[start:end] for row in rows]
            start = end
        return parts

    # Analytical derivatives, on the tangent space.

    @cached_property
    def _state(self) -> dict[str, Sequence[Value]]:
        """The inputs by name, and zeros for those that a query such as `bias_force` leaves out."""
        gradient, _, _ = _RULES[self.question.name]
        return {name: self._named.get(name, [0.0] * self.model.nv) for name in every_query()[gradient].inputs}

    @cached_property
    def _gradient(self) -> dict[str, list[list[Value]]]:
        """Rows of the derivatives by each input, for q on the tangent space."""
        query, results, _ = _RULES[self.question.name]
        outputs = self._record(every_query()[query], (), self._state).outputs
        if "qdd" in self.inputs:
            results = {**results, "qdd": "H"}
            outputs.update(self._record(QUERIES["mass_matrix"], (), {"q": self._state["q"]}).outputs)
        return {name: _rows_of(outputs[results[name]][1], self.model.nv) for name in self.inputs}

    @cached_property
    def _velocities(self) -> list[list[Value]] | None:
        """The matrix V (nv, nq) of velocity = V rate of coordinates, or None where both are the same."""
        coordinates = Coordinates(self.model, Library())
        if coordinates._additive:
            return None
        q = self._state["q"]
        unit = unit_quaternions(self.model, q)
        columns = []
        for each in q:
            rate = along(self.graph, unit, {cast(Expression, each).index: 1.0})
            columns.append(coordinates.velocity(_array(unit), _array(rate)).tolist())
        return [list(row) for row in zip(*columns, strict=True)]

    def _second(self, adjoint: Level) -> dict[str, dict[str, list[list[Value]]]]:
        """Rows of the derivatives of the adjoint of each input, by input and weight."""
        if not self._has_rules:
            moving = {key: each for key, each in adjoint.inputs.items() if key in self.inputs or key in self._weights}
            nodes = [v.index if isinstance(v, Expression) else -1 for each in moving.values() for v in each.scalars]
            found = {}
            for key, each in self.inputs.items():
                rows = _jacobian(self.graph, adjoint.outputs[f"adj_{key}"].scalars, nodes, by_columns=True)
                parts, start = {}, 0
                for other, matrix in moving.items():
                    end = start + len(matrix.scalars)
                    parts[other] = [row[start:end] for row in rows]
                    start = end
                found[key] = parts if each.scalars else {}
            return found
        (seed,) = self._weights
        by_weight = self._rows(next(iter(self.outputs.values())))
        found = {key: {seed: [list(row) for row in zip(*by_weight[key], strict=True)]} for key in self.inputs}
        for (first, second), block in self._curvature().items():
            found[first][second] = block
        return found

    def _curvature(self) -> dict[Pair, list[list[Value]]]:
        """Second derivatives of weights times the result."""
        query = _RULES[self.question.name][2]
        (weights,) = (each.scalars for each in self._weights.values())
        outputs = self._record(QUERIES[query], (), {**self._state, "vector": weights}).outputs
        tangent = {pair: _rows_of(outputs[name][1], self.model.nv) for pair, name in _HESSIANS[query].items()}
        V, blocks = self._velocities, {}
        for (first, second), rows in tangent.items():
            if first in self.inputs and second in self.inputs:
                half = _times(rows, V if second == "q" else None)
                block = _transposed_times(V, half) if first == "q" else half
                blocks[first, second] = block
                if first != second:
                    blocks[second, first] = [list(row) for row in zip(*block, strict=True)]
        if V is not None:
            self._add_bending(blocks["q", "q"], V, weights)
        return blocks

    def _add_bending(self, block: list[list[Value]], V: list[list[Value]], weights: Sequence[Value]) -> None:
        """Add the change of V itself: the sum over k of the gradient's entry k times dV[k, a] / dq_j."""
        gradient = [
            sum((w * row[k] for w, row in zip(weights, self._gradient["q"], strict=True)), 0.0) for k in range(len(V))
        ]
        flat = [entry for row in V for entry in row]
        n = len(block)
        for j, each in enumerate(self._state["q"]):
            change = along(self.graph, flat, {cast(Expression, each).index: 1.0})
            for a in range(n):
                block[a][j] = block[a][j] + sum((g * change[k * n + a] for k, g in enumerate(gradient)), 0.0)


def _jacobian(
    graph: Graph, results: Sequence[Value], nodes: Sequence[int], by_columns: bool = False
) -> list[list[Value]]:
    """Rows of the derivatives of results by input nodes; -1 stands for a column of zeros. In reverse mode if there are
    fewer results than inputs."""
    if len(results) < len(nodes) and not by_columns:
        return [against(graph, [each], [1.0], nodes) for each in results]
    zeros: list[Value] = [0.0] * len(results)
    columns = [along(graph, results, {node: 1.0}) if node >= 0 else zeros for node in nodes]
    return [list(row) for row in zip(*columns, strict=True)] if columns else [[] for _ in results]


def _matrix(rows: list[list[Value]], height: int, width: int) -> Matrix:
    return Matrix(height, width, [rows[i][j] for j in range(width) for i in range(height)])


def _rows_of(scalars: Sequence[Value], n: int) -> list[list[Value]]:
    return [list(scalars[start : start + n]) for start in range(0, len(scalars), n)]


def _times(rows: list[list[Value]], V: list[list[Value]] | None) -> list[list[Value]]:
    """Rows times V, or the rows themselves."""
    if V is None:
        return rows
    columns = list(zip(*V, strict=True))
    return [[_dot(row, column) for column in columns] for row in rows]


def _transposed_times(V: list[list[Value]] | None, rows: list[list[Value]]) -> list[list[Value]]:
    if V is None:
        return rows
    columns = list(zip(*rows, strict=True))
    return [[_dot(left, column) for column in columns] for left in zip(*V, strict=True)]


def _dot(a: Sequence[Value], b: Sequence[Value]) -> Value:
    return sum((x * y for x, y in zip(a, b, strict=True)), 0.0)


def _array(scalars: Sequence[Value]) -> Array:
    out = np.empty(len(scalars), dtype=object)
    for k, value in enumerate(scalars):
        out[k] = value
    return out
