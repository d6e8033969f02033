"""What the thesis' experiments run: contenders, each with a function that makes a call of one model and one state."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import numpy as np

import robodyn as rd
from robodyn.core.model import Model
from robodyn.engines.scan import AFFINE_MOTIONS, KERNELS, POSES, HeavyPaths, ScanOptions, VectorTree, sums
from robodyn.engines.scan.algorithms.inverse import inverse_dynamics
from robodyn.engines.scan.states import Layout, State, motion_in, motion_out
from robodyn.internals.arguments import Array
from tests.bench.experiments import Call, Contender
from tests.bench.points import difference
from tests.bench.six_by_six import SixBySix, matmul_rootfix, rootfix

BLOCK = 64
BLOCKS = (16, 32, 64, 128, 256, 512)


class Problem:
    """A tree of the thesis (section 7.1) and one state of it, with what contenders share."""

    def __init__(self, n: int, branching: float, dtype: str = "float64") -> None:
        self.model = rd.auto_tree(n, branching=branching)
        self.n, self.branching, self.dtype = n, branching, np.dtype(dtype)
        self.q, self.qd, self.qdd = np.random.default_rng(0).uniform(-1.0, 1.0, (3, n)).astype(dtype)

    @cached_property
    def layout(self) -> Layout:
        """For scans on the vector tree."""
        return Layout(self.model, self.dtype, ScanOptions(layout="euler", kernel="blocked", block=BLOCK))

    def state(self) -> State:
        """The state, nothing of it worked out."""
        return State(self.layout, {"q": self.q[None], "qd": self.qd[None], "qdd": self.qdd[None]})

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
        """The vector tree."""
        return self.layout.vector_tree

    @property
    def paths(self) -> HeavyPaths:
        """The heavy paths."""
        return self.layout.heavy_paths

    @cached_property
    def velocities(self) -> Array:
        """Of all bodies (6, n, 1), in body frames, by the scan on heavy paths."""
        return self.paths.rootfix(AFFINE_MOTIONS, self.elements)[12:]

    @cached_property
    def sums(self) -> Array:
        """vJ added up from the root to each body (6, n, 1), as they stand, likewise."""
        return self.paths.rootfix(sums(6), self.joints[1])

    @cached_property
    def sequential(self) -> rd.Dynamics:
        """Our compiled recursion on one thread."""
        return rd.Dynamics(self.model, engine="cpu", threads=1, dtype=self.dtype.name, check=False)

    @cached_property
    def torques(self) -> Array:
        """By that recursion."""
        return self.sequential.inverse_dynamics(self.q, self.qd, self.qdd)

    @cached_property
    def product(self) -> Array:
        """H qdd, by that recursion: what inverse dynamics adds for accelerations."""
        still = np.zeros_like(self.q)
        moving, resting = (self.sequential.inverse_dynamics(self.q, still, each) for each in (self.qdd, still))
        return moving - resting

    def off_by(self, what: str, answer: Any) -> float:
        """How far an answer is from this problem's own, the attribute `what`; of "product" the matrix is given."""
        return difference(answer @ self.qdd if what == "product" else answer, getattr(self, what))


# Figure 10: full matrices against compact structures, the same scan.


def _ours(problem: Problem) -> Call:
    return lambda: inverse_dynamics(problem.state(), "rnea")[:, 0]


def _full(problem: Problem) -> Call:
    return SixBySix(problem.model, problem.dtype.name).call(problem.q, problem.qd, problem.qdd)


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
FASTER = {
    "rootfix": (
        ("compiled", "6 x 6, compiled", "(E, r), compiled"),
        ("NumPy", "6 x 6, NumPy", "(E, r), NumPy"),
        ("matmul against NumPy", "6 x 6, numpy.matmul", "(E, r), NumPy"),
    ),
    "RNEA": (("compiled", "6 x 6, compiled", "(E, r), compiled"), ("NumPy", "6 x 6, NumPy", "(E, r), NumPy")),
}
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
_WITH_NUMPY = (BASELINE, "blocked, 64", "simulated")
VELOCITIES = [
    *(Contender(name, prepare, "compiled", "velocities") for name, prepare in _VELOCITIES.items()),
    *(Contender(f"{name}, NumPy", _VELOCITIES[name], "library", "velocities") for name in _WITH_NUMPY),
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

# Figures 13 and 14: inverse dynamics.


def _engine(model: Model, dtype: str, **options: Any) -> rd.Dynamics:
    return rd.Dynamics(model, engine="scan", scan=ScanOptions(**options), dtype=dtype, check=False)


def _recursion(problem: Problem) -> Call:
    dyn, out = problem.sequential, np.empty_like(problem.q)
    # Looked up at every call: the engine puts a faster entry in the place of the method.
    return lambda: dyn.inverse_dynamics(problem.q, problem.qd, problem.qdd, out=out)


def _scanned(problem: Problem, method: str, **options: Any) -> Call:
    dyn = _engine(problem.model, problem.dtype.name, **options)
    return partial(
        dyn.inverse_dynamics, problem.q, problem.qd, problem.qdd, method=method, out=np.empty_like(problem.q)
    )


SEQUENTIAL = "compiled recursion"
HEAVY, TOUR = "rnea, heavy paths", "rnea_world, vector tree"
RNEA = [
    Contender(SEQUENTIAL, _recursion),
    Contender(HEAVY, partial(_scanned, method="rnea")),
    Contender("rnea_world, heavy paths", partial(_scanned, method="rnea_world")),
    Contender("twist_pair, heavy paths", partial(_scanned, method="twist_pair")),
    Contender(TOUR, partial(_scanned, method="rnea_world", layout="euler", kernel="mapped")),
    Contender(f"{HEAVY}, NumPy", partial(_scanned, method="rnea"), "library"),
    Contender(f"{TOUR}, NumPy", partial(_scanned, method="rnea_world", layout="euler", kernel="mapped"), "library"),
]
"""`TOUR` is what the thesis measures: its listing 7 on its vector tree."""

# Figures 15 and 16: H and c.


def _matrix_recursion(problem: Problem) -> Call:
    dyn, H, c = problem.sequential, np.empty((problem.n, problem.n), problem.dtype), np.empty_like(problem.q)

    def call() -> Array:
        dyn.bias_force(problem.q, problem.qd, out=c)
        return dyn.mass_matrix(problem.q, out=H)

    return call


def _matrix_scanned(problem: Problem, sparse: bool) -> Call:
    dyn, c = _engine(problem.model, problem.dtype.name), np.empty_like(problem.q)
    still = np.zeros_like(problem.q)
    kept = {"sparse": True} if sparse else {"out": np.empty((problem.n, problem.n), problem.dtype)}

    def call() -> Any:
        dyn.inverse_dynamics(problem.q, problem.qd, still, out=c)
        return dyn.mass_matrix(problem.q, **kept)

    return call


DENSE, SPARSE = "scans, dense", "scans, sparse"
MOST_DENSE = 10_000
"""A dense H of 40,000 takes 12.8 GB."""
_dense, _sparse = (partial(_matrix_scanned, sparse=sparse) for sparse in (False, True))
CRBA = [
    Contender(SEQUENTIAL, _matrix_recursion, answer="product", most=MOST_DENSE),
    Contender(DENSE, _dense, answer="product", most=MOST_DENSE),
    Contender(SPARSE, _sparse, answer="product"),
    Contender(f"{DENSE}, NumPy", _dense, "library", "product", MOST_DENSE),
]
"""The mass matrix and the bias force, as in the thesis."""
