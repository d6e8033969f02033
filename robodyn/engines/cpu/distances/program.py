"""Kernels of queries about distances: one for the frames of links, one with loops over pairs, and one that calls both
for one vector of states after another."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from robodyn.algorithms.distances.solids import FRAME, TWIST, link_frames
from robodyn.compile.llvm.streaming import FLUSHED
from robodyn.compile.tracing.unrolled import output_shape
from robodyn.engines.cpu.backends import Loaded
from robodyn.engines.cpu.chains.build import Chained
from robodyn.engines.cpu.distances.code import module_text
from robodyn.engines.cpu.distances.layout import COUNTS, MOST_NUMBERS, PARTS, SPHERE, DistanceModule
from robodyn.engines.cpu.distances.tables import tables_of
from robodyn.engines.cpu.kernels import Kernel, KernelCompiler
from robodyn.engines.cpu.request import Request, input_names
from robodyn.engines.cpu.route import SingleProgram
from robodyn.internals.arguments import Array
from robodyn.internals.records import dataclass
from robodyn.internals.tuning import BLOCK_ENTRIES, OPERATION_NS

_FRAMES = "frames"


@dataclass(frozen=True)
class DistanceProgram:
    """The module of loops for one robot, and the arrays that it reads."""

    module: DistanceModule
    arrays: tuple[Array, ...]
    workspace_bytes: int
    formulas: tuple[Loaded, ...] = ()
    """Functions that the loops call."""

    @property
    def operations(self) -> int:
        """Floating-point operations for one state where no pair is skipped, roughly."""
        return self.module.tables.operations


def _program(request: Request) -> DistanceProgram:
    task, model = request.algorithm, request.model
    asked = request.distance_query
    assert asked is not None
    tables = tables_of(model, asked)
    outputs = {name: output_shape(model, each) for name, each in task.outputs.items()}
    module = DistanceModule(asked, tables, input_names(request), outputs, request.dtype, request.target)
    entries = {"distances": 1, "witness_points": 6}.get(asked.name, model.nv)
    pairs = -(-BLOCK_ENTRIES // max(1, entries))
    counts = dict(zip(COUNTS, (model.nq, model.nv, entries, pairs), strict=True))
    n_dofs = model.nv_tree if asked.gradient else 0
    vectors = {
        "places": tables.vectors,
        "spheres": SPHERE * len(tables.arrays["clusters"]),
        "q": model.nq if tables.blind else 0,
        "twists": TWIST * n_dofs,
        "block": entries * (1 if asked.is_least else pairs),
        "obstacles": MOST_NUMBERS * pairs if asked.kinds and not asked.is_least else 0,
    }
    offset = 0
    sizes = [counts[name] if name in counts else len(tables.arrays[name]) for name in (*tables.arrays, *COUNTS)]
    for name in PARTS:
        sizes.append(offset)
        offset += vectors[name] * module.kind.bytes
    arrays = [np.array(sizes, np.int64)]
    for array in tables.arrays.values():
        arrays.append(np.ascontiguousarray(array, request.dtype if array.dtype.kind == "f" else array.dtype))
    return DistanceProgram(module, tuple(arrays), offset)


def distance_kernel(maker: KernelCompiler, request: Request) -> Kernel:
    """The kernel of a query about distances in loops."""
    program, model = _program(request), request.model
    tables, task = program.module.tables, request.algorithm
    asked = request.distance_query
    assert asked is not None
    wanted = np.zeros((len(model.link_names), FRAME), bool)
    wanted[list(tables.links)] = True
    work = Chained(maker, request, {_FRAMES: wanted.size})
    algorithm = link_frames(asked.at_origin(model))
    part = replace(request, algorithm=algorithm, vectors=frozenset((_FRAMES,)), unread=_unread(wanted))
    route = maker.route(part)
    text, label = module_text(program.module), f"robodyn distances {request.dtype} {request.target.level}"
    texts = [text, *(each.text() for each in program.module.shared.values())]
    code, *shared = [maker.sharing(each, label, request.target) for each in texts]
    frames = maker.whole(route) if isinstance(route, SingleProgram) else maker.rolled(part, work.kind.width)
    formulas = tuple(each() for each in shared)
    own = [array.ctypes.data for array in program.arrays] + [each.address("kernel") for each in formulas]
    addresses = np.array(own, np.int64)
    loops = Kernel(
        request=request,
        mode="rolled",
        code=code(),
        inputs=input_names(request),
        constants=(addresses.ctypes.data, 0),
        workspace_bytes=program.workspace_bytes,
        row_ns=program.operations * OPERATION_NS / work.kind.width,
        module=lambda: text,
        keep=replace(program, arrays=(*program.arrays, addresses), formulas=formulas),
    )
    inputs, outputs = input_names(request), [FLUSHED + name for name in task.outputs]
    work.take(frames, (*frames.inputs, _FRAMES))
    work.take(loops, (_FRAMES, *inputs, *outputs))
    return work.calling("rolled", [*inputs, *outputs], {_FRAMES: wanted.size})


def _unread(wanted: Array) -> tuple[tuple[str, bytes], ...]:
    return () if wanted.all() else ((_FRAMES, (~wanted).ravel().tobytes()),)
