"""Kernels against the reference engine: states, what they should give, and the comparison."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from conftest import TOLERANCE, relative

import robodyn as rd
from robodyn.algorithms.tasks import Task
from robodyn.compile.tracing.unrolled import output_shape
from robodyn.engines.gpu.device import Device
from robodyn.engines.gpu.rolled_kernels import rolled_kernels
from robodyn.engines.gpu.source import KernelSource
from robodyn.engines.gpu.unrolled_chains import left
from robodyn.engines.reference import ReferenceEngine

from . import ORDERS, run_on_host


def states(model: rd.Model, batch: int, seed: int = 0) -> dict[str, Any]:
    """Every input that a task can have, away from zero."""
    print(f"states of {model.name}: seed {seed}")
    rng = np.random.default_rng(seed)
    found = {"q": model.random_configuration(rng, (batch,))}
    found.update({name: rng.normal(size=(batch, model.nv)) for name in ("qd", "qdd", "tau", "vector")})
    found["f_ext"] = rng.normal(size=(batch, model.n_bodies, 6))
    found["inertia"] = model.inertia * (1.0 + 0.1 * rng.random((batch, model.n_bodies, 10)))
    found["point"] = rng.normal(size=(batch, 3))
    found.update({name: rng.normal(size=(batch, 6)) for name in ("V0", "dV0")})
    return found


def touching(batch: int = 5) -> tuple[rd.Model, tuple[Any, ...]]:
    """A small robot on rails that touches a floor in most of its states (q, qd, tau), alone by its second body."""
    model = rd.random_tree(2, seed=3, joints=("prismatic",))
    link, rng = model.link_names[-1], np.random.default_rng(5)
    q = rng.uniform(-0.3, 0.3, (batch, 2))
    heights = rd.Dynamics(model, engine="reference").link_pose(q, link)[:, 2, 3]
    floor = rd.Plane(offset=float(np.quantile(heights, 0.8)) - 0.1)
    model = model.with_contacts([rd.Contact(rd.Sphere(link, radius=0.1), floor)])
    return model, (q, *rng.normal(size=(2, batch, 2)))


def rolled_kernel(model: rd.Model, task: Task, dtype: Any, **options: Any) -> KernelSource:
    """The only kernel of a task, as loops."""
    (source,) = rolled_kernels(model, task, dtype, **options)
    return source


def empty(model: rd.Model, task: Task, batch: int, dtype: str = "float64") -> dict[str, Any]:
    """Arrays for the results of a task."""
    return {name: np.empty((batch, *output_shape(model, each)), dtype) for name, each in task.outputs.items()}


def wanted(
    model: rd.Model, task: Task, inputs: Mapping[str, Any], base: tuple[str, ...] = (), link: int | None = None
) -> dict[str, Any]:
    """What the reference engine gives."""
    results = empty(model, task, len(inputs["q"]))
    given = {name: inputs[name] for name in (*task.inputs, *base)}
    ReferenceEngine(model, np.dtype(np.float64)).run(task, given, results, link=link)
    return results


def run(
    sources: Iterable[KernelSource],
    model: rd.Model,
    task: Task,
    inputs: Mapping[str, Any],
    order: str = "forward",
    blocks: int = 2,
) -> dict[str, Any]:
    """Run kernels one after another, each on what those before it left: the task's results."""
    known = dict(inputs)
    batch = len(inputs["q"])
    shapes = {name: output_shape(model, each) for name, each in left(model, task).items()}
    for source in sources:
        outputs = {name: np.empty((batch, *shapes[name]), source.dtype) for name in source.outputs}
        known.update(run_on_host(source, known, outputs, order, blocks, rows=batch))
    return {name: known[name] for name in task.outputs}


def run_on_device(
    device: Device,
    sources: Iterable[KernelSource],
    model: rd.Model,
    task: Task,
    inputs: Mapping[str, Any],
    blocks: int = 2,
) -> dict[str, Any]:
    """The same on a device."""
    xp, batch = device.xp, len(inputs["q"])
    shapes = {name: output_shape(model, each) for name, each in left(model, task).items()}
    known: dict[str, Any] = {}
    for source in sources:
        for name in source.inputs:
            if name not in known:
                known[name] = xp.asarray(np.ascontiguousarray(inputs[name], source.dtype))
        kernel = device.load(source)
        made = {name: (batch, *shapes[name]) for name in source.outputs}
        made["workspace"] = (source.workspace(blocks),)
        known.update({name: xp.asarray(np.full(shape, np.nan, source.dtype)) for name, shape in made.items()})
        constants = [xp.asarray(each) for each in source.constants]
        given = [known[name] for name in (*source.inputs, *source.outputs)]
        kernel.launch(blocks, [*given, *constants, known["workspace"]], batch)
    device.settle()
    return {name: xp.asnumpy(known[name]) for name in task.outputs}


def check(
    sources: Iterable[KernelSource],
    model: rd.Model,
    task: Task,
    *,
    batch: int = 5,
    blocks: int = 2,
    orders: Iterable[str] = ORDERS,
    base: tuple[str, ...] = (),
    link: int | None = None,
    tolerance: float | None = None,
    on: Device | None = None,
) -> None:
    """Results in every order are the same, bit for bit, and those of the reference engine.

    With `on`, kernels run on that device instead, which has an order of its own: several times.
    """
    sources = tuple(sources)
    inputs = states(model, batch)
    right = wanted(model, task, inputs, base, link)
    allowed = TOLERANCE[str(sources[0].dtype)] if tolerance is None else tolerance
    first: dict[str, Any] = {}
    for order in orders:
        if on is None:
            got = run(sources, model, task, inputs, order, blocks)
        else:
            got = run_on_device(on, sources, model, task, inputs, blocks)
        first = first or got
        for name, value in right.items():
            assert relative(got[name], value) < allowed, (name, order)
            assert np.array_equal(got[name], first[name]), (name, order)
