"""Bilateral constraints: closed loops, feet on the ground, couplings, locked joints.

Frames of a constraint: b is fixed to `link`, a to `to`, or to the world. A constraint's force is that which `to` exerts
on `link`, in the axes of a. What is held is a function of the relative pose, so that it does not matter where the robot
is. docs/constraints.md is the guide.
"""

from robodyn.core.constraints.kinds import Constraint, Coupling, Lock, Point, Rod, Weld

__all__ = ["Constraint", "Coupling", "Lock", "Point", "Rod", "Weld"]
