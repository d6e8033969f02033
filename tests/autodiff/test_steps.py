"""Steps and rollouts in JAX and PyTorch: the states of Dynamics, its gradients, and those that differences show."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from conftest import relative
from driven import everything
from robots import own

import robodyn as rd
from robodyn.api.autodiff.coordinates import Coordinates

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

pytestmark = pytest.mark.extras

STEPS, DT = 7, 2e-3
TIMED = ("tau", "dV0", "q_des")


class InJax:
    """What tests ask of a library."""

    def __init__(self) -> None:
        self.jax = pytest.importorskip("jax", reason="the extra 'jax' is not installed")
        self.jax.config.update("jax_enable_x64", True)
        self.jax.config.update("jax_default_device", self.jax.devices("cpu")[0])
        from robodyn.jax import wrap

        self.wrap, self.array = wrap, self.jax.numpy.asarray

    def gradient(self, loss: Any, arrays: dict[str, Any]) -> dict[str, Any]:
        return self.jax.grad(loss)(arrays)

    first, number = gradient, float

    def rate(self, loss: Any, arrays: dict[str, Any], along: dict[str, Any]) -> float:
        return float(self.jax.jvp(loss, (arrays,), (along,))[1])


class InTorch:
    """The same of PyTorch."""

    def __init__(self) -> None:
        self.torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")
        from robodyn.torch import wrap

        self.wrap, self.array = wrap, self.torch.tensor

    def gradient(self, loss: Any, arrays: dict[str, Any]) -> dict[str, Any]:
        given = {name: array.detach().clone().requires_grad_() for name, array in arrays.items()}
        loss(given).backward()
        return {name: array.grad for name, array in given.items()}

    def number(self, tensor: Any) -> float:
        return float(tensor.detach())

    def first(self, loss: Any, arrays: dict[str, Any]) -> dict[str, Any]:
        """A gradient that can be differentiated again."""
        given = {
            name: array if array.requires_grad else array.clone().requires_grad_() for name, array in arrays.items()
        }
        found = self.torch.autograd.grad(loss(given), tuple(given.values()), create_graph=True)
        return dict(zip(given, found, strict=True))

    def rate(self, loss: Any, arrays: dict[str, Any], along: dict[str, Any]) -> float:
        names = tuple(arrays)
        found = self.torch.func.jvp(
            lambda *given: loss(dict(zip(names, given, strict=True))), tuple(arrays.values()), tuple(along.values())
        )
        return float(found[1])


@pytest.fixture(scope="module", params=[InJax, InTorch])
def library(request):
    return request.param()


@pytest.fixture(scope="module")
def joints() -> rd.Model:
    return rd.random_tree(3, seed=3, joints=("planar", "spherical", "revolute"), base="floating")


def case(model: rd.Model, shape: tuple[int, ...]) -> dict[str, Any]:
    """All that a rollout takes, some of it anew in each step."""
    rng = np.random.default_rng(2)
    print("case: seed 2")
    given = {"tau": rng.normal(size=(*shape, model.nv)), **everything(model, shape)}
    for name in TIMED:
        given[name] = np.stack([given[name]] * STEPS)
    return {"q0": model.random_configuration(rng, shape), "qd0": rng.normal(size=(*shape, model.nv)), **given}


@pytest.mark.parametrize("save_every", [1, 3, None])
@pytest.mark.parametrize("integrator", ["semi_implicit_euler", "implicit", "rk4"])
@pytest.mark.some(of=3, rest="matrix")
def test_states_and_gradients_are_those_of_dynamics(library, joints, integrator, save_every):
    model = joints if integrator != "rk4" else rd.load_urdf(own("arm6"))
    arrays, dyn = case(model, (2,)), rd.Dynamics(model)
    options = {"dt": DT, "steps": STEPS, "save_every": save_every, "integrator": integrator}
    wanted, functions = dyn.rollout(**arrays, **options), library.wrap(dyn)
    rng = np.random.default_rng(5)
    q_weight, qd_weight = rng.normal(size=(2, *wanted.qd.shape))
    there = {name: library.array(array) for name, array in arrays.items()}
    # Weights of motions as weights of coordinates.
    numbers = library.array(Coordinates(model).velocity_transposed(wanted.q, q_weight))
    qd_there = library.array(qd_weight)

    def loss(given: dict[str, Any]) -> Any:
        q, qd = functions.rollout(**given, **options)
        return (q * numbers).sum() + (qd * qd_there).sum()

    for got, each in zip(functions.rollout(**there, **options), (wanted.q, wanted.qd), strict=True):
        assert relative(np.asarray(got), each) < 1e-12
    found = library.gradient(loss, there)
    gradients = dyn.rollout_vjp(**arrays, **options, q_weight=q_weight, qd_weight=qd_weight, wrt=tuple(arrays))
    for name, each in gradients.items():
        got = np.asarray(found[name])
        if name in ("q0", "q_des"):
            got = Coordinates(model).rate_transposed(model.unit_coordinates(arrays[name]), got)
        if got.shape != each.shape:  # arrays that states share: their gradient is a sum
            each = each.sum(axis=0)
        assert relative(got, each) < 1e-9, name


def test_forward_and_reverse_agree_and_dt_is_an_array(library, joints):
    arrays = case(joints, ())
    functions = library.wrap(rd.Dynamics(joints))
    there = {name: library.array(array) for name, array in arrays.items()} | {"dt": library.array(np.array(DT))}
    rng = np.random.default_rng(6)
    along = {name: library.array(rng.normal(size=array.shape)) for name, array in arrays.items()}
    along["dt"] = library.array(np.array(0.3))

    def loss(given: dict[str, Any]) -> Any:
        q, qd = functions.rollout(**given, steps=STEPS, save_every=None)
        return (q[-1] * q[-1]).sum() + (qd[-1] * qd[-1]).sum()

    backwards = library.gradient(loss, there)
    wanted = sum(float((backwards[name] * along[name]).sum()) for name in there)
    assert abs(library.rate(loss, there, along) - wanted) < 1e-9 * abs(wanted)
    small, ends = 1e-6, []
    for sign in (small, -small):
        given = {**there, "dt": there["dt"] + sign}
        ends.append(float(loss(given)))
    assert abs((ends[0] - ends[1]) / (2 * small) - float(backwards["dt"])) < 1e-6 * abs(float(backwards["dt"]))


def test_a_step_and_its_second_derivative(library):
    model = rd.load_urdf(own("arm6"))
    dyn = rd.Dynamics(model, joint_forces=("damping", "friction"))
    functions, rng = library.wrap(dyn), np.random.default_rng(7)
    q, qd, tau = rng.normal(size=(3, 4, 6))
    there = {name: library.array(each) for name, each in (("q", q), ("qd", qd), ("tau", tau))}
    for got, wanted in zip(functions.step(**there), dyn.step(q, qd, tau), strict=True):
        assert relative(np.asarray(got), wanted) < 1e-13
    A, B = dyn.step_gradient(q, qd, tau)
    weight = rng.normal(size=(4, 6))

    def loss(given: dict[str, Any]) -> Any:
        return (functions.step(**given)[1] * library.array(weight)).sum()

    found = library.gradient(loss, there)
    back = (weight[:, None] @ np.concatenate([A[:, 6:], B[:, 6:]], axis=-1))[:, 0]
    for k, name in enumerate(("q", "qd", "tau")):
        assert relative(np.asarray(found[name]), back[:, 6 * k : 6 * k + 6]) < 1e-10

    def once(given: dict[str, Any]) -> Any:
        return (library.first(loss, given)["q"] ** 2).sum()

    twice, direction = library.gradient(once, there)["q"], library.array(rng.normal(size=(4, 6)))
    ends = [library.number(once({**there, "q": there["q"] + sign * direction})) for sign in (1e-6, -1e-6)]
    wanted = (ends[0] - ends[1]) / 2e-6
    assert abs(float((twice * direction).sum()) - wanted) < 1e-5 * abs(wanted)


@pytest.mark.parametrize("integrator", ["semi_implicit_euler", "mujoco"])
def test_steps_with_contacts(library, integrator):
    """Fingers that squeeze each other; time constants of the contact are bounded by dt."""
    model = rd.load_urdf(own("gripper"))
    right, left = (rd.Sphere(f"{side}_finger", at=(0.0, 0.0, 0.03), radius=0.02) for side in ("right", "left"))
    contacts = [rd.Contact(right, left, friction=0.5, solref=(0.004, 1.0))]
    model = model.with_contacts(contacts, cone="elliptic")
    dyn, rng = rd.Dynamics(model, joint_forces=("damping",)), np.random.default_rng(8)
    q, qd = model.neutral() + rng.normal(0.0, 1e-3, (2, model.nq)), rng.normal(0.0, 0.2, (2, model.nv))
    assert (dyn.contact_distances(q) < 0.0).all() and not model.quaternion_starts.size
    tau, f_ext = rng.normal(0.0, 0.1, (STEPS, 2, model.nv)), rng.normal(size=(model.n_bodies, 6))
    arrays = {"q0": q, "qd0": qd, "tau": tau, "f_ext": f_ext, "gravity": np.array([1.0, 0.0, -9.0])}
    options = {"dt": 4e-3, "steps": STEPS, "integrator": integrator}
    wanted, functions = dyn.rollout(**arrays, **options), library.wrap(dyn)
    q_weight, qd_weight = rng.normal(size=(2, *wanted.q.shape))
    there = {name: library.array(array) for name, array in arrays.items()}
    there["dt"] = library.array(np.array(options.pop("dt")))

    def loss(given: dict[str, Any]) -> Any:
        q, qd = functions.rollout(**given, **options)
        return (q * library.array(q_weight)).sum() + (qd * library.array(qd_weight)).sum()

    for got, each in zip(functions.rollout(**there, **options), (wanted.q, wanted.qd), strict=True):
        assert relative(np.asarray(got), each) < 1e-10
    found = library.gradient(loss, there)
    gradients = dyn.rollout_vjp(**arrays, dt=4e-3, **options, q_weight=q_weight, qd_weight=qd_weight, wrt=tuple(arrays))
    for name, each in gradients.items():
        assert relative(np.asarray(found[name]), each.sum(axis=0) if name in ("f_ext", "gravity") else each) < 1e-8, (
            name
        )
    ends = [library.number(loss({**there, "dt": there["dt"] + h})) for h in (1e-7, -1e-7)]
    assert (ends[0] - ends[1]) / 2e-7 == pytest.approx(float(found["dt"]), rel=1e-5)

    def once(given: dict[str, Any]) -> Any:
        return (library.first(loss, given)["qd0"] ** 2).sum()

    twice, direction = library.gradient(once, there)["qd0"], library.array(rng.normal(size=qd.shape))
    ends = [library.number(once({**there, "qd0": there["qd0"] + h * direction})) for h in (1e-6, -1e-6)]
    assert (ends[0] - ends[1]) / 2e-6 == pytest.approx(float((twice * direction).sum()), rel=1e-5)

    one = {"q": library.array(q[0]), "qd": library.array(qd[0]), "dt": there["dt"]}  # an array without axes
    by_dt = library.gradient(lambda given: functions.step(**given, integrator=integrator)[1].sum(), one)["dt"]
    ends = [dyn.step(q[0], qd[0], dt=4e-3 + h, integrator=integrator)[1].sum() for h in (1e-7, -1e-7)]
    assert float(by_dt) == pytest.approx((ends[0] - ends[1]) / 2e-7, rel=1e-5)
    smooth = library.wrap(rd.Dynamics(model.with_contacts(contacts, dry_friction=False), joint_forces=()))
    rubbed = smooth.step(library.array(q), library.array(qd), friction=library.array(np.eye(2, model.nv)))
    assert np.isnan(np.asarray(rubbed[1])).all()  # no row has friction


def test_robots_too_large_for_one_program_are_followed(library):
    model = rd.random_tree(150, seed=1, joints=("spherical",))
    dyn = rd.Dynamics(model)
    rng = np.random.default_rng(0)
    q, qd = model.random_configuration(rng, (2,)), 0.1 * rng.normal(size=(2, model.nv))
    wanted = dyn.step(q, qd, dt=1e-4, integrator="rk4")
    found = library.wrap(dyn).step(library.array(q), library.array(qd), dt=1e-4, integrator="rk4")
    assert all(relative(np.asarray(got), each) < 1e-10 for got, each in zip(found, wanted, strict=True))


def test_bad_arguments_are_named(library):
    functions, q = library.wrap(rd.Dynamics(rd.load_urdf(own("arm6")))), library.array(np.zeros(6))
    for options, text in (
        ({"integrator": "rk5"}, "integrator: got 'rk5'"),
        ({"dt": -1.0}, "dt"),
        ({"kp": q}, "q_des: got None"),
        ({"limits": "speed"}, "limits"),
        ({"tau": library.array(np.zeros((3, 6)))}, r"tau: got shape \(3, 6\) for 5 steps"),
        ({"armature": library.array(np.zeros((3, 6)))}, "armature: got"),
        ({"tau": library.array(np.zeros(5))}, "tau: got shape"),
    ):
        if options == {"dt": -1.0} and isinstance(library, InJax):
            assert np.isnan(functions.rollout(q, q, steps=5, **options)[0][1:]).all()
            continue  # compiled by JAX, which knows no values then
        with pytest.raises(rd.ArgumentError, match=text):
            functions.rollout(q, q, steps=5, **options)
    for options in ({"steps": 0}, {"save_every": 0}, {"steps": 2.5}):
        with pytest.raises(rd.ArgumentError, match=next(iter(options))):
            functions.rollout(q, q, **{"steps": 5, **options})


@pytest.mark.parametrize("name", ["kp", "kd", "damping", "friction", "armature", "dt"])
def test_what_dynamics_refuses_is_no_number(name, library):
    """In its row alone, in values and in gradients by everything."""
    dyn = rd.Dynamics(rd.load_urdf(own("arm6")))
    functions, rng = library.wrap(dyn), np.random.default_rng(0)
    q, qd, tau = rng.normal(size=(3, 3, 6))
    given = {"tau": tau, "q_des": 0.5 * q, "kp": np.full((3, 6), 2.0), "kd": np.full((3, 6), 0.1)}
    given[name] = np.full(3, 1e-3) if name == "dt" else np.full((3, 6), 0.1)
    good = {each: library.array(array) for each, array in given.items()}
    given[name] = given[name].copy()
    given[name][1 if name == "dt" else (1, 2)] *= -1.0
    bad = {each: library.array(array) for each, array in given.items()}

    def ask(**arrays):
        return functions.rollout(library.array(q), library.array(qd), steps=3, **arrays)

    for got, wanted in zip(ask(**bad), ask(**good), strict=True):
        got, wanted = np.asarray(got), np.asarray(wanted)
        assert np.isnan(got[1:, 1]).any(-1).all()
        assert np.array_equal(got[:, [0, 2]], wanted[:, [0, 2]]) and np.isfinite(wanted).all()
    slopes = library.gradient(lambda arrays: (ask(**arrays)[1][-1] ** 2).sum(), bad)
    clean = library.gradient(lambda arrays: (ask(**arrays)[1][-1] ** 2).sum(), good)
    for each, slope in slopes.items():
        slope, wanted = np.asarray(slope), np.asarray(clean[each])
        assert np.isnan(slope[1]).any() and np.allclose(slope[[0, 2]], wanted[[0, 2]], rtol=1e-12, atol=1e-14), each
    with pytest.raises(rd.ArgumentError, match=f"^{name}: got -"):
        dyn.rollout(q, qd, **{**given, "dt": -1e-3 if name == "dt" else 1e-3}, steps=3)


def test_pickles_and_single_precision(library):
    import pickle

    model = rd.load_urdf(own("arm6"))
    functions = pickle.loads(pickle.dumps(library.wrap(rd.Dynamics(model, dtype="float32"))))
    q = library.array(np.full(6, 0.1, np.float32))
    found = functions.rollout(q, q, steps=5, limits=["effort"])
    wanted = rd.Dynamics(model).rollout(np.full(6, 0.1), np.full(6, 0.1), steps=5, limits=["effort"])
    assert relative(np.asarray(found[1]), wanted.qd) < 1e-4 and "float32" in str(found[0].dtype)


def test_memory_of_reverse_mode_is_that_of_two_square_roots():
    """Tensors that PyTorch keeps for the way back, of 400 steps."""
    torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")
    from robodyn.torch import wrap

    functions = wrap(rd.Dynamics(rd.load_urdf(own("arm6"))))
    tau = torch.zeros(6, dtype=torch.float64, requires_grad=True)
    q, kept = torch.zeros(6, dtype=torch.float64), []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.data_ptr()) or x, lambda x: x):
        _, qd = functions.rollout(q, q, tau, 1e-3, 400, save_every=None)
    assert len(set(kept)) < 2 * 20 * 3
    qd[-1].sum().backward()
    assert torch.isfinite(tau.grad).all()


def test_quaternions_of_any_length_and_values_that_are_no_numbers(library):
    """The same with and without gradients."""
    model = rd.random_tree(2, seed=0, joints=("spherical",), base="floating")
    dyn = rd.Dynamics(model)
    q, v = model.random_configuration(0), np.random.default_rng(0).normal(size=model.nv)
    for start in model.quaternion_starts:
        q[start : start + 4] *= 3.0
    functions = library.wrap(dyn)
    found, wanted = (
        functions.rollout(library.array(q), library.array(v), None, 1e-2, 3),
        dyn.rollout(q, v, None, 1e-2, 3),
    )
    assert relative(np.asarray(found[0]), wanted.q) < 1e-13
    assert relative(np.asarray(functions.step(library.array(q), library.array(v))[0]), dyn.step(q, v)[0]) < 1e-13
    if isinstance(library, InTorch):
        with pytest.raises(rd.NumericalError):
            functions.step(library.array(np.nan * q), library.array(v))
