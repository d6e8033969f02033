"""Converts gearboxes of SDF to `Coupling` constraints. A gearbox couples the angles of two bodies with joints of their
own.

theta_1 is the angle of the parent relative to the reference body about `<axis>`. theta_2 is the angle of the child
relative to the reference body about `<axis2>`. A gearbox enforces theta_2 = -ratio theta_1 (SDFormat's specification,
`gearbox_ratio`).
"""

from __future__ import annotations

from robodyn.core.constraints.kinds import Constraint, Coupling
from robodyn.core.description import RobotDescription, Vector3
from robodyn.core.spatial import rotate_back
from robodyn.internals.errors import LoadError
from robodyn.internals.messages import quoted
from robodyn.internals.records import dataclass
from robodyn.io.builders.check_joints import Mimics
from robodyn.io.builders.loops import MAX_LOOPS, Said, links_alike
from robodyn.io.builders.sdf_models import Edge, SdfFile

TURNING = frozenset({"revolute", "continuous", "helical"})
"""Types of joints whose coordinate is an angle."""

_SLIDING = frozenset({"prismatic"})
_PARALLEL = 1.0 - 1e-6
"""Smallest cosine between axes that count as parallel. It allows for rounded angles such as 1.57."""


@dataclass(frozen=True, slots=True)
class Gears:
    """Gearboxes of a file, and the joints that they may couple.

    `turning`: joints with one rotation axis, and their names in the description; `link`: name of the link, or the
    world, that each frame is fixed to.
    """

    file: SdfFile
    gearboxes: tuple[Edge, ...]
    turning: tuple[tuple[Edge, str], ...]
    link: dict[int, str]

    def couple(self, description: RobotDescription, mimics: Mimics) -> tuple[list[Constraint], list[Said]]:
        """The constraints of all gearboxes in a checked description, and a finding about each gearbox.

        Raises:
            LoadError: there are too many.
        """
        if len(self.gearboxes) > MAX_LOOPS:
            raise LoadError(f"more than {MAX_LOOPS} gearboxes, the most that are read")
        constraints: list[Constraint] = []
        findings: list[Said] = []
        if not self.gearboxes:
            return constraints, findings
        oriented = links_alike(description, mimics, _SLIDING)
        between: dict[tuple[str, str], tuple[Edge, str, float]] = {}
        for edge, name in self.turning:
            if name not in mimics.welded:
                ends = oriented[self.link[edge.parent]], oriented[self.link[edge.child]]
                between[ends], between[ends[::-1]] = (edge, name, 1.0), (edge, name, -1.0)
        for gearbox in self.gearboxes:
            result = self._coupling(gearbox, oriented, between)
            name = f"joint {quoted(gearbox.name)}"
            if isinstance(result, Coupling):
                constraints.append(result)
                names = " and ".join(quoted(joint) for joint, _ in result.joints)
                findings.append(Said(name, f"a gearbox between joints {names}: a Coupling", gearbox.line, "info"))
            else:
                findings.append(Said(name, f"a gearbox; {result}; the tree moves without it", gearbox.line, "warning"))
        return constraints, findings

    def _coupling(
        self, gearbox: Edge, oriented: dict[str, str], between: dict[tuple[str, str], tuple[Edge, str, float]]
    ) -> Coupling | str:
        """The constraint of a gearbox, or the reason why there is none."""
        if gearbox.reference is None or len(gearbox.part.axes) < 2:
            return f"it does not say its {' and '.join(gearbox.part.missing)}"
        reference = oriented[self.link[gearbox.reference]]
        joints: dict[str, float] = {}
        for k, (end, factor) in enumerate(((gearbox.parent, gearbox.part.ratio), (gearbox.child, 1.0))):
            joint = between.get((reference, oriented[self.link[end]]))
            if joint is None:
                return "no single joint turns each of its links about the reference body"
            edge, name, sign = joint
            cosine = sum(a * b for a, b in zip(self._axis(edge, 0), self._axis(gearbox, k), strict=True))
            if abs(cosine) < _PARALLEL:
                return f"its axes are not those of the joints, of which one is {quoted(name)}"
            joints[name] = factor * sign * (1.0 if cosine > 0.0 else -1.0)
        if len(joints) < 2:
            return "both of its links turn by one joint"
        return Coupling(joints, name=gearbox.name)

    def _axis(self, edge: Edge, k: int) -> Vector3:
        """The direction of an axis in the world, at the poses of the file."""
        x, y, z = rotate_back(self.file.frames.in_world(edge.axes_in[k]).E, edge.part.axes[k].xyz)
        return x, y, z
