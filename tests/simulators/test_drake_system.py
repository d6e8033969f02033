"""Robots as systems of Drake, where its wheel is installed, beside MultibodyPlants of the same files."""

from __future__ import annotations

import numpy as np
import pytest
import robots_with_loops as loops
from conftest import relative
from robots import own

import robodyn as rd
from robodyn.simulators.drake import system

pytest.importorskip("pydrake", reason="the extra 'drake' is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")  # Drake's parser on what it leaves out

SECONDS, STEP = 0.3, 1e-3


def plant_of(name):
    """Drake's reading of the file, and our joints in its order."""
    from pydrake.multibody.parsing import Parser
    from pydrake.multibody.plant import MultibodyPlant

    plant = MultibodyPlant(0.0)
    Parser(plant).AddModels(str(own(name)))
    if name != "quadruped":
        plant.WeldFrames(plant.world_frame(), plant.GetFrameByName(rd.load_urdf(own(name)).link_names[0]))
    plant.Finalize()
    joints = sorted((plant.get_joint(i) for i in plant.GetJointIndices()), key=lambda each: each.velocity_start())
    return plant, [each.name() for each in joints if each.num_velocities() == 1]


def simulated(whole, put):
    """The state of a system after Drake's own integration in fixed steps, from where it is put."""
    from pydrake.systems.analysis import ResetIntegratorFromFlags, Simulator

    context = whole.CreateDefaultContext()
    put(context)
    simulator = Simulator(whole, context)
    ResetIntegratorFromFlags(simulator, "runge_kutta3", STEP)
    simulator.get_mutable_integrator().set_fixed_step_mode(True)
    simulator.Initialize()
    simulator.AdvanceTo(SECONDS)
    return context.get_continuous_state_vector().CopyToVector()


@pytest.mark.parametrize("name", ["arm7", "quadruped"])
def test_from_a_moving_start_with_damping(name):
    """The same torques, the same integrator, and dampers: the same state after all steps."""
    model = rd.load_urdf(own(name), base="floating" if name == "quadruped" else "fixed")
    plant, names = plant_of(name)
    base = model.joint_names[:1] if name == "quadruped" else ()
    whole = system(rd.Dynamics(model, joint_forces="damping"), joint_names=(*base, *names))
    rng = np.random.default_rng(0)
    q, qd = model.random_configuration(rng), rng.normal(size=model.nv)
    tau = whole.converter.tau_to(q, np.where(np.arange(model.nv) < len(base) * 6, 0.0, rng.normal(size=model.nv)))
    assert model.damping.any()

    def ours(context):
        whole.set_state(context, q, qd)
        whole.get_input_port(0).FixValue(context, tau)

    def theirs(context):
        plant.SetPositionsAndVelocities(context, np.concatenate((whole.converter.q_to(q), whole.converter.v_to(q, qd))))
        plant.get_applied_generalized_force_input_port().FixValue(context, tau)

    context, other = whole.CreateDefaultContext(), plant.CreateDefaultContext()
    ours(context), theirs(other)
    rates = [each.EvalTimeDerivatives(at).CopyToVector() for each, at in ((whole, context), (plant, other))]
    assert relative(*rates) < 1e-10
    told = whole.GetOutputPort("acceleration").Eval(context)
    assert (told == rates[0][whole.converter.nq :]).all()
    state = whole.GetOutputPort("state").Eval(context)
    assert relative(state, plant.GetPositionsAndVelocities(other)) < 1e-14
    ends = simulated(whole, ours), simulated(plant, theirs)
    print(f"{name}: apart by {np.abs(ends[0] - ends[1]).max():.1e} of {np.abs(ends[1]).max():.1f} after {SECONDS} s")
    assert relative(*ends) < 1e-8 and np.abs(ends[0] - state).max() > 0.1


def test_rates_of_quaternions_of_every_kind():
    """The rates of positions are those of the motion on the manifold, for balls, planes and floating bases."""
    model = rd.random_tree(7, seed=5, joints=("planar", "spherical", "revolute", "helical"), base="floating")
    whole, rng, h = system(model), np.random.default_rng(1), 1e-6
    q, qd = model.random_configuration(rng), rng.normal(size=model.nv)
    context = whole.CreateDefaultContext()
    whole.set_state(context, q, qd)
    found = whole.EvalTimeDerivatives(context).CopyToVector()
    way = whole.converter
    ends = [way.q_to(model.integrate(q, qd, t)) for t in (h, -h)]
    assert relative(found[: way.nq], (ends[0] - ends[1]) / (2.0 * h)) < 1e-8
    qdd = rd.Dynamics(model, joint_forces="damping").forward_dynamics(q, qd, np.zeros(model.nv))
    assert relative(found[way.nq :], way.a_to(q, qd, qdd)) < 1e-12


def test_in_a_diagram_at_rest():
    """A constant force on its port holds an arm; without one it falls."""
    from pydrake.systems.analysis import Simulator
    from pydrake.systems.framework import DiagramBuilder
    from pydrake.systems.primitives import ConstantVectorSource

    model = rd.load_urdf(own("arm6"))
    q, dyn = np.array([0.0, -1.2, 1.4, -1.0, -1.5, 0.5]), rd.Dynamics(model)
    for force, holds in ((dyn.gravity_force(q), True), (None, False)):
        builder = DiagramBuilder()
        robot = builder.AddSystem(system(model))
        if force is not None:
            source = builder.AddSystem(ConstantVectorSource(robot.converter.tau_to(q, force)))
            builder.Connect(source.get_output_port(0), robot.get_input_port(0))
        simulator = Simulator(builder.Build())
        robot.set_state(simulator.get_mutable_context(), q, np.zeros(6))
        simulator.AdvanceTo(0.2)
        state = simulator.get_context().get_continuous_state_vector().CopyToVector()
        assert (np.abs(robot.converter.q_from(state[:6]) - q).max() < 1e-8) == holds


def followed(whole, put, seconds, integrator=None):
    """The state in our coordinates after Drake's own steps."""
    from pydrake.systems.analysis import ResetIntegratorFromFlags, Simulator
    from pydrake.systems.framework import DiagramBuilder

    builder = DiagramBuilder()
    builder.AddSystem(whole)
    simulator = Simulator(builder.Build())
    put(simulator.get_mutable_context())
    if integrator is not None:
        ResetIntegratorFromFlags(simulator, integrator, STEP)
    simulator.AdvanceTo(seconds)
    found, way = simulator.get_context().get_continuous_state_vector().CopyToVector(), whole.converter
    q = way.model.unit_coordinates(np.asarray(way.q_from(found[: way.nq])))
    return q, way.v_from(q, found[way.nq :])


@pytest.mark.parametrize("integrator", [None, "runge_kutta2", "implicit_euler"])
def test_closed_loops_stay_closed(integrator):
    """By an integrator with error control, and by those of fixed steps: closed, and where our own rollout has it."""
    dyn = rd.Dynamics(rd.load_urdf(own("loops/four_bar")))
    start, still = loops.four_bar(np.pi / 3), np.zeros(3)
    whole = system(dyn)
    q, qd = followed(whole, lambda context: whole.set_state(context, start, still), 0.5, integrator)
    phi, phidot = dyn.constraint_residual(q, qd)
    wanted = dyn.rollout(start, still, dt=2e-4, steps=2500, integrator="rk4", save_every=None).q[-1]
    print(f"{integrator}: off by {np.abs(phi).max():.1e}, apart from the rollout by {np.abs(q - wanted).max():.1e}")
    assert max(np.abs(phi).max(), np.abs(phidot).max()) < (1e-3 if integrator == "implicit_euler" else 1e-7)
    assert integrator == "implicit_euler" or np.abs(q - wanted).max() < 1e-4
    assert np.abs(q - start).max() > 1.0


def test_legs_in_the_air_stay_whole():
    """Loops of a base that floats: quaternions, and velocities in Drake's axes."""
    dyn = rd.Dynamics(rd.load_urdf(own("loops/bird_legs"), base="floating"))
    start = loops.near(dyn, 0)[:2]
    whole = system(dyn)
    q, qd = followed(whole, lambda context: whole.set_state(context, *start), 0.1)
    phi, phidot = dyn.constraint_residual(q, qd)
    assert max(np.abs(phi).max(), np.abs(phidot).max()) < 1e-6 and np.abs(q - start[0]).max() > 0.01


def test_baumgartes_terms_are_in_the_accelerations():
    model = rd.load_urdf(own("loops/four_bar"))
    ends = {"at": (0.28, 0, 0), "to_at": (0.2, 0, 0)}
    dyn = rd.Dynamics(model, constraints=[rd.Weld("coupler", "rocker", **ends, rows=("x", "z"), baumgarte=(30.0, 1.0))])
    q, qd, tau = loops.four_bar(0.9) + np.array([0.0, 1e-4, 0.0]), np.zeros(3), np.zeros(3)
    for each in (dyn, rd.Dynamics(model)):
        whole = system(each)
        context = whole.CreateDefaultContext()
        whole.set_state(context, q, qd)
        qdd = whole.GetOutputPort("acceleration").Eval(context)
        assert relative(qdd, each.constrained_forward_dynamics(q, qd, tau)[0]) < 1e-12
    assert np.abs(qdd - dyn.constrained_forward_dynamics(q, qd, tau)[0]).max() > 0.1


def test_dry_friction_stops_and_stands():
    """The law of rollouts: 1 rad/s, 0.02 N m against a hinge of 0.01 kg m^2."""
    text = (
        '<robot name="wheel"><link name="fork"/><link name="wheel"><inertial><mass value="1"/><inertia ixx="0.01" '
        'ixy="0" ixz="0" iyy="0.01" iyz="0" izz="0.01"/></inertial></link><joint name="hub" type="continuous"><parent '
        'link="fork"/><child link="wheel"/><axis xyz="0 0 1"/><dynamics friction="0.02"/></joint></robot>'
    )
    whole = system(rd.Dynamics(rd.load_urdf(text), joint_forces="friction"))
    q, qd = followed(whole, lambda context: whole.set_state(context, [0.0], [1.0]), 0.7)
    assert abs(q[0] - 0.25) < 1e-3 and abs(qd[0]) < 1e-4


def test_what_is_wrong_is_named():
    model = rd.load_urdf(own("arm6"))
    robot = system(model)
    context = robot.CreateDefaultContext()
    for call, error, text in (
        (lambda: system(3), rd.ArgumentError, "dyn: got 3; wanted a robodyn.Dynamics or Model"),
        (lambda: system(model, ["elbow"]), rd.ArgumentError, "joint_names"),
        (lambda: robot.set_state(context, np.zeros(5), np.zeros(6)), rd.ArgumentError, r"q: got shape \(5,\)"),
        (lambda: robot.set_state(context, np.zeros(6), np.full(6, np.nan)), rd.NumericalError, "qd: NaN"),
    ):
        with pytest.raises(error, match=text):
            call()
    model = rd.load_urdf(own("loops/four_bar"))
    whole = system(model)
    with pytest.raises(rd.NumericalError, match=r"the state is off the constraints: 'pin\.x' is off by 0\.12"):
        followed(whole, lambda context: None, 0.1)
    with pytest.raises(
        rd.ArgumentError, match=r'constraints: "foot" to the world without a place; drake\.system wants'
    ):
        system(rd.Dynamics(model, constraints=[rd.Point("rocker", name="foot")]))
