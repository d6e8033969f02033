"""What the thesis' experiments run: contenders, each with a function that makes a call of one model and one state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np

import robodyn as rd
from robodyn.engines.scan import AFFINE_MOTIONS, KERNELS, POSES, HeavyPaths, ScanOptions, VectorTree, sums
from robodyn.engines.scan.algorithms.inverse import inverse_dynamics
from robodyn.engines.scan.states import Layout, State, motion_in, motion_out
from robodyn.internals.arguments import Array
from tests.bench import trees
from tests.bench.experiments import Call, Contender
from tests.bench.points import difference
from tests.bench.six_by_six import SixBySix, matmul_rootfix, rootfix
from tests.bench.trees import INVERSE, MATRICES, on_cpu

BLOCK = 64
BLOCKS = (16, 32, 64, 128, 256, 512)


class Problem(trees.Problem):
    """A tree of the thesis (section 7.1) and one state of it, with what contenders share."""

    def __init__(self, n: int, branching: float) -> None:
        super().__init__(rd.auto_tree(n, branching=branching))
        self.n, self.branching = n, branching

    @cached_property
    def layout(self) -> Layout:
        """For scans on the vector tree."""
        options = ScanOptions(layout="euler", kernel="blocked", block=BLOCK)
        return Layout(self.model, np.dtype(np.float64), options)

    def state(self) -> State:
        """The state, nothing of it worked out."""
        return State(self.layout, dict(zip(("q", "qd", "qdd"), self.given, strict=True)))

    @cached_property
    def joints(self) -> tuple[Array, Array]:
        """X (12, n, 1) and vJ (6, n, 1): what the rootfix of velocities starts from (thesis, section 7.3)."""
        state = self.state()
        return state.transforms, state.joint_motion(state.tree_input("qd"))

    @cached_property
    def elements(self) -> Array:
        """Both as elements (18, n, 1) of AFFINE_MOTIONS."""
        return np.concatenate(self.joints)

    @property
    def tree(self) -> VectorTree:
        return self.layout.vector_tree

    @property
    def paths(self) -> HeavyPaths:
        return self.layout.heavy_paths

    @cached_property
    def velocities(self) -> Array:
        """Of all bodies (6, n, 1), in body frames, by the scan on heavy paths."""
        return self.paths.rootfix(AFFINE_MOTIONS, self.elements)[12:]

    @cached_property
    def sums(self) -> Array:
        """vJ added up from the root to each body (6, n, 1), as they stand, likewise."""
        return self.paths.rootfix(sums(6), self.joints[1])

    def off_by(self, what: str, answer: Any) -> float:
        """How far an answer is from this problem's own, the attribute `what`, or the answer to a query."""
        return difference(answer, getattr(self, what)) if hasattr(self, what) else super().off_by(what, answer)


# Figure 10: full matrices against compact structures, the same scan.


def _ours(problem: Problem) -> Call:
    return lambda: inverse_dynamics(problem.state(), "rnea").T


def _full(problem: Problem) -> Call:
    return partial(SixBySix(problem.model).inverse_dynamics, *(each[0] for each in problem.given))


def _affine(problem: Problem, kernel: str = "blocked", block: int = BLOCK) -> Call:
    tree, elements = problem.tree, problem.elements
    return lambda: tree.rootfix(AFFINE_MOTIONS, elements, kernel=kernel, block=block)[12:]


def _full_rootfix(problem: Problem) -> Call:
    return rootfix(problem.tree, *problem.joints)


def _matmul(problem: Problem) -> Call:
    call = matmul_rootfix(problem.tree, *problem.joints)
    return lambda: call()[..., None]


_WAYS = {"compiled": "compiled", "NumPy": "library"}
STRUCTURES = {
    "rootfix": [
        *(Contender(f"(E, r), {word}", _affine, how, "velocities") for word, how in _WAYS.items()),
        *(Contender(f"6 x 6, {word}", _full_rootfix, how, "velocities") for word, how in _WAYS.items()),
        Contender("6 x 6, numpy.matmul", _matmul, "library", "velocities"),
    ],
    "RNEA": [
        *(Contender(f"(E, r), {word}", _ours, how) for word, how in _WAYS.items()),
        *(Contender(f"6 x 6, {word}", _full, how) for word, how in _WAYS.items()),
    ],
}
"""Rootfix of velocities, and inverse dynamics; both on the vector tree with blocks of 64."""
_BOTH = tuple((word, f"6 x 6, {word}", f"(E, r), {word}") for word in _WAYS)
FASTER = {"rootfix": (*_BOTH, ("matmul against NumPy", "6 x 6, numpy.matmul", "(E, r), NumPy")), "RNEA": _BOTH}
"""Speed-ups: what they are called, of which time over which."""

# Figure 11: the rootfix of velocities by kernels.


def _simulated(problem: Problem) -> Call:
    """Transforms by their scan, velocities of joints to world coordinates, plain sums, and back (section 7.3)."""
    tree, (X, vJ) = problem.tree, problem.joints

    def call() -> Array:
        X0 = tree.rootfix(POSES, X, kernel="blocked", block=BLOCK)
        return motion_in(X0, tree.rootfix(sums(6), motion_out(X0, vJ), kernel="mapped"))

    return call


def _on_paths(problem: Problem) -> Call:
    paths, elements = problem.paths, problem.elements
    return lambda: paths.rootfix(AFFINE_MOTIONS, elements, block=BLOCK)[12:]


BASELINE = "blelloch"
_VELOCITIES: dict[str, Callable[[Problem], Call]] = {
    "hillis_steele": partial(_affine, kernel="hillis_steele"),
    BASELINE: partial(_affine, kernel="blelloch"),
    **{f"blocked, {block}": partial(_affine, block=block) for block in BLOCKS},
    "simulated": _simulated,
    "heavy paths, 64": _on_paths,
}
VELOCITIES = [
    *(Contender(name, prepare, "compiled", "velocities") for name, prepare in _VELOCITIES.items()),
    *(
        Contender(f"{name}, NumPy", _VELOCITIES[name], "library", "velocities")
        for name in (BASELINE, "blocked, 64", "simulated")
    ),
]

# Figure 12: the recurrence against addition.


def _addition(problem: Problem, kernel: str) -> Call:
    tree, vectors = problem.tree, problem.joints[1]
    return lambda: tree.rootfix(sums(6), vectors, kernel=kernel, block=BLOCK)


RECURRENCE = "recurrence, blocked 64"
OPERATORS = [
    Contender(RECURRENCE, _affine, answer="velocities"),
    *(
        Contender(f"addition, {kernel}", partial(_addition, kernel=kernel), answer="sums")
        for kernel in reversed(KERNELS)
    ),
]

# Figures 13 and 14: inverse dynamics; figures 15 and 16: the mass matrix and the bias force.

SEQUENTIAL = "compiled recursion"
HEAVY, TOUR = "rnea, heavy paths", "rnea_world, vector tree"
_heavy = on_cpu(HEAVY, INVERSE, "scan", method="rnea", scan=ScanOptions())
_tour = on_cpu(TOUR, INVERSE, "scan", method="rnea_world", scan=ScanOptions(layout="euler", kernel="mapped"))
RNEA = [
    on_cpu(SEQUENTIAL, INVERSE, "cpu"),
    _heavy,
    *(on_cpu(f"{method}, heavy paths", INVERSE, "scan", method=method) for method in ("rnea_world", "twist_pair")),
    _tour,
    *(replace(each, name=f"{each.name}, NumPy", how="library") for each in (_heavy, _tour)),
]
"""`TOUR` is what the thesis measures: its listing 7 on its vector tree."""
DENSE, SPARSE = "scans, dense", "scans, sparse"
MOST_DENSE = 10_000
"""A dense H of 40,000 takes 12.8 GB."""
_dense = replace(on_cpu(DENSE, MATRICES, "scan"), most=MOST_DENSE)
CRBA = [
    replace(on_cpu(SEQUENTIAL, MATRICES, "cpu"), most=MOST_DENSE),
    _dense,
    on_cpu(SPARSE, MATRICES, "scan", sparse=True),
    replace(_dense, name=f"{DENSE}, NumPy", how="library"),
]
