"""Traces a gradient into a program of sums, products and negations, the operations of the hardware.

Programs of `robodyn.compile.tracing` must consist of the operations `in, const, add, sub, mul, neg`. Sines and cosines
of coordinates become inputs that the host computes. So does -M^-1, whose product with the gradient of inverse dynamics
is the gradient of forward dynamics (Plancher et al., Accelerating Robot Dynamics Gradients on a CPU, GPU, and FPGA,
algorithm 3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from robodyn.algorithms.idsva import idsva
from robodyn.algorithms.rnea_gradient import rnea_gradient
from robodyn.algorithms.tasks import ScalarTask, Sized
from robodyn.compile.tracing.expression import (
    ADD,
    CONSTANT,
    COS,
    INPUT,
    MUL,
    NEG,
    OPERATION_NAMES,
    SIN,
    SUB,
    Expression,
    Graph,
    Value,
)
from robodyn.compile.tracing.program import Program
from robodyn.compile.tracing.unrolled import trace
from robodyn.core.model import Model
from robodyn.core.sweeps import Algorithm
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import quoted
from robodyn.internals.records import dataclass

FORMULATIONS: Mapping[str, Callable[[], Algorithm]] = {"idsva": idsva, "algorithm 2": rnea_gradient}
"""Algorithms for the gradient of inverse dynamics: composites of subtrees, or RNEA differentiated line by line with a
column for each joint, as in the paper."""
MOST_VISITS = 4096
"""Limit of bodies times columns. A larger robot needs more operations than any device has."""


@dataclass(frozen=True)
class Query:
    """A query of datapaths: the arrays that a call takes, and its results in order."""

    inputs: tuple[str, ...]
    results: tuple[str, ...]


QUERIES = {
    "forward_dynamics_gradient": Query(("q", "qd", "qdd", "Minv"), ("dqdd_dq", "dqdd_dqd")),
    "inverse_dynamics_gradient": Query(("q", "qd", "qdd"), ("dtau_dq", "dtau_dqd")),
}


def triangle(n: int) -> list[tuple[int, int]]:
    """Rows and columns of the upper triangle of a symmetric matrix, row by row."""
    return [(r, c) for r in range(n) for c in range(r, n)]


@cache
def _task(query: str, formulation: str, nv: int) -> ScalarTask:
    """The task of a query. Its input -M^-1 is the upper triangle."""
    algorithm = FORMULATIONS[formulation]()
    asked = QUERIES[query]
    place = {pair: k for k, pair in enumerate(triangle(nv))}

    def text(
        model: Model, given: Mapping[str, Any], results: Callable[[Algorithm], Mapping[str, Any]]
    ) -> Mapping[str, Any]:
        """The gradient of inverse dynamics; for forward dynamics multiplied by -M^-1."""
        gradient = results(algorithm)
        gradients: tuple[Any, Any] = gradient["tau_q"], gradient["tau_qd"]
        if "Minv" in asked.inputs:
            gradients = product(given["minus_Minv"], gradients[0]), product(given["minus_Minv"], gradients[1])
        return dict(zip(asked.results, gradients, strict=True))

    def product(minus_Minv: Sequence[Value], tau: Sequence[Value]) -> list[Value]:
        """-M^-1, given by its upper triangle, times the columns of tau."""
        entries: list[Value] = []
        for r in range(nv):
            for c in range(nv):
                entry: Value = 0.0
                for k in range(nv):
                    entry = entry + minus_Minv[place[min(r, k), max(r, k)]] * tau[nv * k + c]
                entries.append(entry)
        return entries

    given = {"q": Sized(("nq",)), **dict.fromkeys(("qd", "qdd"), Sized(("nv",)))}
    if "Minv" in asked.inputs:
        given["minus_Minv"] = Sized((len(place),))
    return ScalarTask(
        f"{query}_{formulation.replace(' ', '_')}", given, dict.fromkeys(asked.results, Sized(("nv", "nv"))), text
    )


def traced(model: Model, query: str, formulation: str) -> Program:
    """The query on a model as a program of the hardware's operations.

    Inputs are "q", "sin" and "cos" (of q), "qd", "qdd" and "minus_Minv" (the upper triangle of -M^-1), as far as they
    are needed.

    Raises:
        ArgumentError: the robot has joints with quaternions or mimic joints, or it is too large.
    """
    visits = model.n_bodies * model.nv
    if visits > MOST_VISITS:
        raise ArgumentError(
            f"datapath: {quoted(model.name)} has {model.n_bodies} bodies and {model.nv} degrees of freedom; wanted at "
            f"most {MOST_VISITS} pairs of them"
        )
    if model.nv == 0:
        raise ArgumentError(f"datapath: {quoted(model.name)} has no degree of freedom, so nothing has a gradient")
    _require_known_joints(model)
    program = trace(model, _task(query, formulation, model.nv))
    return with_sines_given(program, model)


def _require_known_joints(model: Model) -> None:
    if model.has_mimic:
        follower = next(name for name, of in zip(model.joint_names, model.mimics.tolist(), strict=True) if of >= 0)
        raise ArgumentError(
            f"datapath: joint {quoted(follower)} follows another; wanted joints that follow none, as "
            'load_urdf(mimic="ignore") makes them'
        )
    if model.quaternion_starts.size:
        name = model.coordinate_names[int(model.quaternion_starts[0])]
        raise ArgumentError(
            f"datapath: coordinate {quoted(name)} begins a quaternion, which takes a root and a quotient; wanted "
            "joints that turn about fixed axes or slide along them, on a fixed base"
        )


def inputs_of(
    program: Program, graph: Graph
) -> tuple[dict[str, tuple[tuple[int, ...], Sequence[Expression]]], dict[int, Value]]:
    """Declare a program's inputs on another graph. Returns shapes and expressions by name, and values by old node."""
    ports: dict[str, tuple[tuple[int, ...], Sequence[Expression]]] = {}
    value: dict[int, Value] = {}
    for port in program.inputs:
        made = graph.inputs(port.size)
        ports[port.name] = port.shape, made
        value.update({int(node): each for node, each in zip(port.scalars, made, strict=True) if node >= 0})
    return ports, value


def with_sines_given(program: Program, model: Model) -> Program:
    """The program with sines and cosines of coordinates as additional inputs."""
    coordinate = {node: k for port in program.inputs if port.name == "q" for k, node in enumerate(port.scalars)}
    angles = {"sin": SIN, "cos": COS}
    graph = Graph()
    of_angle: dict[tuple[int, int], Expression] = {}
    ports, value = inputs_of(program, graph)
    for name, operation in angles.items():
        made = graph.inputs(model.nq)
        ports[name] = (model.nq,), made
        of_angle.update({(operation, k): each for k, each in enumerate(made)})

    def angle(index: int, operation: int, a: int) -> Value:
        if operation not in (SIN, COS) or a not in coordinate:
            raise ArgumentError(
                f"datapath: {program.name} of {quoted(model.name)} takes {OPERATION_NAMES[operation]} of what is no "
                "coordinate; allowed: sums, products, and sines and cosines of coordinates"
            )
        return of_angle[operation, coordinate[a]]

    _copy(program, value, angle)
    return _made(program, graph, ports, value)


def rebuilt(program: Program, known: Mapping[int, float]) -> Program:
    """The program with some nodes replaced by numbers, and simplified accordingly."""
    graph = Graph()
    ports, value = inputs_of(program, graph)
    value.update(known)
    _copy(program, value)
    return _made(program, graph, ports, value)


def _copy(program: Program, value: dict[int, Value], other: Callable[[int, int, int], Value] | None = None) -> None:
    """Copy every live node without a value to the new graph. `other` makes nodes that are no sums or products."""
    for index in program.live:
        if index in value:
            continue
        operation, a, b = program.nodes[index]
        if operation == CONSTANT:
            value[index] = float(a)
        elif operation == ADD:
            value[index] = value[a] + value[b]
        elif operation == SUB:
            value[index] = value[a] - value[b]
        elif operation == MUL:
            value[index] = value[a] * value[b]
        elif operation == NEG:
            value[index] = -value[a]
        elif operation != INPUT:
            assert other is not None
            value[index] = other(index, operation, a)


def _made(
    program: Program,
    graph: Graph,
    ports: Mapping[str, tuple[tuple[int, ...], Sequence[Expression]]],
    value: Mapping[int, Value],
) -> Program:
    """The program on the new graph, without unused input ports."""
    outputs = {
        port.name: (port.shape, [value[s] if isinstance(s, int) else s for s in port.scalars])
        for port in program.outputs
    }
    rebuilt_program = Program.of(program.name, graph, ports, outputs)
    inputs = tuple(port for port in rebuilt_program.inputs if any(scalar != -1 for scalar in port.scalars))
    return Program(rebuilt_program.name, rebuilt_program.nodes, inputs, rebuilt_program.outputs, rebuilt_program.live)


def uses(program: Program) -> dict[int, int]:
    """The number of readers of each live node: operations and outputs."""
    count = dict.fromkeys(program.live, 0)
    for index in program.live:
        operation, a, b = program.nodes[index]
        if operation > INPUT:
            count[a] += 1
            if b >= 0:
                count[b] += 1
    for port in program.outputs:
        for scalar in port.scalars:
            if isinstance(scalar, int):
                count[scalar] += 1
    return count


def input_nodes(program: Program) -> list[tuple[str, int, int]]:
    """(port, index, node) of every input that is needed, in the hardware's order."""
    return [(port.name, k, int(s)) for port in program.inputs for k, s in enumerate(port.scalars) if s != -1]


def output_scalars(program: Program) -> list[int | float]:
    """Nodes (or numbers, for constants) of all results, in the hardware's order."""
    return [scalar for port in program.outputs for scalar in port.scalars]
