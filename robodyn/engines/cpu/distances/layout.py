"""The arrays of loops over pairs of shapes, and the formulas that these need."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from robodyn.algorithms.distances import solids
from robodyn.algorithms.distances.solids import FRAME, SIZES, TWIST
from robodyn.algorithms.distances.tasks import OBSTACLES, Measured
from robodyn.compile.llvm.target import Target
from robodyn.compile.llvm.vectors import VectorType
from robodyn.compile.loops.language import (
    Address,
    Array,
    LooseScalar,
    Static,
    Vector,
    Word,
    array,
    known,
    spread,
)
from robodyn.compile.loops.table import Argument
from robodyn.engines.cpu.distances.formulas import FormulaModule, FormulaPair, Traced, pair_of
from robodyn.engines.cpu.distances.tables import FORMS, NUMBERS, SPHERES, Tables
from robodyn.internals.cached import cached_property

FAR = 1e30
"""A distance above all others."""
BEST, BOUND, TOTAL, LIMIT, POINT, RANK, STATE = 0, 1, 2, 3, 4, 10, 12
"""Vectors of what is found: the least distance; the one below which others matter; the sum that is NaN if anything is;
the clearance; the normal and a point on the line through the witness points; ranks of both bodies."""
SPHERE = 4
MOST_NUMBERS = NUMBERS + SPHERE
"""Numbers of an obstacle, and of the sphere around it."""
COUNTS = ("nq", "nv", "entries", "block pairs")
"""Further numbers in the array of sizes: coordinates, velocities, entries of a result of a pair, pairs of a block."""
PARTS = ("places", "spheres", "q", "twists", "block", "obstacles")
"""Arrays of the workspace; their offsets are in the array of sizes."""


def scalars_at(at: Array[LooseScalar], count: Static[int]) -> list[Vector]:
    """Consecutive numbers of the model, spread."""
    return [spread(Vector, at[k]) for k in range(count)]


def address_of(table: Array[Argument], name: Static[str], module: Static[DistanceModule]) -> Address:
    """The address of an array."""
    if name in module.rows:
        found: Address = table[module.number(name)].data
    else:
        found = array(Address, table[len(module.rows)].data)[module.own.index(name)]
    return found


def words(table: Array[Argument], name: Static[str], module: Static[DistanceModule]) -> Array[Word]:
    """An array of integers."""
    return array(Word, address_of(table, name, module))


def reals(table: Array[Argument], name: Static[str], module: Static[DistanceModule]) -> Array[LooseScalar]:
    """An array of the model's numbers."""
    return array(LooseScalar, address_of(table, name, module))


def size(table: Array[Argument], name: Static[str], module: Static[DistanceModule]) -> Word:
    """Number of rows of a table."""
    return words(table, "sizes", module)[module.sizes.index(name)]


def part(
    table: Array[Argument], workspace: Address, name: Static[str], module: Static[DistanceModule]
) -> Array[Vector]:
    """An array of the workspace."""
    return array(Vector, workspace + words(table, "sizes", module)[module.sizes.index("part " + name)])


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
        self.rows = ("frames", *self.inputs, *self.outputs)
        self.own = ("sizes", *tables.arrays, *self.shared)
        self.sizes = (*tables.arrays, *COUNTS, *(f"part {name}" for name in PARTS))
        self._traced: dict[object, Traced] = {}

    @cached_property
    def shared(self) -> dict[str, FormulaModule]:
        """Modules of formulas that are called, by their names in the table."""
        codes = {code for code in self.own_codes if code != SPHERES}
        codes |= {len(FORMS) * form + other for form in self.near_forms for other in self.asked.obstacle_forms}
        pairs = {pair.code: pair for pair in map(pair_of, codes) if pair.shared}
        names = ["distance"] if self.asked.name in ("distances", "min_distance", "min_distance_gradient") else []
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
        """Index of an array of vectors or rows in the table."""
        return self.rows.index(name)

    @property
    def slack(self) -> float:
        """Relative size of rounding errors of squared distances."""
        return 16.0 * self.epsilon

    @property
    def epsilon(self) -> float:
        """The distance from 1 to the next number."""
        return float(np.finfo(np.float64 if self.kind.scalar == "double" else np.float32).eps)

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
