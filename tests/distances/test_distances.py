"""Queries about distances: robots, engines, gradients, obstacles, pairs."""

from __future__ import annotations

import gc
import pickle
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from conftest import random_states

import robodyn as rd
from robodyn.core.findings import Report

INERTIAL = '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>'
LINKS = "".join(f'<link name="{name}">{INERTIAL}</link>' for name in ("base", "a", "b", "c", "d"))
LIMIT = '<limit lower="-2" upper="2" effort="1" velocity="1"/>'
LIMBS = f"""<robot name="limbs">{LINKS}
<joint name="j0" type="revolute"><parent link="base"/><child link="a"/><origin xyz="0 0 0.4"/><axis xyz="0 0 1"/>
{LIMIT}</joint>
<joint name="j1" type="revolute"><parent link="a"/><child link="b"/><origin xyz="0.3 0 0"/><axis xyz="0 1 0"/>
{LIMIT}</joint>
<joint name="j2" type="prismatic"><parent link="b"/><child link="c"/><origin xyz="0.3 0 0"/><axis xyz="1 0 0"/>
<limit lower="-0.2" upper="0.5" effort="1" velocity="1"/></joint>
<joint name="j3" type="revolute"><parent link="c"/><child link="d"/><origin xyz="0.2 0 0"/><axis xyz="0 1 1"/>
{LIMIT}<mimic joint="j1" multiplier="-1.5" offset="0.1"/></joint></robot>"""
TURNED = np.array([[0.0, -1.0, 0.0, 0.1], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.05], [0.0, 0.0, 0.0, 1.0]])
SHAPES = (
    rd.Plane("base", (0.0, 0.0, 1.0), 0.0, name="floor"),
    rd.Box("base", TURNED, (0.2, 0.3, 0.1), name="foot"),
    rd.Capsule("a", (0.0, 0.0, 0.0), (0.2, 0.0, 0.0), 0.05),
    rd.Sphere("b", (0.1, 0.0, 0.1), 0.07, name="knob"),
    rd.Capsule("c", (0.0, -0.1, 0.0), (0.1, 0.1, 0.0), 0.04),
    rd.Box("d", (0.1, 0.0, 0.0), (0.1, 0.2, 0.05), name="hand"),
    rd.Cylinder("d", (0.0, 0.0, 0.1), 0.03, 0.1),
    rd.Sphere("d", (0.2, 0.0, 0.0), 0.05),
)


def limbs(base: str = "fixed") -> rd.Model:
    return rd.load_urdf(LIMBS, base=base).with_shapes(SHAPES)


def obstacles(rng: np.random.Generator, leading: tuple[int, ...] = ()) -> rd.Obstacles:
    spheres = rng.uniform(-1.0, 1.0, (*leading, 11, 4))
    spheres[..., 3] = 0.1
    capsules = rng.uniform(-1.0, 1.0, (5, 7))
    capsules[:, 6] = 0.05
    poses = np.tile(TURNED, (3, 1, 1))
    poses[:, :3, 3] = rng.uniform(-1.0, 1.0, (3, 3))
    return rd.Obstacles(spheres, capsules, (poses, rng.uniform(0.1, 0.3, (3, 3))), ignore=["base"])


def by_coal(model: rd.Model, q: np.ndarray) -> np.ndarray:
    """Distances of the model's pairs by coal; cylinders are capsules."""
    coal = pytest.importorskip("coal")
    T = rd.Dynamics(model, engine="reference").forward_kinematics(q)
    request = coal.DistanceRequest(True, True)
    request.gjk_tolerance = request.epa_tolerance = 1e-9
    made = []
    for each in model.geometries:
        size = each.size
        shape = {
            "sphere": lambda s: coal.Sphere(s[0]),
            "capsule": lambda s: coal.Capsule(s[0], s[1]),
            "cylinder": lambda s: coal.Capsule(s[0], s[1]),
            "box": lambda s: coal.Box(*s),
            "plane": lambda s: coal.Halfspace(np.array([0.0, 0.0, 1.0]), 0.0),
        }[each.kind](size)
        own = np.eye(4)
        own[:3, :3], own[:3, 3] = np.reshape(each.pose.rotation, (3, 3)), each.pose.xyz
        made.append((shape, model.link_index(each.link), own))
    found = np.empty((len(q), model.n_pairs))
    for row in range(len(q)):
        for p, (i, j) in enumerate(model.pairs):
            poses = [T[row, link] @ own for _, link, own in (made[i], made[j])]
            placed = [coal.Transform3s(pose[:3, :3], pose[:3, 3]) for pose in poses]
            found[row, p] = coal.distance(made[i][0], placed[0], made[j][0], placed[1], request, coal.DistanceResult())
    return found


def test_distances_of_a_robot_are_those_of_coal():
    model = limbs("floating")
    q = random_states(model, (15,))[0]
    exact = [p for p, pair in enumerate(model.pairs) if {0, 6} != set(pair)]  # the cylinder on the floor is exact
    d = rd.Dynamics(model, engine="reference").distances(q)
    assert np.abs(d - by_coal(model, q))[:, exact].max() <= 2e-6


@pytest.mark.some(of=3, rest="matrix")
@pytest.mark.parametrize("base", ["fixed", "floating"])
def test_every_engine_answers_alike(base, make_dynamics, tolerance):
    model = limbs(base)
    dyn, right = make_dynamics(model), rd.Dynamics(model, engine="reference")
    q = random_states(model, (19,))[0]
    around = obstacles(np.random.default_rng(1))
    for name in ("distances", "min_distance", "distances_gradient", "min_distance_gradient", "witness_points"):
        wanted = getattr(right, name)(q)
        out = np.full(wanted.shape, np.nan, dyn.dtype)
        assert getattr(dyn, name)(q, out=out) is out
        assert np.abs(out - wanted).max() <= 30.0 * tolerance, name
        assert np.abs(getattr(dyn, name)(q[3]) - wanted[3]).max() <= 30.0 * tolerance, name
        if name != "witness_points":
            assert np.abs(getattr(dyn, name)(q, around) - getattr(right, name)(q, around)).max() <= 30.0 * tolerance


@pytest.mark.parametrize("base", ["fixed", "floating"])
@pytest.mark.parametrize("given", [False, True])
def test_gradients_are_those_of_differences(base, given):
    model = limbs(base)
    dyn, q = rd.Dynamics(model), random_states(model, (40,))[0]
    around = obstacles(np.random.default_rng(2), (40,)) if given else None
    h, v = 1e-6, np.eye(model.nv)
    for value, gradient in ((dyn.distances, dyn.distances_gradient), (dyn.min_distance, dyn.min_distance_gradient)):
        ends = [[value(model.integrate(q, np.tile(s * h * u, (40, 1))), around) for u in v] for s in (1.0, -1.0)]
        slope = np.moveaxis(np.array(ends[0]) - np.array(ends[1]), 0, -1) / (2.0 * h)
        error = np.abs(slope - gradient(q, around))
        assert np.quantile(error, 0.98) < 1e-6  # a few cases are within h of a switch
        assert np.median(error) < 1e-8


def test_the_least_is_the_least_and_its_gradient_that_of_its_pair():
    model = limbs()
    dyn, q = rd.Dynamics(model), random_states(model, (50,))[0]
    around = obstacles(np.random.default_rng(3), (50,))
    for given in (None, around):
        d, G = dyn.distances(q, given), dyn.distances_gradient(q, given)
        assert d.shape == (50, model.n_pairs + (6 * 19 if given else 0))
        assert np.abs(dyn.min_distance(q, given) - d.min(1)).max() < 1e-14
        of_least = G[np.arange(50), d.argmin(1)]
        assert np.abs(dyn.min_distance_gradient(q, given) - of_least).max() < 1e-12
        free = dyn.is_free(q, given, clearance=0.02)
        assert free.dtype == bool and (free == (d.min(1) > 0.02)).all()
    assert np.abs(dyn.distances_gradient(q, pairs=[4, 1]) - dyn.distances_gradient(q)[:, [4, 1]]).max() < 1e-15


def test_nan_stays_in_its_row_and_is_never_free(make_dynamics):
    model = limbs()
    dyn, q = make_dynamics(model), random_states(model, (6,))[0]
    clean, around = dyn.min_distance(q), obstacles(np.random.default_rng(0))
    for column in range(model.nq):
        spoilt = q.copy()
        spoilt[2, column] = np.nan
        least = dyn.min_distance(spoilt)
        assert np.isnan(least[2]) and (np.delete(least, 2) == np.delete(clean, 2)).all()
        assert not dyn.is_free(spoilt, clearance=-9.0)[2] and not dyn.is_free(spoilt, around, -9.0)[2]
    rows = np.tile([9.0, 9.0, 9.0, 0.1], (6, 20, 1))
    rows[4, 13, 1] = np.nan
    assert (np.isnan(dyn.min_distance(q, rd.Obstacles(rows))) == (np.arange(6) == 4)).all()


def test_obstacles_are_inputs_of_any_number():
    """One program serves every number; a set for each configuration is the same as one after another."""
    model = limbs()
    dyn, q = rd.Dynamics(model), random_states(model, (4,))[0]
    rows = np.random.default_rng(0).uniform(-1.0, 1.0, (4, 30, 4)) * [1.0, 1.0, 1.0, 0.0] + [0.0, 0.0, 0.0, 0.1]
    for k in (0, 1, 8, 9, 30):
        d = dyn.distances(q, rd.Obstacles(rows[:, :k]))
        assert d.shape == (4, model.n_pairs + 8 * k)
        for i in range(4):
            assert np.abs(dyn.distances(q[i], rd.Obstacles(rows[i, :k])) - d[i]).max(initial=0.0) < 1e-14
    T = dyn.link_pose(q, "b")
    knob = T[:, :3, :3] @ [0.1, 0.0, 0.1] + T[:, :3, 3]
    wanted = np.linalg.norm(knob[:, None] - rows[..., :3], axis=-1) - 0.17
    assert np.abs(d[:, model.n_pairs :].reshape(4, 8, 30)[:, 3] - wanted).max() < 1e-14


@pytest.mark.matrix
def test_threads_drop_functions_that_are_kept(monkeypatch):
    """More numbers of obstacles than are kept, from several threads at once."""
    monkeypatch.setattr("robodyn.api.queries.distances._MOST_ENTRIES", 4)
    model = limbs()
    dyn, q = rd.Dynamics(model, engine="cpu"), model.random_configuration(0)
    sets = [rd.Obstacles(np.ones((k, 4))) for k in range(1, 13)]
    wanted = [dyn.min_distance(q, each) for each in sets]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda k: dyn.min_distance(q, sets[k % 12]), range(1200)))
    finally:
        sys.setswitchinterval(interval)
    assert np.array_equal(found, wanted * 100)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float64", 1e-14), pytest.param("float32", 1e-6, marks=pytest.mark.matrix)]
)
def test_calls_of_one_state_answer_like_batches(dtype, tolerance):
    """Built-in functions are kept: other obstacles, coordinates, numbers and threads must not see what was before."""
    model = rd.load_urdf(LIMBS).with_shapes(SHAPES[2:4] + SHAPES[7:])
    dyn, q = rd.Dynamics(model, engine="cpu", dtype=dtype), random_states(model, (6,))[0]
    sets = [obstacles(np.random.default_rng(seed)) for seed in range(2)]
    sets += [rd.Obstacles(sets[0].spheres[:3], ignore=["d"]), rd.Obstacles(), rd.Obstacles(boxes=sets[1].boxes)]
    assert dyn.engine.native
    names = ("distances", "min_distance", "distances_gradient", "min_distance_gradient", "is_free")
    wanted = {(name, k): getattr(dyn, name)(q, each) for name in names for k, each in enumerate(sets)}

    def ask(_: int = 0) -> None:
        for row in (0, 5):
            for k in (0, 1, 0, 2, 3, 4):
                for name in names:
                    found, right = getattr(dyn, name)(q[row].astype(dyn.dtype), sets[k]), wanted[name, k][row]
                    assert np.shape(found) == np.shape(right) and np.asarray(found).dtype == right.dtype
                    assert np.abs(found * 1.0 - right * 1.0).max() <= 30.0 * tolerance, (name, k)

    ask()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(ask, range(4)))
    for name in names:
        one = getattr(dyn, name)(q[None, :1], sets[0])
        assert one.shape == (1, 1, *wanted[name, 0].shape[1:])
        assert np.abs(one[0] * 1.0 - wanted[name, 0][:1] * 1.0).max() <= 30.0 * tolerance
    row = q[0].astype(dtype)
    for (name, numbers, _, _), (_, entry) in vars(dyn)["_entries_around"].items():
        assert (entry is None) == (not numbers), name
        if numbers == sets[0].numbers and name != "min_distance":  # is_free has a clearance besides
            answer = entry.strict(row, *sets[0].rows(dyn.dtype).values())
            assert answer is not entry.missed and (answer == getattr(dyn, name)(row, sets[0])).all()
    first = dyn.distances(q[0], sets[0])
    kept = first.copy()
    dyn.distances(q[1], sets[0])
    assert (first == kept).all(), "results are new arrays"
    assert np.abs(dyn.distances(q[0].tolist(), sets[0]) - kept).max() <= 30.0 * tolerance
    spoilt = q[0].copy()
    spoilt[1] = np.nan
    with pytest.raises(rd.NumericalError, match="q: NaN"):
        dyn.distances(spoilt, sets[0])
    broken = rd.Obstacles([[np.nan, 0.0, 0.0, 1.0]] * 11, sets[0].capsules, sets[0].boxes, ["base"])
    with pytest.raises(rd.NumericalError, match="result"):
        dyn.min_distance(q[0], broken)
    assert np.isnan(dyn.min_distance(q[:1], broken)).all() and np.isnan(dyn.min_distance(spoilt[None], sets[0])).all()
    assert np.abs(dyn.min_distance(q[0], sets[0]) - kept.min()) <= 30.0 * tolerance
    with pytest.raises(rd.ArgumentError, match="no pairs of shapes"):
        alone = rd.Dynamics(rd.load_urdf(LIMBS).with_shapes(SHAPES[:1]))
        alone.min_distance(q[0], rd.Obstacles([[0.0, 0.0, 0.0, 1.0]], ignore=["base"]))
    dyn.check = False
    assert np.isnan(dyn.min_distance(spoilt, sets[0])) and not dyn.is_free(q[0], broken)
    with pytest.raises(rd.ArgumentError, match="q: got shape"):
        dyn.distances(q[0, :2], sets[0])


def test_a_built_in_function_keeps_its_kernel():
    """Threads that ask first may each compile one, of which the engine keeps the last."""
    dyn = rd.Dynamics(limbs(), engine="cpu")
    around, q = obstacles(np.random.default_rng(0)), dyn.model.neutral()
    dyn.min_distance(q, around)
    kernels = [weakref.ref(each) for each in dyn.engine._kernels.values() if "min_distance" in each.request.label]
    wanted = dyn.min_distance(q, around)
    dyn.engine._kernels.clear()
    gc.collect()
    assert kernels and all(each() is not None for each in kernels)
    assert dyn.min_distance(q, around) == wanted


def test_edges_are_sampled():
    model = limbs()
    dyn, rng = rd.Dynamics(model), np.random.default_rng(4)
    q0, q1 = model.random_configuration(rng, (2, 12))
    around = obstacles(rng, (12,))
    for given in (None, around):
        found = dyn.edge_is_free(q0, q1, given, step=0.02)
        for i in range(12):
            own = None if given is None else rd.Obstacles(given.spheres[i], given.capsules, given.boxes, given.ignore)
            moved = (q1[i] - q0[i])[model.v_source] * model.v_multiplier  # a follower moves farther
            t = np.linspace(0.0, 1.0, int(np.ceil(np.abs(moved).max() / 0.02)) + 1)
            assert found[i] == dyn.is_free(model.interpolate(q0[i], q1[i], t), own).all()
    assert not dyn.edge_is_free(q0, q1 * np.nan).any()
    with pytest.raises(rd.ArgumentError, match="step: got 0"):
        dyn.edge_is_free(q0, q1, step=0.0)
    empty = rd.Obstacles(np.zeros((0, 4)), rng.uniform(0.1, 1.0, (5, 2, 7)), (np.zeros((0, 4, 4)), np.zeros((0, 3))))
    one = dyn.edge_is_free(q0[0], q1[0], empty)
    assert one.shape == (5,)
    for k in range(5):
        assert one[k] == dyn.edge_is_free(q0[0], q1[0], rd.Obstacles(capsules=empty.capsules[k]))
    with pytest.raises(rd.ArgumentError, match="do not broadcast with those of the edges"):
        dyn.edge_is_free(q0, q1, empty)
    ik = rd.InverseKinematics(model, model.link_names[-1])
    for call in (
        lambda: dyn.min_distance(q0[:3], empty),
        lambda: dyn.is_free(q0[:3], empty),
        lambda: ik.velocity(q0[:3], None, 0.01, obstacles=empty),
        lambda: ik.solve(np.broadcast_to(np.eye(4), (3, 1, 4, 4)), obstacles=empty),
    ):
        with pytest.raises(rd.ArgumentError, match=r"obstacles: got leading axes \(5,\); wanted .* \(3,\)"):
            call()
    with pytest.raises(rd.ArgumentError, match="boxes: got shapes"):
        rd.Obstacles(boxes=(np.broadcast_to(np.eye(4), (2, 3, 4, 4)), np.ones((5, 3, 3))))


def test_gradients_of_distances_that_are_nan_are_nan():
    model, rng = limbs(), np.random.default_rng(6)
    q = model.random_configuration(rng, (3,))
    spheres = np.array([[1.0, 0.0, 0.0, 0.1], [np.nan, 0.0, 0.0, 0.1]])
    boxes = np.broadcast_to(TURNED, (1, 4, 4)), np.full((1, 3), 0.2)
    for engine in ("cpu", "reference"):
        dyn = rd.Dynamics(model, engine=engine, check=False)
        assert np.isnan(dyn.min_distance_gradient(q, rd.Obstacles(spheres, boxes=boxes))).all(), engine


@pytest.mark.parametrize(("engine", "code"), [("cpu", "auto"), ("cpu", "rolled"), ("reference", "auto")])
def test_a_gradient_is_nan_where_its_distance_is(engine, code):
    """Also where NaN is in a coordinate that moves no shape."""
    shapes = [rd.Sphere("base", (0.0, 0.0, 0.0), 0.1), rd.Sphere("link_2", (0.0, 0.0, 0.3), 0.1)]
    model = rd.load_urdf(Path(__file__).parents[2] / "models" / "arm7.urdf").with_shapes(shapes, [(0, 1)])
    dyn = rd.Dynamics(model, engine=engine, check=False, **({"code": code} if engine == "cpu" else {}))
    q, around = random_states(model, (7,))[0], rd.Obstacles([[1.0, 0.0, 0.0, 0.1]])
    q[range(7), range(7)] = np.nan
    for given in ((), (around,)):
        assert np.isnan(dyn.min_distance(q, *given)).all() and np.isnan(dyn.min_distance_gradient(q, *given)).all()
        assert np.isfinite(dyn.min_distance_gradient(np.zeros((2, 7)), *given)).all()


# Shapes and pairs.


def test_shapes_read_back_as_given_and_survive_files_and_edits(tmp_path: Path):
    model = limbs()
    assert model.shapes == SHAPES and all(a is b for a, b in zip(model.shapes, SHAPES, strict=True))
    assert SHAPES[2].start == (0.0, 0.0, 0.0) and SHAPES[2].end == (0.2, 0.0, 0.0) and SHAPES[5].pose == (0.1, 0.0, 0.0)
    model.save(tmp_path / "limbs.npz")
    q = random_states(model, (3,))[0]
    d = rd.Dynamics(model).distances(q)
    for again in (rd.Model.load(tmp_path / "limbs.npz"), pickle.loads(pickle.dumps(model))):
        assert again == model and again.pairs == model.pairs
        assert (rd.Dynamics(again).distances(q) == d).all()
    solid = rd.load_urdf(LIMBS).with_shapes(SHAPES[1:])
    assert solid != model and hash(solid) != hash(model)
    d = rd.Dynamics(solid).distances(q)
    for text in (solid.to_urdf(), solid.to_mjcf()):
        again = rd.load(text, **({"equality": "mimic"} if "<mujoco" in text else {}))
        assert [type(each) for each in again.shapes] == [type(each) for each in SHAPES[1:]]
        again = again.with_shapes(again.shapes, solid.pairs)
        assert np.abs(rd.Dynamics(again).distances(q) - d).max() < 1e-12


def test_edits_keep_pairs_of_what_remains():
    model = limbs()
    pairs = {(model.shapes[i].link, model.shapes[j].link) for i, j in model.pairs}
    locked = model.lock({"j2": 0.1})
    assert len(locked.shapes) == 8
    assert {(locked.shapes[i].link, locked.shapes[j].link) for i, j in locked.pairs} == pairs - {("b", "c")}
    q = random_states(model, (3,))[0]
    q[:, 2] = 0.1
    d = dict(zip(model.pairs, rd.Dynamics(model).distances(q).T, strict=True))
    found = dict(zip(locked.pairs, rd.Dynamics(locked).distances(q[:, :2]).T, strict=True))
    assert all(np.abs(found[pair] - d[pair]).max() < 1e-12 for pair in found)
    part = model.subtree("a")
    assert [each.link for each in part.shapes] == ["a", "b", "c", "d", "d", "d"]
    assert part.pairs == tuple((i - 2, j - 2) for i, j in model.pairs if i > 1)
    two = model.attach(model, "d", prefix="second_")
    assert len(two.shapes) == 16 and two.n_pairs == 2 * model.n_pairs
    assert "pairs-not-between" in [each.code for each in two.report]
    other = model.reroot("d")
    assert other.n_pairs == model.n_pairs
    framed = model.with_frames({"tip": ("d", (0.0, 0.0, 0.3))})
    assert framed.pairs == model.pairs and framed.geometries == model.geometries


def test_pairs_that_are_left_out_are_named():
    model = limbs()
    left = {f.message.split(" (")[0]: f.elements for f in model.report if f.code == "pair-left-out"}
    assert 'shape 5 "hand" - shape 7 of "d"' in left["they are on one body"]
    assert 'shape 2 of "a" - shape 3 "knob"' in left["they are on neighbouring bodies"]
    assert all(abs(i - j) > 0 for i, j in model.pairs) and len(model.pairs) + sum(map(len, left.values())) == 8 * 7 // 2
    always = rd.load_urdf(LIMBS).with_shapes([rd.Sphere("base", (0, 0, 0), 2.0), rd.Sphere("d", (0, 0, 0), 0.1)])
    assert not always.pairs and any("touch" in f.message for f in always.report)
    with pytest.raises(rd.ArgumentError, match="no pairs of shapes"):
        rd.Dynamics(always).min_distance(np.zeros(3))


def test_pairs_by_name_by_link_and_by_srdf():
    base = rd.load_urdf(LIMBS)
    listed = base.with_shapes(SHAPES, [("floor", "hand"), (SHAPES[3], 7), ("d", "a")])
    assert listed.pairs == ((0, 5), (3, 7), (5, 2), (6, 2), (7, 2))
    srdf = (
        '<robot name="limbs"><disable_collisions link1="base" link2="a"/><disable_collisions link1="d" link2="c"/>'
        '<disable_collisions link1="d" link2="x"/></robot>'
    )
    by_srdf = base.with_shapes(SHAPES, srdf=srdf)
    links = {frozenset((by_srdf.shapes[i].link, by_srdf.shapes[j].link)) for i, j in by_srdf.pairs}
    every = {frozenset((a, b)) for a in "abcd" for b in "abcd" if a < b} | {frozenset(("base", b)) for b in "abcd"}
    assert links == every - {frozenset(("base", "a")), frozenset("cd")}
    assert "srdf-unknown-link" in [each.code for each in by_srdf.report]


def test_contacts_that_mjcf_excludes_are_left_out():
    pytest.importorskip("mujoco")
    body = '<body name="{0}" pos="{1} 0 0"><joint axis="0 0 1"/><geom name="{0}g" type="sphere" size="0.1" {2}/></body>'
    bodies = "".join(
        body.format(*each)
        for each in (("a", 0, ""), ("b", 1, ""), ("c", 2, ""), ("d", 3, 'contype="0" conaffinity="2"'))
    )
    exclude = '<contact><exclude body1="a" body2="b"/></contact>'
    model = rd.load_mjcf(f"<mujoco><worldbody>{bodies}</worldbody>{exclude}</mujoco>")
    assert model.pairs == ((0, 2), (1, 2))


def test_what_floats_is_measured_to_the_floor():
    """And links on both sides of several joints of one body are neighbours."""
    pytest.importorskip("mujoco")
    model = rd.load_mjcf(
        '<mujoco><worldbody><geom name="floor" type="plane" size="1 1 1"/><body name="a" pos="0 0 1"><freejoint/>'
        '<geom type="sphere" size="0.1"/><body name="b" pos="0.3 0 0"><joint axis="0 0 1"/><joint axis="0 1 0"/>'
        '<geom type="box" size="0.1 0.1 0.1"/></body></body></worldbody></mujoco>'
    )
    assert model.pairs == ((0, 1), (0, 2))
    q = random_states(model, (9,))[0]
    d, T = rd.Dynamics(model).distances(q), rd.Dynamics(model).link_pose(q, "b")
    assert np.abs(d[:, 0] - (q[:, 2] - 0.1)).max() < 1e-12
    assert np.abs(d[:, 1] - (T[:, 2, 3] - 0.1 * np.abs(T[:, 2, :3]).sum(-1))).max() < 1e-12


def test_collisions_of_files_are_shapes():
    text = LIMBS.replace(
        '<link name="a">',
        '<link name="a"><collision><origin xyz="1 2 3" rpy="0.1 0.2 0.3"/><geometry>'
        '<cylinder radius="0.1" length="0.4"/></geometry></collision><collision><geometry><mesh filename="x.stl"/>'
        "</geometry></collision>",
    )
    model = rd.load_urdf(text)
    (shape,) = model.shapes
    assert isinstance(shape, rd.Cylinder) and (shape.link, shape.radius, shape.length) == ("a", 0.1, 0.4)
    assert np.allclose(shape.pose[:3, 3], (1.0, 2.0, 3.0))
    assert isinstance(model.report, Report)
    assert {"cylinder-as-capsule", "collision-not-used"} <= {each.code for each in model.report}


def test_spheres_cover_a_mesh_and_stick_out_no_more_than_allowed(tmp_path: Path):
    """A torus, whose surface and inside are known in closed form; then as the collision of a robot."""
    trimesh = pytest.importorskip("trimesh")
    torus = trimesh.creation.torus(0.2, 0.06, major_sections=32, minor_sections=16)
    torus.export(tmp_path / "torus.stl")
    trimesh.creation.icosphere(1, radius=0.05).export(tmp_path / "ball.stl")
    fit = rd.fit_spheres(torus, 0.045)
    surface = trimesh.sample.sample_surface(torus, 2000, seed=0)[0]
    gaps = np.min([np.linalg.norm(surface - c[:3], axis=1) - c[3] for c in fit.spheres], axis=0)
    assert gaps.max() <= 1e-12 and fit.bare == fit.bare_share == 0.0 and not fit.of_hull
    ball = trimesh.creation.icosphere(2).vertices
    x, y, z = (fit.spheres[:, None, :3] + fit.spheres[:, 3, None, None] * ball).reshape(-1, 3).T
    assert 0.0 < (np.hypot(np.hypot(x, y) - 0.2, z) - 0.06).max() <= fit.sticks_out + 1e-3
    few = rd.fit_spheres(torus, 0.045, most=3)
    assert len(few.spheres) == 3 and few.bare > 0.05 and 0.0 < few.bare_share < 1.0
    collision = '<collision><origin xyz="0 0 1"/><geometry><mesh filename="{}"/></geometry></collision>'
    for name, meshes, kinds in (("ball.stl", "spheres", {rd.Sphere}), ("torus.stl", "box", {rd.Box})):
        (tmp_path / "robot.urdf").write_text(
            LIMBS.replace('<link name="a">', f'<link name="a">{collision.format(name)}')
        )
        model = rd.load_urdf(tmp_path / "robot.urdf", meshes=meshes)
        assert {type(each) for each in model.shapes} == kinds
        assert [f.severity for f in model.report if f.code == "collision-mesh-replaced"] == ["info"]
    box = rd.load_urdf(tmp_path / "robot.urdf", meshes="box").shapes[0]
    assert np.allclose(box.size, (0.52, 0.52, 0.12), atol=1e-6) and np.allclose(box.pose[:3, 3], (0.0, 0.0, 1.0))
    (tmp_path / "robot.urdf").write_text(
        LIMBS.replace('<link name="a">', f'<link name="a">{collision.format("no.stl")}')
    )
    model = rd.load_urdf(tmp_path / "robot.urdf", meshes="box")
    assert not model.shapes
    assert [f.severity for f in model.report if f.code == "collision-mesh-replaced"] == ["warning"]
    with pytest.raises(rd.ArgumentError, match="meshes: got 'hull'"):
        rd.load_urdf(LIMBS, meshes="hull")
    with pytest.raises(rd.ArgumentError, match=r"tolerance: got 1e-05 for a surface"):
        rd.fit_spheres(rd.Box("a", size=(1.0, 1.0, 1.0)), 1e-5)


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda m: rd.Sphere("a", radius=-0.1), rd.ArgumentError, r"Sphere\.radius: got -0\.1"),
        (lambda m: rd.Capsule("a", radius=-1.0), rd.ArgumentError, r"Capsule\.radius"),
        (lambda m: rd.Box("a", size=(1.0, -1.0, 1.0)), rd.ArgumentError, r"Box\.size: got -1"),
        (lambda m: rd.Box("a", np.ones((4, 4)), (1.0, 1.0, 1.0)), rd.ArgumentError, r"Box\.pose"),
        (lambda m: rd.Plane("a", (0.0, 1.0, 1.0)), rd.ArgumentError, r"Plane\.normal"),
        (lambda m: rd.Sphere("a", (0.0, np.nan, 0.0), 1.0), rd.NumericalError, r"Sphere\.at"),
        (lambda m: m.with_shapes([rd.Sphere("x", radius=1.0)]), rd.ArgumentError, r"shapes\[0\]\.link: got 'x'"),
        (
            lambda m: m.with_shapes(["mesh.stl"]),
            rd.ArgumentError,
            r"shapes\[0\]: got 'mesh.stl'; wanted robodyn.Sphere",
        ),
        (
            lambda m: m.with_shapes([rd.HeightField("a", np.zeros((3, 3)), (1.0, 1.0))]),
            rd.UnavailableError,
            r"shapes\[0\]: got a HeightField on \"a\"; there is no formula",
        ),
        (lambda m: m.with_shapes(SHAPES, "all"), rd.ArgumentError, "pairs: got 'all'"),
        (lambda m: m.with_shapes(SHAPES, [("hand", "x")]), rd.ArgumentError, r"pairs\[0\]\[1\]: got 'x'"),
        (lambda m: m.with_shapes(SHAPES, [("hand", "hand")]), rd.ArgumentError, "twice"),
        (lambda m: m.with_shapes(SHAPES, [], srdf="<robot/>"), rd.ArgumentError, "srdf: got one and a list"),
        (lambda m: rd.Dynamics(m).min_distance(np.zeros(3)), rd.ArgumentError, "has no shapes; wanted"),
        (lambda m: rd.Obstacles(spheres=[[0.0, 0.0, 0.0, -1.0]]), rd.ArgumentError, "spheres: got negative radii"),
        (lambda m: rd.Obstacles(boxes=(np.ones((1, 4, 4)), np.ones((1, 3)))), rd.ArgumentError, "no poses"),
        (lambda m: rd.Dynamics(limbs()).distances(np.zeros(3), 3), rd.ArgumentError, "obstacles: got 3"),
        (
            lambda m: rd.Dynamics(limbs()).distances(np.zeros(3), rd.Obstacles([[0, 0, 0, 1.0]], ignore=["x"])),
            rd.ArgumentError,
            r"ignore\[0\]: got 'x'",
        ),
        (lambda m: rd.Dynamics(limbs()).distances_gradient(np.zeros(3), pairs=[99]), rd.ArgumentError, "pairs: got"),
    ],
)
def test_what_cannot_be_is_refused_by_name(make, error, match):
    with pytest.raises(error, match=match):
        make(rd.load_urdf(LIMBS))
