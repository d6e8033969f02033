"""Second-order derivatives of forward dynamics: what they are made of.

Differentiating tau(q, qd, qdd) twice at qdd = FD(q, qd, tau) and solving for d2 qdd, the second derivatives of inverse
dynamics are contracted with y = H^-1 mu, where mu contracts those of forward dynamics. With A_x = d qdd / d x, with
D_xy = y' d2 tau / dx dy and with C = D_q,qdd = y' dH / dq,

    mu' d2 qdd / dq dq     = -(D_qq + C A_q + (C A_q)')
    mu' d2 qdd / dq dqd    = -(D_q,qd + C A_qd)
    mu' d2 qdd / dqd dqd   = -D_qd,qd
    mu' d2 qdd / dq dtau   = -C H^-1

As in the gradient (`forward_gradient`) everything but the solves is in one frame: traced together, the gradient and the
second derivatives of inverse dynamics share composites.
"""

from __future__ import annotations

from functools import cache

from robodyn.algorithms.forward_gradient import bias_and_mass_matrix
from robodyn.algorithms.idsva import idsva
from robodyn.algorithms.idsva_hessian import idsva_hessian
from robodyn.chains import Chain, Solution, Solve, Stage, at_units
from robodyn.sweeps import DofOutput

SECOND = ("qq", "q_qd", "qd_qd", "q_qdd")
"""Second derivatives of inverse dynamics, as `idsva_hessian` calls them."""
FIRST = ("dqdd_dq", "dqdd_dqd", "dqdd_dtau")


@cache
def forward_hessian(inputs: tuple[str, ...] = ("q", "qd", "tau", "vector"), damping: bool = False) -> Chain:
    """D_xy and A_x, with external forces where `inputs` names them; also qdd, and y as `multiplier`.

    Where `vector` is no input, D_xy are tensors: the second derivatives of every component of tau.
    `damping`: whether joints are damped by the model's coefficients.
    """
    contracted = "vector" in inputs
    given = tuple(name for name in inputs if name not in ("tau", "vector"))
    with_qdd = (*given[:2], "qdd", *given[2:])
    second = idsva_hessian((*with_qdd, "vector"))
    solved = {"qdd": Solution("tau", "bias", DofOutput("tau"))}
    if contracted:
        solved["multiplier"] = Solution(plus="vector", like=DofOutput("tau"))
    return Chain(
        name="forward_hessian_" + "_".join((*inputs, *(("damping",) if damping else ()))),
        inputs=inputs,
        stages=(
            Stage(bias_and_mass_matrix(given), {"tau": "bias"}),
            Solve("H", solved),
            Stage(idsva(with_qdd, damping=damping)),
            Solve(
                "H",
                {
                    "dqdd_dq": Solution(minus="tau_q"),
                    "dqdd_dqd": Solution(minus="tau_qd"),
                    "dqdd_dtau": Solution(),
                },
            ),
            Stage(second, reads={"vector": "multiplier"}) if contracted else Stage(at_units(second)),
        ),
        results=(*SECOND, *FIRST, *solved),
    )
