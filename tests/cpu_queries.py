"""Every query of a Dynamics on the same states, and how far apart two engines' answers may be."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
import pytest

import robodyn as rd
from robodyn.engines.query_table import FRAMES
from robodyn.internals import tuning


def limit_programs(monkeypatch: pytest.MonkeyPatch, **most: int) -> None:
    """Give programs other limits of operations, by what they are for, whatever makes their code."""
    for limits in tuning.MAX_OPERATIONS.values():
        for kind, operations in most.items():
            monkeypatch.setitem(limits, kind, operations)


@dataclass(frozen=True)
class States:
    """What queries are asked about: arrays of one batch, and a link."""

    q: np.ndarray
    qd: np.ndarray
    qdd: np.ndarray
    tau: np.ndarray
    f_ext: np.ndarray
    V0: np.ndarray
    dV0: np.ndarray
    inertia: np.ndarray
    link: int

    def __getitem__(self, rows) -> States:
        arrays = {f.name: getattr(self, f.name)[rows] for f in fields(self) if f.name != "link"}
        return replace(self, **arrays)


def states_of(model: rd.Model, shape: tuple[int, ...] = (), seed: int = 0, dtype: str = "float64") -> States:
    """States drawn from a seed, rounded to the dtype; the seed is printed so that a failure can be repeated."""
    print(f"states of {model.name}: shape {shape}, seed {seed}")
    rng = np.random.default_rng(seed)
    q = model.random_configuration(rng, shape)
    qd, qdd, tau = rng.standard_normal((3, *shape, model.nv))
    f_ext, base = rng.standard_normal((*shape, model.n_bodies, 6)), rng.standard_normal((2, *shape, 6))
    inertia = model.inertia * rng.uniform(0.8, 1.2, (*shape, model.n_bodies, 1))
    arrays = (array.astype(dtype) for array in (q, qd, qdd, tau, f_ext, *base, inertia))
    return States(*arrays, link=int(rng.integers(len(model.link_names))))


def regular(model: rd.Model) -> bool:
    """Whether its mass matrix can be inverted."""
    return rd.Dynamics(model, engine="reference").singularity() is None


def answers(dyn: rd.Dynamics, s: States, *, invert: bool = True) -> dict[str, np.ndarray]:
    """Results of every query by name, those of several as several; `invert`: also of queries that need H^-1."""
    base, V0, pi = {"V0": s.V0, "dV0": s.dV0}, {"V0": s.V0}, {"inertia": s.inertia}
    found: dict[str, np.ndarray] = {
        "inverse_dynamics": dyn.inverse_dynamics(s.q, s.qd, s.qdd),
        "inverse_dynamics f_ext": dyn.inverse_dynamics(s.q, s.qd, s.qdd, f_ext=s.f_ext, **base),
        "mass_matrix": dyn.mass_matrix(s.q),
        "bias_force": dyn.bias_force(s.q, s.qd),
        "bias_force f_ext": dyn.bias_force(s.q, s.qd, f_ext=s.f_ext, **base),
        "gravity_force": dyn.gravity_force(s.q),
        "gravity_force_gradient": dyn.gravity_force_gradient(s.q),
        "mass_matrix_product_gradient": dyn.mass_matrix_product_gradient(s.q, vector=s.qdd),
        "coriolis_matrix": dyn.coriolis_matrix(s.q, s.qd, **V0),
        "forward_kinematics": dyn.forward_kinematics(s.q),
        "forward_kinematics_gradient": dyn.forward_kinematics_gradient(s.q),
        "kinetic_energy": dyn.kinetic_energy(s.q, s.qd, **V0),
        "potential_energy": dyn.potential_energy(s.q),
        "inverse_dynamics inertia": dyn.inverse_dynamics(s.q, s.qd, s.qdd, f_ext=s.f_ext, **pi, **base),
        "mass_matrix inertia": dyn.mass_matrix(s.q, **pi),
        "kinetic_energy inertia": dyn.kinetic_energy(s.q, s.qd, **pi, **V0),
        "potential_energy inertia": dyn.potential_energy(s.q, **pi),
        "regressor": dyn.regressor(s.q, s.qd, s.qdd, **base),
        "dtau_df_ext": dyn.inverse_dynamics_external_force_gradient(s.q),
        "dtau_dgravity": dyn.inverse_dynamics_gravity_gradient(s.q, **pi),
        "potential_energy_gradient": dyn.potential_energy_gradient(s.q),
    }
    found["dtau_dq"], found["dtau_dqd"] = dyn.inverse_dynamics_gradient(s.q, s.qd, s.qdd, f_ext=s.f_ext, **base)
    found["dK_dq"], found["dK_dqd"] = dyn.kinetic_energy_gradient(s.q, s.qd, **V0)
    vjp = dyn.inverse_dynamics_vjp(s.q, s.qd, s.qdd, vector=s.tau, f_ext=s.f_ext, **base)
    found.update(zip(("vjp by q", "vjp by qd", "vjp by qdd"), vjp, strict=True))
    small = dyn.model.nv <= _SECOND_ORDER
    if small:
        found |= _hessians("tau", dyn.inverse_dynamics_hessian(s.q, s.qd, s.qdd, vector=s.tau, f_ext=s.f_ext, **base))
    for frame in FRAMES:
        found[f"jacobian {frame}"] = dyn.jacobian(s.q, s.link, frame=frame)
        found[f"jacobian_derivative {frame}"] = dyn.jacobian_derivative(s.q, s.qd, s.link, frame=frame, **V0)
        found[f"pose_hessian {frame}"] = dyn.pose_hessian(s.q, s.link, frame=frame)
        found[f"link_velocity {frame}"] = dyn.link_velocity(s.q, s.qd, s.link, frame=frame, **V0)
        found[f"link_acceleration {frame}"] = dyn.link_acceleration(s.q, s.qd, s.qdd, s.link, frame=frame, **base)
        found[f"jacobian {frame} point"] = dyn.jacobian(s.q, s.link, point=s.V0[..., :3], frame=frame)
        by_q, by_qd = dyn.link_velocity_gradient(s.q, s.qd, s.link, frame=frame, **V0)
        found |= {f"dV_dq {frame}": by_q, f"dV_dqd {frame}": by_qd}
    found["link_acceleration classical"] = dyn.link_acceleration(s.q, s.qd, s.qdd, s.link, classical=True, **base)
    other = (s.link + 1) % len(dyn.model.link_names)
    found["jacobian relative"] = dyn.jacobian(s.q, links=[s.link, other], relative_to=other)
    gradient = dyn.link_acceleration_gradient(s.q, s.qd, s.qdd, s.link, classical=True, **base)
    found.update(zip(("dA_dq", "dA_dqd", "dA_dqdd"), gradient, strict=True))
    found["joint_reaction"] = dyn.joint_reaction(s.q, s.qd, s.qdd, f_ext=s.f_ext, **pi, **base)
    found["body_regressor"] = dyn.body_regressor(s.q, s.qd, s.qdd, **base)
    found["kinetic_energy_regressor"] = dyn.kinetic_energy_regressor(s.q, s.qd, **V0)
    found["potential_energy_regressor"] = dyn.potential_energy_regressor(s.q)
    found["subtree_center_of_mass"] = dyn.subtree_center_of_mass(s.q, **pi)
    found["composite_inertia"] = dyn.composite_inertia(s.q, **pi)
    if dyn.model.total_mass > 0:
        found["dvcom/dq"], found["dvcom/dqd"] = dyn.center_of_mass_velocity_gradient(s.q, s.qd, **pi, **V0)
        found["dh/dq"], found["dh/dqd"] = dyn.centroidal_momentum_gradient(s.q, s.qd, **pi, **V0)
        found["centroidal_inertia"] = dyn.centroidal_inertia(s.q, **pi)
        found["center_of_mass_velocity"] = dyn.center_of_mass_velocity(s.q, s.qd, **pi, **V0)
        found["center_of_mass_acceleration"] = dyn.center_of_mass_acceleration(s.q, s.qd, s.qdd, **pi, **base)
        found["centroidal_momentum_rate"] = dyn.centroidal_momentum_rate(s.q, s.qd, s.qdd, **pi, **base)
        found["dA/dt"] = dyn.centroidal_momentum_matrix_derivative(s.q, s.qd, **pi, **V0)
        found["center_of_mass"] = dyn.center_of_mass(s.q)
        found["center_of_mass_jacobian"] = dyn.center_of_mass_jacobian(s.q)
        found["h"], found["A"] = dyn.centroidal_momentum(s.q, s.qd, **V0)
    if invert:
        found["forward_dynamics"] = dyn.forward_dynamics(s.q, s.qd, s.tau)
        found["forward_dynamics f_ext"] = dyn.forward_dynamics(s.q, s.qd, s.tau, f_ext=s.f_ext, **base)
        found["forward_dynamics crba"] = dyn.forward_dynamics(s.q, s.qd, s.tau, method="crba")
        found["mass_matrix_inverse"] = dyn.mass_matrix_inverse(s.q)
        found["forward_dynamics inertia"] = dyn.forward_dynamics(s.q, s.qd, s.tau, f_ext=s.f_ext, **pi, **base)
        found["dqdd_dpi"] = dyn.forward_dynamics_parameter_gradient(s.q, s.qd, s.tau, f_ext=s.f_ext, **pi, **base)
        found["dqdd_dgravity"] = dyn.forward_dynamics_gravity_gradient(s.q, **pi)
        found["dqdd_dq"], found["dqdd_dqd"], found["dqdd_dtau"] = dyn.forward_dynamics_gradient(s.q, s.qd, s.tau)
        if small:
            found |= _hessians(
                "qdd", dyn.forward_dynamics_hessian(s.q, s.qd, s.tau, vector=s.qdd, f_ext=s.f_ext, **pi, **base)
            )
    return found


_SECOND_ORDER = 8
"""Degrees of freedom up to which second derivatives are asked for: they take long to compile."""


def _hessians(of: str, results: tuple[np.ndarray, ...]) -> dict[str, np.ndarray]:
    return {f"d2{of} {k}": each for k, each in enumerate(results)}


# Of the largest entry. What is solved with H carries its condition number besides, which is up to 1e5 here; forward
# dynamics itself is judged by its residual.
TOLERANCE = {"float64": 1e-12, "float32": 1e-5}
INVERTED = {"float64": 1e-10, "float32": 2e-2}
_INVERTED = ("forward_dynamics", "mass_matrix_inverse", "dqdd", "d2qdd")


def beyond(got: dict[str, np.ndarray], wanted: dict[str, np.ndarray], dtype: str) -> dict[str, float]:
    """Results that differ by more than allowed, and how much, relative to their largest entry."""
    assert list(got) == list(wanted)
    errors = {name: difference(got[name], wanted[name]) for name in wanted}
    allowed = {name: (INVERTED if name.startswith(_INVERTED) else TOLERANCE)[dtype] for name in wanted}
    return {name: error for name, error in errors.items() if not error <= allowed[name]}


def difference(got: np.ndarray, wanted: np.ndarray) -> float:
    """Largest difference over the largest entry (or 1 where that is less); infinite where there is NaN."""
    got, wanted = np.asarray(got, np.float64), np.asarray(wanted, np.float64)
    assert got.shape == wanted.shape
    if not wanted.size:
        return 0.0
    error = np.abs(got - wanted).max() / max(np.abs(wanted).max(), 1.0)
    return float(np.inf if np.isnan(error) else error)
