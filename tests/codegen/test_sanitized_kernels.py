"""Kernels of random robots under sanitizers and between guard pages: queries, partitions and fusions drawn by seeds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import relative
from gpu_host import SANITIZERS, missing, run_sanitized
from gpu_host.cases import states, wanted

import robodyn as rd
from robodyn.compile.tracing.unrolled import output_shape
from robodyn.engines.gpu.rolled_kernels import rolled_kernels
from robodyn.engines.gpu.unrolled_chains import left
from robodyn.engines.query_table import plain_questions
from robodyn.internals.errors import UnavailableError

KINDS = ("revolute", "prismatic", "planar", "spherical", "helical", "universal", "continuous")
BATCH = 3


def robot(seed: int) -> rd.Model:
    """A robot of a few joints of any kinds, of any shape; some mimic, some float."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 8))
    joints = tuple(rng.choice(KINDS, 3, replace=False).tolist())
    shape = str(rng.choice(["random", "chain", "star", "binary", "caterpillar"]))
    base, mimic = str(rng.choice(["fixed", "floating"])), float(rng.choice([0.0, 0.6]))
    print(f"seed {seed}: {n} joints of {joints}, {shape}, {base}, mimic {mimic}")
    return rd.random_tree(n, seed=seed, joints=joints, shape=shape, base=base, mimic=mimic, armature=True)


def sanitized(seed: int, sanitizer: str) -> bool:
    """One query of one robot; False where there is no such kernel."""
    rng, model = np.random.default_rng(1000 + seed), robot(seed)
    query = str(rng.choice(plain_questions()))
    partition, fusion = str(rng.choice(["thread", "warp", "block"])), str(rng.choice(["complete", "fused", "split"]))
    print(f"{query}, {partition}, {fusion}, {sanitizer}")
    task = rd.Dynamics(model, engine="reference").plain_task(query)
    try:
        sources = rolled_kernels(
            model, task, np.dtype(np.float64), fusion=fusion, partition=partition, block_threads=64
        )
    except UnavailableError:
        return False
    known = states(model, BATCH, seed)
    right = wanted(model, task, known)
    shapes = {name: output_shape(model, each) for name, each in left(model, task).items()}
    for source in sources:
        outputs = {name: np.full((BATCH, *shapes[name]), np.nan) for name in source.outputs}
        assert run_sanitized(source, known, outputs, sanitizer, rows=BATCH) == ""
        known |= outputs
    for name, value in right.items():
        assert relative(known[name], value) < 1e-7, name
    return True


@pytest.mark.nightly
@pytest.mark.parametrize("sanitizer", SANITIZERS)
@pytest.mark.parametrize("first", [0, 6])
def test_rolled_gpu_kernels_of_random_robots_are_clean(first: int, sanitizer: str) -> None:
    if reason := missing(sanitizer):
        pytest.skip(reason)
    done = sum(sanitized(seed, sanitizer) for seed in range(first, first + 6))
    assert done >= 3


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform == "win32", reason="mprotect is POSIX")
@pytest.mark.parametrize("code", ["unrolled", "rolled"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("seed", [1, 2])
def test_kernels_of_random_robots_stay_inside_their_arrays(seed: int, dtype: str, code: str) -> None:
    program = Path(__file__).parents[1] / "guarded_kernels.py"
    command = [sys.executable, "-X", "faulthandler", str(program), "host", code, dtype, str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[-2]) > 30
