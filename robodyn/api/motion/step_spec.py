"""Chooses a rollout's integration step from the names of its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from robodyn.algorithms.constraints.tasks import constraint_task
from robodyn.algorithms.contacts.step_gradients import contact_step_gradient
from robodyn.algorithms.contacts.tasks import STEPS, contact_step, contact_step_answer, contact_task
from robodyn.algorithms.linearly_implicit import linearly_implicit
from robodyn.algorithms.tasks import (
    COEFFICIENTS,
    LIMITS,
    RESISTANCES,
    TARGETS,
    Chain,
    ScalarTask,
    Step,
    StepGradient,
    Task,
    on_inertia,
    step_gradient_of,
    step_of,
)
from robodyn.api.queries.contacts import OF_CONTACTS, Solver, require_contacts
from robodyn.core.constraints.refusals import constraints_named
from robodyn.core.integrators import GYROSCOPIC, HOLDS_JOINTS, INTEGRATORS
from robodyn.core.model import Model
from robodyn.core.sweeps import INPUTS, PER_ROW, Algorithm
from robodyn.engines.protocol import Engine
from robodyn.engines.query_table import OF_CONSTRAINTS, QUERIES, QuerySpec, QueryVariant
from robodyn.internals import strict_types
from robodyn.internals.arguments import one_of
from robodyn.internals.errors import ArgumentError, RobodynError, UnavailableError
from robodyn.internals.messages import brief, quoted

if TYPE_CHECKING:
    from robodyn.api.dynamics import Dynamics

GRADIENT = QUERIES["forward_dynamics_gradient"]
FORWARD_DYNAMICS = QUERIES["forward_dynamics"]
FORCES = ("f_ext", "inertia", *COEFFICIENTS, "gravity", "V0", "dV0", *TARGETS, "targets", "active", *OF_CONTACTS)
_OF_STEPS = ("qdd", "vector", "point", "restitution", *PER_ROW)
"""Inputs of other queries."""
_MOST_WORDS = 100
"""At most this many words of `limits` are read, because an iterator may be endless."""


def limits_kept(limits: Any, integrator: str) -> tuple[str, ...]:
    """The checked names of `limits`, in the order of `LIMITS`."""
    chosen = (limits,) if strict_types.is_a(limits, str) else strict_types.at_most(limits, _MOST_WORDS)
    if chosen is None:
        raise ArgumentError(f"limits: got {brief(limits)}; allowed: {', '.join(map(repr, LIMITS))}")
    names = {one_of("limits", each, LIMITS) for each in chosen}
    held = [name for name in LIMITS if name in names and name != "effort"]
    if held and integrator not in HOLDS_JOINTS:
        raise ArgumentError(
            f"limits: got {held[0]!r} for integrator {integrator!r}; wanted 'effort' alone, or an integrator that can "
            f"hold a joint: {', '.join(map(repr, HOLDS_JOINTS))}"
        )
    return tuple(name for name in LIMITS if name in names)


def forces_given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Select from a method's arguments (its `locals()`) those that determine forces of a step, besides tau."""
    return {name: arguments[name] for name in FORCES if name in arguments}


def require_targets(given: Mapping[str, Any]) -> None:
    """Raise unless both or neither of kp and q_des are given.

    Raises:
        ArgumentError: only one of them is given.
    """
    if (given["kp"] is None) != (given["q_des"] is None):
        missing = "kp" if given["kp"] is None else "q_des"
        raise ArgumentError(f"{missing}: got None; wanted both kp and q_des, or neither")


WITH_CONTACTS = ("tau", "f_ext", "inertia", *COEFFICIENTS, "dV0", *OF_CONTACTS)
"""Inputs of steps with contacts."""


def chosen_step(
    dyn: Dynamics, given: tuple[str, ...], integrator: str, limits: tuple[str, ...], contacts: bool = False
) -> Step:
    """The step for the names of arguments besides the state.

    `contacts`: True if the caller takes steps with contacts by `robodyn.algorithms.contacts.tasks.contact_step`.

    Raises:
        UnavailableError: the robot has constraints or contacts, which the integrator or the caller does not support.
    """
    model = dyn.model
    if model.contacts is not None:
        if not contacts:
            raise UnavailableError(
                f"{quoted(model.name)} has contacts, which contact_forward_dynamics, step and rollout obey; "
                "Dynamics(model, contacts=()) has none"
            )
        return _step_with_contacts(dyn, given, integrator, limits)
    inputs = tuple(name for name in INPUTS if name in ("q", "qd", "tau", *given) and name != "armature")
    projection: ScalarTask | None = None
    if integrator in GYROSCOPIC:
        if model.constraints:
            others = ", ".join(repr(each) for each in INTEGRATORS if each not in GYROSCOPIC)
            raise UnavailableError(
                f"integrator: {integrator!r} is not available for robots with constraints; {quoted(model.name)} has "
                f"{constraints_named(model)}; wanted one of {others}"
            )
        dynamics: Algorithm | Chain | ScalarTask = linearly_implicit(inputs)
    elif model.constraints:
        dynamics = constraint_task(
            "constrained_forward_dynamics", tuple(name for name in inputs if name not in _OF_STEPS), model.proximal
        )
        projection_inputs = tuple(name for name in inputs if name in ("q", "qd", "inertia", *OF_CONSTRAINTS))
        projection = constraint_task("project", projection_inputs, model.proximal)
    else:
        dynamics = cast(Algorithm | Chain, dynamics_asked(FORWARD_DYNAMICS, model, given))
    forces = tuple(name for name in RESISTANCES if name in dyn.joint_forces or name in given)
    names = tuple(name for name in (*COEFFICIENTS, *TARGETS) if name in given)
    return step_of(dynamics, integrator, forces, names, limits, projection)


def _step_with_contacts(dyn: Dynamics, given: tuple[str, ...], integrator: str, limits: tuple[str, ...]) -> Step:
    """A step with contacts, of which other code reads inputs and options only.

    Raises:
        UnavailableError: contacts do not support an argument.
    """
    require_contacts(dyn, "a step")
    if limits:
        instead = {
            "effort": "tau within model.effort_limit, or a policy that keeps to it",
            "position": "(): limits of positions are rows of the contacts (limits=True of with_contacts)",
        }
        raise UnavailableError(
            f"limits: got {limits[0]!r} for a robot with contacts; wanted {instead.get(limits[0], '()')}"
        )
    strange = next((name for name in given if name not in WITH_CONTACTS), None)
    if strange is not None:
        raise UnavailableError(
            f"{strange}: got some for a robot with contacts; wanted {', '.join(WITH_CONTACTS)} and gravity alone: tau "
            "or a policy drives joints"
        )
    if integrator not in STEPS:
        raise UnavailableError(
            f"integrator: {integrator!r} is not available for robots with contacts; wanted one of "
            f"{', '.join(map(repr, STEPS))}"
        )
    forces = tuple(name for name in RESISTANCES if name in dyn.joint_forces or name in given)
    return step_of(contact_task(dyn.model, 0.0, inputs=("q", "qd", *given)), integrator, forces)


def step_solver(dyn: Dynamics, integrator: str, dt: float, engine: Engine | None = None) -> Solver:
    """What takes steps of a robot with contacts on an engine, None for the usual one. An input of its task is "dt"
    (B,)."""
    contacts = require_contacts(dyn, "step")
    bounding, damped = contacts.bounding(dt), "damping" in dyn.joint_forces
    task = partial(contact_step, dyn.model, bounding, integrator, damped)
    return Solver(dyn.engine if engine is None else engine, contacts, task, bounding)


def contact_step_gradient_of(dyn: Dynamics, integrator: str, dt: float, inputs: tuple[str, ...]) -> ScalarTask:
    """What differentiates a step of a robot with contacts at its accelerations, an input "qdd"."""
    bounding = require_contacts(dyn, "step_gradient").bounding(dt)
    return contact_step_gradient(dyn.model, bounding, integrator, "damping" in dyn.joint_forces, inputs)


def contact_step_at(dyn: Dynamics, integrator: str, dt: float | None, inputs: tuple[str, ...]) -> ScalarTask:
    """A step of a robot with contacts that can be differentiated; "qdd" among the inputs are its accelerations. `dt`:
    None if only the input is known."""
    contacts = require_contacts(dyn, "step")
    bounding = None if dt is None else contacts.bounding(dt)
    return contact_step_answer(dyn.model, bounding, integrator, "damping" in dyn.joint_forces, inputs)


def needs_armature(dyn: Dynamics) -> bool:
    """Whether the mass matrix may be singular at every state without the model's armature."""
    model = dyn.model
    try:
        bare = replace(model, tree_armature=np.zeros_like(model.tree_armature))
        return dyn.variant(bare).singularity() is not None
    except RobodynError:
        return True


def gradient_of(step: Step, model: Model, given: tuple[str, ...]) -> StepGradient:
    """The derivative of a step for the names of arguments besides the state."""
    if step.projection is not None:
        gradient = constraint_task("constrained_accelerations_gradient", step.dynamics.inputs, model.proximal)
        projection = constraint_task("project_gradient", step.projection.inputs, model.proximal)
        return step_gradient_of(step, gradient, projection)
    if step.integrator in GYROSCOPIC:
        return step_gradient_of(step, linearly_implicit(step.dynamics.inputs, differentiated=True))
    return step_gradient_of(step, cast(Chain, dynamics_asked(GRADIENT, model, given)))


def dynamics_asked(question: QuerySpec, model: Model, given: tuple[str, ...]) -> Task:
    """The task that answers a query of dynamics for the given arguments."""
    task = question.task(QueryVariant(model, ("q", "qd", *(name for name in ("tau", "f_ext") if name in given))))
    return on_inertia(task) if "inertia" in given else task
