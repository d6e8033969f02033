"""Tests for your own models: identities of mechanics, and comparisons with Pinocchio and MuJoCo if installed.

    from robodyn.tools.testing import assert_sound

    def test_my_robot():
        assert_sound(rd.load_urdf("my_robot.urdf"))

Each function draws states from a seed and tests a `Dynamics` of the model with the engine and dtype of your choice. An
AssertionError lists every quantity with too large an error, the error, and the tolerance. `robodyn.testing.fixtures`
has a fixture for pytest.
"""

from __future__ import annotations

from robodyn.tools.testing.asserts import assert_identities, assert_like_mujoco, assert_like_pinocchio, assert_sound
from robodyn.tools.testing.mujoco_models import mujoco_model
from robodyn.tools.testing.pinocchio_models import pinocchio_model

__all__ = [
    "assert_identities",
    "assert_like_mujoco",
    "assert_like_pinocchio",
    "assert_sound",
    "mujoco_model",
    "pinocchio_model",
]
