"""What the tree makes zero: left out of vectors and of solves, and zero in results."""

from __future__ import annotations

import numpy as np
import pytest
from robots import own

import robodyn as rd
from robodyn.algorithms.crba import CRBA
from robodyn.algorithms.idsva import idsva
from robodyn.compile.llvm.target import host_target
from robodyn.engines.cpu.request import Request
from robodyn.engines.cpu.sparse_results import packing
from robodyn.tools.benchmark.contenders import draw

ROBOTS = ("humanoid", "quadruped", "gripper", "hand", "arm7")


def programs(model: rd.Model, algorithm):
    """That of an algorithm, and the packed one."""
    made = [Request(model, algorithm, np.dtype(np.float64), host_target(), packed=packed) for packed in (False, True)]
    return [request.trace() for request in made]


@pytest.mark.parametrize("base", ["fixed", "floating"])
@pytest.mark.parametrize("seed", range(6))
def test_packed_programs_have_the_same_numbers(seed: int, base: str) -> None:
    print("seed", seed)
    model = rd.random_tree(9, seed=seed, base=base, mimic=0.3)
    states = draw(model, 5, seed)
    for algorithm in (CRBA, idsva()):
        plain, packed = programs(model, algorithm)
        given = {port.name: states[port.name] for port in plain.inputs}
        for name, wanted in plain.evaluate(given).items():
            places = packing(model, algorithm.outputs[name])
            found = packed.evaluate(given)[name].reshape(5, -1)[:, places]
            np.testing.assert_array_equal(found.reshape(wanted.shape), wanted)
    assert packed.operations == plain.operations


@pytest.mark.parametrize("name", ROBOTS)
def test_a_place_for_all_that_is_not_zero_and_no_more(name: str) -> None:
    model = rd.load_urdf(own(name))
    (output,) = CRBA.outputs.values()
    H = rd.Dynamics(model, engine="reference").mass_matrix(draw(model, 20)["q"])
    places = packing(model, output)
    seen = (H != 0).any(axis=0).ravel()
    left = np.unique(places, return_counts=True)[1]
    if left[-1] == 1:  # nothing was left out
        assert seen[places.argmax()] or model.nv == 1
        assert (left == 1).all() and places.size == left.size
        return
    zero = places == places.max()
    assert not (seen & zero).any() and (left[:-1] == 1).all()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("query", ["mass_matrix", "inverse_dynamics_gradient"])
def test_zeros_are_zeros_in_every_batch(query: str, dtype: str) -> None:
    model = rd.load_urdf(own("humanoid"))
    dyn, reference = (rd.Dynamics(model, engine=engine, dtype=dtype) for engine in ("cpu", "reference"))
    places = packing(model, CRBA.outputs["H"])
    apart = (places == places.max()).reshape(model.nv, model.nv)
    assert apart.sum() > 400
    for rows in (2, 7, 8, 40, 1100):  # the last: past the caches
        states = draw(model, rows, rows)
        arguments = [states[each].astype(dtype) for each in ("q", "qd", "qdd")][: 1 if query == "mass_matrix" else 3]
        found, wanted = (getattr(each, query)(*arguments) for each in (dyn, reference))
        pairs = zip(*((each if isinstance(each, tuple) else (each,)) for each in (found, wanted)), strict=True)
        for ours, theirs in pairs:
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=2e-5 * np.abs(theirs).max())
            assert not ours[:, apart].any()


@pytest.mark.parametrize("seed", range(4))
def test_solves_of_several_trees(seed: int) -> None:
    """Loops of solves go down the trees that a right-hand side reaches alone."""
    print("seed", seed)
    model = rd.random_tree(14, seed=seed)
    several = [rd.random_tree(5, seed=100 * seed + k) for k in range(3)]
    for part in several:
        model = model.attach(part, 0, prefix=f"part{len(model.link_names)}_")
    dyn, reference = rd.Dynamics(model, engine="cpu", code="rolled"), rd.Dynamics(model, engine="reference")
    s = draw(model, 11, seed)
    for found, wanted in zip(
        (*dyn.forward_dynamics_gradient(s["q"], s["qd"], s["tau"]), dyn.mass_matrix_inverse(s["q"])),
        (*reference.forward_dynamics_gradient(s["q"], s["qd"], s["tau"]), reference.mass_matrix_inverse(s["q"])),
        strict=True,
    ):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-9 * np.abs(wanted).max())
        assert not found[:, (wanted == 0).all(axis=0)].any()
