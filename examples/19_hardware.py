"""A robot's gradient as a fixed-point circuit: errors by width, schedules, and a folder that simulates itself."""

import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

import robodyn as rd

MODELS = Path(__file__).resolve().parent.parent / "models"


def main():
    model = rd.load_urdf(MODELS / "cartpole.urdf")
    dyn = rd.Dynamics(model)
    box = rd.hardware.Box(qd=2.0, qdd=10.0)
    rng = np.random.default_rng(0)
    q = model.random_configuration(0, (500,))
    qd, qdd = rng.uniform(-2.0, 2.0, (500, model.nv)), rng.uniform(-10.0, 10.0, (500, model.nv))
    Minv = dyn.mass_matrix_inverse(q)
    expected = [-Minv @ each for each in dyn.inverse_dynamics_gradient(q, qd, qdd)]

    print("bits   error of dqdd/dq   of dqdd/dqd   states that wrapped")
    worst = {}
    for width in (12, 18, 24):
        d = rd.hardware.datapath(model, width=width, box=box)
        found = d.evaluate(q, qd, qdd, Minv)
        worst[width] = [np.abs(a - b).max() / np.abs(b).max() for a, b in zip(found, expected, strict=True)]
        print(f"{width:4d}   {worst[width][0]:16.1e}   {worst[width][1]:11.1e}   {int(d.wrapped.sum()):19d}")
    assert max(worst[24]) < 1e-2 * max(worst[12])

    print("\nmultipliers   a state every   latency")
    n = d.multipliers
    for options in ({}, {"interval": 4}, {"multipliers": 2}):
        d = rd.hardware.datapath(model, width=18, box=box, **options)
        print(f"{d.multipliers:11d}   {d.interval:6d} cycles   {d.latency:7d}")
    assert d.multipliers < n

    with tempfile.TemporaryDirectory() as name:
        files = d.write(name)
        print(f"\nwrote {', '.join(sorted(path.name for path in files))}")
        if shutil.which("verilator") is None:
            print("Verilator is not installed (apt-get install verilator): nothing is simulated")
            return
        commands = (Path(name) / "README.md").read_text().split("```")[1].removeprefix("sh\n")
        done = subprocess.run(["sh", "-ec", commands], cwd=name, capture_output=True, text=True, check=True)
        said = done.stdout.strip().splitlines()[-1]
        print(f"the folder's own simulation, stalled in a quarter of all cycles: {said}")
        assert "different 0 lost 0" in said


if __name__ == "__main__":
    main()
