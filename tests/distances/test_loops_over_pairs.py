"""Loops over pairs of shapes against straight-line programs, the reference engine and coal."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import random_states
from test_distances import TURNED, by_coal, limbs, obstacles

import robodyn as rd

MODELS = Path(__file__).parents[2] / "models"
QUERIES = ("distances", "min_distance", "distances_gradient", "min_distance_gradient", "witness_points")
JOINTS = ("revolute", "prismatic", "continuous", "planar", "spherical", "fixed")
TOLERANCES = {"float64": 1e-12, "float32": 2e-4}
MATRIX = pytest.mark.matrix
DTYPES = pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=MATRIX)])


def scene(seed: int, n: int = 13, joints: int = 9, base: str = "floating") -> rd.Model:
    """A random tree with mimicking joints, and n shapes of all kinds; every pair of different links."""
    print(f"scene: seed {seed}")
    rng = np.random.default_rng(seed)
    tree = rd.random_tree(joints, seed=seed, joints=JOINTS, mimic=0.2, base=base)
    made: list[rd.Shape] = []
    for k in range(n):
        link, at, radius = str(rng.choice(tree.link_names[1:])), rng.uniform(-0.5, 0.5, 3), rng.uniform(0.05, 0.1)
        kinds = [
            rd.Sphere(link, at, 0.1 if k % 2 else 0.05),
            rd.Capsule(link, at, at + rng.uniform(-0.3, 0.3, 3), radius),
            rd.Box(link, at, rng.uniform(0.05, 0.4, 3)),
            rd.Cylinder(link, at, radius, 0.2),
            rd.Sphere(link, at, radius),
            rd.Plane(link, (0.0, 0.6, 0.8), -1.5),
        ]
        made.append(kinds[k % 6 if k < 6 else k % 5])
    apart = [(i, j) for i in range(n) for j in range(n) if i != j and (i < j) == bool((i + j) % 3)]
    planes = {k for k, each in enumerate(made) if isinstance(each, rd.Plane)}
    pairs = [(i, j) for i, j in apart if made[i].link != made[j].link and not {i, j} <= planes]
    return tree.with_shapes(made, pairs)


@pytest.mark.parametrize(
    ("dtype", "base"),
    [
        ("float64", "floating"),
        *(pytest.param(*each, marks=MATRIX) for each in (("float64", "fixed"), ("float32", "floating"))),
    ],
)
@pytest.mark.matrix
def test_loops_are_programs(dtype, base):
    """Also in one state, and for robots with mimicking joints and joints of several degrees of freedom."""
    model = scene(1 if base == "fixed" else 2, base=base)
    right = rd.Dynamics(model, engine="reference")
    dyn = rd.Dynamics(model, engine="cpu", code="rolled", dtype=dtype, threads=1)
    q = random_states(model, (21,))[0]
    rng = np.random.default_rng(3)
    spheres, poses = rng.uniform(-1.0, 1.0, (21, 3, 4)), np.tile(TURNED, (2, 1, 1))
    spheres[..., 3] = 0.1
    around = rd.Obstacles(spheres, rng.uniform(0.1, 1.0, (2, 7)), (poses, rng.uniform(0.1, 0.3, (2, 3))))
    for name in QUERIES:
        for given in (None,) if name == "witness_points" else (None, around):
            wanted = getattr(right, name)(*(q, given) if given else (q,))
            out = np.full(wanted.shape, np.nan, dtype)
            getattr(dyn, name)(*(q, given) if given else (q,), out=out)
            error = np.abs(out - wanted)
            # In single precision the nearest pair, or a normal between faces, may be another one.
            worst = np.quantile(error, 0.97 if dtype == "float32" and "distance" not in name[-8:] else 1.0)
            assert worst <= TOLERANCES[dtype] * 5.0, (name, given)
    assert dyn.program("min_distance").mode == "rolled"


@DTYPES
def test_a_row_has_the_same_bits_in_every_batch_and_on_every_thread(dtype):
    """Pairs that a vector of states skips depend on all of its states; results do not."""
    model = scene(4, n=14)
    q = random_states(model, (4096,))[0].astype(dtype)
    rng = np.random.default_rng(0)
    around = rd.Obstacles(np.concatenate([rng.uniform(-2.0, 2.0, (25, 3)), np.full((25, 1), 0.05)], axis=1))
    dyn, other = (rd.Dynamics(model, engine="cpu", code="rolled", dtype=dtype, threads=n) for n in (1, 2))
    for name in ("min_distance", "min_distance_gradient"):
        for given in ((), (around,)):
            ask = getattr(dyn, name)
            whole = ask(q, *given)
            assert np.isfinite(whole).all()
            assert (getattr(other, name)(q, *given) == whole).all(), name
            for rows in ([7], [1, 900, 3], rng.integers(0, 4096, 20)):
                assert (ask(q[rows], *given) == whole[rows]).all(), name
            assert (ask(q[11], *given) == whole[11]).all()
    for given in ((), (around,)):
        least = dyn.min_distance(q, *given)
        for share in (0.1, 0.5, 0.9):
            clearance = float(np.quantile(least, share))
            free = dyn.is_free(q, *given, clearance=clearance)
            assert (free == (least > clearance)).all() and 0.0 < free.mean() < 1.0


@pytest.mark.parametrize("base", ["fixed", pytest.param("floating", marks=MATRIX)])
def test_loops_are_coal(base):
    model = limbs(base)
    q = random_states(model, (30,))[0]
    exact = [p for p, pair in enumerate(model.pairs) if {0, 6} != set(pair)]  # the cylinder on the floor is exact
    dyn = rd.Dynamics(model, engine="cpu", code="rolled")
    assert np.abs(dyn.distances(q) - by_coal(model, q))[:, exact].max() <= 2e-6
    assert (dyn.min_distance(q) == dyn.distances(q).min(axis=1)).all()


@DTYPES
def test_nan_and_infinity_in_loops(dtype):
    """NaN in a coordinate, a quaternion or an obstacle; an obstacle at infinity is far away."""
    model = limbs("floating")
    dyn = rd.Dynamics(model, engine="cpu", code="rolled", dtype=dtype)
    q = random_states(model, (20,))[0].astype(dtype)
    clean, slope = dyn.min_distance(q), dyn.min_distance_gradient(q)
    for column in range(model.nq):
        for value in (np.nan, np.inf) if column > 6 else (np.nan,):
            spoilt = q.copy()
            spoilt[5, column] = value
            least, row = dyn.min_distance(spoilt), dyn.min_distance_gradient(spoilt)
            assert np.isnan(least[5]) and (np.delete(least, 5) == np.delete(clean, 5)).all(), column
            assert np.isnan(row[5]).all() and (np.delete(row, 5, 0) == np.delete(slope, 5, 0)).all(), column
            assert not dyn.is_free(spoilt, clearance=-9.0)[5]
    still = q.copy()
    still[2, 3:7] = 0.0
    assert np.isnan(dyn.min_distance(still)[2]) and not dyn.is_free(still, clearance=-9.0)[2]
    around = obstacles(np.random.default_rng(0), (20,))
    for name, k in (("spheres", 4), ("capsules", 7)):
        rows = np.broadcast_to(getattr(around, name), (20, *getattr(around, name).shape[-2:])).copy()
        for column in range(k):
            spoilt = rows.copy()
            spoilt[7, 3, column] = np.nan
            given = rd.Obstacles(**{name: spoilt})
            assert (np.isnan(dyn.min_distance(q, given)) == (np.arange(20) == 7)).all()
            assert not dyn.is_free(q, given, -9.0)[7]
    spheres = model.with_shapes([each for each in model.shapes if isinstance(each, rd.Sphere | rd.Capsule)])
    far = rd.Obstacles(np.array([[np.inf, 0.0, 0.0, 0.1], [0.0, 0.0, 9.0, 0.1]]))
    assert np.isfinite(rd.Dynamics(spheres, engine="cpu", dtype=dtype).min_distance(q, far)).all()


@pytest.mark.matrix
def test_what_was_too_large_for_programs():
    """Some 2,000 pairs of all kinds; 150 and more of boxes."""
    model = scene(5, n=66, joints=12)
    assert model.n_pairs > 1788
    q = random_states(model, (9,))[0]
    right, dyn = rd.Dynamics(model, engine="reference"), rd.Dynamics(model, engine="cpu")
    d = right.distances(q)
    assert dyn.program("min_distance").mode == "rolled"
    assert np.abs(dyn.distances(q) - d).max() < 1e-12
    assert np.abs(dyn.min_distance(q) - d.min(axis=1)).max() < 1e-12
    G = dyn.distances_gradient(q)
    assert np.abs(dyn.min_distance_gradient(q) - G[np.arange(9), d.argmin(axis=1)]).max() < 1e-12
    p = dyn.witness_points(q)
    assert np.abs(np.linalg.norm(p[:, :, 0] - p[:, :, 1], axis=-1) - np.abs(d)).max() < 1e-9
    tree, rng = rd.load_urdf(MODELS / "arm7.urdf"), np.random.default_rng(0)
    boxes = [rd.Box(link, rng.uniform(-0.1, 0.1, 3), rng.uniform(0.02, 0.2, 3)) for link in tree.link_names * 3]
    only = tree.with_shapes(boxes)
    assert only.n_pairs >= 150
    q = random_states(only, (50,))[0]
    d = rd.Dynamics(only).distances(q)
    assert np.abs(rd.Dynamics(only).min_distance(q) - d.min(axis=1)).max() < 1e-12


@DTYPES
def test_obstacles_of_any_number_and_none(dtype):
    """One kernel for all; results for each configuration's own set are those of one after another."""
    model, rng = limbs(), np.random.default_rng(6)
    dyn = rd.Dynamics(model, engine="cpu", dtype=dtype)
    q = random_states(model, (5,))[0].astype(dtype)
    centres = rng.uniform(-1.0, 1.0, (5, 300, 3))
    rows = np.concatenate([centres, np.full((5, 300, 1), 0.05)], axis=2)
    for k in (0, 1, 17, 300):
        given = rd.Obstacles(rows[:, :k])
        d = dyn.distances(q, given)
        assert d.shape == (5, model.n_pairs + 8 * k)
        assert np.abs(dyn.min_distance(q, given) - d.min(axis=1)).max() <= 1e-6
        for i in range(5):
            own = rd.Obstacles(rows[i, :k])
            assert (dyn.distances(q[i], own) == d[i]).all()
            assert dyn.min_distance(q[i], own) == dyn.min_distance(q, given)[i]
    nothing = rd.Obstacles(rows[0], ignore=list(model.link_names))
    assert dyn.distances(q, nothing).shape == (5, model.n_pairs)
    assert (dyn.min_distance(q, nothing) == dyn.min_distance(q)).all()
