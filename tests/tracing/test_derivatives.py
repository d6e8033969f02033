"""Derivatives of straight-line programs: against differences, against each other, on every engine."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import random_states, relative

import robodyn as rd
from robodyn.algorithms.tasks import ScalarTask, Sized, against, along
from robodyn.compile.tracing.derivatives import against as backwards
from robodyn.compile.tracing.derivatives import along as forwards
from robodyn.compile.tracing.expression import Expression, Graph
from robodyn.compile.tracing.program import Program
from robodyn.compile.tracing.unrolled import input_shapes, output_shape
from robodyn.core.spatial import select
from robodyn.engines.gpu.unrolled_kernels import traced
from robodyn.engines.query_table import QUERIES, QueryVariant

# What robodyn computes with: every operation, constants, signs, and scalars that are used more than once.
FUNCTIONS = [
    lambda x, y: x + y * y,
    lambda x, y: x - 3.0 * y,
    lambda x, y: -(x * y) - x * x * x,
    lambda x, y: x / y + 2.0 / x,
    lambda x, y: np.sqrt(x * x + y) * np.sqrt(x),
    lambda x, y: np.sin(x * y) * np.cos(y) - np.cos(-x),
    lambda x, y: np.abs(x - y) * x,
    lambda x, y: np.minimum(x * y, np.sin(y)) - np.maximum(x, 3.0 * y) * np.maximum(y * y, -x),
    lambda x, y: select(x - y, x * x, x * y) + select(y, np.cos(x), 2.0) * select(x * y - 5.0, 1.0, y * y),
    lambda x, y: (x * y + 1.0) * (x * y + 1.0),
    lambda x, y: 0.0 * x + 2.5,
    lambda x, y: y,
]


def evaluated(graph, inputs, values, results):
    """Results at values of inputs."""
    ports = {"x": ((len(inputs),), inputs)}
    program = Program.of("test", graph, ports, {"y": ((len(results),), list(results))})
    return program.evaluate({"x": np.asarray(values, float)})["y"]


@pytest.mark.parametrize("number", range(len(FUNCTIONS)))
def test_every_operation_is_differentiated(number):
    """First and second derivatives, against central differences of the function and of the first."""
    graph = Graph()
    inputs = graph.inputs(4)  # x, y and their rates
    result = FUNCTIONS[number](inputs[0], inputs[1])
    rates = {inputs[0].index: inputs[2], inputs[1].index: inputs[3]}
    rate = forwards(graph, [result], rates)
    twice = forwards(graph, rate, rates)
    at, step = np.array([0.7, 1.3, 0.4, -0.9]), 1e-5
    moved = np.array([at[2], at[3], 0.0, 0.0])

    def difference(values):
        ends = [evaluated(graph, inputs, at + sign * step * moved, values) for sign in (-1.0, 1.0)]
        return (ends[1] - ends[0]) / (2.0 * step)

    np.testing.assert_allclose(evaluated(graph, inputs, at, rate), difference([result]), atol=1e-8)
    np.testing.assert_allclose(evaluated(graph, inputs, at, twice), difference(rate), atol=1e-8)
    gradient = backwards(graph, [result], [1.0], [each.index for each in inputs[:2]])
    np.testing.assert_allclose(
        evaluated(graph, inputs, at, gradient) @ at[2:], evaluated(graph, inputs, at, rate)[0], atol=1e-12
    )


def test_what_does_not_depend_has_no_derivative():
    graph = Graph()
    x, y = graph.inputs(2)
    assert forwards(graph, [y * y, 3.0], {x.index: 1.0}) == [0.0, 0.0]
    (by_x,) = backwards(graph, [y * y, 3.0], [x, x], [x.index])
    assert by_x == 0.0 and isinstance(y, Expression)


def fits(model, task, link):
    """Whether the GPU engine has a kernel for a task."""
    try:
        return bool(traced(model, task, link=link).nodes)
    except rd.UnavailableError:
        return False


def compared(model, given, _):
    """Comparisons of the first coordinates, with constants, NaN among the operands, and at both ends of a batch."""
    x, y, z = given["q"][:3]
    clamped = np.minimum(np.maximum(x, -0.5), 0.75)
    least = np.minimum(np.minimum(x, y), z)
    return {"y": [clamped, least, np.maximum(y, x), select(x - y, z * y, x), select(z, 2.0, -y * y)]}


@pytest.mark.parametrize("batch", [1, 3, 40])
def test_comparisons_on_every_engine(batch, make_dynamics):
    model = rd.random_tree(3, seed=1, joints=("prismatic",))
    dyn = make_dynamics(model)
    rng = np.random.default_rng(batch)
    print(f"seed {batch}")
    q = rng.choice([-2.0, -0.5, 0.0, 0.25, 0.75, 3.0, np.nan], size=(batch, 3)).astype(dyn.dtype)
    task = ScalarTask("compared", {"q": Sized(("nq",))}, {"y": Sized((5,))}, compared)
    outputs = {"y": np.full((batch, 5), 777.0, dyn.dtype)}
    dyn.engine.run(task, {"q": q}, outputs)
    with np.errstate(all="ignore"):
        wanted = np.stack(np.broadcast_arrays(*compared(model, {"q": list(q.T)}, None)["y"]), -1)
    np.testing.assert_allclose(outputs["y"], wanted, rtol=1e-6)
    vjp = against(task, ("q",))
    names = sorted(set(input_shapes(model, vjp)) - {"q"})
    weights = {name: np.ones((batch, *input_shapes(model, vjp)[name]), dyn.dtype) for name in names}
    slopes = {name: np.full((batch, 3), 777.0, dyn.dtype) for name in vjp.outputs}
    dyn.engine.run(vjp, {"q": q, **weights}, slopes)
    (got,) = slopes.values()
    assert np.array_equal(np.isfinite(got).all(-1), np.isfinite(q).all(-1)), (
        "NaN stays in its row, and leaves it nowhere"
    )


ASKED = [name for name in QUERIES if name not in ("inverse_dynamics_hessian", "forward_dynamics_hessian")]


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.some(of=5, rest="matrix")
def test_derivatives_of_queries(name, make_dynamics, tolerance):
    """Rates against differences of the query itself, and w . J v = v . J' w, by every input, quaternions included."""
    model = rd.random_tree(3, seed=4, joints=("revolute", "spherical"), base="floating", armature=True)
    dyn, question = make_dynamics(model), QUERIES[name]
    task = question.made(QueryVariant(model, question.plain))
    link = len(model.link_names) - 1 if question.of_link else None
    rng = np.random.default_rng(5)
    q, qd, qdd = random_states(model, (4,), seed=6)
    values = {"q": q, "qd": qd, "qdd": qdd, "tau": qdd, "vector": qd - qdd}
    inputs = {key: values[key].astype(dyn.dtype) for key in question.plain}

    def run(engine, task, given):
        if engine.name == "gpu" and not fits(model, task, link):
            pytest.skip(f"{task.name} is too large for straight-line kernels, which alone take derivatives of tasks")
        shapes = {key: output_shape(model, output) for key, output in task.outputs.items()}
        dtype = engine.dtype
        outputs = {key: np.full((4, *shape), np.nan, dtype) for key, shape in shapes.items()}
        wanted = {key: np.ascontiguousarray(given[key], dtype) for key in input_shapes(model, task)}
        engine.run(task, wanted, outputs, link=link)
        return outputs

    wrt = tuple(inputs)
    rates = {f"{key}_rate": rng.standard_normal(array.shape).astype(dyn.dtype) for key, array in inputs.items()}
    found = run(dyn.engine, along(task, wrt), {**inputs, **rates})
    reference, step = rd.Dynamics(model, engine="reference").engine, 1e-6
    ends = []
    for sign in (-1.0, 1.0):
        moved = {key: inputs[key].astype(float) + sign * step * rates[f"{key}_rate"] for key in inputs}
        moved["q"] = model.normalize(moved["q"])
        ends.append(run(reference, task, moved))
    weights = {f"{key}_weight": rng.standard_normal(array.shape).astype(dyn.dtype) for key, array in found.items()}
    for key, rate in found.items():
        assert relative(rate, (ends[1][key] - ends[0][key]) / (2.0 * step)) <= max(1e-6, 10.0 * tolerance), key
    gradient = run(dyn.engine, against(task, wrt), {**inputs, **weights})
    powers = sum((found[key] * weights[f"{key}_weight"]).reshape(4, -1).sum(1) for key in found)
    back = sum((gradient[f"by_{key}"] * rates[f"{key}_rate"]).sum(1) for key in inputs)
    assert relative(back, powers) <= 100.0 * tolerance
    # At right angles to quaternions: their lengths do not matter.
    for start in model.quaternion_starts:
        along_q = (gradient["by_q"][:, start : start + 4] * inputs["q"][:, start : start + 4]).sum(1)
        assert np.abs(along_q).max() <= 100.0 * tolerance * np.abs(gradient["by_q"]).max()


def test_derivatives_of_robots_that_are_too_large_say_so():
    model = rd.auto_tree(600)
    dyn = rd.Dynamics(model, engine="cpu")
    task = along(QUERIES["kinetic_energy"].plain_task(model), ("q",))
    q = np.zeros((2, 600))
    with pytest.raises(rd.UnavailableError, match=r"kinetic_energy_along_q.*too large for straight-line code"):
        dyn.engine.run(task, {"q": q, "qd": q, "q_rate": q}, {"K": np.empty(2)})
    reference = rd.Dynamics(model, engine="reference").engine
    with pytest.raises(rd.UnavailableError, match=r"kinetic_energy_along_q.*wanted at most 250"):
        reference.run(task, {"q": q, "qd": q, "q_rate": q}, {"K": np.empty(2)})
