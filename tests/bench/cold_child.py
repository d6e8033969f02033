"""First answers, each in a process of its own with an empty cache: `python -m tests.bench.cold_child < cases`.

A line of JSON for each case, and one for what it took. This process imports all that answers need and asks for none; a
case is a fork of it, so that imports are not counted, and all else that a process does for the first time is. A fork
takes some 25 milliseconds more, for it gets a copy of each page of memory that it writes to. `--alone`: this process
answers the first case itself instead, and ends.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

import robodyn as rd
from robodyn.engines.query_table import QUERIES

IMPORTED = (rd.Dynamics, rd.load_urdf)
"""What a child would import otherwise."""
LARGEST = 1 << 29
"""Bytes of results from which a case is left out: they would measure memory."""
LONGEST_S = 120


@dataclass(frozen=True)
class Case:
    """A query of the robot in a file: `whole`: of a tensor, without a vector; `code`: as `Dynamics` takes it."""

    path: str
    base: str
    query: str
    whole: bool
    states: int
    code: str = "auto"


def answer(case: Case) -> dict[str, Any]:
    """Seconds from the file to the first answer, of all threads' work, and of a second answer."""
    warnings.simplefilter("error")
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
    dyn = rd.Dynamics(model, engine="cpu", code=case.code)  # type: ignore[arg-type]
    getattr(dyn, case.query)(*placed, **named)
    first, work = time.perf_counter() - start, time.process_time() - worked
    start = time.perf_counter()
    getattr(dyn, case.query)(*placed, **named)
    return {"first_s": first, "work_s": work, "again_s": time.perf_counter() - start, "bodies": model.n_bodies}


def main() -> None:
    """Answer every line, in forks or not."""
    import robodyn.engines.cpu.chains.build
    import robodyn.engines.cpu.engine
    import robodyn.engines.cpu.native.entry  # noqa: F401 - imported before the clock starts

    if "--alone" in sys.argv[1:]:
        line = sys.stdin.readline()
        with _empty_cache():
            print(_said(line), flush=True)
        os._exit(0)  # better code, which is compiled in the background, is not waited for
    for line in sys.stdin:
        with _empty_cache():
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


@contextmanager
def _empty_cache() -> Iterator[None]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["ROBODYN_CACHE_DIR"] = f"{folder}/objects"
        yield


def _said(line: str) -> str:
    """What answers a line, for which this process lives on no longer than `LONGEST_S`."""
    signal.alarm(LONGEST_S)
    try:
        return json.dumps(answer(Case(**json.loads(line))))
    except rd.RobodynError as error:
        return json.dumps({"problem": str(error)})


if __name__ == "__main__":
    main()
