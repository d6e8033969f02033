"""What an engine is, and which query runs where."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from robodyn.arguments import Array
from robodyn.chains import Step, Task
from robodyn.errors import UnavailableError
from robodyn.model import Model

if TYPE_CHECKING:
    from robodyn.dynamics import Dynamics
    from robodyn.engines.cpu.generated import GeneratedCode
    from robodyn.engines.gpu.generated import GeneratedKernels
    from robodyn.engines.gpu.options import GpuOptions
    from robodyn.engines.scan.options import ScanOptions


class Engine(Protocol):
    """Runs algorithms on one model at one precision.

    `normalizes`: whether quaternions of any length will do; otherwise they must be unit.
    """

    name: str
    normalizes: bool

    def run(
        self,
        algorithm: Task,
        inputs: Mapping[str, Array],
        outputs: Mapping[str, Array],
        *,
        link: int | None = None,
    ) -> None:
        """Fill `outputs` in place.

        Args:
            algorithm: what to run; its `outputs` name and shape what is filled.
            inputs: (B, ...) arrays of the engine's dtype: `q` (B, nq), `qd`, `qdd`, `tau`, `vector` (B, nv), `f_ext`
                (B, n_bodies, 6), `inertia` (B, n_bodies, 10), `V0`, `dV0` (B, 6). Those the algorithm does not list may
                be missing; a missing V0 or dV0 is zero. Values may be NaN or infinite: they stay in their rows.
            outputs: (B, ...) arrays of the engine's dtype, possibly strided; every entry is overwritten.
            link: index of the link that the query is about, where it is about one.
        """

    def prepare(self, algorithm: Task) -> None:
        """Compile now what `run` would compile at its first call; nothing for engines that do not compile."""

    def generated(self, algorithm: Task) -> GeneratedCode | GeneratedKernels:
        """The code that runs an algorithm.

        Raises:
            UnavailableError: the engine does not compile.
        """

    def fast_call(self, name: str, algorithm: Task, dyn: Dynamics) -> Callable[..., Any] | None:
        """A function that answers the plain calls of a query with less ado than the method `dyn.name`, and passes all
        others on to the method; None where there is none, or none yet."""


@runtime_checkable
class Marching(Protocol):
    """An engine that can follow many steps of an integrator in one go."""

    def march(self, step: Step, states: tuple[Array, Array], given: Mapping[str, Array], dt: float) -> bool:
        """Follow an integrator's steps; False where the engine has no program for them, and nothing is done.

        Args:
            step: what a step is.
            states: q (steps + 1, B, nq) and qd (steps + 1, B, nv), contiguous, of which the first row is given and the
                others are filled.
            given: the other inputs of its dynamics by name, (steps, B, ...), or (1, B, ...) where they do not change;
                each state's numbers contiguous.
            dt: seconds of a step.
        """


SUPPORT: dict[str, dict[str, tuple[str, ...]]] = {
    query: dict.fromkeys(("reference", "cpu", "gpu"), ("float64", "float32"))
    for query in (
        "inverse_dynamics",
        "forward_dynamics",
        "mass_matrix",
        "mass_matrix_inverse",
        "bias_force",
        "gravity_force",
        "gravity_force_gradient",
        "mass_matrix_product_gradient",
        "coriolis_matrix",
        "inverse_dynamics_gradient",
        "inverse_dynamics_vjp",
        "forward_dynamics_gradient",
        "inverse_dynamics_hessian",
        "forward_dynamics_hessian",
        "regressor",
        "inverse_dynamics_external_force_gradient",
        "inverse_dynamics_gravity_gradient",
        "forward_dynamics_parameter_gradient",
        "forward_dynamics_external_force_gradient",
        "forward_dynamics_gravity_gradient",
        "forward_kinematics",
        "forward_kinematics_gradient",
        "jacobian",
        "jacobian_derivative",
        "pose_hessian",
        "link_velocity",
        "link_acceleration",
        "kinetic_energy",
        "kinetic_energy_gradient",
        "potential_energy",
        "potential_energy_gradient",
        "center_of_mass",
        "center_of_mass_jacobian",
        "centroidal_momentum",
    )
}
"""Query -> engine -> dtypes. Every joint kind runs on every engine listed. Documentation and tests read this table."""

for _query in ("inverse_dynamics", "forward_dynamics", "mass_matrix", "bias_force", "gravity_force"):
    SUPPORT[_query]["scan"] = ("float64", "float32")
SUPPORT["inverse_dynamics_gradient"]["scan"] = ("float64", "float32")

_RECURSIONS = ("reference", "cpu", "gpu")
METHODS: dict[str, dict[str, tuple[str, ...]]] = {
    "inverse_dynamics": {
        **dict.fromkeys(_RECURSIONS, ("rnea",)),
        "scan": ("rnea", "rnea_world", "twist_pair"),
    },
    "forward_dynamics": {
        **dict.fromkeys(_RECURSIONS, ("aba", "crba")),
        "scan": ("aba_scan", "crba", "jsiia", "hybrid_abia", "hybrid_abia_fused", "cfa"),
    },
    "inverse_dynamics_gradient": {
        **dict.fromkeys(_RECURSIONS, ("idsva", "columns")),
        "scan": ("idsva",),
    },
}
"""Algorithms that a query can be asked to use on each engine, besides "auto"."""


def methods_of(query: str, engine: str) -> tuple[str, ...]:
    """Methods of a query on an engine; engines that are not in the table run the algorithms of the reference engine."""
    return METHODS[query].get(engine, METHODS[query]["reference"])


RECURSIVE = ("aba", "aba_scan", "hybrid_abia", "hybrid_abia_fused", "cfa")
"""Methods of forward dynamics that take every joint as free: not for models whose joints mimic others."""

ENGINE_NAMES = ("auto", "reference", "cpu", "gpu", "scan")
DTYPES = ("float64", "float32")


def make_engine(
    name: str,
    model: Model,
    dtype: np.dtype[Any],
    threads: int | None = None,
    compile: str = "lazy",
    code: str = "auto",
    scan: ScanOptions | None = None,
    gpu: GpuOptions | None = None,
) -> Engine:
    """The engine of that name; "auto" is the fastest one that runs here for NumPy arrays.

    Raises:
        UnavailableError: an engine that cannot run on this machine.
    """
    if name in ("auto", "cpu"):
        try:
            from robodyn.engines.cpu.engine import CpuEngine

            return CpuEngine(model, dtype, threads, compile, code, lenient=name == "auto")
        except (UnavailableError, ImportError, OSError) as error:
            if name == "cpu":
                raise UnavailableError(f"engine: 'cpu' does not run here: {error}") from error
            warnings.warn(f"engine 'cpu' does not run here, 'reference' does: {error}", RuntimeWarning, stacklevel=3)
    if name == "gpu":
        from robodyn.engines.gpu.engine import GpuEngine

        return GpuEngine(model, dtype, gpu)
    if name == "scan":
        from robodyn.engines.scan.engine import ScanEngine

        return ScanEngine(model, dtype, scan)
    from robodyn.engines.reference import ReferenceEngine

    return ReferenceEngine(model, dtype)
