"""Peers that only the benchmarks of this repository measure, besides those of `robodyn bench`."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from functools import partial

import numpy as np

from robodyn.core.model import Model
from robodyn.tools.benchmark.compare import find_peers
from robodyn.tools.benchmark.contenders import (
    Answers,
    Contender,
    Peer,
    Prepared,
    RefusedError,
    States,
    available_threads,
)

TOLERANCES = {"float64": 1e-9, "float32": 1e-4}
"""How far from ours the text in jax_rnea.py may be."""


class Jax:
    """Inverse dynamics by a vmap of a straightforward RNEA.

    Raises:
        RefusedError: JAX is not installed, or the robot has joints that the text in jax_rnea.py leaves out.
    """

    notes: tuple[str, ...] = (
        "JAX: jit of a vmap of a straightforward RNEA (tests/bench/jax_rnea.py) on arrays that are JAX's already; it "
        "uses as many threads as it likes. Compiling is not part of the time.",
    )

    def __init__(self, model: Model) -> None:
        if importlib.util.find_spec("jax") is None:
            raise RefusedError("JAX is not installed")
        import jax

        from tests.bench import jax_rnea

        jax_rnea.require(model)
        self.name = f"JAX {jax.__version__}"
        self._functions = {dtype: jax_rnea.rnea(model, dtype) for dtype in ("float64", "float32")}

    def contenders(self, query: str, threads: Sequence[int]) -> list[Contender]:
        """One call for a batch, in both precisions."""
        if query != "inverse_dynamics":
            return []
        every = available_threads()
        return [
            Contender("JAX vmap", query, dtype, every, False, partial(self._batch, dtype), tolerance=TOLERANCES[dtype])
            for dtype in self._functions
        ]

    def _batch(self, dtype: str, states: States) -> Prepared:
        import jax.numpy as jnp

        function = self._functions[dtype]
        arrays = [jnp.asarray(states[name], dtype) for name in ("q", "qd", "qdd")]

        def run() -> object:
            return function(*arrays).block_until_ready()

        return Prepared(run, lambda: _answers(function(*arrays)), len(arrays[0]))


def _answers(tau: object) -> Answers:
    return (np.asarray(tau),)


def all_peers(model: Model) -> tuple[list[Peer], list[str]]:
    """Every peer that takes this robot, and why others do not."""
    peers, reasons = find_peers(model)
    try:
        peers.append(Jax(model))
    except RefusedError as refusal:
        reasons.append(str(refusal))
    return peers, reasons
