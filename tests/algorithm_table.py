"""Every algorithm that the package has, by name."""

from __future__ import annotations

from robodyn.algorithms import energy, kinematic_gradients, kinematics, momentum, motion_gradients
from robodyn.algorithms.aba import INVERSE_MASS_MATRIX, aba
from robodyn.algorithms.coriolis import CORIOLIS_MATRIX
from robodyn.algorithms.crba import CRBA
from robodyn.algorithms.idsva_hessian import idsva_hessian
from robodyn.algorithms.pivots import MASS_MATRIX_SIZE, PIVOTS
from robodyn.algorithms.regressor import (
    BODY_REGRESSOR,
    EXTERNAL_FORCE_GRADIENT,
    GRAVITY_GRADIENT,
    KINETIC_ENERGY_REGRESSOR,
    POTENTIAL_ENERGY_REGRESSOR,
    REGRESSOR,
)
from robodyn.algorithms.rest_gradient import GRAVITY_FORCE_GRADIENT, MASS_MATRIX_PRODUCT_GRADIENT
from robodyn.algorithms.rnea import joint_reaction, rnea
from robodyn.algorithms.rnea_gradient import rnea_gradient
from robodyn.algorithms.rnea_vjp import rnea_vjp
from robodyn.sweeps import Algorithm, DofOutput, with_given

EVERYTHING = ("q", "qd", "qdd", "f_ext")
ALGORITHMS = {
    a.name: a
    for a in (
        rnea(EVERYTHING),
        rnea(("q", "qd")),
        rnea(("q",)),
        aba(("q", "qd", "tau", "f_ext")),
        aba(("q", "qd", "tau")),
        INVERSE_MASS_MATRIX,
        PIVOTS,
        MASS_MATRIX_SIZE,
        CRBA,
        CORIOLIS_MATRIX,
        rnea_gradient(EVERYTHING),
        rnea_gradient(("q", "qd", "qdd")),
        rnea_vjp((*EVERYTHING[:3], "vector", "f_ext")),
        rnea_vjp(("q", "qd", "qdd", "vector")),
        idsva_hessian((*EVERYTHING[:3], "vector", "f_ext")),
        idsva_hessian(),
        kinematics.forward_kinematics(False),
        kinematics.forward_kinematics(True),
        kinematics.LINK_JACOBIANS,
        *(kinematics.jacobian(f) for f in ("world", "body", "world_aligned")),
        *(kinematic_gradients.jacobian_derivative(f) for f in ("world", "body", "world_aligned")),
        *(kinematic_gradients.pose_hessian(f) for f in ("world", "body", "world_aligned")),
        *(kinematics.link_velocity(f) for f in ("world", "body", "world_aligned")),
        *(kinematics.link_acceleration(f, c) for f in ("world", "body", "world_aligned") for c in (False, True)),
        *(motion_gradients.link_velocity_gradient(f) for f in ("world", "body", "world_aligned")),
        *(motion_gradients.link_acceleration_gradient(f, c) for f in ("world", "body") for c in (False, True)),
        momentum.CENTER_OF_MASS_VELOCITY,
        momentum.CENTER_OF_MASS_ACCELERATION,
        *(momentum.centroidal_momentum_rate(one) for one in (False, True)),
        *(momentum.centroidal_matrix_derivative(one) for one in (False, True)),
        momentum.SUBTREE_CENTERS_OF_MASS,
        momentum.CENTER_OF_MASS_VELOCITY_GRADIENT,
        *(momentum.centroidal_momentum_gradient(one) for one in (False, True)),
        momentum.COMPOSITE_INERTIAS,
        *(momentum.centroidal_inertia(one) for one in (False, True)),
        joint_reaction(EVERYTHING),
        BODY_REGRESSOR,
        KINETIC_ENERGY_REGRESSOR,
        POTENTIAL_ENERGY_REGRESSOR,
        GRAVITY_FORCE_GRADIENT,
        MASS_MATRIX_PRODUCT_GRADIENT,
        energy.KINETIC_ENERGY,
        energy.KINETIC_ENERGY_GRADIENT,
        energy.POTENTIAL_ENERGY,
        energy.CENTER_OF_MASS,
        energy.CENTER_OF_MASS_JACOBIAN,
        *(energy.centroidal_momentum(one) for one in (False, True)),
        REGRESSOR,
        EXTERNAL_FORCE_GRADIENT,
        GRAVITY_GRADIENT,
        rnea((*EVERYTHING, "inertia")),
        aba(("q", "qd", "tau", "inertia")),
        *(with_given(a, "inertia") for a in (INVERSE_MASS_MATRIX, CRBA, PIVOTS)),
        *(with_given(a, "armature") for a in (aba(("q", "qd", "tau")), CRBA)),
        *(with_given(a, "inertia") for a in (energy.KINETIC_ENERGY, energy.POTENTIAL_ENERGY)),
        *(with_given(a, "point") for a in (kinematics.jacobian("body"), kinematics.link_velocity("world_aligned"))),
    )
}


def needs_own_coordinates(algorithm: Algorithm) -> bool:
    """Whether it solves for accelerations of every joint: such algorithms are for models without mimicking joints."""
    return any(isinstance(output, DofOutput) and not output.force for output in algorithm.outputs.values())
