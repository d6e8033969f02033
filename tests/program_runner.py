"""Small programs, and programs run by other roads than `Program.evaluate`: from their text, and lowered."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from robodyn.compile.lowering import lower, stored_nodes
from robodyn.compile.tracing.expression import ADD, CONSTANT, INPUT, MUL, SUB, Graph, operands
from robodyn.compile.tracing.program import Program


def program(function, n):
    """The program of a function of n scalars with one result or a tuple of them."""
    graph = Graph()
    x = graph.inputs(n)
    results = function(*x)
    results = results if isinstance(results, tuple) else (results,)
    return Program.of("f", graph, {"x": ((n,), x)}, {"y": ((len(results),), results)})


def run_text(p, arrays):
    """Execute the lines of a program's text."""
    names = {port.name: arrays[port.name].reshape(-1).tolist() for port in p.inputs}
    outputs = {port.name: [math.nan] * port.size for port in p.outputs}
    assert not names.keys() & outputs.keys()
    functions = {"sin": np.sin, "cos": np.cos, "sqrt": np.sqrt, "abs": np.abs, "min": np.minimum, "max": np.maximum}
    functions["select"] = lambda condition, x, y: x if condition > 0.0 else y
    # NumPy's own functions on Python's floats: the numbers of `evaluate`, to the last bit.
    exec(p.text(), {"__builtins__": {}, **functions}, names | outputs)
    return {port.name: np.array(outputs[port.name], dtype=float).reshape(port.shape) for port in p.outputs}


_FORMS = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "neg": lambda x: -x,
    "reciprocal": lambda x: 1.0 / x,
    "sqrt": np.sqrt,
    "abs": np.abs,
    "min": np.minimum,
    "max": np.maximum,
    "select": lambda condition, x, y: x if condition > 0.0 else y,
    "fma": lambda x, y, z: x * y + z,
    "fnma": lambda x, y, z: z - x * y,
    "fms": lambda x, y, z: x * y - z,
}


def run_lowered(p, arrays, nested=False):
    """Execute a program's lowered operations in their order."""
    value = {index: p.nodes[index][1] for index in p.live if p.nodes[index][0] == CONSTANT}
    for port in p.inputs:
        flat = arrays[port.name].reshape(-1).tolist()
        value.update({node: x for node, x in zip(port.scalars, flat, strict=True) if node >= 0})
    for operation in lower(p, nested=nested):
        x = [value[node] for node in operation.operands]
        results = (np.sin(*x), np.cos(*x)) if operation.kind == "sincos" else (_FORMS[operation.kind](*x),)
        value.update({node: r for node, r in zip(operation.results, results, strict=True) if node >= 0})
    return {
        port.name: np.array([value[s] if isinstance(s, int) else s for s in port.scalars]).reshape(port.shape)
        for port in p.outputs
    }


def check_nesting(p):
    """Sums in sums: every value is made once, after its operands, and each node has its own value or that of a sum so
    far, which nobody reads but the operation behind it. In whole numbers modulo a prime nothing is rounded, so that
    results are the same; any number does for a sine."""
    operations, plain = lower(p, nested=True), lower(p)
    assert len(operations) <= len(plain)
    prime, rng = (1 << 61) - 1, np.random.default_rng(0)
    given = {index: int(rng.integers(1, prime)) for index in p.live if p.nodes[index][0] <= INPUT}
    known = {index for index in p.live if p.nodes[index][0] <= INPUT}
    for operation in operations:
        assert set(operation.operands) <= known, "an operand that is not there yet"
        assert not known & set(operation.results), "computed twice"
        known |= {node for node in operation.results if node >= 0}

    def values(each):
        value = dict(given)
        for kind, results, read in each:
            x = [value[node] for node in read]
            exact = kind in ("add", "sub", "mul", "neg", "fma", "fnma", "fms")
            for k, node in enumerate(results):
                value[node] = (_FORMS[kind](*x) if exact else pow(x[0] + k, 3, prime)) % prime
        return value

    by_sums, by_products = values(operations), values(plain)
    for node in stored_nodes(p.outputs):
        assert by_sums[node] == by_products[node]


def check_lowering(p):
    """Every live operation happens exactly once, after its operands; products inside others are needed nowhere else."""
    needed = {index for index in p.live if p.nodes[index][0] > INPUT}
    known = set(p.live) - needed
    inside = Counter()
    for operation in lower(p):
        assert set(operation.operands) <= known, "an operand that is not there yet"
        made = [node for node in operation.results if node >= 0]
        assert made
        assert not known & set(made), "computed twice"
        known |= set(made)
        if operation.kind in ("fma", "fnma", "fms"):
            (result,) = made
            kind, a, b = p.nodes[result]
            fused = [each for each in (a, b) if p.nodes[each][1:] == operation.operands[:2]]
            assert kind == (ADD if operation.kind == "fma" else SUB)
            inside[next(each for each in fused if p.nodes[each][0] == MUL)] += 1
    assert needed == (known & needed) | set(inside)
    assert not set(inside) & known
    assert set(inside.values()) <= {1}
    used = Counter(s for port in p.outputs for s in port.scalars if isinstance(s, int))
    for index in p.live:
        used.update(operands(p.nodes[index]))
    assert all(used[index] == 1 for index in inside)
