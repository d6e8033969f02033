"""Kernels of folds: a thread runs along a stretch of a path, body by body, for one state of the batch.

The step of each joint kind is traced from the function that NumPy runs. The carry is in registers, as far as they
suffice. Meanwhile the data of the next bodies are copied to shared memory asynchronously. Arrays of bodies and of
degrees of freedom are (size, n, batch), with any strides.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from robodyn.compile.c.body import Body
from robodyn.compile.ordering import in_short_order
from robodyn.compile.tracing.program import Port, Program
from robodyn.core.joints import KINDS
from robodyn.engines.gpu.dialect import FUSED, CudaDialect
from robodyn.engines.gpu.source import SCALARS, WARP, KernelSource
from robodyn.engines.scan.cuda.steps import BEGIN
from robodyn.engines.scan.elementwise import traced
from robodyn.engines.scan.folds import Fold

_INDICES = ("sources", "bodies", "starts", "lengths", "kinds", "dofs")
"""Index arrays: the index in `before` of each stretch's initial carry; the bodies along paths; the starts of stretches
among these, and their lengths; each body's joint kind and first degree of freedom."""
_HUNG = ("hung_first", "hung")
"""Index arrays of the paths that hang on bodies, in compressed form: starts, and paths."""

STAGES = 4
"""Bodies whose data are in shared memory or on their way, including the current body. The latency of memory is longer
than a step."""
_STAGE_BYTES = 28 << 10
"""Bytes of shared memory for the stages of a warp. A multiprocessor has room for eight such warps."""
TOGETHER_THREADS, TOGETHER_BYTES = 128, 96 << 10
"""Threads of the single block that processes several levels, and the bytes of shared memory that it requests on devices
with so much. A single stage always fits in the shared memory of every GPU."""
_HANDED = ("before", "hanging")
"""Inputs that may be results of other levels."""

_TEXT = """\
{fused}
typedef {scalar} T;
typedef long long I;
enum {{ SIZE = {size}, STAGES = {stages}, NEAR = {near}, LANES = {threads} }};

/* Copies on their way to shared memory; one more group of them; wait for all but the last groups. */
static __device__ __forceinline__ void ask(T* to, const T* from)
{{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    const unsigned at = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(at), "l"(from), "n"(sizeof(T)) : "memory");
#else
    *to = *from;
#endif
}}
static __device__ __forceinline__ void asked()
{{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}}
static __device__ __forceinline__ void arrived()
{{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 1) : "memory");
#endif
}}

{head}
{{
    extern __shared__ T pool[];
{turns}
        const I stretch = k / batch, row = k % batch, length = lengths[stretch];
        const I* const path = bodies + starts[stretch];
        const I asked_for = sources[stretch], source = asked_for < 0 ? asked_for + many : asked_for;
        T carry[SIZE], next[SIZE];
#pragma unroll
        for (int s = 0; s < SIZE; s++)
            carry[s] = before[s * before_scalar + source * before_element + row * before_row];
        /* A lane reads what it has asked for itself: there is nobody to wait for. */
        auto fetch = [&](I step, I body) {{
            T* const to = pool + (step % STAGES) * (NEAR * LANES) + threadIdx.x;
            const I dof = {dof};
{fetches}
        }};
        for (I step = 0; step < STAGES - 1; step++) {{
            if (step < length)
                fetch(step, path[{place}]);
            asked();
        }}
        /* Indices are asked for a step early. */
        I step = STAGES - 1, ahead = step < length ? path[{place}] : 0, body = 0;
        step = 0;
        if (length > 0)
            body = path[{place}];
        for (; step < length; step++) {{
            if (step + STAGES - 1 < length)
                fetch(step + STAGES - 1, ahead);
            asked();
            const I dof = {dof}, last = length - 1;
            const I next_body = step + 1 < length ? path[{following}] : body;
            ahead = step + STAGES < length ? path[{far}] : 0;
            arrived();
            const T* const near = pool + (step % STAGES) * (NEAR * LANES) + threadIdx.x;
{cases}
            body = next_body;
#pragma unroll
            for (int s = 0; s < SIZE; s++)
                carry[s] = next[s];
        }}
#pragma unroll
        for (int s = 0; s < SIZE; s++)
            after[s * after_scalar + stretch * after_element + row * after_row] = carry[s];
    }}
{turned}}}
"""

_ALL = """\
    for (I k = LANES * (I)blockIdx.x + threadIdx.x; k < rows; k += LANES * (I)gridDim.x) {"""
_BY_TURNS = """\
    for (I turn = 0; turn < many_turns; turn++) {{
    const I level = {level}, end = turns[level + 1] * batch;
    for (I k = turns[level] * batch + threadIdx.x; k < end; k += LANES) {{"""
_TURNED = """\
    __syncthreads();
    }
"""


def fold_kernel(fold: Fold, codes: tuple[int, ...], dtype: np.dtype[np.floating], together: int = 0) -> KernelSource:
    """The kernel of a fold along stretches with joints of the given kinds.

        fold(before, body0, ..., dof0, ..., hanging, after, found, found_dofs, sources, bodies, starts, lengths, kinds,
             dofs, hung_first, hung, workspace, rows, batch, many, strides of before, body0, ..., found_dofs)

    `rows` is stretches x batch; `many` is the number of elements in `before`. Arrays that the fold does not use are
    omitted.

    `together`: bytes of shared memory, or 0. If it is not 0, one block processes the stretches of several levels, level
    after level. Then there is one more index array `turns`, with the first stretch of each level and the number of
    stretches, and after `many` the number `many_turns` of levels. Inputs may then be results of other levels.
    """
    scalar = SCALARS[dtype.name]
    read = ["before", *(f"body{k}" for k in range(len(fold.bodies))), *(f"dof{k}" for k in range(len(fold.dofs)))]
    made = ["after", *(["found"] if fold.found.size(0) else []), *(["found_dofs"] if fold.found_dofs.size(0) else [])]
    indices: tuple[str, ...] = _INDICES
    if fold.hung is not None:
        read, indices = [*read, "hanging"], (*_INDICES, *_HUNG)
    numbers: tuple[str, ...] = ("batch", "many")
    threads, shared = WARP, _STAGE_BYTES
    if together:
        indices, numbers = (*indices, "turns"), (*numbers, "many_turns")
        threads, shared = TOGETHER_THREADS, together
    numbers = (*numbers, *(number for name in (*read, *made) for number in _strides_of(name)))
    # Levels read the results of other levels.
    overlapping = (*_HANDED, *made) if together else ()
    parameters = _parameters_of(scalar, read, made, indices, numbers, overlapping)
    programs = {code: traced(fold.of_kind(code)) for code in codes}
    near = _Near(fold, programs)
    one = near.size * threads * dtype.itemsize
    stages = max(1 if together else 2, min(STAGES, shared // max(1, one)))
    inward = fold.inward
    by_turns = _BY_TURNS.format(level="many_turns - 1 - turn" if inward else "turn")
    text = _TEXT.format(
        fused=FUSED.rstrip(),
        scalar=scalar,
        size=fold.size,
        stages=stages,
        near=near.size,
        head="\n".join(_head_of("fold", parameters, threads)),
        threads=threads,
        turns=by_turns if together else _ALL,
        turned=_TURNED if together else "",
        place="length - 1 - step" if inward else "step",
        following="last - 1 - step" if inward else "step + 1",
        far="last - STAGES - step" if inward else "step + STAGES",
        dof="body" if near.single else "dofs[body]",
        fetches="\n".join(f"            {line}" for line in near.fetches()),
        cases="\n".join(_cases(programs, near, scalar)),
    )
    return KernelSource(
        "fold",
        text,
        dtype,
        tuple(read),
        tuple(made),
        (BEGIN,) * len(indices),
        block_threads=threads,
        shared_bytes=stages * one,
        numbers=numbers,
    )


class _Near:
    """The data of a body in shared memory, and the locations of a step's scalars.

    Shared memory holds the scalars of bodies that the step of any joint kind reads, and those of degrees of freedom if
    all joints have one degree of freedom.
    """

    def __init__(self, fold: Fold, programs: Mapping[int, Program]) -> None:
        self.fold, self.single = fold, all(KINDS[code].nv == 1 for code in programs)
        self._names = {
            f"in{1 + k}": (f"body{k}" if k < len(fold.bodies) else f"dof{k - len(fold.bodies)}")
            for k in range(len(fold.bodies) + len(fold.dofs))
        }
        self._at: dict[tuple[str, int], int] = {}
        for program in programs.values():
            for name, k in self._read(program):
                if self.single or name.startswith("body"):
                    self._at.setdefault((name, k), len(self._at))

    @property
    def size(self) -> int:
        """Scalars of a body in shared memory."""
        return len(self._at)

    def _read(self, program: Program) -> Iterator[tuple[str, int]]:
        """The scalars that a step reads, except those of the carry, as array names and indices."""
        for port in program.inputs:
            if port.name != "in0":
                yield from ((self._names[port.name], k) for k, node in enumerate(port.scalars) if node != -1)

    def _source(self, name: str, k: int) -> str:
        """The expression of a scalar in global memory."""
        if name.startswith("body"):
            return _entry(name, k, "body")
        dof, entry = divmod(k, self.fold.dofs[int(name[3:])].size(0))
        return _entry(name, entry, f"(dof + {dof})")

    def fetches(self) -> Iterator[str]:
        """The statements that start copies of a body's data to shared memory."""
        for (name, k), at in self._at.items():
            yield f"ask(to + {at} * LANES, &{self._source(name, k)});"

    def loads(self, program: Program, scalar: str) -> Iterator[str]:
        """The statements that load a step's inputs and add the contributions of paths that hang on the body."""
        hung = None if self.fold.hung is None else f"body{self.fold.hung}"
        read = list(self._read(program))
        for name, k in read:
            where = f"near[{self._at[name, k]} * LANES]" if (name, k) in self._at else self._source(name, k)
            yield f"{'' if name == hung else 'const '}{scalar} {name}_{k} = {where};"
        if hung is not None:
            yield "for (I h = hung_first[body]; h < hung_first[body + 1]; h++) {"
            yield from (f"    {name}_{k} += {_entry('hanging', k, 'hung[h]')};" for name, k in read if name == hung)
            yield "}"

    def place(self, port: Port, k: int) -> str:
        """The expression of a scalar of a step. Inputs other than the carry are in variables (`loads`)."""
        if port.name == "in0":
            return f"carry[{k}]"
        if port.name != "out":
            return f"{self._names[port.name]}_{k}"
        carry = self.fold.size
        middle = carry + self.fold.found.size(0)
        if k < carry:
            return f"next[{k}]"
        if k < middle:
            return _entry("found", k - carry, "body")
        dof, entry = divmod(k - middle, self.fold.found_dofs.size(0))
        return _entry("found_dofs", entry, f"(dof + {dof})")


def _cases(programs: Mapping[int, Program], near: _Near, scalar: str) -> Iterator[str]:
    """The step, as a switch over joint kinds if there are several."""
    indent = " " * 12
    if len(programs) == 1:
        (program,) = programs.values()
        yield f"{indent}{{"
        yield from (f"{indent}    {line}" for line in _step(program, near, scalar))
        yield f"{indent}}}"
        return
    yield f"{indent}switch (kinds[body]) {{"
    for code, program in programs.items():
        yield f"{indent}case {code}: {{"
        yield from (f"{indent}    {line}" for line in _step(program, near, scalar))
        yield f"{indent}    break;"
        yield f"{indent}}}"
    yield f"{indent}default:"
    yield f"{indent}    return;"
    yield f"{indent}}}"


def _step(program: Program, near: _Near, scalar: str) -> Iterator[str]:
    """The statements of the step for a joint kind."""
    body = Body(in_short_order(program), CudaDialect(scalar), near.place, len(program.nodes) + 1)
    (statements,) = body.parts()
    yield from near.loads(program, scalar)
    yield from statements


def _strides_of(name: str) -> tuple[str, str, str]:
    """The names of an array's strides between scalars, elements and rows."""
    return f"{name}_scalar", f"{name}_element", f"{name}_row"


def _parameters_of(
    scalar: str,
    given: Sequence[str],
    found: Sequence[str],
    indices: Sequence[str],
    numbers: Sequence[str],
    overlapping: Collection[str] = (),
) -> list[str]:
    """A kernel's parameters in the order of `KernelSource`: inputs, outputs, index arrays, the workspace, `rows` and
    other numbers. `overlapping`: arrays whose memory may overlap that of others."""

    def alone(name: str) -> str:
        return name if name in overlapping else f"__restrict__ {name}"

    return [
        *(f"const {scalar}* {alone(name)}" for name in given),
        *(f"{scalar}* {alone(name)}" for name in found),
        *(f"const long long* __restrict__ {name}" for name in indices),
        f"{scalar}* workspace",
        *(f"long long {number}" for number in ("rows", *numbers)),
    ]


def _head_of(name: str, parameters: Sequence[str], threads: int) -> list[str]:
    """The first lines of a kernel."""
    joined = ",\n    ".join(parameters)
    return [f'extern "C" __global__ void __launch_bounds__({threads}) {name}(', f"    {joined})"]


def _entry(name: str, scalar: int, element: str) -> str:
    of_scalar, of_element, of_row = _strides_of(name)
    return f"{name}[{scalar} * {of_scalar} + {element} * {of_element} + row * {of_row}]"
