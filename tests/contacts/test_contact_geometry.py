"""Contact points against MuJoCo: distance, place and axes, on random and awkward poses."""

from __future__ import annotations

import numpy as np
import pytest

from robodyn.algorithms.contacts.geometry import APART, body, points
from robodyn.core.description import Geometry, Pose
from robodyn.core.spatial import rotation_from_quaternion

N = 300
PAIRS = [
    ("plane", "sphere"),
    ("plane", "capsule"),
    ("plane", "cylinder"),
    ("plane", "box"),
    ("sphere", "sphere"),
    ("sphere", "capsule"),
    ("sphere", "cylinder"),
    ("sphere", "box"),
    ("capsule", "capsule"),
    ("capsule", "box"),
]
MARGIN = 0.03
SIZES = {"plane": (0.0, 0.0), "sphere": (0.1,), "capsule": (0.05, 0.4), "cylinder": (0.1, 0.3), "box": (0.2, 0.4, 0.1)}
"""As of geometries: radius and full length, full edges."""


def _poses(one: str, other: str) -> tuple[np.ndarray, np.ndarray]:
    """Positions (2, N, 3) and rotations (2, N, 3, 3) of two shapes near each other. A quarter has equal rotations, a
    quarter is turned by right angles, with places on a grid."""
    seed = 7
    print(f"contacts of {one} and {other}: seed {seed}")
    rng = np.random.default_rng(seed)
    q = rng.standard_normal((2, N, 4))
    q[:, : N // 4] = [0.0, 0.0, 0.0, 1.0]
    turned = np.array([[0.0, 0.0, 0.0, 1.0], [1.0, 0.0, 0.0, 1.0], [0.0, 1.0, 0.0, 1.0], [0.0, 0.0, 1.0, 1.0]])
    q[:, N // 4 : N // 2] = turned[rng.integers(0, 4, (2, N // 4))]
    q /= np.linalg.norm(q, axis=-1, keepdims=True)
    E = np.stack(np.broadcast_arrays(*rotation_from_quaternion(*np.moveaxis(q, -1, 0))), -1).reshape(2, N, 3, 3)
    p = rng.uniform(-0.25, 0.25, (2, N, 3))
    p[:, N // 8 : 3 * N // 8] = np.round(p[:, N // 8 : 3 * N // 8], 1)
    p[1] += [0.0013, -0.0027, 0.0041]  # no ties between faces
    if one == "plane":
        n = E[0].swapaxes(1, 2)[:, :, 2]
        p[1] += n * ((p[0] - p[1]) * n).sum(-1)[:, None] + n * rng.uniform(-0.02, 0.2, (N, 1))
    return p, E.swapaxes(2, 3)


def _given(kind: str, p: np.ndarray, R: np.ndarray, dtype: str):
    """A shape whose scalars are arrays over poses."""
    T = np.zeros((len(p), 4, 4), dtype)
    T[:, :3, :3], T[:, :3, 3], T[:, 3, 3] = R, p, 1.0
    return body(Geometry("", "collision", kind, Pose(), SIZES[kind]), list(T.reshape(-1, 16).T))


def _stack(values, dtype: str) -> np.ndarray:
    return np.stack([np.broadcast_to(x, N) for x in values], -1).astype(dtype)


def found(one: str, other: str, dtype: str = "float64", poses=None) -> list[np.ndarray]:
    """Slots, each (N, 13): distance, place, three axes."""
    p, R = _poses(one, other) if poses is None else poses
    with np.errstate(all="ignore"):
        slots = points(*(_given(kind, p[k], R[k], dtype) for k, kind in enumerate((one, other))))
    return [_stack((s.dist, *s.point, *s.n, *s.t1, *s.t2), dtype) for s in slots]


def _mujoco(one: str, other: str, poses) -> list[np.ndarray]:
    """MuJoCo's contacts in each pose, (n, 13)."""
    mujoco = pytest.importorskip("mujoco")
    sizes = {"sphere": "0.1", "capsule": "0.05 0.2", "cylinder": "0.1 0.15", "box": "0.1 0.2 0.05", "plane": "3 3 1"}
    half = MARGIN / 2
    world = "".join(
        f'<geom type="plane" size="{sizes["plane"]}" margin="{half}"/>'
        if kind == "plane"
        else f'<body><freejoint/><geom type="{kind}" size="{sizes[kind]}" mass="1" margin="{half}"/></body>'
        for kind in (one, other)
    )
    model = mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{world}</worldbody></mujoco>")
    data, contacts = mujoco.MjData(model), []
    mujoco.mj_forward(model, data)
    for p, R in zip(poses[0].swapaxes(0, 1), poses[1].swapaxes(0, 1), strict=True):
        data.geom_xpos[:], data.geom_xmat[:] = p, R.reshape(2, 9)
        mujoco.mj_collision(model, data)
        contacts.append(np.array([(c.dist, *c.pos, *c.frame) for c in data.contact[: data.ncon]]).reshape(-1, 13))
    return contacts


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_contacts_are_those_of_mujoco(one, other):
    poses = _poses(one, other)
    ours, theirs = np.stack(found(one, other, poses=poses), 1), _mujoco(one, other, poses)
    counts: dict[int, int] = {}
    for k, (mine, wanted) in enumerate(zip(ours, theirs, strict=True)):
        mine = mine[mine[:, 0] < MARGIN]
        assert len(mine) == len(wanted), (k, mine, wanted)
        counts[len(mine)] = counts.get(len(mine), 0) + 1
        for row in mine:
            upright = other == "capsule" and one == "plane" and abs(row[4:7] @ poses[1][1, k, :, 2]) > 1.0 - 1e-9
            compared = 7 if upright else 13  # MuJoCo's tangents of a capsule that stands upright are rounding
            assert np.abs(wanted - row)[:, :compared].max(1).min() < 1e-12, (k, row, wanted)
    assert sum(n for c, n in counts.items() if c) > N // 10


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_axes_are_orthonormal_everywhere(one, other, dtype):
    poses = _poses(one, other)
    poses[0][1, :4] = poses[0][0, :4]  # centres that coincide, with equal axes
    eye, low = np.eye(3), 1e-12 if dtype == "float64" else 1e-5
    for slot in found(one, other, dtype, poses):
        axes = slot[:, 4:].reshape(N, 3, 3)
        assert np.abs(axes @ axes.swapaxes(1, 2) - eye).max() < low
        assert np.linalg.det(axes).min() > 0.999


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_single_precision_and_nan(one, other):
    poses = _poses(one, other)
    double, single = (np.stack(found(one, other, dtype, poses), 1)[..., 0] for dtype in ("float64", "float32"))
    for mine, wanted in zip(single, double, strict=True):
        nearby = np.sort(wanted[wanted < MARGIN])
        if len(nearby):
            assert abs(mine.min() - nearby[0]) < 1e-5
    spoilt = poses[0].copy()
    spoilt[1, 3] = np.nan
    for slot, clean in zip(found(one, other, poses=(spoilt, poses[1])), found(one, other, poses=poses), strict=True):
        assert np.isnan(slot[3, 0])
        assert np.array_equal(np.delete(slot, 3, 0), np.delete(clean, 3, 0))


def test_parallel_capsules_touch_at_both_ends_of_their_overlap():
    p, R = np.zeros((2, N, 3)), np.broadcast_to(np.eye(3), (2, N, 3, 3))
    p[1] = [0.08, 0.0, 0.1]
    near, other = found("capsule", "capsule", poses=(p, R))
    assert np.abs(near[0, :4] - [-0.02, 0.04, 0.0, -0.1]).max() < 1e-15
    assert np.abs(other[0, :4] - [-0.02, 0.04, 0.0, 0.2]).max() < 1e-15
    turned = np.array(R)
    turned[1] = [[1.0, 0.0, 0.0], [0.0, 0.8, -0.6], [0.0, 0.6, 0.8]]
    near, other = found("capsule", "capsule", poses=(p, turned))
    assert near[0, 0] < 0.0 and other[0, 0] == APART
