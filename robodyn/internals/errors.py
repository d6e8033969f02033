"""The errors that robodyn raises. Every one of them is a `RobodynError`."""

from __future__ import annotations


class RobodynError(Exception):
    """Base class of every error that robodyn raises deliberately."""


class LoadError(RobodynError, ValueError):
    """A robot file or robot object cannot be used; names the element, its value and the allowed values."""


class ArgumentError(RobodynError, ValueError):
    """An argument has the wrong shape, type, name or range; names the argument, its value and what is wanted."""


class NumericalError(RobodynError, ArithmeticError):
    """Invalid values: NaN or infinity under `check=True`; names the batch rows."""


class SingularError(NumericalError):
    """The joint-space inertia matrix is singular; names the body whose joint has no inertia to move."""


class AssemblyError(NumericalError):
    """No configuration near the given one satisfies the constraints; names the one with the largest error."""


class RedundantWarning(UserWarning):
    """Rows of constraints depend on others; names them."""


class ConvergenceWarning(UserWarning):
    """Contact forces of some states did not converge; names the rows."""


class JointForcesWarning(UserWarning):
    """Joints have damping or friction that a motion ignores because `joint_forces` is not given."""


class UnavailableError(RobodynError, RuntimeError):
    """An engine, a query, an optional dependency or memory is not available; names a remedy."""
