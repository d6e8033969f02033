"""Shapes and obstacles in world coordinates, and the formulas of pairs of them."""

from __future__ import annotations

from robodyn.algorithms.distances.solids import BALL, FORM_OF, FRAME, SIZES
from robodyn.algorithms.distances.tasks import OBSTACLES
from robodyn.compile.loops.language import (
    Address,
    Array,
    Loose,
    Static,
    UnalignedScalar,
    Vector,
    Word,
    anything,
    array,
    call,
    fma,
    inserted,
    local,
    routine,
    spread,
)
from robodyn.compile.loops.table import Argument
from robodyn.engines.cpu.distances.formulas import numbers_at, pair_of, set_numbers
from robodyn.engines.cpu.distances.layout import (
    SPHERE,
    TOTAL,
    DistanceModule,
    address_of,
    reals,
    scalars_at,
    size,
    words,
)
from robodyn.engines.cpu.distances.tables import (
    NUMBERS,
    SPACE,
    Cluster,
    Placed,
)


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


def count_of(table: Array[Argument], kind: Static[str], module: Static[DistanceModule]) -> Word:
    """Number of obstacles of a kind."""
    return words(table, "counts", module)[module.asked.kinds.index(kind)]


def before_kind(table: Array[Argument], kind: Static[str], module: Static[DistanceModule]) -> Word:
    """Number of obstacles of the kinds before."""
    total = 0
    for each in module.asked.kinds[: module.asked.kinds.index(kind)]:
        total = total + count_of(table, each, module)
    return total
