"""Windows through which long results go: which scalars at once, when, and as which runs."""

from __future__ import annotations

import numpy as np
import pytest
from robots import own

import robodyn as rd
from robodyn.codegen.c_body import BEGINNING
from robodyn.codegen.lowering import lower
from robodyn.engines.gpu.dialect import CudaDialect
from robodyn.engines.gpu.windows import Window
from robodyn.questions import QUESTIONS
from robodyn.tracing.expression import Graph
from robodyn.tracing.program import Program
from robodyn.tracing.unrolled import trace


def places(window: Window) -> list[list[tuple[str, int]]]:
    """Scalars of each batch."""
    return [
        [(run.port.name, run.start + k) for run in batch.runs for k in range(run.width)] for batch in window.batches
    ]


def by_hand() -> Program:
    """Four results from two inputs: a product in two places, a sum, a number, an input."""
    graph = Graph()
    a, b = graph.inputs(2)
    product = a * b
    return Program.of("by_hand", graph, {"x": ((2,), [a, b])}, {"y": ((5,), [product, 0.5, product, a, a + b])})


def test_what_an_operation_makes_goes_with_numbers_before_it() -> None:
    program = by_hand()
    operations = lower(program)
    assert [operation.kind for operation in operations] == ["mul", "add"]
    window = Window(program, operations, 3)
    assert places(window) == [[("y", 0), ("y", 1), ("y", 2)], [("y", 3), ("y", 4)]]
    assert [batch.node for batch in window.batches] == [operation.results[0] for operation in operations]
    assert [[(port.name, k) for port, k in batch.constants] for batch in window.batches] == [[("y", 1)], [("y", 3)]]
    assert [window.slot(program.outputs[0], k) for k in range(5)] == [0, 1, 2, 0, 1]
    given = {node: f"in[{k}]" for k, node in enumerate(program.inputs[0].scalars) if isinstance(node, int)}
    lines = window.statements(CudaDialect("float"), given, {id(program.outputs[0]): "out"}, 5)
    assert lines[operations[0].results[0]] == [
        "mine[1] = 0.5f;",
        "__syncwarp();",
        "robodyn_flush<3, 5, 5>(out + 0, window + 0, count, lane);",
        "__syncwarp();",
    ]
    assert lines[operations[1].results[0]][0] == "mine[0] = in[0];"


def test_a_result_in_many_places_goes_at_once() -> None:
    """Even where there are more of them than places in the window."""
    graph = Graph()
    a, b = graph.inputs(2)
    product = a * b
    outputs = {"y": ((6,), [product] * 5 + [a + b])}
    program = Program.of("many", graph, {"x": ((2,), [a, b])}, outputs)
    for size in (2, 4, 5):
        window = Window(program, lower(program), size)
        assert [len(batch) for batch in places(window)] == [5, 1]
        assert window.room == 5


def test_results_that_wait_for_nothing_go_first() -> None:
    graph = Graph()
    (a,) = graph.inputs(1)
    program = Program.of("still", graph, {"x": ((1,), [a])}, {"y": ((3,), [1.0, 2.0, a]), "z": ((0,), [])})
    window = Window(program, lower(program), 2)
    assert [batch.node for batch in window.batches] == [BEGINNING] * 2
    assert places(window) == [[("y", 0), ("y", 1)], [("y", 2)]]
    assert all(np.isnan(scalar) for scalar in window.made.outputs[0].scalars)


@pytest.mark.parametrize("size", [32, 61, 200])
@pytest.mark.parametrize("query", ["inverse_dynamics_gradient", "mass_matrix", "forward_kinematics"])
def test_every_scalar_goes_once_when_it_is_there(query: str, size: int) -> None:
    model = rd.load_urdf(own("quadruped"), base="floating")
    program = trace(model, QUESTIONS[query].plain_task(model))
    operations = lower(program)
    window = Window(program, operations, size)
    every = [place for batch in places(window) for place in batch]
    assert sorted(every) == [
        (port.name, k) for port in sorted(program.outputs, key=lambda each: each.name) for k in range(port.size)
    ]
    made = {node: k for k, operation in enumerate(operations) for node in operation.results}
    ports = {port.name: port for port in program.outputs}
    before = -1
    for batch, scalars in zip(window.batches, places(window), strict=True):
        now = made.get(batch.node, -1)
        assert before <= now and len(scalars) <= max(size, window.room)
        times = [made.get(ports[name].scalars[k], -1) for name, k in scalars]  # type: ignore[call-overload]
        assert max(times) <= now
        # What is stored before the batch in front of this one has gone would be written over what waits there.
        assert all(time > before for time in times if time >= 0)
        assert sorted(window.slot(ports[name], k) for name, k in scalars) == list(range(len(scalars)))
        before = now
