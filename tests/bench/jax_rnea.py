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


def _constants(model: Model, dtype: str, *more: Any) -> tuple[list[str], list[Any]]:
    """Kinds of joints; E and r of tree transforms, gravity, armature, and more numbers in this precision."""
    numbers = model.Xtree[:, :9].reshape(-1, 3, 3), model.Xtree[:, 9:], model.gravity, model.armature, *more
    return [KINDS[code].name for code in model.joint_kind], [np.asarray(each, dtype) for each in numbers]


def rnea(model: Model, dtype: str) -> Callable[..., Any]:
    """A compiled function (q, qd, qdd) -> tau on (B, n) arrays, for joints of the kinds above. RBDA table 5.1."""
    inertia = model.inertia[:, 0], model.inertia[:, 1:4], _tensors(model)
    kinds, (E, r, gravity, armature, mass, h, I) = _constants(model, dtype, *inertia)

    def one(q: Any, qd: Any, qdd: Any) -> Any:
        v: list[Any] = []
        a: list[Any] = []
        f: list[Any] = []
        X: list[Any] = []
        for i, kind in enumerate(kinds):
            rotation, shift, S = _joint(kind, q[model.q_start[i] :])
            s = slice(model.v_start[i], model.v_start[i] + S.shape[1])
            R, p = rotation @ E[i], r[i] + E[i].T @ shift
            X.append((R, p))
            parent = int(model.parent[i])
            v0, a0 = (v[parent], a[parent]) if parent >= 0 else (jnp.zeros(6, dtype), jnp.r_[jnp.zeros(3), -gravity])
            joint_velocity = S @ qd[s]
            v.append(_motion(R, p, v0) + joint_velocity)
            a.append(_motion(R, p, a0) + S @ qdd[s] + _cross(v[i], joint_velocity))
            f.append(_apply(mass[i], h[i], I[i], a[i]) + _cross_force(v[i], _apply(mass[i], h[i], I[i], v[i])))
        tau: list[Any] = [None] * len(kinds)
        for i in reversed(range(len(kinds))):
            tau[i] = _joint(kinds[i], q[model.q_start[i] :])[2].T @ f[i]
            if model.parent[i] >= 0:
                R, p = X[i]
                moment, force = R.T @ f[i][:3], R.T @ f[i][3:]
                f[model.parent[i]] += jnp.r_[moment + jnp.cross(p, force), force]
        return jnp.concatenate(tau) + armature * qdd

    return jax.jit(jax.vmap(one))


def aba(model: Model, dtype: str) -> Callable[..., Any]:
    """A compiled function (q, qd, tau) -> qdd on (B, n) arrays, for joints of the kinds above. RBDA table 7.1."""
    kinds, (E, r, gravity, armature, inertias) = _constants(model, dtype, _inertia_matrices(model))

    def one(q: Any, qd: Any, tau: Any) -> Any:
        v: list[Any] = []
        I: list[Any] = list(inertias)
        X, S, c, p, U, D, u = ([None] * len(kinds) for _ in range(7))
        slices = []
        for i, kind in enumerate(kinds):
            rotation, shift, S[i] = _joint(kind, q[model.q_start[i] :])
            slices.append(slice(model.v_start[i], model.v_start[i] + S[i].shape[1]))
            X[i] = _matrix(rotation @ E[i], r[i] + E[i].T @ shift)
            joint_velocity = S[i] @ qd[slices[i]]
            parent = int(model.parent[i])
            v.append((X[i] @ v[parent] if parent >= 0 else 0.0) + joint_velocity)
            c[i] = _cross(v[i], joint_velocity)
            p[i] = _cross_force(v[i], inertias[i] @ v[i])
        for i in reversed(range(len(kinds))):
            U[i] = I[i] @ S[i]
            D[i] = S[i].T @ U[i] + jnp.diag(armature[slices[i]])
            u[i] = tau[slices[i]] - S[i].T @ p[i]
            parent = int(model.parent[i])
            if parent >= 0:
                Ia = I[i] - U[i] @ jnp.linalg.solve(D[i], U[i].T)
                pa = p[i] + Ia @ c[i] + U[i] @ jnp.linalg.solve(D[i], u[i])
                I[parent] = I[parent] + X[i].T @ Ia @ X[i]
                p[parent] = p[parent] + X[i].T @ pa
        a: list[Any] = []
        qdd: list[Any] = []
        for i, parent in enumerate(model.parent.tolist()):
            a0 = a[parent] if parent >= 0 else jnp.r_[jnp.zeros(3, dtype), -gravity]
            free = X[i] @ a0 + c[i]
            qdd.append(jnp.linalg.solve(D[i], u[i] - U[i].T @ free))
            a.append(free + S[i] @ qdd[i])
        return jnp.concatenate(qdd)

    return jax.jit(jax.vmap(one))


def _inertia_matrices(model: Model) -> Any:
    mass, h = model.inertia[:, 0, None, None], np.cross(model.inertia[:, None, 1:4], np.eye(3)).swapaxes(1, 2)
    return np.block([[_tensors(model), h], [-h, mass * np.eye(3)]])


def _matrix(R: Any, p: Any) -> Any:
    """A motion transform, 6 x 6."""
    crossed = jnp.stack([jnp.cross(p, axis) for axis in np.eye(3, dtype=p.dtype)], axis=1)
    return jnp.block([[R, jnp.zeros((3, 3), p.dtype)], [-R @ crossed, R]])


def _tensors(model: Model) -> Any:
    xx, xy, xz, yy, yz, zz = model.inertia[:, 4:].T
    return np.moveaxis(np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]), -1, 0)


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


def _cross(v: Any, m: Any) -> Any:
    return jnp.r_[jnp.cross(v[:3], m[:3]), jnp.cross(v[:3], m[3:]) + jnp.cross(v[3:], m[:3])]


def _cross_force(v: Any, f: Any) -> Any:
    return jnp.r_[jnp.cross(v[:3], f[:3]) + jnp.cross(v[3:], f[3:]), jnp.cross(v[:3], f[3:])]


def _apply(mass: Any, h: Any, I: Any, v: Any) -> Any:
    return jnp.r_[I @ v[:3] + jnp.cross(h, v[3:]), mass * v[3:] - jnp.cross(h, v[:3])]
