"""Constraints of edited models: constraints whose links and joints remain are kept, all others are reported.

Frames of constraints are relative to links, and edits do not change the frames of links. Only constraints to the world
need new frames.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from robodyn.core.constraints.kinds import Constraint, Coupling, Lock
from robodyn.core.constraints.serialization import frame
from robodyn.core.findings import Notes, Report, listed
from robodyn.core.joints import KINDS, unit_quaternion
from robodyn.core.spatial import IDENTITY, Transform
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import quoted

if TYPE_CHECKING:
    from robodyn.core.model import Model
    from robodyn.io.editing.parts import Fields


def keep(fields: Fields) -> None:
    """Removes constraints of removed links and joints, and constraints between two frames of one body."""
    if not fields["constraints"]:
        return
    notes = Notes()
    joints = set(fields["joint_names"])
    body: dict[str | None, int] = dict(zip(fields["link_names"], fields["link_body"].tolist(), strict=True))
    body[None] = -1
    kept = []
    for each in fields["constraints"]:
        if isinstance(each, Lock | Coupling):
            names = [each.joint] if isinstance(each, Lock) else [name for name, _ in each.joints]
            removed = [f"joint {quoted(name)}" for name in names if name not in joints]
        else:
            removed = [f"link {quoted(name)}" for name in (each.link, each.to) if name is not None and name not in body]
            if not removed and body[each.link] == body[each.to]:
                notes.gather("constraint-dropped", element(each), "both of its frames are on one body now; left out")
                continue
        if removed:
            notes.gather("constraint-dropped", element(each), f"{listed(removed)} is no longer there to move; left out")
        else:
            kept.append(each)
    fields["constraints"] = tuple(kept)
    note(fields, notes)


def element(constraint: Constraint) -> str:
    """The name of a constraint in findings."""
    return f"constraint {quoted(constraint.name)}"


def note(fields: Fields, notes: Notes) -> None:
    """Appends findings to the report."""
    fields["report"] = Report((*fields["report"], *notes.findings()))


def lock(fields: Fields, values: Mapping[str, float]) -> None:
    """Adds the contributions of locked joints to the offsets of couplings. `keep` removes couplings of locked joints
    only. `values`: coordinates of the locked joints by name."""
    notes = Notes()
    constraints: list[Constraint] = []
    for each in fields["constraints"]:
        if isinstance(each, Coupling) and any(name in values for name, _ in each.joints):
            free = {name: c for name, c in each.joints if name not in values}
            if any(free.values()):
                offset = each.offset - sum(c * values[name] for name, c in each.joints if name in values)
                notes.gather("constraint-changed", element(each), "its locked joints are part of its offset now")
                try:
                    each = replace(each, joints=tuple(free.items()), offset=offset)
                except ArgumentError as error:
                    raise ArgumentError(f"joints: {element(each)}: {error}") from None
        constraints.append(each)
    fields["constraints"] = tuple(constraints)
    note(fields, notes)


def prefixed(constraints: Iterable[Constraint], prefix: str) -> tuple[Constraint, ...]:
    """Adds a prefix to the names of constraints, and to the names of their links and joints."""
    result: list[Constraint] = []
    for each in constraints:
        name = f"{prefix}{each.name}"
        if isinstance(each, Lock):
            result.append(replace(each, joint=f"{prefix}{each.joint}", name=name))
        elif isinstance(each, Coupling):
            joints = tuple((f"{prefix}{joint}", c) for joint, c in each.joints)
            result.append(replace(each, joints=joints, name=name))
        else:
            to = None if each.to is None else f"{prefix}{each.to}"
            result.append(replace(each, link=f"{prefix}{each.link}", to=to, name=name))
    return tuple(result)


def move_world(fields: Fields, to: str | None, X: Transform) -> None:
    """Changes constraints to the world to constraints to a link, or to a new world frame if `to` is None.

    `X`: the transform from that link's frame, or from the new world frame, to the old world frame.
    """
    notes = Notes()
    constraints: list[Constraint] = []
    for each in fields["constraints"]:
        if not isinstance(each, Lock | Coupling) and each.to is None and not (to is None and X == IDENTITY):
            X_world = frame(each.to_at).after(X)
            description = "the world, whose frame is another one" if to is None else f"link {quoted(to)}"
            notes.gather(
                "constraint-changed", element(each), f"it held a link to the world; it holds it to {description}"
            )
            each = replace(each, to=to, to_at=(*X_world.E, *X_world.r))
        constraints.append(each)
    fields["constraints"] = tuple(constraints)
    note(fields, notes)


def holds_world(fields: Fields) -> bool:
    """True if there is a constraint to the world."""
    return any(not isinstance(each, Lock | Coupling) and each.to is None for each in fields["constraints"])


def drop_world(fields: Fields, why: str) -> None:
    """Removes constraints to the world, for parts that do not contain it. `why`: the reason, for the report."""
    notes = Notes()
    kept = []
    for each in fields["constraints"]:
        if isinstance(each, Lock | Coupling) or each.to is not None:
            kept.append(each)
        elif each.link in fields["link_names"]:
            notes.gather("constraint-dropped", element(each), f"{why}; left out")
    fields["constraints"] = tuple(kept)
    note(fields, notes)


def turn_locks(fields: Fields, model: Model, joints: Iterable[int]) -> None:
    """Converts the coordinates of locks of reversed joints, whose parent and child are swapped."""
    kinds = {model.joint_names[b]: KINDS[model.joint_kind[b]] for b in joints}
    constraints: list[Constraint] = []
    for each in fields["constraints"]:
        if isinstance(each, Lock) and each.value is not None and each.joint in kinds:
            kind = kinds[each.joint]
            if kind.nv > 1:
                each = replace(each, value=tuple(from_behind(kind, each.value)))
        constraints.append(each)
    fields["constraints"] = tuple(constraints)


def from_behind(kind: Any, value: Sequence[float]) -> list[float]:
    """The coordinates of the inverse motion, for a joint with several degrees of freedom."""
    q = list(value)
    if kind.quaternion is not None:
        quaternion = slice(kind.quaternion, kind.quaternion + 4)
        q[quaternion] = map(float, unit_quaternion(tuple(q[quaternion])))
    position = kind.transform(tuple(q), 0.0).inverse().r
    if kind.quaternion is None:  # planar
        return [float(position[0]), float(position[1]), -q[2]]
    x, y, z, w = q[quaternion]
    return [*map(float, position[: kind.quaternion]), -x, -y, -z, w]
