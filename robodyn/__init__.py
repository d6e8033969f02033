"""robodyn: rigid-body dynamics of robots.

    import robodyn as rd

    model = rd.load_urdf("arm.urdf")
    dyn = rd.Dynamics(model)
    tau = dyn.inverse_dynamics(q, qd, qdd)

Names are imported when they are first used, so that importing the package costs next to nothing.
"""

from __future__ import annotations

import sys
from importlib import import_module
from time import time as _now
from typing import TYPE_CHECKING, Any

from robodyn._version import __version__

if TYPE_CHECKING:
    from robodyn import conventions, hardware, inertial_parameters, plots
    from robodyn.builders.assemble import build_model
    from robodyn.builders.auto_tree import auto_tree
    from robodyn.builders.every import load
    from robodyn.builders.load import load_urdf
    from robodyn.builders.mjcf import load_mjcf
    from robodyn.builders.pinocchio import from_pinocchio
    from robodyn.builders.random_tree import random_tree
    from robodyn.builders.robot_descriptions import load_description
    from robodyn.builders.sdf import load_sdf
    from robodyn.builders.urdf import read_urdf
    from robodyn.builders.xacro import load_xacro
    from robodyn.constraints.kinds import Baumgarte, Coupling, Lock, Point, Rod, Weld
    from robodyn.conventions.converter import converter
    from robodyn.conventions.order import JointOrder
    from robodyn.description import RobotDescription
    from robodyn.dynamics import Dynamics
    from robodyn.engines.kept import release_memory
    from robodyn.errors import (
        ArgumentError,
        AssemblyError,
        JointForcesWarning,
        LoadError,
        NumericalError,
        RedundantWarning,
        RobodynError,
        SingularError,
        UnavailableError,
    )
    from robodyn.model import Model
    from robodyn.motion.result import Rollout
    from robodyn.motion.simulation import simulate
    from robodyn.queries.external import external_force
    from robodyn.solvers.inverse_kinematics import IKReport, InverseKinematics
    from robodyn.solvers.tasks import CoMTask, DirectionTask, PoseTask, PositionTask, PostureTask, RelativePoseTask
    from robodyn.tree import Tree
    from robodyn.viewer.show import show

_HOME = {
    "Baumgarte": "constraints.kinds",
    "CoMTask": "solvers.tasks",
    "Coupling": "constraints.kinds",
    "DirectionTask": "solvers.tasks",
    "Dynamics": "dynamics",
    "IKReport": "solvers.inverse_kinematics",
    "InverseKinematics": "solvers.inverse_kinematics",
    "JointOrder": "conventions.order",
    "Lock": "constraints.kinds",
    "Model": "model",
    "Point": "constraints.kinds",
    "PoseTask": "solvers.tasks",
    "PositionTask": "solvers.tasks",
    "PostureTask": "solvers.tasks",
    "RelativePoseTask": "solvers.tasks",
    "RobotDescription": "description",
    "Rod": "constraints.kinds",
    "Rollout": "motion.result",
    "Tree": "tree",
    "Weld": "constraints.kinds",
    "auto_tree": "builders.auto_tree",
    "build_model": "builders.assemble",
    "converter": "conventions.converter",
    "external_force": "queries.external",
    "from_pinocchio": "builders.pinocchio",
    "load": "builders.every",
    "load_description": "builders.robot_descriptions",
    "load_mjcf": "builders.mjcf",
    "load_sdf": "builders.sdf",
    "load_urdf": "builders.load",
    "load_xacro": "builders.xacro",
    "random_tree": "builders.random_tree",
    "read_urdf": "builders.urdf",
    "release_memory": "engines.kept",
    "show": "viewer.show",
    "simulate": "motion.simulation",
    "ArgumentError": "errors",
    "AssemblyError": "errors",
    "JointForcesWarning": "errors",
    "LoadError": "errors",
    "NumericalError": "errors",
    "RedundantWarning": "errors",
    "RobodynError": "errors",
    "SingularError": "errors",
    "UnavailableError": "errors",
}

_imported_at = _now()
"""Seconds since the epoch: files of the package that change later are not what this process runs."""

_MODULES = ("conventions", "distributed", "hardware", "inertial_parameters", "plots")

__all__ = [
    "ArgumentError",
    "AssemblyError",
    "Baumgarte",
    "CoMTask",
    "Coupling",
    "DirectionTask",
    "Dynamics",
    "IKReport",
    "InverseKinematics",
    "JointForcesWarning",
    "JointOrder",
    "LoadError",
    "Lock",
    "Model",
    "NumericalError",
    "Point",
    "PoseTask",
    "PositionTask",
    "PostureTask",
    "RedundantWarning",
    "RelativePoseTask",
    "RobodynError",
    "RobotDescription",
    "Rod",
    "Rollout",
    "SingularError",
    "Tree",
    "UnavailableError",
    "Weld",
    "__version__",
    "auto_tree",
    "build_model",
    "conventions",
    "converter",
    "external_force",
    "from_pinocchio",
    "hardware",
    "inertial_parameters",
    "load",
    "load_description",
    "load_mjcf",
    "load_sdf",
    "load_urdf",
    "load_xacro",
    "plots",
    "random_tree",
    "read_urdf",
    "release_memory",
    "show",
    "simulate",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"robodyn.{name}")
    if name in ("jax", "torch"):
        raise AttributeError(f"module 'robodyn' has no attribute {name!r} before `import robodyn.{name}`")
    if name not in _HOME:
        raise AttributeError(f"module 'robodyn' has no attribute {name!r}")
    import_module("robodyn.forks")  # from here on a fork waits for imports in other threads
    value = getattr(import_module(f"robodyn.{_HOME[name]}"), name)
    globals()[name] = value
    model = sys.modules.get("robodyn.model")
    if model is not None and not model.QUICKER:
        model.QUICKER.append(_quicker)
    return value


def _quicker(*given: Any) -> Any:
    """What stands in for functions of models; models know nothing of engines."""
    return import_module("robodyn.queries.model_functions").quicker(*given)


def __dir__() -> list[str]:
    return sorted(__all__)
