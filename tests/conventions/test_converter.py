"""Ways to other libraries' states: each against the library or its formulas, and all of them there and back."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest
from conftest import relative
from robots import own

import robodyn as rd
from robodyn.conventions.presets import CONVENTIONS
from robodyn.core.joints import angle
from robodyn.engines.cpu.native.layout import layout_is_known
from robodyn.io.conventions.converter import _FAST, Converter

SMALL = 1e-6


def robots(name: str) -> rd.Model:
    if name == "quadruped":
        return rd.load_urdf(own("quadruped"), base="floating")
    if name == "joints":
        return rd.random_tree(7, seed=5, joints=("planar", "spherical", "revolute", "helical"), base="floating")
    if name == "turning":  # angles that some libraries store as cosine and sine
        return rd.random_tree(5, seed=2, joints=("continuous", "planar", "prismatic"), base="floating")
    return rd.random_tree(8, seed=4, joints=("revolute", "prismatic"), mimic=0.3, base="floating")


def state(model: rd.Model, shape: tuple[int, ...] = (), seed: int = 0) -> tuple[np.ndarray, ...]:
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    return model.random_configuration(rng, shape), *rng.normal(size=(3, *shape, model.nv))


@pytest.mark.parametrize("library", CONVENTIONS)
@pytest.mark.parametrize("robot", ["quadruped", "joints", "mimic"])
@pytest.mark.parametrize("shape", [(), (4,), (2, 3)])
@pytest.mark.some(of=3, rest="matrix")
def test_there_and_back(library, robot, shape):
    model = robots(robot)
    q, v, a, tau = state(model, shape)
    way = rd.converter(model, library)
    assert relative(model.difference(q, way.q_from(way.q_to(q))), np.zeros(v.shape)) < 1e-9
    assert relative(way.v_from(q, way.v_to(q, v)), v) < 1e-12
    assert relative(way.a_from(q, v, way.a_to(q, v, a)), a) < 1e-12
    assert relative(way.tau_from(q, way.tau_to(q, tau)), tau) < 1e-12
    # Power is the same in both.
    power = (way.v_to(q, v) * way.tau_to(q, tau)).sum(-1)
    assert relative(power, (v * tau).sum(-1)) < 1e-12
    dyn = rd.Dynamics(model)
    H, J = dyn.mass_matrix(q), dyn.jacobian(q, 2)
    assert relative(way.mass_matrix_from(q, way.mass_matrix_to(q, H)), H) < 1e-12
    assert relative(way.jacobian_from(q, way.jacobian_to(q, J)), J) < 1e-12
    theirs = way.v_to(q, v)
    energy = 0.5 * (theirs[..., None, :] @ way.mass_matrix_to(q, H) @ theirs[..., None])[..., 0, 0]
    assert relative(energy, dyn.kinetic_energy(q, v)) < 1e-12
    assert relative((way.jacobian_to(q, J) @ theirs[..., None])[..., 0], (J @ v[..., None])[..., 0]) < 1e-12
    G = dyn.inverse_dynamics_gradient(q, v, a)[0]
    assert relative(way.gradient_from(q, tau, way.gradient_to(q, tau, G)), G) < 1e-11
    f, points = np.random.default_rng(1).normal(size=(2, *shape, model.n_bodies, 6))
    assert relative(way.wrench_from(q, points[..., :3], way.wrench_to(q, f, points[..., :3])), f) < 1e-12


@pytest.mark.parametrize("library", CONVENTIONS)
@pytest.mark.parametrize("robot", ["quadruped", "joints"])
def test_rates_of_their_numbers(library, robot):
    """Their acceleration is the rate of their velocity along a motion, and gradients are along their velocities."""
    model = robots(robot)
    q, v, a, _ = state(model)
    way = rd.converter(model, library)
    ends = []
    for t in (SMALL, -SMALL):
        # A motion with this velocity and acceleration: q(t) = q (+) (t v + t^2 a / 2), to the order that counts.
        at, speed = model.integrate(q, t * v + 0.5 * t * t * a), v + t * a
        ends.append(way.v_to(at, speed))
    assert relative((ends[0] - ends[1]) / (2 * SMALL), way.a_to(q, v, a)) < 1e-7
    dyn, G = rd.Dynamics(model), np.empty((model.nv, model.nv))
    zero = np.zeros(model.nv)

    def theirs(at: np.ndarray) -> np.ndarray:
        return way.tau_to(at, dyn.inverse_dynamics(at, zero, a))

    for k, unit in enumerate(np.eye(way.nv)):
        ours = way.v_from(q, unit)
        ends = [theirs(model.integrate(q, t * ours)) for t in (SMALL, -SMALL)]
        G[:, k] = (ends[0] - ends[1]) / (2 * SMALL)
    found = way.gradient_to(q, dyn.inverse_dynamics(q, zero, a), dyn.inverse_dynamics_gradient(q, zero, a)[0])
    assert relative(found, G) < 1e-7


def test_the_base_of_each_library():
    """By formulas: what each says of the position, attitude and velocity of a body, from its pose in the world."""
    model = robots("quadruped")
    q, v, _, _ = state(model)
    dyn = rd.Dynamics(model)
    base = model.body_names[0]
    pose = dyn.forward_kinematics(q)[model.link_names.index(base)]
    R, p, xyzw = pose[:3, :3], pose[:3, 3], q[3:7]
    velocity = dyn.link_velocity(q, v, base)  # angular, then linear of the link's origin, world axes
    com = model.inertia[0, 1:4] / model.inertia[0, 0]
    at_com = velocity[3:] + np.cross(velocity[:3], R @ com)
    wxyz = xyzw[[3, 0, 1, 2]]
    for library, pose_wanted, velocity_wanted in (
        ("pinocchio", [*p, *xyzw], [*(R.T @ velocity[3:]), *(R.T @ velocity[:3])]),
        ("mujoco", [*p, *wxyz], [*velocity[3:], *(R.T @ velocity[:3])]),
        ("drake", [*wxyz, *p], [*velocity[:3], *velocity[3:]]),
        ("pybullet", [*(p + R @ com), *xyzw], [*at_com, *velocity[:3]]),
        ("newton", [*p, *xyzw], [*at_com, *velocity[:3]]),
        ("isaaclab2", [*p, *wxyz], [*velocity[3:], *velocity[:3]]),
        ("isaaclab3", [*p, *xyzw], [*velocity[3:], *velocity[:3]]),
    ):
        way = rd.converter(model, library)
        assert relative(way.q_to(q)[:7], np.array(pose_wanted)) < 1e-12, library
        assert relative(way.v_to(q, v)[:6], np.array(velocity_wanted)) < 1e-12, library


def test_orders_of_joints():
    text = """<robot name="r"><link name="base"/>{}</robot>"""
    joints = "".join(
        f'<joint name="{name}" type="continuous"><parent link="{parent}"/><child link="{child}"/></joint>'
        f'<link name="{child}"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1"/></inertial></link>'
        for name, parent, child in (("z1", "base", "right"), ("j2", "right", "hand"), ("a3", "base", "left"))
    )
    model = rd.load_urdf(text.format(joints))
    assert rd.converter(model, "mujoco").joint_names == ("z1", "j2", "a3")
    assert rd.converter(model, "isaaclab3").joint_names == ("z1", "a3", "j2")
    assert rd.converter(model, "pinocchio").joint_names == ("a3", "z1", "j2")
    pin = pytest.importorskip("pinocchio")
    theirs = pin.buildModelFromXML(text.format(joints))
    assert tuple(theirs.names)[1:] == ("a3", "z1", "j2")
    assert rd.converter(model, "pinocchio").nq == theirs.nq  # cosines and sines
    named = rd.converter(model, "drake", joint_names=["j2", "a3", "z1"])
    assert named.q_to(np.array([1.0, 2.0, 3.0])).tolist() == [2.0, 3.0, 1.0]


def test_bullets_states():
    bullet = pytest.importorskip("pybullet", reason="pybullet is not installed")
    client = bullet.connect(bullet.DIRECT)
    try:
        robot = bullet.loadURDF(str(own("quadruped")), physicsClientId=client)
        names = [
            bullet.getJointInfo(robot, j)[1].decode()
            for j in range(bullet.getNumJoints(robot))
            if bullet.getJointInfo(robot, j)[2] != bullet.JOINT_FIXED
        ]
        model = robots("quadruped")
        q, v, _, _ = state(model)
        way = rd.converter(model, "pybullet", joint_names=[model.joint_names[0], *names])
        at, speed = way.q_to(q), way.v_to(q, v)
        bullet.resetBasePositionAndOrientation(robot, at[:3], at[3:7])
        bullet.resetBaseVelocity(robot, speed[:3], speed[3:6])
        moving = [
            j for j in range(bullet.getNumJoints(robot)) if bullet.getJointInfo(robot, j)[2] != bullet.JOINT_FIXED
        ]
        for j, angle, rate in zip(moving, at[7:], speed[6:], strict=True):
            bullet.resetJointState(robot, j, angle, rate)
        poses = rd.Dynamics(model).forward_kinematics(q)
        for j in moving:
            told = bullet.getLinkState(robot, j, computeLinkVelocity=1, computeForwardKinematics=1)
            name = bullet.getJointInfo(robot, j)[12].decode()
            assert np.abs(poses[model.link_names.index(name)][:3, 3] - told[4]).max() < 1e-5
    finally:
        bullet.disconnect(client)


@pytest.mark.filterwarnings("ignore")
def test_drakes_states_forces_and_masses():
    plants = pytest.importorskip("pydrake.multibody.plant", reason="Drake is not installed")
    from pydrake.multibody.parsing import Parser
    from pydrake.multibody.tree import MultibodyForces

    plant = plants.MultibodyPlant(0.0)
    Parser(plant).AddModels(str(own("quadruped")))
    plant.Finalize()
    joints = [plant.get_joint(index) for index in plant.GetJointIndices()]
    joints = sorted((each for each in joints if each.num_velocities() == 1), key=lambda each: each.velocity_start())
    model = robots("quadruped")
    way = rd.converter(model, "drake", joint_names=[model.joint_names[0], *(each.name() for each in joints)])
    assert way.joint_names == rd.converter(model, "drake").joint_names
    q, v, a, _ = state(model)
    context, dyn = plant.CreateDefaultContext(), rd.Dynamics(model, joint_forces="damping")
    plant.SetPositions(context, way.q_to(q))
    plant.SetVelocities(context, way.v_to(q, v))
    assert relative(way.mass_matrix_to(q, dyn.mass_matrix(q)), plant.CalcMassMatrix(context)) < 1e-12
    forces = MultibodyForces(plant)
    plant.CalcForceElementsContribution(context, forces)
    tau = plant.CalcInverseDynamics(context, way.a_to(q, v, a), forces)
    assert relative(way.tau_to(q, dyn.inverse_dynamics(q, v, a)), tau) < 1e-12


@pytest.mark.parametrize("library", CONVENTIONS)
def test_tensors_and_lists(library):
    torch = pytest.importorskip("torch")
    model = robots("joints")
    way = rd.converter(model, library)
    q, v, a, tau = state(model, (3,))
    T = [torch.tensor(each) for each in (q, v, a, tau)]
    for found, wanted in (
        (way.q_to(T[0]), way.q_to(q)),
        (way.q_from(way.q_to(T[0])), way.q_from(way.q_to(q))),
        (way.v_to(T[0], T[1]), way.v_to(q, v)),
        (way.a_from(*T[:3]), way.a_from(q, v, a)),
        (way.tau_to(T[0], T[3]), way.tau_to(q, tau)),
    ):
        assert isinstance(found, torch.Tensor) and relative(found.numpy(), wanted) < 1e-14
    assert relative(way.v_to(q[0].tolist(), v[0].tolist()), way.v_to(q[0], v[0])) < 1e-14
    assert way.q_to(q.astype(np.float32)).dtype == np.float32


def test_bad_arguments_are_named():
    model = robots("quadruped")
    way = rd.converter(model, "mujoco")
    q, v, _, _ = state(model)
    for call, text in (
        (lambda: rd.converter(model, "gazebo"), "library: got 'gazebo'; allowed: 'pinocchio'"),
        (lambda: rd.converter(3, "mujoco"), "model: got int; wanted a robodyn.Model"),
        (lambda: rd.converter(model, "mujoco", joint_names=["elbow"]), 'has no joint "elbow"; it lacks'),
        (lambda: rd.converter(model, "mujoco", joint_names=7), "joint_names: got 7; wanted a sequence of names"),
        (lambda: way.q_to(q[:-1]), r"q: got shape \(18,\); wanted a real array of shape \(..., 19\)"),
        (lambda: way.v_from(q, v[:-1]), r"v: got shape \(17,\); wanted a real array of shape \(..., 18\)"),
        (lambda: rd.converter(rd.random_tree(3, seed=0, joints=("floating",)), "drake"), "floats from a frame"),
    ):
        with pytest.raises(rd.ArgumentError, match=text):
            call()
    follows = robots("mimic")
    every = rd.converter(follows, "mujoco", joint_names=follows.joint_names)
    with pytest.raises(rd.ArgumentError, match=r"mass_matrix_to: joint_names has .*, which mimic others"):
        every.mass_matrix_to(follows.neutral(), np.eye(follows.nv))


def test_followers_in_their_order():
    model = robots("mimic")
    way = rd.converter(model, "mujoco", joint_names=model.joint_names)
    q, v, _, tau = state(model)
    assert way.nv == model.nv_tree > model.nv
    tree = model.tree_coordinates(q)
    first = 7
    assert relative(way.q_to(q)[first:], tree[first:]) < 1e-14
    assert relative(way.q_from(way.q_to(q)), q) < 1e-14
    assert relative((way.v_to(q, v) * way.tau_to(q, tau)).sum(), (v * tau).sum()) < 1e-12
    all_of_them = np.random.default_rng(0).normal(size=way.nv)
    assert relative((way.tau_from(q, all_of_them) * v).sum(), (all_of_them * way.v_to(q, v)).sum()) < 1e-12


@pytest.mark.parametrize("library", CONVENTIONS)
def test_quaternions_of_any_length(library):
    """As queries take them: scaled to unit length on the way in, theirs too."""
    for robot in ("quadruped", "joints"):
        model = robots(robot)
        way, dyn = rd.converter(model, library), rd.Dynamics(model, engine="reference")
        q, v, a, tau = state(model)
        longer = q.copy()
        for start in model.quaternion_starts:
            longer[start : start + 4] *= 1.5
        H, J = dyn.mass_matrix(q), dyn.jacobian(q, 2)
        for call, arguments in (
            (way.q_to, ()),
            (way.v_to, (v,)),
            (way.v_from, (v,)),
            (way.a_to, (v, a)),
            (way.a_from, (v, a)),
            (way.tau_to, (tau,)),
            (way.tau_from, (tau,)),
            (way.mass_matrix_to, (H,)),
            (way.jacobian_from, (J,)),
            (way.gradient_to, (tau, H)),
        ):
            assert relative(call(longer, *arguments), call(q, *arguments)) < 1e-14, call.__name__
        theirs = way.q_to(q)
        longer = theirs.copy()
        at = slice(3, 7) if way.convention.position_first else slice(0, 4)
        longer[at] *= 0.3
        assert relative(way.q_from(longer), way.q_from(theirs)) < 1e-14
        longer[at] = 0.0
        with pytest.raises(rd.ArgumentError, match="q: a quaternion has zero length"):
            way.q_from(longer)
    with pytest.raises(rd.ArgumentError, match="q: a quaternion has zero length in 1 of 2 rows: 1"):
        way.q_to(np.stack([q, 0.0 * q]))


class _Evil:
    def __getattr__(self, name):
        raise RuntimeError("evil")


class _Liar:
    @property
    def __class__(self):
        raise RuntimeError("evil")


NO_NUMBERS = {
    "raises": _Evil(),
    "lies": _Liar(),
    "nothing": None,
    "text": "1 2",
    "scalar": 3.0,
    "ragged": [[1.0], [1.0, 2.0]],
    "many axes": np.ones((1,) * 40),
    **{str(dtype): np.ones(19).astype(dtype) for dtype in (complex, bool, object, str)},
    "shape": np.ones((2, 5)),
    "masked": np.ma.masked_array(np.ones(19), mask=True),
}


@pytest.mark.parametrize("kind", NO_NUMBERS)
def test_what_is_no_array_of_numbers(kind):
    value = NO_NUMBERS[kind]
    model = robots("quadruped")
    way = rd.converter(model, "newton")
    q, v, _, tau = state(model)
    H, f = np.eye(model.nv), np.zeros((2, 6))
    for call in (
        lambda: way.q_to(value),
        lambda: way.q_from(value),
        lambda: way.v_to(value, v),
        lambda: way.v_to(q, value),
        lambda: way.a_to(q, value, v),
        lambda: way.tau_from(q, value),
        lambda: way.mass_matrix_to(q, value),
        lambda: way.jacobian_to(q, value),
        lambda: way.gradient_to(q, tau, value),
        lambda: way.gradient_from(q, value, H),
        lambda: way.wrench_to(q, f, value),
        lambda: way.wrench_from(q, value, f),
    ):
        with pytest.raises(rd.ArgumentError):
            call()
    with pytest.raises(rd.ArgumentError):
        rd.converter(value, "mujoco")


def test_shapes_are_looked_at():
    model = robots("quadruped")
    way, n = rd.converter(model, "mujoco"), model.nv
    q, v, _, _ = state(model)
    for call, text in (
        (lambda: way.mass_matrix_to(q, np.ones(n)), r"H: got shape \(18,\); wanted \(..., 18, 18\)"),
        (lambda: way.mass_matrix_from(q, np.eye(n + 1)), r"H: got shape \(19, 19\); wanted a real array"),
        (lambda: way.jacobian_to(q, np.ones(n)), r"J: got shape \(18,\); wanted \(..., m, 18\)"),
        (lambda: way.gradient_to(q, v, np.ones(n)), r"gradient: got shape \(18,\)"),
        (lambda: way.wrench_to(q, np.ones((2, 6)), np.ones((2, 6))), r"points: got shape \(2, 6\)"),
        (
            lambda: way.wrench_to(q, np.ones((3, 6)), np.ones((2, 3))),
            r"do not broadcast: got f_ext \(3,\), points \(2,\)",
        ),
        (lambda: way.v_to(np.stack([q] * 3), np.ones((2, n))), r"do not broadcast: got q \(3,\), v \(2,\)"),
        (lambda: way.a_to(q, np.ones((2, n)), np.ones((3, n))), r"do not broadcast: .* v \(2,\), a \(3,\)"),
    ):
        with pytest.raises(rd.ArgumentError, match=text):
            call()
    points = [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    f = np.random.default_rng(0).normal(size=(2, 6))
    assert np.array_equal(way.wrench_to(q, f.tolist(), points), way.wrench_to(q, f, np.array(points)))


def test_tensors_of_integers_and_of_two_dtypes():
    torch = pytest.importorskip("torch")
    model = robots("quadruped")
    way = rd.converter(model, "pybullet")
    q, v, _, _ = state(model)
    whole = np.arange(model.nv)
    for name in ("v_to", "tau_to"):
        call = getattr(way, name)
        wanted = call(q, whole.astype(float))
        assert relative(call(torch.tensor(q), torch.tensor(whole)).numpy(), wanted) < 1e-14
        assert relative(call(torch.tensor(q), whole.tolist()).numpy(), wanted) < 1e-14
        mixed = call(torch.tensor(q), torch.tensor(whole).float())
        assert mixed.dtype == torch.float64 and relative(mixed.numpy(), wanted) < 1e-14
    assert way.q_to(torch.ones(model.nq, dtype=torch.int64)).dtype == torch.float64
    with pytest.raises(rd.ArgumentError, match="v: got an array of NumPy, where q is one of PyTorch"):
        way.v_to(torch.tensor(q), v)
    with pytest.raises(rd.ArgumentError, match="H: got an array of PyTorch, where q is one of NumPy"):
        way.mass_matrix_to(q, torch.eye(model.nv))
    # Where the base's quaternion has zeros, too.
    start = torch.tensor(model.neutral(), requires_grad=True)
    way.v_to(start, torch.tensor(v)).sum().backward()
    assert torch.isfinite(start.grad).all()
    with pytest.raises(rd.ArgumentError, match=r"q: got .* of dtype torch.complex128"):
        way.q_to(torch.tensor(q).to(torch.complex128))


class _DeviceArray(np.ndarray):
    """What the converter needs of CuPy's arrays."""

    device = "a GPU"


@pytest.mark.parametrize("library", CONVENTIONS)
def test_arrays_of_cupy(library, monkeypatch):
    """With a module in CuPy's place: its functions are NumPy's."""
    module = ModuleType("cupy")
    vars(module).update({name: getattr(np, name) for name in np.__all__})
    module.ndarray = _DeviceArray

    def there(name: str) -> Callable[..., _DeviceArray]:
        return lambda *given, **options: getattr(np, name)(*given, **options).view(_DeviceArray)

    for name in ("asarray", "concatenate", "stack", "broadcast_to", "zeros"):
        setattr(module, name, there(name))
    monkeypatch.setitem(sys.modules, "cupy", module)
    model = robots("joints")
    way = rd.converter(model, library)
    q, v, a, tau = state(model, (3,))
    D = [module.asarray(each) for each in (q, v, a, tau)]
    H = np.eye(model.nv)
    for found, wanted in (
        (way.q_from(way.q_to(D[0])), way.q_from(way.q_to(q))),
        (way.a_to(*D[:3]), way.a_to(q, v, a)),
        (way.v_to(D[0], v[0].tolist()), way.v_to(q, v[0])),
        (way.tau_from(D[0], D[3].astype(np.float32)), way.tau_from(q, tau.astype(np.float32))),
        (way.gradient_to(D[0], D[3], module.asarray(H)), way.gradient_to(q, tau, H)),
    ):
        assert type(found) is _DeviceArray and relative(np.asarray(found), wanted) < 1e-14
    assert np.isnan(way.q_to(0.0 * D[0])[..., :7]).any()  # no look at values
    with pytest.raises(rd.ArgumentError, match="v: got an array of NumPy, where q is one of CuPy"):
        way.v_to(D[0], v)


def test_arrays_of_jax_are_refused():
    jax = pytest.importorskip("jax")
    model = robots("quadruped")
    with pytest.raises(rd.ArgumentError, match=r"q: got .*, an array of jax; wanted arrays of NumPy, PyTorch or CuPy"):
        rd.converter(model, "mujoco").q_to(jax.numpy.ones(model.nq))


@pytest.mark.skipif(not layout_is_known(), reason="no built-in entries on this Python and NumPy")
@pytest.mark.parametrize("library", CONVENTIONS)
@pytest.mark.parametrize("robot", ["joints", "mimic", "turning"])
@pytest.mark.some(of=3, rest="matrix")
def test_later_calls_agree_with_the_first(library, robot):
    model = robots(robot)
    first, later = rd.converter(model, library), rd.converter(model, library)
    rng = np.random.default_rng(0)
    print("seed 0")
    own_sizes = {"nq": model.nq, "nv": model.nv, "their_nq": first.nq, "their_nv": first.nv}

    def arguments(inputs, lead=()):
        q = model.random_configuration(rng, lead)
        for axes in inputs.values():
            if axes == ("their_nq",):
                yield Converter.q_to(first, q)
            else:
                yield q if axes == ("nq",) else rng.normal(size=(*lead, *(own_sizes.get(n, n) for n in axes)))

    for name, (inputs, _) in _FAST.items():
        plain = getattr(Converter, name)
        for _ in range(12):
            getattr(later, name)(*arguments(inputs))
        assert "built-in" in repr(getattr(later, name)), name
        for lead in ((), (1,), (5,), (2, 3)):
            given = list(arguments(inputs, lead))
            wanted, got = plain(first, *given), getattr(later, name)(*given)
            assert got.dtype == wanted.dtype and got.shape == wanted.shape and relative(got, wanted) < 1e-13, name
            halves = [each.astype(np.float32) for each in given]
            assert np.array_equal(getattr(later, name)(*halves), plain(first, *halves)), name
    q = model.random_configuration(rng)
    for m in (1, 3, 6):
        J = rng.normal(size=(m, model.nv))
        assert relative(later.jacobian_to(q, J), J @ later.from_matrix(q).T) < 1e-13
        assert relative(later.jacobian_from(q, later.jacobian_to([*q], J)), J) < 1e-12
    q[3:7] = 0.0
    with pytest.raises(rd.ArgumentError, match="zero length"):
        later.v_to(q, np.zeros(model.nv))
    again = pickle.loads(pickle.dumps(later))
    assert np.array_equal(again.q_to(model.neutral()), first.q_to(model.neutral()))


def test_angles_of_their_sines_and_cosines():
    a = np.concatenate([np.linspace(-np.pi, np.pi, 1001), [1e-300, -1e-9, np.pi - 1e-9, 1e-9 - np.pi]])
    for size in (1.0, 1e-5, 1e9):
        sine, cosine = size * np.sin(a), size * np.cos(a)
        assert np.abs(angle(sine, cosine) - np.arctan2(sine, cosine)).max() < 4e-15
