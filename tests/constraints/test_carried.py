"""Constraints from files, through edits, and into files: what they hold stays held."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import numpy as np
import pytest
from robots import tree
from sdf_texts import POSE, axis, joint, link, sdf
from test_constraints import pose, some

import robodyn as rd
from robodyn.core.constraints.resolved import resolved_constraints, row_names
from robodyn.description import IDENTITY, Inertial, Joint, Link, Pose, RobotDescription, rotation_from_rpy
from robodyn.joints import KINDS

CLOSE = 1e-12
"""Frames are turned there and back, a rounding or two each."""
HEAVY = Inertial(1.3, Pose((0.1, -0.2, 0.3), rotation_from_rpy(0.3, 0.1, -0.4)), (0.3, 0.01, 0.02, 0.25, -0.01, 0.2))
BODY = (
    '<inertial><origin xyz="0.1 -0.2 0.3"/><mass value="1.3"/>'
    '<inertia ixx="0.3" ixy="0" ixz="0" iyy="0.25" iyz="0" izz="0.2"/></inertial>'
)
ORIGIN, BEYOND, AXIS = (0.3, -0.1, 0.4, 0.2, 0.5, -0.3), (0.1, 0.2, -0.2, -0.4, 0.1, 0.7), (0.0, -0.6, 0.8)


def findings(model, code):
    return [each for each in model.report if each.code == code]


def residual(model, q):
    """phi by names of rows."""
    dyn = rd.Dynamics(model, engine="reference")
    phi, _ = dyn.constraint_residual(q, np.zeros(model.nv))
    return dict(zip(dyn.constraint_names, phi.T, strict=True))


def numbers(xyz):
    return " ".join(map(repr, xyz))


def urdf(*parts, links="abcd"):
    return f"<robot name='r'>{''.join(f'<link name={name!r}>{BODY}</link>' for name in links)}{''.join(parts)}</robot>"


def hinge(name, parent, child, kind="continuous", more='<axis xyz="0 1 0"/>'):
    origin = '<origin xyz="0.5 0.1 0" rpy="0.1 0.2 0.3"/>'
    return f'<joint name="{name}" type="{kind}">{origin}<parent link="{parent}"/><child link="{child}"/>{more}</joint>'


def loop(kind="revolute", one="c", other="d", along='<axis xyz="0 -0.6 0.8"/>', name="z"):
    def end(tag, which, six):
        return f'<{tag} link="{which}" xyz="{numbers(six[:3])}" rpy="{numbers(six[3:])}"/>'

    along = "" if kind in ("ball", "fixed") else along
    ends = f"{end('link1', one, ORIGIN)}{end('link2', other, BEYOND)}"
    return f'<loop_joint name="{name}" type="{kind}">{ends}{along}</loop_joint>'


TREE = hinge("ab", "a", "b"), hinge("bc", "b", "c"), hinge("ad", "a", "d")


# Descriptions.


def test_descriptions_carry_constraints():
    description = replace(rd.read_urdf(urdf(*TREE)), constraints=(rd.Point("c", "d"), rd.Lock("ab")))
    model = rd.build_model(description)
    assert model.constraints == description.constraints and row_names(model)[-1] == "ab.value"
    cases = {
        "'wing': joint": rd.Lock("wing"),
        "'e': link: got 'e'": rd.Point("e"),
        "both frames are on the world": rd.Weld("a"),
        "wanted 1 coordinates": rd.Lock("ab", (1.0, 2.0)),
    }
    for match, wrong in cases.items():
        with pytest.raises(rd.LoadError, match=match):
            rd.build_model(replace(description, constraints=(rd.Point("c", "d"), wrong)))
    for wrong in ((3,), [rd.Lock("ab")], None, (rd.Lock("ab"), "x")):
        with pytest.raises(rd.LoadError, match="robot constraints"):
            rd.build_model(replace(description, constraints=wrong))


# Loops of files.


@pytest.mark.parametrize("kind", ["revolute", "continuous", "prismatic", "ball", "fixed"])
def test_a_loop_joint_moves_as_a_joint(kind):
    """A body that floats and is held by a loop joint has the accelerations of one on a joint of that type."""
    free = '<joint name="free" type="floating"><parent link="a"/><child link="b"/></joint>'
    held = rd.load_urdf(urdf(free, loop(kind, "a", "b"), links="ab"))
    (found,) = findings(held, "urdf-loop")
    assert found.severity == "info" and found.elements == ('loop_joint "z"',)
    assert type(held.constraints[0]).__name__ in found.message
    steps = [Pose(six[:3], rotation_from_rpy(*six[3:])) for six in (ORIGIN, BEYOND)]
    back = np.eye(4)
    back[:3, :3], back[:3, 3] = np.reshape(steps[1].rotation, (3, 3)), steps[1].xyz
    back = np.linalg.inv(back)
    inverse = Pose(tuple(back[:3, 3].tolist()), tuple(back[:3, :3].ravel().tolist()))
    body = rd.read_urdf(urdf(free, links="ab")).links
    joints = (
        Joint("z", {"ball": "spherical"}.get(kind, kind), "a", "frame", steps[0], AXIS),
        Joint("on", "fixed", "frame", "b", inverse),
    )
    one = rd.build_model(RobotDescription("r", (body[0], Link("frame"), body[1]), joints))
    rng = np.random.default_rng(3)
    dyn, other = (rd.Dynamics(model, engine="reference") for model in (one, held))
    q, qd, f = one.random_configuration(rng), rng.normal(size=one.nv), rng.normal(size=6)
    T = dyn.forward_kinematics(q)[one.link_index("b")]
    x, y, z, w = (float(each) for each in _quaternion(T[:3, :3]))
    there = np.array([*T[:3, 3], x, y, z, w])
    V = dyn.link_velocity(q, qd, "b", frame="body")
    rates = np.concatenate([V[3:], V[:3]])
    phi, phidot = other.constraint_residual(there, rates)
    assert np.abs(phi).max() < CLOSE and np.abs(phidot).max() < CLOSE
    J = dyn.jacobian(q, "b", frame="body")[[3, 4, 5, 0, 1, 2]]
    qdd = dyn.forward_dynamics(q, qd, J.T @ f)
    dV = dyn.link_acceleration(q, qd, qdd, "b", frame="body")
    wanted = np.concatenate([dV[3:], dV[:3]])
    got, _ = other.constrained_forward_dynamics(there, rates, f)
    assert np.abs(got - wanted).max() < 1e-9 * max(1.0, np.abs(wanted).max())


def _quaternion(R):
    from robodyn.io.editing.writer_common import quaternion_of

    w, x, y, z = quaternion_of(tuple(R.ravel()))
    return x, y, z, w


def test_a_second_parent_closes_a_loop():
    """The first joint of the file carries the link."""
    model = rd.load_urdf(urdf(*TREE, hinge("dc", "d", "c")))
    assert model.joint_names == ("ab", "bc", "ad") and model.constraints[0].rows == ("rx", "ry", "x", "y", "z")
    (found,) = findings(model, "urdf-loop")
    assert found.elements == ('joint "dc"',) and found.severity == "info"
    other = rd.load_urdf(urdf(hinge("dc", "d", "c"), *TREE))
    assert other.joint_names == ("ab", "ad", "dc") and other.constraints[0].name == "bc"
    limited = hinge("dc", "d", "c", more='<axis xyz="0 1 0"/><dynamics damping="1"/>')
    assert "its damping has no part" in findings(rd.load_urdf(urdf(*TREE, limited)), "urdf-loop")[0].message
    assert rd.read_urdf(urdf(*TREE, loop())).constraints[0].to == "c"
    for kind, rows in (("planar", ("rx", "ry", "z")), ("spherical", ("x", "y", "z")), ("fixed", rd.Weld("x").rows)):
        more = '<axis xyz="0 1 0"/>' if kind == "planar" else ""
        assert rd.load_urdf(urdf(*TREE, hinge("dc", "d", "c", kind, more))).constraints[0].rows == rows
    for kind, more in (("floating", ""), ("helical", '<axis xyz="1 0 0" pitch="1"/>'), ("universal", "")):
        model = rd.load_urdf(urdf(*TREE, hinge("dc", "d", "c", kind, more)))
        assert [each.severity for each in findings(model, "urdf-loop")] == ["warning"] and not model.constraints
    still = rd.load_urdf(urdf(*TREE, hinge("ac", "a", "e", "fixed", ""), loop(one="a", other="e"), links="abcde"))
    assert findings(still, "urdf-loop")[0].severity == "warning" and not still.constraints


@pytest.mark.parametrize("kind", ["continuous", "prismatic", "spherical", "planar"])
def test_two_joints_of_urdf_in_one_place(kind):
    """The second of two equal joints is a constraint that holds wherever the first leads."""
    more = "" if kind == "spherical" else '<axis xyz="0 -0.6 0.8"/>'
    joints = hinge("one", "b", "c", kind, more), hinge("two", "b", "c", kind, more)
    model = rd.load_urdf(urdf(hinge("ab", "a", "b"), *joints, links="abc"))
    assert model.constraints[0].name == "two"
    phi = residual(model, model.random_configuration(0, (5,)))
    assert max(np.abs(each).max() for each in phi.values()) < CLOSE


def test_mimics_of_joints_that_close_loops():
    parts = *TREE, hinge("dc", "d", "c"), hinge("ce", "c", "e", more='<axis xyz="0 1 0"/><mimic joint="dc"/>')
    with pytest.raises(rd.LoadError, match=r'"ce".* mimics joint "dc", which closes a loop'):
        rd.load_urdf(urdf(*parts, links="abcde"))
    free = rd.load_urdf(urdf(*parts, links="abcde"), mimic="ignore")
    assert free.nv == 4 and free.constraints[0].name == "dc"
    own = hinge("dc", "d", "c", more='<axis xyz="0 1 0"/><mimic joint="ab"/>')
    assert "its mimic has no part" in findings(rd.load_urdf(urdf(*TREE, own)), "urdf-loop")[0].message


@pytest.mark.parametrize(
    ("parts", "match"),
    [
        ([hinge("dc", "c", "c")], "joins link .c. to itself"),
        ([hinge("aa", "a", "a")], "cycle"),
        ([hinge("ca", "c", "a")], "cycle"),
        ([hinge("ab", "d", "c")], "defined twice"),
        ([hinge("x", "wing", "c")], "wing.*does not exist"),
        ([hinge("x", "d", "wing"), hinge("y", "c", "wing")], "wing.*does not exist"),
        ([loop("screw")], "type .screw.; allowed are fixed, ball"),
        ([loop(one="d")], "itself"),
        ([loop(one="wing")], "wing.*does not exist"),
        ([loop(name="ab")], "defined twice"),
        ([loop(), loop()], "defined twice"),
        ([loop(name="")], "missing or blank"),
        ([loop().replace("link2", "link3")], "has no <link2"),
        ([loop().replace("0.3 -0.1", "0.3")], "3 finite numbers"),
        ([loop().replace("0.3 -0.1", "nan -0.1")], "3 finite numbers"),
        ([loop(along='<axis xyz="0 0 0"/>')], "direction"),
        ([loop().replace("link1 link", "link1 xlink")], "link of <link1> is missing"),
    ],
)
def test_loops_that_are_refused(parts, match):
    for read in (rd.read_urdf, rd.load_urdf):
        with pytest.raises(rd.LoadError, match=match):
            read(urdf(*TREE, *parts))


@pytest.mark.parametrize("kind", ["revolute", "continuous", "prismatic", "ball"])
@pytest.mark.parametrize("turned", [False, True])
def test_two_joints_of_sdf_in_one_place(kind, turned):
    """The second of two equal joints between two links is a constraint that holds wherever the first leads."""
    ends = ("b", "a") if turned else ("a", "b")
    where = POSE.replace("<pose>", '<pose relative_to="b">')
    more = axis("1 2 -2", expressed_in="b") if kind != "ball" else ""
    parts = joint("one", "a", "b", kind, where, more), joint("two", *ends, kind, where, more)
    model = rd.load_sdf(sdf(link("a", POSE), link("b", "<pose>1 0.2 0.3 0.1 0 2</pose>"), *parts), base="fixed")
    assert model.constraints[0].name == "two" and model.constraints[0].to == ends[0]
    (found,) = findings(model, "sdf-loop")
    assert found.severity == "info" and type(model.constraints[0]).__name__ in found.message
    phi = residual(model, model.random_configuration(0, (5,)))
    assert max(np.abs(each).max() for each in phi.values()) < CLOSE


def test_joints_of_sdf_that_are_left_out():
    for kind, more in (("universal", axis("1 0 0") + axis("0 1 0", tag="axis2")), ("screw", None), ("gearbox", "")):
        parts = joint("one", "a", "b"), joint("two", "a", "b", kind, POSE, more)
        model = rd.load_sdf(sdf(link("a"), link("b"), *parts))
        assert findings(model, "sdf-loop")[0].severity == "warning" and not model.constraints


# Edits.


def names_of(model):
    """Free joints of one coordinate, and what follows none of them."""
    kinds = model.joint_kind.tolist()
    return [name for b, name in enumerate(model.joint_names) if KINDS[kinds[b]].nq == 1 and model.mimics[b] < 0]


@pytest.fixture(params=range(6))
def constrained(request):
    """A random tree with constraints of every kind, some to the world, and its seed."""
    model = tree(request.param, 8)
    rng = np.random.default_rng(request.param)
    moving = [name for name, b in zip(model.link_names, model.link_body, strict=True) if b >= 0]
    more = [rd.Weld(moving[-1], at=pose(rng), to_at=pose(rng), name="foot"), rd.Point(moving[-1], name="bare")]
    more += [rd.Lock(model.joint_names[-1], name="lock")] if model.mimics[-1] < 0 else []
    return replace(model, constraints=(*some(model, request.param), *more)), request.param


def spread(model, other, q):
    """Coordinates of another model, whose joints are those of the first and more, where the common ones are."""
    found = np.tile(other.neutral(), (*q.shape[:-1], 1))
    for b, name in enumerate(model.joint_names):
        if model.mimics[b] < 0:
            c = other.joint_index(name)
            n = KINDS[model.joint_kind[b]].nq
            start, here = other.q_source[other.q_start[c]], model.q_source[model.q_start[b]]
            found[..., start : start + n] = q[..., here : here + n]
    return found


def test_frames_and_inertias_change_nothing(constrained):
    model, _ = constrained
    framed = model.with_frames({"tcp": (model.link_names[-1], (0.1, 0.2, 0.3))})
    heavy = model.with_inertia(model.link_names[-1], mass=3.0, inertia=np.eye(3))
    assert framed.constraints == heavy.constraints == model.constraints
    assert framed.proximal == heavy.proximal == model.proximal


def test_locked_joints(constrained):
    """What is left has the residual that it had; couplings have what was locked in their offset."""
    model, seed = constrained
    model = replace(model, proximal=(1e-6, 2))
    rng = np.random.default_rng(seed)
    free = names_of(model)
    locked = {name: float(rng.normal()) for name in free[::2]}
    small = model.lock(locked)
    assert small.proximal == (1e-6, 2)
    q = small.random_configuration(rng, (3,))
    there = spread(small, model, q)
    for name, value in locked.items():
        there[..., model.q_source[model.q_start[model.joint_index(name)]]] = value
    was, now = residual(model, there), residual(small, q)
    for name, phi in now.items():
        assert np.abs(phi - was[name]).max() < CLOSE * max(1.0, np.abs(was[name]).max())
    dropped = {name for each in findings(small, "constraint-dropped") for name in each.elements}
    left = {f'constraint "{each.name}"' for each in model.constraints} - {
        f'constraint "{each.name}"' for each in small.constraints
    }
    assert dropped == left
    still = model.lock({name: None for name, leader in zip(model.joint_names, model.mimics, strict=True) if leader < 0})
    assert still.nv == 0 and not still.constraints


def test_couplings_of_locked_joints():
    model = rd.load_urdf(urdf(*TREE))
    held = (
        rd.Coupling({"ab": 1.0, "bc": -2.0, "ad": 0.5}, 0.1, (3.0, 0.7), "sum"),
        rd.Lock("bc"),
        rd.Coupling({"ab": 1}),
    )
    small = replace(model, constraints=held).lock({"bc": 0.3, "ab": 0.2})
    (one,) = small.constraints
    assert one.joints == (("ad", 0.5),) and one.baumgarte == (3.0, 0.7) and one.name == "sum"
    assert one.offset == pytest.approx(0.1 - 0.2 + 0.6)
    assert findings(small, "constraint-changed")[0].elements == ('constraint "sum"',)
    dropped = {name for each in findings(small, "constraint-dropped") for name in each.elements}
    assert dropped == {'constraint "bc"', 'constraint "ab"'}
    assert replace(model, constraints=(rd.Coupling({"ab": 0.0, "bc": 1.0}),)).lock({"bc": 0.0}).constraints == ()


def test_attached_robots(constrained):
    other, seed = constrained
    rng = np.random.default_rng(seed)
    big = tree(seed + 1, 8)
    big = replace(big, constraints=tuple(some(big, seed + 1)))
    at = big.link_names[len(big.link_names) // 2]
    both = big.attach(other, at, pose(rng), "other/")
    assert both.constraints[: len(big.constraints)] == big.constraints
    mine, theirs = big.random_configuration(rng, (3,)), other.random_configuration(rng, (3,))
    now = residual(both, np.concatenate([mine, theirs], axis=-1))
    for name, phi in residual(big, mine).items():
        assert np.abs(now[name] - phi).max() < CLOSE * max(1.0, np.abs(phi).max())
    for name, phi in residual(other, theirs).items():
        assert np.abs(now[f"other/{name}"] - phi).max() < 1e2 * CLOSE * max(1.0, np.abs(phi).max())
    assert {each.to for each in both.constraints if "foot" in each.name} == {at}
    assert 'constraint "other/foot"' in findings(both, "constraint-changed")[0].elements


def test_parts(constrained):
    model, seed = constrained
    rng = np.random.default_rng(seed)
    for link_name in model.link_names:
        try:
            part = model.subtree(link_name)
        except rd.ArgumentError as error:
            assert "stays behind" in str(error)
            continue
        inside, joints = set(part.link_names), set(part.joint_names)
        on_world = model.link_body[model.link_index(link_name)] < 0
        kept = []
        for each in resolved_constraints(model):
            given = model.constraints[each.number]
            if each.framed:
                stays = given.link in inside and (given.to in inside if given.to else on_world)
            elif isinstance(given, rd.Lock):
                stays = given.joint in joints
            else:
                stays = all(name in joints for name, _ in given.joints)
            kept += [given.name] if stays else []
        assert [each.name for each in part.constraints] == kept
        if kept:
            q = part.random_configuration(rng, (2,))
            was = residual(model, spread(part, model, q))
            for name, phi in residual(part, q).items():
                assert np.abs(phi - was[name]).max() < 1e2 * CLOSE * max(1.0, np.abs(phi).max())


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.some(of=3, rest="matrix")
def test_other_roots(seed):
    """Links stand to each other as they did, and what was held to the world is held to what the world was."""
    rng = np.random.default_rng(seed)
    kinds = ("revolute", "prismatic", "helical", "fixed", "universal", "continuous")
    model = rd.random_tree(9, seed=seed, joints=kinds, mimic=0.3)
    moving = [name for name, b in zip(model.link_names, model.link_body, strict=True) if b >= 0]
    held = [
        *some(model, seed),
        rd.Weld(moving[-1], at=pose(rng), to_at=pose(rng), name="foot"),
        rd.Rod(moving[0], to_at=(0.1, 0.2, 0.3), length=1),
    ]
    model = replace(model, constraints=tuple(held))
    for root in model.link_names:
        turned = model.reroot(root)
        assert not findings(turned, "constraint-dropped")
        q = model.random_configuration(rng, (2,))
        was, now = residual(model, q), residual(turned, spread(model, turned, q))
        for name, phi in was.items():
            assert np.abs(now[name] - phi).max() < 1e2 * CLOSE * max(1.0, np.abs(phi).max()), (root, name)


def test_a_world_without_links_becomes_one():
    model = rd.auto_tree(6, branching=2.0)
    model = replace(model, constraints=(rd.Weld(model.link_names[-1], to_at=pose(np.random.default_rng(5))),))
    turned = model.reroot(model.link_names[2])
    assert turned.link_names[-1] == "world" == turned.constraints[0].to
    q = model.random_configuration(1, (3,))
    was, now = residual(model, q), residual(turned, spread(model, turned, q))
    assert max(np.abs(now[name] - phi).max() for name, phi in was.items()) < 10 * CLOSE
    assert rd.load_urdf(turned.to_urdf()).joint_names == turned.joint_names


def test_locks_of_joints_that_are_turned():
    joints = [
        Joint("s", "spherical", "a", "b"),
        Joint("p", "planar", "b", "c", axis=(0.0, 0.0, 1.0)),
        Joint("f", "floating", "c", "d"),
    ]
    model = rd.build_model(RobotDescription("r", tuple(Link(name, HEAVY) for name in "abcd"), tuple(joints)))
    rng = np.random.default_rng(4)
    at = {name: rng.normal(size=n) for name, n in (("s", 4), ("p", 3), ("f", 7))}
    locks = tuple(rd.Lock(name, tuple(value)) for name, value in at.items())
    turned = replace(model, constraints=locks).reroot("d")
    q = np.concatenate(
        [turned.constraints[[c.name for c in turned.constraints].index(name)].value for name in turned.joint_names]
    )
    there, here = (rd.Dynamics(each, engine="reference") for each in (turned, model))
    poses = there.forward_kinematics(q)
    old = here.forward_kinematics(np.concatenate([at["s"], at["p"], at["f"]]))
    wanted = np.linalg.inv(old[3]) @ old
    assert np.abs(poses - wanted).max() < CLOSE * 10


def test_floating_robots_are_held_by_the_world_still():
    model = rd.load_urdf(urdf(*TREE), base="floating")
    model = replace(model, constraints=(rd.Point("c"), rd.Weld("d", to_at=(1.0, 2.0, 3.0))))
    assert model.reroot("b").constraints == model.constraints


# Files.


def every():
    """A model with a constraint of every kind, with all that these can say, signs of zeros among them."""
    model = rd.load_urdf(urdf(*TREE))
    rng = np.random.default_rng(1)
    flat = Pose((-0.0, 0.0, 1e-300), IDENTITY)
    held = (
        rd.Point("c", "d", at=(1.0, 2.0, 3.0), to_at=pose(rng), baumgarte=(3, 0.5)),
        rd.Point("c", at=flat, name="\u00e9\0"),
        rd.Weld("d", "b", at=pose(rng), to_at=pose(rng), rows=["x", "rz"]),
        rd.Rod("c", "d", length=0.7),
        rd.Coupling({"ab": 1.0, "bc": -2.0}, -0.0, (1.0, 1.0)),
        rd.Lock("ad"),
        rd.Lock("ad", 0.3, name="again"),
        rd.Lock("ad", baumgarte=rd.Baumgarte(0.0, 2.0)),
        rd.Rolling("c", (0.3, -0.4, 1.1), 0.2, "d", at=pose(rng)),
    )
    return replace(model, constraints=held, proximal=(1e-7, 5))


def test_saved_bit_for_bit(tmp_path):
    model = every()
    model.save(tmp_path / "robot.npz")
    again = rd.Model.load(tmp_path / "robot.npz")
    assert again == model and again.constraints == model.constraints and again.proximal == model.proximal
    assert repr(again.constraints) == repr(model.constraints)  # signs of zeros
    loaded = rd.load_urdf(urdf(*TREE, loop(), hinge("dc", "d", "c", "helical", '<axis xyz="1 0 0" pitch="1"/>')))
    loaded.save(tmp_path / "robot.npz")
    assert rd.load(tmp_path / "robot.npz").report == loaded.report


CHANGES = {
    "no list": (lambda c: 3, "cannot be read|constraint"),
    "a number": (lambda c: [3], "a constraint 3"),
    "another kind": (lambda c: [c[0] | {"kind": "Glue"}], "wanted one of Point"),
    "a kind that is a list": (lambda c: [c[0] | {"kind": ["Point"]}], "wanted one of Point"),
    "a field more": (lambda c: [c[0] | {"glue": 1}], "a Point of"),
    "a field less": (lambda c: [{"kind": "Point", "link": "c"}], "a Point of"),
    "eleven numbers": (lambda c: [c[0] | {"at": c[0]["at"][:11]}], "Point.at: got"),
    "no place": (lambda c: [c[0] | {"at": "here"}], "Point.at: got"),
    "not finite": (lambda c: [c[0] | {"at": [float("nan"), *c[0]["at"][1:]]}], "Point.at: got"),
    "no rotation": (lambda c: [c[0] | {"to_at": [2.0, *c[0]["to_at"][1:]]}], "wanted a rotation"),
    "no link": (lambda c: [c[0] | {"link": "wing"}], "link: got 'wing'"),
    "a link that is a number": (lambda c: [c[0] | {"link": 3}], "Point.link"),
    "one body": (lambda c: [c[0] | {"link": "d"}], "both frames"),
    "rows of nothing": (lambda c: [c[2] | {"rows": []}], "Weld.rows"),
    "a length of nothing": (lambda c: [c[3] | {"length": -1.0}], "Rod.length"),
    "a joint twice": (lambda c: [c[4] | {"joints": [["ab", 1.0], ["ab", 2.0]]}], "each joint once"),
    "joints of a dictionary": (lambda c: [c[4] | {"joints": {"ab": 1.0}}], "pairs of a joint"),
    "infinite": (lambda c: [c[4] | {"offset": float("inf")}], "Coupling.offset"),
    "a number without end": (lambda c: [c[4] | {"offset": 10**400}], "Coupling.offset"),
    "coordinates": (lambda c: [c[6] | {"value": [1.0, 2.0]}], "wanted 1 coordinates"),
    "damping": (lambda c: [c[6] | {"baumgarte": [1.0]}], "Lock.baumgarte"),
    "gains": (lambda c: [c[6] | {"baumgarte": {"velocity": 1.0}}], "Lock.baumgarte"),
    "a gain": (lambda c: [c[6] | {"baumgarte": {"velocity": -1.0, "position": 1.0}}], "Baumgarte.velocity"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_saved_constraints_that_are_refused(change, tmp_path):
    every().save(tmp_path / "robot.npz")
    with np.load(io.BytesIO((tmp_path / "robot.npz").read_bytes())) as file:
        arrays = {key: file[key] for key in file.files}
    texts = json.loads(arrays.pop("texts").tobytes())
    edit, match = CHANGES[change]
    texts["constraints"] = edit(texts["constraints"])
    np.savez(tmp_path / "robot.npz", texts=np.frombuffer(json.dumps(texts).encode(), np.uint8), **arrays)
    with pytest.raises(rd.LoadError, match=match):
        rd.Model.load(tmp_path / "robot.npz")


def written():
    """A model with constraints that URDF has words for."""
    model = rd.load_urdf(urdf(*TREE))
    rng = np.random.default_rng(2)
    names = ("rx", "ry", "rz", "x", "y", "z")
    held = [rd.Weld("c", "d", pose(rng), pose(rng), [row for row in names if row != free], name=free) for free in names]
    held += [rd.Point("c", "d", pose(rng), pose(rng), name="ab"), rd.Weld("d", None, pose(rng), pose(rng), name="all")]
    return replace(model, constraints=tuple(held))


def test_written_as_urdf():
    model = written()
    text = model.to_urdf()
    again = rd.load_urdf(text)
    assert [each.name for each in again.constraints] == ["rx", "ry", "rz", "x", "y", "z", "_ab", "all"]
    q = model.random_configuration(0, (3,))
    was, now = (rd.Dynamics(each, engine="reference") for each in (model, again))
    start = 0
    for one in resolved_constraints(model):
        rows = slice(start, start + len(one.rows))
        start += len(one.rows)
        # Rows are those of a frame that is turned, and so are the same space.
        a, b = (each.constraint_jacobian(q)[:, rows] for each in (was, now))
        for first, second in zip(a, b, strict=True):
            assert np.linalg.matrix_rank(np.vstack([first, second]), tol=1e-9) == np.linalg.matrix_rank(first, tol=1e-9)
    sizes = [np.linalg.norm(each.constraint_residual(q, np.zeros((3, 3)))[0][:, -6:]) for each in (was, now)]
    assert sizes[0] == pytest.approx(sizes[1], rel=1e-12)
    others = (
        rd.Rod("c", "d", length=1),
        rd.Lock("ab"),
        rd.Coupling({"ab": 1.0}),
        rd.Weld("c", "d", rows=["x"], name="x"),
    )
    report = replace(model, constraints=others).to_urdf().report
    left = {name for each in report if each.code == "not-written" for name in each.elements}
    assert left == {f'constraint "{each.name}"' for each in others}
    floats = rd.load_urdf(urdf(*TREE), base="floating")
    text = replace(
        floats, constraints=(rd.Point("c", baumgarte=(1, 1)), rd.Point("c", "d", baumgarte=(1, 1)))
    ).to_urdf()
    assert len(rd.load_urdf(text, base="floating").constraints) == 1
    assert [each.code for each in text.report].count("not-written") == 2


@pytest.mark.parametrize("base", ["fixed", "floating"])
def test_written_as_mjcf(base):
    """Sites stand where the frames of constraints do, and equalities are between them."""
    mujoco = pytest.importorskip("mujoco", reason="the extra mujoco is not installed")
    model = rd.load_urdf(urdf(*TREE), base=base)
    held = tuple(
        each
        for each in (*written().constraints, *every().constraints[3:], rd.Lock("bc", 0.7))
        if each.name not in ("x", "y", "z")
    )
    model = replace(model, constraints=held)
    text = model.to_mjcf()
    left = {name for each in text.report if each.code == "not-written" for name in each.elements}
    assert 'constraint "c"' in left  # a rod
    mj = mujoco.MjModel.from_xml_string(text)
    data = mujoco.MjData(mj)
    q = model.random_configuration(2)
    names = [mj.joint(k).name for k in range(mj.njnt)]
    data.qpos[:] = rd.converter(model, "mujoco", joint_names=names).q_to(q)
    mujoco.mj_kinematics(mj, data)
    phi = residual(model, q)
    kinds = mujoco.mjtEq
    for name, kind in (("ab", kinds.mjEQ_CONNECT), ("all", kinds.mjEQ_WELD), ("rx", kinds.mjEQ_CONNECT)):
        e = mj.equality(name)
        assert int(e.type[0]) == int(kind)
        a, b = int(e.obj1id[0]), int(e.obj2id[0])
        shift = data.site_xmat[a].reshape(3, 3).T @ (data.site_xpos[b] - data.site_xpos[a])
        np.testing.assert_allclose(shift, [phi[f"{name}.{row}"] for row in "xyz"], atol=1e-12)
        R = data.site_xmat[a].reshape(3, 3).T @ data.site_xmat[b].reshape(3, 3)
        if name == "all":
            sine = [R[2, 1] - R[1, 2], R[0, 2] - R[2, 0], R[1, 0] - R[0, 1]]
            np.testing.assert_allclose(
                np.array(sine) / 2, [phi[f"all.{row}"] for row in ("rx", "ry", "rz")], atol=1e-12
            )
    second = mj.equality("_rx")
    assert int(second.type[0]) == int(kinds.mjEQ_CONNECT)
    ends = [data.site_xpos[int(each[0])] for each in (second.obj1id, second.obj2id)]
    first = [data.site_xpos[int(each[0])] for each in (mj.equality("rx").obj1id, mj.equality("rx").obj2id)]
    assert [np.linalg.norm(x - y) for x, y in zip(ends, first, strict=True)] == pytest.approx([0.1, 0.1])
    sums = mj.equality("ab+bc")
    assert int(sums.type[0]) == int(kinds.mjEQ_JOINT)
    np.testing.assert_allclose(sums.data[:2], [0.0, 2.0])
    np.testing.assert_allclose(mj.equality("bc").data[:2], [0.7, 0.0])
