"""Loops over pairs of shapes, for a vector of W states.

    void kernel(ptr table, i64 first, i64 last, ptr workspace)

It processes the W states from `first` on only. The table has the frames of all links as vectors of states, then inputs
and outputs as rows, then `TABLES`. Formulas of pairs are traced once for each pair of forms, so compile time does not
grow with the number of shapes, pairs or obstacles.

For the least distance, a pair of links is skipped if the spheres around them are at least as far apart as what was
found so far, in all lanes. Spheres are a little larger than shapes, by more than rounding errors, so that no lane
depends on the others. Comparisons with NaN let pairs be computed. As a least value would hide NaN, terms that are NaN
with a coordinate, a frame, an obstacle or a distance are summed, and decide at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from robodyn.algorithms.distances import solids
from robodyn.algorithms.distances.solids import BALL, BRICK, CAN, FLAT, FORM_OF, FRAME, NEAREST, ROD, SIZES, TWIST
from robodyn.algorithms.distances.tasks import OBSTACLES, Measured
from robodyn.compile.llvm.straight_line import StraightLine, attributes
from robodyn.compile.llvm.target import Target
from robodyn.compile.llvm.vectors import Lines, VectorType, declarations
from robodyn.compile.loops.blocks import Number, Value
from robodyn.compile.loops.gpu import rolled
from robodyn.compile.loops.language import (
    Address,
    Array,
    Flag,
    Lane,
    Lanes,
    Loose,
    LooseScalar,
    Operator,
    Routine,
    Static,
    UnalignedScalar,
    Vector,
    Word,
    all_of,
    anything,
    array,
    call,
    chosen,
    clear,
    convert,
    fma,
    inserted,
    known,
    local,
    routine,
    size_of,
    spread,
    switch,
)
from robodyn.compile.loops.llvm import Module, printed_module
from robodyn.compile.loops.reader import Reader
from robodyn.compile.loops.table import Argument
from robodyn.compile.lowering import lower
from robodyn.compile.tracing.expression import CONSTANT, INPUT, Graph
from robodyn.compile.tracing.program import Program
from robodyn.engines.cpu.distances.tables import (
    DOF,
    FORMS,
    NUMBERS,
    SPACE,
    SPHERES,
    Cluster,
    Dof,
    Group,
    Listed,
    Near,
    Pair,
    Placed,
    Tables,
    Visit,
)
from robodyn.engines.cpu.loops.runtime import stage_in, stage_out, types_of
from robodyn.internals.cached import cached_property
from robodyn.internals.records import dataclass

FAR = 1e30
"""A distance above all others."""
BEST, BOUND, TOTAL, LIMIT, POINT, RANK, STATE = 0, 1, 2, 3, 4, 10, 12
"""Vectors of what is found: the least distance; the one below which others matter; the sum that is NaN if anything is;
the clearance; the normal and a point on the line through the witness points; ranks of both bodies."""
SPHERE = 4
MOST_NUMBERS = NUMBERS + SPHERE
"""Numbers of an obstacle, and of the sphere around it."""


class Traced(Operator):
    """A function of scalars that is traced and printed in place.

    Args:
        kind: the type of every scalar.
        text: the function, of a sequence of scalars.
        count: number of arguments.
    """

    def __init__(self, kind: VectorType, text: Callable[[Sequence[Any]], Sequence[Any]], count: int) -> None:
        graph = Graph()
        inputs = graph.inputs(count)
        results = tuple(text(inputs))
        self._kind, self._text = kind, text
        self.program = Program.of(
            "formula", graph, {"in": ((count,), inputs)}, {"out": ((len(results),), list(results))}
        )

    def read(self, reader: Reader, *arguments: Any, **named: Any) -> list[Value]:
        """Emit the operations."""
        program, out, of = self.program, Lines(reader.numbers()), Number(self._kind.scalar, self._kind.width)
        # Names in text stay as they are, while others may be replaced where paths meet.
        names = [reader.make(of, "same", each).name for each in arguments]

        def fetch(node: int) -> str:
            operation, number, _ = program.nodes[node]
            assert operation == INPUT
            return f"%{names[number]}"

        code = StraightLine(self._kind, program.nodes, out, fetch)
        for operation in lower(program, nested=True):
            code.compute(operation)
        found = []
        for each in program.outputs[0].scalars:
            operation, number, _ = program.nodes[each] if isinstance(each, int) else (CONSTANT, each, 0)
            if operation == CONSTANT:
                found.append(Value(of, constant=number))
            else:
                found.append(Value(of, code.value(each).removeprefix("%")))
        if out.lines:
            reader.do("lines", lines=out.lines)
        return found

    def __call__(self, *arguments: Any, **named: Any) -> list[Any]:
        """Run the function as Python."""
        return list(self._text(arguments))


# Arrays.


def numbers_at(at: Array[Loose], count: Static[int]) -> list[Vector]:
    """Consecutive vectors."""
    return [at[k] for k in range(count)]


def set_numbers(to: Array[Vector], values: Static[Sequence[Vector]]) -> None:
    """Store consecutive vectors."""
    for k, value in enumerate(values):
        to[k] = value


def scalars_at(at: Array[LooseScalar], count: Static[int]) -> list[Vector]:
    """Consecutive numbers of the model, spread."""
    return [spread(Vector, at[k]) for k in range(count)]


def address_of(table: Array[Argument], name: Static[str], module: Static[DistanceModule]) -> Address:
    """The address of an array."""
    return table[module.number(name)].data


def words(table: Array[Argument], name: Static[str], module: Static[DistanceModule]) -> Array[Word]:
    """An array of integers."""
    return array(Word, address_of(table, name, module))


def reals(table: Array[Argument], name: Static[str], module: Static[DistanceModule]) -> Array[LooseScalar]:
    """An array of the model's numbers."""
    return array(LooseScalar, address_of(table, name, module))


def size(table: Array[Argument], name: Static[str], module: Static[DistanceModule]) -> Word:
    """Number of rows of a table."""
    return words(table, "sizes", module)[module.sizes.index(name)]


def part(table: Array[Argument], workspace: Address, name: Static[str], module: Static[DistanceModule]) -> Array[Vector]:
    """An array of the workspace."""
    return array(Vector, workspace + words(table, "sizes", module)[module.sizes.index("part " + name)])


# Shapes in world coordinates.


@routine
def place_shapes(table: Array[Argument], to: Array[Vector], module: Static[DistanceModule]) -> None:
    """Bring all shapes to world coordinates."""
    frames, starts = array(Loose, table[0].data), words(table, "form starts", module)
    shapes, own = array(Placed, address_of(table, "shapes", module)), reals(table, "shape numbers", module)
    for form in module.forms:
        for k in range(starts[form], starts[form + 1]):
            shape = shapes[k]
            frame = numbers_at(frames + shape.frame, FRAME)
            numbers = scalars_at(own + k * NUMBERS, SIZES[form])
            found = module.placed(form)(*numbers, *frame)
            set_numbers(to + shape.at, found)
            if SPACE[form] > SIZES[form]:
                to[shape.at + SIZES[form]] = module.larger(*module.enclosed(form)(*found))[3]


@routine
def place_spheres(
    table: Array[Argument], to: Array[Vector], state: Array[Vector], module: Static[DistanceModule]
) -> None:
    """The spheres around clusters, larger than these by more than rounding errors. A sphere of NaN, or at infinity,
    makes the sum NaN."""
    frames, own = array(Loose, table[0].data), reals(table, "enclosing", module)
    clusters = array(Cluster, address_of(table, "clusters", module))
    total = state[TOTAL]
    for k in range(size(table, "clusters", module)):
        frame = numbers_at(frames + clusters[k].frame, FRAME)
        numbers = scalars_at(own + k * SPHERE, SPHERE)
        sphere = module.placed(BALL)(*numbers, *frame)
        set_numbers(to + k * SPHERE, module.larger(*sphere))
        for x in sphere[:3]:
            total = fma(spread(Vector, 0.0), x, total)
    state[TOTAL] = total


@routine
def place_obstacle(
    data: Address,
    stride: Word,
    first: Word,
    end: Word,
    number: Word,
    to: Array[Vector],
    kind: Static[str],
    module: Static[DistanceModule],
) -> None:
    """An obstacle and the sphere around it, for the rows from `first` on; rows past the end repeat the last one."""
    count = OBSTACLES[kind]
    given = [anything(Vector) for _ in range(count)]
    if stride == 0:
        at = array(UnalignedScalar, data) + number * count
        given = [spread(Vector, at[k]) for k in range(count)]
    else:
        for lane in range(module.kind.width):
            row = array(UnalignedScalar, data + min(first + lane, end) * stride) + number * count
            given = [inserted(given[k], row[k], lane) for k in range(count)]
    form = FORM_OF[kind]
    numbers = module.obstacle(kind)(*given)
    set_numbers(to, numbers)
    set_numbers(to + NUMBERS, module.larger(*module.enclosed(form)(*numbers)))


# Pairs.


@routine
def formula(one: Array[Vector], other: Array[Vector], to: Array[Vector], module: Static[FormulaModule]) -> None:
    """A formula of two shapes, as a function that all queries share."""
    set_numbers(to, module.traced(*numbers_at(one, module.sizes[0]), *numbers_at(other, module.sizes[1])))


@routine
def distance(
    table: Array[Argument],
    one: Array[Vector],
    other: Array[Vector],
    code: Static[int],
    module: Static[DistanceModule],
) -> Vector:
    """The distance of two shapes."""
    pair = pair_of(code)
    a, b = (other, one) if pair.swapped else (one, other)
    to = local(Vector, 1)
    if pair.shared:
        call(None, address_of(table, module.called("distance", pair), module), a, b, to)
        d = to[0]
    else:
        (d,) = module.distance(pair)(*numbers_at(a, pair.sizes[0]), *numbers_at(b, pair.sizes[1]))
    return d


@routine
def find_nearest(
    table: Array[Argument],
    one: Array[Vector],
    other: Array[Vector],
    to: Array[Vector],
    code: Static[int],
    module: Static[DistanceModule],
) -> None:
    """Distance, witness points and normal of two shapes."""
    pair = pair_of(code)
    a, b = (other, one) if pair.swapped else (one, other)
    if pair.shared:
        call(None, address_of(table, module.called("nearest", pair), module), a, b, to)
    else:
        set_numbers(to, module.nearest(pair)(*numbers_at(a, pair.sizes[0]), *numbers_at(b, pair.sizes[1])))
    if pair.swapped:
        first, second = numbers_at(to + 1, 3), numbers_at(to + 4, 3)
        set_numbers(to + 1, [*second, *first, *[-x for x in numbers_at(to + 7, 3)]])


def squared(one: Array[Vector], other: Array[Vector]) -> Vector:
    """The squared distance of two centres."""
    x, y, z = [one[k] - other[k] for k in range(3)]
    return fma(z, z, fma(y, y, x * x))


def within(bound: Vector, radii: Vector, module: Static[DistanceModule]) -> Vector:
    """The square of the distance of centres below which a pair matters."""
    reach = bound + radii
    reach = chosen(reach > 0.0, reach, spread(Vector, 0.0))
    return reach * reach


def is_far(one: Array[Vector], other: Array[Vector], bound: Vector, module: Static[DistanceModule]) -> Flag:
    """True if two spheres are too far apart to matter in any lane."""
    return all_of(squared(one, other) >= within(bound, one[3] + other[3], module))


def take(state: Array[Vector], who: Array[Lanes], d: Vector, number: Word, module: Static[DistanceModule]) -> None:
    """Keep a distance where it is the least so far, and whose it is."""
    best = state[BEST]
    closer = d < best
    least = chosen(closer, d, best)
    state[BEST] = least
    if module.asked.limited:
        limit = state[LIMIT]
        state[BOUND] = chosen(least > limit, limit, spread(Vector, -FAR))
    else:
        state[BOUND] = least
    if module.asked.gradient:
        who[0] = chosen(closer, spread(Lanes, convert(Lane, number)), who[0])


def take_balls(
    state: Array[Vector],
    who: Array[Lanes],
    vv: Vector,
    radii: Vector,
    number: Word,
    module: Static[DistanceModule],
) -> None:
    """The same for two spheres, by their squared distance. The root is computed only if it matters."""
    near = within(state[BOUND], radii, module) * (1.0 + module.slack)
    if not all_of(vv > near):
        (d,) = module.between_balls(vv, radii)
        take(state, who, d, number, module)


def take_other(
    table: Array[Argument],
    state: Array[Vector],
    who: Array[Lanes],
    one: Array[Vector],
    other: Array[Vector],
    radius: Array[Vector],
    number: Word,
    code: Static[int],
    module: Static[DistanceModule],
) -> None:
    """The same for other shapes, whose distance may be NaN. `radius`: of a sphere around the second one."""
    form, other_form = code // len(FORMS), code % len(FORMS)
    if FLAT in (form, other_form):
        far = False
    else:
        reach = within(state[BOUND], one[radius_of(form)] + radius[0], module)
        far = all_of(squared(one, other) >= reach)
    if not far:
        d = distance(table, one, other, code=code, module=module)
        state[TOTAL] = state[TOTAL] + d
        take(state, who, d, number, module)


@known
def radius_of(form: int) -> int:
    """The vector with the radius of a sphere around a shape."""
    return 3 if form == BALL else SIZES[form]


@routine
def over_visits(
    table: Array[Argument],
    places: Array[Vector],
    spheres: Array[Vector],
    state: Array[Vector],
    who: Array[Lanes],
    module: Static[DistanceModule],
) -> None:
    """The least distance of the model's own pairs."""
    visits, groups = array(Visit, address_of(table, "visits", module)), array(Group, address_of(table, "groups", module))
    pairs = array(Pair, address_of(table, "pairs", module))
    for v in range(size(table, "visits", module)):
        visit = visits[v]
        if visit.tested != 0:
            if is_far(spheres + visit.one * SPHERE, spheres + visit.other * SPHERE, state[BOUND], module):
                continue
        for g in range(visit.first, visit.last):
            group = groups[g]
            for code in switch(group.code, module.own_codes):
                if code == 0:
                    vv = spread(Vector, math.inf)
                    for p in range(group.first, group.last):
                        new = squared(places + Word(pairs[p].one), places + Word(pairs[p].other))
                        vv = chosen(new < vv, new, vv)
                    pair = pairs[group.first]
                    radii = places[Word(pair.one) + 3] + places[Word(pair.other) + 3]
                    take_balls(state, who, vv, radii, group.first, module)
                elif code == SPHERES:
                    for p in range(group.first, group.last):
                        one, other = places + Word(pairs[p].one), places + Word(pairs[p].other)
                        take_balls(state, who, squared(one, other), one[3] + other[3], p, module)
                else:
                    pair, other = pairs[group.first], code % len(FORMS)
                    a, b = places + Word(pair.one), places + Word(pair.other)
                    take_other(table, state, who, a, b, b + radius_of(other), group.first, code, module)


@routine
def over_obstacles(
    table: Array[Argument],
    places: Array[Vector],
    spheres: Array[Vector],
    state: Array[Vector],
    who: Array[Lanes],
    first: Word,
    end: Word,
    module: Static[DistanceModule],
    kind: Static[str],
) -> None:
    """The least distance to obstacles of one kind."""
    clusters, every = array(Cluster, address_of(table, "clusters", module)), array(Near, address_of(table, "near", module))
    obstacle, rows, n_near = local(Vector, MOST_NUMBERS), table[module.number(kind)], size(table, "near", module)
    other, before = FORM_OF[kind], before_kind(table, kind, module)
    for k in range(count_of(table, kind, module)):
        place_obstacle(rows.data, rows.stride, first, end, k, obstacle, kind=kind, module=module)
        add_obstacle(state, obstacle, kind, module)
        for c in range(size(table, "clusters", module)):
            cluster = clusters[c]
            if cluster.tested != 0:
                if is_far(spheres + c * SPHERE, obstacle + NUMBERS, state[BOUND], module):
                    continue
            for s in range(cluster.first, cluster.last):
                number = size(table, "pairs", module) + (before + k) * n_near + s
                one = places + every[s].at
                for form in switch(every[s].form, module.near_forms):
                    if form == BALL and other == BALL:
                        take_balls(state, who, squared(one, obstacle), one[3] + obstacle[3], number, module)
                    else:
                        code = len(FORMS) * form + other
                        take_other(table, state, who, one, obstacle, obstacle + (NUMBERS + 3), number, code, module)


def add_obstacle(state: Array[Vector], obstacle: Array[Vector], kind: Static[str], module: Static[DistanceModule]) -> None:
    """Make the sum NaN if an obstacle is. Spheres may be at infinity."""
    total = state[TOTAL]
    for k in range(SIZES[FORM_OF[kind]]):
        x = obstacle[k]
        if kind == "spheres":
            total = chosen(x == x, total, x)
        else:
            total = fma(spread(Vector, 0.0), x, total)
    state[TOTAL] = total


def count_of(table: Array[Argument], kind: Static[str], module: Static[DistanceModule]) -> Word:
    """Number of obstacles of a kind."""
    return words(table, "counts", module)[module.asked.kinds.index(kind)]


def before_kind(table: Array[Argument], kind: Static[str], module: Static[DistanceModule]) -> Word:
    """Number of obstacles of the kinds before."""
    total = 0
    for each in module.asked.kinds[: module.asked.kinds.index(kind)]:
        total = total + count_of(table, each, module)
    return total


# Gradients.


@routine
def find_points(
    table: Array[Argument],
    places: Array[Vector],
    state: Array[Vector],
    who: Array[Lanes],
    first: Word,
    end: Word,
    module: Static[DistanceModule],
) -> None:
    """The normal and a point of the nearest pair of each lane. Pairs of the first lanes are computed for all lanes."""
    lanes = array(Lane, who)
    n_pairs, near = size(table, "pairs", module), local(Vector, NEAREST)
    for lane in rolled(module.kind.width):
        number = convert(Word, lanes[lane])
        if number >= 0:
            mask = who[0] == spread(Lanes, lanes[lane])
            if number < n_pairs:
                if module.own_codes:
                    to_own(table, places, state, number, mask, near, module)
            else:
                if module.asked.kinds:
                    to_obstacle(table, places, state, who, lanes[lane], first, end, near, module=module)
            who[0] = chosen(mask, spread(Lanes, -1), who[0])


def to_own(
    table: Array[Argument],
    places: Array[Vector],
    state: Array[Vector],
    number: Word,
    mask: Static[Any],
    near: Array[Vector],
    module: Static[DistanceModule],
) -> None:
    """The normal and a point of one of the model's own pairs, where it is nearest."""
    groups, visits = array(Group, address_of(table, "groups", module)), array(Visit, address_of(table, "visits", module))
    pairs, ranks = array(Pair, address_of(table, "pairs", module)), reals(table, "ranks", module)
    group = groups[words(table, "pair groups", module)[number]]
    visit = visits[group.visit]
    for code in switch(group.code, module.own_codes):
        if code == 0:
            nearest_balls(places, pairs, group.first, group.last, near, module)
        else:
            one, other = places + Word(pairs[number].one), places + Word(pairs[number].other)
            find_nearest(table, one, other, near, code=0 if code == SPHERES else code, module=module)
    keep(state, near, mask, ranks[visit.one], ranks[visit.other])


def nearest_balls(
    places: Array[Vector],
    pairs: Array[Pair],
    first: Word,
    last: Word,
    near: Array[Vector],
    module: Static[DistanceModule],
) -> None:
    """The nearest of pairs of spheres with equal sums of radii."""
    a, b = places + Word(pairs[first].one), places + Word(pairs[first].other)
    least, one, other = squared(a, b), numbers_at(a, SPHERE), numbers_at(b, SPHERE)
    for p in range(first + 1, last):
        a, b = places + Word(pairs[p].one), places + Word(pairs[p].other)
        new = squared(a, b)
        closer = new < least
        least = chosen(closer, new, least)
        one = [chosen(closer, a[k], one[k]) for k in range(SPHERE)]
        other = [chosen(closer, b[k], other[k]) for k in range(SPHERE)]
    set_numbers(near, module.nearest(pair_of(0))(*one, *other))


@routine
def to_obstacle(
    table: Array[Argument],
    places: Array[Vector],
    state: Array[Vector],
    who: Array[Lanes],
    number: Lane,
    first: Word,
    end: Word,
    near: Array[Vector],
    module: Static[DistanceModule],
) -> None:
    """The normal and a point of a shape and an obstacle, where these are nearest."""
    every, ranks = array(Near, address_of(table, "near", module)), reals(table, "ranks", module)
    mask, obstacle = who[0] == spread(Lanes, number), local(Vector, MOST_NUMBERS)
    pair = convert(Word, number) - size(table, "pairs", module)
    k = pair // size(table, "near", module)
    shape = every[pair - k * size(table, "near", module)]
    for kind in module.asked.kinds:
        before = before_kind(table, kind, module)
        if k >= before and k < before + count_of(table, kind, module):
            rows, other = table[module.number(kind)], FORM_OF[kind]
            place_obstacle(rows.data, rows.stride, first, end, k - before, obstacle, kind=kind, module=module)
            for form in switch(shape.form, module.near_forms):
                find_nearest(table, places + shape.at, obstacle, near, code=len(FORMS) * form + other, module=module)
    keep(state, near, mask, ranks[shape.cluster], -1.0)


def keep(state: Array[Vector], near: Array[Vector], mask: Static[Any], rank: Static[Any], other_rank: Static[Any]) -> None:
    """Keep the normal, a witness point and the ranks of bodies in some lanes."""
    for k in range(3):
        state[POINT + k] = chosen(mask, near[7 + k], state[POINT + k])
        state[POINT + 3 + k] = chosen(mask, near[1 + k], state[POINT + 3 + k])
    state[RANK] = chosen(mask, spread(Vector, rank), state[RANK])
    state[RANK + 1] = chosen(mask, spread(Vector, other_rank), state[RANK + 1])


@routine
def find_gradient(
    table: Array[Argument], state: Array[Vector], to: Array[Vector], nv: Word, module: Static[DistanceModule]
) -> None:
    """The derivative of the least distance: n . v of the witness point, with + for degrees of freedom that move the
    first body only, - for those that move the second one only."""
    dofs, own = array(Dof, address_of(table, "dofs", module)), reals(table, "dof numbers", module)
    frames, total = array(Loose, table[0].data), state[TOTAL]
    clear(to, nv * size_of(Vector))
    point = numbers_at(state + POINT, 6)
    rank, other_rank = state[RANK], state[RANK + 1]
    for k in range(size(table, "dofs", module)):
        numbers, v = own + k * DOF, dofs[k].velocity
        frame = numbers_at(frames + dofs[k].frame, FRAME)
        (rate,) = module.rate(*scalars_at(numbers, TWIST), *frame, *point)
        low, high = spread(Vector, numbers[6]), spread(Vector, numbers[7])
        zero, rate = spread(Vector, 0.0), rate * numbers_at_scalar(numbers, 8)
        plus = chosen((rank >= low) & (rank < high), rate, zero)
        minus = chosen((other_rank >= low) & (other_rank < high), rate, zero)
        to[v] = to[v] + (plus - minus)
    for k in range(nv):
        to[k] = chosen(total == total, to[k], spread(Vector, math.nan))


def numbers_at_scalar(at: Array[LooseScalar], k: Static[int]) -> Vector:
    """A number of the model, spread."""
    return spread(Vector, at[k])


@routine
def find_twists(table: Array[Argument], to: Array[Vector], module: Static[DistanceModule]) -> None:
    """Twists of all degrees of freedom in world coordinates, times the multipliers of their velocities."""
    dofs, own = array(Dof, address_of(table, "dofs", module)), reals(table, "dof numbers", module)
    frames = array(Loose, table[0].data)
    for k in range(size(table, "dofs", module)):
        numbers = own + k * DOF
        frame = numbers_at(frames + dofs[k].frame, FRAME)
        found = module.twist(*scalars_at(numbers, TWIST), *frame)
        multiplier = spread(Vector, numbers[8])
        set_numbers(to + k * TWIST, [multiplier * x for x in found])


@routine
def find_row(
    table: Array[Argument],
    twists: Array[Vector],
    near: Array[Vector],
    body: Word,
    other_body: Word,
    nv: Word,
    to: Array[Vector],
    module: Static[DistanceModule],
) -> None:
    """The derivative of one distance. Climbs from both bodies to where their paths meet; parents have smaller
    numbers."""
    parent, v_start = words(table, "parent", module), words(table, "v_start", module)
    dofs, n_bodies, n_dofs = array(Dof, address_of(table, "dofs", module)), size(table, "parent", module), size(table, "dofs", module)
    clear(to, nv * size_of(Vector))
    here, there = body, other_body
    while here != there:
        upper = max(here, there)
        sign = spread(Vector, 1.0) if here > there else spread(Vector, -1.0)
        stop = v_start[upper + 1] if upper + 1 < n_bodies else n_dofs
        for k in range(v_start[upper], stop):
            v = dofs[k].velocity
            twist = numbers_at(twists + k * TWIST, TWIST)
            (rate,) = module.rate_of_twist(*twist, *numbers_at(near + 7, 3), *numbers_at(near + 1, 3))
            to[v] = fma(sign, rate, to[v])
        if here > there:
            here = parent[here]
        else:
            there = parent[there]


# All distances.


def store_result(
    table: Array[Argument],
    one: Array[Vector],
    other: Array[Vector],
    body: Word,
    other_body: Word,
    near: Array[Vector],
    twists: Array[Vector],
    nv: Word,
    to: Array[Vector],
    code: Static[int],
    module: Static[DistanceModule],
) -> None:
    """What is asked about one pair."""
    name = module.asked.name
    if name == "distances":
        to[0] = distance(table, one, other, code=code, module=module)
    else:
        find_nearest(table, one, other, near, code=code, module=module)
        if name == "witness_points":
            set_numbers(to, numbers_at(near + 1, 6))
        else:
            find_row(table, twists, near, body, other_body, nv, to, module=module)


@routine
def over_listed(
    table: Array[Argument],
    workspace: Address,
    places: Array[Vector],
    first: Word,
    end: Word,
    module: Static[DistanceModule],
) -> None:
    """The model's own pairs, in blocks whose results go to rows."""
    listed, block = array(Listed, address_of(table, "listed", module)), part(table, workspace, "block", module)
    twists, near = part(table, workspace, "twists", module), local(Vector, NEAREST)
    entries, most = size(table, "entries", module), size(table, "block pairs", module)
    nv, rows = size(table, "nv", module), table[module.number(module.outputs[0])]
    start = 0
    while start < size(table, "listed", module):
        stop = min(start + most, size(table, "listed", module))
        for k in range(start, stop):
            pair = listed[k]
            for code in switch(pair.code, module.own_codes):
                store_result(
                    *(table, places + pair.one, places + pair.other, pair.body, pair.other_body, near, twists, nv),
                    *(block + (k - start) * entries, code, module),
                )
        data = rows.data + start * entries * size_of(LooseScalar)
        stage_out(data, rows.stride, first, end, array(Loose, block), None, (stop - start) * entries, module.kind.width)
        start = stop


@routine
def over_listed_obstacles(
    table: Array[Argument],
    workspace: Address,
    places: Array[Vector],
    first: Word,
    end: Word,
    module: Static[DistanceModule],
    kind: Static[str],
) -> None:
    """Shapes and obstacles of a kind, a block of obstacles at a time."""
    every, block = array(Near, address_of(table, "near", module)), part(table, workspace, "block", module)
    column_of, obstacles = words(table, "near columns", module), part(table, workspace, "obstacles", module)
    twists, near = part(table, workspace, "twists", module), local(Vector, NEAREST)
    entries, most = size(table, "entries", module), size(table, "block obstacles", module)
    nv, rows, given = size(table, "nv", module), table[module.number(module.outputs[0])], table[module.number(kind)]
    before, total = before_kind(table, kind, module), 0
    for each in module.asked.kinds:
        total = total + count_of(table, each, module)
    start = 0
    while start < count_of(table, kind, module):
        stop = min(start + most, count_of(table, kind, module))
        for k in range(start, stop):
            to = obstacles + (k - start) * MOST_NUMBERS
            place_obstacle(given.data, given.stride, first, end, k, to, kind=kind, module=module)
        for s in range(size(table, "near", module)):
            shape = every[s]
            for form in switch(shape.form, module.near_forms):
                code = len(FORMS) * form + FORM_OF[kind]
                for k in range(stop - start):
                    other = obstacles + k * MOST_NUMBERS
                    store_result(
                        *(table, places + shape.at, other, shape.body, -1, near, twists, nv),
                        *(block + k * entries, code, module),
                    )
            column = size(table, "listed", module) + column_of[s] * total + before + start
            data = rows.data + column * entries * size_of(LooseScalar)
            stage_out(data, rows.stride, first, end, array(Loose, block), None, (stop - start) * entries, module.kind.width)
        start = stop


# The exported function.


@routine
def kernel(table: Array[Argument], first: Word, last: Word, workspace: Address, module: Static[DistanceModule]) -> None:
    """Place shapes, go through pairs, store results."""
    end, places = last - 1, part(table, workspace, "places", module)
    place_shapes(table, places, module=module)
    if module.asked.is_least:
        find_least(table, workspace, places, first, end, module)
        return
    if module.asked.gradient:
        find_twists(table, part(table, workspace, "twists", module), module=module)
    if module.own_codes:
        over_listed(table, workspace, places, first, end, module=module)
    for kind in module.asked.kinds:
        over_listed_obstacles(table, workspace, places, first, end, module=module, kind=kind)


def find_least(
    table: Array[Argument],
    workspace: Address,
    places: Array[Vector],
    first: Word,
    end: Word,
    module: Static[DistanceModule],
) -> None:
    """The least distance, and its gradient."""
    state, who = local(Vector, STATE), local(Lanes, 1)
    spheres = part(table, workspace, "spheres", module)
    for k in range(STATE):
        state[k] = spread(Vector, 0.0)
    state[BEST] = spread(Vector, math.inf)
    state[BOUND] = spread(Vector, math.inf)
    state[RANK] = spread(Vector, -1.0)
    state[RANK + 1] = spread(Vector, -1.0)
    who[0] = spread(Lanes, -1)
    if module.asked.limited:
        limits = table[module.number("clearance")]
        stage_in(limits.data, limits.stride, first, end, array(Loose, state + LIMIT), 1, module.kind.width)
        state[BOUND] = state[LIMIT]
    if module.blind:
        add_coordinates(table, part(table, workspace, "q", module), state, first, end, module)
    place_spheres(table, spheres, state, module=module)
    if module.own_codes:
        over_visits(table, places, spheres, state, who, module=module)
    for kind in module.asked.kinds:
        over_obstacles(table, places, spheres, state, who, first, end, module=module, kind=kind)
    total, result = state[TOTAL], local(Vector, 1)
    result[0] = chosen(total == total, state[BEST], spread(Vector, math.nan))
    if "d_min" in module.outputs:
        rows = table[module.number("d_min")]
        stage_out(rows.data, rows.stride, first, end, array(Loose, result), None, 1, module.kind.width)
    if module.asked.gradient:
        find_points(table, places, state, who, first, end, module=module)
        rows, nv = table[module.number("dd_min_dq")], size(table, "nv", module)
        block = part(table, workspace, "block", module)
        find_gradient(table, state, block, nv, module=module)
        stage_out(rows.data, rows.stride, first, end, array(Loose, block), None, nv, module.kind.width)


def add_coordinates(
    table: Array[Argument],
    to: Array[Vector],
    state: Array[Vector],
    first: Word,
    end: Word,
    module: Static[DistanceModule],
) -> None:
    """Make the sum NaN if a coordinate is, also one that moves no shape."""
    rows, count = table[module.number("q")], size(table, "nq", module)
    stage_in(rows.data, rows.stride, first, end, array(Loose, to), count, module.kind.width)
    total = state[TOTAL]
    for k in range(count):
        x = to[k]
        total = chosen(x == x, total, x)
    state[TOTAL] = total


@dataclass(frozen=True)
class FormulaPair:
    """Two forms in the order of formulas, and whether the pair was in the other order."""

    one: int
    other: int
    swapped: bool

    @property
    def code(self) -> int:
        """The code of the pair in this order."""
        return len(FORMS) * self.one + self.other

    @property
    def sizes(self) -> tuple[int, int]:
        """Numbers of the two shapes."""
        return SIZES[self.one], SIZES[self.other]

    @property
    def shared(self) -> bool:
        """True if its formulas are so long that queries share a function."""
        return {self.one, self.other} <= {ROD, BRICK}

    def distance(self, x: Sequence[Any]) -> Sequence[Any]:
        """The distance of shapes with the numbers x."""
        return solids.distance(self.one, self.other, x)

    def nearest(self, x: Sequence[Any]) -> Sequence[Any]:
        """Distance, witness points and normal."""
        return solids.nearest_numbers(self.one, self.other, x)


@known
def pair_of(code: int) -> FormulaPair:
    """The pair of a code. A can is a rod, except on a flat."""
    one, other = divmod(code, len(FORMS))
    if FLAT not in (one, other):
        one, other = (ROD if form == CAN else form for form in (one, other))
    swapped = one == FLAT or (other != FLAT and one > other)
    return FormulaPair(other, one, True) if swapped else FormulaPair(one, other, False)


@dataclass(frozen=True)
class FormulaModule:
    """The module of a formula. `name`: "distance" or "nearest"."""

    pair: FormulaPair
    name: str
    kind: VectorType
    target: Target

    @property
    def sizes(self) -> tuple[int, int]:
        """Numbers of the two shapes."""
        return self.pair.sizes

    @property
    def traced(self) -> Traced:
        """The formula."""
        return Traced(self.kind, getattr(self.pair, self.name), sum(self.sizes))

    def text(self) -> str:
        """The text of the module."""
        return _printed(("distance formula", self), self.kind, self.target, formula, self)


def _printed(facts: object, kind: VectorType, target: Target, routine: Routine[..., None], module: object) -> str:
    def export(to: Module) -> None:
        for line in declarations(kind).splitlines():
            to.declare(line.removeprefix("declare "))
        to.export(routine, "kernel", module=module)

    return printed_module(facts, types_of(kind), export, attributes(target))


class DistanceModule:
    """The module of a query for shapes of some forms.

    Args:
        asked: the query.
        tables: its tables.
        inputs, outputs: names of arrays of rows.
        dtype: dtype of arrays and arithmetic.
        target: the processor.
    """

    def __init__(
        self,
        asked: Measured,
        tables: Tables,
        inputs: Sequence[str],
        outputs: Iterable[str],
        dtype: np.dtype[Any],
        target: Target,
    ) -> None:
        self.asked, self.tables, self.target = asked, tables, target
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self.kind = VectorType.of(dtype, target)
        self.forms, self.near_forms, self.blind = tables.forms, tables.near_forms, tables.blind
        self.own_codes = tables.own_codes
        self.names = ("frames", *self.inputs, *self.outputs, "sizes", *tables.arrays, *self.shared)
        self.sizes = (*tables.arrays, *COUNTS, *(f"part {name}" for name in PARTS))
        self._traced: dict[object, Traced] = {}

    @cached_property
    def shared(self) -> dict[str, FormulaModule]:
        """Modules of formulas that are called, by their names in the table."""
        codes = {code for code in self.own_codes if code != SPHERES}
        codes |= {len(FORMS) * form + other for form in self.near_forms for other in self.asked.obstacle_forms}
        pairs = {pair.code: pair for pair in map(pair_of, codes) if pair.shared}
        names = (["distance"] if self.asked.name in ("distances", "min_distance", "min_distance_gradient") else [])
        names += ["nearest"] if self.asked.name not in ("distances", "min_distance") else []
        return {
            self.called(name, pairs[code]): FormulaModule(pairs[code], name, self.kind, self.target)
            for name in names
            for code in sorted(pairs)
        }

    @staticmethod
    @known
    def called(name: str, pair: FormulaPair) -> str:
        """The name of a function in the table."""
        return f"{name} {pair.code}"

    def number(self, name: str) -> int:
        """Index of an array in the table."""
        return self.names.index(name)

    @property
    def slack(self) -> float:
        """Relative size of rounding errors of squared distances."""
        return 16.0 * self.epsilon

    @property
    def epsilon(self) -> float:
        """The distance from 1 to the next number."""
        return float(np.finfo(np.float64 if self.kind.scalar == "double" else np.float32).eps)

    def text(self) -> str:
        """The text of the module."""
        a = self.asked
        traits = a.name, a.kinds, a.limited, self.forms, self.near_forms, self.own_codes, self.blind
        facts = "distances", traits, self.names, self.kind, self.target

        return _printed(facts, self.kind, self.target, kernel, self)

    # Formulas.

    def _formula(self, key: object, text: Callable[[Sequence[Any]], Sequence[Any]], count: int) -> Traced:
        if key not in self._traced:
            self._traced[key] = Traced(self.kind, text, count)
        return self._traced[key]

    def placed(self, form: int) -> Traced:
        """A shape in world coordinates, from its numbers and those of a frame."""
        n = SIZES[form]
        return self._formula(("placed", form), lambda x: solids.placed(form, x[:n], x[n:]), n + FRAME)

    @property
    def larger(self) -> Traced:
        """A sphere that is larger by more than rounding errors of formulas, which are those of a root near zero."""
        slack = 2.0 * math.sqrt(self.epsilon)

        def text(x: Sequence[Any]) -> Sequence[Any]:
            return (*x[:3], x[3] + slack * (x[3] + (abs(x[0]) + abs(x[1]) + abs(x[2]))))

        return self._formula("larger", text, SPHERE)

    def obstacle(self, kind: str) -> Traced:
        """The numbers of an obstacle from those of a user."""
        return self._formula(("obstacle", kind), lambda x: solids.obstacle(kind, x), OBSTACLES[kind])

    def enclosed(self, form: int) -> Traced:
        """The sphere around a shape."""
        n = SIZES[form]
        return self._formula(("enclosed", form), lambda x: solids.enclosed(solids.built(form, x)), n)

    @property
    def between_balls(self) -> Traced:
        """The distance of two spheres, from the squared one of their centres and the sum of their radii."""
        return self._formula("balls", lambda x: (np.sqrt(x[0]) - x[1],), 2)

    def distance(self, pair: FormulaPair) -> Traced:
        """The distance of two shapes."""
        return self._formula(("distance", pair.code), pair.distance, sum(pair.sizes))

    def nearest(self, pair: FormulaPair) -> Traced:
        """Distance, witness points and normal of two shapes."""
        return self._formula(("nearest", pair.code), pair.nearest, sum(pair.sizes))

    @property
    def twist(self) -> Traced:
        """A degree of freedom's motion in world coordinates, from that in a frame, and the frame."""
        return self._formula("twist", lambda x: solids.world_twist(x[:TWIST], x[TWIST:]), TWIST + FRAME)

    @property
    def rate(self) -> Traced:
        """A distance's derivative by a degree of freedom, from its motion in a frame, the frame, normal and point."""

        def text(x: Sequence[Any]) -> Sequence[Any]:
            n = TWIST + FRAME
            return (solids.rate(solids.world_twist(x[:TWIST], x[TWIST:n]), x[n : n + 3], x[n + 3 :]),)

        return self._formula("rate", text, TWIST + FRAME + 6)

    @property
    def rate_of_twist(self) -> Traced:
        """The same from its twist in world coordinates."""
        return self._formula("rate of twist", lambda x: (solids.rate(x[:6], x[6:9], x[9:]),), TWIST + 6)


COUNTS = ("nq", "nv", "entries", "block pairs", "block obstacles")
"""Further numbers in the array of sizes: coordinates, velocities, entries of a result of a pair, pairs and obstacles of
a block."""
PARTS = ("places", "spheres", "q", "twists", "block", "obstacles")
"""Arrays of the workspace; their offsets are in the array of sizes."""
