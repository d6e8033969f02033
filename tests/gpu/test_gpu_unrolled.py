"""Unrolled kernels of the GPU engine, run on the host under the shim, beside the reference engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np
import pytest
from cpu_queries import difference, regular, states_of
from gpu_host import ORDERS, missing, run_on_host, run_sanitized
from program_runner import check_lowering, program, run_lowered
from robots import OWN, own

import robodyn as rd
from robodyn.algorithms import energy, kinematic_gradients, kinematics
from robodyn.algorithms.aba import aba
from robodyn.algorithms.crba import CRBA
from robodyn.algorithms.rnea import rnea
from robodyn.algorithms.tasks import Chain, IdentitySeeds, Task, on_inertia, with_identity_seeds
from robodyn.compile.c import sincos
from robodyn.compile.lowering import lower
from robodyn.compile.ordering import in_short_order, values_alive
from robodyn.compile.tracing.program import Program
from robodyn.compile.tracing.unrolled import output_shape, trace
from robodyn.engines.gpu.source import SCALARS, SHARED_BYTES, KernelSource
from robodyn.engines.gpu.unrolled_kernels import (
    MAX_OPERATIONS,
    fits_registers,
    print_program,
    traced,
    unrollable,
    unrolled_kernel,
)
from robodyn.engines.query_table import QUERIES, plain_questions
from robodyn.engines.reference import ReferenceEngine
from robodyn.internals.errors import UnavailableError

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"kernels do not run on the host: {missing()}")

# Relative to the largest entry, or to 1. What is solved with H carries its condition number besides, up to 1e5 here.
TOLERANCE = {"float64": 1e-12, "float32": 1e-4}
INVERTED = {"float64": 1e-10, "float32": 2e-2}
DTYPES = ["float64", "float32"]

# Sizes that g++ compiles within the time that a run of the tests may take. Single precision differs by names alone.
_OPERATIONS = {"float64": 1000, "float32": 700}
# All kernels' shared memory is filled with NaN before each runs. With less of it more arrays are used directly.
_SHARED = {"float64": 16 << 10, "float32": SHARED_BYTES}
_FLOAT32 = ("arm6", "ball_joint_arm", "gripper", "satellite", "screw_press")
_OF_LARGE_ROBOTS = ("gravity_force", "forward_kinematics", "center_of_mass_jacobian")
_WITH_FORCES = (
    ("inverse", rnea(("q", "qd", "qdd", "f_ext"))),
    ("forward", aba(("q", "qd", "tau", "f_ext"))),
    ("bias", rnea(("q", "qd", "f_ext"))),
)
_OF_LINKS = {
    "pose": kinematics.forward_kinematics(True),
    "jacobian": kinematics.jacobian("body"),
    "jacobian derivative": kinematic_gradients.jacobian_derivative("world_aligned"),
    "pose hessian": kinematic_gradients.pose_hessian("world"),
    "velocity": kinematics.link_velocity("world"),
    "acceleration": kinematics.link_acceleration("world_aligned", True),
}


@dataclass(frozen=True)
class Case:
    """A kernel to print: `options` are those of `print_program`."""

    label: str
    model: rd.Model
    task: Task
    base: tuple[str, ...] = ()
    link: int | None = None
    options: tuple[tuple[str, int], ...] = ()

    @cached_property
    def program(self) -> Program:
        return traced(self.model, self.task, self.base, self.link)

    @property
    def inverts(self) -> bool:
        """Whether a mass matrix is inverted."""
        inner = self.task.algorithm if isinstance(self.task, IdentitySeeds) else self.task
        return isinstance(inner, Chain) or inner.name.startswith(("aba", "inverse_mass"))

    def tolerance(self, dtype: str) -> float:
        return (INVERTED if self.inverts else TOLERANCE)[dtype]


def plain_cases(model: rd.Model, most: int) -> Iterator[Case]:
    """Every plain query whose program is not too long."""
    dyn, invertible = rd.Dynamics(model, engine="reference"), regular(model)
    for query in plain_questions() if model.nv <= 12 else _OF_LARGE_ROBOTS:
        case = Case(f"{model.name} {query}", model, dyn.plain_task(query))
        if (invertible or not case.inverts) and unrollable(model, case.task) and case.program.operations <= most:
            yield case


def other_cases(model: rd.Model) -> Iterator[Case]:
    """External forces, a moving base, inertias, links, unit vectors."""
    base, name = ("V0", "dV0"), model.name
    for label, task in _WITH_FORCES:
        yield Case(f"{name} {label} forces", model, task)
        yield Case(f"{name} {label} base", model, task, base)
        yield Case(f"{name} {label} inertia", model, on_inertia(task), base)
    yield Case(f"{name} mass matrix inertia", model, on_inertia(CRBA))
    yield Case(f"{name} energy base", model, energy.KINETIC_ENERGY, ("V0",))
    for label, task in _OF_LINKS.items():
        yield Case(f"{name} link {label}", model, task, link=len(model.link_names) - 1)
    yield Case(f"{name} units", model, with_identity_seeds(rnea(("q", "vector"))))


def cut_cases(model: rd.Model) -> Iterator[Case]:
    """Programs in several functions, arrays that shared memory has no room for, and those for which it is asked."""
    dyn = rd.Dynamics(model, engine="reference")
    for query in ("inverse_dynamics", "forward_dynamics", "mass_matrix"):
        task = dyn.plain_task(query)
        for shared in (0, 4 << 10, 16 << 10):
            options = (("part_operations", 150), ("shared_bytes", shared))
            yield Case(f"{model.name} {query} cut {shared}", model, task, options=options)
    quadruped = rd.load_urdf(own("quadruped"))
    options = (("shared_bytes", 160 << 10),)
    yield Case("quadruped mass_matrix long", quadruped, QUERIES["mass_matrix"].plain_task(quadruped), options=options)


def long_cases(dtype: str) -> Iterator[Case]:
    """Results with long rows, which go through a window, in one function and in several."""
    shared = 2 * 32 * 35 * np.dtype(dtype).itemsize
    for name, query in (
        ("arm6", "inverse_dynamics_gradient"),
        ("ball_joint_arm", "forward_dynamics_gradient"),
        ("quadruped", "forward_kinematics"),
        ("gripper", "regressor"),
    ):
        model = rd.load_urdf(own(name))
        for part in (300, 8000):
            options = (("part_operations", part), ("shared_bytes", shared))
            yield Case(f"{name} {query} long {part}", model, QUERIES[query].plain_task(model), options=options)


def tree_cases() -> Iterator[Case]:
    """Random trees of all joint kinds."""
    for n, seed in ((1, 3), (2, 7), (5, 1), (16, 2)):
        tree = rd.random_tree(n, seed=seed, joints=("revolute", "prismatic", "spherical", "planar", "helical"))
        for label, task in _WITH_FORCES[:2]:
            yield Case(f"tree {n} {label}", tree, task, ("V0", "dV0"))
    yield Case("tree 64 inverse", rd.random_tree(64, seed=4), rnea(("q", "qd", "qdd")))


@cache
def cases(dtype: str, group: str) -> list[Case]:
    """The cases of a group: a robot's queries by its name, or others."""
    if group == "others":
        return list(other_cases(rd.load_urdf(own("ball_joint_arm"))))
    if group == "cut":
        return list(cut_cases(rd.load_urdf(own("arm6"))))
    if group == "long":
        return list(long_cases(dtype))
    if group == "trees":
        return list(tree_cases())
    return list(plain_cases(rd.load_urdf(own(group)), _OPERATIONS[dtype]))


def groups(dtype: str) -> list[str]:
    return [
        *(path.stem for path in OWN if dtype == "float64" or path.stem in _FLOAT32),
        "others",
        "cut",
        "long",
        "trees",
    ]


SINES = f"""
extern "C" __global__ void sines(const T* x, T* sine, T* cosine, T* workspace, long long rows)
{{
    for (long long r = blockIdx.x * (long long)blockDim.x + threadIdx.x; r < rows; r += gridDim.x * blockDim.x)
        {sincos.NAME}(x[r], sine + r, cosine + r);
}}
"""


def kernel_name(case: Case) -> str:
    return "kernel_" + case.label.replace(" ", "_")


class Bundle:
    """Kernels compiled together, behind one that calls the one it is asked for: starting g++ takes longer than most."""

    def __init__(self, sources: list[KernelSource], dtype: str) -> None:
        scalar = SCALARS[dtype]
        self.sources = {source.name: source for source in sources}
        self.numbers = {name: k for k, name in enumerate(self.sources)}
        takes, gives = (max(len(getattr(each, kind)) for each in sources) for kind in ("inputs", "outputs"))
        inputs = ("which", *(f"a{k}" for k in range(takes)))
        outputs = tuple(f"b{k}" for k in range(gives))
        calls = "".join(
            f"case {k}: {each.name}({', '.join([*inputs[1:][: len(each.inputs)], *outputs[: len(each.outputs)]])}, "
            "workspace, rows); break;\n"
            for k, each in enumerate(sources)
        )
        declared = [*(f"const {scalar}* {name}" for name in inputs), *(f"{scalar}* {name}" for name in outputs)]
        head = f'extern "C" __global__ void bundle({", ".join(declared)}, {scalar}* workspace, long long rows)'
        text = "".join(each.text for each in sources) + f"{head}\n{{\nswitch ((int)which[0]) {{\n{calls}}}\n}}\n"
        self.source = KernelSource("bundle", text, np.dtype(dtype), inputs, outputs)

    def run(self, name, arrays, shapes, rows, order="forward", blocks=2):
        """Results (rows, ...) by name, of inputs (rows, ...) by name."""
        one, dtype = self.sources[name], self.source.dtype
        nothing = dict.fromkeys((*self.source.inputs, *self.source.outputs), np.empty(0, dtype))
        given = nothing | {f"a{k}": arrays[each] for k, each in enumerate(one.inputs)}
        given["which"] = np.array([self.numbers[name]], dtype)
        left = {f"b{k}": np.empty((rows, *shapes[each]), dtype) for k, each in enumerate(one.outputs)}
        source = replace(self.source, block_threads=one.block_threads, shared_bytes=one.shared_bytes)
        run_on_host(source, given, {**nothing, **left}, order, blocks, rows=rows)
        return {each: left[f"b{k}"] for k, each in enumerate(one.outputs)}


@cache
def bundle(dtype: str, group: str) -> Bundle:
    """All kernels of a group, compiled once."""
    return Bundle(
        [
            print_program(
                case.program,
                np.dtype(dtype),
                kernel_name(case),
                **{"shared_bytes": _SHARED[dtype], **dict(case.options)},
            )
            for case in cases(dtype, group)
        ],
        dtype,
    )


def run_case(bundle: Bundle, case: Case, rows: int, order: str = "forward", blocks: int = 2):
    """A kernel's results, and those of the reference engine in double precision."""
    dtype, model = bundle.source.dtype, case.model
    name = kernel_name(case)
    states = states_of(model, (rows,), 11, dtype.name)
    arrays = {each: getattr(states, "tau" if each == "vector" else each) for each in bundle.sources[name].inputs}
    shapes = {each: output_shape(model, output) for each, output in case.task.outputs.items()}
    got = bundle.run(name, arrays, shapes, rows, order, blocks)
    wanted = {each: np.full((rows, *shape), np.nan) for each, shape in shapes.items()}
    exact = {each: array.astype(np.float64) for each, array in arrays.items()}
    ReferenceEngine(model, np.dtype(np.float64)).run(case.task, exact, wanted, link=case.link)
    return got, wanted


@pytest.mark.parametrize("dtype,group", [(dtype, group) for dtype in DTYPES for group in groups(dtype)])
@pytest.mark.some(of=14, rest="kernels")
def test_gpu_kernels_agree_with_the_reference(dtype, group):
    """Whole warps, one that is not full, and several tiles for some warps, in every order of threads."""
    assert cases(dtype, group)
    for case in cases(dtype, group):
        check_in_every_order(bundle(dtype, group), case, dtype)


def check_in_every_order(bundle: Bundle, case: Case, dtype: str) -> None:
    results = []
    for order in ORDERS:
        got, wanted = run_case(bundle, case, 127, order, blocks=1)
        for name, right in wanted.items():
            assert difference(got[name], right) < case.tolerance(dtype), (case.label, name)
        results.append(got)
    for other in results[1:]:
        for name, array in results[0].items():
            np.testing.assert_array_equal(other[name], array)


def found(dtype: str, group: str, label: str) -> Case:
    return next(case for case in cases(dtype, group) if case.label == label)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [0, 1, 31, 128, 1000])
@pytest.mark.parametrize(
    ("group", "label"),
    [
        ("screw_press", "screw_press inverse_dynamics"),
        ("cut", "arm6 mass_matrix cut 4096"),
        ("cut", "arm6 mass_matrix cut 0"),
        ("long", "arm6 inverse_dynamics_gradient long 300"),
    ],
)
@pytest.mark.some(of=3, rest="kernels")
def test_gpu_kernels_take_any_number_of_rows(dtype, rows, group, label):
    case = found(dtype, group, label)
    for blocks in (1, 3):
        got, wanted = run_case(bundle(dtype, group), case, rows, "random", blocks)
        for name, right in wanted.items():
            assert difference(got[name], right) < case.tolerance(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_gpu_kernels_of_long_results_have_windows(dtype):
    kernels = bundle(dtype, "long").sources
    assert len(kernels) == 8
    for source in kernels.values():
        assert source.text.count("_flush") > 2, source.name
        assert (source.block_threads, source.shared_bytes) == (32, 0)


@pytest.mark.parametrize("sanitizer", ["thread", "address"])
@pytest.mark.parametrize("query, output, lines", [("forward_kinematics", "T", False), ("mass_matrix", "H", True)])
@pytest.mark.kernels
def test_gpu_windows_are_written_and_read_in_turn(query, output, lines, sanitizer):
    """Of rows whose length is a multiple of a sector, and of those that are written line by line."""
    if missing(sanitizer):
        pytest.skip(missing(sanitizer))
    model = rd.load_urdf(own("arm6")) if query == "forward_kinematics" else rd.auto_tree(15, branching=1.0, skew=0.3)
    source = unrolled_kernel(model, QUERIES[query].plain_task(model), "float32", shared_bytes=12 << 10)
    kernel = source.text.partition("extern")[2]
    assert kernel.count("kernel_flush") > 1 and ("kernel_flush_lines" in kernel) == lines
    states = states_of(model, (300,), 3, "float32")
    wanted = getattr(rd.Dynamics(model, engine="reference", dtype="float32"), query)(states.q)
    out = {output: np.empty_like(wanted)}
    assert run_sanitized(source, {"q": states.q}, out, sanitizer) == ""
    assert difference(out[output], wanted) < TOLERANCE["float32"]
    if sanitizer == "thread":
        careless = replace(source, text=source.text.replace("__syncwarp();", ""))
        assert "data race" in run_sanitized(careless, {"q": states.q}, out, sanitizer)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bodies", [9, 10, 11, 12])
@pytest.mark.some(of=3, rest="kernels")
def test_gpu_lines_of_rows_of_any_length(bodies, dtype):
    """Rows begin in turn at every place of a line where their length is odd; results behind a line are complete."""
    model = rd.auto_tree(bodies, branching=3.0, skew=0.3)
    task = QUERIES["inverse_dynamics_gradient"].plain_task(model)
    window = 32 * (2 * bodies**2 - 2)  # nearly all of both results
    source = unrolled_kernel(model, task, dtype, shared_bytes=window * np.dtype(dtype).itemsize)
    by_lines = bodies**2 * np.dtype(dtype).itemsize % 32 != 0
    assert ("kernel_flush_lines" in source.text.partition("extern")[2]) == by_lines
    states = states_of(model, (45,), 3, dtype)
    out = {name: np.empty((45, bodies, bodies), dtype) for name in source.outputs}
    run_on_host(source, {"q": states.q, "qd": states.qd, "qdd": states.qdd}, out, "random")
    wanted = rd.Dynamics(model, engine="reference").inverse_dynamics_gradient(states.q, states.qd, states.qdd)
    for got, right in zip(out.values(), wanted, strict=True):
        assert difference(got, right) < 10 * TOLERANCE[dtype]


@pytest.mark.parametrize("sanitizer", ["thread", "address"])
@pytest.mark.kernels
def test_gpu_kernels_share_memory_in_turn(sanitizer):
    """No two threads of a warp use a tile's place without a barrier between, and none a place outside."""
    if missing(sanitizer):
        pytest.skip(missing(sanitizer))
    model = rd.load_urdf(own("double_pendulum"))
    source = unrolled_kernel(model, QUERIES["inverse_dynamics"].plain_task(model), "float32")
    states = states_of(model, (300,), 3, "float32")
    out = {"tau": np.empty((300, model.nv), np.float32)}
    given = {"q": states.q, "qd": states.qd, "qdd": states.qdd}
    assert run_sanitized(source, given, out, sanitizer) == ""
    wanted = rd.Dynamics(model, engine="reference", dtype="float32").inverse_dynamics(*given.values())
    assert difference(out["tau"], wanted) < TOLERANCE["float32"]
    if sanitizer == "thread":
        careless = replace(source, text=source.text.replace("__syncwarp();", ""))
        assert "data race" in run_sanitized(careless, given, out, sanitizer)


@pytest.mark.parametrize("dtype", DTYPES)
def test_gpu_kernels_leave_bad_rows_alone(dtype):
    """NaN and infinity stay in their rows."""
    case, compiled = found(dtype, "cut", "arm6 forward_dynamics cut 0"), bundle(dtype, "cut")
    name, model = kernel_name(case), case.model
    states = states_of(model, (70,), 5, dtype)
    arrays = {"q": states.q, "qd": states.qd, "tau": states.tau}
    clean = compiled.run(name, arrays, {"qdd": (model.nv,)}, 70)["qdd"]
    bad = {each: array.copy() for each, array in arrays.items()}
    bad["q"][3, 2], bad["qd"][40, 0], bad["tau"][69, 5] = np.nan, np.inf, np.nan
    left = compiled.run(name, bad, {"qdd": (model.nv,)}, 70)["qdd"]
    touched = np.isin(np.arange(70), (3, 40, 69))
    np.testing.assert_array_equal(left[~touched], clean[~touched])
    assert not np.isfinite(left[touched]).all(axis=1).any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_gpu_sines(dtype):
    """Two units in the last place, the sign of zero, and NaN for what has no digits left."""
    rng = np.random.default_rng(2)
    near = np.linspace(-8.0, 8.0, 4001)
    x = np.concatenate([near, rng.uniform(-1e5, 1e5, 4000), [0.0, -0.0, 1e-30, np.pi, 50 * np.pi]]).astype(dtype)
    huge = np.array([np.inf, -np.inf, np.nan, 3e6 if dtype == "float32" else 2e15], dtype)
    given = np.concatenate([x, huge])
    scalar = SCALARS[dtype]
    text = sincos.text(scalar) + SINES.replace("T*", f"{scalar}*")
    kernels = Bundle([KernelSource("sines", text, np.dtype(dtype), ("x",), ("sine", "cosine"))], dtype)
    left = kernels.run("sines", {"x": given}, {"sine": (), "cosine": ()}, len(given))
    for name, function in (("sine", np.sin), ("cosine", np.cos)):
        right = function(x.astype(np.longdouble))
        # Of angles that are nearly multiples of pi the reduction leaves what it leaves: absolutely, that is nothing.
        spacing = np.spacing(np.abs(right.astype(dtype))) + np.finfo(dtype).eps * 1e-3
        assert (np.abs(left[name][: len(x)] - right) / spacing).max() < 2.5
        assert np.isnan(left[name][len(x) :]).all()
    zeros = left["sine"][len(x) - 5 : len(x) - 3]
    assert np.signbit(zeros).tolist() == [False, True]


def test_gpu_ordering_by_hand():
    """Two sums of four, of products that all come first: six wait where three would do."""

    def function(a, b, c, d):
        p, q, r, s = a * b, c * d, a * c, b * d
        return p * q, r * s, p * p

    operations = lower(program(function, 4))
    assert [each.kind for each in operations] == ["mul"] * 7
    assert values_alive(operations) == 4
    assert values_alive(lower(in_short_order(program(function, 4)))) == 2
    assert values_alive([]) == 0


@pytest.mark.parametrize("name", ["quadruped", "arm7", "gripper", "satellite"])
def test_gpu_ordering_keeps_the_program(name):
    model = rd.load_urdf(own(name))
    states = states_of(model)
    for query, inputs in (("forward_dynamics", ("q", "qd", "tau")), ("forward_kinematics", ("q",))):
        before = trace(model, rd.Dynamics(model, engine="reference").plain_task(query))
        after = in_short_order(before)
        check_lowering(after)
        assert sorted(after.live) == sorted(before.live)
        assert values_alive(lower(after)) <= values_alive(lower(before))
        arrays = {each: getattr(states, each) for each in inputs}
        wanted, got, text = before.evaluate(arrays), after.evaluate(arrays), run_lowered(after, arrays)
        for each, right in wanted.items():
            np.testing.assert_array_equal(got[each], right)
            np.testing.assert_allclose(text[each], right, rtol=1e-9, atol=1e-9)


def test_gpu_ordering_needs_few_registers():
    """Branches of a tree run one after another, and not side by side."""
    model = rd.load_urdf(own("quadruped"))
    task = QUERIES["forward_dynamics"].plain_task(model)
    assert values_alive(lower(traced(model, task))) < 45 < 0.5 * values_alive(lower(trace(model, task)))
    assert fits_registers(traced(model, task), np.dtype(np.float64))
    gradient = traced(arm7 := rd.load_urdf(own("arm7")), QUERIES["forward_dynamics_gradient"].plain_task(arm7))
    assert not fits_registers(gradient, np.dtype(np.float32))


def test_gpu_kernel_of_a_model_without_bodies():
    """Nothing to compute, nothing to copy: the kernel is there all the same."""
    model = rd.load_urdf('<robot name="stone"><link name="stone"/></robot>')
    source = unrolled_kernel(model, rnea(("q", "qd", "qdd")), "float32")
    assert source.inputs == ("q", "qd", "qdd")
    out = {name: np.empty((40, 0), np.float32) for name in source.outputs}
    run_on_host(source, {name: np.empty((40, 0), np.float32) for name in source.inputs}, out)


def test_gpu_kernels_that_are_too_long():
    """Refused before tracing where sizes say so, and after it where only the program shows."""
    chain = rd.auto_tree(300)
    assert not unrollable(chain, CRBA)
    with pytest.raises(UnavailableError, match="too large for straight-line code"):
        unrolled_kernel(chain, CRBA, "float32")
    long = rd.auto_tree(60, branching=1.0, skew=0.3)
    task = aba(("q", "qd", "tau", "f_ext"))
    assert unrollable(long, task)
    with pytest.raises(UnavailableError, match="too large for straight-line code"):
        unrolled_kernel(long, on_inertia(task), "float64", base=("V0", "dV0"))
    assert trace(long, on_inertia(task), base=("V0", "dV0")).operations > MAX_OPERATIONS


def test_gpu_kernel_text():
    """It includes nothing, says how it is called, and is the same in every process."""
    model = rd.load_urdf(own("arm6"))
    task = QUERIES["inverse_dynamics_gradient"].plain_task(model)
    source = unrolled_kernel(model, task, "float32", name="gradient")
    assert "#include" not in source.text
    assert source.name == "gradient"
    assert source.inputs == ("q", "qd", "qdd")
    assert source.outputs == ("tau_q", "tau_qd")
    assert (source.threads_per_state, source.shared_bytes, source.workspace_scalars) == (1, 0, 0)
    assert source.states_per_block == source.block_threads
    assert "__shared__ float tiles[" in source.text
    longer = unrolled_kernel(
        model, QUERIES["inverse_dynamics_hessian"].plain_task(model), "float32", shared_bytes=160 << 10
    )
    assert longer.shared_bytes == longer.block_threads * 4 * (4 * 7 + 4 * 37) > SHARED_BYTES
    assert "extern __shared__ float tiles[];" in longer.text
    assert (
        source.text
        == unrolled_kernel(
            model, QUERIES["inverse_dynamics_gradient"].plain_task(model), "float32", name="gradient"
        ).text
    )
