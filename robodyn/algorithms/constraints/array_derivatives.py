"""Derivatives of constraints on arrays of states (B, ...), for robots that are too large for one program."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from robodyn.algorithms.constraints.gradients import motions_of_bodies, transform_of
from robodyn.algorithms.constraints.terms import orthonormal, with_inputs
from robodyn.algorithms.idsva import idsva
from robodyn.algorithms.rest_gradient import MASS_MATRIX_PRODUCT_GRADIENT
from robodyn.algorithms.tasks import Placed, RunAlgorithm
from robodyn.core.constraints.resolved import ResolvedConstraint
from robodyn.core.model import Model
from robodyn.core.spatial import Transform
from robodyn.core.tangent import moved_by
from robodyn.internals.arguments import Array


class ArrayDerivatives:
    """What derivatives need of the constraints of a robot in B states
    (`robodyn.algorithms.constraints.gradients.Moving`).

    `_given`: inputs, `_q` among them, and `_near` with the floating base at the world's origin, whose transform is
    `_world`. `_bodies`: transforms from there.
    """

    _model: Model
    _given: Mapping[str, Array]
    _run: RunAlgorithm
    _placed: Placed
    _q: Array
    _near: Array
    _world: Array
    _bodies: Mapping[str, Array]

    @abstractmethod
    def constant(self, values: Any) -> Array:
        """An array of constants, the same in all states."""

    @abstractmethod
    def _new(self, *shape: int) -> Array:
        """Zeros."""

    @abstractmethod
    def _masked_jacobian(self) -> Array:
        """J (B, m, nv), with zeros for inactive constraints."""

    @abstractmethod
    def _of_base(self, name: str) -> Any:
        """A motion of the base (B, 1, 6), or zero."""

    def index(self, numbers: Array) -> Array:
        """Indices of entries, in the library of the inputs."""
        return self._placed(numbers)

    def times(self, A: Array, B: Array) -> Array:
        """A B."""
        product: Array = A @ B
        return product

    def moved_by(self, step: Array) -> tuple[Array, Array]:
        """Derivatives (B, nv, nv) of q (+) step by q and by step."""
        nv = self._model.nv
        by_q, by_step = (self.zeros(nv, nv) + self.constant(np.eye(nv)) for _ in range(2))
        for kind, _, v_index in self._model.free_joints:
            if kind.nv > 1:
                at = self._placed(v_index)
                block = (slice(None), at[:, :, None], at[:, None, :])
                by_q[block], by_step[block] = moved_by(kind, step[:, at], np)
        return by_q, by_step

    @property
    def active_jacobian(self) -> Array:
        """J (B, m, nv), with zeros for inactive constraints."""
        return self._masked_jacobian()

    def zeros(self, *shape: int) -> Array:
        """An array of zeros (B, ...)."""
        return self._new(len(self._q), *shape)

    def frames(self, held: ResolvedConstraint) -> tuple[Transform, Transform]:
        """Transforms from the world to frames a and b, of arrays (B, 1)."""
        model = self._model

        def on_body(link: int, X: Transform) -> Transform:
            if link < 0 or model.link_body[link] < 0:
                on = X if link < 0 else X.after(transform_of(model.link_X[link]))
                return on.after(transform_of(self._world))
            body = int(model.link_body[link])
            return X.after(transform_of(model.link_X[link])).after(transform_of(self._bodies["X0"][:, body : body + 1]))

        b = on_body(held.link, held.X)
        if held.to < 0 and "targets" in self._given:
            a = transform_of(self._given["targets"][:, held.number : held.number + 1])
            return Transform(orthonormal(a.E), a.r).after(transform_of(self._world)), b
        return on_body(held.to, held.X_to), b

    def motions(self, share: Array | None = None, **others: Array) -> Mapping[str, Array]:
        """Transforms, velocities and accelerations of all bodies, and of the base (B, n + 1, ...)."""
        given, zero = {**self._given, "q": self._near, **others}, self.zeros(1, 6)
        base = {"X0": self.zeros(1, 12) + self._world}
        factor = 1.0 if share is None else share[..., None]
        base |= {"v": zero + factor * self._of_base("V0"), "a": zero + self._of_base("dV0")}
        if "V0" in given:
            given["V0"] = base["v"][:, 0]
        found = self._run(motions_of_bodies(others), given)
        return {name: np.concatenate([array, base[name]], axis=1) for name, array in found.items()}

    def inverse_gradient(self, qdd: Array, damping: bool) -> tuple[Array, Array]:
        """Derivatives (B, nv, nv) of inverse dynamics by q and qd."""
        inputs = ("q", "qd", "qdd", *(("f_ext",) if "f_ext" in self._given else ()))
        found = self._run(with_inputs(idsva(inputs, damping), self._given), {**self._given, "qdd": qdd})
        return found["tau_q"], found["tau_qd"]

    def product_gradient(self, vector: Array) -> Array:
        """Derivatives (B, nv, nv) of H vector by q."""
        algorithm = with_inputs(MASS_MATRIX_PRODUCT_GRADIENT, self._given)
        return self._run(algorithm, {**self._given, "vector": vector})["by_q"]
