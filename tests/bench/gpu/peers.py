"""Others on the same GPU in the same run, as far as they are installed and find it."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from robodyn.tools.benchmark.contenders import RefusedError
from robodyn.tools.benchmark.timing import measure as timed
from tests.bench.compare.in_jax import Mjx
from tests.bench.compare.work import Robot
from tests.bench.gpu import queries
from tests.bench.gpu.queries import Point, repeated, wrong
from tests.bench.points import off_by
from tests.bench.runner import Run
from tests.bench.shared import failing_alone

NAMES = {
    ("JAX", "inverse_dynamics"): "JAX, vmap of a plain RNEA",
    ("MJX", "inverse_dynamics"): "MJX, vmap of mjx.inverse",
    ("JAX", "forward_dynamics"): "JAX, vmap of a plain ABA",
    ("MJX", "forward_dynamics"): "MJX, vmap of mjx.forward",
}
"""By peer and query, what is asked."""
DTYPE, MOST = "float32", 65_536
"""What peers are asked: every shape is compiled anew, which takes JAX many seconds."""


@dataclass
class Rival:
    """A peer's call on arrays of the device, and ours at the same batch."""

    robot: str
    query: str
    batch: int
    peer: str
    seconds: float | None = None
    ours_s: float | None = None
    problem: str = ""

    @property
    def called(self) -> str:
        return NAMES[self.peer, self.query]

    @property
    def ratio(self) -> float | None:
        return self.seconds / self.ours_s if self.seconds and self.ours_s else None


def rivals(run: Run) -> list[Rival]:
    """Everything that is asked, before anything is measured."""
    batches = [batch for batch in run.settings.batches if batch <= MOST]
    if not batches or DTYPE not in run.settings.dtypes:
        return []
    return [
        Rival(robot, query, max(batches), peer)
        for robot in queries.unlike()
        for peer, query in NAMES
        if query in queries.ASKED and run.selected(f"gpu: {peer}, {robot}, {query}")
    ]


def measure(run: Run, found: Sequence[Rival], ours: Sequence[Point], platform: str = "gpu") -> None:
    """Measure peers on a platform, beside our points: all are compiled side by side, then called one after another."""
    robots = {name: Robot("", queries.ROBOTS[name]()) for name in {rival.robot for rival in found}}
    run.announce(f"gpu: peers, compiling {len(found)} functions")
    if "cupy" in sys.modules:  # which keeps memory of the GPU for later that others could not have
        with suppress(RuntimeError):  # no GPU
            sys.modules["cupy"].get_default_memory_pool().free_all_blocks()
    calls = {(point.robot, point.query, point.dtype, point.batch): point.call_s for point in ours}
    with ThreadPoolExecutor(max(1, len(found))) as pool:
        compiled = [pool.submit(_compiled, robots[rival.robot], rival, platform) for rival in found]
    for rival, made in zip(found, compiled, strict=True):
        run.announce(f"gpu: {rival.peer}, {rival.robot}, {rival.query}")
        rival.ours_s = calls.get((rival.robot, rival.query, DTYPE, rival.batch))
        with failing_alone(rival):
            call, truth = made.result()
            rival.problem = wrong(off_by([np.asarray(call())], truth), DTYPE)
            if not rival.problem:
                rival.seconds = timed(call, run.seconds).best_s


def _compiled(robot: Robot, rival: Rival, platform: str) -> tuple[Callable[[], Any], Any]:
    """A call that waits for its answer, and the answer at distinct states, in the peer's own convention.

    Raises:
        RefusedError: JAX is not installed, or finds no such device.
    """
    if importlib.util.find_spec("jax") is None:
        raise RefusedError("JAX is not installed")
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # it would take most of the GPU's memory
    import jax

    try:
        device = jax.devices(platform)[0]
    except RuntimeError as error:
        raise RefusedError(f"JAX {jax.__version__} finds no GPU") from error
    with jax.default_device(device):
        if rival.peer == "JAX":
            from tests.bench import jax_rnea

            jax_rnea.require(robot.model)
            function = jax_rnea.WRITTEN[rival.query](robot.model, DTYPE)
            states, truth = robot.inputs(rival.query), robot.truth(rival.query)
        else:
            mjx = Mjx(robot, DTYPE)
            function = jax.vmap(mjx.single[rival.query])
            states, truth = mjx.inputs(rival.query), mjx.wanted(rival.query)
        arrays = [jax.device_put(repeated(np, each.astype(DTYPE), rival.batch), device) for each in states]
        made = jax.jit(function).lower(*arrays).compile()
    return lambda: made(*arrays).block_until_ready(), truth
