"""What of the library obeys constraints, and what is about the tree alone.

Every public name has a stance, or a test fails. Those that obey are tried with a four-bar, whose equations stand here
in closed form.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import tempfile
from pathlib import Path

import cli_runner
import numpy as np
import pytest
from robots import own
from robots_with_loops import COUPLER, CRANK, GROUND, ROCKER, four_bar

import robodyn as rd
from robodyn.api.autodiff.steps import STEPS
from robodyn.api.motion.robot import dynamics_of
from robodyn.engines.query_table import CONSTRAINED, QUERIES, every_query
from robodyn.internals.public_names import HOMES
from robodyn.tools.cli.app import app

PACKAGE = Path(rd.__file__).parent

OBEYS, TREE, OTHER = "obeys", "is about the tree alone", "is not about motion"
"""The last: it reads, writes, converts or describes; what it keeps of a robot keeps the constraints."""

# Queries that are plain are about the tree alone; those about constraints obey them. All others are listed here.
STANCES = {
    "Dynamics": {
        OBEYS: "step step_gradient rollout rollout_gradient rollout_vjp constrained_inverse_dynamics "
        "contact_forward_dynamics_gradient "
        "constraint_wrenches joint_reaction",
        TREE: "armature_regressor base_parameters edge_is_free friction_regressor is_free "
        "mass_matrix_operator singularity",
        OTHER: "capture constraint_names constraint_targets explain plain_task program variant",
    },
    "Model": {
        OBEYS: "assemble",
        TREE: "difference difference_gradient distance integrate integrate_gradient interpolate neutral "
        "random_configuration",
        OTHER: "armature attach check collision_geometries collision_pairs configurations constraints "
        "contacts coordinate_names coordinates coupling damping digest drawn_from effort_limit euler_tour extensions "
        "file_tree free_joints friction geometries graph has_mimic joint_index link_index link_inertia "
        "link_joints link_parent load lock lower n_bodies n_constraints n_contacts n_pairs n_rows normalize "
        "normalized nq nq_tree nv nv_tree of_checked pairs plot_tree proximal quaternion_starts report "
        "reroot save shapes source subtree to_mjcf to_urdf total_mass tree tree_coordinates "
        "unit_coordinates upper velocity_limit velocity_names with_contacts with_frames with_inertia "
        "with_shapes",
    },
    "InverseKinematics": {OBEYS: "solve velocity", OTHER: "n_targets"},
    "Mpc": {OBEYS: "plan", OTHER: "reset"},
    "Rollout": {OTHER: "converged load model plot save save_html"},
    "robodyn": {
        OBEYS: "InverseKinematics Mpc identify optimize_trajectory simulate",
        # Sliders move joints of the tree, one by one; whole-body control refuses constraints.
        TREE: "WholeBodyControl differentiate exciting_trajectory show",
        OTHER: "ArgumentError AssemblyError Baumgarte Box Capsule CoMTask Contact ConvergenceWarning "
        "Coupling Cylinder DirectionTask DistanceTask Dynamics ExcitingTrajectory GazeTask HeightField IKReport "
        "Identification JointForcesWarning JointOrder LoadError Lock ManipulabilityTask Model NumericalError "
        "Obstacles Plane Point PoseTask PositionTask PostureTask RedundantWarning "
        "RelativePoseTask RobodynError RobotDescription Rod Rolling Rollout SingularError Sphere "
        "Tracking Trajectory Tree UnavailableError VelocityReport Weld WholeBodyReport __version__ auto_tree "
        "build_model conventions converter costs exp exp_gradient external_force fit_spheres from_dh "
        "from_pinocchio from_screws hardware inertial_parameters load load_description load_mjcf load_sdf load_urdf "
        "load_xacro log log_gradient plots pose_error pose_error_gradient random_tree read_urdf release_memory",
    },
    "robodyn.simulators.drake": {OBEYS: "system"},
    "robodyn.simulators.environments": {
        OTHER: "arm_reach arms_reach cartpole cartpoles quadruped_walk quadrupeds_walk"
    },  # robots of their own
    "robodyn.simulators.checks": {OTHER: "require_model vector"},
    "robodyn.simulators.gymnasium": {OBEYS: "RobodynEnv RobodynVectorEnv"},
    "robodyn.simulators.mujoco": {OTHER: "Bridge"},  # MuJoCo moves; it warns of scenes without equalities
    "robodyn.simulators.pybullet": {OTHER: "Bridge"},  # likewise
    "robodyn.simulators.rendering": {OTHER: "Renderer"},
    "robodyn.simulators.ros": {
        OTHER: "States from_joint_state from_odometry from_robot_description read_bag to_joint_state to_odometry "
        "write_bag"
    },
    "robodyn.simulators.tasks": {OBEYS: "Task"},
    "robodyn.casadi": {TREE: "wrap CasadiDynamics", OTHER: "ContinuousModel has_compiler"},
    "robodyn.jax": {TREE: "wrap JaxDynamics"},
    "robodyn.torch": {TREE: "wrap TorchDynamics"},
    "functions of JAX and PyTorch": {OBEYS: "step rollout"},  # besides plain queries
    "robodyn.conventions": {OTHER: "pinocchio_parameters"},
    "robodyn.costs": {OTHER: "CenterOfMass Clearance Control Cost Friction Pose State Sum"},
    "robodyn.distributed": {OBEYS: "map", OTHER: "Histogram Reduction Statistics random_inputs"},
    "robodyn.hardware": {TREE: "datapath Datapath", OTHER: "Box Resources SimulationReport"},
    "robodyn.inertial_parameters": {
        OTHER: "consistency_margin deviation_metric frame_matrix from_pseudo_inertia in_frame physically_consistent "
        "pseudo_inertia"
    },
    "robodyn.plots": {OTHER: "COLORS STYLE WHAT plot_tree trajectory"},
    "robodyn.testing": {
        TREE: "assert_identities assert_like_mujoco assert_like_pinocchio assert_sound mujoco_model pinocchio_model"
    },
    "commands": {
        OBEYS: "ask identify ik simulate",
        TREE: "id fd gradient export",
        OTHER: "info check queries convert lock attach view bench tune cache",
    },
}


def stance_of(place, name):
    """Of a public name; None where nobody has said it."""
    question = every_query().get(name) if place == "Dynamics" else None
    if question is not None and not question.of_loads:
        return OBEYS if name in CONSTRAINED else TREE
    return next((stance for stance, words in STANCES[place].items() if name in words.split()), None)


def names_of(place):
    """Public names of a class, a module or the command, without importing what needs other packages."""
    if place == "commands":
        return {each.name or each.callback.__name__ for each in app.registered_commands}
    if place == "functions of JAX and PyTorch":
        return set(STEPS)
    if place == "robodyn":
        return set(dir(rd))
    if hasattr(rd, place):
        return {name for name in dir(getattr(rd, place)) if not name.startswith("_")}
    _, first, *rest = place.split(".")
    path = PACKAGE.joinpath(*HOMES[first].split("."), *rest)
    text = ast.parse((path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text())
    for node in text.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    defined = (node for node in text.body if isinstance(node, ast.FunctionDef | ast.ClassDef))
    return {node.name for node in defined if not node.name.startswith("_")}


@pytest.mark.parametrize("place", STANCES)
def test_every_public_name_has_a_stance(place):
    names = names_of(place)
    assert names and [name for name in sorted(names) if stance_of(place, name) is None] == []
    listed = " ".join(STANCES[place].values()).split()
    assert sorted(listed) == sorted(set(listed) & names), "what is listed is there, once"


def test_every_bridge_and_module_is_looked_at():
    modules = {f"robodyn.simulators.{path.stem}" for path in PACKAGE.glob("bridges/simulators/[a-z]*.py")}
    modules |= {f"robodyn.{name}" for name in (*rd._MODULES, "testing", "casadi", "jax", "torch")}
    assert modules <= set(STANCES)


# The four-bar: coupler and rocker meet at a point of the x-z plane.


def ways(q):
    """Angles of the three bars in the plane."""
    return np.stack([q[..., 0], q[..., 0] + q[..., 1], q[..., 2]], axis=-1)


LENGTHS = np.array([CRANK, COUPLER, -ROCKER])


def apart(q):
    """(..., 2) how far the ends of coupler and rocker are from each other."""
    a = ways(np.asarray(q))
    return np.stack([(LENGTHS * np.cos(a)).sum(axis=-1) - GROUND, (LENGTHS * np.sin(a)).sum(axis=-1)], axis=-1)


def jacobian(q):
    """(2, 3) the derivative of that."""
    a = ways(q)
    by_angle = LENGTHS * np.stack([-np.sin(a), np.cos(a)])
    return by_angle @ np.array([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])


def drift(q, qd):
    """(2,) the acceleration of that at qdd = 0."""
    return (-LENGTHS * np.stack([np.cos(ways(q)), np.sin(ways(q))]) * ways(qd) ** 2).sum(axis=-1)


def require_closed(q, qd=None, most=1e-6):
    assert np.shape(q)[-1] == 3 and np.abs(apart(q)).max() < most
    if qd is not None:
        assert np.abs(jacobian(q) @ qd).max() < most


def require_allowed(q, qd, qdd):
    assert np.abs(jacobian(q) @ qdd + drift(q, qd)).max() < 1e-6 * np.abs(drift(q, qd)).max() > 1e-9


@pytest.fixture(scope="module")
def case():
    """The robot, a state that is closed and moves, and forces."""
    dyn = rd.Dynamics(rd.load_urdf(own("loops/four_bar")), engine="reference")
    q, tau = four_bar(0.9), np.array([0.3, 0.0, -0.1])
    free = np.linalg.svd(jacobian(q))[2][2]  # the one direction in which the bars may move
    return dyn, q, 3.0 * free / np.abs(free).max(), tau


def stepped(dyn, q, qd, tau):
    require_closed(*dyn.step(q, qd, tau, 1e-2))


def kept_by_steps(dyn, q, qd, tau):
    """Derivatives are those of steps that end on the constraints."""
    A, B = dyn.step_gradient(q, qd, tau, 1e-2)
    ahead, behind = (np.concatenate(dyn.step(q, qd + h, tau + h, 1e-2)) for h in (1e-5, -1e-5))
    moved = A[:, 3:].sum(axis=1) + B.sum(axis=1)
    assert np.abs(moved - (ahead - behind) / 2e-5).max() < 1e-6 * np.abs(moved).max()


def kept_by_rollouts(dyn, q, qd, tau):
    """Gradients are those of rollouts that stay on the constraints."""
    weights = np.random.default_rng(0).standard_normal((6, 3))
    plan = {"dt": 1e-2, "steps": 5}
    gradient = dyn.rollout_vjp(q, qd, tau, **plan, q_weight=weights, wrt=("q0", "tau"))
    again, _ = dyn.rollout_gradient(
        lambda run: ((weights * run.q).sum(), weights, None), q, qd, tau, **plan, wrt=("q0", "tau")
    )[::-1]
    for k, name in enumerate(("q0", "tau")):
        assert np.abs(gradient[name] - again[name]).max() < 1e-12
        ahead, behind = (
            (weights * dyn.rollout(q + h * (k == 0), qd, tau + h * (k == 1), **plan).q).sum() for h in (1e-5, -1e-5)
        )
        assert abs(gradient[name].sum() - (ahead - behind) / 2e-5) < 1e-6 * np.abs(gradient[name]).max()


def kept_by_accelerations(dyn, q, qd, tau):
    """No force changes accelerations that the constraints forbid; forces along the constraints change none."""
    qdd_tau = dyn.constrained_forward_dynamics_gradient(q, qd, tau)[2]
    assert np.abs(jacobian(q) @ qdd_tau).max() < 1e-9 * np.abs(qdd_tau).max()
    assert np.abs(qdd_tau @ jacobian(q).T).max() < 1e-9 * np.abs(qdd_tau).max()


def kept_softly_by_accelerations(dyn, q, qd, tau):
    """With contacts constraints are soft rows: forces hardly accelerate what the constraints forbid."""
    touching = rd.Dynamics(dyn.model.with_contacts([]), engine="reference")
    by_tau, free = touching.contact_forward_dynamics_gradient(q, qd, tau)[2], dyn.mass_matrix_inverse(q)
    assert 0.0 < np.abs(jacobian(q) @ by_tau).max() < 0.2 * np.abs(jacobian(q) @ free).max()


def kept_by_impacts(dyn, q, qd, tau):
    after_qd = dyn.impact_gradient(q, qd)[1]
    assert np.abs(jacobian(q) @ after_qd).max() < 1e-9 and np.abs(after_qd @ after_qd - after_qd).max() < 1e-9


def rolled(dyn, q, qd, tau):
    run = dyn.rollout(q, qd, tau, dt=2e-3, steps=25)
    require_closed(run.q[-1], run.qd[-1])
    assert np.abs(run.q[-1] - q).max() > 0.1


def accelerated(dyn, q, qd, tau):
    require_allowed(q, qd, dyn.constrained_forward_dynamics(q, qd, tau)[0])


def driven(dyn, q, qd, tau):
    """Along what may move, forces do what inertia and gravity ask for."""
    qdd = dyn.constrained_forward_dynamics(q, qd, tau)[0]
    found = dyn.constrained_inverse_dynamics(q, qd, qdd)[0]
    need = dyn.inverse_dynamics(q, qd, qdd)
    assert np.abs(found - need).max() > 1e-3 and abs(qd @ (found - need)) < 1e-9 * np.abs(need).max()


def loaded(dyn, q, qd, tau):
    """Joints transmit about their axes what drives give, once constraint forces push the links."""
    qdd, lam = dyn.constrained_forward_dynamics(q, qd, tau)
    reaction = dyn.joint_reaction(q, qd, qdd, f_ext=dyn.constraint_wrenches(q, lam))
    assert np.abs(reaction[:, 2] - tau).max() < 1e-9
    with pytest.raises(rd.ArgumentError, match="constraint_wrenches"):
        dyn.joint_reaction(q, qd, qdd)


def measured(dyn, q, qd, tau):
    off = q + np.array([0.0, 0.1, 0.0])
    phi, phidot = dyn.constraint_residual(off, qd)
    assert abs(np.linalg.norm(phi) - np.linalg.norm(apart(off))) < 1e-12
    assert np.abs(dyn.constraint_residual(q, qd)[1]).max() < 1e-12 < np.abs(phidot).max()


def differentiated(dyn, q, qd, tau):
    assert np.abs(dyn.constraint_jacobian(q) @ qd).max() < 1e-12


def responding(dyn, q, qd, tau):
    A, free = dyn.delassus(q, qd, tau)
    J = jacobian(q)
    wanted = np.linalg.eigvalsh(J @ np.linalg.solve(dyn.mass_matrix(q), J.T))
    assert np.abs(np.linalg.eigvalsh(A)[-2:] - wanted).max() < 1e-9 * wanted.max() and free.shape == (3,)


def hit(dyn, q, qd, tau):
    require_closed(q, dyn.impact(q, np.array([1.0, 0.0, 0.0]))[0])


def projected(dyn, q, qd, tau):
    state = q + np.array([0.0, 0.05, 0.0]), np.array([1.0, 0.0, 0.0])
    for _ in range(5):
        state = dyn.project(*state)
    require_closed(*state)


def assembled(dyn, q, qd, tau):
    require_closed(dyn.model.assemble(q + np.array([0.0, 0.1, 0.0])))


def simulated(dyn, q, qd, tau):
    run = rd.simulate(dyn.variant(engine="cpu"), q, qd, 0.2, tau, t_eval=[0.1, 0.2], rtol=1e-4, atol=1e-4)
    require_closed(run.q)
    require_closed(run.q[-1], run.qd[-1])
    assert np.abs(run.q[-1] - q).max() > 0.1


def reached(dyn, q, qd, tau):
    ik = rd.InverseKinematics(dyn.model, "rocker", limits=False, engine="reference")
    found, report = ik.solve(dyn.link_pose(q, "rocker"), q + np.array([0.2, 0.0, 0.1]), seeds=2)
    assert report.converged
    require_closed(found, most=1e-5)


def turned(dyn, q, qd, tau):
    ik = rd.InverseKinematics(dyn.model, "rocker", limits=False, engine="reference")
    found, report = ik.velocity(q, 0.01 * np.ones(6), 1e-4)
    assert report.feasible and np.abs(dyn.constraint_jacobian(q) @ found).max() < 1e-6
    require_closed(q + 1e-4 * found, most=1e-5)


def planned(dyn, q, qd, tau):
    cost = rd.costs.Control(1e-2) + rd.costs.State(q=1.0, q_goal=four_bar(1.0), final=True)
    found = rd.optimize_trajectory(dyn, cost, (q, 0.0 * qd), 4, 1e-2, iterations=3)
    assert found.log[-1] < 0.5 * found.log[0]
    require_closed(found.q)
    require_closed(found.q[-1], found.qd[-1])


def planned_again(dyn, q, qd, tau):
    mpc = rd.Mpc(dyn, rd.costs.Control(1e-2) + rd.costs.State(q=1.0, q_goal=four_bar(1.0)), steps=4, dt=1e-2)
    for _ in range(2):
        q, qd = dyn.step(q, 0.0 * qd, mpc(q, 0.0 * qd), 1e-2)
        require_closed(mpc.plan.q)
        require_closed(mpc.plan.q[-1], mpc.plan.qd[-1])


def in_drake(dyn, q, qd, tau):
    analysis = pytest.importorskip("pydrake.systems.analysis")
    from robodyn.simulators.drake import system

    robot = system(dyn.variant(engine="cpu"))
    simulator = analysis.Simulator(robot)
    robot.set_state(simulator.get_mutable_context(), q, qd)
    simulator.AdvanceTo(0.2)
    state = simulator.get_context().get_continuous_state_vector().CopyToVector()
    require_closed(state[:3], state[3:])
    assert np.abs(state[:3] - q).max() > 0.1


def in_environments(dyn, q, qd, tau):
    pytest.importorskip("gymnasium")
    from robodyn.simulators.gymnasium import RobodynEnv, RobodynVectorEnv

    given = {
        "dt": 0.005,
        "joints": ["turn"],
        "effort": 0.1,
        "reset": lambda rng, n: (np.tile(q, (n, 1)), np.tile(qd, (n, 1))),
    }
    reward = lambda q, qd, action: np.zeros(len(q))  # noqa: E731
    one, several = RobodynEnv(dyn, reward=reward, **given), RobodynVectorEnv(dyn, 2, reward=reward, **given)
    for environment in (one, several):
        environment.reset(seed=0)
        for _ in range(5):
            seen, _, _, _, infos = environment.step(environment.action_space.sample())
        for row in np.atleast_2d(seen):
            require_closed(row[:3], row[3:])
        assert not np.any(infos.get("diverged", False))


def mapped(dyn, q, qd, tau):
    pytest.importorskip("dask.distributed")
    pytest.importorskip("zarr")
    from robodyn import distributed

    qdd, _ = distributed.map(dyn, "constrained_forward_dynamics", q[None], qd[None], tau[None])
    require_allowed(q, qd, qdd[0])


def libraries(dyn, *arrays):
    """The functions and arrays of JAX, in single precision, and of PyTorch: of those that are installed."""
    found = []
    if importlib.util.find_spec("jax"):
        import robodyn.jax

        found.append((robodyn.jax.wrap(dyn.variant(dtype="float32")), *arrays))
    if importlib.util.find_spec("torch"):
        import torch

        import robodyn.torch

        found.append((robodyn.torch.wrap(dyn.variant(engine="cpu")), *map(torch.tensor, arrays)))
    if not found:
        pytest.skip("the extras 'jax' and 'torch' are not installed")
    return found


def stepped_in_libraries(dyn, q, qd, tau):
    for functions, *state in libraries(dyn, q, qd, tau):
        require_closed(*(np.asarray(each, float) for each in functions.step(*state, 1e-2)), most=1e-5)


def rolled_in_libraries(dyn, q, qd, tau):
    for functions, *state in libraries(dyn, q, qd, tau):
        positions, rates = (np.asarray(each, float) for each in functions.rollout(*state, 2e-3, 25, save_every=None))
        require_closed(positions[-1], rates[-1], most=1e-5)
        assert np.abs(positions[-1] - q).max() > 0.1


def typed(array):
    return ",".join(map(repr, array.tolist()))


def asked(dyn, q, qd, tau):
    state = ("--q", typed(q), "--qd", typed(qd), "--tau", typed(tau), "--engine", "reference")
    found = cli_runner.answer("ask", own("loops/four_bar"), "constrained_forward_dynamics", *state)
    require_allowed(q, qd, cli_runner.values(found["results"])["qdd"].ravel())


def found_by_command(dyn, q, qd, tau):
    place = dyn.link_pose(q, "coupler")[:3, 3]
    where = (
        "--link",
        "coupler",
        "--position",
        typed(place),
        "--q",
        typed(q + np.array([0.1, 0.0, 0.0])),
        "--seeds",
        "2",
    )
    status, out, err = cli_runner.run("ik", own("loops/four_bar"), *where, "--without-limits", "--json")
    assert (status, err) == (0, "")
    require_closed(np.array(json.loads(out)["q"], float).ravel(), most=1e-5)


def pushed(dyn, q):
    """Motions through one configuration, and torques with forces of the loop that nobody measures."""
    rng = np.random.default_rng(0)
    qd, qdd, lam = rng.normal(size=(40, 3)), rng.normal(size=(40, 3)), rng.normal(size=(40, 3))
    states = np.tile(q, (40, 1)), qd, qdd
    tau = dyn.variant(joint_forces=()).inverse_dynamics(*states) - lam @ dyn.constraint_jacobian(q)
    return states, tau


def identified(dyn, q, qd, tau):
    """The loop leaves one motion, so that one row of three tells something: with forces of the loop, nothing else."""
    states, torques = pushed(dyn, q)
    found = rd.identify(dyn.model, *states, torques, friction=False, armature=False, consistent=False, noise=1.0)
    off = found.base_values - found.base_matrix @ dyn.model.inertia.ravel()
    assert np.abs(off).max() < 1e-6 * np.abs(found.base_values).max()


def identified_by_command(dyn, q, qd, tau):
    states, torques = pushed(dyn, q)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.npz"
        np.savez(log, **dict(zip(("q", "qd", "qdd"), states, strict=True)), tau=torques)
        given = ("--no-friction", "--no-armature", "--json")
        status, out, err = cli_runner.run("identify", own("loops/four_bar"), log, *given)
    assert (status, err) == (0, "")
    assert json.loads(out)["misfit"] < 1e-3 or max(json.loads(out)["noise"]) < 1e-6


def simulated_by_command(dyn, q, qd, tau):
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "states.npz"
        given = ("--q", typed(q), "--seconds", "0.02", "--joint-forces", "", "--out", out)
        status, _, err = cli_runner.run("simulate", own("loops/four_bar"), *given)
        assert (status, err) == (0, "")
        require_closed(np.load(out)["q"][-1], most=1e-5)


OBEYING = {
    "Dynamics.step": stepped,
    "Dynamics.step_gradient": kept_by_steps,
    "Dynamics.rollout_vjp": kept_by_rollouts,
    "Dynamics.rollout_gradient": kept_by_rollouts,
    "Dynamics.constrained_forward_dynamics_gradient": kept_by_accelerations,
    "Dynamics.contact_forward_dynamics_gradient": kept_softly_by_accelerations,
    "Dynamics.impact_gradient": kept_by_impacts,
    "Dynamics.rollout": rolled,
    "Dynamics.constrained_forward_dynamics": accelerated,
    "Dynamics.constrained_inverse_dynamics": driven,
    "Dynamics.constraint_wrenches": loaded,
    "Dynamics.joint_reaction": loaded,
    "Dynamics.constraint_residual": measured,
    "Dynamics.constraint_jacobian": differentiated,
    "Dynamics.constraint_bias": differentiated,
    "Dynamics.delassus": responding,
    "Dynamics.impact": hit,
    "Dynamics.project": projected,
    "Model.assemble": assembled,
    "InverseKinematics.solve": reached,
    "InverseKinematics.velocity": turned,
    "robodyn.InverseKinematics": reached,
    "robodyn.identify": identified,
    "robodyn.optimize_trajectory": planned,
    "robodyn.Mpc": planned_again,
    "Mpc.plan": planned_again,
    "robodyn.simulate": simulated,
    "robodyn.simulators.drake.system": in_drake,
    "robodyn.simulators.gymnasium.RobodynEnv": in_environments,
    "robodyn.simulators.gymnasium.RobodynVectorEnv": in_environments,
    "robodyn.simulators.tasks.Task": in_environments,
    "robodyn.distributed.map": mapped,
    "functions of JAX and PyTorch.step": stepped_in_libraries,
    "functions of JAX and PyTorch.rollout": rolled_in_libraries,
    "commands.ask": asked,
    "commands.identify": identified_by_command,
    "commands.ik": found_by_command,
    "commands.simulate": simulated_by_command,
}


def those_that(stance):
    return {f"{place}.{name}" for place in STANCES for name in names_of(place) if stance_of(place, name) == stance}


@pytest.mark.parametrize("tried", sorted(set(OBEYING.values()), key=lambda each: each.__name__))
def test_what_obeys_does(case, tried):
    tried(*case)


def test_all_that_obeys_is_tried():
    assert those_that(OBEYS) == set(OBEYING)


@pytest.mark.parametrize("name", [name for name, each in QUERIES.items() if not (each.of_link or each.of_loads)])
def test_plain_queries_are_about_the_tree_alone(case, name):
    dyn, q, qd, tau = case
    question, given = QUERIES[name], {"q": q, "qd": qd, "qdd": tau, "tau": tau, "vector": tau}
    by_place, by_name = question.arguments({each: given[each] for each in question.plain}, None)
    found, wanted = (getattr(each, name)(*by_place, **by_name) for each in (dyn, dyn.variant(constraints=())))
    for one, other in zip(*(each if isinstance(each, tuple) else (each,) for each in (found, wanted)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_commands_about_the_tree_alone_say_so():
    robot = own("loops/four_bar")
    for arguments in (
        ("id", robot, "--engine", "reference"),
        ("fd", robot, "--engine", "reference"),
        ("gradient", robot, "--of", "fd", "--engine", "reference"),
        ("ask", robot, "mass_matrix_inverse", "--engine", "reference"),
        ("export", robot, "--query", "fd"),
        ("export", robot, "--language", "verilog"),
    ):
        status, out, err = cli_runner.run(*arguments)
        assert status == 0 and out, err
        assert err.startswith('robodyn: note: "four_bar" has constraints ("pin"), and is ') and err.count("\n") == 1
        assert "constrained_forward_dynamics obeys them" in err
    assert cli_runner.run("ask", robot, "mass_matrix", "--engine", "reference")[2] == ""
    assert cli_runner.run("fd", own("double_pendulum"), "--engine", "reference")[2] == ""


# That nothing new forgets.


def test_a_new_integrator_refuses_unless_it_says_what_it_does(case):
    dyn = case[0]
    for robot in (dyn, dyn.model):
        with pytest.raises(rd.UnavailableError, match=r'my integrator: .* "four_bar" has "pin"'):
            dynamics_of(robot, "my integrator")
    assert dynamics_of(dyn, "my integrator", "obeyed") is dyn
    free = dyn.variant(constraints=())
    assert dynamics_of(free, "my integrator") is free


MAKE_THEIR_OWN = {
    "tools/benchmark": "of queries about the tree",
    "tools/cli/app.py": "of whatever is asked",
    "tools/cli/export.py": "of whatever is asked",
    "tools/cli/simulate.py": "one of its own, whose rollout obeys them",
    "api/motion/robot.py": "the place for all others",
    "api/queries/external.py": "poses alone",
    "bridges/simulators/environments.py": "of robots without constraints",
    "solve/identification/identify.py": "obeys",
    "solve/inverse_kinematics/solver.py": "obeys",
    "tools/testing/asserts.py": "of queries about the tree",
    "tools/viewer/show.py": "poses alone",
}
TAKE_THEIR_OWN = {
    "bridges/distributed/mapping.py": "of whatever is asked",
    "api/motion/robot.py": "the place for all others",
    "solve/whole_body/control.py": "refuses constraints by name",
    "tools/plots/trajectories.py": "its model",
    "tools/viewer/show.py": "poses alone",
}
ACCELERATE = {
    "api/motion/equations.py": "beside constrained_forward_dynamics",
    "tools/testing/identities.py": "of the tree",
    "tools/testing/pinocchio_models.py": "of the tree",
}


def test_no_other_place_takes_robots_or_asks_for_accelerations():
    """What takes a `Model` or a `Dynamics` does so by `dynamics_of`, or leaves constraints out by name."""
    makes, takes, accelerates = set(), set(), set()
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).as_posix()
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if "Dynamics" in text or ".forward_dynamics" in text else ():
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            if called == "Dynamics" and "constraints" not in {each.arg for each in node.keywords}:
                makes.add("tools/benchmark" if name.startswith("tools/benchmark") else name)
            if called in ("strict_types.is_a", "isinstance") and "Dynamics" in map(ast.unparse, node.args[1:]):
                takes.add(name)
            if called.endswith(".forward_dynamics"):
                accelerates.add(name)
    assert (makes, takes, accelerates) == (set(MAKE_THEIR_OWN), set(TAKE_THEIR_OWN), set(ACCELERATE))
