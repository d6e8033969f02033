"""A robot as a system of Drake: `system(dyn)` replaces a MultibodyPlant in a diagram."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from robodyn.api.dynamics import Dynamics
from robodyn.api.motion.equations import Equations
from robodyn.api.motion.robot import dynamics_of
from robodyn.api.motion.unused import warn_of_unused_forces
from robodyn.bridges.simulators.checks import vector
from robodyn.core.joints import KINDS
from robodyn.core.model import Model
from robodyn.internals.arguments import Array
from robodyn.internals.errors import ArgumentError, AssemblyError, NumericalError, UnavailableError
from robodyn.internals.messages import install
from robodyn.io.conventions.converter import Converter, converter


def system(dyn: Dynamics | Model, joint_names: Sequence[str] | None = None) -> Any:
    """A `pydrake.systems.framework.LeafSystem` with the continuous dynamics of a robot. Needs the extra `drake`.

    Its numbers are in Drake's convention (`robodyn.converter(model, "drake")`): quaternions wxyz before positions,
    velocities in world axes.

    - input port "tau" (nv): generalised forces; zero if it is not connected.
    - output port "state" (nq + nv): positions and velocities.
    - output port "acceleration" (nv): the rates of velocities.
    - continuous state: as "state", nq positions and nv velocities. It starts as the neutral configuration at rest,
      assembled if there are constraints and the assembly succeeds.

    The only scalar type is float: Drake's AutoDiffXd and Expression cannot pass through compiled code. Damping and
    friction act as `joint_forces=` of `dyn` says, dry friction as in rollouts. A `Model` gets a `Dynamics` with
    damping. Quaternions are normalised when they are read, so their drift in an integrator has no effect.

    Constraints are obeyed: accelerations are those of `constrained_forward_dynamics`, including Baumgarte's terms.
    Before each step of a `Simulator` an event projects the state onto the constraints. An integrator without a
    `Simulator` handles no events, so constraints need Baumgarte's terms there.

    Args:
        dyn: the robot.
        joint_names: the order of joints; None for Drake's order of joints of a file, depth first.

    The system has three more attributes: `dynamics`, `converter`, and `set_state(context, q, qd)`, which takes q (nq,)
    and qd (nv,) of this library.

    Raises:
        ArgumentError: no robot, a floating joint whose parent is not the world, or a constraint to the world without a
            target.
        NumericalError: (a simulation) the state is not on the constraints; names the row.
        UnavailableError: Drake is not installed.
    """
    # check=False: Drake itself handles simulations that diverge, and evaluates trial states.
    robot = dynamics_of(dyn, "drake.system", "obeyed", joint_forces=("damping",)).variant(check=False)
    try:
        from pydrake.systems import framework
    except ImportError as error:
        raise UnavailableError(
            f"robodyn.simulators.drake.system: Drake cannot be imported here ({error}): {install('drake')}"
        ) from error
    way = converter(robot.model, "drake", joint_names)
    if way.nv != robot.model.nv:
        raise ArgumentError("joint_names: some of them mimic others; wanted free joints alone")
    equations = Equations(robot)
    equations.require_anchored("drake.system")
    warn_of_unused_forces(robot, "drake.system")
    return _class(framework)(robot, equations, way)


def _first(model: Model) -> Array:
    """The neutral configuration, assembled to satisfy the constraints if possible."""
    neutral = model.neutral()
    if not model.constraints:
        return neutral
    try:
        return model.assemble(neutral)
    except AssemblyError:
        return neutral


def _class(framework: Any) -> Any:
    """Define the system class, whose base class exists only once Drake is imported."""

    class RobodynSystem(framework.LeafSystem):
        """See `system`."""

        def __init__(self, dyn: Dynamics, equations: Equations, way: Converter) -> None:
            super().__init__()
            self.dynamics, self.converter, self._equations = dyn, way, equations
            self._rates = _Rates(way)
            neutral = np.concatenate((way.q_to(_first(dyn.model)), np.zeros(way.nv)))
            # Drake's error control needs maps between dq/dt and velocities, which a Python system cannot define for
            # quaternions. Then the whole state is declared as miscellaneous.
            parts = (way.nq, way.nv, 0) if way.nq == way.nv else (0, 0, way.nq + way.nv)
            index = self.DeclareContinuousState(framework.BasicVector(neutral), *parts)
            self.DeclareVectorInputPort("tau", way.nv)
            self.DeclareStateOutputPort("state", index)
            self.DeclareVectorOutputPort("acceleration", way.nv, self._tell_acceleration)
            if equations.constrained:
                self.DeclarePerStepUnrestrictedUpdateEvent(self._hold)

        def set_state(self, context: Any, q: Any, qd: Any) -> None:
            """Set the state to q (nq,) and qd (nv,), in coordinates of this library."""
            model = self.dynamics.model
            configuration, speed = model.normalize(vector("q", q, model.nq)), vector("qd", qd, model.nv)
            state = np.concatenate((self.converter.q_to(configuration), self.converter.v_to(configuration, speed)))
            self.GetMyMutableContextFromRoot(context).SetContinuousState(state)

        def DoCalcTimeDerivatives(self, context: Any, derivatives: Any) -> None:
            position, velocity = self._parts(context)
            rates = self._rates(position, velocity)
            derivatives.SetFromVector(np.concatenate((rates, self._acceleration(context))))

        def _parts(self, context: Any) -> tuple[Array, Array]:
            state = context.get_continuous_state_vector().CopyToVector()
            return state[: self.converter.nq], state[self.converter.nq :]

        def _read(self, context: Any) -> tuple[Array, Array]:
            """The state in this library's coordinates."""
            position, velocity = self._parts(context)
            q = self.dynamics.model.unit_coordinates(np.asarray(self.converter.q_from(position)))
            return q, self.converter.v_from(q, velocity)

        def _acceleration(self, context: Any) -> Array:
            convention, (q, qd) = self.converter, self._read(context)
            port = self.get_input_port(0)
            force = port.Eval(context) if port.HasValue(context) else np.zeros(convention.nv)
            qdd = self._equations.accelerations(q, qd, convention.tau_from(q, force))
            return np.asarray(convention.a_to(q, qd, qdd))

        def _hold(self, context: Any, state: Any) -> None:
            """Project the state onto the constraints; otherwise errors of steps would grow."""
            q, qd = self._read(context)
            off = self._equations.off(q)
            if off is not None:
                raise NumericalError(f"drake.system: the state is off the constraints: {off}; see model.assemble")
            q, qd = self._equations.held(q, qd)
            theirs = np.concatenate((self.converter.q_to(q), self.converter.v_to(q, qd)))
            state.get_mutable_continuous_state().SetFromVector(theirs)

        def _tell_acceleration(self, context: Any, output: Any) -> None:
            output.SetFromVector(self._acceleration(context))

    return RobodynSystem


class _Rates:
    """Rates of Drake's positions from its velocities. They are equal except for quaternions: the rate of a quaternion
    is half its product with the angular velocity, in world axes for a base and in the child's axes for a ball joint."""

    def __init__(self, way: Converter) -> None:
        model, at_q, at_v = way.model, 0, 0
        self._plain: tuple[list[int], list[int]] = ([], [])
        self._turning: list[tuple[slice, slice, bool]] = []
        for name in way.joint_names:
            kind = KINDS[model.joint_kind[model.joint_index(name)]]
            if kind.name in ("floating", "spherical"):
                self._turning.append((slice(at_q, at_q + 4), slice(at_v, at_v + 3), kind.name == "floating"))
            same = range(3) if kind.name == "floating" else range(0 if kind.name == "spherical" else kind.nv)
            skipped = (4, 3) if kind.name == "floating" else (0, 0)
            self._plain[0].extend(at_q + skipped[0] + k for k in same)
            self._plain[1].extend(at_v + skipped[1] + k for k in same)
            at_q, at_v = at_q + kind.nq, at_v + kind.nv

    def __call__(self, position: Array, velocity: Array) -> Array:
        rates = np.empty_like(position)
        rates[self._plain[0]] = velocity[self._plain[1]]
        for at, along, in_world in self._turning:
            (w, *v), omega = position[at], velocity[along]
            turned = np.cross(omega, v) if in_world else np.cross(v, omega)
            rates[at] = 0.5 * np.concatenate(([-(omega @ v)], w * omega + turned))
        return rates
