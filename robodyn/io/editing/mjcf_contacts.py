"""Writes contacts, and how soft they, limits, dry friction and equalities are, as MJCF.

Every contact becomes a <pair> of geoms. Other geoms do not touch: their contype and conaffinity are 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from robodyn.core.contacts.kinds import SOLIMP, SOLREF, Contacts, JointRow, Softness
from robodyn.core.description import Geometry
from robodyn.core.findings import Notes
from robodyn.internals.messages import quoted
from robodyn.io.editing.writer_common import values

if TYPE_CHECKING:
    from robodyn.core.model import Model

_FIELD = "height field"
"""Friction against turning and rolling, which contacts here do not have."""


class MjcfContacts:
    """What a model's contacts add to its MJCF."""

    def __init__(self, model: Model, notes: Notes) -> None:
        contacts = model.contacts
        self._contacts, self.present = contacts or Contacts(), contacts is not None
        limits, friction = self._contacts.limits, self._contacts.dry_friction
        self._limits = {row.joint: row for row in limits}
        self._friction: dict[str, JointRow] = {}
        for row in friction:
            known = self._friction.setdefault(row.joint, row)
            if (known.solref, known.solimp) != (row.solref, row.solimp):
                message = "dry friction whose softness is not the same for all its coordinates"
                notes.gather("not-written", f"joint {quoted(row.joint)}", message)
        self._off = []
        if contacts is None:
            return
        for flag, joints, finite in (
            ("limit", self._limits, np.isfinite(model.lower) | np.isfinite(model.upper)),
            ("frictionloss", self._friction, model.friction > 0.0),
        ):
            if not joints and finite.any():
                self._off.append(flag)
            elif len({row.joint for row in joints.values()}) < np.count_nonzero(finite):
                notes.gather("written-otherwise", "contacts", f"{flag}: MuJoCo has rows for all joints, or for none")
        if not self._contacts.refsafe:
            self._off.append("refsafe")
        if any(_FIELD in pair.kinds for pair in contacts.pairs):
            notes.add("not-written", "contacts", "those with height fields, which MuJoCo computes otherwise")
        for name in ("iterations", "max_contacts"):
            if getattr(self._contacts, name) is not None:
                notes.add("not-written", "contacts", name)

    @property
    def option(self) -> str:
        """The <option> element's attributes."""
        cone = f' cone="{self._contacts.cone}" impratio={values([self._contacts.impratio])}'
        return cone if self.present else ""

    @property
    def flags(self) -> str:
        """The <flag> element, or ""."""
        off = " ".join(f'{flag}="disable"' for flag in self._off)
        return f"<flag {off}/>" if off else ""

    def shapes(self) -> list[Geometry]:
        """The shapes of all contacts, each once."""
        every = dict.fromkeys(shape for pair in self._contacts.pairs for shape in (pair.first, pair.second))
        return [shape for shape in every if shape.kind != _FIELD]

    def joint(self, joint: str) -> str:
        """Attributes of a joint."""
        limit, friction = self._limits.get(joint), self._friction.get(joint)
        margin = f" margin={values([limit.margin])}" if limit is not None and limit.margin else ""
        if limit is not None and limit.most is not None:
            margin += f' limited="true" range={values([0.0, limit.most])}'
        return margin + _soft(limit, "limit") + _soft(friction, "friction")

    def equality(self, constraint: str) -> str:
        """Attributes of an equality."""
        return "".join(_soft(rows, "") for rows in self._contacts.equalities if rows.constraint == constraint)

    def lines(self, names: dict[Geometry, str]) -> list[str]:
        """The <contact> element. `names`: of the geoms that are written."""
        lines = []
        for pair in self._contacts.pairs:
            if pair.first not in names or pair.second not in names:
                continue
            friction = values([*pair.friction, pair.torsional, *pair.rolling])
            tangents = f" solreffriction={values(pair.solreffriction)}" if pair.solreffriction is not None else ""
            margin = f" margin={values([pair.margin])}" if pair.margin else ""
            lines.append(
                f"    <pair geom1={names[pair.second]} geom2={names[pair.first]} "
                f'condim="{pair.condim}" friction={friction}{_soft(pair, "")}{tangents}{margin}/>'
            )
        return ["  <contact>", *lines, "  </contact>"] if lines else []


def _soft(row: Softness | None, suffix: str) -> str:
    """Attributes for `solref` and `solimp` that are not MuJoCo's defaults."""
    if row is None:
        return ""
    return "".join(
        f" {name}{suffix}={values(given)}"
        for name, given, usual in (("solref", row.solref, SOLREF), ("solimp", row.solimp, SOLIMP))
        if given != usual
    )
