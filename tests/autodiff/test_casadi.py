"""robodyn.casadi against the queries of `Dynamics`, both ways of making functions against each other, and IPOPT."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import robots_with_loops
from robots import ROOT, own, tree

import robodyn as rd
from robodyn.engines.query_table import asked_of

casadi = pytest.importorskip("casadi")
import robodyn.casadi  # noqa: E402

pytestmark = pytest.mark.extras
VALUES = 1e-12
# Two orders of the same operations, through second derivatives.
DERIVATIVES = 1e-10
compiled = pytest.mark.skipif(not robodyn.casadi.has_compiler(), reason="there is no C compiler")
RNG = 17


def arrays(dyn, names, rng):
    """Arguments of a query; quaternions are longer than one."""
    model, made = dyn.model, {}
    for name in names:
        if name == "q":
            q = model.random_configuration(rng)
            for start in model.quaternion_starts:
                q[start : start + 4] *= 1.3
            made[name] = q
        elif name == "inertia":
            made[name] = np.tile([2.0, 0.1, 0.2, 0.3, 1.0, 0.01, 0.02, 1.1, 0.03, 1.2], (model.n_bodies, 1))
        elif name == "targets":
            made[name] = dyn.constraint_targets(made["q"])
        elif name == "active":
            made[name] = np.ones(model.n_constraints)
        else:
            made[name] = rng.standard_normal(dyn.argument_shapes[name])
    return made


def matrix(array):
    """An array in the layout of CasADi."""
    array = np.asarray(array)
    return array.reshape(-1, 1) if array.ndim < 2 else array.reshape(-1, array.shape[-1])


def required(question):
    return ("targets",) if "targets" in question.optional else ("f_ext",) if question.of_loads else ()


def compare(dyn, rc, name, question, given, rng):
    """Values of a function and of the query."""
    link = {"link": dyn.model.link_names[-1]} if question.of_link else {}
    function = rc.function(name, given=given, **link)
    made = arrays(dyn, function.name_in(), rng)
    by_name = {key: value for key, value in made.items() if key not in question.inputs or key == "vector"}
    expected = getattr(dyn, name)(*(made[key] for key in question.inputs if key != "vector"), **by_name, **link)
    results = function.call([casadi.DM(matrix(made[key])) for key in function.name_in()])
    expected = expected if isinstance(expected, tuple) else (expected,)
    assert function.name_out() == list(question.results)
    for key, result, value in zip(question.results, results, expected, strict=True):
        result, value = np.array(result), matrix(value)
        assert result.shape == value.shape, (name, key)
        assert np.abs(result - value).max() <= VALUES * max(1.0, np.abs(value).max()), (name, key, given)


@pytest.mark.parametrize("seed", [3, 7])
def test_every_query_in_sx(seed):
    rng = np.random.default_rng(RNG)
    model = tree(seed, 4)
    dyn = rd.Dynamics(model, joint_forces=("damping", "friction"), engine="reference")
    rc = robodyn.casadi.wrap(dyn, "sx")
    for name, question in asked_of(model).items():
        optional = tuple(each for each in question.optional if each != "vector")
        for given in {(), optional}:
            compare(dyn, rc, name, question, given, rng)


@pytest.mark.parametrize("which", ["four_bar", "linkage_gripper"])
def test_queries_about_constraints(which):
    rng = np.random.default_rng(RNG)
    model, constraints = robots_with_loops.load(which)
    dyn = rd.Dynamics(replace(model, constraints=tuple(constraints)), engine="reference")
    rc = robodyn.casadi.wrap(dyn, "sx")
    for name, question in asked_of(dyn.model).items():
        if question.of_constraints or question.of_loads:
            compare(dyn, rc, name, question, required(question), rng)


def small():
    return {
        "floating": tree(1, 2, joints=("revolute", "helical"), base="floating", mimic=0.0, shape="chain"),
        "spherical and planar": tree(2, 2, joints=("spherical", "planar"), mimic=0.0, shape="chain"),
        "mimic": rd.load_urdf(own("gripper")),
    }


OF_TREES = ("forward_dynamics", "inverse_dynamics", "bias_force", "gravity_force", "link_pose", "kinetic_energy")


@compiled
@pytest.mark.parametrize("which", ["floating", "spherical and planar", "mimic", "four_bar"])
def test_both_ways_agree_to_second_order(which):
    """Analytical derivatives of C against CasADi's own of SX: by plain coordinates, quaternions of any length."""
    rng = np.random.default_rng(RNG)
    if which == "four_bar":
        model, constraints = robots_with_loops.load(which)
        model = replace(model, constraints=tuple(constraints))
    else:
        model = small()[which]
    dyn = rd.Dynamics(model, joint_forces="damping")
    rc = robodyn.casadi.wrap(dyn)
    names = ("constrained_forward_dynamics", "project") if model.constraints else OF_TREES
    for name in names:
        question = asked_of(model)[name]
        link = {"link": model.link_names[-1]} if question.of_link else {}
        pair = [rc.function(name, given=required(question), way=way, **link) for way in ("sx", "compiled")]
        made = arrays(dyn, pair[0].name_in(), rng)
        x = [casadi.DM(matrix(made[key])) for key in pair[0].name_in()]
        seeds = [casadi.DM(rng.standard_normal(pair[0].size_out(k))) for k in range(pair[0].n_out())]
        y, z = [0] * len(seeds), [0] * len(x)
        adjoints = [each.reverse(1) for each in pair]
        for what, functions, arguments in (
            ("value", pair, x),
            ("jacobian", [each.jacobian() for each in pair], x + y),
            ("adjoint", adjoints, x + y + seeds),
            ("hessian", [each.jacobian() for each in adjoints], x + y + seeds + z),
        ):
            sx, c = (each.call(arguments) for each in functions)
            for key, a, b in zip(functions[1].name_out(), sx, c, strict=True):
                a, b = np.array(a), np.array(b)
                assert np.isfinite(a).all() and np.isfinite(b).all(), (name, what, key)
                scale = max(1.0, np.abs(a).max(initial=0.0))
                assert np.abs(a - b).max(initial=0.0) <= DERIVATIVES * scale, (name, what, key)


@compiled
def test_derivatives_on_the_tangent_space():
    """Plain derivatives times the rate of coordinates are those of `forward_dynamics_gradient`, and of differences."""
    rng = np.random.default_rng(RNG)
    dyn = rd.Dynamics(small()["floating"])
    rc = robodyn.casadi.wrap(dyn, "compiled")
    function = rc.function("forward_dynamics")
    assert rc.function("forward_dynamics") is function
    q = dyn.model.normalize(dyn.model.random_configuration(rng))
    qd, tau, direction = rng.standard_normal((3, dyn.model.nv))
    by_q = np.array(function.jacobian()(q, qd, tau, 0)[0])
    rate = np.array(rc.coordinate_rate(q, direction)).ravel()
    expected = dyn.forward_dynamics_gradient(q, qd, tau)[0] @ direction
    assert np.abs(by_q @ rate - expected).max() < 1e-11 * max(1.0, np.abs(expected).max())
    step = 1e-6
    ahead, behind = (np.array(function(rc.integrate(q, s * direction), qd, tau)).ravel() for s in (step, -step))
    assert np.abs((ahead - behind) / (2 * step) - expected).max() < 1e-6 * max(1.0, np.abs(expected).max())


def test_an_arm_takes_few_operations():
    function = robodyn.casadi.wrap(rd.load_urdf(own("arm7")), "sx").function("forward_dynamics")
    dyn = rd.Dynamics(rd.load_urdf(own("arm7")))
    assert function.n_instructions() - function.nnz_in() - function.nnz_out() < 2_000
    q, qd, tau = np.random.default_rng(RNG).standard_normal((3, 7))
    assert np.allclose(np.array(function(q, qd, tau)).ravel(), dyn.forward_dynamics(q, qd, tau), rtol=1e-12)


def test_configurations():
    rng = np.random.default_rng(RNG)
    model = tree(6, 4, mimic=0.0)
    rc = robodyn.casadi.wrap(model)
    a, b = model.random_configuration(rng, (2,))
    v = rng.standard_normal(model.nv)

    def close(result, expected):
        return np.abs(np.array(result).ravel() - expected).max() < 1e-12

    assert close(rc.integrate(a, v), model.integrate(a, v))
    assert close(rc.difference(a, b), model.difference(a, b))
    assert close(rc.normalize(1.7 * a), model.normalize(1.7 * a))
    v_of_rate = (np.array(rc.integrate(a, 1e-7 * v)) - np.array(rc.integrate(a, -1e-7 * v))) / 2e-7
    assert np.abs(np.array(rc.coordinate_rate(a, v)) - v_of_rate).max() < 1e-7
    slope = np.array(rc.difference.jacobian()(a, a, 0)[1]) @ np.array(rc.coordinate_rate(a, v))
    assert close(slope, v), "difference at equal configurations"


@pytest.mark.parametrize("way", ["sx", pytest.param("compiled", marks=compiled)])
@pytest.mark.parametrize("how", ["serial", "thread"])
def test_map_is_a_batch(way, how):
    model = rd.load_urdf(own("cartpole"))
    dyn = rd.Dynamics(model)
    q, qd, tau = np.random.default_rng(RNG).standard_normal((3, 40, 2))
    function = robodyn.casadi.wrap(dyn, way).function("forward_dynamics")
    mapped = function.map(40) if how == "serial" else function.map(40, how, 4)
    assert np.abs(np.array(mapped(q.T, qd.T, tau.T)).T - dyn.forward_dynamics(q, qd, tau)).max() < 1e-12


REACH = np.array([0.8, 1.0, -0.4, -1.8, 0.6, 1.2, 0.4])


def swing_up_problem():
    """The swing-up of example 14 by DDP."""
    cost = rd.costs.Control(6e-4) + rd.costs.State(q=100.0, qd=10.0, q_goal=np.zeros(2), final=True)
    dyn = rd.Dynamics(rd.load_urdf(own("cartpole")), joint_forces=())
    start, cart = ([0.0, np.pi], [0.0, 0.0]), dyn.model.velocity_names[:1]
    found = rd.optimize_trajectory(dyn, cost, start, 100, 0.03, actuated=cart, method="ddp")

    def value(q, qd, u):
        return 6e-4 * casadi.sumsqr(u) + 100.0 * casadi.sumsqr(q[:, -1]) + 10.0 * casadi.sumsqr(qd[:, -1])

    return dyn, found, [0], 0.03, value, np.inf


def reach_problem():
    """An arm at its limits of effort."""
    cost = rd.costs.Control(1e-5) + rd.costs.State(q=0.1, qd=0.01, q_goal=REACH)
    cost += rd.costs.State(q=100.0, qd=5.0, q_goal=REACH, final=True)
    dyn = rd.Dynamics(rd.load_urdf(own("arm7")), joint_forces=())
    found = rd.optimize_trajectory(dyn, cost, (np.zeros(7), np.zeros(7)), 20, 0.02, limits="effort")

    def value(q, qd, u):
        off = q - np.repeat(REACH[:, None], 21, 1)
        running = 0.1 * casadi.sumsqr(off[:, :-1]) + 0.01 * casadi.sumsqr(qd[:, :-1]) + 1e-5 * casadi.sumsqr(u)
        return running + 100.0 * casadi.sumsqr(off[:, -1]) + 5.0 * casadi.sumsqr(qd[:, -1])

    return dyn, found, list(range(7)), 0.02, value, dyn.model.effort_limit


@pytest.mark.parametrize("way", ["sx", pytest.param("compiled", marks=compiled)])
@pytest.mark.parametrize("problem", [swing_up_problem, reach_problem])
def test_ipopt_finds_the_optimum_of_trajectories(problem, way):
    """From their solutions, at which it stays: to 1e-6 of the cost, and 1e-4 of the largest force."""
    dyn, found, drives, dt, value, limit = problem()
    assert found.converged
    knots, nv, nu = len(found.tau), dyn.model.nv, len(drives)
    opti = casadi.Opti()
    q, qd, u = opti.variable(nv, knots + 1), opti.variable(nv, knots + 1), opti.variable(nu, knots)
    actuation = casadi.DM(np.eye(nv)[:, drives])
    qdd = robodyn.casadi.wrap(dyn, way).function("forward_dynamics").map(knots)(q[:, :-1], qd[:, :-1], actuation @ u)
    opti.subject_to(qd[:, 1:] == qd[:, :-1] + dt * qdd)
    opti.subject_to(q[:, 1:] == q[:, :-1] + dt * qd[:, 1:])
    opti.subject_to(casadi.vertcat(q[:, 0], qd[:, 0]) == np.concatenate([found.q[0], found.qd[0]]))
    if np.isfinite(limit).all():
        bound = np.repeat(limit[:, None], knots, 1)
        opti.subject_to(opti.bounded(-bound.ravel("F"), casadi.vec(u), bound.ravel("F")))
    opti.minimize(0.5 * value(q, qd, u))
    for variable, guess in ((q, found.q), (qd, found.qd), (u, found.tau[:, drives])):
        opti.set_initial(variable, guess.T)
    opti.solver("ipopt", {"ipopt": {"print_level": 0, "sb": "yes", "tol": 1e-9}, "print_time": False})
    solution = opti.solve()
    assert abs(float(solution.value(opti.f)) / found.cost - 1.0) < 1e-6
    tau = np.atleast_2d(solution.value(u)).T
    assert np.abs(tau - found.tau[:, drives]).max() < 1e-3 * np.abs(found.tau).max()


def test_ipopt_finds_the_optimum_of_a_jump():
    """A quadruped stands, flies and lands within friction. Constraint forces, what brings feet back to their places and
    the impulse are unknowns of their own equations here. To 1e-6 of the cost."""
    mu, dt, on = 0.2, 0.03, [True] * 3 + [False] * 3 + [True] * 2
    model, steps = rd.load_urdf(own("quadruped"), base="floating"), len(on)
    feet, limit = [name for name in model.link_names if name.endswith("_foot")], model.effort_limit[6:]
    dyn = rd.Dynamics(model, joint_forces=(), constraints=[rd.Point(foot) for foot in feet])
    stance, weight = model.neutral(), np.repeat([20.0, 0.2], (6, 12))
    stance[7:] = np.tile([0.0, 0.8, -1.6], 4)
    above = stance + 0.1 * np.eye(19)[0] + 0.15 * np.eye(19)[2]
    cost = rd.costs.Control(1e-3) + rd.costs.State(q=weight, qd=0.01, q_goal=above)
    cost += rd.costs.State(q=20.0 * weight, qd=0.5, q_goal=stance, final=True)
    cost += sum(rd.costs.Friction(foot, mu) for foot in feet)
    active, targets = np.repeat(on, 4).reshape(steps, 4), dyn.constraint_targets(stance)
    targets[:, :9] = np.eye(3).ravel()
    found = rd.optimize_trajectory(dyn, cost, (stance, np.zeros(18)), steps, dt, limits="effort", active=active)
    assert found.converged
    states = found.q[:-1], found.qd[:-1], found.tau
    first, force = dyn.constrained_forward_dynamics(*states, targets=targets, active=active)
    assert np.abs(np.abs(force[:, 0::3]) - mu * force[:, 2::3])[on].min() < 1e-3, "friction is at its limit"

    opti, rc = casadi.Opti(), robodyn.casadi.wrap(dyn, "sx")
    required, inertia = rc.function("inverse_dynamics"), rc.function("mass_matrix")
    jacobian, residual, bias = (
        rc.function(name, given=["targets"])
        for name in ("constraint_jacobian", "constraint_residual", "constraint_bias")
    )

    def unknown(guess):
        made = opti.variable(len(guess))
        opti.set_initial(made, guess)
        return made

    q, qd, u = ([unknown(each) for each in rows] for rows in (found.q, found.qd, found.tau[:, 6:]))
    opti.subject_to(casadi.vertcat(q[0], qd[0]) == np.append(stance, np.zeros(18)))
    value = 0.0
    for k in range(steps):
        off, tau, qdd = rc.difference(above, q[k]), casadi.vertcat(np.zeros(6), u[k]), unknown(first[k])
        value += casadi.dot(weight * off, off) + 0.01 * casadi.sumsqr(qd[k]) + 1e-3 * casadi.sumsqr(u[k])
        opti.subject_to(opti.bounded(-limit, u[k], limit))
        rate = qd[k] + dt * qdd
        moved = rc.integrate(q[k], dt * rate)
        if on[k]:
            pushes, shift, kick = unknown(force[k]), unknown(np.zeros(18)), unknown(np.zeros(12))
            back, J, J_moved, J_next = unknown(np.zeros(12)), *(jacobian(at, targets) for at in (q[k], moved, q[k + 1]))
            opti.subject_to(J @ qdd + bias(q[k], qd[k], targets) == 0)
            opti.subject_to(required(q[k], qd[k], qdd) == tau + J.T @ pushes)
            for f in casadi.vertsplit(pushes, 3):
                for side in (f[0], -f[0], f[1], -f[1]):
                    opti.subject_to(side - mu * f[2] <= 0)
            opti.subject_to(inertia(moved) @ shift == J_moved.T @ back)
            opti.subject_to(residual(moved, np.zeros(18), targets)[0] + J_moved @ shift == 0)
            opti.subject_to(q[k + 1] == rc.integrate(moved, shift))
            opti.subject_to(inertia(q[k + 1]) @ (qd[k + 1] - rate) == J_next.T @ kick)
            opti.subject_to(J_next @ qd[k + 1] == 0)
        else:
            opti.subject_to(required(q[k], qd[k], qdd) == tau)
            opti.subject_to(casadi.vertcat(q[k + 1], qd[k + 1]) == casadi.vertcat(moved, rate))
    off = rc.difference(stance, q[steps])
    opti.minimize(0.5 * (value + 20.0 * casadi.dot(weight * off, off) + 0.5 * casadi.sumsqr(qd[steps])))
    near = {"mu_init": 1e-6, "bound_push": 1e-8, "bound_frac": 1e-8}
    opti.solver("ipopt", {"ipopt": {"print_level": 0, "sb": "yes", "tol": 1e-9, **near}, "print_time": False})
    solution = opti.solve()
    assert abs(float(solution.value(opti.f)) / found.cost - 1.0) < 1e-6
    assert np.abs(np.array([solution.value(each) for each in u]) - found.tau[:, 6:]).max() < 1e-2


@compiled
def test_c_of_casadi(tmp_path):
    """C by CasADi's generator, compiled, against the query."""
    dyn = rd.Dynamics(rd.load_urdf(own("arm6")))
    function = robodyn.casadi.wrap(dyn, "sx").function("forward_dynamics", name="arm_fd")
    generator = casadi.CodeGenerator("arm_fd.c")
    generator.add(function)
    generator.generate(f"{tmp_path}/")
    library = tmp_path / "arm_fd.so"
    compiler = shutil.which("gcc") or "cc"
    subprocess.run([compiler, "-shared", "-fPIC", "-O0", str(tmp_path / "arm_fd.c"), "-o", library, "-lm"], check=True)
    q, qd, tau = np.random.default_rng(RNG).standard_normal((3, 6))
    qdd = np.full(6, np.nan)
    pointer = ctypes.POINTER(ctypes.c_double)
    arguments, results = ((pointer * 64)() for _ in range(2))
    for k, array in enumerate((q, qd, tau)):
        arguments[k] = array.ctypes.data_as(pointer)
    results[0] = qdd.ctypes.data_as(pointer)
    work = (ctypes.c_double * max(1, function.sz_w()))()
    assert ctypes.CDLL(str(library)).arm_fd(arguments, results, None, work, 0) == 0
    assert np.abs(qdd - dyn.forward_dynamics(q, qd, tau)).max() < 1e-11


@pytest.mark.parametrize("which", ["cartpole", "ball_joint_arm"])
def test_continuous_model(which):
    rng = np.random.default_rng(RNG)
    dyn = rd.Dynamics(rd.load_urdf(own(which)))
    model = dyn.model
    rc = robodyn.casadi.wrap(dyn)
    ode = rc.continuous_model(actuated=[model.velocity_names[0], 1])
    q = model.normalize(model.random_configuration(rng))
    qd, tau = rng.standard_normal(model.nv), np.append(rng.standard_normal(2), np.zeros(model.nv - 2))
    expected = np.append(np.array(rc.coordinate_rate(q, qd)), dyn.forward_dynamics(q, qd, tau))
    explicit = casadi.Function("f", [ode.x, ode.u], [ode.f_expl_expr])
    implicit = casadi.Function("f", [ode.x, ode.xdot, ode.u], [ode.f_impl_expr])
    x = np.append(q, qd)
    assert np.abs(np.array(explicit(x, tau[:2])).ravel() - expected).max() < 1e-11 * max(1.0, np.abs(expected).max())
    assert np.abs(np.array(implicit(x, expected, tau[:2]))).max() < 1e-11 * max(1.0, np.abs(expected).max())
    simulate = casadi.integrator("F", "cvodes", {"x": ode.x, "u": ode.u, "ode": ode.f_expl_expr}, 0.0, 0.01)
    assert np.isfinite(np.array(simulate(x0=x, u=tau[:2])["xf"])).all()


def test_a_continuous_model_obeys_constraints():
    model, constraints = robots_with_loops.load("four_bar")
    dyn = rd.Dynamics(replace(model, constraints=tuple(constraints)), engine="reference")
    ode = robodyn.casadi.wrap(dyn).continuous_model()
    q, (qd, tau) = dyn.model.neutral(), np.random.default_rng(RNG).standard_normal((2, model.nv))
    rate = np.array(casadi.Function("f", [ode.x, ode.u], [ode.f_expl_expr])(np.append(q, qd), tau)).ravel()
    expected = np.append(qd, dyn.constrained_forward_dynamics(q, qd, tau)[0])
    assert np.abs(rate - expected).max() < 1e-10 * max(1.0, np.abs(expected).max())


TWO_SHAPES = """<robot name="two">
<link name="base"><collision><geometry><box size=".1 .2 .3"/></geometry></collision></link>
<link name="ball"><inertial><mass value="1"/><inertia ixx=".1" iyy=".1" izz=".1" ixy="0" ixz="0" iyz="0"/></inertial>
<collision><origin xyz="0 0 .1"/><geometry><sphere radius=".05"/></geometry></collision></link>
<joint name="j" type="floating"><parent link="base"/><child link="ball"/></joint></robot>"""


@compiled
def test_distances():
    """The derivative of the witness points, also where the ball's centre is in the box."""
    rng = np.random.default_rng(RNG)
    model = rd.load_urdf(TWO_SHAPES)
    model = model if model.pairs else model.with_shapes(pairs="all")
    dyn = rd.Dynamics(model)
    rc = robodyn.casadi.wrap(dyn)
    function = rc.function("distances")
    for spread in (0.02, 0.5):
        q = model.neutral()
        q[:3] = rng.uniform(-spread, spread, 3) - [0.0, 0.0, 0.1]
        v = rng.standard_normal(model.nv)
        assert abs(float(function(q)) - dyn.distances(q)[0]) < 1e-12
        slope = np.array(function.jacobian()(q, 0)) @ np.array(rc.coordinate_rate(q, v))
        assert np.abs(slope.ravel() - dyn.distances_gradient(q) @ v).max() < 1e-12
    with pytest.raises(rd.ArgumentError, match="'sx'"):
        rc.function("distances", way="sx")


def test_refusals(monkeypatch):
    model = rd.load_urdf(own("arm6"))
    rc = robodyn.casadi.wrap(model)
    for match, arguments in {
        "query": {"query": "forward_dinamics"},
        "has none": {"query": "delassus"},
        "given": {"query": "mass_matrix", "given": ("f_ext",)},
        "choices": {"query": "mass_matrix", "frame": "world"},
        "link": {"query": "jacobian"},
        "frame": {"query": "jacobian", "link": "tool0", "frame": "moon"},
        "way": {"query": "mass_matrix", "way": "mx"},
        "name": {"query": "mass_matrix", "name": "a b"},
    }.items():
        with pytest.raises(rd.ArgumentError, match=match):
            rc.function(**arguments)
    with pytest.raises(rd.ArgumentError, match="float32"):
        robodyn.casadi.wrap(rd.Dynamics(model, dtype="float32"))
    with pytest.raises(rd.ArgumentError, match="no degrees"):
        robodyn.casadi.wrap(rd.load_urdf('<robot name="rock"><link name="a"/></robot>'))
    with pytest.raises(rd.ArgumentError, match="actuated"):
        rc.continuous_model(actuated=[0, 0])
    with pytest.raises(RuntimeError, match="dimension"):
        rc.function("gravity_force", way="sx")(np.zeros(5))
    with pytest.raises(rd.UnavailableError, match="too many"):
        robodyn.casadi.wrap(rd.random_tree(20_000, seed=0)).function("inverse_dynamics")
    with pytest.raises(rd.UnavailableError, match="operations"):
        humanoid = rd.load_urdf(own("humanoid"), base="floating")
        robodyn.casadi.wrap(humanoid, "sx").function("forward_dynamics_gradient")
    with pytest.raises(rd.SingularError):
        robodyn.casadi.wrap(rd.load_urdf(own("massless_tip"))).function("forward_dynamics")
    feet = replace(model, constraints=(rd.Point("tool0"),))
    with pytest.raises(rd.ArgumentError, match="targets"):
        robodyn.casadi.wrap(feet).function("constrained_forward_dynamics")
    monkeypatch.setenv("CC", "no-such-compiler")
    assert not robodyn.casadi.has_compiler()
    with pytest.raises(rd.UnavailableError, match="no-such-compiler"):
        rc.function("gravity_force", way="compiled", name="fresh")
    assert rc.function("forward_dynamics").class_name() == "SXFunction", "auto does without a compiler"


@compiled
def test_files_of_libraries(monkeypatch):
    """Files that are gone are written again, and a forked process never writes to those of its parent."""
    from robodyn.bridges.casadi import plugin

    model = rd.load_urdf(own("double_pendulum"))
    q, wanted = np.array([0.3, 0.4]), rd.Dynamics(model).gravity_force(np.array([0.3, 0.4]))

    def found():
        made = robodyn.casadi.wrap(model, way="compiled").function("gravity_force", name="files")
        return np.array(made(q)).ravel()

    assert np.allclose(found(), wanted)
    folder = plugin._folder()
    with monkeypatch.context() as forked:
        forked.setattr(os, "getpid", lambda: -1)
        assert plugin._folder().parent == folder and np.allclose(found(), wanted)
    assert plugin._folder() == folder
    shutil.rmtree(folder)
    assert np.allclose(found(), wanted) and plugin._folder() != folder
    monkeypatch.setenv("CC", "true")
    with pytest.raises(rd.UnavailableError, match="true wrote no library"):
        robodyn.casadi.wrap(model, way="compiled").function("gravity_force", name="nothing")


def test_without_casadi():
    program = (
        "import sys; sys.modules['casadi'] = None\n"
        "import robodyn as rd\n"
        "try:\n    import robodyn.casadi\nexcept rd.UnavailableError as error:\n    print(error)"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert 'pip install ".[casadi]"' in said
