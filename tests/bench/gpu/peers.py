"""Others on the same GPU in the same run, as far as they are installed and find it."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from robodyn.benchmark.contenders import RefusedError
from robodyn.benchmark.tables import Cells
from robodyn.benchmark.timing import measure as timed
from robodyn.joints import KINDS
from tests.bench.gpu.queries import Point
from tests.bench.gpu.work import Case, Plan, reason, repeated
from tests.bench.points import NOT_MEASURED
from tests.bench.shared import show

NAMES = {"inverse_dynamics": "JAX, vmap of a plain RNEA", "forward_dynamics": "JAX, vmap of a plain ABA"}
DTYPE, MOST = "float32", 65_536
"""What JAX is asked: every shape is compiled anew, which takes it many seconds."""


@dataclass
class Rival:
    """A peer's call on arrays of the device, and ours at the same batch."""

    robot: str
    query: str
    batch: int
    seconds: float | None = None
    ours_s: float | None = None
    problem: str = ""

    def cells(self) -> tuple[str, ...]:
        """As text."""
        ratio = f"{self.seconds / self.ours_s:.3g} x" if self.seconds and self.ours_s else NOT_MEASURED
        times = (NOT_MEASURED if each is None else show(each) for each in (self.seconds, self.ours_s))
        return (self.robot, self.query, DTYPE, f"{self.batch:,}", NAMES[self.query], *times, ratio)


def rivals(plan: Plan) -> list[Rival]:
    """Everything that is asked, before anything is measured."""
    batches = [batch for batch in plan.batches if batch <= MOST]
    if not batches or DTYPE not in plan.dtypes:
        return []
    return [
        Rival(robot, query, max(batches))
        for robot in plan.unlike
        for query in plan.queries
        if query in NAMES and plan.selected(name_of(robot, query))
    ]


def name_of(robot: str, query: str) -> str:
    """What the runner's filter is held against."""
    return f"gpu: JAX, {robot}, {query}"


def measure(
    plan: Plan, found: Sequence[Rival], ours: Sequence[Point], announce: Callable[[str], object], platform: str = "gpu"
) -> None:
    """Measure JAX on a platform, beside our points."""
    for rival in found:
        announce(name_of(rival.robot, rival.query))
        for point in ours:
            asked = point.robot, point.query, point.dtype, point.batch
            if asked == (rival.robot, rival.query, DTYPE, rival.batch):
                rival.ours_s = point.call_s
        try:
            _fill(Case(plan.robots[rival.robot](), rival.query), rival, plan.seconds, platform)
        except Exception as error:  # a peer may fail in any way
            rival.problem = str(error) if isinstance(error, RefusedError) else reason(error)


def _fill(question: Case, rival: Rival, seconds: float, platform: str) -> None:
    device = _jax_device(platform)
    import jax

    from tests.bench import jax_rnea

    others = {KINDS[code].name for code in question.model.joint_kind} - set(jax_rnea.KINDS_TAKEN)
    if others or question.model.has_mimic:
        raise RefusedError(f"JAX: not compared on robots with such joints: {', '.join(sorted(others)) or 'mimic'}")
    write = jax_rnea.rnea if question.query == "inverse_dynamics" else jax_rnea.aba
    function = write(question.model, DTYPE)
    states = [question.states[name].astype(DTYPE) for name in question.about.plain]
    arrays = [jax.device_put(repeated(np, each, rival.batch), device) for each in states]

    def run() -> Any:
        return function(*arrays).block_until_ready()

    rival.problem = question.wrong(question.off_by([np.asarray(run())]), DTYPE)
    if not rival.problem:
        rival.seconds = timed(run, seconds).best_s


def _jax_device(platform: str) -> Any:
    """Where JAX runs.

    Raises:
        RefusedError: it is not installed, or finds no such device.
    """
    if importlib.util.find_spec("jax") is None:
        raise RefusedError("JAX is not installed")
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # it would take most of the GPU's memory
    import jax

    try:
        return jax.devices(platform)[0]
    except RuntimeError as error:
        raise RefusedError(f"JAX {jax.__version__} finds no GPU") from error


def table(found: Sequence[Rival]) -> Cells:
    """Beside ours."""
    columns = ("robot", "query", "dtype", "batch ", "peer", "its call ", "our call ", "ratio ")
    return Cells("Peers on the same GPU", columns, [each.cells() for each in found])
