"""The first answer of a process, which is started for it: `python -m tests.bench.first_answers ENGINE < case`.

The process imports all that answers of an engine need, which is not counted; all else that a process does for the first
time is.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import asdict, dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

import robodyn as rd

_IMPORTED = {
    "": ("robodyn.api.dynamics", "robodyn.io.builders.urdf", "robodyn.engines.query_table"),
    "cpu": ("robodyn.engines.cpu.chains.build", "robodyn.engines.cpu.engine", "robodyn.engines.cpu.native.entry"),
    "gpu": ("robodyn.engines.gpu.engine",),
}
"""What answers of all engines and of one need besides `robodyn`, which leaves it until then."""
LARGEST = 1 << 29
"""Bytes of results from which a case is left out: they would measure memory."""
LONGEST_S = 120
_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Case:
    """A query of the robot in a file: `whole`: of a tensor, without a vector; `code`: as `Dynamics` takes it."""

    path: str
    base: str
    query: str
    whole: bool = False
    states: int = 1
    code: str = "auto"
    engine: str = "cpu"


def answer(case: Case) -> dict[str, Any]:
    """Seconds from the file to the first answer, of all threads' work, and of a second answer."""
    from robodyn.engines.query_table import QUERIES

    question, rng = QUERIES[case.query], np.random.default_rng(0)
    start, worked = time.perf_counter(), time.process_time()
    model = rd.load_urdf(case.path, base=case.base)
    leading = (case.states,) if case.states > 1 else ()
    inputs = [*question.inputs, *(("vector",) if "vector" in question.optional and not case.whole else ())]
    arrays = {name: rng.uniform(-1.0, 1.0, (*leading, model.nv)) for name in inputs}
    arrays["q"] = np.array(np.broadcast_to(model.neutral(), (*leading, model.nq)))
    shapes = question.shapes(model, inputs).values()
    if 8 * sum(int(np.prod((*leading, *shape))) for shape in shapes) > LARGEST:
        return {"problem": f"results of more than {LARGEST >> 20} MiB"}
    placed, named = question.arguments(arrays, model.link_names[-1])
    dyn = rd.Dynamics(model, engine=case.engine, code=case.code)  # type: ignore[arg-type]
    getattr(dyn, case.query)(*placed, **named)
    first, work = time.perf_counter() - start, time.process_time() - worked
    start = time.perf_counter()
    getattr(dyn, case.query)(*placed, **named)
    again = time.perf_counter() - start
    return {"first_s": first, "work_s": work, "again_s": again, "bodies": model.n_bodies, "engine": dyn.engine.name}


def main() -> None:
    """Answer a case, in a process that lives on no longer than `LONGEST_S`."""
    case = Case(**json.loads(sys.stdin.readline()))
    for name in (*_IMPORTED[""], *_IMPORTED.get(case.engine, ())):
        import_module(name)
    signal.alarm(LONGEST_S)
    if case.engine != "gpu":  # whose libraries have warnings of their own
        warnings.simplefilter("error")
    try:
        said = answer(case)
    except rd.RobodynError as error:
        said = {"problem": str(error)}
    print(json.dumps(said), flush=True)
    os._exit(0)  # better code, which is compiled in the background, is not waited for


@cache
def _bytecode() -> tempfile.TemporaryDirectory[str]:
    """A folder for bytecode: where a package is installed, others may not write it."""
    return tempfile.TemporaryDirectory()


def ask(case: Case, cache: str) -> dict[str, Any]:
    """What a new process takes with a folder of compiled code, which need not be there: `answer`, and seconds of
    the whole process."""
    places = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
    # Folders in which nothing is yet, and that others cannot write to; NVRTC and the driver keep machine code, too.
    kept = {"ROBODYN_CACHE_DIR": f"{cache}/objects", "CUDA_CACHE_PATH": f"{cache}/cuda"}
    bytecode = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": _bytecode().name}
    environment = {**os.environ, "PYTHONPATH": places, **bytecode, **kept}
    command, start = [sys.executable, "-m", "tests.bench.first_answers"], time.perf_counter()
    done = subprocess.run(
        command, input=json.dumps(asdict(case)), env=environment, cwd=tempfile.gettempdir(), text=True,
        capture_output=True, check=False,
    )  # fmt: skip
    seconds = time.perf_counter() - start
    problem = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    return {**(json.loads(done.stdout) if done.stdout else {"problem": problem}), "process": seconds}


if __name__ == "__main__":
    main()
