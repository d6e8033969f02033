"""Kernels of folds: a thread goes along a stretch of a path in one state of the batch, body by body.

The step of each kind of joint is printed from the text that NumPy runs, traced. The carry is in registers, as far as
they last. Arrays of bodies and of degrees of freedom are (size, n, batch), with any strides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from robodyn.codegen.c_body import Body
from robodyn.codegen.ordering import in_short_order
from robodyn.engines.gpu.dialect import FUSED, CudaDialect
from robodyn.engines.gpu.source import SCALARS, WARP, KernelSource
from robodyn.engines.scan.cuda.scans import head_of, strides_of
from robodyn.engines.scan.elementwise import traced
from robodyn.engines.scan.folds import Fold
from robodyn.joints import KINDS
from robodyn.tracing.program import Port, Program

_INDICES = ("sources", "bodies", "starts", "lengths", "kinds", "dofs")
"""Which of `before` stretches have at first; bodies along paths; where stretches start among them, and their lengths;
of bodies the joint's kind, and its first degree of freedom."""
_HUNG = ("hung_first", "hung")
"""Of bodies where they start in the list of paths that hang on them, and that list."""
_BEGIN = np.zeros(1, np.int64)

_TEXT = """\
{fused}
typedef {scalar} T;
typedef long long I;
enum {{ SIZE = {size} }};

{head}
{{
    for (I k = {threads}LL * blockIdx.x + threadIdx.x; k < rows; k += {threads}LL * gridDim.x) {{
        const I stretch = k / batch, row = k % batch, length = lengths[stretch];
        const I* const path = bodies + starts[stretch];
        const I asked = sources[stretch], source = asked < 0 ? asked + many : asked;
        T carry[SIZE], next[SIZE];
#pragma unroll
        for (int s = 0; s < SIZE; s++)
            carry[s] = before[s * before_scalar + source * before_element + row * before_row];
        /* Which body comes next is asked for early: all else waits for it. */
        I body = length > 0 ? path[{first}] : 0, dof = {dof};
        for (I step = 0; step < length; step++) {{
            const I next_body = step + 1 < length ? path[{following}] : body, next_dof = {next_dof};
{cases}
            body = next_body;
            dof = next_dof;
#pragma unroll
            for (int s = 0; s < SIZE; s++)
                carry[s] = next[s];
        }}
#pragma unroll
        for (int s = 0; s < SIZE; s++)
            after[s * after_scalar + stretch * after_element + row * after_row] = carry[s];
    }}
}}
"""


def fold_kernel(fold: Fold, codes: tuple[int, ...], dtype: np.dtype[np.floating]) -> KernelSource:
    """The kernel of a fold along stretches whose joints have these kinds.

        fold(before, body0, ..., dof0, ..., hanging, after, found, found_dofs, sources, bodies, starts, lengths, kinds,
             dofs, hung_first, hung, workspace, rows, batch, many, strides of before, body0, ..., found_dofs)

    `rows` is stretches x batch, `many` the number of elements in `before`. What a fold does not ask for or find is not
    among these.
    """
    scalar = SCALARS[dtype.name]
    given = ["before", *(f"body{k}" for k in range(len(fold.bodies))), *(f"dof{k}" for k in range(len(fold.dofs)))]
    found = ["after", *(["found"] if fold.found.size(0) else []), *(["found_dofs"] if fold.found_dofs.size(0) else [])]
    indices: tuple[str, ...] = _INDICES
    if fold.hung is not None:
        given, indices = [*given, "hanging"], (*_INDICES, *_HUNG)
    numbers = ("batch", "many", *(number for name in (*given, *found) for number in strides_of(name)))
    parameters = [
        *(f"const {scalar}* __restrict__ {name}" for name in given),
        *(f"{scalar}* __restrict__ {name}" for name in found),
        *(f"const long long* __restrict__ {name}" for name in indices),
        f"{scalar}* workspace",
        *(f"long long {number}" for number in ("rows", *numbers)),
    ]
    single = all(KINDS[code].nv == 1 for code in codes)
    text = _TEXT.format(
        fused=FUSED.rstrip(),
        scalar=scalar,
        size=fold.size,
        head="\n".join(head_of("fold", parameters, WARP)),
        threads=WARP,
        first="length - 1" if fold.inward else "0",
        following="length - 2 - step" if fold.inward else "step + 1",
        dof="body" if single else "dofs[body]",
        next_dof="next_body" if single else "dofs[next_body]",
        cases="\n".join(_cases(fold, codes, scalar)),
    )
    constants = (_BEGIN,) * len(indices)
    return KernelSource("fold", text, dtype, tuple(given), tuple(found), constants, block_threads=WARP, numbers=numbers)


def _cases(fold: Fold, codes: tuple[int, ...], scalar: str) -> Iterator[str]:
    """The step, by kinds of joints where there are several."""
    indent = " " * 12
    if len(codes) == 1:
        yield f"{indent}{{"
        yield from (f"{indent}    {line}" for line in _step(fold, codes[0], scalar))
        yield f"{indent}}}"
        return
    yield f"{indent}switch (kinds[body]) {{"
    for code in codes:
        yield f"{indent}case {code}: {{"
        yield from (f"{indent}    {line}" for line in _step(fold, code, scalar))
        yield f"{indent}    break;"
        yield f"{indent}}}"
    yield f"{indent}default:"
    yield f"{indent}    return;"
    yield f"{indent}}}"


def _step(fold: Fold, code: int, scalar: str) -> Iterator[str]:
    """Statements for a kind of joint."""
    program = traced(fold.of_kind(code))
    names = _Names(fold, program)
    body = Body(in_short_order(program), CudaDialect(scalar), names.place, len(program.nodes) + 1)
    (statements,) = body.parts()
    yield from names.loads(program, scalar)
    yield from statements


class _Names:
    """Where scalars of a step's inputs in0, in1, ... and of its output are."""

    def __init__(self, fold: Fold, program: Program) -> None:
        self.fold = fold
        self.given: Mapping[str, str] = {
            f"in{1 + k}": (f"body{k}" if k < len(fold.bodies) else f"dof{k - len(fold.bodies)}")
            for k in range(len(fold.bodies) + len(fold.dofs))
        }

    def place(self, port: Port, k: int) -> str:
        """An expression: inputs but the carry have been read into variables."""
        if port.name == "in0":
            return f"carry[{k}]"
        if port.name != "out":
            return f"{self.given[port.name]}_{k}"
        carry = self.fold.size
        middle = carry + self.fold.found.size(0)
        if k < carry:
            return f"next[{k}]"
        if k < middle:
            return _entry("found", k - carry, "body")
        dof, scalar = divmod(k - middle, self.fold.found_dofs.size(0))
        return _entry("found_dofs", scalar, f"(dof + {dof})")

    def loads(self, program: Program, scalar: str) -> Iterator[str]:
        """Statements that read what the step needs, and add what hangs on the body."""
        hung = f"body{self.fold.hung}"
        for port in program.inputs:
            if port.name == "in0":
                continue
            name = self.given[port.name]
            for k, node in enumerate(port.scalars):
                if node == -1:
                    continue
                if name.startswith("dof"):
                    dof, entry = divmod(k, self.fold.dofs[int(name[3:])].size(0))
                    where = _entry(name, entry, f"(dof + {dof})")
                else:
                    where = _entry(name, k, "body")
                yield f"{'' if name == hung else 'const '}{scalar} {name}_{k} = {where};"
            if name == hung:
                yield "for (I h = hung_first[body]; h < hung_first[body + 1]; h++) {"
                for k, node in enumerate(port.scalars):
                    if node != -1:
                        yield f"    {name}_{k} += {_entry('hanging', k, 'hung[h]')};"
                yield "}"


def _entry(name: str, scalar: int, element: str) -> str:
    of_scalar, of_element, of_row = strides_of(name)
    return f"{name}[{scalar} * {of_scalar} + {element} * {of_element} + row * {of_row}]"
