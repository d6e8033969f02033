"""Datapaths: programs of sums and products, their formats, the model that is exact to the bit, and what is refused."""

from __future__ import annotations

from fractions import Fraction
from math import floor

import numpy as np
import pytest
from robots import own, shared

import robodyn as rd
from robodyn.compile.tracing.expression import ADD, CONSTANT, INPUT, MUL, NEG, OPERATION_NAMES
from robodyn.hardware import Box, datapath
from robodyn.hardware import model as exact
from robodyn.hardware.program import FORMULATIONS, input_nodes, output_scalars
from robodyn.hardware.ranges import host_inputs, intervals, rotations, values
from robodyn.internals.errors import ArgumentError, NumericalError, SingularError

ASKED = ("q", "qd", "qdd", "Minv")
ROUNDING = 1e-9
"""Of float64 beside bounds of words of at most 32 bits, relative to the largest entry."""


def load(name):
    return rd.load_urdf(own(name))


def states(d, rows=200, seed=3):
    asked = ASKED if d.query == "forward_dynamics_gradient" else ASKED[:3]
    return d.box.samples(d.model, asked, rows, seed)


def wanted(d, s):
    """By the CPU engine's or the reference engine's gradient of inverse dynamics, which no datapath has a part in."""
    found = rd.Dynamics(d.model, engine="reference").inverse_dynamics_gradient(s["q"], s["qd"], s["qdd"])
    return tuple(-s["Minv"] @ each for each in found) if "Minv" in s else found


def plainly(d, words):
    """What hardware is to do, in Python's integers and fractions: one state, word by word."""
    program, formats = d.program, d.formats
    value, wrapped = {node: int(w) for (_, _, node), w in zip(input_nodes(program), words, strict=True)}, 0
    for index in program.live:
        operation, a, b = program.nodes[index]
        if operation == INPUT:
            continue
        if operation == CONSTANT:
            scaled = floor(Fraction(a) * Fraction(2) ** formats.fraction[index] + Fraction(1, 2))
            value[index] = max(-formats.largest - 1, min(formats.largest, scaled))
            continue
        x = value[a] * Fraction(2) ** -formats.fraction[a]
        y = value[b] * Fraction(2) ** -formats.fraction[b] if b >= 0 else None
        result = -x if operation == NEG else x * y if operation == MUL else x + y if operation == ADD else x - y
        word = floor(result * Fraction(2) ** formats.fraction[index] + Fraction(1, 2))
        value[index] = (word + formats.largest + 1) % 2**formats.width - formats.largest - 1
        wrapped += value[index] != word
    return [value[s] if isinstance(s, int) else 0 for s in output_scalars(program)], wrapped


FORMATS = (
    {"width": 18},
    {"width": 32},
    {"width": 9, "guard": 0},
    {"width": 32, "fraction": 16},
    {"width": 24, "fraction": 23},
    {"width": 20, "ranges": "intervals"},
    {"width": 4, "fraction": 0},
)


@pytest.mark.parametrize("options", FORMATS, ids=str)
@pytest.mark.parametrize("formulation", FORMULATIONS)
@pytest.mark.some(of=12, rest="matrix")
def test_the_model_is_integer_arithmetic_to_the_bit(options, formulation):
    d = datapath(load("double_pendulum"), formulation=formulation, **options)
    s = Box(qd=3.0, qdd=20.0).samples(d.model, ASKED, 40, 5)  # beyond the box, too
    words = exact.quantized(d.program, d.formats, host_inputs(d.program, s))
    done = exact.run(d.program, d.formats, words)
    for row, (got, wrapped) in enumerate(zip(done.words.tolist(), done.wrapped.tolist(), strict=True)):
        assert (got, wrapped) == plainly(d, words[row])


def test_wrapping_happens_and_is_counted():
    """The tests above would prove little if nothing ever wrapped."""
    d = datapath(load("double_pendulum"), width=10, guard=0)
    d.evaluate(**Box(qd=8.0, qdd=60.0).samples(d.model, ASKED, 2000, 7))
    assert 0 < d.wrapped.sum() < 2000
    coarse = datapath(load("double_pendulum"), width=24, fraction=23)
    coarse.evaluate(**states(coarse))
    assert coarse.wrapped.mean() > 0.5


@pytest.mark.parametrize("name", ["arm6", "arm7", "cartpole", "double_pendulum", "planar_rover"])
@pytest.mark.parametrize("formulation", FORMULATIONS)
@pytest.mark.some(of=6, rest="matrix")
def test_wide_words_give_the_gradient_and_bounds_hold(name, formulation):
    d = datapath(load(name), formulation=formulation, width=30)
    s = states(d)
    for got, bound, expected in zip(d.evaluate(**s), d.error_bounds(**s), wanted(d, s), strict=True):
        largest = np.abs(expected).max()
        assert np.abs(got - expected).max() < 1e-3 * max(1.0, largest)
        right = np.abs(got - expected) <= bound + ROUNDING * largest
        assert right[~d.wrapped].all()
    assert d.wrapped.mean() < 0.02
    assert not d.outside.any() or "Minv" in s


@pytest.mark.parametrize("query", ["forward_dynamics_gradient", "inverse_dynamics_gradient"])
def test_errors_fall_with_the_width_and_bounds_are_not_idle(query):
    model, worst = load("double_pendulum"), []
    for width in (14, 18, 22, 26, 30):
        d = datapath(model, query=query, formulation="algorithm 2", width=width)
        s = states(d)
        error = [np.abs(a - b).max() for a, b in zip(d.evaluate(**s), wanted(d, s), strict=True)]
        bound = [np.abs(b).max() for b in d.error_bounds(**s)]
        assert all(b >= e > 0.01 * b for e, b in zip(error, bound, strict=True))
        worst.append(max(error))
    ratios = np.array(worst[:-1]) / worst[1:]
    assert (ratios > 4.0).all() and (ratios < 64.0).all()  # 16 for four bits


@pytest.mark.matrix
def test_a_binary_point_for_each_value_beats_one_for_all():
    """18 bits with points of their own against 32 with 16 behind the point, as the paper has."""
    d = datapath(load("arm7"), width=18)
    paper = datapath(load("arm7"), width=32, fraction=16)
    s = states(d, 500)
    expected = wanted(d, s)
    scaled = [np.abs(a - b).max() for a, b in zip(d.evaluate(**s), expected, strict=True)]
    uniform = [np.abs(a - b).max() for a, b in zip(paper.evaluate(**s), expected, strict=True)]
    assert scaled[0] < uniform[0] and scaled[1] < uniform[1]


# Ranges.


@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_what_is_proved_never_wraps(formulation):
    d = datapath(load("double_pendulum"), formulation=formulation, width=16, ranges="intervals")
    assert d.formats.proved
    rng = np.random.default_rng(0)
    s = states(d, 4000, seed=11)
    # Corners that no state has: every sign of M^-1, whole turns.
    s["Minv"] = s["Minv"] * rng.choice([-1.0, 1.0], (4000, 1, 1))
    s["q"] = rng.uniform(-np.pi, np.pi, s["q"].shape)
    d.evaluate(**s)
    assert not d.wrapped.any()


def test_intervals_hold_what_samples_reach_and_know_rotations():
    d = datapath(load("arm6"), formulation="algorithm 2", width=18)
    ports = host_inputs(d.program, states(d, 500))
    found = values(d.program, ports)
    given = {node: (-np.abs(found[node]).max(), np.abs(found[node]).max()) for _, _, node in input_nodes(d.program)}
    bounds = intervals(d.program, given)
    for index in d.program.live:
        low, high = bounds[index]
        assert low <= np.min(found[index]) and np.max(found[index]) <= high
    turned = rotations(d.program)
    assert turned
    for index, (x, y) in turned.items():
        sizes = [max(map(abs, bounds[k])) for k in (index, x, y)]
        assert sizes[0] <= np.hypot(*sizes[1:]) * (1 + 1e-6)


def test_states_outside_the_box_are_flagged():
    d = datapath(load("arm6"), box=Box(qd=1.0, qdd=5.0))
    s = states(d, 5)
    d.evaluate(**s)
    assert not d.outside[1:].any()
    for name, factor in (("qd", 3.0), ("qdd", 3.0), ("q", 9.0), ("Minv", 50.0)):
        far = {**s, name: s[name] * factor + 0.1}
        d.evaluate(**far)
        assert d.outside.all(), name


@pytest.mark.matrix
def test_sums_that_vanish_are_left_out_and_the_program_stays_right():
    d = datapath(load("arm7"))
    assert d.vanishing > 0
    s = states(d)
    found = d.program.evaluate(host_inputs(d.program, s))
    for name, expected in zip(("dqdd_dq", "dqdd_dqd"), wanted(d, s), strict=True):
        np.testing.assert_allclose(found[name], expected, atol=1e-10 * np.abs(expected).max())


def test_only_sums_products_and_signs_are_left():
    d = datapath(load("arm6"))
    kinds = {OPERATION_NAMES[d.program.nodes[index][0]] for index in d.program.live}
    assert kinds <= {"constant", "input", "add", "sub", "mul", "neg"}


# Calls.


@pytest.mark.parametrize("leading", [(), (1,), (3, 1, 2), (0,)])
@pytest.mark.some(of=2, rest="matrix")
def test_leading_axes(leading):
    d = datapath(load("arm6"), width=16)
    n = int(np.prod(leading))
    s = {name: a.reshape(*leading, *a.shape[1:]) for name, a in states(d, n).items()} if n else {
        "q": np.zeros((0, 6)), "qd": np.zeros((0, 6)), "qdd": np.zeros((0, 6)), "Minv": np.zeros((0, 6, 6))
    }  # fmt: skip
    by_q, by_qd = d.evaluate(**s)
    assert by_q.shape == by_qd.shape == (*leading, 6, 6)
    assert d.wrapped.shape == d.outside.shape == leading
    assert d.error_bounds(**s)[0].shape == (*leading, 6, 6)
    if leading == (3, 1, 2):
        one = d.evaluate(*(s[name][2, 0, 1] for name in ASKED))
        np.testing.assert_array_equal(one[0], by_q[2, 0, 1])
        broadcast = d.evaluate(s["q"][0, 0, 0], s["qd"], s["qdd"][:, :, :1], s["Minv"])
        assert broadcast[0].shape == (3, 1, 2, 6, 6)


@pytest.mark.matrix
def test_iiwa14_has_the_sizes_that_were_designed():
    model = rd.load_urdf(shared("iiwa14"))
    spatial = datapath(model, width=18)
    assert 2800 < spatial.multipliers < 2950 and spatial.interval == 1 and spatial.latency <= 60
    streamed = datapath(model, width=18, interval=13)
    assert streamed.multipliers == -(-spatial.multipliers // 13) and streamed.latency <= 64
    alone = datapath(model, width=18, multipliers=64)
    assert alone.multipliers == 64 and alone.latency <= 63


def test_names_are_public():
    assert rd.hardware.Box is Box and rd.hardware.datapath is datapath


# What is refused.


def one_joint(kind, axis):
    body = '<inertial><mass value="1"/><inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial>'
    return rd.load_urdf(
        f'<robot name="one"><link name="a"/><link name="b">{body}</link><joint name="j" type="{kind}">'
        f'<parent link="a"/><child link="b"/><axis xyz="{axis}"/></joint></robot>'
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"query": "inverse_dynamics"}, ("query", "forward_dynamics_gradient")),
        ({"formulation": "aba"}, ("formulation", "idsva")),
        ({"ranges": "guessed"}, ("ranges", "sampled")),
        ({"width": 3}, ("width", "4 to 32")),
        ({"width": 33}, ("width", "4 to 32")),
        ({"width": 18.0}, ("width",)),
        ({"width": True}, ("width",)),
        ({"fraction": 18}, ("fraction", "0 to 17")),
        ({"fraction": -1}, ("fraction",)),
        ({"guard": 17}, ("guard",)),
        ({"multipliers": 0}, ("multipliers",)),
        ({"interval": 0}, ("interval",)),
        ({"multipliers": 3, "interval": 2}, ("multipliers", "products")),
        ({"box": {"qd": 1.0}}, ("box", "Box")),
        ({"box": Box(qd=[1.0, 2.0, 3.0])}, ("Box(qd=)", "shape")),
        ({"box": Box(Minv=[[1.0, 2.0], [0.0, 1.0]])}, ("Box(Minv=)", "symmetric")),
        ({"box": Box(q=(1.0, -1.0))}, ("Box(q=)",)),
    ],
)
def test_wrong_arguments_are_named(options, words):
    with pytest.raises(ArgumentError) as error:
        datapath(load("double_pendulum"), **options)
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize("value", [-1.0, 0.0, np.nan, np.inf, 1e300, "2", None, True, [[]], [1.0, np.nan], object()])
@pytest.mark.parametrize("name", ["qd", "qdd"])
def test_a_box_is_of_positive_numbers(name, value):
    with pytest.raises((ArgumentError, NumericalError), match=name):
        Box(**{name: value})


@pytest.mark.parametrize(
    ("name", "options", "word"),
    [
        ("quadruped", {"base": "floating"}, "quaternion"),
        ("gripper", {}, "follows"),
        ("ball_joint_arm", {}, "quaternion"),
    ],
)
def test_robots_that_no_datapath_has(name, options, word):
    with pytest.raises(ArgumentError, match=word):
        datapath(rd.load_urdf(own(name), **options))


def test_robots_that_are_too_large():
    with pytest.raises(ArgumentError, match="pairs"):
        datapath(rd.auto_tree(100))


def test_robots_without_anything_to_compute():
    with pytest.raises(ArgumentError, match="constant"):
        datapath(one_joint("continuous", "0 0 1"))
    with pytest.raises(ArgumentError, match="no degree of freedom"):
        datapath(one_joint("fixed", "0 0 1"))
    with pytest.raises(SingularError):
        datapath(rd.load_urdf(own("massless_tip")))
    with pytest.raises(ArgumentError, match="model"):
        datapath("arm6")


def test_wrong_states_are_named():
    d = datapath(load("double_pendulum"))
    s = states(d, 3)
    for name, value, error in (
        ("q", np.zeros((3, 3)), ArgumentError),
        ("qd", np.full((3, 2), np.nan), NumericalError),
        ("qdd", "text", ArgumentError),
        ("qd", np.zeros((4, 2)), ArgumentError),
        ("Minv", None, ArgumentError),
        ("Minv", np.zeros((3, 2)), ArgumentError),
        ("Minv", np.triu(np.ones((3, 2, 2))), ArgumentError),
        ("Minv", 1j * np.ones((3, 2, 2)), ArgumentError),
    ):
        with pytest.raises(error, match=name if name != "qd" else "leading|qd"):
            d.evaluate(**{**s, name: value})
    inverse = datapath(load("double_pendulum"), query="inverse_dynamics_gradient")
    with pytest.raises(ArgumentError, match="Minv"):
        inverse.evaluate(**s)
