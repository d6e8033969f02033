"""Rolled code for one robot: the shared module, and the arrays that it reads."""

from __future__ import annotations

from typing import Any

import numpy as np

from robodyn.compile.llvm.target import Target
from robodyn.compile.loop_plan import RolledPlan, lane_size, traits_of
from robodyn.core.joints import KINDS
from robodyn.core.model import Model
from robodyn.core.sweeps import PER_BODY, PER_VELOCITY, POINT, Algorithm, Ancestors, Inward, Links, Outward
from robodyn.engines.cpu.loops.code import RolledModule
from robodyn.internals.arguments import Array


class RolledProgram:
    """One algorithm on one model as rolled code.

    Args:
        model: the robot.
        algorithm: the algorithm.
        dtype: dtype of arrays and arithmetic.
        target: the processor.
        base: the motions of the base (V0, dV0) that are inputs.
        link: index of the query's link, if it is about one.
        width: states in a vector; None for as many as registers hold.
        vectors: inputs and outputs that hold vectors of states.
    """

    _MODULE: type[RolledModule] = RolledModule

    def __init__(
        self,
        model: Model,
        algorithm: Algorithm,
        dtype: np.dtype[Any],
        target: Target,
        base: tuple[str, ...] = (),
        link: int | None = None,
        width: int | None = None,
        vectors: frozenset[str] = frozenset(),
    ) -> None:
        self.model, self.dtype = model, dtype
        traits = self.traits(model, base)[0]
        self.plan = self._plan(algorithm, base, link, traits.mimic)
        self.module = self._make_module(algorithm, traits, dtype, target, base, width, vectors)
        self.layout, self.workspace_bytes = self._layout()
        self.arrays = [self._array(name) for name in self.module.model_arrays]

    @classmethod
    def traits(cls, model: Model, base: tuple[str, ...]) -> tuple[Any, ...]:
        """The traits of a robot that determine the module's text; `Traits` are the first of them."""
        return (traits_of(model),)

    def _make_module(self, *of: Any) -> RolledModule:
        """The module. `of`: arguments of `RolledModule`."""
        return self._MODULE(*of)

    def _plan(self, algorithm: Algorithm, base: tuple[str, ...], link: int | None, mimic: bool) -> RolledPlan:
        return RolledPlan(self.model, algorithm, base, link, mimic)

    @property
    def steps(self) -> int:
        """Steps of its longest sweep without lanes."""
        return self.model.n_bodies

    @property
    def operations(self) -> int:
        """Floating-point operations for one state."""
        tracer, kinds = self.module.tracer, self.model.joint_kind
        total = 0
        for group in tracer.groups:
            sweep = self.plan.algorithm.sweeps[group[0]]
            if isinstance(sweep, Outward | Inward):
                bodies = kinds
                if sweep.lanes:
                    assert self.plan.lanes is not None
                    bodies = kinds[self.plan.lanes.pairs[group[0]][:, 0]]
                times = np.bincount(bodies, minlength=len(KINDS)).tolist()
                total += sum(
                    n * tracer.bodies(group, KINDS[code]).program.operations for code, n in enumerate(times) if n
                )
            elif isinstance(sweep, Ancestors):
                total += self._climbing_operations(sweep)
            elif isinstance(sweep, Links):
                total += (1 if sweep.of_link else len(self.model.link_names)) * tracer.links(sweep).program.operations
            else:
                total += tracer.world(sweep).program.operations
        return total

    def _climbing_operations(self, sweep: Ancestors) -> int:
        model, tracer, tree = self.model, self.module.tracer, self.model.tree
        bodies = np.arange(model.n_bodies)
        if sweep.from_links:
            bodies = model.link_body if sweep.of_links else model.link_body[[self.plan.link or 0]]
        bodies = bodies[bodies >= 0]
        starts = np.bincount(model.joint_kind[bodies], minlength=len(KINDS)).tolist()
        total: int = sum(n * tracer.start(sweep, KINDS[code]).program.operations for code, n in enumerate(starts) if n)
        for above in np.unique(model.joint_kind).tolist():
            # A body is on the paths of its subtree's bodies, which are consecutive in preorder.
            subtrees, change = np.flatnonzero(model.joint_kind == above), np.zeros(model.n_bodies + 1, np.int64)
            np.add.at(change, tree.preorder_rank[subtrees], 1)
            np.add.at(change, tree.preorder_rank[subtrees] + tree.subtree_size[subtrees], -1)
            on_way = np.cumsum(change)[tree.preorder_rank[bodies]]
            visits = np.bincount(model.joint_kind[bodies], on_way, len(KINDS)).tolist()
            total += sum(
                int(n) * tracer.visit(sweep, KINDS[above], KINDS[code]).program.operations
                for code, n in enumerate(visits)
                if n
            )
        return total

    def _vectors(self, array: str) -> int:
        """Number of vectors in an array of the workspace."""
        what, name = array.split(" ", 1)
        if array in self.module.direct:
            return 0
        model, algorithm = self.model, self.plan.algorithm
        if what == "field":
            return self.plan.field_vectors(name, self.module.tracer.stored(name))
        if what == "carry":
            return algorithm.fields[name].size(max(kind.nv for kind in KINDS))
        if what == "out":
            return self.plan.output_vectors(name)
        if what == "in" and name in ("q", *PER_VELOCITY):
            return model.nq_tree if name == "q" else model.nv_tree
        return self._columns(name)

    def _columns(self, name: str) -> int:
        """Number of scalars of one state of an input or output."""
        model = self.model
        if name in self.plan.algorithm.outputs:
            return self.plan.output_columns(name)
        per_body = {each: model.n_bodies * width for each, width in PER_BODY.items()}
        of_constraints = {"targets": 12 * model.n_constraints, "active": model.n_constraints, "restitution": 1}
        sizes = {"q": model.nq, **per_body, **of_constraints, "V0": 6, "dV0": 6, "point": POINT}
        return sizes.get(name, model.nv)

    def _layout(self) -> tuple[Array, int]:
        """The entries of the layout, and the bytes of a workspace."""
        module, lanes = self.module, self.plan.lanes
        numbers = self._integers()
        names = (*module.inputs, *self.plan.algorithm.outputs)
        numbers.update({f"columns {name}": self._columns(name) for name in names})
        numbers.update({f"tree {name}": self._vectors(f"in {name}") for name in module.raw})
        for name in module.lane_fields:
            assert lanes is not None
            size = lanes.n_slots * lane_size(self.plan.algorithm.fields[name])
            numbers[f"zeroed {name}"] = size if name in lanes.zeroed else 0
        offset = 0
        for array in module.workspace_arrays:
            numbers[f"vectors {array}"] = self._vectors(array)
            numbers[f"offset {array}"] = offset
            offset += self._vectors(array) * module.kind.bytes
        return np.array([numbers[name] for name in module.integers], dtype=np.int64), offset

    def _integers(self) -> dict[str, int]:
        """Sizes in the layout."""
        return dict(self.plan.integers)

    def _array(self, name: str) -> Array:
        """An array of the model in the form that code reads: 64-bit integers, or scalars of the dtype, C-contiguous."""
        model = self.model
        if name == "layout":
            return self.layout
        if name.startswith("pairs "):
            assert self.plan.lanes is not None
            return self.plan.lanes.pairs[int(name.removeprefix("pairs "))]
        if name.startswith(("gather ", "weight ")):
            gather = self.plan.gathers[name.split(" ", 1)[1]]
            chosen = gather.pairs if name.startswith("gather ") else gather.weight
            return np.ascontiguousarray(chosen, np.int64 if name.startswith("gather ") else self.dtype)
        found = {
            "parent": model.parent,
            "kind": model.joint_kind,
            "q_start": model.q_start,
            "v_start": model.v_start,
            "link_body": model.link_body,
            "q_source": model.q_source,
            "v_source": model.v_source,
        }
        if name in found:
            return np.ascontiguousarray(found[name], np.int64)
        real = {
            "X": model.link_X,
            "armature": model.tree_armature,
            "own_armature": model.armature,
            "own_damping": model.damping,
            "v_offset": np.zeros(model.nv_tree),
        }
        return np.ascontiguousarray(real[name] if name in real else getattr(model, name), self.dtype)
