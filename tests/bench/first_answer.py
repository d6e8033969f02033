"""The time from loading a robot to its first answer, in a new process: with an empty cache, and with a full one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from tests.bench.shared import MODELS, ROOT, show

IMPORTED = {
    "cpu": ("robodyn.engines.cpu.chains.build", "robodyn.engines.cpu.engine", "robodyn.engines.cpu.native.entry"),
    "gpu": ("robodyn.engines.gpu.engine",),
}
"""What answers of an engine need besides `robodyn`, which leaves it until then."""
_CODE = """
import importlib, json, sys, time
start = time.perf_counter()
import numpy as np
from robodyn import *
base, query, engine, imported, *paths = sys.argv[1:]
for name in ("robodyn.api.dynamics", "robodyn.io.builders.urdf", *filter(None, imported.split())):
    importlib.import_module(name)
imports = time.perf_counter() - start
for path in paths:
    start = time.perf_counter()
    model = load_urdf(path, base=base)
    dyn = Dynamics(model, engine=engine)
    v = np.zeros(model.nv)
    arguments = (model.neutral(), v, v)[: 1 if query == "mass_matrix" else 2 if query == "bias_force" else 3]
    getattr(dyn, query)(*arguments)
    seconds = time.perf_counter() - start
print(json.dumps({"seconds": seconds, "engine": dyn.engine.name, "imports": imports}))
"""
_CASES = (
    ("arm7", "fixed", "inverse_dynamics"),
    ("arm7", "fixed", "forward_dynamics"),
    ("humanoid", "floating", "inverse_dynamics"),
    ("humanoid", "floating", "forward_dynamics"),
    ("humanoid", "floating", "forward_dynamics_gradient"),
)
_CACHED_RUNS = 3


@dataclass
class First:
    """Seconds from `load_urdf` to the first answer, imports not counted; the whole process as well."""

    robot: str
    query: str
    engine: str
    cold_s: float | None = None
    cached_s: float | None = None
    process_cold_s: float | None = None
    process_cached_s: float | None = None
    problem: str = ""

    def cells(self) -> tuple[str, ...]:
        """As text."""
        times = (self.cold_s, self.cached_s, self.process_cold_s, self.process_cached_s)
        return (self.robot, self.query, self.engine, *map(show, times), self.problem)


HEADINGS = ("robot", "query", "engine", "cold ", "cached ", "process, cold ", "process, cached ", "remark")


def names() -> list[str]:
    """Names of the cases."""
    return [f"first answer: {robot}, {query}" for robot, _, query in _CASES]


def measure(name: str, engine: str) -> First:
    """Run one case: once with an empty cache, then with what that left; the best of the latter."""
    return measure_case(*_CASES[names().index(name)], engine)


def measure_case(robot: str, base: str, query: str, engine: str) -> First:
    """Run a query of a robot of `models` like that."""
    try:
        with tempfile.TemporaryDirectory() as cache, tempfile.TemporaryDirectory() as other:
            # Python's bytecode is there where a package is installed: the first process leaves it to those that count.
            answer_in_new_process(robot, base, query, engine, other)
            cold, *cached = [answer_in_new_process(robot, base, query, engine, cache) for _ in range(1 + _CACHED_RUNS)]
    except RuntimeError as error:
        return First(robot, query, engine, problem=str(error))
    best, process_best = min(run.seconds for run in cached), min(run.process for run in cached)
    return First(robot, query, cold.engine, cold.seconds, best, cold.process, process_best)


class Answered(NamedTuple):
    """Seconds to the answer, of the whole process, and of its imports, which the first do not count; the engine."""

    seconds: float
    process: float
    imports: float
    engine: str


@cache
def _bytecode() -> tempfile.TemporaryDirectory[str]:
    """A folder for bytecode, whatever the environment says of it."""
    return tempfile.TemporaryDirectory()


def answer_in_new_process(
    robot: str, base: str, query: str, engine: str, cache: str, before: tuple[str, ...] = ()
) -> Answered:
    """What a new process takes, which answers for the robots `before` first."""
    # A folder in which nothing is yet, and that others cannot write to.
    places = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "ROBODYN_CACHE_DIR": f"{cache}/objects", "PYTHONPATH": places}
    environment |= {"PYTHONPYCACHEPREFIX": _bytecode().name, "PYTHONDONTWRITEBYTECODE": ""}
    environment |= {"CUDA_CACHE_PATH": f"{cache}/cuda"}  # where NVRTC and the driver keep machine code
    command = [sys.executable, "-c", _CODE, base, query, engine, " ".join(IMPORTED.get(engine, ()))]
    command += [str(MODELS / f"{each}.urdf") for each in (*before, robot)]
    start = time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    process = time.perf_counter() - start
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1])
    said = json.loads(done.stdout)
    return Answered(said["seconds"], process, said["imports"], said["engine"])
