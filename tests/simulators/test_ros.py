"""Messages of ROS 2, by the definitions and the bags of `rosbags`, and by classes that check as those of rclpy do."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from conftest import relative
from robots import own

import robodyn as rd

rosbags = pytest.importorskip("rosbags", reason="the extra 'ros' is not installed")

from robodyn.simulators import ros  # noqa: E402


@pytest.fixture(scope="module")
def store():
    from rosbags.typesys import Stores, get_typestore

    return get_typestore(Stores.ROS2_HUMBLE)


def robot(name):
    return rd.load_urdf(own(name), base="floating" if name == "quadruped" else "fixed")


def state(model, shape=(), seed=0):
    rng = np.random.default_rng(seed)
    return model.random_configuration(rng, shape), *rng.normal(size=(2, *shape, model.nv))


class Strict:
    """A message as rclpy makes them: parts are there, others cannot be set, and numbers are lists of floats."""

    def __setattr__(self, name, value):
        old = getattr(type(self), name)  # raises for a field that there is not
        assert isinstance(value, type(old)) and not isinstance(value, np.ndarray)
        if isinstance(value, list) and name != "name":
            assert all(type(each) is float for each in value)
        object.__setattr__(self, name, value)


class Stamp(Strict):
    sec, nanosec = 0, 0


class JointState(Strict):
    name: list = []  # noqa: RUF012
    position, velocity, effort = [], [], []

    def __init__(self):
        object.__setattr__(self, "header", SimpleNamespace(stamp=Stamp(), frame_id=""))


@pytest.mark.parametrize("name", ["arm7", "hand", "quadruped"])
@pytest.mark.parametrize("kind", ["rosbags", "rclpy"])
def test_joint_states_there_and_back(store, name, kind):
    model = robot(name)
    q, qd, tau = state(model)
    made = JointState if kind == "rclpy" else store.types[ros.JOINT_STATE]
    message = ros.to_joint_state(model, q, qd, tau, message=made, t=12.25)
    assert (message.header.stamp.sec, message.header.stamp.nanosec) == (12, 250_000_000)
    assert set(message.name) == set(model.joint_names) - set(model.joint_names[:1] if name == "quadruped" else ())
    if kind == "rosbags":  # as it goes over a wire
        message = store.deserialize_cdr(store.serialize_cdr(message, ros.JOINT_STATE), ros.JOINT_STATE)
    found = ros.from_joint_state(
        model, message, q=np.where(np.arange(model.nq) < 7, q, 0.0), qd=qd * 0.0, tau=tau * 0.0
    )
    moving = 6 if name == "quadruped" else 0
    assert found.t == 12.25 and (found.q == q).all()
    assert (found.qd[moving:] == qd[moving:]).all() and (found.tau[moving:] == tau[moving:]).all()
    if name == "hand":  # followers have their positions, velocities and no forces
        tree = model.tree_coordinates(q)
        assert relative(np.array(message.position), tree) < 1e-15
        assert relative(np.array(message.velocity), model.coupling() @ qd) < 1e-15
        assert not np.array(message.effort)[model.mimics >= 0].any()
    alone = ros.from_joint_state(
        model, SimpleNamespace(name=message.name, position=message.position, velocity=[], effort=[])
    )
    assert alone.qd is None and alone.tau is None and alone.t == 0.0


def test_any_order_strict_and_partial():
    model = robot("arm6")
    names, numbers = list(model.joint_names), np.arange(6.0)
    shuffled = [3, 0, 5, 1, 4, 2]
    message = SimpleNamespace(name=[names[k] for k in shuffled], position=numbers[shuffled], velocity=[], effort=[])
    assert ros.from_joint_state(model, message).q.tolist() == numbers.tolist()
    part = SimpleNamespace(
        name=["gripper", names[4], names[1]], position=[9.0, 4.0, 1.0], velocity=[9.0, 0.4, 0.1], effort=[]
    )
    with pytest.raises(rd.ArgumentError, match=r'the robot does not have: "gripper"; it lacks: ".*strict=False'):
        ros.from_joint_state(model, part)
    found = ros.from_joint_state(model, part, strict=False, q=numbers - 10.0, qd=np.full(6, 7.0))
    assert found.q.tolist() == [-10.0, 1.0, -8.0, -7.0, 4.0, -5.0] and found.qd.tolist() == [
        7.0,
        0.1,
        7.0,
        7.0,
        0.4,
        7.0,
    ]
    assert ros.from_joint_state(model, part, strict=False).q.tolist() == [0.0, 1.0, 0.0, 0.0, 4.0, 0.0]
    given = ros.to_joint_state(model, numbers)
    assert given["name"] == names and given["velocity"].shape == given["effort"].shape == (0,)


def test_odometry_is_pose_in_the_world_and_twist_in_the_base(store):
    model = robot("quadruped")
    q, qd, _ = state(model, seed=3)
    kind = store.types[ros.ODOMETRY]
    message = ros.to_odometry(model, q, qd, kind, t=2.5)
    message = store.deserialize_cdr(store.serialize_cdr(message, ros.ODOMETRY), ros.ODOMETRY)
    assert (message.header.frame_id, message.child_frame_id) == ("odom", "trunk")
    dyn = rd.Dynamics(model)
    pose, twist = dyn.link_pose(q, "trunk"), dyn.link_velocity(q, qd, "trunk", frame="body")
    assert relative(np.array([getattr(message.pose.pose.position, each) for each in "xyz"]), pose[:3, 3]) < 1e-15
    told = [getattr(part, each) for part in (message.twist.twist.angular, message.twist.twist.linear) for each in "xyz"]
    assert relative(np.array(told), twist) < 1e-14
    found = ros.from_odometry(model, message, q=model.neutral(), qd=np.ones(model.nv))
    assert relative(found.q[:7], q[:7]) < 1e-15 and (found.qd[:6] == qd[:6]).all() and (found.qd[6:] == 1.0).all()
    assert found.t == 2.5
    turned = SimpleNamespace(pose=message.pose, twist=message.twist)
    assert ros.from_odometry(model, turned).t == 0.0


@pytest.mark.parametrize("name", ["arm7", "quadruped"])
def test_bags_there_and_back(tmp_path, name):
    model = robot(name)
    dyn = rd.Dynamics(model)
    q, qd, _ = state(model, seed=2)
    run = dyn.rollout(q, qd, None, 1e-3, 20)
    path, odometry = tmp_path / "bag", "/odom" if name == "quadruped" else None
    ros.write_bag(path, model, run.t, run.q, run.qd)
    with pytest.raises(rd.ArgumentError, match="is there already"):
        ros.write_bag(path, model, run.t, run.q, run.qd)
    found = ros.read_bag(path, model, odometry=odometry)
    assert relative(found.t, run.t) < 1e-9 and found.tau is None
    if odometry is None:
        assert (found.q == run.q).all() and (found.qd == run.qd).all()
    else:
        assert (found.q[:, 7:] == run.q[:, 7:]).all() and (found.qd[:, 6:] == run.qd[:, 6:]).all()
        assert relative(found.q[:, :7], run.q[:, :7]) < 1e-12 and relative(found.qd[:, :6], run.qd[:, :6]) < 1e-12
    with pytest.raises(rd.ArgumentError, match="topic: '/legs' has nothing in this bag; wanted sensor_msgs"):
        ros.read_bag(path, model, topic="/legs")
    data = next(path.glob("*.db3"))
    data.write_bytes(data.read_bytes()[:900])
    with pytest.raises(rd.LoadError, match="cannot read the bag"):
        ros.read_bag(path, model)
    with pytest.raises((rd.LoadError, OSError)):
        ros.read_bag(tmp_path / "nothing", model)


def test_a_robot_from_its_description(store):
    text = own("arm6").read_text()
    message = store.types["std_msgs/msg/String"](data=text)
    assert ros.from_robot_description(message) == rd.load_urdf(own("arm6")) == ros.from_robot_description(text)
    for given in (3, "", "/etc/passwd"):
        with pytest.raises(rd.ArgumentError, match="message: got"):
            ros.from_robot_description(given)


def test_what_is_wrong_is_named(store, tmp_path):
    model, floating = robot("arm6"), robot("quadruped")
    names, six = list(model.joint_names), [0.0] * 6

    def message(**given):
        return SimpleNamespace(**{"name": names, "position": six, "velocity": [], "effort": [], **given})

    for call, error, text in (
        (lambda: ros.from_joint_state(3, message()), rd.ArgumentError, "model: got 3"),
        (
            lambda: ros.from_joint_state(model, 3),
            rd.ArgumentError,
            "message: got 3; wanted a sensor_msgs/msg/JointState",
        ),
        (lambda: ros.from_joint_state(model, message(name=["a"] * 6)), rd.ArgumentError, '"a" occurs twice'),
        (
            lambda: ros.from_joint_state(model, message(position=["1"] * 6)),
            rd.ArgumentError,
            r"message\.position: got \['1', .*; wanted numbers",
        ),
        (lambda: ros.from_joint_state(model, message(velocity=[True] * 6)), rd.ArgumentError, "wanted numbers"),
        (
            lambda: ros.from_joint_state(model, message(velocity=[True, *[0.0] * 5])),
            rd.ArgumentError,
            "wanted numbers",
        ),
        (
            lambda: ros.from_joint_state(model, message(position=bytearray(b"123456"))),
            rd.ArgumentError,
            "wanted numbers",
        ),
        (lambda: ros.from_joint_state(model, message(name="abcdef")), rd.ArgumentError, "wanted a list of names"),
        (
            lambda: ros.from_joint_state(
                model, SimpleNamespace(**vars(message()), header=SimpleNamespace(stamp=SimpleNamespace(sec="1")))
            ),
            rd.ArgumentError,
            "stamp: got .*; wanted seconds",
        ),
        (lambda: ros.from_joint_state(model, message(effort="123456")), rd.ArgumentError, "effort: got '123456'"),
        (lambda: ros.from_joint_state(model, message(position=[])), rd.ArgumentError, "position: got 0 numbers for 6"),
        (
            lambda: ros.from_joint_state(model, message(velocity=[1.0])),
            rd.ArgumentError,
            "velocity: got 1 numbers for 6",
        ),
        (lambda: ros.from_joint_state(model, message(effort=[np.nan] * 6)), rd.NumericalError, "message.effort: NaN"),
        (lambda: ros.from_joint_state(model, message(), q=six[:2]), rd.ArgumentError, r"q: got shape \(2,\)"),
        (lambda: ros.to_joint_state(model, six[:2]), rd.ArgumentError, r"q: got shape \(2,\)"),
        (lambda: ros.to_joint_state(model, [np.inf] * 6), rd.NumericalError, "q: NaN"),
        (lambda: ros.to_joint_state(model, six, message=dict), rd.ArgumentError, "cannot be filled"),
        (
            lambda: ros.to_joint_state(model, six, message=store.types["std_msgs/msg/String"]),
            rd.ArgumentError,
            "cannot be",
        ),
        (lambda: ros.to_joint_state(model, six, message=JointState, t=-1.0), rd.ArgumentError, "t: got -1.0"),
        (lambda: ros.to_odometry(model, six, six, JointState), rd.ArgumentError, "does not float"),
        (lambda: ros.from_odometry(floating, message()), rd.ArgumentError, "wanted a nav_msgs/msg/Odometry"),
        (lambda: ros.write_bag(tmp_path / "b", model, [0.0], [six, six]), rd.ArgumentError, r"q: got shape \(2, 6\)"),
        (lambda: ros.write_bag(tmp_path / "b", model, [[0.0]], [six]), rd.ArgumentError, r"t: got shape \(1, 1\)"),
        (lambda: ros.write_bag(tmp_path / "b", model, [-1.0], [six]), rd.ArgumentError, "t: got -1.0"),
    ):
        with pytest.raises(error, match=text):
            call()
    assert not (tmp_path / "b").exists()
