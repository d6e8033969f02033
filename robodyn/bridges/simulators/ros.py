"""Converts states of a robot to and from messages of ROS 2 (JointState, Odometry of a floating base) and bags.

No running ROS is needed. Messages may be those of rclpy or of `rosbags`: only their fields are read, and the caller
passes the classes of messages to write. Bags need the extra `ros`.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import fields, is_dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal

import numpy as np

from robodyn.bridges.simulators.checks import require_model, vector
from robodyn.core.findings import listed
from robodyn.core.joints import KINDS
from robodyn.core.model import Model
from robodyn.internals import strict_types
from robodyn.internals.arguments import Array, as_array, finite_number, finite_real, flag, real_array, require_finite
from robodyn.internals.errors import ArgumentError, LoadError, RobodynError, UnavailableError
from robodyn.internals.files import path_text
from robodyn.internals.messages import brief, install, quoted
from robodyn.internals.records import dataclass
from robodyn.io.builders.load import load_urdf

_NANO = 1_000_000_000
_MOST_NAMES = 1 << 20
_MOST_SECONDS = (1 << 31) - 1
_FIELDS = ("position", "velocity", "effort")
JOINT_STATE, ODOMETRY = "sensor_msgs/msg/JointState", "nav_msgs/msg/Odometry"


@dataclass(frozen=True)
class States:
    """States of a robot from one message or from many.

    `t`: (...,) s; `q` (..., nq); `qd` (..., nv) and `tau` (..., nv), None if messages have no velocities or efforts.
    """

    t: Array
    q: Array
    qd: Array | None
    tau: Array | None


def from_joint_state(
    model: Model, message: Any, strict: bool = True, q: Any = None, qd: Any = None, tau: Any = None
) -> States:
    """The state that a JointState describes.

    Args:
        model: the robot.
        message: a `sensor_msgs/msg/JointState` with joints in any order. Mimic joints are ignored.
        strict: True: the message must have every joint with one degree of freedom, except mimic joints, and no unknown
            joint. False: missing joints keep their values in `q`, `qd` and `tau`, and unknown joints are ignored.
        q: (nq,) values of other coordinates, such as those of a floating base; None for the neutral configuration.
        qd: (nv,) values of other velocities; None for zeros.
        tau: (nv,) values of other forces; None for zeros.

    Raises:
        ArgumentError: a wrong message; other numbers of values than of names; joints that are missing, unknown, named
            twice or have several degrees of freedom.
        NumericalError: NaN or infinity in the message.
    """
    require_model(model)
    strict = flag("strict", strict)
    names, arrays = _read(message)
    places = _places(model)
    known = {
        name for name, code in zip(model.joint_names, model.joint_kind.tolist(), strict=True) if KINDS[code].nv == 1
    }
    unknown = [quoted(name) for name in names if name not in known]
    missing = [quoted(name) for name in places if name not in set(names)]
    if strict and (unknown or missing):
        problems = ((unknown, "joints that the robot does not have"), (missing, "it lacks"))
        raise ArgumentError(
            "message: " + "; ".join(f"{text}: {listed(each)}" for each, text in problems if each)
            + "; wanted each joint of one degree of freedom, or strict=False"
        )  # fmt: skip
    vectors: list[Any] = []
    rows = zip((model.neutral() if q is None else q, qd, tau), ("q", "qd", "tau"), _FIELDS, (0, 1, 1), strict=True)
    for rest, name, field, which in rows:
        n = model.nv if which else model.nq
        values = real_array(name, np.zeros(n) if rest is None else rest, (n,), np.float64).copy()
        if values.ndim != 1:
            raise ArgumentError(f"{name}: got shape {values.shape}; wanted ({n},)")
        for joint, number in zip(names, arrays[field], strict=True) if arrays[field].size else ():
            if joint in places:
                values[places[joint][which]] = number
        vectors.append(values if arrays[field].size or field == "position" else None)
    return States(np.array(_seconds(message)), vectors[0], vectors[1], vectors[2])


def to_joint_state(
    model: Model, q: Any, qd: Any = None, tau: Any = None, *, message: Any = None, t: float = 0.0
) -> Any:
    """A JointState of all joints with one degree of freedom, including mimic joints.

    Args:
        model: the robot.
        q: (nq,) configuration.
        qd: (nv,) velocity; None for a message without velocities.
        tau: (nv,) generalised forces; None for a message without efforts. Efforts of mimic joints are zero.
        message: the class of the message, rclpy's `sensor_msgs.msg.JointState` or that of a typestore of `rosbags`;
            None for a dict of `name`, `position`, `velocity` and `effort`.
        t: time stamp, s from 0 to 2^31 - 1.

    Raises:
        ArgumentError: wrong arrays, or a class of another message.
        NumericalError: NaN or infinity.
    """
    require_model(model)
    arguments = {"q": (q, model.nq), "qd": (qd, model.nv), "tau": (tau, model.nv)}
    arrays = {
        name: vector(name, value, n) for name, (value, n) in arguments.items() if value is not None or name == "q"
    }
    tree = model.tree_coordinates(arrays["q"])
    names, position, velocity, effort = [], [], [], []
    for i, name in enumerate(model.joint_names):
        if KINDS[model.joint_kind[i]].nv != 1:
            continue
        at, along = int(model.q_start[i]), int(model.v_start[i])
        source, follows = int(model.v_source[along]), model.mimics[i] >= 0
        names.append(name)
        position.append(tree[at])
        if "qd" in arrays:
            velocity.append(arrays["qd"][source] * model.v_multiplier[along])
        if "tau" in arrays:
            effort.append(0.0 if follows else arrays["tau"][source])
    contents: dict[str, Any] = {"name": names}
    for field, numbers in zip(_FIELDS, (position, velocity, effort), strict=True):
        contents[field] = np.array(numbers, dtype=np.float64)
    return contents if message is None else _made(message, contents, t, "")


def from_odometry(model: Model, message: Any, q: Any = None, qd: Any = None) -> States:
    """The state of a floating base from an Odometry message: pose in the world, twist in the base's own axes.

    Args:
        model: a robot whose first joint floats in the world.
        message: a `nav_msgs/msg/Odometry`, or anything with its `pose.pose` and `twist.twist`.
        q: (nq,) values of other coordinates; None for the neutral configuration.
        qd: (nv,) values of other velocities; None for zeros.

    Raises:
        ArgumentError: a base that does not float, a wrong message, or a quaternion of zero length.
        NumericalError: NaN or infinity in the message.
    """
    _require_floating(model)
    try:
        pose, twist = message.pose.pose, message.twist.twist
        at = [pose.position.x, pose.position.y, pose.position.z]
        at += [pose.orientation.x, pose.orientation.y, pose.orientation.z, pose.orientation.w]
        speed = [getattr(part, axis) for part in (twist.linear, twist.angular) for axis in "xyz"]
        numbers = _numbers("message.pose", at), _numbers("message.twist", speed)
    except RobodynError:
        raise
    except Exception as error:  # a foreign object may raise anything
        raise ArgumentError(f"message: got {brief(message)}; wanted a {ODOMETRY}") from error
    for name, array in zip(("pose", "twist"), numbers, strict=True):
        require_finite(f"message.{name}", array, 1)
    q_full = vector("q", model.neutral() if q is None else q, model.nq).copy()
    qd_full = vector("qd", np.zeros(model.nv) if qd is None else qd, model.nv).copy()
    q_full[:7], qd_full[:6] = numbers
    return States(np.array(_seconds(message)), model.normalize(q_full), qd_full, None)


def to_odometry(model: Model, q: Any, qd: Any, message: Any, *, t: float = 0.0, frame_id: str = "odom") -> Any:
    """An Odometry message of a floating base. Its child frame is the base's link; covariances are zero.

    Args:
        model: a robot whose first joint floats in the world.
        q: (nq,) configuration.
        qd: (nv,) velocity; the first six entries are the twist in ROS's order: linear, angular, in the base's axes.
        message: the class of the message, rclpy's `nav_msgs.msg.Odometry` or that of a typestore of `rosbags`.
        t: time stamp, s.
        frame_id: name of the world frame.
    """
    _require_floating(model)
    at, speed = vector("q", q, model.nq)[:7].tolist(), vector("qd", qd, model.nv)[:6].tolist()
    link = model.link_names[model.link_body.tolist().index(0)]
    pose = {"position": dict(zip("xyz", at[:3], strict=True)), "orientation": dict(zip("xyzw", at[3:], strict=True))}
    twist = {
        name: dict(zip("xyz", part, strict=True)) for name, part in (("linear", speed[:3]), ("angular", speed[3:]))
    }
    covariance = np.zeros(36)
    contents = {
        "child_frame_id": link,
        "pose": {"pose": pose, "covariance": covariance},
        "twist": {"twist": twist, "covariance": covariance},
    }
    return _made(message, contents, t, frame_id)


def from_robot_description(message: Any, base: Literal["fixed", "floating"] = "fixed") -> Model:
    """Load the robot of a topic or parameter `robot_description`: a `std_msgs/msg/String` with URDF, or its text.

    Raises:
        LoadError: (`robodyn.load_urdf`) the text is no usable robot.
        ArgumentError: neither a text nor a message with one, or a wrong `base`.
    """
    try:
        text = strict_types.text_or_none(getattr(message, "data", message))
    except Exception:  # a foreign object may raise anything
        text = None
    if text is None or "<" not in text:
        raise ArgumentError(f"message: got {brief(message)}; wanted a std_msgs/msg/String with URDF, or its text")
    return load_urdf(text, base=base)


def write_bag(
    path: Any, model: Model, t: Any, q: Any, qd: Any = None, tau: Any = None, topic: str = "/joint_states"
) -> None:
    """Write states as a ROS 2 bag: one JointState for each time, and for a floating base an Odometry on "/odom".

    Args:
        path: the bag's folder, which must not exist.
        model: the robot.
        t: (T,) s, from 0 to 2^31 - 1.
        q: (T, nq) configurations.
        qd: (T, nv) velocities, or None; the twist of an Odometry is then zero.
        tau: (T, nv) generalised forces, or None.
        topic: topic of the JointStates.

    Raises:
        ArgumentError: wrong arrays, or a path that exists.
        UnavailableError: rosbags is not installed.
        OSError: the bag cannot be written.
    """
    require_model(model)
    times = real_array("t", t, (), np.float64)
    if times.ndim != 1:
        raise ArgumentError(f"t: got shape {times.shape}; wanted (T,)")
    shapes = {"q": (q, model.nq), "qd": (qd, model.nv), "tau": (tau, model.nv)}
    rows: dict[str, Any] = {}
    for name, (value, n) in shapes.items():
        if value is None and name != "q":
            rows[name] = [None] * len(times)
            continue
        rows[name] = real_array(name, value, (n,), np.float64)
        if rows[name].shape != (len(times), n):
            raise ArgumentError(f"{name}: got shape {rows[name].shape}; wanted {(len(times), n)}")
        require_finite(name, rows[name], 1)
    stamps = [round(_time(each) * _NANO) for each in times.tolist()]
    store, writer = _typestore(), _bags().rosbag2.Writer
    topic = _topic(topic)
    text = path_text(path)
    if text is None:
        raise ArgumentError(f"path: got {brief(path)}; wanted a path")
    place = Path(text)
    if place.exists():
        raise ArgumentError(f"path: {brief(str(place))} is there already; wanted a new one")
    floats = _floats(model)
    with writer(place, version=9) as bag:
        joints = bag.add_connection(topic, JOINT_STATE, typestore=store)
        odometry = bag.add_connection("/odom", ODOMETRY, typestore=store) if floats else None
        for k, stamp in enumerate(stamps):
            one = [rows[name][k] for name in ("q", "qd", "tau")]
            if odometry is not None:  # before the joints: readers use the last Odometry before a JointState
                speed = np.zeros(model.nv) if one[1] is None else one[1]
                message = to_odometry(model, one[0], speed, store.types[ODOMETRY], t=times[k])
                bag.write(odometry, stamp, store.serialize_cdr(message, ODOMETRY))
            message = to_joint_state(model, *one, message=store.types[JOINT_STATE], t=times[k])
            bag.write(joints, stamp, store.serialize_cdr(message, JOINT_STATE))


def read_bag(
    path: Any, model: Model, topic: str = "/joint_states", strict: bool = True, odometry: str | None = None
) -> States:
    """Read the states of all JointStates in a bag of ROS 1 or 2, by their stamps: t (T,), q (T, nq), qd and tau (T,
    nv).

    Args:
        path: the bag.
        model: the robot.
        topic: topic of the JointStates.
        strict: as in `from_joint_state`; joints that a message lacks keep their values of the previous message.
        odometry: topic of the floating base's Odometry. A state has the last Odometry that was received no later;
            before the first one the base is neutral and at rest. None for no Odometry.

    Raises:
        ArgumentError: also a topic that the bag does not have, or that has another type.
        LoadError: the bag cannot be read.
        UnavailableError: rosbags is not installed.
    """
    require_model(model)
    if odometry is not None:
        _require_floating(model)
    highlevel = _bags().highlevel
    wanted = {_topic(topic): JOINT_STATE, **({_topic(odometry): ODOMETRY} if odometry is not None else {})}
    rows: list[States] = []
    last: dict[str, Any] = {"q": None, "qd": None, "tau": None}
    try:
        with highlevel.AnyReader([Path(path)], default_typestore=_typestore()) as bag:
            types = {name: {each.msgtype for each in bag.connections if each.topic == name} for name in wanted}
            for name, kind in wanted.items():
                if types[name] != {kind}:
                    had = ", ".join(sorted(types[name])) or "nothing"
                    raise ArgumentError(f"topic: {brief(name)} has {had} in this bag; wanted {kind}")
            chosen = [each for each in bag.connections if each.topic in wanted]
            messages = groupby(bag.messages(connections=chosen), key=itemgetter(1))
            # Among messages with equal time stamps the Odometry comes first.
            ordered = (each for _, at in messages for each in sorted(at, key=lambda one: one[0].topic != odometry))
            for connection, _, raw in ordered:
                message = bag.deserialize(raw, connection.msgtype)
                if connection.topic == odometry:
                    base = from_odometry(model, message, last["q"], last["qd"])
                    last |= {"q": base.q, "qd": base.qd}
                else:
                    rows.append(from_joint_state(model, message, strict, **last))
                    last = {name: last[name] if new is None else new for name, new in
                            (("q", rows[-1].q), ("qd", rows[-1].qd), ("tau", rows[-1].tau))}  # fmt: skip
    except (RobodynError, OSError):
        raise
    except Exception as error:  # rosbags raises many kinds of errors for broken bags
        raise LoadError(f"cannot read the bag {brief(str(path))}: {brief(error)}") from error
    t, q = np.array([float(each.t) for each in rows]), np.array([each.q for each in rows])
    velocities_and_efforts = [None if not rows or any(getattr(each, name) is None for each in rows) else
            np.array([getattr(each, name) for each in rows]) for name in ("qd", "tau")]  # fmt: skip
    return States(t, q.reshape(-1, model.nq), velocities_and_efforts[0], velocities_and_efforts[1])


# Helpers.


def _topic(given: Any) -> str:
    name = strict_types.text_or_none(given)
    if not name:
        raise ArgumentError(f"topic: got {brief(given)}; wanted the name of one")
    return name


def _floats(model: Model) -> bool:
    return bool(model.n_bodies) and KINDS[model.joint_kind[0]].name == "floating" and int(model.parent[0]) < 0


def _require_floating(model: Any) -> None:
    require_model(model)
    if not _floats(model):
        raise ArgumentError(f"model: the base of {model.name!r} does not float; wanted a robot with base='floating'")


def _places(model: Model) -> dict[str, tuple[int, int]]:
    """Indices of coordinate and velocity of each joint with one degree of freedom that is no mimic joint."""
    return {
        name: (int(model.q_source[model.q_start[i]]), int(model.v_source[model.v_start[i]]))
        for i, name in enumerate(model.joint_names)
        if KINDS[model.joint_kind[i]].nv == 1 and model.mimics[i] < 0
    }


def _read(message: Any) -> tuple[list[str], dict[str, Array]]:
    """Names and numbers of a JointState."""
    try:
        members = None if strict_types.is_a(message.name, str) else strict_types.at_most(message.name, _MOST_NAMES)
        texts = [strict_types.text_or_none(name) for name in members or ()]
        names = [name for name in texts if name is not None]
        if members is None or len(names) < len(texts):
            raise ArgumentError(f"message.name: got {brief(message.name)}; wanted a list of names")
        arrays = {field: _numbers(f"message.{field}", getattr(message, field)) for field in _FIELDS}
    except RobodynError:
        raise
    except Exception as error:  # a foreign object may raise anything
        raise ArgumentError(f"message: got {brief(message)}; wanted a {JOINT_STATE}") from error
    twice = sorted(quoted(name) for name, times in Counter(names).items() if times > 1)
    if twice:
        raise ArgumentError(f"message: {listed(twice)} occurs twice; wanted each joint once")
    for field, array in arrays.items():
        if array.shape != (len(names),) and not (array.size == 0 and field != "position"):
            raise ArgumentError(f"message.{field}: got {array.size} numbers for {len(names)} names")
        require_finite(f"message.{field}", array, 1)
    return names, arrays


def _numbers(name: str, given: Any) -> Array:
    """Convert a list of numbers of a message to a float64 array. Texts, bytes and bools are refused."""
    array = as_array(name, given, "wanted numbers")
    members = strict_types.members(given) if strict_types.is_a(given, list, tuple) else ()
    spelt = strict_types.is_a(given, str, bytes, bytearray) or any(
        strict_types.is_a(each, str, bytes, bool) for each in members
    )
    if spelt or (array.size and array.dtype.kind not in "fiu"):
        raise ArgumentError(f"{name}: got {brief(given)}; wanted numbers")
    return array.astype(np.float64)


def _seconds(message: Any) -> float:
    """The time stamp of a message, s; 0 for a message without."""
    try:
        stamp = getattr(getattr(message, "header", None), "stamp", None)
        seconds, nanoseconds = (finite_real(getattr(stamp, part, 0)) for part in ("sec", "nanosec"))
    except Exception as error:  # a foreign object may raise anything
        raise ArgumentError(f"message.header.stamp: got {brief(message)}; wanted seconds and nanoseconds") from error
    if seconds is None or nanoseconds is None:
        raise ArgumentError(f"message.header.stamp: got {brief(stamp)}; wanted seconds and nanoseconds")
    return seconds + nanoseconds / _NANO


def _time(t: Any) -> float:
    seconds = finite_number("t", t)
    if not 0.0 <= seconds <= _MOST_SECONDS:
        raise ArgumentError(f"t: got {brief(t)}; wanted seconds from 0 to {_MOST_SECONDS}, as ROS has them")
    return seconds


def _made(kind: Any, given: dict[str, Any], t: Any, frame_id: str) -> Any:
    """Make a message of a class, with a header."""
    nanoseconds = round(math.modf(_time(t))[0] * _NANO)
    sec, nanosec = divmod(int(_time(t)) * _NANO + nanoseconds, _NANO)
    header = {"stamp": {"sec": sec, "nanosec": nanosec}, "frame_id": frame_id}
    try:
        return _filled(kind, {"header": header, **given})
    except Exception as error:  # a foreign class may raise anything
        raise ArgumentError(
            f"message: {brief(kind)} cannot be filled ({brief(error)}); wanted a class of a message"
        ) from error


def _filled(kind: Any, given: dict[str, Any]) -> Any:
    """Make a message with these fields. Classes of rosbags are dataclasses whose annotations name the types of parts;
    classes of rclpy make messages whose parts are then filled."""
    if not is_dataclass(kind):
        made = kind()
        _fill(made, given)
        return made
    types = _typestore().types
    parts = {each.name: str(each.type).replace("__", "/") for each in fields(kind)}
    make: Any = kind
    return make(
        **{
            name: _filled(types[parts[name]], value) if isinstance(value, dict) else value
            for name, value in given.items()
        }
    )


def _fill(made: Any, given: dict[str, Any]) -> None:
    for name, value in given.items():
        if isinstance(value, dict):
            _fill(getattr(made, name), value)
        else:
            setattr(made, name, value.tolist() if isinstance(value, np.ndarray) else value)


class _Bags:
    """Modules of rosbags, imported on demand."""

    def __init__(self) -> None:
        from rosbags import highlevel, rosbag2, typesys

        self.highlevel, self.rosbag2, self.typesys = highlevel, rosbag2, typesys


def _bags() -> _Bags:
    try:
        return _Bags()
    except ImportError as error:
        raise UnavailableError(
            f"robodyn.simulators.ros: rosbags cannot be imported here ({error}): {install('ros')}"
        ) from error


def _typestore() -> Any:
    typesys = _bags().typesys
    return typesys.get_typestore(typesys.Stores.ROS2_HUMBLE)
