"""SDF: a Model from a world, a model, or several, as libsdformat and Drake understand them.

Of other files only SDF that it includes is read, from folders that the user gives and that of the file; meshes never.
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

    The root link is the world. Links that no joint holds float under it, by a joint with the link's name, unless their
    model is static. Names of nested models' parts are "nested::part", and so are all where a file has several models.
    Universal and revolute2 joints are two, "joint/1" and "joint/2". Where a joint's frame is not its child's, a link
    "joint/1" is between them. Joints that close loops are cut, in the file's order, and become
    `model.constraints` where there are such; all are reported.

    Args:
        source: a path, XML text, bytes or a file object.
        model: the name of the one model to load; None: all.
        base: None: as the file says; "fixed": links that no joint holds are welded to the world where the file has
            them; "floating": they float, those of static models too.
        mimic: "follow": a mimicking joint has no coordinate of its own and follows its master; "ignore": it is free.
        strict: whether a negative mass, damping, friction or armature, or a principal moment of inertia that is
            negative by half of the largest or more, is refused; if not, it is used and reported. Moments that break
            the triangle inequality are used and reported in any case.
        gravity: acceleration of free fall in world coordinates, m/s^2. None: the world's, which without an element is
            (0, 0, -9.8); (0, 0, -9.81) for files without a world.
        model_dirs: where models are that the file includes: folders that hold models, or a dictionary of the names in
            `model://NAME` and `package://NAME` to folders. URIs relative to the file of `source` want none.

    Returns:
        The model; `model.report` lists what was cut, merged, defaulted, ignored or doubtful.

    Raises:
        LoadError: not a usable robot, or a file that it includes is not found or not in the folders; names the element
            and the value.
        ArgumentError: an option that does not exist, a folder that does not, a gravity that is not three real numbers,
            or a source of no such kind.
        NumericalError: NaN or infinity in `gravity`.
    """
    follow, strictly = one_of("mimic", mimic, MIMIC), flag("strict", strict)
    held = None if base is None else one_of("base", base, BASES)
    name = strict_types.text_or_none(model)
    if model is not None and name is None:
        raise ArgumentError(f"model: got {strict_types.type_name(model)}; wanted the name of a model, or None")
    given = None if gravity is None else gravity_vector(gravity)
    notes = Notes()
    file = read_file(read_source(source), path_of(source), model_dirs, name, notes)
    description, loops, gears = describe(file, held, notes)
    report = Report(notes.findings())
    parts = description.links, description.joints, report
    found = RobotDescription(file.name, *parts, geometries=file.geometries)
    checked, mimics = check_and_resolve(found, mimic=follow, strict=strictly)
    checked, said = close(checked, mimics, loops)
    couplings, more = gears.couple(checked, mimics)
    notes = Notes()
    for each in (*said, *more):
        notes.gather("sdf-loop", each.element, each.message, each.line, each.severity)
    constraints, report = (*checked.constraints, *couplings), Report((*checked.report, *notes.findings()))
    checked = dataclasses.replace(checked, constraints=constraints, report=report)
    falling = gravity_vector(file.gravity or _USUAL_GRAVITY) if given is None else given
    return _with_dampings(assemble(checked, mimics, "fixed", falling), file)


def _with_dampings(model: Model, file: SdfFile) -> Model:
    """Planar joints have a damping for each coordinate, of which a description holds one."""
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
