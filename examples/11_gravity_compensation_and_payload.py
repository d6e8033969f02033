"""A payload at the tool: change a link's inertia, compensate gravity, and see how much the arm can hold."""

from dataclasses import replace
from pathlib import Path

import numpy as np

import robodyn as rd
from robodyn.description import Inertial, Pose
from robodyn.io.builders.urdf import read_urdf

np.set_printoptions(precision=3, suppress=True, linewidth=120)

MODELS = Path(__file__).resolve().parent.parent / "models"
tool = "tool0"

# A file is first read into a description: plain frozen dataclasses of links and joints. A model is built from that.
empty_handed = read_urdf(MODELS / "arm7.urdf")


def carrying(mass):
    """The arm with a cube of 10 cm in its hand, its centre 8 cm in front of the tool's frame."""
    moment = mass * 0.1**2 / 6.0
    cube = Inertial(mass, Pose(xyz=(0.0, 0.0, 0.08)), (moment, 0.0, 0.0, moment, 0.0, moment))
    links = tuple(replace(link, inertial=cube) if link.name == tool else link for link in empty_handed.links)
    return rd.build_model(replace(empty_handed, name=f"arm7 with {mass:g} kg", links=links))


model, loaded_model = rd.build_model(empty_handed), carrying(5.0)
dyn, loaded = rd.Dynamics(model), rd.Dynamics(loaded_model)
print(f"{model.name}: {model.total_mass:.2f} kg move; {loaded_model.name}: {loaded_model.total_mass:.2f} kg move")

# The arm held out, and the torques that keep it there.
q = np.array([0.0, 1.2, 0.0, -0.6, 0.0, 0.5, 0.0])
still = np.zeros(model.nv)
g, g_loaded = dyn.gravity_force(q), loaded.gravity_force(q)
print("\nholding torques, empty handed:", g, "N m")
print("holding torques with 5 kg:    ", g_loaded, "N m")

# In statics the payload is nothing but its weight: a wrench on the tool of the empty-handed arm.
pose = dyn.forward_kinematics(q)[model.link_index(tool)]
weight = 5.0 * model.gravity
wrench = np.concatenate([np.cross(pose[:3, :3] @ [0.0, 0.0, 0.08], weight), weight])
f_ext = rd.external_force(model, q, tool, wrench)
by_weight = dyn.bias_force(q, still, f_ext=f_ext)
print("by its weight as a wrench:    ", by_weight, "N m")

# In motion it is not: the payload must be accelerated too.
qd, qdd = np.full(model.nv, 0.8), np.array([1.0, -2.0, 1.0, 2.0, -1.0, 1.0, 2.0])
moving, by_weight_only = loaded.inverse_dynamics(q, qd, qdd), dyn.inverse_dynamics(q, qd, qdd, f_ext=f_ext)
print("\nmoving, the weight alone misses", moving - by_weight_only, "N m")

# A controller that does not know of the payload lets the arm sink.
sinking = loaded.forward_dynamics(q, still, g)
drop = loaded.link_acceleration(q, still, sinking, tool)[5]
print(f"compensated for an empty hand only, the tool starts downward with {-drop:.2f} m/s^2")

# Holding torques grow linearly with the mass, so the limits of the motors say at once how much the arm can hold here.
per_kilogram = (g_loaded - g) / 5.0
with np.errstate(divide="ignore"):
    room = np.where(per_kilogram > 0.0, model.effort_limit - g, model.effort_limit + g) / np.abs(per_kilogram)
weakest = int(np.argmin(room))
heaviest = room[weakest]
limit = model.effort_limit[weakest]
print(f"\nthe arm can hold {heaviest:.2f} kg in this pose; then {model.joint_names[weakest]} is at its {limit:g} N m")

# Check. One pose, no inversion: only roundings, relative to the largest torque.
scale = np.abs(g_loaded).max()
at_limit = rd.Dynamics(carrying(heaviest)).gravity_force(q)
errors = {
    "payload in statics = its weight as a wrench": np.abs(g_loaded - by_weight).max() / scale,
    "the heaviest payload uses the weakest motor": abs(abs(at_limit[weakest]) - limit) / limit,
    "the payload adds its mass": abs(loaded_model.total_mass - model.total_mass - 5.0) / 5.0,
}
print()
for name, error in errors.items():
    print(f"{name:<44} off by {error:.1e}")
    assert error < 1e-12, f"{name}: off by {error:.1e}"
assert (np.abs(at_limit) <= model.effort_limit * (1.0 + 1e-12)).all(), f"other motors are overloaded: {at_limit}"
assert np.abs(moving - by_weight_only).max() > 1.0, "in motion the payload's inertia should be felt"
assert drop < -0.5, f"the arm should sink, but the tool starts with {drop:.2f} m/s^2"
