"""What `identify` gives."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from robodyn.api.dynamics import Dynamics
from robodyn.core.model import Model
from robodyn.internals.arguments import Array
from robodyn.internals.records import dataclass


@dataclass(frozen=True, eq=False)
class Identification:
    """Parameters of a robot that measurements gave.

    `model`: the robot with what was found. `names` (p,): of all unknowns: ten a body, in the order of
    `Model.inertia`, then armature, damping and friction of joints. `values` (p,): theirs, SI units.
    `standard_deviation` (p,): of each by the data alone, infinite where it cannot be felt apart from others.

    `base_names` (b,), `base_values` (b,), `covariance` (b, b): base parameters by least squares, without the prior and
    without physical consistency; `base_matrix` (b, p): these are `base_matrix @ values` of a robot. `base_interval`
    (b, 2): 95 % of each: 1.96 standard deviations, but of armature, friction and Stribeck's effect of joints, where
    that is asked for, by profile likelihood, since this effect is not linear in its speed.
    `unseen`: names of unknowns that no measured torque depends on.

    `noise` (nv,): standard deviation of the noise of tau that equations were weighed by, zero where tau was not
    measured. `misfit`: what least squares leaves, relative to that noise: 1 if the model explains the data.
    `torque_error` (nv,): root mean square of tau less that of `model`, N m and N; NaN for robots with constraints and
    where tau was not measured. `condition`: of the equations of base parameters, each in units of its own effect:
    from about 100 on the motion hardly tells some of them.

    `stribeck` (nv, 2): s and v of the additional dry friction s exp(-(qd/v)^2) sign(qd), None if not asked for. v is
    between 0.02 and 1 times the largest speed of the joint; 1 where a joint does not move.
    """

    model: Model
    names: tuple[str, ...]
    values: Array
    standard_deviation: Array
    base_names: tuple[str, ...]
    base_values: Array
    covariance: Array
    base_interval: Array
    base_matrix: Array
    unseen: tuple[str, ...]
    noise: Array
    misfit: float
    torque_error: Array
    condition: float
    samples: int
    stribeck: Array | None = None

    def torques(self, q: ArrayLike, qd: ArrayLike, qdd: ArrayLike, **options: Any) -> Array:
        """(..., nv) the torques that a motion takes, N m and N: `inverse_dynamics` of `model` with friction, without
        forces of constraints.

        `options`: those of `inverse_dynamics`, such as `f_ext`.
        """
        dyn = Dynamics(self.model, joint_forces=("damping", "friction"), constraints=())
        tau = np.asarray(dyn.inverse_dynamics(q, qd, qdd, **options))
        if self.stribeck is not None:
            v = np.asarray(qd, float)
            tau = tau + self.stribeck[:, 0] * np.exp(-((v / self.stribeck[:, 1]) ** 2)) * np.sign(v)
        return tau

    def __repr__(self) -> str:
        worst = np.nanmax(self.torque_error, initial=0.0)
        return (
            f"<Identification: {len(self.base_values)} base parameters of {len(self.values)} from {self.samples} "
            f"samples, misfit {self.misfit:.3g} of the noise, torques at most {worst:.3g} off in the mean of a joint>"
        )
