"""Large batches: `python -m tests.bench batches --write`.

What a state of an arm takes in batches of 1,024 to 1,000,000, every query, with and without `out=`, on one thread and
on all; and what reading the arguments and writing the results of so many states takes, which nothing can be faster
than: the same bytes, read once and written past the caches, by a loop that does nothing else, in turns with the query.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from math import prod
from typing import Any

import numpy as np

import robodyn as rd
from robodyn.engines.cpu.threads.pool import compile_text, shared_pool
from robodyn.engines.query_table import QUERIES, QuerySpec
from robodyn.tools.benchmark.contenders import draw, plain_call, repeated
from robodyn.tools.benchmark.tables import Cells
from robodyn.tools.benchmark.timing import settle
from tests.bench.shared import MODELS, page_of

ROBOT = "arm7"
BATCHES = (1024, 8192, 65_536, 1_000_000)
MOST_BYTES = 500_000_000
"""Of results: batches whose results would take more are made smaller."""
FLAT, SHARE = 1.3, 0.8
"""Wanted: a state of no batch takes 1.3 times as long as one of the smallest, or as long as 1 / 0.8 of its bytes."""
_RUNS, _SECONDS, _ROUNDS = 3, 0.02, 3
"""Of a case at once; and rounds through all cases: what else runs on a machine slows memory down for seconds."""

Call = Callable[[], object]


@dataclass
class Timed:
    """Nanoseconds of a state: with new results, with `out=`, and those of its bytes alone."""

    query: str
    threads: int
    batch: int
    bytes_in: int
    bytes_out: int
    fresh_ns: float
    out_ns: float
    bytes_ns: float
    cpu_ns: float
    """Of all threads together, with `out=`."""


@dataclass
class Series:
    """A query on n threads: its batches from the smallest to the largest."""

    cases: list[Timed]

    def reached(self, which: str) -> bool:
        """Whether all of its batches are flat, or as fast as memory is."""
        first = getattr(self.cases[0], which)
        return all(getattr(case, which) <= max(FLAT * first, case.bytes_ns / SHARE) for case in self.cases[1:])


_PROBE = """define void @kernel(ptr %table, i64 %first, i64 %last, ptr %workspace) {
entry:
  %from = load ptr, ptr %table, align 8
  %in.at = getelementptr i64, ptr %table, i64 1
  %in = load i64, ptr %in.at, align 8
  %to.at = getelementptr i64, ptr %table, i64 2
  %to = load ptr, ptr %to.at, align 8
  %out.at = getelementptr i64, ptr %table, i64 3
  %out = load i64, ptr %out.at, align 8
  br label %piece
piece:
  %row = phi i64 [ %first, %entry ], [ %stop, %write.done ]
  %sum = phi <8 x i64> [ zeroinitializer, %entry ], [ %sum.read, %write.done ]
  %some = icmp slt i64 %row, %last
  br i1 %some, label %begin, label %done
begin:
  %far = add i64 %row, 64
  %stop = call i64 @llvm.smin.i64(i64 %far, i64 %last)
  %in.begin = mul i64 %row, %in
  %in.all = mul i64 %stop, %in
  %out.begin.exact = mul i64 %row, %out
  %out.begin = and i64 %out.begin.exact, -64
  %out.all.exact = mul i64 %stop, %out
  %out.all = and i64 %out.all.exact, -64
  br label %read
read:
  %r = phi i64 [ %in.begin, %begin ], [ %r.next, %read.one ]
  %sum.read = phi <8 x i64> [ %sum, %begin ], [ %sum.next, %read.one ]
  %r.next = add i64 %r, 64
  %r.more = icmp sle i64 %r.next, %in.all
  br i1 %r.more, label %read.one, label %write
read.one:
  %r.at = getelementptr i8, ptr %from, i64 %r
  %line = load <8 x i64>, ptr %r.at, align 8
  %sum.next = add <8 x i64> %sum.read, %line
  br label %read
write:
  %w = phi i64 [ %out.begin, %read ], [ %w.next, %write.one ]
  %w.more = icmp slt i64 %w, %out.all
  br i1 %w.more, label %write.one, label %write.done
write.one:
  %w.at = getelementptr i8, ptr %to, i64 %w
  store <8 x i64> %sum.read, ptr %w.at, align 64, !nontemporal !0
  %w.next = add i64 %w, 64
  br label %write
write.done:
  br label %piece
done:
  store <8 x i64> %sum, ptr %workspace, align 8
  ret void
}
declare i64 @llvm.smin.i64(i64, i64)
!0 = !{i32 1}
"""


class Probe:
    """Reads and writes the bytes of so many states on n threads, and computes nothing."""

    def __init__(self, threads: int, most_in: int, memory: np.ndarray) -> None:
        self._pool, self._code = shared_pool(threads), compile_text(_PROBE)
        self._workspace = np.zeros((threads, 64))
        self._from, self._to = np.ones(most_in // 8 + 8), memory

    def call(self, rows: int, bytes_in: int, bytes_out: int) -> Call:
        """Nothing else, for arguments and results of that many bytes a state."""
        to = -(-self._to.ctypes.data // 64) * 64
        table = (ctypes.c_int64 * 4)(self._from.ctypes.data, bytes_in, to, bytes_out)
        return lambda: self._pool.run(
            self._code.address("kernel"), ctypes.addressof(table), rows, 256, self._workspace.ctypes.data, 512
        )


def measure(selected: Callable[[str], bool], threads: Sequence[int], announce: Callable[[str], object]) -> list[Series]:
    """Run the cases whose names are selected, on so many threads each."""
    model = rd.load_urdf(MODELS / f"{ROBOT}.urdf")
    questions = [each for each in QUERIES.values() if selected(f"batches: {each.name}")]
    if not questions:
        return []
    states = repeated(draw(model, 4096), BATCHES[-1])
    batches = {each.name: _batches(_bytes_out(model, each)) for each in questions}
    most = max(batches[each.name][-1] * _bytes_out(model, each) for each in questions)
    memory, others = np.ones(most // 8), np.ones(most // 8 + 64)
    found = []
    for number in threads:
        dyn = rd.Dynamics(model, engine="cpu", threads=number)
        probe = Probe(number, BATCHES[-1] * 8 * (model.nq + 3 * model.nv), others)
        rounds = []
        for _ in range(_ROUNDS):
            rounds.append(list[Series]())
            for question in questions:
                announce(f"{question.name}, threads: {number}")
                cases = [_timed(dyn, question, states, n, memory, probe) for n in batches[question.name]]
                rounds[-1].append(Series(cases))
        found += map(_least, *rounds)
    rd.release_memory()
    return found


def _least(*rounds: Series) -> Series:
    """The least times of the same cases."""
    fields = ("fresh_ns", "out_ns", "bytes_ns", "cpu_ns")
    return Series(
        [
            replace(cases[0], **{name: min(getattr(case, name) for case in cases) for name in fields})
            for cases in zip(*(series.cases for series in rounds), strict=True)
        ]
    )


def _bytes_out(model: rd.Model, question: QuerySpec) -> int:
    return 8 * sum(map(prod, question.shapes(model, question.plain).values()))


def _batches(bytes_out: int) -> tuple[int, ...]:
    most = min(BATCHES[-1], MOST_BYTES // bytes_out)
    return (*(batch for batch in BATCHES if batch < most), most)


def _timed(
    dyn: rd.Dynamics, question: QuerySpec, states: dict[str, Any], batch: int, memory: np.ndarray, probe: Probe
) -> Timed:
    arrays, at, results = [states[name][:batch] for name in question.plain], 0, []
    for shape in question.shapes(dyn.model, question.plain).values():
        size = batch * prod(shape)
        results.append(memory[at : at + size].reshape(batch, *shape))
        at += size
    out = tuple(results) if len(results) > 1 else results[0]
    plain_call(dyn, question)(*arrays)
    call = plain_call(dyn, question)  # after the first answer it may be a quicker function
    bytes_in, bytes_out = sum(array[0].nbytes for array in arrays), _bytes_out(dyn.model, question)
    calls = (lambda: call(*arrays), lambda: call(*arrays, out=out), probe.call(batch, bytes_in, bytes_out))
    threads = dyn.engine.threads  # type: ignore[attr-defined]
    clocks = _in_turns(calls)
    numbers = (1e9 * each / batch for each in (*(wall for wall, _ in clocks), clocks[1][1]))
    return Timed(question.name, threads, batch, bytes_in, bytes_out, *numbers)


def _in_turns(calls: Sequence[Call]) -> list[tuple[float, float]]:
    """The least time of each by the clock, and the least that processors spent on it."""
    for each in calls:
        each()
    settle()
    best, until, runs = [(float("inf"),) * 2] * len(calls), time.perf_counter() + _SECONDS * len(calls), 0
    while runs < _RUNS or time.perf_counter() < until:
        for k, each in enumerate(calls):
            wall, cpu = time.perf_counter(), time.process_time()
            each()
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
            best[k] = min(best[k][0], wall), min(best[k][1], cpu)
        runs += 1
    return best


def tables(found: list[Series]) -> list[Cells]:
    """For the screen and the page."""
    made = []
    for threads in dict.fromkeys(series.cases[0].threads for series in found):
        rows = []
        for series in (each for each in found if each.cases[0].threads == threads):
            last = series.cases[-1]
            rows.append(
                (
                    last.query,
                    f"{last.bytes_in} + {last.bytes_out}",
                    ", ".join(f"{case.fresh_ns:.3g}" for case in series.cases),
                    ", ".join(f"{case.out_ns:.3g}" for case in series.cases),
                    f"{last.batch:,}",
                    f"{last.bytes_ns:.3g}",
                    ", ".join(
                        word for which, word in (("fresh_ns", "new"), ("out_ns", "out=")) if not series.reached(which)
                    ),
                )
            )
        steps = f"ns, {', '.join(f'{batch:,}' for batch in BATCHES[:-1])}, most "
        headings = ("query", "bytes ", steps, "with out= ", "most ", "bytes alone, ns ", "missed")
        made.append(Cells(f"{ROBOT}, threads: {threads}", headings, rows))
    return made


def notes(found: list[Series]) -> list[str]:
    """What the tables say."""
    lines = []
    for threads in dict.fromkeys(series.cases[0].threads for series in found):
        own = [each for each in found if each.cases[0].threads == threads]
        counts = (sum(each.reached(which) for each in own) for which in ("fresh_ns", "out_ns"))
        new, out = (f"{count} of {len(own)}" for count in counts)
        lines.append(
            f"Threads: {threads}. Within {FLAT} times the time in batches of {BATCHES[0]:,}, or within 1 / {SHARE} of "
            f"the time of their bytes alone: {new} queries with new results, {out} with `out=`."
        )
        last = [each.cases[-1] for each in own]
        speed = max((case.bytes_in + case.bytes_out) / case.bytes_ns for case in last)
        lines.append(f"Threads: {threads}. Bytes alone, the most of all queries: {speed:.3g} GB/s.")
    if all(series.cases[0].threads == 1 for series in found):
        lines.append("More threads than one were not measured: that takes a machine which has nothing else to do.")
    return [*lines, *_gains(found)]


def _gains(found: list[Series]) -> list[str]:
    """How many times as fast all threads are as one."""
    one = {series.cases[0].query: series for series in found if series.cases[0].threads == 1}
    more = [series for series in found if series.cases[0].threads > 1 and one]
    lines = []
    for k, batch in enumerate(BATCHES):
        pairs = [(one[series.cases[0].query].cases[k], series.cases[k]) for series in more if k < len(series.cases)]
        if pairs:
            gains = np.median([alone.out_ns / shared.out_ns for alone, shared in pairs])
            work = np.median([shared.cpu_ns / alone.cpu_ns for alone, shared in pairs])
            lines.append(
                f"{pairs[0][1].threads} threads beside one, {batch:,} states, the median of queries: {gains:.2f} times "
                f"as fast by the clock, and {work:.2f} times the processors' time."
            )
    return lines


def page(found: list[Series], about: dict[str, str]) -> str:
    """The page of docs/benchmarks."""
    text = [
        "Printed by `python -m tests.bench batches --write`. A state of an arm with 7 joints, float64, in batches of",
        f"{', '.join(f'{batch:,}' for batch in BATCHES)}; fewer at the most where results would take more than",
        f"{MOST_BYTES / 1e9:g} GB. Results are new arrays, whose memory is",
        "[kept](../engines.md#memory-of-results), or the same ones every time. The bytes of a state are those of its",
        "arguments and of its results; their time alone is",
        "that of a loop that reads the ones and writes the others past the caches, on as many threads, in turns with",
        f"the query. Times are the least of some runs by the clock, in {_ROUNDS} rounds through all queries: what else",
        "runs on a machine slows memory down for seconds. The gain by threads has processors' time as well: threads",
        "that wait for a processor need no more of it, threads that wait for memory do.",
    ]
    return page_of("Large batches", text, about, notes(found), tables(found))


def document(found: list[Series], about: dict[str, str]) -> dict[str, Any]:
    """The same for programs."""
    return {**about, "cases": [asdict(case) for series in found for case in series.cases]}
