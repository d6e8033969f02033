"""Drake's reading of an SDF file beside ours: the same robot, at random states, in Drake's coordinates.

Drake is not installed by the extra `test`: who has its wheel, in a folder on PYTHONPATH, has these tests.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import numpy as np

import robodyn as rd

_SHAPES = re.compile(r"<(contact|visual|collision)\b.*?</\1>", re.DOTALL)
_NO_MASS = re.compile(r"<mass>0(\.0*)?</mass>")
DOWN = (0.0, 0.0, -9.81)
"""Drake's gravity, whatever a file says."""


def plant_of(source: str | Path, packages: dict[str, Path] | None = None) -> Any:
    """Drake's plant of SDF, a path or a text; raises RuntimeError for what Drake does not read. `packages`: folders of
    models that are included."""
    from pydrake.multibody.parsing import Parser
    from pydrake.multibody.plant import MultibodyPlant

    logging.getLogger("drake").setLevel(logging.ERROR)
    plant = MultibodyPlant(0.0)
    parser = Parser(plant)
    for name, folder in (packages or {}).items():
        parser.package_map().Add(name, str(folder))
    if isinstance(source, Path):
        parser.AddModels(str(source))
    else:
        parser.AddModelsFromString(source, "sdf")
    plant.Finalize()
    return plant


def readable(path: Path) -> tuple[str, str]:
    """The text of a file that Drake reads as it is meant, and what was done to it for that, "" for nothing.

    Drake refuses contacts and shapes that SDF does not know, which have no part in dynamics, and takes 1 kg for a mass
    of zero beside moments of inertia. Raises RuntimeError where Drake refuses the file all the same.
    """
    given = path.read_text()
    text = _NO_MASS.sub("<mass>0.5</mass>", given)
    done = ["0.5 kg for no mass"] if text != given else []
    try:
        plant_of(text)
    except RuntimeError:
        text = _SHAPES.sub("", text)
        done.append("no shapes and contacts")
        plant_of(text)
    return text, ", ".join(done)


def errors(
    source: str | Path,
    model: rd.Model,
    states: int = 3,
    seed: int = 0,
    packages: dict[str, Path] | None = None,
) -> dict[str, float]:
    """The largest differences, relative to the largest number: inverse dynamics, mass matrix, gravity, poses of all
    links and frames, and the residual of forward dynamics."""
    print(f"seed {seed}")
    plant = plant_of(source, packages)
    context, dyn, rng = (
        plant.CreateDefaultContext(),
        rd.Dynamics(model, engine="reference"),
        np.random.default_rng(seed),
    )
    way, found = rd.converter(model, "drake", joint_names=_joint_names(plant, model)), {}
    assert (plant.num_positions(), plant.num_velocities()) == (way.nq, way.nv)
    for _ in range(states):
        q = model.random_configuration(rng)
        qd, qdd = rng.uniform(-1.0, 1.0, (2, model.nv))
        plant.SetPositions(context, way.q_to(q))
        plant.SetVelocities(context, way.v_to(q, qd))
        _note(found, "FK", *_poses(plant, context, model, dyn.forward_kinematics(q)))
        if not model.nv:
            continue
        tau, H = dyn.inverse_dynamics(q, qd, qdd), dyn.mass_matrix(q)
        forces = plant.MakeMultibodyForces(plant) if hasattr(plant, "MakeMultibodyForces") else _forces(plant)
        plant.CalcForceElementsContribution(context, forces)
        gravity = plant.CalcGravityGeneralizedForces(context)
        forces.SetZero()
        forces.mutable_generalized_forces()[:] = gravity
        _note(found, "ID", way.tau_to(q, tau), plant.CalcInverseDynamics(context, way.a_to(q, qd, qdd), forces))
        _note(found, "H", way.mass_matrix_to(q, H), plant.CalcMassMatrix(context))
        _note(found, "gravity", way.tau_to(q, dyn.gravity_force(q)), -gravity)
        if dyn.singularity() is None:
            _note(found, "FD", dyn.inverse_dynamics(q, qd, dyn.forward_dynamics(q, qd, tau)), tau)
    return found


def _forces(plant: Any) -> Any:
    from pydrake.multibody.tree import MultibodyForces

    return MultibodyForces(plant)


def _name(plant: Any, part: Any, several: bool) -> str:
    """Our name of a joint or body of Drake's: without the name of the only model."""
    instance = plant.GetModelInstanceName(part.model_instance())
    if not several:
        instance = "::".join(instance.split("::")[1:])
    return f"{instance}::{part.name()}" if instance else part.name()


def _several(plant: Any) -> bool:
    from pydrake.multibody.tree import FrameIndex

    frames = [plant.get_frame(FrameIndex(i)) for i in range(1, plant.num_frames())]
    models = {plant.GetModelInstanceName(frame.model_instance()).split("::")[0] for frame in frames}
    return len(models - {"WorldModelInstance"}) > 1


def _joint_names(plant: Any, model: rd.Model) -> list[str]:
    """Our joints in the order of Drake's coordinates."""
    from pydrake.multibody.tree import JointIndex

    names = []
    joints = [plant.get_joint(JointIndex(i)) for i in range(plant.num_joints())]
    for joint in sorted(joints, key=lambda each: each.velocity_start()):
        if joint.num_velocities():
            names += _ours(_name(plant, joint, _several(plant)), joint, model)
    return names


def _ours(name: str, joint: Any, model: rd.Model) -> list[str]:
    """Our joints for one of theirs, which there has the model of its child."""
    own = joint.name()
    found = [each for each in model.joint_names if each in (name, own) or each.endswith(f"::{own}")]
    found = [name] if name in found else found
    if not found:
        found = [each for each in model.joint_names if each.rpartition("/")[0] in (name, own)]
    return found


def _poses(plant: Any, context: Any, model: rd.Model, poses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Poses of all links and frames that have names, ours and theirs."""
    from pydrake.multibody.tree import FrameIndex

    several, ours, theirs = _several(plant), [], []
    for i in range(1, plant.num_frames()):
        frame = plant.get_frame(FrameIndex(i))
        name = _name(plant, frame, several)
        if name in model.link_names and not frame.name().startswith("__"):
            ours.append(poses[model.link_names.index(name)])
            theirs.append(frame.CalcPoseInWorld(context).GetAsMatrix4())
    assert len(ours) >= plant.num_bodies() - 1
    return np.array(ours), np.array(theirs)


def _note(found: dict[str, float], name: str, got: Any, wanted: Any) -> None:
    error = float(np.abs(got - wanted).max(initial=0.0) / max(np.abs(wanted).max(initial=0.0), 1e-3))
    found[name] = max(found.get(name, 0.0), np.inf if np.isnan(error) else error)
