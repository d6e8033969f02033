"""robodyn.jax and robodyn.torch under random questions: any robot, query, shapes that broadcast, options.

Values are those of a `Dynamics`; derivatives agree between the two libraries, forwards and backwards, and with
differences. What a `Dynamics` refuses raises an error of robodyn.
"""

from __future__ import annotations

import numpy as np
import pytest
from bridges import ROADS, asked, close, jax, scale, torch

import robodyn as rd
import robodyn.jax
import robodyn.torch
from robodyn.api.autodiff.functions import WITH_RULES
from robodyn.description import JOINT_TYPES
from robodyn.engines.query_table import QUERIES

jnp, forward_ad = jax.numpy, torch.autograd.forward_ad
pytestmark = pytest.mark.extras

# Roundings of two formulations of one quantity, relative to its largest entry.
VALUES = 1e-9
# Differences extrapolated once: roundings of 1e-16 / 1e-4, and truncations of fourth order where links are light.
DIFFERENCES, STEP = 1e-4, 2e-4
SHAPES = [(), (1,), (3,), (2, 1), (1, 3), (0,), (2, 1, 3)]


# Random robots, queries and arguments.


def random_robot(rng):
    """Any kinds of joints, with mimics, floating, of no or one body, with and without armature."""
    kinds = tuple(rng.choice(JOINT_TYPES, rng.integers(1, 4), replace=False))
    mimic = float(rng.choice([0.0, 0.6]))
    return rd.random_tree(
        int(rng.choice([0, 1, 2, 3, 4])),
        seed=int(rng.integers(1 << 30)),
        joints=kinds,
        mimic=mimic if set(kinds) & {"revolute", "prismatic"} else 0.0,
        armature=bool(rng.integers(2)),
        base=str(rng.choice(["fixed", "floating"])),
    )


def random_arguments(rng, dyn, question):
    """Arrays by name, of leading axes that broadcast, optional ones given or not; and the link."""
    model, whole = dyn.model, SHAPES[rng.integers(len(SHAPES))]
    names = [name for name in question.arrays if name in question.inputs or rng.integers(2)]
    found = {}
    for name in names:
        keep = [n if rng.integers(4) else 1 for n in whole][int(rng.integers(0, 1 + len(whole))) * rng.integers(2) :]
        shape = (*keep, *dyn.argument_shapes[name])
        if name == "q":
            q = model.random_configuration(rng, tuple(keep))
            q[..., model.quaternion_starts[:, None] + np.arange(4)] *= rng.uniform(0.5, 2.0)
            found[name] = q
        elif name == "inertia":
            found[name] = model.inertia * (1.0 + 0.01 * rng.standard_normal(shape))
        else:  # away from zero, where friction jumps
            found[name] = rng.uniform(0.2, 1.0, shape) * rng.choice([-1.0, 1.0], shape)
    link = int(rng.integers(len(model.link_names))) if question.of_link else None
    return found, link


def weighted_sum(one, other):
    return sum(float((np.asarray(a) * np.asarray(b)).sum()) for a, b in zip(one, other, strict=True))


def random_case(seed, engines):
    """A robot's Dynamics, a question, its arguments and choices, and what the Dynamics answers: results or an error."""
    rng = np.random.default_rng(seed)
    model = random_robot(rng)
    forces = ((), ("damping",), ("damping", "friction"))[rng.integers(3)]
    dyn = rd.Dynamics(model, engine=str(rng.choice(engines)), joint_forces=forces, threads=1)
    question = list(QUERIES.values())[rng.integers(len(QUERIES))]
    arrays, link = random_arguments(rng, dyn, question)
    if question.name in WITH_RULES:  # these take fewer arrays
        arrays = {name: each for name, each in arrays.items() if name in question.inputs or name == "f_ext"}
    chosen = {"frame": ("world", "body", "world_aligned")[rng.integers(3)]} if question.in_frame else {}
    print(f"seed {seed}: {question.name} of {model!r}, {dyn.engine.name}, {forces}, link {link}, {chosen}")
    print("arguments:", {name: each.shape for name, each in arrays.items()})
    try:
        wanted = asked(dyn, question, arrays, link, **chosen)
    except rd.RobodynError as error:
        wanted = error
    return rng, dyn, question, arrays, link, chosen, wanted


def differences(function, arrays, rates):
    """Rates of results, by central differences that are extrapolated once."""

    def slope(h):
        ends = [function({name: x + s * h * rates[name] for name, x in arrays.items()}) for s in (1.0, -1.0)]
        return [(high - low) / (2 * h) for high, low in zip(*ends, strict=True)]

    return [(4 * fine - rough) / 3 for fine, rough in zip(slope(STEP / 2), slope(STEP), strict=True)]


def through_torch(rt, question, arrays, link, chosen, rates, weights):
    """Results, their rates, and the gradient of weights times results."""
    names = list(arrays)
    with forward_ad.dual_level():
        dual = {k: forward_ad.make_dual(torch.tensor(arrays[k]), torch.tensor(rates[k])) for k in names}
        pairs = [forward_ad.unpack_dual(each) for each in asked(rt, question, dual, link, **chosen)]
        moved = [torch.zeros_like(pair.primal) if pair.tangent is None else pair.tangent for pair in pairs]
    given = {name: torch.tensor(arrays[name], requires_grad=True) for name in names}
    found = asked(rt, question, given, link, **chosen)
    total = sum((each * torch.tensor(w)).sum() for each, w in zip(found, weights, strict=True))
    back = (
        torch.autograd.grad(total, list(given.values()), allow_unused=True)
        if total.requires_grad
        else [None] * len(names)
    )
    back = [torch.zeros_like(given[k]) if each is None else each for k, each in zip(names, back, strict=True)]
    return [[each.detach().numpy() for each in part] for part in (found, moved, back)]


def through_jax(rj, question, arrays, link, chosen, rates, weights):
    """The same."""

    @jax.jit
    def everything(x, rates, weights):
        def function(x):
            return asked(rj, question, x, link, **chosen)

        found, moved = jax.jvp(function, (x,), (rates,))
        return found, moved, jax.vjp(function, x)[1](weights)[0]

    found, moved, back = everything(arrays, rates, tuple(weights))
    return found, moved, [back[name] for name in arrays]


def attack(seed, roads, engines=("reference",)):
    """One random question: its values, and its derivatives along a random direction and backwards.

    Returns whether it was answered; what a Dynamics refuses the others must.
    """
    rng, dyn, question, arrays, link, chosen, wanted = random_case(seed, engines)
    functions = [wrap(dyn) for wrap, _ in roads]
    if isinstance(wanted, rd.RobodynError):
        for each, array in zip(functions, (torch.tensor, jnp.asarray), strict=False):
            with pytest.raises(rd.RobodynError):
                asked(each, question, {name: array(x) for name, x in arrays.items()}, link, **chosen)
        return False
    rates = {name: rng.standard_normal(each.shape) for name, each in arrays.items()}
    weights = [rng.standard_normal(each.shape) for each in wanted]
    slopes = differences(lambda x: asked(dyn, question, x, link, **chosen), arrays, rates)
    for each, (_, through) in zip(functions, roads, strict=True):
        try:
            found, moved, back = through(each, question, arrays, link, chosen, rates, weights)
        except rd.UnavailableError as error:  # derivatives of Hessians of what floats
            assert "too large for straight-line code" in str(error)
            return False
        for got, value, rate, slope in zip(found, wanted, moved, slopes, strict=True):
            close(got, value, VALUES)
            close(rate, slope, DIFFERENCES, at_least=scale(value))
        forward, backward = weighted_sum(weights, moved), weighted_sum(back, rates.values())
        parts = sum(float(np.abs(np.asarray(a) * b).sum()) for a, b in zip(back, rates.values(), strict=True))
        assert abs(forward - backward) <= ROADS * (parts + sum(scale(each) for each in moved)), (forward, backward)
    return True


TORCH = (robodyn.torch.wrap, through_torch)
JAX = (robodyn.jax.wrap, through_jax)


def attack_all(seeds, roads, engines=("reference",)):
    """Random questions one after another; most of them have answers."""
    answered = [attack(seed, roads, engines) for seed in seeds]
    assert sum(answered) > len(answered) / 2


@pytest.mark.parametrize("first", range(0, 24, 6))
def test_random_questions_in_torch(first):
    attack_all(range(first, first + 6), (TORCH,))


@pytest.mark.parametrize("seed", range(2))
def test_random_questions_in_both(seed):
    attack(seed, (TORCH, JAX), ("cpu",))


@pytest.mark.nightly
@pytest.mark.parametrize("first", range(1000, 1120, 20))
def test_many_random_questions_in_torch(first):
    attack_all(range(first, first + 20), (TORCH,), ("reference", "cpu"))


@pytest.mark.nightly
@pytest.mark.parametrize("first", range(2000, 2024, 4))
def test_many_random_questions_in_both(first):
    attack_all(range(first, first + 4), (TORCH, JAX), ("reference", "cpu"))
