"""robodyn: rigid-body dynamics of robots.

    import robodyn as rd

    model = rd.load_urdf("arm.urdf")
    dyn = rd.Dynamics(model)
    tau = dyn.inverse_dynamics(q, qd, qdd)

Names are imported when they are first used, so that importing the package costs next to nothing.
"""

from __future__ import annotations

import sys


class _PublicNames:
    """Finds modules by their public names (`robodyn.internals.public_names`). It comes before all imports: another
    thread may import a public name as soon as this module is there."""

    rooms = ("internals", "core", "algorithms", "compile", "engines", "io", "api", "solve", "bridges", "tools")

    @classmethod
    def find_spec(cls, fullname, path=None, target=None):  # type: ignore[no-untyped-def]
        """The spec of a public name; None for all other names."""
        package, _, rest = fullname.partition(".")
        if package != "robodyn" or rest.partition(".")[0] in (*cls.rooms, "__main__"):
            return None
        from robodyn.internals.public_names import spec_of

        return spec_of(fullname)


if not any(getattr(finder, "__name__", "") == "_PublicNames" for finder in sys.meta_path):
    sys.meta_path.insert(0, _PublicNames)

from importlib import import_module  # noqa: E402
from typing import TYPE_CHECKING, Any  # noqa: E402

from robodyn.internals import package as _package  # noqa: E402, F401 - notes the time
from robodyn.internals.provided import provide as _provide  # noqa: E402
from robodyn.internals.version import __version__  # noqa: E402

if TYPE_CHECKING:
    from robodyn.api.dynamics import Dynamics
    from robodyn.api.motion.result import Rollout
    from robodyn.api.motion.simulation import simulate
    from robodyn.api.queries.external import external_force
    from robodyn.api.queries.obstacles import Obstacles
    from robodyn.api.queries.poses import exp, exp_gradient, log, log_gradient, pose_error, pose_error_gradient
    from robodyn.core import inertial_parameters
    from robodyn.core.constraints.kinds import Baumgarte, Coupling, Lock, Point, Rod, Rolling, Weld
    from robodyn.core.contacts.kinds import Contact
    from robodyn.core.description import RobotDescription
    from robodyn.core.model import Model
    from robodyn.core.shapes import Box, Capsule, Cylinder, HeightField, Plane, Sphere
    from robodyn.core.tree import Tree
    from robodyn.engines.buffer_pool import release_memory
    from robodyn.internals.errors import (
        ArgumentError,
        AssemblyError,
        ConvergenceWarning,
        JointForcesWarning,
        LoadError,
        NumericalError,
        RedundantWarning,
        RobodynError,
        SingularError,
        UnavailableError,
    )
    from robodyn.io import conventions
    from robodyn.io.builders.assemble import build_model
    from robodyn.io.builders.auto_tree import auto_tree
    from robodyn.io.builders.load import load_urdf
    from robodyn.io.builders.load_any import load
    from robodyn.io.builders.mjcf import load_mjcf
    from robodyn.io.builders.pinocchio import from_pinocchio
    from robodyn.io.builders.random_tree import random_tree
    from robodyn.io.builders.robot_descriptions import load_description
    from robodyn.io.builders.sdf import load_sdf
    from robodyn.io.builders.serial_chains import from_dh, from_screws
    from robodyn.io.builders.sphere_fitting import fit_spheres
    from robodyn.io.builders.urdf import read_urdf
    from robodyn.io.builders.xacro import load_xacro
    from robodyn.io.conventions.converter import converter
    from robodyn.io.conventions.order import JointOrder
    from robodyn.solve.identification.differentiation import differentiate
    from robodyn.solve.identification.excitation import ExcitingTrajectory, exciting_trajectory
    from robodyn.solve.identification.identify import identify
    from robodyn.solve.identification.result import Identification
    from robodyn.solve.inverse_kinematics.report import IKReport
    from robodyn.solve.inverse_kinematics.solver import InverseKinematics
    from robodyn.solve.inverse_kinematics.tasks import (
        CoMTask,
        DirectionTask,
        DistanceTask,
        GazeTask,
        ManipulabilityTask,
        PoseTask,
        PositionTask,
        PostureTask,
        RelativePoseTask,
    )
    from robodyn.solve.inverse_kinematics.velocity import VelocityReport
    from robodyn.solve.trajectories import costs
    from robodyn.solve.trajectories.mpc import Mpc
    from robodyn.solve.trajectories.optimize import optimize_trajectory
    from robodyn.solve.trajectories.trajectory import Trajectory
    from robodyn.solve.whole_body.control import WholeBodyControl, WholeBodyReport
    from robodyn.solve.whole_body.tracking import Tracking
    from robodyn.tools import hardware, plots
    from robodyn.tools.viewer.show import show

_HOME = {
    "Baumgarte": "core.constraints.kinds",
    "Box": "core.shapes",
    "Capsule": "core.shapes",
    "CoMTask": "solve.inverse_kinematics.tasks",
    "Contact": "core.contacts.kinds",
    "Coupling": "core.constraints.kinds",
    "Cylinder": "core.shapes",
    "DirectionTask": "solve.inverse_kinematics.tasks",
    "DistanceTask": "solve.inverse_kinematics.tasks",
    "Dynamics": "api.dynamics",
    "ExcitingTrajectory": "solve.identification.excitation",
    "GazeTask": "solve.inverse_kinematics.tasks",
    "HeightField": "core.shapes",
    "IKReport": "solve.inverse_kinematics.report",
    "Identification": "solve.identification.result",
    "InverseKinematics": "solve.inverse_kinematics.solver",
    "JointOrder": "io.conventions.order",
    "Lock": "core.constraints.kinds",
    "ManipulabilityTask": "solve.inverse_kinematics.tasks",
    "Model": "core.model",
    "Mpc": "solve.trajectories.mpc",
    "Obstacles": "api.queries.obstacles",
    "Plane": "core.shapes",
    "Point": "core.constraints.kinds",
    "PoseTask": "solve.inverse_kinematics.tasks",
    "PositionTask": "solve.inverse_kinematics.tasks",
    "PostureTask": "solve.inverse_kinematics.tasks",
    "RelativePoseTask": "solve.inverse_kinematics.tasks",
    "RobotDescription": "core.description",
    "Rod": "core.constraints.kinds",
    "Rolling": "core.constraints.kinds",
    "Rollout": "api.motion.result",
    "Sphere": "core.shapes",
    "Trajectory": "solve.trajectories.trajectory",
    "Tracking": "solve.whole_body.tracking",
    "Tree": "core.tree",
    "VelocityReport": "solve.inverse_kinematics.velocity",
    "Weld": "core.constraints.kinds",
    "WholeBodyControl": "solve.whole_body.control",
    "WholeBodyReport": "solve.whole_body.control",
    "auto_tree": "io.builders.auto_tree",
    "build_model": "io.builders.assemble",
    "converter": "io.conventions.converter",
    "differentiate": "solve.identification.differentiation",
    "exciting_trajectory": "solve.identification.excitation",
    "exp": "api.queries.poses",
    "exp_gradient": "api.queries.poses",
    "external_force": "api.queries.external",
    "fit_spheres": "io.builders.sphere_fitting",
    "from_dh": "io.builders.serial_chains",
    "from_pinocchio": "io.builders.pinocchio",
    "from_screws": "io.builders.serial_chains",
    "identify": "solve.identification.identify",
    "load": "io.builders.load_any",
    "load_description": "io.builders.robot_descriptions",
    "load_mjcf": "io.builders.mjcf",
    "load_sdf": "io.builders.sdf",
    "load_urdf": "io.builders.load",
    "load_xacro": "io.builders.xacro",
    "log": "api.queries.poses",
    "log_gradient": "api.queries.poses",
    "optimize_trajectory": "solve.trajectories.optimize",
    "pose_error": "api.queries.poses",
    "pose_error_gradient": "api.queries.poses",
    "random_tree": "io.builders.random_tree",
    "read_urdf": "io.builders.urdf",
    "release_memory": "engines.buffer_pool",
    "show": "tools.viewer.show",
    "simulate": "api.motion.simulation",
    "ArgumentError": "internals.errors",
    "AssemblyError": "internals.errors",
    "ConvergenceWarning": "internals.errors",
    "JointForcesWarning": "internals.errors",
    "LoadError": "internals.errors",
    "NumericalError": "internals.errors",
    "RedundantWarning": "internals.errors",
    "RobodynError": "internals.errors",
    "SingularError": "internals.errors",
    "UnavailableError": "internals.errors",
}

_PROVIDED = {
    "Dynamics": "api.dynamics",
    "Pictures": "tools.plots.pictures",
    "assemble": "algorithms.constraints.assembly",
    "attach": "io.editing.attaching",
    "auto_pairs": "io.editing.shapes",
    "graph": "io.editing.graphs",
    "load": "io.editing.files",
    "lock": "io.editing.locking",
    "of_rollout": "tools.plots.trajectories",
    "parse_xml": "io.builders.elements",
    "passes": "compile.llvm.tree_passes",
    "plot_tree": "tools.plots.trees",
    "quicker": "api.queries.model_functions",
    "read_mesh": "tools.viewer.meshes",
    "reroot": "io.editing.rerooting",
    "save": "io.editing.files",
    "show": "tools.viewer.show",
    "singularity": "api.queries.singularity",
    "subtree": "io.editing.parts",
    "to_mjcf": "io.editing.mjcf_writer",
    "to_urdf": "io.editing.urdf_writer",
    "with_contacts": "io.editing.contacts",
    "with_frames": "io.editing.frames",
    "with_inertia": "io.editing.inertias",
    "with_shapes": "io.editing.shapes",
}
"""Functions of higher packages that lower packages call by name, and their modules (`robodyn.internals.provided`)."""

_provide({name: f"robodyn.{home}" for name, home in _PROVIDED.items()})

_MODULES = ("conventions", "costs", "distributed", "hardware", "inertial_parameters", "plots")

__all__ = [
    "ArgumentError",
    "AssemblyError",
    "Baumgarte",
    "Box",
    "Capsule",
    "CoMTask",
    "Contact",
    "ConvergenceWarning",
    "Coupling",
    "Cylinder",
    "DirectionTask",
    "DistanceTask",
    "Dynamics",
    "ExcitingTrajectory",
    "GazeTask",
    "HeightField",
    "IKReport",
    "Identification",
    "InverseKinematics",
    "JointForcesWarning",
    "JointOrder",
    "LoadError",
    "Lock",
    "ManipulabilityTask",
    "Model",
    "Mpc",
    "NumericalError",
    "Obstacles",
    "Plane",
    "Point",
    "PoseTask",
    "PositionTask",
    "PostureTask",
    "RedundantWarning",
    "RelativePoseTask",
    "RobodynError",
    "RobotDescription",
    "Rod",
    "Rolling",
    "Rollout",
    "SingularError",
    "Sphere",
    "Tracking",
    "Trajectory",
    "Tree",
    "UnavailableError",
    "VelocityReport",
    "Weld",
    "WholeBodyControl",
    "WholeBodyReport",
    "__version__",
    "auto_tree",
    "build_model",
    "conventions",
    "converter",
    "costs",
    "differentiate",
    "exciting_trajectory",
    "exp",
    "exp_gradient",
    "external_force",
    "fit_spheres",
    "from_dh",
    "from_pinocchio",
    "from_screws",
    "hardware",
    "identify",
    "inertial_parameters",
    "load",
    "load_description",
    "load_mjcf",
    "load_sdf",
    "load_urdf",
    "load_xacro",
    "log",
    "log_gradient",
    "optimize_trajectory",
    "plots",
    "pose_error",
    "pose_error_gradient",
    "random_tree",
    "read_urdf",
    "release_memory",
    "show",
    "simulate",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"robodyn.{name}")
    if name in ("casadi", "jax", "torch"):
        raise AttributeError(f"module 'robodyn' has no attribute {name!r} before `import robodyn.{name}`")
    if name not in _HOME:
        raise AttributeError(f"module 'robodyn' has no attribute {name!r}")
    import_module("robodyn.internals.forks")  # from here on a fork waits for imports in other threads
    value = getattr(import_module(f"robodyn.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
