"""What every query of a Dynamics stands on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from robodyn.arguments import Array, one_of, rows_named
from robodyn.array_library import NUMPY, Library, require_one_place
from robodyn.chains import Scan
from robodyn.engines.gpu.options import GpuOptions, gpu_options
from robodyn.engines.protocol import Engine, make_engine, methods_of
from robodyn.errors import ArgumentError, NumericalError, SingularError
from robodyn.messages import brief
from robodyn.model import Model
from robodyn.singularity import InertiaJudge, singularity

if TYPE_CHECKING:
    from robodyn.engines.gpu.engine import GpuEngine
    from robodyn.engines.scan.gpu_engine import GpuScanEngine
    from robodyn.engines.scan.options import ScanOptions
    from robodyn.query import Query


class Core(ABC):
    """Attributes of a Dynamics and the work that several queries share."""

    model: Model
    dtype: np.dtype[Any]
    engine: Engine
    check: bool | None
    threads: int | None
    joint_forces: tuple[str, ...]
    argument_shapes: dict[str, tuple[int, ...]]
    _engine_asked: str
    _gpu_options: GpuOptions | None
    _scan_options: ScanOptions | None

    def _engine_for(self, given: Mapping[str, Any]) -> tuple[Engine, Library]:
        """The engine for the arguments of a call, and the library of their arrays: those on a GPU are for the GPU."""
        if not require_one_place(given):
            return self.engine, NUMPY
        if self.engine.name == "scan":
            return self._gpu_scans, self._gpu_scans.library
        if self.engine.name == "gpu" or self._engine_asked == "auto":
            return self._gpu, self._gpu.library
        name = next(name for name, value in given.items() if value is not None)
        raise ArgumentError(
            f"{name}: got {brief(given[name])} on the GPU; engine {self.engine.name!r} wants NumPy arrays, "
            "engine='gpu' and engine='scan' take it"
        )

    @cached_property
    def _gpu(self) -> GpuEngine:
        """The GPU engine: the chosen one, or the one for arrays on a GPU where the choice is "auto"."""
        from robodyn.engines.gpu.engine import GpuEngine

        if isinstance(self.engine, GpuEngine):
            return self.engine
        return GpuEngine(self.model, self.dtype, gpu_options(self._gpu_options))

    @cached_property
    def _gpu_scans(self) -> GpuScanEngine:
        """The scan engine for arrays on a GPU."""
        from robodyn.engines.scan.gpu_engine import GpuScanEngine

        return GpuScanEngine(self.model, self.dtype, self._scan_options)

    @abstractmethod
    def _answered(self, name: str, result: Any) -> Any:
        """Pass on the first answer to a query, and let machine code take its plain calls from then on."""

    def _joint_force(self, query: Query) -> Array | float:
        """Damping and friction as a generalised force that drives must supply."""
        force: Array | float = 0.0
        qd = query.inputs["qd"]
        if "damping" in self.joint_forces:
            force = force + self._damping(query) * qd
        if "friction" in self.joint_forces:
            force = force + query.library.constant(self.model.friction.astype(self.dtype)) * np.sign(qd)
        return force

    def _damping(self, query: Query) -> Array:
        """(nv,) where the arrays of a call live."""
        return query.library.constant(self.model.damping.astype(self.dtype))

    def _method(self, query: str, method: str) -> str:
        """`method` if the engine has it for a query."""
        return one_of("method", method, ("auto", *methods_of(query, self.engine.name)))

    def _scan(self, query: str, method: str = "auto") -> Scan | None:
        """The task of the scan engine behind a query; other engines have tasks of their own."""
        return Scan(query, method) if self.engine.name == "scan" else None

    # What no state can cure.

    def _require_mass(self) -> None:
        if self.model.total_mass == 0.0:
            raise NumericalError(f"model {self.model.name!r}: nothing that moves has mass, so it has no centre of mass")

    def singularity(self) -> str | None:
        """Why the mass matrix is singular at every state, naming the body, or None where it is not.

        Forward dynamics, the inverse mass matrix and gradients of forward dynamics raise a `SingularError` with this
        message; inverse dynamics does not need the inverse and answers all the same.
        """
        return self._singular

    def _require_regular(self, query: Query) -> None:
        """Raise where the mass matrix has no inverse at any state. Of inertias that are given and not checked, mark
        the rows that give none."""
        if query.inertia is None:
            if self._singular is not None:
                raise SingularError(self._singular)
            return
        if query.singular is not None or (query.library.on_device and not query.checked):
            return  # known, or not to be known without waiting for the device
        inertia = query.library.to_numpy(query.inertia).astype(np.float64, copy=False)
        leading = inertia.shape[:-2]
        rows = self._judge.singular(inertia.reshape(prod(leading), *inertia.shape[-2:])).reshape(leading)
        if query.checked and rows.any():
            where = f" {rows_named(rows, 0)}" if leading else ""
            raise SingularError(
                f"inertia: the joint-space inertia matrix of {self.model.name!r} is singular at every state{where}; "
                f"{self._culprit(inertia, rows)}wanted bodies with mass and inertia that every joint, or its armature, "
                "can feel"
            )
        query.singular = np.broadcast_to(rows, query.leading).reshape(query.batch)

    def _culprit(self, inertia: Array, rows: Array) -> str:
        """Words that name the body that the first singular row leaves without inertia."""
        first = tuple(map(int, np.argwhere(rows)[0]))
        body = self._judge.body(inertia[first])
        if body is None:
            return ""
        row = f" of row {first[0] if len(first) == 1 else first}" if first else ""
        name, joint = self.model.body_names[body], self.model.joint_names[body]
        return f"body {name!r}{row} has no inertia that its joint {joint!r} could move; "

    @cached_property
    def _singular(self) -> str | None:
        return singularity(self.model)

    @cached_property
    def _judge(self) -> InertiaJudge:
        double, engine = np.dtype(np.float64), self.engine
        if self.dtype != double or engine.name in ("scan", "gpu"):  # pivots are a recursion, and rows few
            name = "reference" if engine.name == "reference" else "auto"
            engine = make_engine(name, self.model, double, self.threads)
        return InertiaJudge(self.model, engine, self.dtype)


def require_model(model: Any) -> None:
    """Raise an ArgumentError for anything but a Model."""
    if not isinstance(model, Model):
        raise ArgumentError(f"model: got {type(model).__name__}; wanted a robodyn.Model (robodyn.load_urdf)")
