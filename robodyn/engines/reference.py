"""The reference engine: runs algorithms directly on NumPy arrays.

A scalar of an algorithm is an array (bodies of one group, lanes, batch), or a number where the array has one entry.
Bodies of the same depth and joint kind form a group and are computed together. So the Python loop is over groups, not
over bodies. All other engines are tested against this one, so its code is simple rather than fast.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from robodyn.algorithms.dense import solve
from robodyn.algorithms.tasks import Products, Solve, Stage, Task
from robodyn.compile.tracing.unrolled import output_shape
from robodyn.core.joints import KINDS, JointKind
from robodyn.core.model import Model
from robodyn.core.spatial import ZERO_MOTION, Motion
from robodyn.core.sweeps import (
    PER_VELOCITY,
    Algorithm,
    Ancestors,
    BodyOutput,
    ColumnOutput,
    DofOutput,
    FieldOutput,
    FieldType,
    Inward,
    LinkColumnOutput,
    LinkOutput,
    Links,
    Outward,
    PairOutput,
    Sweep,
    World,
    WorldOutput,
    Written,
    flatten,
)
from robodyn.engines.interpreted import Interpreted
from robodyn.engines.protocol import Engine, Explanation
from robodyn.engines.query_table import QuerySpec
from robodyn.engines.reference_groups import Constants, Group, Schedule, Where, scalars
from robodyn.engines.reference_views import Bodies, Carried, FieldView, LinkValues, WorldValues
from robodyn.internals.arguments import Array
from robodyn.internals.cached import cached_property
from robodyn.internals.tuning import CHUNK_SCALARS, MATRICES_FOR_SCALARS, MAX_TRACED_BODIES

_BASE_MOTION = ("V0", "dV0")


class Run:
    """Runs one algorithm on one chunk of a batch: allocates fields, runs sweeps, returns outputs."""

    def __init__(
        self,
        model: Model,
        schedule: Schedule,
        algorithm: Algorithm,
        inputs: Mapping[str, Array],
        batch: int,
        dtype: np.dtype[Any],
        link: int | None,
    ) -> None:
        self.model, self.schedule, self.algorithm, self.inputs = model, schedule, algorithm, inputs
        self.batch, self.dtype, self.link = batch, dtype, link
        self.store: dict[str, Array | dict[str, Array]] = {}
        self.link_fields: dict[str, Array] = {}
        self.matrices: dict[str, Array] = {
            name: np.zeros((output.rows or 1, model.nv, model.nv, batch), dtype)
            for name, output in algorithm.outputs.items()
            if isinstance(output, PairOutput)
        }
        self.matrices |= {
            name: np.zeros((model.nv, model.n_bodies, output.width, batch), dtype)
            for name, output in algorithm.outputs.items()
            if isinstance(output, BodyOutput)
        }
        self.matrices |= {
            name: np.zeros((model.nv, len(model.link_names), output.rows, batch), dtype)
            for name, output in algorithm.outputs.items()
            if isinstance(output, LinkColumnOutput)
        }
        self.tree_inputs = self._tree_inputs()
        self.lane_fields = {
            name
            for sweep in algorithm.sweeps
            if getattr(sweep, "lanes", False)
            for name in (*sweep.writes, *getattr(sweep, "gives", ()))
        }

    # Inputs of steps.

    def _tree_inputs(self) -> dict[str, Array]:
        """Inputs over tree coordinates, batch last. A mimicking joint takes its values from the joint that it
        follows."""
        model = self.model
        out: dict[str, Array] = {}
        for name in ("q", *PER_VELOCITY):
            if name not in self.algorithm.inputs:
                continue
            values = np.ascontiguousarray(self.inputs[name].T)
            if model.has_mimic and name == "q":
                values = values[model.q_source] * model.q_multiplier.astype(self.dtype)[:, None]
                values += model.q_offset.astype(self.dtype)[:, None]
            elif model.has_mimic:
                values = values[model.v_source] * model.v_multiplier.astype(self.dtype)[:, None]
            out[name] = values
        return out

    def tree_input(self, name: str, index: Array) -> tuple[Any, ...]:
        """Input scalars (m, 1, B) at tree coordinates (m, k); zeros for an input that the algorithm does not list."""
        if name not in self.tree_inputs:
            return (0.0,) * int(index.shape[1])
        values = self.tree_inputs[name]
        if index.size == 1:  # most groups of a robot; a view is faster than a copy
            row = values[index[0, 0]]
            return (row[0] if self.batch == 1 else row[None, None],)
        return tuple(scalars(values[index.T][:, :, None]))

    def base_motion(self, name: str) -> Motion:
        """V0 or dV0 as scalars (1, 1, B); zero if it is not an input."""
        motion = self.inputs.get(name)
        if motion is None:
            return ZERO_MOTION
        components = motion.T[:, None, None, :]
        return Motion(tuple(components[:3]), tuple(components[3:]))

    # Fields: arrays (size, n + 1, lanes, B), rows in the schedule's order, or one array per joint kind.

    def _array(self, name: str, kind: JointKind | None) -> Array:
        field = self.algorithm.fields[name]
        width = self.model.nv_tree if name in self.lane_fields else 1
        if field.copies is None:
            if name not in self.store:
                shape = (field.size(0), self.model.n_bodies + 1, width, self.batch)
                self.store[name] = np.zeros(shape, self.dtype)
            return self.store[name]  # type: ignore[return-value]
        assert kind is not None
        per_kind: dict[str, Array] = self.store.setdefault(name, {})  # type: ignore[assignment]
        if kind.name not in per_kind:
            n = int(np.count_nonzero(self.model.joint_kind == KINDS.index(kind)))
            per_kind[kind.name] = np.zeros((field.size(kind.nv), n, width, self.batch), self.dtype)
        return per_kind[kind.name]

    def _rows(self, field: FieldType, where: Where) -> Where:
        if field.copies is None:
            return where
        if isinstance(where, slice):
            first = int(self.schedule.slot[where.start])
            return slice(first, first + where.stop - where.start)
        return self.schedule.slot[where]

    def read(self, name: str, where: Where, kind: JointKind | None) -> Any:
        """The value of a field at some rows."""
        field = self.algorithm.fields[name]
        array = self._array(name, kind)
        return field.build(iter(scalars(array[:, self._rows(field, where)])), 0 if kind is None else kind.nv)

    def write(self, values: Written, where: Where, kind: JointKind | None) -> None:
        """Set fields at some rows."""
        for name, value in values.items():
            array = self._array(name, kind)
            rows = self._rows(self.algorithm.fields[name], where)
            for target, scalar in zip(array, flatten(value), strict=True):
                target[rows] = scalar

    def add_to_parents(self, values: Written, group: Group) -> None:
        """Add values to fields of the bodies' parents; several bodies may have the same parent."""
        n = group.places.stop - group.places.start
        for name, value in values.items():
            for target, scalar in zip(self._array(name, None), flatten(value), strict=True):
                if group.siblings:
                    np.add.at(target, group.parents, np.broadcast_to(scalar, (n, *target.shape[1:])))  # type: ignore[arg-type]
                else:
                    target[group.parents] += scalar

    def bodies(self, kind: JointKind, bodies: Array, kept: Constants | None = None) -> Any:
        """Bodies as a step's `body` (`robodyn.core.sweeps.Body`); its scalars are arrays."""
        return Bodies(self, kept or Constants(self.model, self.dtype, kind, bodies))

    # Sweeps.

    def sweep(self, sweep: Sweep) -> None:
        """Run one sweep."""
        {
            World: self._world,
            Outward: self._outward,
            Inward: self._inward,
            Ancestors: self._ancestors,
            Links: self._links,
        }[type(sweep)](sweep)  # type: ignore[operator]

    def _world(self, sweep: World) -> None:
        row = slice(self.model.n_bodies, self.model.n_bodies + 1)
        self.write(sweep.step(WorldValues(self), FieldView(self, sweep.reads, row, None)), row, None)

    def _outward(self, sweep: Outward) -> None:
        for group in self.schedule.groups:
            kind, body = group.kind, self.bodies(group.kind, group.bodies, group.kept)
            own = FieldView(self, sweep.reads, group.places, kind)
            parent = FieldView(self, sweep.carries, group.parents, None)
            self.write(sweep.step(body, own, parent), group.places, kind)

    def _inward(self, sweep: Inward) -> None:
        for group in reversed(self.schedule.groups):
            kind, body = group.kind, self.bodies(group.kind, group.bodies, group.kept)
            # Fields that children add to may not exist yet: leaves have no children.
            for name in sweep.gives:
                self._array(name, None)
            own = FieldView(self, sweep.reads, group.places, kind)
            written, to_parents = sweep.step(body, own)
            self.write(written, group.places, kind)
            self.add_to_parents(to_parents, group)

    def _links(self, sweep: Links) -> None:
        links = np.array([self.link]) if sweep.of_link else np.arange(len(self.model.link_names))
        own = FieldView(self, sweep.reads, self.schedule.place[self.model.link_body[links]], None)
        for name, value in sweep.step(LinkValues(self, links), own).items():
            array = np.empty((self.algorithm.fields[name].size(0), links.size, self.batch), self.dtype)
            for target, scalar in zip(array, flatten(value), strict=True):
                target[...] = scalar[:, 0] if isinstance(scalar, np.ndarray) else scalar
            self.link_fields[name] = array

    def _ancestors(self, sweep: Ancestors) -> None:
        model, place = self.model, self.schedule.place
        origins = starts = np.arange(model.n_bodies)
        if sweep.from_links:
            links = np.arange(len(model.link_names)) if sweep.of_links else np.array([self.link])
            origins = links[model.link_body[links] >= 0]
            starts = model.link_body[origins]
        for code, kind in enumerate(KINDS):
            chosen = model.joint_kind[starts] == code
            origin, first = origins[chosen], starts[chosen]
            if first.size:
                link = LinkValues(self, origin) if sweep.from_links else None
                bodies = self.bodies(kind, first)
                carry = sweep.start(bodies, FieldView(self, sweep.reads, place[first], kind), link)  # type: ignore[arg-type]
                self._climb(sweep, kind, origin, first, dict(carry))

    def _climb(self, sweep: Ancestors, kind: JointKind, origin: Array, first: Array, carry: Written) -> None:
        """Visit the bodies `first` and their ancestors, joint kind by joint kind. `origin`: the body or link at which
        each visit starts."""
        place = self.schedule.place
        work = [(origin, first, first, carry)]
        while work:
            origin, first, at, carry = work.pop()
            here = self.model.joint_kind[at]
            for code in np.flatnonzero(np.bincount(here)):
                chosen = here == code
                i, j = first[chosen], at[chosen]
                carried = {name: _select(value, chosen) for name, value in carry.items()}
                body_j = self.bodies(KINDS[code], j)
                body_i = self.bodies(kind, i)
                own_j = FieldView(self, sweep.visits, place[j], KINDS[code])
                own_i = FieldView(self, sweep.reads, place[i], kind)
                written, carried_on = sweep.visit(body_j, own_j, body_i, own_i, Carried(carried))
                if sweep.of_link:
                    self.write(written, place[j], KINDS[code])
                else:
                    self._scatter(written, body_j.dofs, body_i.dofs, j == i)
                    self._scatter_rows(written, body_j.dofs, origin[chosen])
                parents = self.model.parent[j]
                inside = parents >= 0
                if inside.any():
                    left = {name: _select(value, inside) for name, value in carried_on.items()}
                    work.append((origin[chosen][inside], i[inside], parents[inside], left))

    def _scatter(self, written: Written, rows: Array, columns: Array, same: Array) -> None:
        """Add blocks (rows of j, columns of i) to the output matrices."""
        model = self.model
        for name, output in self.algorithm.outputs.items():
            if not isinstance(output, PairOutput):
                continue
            for blocks in output.blocks:
                keep = np.ones(same.size, dtype=bool) if blocks.diagonal else ~same
                for r, entries in enumerate(written[blocks.field]):
                    for c, entry in enumerate(entries):
                        at = (rows[keep, r], columns[keep, c])
                        weight = model.v_multiplier[at[0]] * model.v_multiplier[at[1]]
                        at = (model.v_source[at[0]], model.v_source[at[1]])
                        for matrix, scalar in zip(self.matrices[name], flatten(entry), strict=True):
                            value = np.broadcast_to(scalar, (same.size, 1, self.batch))[keep, 0]
                            if model.has_mimic:
                                value = value * weight.astype(self.dtype)[:, None]
                            np.add.at(matrix, at[::-1] if blocks.transposed else at, value)

    def _scatter_rows(self, written: Written, rows: Array, origins: Array) -> None:
        """Add blocks (rows of j, columns of a body or link) to the output matrices."""
        model = self.model
        for name, output in self.algorithm.outputs.items():
            if not isinstance(output, BodyOutput | LinkColumnOutput):
                continue
            for r, entries in enumerate(written[output.field]):
                weight = model.v_multiplier[rows[:, r]].astype(self.dtype)[:, None]
                for c, entry in enumerate(entries):
                    value = np.broadcast_to(entry, (origins.size, 1, self.batch))[:, 0]
                    at = (model.v_source[rows[:, r]], origins)
                    np.add.at(self.matrices[name][:, :, c], at, value * weight if model.has_mimic else value)

    # Outputs, batch first.

    def output(self, name: str) -> Array:
        """An output of the algorithm, (B, ...)."""
        output, model = self.algorithm.outputs[name], self.model
        if isinstance(output, PairOutput):
            matrices = self.matrices[name]
            if output.diagonal is not None:
                diagonal = np.arange(model.nv)
                is_input = output.diagonal in self.algorithm.inputs
                added = self.inputs[output.diagonal].T if is_input else getattr(model, output.diagonal)[:, None]
                matrices[0, diagonal, diagonal] += added.astype(self.dtype)
            return np.moveaxis(matrices[0] if output.rows is None else matrices, -1, 0)
        if isinstance(output, BodyOutput):
            matrix = np.moveaxis(self.matrices[name], -1, 0)
            flat = (self.batch, model.nv, model.n_bodies * output.width)
            return matrix.reshape(flat) if output.flat else matrix
        if isinstance(output, LinkColumnOutput):
            return self.matrices[name].transpose(3, 1, 2, 0)
        if isinstance(output, WorldOutput):
            return self._array(output.field, None)[:, -1, 0].T.reshape(self.batch, *output.shape)
        if isinstance(output, FieldOutput):
            rows = self._array(output.field, None)[:, self.schedule.place[:-1], 0].transpose(2, 1, 0)
            return rows.reshape(self.batch, *output_shape(model, output))
        if isinstance(output, LinkOutput):
            values = self.link_fields[output.field].transpose(2, 1, 0)
            return values.reshape(self.batch, *([] if output.of_link else [-1]), *output.shape)
        return self._dof_output(output)

    def _dof_output(self, output: DofOutput | ColumnOutput) -> Array:
        model = self.model
        lanes = isinstance(output, DofOutput) and output.lanes
        per_dof = output.rows if isinstance(output, ColumnOutput) else 1
        tree = np.zeros((model.nv_tree, per_dof, model.nv_tree if lanes else 1, self.batch), self.dtype)
        for kind in KINDS:
            bodies = self.schedule.order[model.joint_kind[self.schedule.order] == KINDS.index(kind)]
            if bodies.size:
                array = self._array(output.field, kind)
                dofs = model.v_start[bodies][:, None] + np.arange(kind.nv)
                tree[dofs] = array.reshape(kind.nv, per_dof, bodies.size, -1, self.batch).transpose(2, 0, 1, 3, 4)
        if model.has_mimic:
            assert isinstance(output, ColumnOutput) or output.force
            tree = self._gather_followers(tree, 0)
            tree = self._gather_followers(tree, 2) if lanes else tree
        if isinstance(output, ColumnOutput):
            return tree[:, :, 0].transpose((2, 0, 1) if output.transposed else (2, 1, 0))
        return np.moveaxis(tree[:, 0], -1, 0) if lanes else tree[:, 0, 0].T

    def _gather_followers(self, tree: Array, axis: int) -> Array:
        """G' along an axis of tree velocities: entries of a mimicking joint are added to those of the joint that it
        follows."""
        model = self.model
        by_axis = np.moveaxis(tree, axis, 0)
        weight = model.v_multiplier.astype(self.dtype).reshape(-1, *[1] * (tree.ndim - 1))
        total = np.zeros((model.nv, *by_axis.shape[1:]), self.dtype)
        np.add.at(total, model.v_source, by_axis * weight)
        return np.moveaxis(total, 0, axis)


def _select(value: Any, chosen: Array) -> Any:
    """The same nested value for the chosen bodies. Constants that all bodies share remain as they are."""
    if isinstance(value, tuple):
        parts = [_select(part, chosen) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, np.ndarray) and value.shape[0] == chosen.size:
        return value if chosen.all() else value[chosen]
    return value


class ReferenceEngine(Engine):
    """Runs algorithms on NumPy arrays; see the module's docstring."""

    name = "reference"

    def __init__(self, model: Model, dtype: np.dtype[Any]) -> None:
        self.model, self.dtype = model, dtype
        self._derivatives = Interpreted(model)

    def has_program(self, task: Task, base: tuple[str, ...] = ()) -> bool:
        """True if the model is small enough to be traced."""
        return 0 < self.model.n_bodies <= MAX_TRACED_BODIES

    def explain(self, question: QuerySpec, batch: int) -> Explanation:
        """The method, and how the engine computes."""
        how = "bodies of one depth and joint kind step together, in NumPy"
        return Explanation(question.name, batch, self.name, self.method_of(question), how)

    @cached_property
    def _schedule(self) -> Schedule:
        return Schedule.of(self.model, self.dtype)

    def run(
        self,
        algorithm: Task,
        inputs: Mapping[str, Array],
        outputs: Mapping[str, Array],
        *,
        link: int | None = None,
    ) -> None:
        """Fill `outputs` (B, ...) from `inputs` (B, ...), all of the engine's dtype; see `protocol.Engine`."""
        batch = next(iter(outputs.values())).shape[0]
        if not algorithm.in_stages():
            self._derivatives.run(algorithm, inputs, outputs, link)
            return
        lanes = any(getattr(sweep, "lanes", False) for sweep in algorithm.sweeps)
        width = (self.model.n_bodies + 1) * (self.model.nv_tree if lanes else 1)
        if len(algorithm.in_stages()) > 1:
            width = max(width, self.model.nv**2 // MATRICES_FOR_SCALARS)
        if algorithm.unit_input is not None:
            width *= self.model.nv
        rows = max(1, CHUNK_SCALARS // max(1, width))
        with np.errstate(all="ignore"):
            for start in range(0, batch, rows):
                piece = slice(start, min(start + rows, batch))
                part = {name: array[piece] for name, array in inputs.items()}
                into = {name: array[piece] for name, array in outputs.items()}
                run = self._run_stages if algorithm.unit_input is None else self._run_units
                run(algorithm, part, into, piece.stop - piece.start, link)

    def _run_stages(
        self, task: Task, inputs: Mapping[str, Array], outputs: Mapping[str, Array], size: int, link: int | None
    ) -> None:
        """Run all stages on so few rows that intermediate arrays stay in the cache."""
        pool = dict(inputs)
        run: dict[type, Callable[[Any, Mapping[str, Array]], None]] = {
            Stage: lambda stage, made: self._run_algorithm(stage, pool, made, size, link),
            Solve: lambda solve, made: self._solve(solve, pool, made),
            Products: lambda products, made: self._multiply(products, pool, made),
        }
        for stage in task.in_stages():
            shapes = {name: output_shape(self.model, output) for name, output in stage.outputs.items()}
            made = {
                name: outputs[name] if name in outputs else np.empty((size, *shape), self.dtype)
                for name, shape in shapes.items()
            }
            run[type(stage)](stage, made)
            pool.update(made)

    def _run_units(
        self, task: Task, inputs: Mapping[str, Array], outputs: Mapping[str, Array], size: int, link: int | None
    ) -> None:
        """Run every row once for each unit vector."""
        assert task.unit_input is not None
        nv = self.model.nv
        repeated = {name: np.repeat(array, nv, axis=0) for name, array in inputs.items()}
        repeated[task.unit_input] = np.tile(np.eye(nv, dtype=self.dtype), (size, 1))
        flat = {name: np.empty((size * nv, *array.shape[2:]), self.dtype) for name, array in outputs.items()}
        self._run_stages(task, repeated, flat, size * nv, link)
        for name, array in outputs.items():
            array[...] = flat[name].reshape(array.shape)

    def _run_algorithm(
        self, stage: Stage, pool: Mapping[str, Array], made: Mapping[str, Array], size: int, link: int | None
    ) -> None:
        algorithm = stage.algorithm
        arrays = {name: array for name, array in pool.items() if name in _BASE_MOTION}
        arrays |= {name: pool[read] for name, read in zip(algorithm.inputs, stage.inputs, strict=True)}
        run = Run(self.model, self._schedule, algorithm, arrays, size, self.dtype, link)
        for sweep in algorithm.sweeps:
            run.sweep(sweep)
        for name, result in zip(algorithm.outputs, stage.outputs, strict=True):
            made[result][...] = run.output(name)

    def _multiply(self, stage: Products, pool: Mapping[str, Array], made: Mapping[str, Array]) -> None:
        for name, product in stage.outputs.items():
            target = made[name]
            target[...] = 0.0 if product.plain is None else pool[product.plain]
            if product.left is not None and product.right is not None:
                entries = pool[product.left] @ pool[product.right]
                target += entries
                if product.symmetric:
                    target += np.swapaxes(entries, 1, 2)
            np.negative(target, out=target)

    def _solve(self, stage: Solve, pool: Mapping[str, Array], made: Mapping[str, Array]) -> None:
        H, n = pool[stage.matrix], self.model.nv
        for name, solution in stage.outputs.items():
            target = made[name]
            if solution.arrays:
                b = pool[solution.plus] if solution.plus is not None else np.zeros_like(target)
                b = b - pool[solution.minus] if solution.minus is not None else b
            else:
                b = np.broadcast_to(np.eye(n, dtype=self.dtype), H.shape)
            columns = b.reshape(b.shape[0], n, math.prod(b.shape[2:]))
            target[...] = solve(H, columns).reshape(target.shape)
            for c in solution.known_columns(self.model):
                target[:, :, c] = pool[solution.arrays[0]][:, :, c]
