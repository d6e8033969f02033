"""One library on one robot, in a process of its own.

    python -m tests.bench.compare.worker LIBRARY ROBOT SECONDS LIMIT CASE ...

A case is QUERY:BATCH. Every line that it prints is JSON: the library's name or why it is refused, then a result for
each case. The process runs on one processor, and ends where loading or a case takes longer than it may.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from robodyn.tools.benchmark.timing import Timing, measure
from tests.bench.compare.compiled import Drake, MuJoCo, Ours, Pinocchio
from tests.bench.compare.in_jax import Adam, Frax, Mjx
from tests.bench.compare.work import TOLERANCE, USUAL_TOLERANCE, Job, Robot
from tests.bench.points import off_by
from tests.bench.shared import reason

LIBRARIES: dict[str, Any] = {
    "robodyn": Ours,
    "pinocchio": Pinocchio,
    "mujoco": MuJoCo,
    "drake": Drake,
    "frax": Frax,
    "mjx": Mjx,
    "adam": Adam,
}
_SLOW_S = 2.0
"""What takes longer is run once."""
_LOADING_S = 60.0


def main(library: str, robot: str, seconds: float, limit: float, cases: list[str]) -> None:
    """Answer case by case; what a library prints itself goes to stderr."""
    told = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def tell(**found: Any) -> None:
        told.write(json.dumps(found) + "\n")

    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    warnings.simplefilter("ignore")  # other libraries' own
    signal.setitimer(signal.ITIMER_REAL, max(limit, _LOADING_S))
    try:
        made = LIBRARIES[library](Robot(robot))
    except Exception as error:  # another library may fail in any way
        return tell(refused=reason(error))
    tell(name=made.name)
    for case in cases:
        query, batch = case.split(":")
        signal.setitimer(signal.ITIMER_REAL, limit)  # a signal that nothing handles ends the process
        try:
            tell(**timed(made.job(query, int(batch)), seconds, query))
        except Exception as error:  # likewise
            tell(problem=reason(error))
    return None


def processor_seconds(call: Callable[[], object], times: int = 1) -> float:
    """Seconds of the processor that some calls take. On a busy machine the best of many short samples is one that
    nobody interrupted, and long samples are all interrupted: by the clock what takes longer would look slower still.
    """
    start = time.process_time()
    for _ in range(times):
        call()
    return time.process_time() - start


def timed(job: Job, seconds: float, query: str) -> dict[str, Any]:
    """Compared first: what differs is not timed."""
    first = processor_seconds(job.prepared.run)  # answers are what it left
    error = off_by([np.asarray(each) for each in job.prepared.answers()], job.wanted)
    found: dict[str, Any] = {"off_by": error if np.isfinite(error) else None, "compile_s": job.compile_s}
    if not error <= TOLERANCE.get(query, USUAL_TOLERANCE):
        return found | {"problem": f"WRONG: differs by {error:.1g}"}
    once = Timing(first, first, 1)
    timing = once if first > _SLOW_S else measure(job.prepared.run, seconds, processor_seconds)
    less = 0.0 if job.less_ns is None else job.less_ns(seconds)
    best, middle = (1e9 * s / job.prepared.states - less for s in (timing.best_s, timing.median_s))
    if best <= 0.0:
        return found | {"problem": "a call costs as much on a robot of one joint"}
    return found | {"best_ns": best, "median_ns": middle, "runs": timing.runs, "remark": job.remark}


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4]), sys.argv[5:])
