"""Large batches: what a state of an arm takes, by every query, beside what reading and writing its bytes takes."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

import robodyn as rd
from robodyn.engines.query_table import QUERIES, QuerySpec
from robodyn.tools.benchmark.contenders import draw, numbers_of, plain_call, repeated
from robodyn.tools.benchmark.tables import Cells
from tests.bench.runner import Page, Run
from tests.bench.shared import columns, robot
from tests.bench.timing import Call, least

ROBOT = "arm7"
BATCHES = (1024, 8192, 65_536, 1_000_000)
MOST_BYTES = 500_000_000
"""Of results: batches whose results would take more are made smaller."""
FLAT, SHARE = 1.3, 0.8
"""Wanted: a state of no batch takes 1.3 times as long as one of the smallest, or as long as 1 / 0.8 of its bytes."""
_RUNS, _SECONDS, _ROUNDS = 3, 0.02, 3
"""Of a case at once; and rounds through all cases: what else runs on a machine slows memory down for seconds."""


@dataclass
class Timed:
    """Nanoseconds of a state: with new results, with `out=`, and those of its bytes alone; `cpu_ns`: of all threads
    together, with `out=`."""

    query: str
    threads: int
    batch: int
    bytes_in: int
    bytes_out: int
    fresh_ns: float
    out_ns: float
    bytes_ns: float
    cpu_ns: float


@dataclass
class Results:
    """Queries on n threads, each from its smallest batch to its largest."""

    cases: list[Timed]

    def series(self, threads: int) -> list[list[Timed]]:
        mine = [case for case in self.cases if case.threads == threads]
        return [[case for case in mine if case.query == query] for query in dict.fromkeys(case.query for case in mine)]

    @property
    def threads(self) -> list[int]:
        return list(dict.fromkeys(case.threads for case in self.cases))


def reached(series: Sequence[Timed], which: str) -> bool:
    """Whether all batches are flat, or as fast as memory is."""
    first = getattr(series[0], which)
    return all(getattr(case, which) <= max(FLAT * first, case.bytes_ns / SHARE) for case in series[1:])


class Memory:
    """Arrays that hold the arguments and results of every batch, which threads read and write."""

    def __init__(self, threads: int, most_in: int, most_out: int) -> None:
        self.threads, self._pool = threads, ThreadPoolExecutor(threads)
        self.given, self.results = np.ones(most_in // 8 + 8), np.ones(most_out // 8 + 8)

    def call(self, bytes_in: int, bytes_out: int) -> Call:
        """Reads and writes so many bytes, and computes nothing."""
        read, write = -(-bytes_in // 8 // self.threads), -(-bytes_out // self.threads)

        def part(k: int) -> None:
            self.given[k * read : (k + 1) * read].max()
            ctypes.memset(self.results.ctypes.data + k * write, 0, max(0, min(write, bytes_out - k * write)))

        return (lambda: part(0)) if self.threads == 1 else lambda: list(self._pool.map(part, range(self.threads)))


def measure(run: Run) -> Results:
    """Run the cases whose names are selected, on so many threads each."""
    model, sizes = robot(ROBOT), run.settings.batches
    questions = [each for each in QUERIES.values() if run.selected(f"batches: {each.name}")]
    found: dict[tuple[int, str, int], Timed] = {}
    if not questions:
        return Results([])
    states = repeated(draw(model, 4096), sizes[-1])
    bytes_of = {each.name: 8 * numbers_of(each, model) for each in questions}
    largest = {name: min(sizes[-1], MOST_BYTES // size) for name, size in bytes_of.items()}
    most = max(size * largest[name] for name, size in bytes_of.items())
    for threads in run.settings.threads:
        dyn = rd.Dynamics(model, engine="cpu", threads=threads)
        memory = Memory(threads, sizes[-1] * 8 * (model.nq + 3 * model.nv), most)
        for question in questions * _ROUNDS:
            run.announce(f"{question.name}, threads: {threads}")
            last = largest[question.name]
            for batch in (*(batch for batch in sizes if batch < last), last):
                case = _timed(dyn, question, states, batch, memory)
                before = vars(found.get((threads, question.name, batch), case))
                less = {name: min(value, before[name]) for name, value in vars(case).items() if name.endswith("_ns")}
                found[threads, question.name, batch] = replace(case, **less)
    rd.release_memory()
    return Results(list(found.values()))


def _timed(dyn: rd.Dynamics, question: QuerySpec, states: dict[str, Any], batch: int, memory: Memory) -> Timed:
    arrays, at, results = [states[name][:batch] for name in question.plain], 0, []
    for shape in question.shapes(dyn.model, question.plain).values():
        size = batch * prod(shape)
        results.append(memory.results[at : at + size].reshape(batch, *shape))
        at += size
    out = tuple(results) if len(results) > 1 else results[0]
    plain_call(dyn, question)(*arrays)
    call = plain_call(dyn, question)  # after the first answer it may be a quicker function
    bytes_in, bytes_out = sum(array[0].nbytes for array in arrays), 8 * numbers_of(question, dyn.model)
    calls = {
        "fresh_ns": lambda: call(*arrays),
        "out_ns": lambda: call(*arrays, out=out),
        "bytes_ns": memory.call(batch * bytes_in, batch * bytes_out),
    }
    seconds = least(calls, _SECONDS, _RUNS, warm=1)
    cpu = least({"cpu_ns": calls["out_ns"]}, _SECONDS, _RUNS, clock=time.process_time, warm=0)
    numbers = {name: 1e9 * each / batch for name, each in (seconds | cpu).items()}
    return Timed(question.name, memory.threads, batch, bytes_in, bytes_out, **numbers)


def tables(found: Results) -> list[Cells]:
    made = []
    for threads in found.threads:
        rows = []
        for series in found.series(threads):
            last = series[-1]
            fresh, out = (", ".join(f"{getattr(case, w):.3g}" for case in series) for w in ("fresh_ns", "out_ns"))
            missed = [word for w, word in (("fresh_ns", "new"), ("out_ns", "out=")) if not reached(series, w)]
            total = f"{last.bytes_in} + {last.bytes_out}"
            rows.append((last.query, total, fresh, out, f"{last.batch:,}", f"{last.bytes_ns:.3g}", ", ".join(missed)))
        usual = max(found.series(threads), key=len)
        steps = f"ns, {', '.join(f'{case.batch:,}' for case in usual[:-1])}, most"
        headings = columns(f"query|#bytes|#{steps}|#with out=|#most|#bytes alone, ns|missed")
        made.append(Cells(f"{ROBOT}, threads: {threads}", headings, rows))
    return made


def notes(found: Results) -> list[str]:
    lines = []
    for threads in found.threads:
        own = found.series(threads)
        counts = (sum(reached(each, which) for each in own) for which in ("fresh_ns", "out_ns"))
        new, out = (f"{count} of {len(own)}" for count in counts)
        lines.append(
            f"Threads: {threads}. Within {FLAT} times the time in batches of {own[0][0].batch:,}, or within "
            f"1 / {SHARE} of the time of their bytes alone: {new} queries with new results, {out} with `out=`."
        )
        speed = max((case.bytes_in + case.bytes_out) / case.bytes_ns for case in (each[-1] for each in own))
        lines.append(f"Threads: {threads}. Bytes alone, the most of all queries: {speed:.3g} GB/s.")
    if found.threads == [1]:
        lines.append("More threads than one were not measured: that takes a machine which has nothing else to do.")
    return [*lines, *_gains(found)]


def _gains(found: Results) -> list[str]:
    """How many times as fast all threads are as one."""
    one = {series[0].query: series for series in found.series(1)}
    more = [series for n in found.threads if n > 1 and one for series in found.series(n)]
    lines = []
    for k, batch in enumerate(BATCHES):
        pairs = [(one[series[0].query][k], series[k]) for series in more if k < len(series)]
        if pairs:
            gains = np.median([alone.out_ns / shared.out_ns for alone, shared in pairs])
            work = np.median([shared.cpu_ns / alone.cpu_ns for alone, shared in pairs])
            lines.append(
                f"{pairs[0][1].threads} threads beside one, {batch:,} states, the median of queries: {gains:.2f} times "
                f"as fast by the clock, and {work:.2f} times the processors' time."
            )
    return lines


PAGE = Page("batches", Results, measure, tables, notes, batches=BATCHES)
