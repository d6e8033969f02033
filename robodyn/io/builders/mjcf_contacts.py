"""Reads contacts of a mjModel, and how soft they, limits, dry friction and equalities are.

MuJoCo's documentation, chapter Computation, "Contact parameters" and "Filtering", describes which pairs of geoms touch
and how their parameters are mixed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from robodyn.core.contacts.kinds import (
    MOST_POWER,
    SLOTS,
    SOLREF,
    Cone,
    Contact,
    EqualityRows,
    JointRow,
    Pair,
    Solimp,
    ordered,
)
from robodyn.core.description import Finding
from robodyn.core.findings import Notes, Report
from robodyn.core.model import Model
from robodyn.core.shapes import Shape, shape_of
from robodyn.internals.arguments import Array
from robodyn.internals.errors import UnavailableError
from robodyn.internals.messages import quoted
from robodyn.io.builders.mjcf_equalities import equality_kinds
from robodyn.io.builders.mjcf_geometries import height_field, primitive
from robodyn.io.builders.mjmodel import MjArrays
from robodyn.io.editing.contacts import with_contacts

WAYS = ("refuse", "ignore")
"""What becomes of a file with something that contacts do not have."""
_TINY = 1e-15
_SUMMED_SINCE = (4, 0)
"""The version of MuJoCo since which margins and gaps of two geoms are summed, and gaps change no force."""
_MOST_NAMED = 8
_FLAGS = {
    "DISABLE": {"DAMPER": "damping that the flag damper disables"},
    "ENABLE": {
        "OVERRIDE": "the option override",
        "SLEEP": "sleeping bodies",
        "DIAGEXACT": "the option diagexact",
        "IPC": "the contact mode ipc",
        "SPECULATIVE": "speculative contacts",
    },
}
"""Flags that change forces in ways that contacts do not have."""


class Rows(NamedTuple):
    """What the reader has read besides contacts. `bodies`, `joints`: names. `constraints`: names of the model's
    constraints by the numbers of their equalities. `equalities`: kinds of active equalities without a constraint."""

    bodies: Sequence[str]
    joints: Sequence[str]
    constraints: Mapping[int, str]
    equalities: Sequence[str]


class _Parameters(NamedTuple):
    """Parameters of a contact. `friction`: along both tangents, about the normal and both tangents. `gap`: widens
    detection only."""

    condim: int
    friction: tuple[float, float, float, float, float]
    solref: Pair
    solimp: Solimp
    margin: float
    gap: float
    solreffriction: Pair | None = None


def with_mjcf_contacts(model: Model, arrays: MjArrays, read: Rows, max_contacts: Any, unsupported: str) -> Model:
    """The model with the contacts and other rows of its file.

    Raises:
        UnavailableError: the file has something that contacts do not have, and `unsupported` is "refuse".
    """
    reader = _Reader(arrays, read)
    contacts, limits, friction = reader.contacts(), reader.limits(), reader.dry_friction()
    equalities = reader.equalities()
    held = tuple(each for each in model.constraints if each.name in {rows.constraint for rows in equalities})
    model = model if len(held) == len(model.constraints) else replace(model, constraints=held)
    notes = Notes()
    reader.report(notes)
    findings = notes.findings()
    differing = reader.differing()
    if findings and unsupported == "refuse":
        named = "; ".join(f"{each.element}: {each.message}" for each in findings[:_MOST_NAMED])
        more = f"; and {len(findings) - _MOST_NAMED} more" if len(findings) > _MOST_NAMED else ""
        raise UnavailableError(
            f"contacts: {quoted(model.name)} has what contacts cannot do yet: {named}{more}; "
            "unsupported='ignore' leaves it out"
        )
    option = arrays.m.opt
    cone: Cone = "elliptic" if int(option.cone) == int(arrays.mujoco.mjtCone.mjCONE_ELLIPTIC) else "pyramidal"
    model = with_contacts(
        model, contacts, cone, float(option.impratio), limits, friction, None, max_contacts,
        not reader.is_off("REFSAFE"), equalities,
    )  # fmt: skip
    every = (*model.report, *findings, *differing)
    return replace(model, report=Report(every)) if len(every) > len(model.report) else model


class _Reader:
    def __init__(self, arrays: MjArrays, read: Rows) -> None:
        self._a, self._read = arrays, read
        self._left_out: list[tuple[str, str]] = []
        self._fields: list[str] = []
        self._kinds = [kind or "" for kind in primitive_kinds(arrays)]
        version = tuple(int(part) for part in arrays.mujoco.__version__.split(".")[:2])
        self._summed = version >= _SUMMED_SINCE

    def is_off(self, *features: str) -> bool:
        """True if an option disables one of these features."""
        return bool(int(self._a.m.opt.disableflags) & self._bits("DISABLE", features))

    def _bits(self, table: str, features: Sequence[str]) -> int:
        bits = getattr(self._a.mujoco, f"mjt{table.title()}Bit")
        prefix = {"DISABLE": "mjDSBL_", "ENABLE": "mjENBL_"}[table]
        return sum(int(getattr(bits, prefix + feature, 0)) for feature in features)

    # Contacts.

    def contacts(self) -> list[Contact]:
        """All pairs of shapes that may touch."""
        if self.is_off("CONSTRAINT", "CONTACT"):
            return []
        explicit, found = set(), []
        for p in range(self._a.size("npair")):
            one, other = (self._a.number(f"pair_geom{k}", p, "ngeom") for k in (1, 2))
            explicit |= {(one, other), (other, one)}
            found.append((one, other, self._of_pair(p)))
        dynamic = (
            (one, other, self._mixed(one, other)) for one, other in self._pairs() if (one, other) not in explicit
        )
        return [each for each in (self._contact(*pair) for pair in chain(found, dynamic)) if each is not None]

    def _pairs(self) -> Iterator[tuple[int, int]]:
        """Pairs of geoms on different bodies that MuJoCo does not filter, the first with the lower type."""
        a = self._a
        kind, affinity = (np.asarray(a[f"geom_{name}"], np.int64) for name in ("contype", "conaffinity"))
        body, weld = a["geom_bodyid"].astype(np.int64), a["body_weldid"].astype(np.int64)
        of_geom, parent = weld[body], weld[a["body_parentid"].astype(np.int64)]
        excluded = a["exclude_signature"].astype(np.int64)
        filters = not self.is_off("FILTERPARENT")
        for one in range(len(body) - 1):
            rest = slice(one + 1, None)
            own, others = of_geom[one], of_geom[rest]
            touch = ((kind[one] & affinity[rest]) | (kind[rest] & affinity[one])) != 0
            touch &= own != others
            if filters:
                touch &= (own == 0) | (others == 0) | ((parent[own] != others) & (parent[others] != own))
            low, high = np.minimum(body[one], body[rest]), np.maximum(body[one], body[rest])
            touch &= ~np.isin((low << 16) + high, excluded) & ~np.isin((high << 16) + low, excluded)
            for other in (np.flatnonzero(touch) + one + 1).tolist():
                first, second = (one, other) if body[one] <= body[other] else (other, one)
                yield (second, first) if a["geom_type"][first] > a["geom_type"][second] else (first, second)

    def _contact(self, one: int, other: int, given: _Parameters) -> Contact | None:
        """The contact of two geoms; the normal points from `one`."""
        a, subject = self._a, f"geoms {self._named(one)} and {self._named(other)}"
        if a["geom_type"][one] > a["geom_type"][other]:
            one, other = other, one
        bodies = [int(a["geom_bodyid"][g]) for g in (one, other)]
        if a["body_weldid"][bodies[0]] == a["body_weldid"][bodies[1]] or not self._moves(bodies):
            return None
        for g in (one, other):
            if a.any("geom_adhesion", g) or a.any("geom_surfacevel", g):
                self._left_out.append((f"geom {self._named(g)}", "adhesion or surface velocity"))
        if (given.margin or given.gap) and not self._summed:
            self._left_out.append((subject, "margins and gaps of a MuJoCo before 4.0"))
        kinds = self._kinds[one], self._kinds[other]
        if not all(kinds) or ordered(*kinds) not in SLOTS:
            words = " and ".join(sorted(kind or self._type(g) for kind, g in zip(kinds, (one, other), strict=True)))
            self._left_out.append((f"contacts of {words}", "there is no formula"))
            return None
        weight = float(a["body_invweight0"][bodies, 0].sum())
        try:
            contact = Contact(
                self._shape(other), self._shape(one), given.friction[:2], given.solref, given.solimp, given.margin,
                given.condim, given.solreffriction, weight, given.friction[2], given.friction[3:],
            )  # fmt: skip
        except UnavailableError as error:  # a height field has too many heights near a shape
            self._left_out.append((subject, str(error)))
            return None
        if _FIELD in kinds:
            self._fields.append(subject)
        return contact

    def _moves(self, bodies: Sequence[int]) -> bool:
        """True if one of the bodies moves. Bodies that are moved from outside stand still."""
        a = self._a
        return any(a["body_weldid"][b] != 0 and a["body_jntnum"][a["body_weldid"][b]] > 0 for b in bodies)

    def _shape(self, g: int) -> Shape:
        body = int(self._a["geom_bodyid"][g])
        link = self._read.bodies[body] if body else ""
        if self._kinds[g] == _FIELD:
            return height_field(self._a, g, link)
        return shape_of(primitive(self._a, g, self._kinds[g], link))

    def _named(self, g: int) -> str:
        name = self._a.mujoco.mj_id2name(self._a.m, self._a.mujoco.mjtObj.mjOBJ_GEOM, g)
        return quoted(name) if name else str(g)

    def _type(self, g: int) -> str:
        return str(self._a.mujoco.mjtGeom(int(self._a["geom_type"][g])).name).removeprefix("mjGEOM_").lower()

    def _of_pair(self, p: int) -> _Parameters:
        """Parameters of an explicit pair."""
        a, friction = self._a, self._a["pair_friction"][p]
        tangents, solref = (np.asarray(a[f"pair_{name}"][p]) for name in ("solreffriction", "solref"))
        if a.any("pair_adhesion", p):
            self._left_out.append((f"pair {p}", "adhesion"))
        return _Parameters(
            int(a["pair_dim"][p]),
            tuple(map(float, friction)),  # type: ignore[arg-type]
            _solref(solref),
            self._solimp(f"pair_solimp[{p}]", a["pair_solimp"][p]),
            float(a["pair_margin"][p]),
            float(a["pair_gap"][p]),
            _solref(tangents) if tangents.any() else None,
        )

    def _mixed(self, one: int, other: int) -> _Parameters:
        """Parameters of two geoms: those of the higher priority, or a mixture of both."""
        a, pair = self._a, [one, other]
        margin, gap = (float(a[f"geom_{name}"][pair].sum()) for name in ("margin", "gap"))
        first, second = a["geom_priority"][pair].tolist()
        if first != second:
            pair = [one if first > second else other]
        (slide, spin, roll), share = a["geom_friction"][pair].max(axis=0).tolist(), 1.0
        if len(pair) == 2:
            weights = a["geom_solmix"][pair]
            small = weights < _TINY
            share = 0.5 if small.all() else float(small[1]) if small.any() else float(weights[0] / weights.sum())
        mixed = [share * a[f"geom_{name}"][pair[0]] + (1.0 - share) * a[f"geom_{name}"][pair[-1]] for name in _SOLVER]
        if not (a["geom_solref"][pair, 0] > 0.0).all():
            mixed[0] = a["geom_solref"][pair].min(axis=0)
        return _Parameters(
            int(a["geom_condim"][pair].max()),
            (slide, slide, spin, roll, roll),
            _solref(mixed[0]),
            self._solimp(f"geoms {self._named(one)} and {self._named(other)}", mixed[1]),
            margin,
            gap,
        )

    # Rows of joints and equalities.

    def limits(self) -> list[JointRow]:
        """Limits of hinges, slides and ball joints."""
        a, rows = self._a, []
        for j in np.flatnonzero(a["jnt_limited"]).tolist() if not self.is_off("CONSTRAINT", "LIMIT") else ():
            most = float(a["jnt_range"][j].max()) if a.joint_types()[j].nv > 1 else None
            dof = int(a["jnt_dofadr"][j])
            soft = self._softness("jnt_solref", "jnt_solimp", j)
            numbers = float(a["jnt_margin"][j]), float(a["dof_invweight0"][dof])
            rows.append(JointRow(*soft, *numbers, joint=self._read.joints[j], most=most))
        return rows

    def dry_friction(self) -> list[JointRow]:
        """Dry friction of joints."""
        a, rows = self._a, []
        starts, types = a["jnt_dofadr"].tolist(), a.joint_types()
        for j, (start, kind) in enumerate(zip(starts, types, strict=True)):
            dofs, subject = range(start, start + kind.nv), f"joint {quoted(self._read.joints[j])}"
            if kind.kind == "floating" and a.any("dof_armature", [*dofs]):
                self._left_out.append((subject, "armature of a free joint"))
            if self.is_off("CONSTRAINT", "FRICTIONLOSS") or not a.any("dof_frictionloss", [*dofs]):
                continue
            if kind.kind == "floating":
                self._left_out.append((subject, "dry friction of a free joint"))
                continue
            rows += [
                JointRow(
                    *self._softness("dof_solref", "dof_solimp", dof), 0.0, float(a["dof_invweight0"][dof]),
                    joint=self._read.joints[j], component=k,
                )
                for k, dof in enumerate(dofs)
                if a["dof_frictionloss"][dof] > 0.0
            ]  # fmt: skip
        return rows

    def equalities(self) -> list[EqualityRows]:
        """Softness of equalities that are constraints of the model."""
        a, kinds, rows = self._a, equality_kinds(self._a.mujoco), []
        sites = int(a.mujoco.mjtObj.mjOBJ_SITE)
        for kind in self._read.equalities:
            self._left_out.append((f"an equality ({kind})", "there is no constraint for it"))
        for e, name in self._read.constraints.items():
            kind, ends = kinds[int(a["eq_type"][e])], [int(a[f"eq_obj{k}id"][e]) for k in (1, 2)]
            if kind == "weld" and a["eq_data"][e][10] != 1.0:
                self._left_out.append((f"equality {quoted(name)}", f"a torquescale of {a['eq_data'][e][10]:g}"))
                continue
            if kind == "joint":
                dofs = [int(a["jnt_dofadr"][j]) for j in ends if j >= 0]
                weights = (float(a["dof_invweight0"][dofs].sum()),) * 2
            else:
                types = a.get("eq_objtype")
                bodies = [int(a["site_bodyid"][s]) for s in ends] if types is not None and types[e] == sites else ends
                one, other = a["body_invweight0"][bodies].sum(axis=0).tolist()
                weights = one, other
            soft = self._softness("eq_solref", "eq_solimp", e)
            rows.append(EqualityRows(*soft, 0.0, weights[0], constraint=name, rotational=weights[1]))
        return rows

    def _softness(self, solref: str, solimp: str, k: int) -> tuple[Pair, Solimp]:
        return _solref(self._a[solref][k]), self._solimp(f"{solimp}[{k}]", self._a[solimp][k])

    def _solimp(self, subject: str, values: Array) -> Solimp:
        """`solimp` within its ranges."""
        dmin, dmax, width, middle, power = (float(x) for x in values)
        dmin, dmax, middle = (min(max(x, 0.0), 1.0) for x in (dmin, dmax, middle))
        power = max(power, 1.0)
        if 2.0 * power % 1.0 or power > MOST_POWER:
            nearest = min(round(2.0 * power) / 2.0, float(MOST_POWER))
            self._left_out.append((subject, f"a power of solimp of {power:g}; {nearest:g} is in its place"))
            power = nearest
        return dmin, dmax, max(width, 0.0), middle, power

    # What is left out or differs.

    def differing(self) -> Sequence[Finding]:
        """Findings about contacts that are read, and differ from MuJoCo's."""
        notes = Notes()
        for subject in self._fields:
            message = "a height field touches at its nearest points; MuJoCo's are others"
            notes.gather("mjcf-contact", subject, message, severity="info")
        return notes.findings()

    def report(self, notes: Notes) -> None:
        """Findings about what contacts do not have."""
        a, option = self._a, self._a.m.opt
        for table, flags in _FLAGS.items():
            raised = int(option.disableflags if table == "DISABLE" else option.enableflags)
            for flag, what in flags.items():
                if raised & self._bits(table, (flag,)):
                    self._left_out.append(("option", what))
        if int(option.noslip_iterations):
            self._left_out.append(("option", "noslip iterations"))
        for name, what in (("tendon_limited", "limits"), ("tendon_frictionloss", "dry friction")):
            if n := int(np.count_nonzero(getattr(a.m, name))):
                self._left_out.append(("tendons", f"{what} of {n} tendons"))
        if a.size("nflex"):
            self._left_out.append(("flexes", "deformable bodies"))
        body = int(a.mujoco.mjtTrn.mjTRN_BODY)
        if (a["actuator_trntype"] == body).any():
            self._left_out.append(("actuators", "adhesion"))
        for subject, message in dict.fromkeys(self._left_out):
            notes.gather("mjcf-contact", subject, message)


_SOLVER = ("solref", "solimp")
_FIELD = "height field"


def primitive_kinds(arrays: MjArrays) -> list[str | None]:
    """The kinds of all geoms that are shapes with formulas; None for others."""
    names = {kind for pair in SLOTS for kind in pair}
    types = {int(value): name[7:].lower() for name, value in arrays.mujoco.mjtGeom.__members__.items()}
    types[int(arrays.mujoco.mjtGeom.mjGEOM_HFIELD)] = _FIELD
    kinds = [types.get(int(number)) for number in arrays["geom_type"].tolist()]
    return [kind if kind in names else None for kind in kinds]


def _solref(values: Array) -> Pair:
    """`solref`; the default in place of one of mixed signs."""
    one, other = (float(x) for x in values)
    return SOLREF if (one > 0.0) != (other > 0.0) else (one, other)
