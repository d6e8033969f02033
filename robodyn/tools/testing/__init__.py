"""Tests for your own models: identities of mechanics, and what Pinocchio and MuJoCo say where they are installed.

    from robodyn.tools.testing import assert_sound

    def test_my_robot():
        assert_sound(rd.load_urdf("my_robot.urdf"))

Each function draws states from a seed, asks a `Dynamics` of the model (engine and dtype of your choice), and raises an
AssertionError that lists every quantity that is off, by how much, and what is allowed. A fixture for pytest stands in
`robodyn.testing.fixtures`.
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
