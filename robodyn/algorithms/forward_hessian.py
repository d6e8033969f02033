"""Second-order derivatives of forward dynamics.

The formulas follow from differentiating tau(q, qd, qdd) twice at qdd = FD(q, qd, tau) and solving for d2 qdd. If mu
contracts the second derivatives of forward dynamics, y = H^-1 mu contracts those of inverse dynamics. With
A_x = d qdd / d x, with D_xy = y' d2 tau / dx dy and with C = D_q,qdd = y' dH / dq,

    mu' d2 qdd / dq dq     = -(D_qq + C A_q + (C A_q)')
    mu' d2 qdd / dq dqd    = -(D_q,qd + C A_qd)
    mu' d2 qdd / dqd dqd   = -D_qd,qd
    mu' d2 qdd / dq dtau   = -C H^-1

All algorithms work in one frame, as in the gradient (`forward_gradient`). A program of the whole chain computes
composites once for the gradient and the second derivatives of inverse dynamics.
"""

from __future__ import annotations

from functools import cache

from robodyn.algorithms.forward_gradient import bias_and_mass_matrix
from robodyn.algorithms.idsva import idsva
from robodyn.algorithms.idsva_hessian import idsva_hessian
from robodyn.algorithms.tasks import Chain, Product, Products, Solution, Solve, Stage
from robodyn.core.sweeps import INPUTS, DofOutput


@cache
def forward_hessian(inputs: tuple[str, ...] = ("q", "qd", "tau", "vector"), damping: bool = False) -> Chain:
    """The four second derivatives contracted with `vector`, with external forces where `inputs` names them.

    `damping`: True if joints are damped by the model's coefficients.
    """
    state = tuple(name for name in inputs if name not in ("tau", "vector"))
    with_qdd, of_dofs = (*state[:2], "qdd", *state[2:]), DofOutput("tau")
    products = {
        "qq": Product("D_qq", "C", "dqdd_dq", symmetric=True),
        "q_qd": Product("D_q_qd", "C", "dqdd_dqd"),
        "qd_qd": Product("D_qd_qd"),
        "q_tau": Product(None, "C", "dqdd_dtau"),
    }
    second = Stage(
        idsva_hessian(tuple(name for name in INPUTS if name == "vector" or name in with_qdd)),
        names={"qq": "D_qq", "q_qd": "D_q_qd", "qd_qd": "D_qd_qd", "q_qdd": "C"},
        reads={"vector": "multiplier"},
    )
    return Chain(
        name="forward_hessian_" + "_".join((*inputs, *(("damping",) if damping else ()))),
        inputs=inputs,
        stages=(
            Stage(bias_and_mass_matrix(state), {"tau": "bias"}),
            Solve("H", {"qdd": Solution("tau", "bias", of_dofs), "multiplier": Solution("vector", like=of_dofs)}),
            Stage(idsva(with_qdd, damping=damping)),
            Solve(
                "H",
                {
                    "dqdd_dq": Solution(minus="tau_q"),
                    "dqdd_dqd": Solution(minus="tau_qd"),
                    "dqdd_dtau": Solution(),
                },
            ),
            second,
            Products(products),
        ),
        results=tuple(products),
    )
