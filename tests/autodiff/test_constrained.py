"""Robots with constraints in JAX and PyTorch: steps, rollouts and queries about constraints obey them; other queries
know nothing of them."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from conftest import random_states, relative
from robots import own
from test_without_mass import light

import robodyn as rd
from robodyn.api.autodiff.coordinates import Coordinates
from robodyn.engines.query_table import CONSTRAINED

pytestmark = pytest.mark.filterwarnings("ignore::robodyn.internals.errors.RedundantWarning")


@pytest.fixture(scope="module")
def case():
    """A quadruped that stands, the same one free, and a state."""
    model = rd.load_urdf(own("quadruped"), base="floating")
    feet = [rd.Point(name) for name in model.link_names if name.endswith("_foot")]
    return rd.Dynamics(model, constraints=feet), rd.Dynamics(model), random_states(model, (2,), seed=1)


def judge(case, wrap, array, gradient_of):
    """Values and gradients are those of the robot without constraints."""
    held, free, (q, qd, tau) = case
    functions, others = wrap(held), wrap(free)
    f_ext = np.random.default_rng(1).standard_normal((held.model.n_bodies, 6))
    for name, arrays, options in (
        ("inverse_dynamics", (q, qd, tau), {"f_ext": array(f_ext)}),
        ("forward_dynamics", (q, qd, tau), {"f_ext": array(f_ext)}),
        ("forward_kinematics", (q,), {}),
        ("center_of_mass", (q,), {}),
        ("jacobian", (q,), {"link": 3}),
    ):
        given = [array(each) for each in arrays]
        asks = [partial(getattr(each, name), **options) for each in (functions, others)]
        assert relative(*(np.asarray(ask(*given)) for ask in asks)) < 1e-12, name
        got, wanted = (gradient_of(lambda *x, ask=ask: (ask(*x) ** 2).sum(), given) for ask in asks)
        assert relative(got, wanted) < 1e-10, name
    assert not hasattr(others, "delassus")
    with pytest.raises(AttributeError, match="has no constraints"):
        others.constrained_forward_dynamics(array(q), array(qd), array(tau))


def judge_constrained(wrap, array, gradient_of):
    """Values are those of `Dynamics`, gradients those of its queries of gradients."""
    model = rd.load_urdf(own("arm6"))
    first, second, *_ = model.joint_names
    held = [rd.Rod("tool0", to_at=(0.3, 0.2, 0.9), length=0.4, baumgarte=3.0), rd.Coupling({first: 1.0, second: -2.0})]
    dyn = rd.Dynamics(model, constraints=held, joint_forces="damping")
    functions, rng = wrap(dyn), np.random.default_rng(1)
    q, qd, tau = rng.uniform(-1.0, 1.0, (3, 2, dyn.model.nv))
    options = {"active": np.array([[True] * dyn.model.n_constraints, [False] + [True] * (dyn.model.n_constraints - 1)])}
    given = {name: array(each) for name, each in options.items()}
    for name, arrays in (("constrained_forward_dynamics", (q, qd, tau)), ("impact", (q, qd))):
        ask, values = getattr(functions, name), getattr(dyn, name)(*arrays, **options)
        for one, other in zip(ask(*map(array, arrays), **given), values, strict=True):
            assert relative(np.asarray(one), other) < 1e-9, name
        slopes, n = getattr(dyn, f"{name}_gradient")(*arrays, **options), len(arrays)
        for k, value in enumerate(values):
            weights = rng.standard_normal(value.shape)
            for place in range(n):

                def weighed(x, k=k, place=place, ask=ask, arrays=arrays, weights=weights):
                    every = [x if at == place else array(each) for at, each in enumerate(arrays)]
                    return (ask(*every, **given)[k] * array(weights)).sum()

                got = gradient_of(weighed, [array(arrays[place])])
                wanted = np.einsum("bi,bij->bj", weights, slopes[n * k + place])
                assert relative(got, wanted) < 1e-7, (name, k, place)
    state = {"q": q, "qd": qd, "tau": tau}
    rows = {name: rng.standard_normal((2, dyn.model.n_rows)) for name in ("row_velocity", "row_acceleration")}
    rows |= {"row_restitution": rng.uniform(0.0, 1.0, (2, dyn.model.n_rows))}
    assert CONSTRAINED
    for name, question in CONSTRAINED.items():
        given = {each: state[each] for each in question.plain}
        given |= {each: more for each, more in {**rows, **options}.items() if each in question.optional}
        found = getattr(functions, name)(**{each: array(value) for each, value in given.items()})
        wanted = getattr(dyn, name)(**given)
        for one, other in zip(*(each if isinstance(each, tuple) else (each,) for each in (found, wanted)), strict=True):
            assert relative(np.asarray(one), other) < 1e-9, name
    turned = np.eye(4)
    turned[:3, :3] = [[0.0, -1.0, 0.0], [0.6, 0.0, -0.8], [0.8, 0.0, 0.6]]
    dyn = rd.Dynamics(model, constraints=[rd.Point("tool0", to_at=turned)])
    for axes in ("to", "world"):
        one, other = wrap(dyn).impact(array(q), array(qd), axes=axes)[1], dyn.impact(q, qd, axes=axes)[1]
        assert relative(np.asarray(one), other) < 1e-9, axes


def on_feet():
    """A quadruped on three feet, which stay where they are, and a rod; its state is near the constraints."""
    model = rd.load_urdf(own("quadruped"), base="floating")
    *feet, last = (name for name in model.link_names if name.endswith("_foot"))
    q = model.neutral()
    q[7:] = np.tile([0.1, 0.8, -1.6, -0.1, 0.8, -1.6], 2)
    return model, [*map(rd.Point, feet), rd.Rod(last, to_at=(0.0, 0.0, 0.5), length=0.8)], q


def on_wheels():
    """A disc that leans and rolls."""
    inertia = '<mass value="2"/><inertia ixx="0.05" iyy="0.09" izz="0.05" ixy="0" ixz="0" iyz="0"/>'
    link = f'<link name="disc"><inertial>{inertia}</inertial></link>'
    model = rd.load_urdf(f'<robot name="disc">{link}</robot>', base="floating")
    q = np.array([0.2, -0.1, 0.27, 0.3, 0.1, 0.2, 0.9])
    return model, [rd.Rolling("disc", (0, 1, 0), 0.3)], model.assemble(q, [rd.Rolling("disc", (0, 1, 0), 0.3)])


def without_mass():
    """A chain whose last two links weigh nothing and are held at a point."""
    model = light()
    return model, [rd.Point(model.link_names[-1], at=(0.1, 0.2, 0.3))], model.random_configuration(1)


def judge_motion(made, wrap, array, gradients_of):
    """Steps and rollouts are those of `Dynamics`, gradients those of `rollout_vjp`, which are those of differences;
    constraints that are off for some steps, and targets that move."""
    model, held, q = made()
    dyn, rng = rd.Dynamics(model, constraints=held, joint_forces="damping"), np.random.default_rng(3)
    print(made.__name__, "seed 3")
    q = model.integrate(np.stack([q] * 2), rng.uniform(-0.02, 0.02, (2, model.nv)))
    qd, tau = rng.uniform(-1.0, 1.0, (2, 2, model.nv))
    plan, n = {"dt": 5e-3, "steps": 4, "save_every": 2}, len(held)
    targets = np.stack([dyn.constraint_targets(q)] * 4)
    targets[..., 9:] += 1e-3 * rng.standard_normal((4, 2, n, 3))
    active = np.ones((4, 2, n), bool)
    active[:2, 1, 0] = dyn.singularity() is not None  # what has no mass must be held
    functions = wrap(dyn)
    for one, other in zip(functions.step(array(q), array(qd), array(tau)), dyn.step(q, qd, tau), strict=True):
        assert relative(np.asarray(one), other) < 1e-11
    for options in ({}, {"targets": targets, "active": active}):
        given = {name: array(each) for name, each in options.items()}
        wanted = dyn.rollout(q, qd, tau, **plan, **options)
        found = functions.rollout(array(q), array(qd), array(tau), **plan, **given)
        for one, other in zip(found, (wanted.q, wanted.qd), strict=True):
            assert relative(np.asarray(one), other) < 1e-11
        weights = rng.standard_normal(wanted.qd.shape)
        slopes = dyn.rollout_vjp(
            q, qd, tau, **plan, **options, qd_weight=weights, wrt=("q0", "qd0", "tau", *sorted({*options} - {"active"}))
        )

        def weighed(*arrays, given=given, weights=weights, names=tuple(slopes)):
            every = {**given, **dict(zip(names, arrays, strict=True))}
            return (functions.rollout(**every, **plan)[1] * array(weights)).sum()

        start = [{"q0": q, "qd0": qd, "tau": tau, **options}[name] for name in slopes]
        found = gradients_of(weighed, [*map(array, start)])
        for (name, wanted), got in zip(slopes.items(), map(np.asarray, found), strict=True):
            if name == "q0":
                got = Coordinates(model).rate_transposed(model.unit_coordinates(q), got)
            assert relative(got, wanted) < 1e-9, name
        moved = rng.standard_normal(tau.shape)
        ends = [
            float(weighed(array(q), array(qd), array(tau + sign * moved), *map(array, start[3:])))
            for sign in (1e-5, -1e-5)
        ]
        assert abs((slopes["tau"] * moved).sum() - (ends[0] - ends[1]) / 2e-5) < 1e-6 * np.abs(slopes["tau"]).sum()


@pytest.mark.extras
@pytest.mark.parametrize("made", [on_feet, on_wheels, without_mass])
def test_motion_in_jax(made):
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    import robodyn.jax

    every = lambda f, x: jax.jit(jax.grad(f, tuple(range(len(x)))))(*x)  # noqa: E731
    judge_motion(made, robodyn.jax.wrap, jax.numpy.asarray, every)
    model, held, q = made()
    dyn, qd = rd.Dynamics(model, constraints=held), np.full((2, model.nv), 0.1)
    ask = partial(robodyn.jax.wrap(dyn).step, np.stack([q] * 2)[0])
    A, _ = dyn.step_gradient(np.stack([q] * 2), qd)
    for jacobian in (jax.jacrev, jax.jacfwd):
        slopes = jax.vmap(jacobian(lambda v: ask(v)[1]))(qd)
        assert relative(np.asarray(slopes), A[:, model.nv :, model.nv :]) < 1e-10


@pytest.mark.extras
@pytest.mark.parametrize("made", [on_feet, on_wheels, without_mass])
def test_motion_in_pytorch(made):
    torch = pytest.importorskip("torch")
    import robodyn.torch

    judge_motion(made, robodyn.torch.wrap, torch.from_numpy, gradients_in_pytorch)
    model, held, q = made()
    dyn, qd = rd.Dynamics(model, constraints=held), np.full((2, model.nv), 0.1)
    ask = partial(robodyn.torch.wrap(dyn).step, torch.from_numpy(q))
    A, _ = dyn.step_gradient(np.stack([q] * 2), qd)
    for jacobian in (torch.func.jacrev, torch.func.jacfwd):
        slopes = torch.func.vmap(jacobian(lambda v: ask(v)[1]))(torch.from_numpy(qd))
        assert relative(slopes.numpy(), A[:, model.nv :, model.nv :]) < 1e-10


def judge_dependent(wrap, array, rate):
    """Two points on one link: six rows, of which five are independent. Forces change as the solver's do, also in the
    direction that exerts no force, which analytical derivatives leave out."""
    model = rd.load_urdf(own("arm7"))
    rng = np.random.default_rng(4)
    q = rng.uniform(-1.0, 1.0, 7)
    T, at = rd.Dynamics(model).link_pose(q, "tool0"), np.array([[0.1, 0.0, 0.0], [0.0, 0.2, 0.1]])
    dyn = rd.Dynamics(model, constraints=[rd.Point("tool0", at=p, to_at=T[:3, :3] @ p + T[:3, 3]) for p in at])
    _, qd = dyn.project(q, rng.uniform(-1.0, 1.0, 7))
    tau, h = rng.uniform(-1.0, 1.0, 7), 1e-4
    step = np.linalg.svd(dyn.constraint_jacobian(q))[2][5]
    ends = []
    for sign in (1.0, -1.0):
        p, v = q + sign * h * step, qd
        for _ in range(3):
            p, v = dyn.project(p, v)
        ends.append((p, v, *dyn.constrained_forward_dynamics(p, v, tau)))
    dq, dqd, dqdd, dlam = ((ahead - behind) / (2 * h) for ahead, behind in zip(*ends, strict=True))
    ask = wrap(dyn).constrained_forward_dynamics
    found = rate(lambda q, qd: ask(q, qd, array(tau)), (array(q), array(qd)), (array(dq), array(dqd)))
    slopes = dyn.constrained_forward_dynamics_gradient(q, qd, tau)
    assert relative(np.asarray(found[0]), dqdd) < 1e-5 and relative(np.asarray(found[1]), dlam) < 1e-2
    assert relative(slopes[0] @ dq + slopes[1] @ dqd, dqdd) < 1e-5
    assert relative(slopes[3] @ dq + slopes[4] @ dqd, dlam) > 3e-2, "docs/constraints.md says that it is left out"


def gradients_in_pytorch(f, x):
    import torch

    given = [each.clone().requires_grad_(True) for each in x]
    return torch.autograd.grad(f(*given), given, allow_unused=True)


def gradient_in_pytorch(f, x):
    return gradients_in_pytorch(f, x)[0].numpy()


@pytest.mark.extras
def test_in_jax(case):
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    import robodyn.jax

    judge(case, robodyn.jax.wrap, jax.numpy.asarray, lambda f, x: np.asarray(jax.grad(f)(*x)))
    judge_constrained(robodyn.jax.wrap, jax.numpy.asarray, lambda f, x: np.asarray(jax.jit(jax.grad(f))(*x)))
    judge_dependent(robodyn.jax.wrap, jax.numpy.asarray, lambda f, x, dx: jax.jvp(f, x, dx)[1])


@pytest.mark.extras
def test_in_pytorch(case):
    torch = pytest.importorskip("torch")
    import robodyn.torch

    judge(case, robodyn.torch.wrap, torch.from_numpy, gradient_in_pytorch)
    judge_constrained(robodyn.torch.wrap, torch.from_numpy, gradient_in_pytorch)
    judge_dependent(robodyn.torch.wrap, torch.from_numpy, lambda f, x, dx: torch.func.jvp(f, x, dx)[1])
