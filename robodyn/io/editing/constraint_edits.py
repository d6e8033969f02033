"""Constraints of models that are edited: what still holds something goes along, and a finding names what does not.

Frames of constraints are given by links, which keep theirs whatever is done: only the world changes.
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
    """Leave out constraints of links and joints that are gone, and those whose frames have become one body's."""
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
            gone = [f"joint {quoted(name)}" for name in names if name not in joints]
        else:
            gone = [f"link {quoted(name)}" for name in (each.link, each.to) if name is not None and name not in body]
            if not gone and body[each.link] == body[each.to]:
                notes.gather("constraint-dropped", element(each), "both of its frames are on one body now; left out")
                continue
        if gone:
            notes.gather("constraint-dropped", element(each), f"{listed(gone)} is no longer there to move; left out")
        else:
            kept.append(each)
    fields["constraints"] = tuple(kept)
    note(fields, notes)


def element(constraint: Constraint) -> str:
    """A constraint as findings call it."""
    return f"constraint {quoted(constraint.name)}"


def note(fields: Fields, notes: Notes) -> None:
    """Put findings behind those of the report."""
    fields["report"] = Report((*fields["report"], *notes.findings()))


def lock(fields: Fields, values: Mapping[str, float]) -> None:
    """Put what locked joints add to couplings into their offsets; couplings of nothing else are left to `keep`."""
    notes = Notes()
    found: list[Constraint] = []
    for each in fields["constraints"]:
        if isinstance(each, Coupling) and any(name in values for name, _ in each.joints):
            left = {name: c for name, c in each.joints if name not in values}
            if any(left.values()):
                offset = each.offset - sum(c * values[name] for name, c in each.joints if name in values)
                notes.gather("constraint-changed", element(each), "its locked joints are part of its offset now")
                try:
                    each = replace(each, joints=tuple(left.items()), offset=offset)
                except ArgumentError as error:
                    raise ArgumentError(f"joints: {element(each)}: {error}") from None
        found.append(each)
    fields["constraints"] = tuple(found)
    note(fields, notes)


def prefixed(constraints: Iterable[Constraint], prefix: str) -> tuple[Constraint, ...]:
    """Constraints with a prefix before all names, their own among them."""
    found: list[Constraint] = []
    for each in constraints:
        name = f"{prefix}{each.name}"
        if isinstance(each, Lock):
            found.append(replace(each, joint=f"{prefix}{each.joint}", name=name))
        elif isinstance(each, Coupling):
            joints = tuple((f"{prefix}{joint}", c) for joint, c in each.joints)
            found.append(replace(each, joints=joints, name=name))
        else:
            to = None if each.to is None else f"{prefix}{each.to}"
            found.append(replace(each, link=f"{prefix}{each.link}", to=to, name=name))
    return tuple(found)


def move_world(fields: Fields, to: str | None, X: Transform) -> None:
    """Let constraints to the world be constraints to a link, or to another frame for a world (None).

    `X`: the transform from that to the old world.
    """
    notes = Notes()
    found: list[Constraint] = []
    for each in fields["constraints"]:
        if not isinstance(each, Lock | Coupling) and each.to is None and not (to is None and X == IDENTITY):
            after = frame(each.to_at).after(X)
            holder = "the world, whose frame is another one" if to is None else f"link {quoted(to)}"
            notes.gather("constraint-changed", element(each), f"it held a link to the world; it holds it to {holder}")
            each = replace(each, to=to, to_at=(*after.E, *after.r))
        found.append(each)
    fields["constraints"] = tuple(found)
    note(fields, notes)


def holds_world(fields: Fields) -> bool:
    """Whether some constraint is one to the world."""
    return any(not isinstance(each, Lock | Coupling) and each.to is None for each in fields["constraints"])


def drop_world(fields: Fields, why: str) -> None:
    """Leave out constraints to the world, which stays behind."""
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
    """Give locks of joints that are passed from the other side the coordinates that these have there."""
    turned = {model.joint_names[b]: KINDS[model.joint_kind[b]] for b in joints}
    found: list[Constraint] = []
    for each in fields["constraints"]:
        if isinstance(each, Lock) and each.value is not None and each.joint in turned:
            kind = turned[each.joint]
            if kind.nv > 1:
                each = replace(each, value=tuple(from_behind(kind, each.value)))
        found.append(each)
    fields["constraints"] = tuple(found)


def from_behind(kind: Any, value: Sequence[float]) -> list[float]:
    """The coordinates of the motion back, of a joint of several."""
    q = list(value)
    if kind.quaternion is not None:
        at = slice(kind.quaternion, kind.quaternion + 4)
        q[at] = map(float, unit_quaternion(tuple(q[at])))
    back = kind.transform(tuple(q), 0.0).inverse().r
    if kind.quaternion is None:  # planar
        return [float(back[0]), float(back[1]), -q[2]]
    x, y, z, w = q[at]
    return [*map(float, back[: kind.quaternion]), -x, -y, -z, w]
