"""Derivatives of distances: n . v of the witness points."""

from __future__ import annotations

import math
from typing import Any

from robodyn.algorithms.distances.solids import FORM_OF, FRAME, NEAREST, TWIST
from robodyn.compile.loops.gpu import rolled
from robodyn.compile.loops.language import (
    Array,
    Lane,
    Lanes,
    Loose,
    Static,
    Vector,
    Word,
    array,
    chosen,
    clear,
    convert,
    fma,
    local,
    routine,
    size_of,
    spread,
    switch,
)
from robodyn.compile.loops.table import Argument
from robodyn.engines.cpu.distances.formulas import numbers_at, pair_of, set_numbers
from robodyn.engines.cpu.distances.layout import (
    MOST_NUMBERS,
    POINT,
    RANK,
    SPHERE,
    TOTAL,
    DistanceModule,
    address_of,
    reals,
    scalars_at,
    size,
    words,
)
from robodyn.engines.cpu.distances.least_code import squared
from robodyn.engines.cpu.distances.shapes_code import before_kind, count_of, find_nearest, place_obstacle
from robodyn.engines.cpu.distances.tables import (
    DOF,
    FORMS,
    SPHERES,
    Dof,
    Group,
    Near,
    Pair,
    Visit,
)


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
    groups, visits = (
        array(Group, address_of(table, "groups", module)),
        array(Visit, address_of(table, "visits", module)),
    )
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


def keep(
    state: Array[Vector], near: Array[Vector], mask: Static[Any], rank: Static[Any], other_rank: Static[Any]
) -> None:
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
        zero, rate = spread(Vector, 0.0), rate * spread(Vector, numbers[8])
        plus = chosen((rank >= low) & (rank < high), rate, zero)
        minus = chosen((other_rank >= low) & (other_rank < high), rate, zero)
        to[v] = to[v] + (plus - minus)
    for k in range(nv):
        to[k] = chosen(total == total, to[k], spread(Vector, math.nan))


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
    dofs, n_bodies, n_dofs = (
        array(Dof, address_of(table, "dofs", module)),
        size(table, "parent", module),
        size(table, "dofs", module),
    )
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
