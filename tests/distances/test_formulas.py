"""Formulas of distances against coal and MuJoCo, with witness points and normals. A quarter of the cases is deep or
degenerate: equal or nearly equal rotations, capsules of length zero, segments that cross."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from robodyn.algorithms.distances.formulas import Ball, Brick, Flat, Rod, nearest
from robodyn.core.spatial import rotation_from_quaternion

N = 400
PAIRS = [
    ("sphere", "sphere"),
    ("sphere", "capsule"),
    ("capsule", "capsule"),
    ("sphere", "box"),
    ("capsule", "box"),
    ("box", "box"),
    ("sphere", "plane"),
    ("capsule", "plane"),
    ("box", "plane"),
    ("cylinder", "plane"),
]
INSIDE_IS_WRONG = {("capsule", "box")}
"""Where MuJoCo 4.0 is wrong for shapes that overlap."""


def _rotations(rng: np.random.Generator) -> np.ndarray:
    q = rng.standard_normal((N, 4))
    q[: N // 4] = [0.0, 0.0, 0.0, 1.0]
    q[: N // 8] += 10.0 ** rng.uniform(-12, -2, (N // 8, 1)) * rng.standard_normal((N // 8, 4))
    q /= np.linalg.norm(q, axis=1, keepdims=True)
    E = np.moveaxis(np.array(np.broadcast_arrays(*rotation_from_quaternion(*q.T))), 0, -1)
    return E.reshape(N, 3, 3).swapaxes(1, 2)


class Cases:
    """Two shapes of each kind in N poses: C centres, R rotations, h half axes, r radii, b half edges."""

    def __init__(self, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        print(f"shapes: seed {seed}")
        self.C, self.R = rng.uniform(-0.5, 0.5, (2, N, 3)), np.array([_rotations(rng), _rotations(rng)])
        deep = rng.random(N) < 0.25
        self.C[1, deep] = self.C[0, deep] + rng.uniform(-0.05, 0.05, (deep.sum(), 3))
        self.r, self.L, self.b = (10.0 ** rng.uniform(-2, -0.3, (2, N, *more)) for more in ((), (), (3,)))
        self.L[0, :20] = self.L[1, 10:30] = 1e-9
        self.h = self.R[..., :, 2] * self.L[..., None]
        s = rng.uniform(-0.9, 0.9, (2, 20, 1))
        self.C[1, 40:60] = self.C[0, 40:60] + s[0] * self.h[0, 40:60] - s[1] * self.h[1, 40:60]

    def solid(self, kind: str, k: int, dtype: str = "float64") -> Ball | Rod | Brick | Flat:
        """The shapes as one whose scalars are arrays."""
        C, h, r, L, b, R = (a[k].astype(dtype) for a in (self.C, self.h, self.r, self.L, self.b, self.R))
        if kind == "sphere":
            return Ball(tuple(C.T), r)
        if kind in ("capsule", "cylinder"):
            return Rod(tuple(C.T), tuple(h.T), r, L * L, kind == "cylinder")
        if kind == "plane":
            return Flat(tuple(R[:, :, 2].T), (R[:, :, 2] * C).sum(-1))
        return Brick(tuple(C.T), tuple(R.swapaxes(1, 2).reshape(N, 9).T), tuple(b.T))

    def off_surface(self, kind: str, k: int, p: np.ndarray) -> np.ndarray:
        """Distances of points from the surfaces of the shapes."""
        C, h, R = self.C[k], self.h[k], self.R[k]
        if kind == "plane":
            return np.abs(((p - C) * R[:, :, 2]).sum(-1))
        if kind == "box":
            e = np.abs(np.einsum("nji,nj->ni", R, p - C)) - self.b[k]
            return np.abs(np.linalg.norm(np.maximum(e, 0.0), axis=1) + np.minimum(e.max(1), 0.0))
        if kind == "cylinder":
            z = np.abs(((p - C) * R[:, :, 2]).sum(-1))
            across = np.linalg.norm(p - C - ((p - C) * R[:, :, 2]).sum(-1)[:, None] * R[:, :, 2], axis=1)
            return np.maximum(np.maximum(z - self.L[k], across - self.r[k]), 0.0)
        s = 0.0 if kind == "sphere" else np.clip(((p - C) * h).sum(-1) / (h * h).sum(-1), -1, 1)[:, None]
        return np.abs(np.linalg.norm(p - C - s * h, axis=1) - self.r[k])


@cache
def cases() -> Cases:
    return Cases()


def _near(one: str, other: str, dtype: str = "float64") -> tuple[np.ndarray, ...]:
    with np.errstate(all="ignore"):
        found = nearest(cases().solid(one, 0, dtype), cases().solid(other, 1, dtype))
    points = (np.stack([np.broadcast_to(x, N) for x in v], -1) for v in (found.p1, found.p2, found.n))
    return found.d, *points


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_distances_are_those_of_coal(one, other):
    coal = pytest.importorskip("coal")
    make = {
        "sphere": lambda r, L, b: coal.Sphere(r),
        "capsule": lambda r, L, b: coal.Capsule(r, 2.0 * L),
        "cylinder": lambda r, L, b: coal.Cylinder(r, 2.0 * L),
        "box": lambda r, L, b: coal.Box(*(2.0 * b)),
        "plane": lambda r, L, b: coal.Halfspace(np.array([0.0, 0.0, 1.0]), 0.0),
    }
    request = coal.DistanceRequest(True, True)
    request.gjk_tolerance = request.epa_tolerance = 1e-9
    request.gjk_max_iterations = request.epa_max_iterations = 400
    all_cases, wanted = cases(), np.empty(N)
    for i in range(N):
        shapes = [
            make[kind](all_cases.r[k, i], all_cases.L[k, i], all_cases.b[k, i]) for k, kind in enumerate((one, other))
        ]
        poses = [coal.Transform3s(all_cases.R[k, i], all_cases.C[k, i]) for k in (0, 1)]
        wanted[i] = coal.distance(shapes[0], poses[0], shapes[1], poses[1], request, coal.DistanceResult())
    assert np.abs(_near(one, other)[0] - wanted).max() <= 2e-6
    assert (wanted > 0.01).sum() > N // 10 and (wanted < -0.01).sum() > N // 10


@pytest.mark.parametrize(("one", "other"), PAIRS[:6])
def test_distances_are_those_of_mujoco(one, other):
    mujoco = pytest.importorskip("mujoco")
    bodies = "".join(f'<body><freejoint/><geom type="{kind}" size="1 1 1" mass="1"/></body>' for kind in (one, other))
    model = mujoco.MjModel.from_xml_string(
        f'<mujoco><option ccd_iterations="200" ccd_tolerance="1e-9"/><worldbody>{bodies}</worldbody></mujoco>'
    )
    data, all_cases, wanted = mujoco.MjData(model), cases(), np.empty(N)
    mujoco.mj_kinematics(model, data)
    model.geom_rbound[:] = 100.0
    for i in range(N):
        for k, kind in enumerate((one, other)):
            r, L = all_cases.r[k, i], all_cases.L[k, i]
            model.geom_size[k] = {"sphere": (r, 0, 0), "capsule": (r, L, 0), "box": all_cases.b[k, i]}[kind]
            data.geom_xpos[k], data.geom_xmat[k] = all_cases.C[k, i], all_cases.R[k, i].ravel()
        wanted[i] = mujoco.mj_geomDistance(model, data, 0, 1, 100.0, np.zeros(6))
    d = _near(one, other)[0]
    judged = d > 0.0 if (one, other) in INSIDE_IS_WRONG else np.ones(N, bool)
    judged[:30] = False  # capsules of length zero
    assert judged.sum() > N // 3
    assert np.abs(d - wanted)[judged].max() <= 2e-6


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_witness_points_are_on_the_surfaces_along_the_normal(one, other):
    d, p1, p2, n = _near(one, other)
    assert np.abs(np.linalg.norm(n, axis=1) - 1.0).max() < 1e-12
    assert np.abs(p1 - p2 - d[:, None] * n).max() < 1e-9
    assert max(cases().off_surface(one, 0, p1).max(), cases().off_surface(other, 1, p2).max()) < 2e-6


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_single_precision_keeps_its_digits_near_parallel(one, other):
    d = _near(one, other)[0]
    in_single = _near(one, other, "float32")[0]
    assert in_single.dtype == np.float32
    assert np.abs(in_single - d).max() < 1e-4


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_nan_is_passed_on_and_order_does_not_matter(one, other):
    first, second = cases().solid(one, 0), cases().solid(other, 1)
    if one != "cylinder":
        spoilt = first._replace(c=(first.c[0] * np.nan, *first.c[1:]))
        with np.errstate(all="ignore"):
            assert np.isnan(nearest(spoilt, second).d).all()
    with np.errstate(all="ignore"):
        there, back = nearest(first, second), nearest(second, first)
    assert np.abs(there.d - back.d).max() < 1e-9
