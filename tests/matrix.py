"""Every robot at hand against Pinocchio and MuJoCo, every link of it, and single precision against double.

pytest -m matrix                 holds every robot to the tolerances
python tests/matrix.py           prints the tables of the pages on accuracy (docs/accuracy*.md)
python tests/matrix.py --write   writes them there
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from importlib.metadata import version
from pathlib import Path

import numpy as np
import robots
from oracles import mujoco_oracle, pinocchio_models
from oracles.cases import Case, NothingMoves, make_case, urdf_case
from oracles.quantities import QUANTITIES, Quantity, States
from pages import publish

import robodyn as rd

BASES = ("fixed", "floating")
IN_SINGLE = ("universalUR5", "iiwa14", "go2", "g1_29dof", "talos_full_v2", "pepper", "shadow_hand_right")


@dataclass
class Row:
    """One robot: degrees of freedom by base, worst error of every group, quantities beyond their tolerance, and
    remarks, such as why something could not be compared, with the bases they are about."""

    name: str
    nv: dict[str, int] = field(default_factory=dict)
    worst: dict[str, float] = field(default_factory=dict)
    failures: dict[str, tuple[float, float]] = field(default_factory=dict)
    remarks: dict[str, list[str]] = field(default_factory=dict)

    def add(self, case: Case, what: str, quantities: list[Quantity]) -> None:
        """Measure a case; `what` names it in failures."""
        for quantity in quantities:
            error = case.error(quantity)
            self.worst[quantity.group] = max(error, self.worst.get(quantity.group, 0.0))
            if not error <= (allowed := quantity.allowed(case.oracle, case.states)):
                self.failures[f"{what}, {quantity.name}"] = (error, allowed)

    def remark(self, base: str, text: str) -> None:
        """Add a remark about a base, once."""
        bases = self.remarks.setdefault(text, [])
        if base not in bases:
            bases.append(base)


def measure(path: Path) -> Row:
    """A robot against Pinocchio, both bases, mimics ignored and followed."""
    row = Row(_title(path))
    for base in BASES:
        for label, case in _cases(path, base, row):
            row.nv[base] = max(case.model.nv, row.nv.get(base, 0))
            if case.singular:
                row.remark(base, "H singular")
            row.add(case, f"{base}{label}", case.quantities)
            if not _strictly(path):
                row.remark(base, "loaded with strict=False, as it has an inertia that no body can have")
    return row


def _strictly(path: Path) -> bool:
    try:
        rd.load_urdf(path, mimic="ignore")
    except rd.LoadError:
        return False
    return True


def _cases(path: Path, base: str, row: Row) -> Iterator[tuple[str, Case]]:
    try:
        yield "", urdf_case(path, base, every_link=True)
        if rd.load_urdf(path, strict=False).has_mimic:
            yield ", mimics followed", urdf_case(path, base, follow=True, every_link=True)
    except pinocchio_models.Refused as error:
        row.remark(base, f"Pinocchio: {error}")
    except NothingMoves:
        row.remark(base, "nothing moves")
    except rd.LoadError as error:
        row.remark(base, f"mimics not followed: {error}" if row.nv else str(error))


def measure_mujoco(path: Path) -> Row:
    """A robot against MuJoCo, both bases, mimics ignored."""
    row = Row(_title(path))
    for base in BASES:
        model = rd.load_urdf(path, base=base, mimic="ignore", strict=False)
        try:
            oracle = mujoco_oracle.MujocoOracle(mujoco_oracle.read_urdf(path, base == "floating"), model)
        except mujoco_oracle.Refused as error:
            row.remark(base, f"MuJoCo: {error}")
            continue
        case = make_case(model, oracle, every_link=True, seed=1)
        row.nv[base] = model.nv
        row.add(case, base, [quantity for quantity in case.quantities if quantity.name in mujoco_oracle.ASKED])
    return row


def measure_single(path: Path) -> Row:
    """A robot in single precision against double, at states that single precision holds exactly; floating base."""
    case = urdf_case(path, "floating", every_link=True)
    dyn = rd.Dynamics(case.model, engine="reference", dtype="float32")
    arrays = {f.name: np.float32(getattr(case.states, f.name)) for f in fields(States) if f.name != "links"}
    states = replace(case.states, **arrays)
    row = Row(_title(path), {"floating": case.model.nv})
    for quantity in case.quantities:
        if quantity.group != "manifold":
            error = quantity.error(dyn, case.dyn, states)
            row.worst[quantity.group] = max(error, row.worst.get(quantity.group, 0.0))
    return row


def _title(path: Path) -> str:
    """The file's name; the folder of its robot too, where a collection has one for each."""
    return f"{path.parts[path.parts.index('robots') + 1]}/{path.stem}" if "cmeel.prefix" in path.parts else path.stem


def table(rows: list[Row]) -> str:
    """Rows as Markdown."""
    groups = [g for g in dict.fromkeys(q.group for q in QUANTITIES) if any(g in row.worst for row in rows)]
    head = ["robot", "dof", *groups, "remarks"]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for row in rows:
        errors = [f"{row.worst[g]:.0e}" if g in row.worst else "-" for g in groups]
        dof = " / ".join(str(row.nv.get(base, "-")) for base in BASES)
        remarks = "; ".join(f"{', '.join(bases)}: {text}" for text, bases in row.remarks.items())
        lines.append(f"| {' | '.join([row.name, dof, *errors, remarks])} |")
    worst = [max(row.worst.get(g, 0.0) for row in rows) for g in groups]
    lines.append(f"| **worst** | | {' | '.join(f'**{error:.0e}**' for error in worst)} | |")
    return "\n".join(lines)


def quantities() -> str:
    """What is compared, as Markdown."""
    lines = ["| column | quantities | tolerance | also by MuJoCo |", "|---|---|---|---|"]
    for group in dict.fromkeys(quantity.group for quantity in QUANTITIES):
        for tolerance in sorted({quantity.tolerance for quantity in QUANTITIES if quantity.group == group}):
            names = [q.name for q in QUANTITIES if q.group == group and q.tolerance == tolerance]
            both = [name for name in names if name in mujoco_oracle.ASKED]
            by_mujoco = "all" if both == names else "; ".join(both) or "-"
            lines.append(f"| {group} | {'; '.join(names)} | {tolerance:.0e} | {by_mujoco} |")
    return "\n".join(lines)


def versions() -> str:
    """What was compared with what."""
    return "Measured with " + ", ".join(f"{name} {version(name)}" for name in ("pin", "mujoco", "numpy")) + "."


def main(write: bool) -> int:
    """Measure everything, print or write it; the number of quantities beyond their tolerance."""
    pinocchio = {
        "models": [measure(path) for path in robots.OWN],
        "shared": [measure(path) for path in robots.SHARED],
        "example-robot-data": [measure(path) for path in robots.example_robot_data()],
    }
    mujoco = {"mujoco": [measure_mujoco(path) for path in [*robots.OWN, *robots.SHARED]]}
    single = {"single": [measure_single(robots.shared(name)) for name in IN_SINGLE]}
    tables = {mark: table(rows) for mark, rows in (pinocchio | mujoco | single).items()}
    publish(tables | {"versions": versions(), "quantities": quantities()}, write=write)
    judged = [row for rows in (pinocchio | mujoco).values() for row in rows]
    for row in judged:
        for what, (error, allowed) in row.failures.items():
            print(f"beyond tolerance: {row.name}, {what}: {error:.1e}, allowed {allowed:.0e}")
    return sum(len(row.failures) for row in judged)


if __name__ == "__main__":
    sys.exit(main("--write" in sys.argv[1:]) > 0)
