"""Windows through which long results go: which scalars at once, when, and as which runs."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from robots import own

import robodyn as rd
from robodyn.compile.c.body import BEGINNING
from robodyn.compile.lowering import lower
from robodyn.compile.tracing.expression import Graph
from robodyn.compile.tracing.program import Program
from robodyn.compile.tracing.unrolled import trace
from robodyn.engines.gpu.dialect import CudaDialect
from robodyn.engines.gpu.functions import Functions
from robodyn.engines.gpu.staged_stores import Window
from robodyn.engines.query_table import QUERIES

SMALL = 4
"""Bytes of scalars of which 32 are a line."""


def places(window: Window) -> list[list[tuple[str, int]]]:
    """Scalars of each batch."""
    return [
        [(run.port.name, run.start + k) for run in batch.runs for k in range(len(run.slots))]
        for batch in window.batches
    ]


def by_hand() -> Program:
    """Five results from two inputs: a product in two places, a sum, a number, an input."""
    graph = Graph()
    a, b = graph.inputs(2)
    product = a * b
    return Program.of("by_hand", graph, {"x": ((2,), [a, b])}, {"y": ((5,), [product, 0.5, product, a, a + b])})


def test_what_an_operation_makes_goes_with_numbers_before_it() -> None:
    program = by_hand()
    operations = lower(program)
    assert [operation.kind for operation in operations] == ["mul", "add"]
    window = Window(program, operations, 3, SMALL)
    assert places(window) == [[("y", 0), ("y", 1), ("y", 2)], [("y", 3), ("y", 4)]]
    assert [batch.node for batch in window.batches] == [operation.results[0] for operation in operations]
    assert [[(port.name, k) for port, k in batch.others] for batch in window.batches] == [[("y", 1)], [("y", 3)]]
    slots = [window.slot(program.outputs[0], k) for k in range(5)]
    assert (slots[:3], sorted(slots[3:])) == ([0, 1, 2], [0, 1])
    given = {node: f"in[{k}]" for k, node in enumerate(program.inputs[0].scalars) if isinstance(node, int)}
    lines = window.statements(CudaDialect("float"), Functions("float", "k"), given, {id(program.outputs[0]): "out"}, 5)
    assert lines[operations[0].results[0]] == [
        "mine[1] = 0.5f;",
        "__syncwarp();",
        "k_flush(out + 0, window, count, lane, 0x20100ll, 0x0ll, 0x0ll, 0x0ll);",
        "__syncwarp();",
    ]
    assert lines[operations[1].results[0]][0] == f"mine[{slots[3]}] = in[0];"
    assert lines[BEGINNING] == []


def test_numbers_in_several_places_stay() -> None:
    """They are written once, with what else their lines hold, and take one place, zeros of both signs apart."""
    graph = Graph()
    a, b = graph.inputs(2)
    zeros: list[Any] = [0.0] * 30
    outputs = {"y": ((35,), [*zeros, a * b, -0.0, -0.0, 0.5, a + b]), "z": ((40,), [0.0] * 40)}
    program = Program.of("zeros", graph, {"x": ((2,), [a, b])}, outputs)
    window = Window(program, lower(program), 8, SMALL)
    (zero, at_zero), (minus, at_minus) = window.numbers
    assert (str(zero), str(minus)) == ("0.0", "-0.0")
    y, z = program.outputs
    assert {window.slot(y, k) for k in range(30)} | {window.slot(z, k) for k in range(40)} == {at_zero}
    assert {window.slot(y, k) for k in (31, 32)} == {at_minus}
    assert window.room == 5
    every = [place for batch in places(window) for place in batch]
    assert sorted(every) == [("y", k) for k in range(35)] + [("z", k) for k in range(40)]
    lines = window.statements(CudaDialect("float"), Functions("float", "k"), {}, {id(y): "y", id(z): "z"}, 5)
    assert lines[BEGINNING] == [f"mine[{at_zero}] = 0.0f;", f"mine[{at_minus}] = -0.0f;"]


def test_only_some_numbers_stay() -> None:
    """The most frequent ones: there is room for others."""
    graph = Graph()
    a, b = graph.inputs(2)
    outputs = {"y": ((41,), [k / 8 for k in range(20)] * 2 + [a * b]), "z": ((3,), [0.5] * 3)}
    program = Program.of("numbers", graph, {"x": ((2,), [a, b])}, outputs)
    for size in (2, 4, 8, 16):
        window = Window(program, lower(program), size, SMALL)
        assert len(window.numbers) == max(1, size // 4)
        assert 0.5 in [number for number, _ in window.numbers]
        every = sorted(place for batch in places(window) for place in batch)
        assert every == [("y", k) for k in range(41)] + [("z", k) for k in range(3)]
        assert window.room <= size


def test_whole_lines_go_before_others() -> None:
    """Scalars of two lines come in turn: the first is whole when the window is full."""
    graph = Graph()
    values = graph.inputs(40)
    made = [values[k] * values[k + 1] for k in range(39)]
    order = [*made[:16], *made[32:36], *made[16:32], *made[36:]]  # the order of the results: their lines are 0, 1, 0, 1
    program = Program.of("lines", graph, {"x": ((40,), values)}, {"y": ((39,), order)})
    window = Window(program, lower(program), 36, SMALL)
    assert [len(batch) for batch in places(window)] == [32, 7]
    assert places(window)[0] == [("y", k) for k in range(32)]


def test_neighbours_are_in_different_banks() -> None:
    model = rd.load_urdf(own("quadruped"), base="floating")
    program = trace(model, QUERIES["inverse_dynamics_gradient"].plain_task(model))
    window = Window(program, lower(program), 192, SMALL)
    numbers = {slot for _, slot in window.numbers}
    read = [
        [slot for slot in run.slots[first : first + 32] if slot not in numbers]
        for batch in window.batches
        for run in batch.runs
        for first in range(0, len(run.slots), 32)
    ]
    alone = [len({slot % 32 for slot in slots}) / len(slots) for slots in read if slots]
    assert np.mean(alone) > 0.75


def test_a_result_in_many_places_goes_at_once() -> None:
    """Even where there are more of them than places in the window."""
    graph = Graph()
    a, b = graph.inputs(2)
    product = a * b
    outputs = {"y": ((6,), [product] * 5 + [a + b])}
    program = Program.of("many", graph, {"x": ((2,), [a, b])}, outputs)
    for size in (2, 4, 5):
        window = Window(program, lower(program), size, SMALL)
        assert [len(batch) for batch in places(window)] == [5, 1]
        assert window.room == 5


def test_results_that_wait_for_nothing_go_first() -> None:
    graph = Graph()
    (a,) = graph.inputs(1)
    program = Program.of("still", graph, {"x": ((1,), [a])}, {"y": ((3,), [1.0, 2.0, a]), "z": ((0,), [])})
    window = Window(program, lower(program), 2, SMALL)
    assert [batch.node for batch in window.batches] == [BEGINNING] * 2
    assert places(window) == [[("y", 0), ("y", 1)], [("y", 2)]]
    assert all(np.isnan(scalar) for scalar in window.made.outputs[0].scalars)


@pytest.mark.parametrize("itemsize", [4, 8])
@pytest.mark.parametrize("size", [32, 61, 200])
@pytest.mark.parametrize("query", ["inverse_dynamics_gradient", "mass_matrix", "forward_kinematics"])
def test_every_scalar_goes_once_when_it_is_there(query: str, size: int, itemsize: int) -> None:
    model = rd.load_urdf(own("quadruped"), base="floating")
    program = trace(model, QUERIES[query].plain_task(model))
    operations = lower(program)
    window = Window(program, operations, size, itemsize)
    every = [place for batch in places(window) for place in batch]
    assert sorted(every) == [
        (port.name, k) for port in sorted(program.outputs, key=lambda each: each.name) for k in range(port.size)
    ]
    made = {node: k for k, operation in enumerate(operations) for node in operation.results}
    ports = {port.name: port for port in program.outputs}
    numbers = {slot for _, slot in window.numbers}
    leaves = {place: k for k, batch in enumerate(places(window)) for place in batch}
    gone = [made.get(batch.node, -1) for batch in window.batches]
    assert gone == sorted(gone)
    stays: dict[int, list[tuple[int, int]]] = {}
    """By place: the batch with which a scalar leaves, and the operation behind which it is stored."""
    for (name, k), batch in leaves.items():
        slot, time = window.slot(ports[name], k), made.get(ports[name].scalars[k], -1)  # type: ignore[call-overload]
        assert slot < max(size, window.room) and time <= gone[batch]
        if slot not in numbers:
            stays.setdefault(slot, []).append((batch, time))
    for together in stays.values():
        for (batch, _), (later, stored) in itertools.pairwise(sorted(together)):
            # An operation behind which a batch goes stores before it; what no operation makes is stored when it leaves.
            assert batch < later and (stored > gone[batch] or stored < 0)
