"""Pinocchio's answers about constraints of ours: points and whole welds, between links or to the world."""

from __future__ import annotations

import numpy as np
import pinocchio as pin

from robodyn.core.constraints.kinds import Point
from robodyn.core.constraints.resolved import resolved_constraints
from robodyn.testing.pinocchio_models import PinocchioAnswers, pinocchio_model

SETTINGS = (1e-12, 1e-10, 20)
"""Accuracy, proximal parameter and most iterations: more exact than what is judged."""


class Constrained:
    """Constraint dynamics of a model with constraints by Pinocchio's proximal solver.

    Args:
        model: `Dynamics.model`, whose constraints are points and welds of six rows.
        settings: accuracy, proximal parameter, iterations.
    """

    def __init__(self, model, settings=SETTINGS):
        self.theirs = pinocchio_model(model)
        self.at = PinocchioAnswers(model, self.theirs).at
        self.data = self.theirs.createData()
        self.models, self.datas = pin.StdVec_RigidConstraintModel(), pin.StdVec_RigidConstraintData()
        for held in resolved_constraints(model):
            # Their first joint is what ours is held by, but the world is always the second.
            ends = [self._end(model, held.to, held.X_to), self._end(model, held.link, held.X)]
            if held.to < 0:
                ends.reverse()
            point = pin.ContactType.CONTACT_3D if held.kind is Point else pin.ContactType.CONTACT_6D
            made = pin.RigidConstraintModel(point, self.theirs, *ends[0], *ends[1], pin.LOCAL)
            self.models.append(made)
            self.datas.append(made.createData())
        self.settings = pin.ProximalSettings(*settings)
        pin.initConstraintDynamics(self.theirs, self.data, self.models, self.datas)

    def _end(self, model, link, X):
        """(joint, placement) of a frame on a link, or on the world."""
        place = pin.SE3(np.reshape(X.E, (3, 3)).T, np.array(X.r))
        if link < 0:
            return 0, place
        frame = self.theirs.frames[self.theirs.getBodyId(model.link_names[link])]
        return frame.parentJoint, frame.placement * place

    def call(self, q, qd, tau):
        """Accelerations in its order, of a state in its order."""
        return pin.constraintDynamics(self.theirs, self.data, q, qd, tau, self.models, self.datas, self.settings)

    def gradient(self, q, qd, tau):
        """Its derivatives of accelerations by q, qd and tau, of a state in its order."""
        self.call(q, qd, tau)
        pin.computeConstraintDynamicsDerivatives(self.theirs, self.data, self.models, self.datas, self.settings)
        return self.data.ddq_dq, self.data.ddq_dv, self.data.ddq_dtau

    def accelerations(self, q, qd, tau):
        """Ours (nv,) of a state."""
        at = self.at
        return np.asarray(self.call(at.coordinates(q), at.rates(qd), at.rates(tau)))[at.velocities]
