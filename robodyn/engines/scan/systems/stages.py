"""Stages of `aba_scan`: what a run of joints and bodies is as a Riccati element, written over scalars.

A stage is a joint and the body after it. Where that body is too light beside those behind it, the inertia R = S' I S
that the joint feels vanishes or drowns, and the stage takes in the next joint and body: a run of bodies whose degrees
of freedom are eliminated together. Bodies within a run keep what inertia and loads they have.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from robodyn.algorithms.aba import ldl, ldl_solve
from robodyn.engines.scan.elementwise import Elementwise
from robodyn.engines.scan.systems.riccati import (
    ONE,
    ONE_STRETCH,
    UPPER,
    ZERO_SYM6,
    Riccati,
    Rows,
    Sym6,
    Vec6,
    articulated_inertia,
    columns,
    congruence,
    symmetric,
    vector,
)
from robodyn.joints import KINDS
from robodyn.spatial import (
    IDENTITY,
    ZERO_MOTION,
    ArticulatedInertia,
    Force,
    Motion,
    Scalar,
    Transform,
    add,
    cross,
    dot,
    scale,
    sub,
)
from robodyn.sweeps import FORCE, MOTION, SCALAR, TRANSFORM, FieldType


class Member(NamedTuple):
    """A joint and the body after it, in the body's frame.

    X: from the parent's frame; c: v x S qd; IA and eta: inertia and negative bias force, those of subtrees that hang on
    the body included; S, tau, armature: per degree of freedom.
    """

    X: Transform
    c: Motion
    IA: Sym6
    eta: Force
    S: tuple[Motion, ...]
    tau: tuple[Scalar, ...]
    armature: tuple[Scalar, ...]


def plucker(X: Transform) -> Rows:
    """The 6 x 6 matrix of X on motions (RBDA eq. 2.24)."""
    E = tuple(X.E[i : i + 3] for i in (0, 3, 6))
    return (*((*row, 0.0, 0.0, 0.0) for row in E), *((*cross(X.r, row), *row) for row in E))


class _Run:
    """Joint accelerations qdd of a run, given x before it: the cost is 1/2 qdd' R qdd + qdd' (U' x + r) and what is
    free of qdd; the last body moves with (its transform) x + a + Y qdd.

    U: columns as forces in the frame of the first body; Y: columns of S in that of the last; degrees of freedom of the
    outermost joint come first, R is its lower triangle. IA, F: composite inertia and force in the first body's frame.
    """

    def __init__(self, members: Sequence[Member]) -> None:
        moving = [ZERO_MOTION]
        for member in members[1:]:
            moving.append(member.X.motion(moving[-1]) + member.c)
        self.a = moving[-1]
        self.IA: ArticulatedInertia
        self.F: Force
        self.R: list[Scalar] = []
        self.r: list[Scalar] = []
        self.U: list[Force] = []
        self.Y: list[Motion] = []
        self.onward: Transform = IDENTITY
        outer: Member | None = None
        for member, a in zip(reversed(members), reversed(moving), strict=True):
            IA = articulated_inertia(member.IA)
            F = IA.times(a) - member.eta
            if outer is not None:
                IA, F = IA + outer.X.articulated_back(self.IA), F + outer.X.force_back(self.F)
                self.U = [outer.X.force_back(u) for u in self.U]
                self.onward = self.onward.after(outer.X)
            self.IA, self.F, outer = IA, F, member
            self._take(member)

    def _take(self, member: Member) -> None:
        """The joint of a member, whose composite inertia and force are there."""
        for s, tau, armature in zip(member.S, member.tau, member.armature, strict=True):
            self.U.append(self.IA.times(s))
            self.Y.append(self.onward.motion(s))
            self.R += [s.dot(u) for u in self.U]
            self.R[-1] = self.R[-1] + armature
            self.r.append(s.dot(self.F) - tau)


def stage(members: Sequence[Member]) -> tuple[Riccati, tuple[Scalar, ...], tuple[Scalar, ...]]:
    """The element of a run, then pivots d of R = L diag(d) L' and the diagonal of R that they are left of.

    With w = L^-1 U', y = L^-1 Y', z = L^-1 r and Ia = IA - sum w w' / d: A = X' X - Y G, b = a - sum y z / d,
    C = sum y y' / d, J = X' Ia X, eta = -X' (F - sum w z / d), where X leads to the first body and X' on to the last,
    and G = R^-1 U' X. Of a single body J is A' IA A and the armature's G' armature G instead: the same, but where it
    vanishes, along the joint, rounding leaves it semi-definite.
    """
    run, X = _Run(members), members[0].X
    k = len(run.r)
    factor = ldl(tuple(run.R), k)
    pivots, diagonal = (tuple(row[i * (i + 1) // 2 + i] for i in range(k)) for row in (factor, run.R))
    b, C, Ia, F = run.a, ZERO_SYM6, run.IA, run.F
    w, y, z = list(run.U), list(run.Y), list(run.r)
    for i, d in enumerate(pivots):
        for j in range(i):
            entry = factor[i * (i + 1) // 2 + j]
            w[i], y[i], z[i] = w[i] - w[j].scaled(entry), y[i] - y[j].scaled(entry), z[i] - entry * z[j]
        share, moved = w[i].scaled(1.0 / d), vector(y[i])
        b, F = b - y[i].scaled(z[i] / d), F - share.scaled(z[i])
        C = add(C, (moved[p] * (moved[q] / d) for p, q in UPPER))
        Ia = Ia.minus_outer(w[i], share)
    G = _gains(X, run, factor)
    A = _less_columns(plucker(run.onward.after(X)), run.Y, G)
    # c of the first body is one more acceleration before the joint: it meets the inertia that is left, which loses less
    # than taking it through the elimination.
    c = members[0].c
    share_of_c = ldl_solve(factor, tuple(c.dot(u) for u in run.U))
    b = b + run.onward.motion(c)
    for column, x in zip(run.Y, share_of_c, strict=True):
        b = b - column.scaled(x)
    eta = X.force_back(F + Ia.times(c)).scaled(-1.0)
    if len(members) > 1:
        J = symmetric(X.articulated_back(Ia))
    else:
        J = congruence(columns(A), members[0].IA)
        for g, armature in zip(G, members[0].armature, strict=True):
            J = add(J, (g[p] * (armature * g[q]) for p, q in UPPER))
    return Riccati(A, vector(b), C, vector(eta), J), pivots, diagonal


def _gains(X: Transform, run: _Run, factor: tuple[Scalar, ...]) -> tuple[Vec6, ...]:
    """G = R^-1 U' X, by rows."""
    U = [vector(X.force_back(u)) for u in run.U]
    return columns(tuple(ldl_solve(factor, tuple(u[j] for u in U)) for j in range(6)))


def _less_columns(A: Rows, S: Sequence[Motion], G: Rows) -> Rows:
    """A - S G."""
    for s, row in zip(map(vector, S), G, strict=True):
        A = tuple(sub(old, scale(entry, row)) for old, entry in zip(A, s, strict=True))
    return A


def motion_of_joint(member: Member) -> tuple[Rows, Vec6, tuple[Vec6, ...], tuple[Scalar, ...]]:
    """(A, b, G, g) with a = A a_parent + b and qdd = -(G a_parent + g), IA and eta being those of the whole subtree
    (RBDA eq. 7.45 and 7.46, with a' = X a_parent + c put in)."""
    run = _Run((member,))
    factor = ldl(tuple(run.R), len(run.r))
    G = _gains(member.X, run, factor)
    g = ldl_solve(factor, tuple(r + member.c.dot(u) for r, u in zip(run.r, run.U, strict=True)))
    b = member.c
    for column, x in zip(member.S, g, strict=True):
        b = b - column.scaled(x)
    return _less_columns(plucker(member.X), member.S, G), vector(b), G, g


_SIX = (0.0,) * 6
_MEMBER = (TRANSFORM, MOTION, FieldType((FORCE.template, ZERO_SYM6)))


def _fields(code: int) -> tuple[FieldType, ...]:
    """What `_member` takes: X, c, (eta, IA), and per degree of freedom tau and armature, and the pitch."""
    dofs = FieldType((0.0,) * KINDS[code].nv)
    return (*_MEMBER, dofs, dofs, SCALAR)


def _member(code: int, X: Transform, c: Motion, held: Any, tau: Any, armature: Any, pitch: Scalar) -> Member:
    eta, IA = held
    return Member(X, c, IA, eta, KINDS[code].subspace(pitch), tau, armature)


@cache
def stages(codes: tuple[int, ...]) -> Elementwise:
    """`stage` of runs whose joints have the kinds `codes`; arrays of each body in turn, those of `_fields`."""
    dofs = (0.0,) * sum(KINDS[code].nv for code in codes)

    def step(*parts: Any) -> Any:
        return stage([_member(code, *parts[6 * k : 6 * k + 6]) for k, code in enumerate(codes)])

    result = FieldType((ONE_STRETCH, dofs, dofs))
    return Elementwise(step, result, *(each for code in codes for each in _fields(code)))


@cache
def motions(code: int) -> Elementwise:
    """`motion_of_joint` for a kind of joint."""
    nv = KINDS[code].nv
    result = FieldType((ONE, _SIX, (_SIX,) * nv, (0.0,) * nv))
    return Elementwise(lambda *parts: motion_of_joint(_member(code, *parts)), result, *_fields(code))


@cache
def joint_accelerations(code: int) -> Elementwise:
    """-(G a + g) (nv, n, B) for a kind of joint, from G and g as `motions` gives them and a (6, n, B) of parents."""
    nv = KINDS[code].nv

    def step(known: tuple[tuple[Vec6, ...], tuple[Scalar, ...]], a: Vec6) -> tuple[Scalar, ...]:
        return tuple(-(dot(row, a) + given) for row, given in zip(*known, strict=True))

    return Elementwise(step, FieldType((0.0,) * nv), FieldType(((_SIX,) * nv, (0.0,) * nv)), FieldType(_SIX))
