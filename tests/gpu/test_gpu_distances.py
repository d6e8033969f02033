"""Kernels of queries about distances, with obstacles as inputs, run on the host under the shim."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_host import missing
from gpu_host.arrays import DeviceArray, _device, there
from gpu_host.cases import empty, run
from robots import own

import robodyn as rd
from robodyn.algorithms.distances.tasks import Asked, task_of
from robodyn.engines.gpu.unrolled_kernels import unrolled_kernel
from robodyn.engines.reference import ReferenceEngine

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"kernels do not run on the host: {missing()}")

SHAPES = (
    rd.Plane("base", offset=-0.2),
    rd.Box("shoulder", size=(0.1, 0.2, 0.1)),
    rd.Capsule("upper_arm", (0.1, 0.0, 0.0), (0.3, 0.0, 0.0), 0.05),
    rd.Sphere("wrist_3", (0.0, 0.0, 0.1), 0.05),
)


@pytest.mark.parametrize("dtype", ["float64", pytest.param("float32", marks=pytest.mark.kernels)])
@pytest.mark.parametrize("name", ["distances", "min_distance_gradient"])
def test_kernels_take_obstacles(name, dtype):
    model = rd.load_urdf(own("arm6")).with_shapes(SHAPES)
    rng, batch = np.random.default_rng(1), 37
    spheres = rng.uniform(-1.0, 1.0, (batch, 8, 4))
    spheres[..., 3] = 0.1
    inputs = {"q": model.random_configuration(rng, (batch,)), "spheres": spheres}
    task = task_of(name, model, Asked(model.pairs, (1, 2, 3), "spheres", 8))
    right = empty(model, task, batch)
    for each in right.values():
        each[...] = np.nan
    ReferenceEngine(model, np.dtype(np.float64)).compose(task, inputs, right)
    source = unrolled_kernel(model, task, np.dtype(dtype))
    inputs = {key: value.astype(dtype) for key, value in inputs.items()}
    found = run([source], model, task, inputs)
    for key, value in right.items():
        error = np.abs(found[key] - value)
        # In single precision some states have another nearest pair, and another gradient.
        assert np.quantile(error, 0.95) < (1e-12 if dtype == "float64" else 1e-4), key
        assert dtype != "float64" or error.max() < 1e-9


def around(kind: str, batch: tuple[int, ...], rng: np.random.Generator) -> rd.Obstacles:
    """More obstacles than one block has."""
    if kind == "spheres":
        return rd.Obstacles(spheres=np.append(rng.uniform(-1, 1, (*batch, 11, 3)), np.full((*batch, 11, 1), 0.1), -1))
    ends = rng.uniform(-1, 1, (5, 6))
    poses = np.tile(np.eye(4), (3, 1, 1))
    poses[:, :3, 3] = rng.uniform(-1, 1, (3, 3))
    capsules = np.append(ends, np.full((5, 1), 0.05), -1)
    return rd.Obstacles(capsules=capsules, boxes=(poses, np.full((3, 3), 0.2)), ignore=[0])


@pytest.mark.kernels
@pytest.mark.parametrize("kind", ["spheres", "capsules and boxes"])
def test_obstacles_are_measured_on_a_gpu(kind, host):
    """On NumPy arrays and on the device's, one set for all configurations or one for each, in blocks."""
    model = rd.load_urdf(own("double_pendulum"))
    base, upper, lower = model.link_names[:3]
    balls = [rd.Sphere(link, at=(0.3, 0.3, 0.3), radius=0.1) for link in (upper, lower)]
    model = model.with_shapes([rd.Plane(base, offset=-1.5), *balls])
    rng = np.random.default_rng(2)
    q = model.random_configuration(rng, (2, 7))
    right, dyn = rd.Dynamics(model, engine="cpu"), rd.Dynamics(model, engine="gpu")
    for obstacles in (around(kind, (), rng), around(kind, (2, 7), rng)):
        for query in ("min_distance", "distances", "min_distance_gradient")[: 1 if kind == "spheres" else 3]:
            wanted = getattr(right, query)(q, obstacles)
            assert np.abs(getattr(dyn, query)(q, obstacles) - wanted).max() < 1e-9
            DeviceArray.looks, moved = 0, there(q)[0]
            found = getattr(dyn, query)(moved, obstacles, out=_device(np.full(wanted.shape, np.nan)))
            assert type(found) is DeviceArray and np.abs(found.held - wanted).max() < 1e-9 and DeviceArray.looks == 0
        clearance = float(np.median(right.min_distance(q, obstacles)))
        free = dyn.is_free(moved, obstacles, clearance)
        assert type(free) is DeviceArray and 0 < free.held.sum() < free.held.size
        assert np.array_equal(free.held, right.is_free(q, obstacles, clearance))
        poses, edges = (None, None) if obstacles.boxes is None else there(*obstacles.boxes)
        kinds = [None if each is None else there(each)[0] for each in (obstacles.spheres, obstacles.capsules)]
        placed = rd.Obstacles(*kinds, None if poses is None else (poses, edges), obstacles.ignore)
        assert str(placed) == str(obstacles) and placed.leading == obstacles.leading
        assert np.array_equal(dyn.min_distance(moved, placed).held, dyn.min_distance(moved, obstacles).held)
        assert np.array_equal(dyn.is_free(moved, placed, clearance).held, free.held) and DeviceArray.looks == 0
        with pytest.raises(rd.ArgumentError, match="obstacles: got arrays on a GPU"):
            dyn.min_distance(q, placed)
    assert np.array_equal(dyn.is_free(moved).held, right.is_free(q))
    chosen = dyn.distances_gradient(moved, pairs=[0]).held
    assert np.abs(chosen - right.distances_gradient(q, pairs=[0])).max() < 1e-9
    q[1, 3, 0] = np.nan
    least = dyn.min_distance(there(q)[0], obstacles).held
    assert np.isnan(least[1, 3]) and np.isnan(least).sum() == 1
    for each in (obstacles, placed):
        with pytest.raises(rd.ArgumentError, match="obstacles: got some for a recorded call"):
            dyn.capture("min_distance", moved, obstacles=each)


def test_obstacles_on_a_gpu_that_are_none_are_refused():
    spheres, poses, edges = there(np.zeros((2, 4)), np.zeros((2, 4, 4)), np.zeros((2, 3)))
    for given, message in (
        ({"spheres": spheres[:, :3]}, r"spheres: got shape \(2, 3\); wanted \(..., k, 4\)"),
        ({"boxes": (poses[:1], edges)}, r"boxes: got shapes \(1, 4, 4\) and \(2, 3\)"),
        ({"boxes": (edges, edges)}, r"boxes\[0\]: got shape \(2, 3\)"),
        (
            {"spheres": spheres, "capsules": np.zeros((1, 7))},
            "capsules: .* wanted all arguments",
        ),
    ):
        with pytest.raises(rd.ArgumentError, match=message):
            rd.Obstacles(**given)
    with pytest.raises(rd.ArgumentError, match="obstacles: got arrays on a GPU"):
        rd.Dynamics(rd.load_urdf(own("arm6")).with_shapes(SHAPES)).is_free(np.zeros(6), rd.Obstacles(spheres))
