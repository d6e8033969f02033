"""Rolled kernels on the host against the reference engine: any tree, any task, one thread or many to a state."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from gpu_host import ORDERS, missing, run_on_host, run_sanitized
from gpu_host.cases import check, empty, rolled_kernel, run, states, wanted
from robots import own

import robodyn as rd
from robodyn.algorithms import kinematic_gradients, kinematics, momentum, motion_gradients
from robodyn.algorithms.aba import aba
from robodyn.algorithms.crba import CRBA
from robodyn.algorithms.forward_gradient import forward_gradient
from robodyn.algorithms.idsva import idsva
from robodyn.algorithms.regressor import BODY_REGRESSOR
from robodyn.algorithms.rnea import joint_reaction, rnea
from robodyn.algorithms.rnea_gradient import rnea_gradient
from robodyn.algorithms.tasks import Chain, Task, on_inertia, with_identity_seeds
from robodyn.description import JOINT_TYPES
from robodyn.engines.gpu.kernel_text import PARTITIONS
from robodyn.engines.gpu.rolled_kernels import FUSIONS, rolled_kernels
from robodyn.engines.gpu.schedules import column_rounds, inward_rounds, outward_rounds
from robodyn.engines.query_table import plain_questions
from robodyn.internals.errors import UnavailableError
from robodyn.joints import KINDS
from robodyn.sweeps import with_given

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "it runs")

DOUBLE, SINGLE = np.dtype(np.float64), np.dtype(np.float32)
SIZES = (1, 2, 3, 5, 16, 33, 64)


def _model(name: str) -> rd.Model:
    stem, _, base = name.partition(" ")
    return rd.load_urdf(own(stem), base=base or "fixed")


def _task(model: rd.Model, query: str) -> Task:
    return rd.Dynamics(model, engine="reference").plain_task(query)


# Every query: mimicking joints, floating base and ball joints, each by another partition.


@pytest.mark.parametrize("query", sorted(plain_questions()))
@pytest.mark.parametrize(
    ("name", "partition"),
    [
        ("hand", "block"),
        pytest.param("humanoid floating", "block", marks=pytest.mark.kernels),
        ("ball_joint_arm", "warp"),
        pytest.param("massless_chain", "thread", marks=pytest.mark.kernels),
    ],
)
@pytest.mark.some(of=6, rest="kernels")
def test_gpu_rolled_kernel_answers_every_query(name: str, partition: str, query: str) -> None:
    model = _model(name)
    task = _task(model, query)
    check([rolled_kernel(model, task, DOUBLE, partition=partition)], model, task, batch=3)


@pytest.mark.parametrize(
    ("name", "partition"),
    list(
        zip(
            ("planar_rover", "screw_press", "satellite", "cartpole", "gripper", "arm6", "oblique"),
            itertools.cycle(PARTITIONS),
            strict=False,
        )
    ),
)
@pytest.mark.some(of=6, rest="kernels")
def test_gpu_rolled_kernel_on_other_robots(name: str, partition: str) -> None:
    model = _model(name)
    for query in ("inverse_dynamics", "forward_dynamics", "inverse_dynamics_gradient"):
        task = _task(model, query)
        check([rolled_kernel(model, task, DOUBLE, partition=partition)], model, task, batch=3)


# Trees of any shape and size, and every joint kind.


@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize("query", ["inverse_dynamics", "forward_dynamics", "inverse_dynamics_gradient"])
@pytest.mark.some(of=3, rest="kernels")
def test_gpu_rolled_kernel_on_trees_of_every_shape(query: str, partition: str) -> None:
    for n, shape in zip(SIZES, itertools.cycle(("random", "chain", "star", "binary")), strict=False):
        model = rd.random_tree(n, seed=n, shape=shape, joints=("revolute",), armature=True)
        task = _task(model, query)
        source = rolled_kernel(model, task, DOUBLE, partition=partition, block_threads=64)
        check([source], model, task, batch=2, orders=("random",), tolerance=1e-9 if "forward" in query else None)


@pytest.mark.parametrize(("query", "partition"), [("inverse_dynamics", "warp"), ("forward_dynamics", "block")])
def test_gpu_rolled_kernel_with_every_joint_kind(query: str, partition: str) -> None:
    model = rd.random_tree(17, seed=4, joints=JOINT_TYPES, armature=True)
    assert {int(code) for code in model.joint_kind} == set(range(len(KINDS)))
    task = _task(model, query)
    check([rolled_kernel(model, task, DOUBLE, partition=partition)], model, task, batch=2, orders=("reverse",))


def test_gpu_rolled_kernel_of_a_tree_that_mimics() -> None:
    """Joints that share rows and columns of a matrix are summed in one order by one thread."""
    model = rd.random_tree(24, seed=6, joints=("revolute",), mimic=0.4)
    for task in (CRBA, _task(model, "forward_dynamics_gradient"), _task(model, "regressor")):
        check([rolled_kernel(model, task, DOUBLE, partition="block")], model, task, batch=2)


# Batches, grids, precision, memory.


@pytest.mark.parametrize("partition", PARTITIONS)
def test_gpu_rolled_kernel_takes_any_batch_on_any_grid(partition: str) -> None:
    model = _model("arm7")
    task = _task(model, "inverse_dynamics")
    source = rolled_kernel(model, task, DOUBLE, partition=partition, block_threads=32)
    for batch, blocks in ((0, 1), (1, 3), (5, 1), (70, 2)):
        check([source], model, task, batch=batch, blocks=blocks, orders=("forward",))


@pytest.mark.parametrize("partition", PARTITIONS)
def test_gpu_rolled_kernel_in_single_precision(partition: str) -> None:
    model = _model("arm7")
    for query in ("inverse_dynamics", "forward_dynamics_gradient"):
        task = _task(model, query)
        source = rolled_kernel(model, task, SINGLE, partition=partition)
        assert "double" not in source.text
        check([source], model, task, batch=2, tolerance=2e-3 if "forward" in query else None)


@pytest.mark.parametrize("partition", PARTITIONS)
def test_gpu_rolled_kernel_keeps_nan_in_its_row(partition: str) -> None:
    model = _model("arm7")
    task = _task(model, "forward_dynamics_gradient")
    source = rolled_kernel(model, task, DOUBLE, partition=partition, block_threads=32)
    inputs = states(model, 40)
    right = run([source], model, task, inputs)
    inputs["q"][7, 2] = inputs["qd"][30, 0] = np.nan
    for name, value in run([source], model, task, inputs).items():
        others = np.delete(np.arange(40), (7, 30))
        assert np.array_equal(value[others], right[name][others])
        assert np.isnan(value[7]).any()


def test_gpu_rolled_kernel_puts_what_does_not_fit_into_global_memory() -> None:
    model = _model("arm7")
    task = _task(model, "forward_dynamics_gradient")
    for partition in ("warp", "block"):
        near = rolled_kernel(model, task, DOUBLE, partition=partition)
        assert near.workspace_scalars == 0
        for room in (near.shared_bytes // 8, 0):
            far = rolled_kernel(model, task, DOUBLE, partition=partition, shared_bytes=room)
            assert far.workspace_scalars > 0
            assert far.shared_bytes <= room
            check([far], model, task, batch=4, orders=("random",))


def test_gpu_rolled_kernel_text_does_not_depend_on_numbers() -> None:
    def text(n: int, partition: str) -> str:
        model = rd.random_tree(n, seed=n, joints=("revolute",))
        return rolled_kernel(model, idsva(), DOUBLE, partition=partition, block_threads=64).text

    for partition in PARTITIONS:
        assert text(28, partition) == text(30, partition)


# What tasks can ask for besides.


def _asked(model: rd.Model) -> list[tuple[Task, dict[str, Any]]]:
    f_ext = ("q", "qd", "qdd", "f_ext")
    return [
        (rnea(f_ext), {"base": ("V0", "dV0")}),
        (aba(("q", "qd", "tau", "f_ext")), {"base": ("dV0",)}),
        (rnea_gradient(("q", "qd", "qdd")), {"base": ("V0",)}),
        (idsva(f_ext, damping=True), {}),
        (on_inertia(rnea(("q", "qd", "qdd"))), {}),
        (on_inertia(_task(model, "forward_dynamics_gradient")), {}),
        (kinematics.jacobian("world_aligned"), {"link": len(model.link_names) - 1}),
        (kinematics.jacobian("body"), {"link": 0}),
        (kinematics.link_acceleration("world", True), {"link": 2, "base": ("V0", "dV0")}),
        (kinematic_gradients.pose_hessian("world_aligned"), {"link": 3}),
        (kinematics.forward_kinematics(True), {"link": 3}),
        (with_given(kinematics.jacobian("body"), "point"), {"link": 3}),
        (with_given(kinematics.link_velocity("world_aligned"), "point"), {"link": 2, "base": ("V0",)}),
        (motion_gradients.link_acceleration_gradient("body", True), {"link": 3, "base": ("V0", "dV0")}),
        (joint_reaction(f_ext), {"base": ("V0", "dV0")}),
        (BODY_REGRESSOR, {}),
        (on_inertia(momentum.SUBTREE_CENTERS_OF_MASS), {}),
        (on_inertia(momentum.centroidal_matrix_derivative(True)), {"base": ("V0",)}),
        (momentum.CENTER_OF_MASS_ACCELERATION, {"base": ("dV0",)}),
    ]


@pytest.mark.parametrize("number", range(19))
@pytest.mark.some(of=4, rest="kernels")
def test_gpu_rolled_kernel_with_forces_inertias_base_and_links(number: int) -> None:
    model = _model("arm7" if number == 1 else "gripper")
    task, options = _asked(model)[number]
    for partition in PARTITIONS[number % 2 :: 2]:
        source = rolled_kernel(model, task, DOUBLE, partition=partition, **options)
        check([source], model, task, batch=2, orders=("forward", "random"), **options)


@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize("fusion", FUSIONS)
@pytest.mark.some(of=3, rest="kernels")
def test_gpu_rolled_kernels_of_a_chain_as_one_or_many(fusion: str, partition: str) -> None:
    model = _model("gripper")
    task = forward_gradient(("q", "qd", "tau"))
    sources = rolled_kernels(model, task, DOUBLE, fusion=fusion, partition=partition)
    assert len(sources) == {"complete": 1, "fused": 2, "split": 4}[fusion]
    assert sources[-1].outputs == task.results
    if fusion == "fused":
        assert sources[0].outputs == ("H", "qdd")
        assert set(sources[1].inputs) >= {"qdd", "H"}
    check(sources, model, task, batch=3, orders=("random",))


def test_gpu_rolled_kernels_of_second_derivatives_in_parts() -> None:
    model = _model("double_pendulum")
    task = _task(model, "forward_dynamics_hessian")
    assert isinstance(task, Chain)
    for fusion in ("fused", "split"):
        check(rolled_kernels(model, task, DOUBLE, fusion=fusion, partition="warp"), model, task, orders=("reverse",))


@pytest.mark.parametrize("query", ["inverse_dynamics_hessian", "forward_dynamics_hessian"])
def test_gpu_rolled_kernel_at_every_unit_vector(query: str) -> None:
    model = _model("double_pendulum")
    task = with_identity_seeds(_task(model, query))
    for partition in ("thread", "block"):
        check([rolled_kernel(model, task, DOUBLE, partition=partition)], model, task, orders=("reverse",))
    with pytest.raises(UnavailableError, match="unit vector"):
        rolled_kernels(model, with_identity_seeds(_task(model, "forward_dynamics_hessian")), DOUBLE, fusion="split")


# Orders.


@pytest.mark.parametrize("shape", ["random", "chain", "star", "binary", "caterpillar"])
def test_gpu_schedules_respect_parents_and_siblings(shape: str) -> None:
    for n in (1, 2, 7, 40):
        tree = rd.random_tree(n, seed=n, shape=shape).tree
        for world in (False, True):
            rounds = inward_rounds(tree, world)
            time = np.empty(n, int)
            for r in range(len(rounds)):
                members = rounds.order[rounds.starts[r] : rounds.starts[r + 1]]
                time[members] = r
                parents = [p for p in tree.parent[members].tolist() if world or p >= 0]
                assert len(set(parents)) == len(parents)
            assert sorted(rounds.order.tolist()) == list(range(n))
            assert all(time[i] < time[p] for i, p in enumerate(tree.parent.tolist()) if p >= 0)
        assert sorted(outward_rounds(tree).order.tolist()) == list(range(n))


def test_gpu_schedules_keep_columns_that_meet_with_one_thread() -> None:
    assert len(column_rounds(_model("arm7"))) == 7
    model = _model("hand")
    rounds = column_rounds(model)
    assert sorted(rounds.order.tolist()) == list(range(model.n_bodies))
    class_of = np.repeat(np.arange(len(rounds)), np.diff(rounds.starts))[np.argsort(rounds.order)]
    followers = np.flatnonzero(model.mimics >= 0)
    assert followers.size
    assert (class_of[followers] == class_of[model.mimics[followers]]).all()


# Sanitizers see what orders do not.


@pytest.mark.parametrize("query", ["inverse_dynamics", "forward_dynamics_gradient"])
@pytest.mark.parametrize(
    ("sanitizer", "partition"), [("thread", "warp"), ("thread", "block"), ("address", "warp"), ("address", "thread")]
)
@pytest.mark.some(of=6, when="kernels")
def test_gpu_rolled_kernel_is_clean_under_sanitizers(sanitizer: str, partition: str, query: str) -> None:
    if reason := missing(sanitizer):
        pytest.skip(reason)
    model = _model("gripper")
    task, inputs = _task(model, query), states(model, 3)
    source = rolled_kernel(model, task, DOUBLE, partition=partition, block_threads=32 if partition == "thread" else 64)
    outputs = empty(model, task, 3)
    assert not run_sanitized(source, inputs, outputs, sanitizer)
    right = run([source], model, task, inputs)
    assert all(np.array_equal(outputs[name], right[name]) for name in right)


def test_gpu_rolled_kernel_needs_every_barrier() -> None:
    """A warp's kernel without one of its barriers gives other results in some order."""
    model = rd.random_tree(40, seed=2, joints=("revolute",))
    task = _task(model, "inverse_dynamics")
    source = rolled_kernel(model, task, DOUBLE, partition="warp", block_threads=32)
    inputs = states(model, 2)
    right = wanted(model, task, inputs)["tau"]
    pieces = source.text.split("__syncwarp();")
    found = []
    for missing_one in range(len(pieces) - 1):
        text = "__syncwarp();".join(pieces[: missing_one + 1]) + "".join(
            f"__syncwarp();{piece}" if k else piece for k, piece in enumerate(pieces[missing_one + 1 :])
        )
        spoilt = type(source)(**{**vars(source), "text": text})
        wrong = False
        for order in ORDERS:
            got = run_on_host(spoilt, inputs, empty(model, task, 2), order, 1)["tau"]
            wrong |= not np.abs(got - right).max() < 1e-11 * np.abs(right).max()
        found.append(wrong)
    # The last one keeps a state's results from the next state's zeros, which here lie elsewhere.
    assert all(found[:-1]), found
