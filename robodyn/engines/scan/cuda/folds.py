"""Kernels of folds: a thread goes along a stretch of a path in one state of the batch, body by body.

The step of each kind of joint is printed from the text that NumPy runs, traced. The carry is in registers, as far as
they last; data of the next bodies are on their way to shared memory meanwhile. Arrays of bodies and of degrees of
freedom are (size, n, batch), with any strides.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from robodyn.codegen.loops.gpu import WARP, all_threads, barrier, first_work, pool, thread, unrolled
from robodyn.codegen.loops.language import Array, Scalar, Static, Word, local, routine
from robodyn.codegen.loops.source import MISSING
from robodyn.engines.gpu.copies import arrived, ask, asked
from robodyn.engines.gpu.source import KernelSource
from robodyn.engines.gpu.straight import Straight
from robodyn.engines.gpu.written import kernel_source, several
from robodyn.engines.scan.cuda.steps import Strides
from robodyn.engines.scan.elementwise import traced
from robodyn.engines.scan.folds import Fold
from robodyn.joints import KINDS
from robodyn.records import dataclass
from robodyn.tracing.program import Program

STAGES = 4
"""Bodies whose data are on their way to a thread, that which it works on included: memory takes longer to answer than a
step takes."""
_STAGE_BYTES = 28 << 10
"""Of shared memory for a warp's, so that eight warps of a multiprocessor have room."""
TOGETHER_THREADS, TOGETHER_BYTES = 128, 96 << 10
"""Of the one block that goes along several levels, and what it has of shared memory on a device that has so much; a
stage alone always has room in what every GPU gives."""
_HANDED = ("before", "hanging")
"""What levels have from others."""


@dataclass(frozen=True)
class Step:
    """What a fold does at a joint of a kind: the kind's number, the program, and what it reads beside the carry: input,
    scalar, and where that is among a lane's in shared memory, or -1."""

    code: int
    program: Straight
    reads: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class How:
    """What is known of a fold when its kernel is printed.

    `steps`: of each kind of joint; `size`: scalars of the carry; `sizes`: of each array that is read, those of bodies
    before those of degrees of freedom; `bodies`: how many of bodies; `found`: scalars that a step finds for a body, and
    for a degree of freedom; `hung`: the array of bodies to which what hangs on them is added, or -1; `near`: what is
    asked for in time, each an array and a scalar; `single`: whether joints have one degree of freedom each.
    """

    steps: tuple[Step, ...]
    size: int
    sizes: tuple[int, ...]
    bodies: int
    found: tuple[int, int]
    hung: int
    near: tuple[tuple[int, int], ...]
    single: bool
    inward: bool
    lanes: int
    stages: int


class Given(NamedTuple):
    """Arrays of a fold.

    `sources`: which of `before` stretches have at first; `bodies` along paths; `starts`, where stretches start among
    them, and their `lengths`; of bodies the joint's kind, and its first degree of freedom; `hung`, of bodies where they
    start in the list of paths that hang on them, and that list.
    """

    before: Array[Scalar]
    read: tuple[Array[Scalar], ...]
    hanging: tuple[Array[Scalar], ...]
    after: Array[Scalar]
    found: tuple[Array[Scalar], ...]
    found_dofs: tuple[Array[Scalar], ...]
    sources: Array[Word]
    bodies: Array[Word]
    starts: Array[Word]
    lengths: Array[Word]
    kinds: Array[Word]
    dofs: Array[Word]
    hung: tuple[Array[Word], ...]


class Layout(NamedTuple):
    """How far the scalars, elements and rows of a fold's arrays lie apart."""

    before: Strides
    read: tuple[Strides, ...]
    hanging: tuple[Strides, ...]
    after: Strides
    found: tuple[Strides, ...]
    found_dofs: tuple[Strides, ...]


class Here(NamedTuple):
    """The row of the batch, a body, and its first degree of freedom."""

    row: Word
    body: Word
    dof: Word


def entry(array: Array[Scalar], by: Strides, scalar: Static[int], element: Word, row: Word) -> Array[Scalar]:
    """Where a scalar of an element is."""
    return array + (scalar * by.scalar + element * by.element + row * by.row)


def read_from(
    given: Given, by: Layout, array: Static[int], k: Static[int], at: Here, how: Static[How]
) -> Array[Scalar]:
    """Where a scalar is that a step reads."""
    if array < how.bodies:
        return entry(given.read[array], by.read[array], k, at.body, at.row)
    number, scalar = divmod(k, how.sizes[array])
    return entry(given.read[array], by.read[array], scalar, at.dof + number, at.row)


def first_dof(dofs: Array[Word], body: Word, how: Static[How]) -> Word:
    """The first degree of freedom of a body's joint."""
    return body if how.single else dofs[body]


def fetch(near: Array[Scalar], given: Given, by: Layout, step: Word, body: Word, row: Word, how: Static[How]) -> None:
    """Ask for what a step reads at a body. A lane reads what it has asked for itself: there is nobody to wait for."""
    to = near + (step % how.stages * (len(how.near) * how.lanes) + thread())
    at = Here(row, body, first_dof(given.dofs, body, how))
    for k, (array, scalar) in enumerate(how.near):
        ask(to + k * how.lanes, read_from(given, by, array, scalar, at, how))


def take_step(
    carry: Array[Scalar],
    following: Array[Scalar],
    near: Array[Scalar],
    given: Given,
    by: Layout,
    at: Here,
    step: Static[Step],
    how: Static[How],
) -> None:
    """The step of a kind of joint."""
    values = [local(Scalar, max(1, port.size)) for port in step.program.program.inputs[1:]]
    for array, k, place in step.reads:
        if place >= 0:
            values[array][k] = near[place * how.lanes]
        else:
            values[array][k] = read_from(given, by, array, k, at, how)[0]
    if how.hung >= 0:
        for h in range(given.hung[0][at.body], given.hung[0][at.body + 1]):
            for array, k, _ in step.reads:
                if array == how.hung:
                    values[array][k] += entry(given.hanging[0], by.hanging[0], k, given.hung[1][h], at.row)[0]
    found = [entry(given.found[0], by.found[0], 0, at.body, at.row) for _ in given.found]
    found += [
        entry(given.found_dofs[0], by.found_dofs[0], 0, at.dof + number, at.row)
        for number in range(KINDS[step.code].nv if given.found_dofs else 0)
    ]
    apart = [1] * len(values) + [1, 1]
    apart += [each.scalar for each in by.found]
    apart += [by.found_dofs[0].scalar for _ in range(len(found) - len(given.found))]
    step.program(carry, *values, following, *found, *apart)


def take_any_step(
    code: Word,
    carry: Array[Scalar],
    following: Array[Scalar],
    near: Array[Scalar],
    given: Given,
    by: Layout,
    at: Here,
    steps: Static[tuple[Step, ...]],
    how: Static[How],
) -> None:
    """The step of a joint's kind."""
    if len(steps) == 1 or code == steps[0].code:
        take_step(carry, following, near, given, by, at, steps[0], how)
    else:
        take_any_step(code, carry, following, near, given, by, at, steps[1:], how)


def place(step: Word, length: Word, how: Static[How]) -> Word:
    """Where a step's body is in its stretch."""
    return length - 1 - step if how.inward else step


def go_along(k: Word, near: Array[Scalar], given: Given, by: Layout, batch: Word, many: Word, how: Static[How]) -> None:
    """A stretch in a state of the batch."""
    stretch, row = k // batch, k % batch
    length = given.lengths[stretch]
    path = given.bodies + given.starts[stretch]
    asked_for = given.sources[stretch]
    source = asked_for + many if asked_for < 0 else asked_for
    carry, following = local(Scalar, how.size), local(Scalar, how.size)
    for s in unrolled(how.size):
        carry[s] = given.before[s * by.before.scalar + source * by.before.element + row * by.before.row]
    for step in range(how.stages - 1):
        if length > step:
            fetch(near, given, by, step, path[place(step, length, how)], row, how)
        asked()
    # Indices are asked for a step early.
    ahead: Word = 0
    body: Word = 0
    if length > how.stages - 1:
        ahead = path[place(how.stages - 1, length, how)]
    if length > 0:
        body = path[place(0, length, how)]
    for step in range(length):
        if step + (how.stages - 1) < length:
            fetch(near, given, by, step + (how.stages - 1), ahead, row, how)
        asked()
        at = Here(row, body, first_dof(given.dofs, body, how))
        next_body = path[place(step + 1, length, how)] if step + 1 < length else body
        ahead = path[place(step + how.stages, length, how)] if step + how.stages < length else 0
        arrived(how.stages - 1)
        own = near + (step % how.stages * (len(how.near) * how.lanes) + thread())
        code = given.kinds[body] if len(how.steps) > 1 else 0
        take_any_step(code, carry, following, own, given, by, at, how.steps, how)
        body = next_body
        for s in unrolled(how.size):
            carry[s] = following[s]
    for s in unrolled(how.size):
        given.after[s * by.after.scalar + stretch * by.after.element + row * by.after.row] = carry[s]


@routine
def fold(
    before: Array[Scalar],
    arrays: tuple[Array[Scalar], ...],
    hanging: tuple[Array[Scalar], ...],
    after: Array[Scalar],
    found: tuple[Array[Scalar], ...],
    found_dofs: tuple[Array[Scalar], ...],
    sources: Array[Word],
    bodies: Array[Word],
    starts: Array[Word],
    lengths: Array[Word],
    kinds: Array[Word],
    dofs: Array[Word],
    hung: tuple[Array[Word], ...],
    turns: tuple[Array[Word], ...],
    workspace: Array[Scalar],
    rows: Word,
    batch: Word,
    many: Word,
    many_turns: tuple[Word, ...],
    by: Layout,
    how: Static[How],
) -> None:
    """Go along stretches: `rows` is stretches x batch, `many` the number of elements in `before`.

    Where there are `turns`, one block goes along stretches of several levels, those of each once those of the level
    before are done: `turns` says where levels begin among stretches, and the end, and `many_turns` how many there are;
    what is read may be what another level has found.
    """
    near = pool(Scalar, how.stages * len(how.near) * how.lanes)
    given = Given(
        before, arrays, hanging, after, found, found_dofs, sources, bodies, starts, lengths, kinds, dofs, hung
    )
    if turns:
        for turn in range(many_turns[0]):
            level = many_turns[0] - 1 - turn if how.inward else turn
            for k in range(turns[0][level] * batch + thread(), turns[0][level + 1] * batch, how.lanes):
                go_along(k, near, given, by, batch, many, how)
            barrier()
    else:
        for k in range(first_work(how.lanes), rows, all_threads(how.lanes)):
            go_along(k, near, given, by, batch, many, how)


def fold_kernel(fold_: Fold, codes: tuple[int, ...], dtype: np.dtype[np.floating], together: int = 0) -> KernelSource:
    """The kernel `fold` along stretches whose joints have these kinds.

    Args:
        fold_: what is done.
        codes: of kinds.
        dtype: of arrays.
        together: bytes of shared memory where one block goes along several levels; else 0.
    """
    programs = {code: traced(fold_.of_kind(code)) for code in codes}
    single = all(KINDS[code].nv == 1 for code in codes)
    many, hung = len(fold_.bodies), fold_.hung is not None
    near = tuple(
        dict.fromkeys(each for program in programs.values() for each in _read(program) if single or each[0] < many)
    )
    found = fold_.found.size(0), fold_.found_dofs.size(0)
    threads, shared = (TOGETHER_THREADS, together) if together else (WARP, _STAGE_BYTES)
    one = len(near) * threads * dtype.itemsize
    stages = max(1 if together else 2, min(STAGES, shared // max(1, one)))
    how = How(
        tuple(_step(fold_, code, program, near, dtype) for code, program in programs.items()),
        fold_.size,
        tuple(field.size(0) for field in (*fold_.bodies, *fold_.dofs)),
        many,
        found,
        -1 if fold_.hung is None else fold_.hung,
        near,
        single,
        fold_.inward,
        threads,
        stages,
    )
    counts = {
        "arrays": len(how.sizes),
        "hanging": int(hung),
        "found": int(found[0] > 0),
        "found_dofs": int(found[1] > 0),
    }
    known: dict[str, Any] = {name: several(count) for name, count in counts.items()}
    known |= {"hung": several(2 * hung), "turns": several(together > 0), "many_turns": several(together > 0)}
    one_each: Any = MISSING
    known["by"] = Layout(one_each, known["arrays"], known["hanging"], one_each, known["found"], known["found_dofs"])
    inputs = ["before", *(f"arrays_{k}" for k in range(len(how.sizes))), *["hanging_0"] * hung]
    outputs = ["after", *(name for name in ("found", "found_dofs") for _ in known[name])]
    # Levels read what others have found.
    overlapping = ("before", "hanging_0", "after", "found_0", "found_dofs_0") if together else ()
    return kernel_source(
        fold,
        dtype,
        inputs,
        outputs,
        threads=threads,
        shared_bytes=stages * one,
        overlapping=overlapping,
        how=how,
        **known,
    )


def _read(program: Program) -> list[tuple[int, int]]:
    """Scalars that a step reads, but for its carry's: arrays and scalars of them."""
    return [
        (array, k) for array, port in enumerate(program.inputs[1:]) for k, node in enumerate(port.scalars) if node != -1
    ]


def _step(
    fold_: Fold, code: int, program: Program, near: tuple[tuple[int, int], ...], dtype: np.dtype[np.floating]
) -> Step:
    places = {each: k for k, each in enumerate(near)}
    parts = [fold_.size, *[fold_.found.size(0)] * (fold_.found.size(0) > 0)]
    parts += [fold_.found_dofs.size(0)] * (KINDS[code].nv if fold_.found_dofs.size(0) else 0)
    straight = Straight("step", program, dtype, parts=parts, reads="always")
    return Step(code, straight, tuple((*each, places.get(each, -1)) for each in _read(program)))
