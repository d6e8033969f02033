"""Places where users pass things in to build robots and to make other models of them, for tests of hostile objects."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from robots import own
from urdf_texts import INERTIAL

import robodyn as rd
from robodyn.description import (
    Extension,
    Finding,
    Geometry,
    Inertial,
    Joint,
    Limits,
    Link,
    Mimic,
    Pose,
    RobotDescription,
)

TEXT = (
    f'<robot name="r"><link name="a"/><link name="b">{INERTIAL}</link><joint name="j" type="continuous">'
    '<parent link="a"/><child link="b"/><axis xyz="0 0 1"/></joint></robot>'
)
ARM = rd.load_urdf(own("arm6"))
Q = np.linspace(0.1, 0.6, 6)
ORIGIN, EYE = (0.0, 0.0, 0.0), np.eye(4)


class Entry(NamedTuple):
    """A place where users pass something in.

    `call` takes it; `valid`: what is right there.
    """

    call: Callable[[Any], Any]
    valid: Any


Entries = Iterator[tuple[str, Entry]]


def arguments(name: str, call: Callable[..., Any], given: dict[str, Any]) -> Entries:
    """The arguments of a call, each of them in turn."""
    for argument, valid in given.items():
        yield f"{name}({argument})", Entry(lambda x, a=argument: call(**{**given, a: x}), valid)


def fields(name: str, part: Any, build: Callable[[Any], Any]) -> Entries:
    """A part of a description, and its fields, each of them in turn."""
    yield name, Entry(build, part)
    for field in dataclasses.fields(part):
        yield (
            f"{name}.{field.name}",
            Entry(lambda x, n=field.name: build(dataclasses.replace(part, **{n: x})), getattr(part, field.name)),
        )


class Parts:
    """A description in which each kind of part can be another."""

    def __init__(self) -> None:
        turning = Joint("j", "revolute", "a", "b", limits=Limits(-1.0, 1.0, 1.0, 1.0))
        following = Joint("k", "revolute", "b", "c", mimic=Mimic("j", 1.0, 0.0))
        self.inertial = Inertial(1.0, Pose(), (1.0, 0.0, 0.0, 1.0, 0.0, 1.0))
        self.links, self.joints = (Link("a"), Link("b", self.inertial), Link("c")), (turning, following)
        self.shape = Geometry("b", "visual", "box", Pose(), (1.0, 1.0, 1.0), color=(1.0, 0.0, 0.0, 1.0))
        self.kept = Extension("urdf", "robot", "", "<a/>")
        self.finding = Finding("info", "ignored-tag", "a", "b", 1, ("x",))

    def build(self, **changed: Any) -> rd.Model:
        """The model with another part or two."""
        links, joints = list(self.links), list(self.joints)
        if "inertial" in changed:
            links[1] = dataclasses.replace(links[1], inertial=changed["inertial"])
        for part, at in (("limits", 0), ("origin", 0), ("mimic", 1)):
            if part in changed:
                joints[at] = dataclasses.replace(joints[at], **{part: changed[part]})
        links[1], joints[0] = changed.get("link", links[1]), changed.get("joint", joints[0])
        found = {"report": (changed.get("finding", self.finding),), "geometries": (changed.get("shape", self.shape),)}
        found["extensions"] = (changed.get("kept", self.kept),)
        found |= {name: changed[name] for name in ("constraints", "geometries", "extensions") if name in changed}
        model = rd.build_model(RobotDescription("r", tuple(links), tuple(joints), **found))
        str(model.report)
        return model


def part_entries() -> Entries:
    """Parts of descriptions, and subclasses of them."""
    parts = Parts()
    for name in ("constraints", "geometries", "extensions"):
        yield f"parts({name})", Entry(lambda x, n=name: parts.build(**{n: x}), ())
    for name, part in {
        "inertial": parts.inertial,
        "limits": parts.joints[0].limits,
        "origin": Pose(),
        "mimic": parts.joints[1].mimic,
        "finding": parts.finding,
        "shape": parts.shape,
        "kept": parts.kept,
    }.items():
        yield from fields(f"part {name}", part, lambda x, n=name: parts.build(**{n: x}))
    yield from fields("part pose", Pose(), lambda x: parts.build(shape=dataclasses.replace(parts.shape, pose=x)))
    yield from fields("frame pose", Pose(), lambda x: ARM.with_frames({"n": ("tool0", x)}))


def shape_entries() -> Entries:
    """Attributes of what the links of robot objects look like."""
    parts: dict[str, dict[str, Any]] = {
        "visual": {"name": "v", "origin": EYE},
        "box": {"size": [1.0, 1.0, 1.0]},
        "cylinder": {"radius": 1.0, "length": 1.0},
        "mesh": {"filename": "a.stl", "scale": [1.0, 1.0, 1.0]},
        "material": {"name": "m", "color": [1.0, 0.0, 0.0, 1.0]},
        "geometry": {},
        "dynamics": {"damping": 1.0, "friction": 1.0},
        "link": {"name": "b"},
        "robot": {"name": "r", "materials": []},
    }

    def build(part: str, name: str, value: Any) -> Any:
        given = {
            key: SimpleNamespace(**{**values, **({name: value} if key == part else {})})
            for key, values in parts.items()
        }
        shape = part if part in ("cylinder", "mesh") else "box"
        given["geometry"].__dict__.setdefault(shape, given[shape])
        given["visual"].__dict__.update(geometry=given["geometry"], material=given["material"])
        given["link"].__dict__.setdefault("visuals", [given["visual"]])
        joint = SimpleNamespace(name="j", type="continuous", parent="a", child="b", dynamics=given["dynamics"])
        given["robot"].__dict__.update(links=[SimpleNamespace(name="a"), given["link"]], joints=[joint])
        return rd.load_urdf(given["robot"])

    for part, values in parts.items():
        extra = {"geometry": {"box": None, "mesh": None}, "link": {"visuals": [], "collisions": []}}.get(part, {})
        for name, valid in {**values, **extra}.items():
            yield f"object {part}.{name}", Entry(lambda x, p=part, n=name: build(p, n, x), valid)


def keyed(call: Callable[[Any], Any], value: Any) -> Callable[[Any], Any]:
    """The call of a dictionary with one key; what cannot be one does not come that far."""

    def of_key(key: Any) -> Any:
        try:
            given = {key: value}
        except Exception:
            return None
        return call(given)

    return of_key


def edit_entries() -> Entries:
    """What models are made into, and read and written as."""
    other, floating = rd.load_urdf(TEXT), rd.load_urdf(TEXT, base="floating")
    joint = ARM.joint_names[1]
    yield "with_frames", Entry(ARM.with_frames, {"n": ("tool0", None)})
    yield "with_frames(name)", Entry(keyed(ARM.with_frames, ("tool0", None)), "n")
    yield "with_frames(pair)", Entry(lambda x: ARM.with_frames({"n": x}), ("tool0", None))
    yield "with_frames(link)", Entry(lambda x: ARM.with_frames({"n": (x, None)}), "tool0")
    yield "with_frames(pose)", Entry(lambda x: ARM.with_frames({"n": ("tool0", x)}), EYE)
    given = {"link": "tool0", "mass": 1.0, "com": ORIGIN, "inertia": np.eye(3)}
    yield from arguments("with_inertia", ARM.with_inertia, given)
    yield "lock", Entry(ARM.lock, {joint: 0.5})
    yield "lock(name)", Entry(keyed(ARM.lock, 0.5), joint)
    yield "lock(number)", Entry(lambda x: ARM.lock({joint: x}), 0.5)
    yield "lock(array)", Entry(lambda x: ARM.lock({joint: x}), np.array([0.5]))
    yield "lock(numbers)", Entry(lambda x: floating.lock({0: x}), floating.neutral()[:7])
    yield from arguments("attach", ARM.attach, {"other": other, "link": "tool0", "pose": EYE, "prefix": "p_"})
    yield "subtree", Entry(ARM.subtree, "tool0")
    yield "reroot", Entry(ARM.reroot, "tool0")
    yield from arguments("to_urdf", ARM.to_urdf, {"meshes": "auto", "folder": "models", "package_dirs": ()})
    yield "to_urdf(one of package_dirs)", Entry(lambda x: ARM.to_urdf(package_dirs=[x]), "models")
    yield "to_mjcf(one of package_dirs)", Entry(lambda x: ARM.to_mjcf(package_dirs=[x]), "models")
    yield "Model.load", Entry(rd.Model.load, "none.npz")
    yield "configurations", Entry(lambda x: dataclasses.replace(ARM, configurations=x), {"a": Q})
    yield "configurations(name)", Entry(keyed(lambda x: dataclasses.replace(ARM, configurations=x), Q), "a")
    yield "configurations(q)", Entry(lambda x: dataclasses.replace(ARM, configurations={"a": x}), Q)
    yield "from_pinocchio", Entry(rd.from_pinocchio, None)
    for name, valid in {"library": "mujoco", "joint_names": list(ARM.joint_names)}.items():
        order = {"model": ARM, "library": "mujoco"}
        yield f"converter({name})", Entry(lambda x, n=name, g=order: rd.converter(**{**g, n: x}), valid)
    order = rd.JointOrder(["a", "b"], ["b", "c"], strict=False)
    yield "order", Entry(order, np.zeros(2))
    yield "order(fill)", Entry(lambda x: order(np.zeros(2), x), np.zeros(2))


def question_entries() -> Entries:
    """Constraints and tasks, and queries of several links and drives."""
    frames: dict[str, Any] = {"link": "a", "to": "b", "at": ORIGIN, "to_at": EYE, "baumgarte": (1.0, 1.0), "name": "n"}
    yield from arguments("Point", rd.Point, frames)
    yield from arguments("Weld", functools.partial(rd.Weld, "a"), {"rows": ("x", "y")})
    yield from arguments("Rod", functools.partial(rd.Rod, "a", "b"), {"length": 1.0})
    yield from arguments("Coupling", rd.Coupling, {"joints": {"a": 1.0}, "offset": 0.0})
    yield "Coupling(one of joints)", Entry(lambda x: rd.Coupling([x]), ("a", 1.0))
    yield from arguments("Lock", rd.Lock, {"joint": "a", "value": 1.0})
    yield from arguments("Baumgarte", rd.Baumgarte, {"velocity": 1.0, "position": 1.0})
    yield from arguments("PoseTask", rd.PoseTask, {"link": "tool0", "weight": 1.0, "point": ORIGIN})
    box = {"lower": -np.ones(3), "upper": 1.0, "priority": 1}
    yield from arguments("PositionTask", rd.PositionTask, {"link": "tool0", "weight": np.ones(3), **box})
    yield from arguments(
        "GazeTask", rd.GazeTask, {"link": "tool0", "axis": (1.0, 0.0, 0.0), "angle": 0.1, "priority": 2}
    )
    yield from arguments("DistanceTask", rd.DistanceTask, {"link": "tool0", "to": "base", "lower": 0.1, "upper": 1.0})
    yield from arguments("CoMTask", rd.CoMTask, {"weight": 1.0, "polygon": np.eye(3)[:, :2]})
    yield from arguments("ManipulabilityTask", rd.ManipulabilityTask, {"link": "tool0", "weight": 1.0, "axes": "all"})
    yield from arguments("DirectionTask", rd.DirectionTask, {"link": "tool0", "axis": (0.0, 0.0, 1.0), "weight": 1.0})
    yield from arguments("PostureTask", rd.PostureTask, {"q": Q, "weight": 1.0})
    solver = functools.partial(rd.InverseKinematics, ARM, engine="reference")
    yield from arguments("InverseKinematics", solver, {"tasks": "tool0", "posture": Q, "limits": True})
    dyn = rd.Dynamics(ARM, engine="reference")
    yield "links", Entry(lambda x: dyn.jacobian(Q, links=x), np.array([1, 2]))
    yield "one of links", Entry(lambda x: dyn.jacobian(Q, links=[x]), "tool0")
    held = rd.Dynamics(dataclasses.replace(ARM, constraints=(rd.Point("tool0"),)), engine="reference")
    Z6 = np.zeros(6)
    for name, valid in {"actuated": np.ones(6, bool), "names": list(ARM.velocity_names)}.items():
        yield name, Entry(lambda x: held.constrained_inverse_dynamics(Q, Z6, Z6, actuated=x), valid)
    yield "force_weight", Entry(lambda x: held.constrained_inverse_dynamics(Q, Z6, Z6, force_weight=x), np.ones(3))


def solver_entries() -> Entries:
    """Trajectories, whole-body control and identification, of a robot with one joint."""
    model, one, pair = rd.load_urdf(TEXT), np.array([0.1]), (np.array([0.1]), np.array([0.2]))
    dyn, costs = rd.Dynamics(model, joint_forces=()), rd.costs
    yield from arguments("State", costs.State, {"q": 1.0, "qd": one, "q_goal": one, "qd_goal": one, "final": True})
    yield from arguments("Control", costs.Control, {"weight": 1.0, "tau_goal": one})
    yield from arguments("Pose", costs.Pose, {"link": "b", "target": EYE, "weight": (1.0, 2.0), "final": True})
    yield from arguments("CenterOfMass", costs.CenterOfMass, {"target": ORIGIN, "weight": 1.0, "final": False})
    yield from arguments("Clearance", costs.Clearance, {"distance": 0.1, "obstacles": None})
    yield from arguments("Friction", costs.Friction, {"foot": "b", "mu": 0.5})
    cost = costs.Control(1.0) + costs.State(q=1.0, q_goal=one)
    given = {"dyn": dyn, "cost": cost, "start": pair, "steps": 2, "dt": 0.1}
    rest = {"limits": ("effort",), "actuated": ["j"], "active": None, "targets": None}
    more = {"tau0": one, "q_guess": (one, one), "method": "ilqr", "iterations": 1, "tolerance": 0.1, "progress": False}
    yield from arguments("optimize_trajectory", rd.optimize_trajectory, given | rest | more)
    yield "start's", Entry(lambda x: rd.optimize_trajectory(dyn, cost, (x, one), 2, 0.1), one)
    del given["start"]
    yield from arguments("Mpc", rd.Mpc, given | rest)
    mpc = rd.Mpc(dyn, cost, 2, 0.1)
    yield from arguments("mpc", mpc, {"q": one, "qd": one, "goal": one, "elapsed": 0.1})
    posture = rd.PostureTask(one)
    tracking = {"task": posture, "kp": 1.0, "kd": 1.0, "weight": 1.0, "priority": 1}
    yield from arguments("Tracking", rd.Tracking, tracking)
    foot = rd.Contact(rd.Sphere("b", radius=0.1), rd.Plane())
    tasks = [rd.Tracking(posture), rd.Tracking(rd.PoseTask("b"))]
    control = {"dyn": dyn, "tasks": tasks, "feet": [foot], "limits": ("effort",)}
    yield from arguments("WholeBodyControl", rd.WholeBodyControl, control)
    wbc = rd.WholeBodyControl(**control)
    yield from arguments("wbc", wbc, {"q": one, "qd": one, "targets": EYE[None], "active": [True]})
    yield "to_c", Entry(wbc.to_c, "name")
    q, qd, qdd = np.random.default_rng(0).standard_normal((3, 20, 1))
    logs = {"model": model, "q": q, "qd": qd, "qdd": qdd, "tau": qdd}
    options = {"friction": True, "armature": False, "consistent": False, "prior": model, "prior_weight": 0.1}
    options |= {"measured": ["j"], "slowest": 0.1, "noise": 0.1, "f_ext": None, "targets": None, "active": None}
    yield from arguments("identify", rd.identify, logs | options)
    found = rd.identify(model, q, qd, qdd, qdd)
    yield "torques", Entry(lambda x: found.torques(x, one, one), one)
    smooth = {"q": np.linspace(0.0, 1.0, 40)[:, None], "t": 0.1, "cutoff": 2.0, "model": model}
    yield from arguments("differentiate", rd.differentiate, smooth)
    yield "differentiate(times)", Entry(lambda x: rd.differentiate(smooth["q"], x, None), 0.1 * np.arange(40.0))
    limits = {"velocity_limit": 1.0, "acceleration_limit": one, "share": 0.5, "friction": False, "armature": True}
    search = {"model": model, "duration": 1.0, "harmonics": 2, "rounds": 1, "rng": 3}
    yield from arguments("exciting_trajectory", rd.exciting_trajectory, search | limits)
    motion = rd.exciting_trajectory(**search)
    yield "motion", Entry(motion, 0.5)


ENTRIES = (part_entries, shape_entries, edit_entries, question_entries, solver_entries)
