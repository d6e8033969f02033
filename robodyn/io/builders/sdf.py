"""Loads SDF: a Model from a world or from one or several models, with the meaning that libsdformat and Drake give them.

Other files are opened only if they are SDF that the file includes, from its own folder and folders of the user. Meshes
are never opened.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping
from typing import IO, Any, Literal

from numpy.typing import ArrayLike

from robodyn.core.description import RobotDescription
from robodyn.core.findings import Notes, Report
from robodyn.core.model import Model
from robodyn.internals import strict_types
from robodyn.internals.arguments import flag, one_of
from robodyn.internals.errors import ArgumentError
from robodyn.io.builders.assemble import BASES, assemble, gravity_vector
from robodyn.io.builders.checks import MIMIC, check_and_resolve
from robodyn.io.builders.loops import close
from robodyn.io.builders.sdf_models import SdfFile, read_file
from robodyn.io.builders.sdf_tree import describe
from robodyn.io.builders.sources import path_of, read_source

_USUAL_GRAVITY = (0.0, 0.0, -9.81)


def load_sdf(
    source: str | bytes | os.PathLike[str] | IO[Any],
    model: str | None = None,
    base: Literal["fixed", "floating"] | None = None,
    *,
    mimic: Literal["follow", "ignore"] = "follow",
    strict: bool = True,
    gravity: ArrayLike | None = None,
    model_dirs: Iterable[str | os.PathLike[str]] | Mapping[str, str | os.PathLike[str]] = (),
) -> Model:
    """Load robots from SDF, of versions 1.2 to 1.12.

    The root link is the world. A link without a joint gets a floating joint with the link's name, unless its model is
    static. Parts of nested models are called "nested::part"; in files with several models this holds for all parts.
    Universal and revolute2 joints become two joints, "joint/1" and "joint/2". If a joint's frame differs from its
    child's, a link "joint/1" is between them. Joints that close loops, in the file's order, are cut and become
    `model.constraints` if their type allows it; all of them are reported.

    Args:
        source: a path, XML text, bytes or a file object.
        model: name of the only model to load; None: all models.
        base: None: as in the file; "fixed": links without a joint are welded to the world at their poses in the file;
            "floating": they float, and so do links of static models.
        mimic: "follow": a mimicking joint has no coordinate of its own and follows its master; "ignore": it is free.
        strict: True to refuse a negative mass, damping, friction or armature, and a principal moment of inertia that is
            negative by half of the largest or more. False to use and report such values. Moments that violate the
            triangle inequality are used and reported in any case.
        gravity: acceleration of free fall in world coordinates, m/s^2. None: that of the world element, (0, 0, -9.8) if
            it has none; (0, 0, -9.81) for files without a world.
        model_dirs: where to find included models: folders that contain models, or a dictionary from the names in
            `model://NAME` and `package://NAME` to folders. Not needed for URIs relative to the file of `source`.

    Returns:
        The model. `model.report` lists all elements that were cut, merged, defaulted, ignored or doubtful.

    Raises:
        LoadError: not a usable robot, or an included file that is missing or outside of the folders. The message names
            the element and the value.
        ArgumentError: an unknown option, a folder that does not exist, a gravity that is not three real numbers, or an
            unsupported kind of source.
        NumericalError: NaN or infinity in `gravity`.
    """
    follow, strictly = one_of("mimic", mimic, MIMIC), flag("strict", strict)
    base_option = None if base is None else one_of("base", base, BASES)
    name = strict_types.text_or_none(model)
    if model is not None and name is None:
        raise ArgumentError(f"model: got {strict_types.type_name(model)}; wanted the name of a model, or None")
    own_gravity = None if gravity is None else gravity_vector(gravity)
    notes = Notes()
    file = read_file(read_source(source), path_of(source), model_dirs, name, notes)
    description, loops, gears = describe(file, base_option, notes)
    report = Report(notes.findings())
    parts = description.links, description.joints, report
    unchecked = RobotDescription(file.name, *parts, geometries=file.geometries)
    checked, mimics = check_and_resolve(unchecked, mimic=follow, strict=strictly)
    checked, loop_findings = close(checked, mimics, loops)
    couplings, gear_findings = gears.couple(checked, mimics)
    notes = Notes()
    for each in (*loop_findings, *gear_findings):
        notes.gather("sdf-loop", each.element, each.message, each.line, each.severity)
    constraints, report = (*checked.constraints, *couplings), Report((*checked.report, *notes.findings()))
    checked = dataclasses.replace(checked, constraints=constraints, report=report)
    model_gravity = gravity_vector(file.gravity or _USUAL_GRAVITY) if own_gravity is None else own_gravity
    return _with_dampings(assemble(checked, mimics, "fixed", model_gravity), file)


def _with_dampings(model: Model, file: SdfFile) -> Model:
    """Sets the dampings of planar joints. They have one for each coordinate, but a description has room for one
    only."""
    dampings = {edge.name: axis.dampings for edge in file.edges for axis in edge.part.axes if axis.dampings}
    damping = model.tree_damping.copy()
    for i, name in enumerate(model.joint_names):
        if name in dampings:
            start = int(model.v_start[i])
            damping[start : start + 3] = dampings[name]
    tree = model.file_tree
    return dataclasses.replace(
        model,
        tree_damping=damping if dampings else model.tree_damping,
        file_tree=None if tree is None else dataclasses.replace(tree, format="sdf"),
    )
