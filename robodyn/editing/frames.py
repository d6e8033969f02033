"""Named frames on links: links without inertia, fixed to the same body."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from robodyn import exact
from robodyn.editing.placing import name_of, row_of, transform_in, transform_of
from robodyn.errors import ArgumentError
from robodyn.messages import brief, quoted

if TYPE_CHECKING:
    from robodyn.model import Model


def with_frames(model: Model, frames: Any) -> Model:
    """The model with more frames; see `Model.with_frames`."""
    if not exact.is_a(frames, dict):
        raise ArgumentError(f"frames: got {brief(frames)}; wanted a dictionary of names to (link, pose)")
    numbers = {name: k for k, name in enumerate(model.link_names)}
    bodies, rows = model.link_body.tolist(), list(model.link_X)
    for given, where in dict.items(frames):
        name = name_of("frames", given)
        if not exact.is_a(where, tuple, list) or len(parts := exact.members(where)) != 2:
            raise ArgumentError(f"frames[{quoted(name)}]: got {brief(where)}; wanted (link, pose)")
        if name in numbers:
            raise ArgumentError(f"frames: {quoted(name)} is a link or a frame of {model.name!r} already")
        link, pose = parts
        found = exact.text_or_none(link)
        at = numbers[found] if found in numbers else model.link_index(link)
        X = transform_of(f"frames[{quoted(name)}]", pose).after(transform_in(rows[at]))
        numbers[name] = len(bodies)
        bodies.append(bodies[at])
        rows.append(np.array(row_of(X)))
    return replace(
        model,
        link_names=tuple(numbers),
        link_body=np.array(bodies, dtype=np.intp),
        link_X=np.array(rows).reshape(-1, 12),
    )
