"""What loading tells you: the report of a model, strict and lenient loading, and why a mass matrix is singular."""

from pathlib import Path

import numpy as np

import robodyn as rd

MODELS = Path(__file__).resolve().parent.parent / "models"


def codes(model):
    return {finding.code for finding in model.report}


# Every model carries a report: one finding for each thing that was merged, defaulted, ignored or doubtful.
models = {name: rd.load_urdf(MODELS / f"{name}.urdf") for name in ("oblique", "gripper", "massless_tip")}
for name, model in models.items():
    print(f"{name}.urdf: {len(model.report)} findings")
    for finding in model.report:
        print(f"  {finding}")
    print()

# Programs look at codes and severities: here, what somebody should look at before trusting the robot.
for name, model in models.items():
    doubtful = [f"{finding.code} ({finding.element})" for finding in model.report if finding.severity != "info"]
    print(f"{name}: {', '.join(doubtful)}")

# A misspelling is not silently skipped, and what it costs is found too.
text = (MODELS / "massless_tip.urdf").read_text(encoding="utf-8")
misspelt = rd.load_urdf(text.replace("inertial>", "inertail>"))
print("\na misspelt <inertial>:")
for finding in misspelt.report:
    if finding.severity == "warning":
        print(f"  {finding}")

# What no body can have is refused. strict=False takes it as it stands, and the report says so.
impossible = text.replace('<mass value="1.5"/>', '<mass value="-1.5"/>')
print("\na negative mass:")
try:
    rd.load_urdf(impossible)
    raise SystemExit("a negative mass was accepted by strict loading")
except rd.LoadError as error:
    print(f"  strict:  {error}")
lenient = rd.load_urdf(impossible, strict=False)
print("  lenient:", *(finding for finding in lenient.report if finding.severity == "error"))

# Inverse dynamics needs no inertia at the tip; forward dynamics has no answer there and says which body is to blame.
dyn = rd.Dynamics(models["massless_tip"])
q, qd, tau = np.array([0.3, -0.4, 0.2]), np.array([1.0, -0.5, 2.0]), np.zeros(3)
print("\nmassless tip: torques for qdd = 0:", dyn.inverse_dynamics(q, qd, np.zeros(3)).round(4))
message = ""
try:
    dyn.forward_dynamics(q, qd, tau)
except rd.SingularError as error:
    message = str(error)
    print(f"forward dynamics: {message}")

# One of the cures that the message names: fix the joint, and two degrees of freedom are left.
cured = rd.load_urdf(text.replace('<joint name="tip" type="revolute">', '<joint name="tip" type="fixed">'))
qdd = rd.Dynamics(cured).forward_dynamics(q[:2], qd[:2], tau[:2])
print("with the tip fixed: qdd =", qdd.round(4))

# Check: the findings that the files are made for, the body named, and the cure.
wanted = {
    "oblique": {"axis-normalised", "axis-defaulted", "merged-link", "link-without-inertial"},
    "gripper": {"mimic-of-fixed-joint", "merged-link"},
    "massless_tip": {"massless-leaf", "link-without-inertial"},
}
for name, expected in wanted.items():
    missing = expected - codes(models[name])
    assert not missing, f"the report of {name} lacks {missing}"
assert {"unknown-tag", "massless-leaf"} <= codes(misspelt), f"misspelt: {codes(misspelt)}"
assert "negative-mass" in codes(lenient), f"lenient: {codes(lenient)}"
assert "'pointer'" in message, f"SingularError does not name the body 'pointer': {message!r}"
# Fixing a massless link changes nothing for the others: their torques must bring qdd back, up to roundings.
back = dyn.inverse_dynamics(q, np.array([*qd[:2], 0.0]), np.array([*qdd, 0.0]))
assert np.abs(back).max() < 1e-12, f"torques of the free fall are {back}, not zero"
