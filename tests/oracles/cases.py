"""A robot, its oracle and the states they are compared at."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

import robodyn as rd
from oracles import pinocchio_models, urdf_text
from oracles.following import FollowingOracle
from oracles.pinocchio_oracle import PinocchioOracle
from oracles.quantities import Oracle, Quantity, States, quantities_of, random_states

BEYOND_URDF = ("helical", "spherical", "universal")


class NothingMoves(Exception):
    """The robot has no degree of freedom."""


@dataclass(frozen=True)
class Case:
    """Our Dynamics, the oracle of the same model, and states."""

    dyn: rd.Dynamics
    oracle: Oracle
    states: States

    @property
    def model(self) -> rd.Model:
        """The robot."""
        return self.dyn.model

    @cached_property
    def singular(self) -> str:
        """Why we refuse to invert the mass matrix, or nothing."""
        try:
            self.dyn.mass_matrix_inverse(self.states.q[0])
        except rd.SingularError as error:
            return str(error)
        return ""

    @property
    def quantities(self) -> list[Quantity]:
        """What can be compared."""
        return quantities_of(self.model, bool(self.singular))

    def error(self, quantity: Quantity) -> float:
        """Largest relative difference of a quantity."""
        return quantity.error(self.dyn, self.oracle, self.states)

    def failures(self) -> dict[str, tuple[float, float]]:
        """The quantities that differ by more than allowed: error, tolerance."""
        measured = {q.name: (self.error(q), q.allowed(self.oracle, self.states)) for q in self.quantities}
        return {name: pair for name, pair in measured.items() if not pair[0] <= pair[1]}


def make_case(model: rd.Model, oracle: Oracle, every_link: bool, seed: int) -> Case:
    """A case about every link, or about the first, a middle and the last."""
    if model.nv == 0:
        raise NothingMoves(model.name)
    n = len(model.link_names)
    links = range(n) if every_link else sorted({0, n // 2, n - 1})
    dyn = rd.Dynamics(model, engine="reference")
    return Case(dyn, oracle, random_states(oracle, links, seed))


def urdf_case(path: Path, base: str, *, follow: bool = False, every_link: bool = False, seed: int = 0) -> Case:
    """A URDF file against Pinocchio's reading of it; `follow`: mimics are followed, otherwise they are ignored.

    A file with joints that URDF does not have is compared as a description.

    Raises:
        Refused: Pinocchio does not read the file.
        NothingMoves: the robot has no degree of freedom.
    """
    description = rd.read_urdf(path, mimic="ignore", strict=False)
    if any(joint.type in BEYOND_URDF for joint in description.joints):
        return description_case(description, base, every_link=every_link, seed=seed)
    # Some files hold inertias that no body has; Pinocchio computes with them, and so do we here.
    free = rd.load_urdf(path, base=base, mimic="ignore", strict=False)
    oracle = PinocchioOracle(pinocchio_models.read_urdf(path, base == "floating"), free)
    if not follow:
        return make_case(free, oracle, every_link, seed)
    model = rd.load_urdf(path, base=base, mimic="follow", strict=False)
    return make_case(model, FollowingOracle(oracle, model, urdf_text.mimics(path)), every_link, seed)


def description_case(
    description: rd.RobotDescription,
    base: str,
    *,
    gravity: tuple[float, float, float] = (0.0, 0.0, -9.81),
    every_link: bool = False,
    seed: int = 0,
) -> Case:
    """A description against a Pinocchio model made of it joint by joint; mimics are followed."""
    model = rd.build_model(description, base=base, gravity=gravity)
    mimics = pinocchio_models.mimics_of_description(description)
    free = rd.build_model(description, base=base, mimic="ignore", gravity=gravity) if mimics else model
    pin_model = pinocchio_models.from_description(description, base == "floating")
    pin_model.gravity.linear = np.array(gravity)
    oracle = PinocchioOracle(pin_model, free)
    return make_case(model, FollowingOracle(oracle, model, mimics) if mimics else oracle, every_link, seed)
