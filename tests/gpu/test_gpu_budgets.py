"""Registers, stack and spills of every kind of kernel, as NVRTC reports them: no GPU is needed.

A kernel that needs more than its budget has lost its order of operations, or something in it calls a function or
indexes an array, or values stay alive that should not.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from gpu_host.cases import rolled_kernel
from robots import own
from test_gpu_compile import compiles

import robodyn as rd
from robodyn.algorithms.contacts.tasks import by_blocks, contact_step
from robodyn.engines.gpu.compiler import Report, compile_reported
from robodyn.engines.gpu.occupancy import resident_blocks
from robodyn.engines.gpu.repeated_kernels import repeated_kernel
from robodyn.engines.gpu.source import SHARED_BYTES, WARP, KernelSource
from robodyn.engines.gpu.unrolled_kernels import print_program, traced, unrolled_kernel
from robodyn.solve.trajectories.riccati_kernel import scan_sources

pytestmark = compiles

HEADROOM = 1.1
"""Of registers: versions of NVRTC differ, and so do architectures."""
DTYPES = ("float32", "float64")
KINDS = ("thread", "warp", "block")

# Registers, bytes of stack, bytes of spills: what NVRTC 13.0 gives for sm_90.
UNROLLED = {
    ("arm6", "inverse_dynamics", "float32"): (72, 0, 0),
    ("arm7", "inverse_dynamics", "float32"): (74, 0, 0),
    ("arm7", "inverse_dynamics", "float64"): (130, 0, 0),
    ("arm6", "forward_dynamics", "float32"): (152, 0, 0),
    ("arm7", "forward_dynamics", "float32"): (168, 0, 0),
    ("arm7", "forward_dynamics", "float64"): (255, 200, 200),
    ("arm7", "mass_matrix", "float32"): (69, 0, 0),
    ("arm7", "mass_matrix", "float64"): (104, 0, 0),
    ("arm7", "inverse_dynamics_gradient", "float32"): (255, 0, 0),
    ("quadruped", "forward_dynamics", "float32"): (66, 0, 0),
    ("quadruped floating", "inverse_dynamics", "float32"): (92, 0, 0),
    ("quadruped floating", "inverse_dynamics", "float64"): (168, 8, 4),
    ("quadruped floating", "forward_dynamics", "float32"): (255, 0, 0),
    ("quadruped floating", "mass_matrix", "float32"): (86, 0, 0),
    ("quadruped floating", "mass_matrix", "float64"): (168, 0, 0),
    ("humanoid", "inverse_dynamics", "float32"): (131, 0, 0),
    ("humanoid floating", "inverse_dynamics", "float32"): (168, 0, 0),
    ("quadruped floating", "inverse_dynamics_gradient", "float32"): (255, 0, 0),
    ("humanoid floating", "mass_matrix", "float32"): (190, 0, 0),
}

# Registers of rolled kernels for a thread, a warp and a block, in single and in double precision.
ROLLED = {
    ("arm7", "inverse_dynamics"): ((96, 80, 79), (128, 120, 120)),
    ("arm7", "forward_dynamics"): ((128, 112, 110), (168, 154, 168)),
    ("arm7", "mass_matrix"): ((64, 56, 56), (104, 87, 85)),
    ("arm7", "inverse_dynamics_gradient"): ((168, 127, 123), (240, 218, 226)),
    ("arm7", "forward_dynamics_gradient"): ((168, 127, 127), (254, 244, 244)),
    ("quadruped floating", "inverse_dynamics"): ((124, 110, 108), (160, 123, 124)),
    ("quadruped floating", "forward_dynamics"): ((168, 140, 128), (252, 230, 218)),
    ("quadruped floating", "mass_matrix"): ((108, 72, 64), (114, 106, 104)),
    ("quadruped floating", "inverse_dynamics_gradient"): ((254, 167, 167), (255, 255, 253)),
    ("quadruped floating", "forward_dynamics_gradient"): ((254, 168, 168), (255, 255, 255)),
}

# Bytes of stack, and of spills, of the rolled kernels that have any on sm_90: all else are free of both.
STACK = {
    ("quadruped floating", "inverse_dynamics_gradient", "float64", "warp"): 16,
    ("quadruped floating", "forward_dynamics_gradient", "float64", "thread"): 96,
    ("quadruped floating", "forward_dynamics_gradient", "float64", "warp"): 64,
    ("quadruped floating", "forward_dynamics_gradient", "float64", "block"): 8,
}
OLDER_STACK = 128
"""The same of gradients on sm_80: how many warps are worth their registers was chosen on sm_90."""


@cache
def _model(name: str) -> rd.Model:
    stem, _, base = name.partition(" ")
    return rd.load_urdf(own(stem), base=base or "fixed")


@cache
def _unrolled(robot: str, query: str, dtype: str) -> KernelSource:
    task = rd.Dynamics(_model(robot), engine="reference").plain_task(query)
    return unrolled_kernel(_model(robot), task, dtype, name=query)


def _check(source: KernelSource, arch: str, registers: int, stack: int, spills: int) -> Report:
    report = compile_reported(source, arch).report
    print(arch, report)
    assert 16 <= report.registers <= HEADROOM * registers
    assert report.stack_bytes <= stack
    assert report.spill_bytes <= spills
    assert report.shared_bytes <= SHARED_BYTES
    # Each quarter of a multiprocessor has a warp to work on.
    assert resident_blocks(source, report, arch) * source.block_threads >= 4 * WARP
    return report


@pytest.mark.parametrize(("robot", "query", "dtype"), tuple(UNROLLED))
@pytest.mark.some(of=18, rest="kernels")
def test_gpu_budget_of_unrolled_kernels(robot: str, query: str, dtype: str) -> None:
    source = _unrolled(robot, query, dtype)
    assert _check(source, "sm_90", *UNROLLED[robot, query, dtype]).shared_bytes > 0


@pytest.mark.parametrize("robot", ["arm6", "arm7"])
@pytest.mark.parametrize("query", ["inverse_dynamics", "forward_dynamics"])
@pytest.mark.some(of=4, rest="kernels")
def test_gpu_budget_of_unrolled_kernels_on_an_older_gpu(robot: str, query: str) -> None:
    _check(_unrolled(robot, query, "float32"), "sm_80", *UNROLLED[robot, query, "float32"])


def _cases() -> Iterator[tuple[str, str, str, str, str]]:
    """Robot, query, dtype, kind, architecture. The humanoid's texts differ from the quadruped's by where arrays lie.
    Those that take NVRTC longest are compiled for one robot and one architecture, and always only in double precision,
    which takes more registers; on an older architecture always only in single."""
    for robot, query in ROLLED:
        for dtype, kind in itertools.product(DTYPES, KINDS):
            yield robot, query, dtype, kind, "sm_90"
            if robot == "arm7" or (kind == "warp" and query != "forward_dynamics_gradient"):
                yield robot, query, dtype, kind, "sm_80"
            if robot != "arm7" and kind == "warp" and not query.endswith("gradient"):
                yield "humanoid floating", query, dtype, kind, "sm_90"


def _marked() -> Iterator[Any]:
    """Of those that take NVRTC long, every third one has the mark, and the others wait for the night."""
    often = itertools.cycle([pytest.mark.kernels, pytest.mark.nightly, pytest.mark.nightly])
    for robot, query, dtype, kind, arch in _cases():
        gradient, small = query.endswith("gradient"), robot == "arm7"
        if arch == "sm_80":
            rest = dtype == "float64" or (gradient and not (small and kind == "warp"))
        else:
            rest = gradient and (dtype == "float32" or not (small or kind == "warp"))
        yield pytest.param(robot, query, dtype, kind, arch, marks=[next(often)] if rest else [])


@pytest.mark.parametrize(("robot", "query", "dtype", "kind", "arch"), tuple(_marked()))
@pytest.mark.some(of=12, when="kernels")
def test_gpu_budget_of_rolled_kernels(robot: str, query: str, dtype: str, kind: str, arch: str) -> None:
    task = rd.Dynamics(_model(robot), engine="reference").plain_task(query)
    source = rolled_kernel(_model(robot), task, np.dtype(dtype), partition=kind, name=query)
    like = robot.replace("humanoid", "quadruped")
    registers = ROLLED[like, query][DTYPES.index(dtype)][KINDS.index(kind)]
    stack = STACK.get((like, query, dtype, kind), 0)
    if arch != "sm_90" and query.endswith("gradient"):
        stack = max(stack, OLDER_STACK)
    _check(source, arch, registers, stack, stack)


def test_gpu_kernel_that_asks_for_shared_memory() -> None:
    """What is asked for at launch is not in the report, which is of static memory."""
    model = _model("quadruped")
    task = rd.Dynamics(model, engine="reference").plain_task("mass_matrix")
    source = unrolled_kernel(model, task, "float32", shared_bytes=100 << 10)
    report = compile_reported(source, "sm_90").report
    assert source.shared_bytes > SHARED_BYTES
    assert (report.shared_bytes, report.stack_bytes) == (0, 0)


def test_gpu_kernel_in_several_functions() -> None:
    """The stack holds what one function hands to the next."""
    model = _model("arm6")
    program = traced(model, rd.Dynamics(model, engine="reference").plain_task("forward_dynamics"))
    report = compile_reported(print_program(program, np.dtype(np.float32), part_operations=300), "sm_90").report
    assert report.stack_bytes > 100
    assert report.registers < 255


@pytest.mark.kernels
def test_gpu_budget_of_contacts() -> None:
    """Of the first block of iterations, and of what repeats further ones, of which each warp has a queue."""
    model = _model("quadruped floating")
    feet = [rd.Sphere(name, radius=0.02) for name in model.link_names if name.endswith("foot")]
    contacts = [rd.Contact(foot, rd.Plane()) for foot in feet]
    model = model.with_contacts(contacts, limits=False, dry_friction=False)
    inputs, bounding = ("q", "qd", "tau", "dt"), model.contacts.bounding(0.002)
    first, again = (contact_step(model, bounding, "mujoco", False, names) for names in (inputs, (*inputs, "qdd")))
    f4 = np.dtype(np.float32)
    _check(unrolled_kernel(model, first, f4), "sm_90", 255, 3200, 3500)
    task = by_blocks(first, again, ("q_next", "qd_next", "error"), 3)
    report = _check(repeated_kernel(model, task, f4), "sm_90", 255, 3500, 3700)
    assert report.shared_bytes == 2 * 64 * 8


@pytest.mark.nightly
def test_gpu_budget_of_compositions_of_scans() -> None:
    """Vectors are spread over the lanes of a warp, so that few values of a thread are alive at once."""
    report = compile_reported(scan_sources(14, 7, np.dtype(np.float64), 100 << 10)[1], "sm_90").report
    assert report.registers <= HEADROOM * 128 and report.spill_bytes <= HEADROOM * 144
