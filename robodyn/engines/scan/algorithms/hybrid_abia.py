"""The hybrid articulated-body algorithm: articulated inertias by recursion, everything else by scans.

Yang, Wu and Pan, Parallel Dynamics Computation using Prefix Sum Operations (2016), algorithm 3. Articulated inertias
obey a nonlinear recursion (eq. 7), which the paper runs on the CPU. Here machine code runs it in a CPU thread, while
scans compute bias torques. The other recursions are linear: z-hat towards the root (eq. 18), and accelerations outward
(eq. 19). The fused variant computes forces and z-hat in one scan (eq. 20).

Trees may have any shape: a scan runs along each heavy path, and the result of a light subtree is added to the constant
of its junction body before the junction's path is scanned.

If arrays are on a device, the coordinates are copied to the host and U is copied back. The host waits for the first
copy.

The algorithm uses articulated inertias only through U = IA S (6 numbers for each degree of freedom). With D = S'U (plus
armature) and P = U D^-1:  Y = X'(1 - P S'),  Pi = X'P,  Omega = D.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import cache, partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from robodyn.algorithms.aba import articulated_inertia, ldl, ldl_solve, place
from robodyn.core.joints import JointKind, Scalars
from robodyn.core.spatial import ZERO_FORCE, Force, Transform, scale, sub
from robodyn.core.sweeps import (
    ARTICULATED,
    DOF_FORCES,
    TRANSFORM,
    Algorithm,
    Body,
    ColumnOutput,
    Fields,
    FieldType,
    Inward,
    Outward,
    Written,
    flatten,
    with_given,
)
from robodyn.engines.options import Options
from robodyn.engines.protocol import Engine
from robodyn.engines.recursions import recursive_engine
from robodyn.engines.scan.algorithms.backward import IDENTITY6, applied6, backward, forward, fused
from robodyn.engines.scan.algorithms.inverse import METHODS, Motions, external_forces, summed_inward
from robodyn.engines.scan.elementwise import Elementwise
from robodyn.engines.scan.semigroups import sums
from robodyn.engines.scan.states import Layout, State, body_force, force_out, motion_in
from robodyn.internals.arguments import Array
from robodyn.internals.records import dataclass

# The recursion.


def _columns(body: Body, own: Fields) -> tuple[Written, Written]:
    """The step `articulated_inertia`, with U as its only written field."""
    written, gives = articulated_inertia(body, own)
    return {"U": written["U"]}, gives


ARTICULATED_COLUMNS = Algorithm(
    name="articulated_columns",
    inputs=("q",),
    fields={"X": TRANSFORM, "IA": ARTICULATED, "U": DOF_FORCES},
    sweeps=(
        Outward(place, writes=("X", "IA")),
        Inward(_columns, reads=("X", "IA"), writes=("U",), gives=("IA",)),
    ),
    outputs={"U": ColumnOutput("U")},
)
"""U = IA S of every degree of freedom, (6, nv)."""

_RECURSION: WeakKeyDictionary[Layout, Engine] = WeakKeyDictionary()


def _recursion(pool: Executor, state: State) -> Future[Array]:
    """Start the recursion of a state on the CPU. Its result is U (B, 6, nv)."""
    engine = _RECURSION.get(state.layout)
    if engine is None:
        engine = _RECURSION[state.layout] = recursive_engine(state.model, state.dtype, Options())
    algorithm = with_given(ARTICULATED_COLUMNS, "inertia") if state.given("inertia") else ARTICULATED_COLUMNS
    inputs = {name: state.layout.here(state.inputs[name]) for name in algorithm.inputs}
    U = np.empty((state.batch, 6, state.model.nv), state.dtype)
    work = partial(_articulated_columns, engine, algorithm, inputs, U)
    try:
        return pool.submit(work)
    except (RuntimeError, MemoryError):  # the system cannot start a thread
        done: Future[Array] = Future()
        done.set_result(work())
        return done


def _articulated_columns(engine: Engine, algorithm: Algorithm, inputs: Mapping[str, Array], U: Array) -> Array:
    with np.errstate(all="ignore"):  # a new thread does not inherit these settings
        engine.run(algorithm, inputs, {"U": U})
    return U


# The elimination of joints.


@dataclass
class Eliminated:
    """Y (36, n, B) of bodies, P (6, nv, B) of degrees of freedom, and for each joint kind the factors L and d of D
    (`ldl`), (.., m, B)."""

    state: State
    X: Array
    Y: Array
    P: Array
    D: tuple[Array, ...]

    def rates(self, forces: Array) -> Array:
        """D^-1 times generalised forces (nv, B)."""
        rates: Array = self.state.xp.empty_like(forces)
        for joints, D in zip(self.state.layout.joints, self.D, strict=True):
            solved = solution(joints.kind)(D, self.state.xp.stack([forces[rows] for rows in joints.v_rows]))
            for rows, value in zip(joints.v_rows, solved, strict=True):
                rates[rows] = value
        return rates

    def pushed(self, forces: Array) -> Array:
        """Pi t (6, n, B) for generalised forces t (nv, B)."""
        total = self.state.zeros(6, self.state.n, self.state.batch)
        for joints in self.state.layout.joints:
            for rows in joints.v_rows:
                total[:, joints.bodies] += self.P[:, rows] * forces[rows]
        return force_out(self.X, total)

    def felt(self, motions: Array) -> Array:
        """P' m (nv, B) for motions (6, n, B) in body frames."""
        forces = self.state.empty(self.P.shape[1], self.state.batch)
        for joints in self.state.layout.joints:
            for rows in joints.v_rows:
                forces[rows] = (self.P[:, rows] * motions[:, joints.bodies]).sum(axis=0)
        return forces


def _eliminated(state: State, X: Array, columns: Array) -> Eliminated:
    """The elimination of joints, from U (B, 6, nv) on the host."""
    U = state.xp.ascontiguousarray(state.layout.moved(columns).transpose(1, 2, 0))
    xp, Y, P = state.xp, state.empty(36, state.n, state.batch), state.xp.empty_like(U)
    factors = []
    for joints in state.layout.joints:
        k = joints.kind.nv
        own = xp.concatenate([U[:, rows] for rows in joints.v_rows])
        armature = xp.stack([state.layout.armature[rows] for rows in joints.v_rows])
        parts = elimination(joints.kind)(X[:, joints.bodies], joints.pitch[None], armature, own)
        Y[:, joints.bodies] = parts[:36]
        for j, rows in enumerate(joints.v_rows):
            P[:, rows] = parts[36 + 6 * j : 42 + 6 * j]
        factors.append(parts[36 + 6 * k :])
    return Eliminated(state, X, Y, P, tuple(factors))


@cache
def elimination(kind: JointKind) -> Elementwise:
    """The step for (Y, columns of P, factors L and d of D) of joints of a kind, from X, pitch, armature and U."""
    k = kind.nv

    def step(X: Transform, pitch: Scalars, armature: Scalars, U: tuple[Force, ...]) -> tuple[Any, ...]:
        """D = S' U + armature, P = U D^-1, Y = X' (1 - P S'), column by column."""
        S = kind.subspace(pitch[0])
        entries = (S[i].dot(U[j]) + (armature[i] if i == j else 0.0) for i in range(k) for j in range(i + 1))
        D = ldl(tuple(entries), k)
        rows = (ldl_solve(D, row) for row in zip(*((*u.ang, *u.lin) for u in U), strict=True))
        P = tuple(zip(*rows, strict=True))
        columns = []
        for m in range(6):
            left = IDENTITY6[m::6]
            for s, p in zip(S, P, strict=True):
                entry = (*s.ang, *s.lin)[m]
                if not isinstance(entry, float) or entry:
                    left = sub(left, scale(entry, p))
            columns.append(tuple(flatten(X.force_back(Force(left[:3], left[3:])))))
        return (tuple(column[i] for i in range(6) for column in columns), P, D)

    results = FieldType(((0.0,) * 36, ((0.0,) * 6,) * k, (0.0,) * (k * (k + 1) // 2)))
    dofs = FieldType((0.0,) * k)
    return Elementwise(step, results, TRANSFORM, FieldType((0.0,)), dofs, FieldType((ZERO_FORCE,) * k))


@cache
def solution(kind: JointKind) -> Elementwise:
    """The step for D^-1 t (nv, m, B) of joints of a kind, from the factors L and d of D, and generalised forces t."""
    k = kind.nv
    dofs = FieldType((0.0,) * k)
    return Elementwise(ldl_solve, dofs, FieldType((0.0,) * (k * (k + 1) // 2)), dofs)


# The scans.

carried = Elementwise(applied6, FieldType((0.0,) * 6), FieldType(IDENTITY6), FieldType((0.0,) * 6))
"""The step for Y x (6, n, B) of matrices Y and vectors x."""


def _summed(state: State, joints: Eliminated, given: Array) -> Array:
    """z_i = sum of Y z + given over children (6, n, B): eq. 18 along heavy paths."""
    paths, options, z = state.layout.heavy_paths, state.layout.options, state.zeros(*given.shape)
    for level in paths.inward():
        elements = state.empty(42, level.bodies.size, state.batch)
        elements[36:] = z[:, level.bodies]  # the contributions of light subtrees
        inner, following = level.inner, level.bodies[level.inner + 1]
        elements[:36, inner] = joints.Y[:, following]
        elements[36:, inner] += given[:, following]
        elements[:36, level.ends] = 0.0  # the last bodies of paths have no successor
        z[:, level.bodies] = level.segments.scan(
            backward(), elements, options.path_kernel, block=options.block, backwards=True
        )[36:]
        paths.join(sums(6), z, level, carried(joints.Y[:, level.heads], z[:, level.heads]) + given[:, level.heads])
    return z


def _summed_fused(state: State, joints: Eliminated, own: Array, given: Array) -> Array:
    """F_i = own_i + sum of X'F, and z_i = sum of Y (F + z) - X'F + given over children (12, n, B): eq. 20."""
    paths, options = state.layout.heavy_paths, state.layout.options
    total: Array = state.xp.concatenate((own, state.zeros(*own.shape)))
    for level in paths.inward():
        elements = state.empty(60, level.bodies.size, state.batch)
        elements[48:] = total[:, level.bodies]
        inner, following = level.inner, level.bodies[level.inner + 1]
        elements[:12, inner], elements[12:48, inner] = joints.X[:, following], joints.Y[:, following]
        elements[54:, inner] += given[:, following]
        elements[:48, level.ends] = 0.0
        total[:, level.bodies] = level.segments.scan(
            fused(), elements, options.path_kernel, block=options.block, backwards=True
        )[48:]
        F, z = total[:6, level.heads], total[6:, level.heads]
        moved = force_out(joints.X[:, level.heads], F)
        z = carried(joints.Y[:, level.heads], F + z) - moved + given[:, level.heads]
        paths.join(sums(12), total, level, state.xp.concatenate((moved, z)))
    return total


def _accelerations(state: State, joints: Eliminated, rates: Array) -> Array:
    """qdd (nv, B) from c-hat (`rates`): eq. 19."""
    elements = state.empty(42, state.n, state.batch)
    elements[:36] = joints.Y.reshape(6, 6, state.n, state.batch).swapaxes(0, 1).reshape(36, state.n, state.batch)
    elements[36:] = state.joint_motion(rates)
    paths, options = state.layout.heavy_paths, state.layout.options
    motions = paths.outward(forward(), elements, kernel=options.path_kernel, block=options.block)[36:]
    before = motions[:, state.layout.parent]
    before[:, state.layout.roots] = 0.0
    qdd: Array = rates - joints.felt(motion_in(joints.X, before))
    return qdd


def _own_forces(state: State) -> tuple[Motions, Array]:
    """Motions at qdd = 0, and F-hat (6, n, B), the net force of each body in that motion."""
    motions = METHODS["rnea"](state)
    f = body_force(state.inertia, motions.v, motions.a)
    if state.given("f_ext"):
        f -= external_forces(state, motions.X, motions.XR)
    return motions, f


def hybrid_abia(state: State, out: Array) -> None:
    """qdd (B, nv) by algorithm 3: bias torques (eq. 16), z-hat (eq. 18), accelerations (eq. 19)."""
    with ThreadPoolExecutor(1) as pool:
        recursion = _recursion(pool, state)
        motions, f = _own_forces(state)
        torques = state.tree_input("tau") - state.joint_force(summed_inward(state, motions.X, f))
        joints = _eliminated(state, motions.X, recursion.result())
    z = _summed(state, joints, joints.pushed(torques))
    rates = joints.rates(torques - state.joint_force(z))
    out[...] = _accelerations(state, joints, rates).T


def hybrid_abia_fused(state: State, out: Array) -> None:
    """qdd (B, nv) with F and z-hat in one scan (eq. 20). Only their sum is needed: tau-hat - S'z = tau - S'(F + z)."""
    with ThreadPoolExecutor(1) as pool:
        recursion = _recursion(pool, state)
        motions, f = _own_forces(state)
        joints = _eliminated(state, motions.X, recursion.result())
    tau = state.tree_input("tau")
    total = _summed_fused(state, joints, f, joints.pushed(tau))
    rates = joints.rates(tau - state.joint_force(total[:6] + total[6:]))
    out[...] = _accelerations(state, joints, rates).T
