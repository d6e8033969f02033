"""Programs compute what algorithms say, the same in every process; their text, drawing and constants."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from algorithm_table import ALGORITHMS, EVERYTHING, needs_own_coordinates
from conftest import random_states, relative
from program_runner import check_lowering, check_nesting, program, run_lowered, run_text
from robots import OWN, own

import robodyn as rd
from robodyn.algorithms.aba import aba
from robodyn.algorithms.crba import CRBA
from robodyn.algorithms.kinematics import forward_kinematics, jacobian
from robodyn.algorithms.rnea import rnea
from robodyn.compile.lowering import lower
from robodyn.compile.tracing.constants import Constants
from robodyn.compile.tracing.expression import (
    ABS,
    ADD,
    CONSTANT,
    COS,
    INPUT,
    MUL,
    NEG,
    OPERATION_NAMES,
    RECIPROCAL,
    SIN,
    SQRT,
    SUB,
    Graph,
    live_nodes,
)
from robodyn.compile.tracing.program import Program
from robodyn.compile.tracing.unrolled import trace
from robodyn.description import JOINT_TYPES
from robodyn.engines.query_table import QUERIES
from robodyn.engines.reference import ReferenceEngine

# The same operations in another order on trees of some ten bodies. What comes from the inverse of the mass matrix has
# its conditioning besides: accelerations are judged by the forces they need.
TOLERANCE = 1e-12
INVERSE_TOLERANCE = 1e-10


# Programs.


def test_live_nodes_are_those_that_results_need():
    graph = Graph()
    x, y, z = graph.inputs(3)
    unused, used = x * z, np.sin(x + y)
    result = 2.0 * used
    live = live_nodes(graph.nodes, [result.index])
    assert live == sorted(live)
    assert unused.index not in live
    assert z.index not in live
    assert {graph.nodes[index][0] for index in live} == {CONSTANT, INPUT, ADD, SIN, MUL}
    assert live_nodes(graph.nodes, []) == []
    p = Program.of("f", graph, {"x": ((3,), (x, y, z))}, {"r": ((2,), (result, 4.0))})
    assert p.inputs[0].scalars == (x.index, y.index, -1)
    assert p.outputs[0].scalars == (result.index, 4.0)
    assert p.counts == {"constant": 1, "input": 2, "add": 1, "mul": 1, "sin": 1}
    assert p.operations == 3
    assert p.node_of(SIN, (x + y).index) == used.index
    assert p.node_of(COS, (x + y).index) == -1


def test_every_operation_counts_once():
    p = program(lambda x, y: (x + y, x - y, x * y, -x, 1 / x, np.sqrt(x), np.sin(x), np.cos(x), np.abs(x)), 2)
    kinds = (INPUT, ADD, SUB, MUL, NEG, RECIPROCAL, SQRT, SIN, COS, ABS)
    assert p.counts == {OPERATION_NAMES[kind]: 2 if kind == INPUT else 1 for kind in sorted(kinds)}
    assert p.operations == 7


def test_evaluate_broadcasts_and_keeps_batches_that_results_do_not_need():
    graph = Graph()
    x, y = graph.inputs(2), graph.inputs(2)
    ports = {"x": ((2,), x), "y": ((2,), y)}
    p = Program.of("f", graph, ports, {"a": ((1, 2), (x[0] + y[1], 3.0)), "none": ((0, 4), ())})
    rng = np.random.default_rng(0)
    left, right = rng.standard_normal((4, 1, 2)), rng.standard_normal((3, 2))
    got = p.evaluate({"x": left, "y": right})
    assert got["a"].shape == (4, 3, 1, 2)
    np.testing.assert_array_equal(got["a"][..., 0, 0], left[..., 0] + right[..., 1])
    assert (got["a"][..., 1] == 3.0).all()
    assert got["none"].shape == (4, 3, 0, 4)
    constant = Program.of("g", graph, ports, {"a": ((1,), (5.0,))})
    assert constant.evaluate({"x": left, "y": right})["a"].shape == (4, 3, 1)
    single = p.evaluate({"x": left.astype(np.float32), "y": right.astype(np.float32)})
    assert single["a"].dtype == np.float32


def kinds(p):
    return sorted(operation.kind for operation in lower(p))


def test_products_that_are_needed_elsewhere_are_not_fused():
    assert kinds(program(lambda x, y, z: x * y + z, 3)) == ["fma"]
    assert kinds(program(lambda x, y, z: x * y - z, 3)) == ["fms"]
    assert kinds(program(lambda x, y, z: z - x * y, 3)) == ["fnma"]
    assert kinds(program(lambda x, y, z: (x * y + z, x * y), 3)) == ["add", "mul"]
    assert kinds(program(lambda x, y, z: (x * y + z, x * y - z), 3)) == ["add", "mul", "sub"]
    assert kinds(program(lambda x, y: x * y + x * y, 2)) == ["add", "mul"]
    assert kinds(program(lambda x, y, z: x * y - y * z, 3)) == ["fnma", "mul"]
    assert kinds(program(lambda x, y: (x * y, x * y), 2)) == ["mul"]


def nested(function, n):
    """Kinds of the operations of a function of n scalars, in their order, with sums in sums."""
    p = program(function, n)
    check_lowering(p)
    check_nesting(p)
    return [operation.kind for operation in lower(p, nested=True)]


def test_sums_of_products_are_part_of_other_sums():
    """x + (a b + c d) takes two operations, and so with other signs; what others need stays as it is."""
    assert nested(lambda a, b, c, d, x: x + (a * b + c * d), 5) == ["fma", "fma"]
    assert nested(lambda a, b, c, d, x: (a * b - c * d) + x, 5) == ["fma", "fnma"]
    assert nested(lambda a, b, c, d, x: x - (a * b - c * d), 5) == ["fnma", "fma"]
    assert nested(lambda a, b, c, d, x: (a * b - c * d) - x, 5) == ["fms", "fnma"]
    assert nested(lambda a, b, c, d: (a * b - c * d) - (a * c - b * d), 4) == ["mul", "fnma", "fnma", "fma"]
    assert nested(lambda a, b, c, d: (a * b + c * d) + (a * c + b * d) + (a * d + b * c), 4) == ["mul", *["fma"] * 5]
    both = nested(lambda a, b, c, d, x: (x + (a * b + c * d), a * b + c * d), 5)
    assert sorted(both) == ["add", "fma", "mul"]
    begun = nested(lambda a, b, c, d, x, y: y + (x + (a * b + c * d)), 6)
    assert begun == ["fma", "fma", "add"], "a sum that begins with a value is one"


def test_sums_of_many_products_are_values():
    def sums(count):
        def function(*x):
            total = x[1] * x[2]
            for k in range(2, count + 1):
                total = total + x[k] * x[k + 1]
            return x[0] + total

        return nested(function, count + 2)

    assert sums(3) == ["fma"] * 3
    assert sums(4) == ["mul", "fma", "fma", "fma", "add"]
    assert sums(40).count("add") == 1


def test_a_sine_and_its_cosine_are_one_operation():
    p = program(lambda x, y: (np.cos(x), np.sin(x) + 1.0, np.cos(y)), 2)
    found = [operation for operation in lower(p) if operation.kind == "sincos"]
    assert len(found) == 2
    both = next(operation for operation in found if -1 not in operation.results)
    assert [p.nodes[node][0] for node in both.results] == [SIN, COS]
    alone = next(operation for operation in found if -1 in operation.results)
    assert alone.results[0] == -1
    check_lowering(p)


# Algorithms.


def arrays_for(model, shape, seed):
    """States, external forces and base motions, and each algorithm's inputs among them."""
    q, qd, qdd = random_states(model, shape, seed)
    rng = np.random.default_rng(seed + 1)
    arrays = {"q": q, "qd": qd, "qdd": qdd, "tau": 5.0 * qdd, "f_ext": rng.standard_normal((*shape, model.n_bodies, 6))}
    arrays["inertia"] = model.inertia * rng.uniform(0.8, 1.2, (*shape, model.n_bodies, 1))
    arrays["point"] = rng.standard_normal((*shape, 3))
    arrays["vector"], arrays["armature"] = (
        rng.standard_normal((*shape, model.nv)),
        rng.uniform(0.1, 2.0, (*shape, model.nv)),
    )
    return arrays | {"V0": rng.standard_normal((*shape, 6)), "dV0": rng.standard_normal((*shape, 6))}


def by_reference(model, algorithm, arrays, outputs, link, base=("V0", "dV0")):
    """What the reference engine says, for arrays with one batch axis."""
    results = {name: np.full(shape, np.nan) for name, shape in outputs.items()}
    inputs = {name: value for name, value in arrays.items() if name in algorithm.inputs or name in base}
    ReferenceEngine(model, np.dtype(np.float64)).run(algorithm, inputs, results, link=link)
    return results


def check_program(model, algorithm, seed, link, base=("V0", "dV0")):
    """The program gives the numbers of the reference engine. Returns it."""
    p = trace(model, algorithm, link=link, base=base)
    arrays = arrays_for(model, (3,), seed)
    got = p.evaluate(arrays)
    assert list(got) == list(algorithm.outputs)
    wanted = by_reference(model, algorithm, arrays, {name: value.shape for name, value in got.items()}, link, base)
    for name, value in got.items():
        error = relative(value, wanted[name])
        if name == "qdd":
            H = by_reference(model, CRBA, arrays, {"H": (3, model.nv, model.nv)}, link)["H"]
            error = relative((H @ value[..., None])[..., 0], (H @ wanted[name][..., None])[..., 0])
        assert error < (INVERSE_TOLERANCE if name == "Hinv" else TOLERANCE), (algorithm.name, name)
    return p


TREES = {
    "floating": {"seed": 21, "armature": True, "base": "floating"},
    "fixed": {"seed": 4, "shape": "binary", "armature": False},
    "mimic": {"seed": 8, "mimic": 0.6, "armature": True},
    "floating mimic": {"seed": 33, "mimic": 0.5, "base": "floating"},
}


@pytest.mark.parametrize("options", TREES.values(), ids=TREES)
@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.some(of=11, rest="matrix")
def test_every_algorithm_on_random_trees(name, options):
    algorithm = ALGORITHMS[name]
    model = rd.random_tree(9, joints=JOINT_TYPES, **options)
    assert model.has_mimic == ("mimic" in options)
    if model.has_mimic and needs_own_coordinates(algorithm):
        pytest.skip("solves for accelerations of every joint: for models without mimicking joints")
    p = check_program(model, algorithm, 5, len(model.link_names) - 1)
    check_lowering(p)
    check_nesting(p)
    arrays = {name: value[0] for name, value in arrays_for(model, (3,), 5).items()}
    wanted = p.evaluate(arrays)
    lowered = run_lowered(p, arrays), run_lowered(p, arrays, nested=True)
    for results, tolerance in ((run_text(p, arrays), 0.0), *((each, INVERSE_TOLERANCE) for each in lowered)):
        for key, value in results.items():
            assert relative(value, wanted[key]) <= tolerance


@pytest.mark.parametrize("base", [(), ("V0",), ("dV0",)], ids="-".join)
@pytest.mark.parametrize("name", [rnea(EVERYTHING).name, aba(("q", "qd", "tau")).name])
def test_a_base_motion_that_is_not_given_is_zero(name, base):
    model = rd.random_tree(6, seed=12, joints=JOINT_TYPES)
    p = check_program(model, ALGORITHMS[name], 3, None, base)
    assert [port.name for port in p.inputs if port.name in ("V0", "dV0")] == list(base)


def _own() -> Iterator[Any]:
    """Robots and bases; large ones are traced for many seconds."""
    for path in OWN:
        for base in ("fixed", "floating"):
            large = path.stem == "humanoid"
            yield pytest.param(path, base, id=f"{path.stem}-{base}", marks=[pytest.mark.matrix] if large else [])


@pytest.mark.parametrize(("path", "base"), tuple(_own()))
@pytest.mark.some(of=22, rest="matrix")
def test_every_algorithm_on_every_model(path, base):
    model = rd.load_urdf(path, base=base)
    singular = rd.Dynamics(model, engine="reference").singularity() is not None
    for algorithm in ALGORITHMS.values():
        if needs_own_coordinates(algorithm) and (model.has_mimic or singular):
            continue
        check_lowering(check_program(model, algorithm, 7, len(model.link_names) - 1))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_robot_that_cannot_move(name):
    algorithm = ALGORITHMS[name]
    model = rd.load_urdf('<robot name="rock"><link name="rock"/></robot>')
    needs_mass = any("mass" in query.needs and query.plain_task(model) is algorithm for query in QUERIES.values())
    if needs_mass or name.startswith(("center_of_mass", "centroidal_")):  # also those of one tree
        pytest.skip("nothing has mass: refused before it is traced")
    check_program(model, algorithm, 0, 0)


def test_a_link_that_is_fixed_to_the_world():
    model = rd.load_urdf(own("arm6"))
    link = model.link_index("base")
    assert model.link_body[link] == -1
    moving = "link_velocity_world", "link_velocity_gradient_body", "link_velocity_world_aligned_point"
    for name in ("jacobian_body", "forward_kinematics_of_link", *moving):
        check_program(model, ALGORITHMS[name], 2, link)


# Digest, text, drawing.


_DIGESTS = """
import sys
sys.path.insert(0, {tests!r})
import robodyn as rd
from algorithm_table import ALGORITHMS
from robodyn.description import JOINT_TYPES
from robodyn.compile.tracing.unrolled import trace
model = rd.random_tree(7, seed=3, joints=JOINT_TYPES, base="floating")
for algorithm in ALGORITHMS.values():
    print(trace(model, algorithm, link=2, base=("V0", "dV0")).digest)
"""


@pytest.mark.matrix
def test_the_same_program_in_every_process():
    found = []
    for seed in ("1", "4242"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", _DIGESTS.format(tests=str(Path(__file__).parents[1]))]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        found.append(done.stdout.split())
    assert found[0] == found[1]
    assert len(found[0]) == len(set(found[0])) == len(ALGORITHMS)
    model = rd.random_tree(7, seed=3, joints=JOINT_TYPES, base="floating")
    assert found[0] == [trace(model, a, link=2, base=("V0", "dV0")).digest for a in ALGORITHMS.values()]


def test_different_programs_have_different_digests():
    text = own("arm6").read_text()
    robots = {
        "as it is": {},
        "floating": {"base": "floating"},
        "moon": {"gravity": (0.0, 0.0, -1.62)},
    }
    models = {name: rd.load_urdf(text, **options) for name, options in robots.items()}
    mass = re.findall(r'mass value="([^"]+)"', text)[-1]
    changed = text.replace(f'"{mass}"', f'"{np.nextafter(float(mass), 99.0)!s}"')
    models["a mass, changed in its last digit"] = rd.load_urdf(changed)
    models["arm7"] = rd.load_urdf(own("arm7"))
    programs = [trace(model, rnea()) for model in models.values()]
    arm = models["as it is"]
    programs += [trace(arm, rnea(), base=base) for base in (("V0",), ("dV0",), ("V0", "dV0"))]
    programs += [trace(arm, jacobian("world"), link=link) for link in (3, 4)]
    programs += [trace(arm, algorithm) for algorithm in (rnea(("q", "qd")), forward_kinematics(False), CRBA)]
    digests = [p.digest for p in programs]
    assert len(set(digests)) == len(digests)
    assert trace(rd.load_urdf(text), rnea()).digest == digests[0]


def test_text_has_a_line_for_every_operation_and_every_result():
    p = trace(rd.load_urdf(own("ball_joint_arm")), aba())
    lines = p.text().splitlines()
    assert lines[0] == f"# {p.name}: {p.operations} operations"
    operations = sum(1 for index in p.live if p.nodes[index][0] > INPUT)
    assert len(lines) == 1 + operations + sum(port.size for port in p.outputs)
    assert all(re.fullmatch(r"\w+(\[\d+\])? = \S.*", line) for line in lines[1:])


def check_drawing(p):
    """Every line of the drawing has one of four forms; nodes and arrows are those of the program."""
    first, style, *lines, last = p.dot().splitlines()
    assert (first, style, last) == (f'digraph "{p.name}" {{', "  node [shape=box];", "}")
    nodes, arrows, results = {}, [], []
    for line in lines:
        if match := re.fullmatch(r'  n(\d+) \[label="([^"]*)"\];', line):
            nodes[int(match[1])] = match[2]
        elif match := re.fullmatch(r"  n(\d+) -> n(\d+);", line):
            arrows.append((int(match[1]), int(match[2])))
        else:
            match = re.fullmatch(r'  "(\w+\[\d+\])"; n(\d+) -> "(\w+\[\d+\])";', line)
            assert match, line
            assert match[1] == match[3]
            results.append((int(match[2]), match[1]))
    assert sorted(nodes) == list(p.live)
    wanted = [(operand, index) for index in p.live for operand in p.nodes[index][1:] if p.nodes[index][0] > INPUT]
    assert sorted(arrows) == sorted((a, b) for a, b in wanted if a >= 0)
    ports = ((s, f"{port.name}[{k}]") for port in p.outputs for k, s in enumerate(port.scalars))
    assert sorted(results) == sorted(pair for pair in ports if isinstance(pair[0], int))
    inputs = {s: f"{port.name}[{k}]" for port in p.inputs for k, s in enumerate(port.scalars) if s >= 0}
    for index, label in nodes.items():
        operation, value, _ = p.nodes[index]
        assert label == (repr(value) if operation == CONSTANT else inputs.get(index, OPERATION_NAMES[operation]))


def test_the_drawing_is_the_graph():
    check_drawing(trace(rd.load_urdf(own("double_pendulum")), aba()))
    check_drawing(trace(rd.load_urdf(own("cartpole")), CRBA))
    check_drawing(program(lambda x, y: (x, 2.0, x - y * y), 2))


# Constants.


def turned(angle: str) -> rd.Model:
    """A link turned by an angle written in digits, about x and z."""
    return rd.load_urdf(
        f"""<robot name="turned"><link name="a"/><link name="b"><inertial><mass value="2"/>
        <origin xyz="0.1 0 0" rpy="0 {angle} 0"/><inertia ixx="0.1" ixy="0" ixz="0" iyy="0.2" iyz="0" izz="0.15"/>
        </inertial></link><joint name="j" type="continuous"><parent link="a"/><child link="b"/>
        <origin xyz="0.3 0 0" rpy="{angle} 0 {angle}"/><axis xyz="0 0 1"/></joint></robot>"""
    )


@pytest.mark.parametrize(
    "angle", ["3.14159265358979", "3.141592653589793", "-3.14159265358979312", "1.5707963267948966"]
)
def test_half_and_quarter_turns_with_their_digits_are_exact(angle):
    model = turned(angle)
    constants = Constants(model)
    E = model.Xtree[0, :9]
    assert not np.isin(np.abs(E), (0.0, 1.0)).all()
    assert np.isin(np.abs(constants.Xtree[:, :9]), (0.0, 1.0)).all()
    np.testing.assert_allclose(constants.Xtree, model.Xtree, rtol=0, atol=1e-12)
    exact = trace(turned("0"), rnea(("q", "qd"))).operations
    assert trace(model, rnea(("q", "qd"))).operations <= exact + 4


def test_a_turn_with_few_digits_is_what_the_file_says():
    """1.5707963 is 2.7e-8 beside a quarter turn: to take it for one would show in results."""
    model = turned("1.5707963")
    E, snapped = model.Xtree[0, :9], Constants(model).Xtree[0, :9]
    off = (np.abs(E) > 1e-8) & (np.abs(E) < 1e-7)
    assert np.count_nonzero(off) == 4
    assert np.array_equal(snapped[off], E[off])
    check_program(model, rnea(), 0, None)


def test_small_inertias_survive():
    model = rd.load_urdf(own("hand"))
    assert np.abs(model.inertia[:, 4:]).max(axis=1).min() < 1e-5
    constants = Constants(model)
    largest = np.abs(model.inertia[:, 4:]).max(axis=1, keepdims=True)
    kept = np.abs(model.inertia[:, 4:]) >= 1e-15 * largest
    assert np.array_equal(constants.inertia[:, 4:][kept], model.inertia[:, 4:][kept])
    assert np.array_equal(constants.inertia[:, 0], model.inertia[:, 0])
    light = rd.load_urdf(
        """<robot name="light"><link name="a"/><link name="b"><inertial><mass value="1e-3"/><origin xyz="0.5 1e-9 0"/>
        <inertia ixx="1e-9" ixy="1e-14" ixz="0" iyy="2e-9" iyz="0" izz="1.5e-9"/></inertial></link><joint name="j"
        type="continuous"><parent link="a"/><child link="b"/><axis xyz="0 0 1"/></joint></robot>"""
    )
    inertia = Constants(light).inertia
    assert np.array_equal(inertia[inertia != 0.0], light.inertia[inertia != 0.0])
    assert np.count_nonzero(inertia) == np.count_nonzero(light.inertia) >= 7
    check_program(light, rnea(), 0, None)


def test_rounding_beside_larger_numbers_is_dropped_in_a_copy():
    model = turned("3.14159265358979")
    constants = Constants(model)
    assert np.count_nonzero(constants.inertia) < np.count_nonzero(model.inertia)
    assert not np.shares_memory(constants.Xtree, model.Xtree)
    assert not np.shares_memory(constants.inertia, model.inertia)
    assert not np.shares_memory(constants.link_X, model.link_X)
