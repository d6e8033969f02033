"""Derivatives of constrained dynamics.

Accelerations and forces solve ID(q, qd, qdd) = tau + J' lambda and J qdd + r = 0. With r1 = d(ID - J' lambda) and
r2 = d(J qdd + r), both at fixed qdd and lambda, W = H^-1 J', and A = J W,

    d lambda = A^-1 (W' r1 - r2)      d qdd = W d lambda - H^-1 r1

and the same for tau, with r1 = -1 and r2 = 0. With G = A^-1 W' and P = H^-1 - W G this is

    d lambda = G r1 - A^-1 r2         d qdd = -P r1 - G' r2

Rows depend on the motion of frame b seen from frame a. The joints between them are a chain from a to b. All vectors are
in axes of a: with w_j the angular velocity of b and l_j the velocity of its origin p at unit velocity of degree of
freedom j (columns of J),

    dw_i/dq_j = w_j x w_i     dl_i/dq_j = w_j x l_i     if j moves the axis of i,     else 0 and w_i x l_j

An axis is moved by the joints before it on the chain. Those of one joint are fixed in its body, so they also move one
another where the chain goes away from the root. Let omega_o and u_o be the angular velocity of the parent of j's body
and the velocity of its point at p, alpha_o and beta_o the angular acceleration and the acceleration of that point, and
omega, u, alpha, beta the same of b. Then with R = u - u_o

    du/dq_j     = omega_o x l_j + w_j x R
    dbeta/dq_j  = alpha_o x l_j + omega_o x (omega_o x l_j) + 2 omega_o x (w_j x R)
                  + w_j x (beta - beta_o - 2 omega_o x R)
    dbeta/dqd_j = (omega_o + omega_j) x l_j + w_j x (2 u - u_o - u_j)

and the angular rows have the same without the terms of l_j, dalpha/dqd_j = (omega_o + omega_j - omega) x w_j. Motions
of common ancestors change nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol, cast

import numpy as np

from robodyn.algorithms.kinematics import POSES_OF_KNOWN, acceleration, base_motion
from robodyn.algorithms.tasks import coupled
from robodyn.core.constraints.kinds import Coupling, Rod, Weld
from robodyn.core.constraints.resolved import ResolvedConstraint, resolved_constraints
from robodyn.core.joints import KINDS
from robodyn.core.model import Model
from robodyn.core.spatial import Motion, Transform, Vec3, add, cross, dot, rotate, scale, sub
from robodyn.core.sweeps import MOTION, TRANSFORM, Algorithm, FieldOutput, Outward, World
from robodyn.core.tangent import apart_by
from robodyn.internals.arguments import Array
from robodyn.internals.records import dataclass

MOTIONS = Algorithm(
    name="motions_of_bodies_at",
    inputs=("q", "qd", "qdd"),
    fields={"X": TRANSFORM, "X0": TRANSFORM, "v": MOTION, "a": MOTION},
    sweeps=(
        World(base_motion, writes=("v", "a")),
        Outward(acceleration, carries=("v", "a"), writes=("X", "v", "a")),
        *POSES_OF_KNOWN,
    ),
    outputs={"X0": FieldOutput("X0", (12,)), "v": FieldOutput("v", (6,)), "a": FieldOutput("a", (6,))},
)
"""Of all bodies: transforms from the world, velocities and accelerations without gravity, in their axes."""


class Moving(Protocol):
    """What derivatives of rows need of the constraints of a robot in one state, or in many. Arrays have the axes given,
    after that of the states; the scalars of vectors and transforms are arrays of one or more entries."""

    phi: Any

    def frames(self, held: ResolvedConstraint) -> tuple[Transform, Transform]:
        """Transforms from the world to frames a and b, of arrays of one entry."""

    def motions(self, qdd: Any) -> Mapping[str, Any]:
        """ "X0" (n + 1, 12), "v" and "a" (n + 1, 6) of all bodies and of the base, which is the last. In their axes."""

    def constant(self, values: Any) -> Any:
        """An array of constants, the same in all states."""

    def zeros(self, *shape: int) -> Any:
        """Zeros of each state."""


@dataclass(frozen=True)
class _Path:
    """The degrees of freedom of the tree between the frames of a constraint.

    `rows`: the first of the constraint's rows, and the one after the last. `body`, `holder`: of frames b and a, -1 for
    the base. `to_world`: True if frame a is at rest. `dofs` (P,), `bodies`, `parents`: their bodies, and those before
    them in the tree. `S` (P, 6): their motions, in their body's axes; negative where they move a. `moves` (P, P): 1
    where the degree of freedom of the column moves the axis of that of the row.
    """

    rows: tuple[int, int]
    body: int
    holder: int
    to_world: bool
    dofs: Array
    bodies: Array
    parents: Array
    S: Array
    moves: Array


@lru_cache(maxsize=64)
def _paths(model: Model) -> dict[int, _Path]:
    """The paths of constraints between frames, by the constraints' numbers."""
    paths, first = {}, 0
    for held in resolved_constraints(model):
        if held.framed:
            paths[held.number] = _path(model, held, first)
        first += len(held.rows)
    return paths


def _path(model: Model, held: ResolvedConstraint, first: int) -> _Path:
    body, holder = (int(model.link_body[link]) if link >= 0 else -1 for link in (held.link, held.to))
    starts = [*model.v_start.tolist(), model.nv_tree]
    dofs, bodies, S, places, signs = [], [], [], [], []
    for place, (i, sign) in enumerate(_between(model, body, holder)):
        columns = KINDS[model.joint_kind[i]].subspace(float(model.pitch[i]))
        for v, column in zip(range(starts[i], starts[i + 1]), columns, strict=True):
            dofs.append(v)
            bodies.append(i)
            S.append([sign * number for number in (*column.ang, *column.lin)])
            places.append(place)
            signs.append(sign)
    at, away = np.array(places), np.array(signs) > 0.0
    moves = (at[None] < at[:, None]) | ((at[None] == at[:, None]) & away[:, None])
    return _Path(
        (first, first + len(held.rows)),
        body,
        holder,
        held.to < 0,
        np.array(dofs),
        np.array(bodies),
        model.parent[bodies],
        np.array(S),
        moves.astype(float),
    )


def _between(model: Model, body: int, holder: int) -> Iterator[tuple[int, float]]:
    """Bodies whose joints are between two bodies, from the holder to the body, and the signs of their motions."""
    down: list[int] = []
    while body != holder:  # up to the common ancestor; parents have smaller numbers
        if body > holder:
            down.append(body)
            body = int(model.parent[body])
        else:
            yield holder, -1.0
            holder = int(model.parent[holder])
    yield from ((i, 1.0) for i in reversed(down))


def gradient_operations(model: Model) -> int:
    """A lower bound on the operations of a program: of the products of P with the gradient of inverse dynamics."""
    roots = np.array([int(model.tree.path(i)[0]) for i in range(model.n_bodies)])
    trees = np.empty(model.nv, np.intp)
    widths = np.diff([*model.v_start.tolist(), model.nv_tree])
    trees[model.v_source] = np.repeat(roots, widths)
    together = np.bincount(trees, minlength=model.n_bodies)[trees]
    return int(3 * (coupled(model).sum(axis=0) * together).sum())


@dataclass
class RowGradients:
    """Derivatives of rows at fixed qdd and lambda.

    `forces` (nv, nv): of J' lambda by q. `by_q`, `by_qd` (m, nv): of J qdd + r.
    """

    forces: Any
    by_q: Any
    by_qd: Any


def row_gradients(model: Model, state: Moving, qdd: Any, lam: Any) -> RowGradients:
    """Derivatives of all rows. `qdd` (nv,) and `lam` (m,) of each state."""
    n, m, paths = model.nv_tree, model.n_rows, _paths(model)
    total = RowGradients(state.zeros(n, n), state.zeros(m, n), state.zeros(m, n))
    bodies = state.motions(qdd) if paths else {}
    first = 0
    for held in resolved_constraints(model):
        last = first + len(held.rows)
        if held.framed:
            of_frames = _Frames(state, held, paths[held.number], bodies)
            add_rows = _rod if held.kind is Rod else _frames
            add_rows(of_frames, held, lam[..., first:last], state.phi[..., first:last], total)
        else:
            _coordinates(model, state, held, slice(first, last), total)
        first = last
    if model.has_mimic:
        G = np.zeros((n, model.nv))
        G[np.arange(n), model.v_source] = model.v_multiplier
        G = state.constant(G)
        return RowGradients(G.T @ total.forces @ G, total.by_q @ G, total.by_qd @ G)
    return total


class _Frames:
    """Motions of a constraint's frame b seen from frame a, in axes of a: at p, the origin of b.

    `w`, `l` (P,): columns. `omega`, `u`, `alpha`, `beta`: velocities and accelerations of b. `du`, `domega`, `dbeta`,
    `dalpha`: their derivatives (P,) by q; `dbeta_qd`, `dalpha_qd`: of accelerations by qd. `d`: from a to b. `axes`: of
    b.
    """

    def __init__(self, state: Moving, held: ResolvedConstraint, path: _Path, bodies: Mapping[str, Any]) -> None:
        self.path, self.constant = path, state.constant
        a, b = state.frames(held)
        self._E, self._p = a.E, b.r
        self.d = rotate(a.E, sub(b.r, a.r))
        self.axes = [rotate(a.E, b.E[3 * k : 3 * k + 3]) for k in range(3)]

        def world(at: Any, names: Sequence[str]) -> list[Motion]:
            X0 = _transform(bodies["X0"][..., at, :])
            return [X0.motion_back(_motion(bodies[name][..., at, :])) for name in names]

        zero = _motion(0.0 * state.constant(np.zeros((1, 6))))
        V_a, A_a = [zero, zero] if path.to_world else world([path.holder], "va")
        V, A = world([path.body], "va")
        V_o, A_o = world(path.parents, "va")
        (V_j,) = world(path.bodies, "v")
        X0 = _transform(bodies["X0"][..., path.bodies, :])
        self.w, self.l = w, l = self._at_p(X0.motion_back(_motion(state.constant(path.S))))

        def velocity(of: Motion) -> tuple[Vec3, Vec3]:
            return self._at_p(of - V_a)

        def both(v: Motion, acc: Motion) -> tuple[Vec3, Vec3, Vec3, Vec3]:
            omega, u = velocity(v)
            alpha, at_p = self._at_p(acc - A_a - V_a.cross(v - V_a))
            return omega, u, alpha, add(at_p, cross(omega, u))

        self.omega, self.u, self.alpha, self.beta = both(V, A)
        omega_o, u_o, alpha_o, beta_o = both(V_o, A_o)
        omega_j, u_j = velocity(V_j)
        R, rest = sub(self.u, u_o), sub(self.omega, omega_o)
        wR, wrest = cross(w, R), cross(w, rest)
        self.domega = wrest
        self.du = add(cross(omega_o, l), wR)
        beta_rest = sub(sub(self.beta, beta_o), scale(2.0, cross(omega_o, R)))
        turned = add(cross(omega_o, l), scale(2.0, wR))
        self.dbeta = add(add(cross(alpha_o, l), cross(omega_o, turned)), cross(w, beta_rest))
        alpha_rest = sub(sub(self.alpha, alpha_o), cross(omega_o, rest))
        self.dalpha = add(cross(omega_o, wrest), cross(w, alpha_rest))
        both_omega = add(omega_o, omega_j)
        self.dbeta_qd = add(cross(both_omega, l), cross(w, sub(add(self.u, R), u_j)))
        self.dalpha_qd = cross(sub(both_omega, self.omega), w)

    def _at_p(self, of: Motion) -> tuple[Vec3, Vec3]:
        """The angular part, and the linear part at p, in axes of a."""
        return rotate(self._E, of.ang), rotate(self._E, add(of.lin, cross(of.ang, self._p)))

    def forces(self, moment: Vec3, force: Vec3) -> Any:
        """(P, P) derivatives of w_i . moment + l_i . force by q_j, row by row."""
        moved = add(cross(self.w, moment), cross(self.l, force))
        at_p = cross(self.l, force)
        if_moves = dot(_along_rows(moved), _along_columns(self.w))
        if_not = dot(_along_rows(self.w), _along_columns(at_p))
        moves = self.constant(self.path.moves)
        return moves * if_moves + (1.0 - moves) * if_not


def _frames(at: _Frames, held: ResolvedConstraint, lam: Any, phi: Any, total: RowGradients) -> None:
    """Rows of a point or a weld."""
    names = ("rx", "ry", "rz", "x", "y", "z")
    strength = {name: lam[..., k : k + 1] for k, name in enumerate(held.rows)}
    zero = 0.0 * lam[..., :1]
    moment, force = (tuple(strength.get(name, zero) for name in some) for some in (names[:3], names[3:]))
    _add_forces(at, at.forces(moment, force), total)
    k_v, k_p = held.gains
    phi_q = (*_turned_by(at, held), *at.l) if k_p else (0.0,) * 6
    by_q = zip((*at.dalpha, *at.dbeta), (*at.domega, *at.du), phi_q, strict=True)
    by_qd = zip((*at.dalpha_qd, *at.dbeta_qd), (*at.w, *at.l), strict=True)
    of_q = dict(zip(names, (x + k_v * y + k_p * z for x, y, z in by_q), strict=True))
    of_qd = dict(zip(names, (x + k_v * y for x, y in by_qd), strict=True))
    for row, name in enumerate(held.rows, at.path.rows[0]):
        total.by_q[..., row, at.path.dofs] = of_q[name]
        total.by_qd[..., row, at.path.dofs] = of_qd[name]


def _turned_by(at: _Frames, held: ResolvedConstraint) -> Vec3:
    """Derivatives of phi_ang by q (`robodyn.algorithms.constraints.terms`): of a_k x b_k they are
    w (a_k . b_k) - b_k (a_k . w)."""
    if held.kind is not Weld:
        return 0.0, 0.0, 0.0
    free = [k for k, name in enumerate(("rx", "ry", "rz")) if name not in held.rows]
    axes, weight = (free, 1.0) if len(free) == 1 else ([0, 1, 2], 0.5)
    total: Any = (0.0, 0.0, 0.0)
    for k in axes:
        # The component of b_k along axis i of a is entry i of its coordinates.
        b_k = at.axes[k]
        total = add(total, sub(scale(b_k[k], at.w), scale(at.w[k], b_k)))
    return cast(Vec3, scale(weight, total))


def _rod(at: _Frames, held: ResolvedConstraint, lam: Any, phi: Any, total: RowGradients) -> None:
    """The row of a rod along e = d / |d|: e . beta + (u . u - (e . u)^2) / |d|."""
    shrunk = 1.0 / (phi + held.length)
    e = scale(shrunk, at.d)
    along = dot(e, at.l)
    de = scale(shrunk, sub(at.l, scale(along, e)))
    speed = dot(e, at.u)
    dspeed = dot(e, at.du) + dot(de, at.u)
    across = dot(at.u, at.u) - speed * speed
    k_v, k_p = held.gains
    forces = at.forces(tuple(0.0 * each for each in e), scale(lam, e))
    _add_forces(at, forces + dot(_along_rows(scale(lam, at.l)), _along_columns(de)), total)
    change = 2.0 * (dot(at.u, at.du) - speed * dspeed)
    by_q = dot(e, at.dbeta) + dot(de, at.beta) + shrunk * (change - across * shrunk * along)
    by_qd = dot(e, at.dbeta_qd) + 2.0 * shrunk * (dot(at.u, at.l) - speed * along)
    row = at.path.rows[0]
    total.by_q[..., row, at.path.dofs] = by_q + k_v * dspeed + k_p * along
    total.by_qd[..., row, at.path.dofs] = by_qd + k_v * along


def _coordinates(model: Model, state: Moving, held: ResolvedConstraint, rows: slice, total: RowGradients) -> None:
    """Rows of a coupling or a lock, whose Jacobian is constant; the error of a lock is not linear in q."""
    k_v, k_p = held.gains
    if held.kind is Coupling:
        for v, _, c in held.joints:
            total.by_q[..., rows.start, v] = total.by_q[..., rows.start, v] + k_p * c
            total.by_qd[..., rows.start, v] = total.by_qd[..., rows.start, v] + k_v * c
        return
    kind, start = KINDS[model.joint_kind[held.joint]], int(model.v_start[held.joint])
    along = slice(start, start + kind.nv)
    total.by_qd[..., rows, along] = state.constant(k_v * np.eye(kind.nv))
    if k_p:
        by_q = state.constant(np.eye(kind.nv)) if kind.nv == 1 else apart_by(kind, state.phi[..., rows])[1]
        total.by_q[..., rows, along] = k_p * by_q


def _add_forces(at: _Frames, forces: Any, total: RowGradients) -> None:
    dofs = at.path.dofs
    total.forces[..., dofs[:, None], dofs] = total.forces[..., dofs[:, None], dofs] + forces


def _along_rows(a: Vec3) -> Vec3:
    return cast(Vec3, tuple(each[..., :, None] for each in a))


def _along_columns(a: Vec3) -> Vec3:
    return cast(Vec3, tuple(each[..., None, :] for each in a))


def _transform(numbers: Any) -> Transform:
    """The transform of 12 numbers along the last axis; its scalars have the other axes."""
    every = tuple(np.moveaxis(numbers, -1, 0))
    return Transform(every[:9], every[9:])


def _motion(numbers: Any) -> Motion:
    """The motion of 6 numbers along the last axis; its scalars have the other axes."""
    every = tuple(np.moveaxis(numbers, -1, 0))
    return Motion(every[:3], every[3:])
