"""Traces an algorithm on a model, body by body: the whole query becomes one straight-line program."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from robodyn.algorithms.tasks import (
    STEP_INPUTS,
    Configuration,
    Derivative,
    Iterations,
    Jvp,
    LikeInput,
    Product,
    Products,
    Result,
    ScalarTask,
    Sized,
    Solution,
    Solve,
    Stacked,
    StateMatrix,
    Step,
    StepGradient,
    StepPart,
    Traceable,
    Vjp,
    cheapest,
)
from robodyn.compile.tracing.constants import Constants
from robodyn.compile.tracing.derivatives import against, along
from robodyn.compile.tracing.expression import Expression, Graph, Value
from robodyn.compile.tracing.joint_forces import JointForces
from robodyn.compile.tracing.products import multiplied
from robodyn.compile.tracing.program import Program
from robodyn.compile.tracing.solves import solved
from robodyn.compile.tracing.steps import step_differentiated, stepped, stepped_in_part
from robodyn.compile.tracing.walks import branch_by_branch, comes_back, walks
from robodyn.core.joints import KINDS, JointKind, unit_quaternion
from robodyn.core.model import Model
from robodyn.core.spatial import IDENTITY, ZERO_FORCE, ZERO_MOTION, Force, Inertia, Motion, Transform
from robodyn.core.sweeps import (
    INPUTS,
    PER_BODY,
    PER_ROW,
    PER_VELOCITY,
    POINT,
    Algorithm,
    Ancestors,
    BodyOutput,
    ColumnOutput,
    DofOutput,
    FieldOutput,
    Inward,
    LinkColumnOutput,
    LinkOutput,
    Links,
    NamedScalars,
    Output,
    Outward,
    PairOutput,
    Sweep,
    World,
    WorldOutput,
    Written,
    flatten,
    with_given,
)
from robodyn.internals.errors import SingularError
from robodyn.internals.records import dataclass

WORLD = -1
_Key = tuple[str, Any, int | None]


def input_shapes(model: Model, task: Traceable, base: Iterable[str] = ()) -> dict[str, tuple[int, ...]]:
    """The shapes, for one state, of all inputs of a task's program, in the program's order.

    `base`: the inputs among V0 and dV0; the others are zero.
    """
    extra = {name: output_shape(model, like) for name, like in task.extra.items()}
    if isinstance(task, Derivative):
        return {**input_shapes(model, task.task, base), **extra}
    per_body = {name: (model.n_bodies, width) for name, width in PER_BODY.items()}
    per_velocity = dict.fromkeys((*PER_VELOCITY, *STEP_INPUTS), (model.nv,))
    shapes = {**per_velocity, **dict.fromkeys(("q", "q_des"), (model.nq,)), **per_body, "dt": (1,), "point": (POINT,)}
    shapes |= {"targets": (model.n_constraints, 12), "active": (model.n_constraints,), "restitution": ()}
    shapes |= dict.fromkeys(PER_ROW, (model.n_rows,))
    own = {*task.inputs} - extra.keys()
    return {
        **{name: shapes[name] for name in (*INPUTS, *STEP_INPUTS) if name in own},
        **extra,
        **{name: (6,) for name in ("V0", "dV0") if name in base},
    }


def output_shape(model: Model, output: Output | Result | StateMatrix) -> tuple[int, ...]:
    """The shape of an output for one state."""
    return _SHAPES[type(output)](model, output)


def _shape(shape: tuple[int, ...], flat: bool) -> tuple[int, ...]:
    return (math.prod(shape),) if flat else shape


_SHAPES: dict[type, Callable[[Model, Any], tuple[int, ...]]] = {
    LikeInput: lambda model, output: input_shapes(model, output.task, ("V0", "dV0"))[output.name],
    Sized: lambda model, output: output.shape(model),
    Configuration: lambda model, output: (model.nq,),
    Solution: lambda model, output: output_shape(model, output.like),
    Product: lambda model, output: (model.nv, model.nv),
    StateMatrix: lambda model, output: (2 * model.nv, output.vectors * model.nv),
    Stacked: lambda model, output: (model.nv, *output_shape(model, output.output)),
    WorldOutput: lambda model, output: output.shape,
    LinkOutput: lambda model, output: output.shape if output.of_link else (len(model.link_names), *output.shape),
    FieldOutput: lambda model, output: _shape((model.n_bodies, *output.shape), output.flat),
    ColumnOutput: lambda model, output: (model.nv, output.rows) if output.transposed else (output.rows, model.nv),
    LinkColumnOutput: lambda model, output: (len(model.link_names), output.rows, model.nv),
    BodyOutput: lambda model, output: (model.nv, *_shape((model.n_bodies, output.width), output.flat)),
    PairOutput: lambda model, output: (*(() if output.rows is None else (output.rows,)), model.nv, model.nv),
    DofOutput: lambda model, output: (model.nv, model.nv) if output.lanes else (model.nv,),
}


def unit_quaternions(model: Model, q: Sequence[Value]) -> list[Value]:
    """The configuration with every quaternion normalised."""
    scaled = list(q)
    for start in model.quaternion_starts.tolist():
        scaled[start : start + 4] = unit_quaternion(tuple(scaled[start : start + 4]))
    return scaled


class Trace:
    """The trace of one algorithm on one model, with expressions as inputs.

    `fields` has the value of each field by (name, body, lane). The world is body -1. Values that no sweep has written
    are zero.
    """

    def __init__(
        self,
        model: Model,
        algorithm: Algorithm,
        *,
        link: int | None = None,
        base: Iterable[str] = (),
        graph: Graph | None = None,
        given: Mapping[str, Sequence[Value]] | None = None,
    ) -> None:
        self.model, self.algorithm, self.link = model, algorithm, link
        self.constants = Constants(model)
        self.graph = Graph() if graph is None else graph
        provided = {} if given is None else given
        self.inputs: dict[str, tuple[tuple[int, ...], Sequence[Value]]] = {
            name: (shape, provided[name] if name in provided else self.graph.inputs(int(np.prod(shape))))
            for name, shape in input_shapes(model, algorithm, base).items()
        }
        self.kinds: list[JointKind] = [KINDS[code] for code in model.joint_kind.tolist()]
        self.fields: dict[_Key, Any] = {}
        self.pairs: list[tuple[int, int, Written]] = []
        self.tree_inputs = self._tree_inputs()
        self._bodies: dict[int, SimpleNamespace] = {}
        self._visited = self._visited_bodies()

    def results(self) -> dict[str, tuple[tuple[int, ...], list[Value]]]:
        """Run all sweeps. Returns, for each output, the shape of one state and the scalars in C order."""
        for walk in walks(self.algorithm.sweeps):
            if sum(map(comes_back, walk)) > 1:
                self._branch_by_branch(walk)
            else:  # with a single inward sweep few values stay live, and one state takes 2 % less time this way
                for sweep in walk:
                    self._whole(sweep)
        self.pairs.sort(key=lambda pair: pair[0])  # fixes the order of sums over pairs of mimicking joints
        return {key: self._output(key) for key in self.algorithm.outputs}

    def _visited_bodies(self) -> Sequence[int]:
        """The bodies that sweeps visit, parents first. If all outputs are about one link and no sweep runs inward over
        all bodies, these are the bodies on the link's path to the root."""
        sweeps = self.algorithm.sweeps
        written = {name for sweep in sweeps if getattr(sweep, "of_link", False) for name in sweep.writes}
        of_link = all(getattr(output, "field", None) in written for output in self.algorithm.outputs.values())
        outward = all(isinstance(sweep, World | Outward) or getattr(sweep, "of_link", False) for sweep in sweeps)
        if self.link is None or not (of_link and outward):
            return range(self.model.n_bodies)
        body = int(self.model.link_body[self.link])
        return sorted(self.model.tree.path(body)) if body >= 0 else ()

    # Arguments of steps.

    def _tree_inputs(self) -> dict[str, list[Value]]:
        """Inputs over tree coordinates. A mimicking joint takes its values from the joint that it follows."""
        model, inputs = self.model, {}
        for name, (_, scalars) in self.inputs.items():
            if name != "q" and name not in PER_VELOCITY:
                continue
            inputs[name] = unit_quaternions(model, scalars) if name == "q" else list(scalars)
            if not model.has_mimic:
                continue
            sources, multipliers, offsets = (
                (model.q_source, model.q_multiplier, model.q_offset)
                if name == "q"
                else (model.v_source, model.v_multiplier, np.zeros(model.nv_tree))
            )
            inputs[name] = [
                m * inputs[name][s] + o
                for s, m, o in zip(sources.tolist(), multipliers.tolist(), offsets.tolist(), strict=True)
            ]
        return inputs

    def _given(self, name: str, start: int, count: int) -> tuple[Value, ...]:
        values = self.tree_inputs.get(name)
        return (0.0,) * count if values is None else tuple(values[start : start + count])

    def _row(self, name: str, i: int) -> tuple[Value, ...]:
        """The row of body i in an input with one row for each body; empty if it is no input."""
        if name not in self.inputs:
            return ()
        width = PER_BODY[name]
        return tuple(self.inputs[name][1][width * i : width * (i + 1)])

    def body(self, i: int, lane: int | None = None) -> SimpleNamespace:
        """Body i as a step sees it (`robodyn.core.sweeps.Body`)."""
        constants = self._bodies.get(i)
        if constants is None:
            constants = self._bodies[i] = self._body(i)
        if lane is None:
            return constants
        start = int(self.model.v_start[i])
        unit = tuple(1.0 if lane == start + c else 0.0 for c in range(self.kinds[i].nv))
        return SimpleNamespace(**{**vars(constants), "unit": unit})

    def _body(self, i: int) -> SimpleNamespace:
        model, kind = self.model, self.kinds[i]
        q, v = int(model.q_start[i]), int(model.v_start[i])
        X, pitch = self.constants.Xtree[i].tolist(), float(model.pitch[i])
        force = self._row("f_ext", i) or tuple(flatten(ZERO_FORCE))
        inertia = self._row("inertia", i) or tuple(self.constants.inertia[i].tolist())
        return SimpleNamespace(
            joint=kind,
            S=kind.subspace(pitch),
            Xtree=Transform(tuple(X[:9]), tuple(X[9:])),
            inertia=Inertia(inertia[0], inertia[1:4], inertia[4:]),  # type: ignore[arg-type]
            pitch=pitch,
            armature=self._armature(v, kind.nv),
            q=self._given("q", q, kind.nq),
            qd=self._given("qd", v, kind.nv),
            qdd=self._given("qdd", v, kind.nv),
            tau=self._given("tau", v, kind.nv),
            vector=self._given("vector", v, kind.nv),
            f_ext=Force(force[:3], force[3:]),  # type: ignore[arg-type]
            unit=(0.0,) * kind.nv,
        )

    def _armature(self, start: int, count: int) -> tuple[Value, ...]:
        if "armature" in self.inputs:
            return self._given("armature", start, count)
        return tuple(self.model.tree_armature[start : start + count].tolist())

    def _base_motion(self, name: str) -> Motion:
        if name not in self.inputs:
            return ZERO_MOTION
        scalars = self.inputs[name][1]
        return Motion(scalars[:3], scalars[3:])  # type: ignore[arg-type]

    def _link_constants(self, link: int) -> SimpleNamespace:
        row = self.constants.link_X[link].tolist()
        X = Transform(tuple(row[:9]), tuple(row[9:]))
        if "point" in self.inputs:
            X = Transform(IDENTITY.E, tuple(self.inputs["point"][1])).after(X)  # type: ignore[arg-type]
        return SimpleNamespace(X=X)

    def _nv(self, i: int) -> int:
        return self.kinds[i].nv if i >= 0 else 0

    def _get(self, name: str, i: int, lane: int | None) -> Any:
        value = self.fields.get((name, i, lane))
        if value is None and lane is not None:
            value = self.fields.get((name, i, None))
        if value is not None:
            return value
        field = self.algorithm.fields[name]
        return field.build(iter((0.0,) * field.size(self._nv(i))), self._nv(i))

    def _view(self, names: Iterable[str], i: int, lane: int | None = None) -> SimpleNamespace:
        return SimpleNamespace(**{name: self._get(name, i, lane) for name in names})

    def _put(self, written: Written, i: Any, lane: int | None = None) -> None:
        for name, value in written.items():
            self.fields[name, i, lane] = value

    def _add(self, given: Written, i: int, lane: int | None) -> None:
        for name, value in given.items():
            total = (a + b for a, b in zip(flatten(self._get(name, i, lane)), flatten(value), strict=True))
            self.fields[name, i, lane] = self.algorithm.fields[name].build(iter(list(total)), self._nv(i))

    # Sweeps.

    def _world(self, sweep: World) -> None:
        gravity = tuple(self.model.gravity.tolist())
        world = SimpleNamespace(V0=self._base_motion("V0"), dV0=self._base_motion("dV0"), gravity=gravity)
        self._put(sweep.step(world, self._view(sweep.reads, WORLD)), WORLD)

    def _whole(self, sweep: Sweep) -> None:
        """Run a sweep over all bodies."""
        if isinstance(sweep, World):
            self._world(sweep)
        elif isinstance(sweep, Links):
            self._links(sweep)
        elif isinstance(sweep, Ancestors):
            self._ancestors(sweep)
        else:
            for lane in range(self.model.nv_tree) if sweep.lanes else (None,):
                for i in self._visited if isinstance(sweep, Outward) else reversed(self._visited):
                    self._step(sweep, i, lane)

    def _branch_by_branch(self, sweeps: Iterable[Sweep]) -> None:
        """Run the sweeps of one walk."""
        for i, back in branch_by_branch(self.model.tree):
            for sweep in sweeps:
                if comes_back(sweep) != back:
                    continue
                if isinstance(sweep, Ancestors):
                    self._upward(sweep, i, i)
                elif isinstance(sweep, Outward | Inward):
                    self._step(sweep, i, None)

    def _step(self, sweep: Outward | Inward, i: int, lane: int | None) -> None:
        parent = int(self.model.parent[i])
        own = self._view(sweep.reads, i, lane)
        if isinstance(sweep, Outward):
            self._put(sweep.step(self.body(i, lane), own, self._view(sweep.carries, parent, lane)), i, lane)
        else:
            written, given = sweep.step(self.body(i, lane), own)
            self._put(written, i, lane)
            self._add(given, parent, lane)

    def _ancestors(self, sweep: Ancestors) -> None:
        link_body = self.model.link_body.tolist()
        origins = (self.link,) if sweep.of_link else range(len(link_body) if sweep.of_links else self.model.n_bodies)
        for origin in origins:
            assert origin is not None
            self._upward(sweep, origin, link_body[origin] if sweep.from_links else origin)

    def _upward(self, sweep: Ancestors, origin: int, i: int) -> None:
        """Run an `Ancestors` sweep from body i to the root. `origin`: the link or body from which it starts."""
        if i == WORLD:
            return
        parents = self.model.parent
        body, own = self.body(i), self._view(sweep.reads, i)
        link: Any = self._link_constants(origin) if sweep.from_links else None
        carry, j = sweep.start(body, own, link), i
        while j != WORLD:
            written, carry = sweep.visit(self.body(j), self._view(sweep.visits, j), body, own, SimpleNamespace(**carry))
            if sweep.of_link:
                self._put(written, j)
            else:
                self.pairs.append((origin, j, written))
            j = int(parents[j])

    def _links(self, sweep: Links) -> None:
        links = (self.link,) if sweep.of_link else range(len(self.model.link_names))
        for link in links:
            assert link is not None
            own = self._view(sweep.reads, int(self.model.link_body[link]))
            self._put(sweep.step(self._link_constants(link), own), ("link", link))

    # Outputs.

    def _output(self, name: str) -> tuple[tuple[int, ...], list[Value]]:
        """The shape of one state, and its scalars in C order."""
        output = self.algorithm.outputs[name]
        if isinstance(output, WorldOutput):
            return output.shape, flatten(self._get(output.field, WORLD, None))
        if isinstance(output, LinkOutput):
            links = (self.link,) if output.of_link else range(len(self.model.link_names))
            scalars = [s for link in links for s in flatten(self.fields[output.field, ("link", link), None])]
            return (*(() if output.of_link else (len(links),)), *output.shape), scalars
        if isinstance(output, FieldOutput):
            values = (self._get(output.field, i, None) for i in range(self.model.n_bodies))
            return output_shape(self.model, output), [scalar for value in values for scalar in flatten(value)]
        if isinstance(output, PairOutput):
            return self._pair_output(output)
        if isinstance(output, BodyOutput | LinkColumnOutput):
            return self._row_output(output)
        return self._dof_output(output)

    def _pair_output(self, output: PairOutput) -> tuple[tuple[int, ...], list[Value]]:
        model, nv = self.model, self.model.nv
        H: dict[tuple[int, int, int], Value] = {}
        if output.diagonal is not None:
            is_input = output.diagonal in self.inputs
            added = self.inputs[output.diagonal][1] if is_input else getattr(model, output.diagonal).tolist()
            H = {(0, k, k): a for k, a in enumerate(added)}
        source, multiplier = model.v_source.tolist(), model.v_multiplier.tolist()
        for i, j, written in self.pairs:
            rows, columns = int(model.v_start[j]), int(model.v_start[i])
            for blocks in output.blocks:
                if i == j and not blocks.diagonal:
                    continue
                for r, entries in enumerate(written[blocks.field], rows):
                    for c, entry in enumerate(entries, columns):
                        at = (source[c], source[r]) if blocks.transposed else (source[r], source[c])
                        for p, scalar in enumerate(flatten(entry)):
                            H[p, *at] = H.get((p, *at), 0.0) + scalar * (multiplier[r] * multiplier[c])
        count = output.rows or 1
        return output_shape(model, output), [
            H.get((p, r, c), 0.0) for p in range(count) for r in range(nv) for c in range(nv)
        ]

    def _row_output(self, output: BodyOutput | LinkColumnOutput) -> tuple[tuple[int, ...], list[Value]]:
        """An output made of blocks between a degree of freedom and a body or link."""
        model = self.model
        sums: dict[tuple[int, ...], Value] = {}
        source, multiplier = model.v_source.tolist(), model.v_multiplier.tolist()
        for i, j, written in self.pairs:
            for r, entries in enumerate(written[output.field], int(model.v_start[j])):
                for c, entry in enumerate(entries):
                    at = (source[r], i, c)
                    sums[at] = sums.get(at, 0.0) + entry * multiplier[r]
        shape = output_shape(model, output)
        if isinstance(output, LinkColumnOutput):
            return shape, [sums.get((v, link, p), 0.0) for link, p, v in np.ndindex(shape)]
        places = np.ndindex(model.nv, model.n_bodies, output.width)
        return shape, [sums.get(at, 0.0) for at in places]

    def _dof_output(self, output: DofOutput | ColumnOutput) -> tuple[tuple[int, ...], list[Value]]:
        model = self.model
        per_dof = output.rows if isinstance(output, ColumnOutput) else 1
        with_lanes = isinstance(output, DofOutput) and output.lanes
        lanes: Sequence[int | None] = range(model.nv_tree) if with_lanes else (None,)
        source, multiplier = model.v_source.tolist(), model.v_multiplier.tolist()
        total: dict[tuple[int, int, int], Value] = {}
        for lane in lanes:
            column, weight = (0, 1.0) if lane is None else (source[lane], multiplier[lane])
            for i in range(model.n_bodies):
                start = int(model.v_start[i])
                for k, scalar in enumerate(flatten(self._get(output.field, i, lane))):
                    v = start + k // per_dof
                    at = (source[v], k % per_dof, column)
                    total[at] = total.get(at, 0.0) + scalar * (multiplier[v] * weight)
        nv = model.nv
        if isinstance(output, ColumnOutput):
            places = [(v, p) for p in range(per_dof) for v in range(nv)]
            return output_shape(model, output), [
                total[v, p, 0] for v, p in (sorted(places) if output.transposed else places)
            ]
        if not with_lanes:
            return (nv,), [total[v, 0, 0] for v in range(nv)]
        return (nv, nv), [total[v, 0, c] for v in range(nv) for c in range(nv)]


@dataclass(frozen=True)
class Record:
    """A traced task: its graph, and for each input and output the shape of one state and the scalars in C order."""

    graph: Graph
    inputs: dict[str, tuple[tuple[int, ...], Sequence[Value]]]
    outputs: dict[str, tuple[tuple[int, ...], Sequence[Value]]]


def record(
    model: Model,
    task: Traceable,
    *,
    link: int | None = None,
    base: Iterable[str] = (),
    joint_forces: JointForces | None = None,
    graph: Graph | None = None,
    given: Mapping[str, Sequence[Value]] | None = None,
) -> Record:
    """Trace a task on a model; see `trace`. `graph` and `given`: a graph to continue, and inputs that are already
    there."""
    graph, given = Graph() if graph is None else graph, {} if given is None else given
    inputs: dict[str, tuple[tuple[int, ...], Sequence[Value]]] = {
        name: (shape, given[name] if name in given else graph.inputs(int(np.prod(shape))))
        for name, shape in input_shapes(model, task, base).items()
    }
    pool: dict[str, Sequence[Value]] = {name: scalars for name, (_, scalars) in inputs.items()}
    tracer = _Tracer(model, link, tuple(base), graph)
    try:
        results = task.trace(tracer, pool if joint_forces is None else joint_forces.taken(pool))
    except ZeroDivisionError:
        raise SingularError(
            f"{task.name}: the joint-space inertia matrix of {model.name!r} is singular, some joint has no inertia to "
            "move; wanted a robot for which Dynamics.singularity() is None"
        ) from None
    if joint_forces is not None:
        results = joint_forces.added(results, pool)
    outputs: dict[str, tuple[tuple[int, ...], Sequence[Value]]] = {
        name: (output_shape(model, task.outputs[name]), list(scalars)) for name, scalars in results.items()
    }
    return Record(graph, inputs, outputs)


def trace(
    model: Model,
    task: Traceable,
    *,
    link: int | None = None,
    base: Iterable[str] = (),
    joint_forces: JointForces | None = None,
) -> Program:
    """The straight-line program of a task on a model.

    Args:
        model: its constants become numbers of the program.
        task: the task to compute.
        link: index of the query's link, if it has one.
        base: the inputs among V0 and dV0; the others are zero.
        joint_forces: damping and friction to add.

    Raises:
        SingularError: the program divides by an inertia that is zero for this robot in every state.
    """
    made = record(model, task, link=link, base=base, joint_forces=joint_forces)
    return Program.of(task.name, made.graph, cast(Any, made.inputs), made.outputs)


class _Tracer:
    """Traces tasks into one graph. `base`: the inputs among V0 and dV0."""

    def __init__(self, model: Model, link: int | None, base: tuple[str, ...], graph: Graph) -> None:
        self.model, self.link, self.base, self.graph = model, link, base, graph

    def on_base(self, moves: tuple[str, ...]) -> _Tracer:
        """See `robodyn.core.sweeps.Tracer`."""
        return _Tracer(self.model, self.link, moves, self.graph)

    def own(self, task: Any, given: NamedScalars) -> NamedScalars:
        """Trace a task of a basic kind (see `robodyn.core.sweeps.Tracer`)."""
        return _TRACERS[type(task)](self, task, given)

    def algorithm(self, task: Algorithm, given: NamedScalars, link: int | None) -> NamedScalars:
        """Trace an algorithm about a link."""
        moves = tuple(name for name in ("V0", "dV0") if name in given)
        outputs = Trace(self.model, task, link=link, base=moves, graph=self.graph, given=given).results()
        return {name: scalars for name, (_, scalars) in outputs.items()}

    def _scalar_task(self, task: ScalarTask, given: NamedScalars) -> NamedScalars:
        def at(
            algorithm: Algorithm,
            of_link: int | None = self.link,
            point: Sequence[Value] | None = None,
            **others: Sequence[Value],
        ) -> NamedScalars:
            known = {**given, **others}
            if point is not None:
                algorithm, known["point"] = with_given(algorithm, "point"), point
            return self.algorithm(algorithm, known, of_link)

        return dict(task.text(self.model, given, at))

    def _step(self, task: Step, given: NamedScalars) -> NamedScalars:
        after = stepped(self.model, task, given, lambda state: task.dynamics.trace(self, {**given, **state}))
        if task.projection is None:
            return after
        held = task.projection.trace(self, {**given, "q": after["q_next"], "qd": after["qd_next"]})
        return {"q_next": held["q_held"], "qd_next": held["qd_held"]}

    def _step_gradient(self, task: StepGradient, given: NamedScalars) -> NamedScalars:
        gradient = cheapest(self.model, task.gradient, self.base)
        projection = task.projection
        return step_differentiated(
            self.model,
            task,
            given,
            lambda state: gradient.trace(self, {**given, **state}),
            None if projection is None else lambda state: projection.trace(self, {**given, **state}),
        )

    def _jvp(self, task: Jvp, given: NamedScalars) -> NamedScalars:
        results = task.task.trace(self, given)
        nodes = [node for name in task.wrt for node in _nodes(given[name])]
        rates = [rate for name in task.wrt for rate in given[task.rates[name]]]
        flat = [scalar for scalars in results.values() for scalar in scalars]
        derivatives = iter(along(self.graph, flat, dict(zip(nodes, rates, strict=True))))
        return {name: [next(derivatives) for _ in scalars] for name, scalars in results.items()}

    def _vjp(self, task: Vjp, given: NamedScalars) -> NamedScalars:
        results = task.task.trace(self, given)
        moved = {name: _nodes(given[name]) for name in task.wrt}
        weights = [weight for name in results for weight in given[task.weights[name]]]
        flat = [scalar for scalars in results.values() for scalar in scalars]
        gradient = iter(against(self.graph, flat, weights, [node for each in moved.values() for node in each]))
        return {f"by_{name}": [next(gradient) for _ in each] for name, each in moved.items()}


_TRACERS: dict[type, Callable[[_Tracer, Any, NamedScalars], NamedScalars]] = {
    Algorithm: lambda tracer, task, given: tracer.algorithm(task, given, tracer.link),
    **dict.fromkeys((ScalarTask, Iterations), _Tracer._scalar_task),
    Step: _Tracer._step,
    StepPart: lambda tracer, task, given: stepped_in_part(tracer.model, task, given),
    StepGradient: _Tracer._step_gradient,
    Jvp: _Tracer._jvp,
    Vjp: _Tracer._vjp,
    Solve: lambda tracer, task, given: solved(task, given, tracer.model),
    Products: lambda tracer, task, given: multiplied(task, given, tracer.model.nv),
}
"""Tracing functions of the basic kinds of tasks. Tasks made of other tasks have a method `trace` instead."""


def _nodes(scalars: Sequence[Value]) -> list[int]:
    return [scalar.index for scalar in scalars if isinstance(scalar, Expression)]
