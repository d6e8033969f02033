"""The arrays of rolled code, and their order."""

from __future__ import annotations

from typing import Any

import numpy as np

from robodyn.algorithms.tasks import Sized
from robodyn.compile.llvm.target import Target
from robodyn.compile.llvm.vectors import VectorType
from robodyn.compile.loop_plan import Traits, is_block, lane_fields, link_fields, must_be_zeroed
from robodyn.compile.loops.blocks import Number
from robodyn.compile.tracing.rolled import StepTracer
from robodyn.core.joints import KINDS, JointKind
from robodyn.core.sweeps import (
    INPUTS,
    PER_VELOCITY,
    Algorithm,
    Ancestors,
    BodyOutput,
    ColumnOutput,
    DofOutput,
    FieldOutput,
    LinkColumnOutput,
    LinkOutput,
    PairOutput,
)
from robodyn.engines.cpu.loops.runtime import types_of


class RolledLayout:
    """Arrays of one algorithm's rolled code for robots with some traits.

    `model_arrays` follow inputs and outputs in the table; `workspace_arrays` are parts of the workspace; `integers` are
    names of the entries of the array "layout".

    Args:
        algorithm: the algorithm.
        traits: known traits of the robots.
        dtype: dtype of arrays and arithmetic.
        target: the processor.
        base: the motions of the base (V0, dV0) that are inputs.
        width: states in a vector; 1 for single states, None for as many as registers hold.
        vectors: inputs and outputs that hold vectors of states, for one vector of states only.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        traits: Traits,
        dtype: np.dtype[Any],
        target: Target,
        base: tuple[str, ...] = (),
        width: int | None = None,
        vectors: frozenset[str] = frozenset(),
    ) -> None:
        self.algorithm, self.traits, self.target, self.base = algorithm, traits, target, base
        self.vectors = vectors
        self.kind = VectorType.of(dtype, target, width)
        self.lane_fields, self.link_fields = lane_fields(algorithm), link_fields(algorithm)
        self.tracer = self._step_tracer([KINDS[code] for code in traits.kinds])
        self.inputs = (*(name for name in INPUTS if name in algorithm.inputs), *base)
        lanes = [k for k, sweep in enumerate(algorithm.sweeps) if getattr(sweep, "lanes", False)]
        self.gathered = [
            name
            for name, output in algorithm.outputs.items()
            if isinstance(output, ColumnOutput | FieldOutput)
            or (isinstance(output, DofOutput) and (output.lanes or traits.mimic))
        ]
        self.carried = [name for sweep in algorithm.sweeps if isinstance(sweep, Ancestors) for name in sweep.carries]
        asked = (output.diagonal for output in algorithm.outputs.values() if isinstance(output, PairOutput))
        self.diagonals = tuple(dict.fromkeys(name for name in asked if name is not None))
        self.model_arrays = self._model_arrays(lanes)
        own = [name for name in algorithm.outputs if name in self.gathered or self._has_blocks(name)]
        self.raw = [name for name in self.inputs if self._coupled(name)]
        self.workspace_arrays = [
            *(f"in {name}" for name in self.inputs),
            *(f"raw {name}" for name in self.raw),
            *(f"field {name}" for name in algorithm.fields if not is_block(algorithm, name)),
            *(f"carry {name}" for name in self.carried),
            *(f"out {name}" for name in own),
            *self._more_arrays(),
        ]
        self.direct = self._direct()
        self.integers = [
            *("n_bodies", "nv", "n_links", "link"),
            *self._more_integers(),
            *(f"n_pairs {k}" for k in lanes),
            *(f"n_gather {name}" for name in self.gathered),
            *(f"columns {name}" for name in (*self.inputs, *self.raw, *algorithm.outputs)),
            *(f"tree {name}" for name in self.raw),
            *(f"zeroed {name}" for name in sorted(self.lane_fields)),
            *(f"vectors {name}" for name in self.workspace_arrays),
            *(f"offset {name}" for name in self.workspace_arrays),
        ]

    def _step_tracer(self, kinds: list[JointKind]) -> StepTracer:
        return StepTracer(self.algorithm, kinds, self.base, self.traits.armature)

    def _more_arrays(self) -> list[str]:
        """More arrays of the workspace."""
        return []

    def _more_integers(self) -> list[str]:
        """More entries of the layout."""
        return []

    def _direct(self) -> dict[str, str]:
        """Arrays of the workspace that are replaced by a row of the user's own array: names of the inputs or outputs by
        name.

        Single states need no transposition. Copies of coordinates, or of a large matrix, would cost time and memory on
        large trees.
        """
        if self.kind.width > 1:
            return {}
        found = {f"in {name}": name for name in self.inputs if name not in self.raw}
        for name, output in self.algorithm.outputs.items():
            if isinstance(output, DofOutput) and name not in self.gathered:
                zeroed = must_be_zeroed(self.algorithm)
                if output.field not in zeroed and self.algorithm.fields[output.field].size(1) == 1:
                    found[f"field {output.field}"] = name
            elif isinstance(output, LinkOutput) and not output.of_link:
                found[f"field {output.field}"] = name
            elif self._has_blocks(name):
                found[f"out {name}"] = name
        return found

    def _has_blocks(self, name: str) -> bool:
        return isinstance(self.algorithm.outputs[name], PairOutput | BodyOutput | LinkColumnOutput | Sized)

    def _coupled(self, name: str) -> bool:
        return self.traits.mimic and name in ("q", *PER_VELOCITY)

    def _model_arrays(self, lanes: list[int]) -> list[str]:
        couplings = ("q_source", "q_multiplier", "q_offset", "v_source", "v_multiplier", "v_offset")
        return [
            *("layout", "parent", "kind", "q_start", "v_start", "Xtree", "inertia", "pitch", "armature", "gravity"),
            *("X", "link_body"),
            *(couplings if self.traits.mimic else ()),
            *(f"own_{name}" for name in self.diagonals),
            *(f"pairs {k}" for k in lanes),
            *(part for name in self.gathered for part in (f"gather {name}", f"weight {name}")),
        ]

    def table_of(self, what: str) -> str | None:
        """The array with the first coordinate ("q_start") or velocity ("v_start") of a body, or with its row in inputs
        with one row per body ("row"). None if the index is the body's number."""
        return None if self.traits.single or what == "row" else what

    def place_of(self, field: str) -> str:
        """The table for fields with a value per degree of freedom: they are in the order of velocities."""
        return "v_start"

    @property
    def types(self) -> dict[str, Number]:
        """Types in the module, by name. Vectors that may be in the user's own arrays have no alignment."""
        types = types_of(self.kind)
        return {**types, "Vector": types["Unaligned" if self.direct else "Loose"]}

    def base_number(self, array: str) -> int:
        """Index of an array among the addresses of arrays."""
        return [*self.model_arrays, *self.workspace_arrays].index(array)

    def layout_number(self, name: str) -> int:
        """Index of an entry of the layout."""
        return self.integers.index(name)
