"""Arguments that are odd rather than wrong in kind: many axes, huge angles, masked entries, more than memory holds."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import relative
from robots import own

import robodyn as rd
from robodyn.description import JOINT_TYPES, Joint, Limits, Link, RobotDescription

ENGINES = ["cpu", "reference"]
MOST = 32
HUGE = {"float64": 2.0**50, "float32": 2.0**21}


@pytest.fixture(scope="module", params=["fixed", "floating"])
def model(request):
    return rd.random_tree(3, seed=8, joints=JOINT_TYPES, base=request.param)


@pytest.fixture(scope="module")
def arm():
    return rd.load_urdf(own("arm6"))


# Many axes.


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("others", ["alike", "fewer", "broadcast"])
def test_thirty_two_leading_axes_and_no_more(engine, others, model):
    dyn = rd.Dynamics(model, engine=engine)
    state, rates = model.random_configuration(0), np.ones(model.nv)
    one = dyn.inverse_dynamics(state, rates, rates)  # from here on quick calls are answered by machine code

    def shaped(axes):
        q = state.reshape((1,) * axes + (-1,))
        qd = {"alike": rates.reshape((1,) * axes + (-1,)), "fewer": rates}.get(others)
        return q, np.broadcast_to(rates, (2,) + (1,) * (axes - 1) + rates.shape) if qd is None else qd

    q, qd = shaped(MOST)
    leading = (2 if others == "broadcast" else 1,) + (1,) * (MOST - 1)
    tau = dyn.inverse_dynamics(q, qd, qd)
    assert tau.shape == (*leading, model.nv) and relative(tau.reshape(-1, model.nv)[-1], one) < 1e-12
    assert dyn.regressor(q, qd, qd).shape[:MOST] == leading
    assert dyn.inverse_dynamics_hessian(q, qd, qd)[0].shape == (*leading, *(model.nv,) * 3)
    assert model.integrate(q, qd, 0.1).shape == (*leading, model.nq)
    assert model.difference(q, state).shape == (*(1,) * MOST, model.nv)
    for axes in (MOST + 1, 60, 63):
        q, qd = shaped(axes)
        for call in (
            lambda q=q, qd=qd: dyn.inverse_dynamics(q, qd, qd),
            lambda q=q, qd=qd: dyn.inverse_dynamics_hessian(q, qd, qd),
            lambda q=q: dyn.forward_kinematics(q),
            lambda q=q: dyn.mass_matrix(q, out=np.empty(3)),
            lambda q=q, qd=qd: model.integrate(q, qd),
            lambda q=q: model.tree_coordinates(q),
        ):
            with pytest.raises(rd.ArgumentError, match=f"^q: got {axes} leading axes; wanted at most 32$"):
                call()
        with pytest.raises(rd.ArgumentError, match=f"^q1: got {axes} leading axes"):
            model.difference(state, q)


# Huge angles.


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("code", ["unrolled", "rolled"])
def test_angles_without_digits_give_nan_in_their_rows(code, dtype, arm):
    dyn = rd.Dynamics(arm, engine="cpu", code=code, dtype=dtype)
    q, zeros = np.zeros((9, 6)), np.zeros((9, 6))
    wanted = dyn.inverse_dynamics(q, zeros, zeros)
    limit = HUGE[dtype]
    q[2, 1], q[4, 3], q[6, 2] = limit, -1.01 * limit, 1e30
    for _ in range(2):  # the second time by machine code
        tau = dyn.inverse_dynamics(q, zeros, zeros)
        assert np.isnan(tau).any(axis=1).nonzero()[0].tolist() == [4, 6]
        kept = [0, 1, 3, 5, 7, 8]
        np.testing.assert_array_equal(tau[kept], wanted[kept])
        with pytest.raises(rd.NumericalError, match=r"^result tau: NaN or infinite .*has huge angles"):
            dyn.inverse_dynamics(q[4], zeros[4], zeros[4])
        with pytest.raises(rd.NumericalError, match=r"^result tau: NaN or infinite in 2 of 9 rows: 4, 6"):
            rd.Dynamics(arm, engine="cpu", code=code, dtype=dtype, check=True).inverse_dynamics(q, zeros, zeros)


@pytest.mark.parametrize("far", [1e16, 2e6])
def test_position_limits_at_huge_angles_are_none(far):
    def one(kind, low, high):
        limits = Limits(low, high, None, None)
        return rd.build_model(
            RobotDescription("r", (Link("a"), Link("b")), (Joint("j", kind, "a", "b", limits=limits),))
        )

    for low, high in ((-far, far), (0.0, far), (-far, 1.0)):
        q = one("revolute", low, high).random_configuration(0, (200,))
        assert np.abs(q).max() <= np.pi and np.ptp(q) > 5
    assert np.ptp(one("revolute", -9e5, 9e5).random_configuration(0, (200,))) > 1e6
    assert np.ptp(one("prismatic", -far, far).random_configuration(0, (200,))) > far


# Masked entries.


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_masked_is_refused(engine, arm):
    dyn = rd.Dynamics(arm, engine=engine)
    q = np.ma.masked_array(np.arange(6.0), mask=[0, 1, 0, 0, 0, 0])
    for _ in range(2):
        with pytest.raises(rd.ArgumentError, match=r"^q: got an array with masked entries; wanted a real array"):
            dyn.gravity_force(q)
        np.testing.assert_array_equal(dyn.gravity_force(np.ma.masked_array(q.data)), dyn.gravity_force(q.data))
    with pytest.raises(rd.ArgumentError, match=r"^qd: got an array with masked entries"):
        arm.integrate(q.data, q)


# More than memory holds.


@pytest.mark.parametrize("engine", ENGINES)
def test_results_and_arguments_that_memory_cannot_hold_are_named(engine, arm):
    dyn = rd.Dynamics(arm, engine=engine)
    q, many = np.zeros(6), 1 << 28
    rows, columns = np.broadcast_to(q, (many, 1, 6)), np.broadcast_to(q, (1, many, 6))
    for call, number, shape in (
        (lambda: dyn.inverse_dynamics(rows, columns, q), 1, rf"\({many}, {many}, 6\)"),
        (lambda: dyn.kinetic_energy(rows, columns), 1, rf"\({many}, {many}\)"),
    ):
        with pytest.raises(
            rd.UnavailableError, match=rf"^result number {number} of shape {shape} in float64 takes \d+ b"
        ):
            call()
    with pytest.raises(rd.UnavailableError, match=rf"^q of shape \(1024, {1 << 45}, 6\) .*not that much memory"):
        dyn.inverse_dynamics(np.zeros((1024, 1, 6)), np.broadcast_to(q, (1, 1 << 45, 6)), q)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.float64])
def test_views_that_memory_cannot_hold_are_named(arm, dtype):
    """Views that say to be larger than any memory, and are one row: they are refused with their size."""
    many, dyn, ik = 10**13, rd.Dynamics(arm), rd.InverseKinematics(arm, [arm.link_names[-1]])
    rows, row = np.broadcast_to(np.zeros(6, dtype), (many, 6)), np.zeros(6)
    calls = [
        lambda: dyn.forward_kinematics(rows),
        lambda: arm.integrate(rows, row),
        lambda: arm.integrate(row, rows),
        lambda: arm.difference(row, rows),
        lambda: arm.interpolate(row, rows, 0.5),
        lambda: arm.distance(rows, row),
        lambda: arm.integrate_gradient(rows, row),
        lambda: arm.difference_gradient(rows, row),
        lambda: arm.random_configuration(0, many),
    ]
    if dtype != np.float64:  # which needs no copy, and is asked for row by row
        targets = np.broadcast_to(np.eye(4, dtype=dtype), (many, 1, 4, 4))
        calls += [lambda: dyn.rollout(rows, row, dt=1e-3, steps=1), lambda: ik.solve(targets)]
    for call in calls:
        for _ in range(4):  # also once machine code answers
            with pytest.raises(rd.UnavailableError, match=f"{many}.*memory|memory.*{many}"):
                call()


def test_no_memory_for_work_besides_results_is_said(arm, monkeypatch):
    dyn = rd.Dynamics(arm, engine="reference")

    def exhausted(*_, **__):
        raise MemoryError("so many bytes")

    monkeypatch.setattr(dyn.engine, "run", exhausted)
    with pytest.raises(rd.UnavailableError, match=r"^engine 'reference': no memory for what 3 states .*so many bytes"):
        dyn.bias_force(np.zeros((3, 6)), np.zeros((3, 6)))


def test_a_task_that_is_not_there(arm):
    with pytest.raises(rd.ArgumentError, match=r"^query: got 'x'; allowed: 'inverse_dynamics'"):
        rd.Dynamics(arm).plain_task("x")


# Arrays of libraries that differentiate.


@pytest.mark.parametrize(
    ("home", "tracked", "match"),
    [
        ("torch", True, r"it requires gradients: robodyn\.torch\.wrap\(dyn\) gives them, and tensor\.detach\(\)"),
        ("torch", False, r"wanted a dense float32 or float64 tensor on the CPU"),
        ("jax._src.interpreters", False, r"robodyn\.jax\.wrap\(dyn\) answers inside"),
        ("numpy_like", True, r"wanted a real array of shape"),
    ],
)
@pytest.mark.parametrize("listed", [False, True])
def test_arrays_that_are_more_than_numbers_name_what_takes_them(arm, home, tracked, match, listed):
    class Foreign:
        __module__ = home
        requires_grad = tracked

        def __array__(self, *_, **__):
            raise RuntimeError("not to be had as an array")

    given = [Foreign()] * 6 if listed else Foreign()
    for engine in ENGINES:
        with pytest.raises(rd.ArgumentError, match=f"^q: got .*{match}"):
            rd.Dynamics(arm, engine=engine).mass_matrix(given)


def test_solvers_say_that_there_is_not_that_much_memory():
    """More states than there are addresses."""
    model = rd.load_urdf(own("double_pendulum"))
    dyn, still = rd.Dynamics(model, joint_forces=()), np.zeros(2)
    many = np.broadcast_to(still, (10**15, 2))
    wbc = rd.WholeBodyControl(dyn, [rd.Tracking(rd.PostureTask(still))])
    motion = rd.exciting_trajectory(model, rounds=1)
    calls = {
        "optimize_trajectory": lambda: rd.optimize_trajectory(dyn, rd.costs.Control(1.0), (many, still), 2, 0.1),
        "WholeBodyControl": lambda: wbc(many, still),
        "identify": lambda: rd.identify(model, many, still, still, still),
        "ExcitingTrajectory": lambda: motion(many[:, 0]),
    }
    for name, call in calls.items():
        with pytest.raises(rd.UnavailableError, match=f"^{name}: there is not that much memory"):
            call()
