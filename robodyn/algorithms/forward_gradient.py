"""Gradient of forward dynamics: accelerations, the gradient of inverse dynamics at them, a solve.

d qdd / d u = - H^-1 d tau / d u and d qdd / d tau = H^-1 (Plancher et al., Accelerating Robot Dynamics Gradients on a
CPU, GPU, and FPGA, algorithm 3). Accelerations come from the mass matrix, which the gradient needs anyway, and from the
bias force in the gradient's frame. A program of the whole chain computes everything but the bias once.
"""

from __future__ import annotations

from functools import cache

from robodyn.algorithms.crba import CRBA
from robodyn.algorithms.idsva import idsva, outside_sweeps
from robodyn.algorithms.rnea import rnea
from robodyn.algorithms.tasks import Chain, Solution, Solve, Stage
from robodyn.algorithms.tree_frame import BASE, MOTION, MOTION_FIELDS
from robodyn.core.sweeps import (
    DOF_FORCES,
    DOF_PAIRS,
    DOFS,
    FORCE,
    INERTIA,
    TRANSFORM,
    Algorithm,
    Ancestors,
    Body,
    DofOutput,
    Fields,
    Inward,
    LinkConstants,
    Outward,
    PairBlocks,
    PairOutput,
    Written,
    with_given,
)


def body_forces(body: Body, own: Fields, parent: Fields) -> Written:
    """I and f = I a + v x* I v of the body alone, to which those of its subtree will be added."""
    inertia = own.XR.inertia_back(body.inertia)
    return {"Ic": inertia, "f": inertia.net_force(own.v, own.a)}


def less_external(body: Body, own: Fields, parent: Fields) -> Written:
    """f_i -= f_ext_i."""
    return {"f": own.f - own.f_out}


def composites(body: Body, own: Fields) -> tuple[Written, Written]:
    """tau_i = S' f_i. All bodies share one frame, so sums over subtrees have no transforms."""
    return {"tau": tuple(column.dot(own.f) for column in own.S)}, {"Ic": own.Ic, "f": own.f}


def column_forces(body: Body, own: Fields, link: LinkConstants) -> Written:
    """I S."""
    return {"IS": tuple(own.Ic.times(column) for column in own.S)}


def block(body: Body, own: Fields, first: Body, of_first: Fields, carry: Fields) -> tuple[Written, Written]:
    """H_ji = S_j' I S_i."""
    return {"H": tuple(tuple(column.dot(IS) for IS in carry.IS) for column in own.S)}, {"IS": carry.IS}


@cache
def bias_and_mass_matrix(inputs: tuple[str, ...] = ("q", "qd")) -> Algorithm:
    """RNEA at qdd = 0 and CRBA in the frame of the tree's first body."""
    outside = outside_sweeps() if "f_ext" in inputs else ()
    less = (Outward(less_external, reads=("f", "f_out"), writes=("f",)),) if outside else ()
    return Algorithm(
        name="bias_and_mass_matrix_" + "_".join(inputs),
        inputs=inputs,
        fields={
            **MOTION_FIELDS,
            "X0R": TRANSFORM,
            "Ic": INERTIA,
            **dict.fromkeys(("f", "f_out"), FORCE),
            "tau": DOFS,
            "IS": DOF_FORCES,
            "H": DOF_PAIRS,
        },
        sweeps=(
            BASE,
            MOTION,
            Outward(body_forces, reads=("XR", "v", "a"), writes=("Ic", "f")),
            *outside,
            *less,
            Inward(composites, reads=("S", "Ic", "f"), writes=("tau",), gives=("Ic", "f")),
            Ancestors(column_forces, block, reads=("S", "Ic"), carries=("IS",), visits=("S",), writes=("H",)),
        ),
        outputs={
            "tau": DofOutput("tau"),
            "H": PairOutput((PairBlocks("H"), PairBlocks("H", transposed=True, diagonal=False)), diagonal="armature"),
        },
    )


def _mass_matrix(inputs: tuple[str, ...]) -> Algorithm:
    return with_given(CRBA, "inertia") if "inertia" in inputs else CRBA


@cache
def forward_by_mass_matrix(inputs: tuple[str, ...] = ("q", "qd", "tau")) -> Chain:
    """qdd = H^-1 (tau - bias): for models with mimicking joints, and an alternative for all (RBDA section 6.1)."""
    return Chain(
        name="forward_crba_" + "_".join(inputs),
        inputs=inputs,
        stages=(
            Stage(rnea(_but(inputs, "tau")), {"tau": "bias"}),
            Stage(_mass_matrix(inputs)),
            Solve("H", {"qdd": Solution("tau", "bias", DofOutput("tau"))}),
        ),
        results=("qdd",),
    )


@cache
def inverse_by_mass_matrix(inputs: tuple[str, ...] = ("q",)) -> Chain:
    """H^-1, for models with mimicking joints."""
    return Chain(
        name="inverse_crba_" + "_".join(inputs),
        inputs=inputs,
        stages=(Stage(_mass_matrix(inputs)), Solve("H", {"Hinv": Solution()})),
        results=("Hinv",),
    )


@cache
def forward_gradient(
    inputs: tuple[str, ...] = ("q", "qd", "tau"), damping: bool = False, floating_base_variant: bool = False
) -> Chain:
    """d qdd / d q, d qdd / d qd and H^-1, with external forces where `inputs` names them.

    `damping`: True if joints are damped by the model's coefficients. `floating_base_variant`: True for models whose
    trees all float freely. Solves then skip known columns of every root: all six of d qdd / d q and the first three of
    d qdd / d qd."""
    state = _but(inputs, "tau")
    gradient = idsva((*state[:2], "qdd", *state[2:]), damping=damping, floating_base_variant=floating_base_variant)
    name = (
        "forward_gradient",
        *inputs,
        *(("damping",) if damping else ()),
        *(("freely",) if floating_base_variant else ()),
    )
    return Chain(
        name="_".join(name),
        inputs=inputs,
        stages=(
            Stage(bias_and_mass_matrix(state), {"tau": "bias"}),
            Solve("H", {"qdd": Solution("tau", "bias", DofOutput("tau"))}),
            Stage(gradient),
            Solve(
                "H",
                {
                    "dqdd_dq": Solution(minus="tau_q", known=6 if floating_base_variant else 0),
                    "dqdd_dqd": Solution(minus="tau_qd", known=3 if floating_base_variant else 0),
                    "dqdd_dtau": Solution(),
                },
            ),
        ),
        results=("dqdd_dq", "dqdd_dqd", "dqdd_dtau"),
        floating_base_variant=None
        if floating_base_variant or "f_ext" in inputs
        else forward_gradient(inputs, damping, floating_base_variant=True),
    )


def _but(inputs: tuple[str, ...], name: str) -> tuple[str, ...]:
    return tuple(each for each in inputs if each != name)
