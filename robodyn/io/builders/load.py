"""Loads a URDF file or robot object as a Model."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Literal

from numpy.typing import ArrayLike

from robodyn.core.findings import Notes
from robodyn.core.model import Model
from robodyn.internals.arguments import one_of
from robodyn.io.builders.assemble import BASES, assemble, gravity_vector
from robodyn.io.builders.collisions import MESHES, without_meshes
from robodyn.io.builders.sources import path_of
from robodyn.io.builders.urdf import read_and_resolve


def load_urdf(
    source: str | bytes | os.PathLike[str] | IO[Any] | Any,
    base: Literal["fixed", "floating"] = "fixed",
    mimic: Literal["follow", "ignore"] = "follow",
    strict: bool = True,
    gravity: ArrayLike = (0.0, 0.0, -9.81),
    meshes: Literal["ignore", "box", "spheres"] = "ignore",
) -> Model:
    """Load a robot from URDF.

    Args:
        source: a path, XML text, bytes, a file object, or a robot object of urdfpy, urchin or yourdfpy.
        base: "fixed" welds the root link to the world, "floating" gives it six degrees of freedom.
        mimic: "follow": a mimicking joint has no coordinate of its own and follows its master; "ignore": it is free.
        strict: True to refuse a negative mass, damping, friction or armature, and a principal moment of inertia that is
            negative by half of the largest or more. False to use and report such values. Moments that violate the
            triangle inequality are used and reported in any case.
        gravity: acceleration of free fall in world coordinates, m/s^2.
        meshes: what meshes for collisions are in distances (`Model.shapes`): nothing, the box around each, along the
            axes of its file, or spheres (`robodyn.fit_spheres`) that stick out by at most 2 cm. The last two need
            trimesh. The report says what became of each; a mesh that is not found or not read is a warning there.

    Returns:
        The model. `model.report` lists all elements that were merged, defaulted, ignored or doubtful.

    Raises:
        LoadError: not a usable robot; the message names the element and the value.
        UnavailableError: `meshes` needs trimesh, which is not installed (the extra `viewer`).
        ArgumentError: an unknown option, a gravity that is not three real numbers, or an unsupported kind of source.
        NumericalError: NaN or infinity in `gravity`.
    """
    description, mimics = read_and_resolve(source, mimic=mimic, strict=strict)
    if one_of("meshes", meshes, MESHES) != "ignore":
        notes = Notes()
        shapes = without_meshes(description.geometries, meshes, notes)
        description = replace(description, geometries=shapes, report=(*description.report, *notes.findings()))
    path = path_of(source)
    where = None if path is None else str(Path(path).absolute())
    return assemble(description, mimics, one_of("base", base, BASES), gravity_vector(gravity), where)
