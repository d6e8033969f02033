"""Our answers against MuJoCo's, which shares no code, conventions or file reader with Pinocchio.

Fixed and floating bases; mimics ignored. `pytest -m matrix` does the same for every robot of the shared collection.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import pytest
import robots

pytest.importorskip("mujoco", reason="MuJoCo is not installed")

from oracles.cases import Case, make_case
from oracles.mujoco_oracle import ASKED, MujocoOracle, Refused, read_urdf
from oracles.quantities import QUANTITIES, Quantity

import robodyn as rd

OWN = ("arm6", "arm7", "double_pendulum", "gripper", "hand", "humanoid", "oblique", "quadruped")
ROBOTS = [("own", name) for name in OWN] + [("shared", name) for name in robots.EVERY_RUN]


@lru_cache(maxsize=1)
def case_of(where: str, name: str, base: str) -> Case:
    path = robots.own(name) if where == "own" else robots.shared(name)
    model = rd.load_urdf(path, base=base, mimic="ignore")
    return make_case(model, MujocoOracle(read_urdf(path, base == "floating"), model), every_link=False, seed=1)


@pytest.mark.parametrize(
    "quantity", [quantity for quantity in QUANTITIES if quantity.name in ASKED], ids=lambda quantity: quantity.name
)
@pytest.mark.parametrize("base", ["fixed", "floating"])
@pytest.mark.parametrize(("where", "name"), ROBOTS)
@pytest.mark.some(of=8, rest="matrix")
def test_robot(where: str, name: str, base: str, quantity: Quantity) -> None:
    case = case_of(where, name, base)
    error = case.error(quantity)
    assert error <= quantity.tolerance, f"{quantity.name} of {name}, base {base}: off by {error:.1e}"


def test_every_quantity_asked_exists() -> None:
    assert set(ASKED) <= {quantity.name for quantity in QUANTITIES}


@pytest.mark.parametrize("name", ["massless_tip", "planar_rover", "ball_joint_arm"])
def test_what_mujoco_cannot_judge_is_refused(name: str) -> None:
    with pytest.raises(Refused):
        read_urdf(robots.own(name), floating=False)


# Those of which `test_pinocchio` asks in the same run are others.
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=pytest.mark.matrix if k % 3 == 1 else pytest.mark.nightly)
        for k, path in enumerate(robots.SHARED)
    ],
)
def test_matrix(path: Path) -> None:
    import matrix

    assert matrix.measure_mujoco(path).failures == {}
