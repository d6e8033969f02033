"""Robots whose mass matrix is singular in every state: inverse dynamics answers, forward dynamics names the body."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from conftest import random_states, relative
from robots import own

import robodyn as rd
from robodyn.algorithms.aba import INVERSE_MASS_MATRIX
from robodyn.algorithms.forward_gradient import inverse_by_mass_matrix
from robodyn.description import Inertial, Joint, Limits, Link, Mimic, Pose, RobotDescription
from robodyn.engines.query_table import QUERIES, plain_questions
from robodyn.io.builders.urdf import read_urdf

BODY = Inertial(1.0, Pose((0.1, 0.05, 0.2)), (0.02, 0.0, 0.0, 0.03, 0.0, 0.04))
POINT_ON_AXIS = Inertial(1.0, Pose((0.0, 0.0, 0.3)), (0.0,) * 6)
Z, Y = (0.0, 0.0, 1.0), (0.0, 1.0, 0.0)


def chain(*parts, **extra):
    """A serial robot of (joint type, axis, inertial of its child)."""
    links, joints = [Link("link0", extra.get("root"))], []
    for i, (kind, axis, inertial) in enumerate(parts):
        joints.append(Joint(f"joint{i}", kind, f"link{i}", f"link{i + 1}", Pose((0.0, 0.1, 0.3)), axis))
        links.append(Link(f"link{i + 1}", inertial))
    return RobotDescription("chain", tuple(links), tuple(joints))


def coaxial(moment):
    """A rotor of so small an inertia between two joints on one axis, the outer of which carries a body."""
    rotor = Inertial(0.0, Pose(), (moment, 0.0, 0.0, moment, 0.0, moment)) if moment else None
    return RobotDescription(
        "coaxial",
        (Link("a"), Link("b", rotor), Link("c", BODY)),
        (Joint("ab", "revolute", "a", "b", axis=Z), Joint("bc", "revolute", "b", "c", axis=Z)),
    )


def massless_chain(kinds, reach, seed, tip="body"):
    """Massless links on axes and at places drawn at random, up to `reach` m apart, and one body at the end."""
    rng = np.random.default_rng(seed)

    def vector(length):
        drawn = rng.standard_normal(3)
        return tuple((drawn * (length / np.linalg.norm(drawn))).tolist())

    links, joints = [Link("link0")], []
    for i, kind in enumerate(kinds):
        origin, pitch = Pose(tuple(rng.uniform(-reach, reach, 3).tolist())), float(rng.uniform(-0.3, 0.3))
        axes = (vector(1.0), vector(1.0))
        joints.append(Joint(f"joint{i}", kind, f"link{i}", f"link{i + 1}", origin, axes[0], axes[1], pitch))
        links.append(Link(f"link{i + 1}", None))
    center, inertia = Pose(vector(0.1)), BODY.inertia if tip == "body" else (0.0,) * 6
    links[-1] = Link(links[-1].name, Inertial(1.0, center, inertia))
    return RobotDescription(f"{len(kinds)} joints, {reach} m, seed {seed}", tuple(links), tuple(joints))


# A body at the end of a wrist, so that a joint can follow another.
TAIL, END = Joint("tail", "revolute", "d", "e", Pose((0.2, 0.0, 0.1)), Y), Link("e", BODY)

SINGULAR = {
    "massless leaf": (chain(("revolute", Y, BODY), ("revolute", Z, None)), "fixed", "link2"),
    "massless prismatic leaf": (chain(("revolute", Y, BODY), ("prismatic", Z, None)), "fixed", "link2"),
    "a run of massless leaves": (
        chain(("revolute", Y, BODY), ("revolute", Z, None), ("revolute", Y, None)),
        "fixed",
        "link3",
    ),
    "point mass on the axis": (chain(("revolute", Z, POINT_ON_AXIS)), "fixed", "link1"),
    "massless floating root": (chain(("revolute", Z, BODY)), "floating", "link0"),
    "massless body between parallel joints": (coaxial(0.0), "fixed", "b"),
    "rotor too light to tell from none": (coaxial(1e-18), "fixed", "b"),
    "joint that a free body hangs on": (
        chain(("revolute", Y, BODY), ("revolute", Z, None), ("floating", Z, BODY)),
        "fixed",
        "link2",
    ),
    "massless spherical leaf": (chain(("revolute", Y, BODY), ("spherical", Z, None)), "fixed", "link2"),
    "point mass in a ball joint": (
        chain(("spherical", Z, Inertial(1.0, Pose((0.0, 0.0, 0.5)), (0.0,) * 6))),
        "fixed",
        "link1",
    ),
}


@pytest.mark.parametrize("case", SINGULAR)
def test_forward_dynamics_names_the_body(case):
    description, base, body = SINGULAR[case]
    model = rd.build_model(description, base=base)
    dyn = rd.Dynamics(model, engine="reference")
    q, qd, qdd = random_states(model)
    tau = dyn.inverse_dynamics(q, qd, qdd)
    assert np.isfinite(tau).all()
    for call in (
        lambda: dyn.forward_dynamics(q, qd, tau),
        lambda: dyn.forward_dynamics(q, qd, tau, method="crba"),
        lambda: dyn.mass_matrix_inverse(q),
        lambda: dyn.forward_dynamics_gradient(q, qd, tau),
        lambda: dyn.forward_dynamics(np.stack([q] * 3), qd, tau),
    ):
        with pytest.raises(rd.SingularError, match=f"body '{body}' has no inertia"):
            call()


def test_every_singular_robot_really_is():
    for description, base, _ in SINGULAR.values():
        model = rd.build_model(description, base=base)
        H = rd.Dynamics(model, engine="reference").mass_matrix(model.random_configuration(3))
        scale = np.sqrt(np.maximum(np.diag(H), 1e-300))
        assert np.linalg.svd(H / np.outer(scale, scale), compute_uv=False)[-1] < 1e-12


# More joints than a body has ways to move: in every state, whatever the axes. Joint types from the root, what is at
# the tip, and the link that the innermost joints but too many carry. Rank 6 for a body, 3 for a mass that is a point.
TOO_MANY_JOINTS = {
    "7 revolute": (("revolute",) * 7, "body", "link1"),
    "8 revolute": (("revolute",) * 8, "body", "link2"),
    "12 revolute": (("revolute",) * 12, "body", "link6"),
    "4 universal": (("universal",) * 4, "body", "link1"),
    "7 helical": (("helical",) * 7, "body", "link1"),
    "4 prismatic": (("prismatic",) * 4, "body", "link1"),
    "4 revolute and a point": (("revolute",) * 4, "point", "link1"),
    "spherical and 4 revolute": (("spherical", *("revolute",) * 4), "body", "link1"),
    "revolute and floating": (("revolute", "floating"), "body", "link1"),
    "floating and revolute": (("floating", "revolute"), "body", "link1"),
}


@pytest.mark.parametrize("reach", [0.3, 1.0, 10.0])
@pytest.mark.parametrize("case", TOO_MANY_JOINTS)
@pytest.mark.some(of=6, rest="matrix")
def test_more_joints_than_ways_to_move(case, reach):
    """Digits are lost on the way to the pivot that vanishes, hence pivots are judged by their rounding errors."""
    kinds, tip, body = TOO_MANY_JOINTS[case]
    for seed in range(10):
        description = massless_chain(kinds, reach, seed, tip)
        why = rd.Dynamics(rd.build_model(description)).singularity()
        assert why is not None, description.name
        assert f"body '{body}" in why, description.name
        assert "The same holds" not in why


@pytest.mark.parametrize("reach", [0.3, 1.0, 10.0])
@pytest.mark.parametrize(
    "kinds",
    [("revolute",) * 6, ("helical",) * 6, ("universal",) * 3, ("revolute", "prismatic", "helical", "spherical")],
    ids=lambda kinds: f"{len(kinds)} {kinds[0]}",
)
@pytest.mark.some(of=3, rest="matrix")
def test_as_many_joints_as_ways_to_move(kinds, reach):
    for seed in range(10):
        assert rd.Dynamics(rd.build_model(massless_chain(kinds, reach, seed))).singularity() is None


@pytest.mark.parametrize("mimic", [False, True])
def test_a_point_on_an_oblique_axis(mimic):
    """Turned to the axis, its inertia about it is not zero but rounded."""
    axis = tuple((np.array([0.37, -0.51, 0.78]) / np.linalg.norm([0.37, -0.51, 0.78])).tolist())
    place = Pose(tuple(0.7 * x for x in axis))
    description = chain(("revolute", axis, Inertial(1.3, place, (0.0,) * 6)))
    if mimic:
        description = chain(
            ("revolute", Y, BODY), ("revolute", Y, BODY), ("revolute", axis, description.links[1].inertial)
        )
        description = following(description, (0, 1))
    model = rd.build_model(description)
    assert 0.0 < abs(model.inertia[-1, 9]) < 1e-15
    assert "has no inertia" in rd.Dynamics(model).singularity()


def following(description, *pairs):
    """Joints that mimic others, (master, follower) by their numbers."""
    joints = list(description.joints)
    for master, follower in pairs:
        joints[follower] = replace(joints[follower], mimic=Mimic(joints[master].name, -0.7, 0.4))
    return replace(description, joints=tuple(joints))


@pytest.mark.parametrize("reach", [0.3, 1.0, 10.0])
@pytest.mark.parametrize(("n", "pairs"), [(8, [(0, 4)]), (8, [(5, 7)]), (12, [(0, 4), (2, 6), (3, 11)])])
@pytest.mark.some(of=6, rest="matrix")
def test_more_joints_than_ways_to_move_some_mimicking(n, pairs, reach):
    """One joint too many, or three; with more of them that mimic, as many as there are ways to move."""
    enough = [(0, i) for i in range(1, n) if i not in {follower for _, follower in pairs}][: n - len(pairs) - 6]
    for seed in range(10):
        description = massless_chain(("revolute",) * n, reach, seed)
        model = rd.build_model(following(description, *pairs))
        assert model.nv > 6
        assert rd.Dynamics(model).singularity() is not None
        model = rd.build_model(following(description, *pairs, *enough))
        assert model.nv == 6
        assert rd.Dynamics(model).singularity() is None


REGULAR = {
    "wrist whose outer axes meet in the neutral state": RobotDescription(
        "wrist",
        (Link("a"), Link("b"), Link("c"), Link("d", BODY)),
        (
            Joint("roll", "revolute", "a", "b", axis=Z),
            Joint("bend", "revolute", "b", "c", axis=Y),
            Joint("turn", "revolute", "c", "d", axis=Z),
        ),
    ),
    "massless body between crossed joints": chain(("revolute", Y, BODY), ("revolute", Z, None), ("revolute", Y, BODY)),
    "massless root of a fixed base": chain(("revolute", Z, BODY)),
    "a tiny leaf": chain(
        ("revolute", Y, BODY), ("revolute", Z, Inertial(1e-9, Pose((1e-3, 0.0, 0.0)), (1e-16, 0, 0, 1e-16, 0, 1e-16)))
    ),
}


@pytest.mark.parametrize("case", REGULAR)
def test_regular_robots_are_not_refused(case):
    model = rd.build_model(REGULAR[case])
    dyn = rd.Dynamics(model, engine="reference")
    q, qd, qdd = random_states(model, (4,))
    tau = dyn.inverse_dynamics(q, qd, qdd)
    for method in ("aba", "crba"):
        again = dyn.inverse_dynamics(q, qd, dyn.forward_dynamics(q, qd, tau, method=method))
        assert relative(again, tau) < 1e-11


def test_a_small_inertia_is_not_taken_for_none():
    """Beside that of the neighbour it is lost but for some digits, which is enough to answer."""
    model = rd.build_model(coaxial(1e-12))
    dyn = rd.Dynamics(model, engine="reference")
    q, qd, qdd = random_states(model)
    tau = dyn.inverse_dynamics(q, qd, qdd)
    assert relative(dyn.forward_dynamics(q, qd, tau), qdd) < 1e-3


def test_an_unlucky_state_condemns_no_robot(monkeypatch):
    """A regular robot may be drawn in a singular state, hardly in several."""
    model = rd.build_model(REGULAR["wrist whose outer axes meet in the neutral state"])
    assert rd.Dynamics(model).singularity() is None
    draw = rd.Model.random_configuration

    def unlucky(self, rng=None, shape=()):
        q = draw(self, rng, shape)
        q[0] = 0.0
        return q

    monkeypatch.setattr(rd.Model, "random_configuration", unlucky)
    assert rd.Dynamics(model).singularity() is None
    monkeypatch.setattr(rd.Model, "random_configuration", lambda self, rng, shape: np.zeros((*shape, self.nq)))
    assert "body 'b'" in rd.Dynamics(model).singularity()


def test_position_limits_make_no_robot_singular():
    """Not even where they leave no room, in a state that happens to be singular."""
    wrist = REGULAR["wrist whose outer axes meet in the neutral state"]
    roll, bend, turn = wrist.joints
    locked = replace(wrist, joints=(roll, replace(bend, limits=Limits(0.0, 0.0, 1.0, 1.0)), turn))
    for description in (
        locked,
        following(replace(locked, joints=(*locked.joints, TAIL), links=(*locked.links, END)), (0, 3)),
    ):
        assert rd.Dynamics(rd.build_model(description)).singularity() is None


@pytest.mark.parametrize("mimic", [False, True])
def test_every_singular_body_is_named(mimic):
    leaves = [Joint(f"j{i}", "revolute", "a", f"l{i}", axis=Z) for i in range(8)]
    links = (Link("a"), *(Link(f"l{i}") for i in range(8)))
    description = RobotDescription("r", links, tuple(leaves))
    if mimic:
        more = (Joint("m", "revolute", "a", "body", axis=Z), Joint("f", "revolute", "body", "end", axis=Y))
        joints = (*more, *leaves)
        description = following(RobotDescription("r", (*links, Link("body", BODY), Link("end", BODY)), joints), (0, 1))
    why = rd.Dynamics(rd.build_model(description)).singularity()
    assert "body 'l7' has no inertia" in why
    assert why.endswith("The same holds for 'l0', 'l1', 'l2', 'l3', 'l4' and 2 more")


@pytest.mark.parametrize(
    "model",
    [
        rd.auto_tree(3000, skew=0.3),
        rd.auto_tree(500),
        rd.auto_tree(300, skew=0.1, taper=0.95),
        rd.auto_tree(100_000, branching=2, skew=0.3),
        rd.random_tree(300, seed=1, joints=["revolute", "spherical", "prismatic"], shape="chain"),
        rd.random_tree(120, seed=2, joints=["revolute"], shape="chain", mimic=0.1),
    ],
    ids=lambda model: model.name,
)
def test_large_robots_are_not_taken_for_singular(model):
    """Pivots fall far below the diagonal of the mass matrix in long chains; their rounding errors do as well."""
    assert rd.Dynamics(model).singularity() is None


@pytest.mark.parametrize("armature", [0.01, 1e-30])
def test_armature_cures_a_massless_leaf(armature):
    description, _, _ = SINGULAR["massless leaf"]
    last = replace(description.joints[-1], armature=armature)
    model = rd.build_model(replace(description, joints=(*description.joints[:-1], last)))
    dyn = rd.Dynamics(model, engine="reference")
    q, qd, qdd = random_states(model)
    for method in ("aba", "crba"):
        assert relative(dyn.forward_dynamics(q, qd, dyn.inverse_dynamics(q, qd, qdd), method=method), qdd) < 1e-11


def test_mimic_is_judged_in_the_coordinates_that_are_free():
    """A massless leaf that follows a joint with inertia is no degree of freedom of its own."""
    description, _, _ = SINGULAR["massless leaf"]
    last = replace(description.joints[-1], mimic=Mimic("joint0", 0.5, 0.1))
    model = rd.build_model(replace(description, joints=(*description.joints[:-1], last)))
    dyn = rd.Dynamics(model, engine="reference")
    q, qd, qdd = random_states(model)
    assert relative(dyn.forward_dynamics(q, qd, dyn.inverse_dynamics(q, qd, qdd)), qdd) < 1e-11
    with pytest.raises(rd.ArgumentError, match="method: got 'aba' for a model whose joints mimic others"):
        dyn.forward_dynamics(q, qd, qdd, method="aba")
    free = rd.build_model(replace(description, joints=(*description.joints[:-1], last)), mimic="ignore")
    with pytest.raises(rd.SingularError, match="'link2'"):
        rd.Dynamics(free, engine="reference").forward_dynamics(free.neutral(), np.zeros(2), np.zeros(2))


def test_our_massless_robots():
    tip = rd.load_urdf(own("massless_tip"))
    with pytest.raises(rd.SingularError):
        rd.Dynamics(tip, engine="reference").mass_matrix_inverse(tip.neutral())
    inner = rd.load_urdf(own("massless_chain"))
    assert rd.Dynamics(inner).singularity() is None


def test_float32_is_judged_like_float64():
    model = rd.build_model(read_urdf(own("massless_tip")))
    with pytest.raises(rd.SingularError):
        rd.Dynamics(model, dtype="float32").mass_matrix_inverse(model.neutral())


def test_every_program_of_robots_without_mass_is_there_or_is_refused():
    """Explained and looked at, not asked: what would divide by nothing says so."""
    massless = rd.build_model(chain(("revolute", Z, None)))
    for model in (rd.load_urdf("<robot name='r'><link name='a'/></robot>"), massless):
        dyn, refused = rd.Dynamics(model), []
        for query in plain_questions():
            for look in (dyn.program, dyn.explain):
                try:
                    assert look(query) is not None
                except rd.NumericalError as error:
                    refused.append((query, type(error)))
        centred = {name for name in plain_questions() if "mass" in QUERIES[name].needs}
        assert {query for query, kind in refused if kind is rd.NumericalError} == centred
        inverting = {name for name in plain_questions() if "inverse" in QUERIES[name].needs} if model.nv else set()
        assert {query for query, kind in refused if kind is rd.SingularError} == inverting


def exact_pivots(model, q):
    """Pivots of the mass matrix of revolute joints, in 150 digits, and the matrix."""
    mp = pytest.importorskip("mpmath", reason="mpmath is not installed")
    mp.mp.dps = 150

    def matrix(rows):
        return mp.matrix([[mp.mpf(float(x)) for x in row] for row in rows])

    def hat(a):
        return mp.matrix([[0, -a[2], a[1]], [a[2], 0, -a[0]], [-a[1], a[0], 0]])

    n, columns = model.n_bodies, {-1: (mp.matrix(3, model.nv), mp.matrix(3, model.nv))}
    H = mp.matrix(n, n)
    for i in range(n):
        E, r = matrix(model.Xtree[i][:9].reshape(3, 3)), mp.matrix([mp.mpf(float(x)) for x in model.Xtree[i][9:]])
        c, s = mp.cos(mp.mpf(float(q[i]))), mp.sin(mp.mpf(float(q[i])))
        E = mp.matrix([[c, s, 0], [-s, c, 0], [0, 0, 1]]) * E
        ang, lin = columns[int(model.parent[i])]
        ang, lin = E * ang, E * (lin - hat(r) * ang)
        ang[2, i] += 1
        columns[i] = ang, lin
        m, x, y, z, *six = (mp.mpf(float(value)) for value in model.inertia[i])
        I = mp.matrix([[six[0], six[1], six[2]], [six[1], six[3], six[4]], [six[2], six[4], six[5]]])
        H += ang.T * (I * ang + hat([x, y, z]) * lin) + lin.T * (m * lin - hat([x, y, z]) * ang)
    left, pivots = H.copy(), [mp.mpf(0)] * n
    for k in range(n - 1, -1, -1):
        pivots[k] = left[k, k]
        for i in range(k):
            share = left[k, i] / left[k, k]
            for j in range(k):
                left[i, j] -= share * left[k, j]
    return pivots, H


def extreme_chain(seed, lengths, mass):
    """Rods in a row about axes drawn at random."""
    rng = np.random.default_rng(seed)
    links, joints, before = [Link("link0")], [], 0.0
    for i, length in enumerate(lengths):
        axis = rng.standard_normal(3)
        axis = tuple((axis / np.linalg.norm(axis)).tolist())
        joints.append(Joint(f"joint{i}", "revolute", f"link{i}", f"link{i + 1}", Pose((before, 0.0, 0.0)), axis))
        m, square = mass(length), length * length
        inertia = (1e-3 * m * square, 0.0, 0.0, m * square / 12.0, 0.0, m * square / 12.0)
        links.append(Link(f"link{i + 1}", Inertial(m, Pose((length / 2.0, 0.0, 0.0)), inertia)))
        before = length
    return rd.build_model(RobotDescription("extreme chain", tuple(links), tuple(joints)))


@pytest.mark.parametrize("mass", [lambda length: length, lambda length: 1.0], ids=["length", "one"])
@pytest.mark.parametrize("seed", range(12))
def test_regular_chains_of_extreme_lengths_are_answered_while_digits_are_left(seed, mass):
    """Lengths from 1e-6 to 1e7 m in any order: refused only where the pivot has no two certain digits."""
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    lengths = 10.0 ** np.linspace(-6, 7, int(rng.integers(4, 7)))
    lengths = lengths if seed % 3 == 0 else rng.permutation(lengths)
    model = extreme_chain(seed, lengths, mass)
    dyn = rd.Dynamics(model, engine="reference")
    q = model.random_configuration(rng)
    pivots, H = exact_pivots(model, q)
    diagonal = np.array([float(H[i, i]) for i in range(model.nv)])
    if float(min(p / H[i, i] for i, p in enumerate(pivots))) > 1e3 * np.finfo(float).eps:
        assert dyn.singularity() is None
    if dyn.singularity() is None:
        tau = rng.standard_normal(model.nv) * np.sqrt(diagonal)
        for engine in ("reference", "cpu"):
            still = rd.Dynamics(replace(model, gravity=np.zeros(3)), engine=engine)
            qdd = still.forward_dynamics(q, np.zeros(model.nv), tau)
            exact = np.array([float(x) for x in _solved(H, tau)])
            assert np.abs(qdd - exact).max() <= 0.1 * np.abs(exact).max(), (engine, lengths)


def _solved(H, tau):
    import mpmath as mp

    return mp.lu_solve(H, mp.matrix([mp.mpf(float(x)) for x in tau]))


def test_a_chain_whose_links_grow_outward_is_regular():
    """Its innermost pivot has 830 rounding errors."""
    model = extreme_chain(4, 10.0 ** np.linspace(-6, 7, 5), lambda length: length)
    assert rd.Dynamics(model).singularity() is None


@pytest.mark.parametrize("code", ["unrolled", "rolled"])
@pytest.mark.parametrize("background", [False, True])
def test_an_engine_asked_directly_raises_ours_or_gives_nan(code, background):
    """Without `Dynamics` nobody has looked whether there is an inverse."""
    model = rd.load_urdf(own("massless_tip"))
    options = {"code": code, "compile": "background" if background else "lazy"}
    for task in (INVERSE_MASS_MATRIX, inverse_by_mass_matrix()):
        engine, found = rd.Dynamics(model, engine="cpu", **options).engine, np.zeros((2, model.nv, model.nv))
        try:
            engine.run(task, {"q": np.zeros((2, model.nq))}, {"Hinv": found})
        except rd.SingularError as error:
            assert "'massless_tip' is singular" in str(error)
        else:
            assert np.isnan(found).any()
        for thread in engine._compiling.values():
            thread.join()


@pytest.mark.parametrize("engine", ["reference", "cpu", "scan"])
def test_velocities_of_long_light_links_cost_single_precision_nothing(engine):
    """v x m v is zero: fused multiplications left of it 15 % of the torques."""
    model = extreme_chain(23, (1e7, 5e2, 2e-2, 1e-6), lambda length: 1.0)
    rng, exact = np.random.default_rng(0), rd.Dynamics(model, engine="reference")
    q, qd = model.random_configuration(rng, (20,)).astype("f4"), rng.uniform(0.2, 1.5, (20, 4)).astype("f4")
    tau = exact.inverse_dynamics(q, qd, rng.uniform(0.2, 1.5, (20, 4))).astype("f4")
    qdd = rd.Dynamics(model, engine=engine, dtype="float32").forward_dynamics(q, qd, tau)
    missed = np.abs(exact.inverse_dynamics(q, qd, qdd.astype(float)) - tau).max(axis=1)
    assert (missed / np.abs(tau).max(axis=1)).max() < 1e-5
