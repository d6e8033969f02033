"""Environments of Gymnasium: its own checks, each robot by itself beside all in one call, and what a step is."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from conftest import relative
from robots import own

import robodyn as rd

gym = pytest.importorskip("gymnasium", reason="the extra 'gymnasium' is not installed")

from gymnasium.utils.env_checker import check_env, data_equivalence  # noqa: E402
from gymnasium.utils.env_match import check_environments_match  # noqa: E402

from robodyn.simulators.gymnasium import AutoresetMode, RobodynEnv, RobodynVectorEnv  # noqa: E402

MODES = [mode.value for mode in AutoresetMode]
IDS = ["robodyn/CartPole-v0", "robodyn/ArmReach-v0", "robodyn/QuadrupedWalk-v0"]
# What Gymnasium's checks say of spaces without bounds, and of those whose bounds are newton metres.
UNBOUNDED = pytest.mark.filterwarnings("ignore:.*(infinity|symmetric and normalized|alternative render modes)")


@pytest.fixture(scope="module")
def arm():
    return rd.Dynamics(rd.load_urdf(own("arm6")), joint_forces="damping", threads=1)


def lifted(q, qd, action, *goal):
    return -np.abs(q).sum(axis=1) - 1e-4 * np.abs(action).sum(axis=1)


def options_of(kind):
    """Arguments of environments of every kind."""
    quadruped = rd.load_urdf(own("quadruped"), base="floating")
    return {
        "torque": {"dyn": rd.load_urdf(own("arm6"))},
        "normalized": {"dyn": rd.load_urdf(own("cartpole")), "actuation": "normalized"},
        "float32": {"dyn": rd.Dynamics(rd.load_urdf(own("arm7")), dtype="float32"), "substeps": 2},
        "position": {"dyn": quadruped, "actuation": "position", "kp": 20.0, "kd": 0.5},
        "mimic": {"dyn": rd.load_urdf(own("hand"))},
        "ball": {"dyn": rd.load_urdf(own("ball_joint_arm")), "effort": 5.0},
    }[kind]


@UNBOUNDED
@pytest.mark.parametrize("kind", ["torque", "normalized", "float32", "position", "mimic", "ball"])
def test_gymnasiums_own_check(kind):
    options = options_of(kind)
    env = RobodynEnv(reward=lifted, dt=1e-3, **options)
    check_env(env)
    check_environments_match(env, RobodynEnv(reward=lifted, dt=1e-3, **options), num_steps=20)
    dtype = np.float32 if kind == "float32" else np.float64
    assert env.observation_space.dtype == env.action_space.dtype == dtype
    assert env.reset(seed=3)[0].dtype == dtype
    model = env.task.model
    if kind == "torque":
        assert (env.action_space.high == model.effort_limit).all() and (
            env.action_space.low == -model.effort_limit
        ).all()
    if kind == "normalized":
        assert env.task.joints == ("slide",) and env.action_space.high.tolist() == [1.0]
    if kind == "position":
        assert env.action_space.high.tolist() == model.upper[7:].tolist() and len(env.task.joints) == model.nv - 6


@UNBOUNDED
@pytest.mark.parametrize("name", [*IDS[:2], pytest.param(IDS[2], marks=pytest.mark.matrix)])
def test_registered_environments(name):
    env = gym.make(name)
    check_env(env.unwrapped, skip_render_check=True)  # its live view would need a browser
    seen, infos = env.reset(seed=0)
    assert seen in env.observation_space and infos == {}
    for mode in ("sync", "vector_entry_point"):
        envs = gym.wrappers.vector.RecordEpisodeStatistics(gym.make_vec(name, 3, vectorization_mode=mode))
        envs.reset(seed=0)
        lengths = []
        steps = 120 if name == IDS[2] else 600  # it falls soon
        for _ in range(steps if mode == "vector_entry_point" else 20):
            seen, rewards, *_, infos = envs.step(envs.action_space.sample())
            assert seen in envs.observation_space and rewards.shape == (3,)
            lengths += [] if "episode" not in infos else infos["episode"]["l"][infos["_episode"]].tolist()
        envs.close()
        if mode == "vector_entry_point":
            assert lengths and max(lengths) <= env.spec.max_episode_steps
            assert name != IDS[1] or set(lengths) == {200}


def goal_seeking(**more):
    """Options that make no use of random numbers: episodes of different lengths by the actions that are taken."""

    def reset(rng, n):
        return np.tile([0.1, 0.2], (n, 1)), np.zeros((n, 2)), np.tile([1.0, 0.0, 2.0], (n, 1))

    def reward(q, qd, action, goal):
        return goal[:, 0] - np.cos(q[:, 0]) - 0.1 * action[:, 0] ** 2

    def terminated(q, qd, goal):
        return np.abs(q[:, 0]) > 0.5

    def update(q, qd, action, goal):
        return np.stack([goal[:, 0], goal[:, 1] + 1.0, action[:, 1]], axis=1)

    model = rd.load_urdf(own("double_pendulum"))
    return {
        "dyn": rd.Dynamics(model, joint_forces="damping"),
        "reward": reward,
        "reset": reset,
        "terminated": terminated,
        "update": update,
        "randomize": lambda rng, n: {"gravity": np.tile([0.0, 0.0, -3.7], (n, 1))},
        "effort": 30.0,
        "dt": 0.02,
        **more,
    }


def explosive(rng, n):
    return np.tile([0.1, 0.2], (n, 1)), np.zeros((n, 2))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("diverges", [False, True])
@pytest.mark.some(of=2, rest="matrix")
def test_many_are_as_each_by_itself(mode, diverges):
    """Beside Gymnasium's SyncVectorEnv of single ones: every number, flag and info, in every mode."""
    n, steps = 5, 120
    options = goal_seeking(max_episode_steps=17)
    if diverges:  # a force that no state survives
        options = {
            **options,
            "reset": explosive,
            "reward": lifted,
            "terminated": None,
            "update": None,
            "effort": 1e14,
            "actuation": "torque",
        }
    ours = RobodynVectorEnv(num_envs=n, autoreset_mode=mode, **options)
    theirs = gym.vector.SyncVectorEnv([lambda: RobodynEnv(**options) for _ in range(n)], autoreset_mode=mode)
    for name in ("observation_space", "action_space", "single_observation_space", "single_action_space"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert ours.metadata["autoreset_mode"] is theirs.metadata["autoreset_mode"] is AutoresetMode(mode)
    for one, other in zip(ours.reset(seed=1), theirs.reset(seed=1), strict=True):
        assert data_equivalence(one, other)
    rng, ends, kinds, lost = np.random.default_rng(0), 0, set(), 0
    for k in range(steps):
        actions = rng.uniform(-25.0, 25.0, (n, 2))
        if diverges and k % 7 == 3:
            actions[k % n] = 1e14
        found, wanted = ours.step(actions), theirs.step(actions)
        for what, one, other in zip(("seen", "rewards", "ended", "cut", "infos"), found, wanted, strict=True):
            assert data_equivalence(one, other), (k, what, one, other)
        ended = found[2] | found[3]
        ends += int(ended.sum())
        kinds |= {bool(each) for each in found[2][ended]}
        infos = found[4].get("final_info", {}) if mode == "SameStep" else found[4]
        lost += int(infos.get("diverged", np.zeros(n)).sum())
        if mode == "Disabled" and ended.any():
            with pytest.raises(gym.error.ResetNeeded, match="episodes have ended"):
                ours.step(actions)
            for one, other in zip(*(each.reset(options={"reset_mask": ended}) for each in (ours, theirs)), strict=True):
                assert data_equivalence(one, other)
    assert ends > 20 and kinds == {False, True} and (lost > 5) == diverges
    theirs.close()


@pytest.mark.parametrize("shared_memory", [True, False])
@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
@pytest.mark.some(of=4, rest="matrix")
def test_processes_of_single_ones_are_as_all_in_one_call(mode, shared_memory):
    """Beside Gymnasium's AsyncVectorEnv: spaces, numbers, flags and infos."""
    options = goal_seeking(max_episode_steps=17)
    ours = RobodynVectorEnv(num_envs=3, autoreset_mode=mode, **options)
    theirs = gym.vector.AsyncVectorEnv(
        [lambda: RobodynEnv(**options)] * 3, autoreset_mode=AutoresetMode(mode), shared_memory=shared_memory
    )
    try:
        assert ours.observation_space == theirs.observation_space and ours.action_space == theirs.action_space
        for one, other in zip(ours.reset(seed=4), theirs.reset(seed=4), strict=True):
            assert data_equivalence(one, other)
        ours.action_space.seed(0)
        ended = 0
        for _ in range(60):
            actions = ours.action_space.sample()
            found, wanted = ours.step(actions), theirs.step(actions)
            for one, other in zip(found, wanted, strict=True):
                assert data_equivalence(one, other)
            ended += int((found[2] | found[3]).sum())
        assert ended > 3
    finally:
        theirs.close()


@pytest.mark.parametrize("integrator", ["semi_implicit_euler", "implicit"])
def test_a_step_is_that_of_the_dynamics(arm, integrator):
    """Clipped forces, on each of the parts that a step has; parts of limits are the same forces."""
    model, n, options = arm.model, 7, {"dt": 0.004, "substeps": 2, "integrator": integrator}
    envs = RobodynVectorEnv(arm, n, reward=lambda q, qd, action: action.sum(axis=1), **options)
    parts = RobodynVectorEnv(arm, n, reward=lifted, **options, actuation="normalized")
    seen, _ = envs.reset(seed=5)
    parts.reset(seed=5)
    actions = np.random.default_rng(0).uniform(-2.0, 2.0, (n, 6)) * model.effort_limit
    clipped = np.clip(actions, -model.effort_limit, model.effort_limit)
    assert (actions != clipped).any()
    q, qd = seen[:, :6], seen[:, 6:]
    assert np.abs(q).max() <= 0.1 and np.abs(qd).max() <= 0.1
    for _ in range(2):
        q, qd = arm.step(q, qd, clipped, 0.002, integrator=integrator)
    seen, rewards, *_ = envs.step(actions)
    assert relative(seen, np.concatenate((q, qd), axis=1)) < 1e-15 and relative(rewards, clipped.sum(axis=1)) < 1e-15
    assert relative(parts.step(actions / model.effort_limit)[0], seen) < 1e-14


PARAMETERS = {
    "torque": ("gravity", "damping", "friction", "armature", "inertia", "f_ext"),
    "position": ("inertia", "kp", "kd"),
    "contacts": ("inertia", "f_ext", "gravity", "damping", "contact_friction", "ground_pose", "kp"),
}


def drawn(kind, model, rng, n):
    """Parameters of n episodes."""
    joints, slope = model.nv - 6 if kind != "torque" else model.nv, rng.uniform(-0.1, 0.1, n)
    ground = np.tile(np.eye(4), (n, 1, 1))
    ground[:, [0, 2], [0, 2]], ground[:, 0, 2], ground[:, 2, 0] = np.cos(slope)[:, None], np.sin(slope), -np.sin(slope)
    draws = {
        "contact_friction": rng.uniform(0.4, 0.9, (n, model.n_contacts)),
        "ground_pose": ground,
        "gravity": model.gravity + rng.uniform(-1.0, 1.0, (n, 3)),
        "inertia": model.inertia * rng.uniform(0.8, 1.2, (n, 1, 1)),
        "f_ext": rng.uniform(-1.0, 1.0, (n, model.n_bodies, 6)),
        **{name: rng.uniform(0.0, 1.0, (n, model.nv)) for name in ("damping", "friction", "armature")},
        "kp": rng.uniform(30.0, 40.0, (n, joints)),
        "kd": rng.uniform(0.5, 0.7, (n, joints)),
    }
    return {name: draws[name] for name in PARAMETERS[kind]}


def randomized(kind, dtype, **more):
    """Environments with parameters of their own, and the dynamics."""
    if kind == "torque":
        model, options = rd.load_urdf(own("arm6")), {}
    else:
        task = gym.make(IDS[2]).unwrapped.task
        model = task.model if kind == "contacts" else rd.Dynamics(task.model, contacts=()).model
        integrator = "mujoco" if kind == "contacts" else "semi_implicit_euler"
        options = {"actuation": "position", "kp": 40.0, "kd": 0.6, "integrator": integrator, "substeps": 2}
        options["reset"] = lambda rng, n: task.start(rng, n)
    dyn = rd.Dynamics(model, joint_forces=("damping",), dtype=dtype)

    def randomize(rng, n):
        return drawn(kind, model, rng, n)

    return dyn, RobodynVectorEnv(dyn, 5, reward=lifted, dt=0.004, randomize=randomize, **options, **more)


@pytest.mark.parametrize("kind", PARAMETERS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.some(of=2, rest="matrix")
def test_each_episode_has_parameters_of_its_own(kind, dtype):
    """They act as arguments of steps do, and stay as long as the episode."""
    dyn, envs = randomized(kind, dtype, max_episode_steps=3, autoreset_mode="Disabled")
    model, substeps = dyn.model, envs.task.substeps
    seen, _ = envs.reset(seed=1)
    first = {name: array.copy() for name, array in envs.parameters.items()}
    assert tuple(first) == PARAMETERS[kind]
    assert all(len(np.unique(each.reshape(5, -1), axis=0)) == 5 for each in first.values())
    action = np.clip(np.zeros((5, envs.single_action_space.shape[0])), envs.task.low, envs.task.high)
    q, qd = seen[:, : model.nq], seen[:, model.nq :]
    given = {name: array for name, array in first.items() if name not in ("kp", "kd")}
    kp, kd = (first.get(name, fixed) for name, fixed in (("kp", 40.0), ("kd", 0.6)))
    for _ in range(substeps):
        if kind == "torque":
            tau = np.zeros_like(qd)
        elif kind == "contacts":
            tau = np.zeros_like(qd)
            tau[:, 6:] = np.clip(kp * (action - q[:, 7:]) - kd * qd[:, 6:], -envs.task.effort, envs.task.effort)
        else:
            tau, target, gains = None, q.copy(), np.zeros((2, *qd.shape))
            target[:, 7:], gains[0, :, 6:], gains[1, :, 6:] = action, kp, kd
            given |= {"q_des": given.get("q_des", target), "kp": gains[0], "kd": gains[1], "limits": ("effort",)}
        q, qd = dyn.step(q, qd, tau, 0.004 / substeps, integrator=envs.task.integrator, **given)
    seen = envs.step(action)[0]
    assert relative(seen, np.concatenate((q, qd), axis=1)) < (1e-12 if dtype == "float64" else 1e-4)
    mask = np.array([True, False, True, False, False])
    envs.reset(options={"reset_mask": mask})
    for name, array in envs.parameters.items():
        changed = (array != first[name]).reshape(5, -1).any(axis=1)
        assert (changed == mask).all(), name


def test_drives_go_where_actions_say():
    """A robot in the air that is told where its legs are to be, within its effort limits."""
    options = options_of("position")
    model = options["dyn"]
    envs = RobodynVectorEnv(num_envs=2, reward=lifted, dt=2e-3, **{**options, "kp": 30.0, "kd": 1.0})
    envs.reset(seed=0)
    goal = 0.5 * (model.lower[7:] + model.upper[7:])
    for _ in range(800):
        seen = envs.step(np.tile(goal, (2, 1)))[0]
    assert np.abs(seen[:, 7 : model.nq] - goal).max() < 0.05
    named = RobodynEnv(model, reward=lifted, joints=[model.joint_names[3], model.joint_names[2]])
    assert named.action_space.high.tolist() == model.effort_limit[[8, 7]].tolist()


def test_a_quadruped_stands_on_its_drives_and_falls_without_them():
    """Steps with contacts: feet carry it while targets are its posture; forward is along the world's x."""
    envs = gym.make_vec(IDS[2], 8, vectorization_mode="vector_entry_point")
    envs.reset(seed=0)
    hold = np.tile([0.0, 0.8, -1.6], (8, 4))
    for _ in range(60):
        seen, rewards, ended, *_ = envs.step(hold)
        assert not ended.any()
    assert ((seen[:, 0] > 0.25) & (seen[:, 0] < 0.32)).all() and np.abs(rewards - 0.2).max() < 0.05
    task = envs.unwrapped.task
    q = task.model.neutral()[None]
    q[:, 2], q[:, 5:7] = 0.3, np.sqrt(0.5)  # turned to the left: its own -y is ahead
    qd = np.zeros((1, task.model.nv))
    qd[:, 1] = -0.7
    assert task.reward(q, qd, hold[:1])[0] == pytest.approx(0.9)
    q[:, 3:7] = [np.sqrt(0.5), 0.0, 0.0, np.sqrt(0.5)]
    assert task.terminated(q, qd)[0]


def test_seeds(arm):
    def episode(envs, seed):
        envs.action_space.seed(0)
        first = envs.reset(seed=seed)[0]
        rest = [envs.step(envs.action_space.sample())[0] for _ in range(30)]
        return np.array([first, *rest])

    envs, others = (RobodynVectorEnv(arm, 3, reward=lifted, max_episode_steps=8) for _ in range(2))
    run = episode(envs, 4)
    assert (run == episode(others, 4)).all() and (run == episode(envs, 4)).all()
    assert envs.np_random_seed == 4
    assert (run != episode(envs, 5)).any() and len(np.unique(run[0][:, 0])) == 3
    assert (envs.reset()[0] != envs.reset()[0]).all() and envs.np_random_seed == 5


def test_partial_resets(arm):
    envs = RobodynVectorEnv(arm, 3, reward=lifted, max_episode_steps=5, autoreset_mode="Disabled")
    with pytest.raises(gym.error.ResetNeeded, match="reset has not been called"):
        envs.step(envs.action_space.sample())
    with pytest.raises(rd.ArgumentError, match="leaves out environments that have not begun"):
        envs.reset(options={"reset_mask": np.array([True, True, False])})
    first, _ = envs.reset(seed=0, options={"reset_mask": np.ones(3, np.bool_)})
    before = envs.step(envs.action_space.sample())[0]
    assert (before != first).all()
    options = {"reset_mask": np.array([False, True, False])}
    again, infos = envs.reset(options=options)
    assert (again[[0, 2]] == before[[0, 2]]).all() and (again[1] != before[1]).all() and infos == {}
    assert list(options) == ["reset_mask"]
    flags = [envs.step(envs.action_space.sample())[3].tolist() for _ in range(4)]
    assert flags == [[False] * 3] * 3 + [[True, False, True]]
    for mask in (np.ones(2, np.bool_), np.ones((1, 3), np.bool_), np.ones(3), [True] * 3, np.zeros(3, np.bool_)):
        with pytest.raises(rd.ArgumentError, match="'reset_mask'"):
            envs.reset(options={"reset_mask": mask})


def test_what_functions_of_users_do(arm):
    """They cannot write to states, may return views of them, and what they return is looked at."""
    n, model = 4, arm.model
    good = {"reward": lifted, "reset": None, "terminated": None, "observation": None}

    def envs(**functions):
        made = RobodynVectorEnv(arm, n, dt=1e-3, **{**good, **functions})
        made.reset(seed=0)
        return made.step(np.zeros((n, 6)))

    view = RobodynVectorEnv(arm, n, reward=lifted, observation=lambda q, qd: q)
    first = view.reset(seed=0)[0]
    first[:] = 0.0  # an observation is the caller's own
    assert (view.step(np.zeros((n, 6)))[0] != 0.0).all() and view.single_observation_space.shape == (6,)

    def goals(rng, n):
        return np.zeros((n, 6)), np.zeros((n, 6)), np.ones((n, 2))

    def writing(q, qd, action):
        q[:] = 0.0

    with pytest.raises(ValueError, match="read-only"):
        envs(reward=writing)
    for functions, error, text in (
        ({"reward": lambda q, qd, action: 1.0}, rd.ArgumentError, r"reward: returned shape \(\); wanted \(4,\)"),
        ({"reward": lambda q, qd, action: q[:, 0] * np.nan}, rd.NumericalError, "reward: NaN or infinite in 4 of"),
        ({"reward": lambda q, qd, action: "x"}, rd.ArgumentError, "reward: got 'x' of dtype"),
        ({"terminated": lambda q, qd: q[:, 0]}, rd.ArgumentError, r"terminated: returned float64 of shape \(4,\)"),
        ({"terminated": lambda q, qd: True}, rd.ArgumentError, r"terminated: returned bool of shape \(\)"),
        ({"observation": lambda q, qd: q[:, 0]}, rd.ArgumentError, r"observation: returned shape \(1,\); wanted"),
        ({"reset": lambda rng, n: np.zeros((n, 6))}, rd.ArgumentError, r"reset: returned .*; wanted \(q, qd\), or"),
        ({"reset": lambda rng, n: (np.zeros((n, 5)), 0)}, rd.ArgumentError, r"reset's q: got shape \(1, 5\)"),
        ({"reset": lambda rng, n: (np.zeros((n, 6)), np.zeros(6))}, rd.ArgumentError, r"reset's qd: got shape \(6,\)"),
        ({"reset": lambda rng, n: (np.full((n, 6), np.inf), np.zeros((n, 6)))}, rd.NumericalError, "reset's q: NaN or"),
        ({"reset": lambda rng, n: (np.zeros((n, 6)), np.zeros((n, 6)), 1)}, rd.ArgumentError, "reset's goal: got"),
        ({"update": lambda q, qd, action, goal: goal}, rd.ArgumentError, "update: got a function; wanted None, as r"),
        ({"update": lambda *given: given[3][:, 0], "reset": goals}, rd.ArgumentError, r"update: returned shape \(4,\)"),
        ({"update": lambda *given: given[3] * np.inf, "reset": goals}, rd.NumericalError, "update: NaN or infinite"),
        ({"randomize": lambda rng, n: 3}, rd.ArgumentError, "randomize: returned 3; wanted a dict of arrays"),
        ({"randomize": lambda rng, n: {"mass": 1}}, rd.ArgumentError, "randomize returned: got 'mass'; allowed: 'f_e"),
        ({"randomize": lambda rng, n: {"kp": 1}}, rd.ArgumentError, "a key that randomize returned: got 'kp'; allow"),
        ({"randomize": lambda rng, n: {"damping": np.ones(6)}}, rd.ArgumentError, r"randomize's damping: got shape "),
        ({"randomize": lambda rng, n: {"damping": -np.ones((n, 6))}}, rd.ArgumentError, "randomize's damping: got -1"),
        ({"randomize": lambda rng, n: {"gravity": np.full((n, 3), np.nan)}}, rd.NumericalError, "randomize's gravi"),
        ({"randomize": lambda rng, n: {"gravity": np.ones((n, 3))} if n < 2 else {}}, rd.ArgumentError,
         r"randomize: returned keys \[\]; wanted \['gravity'\], as before"),
    ):  # fmt: skip
        with pytest.raises(error, match=text):
            envs(**functions)
    assert model.nv == 6


@pytest.mark.filterwarnings("ignore:constraints of")
def test_episodes_of_robots_with_loops_begin_and_stay_closed():
    """Also where no reset is given: around the neutral configuration, each episode elsewhere."""
    dyn = rd.Dynamics(rd.load_urdf(own("loops/linkage_gripper")))
    envs = RobodynVectorEnv(dyn, 5, reward=lambda q, qd, action: np.zeros(len(q)), dt=0.002)
    seen, _ = envs.reset(seed=0)
    nq = dyn.model.nq
    assert np.ptp(seen[:, :nq], axis=0).max() > 0.01
    for _ in range(5):
        for each in dyn.constraint_residual(seen[:, :nq], seen[:, nq:]):
            assert np.abs(each).max() < 1e-6
        seen, *_, infos = envs.step(0.1 * envs.action_space.sample())
    assert not np.any(infos.get("diverged", False))


@pytest.mark.filterwarnings("ignore:constraints of")
def test_starts_off_the_constraints_are_refused():
    model = rd.load_urdf(own("loops/four_bar"))
    given = {"reward": lambda q, qd, action: np.zeros(len(q)), "joints": ["turn"], "effort": 1.0}
    with pytest.raises(
        rd.ArgumentError, match=r"reset: got None; wanted a function .* constraints: assemble: 'pin\.x'"
    ):
        RobodynEnv(model, **given)
    with pytest.raises(
        rd.ArgumentError, match=r"reset's q: 'pin\.x' is off by 0\.12 m in row 0; wanted states on the constraints"
    ):
        RobodynEnv(model, reset=lambda rng, n: (np.zeros((n, 3)), np.zeros((n, 3))), **given)
    standing = rd.Dynamics(model, constraints=[rd.Point("rocker", name="foot")])
    with pytest.raises(
        rd.ArgumentError, match='"foot" to the world without a place; a Gymnasium environment wants to_at='
    ):
        RobodynEnv(standing, **given)


def test_what_is_wrong_is_named(arm):
    def made(**options):
        return RobodynVectorEnv(**{"dyn": arm, "num_envs": 2, "reward": lifted, **options})

    envs = made()
    envs.reset(seed=0)
    hand = rd.load_urdf(own("hand"))
    held = dataclasses.replace(arm.model, constraints=[rd.Coupling({"elbow": 1.0, "shoulder_lift": 1.0})])
    follower = next(name for name, i in zip(hand.joint_names, hand.mimics, strict=True) if i >= 0)
    for call, error, text in (
        (lambda: made(dyn=3), rd.ArgumentError, "dyn: got 3; wanted a robodyn.Dynamics or Model"),
        (lambda: made(reward=None), rd.ArgumentError, "reward: got None; wanted a function of states"),
        (lambda: made(reset=3), rd.ArgumentError, "reset: got 3; wanted a function of states"),
        (lambda: made(num_envs=0), rd.ArgumentError, "num_envs: got 0"),
        (lambda: made(dt=0.0), rd.ArgumentError, "dt: got 0.0; wanted a positive"),
        (lambda: made(substeps=1.5), rd.ArgumentError, "substeps: got 1.5"),
        (lambda: made(integrator="rk5"), rd.ArgumentError, "integrator: got 'rk5'; allowed: 'semi_implicit_euler'"),
        (lambda: made(dyn=held, integrator="implicit"), rd.UnavailableError, "integrator: 'implicit' is not available"),
        (lambda: made(max_episode_steps=0), rd.ArgumentError, "max_episode_steps: got 0"),
        (lambda: made(actuation="muscle"), rd.ArgumentError, "actuation: got 'muscle'; allowed: 'torque'"),
        (lambda: made(autoreset_mode="Never"), rd.ArgumentError, "autoreset_mode: got 'Never'; allowed: 'NextStep'"),
        (lambda: made(joints=["knee"]), rd.ArgumentError, "joints: 'arm6' has no joint \"knee\" that follows no other"),
        (lambda: made(joints="elbow"), rd.ArgumentError, "joints: got 'elbow'; wanted names of"),
        (lambda: made(joints=[]), rd.ArgumentError, "joints: there are none to drive"),
        (lambda: made(dyn=hand, joints=[follower]), rd.ArgumentError, "that follows no other"),
        (lambda: made(effort=-1.0), rd.ArgumentError, "effort: got -1.0"),
        (lambda: made(effort=[1.0, 2.0]), rd.ArgumentError, "effort: got .*one for each of 6"),
        (lambda: made(kp=3.0), rd.ArgumentError, "kp: got 3.0; wanted None where actuation is 'torque'"),
        (lambda: made(actuation="position"), rd.ArgumentError, "kp: not given, and actuation is 'position'"),
        (lambda: made(actuation="position", kp=1.0, kd=0.0, effort=2.0), rd.ArgumentError, "effort: got 2.0; wanted"),
        (lambda: made(observation_space=gym.spaces.Box(-1, 1, (3,))), rd.ArgumentError, r"wanted a Box of shape"),
        (lambda: made(limits=("torque",)), rd.ArgumentError, "limits: got 'torque'; allowed"),
        (lambda: envs.step(np.zeros((2, 5))), rd.ArgumentError, r"action: got shape \(2, 5\)"),
        (lambda: envs.step(np.zeros((3, 6))), rd.ArgumentError, r"action: got shape \(3, 6\); wanted \(2, 6\)"),
        (lambda: envs.step(np.zeros(6)), rd.ArgumentError, r"action: got shape \(6,\); wanted \(2, 6\)"),
        (lambda: envs.step("forward"), rd.ArgumentError, "action: got 'forward'"),
        (lambda: envs.step(np.full((2, 6), np.nan)), rd.NumericalError, "action: NaN in 2 of 2 rows"),
    ):  # fmt: skip
        with pytest.raises(error, match=text):
            call()
    with pytest.raises(rd.ArgumentError, match="model: got 3"):
        gym.make("robodyn/ArmReach-v0", model=3)
