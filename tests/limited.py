"""Computes under a limit of the operating system: a program of its own.

    python -X faulthandler tests/limited.py LIMIT AMOUNT

Everything is asked for once without the limit, and checked against the reference engine; then robots that were not
seen yet are asked for under it. Each answer is right, or an error of robodyn's own, or a MemoryError; one word for each
is printed. `LIMIT`: threads, processes, files, memory (MiB beyond what is taken), stack (bytes of a thread's), sizes
(bytes of a file).
"""

from __future__ import annotations

import codecs
import os
import resource
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from robots import own

import robodyn as rd

warnings.simplefilter("ignore")  # of what does not run here


def compute(n: int, query: str, batch: int, **options: Any) -> None:
    """Ask a query of a robot of n joints, and the reference engine for the first row."""
    model = rd.random_tree(n, seed=n, shape="chain")
    dyn = rd.Dynamics(model, **options)
    rng = np.random.default_rng(0)
    q, qd, last = (
        model.random_configuration(rng, (batch,)),
        rng.random((batch, model.nv)),
        rng.random((batch, model.nv)),
    )
    got = getattr(dyn, query)(q, qd, last)
    wanted = getattr(rd.Dynamics(model, engine="reference"), query)(q[:1], qd[:1], last[:1])
    for a, b in zip(*((each if isinstance(each, tuple) else (each,)) for each in (got, wanted)), strict=True):
        assert np.abs(a[:1] - b).max() <= 1e-6 * max(1.0, np.abs(b).max()), "wrong numbers"


def jobs(first: int, largest: int) -> list[Callable[[], Any]]:
    """What is asked for, of robots of other sizes for every `first`."""
    k = first
    return [
        lambda: compute(k, "inverse_dynamics", 5000, engine="cpu", threads=4),
        lambda: compute(k + 1, "inverse_dynamics", 3, engine="auto"),
        lambda: compute(k + 2, "forward_dynamics", 3, engine="cpu", compile="background"),
        lambda: compute(k + 3, "forward_dynamics_gradient", 2, engine="cpu", code="rolled"),
        lambda: compute(largest + k, "inverse_dynamics", 2, engine="cpu"),
        lambda: compute(largest + k, "forward_dynamics", 2, engine="scan"),
        lambda: compute(k + 4, "forward_dynamics", 2000, engine="reference"),
        lambda: rd.load_urdf(own("arm6")),
        lambda: rd.Dynamics(rd.random_tree(k, seed=k), engine="cpu").rollout(np.zeros(k), np.zeros(k), steps=50),
    ]


def outcome(job: Callable[[], Any]) -> str:
    try:
        job()
    except rd.RobodynError as error:
        print(f"{type(error).__name__}: {str(error)[:200]}", file=sys.stderr)
        return "refused"
    except MemoryError:
        return "memory"
    except BaseException:
        traceback.print_exc()
        return "OTHER"
    return "right"


def limit(which: str, amount: int) -> None:
    """Lower a limit of this process."""

    def fail(self: Any) -> None:
        raise RuntimeError("can't start new thread")

    if which == "threads":
        threading.Thread.start = fail  # type: ignore[method-assign]
    elif which == "processes":  # root has no such limit; nobody may not read what is not imported yet
        codecs.lookup("ascii")
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        resource.setrlimit(resource.RLIMIT_NPROC, (amount, amount))
    elif which == "files":
        resource.setrlimit(resource.RLIMIT_NOFILE, (amount, amount))
    elif which == "memory":
        with open("/proc/self/statm") as file:  # noqa: PTH123
            taken = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + amount * 2**20,) * 2)
    elif which == "sizes":
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (amount, amount))


def main(which: str, amount: int) -> None:
    found: list[str] = []
    largest = 300
    if which != "stack":
        before = [outcome(job) for job in jobs(3, 20)]
        assert set(before) == {"right"}, before
        limit(which, amount)
        found = [outcome(job) for job in jobs(13, largest)]
    else:
        threading.stack_size(amount)
        thread = threading.Thread(target=lambda: found.extend(outcome(job) for job in jobs(13, largest)))
        thread.start()
        thread.join()
    print(*found, flush=True)
    os._exit(0)  # what the end of a process needs is not what is tested


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
