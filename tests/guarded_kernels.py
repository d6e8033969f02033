"""Runs kernels on arrays that lie right before or right after memory that nobody may touch: a program of its own.

    python -X faulthandler tests/guarded_kernels.py LEVEL CODE DTYPE [SEED]

With a seed robots, algorithms and numbers of rows are drawn from it; LEVEL may be "host", what is best here.
Every input, output, workspace, array of the model and the table itself has an inaccessible page before and behind it,
and either begins right after the one or ends right before the other. Inputs cannot be written to. A stray access ends
the process; results must be those of plain memory, to the bit.
"""

from __future__ import annotations

import ctypes
import mmap
import sys

import numpy as np
from algorithm_table import ALGORITHMS, needs_own_coordinates
from robots import own

import robodyn as rd
from robodyn.algorithms.forward_gradient import forward_gradient, inverse_by_mass_matrix
from robodyn.algorithms.forward_hessian import forward_hessian
from robodyn.algorithms.regressor import FORWARD_GRAVITY_GRADIENT, forward_regressor
from robodyn.algorithms.tasks import Chain, Task, with_identity_seeds
from robodyn.compile.llvm.target import host_target
from robodyn.compile.tracing.unrolled import input_shapes, output_shape
from robodyn.engines.cpu import hoisting, route
from robodyn.engines.cpu.chains.build import mixed_precision_kernel
from robodyn.engines.cpu.engine import CpuEngine
from robodyn.engines.cpu.kernels import Kernel, workspace
from robodyn.engines.cpu.loops.program import RolledProgram
from robodyn.engines.cpu.native.answers import JointForce

PAGE = mmap.PAGESIZE
NOTHING, READ, WRITE = 0, 1, 3  # PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE
_LIBC = ctypes.CDLL(None, use_errno=True)

HALVES = "forward_hessian_at_units"
"""Two programs, where one instruction spreads a number over a vector."""
AT_UNITS = {HALVES: with_identity_seeds(forward_hessian())}
CHAINS = {
    chain.name: chain
    for chain in (
        forward_gradient(("q", "qd", "tau", "f_ext")),
        forward_hessian(),
        forward_regressor(),
        FORWARD_GRAVITY_GRADIENT,
        inverse_by_mass_matrix(),
    )
}
"""Run in stages, whose solves and products are loops."""
KINDS = ("universal", "spherical", "helical", "planar", "prismatic", "continuous")
# Of every kind of sweep and output: lanes, ancestors, links, pairs, columns, single numbers.
ASKED = {
    "unrolled": (
        *("rnea_q_qd_qdd_f_ext", "aba_q_qd_tau", "crba", "inverse_mass_matrix", "forward_kinematics"),
        "center_of_mass",  # three columns, and nothing behind them
        HALVES,
    ),
    "rolled": (
        *("rnea_q_qd_qdd_f_ext", "aba_q_qd_tau", "crba", "inverse_mass_matrix", "forward_kinematics"),
        *("coriolis_matrix", "rnea_gradient_q_qd_qdd_f_ext", "jacobian_body", "centroidal_momentum", "kinetic_energy"),
    ),
    # Results that straight-line code leaves as vectors, and writes to rows on the way.
    "many results": ("crba", "rnea_gradient_q_qd_qdd"),
    "stages": (*CHAINS, HALVES),  # of which stages run at every unit vector
}


class Guarded:
    """Memory of some bytes between two pages that nobody may touch.

    `behind`: it ends right before the second, otherwise it begins right after the first.
    """

    def __init__(self, size: int, behind: bool) -> None:
        pages = -(-max(size, 1) // PAGE)
        self.map = mmap.mmap(-1, (pages + 2) * PAGE)
        self.start = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        self.pages, self.size = pages, size
        self.protect(0, 1, NOTHING)
        self.protect(pages + 1, 1, NOTHING)
        self.address = self.start + PAGE + (pages * PAGE - size if behind else 0)

    def protect(self, first: int, count: int, how: int) -> None:
        failed = _LIBC.mprotect(ctypes.c_void_p(self.start + first * PAGE), ctypes.c_size_t(count * PAGE), how)
        assert not failed, ctypes.get_errno()

    def read_only(self) -> None:
        self.protect(1, self.pages, READ)

    def array(self, dtype: str) -> np.ndarray:
        """All of it."""
        item = np.dtype(dtype)
        kind = {"float64": ctypes.c_double, "float32": ctypes.c_float, "int64": ctypes.c_int64, "uint8": ctypes.c_uint8}
        return np.frombuffer((kind[dtype] * (self.size // item.itemsize)).from_address(self.address), dtype)


def guarded_rows(values: np.ndarray, padding: int, behind: bool) -> tuple[Guarded, int]:
    """(B, n) rows in guarded memory with some scalars of padding between them, but none behind the last; the stride."""
    rows, columns = values.shape
    stride = columns + padding
    memory = Guarded(((rows - 1) * stride + columns) * values.itemsize, behind)
    flat = memory.array(values.dtype.name)
    flat[:] = 777.0
    for r in range(rows):
        flat[r * stride : r * stride + columns] = values[r]
    return memory, stride * values.itemsize


def constants(kernel: Kernel, behind: bool) -> tuple[list[int], list[Guarded]]:
    """Words of the table after inputs and outputs, pointing at guarded copies of the model's arrays."""
    words: list[int] = []
    kept: list[Guarded] = []
    if not isinstance(kernel.keep, RolledProgram):  # straight-line code for part of the robot has few
        return list(kernel.constants), kept
    arrays = kernel.keep.arrays
    for array in arrays:
        memory = Guarded(array.nbytes, behind)
        memory.array("uint8")[:] = array.view(np.uint8).ravel() if array.size else ()
        memory.read_only()
        kept.append(memory)
        words += [memory.address, 0]
    assert len(words) == len(kernel.constants)
    return words, kept


def table_of(pairs: list[tuple[int, int]], more: list[int], behind: bool) -> Guarded:
    words = [word for pair in pairs for word in pair] + more
    table = Guarded(8 * len(words), behind)
    table.array("int64")[:] = words
    table.read_only()
    return table


def plain(kernel: Kernel, inputs: list[np.ndarray], shapes: list[int]) -> list[np.ndarray]:
    """Results in plain memory."""
    rows = len(inputs[0])
    outputs = [np.full((rows, n), np.nan, inputs[0].dtype) for n in shapes]
    words = [word for a in (*inputs, *outputs) for word in (a.ctypes.data, a.strides[0])]
    table = (ctypes.c_int64 * (len(words) + len(kernel.constants)))(*words, *kernel.constants)
    if kernel.batch:
        table[len(table) - 1] = rows
    address, owner = workspace(kernel.workspace_bytes) if kernel.workspace_bytes else (0, None)
    kernel.function(ctypes.addressof(table), 0, rows, address)
    assert owner is None or owner.size
    return outputs


def check(
    kernel: Kernel, inputs: list[np.ndarray], shapes: list[int], padding: int, behind: bool, large: bool = False
) -> None:
    """One run in guarded memory; `large`: as part of a batch that no cache holds."""
    rows, dtype = len(inputs[0]), inputs[0].dtype
    wanted = plain(kernel, inputs, shapes)
    given = [guarded_rows(each, padding, behind) for each in inputs]
    taken = [guarded_rows(np.full((rows, n), np.nan, dtype), padding, behind) for n in shapes]
    for memory, _ in given:
        memory.read_only()
    scratch = Guarded(kernel.workspace_bytes, behind) if kernel.workspace_bytes else None
    if scratch is not None:
        scratch.array("uint8")[:] = 255  # NaN
    more, kept = constants(kernel, behind)
    if kernel.batch:
        more[-1] = 1 << 40 if large else rows
    table = table_of([(memory.address, stride) for memory, stride in (*given, *taken)], more, behind)
    kernel.function(table.address, 0, rows, 0 if scratch is None else scratch.address)
    assert len(kept) == len(more) // 2 or not isinstance(kernel.keep, RolledProgram)
    for (memory, stride), right in zip(taken, wanted, strict=True):
        flat, step = memory.array(dtype.name), stride // dtype.itemsize
        for r in range(rows):
            assert (flat[r * step :][: right.shape[1]] == right[r]).all(), (kernel.request.label, rows, r)
            assert (flat[r * step + right.shape[1] : (r + 1) * step] == 777.0).all(), "padding was written"


def in_stages() -> None:
    """No chain is one program from now on, however small the robot is."""
    plain = route.most_operations

    def most(asked: route.Request, mode: str) -> float | None:
        return None if isinstance(asked.algorithm, Chain) else plain(asked, mode)

    route.most_operations = hoisting.most_operations = most


def drawn(seed: int) -> tuple[tuple[rd.Model, ...], list[str]]:
    """Robots of any kinds and shapes, and some algorithms."""
    rng = np.random.default_rng(seed)
    models = []
    for k in range(3):
        joints = tuple(rng.choice((*KINDS, "revolute", "fixed", "floating"), 3, replace=False).tolist())
        shape = str(rng.choice(["random", "chain", "star", "binary", "caterpillar"]))
        base, mimic = str(rng.choice(["fixed", "floating"])), float(rng.choice([0.0, 0.7]))
        n = int(rng.integers(1, 10))
        print(f"seed {seed}: {n} joints of {joints}, {shape}, {base}, mimic {mimic}")
        models.append(rd.random_tree(n, seed=10 * seed + k, joints=joints, shape=shape, base=base, mimic=mimic))
    return tuple(models), rng.choice(list(ALGORITHMS), 4, replace=False).tolist()


def check_in_double(
    engine: CpuEngine,
    algorithm: Task,
    base: tuple[str, ...],
    values: dict[str, np.ndarray],
    shapes: list[int],
    single: bool,
) -> int:
    """Runs of the kernel that has double precision compute the same rows, with damping and friction."""
    model, link = engine.model, len(engine.model.link_names) - 1
    double = CpuEngine(model, np.dtype("float64"), threads=1, mode=engine.compiler.mode, target=engine.target)
    inner = double.kernel(algorithm, base, link, single=single)
    inner = inner.plain or inner
    force = None
    if "tau" in inner.inputs:
        force = JointForce(inner.inputs.index("tau"), inner.inputs.index("qd"), np.ones(model.nv), np.ones(model.nv))
    kernel = mixed_precision_kernel(engine.compiler, engine.request(algorithm, base, link), inner, force)
    inputs = [values[key] for key in kernel.inputs]
    wide = {key: array.astype(float) for key, array in values.items()}
    if force is not None:
        wide["tau"] = wide["tau"] - (wide["qd"] + np.sign(wide["qd"]))
    right = [each.astype(np.float32) for each in plain(inner, [wide[key] for key in inner.inputs], shapes)]
    assert all(map(np.array_equal, plain(kernel, inputs, shapes), right)), "not what double precision says"
    for padding, behind in ((0, False), (3, True)):
        check(kernel, inputs, shapes, padding, behind)
    return 2


def main(level: str, code: str, dtype: str, seed: str = "") -> None:
    models: tuple[rd.Model, ...] = (
        rd.random_tree(6, seed=5, joints=KINDS, armature=True),
        rd.random_tree(4, seed=1, joints=("revolute", "prismatic"), mimic=0.7, base="floating"),
    )
    asked = list(ASKED[code])
    if seed:
        models, asked = drawn(int(seed))
    many = code == "many results"
    if many:
        models, code = (rd.load_urdf(own("humanoid")),), "unrolled"
    if code == "stages":
        models, code = (*models, rd.random_tree(13, seed=2, joints=("revolute",), base="floating")), "unrolled"
        in_stages()
    rng = np.random.default_rng(0)
    runs = 0
    for model in models:
        target = host_target() if level == "host" else host_target(level)
        engine = CpuEngine(model, np.dtype(dtype), threads=1, mode=code, target=target)
        width = engine.target.width(np.dtype(dtype))
        for name in asked:
            chain = AT_UNITS.get(name) or CHAINS.get(name)
            algorithm = chain or ALGORITHMS[name]
            if model.has_mimic and chain is None and needs_own_coordinates(algorithm):
                continue
            for single in (False, True):
                base = ("V0", "dV0") if name.startswith("rnea_q") else ()
                kernel = engine.kernel(algorithm, base, len(model.link_names) - 1, single=single)
                columns = {key: int(np.prod(n)) for key, n in input_shapes(model, algorithm, base).items()}
                shapes = [int(np.prod(output_shape(model, output))) for output in algorithm.outputs.values()]
                every = (*range(1, 2 * width + 2), 5 * width + 3)
                if many:
                    every = (width + 1, width * width, width * width + width + 3, 2 * width * width + 1)
                if single and code == "unrolled":
                    every = (1, 2, 5)
                for rows in rng.choice(every, 3, replace=False).tolist() if seed else every:
                    values = {key: rng.standard_normal((rows, n)).astype(dtype) for key, n in columns.items()}
                    values["q"] = model.random_configuration(rng, (rows,)).astype(dtype)
                    inputs = [values[key] for key in kernel.inputs]
                    if single and code == "unrolled":
                        batch = engine.kernel(algorithm, base, len(model.link_names) - 1, single=False)
                        of_batch = [plain(each, inputs, shapes) for each in (kernel, batch)]
                        assert all(map(np.array_equal, *of_batch)), "one state has other bits than a batch"
                    for padding in (0, 3):
                        for behind in (False, True):
                            for large in (False, True) if kernel.batch else (False,):
                                check(kernel, inputs, shapes, padding, behind, large)
                                runs += 1
                if dtype == "float32":
                    runs += check_in_double(engine, algorithm, base, values, shapes, single)
    print(f"{runs} runs")


if __name__ == "__main__":
    main(*sys.argv[1:])
