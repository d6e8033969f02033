"""Second-order derivatives of forward dynamics.

Differentiating tau(q, qd, qdd) twice at qdd = FD(q, qd, tau) and solving for d2 qdd, the second derivatives of inverse
dynamics are contracted with y = H^-1 mu, where mu contracts those of forward dynamics. With A_x = d qdd / d x, with
D_xy = y' d2 tau / dx dy and with C = D_q,qdd = y' dH / dq,

    mu' d2 qdd / dq dq     = -(D_qq + C A_q + (C A_q)')
    mu' d2 qdd / dq dqd    = -(D_q,qd + C A_qd)
    mu' d2 qdd / dqd dqd   = -D_qd,qd
    mu' d2 qdd / dq dtau   = -C H^-1

As in the gradient (`forward_gradient`) all but solves and products is in one frame: traced together, the gradient and
the second derivatives of inverse dynamics share composites.
"""

from __future__ import annotations

from functools import cache

from robodyn.algorithms.forward_gradient import bias_and_mass_matrix
from robodyn.algorithms.idsva import idsva
from robodyn.algorithms.idsva_hessian import idsva_hessian
from robodyn.chains import Chain, Product, Products, Solution, Solve, Stage, at_units
from robodyn.sweeps import DofOutput

SECOND = ("qq", "q_qd", "qd_qd", "q_qdd")
"""Second derivatives of inverse dynamics, as `idsva_hessian` calls them."""
FIRST = ("dqdd_dq", "dqdd_dqd", "dqdd_dtau")
"""First derivatives of forward dynamics, as the chains call them."""


@cache
def forward_hessian(inputs: tuple[str, ...] = ("q", "qd", "tau", "vector"), damping: bool = False) -> Chain:
    """The four second derivatives contracted with `vector`, with external forces where `inputs` names them.

    `damping`: whether joints are damped by the model's coefficients.
    """
    given = tuple(name for name in inputs if name not in ("tau", "vector"))
    multiplier = {"multiplier": Solution(plus="vector", like=DofOutput("tau"))}
    products = {
        "qq": Product("D_qq", "C", "dqdd_dq", symmetric=True),
        "q_qd": Product("D_q_qd", "C", "dqdd_dqd"),
        "qd_qd": Product("D_qd_qd"),
        "q_tau": Product(None, "C", "dqdd_dtau"),
    }
    second = Stage(
        idsva_hessian((*_with_qdd(given), "vector")),
        names={"qq": "D_qq", "q_qd": "D_q_qd", "qd_qd": "D_qd_qd", "q_qdd": "C"},
        reads={"vector": "multiplier"},
    )
    return Chain(
        name="forward_hessian_" + "_".join((*inputs, *(("damping",) if damping else ()))),
        inputs=inputs,
        stages=(*_first(given, damping, multiplier), second, Products(products)),
        results=tuple(products),
    )


@cache
def forward_tensors(inputs: tuple[str, ...] = ("q", "qd", "tau"), damping: bool = False) -> Chain:
    """What the second derivatives of every component of qdd are made of: those of every component of tau, and A_x."""
    second = Stage(at_units(idsva_hessian((*_with_qdd(_but_tau(inputs)), "vector"))))
    return Chain(
        name="forward_tensors_" + "_".join((*inputs, *(("damping",) if damping else ()))),
        inputs=inputs,
        stages=(*_first(_but_tau(inputs), damping, {}), second),
        results=(*SECOND, *FIRST),
    )


def _but_tau(inputs: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in inputs if name != "tau")


def _with_qdd(given: tuple[str, ...]) -> tuple[str, ...]:
    return (*given[:2], "qdd", *given[2:])


def _first(given: tuple[str, ...], damping: bool, more: dict[str, Solution]) -> tuple[Stage | Solve, ...]:
    """Stages that leave qdd and A_x, and more solutions beside qdd."""
    return (
        Stage(bias_and_mass_matrix(given), {"tau": "bias"}),
        Solve("H", {"qdd": Solution("tau", "bias", DofOutput("tau")), **more}),
        Stage(idsva(_with_qdd(given), damping=damping)),
        Solve(
            "H",
            {
                "dqdd_dq": Solution(minus="tau_q"),
                "dqdd_dqd": Solution(minus="tau_qd"),
                "dqdd_dtau": Solution(),
            },
        ),
    )
