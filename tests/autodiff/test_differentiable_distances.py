"""Distances in JAX and PyTorch, to obstacles that are arrays: values, and derivatives by q and by obstacles."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import random_states

import robodyn as rd

pytestmark = pytest.mark.extras

INERTIAL = '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>'
TEXT = f"""<robot name="three"><link name="a">{INERTIAL}</link><link name="b">{INERTIAL}</link><link name="c">{INERTIAL}
</link><joint name="j0" type="continuous"><parent link="a"/><child link="b"/><origin xyz="0 0 0.5"/><axis xyz="0 1 0"/>
</joint><joint name="j1" type="continuous"><parent link="b"/><child link="c"/><origin xyz="0.5 0 0"/><axis xyz="0 0 1"/>
</joint></robot>"""
SHAPES = (
    rd.Box("a", size=(0.2, 0.2, 0.1)),
    rd.Capsule("b", (0.1, 0.0, 0.0), (0.3, 0.0, 0.0), 0.05),
    rd.Sphere("c", (0.1, 0.0, 0.0), 0.07),
    rd.Box("c", (0.3, 0.0, 0.0), (0.2, 0.1, 0.05)),
)
TURN = np.array([[0.36, 0.48, -0.8], [-0.8, 0.6, 0.0], [0.48, 0.64, 0.6]])
LIBRARIES = ["jax", "torch"]


def three(base: str = "fixed") -> rd.Model:
    return rd.load_urdf(TEXT, base=base).with_shapes(SHAPES)


def around(leading: tuple[int, ...] = ()) -> rd.Obstacles:
    rng = np.random.default_rng(5)
    spheres, capsules = rng.uniform(-1.0, 1.0, (*leading, 9, 4)), rng.uniform(-1.0, 1.0, (2, 7))
    spheres[..., 3], capsules[:, 6] = 0.1, 0.05
    poses = np.tile(np.eye(4), (3, 1, 1))
    poses[:, :3, :3], poses[:, :3, 3] = TURN, rng.uniform(-1.0, 1.0, (3, 3))
    return rd.Obstacles(spheres, capsules, (poses, rng.uniform(0.2, 0.4, (3, 3))), ignore=["a"])


class Jax:
    def __init__(self, dyn: rd.Dynamics) -> None:
        jax = pytest.importorskip("jax")
        import robodyn.jax as bridge

        jax.config.update("jax_enable_x64", True)
        self.of, self.array, self._jax = bridge.wrap(dyn), jax.numpy.asarray, jax

    def gradient(self, function, *x):
        return tuple(map(np.asarray, self._jax.jit(self._jax.grad(function, tuple(range(len(x)))))(*x)))

    def rate(self, function, x, v):
        return float(self._jax.jvp(function, x, v)[1])

    def mapped(self, function, *x):
        return np.asarray(self._jax.vmap(function)(*x))


class Torch:
    def __init__(self, dyn: rd.Dynamics) -> None:
        torch = pytest.importorskip("torch")
        import robodyn.torch as bridge

        self.of, self.array, self._torch = bridge.wrap(dyn), torch.tensor, torch

    def gradient(self, function, *x):
        given = [each.clone().requires_grad_() for each in x]
        return tuple(each.numpy() for each in self._torch.autograd.grad(function(*given), given))

    def rate(self, function, x, v):
        return float(self._torch.func.jvp(function, x, v)[1])

    def mapped(self, function, *x):
        return self._torch.func.vmap(function)(*x).numpy()


def library(name: str, dyn: rd.Dynamics):
    return (Jax if name == "jax" else Torch)(dyn)


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize("base", ["fixed", "floating"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_values_are_those_of_dynamics(name, base, dtype):
    model = three(base)
    dyn, q = rd.Dynamics(model, dtype=dtype), random_states(model, (5,))[0].astype(dtype)
    lib, close = library(name, dyn), 1e-13 if dtype == "float64" else 2e-6
    for given in (None, around(), around((5,))):
        x = lib.array(q)
        for query in ("distances", "min_distance", "is_free"):
            found, wanted = np.asarray(getattr(lib.of, query)(x, given)), getattr(dyn, query)(q, given)
            assert found.dtype == wanted.dtype and np.abs(found * 1.0 - wanted).max() <= (
                1e-13 if dtype[-2:] == "64" else 2e-6
            )
    spheres = around((5,)).spheres.astype(dtype)
    each = lib.mapped(lambda q, s: lib.of.min_distance(q, {"spheres": s}), lib.array(q), lib.array(spheres))
    assert np.abs(each - dyn.min_distance(q, rd.Obstacles(spheres))).max() <= close
    spoilt = spheres.copy()
    spoilt[2, 8, 0] = np.nan
    free = np.asarray(lib.of.is_free(lib.array(q), {"spheres": lib.array(spoilt)}, clearance=-9.0))
    assert free.tolist() == [True, True, False, True, True]


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize("query", ["distances", "min_distance"])
def test_derivatives_are_those_of_differences(name, query):
    """By q, by every number of spheres and capsules, edges of boxes, and rigid motions of boxes."""
    model = three("floating")
    lib, given = library(name, rd.Dynamics(model)), around()
    q = lib.array(random_states(model, (4,))[0])
    boxes = tuple(map(lib.array, given.boxes))
    x = (q, lib.array(given.spheres), lib.array(given.capsules), *boxes)
    weights = lib.array(np.linspace(0.5, 1.0, 4)[:, None])

    def cost(q, spheres, capsules, poses, edges):
        obstacles = {"spheres": spheres, "capsules": capsules, "boxes": (poses, edges), "ignore": ["a"]}
        d = getattr(lib.of, query)(q, obstacles)
        return (weights * d).sum() if query == "distances" else (weights[:, 0] * d).sum()

    rng, h = np.random.default_rng(6), 1e-6
    moved = np.zeros((3, 4, 4))
    moved[:, :3, :3], moved[:, :3, 3] = np.cross(rng.normal(size=(3, 1, 3)), np.eye(3)), rng.normal(size=(3, 3))
    lines = [rng.normal(size=each.shape) for each in x[:3]]
    lines += [moved @ given.boxes[0], rng.normal(size=(3, 3))]
    lines[3][:, :3, 3] = moved[:, :3, 3]
    found = lib.gradient(cost, *x)
    for k, line in enumerate(lines):
        ends = []
        for s in (h, -h):
            each = np.asarray(x[k]) + s * line
            ends.append(float(cost(*x[:k], lib.array(each), *x[k + 1 :])))
        wanted = (ends[0] - ends[1]) / (2.0 * h)
        assert abs((found[k] * line).sum() - wanted) < 1e-6 * max(1.0, abs(wanted)), k
    v = tuple(map(lib.array, lines))
    assert abs(lib.rate(cost, x, v) - sum((g * line).sum() for g, line in zip(found, lines, strict=True))) < 1e-11


@pytest.mark.parametrize("name", LIBRARIES)
def test_what_cannot_be_is_refused_by_name(name):
    lib = library(name, rd.Dynamics(three()))
    q = lib.array(np.zeros(2))
    for wrong, match in (
        (3, "obstacles: got 3"),
        ({"sphere": 3}, "got 'sphere' in a dict"),
        ({"spheres": lib.array(np.zeros(4))}, r"spheres: got shape \(4,\)"),
        ({"spheres": "x"}, "spheres: got 'x'"),
        ({"boxes": 3}, "boxes 3"),
        ({"boxes": (lib.array(np.zeros((2, 4, 4))), lib.array(np.zeros((1, 3))))}, "boxes: got shapes"),
        ({"spheres": lib.array(np.zeros((1, 4))), "ignore": ["x"]}, r"ignore\[0\]: got 'x'"),
        ({"spheres": lib.array(np.zeros((1, 4))), "ignore": [["a"]]}, r"ignore\[0\]"),
    ):
        with pytest.raises(rd.ArgumentError, match=match):
            lib.of.min_distance(q, wrong)
    with pytest.raises(rd.ArgumentError, match="has no shapes"):
        library(name, rd.Dynamics(rd.load_urdf(TEXT))).of.is_free(q)
