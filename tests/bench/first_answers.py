"""First answers in processes of their own: `python -m tests.bench.first_answers [--alone] < cases`.

A line of JSON for each case, and one for what it took. The process imports all that answers of an engine need and asks
for none; a case is a fork of it, so that imports are not counted, and all else that a process does for the first time
is. A fork takes some 25 milliseconds more, for it gets a copy of each page of memory that it writes to. `--alone`: the
process answers the first case itself instead, and ends.
"""

from __future__ import annotations

import time

_BEGIN = time.perf_counter()

import json  # noqa: E402
import os  # noqa: E402
import signal  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
import warnings  # noqa: E402
from collections.abc import Iterator, Mapping  # noqa: E402
from contextlib import contextmanager  # noqa: E402
from dataclasses import asdict, dataclass, replace  # noqa: E402
from functools import cache  # noqa: E402
from importlib import import_module  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402

import robodyn as rd  # noqa: E402

IMPORTED = {
    "": ("robodyn.dynamics", "robodyn.builders.urdf", "robodyn.questions"),
    "cpu": ("robodyn.engines.cpu.chains.build", "robodyn.engines.cpu.engine", "robodyn.engines.cpu.native.entry"),
    "gpu": ("robodyn.engines.gpu.engine",),
}
"""What answers of an engine need besides `robodyn`, which leaves it until then."""
LARGEST = 1 << 29
"""Bytes of results from which a case is left out: they would measure memory."""
LONGEST_S = 120
_ROOT = Path(__file__).resolve().parents[2]
_CACHED_RUNS = 3


@dataclass(frozen=True)
class Case:
    """A query of the robot in a file: `whole`: of a tensor, without a vector; `code`: as `Dynamics` takes it; `before`:
    a robot that is asked first, whose time does not count."""

    path: str
    base: str
    query: str
    whole: bool = False
    states: int = 1
    code: str = "auto"
    engine: str = "cpu"
    before: str = ""

    @property
    def robot(self) -> str:
        """Its name."""
        return Path(self.path).stem


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


# In the process that answers.


def answer(case: Case) -> dict[str, Any]:
    """Seconds from the file to the first answer, of all threads' work, and of a second answer."""
    from robodyn.questions import QUESTIONS

    question, rng = QUESTIONS[case.query], np.random.default_rng(0)
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


def _said(line: str) -> str:
    """What answers a line, for which this process lives on no longer than `LONGEST_S`."""
    signal.alarm(LONGEST_S)
    case = Case(**json.loads(line))
    if case.engine != "gpu":  # whose libraries have warnings of their own
        warnings.simplefilter("error")
    try:
        if case.before:
            answer(replace(case, path=case.before, base="fixed"))
        return json.dumps(answer(case))
    except rd.RobodynError as error:
        return json.dumps({"problem": str(error)})


def main() -> None:
    """Answer every line, in forks or not."""
    engine = next((word for word in sys.argv[1:] if word in IMPORTED), "cpu")
    for name in (*IMPORTED[""], *IMPORTED[engine]):
        import_module(name)
    imports = time.perf_counter() - _BEGIN
    if "--alone" in sys.argv[1:]:
        print(json.dumps({"imports": imports} | json.loads(_said(sys.stdin.readline()))), flush=True)
        os._exit(0)  # better code, which is compiled in the background, is not waited for
    for line in sys.stdin:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            os.environ["ROBODYN_CACHE_DIR"] = f"{folder}/objects"
            reading, writing = os.pipe()
            child = os.fork()
            if not child:
                os.write(writing, _said(line).encode())
                os._exit(0)
            os.close(writing)
            with os.fdopen(reading) as pipe:
                said = pipe.read()
            status = os.waitpid(child, 0)[1]
        print(said or json.dumps({"problem": f"status {status}, after {LONGEST_S} seconds at most"}), flush=True)


# In the process that asks.


@cache
def _bytecode() -> tempfile.TemporaryDirectory[str]:
    """A folder for bytecode, whatever the environment says of it."""
    return tempfile.TemporaryDirectory()


def _started(*options: str, **environment: str) -> subprocess.Popen[str]:
    """Python's bytecode goes to a folder of ours: where a package is installed others may not write it."""
    places = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
    inherited = {**os.environ, "PYTHONPATH": places, "PYTHONDONTWRITEBYTECODE": ""}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.bench.first_answers", *options],
        env={**inherited, "PYTHONPYCACHEPREFIX": _bytecode().name, **environment},
        cwd=tempfile.gettempdir(), text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if "--alone" in options else None,
    )  # fmt: skip


def answer_alone(case: Case, cache: str, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What a new process takes with a folder of compiled code, which need not be there: `answer`, and seconds of all
    imports and of the whole process."""
    # A folder in which nothing is yet, and that others cannot write to; NVRTC and the driver keep machine code, too.
    kept = {"ROBODYN_CACHE_DIR": f"{cache}/objects", "CUDA_CACHE_PATH": f"{cache}/cuda"}
    start = time.perf_counter()
    process = _started("--alone", case.engine, **kept, **(environment or {}))
    said, errors = process.communicate(json.dumps(asdict(case)) + "\n")
    seconds = time.perf_counter() - start
    if not said:
        said = json.dumps({"problem": (errors.strip().splitlines() or [f"exit status {process.returncode}"])[-1]})
    return {**json.loads(said), "process": seconds}


def cold_and_cached(case: Case) -> First:
    """A query with an empty cache, then with what that left; the best of the latter."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as other:
        answer_alone(case, other)  # leaves bytecode to those that count
        cold, *cached = [answer_alone(case, folder) for _ in range(1 + _CACHED_RUNS)]
    problem = next((run["problem"] for run in (cold, *cached) if "problem" in run), "")
    if problem:
        return First(case.robot, case.query, case.engine, problem=problem)
    best, whole = (min(run[name] for run in cached) for name in ("first_s", "process"))
    return First(case.robot, case.query, cold["engine"], cold["first_s"], best, cold["process"], whole)


@contextmanager
def forks() -> Iterator[subprocess.Popen[str]]:
    """A process whose forks answer."""
    with _started() as process:
        yield process


def answer_by_fork(process: subprocess.Popen[str], case: Case) -> dict[str, Any]:
    """What a fork of that process takes with an empty cache."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps(asdict(case)) + "\n")
    process.stdin.flush()
    found: dict[str, Any] = json.loads(
        process.stdout.readline() or '{"problem": "the process ended without an answer"}'
    )
    return found


if __name__ == "__main__":
    main()
