"""Expressions: what folding does to sums and products, and that it changes no number."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from program_runner import check_lowering, check_nesting, program, run_lowered, run_text

from robodyn.compile.tracing.expression import (
    ABS,
    ADD,
    CONSTANT,
    INPUT,
    MAX,
    MIN,
    MUL,
    NEG,
    OPERATION_NAMES,
    SELECT,
    SQRT,
    SUB,
    Expression,
    Graph,
    negated,
    operands,
)
from robodyn.core.spatial import select

_SIGNS = {ADD: "+", SUB: "-", MUL: "*"}


def written(value):
    """An expression of inputs x, y, z, w as a text with all its brackets; a number as it is."""
    if not isinstance(value, Expression):
        return value

    def text(index):
        operation, a, b = value.graph.nodes[index]
        if operation == INPUT:
            return "xyzw"[a]
        if operation == CONSTANT:
            return f"{a:g}"
        if operation in _SIGNS:
            return f"({text(a)} {_SIGNS[operation]} {text(b)})"
        return f"-{text(a)}" if operation == NEG else f"{OPERATION_NAMES[operation]}({text(a)})"

    return text(value.index)


# Folding.


RULES = [
    ("zero product", lambda x, y: x * 0.0, 0.0),
    ("zero product, zero first", lambda x, y: 0 * x, 0.0),
    ("zero quotient", lambda x, y: 0.0 / x, 0.0),
    ("one", lambda x, y: 1.0 * x, "x"),
    ("minus one", lambda x, y: x * -1, "-x"),
    ("quotient by one", lambda x, y: x / 1.0, "x"),
    ("sum with zero", lambda x, y: x + 0.0, "x"),
    ("sum with zero, zero first", lambda x, y: 0 + x, "x"),
    ("difference with zero", lambda x, y: x - 0.0, "x"),
    ("zero less something", lambda x, y: 0.0 - x, "-x"),
    ("negative zero", lambda x, y: x + -0.0, "x"),
    ("two signs", lambda x, y: -(x * -1.0), "x"),
    ("something less itself", lambda x, y: (x * y) - (y * x), 0.0),
    ("something and its opposite", lambda x, y: (x * y) + (-y * x), 0.0),
    ("sum with an opposite", lambda x, y: x + (-y), "(x - y)"),
    ("opposite first", lambda x, y: (-x) + y, "(y - x)"),
    ("two opposites", lambda x, y: (-x) + (-y), "-(x + y)"),
    ("less an opposite", lambda x, y: x - (-y), "(x + y)"),
    ("opposite less something", lambda x, y: (-x) - y, "-(x + y)"),
    ("opposites' difference", lambda x, y: (-x) - (-y), "(y - x)"),
    ("sign out of a product", lambda x, y: (-x) * y, "-(x * y)"),
    ("sign out of a product's second factor", lambda x, y: x * (-y), "-(x * y)"),
    ("signs cancel in a product", lambda x, y: (-x) * (-y), "(x * y)"),
    ("sign out of a constant factor", lambda x, y: -3.0 * x, "-(x * 3)"),
    ("signs of factor and product cancel", lambda x, y: -3.0 * (-x), "(x * 3)"),
    ("a sum swallows a constant factor's sign", lambda x, y: y + x * -3.0, "(y - (x * 3))"),
    ("constants merge", lambda x, y: 2.0 * (x * 3.0), "(x * 6)"),
    ("constants merge, the constant first", lambda x, y: 2.0 * (np.sin(y * 3.0) * 3.0), "(sin((y * 3)) * 6)"),
    ("constants merge to one", lambda x, y: (x * 0.5) * 2.0, "x"),
    ("constants merge to minus one", lambda x, y: (x * -0.5) * 2.0, "-x"),
    ("quotients by numbers merge", lambda x, y: (x / 4.0) / 2.0, "(x * 0.125)"),
    ("quotient", lambda x, y: x / y, "(x * reciprocal(y))"),
    ("reciprocal", lambda x, y: 1.0 / y, "reciprocal(y)"),
    ("sign out of a reciprocal", lambda x, y: 1.0 / (-y), "-reciprocal(y)"),
    ("signs cancel in a quotient", lambda x, y: (-x) / (-y), "(x * reciprocal(y))"),
    ("sine is odd", lambda x, y: np.sin(-x), "-sin(x)"),
    ("cosine is even", lambda x, y: np.cos(-x), "cos(x)"),
    ("a size has no sign", lambda x, y: np.abs(-x), "abs(x)"),
    ("a root keeps its argument's sign", lambda x, y: np.sqrt(-x), "sqrt(-x)"),
    ("a constant of its own stays", lambda x, y: x + -3.0, "(x + -3)"),
    ("a number less something", lambda x, y: 3.0 - x, "(3 - x)"),
    ("a number less an opposite", lambda x, y: 3.0 - (-x), "(x + 3)"),
    ("an opposite less a number", lambda x, y: (-x) - 3.0, "-(x + 3)"),
]


@pytest.mark.parametrize(("rule", "wanted"), [rule[1:] for rule in RULES], ids=[rule[0] for rule in RULES])
def test_folding(rule, wanted):
    got = written(rule(*Graph().inputs(2)))
    assert got == wanted
    assert type(got) is type(wanted)


def test_the_opposite_of_a_known_difference_is_its_sign_changed():
    p = program(lambda x, y: (x - y, y - x), 2)
    assert p.counts == {"input": 2, "sub": 1, "neg": 1}


def test_negated_takes_numbers_too():
    assert negated(2.5) == -2.5


def test_equal_nodes_are_made_once():
    graph = Graph()
    x, y, z = graph.inputs(3)
    first = np.sin(x * y + 2.5 * z) / z
    n = len(graph.nodes)
    again = np.sin(z * 2.5 + y * x) / z
    assert again.index == first.index
    assert len(graph.nodes) == n
    assert len(set(graph.nodes)) == n
    # Several quotients by one number divide once.
    assert program(lambda x, y, z: (x / z, y / z), 3).counts == {"input": 3, "mul": 2, "reciprocal": 1}


def test_inputs_are_never_shared():
    graph = Graph()
    x = graph.input()
    assert [each.index for each in (x, *graph.inputs(2))] == [0, 1, 2]
    assert graph.n_inputs == 3


def test_repr_names_the_operation():
    x, y = Graph().inputs(2)
    assert (repr(x), repr(x * y)) == ("<input %0>", "<mul %2>")


NUMPY_NUMBERS = [np.float64(2.5), np.float32(2.5), np.int64(2), np.array(2.5)]


@pytest.mark.parametrize("number", NUMPY_NUMBERS, ids=lambda number: type(number).__name__)
def test_numpy_numbers_on_either_side(number):
    plain = float(number)
    x, _ = Graph().inputs(2)
    for apply in (
        lambda a: a + x,
        lambda a: a - x,
        lambda a: a * x,
        lambda a: a / x,
        lambda a: x + a,
        lambda a: x - a,
        lambda a: x * a,
        lambda a: x / a,
    ):
        assert written(apply(number)) == written(apply(plain))
    assert written(np.float64(0.0) * x) == 0.0
    assert written(np.float64(1.0) * x) == "x"


def test_numpy_functions_on_two_expressions():
    x, y = Graph().inputs(2)
    functions = {np.add: "(x + y)", np.subtract: "(x - y)", np.multiply: "(x * y)"}
    for function, wanted in functions.items():
        assert written(function(x, y)) == wanted
    assert written(np.true_divide(x, y)) == "(x * reciprocal(y))"
    assert written(np.subtract(x, 2.0)) == "(x - 2)"


LOOKS = {
    "truth": bool,
    "float": float,
    "int": int,
    "index": lambda x: [1, 2, 3][x],
    "less": lambda x: x < 1.0,
    "at most": lambda x: x <= x,
    "greater": lambda x: x > 0.0,
    "at least": lambda x: x >= 1.0,
    "equal": lambda x: x == x,
    "unequal": lambda x: x != 0.0,
    "branch": lambda x: 1.0 if x else 0.0,
    "and": lambda x: x and 1.0,
    "max": lambda x: max(x, 0.0),
    "in": lambda x: x in (0.0, 1.0),
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_a_value_cannot_be_looked_at(look):
    with pytest.raises(TypeError, match="must not branch on scalars"):
        look(Graph().input())


@pytest.mark.parametrize("use", [hash, round, lambda x: x**2, np.fmax, np.exp, np.sum, np.add.reduce, math.sin])
def test_what_programs_do_not_know_is_refused(use):
    x = Graph().input()
    with pytest.raises(TypeError):
        use(x, 0.0) if use is np.fmax else use(x)


# Random expressions.


class Running:
    """A float with a bound on its rounding error, whatever the order of operations."""

    def __init__(self, value, error=0.0):
        self.value, self.error = value, error

    @staticmethod
    def of(x):
        return x if isinstance(x, Running) else Running(float(x))

    def _rounded(self, value, error):
        return Running(value, error + 2e-16 * abs(value))

    def __add__(self, other):
        other = Running.of(other)
        return self._rounded(self.value + other.value, self.error + other.error)

    __radd__ = __add__

    def __sub__(self, other):
        other = Running.of(other)
        return self._rounded(self.value - other.value, self.error + other.error)

    def __mul__(self, other):
        other = Running.of(other)
        error = abs(self.value) * other.error + abs(other.value) * self.error + self.error * other.error
        return self._rounded(self.value * other.value, error)

    __rmul__ = __mul__

    def __rsub__(self, other):
        return Running.of(other) - self

    def __rtruediv__(self, other):
        return Running.of(other) / self

    def __truediv__(self, other):
        other = Running.of(other)
        smallest = max(abs(other.value) - other.error, 0.0)
        inverse = Running(1 / other.value, other.error / smallest**2 if smallest else math.inf)
        return self * inverse._rounded(inverse.value, inverse.error)

    def __neg__(self):
        return Running(-self.value, self.error)

    def __abs__(self):
        return Running(abs(self.value), self.error)

    def sin(self):
        return Running(math.sin(self.value), self.error + 4e-16)

    def cos(self):
        return Running(math.cos(self.value), self.error + 4e-16)

    def extremum(self, of, other):
        other = Running.of(other)
        return Running(of(self.value, other.value), max(self.error, other.error))

    def select(self, positive, otherwise):
        """Both values are possible if the sign of the condition is within the error."""
        positive, otherwise = Running.of(positive), Running.of(otherwise)
        chosen = positive if self.value > 0.0 else otherwise
        apart = abs(positive.value - otherwise.value) if abs(self.value) <= 8 * self.error else 0.0
        return Running(chosen.value, max(positive.error, otherwise.error) + apart)

    def sqrt(self):
        root = math.sqrt(self.value)
        return self._rounded(root, self.error / root)


N_INPUTS = 3
_numbers = st.sampled_from([0.0, 1.0, -1.0, 2.0, -0.5, 3.0]) | st.floats(-4.0, 4.0).map(lambda x: round(x, 3))
_leaves = st.tuples(st.just("number"), _numbers) | st.tuples(st.just("input"), st.integers(0, N_INPUTS - 1))
_BINARY = ("add", "sub", "mul", "div", "minimum", "maximum")
_UNARY = ("neg", "abs", "sin", "cos", "sqrt")
_trees = st.recursive(
    _leaves,
    lambda inner: (
        st.tuples(st.sampled_from(_UNARY), inner)
        | st.tuples(st.sampled_from(_BINARY), inner, inner)
        | st.tuples(st.just("select"), inner, inner, inner)
    ),
    max_leaves=25,
)
_states = st.tuples(*(st.floats(0.25, 3.0) | st.floats(-3.0, -0.25) for _ in range(N_INPUTS)))


def compute(tree, x):
    """A tree on scalars of any kind: divisors and what is under roots are kept above zero."""
    kind, *rest = tree
    if kind == "number":
        return rest[0]
    if kind == "input":
        return x[rest[0]]
    values = [compute(each, x) for each in rest]
    if kind in ("neg", "abs", "sin", "cos"):
        return -values[0] if kind == "neg" else getattr(np, kind)(values[0])
    if kind == "sqrt":
        return np.sqrt(values[0] * values[0] + 0.5)
    if kind == "select":
        return select(*values)
    a, b = values
    if kind in ("minimum", "maximum"):
        known = next((each for each in (a, b) if isinstance(each, Running)), None)
        if known is not None:
            return known.extremum({"minimum": min, "maximum": max}[kind], b if known is a else a)
        return getattr(np, kind)(a, b)
    return {"add": lambda: a + b, "sub": lambda: a - b, "mul": lambda: a * b, "div": lambda: a / (b * b + 0.5)}[kind]()


def operations_written(tree):
    """Operations of a tree as written: a quotient is a reciprocal and a product, signs are free."""
    kind, *rest = tree
    if kind in ("number", "input"):
        return 0
    own = {"neg": 0, "abs": 0, "sqrt": 3, "div": 4, "select": 3}.get(kind, 1)
    return own + sum(operations_written(each) for each in rest)


def traced(trees):
    return program(lambda *x: tuple(compute(tree, x) for tree in trees), N_INPUTS)


def bounded(tree, state):
    return Running.of(compute(tree, [Running(x) for x in state]))


@settings(max_examples=300, deadline=None, derandomize=True)
@given(trees=st.lists(_trees, min_size=1, max_size=3), state=_states)
def test_random_expressions_fold_to_the_same_numbers(trees, state):
    p = traced(trees)
    got = p.evaluate({"x": np.array(state)})["y"]
    for tree, value in zip(trees, got, strict=True):
        wanted = bounded(tree, state)
        # Both are within the bound of the true value; merged constants and reciprocals round a few times more.
        assert abs(value - wanted.value) <= 8 * wanted.error
    assert p.operations <= sum(map(operations_written, trees))
    kinds = Counter(p.nodes[index][0] for index in p.live)
    assert p.counts == {OPERATION_NAMES[kind]: kinds[kind] for kind in sorted(kinds)}
    assert p.operations == len(p.live) - kinds[CONSTANT] - kinds[INPUT] - kinds[NEG] - kinds[ABS]


@settings(max_examples=150, deadline=None, derandomize=True)
@given(trees=st.lists(_trees, min_size=1, max_size=3))
def test_random_expressions_keep_the_graph_tidy(trees):
    p = traced(trees)
    for index in p.live:
        operation, read = p.nodes[index][0], operands(p.nodes[index])
        if operation <= INPUT:
            continue
        below = [p.nodes[operand][0] for operand in read]
        assert all(operand < index for operand in read)
        assert below.count(CONSTANT) < len(below), "an operation on numbers alone"
        if operation not in (SQRT, MIN, MAX, SELECT):
            assert NEG not in below, "a sign that did not travel outward"
        for operand in read:
            if p.nodes[operand][0] == CONSTANT:
                value = p.nodes[operand][1]
                assert value != 0.0 or operation in (MIN, MAX, SELECT)
                assert operation != MUL or (value > 0.0 and value != 1.0)
    assert len(set(p.nodes)) == len(p.nodes)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(trees=st.lists(_trees, min_size=1, max_size=3), state=_states)
def test_random_expressions_text_and_lowering_compute_the_same(trees, state):
    p = traced(trees)
    wanted = p.evaluate({"x": np.array(state)})["y"]
    np.testing.assert_array_equal(run_text(p, {"x": np.array(state)})["y"], wanted)
    check_lowering(p)
    check_nesting(p)
    for nested in (False, True):
        for tree, value in zip(trees, run_lowered(p, {"x": np.array(state)}, nested)["y"], strict=True):
            reference = bounded(tree, state)
            assert abs(value - reference.value) <= 8 * reference.error


def test_nan_goes_through_comparisons():
    """Also where the NaN is the condition of a selection, or in the value that is less, on every side."""
    p = program(lambda x, y, z: (np.minimum(x, y), np.maximum(x, y), np.minimum(x, 0.5), select(x, y, z)), 3)
    numbers = (np.nan, -1.0, 0.0, 2.0, np.inf)
    x = np.array([(a, b, c) for a in numbers for b in numbers for c in (3.0, -4.0)])
    wanted = np.stack([np.minimum(x[:, 0], x[:, 1]), np.maximum(x[:, 0], x[:, 1]), np.minimum(x[:, 0], 0.5)], -1)
    chosen = np.where(x[:, 0] > 0.0, x[:, 1], np.where(np.isnan(x[:, 0]), np.nan, x[:, 2]))
    np.testing.assert_array_equal(p.evaluate({"x": x})["y"], np.column_stack([wanted, chosen]))
    np.testing.assert_array_equal(select(x[:, 0], x[:, 1], x[:, 2]), chosen)
    assert [select(a, 1, 2) for a in (0.5, 0.0, -1.0)] == [1, 2, 2] and np.isnan(select(np.nan, 1, 2))
