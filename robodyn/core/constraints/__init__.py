"""Bilateral constraints: closed loops, feet on the ground, couplings, locked joints.

Frames of a constraint: b is fixed to `link`, a to `to`, or to the world. The force of a constraint is the one that `to`
exerts on `link`, in the axes of a. Constraints depend on the relative pose only, not on the robot's place in the world.
docs/constraints.md is the guide.
"""

from robodyn.core.constraints.kinds import Constraint, Coupling, Lock, Point, Rod, Rolling, Weld

__all__ = ["Constraint", "Coupling", "Lock", "Point", "Rod", "Rolling", "Weld"]
