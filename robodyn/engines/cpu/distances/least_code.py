"""The least distance, and which pair it belongs to.

A pair of links is skipped if the spheres around them are at least as far apart as what was found so far, in all lanes;
and so is a pair of shapes. Spheres are a little larger than shapes, by more than rounding errors, so that no lane
depends on the others. Comparisons with NaN let pairs be computed. As a least value would hide NaN, terms that are NaN
with a coordinate, a frame, an obstacle or a distance are summed, and decide at the end.
"""

from __future__ import annotations

import math

from robodyn.algorithms.distances.solids import BALL, FLAT, FORM_OF, SIZES
from robodyn.compile.loops.language import (
    Array,
    Flag,
    Lane,
    Lanes,
    Loose,
    Static,
    Vector,
    Word,
    all_of,
    array,
    chosen,
    convert,
    fma,
    known,
    local,
    routine,
    spread,
    switch,
)
from robodyn.compile.loops.table import Argument
from robodyn.engines.cpu.distances.layout import (
    BEST,
    BOUND,
    FAR,
    LIMIT,
    MOST_NUMBERS,
    SPHERE,
    TOTAL,
    DistanceModule,
    address_of,
    size,
)
from robodyn.engines.cpu.distances.shapes_code import before_kind, count_of, distance, place_obstacle
from robodyn.engines.cpu.distances.tables import (
    FORMS,
    NUMBERS,
    SPHERES,
    Cluster,
    Group,
    Near,
    Pair,
    Visit,
)
from robodyn.engines.cpu.loops.runtime import stage_in


def squared(one: Array[Vector], other: Array[Vector]) -> Vector:
    """The squared distance of two centres."""
    x, y, z = [one[k] - other[k] for k in range(3)]
    return fma(z, z, fma(y, y, x * x))


def within(bound: Vector, radii: Vector) -> Vector:
    """The square of the distance of centres below which a pair matters."""
    reach = bound + radii
    reach = chosen(reach > 0.0, reach, spread(Vector, 0.0))
    return reach * reach


def is_far(one: Array[Vector], other: Array[Vector], bound: Vector) -> Flag:
    """True if two spheres are too far apart to matter in any lane."""
    return all_of(squared(one, other) >= within(bound, one[3] + other[3]))


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
    near = within(state[BOUND], radii) * (1.0 + module.slack)
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
        reach = within(state[BOUND], one[radius_of(form)] + radius[0])
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
    visits, groups = (
        array(Visit, address_of(table, "visits", module)),
        array(Group, address_of(table, "groups", module)),
    )
    pairs = array(Pair, address_of(table, "pairs", module))
    for v in range(size(table, "visits", module)):
        visit = visits[v]
        one_sphere, other_sphere = spheres + visit.one * SPHERE, spheres + visit.other * SPHERE
        if visit.tested != 0 and is_far(one_sphere, other_sphere, state[BOUND]):
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
                    pair, form = pairs[group.first], code % len(FORMS)
                    a, b = places + Word(pair.one), places + Word(pair.other)
                    take_other(table, state, who, a, b, b + radius_of(form), group.first, code, module)


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
    clusters, every = (
        array(Cluster, address_of(table, "clusters", module)),
        array(Near, address_of(table, "near", module)),
    )
    obstacle, rows, n_near = local(Vector, MOST_NUMBERS), table[module.number(kind)], size(table, "near", module)
    other, before = FORM_OF[kind], before_kind(table, kind, module)
    for k in range(count_of(table, kind, module)):
        place_obstacle(rows.data, rows.stride, first, end, k, obstacle, kind=kind, module=module)
        add_obstacle(state, obstacle, kind, module)
        for c in range(size(table, "clusters", module)):
            cluster = clusters[c]
            if cluster.tested != 0 and is_far(spheres + c * SPHERE, obstacle + NUMBERS, state[BOUND]):
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


def add_obstacle(
    state: Array[Vector], obstacle: Array[Vector], kind: Static[str], module: Static[DistanceModule]
) -> None:
    """Make the sum NaN if an obstacle is. Spheres may be at infinity."""
    total = state[TOTAL]
    for k in range(SIZES[FORM_OF[kind]]):
        x = obstacle[k]
        total = chosen(x == x, total, x) if kind == "spheres" else fma(spread(Vector, 0.0), x, total)
    state[TOTAL] = total


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
