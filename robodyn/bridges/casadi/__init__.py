"""robodyn in CasADi: queries as functions for nonlinear programming and optimal control.

import robodyn.casadi

rc = robodyn.casadi.wrap(dyn)
fd = rc.function("forward_dynamics")     # a casadi.Function: (q, qd, tau) -> qdd
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import signature
from typing import Any

from robodyn.algorithms.distances.tasks import Asked
from robodyn.algorithms.manifold import DIFFERENCE, INTEGRATE, NORMALIZE, scalars
from robodyn.algorithms.tasks import ScalarTask
from robodyn.api.autodiff.coordinates import Coordinates
from robodyn.api.autodiff.functions import STATIC
from robodyn.api.dynamics import Dynamics
from robodyn.api.motion.robot import dynamics_of
from robodyn.api.queries.core import checked_choice, links_of
from robodyn.compile.c.code import identifier, require_unreserved
from robodyn.compile.tracing.expression import Graph
from robodyn.compile.tracing.unrolled import record, unit_quaternions
from robodyn.core.constraints.resolved import anchored_by_calls
from robodyn.core.model import Model
from robodyn.engines.query_table import QuerySpec, asked_of, find
from robodyn.internals import strict_types
from robodyn.internals.arguments import one_of, words
from robodyn.internals.cached import cached_property
from robodyn.internals.errors import ArgumentError, UnavailableError
from robodyn.internals.messages import brief, install, quoted
from robodyn.internals.records import dataclass
from robodyn.internals.tuning import CASADI_OPERATIONS

try:
    import casadi
except ImportError as error:
    raise UnavailableError(
        f"robodyn.casadi needs CasADi, which cannot be imported here ({error}): {install('casadi')}"
    ) from error

from robodyn.bridges.casadi.blocks import Blocks, Level, Library, Matrix
from robodyn.bridges.casadi.expressions import sx_function
from robodyn.bridges.casadi.plugin import compiled_function, compiler, require_compiler

__all__ = ["CasadiDynamics", "ContinuousModel", "has_compiler", "wrap"]

WAYS = ("auto", "sx", "compiled")


@dataclass(frozen=True)
class ContinuousModel:
    """A robot as a system of ordinary differential equations, in SX, with the names of acados.

    x = (q, qd), with nq + nv numbers; `xdot`: its rate, symbols; u: generalised forces of the actuated degrees of
    freedom; `f_expl_expr`: the rate; `f_impl_expr`: zero for the right rate.
    """

    name: str
    x: Any
    xdot: Any
    u: Any
    f_expl_expr: Any
    f_impl_expr: Any


class CasadiDynamics:
    """Queries of a robot as functions of CasADi; made by `wrap`.

    Values, units, frames and order of components are those of `robodyn.Dynamics`, in float64; `joint_forces` of `dyn`
    are counted. Values are not checked: NaN gives NaN.

    Args:
        dyn: the robot's `Dynamics`, or its `Model`.
        way: how queries are computed unless `function` says otherwise.
    """

    def __init__(self, dyn: Dynamics | Model, way: str = "auto") -> None:
        self.dyn = dyn = dynamics_of(dyn, "robodyn.casadi", "of the tree alone")
        self.model = dyn.model
        self.way = one_of("way", way, WAYS)
        if dyn.dtype != "float64":
            raise ArgumentError(f"dyn: got a Dynamics in {dyn.dtype}; CasADi computes in float64")
        if not self.model.nv:
            raise ArgumentError(f"dyn: {quoted(self.model.name)} has no degrees of freedom")
        self._functions: dict[tuple[Any, ...], Any] = {}

    def __repr__(self) -> str:
        return f"<CasadiDynamics of {self.dyn!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the constructor's arguments only."""
        return type(self), (self.dyn, self.way)

    def function(
        self,
        query: str,
        *,
        given: Sequence[str] = (),
        way: str | None = None,
        name: str | None = None,
        **choices: Any,
    ) -> Any:
        """A query as a `casadi.Function`.

        Inputs and results have the names of the table of queries, such as q, qd, tau -> qdd. A vector is a column.
        Leading axes of larger arrays are stacked: poses (n_links, 4, 4) are a matrix (4 n_links, 4), row 4 k + i of it
        row i of pose k; `f_ext` is (n_bodies, 6). Entries that are zero in every state are structural zeros.

        Args:
            query: name of the query, a method of `Dynamics`.
            given: optional arrays that are inputs: "f_ext", "inertia", "V0", "dV0", "point", "targets" and others. They
                follow in the order of the table.
            way: "sx": expressions in SX, which CasADi differentiates. "compiled": C, compiled by gcc, or by the
                compiler that the environment variable CC names, with the analytical derivatives of robodyn. "auto":
                "sx" up to 500 operations or without a compiler, else "compiled". None: the way of this object.
            name: of the function: letters, digits and single underscores; by default the robot's and the query's.
            choices: `link`, `links`, `relative_to`, `frame`, `classical`, `axes`, as for the method.

        Raises:
            ArgumentError: unknown names, or arguments that the query does not have.
            SingularError, NumericalError: the query has no answer at any state of the robot.
            UnavailableError: the robot is too large, or there is no C compiler.
        """
        question = self._question(query)
        chosen = self.way if way is None else one_of("way", way, WAYS)
        inputs = words("given", given, question.optional)
        named = f"{identifier(self.model.name)}_{query}" if name is None else name
        if type(named) is not str or not casadi.Function.check_name(named):
            raise ArgumentError(
                f"name: got {brief(named)}; wanted letters, digits and single underscores, as in 'arm_fd'"
            )
        require_unreserved("name", named)
        link, options = self._chosen(question, choices)
        self._require_answer(question, inputs)
        key = query, tuple(sorted(inputs)), chosen, named, link, *options.items()
        if key not in self._functions:
            self._functions[key] = self._made(Blocks(self.dyn, question, inputs, link, options), named, chosen)
        return self._functions[key]

    def _question(self, query: Any) -> QuerySpec:
        known = asked_of(self.model)
        name = query if type(query) is str and query in known else None
        if name is None and type(query) is str and find(query) is not None:
            raise ArgumentError(f"query: {query!r} is about constraints or shapes; {quoted(self.model.name)} has none")
        return known[name if name is not None else one_of("query", query, tuple(known))]

    def _chosen(self, question: QuerySpec, choices: Mapping[str, Any]) -> tuple[int | None, dict[str, Any]]:
        """The link's index, and the checked options of a `QueryVariant`."""
        parameters = signature(getattr(Dynamics, question.name)).parameters
        allowed = [each for each in STATIC if each in parameters]
        for name in choices:
            one_of(f"choices of {question.name}", name, allowed)
        options = {
            name: checked_choice(self.model, name, value)
            for name, value in choices.items()
            if name in ("frame", "classical", "axes")
        }
        if not question.of_link:
            return None, options
        link, places = links_of(self.model, *(choices.get(name) for name in ("link", "links", "relative_to")))
        return link, {**options, "places": places}

    def _require_answer(self, question: QuerySpec, given: Sequence[str]) -> None:
        """Raise if the query has no answer, or none that an optimiser could use."""
        model = self.model
        if "inertia" not in given:
            self.dyn._require_possible(question)
        self.dyn._require_loads(question, given)
        if "targets" in question.optional and "targets" not in given and anchored_by_calls(model.constraints):
            raise ArgumentError(
                f"given: {question.name} of {quoted(model.name)} needs 'targets', places that its constraints hold; "
                "without them constraints hold links wherever q has them"
            )
        if question.of_shapes:
            least = Asked(model.pairs).least_operations(model)
            if not model.pairs:
                raise ArgumentError(
                    f"query: {question.name} is about pairs of shapes, and {quoted(model.name)} has none"
                )
            self._require_moderate(question.name, least, CASADI_OPERATIONS["sx"], "")

    def _require_moderate(self, name: str, operations: int, most: int, instead: str) -> None:
        if operations > most:
            raise UnavailableError(
                f"{name} of {quoted(self.model.name)} takes {operations:,} operations; wanted at most {most:,}{instead}"
            )

    def _made(self, blocks: Blocks, name: str, way: str) -> Any:
        level = blocks.level(name)
        operations = level.program.operations
        if blocks.question.of_shapes:
            if way == "sx":
                raise ArgumentError(
                    f"way: got 'sx' for {blocks.question.name}, whose formulas CasADi cannot differentiate where "
                    "shapes overlap; wanted 'compiled', which has the derivatives of witness points"
                )
            way = "compiled"
        if way == "auto":
            way = "sx" if operations <= CASADI_OPERATIONS["auto"] or compiler() is None else "compiled"
        instead = "; way='compiled' takes more" if way == "sx" else ""
        self._require_moderate(blocks.question.name, operations, CASADI_OPERATIONS[way], instead)
        if way == "sx":
            return sx_function(level)
        require_compiler()
        return compiled_function(name, [level, *blocks.derivatives(name, CASADI_OPERATIONS["compiled"])])

    # Configurations.

    @cached_property
    def integrate(self) -> Any:
        """`Model.integrate` as a function (q, v) -> q_next."""
        return self._of_task(INTEGRATE, ("q", "v"), "q_next")

    @cached_property
    def difference(self) -> Any:
        """`Model.difference` as a function (q0, q1) -> v."""
        return self._of_task(DIFFERENCE, ("q0", "q1"), "v")

    @cached_property
    def normalize(self) -> Any:
        """`Model.normalize` as a function q -> q_unit: quaternions are scaled to unit length."""
        return self._of_task(NORMALIZE, ("q",), "q_unit")

    @cached_property
    def coordinate_rate(self) -> Any:
        """The rate dq/dt of coordinates at velocity qd, as a function (q, qd) -> rate."""
        model, graph = self.model, Graph()
        q, qd = graph.inputs(model.nq), graph.inputs(model.nv)
        rate = Coordinates(model, Library()).rate(scalars(unit_quaternions(model, q)), scalars(qd)).tolist()
        inputs = {"q": Matrix(model.nq, 1, q), "qd": Matrix(model.nv, 1, qd)}
        return sx_function(Level("coordinate_rate", graph, inputs, {"rate": Matrix(model.nq, 1, rate)}))

    def _of_task(self, task: ScalarTask, names: Sequence[str], result: str) -> Any:
        made = record(self.model, task)
        inputs = {name: Matrix.of(*each) for name, each in zip(names, made.inputs.values(), strict=True)}
        ((shape, values),) = made.outputs.values()
        return sx_function(Level(task.name, made.graph, inputs, {result: Matrix.of(shape, values)}))

    def continuous_model(self, actuated: Sequence[str | int] | None = None) -> ContinuousModel:
        """The robot as an ordinary differential equation in SX: what acados and CasADi's integrators take.

        Args:
            actuated: velocities with an actuator, by name or index, in the order of u; None: all. Generalised forces
                of the others are zero.

        Raises:
            ArgumentError: unknown or repeated velocities.
            UnavailableError: the robot is too large for SX.
        """
        model = self.model
        driven = list(range(model.nv)) if actuated is None else self._velocities(actuated)
        x, xdot = (casadi.SX.sym(name, model.nq + model.nv) for name in ("x", "xdot"))
        u = casadi.SX.sym("u", len(driven))
        q, qd = x[: model.nq], x[model.nq :]
        tau = casadi.SX(model.nv, 1)
        for k, place in enumerate(driven):
            tau[place] = u[k]
        rate = self.coordinate_rate(q, qd)
        query = "constrained_forward_dynamics" if model.constraints else "forward_dynamics"
        result = self.function(query, way="sx")(q, qd, tau)
        qdd = result[0] if model.constraints else result
        explicit = casadi.vertcat(rate, qdd)
        implicit = xdot - explicit
        if not model.constraints:  # inverse dynamics has half of the operations
            forces = self.function("inverse_dynamics", way="sx")(q, qd, xdot[model.nq :])
            implicit = casadi.vertcat(xdot[: model.nq] - rate, forces - tau)
        return ContinuousModel(identifier(model.name), x, xdot, u, explicit, implicit)

    def _velocities(self, actuated: Any) -> list[int]:
        names = self.model.velocity_names
        if not strict_types.is_a(actuated, list, tuple):
            raise ArgumentError(f"actuated: got {brief(actuated)}; wanted a list of names or indices of velocities")
        places = []
        for each in strict_types.members(actuated):
            if type(each) is int and 0 <= each < len(names):
                places.append(each)
            else:
                places.append(names.index(one_of("actuated", each, names)))
        if len(set(places)) < len(places):
            raise ArgumentError(f"actuated: got {brief(actuated)}; wanted every velocity at most once")
        return places


def wrap(dyn: Dynamics | Model, way: str = "auto") -> CasadiDynamics:
    """The queries of a robot as functions of CasADi.

    Args:
        dyn: a `Dynamics`, or a `Model` for one with the default options.
        way: "auto", "sx" or "compiled"; see `CasadiDynamics.function`.

    Raises:
        ArgumentError: a `Dynamics` in float32, or a robot without degrees of freedom.
    """
    return CasadiDynamics(dyn, way)


def has_compiler() -> bool:
    """Whether there is a C compiler for `way="compiled"`: the one that the environment variable CC names, gcc or cc."""
    return compiler() is not None
