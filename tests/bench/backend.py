"""The two code generators for straight-line programs, ours and LLVM's: `python -m tests.bench backend --write`.

First answers with an empty cache: in a new process, and in one that has answered for another robot, so that imports and
what robots share are not counted; and with everything cached, in a new process. Run times of programs in one process,
one thread, in turns, on rows that a cache holds; both have to give the same bits.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from robodyn.benchmark.tables import Cells
from robodyn.builders.load import load_urdf
from robodyn.codegen.cache import ObjectCache
from robodyn.engines.cpu.backends import BACKEND_VARIABLE, X86
from robodyn.engines.cpu.engine import CpuEngine
from robodyn.engines.cpu.kernels import Kernel, workspace
from robodyn.engines.cpu.route import Whole
from robodyn.errors import RobodynError
from robodyn.model import Model
from robodyn.questions import QUESTIONS
from robodyn.tracing.unrolled import input_shapes, output_shape
from tests.bench.first_answer import _process
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
BATCH, _TURNS = 64, 15
_PAGE = 4096
_ANSWERS = 3
_LARGE = 3000
"""Operations from which rows take a small part of the time."""


@dataclass
class First:
    """Seconds from `load_urdf` to the first answer of each code generator; the best of some."""

    robot: str
    query: str
    empty: dict[str, float]
    later: dict[str, float]
    cached: dict[str, float]


@dataclass
class Run:
    """Nanoseconds for a state, seconds to make the code, and whether both gave the same bits."""

    robot: str
    query: str
    dtype: str
    operations: int
    ns: dict[str, float]
    made_s: dict[str, float]
    same: bool


@dataclass
class Measured:
    """What the suite found."""

    first: list[First]
    runs: list[Run]


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
    found = Measured([], [])
    for robot, base in ROBOTS:
        for query in FIRST:
            if selected(f"backend: first answer: {robot}, {query}"):
                announce(f"first answer: {robot}, {query}")
                found.first.append(_first(robot, base, query))
        model = load_urdf(MODELS / f"{robot}.urdf", base=base)
        for dtype in ("float64", "float32"):
            for query in QUESTIONS:
                if selected(f"backend: run: {robot}, {query}, {dtype}"):
                    announce(f"run: {robot}, {query}, {dtype}")
                    run = _run(robot, model, query, dtype, seconds)
                    found.runs += [] if run is None else [run]
    return found


def _first(robot: str, base: str, query: str) -> First:
    found = First(robot, query, {}, {}, {})
    for times, before in ((found.empty, ()), (found.later, (OTHER,))):
        for _ in range(_ANSWERS):
            for backend in BACKENDS:
                with forced(backend), tempfile.TemporaryDirectory() as cache:
                    seconds = _process(robot, base, query, "cpu", cache, before)[0]
                    times[backend] = min(seconds, times.get(backend, seconds))
                    if before == ():
                        cached = _process(robot, base, query, "cpu", cache)[0]
                        found.cached[backend] = min(cached, found.cached.get(backend, cached))
    return found


def _run(robot: str, model: Model, query: str, dtype: str, seconds: float) -> Run | None:
    """None where the query is not one program of a kind that both make."""
    question = QUESTIONS[query]
    link = len(model.link_names) - 1 if question.of_link else None
    kernels: dict[str, Kernel] = {}
    made: dict[str, float] = {}
    for backend in BACKENDS:
        with forced(backend):
            engine = CpuEngine(model, np.dtype(dtype), threads=1)
            try:
                request = engine.request(question.plain_task(model), link=link)
                route = engine.compiler.route(request)
                if not isinstance(route, Whole) or (backend == "x86" and route.backend is not X86):
                    return None
                kernels[backend] = engine.compiler.kernel(request, single=False)
                made[backend] = _made(route)
            except RobodynError:
                return None
    calls = {backend: _call(model, kernel, dtype) for backend, kernel in kernels.items()}
    best = dict.fromkeys(BACKENDS, float("inf"))
    for _ in range(_TURNS):
        for backend, (call, _) in calls.items():
            stop, count = time.perf_counter() + seconds / _TURNS, 0
            while count < 3 or time.perf_counter() < stop:
                start = time.perf_counter()
                call()
                best[backend] = min(best[backend], time.perf_counter() - start)
                count += 1
    one, other = (results for _, results in calls.values())
    same = all(np.array_equal(a, b, equal_nan=True) for a, b in zip(one, other, strict=True))
    program = kernels["x86"].program
    operations = 0 if program is None else program.operations
    return Run(robot, query, dtype, operations, {k: 1e9 * v / BATCH for k, v in best.items()}, made, same)


def _made(route: Whole) -> float:
    """Seconds to make the code of a program, which is traced already, without a cache."""
    request, nowhere = route.request, replace(route.linked, cache=ObjectCache(None))
    program = request.trace()
    start = time.perf_counter()
    route.backend.made(nowhere, request, program)
    return time.perf_counter() - start


def _call(model: Model, kernel: Kernel, dtype: str) -> tuple[Callable[[], None], list[np.ndarray[Any, Any]]]:
    """A call of the kernel for a batch, and where its results are."""
    rng = np.random.default_rng(0)
    task = kernel.request.algorithm
    shapes = input_shapes(model, task, ())
    given = [
        model.random_configuration(rng, (BATCH,)) if name == "q" else rng.normal(size=(BATCH, *shapes[name]))
        for name in kernel.inputs
    ]
    arrays = [_aligned(array.reshape(BATCH, -1), dtype) for array in given]
    results = [_aligned(np.full((BATCH, *output_shape(model, each)), np.nan), dtype) for each in task.outputs.values()]
    words = [word for a in (*arrays, *results) for word in (a.ctypes.data, a.nbytes // BATCH)]
    table = (ctypes.c_int64 * (len(words) + len(kernel.constants)))(*words, *kernel.constants)
    if kernel.batch:
        table[len(table) - 1] = BATCH
    scratch, owner = workspace(kernel.workspace_bytes)
    function, address = kernel.function, ctypes.addressof(table)

    def call(_keep: object = (table, owner, arrays)) -> None:
        function(address, 0, BATCH, scratch)

    return call, results


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
            f"{each.ns['llvm'] / each.ns['x86']:.2f}",
            *(show(each.made_s[b]) for b in BACKENDS),
            "" if each.same else "WRONG: not the same bits",
        )
        for each in found.runs
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
        "faster ",
        "made, x86 ",
        "made, llvm ",
    )
    return [
        Cells("first answers", ("robot", "query", *states), first),
        Cells("run time of a state, one thread", (*headings, "remark"), runs),
    ]


def notes(found: Measured) -> list[str]:
    """What the tables say."""
    if not found.runs:
        return []
    over = sorted(((each.ns["x86"] / each.ns["llvm"], each) for each in found.runs), key=lambda pair: pair[0])
    ratios = np.array([ratio for ratio, _ in over])
    slower = [f"{each.robot} {each.query} {each.dtype} ({ratio:.2f})" for ratio, each in over[::-1] if ratio > 1.03]
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
        f"More than 3 % slower: {len(slower)} programs; the slowest: {', '.join(slower[:5]) or 'none'}.",
    ]


def page(found: Measured, about: dict[str, str]) -> str:
    """The page of docs/benchmarks."""
    lines = [
        "# Code generators of the CPU engine",
        "",
        "Printed by `python -m tests.bench backend --write`: machine code of our own for straight-line programs (x86),",
        "and LLVM's of the same programs, in one run, in turns. See [machine code](../machine_code.md).",
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
    return {**about, "first": [asdict(each) for each in found.first], "runs": [asdict(each) for each in found.runs]}
