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
from robodyn.tools.benchmark.tables import Cells
from robodyn.tools.benchmark.timing import measure as timed
from tests.bench.compare.in_jax import Mjx
from tests.bench.compare.work import Robot
from tests.bench.gpu import work
from tests.bench.gpu.queries import Point
from tests.bench.gpu.work import Case, repeated, wrong
from tests.bench.points import off_by
from tests.bench.runner import Run
from tests.bench.shared import reason, table

NAMES = {
    "JAX": {"inverse_dynamics": "JAX, vmap of a plain RNEA", "forward_dynamics": "JAX, vmap of a plain ABA"},
    "MJX": {"inverse_dynamics": "MJX, vmap of mjx.inverse", "forward_dynamics": "MJX, vmap of mjx.forward"},
}
"""By peer and query, what is asked."""
DTYPE, MOST = "float32", 65_536
"""What peers are asked: every shape is compiled anew, which takes JAX many seconds."""

Function = Callable[..., Any]
Asked = tuple[Function, list[Any], list[Any]]
"""A function of batches for JAX to compile, its arguments and its answer at distinct states."""


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
        return NAMES[self.peer][self.query]

    @property
    def ratio(self) -> float | None:
        """Of its time over ours."""
        return self.seconds / self.ours_s if self.seconds and self.ours_s else None


def rivals(run: Run) -> list[Rival]:
    """Everything that is asked, before anything is measured."""
    batches = [batch for batch in run.settings.batches if batch <= MOST]
    if not batches or DTYPE not in run.settings.dtypes:
        return []
    return [
        Rival(robot, query, max(batches), peer)
        for robot in work.unlike()
        for query in work.ASKED
        for peer, names in NAMES.items()
        if query in names and run.selected(f"gpu: {peer}, {robot}, {query}")
    ]


def measure(run: Run, found: Sequence[Rival], ours: Sequence[Point], platform: str = "gpu") -> None:
    """Measure peers on a platform, beside our points: all are compiled side by side, then called one after another."""
    cases = {each: Case(work.ROBOTS[each[0]](), each[1]) for each in {(rival.robot, rival.query) for rival in found}}
    run.announce(f"gpu: peers, compiling {len(found)} functions")
    _give_back()
    calls = {(point.robot, point.query, point.dtype, point.batch): point.call_s for point in ours}
    with ThreadPoolExecutor(max(1, len(found))) as pool:
        compiled = [pool.submit(_compiled, cases[rival.robot, rival.query], rival, platform) for rival in found]
    for rival, made in zip(found, compiled, strict=True):
        run.announce(f"gpu: {rival.peer}, {rival.robot}, {rival.query}")
        rival.ours_s = calls.get((rival.robot, rival.query, DTYPE, rival.batch))
        try:
            call, truth = made.result()
            rival.problem = wrong(off_by([np.asarray(call())], truth), DTYPE)
            if not rival.problem:
                rival.seconds = timed(call, run.seconds).best_s
        except Exception as error:  # a peer may fail in any way
            rival.problem = reason(error)


def _give_back() -> None:
    """Of the GPU's memory what CuPy keeps for later, which others could not have."""
    if "cupy" in sys.modules:
        with suppress(RuntimeError):  # no GPU
            sys.modules["cupy"].get_default_memory_pool().free_all_blocks()


def _compiled(question: Case, rival: Rival, platform: str) -> tuple[Function, list[Any]]:
    """A call that waits for its answer, and the answer at distinct states."""
    device = _jax_device(platform)
    import jax

    with jax.default_device(device):
        function, states, truth = (_plain_jax if rival.peer == "JAX" else _mjx)(question)
        arrays = [jax.device_put(repeated(np, each.astype(DTYPE), rival.batch), device) for each in states]
        made = jax.jit(function).lower(*arrays).compile()
    return lambda: made(*arrays).block_until_ready(), truth


def _plain_jax(question: Case) -> Asked:
    from tests.bench import jax_rnea

    jax_rnea.require(question.model)
    write = jax_rnea.rnea if question.query == "inverse_dynamics" else jax_rnea.aba
    states = [question.states[name] for name in question.about.plain]
    return write(question.model, DTYPE), states, list(question.truth)


def _mjx(question: Case) -> Asked:
    """As the page of other libraries asks it; arguments and answers by MuJoCo's conventions."""
    import jax

    library = Mjx(Robot("", question.model), DTYPE)
    states, truth = library.inputs(question.query), library.wanted(question.query)
    return jax.vmap(library.single[question.query]), states, list(truth)


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


def rival_table(found: Sequence[Rival]) -> Cells:
    """Beside ours."""
    asked = "robot | {0.robot}", "query | {0.query}", f"dtype | {DTYPE}", "#batch | {0.batch:,}", "peer | {0.called}"
    seconds = "#its call | {0.seconds:time?}", "#our call | {0.ours_s:time?}", "#ratio | {0.ratio:x?}"
    return table("Peers on the same GPU", found, *asked, *seconds)
