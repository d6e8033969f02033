"""The errors that robodyn raises. Every one of them is a `RobodynError`."""

from __future__ import annotations


class RobodynError(Exception):
    """Base class of every error that robodyn raises on purpose."""


class LoadError(RobodynError, ValueError):
    """A robot file or robot object cannot be used; names the element, its value and what is allowed."""


class ArgumentError(RobodynError, ValueError):
    """An argument has the wrong shape, type, name or range; names the argument, what it got and what it wants."""


class NumericalError(RobodynError, ArithmeticError):
    """Values that cannot be computed with: NaN or infinity under `check=True`; names the batch rows."""


class SingularError(NumericalError):
    """The joint-space inertia matrix is singular; names the body whose joint has no inertia to move."""


class AssemblyError(NumericalError):
    """No configuration near the given one meets the constraints; names the one that is furthest off."""


class RedundantWarning(UserWarning):
    """Rows of constraints follow from others; names them."""


class JointForcesWarning(UserWarning):
    """Joints have damping or friction that does not act in a motion, as `joint_forces` was not given."""


class UnavailableError(RobodynError, RuntimeError):
    """An engine, a query, an optional dependency or memory that is not there; names what to install or to do."""
