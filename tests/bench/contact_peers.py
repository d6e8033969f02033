"""Other ways to step MuJoCo's model, as far as they are installed: mjbatch, and MJX on the CPU."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np

import robodyn as rd
from robodyn.internals.arguments import Array
from tests.bench.timing import least

_TURNS = 3
_SHARE = 0.99


@dataclass
class Peer:
    """Steps of a batch of one robot by another library: ns of processor time for a state, and those of ours in the
    library's precision."""

    robot: str
    library: str
    dtype: str
    ns: float
    ours_ns: float

    @property
    def times(self) -> float:
        return self.ns / self.ours_ns


@dataclass(frozen=True)
class Stepper:
    """`step` steps all states from the start, and returns velocities (B, nv), which agree to `tolerance`."""

    dtype: str
    tolerance: float
    step: Callable[[], Array]


def _mjbatch(model: Any, qpos: Array, qvel: Array, applied: Array) -> Stepper:
    from mjbatch import Batch

    batch = Batch(model, len(qpos), num_threads=1)
    for name, array in (("qpos", qpos), ("qvel", qvel), ("qfrc_applied", applied)):
        batch.bind(name)[:] = array
    state, moved = batch.bind("state"), batch.bind("qvel")
    start = state.copy()

    def step() -> Array:
        state[:] = start
        batch.step()
        return np.asarray(moved)

    return Stepper("float64", 1e-5, step)


def _mjx(model: Any, qpos: Array, qvel: Array, applied: Array) -> Stepper:
    import jax
    from mujoco import mjx

    theirs = mjx.put_model(model)
    blank = mjx.make_data(theirs)
    state = [jax.numpy.asarray(each, dtype="float32") for each in (qpos, qvel, applied)]

    @jax.jit
    @jax.vmap
    def stepped(q: Any, v: Any, tau: Any) -> Any:
        return mjx.step(theirs, blank.replace(qpos=q, qvel=v, qfrc_applied=tau)).qvel

    return Stepper("float32", 1e-2, lambda: np.asarray(stepped(*state)))


_LIBRARIES: dict[str, tuple[str, Callable[..., Stepper]]] = {
    "mjbatch": ("mjbatch", _mjbatch),
    "MJX": ("mujoco-mjx", _mjx),
}


def measured(
    robot: str, model: Any, states: tuple[Array, Array, Array], wanted: Array, ours: dict[str, float], seconds: float
) -> list[Peer]:
    """Those that are installed. `model`: MuJoCo's; `states`: its qpos, qvel and forces of a batch; `wanted`: velocities
    (B, nv) after the step; `ours`: ns of our step by precision.

    Raises:
        RobodynError: velocities differ.
    """
    found = []
    for name, (package, make) in _LIBRARIES.items():
        try:
            stepper = make(model, *states)
        except ImportError:
            continue
        off = np.abs(stepper.step() - wanted).max(axis=1) / np.abs(wanted).max(axis=1)
        if not np.quantile(off, _SHARE) <= stepper.tolerance:
            raise rd.RobodynError(f"{robot}: velocities by {name} differ by {np.quantile(off, _SHARE):.1g}")
        took = least({name: stepper.step}, seconds, _TURNS, clock=time.process_time, warm=1)[name]
        ns = 1e9 * took / len(wanted)
        found.append(Peer(robot, f"{name} {version(package)}", stepper.dtype, ns, ours[stepper.dtype]))
    return found
