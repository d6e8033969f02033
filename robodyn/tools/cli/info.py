"""The command `info --json`: a robot as a document."""

from __future__ import annotations

import json
import math
from typing import Any

from robodyn.core.joints import KINDS
from robodyn.core.model import Model


def print_json(file: str, model: Model) -> None:
    """Print sizes, joints and links."""
    print(json.dumps(_document(file, model), indent=1, allow_nan=False))


def _document(file: str, model: Model) -> dict[str, Any]:
    return {
        "file": file,
        "model": model.name,
        "nq": model.nq,
        "nv": model.nv,
        "bodies": model.n_bodies,
        "mass": model.total_mass,
        "gravity": model.gravity.tolist(),
        "coordinates": list(model.coordinate_names),
        "velocities": list(model.velocity_names),
        "joints": [_joint(model, index) for index in range(model.n_bodies)],
        "links": [
            {"name": name, "body": None if body < 0 else model.body_names[body]}
            for name, body in zip(model.link_names, model.link_body.tolist(), strict=True)
        ],
        "constraints": len(model.constraints),
        "contacts": model.n_contacts,
        "configurations": {name: list(map(float, q)) for name, q in model.configurations.items()},
        "findings": len(model.report),
    }


def _joint(model: Model, index: int) -> dict[str, Any]:
    """A joint and the body it moves. Limits that a joint does not have are null."""
    followed, parent = int(model.mimics[index]), int(model.parent[index])
    found: dict[str, Any] = {
        "name": model.joint_names[index],
        "type": KINDS[model.joint_kind[index]].name,
        "body": model.body_names[index],
        "parent": None if parent < 0 else model.body_names[parent],
        "mass": float(model.inertia[index, 0]),
    }
    if followed >= 0:
        return {**found, "mimics": model.joint_names[followed]}
    q, v = model.coordinates(index)
    limits = {"lower": model.lower[q], "upper": model.upper[q]}
    limits |= {"effort": model.effort_limit[v], "velocity": model.velocity_limit[v]}
    return {
        **found,
        "q": [q.start, q.stop],
        "v": [v.start, v.stop],
        **{name: [x if math.isfinite(x) else None for x in values.tolist()] for name, values in limits.items()},
    }
