"""Hostile objects at every public entry: only errors of our own come out, and what an object truly is counts."""

from __future__ import annotations

import dataclasses
import importlib.util
import itertools
import warnings
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import hostile_entries
import hostile_objects as hostile
import numpy as np
import pytest
from hostile_entries import ARM, TEXT, Entry, Q
from robots import own

import robodyn as rd
from robodyn import inertial_parameters
from robodyn.engines.gpu.options import GpuOptions
from robodyn.engines.scan.options import ScanOptions

SDF = '<sdf version="1.9"><model name="m"><link name="a"/></model></sdf>'
GRAVITY = (0.0, 0.0, -9.81)
Z6, Q2 = np.zeros(6), np.zeros((3, 6))
FORCES = np.zeros((ARM.n_bodies, 6))


def dynamics_entries() -> Iterator[tuple[str, Entry]]:
    """Options of a Dynamics, and arguments of its queries on every engine that runs on a CPU."""
    options = {
        "engine": "reference",
        "dtype": "float64",
        "threads": 1,
        "compile": "lazy",
        "check": True,
        "joint_forces": ("damping",),
        "code": "auto",
        "scan": None,
        "gpu": None,
    }
    for name, valid in options.items():
        yield f"Dynamics({name})", Entry(lambda x, n=name: rd.Dynamics(ARM, **{n: x}), valid)
    yield "Dynamics(model)", Entry(rd.Dynamics, ARM)
    yield from result_entries("reference")
    for engine in ("cpu", "scan"):
        dyn = rd.Dynamics(ARM, engine=engine)
        yield from result_entries(engine)
        yield f"{engine} q", Entry(lambda x, d=dyn: d.gravity_force(x), Q)
        yield f"{engine} qdd", Entry(lambda x, d=dyn: d.inverse_dynamics(Q, Z6, x), Z6)
        yield f"{engine} f_ext", Entry(lambda x, d=dyn: d.inverse_dynamics(Q, Z6, Z6, f_ext=x), FORCES)
        yield f"{engine} inertia", Entry(lambda x, d=dyn: d.gravity_force(Q, inertia=x), ARM.inertia)
        yield f"{engine} method", Entry(lambda x, d=dyn: d.forward_dynamics(Q, Z6, Z6, method=x), "auto")


def result_entries(engine: str) -> Iterator[tuple[str, Entry]]:
    """Arrays for results; options of queries."""
    dyn = rd.Dynamics(ARM, engine=engine)
    yield f"{engine} out", Entry(lambda x: dyn.gravity_force(Q, out=x), np.empty(6))
    yield f"{engine} out of a batch", Entry(lambda x: dyn.gravity_force(Q2, out=x), np.empty((3, 6)))
    if engine == "cpu":
        square = np.empty((6, 6))
        yield (
            "one of outs",
            Entry(lambda x: dyn.inverse_dynamics_gradient(Q, Z6, Z6, out=(x, square)), np.empty((6, 6))),
        )
        yield "outs", Entry(lambda x: dyn.inverse_dynamics_gradient(Q, Z6, Z6, out=x), (np.empty((6, 6)), square))
        yield "link", Entry(lambda x: dyn.jacobian(Q, x), "tool0")
        yield "frame", Entry(lambda x: dyn.jacobian(Q, "tool0", frame=x), "body")


def other_entries() -> Iterator[tuple[str, Entry]]:
    """Loading, models, functions."""
    for name, valid in {"source": TEXT, "base": "fixed", "mimic": "follow", "strict": True, "gravity": GRAVITY}.items():
        given = {"source": TEXT, "base": "fixed"} | {name: valid}
        yield f"load_urdf({name})", Entry(lambda x, n=name, g=given: rd.load_urdf(**{**g, n: x}), valid)
    yield "read_urdf", Entry(rd.read_urdf, TEXT)
    yield "path", Entry(rd.load_urdf, str(own("arm6")))
    yield "load", Entry(rd.load, TEXT)
    yield "load_sdf", Entry(rd.load_sdf, SDF)
    options = {"model": "m", "base": "fixed", "mimic": "follow", "strict": True, "gravity": GRAVITY}
    for name, valid in options.items():
        yield f"load_sdf({name})", Entry(lambda x, n=name: rd.load_sdf(SDF, **{n: x}), valid)
    yield "load_description", Entry(rd.load_description, "none")
    if importlib.util.find_spec("xacrodoc") is not None:
        yield "load_xacro", Entry(rd.load_xacro, str(own("arm6")))
        yield "load_xacro(args)", Entry(lambda x: rd.load_xacro(own("arm6"), x), {"a": "b"})
        yield "load_xacro(one of args)", Entry(lambda x: rd.load_xacro(own("arm6"), {"a": x}), "b")
        yield "load_xacro(package_dirs)", Entry(lambda x: rd.load_xacro(own("arm6"), {}, x), ())
        yield "load_xacro(one of package_dirs)", Entry(lambda x: rd.load_xacro(own("arm6"), {}, [x]), "models")
    description = rd.read_urdf(TEXT)
    yield "build_model", Entry(rd.build_model, description)
    for name in ("name", "links", "joints", "report"):
        yield (
            f"description.{name}",
            Entry(
                lambda x, n=name: rd.build_model(dataclasses.replace(description, **{n: x})), getattr(description, name)
            ),
        )
    joint, link = description.joints[0], description.links[1]
    for field in dataclasses.fields(joint):
        yield (
            f"joint.{field.name}",
            Entry(
                lambda x, n=field.name: rd.build_model(
                    dataclasses.replace(description, joints=(dataclasses.replace(joint, **{n: x}),))
                ),
                getattr(joint, field.name),
            ),
        )
    for field in dataclasses.fields(link):
        yield (
            f"link.{field.name}",
            Entry(
                lambda x, n=field.name: rd.build_model(
                    dataclasses.replace(description, links=(description.links[0], dataclasses.replace(link, **{n: x})))
                ),
                getattr(link, field.name),
            ),
        )
    for field in dataclasses.fields(rd.Model):
        valid = getattr(ARM, field.name)
        yield f"Model({field.name})", Entry(lambda x, n=field.name: dataclasses.replace(ARM, **{n: x}), valid)
    yield from object_entries()
    dyn = rd.Dynamics(ARM, engine="reference")
    yield "link_index", Entry(ARM.link_index, "tool0")
    yield "integrate", Entry(lambda x: ARM.integrate(x, Z6), Q)
    yield "integrate(dt)", Entry(lambda x: ARM.integrate(Q, Z6, x), 0.5)
    yield "difference", Entry(lambda x: ARM.difference(Q, x), Q)
    yield "tree_coordinates", Entry(ARM.tree_coordinates, Q)
    yield "random_configuration(rng)", Entry(ARM.random_configuration, 3)
    yield "random_configuration(shape)", Entry(lambda x: ARM.random_configuration(0, x), (2,))
    yield "model ==", Entry(ARM.__eq__, 3)
    yield "Tree", Entry(rd.Tree, [-1, 0, 1])
    yield "tree.level", Entry(lambda x: rd.Tree([-1, 0]).path(x), 1)
    for name, valid in {
        "n": 4,
        "seed": 3,
        "joints": ("revolute",),
        "shape": "chain",
        "mimic": 0.5,
        "armature": True,
    }.items():
        given = {"n": 4, "seed": 3}
        yield f"random_tree({name})", Entry(lambda x, n=name, g=given: rd.random_tree(**{**g, n: x}), valid)
    for name, valid in {"n": 4, "branching": 2.0, "taper": 0.9, "skew": 0.1, "gravity": GRAVITY}.items():
        yield f"auto_tree({name})", Entry(lambda x, n=name: rd.auto_tree(**{"n": 4, n: x}), valid)
    for name, valid in {"model": ARM, "q": Q, "link": "tool0", "wrench": Z6, "frame": "body"}.items():
        given = {"model": ARM, "q": Q, "link": "tool0", "wrench": Z6}
        yield f"external_force({name})", Entry(lambda x, n=name, g=given: rd.external_force(**{**g, n: x}), valid)
    for name in ("explain", "plain_task", "program", "capture"):
        yield name, Entry(getattr(dyn, name), "gravity_force")
    yield "explain(batch)", Entry(lambda x: dyn.explain("gravity_force", x), 3)
    yield "capture(q)", Entry(lambda x: dyn.capture("gravity_force", x), Q)
    yield "variant", Entry(dyn.variant, ARM)
    yield "engine =", Entry(lambda x: setattr(rd.Dynamics(ARM, engine="reference"), "engine", x), dyn.engine)
    yield from time_entries(rd.Dynamics(ARM, engine="cpu"))
    for name in ("pseudo_inertia", "consistency_margin", "physically_consistent", "deviation_metric"):
        yield name, Entry(getattr(inertial_parameters, name), [1.0, 0, 0, 0, 1.0, 0, 0, 1.0, 0, 1.0])
    yield "margin", Entry(lambda x: inertial_parameters.physically_consistent(ARM.inertia, x), 0.5)
    yield "in_frame", Entry(lambda x: inertial_parameters.in_frame(ARM.inertia, x), ARM.link_X[0])
    for kind, name, valid in (
        (GpuOptions, "kernel", "warp"),
        (GpuOptions, "fusion", "split"),
        (GpuOptions, "block_threads", 64),
        (ScanOptions, "layout", "euler"),
        (ScanOptions, "kernel", "blocked"),
        (ScanOptions, "block", 64),
        (ScanOptions, "constraint_basis", "unit"),
        (ScanOptions, "constraint_solver", "direct"),
    ):
        yield f"{kind.__name__}({name})", Entry(lambda x, k=kind, n=name: k(**{n: x}), valid)


def object_entries() -> Iterator[tuple[str, Entry]]:
    """Attributes of robot objects as urdfpy makes them."""
    eye = np.eye(4)
    parts = {
        "robot": {"name": "r"},
        "link": {"name": "b"},
        "inertial": {"mass": 1.0, "inertia": np.eye(3), "origin": eye},
        "joint": {"name": "j", "joint_type": "revolute", "parent": "a", "child": "b", "axis": [0.0, 0.0, 1.0]},
        "limit": {"lower": -1.0, "upper": 1.0, "effort": 3.0, "velocity": 2.0},
        "mimic": {"joint": "j", "multiplier": 1.0, "offset": 0.0},
    }

    def build(part: str, name: str, value: Any) -> Any:
        given = {
            key: SimpleNamespace(**{**values, **({name: value} if key == part else {})})
            for key, values in parts.items()
        }
        robot, link, joint = given["robot"], given["link"], given["joint"]
        link.__dict__.setdefault("inertial", given["inertial"])
        joint.__dict__.setdefault("limit", given["limit"])
        follower = SimpleNamespace(name="k", type="revolute", parent="b", child="c", axis=None, mimic=given["mimic"])
        robot.__dict__.setdefault("links", [SimpleNamespace(name="a"), link, SimpleNamespace(name="c")])
        robot.__dict__.setdefault("joints", [joint, follower])
        return rd.load_urdf(robot)

    for part, values in parts.items():
        extra = {
            "robot": {"links": [], "joints": []},
            "link": {"inertial": None},
            "joint": {"limit": None, "type": None},
        }
        for name, valid in {**values, **extra.get(part, {})}.items():
            yield f"object {part}.{name}", Entry(lambda x, p=part, n=name: build(p, n, x), valid)


def time_entries(dyn: rd.Dynamics) -> Iterator[tuple[str, Entry]]:
    """Rollouts and simulations."""
    given: dict[str, Any] = {"q0": Q, "qd0": Z6, "steps": 2}
    more = {"tau": Z6, "dt": 0.5, "integrator": "euler", "f_ext": FORCES, "policy": None, "inertia": ARM.inertia}
    more |= {"save_every": 1, "progress": False, "out": (np.empty((3, 6)), np.empty((3, 6)))}
    for name, valid in {**given, **more}.items():
        yield f"rollout({name})", Entry(lambda x, n=name: dyn.rollout(**{**given, n: x}), valid)
    yield "rollout(one of out)", Entry(lambda x: dyn.rollout(**given, out=(x, np.empty((3, 6)))), np.empty((3, 6)))
    yield "rollout(policy's)", Entry(lambda x: dyn.rollout(**given, policy=lambda *_: x), Z6)
    start: dict[str, Any] = {
        "robot": dyn,
        "q0": Q,
        "qd0": Z6,
        "t_end": 0.01,
        "method": "RK23",
        "rtol": 0.5,
        "atol": 0.5,
    }
    more = {"tau": Z6, "f_ext": FORCES, "t_eval": [0.0, 0.005], "events": (), "callback": None, "method": "RK45"}
    more |= {"rtol": 0.5, "atol": 0.5, "max_step": 0.5}
    for name, valid in {**start, **more}.items():
        yield f"simulate({name})", Entry(lambda x, n=name: rd.simulate(**{**start, n: x}), valid)
    yield "simulate(tau's)", Entry(lambda x: rd.simulate(**start, tau=lambda *_: x), Z6)
    yield "simulate(event's)", Entry(lambda x: rd.simulate(**start, events=lambda *_: x), 0.5)


ENTRIES = {**dict(dynamics_entries()), **dict(other_entries())}
ENTRIES |= {name: entry for entries in hostile_entries.ENTRIES for name, entry in entries()}


def outcome(entry: Entry, thing: Any) -> str:
    """What an entry makes of an object: nothing, or the error where it is none of ours."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            entry.call(thing)
    except rd.RobodynError as error:
        str(error)
    except Exception as error:
        return type(error).__name__
    return ""


def attack(name: str, things: Iterator[tuple[str, Any]]) -> None:
    """Pass all of them in; say which were met by an error that is none of ours."""
    entry = ENTRIES[name]
    wrong, tried = [], 0
    for what, thing in things:
        tried += 1
        found = outcome(entry, thing)
        if found:
            wrong.append(f"{what}: {found}")
    print(f"{name}: {tried} objects, {len(wrong)} wrong")
    assert tried and not wrong, wrong[:20]


COMMON = (
    *("__class__", "__getattr__", "__getattribute__", "__repr__", "__str__", "__hash__", "__eq__", "__bool__"),
    *("__len__", "__iter__", "__index__", "__float__", "__fspath__", "__array__", "__array_finalize__", "mask"),
)


@pytest.mark.parametrize("name", ENTRIES)
@pytest.mark.some(of=8, rest="matrix")
def test_only_errors_of_our_own_come_out(name: str) -> None:
    valid = ENTRIES[name].valid
    attack(name, hostile.liars(valid))
    attack(name, hostile.metaclasses())
    attack(name, hostile.endless())
    attack(name, hostile.raisers(valid, (RuntimeError,), COMMON))
    members = hostile.raisers(1.0, (RuntimeError,), ("__getattribute__", "__float__"))
    attack(name, hostile.inside(itertools.chain(hostile.metaclasses(), members)))
    if parts := list(hostile.parts(valid)):
        attack(name, iter(parts))


@pytest.mark.nightly
@pytest.mark.parametrize("name", [name for name in ENTRIES if "reference" not in name])
def test_only_errors_of_our_own_come_out_whatever_raises(name: str) -> None:
    attack(name, hostile.raisers(ENTRIES[name].valid, (hostile.Unspeakable,), hostile.HOOKS))


# What is true of an object is what counts.


def test_a_text_counts_by_its_characters() -> None:
    kind = hostile.liars("reference")
    word = next(thing for what, thing in kind if what == "lying text")
    dyn = rd.Dynamics(ARM, engine=word, dtype=hostile.made(type(word), "float32"))
    assert (dyn.engine.name, dyn.dtype) == ("reference", np.float32)
    assert type(dyn._options.engine) is str
    with pytest.raises(rd.ArgumentError, match=r"^engine: got .*; allowed: 'auto'"):
        rd.Dynamics(ARM, engine=hostile.made(type(word), "none"))
    model = rd.load_urdf(hostile.made(type(word), TEXT))
    assert model.link_index(hostile.made(type(word), "b")) == 1
    description = rd.read_urdf(TEXT)
    named = dataclasses.replace(description, name=hostile.made(type(word), "other robot"))
    assert type(rd.build_model(named).name) is str and rd.build_model(named).name == "other robot"
    assert rd.load_urdf(hostile.made(type(word), str(own("arm6")))) == ARM


def test_a_result_is_written_to_the_memory_that_an_array_has() -> None:
    lying = next(type(thing) for what, thing in hostile.liars(Q) if what == "lying array")
    for engine in ("cpu", "reference", "scan"):
        dyn = rd.Dynamics(ARM, engine=engine)
        for rows in (1, 3, 1000):
            q = np.tile(Q, (rows, 1))
            wanted = dyn.inverse_dynamics(q, Z6, Z6)
            out = hostile.made(lying, np.full((rows, 6), np.nan))
            assert dyn.inverse_dynamics(q, Z6, Z6, out=out) is out
            np.testing.assert_array_equal(np.asarray(out), wanted)
            np.testing.assert_array_equal(dyn.inverse_dynamics(hostile.made(lying, q), Z6, Z6), wanted)
        small = hostile.made(lying, np.full((2, 6), np.nan))
        with pytest.raises(rd.ArgumentError, match=r"^out: got .* of shape \(2, 6\)"):
            dyn.inverse_dynamics(np.tile(Q, (1000, 1)), Z6, Z6, out=small)
        assert np.isnan(np.asarray(small)).all()


def test_masked_results_are_refused() -> None:
    out = np.ma.masked_array(np.zeros(6), mask=[1, 0, 0, 0, 0, 0])
    with pytest.raises(rd.ArgumentError, match=r"^out: got an array with masked entries"):
        rd.Dynamics(ARM, engine="reference").inverse_dynamics(Q, Z6, Z6, out=out)


def test_numbers_count_by_what_they_hold() -> None:
    tree = rd.random_tree(4, seed=3)
    for what, thing in hostile.liars(4):
        if what == "lying int":
            assert rd.random_tree(thing, seed=3) == tree
            assert rd.auto_tree(thing) == rd.auto_tree(4)
            assert ARM.random_configuration(3, (thing,)).shape == (4, 6)
    with pytest.raises(rd.ArgumentError, match=r"^n: got"):
        rd.auto_tree(next(hostile.made(type(thing), 0) for what, thing in hostile.liars(4) if what == "lying int"))


def test_small_unsigned_integers_are_parents() -> None:
    for dtype in (np.uint8, np.uint16, np.uint32, np.uint64):
        assert rd.Tree(np.zeros(0, dtype)).parent.size == 0
        with pytest.raises(rd.ArgumentError, match=r"^parent\[0\]: got 0; wanted -1"):
            rd.Tree(np.zeros(2, dtype))
    with pytest.raises(rd.ArgumentError, match=r"^parent\[0\]: got 9223372036854775807"):
        rd.Tree(np.full(2, 2**64 - 1, np.uint64))


def test_what_has_no_end_ends() -> None:
    with pytest.raises(rd.ArgumentError, match=r"^joint_forces: got"):
        rd.Dynamics(ARM, joint_forces=(word for word in iter(lambda: "damping", None)))
    with pytest.raises(rd.ArgumentError, match=r"^events: got"):
        rd.simulate(ARM, Q, Z6, 0.1, events=iter(lambda: np.sin, None))
    with pytest.raises(rd.LoadError, match="has no end after 100000 reads"):
        rd.load_urdf(SimpleNamespace(read=lambda size: "x"))


def test_generators_of_random_numbers_are_told_from_seeds() -> None:
    """NumPy crashes on some objects that it is given as seeds."""
    one = ARM.random_configuration(np.random.default_rng(3))
    np.testing.assert_array_equal(ARM.random_configuration(3), one)
    np.testing.assert_array_equal(ARM.random_configuration(np.int8(3)), one)
    assert ARM.random_configuration().shape == (6,)
    for wrong in (-1, 1.5, True, "3", [3], object()):
        with pytest.raises(rd.ArgumentError, match=r"^rng: got .*; wanted a numpy.random.Generator or an integer seed"):
            ARM.random_configuration(wrong)


def test_the_errors_of_callbacks_are_their_own() -> None:
    """Functions that a user passes in to be called raise what they like, and that comes out as it is."""

    def fail(*_: Any) -> Any:
        raise ZeroDivisionError("mine")

    dyn = rd.Dynamics(ARM, engine="reference")
    for call in (
        lambda: dyn.rollout(Q, Z6, steps=2, policy=fail),
        lambda: rd.simulate(dyn, Q, Z6, 0.1, tau=fail),
        lambda: rd.simulate(dyn, Q, Z6, 0.1, callback=fail),
        lambda: rd.simulate(dyn, Q, Z6, 0.1, events=fail),
    ):
        with pytest.raises(ZeroDivisionError, match="mine"):
            call()


def test_errors_count_what_was_attacked() -> None:
    kinds = Counter(what.split(" ")[0] for what, _ in hostile.raisers(Q, (RuntimeError,), hostile.HOOKS))
    assert set(kinds) >= {"object", "str", "int", "tuple", "ndarray"} and min(kinds.values()) > 50
