"""pytest's fixtures: `pytest_plugins = ["robodyn.testing.fixtures"]` in a conftest.py, then

def test_my_robot(assert_robot):
    assert_robot("my_robot.urdf", base="floating")
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from robodyn.builders.load import load_urdf
from robodyn.model import Model
from robodyn.testing.asserts import assert_sound


@pytest.fixture  # type: ignore[untyped-decorator]
def assert_robot() -> Callable[..., Model]:
    """A function that loads a robot (options as of `robodyn.load_urdf`), or takes a model, holds everything that can be
    held (`assert_sound`), and returns the model."""

    def check(source: Any, **options: Any) -> Model:
        model = source if isinstance(source, Model) else load_urdf(source, **options)
        assert_sound(model)
        return model

    return check
