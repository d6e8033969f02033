"""Second derivatives of inverse and forward dynamics: against differentiation by complex steps of another algorithm,
differences of first derivatives (ours and Pinocchio's), identities, and each engine against the others."""

from __future__ import annotations

import warnings
from functools import lru_cache

import numpy as np
import pytest
from conftest import random_states, relative
from robots import OWN, own

import robodyn as rd
from robodyn.algorithms.crba import CRBA
from robodyn.algorithms.idsva import idsva
from robodyn.algorithms.idsva_hessian import idsva_hessian
from robodyn.algorithms.rnea import rnea
from robodyn.algorithms.rnea_gradient import rnea_gradient
from robodyn.algorithms.tasks import with_identity_seeds
from robodyn.api.queries import second_order
from robodyn.api.queries.precision import worst_loss
from robodyn.compile.llvm.target import LEVELS
from robodyn.compile.tracing.unrolled import trace
from robodyn.description import JOINT_TYPES, Inertial, Joint, Link, Pose, RobotDescription
from robodyn.engines.cpu import route
from robodyn.engines.reference import ReferenceEngine
from robodyn.io.builders.random_tree import SHAPES

ONE_DOF = ("revolute", "prismatic", "helical")
# Central differences of functions with entries of order one to a hundred: truncation h^2 and rounding 1e-16 / h are
# equal at h = eps^(1/3); both are then near 1e-10 of the largest third derivative, and solving with H adds its
# condition number, up to 1e3 here.
STEP = float(np.finfo(float).eps) ** (1 / 3)
INVERSE_DIFFERENCES, FORWARD_DIFFERENCES = 1e-7, 1e-6
# A complex step has no truncation: what is left is rounding, and the condition number again.
INVERSE_EXACT, FORWARD_EXACT = 1e-12, 1e-9
COMPLEX_STEP = 1e-30
ENGINES = [{"engine": "reference"}, {"engine": "cpu", "code": "unrolled"}, {"engine": "cpu", "code": "rolled"}]


def tree(seed: int, n: int = 6, **options) -> rd.Model:
    """A random tree of any joints and shape, with either base, every third one with mimicking joints."""
    drawn = {
        "joints": JOINT_TYPES,
        "shape": list(SHAPES)[seed % len(SHAPES)],
        "mimic": 0.4 * (seed % 3 == 0),
        "base": "floating" if seed % 2 else "fixed",
    }
    size = int(np.random.default_rng(seed).integers(1, n + 1))
    return rd.random_tree(size, seed=seed, armature=True, **{**drawn, **options})


def state(model: rd.Model, seed: int = 0):
    """q, qd, qdd or tau, a vector to contract with, and external forces with a moving base."""
    q, qd, x = random_states(model, seed=seed)
    rng = np.random.default_rng(seed)
    vector, f_ext = rng.standard_normal(model.nv), rng.standard_normal((model.n_bodies, 6))
    return q, qd, x, vector, {"f_ext": f_ext, "V0": rng.standard_normal(6), "dV0": rng.standard_normal(6)}


def queries(dyn: rd.Dynamics):
    """Both, where the mass matrix has an inverse."""
    return (dyn.inverse_dynamics_hessian, *(() if dyn.singularity() else (dyn.forward_dynamics_hessian,)))


def differences(gradient, model: rd.Model, q, qd, x):
    """The four tensors from central differences of first derivatives on the manifold."""

    def central(high, low):
        return [np.moveaxis((a - b) / (2 * STEP), 0, -1) for a, b in zip(high, low, strict=True)]

    steps = STEP * np.eye(model.nv)
    rows = np.broadcast_to(q, (model.nv, model.nq))
    qds, xs = np.broadcast_to(qd, steps.shape), np.broadcast_to(x, steps.shape)
    by_q = central(gradient(model.integrate(q, steps), qds, xs), gradient(model.integrate(q, -steps), qds, xs))
    by_qd = central(gradient(rows, qd + steps, xs), gradient(rows, qd - steps, xs))
    by_x = central(gradient(rows, qds, x + steps), gradient(rows, qds, x - steps))
    return by_q[0], by_qd[0], by_qd[1], by_x[0]


def agree(got, wanted, tolerance: float) -> None:
    """Relative to the largest entry, or to 1 where that is less: some derivatives are zero but for rounding."""
    for name, a, b in zip(("qq", "q_qd", "qd_qd", "q_x"), got, wanted, strict=True):
        assert np.abs(a - b).max(initial=0.0) <= tolerance * np.abs(b).max(initial=1.0), name


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.some(of=6, rest="matrix")
def test_central_differences_of_gradients(seed):
    model = tree(seed)
    q, qd, x, _, options = state(model, seed)
    options["inertia"] = model.inertia * 1.1
    dyn = rd.Dynamics(model, engine="reference", joint_forces=("damping", "friction"))
    gradients = (dyn.inverse_dynamics_gradient, dyn.forward_dynamics_gradient)
    tolerances = (INVERSE_DIFFERENCES, FORWARD_DIFFERENCES)
    for hessian, gradient, tolerance in zip(queries(dyn), gradients, tolerances, strict=False):
        wanted = differences(lambda *s, of=gradient: of(*s, **options), model, q, qd, x)
        agree(hessian(q, qd, x, **options), wanted, tolerance)


@pytest.mark.parametrize("name", ["arm7", "quadruped", "satellite", "ball_joint_arm"])
def test_central_differences_of_gradients_by_pinocchio(name):
    pytest.importorskip("pinocchio", reason="Pinocchio has no wheel for this platform")
    from oracles.cases import urdf_case

    case = urdf_case(own(name), "floating" if name == "quadruped" else "fixed")
    model = case.model
    q, qd, x, _, _ = state(model)
    dyn, oracle = case.dyn, case.oracle
    agree(
        dyn.inverse_dynamics_hessian(q, qd, x),
        differences(oracle.inverse_dynamics_gradient, model, q, qd, x),
        INVERSE_DIFFERENCES,
    )
    agree(
        dyn.forward_dynamics_hessian(q, qd, x),
        differences(oracle.forward_dynamics_gradient, model, q, qd, x),
        FORWARD_DIFFERENCES,
    )


class ComplexSteps:
    """Gradients by columns in body frames, run on complex numbers: derivatives without differences.

    The algorithm shares the steps' language with what is tested, but neither frame nor formulation.
    """

    def __init__(self, model: rd.Model, options) -> None:
        self.model, self.engine = model, ReferenceEngine(model, np.dtype(complex))
        self.options = {name: np.broadcast_to(value, (model.nv, *value.shape)) for name, value in options.items()}

    def moved(self, q):
        """(nv, nq): q along every direction of the tangent space."""
        model, h = self.model, 1j * COMPLEX_STEP
        out = np.empty((model.nv, model.nq), complex)
        for kind, q_index, v_index in model.free_joints:
            for coordinates, velocities in zip(q_index, v_index, strict=True):
                step = tuple(h * (np.arange(model.nv) == v) for v in velocities)
                here = tuple(np.full(model.nv, value, complex) for value in q[coordinates])
                out[:, coordinates] = np.stack(kind.integrate(here, step), axis=-1)
        return out

    def run(self, algorithm, states, **shapes):
        """Outputs of an algorithm at complex states."""
        nv = self.model.nv
        given = {name: array.astype(complex) for name, array in {**states, **self.options}.items()}
        outputs = {name: np.full((nv, *shape), np.nan, complex) for name, shape in shapes.items()}
        self.engine.run(algorithm, given, outputs)
        return [outputs[name] for name in shapes]

    def inverse(self, q, qd, qdd):
        """dtau/dq and dtau/dqd."""
        nv = self.model.nv
        algorithm = rnea_gradient(("q", "qd", "qdd", "f_ext"))
        return self.run(algorithm, {"q": q, "qd": qd, "qdd": qdd}, tau_q=(nv, nv), tau_qd=(nv, nv))

    def forward(self, q, qd, tau):
        """dqdd/dq, dqdd/dqd and H^-1."""
        nv = self.model.nv
        (bias,) = self.run(rnea(("q", "qd", "f_ext")), {"q": q, "qd": qd}, tau=(nv,))
        (H,) = self.run(CRBA, {"q": q}, H=(nv, nv))
        by_q, by_qd = self.inverse(q, qd, np.linalg.solve(H, (tau - bias)[..., None])[..., 0])
        return -np.linalg.solve(H, by_q), -np.linalg.solve(H, by_qd), np.linalg.inv(H)

    def hessians(self, gradient, q, qd, x):
        """The four tensors."""
        steps = 1j * COMPLEX_STEP * np.eye(self.model.nv)
        rows, qds, xs = (np.broadcast_to(a, (self.model.nv, a.size)).astype(complex) for a in (q, qd, x))
        by_q, by_qd = gradient(self.moved(q), qds, xs), gradient(rows, qds + steps, xs)
        by_x = gradient(rows, qds, xs + steps)
        found = (by_q[0], by_qd[0], by_qd[1], by_x[0])
        return [np.moveaxis(each.imag / COMPLEX_STEP, 0, -1) for each in found]


@pytest.mark.parametrize("seed", range(50))
@pytest.mark.some(of=10, rest="matrix")
def test_complex_steps_through_another_algorithm(seed):
    model = tree(100 + seed)
    q, qd, x, _, options = state(model, seed)
    dyn = rd.Dynamics(model, engine="reference")
    steps = ComplexSteps(model, options)
    tolerances = (INVERSE_EXACT, FORWARD_EXACT)
    for hessian, gradient, tolerance in zip(queries(dyn), (steps.inverse, steps.forward), tolerances, strict=False):
        agree(hessian(q, qd, x, **options), steps.hessians(gradient, q, qd, x), tolerance)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.some(of=3, rest="matrix")
def test_symmetries(seed):
    """Mixed derivatives commute; those with two velocities always, those with two positions where coordinates do."""
    dyn = rd.Dynamics(tree(seed, joints=ONE_DOF, base="fixed"), engine="reference")
    q, qd, x, _, options = state(dyn.model, seed)
    for hessian in queries(dyn):
        qq = hessian(q, qd, x, **options)[0]
        assert relative(qq, np.swapaxes(qq, -1, -2)) < 1e-12
    dyn = rd.Dynamics(tree(seed, base="floating"), engine="reference")
    q, qd, x, _, options = state(dyn.model, seed)
    for hessian in queries(dyn):
        qq, _, qd_qd, _ = hessian(q, qd, x, **options)
        assert relative(qd_qd, np.swapaxes(qd_qd, -1, -2)) < 1e-12
        assert relative(qq, np.swapaxes(qq, -1, -2)) > 1e-3  # the tangent space of a floating base


@pytest.mark.parametrize("seed", range(6))
def test_identities(seed):
    """d2tau/dqdqdd is the derivative of the mass matrix, and qd' C qd is quadratic: (d2tau/dqd2) qd = 2 dtau/dqd."""
    model = tree(seed)
    dyn = rd.Dynamics(model, engine="reference")
    q, qd, qdd, _, _ = state(model, seed)
    _, q_qd, qd_qd, q_qdd = dyn.inverse_dynamics_hessian(q, qd, qdd)
    steps = STEP * np.eye(model.nv)
    H_q = (dyn.mass_matrix(model.integrate(q, steps)) - dyn.mass_matrix(model.integrate(q, -steps))) / (2 * STEP)
    assert relative(q_qdd, np.moveaxis(H_q, 0, 1)) < INVERSE_DIFFERENCES
    by_q, by_qd = dyn.inverse_dynamics_gradient(q, qd, qdd)
    assert relative(qd_qd @ qd, by_qd) < 1e-12
    at_rest = dyn.inverse_dynamics_gradient(q, 0 * qd, 0 * qd)[0]
    assert relative(0.5 * q_qd @ qd + q_qdd @ qdd + at_rest, by_q) < 1e-12


SMALL = {
    "fixed": {"n": 4, "seed": 5, "joints": ("revolute", "planar", "helical")},
    "following": {"n": 5, "seed": 1, "joints": ("revolute", "prismatic", "spherical"), "mimic": 0.5},
    "floating": {"n": 1, "seed": 4, "joints": ONE_DOF, "base": "floating"},
}


@lru_cache
def small(name: str) -> rd.Model:
    """Trees that compile soon."""
    made = rd.random_tree(**SMALL[name], armature=True)
    assert made.has_mimic == (name == "following")
    return made


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.some(of=3, rest="matrix")
def test_a_contraction_is_the_sum_over_the_tensor(name, make_dynamics, tolerance):
    model = small(name)
    dyn, exact = make_dynamics(model, check=False), rd.Dynamics(model, engine="reference")
    q, qd, x, vector, options = state(model)
    for query, loss in (("inverse_dynamics_hessian", 1.0), ("forward_dynamics_hessian", 100.0)):
        tensors = getattr(dyn, query)(q, qd, x, **options)
        right = getattr(exact, query)(q, qd, x, **options)
        for k, contracted in enumerate(getattr(dyn, query)(q, qd, x, vector=vector, **options)):
            assert tensors[k].shape == (model.nv,) * 3
            assert relative(tensors[k], right[k]) < tolerance * loss
            assert relative(contracted, np.einsum("i,ikm->km", vector, right[k])) < tolerance * loss


@pytest.mark.parametrize("name", ["forward_dynamics_hessian", "inverse_dynamics_hessian"])
@pytest.mark.matrix
def test_kinds_of_code_agree(name):
    """On a robot small enough that its tensors are one program, in a batch that is no whole vector."""
    model = small("fixed")
    q, qd, x = random_states(model, (11,))
    vector, f_ext = np.ones((11, model.nv)) * [[-0.5], *[[1.0]] * 10], np.ones((11, model.n_bodies, 6))
    dyns = [rd.Dynamics(model, **options) for options in ENGINES]
    for given in ({"f_ext": f_ext}, {"vector": vector, "f_ext": f_ext}, {}, {"vector": vector}):
        wanted, *others = (getattr(dyn, name)(q, qd, x, **given) for dyn in dyns)
        for got in others:
            agree(got, wanted, 1e-11)


def test_tensors_of_small_robots_are_one_program_and_of_large_ones_many_runs():
    task, models = (
        with_identity_seeds(idsva_hessian()),
        [small("fixed"), rd.load_urdf(own("quadruped"), base="floating")],
    )
    one, many = (rd.Dynamics(model, engine="cpu").engine.generated(task) for model in models)
    contracted = [trace(model, idsva_hessian()).operations for model in models]
    assert one.mode == "unrolled" and one.operations < 0.5 * models[0].nv * contracted[0]
    repeats = models[1].nv * contracted[1]
    assert many.mode in ("repeated", "halved")
    assert many.operations == repeats if many.mode == "repeated" else 0.3 * repeats < many.operations < 0.6 * repeats


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-13), ("float32", 1e-5)])
def test_tensors_for_one_state_take_a_vector_of_unit_vectors_where_that_is_less(dtype, tolerance, monkeypatch):
    """An arm of seven joints, where seven numbers are a vector of the processor; the same numbers by one program."""
    model = rd.load_urdf(own("arm7"))
    q, qd, x, _, given = state(model)
    options = {"engine": "cpu", "dtype": dtype, "check": False}
    dyn, whole = rd.Dynamics(model, **options), rd.Dynamics(model, **options)
    got = dyn.inverse_dynamics_hessian(q, qd, x, **given)
    (kernel,) = (each for each in dyn.engine._kernels.values() if each.alone)
    fills = model.nv * np.dtype(dtype).itemsize <= LEVELS[dyn.engine.target.level]
    assert (kernel.mode in ("repeated", "halved")) == fills
    monkeypatch.setattr(route, "_units_fill_a_vector", lambda request: False)
    agree(got, whole.inverse_dynamics_hessian(q, qd, x, **given), tolerance)
    assert all(each.mode == "unrolled" for each in whole.engine._kernels.values())


@pytest.mark.parametrize(("code", "dtype"), [("auto", "float64"), ("rolled", "float32")])
@pytest.mark.matrix
def test_large_robots_take_stages(code, dtype):
    """Second derivatives of forward dynamics whose stages, products among them, are kernels of their own."""
    model = rd.load_urdf(own("humanoid"), base="floating")
    dyn, exact = rd.Dynamics(model, dtype=dtype, code=code), rd.Dynamics(model, engine="reference")
    q, qd, x, vector, options = state(model)
    assert dyn.program("forward_dynamics_hessian").mode == "chained"
    got, wanted = (each.forward_dynamics_hessian(q, qd, x, vector=vector, **options) for each in (dyn, exact))
    agree(got, wanted, {"float64": 1e-11, "float32": 1e-4}[dtype])


def test_code_is_made_once():
    """Engines know tasks by identity, so queries must not make new ones."""
    dyn = rd.Dynamics(small("fixed"), engine="cpu")
    q, qd, x = random_states(dyn.model, (2,))
    for hessian in queries(dyn):
        for vector in (None, x):
            hessian(q, qd, x, vector=vector)
            known = len(dyn.engine._kernels)
            hessian(q, qd, x, vector=vector)
            assert len(dyn.engine._kernels) == known > 0


def test_a_contraction_costs_less_than_two_gradients():
    for name in ("arm7", "humanoid"):
        model = rd.load_urdf(own(name))
        assert trace(model, idsva_hessian()).operations < 2 * trace(model, idsva()).operations


def test_the_vector_broadcasts_and_is_checked():
    model = small("fixed")
    assert model.nv == 6
    dyn = rd.Dynamics(model)
    q, qd, x = random_states(model, (4, 1))
    vectors = np.eye(6)[:3]
    for hessian in queries(dyn):
        tensors, rows = hessian(q, qd, x), hessian(q, qd, x, vector=vectors)
        for tensor, contracted in zip(tensors, rows, strict=True):
            assert tensor.shape == (4, 1, 6, 6, 6) and contracted.shape == (4, 3, 6, 6)
            assert relative(contracted, tensor[:, 0, :3]) < 1e-11
        with pytest.raises(rd.ArgumentError, match=r"^vector: got shape \(5,\); wanted a real array"):
            hessian(q, qd, x, vector=np.ones(5))
        with pytest.raises(rd.NumericalError, match=r"^vector: NaN or infinite at index 2"):
            hessian(q[0, 0], qd[0, 0], x[0, 0], vector=[0.0, 0.0, np.nan, 0.0, 0.0, 0.0])
        with pytest.raises(rd.ArgumentError, match=r"^out: wanted a tuple of 4 arrays: d2"):
            hessian(q, qd, x, out=np.empty((4, 1, 6, 6, 6)))


def test_a_robot_that_cannot_move_and_a_batch_of_nothing(make_dynamics):
    still = make_dynamics(rd.random_tree(3, seed=0, joints=["fixed"]))
    nothing = np.empty((5, 0))
    moving = make_dynamics(small("fixed"))
    none = np.empty((0, 6))
    for a, b in zip(queries(still), queries(moving), strict=True):
        assert [each.shape for each in a(nothing, nothing, nothing)] == [(5, 0, 0, 0)] * 4
        assert [each.shape for each in a(nothing, nothing, nothing, vector=nothing)] == [(5, 0, 0)] * 4
        assert [each.shape for each in b(none, none, none)] == [(0, 6, 6, 6)] * 4
        assert [each.shape for each in b(none, none, none, vector=np.ones(6))] == [(0, 6, 6)] * 4


def test_singular_robots():
    dyn = rd.Dynamics(rd.load_urdf(own("massless_tip")))
    q, qd, x = random_states(dyn.model)
    assert all(np.isfinite(each).all() for each in dyn.inverse_dynamics_hessian(q, qd, x))
    with pytest.raises(rd.SingularError, match="body 'pointer' has no inertia"):
        dyn.forward_dynamics_hessian(q, qd, x)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_inertias_that_make_the_mass_matrix_singular_spoil_their_rows(dtype):
    model = rd.load_urdf(own("double_pendulum"))
    dyn = rd.Dynamics(model, dtype=dtype)
    q, qd, x = random_states(model, (3,))
    inertia = np.repeat(model.inertia[None], 3, axis=0)
    inertia[1, -1] = 0.0
    for vector in (None, x):
        for each in dyn.forward_dynamics_hessian(q, qd, x, vector=vector, inertia=inertia):
            assert np.isnan(each[1]).all() and np.isfinite(each[[0, 2]]).all()


def test_damping_counts_through_accelerations_alone():
    model = rd.random_tree(5, seed=3, armature=True)
    assert model.damping.any() and model.friction.any()
    plain, damped = (
        rd.Dynamics(model, engine="reference", joint_forces=forces) for forces in ((), ("damping", "friction"))
    )
    q, qd, x = random_states(model)
    agree(damped.inverse_dynamics_hessian(q, qd, x), plain.inverse_dynamics_hessian(q, qd, x), 1e-15)
    force = model.damping * qd + model.friction * np.sign(qd)
    got, wanted = damped.forward_dynamics_hessian(q, qd, x), plain.forward_dynamics_hessian(q, qd, x - force)
    assert relative(got[0], wanted[0]) < 1e-11 and relative(got[3], wanted[3]) < 1e-11
    by_rate = np.einsum("ikm,m->ikm", wanted[3], model.damping)
    assert relative(got[1], wanted[1] - by_rate) < 1e-11


def test_the_program_of_a_contraction_can_be_looked_at():
    code = rd.Dynamics(small("fixed"), engine="cpu").program("inverse_dynamics_hessian")
    assert code.mode == "unrolled" and code.operations == trace(small("fixed"), idsva_hessian()).operations


# Single precision.


@lru_cache
def crane() -> rd.Model:
    """A boom of 200 m and a balanced flap of 5 g at its end, whose inertia is lost beside 5 g (200 m)^2."""
    boom = Inertial(2000.0, Pose((100.0, 0.0, 0.0)), (100.0, 0.0, 0.0, 6e6, 0.0, 6e6))
    flap = Inertial(5e-3, Pose(), (1e-7, 0.0, 0.0, 1e-6, 0.0, 1e-6))
    return rd.build_model(
        RobotDescription(
            "crane",
            (Link("mast"), Link("boom", boom), Link("flap", flap)),
            (
                Joint("slew", "revolute", "mast", "boom", axis=(0.0, 0.0, 1.0)),
                Joint("hinge", "revolute", "boom", "flap", Pose((200.0, 0.3, 1.0)), (0.0, 0.6, 0.8)),
            ),
        )
    )


def test_the_gpu_engine_says_when_single_precision_has_lost_the_digits(monkeypatch):
    """Here the reference engine stands in for it."""
    monkeypatch.setattr(second_order, "_ROUNDING", ())
    model = crane()
    dyn = rd.Dynamics(model, engine="reference", dtype="float32")
    q, qd, x = random_states(model, (2, 3))
    tip = np.array([0.0, 1.0])
    for name in ("inverse_dynamics_hessian", "forward_dynamics_hessian"):
        said = rf"^{name}: in float32 d2\w+ is off by .* of its largest entry at row \(\d, \d\), .* at 4 of 6 rows"
        with pytest.warns(RuntimeWarning, match=said) as caught:
            got = getattr(dyn, name)(q, qd, x, vector=tip)
        assert caught[0].filename == __file__
        right = getattr(rd.Dynamics(model, engine="reference"), name)(q, qd, x, vector=tip)
        assert max(relative(a, b) for a, b in zip(got, right, strict=True)) > 1e-2
        with pytest.warns(RuntimeWarning, match="of its largest entry, more than 1e-02, .* at 1 of 1 rows"):
            getattr(dyn, name)(q[0, 0], qd[0, 0], x[0, 0], vector=tip)
        for quiet in (rd.Dynamics(model, engine="reference", dtype="float32", check=False), rd.Dynamics(model)):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                getattr(quiet, name)(q, qd, x, vector=tip)


@pytest.mark.parametrize("name", [path.stem for path in OWN])
@pytest.mark.parametrize("base", ["fixed", "floating"])
@pytest.mark.some(of=10, rest="matrix")
def test_single_precision_is_silent_on_ordinary_robots(name, base, monkeypatch):
    """Moving and at rest, contracted and not; what is zero by structure is no lost digit. (Warnings are errors.)"""
    monkeypatch.setattr(second_order, "_ROUNDING", ())
    model = rd.load_urdf(own(name), base=base)
    dyn = rd.Dynamics(model, engine="reference", dtype="float32")
    q, qd, x = random_states(model, (6,))
    vector = np.random.default_rng(0).standard_normal((6, model.nv))
    for hessian in queries(dyn):
        hessian(q, qd, x, vector=vector)
        hessian(model.neutral(), 0 * qd[0], 0 * x[0], vector=vector[0])
        if model.nv < 10:
            hessian(q, qd, x)


@pytest.mark.parametrize("engine", ["reference", "cpu"])
@pytest.mark.parametrize("leading", [(), (3,), (2, 2), (17,)], ids=str)
@pytest.mark.some(of=3, rest="matrix")
def test_single_precision_is_computed_in_double(engine, leading, monkeypatch):
    """Also where it has no digits left; what comes out is rounded once, and some rows are done after the others."""
    monkeypatch.setattr(second_order, "_ROUNDED_ROWS", 5)
    model = crane()
    dyn, right = rd.Dynamics(model, engine=engine, dtype="float32"), rd.Dynamics(model, engine=engine)
    q, qd, x = (each.astype(np.float32) for each in random_states(model, leading))
    tip, f_ext = np.array([0.0, 1.0], np.float32), np.ones((2, 6), np.float32)
    for name in ("inverse_dynamics_hessian", "forward_dynamics_hessian"):
        for given in ({}, {"vector": tip}, {"vector": tip, "f_ext": f_ext}):
            wanted = getattr(right, name)(
                *(each.astype(np.float64) for each in (q, qd, x)),
                **{key: array.astype(np.float64) for key, array in given.items()},
            )
            wanted = [each.astype(np.float32) for each in wanted]
            out = tuple(np.full_like(each, np.nan) for each in wanted)
            for options in ({}, {}, {}, {"out": out}, {"out": out}):  # the method, and the built-in function
                for got, exact in zip(getattr(dyn, name)(q, qd, x, **given, **options), wanted, strict=True):
                    assert got.dtype == np.float32 and np.array_equal(got, exact)


def test_single_precision_is_checked_as_double_is():
    model = crane()
    dyn = rd.Dynamics(model, engine="cpu", dtype="float32")
    q, qd, x = (each.astype(np.float32) for each in random_states(model))
    huge = np.full(2, 3e38, np.float32)
    for hessian in queries(dyn):
        for _ in range(3):
            hessian(q, qd, x)
            with pytest.raises(rd.NumericalError, match=r"^result d2\w+_dqdq: "):
                hessian(q, huge, x)
            with pytest.raises(rd.NumericalError, match=r"^qd"):
                hessian(q, np.float32([0, np.nan]), x)


def test_damping_counts_in_single_precision():
    model = rd.load_urdf(own("arm6"))
    q, qd, x = (each.astype(np.float32) for each in random_states(model))
    options = {"engine": "cpu", "joint_forces": ("damping",)}
    dyn, right = rd.Dynamics(model, dtype="float32", **options), rd.Dynamics(model, **options)
    wanted = right.forward_dynamics_hessian(*(each.astype(np.float64) for each in (q, qd, x)))
    for _ in range(3):
        agree(dyn.forward_dynamics_hessian(q, qd, x), wanted, 1e-5)


@pytest.mark.parametrize("rounding", [(), ("cpu",)], ids=["judged", "rounded"])
def test_rows_that_are_not_finite_are_not_judged(rounding, monkeypatch):
    monkeypatch.setattr(second_order, "_ROUNDING", rounding)
    model = small("fixed")
    dyn = rd.Dynamics(model, engine="cpu", dtype="float32")
    for batch in (3, 6):
        q, qd, x = random_states(model, (batch,))
        qd[0], x[2] = np.nan, np.inf
        for hessian in queries(dyn):
            for vector in (None, np.ones(6)):
                assert all(np.isfinite(each[1]).all() for each in hessian(q, qd, x, vector=vector))


def test_losses_are_relative_and_what_counts_as_zero_has_none():
    right = np.array([[1.0, 100.0], [1.0, 2.0]])
    sizes = {"a": np.array([100.0, 100.0])}
    assert worst_loss({"a": right * [1.9, 1.0]}, {"a": right}, sizes) == ("a", pytest.approx(0.45), 1)
    assert worst_loss({"a": right + 0.009}, {"a": right}, sizes) is None
    lost = worst_loss({"a": right + np.nan}, {"a": right}, sizes)
    assert lost == ("a", np.inf, 0) and str(lost) == "a is not finite"
    assert worst_loss({"a": right * 1e30}, {"a": right * np.inf}, sizes) is None
    assert worst_loss({"a": right}, {"a": right * 1e-12}, sizes) is None
