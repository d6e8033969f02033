"""Functions of models that are compiled when they are asked for again: nobody should notice but the clock."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from robots import own

import robodyn as rd
from robodyn.api.queries.model_functions import engine_of
from robodyn.engines.cpu.native.layout import layout_is_known

compiled = pytest.mark.skipif(not layout_is_known(), reason="no built-in entries on this Python and NumPy")
KINDS = ("revolute", "prismatic", "continuous", "helical", "planar", "spherical")


@pytest.fixture(params=range(6))
def model(request):
    print(f"seed {request.param}")
    return rd.random_tree(
        6, seed=request.param, joints=KINDS, mimic=0.2, base="floating" if request.param % 2 else "fixed"
    )


def quick(model, name):
    """The function of a model once it is compiled."""
    q, qd = model.neutral(), np.zeros(model.nv)
    for _ in range(12):
        model.integrate(q, qd)
        model.difference(q, q)
        if model.n_bodies:
            rd.external_force(model, q, model.link_names[-1], np.zeros(6))
    return getattr(model, name)


@compiled
@pytest.mark.parametrize("rows", [None, 1, 7])
def test_they_agree_with_numpys(model, rows):
    rng = np.random.default_rng(1)
    lead = () if rows is None else (rows,)
    q, q1 = model.random_configuration(rng, lead), model.random_configuration(rng, lead)
    qd = rng.uniform(-3, 3, (*lead, model.nv))
    integrate, difference = quick(model, "integrate"), quick(model, "difference")
    assert "built-in" in repr(integrate) and "built-in" in repr(difference)
    for dt in ((), (0.3,), (1,), (np.float64(0.3),), (np.float32(0.5),), (np.full(lead, 0.7),)):
        for _ in range(2):
            got, wanted = integrate(q, qd, *dt), rd.Model.integrate(model, q, qd, *dt)
            assert got.shape == wanted.shape and np.abs(got - wanted).max(initial=0.0) < 1e-13
    for a, b in ((q, q1), (q1, q), (q, q), (q.tolist(), tuple(q1.tolist())), (q.astype(np.float32), q1)):
        got, wanted = difference(a, b), rd.Model.difference(model, a, b)
        assert got.shape == wanted.shape and np.abs(got - wanted).max(initial=0.0) < 1e-13
    assert np.abs(difference(q, integrate(q, 0.3 * qd)) - 0.3 * qd).max(initial=0.0) < 1e-12
    assert integrate(q=q, qd=qd, dt=0.5).shape == q.shape


@compiled
@pytest.mark.parametrize("rows", [None, 1, 7])
@pytest.mark.some(of=3, rest="matrix")
def test_gradients_and_unit_quaternions_agree_with_numpys(model, rows):
    rng = np.random.default_rng(1)
    lead = () if rows is None else (rows,)
    q, q1 = model.random_configuration(rng, lead), model.random_configuration(rng, lead)
    qd, dt = rng.uniform(-3, 3, (*lead, model.nv)), rng.uniform(0.1, 1.0, lead)
    calls = {
        "normalize": ((2.5 * q,), (q.tolist(),)),
        "integrate_gradient": ((q, qd), (q, qd, 0.3), (q, qd, dt)),
        "difference_gradient": ((q, q1), (q1, q), (q, q)),
    }
    for name, given in calls.items():
        for arguments in given:
            wanted = getattr(rd.Model, name)(model, *arguments)
            for _ in range(12):
                got = getattr(model, name)(*arguments)
            for a, b in zip(*((got, wanted) if isinstance(wanted, tuple) else ((got,), (wanted,))), strict=True):
                assert a.shape == b.shape and np.abs(a - b).max(initial=0.0) < 1e-12 and not np.shares_memory(a, q)
        assert "built-in" in repr(getattr(model, name))
    with pytest.warns(DeprecationWarning, match="now called Model.normalize"):
        assert np.array_equal(model.normalized(q), model.normalize(q))


@compiled
def test_half_turns_and_whole_ones():
    model = rd.random_tree(2, seed=1, joints=("spherical", "planar"))
    difference = quick(model, "difference")
    rng = np.random.default_rng(0)
    for turn in (0.0, 1e-9, 1e-4, 0.5, np.pi - 1e-9, np.pi, -np.pi, 3 * np.pi, 1.5 * np.pi, 100.0):
        q0 = model.random_configuration(rng)
        q1 = model.integrate(q0, rng.standard_normal(model.nv) * turn)
        assert np.abs(difference(q0, q1) - rd.Model.difference(model, q0, q1)).max() < 1e-9
    flat = rd.random_tree(1, seed=0, joints=("planar",))
    apart = quick(flat, "difference")
    for turn in (1e12, -1e17, 1e20, 1e25):
        assert abs(apart(np.zeros(3), np.array([0.0, 0.0, turn]))[2]) <= np.pi + 1e-15
    for turn in (np.pi, -np.pi, 3 * np.pi, -3 * np.pi, 0.5, -0.5, 2 * np.pi):
        wanted = turn - 2 * np.pi * np.ceil(turn / (2 * np.pi) - 0.5)
        assert np.isclose(apart(np.zeros(3), np.array([0.0, 0.0, turn]))[2], wanted, atol=1e-15)


@compiled
def test_errors_and_odd_numbers_are_those_of_numpys():
    model = rd.load_urdf(own("arm6"), base="floating")
    integrate, difference = quick(model, "integrate"), quick(model, "difference")
    q, qd = model.neutral(), np.zeros(model.nv)
    nothing = q.copy()
    nothing[3:7] = 0.0
    for call in (lambda: integrate(nothing, qd), lambda: difference(q, nothing), lambda: difference(nothing, q)):
        with pytest.raises(rd.ArgumentError, match="has zero length"):
            call()
    bad = qd.copy()
    bad[-1] = np.nan
    assert np.array_equal(integrate(q, bad), rd.Model.integrate(model, q, bad), equal_nan=True)
    assert np.isinf(integrate(q, 1e308 * np.ones(model.nv), 1e10)).any()
    odd = ((2**70,), (10**400,), (np.zeros(1, "m8")[0],), (np.timedelta64(3, "s"),), (True,), ("dt",), (None,))
    for given in ((q, qd[:-1]), (q, "qd"), (q[:-1], qd), *((q, qd, *dt) for dt in odd)):
        with pytest.raises(rd.ArgumentError):
            integrate(*given)
    with pytest.raises(TypeError):
        integrate(q)
    with pytest.raises(TypeError):
        integrate(q, qd, 1.0, 2.0)


@compiled
def test_what_was_looked_up_early_becomes_quick_and_is_pickled():
    model = rd.load_urdf(own("arm6"))
    early = model.integrate
    assert early.__doc__ == rd.Model.integrate.__doc__ and "built-in" not in repr(early)
    q, qd = np.zeros(6), np.ones(6)
    for _ in range(12):
        assert np.allclose(early(q, qd), 1.0)
    assert "built-in" in repr(model.integrate)
    for function in (early, model.integrate):
        assert np.allclose(pickle.loads(pickle.dumps(function))(q, qd), 1.0)
    assert pickle.loads(pickle.dumps(model)) == model and engine_of(model) is engine_of(model)


@compiled
@pytest.mark.parametrize("frame", ["world", "body", "world_aligned"])
@pytest.mark.some(of=3, rest="matrix")
def test_external_forces(model, frame):
    rng = np.random.default_rng(2)
    q, wrench = model.random_configuration(rng), rng.uniform(-1, 1, 6)
    quick(model, "integrate")
    for _ in range(10):
        rd.external_force(model, q, 0, wrench, frame=frame)
    for number, name in enumerate(model.link_names):
        T = rd.Dynamics(model, engine="reference").link_pose(q, number)
        R, p = T[:3, :3], T[:3, 3]
        moment, force = (R @ wrench[:3], R @ wrench[3:]) if frame == "body" else (wrench[:3], wrench[3:])
        if frame != "world":
            moment = moment + np.cross(p, force)
        wanted = np.zeros((model.n_bodies, 6))
        if model.link_body[number] >= 0:
            wanted[model.link_body[number]] = [*moment, *force]
        for link in (name, number, name, number, name, number):
            got = rd.external_force(model, q, link, wrench, frame=frame)
            np.testing.assert_allclose(got, wanted, atol=1e-12)
    several = rd.external_force(model, np.stack([q, q]), 0, wrench, frame=frame)
    np.testing.assert_allclose(several[1], rd.external_force(model, q, 0, wrench, frame=frame), atol=1e-12)
    number, points = len(model.link_names) - 1, rng.uniform(-1, 1, (2, 3))
    T = rd.Dynamics(model, engine="reference").link_pose(q, number)
    for point in (points[0], points, points[0], points[1], points):
        if frame == "world":
            with pytest.raises(rd.ArgumentError, match=r"^point: given with frame=\"world\""):
                rd.external_force(model, q, number, wrench, point=point, frame=frame)
            continue
        # A wrench at the point is that at the origin with the force's moment about the origin.
        lever = point if frame == "body" else point @ T[:3, :3].T
        shifted = np.concatenate(
            [wrench[:3] + np.cross(lever, wrench[3:]), np.broadcast_to(wrench[3:], lever.shape)], -1
        )
        got = rd.external_force(model, q, number, wrench, point=point, frame=frame)
        np.testing.assert_allclose(got, rd.external_force(model, q, number, shifted, frame=frame), atol=1e-12)
    for link in (True, "none", 10**6, None):
        with pytest.raises(rd.ArgumentError, match=r"^link: got"):
            rd.external_force(model, q, link, wrench, frame=frame)
    with pytest.raises(rd.ArgumentError, match=r"^frame: got"):
        rd.external_force(model, q, 0, wrench, frame="there")


def test_single_draws_are_those_of_batches(model):
    for seed in range(3):
        one = model.random_configuration(np.random.default_rng(seed))
        assert (model.random_configuration(np.random.default_rng(seed), 1)[0] == one).all()
        assert (model.random_configuration(seed) == one).all()
    drawn = np.stack([model.random_configuration() for _ in range(3000 // model.nq + 3)])
    assert np.unique(drawn, axis=0).shape == drawn.shape
    assert np.allclose(model.unit_coordinates(drawn), drawn, atol=1e-15)


def test_draws_do_not_overlap(model):
    drawn = [model.random_configuration() for _ in range(40)]
    kept = [q.copy() for q in drawn]
    for k, q in enumerate(drawn):
        q[...] = np.nan
        assert all((drawn[j] == kept[j]).all() for j in range(k + 1, len(drawn))), k
    assert np.isfinite(model.random_configuration()).all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
def test_a_fork_draws_others():
    program = """
import os, sys
import robodyn as rd
models = [rd.load_urdf(sys.argv[1]) for _ in range(3)]
for model in models:
    model.random_configuration()
del models[0], model
read, write = os.pipe()
if not os.fork():
    for model in models:
        os.write(write, model.random_configuration().tobytes())
    os._exit(0)
os.wait()
for model in models:
    assert os.read(read, 8 * model.nq) != model.random_configuration().tobytes()
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(own("arm6"))], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_models_alone_compile_nothing():
    """Who loads a robot for one answer waits for no compiler."""
    program = """
import sys
import robodyn as rd
model = rd.load_urdf(sys.argv[1])
model.difference(model.neutral(), model.integrate(model.neutral(), model.random_configuration(0)))
print("llvmlite" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(own("arm6"))], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("False\n", "")
