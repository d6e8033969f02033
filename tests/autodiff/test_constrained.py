"""Robots with constraints in JAX and PyTorch: plain queries know nothing of them, what has to obey them is refused."""

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
    with pytest.raises(AttributeError, match=r"robodyn\.Dynamics answers it"):
        functions.constrained_forward_dynamics(array(q), array(qd), array(tau))
    assert not hasattr(functions, "delassus")


@pytest.mark.extras
def test_in_jax(case):
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    import robodyn.jax

    judge(case, robodyn.jax.wrap, jax.numpy.asarray, lambda f, x: np.asarray(jax.grad(f)(*x)))


@pytest.mark.extras
def test_in_pytorch(case):
    torch = pytest.importorskip("torch")
    import robodyn.torch

    def gradient_of(f, x):
        first, *others = x
        first = first.clone().requires_grad_(True)
        return torch.autograd.grad(f(first, *others), first)[0].numpy()

    judge(case, robodyn.torch.wrap, torch.from_numpy, gradient_of)
