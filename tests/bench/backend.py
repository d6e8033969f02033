"""The two code generators for straight-line programs, ours and LLVM's: `python -m tests.bench backend --write`.

First answers with an empty cache: in a new process, and in one that has answered for another robot, so that what robots
share is not counted; and with everything cached, in a new process. Imports are not counted.

Run times of programs in one process, one thread, in turns, on the same arrays, which a cache holds; both have to give
the same bits. A loop of machine code calls a program some thousand times, for a call from Python takes longer than many
programs do, and where the stack lies among pages is another place in each turn, for it can make a tenth. Of each turn
one time is divided by the other: whatever else the machine does slows both of a turn, so that the median of these
tells one percent apart on a machine that is busy. A humanoid's gradients are run in larger batches as well, whose
results leave the second cache. Memory is slow for seconds when others use it, so of these the least times are compared.
"""

from __future__ import annotations

import ctypes
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np

from robodyn.compile.cache import ObjectCache
from robodyn.compile.llvm.jit import OPT, Code, compile_object
from robodyn.compile.llvm.target import host_target
from robodyn.compile.tracing.unrolled import input_shapes, output_shape
from robodyn.core.model import Model
from robodyn.engines.cpu.backends import BACKEND_VARIABLE, X86
from robodyn.engines.cpu.engine import CpuEngine
from robodyn.engines.cpu.kernels import Kernel, rows_bytes, workspace
from robodyn.engines.cpu.route import SingleProgram
from robodyn.engines.query_table import QUERIES
from robodyn.internals.errors import RobodynError
from robodyn.io.builders.load import load_urdf
from robodyn.tools.benchmark.tables import Cells
from robodyn.tools.benchmark.timing import settle
from tests.bench.first_answer import answer_in_new_process
from tests.bench.shared import MODELS, facts, show

ROBOTS = (("arm7", "fixed"), ("quadruped", "floating"), ("humanoid", "floating"))
FIRST = (
    "inverse_dynamics",
    "forward_dynamics",
    "mass_matrix",
    "inverse_dynamics_gradient",
    "forward_dynamics_gradient",
)
BACKENDS = ("x86", "llvm")
STATES = ("new process", "after another robot", "cached")
OTHER = "ball_joint_arm"
"""The robot that a process answers for first."""
GRADIENTS = ("inverse_dynamics_gradient", "forward_dynamics_gradient")
BATCH, LARGE_BATCH = 64, 512
_CACHED_BYTES = 1 << 14
"""Of arguments and results: as many states as take no more are a batch, if these are more. Else what happens once in a
call would be a twentieth of what an arm's smallest programs take, and half of the nearest cache holds so much."""
_SLICE_S = 1e-4
"""Seconds of a turn: a call from Python is a hundredth of it, and most turns are not interrupted."""
_LEAST_TURNS, _LARGE_ROUNDS = 40, 5
_PAGE, _LINE = 4096, 64
_ANSWERS = 3
_SLOWER, _CONFIRMED = 1.03, 3
"""Of LLVM's time: what counts as slower, and how often that is measured, each time on other memory: the middle one of
the results is taken. Where arrays lie makes up to 5 % of one, half of the nearest cache being full."""
_REPEATED = """define void @repeated(ptr %kernel, ptr %table, i64 %rows, ptr %workspace, i64 %times, i64 %apart) {
entry:
  %space = alloca i8, i64 %apart
  store volatile i8 0, ptr %space
  br label %call
call:
  %k = phi i64 [ 0, %entry ], [ %k.next, %call ]
  call void %kernel(ptr %table, i64 0, i64 %rows, ptr %workspace)
  %k.next = add i64 %k, 1
  %more = icmp slt i64 %k.next, %times
  br i1 %more, label %call, label %done
done:
  ret void
}
"""
_LARGE = 3000
"""Operations from which rows take a small part of the time."""


@dataclass
class First:
    """Seconds from `load_urdf` to the first answer of each code generator, without imports, and of these; the best of
    some."""

    robot: str
    query: str
    empty: dict[str, float]
    later: dict[str, float]
    cached: dict[str, float]
    imports: float


@dataclass
class Run:
    """Nanoseconds for a state, the least; of our time over LLVM's in each turn the quartiles; seconds to make the code;
    and whether both gave the same bits."""

    robot: str
    query: str
    dtype: str
    operations: int
    ns: dict[str, float]
    ratios: tuple[float, float, float]
    made_s: dict[str, float]
    same: bool


@dataclass
class Large:
    """A gradient of a humanoid in a batch larger than the second cache, whatever each code generator makes of it: the
    name of that, and nanoseconds for a state, the least."""

    base: str
    query: str
    dtype: str
    modes: dict[str, str]
    ns: dict[str, float]

    @property
    def ratio(self) -> float:
        """Of our time over LLVM's."""
        return self.ns["x86"] / self.ns["llvm"]


@dataclass
class Measured:
    """What the suite found."""

    first: list[First]
    runs: list[Run]
    large: list[Large]


@contextmanager
def forced(backend: str) -> Iterator[None]:
    """That code generator, in this process and in those it starts."""
    before = os.environ.get(BACKEND_VARIABLE)
    os.environ[BACKEND_VARIABLE] = backend
    try:
        yield
    finally:
        if before is None:
            del os.environ[BACKEND_VARIABLE]
        else:
            os.environ[BACKEND_VARIABLE] = before


def measure(selected: Callable[[str], bool], seconds: float, announce: Callable[[str], object]) -> Measured:
    """Run the cases whose names are selected."""
    found = Measured([], [], [])
    for robot, base in ROBOTS:
        for query in FIRST:
            if selected(f"backend: first answer: {robot}, {query}"):
                announce(f"first answer: {robot}, {query}")
                found.first.append(_first(robot, base, query))
        model = load_urdf(MODELS / f"{robot}.urdf", base=base)
        for dtype in ("float64", "float32"):
            for query in QUERIES:
                if selected(f"backend: run: {robot}, {query}, {dtype}"):
                    announce(f"run: {robot}, {query}, {dtype}")
                    run = _run(robot, model, query, dtype, seconds)
                    found.runs += [] if run is None else [run]
    for base, query, dtype in product(("fixed", "floating"), GRADIENTS, ("float64", "float32")):
        if selected(f"backend: large: {base}, {query}, {dtype}"):
            announce(f"large: {base}, {query}, {dtype}")
            found.large.append(_large(base, query, dtype))
    return found


def _first(robot: str, base: str, query: str) -> First:
    found = First(robot, query, {}, {}, {}, math.inf)
    for times, before in ((found.empty, ()), (found.later, (OTHER,))):
        for _ in range(_ANSWERS):
            for backend in BACKENDS:
                with forced(backend), tempfile.TemporaryDirectory() as cache:
                    answered = answer_in_new_process(robot, base, query, "cpu", cache, before)
                    times[backend] = min(answered.seconds, times.get(backend, math.inf))
                    found.imports = min(answered.imports, found.imports)
                    if before == ():
                        cached = answer_in_new_process(robot, base, query, "cpu", cache).seconds
                        found.cached[backend] = min(cached, found.cached.get(backend, math.inf))
    return found


def _run(robot: str, model: Model, query: str, dtype: str, seconds: float) -> Run | None:
    """None where the query is not one program of a kind that both make."""
    question = QUERIES[query]
    link = len(model.link_names) - 1 if question.of_link else None
    kernels: dict[str, Kernel] = {}
    made: dict[str, float] = {}
    for backend in BACKENDS:
        with forced(backend):
            engine = CpuEngine(model, np.dtype(dtype), threads=1)
            try:
                request = engine.request(question.plain_task(model), link=link)
                route = engine.compiler.route(request)
                if not isinstance(route, SingleProgram) or (backend == "x86" and route.backend is not X86):
                    return None
                kernels[backend] = engine.compiler.kernel(request, single=False)
                made[backend] = _made(route)
            except RobodynError:
                return None
    states = max(BATCH, _CACHED_BYTES // rows_bytes(request) // BATCH * BATCH)
    found, held = [], []
    while not found or (found[0][1][1] > _SLOWER and len(found) < _CONFIRMED):
        held.append(_arrays(model, kernels["x86"], dtype, states))  # which the next ones cannot have
        found.append(_side_by_side(kernels, *held[-1], round(seconds / _SLICE_S)))
    ns, ratios, _ = sorted(found, key=lambda each: each[1][1])[len(found) // 2]
    same = all(each[2] for each in found)
    program = kernels["x86"].program
    operations = 0 if program is None else program.operations
    return Run(robot, query, dtype, operations, ns, ratios, made, same)


def _large(base: str, query: str, dtype: str) -> Large:
    model = load_urdf(MODELS / "humanoid.urdf", base=base)
    kernels: dict[str, Kernel] = {}
    for backend in BACKENDS:
        with forced(backend):
            engine = CpuEngine(model, np.dtype(dtype), threads=1)
            kernels[backend] = engine.compiler.kernel(engine.request(QUERIES[query].plain_task(model)), single=False)
    ns: dict[str, float] = {}
    for _ in range(_LARGE_ROUNDS):
        found, _, _ = _side_by_side(kernels, *_arrays(model, kernels["x86"], dtype, LARGE_BATCH), _LEAST_TURNS)
        ns = {backend: min(each, ns.get(backend, each)) for backend, each in found.items()}
    return Large(base, query, dtype, {backend: kernel.mode for backend, kernel in kernels.items()}, ns)


def _side_by_side(
    kernels: dict[str, Kernel],
    arrays: list[np.ndarray[Any, Any]],
    results: list[np.ndarray[Any, Any]],
    turns: int,
) -> tuple[dict[str, float], tuple[float, float, float], bool]:
    """Nanoseconds for a state, quartiles of our time over LLVM's, and whether both gave the same bits."""
    states = len(results[0])
    calls, answers = {}, []
    for backend, kernel in kernels.items():
        calls[backend] = _call(kernel, arrays, results)
        for array in results:
            array[:] = np.nan
        calls[backend](1, _LINE)
        answers.append([array.copy() for array in results])
    settle()
    same = all(np.array_equal(a, b, equal_nan=True) for a, b in zip(*answers, strict=True))
    times = _times(calls, max(_LEAST_TURNS, turns))
    ratios = statistics.quantiles((a / b for a, b in zip(times["x86"], times["llvm"], strict=True)), n=4)
    ns = {backend: 1e9 * min(each) / states for backend, each in times.items()}
    return ns, (ratios[0], ratios[1], ratios[2]), same


def _times(calls: dict[str, Callable[[int, int], float]], turns: int) -> dict[str, list[float]]:
    """Seconds of one call in each turn; who begins takes turns as well."""
    often = {}
    for backend, call in calls.items():
        often[backend] = 1
        while (seconds := min(call(often[backend], _LINE) for _ in range(5))) < _SLICE_S / 4:
            often[backend] *= 2
        often[backend] = max(1, round(often[backend] * _SLICE_S / seconds))
    places = np.random.default_rng(0).integers(1, _PAGE // _LINE, turns, endpoint=True)
    found: dict[str, list[float]] = {backend: [] for backend in calls}
    for turn, place in enumerate(places.tolist()):
        for backend in BACKENDS[:: 1 if turn % 2 else -1]:
            found[backend].append(calls[backend](often[backend], _LINE * place) / often[backend])
    return found


def _made(route: SingleProgram) -> float:
    """Seconds to make the code of a program, which is traced already, without a cache."""
    request, nowhere = route.request, replace(route.linked, cache=ObjectCache(None))
    program = request.trace()
    start = time.perf_counter()
    route.backend.made(nowhere, request, program)
    return time.perf_counter() - start


def _arrays(
    model: Model, kernel: Kernel, dtype: str, states: int
) -> tuple[list[np.ndarray[Any, Any]], list[np.ndarray[Any, Any]]]:
    """States, and where results go."""
    rng = np.random.default_rng(0)
    task = kernel.request.algorithm
    shapes = input_shapes(model, task, ())
    given = [
        model.random_configuration(rng, (states,)) if name == "q" else rng.normal(size=(states, *shapes[name]))
        for name in kernel.inputs
    ]
    arrays = [_aligned(array.reshape(states, -1), dtype) for array in given]
    results = [_aligned(np.full((states, *output_shape(model, each)), np.nan), dtype) for each in task.outputs.values()]
    return arrays, results


def _call(
    kernel: Kernel, arrays: list[np.ndarray[Any, Any]], results: list[np.ndarray[Any, Any]]
) -> Callable[[int, int], float]:
    """Calls the kernel for a batch so often, its stack so many bytes below that of others; returns how long it took."""
    states = len(results[0])
    words = [word for a in (*arrays, *results) for word in (a.ctypes.data, a.nbytes // states)]
    table = (ctypes.c_int64 * (len(words) + len(kernel.constants)))(*words, *kernel.constants)
    if kernel.batch:
        table[len(table) - 1] = states
    scratch, owner = workspace(kernel.workspace_bytes)
    function, address, data = _repeated(), kernel.address, ctypes.addressof(table)

    def call(times: int, apart: int, _keep: object = (table, owner, kernel)) -> float:
        start = time.perf_counter()
        function(address, data, states, scratch, times, apart)
        return time.perf_counter() - start

    return call


@cache
def _repeated() -> Callable[..., None]:
    target = host_target()
    code = Code(compile_object(_REPEATED, target, OPT), target)
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 6)(code.address("repeated"))
    return lambda *given, _keep=code: function(*given)


def _aligned(array: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    """The array where a page begins: stores over the ends of cache lines take twice the time, and which these are would
    be chance."""
    size = array.size * np.dtype(dtype).itemsize
    memory = np.empty(size + _PAGE, np.uint8)
    start = -memory.ctypes.data % _PAGE
    found = memory[start : start + size].view(dtype).reshape(array.shape)
    found[:] = array
    return found


def tables(found: Measured) -> list[Cells]:
    """For the screen and the page."""
    first = [
        (
            each.robot,
            each.query,
            *(show(times[b]) for times in (each.empty, each.later, each.cached) for b in BACKENDS),
        )
        for each in found.first
    ]
    runs = [
        (
            *(each.robot, each.query, each.dtype, str(each.operations)),
            *(f"{each.ns[b]:.1f}" for b in BACKENDS),
            f"{each.ratios[1]:.2f}",
            f"{each.ratios[0]:.2f} - {each.ratios[2]:.2f}",
            *(show(each.made_s[b]) for b in BACKENDS),
            "" if each.same else "WRONG: not the same bits",
        )
        for each in found.runs
    ]
    large = [
        (
            *(each.base, each.query, each.dtype, *(each.modes[b] for b in BACKENDS)),
            *(f"{each.ns[b]:.0f}" for b in BACKENDS),
            f"{each.ratio:.2f}",
        )
        for each in found.large
    ]
    states = [
        f"{state}, {backend} " for state in ("new process", "after another robot", "cached") for backend in BACKENDS
    ]
    headings = (
        "robot",
        "query",
        "dtype",
        "operations ",
        "ns, x86 ",
        "ns, llvm ",
        "x86 / llvm ",
        "half of the turns ",
        "made, x86 ",
        "made, llvm ",
    )
    found_tables = [
        Cells("first answers", ("robot", "query", *states), first),
        Cells("run time of a state, one thread", (*headings, "remark"), runs),
        Cells(f"a humanoid's gradients, {LARGE_BATCH} states, one thread", _LARGE_HEADINGS, large),
    ]
    return [table for table in found_tables if table.rows]


_LARGE_HEADINGS = ("base", "query", "dtype", "x86", "llvm", "ns, x86 ", "ns, llvm ", "x86 / llvm ")


def notes(found: Measured) -> list[str]:
    """What the tables say."""
    imports = [each.imports for each in found.first]
    first = f"First answers do not count imports, which take {show(min(imports))} in all." if imports else ""
    return list(filter(None, [first, *_notes_of_runs(found), *_notes_of_large(found)]))


def _notes_of_large(found: Measured) -> list[str]:
    ratios = [each.ratio for each in found.large]
    if not ratios:
        return []
    mean = np.exp(np.log(ratios).mean())
    return [
        f"A humanoid's gradients, {LARGE_BATCH} states: {mean:.2f} of LLVM's time in the mean, {min(ratios):.2f} to "
        f"{max(ratios):.2f}."
    ]


def _notes_of_runs(found: Measured) -> list[str]:
    if not found.runs:
        return []
    over = sorted(((each.ratios[1], each) for each in found.runs), key=lambda pair: pair[0])
    ratios = np.array([ratio for ratio, _ in over])
    slower = [f"{each.robot} {each.query} {each.dtype} ({ratio:.2f})" for ratio, each in over[::-1] if ratio > _SLOWER]
    large = np.array([ratio for ratio, each in over if each.operations >= _LARGE])
    made = np.array([each.made_s["llvm"] / each.made_s["x86"] for each in found.runs])
    return [
        f"{len(found.runs)} programs: run time is {np.exp(np.log(ratios).mean()):.2f} of LLVM's in the mean, "
        f"{ratios.min():.2f} to {ratios.max():.2f}; code is made {np.exp(np.log(made).mean()):.0f} times as fast; the "
        f"same bits in {sum(each.same for each in found.runs)} of them.",
        f"Of programs of {_LARGE} operations and more ({len(large)}): {np.exp(np.log(large).mean()):.2f} in the mean, "
        f"{large.min():.2f} to {large.max():.2f}."
        if len(large)
        else f"None has {_LARGE} operations.",
        f"More than 3 % slower: {len(slower)} programs; the slowest: {', '.join(slower[:8]) or 'none'}.",
    ]


def page(found: Measured, about: dict[str, str]) -> str:
    """The page of docs/benchmarks."""
    lines = [
        "# Code generators of the CPU engine",
        "",
        "Printed by `python -m tests.bench backend --write`: machine code of our own for straight-line programs (x86),",
        "and LLVM's of the same programs, in one run, in turns, on the same arrays. `x86 / llvm` is the median of the",
        "turns' quotients, half of which lie where the next column says; nanoseconds are the least of all turns.",
        f"Batches have {BATCH} states, or as many as take {_CACHED_BYTES >> 10} KiB with their results; in the last",
        f"table {LARGE_BATCH}, whose results leave the second cache, and the least times are compared. What is chained",
        "there is programs and solves, which are LLVM's loops on both sides. A program that is more than 3 % slower is",
        f"measured {_CONFIRMED} times, on other memory each time, which makes up to 5 %: the middle one counts.",
        "See [machine code](../machine_code.md).",
        "",
        f"Measured on: {facts(about)}.",
        "",
        *(f"- {note}" for note in notes(found)),
    ]
    for table in tables(found):
        lines += ["", f"## {table.title.capitalize()}", "", *table.markdown()]
    return "\n".join(lines) + "\n"


def document(found: Measured, about: dict[str, str]) -> dict[str, Any]:
    """The same for programs."""
    parts = {"first": found.first, "runs": found.runs, "large": found.large}
    return {**about, **{name: [asdict(each) for each in part] for name, part in parts.items()}}
