"""What tests of robodyn.jax and robodyn.torch share: both libraries, set for tests, and how queries are asked."""

from __future__ import annotations

import os

import numpy as np
import pytest

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # tests are not alone on a GPU
jax = pytest.importorskip("jax", reason="the extra 'jax' is not installed")
torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_disable_most_optimizations", True)  # half the time to compile, which is most of the time here
jax.config.update("jax_default_device", jax.devices("cpu")[0])  # also where there is a GPU


# Derivatives of the same state by two roads.
ROADS = 1e-8


def asked(functions, question, arrays, link, **chosen):
    """A query's results as a tuple."""
    by_place, by_name = question.arguments(arrays, link)
    found = getattr(functions, question.name)(*by_place, **by_name, **chosen)
    return found if isinstance(found, tuple) else (found,)


def scale(*arrays):
    return max((float(np.abs(each).max()) for each in arrays if np.size(each)), default=0.0) + 1e-3


def close(got, wanted, tolerance, at_least=0.0):
    got, wanted = np.asarray(got), np.asarray(wanted)
    assert got.shape == wanted.shape
    error = np.abs(got - wanted).max(initial=0.0) / max(scale(wanted), at_least)
    assert error < tolerance, error  # also where it is NaN
