"""Machine code of the CPU engine against the reference engine: every query, both kinds of code, every vector level."""

from __future__ import annotations

import numpy as np
import pytest
from algorithm_table import ALGORITHMS
from cpu_queries import answers, beyond, difference, regular, states_of
from numpy.lib.stride_tricks import as_strided
from robots import own

import robodyn as rd
from robodyn.api.motion.step_spec import chosen_step, gradient_of
from robodyn.compile.llvm import target as targets
from robodyn.compile.llvm.target import host_target
from robodyn.compile.tracing.unrolled import output_shape
from robodyn.engines.cpu.engine import CpuEngine
from robodyn.engines.reference import ReferenceEngine

CODES = ["unrolled", "rolled"]
DTYPES = ["float64", "float32"]
RESIDUAL = {"float64": 1e-12, "float32": 1e-3}
EVERY_KIND = ("universal", "spherical", "helical", "planar", "prismatic", "continuous")

ROBOTS = {
    "ball joints": lambda: rd.load_urdf(own("ball_joint_arm")),
    "planar": lambda: rd.load_urdf(own("planar_rover")),
    "helical": lambda: rd.load_urdf(own("screw_press")),
    "massless links": lambda: rd.load_urdf(own("massless_chain")),
    "mimic": lambda: rd.load_urdf(own("gripper")),
    "floating": lambda: rd.load_urdf(own("double_pendulum"), base="floating"),
    "every kind": lambda: rd.random_tree(6, seed=5, joints=EVERY_KIND, armature=True),
    "every kind, some mimic": lambda: rd.random_tree(7, seed=11, joints=EVERY_KIND, armature=True, mimic=0.6),
}
LARGER = {
    "hand": lambda: rd.load_urdf(own("hand")),
    "quadruped": lambda: rd.load_urdf(own("quadruped"), base="floating"),
    "humanoid": lambda: rd.load_urdf(own("humanoid"), base="floating"),
}


# Single precision differs in the width of vectors alone, and rolled code takes long to compile: every run asks it on
# random trees, which share one code (tests/queries/test_random_trees.py).
CASES = [
    *((robot, "float64", "unrolled") for robot in ROBOTS),
    ("every kind, some mimic", "float32", "unrolled"),
]
REST = [
    *((robot, "float64", "rolled") for robot in ("massless links", "floating", "every kind")),
    ("floating", "float32", "unrolled"),
    ("every kind, some mimic", "float32", "rolled"),
]


@pytest.mark.parametrize(
    ("robot", "dtype", "code"), [*CASES, *(pytest.param(*case, marks=pytest.mark.matrix) for case in REST)]
)
@pytest.mark.some(of=10, rest="matrix")
def test_every_query(robot: str, dtype: str, code: str) -> None:
    """Nine states: a whole vector and one more in double precision, part of one in single."""
    model = ROBOTS[robot]()
    dyn = rd.Dynamics(model, engine="cpu", dtype=dtype, code=code)
    states, invert = states_of(model, (9,), seed=1, dtype=dtype), regular(model)
    wanted = answers(rd.Dynamics(model, engine="reference"), states, invert=invert)
    assert beyond(answers(dyn, states, invert=invert), wanted, dtype) == {}
    if invert:
        qdd = dyn.forward_dynamics(states.q, states.qd, states.tau)
        residual = rd.Dynamics(model, engine="reference").inverse_dynamics(states.q, states.qd, qdd)
        assert difference(residual, states.tau) < RESIDUAL[dtype]


@pytest.mark.parametrize("branching", [1.0, pytest.param(2.0, marks=pytest.mark.matrix)])
def test_large_matrices_are_the_same_in_any_batch(branching: float) -> None:
    """To the bit: few states, and all where most entries are zero, are taken one at a time, others in vectors."""
    model = rd.auto_tree(520, branching=branching, skew=0.3)
    states = states_of(model, (9,), seed=3)
    dyn = rd.Dynamics(model, engine="cpu")
    H, C = dyn.mass_matrix(states.q), dyn.coriolis_matrix(states.q, states.qd)
    reference = rd.Dynamics(model, engine="reference")
    assert difference(H[:1], reference.mass_matrix(states.q[:1])) < 1e-12
    for batch in (1, 2, 3, 8):
        for again in range(2):  # the second call may be a quick one
            assert np.array_equal(dyn.mass_matrix(states.q[:batch]), H[:batch]), (batch, again)
        assert np.array_equal(dyn.coriolis_matrix(states.q[:batch], states.qd[:batch]), C[:batch]), batch
    assert np.array_equal(dyn.mass_matrix(states.q[4]), H[4])
    out = np.full((2, 520, 520), np.nan)
    assert dyn.mass_matrix(states.q[:2], out=out) is out and np.array_equal(out, H[:2])


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("robot", LARGER)
@pytest.mark.some(of=6, rest="matrix")
def test_larger_robots(robot: str, code: str) -> None:
    model = LARGER[robot]()
    dyn, reference = rd.Dynamics(model, engine="cpu", code=code), rd.Dynamics(model, engine="reference")
    s = states_of(model, (5,), seed=2)
    for rows in (slice(None), 3):  # batches and single states: rolled code differs
        part = s[rows]
        tau = dyn.inverse_dynamics(part.q, part.qd, part.qdd)
        assert difference(tau, reference.inverse_dynamics(part.q, part.qd, part.qdd)) < 1e-12
        assert difference(dyn.mass_matrix(part.q), reference.mass_matrix(part.q)) < 1e-12
        assert difference(dyn.bias_force(part.q, part.qd), reference.bias_force(part.q, part.qd)) < 1e-12
        qdd = dyn.forward_dynamics(part.q, part.qd, tau)
        assert difference(reference.inverse_dynamics(part.q, part.qd, qdd), tau) < 1e-12
        assert difference(dyn.mass_matrix_inverse(part.q), reference.mass_matrix_inverse(part.q)) < 1e-10


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_batches_of_every_size(dtype: str, code: str) -> None:
    """Row by row the same to the bit, into arrays that hold NaN, with nothing written beside them."""
    model = ROBOTS["floating"]()
    dyn = rd.Dynamics(model, engine="cpu", dtype=dtype, code=code)
    s = states_of(model, (70,), seed=3, dtype=dtype)
    calls = {
        (model.nv,): lambda p, **o: dyn.inverse_dynamics(p.q, p.qd, p.qdd, f_ext=p.f_ext, V0=p.V0, dV0=p.dV0, **o),
        (model.nv, model.nv): lambda p, **o: dyn.mass_matrix(p.q, **o),
        (len(model.link_names), 4, 4): lambda p, **o: dyn.forward_kinematics(p.q, **o),
        (): lambda p, **o: dyn.kinetic_energy(p.q, p.qd, **o),
    }
    for shape, call in calls.items():
        whole = call(s)
        for rows in (0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 65):
            wide = np.full((rows + 2, *shape), np.nan, dtype)
            out = wide[1:-1]
            assert call(s[:rows], out=out) is out
            assert (out == whole[:rows]).all(), (shape, rows)
            assert np.isnan(wide[[0, -1]]).all()
        for leading in ((), (1,), (3, 1, 2), (2, 0)):
            count = int(np.prod(leading, dtype=int))
            rows = np.arange(count).reshape(leading)
            got = call(s[rows])
            assert got.shape == (*leading, *shape) and (got == whole[rows]).all(), (shape, leading)


def levels() -> list[str]:
    """Vector levels that this processor has."""
    best = host_target().level
    family = [best] if best == "neon" else ["sse2", "avx2", "avx512"]
    return family[: family.index(best) + 1]


ON_EVERY_LEVEL = ("rnea_q_qd_qdd_f_ext", "aba_q_qd_tau", "crba", "inverse_mass_matrix", "forward_kinematics")


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("level", [*targets.LEVELS])
@pytest.mark.some(of=8, rest="matrix")
def test_every_vector_level(level: str, dtype: str, code: str) -> None:
    if level not in levels():
        pytest.skip(f"this processor does not have {level}")
    model = ROBOTS["every kind"]()
    engine = CpuEngine(model, np.dtype(dtype), threads=1, mode=code, target=host_target(level))
    reference = ReferenceEngine(model, np.dtype(np.float64))
    s = states_of(model, (2 * engine.target.width(np.dtype(dtype)) + 1,), seed=4, dtype=dtype)
    inputs = {"q": model.normalize(s.q).astype(dtype), "qd": s.qd, "qdd": s.qdd, "tau": s.tau, "f_ext": s.f_ext}
    for name in ON_EVERY_LEVEL:
        algorithm = ALGORITHMS[name]
        given = {each: inputs[each] for each in algorithm.inputs}
        shapes = {key: (len(s.q), *output_shape(model, output)) for key, output in algorithm.outputs.items()}
        got = {key: np.full(shape, np.nan, dtype) for key, shape in shapes.items()}
        wanted = {key: np.empty(shape) for key, shape in shapes.items()}
        engine.run(algorithm, given, got)
        reference.run(algorithm, {key: np.float64(value) for key, value in given.items()}, wanted)
        assert beyond(got, wanted, dtype) == {} or name in ("aba_q_qd_tau", "inverse_mass_matrix"), name
        for key in got:
            assert difference(got[key], wanted[key]) < (1e-10 if dtype == "float64" else 2e-2), name


@pytest.mark.parametrize("code", ["unrolled", pytest.param("rolled", marks=pytest.mark.matrix)])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.some(of=16, rest="matrix")
def test_values_that_are_not_finite_stay_in_their_rows(bad: float, code: str) -> None:
    model = ROBOTS["every kind"]()
    dyn = rd.Dynamics(model, engine="cpu", code=code)
    s, row = states_of(model, (21,), seed=5), 12
    clean, others = answers(dyn, s), np.arange(21) != row
    for name in ("q", "qd", "qdd", "tau", "f_ext", "V0", "dV0"):
        spoilt = s[:]
        array = getattr(s, name).copy()
        array[row, ..., -1] = bad
        object.__setattr__(spoilt, name, array)
        for key, got in answers(dyn, spoilt).items():
            assert (got[others] == clean[key][others]).all(), (name, key)


@pytest.mark.parametrize("branching", [1.0, 2.0])
def test_rolled_code_of_two_thousand_bodies(branching: float) -> None:
    model = rd.auto_tree(2000, branching=branching, skew=0.3)
    s, reference = states_of(model, (), seed=8), rd.Dynamics(model, engine="reference")
    dyn = rd.Dynamics(model, engine="cpu")
    assert dyn.program("inverse_dynamics").mode == "rolled"
    tau = dyn.inverse_dynamics(s.q, s.qd, s.qdd)
    assert difference(tau, reference.inverse_dynamics(s.q, s.qd, s.qdd)) < 1e-12
    qdd = dyn.forward_dynamics(s.q, s.qd, tau)
    assert difference(reference.inverse_dynamics(s.q, s.qd, qdd), tau) < 1e-10


@pytest.mark.parametrize("branching", [1.0, 2.0])
def test_rolled_code_of_a_hundred_thousand_bodies(branching: float) -> None:
    """Accelerations that forces cause need these forces again."""
    model = rd.auto_tree(100_000, branching=branching, skew=0.3)
    dyn = rd.Dynamics(model, engine="cpu")
    s = states_of(model, (), seed=9)
    tau = dyn.inverse_dynamics(s.q, 1e-2 * s.qd, s.qdd)
    assert np.isfinite(tau).all()
    qdd = dyn.forward_dynamics(s.q, 1e-2 * s.qd, tau)
    assert difference(dyn.inverse_dynamics(s.q, 1e-2 * s.qd, qdd), tau) < 1e-9
    pair = s[np.newaxis]
    batch = np.repeat(pair.q, 3, axis=0), np.repeat(1e-2 * pair.qd, 3, axis=0), np.repeat(pair.qdd, 3, axis=0)
    assert difference(dyn.inverse_dynamics(*batch)[2], tau) < 1e-13


def test_loops_over_no_rows_touch_nothing():
    """Not even the memory beside arrays that are empty."""
    dyn = rd.Dynamics(rd.load_urdf(own("arm7")), joint_forces=())
    step, steps = chosen_step(dyn, ("tau",), "semi_implicit_euler", ()), 5
    beside = np.full(1 << 16, 7.0)

    def empty(*shape):
        return as_strided(beside[1 << 15 :], (steps, 0, *shape), (0, 64, *(8 for _ in shape)))

    states = {name: empty(7) for name in ("q", "qd", "tau", "q_next", "qd_next")} | {"dt": empty(1)}
    gradients = states | {"A": empty(14, 14), "B": empty(14, 7)}
    for task in (step, gradient_of(step, dyn.model, ("tau",))):
        table = dyn.engine.task_loop(task, gradients, 0)
        table.run(dyn.engine.launch, steps)
    assert (beside == 7.0).all()
    still = dyn.rollout(np.zeros((0, 7)), np.zeros(7), np.zeros(7), dt=0.01, steps=3)
    assert still.q.shape == (4, 0, 7)
