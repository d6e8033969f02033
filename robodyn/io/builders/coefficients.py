"""Armature, damping, friction and gravity from models of other libraries."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from robodyn.core.findings import Notes, Report
from robodyn.core.model import Model
from robodyn.internals.arguments import Array
from robodyn.internals.errors import LoadError
from robodyn.internals.messages import quoted
from robodyn.io.builders.check_joints import report_joint_forces


def with_coefficients(model: Model, found: Mapping[str, Array], source: str, strict: bool) -> Model:
    """A copy of a model with other joint coefficients, which are checked like those of a file.

    Args:
        model: the robot.
        found: "armature", "damping" and "friction", each (nv_tree,).
        source: format of the robot's source, "mjcf" or "pinocchio", for `FileTree.format`.
        strict: True to refuse negative coefficients.

    Raises:
        LoadError: a coefficient is NaN or infinite, or, if `strict`, negative; the message names the joint.
    """
    notes = Notes()
    for what, values in found.items():
        for v in np.flatnonzero(~np.isfinite(values) | (values < 0.0)).tolist():
            body = int(np.searchsorted(model.v_start, v, side="right")) - 1
            subject = f"joint {quoted(model.joint_names[body])}"
            if not np.isfinite(values[v]):
                raise LoadError(f"{subject}: its {what} is {values[v]}; wanted a finite number")
            message = f"its {what} {values[v]:g} is negative"
            if strict:
                raise LoadError(f"{subject}: {message}; at least 0 is allowed (strict=False loads it as it is)")
            notes.add("negative-coefficient", subject, f"{message}; used as given")
    forces = np.any([found[what] != 0.0 for what in ("damping", "friction")], axis=0)
    for body in np.unique(np.searchsorted(model.v_start, np.flatnonzero(forces), side="right") - 1).tolist():
        report_joint_forces(f"joint {quoted(model.joint_names[body])}", notes)
    fields: dict[str, Any] = {f"tree_{what}": values for what, values in found.items()}
    tree = model.file_tree
    return dataclasses.replace(
        model,
        **fields,
        report=Report((*model.report, *notes.findings())),
        file_tree=None if tree is None else dataclasses.replace(tree, format=source),
    )


def finite_gravity(gravity: Array) -> Array:
    """Checks that gravity is finite, and returns it.

    Raises:
        LoadError: it is NaN or infinite.
    """
    if not np.isfinite(gravity).all():
        raise LoadError(f"gravity: got {gravity.tolist()}; wanted finite numbers")
    return gravity
