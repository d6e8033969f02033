"""Contacts by kernels of the GPU engine, run on the host: they answer as the CPU engine does."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from gpu_host import ORDERS, missing
from gpu_host.arrays import DeviceArray, Moving, _plain, there

import robodyn as rd
from robodyn.engines.gpu import repeated_kernels, unrolled_kernels

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "it runs")

TOLERANCE = {"float64": 1e-9, "float32": 1e-4}
KERNELS = pytest.mark.kernels
INERTIA = '<inertial><mass value="{}"/><inertia ixx=".02" iyy=".02" izz=".01" ixy="0" ixz="0" iyz="0"/></inertial>'
LINKS = "".join(
    f'<link name="{name}">{INERTIA.format(mass)}</link>' for name, mass in (("trunk", 3), ("thigh", 1), ("shank", 0.5))
)
JOINTS = """<joint name="height" type="prismatic"><parent link="rail"/><child link="trunk"/><axis xyz="0 0 1"/>
<limit lower="-1" upper="2" effort="9" velocity="9"/></joint>
<joint name="hip" type="revolute"><parent link="trunk"/><child link="thigh"/><axis xyz="0 1 0"/>
<dynamics damping=".3" friction=".2"/><limit lower="-0.4" upper="1" effort="9" velocity="9"/></joint>
<joint name="knee" type="revolute"><parent link="thigh"/><child link="shank"/><origin xyz="0 0 -.3"/>
<axis xyz="0 1 0"/><dynamics damping=".2"/><limit lower="-2" upper="0" effort="9" velocity="9"/></joint>"""


def hopper(cone: str = "pyramidal", **options) -> rd.Model:
    """A trunk on one leg, whose toes and heel touch the ground: with limits and dry friction."""
    model = rd.load_urdf(f'<robot name="hopper"><link name="rail"/>{LINKS}{JOINTS}</robot>')
    foot = rd.Capsule("shank", (-0.05, 0.0, -0.3), (0.1, 0.0, -0.3), 0.02)
    return model.with_contacts([rd.Contact(foot, rd.Plane(), friction=0.8)], cone=cone, **options)


def states(model: rd.Model, n: int, seed: int = 1) -> tuple[np.ndarray, ...]:
    """States of which most touch the ground or a limit."""
    print(f"states: seed {seed}")
    rng = np.random.default_rng(seed)
    q = np.array([0.56, 0.3, -0.6]) + [0.03, 0.3, 0.3] * rng.uniform(-1.0, 1.0, (n, 3))
    return q, rng.normal(size=(n, 3)), rng.normal(size=(n, 3))


def on(engine: str, model: rd.Model, **options) -> rd.Dynamics:
    return rd.Dynamics(model, engine=engine, joint_forces=("damping",), **options)


def agree(got, wanted, dtype: str) -> None:
    """In single precision rounding decides in a few states whether something touches."""
    for one, other in zip(got, wanted, strict=True):
        own = _plain(one)
        assert own.dtype == dtype and own.shape == other.shape
        error = np.abs(own - other).reshape(len(other), -1).max(1) / np.abs(other).max()
        assert (error.max() if dtype == "float64" else np.quantile(error, 0.97)) <= TOLERANCE[dtype]


@pytest.mark.parametrize(
    ("dtype", "cone", "impratio", "batch"),
    [
        ("float64", "pyramidal", 1.0, 300),
        pytest.param("float32", "pyramidal", 1.0, 4096, marks=KERNELS),
        pytest.param("float64", "elliptic", 50.0, 4096, marks=KERNELS),
        pytest.param("float32", "elliptic", 1.0, 300, marks=KERNELS),
        pytest.param("float64", "pyramidal", 5.0, 300, marks=KERNELS),
    ],
)
def test_kernels_answer_as_the_cpu_engine_does(host, dtype, cone, impratio, batch):
    """On NumPy arrays and on arrays of the device, for any batch: two kernels, and nothing waits between them."""
    model = hopper(cone, impratio=impratio)
    given = states(model, batch)
    wanted = on("cpu", model).contact_forward_dynamics(*given)
    assert 0.2 < (wanted[1][..., 0] > 0.0).mean() < 0.8
    dyn = on("gpu", model, dtype=dtype)
    for n in (batch, 20, 1):
        some = [each[:n] for each in given]
        launches = len(host.launches)
        answer = dyn.contact_forward_dynamics(*some)
        assert [rows for _, rows in host.launches[launches:]] == [n, n]
        agree(answer, [each[:n] for each in wanted], dtype)
        waits, DeviceArray.looks = host.waits, 0
        moved = Moving(dyn).contact_forward_dynamics(*some)
        assert host.waits == waits and DeviceArray.looks == 0
        for one, other in zip(moved, answer, strict=True):
            assert type(one) is DeviceArray and np.array_equal(one.held, other)


@KERNELS
@pytest.mark.parametrize("integrator", ["semi_implicit_euler", "mujoco"])
def test_steps_and_rollouts_on_a_gpu_are_those_of_the_cpu_engine(host, integrator):
    model = hopper(limits=False)
    q, qd, tau = states(model, 20)
    cpu, dyn = (on(engine, model) for engine in ("cpu", "gpu"))
    (wanted, got) = (
        each.rollout(q, qd, tau, dt=0.002, steps=30, integrator=integrator, f_ext=f_ext)
        for f_ext in [np.random.default_rng(2).normal(size=(30, 20, 3, 6))]
        for each in (cpu, dyn)
    )
    assert got.converged.shape == (20,) and got.converged.all() and wanted.converged.all()
    agree((got.q[-1], got.qd[-1]), (wanted.q[-1], wanted.qd[-1]), "float64")
    after = cpu.step(q, qd, tau, dt=0.002, integrator=integrator)
    agree(dyn.step(q, qd, tau, dt=0.002, integrator=integrator), after, "float64")
    DeviceArray.looks = 0
    agree(dyn.step(*there(q, qd, tau), dt=0.002, integrator=integrator), after, "float64")
    assert DeviceArray.looks == 0
    more = {"inertia": 1.1 * model.inertia, "gravity": np.array([0.5, 0.0, -5.0]), "dV0": np.full(6, 0.2)}
    after = cpu.step(q, qd, tau, dt=0.002, integrator=integrator, **more)
    agree(Moving(dyn).step(q, qd, tau, dt=0.002, integrator=integrator, **more), after, "float64")
    asked = [each.rollout(q[0], qd[0], dt=0.002, steps=5, policy=lambda t, q, qd: -q) for each in (cpu, dyn)]
    assert np.abs(asked[0].q - asked[1].q).max() < 1e-9


@KERNELS
@pytest.mark.parametrize("integrator", ["semi_implicit_euler", "mujoco"])
def test_floating_bases_with_equalities_roll_on_a_gpu(host, integrator):
    """A ball on the ground, held by a soft string of a point."""
    ball = f'<robot name="ball"><link name="ball">{INERTIA.format(0.3)}</link></robot>'
    held = [rd.Point("ball", at=(0.1, 0.0, 0.0), to_at=(0.1, 0.0, 0.1))]
    model = rd.Dynamics(rd.load_urdf(ball, base="floating"), constraints=held).model
    model = model.with_contacts([rd.Contact(rd.Sphere("ball", radius=0.1), rd.Plane())])
    rng = np.random.default_rng(4)
    q = np.tile(model.neutral(), (33, 1))
    q[:, 2] = 0.1 + rng.uniform(-0.003, 0.003, 33)
    qd, tau = rng.normal(size=(2, 33, 6))
    wanted, got = (
        on(engine, model).rollout(q, qd, tau, dt=0.002, steps=20, integrator=integrator) for engine in ("cpu", "gpu")
    )
    agree((got.q, got.qd), (wanted.q, wanted.qd), "float64")
    q[:, 3:7] *= rng.uniform(0.5, 2.0, (33, 1))
    after = on("cpu", model).step(q, qd, tau, dt=0.002, integrator=integrator)
    DeviceArray.looks = 0
    agree(on("gpu", model).step(*there(q, qd, tau), dt=0.002, integrator=integrator), after, "float64")
    assert DeviceArray.looks == 0


@KERNELS
def test_states_that_do_not_converge_are_named_on_a_gpu(host):
    """NaN stays in its row, and is no state that does not converge."""
    model = hopper("elliptic", iterations=1)
    q, qd, tau = states(model, 64)
    some = slice(8, 13)
    q[5] = np.nan
    found = []
    for engine in ("cpu", "gpu"):
        with pytest.warns(rd.ConvergenceWarning) as caught:
            found.append(on(engine, model, check=False).contact_forward_dynamics(q, qd, tau))
        found.append(str(caught[0].message))
    assert found[1] == found[3] and " 5," not in found[1]
    assert np.isnan(found[2][0][5]).all() and np.isfinite(np.delete(found[2][0], 5, 0)).all()
    dyn = on("gpu", model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dyn.contact_forward_dynamics(*there(q, qd, tau))  # it would wait
    with pytest.warns(rd.ConvergenceWarning, match=r"^contact_forward_dynamics: .* in 1 of 5 rows: 3"):
        on("gpu", model, check=True).contact_forward_dynamics(*there(q[some], qd[some], tau[some]))
    with pytest.warns(rd.ConvergenceWarning, match=r"^rollout: .*in 1 of 5 rows: 3"):  # rollouts wait, anyway
        rolled = dyn.rollout(*there(q[some], qd[some], tau[some]), dt=0.002, steps=1)
    assert type(rolled.converged) is np.ndarray and not rolled.converged.all()


@KERNELS
def test_the_error_stops_iterations_state_by_state(host, monkeypatch):
    """The second kernel improves the states that are left, and no other bit."""
    whole, few = (hopper("elliptic", iterations=n) for n in (None, 1))
    given = states(whole, 500)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rd.ConvergenceWarning)
        short = on("gpu", few).contact_forward_dynamics(*given)[0]
    full = on("gpu", whole).contact_forward_dynamics(*given)[0]
    for order in ORDERS[1:]:
        host.order = order
        assert np.array_equal(on("gpu", whole).contact_forward_dynamics(*given)[0], full)
    monkeypatch.setattr(repeated_kernels, "PART_OPERATIONS", 500)  # in several functions
    assert np.abs(on("gpu", whole).contact_forward_dynamics(*given)[0] - full).max() < 1e-12 * np.abs(full).max()
    assert host.kernels[-1].source.text.count("repeated_part") > 8
    left = (short != full).any(1)
    assert 0.05 < left.mean() < 0.6
    wanted = on("cpu", whole).contact_forward_dynamics(*given)[0]
    size = np.abs(wanted).max()
    assert np.abs(full - wanted).max() < 1e-9 * size < np.abs(short - wanted).max()


@pytest.mark.parametrize("cone", ["pyramidal", pytest.param("elliptic", marks=KERNELS)])
def test_parameters_of_each_state_act_on_a_gpu(host, cone):
    """Friction, poses of the ground, numbers of joints and gravity, by all slots and by the deepest ones."""
    rng = np.random.default_rng(5)
    q, qd, tau = states(hopper(), 40)
    turns = rng.uniform(-0.2, 0.2, 40)
    T = np.tile(np.eye(4), (40, 1, 1))
    T[:, 0, 0] = T[:, 2, 2] = np.cos(turns)
    T[:, 0, 2], T[:, 2, 0] = np.sin(turns), -np.sin(turns)
    T[:, 2, 3] = rng.uniform(-0.02, 0.02, 40)
    of_contacts = {"contact_friction": rng.uniform(0.0, 1.5, (40, 1)), "ground_pose": T}
    of_joints = {
        "armature": rng.uniform(0.0, 0.1, (40, 3)),
        "damping": rng.uniform(0.0, 0.5, (40, 3)),
        "friction": rng.uniform(0.0, 0.3, (40, 3)) * [0.0, 1.0, 0.0],
        "gravity": np.array([0.0, 0.0, -9.81]) + rng.normal(size=(40, 3)),
    }
    for model in (hopper(cone), hopper(cone, max_contacts=2)):
        cpu, gpu = (on(engine, model) for engine in ("cpu", "gpu"))
        wanted = cpu.contact_forward_dynamics(q, qd, tau, **of_contacts, **of_joints)
        plain = cpu.contact_forward_dynamics(q, qd, tau, **of_joints)
        assert np.abs(plain[1] - wanted[1]).max() > 0.1 * np.abs(wanted[1]).max()
        agree(gpu.contact_forward_dynamics(q, qd, tau, **of_contacts, **of_joints), wanted, "float64")
        DeviceArray.looks = 0
        agree(Moving(gpu).contact_forward_dynamics(q, qd, tau, **of_contacts, **of_joints), wanted, "float64")
        after = cpu.step(q, qd, tau, dt=0.002, integrator="mujoco", **of_contacts)
        agree(Moving(gpu).step(q, qd, tau, dt=0.002, integrator="mujoco", **of_contacts), after, "float64")
        assert DeviceArray.looks == 0
        for query in ("contact_distances", "contact_frames"):
            wanted = getattr(cpu, query)(q, ground_pose=T)
            agree([getattr(Moving(gpu), query)(q, ground_pose=T)], [wanted], "float64")
    for name, wrong in (("contact_friction", -of_contacts["contact_friction"]), ("ground_pose", 2.0 * T)):
        with pytest.raises(rd.ArgumentError, match=f"^{name}: got "):
            Moving(on("gpu", hopper(), check=True)).contact_forward_dynamics(q, qd, tau, **{name: wrong})


@KERNELS
def test_derivatives_through_contacts_on_a_gpu(host):
    model = hopper(limits=False)
    q, qd, tau = states(model, 20)
    cpu, gpu = (on(engine, model) for engine in ("cpu", "gpu"))
    wanted = cpu.contact_forward_dynamics_gradient(q, qd, tau)
    agree(gpu.contact_forward_dynamics_gradient(q, qd, tau), wanted, "float64")
    DeviceArray.looks = 0
    agree(Moving(gpu).contact_forward_dynamics_gradient(q, qd, tau), wanted, "float64")
    assert DeviceArray.looks == 0
    for integrator in ("semi_implicit_euler", "mujoco"):
        A, B = cpu.step_gradient(q, qd, tau, dt=0.002, integrator=integrator)
        agree(gpu.step_gradient(q, qd, tau, dt=0.002, integrator=integrator), (A, B), "float64")
        agree(Moving(gpu).step_gradient(q, qd, tau, dt=0.002, integrator=integrator), (A, B), "float64")
    weights = np.random.default_rng(6).normal(size=(2, 20, 3))
    found = [
        each.rollout_vjp(q, qd, tau, dt=0.002, steps=3, q_weight=weights[0], qd_weight=weights[1])
        for each in (cpu, gpu, Moving(gpu))
    ]
    for other in found[1:]:
        agree(other.values(), found[0].values(), "float64")


def test_what_gpus_cannot_do_with_contacts_is_refused_by_name(host, monkeypatch):
    model, (q, qd, tau) = hopper(), states(hopper(), 2)
    rolled = on("gpu", model, gpu=rd.engines.gpu.GpuOptions(kernel="thread"))
    with pytest.raises(rd.UnavailableError, match=r"GpuOptions\(kernel='thread'\)"):
        rolled.contact_forward_dynamics(q, qd, tau)
    with monkeypatch.context() as patch:
        patch.setattr(unrolled_kernels, "MOST_OPERATIONS", 100)
        with pytest.raises(rd.UnavailableError, match=r"'hopper' is too large .*; with max_contacts of with_contacts"):
            on("gpu", model).contact_forward_dynamics(q, qd, tau)
    crowd = hopper(max_contacts=1)
    with pytest.raises(rd.ArgumentError, match="with max_contacts, whose deepest slots are found by sorting"):
        on("gpu", crowd).capture("contact_forward_dynamics", *there(q, qd, tau))
    with pytest.raises(rd.UnavailableError, match="engine 'scan' does not know contacts"):
        on("scan", model).contact_forward_dynamics(q, qd, tau)


@KERNELS
@pytest.mark.parametrize(("dtype", "cone"), [("float64", "pyramidal"), ("float32", "elliptic")])
def test_the_deepest_slots_act_on_a_gpu(host, dtype, cone):
    model = hopper()
    rows = [rd.Contact(rd.Sphere("shank", (x, 0.0, -0.3), 0.02), rd.Plane()) for x in (-0.05, 0.0, 0.05, 0.1)]
    rows.append(
        rd.Contact(rd.Box("trunk", size=(0.2, 0.2, 0.1)), rd.Plane(offset=0.5), solimp=(0.8, 0.9, 0.01, 0.4, 3))
    )
    model = model.with_contacts(rows, cone=cone, max_contacts=3)
    given = states(model, 40)
    with pytest.warns(rd.ConvergenceWarning, match="or more than max_contacts=3 slots acted") as caught:
        wanted = on("cpu", model).contact_forward_dynamics(*given)
    dyn = on("gpu", model, dtype=dtype)
    with pytest.warns(rd.ConvergenceWarning) as again:
        answer = dyn.contact_forward_dynamics(*given)
    assert str(again[0].message) == str(caught[0].message)
    agree(answer, wanted, dtype)
    DeviceArray.looks = 0
    for one, other in zip(Moving(dyn).contact_forward_dynamics(*given), answer, strict=True):
        assert np.array_equal(one.held, other)
    assert DeviceArray.looks == 0
    few = [each[:3] for each in given]
    got, right = (each.rollout(*few, dt=0.002, steps=2) for each in (dyn, on("cpu", model)))
    agree((got.q, got.qd), (right.q, right.qd), dtype)


def test_explanations_and_recorded_calls_of_contacts(host):
    model = hopper()
    dyn, given = on("gpu", model), states(model, 20)
    assert "repeats further blocks" in str(dyn.explain("contact_forward_dynamics", 20))
    q, qd, tau = there(*given)
    again = dyn.capture("contact_forward_dynamics", q, qd, tau)
    q[...] = q[::-1].copy()
    qdd, f = again()
    q_back = given[0][::-1]
    agree((qdd, f), on("cpu", model).contact_forward_dynamics(q_back, *given[1:]), "float64")
