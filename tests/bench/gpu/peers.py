"""Others on the same GPU in the same run, as far as they are installed and find it."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from robodyn.benchmark.contenders import RefusedError
from robodyn.benchmark.tables import Cells
from robodyn.benchmark.timing import measure as timed
from robodyn.joints import KINDS
from tests.bench.gpu.queries import Point
from tests.bench.gpu.work import Plan, Question, reason, repeated
from tests.bench.points import NOT_MEASURED
from tests.bench.shared import show

QUERY, DTYPE, MOST = "inverse_dynamics", "float32", 65_536
"""What JAX is asked: every shape is compiled anew, which takes it seconds."""
NAME = "JAX, vmap of a plain RNEA"


@dataclass
class Rival:
    """A peer's call on arrays of the device, and ours at the same batch."""

    robot: str
    batch: int
    seconds: float | None = None
    ours_s: float | None = None
    problem: str = ""

    def cells(self) -> tuple[str, ...]:
        """As text."""
        ratio = f"{self.seconds / self.ours_s:.3g} x" if self.seconds and self.ours_s else NOT_MEASURED
        times = (NOT_MEASURED if each is None else show(each) for each in (self.seconds, self.ours_s))
        return (self.robot, QUERY, DTYPE, f"{self.batch:,}", NAME, *times, ratio)


def rivals(plan: Plan) -> list[Rival]:
    """Everything that is asked, before anything is measured."""
    batches = [batch for batch in plan.batches if batch <= MOST]
    if not batches or QUERY not in plan.queries or DTYPE not in plan.dtypes:
        return []
    return [Rival(robot, max(batches)) for robot in plan.unlike if plan.selected(name_of(robot))]


def name_of(robot: str) -> str:
    """What the runner's filter is held against."""
    return f"gpu: JAX, {robot}"


def measure(plan: Plan, ours: list[Point], announce: Callable[[str], object], platform: str = "gpu") -> list[Rival]:
    """Measure JAX on a platform."""
    found = rivals(plan)
    for rival in found:
        announce(name_of(rival.robot))
        for point in ours:
            if (point.robot, point.query, point.dtype, point.batch) == (rival.robot, QUERY, DTYPE, rival.batch):
                rival.ours_s = point.call_s
        try:
            _fill(Question(plan.robots[rival.robot](), QUERY), rival, plan.seconds, platform)
        except Exception as error:  # a peer may fail in any way
            rival.problem = str(error) if isinstance(error, RefusedError) else reason(error)
    return found


def _fill(question: Question, rival: Rival, seconds: float, platform: str) -> None:
    device = _jax_device(platform)
    import jax

    from tests.bench import jax_rnea

    others = {KINDS[code].name for code in question.model.joint_kind} - set(jax_rnea.KINDS_TAKEN)
    if others or question.model.has_mimic:
        raise RefusedError(f"JAX: not compared on robots with such joints: {', '.join(sorted(others)) or 'mimic'}")
    function = jax_rnea.rnea(question.model, DTYPE)
    states = [question.states[name].astype(DTYPE) for name in question.about.inputs]
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


def table(found: list[Rival]) -> Cells:
    """Beside ours."""
    columns = ("robot", "query", "dtype", "batch ", "peer", "its call ", "our call ", "ratio ")
    return Cells("Peers on the same GPU", columns, [each.cells() for each in found])
