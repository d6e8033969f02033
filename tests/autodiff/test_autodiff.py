"""The rules behind robodyn.jax and robodyn.torch, on NumPy: first and second derivatives against central differences.

With NumPy for a library nothing is differentiated by a machine, so each rule is judged alone: rates against
differences, gradients and transposes against rates.
"""

from __future__ import annotations

import numpy as np
import pytest
from conftest import relative
from robots import own

import robodyn as rd
from robodyn.api.autodiff.calls import QueryCall
from robodyn.api.autodiff.coordinates import Coordinates
from robodyn.api.autodiff.dynamics_rules import QD, QDD, Q
from robodyn.api.autodiff.functions import WITH_RULES, DifferentiableDynamics
from robodyn.description import Joint, Link, RobotDescription
from robodyn.engines.query_table import OF_SHAPES, find
from robodyn.joints import KINDS

STEP = 1e-6
# Truncation of STEP^2 and roundings of 1e-16 / STEP, relative to results of order one to a thousand.
TOLERANCE = 2e-7
EVERY_KIND = tuple(kind.name for kind in KINDS)


class NumPy:
    """A library that knows no derivatives."""

    xp = np

    def constant(self, array):
        return array

    def fixed(self, array):
        return array

    def call(self, dyn, query, *arrays):
        question = find(query)
        return QueryCall(dyn, question, question.plain[: len(arrays)]).answers(*arrays)

    def smooth(self, function, *x):
        return function.value(*x)

    def linear(self, linear, points, vectors):
        return linear.apply(points, vectors)


class OnNumPy(DifferentiableDynamics):
    def _read(self, name, value):
        return np.asarray(value, dtype=np.float64)


def robots():
    return {
        "fixed": rd.load_urdf(own("arm6")),
        "every kind": rd.random_tree(7, seed=5, joints=EVERY_KIND, base="floating", armature=True),
        "mimic": rd.random_tree(9, seed=4, joints=("revolute", "prismatic", "spherical"), mimic=0.6, armature=True),
    }


@pytest.fixture(scope="module", params=list(robots()))
def on(request):
    """The robot's functions, and a state of two rows with unit quaternions."""
    model = robots()[request.param]
    functions = OnNumPy(rd.Dynamics(model, engine="reference"), NumPy())
    rng = np.random.default_rng(1)
    return functions, model.random_configuration(rng, (2,)), *rng.standard_normal((2, 2, model.nv))


@pytest.mark.parametrize("name", EVERY_KIND)
def test_rates_and_velocities_of_every_kind(name):
    kind = next(kind for kind in KINDS if kind.name == name)
    model, rng = rd.random_tree(1, seed=3, joints=[name]), np.random.default_rng(0)
    q, v, anything = model.random_configuration(rng, (5,)), rng.standard_normal((5, kind.nv)), rng.standard_normal(5)
    moved = (model.integrate(q, STEP * v) - model.integrate(q, -STEP * v)) / (2 * STEP)
    rate = kind.rate(q, v)
    assert relative(rate, moved) < 1e-9
    assert relative(kind.velocity(q, rate), v) < 1e-14
    if kind.quaternion is not None:  # growing is no motion
        longer = np.zeros((5, kind.nq))
        part = slice(kind.quaternion, kind.quaternion + 4)
        longer[:, part] = anything[:, None] * q[:, part]
        assert np.abs(kind.velocity(q, longer)).max() < 1e-15


def test_coordinates_of_whole_robots():
    model, rng = robots()["every kind"], np.random.default_rng(2)
    coordinates = Coordinates(model)
    q, v = model.random_configuration(rng, (4, 1)), rng.standard_normal((3, model.nv))
    moved = (model.integrate(q, STEP * v) - model.integrate(q, -STEP * v)) / (2 * STEP)
    assert relative(coordinates.rate(q, v), moved) < 1e-9
    assert relative(coordinates.velocity(q, moved), np.broadcast_to(v, (4, 3, model.nv))) < 1e-9
    rate, force = rng.standard_normal((4, 3, model.nq)), rng.standard_normal((4, 3, model.nv))
    power = (coordinates.velocity(q, rate) * force).sum(-1)
    assert relative((coordinates.velocity_transposed(q, force) * rate).sum(-1), power) < 1e-14


@pytest.mark.parametrize("size", [1e-300, 1e-3, 1.0, 1e300])
def test_quaternions_of_any_size_become_unit(size):
    model = rd.random_tree(3, seed=1, joints=["spherical", "revolute"], base="floating")
    q = model.random_configuration(0, (2,))
    longer, index = q.copy(), model.quaternion_starts[:, None] + np.arange(4)
    longer[:, index] *= size
    np.testing.assert_allclose(Coordinates(model).unit(longer), q, rtol=1e-14)
    longer[0, index[0]] = 0.0
    with np.errstate(invalid="ignore"):
        unit = Coordinates(model).unit(longer)
    assert np.isnan(unit[0, index[0]]).all() and np.isfinite(unit[1]).all()


@pytest.mark.parametrize("name", WITH_RULES)
def test_answers_are_those_of_a_dynamics(name, on):
    functions, q, qd, qdd = on
    if name in (*OF_SHAPES, "is_free"):
        with pytest.raises(rd.ArgumentError, match="has no shapes"):
            getattr(functions, name)(q)
        return
    arguments = {
        **dict.fromkeys(("inverse_dynamics", "forward_dynamics"), (q, qd, qdd)),
        **dict.fromkeys(("bias_force", "kinetic_energy"), (q, qd)),
    }.get(name, (q,))
    if name == "coordinate_rate":
        wanted, longer = Coordinates(functions.model).rate(q, qd), q.copy()
        longer[:, functions.model.quaternion_starts[:, None] + np.arange(4)] *= 3.0
        assert relative(functions.coordinate_rate(longer, qd), wanted) < 1e-14
        return
    if name == "unit_coordinates":
        assert relative(functions.unit_coordinates(q), q) < 1e-15
        return
    assert relative(getattr(functions, name)(*arguments), getattr(functions.dyn, name)(*arguments)) < 1e-10


def smooth_functions(functions, q, qd, qdd):
    """Name -> (function, arguments)."""
    return {
        "inverse_dynamics": (functions._inverse_dynamics, (q, qd, qdd)),
        "bias_force": (functions._bias_force, (q, qd)),
        "gravity_force": (functions._gravity_force, (q,)),
        "momentum": (functions._momentum, (q, qd)),
        "forward_dynamics": (functions._forward_dynamics, (q, qd, qdd)),
        "mass_matrix": (functions._mass_matrix, (q,)),
        "mass_matrix_inverse": (functions._mass_matrix_inverse, (q,)),
        "potential_energy": (functions._potential_energy, (q,)),
        "body_poses": (functions._poses, (q,)),
    }


SMOOTH = (
    *("inverse_dynamics", "bias_force", "gravity_force", "momentum", "forward_dynamics"),
    *("mass_matrix", "mass_matrix_inverse", "potential_energy", "body_poses"),
)


def moved(functions, x, rates, t):
    """Arguments after a time t at rates; q stays on its manifold, and changes at its own rate there."""
    q = functions._coordinates.unit(x[0] + t * rates[0])
    return (q, *(part + t * rate for part, rate in zip(x[1:], rates[1:], strict=True)))


def rates_at(functions, x, rng):
    """Rates of arguments, such that quaternions stay of unit length."""
    first = functions._coordinates.rate(x[0], rng.standard_normal((2, functions.model.nv)))
    return (first, *(rng.standard_normal(part.shape) for part in x[1:]))


def total(one, other):
    return sum((a * b).sum() for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.some(of=3, rest="matrix")
def test_first_derivatives(name, on):
    functions, q, qd, qdd = on
    function, x = smooth_functions(functions, q, qd, qdd)[name]
    rng = np.random.default_rng(3)
    rates, y = rates_at(functions, x, rng), function.value(*x)
    high, low = (function.value(*moved(functions, x, rates, t)) for t in (STEP, -STEP))
    rate = function.tangent(x, y, rates)
    assert relative(rate, (high - low) / (2 * STEP)) < TOLERANCE
    weights = rng.standard_normal(y.shape)
    gradient = function.pullback(x, y, weights, (True,) * len(x))
    np.testing.assert_allclose(total(gradient, rates), (weights * rate).sum(), rtol=1e-9, atol=1e-9)
    for k in range(len(x)):  # one at a time
        alone = [each if i == k else None for i, each in enumerate(rates)]
        others = [each if i == k else 0.0 * each for i, each in enumerate(rates)]
        both = [function.tangent(x, y, each) for each in (alone, others)]
        np.testing.assert_allclose(np.broadcast_to(both[0], y.shape), both[1], atol=1e-9 * np.abs(rate).max())
        only = function.pullback(x, y, weights, tuple(i == k for i in range(len(x))))
        np.testing.assert_allclose(only[k], gradient[k], rtol=1e-12, atol=1e-12)


def maps(functions, q, qd, qdd):
    """Name -> (map, points, vectors)."""
    rng = np.random.default_rng(4)
    w, t, s, r = rng.standard_normal((4, 2, functions.model.nv))
    torques, state = functions._inverse_dynamics.torques, (q, qd, qdd)
    found = {}

    def note(linear, points, vectors):
        found[len(found)] = (linear, points, vectors)
        return linear.apply(points, vectors)

    library, plain = torques.library, torques.library.linear
    library.linear = note
    try:
        torques.along(state, (Q, QD, QDD), (t, s, r))
        torques.along(state, (QD,), (s,))
        torques.weighted(state, (Q, QD, QDD), w)
        torques.weighted(state, (Q, QDD), w)
        functions._forward_dynamics.solve(q, r)
    finally:
        library.linear = plain
    return found


@pytest.mark.parametrize("number", range(5))
@pytest.mark.some(of=3, rest="matrix")
def test_linear_maps_and_their_derivatives(number, on):
    functions, q, qd, qdd = on
    linear, points, vectors = maps(functions, q, qd, qdd)[number]
    rng, results = np.random.default_rng(5), linear.apply(points, vectors)
    weights = tuple(rng.standard_normal(each.shape) for each in results)
    back = linear.transposed.apply(points, weights)
    np.testing.assert_allclose(total(back, vectors), total(weights, results), rtol=1e-10)
    again = linear.transposed.transposed.apply(points, vectors)
    assert all(relative(one, other) < 1e-14 for one, other in zip(again, results, strict=True))
    rates = rates_at(functions, points, rng)
    high, low = (linear.apply(moved(functions, points, rates, t), vectors) for t in (STEP, -STEP))
    changes = linear.tangent(points, vectors, rates)
    for change, one, other in zip(changes, high, low, strict=True):
        assert relative(change, (one - other) / (2 * STEP)) < TOLERANCE
    gradient = linear.pullback(points, vectors, weights)
    np.testing.assert_allclose(total(gradient, rates), total(weights, changes), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("number", [2, 4])
@pytest.mark.some(of=3, rest="matrix")
def test_many_vectors_at_one_point(number, on):
    """Matrices answer for many vectors what a computation for each vector answers for one."""
    functions, q, qd, qdd = on
    linear, points, (vector,) = maps(functions, q, qd, qdd)[number]
    vectors = np.random.default_rng(6).standard_normal((9, *vector.shape))
    together = linear.apply(tuple(point[None] for point in points), (vectors,))
    for k, each in enumerate(vectors):
        for got, wanted in zip(together, linear.apply(points, (each,)), strict=True):
            assert relative(got[k], wanted) < 1e-10


def test_wrong_arguments_are_named():
    functions = OnNumPy(rd.load_urdf(own("arm6")), NumPy())
    q, v = np.zeros(6), np.zeros(6)
    with pytest.raises(rd.ArgumentError, match=r"^qd: got shape \(5,\); wanted a real array of shape \(\.\.\., 6\)"):
        functions.inverse_dynamics(q, v[:5], v)
    with pytest.raises(
        rd.ArgumentError, match=r"^f_ext: got shape \(6,\); wanted a real array of shape \(\.\.\., 6, 6\)"
    ):
        functions.inverse_dynamics(q, v, v, f_ext=v)
    with pytest.raises(rd.ArgumentError, match=r"^leading axes do not broadcast: got q \(2,\), qd \(3,\)"):
        functions.bias_force(np.zeros((2, 6)), np.zeros((3, 6)))
    with pytest.raises(rd.ArgumentError, match=r"^dyn: got .*; wanted a robodyn\.Dynamics or Model"):
        OnNumPy("arm6", NumPy())


def test_masses_that_nothing_has_are_named():
    massless = RobotDescription("massless", (Link("a"), Link("b")), (Joint("j", "revolute", "a", "b"),))
    functions = OnNumPy(rd.build_model(massless), NumPy())
    for call in (lambda: functions.forward_dynamics([0.0], [0.0], [0.0]), lambda: functions.mass_matrix_inverse([0.0])):
        with pytest.raises(rd.SingularError, match="'b'"):
            call()
    with pytest.raises(rd.NumericalError, match="nothing that moves has mass"):
        functions.center_of_mass([0.0])
    assert functions.inverse_dynamics([0.0], [1.0], [1.0]) == 0.0


def test_nothing_that_moves():
    functions = OnNumPy(rd.build_model(RobotDescription("still", (Link("a"),), ())), NumPy())
    nothing = np.empty((2, 0))
    assert functions.inverse_dynamics(nothing, nothing, nothing).shape == (2, 0)
    assert functions.mass_matrix(nothing).shape == (2, 0, 0)
    assert functions.forward_kinematics(nothing).shape == (2, 1, 4, 4)
    assert functions.kinetic_energy(nothing, nothing).shape == (2,)
    assert functions._poses.tangent((nothing,), np.empty((2, 0, 4, 4)), (nothing,)).shape == (2, 0, 4, 4)


def test_damping_and_friction_count_where_asked():
    model = rd.load_urdf(own("arm7"))
    dyn = rd.Dynamics(model, joint_forces=("damping", "friction"))
    functions, rng = OnNumPy(dyn, NumPy()), np.random.default_rng(0)
    q, qd, qdd = rng.standard_normal((3, model.nv))
    f_ext = rng.standard_normal((model.n_bodies, 6))
    assert model.damping.any() or model.friction.any()
    for query, tolerance in (("inverse_dynamics", 1e-12), ("forward_dynamics", 1e-9)):
        got, wanted = (getattr(each, query)(q, qd, qdd, f_ext=f_ext) for each in (functions, dyn))
        assert relative(got, wanted) < tolerance
    assert relative(functions.bias_force(q, qd), dyn.bias_force(q, qd)) < 1e-12
    assert "arm7" in repr(functions)
