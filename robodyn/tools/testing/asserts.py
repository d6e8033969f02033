"""What a test of a model calls."""

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
    """Hold the identities of mechanics: H qdd + bias = tau, energies and their rates, gradients, momentum and others.

    Args:
        model: the robot.
        engine, dtype: as in `robodyn.Dynamics`. Identities with derivatives are held in float64 alone.
        states: how many random ones.
        seed: they are drawn from.

    Raises:
        AssertionError: names each identity that does not hold, its error and what is allowed.
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
        pin_model: Pinocchio's model of it, made by its own reader without mimics: that compares the readers, too.
            Joints and links are found by name. None for one that is made of `model` (`pinocchio_model`).
        engine, dtype, states, seed: as in `assert_identities`.

    Raises:
        AssertionError: names each quantity that differs.
        ArgumentError: no model, other joints or links than `model` has, or another wrong argument.
        UnavailableError: Pinocchio is not installed, or has no such model (`pinocchio_model`).
    """
    dyn = _dynamics(model, engine, dtype)
    answers = PinocchioAnswers(model, pinocchio_model(model) if pin_model is None else pin_model)
    require(model, "Pinocchio", answers.compare(dyn, draw(dyn, states, seed)))


def assert_like_mujoco(
    model: Model, *, engine: str = "auto", dtype: str = "float64", states: int = 3, seed: int = 0
) -> None:
    """Compare with MuJoCo, by a model that is made of ours: forces, mass matrix, energies, poses, Jacobians.

    Args:
        model, engine, dtype, states, seed: as in `assert_identities`.

    Raises:
        AssertionError: names each quantity that differs.
        ArgumentError: no model, or another wrong argument.
        UnavailableError: MuJoCo is not installed, or has no such model (`mujoco_model`).
    """
    dyn = _dynamics(model, engine, dtype)
    answers = MujocoAnswers(model, mujoco_model(model))
    require(model, "MuJoCo", answers.compare(dyn, draw(dyn, states, seed)))


def assert_sound(
    model: Model, *, engine: str = "auto", dtype: str = "float64", states: int = 3, seed: int = 0
) -> list[str]:
    """Everything that can be held here: identities, and what Pinocchio and MuJoCo say where they are installed and take
    the robot.

    Returns what was asked: "identities", "pinocchio", "mujoco".

    Raises:
        AssertionError: from the first of them that finds something.
        ArgumentError: no model, or another wrong argument.
    """
    options: dict[str, Any] = {"engine": engine, "dtype": dtype, "states": states, "seed": seed}
    assert_identities(model, **options)
    asked = ["identities"]
    for name, check in (("pinocchio", assert_like_pinocchio), ("mujoco", assert_like_mujoco)):
        with suppress(UnavailableError):  # it is not installed, or has no such model
            check(model, **options)
            asked.append(name)
    return asked


def _dynamics(model: Any, engine: Any, dtype: str) -> Dynamics:
    if not strict_types.is_a(model, Model):
        raise ArgumentError(f"model: got {brief(model)}; wanted a robodyn.Model")
    return Dynamics(model, engine=engine, dtype=dtype)
