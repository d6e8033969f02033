"""The assertions that tests of models call."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from robodyn.api.dynamics import Dynamics
from robodyn.core.model import Model
from robodyn.internals import strict_types
from robodyn.internals.errors import ArgumentError, UnavailableError
from robodyn.internals.messages import brief
from robodyn.tools.testing.identities import identities
from robodyn.tools.testing.mujoco_models import MujocoAnswers, mujoco_model
from robodyn.tools.testing.pinocchio_models import PinocchioAnswers, pinocchio_model
from robodyn.tools.testing.states import draw, require


def assert_identities(
    model: Model, *, engine: str = "auto", dtype: str = "float64", states: int = 3, seed: int = 0
) -> None:
    """Assert identities of mechanics: H qdd + bias = tau, energies and their rates, gradients, momentum and others.

    Args:
        model: the robot.
        engine, dtype: as in `robodyn.Dynamics`. Identities with derivatives are tested in float64 only.
        states: number of random states.
        seed: seed of the states.

    Raises:
        AssertionError: names each identity that does not hold, its error and its tolerance.
        ArgumentError: no model, or another wrong argument.
    """
    dyn = _dynamics(model, engine, dtype)
    require(model, "the identities of mechanics", identities(dyn, draw(dyn, states, seed)))


def assert_like_pinocchio(
    model: Model,
    pin_model: Any = None,
    *,
    engine: str = "auto",
    dtype: str = "float64",
    states: int = 3,
    seed: int = 0,
) -> None:
    """Compare with Pinocchio: forces, accelerations, mass matrix, energies, a gradient, poses, Jacobians.

    Args:
        model: the robot.
        pin_model: Pinocchio's model of the robot, from Pinocchio's own parser without mimic joints; this compares the
            parsers, too. Joints and links are matched by name. None to convert `model` (`pinocchio_model`).
        engine, dtype, states, seed: as in `assert_identities`.

    Raises:
        AssertionError: names each quantity that differs.
        ArgumentError: no model, other joints or links than `model` has, or another wrong argument.
        UnavailableError: Pinocchio is not installed, or cannot represent the model (`pinocchio_model`).
    """
    dyn = _dynamics(model, engine, dtype)
    answers = PinocchioAnswers(model, pinocchio_model(model) if pin_model is None else pin_model)
    require(model, "Pinocchio", answers.compare(dyn, draw(dyn, states, seed)))


def assert_like_mujoco(
    model: Model, *, engine: str = "auto", dtype: str = "float64", states: int = 3, seed: int = 0
) -> None:
    """Compare with MuJoCo, by converting the model: forces, mass matrix, energies, poses, Jacobians.

    Args:
        model, engine, dtype, states, seed: as in `assert_identities`.

    Raises:
        AssertionError: names each quantity that differs.
        ArgumentError: no model, or another wrong argument.
        UnavailableError: MuJoCo is not installed, or cannot represent the model (`mujoco_model`).
    """
    dyn = _dynamics(model, engine, dtype)
    answers = MujocoAnswers(model, mujoco_model(model))
    require(model, "MuJoCo", answers.compare(dyn, draw(dyn, states, seed)))


def assert_sound(
    model: Model, *, engine: str = "auto", dtype: str = "float64", states: int = 3, seed: int = 0
) -> list[str]:
    """Run all tests that are possible here: identities, and comparisons with Pinocchio and MuJoCo if they are installed
    and can represent the robot.

    Returns the names of the tests that ran: "identities", "pinocchio", "mujoco".

    Raises:
        AssertionError: from the first test that fails.
        ArgumentError: no model, or another wrong argument.
    """
    options: dict[str, Any] = {"engine": engine, "dtype": dtype, "states": states, "seed": seed}
    assert_identities(model, **options)
    performed = ["identities"]
    for name, check in (("pinocchio", assert_like_pinocchio), ("mujoco", assert_like_mujoco)):
        with suppress(UnavailableError):  # not installed, or it cannot represent the model
            check(model, **options)
            performed.append(name)
    return performed


def _dynamics(model: Any, engine: Any, dtype: str) -> Dynamics:
    if not strict_types.is_a(model, Model):
        raise ArgumentError(f"model: got {brief(model)}; wanted a robodyn.Model")
    return Dynamics(model, engine=engine, dtype=dtype)
