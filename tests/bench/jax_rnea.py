"""RNEA and ABA in JAX, as one would write them: plain recursions over bodies, vmap over the batch, jit over it all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from robodyn.core.model import Model
from robodyn.joints import KINDS
from robodyn.tools.benchmark.contenders import Contender, Prepared, RefusedError, States, available_threads

jax.config.update("jax_enable_x64", True)

KINDS_TAKEN = ("revolute", "prismatic", "floating")
TOLERANCES = {"float64": 1e-9, "float32": 1e-4}
"""How far from ours these may be."""


def require(model: Model) -> None:
    """Refuse robots with joints that are left out here."""
    others = {KINDS[code].name for code in model.joint_kind} - set(KINDS_TAKEN)
    if others or model.has_mimic:
        raise RefusedError(f"JAX: not compared on robots with such joints: {', '.join(sorted(others)) or 'mimic'}")


class Jax:
    """Inverse dynamics as a peer of `robodyn bench`.

    Raises:
        RefusedError: the robot has joints that are left out here.
    """

    notes: tuple[str, ...] = (
        "JAX: jit of a vmap of a straightforward RNEA (tests/bench/jax_rnea.py) on arrays that are JAX's already; it "
        "uses as many threads as it likes. Compiling is not part of the time.",
    )

    def __init__(self, model: Model) -> None:
        require(model)
        self.name = f"JAX {jax.__version__}"
        self._functions = {dtype: rnea(model, dtype) for dtype in TOLERANCES}

    def contenders(self, query: str, threads: Sequence[int]) -> list[Contender]:
        """One call for a batch, in both precisions."""
        every, asked = available_threads(), TOLERANCES if query == "inverse_dynamics" else {}
        return [
            Contender("JAX vmap", query, dtype, every, False, partial(self._batch, dtype), tolerance=tolerance)
            for dtype, tolerance in asked.items()
        ]

    def _batch(self, dtype: str, states: States) -> Prepared:
        arrays = [jnp.asarray(states[name], dtype) for name in ("q", "qd", "qdd")]
        run = lambda: self._functions[dtype](*arrays).block_until_ready()  # noqa: E731
        return Prepared(run, lambda: (np.asarray(run()),), len(arrays[0]))


class _Written:
    """What both recursions do first. Numbers of the model in a precision; joints are of the kinds above."""

    def __init__(self, model: Model, dtype: str) -> None:
        xx, xy, xz, yy, yz, zz = model.inertia[:, 4:].T
        mass, h = model.inertia[:, 0, None, None], np.cross(model.inertia[:, None, 1:4], np.eye(3)).swapaxes(1, 2)
        tensors = np.moveaxis(np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]), -1, 0)
        inertias = np.block([[tensors, h], [-h, mass * np.eye(3)]])
        numbers = model.Xtree[:, :9].reshape(-1, 3, 3), model.Xtree[:, 9:], model.gravity, model.armature, inertias
        self.E, self.r, gravity, self.armature, self.inertias = (np.asarray(each, dtype) for each in numbers)
        self.model, self.kinds = model, [KINDS[code].name for code in model.joint_kind]
        self.start = np.concatenate([np.zeros(3, dtype), -gravity])

    def outwards(self, q: Any, qd: Any) -> tuple[list[Any], ...]:
        """Places of rates, and X, S, c and v of each body, X by its rotation and shift."""
        places, X, S, c, v = ([None] * len(self.kinds) for _ in range(5))
        for i, (kind, parent) in enumerate(zip(self.kinds, self.model.parent.tolist(), strict=True)):
            rotation, shift, S[i] = _joint(kind, q[self.model.q_start[i] :])
            places[i] = slice(self.model.v_start[i], self.model.v_start[i] + S[i].shape[1])
            X[i] = rotation @ self.E[i], self.r[i] + self.E[i].T @ shift
            joint_velocity = S[i] @ qd[places[i]]
            v[i] = (_motion(*X[i], v[parent]) if parent >= 0 else 0.0) + joint_velocity
            c[i] = _cross(v[i], joint_velocity)
        return places, X, S, c, v


def rnea(model: Model, dtype: str) -> Callable[..., Any]:
    """A compiled function (q, qd, qdd) -> tau on (B, n) arrays. RBDA table 5.1."""
    written, parents = _Written(model, dtype), model.parent.tolist()

    def one(q: Any, qd: Any, qdd: Any) -> Any:
        places, X, S, c, v = written.outwards(q, qd)
        a: list[Any] = []
        f: list[Any] = []
        for i, (parent, I) in enumerate(zip(parents, written.inertias, strict=True)):
            before = a[parent] if parent >= 0 else written.start
            a.append(_motion(*X[i], before) + S[i] @ qdd[places[i]] + c[i])
            f.append(I @ a[i] + _cross_force(v[i], I @ v[i]))
        tau: list[Any] = [None] * len(parents)
        for i in reversed(range(len(parents))):
            tau[i] = S[i].T @ f[i]
            if parents[i] >= 0:
                R, p = X[i]
                moment, force = R.T @ f[i][:3], R.T @ f[i][3:]
                f[parents[i]] += jnp.r_[moment + jnp.cross(p, force), force]
        return jnp.concatenate(tau) + written.armature * qdd

    return jax.jit(jax.vmap(one))


def aba(model: Model, dtype: str) -> Callable[..., Any]:
    """A compiled function (q, qd, tau) -> qdd on (B, n) arrays. RBDA table 7.1."""
    written, parents = _Written(model, dtype), model.parent.tolist()

    def one(q: Any, qd: Any, tau: Any) -> Any:
        places, moved, S, c, v = written.outwards(q, qd)
        X, I = [_matrix(*each) for each in moved], list(written.inertias)
        p: list[Any] = [_cross_force(vi, Ii @ vi) for vi, Ii in zip(v, I, strict=True)]
        U, D, u = ([None] * len(parents) for _ in range(3))
        for i in reversed(range(len(parents))):
            U[i] = I[i] @ S[i]
            D[i] = S[i].T @ U[i] + jnp.diag(written.armature[places[i]])
            u[i] = tau[places[i]] - S[i].T @ p[i]
            if parents[i] >= 0:
                Ia = I[i] - U[i] @ jnp.linalg.solve(D[i], U[i].T)
                pa = p[i] + Ia @ c[i] + U[i] @ jnp.linalg.solve(D[i], u[i])
                I[parents[i]] = I[parents[i]] + X[i].T @ Ia @ X[i]
                p[parents[i]] = p[parents[i]] + X[i].T @ pa
        a: list[Any] = []
        qdd: list[Any] = []
        for i, parent in enumerate(parents):
            free = X[i] @ (a[parent] if parent >= 0 else written.start) + c[i]
            qdd.append(jnp.linalg.solve(D[i], u[i] - U[i].T @ free))
            a.append(free + S[i] @ qdd[i])
        return jnp.concatenate(qdd)

    return jax.jit(jax.vmap(one))


WRITTEN = {"inverse_dynamics": rnea, "forward_dynamics": aba}


def _joint(kind: str, q: Any) -> tuple[Any, Any, Any]:
    """Rotation parent to body, shift in parent axes, and motion subspace (6, nv), angular part first."""
    eye, none = jnp.eye(6, dtype=q.dtype), jnp.zeros(3, q.dtype)
    if kind == "prismatic":
        return jnp.eye(3, dtype=q.dtype), q[0] * eye[2, :3], eye[:, 5:6]
    if kind == "revolute":
        c, s = jnp.cos(q[0]), jnp.sin(q[0])
        return jnp.array([[c, s, 0.0], [-s, c, 0.0], [0.0, 0.0, 1.0]]), none, eye[:, 2:3]
    x, y, z, w = q[3:7]
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y + z * w), 2 * (x * z - y * w)],
        [2 * (x * y - z * w), 1 - 2 * (x * x + z * z), 2 * (y * z + x * w)],
        [2 * (x * z + y * w), 2 * (y * z - x * w), 1 - 2 * (x * x + y * y)],
    ]
    return jnp.array(rows), q[:3], eye[:, jnp.array([3, 4, 5, 0, 1, 2])]


def _motion(R: Any, p: Any, v: Any) -> Any:
    return jnp.r_[R @ v[:3], R @ (v[3:] - jnp.cross(p, v[:3]))]


def _matrix(R: Any, p: Any) -> Any:
    """The same as a matrix."""
    return jnp.block([[R, jnp.zeros((3, 3), R.dtype)], [-jnp.cross(R, p), R]])


def _cross(v: Any, m: Any) -> Any:
    return jnp.r_[jnp.cross(v[:3], m[:3]), jnp.cross(v[:3], m[3:]) + jnp.cross(v[3:], m[:3])]


def _cross_force(v: Any, f: Any) -> Any:
    return jnp.r_[jnp.cross(v[:3], f[:3]) + jnp.cross(v[3:], f[3:]), jnp.cross(v[:3], f[3:])]
