"""Second derivatives of forward dynamics at every unit vector, as a chain that is taken apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from robots import own
from test_dead_outputs import in_stages, run_in_dirt

import robodyn as rd
from robodyn.algorithms.forward_gradient import forward_gradient
from robodyn.algorithms.forward_hessian import forward_hessian
from robodyn.algorithms.tasks import Products, Solution, Solve, Stage, on_inertia, with_identity_seeds
from robodyn.compile.llvm.target import LEVELS, host_target
from robodyn.engines.cpu.chains.tensors import parts_at_units
from robodyn.engines.cpu.engine import CpuEngine
from robodyn.internals.errors import UnavailableError

NAMES = ("qq", "q_qd", "qd_qd", "q_tau")
MODELS = {
    "one joint": {"n": 1, "seed": 0, "joints": ("revolute",)},
    "a forest": {"n": 7, "seed": 3},
    "floats": {"n": 6, "seed": 4, "base": "floating"},
    "mimics": {"n": 9, "seed": 6, "mimic": 0.5},
}


def tree(name: str) -> rd.Model:
    joints = {"joints": ("revolute", "prismatic", "spherical")}
    return rd.random_tree(**{**joints, **MODELS[name]}, armature=True)


def state(model: rd.Model, rows: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    return {
        "q": model.random_configuration(rng, (rows,)),
        **{name: rng.uniform(-1, 1, (rows, model.nv)) for name in ("qd", "tau")},
        "f_ext": rng.uniform(-1, 1, (rows, model.n_bodies, 6)),
        "V0": rng.uniform(-1, 1, (rows, 6)),
        "dV0": rng.uniform(-1, 1, (rows, 6)),
        "inertia": model.inertia * rng.uniform(0.5, 2.0, (rows, 1, 1)),
    }


def require_close(found, right, tolerance: float) -> None:
    for name, one, other in zip(NAMES, found, right, strict=True):
        assert np.abs(one - other).max(initial=0) <= tolerance * np.abs(other).max(initial=1.0), name


@pytest.mark.parametrize("level", list(LEVELS))
@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.some(of=3, when="matrix")
def test_a_chain_that_is_taken_apart(name: str, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In memory that holds no numbers, on every level; a row has the bits of the state alone."""
    in_stages(monkeypatch)
    model = tree(name)
    try:
        engine = CpuEngine(model, np.dtype("float64"), target=host_target(level))
        kernels = [engine.kernel(with_identity_seeds(forward_hessian()), single=single) for single in (False, True)]
    except UnavailableError as error:
        pytest.skip(str(error))
    values = state(model, 5)
    right = rd.Dynamics(model, engine="reference").forward_dynamics_hessian(values["q"], values["qd"], values["tau"])
    rows = []
    for kernel in kernels:
        assert kernel.mode == "apart" and kernel.operations > 0 and kernel.row_ns > 0
        rows.append(list(run_in_dirt(kernel, values, "float64").values()))
        require_close(rows[-1], right, 1e-9)
    for one, other in zip(*rows, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("given", ["f_ext", "V0", "dV0", "inertia", "joint_forces"])
@pytest.mark.parametrize("name", ["floats", "mimics"])
@pytest.mark.some(of=4, rest="matrix")
def test_whatever_is_given_besides(name: str, given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    in_stages(monkeypatch)
    model, values = tree(name), state(tree(name), 3)
    forces = ("damping",) if given == "joint_forces" else ()
    besides = {} if forces else {given: values[given]}
    arrays = [values[each] for each in ("q", "qd", "tau")]
    found = rd.Dynamics(model, engine="cpu", joint_forces=forces).forward_dynamics_hessian(*arrays, **besides)
    right = rd.Dynamics(model, engine="reference", joint_forces=forces).forward_dynamics_hessian(*arrays, **besides)
    require_close(found, right, 1e-9)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.some(of=2, when="matrix")
def test_a_humanoid_is_taken_apart(dtype: str) -> None:
    """As it stands, with the contraction in halves where that is done; each slice is what its unit vector gives."""
    model = rd.load_urdf(own("humanoid"), base="floating")
    dyn = rd.Dynamics(model, engine="cpu", dtype=dtype)
    kernel = dyn.engine.kernel(with_identity_seeds(forward_hessian()), single=True)
    assert kernel.mode == "apart"
    q, qd, tau = (state(model, 2)[name].astype(dtype) for name in ("q", "qd", "tau"))
    found, one = dyn.forward_dynamics_hessian(q, qd, tau), dyn.forward_dynamics_hessian(q[1], qd[1], tau[1])
    for batch, single in zip(found, one, strict=True):
        np.testing.assert_array_equal(batch[1], single)
    for k in (0, 8, model.nv - 1):
        alone = dyn.forward_dynamics_hessian(q, qd, tau, vector=np.eye(model.nv, dtype=dtype)[k])
        require_close([each[:, k] for each in found], alone, 1e-10 if dtype == "float64" else 1e-5)


@pytest.mark.matrix
def test_what_the_cache_has_of_it(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setenv("ROBODYN_CACHE_DIR", str(tmp_path))
    in_stages(monkeypatch)
    engine = rd.Dynamics(tree("floats"), engine="cpu").engine
    engine.compiler.hurried = False
    request, cache = engine.request(with_identity_seeds(forward_hessian())), engine.compiler.cache
    assert not engine.compiler.in_cache(request, single=True)
    engine.compiler.kernel(request, single=True)
    assert engine.compiler.in_cache(request, single=True)
    entries = [entry for entry in cache.entries() if not entry.label.startswith("robodyn ")]
    assert len(entries) >= 3
    for entry in entries:
        kept = cache.get(entry.key)
        (cache.folder / f"{entry.key}.object").unlink()
        assert not engine.compiler.in_cache(request, single=True), entry
        cache.put(entry.key, kept, entry.label)


def test_which_stages_do_not_depend_on_the_vector() -> None:
    chain = forward_hessian()
    parts = parts_at_units(with_identity_seeds(chain))
    assert parts is not None and parts is parts_at_units(with_identity_seeds(chain))
    assert parts.once.results == ("dqdd_dq", "dqdd_dqd", "dqdd_dtau", "qdd") and "vector" not in parts.once.inputs
    assert (parts.inverse, parts.vector) == ("dqdd_dtau", "vector")
    assert parts.products is chain.stages[-1] and parts.contraction is chain.stages[-2]
    solves = [stage for stage in parts.once.stages if isinstance(stage, Solve)]
    assert [list(solve.outputs) for solve in solves] == [["qdd"], ["dqdd_dq", "dqdd_dqd", "dqdd_dtau"]]
    on_given = parts_at_units(on_inertia(with_identity_seeds(chain)))
    assert on_given is not None and "inertia" in on_given.once.inputs
    assert "inertia" in on_given.contraction.algorithm.inputs


def test_chains_of_another_kind_stay_whole() -> None:
    chain = forward_hessian()
    first, solve, gradient, solves, second, products = chain.stages
    without_inverse = Solve("H", {k: each for k, each in solves.outputs.items() if each.arrays})
    scaled = Solve("H", {"qdd": solve.outputs["qdd"], "multiplier": Solution(minus="vector")})
    twice = Stage(second.algorithm, {name: f"{name} again" for name in second.algorithm.outputs}, second.reads)
    of_vector = Products({**products.outputs, "q_tau": type(products.outputs["q_tau"])("multiplier")})
    for stages in (
        (first, solve, gradient, without_inverse, second, products),
        (first, scaled, gradient, solves, second, products),
        (first, solve, gradient, solves, second, twice, products),
        (first, solve, gradient, solves, second, of_vector),
        (first, solve, gradient, solves, second),
    ):
        results = tuple(stages[-1].outputs)
        assert parts_at_units(with_identity_seeds(replace(chain, stages=stages, results=results))) is None
    assert parts_at_units(with_identity_seeds(forward_gradient(), "tau")) is None
    assert parts_at_units(with_identity_seeds(second.algorithm)) is None
