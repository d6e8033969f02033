"""Simulations of robots that constraints hold, or that dry friction stops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from robots import own
from robots_with_loops import four_bar

import robodyn as rd
from robodyn.api.motion import simulation
from robodyn.api.motion.simulation import METHODS

REST = np.zeros(3)
LOOSE = {"rtol": 1e-5, "atol": 1e-7}


@pytest.fixture(scope="module")
def bars():
    return rd.Dynamics(rd.load_urdf(own("loops/four_bar")))


def energy(dyn, run):
    return dyn.kinetic_energy(run.q, run.qd) + dyn.potential_energy(run.q)


def errors(dyn, run, *targets):
    return [float(np.abs(each).max()) for each in dyn.constraint_residual(run.q, run.qd, *targets)]


@pytest.mark.parametrize("method", METHODS)
def test_loops_stay_closed_and_keep_energy(bars, method):
    """What holds a loop does no work, so that the energy of the bars is what it was; a robot of one freedom that has
    its energy is where it should be."""
    run = rd.simulate(bars, four_bar(0.9), REST, 1.0, method=method, **LOOSE)
    assert max(errors(bars, run)) < 1e-12
    most = bars.kinetic_energy(run.q, run.qd).max()
    assert most > 0.1 and np.abs(energy(bars, run) - energy(bars, run)[0]).max() < 2e-2 * most
    assert len(run.t) < 1000


def test_tolerances_count_with_constraints(bars):
    wanted = bars.rollout(four_bar(0.9), REST, dt=2e-4, steps=2500, integrator="rk4", save_every=None).q[-1]
    apart = [
        np.abs(rd.simulate(bars, four_bar(0.9), REST, 0.5, rtol=rtol, atol=rtol).q[-1] - wanted).max()
        for rtol in (1e-3, 1e-6, 1e-9)
    ]
    assert apart[0] > 10 * apart[1] > 100 * apart[2] and apart[2] < 1e-7


def test_states_are_on_constraints_wherever_they_are_seen(bars):
    seen, tried = [], []

    def look(t, q, qd):
        seen.append((q, qd))
        return False

    def lowest(t, q, qd):
        look(t, q, qd)
        return qd[0]

    def push(t, q, qd):
        tried.append((q, qd))
        return 0.0 * qd

    lowest.terminal = 2
    times = np.linspace(0.0, 2.0, 23)
    run = rd.simulate(
        bars, four_bar(0.9), REST, 2.0, push, events=lowest, callback=look, t_eval=times, rtol=1e-3, atol=1e-3
    )
    assert run.status == "event" and len(run.events[0]) == 2 and 2 < len(run.t) < 23
    for states, most in ((seen, 1e-12), (tried, 1e-3)):  # states of steps that are not taken are among the latter
        phi, phidot = bars.constraint_residual(*(np.array(each) for each in zip(*states, strict=True)))
        assert np.abs(phi).max() < most and np.abs(phidot).max() < 1e-12
    assert max(errors(bars, run)) < 1e-12
    # Where it turns back it is at rest, as high as at the start.
    end = rd.simulate(bars, four_bar(0.9), REST, 2.0, events=lowest)
    assert np.abs(end.qd[-1]).max() < 1e-8 and abs(energy(bars, end)[-1] - energy(bars, end)[0]) < 1e-8


def test_points_of_the_world_are_where_the_start_is_or_targets_say():
    """A body that hangs from a point, turning: a physical pendulum in space."""
    model = rd.load_urdf(own("satellite"))
    link = model.link_names[1]
    dyn = rd.Dynamics(model, constraints=[rd.Point(link, at=(0.3, 0.1, 0.2), name="hook")])
    q, rng = model.random_configuration(0), np.random.default_rng(0)
    qd = rng.normal(size=model.nv)
    where = dyn.constraint_targets(q)
    hung = rd.simulate(dyn, q, qd, 0.5)
    assert max(errors(dyn, hung, where)) < 1e-12 and np.abs(hung.q[-1] - q).max() > 0.1
    assert np.abs(np.linalg.norm(hung.q[:, 3:7], axis=1) - 1.0).max() < 1e-12
    assert np.abs(energy(dyn, hung) - energy(dyn, hung)[0]).max() < 1e-6 * np.abs(energy(dyn, hung)).max()
    assert np.abs(rd.simulate(dyn, q, qd, 0.5, targets=where).q[-1] - hung.q[-1]).max() < 1e-9
    away = where + np.r_[np.zeros(11), 0.1]
    with pytest.raises(
        rd.ArgumentError, match=r"q0: 'hook\..' is off by 0\.\d+ m; wanted a state on the constraints, as"
    ):
        rd.simulate(dyn, q, qd, 0.5, targets=away)
    for active in (False, [0.0]):
        free = rd.simulate(dyn, q, qd, 0.5, active=active)
        assert np.abs(free.q[-1] - rd.simulate(rd.Dynamics(model), q, qd, 0.5).q[-1]).max() < 1e-7


def test_starts_are_on_the_constraints(bars):
    """Velocities that leave them are taken away, as an impact does; configurations that are far off are refused."""
    qd = np.array([1.0, 0.0, 0.0])
    run = rd.simulate(bars, four_bar(0.9), qd, 0.1)
    assert np.abs(run.qd[0] - bars.impact(four_bar(0.9), qd)[0]).max() < 1e-12
    near = four_bar(0.9) + np.array([0.0, 1e-3, 0.0])
    assert max(errors(bars, rd.simulate(bars, near, REST, 0.1))) < 1e-12
    with pytest.raises(rd.ArgumentError, match=r"q0: 'pin\..' is off by"):
        rd.simulate(bars, REST, REST, 0.1)
    for change, message in (
        ({"targets": np.zeros(12)}, r"targets: got shape \(12,\)"),
        ({"targets": np.zeros((2, 1, 12))}, r"targets: got shape \(2, 1, 12\) for one state; wanted \(1, 12\)"),
        ({"active": [1.0, 0.0]}, r"active: got shape \(2,\)"),
    ):
        with pytest.raises(rd.ArgumentError, match=message):
            rd.simulate(bars, four_bar(0.9), REST, 0.1, **change)
    with pytest.raises(rd.NumericalError, match="targets: NaN"):
        rd.simulate(bars, four_bar(0.9), REST, 0.1, targets=np.full((1, 12), np.nan))


def test_constraints_that_are_lost_are_named(bars, monkeypatch):
    """As where steps are too long for projections to find the way back."""
    monkeypatch.setattr(bars.__class__, "project", lambda self, q, qd, *_, **__: (q + 0.01, qd))
    with pytest.raises(
        rd.NumericalError, match=r"simulate: the state is no longer on the constraints: 'pin\.x' is off"
    ):
        rd.simulate(bars.variant(), four_bar(0.9), REST, 0.1, method="RK23")


# Dry friction.

CART = (
    '<robot name="cart"><link name="rail"/><link name="cart"><inertial><mass value="{mass}"/><inertia ixx="0.01" '
    'ixy="0" ixz="0" iyy="0.01" iyz="0" izz="0.01"/></inertial></link><joint name="slide" type="prismatic"><parent '
    'link="rail"/><child link="cart"/><axis xyz="1 0 0"/><limit lower="-9" upper="9" effort="9" velocity="9"/>'
    '<dynamics damping="0" friction="4"/></joint></robot>'
)


def cart(mass=2.0, **options):
    return rd.Dynamics(rd.load_urdf(CART.format(mass=mass)), **options)


@pytest.mark.parametrize("method", METHODS)
def test_a_cart_stops_and_stands(method):
    """1 m/s under 4 N on 2 kg: 0.5 s and 0.25 m. Pushed with less than 4 N it stays, but for a creep of 1e-3 m/s."""
    dyn = cart(joint_forces="friction")
    run = rd.simulate(dyn, [0.0], [1.0], 1.0, method=method, **LOOSE)
    assert abs(run.q[-1, 0] - 0.25) < 1e-5 and abs(run.qd[-1, 0]) < 1e-6 and len(run.t) < 1000
    pushed = rd.simulate(dyn, [0.0], [0.0], 0.5, [3.0], method=method, **LOOSE)
    assert abs(pushed.qd[-1, 0] - 0.75e-3) < 1e-6
    assert abs(rd.simulate(dyn, [0.0], [0.0], 0.5, [6.0], method=method, **LOOSE).q[-1, 0] - 0.125) < 1e-3


def test_stiff_methods_stop_what_is_light():
    run = rd.simulate(cart(1e-6, joint_forces="friction"), [0.0], [1.0], 1.0, method="Radau")
    assert abs(run.q[-1, 0] - 1.25e-7) < 1e-9 and len(run.t) < 200


@pytest.mark.matrix
def test_explicit_methods_say_that_friction_is_stiff(monkeypatch):
    monkeypatch.setattr(simulation, "_MANY", 1000)
    light = cart(2e-3, joint_forces="friction")
    with pytest.warns(RuntimeWarning, match="RK23 has taken 1000 steps to t = .*; method='Radau', 'BDF' or 'LSODA'"):
        rd.simulate(light, [0.0], [1.0], 0.003, method="RK23")
    rd.simulate(cart(), [0.0], [1.0], 0.01, lambda t, q, qd: [np.sin(1e4 * t)], max_step=5e-6)  # many, and not stiff


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("push", [0.0, 1.0])
@pytest.mark.some(of=4, rest="matrix")
def test_forces_that_jump_end_in_an_error(method, push):
    """f sign(qd) of the user's own: no method makes its way along the jump."""

    def jumping(t, q, qd):
        return push * (t > 0.01) - 4.0 * np.sign(qd)

    with (
        pytest.raises(
            rd.NumericalError, match=rf"simulate: ({method} makes no progress|{method} gives up|the state is no)"
        ),
        np.errstate(all="ignore"),
    ):
        rd.simulate(cart(), [0.0], [1.0], 1e3, jumping, method=method)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_forces_that_are_no_numbers_end_in_an_error(method, bad):
    with (
        pytest.raises(rd.NumericalError, match=r"^simulate: (.* gives up at .*; )?tau is NaN or infinite at t = 0\.1"),
        np.errstate(all="ignore"),
    ):
        rd.simulate(cart(check=False), [0.0], [1.0], 1.0, lambda t, q, qd: [bad if t > 0.1 else 0.0], method=method)


@pytest.mark.parametrize("method", ["Radau", "BDF", "DOP853"])
def test_errors_of_functions_stay_as_they_are(method):
    """Also behind forces that are no numbers, of methods that may try other states then."""
    asked = []

    def fails(t, q, qd):
        asked.append(t)
        if len(asked) > 30:
            raise ValueError("mine")
        return [np.nan if len(asked) > 29 and method != "DOP853" else 0.0]

    with pytest.raises(ValueError, match="mine") as found:
        rd.simulate(cart(check=False), [0.0], [1.0], 1.0, fails, method=method, max_step=0.01)
    assert not isinstance(found.value, rd.RobodynError)


def test_events_may_return_something_else_when_asked_again():
    rng = np.random.default_rng(0)
    found = rd.simulate(cart(), [0.0], [1.0], 0.1, events=lambda t, q, qd: rng.normal(), max_step=0.005)
    assert found.status == "finished" and found.events[0].size


def test_far_ends_are_for_events():
    """An end that is never meant to be reached does not count as no way made."""

    def back(t, q, qd):
        return q[0] - 1.0 if t > 0 else -1.0

    back.terminal = True
    pendulum = rd.load_urdf(own("double_pendulum"))
    run = rd.simulate(
        pendulum, [0.5, 0.2], [0.0, 0.0], 1e9, events=back, max_step=0.004, callback=lambda t, q, qd: t > 6.0
    )
    assert len(run.t) > 1000 and run.status in ("event", "stopped")


@pytest.mark.parametrize("method", [None, "Radau", "BDF", "LSODA"])
def test_arms_with_dry_friction(method):
    """Of all joints, until they hang still: energy goes into friction alone, and stiff methods meet no far states."""
    model = rd.load_urdf(own("arm6"))
    model = replace(model, tree_friction=np.full(6, 0.5))
    dyn = rd.Dynamics(model, joint_forces=("friction",))
    for seed in range(2):
        run = rd.simulate(dyn, model.random_configuration(seed), np.zeros(6), 0.3, method=method, rtol=1e-6, atol=1e-8)
        energy = dyn.kinetic_energy(run.q, run.qd) + dyn.potential_energy(run.q)
        power = (0.5 * run.qd * run.qd / np.maximum(np.abs(run.qd), 1e-3)).sum(axis=1)
        lost = np.concatenate(([0.0], np.cumsum(0.5 * (power[1:] + power[:-1]) * np.diff(run.t))))
        assert run.status == "finished" and np.abs(energy[0] - energy - lost).max() < 1e-3 * max(lost[-1], 1.0)
