"""Queries about several links, points and relative motion in JAX and PyTorch, and what masses and the base have to
give: values of a Dynamics, derivatives by differences."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import relative
from robots import own

import robodyn as rd

STEP, TOLERANCE = 1e-6, 2e-7
POINT = np.array([0.1, -0.2, 0.3])


@pytest.fixture(scope="module")
def case():
    model = rd.load_urdf(own("arm6"))
    rng = np.random.default_rng(0)
    q, qd, qdd = model.random_configuration(rng), *rng.standard_normal((2, model.nv))
    V0, dV0 = rng.standard_normal((2, 6))
    f_ext = rng.standard_normal((model.n_bodies, 6))
    return rd.Dynamics(model), q, qd, qdd, f_ext, V0, dV0


def asked(case):
    """Name, how it is called, and the arrays that it may be differentiated by."""
    dyn, q, qd, qdd, f_ext, V0, dV0 = case
    links = ["tool0", dyn.model.link_names[2]]
    inertia = dyn.model.inertia * 1.1
    base = {"V0": V0, "dV0": dV0}
    yield "jacobian", {"links": links}, {"q": q, "point": np.stack([POINT, -POINT])}
    yield "link_velocity", {"links": links, "frame": "body"}, {"q": q, "qd": qd, "point": POINT, "V0": V0}
    yield "link_pose", {"link": "tool0", "relative_to": links[1]}, {"q": q, "point": POINT}
    relative_to = {"link": "tool0", "relative_to": links[1]}
    yield "link_acceleration", relative_to, {"q": q, "qd": qd, "qdd": qdd, "point": POINT, **base}
    yield "link_velocity_gradient", {"link": 3}, {"q": q, "qd": qd, "V0": V0}
    yield "inverse_dynamics", {}, {"q": q, "qd": qd, "qdd": qdd, "f_ext": f_ext, "inertia": inertia, **base}
    yield "forward_dynamics", {}, {"q": q, "qd": qd, "tau": qdd, "inertia": inertia, **base}
    yield "bias_force", {}, {"q": q, "qd": qd, "inertia": inertia, **base}
    yield "kinetic_energy", {}, {"q": q, "qd": qd, "inertia": inertia, "V0": V0}
    for name in ("gravity_force", "mass_matrix", "mass_matrix_inverse", "potential_energy", "center_of_mass"):
        yield name, {}, {"q": q, "inertia": inertia}
    yield "center_of_mass_acceleration", {}, {"q": q, "qd": qd, "qdd": qdd, "inertia": inertia, **base}
    yield "centroidal_momentum_matrix_derivative", {}, {"q": q, "qd": qd, "inertia": inertia, "V0": V0}
    yield "joint_reaction", {}, {"q": q, "qd": qd, "qdd": qdd, "f_ext": f_ext, "inertia": inertia, **base}
    yield "body_regressor", {}, {"q": q, "qd": qd, "qdd": qdd, **base}


def first(found):
    return found[0] if isinstance(found, tuple) else found


def slopes(ask, arrays, weights):
    """How the weighted sum of a result changes along a direction of each array."""
    rng, found = np.random.default_rng(2), {}
    for name, array in arrays.items():
        way = rng.standard_normal(array.shape) * (np.abs(array) if name == "inertia" else 1.0)
        high, low = (first(ask(**{**arrays, name: array + h * way})) for h in (STEP, -STEP))
        found[name] = way, ((high - low) * weights).sum() / (2 * STEP)
    return found


def judge(case, differentiate):
    """Values, and gradients of a weighted sum by all arrays."""
    dyn = case[0]
    for name, options, arrays in asked(case):

        def ask(name=name, options=options, **given):
            return getattr(dyn, name)(**options, **given)

        wanted = first(ask(**arrays))
        weights = np.random.default_rng(1).standard_normal(np.shape(wanted))
        value, gradient = differentiate(name, options, arrays, weights)
        assert relative(value, (wanted * weights).sum()) < 1e-9, name
        for by, (way, slope) in slopes(ask, arrays, weights).items():
            size = np.abs(gradient[by] * way).max() + np.abs(value)
            assert abs((gradient[by] * way).sum() - slope) < TOLERANCE * size, (name, by)


@pytest.mark.extras
def test_in_jax(case):
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    import robodyn.jax

    functions = robodyn.jax.wrap(case[0])

    def differentiate(name, options, arrays, weights):
        def total(arrays):
            return (first(getattr(functions, name)(**options, **arrays)) * weights).sum()

        value, gradient = jax.value_and_grad(total)(arrays)
        return float(value), {by: np.asarray(array) for by, array in gradient.items()}

    judge(case, differentiate)


@pytest.mark.extras
def test_in_torch(case):
    torch = pytest.importorskip("torch")
    import robodyn.torch

    functions = robodyn.torch.wrap(case[0])

    def differentiate(name, options, arrays, weights):
        given = {by: torch.tensor(array, requires_grad=True) for by, array in arrays.items()}
        value = (first(getattr(functions, name)(**options, **given)) * torch.tensor(weights)).sum()
        value.backward()
        return value.item(), {by: array.grad.numpy() for by, array in given.items()}

    judge(case, differentiate)


@pytest.mark.extras
@pytest.mark.parametrize("library", ("jax", "torch"))
def test_contacts_act_at_the_default_time_step_alone(library):
    """The bound of time constants by dt is a constant of programs: another dt is refused."""
    pytest.importorskip(library)
    if library == "jax":
        import jax

        import robodyn.jax as bridge

        jax.config.update("jax_enable_x64", True)
        array = np.asarray
    else:
        import torch

        import robodyn.torch as bridge

        array = torch.tensor
    model = rd.load_urdf(own("double_pendulum"))
    foot = rd.Sphere(model.link_names[-1], radius=0.5)
    model = model.with_contacts([rd.Contact(foot, rd.Plane(offset=-0.5), solref=(0.001, 1.0), friction=0.5)])
    dyn = rd.Dynamics(model, joint_forces=())
    state = np.array([[0.3, 0.4], [1.0, -2.0], [0.5, 0.1]])
    wanted, slower = (dyn.contact_forward_dynamics(*state, **dt)[1] for dt in ({}, {"dt": 0.01}))
    assert (np.abs(wanted) > 1e-3).any() and relative(slower, wanted) > 0.1
    ask = bridge.wrap(dyn).contact_forward_dynamics
    assert relative(np.asarray(ask(*map(array, state))[1]), wanted) < 1e-9
    with pytest.raises(TypeError, match="dt"):
        ask(*map(array, state), dt=0.01)
