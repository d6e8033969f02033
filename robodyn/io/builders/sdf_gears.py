"""Gearboxes of SDF: a joint that couples the angles of two bodies, which other joints hold, becomes a `Coupling`.

With theta_1 the angle from the reference body to the parent about `<axis>`, and theta_2 that from the reference body to
the child about `<axis2>`, a gearbox holds theta_2 = -ratio theta_1 (the specification of SDFormat, `gearbox_ratio`).
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
"""Joints whose coordinate is an angle."""

_SLIDING = frozenset({"prismatic"})
_PARALLEL = 1.0 - 1e-6
"""The least cosine between axes that are the same: files write 1.57 for a right angle."""


@dataclass(frozen=True, slots=True)
class Gears:
    """Gearboxes of a file, with what they are to be understood by.

    `turning`: joints of one axis about which they turn, and their names in the description; `link`: the description's
    name of the link, or the world, that a frame moves with.
    """

    file: SdfFile
    gearboxes: tuple[Edge, ...]
    turning: tuple[tuple[Edge, str], ...]
    link: dict[int, str]

    def couple(self, description: RobotDescription, mimics: Mimics) -> tuple[list[Constraint], list[Said]]:
        """Constraints for gearboxes of a description that was checked, and what is to be said of each.

        Raises:
            LoadError: there are too many.
        """
        if len(self.gearboxes) > MAX_LOOPS:
            raise LoadError(f"more than {MAX_LOOPS} gearboxes, the most that are read")
        found: list[Constraint] = []
        said: list[Said] = []
        if not self.gearboxes:
            return found, said
        oriented = links_alike(description, mimics, _SLIDING)
        between: dict[tuple[str, str], tuple[Edge, str, float]] = {}
        for edge, name in self.turning:
            if name not in mimics.welded:
                ends = oriented[self.link[edge.parent]], oriented[self.link[edge.child]]
                between[ends], between[ends[::-1]] = (edge, name, 1.0), (edge, name, -1.0)
        for gearbox in self.gearboxes:
            made = self._coupling(gearbox, oriented, between)
            name = f"joint {quoted(gearbox.name)}"
            if isinstance(made, Coupling):
                found.append(made)
                names = " and ".join(quoted(joint) for joint, _ in made.joints)
                said.append(Said(name, f"a gearbox between joints {names}: a Coupling", gearbox.line, "info"))
            else:
                said.append(Said(name, f"a gearbox; {made}; the tree moves without it", gearbox.line, "warning"))
        return found, said

    def _coupling(
        self, gearbox: Edge, oriented: dict[str, str], between: dict[tuple[str, str], tuple[Edge, str, float]]
    ) -> Coupling | str:
        """The constraint, or why there is none."""
        if gearbox.reference is None or len(gearbox.part.axes) < 2:
            return f"it does not say its {' and '.join(gearbox.part.missing)}"
        reference = oriented[self.link[gearbox.reference]]
        joints: dict[str, float] = {}
        for k, (end, factor) in enumerate(((gearbox.parent, gearbox.part.ratio), (gearbox.child, 1.0))):
            found = between.get((reference, oriented[self.link[end]]))
            if found is None:
                return "no single joint turns each of its links about the reference body"
            edge, name, sign = found
            cosine = sum(a * b for a, b in zip(self._axis(edge, 0), self._axis(gearbox, k), strict=True))
            if abs(cosine) < _PARALLEL:
                return f"its axes are not those of the joints, of which one is {quoted(name)}"
            joints[name] = factor * sign * (1.0 if cosine > 0.0 else -1.0)
        if len(joints) < 2:
            return "both of its links turn by one joint"
        return Coupling(joints, name=gearbox.name)

    def _axis(self, edge: Edge, k: int) -> Vector3:
        """An axis in the world, at the poses of the file."""
        x, y, z = rotate_back(self.file.frames.in_world(edge.axes_in[k]).E, edge.part.axes[k].xyz)
        return x, y, z
