"""Robots with constraints in JAX and PyTorch: queries about constraints; other queries know nothing of them; what would
have to obey them is refused."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from conftest import random_states, relative
from robots import own

import robodyn as rd


@pytest.fixture(scope="module")
def case():
    """A quadruped that stands, the same one free, and a state."""
    model = rd.load_urdf(own("quadruped"), base="floating")
    feet = [rd.Point(name) for name in model.link_names if name.endswith("_foot")]
    return rd.Dynamics(model, constraints=feet), rd.Dynamics(model), random_states(model, (2,), seed=1)


def judge(case, wrap, array, gradient_of):
    """Values and gradients are those of the robot without constraints; what has to obey them is named."""
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
    for refused in (lambda: functions.step(array(q), array(qd)), lambda: functions.rollout(array(q), array(qd))):
        with pytest.raises(rd.UnavailableError, match="not available for robots with constraints"):
            refused()
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
    for name, arrays in (("constraint_residual", (q, qd)), ("delassus", (q, qd, tau)), ("project", (q, qd))):
        for one, other in zip(getattr(functions, name)(*map(array, arrays)), getattr(dyn, name)(*arrays), strict=True):
            assert relative(np.asarray(one), other) < 1e-9, name


@pytest.mark.extras
def test_in_jax(case):
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    import robodyn.jax

    judge(case, robodyn.jax.wrap, jax.numpy.asarray, lambda f, x: np.asarray(jax.grad(f)(*x)))
    judge_constrained(robodyn.jax.wrap, jax.numpy.asarray, lambda f, x: np.asarray(jax.jit(jax.grad(f))(*x)))


@pytest.mark.extras
def test_in_pytorch(case):
    torch = pytest.importorskip("torch")
    import robodyn.torch

    def gradient_of(f, x):
        first, *others = x
        first = first.clone().requires_grad_(True)
        return torch.autograd.grad(f(first, *others), first)[0].numpy()

    judge(case, robodyn.torch.wrap, torch.from_numpy, gradient_of)
    judge_constrained(robodyn.torch.wrap, torch.from_numpy, gradient_of)
