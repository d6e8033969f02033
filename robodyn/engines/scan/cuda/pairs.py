"""Kernels that make the entries of matrices over pairs of degrees of freedom (`robodyn.engines.scan.trees.pairs`), each
where it belongs, from the text that NumPy runs.

`pair_matrix` goes over whole matrices: a thread has a column of one of them and some of its rows, so that what is
written lies side by side, and which pairs there are is seen from places in the depth-first walk. `pair_list` goes over
lists of pairs, for rows that are kept by themselves and for matrices that are mostly zero. `couple` adds up what
belongs to joints that mimic others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from robodyn.arguments import Array
from robodyn.codegen.c_body import Body
from robodyn.codegen.ordering import in_short_order
from robodyn.engines.gpu.device import LoadedKernel
from robodyn.engines.gpu.dialect import FUSED, CudaDialect
from robodyn.engines.gpu.source import SCALARS, KernelSource
from robodyn.engines.scan.cuda.steps import BEGIN, head_of, parameters_of, strides_in, strides_of
from robodyn.engines.scan.elementwise import traced
from robodyn.engines.scan.states import Layout
from robodyn.engines.scan.trees.pairs import Pairs, entry_of
from robodyn.tracing.program import Port

if TYPE_CHECKING:
    from robodyn.engines.scan.cuda.device import ScanDevice

BLOCK_THREADS = 128
ROWS = 16
"""Of a column that a thread goes through: it reads what it needs of the column once for all of them."""
LISTED, UPPER, LOWER = 0, 1, 2
"""Where `pair_list` puts entries: in the order of the list, and at (a, k) or (k, a) or both of matrices."""

_TEXT = """\
{fused}
typedef {scalar} T;
typedef long long I;
enum {{ SIZE = {size}, ROWS = {rows} }};

/* m . f of a motion about one point and a force about another. */
static __device__ __forceinline__ T product(
    const T (&motion)[SIZE], const T (&force)[SIZE], const T (&at)[3], const T (&to)[3])
{{
    T found;
{statements}
    return found;
}}

{head}
{{
{body}\
}}
"""

_READS = """\
    auto moving = [&](T (&to)[SIZE], I place, I row) {
#pragma unroll
        for (int s = 0; s < SIZE; s++)
            to[s] = motions[s * motions_scalar + place * motions_element + row * motions_row];
    };
    auto pushing = [&](T (&to)[SIZE], I place, I row) {
#pragma unroll
        for (int s = 0; s < SIZE; s++)
            to[s] = forces[s * forces_scalar + place * forces_element + row * forces_row];
    };
    auto point = [&](T (&to)[3], I place, I row) {
#pragma unroll
        for (int s = 0; s < 3; s++)
            to[s] = points[s * points_scalar + place * points_element + row * points_row];
    };
"""

_MATRIX = (
    _READS
    + f"""\
    const I n = rows, strips = (n + ROWS - 1) / ROWS, columns = batch * n;
    const I across = (columns + {BLOCK_THREADS - 1}) / {BLOCK_THREADS};
    for (I work = blockIdx.x; work < strips * across; work += gridDim.x) {{
        const I column = work % across * {BLOCK_THREADS} + threadIdx.x;
        if (column >= columns)
            continue;
        const I row = column / n, k = column % n, begin = rank[k], end = ends[k], place = placed ? places[k] : k;
        T m[SIZE], f[SIZE], p[3];
        moving(m, place, row);
        pushing(f, place, row);
        point(p, place, row);
        for (I i = work / across * ROWS; i < work / across * ROWS + ROWS && i < n; i++) {{
            const I here = rank[i], other = placed ? places[i] : i;
            T entry = 0, there[SIZE], at[3];
            if (upper && here <= begin && begin < ends[i]) {{
                moving(there, other, row);
                point(at, other, row);
                entry = product(there, f, at, p);
            }} else if (lower && begin <= here && here < end) {{
                pushing(there, other, row);
                point(at, other, row);
                entry = product(m, there, p, at);
            }} else if (!clear) {{
                continue;
            }}
            if (added && i == k)
                entry += diagonal[k];
            out[row * out_scalar + i * out_element + k * out_row] = entry;
        }}
    }}
"""
)

_LIST = (
    _READS
    + f"""\
    for (I work = (I)blockIdx.x * {BLOCK_THREADS} + threadIdx.x; work < rows * batch;
         work += (I)gridDim.x * {BLOCK_THREADS}) {{
        const I row = work % batch, which = chosen ? source[work / batch] : work / batch;
        const I a = above[which], k = below[which];
        const I upper = placed ? places[a] : a, lower = placed ? places[k] : k;
        T m[SIZE], f[SIZE], p[3], q[3];
        moving(m, upper, row);
        pushing(f, lower, row);
        point(p, upper, row);
        point(q, lower, row);
        T entry = product(m, f, p, q);
        if (added && a == k)
            entry += diagonal[k];
        if (how == {LISTED})
            out[work] = entry;
        if (how & {UPPER})
            out[row * out_scalar + a * out_element + k * out_row] = entry;
        if (how & {LOWER})
            out[row * out_scalar + k * out_element + a * out_row] = entry;
    }}
"""
)

_COUPLE = """\
typedef {scalar} T;
typedef long long I;

{head}
{{
    const I n = rows;
    for (I work = (I)blockIdx.x * {threads} + threadIdx.x; work < batch * n * n; work += (I)gridDim.x * {threads}) {{
        const I matrix = work / (n * n), i = work / n % n, j = work % n;
        T entry = 0;
        for (I a = first[i]; a < first[i + 1]; a++) {{
            const T* const whole = full + (matrix * many + order[a]) * many;
            T row = 0;
            for (I k = first[j]; k < first[j + 1]; k++)
                row += whole[order[k]] * multiplier[order[k]];
            entry += row * multiplier[order[a]];
        }}
        out[matrix * out_scalar + i * out_element + j * out_row] = entry;
    }}
}}
"""

_KERNELS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "pair_matrix": (_MATRIX, ("rank", "ends", "places"), ("batch", "upper", "lower", "clear", "placed", "added")),
    "pair_list": (_LIST, ("above", "below", "source", "places"), ("batch", "how", "chosen", "placed", "added")),
}
"""Body, indices and numbers of each kernel."""
_GIVEN = ("motions", "forces", "points", "diagonal")


def pair_kernel(name: str, terms: int, dtype: np.dtype[Any]) -> KernelSource:
    """A kernel for entries that are sums of some products.

        pair_matrix(motions, forces, points, diagonal, out, rank, ends, places, workspace, rows, batch, upper, lower,
                    clear, placed, added, strides of motions, forces, points and out)
        pair_list(motions, forces, points, diagonal, out, above, below, source, places, workspace, rows, batch, how,
                  chosen, placed, added, strides of motions, forces, points and out)

    Arrays as of `Pairs`: `places` are read where `placed` is not zero, and `diagonal` (n,) is added where `added` is
    not. Of `pair_matrix`, `rows` are those of each of `batch` matrices, `rank` and `ends` (n,) as `Branches.walk` says,
    and entries that are of no pair are set to zero where `clear` is not zero. Of `pair_list`, `rows` are pairs,
    ancestors `above` and descendants `below`, or where `chosen` is not zero those of them that `source` names, and
    `how` says where entries go.

    Args:
        name: one of the two.
        terms: how many products.
        dtype: of arrays.
    """
    scalar, (body, indices, numbers) = SCALARS[dtype.name], _KERNELS[name]
    numbers = (*numbers, *(number for each in (*_GIVEN[:3], "out") for number in strides_of(each)))
    parameters = parameters_of(scalar, _GIVEN, ("out",), indices, numbers)
    program = traced(entry_of(terms))
    (statements,) = Body(in_short_order(program), CudaDialect(scalar), _scalar, len(program.nodes) + 1).parts()
    text = _TEXT.format(
        fused=FUSED.rstrip(),
        scalar=scalar,
        size=6 * terms,
        rows=ROWS,
        statements="\n".join(f"    {line}" for line in statements),
        head="\n".join(head_of(name, parameters, BLOCK_THREADS)),
        body=body,
    )
    empty = (BEGIN,) * len(indices)
    return KernelSource(name, text, dtype, _GIVEN, ("out",), empty, block_threads=BLOCK_THREADS, numbers=numbers)


def couple_kernel(dtype: np.dtype[Any]) -> KernelSource:
    """The kernel of G' (.) G, G having an entry in each row: a thread for each entry.

        couple(full, multiplier, out, first, order, workspace, rows, batch, many, strides of out)

    `full` (batch, many, many): matrices over all joints; `multiplier` (many,); `first` (rows + 1,), `order` (many,):
    which of these make an entry.
    """
    scalar, numbers = SCALARS[dtype.name], ("batch", "many", *strides_of("out"))
    given = ("full", "multiplier")
    parameters = parameters_of(scalar, given, ("out",), ("first", "order"), numbers)
    head = "\n".join(head_of("couple", parameters, BLOCK_THREADS))
    text = _COUPLE.format(scalar=scalar, head=head, threads=BLOCK_THREADS)
    return KernelSource(
        "couple", text, dtype, given, ("out",), (BEGIN,) * 2, block_threads=BLOCK_THREADS, numbers=numbers
    )


def _scalar(port: Port, k: int) -> str:
    names = {"in0": "motion", "in1": "force", "in2": "at", "in3": "to"}
    return "found" if port.name == "out" else f"{names[port.name]}[{k}]"


class PairKernels:
    """What makes matrices of pairs on a device, in one launch."""

    def __init__(self, device: ScanDevice) -> None:
        self.device = device
        self._kernels: dict[tuple[str, int, np.dtype[Any]], LoadedKernel] = {}
        self._couples: dict[np.dtype[Any], LoadedKernel] = {}

    def fill(
        self,
        pairs: Pairs,
        out: Array,
        *,
        upper: bool = False,
        lower: bool = False,
        diagonal: Array | None = None,
        clear: bool = False,
    ) -> None:
        """Put entries at (a, k) and/or (k, a) of matrices (B, nv_tree, nv_tree), `diagonal` (nv_tree, 1) being added;
        what is no such place stays, or with `clear` becomes zero."""
        if pairs.branches.bushy and not clear:
            self._list(pairs, out, diagonal, UPPER * upper + LOWER * lower)
        else:
            rows = len(pairs.branches)
            blocks = -(-rows // ROWS) * -(-rows * pairs.batch // BLOCK_THREADS)
            how = [int(upper), int(lower), int(clear)]
            self._start("pair_matrix", blocks, pairs, out, diagonal, pairs.branches.walk, rows, how)

    def listed(self, pairs: Pairs, diagonal: Array, source: Array | None) -> Array:
        """Entries (pairs, B) in the order of `Branches.all_pairs`, or those that `source` names."""
        count = pairs.branches.pairs if source is None else len(source)
        out: Array = self.device.xp.empty((count, pairs.batch), pairs.motions.dtype)
        self._list(pairs, out[None], diagonal, LISTED, source)
        return out

    def _list(self, pairs: Pairs, out: Array, diagonal: Array | None, how: int, source: Array | None = None) -> None:
        rows = pairs.branches.pairs if source is None else len(source)
        blocks = -(-rows * pairs.batch // BLOCK_THREADS)
        indices = (*pairs.branches.all_pairs, source)
        self._start("pair_list", blocks, pairs, out, diagonal, indices, rows, [how, int(source is not None)])

    def _start(
        self,
        name: str,
        blocks: int,
        pairs: Pairs,
        out: Array,
        diagonal: Array | None,
        indices: Sequence[Array | None],
        rows: int,
        how: Sequence[int],
    ) -> None:
        # What is not added is not read either: any array will do.
        given = [pairs.motions, pairs.forces, pairs.points, pairs.points if diagonal is None else diagonal]
        numbers = [pairs.batch, *how, int(pairs.places is not None), int(diagonal is not None), *_strides(pairs, out)]
        self.device.start(self._kernel(name, pairs), blocks, [*given, out, *indices, pairs.places], rows, numbers)

    def couple(self, layout: Layout, full: Array, out: Array) -> None:
        """Let `out` (B, nv, nv) be G' (.) G of matrices (B, nv_tree, nv_tree) over all joints."""
        batch, many, nv = len(full), layout.model.nv_tree, layout.model.nv
        if full.dtype not in self._couples:
            self._couples[full.dtype] = self.device.device.load(couple_kernel(full.dtype))
        arrays = [full, layout.sources["v"][1], out, *layout.coupled]
        numbers = [batch, many, *(each // out.itemsize for each in out.strides)]
        self.device.start(self._couples[full.dtype], -(-batch * nv * nv // BLOCK_THREADS), arrays, nv, numbers)

    def _kernel(self, name: str, pairs: Pairs) -> LoadedKernel:
        key = name, len(pairs.motions) // 6, pairs.motions.dtype
        if key not in self._kernels:
            self._kernels[key] = self.device.device.load(pair_kernel(*key))
        return self._kernels[key]


def _strides(pairs: Pairs, out: Array) -> list[int]:
    """Of motions, forces and points by scalar, element and row, and of matrices by matrix, row and column."""
    given = (pairs.motions, pairs.forces, pairs.points)
    found = [number for each in given for number in strides_in(each, each.shape[1], pairs.batch)]
    return [*found, *(each // out.itemsize for each in out.strides)]
