"""Identification: parameters that were put in, noise within its covariance, the convex optimum by clarabel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import robots

import robodyn as rd
from robodyn.core.joints import KINDS
from robodyn.inertial_parameters import from_pseudo_inertia, physically_consistent, pseudo_inertia
from robodyn.solve.identification.consistent import constrained
from robodyn.solve.identification.prior import Guess, nominal

ARM = rd.load_urdf(robots.own("arm7"))


def with_joints(model, rng):
    """The robot with armature, damping and friction of its joints, those of a floating base left out."""
    bases = [KINDS[code].name == "floating" for code in model.joint_kind.tolist()]
    joints = ~np.repeat(bases, np.diff([*model.v_start.tolist(), model.nv_tree]))
    sizes = rng.uniform(0.05, 0.5, (3, model.nv_tree)) * joints
    return replace(model, tree_armature=sizes[0], tree_damping=sizes[1], tree_friction=sizes[2])


def guessed(model, rng, size=0.12):
    """The robot with bodies that are a little wrong."""
    L = np.linalg.cholesky(pseudo_inertia(nominal(model)))
    W = np.eye(4) + size * rng.standard_normal((model.n_bodies, 4, 4))
    J = L @ W @ np.swapaxes(W, -1, -2) @ np.swapaxes(L, -1, -2)
    return replace(model, inertia=from_pseudo_inertia(J))


def motion(model, rng, samples):
    return model.random_configuration(rng, (samples,)), *rng.standard_normal((2, samples, model.nv))


def unknowns(model, joints):
    """All parameters of a robot in the order of `names`; `joints`: velocities that have coefficients."""
    coefficients = (model.armature, model.damping, model.friction)
    return np.concatenate((model.inertia.ravel(), *(each[joints] for each in coefficients)))


def torques(model, *state, **options):
    return rd.Dynamics(model, joint_forces=("damping", "friction")).inverse_dynamics(*state, **options)


@pytest.mark.parametrize("name", ["arm7", "tree", "mimic", "floating", "balls"])
def test_without_noise_torques_of_other_motions_are_exact(name):
    rng = np.random.default_rng(3)
    true = {
        "arm7": lambda: ARM,
        "tree": lambda: robots.tree(5, 6),
        "mimic": lambda: rd.load_urdf(robots.own("gripper")),
        "floating": lambda: rd.load_urdf(robots.own("quadruped"), base="floating"),
        "balls": robots.of_every_kind,
    }[name]()
    true = with_joints(true, rng)
    given, other = motion(true, rng, 400), motion(true, rng, 20)
    for consistent in (False, True):
        found = rd.identify(guessed(true, rng), *given, torques(true, *given), consistent=consistent)
        wanted = torques(true, *other)
        assert np.abs(found.torques(*other) - wanted).max() < 1e-6 * np.abs(wanted).max(), consistent
        assert len(found.names) == len(found.values) == found.base_matrix.shape[1]
    assert physically_consistent(found.model.inertia).all()


def test_base_parameters_are_those_of_the_robot_within_their_covariance():
    """Noise of each joint is found, and deviations from what was put in follow the covariance."""
    rng, noise = np.random.default_rng(0), np.array([0.5, 0.4, 0.3, 0.2, 0.1, 0.1, 0.05])
    true, runs, inside, chi_square = with_joints(ARM, rng), 25, [], []
    given = motion(true, rng, 300)
    exact, truth = torques(true, *given), unknowns(true, slice(None))
    for _ in range(runs):
        found = rd.identify(ARM, *given, exact + noise * rng.standard_normal(exact.shape), consistent=False)
        off = found.base_values - found.base_matrix @ truth
        inside.append(np.abs(off) < 1.96 * np.sqrt(np.diag(found.covariance)))
        chi_square.append(off @ np.linalg.solve(found.covariance, off))
        assert np.abs(found.noise / noise - 1.0).max() < 0.25
        assert abs(found.misfit - 1.0) < 0.1
    count = len(found.base_values)
    assert found.base_matrix.shape == (count, 91)
    assert abs(np.mean(inside) - 0.95) < 0.02, np.mean(inside)
    assert abs(np.mean(chi_square) / count - 1.0) < 5.0 * np.sqrt(2.0 / count / runs), np.mean(chi_square)


def test_base_parameters_of_the_staubli_rx90_are_the_published_ones():
    """The 40 minimum inertial parameters of Khalil and Dombre (Modeling, Identification and Control of Robots, 2002;
    the rules are of Gautier and Khalil 1990), rotor inertias among them, from their table of the robot's geometry."""
    D3, RL4 = 0.45, 0.4
    alpha, d, r = np.array([0, 1, 0, -1, 1, -1]) * np.pi / 2, [0, 0, D3, 0, 0, 0], [0, 0, 0, RL4, 0, 0]
    text = '<robot name="rx90"><link name="0"/>'
    for j in range(6):
        text += (
            f'<link name="{j + 1}"><inertial><mass value="1"/>'
            '<inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial></link>'
            f'<joint name="j{j + 1}" type="continuous"><parent link="{j}"/><child link="{j + 1}"/>'
            f'<origin xyz="{d[j]} {-r[j] * np.sin(alpha[j])} {r[j] * np.cos(alpha[j])}" rpy="{alpha[j]} 0 0"/>'
            '<axis xyz="0 0 1"/></joint>'
        )
    model = rd.load_urdf(text + "</robot>")
    grouped = {
        "1.Izz": {"j1.armature": 1.0, "2.Iyy": 1.0, "3.Iyy": 1.0} | masses(D3**2, 3),
        "2.hx": masses(D3, 3),
        "2.Ixx": {"2.Iyy": -1.0} | masses(-(D3**2), 3),
        "2.Ixz": {"3.hz": -D3},
        "2.Izz": {"j2.armature": 1.0} | masses(D3**2, 3),
        "3.hy": {"4.hz": 1.0} | masses(RL4, 4),
        "3.Ixx": {"3.Iyy": -1.0, "4.Iyy": 1.0, "4.hz": 2.0 * RL4} | masses(RL4**2, 4),
        "3.Izz": {"4.Iyy": 1.0, "4.hz": 2.0 * RL4} | masses(RL4**2, 4),
        "4.hy": {"5.hz": -1.0},
        "4.Ixx": {"4.Iyy": -1.0, "5.Iyy": 1.0},
        "4.Izz": {"5.Iyy": 1.0},
        "5.hy": {"6.hz": 1.0},
        "5.Ixx": {"5.Iyy": -1.0, "6.Iyy": 1.0},
        "5.Izz": {"6.Iyy": 1.0},
        "6.Ixx": {"6.Iyy": -1.0},
    }
    alone = [f"{j}.{name}" for j in range(2, 7) for name in ("hx", "hy", "Ixx", "Ixy", "Ixz", "Iyz", "Izz")]
    published = ["1.Izz", *alone, *(f"j{j}.armature" for j in range(3, 7))]
    given = motion(model, np.random.default_rng(0), 300)
    found = rd.identify(model, *given, torques(model, *given), friction=False, consistent=False, noise=1.0)
    assert sorted(found.base_names) == sorted(published) and len(published) == 40
    for name, row in zip(found.base_names, found.base_matrix, strict=True):
        wanted = {name: 1.0} | grouped.get(name, {})
        assert np.abs(row - [wanted.get(each, 0.0) for each in found.names]).max() < 1e-9, name


def masses(factor, first):
    """Of bodies from the first to the last."""
    return {f"{j}.m": factor for j in range(first, 7)}


def test_consistent_parameters_are_the_optimum_of_clarabel():
    """The same convex problem by an interior-point library; least squares alone gives bodies that cannot exist."""
    clarabel = pytest.importorskip("clarabel", reason="an oracle for convex problems")
    from scipy import sparse

    rng, bodies = np.random.default_rng(4), 3
    inertia = nominal(robots.tree(2, bodies))
    guess = Guess(inertia, np.array([0.1, 0.2]), np.array([1.0, 1.0]))
    start = guess.start
    R = np.triu(rng.standard_normal((start.size, start.size)))
    d = R @ (start + 0.5 * rng.standard_normal(start.size) * np.abs(start).max())
    found = constrained(R, d, guess, 1e-9)
    rows = []
    upper = [(i, j) for j in range(4) for i in range(j + 1)]
    for k in range(bodies):
        units = pseudo_inertia(np.eye(10))
        block = np.zeros((10, start.size))
        for r, (i, j) in enumerate(upper):
            block[r, 10 * k : 10 * k + 10] = units[:, i, j] * (1.0 if i == j else np.sqrt(2.0))
        rows.append(-block)
    rows.append(-np.eye(start.size)[10 * bodies :])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    cones = [clarabel.PSDTriangleConeT(4)] * bodies + [clarabel.NonnegativeConeT(2)]
    G = np.vstack(rows)
    problem = clarabel.DefaultSolver(
        sparse.csc_matrix(np.triu(R.T @ R)), -R.T @ d, sparse.csc_matrix(G), np.zeros(len(G)), cones, settings
    )
    wanted = np.array(problem.solve().x)
    assert not physically_consistent(np.linalg.solve(R, d)[: 10 * bodies].reshape(-1, 10)).all()
    value, least = (0.5 * np.sum((R @ x - d) ** 2) for x in (found, wanted))
    assert value <= least * (1.0 + 1e-6) and value >= least * (1.0 - 1e-6)
    assert np.abs(found - wanted).max() < 1e-3 * np.abs(wanted).max()
    assert physically_consistent(found[: 10 * bodies].reshape(-1, 10)).all() and (found[10 * bodies :] > 0.0).all()


def test_torques_that_are_not_measured_are_not_used():
    rng = np.random.default_rng(5)
    true = with_joints(ARM, rng)
    given = motion(true, rng, 500)
    tau = torques(true, *given)
    names = list(ARM.velocity_names)
    tau[:, 2] = np.nan
    found = rd.identify(
        ARM, *given, tau, measured=[name for name in names if name != names[2]], noise=0.1, prior_weight=1e-6
    )
    assert np.isnan(found.torque_error[2]) and found.noise[2] == 0.0
    assert f"{names[2]}.damping" in found.unseen
    other = motion(true, rng, 20)
    off = np.abs(found.torques(*other) - torques(true, *other))
    assert np.delete(off, 2, axis=1).max() < 1e-3


def test_forces_of_loops_and_feet_do_not_matter():
    """A four-bar and a quadruped on its feet: torques of drives and forces of constraints that nobody measures."""
    rng = np.random.default_rng(6)
    delta = rd.load_urdf(robots.own("loops/delta"))
    quadruped = rd.load_urdf(robots.own("quadruped"), base="floating")
    feet = [rd.Point(name) for name in quadruped.link_names if name.endswith("foot")]
    quadruped = replace(quadruped, constraints=tuple(feet))
    for model in (delta, quadruped):
        true = with_joints(model, rng)
        given = motion(true, rng, 300)
        q = given[0]
        dyn = rd.Dynamics(true, joint_forces=())
        targets = dyn.constraint_targets(q) if model is quadruped else None
        J = dyn.constraint_jacobian(q, targets)
        lam = 10.0 * rng.standard_normal(J.shape[:2])
        tau = torques(true, *given) - np.einsum("smi,sm->si", J, lam)
        found = rd.identify(guessed(model, rng), *given, tau, targets=targets, consistent=False)
        off = found.base_values - found.base_matrix @ unknowns(true, found_joints(found))
        assert np.abs(off).max() < 1e-6 * np.abs(found.base_values).max()
        assert np.isnan(found.torque_error).all()


def found_joints(found):
    """Velocities that have coefficients."""
    model = found.model
    return np.array([f"{name}.armature" in found.names for name in model.velocity_names])


def test_feet_in_the_air_and_measured_forces():
    """`active=` and `f_ext=` change the equations as they change the dynamics."""
    rng = np.random.default_rng(7)
    model = rd.load_urdf(robots.own("quadruped"), base="floating")
    held = replace(model, constraints=(rd.Point(next(n for n in model.link_names if n.endswith("foot"))),))
    given = motion(model, rng, 300)
    f_ext = rng.standard_normal((300, model.n_bodies, 6))
    tau = torques(model, *given, f_ext=f_ext)
    options = {"f_ext": f_ext, "friction": False, "armature": False, "consistent": False, "noise": 1.0}
    free = rd.identify(model, *given, tau, **options)
    off = rd.identify(held, *given, tau, active=False, **options)
    assert np.abs(free.base_values - free.base_matrix @ model.inertia.ravel()).max() < 1e-7
    assert len(off.base_values) == len(free.base_values) and np.abs(off.covariance - free.covariance).max() < 1e-9


def test_stribeck():
    """The speed of the effect is found, too, and other dry friction is not mistaken for it; intervals hold what was put
    in, and what was found."""
    rng = np.random.default_rng(8)
    true = with_joints(ARM, rng)
    q, qd, qdd = motion(true, rng, 1500)
    qd *= rng.choice([0.05, 1.0], (1500, 1))
    s, v = rng.uniform(0.5, 1.0, 7), rng.uniform(0.1, 0.3, 7)
    s[3] = 0.0
    tau = torques(true, q, qd, qdd) + s * np.exp(-((qd / v) ** 2)) * np.sign(qd)
    noisy = tau + 0.02 * rng.standard_normal(tau.shape)
    found = rd.identify(ARM, q, qd, qdd, noisy, friction="stribeck")
    felt = s > 0.0
    assert np.abs(found.stribeck[felt, 0] - s[felt]).max() < 0.05
    assert np.abs(found.stribeck[felt, 1] / v[felt] - 1.0).max() < 0.1
    assert np.abs(found.torques(q, qd, qdd) - tau).max() < 0.1
    assert abs(found.stribeck[3, 0]) < 0.02
    low, high = found.base_interval.T
    assert (low <= found.base_values).all() and (found.base_values <= high).all()
    truth = found.base_matrix @ np.concatenate((unknowns(true, slice(None)), s, v))
    known = np.array([f"{ARM.velocity_names[3]}.speed" != name for name in found.base_names])
    assert np.mean(((low <= truth) & (truth <= high))[known]) > 0.85
    # Where the effect is told well its law is as good as linear.
    at = [found.base_names.index(f"{ARM.velocity_names[0]}.{kind}") for kind in ("friction", "stribeck", "speed")]
    half = 1.96 * np.sqrt(np.diag(found.covariance))[at]
    assert np.abs((high - low)[at] / (2.0 * half) - 1.0).max() < 0.1


def test_refusals():
    given = motion(ARM, np.random.default_rng(0), 50)
    tau = torques(ARM, *given)
    cases = {
        "friction: got 'coulomb'": {"friction": "coulomb"},
        "prior_weight: got 0": {"prior_weight": 0},
        "noise: got": {"noise": -1.0},
        "prior: got": {"prior": robots.tree(0, 3)},
        "prior: Xtree": {"prior": replace(ARM, Xtree=ARM.Xtree[[1, 1, *range(2, 7)]])},
        "measured: ": {"measured": ["elbow of somebody"]},
        "measured. and .slowest": {"slowest": np.inf},
        "slowest: got nan": {"slowest": np.nan},
        "active: ": {"active": True},
    }
    for text, options in cases.items():
        with pytest.raises(rd.ArgumentError, match=text):
            rd.identify(ARM, *given, tau, **options)
    with pytest.raises(rd.ArgumentError, match="equations for"):
        rd.identify(ARM, *(each[:5] for each in given), tau[:5])
    for options, text in (
        ({"tau": tau * np.nan}, "tau"),
        ({"tau": tau * 1e300}, "finite"),
        ({"qd": 1e200 * tau}, "finite"),
    ):
        with pytest.raises(rd.NumericalError, match=text):
            rd.identify(ARM, **dict(zip(("q", "qd", "qdd", "tau"), (*given, tau), strict=True)) | options)
    with pytest.raises(rd.NumericalError):
        rd.identify(ARM, *given, tau, prior_weight=1e30)
    still = rd.load_urdf('<robot name="r"><link name="a"/></robot>')
    for model in (still, rd.Dynamics(ARM), None):
        with pytest.raises(rd.ArgumentError, match="model: "):
            rd.identify(model, *(np.zeros((9, 0)),) * 4)
    with pytest.raises(rd.ArgumentError, match="tau: got None"):
        rd.identify(ARM, *given, None)


def test_coefficients_without_any_equation_are_those_of_the_prior():
    """Of a robot that stands still: also where torques have no noise and the prior is far away."""
    q = ARM.random_configuration(1, (40,))
    heavier = replace(ARM, inertia=1.2 * ARM.inertia)
    found = rd.identify(ARM, q, 0.0 * q, 0.0 * q, rd.Dynamics(heavier).gravity_force(q)).model
    for name in ("armature", "damping", "friction"):
        np.testing.assert_array_equal(getattr(found, name), getattr(ARM, name))


def test_differentiate():
    """A chirp and a turning body: errors of the spline, and noise that the filter leaves."""
    t = np.linspace(0.0, 4.0, 801)
    x = np.sin(3.0 * t)[:, None] * [1.0, 2.0]
    q, qd, qdd = rd.differentiate(x, t, None)
    assert np.abs(q - x).max() == 0.0
    assert np.abs(qd - 3.0 * np.cos(3.0 * t)[:, None] * [1.0, 2.0]).max() < 1e-7
    assert np.abs(qdd + 9.0 * x).max() < 1e-4
    noise = 1e-3 * np.random.default_rng(0).standard_normal(x.shape)
    inner = slice(100, -100)
    smooth = rd.differentiate(x + noise, 0.005, 4.0)
    for k, (found, wanted) in enumerate(zip(smooth, (q, qd, qdd), strict=True)):
        raw = rd.differentiate(x + noise, 0.005, None)[k]
        assert np.abs(found - wanted)[inner].max() < 0.7 * np.abs(raw - wanted)[inner].max()
    assert np.abs(smooth[2] - qdd)[inner].max() < 0.02 * np.abs(raw - qdd)[inner].max()
    # Noise of samples 1 / (1.8 cutoff) apart: the variance of a mean is that of independent ones.
    impulse = rd.differentiate(np.eye(1, 801, 400)[0], 0.005, 1.0 / (1.8 * 20 * 0.005))[0]
    correlation = np.correlate(impulse, impulse, "full")
    assert abs(correlation[800 % 20 :: 20].sum() / correlation[800] - 1.0) < 0.02

    model = rd.load_urdf(robots.own("quadruped"), base="floating")
    twist = np.concatenate((np.array([1.0, -2.0, 0.5, 0.3, 0.2, -0.1]), np.linspace(-1.0, 1.0, model.nv - 6)))
    start = model.random_configuration(1)
    path = model.integrate(start, np.linspace(0.0, 3.0, 300)[:, None] * twist)
    path[::2, model.quaternion_starts[0] : model.quaternion_starts[0] + 4] *= -1.0  # the other sign, the same rotation
    q, qd, qdd = rd.differentiate(path, 3.0 / 299, None, model=model)
    assert np.abs(model.difference(q, path)).max() < 1e-12
    assert np.abs(qd - twist).max() < 1e-6 and np.abs(qdd).max() < 1e-3
    for options, text in (
        ({"cutoff": 200.0}, "cutoff"),
        ({"t": t**2}, "equal steps"),
        ({"q": x[:10], "t": 0.1}, "number of samples"),
        ({"t": -0.1}, "t: got"),
        ({"t": t + 1.7e9 + np.random.default_rng(0).uniform(0.0, 0.002, t.size)}, "equal steps"),
        ({"cutoff": 1e-9}, "cutoff"),
        ({"q": x * 1e307, "t": 1e-9, "cutoff": None}, "not finite"),
        ({"model": rd.Dynamics(model)}, "model"),
    ):
        with pytest.raises((rd.ArgumentError, rd.NumericalError), match=text):
            rd.differentiate(**{"q": x, "t": t, "cutoff": 4.0, **options})


def test_exciting_trajectory():
    """It keeps limits, begins and ends at rest, and tells parameters better than random ones."""
    first = rd.exciting_trajectory(ARM, duration=8.0, rounds=1, rng=2)
    found = rd.exciting_trajectory(ARM, duration=8.0, rounds=15, acceleration_limit=20.0, rng=2)
    assert found.condition < first.condition
    t = np.linspace(0.0, 8.0, 801)
    q, qd, qdd = found(t)
    assert q.shape == qd.shape == qdd.shape == (801, 7)
    assert (q >= ARM.lower).all() and (q <= ARM.upper).all()
    assert (np.abs(qd) <= ARM.velocity_limit).all() and np.abs(qdd).max() <= 20.0
    assert (np.abs(rd.Dynamics(ARM).inverse_dynamics(q, qd, qdd)) <= ARM.effort_limit).all()
    assert np.abs(qd[[0, -1]]).max() < 1e-12 and np.abs(qdd[[0, -1]]).max() < 1e-11
    assert np.abs(np.gradient(q, t, axis=0)[1:-1] - qd[1:-1]).max() < 1e-3 * np.abs(qd).max()
    one = replace(ARM, tree_lower=np.full(7, -np.inf), tree_upper=np.full(7, -10.0))
    assert (rd.exciting_trajectory(one, rounds=1)(t)[0] <= -10.0).all()
    quadruped = rd.load_urdf(robots.own("quadruped"), base="floating")
    for model, options, text in (
        (quadruped, {}, "one coordinate"),
        (replace(ARM, tree_effort=ARM.effort_limit * (np.arange(7) != 3)), {}, "'joint_4' takes"),
        (replace(ARM, tree_lower=ARM.upper), {}, "no room"),
        (ARM, {"friction": "no"}, "friction"),
        (ARM, {"duration": 1e-300}, "duration"),
        (ARM, {"velocity_limit": np.nan}, "velocity_limit: got nan"),
        (rd.Dynamics(ARM), {}, "model"),
    ):
        with pytest.raises(rd.ArgumentError, match=text):
            rd.exciting_trajectory(model, rounds=1, **options)
