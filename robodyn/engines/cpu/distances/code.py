"""Loops over pairs of shapes, for a vector of W states.

    void kernel(ptr table, i64 first, i64 last, ptr workspace)

It processes the W states from `first` on only. The table has the frames of all links as vectors of states, then inputs
and outputs as rows, and at the end the addresses of the tables of `robodyn.engines.cpu.distances.tables` and of
functions of long formulas.
Formulas are traced once for each pair of forms, so compile time does not grow with the number of shapes, pairs or
obstacles.
"""

from __future__ import annotations

import math

from robodyn.algorithms.distances.solids import FORM_OF, NEAREST
from robodyn.algorithms.distances.tasks import OBSTACLES
from robodyn.compile.loops.language import (
    Address,
    Array,
    Lanes,
    Loose,
    LooseScalar,
    Static,
    Vector,
    Word,
    array,
    chosen,
    local,
    routine,
    size_of,
    spread,
    switch,
)
from robodyn.compile.loops.table import Argument
from robodyn.engines.cpu.distances.formulas import numbers_at, printed_with, set_numbers
from robodyn.engines.cpu.distances.gradient_code import find_gradient, find_points, find_row, find_twists
from robodyn.engines.cpu.distances.layout import (
    BEST,
    BOUND,
    LIMIT,
    MOST_NUMBERS,
    RANK,
    STATE,
    TOTAL,
    DistanceModule,
    address_of,
    part,
    size,
    words,
)
from robodyn.engines.cpu.distances.least_code import add_coordinates, over_obstacles, over_visits
from robodyn.engines.cpu.distances.shapes_code import (
    before_kind,
    count_of,
    distance,
    find_nearest,
    place_obstacle,
    place_shapes,
    place_spheres,
)
from robodyn.engines.cpu.distances.tables import (
    FORMS,
    Listed,
    Near,
)
from robodyn.engines.cpu.loops.runtime import stage_in, stage_out


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
    """Shapes and obstacles of a kind, a block of obstacles at a time. For one state, lanes are obstacles."""
    every, block = array(Near, address_of(table, "near", module)), part(table, workspace, "block", module)
    column_of, obstacles = words(table, "near columns", module), part(table, workspace, "obstacles", module)
    twists, near = part(table, workspace, "twists", module), local(Vector, NEAREST)
    entries, most = size(table, "entries", module), size(table, "block pairs", module)
    nv, rows, given = size(table, "nv", module), table[module.number(module.outputs[0])], table[module.number(kind)]
    before, total = before_kind(table, kind, module), 0
    for each in module.asked.kinds:
        total = total + count_of(table, each, module)
    start, count, itemsize = 0, count_of(table, kind, module), size_of(LooseScalar)
    while start < count:
        stop, vectors = min(start + most, count), 0
        if first == end:
            stop, vectors = min(start + module.kind.width, count), 1
            own = given.data + first * given.stride
            place_obstacle(own, OBSTACLES[kind] * itemsize, start, count - 1, 0, obstacles, kind=kind, module=module)
        else:
            vectors = stop - start
            for k in range(vectors):
                to = obstacles + k * MOST_NUMBERS
                place_obstacle(given.data, given.stride, first, end, start + k, to, kind=kind, module=module)
        for s in range(size(table, "near", module)):
            shape = every[s]
            for form in switch(shape.form, module.near_forms):
                code = len(FORMS) * form + FORM_OF[kind]
                for k in range(vectors):
                    other = obstacles + k * MOST_NUMBERS
                    store_result(
                        *(table, places + shape.at, other, shape.body, -1, near, twists, nv),
                        *(block + k * entries, code, module),
                    )
            column = size(table, "listed", module) + column_of[s] * total + before + start
            data, stride, low, high = rows.data + column * entries * itemsize, rows.stride, first, end
            if first == end:
                data, stride = data + first * stride - start * entries * itemsize, entries * itemsize
                low, high = start, stop - 1
            stage_out(data, stride, low, high, array(Loose, block), None, vectors * entries, module.kind.width)
        start = stop


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


def module_text(module: DistanceModule) -> str:
    """The text of a module."""
    asked = module.asked
    traits = asked.name, asked.kinds, asked.limited, module.forms, module.near_forms, module.own_codes, module.blind
    facts = "distances", traits, module.rows, module.own, module.kind, module.target
    return printed_with(facts, module.kind, module.target, kernel, module)
