"""Fixtures for pytest: write `pytest_plugins = ["robodyn.testing.fixtures"]` in a conftest.py, then

def test_my_robot(assert_robot):
    assert_robot("my_robot.urdf", base="floating")
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from robodyn.core.model import Model
from robodyn.internals.errors import ArgumentError
from robodyn.io.builders.load import load_urdf
from robodyn.tools.testing.asserts import assert_sound


@pytest.fixture  # type: ignore[untyped-decorator]
def assert_robot() -> Callable[..., Model]:
    """A function that loads a robot (options as in `robodyn.load_urdf`) or takes a model, runs `assert_sound` (whose
    options it takes, too), and returns the model."""

    def check(
        source: Any,
        *,
        engine: str = "auto",
        dtype: str = "float64",
        states: int = 3,
        seed: int = 0,
        **options: Any,
    ) -> Model:
        if isinstance(source, Model) and options:
            raise ArgumentError(f"{next(iter(options))}: an option of load_urdf, and a model is loaded already")
        model = source if isinstance(source, Model) else load_urdf(source, **options)
        assert_sound(model, engine=engine, dtype=dtype, states=states, seed=seed)
        return model

    return check
