"""Kernels of queries about distances, with obstacles as inputs, run on the host under the shim."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_host import missing
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
