"""Adds named frames: links without inertia that are fixed to the body of another link."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from robodyn.core.poses import name_of, row_of, transform_in, transform_of
from robodyn.internals import strict_types
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import brief, quoted
from robodyn.io.editing.parts import fields_of, unused

if TYPE_CHECKING:
    from robodyn.core.model import Model


def with_frames(model: Model, frames: Any) -> Model:
    """Adds frames to a model; see `Model.with_frames`."""
    if not strict_types.is_a(frames, dict):
        raise ArgumentError(f"frames: got {brief(frames)}; wanted a dictionary of names to (link, pose)")
    fields = fields_of(model)
    numbers = {name: k for k, name in enumerate(fields["link_names"])}
    joints, taken = list(fields["link_joints"]), {*model.joint_names, *fields["link_joints"]}
    rows = {what: list(fields[what]) for what in ("link_body", "link_X", "link_parent", "link_inertia")}
    for key, value in dict.items(frames):
        name = name_of("frames", key)
        if not strict_types.is_a(value, tuple, list) or len(parts := strict_types.members(value)) != 2:
            raise ArgumentError(f"frames[{quoted(name)}]: got {brief(value)}; wanted (link, pose)")
        if name in numbers:
            raise ArgumentError(f"frames: {quoted(name)} is a link or a frame of {model.name!r} already")
        link = strict_types.text_or_none(parts[0])
        parent_link = numbers[link] if link in numbers else model.link_index(parts[0])
        X = transform_of(f"frames[{quoted(name)}]", parts[1]).after(transform_in(rows["link_X"][parent_link]))
        numbers[name] = len(joints)
        joints.append(unused(f"{name}_fixed", taken))
        for what, row in (("link_X", row_of(X)), ("link_parent", parent_link), ("link_inertia", np.zeros(10))):
            rows[what].append(row)
        rows["link_body"].append(rows["link_body"][parent_link])
    arrays: dict[str, Any] = {what: np.array(row, dtype=fields[what].dtype) for what, row in rows.items()}
    if not joints:  # a model without links
        return model
    return replace(model, link_names=tuple(numbers), link_joints=tuple(joints), **arrays)
