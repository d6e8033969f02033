"""Steps as built-in functions give the numbers of the methods, and refuse what those refuse."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from dataclasses import replace

import numpy as np
import pytest
from driven import EVERY_INTEGRATOR
from robots import own

import robodyn as rd
from robodyn.api.motion.fast_steps import _ARRAYS
from robodyn.api.queries.contacts import OF_CONTACTS
from robodyn.engines.cpu import engine as engines
from robodyn.joints import KINDS

METHODS = {"step": rd.Dynamics.step, "step_gradient": rd.Dynamics.step_gradient}
ROBOTS = {
    "arm": lambda: rd.load_urdf(own("arm7")),
    "floating": lambda: rd.random_tree(3, seed=1, base="floating", joints=("revolute",)),
    "ball joints": lambda: rd.load_urdf(own("ball_joint_arm")),
    "mimic": lambda: rd.load_urdf(own("hand")),
    "every kind": lambda: rd.random_tree(8, seed=3, joints=tuple(kind.name for kind in KINDS), armature=True),
    "loop": lambda: rd.load_urdf(own("loops/four_bar")),
}
TOLERANCE = {"float64": 1e-12, "float32": 2e-4}
"""Programs that begin at arguments may add in another order than those of rollouts."""


def arguments(model, rng, shape, names):
    """Arrays by name for states of a shape."""
    sizes = {"q_des": (model.nq,), "f_ext": (model.n_bodies, 6), "V0": (6,), "dV0": (6,), "gravity": (3,)}
    found = {
        name: rng.uniform(0.1, 1.0, (*shape, *sizes.get(name, (model.nv,)))) for name in names if name != "inertia"
    }
    if "q_des" in found:
        found["q_des"] = model.random_configuration(rng, shape)
    if "inertia" in names:
        found["inertia"] = np.broadcast_to(model.inertia, (*shape, *model.inertia.shape)) * 1.1
    return found


def states(model, rng, shape, dtype):
    q = model.random_configuration(rng, shape)
    if model.n_constraints:
        q = np.broadcast_to(model.assemble(model.neutral() + 0.1), (*shape, model.nq))
    q = np.ascontiguousarray(q * 1.0)
    for start in model.quaternion_starts.tolist():  # of any length but zero
        q[..., start : start + 4] *= 1.7
    return q.astype(dtype), rng.standard_normal((*shape, model.nv)).astype(dtype)


def close(found, wanted, dtype):
    for one, other in zip(found, wanted, strict=True):
        assert one.shape == other.shape and one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=0, atol=TOLERANCE[dtype] * max(1.0, np.abs(other).max()))


def is_known(dyn, name):
    """Whether the built-in function has answers."""
    return bool(dyn.__dict__["_quick_queries"][name].entry.forms.answers)


def asked(dyn, name, *args, **kwargs):
    """The built-in function's answer once it knows the call, and the method's."""
    for _ in range(3):
        found = getattr(dyn, name)(*args, **kwargs)
    return found, METHODS[name](dyn, *args, **kwargs)


@pytest.mark.some(of=10, rest="matrix")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("integrator", EVERY_INTEGRATOR)
@pytest.mark.parametrize("robot", ROBOTS)
@pytest.mark.parametrize("name", METHODS)
def test_every_robot_and_integrator(name, robot, integrator, dtype):
    dyn = rd.Dynamics(ROBOTS[robot](), dtype=dtype, check=None)
    if dyn.model.n_constraints and (name == "step_gradient" or integrator == "implicit"):
        pytest.skip("not for constraints")
    rng = np.random.default_rng(1)
    for shape in ((), (1,), (3,), (20,)):
        q, qd = states(dyn.model, rng, shape, dtype)
        tau = rng.standard_normal((*shape, dyn.model.nv)).astype(dtype)
        found, wanted = asked(dyn, name, q, qd, tau, 2e-3, integrator=integrator)
        close(found, wanted, dtype)
    assert is_known(dyn, name)


GIVEN = [
    (),
    ("tau", "f_ext"),
    ("tau", "gravity"),
    ("gravity", "dV0"),
    ("tau", "V0", "dV0"),
    ("tau", "armature", "damping", "friction"),
    ("kp", "q_des"),
    ("tau", "kp", "kd", "q_des", "f_ext"),
    ("tau", "inertia"),
]


@pytest.mark.some(of=9, rest="matrix")
@pytest.mark.parametrize("given", GIVEN, ids="+".join)
@pytest.mark.parametrize("robot", ["arm", "floating", "mimic"])
@pytest.mark.parametrize("name", METHODS)
def test_every_argument(name, robot, given):
    dyn = rd.Dynamics(ROBOTS[robot]())
    rng = np.random.default_rng(2)
    for shape in ((), (5,)):
        q, qd = states(dyn.model, rng, shape, "float64")
        others = arguments(dyn.model, rng, shape, given)
        for dt in ({}, {"dt": 5e-3}):
            found, wanted = asked(dyn, name, q, qd, **others, **dt)
            close(found, wanted, "float64")
    assert is_known(dyn, name)


@pytest.mark.parametrize("limits", [("effort",), ["velocity", "effort"], ("position",), ()])
def test_limits(limits):
    dyn = rd.Dynamics(ROBOTS["arm"]())
    rng = np.random.default_rng(3)
    q, qd = states(dyn.model, rng, (), "float64")
    found, wanted = asked(dyn, "step", q, 30.0 * qd, 1e3 * qd, limits=limits)
    close(found, wanted, "float64")
    assert is_known(dyn, "step")


def test_constraints_at_their_places():
    """Feet that are given places, and constraints that come and go."""
    model = ROBOTS["loop"]()
    dyn = rd.Dynamics(model)
    q, qd = states(model, np.random.default_rng(0), (), "float64")
    for active in (True, np.array([1.0]), np.array([False])):
        found, wanted = asked(dyn, "step", q, 0.0 * qd, active=active)
        close(found, wanted, "float64")


def test_out_is_filled():
    dyn = rd.Dynamics(ROBOTS["floating"]())
    rng = np.random.default_rng(4)
    for shape in ((), (7,)):
        q, qd = states(dyn.model, rng, shape, "float64")
        out = np.full((*shape, dyn.model.nq), np.nan), np.full((*shape, dyn.model.nv), np.nan)
        wanted = METHODS["step"](dyn, q, qd)
        for _ in range(3):
            found = dyn.step(q, qd, out=out)
            assert found[0] is out[0] and found[1] is out[1]
            close(found, wanted, "float64")
        # A result in the place of an argument.
        again = dyn.step(q, qd, out=(q, qd))
        assert again[0] is q
        close((q, qd), wanted, "float64")


def test_a_step_goes_on_from_the_last_one():
    """Quaternions of a step's own results stay as they are: steps are a rollout's but for roundings."""
    dyn = rd.Dynamics(ROBOTS["floating"]())
    q, qd = dyn.model.random_configuration(0), np.linspace(-1.0, 1.0, dyn.model.nv)
    run = dyn.rollout(q, qd, dt=1e-3, steps=50)
    state = run.q[0], qd
    for k in range(50):
        state = dyn.step(*state)
        close(state, (run.q[k + 1], run.qd[k + 1]), "float64")
    assert is_known(dyn, "step")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_what_is_refused_stays_refused(dtype):
    dyn = rd.Dynamics(ROBOTS["floating"](), dtype=dtype)
    model = dyn.model
    q, qd = (each.astype(dtype) for each in (model.neutral(), np.zeros(model.nv)))
    good = np.ones(model.nv, dtype)
    for _ in range(3):
        dyn.step(q, qd, good, 1e-3)
        dyn.step(q, qd, good, 1e-3, damping=good)
    for dt in (0.0, -1e-3, np.inf, np.nan, 1e-3j, "1", None):
        with pytest.raises(rd.ArgumentError, match="dt"):
            dyn.step(q, qd, good, dt)
    for bad in (-good, np.where(np.arange(model.nv) == 3, np.nan, good), np.full(model.nv, np.inf)):
        with pytest.raises((rd.ArgumentError, rd.NumericalError), match="damping"):
            dyn.step(q, qd, good, 1e-3, damping=bad.astype(dtype))
        with pytest.raises((rd.ArgumentError, rd.NumericalError), match="damping"):
            dyn.step(np.tile(q, (3, 1)), np.tile(qd, (3, 1)), good, 1e-3, damping=bad.astype(dtype))
    with pytest.raises(rd.NumericalError, match="tau"):
        dyn.step(q, qd, np.full(model.nv, np.nan, dtype), 1e-3)
    with pytest.raises(rd.ArgumentError, match="zero length"):
        dyn.step(np.zeros(model.nq, dtype), qd, good, 1e-3)
    with pytest.raises(rd.ArgumentError, match="integrator"):
        dyn.step(q, qd, good, 1e-3, integrator="no such")
    with pytest.raises(rd.ArgumentError, match="kp"):
        dyn.step(q, qd, good, 1e-3, q_des=q)


def test_steps_too_long_for_damping_warn_each_time():
    dyn = rd.Dynamics(rd.load_urdf(own("arm7")))
    q, qd = dyn.model.neutral(), np.ones(dyn.model.nv)
    for _ in range(4):
        with pytest.warns(RuntimeWarning, match="unstable"):
            dyn.step(q, qd, None, 1.0, integrator="euler", damping=np.full(dyn.model.nv, 1e3))


def without_method(monkeypatch, dyn, name):
    """Let the method behind a built-in function fail."""
    monkeypatch.setattr(dyn.__dict__["_quick_queries"][name], "__wrapped__", None)


@pytest.mark.parametrize(("name", "integrator"), [("step", "midpoint"), ("step_gradient", "euler")])
@pytest.mark.parametrize("robot", ["arm", "floating", "mimic"])
@pytest.mark.some(of=3, rest="matrix")
def test_explicit_steps_short_enough_for_damping(monkeypatch, name, robot, integrator):
    model = ROBOTS[robot]()
    model = replace(model, tree_damping=np.full(model.nv_tree, 1e-3))
    rng = np.random.default_rng(5)
    little = np.full(model.nv, 2e-3)
    for dyn in (rd.Dynamics(model, joint_forces=("damping",)), rd.Dynamics(model, joint_forces=())):
        given = {} if dyn.joint_forces else {"damping": little, "limits": ["effort"]}
        for shape in ((), (1,), (20,)):
            q, qd = states(model, rng, shape, "float64")
            found, wanted = asked(dyn, name, q, qd, qd, 1e-4, integrator=integrator, **given)
            close(found, wanted, "float64")
            out = tuple(np.full_like(each, np.nan) for each in wanted)
            with monkeypatch.context() as patch:
                without_method(patch, dyn, name)
                again = getattr(dyn, name)(q, qd, qd, 1e-4, integrator=integrator, **given)
                filled = getattr(dyn, name)(q, qd, qd, 1e-4, integrator=integrator, out=out, **given)
            close(again, wanted, "float64")
            assert all(one is other for one, other in zip(filled, out, strict=True))
            close(out, wanted, "float64")
    call = {"integrator": integrator, **given}
    with pytest.warns(RuntimeWarning, match="unstable"):
        METHODS[name](dyn, q, qd, qd, 1e4, **call)
    with pytest.warns(RuntimeWarning, match="unstable"):
        getattr(dyn, name)(q, qd, qd, 1e4, **call)
    for wrong in ({"damping": -little}, {"damping": little[1:]}, {"no_such": 1}):
        with pytest.raises((rd.ArgumentError, TypeError), match=next(iter(wrong))):
            getattr(dyn, name)(q, qd, qd, 1e-4, **{**call, **wrong})
    with pytest.raises(TypeError, match="tau"):
        getattr(dyn, name)(q, qd, qd, 1e-4, tau=qd, **call)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.some(of=2, rest="matrix")
def test_feet_stay_where_they_are(monkeypatch, dtype):
    model = rd.load_urdf(own("quadruped"), base="floating")
    feet = (rd.Point(model.link_names[-1]), rd.Weld(model.link_names[4]))
    dyn = rd.Dynamics(replace(model, constraints=feet), dtype=dtype, joint_forces=())
    rng = np.random.default_rng(6)
    for shape in ((), (3,)):
        for _ in range(2):  # other feet at each call
            q, qd = states(model, rng, shape, dtype)
            found, wanted = asked(dyn, "step", q, 0.0 * qd, dt=1e-4)
            close(found, wanted, dtype)
            with monkeypatch.context() as patch:
                without_method(patch, dyn, "step")
                close(dyn.step(q, 0.0 * qd, dt=1e-4), wanted, dtype)
    assert dyn.step(q, 0.0 * qd, dt=1e-4)[0].shape == q.shape


def test_inertias_that_leave_no_mass():
    dyn = rd.Dynamics(rd.load_urdf(own("arm6")))
    q, qd = dyn.model.neutral(), np.zeros(dyn.model.nv)
    close(*asked(dyn, "step", q, qd, inertia=dyn.model.inertia), "float64")
    with pytest.raises(rd.SingularError):
        dyn.step(q, qd, inertia=0.0 * dyn.model.inertia)
    close(*asked(dyn, "step", q, qd, inertia=2.0 * dyn.model.inertia), "float64")


def test_changes_of_the_dynamics_are_seen():
    dyn = rd.Dynamics(rd.load_urdf(own("arm7")))
    q, qd = dyn.model.neutral(), np.ones(dyn.model.nv)
    asked(dyn, "step", q, qd)
    dyn.joint_forces = ("damping",)
    found, wanted = asked(dyn, "step", q, qd)
    close(found, wanted, "float64")


def test_every_array_of_the_methods_has_a_place():
    for name, method in METHODS.items():
        others = {"return", "integrator", "limits", "out", *OF_CONTACTS}  # the last are left to the methods
        assert set(method.__annotations__) - others <= set(_ARRAYS), name


def test_robots_that_only_damping_moves_are_looked_at_each_time():
    """Two joints of one axis with nothing between them: only forces that a step takes implicitly tell them apart."""
    model = rd.load_urdf(own("massless_chain"))
    if rd.Dynamics(model).singularity() is None:
        tree_inertia = model.inertia.copy()
        tree_inertia[-1] = 0.0
        model = replace(model, inertia=tree_inertia)
    dyn = rd.Dynamics(model)
    assert dyn.singularity() is not None
    q, qd = model.neutral(), np.zeros(model.nv)
    for _ in range(4):
        dyn.step(q, qd, damping=np.ones(model.nv))
        dyn.rollout(q, qd, steps=3, damping=np.ones(model.nv))
    with pytest.raises(rd.SingularError):
        dyn.step(q, qd, damping=np.zeros(model.nv))
    with pytest.raises(rd.SingularError):
        dyn.rollout(q, qd, steps=3, damping=np.zeros(model.nv))


def test_limits_that_are_no_plain_words():
    dyn = rd.Dynamics(ROBOTS["arm"]())
    q, qd = dyn.model.neutral(), np.ones(dyn.model.nv)
    for _ in range(3):
        close(*asked(dyn, "step", q, qd, limits=(np.str_("effort"),)), "float64")
    for k in range(20):
        with pytest.raises(rd.ArgumentError, match="limits"):
            dyn.step(q, qd, limits=(f"no such {k}",))
    close(*asked(dyn, "step", q, qd, limits=("effort", "position")), "float64")


def test_methods_that_are_held_and_replaced():
    dyn = rd.Dynamics(ROBOTS["arm"]())
    q, qd = dyn.model.neutral(), np.ones(dyn.model.nv)
    step = dyn.step
    wanted = [step(q, qd) for _ in range(4)][-1]
    dyn.engine = rd.Dynamics(dyn.model, engine="reference").engine
    for _ in range(4):
        close(step(q, qd), wanted, "float64")
    dyn.step = lambda *_: "mine"
    dyn.check = True
    assert dyn.step(q, qd) == "mine"


def test_threads_share_a_new_dynamics():
    script = """
        import threading, numpy as np, robodyn as rd, sys
        model = rd.load_urdf(sys.argv[1])
        for _ in range(3):
            dyn, z = rd.Dynamics(model), np.zeros(model.nv)
            work = lambda: [dyn.rollout(z, z, steps=300) for _ in range(3)] + [dyn.step(z, z) for _ in range(5)]
            threads = [threading.Thread(target=work) for _ in range(4)]
            [each.start() for each in threads], [each.join() for each in threads]
        print("done")
    """
    command = [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(script), str(own("double_pendulum"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "done\n", done.stderr


@pytest.mark.parametrize("most", [0, 1 << 14, 1 << 30])
def test_kernels_take_no_more_scratch_memory_than_allowed(monkeypatch, most):
    made = []

    def recorded(*args, **kwargs):
        made.append(args[3:5])
        return answers(*args, **kwargs)

    answers = engines.Answers
    monkeypatch.setattr(engines, "MAX_SCRATCH", most)
    monkeypatch.setattr(engines, "Answers", recorded)
    dyn = rd.Dynamics(ROBOTS["arm"](), joint_forces=(), threads=2)
    rng = np.random.default_rng(8)
    for shape in ((), (20,)):
        q, qd = states(dyn.model, rng, shape, "float64")
        close(*asked(dyn, "step_gradient", q, qd), "float64")
    assert any(batches is not None for batches, _ in made) and any(single is not None for _, single in made)
    assert all(each.workspace * 2 <= most for pair in made for each in pair if each is not None)
